//! Formats: images that begin with something else than the disk's first sector.
//!
//! A server of raw images shows the bytes of a file as they are. A qcow2 of a disk of 100 GiB is then a disk of 200 KiB, and the first
//! write to it destroys the image. A LUKS container is ciphertext to whoever was promised a disk.
//!
//! format.1  Only what a format's own text promises to be there is looked for, within the first block.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::kernel::buffer::Pages;

/// What qemu-img calls a format, what people call it, and how its images begin: at which byte with what.
pub(super) struct Format {
    name: &'static str,
    says: &'static str,
    at: usize,
    begins: &'static [u8],
}

const fn row(name: &'static str, says: &'static str, at: usize, begins: &'static [u8]) -> Format {
    Format { name, says, at, begins }
}

const FORMATS: [Format; 10] = [
    row("qcow2", "a qcow2 image", 0, b"QFI\xfb"),
    row("qed", "a QED image", 0, b"QED\0"),
    row("vmdk", "a VMDK image", 0, b"KDMV"),
    row("vmdk", "a VMDK image", 0, b"COWD"),
    row("vmdk", "the descriptor of a VMDK image", 0, b"# Disk DescriptorFile"),
    row("vhdx", "a VHDX image", 0, b"vhdxfile"),
    row("vpc", "a VHD image", 0, b"conectix"),
    row("vdi", "a VDI image", 64, b"\x7f\x10\xda\xbe"),
    row("parallels", "a Parallels image", 0, b"WithouFreSpacExt"),
    row("luks", "a LUKS container", 0, b"LUKS\xba\xbe"),
];

/// The format that a file has, if it is none of bare bytes; `block`: what it is read in multiples of.
pub(super) fn of(file: &fs::File, block: u32) -> Option<&'static Format> {
    let mut memory = Pages::new(block.max(4096) as usize);
    // What cannot be read is told to those who read it.
    let read = file.read_at(memory.bytes_mut(), 0).unwrap_or(0);
    let head = &memory.bytes_mut()[..read];
    FORMATS.iter().find(|format| head.get(format.at..).is_some_and(|rest| rest.starts_with(format.begins)))
}

impl Format {
    /// Whether a client writes such a header on a disk of its own for good reason.
    pub(super) fn may_be_a_clients(&self) -> bool {
        self.name == "luks"
    }

    /// Says what the file is, and what to do.
    pub(super) fn tell(&self, path: &Path) {
        let (says, path) = (self.says, path.display());
        let raw = format!("if these are the bytes that clients shall see: file:{path},format=raw");
        match self.name {
            "luks" => tracing::warn!(
                "{path} is {says}, and clients see its ciphertext; open it (cryptsetup open {path} NAME) and serve /dev/mapper/NAME, or {raw}"
            ),
            name => tracing::error!(
                "{path} is {says}, of which clients see the bare bytes; it is served read-only, for a write would destroy it; convert it \
                 (qemu-img convert -f {name} -O raw {path} NEW.img), or {raw}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// format.1
    #[test]
    fn a_file_is_what_it_begins_as_and_bare_bytes_otherwise() {
        let path = std::env::temp_dir().join(format!("fairlift-format-{}", std::process::id()));
        let found = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            of(&fs::File::open(&path).unwrap(), 512).map(|format| format.name)
        };
        for Format { name, at, begins, .. } in &FORMATS {
            let mut bytes = vec![0; 8192];
            bytes[*at..at + begins.len()].copy_from_slice(begins);
            assert_eq!(found(&bytes), Some(*name));
            bytes.rotate_right(1);
            assert_eq!(found(&bytes), None, "elsewhere it is data");
        }
        for bare in [&[][..], b"QFI", &[0; 512], b"LUKS, a text"] {
            assert_eq!(found(bare), None);
        }
        fs::remove_file(path).unwrap();
    }
}
