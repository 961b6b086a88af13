//! Rate: how fast the device is at its best, and the budgets that follow from that.
//!
//! rate.1  Sectors are counted as they are dispatched, over an interval of one second. It ends early when the device had nothing to do for
//!     100 ms, and then counts if it was at least 300 ms long; an interval of fewer than 32 requests does not count. The pause's length is
//!     reported separately and not counted.
//! rate.2  A request is sequential if it is no seek from where the one before it ended, whoever asked, and the device had
//!     something to do until shortly before.
//! rate.3  A rate measured from less than 3/4 sequential requests is not the best: it counts only if it is above the estimate.
//! rate.4  A rate that counts moves the estimate by one part in 2 to 10: the more sequential and the longer the interval, the
//!     more. There is no ceiling. (Linux ignores rates above 10 GB/s, which a shelf of drives exceeds today.)
//! rate.5  Until something was measured, the estimate is 2/3 of a reference device's rate.
//!
//! The rate of one turn is another thing: beside the rate of whole seconds, in which many streams were served, there is that of the fastest
//! recent turns, each of one stream. One estimate for both was tried in eight ways, and each failed (docs/measured/schedulers.md).
//!
//! rate.6  A turn of 2 ms or longer of a stream that reads on is the estimate if it was faster, and moves it by one part in 64 if it was
//!     slower. Turns that wrote say nothing, for a volatile cache takes in as much as it has room for.
//! rate.7  A turn that seeks takes one part in 256 off the estimate: where all seek, nothing is known of fast turns after a while.
//!
//! Derived from the estimate:
//!
//! budget.1  The maximum budget is the device's best rate times a budget's time (`timeout_sync`); the minimum is 1/32 of it. 8 MiB, Linux's
//!     first guess, until eleven budgets were given, or as set by hand (`max_budget`).
//! budget.2  A new stream's budget is 1/8 of the maximum: it grows fourfold with each turn that uses it up, and if many streams came at
//!     once with budgets near the maximum, the last would wait for the sum of all. (Linux: 2/3.)
//! budget.3  An interactive stream is raised for as long as the reference device needs to start a large application (7 s, on flash
//!     2.5 s), times what that device is faster; within 3 to 25 s.

use super::habits::Seek;
use crate::time::{ms, scale, secs};
use crate::{Duration, Extent, Instant, Sector};

/// How long an interval lasts (rate.1); the kernel's `BFQ_RATE_REF_INTERVAL`.
const INTERVAL: Duration = secs(1);
/// The shortest that tells something; the kernel's `BFQ_RATE_MIN_INTERVAL`.
const INTERVAL_MIN: Duration = ms(300);
/// The fewest requests of one; the kernel's `BFQ_RATE_MIN_SAMPLES`.
const REQUESTS_MIN: u64 = 32;
/// The device had nothing to do for so long: the interval is over; the kernel's value.
const PAUSE: Duration = ms(100);
/// "Shortly before" (rate.2); the kernel's value.
const SHORT: Duration = ms(1);

/// A device to compare with (rate.5, budget.3): its sectors a second, and how long it takes to start a large application. The kernel's
/// `ref_rate` and `ref_wr_duration`: 109 MB/s of a disk, 258 MB/s of flash.
const fn reference(rotational: bool) -> (u64, Duration) {
    if rotational { (213_600, secs(7)) } else { (503_500, ms(2500)) }
}

/// The device's best rate, as far as is known (rate.1–5).
#[derive(Clone, Default, Debug)]
pub(crate) struct PeakRate {
    /// The estimate, in sectors a second; at least 1.
    rate: u64,
    /// When the present interval began; none has if it has no requests.
    began: Instant,
    requests: u64,
    sequential: u64,
    sectors: u64,
    last_dispatch: Instant,
    last_end: Instant,
    /// Where the last dispatched request ended.
    position: Sector,
}

impl PeakRate {
    /// A device with nothing known but whether it rotates (rate.5).
    pub(crate) fn new(rotational: bool) -> Self {
        Self { rate: reference(rotational).0 * 2 / 3, ..Self::default() }
    }

