//! A worker's requests on a file: what is in flight, and how far it is.
//!
//! flight.1  A request goes through the ring, or to helper threads where the ring would take threads of its own; eight in one
//!           system call: the device begins while the rest is made ready.
//! flight.2  A request that was done in part goes on with the rest; one that the file system cannot do is done another way (file.5).
//! flight.3  A read that passes through the page cache is tried twice: before it is scheduled, and when its turn has come. Another one may
//!           have brought the same data in between: a hundred sandboxes begin with the same block of one base.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use fairlift_core::queue::Segment;
use fairlift_core::{Errno, Flags, Instant, Op, Outcome, Sector, Tag};

use super::peek::Peek;
use super::{File, ZEROES, is_unsupported};
use crate::device::Device;
use crate::device::lane::{Address, Completed, Io, Lane, Request, each, list_memory, place_of};
use crate::kernel::call::{Call, Pieces, Task, Work, advance};
use crate::kernel::helpers::Job;
use crate::kernel::ring::Source;
use crate::kernel::ticket::Tickets;

/// How many requests go to the kernel in one system call. Measured: 32 at once leave a disk idle while they are made ready, and 4 KiB
/// at random, 32 under way, are 1.1 times as many with 4 to 8 in a call; one in each costs a fifth more processor time
/// (docs/measured/files.md).
const IN_A_CALL: usize = 8;

/// After this number of cached reads in a row the next is read without a look (peek.4). Chosen: a read that misses is fetched out of its turn,
/// and that is at most one in this number.
const SURE: u32 = 32;
/// After this number of misses in a row, also in their turn, one read of as many is tried. Chosen: data of others comes in bursts.
const RARE: u32 = 16;

pub(super) struct OnFile {
    file: Arc<File>,
    address: Address,
    /// By tag; as many as have been used.
    flights: Vec<Flight>,
    in_flight: usize,
    launches: Vec<Tag>,
    /// The memory of a read that is not scheduled yet, while it is tried.
    tried: Flight,
    /// Reads in a row that were in the page cache before they were scheduled; and reads no longer there at their turn.
    hits: u32,
    late_misses: u32,
}

#[derive(Default)]
struct Flight {
    request: Option<Request>,
    /// Its memory; stays where it is while the kernel has it.
    iovecs: Vec<libc::iovec>,
    /// The block of the pool that its memory, if it is one piece, is in.
    block: Option<u16>,
    done: u64,
    step: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Phase {
    /// Moving data.
    #[default]
    Transfer,
    /// In `fallocate` with this mode.
    Allocate(i32),
    /// Writing zeroes from a page of them, because no `fallocate` can.
    WriteOut,
    /// Making all that was written durable.
    Sync,
}

// SAFETY: the pointers in `iovecs` name memory of the same worker's tickets, with which they move to its thread.
unsafe impl Send for Flight {}

impl OnFile {
    pub(super) fn new(file: Arc<File>, address: Address) -> Self {
        Self {
            file,
            address,
            flights: Vec::new(),
            in_flight: 0,
            launches: Vec::with_capacity(128),
            tried: Flight::default(),
            hits: 0,
            late_misses: 0,
        }
    }

    /// Begins with a request, or begins again.
    fn start(&mut self, io: &mut Io<'_>, tag: Tag) {
        let flight = &mut self.flights[usize::from(tag.0)];
        let request = flight.request.expect("a flight that is launched was filled in");
        let file = &self.file;
        flight.step = match request.op {
            Op::Read | Op::Write => Phase::Transfer,
            Op::Flush if file.read_only => return self.land(io, tag, Outcome::Done),
            Op::Flush => Phase::Sync,
            Op::Discard => match file.discard_mode() {
                Some(mode) => Phase::Allocate(mode),
                None => return self.land(io, tag, Outcome::Done),
            },
            Op::WriteZeroes => match file.zero_mode(request.flags) {
                Some(mode) => Phase::Allocate(mode),
                None if request.flags.contains(Flags::FAST) => {
                    return self.land(io, tag, Outcome::Failed(Errno::ENOTSUP));
                }
                None => Phase::WriteOut,
            },
        };
        self.push(io, tag);
    }

