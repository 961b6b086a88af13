//! Room: the part of their requests in the cluster that the other gateways leave there while a tenant misses its latency.
//!
//! Tenant A reads one block at a time at gateway 1 and is to be answered within 8 ms. A tenant at gateway 2 has 32 requests in the cluster, and
//! A's reads wait behind them for 16 ms. Gateway 1 has no neighbour that could make room. So its report says by which factor the others are to
//! reduce their requests, and they do: with 0.42 of them A is answered in 7 ms.
//!
//! The scheduler `fair` does the same within a server, with each answer. Here the way to the others and back takes some periods, so
//! a period is looked at, and not an answer.
//!
//! room.1  A period in which the group missed its target multiplies the factor by [`LESS`], and after a good one by [`MORE`]; after
//!         [`CALM`] good ones in a row by [`RISE`]. A group that missed it for two looks in a row is far off: then it is [`FAR`].
//! room.2  After a change for the worse two periods are not looked at: the others hear of it in the first, and answers of the second come sooner.
//! room.3  The factor is at least [`LEAST`]. If the target is missed [`PATIENCE`] times in a row there, it is given up: the others have
//!         all their requests again, and it is tried again after [`REST`] periods, then after twice that, up to [`REST_MAX`].
//! room.4  A group that was not answered in a period needs no room. It has it as before when it is answered again, and after [`AWAY`] periods
//!         begins anew.
//! room.5  The least factor that other gateways tell of holds, until their reports are stale (gateway.1). A gateway with a group whose factor is as
//!         small makes no room for others': of groups that all miss their targets, the one that is farthest off has it.

/// Chosen: at the edge one second in some thirty is missed, and costs the others a seventh of their requests.
const LESS: f64 = 0.85;
const MORE: f64 = 1.005;
/// Chosen: from a thirtieth to all within three minutes of good seconds.
const CALM: u32 = 30;
const RISE: f64 = 1.02;
/// Chosen: a tenth is reached after a dozen periods.
const FAR: f64 = 0.5;
const SKIPPED: u32 = 2;
/// Chosen: a cluster that stands still for some seconds is not to cost a target that was kept.
const AWAY: u32 = 30;
const LEAST: f64 = 0.02;
/// Chosen, as for one server: a short trial, and ever rarer ones.
const PATIENCE: u32 = 3;
const REST: u32 = 10;
const REST_MAX: u32 = 320;

/// The room that a group with a latency needs of other gateways.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct PoolRoom {
    factor: f64,
    /// Periods that are not looked at yet (room.2), and those in which it is not tried (room.3).
    skipped: u32,
    rests: u32,
    rest: u32,
    /// Periods since it was answered (room.4).
    away: u32,
    /// Good periods in a row, and missed ones among those that were looked at.
    good: u32,
    missed: u32,
    missed_at_least: u32,
}

impl PoolRoom {
    pub(super) const fn new() -> Self {
        Self { factor: 1.0, skipped: 0, rests: 0, rest: REST, away: 0, good: 0, missed: 0, missed_at_least: 0 }
    }

    /// The factor for the others.
    pub(super) const fn factor(&self) -> f64 {
        if self.rests > 0 || self.away > 0 { 1.0 } else { self.factor }
    }

    /// A period is over; `missed`: the group missed its target in it, and `None`: it was not answered.
    pub(super) fn period(&mut self, missed: Option<bool>) {
        if missed.is_none() {
            // room.4
            self.away = self.away.saturating_add(1);
            self.rests = self.rests.saturating_sub(1);
            if self.away == AWAY {
                *self = Self { away: AWAY, rest: self.rest, rests: self.rests, ..Self::new() };
            }
        } else if self.rests > 0 || self.away > 0 {
            // The others had all their requests.
            (self.rests, self.away, self.skipped) = (self.rests.saturating_sub(1), 0, SKIPPED);
        } else if self.skipped > 0 {
            self.skipped -= 1;
        } else if missed == Some(true) {
            self.is_missed();
        } else {
            (self.missed, self.missed_at_least, self.good) = (0, 0, self.good.saturating_add(1));
            self.factor = (self.factor * if self.good > CALM { RISE } else { MORE }).min(1.0);
            if self.factor >= 1.0 || self.good > CALM {
                self.rest = REST;
            }
        }
    }

    fn is_missed(&mut self) {
        (self.good, self.missed) = (0, self.missed.saturating_add(1));
        self.missed_at_least = if self.factor <= LEAST { self.missed_at_least + 1 } else { 0 };
        if self.missed_at_least >= PATIENCE {
            // room.3
            (self.rests, self.rest) = (self.rest, (2 * self.rest).min(REST_MAX));
            (self.missed, self.missed_at_least) = (0, 0);
            return;
        }
        self.factor = (self.factor * if self.missed > 1 { FAR } else { LESS }).max(LEAST);
        self.skipped = SKIPPED;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Periods of a cluster in which a group misses its target while others have more than such a part of their requests, which they know of a
    /// period later; the factors.
    fn periods(room: &mut PoolRoom, missed_above: f64, count: usize) -> alloc::vec::Vec<f64> {
        let mut others = room.factor();
        let mut period = |_| {
            let missed = others > missed_above;
            others = room.factor();
            room.period(Some(missed));
            room.factor()
        };
        (0..count).map(&mut period).collect()
    }

    /// room.1, room.2
    #[test]
    fn others_make_room_until_the_target_is_kept_and_no_more_than_that() {
        for target in [0.8, 0.4, 0.1, 0.03] {
            let mut room = PoolRoom::new();
            let found = periods(&mut room, target, 30);
            let last = found[29];
            assert!((0.4 * target..=1.02 * target).contains(&last), "{target}: {found:?}");
            let later = periods(&mut room, target, 600);
            let missed = later.iter().filter(|factor| **factor > target).count();
            assert!(missed <= 60, "{target}: missed in {missed} of 600 periods");
            let mean = later[300..].iter().sum::<f64>() / 300.0;
            assert!(mean > 0.8 * target, "{target}: others have {mean}");
        }
    }

    /// room.3
    #[test]
    fn a_target_that_no_room_keeps_costs_the_others_little() {
        let mut room = PoolRoom::new();
        let found = periods(&mut room, 0.0, 2000);
        let mean = found.iter().sum::<f64>() / 2000.0;
        assert!(mean > 0.9 && found[..50].contains(&LEAST), "{mean}: {:?}", &found[..50]);
        assert!(periods(&mut room, 0.5, 700)[500..].iter().all(|factor| *factor < 0.6), "it is tried again");
    }

    /// room.4
    #[test]
    fn a_tenant_that_is_away_needs_no_room_and_has_it_again_when_it_is_back() {
        let mut room = PoolRoom::new();
        let before = periods(&mut room, 0.2, 20)[19];
        assert!(before < 0.3, "{before}");
        (0..10).for_each(|_| room.period(None));
        assert_eq!(room.factor(), 1.0);
        room.period(Some(true));
        assert_eq!(room.factor(), before, "as before, and what was late while the others had all is not counted");
        (0..AWAY).for_each(|_| room.period(None));
        room.period(Some(false));
        assert_eq!(room.factor(), 1.0, "anew");
    }
}
