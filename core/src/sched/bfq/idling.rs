//! For whom others wait, and for how long.

use super::*;

impl Bfq {
    /// Whether others wait for the queue in service, which has nothing to ask, and until when.
    pub(super) fn may_idle_until(&self, now: Instant, turn: &Turn) -> Option<Instant> {
        let queue = self.queue(turn.queue);
        let is_together = self.is_together();
        let idle = if is_together { self.settings.group_idle } else { self.slice_idle() };
        if !queue.is_sync || idle == Duration::ZERO {
            return None;
        }
        let until = if is_together { self.share_wait_until(now, turn) } else { self.idle_until(now, turn) };
        until.filter(|until| now < *until)
    }

    /// together.2, together.3
    fn share_wait_until(&self, now: Instant, turn: &Turn) -> Option<Instant> {
        // Its turn is over; when the next one comes, others may wait.
        if turn.served > 0 || !self.comes_back(now, turn.queue) {
            return None;
        }
        // Its group is not raised, so where groups compete it is not.
        let queue = self.queue(turn.queue);
        let raised = queue.raising.idling(now, &self.crowd);
        let alone = raised.filter(|idling| idling.is_alone && !self.groups_compete()).map(|idling| idling.at_least);
        self.together.share_wait(now, &queue.think, queue.in_flight, alone, turn.idle_until, &self.settings)
    }

    /// turns.4
    fn idle_until(&self, now: Instant, turn: &Turn) -> Option<Instant> {
        let queue = self.queue(turn.queue);
        if turn.served == 0 || !self.is_worth_idling(now, turn) {
            return None;
        }
        let idle = self.slice_idle();
        if queue.in_flight > 0 {
            // The device is busy with it. That it thinks counts from the end.
            return Some(turn.idle_until.unwrap_or(now + self.settings.timeout_sync));
        }
        let raised = queue.raising.idling(now, &self.crowd);
        Some(queue.think.last_end()? + raised.map_or(idle, |idling| idling.at_least.max(idle)))
    }

    /// turns.4: whether to hold the device for a queue that runs empty.
    pub(super) fn is_worth_idling(&self, now: Instant, turn: &Turn) -> bool {
        let queue = self.queue(turn.queue);
        if self.settings.strict_guarantees {
            return true; // bfq.6
        }
        if queue.priority.class == PriorityClass::Idle || queue.think.is_longer_than(self.short()) {
            return false;
        }
        let (rotational, queueing) = (self.device.is_rotational(), self.device.queues());
        Turns::order_pays(rotational, queueing, queue.seeks.is_seeky(SEEKY), turn.wrote)
            || self.shares_would_suffer(now, turn.queue)
    }

    /// Whether it is unfair to a queue, or to its group, if it is passed over because it has nothing to ask just now.
    #[inline]
    fn shares_would_suffer(&self, now: Instant, q: u32) -> bool {
        // Of streams in one group, those of the least weight have what they are entitled to without being waited for.
        self.levels.has_lighter(self.queue(q).priority.level) || self.is_owed(now, q)
    }

    /// The same but for levels within a group: hints of programs, and not what tenants were promised. Where many are served at once,
    /// no stream waits for another's level: that would cost 3 % of the journal case, and bring nothing (together.2).
    #[inline]
    fn is_owed(&self, now: Instant, q: u32) -> bool {
        let queue = self.queue(q);
        if queue.raising.idling(now, &self.crowd).is_some_and(|idling| idling.is_owed) {
            return true;
        }
        // Others that wait keep the place of the group.
        self.groups_compete() && self.competing.queues_of(queue.group) <= 1 || self.competing.classes_compete()
    }

    #[inline]
    pub(super) fn groups_compete(&self) -> bool {
        self.competing.groups > 1
    }

    /// The longest think time that counts as short.
    fn short(&self) -> Duration {
        Duration::from_nanos(self.slice_idle().as_nanos() / 2)
    }

    /// together.2: whether a queue without requests is likely to ask again at once.
    pub(super) fn comes_back(&self, now: Instant, q: u32) -> bool {
        let queue = self.queue(q);
        queue.is_sync
            && queue.priority.class != PriorityClass::Idle
            && Together::comes_back(now, &queue.think, queue.in_flight, self.settings.group_idle)
            && self.is_owed(now, q)
    }

    pub(super) fn idle(&mut self, now: Instant, until: Instant) {
        let turn = self.turn.as_mut().expect("the disk is held for the queue in service");
        let (q, is_share_wait) = (turn.queue, turn.served == 0);
        if turn.idle_until.replace(until).is_none() {
            *(if is_share_wait { &mut self.counts.share_waits } else { &mut self.counts.idlings }) += 1;
            self.note(q, None, Note::Idling { longest: until.since(now), busy: self.together.in_flight > 0 });
        }
    }
}
