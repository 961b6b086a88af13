//! Streams and groups, and the assignment of queues to them.

use super::merge::Moved;
use super::*;

/// A queue's weight among its siblings follows from its level (bfq.1).
fn weight_of(priority: Priority) -> u32 {
    (8 - u32::from(priority.level)) * 10
}

/// How many streams there are of each level.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Levels {
    streams: [u32; 8],
    /// One bit for each level that has some.
    present: u8,
}

impl Levels {
    fn add(&mut self, level: u8) {
        self.streams[usize::from(level)] += 1;
        self.present |= 1 << level;
    }

    fn remove(&mut self, level: u8) {
        let streams = &mut self.streams[usize::from(level)];
        *streams -= 1;
        if *streams == 0 {
            self.present &= !(1 << level);
        }
    }

    /// Whether there are streams of less weight than those of a level.
    #[inline]
    pub(super) const fn has_lighter(&self, level: u8) -> bool {
        self.present >> level > 1
    }
}

impl Membership for Bfq {
    fn set_group(&mut self, _now: Instant, id: GroupId, group: &Group) {
        let index = usize::from(id.0);
        let none = GroupState { asyncs: [[NIL; 8]; PriorityClass::COUNT], fair: GroupId::ROOT, is_there: false };
        self.groups.resize(self.groups.len().max(index + 1), none);
        if self.groups[index].is_there {
            return self.fair.set_group_weight(self.groups[index].fair, group.weight.into());
        }
        let fair = match group.parent {
            Some(parent) => self.fair.add_group(self.groups[usize::from(parent.0)].fair, group.weight.into()),
            None => GroupId::ROOT,
        };
        let state = &mut self.groups[index];
        (state.is_there, state.fair) = (true, fair);
        self.merging.add_group(id.0);
        self.competing.add_group(id);
        self.charges.add_group(id);
    }

    fn remove_group(&mut self, _now: Instant, id: GroupId) {
        let group = &mut self.groups[usize::from(id.0)];
        group.is_there = false;
        let fair = group.fair;
        let asyncs = core::mem::replace(&mut group.asyncs, [[NIL; 8]; PriorityClass::COUNT]);
        for q in asyncs.into_iter().flatten().filter(|q| *q != NIL) {
            self.drop_queue(q);
        }
        self.fair.remove_group(fair);
    }

    fn add_stream(&mut self, id: StreamId, stream: &Stream) {
        let index = id.0 as usize;
        self.homes.resize(self.homes.len().max(index + 1), NIL);
        let home = self.new_queue(stream.group, stream.priority, true);
        self.homes[index] = home;
        self.merging.add_stream(id.0, home);
        self.levels.add(stream.priority.level);
    }

    fn remove_stream(&mut self, id: StreamId) {
        let home = core::mem::replace(&mut self.homes[id.0 as usize], NIL);
        self.levels.remove(self.queue(home).priority.level);
        self.empty_home(Instant::ZERO, id, home);
        self.merging.remove_stream(id.0);
        if self.queue(home).in_flight > 0 {
            // Others', which have shared it. It cannot stay for them: its group may go before they end.
            for request in self.waitings.sent_of(home) {
                self.recount(request, self.merging.queue_of(self.waitings.stream(request).0));
            }
        }
        self.drop_queue(home);
    }

    fn change_stream(&mut self, now: Instant, id: StreamId, stream: &Stream) {
        self.now = now;
        let home = self.homes[id.0 as usize];
        let (group, priority) = (self.queue(home).group, self.queue(home).priority);
        if (group, priority) == (stream.group, stream.priority) {
            return;
        }
        self.levels.remove(priority.level);
        self.levels.add(stream.priority.level);
        self.empty_home(now, id, home);
        self.merging.set_head(home, group.0, None);
        self.end_turn_of(now, home);
        if self.fair.is_backlogged(Leaf(home)) {
            self.competing.go(group, priority.class);
            self.competing.come(stream.group, stream.priority.class);
        }
        let queue = self.queue_mut(home);
        (queue.group, queue.priority) = (stream.group, stream.priority);
        if stream.priority != Priority::default() && queue.raising.end() {
            self.lowered(home);
        }
        self.weigh(home);
        self.fair.set_queue_class(Leaf(home), stream.priority.class);
        self.fair.move_queue(Leaf(home), self.groups[usize::from(stream.group.0)].fair);
        debug_assert_eq!(self.competing, self.count_competing(), "after a stream was altered");
        self.head_changed(home);
        // Writes queued under the old group leave the queue that it shares.
        let from = self.async_queue(group, priority);
        if from != NIL && !self.queue(from).requests.is_empty() {
            let to = self.make_async_queue(stream.group, stream.priority);
            self.move_waiting(now, Moved { from, to }, id);
        }
        self.move_requeued(id, home, stream);
    }
}

