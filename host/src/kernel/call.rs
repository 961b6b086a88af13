//! Call: what a ring is asked to do, in words of our own.
//!
//! A lane or a front says what it wants done, and the ring does it in the way of its engine: io_uring makes an entry of it.
//! Each call is one system call, as a rule, and completes as that would have returned.

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;

use fairlift_core::Errno;
use vm_memory::VolatileSlice;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    /// Works on a file, by its registered number.
    File(u32, Work),
    /// Works on a file that is not registered: it is used beside one that is. `cached`: its reads go through the page cache.
    Beside { file: u32, fd: RawFd, cached: bool, work: Work },
    /// Receives from a socket: into this memory, or else into one of the buffers that are registered for it, which the completion
    /// names. With `wait` it is not tried before the socket says that there is something.
    Receive { fd: RawFd, into: Option<(*mut u8, u32)>, wait: bool },
    /// Sends a message: as much of it as the socket takes.
    Send { fd: RawFd, message: *const libc::msghdr },
    /// Accepts connections, and completes for each, until the completion says that there is no more.
    Accept { fd: RawFd },
    /// Looks whether a descriptor is ready for any of the events: once, or with `multi` until the completion says that there is no more.
    Poll { fd: RawFd, events: libc::c_short, multi: bool },
    /// Adds one to an eventfd; `quiet`: and completes only if that fails.
    Signal { fd: RawFd, quiet: bool },
    /// Takes back what was asked with this data: it completes.
    Cancel { data: u64 },
    /// Has another ring complete with this data, and completes only if that fails.
    Message { ring: RawFd, data: u64 },
    /// Gives a driver a command of its own, of this number.
    Driver { fd: RawFd, code: u32, command: [u8; 16] },
    /// Completes.
    Nop,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// `preadv2`
    Read { into: Pieces, at: u64 },
    /// `pwritev2`
    Write { from: Pieces, at: u64, flags: i32 },
    /// `fallocate`
    Allocate { mode: i32, at: u64, len: u64 },
    /// `fdatasync`, or `fsync`
    Sync { data_only: bool },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    /// A system call on a file.
    Call(RawFd, Work),
    /// A read by the holder of the data.
    Fill { from: NonNull<dyn Fill>, into: Pieces, at: u64 },
}

// SAFETY: the named data may be used by any thread ([`Fill`]), and is left to the thread that does the task until its result was taken.
unsafe impl Send for Task {}

