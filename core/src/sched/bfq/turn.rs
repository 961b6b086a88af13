//! The end of a turn: what it is charged, and what budget the next one has.

use super::*;
use crate::time::ms;
use crate::trace::{Expiry, Note};

/// Why a turn ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It has nothing to ask, and is not waited for, or not any longer.
    Empty,
    /// The budget does not suffice for the next request.
    Used,
    /// `timeout_sync` has passed.
    Timeout,
    /// Somebody else goes first.
    Preempted,
}

impl Bfq {
    pub(super) fn end_turn(&mut self, now: Instant, turn: &Turn, end: End) {
        let q = turn.queue;
        self.counts.turns += 1;
        self.turn = None;
        if self.notes.is_on() {
            self.note(q, self.expired(now, turn, end));
        }
        let is_shared = self.is_shared();
        if !is_shared {
            self.charge_time(now, turn);
            self.learn_budget(turn, end);
        }
        let is_seeky = self.queue(q).seeks.is_seeky(SEEKY);
        self.merging.turn_ended(q, is_seeky);
        let queue = self.queue_mut(q);
        queue.raise.turn_ended(now);
        let is_empty = queue.line.is_empty();
        queue.ran_empty = is_empty && (is_shared || turn.held.is_none());
        let stays = !is_empty || is_shared && turn.served > 0 && self.comes_back(now, q); // S2
        self.counts.lulls_refused += u64::from(is_shared && is_empty && turn.served == 0);
        let budget = stays.then(|| if end == End::Preempted { self.queue(q).left.max(1) } else { self.budget(q) });
        self.fair.expire(budget);
    }

    fn expired(&self, now: Instant, turn: &Turn, end: End) -> Note {
        let why = match end {
            End::Empty if turn.held.is_some() => Expiry::TooIdle,
            End::Empty => Expiry::NoMoreRequests,
            End::Used => Expiry::BudgetExhausted,
            End::Timeout => Expiry::BudgetTimeout,
            End::Preempted => Expiry::Preempted,
        };
        Note::Expired {
            why,
            used: turn.served,
            budget: self.fair.budget_of(Leaf(turn.queue)),
            time: now.since(turn.since),
        }
    }

    /// T3
    fn charge_time(&mut self, now: Instant, turn: &Turn) {
        if turn.served == 0 {
            return;
        }
        let nanos = now.since(turn.since).as_nanos();
        let best = &mut self.device.best;
        let queue = self.queues[turn.queue as usize].as_ref().expect("it was in service");
        if queue.seeks.is_seeky(SEEKY) {
            *best -= *best / 256;
        } else if nanos >= ms(2).as_nanos() {
            let rate = ((u128::from(turn.served) << 20) / u128::from(nanos)) as u64;
            *best = if rate > *best { rate } else { *best - (*best - rate) / 64 };
        }
        let nanos = nanos.min(self.settings.timeout_sync.as_nanos());
        let could = ((u128::from(*best) * u128::from(nanos)) >> 20) as u64;
        if turn.served < could / 4 && queue.seeks.is_seeky(SEEKY) && !queue.raise.is_raised() {
            self.counts.slow_turns += 1;
            self.fair.serve(could - turn.served);
        }
    }

    /// T1
    fn learn_budget(&mut self, turn: &Turn, end: End) {
        let device = &mut self.device;
        device.budgets.gave(&device.rate, self.settings.timeout_sync);
        let (least, most) = (device.budgets.min().min(1 << 30) as u32, device.budgets.max().min(1 << 30) as u32);
        let queue = self.queues[turn.queue as usize].as_mut().expect("it was in service");
        if !queue.is_sync {
            queue.budget_max = most;
            return;
        }
        let before = queue.budget_max;
        let after = match end {
            End::Empty if turn.held.is_none() => u32::try_from(turn.served).unwrap_or(u32::MAX),
            End::Empty if queue.in_flight > 0 => before.saturating_mul(2),
            End::Empty => before.saturating_sub(4 * least),
            End::Timeout => before.saturating_mul(2),
            End::Used => before.saturating_mul(4),
            End::Preempted => before,
        };
        queue.budget_max = after.clamp(least, most);
        if queue.raise.is_raised() {
            queue.budget_max = queue.budget_max.min(2 * least);
        }
    }

    /// The budget of a queue's next turn, in sectors.
    pub(super) fn budget(&self, q: u32) -> u32 {
        let max = self.budget_max().clamp(1, 1 << 30) as u32;
        let queue = self.queue(q);
        // Enough for the next request, so that the order counts with what will be served.
        let next =
            queue.line.oldest().map_or(1, |oldest| self.waitings.extent(oldest).sectors.clamp(1, 1 << 30) as u32);
        if self.is_shared() || !queue.is_sync {
            return max.max(next);
        }
        // T2
        let budget = queue.budget_max.clamp(1, max);
        let competitors = u64::from(self.fair.backlogged().max(1));
        let scaled = (u64::from(budget) * u64::from(self.fair.share_of(Leaf(q))) * competitors) >> 16;
        (scaled.min(budget.into()) as u32).max((max / 8).min(budget)).max(next)
    }

    /// W5
    pub(super) fn charge_for(&mut self, stream: StreamId, group: GroupId, time: Duration) {
        let home = self.homes[stream.0 as usize];
        let q = if self.queue(home).group == group { home } else { self.any_queue_of(group) };
        let pace = &self.device.pace;
        let worth = pace.worth(time).unwrap_or_else(|| self.device.rate.sectors_in(time));
        let state = &mut self.groups[usize::from(group.0)];
        let covered = state.covered.min(worth);
        state.covered -= covered;
        let beside = self.fair.beside(state.fair, pace.meanwhile(time));
        let sectors = (worth - covered).saturating_sub(beside);
        self.fair.charge(Leaf(q), sectors);
    }
}
