//! The clients of a queue: streams, and the groups that they share by.
//!
//! queue.8  A request that waits is its stream's: when the stream changes group or priority, all of it that waits goes along,
//!     wherever it waits, and its bios in requests of other streams stay with those.
//! queue.9  A request in flight ends in the group and with the priority with which it was dispatched. If the device turns it
//!     back, it waits as its stream is now: the scheduler hears of an end and of a new request, and not of a requeue.
//! queue.10  A request that ended before a move counts for the old group, one that ends after it for the new.
//! queue.11  A group goes when no stream and no group is in it. No stream can enter it from then on; the scheduler hears of it, and
//!     its number comes back, when the last of its requests in flight has ended and those below it have gone.
//!
//! Nothing here is on the way of a request, so what is looked for is looked for: in the table of requests, by stream.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use slab::Slab;

use super::flush_sequence::Habit;
use super::{BioState, Finished, Queue, Request, State};
use crate::cost_model::Model;
use crate::group::{Group, GroupId, Stream, StreamId, Weight};
use crate::list::NIL;
use crate::sched::{RequestId, Waiting};
use crate::stats::Stats;
use crate::waits::{Clock, Part, Share, Stamp};
use crate::{Bio, Duration, Flags, Instant, Op, Outcome, Sector};

/// A stream, as the queue knows it.
pub struct StreamState {
    pub(super) stream: Stream,
    /// Its counters in its present group.
    pub(super) stats: Stats,
    /// Its counters in groups that it has left, for which it counts there (queue.10).
    before: Option<Box<Stats>>,
    /// Where the last bio of data ended.
    after: Sector,
    /// Bios that have not ended; the most there were since somebody looked, and since when that counts.
    pub(super) open: u32,
    most: u32,
    looked: Instant,
    /// Whether it flushes after each write (sequence.6).
    pub(super) habit: Habit,
    /// While it is in the root: its clock (waits.4).
    pub(super) share: Share,
    /// Since when it has bios that have not ended.
    open_since: Instant,
    /// Up to when it counts as active.
    counted: Instant,
    /// Bios that wait outside, by operation, and when they were asked for, added up; they count as open.
    pub(super) outside: [(u32, u64); Op::COUNT],
}

impl StreamState {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            stats: Stats::default(),
            before: None,
            after: Sector(0),
            open: 0,
            most: 0,
            looked: Instant::ZERO,
            habit: Habit::default(),
            share: Share::default(),
            open_since: Instant::ZERO,
            counted: Instant::ZERO,
            outside: [(0, 0); Op::COUNT],
        }
    }

    /// Its definition.
    #[must_use]
    pub const fn stream(&self) -> Stream {
        self.stream
    }

    /// Its counters over all groups that it was in.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut sum = self.stats.clone();
        if let Some(before) = &self.before {
            sum.add(before);
        }
        sum
    }

    /// A bio has come that was asked for then.
    #[inline]
    pub(super) fn opened(&mut self, arrived: Instant) {
        if self.open == 0 {
            self.open_since = arrived.max(self.counted); // what was active before counts once
            if self.most == 0 {
                self.looked = self.open_since;
            }
        }
        self.open += 1;
        self.most = self.most.max(self.open);
    }

    /// A bio has come that was asked for at `arrived` and has waited for `part`.
    #[inline]
    pub(super) fn came(&mut self, now: Instant, arrived: Instant, part: Part, op: Op) {
        self.opened(arrived);
        if arrived < now {
            self.stats.times_mut(op).spend(part, now.since(arrived));
        }
    }

    #[inline]
    pub(super) fn closed(&mut self, now: Instant) {
        self.open -= 1;
        if self.open == 0 {
            self.count_active(now);
        }
    }

    /// The time that it was active up to now counts for the group it is in.
    #[inline(never)]
    pub(super) fn count_active(&mut self, now: Instant) {
        self.stats.active = self.stats.active + now.since(self.open_since);
        self.counted = now.max(self.open_since); // a worker's clock may be a little behind that of who looked
        self.open_since = self.counted;
    }

    /// A view asks: the most that it could have had outstanding since the view before (waits.5).
    pub(super) fn look(&mut self, now: Instant) {
        if self.open > 0 {
            self.count_active(now);
        }
        let most = core::mem::replace(&mut self.most, self.open);
        let could = Duration::from_nanos(now.since(self.looked).as_nanos().saturating_mul(most.into()));
        self.stats.could = self.stats.could + could;
        self.looked = now;
    }

    /// A bio of it has ended: the news.
    #[inline(always)]
    pub(super) fn ended(&mut self, now: Instant, bio: &BioState) -> Finished {
        let BioState { bio: Bio { op, flags, extent, token, .. }, arrived, outcome, timed_out, .. } = *bio;
        self.closed(now);
        if timed_out {
            return Finished::Released(token);
        }
        self.stats.ended(op, extent.bytes(), outcome, now.since(arrived));
        // A read that memory answers is at no place of the disk's.
        if flags.intersects(Flags::CACHED.with(Flags::MISSED)) && self.passed_memory(bio) {
            return Finished::Done(token, outcome);
        }
        if op.has_payload() {
            if extent.start.0.abs_diff(self.after.0) <= Model::FAR {
                self.stats.of_mut(op).near += 1;
            }
            self.after = Sector(extent.start.0 + extent.sectors);
        }
        Finished::Done(token, outcome)
    }

    /// Counts a read that passed through memory above the disk. Answers whether memory had all of it (queue.19).
    #[inline(never)]
    fn passed_memory(&mut self, bio: &BioState) -> bool {
        let BioState { bio: Bio { op, extent, .. }, outcome, missed, .. } = *bio;
        if op != Op::Read || outcome != Outcome::Done {
            return false; // the same bits mean something else there
        }
        self.stats.passed_cache(extent.bytes(), !missed);
        !missed
    }
}

