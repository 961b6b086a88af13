//! Cooperators: flows that together read one run.
//!
//! cooperate.1  When a synchronous flow runs empty, and one of its group's flows of the same class and tree has a request within
//!     4 MiB of the head, neither of them seeking, that one has the device next (within preempt.4), and from now on the first one's
//!     stream asks through it: one run, read by several, takes one slice.
//! cooperate.2  Looked at are the few flows that would be served next: those that read together have been served alike.
//! cooperate.3  A flow of several streams that has become seeky parts at the next request of each, which takes along what waits of
//!     it: their runs are different ones.
//! cooperate.4  Not on devices that queue and do not rotate: there it costs, and gains nothing.

use super::Cfq;
use super::flow::NIL;
use crate::sched::Waiting;
use crate::trace::Note;
use crate::{Instant, Sector};

/// As close as this, in sectors, is the same run: 4 MiB, the kernel's `CFQQ_CLOSE_THR`.
const CLOSE: u64 = 8192;
/// How many flows are looked at (cooperate.2). Chosen: a bound on the time of a dispatch; Linux looks in a tree by position.
const LOOKS: usize = 8;

impl Cfq {
    pub(super) fn is_close(&self, place: Sector) -> bool {
        place.0.abs_diff(self.head.0) <= CLOSE
    }

    /// A flow that goes on where the present one stopped (cooperate.1).
    pub(super) fn cooperator(&self) -> Option<u32> {
        if !self.rotational && self.queues {
            return None; // cooperate.4
        }
        let turn = self.turn.as_ref()?;
        let flow = &self.flows[turn.flow];
        let is_eligible =
            flow.sync && flow.requests.is_empty() && flow.is_busy && turn.dispatched > 0 && !flow.is_seeky();
        if !is_eligible || self.groups[flow.group].busy_sync < 2 {
            return None;
        }
        let class = &self.groups[flow.group].classes[flow.priority.class as usize];
        let nodes = &self.flows.nodes;
        let first = class.services[flow.service as usize].tree.first(nodes);
        let next = core::iter::successors(first, |number| nodes.next(*number));
        next.take(LOOKS).find(|number| {
            let other = &self.flows[*number];
            let nearest = other.requests.nearest(&self.table, self.head);
            *number != turn.flow
                && !other.is_seeky()
                && nearest.is_some_and(|id| self.is_close(self.table.extent(id).start))
        })
    }

    /// The present turn is over, and another flow goes on with its run.
    pub(super) fn hand_over(&mut self, at: Instant, other: u32) {
        let Some(turn) = self.turn else { return };
        let stream = self.stream_of(turn.flow);
        self.expire(at);
        if self.may_begin(other) {
            self.begin(other);
        }
        // Streams that ask through this flow alone ask through the other one from now on.
        let Some(stream) = stream else { return };
        if self.flows[turn.flow].members != 1 || self.bindings[stream.0 as usize].through != turn.flow {
            return;
        }
        self.counts.merges += 1;
        self.note(self.flows[other].group, Some(stream), Note::Merged);
        self.flows[turn.flow].members -= 1;
        self.flows[other].members += 1;
        self.flows[other].splits = false;
        self.bindings[stream.0 as usize].through = other;
    }

    /// The flow for a request, once it has been seen whether its stream goes its own way again (cooperate.3).
    pub(super) fn flow_of(&mut self, request: &Waiting, sync: bool) -> u32 {
        if !sync {
            return self.async_flow(request.group.0, request.priority);
        }
        let binding = self.bindings[request.stream.0 as usize];
        assert!(binding.flow != NIL, "{:?} asks, and was never added", request.stream);
        if binding.through == binding.flow || !self.flows[binding.through].splits {
            return binding.through;
        }
        self.counts.splits += 1;
        self.note(self.flows[binding.through].group, Some(request.stream), Note::Parted);
        self.go_alone(request.stream);
        binding.flow
    }
}
