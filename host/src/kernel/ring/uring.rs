//! io_uring: one for each worker.
//!
//! Submissions are collected and go to the kernel once per turn, in the same system call that waits.

use std::io;
use std::os::fd::RawFd;

use io_uring::types::{Fd, Fixed as File, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use fairlift_core::Duration;

use super::{Completion, FILES};
use crate::kernel::buffer::{BLOCK, Pool, RecvRing};
use crate::kernel::call::{Call, Pieces, Work};

const RECV_GROUP: u16 = 0;

pub(crate) struct Uring {
    pub(super) ring: IoUring,
    /// Which blocks of the pool's arena are registered as fixed buffers.
    fixed: Vec<Fixed>,
    /// How long pauses are that were not submitted yet: the kernel reads it then.
    #[expect(clippy::vec_box, reason = "the kernel is told where each is")]
    pauses: Vec<Box<Timespec>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Fixed {
    NotYet,
    Yes,
    Refused,
}

/// [`Ring`](super::Ring)'s methods of the same names say the rest.
impl Uring {
    /// The kernel gives it at most `threads` threads for calls that would block in files and block devices (it calls that bounded work),
    /// and as many for all else (unbounded): for this ring, whatever others have.
    pub(super) fn new(entries: u32, completions: u32, threads: u32) -> io::Result<Self> {
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
        Ok(Self { ring, fixed: Vec::new(), pauses: Vec::new() })
    }

    /// Whether all that a server asks of io_uring is to be had; with it how many fixed files a ring can have, as far as anybody
    /// needs them: the kernel keeps some bytes for each.
    ///
    /// # Errors
    /// The kernel is too old, or refuses something: containers often have a filter.
    pub(super) fn probe() -> io::Result<u32> {
        let recv = RecvRing::new(1, 4096)?;
        let mut ring = Self::new(1, 1, 1)?;
        ring.register_recv(&recv)?;
        // SAFETY: the call names no memory.
        unsafe { ring.push(Call::Nop, 0) }
        ring.ring.submit_and_wait(1)?;
        // No more than the process may have open, which differs.
        Ok([FILES, 4096, 1024, 256, 64]
            .into_iter()
            .find(|count| ring.make_room_for_files(*count).is_ok())
            .unwrap_or(16))
    }

    pub(super) fn make_room_for_files(&self, count: u32) -> io::Result<()> {
        if count == 0 { Ok(()) } else { self.ring.submitter().register_files_sparse(count) }
    }

    pub(super) fn set_file(&self, number: u32, fd: Option<RawFd>) {
        if let Err(error) = self.ring.submitter().register_files_update(number, &[fd.unwrap_or(-1)]) {
            // Its requests fail, each with an error to its client.
            tracing::error!(number, %error, "a file could not be registered with io_uring");
        }
    }

    pub(super) fn unregister_files(&self) {
        // There may be none.
        let _ = self.ring.submitter().unregister_files();
    }

    pub(super) fn register_pool(&mut self, pool: &Pool) {
        let state = match self.ring.submitter().register_buffers_sparse(u32::from(pool.blocks())) {
            Ok(()) => Fixed::NotYet,
            Err(_) => Fixed::Refused,
        };
        self.fixed = vec![state; usize::from(pool.blocks())];
    }

    pub(super) fn register_recv(&self, recv: &RecvRing) -> io::Result<()> {
        let (address, entries) = recv.entries();
        // SAFETY: the memory holds `entries` zeroed entries on a page boundary; the worker drops the ring before it.
        unsafe { self.ring.submitter().register_buf_ring_with_flags(address, entries, RECV_GROUP, 0) }
    }

    /// The kernel counts registered memory as locked: where the limit (`ulimit -l`) is reached, the rest is not
    /// registered, and works all the same.
    pub(super) fn is_fixed(&mut self, pool: &Pool, block: u16) -> bool {
        let state = &mut self.fixed[usize::from(block)];
        if *state == Fixed::NotYet {
            let iovec = libc::iovec { iov_base: pool.block_start(block).cast(), iov_len: BLOCK };
            // SAFETY: the block is part of the pool's arena, which the worker drops after the ring.
            let registered = unsafe { self.ring.submitter().register_buffers_update(u32::from(block), &[iovec], None) };
            *state = if registered.is_ok() { Fixed::Yes } else { Fixed::Refused };
        }
        *state == Fixed::Yes
    }

    pub(super) fn forget(&mut self, block: u16) -> bool {
        let Some(state) = self.fixed.get_mut(usize::from(block)).filter(|state| **state == Fixed::Yes) else {
            return true;
        };
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: it names no memory.
        let forgotten = unsafe { self.ring.submitter().register_buffers_update(u32::from(block), &[none], None) };
        if forgotten.is_ok() {
            *state = Fixed::NotYet;
        }
        forgotten.is_ok()
    }

    /// # Safety
    /// That of [`Ring::push`](super::Ring::push).
    #[inline(always)]
    pub(super) unsafe fn push(&mut self, call: Call, data: u64) {
        let entry = entry(call).user_data(data);
        // SAFETY: passed on to the caller.
        unsafe { self.push_entry(&entry) }
    }

    pub(super) fn pause(&mut self, length: Duration, data: u64) -> bool {
        let length = Box::new(timespec(length));
        let entry = opcode::Timeout::new(&raw const *length).build().user_data(data);
        // SAFETY: it names the length, which is kept until the kernel has read it (`expect`).
        unsafe { self.push_entry(&entry) }
        // Not before: a full ring is submitted on the way, and lengths that were read by then are dropped.
        self.pauses.push(length);
        true
    }

    /// # Safety
    /// That of [`push`](Self::push).
    #[inline(always)]
    unsafe fn push_entry(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: passed on to the caller.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            self.submit();
        }
    }

    pub(super) fn is_submitted(&mut self) -> bool {
        self.ring.submission().is_empty()
    }

    pub(super) fn turn(&mut self, most: Option<Duration>) {
        let result = match most {
            None => self.ring.submit_and_wait(1),
            Some(length) => {
                let timespec = timespec(length);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timespec))
            }
        };
        self.expect(result);
    }

    /// Without a system call.
    pub(super) fn has_news(&mut self) -> bool {
        self.ring.submission().taskrun() || !self.ring.completion().is_empty()
    }

    pub(super) fn submit(&mut self) {
        let result = self.ring.submit();
        self.expect(result);
    }

    #[inline]
    pub(super) fn reap(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let flags = entry.flags();
        Some(Completion {
            data: entry.user_data(),
            result: entry.result(),
            buffer: cqueue::buffer_select(flags),
            socket_has_more: cqueue::sock_nonempty(flags),
            goes_on: cqueue::more(flags),
        })
    }

    fn expect(&mut self, result: io::Result<usize>) {
        if self.is_submitted() {
            self.pauses.clear();
        }
        if let Err(error) = result {
            match error.raw_os_error() {
                // Time is up; a signal; completions must be reaped first, which the turn does next.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => {}
                _ => panic!("io_uring_enter: {error}"),
            }
        }
    }
}

