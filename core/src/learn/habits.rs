//! Habits: what a stream's past requests say of its next one.
//!
//! habits.1  Think time is how long a stream takes to ask again once it was answered: from the last end of one of its requests
//!     to the arrival of the next. Before the first end there is none.
//! habits.2  The mean forgets: each sample moves it by 1/8. A sample counts as at most `cap`, so that one long pause
//!     does not hide a habit.
//! habits.3  It is known from the third sample on.
//! habits.4  Where a stream reads is remembered as one bit for each of its last 32 requests: was it a seek? A seek starts farther than a
//!     least distance from the end of the request before, and is smaller than a largest size; a first request is none.
//! habits.5  A request that grows at its back takes the end along, so a request that follows on it is no seek.
//!
//! Shared by the schedulers that hold the device idle for somebody; what counts as far, small, short or seeky is theirs.
//! Think time applies to anything that is answered and asks again: a stream, a group.

use crate::{Duration, Extent, Instant, Sector};

/// How long somebody takes to ask again (habits.1–3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThinkTime {
    /// The last end; [`Instant::MAX`] before the first.
    last_end: Instant,
    /// 256 times the sum of the samples in nanoseconds, each counting 7/8 of the one after it.
    total: u64,
    /// The same sum with each sample counting as one: at most 256.
    weight: u16,
}

impl ThinkTime {
    /// The weight of one sample, before division by [`Self::PACE`]; the kernel's value.
    const UNIT: u64 = 256;
    /// The part by which a sample moves the mean: one in `PACE`; the kernel's value.
    const PACE: u64 = 8;
    /// The weight is 32, 60, 84, … after 1, 2, 3, … samples (habits.3); the kernel's value.
    const KNOWN: u16 = 80;

    pub(crate) fn ended(&mut self, now: Instant) {
        self.last_end = now;
    }

    /// The last end, if there was one.
    pub(crate) fn last_end(&self) -> Option<Instant> {
        (self.last_end != Instant::MAX).then_some(self.last_end)
    }

    /// A request arrived; the caller says so only where the pause was the asker's own, which is to say that nothing of its
    /// was waiting or in flight.
    pub(crate) fn arrived(&mut self, now: Instant, cap: Duration) {
        let Some(last_end) = self.last_end() else { return }; // habits.1
        let pause = now.since(last_end).min(cap).as_nanos(); // habits.2
        // A cap of years would overflow the sum; 2^51 ns, 26 days, is as good.
        let pause = pause.min(1 << 51);
        self.total = ((Self::PACE - 1) * self.total + Self::UNIT * pause) / Self::PACE;
        let weight = ((Self::PACE - 1) * u64::from(self.weight) + Self::UNIT) / Self::PACE;
        self.weight = u16::try_from(weight).expect("it stays below UNIT");
    }

    /// Whether enough was seen to tell (habits.3).
    pub(crate) const fn is_known(&self) -> bool {
        self.weight > Self::KNOWN
    }

    /// Whether the mean is known to be longer than `limit`.
    ///
    /// Asked for each request: hence without a division.
    pub(crate) const fn is_longer_than(&self, limit: Duration) -> bool {
        self.is_known() && self.total > limit.as_nanos().saturating_mul(self.weight as u64)
    }

    /// Forgets the habit, and keeps the last end.
    pub(crate) const fn forget(&mut self) {
        (self.total, self.weight) = (0, 0);
    }
}

impl Default for ThinkTime {
    /// A habit before the first answer.
    fn default() -> Self {
        Self { last_end: Instant::MAX, total: 0, weight: 0 }
    }
}

/// The distance that counts as a seek (habits.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seek {
    /// The least distance in sectors, in either direction, from the end of the request before.
    pub(crate) far: u64,
    /// The size in sectors from which a request is worth its seek.
    pub(crate) large: u64,
}

impl Seek {
    /// On a device whose arm moves: whatever is further than 400 KiB away; the kernel's 800 sectors.
    pub(crate) const ROTATIONAL: Self = Self { far: 801, large: u64::MAX };
    /// On flash distance costs nothing, but many small requests do: far, and smaller than 32 KiB; the kernel's BFQ.
    pub(crate) const FLASH: Self = Self { far: 801, large: 64 };
}

/// Where a stream's last 32 requests were (habits.4, habits.5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seekiness {
    /// Where the last request ended; [`Self::NOWHERE`] before the first.
    last_end: Sector,
    /// One bit for each request, the last one lowest: was it a seek?
    history: u32,
}

impl Seekiness {
    const NOWHERE: Sector = Sector(u64::MAX);

    /// A request arrived; answers whether it was a seek.
    pub(crate) fn arrived(&mut self, extent: Extent, seek: Seek) -> bool {
        let is_seek = self.last_end != Self::NOWHERE
            && extent.start.0.abs_diff(self.last_end.0) >= seek.far
            && extent.sectors < seek.large;
        self.history = self.history << 1 | u32::from(is_seek);
        self.last_end = extent.end();
        is_seek
    }

    pub(crate) const fn last_was_seek(&self) -> bool {
        self.history & 1 == 1
    }

    /// A waiting request grew at its back, from where it ended (`old_end`) to where it ends now (habits.5).
    pub(crate) fn grown(&mut self, old_end: Sector, end: Sector) {
        if self.last_end == old_end {
            self.last_end = end;
        }
    }

    /// Whether more than `limit` of the last 32 requests were seeks.
    pub(crate) const fn is_seeky(&self, limit: u32) -> bool {
        self.history.count_ones() > limit
    }
}

