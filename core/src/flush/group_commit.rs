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
//! commit.3  A wait has paid if the flushes that it saved the newcomers (a whole one each) are worth more than the time of the
//!           waiters. After a wait that has not paid, none is tried for 1, 2, 4, … 32 flushes.
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
    /// When the first of the waiters asked.
    asked: Instant,
    /// Until when the next one was held back for other reasons.
    held: Instant,
    /// Since when a flush that could start has waited, and how many had asked then.
    waiting: Option<(Instant, u32)>,
    /// How many more flushes start at once, and how many will after the next wait that does not pay (commit.3).
    skip: u32,
    skip_next: u32,
}

/// The most flushes for which no wait is tried (commit.3). Chosen: a load that changes is seen after 32 flushes at the latest.
const SKIP_MAX: u32 = 32;

/// The longest wait (commit.2). Chosen: threads that come back at once have done so by then, however long a flush takes.
const LONGEST: Duration = ms(10);

impl GroupCommit {
    /// A flush is asked for, and none is waited for.
    pub(super) const fn first_asks(&mut self, now: Instant) {
        self.asked = now;
    }

    /// A flush that could start is held back for other reasons.
    pub(super) const fn hold(&mut self, now: Instant) {
        (self.held, self.waiting) = (now, None);
    }

    /// Until when a flush that could start is to wait, while so many have asked for it; `None`: no longer.
    pub(super) fn wait_until(&mut self, now: Instant, count: u32, settings: &Settings) -> Option<Instant> {
        let begin = self.asked.max(self.ended);
        // commit.1: a thread that has not come back by then is not coming.
        let expected = if begin.since(self.ended) < self.mean { self.expected } else { 1 };
        if settings.group_commit == 0 || self.mean < settings.group_commit_min || self.skip > 0 || count >= expected {
            return None; // commit.2, commit.3, commit.4
        }
        let most = u128::from(self.mean.as_nanos()) * u128::from(settings.group_commit) / 1000;
        let until = begin.max(self.held) + Duration::from_nanos(most as u64).min(LONGEST); // commit.2
        if until <= now {
            return None;
        }
        self.waiting.get_or_insert((now, count));
        Some(until)
    }

    /// It starts, shared by so many; whether it had waited.
    pub(super) fn starts(&mut self, now: Instant, count: u32) -> bool {
        self.skip = self.skip.saturating_sub(1);
        let Some((since, before)) = self.waiting.take() else { return false };
        let came = u64::from(count.saturating_sub(before));
        let paid = u128::from(came) * u128::from(self.mean.as_nanos())
            > u128::from(before) * u128::from(now.since(since).as_nanos());
        if paid {
            self.skip_next = 0;
        } else {
            // commit.3
            self.skip_next = (self.skip_next * 2).clamp(1, SKIP_MAX);
            self.skip = self.skip_next;
        }
        true
    }

    /// It ended after `took`; so many shared it, and so many wait for the next.
    pub(super) fn ends(&mut self, now: Instant, took: Duration, shared: u32, waiting: u32) {
        self.ended = now;
        self.expected = shared + waiting;
        let (mean, took) = (self.mean.as_nanos(), took.as_nanos());
        // commit.5; the first one is all that is known.
        let mean = if mean == 0 { took } else { mean - mean / 8 + took / 8 };
        self.mean = Duration::from_nanos(mean);
    }
}
