//! Untold: the error of a sync that no client asked for.
//!
//! The kernel tells each open file once that what was written is not durable. A fork syncs its file, too: if it took the error, the next flush
//! of a client would succeed, and the client would throw away the only copy of what was lost. An image of Ceph is flushed when another server
//! takes over.
//!
//! untold.1  A sync that failed for no client fails the next flush, and all syncs for no client until then. From then on the queue
//!           remembers it (flush.7).
//! untold.2  A flush that ends while such a sync is under way may have lost the error to that: it is made again.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use fairlift_core::Errno;

use crate::outcome::errno;

#[derive(Default)]
pub(super) struct Untold {
    under_way: AtomicU32,
    /// 0: none.
    errno: AtomicI32,
}

impl Untold {
    /// Syncs for no client.
    pub(super) fn sync(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        let done = sync().inspect_err(|error| self.keep(errno(error)));
        self.under_way.fetch_sub(1, Ordering::AcqRel);
        done?;
        self.error().map_or(Ok(()), Err)
    }

    /// An error that no client was told.
    pub(super) fn keep(&self, errno: Errno) {
        self.errno.store(errno.0, Ordering::Release);
    }

    /// untold.2
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    /// The error that nobody was told.
    pub(super) fn error(&self) -> Option<io::Error> {
        let errno = self.errno.load(Ordering::Acquire);
        (errno != 0).then(|| io::Error::from_raw_os_error(errno))
    }

    /// The same, for the one who is told now.
    pub(super) fn take(&self) -> Option<Errno> {
        let errno = self.errno.swap(0, Ordering::AcqRel);
        (errno != 0).then_some(Errno(errno))
    }
}
