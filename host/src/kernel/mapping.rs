//! A mapping of memory, until it is dropped.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::ptr::{NonNull, null_mut};

/// Mapped memory. Its owner knows whether it may be read and written, and who else does so.
pub(crate) struct Mapping(NonNull<[u8]>);

// SAFETY: it is the only handle of a mapping, which belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: a reference tells where it is, and no more.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Memory of our own, zero and untouched until it is written to. No memory is reserved for it.
    pub(crate) fn private(bytes: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Self::new(bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    }

    /// A part of a file, to be read, with more flags of `mmap`.
    pub(crate) fn of_file(file: BorrowedFd<'_>, at: u64, bytes: usize, flags: libc::c_int) -> io::Result<Self> {
        Self::new(bytes, libc::PROT_READ, libc::MAP_SHARED | flags, file.as_raw_fd(), at)
    }

    fn new(bytes: usize, access: libc::c_int, flags: libc::c_int, file: RawFd, at: u64) -> io::Result<Self> {
        // SAFETY: a new mapping, where the kernel likes, touches no memory of ours.
        let start = unsafe { libc::mmap(null_mut(), bytes, access, flags, file, at as libc::off_t) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("a mapping is never at address zero");
        Ok(Self(NonNull::slice_from_raw_parts(start, bytes)))
    }

    pub(crate) const fn bytes(&self) -> NonNull<[u8]> {
        self.0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it came from `mmap` with this length and is unmapped only here.
        unsafe { libc::munmap(self.0.as_ptr().cast(), self.0.len()) };
    }
}
