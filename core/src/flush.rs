//! Flush: many requests for durability become one flush of the device.
//!
//! A flush makes all that the device has taken so far durable, for every client, and takes milliseconds. A device that is sent one
//! flush for each `fsync` does little else. But one flush can serve every client that asked before it started.
//!
//! An example: flushes take 10 ms, and eight threads write and call `fsync` in a loop. One at a time, that is 100 syncs a second
//! for all of them together. Here the first flush starts at once, for one thread; the other seven ask while it lasts, and share the
//! second. From then on each flush serves up to eight threads: up to 800 syncs a second.
//!
//! flush.1  A waiter is released only by a device flush that started after the waiter asked. All that had been written by then had
//!          ended before the device began, so it is durable.
//! flush.2  One device flush is under way at a time. Requests that ask for a flush meanwhile share the next, which starts when that
//!          one ends. So two flushes cover any number of waiters.
//! flush.3  A lone flush goes straight to the device. A wait for others is short, and only where it pays (group commit:
//!          commit.1–5 in `group_commit.rs`).
//! flush.4  The outcome of a device flush is told to all that shared it and to no other, however late they look and however many
//!          have ended since. Flushes are numbered, and the numbers only grow.
//! flush.5  A waiter that gives up disturbs no other. When all have given up, no flush is sent.
//! flush.6  If nothing was written since the last flush that succeeded *started*, none is sent. Writes from before this was made count as
//!          not flushed: the previous server may have been killed.
//! flush.7  A failed flush leaves all that it was to cover not flushed, so flush.6 spares none after it. A retry that succeeds proves
//!          nothing, for the device may have dropped the data. So from then on each flush is sent, for the writes since, and fails all the
//!          same, until the operator acknowledges it ([`Flush::acknowledge`]). Where a retry is known to mean something
//!          ([`Settings::remember`] off) it counts. The same holds for a flush that is not shared ([`Flush::ended_alone`]).
//! flush.8  Where there is no volatile cache, no flush is sent.
//! flush.9  A flush that takes too long is the caller's to notice ([`Flush::running_since`]); the caller then tells the waiters.
//!          The device flush stays under way until the device answers, and no other starts before.
//! flush.10  A write that is made durable ahead of the flush that will be asked for ([`Flush::begin_ahead`]) may have a flush in it.
//!          So it begins only while no other such write and no flush is under way or asked for, and no flush starts until it has
//!          ended. Nor does it begin where the last flush had company: it would keep those who share the next one waiting. If it
//!          fails, flush.7 holds: but not for a lack of space while nothing else was written, which is the write's own.
//!
//! This is a state machine without a lock, a clock or a device: [`Queue`](crate::Queue) drives one for each of its backings, the
//! library one for threads and tasks. It counts flushes that are asked for, started and finished; of writes it only needs to know
//! whether there was one ([`Dirty`]).
//!
//! A round: [`Flush::ask`] for each waiter; [`Flush::poll_start`], and [`Flush::start`] if it says so; when the device has
//! answered, [`Flush::end`]; then [`Flush::take`] for each waiter.

mod group_commit;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::fmt;

use crate::sync::{AtomicBool, Ordering, fence};
use crate::time::{ms, secs, us};
use crate::tunable::settings;
use crate::{ContextId, Duration, Errno, Instant, Outcome};

use group_commit::GroupCommit;

settings! {
    /// The tunables of flushes.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Settings {
        /// whether flushes that are requested together become one; 0: each flush goes to the device by itself
        pub coordinate: bool as "flush_coordinate" = true, switch;
        /// the time that a flush may wait for others that are expected to join it, in thousandths of the duration of a
        /// flush; 0: not at all
        pub group_commit: u32 as "flush_company" = 250, count(0, 500);
        /// the duration below which a flush does not wait for others
        pub group_commit_min: Duration as "flush_company_min" = us(200), duration(ms(0), secs(60));
        /// whether all flushes fail after one has failed, until the operator acknowledges it (`fairlift acknowledge`); 0: the next flush
        /// may succeed
        pub remember: bool as "flush_remember" = true, switch;
        /// whether a write of a stream that flushes after each write is made durable with the write, if nothing else is under way
        /// in its queue; 0: by the flush
        pub ahead: bool as "flush_ahead" = true, switch;
        /// whether the time of a flush is charged to the groups that asked for it
        pub charge: bool as "charge_flushes" = true, switch;
    }
}

/// Which device flush releases a waiter, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Round(u64);

/// Whether a device flush is to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Nobody waits for one, or one is under way.
    No,
    /// Now, by [`Flush::start`].
    Now,
    /// At that time, unless company comes before: ask again then, and whenever a flush is asked for (flush.3).
    At(Instant),
    /// None was needed (flush.6, flush.8): the waiters can [take](Flush::take) how it ended, those of these contexts too.
    Spared(Contexts),
}

