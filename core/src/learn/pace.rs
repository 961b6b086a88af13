//! Pace: what a device does while it is busy, and so what time that is taken from it is worth.
//!
//! A flush is no request of anybody's turn: it takes time, and schedulers charge in sectors or requests. Its cost is the service that
//! waiting requests would have had in that time.
//!
//! pace.1  The pace is the service of those who ask, in the scheduler's own unit, over the time in which the device had
//!     something to do and no *non-data command* (a flush, a discard, a write of zeroes) was under way. So a device that such work stops is not
//!     taken for a slow one.
//! pace.2  It is that of the last second or two of such time: both counts are halved whenever the time reaches two seconds.
//! pace.3  A non-data command is worth its time at that pace, less what was served meanwhile: a flush that others are served beside costs
//!     less than one that keeps them out, and one that nobody notices nothing. A request that the device had before and that still had to
//!     end counts as served meanwhile, so waiting for that is nobody's cost. Service beyond the pace beside one such command counts beside the
//!     next ones, as far as 5 ms of it: a device that answers in lumps serves many beside one flush and none beside the next, and neither
//!     was slower for it.
//! pace.4  While a group waits for its flush and asks for nothing else, others get ahead of it by their service, and it has no waiting
//!     request that would remind the scheduler. So its own part beside that ([`Pace::meanwhile`]) is taken off its charge.
//! pace.5  Where several are under way at once, each moment is worth something once.
//! pace.6  Until the device was busy for 5 ms in all, nothing is known.
//!
//! Linux charges nobody for flushes. Charging time at the device's best rate ever makes a flush cost hundreds of times what
//! it takes from readers that seek.

use alloc::format;

use crate::record::{Record, Unreadable};
use crate::time::{ms, scale, secs};
use crate::{Duration, Instant, Op};

/// How much time counts at most (pace.2). Chosen: many flushes of a disk (some 10 ms each), and forgotten soon after a load changed.
const MEMORY: Duration = secs(2);
/// How much makes a pace (pace.6). Chosen: many requests of flash, and of a disk one or none, whose pace is rough at first.
const KNOWN: Duration = ms(5);

/// Its part of a record.
const PART: &str = "pace";
/// The most units that another server may tell of. Chosen: far more than any device serves in [`MEMORY`], and rescaled they can still be counted.
const MOST: u64 = 1 << 40;

/// How fast a device serves those who ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    /// Service, and nanoseconds that it took (pace.1).
    units: u64,
    time: u64,
    /// Up to when time was counted.
    until: Instant,
    /// Non-data commands in flight, the start of their present stretch, and the service in it.
    non_data: u32,
    since: Instant,
    meanwhile: u64,
    /// Service beyond the pace beside the last ones (pace.3).
    ahead: u64,
    /// The price of the last non-data command that ended (pace.3).
    price: Option<Price>,
}

/// The worth of this many nanoseconds, and those of them in which nobody was served.
#[derive(Clone, Copy, Debug)]
struct Price {
    units: u64,
    meanwhile: u64,
    lost: u64,
    time: u64,
}

/// Whether a command moves no data (pace.1): a device does it apart from all else, in a time that its length says nothing of.
pub(crate) const fn is_non_data(op: Op) -> bool {
    matches!(op, Op::Flush | Op::Discard | Op::WriteZeroes)
}

impl Pace {
    /// Requests went to the device or came back, with this service; `in_flight` were there before.
    #[inline]
    pub(crate) fn count(&mut self, now: Instant, in_flight: u32, units: u64) {
        let gone = now.since(self.until).as_nanos();
        if gone == 0 && units == 0 {
            return;
        }
        self.until = self.until.max(now);
        if self.non_data > 0 {
            self.meanwhile += units;
        } else if in_flight > 0 {
            self.units += units;
            self.time += gone;
            if self.time >= MEMORY.as_nanos() {
                (self.units, self.time) = (self.units / 2, self.time / 2);
            }
        }
    }

