//! Promises to groups: the floor of each, and the time in which most of its requests end. Each answer to a group with a
//! latency is looked at ([`objective`](crate::objective)), and the scheduler hears of it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use super::shortage::{Seen, Shortage};
use super::{BioState, Groups, Present, Queue};
use crate::ceiling::{Budget, Rates};
use crate::group::GroupId;
use crate::objective::{Objective, Standing};
use crate::sched::Scheduler;
use crate::{Bio, Duration, Instant, Op};

#[derive(Default)]
pub(super) struct Promises {
    floors: BTreeMap<GroupId, Rates>,
    latencies: BTreeMap<GroupId, Objective>,
    /// The disk's throughput while a group was below its floor.
    pub(super) seen: Seen,
}

impl Promises {
    /// Gives a group a floor, or none.
    pub(super) fn set_floor(&mut self, now: Instant, id: GroupId, floor: Rates) {
        match floor.is_none() {
            true => self.floors.remove(&id),
            false => self.floors.insert(id, floor),
        };
        self.seen.begin(now);
    }

    /// Gives a group a latency, or none; whether it had another.
    fn set_latency(&mut self, id: GroupId, target: Option<Duration>) -> bool {
        if self.latencies.get(&id).map(|objective| objective.target) == target {
            return false;
        }
        match target {
            None => self.latencies.remove(&id),
            Some(target) => self.latencies.insert(id, Objective::new(target)),
        };
        true
    }

    pub(super) fn remove_group(&mut self, id: GroupId) {
        self.floors.remove(&id);
        self.latencies.remove(&id);
    }

    pub(super) fn floor(&self, id: GroupId) -> Option<&Rates> {
        self.floors.get(&id)
    }

    #[inline]
    pub(super) fn have_floors(&self) -> bool {
        !self.floors.is_empty()
    }

    /// A bio has ended, or its time has run out.
    #[inline]
    pub(super) fn answered(&mut self, now: Instant, bio: &BioState, groups: &Groups, scheduler: &mut Present) {
        if !self.latencies.is_empty() {
            self.look(now, bio, groups, scheduler);
        }
    }

    #[cold]
    fn look(&mut self, now: Instant, bio: &BioState, groups: &Groups, scheduler: &mut Present) {
        let BioState { bio: Bio { op, stream, .. }, arrived, timed_out, .. } = *bio;
        if timed_out || !matches!(op, Op::Read | Op::Write) {
            return;
        }
        let mut at = Some(groups.stream(stream).stream.group);
        while let Some(id) = at {
            if let Some(objective) = self.latencies.get_mut(&id) {
                let latency = now.since(arrived);
                objective.answered(now, latency);
                scheduler.answered(now, id, latency);
            }
            at = groups.parent(id);
        }
    }

    /// Tells another scheduler all of it.
    pub(super) fn tell(&self, now: Instant, scheduler: &mut dyn Scheduler) {
        for (id, floor) in &self.floors {
            scheduler.set_floor(now, *id, floor);
        }
        for (id, objective) in &self.latencies {
            scheduler.set_latency(now, *id, Some(objective.target));
        }
    }
}

/// The bounds of a group; none by default.
#[derive(Clone, Default, Debug)]
pub struct Bound {
    /// The state of its ceiling, which other queues may share (ceiling.8).
    pub budget: Option<Arc<Budget>>,
    /// Its floor, or none ([`Rates::NONE`]). The scheduler keeps it, if it [has floors](crate::sched::Kind::has_floors); and ceilings
    /// above keep it whatever the scheduler.
    pub floor: Rates,
    /// How long 99 of 100 reads and writes of it, and of the groups below it, are to take at most. Others make room for that if the
    /// scheduler [does so](crate::sched::Kind::keeps_latency).
    pub latency: Option<Duration>,
}

impl PartialEq for Bound {
    fn eq(&self, other: &Self) -> bool {
        let of = |bound: &Self| (bound.budget.as_ref().map(Arc::as_ptr), bound.floor, bound.latency);
        of(self) == of(other)
    }
}

/// How a disk keeps what groups were promised.
#[derive(Clone, Default, Debug)]
pub struct Kept {
    /// The latencies of groups.
    pub latencies: BTreeMap<GroupId, Standing>,
    /// Whether floors add up to more than the disk was seen to do (queue.16).
    pub short: Option<Shortage>,
}

impl Kept {
    /// Adds what another queue of the disk says.
    pub fn add(&mut self, other: &Self) {
        for (id, standing) in &other.latencies {
            self.latencies.entry(*id).and_modify(|sum| sum.add(standing)).or_insert(*standing);
        }
        self.short = self.short.or(other.short);
    }
}

impl Queue {
    /// Binds a group by these, and by nothing else any more; works under load. Contexts are to be asked for more after it.
    ///
    /// # Panics
    /// If the group does not exist.
    pub fn bind(&mut self, now: Instant, id: GroupId, bound: &Bound) {
        assert!(self.groups.has(id), "no group {id:?}");
        let Bound { budget, floor, latency } = bound;
        self.ceilings.set(now, id, budget.clone());
        self.promises.set_floor(now, id, *floor);
        self.scheduler.set_floor(now, id, floor);
        self.ceilings.set_floor(now, id, floor);
        if self.promises.set_latency(id, *latency) {
            self.scheduler.set_latency(now, id, *latency);
        }
    }

    /// The bounds of a group; `None`: it does not exist.
    #[must_use]
    pub fn bound(&self, id: GroupId) -> Option<Bound> {
        self.groups.group(id)?;
        let Promises { floors, latencies, .. } = &self.promises;
        let floor = floors.get(&id).copied().unwrap_or_default();
        let latency = latencies.get(&id).map(|objective| objective.target);
        Some(Bound { budget: self.ceilings.budget(id).cloned(), floor, latency })
    }

    /// How it keeps what groups were promised.
    #[must_use]
    pub fn kept(&self, now: Instant) -> Kept {
        let latencies = self.promises.latencies.iter();
        let standing = |id: GroupId, one: &Objective| one.standing(now, self.scheduler.room(now, id));
        Kept {
            latencies: latencies.map(|(id, one)| (*id, standing(*id, one))).collect(),
            short: self.promises.shortage(&self.groups),
        }
    }
}
