//! Atomics, from one place, so that a model checker can put its own in theirs.
//!
//! `--cfg loom` and `--cfg shuttle` replace them; only `fairlift-threads` and its models are built with them, above this crate.

#[cfg(not(any(loom, shuttle)))]
pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
// That of `core` where the processor has one.
#[cfg(not(any(loom, shuttle)))]
pub use portable_atomic::AtomicU64;
#[cfg(shuttle)]
pub use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Where two threads each write one thing and then read the other's, one of them must see what the other wrote.
///
/// `SeqCst` accesses promise that (they have one order that all threads agree on), and cost nothing more than the locked instruction
/// itself. loom treats them as `AcqRel` and knows the order only of fences: for it, and for nobody else, there is a fence. (So loom cannot
/// tell whether an access could be weaker than `SeqCst`: none is.)
#[inline]
pub fn agree() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}
