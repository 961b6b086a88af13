//! Group commit: a flush that could start waits briefly for others that are about to be asked for.
//!
//! Threads that write and flush in a loop part into two crowds. While one crowd shares a flush, the other asks for the next, so
//! each thread is served by every second flush only. If the flush waits for the threads that were just released, and which are back
//! as soon as their next write has ended, all threads share every flush.
//!
//! An example: eight threads, a flush of 10 ms, a write of 0.2 ms. In two crowds of four, each flush serves four threads: 400 syncs
//! a second. With a wait of 0.2 ms before each flush it serves eight: 780.
//!
//! commit.1  As many waiters are expected as shared the last flush and asked during it; none once the time of a whole flush has
//!           gone by.
//! commit.2  The wait ends when as many have asked; at the latest after a fraction of the mean time of a flush (`flush_company`),
//!           and never after more than 10 ms.
//! commit.3  Whether flushes wait is tried out, for a wait that brings all may still cost more than it saves: on a disk that turns,
//!           the place to write has gone by meanwhile. A leg of 16 flushes goes one way, and the way that releases more waiters in a
//!           second is kept, at first that without waits. The other must be better by 5 %, and is tried again after 16 legs, or two
//!           for each percent that it was worse by. A flush that was held back for other reasons goes the way that is kept and says
//!           nothing, nor does one that nobody asked for in the time of a whole flush.
//! commit.4  Where a flush takes less than `flush_company_min`, none waits.
//! commit.5  The mean follows what is measured, an eighth at a time.

use super::Settings;
use crate::time::{ms, scale};
use crate::{Duration, Instant};

/// The habits of the threads that flush.
#[derive(Debug, Default)]
pub(super) struct GroupCommit {
    /// The mean duration of a flush (commit.5).
    mean: Duration,
    /// When the last one ended, and how many are expected to share the next (commit.1).
    ended: Instant,
    expected: u32,
    /// When the first of the waiters asked.
    pub(super) began: Instant,
    /// Until when the next one was held back for other reasons.
    held: Instant,
    /// Whether the next one, which could start, waits for company.
    is_waiting: bool,
    /// Whether the time from the end of the last one to the end of the next says which way is better (commit.3).
    tells: bool,
    trial: Trial,
}

/// The longest wait (commit.2). Chosen: threads that come back at once have done so by then, however long a flush takes.
const LONGEST: Duration = ms(10);

impl GroupCommit {
    /// A flush that could start is held back for other reasons.
    pub(super) const fn hold(&mut self, now: Instant) {
        (self.held, self.is_waiting, self.tells) = (now, false, false);
    }

    /// Whether the last flush was shared, or others asked for the next meanwhile.
    pub(super) const fn has_company(&self) -> bool {
        self.expected > 1
    }

    /// The end of the wait of a flush that could start, while `count` have asked for it; `None`: no wait.
    pub(super) fn wait_until(&mut self, now: Instant, count: u32, settings: &Settings) -> Option<Instant> {
        let begin = self.began.max(self.ended);
        // commit.1: a thread that has not come back by then is not coming.
        let expected = if begin.since(self.ended) < self.mean { self.expected } else { 1 };
        let waits = if self.tells { self.trial.waits } else { self.trial.kept };
        if settings.group_commit == 0 || self.mean < settings.group_commit_min || !waits || count >= expected {
            return None; // commit.2, commit.3, commit.4
        }
        let most = Duration::from_nanos(scale(self.mean.as_nanos(), settings.group_commit.into(), 1000));
        let until = begin.max(self.held) + most.min(LONGEST); // commit.2
        if until <= now {
            return None;
        }
        self.is_waiting = true;
        Some(until)
    }

    /// It starts; whether it had waited.
    pub(super) fn starts(&mut self) -> bool {
        self.tells &= self.began.since(self.ended) < self.mean;
        core::mem::take(&mut self.is_waiting)
    }

    /// It ended after `took`; `shared` shared it, and some wait for the next.
    pub(super) fn ends(&mut self, now: Instant, took: Duration, shared: u32, waiting: u32) {
        if core::mem::replace(&mut self.tells, true) {
            self.trial.ended(now.since(self.ended), shared);
        }
        self.ended = now;
        self.expected = shared + waiting;
        let (mean, took) = (self.mean.as_nanos(), took.as_nanos());
        // commit.5; the first one is all that is known.
        let mean = if mean == 0 { took } else { mean - mean / 8 + took / 8 };
        self.mean = Duration::from_nanos(mean);
    }
}

/// Which of two ways releases more waiters (commit.3).
#[derive(Debug, Default)]
struct Trial {
    /// Whether flushes wait now, and in the way that is kept.
    waits: bool,
    kept: bool,
    /// Flushes of this leg; and of those that count, their time in nanoseconds and the waiters that they released.
    flushes: u32,
    took: u64,
    released: u64,
    /// Waiters in a thousand seconds of the way that is kept.
    rate: u64,
    /// Legs until the other way is tried.
    legs: u64,
}

/// Flushes of a leg. Chosen: 8 are too few for the positions of a turning disk to even out, with 32 a trial takes seconds.
const LEG: u32 = 16;

/// Flushes after a change that do not count: threads part into crowds, or come together.
const SETTLING: u32 = 2;

/// The least legs that a way is kept. Chosen: of 17 flushes one at most goes the worse way; beyond that trials cost half a percent, and
/// of SSDs fewer than one client in a hundred meets one (p99).
const LEGS_MIN: u64 = 16;

/// By which part the other way must be better: 1/20. Chosen: runs of one load on the modelled disks differ by that.
const BETTER: u64 = 20;

impl Trial {
    /// A flush ended and released `released`; the time since the end of the one before follows.
    fn ended(&mut self, took: Duration, released: u32) {
        self.flushes += 1;
        if self.flushes <= SETTLING {
            return;
        }
        self.took += took.as_nanos();
        self.released += u64::from(released);
        if self.flushes == SETTLING + LEG {
            self.leg_ended();
        }
    }

    fn leg_ended(&mut self) {
        let rate = scale(self.released, 1_000_000_000_000, self.took);
        let waited = self.waits;
        if self.waits == self.kept {
            self.rate = if self.rate == 0 { rate } else { self.rate - self.rate / 4 + rate / 4 };
            match self.legs.checked_sub(1) {
                Some(left) => self.legs = left,
                None => self.waits = !self.kept,
            }
        } else {
            let percent = self.rate.abs_diff(rate) * 100 / self.rate.max(rate).max(1);
            self.legs = (2 * percent).max(LEGS_MIN);
            if rate > self.rate + self.rate / BETTER {
                (self.kept, self.rate) = (self.waits, rate);
            }
            self.waits = self.kept;
        }
        self.flushes = if self.waits == waited { SETTLING } else { 0 };
        (self.took, self.released) = (0, 0);
    }
}
