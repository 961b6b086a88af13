//! Group commit: a flush that could start waits briefly for others that are about to be asked for.
//!
//! Threads that write and flush in a loop part into two crowds. While one crowd shares a flush, the other asks for the next, so
//! each thread is served by every second flush only. If the flush waits for the threads that were just released, and which are back
//! as soon as their next write has ended, all threads share every flush.
//!
//! An example: eight threads, a flush of 10 ms, a write of 0.2 ms. In two crowds of four, each flush serves four threads: 400 syncs
//! a second. With a wait of 0.2 ms before each flush it serves eight: 780.
//!
//! commit.1  As many waiters are expected as shared the last flush and asked during it, and when flushes begin to wait (commit.3) as
//!           shared the last two; none once the time of a whole flush has gone by.
//! commit.2  The wait ends when as many have asked; at the latest after a fraction of the mean time of a flush (`flush_company`),
//!           and never after more than 10 ms.
//! commit.3  Whether to wait is tried out: eight flushes with waits, eight without. The way that released more waiters in a second
//!           is kept, and the other is tried again after 1, 2, 4, … 64 times as many flushes. So waits cost little where they do
//!           not pay: on a disk that turns, a moment's wait may cost a revolution. When a flush is held back for other reasons, the
//!           count begins anew.
//! commit.4  Where a flush takes less than `flush_company_min`, none waits.
//! commit.5  The mean follows what is measured, an eighth at a time.

use super::Settings;
use crate::time::ms;
use crate::{Duration, Instant};

/// What is known of the threads that ask.
#[derive(Debug, Default)]
pub(super) struct GroupCommit {
    /// What a flush takes on average (commit.5).
    mean: Duration,
    /// When the last one ended, and how many are expected to share the next (commit.1).
    ended: Instant,
    expected: u32,
    /// How many shared the last one.
    shared: u32,
    /// When the first of the waiters asked.
    asked: Instant,
    /// Until when the next one was held back for other reasons.
    held: Instant,
    /// Whether a flush that could start waits.
    is_waiting: bool,
    trial: Trial,
}

/// The longest wait (commit.2). Chosen: threads that come back at once have done so by then, however long a flush takes.
const LONGEST: Duration = ms(10);

impl GroupCommit {
    /// A flush is asked for, and none is waited for.
    pub(super) const fn first_asks(&mut self, now: Instant) {
        self.asked = now;
    }

    /// A flush that could start is held back for other reasons.
    pub(super) const fn hold(&mut self, now: Instant) {
        (self.held, self.is_waiting) = (now, false);
        self.trial.flushes = 0; // commit.3: what is held back says nothing of waits
    }

    /// Until when a flush that could start is to wait, while so many have asked for it; `None`: no longer.
    pub(super) fn wait_until(&mut self, now: Instant, count: u32, settings: &Settings) -> Option<Instant> {
        let begin = self.asked.max(self.ended);
        // commit.1: a thread that has not come back by then is not coming.
        let expected = if begin.since(self.ended) < self.mean { self.expected } else { 1 };
        if settings.group_commit == 0 || self.mean < settings.group_commit_min || !self.trial.waits || count >= expected
        {
            return None; // commit.2, commit.3, commit.4
        }
        let most = u128::from(self.mean.as_nanos()) * u128::from(settings.group_commit) / 1000;
        let until = begin.max(self.held) + Duration::from_nanos(most as u64).min(LONGEST); // commit.2
        if until <= now {
            return None;
        }
        self.is_waiting = true;
        Some(until)
    }

    /// It starts; whether it had waited.
    pub(super) fn starts(&mut self) -> bool {
        core::mem::take(&mut self.is_waiting)
    }

