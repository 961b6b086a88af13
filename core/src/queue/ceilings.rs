//! Ceilings: what may not go yet waits before all else ([`crate::ceiling`]).
//!
//! queue.13  A bio that a ceiling holds is accepted, and waits before it is cut: it has no request, no tag and no place in the
//!     scheduler, and takes part in no merge. Let through, it goes on as if it had been submitted then; but how long it took is
//!     counted from when it was. So a group that is held takes no room from others.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Queue;
use crate::ceiling::{Budget, HeldBio, Rates};
use crate::group::{ContextId, GroupId, Weight};
use crate::waits::Part;
use crate::{Bio, Instant, Op};

impl Queue {
    /// What has waited for long enough goes on, as far as there is room.
    #[cold]
    pub(super) fn let_through(&mut self, now: Instant) {
        self.ceilings.wake_due(now);
        while self.ceilings.len() > 0 {
            if !self.intake.has_room(&self.settings, &self.requests, Op::Read) {
                self.contexts.starve(self.ceilings.contexts());
                return;
            }
            let Some(HeldBio { bio, asked, since, .. }) = self.ceilings.next(now) else { return };
            let stats = &mut self.groups.stream_mut(bio.stream).stats;
            stats.held(now.since(since));
            stats.times_mut(bio.op).spend(Part::Limit, now.since(since));
            self.take_in(now, asked, None, &bio);
        }
    }

    /// Gives a group a floor, or none ([`Rates::NONE`]); works under load. The scheduler keeps it, if
    /// it [has floors](crate::sched::Kind::has_floors); and ceilings above keep it whatever the scheduler.
    ///
    /// # Panics
    /// If the group does not exist.
    pub fn set_floor(&mut self, now: Instant, id: GroupId, floor: Rates) {
        assert!(self.groups.has(id), "no group {id:?}");
        self.promises.set_floor(now, id, floor);
        self.scheduler.set_floor(now, id, &floor);
        self.ceilings.set_floor(now, id, &floor);
    }

    /// What a group has here: its weight, the state of its ceiling, and its floor; `None`: it does not exist.
    #[must_use]
    pub fn bound(&self, id: GroupId) -> Option<(Weight, Option<&Arc<Budget>>, Rates)> {
        let group = &self.groups.get(id)?.group;
        Some((group.weight, self.ceilings.budget(id), self.promises.floor(id).copied().unwrap_or_default()))
    }

    /// Takes back what ceilings hold of a context, as if it had not been submitted: the oldest of each group first.
    pub fn take_held(&mut self, context: ContextId) -> Vec<Bio> {
        if self.ceilings.len() == 0 {
            return Vec::new();
        }
        let held = self.ceilings.take_back(|held| held.context == context);
        let bios = held.into_iter().map(|(_, held)| held.bio);
        bios.inspect(|bio| self.groups.stream_mut(bio.stream).open -= 1).collect()
    }
}