/// Something that holds data and reads it in a way of its own, by the thread that calls and however long that takes.
pub(crate) trait Fill: Send + Sync {
    /// Fills memory with the data at a place, or answers the error. It does not panic: a helper ends the process.
    fn fill(&self, at: u64, into: &mut dyn Iterator<Item = VolatileSlice<'_>>) -> Result<(), Errno>;
}

impl Task {
    /// Does it, however long that takes.
    ///
    /// # Safety
    /// The memory that is named is valid, and nobody else's; what is named to fill it is there.
    pub(crate) unsafe fn perform(self) -> i32 {
        match self {
            // SAFETY: as the caller promises.
            Self::Call(fd, work) => unsafe { work.perform(fd) },
            // SAFETY: as the caller promises.
            Self::Fill { from, into, at } => match unsafe { from.as_ref().fill(at, &mut into.slices()) } {
                Ok(()) => 0,
                Err(errno) => -errno.0,
            },
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Pieces {
    /// One piece; it may be part of a block of the pool that is registered with the ring.
    One { start: *mut u8, len: u32, block: Option<u16> },
    /// Pieces that are described elsewhere, and stay so.
    Many { iovecs: *const libc::iovec, count: u32 },
}

/// The number of `cachestat`, for which the C library has no name yet; the same wherever Linux has it but on alpha.
pub(crate) const CACHESTAT: libc::c_long = 451;

/// The kernel takes no more pieces of memory in one system call (`UIO_MAXIOV`).
pub(crate) const PIECES: usize = 1024;

impl Pieces {
    /// The memory that is described, or the first of it; `block`: the registered block that it is in if it is one piece.
    #[inline(always)]
    pub(crate) fn of(iovecs: &[libc::iovec], block: Option<u16>) -> Self {
        match iovecs {
            [one] => Self::One { start: one.iov_base.cast(), len: one.iov_len as u32, block },
            _ => Self::Many { iovecs: iovecs.as_ptr(), count: iovecs.len().min(PIECES) as u32 },
        }
    }

    /// The pieces, one by one.
    ///
    /// # Safety
    /// They are valid for writes, and nobody else's, as long as the slices are there.
    unsafe fn slices<'a>(self) -> impl Iterator<Item = VolatileSlice<'a>> {
        let (one, many): (_, &[libc::iovec]) = match self {
            Self::One { start, len, .. } => (Some(libc::iovec { iov_base: start.cast(), iov_len: len as usize }), &[]),
            // SAFETY: the caller's promise.
            Self::Many { iovecs, count } => (None, unsafe { std::slice::from_raw_parts(iovecs, count as usize) }),
        };
        let pieces = one.into_iter().chain(many.iter().copied());
        // SAFETY: as above.
        pieces.map(|piece| unsafe { VolatileSlice::new(piece.iov_base.cast(), piece.iov_len) })
    }

    /// Gives a system call the pieces as it takes them.
    fn described(self, call: impl FnOnce(*const libc::iovec, libc::c_int) -> isize) -> isize {
        match self {
            Self::One { start, len, .. } => {
                let one = libc::iovec { iov_base: start.cast(), iov_len: len as usize };
                call(&raw const one, 1)
            }
            Self::Many { iovecs, count } => call(iovecs, count as libc::c_int),
        }
    }
}

/// Takes `bytes`, which are done, off the front of some pieces; the number of pieces that are done with that.
///
/// # Panics
/// If they have fewer.
pub(crate) fn advance(iovecs: &mut [libc::iovec], mut bytes: usize) -> usize {
    let mut whole = 0;
    while let Some(first) = iovecs.get_mut(whole)
        && bytes >= first.iov_len
    {
        bytes -= first.iov_len;
        whole += 1;
    }
    if bytes > 0 {
        let first = &mut iovecs[whole];
        first.iov_base = first.iov_base.wrapping_byte_add(bytes);
        first.iov_len -= bytes;
    }
    whole
}

// SAFETY: the named memory is left to the thread that does the work until its result was taken (`Ring::push`, `Helpers::push`).
unsafe impl Send for Pieces {}

impl Work {
    /// Does it, however long that takes.
    ///
    /// # Safety
    /// The memory that is named is valid, and nobody else's.
    pub(crate) unsafe fn perform(self, fd: RawFd) -> i32 {
        // SAFETY: the memory is the caller's promise; all else are numbers.
        result(unsafe {
            match self {
                Self::Read { into, at } => read(fd, into, at, 0),
                Self::Write { from, at, flags } => {
                    from.described(|iovecs, count| libc::pwritev2(fd, iovecs, count, at as i64, flags))
                }
                Self::Allocate { mode, at, len } => libc::fallocate64(fd, mode, at as i64, len as i64) as isize,
                Self::Sync { data_only: true } => libc::fdatasync(fd) as isize,
                Self::Sync { data_only: false } => libc::fsync(fd) as isize,
            }
        })
    }
}

/// `preadv2`, with flags.
///
/// # Safety
/// The memory is valid, and nobody else's.
pub(super) unsafe fn read(fd: RawFd, into: Pieces, at: u64, flags: i32) -> isize {
    // SAFETY: the memory is the caller's promise.
    into.described(|iovecs, count| unsafe { libc::preadv2(fd, iovecs, count, at as i64, flags) })
}

/// The result of a system call, or the negative error.
pub(super) fn result(returned: isize) -> i32 {
    match returned {
        0.. => i32::try_from(returned).expect("a request is shorter than 2 GiB"),
        _ => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_taken_off_the_front_of_the_pieces() {
        let base = |at: usize| std::ptr::without_provenance_mut::<libc::c_void>(at);
        for (bytes, whole, start, left) in [(0, 0, 100, 4), (3, 0, 103, 1), (4, 1, 200, 6), (9, 1, 205, 1)] {
            let mut pieces =
                [libc::iovec { iov_base: base(100), iov_len: 4 }, libc::iovec { iov_base: base(200), iov_len: 6 }];
            assert_eq!(advance(&mut pieces, bytes), whole, "{bytes}");
            assert_eq!((pieces[whole].iov_base.addr(), pieces[whole].iov_len), (start, left), "{bytes}");
        }
        let mut all = [libc::iovec { iov_base: base(100), iov_len: 4 }];
        assert_eq!(advance(&mut all, 4), 1);
    }
}
