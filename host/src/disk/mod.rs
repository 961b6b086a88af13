//! Disk: a scheduling domain, and what lies on it.
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

pub(crate) mod blocks;
pub(crate) mod engine;
mod exchange;
pub(crate) mod gauge;
mod handover;
mod parts;
pub(crate) mod queues;
mod tag_wait;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairlift_core::ceiling::{Bounds, Budget, Rates};
use fairlift_core::flush::{self, SharedFlush};
use fairlift_core::learn::concurrency;
use fairlift_core::learn::idling_trial::Finding;
use fairlift_core::model::Character;
use fairlift_core::queue::Shortage;
use fairlift_core::queue::{Backing, Figures, Settings};
use fairlift_core::sched::Kind;
use fairlift_core::stats::Stats;
use fairlift_core::trace::Event;
use fairlift_core::tunable;
use fairlift_core::waits::Doing;
use fairlift_core::{ContextId, Errno, Extent, Group, GroupId, Instant, Limits, Op, Queue, Sector};

use crate::Error;
use crate::config;
use crate::control::trace::EVENTS;
use crate::device::{Device, Facts};
use crate::disk::blocks::Blocks;
use crate::disk::gauge::Gauge;
use crate::flush::Shared;
use handover::State;
use queues::Queues;

/// Between backings, and what their places are multiples of: 1 GiB. Chosen: further than any scheduler takes for near by default.
const GAP: u64 = 1 << 21;

/// How many sectors a place has at least, so that its device can grow: 1 TiB.
const ROOM: u64 = 1 << 31;

/// As many places as completions can name.
const PLACES: usize = 1 << 16;

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

/// The disks of a server, by their numbers.
pub(crate) struct Disks {
    list: Mutex<Vec<Arc<Disk>>>,
    /// Counts the changes of `list`.
    changes: AtomicU64,
    /// What stands at a number that no disk has.
    nothing: Arc<Disk>,
    /// What binds groups on all disks; ceilings hold for all disks together (ceiling.8).
    bounds: Mutex<GroupBounds>,
}

impl Disks {
    pub(crate) fn new(disks: Vec<Arc<Disk>>) -> Arc<Self> {
        let settings = config::Disk {
            name: String::new(),
            scheduler: Kind::Fair, // one queue for all workers, whatever their number
            set: Vec::new(),
            depth: Some(1),
            shared_tags: false,
            if_rotational: None,
            nr_requests: Some(1),
            io_timeout: None,
            concurrency: concurrency::Settings::default(),
        };
        let nothing = Disk::new(&settings, &[], &[Group::root()], 64).expect("a disk with nothing on it");
        Arc::new(Self {
            list: Mutex::new(disks),
            changes: AtomicU64::new(0),
            nothing: Arc::new(nothing),
            bounds: Mutex::default(),
        })
    }

