//! The flushes of a queue: its backings, the waiters for each, and counts. The rules are those of
//! [`flush_sequence`](super::flush_sequence), by which the queue asks it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::flush_sequence::Stage;
use super::groups::Groups;
use super::settings::Backing;
use super::switch::Present;
use super::{BioState, Patience, Request, RequestId, Requests, Settings};
use crate::flush::{self, Contexts, Counts, Dirty, Flush, Round, SharedFlush, Start};
use crate::group::{ContextId, GroupId};
use crate::table::Table;
use crate::{Duration, Errno, Flags, Instant, Op, Outcome, Sector};

#[derive(Clone, Copy)]
struct Waiter {
    round: Round,
    bio: u32,
    arrived: Instant,
}

/// A backing, and the bios that wait for it to be flushed.
struct Cache {
    start: Sector,
    volatile: bool,
    fua: bool,
    flush: Holder,
    dirty: Arc<Dirty>,
    /// In the order in which they asked, and so by round.
    waiters: VecDeque<Waiter>,
    /// The groups of the bios that wait for one that has not started; perhaps more (sequence.5).
    askers: Vec<GroupId>,
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
    fn new(backing: &Backing, settings: &flush::Settings) -> Self {
        let mut flush = match &backing.flush {
            Some(share) => Holder::Shared(Arc::clone(share)),
            None => Holder::Own(Box::new(Flush::new(settings.clone(), backing.volatile_cache))),
        };
        let dirty = flush.with(|flush| {
            flush.set(settings.clone()); // A shared one has those of the queue that had it before, or of none.
            Arc::clone(flush.dirty())
        });
        Self {
            start: backing.start,
            volatile: backing.volatile_cache,
            fua: backing.fua,
            dirty,
            flush,
            waiters: VecDeque::new(),
            askers: Vec::new(),
            sharing: 0,
            ready: false,
            due: None,
        }
    }

    /// When the first of the waiters has waited too long: since the flush began that it shares, or since it asked (sequence.3).
    fn late_at(&self, since: Option<Instant>, patience: Patience) -> Option<Instant> {
        let first = self.waiters.front()?;
        Some(patience.late_at(since.filter(|_| self.sharing > 0).unwrap_or(first.arrived)))
    }
}

/// The flushes of all backings.
pub struct Flushes {
    /// The backings, by rising start.
    caches: Vec<Cache>,
    /// Flushes that pass the scheduler by and are next: those that are not coordinated, and those that were requeued.
    pub(super) again: VecDeque<RequestId>,
    /// All that wait.
    waiters: usize,
    /// Bios whose flush has ended, how, and that are to be told: empty between calls.
    pub(super) ended: VecDeque<(u32, Outcome)>,
    /// Which backing comes first when several want to flush.
    next_backing: usize,
    /// Up to when device time has been charged (sequence.4).
    charged: Instant,
    /// How many of each group share a flush: zeroes between calls.
    sharers: Vec<u32>,
    counts: Counts,
}

impl Flushes {
    /// None yet, with room for as many waiters as a cache has ([`Flushes::ask`]).
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            caches: settings.backings.iter().map(|backing| Cache::new(backing, &settings.flush)).collect(),
            again: VecDeque::with_capacity(16),
            waiters: 0,
            ended: VecDeque::with_capacity(128),
            next_backing: 0,
            charged: Instant::ZERO,
            sharers: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// The backing that a place on the disk belongs to.
    #[inline]
    pub(super) fn backing_of(&self, at: Sector) -> usize {
        match self.caches.len() {
            1 => 0,
            _ => self.caches.partition_point(|cache| cache.start <= at).saturating_sub(1),
        }
    }

    fn cache_mut(&mut self, at: Sector) -> &mut Cache {
        let index = self.backing_of(at);
        &mut self.caches[index]
    }

