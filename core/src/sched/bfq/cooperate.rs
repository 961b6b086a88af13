//! Streams that read one place in turns, and the queue that they share: what [`merge`](super::merge) decides is done here.

use super::dispatch::SEEKY;
use super::merge::{Asker, Moved};
use super::*;

impl Bfq {
    /// Whether queues are merged is as the device is, or as was said.
    pub(super) fn switch_merging(&mut self, now: Instant) {
        let on = match self.settings.queue_merging {
            0 => false,
            1 => true,
            _ => self.is_rotational || !self.queueing.is_queueing(),
        };
        if on == self.merging.is_on() {
            return;
        }
        if !on {
            self.send_all_home(now);
        }
        self.merging.set_on(on);
        for q in (0..self.queues.len() as u32).filter(|_| on) {
            if self.queues[q as usize].is_some() {
                self.tell_head(q);
            }
        }
    }

    fn send_all_home(&mut self, now: Instant) {
        let streams: Vec<u32> = self.merging.streams().collect();
        for stream in streams {
            if let Some(moved) = self.merging.leave(stream) {
                self.move_requests(now, StreamId(stream), moved);
            }
        }
    }

    /// A stream asks: does it use the right queue?
    pub(super) fn cooperate(&mut self, now: Instant, request: &Waiting) {
        if !is_sync(request.op, request.flags) {
            return;
        }
        let stream = request.stream.0;
        if let Some(moved) = self.merging.enter(stream) {
            self.move_requests(now, request.stream, moved);
        }
        let own = self.queue(self.merging.queue_of(stream));
        if own.priority.class == PriorityClass::Idle || own.seeks.is_seeky(SEEKY) {
            return;
        }
        let in_service = self.turn.map(|turn| (turn.queue, self.queue(turn.queue).position));
        let asker = Asker { stream, group: request.group.0, position: request.extent.start, in_service };
        let (group, priority) = (own.group, own.priority);
        let queues = &self.queues;
        let together = |q: u32| {
            queues[q as usize].as_ref().is_some_and(|queue| {
                queue.is_sync && (queue.group, queue.priority) == (group, priority) && !queue.seeks.is_seeky(SEEKY)
            })
        };
        if let Some(to) = self.merging.cooperator(now, &asker, together) {
            let moved = self.merging.join(stream, to);
            self.move_requests(now, request.stream, moved);
        }
    }

    /// What waits of a stream goes along.
    fn move_requests(&mut self, now: Instant, stream: StreamId, moved: Moved) {
        let Moved { from, to } = moved;
        let mut source = self.queues[from as usize].take().expect("it exists");
        let target = self.queues[to as usize].as_mut().expect("it exists");
        let open = u32::from(source.is_open()) + u32::from(target.is_open());
        source.line.move_to(&mut self.waitings, &mut target.line, |other| other == stream);
        self.open = self.open + u32::from(source.is_open()) + u32::from(target.is_open()) - open;
        self.queues[from as usize] = Some(source);
        self.tell_head(from);
        self.tell_head(to);
        if self.merging.users(from) == 0 {
            self.end_turn_of(from);
        }
        self.wake_if_waiting(now, to);
        self.drop_if_unused(from);
    }

    /// A stream goes home, and whoever uses its home goes to his own.
    pub(super) fn part_from_others(&mut self, now: Instant, id: StreamId) {
        if let Some(moved) = self.merging.leave(id.0) {
            self.move_requests(now, id, moved);
        }
        let home = self.merging.home_of(id.0);
        while self.merging.is_shared(home) {
            let other = self.merging.users_of(home).find(|&user| user != id.0).expect("it is shared");
            let moved = self.merging.leave(other).expect("it is another's home");
            self.move_requests(now, StreamId(other), moved);
        }
    }

    /// A queue whose stream has gone is dropped when nobody uses it and nothing is in it.
    pub(super) fn drop_if_unused(&mut self, q: u32) {
        let queue = self.queue(q);
        if queue.is_left && queue.line.is_empty() && queue.in_flight == 0 && self.merging.users(q) == 0 {
            self.drop_queue(q);
        }
    }

    /// The next request of a queue may be another one.
    #[inline]
    pub(super) fn tell_head(&mut self, q: u32) {
        if self.merging.is_on() {
            self.tell_head_now(q);
        }
    }

    fn tell_head_now(&mut self, q: u32) {
        let queue = self.queue(q);
        if !queue.is_sync {
            return;
        }
        let next = queue.line.next_from(&self.waitings, queue.position, self.back_seek());
        let head = next.map(|id| self.waitings.extent(id).start);
        let group = queue.group.0;
        self.merging.set_head(q, group, head);
    }
}