    /// A request went to the device, with `in_flight` there before. Answers whether the estimate moved.
    #[inline]
    pub(crate) fn dispatched(&mut self, now: Instant, extent: Extent, in_flight: u32, seek: Seek) -> bool {
        let mut moved = false;
        // Most often there is no pause, and the interval goes on.
        if in_flight == 0 && self.requests > 0 && now.since(self.last_end.max(self.last_dispatch)) > PAUSE {
            moved = self.close(self.last_end.max(self.last_dispatch));
        } else if self.requests > 0 && now.since(self.began) >= INTERVAL {
            moved = self.close(now);
        }
        if self.requests == 0 {
            self.began = now;
        }
        let distance = extent.start.0.abs_diff(self.position.0);
        let is_seek = distance >= seek.far && extent.sectors < seek.large;
        let busy = in_flight > 0 || now.since(self.last_end) < SHORT;
        self.requests += 1;
        self.sequential += u64::from(busy && !is_seek); // rate.2
        self.sectors += extent.sectors;
        (self.last_dispatch, self.position) = (now, extent.end());
        moved
    }

    /// Memory answered `sectors` that were counted when they went to the device (queue.19).
    pub(crate) const fn took_back(&mut self, sectors: u64) {
        self.sectors = self.sectors.saturating_sub(sectors);
    }

    #[inline]
    pub(crate) const fn ended(&mut self, now: Instant) {
        self.last_end = now;
    }

    #[cold]
    fn close(&mut self, end: Instant) -> bool {
        let length = end.since(self.began);
        let (requests, sequential, sectors) = (self.requests, self.sequential, self.sectors);
        (self.requests, self.sequential, self.sectors) = (0, 0, 0);
        if requests < REQUESTS_MIN || length < INTERVAL_MIN {
            return false; // rate.1
        }
        let rate = scale(sectors, INTERVAL.as_nanos(), length.as_nanos());
        if 4 * sequential < 3 * requests && rate <= self.rate {
            return false; // rate.3
        }
        let weight = scale(9 * sequential / requests, length.as_nanos(), INTERVAL.as_nanos()).min(8);
        let parts = 10 - weight; // rate.4
        // In this order, so that an estimate in small numbers reaches what is measured and not nearly so.
        let before = self.rate;
        self.rate = if rate > before {
            before + (rate - before).div_ceil(parts)
        } else {
            (before - (before - rate).div_ceil(parts)).max(1)
        };
        self.rate != before
    }

    /// The most that the device does in `time`, in sectors.
    pub(crate) fn sectors_in(&self, time: Duration) -> u64 {
        scale(self.rate, time.as_nanos(), secs(1).as_nanos())
    }

    /// For how long an interactive stream is raised (budget.3).
    pub(crate) fn raising(&self, rotational: bool) -> Duration {
        let (rate, start) = reference(rotational);
        Duration::from_nanos(scale(start.as_nanos(), rate, self.rate)).clamp(secs(3), secs(25))
    }
}

/// The rate of the fastest turns of late (rate.6, rate.7).
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct TurnRate {
    /// Sectors in 2^20 ns; 0: nothing is known.
    rate: u64,
}

/// The shortest turn that tells something (rate.6). Chosen: some requests of flash, and of a disk that reads on.
const TURN_MIN: Duration = ms(2);

impl TurnRate {
    /// A turn ended that served this many sectors, some of them written or none.
    pub(crate) fn ended(&mut self, served: u64, time: Duration, wrote: bool, seeks: bool) {
        if seeks {
            self.rate -= self.rate / 256; // rate.7
        } else if !wrote && time >= TURN_MIN {
            let rate = scale(served, 1 << 20, time.as_nanos());
            self.rate = if rate > self.rate { rate } else { self.rate - (self.rate - rate) / 64 }; // rate.6
        }
    }

    /// The sectors of a fast turn in this time.
    pub(crate) fn sectors_in(&self, time: Duration) -> u64 {
        scale(self.rate, time.as_nanos(), 1 << 20)
    }
}

