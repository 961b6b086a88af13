//! What goes next.

use super::*;

impl Bfq {
    /// `all`: nothing is held back.
    pub(super) fn next(&mut self, now: Instant, all: bool) -> Next {
        self.notes.at(now);
        self.device.is_full = false;
        if let Some(id) = self.waitings.take_returned() {
            self.in_flight += 1; // F5, F2
            return Next::Request(id);
        }
        if self.waitings.is_empty() {
            return Next::Nothing;
        }
        if !all && self.in_flight >= self.limit() {
            self.device.is_full = true; // S4
            return Next::Nothing;
        }
        loop {
            let turn = match self.turn {
                Some(turn) => turn,
                None => self.begin_turn(now),
            };
            let queue = self.queue(turn.queue);
            if queue.line.is_empty() {
                if !all && let Some(until) = self.may_hold(now, &turn) {
                    self.hold(now, &turn, until);
                    return Next::Hold { until };
                }
                self.end_turn(now, &turn, turn::End::Empty);
                continue;
            }
            let id = self.choose(now, turn.queue);
            let sectors = self.waitings.extent(id).sectors;
            if turn.served > 0 {
                let is_used = sectors > queue.left.into();
                if is_used || now.since(turn.since) >= self.timeout(turn.queue) {
                    let end = if is_used { turn::End::Used } else { turn::End::Timeout };
                    self.end_turn(now, &turn, end); // F3
                    continue;
                }
            }
            self.send(now, turn, id, sectors);
            return Next::Request(id);
        }
    }

    fn begin_turn(&mut self, now: Instant) -> Turn {
        let queue = self.fair.select(now).expect("something waits, so some queue is backlogged").0;
        self.check_raising(now, queue);
        self.queue_mut(queue).left = self.fair.budget_of(Leaf(queue));
        let turn = Turn { queue, since: now, served: 0, held: None };
        self.turn = Some(turn);
        turn
    }

    fn timeout(&self, q: u32) -> Duration {
        let factor = self.queue(q).raise.timeout_factor();
        Duration::from_nanos(self.settings.timeout_sync.as_nanos().saturating_mul(factor.into()))
    }

    fn send(&mut self, now: Instant, turn: Turn, id: RequestId, sectors: u64) {
        self.note_dispatch(now, id);
        let q = turn.queue;
        let charge = sectors * self.async_factor(q);
        let end = self.waitings.extent(id).end();
        if self.waitings.op(id) == Op::Write {
            let group = self.queue(q).group;
            self.groups[usize::from(group.0)].written += charge;
        }
        let queue = self.queues[q as usize].as_mut().expect("it is in service");
        queue.line.take(&mut self.waitings, id);
        queue.in_flight += 1;
        queue.left = queue.left.saturating_sub(u32::try_from(charge).unwrap_or(u32::MAX));
        queue.position = end;
        queue.raise.served(sectors);
        self.in_flight += 1;
        self.turn = Some(Turn { served: turn.served + sectors, held: None, ..turn });
        self.fair.serve(charge); // F2
        self.merging.served(now, q);
        self.head_changed(q);
    }

    /// How often a sector of a queue counts (W1).
    fn async_factor(&self, q: u32) -> u64 {
        const FACTOR: u64 = 3;
        if self.queue(q).is_sync || self.is_asymmetric() { 1 } else { FACTOR }
    }

    /// The next request of a queue (F4).
    #[inline]
    fn choose(&self, now: Instant, q: u32) -> RequestId {
        let queue = self.queue(q);
        let expire = if queue.is_sync { self.settings.fifo_expire_sync } else { self.settings.fifo_expire_async };
        let oldest = queue.line.oldest().expect("something waits");
        if queue.line.len() == 1 || now.since(self.waitings.arrived(oldest)) >= expire {
            return oldest;
        }
        queue.line.next_from(&self.waitings, queue.position, self.back_seek()).expect("something waits")
    }

    /// Tells merging where a queue goes on (W3).
    #[inline]
    pub(super) fn head_changed(&mut self, q: u32) {
        if self.merging.is_on() {
            let queue = self.queue(q);
            let next = queue.line.next_from(&self.waitings, queue.position, self.back_seek());
            let head = next.filter(|_| queue.is_sync).map(|id| self.waitings.extent(id).start);
            let group = queue.group.0;
            self.merging.set_head(q, group, head);
        }
    }
}
