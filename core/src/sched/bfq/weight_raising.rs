//! Raising: somebody who waits for an answer goes before those who only want throughput.
//!
//! Nobody says that he is waiting; it is guessed from when a stream asks. While it is raised, its weight counts many times.
//!
//! raising.1  Raised are streams of the default weight alone, in no large burst, whose requests are synchronous and whose queue is
//!     theirs: who was given a weight has what he was given. The caller knows (`can_rise`).
//! raising.2  Interactive is who asks for the first time, or after more than two seconds without a request: an application that
//!     starts, or a click. Its weight counts 30 times.
//! raising.3  Soft real time is who asks, is answered, and pauses in a way that keeps it below 3.5 MB/s: a player. It must have
//!     nothing in flight, not seek all the time, and ask no earlier than the `soft start` noted when it ran empty: the time
//!     at which all it got since it became busy is below 7000 sectors a second, and later than one who asks again as soon
//!     as he is answered would come. Its weight counts 3000 times.
//! raising.4  Interactive raising ends after the duration that fits the device ([`PeakRate::raising`](crate::learn::rate::PeakRate::raising))
//!     or 58 MiB, whichever is first: who reads on longer than that is not waiting for an answer. It starts anew when raising.2
//!     holds anew.
//! raising.5  Soft real time ends 300 ms after it was last confirmed by raising.3. If the stream was interactive before and would still
//!     be, it is so again.
//! raising.6  Who finds himself in a large burst, is given a weight, or loses his queue to another, is raised no more; nobody is
//!     when `low_latency` is switched off. The caller says so.
//! raising.7  A stream with asynchronous requests, which raising.1 leaves out, is raised as interactive when it asks after half a second
//!     in which it was not served: raised streams must not keep writers from the disk for ever.
//! raising.8  Whose queue takes another's in is taken for the higher of the two.
//!
//! When `low_latency` is off, none of this is called.

use crate::time::{ms, secs};
use crate::{Duration, Instant};

/// How many times the weight of an interactive stream counts (raising.2); the kernel's `bfq_wr_coeff`.
pub const INTERACTIVE: u32 = 30;
/// And that of a soft real-time one (raising.3): a hundred times that, as in the kernel.
pub const SOFT_REAL_TIME: u32 = 3000;
/// Without a request for longer than this, a stream is interactive (raising.2); the kernel's `bfq_wr_min_idle_time`.
const AGAIN: Duration = secs(2);
/// Sectors a second (raising.3): 3.5 MB/s, a film; the kernel's `bfq_wr_max_softrt_rate`.
const SOFT_RATE: u64 = 7000;
/// Later than a stream that asks again at once (raising.3): a tick of the kernel at 250 Hz.
const MARGIN: Duration = ms(4);
/// Sectors (raising.4): 58 MiB, the kernel's `max_service_from_wr`.
const SERVICE_MAX: u32 = 120_000;
/// How long soft real time lasts (raising.5); the kernel's `bfq_wr_rt_max_time`.
const SOFT_TIME: Duration = ms(300);
/// Without service for longer than this, an asynchronous stream is raised (raising.7); the kernel's `bfq_wr_min_inter_arr_async`.
const ASYNC_GAP: Duration = ms(500);

/// What a stream is taken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// One of those who want throughput.
    Normal,
    /// Somebody waits for it.
    Interactive,
    /// It plays something.
    SoftRealTime,
}

/// A stream that becomes busy, as the caller sees it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Whether it may be raised at all (raising.1), large bursts apart.
    pub can_rise: bool,
    /// Whether it is in a large burst.
    pub in_large_burst: bool,
    /// When its last request ended; `None` if it never had one.
    pub last_end: Option<Instant>,
    /// Whether a request of its is in flight.
    pub in_flight: bool,
    /// Whether all of its last requests were seeks.
    pub totally_seeky: bool,
}

