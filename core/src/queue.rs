//! The queue of a disk: a state machine between those who ask and the device.
//!
//! ```text
//!  submit ─▶ cut to the limits ─▶ plug ─▶ scheduler ─▶ tag ─▶ granted to its context ─▶ device
//!               (merge)         (merge)                                                   │
//!  poll_finished ◀──────────────────────────────────────────────── handle_completion ◀────┘
//! ```
//!
//! Q1  Every bio that was accepted ends exactly once.
//! Q2  A request in flight holds a tag; with all tags out nothing is dispatched.
//! Q3  What is submitted before the first `poll_dispatch` is one batch (a "plug"): neighbours in it are merged, and the
//!     scheduler sees it whole.
//! Q4  A request stays in the context that submitted it, from submission to its end: only bios of the same stream's
//!     group and context are merged, and only its own context is given it to execute.
//! Q5  Flushes pass the scheduler by, and are dispatched first. Those of one backing that are asked for together become one
//!     ([`crate::flush`]).
//! Q6  A bio that took longer than `io_timeout` in the device fails, but its memory is in the device's hands until the
//!     device has answered: [`Finished::TimedOut`] says the one, [`Finished::Released`] the other.
//! Q7  A request that the device could not take ([`Queue::handle_busy`]) goes out first, once something else has ended,
//!     or after [`BUSY_DELAY`] if nothing is in flight.
//!
//! Q8 to Q12, on streams and groups that come, change and go, are in `queue/groups.rs`.
//!
//! A round of a context: `handle_completion` for all that has ended, `submit` for all that is new, `poll_dispatch` until
//! `None`, `poll_finished` until `None`, `poll_wake` until `None`, then `poll_timeout`.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use slab::Slab;

mod complete;
mod events;
mod flush_sequence;
mod groups;
mod in_flight;
mod settings;
mod switch;

pub use events::{Dispatch, Finished, Refused, Segment};
pub use groups::GroupInUse;
pub use settings::{Backing, Settings, SharedTags};

use groups::{Groups, StreamState};

use crate::flush;
use crate::group::{ContextId, GroupId, Stream, StreamId};
use crate::list::{Linked, Links, List, NIL};
use crate::sched::idling_trial::Finding;
use crate::sched::{BUSY_DELAY, Next, RequestId, Scheduler, Served, Side, Waiting};
use crate::table::Table;
use crate::tags::{Bitmap, Hint};
use crate::trace::{Action, Event, Message, Note, Trace};
use crate::tunable;
use crate::{Bio, Errno, Extent, Flags, Instant, Limits, Op, Outcome, Sector, Tag, Token};

use flush_sequence::{Cache, Flushes, Stage};

/// Where a request is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// In the plug, the scheduler, or the flush list.
    Waiting,
    /// In the device's hands, or on its way there.
    InFlight(Tag),
    /// In the device's hands, its bios already answered (Q6).
    TimedOut(Tag),
}

/// One operation on one extent, made of one or more contiguous bios.
#[derive(Clone, Copy)]
struct Request {
    waiting: Waiting,
    context: ContextId,
    step: Step,
    dispatched: Instant,
    /// The list of its segments, in sector order.
    head: u32,
    tail: u32,
    segments: u32,
    /// Which of the queue's schedulers dispatched it last ([`Queue::generation`]).
    generation: u32,
    /// Its place in the list of requests in flight.
    links: Links,
}

#[derive(Clone, Copy)]
struct SegmentNode {
    bio: u32,
    /// In sectors, within the bio.
    offset: u64,
    sectors: u64,
    next: u32,
}

#[derive(Clone, Copy)]
struct BioState {
    token: Token,
    op: Op,
    flags: Flags,
    start: Sector,
    bytes: u64,
    stream: StreamId,
    context: ContextId,
    submitted: Instant,
    stage: Stage,
    /// Segments that have not ended, and one more while a rest of it waits to be cut.
    remaining: u32,
    outcome: Outcome,
    timed_out: bool,
}

/// Bookkeeping for one context.
#[derive(Default)]
struct Context {
    /// Requests that hold a tag and wait to be fetched.
    granted: VecDeque<RequestId>,
    finished: VecDeque<Finished>,
}

