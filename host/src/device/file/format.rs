//! Formats: images that begin with something else than the disk's first sector.
//!
//! A server of raw images shows the bytes of a file as they are. A qcow2 of a disk of 100 GiB is then a disk of 200 KiB, and the first
//! write to it destroys the image. A LUKS container is ciphertext to a client that was promised a disk.
//!
//! format.1  Only what a format's own text promises to be there is looked for, within the first 8 KiB.
//! format.2  A client writes a LUKS header or a partition table on its own disk for good reason: those can be written. A GPT lies in
//!           the second sector. One made for sectors of 4 KiB (an image of such a disk) is not found by clients that see 512 bytes, and the
//!           disk seems empty.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::kernel::buffer::Pages;

/// A format: its name for qemu-img, its name for people, and the bytes with which its images begin, by offset.
pub(super) struct Format {
    name: &'static str,
    says: &'static str,
    at: usize,
    begins: &'static [u8],
}

const fn row(name: &'static str, says: &'static str, at: usize, begins: &'static [u8]) -> Format {
    Format { name, says, at, begins }
}

const FORMATS: [Format; 11] = [
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
    row("gpt", "a disk with a GPT for sectors of 4096 bytes", 4096, b"EFI PART"),
];

/// The format that a file has, if it is none of bare bytes; `block`: what it is read in multiples of.
pub(super) fn of(file: &fs::File, block: u32) -> Option<&'static Format> {
    let mut memory = Pages::new(block.max(8192) as usize);
    // An unreadable file is reported to its readers.
    let read = file.read_at(memory.bytes_mut(), 0).unwrap_or(0);
    let head = &memory.bytes_mut()[..read];
    let begins = |at: usize, begins| head.get(at..).is_some_and(|rest| rest.starts_with(begins));
    let found = FORMATS.iter().find(|format| begins(format.at, format.begins));
    found.filter(|format| format.name != "gpt" || block < 4096 && !begins(512, format.begins)) // format.2
}

const DESTROYED: &str = ": clients would see its raw bytes, and a write would destroy it";

impl Format {
    /// Whether a client writes such a header on a disk of its own for good reason (format.2).
    pub(super) fn may_be_a_clients(&self) -> bool {
        ["luks", "gpt"].contains(&self.name)
    }

    /// The format of the file, and the remedy.
    pub(super) fn tell(&self, path: &Path) -> String {
        let (says, path) = (self.says, path.display());
        let (harm, remedy) = match self.name {
            "luks" => (
                ", and clients see its ciphertext",
                format!("open it (cryptsetup open {path} NAME) and serve /dev/mapper/NAME"),
            ),
            "gpt" => (
                ", and clients that see sectors of 512 do not find its partitions",
                format!("serve it by a loop device (losetup -b 4096 -f --show {path})"),
            ),
            "qcow2" => (DESTROYED, format!("begin a disk with its content (overlay:base=qcow2:{path},top=NEW.top)")),
            name => (DESTROYED, format!("convert it (qemu-img convert -f {name} -O raw {path} NEW.img)")),
        };
        format!("{path} is {says}{harm}; {remedy}, or to serve its raw bytes: file:{path},format=raw")
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
            if *name == "gpt" {
                bytes.rotate_left(1);
                bytes[512..512 + begins.len()].copy_from_slice(begins);
                assert_eq!(found(&bytes), None, "there is one for sectors of 512 bytes too");
            }
        }
        for bare in [&[][..], b"QFI", &[0; 512], b"LUKS, a text"] {
            assert_eq!(found(bare), None);
        }
        fs::remove_file(path).unwrap();
    }
}
