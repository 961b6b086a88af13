//! The end of a turn: what it is charged, and what budget the next one has.

use super::*;
use crate::time::ms;
use crate::trace::{Expiry, Note};

/// A round in which every group has a turn takes about so long at most (turns.2), where no turn would be too short for it. Chosen: an
/// unlucky group waits for nearly two rounds, which is to be about a second (among 32 groups on `sata-7200`: 0.94 s).
const ROUND: Duration = ms(550);
/// What a non-data command is charged at first, in sectors. Chosen: as a read of 4 KiB; a stream that sends many at a time has few turns
/// with them.
const NON_DATA: u64 = 8;

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

/// What a request counts: a non-data command moves nothing, and its length says nothing of the device (both.5).
pub(super) const fn size(op: Op, sectors: u64) -> u64 {
    if pace::is_non_data(op) && sectors > NON_DATA { NON_DATA } else { sectors }
}

impl Bfq {
    /// Ends the turn that there is.
    pub(super) fn end_turn(&mut self, now: Instant, end: End) {
        let turn = &self.turn.take().expect("a turn that ends has begun");
        let q = turn.queue;
        self.counts.turns += 1;
        if self.notes.is_on() {
            self.note(q, self.expired(now, turn, end));
        }
        let is_together = self.is_together();
        if !is_together {
            self.charge_time(now, turn);
            self.learn_budget(turn, end);
        }
        if self.merging.is_on() {
            let is_seeky = self.queue(q).seeks.is_seeky(SEEKY);
            self.merging.turn_ended(q, is_seeky);
        }
        let queue = self.queue_mut(q);
        let is_empty = queue.requests.is_empty();
        queue.ran_empty = is_empty && (is_together || turn.idle_until.is_none());
        let stays = !is_empty || is_together && turn.served > 0 && self.comes_back(now, q); // together.2
        self.counts.share_waits_refused += u64::from(is_together && is_empty && turn.served == 0);
        let preempted = end == End::Preempted;
        let budget = stays.then(|| if preempted { self.queue(q).left.max(1) } else { self.budget(q, is_together) });
        self.fair.expire(budget);
    }

    fn expired(&self, now: Instant, turn: &Turn, end: End) -> Note {
        let why = match end {
            End::Empty if turn.idle_until.is_some() => Expiry::TooIdle,
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

    /// turns.3
    fn charge_time(&mut self, now: Instant, turn: &Turn) {
        if turn.served == 0 {
            return;
        }
        let nanos = now.since(turn.since).as_nanos();
        let best = &mut self.device.best;
        let queue = self.queues[turn.queue as usize].as_ref().expect("it was in service");
        if queue.seeks.is_seeky(SEEKY) {
            *best -= *best / 256;
        } else if !turn.wrote && nanos >= ms(2).as_nanos() {
            let rate = ((u128::from(turn.served) << 20) / u128::from(nanos)) as u64;
            *best = if rate > *best { rate } else { *best - (*best - rate) / 64 };
        }
        let nanos = nanos.min(turn.timeout.as_nanos());
        let could = ((u128::from(*best) * u128::from(nanos)) >> 20) as u64;
        let could = could.min(self.device.budgets.max());
        if turn.served < could / 4 && queue.seeks.is_seeky(SEEKY) && !queue.raising.is_raised() {
            self.counts.slow_turns += 1;
            self.fair.serve(could - turn.served);
        }
    }

    /// turns.1
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
            End::Empty if turn.idle_until.is_none() => u32::try_from(turn.served).unwrap_or(u32::MAX),
            End::Empty if queue.in_flight > 0 => before.saturating_mul(2),
            End::Empty => before.saturating_sub(4 * least),
            End::Timeout => before.saturating_mul(2),
            End::Used => before.saturating_mul(4),
            End::Preempted => before,
        };
        queue.budget_max = after.clamp(least, most);
    }

    /// The budget of a queue's next turn, in sectors.
    pub(super) fn budget(&self, q: u32, is_together: bool) -> u32 {
        let queue = self.queue(q);
        // Enough for the next request, so that the order counts with what will be served.
        let next = queue.requests.oldest().map_or(1, |oldest| self.size_of(oldest).clamp(1, 1 << 30) as u32);
        let max = self.budget_max(is_together).min(1 << 30) as u32;
        if is_together {
            return max.max(next).max(1);
        }
        let max = max.max(1);
        let budget = if queue.is_sync { queue.budget_max.clamp(1, max) } else { max };
        let least = self.device.budgets.min().min(1 << 30) as u32;
        let budget = if self.crowd.few_are_raised() { queue.raising.budget(budget, least) } else { budget };
        let scaled = (u64::from(max) * u64::from(self.part(q))) >> 16;
        budget.min(scaled as u32).max(1).max(next)
    }

    /// turns.2: which part of the largest budget, and of the longest time, a queue's turn may be; in parts of 65,536.
    pub(super) fn part(&self, q: u32) -> u32 {
        const ALL: u64 = 1 << 16;
        let competitors = u64::from(self.fair.backlogged().max(1));
        let average = u64::from(self.fair.share_of(Leaf(q))) * competitors;
        let timeout = self.settings.timeout_sync.as_nanos().max(1);
        let round = u64::from(self.fair.share_of_group(Leaf(q))) * ROUND.as_nanos() / timeout;
        average.min(round).clamp(ALL / 8, ALL) as u32
    }

    /// both.5
    pub(super) fn charge_for(&mut self, stream: StreamId, group: GroupId, time: Duration) {
        let home = self.homes[stream.0 as usize];
        let q = if self.queue(home).group == group { home } else { self.any_queue_of(group) };
        let pace = &self.device.pace;
        let worth = pace.worth(time).unwrap_or_else(|| self.device.rate.sectors_in(time));
        let state = &mut self.groups[usize::from(group.0)];
        let covered = state.covered.min(worth);
        state.covered -= covered;
        let beside = self.fair.beside(state.fair, pace.meanwhile(time));
        self.fair.charge(Leaf(q), (worth - covered).saturating_sub(beside));
    }

    /// What a request is charged when it goes to the device (bfq.2, both.1); of a non-data command the time is charged when it
    /// has ended (both.5).
    pub(super) fn price(&self, q: u32, op: Op, sectors: u64) -> u64 {
        size(op, sectors) * self.async_factor(q)
    }

    /// What a waiting request counts.
    pub(super) fn size_of(&self, id: RequestId) -> u64 {
        size(self.waitings.op(id), self.waitings.extent(id).sectors)
    }

    /// both.5: a non-data command goes to the device.
    pub(super) fn non_data_begins(&mut self, now: Instant, op: Op) {
        if pace::is_non_data(op) {
            self.device.pace.begins(now, self.in_flight);
        }
    }

    /// both.5: it has ended, or was turned back and is not charged.
    pub(super) fn non_data_ends(&mut self, now: Instant, op: Op, ended: Option<(u32, u64)>) {
        if !pace::is_non_data(op) {
            return;
        }
        let took = self.device.pace.ends(now, Duration::ZERO);
        if let Some((q, sectors)) = ended {
            let worth = self.device.pace.worth(took).unwrap_or(0);
            self.fair.charge(Leaf(q), worth.saturating_sub(self.price(q, op, sectors)));
        }
    }
}
