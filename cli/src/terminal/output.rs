//! Where reports go, and how commands are shown.

use std::ffi::CStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use fairlift_lab::result::Host;

pub(crate) const COMMIT: &str = env!("FAIRLIFT_COMMIT");

/// This machine and its kernel, for the heads of reports.
pub(crate) fn host() -> Host {
    let uname = rustix::system::uname();
    let text = |name: &CStr| name.to_string_lossy().into_owned();
    Host { name: text(uname.nodename()), kernel: text(uname.release()) }
}

/// Writes to standard output; a reader that has seen enough is no error.
pub(crate) fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// `-` is standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Opens a file for writing and leaves it, or its absence, as it was. Not a pipe: its reader would take the closing for the end.
pub(crate) fn try_writing(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let kind = fs::metadata(path)?.file_type();
            if kind.is_block_device() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "this is a disk; a report would overwrite its data",
                ));
            }
            if kind.is_file() || kind.is_dir() { OpenOptions::new().write(true).open(path).map(drop) } else { Ok(()) }
        }
        Err(error) => Err(error),
    }
}

/// Whether two paths lead to one file.
pub(crate) fn are_same(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    inode(one).is_some() && inode(one) == inode(other)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As a shell takes it for one word.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}
