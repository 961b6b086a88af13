//! Disks: those of a server, which come and go, and the bounds of groups on all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fairlift_core::ceiling::{Bounds, Budget, Ceiling};
use fairlift_core::queue;
use fairlift_core::{GroupId, Instant};

use super::Disk;
use crate::sync::{Mutex, lock};

pub(crate) struct Disks {
    list: Mutex<Vec<Option<Arc<Disk>>>>,
    changes: AtomicU64,
    /// The bounds of groups on all disks; ceilings hold for all disks together (ceiling.8).
    bounds: Mutex<GroupBounds>,
}

impl Disks {
    pub(crate) fn new(disks: Vec<Arc<Disk>>) -> Arc<Self> {
        let list = Mutex::new(disks.into_iter().map(Some).collect());
        Arc::new(Self { list, changes: AtomicU64::new(0), bounds: Mutex::default() })
    }

    /// Gives a group other bounds, on all disks; workers are to be woken then.
    pub(crate) fn set_bounds(&self, now: Instant, id: GroupId, bounds: &Bounds) {
        let mut all = lock(&self.bounds);
        let (bound, goes_on) = Bound::new(now, bounds, all.remove(&id).unwrap_or_default().of_queue.budget);
        self.all().iter().for_each(|(_, disk)| disk.set_bound(now, id, &bound, goes_on));
        if bound != Bound::default() {
            all.insert(id, bound);
        }
    }

    pub(super) fn budget_of(&self, id: GroupId) -> Option<Arc<Budget>> {
        let all = lock(&self.bounds);
        all.get(&id)?.of_queue.budget.clone()
    }

    pub(crate) fn budgets(&self) -> Vec<(GroupId, Arc<Budget>)> {
        let all = lock(&self.bounds);
        all.iter().filter_map(|(id, bound)| Some((*id, Arc::clone(bound.of_queue.budget.as_ref()?)))).collect()
    }

    /// Number of changes of the list of disks: a caller with another number has to [look](Self::look).
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The disk at each number, with the number of the change.
    pub(crate) fn look(&self) -> (u64, Vec<Option<Arc<Disk>>>) {
        let list = lock(&self.list);
        (self.changes(), list.clone())
    }

    /// Those that there are, each with its number.
    pub(crate) fn all(&self) -> Vec<(usize, Arc<Disk>)> {
        let there = |(number, disk): (usize, &Option<_>)| Some((number, Option::clone(disk)?));
        lock(&self.list).iter().enumerate().filter_map(there).collect()
    }

    pub(crate) fn get(&self, number: usize) -> Arc<Disk> {
        self.find(number).expect("a disk is there as long as something is on it")
    }

    /// The one at a number, if one is there.
    pub(crate) fn find(&self, number: usize) -> Option<Arc<Disk>> {
        lock(&self.list).get(number).cloned().flatten()
    }

    /// Puts a disk (`None`: nothing) at a number, which is at most the next one; workers are to be woken then.
    pub(crate) fn set(&self, number: usize, disk: Option<Arc<Disk>>) {
        if let Some(disk) = &disk {
            lock(&self.bounds).iter().for_each(|(id, bound)| disk.set_bound(Instant::ZERO, *id, bound, false));
        }
        let mut list = lock(&self.list);
        match list.get_mut(number) {
            Some(old) => *old = disk,
            None => list.push(disk),
        }
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// The first number from one on that no disk has.
    pub(crate) fn free_from(&self, first: usize) -> usize {
        let list = lock(&self.list);
        (first..).find(|number| list.get(*number).is_none_or(Option::is_none)).expect("there is always another number")
    }
}

#[derive(Clone, Default)]
pub(crate) struct Bound {
    /// The bounds as queues have them.
    pub(super) of_queue: queue::Bound,
    /// The ceiling to which the budget in it belongs.
    pub(super) ceiling: Ceiling,
}

impl Bound {
    /// Bounds, with the budget that a ceiling had before, if there was one; whether that goes on.
    pub(super) fn new(now: Instant, bounds: &Bounds, budget: Option<Arc<Budget>>) -> (Self, bool) {
        let Bounds { ceiling, floor, latency } = *bounds;
        let before = budget.filter(|_| !ceiling.is_none());
        let is_same = before.is_some();
        if let Some(there) = &before {
            there.set(now, &ceiling);
        }
        let budget = before.or_else(|| (!ceiling.is_none()).then(|| Arc::new(Budget::new(&ceiling))));
        (Self { of_queue: queue::Bound { budget, floor, latency }, ceiling }, is_same)
    }

    pub(super) const fn bounds(&self) -> Bounds {
        Bounds { ceiling: self.ceiling, floor: self.of_queue.floor, latency: self.of_queue.latency }
    }
}

impl PartialEq for Bound {
    fn eq(&self, other: &Self) -> bool {
        self.of_queue == other.of_queue
    }
}

pub(crate) type GroupBounds = BTreeMap<GroupId, Bound>;
