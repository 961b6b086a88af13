//! Whose turn it is, what goes, and for whom others wait.

use super::*;
use crate::time::ms;

/// Budgets before anything is known: 8 MiB.
const BUDGET_DEFAULT: u64 = 16_384;
/// So many of the last 32 requests must be seeks for a stream to be one that seeks.
pub(super) const SEEKY: u32 = 19;

impl Bfq {
    // ---- news ----

    pub(super) fn arrive(&mut self, now: Instant, request: &Waiting) {
        if self.merging.is_on() {
            self.cooperate(now, request);
        }
        let q = self.queue_for(request);
        self.account(now);
        let seek = if self.is_rotational { Seek::ROTATIONAL } else { Seek::FLASH };
        let cap = Duration::from_nanos(self.settings.slice_idle.as_nanos() * 2);
        let queue = self.queues[q as usize].as_mut().expect("it was found");
        if queue.line.is_empty() && queue.in_flight == 0 {
            queue.think.arrived(now, cap);
            self.open += 1;
        }
        queue.seeks.arrived(request.extent, seek);
        queue.line.add(&mut self.waitings, now, request);
        self.tell_head(q);
        if let Some(turn) = &mut self.turn
            && turn.queue == q
        {
            turn.held = None;
        }
        self.wake_if_waiting(now, q);
    }

    /// A queue with requests that is not in the fair queue goes there.
    pub(super) fn wake_if_waiting(&mut self, now: Instant, q: u32) {
        let idle = self.settings.slice_idle;
        let queue = self.queue(q);
        if queue.line.is_empty() || self.fair.is_backlogged(Leaf(q)) {
            return;
        }
        // Hole recovery.
        let in_time = queue.ran_empty
            && (queue.in_flight > 0
                || queue.think.last_end().is_some_and(|end| now.since(end) <= Duration::from_nanos(idle.as_nanos() * 3)));
        let budget = self.budget(q);
        let arrival = if in_time { Arrival::InTime { coefficient: 1 } } else { Arrival::New };
        self.fair.activate(Leaf(q), budget, arrival);
        self.merging.became_busy(q);
    }

    pub(super) fn ended(&mut self, now: Instant, served: &Served) {
        let id = served.request.id;
        let q = self.waitings.owner(id);
        let (before, waiting) = (self.in_flight, self.waitings.len() as u32);
        let held_back = self.pressed || self.turn.is_some_and(|turn| turn.held.is_some());
        if self.queueing.ended(before, waiting, held_back) {
            self.switch_merging(now);
        }
        self.account(now);
        let is_shared = self.is_shared();
        let depth = &mut self.depths[usize::from(is_shared)];
        if is_shared != core::mem::replace(&mut self.was_shared, is_shared) {
            depth.resume();
        }
        let sectors = served.request.extent.sectors;
        let could = match self.turn {
            Some(turn) if !is_shared => self.queues[turn.queue as usize].as_ref().map_or(0, |queue| queue.line.len()),
            _ => waiting,
        };
        depth.ended(now, sectors, before + could);
        if self.is_rotational {
            self.together.ended(now, sectors, self.open > 1);
        }
        self.left_device(id);
        let queue = self.queue_mut(q);
        queue.think.ended(now);
        if queue.is_left {
            self.drop_if_unused(q);
        }
    }

    /// Time has passed with what is in flight and waits now.
    fn account(&mut self, now: Instant) {
        let useful = self.limit().min(self.in_flight + self.waitings.len() as u32);
        self.lull.was(now, self.in_flight, useful, self.settings.share_floor);
    }

    /// A request is not in the device any more.
    pub(super) fn left_device(&mut self, id: RequestId) {
        let q = self.waitings.owner(id);
        let queue = self.queue_mut(q);
        queue.in_flight -= 1;
        let is_done = queue.in_flight == 0 && queue.line.is_empty();
        self.open -= u32::from(is_done);
        self.in_flight -= 1;
        self.waitings.forget(id);
    }

    // ---- what the device is like ----

    /// Whether many streams are served at once, rather than one after the other.
    pub(super) fn is_shared(&self) -> bool {
        !self.settings.strict_guarantees
            && match self.settings.turns {
                1 => false,
                2 => true,
                _ if self.is_rotational => self.device_depth > 1 && self.together.is_shared(),
                _ => self.queueing.is_queueing(),
            }
    }

