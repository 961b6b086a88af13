//! Locks and parking, from one place, so that a model checker can put its own in theirs; see `fairlift_core::sync`.

use std::task::Waker;

#[cfg(loom)]
pub use loom::sync::{Mutex, MutexGuard};
#[cfg(shuttle)]
pub use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(any(loom, shuttle, tsan)))]
pub use std::sync::{Mutex, MutexGuard};
// ThreadSanitizer sees only code compiled for it: the standard library was not, and data under a contended lock of its own looks
// unprotected.
#[cfg(tsan)]
pub use parking_lot::{Mutex, MutexGuard};

/// Takes a lock that no panic can poison, because nothing that is done under it panics half-way.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(not(tsan))]
    return mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    #[cfg(tsan)]
    return mutex.lock();
}

pub(crate) use parking::{Parker, Unparker};

#[derive(Clone)]
pub(crate) enum Sleeper {
    Thread(Unparker),
    Task(Waker),
}

impl Sleeper {
    pub(crate) fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
mod parking {
    use std::thread;
    use std::time::Instant;

    pub(crate) type Unparker = thread::Thread;

    /// Lets the thread that made it sleep until it is unparked.
    pub(crate) struct Parker;

    impl Parker {
        pub(crate) const fn new() -> Self {
            Self
        }

        pub(crate) fn unparker(&self) -> Unparker {
            thread::current()
        }

        /// Sleeps until unparked, before or after, or until then at the latest; may also return for no reason. Whether it is not over yet.
        pub(crate) fn park_until(&self, end: Option<Instant>) -> bool {
            let Some(end) = end else {
                thread::park();
                return true;
            };
            let left = end.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                thread::park_timeout(left);
            }
            !left.is_zero()
        }
    }
}

/// loom's own `park` forgets an `unpark` that came before it if the thread took a lock in between; its condition
/// variables don't.
#[cfg(any(loom, shuttle))]
mod parking {
    use std::sync::Arc;

    #[cfg(loom)]
    use loom::sync::{Condvar, Mutex};
    #[cfg(shuttle)]
    use shuttle::sync::{Condvar, Mutex};

    pub(crate) type Unparker = Parker;

    #[derive(Clone)]
    pub(crate) struct Parker(Arc<(Mutex<bool>, Condvar)>);

    impl Parker {
        pub(crate) fn new() -> Self {
            Self(Arc::new((Mutex::new(false), Condvar::new())))
        }

        pub(crate) fn unparker(&self) -> Unparker {
            self.clone()
        }

        /// There is no time in a model: it is never over.
        pub(crate) fn park_until(&self, _end: Option<std::time::Instant>) -> bool {
            let mut token = self.0.0.lock().unwrap();
            while !*token {
                token = self.0.1.wait(token).unwrap();
            }
            *token = false;
            true
        }

        pub(crate) fn unpark(&self) {
            *self.0.0.lock().unwrap() = true;
            self.0.1.notify_one();
        }
    }
}
