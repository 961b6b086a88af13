//! The flush sequence of a bio: preflush, data, postflush; and how the queue drives the flushes of its backings.
//!
//! A client asks for durability in three ways: by a flush, by a write with FUA (durable when it ends), by a write with PREFLUSH
//! (all before it is durable first). A device may know FUA or not, and may have a volatile cache or not. So a bio passes up to
//! three steps:
//!
//! | bio | cache, no FUA in the device | cache, FUA | no cache |
//! |---|---|---|---|
//! | flush | flush | flush | ends at once |
//! | write, FUA | data, flush | data with FUA | data |
//! | write, PREFLUSH and FUA | flush, data, flush | flush, data with FUA | data |
//! | all else | data | data | data |
//!
//! A bio of the last row passes none of this file but one test of its flags.
//!
//! sequence.1  A bio that waits for a flush holds no request and no tag. The flush that the device is given is a request with no
//!             memory, in the context of a waiter, and has a row of the table of its own. So a full table of requests does not hold
//!             it up, and a scheduler only by sequence.5. No more than four times `nr_requests` bios, of whatever kind, are taken
//!             in at a time. Flushes are shared within a backing, by the rules of [`flush`](crate::flush).
//! sequence.2  A write with PREFLUSH waits for a flush, then for its data, and with FUA for a flush again. A backing that makes
//!             single writes durable is left to do so; a discard or write of zeroes is always followed by a flush. A step that
//!             fails is the last. Where no cache is volatile only the data is left.
//! sequence.3  A flush is in the device as long as it takes. Its waiters are told after `io_timeout` that it took too long; waiters
//!             for the next one, or for a tag, when as much time has passed since they asked. The next flush starts when the device
//!             has answered.
//! sequence.4  The device time of a flush is charged in equal parts to the groups that shared it, and within a group to those of
//!             its streams that did. Time is charged once: from the later of the dispatch and the end of what was charged last. All
//!             else passes through the scheduler, discards and writes of zeroes too, and is charged there like any request.
//! sequence.5  A flush that is asked for only by groups that have had more than their share waits until they have caught up, as a
//!             request of theirs would ([`Charge::is_ahead`](crate::sched::Charge::is_ahead)). When any other group asks for it, it
//!             goes, and they share it: no group waits for another's debt. It goes too once its first waiter has waited for a
//!             quarter of `io_timeout`, so that no debt makes it fail (sequence.3).
//! sequence.6  A stream that asks for a flush after each of its writes waits for the device twice for each. So its next write is
//!             made durable at once, and the flush after it finds nothing to do (flush.6): where the backing can make single writes
//!             durable, and when the write goes to the device no other bio is under way in this queue, and nothing is unflushed.
//!             The device may do it by a flush, so a flush is under way meanwhile (flush.10), and its time is charged as one.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use slab::Slab;

use super::groups::StreamState;
use super::settings::Backing;
use super::{BioState, NIL, Queue, Request, RequestId, SegmentNode};
use crate::flush::{self, Contexts, Counts, Dirty, Flush, Round, SharedFlush, Start};
use crate::group::{ContextId, GroupId, Stream, StreamId};
use crate::sched::Waiting;
use crate::waits::Part;
use crate::{Bio, Duration, Errno, Extent, Flags, Instant, Limits, Op, Outcome, Sector};

/// How far a bio is (sequence.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It waits for a flush, before its data; then for its data.
    Preflush { durable: bool },
    /// Its data; then a flush if it must be `durable` by one.
    Data { durable: bool },
    /// It waits for a flush, after its data or instead of any.
    Postflush,
}

/// How many times in a row a stream has written once and then flushed, until sequence.6 holds. Chosen: if the next write is no such
/// write, the flush that was for nothing is one in five.
const COMMITS: u8 = 4;

/// Whether a stream flushes after each of its writes (sequence.6).
#[derive(Clone, Copy, Default)]
pub(super) struct Habit {
    commits: u8,
    /// Writes since the last flush; two are many.
    writes: u8,
}

impl Habit {
    /// It asks for something.
    #[inline]
    pub(super) fn note(&mut self, op: Op) {
        if op == Op::Flush {
            self.flushes();
        } else if op != Op::Read {
            self.writes();
        }
    }

