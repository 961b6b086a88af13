//! The state of one group's ceiling: up to when what was let through is paid for.
//!
//! Twelve meters: for each rate one that pays at the rate itself and one that pays at the burst's. Example: 100 IOPS, and bursts of
//! 2,000 for 60 s. The first meter moves on by 10 ms for each I/O and may be (2000 − 100) · 60 / 100 s = 1,140 s ahead; the second
//! moves on by 0.5 ms and may be [`TOLERANCE`] ahead. After 60 s at 2,000 IOPS the first one is at its end, and from then on decides.
//! (QEMU's bucket holds 2000 · 60 and leaks meanwhile, so that a burst there lasts 3 s longer than it says.)

use super::rates::{Ceiling, Rate};
use crate::record::{Record, Unreadable};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::{ms, scale};
use crate::{Direction, Duration, Instant};

/// How far ahead of its rate a group may be (ceiling.2). Chosen: half of the longest gap that a client at 3,000 IOPS should see; 0.5 % of
/// its I/Os in a second; and many times the lateness of a timer or of a worker's turn.
pub const TOLERANCE: Duration = ms(5);

/// Parts of a nanosecond in which meters count. Chosen: an I/O at 700 million a second is known to 1 %, and the count lasts for
/// 36 years.
const TICKS: u64 = 16;

/// Binary places of [`Meter::unit`]. Chosen: a byte at a terabyte a second is still known to six digits.
const PLACES: u32 = 24;

/// The furthest that a meter is ahead: 9 years. More is never paid, and sums stay far from the end of the count.
const FURTHEST: u64 = u64::MAX / 4;

/// The budget of one rate.
///
/// Its words are read and written one by one, and tell of nothing but themselves: so no access orders any other.
#[derive(Default, Debug)]
struct Meter {
    /// Ticks that an I/O or a byte takes, with [`PLACES`] binary places; 0: no such rate.
    unit: AtomicU64,
    /// Ticks that it may be ahead.
    room: AtomicU64,
    /// Up to when what was let through is paid for, in ticks.
    until: AtomicU64,
}

impl Meter {
    /// When something may be let through again, in ticks.
    #[inline]
    fn free_at(&self) -> u64 {
        self.until.load(Ordering::Relaxed).saturating_sub(self.room.load(Ordering::Relaxed))
    }

    /// Lets `amount` through, at `now` in ticks; the time that it takes to pay.
    #[inline]
    fn charge(&self, now: u64, amount: u64) -> u64 {
        let ticks = (u128::from(self.unit.load(Ordering::Relaxed)) * u128::from(amount)) >> PLACES;
        let cost = ticks.min(u128::from(FURTHEST)) as u64;
        let paid = |until: u64| Some(until.max(now).saturating_add(cost).min(now.saturating_add(FURTHEST)));
        let _ = self.until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid);
        cost
    }

    /// Sets another rate (0: none), and how far it may be ahead. The debt stays, and so do the remaining savings (ceiling.9).
    fn set(&self, now: u64, rate: u64, room: Duration) {
        let unit = ((TICKS * 1_000_000_000) << PLACES).checked_div(rate).unwrap_or(0);
        let room = room.as_nanos().saturating_mul(TICKS).min(FURTHEST);
        let (unit_before, room_before) =
            (self.unit.swap(unit, Ordering::Relaxed), self.room.swap(room, Ordering::Relaxed));
        let moved = |until: u64| {
            // Below zero: saved, and not used.
            let owed = i128::from(until) - i128::from(room_before) - i128::from(now);
            let owed = (owed * i128::from(unit)).checked_div(unit_before.into()).unwrap_or(-i128::from(room));
            let until = i128::from(now) + (owed + i128::from(room)).min(FURTHEST.into());
            Some(u64::try_from(until).unwrap_or(0))
        };
        let _ = self.until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved);
    }
}

/// The state of one group's ceiling, for all that share it.
#[derive(Default, Debug)]
pub struct Budget {
    /// By rate: at the rate itself, then at the burst's.
    meters: [[Meter; 2]; Rate::COUNT],
    /// By direction, one bit for each meter that binds.
    binding: [AtomicU32; 2],
    /// By direction, lines of queues that wait for it (ceiling.8).
    waiting: [AtomicU32; 2],
}

/// One bit for each meter that counts bytes.
const BYTES: u32 = {
    let (mut bits, mut rate) = (0, 0);
    while rate < Rate::COUNT {
        bits |= if Rate::ALL[rate].counts_bytes() { 3 << (2 * rate) } else { 0 };
        rate += 1;
    }
    bits
};

#[inline]
fn ticks(at: Instant) -> u64 {
    at.as_nanos().saturating_mul(TICKS)
}

