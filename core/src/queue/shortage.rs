//! What the floors of a disk add up to, beside what the disk was seen to do.
//!
//! queue.16  What a disk can do is seen in seconds in which some group was below its floor, and waited, at every completion: then
//!     the disk was busy all the time, and did not do enough. Where the floors of the groups that have streams here add up to
//!     more than the most of such seconds, they cannot all be kept. Example: two floors of 60,000 reads a second, and a disk that
//!     does 90,000; each has 45,000 (floor.4). Nothing is said of a disk that was never so busy.

use alloc::vec;
use core::fmt;

use super::Groups;
use super::promises::Promises;
use crate::ceiling::{Rate, Rates};
use crate::time::secs;
use crate::{Bytes, Duration, Instant};

/// How long a disk is looked at. Chosen: a floor is what a group gets in a second.
const LOOK: Duration = secs(1);

/// Floors that add up to more than the disk was seen to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// Whether bytes are short; else I/Os.
    pub of_bytes: bool,
    /// What floors add up to, a second.
    pub floors: u64,
    /// The most that the disk did in a second.
    pub done: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of_bytes, floors, done } = self;
        let what = if *of_bytes { "bytes" } else { "I/Os" };
        write!(f, "floors (min) add up to {floors} {what} a second, and the disk was seen to do at most {done}: ")?;
        f.write_str("each group has its part of what there is")
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

/// What the disk was seen to do.
#[derive(Default, Debug)]
pub(super) struct Seen {
    /// Since when some group has been below its floor, and what was done since.
    since: Instant,
    work: Work,
    /// The most in a second.
    most: Option<Work>,
}

impl Seen {
    /// Other floors: what was seen says nothing of them yet.
    pub(super) fn begin(&mut self, now: Instant) {
        *self = Self { since: now, ..Self::default() };
    }

    /// A request ended; `below`: some group is below its floor, and waits.
    #[cold]
    pub(super) fn count(&mut self, now: Instant, bytes: Bytes, below: bool) {
        if !below {
            (self.since, self.work) = (now, Work::default());
            return;
        }
        self.work.ios += 1;
        self.work.bytes += bytes.get();
        let time = now.since(self.since);
        if time >= LOOK {
            let a_second = |amount: u64| (u128::from(amount) * 1_000_000_000 / u128::from(time.as_nanos())) as u64;
            let work = Work { ios: a_second(self.work.ios), bytes: a_second(self.work.bytes) };
            self.most = Some(self.most.unwrap_or_default().max(work));
            (self.since, self.work) = (now, Work::default());
        }
    }
}

impl Promises {
    /// Whether floors add up to more than the disk was seen to do (queue.16).
    pub(super) fn shortage(&self, groups: &Groups) -> Option<Shortage> {
        let (most, streams) = (self.seen.most?, &groups.streams);
        let groups = groups.parents_first();
        let count = groups.iter().map(|(id, _)| usize::from(id.0) + 1).max().unwrap_or(0);
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