    pub(super) fn limit(&self) -> u32 {
        if self.settings.strict_guarantees {
            1
        } else if self.settings.device_depth > 0 {
            self.settings.device_depth.min(self.device_depth)
        } else {
            self.depths[usize::from(self.is_shared())].limit()
        }
    }

    pub(super) fn budget_max(&self) -> u64 {
        match self.settings.max_budget {
            0 if self.is_shared() => self.settings.quantum.into(),
            0 => BUDGET_DEFAULT,
            max => max.into(),
        }
    }

    /// The budget of a queue's next slot.
    pub(super) fn budget(&self, q: u32) -> u32 {
        let max = self.budget_max();
        if self.is_shared() || !self.queue(q).is_sync {
            return max.min(1 << 30) as u32;
        }
        // By weight, so that a light one's turns are short rather than rare.
        let share = u64::from(self.fair.share_of(Leaf(q))) * u64::from(self.fair.backlogged().max(1));
        let budget = self.queue(q).budget_max.clamp(1, max);
        (budget * share >> 16).clamp(max / 8, budget.max(max / 8)).clamp(1, 1 << 30) as u32
    }

    // ---- what goes next ----

    /// `all`: nothing is held back.
    pub(super) fn next(&mut self, now: Instant, all: bool) -> Next {
        self.pressed = false;
        if let Some(id) = self.waitings.take_returned() {
            self.in_flight += 1;
            return Next::Request(id);
        }
        if self.waitings.is_empty() {
            // The turn goes on: who is held for is not there.
            return Next::Nothing;
        }
        if !all && self.in_flight >= self.limit() {
            self.pressed = true;
            return Next::Nothing;
        }
        loop {
            let turn = match self.turn {
                Some(turn) => turn,
                None => {
                    let queue = self.fair.select(now).expect("something waits, so someone is busy").0;
                    let left = self.budget(queue);
                    self.queue_mut(queue).left = left.into();
                    let turn = Turn { queue, since: now, served: 0, held: None };
                    self.turn = Some(turn);
                    turn
                }
            };
            let queue = self.queue(turn.queue);
            if queue.line.is_empty() {
                if !all && let Some(until) = self.may_hold(now, &turn) {
                    self.counts.holds += u64::from(turn.held.is_none());
                    self.turn = Some(Turn { held: Some(until), ..turn });
                    return Next::Hold { until };
                }
                self.expire_empty(now, &turn);
                continue;
            }
            let id = self.choose(now, turn.queue);
            let sectors = self.waitings.extent(id).sectors;
            let queue = self.queue(turn.queue);
            if turn.served > 0
                && (sectors > queue.left || now.since(turn.since) >= self.settings.timeout_sync)
            {
                let exhausted = sectors > queue.left;
                self.charge_time(now, &turn);
                self.expire_backlogged(&turn, exhausted);
                continue;
            }
            self.send(now, turn, id, sectors);
            return Next::Request(id);
        }
    }

    fn send(&mut self, now: Instant, turn: Turn, id: RequestId, sectors: u64) {
        let extent = self.waitings.extent(id);
        let queue = self.queues[turn.queue as usize].as_mut().expect("it is in service");
        queue.line.take(&mut self.waitings, id);
        queue.in_flight += 1;
        queue.left = queue.left.saturating_sub(sectors);
        queue.position = extent.end();
        self.in_flight += 1;
        self.merging.served(now, turn.queue);
        self.tell_head(turn.queue);
        self.turn = Some(Turn { served: turn.served + sectors, held: None, ..turn });
        self.fair.serve(sectors);
    }

    /// The next request of a queue: the oldest if it has waited for too long, else by position.
    fn choose(&self, now: Instant, q: u32) -> RequestId {
        let queue = self.queue(q);
        let expire = if queue.is_sync { self.settings.fifo_expire_sync } else { self.settings.fifo_expire_async };
        let oldest = queue.line.oldest().expect("something waits");
        if now.since(self.waitings.arrived(oldest)) >= expire {
            return oldest;
        }
        queue.line.next_from(&self.waitings, queue.position, self.back_seek()).expect("something waits")
    }

    // ---- waiting for somebody ----