/// A file operation, as io_uring takes it. There is no vectored operation on registered memory before Linux 6.15.
macro_rules! file_entry {
    ($file:expr, $work:expr) => {{
        let file = $file;
        match $work {
            Work::Read { into: Pieces::One { start, len, block: Some(block) }, at } => {
                opcode::ReadFixed::new(file, start, len, block).offset(at).build()
            }
            Work::Read { into: Pieces::One { start, len, block: None }, at } => {
                opcode::Read::new(file, start, len).offset(at).build()
            }
            Work::Read { into: Pieces::Many { iovecs, count }, at } => {
                opcode::Readv::new(file, iovecs, count).offset(at).build()
            }
            Work::Write { from: Pieces::One { start, len, block: Some(block) }, at, flags } => {
                opcode::WriteFixed::new(file, start, len, block).offset(at).rw_flags(flags).build()
            }
            Work::Write { from: Pieces::One { start, len, block: None }, at, flags } => {
                opcode::Write::new(file, start, len).offset(at).rw_flags(flags).build()
            }
            Work::Write { from: Pieces::Many { iovecs, count }, at, flags } => {
                opcode::Writev::new(file, iovecs, count).offset(at).rw_flags(flags).build()
            }
            Work::Allocate { mode, at, len } => opcode::Fallocate::new(file, len).offset(at).mode(mode).build(),
            Work::Sync { data_only } => {
                let flags = if data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
                opcode::Fsync::new(file).flags(flags).build()
            }
        }
    }};
}

#[inline(always)]
fn entry(call: Call) -> squeue::Entry {
    static ONE: [u8; 8] = 1u64.to_ne_bytes();
    match call {
        Call::File(number, work) => file_entry!(File(number), work),
        Call::Beside { fd, work, .. } => file_entry!(Fd(fd), work),
        Call::Receive { fd, into, wait } => {
            const POLL_FIRST: u16 = 1; // IORING_RECVSEND_POLL_FIRST
            let poll_first = if wait { POLL_FIRST } else { 0 };
            match into {
                Some((start, len)) => opcode::Recv::new(Fd(fd), start, len).ioprio(poll_first).build(),
                None => opcode::Recv::new(Fd(fd), std::ptr::null_mut(), 0)
                    .buf_group(RECV_GROUP)
                    .ioprio(poll_first)
                    .build()
                    .flags(squeue::Flags::BUFFER_SELECT),
            }
        }
        Call::Send { fd, message } => opcode::SendMsg::new(Fd(fd), message).flags(libc::MSG_NOSIGNAL as u32).build(),
        Call::Accept { fd } => opcode::AcceptMulti::new(Fd(fd)).flags(libc::SOCK_CLOEXEC).build(),
        Call::Poll { fd, events, multi } => opcode::PollAdd::new(Fd(fd), events as u32).multi(multi).build(),
        Call::Signal { fd, quiet } => {
            let entry = opcode::Write::new(Fd(fd), ONE.as_ptr(), ONE.len() as u32).build();
            if quiet { entry.flags(squeue::Flags::SKIP_SUCCESS) } else { entry }
        }
        Call::Cancel { data } => opcode::AsyncCancel::new(data).build(),
        Call::Message { ring, data } => {
            opcode::MsgRingData::new(Fd(ring), 0, data, None).build().flags(squeue::Flags::SKIP_SUCCESS)
        }
        Call::Driver { fd, code, command } => opcode::UringCmd16::new(Fd(fd), code).cmd(command).build(),
        Call::Nop => opcode::Nop::new().build(),
    }
}

fn timespec(length: Duration) -> Timespec {
    std::time::Duration::from_nanos(length.as_nanos()).into()
}
