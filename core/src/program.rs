//! Programs on paper, which read and write a disk.
//!
//! The lab's workloads implement [`Program`]; its world runs them on a virtual clock, and `host` runs the same ones on a real disk. A
//! program has no payload: it only knows its next request, and those that it was waiting for.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::learn::idling_trial::Finding;
use crate::model::Work;
use crate::stats::Histogram;
use crate::trace::Item;
use crate::{Duration, Errno, Extent, Flags, GroupId, Instant, Op, Outcome, Priority};

/// A request of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The program's own name for it, unique among its asks that have not ended; small numbers that are used again.
    pub token: u32,
    /// The operation.
    pub op: Op,
    /// How to treat it.
    pub flags: Flags,
    /// Where on the disk; empty for a flush.
    pub extent: Extent,
}

/// The work of a program: counted as it sees it, by its own operations (a `read()`), not by requests to the disk.
#[derive(Clone, Default, Debug)]
pub struct Meter {
    /// Bytes read or written by operations that ended well.
    pub bytes: u64,
    /// Operations that ended.
    pub operations: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Why the first of those failed.
    pub why: Option<Errno>,
    /// How long an operation took.
    pub latency: Histogram,
    /// The longest, with the age of operations that had not ended when the measurement did.
    pub latency_max: Duration,
}

impl Meter {
    /// An operation of `bytes` ended after `latency`.
    pub fn ended(&mut self, bytes: u64, outcome: Outcome, latency: Duration) {
        self.operations += 1;
        match outcome {
            Outcome::Done => self.bytes += bytes,
            Outcome::Failed(errno) => {
                self.failed += 1;
                self.why.get_or_insert(errno);
            }
        }
        self.latency.record(latency);
        self.latency_max = self.latency_max.max(latency);
    }

    /// An operation has run for `age` and has not ended: the longest is no shorter. It counts for nothing else.
    pub fn is_open(&mut self, age: Duration) {
        self.latency_max = self.latency_max.max(age);
    }

    /// Adds what another got done.
    pub fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.operations += other.operations;
        self.failed += other.failed;
        self.why = self.why.or(other.why);
        self.latency.add(&other.latency);
        self.latency_max = self.latency_max.max(other.latency_max);
    }
}

/// Asks, hears how it went, asks again. Deterministic: the same calls give the same answers.
///
/// A round: `handle_end` for all that ended, `poll_ask` until `None`, then `poll_timeout`.
pub trait Program: Send {
    /// The program's next request, or `None` until something ends or time passes.
    fn poll_ask(&mut self, now: Instant) -> Option<Ask>;

    /// One of its asks ended.
    fn handle_end(&mut self, now: Instant, token: u32, outcome: Outcome);

    /// When to look again though nothing ended (it thinks, or a request arrives by the clock).
    fn poll_timeout(&self) -> Option<Instant>;

    /// Its work so far.
    fn meter(&self) -> &Meter;

    /// Its work up to `now`, when the measurement ends: as [`Program::meter`], with the age of operations that have not ended.
    fn meter_at(&self, now: Instant) -> Meter {
        let mut meter = self.meter().clone();
        meter.is_open(self.open_since().map_or(Duration::ZERO, |since| now.since(since)));
        meter
    }

    /// Whether each of its asks goes to the queue by itself, as `io_submit` hands over one request after another. If not,
    /// what it asks in one round is a batch, as a page cache's read-ahead and write-back are: neighbours in it are merged.
    fn asks_one_by_one(&self) -> bool {
        false
    }

    /// Since when the oldest of its operations has run that have not ended; `None`, or a time to come, if none does.
    fn open_since(&self) -> Option<Instant> {
        None
    }
}

/// A program, and the group that pays for its requests.
pub struct Job {
    /// Its group: an index into the weight tree.
    pub group: GroupId,
    /// Its priority within the group.
    pub priority: Priority,
    /// Its requests. It is told the time since the start of the run.
    pub program: Box<dyn Program>,
}

/// How long a group with asks under way was left without an end: from one end to the next, or from the first ask on.
///
/// Latency does not tell this: a group with 32 requests under way may be served every millisecond and wait 32 for each, or be
/// left alone for 32 at a time.
#[derive(Clone, Copy, Default, Debug)]
pub struct Unserved {
    /// Asks under way.
    open: u64,
    /// Since when nothing has ended, if there are any.
    since: Instant,
    longest: Duration,
}

impl Unserved {
    /// Something was asked.
    pub fn submitted(&mut self, now: Instant) {
        if self.open == 0 {
            self.since = now;
        }
        self.open += 1;
    }

    /// One of the asks ended.
    ///
    /// # Panics
    /// If none is under way.
    pub fn ended(&mut self, now: Instant) {
        assert!(self.open > 0, "something ended that was not asked");
        self.longest = self.longest(now);
        self.open -= 1;
        // Threads tell their times in any order.
        self.since = self.since.max(now);
    }

    /// The longest so far, what has not ended by `now` included.
    #[must_use]
    pub fn longest(&self, now: Instant) -> Duration {
        if self.open == 0 { self.longest } else { self.longest.max(now.since(self.since)) }
    }
}

/// The work of the jobs of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The work of each job, with its group, in the order of the jobs.
    pub meters: Vec<(GroupId, Meter)>,
    /// How long it ran: less than was asked if it was stopped.
    pub runtime: Duration,
    /// For each slot of the run that began, the bytes that each group got, in the order of the weight tree.
    pub timeline: Vec<Vec<u64>>,
    /// The longest time that each group was left [`Unserved`], in the order of the weight tree: all its jobs together.
    pub unserved: Vec<Duration>,
    /// For how long limits held what each group asked, all its requests together, in the order of the weight tree.
    pub held: Vec<Duration>,
    /// The reads and writes that each group asked of the queue, and their bytes, in the order of the weight tree; 0 without a queue.
    pub asked: Vec<(u64, u64)>,
    /// The work of the disk in that time: requests after merging and cutting.
    pub work: Work,
    /// The counters of the queue and its scheduler ([`Queue::counters`](crate::Queue::counters)).
    pub counters: BTreeMap<String, u64>,
    /// The scheduler's decisions about holding the disk idle (`slice_idle=auto`), counted from the beginning of the run.
    pub findings: Vec<Finding>,
    /// The last steps of requests and messages of the scheduler, where they were asked for.
    pub trace: Vec<Item>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ms;

    fn at(n: u64) -> Instant {
        Instant::ZERO + ms(n)
    }

    #[test]
    fn who_is_left_alone_with_asks_under_way_is_unserved_and_who_asks_nothing_is_not() {
        let mut group = Unserved::default();
        group.submitted(at(10));
        group.submitted(at(12));
        group.ended(at(15)); // five since the first ask
        group.ended(at(22)); // seven since the last end
        assert_eq!(group.longest(at(500)), ms(7), "nothing was under way since");
        group.submitted(at(500));
        assert_eq!(group.longest(at(503)), ms(7));
        assert_eq!(group.longest(at(520)), ms(20), "what has not ended counts with its age");
        group.ended(at(504));
        assert_eq!(group.longest(at(900)), ms(7));
    }
}