    /// Tells the next scheduler of the device's pace.
    pub(crate) fn hand_on(&self, into: &mut Record) {
        into.put(PART, &(self.units, self.time));
    }

    /// Begins with the pace that another scheduler learned.
    pub(crate) fn take_on(&mut self, from: &mut Record) -> Result<(), Unreadable> {
        match from.take(PART)? {
            Some((units, time)) if time < 2 * MEMORY.as_nanos() && units < MOST => {
                (self.units, self.time) = (units, time);
                Ok(())
            }
            Some((units, time)) => Err(Unreadable { part: PART.into(), why: format!("{units} in {time} ns") }),
            None => Ok(()),
        }
    }

    /// The unit changes from now on: the counts are multiplied by `times`.
    pub(crate) fn rescale(&mut self, times: f64) {
        for units in [&mut self.units, &mut self.meanwhile, &mut self.ahead] {
            *units = (*units as f64 * times) as u64;
        }
    }

    pub(crate) fn begins(&mut self, now: Instant, in_flight: u32) {
        self.count(now, in_flight, 0);
        if self.non_data == 0 {
            (self.since, self.meanwhile) = (now, 0);
        }
        self.non_data += 1;
    }

    /// A non-data command has ended, and `paid` of its time is to be charged: its worth is the service lost since it began, or since
    /// another one ended (pace.5). Returns how long that is.
    pub(crate) fn ends(&mut self, now: Instant, paid: Duration) -> Duration {
        // A scheduler that takes over hears of the end alone.
        let Some(left) = self.non_data.checked_sub(1) else { return Duration::ZERO };
        self.non_data = left;
        let took = now.since(self.since).as_nanos();
        self.price = self.units_in(took).map(|whole| {
            let served = self.meanwhile + self.ahead;
            let units = whole.saturating_sub(served);
            self.ahead = served.saturating_sub(whole).min(scale(self.units, KNOWN.as_nanos(), self.time));
            Price { units, meanwhile: self.meanwhile, lost: scale(took, units, whole), time: paid.as_nanos().max(took) }
        });
        (self.since, self.meanwhile, self.until) = (now, 0, self.until.max(now));
        Duration::from_nanos(took)
    }

    /// The worth of a part of the time of the non-data command that [ended](Pace::ends) last, in units (pace.3); `None`: not known yet
    /// (pace.6).
    pub(crate) fn worth(&self, part: Duration) -> Option<u64> {
        match self.price {
            Some(price) => Some(scale(price.units, part.as_nanos(), price.time)),
            None => self.units_in(part.as_nanos()),
        }
    }

    /// The service of others in that part of the time.
    pub(crate) fn meanwhile(&self, part: Duration) -> u64 {
        self.price.map_or(0, |price| scale(price.meanwhile, part.as_nanos(), price.time))
    }

    /// In how much of it those who wait were not served (pace.3).
    pub(crate) fn lost(&self, part: Duration) -> Duration {
        self.price.map_or(part, |price| Duration::from_nanos(scale(price.lost, part.as_nanos(), price.time)))
    }

    /// The service in this many nanoseconds.
    fn units_in(&self, nanos: u64) -> Option<u64> {
        self.is_known().then(|| scale(self.units, nanos, self.time))
    }

