//! Weight-raising: a stream that a person waits for goes before streams that only want throughput.
//!
//! A program that starts reads a few hundred small pieces, one after the other. Beside four writers it gets one piece in each round, and
//! its start takes 10.7 s on a lone disk, where it takes 2 s alone. No stream says that a person waits for it; it is guessed from when
//! the stream asks. While the guess holds, the stream's weight within its group counts 30 times, and the start takes 2.4 s.
//!
//! raising.1  Raised are streams of the default priority alone, whose requests are synchronous and whose queue is theirs: a stream with a
//!            set priority has that.
//! raising.2  A stream is raised when it asks for the first time, or after more than two seconds without a request: a program that
//!            starts, or a click.
//! raising.3  Raising ends after the duration that fits the device ([`PeakRate::raising`](crate::learn::rate::PeakRate::raising)) or 58
//!            MiB, whichever is first, for a stream that reads on longer than that is no start. It begins anew when raising.2 holds anew.
//! raising.4  It also ends when the stream is given a priority or loses its queue to another, and for all when `low_latency` is switched
//!            off.
//! raising.5  When two queues merge, the result keeps the higher weight-raising of the two.
//!
//! Raising has four effects, defined here, and no other code asks whether a queue is raised:
//!
//! raising.6  *Weight*: 30 times the stream's own ([`WeightRaising::coefficient`]).
//! raising.7  *Idling*: the device idles for a raised queue for 20 ms at least. Where many streams are served at once, the queue has the
//!            device for itself in the first half second of raising: a large program starts on flash within that
//!            ([`WeightRaising::idling`]).
//! raising.8  *Charge*: a slow turn is not charged as a fast one: programs that start seek, and on `sata-7200` none of them would be done in a
//!            minute beside readers ([`WeightRaising::surcharge`]).
//! raising.9  *Turns*: a disk that rotates takes turns while a raised stream has something to do beside others, where no two
//!            groups compete, for its arm follows one; and no trial judges it meanwhile ([`Crowd::forces_turns`]). Without this a start beside writers takes 8.6 s on
//!            `sata-7200` and 32 s on `eva-raid5-12`, in place of 2.4 and 1.7.
//! raising.10  Where most open queues are raised, nobody waits for them: throughput is then what they wait for.
//!
//! When `low_latency` is off, no stream is raised. Not here, though Linux has it: *soft real time* and *bursts*; each was
//! tried without and gained nothing (docs/tried.md).

use crate::time::{ms, secs};
use crate::{Duration, Instant};

/// How many times the weight of a raised stream counts (raising.6); the kernel's `bfq_wr_coeff`.
const COEFFICIENT: u32 = 30;
/// Without a request for longer than this, a stream is raised (raising.2); the kernel's `bfq_wr_min_idle_time`.
const AGAIN: Duration = secs(2);
/// Sectors (raising.3): 58 MiB, the kernel's `max_service_from_wr`.
const SERVICE_MAX: u32 = 120_000;
/// How long the device idles at least (raising.7); the kernel's value.
const IDLE: Duration = ms(20);
/// For how long a raised queue may have a device that serves many at once for itself (raising.7). Ours; without it a start beside four
/// writers takes 790 ms on `ssd-sata-consumer`, and 117 with it.
const ALONE: Duration = ms(500);

/// The state of one queue; see the [module](self) for the rules.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct WeightRaising {
    /// When raising began, last.
    since: Instant,
    /// Sectors since then.
    service: u32,
    is_raised: bool,
}

/// How the device idles for a raised queue (raising.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Idling {
    /// If it does, for so long at least.
    pub(super) at_least: Duration,
    /// Others wait for it.
    pub(super) is_owed: bool,
    /// Even with nothing of it in a device that serves many streams at once.
    pub(super) is_alone: bool,
}

impl WeightRaising {
    /// raising.6
    #[inline]
    pub(super) const fn coefficient(&self) -> u32 {
        if self.is_raised { COEFFICIENT } else { 1 }
    }

