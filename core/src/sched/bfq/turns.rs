//! In turns: one queue has the device until its turn ends.
//!
//! On a device that does one thing at a time, or most so. Example: two groups of weight 300 and 100 read one file each from a disk of
//! 63 MB/s. A turn of the first is at most 125 ms and 8 MiB, one of the second half of that, and they have 47 and 16 MB/s.
//!
//! turns.1  *Budgets follow use*: times 4 when used up, times 2 when the time was up; less by 4 minimal ones when the stream did not come
//!          back; what was used when the device did not idle for it. The largest is the device's best rate times `timeout_sync`, the
//!          smallest 1/32 of it ([`rate`]).
//! turns.2  *Light queues have short turns rather than rare ones*: a queue that is entitled to less than the average of those that
//!          compete gets a smaller budget and less time in proportion, down to 1/8. And no group has more at a time than its part of a
//!          round of 550 ms, down to the same, so that no group waits for a second, however many there are and however slow their
//!          requests. Where another group begins to compete, the turn under way is shortened. (Added: in Linux light queues wait for
//!          all others' budgets.)
//! turns.3  *Slow turns are charged as fast ones*: a queue that seeks and did less than a quarter of the device's best in such a time is
//!          charged that best, so that it does not have the device nearly for itself; no more than the largest budget. (Linux compares with
//!          the best ever, and charges slow queues so even when all are slow, which makes shares a matter of luck.)
//! turns.4  *Idling*: when the queue in service runs empty, the device idles for it if it is sync, has a short think time, and either
//!          order pays (on a device that rotates, or takes one request at a time from a stream that reads on) or shares would
//!          suffer (another group, class or weight competes). It idles for `slice_idle` at most, longer for a weight-raised one
//!          (raising.7). Linux idles on a disk that queues for no stream that seeks; here such a disk is served in turns only where
//!          it does most that way, and one request at a time would be a turn of no time, which turns.3 never charged. The
//!          device does not idle for a stream that seeks and writes there: a cache takes that, and orders it.
//! turns.5  *In time*: a stream that is back within 3 · `slice_idle` after its queue ran empty, without idling, has the rest of its
//!          budget and loses nothing by the hole. It preempts the queue in service if it would be next; so does a stream of a
//!          higher class, or one that is weight-raised more.

use super::{SEEKY, Settings, Turn};
use crate::learn::habits::{Seek, Seekiness};
use crate::learn::rate::{Budgets, PeakRate, TurnRate};
use crate::time::{ms, scale};
use crate::trace::Expiry;
use crate::{Duration, Extent, Instant};

/// A round in which every group has a turn takes about so long at most (turns.2), where no turn would be too short for it. Chosen: an
/// unlucky group waits for nearly two rounds, which is to be about a second (among 32 groups on `sata-7200`: 0.94 s).
const ROUND: Duration = ms(550);
/// The largest possible turn (turns.2).
const WHOLE: u64 = 1 << 16;
/// Serving in turns; see the [module](self) for the rules.
#[derive(Debug)]
pub(super) struct Turns {
    /// The device's best rate, over whole seconds and within a turn.
    pub(super) rate: PeakRate,
    fastest: TurnRate,
    pub(super) budgets: Budgets,
}

impl Turns {
    pub(super) fn new(rotational: bool, settings: &Settings) -> Self {
        Self {
            rate: PeakRate::new(rotational),
            fastest: TurnRate::default(),
            budgets: Budgets::new(settings.max_budget.into()),
        }
    }

    /// A request goes to the device, with `in_flight` there.
    #[inline]
    pub(super) fn dispatched(&mut self, now: Instant, extent: Extent, in_flight: u32, seek: Seek, settings: &Settings) {
        if self.rate.dispatched(now, extent, in_flight, seek) {
            self.budgets.follow(&self.rate, settings.timeout_sync);
        }
    }

    pub(super) fn gave(&mut self, settings: &Settings) {
        self.budgets.gave(&self.rate, settings.timeout_sync);
    }

    pub(super) fn settings_changed(&mut self, settings: &Settings) {
        self.budgets.set_max(settings.max_budget.into());
        self.budgets.follow(&self.rate, settings.timeout_sync);
    }

