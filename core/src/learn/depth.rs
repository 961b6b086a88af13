//! Depth: the number of requests that the device needs at once, learned from its throughput with more and with fewer.
//!
//! A device that is full serves every stream late, and a stream that asks for one request at a time gets little of it, whatever its
//! weight. An example: an SSD reaches its throughput with 16 requests. With 128 in it, each read waits for 127 others: 1.3 ms instead
//! of 0.16 ms at 100,000 requests a second, and the 112 that are too many are in the device's order, not in that of the weights. So the
//! depth is no larger than throughput needs. (Linux lets a device that queues have all it takes.)
//!
//! The depth is found by trials: the present one beside twice or half of it, in windows that alternate.
//!
//! bfq_depth.1  The measure is time per sector over a window of requests, and only while enough requests are there to fill the
//!              device up to the limit. That fewer are enough while streams wait for another is no reason for a lower limit.
//! bfq_depth.2  A trial compares the present limit with twice or half of it, in windows that alternate, so that a load that changes
//!              slowly is the same for both. It ends as soon as the difference is clear, and after `PAIRS_MAX` pairs at the latest.
//! bfq_depth.3  Twice as many must bring 1.5 % to be taken; half as many may cost 0.5 %.
//! bfq_depth.4  After a trial that changes nothing there is a rest of four times as many windows as the trial had, and at least twice
//!              the rest before. So at most a fifth of the time is spent at another limit than the one thought right, and less the
//!              longer nothing changes. A throughput that is no longer what it was ends the rest, and so does `Depth::review`.
//! bfq_depth.5  On flash the first trials go up from `FIRST`: a device is filled within some hundred requests. Where seeks cost most, the
//!              device sorts best among many requests of one kind, so there the first trials go down.
//! bfq_depth.6  A limit that the load does not reach comes down to the load, but not below `FIRST`, and goes up again by trials when there
//!              is more. A trial with half as many needs a load of twice the present limit: few streams that ask for one request at a time
//!              are left alone, in their own order.
//! bfq_depth.7  Where one stream reads here and there, one request at a time, and most requests that end are writes, the stream waits for
//!              each write that is in the device before its read, and no stream waits for the writes. So on flash, for ten seconds after
//!              such a read, twice as many must bring 12 %, half as many may cost 8 %, and in total at most a fifth is given up. A trial
//!              then ends after few pairs and is followed by four times the rest. The limit goes down first when such a stream comes, and
//!              up when it has gone. (Without this a start beside writers takes 168 ms on `ssd-sata-consumer`, with it 117.)

use super::comparison::{Comparison, Proof, Rate, difference};
use crate::time::secs;
use crate::{Duration, Instant};

/// Where it starts (bfq_depth.5). Chosen: low, for the trials go up from it by doubling.
const FIRST: u32 = 8;
/// The most pairs of windows in a trial (bfq_depth.2). Chosen: six times a trial of four pairs, for small differences.
const PAIRS_MAX: u32 = 24;
/// The most in a trial beside a lone reader (bfq_depth.7), whose differences of 8 and 12 % are clear sooner.
const PAIRS_READER: u32 = 8;
/// The shortest rest after a trial, in windows (bfq_depth.4): four times the 8 windows of a trial of four pairs.
const REST_MIN: u32 = 32;
/// The longest: the shortest, doubled seven times.
const REST_MAX: u32 = 4096;
/// How long a lone reader counts after its last read (bfq_depth.7): one that reads ten blocks a second must not make the depth alternate.
const READER: Duration = secs(10);
/// The least part of throughput that is kept beside it. With up to 8 % given up, 4 KiB reads beside four writers of 8 × 1 MiB on a virtio
/// disk had a p99 of 3.9 to 6.8 ms, without 9.4.
const LEAST: f64 = 0.8;
/// By how much a window may be off, as [`difference`] counts: 1 %. Of three windows of 64 requests, chance has all three so far off together
/// once in some dozen trials.
const BIAS: f64 = 0.005;
/// This number of unusual windows in a row ends a rest (bfq_depth.4). Chosen: as long as a short trial, of three pairs.
const UNUSUAL: u32 = 6;