    /// Which steps a bio goes through, and the flags that its requests have (sequence.2).
    pub(super) fn steps_of(&self, op: Op, flags: Flags, at: Sector) -> (Stage, Flags) {
        if op == Op::Flush {
            return (Stage::Postflush, flags);
        }
        let cache = &self.caches[self.backing_of(at)];
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

    /// A bio of a group waits for a flush of the backing at `at`.
    pub(super) fn ask(&mut self, now: Instant, at: Sector, bio: u32, context: ContextId, group: GroupId) {
        let cache = self.cache_mut(at);
        let round = cache.flush.with(|flush| flush.ask(now, context));
        if cache.waiters.capacity() == 0 {
            // Most caches are never flushed, and one that is needs room for more than the first.
            cache.waiters.reserve(64);
            cache.askers.reserve(8);
        }
        cache.waiters.push_back(Waiter { round, bio, arrived: now });
        if !cache.askers.contains(&group) {
            cache.askers.push(group);
        }
        self.waiters += 1;
        self.counts.requested += 1;
    }

    /// A group is gone, of which nothing waits: no scheduler is asked about it (sequence.5).
    pub(super) fn remove_group(&mut self, id: GroupId) {
        self.caches.iter_mut().for_each(|cache| cache.askers.retain(|asker| *asker != id));
    }

    #[inline]
    pub(super) const fn are_awaited(&self) -> bool {
        self.waiters > 0
    }

    /// Whether a flush may be the next request. A plain read asks nothing else of this file.
    #[inline]
    pub(super) fn may_be_next(&self) -> bool {
        self.are_awaited() || !self.again.is_empty()
    }

    /// How many wait for a flush that has not started.
    pub(super) fn waiting(&self) -> usize {
        if !self.are_awaited() {
            return 0;
        }
        self.caches.iter().map(|cache| cache.waiters.len() - cache.sharing).sum()
    }

    pub(super) fn backings(&self) -> usize {
        self.caches.len()
    }

    /// Takes in which flushes of a backing have ended, and whether one is to start: contexts that are to look too. The bios that
    /// have waited for it are [told](Self::ended) next.
    pub(super) fn look(
        &mut self,
        now: Instant,
        index: usize,
        settings: &flush::Settings,
        scheduler: &mut Present,
        patience: Patience,
    ) -> Contexts {
        let cache = &mut self.caches[index];
        let Cache { flush, waiters, askers, sharing, ready, .. } = cache;
        if waiters.is_empty() {
            *ready = false; // They may all have been told that it took too long since it was found to be.
            return Contexts::default();
        }
        let quarter = patience.quarter();
        let ended = &mut self.ended;
        let (start, since) = flush.with(|flush| {
            let mut start = flush.poll_start(now);
            // sequence.5
            if matches!(start, Start::Now | Start::At(_))
                && settings.charge
                && !askers.is_empty()
                && let Some(first) = waiters.get(waiters.partition_point(|waiter| flush.has_started(waiter.round)))
                && now < first.arrived + quarter
                && askers.iter().all(|group| scheduler.is_ahead(now, *group))
            {
                flush.hold(now);
                start = Start::At(first.arrived + quarter);
            }
            while let Some(waiter) = waiters.front()
                && let Some(outcome) = flush.take(waiter.round)
            {
                ended.push_back((waiter.bio, outcome));
                waiters.pop_front();
            }
            *sharing = waiters.partition_point(|waiter| flush.has_started(waiter.round));
            (start, flush.running_since())
        });
        // If only others wait, they were told, and one of them starts it.
        *ready = start == Start::Now && !waiters.is_empty();
        let late = cache.late_at(since, patience);
        cache.due = match start {
            Start::At(at) => late.map(|late| late.min(at)),
            _ => late,
        };
        self.waiters -= self.ended.len();
        self.spared(start)
    }

    /// The contexts of those that wait for a flush that was not needed.
    const fn spared(&mut self, start: Start) -> Contexts {
        match start {
            Start::Spared(contexts) => {
                self.counts.spared += 1;
                contexts
            }
            Start::No | Start::Now | Start::At(_) => Contexts(0),
        }
    }

    /// Takes out those that have waited too long (sequence.3).
    pub(super) fn give_up(&mut self, now: Instant, patience: Patience) {
        if !self.are_awaited() {
            return;
        }
        for cache in &mut self.caches {
            let since = cache.flush.with(|flush| flush.running_since());
            while cache.late_at(since, patience).is_some_and(|late| late <= now)
                && let Some(first) = cache.waiters.pop_front()
            {
                cache.sharing = cache.sharing.saturating_sub(1);
                cache.flush.with(|flush| flush.cancel(first.round));
                self.ended.push_back((first.bio, Outcome::Failed(Errno::ETIMEDOUT)));
            }
            cache.due = cache.late_at(since, patience);
        }
        self.waiters -= self.ended.len();
    }

    pub(super) fn are_ready(&self) -> bool {
        self.caches.iter().any(|cache| cache.ready)
    }

    /// The backing that is next after `step` others, if a flush of it is to start; [`Flushes::start`] follows.
    pub(super) fn take_ready(&mut self, step: usize) -> Option<usize> {
        let index = (self.next_backing + step) % self.caches.len();
        core::mem::take(&mut self.caches[index].ready).then_some(index)
    }

    /// Starts a flush of a backing, for the device: where it begins, and a bio that waits for it, of this context if there is one.
    /// Or the contexts that are to look: it was started, or is not to start, for another queue.
    pub(super) fn start(
        &mut self,
        now: Instant,
        index: usize,
        context: ContextId,
        bios: &Table<BioState>,
        patience: Patience,
    ) -> Result<(Sector, u32), Contexts> {
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
            return Err(self.spared(start)); // another queue was faster
        }
        cache.sharing = cache.waiters.len();
        cache.askers.clear();
        cache.due = cache.late_at(Some(now), patience);
        let mut waiters = cache.waiters.iter().map(|waiter| waiter.bio);
        let first = waiters.clone().next().expect("whoever finds that a flush is to start waits for it");
        let bio = waiters.find(|bio| bios[*bio].context == context).unwrap_or(first);
        self.counts.sent += 1;
        self.counts.waits += waited;
        self.next_backing = index + 1;
        Ok((cache.start, bio))
    }

