//! Who asks: streams and groups, and which queue is whose.

use super::*;

/// A queue's weight among its siblings follows from its level.
fn weight_of(priority: Priority) -> u32 {
    (8 - u32::from(priority.level)) * 10
}

impl Bfq {
    pub(super) fn put_group(&mut self, id: GroupId, group: &Group) {
        let index = usize::from(id.0);
        if self.groups.len() <= index {
            let none = GroupState { asyncs: [[NIL; 8]; PriorityClass::COUNT], fair: GroupId::ROOT, is_there: false };
            self.groups.resize(index + 1, none);
        }
        if self.groups[index].is_there {
            return self.fair.set_group_weight(self.groups[index].fair, group.weight.into());
        }
        self.groups[index].is_there = true;
        self.merging.add_group(id.0);
        if let Some(parent) = group.parent {
            let parent = self.groups[usize::from(parent.0)].fair;
            self.groups[index].fair = self.fair.add_group(parent, group.weight.into());
        }
    }

    pub(super) fn drop_group(&mut self, id: GroupId) {
        let group = &mut self.groups[usize::from(id.0)];
        group.is_there = false;
        let fair = group.fair;
        for q in core::mem::replace(&mut group.asyncs, [[NIL; 8]; 3]).into_iter().flatten().filter(|q| *q != NIL) {
            self.drop_queue(q);
        }
        self.fair.remove_group(fair);
    }

    pub(super) fn put_stream(&mut self, id: StreamId, stream: &Stream) {
        let home = self.new_queue(stream.group, stream.priority, true);
        self.merging.add_stream(id.0, home);
    }

    pub(super) fn drop_stream(&mut self, id: StreamId) {
        let home = self.merging.home_of(id.0);
        let used = self.merging.remove_stream(id.0);
        self.queue_mut(home).is_left = true;
        self.drop_if_unused(home);
        if used != home {
            self.drop_if_unused(used);
        }
    }

    fn new_queue(&mut self, group: GroupId, priority: Priority, is_sync: bool) -> u32 {
        let of = self.groups[usize::from(group.0)].fair;
        let q = self.fair.add_queue(of, priority.class, weight_of(priority)).0;
        if self.queues.len() <= q as usize {
            self.queues.resize_with(q as usize + 1, || None);
        }
        let max = self.budget_max();
        self.queues[q as usize] = Some(Queue {
            line: Line::new(q),
            group,
            priority,
            is_sync,
            in_flight: 0,
            budget_max: if is_sync { (max * 2 / 3).max(1) } else { max },
            left: 0,
            ran_empty: false,
            is_left: false,
            think: ThinkTime::new(),
            seeks: Seekiness::new(),
            position: Sector(0),
        });
        self.merging.add_queue(q);
        q
    }

    pub(super) fn drop_queue(&mut self, q: u32) {
        let queue = self.queue(q);
        assert!(queue.line.is_empty() && queue.in_flight == 0, "a queue is dropped with requests");
        self.end_turn_of(q);
        self.fair.remove_queue(Leaf(q));
        self.queues[q as usize] = None;
    }

    /// Ends the turn of a queue, if it has one: it waits.
    pub(super) fn end_turn_of(&mut self, q: u32) {
        if self.turn.is_some_and(|turn| turn.queue == q) {
            self.turn = None;
            let budget = self.budget(q);
            self.fair.expire(Some(budget));
        }
    }

    /// The queue that a request is for; the async queue of its kind may not be there yet.
    pub(super) fn queue_of(&self, request: &Waiting) -> Option<u32> {
        let q = if is_sync(request.op, request.flags) {
            self.merging.queue_of(request.stream.0)
        } else {
            let Priority { class, level } = request.priority;
            self.groups[usize::from(request.group.0)].asyncs[class as usize][usize::from(level)]
        };
        (q != NIL).then_some(q)
    }

    pub(super) fn queue_for(&mut self, request: &Waiting) -> u32 {
        self.queue_of(request).unwrap_or_else(|| {
            let Priority { class, level } = request.priority;
            let q = self.new_queue(request.group, request.priority, false);
            self.groups[usize::from(request.group.0)].asyncs[class as usize][usize::from(level)] = q;
            q
        })
    }

    pub(super) fn alter_stream(&mut self, now: Instant, id: StreamId, stream: &Stream) {
        let q = self.merging.home_of(id.0);
        let (old_group, old) = (self.queue(q).group, self.queue(q).priority);
        if (old_group, old) == (stream.group, stream.priority) {
            return;
        }
        self.part_from_others(now, id);
        // Its sync queue goes along.
        self.end_turn_of(q);
        self.fair.set_queue_class(Leaf(q), stream.priority.class);
        self.fair.set_queue_weight(Leaf(q), weight_of(stream.priority));
        self.fair.move_queue(Leaf(q), self.groups[usize::from(stream.group.0)].fair);
        let queue = self.queue_mut(q);
        (queue.group, queue.priority) = (stream.group, stream.priority);
        self.tell_head(q);
        // What it wrote behind its back leaves the queue that it shares.
        let from = self.groups[usize::from(old_group.0)].asyncs[old.class as usize][usize::from(old.level)];
        if from != NIL && !self.queue(from).line.is_empty() {
            let to = self.groups[usize::from(stream.group.0)].asyncs[stream.priority.class as usize]
                [usize::from(stream.priority.level)];
            let to = if to == NIL {
                let to = self.new_queue(stream.group, stream.priority, false);
                self.groups[usize::from(stream.group.0)].asyncs[stream.priority.class as usize]
                    [usize::from(stream.priority.level)] = to;
                to
            } else {
                to
            };
            let mut source = self.queues[from as usize].take().expect("it exists");
            let target = self.queues[to as usize].as_mut().expect("it exists");
            let was_open = target.in_flight > 0 || !target.line.is_empty();
            source.line.move_to(&mut self.waitings, &mut target.line, |other| other == id);
            let is_open = |queue: &Queue| queue.in_flight > 0 || !queue.line.is_empty();
            self.open += u32::from(!was_open && is_open(target));
            self.open -= u32::from(!is_open(&source));
            self.queues[from as usize] = Some(source);
            self.wake_if_waiting(now, to);
        }
    }
}