    /// turns.2: which part of the largest budget, and of the longest time, a turn may be, of a queue with this share among so many that
    /// compete, in a group with that share; all in parts of 65,536.
    pub(super) fn part(share: u32, competitors: u32, share_of_group: u32, settings: &Settings) -> u64 {
        let average = u64::from(share) * u64::from(competitors);
        let timeout = settings.timeout_sync.as_nanos().max(1);
        let round = u64::from(share_of_group) * ROUND.as_nanos() / timeout;
        average.min(round).clamp(WHOLE / 8, WHOLE)
    }

    /// turns.2: the budget of a queue with this learned need, if it is known.
    pub(super) fn budget(&self, learned: Option<u32>, part: u64) -> u32 {
        let most = self.budgets.max();
        let scaled = (u64::from(most) * part / WHOLE) as u32;
        learned.unwrap_or(most).min(scaled)
    }

    /// turns.2: the longest time for a turn.
    pub(super) fn timeout(settings: &Settings, part: u64) -> Duration {
        Duration::from_nanos(scale(settings.timeout_sync.as_nanos(), part, WHOLE))
    }

    /// turns.1: the budget of a sync queue that had so large a one, after a turn that served this much; `waits`: it has requests in the
    /// device.
    pub(super) fn budget_after(&self, before: u32, served: u64, why: Expiry, waits: bool) -> u32 {
        let (least, most) = (self.budgets.min(), self.budgets.max());
        let after = match why {
            Expiry::NoMoreRequests => u32::try_from(served).unwrap_or(u32::MAX),
            Expiry::TooIdle if waits => before.saturating_mul(2),
            Expiry::TooIdle => before.saturating_sub(least.saturating_mul(4)),
            Expiry::BudgetTimeout => before.saturating_mul(2),
            Expiry::BudgetExhausted => before.saturating_mul(4),
            Expiry::Preempted => before,
        };
        after.clamp(least, most)
    }

    /// turns.3: the charge of a turn beside its service, in sectors; its work is learned from.
    pub(super) fn surcharge(&mut self, now: Instant, turn: &Turn, habit: &Seekiness) -> u64 {
        let (time, seeks) = (now.since(turn.since), habit.is_seeky(SEEKY));
        if turn.served == 0 {
            return 0;
        }
        self.fastest.ended(turn.served, time, turn.wrote, seeks);
        let could = self.fastest.sectors_in(time.min(turn.timeout)).min(self.budgets.max().into());
        if seeks && turn.served < could / 4 { could - turn.served } else { 0 }
    }