    /// raising.7; `None`: as for any other queue.
    #[inline]
    pub(super) fn idling(&self, now: Instant, crowd: &Crowd) -> Option<Idling> {
        let is_owed = crowd.few_are_raised();
        let is_fresh = || now.since(self.since) < ALONE;
        self.is_raised.then(|| Idling { at_least: IDLE, is_owed, is_alone: is_owed && is_fresh() })
    }

    /// raising.8: the charge of its turn beside its service, from a given one.
    #[inline]
    pub(super) const fn surcharge(&self, sectors: u64) -> u64 {
        if self.is_raised { 0 } else { sectors }
    }

    /// It had nothing waiting since its last request ended, if it had one, and now asks; `can_rise`: it may be raised (raising.1), and has
    /// nothing in flight. Answers whether it was not raised and is now.
    pub(super) fn became_busy(&mut self, now: Instant, can_rise: bool, last_end: Option<Instant>) -> bool {
        if !can_rise || last_end.is_some_and(|end| now.since(end) <= AGAIN) {
            return false; // raising.2
        }
        let was_raised = core::mem::replace(&mut self.is_raised, true);
        (self.since, self.service) = (now, 0);
        !was_raised
    }

    #[inline]
    pub(super) fn served(&mut self, sectors: u64) {
        self.service = self.service.saturating_add(u32::try_from(sectors).unwrap_or(u32::MAX));
    }

    /// Asked before it is served, with for how long raising lasts: whether it ends now (raising.3).
    #[inline]
    pub(super) fn check(&mut self, now: Instant, duration: impl Fn() -> Duration) -> bool {
        let is_over = self.is_raised && (now.since(self.since) > duration() || self.service > SERVICE_MAX);
        is_over && self.end()
    }

    /// It is raised no more (raising.4). Answers whether it was.
    pub(super) const fn end(&mut self) -> bool {
        core::mem::replace(&mut self.is_raised, false)
    }

    /// Its queue takes another's in (raising.5). Answers whether it was not raised and is now.
    pub(super) const fn inherit(&mut self, other: &Self) -> bool {
        let rises = other.is_raised && !self.is_raised;
        if rises {
            *self = *other;
        }
        rises
    }
}

/// How many queues are open (something of them waits or is in the device), and how many of those are raised (raising.10).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Crowd {
    pub(super) open: u32,
    pub(super) raised: u32,
}

impl Crowd {
    /// A queue has something waiting or in the device, which it had not.
    #[inline]
    pub(super) fn opened(&mut self, raising: &WeightRaising) {
        self.open += 1;
        self.raised += u32::from(raising.is_raised);
    }

    /// It has nothing any more.
    #[inline]
    pub(super) fn closed(&mut self, raising: &WeightRaising) {
        self.open -= 1;
        self.raised -= u32::from(raising.is_raised);
    }