/// The learned limit: see the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Depth {
    /// The device's own limit.
    max: u32,
    /// The depth found best.
    pub(super) base: u32,
    /// The depth in force, and the requests that a window needs for a result (bfq_depth.1).
    pub(super) limit: u32,
    needed: u32,
    step: Step,
    window: Window,
    /// The next rest (bfq_depth.4).
    rest: u32,
    /// Throughput at `base` when it was last compared, in sectors per second (bfq_depth.4).
    usual: f64,
    /// `base` follows the load, not the device's need (bfq_depth.6).
    by_demand: bool,
    /// The largest load in the last window.
    most: u32,
    /// The end of the time in which a reader beside writers counts, and the part of throughput that is kept in spite of its advantage (bfq_depth.7).
    reader_until: Instant,
    kept: f64,
    pub(super) trials: u64,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// At `base` for `left` windows, with `unusual` of them in a row unusual; then a trial.
    Rest { left: u32, unusual: u32 },
    /// Between `base` and `other`.
    Trial { other: u32, comparison: Comparison, windows: u32 },
}

/// The kind of a completed request (bfq_depth.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    Write,
    /// A read far from the one before, of somebody who had no other.
    Single,
    Other,
}

/// A measurement at one limit.
#[derive(Clone, Copy, Default, Debug)]
struct Window {
    /// Requests still to end before it begins: they were dispatched under another limit.
    skip: u32,
    left: u32,
    size: u32,
    start: Instant,
    sectors: u64,
    /// Requests that ended while the limit did not matter.
    slack: u32,
    /// The most that could have been in the device.
    most: u32,
    /// Requests that ended while others waited for somebody.
    share_waits: u32,
    /// Reads of somebody who had no other, and writes (bfq_depth.7).
    singles: u32,
    writes: u32,
}

impl Window {
    fn new(depth: u32, skip: u32) -> Self {
        let size = if depth > 32 { 2 * depth } else { 64 };
        Self { skip, left: size, size, ..Self::default() }
    }
}

impl Depth {
    /// For a device that takes `max` at once; where it rotates, starting from all of it (bfq_depth.5).
    pub(crate) fn new(max: u32, rotational: bool) -> Self {
        let base = if rotational { max } else { FIRST.min(max) };
        let mut this = Self {
            max,
            base,
            limit: base,
            needed: base,
            step: Step::Rest { left: 0, unusual: 0 },
            window: Window::new(base, base),
            rest: REST_MIN,
            usual: 0.0,
            by_demand: false,
            most: 0,
            reader_until: Instant::ZERO,
            kept: 1.0,
            trials: 0,
        };
        this.try_up();
        this.apply();
        this
    }

    /// The meaning of the present step: in a trial of half the limit, a depth that suffices for the present limit is needed for it too.
    const fn apply(&mut self) {
        self.limit = match &self.step {
            Step::Trial { other, comparison, .. } if comparison.is_other => *other,
            Step::Rest { .. } | Step::Trial { .. } => self.base,
        };
        self.needed = match &self.step {
            Step::Trial { other, .. } if *other < self.base => *other,
            Step::Trial { .. } | Step::Rest { .. } => self.limit,
        };
    }

    /// The device takes `max` at once from now on.
    pub(crate) fn set_max(&mut self, max: u32) {
        self.max = max;
        let is_beyond = matches!(&self.step, Step::Trial { other, .. } if *other > max);
        if self.base > max || is_beyond {
            self.rest_at(self.base.min(max));
        }
    }

    /// The depth that was found best, for another scheduler; 0 where the load alone has brought it down (bfq_depth.6).
    pub(crate) fn found(&self) -> u32 {
        if self.by_demand { 0 } else { self.base }
    }

    /// Begins at a depth that another scheduler has found.
    pub(crate) fn begin_at(&mut self, base: u32) {
        self.rest_at(base.clamp(1, self.max));
    }

    fn rest_at(&mut self, base: u32) {
        self.base = base;
        self.go_to_rest(0);
        self.apply();
        self.resume();
    }

    /// The limit was not in force for a while: what was being measured is measured again.
    pub(crate) fn resume(&mut self) {
        self.window = Window::new(self.limit, self.limit);
    }