impl Linked for Request {
    #[inline]
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// The queue of a disk. See the [module](self) for its rules and the order in which to call it.
pub struct Queue {
    settings: Settings,
    scheduler: Box<dyn Scheduler>,
    /// How many schedulers there were before: none is told of what another has dispatched.
    generation: u32,
    tags: Arc<Bitmap>,
    hint: Hint,
    /// Tags that were taken and that no request has.
    spare: Vec<Tag>,
    in_flight: u16,
    /// The last time a request could have gone, no tag was free.
    lacks_tag: bool,
    by_tag: Box<[RequestId]>,
    requests: Table<Request>,
    segments: Table<SegmentNode>,
    bios: Table<BioState>,
    streams: Slab<StreamState>,
    contexts: Box<[Context]>,
    /// One bit for each context that has something to fetch and did not ask for it.
    wake: u64,
    /// One bit for each context that was told [`Refused::Full`] and waits for room.
    starved: u64,
    plug: Vec<RequestId>,
    /// Requests that pass the scheduler by: flushes that are not shared, and those that the device turned back.
    again: VecDeque<RequestId>,
    /// The backings, by rising start.
    caches: Box<[Cache]>,
    flushes: Flushes,
    /// What is left of a bio that was cut into more pieces than there were requests: at most one at a time.
    rest: Option<(u32, Waiting)>,
    /// Requests in flight whose time has not run out, the oldest first.
    dispatched: List,
    /// After the device said "busy": no dispatch before this (Q7).
    busy_until: Option<Instant>,
    groups: Groups,
    trace: Option<Trace>,
}

impl Queue {
    /// An empty queue.
    ///
    /// # Panics
    /// If a number in `settings` is 0 or there are more than 64 contexts.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let scheduler = settings.scheduler.build(&settings.setup());
        Self::with_scheduler(settings, scheduler)
    }

    /// An empty queue with a scheduler of the caller's own, made for at least `nr_requests` requests;
    /// `settings.scheduler` only names it.
    ///
    /// # Panics
    /// As [`Queue::new`].
    #[must_use]
    pub fn with_scheduler(settings: Settings, scheduler: Box<dyn Scheduler>) -> Self {
        assert!((1..=64).contains(&settings.contexts), "1 to 64 contexts, not {}", settings.contexts);
        assert!(settings.limits.block > 0 && settings.limits.rw_max > 0 && settings.limits.segments_max > 0);
        assert!(settings.nr_requests >= u32::from(settings.depth), "fewer requests than may be in flight");
        let (tags, user) = match &settings.tags {
            Some(shared) => (Arc::clone(&shared.bitmap), shared.user),
            None => (Arc::new(Bitmap::new(settings.depth.into()).unwrap_or_else(|error| panic!("{error}"))), 0),
        };
        assert!(settings.backings.first().is_some_and(|first| first.start.0 == 0), "the first backing starts at 0");
        assert!(settings.backings.is_sorted_by_key(|backing| backing.start), "backings by rising start");
        let requests = settings.nr_requests as usize;
        // Merging lets requests hold several bios; this many on average keeps the tables small.
        let segments = requests * 4;
        Self {
            scheduler,
            generation: 0,
            by_tag: vec![RequestId(NIL); tags.capacity()].into(),
            tags,
            hint: Hint::of(user),
            spare: Vec::with_capacity(settings.depth.into()),
            in_flight: 0,
            lacks_tag: false,
            requests: Table::new(settings.rows()),
            segments: Table::new(segments),
            bios: Table::new(segments),
            streams: Slab::new(),
            contexts: (0..settings.contexts)
                .map(|_| Context {
                    granted: VecDeque::with_capacity(usize::from(settings.depth)),
                    finished: VecDeque::with_capacity(64),
                })
                .collect(),
            wake: 0,
            starved: 0,
            plug: Vec::with_capacity(requests),
            again: VecDeque::with_capacity(16),
            caches: settings.backings.iter().map(|backing| Cache::new(backing, &settings.flush)).collect(),
            flushes: Flushes::new(),
            rest: None,
            dispatched: List::new(),
            busy_until: None,
            groups: Groups::new(&settings.groups),
            trace: None,
            settings,
        }
    }

    // ---- commands and news ----