    /// Gives a group other bounds, on all disks; workers are to be woken then.
    pub(crate) fn set_bounds(&self, now: Instant, id: GroupId, bounds: &Bounds) {
        let mut all = self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.remove(&id).unwrap_or_default();
        let budget = (!bounds.ceiling.is_none()).then(|| match before.budget {
            Some(there) => {
                there.set(now, &bounds.ceiling);
                self.all().iter().for_each(|(_, disk)| disk.ceilings_changed(now));
                there
            }
            None => Arc::new(Budget::new(&bounds.ceiling)),
        });
        if !bounds.is_none() {
            all.insert(id, Bound { budget, floor: bounds.floor });
        }
        self.all().iter().for_each(|(_, disk)| disk.set_group_bounds(now, &all));
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<Disk>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often a disk came or went: who knows another number has to [look](Self::look).
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// What is at each number, with the number of the change.
    pub(crate) fn look(&self) -> (u64, Vec<Arc<Disk>>) {
        let list = self.list();
        (self.changes(), list.clone())
    }

    /// Those that there are, each with its number.
    pub(crate) fn all(&self) -> Vec<(usize, Arc<Disk>)> {
        let there = |(_, disk): &(usize, &Arc<Disk>)| !Arc::ptr_eq(disk, &self.nothing);
        self.list().iter().enumerate().filter(there).map(|(number, disk)| (number, Arc::clone(disk))).collect()
    }

    pub(crate) fn get(&self, number: usize) -> Arc<Disk> {
        Arc::clone(&self.list()[number])
    }

    /// Puts a disk (`None`: nothing) at a number, which is at most the next one; workers are to be woken then.
    pub(crate) fn set(&self, number: usize, disk: Option<Arc<Disk>>) {
        let disk = disk.unwrap_or_else(|| Arc::clone(&self.nothing));
        disk.set_group_bounds(Instant::ZERO, &self.bounds.lock().unwrap_or_else(PoisonError::into_inner));
        let mut list = self.list();
        match list.get_mut(number) {
            Some(old) => *old = disk,
            None => list.push(disk),
        }
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// The first number from one on that no disk has.
    pub(crate) fn free_from(&self, first: usize) -> usize {
        let list = self.list();
        let free = |number: &usize| list.get(*number).is_none_or(|disk| Arc::ptr_eq(disk, &self.nothing));
        (first..).find(free).expect("there is always another number")
    }
}

/// What binds a group: the state of its ceiling, and its floor.
#[derive(Clone, Default)]
pub(crate) struct Bound {
    budget: Option<Arc<Budget>>,
    floor: Rates,
}

impl PartialEq for Bound {
    fn eq(&self, other: &Self) -> bool {
        self.budget.as_ref().map(Arc::as_ptr) == other.budget.as_ref().map(Arc::as_ptr) && self.floor == other.floor
    }
}

/// What binds groups.
pub(crate) type GroupBounds = BTreeMap<GroupId, Bound>;

/// A device, and the number under which its descriptor is registered with every ring, if it has one.
pub(crate) type Registered = (Arc<dyn Device>, Option<u32>);

/// Where a backing is on its disk.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) start: Sector,
    /// Up to where its device may grow, in sectors from `start`.
    room: u64,
    /// `None`: it is gone.
    pub(crate) device: Option<Arc<dyn Device>>,
    /// The number under which its file is registered with every ring, if it is a file.
    pub(crate) file: Option<u32>,
    /// Its flushes, where several queues share them, or have handed them on.
    flush: Arc<Shared>,
    /// Its device is gone, and no worker has anything on it: another may have the place.
    is_free: bool,
    /// What its device says of itself, or said.
    facts: Facts,
}

impl Place {
    fn new(start: Sector, (device, file): &Registered) -> Self {
        let facts = device.facts();
        let sectors = facts.limits.capacity;
        Self {
            start,
            room: sectors.saturating_mul(2).max(ROOM),
            device: Some(Arc::clone(device)),
            file: *file,
            flush: Shared::new(flush::Settings::default(), facts.volatile_cache),
            is_free: false,
            facts,
        }
    }

    /// The first sector that is not its own.
    fn end(&self) -> u64 {
        (self.start.0 + self.room + GAP).next_multiple_of(GAP)
    }

    /// As the queue knows it; `shared`: several queues share its flushes (disk.3).
    fn backing(&self, shared: bool) -> Backing {
        let Facts { volatile_cache, fua, .. } = self.facts;
        let flush = shared.then(|| Arc::clone(&self.flush) as Arc<dyn SharedFlush>);
        Backing { start: self.start, volatile_cache, fua, flush }
    }

    /// The place of an extent, and the byte within its device.
    #[inline]
    pub(crate) fn locate(places: &[Self], extent: Extent) -> (usize, u64) {
        let index = places.partition_point(|place| place.start <= extent.start) - 1;
        (index, (extent.start.0 - places[index].start.0) * Sector::SIZE)
    }
}

/// Finds a place for a device; which.
fn put(places: &mut Vec<Place>, device: &Registered) -> Result<usize, &'static str> {
    let sectors = device.0.facts().limits.capacity;
    if let Some(free) = places.iter().position(|place| place.is_free && place.room / 2 >= sectors) {
        places[free] = Place { room: places[free].room, ..Place::new(places[free].start, device) };
        return Ok(free);
    }
    if places.len() == PLACES {
        return Err("a disk has at most 65536 places");
    }
    let place = Place::new(Sector(places.last().map_or(0, Place::end)), device);
    if place.start.0.checked_add(place.room).is_none_or(|end| end >= 1 << 62) {
        return Err("the disk has no room for another backing of that size");
    }
    places.push(place);
    Ok(places.len() - 1)
}