impl Budget {
    /// A budget that nothing was used of.
    #[must_use]
    pub fn new(ceiling: &Ceiling) -> Self {
        let this = Self::default();
        this.set(Instant::ZERO, ceiling);
        this
    }

    /// Another ceiling, from now on (ceiling.9). Queues in which bios wait for it are to
    /// [look again](super::Ceilings::look_again).
    pub fn set(&self, now: Instant, ceiling: &Ceiling) {
        let Ceiling { max, burst, length } = ceiling;
        let mut binding = [0, 0];
        for rate in Rate::ALL {
            let (slow, fast) = (max.get(rate).unwrap_or(0), burst.get(rate).unwrap_or(0));
            // ceiling.7
            let saved = if slow == 0 { 0 } else { scale(fast.saturating_sub(slow), length.as_nanos(), slow) };
            let saved = Duration::from_nanos(saved);
            let [own, in_burst] = &self.meters[rate as usize];
            own.set(ticks(now), slow, saved + TOLERANCE);
            in_burst.set(ticks(now), fast, TOLERANCE);
            for direction in Direction::ALL {
                if rate.counts(direction) {
                    let bits = u32::from(slow > 0) | u32::from(fast > 0) << 1;
                    binding[direction as usize] |= bits << (2 * rate as u32);
                }
            }
        }
        for (bits, bound) in binding.into_iter().zip(&self.binding) {
            bound.store(bits, Ordering::Relaxed);
        }
    }

    /// The meters that bind what goes this way, each with whether it counts bytes.
    #[inline]
    fn bound(&self, way: Direction) -> impl Iterator<Item = (&Meter, bool)> {
        let mut bits = self.binding[way as usize].load(Ordering::Relaxed);
        core::iter::from_fn(move || {
            let bit = bits.trailing_zeros();
            bits &= bits.wrapping_sub(1);
            Some((self.meters.as_flattened().get(bit as usize)?, BYTES >> bit & 1 != 0)) // beyond the last one: none is left
        })
    }

    /// Whether something that goes this way may be let through (ceiling.1), and nothing waits for it elsewhere (ceiling.8).
    #[inline]
    pub(super) fn is_free(&self, now: Instant, way: Direction) -> bool {
        let now = ticks(now);
        self.waiting(way as usize) == 0 && self.bound(way).all(|(meter, _)| meter.free_at() <= now)
    }

    /// When something that goes this way may be let through (ceiling.1).
    #[inline]
    pub fn free_at(&self, way: Direction) -> Instant {
        let latest = self.bound(way).map(|(meter, _)| meter.free_at()).max().unwrap_or(0);
        Instant::from_nanos(latest.div_ceil(TICKS))
    }

    /// Lets one I/O of `bytes` through; the longest time that its rates take to pay for it.
    #[inline]
    pub fn charge(&self, now: Instant, way: Direction, bytes: u64) -> Duration {
        let (now, mut most) = (ticks(now), 0);
        for (meter, is_bytes) in self.bound(way) {
            most = most.max(meter.charge(now, if is_bytes { bytes } else { 1 }));
        }
        Duration::from_nanos(most / TICKS)
    }

    /// Tells the budget of the same group at another server of its debts: for each rate and its burst, how long it takes to pay.
    pub fn hand_on(&self, now: Instant, into: &mut Record) {
        for (rate, meters) in Rate::ALL.into_iter().zip(&self.meters) {
            let owed = meters.each_ref().map(|meter| {
                Duration::from_nanos(meter.until.load(Ordering::Relaxed).saturating_sub(ticks(now)) / TICKS)
            });
            if owed != [Duration::ZERO; 2] {
                into.put(rate.name(), &owed);
            }
        }
    }

