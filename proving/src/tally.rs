//! Attempts, and their amounts.

use std::fmt;

macro_rules! counts {
    ($($(#[doc = $says:literal])+ $count:ident = $name:literal,)+) => {
        /// Something that is counted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Count {
            $($(#[doc = $says])+ $count,)+
        }

        impl Count {
            /// All of them.
            pub const ALL: [Self; [$(Self::$count),+].len()] = [$(Self::$count),+];

            /// As it is shown.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$count => $name,)+
                }
            }
        }
    };
}

counts! {
    /// Runs.
    Runs = "runs",
    /// Bios that ended.
    Ios = "I/Os",
    /// Requests that went to the disk.
    Requests = "requests",
    /// Simulated milliseconds.
    Millis = "simulated ms",
    /// Requests that the disk failed.
    Errors = "errors",
    /// Requests that took 2 to 1,000 times as long.
    Delays = "delays",
    /// Requests that took longer than `io_timeout`, or whose end was lost.
    Hangs = "hangs",
    /// Requests that were found in the disk after `io_timeout` and a second, whose clients must have been told.
    Late = "late answers compared",
    /// Requests that the disk turned back.
    Busy = "turned back",
    /// Writes that were dropped, torn or put elsewhere.
    Lies = "lies of the disk",
    /// Sectors that were read and compared with the last write there.
    Compared = "sectors compared",
    /// Sectors that such a write left wrong, and that were found wrong.
    Found = "lies found",
    /// Clients that went away while something of them was open.
    Aborts = "aborts",
    /// Bios that had no room at first.
    Full = "waits for room",
    /// Changes of schedulers.
    Switches = "scheduler changes",
    /// Changes of weights, groups, limits, tunables, depth that changed something.
    Changes = "changes",
    /// Bios of groups with a ceiling.
    Limited = "I/Os under a ceiling",
    /// Requests after which the parts of all tenants were compared with their dues.
    Shared = "shares compared",
    /// Requests after which floors, or a ceiling that nobody should be kept below, were compared.
    Reserved = "floors and ceilings compared",
    /// Instants at which the power could have failed.
    Cuts = "power cuts",
    /// Flushes that clients were told to have ended well.
    Flushes = "flushes",
    /// Flushes of the disk that failed while its power could: those of other suites are among the errors.
    FailedFlushes = "failed flushes",
    /// Writes that were made durable ahead of the flush that would ask for it.
    Ahead = "writes durable ahead",
}

/// Counts, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally([u64; Count::ALL.len()]);

impl Tally {
    /// Adds an amount.
    pub const fn add(&mut self, count: Count, more: u64) {
        self.0[count as usize] += more;
    }

    /// One more.
    pub(crate) const fn one(&mut self, count: Count) {
        self.add(count, 1);
    }

    /// All that another one counted.
    pub fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, more)| *sum += more);
    }

    /// How many.
    #[must_use]
    pub const fn get(&self, count: Count) -> u64 {
        self.0[count as usize]
    }

    /// All that went wrong on purpose.
    #[must_use]
    pub fn faults(&self) -> u64 {
        use Count::{Aborts, Busy, Delays, Errors, FailedFlushes, Hangs, Lies};
        [Errors, Delays, Hangs, Busy, Lies, Aborts, FailedFlushes].into_iter().map(|count| self.get(count)).sum()
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = Count::ALL.into_iter().filter(|count| self.get(*count) > 0);
        f.debug_map().entries(counted.map(|count| (count, self.get(count)))).finish()
    }
}

/// A promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// Which, as in `docs/reliability.md`.
    pub promise: &'static str,
    /// How.
    pub says: String,
}

impl Broken {
    pub(crate) fn new(promise: &'static str, says: impl Into<String>) -> Self {
        Self { promise, says: says.into() }
    }
}

/// Whether the promises were kept.
pub(crate) type Result<T = ()> = std::result::Result<T, Broken>;

/// The error of a broken promise.
pub(crate) fn broken<T>(promise: &'static str, says: impl Into<String>) -> Result<T> {
    Err(Broken::new(promise, says))
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.says)
    }
}