/// What all of the devices can take.
fn limits(places: &[Place]) -> Limits {
    let capacity = places.last().map_or(0, Place::end);
    common(places.iter().filter(|place| place.device.is_some()).map(|place| place.facts.limits), capacity)
}

impl Disk {
    /// Puts `devices` (with their file numbers) on a disk, for so many contexts.
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
        let scheduler = settings.if_rotational.filter(|_| rotational).unwrap_or(settings.scheduler);
        let plan = Plan {
            settings: config::Disk { scheduler, if_rotational: None, ..settings.clone() },
            character: Character { rotational, volatile_cache: facts().any(|facts| facts.flush) },
            root: groups[0].clone(),
            contexts: contexts as u16,
            needs_helpers: devices.iter().any(|(device, _)| device.needs_helpers()),
        };
        let fail = |why: String| Error::Disk { name: settings.name.clone(), why };
        plan.check().map_err(fail)?;
        let numbered = groups.iter().enumerate().skip(1);
        let groups: Vec<_> = numbered.map(|(id, group)| (GroupId(id as u16), group.clone())).collect();
        let queues = plan.first(&places, &groups).map_err(|error| fail(error.to_string()))?;
        Ok(Self {
            name: settings.name.clone(),
            concurrency: settings.concurrency,
            epoch: AtomicU64::new(0),
            state: Mutex::new(State::new(queues, plan, places.into(), groups)),
            gauge: None,
            blocks: Blocks::new(contexts),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|_: PoisonError<_>| panic!("disk {}: a worker panicked in it", self.name))
    }

    /// The queues that it has now.
    pub(crate) fn queues(&self) -> Arc<Queues> {
        Arc::clone(&self.state().queues)
    }

    /// The first of its devices that a flush failed on, and how, if nobody has taken note of it.
    pub(crate) fn flush_error(&self) -> Option<(Arc<dyn Device>, Errno)> {
        let state = self.state();
        let mut queue = state.queues.of(ContextId(0));
        (state.places.iter())
            .find_map(|place| Some((Arc::clone(place.device.as_ref()?), queue.flush_error(place.start)?)))
    }

    /// Takes note of all flush errors: later flushes succeed if the devices say so. Answers which were remembered.
    pub(crate) fn acknowledge_flush_errors(&self) -> Vec<(Arc<dyn Device>, Errno)> {
        let state = self.state();
        let mut noted = Vec::new();
        for mut queue in state.queues.each() {
            for (place, device) in state.places.iter().filter_map(|place| Some((place, place.device.as_ref()?))) {
                // Queues of several workers share what they remember: the first finds it.
                if let Some(errno) = queue.flush_error(place.start) {
                    queue.acknowledge_flush_error(place.start);
                    noted.push((Arc::clone(device), errno));
                }
            }
        }
        noted
    }

