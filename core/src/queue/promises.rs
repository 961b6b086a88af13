//! What groups were promised: the floor of each, and the time that most of its requests take at most. Each answer to a group with a
//! latency is looked at ([`objective`](crate::objective)), and the scheduler hears of it.

use alloc::collections::BTreeMap;

use super::shortage::Seen;
use super::{BioState, Groups, Present, Queue};
use crate::ceiling::Rates;
use crate::group::GroupId;
use crate::objective::{Objective, Standing};
use crate::sched::Scheduler;
use crate::{Bio, Duration, Instant, Op};

/// What groups were promised on this disk.
#[derive(Default)]
pub(super) struct Promises {
    floors: BTreeMap<GroupId, Rates>,
    latencies: BTreeMap<GroupId, Objective>,
    /// What the disk was seen to do while a group was below its floor.
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

    /// A group is no more.
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
        let BioState { bio: Bio { op, stream, .. }, asked, timed_out, .. } = *bio;
        if timed_out || !matches!(op, Op::Read | Op::Write) {
            return;
        }
        let mut at = Some(groups.stream(stream).stream.group);
        while let Some(id) = at {
            if let Some(objective) = self.latencies.get_mut(&id) {
                let latency = now.since(asked);
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
            scheduler.set_latency(now, *id, Some(objective.target()));
        }
    }
}

impl Queue {
    /// Says how long 99 of 100 reads and writes of a group, and of those below it, are to take at most, or says nothing
    /// of it; works under load. Others make room for it if the scheduler [does
    /// that](crate::sched::Kind::keeps_latency).
    ///
    /// # Panics
    /// If the group does not exist.
    pub fn set_latency(&mut self, now: Instant, id: GroupId, target: Option<Duration>) {
        assert!(self.groups.has(id), "no group {id:?}");
        if self.promises.latencies.get(&id).map(Objective::target) == target {
            return;
        }
        match target {
            None => self.promises.latencies.remove(&id),
            Some(target) => self.promises.latencies.insert(id, Objective::new(target)),
        };
        self.scheduler.set_latency(now, id, target);
    }

    /// How the latencies of groups are kept.
    pub fn objectives(&self, now: Instant) -> impl Iterator<Item = (GroupId, Standing)> + '_ {
        self.promises.latencies.iter().map(move |(id, one)| (*id, one.standing(now, self.scheduler.room(now, *id))))
    }
}
