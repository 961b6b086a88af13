//! Lane: a worker's side of a device.
//!
//! A device is one for all workers; what is in flight belongs to the worker that took it in, and so is kept in a lane of
//! its own. A lane answers a request now (RAM, or a file in RAM) or later: when the ring has completed it, a helper thread
//! has done it, or a time has come. The engine gives it the requests of a turn at once and takes the answers; which kind of
//! device it is, the engine does not know.
//!
//! The engine calls a lane in this order, each turn of its disk:
//!
//! ```text
//! poll?  completed?  queue   ( the other disks, and the replies )   launch?
//! ```

use std::sync::Arc;

use fairlift_core::queue::Segment;
use fairlift_core::{Bytes, ContextId, Duration, Flags, Instant, Op, Outcome, Tag};

use super::{Device, Inline};
use crate::kernel::buffer::Pool;
use crate::kernel::helpers::Helpers;
use crate::kernel::notify::Notifiers;
use crate::kernel::ring::Ring;
use crate::kernel::ticket::{Tickets, zero};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) tag: Tag,
    pub(crate) op: Op,
    pub(crate) flags: Flags,
    /// Where on the device, in bytes.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The device, by its place on the disk.
    pub(crate) place: usize,
    /// How many pieces of memory it has.
    pub(crate) segments: usize,
}

/// A question what is allocated in a range of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map {
    /// The ticket under which it is asked.
    pub(crate) ticket: usize,
    /// Where on the device, in bytes.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// How many runs are told at most.
    pub(crate) most: usize,
}

/// A step of a request that the ring or a helper has done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completed {
    /// The device, by its place on the disk.
    pub(crate) place: usize,
    /// The request; of a lane whose steps are not of one request each, what the lane has named the step with.
    pub(crate) tag: Tag,
    /// As the system call would have returned it.
    pub(crate) result: i32,
}

/// The parts of a worker that a lane uses, and the place for its answers.
pub(crate) struct Io<'a> {
    pub(crate) context: ContextId,
    pub(crate) ring: &'a mut Ring,
    pub(crate) pool: &'a mut Pool,
    /// Where the memory of requests is. A lane has it from `queue` until it answers, whatever becomes of the client (engine.1).
    pub(crate) tickets: &'a mut Tickets,
    pub(crate) helpers: &'a Arc<Helpers>,
    pub(crate) notifiers: &'a Arc<Notifiers>,
    pub(crate) ended: &'a mut Vec<(Tag, Outcome)>,
    /// Reads that memory above the disk answered, though it did not when it was asked first ([`Flags::MISSED`]).
    pub(crate) cached: &'a mut Vec<Tag>,
    /// Requests that the device could not take now: they will be offered again.
    pub(crate) busy: &'a mut Vec<Tag>,
    /// Maps that were told, in the memory of their tickets, or could not be.
    pub(crate) mapped: &'a mut Vec<(usize, Outcome)>,
    /// Set by a lane that wants to `launch`.
    pub(crate) launch: bool,
}

/// Where a lane is: what it says of itself where answers come back through the worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) worker: ContextId,
    pub(crate) disk: usize,
    pub(crate) place: usize,
    /// The number under which the device's descriptor is registered with the ring, if it has one.
    pub(crate) file: Option<u32>,
    /// That number is of another file beside the device's: its own descriptor is not registered.
    pub(crate) is_beside: bool,
    pub(crate) io_timeout: Duration,
}

/// Tells a worker that a lane of its is to look ([`Lane::look`]), from any thread.
pub(crate) type Tell<'a> = &'a dyn Fn(ContextId, u64);

pub(crate) trait Lane: Send {
    /// Whether reads pass through memory above the disk that can be asked.
    fn peeks(&self) -> bool {
        false
    }

    /// Reads what memory above the disk has, before the read is scheduled: `Some(true)`: all of it is done. `Some(false)`: it is to be
    /// scheduled. `None`: it does not pass through such memory.
    fn peek(&mut self, _tickets: &mut Tickets, _request: &Request, _segments: &[Segment]) -> Option<bool> {
        None
    }