    /// Tells what all its queues counted, those included that are no more: [`fairlift_core::Queue::counters`], once for each.
    pub(crate) fn counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        let state = self.state();
        state.past.counts.iter().for_each(|(name, count)| tell(name, *count));
        state.queues.each().for_each(|queue| queue.counters(tell));
    }

    /// Whether floors add up to more than it was seen to do.
    pub(crate) fn floors_short(&self) -> Option<Shortage> {
        self.queues().each().find_map(|queue| queue.floors_short())
    }

    /// Tells what its schedulers decided since this was asked last: [`fairlift_core::Queue::take_findings`].
    pub(crate) fn take_findings(&self, tell: &mut dyn FnMut(Finding)) {
        self.queues().each().for_each(|mut queue| queue.take_findings(tell));
    }

    /// Lets each queue keep so many events, those that do already included if it is 0.
    pub(crate) fn set_trace(&self, bound: usize) {
        for mut queue in self.queues().each().filter(|queue| bound == 0 || !queue.is_traced()) {
            queue.set_trace(bound);
        }
    }

    /// Takes the events out of its queues, so many at a time, and tells how many were lost since tracing began.
    pub(crate) fn take_trace(&self, most: usize, tell: &mut dyn FnMut(Event)) -> u64 {
        let queues = self.queues();
        let mut lost = 0;
        for number in 0..queues.count() {
            // What comes while it is taken is for the next time.
            for _ in 0..EVENTS.div_ceil(most) {
                let mut queue = queues.nth(number);
                let events: Vec<Event> = std::iter::from_fn(|| queue.poll_trace()).take(most).collect();
                lost += queue.take_lost();
                drop(queue);
                let are_more = events.len() == most;
                events.into_iter().for_each(&mut *tell);
                if !are_more {
                    break;
                }
            }
        }
        lost
    }

    /// What each group has done here, those left out that did nothing.
    pub(crate) fn stats_by_group(&self) -> Vec<(Group, Stats)> {
        let state = self.state();
        let mut all = state.past.stats.clone();
        state.queues.each().for_each(|queue| handover::add_stats(&mut all, queue.stats_by_group()));
        let busy = all.into_iter().filter(|(.., stats)| Op::ALL.iter().any(|op| stats.of(*op).ops > 0));
        busy.map(|(_, group, stats)| (group, stats)).collect()
    }

    /// What each group has had here up to now, those left out that had nothing. A queue is taken for a few streams at a time,
    /// so that a disk with ten thousand tenants is looked at while it is served.
    pub(crate) fn figures(&self, now: Instant) -> BTreeMap<GroupId, Figures> {
        let mut all = BTreeMap::<GroupId, Figures>::new();
        let past = {
            let state = self.state();
            state.past.stats.iter().map(|(id, _, stats)| (*id, stats.clone())).collect::<Vec<_>>()
        };
        for (id, stats) in past {
            all.entry(id).or_default().stats.add(&stats);
        }
        let queues = self.queues();
        for number in 0..queues.count() {
            for (id, figures) in figures_of(now, || queues.nth(number)) {
                all.entry(id).or_default().add(&figures);
            }
        }
        let some = |figures: &Figures| figures.open > 0 || Op::ALL.iter().any(|op| figures.stats.of(*op).ops > 0);
        all.retain(|_, figures| some(figures));
        all
    }

    /// What its queues found it doing, added up, and how many they are.
    pub(crate) fn doing(&self, now: Instant) -> (Doing, u32) {
        let queues = self.queues();
        let all = queues.each().map(|queue| queue.doing(now));
        all.fold((Doing::default(), 0), |(sum, count), doing| (sum + doing, count + 1))
    }

    pub(crate) fn places(&self) -> Arc<[Place]> {
        Arc::clone(&self.state().places)
    }

    /// What it has, as it was configured and changed since.
    pub(crate) fn settings(&self) -> config::Disk {
        self.state().plan.settings.clone()
    }

    // ---- what is on it ----

    /// The devices on it.
    pub(crate) fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.places().iter().filter_map(|place| place.device.clone()).collect()
    }

    /// Where a device is.
    pub(crate) fn place_of(&self, device: &Arc<dyn Device>) -> Option<Place> {
        let here = |place: &&Place| place.device.as_ref().is_some_and(|there| Arc::ptr_eq(there, device));
        self.places().iter().find(here).cloned()
    }

    /// Whether no device is on it, and none has been whose last requests are still under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().places.is_empty()
    }

    /// Whether these devices could be put on it, one after the other.
    ///
    /// # Errors
    /// There is no place for one.
    pub(crate) fn could_take(&self, devices: &[Registered]) -> Result<(), &'static str> {
        let mut places = self.places().to_vec();
        devices.iter().try_for_each(|device| put(&mut places, device).map(|_| ()))
    }

    /// Puts a device on it, and tells where; workers are to be woken then.
    ///
    /// # Errors
    /// There is no place for it.
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
        for place in &mut places {
            place.device.take_if(|there| Arc::ptr_eq(there, device));
        }
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
        for queues in state.all() {
            queues.each().for_each(|mut queue| queue.remove_backing(start));
        }
        while places.pop_if(|last| last.is_free).is_some() {}
        state.places = places.into();
        self.moved();
    }

    /// The device of a place has grown; whether there is room for it.
    pub(crate) fn grown(&self, device: &Arc<dyn Device>) -> bool {
        let mut state = self.state();
        let mut places = state.places.to_vec();
        let here = |place: &&mut Place| place.device.as_ref().is_some_and(|there| Arc::ptr_eq(there, device));
        let Some(place) = places.iter_mut().find(here) else { return false };
        place.facts = device.facts();
        if place.facts.limits.capacity > place.room {
            return false;
        }
        let limits = limits(&places);
        state.all().for_each(|queues| queues.each().for_each(|mut queue| queue.set_limits(limits)));
        state.places = places.into();
        self.moved();
        true
    }

    /// Whether these bounds fit each other here.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn check_bounds(&self, depth: Option<u16>, nr_requests: Option<u32>) -> Result<(), String> {
        self.state().plan.with_bounds(depth, nr_requests).check()
    }

    // ---- who shares it ----

    /// Adds a group under a number that [no queue has](Self::has_group).
    pub(crate) fn add_group(&self, now: Instant, id: GroupId, group: &Group) {
        let mut state = self.state();
        for queues in state.all() {
            queues.each().for_each(|mut queue| queue.add_group_at(now, id, group.clone()));
        }
        if let Some(bound) = state.bounds.get(&id) {
            state.all().for_each(|queues| queues.bind(now, id, bound));
        }
        state.groups.push((id, group.clone()));
    }

    /// Whether a group has this number, or had it and has not quite left.
    pub(crate) fn has_group(&self, id: GroupId) -> bool {
        self.state().all().any(|queues| queues.each().any(|queue| queue.has_group(id)))
    }

    /// Gives a group another weight.
    pub(crate) fn set_weight(&self, now: Instant, id: GroupId, weight: u16) {
        let mut state = self.state();
        for queues in state.all() {
            queues.each().for_each(|mut queue| queue.set_weight(now, id, weight));
        }
        if let Some((_, group)) = state.groups.iter_mut().find(|(one, _)| *one == id) {
            group.weight = weight;
        }
    }

    /// Takes these bounds and no others; of groups that it does not have yet, once they come.
    fn set_group_bounds(&self, now: Instant, bounds: &GroupBounds) {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.bounds, bounds.clone());
        let gone = before.keys().filter(|id| !bounds.contains_key(id)).map(|id| (*id, Bound::default()));
        let changed = bounds.iter().filter(|(id, bound)| before.get(id) != Some(bound));
        for (id, bound) in changed.map(|(id, bound)| (*id, bound.clone())).chain(gone) {
            state.all().for_each(|queues| queues.bind(now, id, &bound));
        }
    }

    /// A ceiling has changed: what waits for it may go earlier.
    fn ceilings_changed(&self, now: Instant) {
        self.state().all().for_each(|queues| queues.each().for_each(|mut queue| queue.ceilings_changed(now)));
    }

    /// Removes a group, unless streams or groups are in it still; whether it went.
    pub(crate) fn remove_group(&self, now: Instant, id: GroupId) -> bool {
        let mut state = self.state();
        if !state.groups.iter().any(|(one, _)| *one == id) {
            return true;
        }
        let in_use = |queue: &Queue| queue.groups().any(|(_, group)| group.parent == Some(id)) || queue.has_streams(id);
        if state.all().any(|queues| queues.each().any(|queue| in_use(&queue))) {
            return false;
        }
        for queues in state.all() {
            for mut queue in queues.each() {
                queue.remove_group(now, id).expect("nobody is in it");
            }
        }
        state.groups.retain(|(one, _)| *one != id);
        state.past.stats.retain(|(one, ..)| *one != id);
        true
    }

    // ---- what can be turned ----

    /// Sets a tunable of its scheduler, or one that all have.
    ///
    /// # Errors
    /// There is no such tunable, or the value is malformed or out of range; nothing has changed.
    pub(crate) fn set_tunable(&self, name: &str, value: &str) -> Result<(), tunable::Error> {
        let mut state = self.state();
        for queues in state.all() {
            queues.each().try_for_each(|mut queue| queue.set_tunable(name, value))?;
        }
        let set = &mut state.plan.settings.set;
        set.retain(|(one, _)| one != name);
        set.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    /// How many requests its devices have, and how many wait for them.
    pub(crate) fn load(&self) -> (u32, u32) {
        self.queues().each().fold((0, 0), |(in_flight, waiting), queue| {
            (in_flight + u32::from(queue.in_flight()), waiting + queue.waiting() as u32)
        })
    }
}

