//! io_uring: one for each worker.
//!
//! Submissions are collected and go to the kernel once per turn, in the same system call that waits.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use fairlift_core::{Duration, Tag};
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::kernel::buffer::{BLOCK, Pool, RecvRing};

/// The group number of the buffers that sockets receive into.
pub(crate) const RECV_GROUP: u16 = 0;

/// A worker's io_uring, with what is registered with it.
pub(crate) struct Ring {
    ring: IoUring,
    /// Which blocks of the pool's arena are registered as fixed buffers.
    fixed: Vec<Fixed>,
}

#[derive(Clone, Copy, PartialEq)]
enum Fixed {
    NotYet,
    Yes,
    Refused,
}

impl Ring {
    /// Makes a ring for the calling thread alone.
    ///
    /// The kernel gives it at most `threads` threads for what would block in files and block devices (it calls that bounded
    /// work), and as many for all else (unbounded): for this ring, whatever others have.
    pub(crate) fn new(entries: u32, completions: u32, threads: u32) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(completions).setup_clamp().setup_submit_all();
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        let ring = match builder.build(entries) {
            // Before Linux 6.1.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                let mut plain = IoUring::builder();
                plain.setup_cqsize(completions).setup_clamp().build(entries)?
            }
            other => other?,
        };
        // Bounded, unbounded. Before Linux 5.15 there is no bound to be had.
        let _ = ring.submitter().register_iowq_max_workers(&mut [threads.max(1), threads.max(1)]);
        Ok(Self { ring, fixed: Vec::new() })
    }

    /// Lets the calling thread's waits end when they are due; the kernel would let them be 50 µs late.
    pub(crate) fn be_punctual() {
        // SAFETY: takes numbers, and concerns this thread alone. Where it is refused, timers are late.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    }

    /// How many fixed files the kernel lets a ring have, as far as anybody needs them; it keeps some bytes for each.
    pub(crate) fn room_for_files(&self) -> u32 {
        // No more than the process may have open, which differs.
        [16384, 4096, 1024, 256, 64].into_iter().find(|count| self.make_room_for_files(*count).is_ok()).unwrap_or(16)
    }

    /// Makes room for so many fixed files.
    ///
    /// # Errors
    /// The kernel does not take so many: more than the process may have open, or there is no memory.
    pub(crate) fn make_room_for_files(&self, count: u32) -> io::Result<()> {
        if count == 0 { Ok(()) } else { self.ring.submitter().register_files_sparse(count) }
    }

    /// Makes a descriptor known to the kernel as the fixed file of that number; `None`: the number means nothing any more.
    pub(crate) fn set_file(&self, number: u32, fd: Option<RawFd>) {
        if let Err(error) = self.ring.submitter().register_files_update(number, &[fd.unwrap_or(-1)]) {
            // Its requests fail, each with an error to who asked.
            tracing::error!(number, %error, "a file could not be made known to io_uring");
        }
    }

    /// Gives the files back at once; when the ring goes, the kernel takes its time.
    pub(crate) fn unregister_files(&self) {
        // There may be none.
        let _ = self.ring.submitter().unregister_files();
    }

    /// Prepares to register the pool's blocks as they come into use.
    pub(crate) fn register_pool(&mut self, pool: &Pool) {
        let state = match self.ring.submitter().register_buffers_sparse(u32::from(pool.blocks())) {
            Ok(()) => Fixed::NotYet,
            Err(_) => Fixed::Refused,
        };
        self.fixed = vec![state; usize::from(pool.blocks())];
    }

    /// Registers the ring of receive buffers, which must live as long as the ring is used.
    pub(crate) fn register_recv(&self, recv: &RecvRing) -> io::Result<()> {
        let (address, entries) = recv.entries();
        // SAFETY: the memory holds `entries` zeroed entries on a page boundary; the worker drops the ring before it.
        unsafe { self.ring.submitter().register_buf_ring_with_flags(address, entries, RECV_GROUP, 0) }
    }

    /// Whether a block of the pool may be named as fixed buffer; registers it if that was not tried yet.
    ///
    /// The kernel counts registered memory as locked: where the limit (`ulimit -l`) is reached, the rest is not
    /// registered, and works all the same.
    pub(crate) fn is_fixed(&mut self, pool: &Pool, block: u16) -> bool {
        let state = &mut self.fixed[usize::from(block)];
        if *state == Fixed::NotYet {
            let iovec = libc::iovec { iov_base: pool.block_start(block).cast(), iov_len: BLOCK };
            // SAFETY: the block is part of the pool's arena, which the worker drops after the ring.
            let registered = unsafe { self.ring.submitter().register_buffers_update(u32::from(block), &[iovec], None) };
            *state = if registered.is_ok() { Fixed::Yes } else { Fixed::Refused };
        }
        *state == Fixed::Yes
    }

    /// Adds a submission to the next batch.
    ///
    /// # Safety
    /// All memory that `entry` names stays valid, and is left to the kernel, until its completion was taken.
    pub(crate) unsafe fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: passed on to the caller.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            self.submit();
        }
    }

    /// Looks whether a descriptor is ready for any of the events: once, or with `multi` until the completion says that there
    /// is no more. The descriptor stays open until that is submitted.
    pub(crate) fn poll(&mut self, fd: BorrowedFd<'_>, events: libc::c_short, multi: bool, data: u64) {
        let entry = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), events as u32).multi(multi).build();
        // SAFETY: the entry names no memory.
        unsafe { self.push(&entry.user_data(data)) }
    }

    /// Takes back what was asked with this data: it completes.
    pub(crate) fn cancel(&mut self, data: u64) {
        let entry = opcode::AsyncCancel::new(data).build();
        // SAFETY: the entry names no memory.
        unsafe { self.push(&entry.user_data(Source::Nobody.pack())) }
    }

    /// Adds one to an eventfd. It completes with this data, or with `None` says nothing. The descriptor stays open until that
    /// is submitted.
    pub(crate) fn signal(&mut self, fd: BorrowedFd<'_>, data: Option<u64>) {
        static ONE: [u8; 8] = 1u64.to_ne_bytes();
        let entry = opcode::Write::new(types::Fd(fd.as_raw_fd()), ONE.as_ptr(), ONE.len() as u32).build();
        let entry = match data {
            Some(data) => entry.user_data(data),
            None => entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(Source::Nobody.pack()),
        };
        // SAFETY: the memory is a constant.
        unsafe { self.push(&entry) }
    }

    /// Submits what was collected, and waits for at least one completion if `wait` says so and until when.
    pub(crate) fn turn(&mut self, wait: Wait) {
        let result = match wait {
            Wait::ForEver => self.ring.submit_and_wait(1),
            Wait::AtMost(length) => {
                let nanos = length.as_nanos();
                let timespec = Timespec::new().sec(nanos / 1_000_000_000).nsec((nanos % 1_000_000_000) as u32);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timespec))
            }
        };
        self.expect(result);
    }

    /// Whether something has completed: seen without a system call, so that it can be asked in a loop.
    pub(crate) fn has_news(&mut self) -> bool {
        self.ring.submission().taskrun() || !self.ring.completion().is_empty()
    }

    /// Submits what was collected without waiting.
    pub(crate) fn submit(&mut self) {
        let result = self.ring.submit();
        self.expect(result);
    }

    /// The next completion.
    pub(crate) fn reap(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    fn expect(&self, result: io::Result<usize>) {
        if let Err(error) = result {
            match error.raw_os_error() {
                // Time is up; a signal; completions must be reaped first, which the turn does next.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => {}
                _ => panic!("io_uring_enter: {error}"),
            }
        }
    }
}

