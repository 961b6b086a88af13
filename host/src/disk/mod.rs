//! Disk: a scheduling domain, and its devices.
//!
//! Ten image files on one SSD share its time, so one scheduler must decide between all their requests: they are one disk. A
//! disk has a linear space of sectors, in which each device has its place, and one or several [queues](queues) for it.
//!
//! disk.1  Each device has a place of its own in the disk's sectors, so that "near" and "sequential" keep their meaning. Between
//!         two places there is a gap, so that no request reaches from one device into the next, and room to grow. A place whose
//!         device is gone is kept until no worker has anything on it.
//! disk.2  A scheduler that decides between workers has one queue for all of them, under one lock that a worker takes once per
//!         batch. `none` decides nothing, so each worker has a queue of its own, and its lock is never contended.
//! disk.3  A flush is shared within a device by all exports, connections and workers that ask for one. Where workers have queues
//!         of their own they share flushes under one lock, which is taken only while a client flushes.
//! disk.4  A disk that no client uses has no queue, and no worker has anything of it: of 10,000 exports that nobody uses little more is
//!         kept than their names. The first stream makes the queues, from the settings and changes until then.

pub(crate) mod blocks;
mod disks;
pub(crate) mod engine;
pub(crate) mod gauge;
mod handed;
mod handover;
mod place;
mod pooled;
mod queue_io;
pub(crate) mod queues;
mod shared_flush;
mod tag_wait;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairlift_core::ceiling::Bounds;
use fairlift_core::learn::concurrency;
use fairlift_core::learn::idling_trial::Finding;
use fairlift_core::model::Character;
use fairlift_core::queue::{Backing, Figures, Kept, Load, Settings};
use fairlift_core::stats::Stats;
use fairlift_core::trace::Item;
use fairlift_core::tunable;
use fairlift_core::waits::Doing;
use fairlift_core::{ContextId, Duration, Errno, Group, GroupId, Instant, Limits, Op, Queue, Sector, Weight};

use crate::Error;
use crate::config;
use crate::device::Device;
use crate::disk::blocks::Blocks;
use crate::disk::gauge::Gauge;
use disks::Bound;
pub(crate) use disks::Disks;
pub(crate) use handed::take;
pub(crate) use handover::Past;
use handover::State;
pub(crate) use place::{Place, Registered};
use place::{limits, put};
use queues::Queues;

/// How many events a queue keeps. Chosen: at a million requests a second, which have five each, 13 ms.
pub(crate) const EVENTS: usize = 1 << 16;

/// A scheduling domain.
pub(crate) struct Disk {
    pub(crate) name: String,
    /// Counts the changes of `state`'s queues and places: odd while the disk is frozen ([`handover`]).
    epoch: AtomicU64,
    state: Mutex<State>,
    /// How much at once is given to those of its files that helpers wait for.
    pub(crate) concurrency: concurrency::Settings,
    /// Counts what the devices do, for a bench.
    pub(crate) gauge: Option<Gauge>,
    /// Its blocks that writes have claimed.
    pub(crate) blocks: Blocks,
}

impl Disk {
    /// Puts `devices` (with their file numbers) on a disk, for a number of contexts.
    pub(crate) fn new(
        settings: &config::Disk,
        devices: &[Registered],
        groups: &[Group],
        contexts: usize,
    ) -> Result<Self, Error> {
        let mut places: Vec<Place> = Vec::new();
        for device in devices {
            let start = places.last().map_or(0, Place::end);
            places.push(Place::new(Sector(start), device)); // disk.1
        }
        let facts = || devices.iter().map(|(device, _)| device.facts());
        let rotational = facts().any(|facts| facts.rotational);
        let plan = Plan {
            settings: settings.clone(),
            character: Character { rotational, volatile_cache: facts().any(|facts| facts.flush) },
            root: groups[0].clone(),
            contexts: contexts as u16,
            needs_helpers: devices.iter().any(|(device, _)| device.facts().needs_helpers),
        };
        plan.check().map_err(|why| Error::Disk { name: settings.name.clone(), why })?;
        let numbered = groups.iter().enumerate().skip(1);
        let groups: Vec<_> = numbered.map(|(id, group)| (GroupId(id as u16), group.clone())).collect();
        Ok(Self {
            name: settings.name.clone(),
            concurrency: settings.concurrency,
            epoch: AtomicU64::new(0),
            state: Mutex::new(State::new(plan, places.into(), groups)),
            gauge: None,
            blocks: Blocks::default(),
        })
    }