    /// Submits the present step of a request.
    fn push(&mut self, io: &mut Io<'_>, tag: Tag) {
        let flight = &mut self.flights[usize::from(tag.0)];
        let request = flight.request.expect("a flight is filled in until it lands");
        let (at, left) = (request.at + flight.done, request.bytes - flight.done);
        let op = if flight.step == Phase::WriteOut { Op::Write } else { request.op };
        let number = self.address.file.expect("a file is registered");
        let by_helpers = self.file.by_helpers(op);
        let passes_cache = op == Op::Read && request.flags.contains(Flags::MISSED);
        let tries = passes_cache && (self.late_misses < RARE || self.late_misses.is_multiple_of(RARE));
        self.late_misses = self.late_misses.wrapping_add(u32::from(passes_cache));
        if op == Op::Read
            && (by_helpers.is_some() || tries)
            && let Some(peek) = self.file.peek.get()
            // SAFETY: the iovecs name memory of tickets that wait for this read, and that nobody else has (engine.1).
            && let Some(bytes) = unsafe { peek.read(&self.file.file, &flight.iovecs, at, left, false) }
        {
            if passes_cache && bytes as u64 == request.bytes {
                self.late_misses = 0;
                (flight.request, self.in_flight) = (None, self.in_flight - 1);
                return io.cached.push(tag); // flight.3
            }
            return self.went_on(io, tag, bytes as i32);
        }
        let memory = |flight: &Flight, io: &mut Io<'_>| {
            let block = flight.block.filter(|_| by_helpers.is_none() && flight.iovecs.len() == 1);
            Pieces::of(&flight.iovecs, block.filter(|block| io.ring.is_fixed(io.pool, *block))) // flight.2: the rest comes after these
        };
        let (work, bytes) = match flight.step {
            Phase::Transfer if op == Op::Read => (Work::Read { into: memory(flight, io), at }, left),
            Phase::Transfer => {
                // The queue asks it only of those that can (`Facts::fua`).
                let flags = if request.flags.contains(Flags::FUA) { libc::RWF_DSYNC } else { 0 };
                (Work::Write { from: memory(flight, io), at, flags }, left)
            }
            Phase::WriteOut => {
                let len = left.min(ZEROES.0.len() as u64);
                let from = Pieces::One { start: ZEROES.0.as_ptr().cast_mut(), len: len as u32, block: None };
                (Work::Write { from, at, flags: 0 }, len)
            }
            Phase::Allocate(mode) => (Work::Allocate { mode, at, len: left }, left),
            Phase::Sync => (Work::Sync { data_only: self.file.flush_is_datasync() }, left),
        };
        let data = Source::Io { disk: self.address.disk, place: self.address.place, tag }.pack();
        if let Some(order) = by_helpers {
            let (task, sectors) = (Task::Call(self.file.file.as_raw_fd(), work), bytes / Sector::SIZE);
            let job = Job { worker: io.context, data, sectors, task };
            // SAFETY: as for the ring, below; the result is taken by the worker, and told us.
            return unsafe { io.helpers.push(number as usize, order, job) };
        }
        let call = match self.address.is_beside {
            false => Call::File(number, work),
            true => Call::Beside { file: number, fd: self.file.file.as_raw_fd(), cached: !self.file.is_direct(), work },
        };
        // SAFETY: the call names the flight's iovecs, which are not touched until its completion (`went_on`), nor dropped:
        // the ring is dropped before the lanes; memory of tickets, which their front releases after `News::Ended` or
        // `Released`, after that completion (engine.1); or `ZEROES`.
        unsafe { io.ring.push(call, data) }
    }