    /// Owes what the budget of this group [owed](Budget::hand_on) at another server, so long ago.
    ///
    /// # Errors
    /// A rate that cannot be read, which owes nothing, nor do those after it.
    pub fn take_on(&self, now: Instant, age: Duration, from: &mut Record) -> Result<(), Unreadable> {
        for (rate, meters) in Rate::ALL.into_iter().zip(&self.meters) {
            let owed = from.take::<[Duration; 2]>(rate.name())?.unwrap_or_default();
            for (meter, owed) in meters.iter().zip(owed) {
                if meter.unit.load(Ordering::Relaxed) > 0 {
                    let ahead = owed.as_nanos().saturating_sub(age.as_nanos()).saturating_mul(TICKS).min(FURTHEST);
                    meter.until.store(ticks(now).saturating_add(ahead), Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Another line of a queue waits for it; to be called with `false` when that waits no more.
    pub(super) fn waits(&self, way: usize, one_more: bool) {
        match one_more {
            true => self.waiting[way].fetch_add(1, Ordering::Relaxed),
            false => self.waiting[way].fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// How many lines of queues wait for it in a direction.
    #[inline]
    pub(super) fn waiting(&self, way: usize) -> u32 {
        self.waiting[way].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rates;
    use super::*;
    use crate::time::{secs, us};

    fn iops(max: u64) -> Budget {
        Budget::new(&Ceiling::of(Rates::NONE.with(Rate::Iops, max)))
    }

    /// How many I/Os go by then, each as soon as it may.
    fn go(budget: &Budget, from: Instant, until: Instant, bytes: u64) -> u64 {
        let (mut now, mut count) = (from, 0);
        loop {
            now = now.max(budget.free_at(Direction::Read));
            if now >= until {
                return count;
            }
            budget.charge(now, Direction::Read, bytes);
            count += 1;
        }
    }

    /// ceiling.2
    #[test]
    fn a_second_has_its_rate_and_no_more_than_the_tolerance_beyond() {
        for rate in [10, 1_000, 3_000, 100_000, 500_000] {
            let budget = iops(rate);
            let first = go(&budget, Instant::ZERO, Instant::ZERO + secs(1), 4096);
            assert!((rate..=rate + rate / 200 + 1).contains(&first), "{rate}: {first} in the first second");
            let second = go(&budget, Instant::ZERO + secs(1), Instant::ZERO + secs(2), 4096);
            assert!(second.abs_diff(rate) <= 1, "{rate}: {second} in the next one");
        }
    }

    #[test]
    fn the_ends_of_the_range_are_right_too() {
        assert_eq!(go(&iops(1), Instant::ZERO, Instant::ZERO + secs(10), 512), 11, "the eleventh is 5 ms early");
        let most = iops(1_000_000_000);
        let count = go(&most, Instant::ZERO, Instant::ZERO + us(100), 512);
        assert!((100_000..=5_100_001).contains(&count), "{count}");
        let fast = Budget::new(&Ceiling::of(Rates::NONE.with(Rate::Bps, 5_000_000_000)));
        let count = go(&fast, Instant::ZERO, Instant::ZERO + secs(1), 4096) * 4096;
        assert!((5_000_000_000..5_026_000_000).contains(&count), "{count}");
        let slow = Budget::new(&Ceiling::of(Rates::NONE.with(Rate::Bps, 1)));
        slow.charge(Instant::ZERO, Direction::Write, u64::MAX);
        assert!(slow.free_at(Direction::Read) > Instant::ZERO + secs(1_000_000), "and nothing overflows");
        slow.charge(Instant::ZERO, Direction::Write, u64::MAX);
    }

    /// ceiling.1
    #[test]
    fn a_request_larger_than_the_budget_passes_and_is_paid_for() {
        let budget = Budget::new(&Ceiling::of(Rates::NONE.with(Rate::Wbps, 1 << 20)));
        assert_eq!(budget.free_at(Direction::Write), Instant::ZERO);
        budget.charge(Instant::ZERO, Direction::Write, 32 << 20);
        let free = budget.free_at(Direction::Write);
        assert!(free.since(Instant::ZERO + secs(32)) == Duration::ZERO && free + ms(6) > Instant::ZERO + secs(32));
        assert_eq!(budget.free_at(Direction::Read), Instant::ZERO, "reads are not bound by it");
    }

    /// ceiling.7: 10× for 5 s, to the I/O; what was saved comes back in 45 s.
    #[test]
    fn a_burst_is_as_long_as_it_says() {
        let ceiling = Ceiling {
            burst: Rates::NONE.with(Rate::Iops, 30_000),
            length: secs(5),
            ..Ceiling::of(Rates::NONE.with(Rate::Iops, 3_000))
        };
        let budget = Budget::new(&ceiling);
        let at = |seconds| Instant::ZERO + secs(seconds);
        for start in [0, 60, 120] {
            let burst = go(&budget, at(start), at(start + 5), 4096);
            assert!((150_000..=150_000 + 150 + 2).contains(&burst), "{burst} in the burst");
            // 5 ms ahead at either rate.
            let after = go(&budget, at(start + 5), at(start + 6), 4096);
            assert!((2_980..=3_020).contains(&after), "{after} in the second after");
        }
        // A third of the rest brings a third of the burst back.
        let budget = Budget::new(&ceiling);
        go(&budget, at(0), at(5), 4096);
        let short = go(&budget, at(20), at(25), 4096);
        let wanted = 45_000 + 5 * 3_000;
        assert!(short.abs_diff(wanted) < 200, "{short} after 15 s of rest, not {wanted}");
    }

    /// ceiling.10
    #[test]
    fn a_group_that_used_up_its_burst_has_none_at_the_next_server() {
        let ceiling = Ceiling {
            burst: Rates::NONE.with(Rate::Iops, 30_000),
            length: secs(5),
            ..Ceiling::of(Rates::NONE.with(Rate::Iops, 3_000))
        };
        let (before, after) = (Budget::new(&ceiling), Budget::new(&ceiling));
        let at = |seconds| Instant::ZERO + secs(seconds);
        go(&before, at(100), at(105), 4096);
        let mut record = Record::default();
        before.hand_on(at(105), &mut record);
        let text = alloc::format!("{record}");
        after.take_on(at(7), Duration::ZERO, &mut Record::parse(&text).unwrap()).unwrap();
        let count = go(&after, at(7), at(8), 4096);
        assert!((2_980..=3_020).contains(&count), "{count} in the second after, on a clock of its own");
        let other = iops(500);
        other
            .take_on(at(7), Duration::ZERO, &mut Record::parse(r#"{"iops": [18446744073709551615, 0]}"#).unwrap())
            .unwrap();
        assert!(other.free_at(Direction::Read) > at(1_000_000), "and nothing overflows");
        other.take_on(at(7), Duration::ZERO, &mut Record::parse(r#"{"iops": -3}"#).unwrap()).unwrap_err();
    }

    /// ceiling.9
    #[test]
    fn a_burst_that_was_used_is_no_debt_when_it_is_taken_away_and_a_new_one_is_saved_first() {
        let at = |seconds| Instant::ZERO + secs(seconds);
        let ceiling = |burst, length| Ceiling {
            burst: Rates::NONE.with(Rate::Iops, burst),
            length: secs(length),
            ..Ceiling::of(Rates::NONE.with(Rate::Iops, 1_000))
        };
        let plain = Ceiling::of(Rates::NONE.with(Rate::Iops, 1_000));
        for less in [plain, ceiling(2_000, 1)] {
            let budget = Budget::new(&ceiling(10_000, 2));
            assert!(go(&budget, at(0), at(2), 4096) >= 20_000);
            budget.set(at(2), &less);
            let next = go(&budget, at(2), at(3), 4096);
            assert!((990..=1_010).contains(&next), "{next} in the second after, at 1,000");
        }
        // The group keeps its unused savings, up to the smaller burst.
        let budget = Budget::new(&ceiling(10_000, 2));
        go(&budget, at(0), at(1), 4096);
        budget.set(at(1), &ceiling(10_000, 1));
        let rest = go(&budget, at(1), at(2), 4096);
        assert!((9_950..=10_100).contains(&rest), "{rest} in the second that is left");
        // A group at its ceiling has saved nothing; ten seconds of rest later a burst of ten seconds' rate is.
        let budget = Budget::new(&plain);
        go(&budget, at(0), at(1), 4096);
        budget.set(at(1), &ceiling(11_000, 1));
        let next = go(&budget, at(1), at(2), 4096);
        assert!((990..=1_010).contains(&next), "{next} in the first second with a burst");
        let later = go(&budget, at(12), at(13), 4096);
        assert!((10_900..=11_100).contains(&later), "{later} after ten seconds of rest");
    }

    /// ceiling.9
    #[test]
    fn what_is_owed_stays_owed_when_the_ceiling_changes() {
        let budget = iops(100);
        (0..1000).for_each(|_| _ = budget.charge(Instant::ZERO, Direction::Read, 512)); // 10 s of it
        budget.set(Instant::ZERO, &Ceiling::of(Rates::NONE.with(Rate::Iops, 10_000)));
        let free = budget.free_at(Direction::Read);
        assert_eq!(
            free,
            Instant::ZERO + us(99_950),
            "1000 I/Os at 10,000 a second, less the half of one that the tolerance was"
        );
        budget.set(Instant::ZERO, &Ceiling::NONE);
        assert_eq!(budget.free_at(Direction::Read), Instant::ZERO);
        assert_eq!(budget.bound(Direction::Read).count(), 0);
        // A thousand changes give nothing away.
        let budget = iops(1_000);
        let mut count = 0;
        for step in 0..1000 {
            let (from, until) = (Instant::ZERO + ms(step), Instant::ZERO + ms(step + 1));
            count += go(&budget, from, until, 512);
            let rate = if step % 2 == 0 { 2_000 } else { 1_000 };
            budget.set(until, &Ceiling::of(Rates::NONE.with(Rate::Iops, rate)));
        }
        assert!((1_490..=1_510).contains(&count), "{count} in a second, half of it at twice the rate");
    }
}
