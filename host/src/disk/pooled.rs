//! A disk that several gateways share: what this one has of the pool in a period.
//!
//! pooled.1  Weights, bounds and depth of a period hold in the queues alone. What the operator set stays what the configuration in force
//!           says; a queue that is made anew begins with that, and has what holds in the pool from the next period on.

use std::collections::BTreeMap;

use fairlift_core::gateways::Allotment;
use fairlift_core::{GroupId, Instant};

use super::{Disk, Disks};

impl Disk {
    /// The groups, with the numbers by which queues know them.
    pub(crate) fn groups(&self) -> BTreeMap<String, GroupId> {
        let state = self.state();
        let root = (state.plan.root.path.clone(), GroupId::ROOT);
        std::iter::once(root).chain(state.groups.iter().map(|(id, group)| (group.path.clone(), *id))).collect()
    }

    /// How many requests may be in flight.
    pub(crate) fn depth(&self) -> u16 {
        self.state().plan.bounds().0
    }

    /// pooled.1: workers are to be woken then.
    fn take_turn(&self, now: Instant, turn: &Allotment) {
        let groups = self.groups();
        for mut queue in self.queues().iter().flat_map(|queues| queues.each()) {
            queue.share_depth(now, turn.depth);
            for (path, held) in &turn.groups {
                let there = groups.get(path).filter(|id| **id != GroupId::ROOT);
                if let Some(id) = there.filter(|id| queue.groups().group(**id).is_some()) {
                    queue.weigh(now, *id, held.weight);
                }
            }
        }
    }
}

impl Disks {
    /// Has the queues of a disk hold to this gateway's part of the pool, until the next turn.
    pub(crate) fn take_turn(&self, now: Instant, disk: &Disk, turn: &Allotment) {
        disk.take_turn(now, turn);
        let groups = disk.groups();
        for (path, held) in &turn.groups {
            if let Some(id) = groups.get(path).filter(|id| self.bounds_of(**id) != held.bounds) {
                self.set_bounds(now, *id, &held.bounds);
            }
        }
    }
}