    /// It writes.
    #[inline]
    fn writes(&mut self) {
        self.writes = (self.writes + 1).min(2);
        if self.writes > 1 {
            self.commits = 0;
        }
    }

    /// Whether a flush will follow what it has written.
    const fn is_followed(self) -> bool {
        self.commits == COMMITS && self.writes == 1
    }

    /// It flushes.
    fn flushes(&mut self) {
        if self.writes == 1 {
            self.commits = (self.commits + 1).min(COMMITS);
        }
        self.writes = 0;
    }
}

/// What waits for a flush.
#[derive(Clone, Copy)]
struct Waiter {
    round: Round,
    bio: u32,
    asked: Instant,
}

/// A backing, and the bios that wait for it to be flushed.
pub(super) struct Cache {
    start: Sector,
    volatile: bool,
    fua: bool,
    flush: Holder,
    dirty: Arc<Dirty>,
    /// In the order in which they asked, and so by round.
    waiters: VecDeque<Waiter>,
    /// The groups of the bios that wait for one that has not started; perhaps more (sequence.5).
    askers: alloc::vec::Vec<GroupId>,
    /// How many of them, from the front, share a flush that has started.
    sharing: usize,
    /// A flush is to start.
    ready: bool,
    /// When to look again though nothing happened.
    due: Option<Instant>,
}

/// A state machine of one's own, or one that several queues share.
enum Holder {
    Own(Box<Flush>),
    Shared(Arc<dyn SharedFlush>),
}

impl Holder {
    fn with<R>(&mut self, act: impl FnOnce(&mut Flush) -> R) -> R {
        match self {
            Self::Own(flush) => act(flush),
            Self::Shared(share) => {
                let (mut act, mut result) = (Some(act), None);
                share.with(&mut |flush| result = act.take().map(|act| act(flush)));
                result.expect("whoever shares a flush calls back")
            }
        }
    }
}

impl Cache {
    pub(super) fn new(backing: &Backing, settings: &flush::Settings) -> Self {
        let mut flush = match &backing.flush {
            Some(share) => Holder::Shared(Arc::clone(share)),
            None => Holder::Own(Box::new(Flush::new(settings.clone(), backing.volatile_cache))),
        };
        Self {
            start: backing.start,
            volatile: backing.volatile_cache,
            fua: backing.fua,
            dirty: flush.with(|flush| Arc::clone(flush.dirty())),
            flush,
            waiters: VecDeque::new(),
            askers: alloc::vec::Vec::new(),
            sharing: 0,
            ready: false,
            due: None,
        }
    }
}

/// Of all backings together.
#[derive(Default)]
pub(super) struct Flushes {
    /// All that wait.
    waiters: usize,
    /// Device flushes that have a row in the table of requests (sequence.1).
    pub(super) rows: usize,
    /// Bios whose first flush has ended and that wait for room in the table (sequence.2).
    pub(super) resuming: VecDeque<u32>,
    /// Flushes that ended, on their way to the bios that waited: empty between calls.
    ended: alloc::vec::Vec<(u32, Outcome)>,
    /// Which backing comes first when several want to flush.
    next_backing: usize,
    /// Up to when device time has been charged (sequence.4).
    charged: Instant,
    /// How many of each group share a flush: zeroes between calls.
    sharers: alloc::vec::Vec<u32>,
    counts: Counts,
}

impl Flushes {
    /// None yet, with room for as many waiters as a cache has ([`Queue::ask_flush`]).
    pub(super) fn new() -> Self {
        Self { ended: alloc::vec::Vec::with_capacity(128), resuming: VecDeque::with_capacity(64), ..Self::default() }
    }
}

impl Queue {
    /// The backing that a place on the disk belongs to.
    #[inline]
    fn cache_of(&self, at: Sector) -> usize {
        match self.caches.len() {
            1 => 0,
            _ => self.caches.partition_point(|cache| cache.start <= at).saturating_sub(1),
        }
    }

    // ---- on the way in ----

