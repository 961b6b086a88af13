//! Ceilings: what may not go yet waits before all else ([`crate::ceiling`]).
//!
//! queue.13  A bio that a ceiling holds is accepted, and waits before it is cut: it has no request, no tag and no place in the
//!     scheduler, and takes part in no merge. Let through, it goes on as if it had been submitted then; but how long it took is
//!     counted from when it was. So a group that is held takes no room from others.

use alloc::vec::Vec;

use super::Queue;
use super::contexts::Seeker;
use crate::ceiling::HeldBio;
use crate::group::ContextId;
use crate::waits::Part;
use crate::{Bio, Instant, Op};

impl Queue {
    /// Lets bios pass that have waited long enough, as far as there is room.
    #[cold]
    pub(super) fn let_through(&mut self, now: Instant) {
        self.ceilings.wake_due(now);
        let mut has_left = false;
        let is_waiting = loop {
            if !self.ceilings.are_awake() {
                break false;
            }
            if !self.has_room(Seeker::Ceilings, Op::Read) {
                break true;
            }
            let Some(HeldBio { bio, arrived, since, .. }) = self.ceilings.next(now) else { break false };
            has_left |= self.contexts.leave_line(Seeker::Ceilings);
            let stats = &mut self.groups.stream_mut(bio.stream).stats;
            stats.held(now.since(since));
            stats.times_mut(bio.op).spend(Part::Limit, now.since(since));
            self.take_in(now, arrived, None, &bio);
        };
        match is_waiting {
            true => self.contexts.wait_for_room(Seeker::Ceilings, self.ceilings.contexts), // queue.20
            false => has_left |= self.contexts.leave_line(Seeker::Ceilings),
        }
        if has_left {
            self.next_in_line();
        }
    }

    /// Takes back what ceilings hold of a context, as if it had not been submitted: the oldest of each group first.
    pub fn take_held(&mut self, context: ContextId) -> Vec<Bio> {
        if self.ceilings.len == 0 {
            return Vec::new();
        }
        let held = self.ceilings.take_back(|held| held.context == context);
        self.leave_line(Seeker::Ceilings);
        let bios = held.into_iter().map(|(_, held)| held.bio);
        bios.inspect(|bio| self.groups.stream_mut(bio.stream).open -= 1).collect()
    }
}
