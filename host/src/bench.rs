//! Bench: an export whose client is a program.
//!
//! [`run`] lets [`Program`]s ask a backing through the same engine, queue and scheduler that serve clients; [`run_raw`]
//! gives the same asks straight to a file, as the baseline.

use fairlift_core::model::Work;
use fairlift_core::program::{Meter, Program};
use fairlift_core::{Duration, Group, GroupId, Priority};

use crate::Error;
use crate::config::{Backing, Disk};

/// What is asked, and for how long.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The scheduler and its settings, the depth, the timeout.
    pub disk: Disk,
    /// The weight tree; the first is the root.
    pub groups: Vec<Group>,
    /// What holds the data. It is opened anew by each run, so RAM is empty and a model at rest.
    pub backing: Backing,
    /// Whether it is opened for reading only: what would change it then fails with `EPERM`, and nothing is written.
    pub read_only: bool,
    /// How many threads; `None`: one for each CPU that the process may use.
    pub workers: Option<usize>,
    /// How long, unless somebody says stop before.
    pub runtime: Duration,
    /// Into how many equal parts the timeline cuts `runtime`.
    pub slots: u32,
}

/// A program, and who pays for what it asks.
pub struct Job {
    /// The index of its group in [`Setup::groups`].
    pub group: GroupId,
    /// Its priority within the group.
    pub priority: Priority,
    /// What it asks. It is told the time since the start of the run.
    pub program: Box<dyn Program>,
}

/// What was got done.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What each job got done, with its group, in the order of the jobs.
    pub meters: Vec<(GroupId, Meter)>,
    /// How long it ran: less than [`Setup::runtime`] if it was stopped.
    pub runtime: Duration,
    /// For each slot that began, the bytes that each group got, in the order of [`Setup::groups`].
    pub timeline: Vec<Vec<u64>>,
    /// What the device did in that time, as seen from the queue: requests after merging and cutting.
    pub work: Work,
}

/// The size of a backing in bytes: where programs may ask.
///
/// # Errors
/// It cannot be opened for reading.
pub fn capacity(_backing: &Backing) -> Result<u64, Error> {
    Err(Error::Ring(std::io::ErrorKind::Unsupported.into()))
}

/// Runs the jobs through the queue and scheduler of a disk, as clients of a server would be served, until the time is over
/// or `stop` says so; then waits for what is in flight.
///
/// # Errors
/// io_uring is not to be had, the backing or disk cannot be what it is said to be, or requests do not come back.
///
/// # Panics
/// If a job's group is not in [`Setup::groups`].
pub fn run(_setup: &Setup, _jobs: Vec<Job>, _stop: &(dyn Fn() -> bool + Sync)) -> Result<Measured, Error> {
    Err(Error::Ring(std::io::ErrorKind::Unsupported.into()))
}

/// Gives the same asks straight to a file by io_uring, from one thread: no queue, no scheduler, no merging, nothing held
/// back. Of [`Setup::disk`] and [`Setup::workers`] nothing is used.
///
/// # Errors
/// As [`run`], or the backing is no file.
///
/// # Panics
/// If a job's group is not in [`Setup::groups`].
pub fn run_raw(_setup: &Setup, _jobs: Vec<Job>, _stop: &(dyn Fn() -> bool + Sync)) -> Result<Measured, Error> {
    Err(Error::Ring(std::io::ErrorKind::Unsupported.into()))
}