    /// Whether others wait for the queue in service, which has nothing to ask, and until when.
    fn may_hold(&self, now: Instant, turn: &Turn) -> Option<Instant> {
        let idle = self.settings.slice_idle;
        let queue = self.queue(turn.queue);
        let nobody = queue.is_sync && self.merging.users(turn.queue) == 0;
        if nobody || !queue.is_sync || queue.priority.class == PriorityClass::Idle || idle == Duration::ZERO {
            return None;
        }
        if self.is_shared() {
            if turn.served > 0 || !self.comes_back(now, turn.queue) {
                return None; // Its slot is over; when its next one comes, others may wait.
            }
            if self.in_flight == 0 && self.settings.share_floor > 0 || !self.lull.may_wait() {
                return None; // U1, U3
            }
            if self.in_flight == 0 {
                let until = queue.think.last_end()? + idle;
                return (now < until).then_some(until);
            }
            let until = turn.held.unwrap_or(turn.since + self.settings.timeout_sync);
            return (now < until).then_some(until);
        }
        if turn.served == 0 {
            return None; // It was kept while many were served at once.
        }
        if queue.in_flight > 0 {
            let until = turn.held.unwrap_or(now + self.settings.timeout_sync);
            return (now < until).then_some(until);
        }
        let end = queue.think.last_end()?;
        let is_seeky = queue.seeks.is_seeky(SEEKY);
        let length = if is_seeky { idle.min(ms(2)) } else { idle };
        let until = end + length;
        (now < until && !queue.think.is_longer_than(Duration::from_nanos(idle.as_nanos() / 2))).then_some(until)
    }

    /// Whether a queue without requests is likely to ask again at once.
    fn comes_back(&self, now: Instant, q: u32) -> bool {
        let queue = self.queue(q);
        let idle = self.settings.slice_idle;
        let short = Duration::from_nanos(idle.as_nanos() / 2);
        queue.is_sync
            && self.merging.users(q) > 0
            && queue.priority.class != PriorityClass::Idle
            && !queue.think.is_longer_than(short)
            && (queue.in_flight > 0 || queue.think.last_end().is_some_and(|end| now.since(end) < idle))
    }

    // ---- the end of a slot ----

    /// A queue that was slow for its time is charged the time: what the device does at its best meanwhile. Else who seeks
    /// would have the device nearly for himself.
    fn charge_time(&mut self, now: Instant, turn: &Turn) {
        if self.is_shared() || turn.served == 0 {
            return;
        }
        let (nanos, sectors) = (now.since(turn.since).as_nanos().max(1), turn.served);
        if nanos >= ms(2).as_nanos() {
            let rate = ((u128::from(sectors) << 20) / u128::from(nanos)) as u64;
            // What the device did best is forgotten as it does less: a file at its inner edge, or no one who reads on.
            self.best = if rate > self.best { rate } else { self.best - (self.best - rate) / 64 };
        }
        let nanos = nanos.min(self.settings.timeout_sync.as_nanos());
        let charge = (u128::from(self.best) * u128::from(nanos) >> 20) as u64;
        if sectors < charge / 4 {
            self.counts.slow += 1;
            self.fair.serve(charge - sectors);
        }
    }

    fn expire_empty(&mut self, now: Instant, turn: &Turn) {
        self.charge_time(now, turn);
        let stays = self.is_shared() && turn.served > 0 && self.comes_back(now, turn.queue);
        self.counts.expired += 1;
        self.turn = None;
        self.merging.turn_ended(turn.queue, self.queue(turn.queue).seeks.is_seeky(SEEKY));
        if stays {
            let budget = self.budget(turn.queue);
            self.fair.expire(Some(budget));
            return;
        }
        self.counts.skips += u64::from(turn.served == 0);
        self.fair.expire(None);
        self.queue_mut(turn.queue).ran_empty = true;
    }

    fn expire_backlogged(&mut self, turn: &Turn, exhausted: bool) {
        self.counts.expired += 1;
        self.turn = None;
        self.merging.turn_ended(turn.queue, self.queue(turn.queue).seeks.is_seeky(SEEKY));
        let max = self.budget_max();
        if !self.is_shared() {
            let queue = self.queue_mut(turn.queue);
            queue.budget_max = (queue.budget_max * if exhausted { 4 } else { 2 }).min(max);
        }
        self.queue_mut(turn.queue).ran_empty = false;
        let budget = self.budget(turn.queue);
        self.fair.expire(Some(budget));
    }
}
