//! Files of backings that a server has handed over, with their locks: a lock is the open file's, so it is never free.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use super::Sharing;

/// Files that another server has open.
#[derive(Default)]
pub(crate) struct HandedFiles(Vec<(Sharing, File)>);

impl HandedFiles {
    /// These.
    ///
    /// # Errors
    /// One of them cannot be looked at.
    pub(crate) fn new(files: impl IntoIterator<Item = File>) -> std::io::Result<Self> {
        let named = |file: File| Ok((of(&file.metadata()?), file));
        files.into_iter().map(named).collect::<std::io::Result<_>>().map(Self)
    }

    /// The one that a path leads to, whatever it is called there.
    pub(crate) fn take(&mut self, path: &std::fs::Metadata) -> Option<File> {
        let at = self.0.iter().position(|(sharing, _)| *sharing == of(path))?;
        Some(self.0.swap_remove(at).1)
    }

    /// How many nobody has taken.
    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }
}

/// The identity of a file or block device, whatever its name.
pub(crate) fn of(metadata: &std::fs::Metadata) -> Sharing {
    match metadata.file_type().is_block_device() {
        true => Sharing::File(u64::MAX, metadata.rdev()),
        false => Sharing::File(metadata.dev(), metadata.ino()),
    }
}