    /// raising.9: a raised queue has something to do, or is in service and idled for, beside others.
    #[inline]
    pub(super) fn forces_turns<'a>(&self, in_service: impl FnOnce() -> Option<&'a WeightRaising>) -> bool {
        self.open > self.raised && (self.raised > 0 || in_service().is_some_and(|raising| raising.is_raised))
    }

    /// Whether the raised ones are no more than the others (raising.10).
    #[inline]
    const fn few_are_raised(&self) -> bool {
        2 * self.raised <= self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION: fn() -> Duration = || secs(5);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(1_000_000 + millis)
    }

    /// One open queue, raised or not, beside another that is not.
    fn beside_another(raising: &WeightRaising) -> Crowd {
        let mut crowd = Crowd::default();
        crowd.opened(raising);
        crowd.opened(&WeightRaising::default());
        crowd
    }

    /// Raised at 0.
    fn raised() -> WeightRaising {
        let mut raising = WeightRaising::default();
        assert!(raising.became_busy(at(0), true, None));
        raising
    }

    /// raising.2, raising.6
    #[test]
    fn who_asks_first_or_after_two_seconds_is_raised() {
        assert_eq!((raised().coefficient(), WeightRaising::default().coefficient()), (30, 1));
        for (pause, is_raised) in [(2000, false), (2001, true)] {
            let mut raising = WeightRaising::default();
            assert_eq!(raising.became_busy(at(10 + pause), true, Some(at(10))), is_raised, "after {pause} ms");
        }
    }

    /// raising.1
    #[test]
    fn who_has_a_priority_or_is_not_idle_is_not_raised() {
        let mut raising = WeightRaising::default();
        assert!(!raising.became_busy(at(0), false, None));
        assert_eq!(raising.coefficient(), 1);
    }

    /// raising.3
    #[test]
    fn raising_ends_with_its_time_or_after_58_mib() {
        let mut raising = raised();
        assert!(!raising.check(at(5000), DURATION));
        assert!(raising.check(at(5001), DURATION));
        assert!(raising.coefficient() == 1 && !raising.check(at(5002), DURATION), "once");
        let mut raising = raised();
        raising.served(120_000);
        assert!(!raising.check(at(1), DURATION));
        raising.served(1);
        assert!(raising.check(at(1), DURATION));
    }

    /// raising.3
    #[test]
    fn a_new_pause_gives_new_time_and_service() {
        let mut raising = raised();
        raising.served(120_000);
        assert!(!raising.became_busy(at(3001), true, Some(at(1000))), "it was raised already");
        raising.served(120_000);
        assert!(!raising.check(at(8001), DURATION));
        assert!(raising.check(at(8002), DURATION));
    }

    /// raising.4, raising.5
    #[test]
    fn a_queue_that_takes_another_in_has_the_higher_raising_of_both_and_its_time() {
        let mut normal = WeightRaising::default();
        assert!(normal.inherit(&raised()) && !normal.inherit(&raised()));
        assert!(normal.coefficient() == 30 && !normal.check(at(5000), DURATION));
        assert!(normal.check(at(5001), DURATION), "since when that began");
        let mut raising = raised();
        assert!(!raising.inherit(&WeightRaising::default()));
        assert!(raising.end() && !raising.end());
    }

    /// raising.7
    #[test]
    fn the_device_idles_for_20_ms_and_among_many_for_half_a_second() {
        let raising = raised();
        let crowd = beside_another(&raising);
        let idling = Idling { at_least: ms(20), is_owed: true, is_alone: true };
        assert_eq!(raising.idling(at(499), &crowd), Some(idling));
        assert_eq!(raising.idling(at(500), &crowd), Some(Idling { is_alone: false, ..idling }));
        assert_eq!(WeightRaising::default().idling(at(0), &crowd), None);
    }

    /// raising.8
    #[test]
    fn a_slow_turn_of_a_raised_queue_is_not_charged_as_a_fast_one() {
        assert_eq!((raised().surcharge(500), WeightRaising::default().surcharge(500)), (0, 500));
    }

    /// raising.9
    #[test]
    fn turns_are_forced_while_a_raised_queue_has_something_to_do_beside_others() {
        let (normal, mut raising) = (WeightRaising::default(), raised());
        let mut crowd = Crowd::default();
        crowd.opened(&raising);
        assert!(!crowd.forces_turns(|| Some(&raising)), "alone");
        crowd.opened(&normal);
        assert!(crowd.forces_turns(|| None));
        crowd.closed(&raising);
        assert!(crowd.forces_turns(|| Some(&raising)), "it is idled for");
        assert!(!crowd.forces_turns(|| Some(&normal)));
        crowd.opened(&raising);
        assert!(raising.end());
        crowd.raised -= 1;
        assert!(!crowd.forces_turns(|| Some(&raising)) && (crowd.raised == 0));
    }

    /// raising.10
    #[test]
    fn where_most_are_raised_nobody_waits_for_them() {
        let raising = raised();
        let mut crowd = beside_another(&raising);
        let is_owed =
            |crowd: &Crowd| raising.idling(at(0), crowd).is_some_and(|idling| idling.is_owed && idling.is_alone);
        assert!(is_owed(&crowd), "one of two");
        crowd.opened(&raising);
        assert!(!is_owed(&crowd), "two of three");
        crowd.raised -= 1;
        assert!(is_owed(&crowd), "one of three");
        crowd.raised += 1;
        assert!(!is_owed(&crowd) && crowd.open == 3);
    }

    #[test]
    fn a_stream_takes_16_bytes() {
        assert_eq!(size_of::<WeightRaising>(), 16);
    }
}