    pub(crate) fn rotates(&self) -> bool {
        self.state().plan.character.rotational
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|_: PoisonError<_>| panic!("disk {}: a worker panicked in it", self.name))
    }

    /// The queues that it has now, if a client ever used it (disk.4).
    pub(crate) fn queues(&self) -> Option<Arc<Queues>> {
        self.state().queues.clone()
    }

    /// Looks at one of its queues, and its bounds: how many requests may be in flight, and how many may wait or be in flight. Where it
    /// has none, at the smallest that is set as they will be.
    pub(crate) fn with_queue<R>(&self, look: impl FnOnce(&Queue, (u16, u32)) -> R) -> R {
        let (queues, plan) = {
            let state = self.state();
            (state.queues.clone(), state.plan.clone())
        };
        match queues {
            Some(queues) => {
                let queue = queues.nth(0);
                let bounds = (queue.settings().depth, queue.settings().nr_requests);
                look(&queue, bounds)
            }
            None => look(&plan.least().expect("its scheduler's settings were looked at before"), plan.bounds()),
        }
    }

    fn for_each_queue(&self, act: impl FnMut(MutexGuard<'_, Queue>)) {
        self.queues().iter().flat_map(|queues| queues.each()).for_each(act);
    }

    /// Its devices with a failed flush that is not acknowledged, and the error of each.
    pub(crate) fn flush_errors(&self) -> Vec<(Arc<dyn Device>, Errno)> {
        self.look_at_flush_errors(|_, _| {})
    }

    fn look_at_flush_errors(&self, mut act: impl FnMut(&mut Queue, Sector)) -> Vec<(Arc<dyn Device>, Errno)> {
        let state = self.state();
        let Some(queues) = &state.queues else { return Vec::new() };
        // Queues of several workers share what they remember.
        let mut queue = queues.of(ContextId(0));
        let error = |place: &Place| {
            let failed = (Arc::clone(place.device.as_ref()?), queue.flushes().error(place.start)?);
            act(&mut queue, place.start);
            Some(failed)
        };
        state.places.iter().filter_map(error).collect()
    }

    /// Whether a device may be without what was written and flushed: a sync that succeeds proves nothing after one that failed (flush.7).
    ///
    /// # Errors
    /// It may, and the remedy.
    pub(crate) fn is_flushed(&self, device: &Arc<dyn Device>) -> Result<(), String> {
        match self.flush_errors().iter().find(|(one, _)| Arc::ptr_eq(one, device)) {
            None => Ok(()),
            Some((_, errno)) => {
                let error = io::Error::from_raw_os_error(errno.0);
                Err(format!("a flush of it failed ({error}): fairlift acknowledge, once you know what was lost"))
            }
        }
    }

    /// Takes note of all flush errors: later flushes succeed if the devices say so. Answers which were remembered.
    pub(crate) fn acknowledge_flush_errors(&self) -> Vec<(Arc<dyn Device>, Errno)> {
        self.look_at_flush_errors(|queue, start| queue.flushes().acknowledge(start))
    }

    /// Tells what all its queues counted, those included that are no more: [`fairlift_core::Queue::counters`], once for each.
    pub(crate) fn counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        let state = self.state();
        state.past.counts.iter().for_each(|(name, count)| tell(name, *count));
        state.queues.iter().flat_map(|queues| queues.each()).for_each(|queue| queue.counters(tell));
    }

    /// How it keeps what groups were promised.
    pub(crate) fn kept(&self, now: Instant) -> Kept {
        let mut all = Kept::default();
        self.for_each_queue(|queue| all.add(&queue.kept(now)));
        all
    }

    /// Tells what its schedulers decided since this was asked last: [`fairlift_core::Queue::take_findings`].
    pub(crate) fn take_findings(&self, tell: &mut dyn FnMut(Finding)) {
        self.for_each_queue(|mut queue| queue.take_findings(tell));
    }

    /// Lets each queue keep `bound` items of a trace, including those of running traces if it is 0.
    pub(crate) fn set_trace(&self, bound: usize) {
        self.for_each_queue(|mut queue| {
            if bound == 0 || !queue.trace().is_on() {
                queue.keep_trace(bound);
            }
        });
    }

    /// Takes items of the trace out of its queues, `most` at a time, and reports the number lost since the last call.
    pub(crate) fn take_trace(&self, most: usize, tell: &mut dyn FnMut(Item)) -> u64 {
        let Some(queues) = self.queues() else { return 0 };
        let mut lost = 0;
        for number in 0..queues.count() {
            // Entries added while it is taken are for the next time.
            for _ in 0..EVENTS.div_ceil(most) {
                let mut queue = queues.nth(number);
                let items: Vec<Item> = std::iter::from_fn(|| queue.trace().pop()).take(most).collect();
                lost += queue.trace().take_lost();
                drop(queue);
                let are_more = items.len() == most;
                items.into_iter().for_each(&mut *tell);
                if !are_more {
                    break;
                }
            }
        }
        lost
    }

    /// The counters of each group here, except idle ones.
    pub(crate) fn stats_by_group(&self, now: Instant) -> Vec<(Group, Stats)> {
        let mut figures = self.figures(now);
        let state = self.state();
        let groups = state.all_groups().filter_map(|(id, group)| Some((group.clone(), figures.remove(&id)?.stats)));
        groups.collect()
    }

    /// The service of each group here up to now, except groups without any. A queue is taken for a few streams at a time,
    /// so that a disk with ten thousand tenants is looked at while it is served.
    pub(crate) fn figures(&self, now: Instant) -> BTreeMap<GroupId, Figures> {
        let (mut all, queues) = {
            let state = self.state();
            (state.past.groups.clone(), state.queues.clone())
        };
        if let Some(queues) = &queues {
            let each = (0..queues.count()).flat_map(|number| figures_of(now, || queues.nth(number)));
            each.for_each(|(id, figures)| all.entry(id).or_default().add(&figures));
        }
        let some = |figures: &Figures| figures.open > 0 || Op::ALL.iter().any(|op| figures.stats.of(*op).ops > 0);
        all.retain(|_, figures| some(figures));
        all
    }

    /// The figures of groups here, by their paths: of one that has come again while clients had the old one, both.
    pub(crate) fn figures_by_path(&self, now: Instant) -> BTreeMap<String, Figures> {
        let figures = self.figures(now);
        let state = self.state();
        let mut all = BTreeMap::<String, Figures>::new();
        for (id, group) in state.all_groups() {
            if let Some(figures) = figures.get(&id) {
                all.entry(group.path.clone()).or_default().add(figures);
            }
        }
        all
    }

    /// The weights and bounds of its groups, and what those that have come again had here before.
    pub(crate) fn bound(&self) -> BTreeMap<GroupId, (Weight, Bounds, Option<Figures>)> {
        let state = self.state();
        let bounds = |id| state.bounds.get(&id).map(Bound::bounds).unwrap_or_default();
        let began = |id| state.past.began.get(&id).cloned();
        state.all_groups().map(|(id, group)| (id, (group.weight, bounds(id), began(id)))).collect()
    }

    /// The activity of its queues, added up, and their number.
    pub(crate) fn doing(&self, now: Instant) -> (Doing, u32) {
        let state = self.state();
        let mut all = (state.past.doing, 0);
        let queues = state.queues.iter().flat_map(|queues| queues.each());
        queues.for_each(|mut queue| all = (all.0 + queue.groups_mut().doing(now), all.1 + 1));
        all
    }

    pub(crate) fn places(&self) -> Arc<[Place]> {
        Arc::clone(&self.state().places)
    }

    pub(crate) fn io_timeout(&self) -> Duration {
        self.state().plan.io_timeout()
    }

    pub(crate) fn settings(&self) -> config::Disk {
        self.state().plan.settings.clone()
    }

    // ---- what is on it ----

    pub(crate) fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.places().iter().filter_map(|place| place.device.clone()).collect()
    }

    /// Whether all workers have something of it before a client comes.
    pub(crate) fn is_shared_out(&self) -> bool {
        self.places().iter().filter_map(|place| place.device.as_ref()).any(|device| device.is_remote())
    }

    pub(crate) fn place_of(&self, device: &Arc<dyn Device>) -> Option<Place> {
        self.places().iter().find(|place| place.has(device)).cloned()
    }

    /// Whether no device is on it, and none has been whose last requests are still under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().places.is_empty()
    }

    /// Whether these devices could be put on it, one after the other.
    pub(crate) fn could_take(&self, devices: &[Registered]) -> Result<(), &'static str> {
        let mut places = self.places().to_vec();
        devices.iter().try_for_each(|device| put(&mut places, device).map(|_| ()))
    }

    /// Puts a device on it, and tells where; workers are to be woken then.
    pub(crate) fn add(&self, device: &Registered) -> Result<Sector, &'static str> {
        let mut state = self.state();
        let mut places = state.places.to_vec();
        let index = put(&mut places, device)?;
        let (place, limits) = (places[index].clone(), limits(&places));
        for queues in state.all() {
            for mut queue in queues.each() {
                queue.add_backing(&place.backing(!queues.is_one()), limits);
            }
        }
        state.places = places.into();
        self.moved();
        Ok(place.start)
    }

    /// Takes a device from it, to which nobody gives anything any more; workers are to be woken then. Its place is
    /// [freed](Self::free) when they have let go of it.
    pub(crate) fn remove(&self, device: &Arc<dyn Device>) {
        let mut state = self.state();
        let mut places = state.places.to_vec();
        places.iter_mut().filter(|place| place.has(device)).for_each(|place| place.device = None);
        state.places = places.into();
        self.moved();
    }

    /// Lets another device have a place: no worker has anything on it any more.
    pub(crate) fn free(&self, start: Sector) {
        let mut state = self.state();
        let mut places = state.places.to_vec();
        let place = places.iter_mut().find(|place| place.start == start).expect("a place that is freed is there");
        assert!(place.device.is_none() && !place.is_free, "a place is freed that is in use");
        place.is_free = true;
        state.each().for_each(|mut queue| queue.flushes().remove(start));
        while places.pop_if(|last| last.is_free).is_some() {}
        state.places = places.into();
        self.moved();
    }

    /// The device of a place has grown, for which there is [room](Self::has_room).
    pub(crate) fn grown(&self, device: &Arc<dyn Device>) {
        let mut state = self.state();
        let mut places = state.places.to_vec();
        let place = places.iter_mut().find(|place| place.has(device)).expect("an export that grows is on its disk");
        place.facts = device.facts();
        assert!(place.facts.limits.capacity <= place.room, "it has grown into the next place");
        let limits = limits(&places);
        state.each().for_each(|mut queue| queue.set_limits(limits));
        state.places = places.into();
        self.moved();
    }

    pub(crate) fn has_room(&self, device: &Arc<dyn Device>, bytes: u64) -> bool {
        self.place_of(device).is_some_and(|place| bytes.div_ceil(Sector::SIZE) <= place.room)
    }

    // ---- who shares it ----

    /// Adds a group under a number that [no queue has](Self::has_group).
    pub(crate) fn add_group(&self, now: Instant, id: GroupId, group: &Group) {
        let mut state = self.state();
        state.each().for_each(|mut queue| queue.add_group(now, id, group.clone()));
        if let Some(bound) = state.bounds.get(&id) {
            state.all().for_each(|queues| queues.bind(now, id, bound));
        }
        state.groups.push((id, group.clone()));
        state.past.come(id, group);
    }

    /// Whether a group has this number, or had it and has not quite left.
    pub(crate) fn has_group(&self, id: GroupId) -> bool {
        let state = self.state();
        let is_set = state.groups.iter().any(|(one, _)| *one == id);
        is_set || state.each().any(|queue| queue.groups().has(id))
    }

    pub(crate) fn set_weight(&self, now: Instant, id: GroupId, weight: Weight) {
        let mut state = self.state();
        state.each().for_each(|mut queue| queue.set_weight(now, id, weight));
        if let Some((_, group)) = state.groups.iter_mut().find(|(one, _)| *one == id) {
            group.weight = weight;
        }
    }

    /// Binds a group, or does so no more; one that it does not have yet, once that comes. `goes_on`: its ceiling is another one with the
    /// budget of the one before, and what waits for it may go earlier.
    fn set_bound(&self, now: Instant, id: GroupId, bound: &Bound, goes_on: bool) {
        let mut state = self.state();
        let before = match *bound == Bound::default() {
            true => state.bounds.remove(&id),
            false => state.bounds.insert(id, bound.clone()),
        };
        if before.unwrap_or_default() != *bound {
            state.all().for_each(|queues| queues.bind(now, id, bound));
        }
        if goes_on {
            state.each().for_each(|mut queue| queue.ceilings().look_again(now, id));
        }
    }

    /// Removes a group, unless streams or groups are in it still; whether it went.
    pub(crate) fn remove_group(&self, now: Instant, id: GroupId) -> bool {
        let mut state = self.state();
        let Some(place) = state.groups.iter().position(|(one, _)| *one == id) else { return true };
        let has_groups = state.groups.iter().any(|(_, group)| group.parent == Some(id));
        let has_stragglers = state.before.strong_count() > 0;
        if has_groups || has_stragglers || state.each().any(|queue| queue.groups().has_streams(id)) {
            return false;
        }
        let mut figures = Figures::default();
        for mut queue in state.each() {
            let at = usize::from(id.0);
            let of = queue.groups_mut().figures_of_groups(now, at..at + 1).into_iter().flatten();
            of.for_each(|(_, had)| figures.add(&had));
            queue.remove_group(now, id).expect("nobody is in it");
        }
        let State { groups, past, .. } = &mut *state;
        let (_, group) = groups.remove(place);
        past.leave(id, &group.path, figures);
        // It has come again while clients had the old one.
        if let Some((id, again)) = groups.iter().find(|(_, one)| one.path == group.path) {
            past.come(*id, again);
        }
        true
    }

    // ---- what can be turned ----

    /// How many requests its devices have, and how many wait for them.
    pub(crate) fn load(&self) -> (u32, u32) {
        let mut all = (0, 0);
        self.for_each_queue(|queue| {
            let Load { in_flight, waiting, .. } = queue.load();
            all = (all.0 + u32::from(in_flight), all.1 + waiting as u32);
        });
        all
    }
}