impl Default for Seekiness {
    /// No request yet.
    fn default() -> Self {
        Self { last_end: Self::NOWHERE, history: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{ms, us};

    const CAP: Duration = ms(16);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(millis)
    }

    /// Answered every 100 ms, asking again after each of the pauses.
    fn thinking(pauses: &[Duration]) -> ThinkTime {
        let mut think = ThinkTime::default();
        for (round, &pause) in (1..).zip(pauses) {
            think.ended(at(100 * round));
            think.arrived(at(100 * round) + pause, CAP);
        }
        think
    }

    /// habits.1
    #[test]
    fn who_was_never_answered_has_no_think_time() {
        let mut think = ThinkTime::default();
        for round in 0..10 {
            think.arrived(at(round), CAP);
        }
        assert!(!think.is_known());
        assert_eq!((think.weight, think.last_end()), (0, None));
    }

    /// habits.3
    #[test]
    fn two_pauses_are_no_habit_and_three_are() {
        assert!(!thinking(&[ms(5); 2]).is_known());
        assert!(!thinking(&[ms(5); 2]).is_longer_than(ms(1)), "not known, so not known to be longer");
        assert!(thinking(&[ms(5); 3]).is_known());
        assert!(thinking(&[ms(5); 3]).is_longer_than(ms(4)));
        assert!(!thinking(&[ms(5); 3]).is_longer_than(us(5100)), "whole numbers are a little off");
    }

    /// habits.2
    #[test]
    fn a_pause_of_an_hour_counts_as_the_cap() {
        let ThinkTime { total, weight, .. } = thinking(&[us(100), us(100), us(100), ms(90)]);
        let mean = Duration::from_nanos(total / u64::from(weight));
        assert!(mean > ms(4) && mean < ms(6), "about (3 * 0.1 + 16) / 4 ms, the last counting a little more: {mean}");
    }

    /// habits.2
    #[test]
    fn a_new_habit_replaces_the_old_one_within_a_dozen_pauses() {
        let mut pauses = [ms(16); 40];
        pauses[20..].fill(us(100));
        assert!(thinking(&pauses[..20]).is_longer_than(ms(15)));
        assert!(thinking(&pauses[..24]).is_longer_than(ms(4)));
        assert!(!thinking(&pauses[..32]).is_longer_than(ms(4)));
    }

    #[test]
    fn no_pause_and_no_cap_overflow_the_mean() {
        let mut think = ThinkTime::default();
        for _ in 0..100 {
            think.ended(Instant::ZERO);
            think.arrived(Instant::MAX, Duration::MAX);
        }
        assert!(think.is_longer_than(crate::time::secs(24 * 3600)));
        assert!(!think.is_longer_than(Duration::MAX));
    }

    #[test]
    fn what_is_forgotten_must_be_learnt_again() {
        let mut think = thinking(&[ms(5); 9]);
        think.forget();
        assert!(!think.is_known());
        assert_eq!(think.last_end(), Some(at(900)));
    }

    fn extent(start: u64, sectors: u64) -> Extent {
        Extent::new(Sector(start), sectors)
    }

    /// habits.4
    #[test]
    fn who_reads_on_does_not_seek_and_who_jumps_does() {
        let mut seeks = Seekiness::default();
        assert!(!seeks.arrived(extent(1_000_000, 8), Seek::ROTATIONAL), "the first is none, wherever it is");
        assert!(!seeks.arrived(extent(1_000_008, 8), Seek::ROTATIONAL));
        assert!(!seeks.arrived(extent(1_000_816, 8), Seek::ROTATIONAL), "800 sectors further is near");
        assert!(seeks.arrived(extent(1_001_625, 8), Seek::ROTATIONAL), "801 are far");
        assert!(seeks.arrived(extent(1_000_832, 8), Seek::ROTATIONAL), "801 back, too");
        assert_eq!(seeks.history.count_ones(), 2);
    }

    /// habits.4
    #[test]
    fn on_flash_a_large_request_is_worth_its_seek() {
        for (sectors, flash, rotational) in [(8, true, true), (63, true, true), (64, false, true)] {
            let mut seeks = Seekiness::default();
            seeks.arrived(extent(0, 8), Seek::FLASH);
            assert_eq!(seeks.arrived(extent(1 << 30, sectors), Seek::FLASH), flash, "{sectors} sectors on flash");
            assert_eq!(seeks.arrived(extent(1 << 20, sectors), Seek::ROTATIONAL), rotational, "{sectors} on a disk");
        }
    }

    /// habits.4
    #[test]
    fn the_history_holds_32_requests() {
        let mut seeks = Seekiness::default();
        for round in 0..33 {
            assert!(!seeks.is_seeky(31), "after {round} requests, the first of which was no seek");
            seeks.arrived(extent(round % 2 * 100_000, 8), Seek::ROTATIONAL);
        }
        assert!(seeks.is_seeky(31));
        for round in 0..12 {
            seeks.arrived(extent(8 * (round + 1), 8), Seek::ROTATIONAL);
        }
        assert!(seeks.is_seeky(19) && !seeks.is_seeky(20), "32 less 12");
    }

    /// habits.5
    #[test]
    fn what_follows_a_request_that_grew_is_no_seek() {
        let mut seeks = Seekiness::default();
        seeks.arrived(extent(0, 8), Seek::ROTATIONAL);
        seeks.grown(Sector(8), Sector(2048));
        seeks.grown(Sector(700), Sector(1)); // another one, which was not the last
        assert!(!seeks.arrived(extent(2048, 8), Seek::ROTATIONAL));
    }

    #[test]
    fn habits_are_small() {
        assert_eq!((size_of::<ThinkTime>(), size_of::<Seekiness>()), (24, 16));
    }
}
