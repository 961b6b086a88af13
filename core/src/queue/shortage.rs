//! The sum of a disk's floors, beside the disk's observed throughput.
//!
//! queue.16  A disk's limit is seen where some group was below its floor, and waited, at every completion of [`SECONDS`] seconds
//!     one after the other: then the disk was busy all the time, and did not do enough. Where the floors of the groups that have
//!     streams here add up to more than the disk did in the best of these seconds, or in any second since, they cannot all be kept.
//!     Example: two floors of 60,000 reads a second, and a disk that does 90,000; each has 45,000 (floor.4). A disk that stands still for
//!     a third of a second leaves a group below its floor for a second or so, until it has caught up: that says nothing. Nothing
//!     is said of a disk that was never so busy.

use alloc::vec;
use core::fmt;

use super::Groups;
use super::promises::Promises;
use crate::ceiling::{Rate, Rates};
use crate::time::{scale, secs};
use crate::{Bytes, Duration, Instant};

/// The time for which a disk is observed. Chosen: a floor is an amount in a second.
const LOOK: Duration = secs(1);

/// Seconds in a row that are no accident. Chosen: a floor that is a tenth below what the disk does is caught up with in one,
/// after the longest lag that is made up for (floor.2).
const SECONDS: u32 = 3;

/// Floors that add up to more than the disk was seen to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// Whether bytes are short; else I/Os.
    pub of_bytes: bool,
    /// The sum of floors, a second.
    pub floors: u64,
    /// The most that the disk did in a second, since they are known not to be kept.
    pub done: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of_bytes, floors, done } = self;
        let what = if *of_bytes { "bytes" } else { "I/Os" };
        write!(f, "floors (min) add up to {floors} {what} a second, and the disk has done at most {done}: ")?;
        f.write_str("each group has its part of that")
    }
}

/// I/Os and bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Work {
    ios: u64,
    bytes: u64,
}

impl Work {
    fn of(rates: &Rates) -> Self {
        let sum = |all, one, other| {
            let get = |rate| rates.get(rate).unwrap_or(0);
            get(all).max(get(one).saturating_add(get(other)))
        };
        Self { ios: sum(Rate::Iops, Rate::Riops, Rate::Wiops), bytes: sum(Rate::Bps, Rate::Rbps, Rate::Wbps) }
    }

    fn max(self, other: Self) -> Self {
        Self { ios: self.ios.max(other.ios), bytes: self.bytes.max(other.bytes) }
    }
}

/// The disk's observed throughput.
#[derive(Default, Debug)]
pub(super) struct Seen {
    /// The present second: when it began, what was done, and whether some group was below its floor all the time.
    since: Instant,
    work: Work,
    is_below: bool,
    /// How many such seconds there were one after the other, and the most in one of them.
    seconds: u32,
    best: Work,
    /// The most in a second, of the last such seconds that were enough of them and of all since.
    most: Option<Work>,
}

impl Seen {
    /// Other floors: what was seen says nothing of them yet.
    pub(super) fn begin(&mut self, now: Instant) {
        *self = Self { since: now, is_below: true, ..Self::default() };
    }

    /// A request ended; `below`: some group is below its floor, and waits.
    #[cold]
    pub(super) fn count(&mut self, now: Instant, bytes: Bytes, below: bool) {
        self.work.ios += 1;
        self.work.bytes += bytes.get();
        self.is_below &= below;
        let time = now.since(self.since);
        if time < LOOK {
            return;
        }
        let a_second = |amount: u64| scale(amount, 1_000_000_000, time.as_nanos());
        let work = Work { ios: a_second(self.work.ios), bytes: a_second(self.work.bytes) };
        self.most = self.most.map(|most| most.max(work));
        // A disk without a completion for a second has nothing to do, or stands still.
        if self.is_below && time < LOOK + LOOK {
            (self.seconds, self.best) = (self.seconds + 1, self.best.max(work));
        } else {
            (self.seconds, self.best) = (0, Work::default());
        }
        if self.seconds == SECONDS {
            self.most = Some(self.best);
        }
        (self.since, self.work, self.is_below) = (now, Work::default(), true);
    }
}

impl Promises {
    /// Whether floors add up to more than the disk was seen to do (queue.16).
    pub(super) fn shortage(&self, groups: &Groups) -> Option<Shortage> {
        let (most, streams, count) = (self.seen.most?, &groups.streams, groups.states.len());
        let groups = groups.parents_first();
        let (mut is_used, mut below) = (vec![false; count], vec![Work::default(); count]);
        for (_, state) in streams {
            is_used[usize::from(state.stream.group.0)] = true;
        }
        for (id, group) in groups.into_iter().rev() {
            let Some(parent) = group.parent.map(|parent| usize::from(parent.0)) else { continue };
            let at = usize::from(id.0);
            if is_used[at] {
                is_used[parent] = true;
                let own = self.floor(id).map(Work::of).unwrap_or_default().max(below[at]);
                below[parent].ios = below[parent].ios.saturating_add(own.ios);
                below[parent].bytes = below[parent].bytes.saturating_add(own.bytes);
            }
        }
        let all = below.first()?;
        let short = |of_bytes, floors, done| (floors > done).then_some(Shortage { of_bytes, floors, done });
        short(false, all.ios, most.ios).or_else(|| short(true, all.bytes, most.bytes))
    }
}
