//! Objectives: how soon the reads and writes of a group are to be answered, and in which seconds they were.
//!
//! A weight says nothing of time: a tenant that reads one block at a time has its share beside 64 reads of a neighbour,
//! and each of its reads takes ten times as long as alone. A latency says so: of 100 reads and writes of the group, and
//! of those below it, 99 take no longer, from the moment at which the client asked to the answer. Whether others make
//! room for it is the scheduler's ([`Membership::set_latency`](crate::sched::Membership::set_latency)); here it is
//! looked at, whatever the scheduler.
//!
//! objective.1  A second is good if at most one in 100 of its answers was late.
//! objective.2  The last [`SECONDS`] whole seconds count, without those with no answers.

use crate::{Duration, Instant};

/// Seconds that are looked back. Chosen: a minute, as people look at it.
pub const SECONDS: u32 = 60;
/// One late answer in this many is allowed: the 99th percentile.
pub(crate) const ONE_IN: u64 = 100;

const SECOND: u64 = 1_000_000_000;

/// The latency of a group, and how it was kept.
#[derive(Clone, Debug)]
pub(crate) struct Objective {
    pub(crate) target: Duration,
    /// The second that is not over, and its answers.
    second: u64,
    ended: u64,
    late: u64,
    /// Operations answered in the second before it.
    rate: u64,
    /// A bit for each of the seconds before, the latest lowest.
    used: u64,
    missed: u64,
}

impl Objective {
    pub(crate) const fn new(target: Duration) -> Self {
        Self { target, second: 0, ended: 0, late: 0, rate: 0, used: 0, missed: 0 }
    }

    /// Something was answered, so long after it was asked.
    pub(crate) fn answered(&mut self, now: Instant, latency: Duration) {
        if now.as_nanos() / SECOND != self.second {
            self.go_on(now);
        }
        self.ended += 1;
        self.late += u64::from(latency > self.target);
    }

    /// The second may be over (objective.1).
    fn go_on(&mut self, now: Instant) {
        let second = (now.as_nanos() / SECOND).max(self.second);
        let passed = second - self.second;
        if passed > 0 {
            let shift = |bits: u64, last: bool| {
                let with = bits << 1 | u64::from(last);
                with.checked_shl(u32::try_from(passed - 1).unwrap_or(u32::MAX)).unwrap_or(0)
            };
            self.used = shift(self.used, self.ended > 0);
            self.missed = shift(self.missed, self.late * ONE_IN > self.ended);
            self.rate = if passed == 1 { self.ended } else { 0 };
            (self.second, self.ended, self.late) = (second, 0, 0);
        }
    }

    /// Its state, and the measures taken for it.
    pub(crate) fn standing(&self, now: Instant, room: Room) -> Standing {
        let mut this = self.clone();
        this.go_on(now);
        let kept = (1 << SECONDS) - 1;
        Standing { target: this.target, rate: this.rate, used: this.used & kept, missed: this.missed & kept, room }
    }
}

/// The means by which a latency is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Room {
    /// Nothing: it is kept without, or the scheduler does nothing for it.
    #[default]
    Enough,
    /// Others have fewer requests in the device than they would have.
    Made,
    /// Nothing for the time being: it was missed with as few of others' requests in the device as there may be.
    GivenUp,
}

/// How a latency is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The latency that 99 of 100 reads and writes should meet.
    pub target: Duration,
    /// Reads and writes that were answered in the last whole second.
    pub rate: u64,
    /// A bit for each of the last [`SECONDS`] in which something was answered, and in which the target was missed.
    used: u64,
    missed: u64,
    /// The means in use.
    pub room: Room,
}

impl Standing {
    /// The part of the last seconds in which it was met (objective.2); `None`: nothing was answered.
    #[must_use]
    pub fn met(&self) -> Option<f64> {
        let used = self.used.count_ones();
        (used > 0).then(|| f64::from(used - self.missed.count_ones()) / f64::from(used))
    }

    /// Whether it was missed in the last whole second; `None`: nothing was answered.
    #[must_use]
    pub fn missed(&self) -> Option<bool> {
        (self.used & 1 > 0).then_some(self.missed & 1 > 0)
    }

    /// Adds what another queue of the disk saw at the same time: it was met where it was met on both.
    pub fn add(&mut self, other: &Self) {
        self.rate += other.rate;
        self.used |= other.used;
        self.missed |= other.missed;
        self.room = self.room.max(other.room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{ms, secs, us};

    /// Seconds with a number of answers each, and the late ones among them.
    fn after(seconds: &[(u64, u64)]) -> (Objective, Instant) {
        let (mut objective, mut now) = (Objective::new(ms(2)), Instant::ZERO + secs(7));
        for (ended, late) in seconds {
            (0..*ended).for_each(|n| objective.answered(now + us(n), if n < *late { us(2001) } else { ms(2) }));
            now += secs(1);
        }
        (objective, now)
    }

    /// objective.1
    #[test]
    fn a_second_is_good_if_at_most_one_in_a_hundred_was_late() {
        for (second, met) in [((100, 1), 1.0), ((100, 2), 0.0), ((1, 1), 0.0), ((99, 1), 0.0), ((1, 0), 1.0)] {
            let (objective, now) = after(&[second]);
            assert_eq!(objective.standing(now, Room::Enough).met(), Some(met), "{second:?}");
        }
    }

    /// objective.2
    #[test]
    fn the_last_minute_counts_and_of_it_the_seconds_that_were_used() {
        let (objective, now) = after(&[(1, 0), (0, 0), (1, 1), (1, 0), (0, 0), (1, 0)]);
        let standing = objective.standing(now, Room::Enough);
        assert_eq!((standing.met(), standing.missed(), standing.rate), (Some(0.75), Some(false), 1));
        assert_eq!(objective.standing(now + secs(1), Room::Enough).missed(), None);
        assert_eq!(objective.standing(now + secs(1), Room::Enough).rate, 0);
        let later = |seconds| objective.standing(now + secs(seconds), Room::Enough).met();
        assert_eq!(later(56), Some(2.0 / 3.0), "the first two are gone, and the miss is not");
        assert_eq!((later(57), later(59), later(60)), (Some(1.0), Some(1.0), None));
        assert_eq!((later(1 << 40), later(64)), (None, None));
        let (new, start) = after(&[]);
        assert_eq!(new.standing(start, Room::Enough).met(), None);
    }

    #[test]
    fn of_two_queues_both_have_to_meet_it() {
        let (one, now) = after(&[(1, 0), (1, 1), (0, 0)]);
        let (other, _) = after(&[(1, 0), (1, 0), (1, 1)]);
        let mut both = one.standing(now, Room::Enough);
        both.add(&other.standing(now, Room::GivenUp));
        assert_eq!((both.met(), both.room), (Some(1.0 / 3.0), Room::GivenUp));
    }
}
