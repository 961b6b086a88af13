//! Streams and their flows, as they come, go, and change (cfq.5).

use super::Cfq;
use super::flow::NIL;
use super::group::Group;
use crate::sched::{Membership, Waiting};
use crate::{GroupId, Instant, Priority, PriorityClass, Stream, StreamId};

/// The flows of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Binding {
    /// Its own flow; [`NIL`]: there is no such stream.
    pub(super) flow: u32,
    /// The flow that its synchronous requests go to: its own, or a cooperator's.
    pub(super) through: u32,
}

impl Membership for Cfq {
    fn add_stream(&mut self, id: StreamId, stream: &Stream) {
        let row = id.0 as usize;
        self.bindings.resize(self.bindings.len().max(row + 1), Binding { flow: NIL, through: NIL });
        let flow = self.flows.add(stream.group.0, stream.priority, true);
        self.flows[flow].members = 1;
        self.flows[flow].stream = id;
        self.bindings[row] = Binding { flow, through: flow };
        let floor = self.groups[stream.group.0].classes[stream.priority.class as usize].floor;
        self.flows[flow].served = floor;
        // So that its first write needs no memory.
        self.async_flow(stream.group.0, stream.priority);
    }

    fn remove_stream(&mut self, id: StreamId) {
        self.go_alone(id);
        let binding = core::mem::replace(&mut self.bindings[id.0 as usize], Binding { flow: NIL, through: NIL });
        if self.turn.is_some_and(|turn| turn.flow == binding.flow) {
            self.expire(self.now);
        }
        self.flows[binding.flow].members -= 1;
        self.flows[binding.flow].is_orphan = true;
        self.release(binding.flow);
    }

    fn change_stream(&mut self, now: Instant, id: StreamId, stream: &Stream) {
        self.now = now;
        let (group, priority) = (stream.group.0, stream.priority);
        let Binding { flow: old, through } = self.bindings[id.0 as usize];
        let (from, before) = (self.flows[old].home, self.flows[old].priority);
        if (from, before) == (group, priority) {
            return;
        }
        self.expire(self.now);
        self.go_alone(id);
        // A stream that shares its flow stays behind, in the flow that now is no stream's own.
        let own = if self.flows[old].members > 1 || through != old {
            let own = self.flows.add(group, priority, true);
            self.flows[own].members = 1;
            self.flows[own].stream = id;
            self.flows[old].members -= 1;
            self.flows[old].is_orphan = true;
            self.bindings[id.0 as usize] = Binding { flow: own, through: own };
            own
        } else {
            old
        };
        if own == old {
            if self.flows[old].is_busy {
                self.leave(old);
            }
            let flow = &mut self.flows[old];
            (flow.home, flow.group, flow.priority) = (group, group, priority);
            flow.served = self.groups[group].classes[priority.class as usize].floor;
            flow.idles = priority.class != PriorityClass::Idle;
            self.settle(old);
        } else {
            self.move_waiting(old, own, id);
        }
        let writes = self.groups[from].asyncs[Group::async_place(before)];
        let to = self.async_flow(group, priority);
        if writes != NIL && writes != to {
            self.move_waiting(writes, to, id);
        }
        self.move_requeued(id, own, to);
        if own != old {
            self.release(old);
        }
    }

    fn set_group(&mut self, now: Instant, id: GroupId, group: &crate::Group) {
        self.now = now;
        self.groups.set(id.0, group.parent.map(|parent| parent.0), group.weight.get());
    }

    fn remove_group(&mut self, now: Instant, id: GroupId) {
        self.now = now;
        if self.turn.is_some_and(|turn| self.flows[turn.flow].group == id.0) {
            self.expire(now);
        }
        self.serving = self.serving.filter(|serving| serving.group != id.0);
        for number in self.groups.remove(id.0) {
            self.flows.remove(number);
        }
    }
}

impl Cfq {
    /// A stream asks through its own flow again, and its waiting requests go along.
    pub(super) fn go_alone(&mut self, id: StreamId) {
        let Binding { flow, through } = self.bindings[id.0 as usize];
        if through == flow {
            return;
        }
        self.expire(self.now);
        self.bindings[id.0 as usize].through = flow;
        self.flows[flow].members += 1;
        self.move_waiting(through, flow, id);
        let left = &mut self.flows[through];
        left.members -= 1;
        left.splits &= left.members > 1;
        self.release(through);
    }

    /// Frees a flow that nobody asks through and that has nothing left to do.
    pub(super) fn release(&mut self, number: u32) {
        let flow = &self.flows[number];
        if !flow.is_orphan || flow.members > 0 || !flow.requests.is_empty() || flow.in_flight > 0 {
            return;
        }
        if self.turn.is_some_and(|turn| turn.flow == number) {
            self.expire(self.now);
        }
        if !self.flows[number].is_busy {
            self.flows.remove(number);
        }
    }

    fn move_waiting(&mut self, from: u32, to: u32, id: StreamId) {
        if from == to || self.flows[from].requests.is_empty() {
            return;
        }
        let (from_flow, to_flow) = self.flows.two(from, to);
        let moved = from_flow.requests.move_to(&mut self.table, &mut to_flow.requests, |stream| stream == id);
        if moved > 0 {
            self.settle(from);
            self.settle(to);
        }
    }

    /// Requests of a stream that the device turned back wait too: they count for the new flows.
    fn move_requeued(&mut self, id: StreamId, sync: u32, writes: u32) {
        let mut next = self.table.requeued();
        while let Some(request) = next {
            next = self.table.requeued_before(request);
            if self.table.stream(request) == id {
                let to = if self.flows[self.table.owner(request)].sync { sync } else { writes };
                self.recount(request, to);
            }
        }
    }

    /// A request that counts as in the device counts for another flow from now on.
    pub(super) fn recount(&mut self, request: crate::sched::RequestId, to: u32) {
        let from = self.table.owner(request);
        let old = self.unsent(request);
        self.table.set_owner(request, to);
        let group = self.flows[to].group;
        self.sent(request, group);
        if self.iops {
            self.place(old);
            self.place(group);
        }
        self.release(from);
    }

    /// The flow of a request, if it has one already.
    pub(super) fn flow_for(&self, request: &Waiting, sync: bool) -> Option<u32> {
        let number = if sync {
            self.bindings[request.stream.0 as usize].through
        } else {
            self.groups[request.group.0].asyncs[Group::async_place(request.priority)]
        };
        (number != NIL).then_some(number)
    }

    /// The flow for asynchronous writes of a priority.
    pub(super) fn async_flow(&mut self, group: u16, priority: Priority) -> u32 {
        let place = Group::async_place(priority);
        let number = self.groups[group].asyncs[place];
        if number != NIL {
            return number;
        }
        let number = self.flows.add(group, priority, false);
        self.flows[number].served = self.groups[group].classes[priority.class as usize].floor;
        self.groups[group].asyncs[place] = number;
        number
    }

    /// The stream that a flow is of, if it is of one.
    pub(super) fn stream_of(&self, number: u32) -> Option<StreamId> {
        let flow = &self.flows[number];
        (flow.sync && !flow.is_orphan).then_some(flow.stream)
    }
}