/// How many streams or groups of a queue are looked at while it is locked. Chosen: what is copied is 4 KiB for each.
const LOOK: usize = 32;

/// How often figures are collected anew because a stream went meanwhile, so that what it did would be missing or count twice.
const LOOKS: usize = 4;

/// What each group has had through a queue.
fn figures_of<'a>(now: Instant, queue: impl Fn() -> MutexGuard<'a, Queue>) -> Vec<(GroupId, Figures)> {
    for _ in 1..LOOKS {
        let before = queue().moves();
        let all = collect_figures(now, &queue);
        if queue().moves() == before {
            return all;
        }
    }
    collect_figures(now, &queue)
}

fn collect_figures<'a>(now: Instant, queue: &impl Fn() -> MutexGuard<'a, Queue>) -> Vec<(GroupId, Figures)> {
    let mut all = queue().figures_of_requests(now);
    let ranges = || (0..).step_by(LOOK).map(|from| from..from + LOOK);
    all.extend(ranges().map_while(|range| queue().figures_of_streams(now, range)).flatten());
    all.extend(ranges().map_while(|range| queue().figures_of_groups(now, range)).flatten());
    all
}

/// What a disk's queues are made from, beside its places and groups.
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
    fn with_scheduler(&self, scheduler: Kind, set: &[(String, String)]) -> Self {
        let mut plan = self.clone();
        (plan.settings.scheduler, plan.settings.set) = (scheduler, set.to_vec());
        plan
    }

    fn with_bounds(&self, depth: Option<u16>, nr_requests: Option<u32>) -> Self {
        let mut plan = self.clone();
        (plan.settings.depth, plan.settings.nr_requests) = (depth, nr_requests);
        plan
    }

    /// How many requests may be in flight, and how many wait or be in flight.
    fn bounds(&self) -> (u16, u32) {
        bounds(&self.settings, self.needs_helpers)
    }

    /// Whether the bounds fit each other.
    fn check(&self) -> Result<(), String> {
        let (depth, nr_requests) = self.bounds();
        if depth == 0 || nr_requests < u32::from(depth) {
            return Err(format!(
                "nr_requests is {nr_requests}, and must be at least the depth, which is {depth} (and not 0)"
            ));
        }
        Ok(())
    }

    /// Whether its scheduler has what it is to be set to.
    fn check_set(&self) -> Result<(), tunable::Error> {
        let least = Settings { depth: 1, nr_requests: 1, ..Settings::new(self.settings.scheduler, Limits::new(0)) };
        let mut queue = Queue::new(least);
        self.settings.set.iter().try_for_each(|(name, value)| queue.set_tunable(name, value))
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
            io_timeout: self.settings.io_timeout.unwrap_or(fairlift_core::time::secs(30)),
            ..Settings::new(self.settings.scheduler, limits(places))
        }
    }

    /// The queues that a disk begins with.
    fn first(&self, places: &[Place], groups: &[(GroupId, Group)]) -> Result<Queues, tunable::Error> {
        let mut settings = self.queue(places, false);
        if queues::count(&settings) > 1 {
            // Workers with queues of their own flush the same devices (disk.3).
            settings = self.queue(places, true);
        }
        Queues::new(Instant::ZERO, &settings, groups, &self.settings.set, self.shares_tags())
    }

    /// The queues that take the place of others (handover.5).
    fn queues(&self, now: Instant, places: &[Place], groups: &[(GroupId, Group)]) -> Result<Queues, tunable::Error> {
        Queues::new(now, &self.queue(places, true), groups, &self.settings.set, self.shares_tags())
    }

    fn shares_tags(&self) -> bool {
        self.settings.shared_tags
    }

    fn contexts(&self) -> u32 {
        self.contexts.into()
    }
}

