//! Preemption: who need not wait for the end of a slice.
//!
//! P1  Anybody takes over from the idle class, the real-time class from the others in its group; a synchronous request from
//!     an asynchronous flow, whatever its group.
//! P2  A synchronous flow that the device is not held for takes over from one of its kind, in its group, that has nothing
//!     waiting; as does one whose request is close to the head while the device is held idle for another.
//! P3  Metadata takes over from data in its group, once in a slice of the other.
//! P4  Who takes over in its own group has the device at once; else the order of groups decides.

use super::Cfq;
use super::flow::Service;
use super::slice::Keep;
use crate::sched::Waiting;
use crate::trace::Note;
use crate::{Flags, PriorityClass};

impl Cfq {
    /// A request came to a flow: does it take over?
    pub(super) fn preempt(&mut self, number: u32, request: &Waiting) {
        let Some(turn) = self.turn else { return };
        if turn.flow == number || !self.takes_over(number, request) {
            return;
        }
        self.counts.preemptions += 1;
        let same_group = self.flows[turn.flow].group == self.flows[number].group;
        let (group, stream) = (self.flows[number].group, request.stream);
        self.note(group, Some(stream), Note::Preempted);
        self.expire(self.now);
        if same_group && self.flows[number].is_busy {
            self.serving = None;
            self.begin(number); // P4
        }
    }

    fn takes_over(&self, number: u32, request: &Waiting) -> bool {
        let Some(turn) = self.turn else { return false };
        let (new, old) = (&self.flows[number], &self.flows[turn.flow]);
        let class = |is| (new.priority.class == is, old.priority.class == is);
        match class(PriorityClass::Idle) {
            (true, _) => return false,
            (false, true) => return true, // P1
            (false, false) => {}
        }
        if class(PriorityClass::RealTime) == (false, true) {
            return false;
        }
        if new.sync && !old.sync {
            return true; // P1
        }
        if new.group != old.group || !new.sync {
            return false;
        }
        if class(PriorityClass::RealTime) == (true, false) {
            return true; // P1
        }
        let is_waiting = old.line.is_empty();
        if is_waiting && new.service == Service::SyncNoidle && old.service == Service::SyncNoidle {
            return true; // P2
        }
        if Self::is_metadata(request) && !self.has_metadata(turn.flow) {
            return true; // P3
        }
        let is_held = is_waiting && matches!(self.keep(), Some(Keep::Wait(Some(_))));
        is_held && self.is_close(request.extent.start) && !new.is_seeky() // P2
    }

    fn is_metadata(request: &Waiting) -> bool {
        request.flags.contains(Flags::PRIO) || request.flags.contains(Flags::META)
    }

    fn has_metadata(&self, number: u32) -> bool {
        let Some(oldest) = self.flows[number].line.oldest() else { return false };
        let flags = self.table.flags(oldest);
        flags.contains(Flags::PRIO) || flags.contains(Flags::META)
    }
}