    /// The device has answered a flush that several may share: the contexts that are to look.
    pub(super) fn end(&mut self, now: Instant, at: Sector, outcome: Outcome) -> Contexts {
        self.counts.failed += u64::from(outcome != Outcome::Done);
        self.cache_mut(at).flush.with(|flush| flush.end(now, outcome))
    }

    /// The device has answered a flush that was one bio's alone: how it ended for it.
    pub(super) fn end_alone(&mut self, at: Sector, outcome: Outcome) -> Outcome {
        self.cache_mut(at).flush.with(|flush| flush.ended_alone(outcome))
    }

    /// A write, discard or write of zeroes has ended in the device; if it was to be durable at once, whether no other has since then.
    pub(super) fn wrote(&self, at: Sector, flags: Flags, outcome: Outcome) -> bool {
        let dirty = &self.caches[self.backing_of(at)].dirty;
        let alone = !flags.contains(Flags::AHEAD) || !dirty.is_marked();
        if !flags.intersects(Flags::FUA | Flags::AHEAD) || outcome != Outcome::Done {
            dirty.mark();
        }
        alone
    }

    /// A write goes to the device, of the only bio that there is: whether it is made durable at once (sequence.6).
    #[inline(never)]
    pub(super) fn goes_ahead(
        &mut self,
        settings: &flush::Settings,
        requests: &mut Requests,
        groups: &Groups,
        id: RequestId,
    ) -> bool {
        let Request { waiting, first, .. } = requests[id.0];
        let BioState { bio, stage, .. } = &requests.bios[first.bio];
        let is_wanted = settings.ahead && settings.coordinate && groups.stream(bio.stream).habit.is_followed();
        let is_all_of_it = bio.extent.sectors == waiting.extent.sectors && *stage == Stage::Data { durable: false };
        if !is_wanted || !is_all_of_it || waiting.flags.contains(Flags::FUA) {
            return false;
        }
        let cache = self.cache_mut(waiting.extent.start);
        let may = cache.volatile && cache.fua && !cache.dirty.is_marked() && cache.flush.with(Flush::begin_ahead);
        if may {
            requests[id.0].waiting.flags |= Flags::AHEAD;
        }
        may
    }

    /// That write is in the device no more: the contexts that are to look.
    pub(super) fn end_ahead(&mut self, at: Sector, outcome: Outcome, alone: bool) -> Contexts {
        self.cache_mut(at).flush.with(|flush| flush.end_ahead(outcome, alone))
    }

