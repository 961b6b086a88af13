//! Concurrency: the number of requests at once that pays on a backing, learned from its throughput.
//!
//! A squashfs unpacks one block at a time, however many threads ask; a network file system or an SSD does not. More threads
//! than pay cost CPU, and they cost it where others want to work.
//!
//! concurrency.1  At most `most` at once, at least one.
//! concurrency.2  Levels are powers of two (and `most`). A trial compares the present level with twice or half of it, in samples
//!     that alternate, so that a load that changes is the same for both.
//! concurrency.3  A sample counts only while the backing was kept full: as many out as allowed, and more waiting. A level that the load
//!     never reaches cannot be learned: its trial is given up.
//! concurrency.4  Twice as many pay if that is more than a tenth faster. Half as many do if that loses less than 3 %: fewer threads
//!     for the same work. In between, nothing changes: no level is left for one that would be left for it.
//! concurrency.5  After a level has withstood both trials there is rest, twice as long each time, up to half a minute under load; a
//!     trial that changes something begins anew.

use super::comparison::{Comparison, Proof, Rate, difference};
use crate::time::{ms, secs};
use crate::{Duration, Instant};

/// How much may be learned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The most at once, 1 to 1024.
    pub most: u16,
    /// Whether `most` is taken as it is, and nothing is learned.
    pub fixed: bool,
}

impl Settings {
    /// The `most` of [`Settings::default`]: as the kernel's loop device had once it was made to stop at some number.
    pub const MOST: u16 = 16;
}

impl Default for Settings {
    fn default() -> Self {
        Self { most: Self::MOST, fixed: false }
    }
}

/// The level that a backing begins with. Chosen: the middle, so that either end is two trials away.
const FIRST: u16 = 4;
/// The fewest requests of a sample: the highest level ([`Settings::MOST`]), so that each place ends one.
const SAMPLE_ENDS: u32 = 16;
/// The shortest time of a sample. Chosen: many times what a thread takes to be woken.
const SAMPLE_TIME: Duration = ms(2);
/// The most pairs of samples in a trial. Chosen: at [`SAMPLE_TIME`] a trial of a fast backing then ends within 32 ms.
const PAIRS: u32 = 8;
/// How often all that is out may end without the backing being full (concurrency.3) before a trial is given up. Chosen: four
/// times a sample's requests, so that a moment without enough to do does not end it.
const PATIENCE: u32 = 64;
/// The gain that a higher level needs (concurrency.4). Chosen: a tenth is worth twice the threads, less is not.
const UP: f64 = 1.1;
/// The loss that a lower level is allowed. Chosen: half the threads are worth that little, and it is
/// far enough from [`UP`] that two levels do not alternate.
const DOWN: f64 = 0.97;
/// The shortest rest (concurrency.5). Chosen: the first trials of a fast backing (32 ms) take a sixteenth of the time.
const REST: Duration = ms(500);
/// The longest rest. Chosen: a backing that changed is noticed within half a minute of load.
const REST_MOST: Duration = secs(30);
/// The fixed cost of a request, in sectors: 8 KiB. Chosen: small requests count by number, large ones by length.
const OVERHEAD: u64 = 16;

/// How many requests at once a backing is given.
///
/// The code that gives it requests asks [`allowed`](Self::allowed) and tells of [`ended`](Self::ended) ones.
#[derive(Clone, Debug)]
pub(crate) struct Concurrency {
    settings: Settings,
    /// The level that was found best so far.
    pub(crate) level: u16,
    stage: Stage,
    sample: Sample,
    /// How long the next rest is.
    rest: Duration,
    /// How often the level has changed.
    pub(crate) changes: u64,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Nothing is tried for so long under load.
    Rest { left: Duration, last: Option<Instant> },
    /// The present level against `other`.
    Trial { other: u16, comparison: Comparison, interrupted: u32 },
}

/// Requests that ended under one level.
#[derive(Clone, Copy, Default, Debug)]
struct Sample {
    /// Requests that still end first: they went out under another level.
    skip: u32,
    since: Option<Instant>,
    ends: u32,
    work: u64,
}

