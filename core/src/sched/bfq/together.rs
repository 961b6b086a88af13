//! One after another, or many at once? Which of the two the device does more with.
//!
//! A lone disk that rotates does most when it reads on in one place, so streams take turns, and the disk is held idle for
//! the one whose turn it is. An array rotates too, and has a dozen arms: turns leave eleven of them idle. Nothing that a
//! device declares tells the two apart, so it is tried. (The original has no such choice; its users turn `slice_idle` off.)
//!
//! G1  On a device that rotates both ways are compared, in windows of [`WINDOW`] that alternate, while two or more queues
//!     have something to do all the time. Turns are what is thought first.
//! G2  The other way must be 10 % faster to be taken.
//! G3  Between trials is rest: ten times as long as the trial was, and twice the rest before, up to [`REST_MAX`].
//! G4  No trial goes on while somebody is raised beside others of his group: then it is turns, whatever does more.
//! G5  A window begins when all that was in the device at the change has ended: it was chosen in the other way, and where that
//!     is many at once, half a window's time goes by with it.
//! G6  Shares do not depend on the way: either keeps the order of the fair queue.

use super::trial::Trial;
use crate::time::{ms, secs};
use crate::{Duration, Instant};

/// How long each way is tried at a time (G1).
const WINDOW: Duration = ms(400);
const PAIRS_MAX: u32 = 8;
const REST_MIN: Duration = secs(10);
const REST_MAX: Duration = secs(160);

/// Which way to use a device that rotates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Together {
    /// What is thought right.
    base: bool,
    trial: Option<Trial>,
    began: Instant,
    /// When the window begins, is over, or the rest is over.
    start: Instant,
    until: Instant,
    sectors: u64,
    rest: Duration,
    /// Requests still to end before the window begins (G5).
    skip: u32,
}

impl Together {
    /// Turns, until something else is known.
    pub(super) fn new() -> Self {
        let zero = Instant::ZERO;
        Self { base: false, trial: None, began: zero, start: zero, until: zero, sectors: 0, rest: REST_MIN, skip: 0 }
    }

    /// Whether many are served at once.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        match &self.trial {
            Some(trial) if trial.arm() == 1 => !self.base,
            _ => self.base,
        }
    }

    /// A request of so many sectors ended, and so many others are in the device. Two or more queues have something to do
    /// now, or not.
    #[inline]
    pub(super) fn ended(&mut self, now: Instant, sectors: u64, several: bool, in_flight: u32) {
        if !several {
            // A window that is interrupted is begun again.
            if self.trial.is_some() {
                self.open(now, in_flight);
            }
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
            if self.skip == 0 {
                self.open(now, 0);
            }
            return;
        }
        self.sectors += sectors;
        if now >= self.until {
            self.window_is_over(now, in_flight);
        }
    }

    fn open(&mut self, now: Instant, in_flight: u32) {
        self.skip = in_flight;
        self.start = now;
        self.until = now + WINDOW;
        self.sectors = 0;
    }

    #[cold]
    fn window_is_over(&mut self, now: Instant, in_flight: u32) {
        let Some(trial) = &mut self.trial else {
            self.trial = Some(Trial::default());
            self.began = now;
            return self.open(now, in_flight);
        };
        trial.add(self.sectors.max(1), now.since(self.start).as_nanos().max(1));
        if let Some(better) = trial.verdict(1.1, PAIRS_MAX) {
            self.trial = None;
            if better {
                self.base = !self.base;
                self.rest = REST_MIN;
            }
            let took = now.since(self.began).as_nanos();
            self.until = now + self.rest.max(Duration::from_nanos(10 * took)); // G3
            self.rest = Duration::from_nanos(self.rest.as_nanos() * 2).min(REST_MAX);
            self.start = self.until;
            return;
        }
        self.open(now, in_flight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that does so much in 10 ms in turns, and so much together, with several who ask, for so long. The part of the
    /// time in which it was used together.
    fn run(turns: u64, together: u64, several: impl Fn(u64) -> bool, time: Duration) -> (Together, f64) {
        let (mut way, mut shared, ends) = (Together::new(), 0_u64, time.as_millis() / 10);
        for end in 1..=ends {
            let now = Instant::ZERO + ms(10 * end);
            let sectors = if way.is_shared() { together } else { turns };
            shared += u64::from(way.is_shared());
            way.ended(now, sectors + end % 3, several(end), 0);
        }
        (way, shared as f64 / ends as f64)
    }

    /// G1, G3
    #[test]
    fn a_lone_disk_is_served_in_turns_and_trials_take_little_time() {
        let (way, shared) = run(1000, 300, |_| true, secs(60));
        assert!(!way.base);
        assert!(shared < 0.07, "{shared} of the time in the other way");
    }

    /// G1
    #[test]
    fn an_array_is_used_together_before_three_seconds_are_over() {
        let (way, shared) = run(1000, 3000, |_| true, secs(3));
        assert!(way.base);
        assert!(shared > 0.4, "{shared}");
    }

    /// G2
    #[test]
    fn a_little_more_is_not_enough() {
        assert!(!run(1000, 1080, |_| true, secs(20)).0.base);
    }

    /// G1
    #[test]
    fn nothing_is_learned_from_one_who_is_alone() {
        assert!(!run(1000, 3000, |_| false, secs(20)).0.base);
        assert!(!run(1000, 3000, |end| end % 20 != 0, secs(20)).0.base, "windows that are interrupted do not count");
    }

    /// G5
    #[test]
    fn what_was_chosen_in_the_other_way_is_not_measured() {
        // At each change to turns 30 requests are in the device that end much more slowly than what follows.
        let (mut way, mut stale) = (Together::new(), 0);
        for end in 1..=3000 {
            let before = way.is_shared();
            let (sectors, in_flight) =
                if before || stale > 0 { (if before { 600 } else { 100 }, 30) } else { (1000, 1) };
            way.ended(Instant::ZERO + ms(10 * end), sectors + end % 3, true, in_flight);
            stale = if before && !way.is_shared() { 30 } else { u32::saturating_sub(stale, 1) };
        }
        assert!(!way.base);
    }

    /// G3
    #[test]
    fn a_device_that_changes_is_seen_to_have_changed() {
        let (mut way, mut now) = (run(1000, 3000, |_| true, secs(5)).0, Instant::ZERO + secs(5));
        for _ in 0..12_000 {
            now += ms(10);
            way.ended(now, if way.is_shared() { 300 } else { 1000 }, true, 0);
        }
        assert!(!way.base);
    }
}