    /// A flush, or a bio that is to be durable, begins with its first step; it has the flags that its requests have (sequence.2).
    pub(super) fn begin(&mut self, now: Instant, number: u32) {
        let Bio { op, flags, extent, .. } = self.bios[number].bio;
        let (stage, flags) = self.stage_of(op, flags, extent.start);
        let state = &mut self.bios[number];
        (state.stage, state.bio.flags) = (stage, flags);
        match stage {
            Stage::Data { .. } => self.begin_data(now, number),
            Stage::Preflush { .. } | Stage::Postflush => self.ask_flush(now, number), // queue.5
        }
    }

    /// Which steps it goes through, and the flags that its requests have (sequence.2).
    fn stage_of(&self, op: Op, flags: Flags, at: Sector) -> (Stage, Flags) {
        if op == Op::Flush {
            return (Stage::Postflush, flags);
        }
        let cache = &self.caches[self.cache_of(at)];
        let (fua, preflush) = (flags.contains(Flags::FUA), flags.contains(Flags::PREFLUSH));
        let plain = flags.without(Flags::FUA | Flags::PREFLUSH);
        if !cache.volatile || op == Op::Read {
            return (Stage::Data { durable: false }, plain);
        }
        let native = fua && cache.fua && op == Op::Write;
        let durable = fua && !native;
        let flags = if native { plain | Flags::FUA } else { plain };
        (if preflush { Stage::Preflush { durable } } else { Stage::Data { durable } }, flags)
    }

    /// A request goes to the device, of the only bio that there is: whether it is a write that is to be durable at once (sequence.6).
    pub(super) fn goes_ahead(&mut self, now: Instant, id: RequestId) {
        if self.requests[id.0].waiting.op == Op::Write && self.may_go_ahead(id) {
            self.requests[id.0].waiting.flags |= Flags::AHEAD;
            self.scheduler.flush_began(now);
        }
    }

    fn may_go_ahead(&mut self, id: RequestId) -> bool {
        let Request { waiting, first, .. } = self.requests[id.0];
        let BioState { bio, stage, .. } = &self.bios[first.bio];
        let settings = &self.settings.flush;
        let is_wanted =
            settings.ahead && settings.coordinate && self.streams[bio.stream.0 as usize].habit.is_followed();
        let is_all_of_it = bio.extent.sectors == waiting.extent.sectors && *stage == Stage::Data { durable: false };
        if !is_wanted || !is_all_of_it || waiting.flags.contains(Flags::FUA) {
            return false;
        }
        let index = self.cache_of(waiting.extent.start);
        let cache = &mut self.caches[index];
        cache.volatile && cache.fua && !cache.dirty.is_marked() && cache.flush.with(Flush::begin_ahead)
    }

    /// A bio goes on with its data, as soon as there is room for its requests.
    pub(super) fn begin_data(&mut self, now: Instant, number: u32) {
        let BioState { bio: Bio { op, flags, extent, stream, .. }, context, .. } = self.bios[number];
        let Stream { group, priority, .. } = self.streams[stream.0 as usize].stream;
        let waiting = Waiting { id: RequestId(NIL), op, flags, extent, stream, group, priority };
        self.cut(now, waiting, context, number, 0);
    }

    /// A bio waits for a flush.
    pub(super) fn ask_flush(&mut self, now: Instant, number: u32) {
        let BioState { bio: Bio { op, flags, extent, stream, .. }, context, .. } = self.bios[number];
        if op == Op::Flush && !self.settings.flush.coordinate {
            let Stream { group, priority, .. } = self.streams[stream.0 as usize].stream;
            let extent = Extent::new(extent.start, 0);
            let waiting = Waiting { id: RequestId(NIL), op, flags, extent, stream, group, priority };
            let id = self.new_request(&waiting, context, SegmentNode { bio: number, ..SegmentNode::NONE });
            return self.again.push_back(id);
        }
        let index = self.cache_of(extent.start);
        let cache = &mut self.caches[index];
        let round = cache.flush.with(|flush| flush.ask(now, context));
        if cache.waiters.capacity() == 0 {
            // Most caches are never flushed, and one that is needs room for more than the first.
            cache.waiters.reserve(64);
            cache.askers.reserve(8);
        }
        cache.waiters.push_back(Waiter { round, bio: number, asked: now });
        let GroupId(group) = self.streams[stream.0 as usize].stream.group;
        if !cache.askers.contains(&GroupId(group)) {
            cache.askers.push(GroupId(group));
        }
        self.flushes.waiters += 1;
        self.flushes.counts.asked += 1;
    }