pub(super) struct GroupState {
    group: Group,
    /// The counters of streams that were removed from it or have moved away.
    pub(super) retired: Stats,
    /// It was removed, and waits for its last requests (queue.11).
    is_leaving: bool,
}

/// The groups of a queue, the streams in them, and the clocks of their service.
#[derive(Default)]
pub struct Groups {
    pub(super) streams: Slab<StreamState>,
    pub(super) states: Vec<Option<GroupState>>,
    pub(super) clock: Clock,
    /// The clocks of the groups, by their numbers.
    pub(super) shares: Vec<Share>,
    /// Those that were removed and wait for their last requests, in that order: what is below another comes before it.
    leaving: Vec<GroupId>,
    /// The counters of groups that were removed.
    gone: Stats,
    moves: u64,
}

impl Groups {
    /// The groups a queue begins with: the root, and parents before children.
    pub(super) fn new(groups: &[Group]) -> Self {
        let mut all = Self::default();
        assert!(groups.first().is_some_and(|root| root.parent.is_none()), "the root group is always there, and first");
        for (id, group) in groups.iter().enumerate() {
            all.add(GroupId(u16::try_from(id).expect("there are at most 65,536 groups")), group.clone());
        }
        all
    }

    fn add(&mut self, id: GroupId, group: Group) {
        match group.parent {
            Some(parent) => assert!(self.get(parent).is_some(), "{} has no parent {parent:?}", group.path),
            None => assert!(self.states.is_empty(), "{} has no parent, and is not the root", group.path),
        }
        let at = usize::from(id.0);
        self.states.resize_with(self.states.len().max(at + 1), || None);
        self.shares.resize(self.shares.len().max(at + 1), Share::default());
        self.shares[at] = Share::default();
        let state = GroupState { group, retired: Stats::default(), is_leaving: false };
        assert!(self.states[at].replace(state).is_none(), "{id:?} is taken");
    }

