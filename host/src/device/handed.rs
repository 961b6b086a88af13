//! Files of backings that a server has handed over, with their locks: a lock is the open file's, so it is never free.
//!
//! given.1  A backing that is opened by a server that takes over gets the open files of the one before, wherever it opens a file: its own, and those
//!          that it lies over. A file that was not handed over is refused, for another server may have it.
//! given.2  A file with a name is found by the file that its path leads to; one without a name (an ephemeral top, RAM) by the export that
//! had it.
//! given.3  Connections to a remote backing are found by its name: of another server its URI.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::sync::Arc;

use fairlift_core::record::Record;
use rustix::fs::OFlags;

use super::Sharing;

/// A file that a backing has open. It is lent, not copied: a copy that is closed would take the process lock with it.
pub(crate) type OpenFile = Arc<dyn AsFd + Send + Sync>;

#[derive(Default)]
pub(crate) struct HandedFiles {
    all: Vec<HandedFile>,
    /// The export whose backing is being opened.
    export: String,
    taken: HashSet<Sharing>,
    links: Vec<(String, Links)>,
}

/// Connections to a remote backing.
#[derive(Default)]
pub(crate) struct Links {
    pub(crate) sockets: Vec<OwnedFd>,
    /// The agreement on them.
    pub(crate) says: Record,
}

struct HandedFile {
    /// The first export that has it.
    export: String,
    is: Sharing,
    has_name: bool,
    flags: OFlags,
    file: File,
}

impl HandedFiles {
    /// A file of an export's backing.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub(crate) fn add(&mut self, export: &str, file: OwnedFd) -> std::io::Result<()> {
        let file = File::from(file);
        let metadata = file.metadata()?;
        let has_name = metadata.nlink() > 0;
        let flags = rustix::fs::fcntl_getfl(&file)?;
        self.all.push(HandedFile { export: export.to_owned(), is: of(&metadata), has_name, flags, file });
        Ok(())
    }

    pub(crate) fn opens(&mut self, export: &str) {
        export.clone_into(&mut self.export);
    }

    /// The one that a path leads to, whatever it is called there. A server may have it open more than once: for reading and for writing, past the
    /// page cache and through it. It is the handed file most like the wanted one.
    pub(crate) fn take(&mut self, path: &std::fs::Metadata, direct: bool, read_only: bool) -> Option<File> {
        let is = of(path);
        let likeness = |one: &HandedFile| {
            let is_read_only = one.flags & OFlags::RWMODE == OFlags::RDONLY;
            let is_direct = one.flags.contains(OFlags::DIRECT);
            (is_read_only == read_only, is_direct == direct)
        };
        let there = self.all.iter().enumerate().filter(|(_, one)| one.is == is);
        // Of those that are alike the first.
        let (at, _) = there.rev().max_by_key(|(_, one)| likeness(one))?;
        self.taken.insert(is);
        Some(self.all.remove(at).file)
    }

    /// The one without a name that the export has, which is being opened.
    pub(crate) fn take_unnamed(&mut self) -> Option<File> {
        let at = self.all.iter().position(|one| !one.has_name && one.export == self.export)?;
        Some(self.all.remove(at).file)
    }

    /// Connections to the backing of this name (given.3).
    pub(crate) fn add_links(&mut self, name: String, links: Links) {
        self.links.push((name, links));
    }

    pub(crate) fn take_links(&mut self, name: &str) -> Option<Links> {
        let at = self.links.iter().position(|(there, _)| there == name)?;
        Some(self.links.swap_remove(at).1)
    }

    /// How many nobody has taken, but for those that another server had open more than once.
    pub(crate) fn left(&self) -> usize {
        self.all.iter().filter(|one| !self.taken.contains(&one.is)).count() + self.links.len()
    }
}

/// The identity of a file or block device, whatever its name.
pub(crate) fn of(metadata: &std::fs::Metadata) -> Sharing {
    match metadata.file_type().is_block_device() {
        true => Sharing::File(u64::MAX, metadata.rdev()),
        false => Sharing::File(metadata.dev(), metadata.ino()),
    }
}