    // ---- to the device ----

    /// Whether a bio waits for a flush: if none does, requests do not pass any of this file on their way out.
    #[inline]
    pub(super) const fn flushes_wait(&self) -> bool {
        self.flushes.waiters > 0
    }

    /// How many wait for a flush that has not started.
    pub(super) fn waiting_to_flush(&self) -> usize {
        if !self.flushes_wait() {
            return 0;
        }
        self.caches.iter().map(|cache| cache.waiters.len() - cache.sharing).sum()
    }

    /// Takes in which flushes have ended, of other queues' too, and which are to start.
    pub(super) fn look_at_flushes(&mut self, now: Instant) {
        (0..self.caches.len()).for_each(|index| self.look(now, index));
    }

    fn look(&mut self, now: Instant, index: usize) {
        let Cache { flush, waiters, askers, sharing, ready, due, .. } = &mut self.caches[index];
        if waiters.is_empty() {
            *ready = false; // They may all have been told that it took too long since it was found to be.
            return;
        }
        let mut ended = core::mem::take(&mut self.flushes.ended);
        let (charge, scheduler) = (self.settings.flush.charge, &mut self.scheduler);
        let patience = Duration::from_nanos(self.settings.io_timeout.as_nanos() / 4);
        let (start, since) = flush.with(|flush| {
            let mut start = flush.poll_start(now);
            // sequence.5
            if matches!(start, Start::Now | Start::At(_))
                && charge
                && !askers.is_empty()
                && let Some(first) = waiters.get(waiters.partition_point(|waiter| flush.has_started(waiter.round)))
                && now < first.asked + patience
                && askers.iter().all(|group| scheduler.is_ahead(now, *group))
            {
                flush.hold(now);
                start = Start::At(first.asked + patience);
            }
            while let Some(waiter) = waiters.front()
                && let Some(outcome) = flush.take(waiter.round)
            {
                ended.push((waiter.bio, outcome));
                waiters.pop_front();
            }
            *sharing = waiters.partition_point(|waiter| flush.has_started(waiter.round));
            (start, flush.running_since())
        });
        // If only others wait, they were told, and one of them starts it.
        *ready = start == Start::Now && !waiters.is_empty();
        let late = waiters
            .front()
            .map(|first| overdue(since, first, *sharing, self.settings.io_timeout).max(self.lenient_until));
        *due = match start {
            Start::At(at) => late.map(|late| late.min(at)),
            _ => late,
        };
        if let Start::Spared(contexts) = start {
            self.contexts.wake(contexts.0);
            self.flushes.counts.spared += 1;
        }
        self.flushes.waiters -= ended.len();
        let some = !ended.is_empty();
        for (bio, outcome) in ended.drain(..) {
            self.flushed(now, bio, outcome);
        }
        self.flushes.ended = ended;
        if some {
            self.made_room(now);
        }
    }

    /// Whether a flush is to start.
    pub(super) fn flush_is_ready(&self) -> bool {
        self.caches.iter().any(|cache| cache.ready)
    }

    /// A flush for the device, if one is to start: in this context if a bio of it waits for the flush (sequence.1).
    pub(super) fn start_flush(&mut self, now: Instant, context: ContextId) -> Option<RequestId> {
        let count = self.caches.len();
        for step in 0..count {
            let index = (self.flushes.next_backing + step) % count;
            if core::mem::take(&mut self.caches[index].ready)
                && let Some(id) = self.start_flush_of(now, index, context)
            {
                self.flushes.next_backing = index + 1;
                return Some(id);
            }
        }
        None
    }