/// A set of contexts: one bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Contexts(pub u64);

/// Whether something was written since it was last asked: flush.6.
///
/// A flag, not a count: it is written once after each flush, and otherwise only read, so that threads that write to one
/// device do not take its cache line from each other.
#[derive(Debug)]
pub struct Dirty(AtomicBool);

impl Default for Dirty {
    /// Not known to be clean (flush.6).
    fn default() -> Self {
        Self(AtomicBool::new(true))
    }
}

impl Dirty {
    /// A write has ended: to be said before its client is told.
    #[inline]
    pub fn mark(&self) {
        // The device has the data before the flag is looked at, and the flag is cleared before the device is flushed. So a flag
        // that is set need not be set again: that flush is still to come, or the next.
        fence(Ordering::SeqCst);
        if !self.is_marked() {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// Whether something was written that no flush which has started covers.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// A flush starts: what is written from now on is not covered by it.
    fn take(&self) {
        self.0.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

/// Counters; all of them only grow.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Flushes asked for.
    pub requested: u64,
    /// Device flushes started.
    pub sent: u64,
    /// Device flushes that failed.
    pub failed: u64,
    /// Times that one would have been due and was not needed (flush.6, flush.8).
    pub spared: u64,
    /// Times that one waited for company.
    pub waits: u64,
}

/// Coordinates the flushes of one backing: see the [module](self). The default is that of a backing without a volatile cache.
#[derive(Default, Debug)]
pub struct Flush {
    settings: Settings,
    /// Whether what was written can be lost at all (flush.8).
    volatile: bool,
    dirty: Arc<Dirty>,
    counts: Counts,
    /// The number of the last flush that started, and of the last that finished; the spared ones count.
    started: u64,
    finished: u64,
    since: Instant,
    /// How many share the one under way, and how many wait for the next; and in which contexts.
    sharing: u32,
    waiting: u32,
    sharing_in: Contexts,
    waiting_in: Contexts,
    /// A write is made durable (flush.10).
    is_ahead: bool,
    group_commit: GroupCommit,
    /// The error of a failed flush that is not acknowledged (flush.7).
    lost: Option<Errno>,
    /// Flushes that failed and whose sharers have not all looked (flush.4), oldest first.
    failures: VecDeque<Failure>,
}

#[derive(Clone, Copy, Debug)]
struct Failure {
    number: u64,
    errno: Errno,
    /// Waiters that have not looked.
    left: u32,
}

impl Flush {
    /// Of a backing that has a volatile cache, or has none (flush.8).
    #[must_use]
    pub fn new(settings: Settings, volatile: bool) -> Self {
        Self { settings, volatile, ..Self::default() }
    }

    /// Where ends of writes are noted.
    #[must_use]
    pub const fn dirty(&self) -> &Arc<Dirty> {
        &self.dirty
    }

    /// A flush is asked for, in this context. Each waiter [takes](Flush::take) the round that is answered when it has ended, or
    /// [cancels](Flush::cancel).
    ///
    /// # Panics
    /// If the context is not below 64.
    pub fn ask(&mut self, now: Instant, context: ContextId) -> Round {
        if self.waiting == 0 {
            self.group_commit.began = now;
        }
        self.waiting += 1;
        self.waiting_in.0 |= 1 << context.0;
        self.counts.requested += 1;
        Round(self.started + 1) // flush.1, flush.2: whatever is under way started before
    }

    /// A waiter gives up, and will not take how it ends (flush.5).
    pub fn cancel(&mut self, round: Round) {
        if round.0 > self.started {
            self.waiting -= 1;
        } else if round.0 > self.finished {
            self.sharing -= 1;
        } else {
            let _ = self.take(round);
        }
    }

    /// Whether a device flush is to start.
    pub fn poll_start(&mut self, now: Instant) -> Start {
        if self.is_running() || self.waiting == 0 || self.is_ahead {
            return Start::No; // flush.2, flush.10
        }
        if !self.volatile || self.lost.is_none() && !self.dirty.is_marked() {
            self.counts.spared += 1; // flush.6, flush.8
            self.started += 1;
            self.finished += 1;
            self.waiting = 0;
            return Start::Spared(core::mem::take(&mut self.waiting_in));
        }
        match self.group_commit.wait_until(now, self.waiting, &self.settings) {
            Some(until) => Start::At(until),
            None => Start::Now,
        }
    }

    /// A flush that could start is held back for now by the caller, which is to start it: a wait for company begins when it no longer
    /// is.
    pub const fn hold(&mut self, now: Instant) {
        self.group_commit.hold(now);
    }

    /// The caller gives the device a flush: now, or later, but not before.
    ///
    /// # Panics
    /// If one is under way, or nobody asked for one.
    pub fn start(&mut self, now: Instant) -> Round {
        assert!(!self.is_running() && self.waiting > 0, "a flush that nobody waits for, or a second one");
        self.counts.waits += u64::from(self.group_commit.starts());
        self.dirty.take();
        self.since = now;
        self.started += 1;
        self.counts.sent += 1;
        self.sharing = core::mem::take(&mut self.waiting);
        self.sharing_in = core::mem::take(&mut self.waiting_in);
        Round(self.started)
    }

    /// The device has answered. The waiters that shared the flush can take how it ended, in these contexts; those that wait for the
    /// next are among them.
    ///
    /// # Panics
    /// If none was under way.
    pub fn end(&mut self, now: Instant, outcome: Outcome) -> Contexts {
        assert!(self.is_running(), "a flush ended that was not under way");
        self.finished += 1;
        let verdict = self.judge(outcome);
        if let Outcome::Failed(errno) = verdict
            && self.sharing > 0
        {
            self.failures.push_back(Failure { number: self.finished, errno, left: self.sharing });
        }
        self.group_commit.ends(now, now.since(self.since), self.sharing, self.waiting);
        self.sharing = 0;
        Contexts(core::mem::take(&mut self.sharing_in).0 | self.waiting_in.0)
    }

    /// The device has answered a flush that was sent without being asked for here: how it ended for the bio behind it. A failure
    /// counts as one of ours, for the device tells it once (flush.7).
    pub fn ended_alone(&mut self, outcome: Outcome) -> Outcome {
        self.judge(outcome)
    }

    /// A write is to be made durable ahead of the flush that will be asked for; whether it may be (flush.10). If so,
    /// [`end_ahead`](Self::end_ahead) follows.
    pub fn begin_ahead(&mut self) -> bool {
        let is_busy = self.waiting > 0 || self.is_running() || self.is_ahead || self.group_commit.has_company();
        let may = !is_busy && self.lost.is_none() && !self.dirty.is_marked();
        self.is_ahead |= may;
        may
    }

    /// A write that was made durable ahead of its flush has ended; `alone`: no other write has ended since it began. A flush may start
    /// now: the contexts of those that wait for one.
    ///
    /// # Panics
    /// If none had begun.
    pub fn end_ahead(&mut self, outcome: Outcome, alone: bool) -> Contexts {
        assert!(core::mem::take(&mut self.is_ahead), "a write ended that was not made durable ahead of its flush");
        let is_its_own = alone && matches!(outcome, Outcome::Failed(errno) if errno.is_lack_of_space());
        if !is_its_own {
            self.judge(outcome);
        }
        self.waiting_in
    }

    /// The outcome to report for a device flush with this outcome (flush.7).
    fn judge(&mut self, outcome: Outcome) -> Outcome {
        if let Outcome::Failed(errno) = outcome {
            self.dirty.mark();
            self.counts.failed += 1;
            if self.settings.remember {
                self.lost.get_or_insert(errno);
            }
        }
        outcome.and(self.lost.map_or(Outcome::Done, Outcome::Failed))
    }

    /// How the flush ended that a waiter was to share; `None`: it has not. Each takes it once.
    pub fn take(&mut self, round: Round) -> Option<Outcome> {
        if round.0 > self.finished {
            return None; // flush.1
        }
        let Some(place) = self.failures.iter().position(|failure| failure.number == round.0) else {
            return Some(Outcome::Done);
        };
        let failure = &mut self.failures[place];
        let errno = failure.errno;
        failure.left -= 1;
        if failure.left == 0 {
            self.failures.remove(place);
        }
        Some(Outcome::Failed(errno)) // flush.4
    }

    /// Since when one is under way.
    #[must_use]
    pub fn running_since(&self) -> Option<Instant> {
        self.is_running().then_some(self.since)
    }

    /// Whether those of `round` share a flush that has started.
    #[must_use]
    pub const fn has_started(&self, round: Round) -> bool {
        round.0 <= self.started
    }

    /// The error of a failed flush that is not acknowledged (flush.7).
    #[must_use]
    pub const fn lost(&self) -> Option<Errno> {
        self.lost
    }

    /// The operator acknowledges the loss: later flushes succeed if the device says so (flush.7).
    pub fn acknowledge(&mut self) {
        self.lost = None;
    }

    /// The counters.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Changes settings; works under load. A remembered error is forgotten if failures are not to be remembered.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
        if !self.settings.remember {
            self.lost = None;
        }
    }

    fn is_running(&self) -> bool {
        self.started > self.finished
    }
}

/// A [`Flush`] that several share: a lock around it, which this crate has none of.
pub trait SharedFlush: fmt::Debug + Send + Sync {
    /// Calls `act`, once, while nobody else is called.
    fn with(&self, act: &mut dyn FnMut(&mut Flush));
}
