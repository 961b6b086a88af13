//! Arrivals: requests, and their completions.

use super::*;

/// A stream is back in time within this many times `slice_idle` (turns.5); the kernel's value.
const IN_TIME: u64 = 3;

impl Bfq {
    pub(super) fn arrive(&mut self, now: Instant, request: &Waiting) {
        self.now = now;
        let q = self.queue_for(now, request);
        if !self.queue(q).is_open() {
            let cap = Duration::from_nanos(self.habitual_idle().as_nanos() * 2);
            self.queue_mut(q).think.arrived(now, cap);
            self.opens(q);
        }
        let (seek, low_latency) = (self.seek(), self.settings.low_latency);
        let queue = self.queues[q as usize].as_mut().expect("it was found");
        queue.seeks.arrived(request.extent, seek);
        let was_empty = queue.requests.is_empty();
        queue.requests.add(&mut self.waitings, now, request);
        self.head_changed(q);
        if was_empty {
            if low_latency {
                self.consider_raising(now, q);
            }
            if let Some(turn) = &mut self.turn
                && turn.queue == q
            {
                turn.idle_until = None;
            }
            self.wake_if_waiting(now, q);
        }
    }

    /// A queue with requests that is not in the fair queue's order goes there.
    pub(super) fn wake_if_waiting(&mut self, now: Instant, q: u32) {
        let idle = self.habitual_idle();
        let queue = self.queue(q);
        if queue.requests.is_empty() || self.fair.is_backlogged(Leaf(q)) {
            return;
        }
        let is_soon = || {
            let soon = Duration::from_nanos(idle.as_nanos() * IN_TIME);
            queue.in_flight > 0 || queue.think.last_end().is_some_and(|end| now.since(end) <= soon)
        };
        let in_time = queue.ran_empty && is_soon(); // turns.5
        let coefficient = queue.raising.coefficient();
        let left = queue.left;
        let is_together = self.is_together();
        let mut budget = self.budget(q, is_together);
        if in_time && left > 0 && !is_together {
            budget = budget.min(left);
        }
        let arrival = if in_time { Arrival::InTime { coefficient } } else { Arrival::New };
        let (groups, group, class) = (self.competing.groups, queue.group, queue.priority.class);
        self.fair.activate(Leaf(q), budget, arrival);
        self.competing.come(group, class);
        if self.competing.groups > groups {
            self.shorten_turn();
        }
        self.merging.became_busy(q);
        self.preempt(now, q, in_time);
    }

    /// turns.2: another group competes; the turn under way is no longer than if it had begun now.
    fn shorten_turn(&mut self) {
        let Some(turn) = self.turn.filter(|_| !self.is_together()) else { return };
        let budget = u64::from(self.budget(turn.queue, false)).saturating_sub(turn.served);
        let queue = self.queue_mut(turn.queue);
        queue.left = queue.left.min(budget as u32);
        let timeout = turn.timeout.min(self.timeout(turn.queue, false));
        self.turn = Some(Turn { timeout, ..turn });
    }

    /// turns.5: the newcomer may take over from the queue in service.
    fn preempt(&mut self, now: Instant, q: u32, in_time: bool) {
        let Some(turn) = self.turn.filter(|turn| turn.queue != q) else { return };
        let is_together = self.is_together();
        if is_together && !self.passes(now, q, &turn) {
            return;
        }
        if !self.fair.would_preempt(Leaf(q)) {
            return;
        }
        let (new, old) = (self.queue(q), self.queue(turn.queue));
        let raised = new.raising.coefficient().cmp(&old.raising.coefficient());
        let goes = is_together // together.5
            || new.priority.class < old.priority.class
            || raised.is_gt()
            || in_time && raised.is_ge()
            || old.requests.is_empty() && !self.is_worth_idling(now, &turn);
        if goes {
            self.counts.preemptions += 1;
            self.end_turn(now, Expiry::Preempted);
        }
    }

    /// together.5: a queue reads, and the one in service writes and waits for room.
    fn passes(&self, now: Instant, q: u32, turn: &Turn) -> bool {
        if !self.device.is_full || self.device.is_rotational() {
            return false;
        }
        let reads = |id| self.waitings.op(id) == Op::Read;
        let old = self.queue(turn.queue);
        let is_blocked = self.choose(now, old).is_some_and(|next| {
            let goes_on = turn.served == 0 || self.size_of(next) <= old.left.into();
            goes_on && !reads(next)
        });
        is_blocked && self.queue(q).requests.oldest().is_some_and(reads)
    }

