//! A file as the store of a layer, by the thread that calls.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

use fairlift_core::{Flags, Outcome};
use rustix::fs::{FlockOperation, OFlags, SeekFrom, fcntl_getfl, fcntl_setfl, flock};

use super::peek::Peek;
use super::{File, sys};
use crate::device::{Inline, Store};

impl Store for fs::File {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(into, at)
    }

    /// Of a block device too.
    fn len(&self) -> io::Result<u64> {
        io::Seek::seek(&mut &*self, io::SeekFrom::End(0))
    }

    /// All is data where the file system cannot tell.
    fn next_data(&self, at: u64) -> Option<u64> {
        sys::seek(self, SeekFrom::Data(at)).unwrap_or(Some(at))
    }
}

impl Store for File {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        Store::read_at(&self.file, into, at)
    }

    fn len(&self) -> io::Result<u64> {
        Store::len(&self.file)
    }

    fn next_data(&self, at: u64) -> Option<u64> {
        self.file.next_data(at)
    }

    fn write_at(&self, from: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(from, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.untold.sync(|| self.file.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.untold.sync(|| self.file.sync_all())
    }

    fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        result(Inline::write_zeroes(self, at, len, Flags::NONE))
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        result(Inline::discard(self, at, len))
    }

    fn becomes_base(&self, direct: bool) {
        sys::process_lock(&self.file, true); // file.3
        let shared = flock(&self.file, FlockOperation::NonBlockingLockShared);
        let mut cached = Ok(());
        if self.direct && !direct {
            cached = fcntl_getfl(&self.file).and_then(|flags| fcntl_setfl(&self.file, flags - OFlags::DIRECT));
            let size = self.size.load(Ordering::Relaxed);
            if let Some(peek) = self.file.metadata().ok().and_then(|metadata| Peek::of(&self.file, &metadata, size)) {
                _ = self.peek.set(peek);
            }
        }
        if let Err(error) = shared.and(cached) {
            tracing::debug!(path = %self.path.display(), %error, "it stays as it was opened");
        }
    }

    fn file(&self) -> Option<&fs::File> {
        Some(&self.file)
    }
}

fn result(outcome: Outcome) -> io::Result<()> {
    match outcome {
        Outcome::Failed(errno) => Err(io::Error::from_raw_os_error(errno.0)),
        _ => Ok(()),
    }
}