impl Bfq {
    /// The stream goes home, and all others leave it.
    fn empty_home(&mut self, now: Instant, id: StreamId, home: u32) {
        if let Some(moved) = self.merging.leave(id.0) {
            self.move_waiting(now, moved, id);
        }
        while self.merging.users(home) > 1 {
            let guest = self.merging.users_of(home).find(|user| *user != id.0).expect("there is another one");
            if let Some(moved) = self.merging.leave(guest) {
                self.move_waiting(now, moved, StreamId(guest));
            }
        }
        // From when merging was switched off.
        while let Some(oldest) = self.queue(home).requests.oldest().map(|oldest| self.waitings.stream(oldest)) {
            if oldest == id {
                break;
            }
            let to = self.merging.queue_of(oldest.0);
            self.move_waiting(now, Moved { from: home, to }, oldest);
        }
    }

    /// Requests of a stream that the device turned back wait too, though they count as in flight: they go to the queues that the stream has
    /// now.
    fn move_requeued(&mut self, id: StreamId, home: u32, stream: &Stream) {
        let mut next = self.waitings.requeued();
        while let Some(request) = next {
            next = self.waitings.requeued_before(request);
            if self.waitings.stream(request) != id {
                continue;
            }
            let from = self.waitings.owner(request);
            let to = match self.queue(from).is_sync {
                true => home,
                false => self.make_async_queue(stream.group, stream.priority),
            };
            if from != to {
                self.recount(request, to);
            }
        }
    }

    /// A request that counts as in flight counts for another queue from now on.
    fn recount(&mut self, request: RequestId, to: u32) {
        let from = self.waitings.owner(request);
        self.waitings.set_owner(request, to);
        let target = self.queue_mut(to);
        let was_open = target.is_open();
        target.in_flight += 1;
        let source = self.queue_mut(from);
        source.in_flight -= 1;
        let is_open = source.is_open();
        if !was_open {
            self.opens(to);
        }
        if !is_open {
            self.closes(from);
        }
    }

    fn move_waiting(&mut self, now: Instant, moved: Moved, id: StreamId) {
        let Moved { from, to } = moved;
        let mut source = self.queues[from as usize].take().expect("the queue exists");
        let target = self.queues[to as usize].as_mut().expect("the queue exists");
        let before = (source.is_open(), target.is_open());
        source.requests.move_to(&mut self.waitings, &mut target.requests, |stream| stream == id);
        let (has_closed, has_opened) = (before.0 && !source.is_open(), !before.1 && target.is_open());
        self.queues[from as usize] = Some(source);
        if has_closed {
            self.closes(from);
        }
        if has_opened {
            self.opens(to);
        }
        self.head_changed(from);
        self.head_changed(to);
        self.wake_if_waiting(now, to);
    }

    // ---- queues ----

    fn new_queue(&mut self, group: GroupId, priority: Priority, is_sync: bool) -> u32 {
        let of = self.groups[usize::from(group.0)].fair;
        let q = self.fair.add_queue(of, priority.class, weight_of(priority)).0;
        self.queues.resize_with(self.queues.len().max(q as usize + 1), || None);
        self.queues[q as usize] = Some(Queue {
            requests: RequestList::new(q),
            group,
            priority,
            is_sync,
            ran_empty: false,
            in_flight: 0,
            budget: self.turns.budgets.first(),
            left: 0,
            think: ThinkTime::default(),
            seeks: Seekiness::default(),
            raising: WeightRaising::default(),
            position: Sector(0),
        });
        self.merging.add_queue(q);
        q
    }