/// How many streams or groups of a queue are looked at while it is locked. Chosen: what is copied is 4 KiB for each.
const LOOK: usize = 32;

/// How often figures are collected anew because a stream went meanwhile, so that its figures would be missing or count twice.
const LOOKS: usize = 4;

/// The service of each group through a queue.
fn figures_of<'a>(now: Instant, queue: impl Fn() -> MutexGuard<'a, Queue>) -> Vec<(GroupId, Figures)> {
    for _ in 1..LOOKS {
        let before = queue().groups().moves();
        let all = collect_figures(now, &queue);
        if queue().groups().moves() == before {
            return all;
        }
    }
    collect_figures(now, &queue)
}

fn collect_figures<'a>(now: Instant, queue: &impl Fn() -> MutexGuard<'a, Queue>) -> Vec<(GroupId, Figures)> {
    let mut all = queue().figures_of_requests(now);
    let ranges = || (0..).step_by(LOOK).map(|from| from..from + LOOK);
    all.extend(ranges().map_while(|range| queue().groups_mut().figures_of_streams(now, range)).flatten());
    all.extend(ranges().map_while(|range| queue().groups_mut().figures_of_groups(now, range)).flatten());
    all
}

/// The settings of a disk's queues, beside its places and groups.
#[derive(Clone)]
struct Plan {
    /// As it was configured, and changed since.
    settings: config::Disk,
    character: Character,
    root: Group,
    contexts: u16,
    needs_helpers: bool,
}

