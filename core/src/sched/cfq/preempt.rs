//! Preemption: which flows need not wait for the end of a slice.
//!
//! preempt.1  Anybody takes over from the idle class, the real-time class from the others in its group; a synchronous request from
//!     an asynchronous flow, whatever its group. But nobody takes over from a turn in which nothing was sent: a writer waits for the
//!     reads in the device (slice.6), each of them that ends brings another, and the writer would have turns without end and never write.
//! preempt.2  A synchronous flow that the device is not held for takes over from one of its kind, in its group, that has nothing
//!     waiting; as does one whose request is close to the head while the device is held idle for another.
//! preempt.3  Metadata takes over from data in its group, once in a slice of the other.
//! preempt.4  A flow that takes over has the device at once, if its group is being served or the next to be, and if it has had no
//!     more than a slice more than the least served of its class: no flow is passed over for ever. Else the order decides.

use super::Cfq;
use super::flow::{Flow, Service};
use super::slice::Keep;
use crate::PriorityClass;
use crate::sched::Waiting;
use crate::trace::Note;

impl Cfq {
    /// A request came to a flow: does it take over?
    pub(super) fn preempt(&mut self, number: u32, request: &Waiting) {
        let Some(turn) = self.turn else { return };
        if turn.flow == number || turn.dispatched == 0 || !self.takes_over(number, request) {
            return;
        }
        self.counts.preemptions += 1;
        let (group, stream) = (self.flows[number].group, request.stream);
        self.note(group, Some(stream), Note::Preempted);
        self.expire(self.now);
        if self.may_begin(number) {
            let Flow { group, service, priority, .. } = self.flows[number];
            // It takes over the rest of the time as well.
            self.serving = self.serving.filter(|serving| serving.group == group);
            if let Some(serving) = &mut self.serving {
                (serving.class, serving.service) = (priority.class, service);
            }
            self.begin(number);
        } else {
            self.serving = None;
        }
    }

    /// Whether a flow may have the device out of order (preempt.4).
    pub(super) fn may_begin(&self, number: u32) -> bool {
        let flow = &self.flows[number];
        let group = self.group_served().or_else(|| self.groups.first_ready());
        if !flow.is_busy || flow.requests.is_empty() || group != Some(flow.group) {
            return false;
        }
        let slice = self.settings.slice(flow.sync, flow.priority.level).as_nanos();
        let floor = self.groups[flow.group].classes[flow.priority.class as usize].floor;
        flow.served <= floor.saturating_add(flow.weigh(&self.settings, slice))
    }

    fn takes_over(&self, number: u32, request: &Waiting) -> bool {
        let Some(turn) = self.turn else { return false };
        let (new, old) = (&self.flows[number], &self.flows[turn.flow]);
        let class = |is| (new.priority.class == is, old.priority.class == is);
        match class(PriorityClass::Idle) {
            (true, _) => return false,
            (false, true) => return true, // preempt.1
            (false, false) => {}
        }
        if class(PriorityClass::RealTime) == (false, true) {
            return false;
        }
        if new.sync && !old.sync {
            return true; // preempt.1
        }
        if new.group != old.group || !new.sync {
            return false;
        }
        if class(PriorityClass::RealTime) == (true, false) {
            return true; // preempt.1
        }
        let is_waiting = old.requests.is_empty();
        if is_waiting && new.service == Service::SyncNoidle && old.service == Service::SyncNoidle {
            return true; // preempt.2
        }
        let has_metadata = || old.requests.oldest().is_some_and(|oldest| self.table.is_urgent(oldest.0));
        if request.flags.is_urgent() && !has_metadata() {
            return true; // preempt.3
        }
        let is_held = is_waiting && matches!(self.keep(), Some(Keep::Wait(Some(_))));
        is_held && self.is_close(request.extent.start) && !new.is_seeky() // preempt.2
    }
}