    /// Asks for a bio to be done.
    ///
    /// # Errors
    /// [`Refused`], and nothing has changed.
    ///
    /// # Panics
    /// If the stream does not exist.
    pub fn submit(&mut self, now: Instant, bio: Bio) -> Result<(), Refused> {
        let Stream { group, priority, context } = self.streams[bio.stream.0 as usize].stream;
        self.check(&bio)?;
        if !self.has_room_for(bio.op) {
            self.starved |= 1 << context.0;
            self.note(now, Action::Slept, bio.op, bio.extent, bio.stream, group);
            return Err(Refused::Full);
        }
        self.note(now, Action::Queued, bio.op, bio.extent, bio.stream, group);
        self.streams[bio.stream.0 as usize].open += 1;
        let Bio { op, flags, extent, stream, token } = bio;
        let (stage, flags) = self.stage_of(op, flags, extent.start);
        let number = self.bios.insert(BioState {
            token,
            op,
            flags,
            start: extent.start,
            bytes: extent.bytes(),
            stream,
            context,
            submitted: now,
            stage,
            remaining: 0,
            outcome: Outcome::Done,
            timed_out: false,
        });
        match stage {
            Stage::Data { .. } => {
                let waiting = Waiting { id: RequestId(NIL), op, flags, extent, stream, group, priority };
                self.cut(now, waiting, context, number, 0);
            }
            Stage::Preflush { .. } | Stage::Postflush => self.ask_flush(now, number), // Q5
        }
        Ok(())
    }

    /// The device has done the request that holds `tag`, or failed to.
    ///
    /// # Panics
    /// If `tag` is not in flight.
    pub fn handle_completion(&mut self, now: Instant, tag: Tag, outcome: Outcome) {
        let id = self.take_back(tag);
        self.busy_until = None; // Q7
        let request = self.requests.remove(id.0);
        let Waiting { op, extent, stream, group, .. } = request.waiting;
        self.note(now, Action::Completed, op, extent, stream, group);
        self.note_written(&request.waiting, outcome);
        let outcome = if op == Op::Flush { self.flush_ended(now, &request, outcome) } else { outcome };
        let mut next = request.head;
        while next != NIL {
            let segment = self.segments.remove(next);
            next = segment.next;
            self.end_segment(now, segment.bio, outcome);
        }
        if op != Op::Flush && request.generation == self.generation {
            let served =
                Served { request: request.waiting, dispatched: request.dispatched, ok: outcome == Outcome::Done };
            self.scheduler.completed(now, &served);
        }
        if self.groups.are_leaving() {
            self.let_go(now); // Q11
        }
        self.made_room(now);
    }

    /// The device could not take the request that holds `tag` now; it will be offered again (Q7).
    ///
    /// # Panics
    /// If `tag` is not in flight.
    pub fn handle_busy(&mut self, now: Instant, tag: Tag) {
        let request = &self.requests[self.by_tag[usize::from(tag.0)].0];
        if matches!(request.step, Step::TimedOut(_)) && !request.is_coordinated_flush() {
            // Its bios are answered already, so nobody wants it done any more.
            return self.handle_completion(now, tag, Outcome::Failed(Errno::ETIMEDOUT));
        }
        let id = self.take_back(tag);
        let request = &mut self.requests[id.0];
        request.step = Step::Waiting;
        let (waiting, generation) = (request.waiting, request.generation);
        match waiting.op {
            Op::Flush => self.requeue_flush(now, id),
            _ if self.requeue_elsewhere(now, id) => {} // Q9
            _ if generation == self.generation => self.scheduler.requeue(now, &waiting),
            _ => self.scheduler.insert(now, &waiting), // The present scheduler never dispatched it.
        }
        if self.groups.are_leaving() {
            self.let_go(now); // Q11
        }
        self.busy_until = Some(if self.in_flight == 0 { now + BUSY_DELAY } else { Instant::MAX });
        self.note(now, Action::Requeued, waiting.op, waiting.extent, waiting.stream, waiting.group);
    }

