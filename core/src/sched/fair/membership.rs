//! Membership: streams and groups come, change and go.

use super::{Fair, GroupState, NIL, Queue, weight_of};
use crate::ceiling::Rates;
use crate::objective::Room;
use crate::sched::Membership;
use crate::sched::fair::admission::TenantId;
use crate::sched::fair::cost::Track;
use crate::sched::fair_queue::{Arrival, Leaf};
use crate::sched::request_list::RequestList;
use crate::{Duration, Group, GroupId, Instant, Stream, StreamId};

impl Membership for Fair {
    fn add_stream(&mut self, id: StreamId, stream: &Stream) {
        let Stream { group, priority, .. } = *stream;
        let of = self.groups[usize::from(group.0)].order;
        let q = self.order.add_queue(of, priority.class, weight_of(priority)).0;
        if self.queues.len() <= q as usize {
            self.queues.resize_with(q as usize + 1, || None);
        }
        let own = self.tenants.add(GroupId::ROOT, Some((q, weight_of(priority))));
        self.queues[q as usize] =
            Some(Queue { line: RequestList::new(q), group, priority, own, track: Track::NEW, in_flight: 0, paid: 0 });
        let at = id.0 as usize;
        if self.homes.len() <= at {
            self.homes.resize(at + 1, NIL);
        }
        self.homes[at] = q;
    }

    fn remove_stream(&mut self, id: StreamId) {
        let q = core::mem::replace(&mut self.homes[id.0 as usize], NIL);
        let queue = self.queues[q as usize].take().expect("the stream has a queue");
        assert!(queue.line.is_empty(), "stream {} goes, and its requests wait", id.0);
        self.tenants.remove(queue.own);
        self.order.remove_queue(Leaf(q));
    }

    fn change_stream(&mut self, now: Instant, id: StreamId, stream: &Stream) {
        let q = self.homes[id.0 as usize];
        let Stream { group, priority, .. } = *stream;
        let (from, waiting) = (self.queue(q).group, self.queue(q).line.len());
        let before = self.tenant(q, from);
        let after = self.tenant(q, group);
        if before != after {
            (0..waiting).for_each(|_| self.tenants.left(now, before));
            (0..waiting).for_each(|_| self.tenants.came(now, after));
        }
        let has_room = before != after && self.move_requeued(now, id, before, after);
        let queue = self.queue_mut(q);
        (queue.group, queue.priority) = (group, priority);
        let own = queue.own;
        self.tenants.set_weight(own, weight_of(priority));
        self.order.set_queue_weight(Leaf(q), weight_of(priority));
        self.order.set_queue_class(Leaf(q), priority.class);
        self.order.move_queue(Leaf(q), self.groups[usize::from(group.0)].order);
        if self.floors.are_some() {
            [from, group].into_iter().for_each(|group| self.floors.touch(group));
            self.count_waiting();
        }
        self.wake(q, after);
        if has_room {
            self.release(q, from);
        }
    }

    fn set_group(&mut self, _now: Instant, id: GroupId, group: &Group) {
        let at = usize::from(id.0);
        if self.groups.len() <= at {
            let none = GroupState { is_there: false, order: GroupId::ROOT, tenant: None, written: 0, covered: 0 };
            self.groups.resize(at + 1, none);
        }
        self.tenants.set_group(id, group);
        if self.groups[at].is_there {
            self.floors.set_group(id, self.groups[at].order, group);
            return self.floors.tell_weight(id, &mut self.order);
        }
        let (order, tenant) = match group.parent {
            Some(parent) => {
                self.becomes_inner(parent);
                let parent = self.groups[usize::from(parent.0)].order;
                (self.order.add_group(parent, group.weight.into()), Some(self.tenants.add(id, None)))
            }
            None => (GroupId::ROOT, None),
        };
        self.floors.set_group(id, order, group);
        self.groups[at] = GroupState { is_there: true, order, tenant, written: 0, covered: 0 };
    }

    fn set_floor(&mut self, now: Instant, id: GroupId, floor: &Rates) {
        if self.floors.set(now, id, floor, &mut self.order) {
            self.count_waiting();
        }
        let order = self.groups[usize::from(id.0)].order;
        if id != GroupId::ROOT {
            // A group that was held because its places were taken goes on (floor.5).
            self.order.unthrottle(order, Arrival::Present { credit: 0 });
            self.floors.touch(id);
        }
    }

    fn limited(&mut self, id: StreamId, group: GroupId) {
        let q = self.homes[id.0 as usize];
        self.tenants.limited(self.tenant(q, group));
    }

    fn set_latency(&mut self, now: Instant, id: GroupId, target: Option<Duration>) {
        self.latency.set(id, target);
        self.make_room(now);
    }

    fn answered(&mut self, now: Instant, id: GroupId, latency: Duration) {
        if self.latency.answered(now, id, latency, self.depth.present()) {
            self.make_room(now);
        }
    }

    fn room(&self, now: Instant, id: GroupId) -> Room {
        self.latency.room(now, id)
    }

    fn is_below_floor(&self) -> bool {
        self.floors.is_behind()
    }

    fn remove_group(&mut self, now: Instant, id: GroupId) {
        self.floors.set(now, id, &Rates::NONE, &mut self.order);
        self.set_latency(now, id, None);
        let group = &mut self.groups[usize::from(id.0)];
        group.is_there = false;
        self.floors.remove_group(id);
        let (order, tenant) = (group.order, group.tenant.take());
        if let Some(tenant) = tenant {
            self.tenants.remove(tenant);
            if let Some(above) = self.groups[usize::from(self.tenants.above(id).0)].tenant {
                self.tenants.has_less_below(above);
            }
        }
        self.order.remove_group(order);
    }
}

impl Fair {
    /// A stream's requests that the device turned back wait too, though they were sent: they count for the tenant that the stream is now.
    /// Returns whether its former tenant has room again, and had none.
    fn move_requeued(&mut self, now: Instant, stream: StreamId, before: TenantId, after: TenantId) -> bool {
        let (mut next, mut has_room) = (self.waitings.requeued(), false);
        while let Some(id) = next {
            next = self.waitings.requeued_before(id);
            if self.waitings.stream(id) == stream {
                self.tenants.left(now, before);
                self.tenants.came(now, after);
                self.tenants.brought(after);
                has_room |= self.tenants.has_room_again(before);
            }
        }
        has_room
    }

    /// A group has a group below it: its own streams are not held, or those of the group below would be.
    fn becomes_inner(&mut self, group: GroupId) {
        if let Some(tenant) = self.groups[usize::from(group.0)].tenant
            && self.tenants.never_hold(tenant)
        {
            self.release(NIL, group);
        }
    }
}