    /// The load is another, as the scheduler knows: what was found before says little (bfq_depth.4).
    pub(crate) const fn review(&mut self) {
        self.rest = REST_MIN;
        if let Step::Rest { left, .. } = &mut self.step {
            *left = 0;
        }
    }

    /// A request of `sectors` ended, when `demand` requests were in the device or could have been but for the limit; `share_wait`: they
    /// waited for a group that is behind its weight.
    #[inline]
    pub(crate) fn ended(&mut self, now: Instant, sectors: u64, what: Ended, demand: u32, share_wait: bool) {
        let needed = self.needed;
        let window = &mut self.window;
        if window.skip > 0 {
            window.skip -= 1;
            window.start = now;
            return;
        }
        window.sectors += sectors;
        window.slack += u32::from(demand < needed);
        window.most = window.most.max(demand);
        window.share_waits += u32::from(share_wait);
        window.singles += u32::from(what == Ended::Single);
        window.writes += u32::from(what == Ended::Write);
        window.left -= 1;
        if window.left == 0 {
            self.window_is_full(now);
        }
    }

    #[cold]
    fn window_is_full(&mut self, now: Instant) {
        let Window { size, start, sectors, slack, most, share_waits, singles, writes, .. } = self.window;
        let nanos = now.since(start).as_nanos().max(1);
        let before = self.limit;
        self.most = most;
        let has_come = self.watch_reader(now, singles > 0 && 2 * writes > size);
        let goes_down = matches!(&self.step, Step::Trial { other, .. } if *other < self.base);
        if has_come && !goes_down && slack <= size / 8 {
            self.try_down(); // bfq_depth.7
        } else if goes_down && share_waits > size / 4 {
            self.go_to_rest(0); // bfq_depth.1
        } else if slack <= size / 8 {
            if core::mem::take(&mut self.by_demand) && matches!(self.step, Step::Rest { .. }) {
                self.try_up(); // bfq_depth.6
            } else {
                self.learn(sectors.max(1), nanos);
            }
        } else if most < self.base && self.base > FIRST.min(self.max) {
            self.base = most.max(FIRST.min(self.max)); // bfq_depth.6
            self.by_demand = true;
            self.go_to_rest(0);
            if self.base > FIRST {
                self.start_trial(self.base.div_ceil(2));
            }
        } else if let Step::Trial { .. } = self.step {
            // bfq_depth.1: the load does not carry the trial.
            self.step = Step::Rest { left: REST_MIN, unusual: 0 };
        }
        self.apply();
        let after = self.limit;
        let skip = if before == after { 0 } else { before.max(after) };
        self.window = Window { start: now, ..Window::new(before.max(after), skip) };
    }

    /// bfq_depth.7: a reader is beside writers, or no longer. Returns whether it has just come.
    fn watch_reader(&mut self, now: Instant, is_there: bool) -> bool {
        let was_there = self.has_reader();
        if is_there {
            self.reader_until = now + READER;
        } else if now >= self.reader_until {
            self.reader_until = Instant::ZERO;
        }
        if self.has_reader() != was_there {
            self.kept = 1.0;
            self.review();
        }
        self.has_reader() && !was_there
    }

    fn learn(&mut self, sectors: u64, nanos: u64) {
        let has_reader = self.has_reader();
        match &mut self.step {
            Step::Rest { left, unusual } => {
                let rate = 1e9 * sectors as f64 / nanos as f64;
                let is_usual = rate > self.usual * 0.7 && rate < self.usual * 1.4;
                *unusual = if is_usual { 0 } else { *unusual + 1 };
                if *unusual == UNUSUAL {
                    self.rest = REST_MIN; // bfq_depth.4
                    self.try_up();
                } else if *left == 0 {
                    self.try_up();
                } else {
                    *left -= 1;
                }
            }
            Step::Trial { other, comparison, windows } => {
                comparison.add(Rate { sectors, nanos });
                *windows += 1;
                let (factor, pairs) = match (*other > self.base, has_reader) {
                    (true, false) => (1.015, PAIRS_MAX),
                    (false, false) => (0.995, PAIRS_MAX), // bfq_depth.3
                    (true, true) => (1.12, PAIRS_READER),
                    (false, true) => (0.92, PAIRS_READER), // bfq_depth.7
                };
                let proof = Proof { margin: difference(factor), bias: BIAS, plain: None };
                if let Some(better) = comparison.verdict_within(&proof, pairs) {
                    let rates = comparison.rates.map(Rate::get);
                    let gain = rates[1] / rates[0];
                    let better = better && (!has_reader || self.kept * gain >= LEAST);
                    if better && has_reader {
                        self.kept = (self.kept * gain).min(1.0);
                    }
                    let (other, rate, windows) = (*other, 1e9 * rates[usize::from(better)], *windows);
                    self.end_trial(other, better, rate, windows);
                }
            }
        }
    }