    /// Those that there are, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.all().filter(|(_, state)| !state.is_leaving).map(|(id, state)| (id, &state.group))
    }

    /// Whether a group has this number, or had and waits for its last requests (queue.11).
    #[must_use]
    pub fn has(&self, id: GroupId) -> bool {
        self.states.get(usize::from(id.0)).is_some_and(Option::is_some)
    }

    /// The lowest number that no group has ([`Queue::add_group`]); another group may have had it.
    ///
    /// # Panics
    /// If there are 65,536 groups.
    #[must_use]
    pub fn free(&self) -> GroupId {
        let free = self.states.iter().position(Option::is_none).unwrap_or(self.states.len());
        GroupId(u16::try_from(free).expect("there are at most 65,536 groups"))
    }

    /// How often a stream or group went or moved: figures that were told before and after such a change do not go together.
    #[must_use]
    pub const fn moves(&self) -> u64 {
        self.moves
    }

    /// All that there are, those included that leave.
    fn all(&self) -> impl Iterator<Item = (GroupId, &GroupState)> {
        let numbered = self.states.iter().enumerate();
        numbered.filter_map(|(id, state)| Some((GroupId(id as u16), state.as_ref()?)))
    }

    /// A group, which may leave.
    fn state(&self, id: GroupId) -> &GroupState {
        self.states[usize::from(id.0)].as_ref().expect("a group that is named is there")
    }

    pub(super) fn parent(&self, id: GroupId) -> Option<GroupId> {
        self.state(id).group.parent
    }

    /// A group that streams can be in.
    #[must_use]
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.get(id).map(|state| &state.group)
    }

    pub(super) fn get(&self, id: GroupId) -> Option<&GroupState> {
        self.states.get(usize::from(id.0))?.as_ref().filter(|state| !state.is_leaving)
    }

    fn get_mut(&mut self, id: GroupId) -> &mut GroupState {
        let state = self.states.get_mut(usize::from(id.0)).and_then(Option::as_mut);
        state.filter(|state| !state.is_leaving).unwrap_or_else(|| panic!("no group {id:?}"))
    }

    pub(super) fn root(&self) -> &Group {
        &self.state(GroupId::ROOT).group
    }

    /// A request goes to the device: what the clocks show its tenant.
    #[inline(always)]
    pub(super) fn begins(&mut self, now: Instant, request: &Waiting) -> Stamp {
        let Self { clock, streams, .. } = self;
        clock.go_on(now);
        if request.op == Op::Flush {
            clock.flush_begins();
            return Stamp::default();
        }
        clock.begins();
        let of_group = self.shares[usize::from(request.group.0)].begins(clock);
        if request.group != GroupId::ROOT {
            return of_group;
        }
        streams[request.stream.0 as usize].share.begins(clock) // waits.4
    }

    /// A request comes back from the device.
    #[inline(always)]
    pub(super) fn ends(&mut self, now: Instant, request: &Waiting) {
        let Self { clock, streams, .. } = self;
        clock.go_on(now);
        if request.op == Op::Flush {
            return clock.flush_ends();
        }
        clock.ends();
        self.shares[usize::from(request.group.0)].ends(clock);
        if request.group == GroupId::ROOT {
            streams[request.stream.0 as usize].share.ends(clock);
        }
    }

    /// A stream as it is now, and its work.
    ///
    /// # Panics
    /// If it does not exist.
    #[must_use]
    #[inline]
    pub fn stream(&self, id: StreamId) -> &StreamState {
        &self.streams[id.0 as usize]
    }

    /// A stream, to be told what the queue cannot see of its bios.
    ///
    /// # Panics
    /// If it does not exist.
    #[inline]
    pub fn stream_mut(&mut self, id: StreamId) -> &mut StreamState {
        &mut self.streams[id.0 as usize]
    }

    /// All of a bio, as a request that waits.
    #[inline]
    pub(super) fn waiting(&self, bio: &Bio) -> Waiting {
        let Bio { op, flags, extent, stream, .. } = *bio;
        let Stream { group, priority, .. } = self.stream(stream).stream;
        Waiting { id: RequestId(NIL), op, flags, extent, stream, group, priority }
    }

    fn streams_of(&self, id: GroupId) -> impl Iterator<Item = &StreamState> {
        self.streams.iter().map(|(_, state)| state).filter(move |state| state.stream.group == id)
    }

    /// Whether a stream is in a group.
    #[must_use]
    pub fn has_streams(&self, id: GroupId) -> bool {
        self.streams_of(id).next().is_some()
    }

    /// All but the root, those included that leave, each after the one it is in.
    pub(super) fn parents_first(&self) -> Vec<(GroupId, &Group)> {
        let depth = |group: &Group| {
            let up = |at: &GroupId| self.state(*at).group.parent;
            core::iter::successors(group.parent, up).count()
        };
        let mut all: Vec<_> = self.all().skip(1).map(|(id, state)| (id, &state.group)).collect();
        all.sort_by_key(|(_, group)| depth(group));
        all
    }

    /// Whether a group waits for its last requests.
    #[inline]
    pub(super) fn are_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    // ---- what they have done ----

    /// The work of streams in a group, those included that were removed or have moved away (queue.10); groups below it count
    /// for themselves.
    ///
    /// # Panics
    /// If it does not exist.
    #[must_use]
    pub fn stats_of(&self, id: GroupId) -> Stats {
        let state = self.get(id).unwrap_or_else(|| panic!("no group {id:?}"));
        let mut sum = state.retired.clone();
        self.streams_of(id).for_each(|state| sum.add(&state.stats));
        sum
    }

    /// The counters of all.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        self.all_stats().for_each(|stats| sum.add(stats));
        sum
    }

    /// The counters of all groups and streams, present and past.
    pub(super) fn all_stats(&self) -> impl Iterator<Item = &Stats> {
        let retired = self.all().map(|(_, state)| &state.retired);
        let streams = self.streams.iter().map(|(_, state)| &state.stats);
        core::iter::once(&self.gone).chain(retired).chain(streams)
    }
}

