//! Waits: the clocks go on with the work of the queue, and each bio's time is divided when it ends ([`waits`](crate::waits)).

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::flush_sequence::Stage;
use super::groups::{Groups, StreamState, share};
use super::{BioState, NIL, Queue, Request, State};
use crate::group::GroupId;
use crate::stats::Stats;
use crate::waits::{Clock, Doing, Part, Times};
use crate::{Duration, Flags, Instant, Op};

/// The service of a group on a disk up to now, or a part of it.
#[derive(Clone, Default, Debug)]
pub struct Figures {
    /// The counters of its bios.
    pub stats: Stats,
    /// The time spent so far by bios that have not ended, by cause.
    pub under_way: Stats,
    /// The device time that it has had (waits.2).
    pub had: Duration,
    /// Its streams.
    pub streams: u32,
    /// Requests that the device has.
    pub in_flight: u32,
    /// Bios that have not ended.
    pub open: u32,
}

impl Figures {
    /// Adds another part.
    pub fn add(&mut self, other: &Self) {
        self.stats.add(&other.stats);
        self.under_way.add(&other.under_way);
        self.had = self.had + other.had;
        self.streams += other.streams;
        self.in_flight += other.in_flight;
        self.open += other.open;
    }
}

impl StreamState {
    /// A bio that was [refused](super::Refused::Full) waits outside: the stream has asked for it at `arrived`.
    pub fn waits_outside(&mut self, op: Op, arrived: Instant) {
        self.opened(arrived);
        let (count, sum) = &mut self.outside[op as usize];
        (*count, *sum) = (*count + 1, sum.wrapping_add(arrived.as_nanos()));
    }

    /// A bio that was asked for at `arrived` does not [wait outside](Self::waits_outside) any more: it is submitted next, or is not.
    ///
    /// # Panics
    /// If none waits.
    pub fn comes_in(&mut self, now: Instant, op: Op, arrived: Instant) {
        let (count, sum) = &mut self.outside[op as usize];
        (*count, *sum) = (*count - 1, sum.wrapping_sub(arrived.as_nanos()));
        self.closed(now);
    }

    /// The replies to ended bios were sent, after this time in all.
    pub fn replied(&mut self, op: Op, time: Duration) {
        self.stats.times_mut(op).spend(Part::Reply, time);
    }

    /// Its service, and the waits of its bios outside the queue.
    pub(super) fn figures(&self, now: Instant) -> Figures {
        let (stats, mut under_way) = (self.stats.clone(), Stats::default());
        for (op, (count, sum)) in Op::ALL.into_iter().zip(self.outside).filter(|(_, (count, _))| *count > 0) {
            let mut times = Times::default();
            let time = u64::from(count).wrapping_mul(now.as_nanos()).wrapping_sub(sum);
            times.spend(Part::Room, Duration::from_nanos(time));
            under_way.spent(op, &times);
        }
        Figures { stats, under_way, streams: 1, open: self.open, ..Figures::default() }
    }
}

impl Groups {
    /// A bio has spent its time since it was divided last on one thing.
    pub(super) fn spent(&mut self, now: Instant, row: &mut BioState, part: Part) {
        let state = &mut self.streams[row.bio.stream.0 as usize];
        state.stats.times_mut(row.bio.op).spend(part, now.since(row.since));
        row.since = now;
        self.clock.go_on(now);
        row.stamp = self.clock.stamp(share(&self.shares, state));
    }

    /// The activity of the disk.
    #[must_use]
    pub fn doing(&mut self, now: Instant) -> Doing {
        self.clock.go_on(now);
        self.clock.doing()
    }

    /// The figures of the streams whose number is in `numbers`; `None`: there are none from there on. All that is told is
    /// copied: few at a time keep nobody waiting who wants the queue.
    #[must_use]
    pub fn figures_of_streams(&mut self, now: Instant, numbers: Range<usize>) -> Option<Vec<(GroupId, Figures)>> {
        let end = numbers.end.min(self.streams.capacity());
        let figures = |number| {
            let state = self.streams.get_mut(number)?;
            state.look(now);
            Some((state.stream.group, state.figures(now)))
        };
        (numbers.start < end).then(|| (numbers.start..end).filter_map(figures).collect())
    }

    /// The figures of groups themselves, and of streams that have left them; as [`Groups::figures_of_streams`].
    #[must_use]
    pub fn figures_of_groups(&mut self, now: Instant, numbers: Range<usize>) -> Option<Vec<(GroupId, Figures)>> {
        self.clock.go_on(now);
        let end = numbers.end.min(self.states.len());
        let figures = |number: usize| {
            let (id, had) = (GroupId(number as u16), self.shares[number].had(&self.clock));
            let stats = self.get(id)?.retired.clone();
            Some((id, Figures { stats, had, ..Figures::default() }))
        };
        (numbers.start < end).then(|| (numbers.start..end).filter_map(figures).collect())
    }
}

impl Queue {
    /// The time spent so far by bios that have not ended, and the number of requests in the device, by group. It looks at all
    /// requests, for people who watch.
    #[must_use]
    pub fn figures_of_requests(&mut self, now: Instant) -> Vec<(GroupId, Figures)> {
        let Groups { clock, shares, streams, .. } = &mut self.groups;
        clock.go_on(now);
        let mut all = Vec::new();
        // A bio is in the device if one of its requests is.
        let mut requests = vec![NIL; self.requests.bios.rows()];
        for (id, request) in self.requests.in_use() {
            if request.state != State::Waiting && request.waiting.op != Op::Flush {
                all.push((request.waiting.group, Figures { in_flight: 1, ..Figures::default() }));
            }
            for segment in self.requests.segments_of(request) {
                let known = &mut requests[segment.bio as usize];
                if *known == NIL || request.state != State::Waiting {
                    *known = id;
                }
            }
        }
        for (number, row) in self.requests.bios.in_use().filter(|(_, row)| !row.timed_out) {
            let state = &streams[row.bio.stream.0 as usize];
            let request =
                self.requests.get(requests[number as usize]).filter(|request| request.state != State::Waiting);
            let mut times = Times::default();
            match (row.stage, request) {
                (Stage::Preflush { .. } | Stage::Postflush, _) => times.spend(Part::Flush, now.since(row.since)),
                (Stage::Data { .. }, Some(request)) => divide(&mut times, clock, now, row, request),
                (Stage::Data { .. }, None) => {
                    let stamp = clock.stamp(share(shares, state));
                    Clock::divide_wait(&mut times, now.since(row.since), &row.stamp, &stamp);
                }
            }
            let mut figures = Figures::default();
            figures.under_way.spent(row.bio.op, &times);
            all.push((state.stream.group, figures));
        }
        for (group, held) in self.ceilings.each() {
            let mut figures = Figures::default();
            figures.under_way.times_mut(held.bio.op).spend(Part::Limit, now.since(held.since));
            all.push((group, figures));
        }
        all
    }
}

/// Divides the time of a bio's data: it waited for its last request to go to the device, and then for the device.
#[inline]
pub(super) fn divide(times: &mut Times, clock: &Clock, now: Instant, bio: &BioState, request: &Request) {
    let all = now.since(bio.since);
    if request.waiting.op == Op::Flush {
        return times.spend(Part::Flush, all);
    }
    let took = now.since(request.dispatched).min(all);
    Clock::divide_wait(times, all - took, &bio.stamp, &request.stamp);
    if request.waiting.flags.contains(Flags::AHEAD) {
        return times.spend(Part::Flush, took); // sequence.6: its flush is in it
    }
    clock.divide_service(times, took, &request.stamp);
}