    /// Takes requests, with all pieces of their memory in the same order; answers those that it can answer now.
    fn queue(&mut self, io: &mut Io<'_>, now: Instant, requests: &[Request], segments: &[Segment]);

    /// Puts into the ring what is to go there: called before the ring is waited for, if the lane has asked for it.
    ///
    /// The kernel takes entries in order, and some microseconds for each read or write: the replies of a turn go before
    /// them, so that clients ask again while it does.
    fn launch(&mut self, _io: &mut Io<'_>) {}

    /// The ring or a helper has done steps of its requests.
    fn completed(&mut self, _io: &mut Io<'_>, _now: Instant, _steps: &[Completed]) {
        unreachable!("a lane that asks nobody hears of nothing")
    }

    /// Whether it answers by the clock: it is then polled each turn, and when it is due.
    fn is_by_the_clock(&self) -> bool {
        false
    }

    /// It is `now`: answers what has ended by then.
    fn poll(&mut self, _io: &mut Io<'_>, _now: Instant) {}

    /// It was told to look ([`Source::Look`](crate::kernel::ring::Source::Look)): something that it shares with others has changed.
    fn look(&mut self, _io: &mut Io<'_>, _now: Instant) {}

    /// The worker did not run for so long, though it was to: what its requests have for time does not count that.
    fn stalled(&mut self, _for_so_long: Duration) {}

    /// Whether it lets answers come before it looks at them.
    fn is_pausing(&self) -> bool {
        false
    }

    /// When to poll it though nothing else happened.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Takes a question what is allocated, and answers it now or later. Only devices with a [`link`](Device::link) are asked so.
    fn map(&mut self, _io: &mut Io<'_>, _now: Instant, _map: Map) {
        unreachable!("a device that knows what is allocated is asked itself")
    }

    /// Its device is to go: from now on other work of the ring for it counts as in flight, and is to end.
    fn leave(&mut self) {}

    /// Requests that it has not answered.
    fn in_flight(&self) -> usize {
        0
    }
}

/// The lane where a device was, and is no more: nobody has anything to ask there.
pub(crate) struct Gone;

impl Lane for Gone {
    fn queue(&mut self, _io: &mut Io<'_>, _now: Instant, _requests: &[Request], _segments: &[Segment]) {
        unreachable!("a request goes to a device that is gone")
    }
}

pub(crate) fn each<'a>(
    requests: &'a [Request],
    mut segments: &'a [Segment],
) -> impl Iterator<Item = (&'a Request, &'a [Segment])> {
    requests.iter().map(move |request| {
        let (mine, rest) = segments.split_at(request.segments);
        segments = rest;
        (request, mine)
    })
}

/// The part of some pieces of memory after `skip` bytes.
pub(super) fn cut(segments: &[Segment], mut skip: u64, mut left: u64) -> impl Iterator<Item = Segment> {
    segments.iter().filter_map(move |segment| {
        let from = skip.min(segment.bytes.get());
        skip -= from;
        let bytes = left.min(segment.bytes.get() - from);
        left -= bytes;
        let offset = Bytes(segment.offset.get() + from);
        (bytes > 0).then_some(Segment { offset, bytes: Bytes(bytes), ..*segment })
    })
}

/// Lists the first `within` bytes of a request's memory. The device ends there, and a read has zeroes from there on. Answers the block of the
/// pool that the last piece is in.
#[inline]
pub(super) fn list_memory(
    tickets: &mut Tickets,
    segments: &[Segment],
    op: Op,
    within: u64,
    into: &mut Vec<libc::iovec>,
) -> Option<u16> {
    let (mut left, mut block) = (within, None);
    for segment in segments {
        let memory = &mut tickets[segment.token.0 as usize].memory;
        let (from, bytes) = (segment.offset.get(), segment.bytes.get());
        let there = bytes.min(left);
        left -= there;
        if there < bytes && op == Op::Read {
            memory.for_each((from + there) as usize, (bytes - there) as usize, |beyond| zero(&beyond));
        }
        if there > 0 {
            block = memory.pieces(from, there, into);
        }
    }
    block
}

/// The place of that number in a table that grows as places are used.
pub(super) fn place_of<T: Default>(table: &mut Vec<T>, index: usize) -> &mut T {
    if table.len() <= index {
        table.resize_with(index + 1, T::default);
    }
    &mut table[index]
}

#[derive(Default)]
pub(super) struct Batch {
    pub(super) requests: Vec<Request>,
    pub(super) segments: Vec<Segment>,
}

impl Batch {
    pub(super) fn put(&mut self, request: Request, segments: impl IntoIterator<Item = Segment>) {
        let before = self.segments.len();
        self.segments.extend(segments);
        self.requests.push(Request { segments: self.segments.len() - before, ..request });
    }
}

pub(super) struct AtOnce<D>(pub(super) Arc<D>);

impl<D: Inline + Device> Lane for AtOnce<D> {
    fn queue(&mut self, io: &mut Io<'_>, _now: Instant, requests: &[Request], segments: &[Segment]) {
        for (request, segments) in each(requests, segments) {
            let outcome = answer(&*self.0, io.tickets, request, segments);
            if let Outcome::Failed(errno) = outcome {
                self.0.failed(request.op, errno);
            }
            io.ended.push((request.tag, outcome));
        }
    }
}

/// Does a request on a device that answers at once.
#[inline(always)]
pub(super) fn answer(device: &impl Inline, tickets: &mut Tickets, request: &Request, segments: &[Segment]) -> Outcome {
    let Request { op, flags, mut at, bytes, .. } = *request;
    match op {
        Op::Flush => device.flush(),
        Op::Discard => device.discard(at, bytes),
        Op::WriteZeroes => device.write_zeroes(at, bytes, flags),
        Op::Read | Op::Write => {
            let mut outcome = Outcome::Done;
            for segment in segments {
                let memory = &mut tickets[segment.token.0 as usize].memory;
                let (start, length) = (segment.offset.get() as usize, segment.bytes.get() as usize);
                memory.for_each(start, length, |piece| {
                    let bytes = piece.len() as u64;
                    outcome = outcome.and(match op {
                        Op::Read => device.read(at, piece),
                        _ => device.write(at, piece, flags),
                    });
                    at += bytes;
                });
            }
            outcome
        }
    }
}