    fn start_flush_of(&mut self, now: Instant, index: usize, context: ContextId) -> Option<RequestId> {
        let cache = &mut self.caches[index];
        let (start, waited) = cache.flush.with(|flush| {
            let start = flush.poll_start(now);
            let before = flush.counts().waits;
            if start == Start::Now {
                flush.start(now);
            }
            (start, flush.counts().waits - before)
        });
        if start != Start::Now {
            // Another queue was faster.
            if let Start::Spared(contexts) = start {
                self.contexts.wake(contexts.0);
                self.flushes.counts.spared += 1;
            }
            self.look(now, index);
            return None;
        }
        self.flushes.counts.sent += 1;
        self.flushes.counts.waits += waited;
        cache.sharing = cache.waiters.len();
        cache.askers.clear();
        let bios = &self.bios;
        let of = |waiter: &Waiter| &bios[waiter.bio];
        let mut waiters = cache.waiters.iter().map(of);
        let first = waiters.clone().next().expect("whoever finds that a flush is to start waits for it");
        let BioState { bio: Bio { stream, .. }, context, .. } =
            *waiters.find(|bio| bio.context == context).unwrap_or(first);
        let extent = Extent::new(cache.start, 0);
        let (since, front) = (now, cache.waiters[0]);
        cache.due = Some(overdue(Some(since), &front, cache.sharing, self.settings.io_timeout).max(self.lenient_until));
        let Stream { group, priority, .. } = self.streams[stream.0 as usize].stream;
        let (op, flags, id) = (Op::Flush, Flags::NONE, RequestId(NIL));
        let waiting = Waiting { id, op, flags, extent, stream, group, priority };
        self.flushes.rows += 1;
        Some(self.new_request(&waiting, context, SegmentNode::NONE))
    }

    // ---- on the way out ----

    /// A write, discard or write of zeroes has ended in the device; its bios have not been told.
    pub(super) fn note_written(&mut self, now: Instant, id: RequestId, outcome: Outcome) {
        let Waiting { flags, extent, .. } = self.requests[id.0].waiting;
        let dirty = &self.caches[self.cache_of(extent.start)].dirty;
        let alone = !flags.contains(Flags::AHEAD) || !dirty.is_marked();
        if !flags.intersects(Flags::FUA | Flags::AHEAD) || outcome != Outcome::Done {
            dirty.mark();
        }
        if flags.contains(Flags::AHEAD) {
            let request = self.requests[id.0];
            let time = self.device_time(now, request.dispatched);
            self.end_ahead(now, &request, time, |flush| flush.end_ahead(outcome, alone));
        }
    }

    /// The device has turned back a request: if it was to be durable at once, it no longer is (sequence.6).
    pub(super) fn turned_back(&mut self, now: Instant, id: RequestId) {
        let request = self.requests[id.0];
        if request.waiting.op == Op::Flush {
            self.scheduler.tell_flush_ended(now, &request, Duration::ZERO);
        }
        if request.waiting.flags.contains(Flags::AHEAD) {
            self.requests[id.0].waiting.flags = request.waiting.flags.without(Flags::AHEAD);
            self.end_ahead(now, &request, Duration::ZERO, |flush| flush.end_ahead(Outcome::Done, true));
        }
    }

    /// A write that was to be durable at once is in the device no more; it was for so long (sequence.4, sequence.6).
    fn end_ahead(&mut self, now: Instant, request: &Request, time: Duration, end: impl FnOnce(&mut Flush) -> Contexts) {
        let Waiting { stream, group, extent, .. } = request.waiting;
        self.scheduler.tell_flush_ended(now, request, time);
        if self.settings.flush.charge && time > Duration::ZERO {
            self.scheduler.charge(now, stream, group, time);
        }
        let index = self.cache_of(extent.start);
        self.contexts.wake(self.caches[index].flush.with(end).0);
        self.look(now, index);
    }

    /// The device has answered a flush. How it ended for its bio, if it was one bio's alone.
    pub(super) fn flush_ended(&mut self, now: Instant, id: RequestId, outcome: Outcome) -> Outcome {
        let request = self.requests[id.0];
        let Waiting { stream, group, extent, .. } = request.waiting;
        let index = self.cache_of(extent.start);
        let time = self.device_time(now, request.dispatched);
        self.scheduler.tell_flush_ended(now, &request, time);
        if !request.is_coordinated_flush() {
            if self.settings.flush.charge {
                self.scheduler.charge(now, stream, group, time);
                self.streams[stream.0 as usize].stats.charged(time);
            }
            return self.caches[index].flush.with(|flush| flush.ended_alone(outcome));
        }
        self.flushes.rows -= 1;
        let contexts = self.caches[index].flush.with(|flush| flush.end(now, outcome));
        self.contexts.wake(contexts.0);
        self.flushes.counts.failed += u64::from(outcome != Outcome::Done);
        if self.settings.flush.charge {
            self.charge_sharers(now, index, time);
        }
        self.look(now, index);
        outcome
    }

