//! Mail: what workers, and a device's own threads, tell a worker about a device that they share.
//!
//! The thread that puts something in wakes the worker afterwards. A worker looks at its mail each turn; while there is none, that costs
//! it a load.

use std::sync::atomic::{AtomicBool, Ordering};

use fairlift_core::ContextId;

use crate::sync::{Mutex, lock};

/// As many workers as there can be.
const WORKERS: usize = 64;

pub(super) struct Mail<T>(Box<[Mailbox<T>]>);

#[derive(Default)]
struct Mailbox<T> {
    is_some: AtomicBool,
    letters: Mutex<T>,
}

impl<T: Default> Mail<T> {
    pub(super) fn new() -> Self {
        Self((0..WORKERS).map(|_| Mailbox::default()).collect())
    }

    /// Puts something into the mail of a worker, which is then to be woken.
    pub(super) fn tell(&self, worker: ContextId, put: impl FnOnce(&mut T)) {
        let mailbox = &self.0[usize::from(worker.0)];
        put(&mut lock(&mailbox.letters));
        mailbox.is_some.store(true, Ordering::Release);
    }

    /// The news for a worker, if there is any.
    pub(super) fn take(&self, worker: ContextId) -> Option<T> {
        let mailbox = &self.0[usize::from(worker.0)];
        let is_some = mailbox.is_some.load(Ordering::Relaxed) && mailbox.is_some.swap(false, Ordering::Acquire);
        is_some.then(|| std::mem::take(&mut *lock(&mailbox.letters)))
    }
}