    fn drop_queue(&mut self, q: u32) {
        let queue = self.queue(q);
        assert!(queue.requests.is_empty() && queue.in_flight == 0, "queue {q} is dropped with requests");
        let (group, class) = (queue.group, queue.priority.class);
        if self.turn.is_some_and(|turn| turn.queue == q) {
            self.turn = None; // The fair queue ends the slot itself.
        }
        self.merging.set_head(q, group.0, None);
        if self.fair.is_backlogged(Leaf(q)) {
            self.competing.go(group, class);
        }
        self.fair.remove_queue(Leaf(q));
        self.queues[q as usize] = None;
        debug_assert_eq!(self.competing, self.count_competing(), "after a queue was dropped");
    }

    /// Ends the turn of a queue, if it has one.
    fn end_turn_of(&mut self, now: Instant, q: u32) {
        if self.turn.is_some_and(|turn| turn.queue == q) {
            self.end_turn(now, Expiry::Preempted);
        }
    }

    fn async_queue(&self, group: GroupId, priority: Priority) -> u32 {
        self.groups[usize::from(group.0)].asyncs[priority.class as usize][usize::from(priority.level)]
    }

    pub(super) fn make_async_queue(&mut self, group: GroupId, priority: Priority) -> u32 {
        let q = self.async_queue(group, priority);
        if q != NIL {
            return q;
        }
        let q = self.new_queue(group, priority, false);
        self.groups[usize::from(group.0)].asyncs[priority.class as usize][usize::from(priority.level)] = q;
        q
    }

    /// The queue that a request would go to now; its async queue may not be there yet.
    pub(super) fn queue_of(&self, request: &Waiting) -> Option<u32> {
        let q = if request.is_sync() {
            self.merging.queue_of(request.stream.0)
        } else {
            self.async_queue(request.group, request.priority)
        };
        (q != NIL).then_some(q)
    }

    /// The queue that a request that came goes to; the stream may share another's from now on (bfq.8).
    pub(super) fn queue_for(&mut self, now: Instant, request: &Waiting) -> u32 {
        if !request.is_sync() {
            return self.make_async_queue(request.group, request.priority);
        }
        if self.merging.on {
            self.find_company(now, request);
        }
        self.merging.queue_of(request.stream.0)
    }

    fn find_company(&mut self, now: Instant, request: &Waiting) {
        let stream = request.stream;
        if let Some(moved) = self.merging.enter(stream.0) {
            self.move_waiting(now, moved, stream);
            self.queue_mut(moved.to).think.forget();
            self.note(moved.to, Some(stream), Note::Parted);
        }
        let own = self.merging.queue_of(stream.0);
        let home = self.homes[stream.0 as usize];
        if own != home {
            // The stream's own habits are known when it comes home: a stream that seeks is not taken in again at once.
            let seek = self.seek();
            self.queue_mut(home).seeks.arrived(request.extent, seek);
        }
        let queues = &self.queues;
        let queue = |q: u32| queues[q as usize].as_ref().expect("the queue exists");
        let (group, priority) = (queue(own).group, queue(own).priority);
        if priority.class == PriorityClass::Idle || queue(own).seeks.is_seeky(SEEKY) {
            return;
        }
        let in_service = self.turn.map(|turn| (turn.queue, queue(turn.queue).position));
        let asker = Asker { stream: stream.0, group: group.0, position: request.extent.start, in_service };
        let fits = |q: u32| {
            let other = queue(q);
            let is_alike = (other.group, other.priority) == (group, priority);
            is_alike && other.is_sync && !other.seeks.is_seeky(SEEKY)
        };
        if let Some(to) = self.merging.cooperator(now, &asker, fits) {
            let moved = self.merging.join(stream.0, to);
            self.note(to, Some(stream), Note::Merged);
            let raising = self.queue(own).raising;
            if self.queue_mut(to).raising.inherit(&raising) {
                self.raised(to);
            }
            self.move_waiting(now, moved, stream);
            if self.merging.users(moved.from) == 0 {
                self.end_turn_of(now, moved.from); // Nobody asks there any more, so nobody is waited for.
            }
        }
    }
}