impl Plan {
    /// How many requests may be in flight, and how many wait or be in flight.
    fn bounds(&self) -> (u16, u32) {
        let config::Disk { scheduler, depth, nr_requests, concurrency, .. } = &self.settings;
        // Requests that wait for helpers are out of the scheduler's hands: few more than helpers take at once. As many as ever may wait
        // in the scheduler.
        let few = self.needs_helpers.then(|| concurrency.most.saturating_mul(2));
        let usual = scheduler.nr_requests(depth.unwrap_or(Settings::DEPTH));
        let depth = depth.or(few).unwrap_or(Settings::DEPTH);
        (depth, nr_requests.unwrap_or_else(|| usual.max(2 * u32::from(depth))))
    }

    /// Whether the bounds fit each other, and its scheduler has the tunables that are set.
    fn check(&self) -> Result<(), String> {
        let (depth, nr_requests) = self.bounds();
        if depth == 0 || nr_requests < u32::from(depth) {
            return Err(format!("nr_requests must be at least the depth, which is {depth}, and not {nr_requests}"));
        }
        let config::Disk { scheduler, shares, .. } = &self.settings;
        if let Some(shares) = shares.as_ref().filter(|_| !scheduler.shares_pools()) {
            let (place, name) = (&shares.place, scheduler.name());
            return Err(format!(
                "shares = \"{place}\" needs the scheduler fair; {name} shares no pool with other servers"
            ));
        }
        if self.settings.set.is_empty() { Ok(()) } else { self.least().map(drop).map_err(|error| error.to_string()) }
    }

