//! Disk: a scheduling domain, and what lies on it.
//!
//! Ten image files on one SSD share its time, so one scheduler must decide between all their requests: they are one disk. A
//! disk has a linear space of sectors, in which each device has its place, and one or several [queues](queues) for it.
//!
//! disk.1  Each device has a place of its own in the disk's sectors, so that "near" and "sequential" keep their meaning. Between
//!         two places there is a gap, so that no request reaches from one device into the next.
//! disk.2  A scheduler that decides between workers has one queue for all of them, under one lock that a worker takes once per
//!         batch. `none` decides nothing, so each worker has a queue of its own, and its lock is never contended.
//! disk.3  A flush is shared within a device by all exports, connections and workers that ask for one. Where workers have queues
//!         of their own they share flushes under one lock, which is taken only while a client flushes.

pub(crate) mod engine;
pub(crate) mod gauge;
mod handover;
pub(crate) mod queues;
mod tag_wait;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairlift_core::flush::{self, SharedFlush};
use fairlift_core::learn::concurrency;
use fairlift_core::learn::idling_trial::Finding;
use fairlift_core::model::Character;
use fairlift_core::queue::{Backing, Settings};
use fairlift_core::sched::Kind;
use fairlift_core::stats::Stats;
use fairlift_core::{ContextId, Errno, Extent, Group, Limits, Op, Sector};

use crate::Error;
use crate::config;
use crate::device::{Device, Facts};
use crate::disk::gauge::Gauge;
use crate::flush::Shared;
use handover::State;
use queues::Queues;

/// Between backings, and what their places are multiples of: 1 GiB.
const GAP: u64 = 1 << 21;

/// A scheduling domain.
pub(crate) struct Disk {
    pub(crate) name: String,
    plan: Plan,
    places: Vec<Place>,
    /// The flushes of each place, where several queues share them, or have handed them on.
    flushes: Vec<Arc<Shared>>,
    /// Counts the changes of `state`'s queues: odd while the disk is frozen ([`handover`]).
    epoch: AtomicU64,
    state: Mutex<State>,
    /// How much at once is given to those of its files that helpers wait for.
    pub(crate) concurrency: concurrency::Settings,
    /// Counts what the devices do, if somebody wants to know.
    pub(crate) gauge: Option<Gauge>,
}

/// A device, and the number under which its descriptor is registered with every ring, if it has one.
pub(crate) type Registered = (Arc<dyn Device>, Option<u32>);

/// Where a backing is on its disk.
pub(crate) struct Place {
    pub(crate) start: Sector,
    pub(crate) device: Arc<dyn Device>,
    /// The number under which its file is registered with every ring, if it is a file.
    pub(crate) file: Option<u32>,
}

