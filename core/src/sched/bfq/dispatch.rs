//! The choice of the next request.

use super::*;

impl Bfq {
    /// `all`: nothing is held back.
    pub(super) fn next(&mut self, now: Instant, all: bool) -> Next {
        self.now = now;
        self.device.is_full = false;
        if let Some(id) = self.waitings.take_requeued() {
            let op = self.waitings.op(id);
            self.charges.begins_again(now, op, self.together.in_flight);
            self.together.went(op); // bfq.5, bfq.2
            return Next::Request(id);
        }
        if self.waitings.is_empty() {
            return Next::Empty;
        }
        let limit = self.limit();
        let is_full = !all && self.together.in_flight + self.device.others >= limit;
        if is_full && !self.reads_pass(limit) {
            self.device.is_full = true; // together.4
            return Next::Empty;
        }
        loop {
            let Some(Turn { queue: q, since, timeout, served, .. }) = self.turn else {
                self.begin_turn(now);
                continue;
            };
            let queue = self.queue(q);
            let Some(id) = self.choose(now, queue) else {
                if let Some(until) = self.runs_empty(now, all) {
                    return Next::Idle { until };
                }
                continue;
            };
            let extent = self.waitings.extent(id);
            if served > 0 {
                let is_used = charge::size(self.waitings.op(id), extent.sectors) > queue.left.into();
                if is_used || now.since(since) >= timeout {
                    let why = if is_used { Expiry::BudgetExhausted } else { Expiry::BudgetTimeout };
                    self.end_turn(now, why); // bfq.3
                    continue;
                }
            }
            if is_full && self.waitings.op(id) != Op::Read {
                self.device.is_full = true; // together.5
                return Next::Empty;
            }
            self.send(now, q, id, extent);
            return Next::Request(id);
        }
    }

    /// together.5: the device has all that `limit` allows, and takes a read yet.
    fn reads_pass(&self, limit: u32) -> bool {
        self.together.takes_a_read(limit, self.device.depth, self.waitings.reads())
            && !self.device.is_rotational()
            && self.is_together()
    }

    /// The queue in service has nothing to ask: until when the others wait for it, or else its turn ends.
    #[inline(never)]
    fn runs_empty(&mut self, now: Instant, all: bool) -> Option<Instant> {
        let turn = self.turn.as_ref().expect("it is in service");
        // Served together, a turn that had something is over (together.2).
        let is_over = all || turn.served > 0 && self.is_together();
        if !is_over && let Some(until) = self.may_idle_until(now, turn) {
            self.idle(now, until);
            return Some(until);
        }
        let why = if turn.idle_until.is_some() { Expiry::TooIdle } else { Expiry::NoMoreRequests };
        self.end_turn(now, why);
        None
    }

    fn begin_turn(&mut self, now: Instant) {
        let queue = self.fair.select(now).expect("something waits, so some queue is backlogged").0;
        self.check_raising(now, queue);
        let budget = self.fair.budget_of(Leaf(queue));
        // Since it began to wait more may compete, or the way to use the device have changed.
        let is_together = self.is_together();
        let most = if is_together { Together::budget_max(&self.settings) } else { self.budget(queue, false) };
        self.queue_mut(queue).left = budget.min(most);
        let timeout = self.timeout(queue, is_together);
        self.turn = Some(Turn { queue, since: now, timeout, served: 0, wrote: false, idle_until: None });
    }

    /// The longest time for a turn (bfq.3, turns.2).
    pub(super) fn timeout(&self, q: u32, is_together: bool) -> Duration {
        if is_together { self.settings.timeout_sync } else { Turns::timeout(&self.settings, self.part(q)) }
    }

    fn send(&mut self, now: Instant, q: u32, id: RequestId, extent: Extent) {
        let op = self.waitings.op(id);
        let sectors = charge::size(op, extent.sectors);
        self.charges.begins(now, op, self.together.in_flight, self.queue(q).group, sectors);
        self.note_dispatch(now, id, extent);
        let queue = self.queues[q as usize].as_mut().expect("it is in service");
        queue.requests.take(&mut self.waitings, id);
        queue.in_flight += 1;
        queue.left = queue.left.saturating_sub(u32::try_from(sectors).unwrap_or(u32::MAX));
        queue.position = extent.end();
        queue.raising.served(sectors);
        self.together.went(op);
        let wrote = op != Op::Read;
        let turn = self.turn.as_mut().expect("it is in service");
        turn.served += sectors;
        turn.wrote |= wrote;
        turn.idle_until = None;
        self.fair.serve(sectors); // bfq.2
        self.merging.served(now, q);
        self.head_changed(q);
    }

    /// The next request of a queue, if it has one (bfq.4).
    #[inline]
    pub(super) fn choose(&self, now: Instant, queue: &Queue) -> Option<RequestId> {
        let oldest = queue.requests.oldest()?;
        let is_alone = queue.requests.len() == 1;
        if is_alone { Some(oldest) } else { self.choose_one(now, queue, oldest) }
    }

    #[inline(never)]
    fn choose_one(&self, now: Instant, queue: &Queue, oldest: RequestId) -> Option<RequestId> {
        let expire = if queue.is_sync { self.settings.fifo_expire_sync } else { self.settings.fifo_expire_async };
        if now.since(self.waitings.arrived(oldest)) >= expire {
            return Some(oldest);
        }
        queue.requests.next_from(&self.waitings, queue.position, self.back_seek())
    }

    /// Tells merging where a queue goes on (bfq.8).
    #[inline]
    pub(super) fn head_changed(&mut self, q: u32) {
        if self.merging.on {
            self.tell_head(q);
        }
    }

    #[inline(never)]
    fn tell_head(&mut self, q: u32) {
        let queue = self.queue(q);
        let next = queue.requests.next_from(&self.waitings, queue.position, self.back_seek());
        let head = next.filter(|_| queue.is_sync).map(|id| self.waitings.extent(id).start);
        let group = queue.group.0;
        self.merging.set_head(q, group, head);
    }
}
