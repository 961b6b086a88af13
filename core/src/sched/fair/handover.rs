//! Handover: what outlasts a change of bounds or of scheduler.
//!
//! fair.10  With another depth of the device only rungs beyond it are given up: findings on the disk, and on depths that it has, stay.
//! fair.11  Requests of another scheduler that are still in the device count as being there: the device is not given its depth
//!     twice.
//! fair.13  A scheduler begins with the findings of the one before it on the disk: the costs of requests, and the speeds of depths. That of
//!     another server hands on the places and debts of groups, too. Its tenants come back with
//!     all their outstanding requests at once, so each has its places from its first request on. A tenant that is a stream begins anew.

use super::cost::Costs;
use super::{Charged, Fair};
use crate::learn::pace::Pace;
use crate::record::{Record, Unreadable};

impl Fair {
    /// fair.10
    pub(super) fn fit(&mut self, capacity: usize, depth: u16) {
        self.waitings.grow_to(capacity);
        self.shapes.resize(capacity.max(self.shapes.len()), Charged::default());
        self.depth_max = u32::from(depth).max(1);
        self.depth.set_given(self.given());
        self.depth.set_most(self.depth_max);
        self.limit_may_be_another();
    }

    /// fair.13
    pub(super) fn hand_learned_on(&self, into: &mut Record) {
        // The pace is counted in costs.
        if self.costs.are_learned() {
            self.costs.hand_on(into);
            self.pace.hand_on(into);
        }
        self.depth.hand_on(into);
    }

    /// fair.13. Costs that a setting gives stay what they are.
    pub(super) fn take_learned_on(&mut self, from: &mut Record) -> Result<(), Unreadable> {
        let (mut given, mut own) = (Costs::new(None), Pace::default());
        let (costs, pace) = match self.settings.cost_model {
            None => (&mut self.costs, &mut self.pace),
            Some(_) => (&mut given, &mut own),
        };
        // Each part stands or falls alone (record.2); the first that falls is told.
        let of_costs = costs.take_on(from);
        let mut unused = Pace::default();
        let pace = if costs.are_learned() { pace } else { &mut unused }; // it is counted in them
        let taken = [of_costs, pace.take_on(from), self.depth.take_on(from)];
        self.depth.set_given(self.given());
        self.limit = self.depth.limit();
        taken.into_iter().collect()
    }

    pub(super) fn limit_may_be_another(&mut self) {
        let before = self.limit;
        self.limit = self.depth.limit();
        if self.limit != before {
            self.give_places(false);
        }
    }
}
