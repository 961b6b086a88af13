//! The heap: memory that was given back to the allocator goes back to the kernel.

/// Gives back what is free. The allocator keeps it else, between what is still used: after an answer of a MiB, most of that MiB.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches nothing that is allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}