    pub(super) fn ended(&mut self, now: Instant, served: &Served) {
        let id = served.request.id;
        let q = self.waitings.owner(id);
        self.now = now;
        // A failed request says nothing about the device's throughput.
        let sectors = if served.ok() { charge::size(served.request.op, served.request.extent.sectors) } else { 0 };
        let beside = self.charges.ends(now, served.request.op, self.together.in_flight, sectors);
        if served.ok() && beside > 0 {
            self.fair.charge(Leaf(q), beside); // charge.3
        }
        match served.end {
            RequestEnd::Cached => self.was_cached(served),
            RequestEnd::Done | RequestEnd::Failed => self.learn(now, served, sectors),
        }
        self.queue_mut(q).think.ended(now);
        self.left_device(q, id);
    }

    /// bfq.9
    #[cold]
    fn was_cached(&mut self, served: &Served) {
        self.turns.rate.took_back(served.request.extent.sectors);
        self.device.lone.take_if(|(id, _)| *id == served.request.id);
    }

    /// A request of a queue is not in the device any more.
    #[inline(always)]
    pub(super) fn left_device(&mut self, q: u32, id: RequestId) {
        self.together.left(self.waitings.op(id));
        self.waitings.forget(id);
        let queue = self.queue_mut(q);
        queue.in_flight -= 1;
        if queue.in_flight == 0 && queue.requests.is_empty() {
            self.closes(q);
        }
    }

    /// A queue has something waiting or in the device, which it had not.
    #[inline]
    pub(super) fn opens(&mut self, q: u32) {
        let raising = &self.queues[q as usize].as_ref().expect("it asks").raising;
        self.crowd.opened(raising);
    }

    /// It has nothing any more.
    #[inline]
    pub(super) fn closes(&mut self, q: u32) {
        let raising = &self.queues[q as usize].as_ref().expect("it had something").raising;
        self.crowd.closed(raising);
    }

    // ---- raising ----

    /// bfq.7: a queue asks that had nothing waiting.
    fn consider_raising(&mut self, now: Instant, q: u32) {
        let queue = self.queues[q as usize].as_mut().expect("it asks");
        let is_its_own = queue.is_sync && !self.merging.has_several_users(q);
        let can_rise = is_its_own && queue.priority == Priority::default() && queue.in_flight == 0;
        if queue.raising.became_busy(now, can_rise, queue.think.last_end()) {
            self.counts.raised += 1;
            self.raised(q);
        }
    }

    /// bfq.7: whether a queue that is about to be served is to be raised still.
    #[inline(never)]
    pub(super) fn check_raising(&mut self, now: Instant, q: u32) {
        let rotational = self.device.is_rotational();
        let queue = self.queues[q as usize].as_mut().expect("it is served");
        if queue.raising.check(now, || self.turns.rate.raising(rotational)) {
            self.lowered(q);
        }
    }

    /// A queue is raised, which it was not.
    pub(super) fn raised(&mut self, q: u32) {
        if self.queue(q).is_open() {
            self.crowd.raised += 1;
        }
        self.note(q, None, Note::Raised { times: self.queue(q).raising.coefficient() });
        self.weigh(q);
    }

    /// A queue is raised no more.
    pub(super) fn lowered(&mut self, q: u32) {
        if self.queue(q).is_open() {
            self.crowd.raised -= 1;
        }
        if self.crowd.raised == 0 {
            // Neither turns nor the depth were what they are otherwise.
            self.device.trials.review(self.device.is_rotational());
        }
        self.note(q, None, Note::Lowered);
        self.weigh(q);
    }

    pub(super) fn end_raising(&mut self) {
        for q in 0..self.queues.len() as u32 {
            if let Some(queue) = &mut self.queues[q as usize]
                && queue.raising.end()
            {
                self.lowered(q);
            }
        }
    }

    /// Tells the fair queue a queue's weight (bfq.1, bfq.7).
    pub(super) fn weigh(&mut self, q: u32) {
        let queue = self.queue(q);
        let weight = (8 - u32::from(queue.priority.level)) * 10 * queue.raising.coefficient();
        self.fair.set_queue_weight(Leaf(q), weight.min(FairQueue::WEIGHT_MAX));
    }
}