    /// It is `now`: whatever was to happen by then happens.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut next = self.dispatched.front().unwrap_or(NIL);
        while next != NIL {
            let request = &mut self.requests[next];
            if now < request.dispatched + self.settings.io_timeout {
                break;
            }
            let id = next;
            next = request.links.next();
            if let Step::InFlight(tag) = request.step {
                request.step = Step::TimedOut(tag);
                let Waiting { op, extent, stream, group, .. } = request.waiting;
                let mut segment = request.head;
                self.dispatched.remove(self.requests.rows_mut(), id);
                self.note(now, Action::TimedOut, op, extent, stream, group);
                while segment != NIL {
                    let SegmentNode { bio, next, .. } = self.segments[segment];
                    segment = next;
                    self.time_out(now, bio);
                }
            }
        }
        self.time_out_flushes(now);
    }

    // ---- questions ----

    /// What `context` shall give to the device next; `None` if nothing now.
    ///
    /// Ends the batch of bios submitted before (Q3). Requests of other contexts whose turn comes are granted to them:
    /// see [`Queue::poll_wake`].
    pub fn poll_dispatch(&mut self, now: Instant, context: ContextId) -> Option<Dispatch> {
        self.look_at_flushes(now);
        self.unplug(now);
        if let Some(id) = self.contexts[usize::from(context.0)].granted.pop_front() {
            return Some(self.dispatch_of(id));
        }
        match self.busy_until {
            Some(until) if now < until => return None, // Q7
            _ => self.busy_until = None,
        }
        while self.has_work()
            && let Some(tag) = self.next_tag()
        {
            let first = self.again.pop_front().or_else(|| self.start_flush(now, context));
            let id = match first {
                Some(id) => id, // Q5
                None => match self.scheduler.dispatch(now) {
                    Next::Request(id) => id,
                    Next::Idle { .. } | Next::Nothing => {
                        self.put_back(tag);
                        return None;
                    }
                },
            };
            let owner = self.start(now, id, tag);
            if owner == context {
                return Some(self.dispatch_of(id));
            }
            self.contexts[usize::from(owner.0)].granted.push_back(id); // Q4
            self.wake |= 1 << owner.0;
        }
        None // Q2
    }

    /// The memory of a request in flight, in sector order.
    ///
    /// # Panics
    /// If `tag` is not in flight.
    pub fn segments(&self, tag: Tag) -> impl Iterator<Item = Segment> + '_ {
        assert!(self.is_mine(tag), "tag {} is not in flight", tag.0);
        let mut next = self.requests[self.by_tag[usize::from(tag.0)].0].head;
        core::iter::from_fn(move || {
            let node = self.segments.get(next)?;
            next = node.next;
            let token = self.bios[node.bio].token;
            Some(Segment { token, offset: node.offset * Sector::SIZE, bytes: node.sectors * Sector::SIZE })
        })
    }

    /// The next news of a bio of `context`.
    pub fn poll_finished(&mut self, context: ContextId) -> Option<Finished> {
        self.contexts[usize::from(context.0)].finished.pop_front()
    }

    /// A context, other than the one that runs, that now has something to fetch or room to submit.
    pub fn poll_wake(&mut self) -> Option<ContextId> {
        if self.wake == 0 {
            return None;
        }
        let context = self.wake.trailing_zeros() as u16;
        self.wake &= self.wake - 1;
        Some(ContextId(context))
    }

    /// Whether a request may wait that only a tag is missing for.
    ///
    /// Where tags are [shared](Settings::tags), their owner then asks to be woken when one comes back, and
    /// [`Queue::poll_dispatch`] is to be called once more after that: one may have come back before.
    #[must_use]
    pub const fn lacks_tag(&self) -> bool {
        self.lacks_tag
    }

    /// When to call [`Queue::handle_timeout`] and [`Queue::poll_dispatch`] though nothing else happened.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let overdue = self.dispatched.front().map(|id| self.requests[id].dispatched + self.settings.io_timeout);
        let busy = self.busy_until.filter(|until| *until != Instant::MAX);
        // While no tag is free, or the device is busy, asking the scheduler would change nothing.
        let may_ask = self.busy_until.is_none() && !self.lacks_tag;
        let held = self.scheduler.next_timeout().filter(|_| may_ask);
        [overdue, busy, held, self.flush_due()].into_iter().flatten().min()
    }

    // ---- knobs and counters ----

    /// What the queue was made from; tunables that were changed since are asked from [`Queue::tunable`].
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The present value of a tunable of the scheduler or of the queue ([`flush::Settings::INFO`]).
    #[must_use]
    pub fn tunable(&self, name: &str) -> Option<String> {
        let own = tunable::get(flush::Settings::TUNABLES, &self.settings.flush, name);
        own.or_else(|| self.scheduler.get(name))
    }

    /// Sets a tunable of the scheduler or of the queue; works under load.
    ///
    /// # Errors
    /// There is no such tunable, or the value is malformed or out of range.
    pub fn set_tunable(&mut self, name: &str, value: &str) -> Result<(), tunable::Error> {
        if !flush::Settings::INFO.iter().any(|info| info.name == name) {
            return self.scheduler.set(name, value);
        }
        let mut settings = self.settings.flush.clone();
        tunable::set(flush::Settings::TUNABLES, &mut settings, name, value)?;
        self.set_flush(settings);
        Ok(())
    }

    /// Tells what was counted beside [`Queue::stats`], each by name: `merges`, the bios that joined another's request, and
    /// what the scheduler counts since it was chosen ([`Report::counters`]).
    pub fn counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        let stats = self.stats();
        tell("merges", Op::ALL.iter().map(|op| stats.of(*op).merges).sum());
        self.tell_flushes(tell);
        self.scheduler.counters(tell);
    }

    /// Requests in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// Requests that wait for the device, and who waits for a flush that has not started.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.requests.len() - usize::from(self.in_flight) + self.waiting_to_flush()
    }

    /// Keeps the latest `bound` events from now on; 0 turns tracing off.
    pub fn set_trace(&mut self, bound: usize) {
        self.trace = (bound > 0).then(|| Trace::new(bound));
        self.scheduler.set_tracing(bound > 0);
    }

    /// The oldest message of the scheduler that was kept.
    pub fn poll_message(&mut self) -> Option<Message> {
        self.scheduler.poll_message()
    }

    /// What its scheduler decided about holding the device idle (`slice_idle=auto`) since this was asked last; other messages
    /// that were kept are lost.
    pub fn take_findings(&mut self, tell: &mut dyn FnMut(Finding)) {
        while let Some(message) = self.poll_message() {
            if let Note::Compared(finding) = message.note {
                tell(finding);
            }
        }
    }

    /// The oldest event that was kept.
    pub fn poll_trace(&mut self) -> Option<Event> {
        self.trace.as_mut()?.pop()
    }

    // ---- on the way in ----

    fn check(&self, bio: &Bio) -> Result<(), Refused> {
        let Limits { capacity, block, .. } = self.settings.limits;
        let extent = bio.extent;
        if bio.op == Op::Flush {
            return Ok(());
        }
        if extent.sectors == 0 {
            return Err(Refused::Empty);
        }
        if extent.start.0.checked_add(extent.sectors).is_none_or(|end| end > capacity) {
            return Err(Refused::BeyondEnd { extent, capacity });
        }
        if !self.settings.limits.aligned(extent) {
            return Err(Refused::Unaligned { extent, block });
        }
        if self.settings.limits.max(bio.op) == 0 {
            return Err(Refused::Unsupported(bio.op));
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.requests.len() - self.flushes.rows < self.settings.nr_requests as usize && !self.segments.is_full()
    }

    /// Makes requests of `whole`, which starts `offset` sectors into its bio; keeps the rest if there are too few.
    fn cut(&mut self, now: Instant, whole: Waiting, context: ContextId, bio: u32, mut offset: u64) {
        let mut left = whole.extent;
        while left.sectors > 0 {
            if !self.has_room() {
                self.bios[bio].remaining += 1; // so that it does not end before its rest
                self.rest = Some((bio, Waiting { extent: left, ..whole }));
                return;
            }
            let sectors = self.settings.limits.first_cut(whole.op, left);
            let piece = Waiting { extent: Extent::new(left.start, sectors), ..whole };
            if sectors < left.sectors {
                self.note(now, Action::Split, whole.op, left, whole.stream, whole.group);
            }
            if !self.merge_into_plug(now, &piece, context, bio, offset) {
                self.note(now, Action::Got, whole.op, piece.extent, whole.stream, whole.group);
                let id = self.new_request(&piece, context, bio, offset);
                self.plug.push(id);
            }
            offset += sectors;
            left = Extent::new(piece.extent.end(), left.sectors - sectors);
        }
    }

    fn new_segment(&mut self, bio: u32, offset: u64, sectors: u64) -> u32 {
        self.bios[bio].remaining += 1;
        self.segments.insert(SegmentNode { bio, offset, sectors, next: NIL })
    }

    fn new_request(&mut self, waiting: &Waiting, context: ContextId, bio: u32, offset: u64) -> RequestId {
        let segment = self.new_segment(bio, offset, waiting.extent.sectors);
        let id = RequestId(self.requests.next());
        self.requests.insert(Request {
            waiting: Waiting { id, ..*waiting },
            context,
            step: Step::Waiting,
            dispatched: Instant::ZERO,
            head: segment,
            tail: segment,
            segments: 1,
            generation: 0,
            links: Links::NONE,
        });
        id
    }

    /// Joins a piece of a bio to the request plugged last, if they touch.
    fn merge_into_plug(&mut self, now: Instant, piece: &Waiting, context: ContextId, bio: u32, offset: u64) -> bool {
        let Some(id) = self.plug.last() else { return false };
        let last = &self.requests[id.0];
        let side = if last.waiting.extent.end() == piece.extent.start {
            Side::Back
        } else if piece.extent.end() == last.waiting.extent.start {
            Side::Front
        } else {
            return false;
        };
        if last.waiting.stream != piece.stream || !self.may_merge(last, piece, context, 1) {
            return false;
        }
        let id = *id;
        let segment = self.new_segment(bio, offset, piece.extent.sectors);
        self.join(now, id, piece, side, (segment, segment, 1));
        true
    }

    /// Whether `piece`, of so many segments, may become part of `request` (Q4 and the limits).
    fn may_merge(&self, request: &Request, piece: &Waiting, context: ContextId, segments: u32) -> bool {
        let kept = &request.waiting;
        let whole = Extent::new(kept.extent.start.min(piece.extent.start), kept.extent.sectors + piece.extent.sectors);
        !self.settings.nomerges
            && kept.op == piece.op
            && kept.flags == piece.flags
            && kept.group == piece.group
            && kept.priority == piece.priority
            && request.context == context
            && self.settings.limits.allow(kept.op, whole, request.segments + segments)
    }

    /// Makes a list of segments, and the extent they cover, part of a request.
    fn join(&mut self, now: Instant, id: RequestId, piece: &Waiting, side: Side, (head, tail, count): (u32, u32, u32)) {
        let request = &mut self.requests[id.0];
        let action = match side {
            Side::Back => {
                self.segments[request.tail].next = head;
                request.tail = tail;
                Action::BackMerged
            }
            Side::Front => {
                self.segments[tail].next = request.head;
                request.head = head;
                request.waiting.extent.start = piece.extent.start;
                Action::FrontMerged
            }
        };
        request.segments += count;
        request.waiting.extent.sectors += piece.extent.sectors;
        self.streams[piece.stream.0 as usize].stats.merged(piece.op);
        self.note(now, action, piece.op, piece.extent, piece.stream, piece.group);
    }

    /// Gives the batch to the scheduler, merging on the way.
    fn unplug(&mut self, now: Instant) {
        if self.plug.is_empty() {
            return;
        }
        for index in 0..self.plug.len() {
            let id = self.plug[index];
            let request = &self.requests[id.0];
            let waiting = request.waiting;
            let candidate = if self.settings.nomerges { None } else { self.scheduler.merge_candidate(&waiting) };
            if let Some((kept, side)) = candidate
                && self.may_merge(&self.requests[kept.0], &waiting, request.context, request.segments)
            {
                self.absorb(now, kept, id, side);
                let waiting = self.requests[kept.0].waiting;
                self.scheduler.grown(&waiting, side);
                self.close_gap(now, kept);
            } else {
                self.note(now, Action::Inserted, waiting.op, waiting.extent, waiting.stream, waiting.group);
                self.scheduler.insert(now, &waiting);
            }
        }
        self.plug.clear();
    }

    /// After a back merge: the request may now touch the one behind it.
    fn close_gap(&mut self, now: Instant, kept: RequestId) {
        let waiting = self.requests[kept.0].waiting;
        let Some(gone) = self.scheduler.neighbour_after(&waiting) else { return };
        let behind = &self.requests[gone.0];
        if self.may_merge(&self.requests[kept.0], &behind.waiting, behind.context, behind.segments) {
            self.absorb(now, kept, gone, Side::Back);
            let waiting = self.requests[kept.0].waiting;
            self.scheduler.absorbed(&waiting, gone);
        }
    }

    /// Makes a request part of another.
    fn absorb(&mut self, now: Instant, kept: RequestId, gone: RequestId, side: Side) {
        let gone = self.requests.remove(gone.0);
        self.join(now, kept, &gone.waiting, side, (gone.head, gone.tail, gone.segments));
    }

    #[inline]
    fn note(&mut self, at: Instant, action: Action, op: Op, extent: Extent, stream: StreamId, group: GroupId) {
        if let Some(trace) = &mut self.trace {
            trace.push(Event { at, action, op, extent, stream, group });
        }
    }
}