/// What is known of one stream; see the [module](self) for the rules.
#[derive(Clone, Copy, Debug)]
pub struct WeightRaising {
    /// When the present level began or was confirmed; while normal, when it began or the stream was last served.
    since: Instant,
    /// While soft real time: when it began to be interactive, if it was so before (raising.5). While normal: never.
    interactive_since: Instant,
    /// Not before this may it be soft real time (raising.3).
    soft_start: Instant,
    /// When it last became busy.
    busy_since: Instant,
    /// Sectors since then, and since it was raised as interactive.
    busy_service: u32,
    raised_service: u32,
    level: Level,
}

/// It was not interactive.
const NEVER: Instant = Instant::MAX;

impl WeightRaising {
    /// A stream that has not asked yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            since: Instant::ZERO,
            interactive_since: NEVER,
            soft_start: Instant::ZERO,
            busy_since: Instant::ZERO,
            busy_service: 0,
            raised_service: 0,
            level: Level::Normal,
        }
    }

    /// What it is taken for.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Whether it is raised.
    #[must_use]
    pub const fn is_raised(&self) -> bool {
        !matches!(self.level, Level::Normal)
    }

    /// For how long it has been raised, or since it was last confirmed.
    #[must_use]
    pub const fn raised_for(&self, now: Instant) -> Duration {
        now.since(self.since)
    }

    /// How many times its weight counts.
    #[must_use]
    pub const fn coefficient(&self) -> u32 {
        match self.level {
            Level::Normal => 1,
            Level::Interactive => INTERACTIVE,
            Level::SoftRealTime => SOFT_REAL_TIME,
        }
    }

    /// How many times longer its budget may take: as its weight, but a player needs no long turns.
    #[must_use]
    pub const fn timeout_factor(&self) -> u32 {
        match self.level {
            Level::Normal | Level::SoftRealTime => 1,
            Level::Interactive => INTERACTIVE,
        }
    }

    /// It had nothing waiting, and now asks. Answers whether its weight changed.
    pub fn became_busy(&mut self, now: Instant, arrival: &Arrival) -> bool {
        let before = self.level;
        let can_rise = arrival.can_rise && !arrival.in_flight;
        let interactive = can_rise && arrival.last_end.is_none_or(|end| now.since(end) > AGAIN); // raising.2
        let soft = can_rise && now >= self.soft_start && !arrival.totally_seeky; // raising.3
        (self.busy_since, self.busy_service) = (now, 0);
        if arrival.in_large_burst {
            self.end(now); // raising.6
        } else if interactive {
            self.start_interactive(now);
        } else if soft {
            if before == Level::Interactive {
                self.interactive_since = self.since; // raising.5
            }
            (self.level, self.since) = (Level::SoftRealTime, now);
        }
        self.level != before
    }

    /// It asks for something asynchronous, and is busy already. Answers whether its weight changed.
    pub fn asked_async(&mut self, now: Instant) -> bool {
        let starved = !self.is_raised() && now.since(self.since) > ASYNC_GAP; // raising.7
        if starved {
            self.start_interactive(now);
        }
        starved
    }

    fn start_interactive(&mut self, now: Instant) {
        (self.level, self.since, self.raised_service) = (Level::Interactive, now, 0);
    }

    /// It was served so many sectors.
    #[inline]
    pub fn served(&mut self, sectors: u64) {
        let sectors = u32::try_from(sectors).unwrap_or(u32::MAX);
        self.busy_service = self.busy_service.saturating_add(sectors);
        self.raised_service = self.raised_service.saturating_add(sectors);
    }

    /// Its turn ended (raising.7).
    pub const fn turn_ended(&mut self, now: Instant) {
        if !self.is_raised() {
            self.since = now;
        }
    }

    /// Nothing of it waits or is in flight any more; the device is held idle for `slice_idle` at most.
    pub fn ran_empty(&mut self, now: Instant, slice_idle: Duration) {
        let nanos = u64::from(self.busy_service) * (secs(1).as_nanos() / SOFT_RATE);
        let slow_enough = self.busy_since + Duration::from_nanos(nanos);
        self.soft_start = self.soft_start.max(slow_enough).max(now + slice_idle + MARGIN); // raising.3
    }

    /// Whether it is still to be raised; asked before it is served. An interactive stream is raised for `duration`. Answers
    /// whether its weight changed.
    #[inline]
    pub fn check(&mut self, now: Instant, duration: Duration, in_large_burst: bool) -> bool {
        self.is_raised() && self.check_raised(now, duration, in_large_burst)
    }

    fn check_raised(&mut self, now: Instant, duration: Duration, in_large_burst: bool) -> bool {
        let before = self.level;
        if in_large_burst {
            return self.end(now); // raising.6
        }
        if before == Level::SoftRealTime && now.since(self.since) > SOFT_TIME {
            if self.interactive_since == NEVER {
                return self.end(now);
            }
            (self.level, self.since) = (Level::Interactive, self.interactive_since); // raising.5
        }
        let over = now.since(self.since) > duration || self.raised_service > SERVICE_MAX;
        if self.level == Level::Interactive && over {
            return self.end(now); // raising.4
        }
        self.level != before
    }

    /// It is raised no more (raising.6). Answers whether its weight changed.
    pub fn end(&mut self, now: Instant) -> bool {
        let was_raised = self.is_raised();
        if was_raised {
            (self.level, self.since, self.interactive_since) = (Level::Normal, now, NEVER);
        }
        was_raised
    }

    /// Its queue takes another's in (raising.8).
    pub fn inherit(&mut self, other: &Self) {
        if other.coefficient() > self.coefficient() {
            (self.level, self.since) = (other.level, other.since);
            (self.interactive_since, self.raised_service) = (other.interactive_since, other.raised_service);
        }
    }
}

