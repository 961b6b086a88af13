//! Injection: while the device is held for a stream that thinks, others may use it, as far as the stream does not suffer.
//!
//! I1  While the stream in service has nothing waiting, others' requests may go as long as fewer than `limit` are in flight,
//!     whosever they are. Each stream has its own limit.
//! I2  It starts with 0 for a stream that asks again soon, with 1 for another, and does so again every second: loads change.
//! I3  Whether the stream suffers is seen in the first request that comes to its empty queue: how long it takes from its
//!     arrival to its end. It is watched at most once in 10 ms, unless there is no baseline yet and nothing is in flight.
//! I4  The baseline is that time when nothing else was in flight from its arrival to its end. What took less, whatever
//!     else went on, is the baseline from then on.
//! I5  When others were injected, a first request that took 1.5 times the baseline or more takes 1 off the limit, and a
//!     quicker one adds 1, up to the most that were ever in flight.
//! I6  Without a baseline, a limit of 0 counts as 1 once the device was held for `slice_idle`: nobody came.
//! I7  On flash a request of 32 KiB or more is injected only as if the limit were 1: it holds up more than its place.

use crate::sched::RequestId;
use crate::time::{ms, secs};
use crate::{Duration, Instant};

/// After so long the limit starts anew (I2).
const RENEW: Duration = secs(1);
/// The least time between two watched requests (I3).
const GAP: Duration = ms(10);
/// Sectors from which a request is large (I7).
const LARGE: u64 = 64;

/// How much may be injected into one stream's pauses.
#[derive(Clone, Copy, Debug)]
pub struct Injection {
    /// When the limit was set anew (I2).
    renewed: Instant,
    /// When a request was watched last (I3).
    watched: Instant,
    /// Nanoseconds; 0: none yet, and at most 4.3 s.
    baseline: u32,
    limit: u16,
}

/// What an injected request would be, and how long the device has been held.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    /// How long the device has been held for the stream in service.
    pub held: Duration,
    /// The tunable.
    pub slice_idle: Duration,
    /// The size of the request that would be injected, in sectors.
    pub sectors: u64,
    /// Whether the device rotates.
    pub rotational: bool,
}

impl Injection {
    /// A new stream, taken for one that asks again soon or not.
    #[must_use]
    pub const fn new(now: Instant, short_think_time: bool) -> Self {
        Self { renewed: now, watched: Instant::ZERO, baseline: 0, limit: !short_think_time as u16 }
    }

    /// How many may be in flight altogether after an injection (I1, I6, I7).
    #[must_use]
    pub fn limit(&self, pause: &Pause) -> u32 {
        let limit = match self.limit {
            0 if self.baseline == 0 && pause.held >= pause.slice_idle => 1, // I6
            limit => u32::from(limit),
        };
        if !pause.rotational && pause.sectors >= LARGE { limit.min(1) } else { limit }
    }

    /// A request comes to the stream's empty queue, while so many are in flight. Answers whether to watch it.
    pub fn first_came(&mut self, now: Instant, short_think_time: bool, in_flight: u32) -> bool {
        if now.since(self.renewed) >= RENEW {
            *self = Self { watched: self.watched, ..Self::new(now, short_think_time) }; // I2
        }
        let watch = now.since(self.watched) >= GAP || self.baseline == 0 && in_flight == 0; // I3
        if watch {
            self.watched = now;
        }
        watch
    }

    /// A watched request of this stream ended. `most` is the most that were in flight lately.
    pub fn learn(&mut self, seen: &Seen, most: u32) {
        let took = u32::try_from(seen.took.as_nanos()).unwrap_or(u32::MAX).max(1);
        let before = self.baseline;
        if before > 0 && seen.injected {
            let suffers = u64::from(took) * 2 >= u64::from(before) * 3;
            self.limit = if suffers {
                self.limit.saturating_sub(1)
            } else if u32::from(self.limit) < most {
                self.limit + 1
            } else {
                self.limit
            }; // I5
        }
        if seen.alone || took < before {
            self.baseline = took; // I4
            if before == 0 {
                self.limit = self.limit.max(1);
            }
        }
    }
}

/// A first request that ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Whose it was.
    pub stream: u32,
    /// From its arrival to its end.
    pub took: Duration,
    /// Whether nothing else was in flight all the time.
    pub alone: bool,
    /// Whether others' requests were injected and may have been in its way.
    pub injected: bool,
}

/// Watches one first request at a time (I3).
#[derive(Clone, Debug, Default)]
pub struct Watch {
    watched: Option<Watched>,
    /// Whether something was injected since the device was last empty.
    injected: bool,
}