    fn end_trial(&mut self, other: u32, better: bool, rate: f64, windows: u32) {
        let was_up = other > self.base;
        self.usual = rate;
        if better {
            self.base = other;
            self.rest = REST_MIN;
            if was_up { self.try_up() } else { self.try_down() }
        } else if was_up {
            self.try_down();
        } else {
            self.go_to_rest(windows);
        }
    }

    const fn has_reader(&self) -> bool {
        self.reader_until.as_nanos() > 0
    }

    fn try_up(&mut self) {
        if self.base >= self.max {
            return self.try_down();
        }
        self.start_trial((self.base * 2).min(self.max));
    }

    fn try_down(&mut self) {
        if self.base <= 1 || self.most < 2 * self.base {
            return self.go_to_rest(0); // bfq_depth.6
        }
        self.start_trial(self.base.div_ceil(2));
    }

    /// bfq_depth.4
    fn go_to_rest(&mut self, windows: u32) {
        let rest = self.rest.max(4 * windows);
        self.step = Step::Rest { left: if self.has_reader() { 4 * rest } else { rest }, unusual: 0 };
        self.rest = (self.rest * 2).min(REST_MAX);
    }

    fn start_trial(&mut self, other: u32) {
        self.trials += 1;
        self.step = Step::Trial { other, comparison: Comparison::new(0.0), windows: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Duration;

    /// A device whose rate grows with depth up to `knee`; each request has 8 sectors and takes 100 µs up to there.
    struct Bed {
        depth: Depth,
        now: Instant,
        /// How often each limit was in force, by its logarithm.
        ends: u64,
        other: u64,
        random: u64,
    }

    impl Bed {
        fn new(max: u32, rotational: bool) -> Self {
            Self { depth: Depth::new(max, rotational), now: Instant::ZERO, ends: 0, other: 0, random: 1 }
        }

        fn run(&mut self, ends: u64, knee: u32, demand: u32, jitter: u64) {
            for _ in 0..ends {
                let useful = self.depth.limit.min(knee).min(demand).max(1);
                self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let noise = if jitter > 0 { (self.random >> 33) % (2 * jitter) } else { 0 };
                let nanos = (100_000 - jitter * 500 + noise * 500) / u64::from(useful);
                self.now += Duration::from_nanos(nanos);
                self.depth.ended(self.now, 8, Ended::Other, demand, false);
                self.ends += 1;
                self.other += u64::from(self.depth.limit != self.depth.base);
            }
        }
    }

    /// bfq_depth.2, bfq_depth.3, bfq_depth.5
    #[test]
    fn the_depth_goes_up_to_what_throughput_needs_and_not_beyond() {
        for (knee, rotational) in [(32, false), (32, true), (4, false), (1, false), (128, false)] {
            let mut bed = Bed::new(256, rotational);
            bed.run(200_000, knee, 1000, 0);
            assert_eq!(bed.depth.base, knee, "from {}", if rotational { "all" } else { "below" });
        }
    }

    /// bfq_depth.5
    #[test]
    fn flash_is_filled_within_some_thousand_requests() {
        let mut bed = Bed::new(1023, false);
        bed.run(3000, 64, 1000, 0);
        assert_eq!(bed.depth.base, 64);
    }

    #[test]
    fn a_device_that_takes_fewer_has_no_more() {
        let mut bed = Bed::new(64, true);
        for max in [3, 40, 1, 64] {
            bed.depth.set_max(max);
            for _ in 0..200 {
                assert!(bed.depth.limit <= max && bed.depth.base <= max, "{} of {max}", bed.depth.limit);
                bed.run(10, 64, 500, 0);
            }
        }
    }

    /// bfq_depth.2
    #[test]
    fn noise_changes_nothing_but_the_time_it_takes() {
        let wrong = (1..=20).filter(|seed| {
            let mut bed = Bed { random: *seed, ..Bed::new(256, false) };
            bed.run(400_000, 16, 1000, 90);
            bed.depth.base != 16
        });
        let wrong = wrong.count();
        assert!(wrong <= 2, "{wrong} of 20 seeds");
    }

    /// bfq_depth.4
    #[test]
    fn trials_take_a_small_part_of_the_time_and_less_as_it_goes_on() {
        let mut bed = Bed::new(256, false);
        bed.run(100_000, 16, 1000, 0);
        let early = bed.other;
        bed.run(900_000, 16, 1000, 0);
        assert!(early < 20_000, "{early} of 100,000");
        assert!(bed.other - early < 20_000, "{} of 900,000", bed.other - early);
    }

    /// bfq_depth.4
    #[test]
    fn a_device_that_changes_is_tried_again_at_once() {
        let mut bed = Bed::new(256, false);
        bed.run(1_000_000, 16, 1000, 0);
        // Slower by half: a path of two has failed.
        bed.run(20_000, 8, 1000, 0);
        assert_eq!(bed.depth.base, 8);
        bed.run(50_000, 64, 1000, 0);
        assert!(bed.depth.base >= 32, "{}", bed.depth.base);
    }

    /// bfq_depth.7: of a device that does 0.6 to 2.4 % less with half as many.
    #[test]
    fn who_asks_one_at_a_time_is_worth_some_percent_of_what_the_others_do() {
        for (single, base) in [(false, 8), (true, 1)] {
            let mut depth = Depth::new(256, false);
            let mut now = Instant::ZERO;
            for end in 0..20_000 {
                let limit = u64::from(depth.limit);
                now += Duration::from_nanos(100_000 + 5_000 / limit);
                depth.ended(now, 8, if single && end % 50 == 0 { Ended::Single } else { Ended::Write }, 1000, false);
            }
            assert_eq!(depth.base, base, "somebody asks one at a time: {single}");
        }
    }

    /// bfq_depth.7: of a device that does 7 % less with half as many.
    #[test]
    fn all_that_is_lost_for_him_is_a_fifth_and_until_he_has_gone() {
        let mut depth = Depth::new(64, false);
        let mut now = Instant::ZERO;
        let mut run = |ends: u64, every: u64, kept: u64| {
            for end in 0..ends {
                let halvings = 6 - depth.limit.ilog2();
                let nanos = (0..halvings).fold(100_000, |nanos: u64, _| nanos * 100 / kept);
                now += Duration::from_nanos(nanos);
                depth.ended(now, 8, if end % every == 0 { Ended::Single } else { Ended::Write }, 1000, false);
            }
            depth.base
        };
        assert_eq!(run(20_000, u64::MAX, 93), 64);
        assert_eq!(run(20_000, 50, 93), 8, "0.93 times 0.93 times 0.93");
        assert_eq!(run(200_000, 20_000, 93), 8, "one every two seconds is enough for that");
        assert_eq!(run(200_000, 50, 60), 64, "on a device that needs more, more are taken, though it does less");
        assert_eq!(run(400_000, 50, 93), 8);
        assert_eq!(run(200_000, u64::MAX, 93), 64);
    }

    /// bfq_depth.1, bfq_depth.6
    #[test]
    fn few_streams_that_ask_one_at_a_time_are_left_alone() {
        let mut bed = Bed::new(256, false);
        bed.run(100_000, 64, 4, 0);
        assert_eq!((bed.depth.base, bed.other), (8, 0));
    }

    /// bfq_depth.6
    #[test]
    fn a_limit_that_is_not_reached_comes_down_and_goes_up_again_with_the_load() {
        let mut bed = Bed::new(256, true);
        bed.run(50_000, 256, 20, 0);
        assert!(bed.depth.base <= 20, "{}", bed.depth.base);
        bed.run(100_000, 256, 1000, 0);
        assert!(bed.depth.base >= 128, "{}", bed.depth.base);
    }
}