/// How many requests may be in flight, and how many wait or be in flight.
fn bounds(settings: &config::Disk, needs_helpers: bool) -> (u16, u32) {
    // What waits for helpers is out of the scheduler's hands: few more than they take at once. As many as ever may wait
    // in the scheduler.
    let few = needs_helpers.then(|| settings.concurrency.most.saturating_mul(2));
    let depth = settings.depth.or(few).unwrap_or(Settings::DEPTH);
    let usual = settings.scheduler.nr_requests(settings.depth.unwrap_or(Settings::DEPTH));
    (depth, settings.nr_requests.unwrap_or_else(|| usual.max(2 * u32::from(depth))))
}

/// What all of some devices can take that lie on a disk of `capacity` sectors.
///
/// Devices start on multiples of [`GAP`], and a line every `a` sectors is one every `b` as well if `b` divides `a`: so a
/// common divisor keeps everybody's blocks and boundaries. What a device cannot do at all, its export refuses.
fn common(mut devices: impl Iterator<Item = Limits>, capacity: u64) -> Limits {
    let Some(first) = devices.next() else { return Limits::new(capacity) };
    let least = |a: u64, b: u64| if a == 0 || b == 0 { a.max(b) } else { a.min(b) };
    let (limits, many) = devices.fold((first, false), |(one, _), two| {
        let both = Limits {
            capacity,
            block: gcd(one.block.into(), two.block.into()) as u32,
            rw_max: one.rw_max.min(two.rw_max),
            discard_max: least(one.discard_max, two.discard_max),
            write_zeroes_max: least(one.write_zeroes_max, two.write_zeroes_max),
            segments_max: one.segments_max.min(two.segments_max),
            boundary: gcd(one.boundary, two.boundary),
        };
        (both, true)
    });
    let boundary = if many && limits.boundary != 0 { gcd(limits.boundary, GAP) } else { limits.boundary };
    Limits { capacity, boundary, ..limits }
}