    /// It ended after `took`; so many shared it, and so many wait for the next.
    pub(super) fn ends(&mut self, now: Instant, took: Duration, shared: u32, waiting: u32) {
        self.ended = now;
        let (mean, took) = (self.mean.as_nanos(), took.as_nanos());
        // commit.5; the first one is all that is known.
        let mean = if mean == 0 { took } else { mean - mean / 8 + took / 8 };
        self.mean = Duration::from_nanos(mean);
        let gathers = self.trial.ended(now, shared);
        self.expected = shared + if gathers { waiting.max(self.shared) } else { waiting }; // commit.1
        self.shared = shared;
    }
}

/// Which of two ways releases more waiters: commit.3.
#[derive(Debug)]
struct Trial {
    /// The way that is gone now, and the one that is kept.
    waits: bool,
    kept: bool,
    /// Flushes of this leg that ended; those that count, since when, and the waiters that they released.
    flushes: u32,
    since: Instant,
    released: u64,
    /// Legs until the other way is tried, and how many those will be next time.
    legs: u32,
    legs_next: u32,
    /// Waiters in a thousand seconds without waits and with them.
    rates: [u64; 2],
}

/// Flushes of a leg. Chosen: few enough that a trial costs little, enough that a crowd which parts in two or three comes together.
const LEG: u32 = 8;

/// Flushes after a change that are not counted: threads part into crowds, or come together.
const SETTLING: u32 = 2;

/// The most legs that the better way is kept. Chosen: 51 of 52 flushes go the better way, and a load that changes is seen after 512.
const LEGS_MAX: u32 = 64;

impl Default for Trial {
    fn default() -> Self {
        Self {
            waits: true,
            kept: true,
            flushes: 0,
            since: Instant::ZERO,
            released: 0,
            legs: 1,
            legs_next: 1,
            rates: [0; 2],
        }
    }
}

impl Trial {
    /// A flush ended, which released so many; whether flushes wait from now on that did not.
    fn ended(&mut self, now: Instant, released: u32) -> bool {
        self.flushes += 1;
        self.released += u64::from(released);
        if self.flushes == SETTLING {
            (self.since, self.released) = (now, 0);
        }
        if self.flushes < SETTLING + LEG {
            return false;
        }
        let took = now.since(self.since).as_nanos().max(1);
        let rate = (u128::from(self.released) * 1_000_000_000_000 / u128::from(took)) as u64;
        let mean = &mut self.rates[usize::from(self.waits)];
        *mean = if *mean == 0 { rate } else { *mean - *mean / 4 + rate / 4 };
        let waited = self.waits;
        self.leg_ended();
        // A way that goes on has settled.
        self.flushes = if self.waits == waited { SETTLING } else { 0 };
        (self.since, self.released) = (now, 0);
        self.waits && !waited
    }

    fn leg_ended(&mut self) {
        if self.waits == self.kept {
            self.legs -= 1;
            if self.legs == 0 {
                self.waits = !self.kept;
            }
            return;
        }
        let [without, with] = self.rates;
        let better = if with == without { self.kept } else { with > without };
        self.legs_next = if better == self.kept { (self.legs_next * 2).min(LEGS_MAX) } else { 1 };
        (self.kept, self.waits, self.legs) = (better, better, self.legs_next);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Flushes that waited among so many, each of which releases four waiters and takes so long without a wait and with one.
    fn waits(trial: &mut Trial, now: &mut Instant, flushes: u32, took: [u64; 2]) -> u32 {
        let mut waited = 0;
        for _ in 0..flushes {
            waited += u32::from(trial.waits);
            *now += ms(took[usize::from(trial.waits)]);
            trial.ended(*now, 4);
        }
        waited
    }

    /// commit.3
    #[test]
    fn the_way_that_releases_more_waiters_is_kept_and_found_again_when_the_load_changes() {
        let (mut trial, mut now) = (Trial::default(), Instant::ZERO);
        let some = waits(&mut trial, &mut now, 5000, [8, 16]);
        assert!((50..200).contains(&some), "{some} of 5000 waits that cost half");
        waits(&mut trial, &mut now, 2000, [12, 8]);
        let most = waits(&mut trial, &mut now, 5000, [12, 8]);
        assert!((4800..4950).contains(&most), "{most} of 5000 waits that pay");
    }
}