impl Default for WeightRaising {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = ms(8);
    const DURATION: Duration = secs(5);
    const PLAIN: Arrival =
        Arrival { can_rise: true, in_large_burst: false, last_end: None, in_flight: false, totally_seeky: false };

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(1_000_000 + millis)
    }

    fn after(millis: u64) -> Arrival {
        Arrival { last_end: Some(at(millis)), ..PLAIN }
    }

    /// Raised as interactive at 0.
    fn interactive() -> WeightRaising {
        let mut raising = WeightRaising::new();
        assert!(raising.became_busy(at(0), &PLAIN));
        assert_eq!((raising.level(), raising.coefficient(), raising.timeout_factor()), (Level::Interactive, 30, 30));
        raising
    }

    /// Asked at 0 and was answered, for so many sectors; it ended at `end` and has nothing any more.
    fn emptied(arrival: &Arrival, sectors: u64, end: u64) -> WeightRaising {
        let mut raising = WeightRaising::new();
        raising.became_busy(at(0), arrival);
        raising.served(sectors);
        raising.ran_empty(at(end), IDLE);
        raising
    }

    /// Soft real time since 1000, and never interactive.
    fn playing() -> WeightRaising {
        let mut raising = emptied(&Arrival { can_rise: false, ..PLAIN }, 700, 50);
        assert!(raising.became_busy(at(1000), &after(50)));
        assert_eq!((raising.level(), raising.coefficient(), raising.timeout_factor()), (Level::SoftRealTime, 3000, 1));
        raising
    }

    /// raising.2
    #[test]
    fn who_asks_first_or_after_two_seconds_is_interactive() {
        interactive();
        for (pause, raised) in [(2000, false), (2001, true)] {
            let mut raising = emptied(&Arrival { can_rise: false, ..PLAIN }, 1 << 20, 10);
            assert_eq!(raising.became_busy(at(10 + pause), &after(10)), raised, "after {pause} ms");
        }
    }

    /// raising.1
    #[test]
    fn who_has_a_weight_or_came_in_a_large_burst_or_is_not_idle_is_not_raised() {
        for arrival in [
            Arrival { can_rise: false, ..PLAIN },
            Arrival { in_large_burst: true, ..PLAIN },
            Arrival { in_flight: true, ..PLAIN },
        ] {
            let mut raising = WeightRaising::new();
            assert!(!raising.became_busy(at(0), &arrival), "{arrival:?}");
            assert!(!raising.is_raised());
        }
    }

    /// raising.3: 700 sectors are 100 ms of the highest rate.
    #[test]
    fn who_stays_below_7000_sectors_a_second_is_soft_real_time() {
        for (now, soft) in [(99, false), (100, true)] {
            let mut raising = emptied(&Arrival { can_rise: false, ..PLAIN }, 700, 50);
            assert_eq!(raising.became_busy(at(now), &after(50)), soft, "at {now} ms");
            assert_eq!(raising.level() == Level::SoftRealTime, soft);
        }
    }

    /// raising.3
    #[test]
    fn who_asks_again_as_soon_as_he_is_answered_is_no_player() {
        for (now, soft) in [(61, false), (62, true)] {
            let mut raising = emptied(&Arrival { can_rise: false, ..PLAIN }, 8, 50);
            assert_eq!(
                raising.became_busy(at(now), &after(50)),
                soft,
                "slice_idle and 4 ms after the end at 50: {now}"
            );
        }
        for arrival in [Arrival { totally_seeky: true, ..after(50) }, Arrival { in_flight: true, ..after(50) }] {
            let mut raising = emptied(&Arrival { can_rise: false, ..PLAIN }, 8, 50);
            assert!(!raising.became_busy(at(100), &arrival), "{arrival:?}");
        }
    }

    /// raising.3: what was too fast once is not forgotten by asking for little.
    #[test]
    fn the_soft_start_never_comes_closer() {
        let mut raising = emptied(&Arrival { can_rise: false, ..PLAIN }, 7000, 50);
        assert!(!raising.became_busy(at(500), &after(50)));
        raising.served(8);
        raising.ran_empty(at(510), IDLE);
        assert!(!raising.became_busy(at(999), &after(510)));
        raising.ran_empty(at(999), IDLE);
        assert!(raising.became_busy(at(1012), &after(999)));
    }

    /// raising.4
    #[test]
    fn interactive_raising_ends_with_its_time_or_after_58_mib() {
        let mut raising = interactive();
        assert!(!raising.check(at(5000), DURATION, false));
        assert!(raising.check(at(5001), DURATION, false));
        assert!(!raising.is_raised());
        let mut raising = interactive();
        raising.served(120_000);
        assert!(!raising.check(at(1), DURATION, false));
        raising.served(1);
        assert!(raising.check(at(1), DURATION, false));
    }

    /// raising.4
    #[test]
    fn a_new_pause_gives_new_time_and_service() {
        let mut raising = interactive();
        raising.served(120_000);
        raising.ran_empty(at(1000), IDLE);
        assert!(!raising.became_busy(at(3001), &after(1000)), "it was interactive already");
        raising.served(120_000);
        assert!(!raising.check(at(8001), DURATION, false));
        assert!(raising.check(at(8002), DURATION, false));
    }

    /// raising.5
    #[test]
    fn a_player_is_one_for_300_ms_after_it_last_behaved_like_one() {
        let mut raising = playing();
        assert!(!raising.check(at(1300), DURATION, false));
        raising.served(8);
        raising.ran_empty(at(1250), IDLE);
        assert!(!raising.became_busy(at(1290), &after(1250)), "confirmed");
        assert!(!raising.check(at(1590), DURATION, false));
        assert!(raising.check(at(1591), DURATION, false));
        assert!(!raising.is_raised());
    }

    /// raising.4
    #[test]
    fn a_player_may_play_for_as_long_as_it_likes() {
        let mut raising = playing();
        for turn in 0..100 {
            raising.served(7000);
            raising.ran_empty(at(1000 + 1000 * turn), IDLE);
            raising.became_busy(at(2000 + 1000 * turn), &after(1000 + 1000 * turn));
            assert!(!raising.check(at(2100 + 1000 * turn), DURATION, false));
        }
        assert_eq!(raising.level(), Level::SoftRealTime);
    }

    /// raising.5
    #[test]
    fn a_player_that_started_as_an_application_is_interactive_again_until_its_time_is_over() {
        let mut raising = interactive();
        raising.served(8);
        raising.ran_empty(at(5), IDLE);
        assert!(raising.became_busy(at(100), &after(5)), "soft real time now");
        raising.ran_empty(at(101), IDLE);
        assert!(!raising.became_busy(at(200), &after(101)));
        assert_eq!(raising.level(), Level::SoftRealTime);
        assert!(raising.check(at(501), DURATION, false));
        assert_eq!(raising.level(), Level::Interactive);
        assert!(!raising.check(at(5000), DURATION, false), "as if it had been so since 0");
        assert!(raising.check(at(5001), DURATION, false));
    }

    /// raising.5
    #[test]
    fn a_player_whose_interactive_time_is_over_is_normal_at_once() {
        let mut raising = interactive();
        raising.ran_empty(at(5), IDLE);
        assert!(raising.became_busy(at(4900), &after(4800)));
        assert!(raising.check(at(5201), DURATION, false));
        assert_eq!(raising.level(), Level::Normal);
        raising.ran_empty(at(5202), IDLE);
        assert!(raising.became_busy(at(5300), &after(5202)), "a player again, and not interactive before");
        assert!(raising.check(at(5601), secs(25), false));
        assert_eq!(raising.level(), Level::Normal);
    }

    /// raising.6
    #[test]
    fn who_turns_out_to_be_in_a_large_burst_is_raised_no_more() {
        for mut raising in [interactive(), playing()] {
            assert!(raising.check(at(1001), DURATION, true));
            assert!(!raising.is_raised());
        }
        let mut raising = interactive();
        assert!(raising.became_busy(at(10), &Arrival { in_large_burst: true, ..after(5) }));
        assert!(!raising.is_raised());
    }

    /// raising.6
    #[test]
    fn the_end_of_what_is_over_changes_nothing() {
        let mut raising = interactive();
        assert!(raising.end(at(1)));
        assert!(!raising.end(at(2)));
        assert_eq!(raising.coefficient(), 1);
    }

    /// raising.7
    #[test]
    fn a_writer_that_was_not_served_for_half_a_second_is_raised() {
        let mut raising = WeightRaising::new();
        raising.turn_ended(at(0));
        assert!(!raising.asked_async(at(500)));
        assert!(raising.asked_async(at(501)));
        assert_eq!(raising.level(), Level::Interactive);
        assert!(!raising.asked_async(at(5000)), "it is so already");
        raising.turn_ended(at(900));
        assert!(raising.check(at(5502), DURATION, false), "while raised, turns do not prolong it");
        assert!(!raising.asked_async(at(6002)), "the end of raising counts as well");
    }

    /// raising.8
    #[test]
    fn a_queue_that_takes_another_in_is_taken_for_the_higher_of_both() {
        let (mut normal, mut raised) = (WeightRaising::new(), playing());
        normal.inherit(&raised);
        assert_eq!(normal.level(), Level::SoftRealTime);
        assert!(!normal.check(at(1300), DURATION, false));
        assert!(normal.check(at(1301), DURATION, false), "since when it began");
        raised.inherit(&interactive());
        assert_eq!(raised.level(), Level::SoftRealTime);
    }

    #[test]
    fn a_stream_takes_48_bytes() {
        assert_eq!(size_of::<WeightRaising>(), 48);
    }
}