/// The largest number that divides both; 0 counts as divisible by all.
const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_helpers_wait_few_are_in_flight_and_as_many_wait_as_ever_or_twice_as_many() {
        let with = |most, own| {
            let settings = config::Disk {
                depth: own,
                concurrency: concurrency::Settings { most, fixed: false },
                ..config::Disk::new("d", Kind::MqDeadline)
            };
            (bounds(&settings, true), bounds(&settings, false))
        };
        assert_eq!(with(16, None), ((32, 256), (128, 256)));
        assert_eq!(with(256, None), ((512, 1024), (128, 256)));
        assert_eq!(with(u16::MAX, None), ((u16::MAX, 131_070), (128, 256)));
        assert_eq!(with(256, Some(4)), ((4, 8), (4, 8)));
    }

    #[test]
    fn one_device_keeps_its_own_limits() {
        let own = Limits { block: 8, boundary: 640, discard_max: 0, ..Limits::new(1 << 20) };
        assert_eq!(common([own].into_iter(), 1 << 22), Limits { capacity: 1 << 22, ..own });
    }

    #[test]
    fn several_devices_on_a_disk_take_what_suits_all() {
        let array = Limits { boundary: 640, rw_max: 1024, discard_max: 0, ..Limits::new(1 << 20) };
        let drive = Limits { block: 8, boundary: 384, discard_max: 4096, ..Limits::new(1 << 20) };
        let both = common([array, drive].into_iter(), 1 << 22);
        assert_eq!((both.block, both.boundary, both.rw_max, both.discard_max), (1, 128, 1024, 4096));
    }
}