    /// When a flush takes too long, or is to start (sequence.3).
    pub(super) fn due(&self) -> Option<Instant> {
        if !self.are_awaited() {
            return None;
        }
        self.caches.iter().filter(|cache| !cache.waiters.is_empty()).filter_map(|cache| cache.due).min()
    }

    /// Device time that was not charged yet, of a flush that was dispatched then and ends now (sequence.4).
    pub(super) fn device_time(&mut self, now: Instant, dispatched: Instant) -> Duration {
        let time = now.since(dispatched.max(self.charged));
        self.charged = now;
        time
    }

    /// Charges the bios that share the flush that has just ended (sequence.4).
    pub(super) fn charge(
        &mut self,
        now: Instant,
        at: Sector,
        time: Duration,
        bios: &Table<BioState>,
        groups: &mut Groups,
        scheduler: &mut Present,
    ) {
        let (index, sharers) = (self.backing_of(at), &mut self.sharers);
        let cache = &self.caches[index];
        let stream = |waiter: &Waiter| bios[waiter.bio].bio.stream;
        let group = |groups: &Groups, waiter: &Waiter| groups.stream(stream(waiter)).stream.group;
        let mut count: u64 = 0;
        for waiter in cache.waiters.iter().take(cache.sharing) {
            let group = usize::from(group(groups, waiter).0);
            sharers.resize(sharers.len().max(group + 1), 0);
            count += u64::from(sharers[group] == 0);
            sharers[group] += 1;
        }
        for waiter in cache.waiters.iter().take(cache.sharing) {
            let (stream, group) = (stream(waiter), group(groups, waiter));
            let part = Duration::from_nanos(time.as_nanos() / count / u64::from(sharers[usize::from(group.0)]));
            scheduler.charge(now, stream, group, part);
            let stats = &mut groups.stream_mut(stream).stats;
            stats.flushed = stats.flushed + part;
        }
        for waiter in cache.waiters.iter().take(cache.sharing) {
            sharers[usize::from(group(groups, waiter).0)] = 0;
        }
    }

    // ---- knobs and counters ----

    /// Tells what was counted, if any was asked for.
    pub(super) fn tell(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        let Counts { requested, sent, failed, spared, waits } = self.counts;
        if requested > 0 {
            let all = [
                ("flushes_asked", requested),
                ("flushes_sent", sent),
                ("flushes_failed", failed),
                ("flushes_spared", spared),
                ("flush_waits", waits),
            ];
            all.iter().for_each(|(name, count)| tell(name, *count));
        }
    }

    pub(super) fn set(&mut self, settings: &flush::Settings) {
        for cache in &mut self.caches {
            cache.flush.with(|flush| flush.set(settings.clone()));
        }
    }

    /// # Panics
    /// If a backing starts there already.
    pub(super) fn add(&mut self, backing: &Backing, settings: &flush::Settings) {
        let at = self.caches.partition_point(|cache| cache.start < backing.start);
        assert!(self.caches.get(at).is_none_or(|next| next.start != backing.start), "a backing is added twice");
        self.caches.insert(at, Cache::new(backing, settings));
    }

    /// Takes a backing from the disk; works under load.
    ///
    /// # Panics
    /// If no backing starts there, or a bio waits for a flush of it. No other bio of it may be under way either.
    pub fn remove(&mut self, start: Sector) {
        let at = self.caches.iter().position(|cache| cache.start == start).expect("a backing that is removed is there");
        assert!(self.caches.remove(at).waiters.is_empty(), "a backing is removed while somebody waits for its flush");
    }

    /// The error of a failed flush of the backing at `at` that is not acknowledged: its flushes go on failing.
    pub fn error(&mut self, at: Sector) -> Option<Errno> {
        self.cache_mut(at).flush.with(|flush| flush.lost())
    }

    /// The operator acknowledges that data written to the backing at `at` may be lost: its flushes succeed again.
    pub fn acknowledge(&mut self, at: Sector) {
        self.cache_mut(at).flush.with(Flush::acknowledge);
    }
}
