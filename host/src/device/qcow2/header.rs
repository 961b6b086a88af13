//! Header: what a qcow2 image says of itself, and whether it can be read. Pure: it is given bytes.
//!
//! The crate that reads images takes the format apart again. Here it is decided what it is given at all: a feature that it does not know, or that
//! it does not look at (encryption), is named with the remedy, and how much memory the tables may take is bounded.

use std::path::Path;

/// As many bytes of an image are looked at: the header of version 3, up to where the kind of compression stands.
pub(super) const BYTES: usize = 105;
pub(super) const MAGIC: [u8; 4] = *b"QFI\xfb";
/// As many tables of each image are kept in memory (imago 0.2).
const TABLES_KEPT: u64 = 128;
/// The largest first table. Chosen: QEMU's own bound.
const FIRST_MAX: u64 = 4 << 20;

/// The parts of an image's header that matter here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// Of the disk, in bytes.
    pub(super) size: u64,
    /// The unit in which the image is allocated, in bytes.
    pub(super) cluster: u64,
    /// How much memory its tables may take.
    pub(super) memory: u64,
}

/// An incompatible feature: its bit, what it makes of the image, and the remedy, in which `{}` is its path.
struct Feature(u32, &'static str, &'static str);

const FEATURES: [Feature; 5] = [
    Feature(
        0,
        "was not closed in order, or is in use",
        "have the program that writes it stop, or mend it (qemu-img check -r all {})",
    ),
    Feature(1, "is marked as corrupt", "look at it (qemu-img check {}), and mend it or restore it"),
    Feature(2, "has its data in another file", "convert it (qemu-img convert -O qcow2 {} NEW.qcow2)"),
    Feature(
        3,
        "is compressed in another way than deflate (zstd)",
        "convert it (qemu-img convert -c -O qcow2 -o compression_type=zlib {} NEW.qcow2)",
    ),
    Feature(4, "has extended L2 entries", "convert it (qemu-img convert -O qcow2 -o extended_l2=off {} NEW.qcow2)"),
];

impl Head {
    /// Reads what an image at a path begins with: [`BYTES`], or less if it ends before.
    ///
    /// # Errors
    /// The reason why it cannot be read, and the remedy.
    pub(super) fn read(bytes: &[u8], path: &Path) -> Result<Self, String> {
        let short = || "ends within its header".to_owned();
        let u32_at = |at: usize| {
            Ok::<_, String>(u32::from_be_bytes(*bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or_else(short)?))
        };
        let u64_at = |at: usize| {
            Ok::<_, String>(u64::from_be_bytes(*bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or_else(short)?))
        };
        if !bytes.starts_with(&MAGIC) {
            return Err("is no qcow2 image: it begins with something else".into());
        }
        let version = u32_at(4)?;
        if !(2..=3).contains(&version) {
            return Err(format!("has version {version} of qcow2, and versions 2 and 3 are read"));
        }
        let bits = u32_at(20)?;
        let size = u64_at(24)?;
        let (crypt, first) = (u32_at(32)?, u64::from(u32_at(36)?));
        if crypt != 0 {
            return Err(format!(
                "is encrypted, and its key is not asked for: convert it (qemu-img convert -O qcow2 {} NEW.qcow2), and keep it on an encrypted file system",
                path.display()
            ));
        }
        let features = if version == 3 { u64_at(72)? } else { 0 };
        if let Some(Feature(_, what, remedy)) = FEATURES.iter().find(|feature| features & 1 << feature.0 != 0) {
            return Err(format!("{what}: {}", remedy.replace("{}", &path.display().to_string())));
        }
        if features != 0 {
            return Err(format!("has features that are not known (bits {features:#x}), and could be read wrongly"));
        }
        if !(9..=21).contains(&bits) {
            return Err(format!("is damaged: it has clusters of 2^{bits} bytes, and 512 bytes to 2 MiB are possible"));
        }
        if size == 0 {
            return Err("has a disk of 0 bytes".into());
        }
        let cluster = 1 << bits;
        let needed = size.div_ceil(cluster).div_ceil(cluster / 8);
        if first > FIRST_MAX || first < needed {
            return Err(format!(
                "is damaged: its first table has {first} entries, and its disk of {size} bytes needs {needed}"
            ));
        }
        Ok(Self { size, cluster, memory: first * 8 + first.min(TABLES_KEPT) * cluster })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk of 1 GiB in clusters of 64 KiB.
    fn plain() -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        put(4, &3u32.to_be_bytes());
        put(20, &16u32.to_be_bytes());
        put(24, &(1u64 << 30).to_be_bytes());
        put(36, &2u32.to_be_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Head, String> {
        Head::read(bytes, Path::new("a.qcow2"))
    }

    #[test]
    fn a_plain_image_is_read_and_tells_what_memory_it_may_take() {
        assert_eq!(read(&plain()), Ok(Head { size: 1 << 30, cluster: 65536, memory: 16 + 2 * 65536 }));
    }

    #[test]
    fn an_image_that_cannot_be_read_is_refused_with_what_to_do() {
        for (at, bytes, why) in [
            (0, &b"QED\0"[..], "is no qcow2 image"),
            (7, &[4], "version 4"),
            (23, &[8], "clusters of 2^8"),
            (23, &[22], "clusters of 2^22"),
            (24, &[0, 0, 0, 0, 0, 0, 0, 0], "0 bytes"),
            (24, &[0, 0, 1], "needs 2050"),
            (35, &[2], "encrypted"),
            (36, &[0xff], "is damaged: its first table"),
            (39, &[1], "its first table has 1 entries"),
            (79, &[1], "qemu-img check -r all a.qcow2"),
            (79, &[2], "corrupt"),
            (79, &[4], "another file"),
            (79, &[8], "zstd"),
            (79, &[16], "extended_l2=off"),
            (72, &[1], "not known"),
        ] {
            let mut bad = plain();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            let says = read(&bad).unwrap_err();
            assert!(says.contains(why), "{at}: {says}");
        }
        for len in [0, 3, 7, 30, 39, 75] {
            assert!(read(&plain()[..len]).is_err(), "{len} bytes");
        }
    }
}
