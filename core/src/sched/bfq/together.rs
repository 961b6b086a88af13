//! Together: many streams are served at once.
//!
//! On a device that serves many at once and does more that way ([`idling_trial`](crate::learn::idling_trial), with `slice_idle=auto`;
//! `service` decides otherwise, or a fixed `slice_idle`: turns on a device that rotates, but for 0). Example: twelve disks in an array,
//! four groups of random readers. In turns one group has the array, and eleven arms rest; together the array has the requests of all four.
//!
//! together.1  A turn is at most [`QUANTUM`] sectors, and no request grows beyond that by merging.
//! together.2  A queue whose requests are all in the device, and whose stream asks again as soon as it is answered, keeps its place in the
//!             order as if something waited, where groups, classes or weights compete. When its turn comes and nothing waits, the others
//!             wait (a *share wait*), for they would get ahead of their weights. The device does not idle: it has that queue's requests.
//! together.3  Not at any price: the device is never left without work, a share wait ends after `timeout_sync`, and `group_idle=0` has
//!             none at all. Only a raised queue that may have the device for itself (raising.7) is idled for, where no other group
//!             competes.
//! together.4  The device has no more requests than throughput needs ([`depth`](crate::learn::depth)), together.5 aside. A request that
//!             waits here goes by weight; one that waits in the device does not.
//! together.5  On a device that does not rotate, reads have as many places as together.4 gives to all, whatever writes have of those: a
//!             cache that is full takes milliseconds for each write, and reads would have nothing to do with it. A writer that finds no
//!             room keeps its turn, and the queues behind it wait; but a reader that comes then, and would be next if the writer had no
//!             request, goes first, unless the writer is owed more.
//!
//! With together.2–4 there is no choice between shares and throughput for groups that can use their share, which Linux lacks ("no
//! solution currently exists"); for groups that cannot, `group_idle` says whether shares or throughput come first.

use super::{QUANTUM, Settings};
use crate::learn::habits::ThinkTime;
use crate::{Duration, Instant, Op};

/// The requests in the device; see the [module](self) for the rules.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Together {
    pub(super) in_flight: u32,
    /// Those of them that read.
    reads: u32,
}

impl Together {
    /// A request went to the device.
    #[inline]
    pub(super) fn went(&mut self, op: Op) {
        self.in_flight += 1;
        self.reads += u32::from(op == Op::Read);
    }

    /// It is not in the device any more.
    #[inline]
    pub(super) fn left(&mut self, op: Op) {
        self.in_flight -= 1;
        self.reads -= u32::from(op == Op::Read);
    }

    /// together.1, in sectors.
    #[inline]
    pub(super) fn budget_max(settings: &Settings) -> u32 {
        if settings.max_budget == 0 { QUANTUM } else { settings.max_budget.min(1 << 30) }
    }

    /// together.5: a device that does not rotate and takes `most`, and has the `limit` that throughput needs, takes one of the reads that
    /// wait.
    #[inline]
    pub(super) const fn takes_a_read(&self, limit: u32, most: u32, waiting: usize) -> bool {
        let are_between = waiting > 0 && self.reads < self.in_flight;
        are_between && self.reads < limit && self.in_flight < most
    }

    /// together.2: a queue with nothing waiting, and so much in the device, is likely to ask again at once.
    pub(super) fn comes_back(now: Instant, think: &ThinkTime, in_flight: u32, group_idle: Duration) -> bool {
        !think.is_longer_than(Duration::from_nanos(group_idle.as_nanos() / 2))
            && (in_flight > 0 || think.last_end().is_some_and(|end| now.since(end) < group_idle))
    }

    /// together.2, together.3: until when the others wait for such a queue whose turn it is; `alone`: for how long it may have the device
    /// for itself, `held`: until when they wait already.
    pub(super) fn share_wait(
        &self,
        now: Instant,
        think: &ThinkTime,
        in_flight: u32,
        alone: Option<Duration>,
        held: Option<Instant>,
        settings: &Settings,
    ) -> Option<Instant> {
        if in_flight == 0 && (alone.is_some() || self.in_flight == 0) {
            // Otherwise nothing is left idle.
            return Some(think.last_end()? + alone?.max(settings.group_idle));
        }
        Some(held.unwrap_or(now + settings.timeout_sync))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{ms, secs, us};

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(1000 + millis)
    }

    fn with(reads: u32, writes: u32) -> Together {
        let mut together = Together::default();
        (0..reads).for_each(|_| together.went(Op::Read));
        (0..writes).for_each(|_| together.went(Op::Write));
        together
    }

    /// A stream that was answered at 0 and asks within so long, most often.
    fn thinks(time: Duration) -> ThinkTime {
        let mut think = ThinkTime::default();
        for round in 0..8 {
            think.ended(Instant::ZERO + ms(round));
            think.arrived(Instant::ZERO + ms(round) + time, secs(1));
        }
        think.ended(at(0));
        think
    }

    /// together.1
    #[test]
    fn a_turn_is_128_kib_or_what_max_budget_says() {
        let set = |max_budget| Together::budget_max(&Settings { max_budget, ..Settings::default() });
        assert_eq!([set(0), set(8), set(1000)], [256, 8, 1000]);
    }

    /// together.2
    #[test]
    fn a_stream_that_asks_at_once_comes_back_for_as_long_as_group_idle() {
        let (quick, slow) = (thinks(us(500)), thinks(ms(5)));
        let comes = |millis, think, in_flight| Together::comes_back(at(millis), think, in_flight, ms(8));
        assert!(comes(7, &quick, 0) && !comes(8, &quick, 0), "it was answered 8 ms ago");
        assert!(comes(100, &quick, 1), "it waits for an answer");
        assert!(!comes(1, &slow, 0) && !comes(1, &slow, 1), "it thinks for 5 ms");
    }

    /// together.2, together.3
    #[test]
    fn others_wait_while_the_device_works_and_no_longer_than_timeout_sync() {
        let (think, settings) = (thinks(us(500)), Settings::default());
        let wait = |together: Together, in_flight, alone, held| {
            together.share_wait(at(2), &think, in_flight, alone, held, &settings)
        };
        assert_eq!(wait(with(1, 0), 1, None, None), Some(at(2 + 125)), "the device has a request of it");
        assert_eq!(wait(with(1, 0), 1, None, Some(at(50))), Some(at(50)), "from when they began to wait");
        assert_eq!(wait(with(1, 0), 0, None, None), Some(at(2 + 125)), "or of another queue");
        assert_eq!(wait(with(0, 0), 0, None, None), None, "and never is left without work");
        assert_eq!(
            wait(with(0, 0), 0, Some(ms(20)), None),
            Some(at(20)),
            "but for a raised one, from when it was answered"
        );
        assert_eq!(wait(with(1, 0), 0, Some(ms(2)), None), Some(at(8)), "and as long as for a group");
    }

    /// together.5
    #[test]
    fn a_device_full_of_writes_takes_as_many_reads_as_it_has_places() {
        let takes = |reads, writes, waiting| with(reads, writes).takes_a_read(4, 6, waiting);
        assert!(takes(0, 4, 1) && takes(1, 4, 1));
        assert!(!takes(2, 4, 1), "that is all it takes");
        assert!(!takes(4, 1, 1), "reads have four places");
        assert!(!takes(4, 0, 1), "and no writes are in their way");
        assert!(!takes(0, 4, 0), "none waits");
        let mut together = with(2, 4);
        together.left(Op::Write);
        assert!(together.takes_a_read(4, 6, 1) && together.in_flight == 5);
    }
}
