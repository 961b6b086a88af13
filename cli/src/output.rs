//! Where reports go, and how commands are shown.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

/// `-` is standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Opens a file for writing and leaves it, or its absence, as it was. A pipe is left alone: its reader would take the
/// closing for the end.
pub(crate) fn try_writing(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let kind = fs::metadata(path)?.file_type();
            if kind.is_file() || kind.is_dir() { OpenOptions::new().write(true).open(path).map(drop) } else { Ok(()) }
        }
        Err(error) => Err(error),
    }
}

/// As a shell takes it for one word.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}
