//! A file of a chain, as the crate reads it.

use std::fmt;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use imago::Storage;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::drivers::CommonStorageHelper;

use crate::device::file::File;
use crate::device::{Device as _, Run};

/// A file that was opened and locked. A read beyond its end gives zeroes up to the end of its last cluster, as QEMU leaves it, and fails
/// behind that: the file was cut short.
pub(super) struct ChainFile {
    file: Arc<File>,
    end: u64,
    helper: CommonStorageHelper,
}

impl ChainFile {
    /// A file that is allocated in clusters of `cluster` bytes.
    pub(super) fn new(file: &Arc<File>, cluster: u64) -> Self {
        let end = file.facts().size.next_multiple_of(cluster);
        Self { file: Arc::clone(file), end, helper: CommonStorageHelper::default() }
    }

    /// The run of data or hole that starts at a byte.
    ///
    /// # Errors
    /// It reaches beyond the end of the file.
    pub(super) fn run(&self, at: u64, len: u64) -> io::Result<Run> {
        self.check(at, len)?;
        match self.file.facts().size.saturating_sub(at) {
            0 => Ok(Run { len, hole: true }),
            within => self.file.run(at, len.min(within)),
        }
    }

    fn check(&self, at: u64, len: u64) -> io::Result<()> {
        if at.checked_add(len).is_some_and(|end| end <= self.end) {
            return Ok(());
        }
        let why = format!(
            "{len} bytes at {at} of {self} are needed, which ends at {}: it was cut short, or is damaged",
            self.end
        );
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
    }
}

impl Storage for ChainFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.facts().size)
    }

    // SAFETY: it asks nothing of its caller.
    unsafe fn pure_readv(&self, pieces: IoVectorMut<'_>, mut at: u64) -> io::Result<()> {
        self.check(at, pieces.len())?;
        for mut piece in pieces.into_inner() {
            let within = self.file.facts().size.saturating_sub(at).min(piece.len() as u64) as usize;
            let (there, beyond) = piece.split_at_mut(within);
            self.file.file.read_exact_at(there, at).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), format!("{self} is shorter than it was")),
                _ => error,
            })?;
            beyond.fill(0);
            at += piece.len() as u64;
        }
        Ok(())
    }

    // SAFETY: as above.
    unsafe fn pure_writev(&self, _pieces: IoVector<'_>, _at: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into()) // qcow2.1
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    // SAFETY: as above.
    unsafe fn invalidate_cache(&self) -> io::Result<()> {
        Ok(())
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        &self.helper
    }
}

impl fmt::Display for ChainFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.path().unwrap_or("a file".as_ref()).display())
    }
}

impl fmt::Debug for ChainFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
