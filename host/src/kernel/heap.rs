//! The heap: memory that was given back to the allocator goes back to the kernel, and whether there would be more.

/// Gives back what is free. The allocator keeps it else, between what is still used: after an answer of a MiB, most of that MiB.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches nothing that is allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Whether this many bytes more could be had. They are not touched: this asks the limit of addresses (`ulimit -v`), and the kernel's commit
/// limit.
pub(crate) fn could_have(bytes: usize) -> bool {
    let mut more = Vec::<u8>::new();
    let could = more.try_reserve_exact(bytes).is_ok();
    std::hint::black_box(&mut more);
    could
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_more_could_be_had_and_all_addresses_could_not() {
        assert!(could_have(1 << 20));
        assert!(!could_have(isize::MAX as usize));
    }
}
