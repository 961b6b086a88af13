//! How workers wake each other, and how other threads wake them.
//!
//! A worker sleeps in its ring. Another worker wakes it by a message from ring to ring, which costs no system call of its
//! own; a thread without a ring writes to the worker's eventfd, its bell, and so do all where rings take no messages.
//!
//! notify.1  A worker that was woken takes its notice away first, and looks for news then: news that comes later notifies again.
//!           So no news is missed, and a worker is woken once however many threads have news for it. A message that the kernel does
//!           not take, for lack of memory, is followed by the bell: nobody sends another while the notice is there.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::task::Wake;

use fairlift_core::ContextId;
use rustix::event::{EventfdFlags, eventfd};

use crate::kernel::call::Call;
use crate::kernel::ring::{Ring, Source};

pub(crate) struct Notifiers(Box<[Notifier]>);

struct Notifier {
    noticed: AtomicBool,
    /// The worker's ring, once it has one that takes messages, as all of them do or none (choice.1).
    ring: AtomicI32,
    /// An eventfd, for threads that have no ring.
    bell: File,
}

/// A worker's bell, for code that only knows how to wake.
struct Bell {
    notifiers: Arc<Notifiers>,
    worker: ContextId,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notifiers.ring_bell(self.worker);
    }
}

impl Notifiers {
    pub(crate) fn new(workers: usize) -> io::Result<Self> {
        let notifier = |_| {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?.into();
            Ok(Notifier { noticed: AtomicBool::new(false), ring: AtomicI32::new(-1), bell })
        };
        Ok(Self((0..workers).map(notifier).collect::<io::Result<_>>()?))
    }

    /// A worker says where its ring takes messages, if it does.
    pub(crate) fn open(&self, worker: ContextId, ring: &Ring) {
        self.of(worker).ring.store(ring.message_fd().unwrap_or(-1), Ordering::Release);
    }

    /// The bytes to read after a worker's bell was rung.
    pub(crate) fn bell(&self, worker: ContextId) -> BorrowedFd<'_> {
        self.of(worker).bell.as_fd()
    }

    /// Lets a worker's ring hear its bell, until the completion says that there is no more.
    pub(crate) fn arm_bell(&self, worker: ContextId, ring: &mut Ring) {
        ring.poll(self.bell(worker), libc::POLLIN, true, Source::Bell.pack());
    }

    /// Answers a worker's bell: one that is not answered rings on.
    pub(crate) fn answer_bell(&self, worker: ContextId) {
        // It may have been answered already.
        let _ = (&self.of(worker).bell).read(&mut [0; 8]);
    }

    /// Wakes another worker, through the ring of the caller: costs nothing but a place in the next batch.
    pub(crate) fn wake(&self, worker: ContextId, ring: &mut Ring) {
        let notifier = self.of(worker);
        if notifier.noticed.swap(true, Ordering::AcqRel) {
            return;
        }
        match notifier.ring.load(Ordering::Acquire) {
            -1 => self.ring_bell(worker),
            target => {
                let call = Call::Message { ring: target, data: Source::Wake.pack() };
                // SAFETY: the call names no memory.
                unsafe { ring.push(call, Source::Unheard(worker).pack()) }
            }
        }
    }

    /// Wakes all workers whose bits are set, but for the caller.
    pub(crate) fn wake_all(&self, mut workers: u64, caller: ContextId, ring: &mut Ring) {
        workers &= !(1 << caller.0);
        while workers != 0 {
            self.wake(ContextId(workers.trailing_zeros() as u16), ring);
            workers &= workers - 1;
        }
    }

    /// Wakes a worker from a thread that has no ring.
    pub(crate) fn ring_bell(&self, worker: ContextId) {
        // Full means that it has been rung 2^64 times and not answered: it will wake.
        let _ = (&self.of(worker).bell).write(&1u64.to_ne_bytes());
    }

    /// Wakes a worker from anywhere.
    pub(crate) fn waker(self: &Arc<Self>, worker: ContextId) -> impl Wake + use<> {
        Bell { notifiers: Arc::clone(self), worker }
    }

    pub(crate) fn workers(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn ring_all(&self) {
        (0..self.0.len()).for_each(|worker| self.ring_bell(ContextId(worker as u16)));
    }

    /// A worker takes its notice away (notify.1), and then looks.
    pub(crate) fn take_notice(&self, worker: ContextId) {
        // Not a store: it would not read what the last waker has written, and the look might miss the news of one that found the notice there.
        self.of(worker).noticed.swap(false, Ordering::AcqRel);
    }

    /// The kernel takes no messages for a worker.
    #[cfg(test)]
    pub(crate) fn deafen(&self, worker: ContextId) {
        let notifier = self.of(worker);
        notifier.ring.store(std::os::fd::AsRawFd::as_raw_fd(&notifier.bell), Ordering::Release);
    }

    fn of(&self, worker: ContextId) -> &Notifier {
        &self.0[usize::from(worker.0)]
    }
}
