//! An allocator that counts, for who wants to know what is allocated; by thread, so that others do not disturb.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, and counters.
pub(crate) struct Counting;

/// How often this thread has asked for memory so far.
#[allow(dead_code, reason = "not all who count want to know this")]
pub(crate) fn calls() -> u64 {
    CALLS.get()
}

/// How much memory this thread has asked for and not given back.
#[allow(dead_code, reason = "not all who count want to know this")]
pub(crate) fn bytes() -> i64 {
    BYTES.get()
}

fn count(calls: u64, bytes: i64) {
    CALLS.set(CALLS.get() + calls);
    BYTES.set(BYTES.get() + bytes);
}

// SAFETY: every call is passed on to the system's allocator as it came, so its promises hold; the counters are plain
// numbers of this thread, without a destructor, so that they can be used as long as the thread runs, and never allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: as the caller of this one promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: as the caller of this one promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: as the caller of this one promises.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
