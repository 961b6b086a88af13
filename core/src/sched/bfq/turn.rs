//! The end of a turn: its charge, and the budget of the next one.

use super::*;

impl Bfq {
    pub(super) fn end_turn(&mut self, now: Instant, why: Expiry) {
        let turn = &self.turn.take().expect("a turn that ends has begun");
        let q = turn.queue;
        self.counts.turns += 1;
        if self.notes.on {
            let (used, budget, time) = (turn.served, self.fair.budget_of(Leaf(q)), now.since(turn.since));
            self.note(q, None, Note::Expired { why, used, budget, time });
        }
        let is_together = self.is_together();
        if !is_together {
            self.charge_time(now, turn);
            self.learn_budget(turn, why);
        }
        if self.merging.on {
            let is_seeky = self.queue(q).seeks.is_seeky(SEEKY);
            self.merging.turn_ended(q, is_seeky);
        }
        let queue = self.queue_mut(q);
        let is_empty = queue.requests.is_empty();
        queue.ran_empty = is_empty && (is_together || turn.idle_until.is_none());
        let stays = !is_empty || is_together && turn.served > 0 && self.comes_back(now, q); // together.2
        self.counts.share_waits_refused += u64::from(is_together && is_empty && turn.served == 0);
        let preempted = why == Expiry::Preempted;
        let budget = stays.then(|| if preempted { self.queue(q).left.max(1) } else { self.budget(q, is_together) });
        self.fair.expire(budget);
        if budget.is_none() {
            let Queue { group, priority, .. } = *self.queue(q);
            self.competing.go(group, priority.class);
        }
    }

    /// turns.3
    fn charge_time(&mut self, now: Instant, turn: &Turn) {
        let queue = self.queues[turn.queue as usize].as_ref().expect("it was in service");
        let beside = self.turns.surcharge(now, turn, &queue.seeks);
        let beside = queue.raising.surcharge(beside);
        if beside > 0 {
            self.counts.slow_turns += 1;
            self.fair.serve(beside);
        }
    }

    /// turns.1
    fn learn_budget(&mut self, turn: &Turn, why: Expiry) {
        self.turns.gave(&self.settings);
        let queue = self.queues[turn.queue as usize].as_mut().expect("it was in service");
        if queue.is_sync {
            queue.budget = self.turns.budget_after(queue.budget, turn.served, why, queue.in_flight > 0);
        }
    }

    /// The budget of a queue's next turn, in sectors.
    pub(super) fn budget(&self, q: u32, is_together: bool) -> u32 {
        let queue = self.queue(q);
        // Enough for the next request, so that the order counts with its size.
        let next = queue.requests.oldest().map_or(1, |oldest| self.size_of(oldest).clamp(1, 1 << 30) as u32);
        if is_together {
            return Together::budget_max(&self.settings).max(next);
        }
        let learned = queue.is_sync.then_some(queue.budget);
        self.turns.budget(learned, self.part(q)).max(next)
    }

    /// turns.2: which part of the largest budget, and of the longest time, a queue's turn may be.
    pub(super) fn part(&self, q: u32) -> u64 {
        let (share, share_of_group) = (self.fair.share_of(Leaf(q)), self.fair.share_of_group(Leaf(q)));
        Turns::part(share, self.competing.queues().max(1), share_of_group, &self.settings)
    }

    /// charge.1
    pub(super) fn charge_for(&mut self, stream: StreamId, group: GroupId, time: Duration) {
        let home = self.homes[stream.0 as usize];
        let q = if self.queue(home).group == group { home } else { self.make_async_queue(group, Priority::default()) };
        let worth = self.charges.worth(group, time, self.turns.rate.sectors_in(time));
        let beside = self.fair.beside(self.groups[usize::from(group.0)].fair, worth.meanwhile);
        self.fair.charge(Leaf(q), worth.sectors.saturating_sub(beside));
    }

    /// The charge of a waiting request.
    pub(super) fn size_of(&self, id: RequestId) -> u64 {
        charge::size(self.waitings.op(id), self.waitings.extent(id).sectors)
    }
}