    /// A step of a request is done: `result` as the system call would have returned it.
    fn went_on(&mut self, io: &mut Io<'_>, tag: Tag, result: i32) {
        let flight = &mut self.flights[usize::from(tag.0)];
        let request = flight.request.expect("the kernel completes what was launched, once");
        match (result, flight.step) {
            (_, _) if result == -libc::EINTR => return self.push(io, tag),
            (_, _) if result == -libc::EAGAIN => {
                flight.request = None;
                self.in_flight -= 1;
                return io.busy.push(tag);
            }
            (..0, Phase::Allocate(mode)) if is_unsupported(-result) => {
                self.file.learn_unsupported(mode);
                return self.start(io, tag); // flight.2
            }
            (..0, step) => {
                let op = if step == Phase::Sync { Op::Flush } else { request.op };
                self.file.failed(op, Errno(-result));
                return self.land(io, tag, Outcome::Failed(Errno(-result)));
            }
            // The file is shorter than it was.
            (0, Phase::Transfer | Phase::WriteOut) => {
                self.file.failed(request.op, Errno::EIO);
                return self.land(io, tag, Outcome::Failed(Errno::EIO));
            }
            (1.., step @ (Phase::Transfer | Phase::WriteOut)) => {
                flight.done += result as u64;
                if flight.done < request.bytes {
                    if step == Phase::Transfer {
                        let whole = advance(&mut flight.iovecs, result as usize);
                        flight.iovecs.drain(..whole);
                    }
                    return self.push(io, tag); // flight.2
                }
            }
            (_, Phase::Allocate(_)) => flight.done = request.bytes,
            (_, Phase::Sync) if self.file.untold.is_under_way() => return self.push(io, tag), // untold.2
            (_, Phase::Sync) => {
                self.file.look();
                if let Some(errno) = self.file.untold.take() {
                    self.file.failed(Op::Flush, errno);
                    return self.land(io, tag, Outcome::Failed(errno)); // untold.1
                }
            }
        }
        self.land(io, tag, Outcome::Done);
    }

    #[inline(always)]
    fn land(&mut self, io: &mut Io<'_>, tag: Tag, outcome: Outcome) {
        self.flights[usize::from(tag.0)].request = None;
        self.in_flight -= 1;
        io.ended.push((tag, outcome));
    }
}

impl Lane for OnFile {
    fn peeks(&self) -> bool {
        self.file.peek.get().is_some()
    }

    fn peek(&mut self, tickets: &mut Tickets, request: &Request, segments: &[Segment]) -> Option<bool> {
        let Request { at, bytes, .. } = *request;
        if self.file.within(at, bytes) < bytes {
            return None; // file.9
        }
        let peek = self.file.peek.get()?;
        let is_sure = self.hits >= SURE && !matches!(peek, Peek::Nowait);
        if !is_sure && peek.has(&self.file.file, at, bytes) != Some(true) {
            self.hits = 0;
            return Some(false);
        }
        let iovecs = &mut self.tried.iovecs;
        iovecs.clear();
        list_memory(tickets, segments, Op::Read, bytes, iovecs);
        // SAFETY: the iovecs name memory of tickets whose read is not submitted yet, so nobody has it but the engine (engine.1).
        let read = unsafe { peek.read(&self.file.file, iovecs, at, bytes, true) };
        let is_hit = read == Some(bytes as usize);
        self.hits = if is_hit { self.hits.saturating_add(1) } else { 0 };
        Some(is_hit)
    }

    fn queue(&mut self, io: &mut Io<'_>, _now: Instant, requests: &[Request], segments: &[Segment]) {
        for (request, segments) in each(requests, segments) {
            let index = usize::from(request.tag.0);
            let flight = place_of(&mut self.flights, index);
            assert!(flight.request.is_none(), "tag {index} is in flight twice");
            let bytes = self.file.within(request.at, request.bytes); // file.9
            (flight.request, flight.done) = (Some(Request { bytes, ..*request }), 0);
            flight.iovecs.clear();
            if request.op.has_payload() {
                flight.block = list_memory(io.tickets, segments, request.op, bytes, &mut flight.iovecs);
            }
            self.launches.push(request.tag);
        }
        self.in_flight += requests.len();
        io.launch = true;
    }

    fn launch(&mut self, io: &mut Io<'_>) {
        let mut launches = std::mem::take(&mut self.launches);
        for (index, tag) in launches.drain(..).enumerate() {
            if index % IN_A_CALL == 0 && index > 0 {
                io.ring.submit();
            }
            self.start(io, tag);
        }
        self.launches = launches;
    }

    fn completed(&mut self, io: &mut Io<'_>, _now: Instant, steps: &[Completed]) {
        for step in steps {
            self.went_on(io, step.tag, step.result);
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}
