//! Objectives: each answer to a group with a latency is looked at ([`objective`](crate::objective)), and the scheduler
//! hears of it.

use super::{BioState, Queue};
use crate::group::GroupId;
use crate::objective::{Objective, Standing};
use crate::{Bio, Duration, Instant, Op};

impl Queue {
    /// Says how long 99 of 100 reads and writes of a group, and of those below it, are to take at most, or says nothing
    /// of it; works under load. Others make room for it if the scheduler [does
    /// that](crate::sched::Kind::keeps_latency).
    ///
    /// # Panics
    /// If the group does not exist.
    pub fn set_latency(&mut self, now: Instant, id: GroupId, target: Option<Duration>) {
        assert!(self.has_group(id), "no group {id:?}");
        if self.objectives.get(&id).map(Objective::target) == target {
            return;
        }
        match target {
            None => self.objectives.remove(&id),
            Some(target) => self.objectives.insert(id, Objective::new(target)),
        };
        self.scheduler.set_latency(now, id, target);
    }

    /// How the latencies of groups are kept.
    pub fn objectives(&self, now: Instant) -> impl Iterator<Item = (GroupId, Standing)> + '_ {
        self.objectives.iter().map(move |(id, one)| (*id, one.standing(now, self.scheduler.room(now, *id))))
    }

    /// A bio has ended, or its time has run out, where groups have latencies.
    #[cold]
    pub(super) fn answered(&mut self, now: Instant, number: u32) {
        let BioState { bio: Bio { op, stream, .. }, asked, timed_out, .. } = self.bios[number];
        if timed_out || !matches!(op, Op::Read | Op::Write) {
            return;
        }
        let mut at = Some(self.streams[stream.0 as usize].stream.group);
        while let Some(id) = at {
            if let Some(objective) = self.objectives.get_mut(&id) {
                let latency = now.since(asked);
                objective.answered(now, latency);
                self.scheduler.answered(now, id, latency);
            }
            at = self.groups.parent(id);
        }
    }
}