/// No budget is larger, in sectors: half a terabyte.
const MOST: u64 = 1 << 30;

/// How large budgets are (budget.1, budget.2).
#[derive(Clone, Debug)]
pub(crate) struct Budgets {
    /// The value set by hand, in sectors; 0: from the rate.
    fixed: u64,
    max: u64,
    /// Budgets given: moves by 1/8 towards 256 with each.
    given: u16,
}

impl Budgets {
    /// Sectors, before anything is known: 8 MiB, the kernel's value.
    pub(crate) const FIRST: u64 = 16 << 10;
    /// After eleven budgets; the kernel's value.
    const TRUSTED: u16 = 194;

    /// As large as nothing is known, or as set by hand: `max_budget` in sectors, 0 for automatic.
    pub(crate) const fn new(max_budget: u64) -> Self {
        let max = if max_budget == 0 { Self::FIRST } else { max_budget };
        Self { fixed: max_budget, max, given: 0 }
    }

    /// The largest, in sectors.
    pub(crate) fn max(&self) -> u32 {
        self.max.clamp(1, MOST) as u32
    }

    /// The smallest: 1/32 of the largest.
    pub(crate) fn min(&self) -> u32 {
        (self.max / 32).clamp(1, MOST) as u32
    }

    /// That of a new stream (budget.2).
    pub(crate) fn first(&self) -> u32 {
        (self.max / 8).clamp(1, MOST) as u32
    }

    pub(crate) fn gave(&mut self, rate: &PeakRate, timeout: Duration) {
        if self.given < Self::TRUSTED {
            self.given = (7 * self.given + 256) / 8;
            self.follow(rate, timeout);
        }
    }

    /// The rate, the budgets' time or the switch changed: takes the following as the largest (budget.1).
    pub(crate) fn follow(&mut self, rate: &PeakRate, timeout: Duration) {
        self.max = match self.fixed {
            0 if self.given < Self::TRUSTED => Self::FIRST,
            0 => rate.sectors_in(timeout).max(1),
            fixed => fixed,
        };
    }