    /// A flush has ended that a bio waited for.
    fn flushed(&mut self, now: Instant, number: u32, outcome: Outcome) {
        self.spent(now, number, Part::Flush);
        let bio = &mut self.bios[number];
        match (bio.stage, outcome) {
            (Stage::Preflush { durable }, Outcome::Done) => {
                bio.stage = Stage::Data { durable };
                self.flushes.resuming.push_back(number);
            }
            (Stage::Preflush { .. } | Stage::Postflush, _) => {
                bio.outcome = bio.outcome.and(outcome);
                self.end_bio(now, number);
            }
            (Stage::Data { .. }, _) => unreachable!("a bio whose data is under way waits for no flush"),
        }
    }

    /// There is room for requests: bios whose first flush has ended go on.
    pub(super) fn resume(&mut self, now: Instant) {
        while self.rest.is_none()
            && self.has_room()
            && let Some(number) = self.flushes.resuming.pop_front()
        {
            self.begin_data(now, number);
        }
    }

    /// The device has turned back a flush: it goes again, for its stream as it is now. Those that shared it may all have
    /// timed out and gone meanwhile.
    pub(super) fn requeue_flush(&mut self, id: RequestId) {
        let request = &mut self.requests[id.0];
        if let Some(state) = self.streams.get(request.waiting.stream.0 as usize) {
            request.follow(&state.stream);
        }
        self.again.push_front(id);
    }

    /// Whether no bio waits to go on that came before the one that is refused now.
    #[inline]
    pub(super) fn nobody_resumes(&self) -> bool {
        self.flushes.resuming.is_empty()
    }

    // ---- time ----

    /// When a flush takes too long, or is to start (sequence.3).
    pub(super) fn flush_due(&self) -> Option<Instant> {
        if !self.flushes_wait() {
            return None;
        }
        self.caches.iter().filter(|cache| !cache.waiters.is_empty()).filter_map(|cache| cache.due).min()
    }

    /// Tells bios that have waited too long (sequence.3).
    pub(super) fn time_out_flushes(&mut self, now: Instant) {
        if !self.flushes_wait() {
            return;
        }
        self.look_at_flushes(now);
        for index in 0..self.caches.len() {
            let Cache { flush, waiters, sharing, due, .. } = &mut self.caches[index];
            let since = flush.with(|flush| flush.running_since());
            let mut late = core::mem::take(&mut self.flushes.ended);
            while let Some(first) = waiters.front().copied()
                && overdue(since, &first, *sharing, self.settings.io_timeout).max(self.lenient_until) <= now
            {
                waiters.pop_front();
                *sharing = sharing.saturating_sub(1);
                flush.with(|flush| flush.cancel(first.round));
                late.push((first.bio, Outcome::Failed(Errno::ETIMEDOUT)));
            }
            *due = waiters
                .front()
                .map(|first| overdue(since, first, *sharing, self.settings.io_timeout).max(self.lenient_until));
            self.flushes.waiters -= late.len();
            let some = !late.is_empty();
            for (number, _) in late.drain(..) {
                self.time_out(now, number);
                self.end_bio(now, number);
            }
            self.flushes.ended = late;
            if some {
                self.made_room(now);
            }
        }
    }

    /// Device time that was not charged yet, of a flush that was dispatched then and ends now (sequence.4).
    fn device_time(&mut self, now: Instant, dispatched: Instant) -> Duration {
        let time = now.since(dispatched.max(self.flushes.charged));
        self.flushes.charged = now;
        time
    }