impl Concurrency {
    /// Of a backing that nothing is known of.
    ///
    /// # Panics
    /// If `most` is out of its range.
    pub(crate) fn new(settings: Settings) -> Self {
        assert!((1..=1024).contains(&settings.most), "at most {} at once", settings.most);
        let level = if settings.fixed { settings.most } else { FIRST.min(settings.most) };
        let mut new = Self {
            settings,
            level,
            stage: Stage::Rest { left: Duration::ZERO, last: None },
            sample: Sample::default(),
            rest: REST,
            changes: 0,
        };
        new.begin(level.saturating_mul(2));
        new
    }

    /// How many may be out now.
    pub(crate) fn allowed(&self) -> u16 {
        match &self.stage {
            Stage::Trial { other, comparison, .. } if comparison.is_other => *other,
            Stage::Trial { .. } | Stage::Rest { .. } => self.level,
        }
    }

    /// A request of `sectors` ended; `full`: until now as many were out as allowed, and more waited.
    pub(crate) fn ended(&mut self, now: Instant, sectors: u64, full: bool) {
        if self.settings.fixed || self.settings.most == 1 {
            return;
        }
        match &mut self.stage {
            Stage::Rest { left, last } => {
                let passed = last.filter(|_| full).map_or(Duration::ZERO, |last| now.since(last));
                *last = full.then_some(now);
                *left = Duration::from_nanos(left.as_nanos().saturating_sub(passed.as_nanos()));
                if *left == Duration::ZERO && full {
                    self.begin(self.level.saturating_mul(2));
                }
            }
            Stage::Trial { other, interrupted, .. } if !full => {
                // concurrency.3. Each that was out ends so when there is no more to do.
                *interrupted += 1;
                let give_up = *interrupted > PATIENCE * u32::from(self.level.max(*other));
                self.sample = Sample { skip: self.sample.skip.saturating_sub(1), ..Sample::default() };
                if give_up {
                    self.lie_down();
                }
            }
            Stage::Trial { .. } => self.count(now, sectors),
        }
    }

    fn count(&mut self, now: Instant, sectors: u64) {
        if self.sample.skip > 0 {
            self.sample.skip -= 1;
            return;
        }
        let Some(since) = self.sample.since else {
            self.sample.since = Some(now);
            return;
        };
        self.sample.ends += 1;
        self.sample.work += OVERHEAD + sectors;
        let passed = now.since(since);
        let Stage::Trial { other, comparison, .. } = &mut self.stage else { return };
        let larger = u32::from(self.level.max(*other));
        if self.sample.ends < SAMPLE_ENDS.max(2 * larger) || passed < SAMPLE_TIME {
            return;
        }
        comparison.add(Rate { sectors: self.sample.work, nanos: passed.as_nanos() });
        self.sample = Sample { skip: larger, ..Sample::default() };
        let (other, up) = (*other, *other > self.level);
        let proof = Proof { margin: difference(if up { UP } else { DOWN }), bias: 0.0, plain: None };
        match comparison.verdict_within(&proof, PAIRS) {
            None => {}
            Some(true) => {
                (self.level, self.rest) = (other, REST);
                self.changes += 1;
                // A change that helped may help again.
                if up { self.begin(other.saturating_mul(2)) } else { self.begin(other / 2) }
            }
            Some(false) if up => self.begin(self.level / 2),
            Some(false) => self.lie_down(), // concurrency.5: it has withstood both
        }
    }

    /// Begins a trial against another level; where there is none (concurrency.1), against the other way, or rests.
    fn begin(&mut self, other: u16) {
        let other = other.min(self.settings.most);
        let other = if other == self.level { self.level / 2 } else { other };
        if other == 0 {
            return self.lie_down();
        }
        self.stage = Stage::Trial { other, comparison: Comparison::new(0.0), interrupted: 0 };
        self.sample = Sample { skip: u32::from(self.level.max(other)), ..Sample::default() };
    }

    fn lie_down(&mut self) {
        self.stage = Stage::Rest { left: self.rest, last: None };
        self.rest = Duration::from_nanos((self.rest.as_nanos() * 2).min(REST_MOST.as_nanos()));
    }
}

#[cfg(test)]
mod tests;