    /// turns.4: whether it pays to idle for a sync queue with a short think time, in throughput.
    pub(super) fn order_pays(rotational: bool, queueing: bool, seeks: bool, wrote: bool) -> bool {
        match seeks {
            false => rotational || !queueing,
            true => rotational && !(queueing && wrote),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::habits::Seek;
    use crate::{Extent, Sector};

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(millis)
    }

    /// A turn that began at 0 and read this amount.
    fn turn(served: u64) -> Turn {
        Turn { queue: 0, since: at(0), timeout: ms(125), served, wrote: false, idle_until: None }
    }

    fn habit(seeks: bool) -> Seekiness {
        let mut habit = Seekiness::default();
        let far = if seeks { 1 << 30 } else { 8 };
        for n in 0..64 {
            habit.arrived(Extent::new(Sector(n * far), 8), Seek::ROTATIONAL);
        }
        assert_eq!(habit.is_seeky(SEEKY), seeks);
        habit
    }

    /// A device whose turn of 100 ms is known to have 10,000 sectors; the largest budget is the first guess, 16,384.
    fn turns() -> Turns {
        let mut turns = Turns::new(true, &Settings::default());
        assert_eq!(turns.surcharge(at(100), &turn(10_000), &habit(false)), 0);
        turns
    }

    /// turns.1
    #[test]
    fn budgets_follow_use() {
        let turns = turns();
        assert_eq!([turns.budgets.max(), turns.budgets.first(), turns.budgets.min()], [16_384, 2_048, 512]);
        let after = |before, served, why, waits| turns.budget_after(before, served, why, waits);
        assert_eq!(after(3000, 3000, Expiry::BudgetExhausted, false), 12_000);
        assert_eq!(after(3000, 700, Expiry::BudgetTimeout, false), 6000);
        assert_eq!(after(3000, 700, Expiry::NoMoreRequests, false), 700, "the device did not idle");
        assert_eq!(
            after(3000, 700, Expiry::TooIdle, false),
            3000 - 4 * 512,
            "it idled, and the stream did not come back"
        );
        assert_eq!(after(3000, 700, Expiry::TooIdle, true), 6000, "for its requests are in the device");
        assert_eq!(after(3000, 700, Expiry::Preempted, false), 3000);
        assert_eq!(after(3000, 1, Expiry::NoMoreRequests, false), 512, "not below the smallest");
        assert_eq!(after(9000, 9000, Expiry::BudgetExhausted, false), 16_384, "nor above the largest");
    }

    /// turns.1
    #[test]
    fn a_largest_budget_that_is_set_holds() {
        let mut turns = turns();
        turns.settings_changed(&Settings { max_budget: 640, ..Settings::default() });
        assert_eq!([turns.budgets.max(), turns.budgets.first(), turns.budgets.min()], [640, 80, 20]);
        turns.settings_changed(&Settings { max_budget: 1, ..Settings::default() });
        assert_eq!([turns.budgets.first(), turns.budgets.min()], [1, 1], "no budget is empty");
    }

    /// turns.2: a group of a tenth has a tenth of 550 ms, and of the device's work in that; none has less than an eighth of a turn.
    #[test]
    fn a_light_group_has_short_turns() {
        let (turns, settings) = (turns(), Settings::default());
        for (share, millis, budget) in [(65_536, 125, 16_384), (6_554, 55, 7_209), (65, 15, 2_048)] {
            let part = Turns::part(share, 1000, share, &settings);
            assert_eq!(Turns::timeout(&settings, part).as_nanos() / 1_000_000, millis, "share {share}");
            assert!(turns.budget(None, part).abs_diff(budget) <= 1, "share {share}: {}", turns.budget(None, part));
        }
        assert_eq!(turns.budget(Some(700), WHOLE), 700, "what it has learned to need, if that is less");
    }

    /// turns.2
    #[test]
    fn a_light_queue_of_a_group_has_short_turns() {
        let part = |competitors| Turns::part(65_536 / 20, competitors, 65_536, &Settings::default());
        let parts = [40, 20, 10, 2].map(part);
        assert_eq!(parts, [WHOLE, 65_520, 32_760, WHOLE / 8], "of an average of a 40th, a 20th, a 10th and a half");
    }

    /// turns.3
    #[test]
    fn a_turn_that_seeks_is_charged_what_a_fast_one_would_have_done() {
        let charged =
            |turns: &mut Turns, millis, served, seeks| turns.surcharge(at(millis), &turn(served), &habit(seeks));
        let beside = charged(&mut turns(), 100, 200, true);
        assert!((9_700..9_800).contains(&beside), "{beside} beside 200, where a fast turn has 10,000");
        assert_eq!(charged(&mut turns(), 100, 2_500, true), 0, "a quarter of that is fast enough");
        assert_eq!(charged(&mut turns(), 100, 200, false), 0, "a slow stream that reads on is the device's doing");
        let (late, whole) = (charged(&mut turns(), 1000, 200, true), charged(&mut turns(), 125, 200, true));
        assert_eq!(late, whole, "no more than its time was, whenever it was noticed");
        let mut small = turns();
        small.settings_changed(&Settings { max_budget: 1000, ..Settings::default() });
        assert_eq!(charged(&mut small, 100, 200, true), 800, "nor than the largest budget");
    }

    /// turns.3
    #[test]
    fn where_all_seek_nobody_is_charged_beyond_what_was_served() {
        let mut turns = Turns::new(true, &Settings::default());
        let charged: u64 = (0..100).map(|_| turns.surcharge(at(100), &turn(200), &habit(true))).sum();
        assert_eq!(charged, 0, "what the device could do is not known");
    }

    /// turns.4
    #[test]
    fn order_pays_where_an_arm_follows_one_stream_or_one_request_is_taken_at_a_time() {
        let pays = |rotational, queueing| {
            [(false, false), (true, false), (true, true)]
                .map(|(seeks, wrote)| Turns::order_pays(rotational, queueing, seeks, wrote))
        };
        assert_eq!(pays(true, true), [true, true, false], "a cache takes writes that seek, and orders them");
        assert_eq!(pays(true, false), [true, true, true]);
        assert_eq!(pays(false, false), [true, false, false]);
        assert_eq!(pays(false, true), [false, false, false]);
    }
}