    const fn is_known(&self) -> bool {
        self.time >= KNOWN.as_nanos()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::time::us;

    fn at(micros: u64) -> Instant {
        Instant::ZERO + us(micros)
    }

    /// A device that serves 8 units every 10 us, up to 10 ms.
    fn busy() -> Pace {
        let mut pace = Pace::default();
        pace.count(at(0), 0, 0);
        (1..=1000).for_each(|n| pace.count(at(10 * n), 1, 8));
        pace
    }

    /// pace.3
    #[test]
    fn a_flush_that_keeps_others_out_is_worth_its_time() {
        let mut pace = busy();
        pace.begins(at(10_000), 1);
        pace.ends(at(12_000), us(2000));
        assert_eq!((pace.worth(us(2000)), pace.worth(us(500))), (Some(1600), Some(400)));
        assert_eq!(pace.lost(us(2000)), us(2000));
    }

    /// pace.3
    #[test]
    fn a_flush_that_nobody_notices_is_worth_nothing() {
        let mut pace = busy();
        pace.begins(at(10_000), 1);
        (1001..=1200).for_each(|n| pace.count(at(10 * n), 1, 8));
        pace.ends(at(12_000), us(2000));
        assert_eq!((pace.worth(us(2000)), pace.lost(us(2000))), (Some(0), Duration::ZERO));
    }

    /// pace.3: 80 units are due in each 100 us, and every fourth flush sees 320 of them.
    #[test]
    fn flushes_of_a_device_that_answers_in_lumps_are_worth_nothing_if_it_does_as_much_beside_them() {
        let mut pace = busy();
        let mut worth = 0;
        for n in 0..400 {
            let start = 10_000 + 100 * n;
            pace.begins(at(start), 1);
            if n % 4 == 0 {
                pace.count(at(start + 50), 1, 320);
            }
            pace.ends(at(start + 100), us(100));
            worth += pace.worth(us(100)).unwrap();
        }
        assert_eq!(worth, 0);
        // The service ahead covers 400 units at most.
        pace.begins(at(50_000), 1);
        pace.ends(at(52_000), us(2000));
        assert!(pace.worth(us(2000)).unwrap() >= 1600 - 400, "a flush that keeps others out");
    }

    /// pace.3, pace.4
    #[test]
    fn who_is_served_beside_it_lowers_its_worth() {
        let mut pace = busy();
        pace.begins(at(10_000), 1);
        pace.count(at(10_100), 1, 400);
        pace.ends(at(12_000), us(2000));
        assert_eq!((pace.worth(us(1000)), pace.meanwhile(us(1000))), (Some(600), 200));
        assert_eq!(pace.lost(us(2000)), us(1500));
    }

    /// pace.1
    #[test]
    fn neither_idleness_nor_flushes_make_a_device_slow() {
        let mut pace = busy();
        pace.begins(at(10_000), 0);
        pace.ends(at(50_000), us(1));
        pace.count(at(90_000), 0, 0);
        pace.begins(at(90_000), 0);
        pace.ends(at(91_000), us(1000));
        assert_eq!(pace.worth(us(1000)), Some(800));
    }

    /// pace.2
    #[test]
    fn it_follows_the_device_within_seconds() {
        let mut pace = busy();
        (1..=1000).for_each(|n| pace.count(at(10_000 + 10_000 * n), 1, 8));
        pace.begins(at(10_010_000), 0);
        pace.ends(at(10_020_000), us(10_000));
        assert_eq!(pace.worth(us(10_000)), Some(8));
    }

    /// pace.5
    #[test]
    fn each_moment_is_worth_something_once() {
        let mut pace = busy();
        pace.begins(at(10_000), 1);
        pace.begins(at(10_500), 1);
        assert_eq!(pace.ends(at(11_000), us(1000)), us(1000));
        assert_eq!(pace.worth(us(1000)), Some(800));
        assert_eq!(
            pace.ends(at(11_500), us(1500)),
            us(500),
            "paid for by another scheduler's clock, and half of it here"
        );
        assert_eq!(pace.worth(us(1500)), Some(400));
    }

    /// pace.6
    #[test]
    fn nothing_is_known_at_first_and_an_end_alone_does_no_harm() {
        let mut pace = Pace::default();
        assert_eq!(pace.ends(at(5), us(5)), Duration::ZERO);
        pace.begins(at(10), 0);
        pace.ends(at(20), us(10));
        assert_eq!((pace.worth(us(10)), pace.lost(us(10))), (None, us(10)));
    }
}