/// The clock of a stream's tenant, of those of the groups.
#[inline]
pub(super) fn share<'a>(groups: &'a [Share], state: &'a StreamState) -> &'a Share {
    match state.stream.group {
        GroupId::ROOT => &state.share, // waits.4
        GroupId(group) => &groups[usize::from(group)],
    }
}

/// Why a group was not removed: a stream or a group is in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupInUse {
    /// Its name.
    pub path: String,
    /// How many streams are in it.
    pub streams: usize,
    /// The groups directly below it, by name.
    pub groups: Vec<String>,
}

impl fmt::Display for GroupInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, streams, groups } = self;
        write!(f, "group {path} is not removed: ")?;
        if path == "/" {
            return f.write_str("the root is always there");
        }
        match streams {
            0 => {}
            1 => f.write_str("1 stream is in it")?,
            _ => write!(f, "{streams} streams are in it")?,
        }
        if *streams > 0 && !groups.is_empty() {
            f.write_str(", and ")?;
        }
        match &groups[..] {
            [] => {}
            [one] => write!(f, "{one} is below it")?,
            several => write!(f, "{} are below it", several.join(", "))?,
        }
        f.write_str("; only an empty group can go")
    }
}

impl core::error::Error for GroupInUse {}

impl Queue {
    // ---- streams ----

    /// Adds a stream.
    ///
    /// # Panics
    /// If its group or context does not exist.
    pub fn add_stream(&mut self, stream: Stream) -> StreamId {
        assert!(self.groups.get(stream.group).is_some(), "no group {:?}", stream.group);
        assert!(stream.context.0 < self.settings.contexts, "no context {:?}", stream.context);
        let state = StreamState::new(stream);
        let id = StreamId(self.groups.streams.insert(state) as u32);
        self.scheduler.add_stream(id, &stream);
        id
    }

    /// Puts a stream into another group, gives it another priority, or both; works under load (queue.8 to queue.10).
    ///
    /// # Panics
    /// If the stream or its new group does not exist, or the context is not the one that it has: its requests stay in it.
    pub fn change_stream(&mut self, now: Instant, id: StreamId, stream: Stream) {
        assert!(self.groups.get(stream.group).is_some(), "no group {:?}", stream.group);
        let state = &mut self.groups.streams[id.0 as usize];
        let before = core::mem::replace(&mut state.stream, stream);
        assert!(before.context == stream.context, "{id:?} is of {:?} and stays there", before.context);
        if before == stream {
            return;
        }
        self.groups.moves += 1;
        if before.group != stream.group {
            if state.open > 0 {
                state.count_active(now);
            }
            let done = core::mem::take(&mut state.stats);
            state.before.get_or_insert_default().add(&done);
            self.groups.get_mut(before.group).retired.add(&done); // queue.10
        }
        // Rows that are not in use may be changed too: all of a row is written when it is taken.
        for request in self.requests.rows_mut() {
            if request.state == State::Waiting && request.waiting.stream == id {
                request.follow(&stream);
            }
        }
        for left in self.intake.parked_of(id) {
            (left.group, left.priority) = (stream.group, stream.priority);
        }
        if before.group != stream.group {
            self.ceilings.move_stream(now, id, stream.group);
        }
        self.scheduler.change_stream(now, id, &stream);
    }