    /// Sets the largest by hand, in sectors; 0: from the rate. To be followed by [`Self::follow`].
    pub(crate) const fn set_max(&mut self, max_budget: u64) {
        self.fixed = max_budget;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::us;

    /// A device that is kept busy: requests of one size, one after the other, at one distance, for a time.
    struct Run {
        rate: PeakRate,
        now: Instant,
        position: u64,
    }

    impl Run {
        fn new(rotational: bool) -> Self {
            Self { rate: PeakRate::new(rotational), now: Instant::ZERO + secs(1), position: 0 }
        }

        /// Each takes `each`; every `seeks`th is elsewhere. Answers how many times the estimate moved.
        fn serve(&mut self, count: u64, sectors: u64, each: Duration, seeks: u64) -> u32 {
            let mut moves = 0;
            for turn in 1..=count {
                self.position += if turn % seeks == 0 { 1 << 20 } else { 0 };
                let extent = Extent::new(Sector(self.position), sectors);
                moves += u32::from(self.rate.dispatched(self.now, extent, 0, Seek::ROTATIONAL));
                self.position += sectors;
                self.now += each;
                self.rate.ended(self.now);
            }
            moves
        }

        fn rest(&mut self, time: Duration) {
            self.now += time;
        }
    }

    const NEVER: u64 = u64::MAX;

    /// rate.4: 512 KiB each millisecond are 1,024,000 sectors a second.
    #[test]
    fn a_sequential_reader_shows_the_rate_within_five_seconds() {
        let mut run = Run::new(true);
        run.serve(5001, 1024, ms(1), NEVER);
        let rate = run.rate.rate;
        assert!((980_000..=1_024_000).contains(&rate), "{rate}");
    }

    /// rate.4: one part in two of the way after one whole, sequential second.
    #[test]
    fn one_second_moves_the_estimate_half_way() {
        let mut run = Run::new(true);
        let before = run.rate.rate;
        assert_eq!(run.serve(1001, 1024, ms(1), NEVER), 1);
        let measured = 1_024_000;
        assert_eq!(run.rate.rate, before + (measured - before).div_ceil(2));
    }

    /// rate.4
    #[test]
    fn fifty_gigabytes_a_second_are_believed() {
        let mut run = Run::new(false);
        run.serve(50_000, 100_000, ms(1), NEVER); // 100,000,000 sectors a second
        assert!(run.rate.rate > 99_000_000, "{}", run.rate.rate);
    }

    /// rate.3
    #[test]
    fn seeks_do_not_make_a_device_slow() {
        let mut run = Run::new(true);
        let before = run.rate.rate;
        assert_eq!(run.serve(3000, 8, ms(8), 2), 0);
        assert_eq!(run.rate.rate, before);
        assert!(run.serve(5000, 8, ms(1), 4) > 0, "three in four sequential: this is as fast as it goes");
        assert!(run.rate.rate < before / 2);
    }

    /// rate.3
    #[test]
    fn a_fast_random_load_makes_a_device_fast() {
        let mut run = Run::new(true);
        run.serve(60_000, 1024, ms(1), 1);
        assert!(run.rate.rate > 1_000_000);
    }

    /// rate.1
    #[test]
    fn a_pause_ends_an_interval_and_is_no_part_of_it() {
        let mut run = Run::new(true);
        run.serve(400, 1024, ms(1), NEVER);
        run.rest(ms(500));
        assert_eq!(run.serve(1, 1024, ms(1), NEVER), 1);
        let before = PeakRate::new(true).rate;
        let measured = 1_024_000;
        // 0.4 s, sequential but for a request: 0.4 * 8 is 3, one part in 7.
        assert_eq!(run.rate.rate, before + (measured - before).div_ceil(7));
    }

    /// rate.1
    #[test]
    fn what_is_short_or_few_does_not_count() {
        let mut run = Run::new(true);
        for _ in 0..10 {
            assert_eq!(run.serve(290, 1024, ms(1), NEVER), 0, "290 ms");
            run.rest(ms(500));
            assert_eq!(run.serve(31, 1024, ms(30), NEVER), 0, "31 requests");
            run.rest(ms(500));
        }
    }

    /// rate.1
    #[test]
    fn a_pause_of_less_than_100_ms_is_part_of_the_interval() {
        let mut run = Run::new(true);
        for _ in 0..100 {
            run.serve(11, 1024, ms(1), NEVER);
            run.rest(ms(99));
        }
        let rate = run.rate.rate;
        assert!((95_000..110_000).contains(&rate), "{rate}: 11 in 110 ms");
    }

    /// rate.2
    #[test]
    fn who_follows_on_after_a_while_is_not_sequential() {
        let mut run = Run::new(true);
        for _ in 0..1000 {
            run.serve(1, 8, us(100), NEVER);
            run.rest(ms(2));
        }
        assert_eq!(run.rate.rate, PeakRate::new(true).rate, "a thinking reader's rate");
    }

    /// rate.1, rate.2
    #[test]
    fn a_device_that_has_work_is_not_at_rest_however_long_it_takes() {
        let mut rate = PeakRate::new(true);
        let before = rate.rate;
        for turn in 0..100 {
            let now = Instant::ZERO + secs(1) + Duration::from_nanos(turn / 8 * ms(120).as_nanos());
            rate.dispatched(now, Extent::new(Sector(8 * turn), 8), 4, Seek::ROTATIONAL);
        }
        assert!(rate.rate < before, "a second's worth was sequential, and is slower");
    }

    #[test]
    fn a_device_that_crawls_still_has_a_rate() {
        let mut run = Run::new(true);
        run.serve(100_000, 0, ms(1), NEVER);
        assert_eq!(run.rate.rate, 1);
        assert_eq!(run.rate.raising(true), secs(25));
        assert_eq!(run.rate.sectors_in(ms(1)), 0);
    }

    /// budget.3
    #[test]
    fn a_fast_device_raises_for_less_time() {
        assert_eq!(PeakRate::new(true).raising(true), ms(10_500));
        let close = |a: Duration, b: Duration| a.max(b) - a.min(b) < ms(1);
        assert!(close(PeakRate::new(false).raising(false), ms(3750)));
        let mut run = Run::new(false);
        run.serve(10_000, 4096, ms(1), NEVER);
        assert_eq!(run.rate.raising(false), secs(3), "not less than three seconds");
    }

    /// Feeds `count` turns of 2^27 ns (134 ms), each of `served` sectors.
    fn turns(rate: &mut TurnRate, count: u32, served: u64, seeks: bool) {
        let time = Duration::from_nanos(1 << 27);
        (0..count).for_each(|_| rate.ended(served, time, false, seeks));
    }

    /// The sectors of such a turn.
    fn in_a_turn(rate: &TurnRate) -> u64 {
        rate.sectors_in(Duration::from_nanos(1 << 27))
    }

    /// rate.6
    #[test]
    fn the_fastest_turn_counts_at_once_and_slower_ones_little_by_little() {
        let mut rate = TurnRate::default();
        turns(&mut rate, 1, 640_000, false);
        turns(&mut rate, 1, 1_280_000, false);
        assert_eq!(in_a_turn(&rate), 1_280_000);
        turns(&mut rate, 1, 640_000, false);
        assert_eq!(in_a_turn(&rate), 1_280_000 - 9_984, "a 64th of half of it, in whole units of 128");
    }

    /// rate.6
    #[test]
    fn turns_that_wrote_or_were_short_say_nothing() {
        let mut rate = TurnRate::default();
        rate.ended(1 << 20, ms(100), true, false);
        rate.ended(1 << 20, Duration::from_nanos(1_999_999), false, false);
        assert_eq!(rate.sectors_in(secs(1)), 0);
    }

    /// rate.7
    #[test]
    fn where_all_seek_fast_turns_are_forgotten() {
        let mut rate = TurnRate::default();
        turns(&mut rate, 1, 128_000, false);
        turns(&mut rate, 1, 100, true);
        assert_eq!(in_a_turn(&rate), (1000 - 3) * 128);
        turns(&mut rate, 3000, 100, true);
        assert!(in_a_turn(&rate) < 128_000 / 3, "{}", in_a_turn(&rate));
    }

    /// rate.5
    #[test]
    fn before_anything_was_measured_a_device_is_two_thirds_of_a_reference() {
        let rates = [true, false].map(|rotational| PeakRate::new(rotational).rate);
        assert_eq!(rates, [142_400, 335_666]);
    }

    /// budget.1, budget.2
    #[test]
    fn budgets_follow_the_rate_after_eleven() {
        let mut run = Run::new(true);
        run.serve(10_001, 1024, ms(1), NEVER);
        let mut budgets = Budgets::new(0);
        for turn in 1..=11 {
            assert_eq!(budgets.max, Budgets::FIRST, "before budget {turn}");
            budgets.gave(&run.rate, ms(125));
        }
        assert_eq!(budgets.max, run.rate.sectors_in(ms(125)));
        assert!((127_000..=128_000).contains(&budgets.max), "{}", budgets.max);
        assert_eq!((u64::from(budgets.min()), u64::from(budgets.first())), (budgets.max / 32, budgets.max / 8));
    }

    /// budget.1
    #[test]
    fn a_budget_set_by_hand_stays_until_it_is_automatic_again() {
        let rate = PeakRate::new(false);
        let mut budgets = Budgets::new(640);
        for _ in 0..20 {
            budgets.gave(&rate, ms(125));
        }
        assert_eq!((budgets.max, budgets.min()), (640, 20));
        budgets.set_max(0);
        budgets.follow(&rate, ms(125));
        assert_eq!(budgets.max, rate.sectors_in(ms(125)));
        budgets.set_max(1);
        budgets.follow(&rate, ms(125));
        assert_eq!((budgets.max, budgets.min(), budgets.first()), (1, 1, 1), "no budget is empty");
    }
}