/// What a completion of the ring belongs to: a kind in the top byte, two numbers below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// A device, by the number of its disk and its place there, and the request.
    Io {
        disk: usize,
        place: usize,
        tag: Tag,
    },
    /// What a front asked for; the rest is its own.
    Front(u64),
    Wake,
    Bell,
    Nobody,
}

impl Source {
    pub(crate) fn pack(self) -> u64 {
        let (kind, number) = match self {
            Self::Io { disk, place, tag } => (1, (disk as u64) << 32 | (place as u64) << 16 | u64::from(tag.0)),
            Self::Front(what) => (2, what),
            Self::Wake => (3, 0),
            Self::Bell => (4, 0),
            Self::Nobody => (5, 0),
        };
        debug_assert!(number >> 56 == 0);
        kind << 56 | number
    }

    pub(crate) fn unpack(data: u64) -> Self {
        let number = (data & ((1 << 56) - 1)) as usize;
        match data >> 56 {
            1 => Self::Io { disk: number >> 32, place: number >> 16 & 0xffff, tag: Tag((number & 0xffff) as u16) },
            2 => Self::Front(number as u64),
            3 => Self::Wake,
            4 => Self::Bell,
            5 => Self::Nobody,
            _ => unreachable!("a completion that was never submitted: {data:#x}"),
        }
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

/// Of Linux 5.6; libc does not name it everywhere.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// Says that the calling thread, and the kernel's helpers of it, serve the I/O of others: memory that they ask for is not
/// waited for if that means I/O, which might be ours to do. Answers whether that was granted: it needs `CAP_SYS_RESOURCE`.
pub(crate) fn be_flusher() -> bool {
    // SAFETY: takes numbers, and concerns this thread alone.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) == 0 }
}

/// How long a turn may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Until something completes.
    ForEver,
    /// Until something completes, or so long.
    AtMost(Duration),
}