    /// The smallest queue with its scheduler and settings.
    fn least(&self) -> Result<Queue, tunable::Error> {
        let least = Settings { depth: 1, nr_requests: 1, ..Settings::new(self.settings.scheduler, Limits::new(0)) };
        let mut queue = Queue::new(least);
        self.settings.set.iter().try_for_each(|(name, value)| queue.set_tunable(name, value))?;
        Ok(queue)
    }

    fn io_timeout(&self) -> Duration {
        self.settings.io_timeout.unwrap_or(fairlift_core::time::secs(30))
    }

    /// Whether all workers have the same queue.
    fn has_one_queue(&self) -> bool {
        self.settings.scheduler.is_per_disk() || self.contexts == 1
    }

    /// The settings of its queues; `shared`: others may flush the same devices.
    fn queue(&self, places: &[Place], shared: bool) -> Settings {
        let (depth, nr_requests) = self.bounds();
        let mut backings: Vec<_> =
            places.iter().filter(|place| !place.is_free).map(|place| place.backing(shared)).collect();
        if backings.is_empty() {
            backings.push(Backing::default());
        }
        Settings {
            character: self.character,
            backings,
            depth,
            nr_requests: nr_requests.max(depth.into()),
            contexts: self.contexts,
            groups: vec![self.root.clone()],
            io_timeout: self.io_timeout(),
            ..Settings::new(self.settings.scheduler, limits(places))
        }
    }