    /// Charges the bios that share the flush that has just ended.
    fn charge_sharers(&mut self, now: Instant, index: usize, time: Duration) {
        let Flushes { sharers, .. } = &mut self.flushes;
        sharers.resize(self.groups.bound(), 0);
        let cache = &self.caches[index];
        let (bios, streams) = (&self.bios, &mut self.streams);
        let stream = |waiter: &Waiter| bios[waiter.bio].bio.stream;
        let group = |streams: &Slab<StreamState>, stream: StreamId| streams[stream.0 as usize].stream.group;
        let mut groups: u64 = 0;
        for waiter in cache.waiters.iter().take(cache.sharing) {
            let GroupId(group) = group(streams, stream(waiter));
            groups += u64::from(sharers[usize::from(group)] == 0);
            sharers[usize::from(group)] += 1;
        }
        for waiter in cache.waiters.iter().take(cache.sharing) {
            let stream = stream(waiter);
            let group = group(streams, stream);
            let part = Duration::from_nanos(time.as_nanos() / groups / u64::from(sharers[usize::from(group.0)]));
            self.scheduler.charge(now, stream, group, part);
            streams[stream.0 as usize].stats.charged(part);
        }
        for waiter in cache.waiters.iter().take(cache.sharing) {
            sharers[usize::from(group(streams, stream(waiter)).0)] = 0;
        }
    }

    // ---- knobs and counters ----

    /// Tells what was counted of flushes, if any was asked for.
    pub(super) fn tell_flushes(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        let Counts { asked, sent, failed, spared, waits } = self.flushes.counts;
        if asked > 0 {
            let all = [
                ("flushes_asked", asked),
                ("flushes_sent", sent),
                ("flushes_failed", failed),
                ("flushes_spared", spared),
                ("flush_waits", waits),
            ];
            all.iter().for_each(|(name, count)| tell(name, *count));
        }
    }

    /// Takes in what other queues that share a backing's flushes have done: for contexts that were woken and may not ask for a
    /// request ([`Queue::poll_dispatch`] does it too).
    pub fn handle_flushes(&mut self, now: Instant) {
        if self.flushes_wait() {
            self.look_at_flushes(now);
        }
    }

    /// Changes how flushes are treated, of all queues that share them; works under load.
    pub fn set_flush(&mut self, settings: flush::Settings) {
        for cache in &mut self.caches {
            cache.flush.with(|flush| flush.set(settings.clone()));
        }
        self.settings.flush = settings;
    }

    /// Adds a backing to the disk, whose limits are from now on these; works under load.
    ///
    /// # Panics
    /// If a backing starts there already.
    pub fn add_backing(&mut self, backing: &Backing, limits: Limits) {
        let at = self.caches.partition_point(|cache| cache.start < backing.start);
        assert!(self.caches.get(at).is_none_or(|next| next.start != backing.start), "a backing is added twice");
        self.caches.insert(at, Cache::new(backing, &self.settings.flush));
        self.make_room();
        self.set_limits(limits);
    }

    /// Takes a backing from the disk; works under load.
    ///
    /// # Panics
    /// If a bio waits for a flush of it. No other bio of it may be under way either.
    pub fn remove_backing(&mut self, start: Sector) {
        let at = self.caches.iter().position(|cache| cache.start == start).expect("a backing that is removed is there");
        assert!(self.caches.remove(at).waiters.is_empty(), "a backing is removed while somebody waits for its flush");
    }

    /// Changes what the device can take: a backing has grown, or another one has come. What waits keeps its size.
    pub fn set_limits(&mut self, limits: Limits) {
        assert!(limits.block > 0 && limits.rw_max > 0 && limits.segments_max > 0);
        self.settings.limits = limits;
    }

    /// What a flush of the backing at `at` failed with that nobody has taken note of: its flushes go on failing.
    pub fn flush_error(&mut self, at: Sector) -> Option<Errno> {
        let index = self.cache_of(at);
        self.caches[index].flush.with(|flush| flush.lost())
    }

    /// The operator has taken note that what was written to the backing at `at` may be lost: its flushes succeed again.
    pub fn acknowledge_flush_error(&mut self, at: Sector) {
        let index = self.cache_of(at);
        self.caches[index].flush.with(Flush::acknowledge);
    }
}

impl Request {
    /// Whether it is a flush that several may share (sequence.1).
    #[inline]
    pub(super) fn is_coordinated_flush(&self) -> bool {
        self.waiting.op == Op::Flush && self.first.bio == NIL
    }
}

/// When the first of the waiters has waited too long: since the flush began that it shares, or since it asked (sequence.3).
fn overdue(since: Option<Instant>, first: &Waiter, sharing: usize, io_timeout: Duration) -> Instant {
    since.filter(|_| sharing > 0).unwrap_or(first.asked) + io_timeout
}