    /// Removes a stream; what it did still counts for its groups. The disk may have been held idle for it: contexts are to be asked
    /// for more after it.
    ///
    /// # Panics
    /// If a bio of it has not ended.
    pub fn remove_stream(&mut self, id: StreamId) {
        let state = self.groups.streams.remove(id.0 as usize);
        assert!(state.open == 0, "{id:?} is removed with {} bios open", state.open);
        self.scheduler.remove_stream(id);
        self.groups.moves += 1;
        self.groups.get_mut(state.stream.group).retired.add(&state.stats);
    }

    // ---- groups ----

    /// Adds a group under a number that the caller chose: several queues can so know it by the same one.
    ///
    /// # Panics
    /// If its parent does not exist, or [another group has the number](Groups::has).
    pub fn add_group(&mut self, now: Instant, id: GroupId, group: Group) {
        assert!(group.parent.is_some(), "{} has no parent: the root is there already", group.path);
        self.ceilings.set_group(id, &group);
        self.groups.add(id, group);
        self.scheduler.set_group(now, id, &self.groups.get_mut(id).group);
    }

    /// Gives a group another weight; works under load. The root has no siblings: its weight means nothing.
    ///
    /// # Panics
    /// If the group does not exist.
    pub fn set_weight(&mut self, now: Instant, id: GroupId, weight: Weight) {
        let group = &mut self.groups.get_mut(id).group;
        if core::mem::replace(&mut group.weight, weight) != weight {
            self.ceilings.set_group(id, group);
            self.scheduler.set_group(now, id, group);
        }
    }

    /// Gives a group another weight in the order alone, until it is given [another](Queue::set_weight): what it has of its own weight where
    /// gateways share a pool ([`gateways`](crate::gateways)).
    ///
    /// # Panics
    /// If the group does not exist.
    pub fn weigh(&mut self, now: Instant, id: GroupId, weight: Weight) {
        let group = Group { weight, ..self.groups.get_mut(id).group.clone() };
        self.ceilings.set_group(id, &group);
        self.scheduler.set_group(now, id, &group);
    }

    /// Removes a group that nobody is in (queue.11); what was done in it still counts for the disk.
    ///
    /// # Errors
    /// It is the root, or streams or groups are in it: which.
    ///
    /// # Panics
    /// If it does not exist.
    pub fn remove_group(&mut self, now: Instant, id: GroupId) -> Result<(), GroupInUse> {
        let streams = self.groups.streams_of(id).count();
        let below = self.groups.iter().filter(|(_, group)| group.parent == Some(id));
        let groups: Vec<String> = below.map(|(_, group)| group.path.clone()).collect();
        let state = self.groups.get_mut(id);
        if id == GroupId::ROOT || streams > 0 || !groups.is_empty() {
            return Err(GroupInUse { path: state.group.path.clone(), streams, groups });
        }
        state.is_leaving = true;
        self.groups.leaving.push(id);
        self.let_go(now);
        Ok(())
    }

    /// The groups that there are, and the streams in them.
    #[must_use]
    pub const fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The same, for changes and for figures up to now.
    pub const fn groups_mut(&mut self) -> &mut Groups {
        &mut self.groups
    }

    /// Groups that were removed go if nothing of theirs is in flight any more (queue.11).
    #[cold]
    pub(super) fn let_go(&mut self, now: Instant) {
        let mut index = 0;
        while let Some(&id) = self.groups.leaving.get(index) {
            let mut in_flight = self.device.tags.owners().map(|id| &self.requests[id.0]);
            let below = self.groups.all().any(|(_, state)| state.group.parent == Some(id));
            if below || in_flight.any(|request| request.waiting.group == id) {
                index += 1;
                continue;
            }
            self.groups.leaving.remove(index);
            self.groups.moves += 1;
            let state = self.groups.states[usize::from(id.0)].take().expect("a group leaves once");
            while self.groups.states.pop_if(|last| last.is_none()).is_some() {}
            self.groups.gone.add(&state.retired);
            self.ceilings.remove_group(now, id);
            self.promises.remove_group(id);
            self.flushes.remove_group(id);
            self.scheduler.remove_group(now, id);
        }
    }
}

impl Request {
    /// Makes it a request of the stream as it is now.
    pub(super) fn follow(&mut self, stream: &Stream) {
        let Stream { group, priority, .. } = *stream;
        (self.waiting.group, self.waiting.priority) = (group, priority);
    }
}