    /// Queues of a disk with these places and groups; `others`: they take the place of others (handover.5).
    fn queues(&self, now: Instant, places: &[Place], groups: &[(GroupId, Group)], others: bool) -> Queues {
        // Workers with queues of their own flush the same devices (disk.3).
        let shared = others || !self.has_one_queue();
        Queues::new(now, &self.queue(places, shared), groups, &self.settings.set, self.settings.shared_tags)
    }
}

#[cfg(test)]
mod tests {
    use fairlift_core::sched::Kind;

    use super::*;

    #[test]
    fn where_helpers_wait_few_are_in_flight_and_as_many_wait_as_ever_or_twice_as_many() {
        let with = |most, own| {
            let settings = config::Disk {
                depth: own,
                concurrency: concurrency::Settings { most, fixed: false },
                ..config::Disk::new("d", Kind::MqDeadline)
            };
            let character = Character { rotational: false, volatile_cache: false };
            let plan = Plan { settings, character, root: Group::root(), contexts: 1, needs_helpers: true };
            (plan.bounds(), Plan { needs_helpers: false, ..plan }.bounds())
        };
        assert_eq!(with(16, None), ((32, 256), (128, 256)));
        assert_eq!(with(256, None), ((512, 1024), (128, 256)));
        assert_eq!(with(u16::MAX, None), ((u16::MAX, 131_070), (128, 256)));
        assert_eq!(with(256, Some(4)), ((4, 8), (4, 8)));
    }

    /// A device that ends within a sector has that sector, too.
    #[test]
    fn there_is_room_for_whole_sectors_only() {
        let device = config::Backing::from(config::Ram { size: 1 << 20 }).open(false, &Default::default()).unwrap();
        let settings = config::Disk::new("d", Kind::None);
        let disk = Disk::new(&settings, &[(Arc::clone(&device), None)], &[Group::root()], 1).unwrap();
        assert_eq!([1 << 40, (1 << 40) + 1].map(|bytes| disk.has_room(&device, bytes)), [true, false]);
    }
}