#[derive(Clone, Debug)]
struct Watched {
    stream: u32,
    arrived: Instant,
    /// Known from its dispatch on.
    request: Option<RequestId>,
    alone: bool,
}

impl Watch {
    /// Nothing to watch yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { watched: None, injected: false }
    }

    /// The next request that this stream sends is the one to watch; it has just arrived, with so many in flight.
    pub fn begin(&mut self, now: Instant, stream: u32, in_flight: u32) {
        self.injected &= in_flight > 0;
        self.watched = Some(Watched { stream, arrived: now, request: None, alone: in_flight == 0 });
    }

    /// A request went to the device, on its stream's turn or injected into another's.
    #[inline]
    pub fn dispatched(&mut self, stream: u32, request: RequestId, injected: bool) {
        self.injected |= injected;
        let Some(watched) = &mut self.watched else { return };
        if watched.stream == stream && watched.request.is_none() {
            watched.request = Some(request);
        } else {
            watched.alone = false;
        }
    }

    /// A request ended; tells of it if it was the one.
    #[inline]
    pub fn ended(&mut self, now: Instant, request: RequestId) -> Option<Seen> {
        self.watched.as_ref().filter(|watched| watched.request == Some(request))?;
        let Watched { stream, arrived, alone, .. } = self.watched.take()?;
        Some(Seen { stream, took: now.since(arrived), alone, injected: self.injected })
    }

    /// A stream has gone.
    pub fn forget(&mut self, stream: u32) {
        if self.watched.as_ref().is_some_and(|watched| watched.stream == stream) {
            self.watched = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::us;

    const PLUG: Pause = Pause { held: ms(1), slice_idle: ms(8), sectors: 8, rotational: true };

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(100 + millis)
    }

    fn alone(took: Duration) -> Seen {
        Seen { stream: 0, took, alone: true, injected: false }
    }

    fn injected(took: Duration) -> Seen {
        Seen { stream: 0, took, alone: false, injected: true }
    }

    /// A stream whose first request takes 100 µs alone.
    fn known() -> Injection {
        let mut injection = Injection::new(at(0), true);
        injection.learn(&alone(us(100)), 32);
        injection
    }

    /// I2
    #[test]
    fn who_asks_again_soon_starts_without_injection_and_who_thinks_with_one() {
        assert_eq!(Injection::new(at(0), true).limit(&PLUG), 0);
        assert_eq!(Injection::new(at(0), false).limit(&PLUG), 1);
    }

    /// I2
    #[test]
    fn every_second_it_starts_anew() {
        let mut injection = known();
        for _ in 0..5 {
            injection.learn(&injected(us(100)), 32);
        }
        injection.first_came(at(999), true, 4);
        assert_eq!(injection.limit(&PLUG), 6);
        injection.first_came(at(1000), true, 4);
        assert_eq!(injection.limit(&PLUG), 0);
        injection.first_came(at(2000), false, 4);
        assert_eq!(injection.limit(&PLUG), 1);
        assert!(injection.first_came(at(2995), true, 4));
        assert!(!injection.first_came(at(3000), true, 4), "but one was watched 5 ms ago");
    }

    /// I3
    #[test]
    fn a_request_in_ten_milliseconds_is_watched() {
        let mut injection = known();
        assert!(injection.first_came(at(0), true, 0));
        assert!(!injection.first_came(at(9), true, 0));
        assert!(injection.first_came(at(10), true, 0));
        let mut unknown = Injection::new(at(0), true);
        assert!(unknown.first_came(at(0), true, 1));
        assert!(!unknown.first_came(at(1), true, 1), "something is in flight, so no baseline can come of it");
        assert!(unknown.first_came(at(1), true, 0), "a baseline can");
        assert!(unknown.first_came(at(2), true, 0));
    }

    /// I4, I5
    #[test]
    fn the_limit_rises_while_the_stream_does_not_suffer_and_falls_when_it_does() {
        let mut injection = known();
        assert_eq!(injection.limit(&PLUG), 1, "with a baseline, one is tried");
        injection.learn(&injected(us(149)), 3);
        injection.learn(&injected(us(149)), 3);
        assert_eq!(injection.limit(&PLUG), 3);
        injection.learn(&injected(us(149)), 3);
        assert_eq!(injection.limit(&PLUG), 3, "no more than were ever in flight");
        for expected in [2, 1, 0, 0] {
            injection.learn(&injected(us(150)), 3);
            assert_eq!(injection.limit(&PLUG), expected);
        }
    }

    /// I5
    #[test]
    fn what_was_not_injected_into_says_nothing_of_the_limit() {
        let mut injection = known();
        injection.learn(&Seen { injected: false, ..injected(us(900)) }, 32);
        assert_eq!(injection.limit(&PLUG), 1);
        let mut unknown = Injection::new(at(0), true);
        unknown.learn(&injected(us(100)), 32);
        assert_eq!(unknown.limit(&PLUG), 0, "nothing to compare with");
        let mut unknown = Injection::new(at(0), false);
        unknown.learn(&injected(us(100)), 32);
        assert_eq!(unknown.limit(&PLUG), 1);
    }

    /// I4
    #[test]
    fn the_baseline_follows_what_is_alone_and_what_is_quicker() {
        let mut injection = known();
        injection.learn(&alone(us(200)), 32);
        injection.learn(&injected(us(290)), 32);
        assert_eq!(injection.limit(&PLUG), 2, "against 200 now");
        injection.learn(&injected(us(50)), 32);
        injection.learn(&injected(us(75)), 32);
        assert_eq!(injection.limit(&PLUG), 2, "one more, and then one less against 50");
    }

    /// I6
    #[test]
    fn when_nobody_comes_for_slice_idle_one_may_go() {
        let late = Pause { held: ms(8), ..PLUG };
        assert_eq!(Injection::new(at(0), true).limit(&late), 1);
        let mut injection = known();
        injection.learn(&injected(us(900)), 32);
        assert_eq!(injection.limit(&late), 0, "known to suffer");
    }

    /// I7
    #[test]
    fn on_flash_large_requests_go_alone() {
        let mut injection = known();
        for _ in 0..5 {
            injection.learn(&injected(us(100)), 32);
        }
        let large = Pause { sectors: 64, ..PLUG };
        assert_eq!(injection.limit(&large), 6);
        assert_eq!(injection.limit(&Pause { rotational: false, ..large }), 1);
        assert_eq!(injection.limit(&Pause { rotational: false, sectors: 63, ..PLUG }), 6);
    }

    /// I3, I4
    #[test]
    fn the_first_request_is_timed_from_its_arrival_and_others_are_not() {
        let mut watch = Watch::new();
        watch.begin(at(0), 7, 0);
        watch.dispatched(7, RequestId(3), false);
        assert_eq!(watch.ended(at(2), RequestId(4)), None);
        assert_eq!(watch.ended(at(5), RequestId(3)), Some(Seen { stream: 7, ..alone(ms(5)) }));
        assert_eq!(watch.ended(at(6), RequestId(3)), None, "once");
    }

    /// I4
    #[test]
    fn a_request_is_alone_if_nothing_is_in_flight_with_it_at_any_time() {
        for (in_flight, others) in [(0, 0), (1, 0), (0, 1)] {
            for before in [true, false] {
                let mut watch = Watch::new();
                watch.begin(at(0), 7, in_flight);
                for _ in 0..if before { others } else { 0 } {
                    watch.dispatched(8, RequestId(9), false);
                }
                watch.dispatched(7, RequestId(3), false);
                for _ in 0..if before { 0 } else { others } {
                    watch.dispatched(7, RequestId(4), false);
                }
                let seen = watch.ended(at(1), RequestId(3)).unwrap();
                assert_eq!(seen.alone, (in_flight, others) == (0, 0), "{in_flight} in flight, {others} besides");
            }
        }
    }

    /// I5
    #[test]
    fn what_was_injected_counts_until_the_device_was_empty() {
        let mut watch = Watch::new();
        watch.dispatched(8, RequestId(1), true);
        watch.begin(at(0), 7, 1);
        watch.dispatched(7, RequestId(3), false);
        assert!(watch.ended(at(1), RequestId(3)).unwrap().injected);
        watch.begin(at(2), 7, 0);
        watch.dispatched(7, RequestId(3), false);
        assert!(!watch.ended(at(3), RequestId(3)).unwrap().injected);
    }

    #[test]
    fn who_has_gone_is_not_waited_for() {
        let mut watch = Watch::new();
        watch.begin(at(0), 7, 0);
        watch.forget(8);
        watch.dispatched(7, RequestId(3), false);
        assert!(watch.ended(at(1), RequestId(3)).is_some());
        watch.begin(at(0), 7, 0);
        watch.dispatched(7, RequestId(3), false);
        watch.forget(7);
        assert_eq!(watch.ended(at(1), RequestId(3)), None);
    }

    #[test]
    fn a_stream_takes_24_bytes() {
        assert_eq!(size_of::<Injection>(), 24);
    }
}