impl Disk {
    /// Puts `devices` (with their file numbers) on a disk, for so many contexts.
    pub(crate) fn new(
        settings: &config::Disk,
        devices: &[Registered],
        groups: &[Group],
        contexts: usize,
    ) -> Result<Self, Error> {
        let mut places = Vec::new();
        let mut next = 0;
        for (device, file) in devices {
            let sectors = device.facts().limits.capacity;
            places.push(Place { start: Sector(next), device: Arc::clone(device), file: *file });
            next = (next + sectors + GAP).next_multiple_of(GAP); // disk.1
        }
        let limits = common(devices.iter().map(|(device, _)| device.facts().limits), next);
        let facts = || devices.iter().map(|(device, _)| device.facts());
        let rotational = facts().any(|facts| facts.rotational);
        let scheduler = settings.if_rotational.filter(|_| rotational).unwrap_or(settings.scheduler);
        let needs_helpers = devices.iter().any(|(device, _)| device.needs_helpers());
        let (depth, nr_requests) = bounds(settings, needs_helpers);
        if depth == 0 || nr_requests < u32::from(depth) {
            let why =
                format!("nr_requests is {nr_requests}, and must be at least the depth, which is {depth} (and not 0)");
            return Err(Error::Disk { name: settings.name.clone(), why });
        }
        let backing = |place: &Place| {
            let Facts { volatile_cache, fua, .. } = place.device.facts();
            Backing { start: place.start, volatile_cache, fua, flush: None }
        };
        let backings: Vec<_> = places.iter().map(backing).collect();
        let flushes: Vec<_> =
            (backings.iter()).map(|backing| Shared::new(flush::Settings::default(), backing.volatile_cache)).collect();
        let first = Settings {
            character: Character { rotational, volatile_cache: facts().any(|facts| facts.flush) },
            backings: if backings.is_empty() { vec![Backing::default()] } else { backings },
            depth,
            nr_requests,
            contexts: contexts as u16,
            groups: groups.to_vec(),
            io_timeout: settings.io_timeout.unwrap_or(fairlift_core::time::secs(30)),
            ..Settings::new(scheduler, limits)
        };
        let plan = Plan { settings: settings.clone(), first, needs_helpers };
        let mut settings = plan.first.clone();
        if queues::count(&settings) > 1 {
            // Workers with queues of their own flush the same devices (disk.3).
            for (backing, flush) in settings.backings.iter_mut().zip(&flushes) {
                backing.flush = Some(Arc::clone(flush) as Arc<dyn SharedFlush>);
            }
        }
        let queues = Queues::new(&settings, &plan.settings.set, plan.shares_tags())
            .map_err(|error| Error::Disk { name: plan.settings.name.clone(), why: error.to_string() })?;
        Ok(Self {
            name: plan.settings.name.clone(),
            concurrency: plan.settings.concurrency,
            plan,
            places,
            flushes,
            epoch: AtomicU64::new(0),
            state: Mutex::new(State::new(queues)),
            gauge: None,
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
    pub(crate) fn flush_error(&self) -> Option<(&dyn Device, Errno)> {
        let queues = self.queues();
        let mut queue = queues.of(ContextId(0));
        let failed = |place: &Place| queue.flush_error(place.start);
        let (place, errno) = self.places.iter().map(failed).enumerate().find_map(|(n, errno)| Some((n, errno?)))?;
        Some((&*self.places[place].device, errno))
    }

    /// Takes note of all flush errors: later flushes succeed if the devices say so. Answers which were remembered.
    pub(crate) fn acknowledge_flush_errors(&self) -> Vec<(&dyn Device, Errno)> {
        let mut noted = Vec::new();
        for mut queue in self.queues().each() {
            for place in &self.places {
                // Queues of several workers share what they remember: the first finds it.
                if let Some(errno) = queue.flush_error(place.start) {
                    queue.acknowledge_flush_error(place.start);
                    noted.push((&*place.device, errno));
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

    /// Tells what its schedulers decided since this was asked last: [`fairlift_core::Queue::take_findings`].
    pub(crate) fn take_findings(&self, tell: &mut dyn FnMut(Finding)) {
        self.queues().each().for_each(|mut queue| queue.take_findings(tell));
    }

    /// What each group has done here, those left out that did nothing.
    pub(crate) fn stats_by_group(&self) -> Vec<(Group, Stats)> {
        let state = self.state();
        let mut all = state.past.stats.clone();
        state.queues.each().for_each(|queue| handover::add_stats(&mut all, queue.stats_by_group()));
        let busy = all.into_iter().filter(|(.., stats)| Op::ALL.iter().any(|op| stats.of(*op).ops > 0));
        busy.map(|(_, group, stats)| (group, stats)).collect()
    }

    /// Where an extent of the disk is: the place, and the byte within its device.
    pub(crate) fn locate(&self, extent: Extent) -> (usize, u64) {
        let index = self.places.partition_point(|place| place.start <= extent.start) - 1;
        (index, (extent.start.0 - self.places[index].start.0) * Sector::SIZE)
    }

    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }
}

/// What a disk's queues are made from, whatever the scheduler.
struct Plan {
    /// As it was configured.
    settings: config::Disk,
    /// Of the first queues.
    first: Settings,
    needs_helpers: bool,
}

impl Plan {
    /// The settings of queues with this scheduler.
    fn settings(&self, scheduler: Kind) -> Settings {
        let settings = config::Disk { scheduler, ..self.settings.clone() };
        let (depth, nr_requests) = bounds(&settings, self.needs_helpers);
        Settings { scheduler, depth, nr_requests: nr_requests.max(depth.into()), ..self.first.clone() }
    }

    fn shares_tags(&self) -> bool {
        self.settings.shared_tags
    }

    fn contexts(&self) -> u32 {
        self.first.contexts.into()
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
                name: "d".into(),
                scheduler: Kind::MqDeadline,
                set: Vec::new(),
                depth: own,
                shared_tags: false,
                if_rotational: None,
                nr_requests: None,
                io_timeout: None,
                concurrency: concurrency::Settings { most, fixed: false },
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
