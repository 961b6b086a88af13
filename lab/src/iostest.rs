//! iostest: groups × jobs × sets × workloads, on a disk on paper or on a real one.
//!
//! iostest.1  A [`Plan`] is a list of cases: each workload, in each set, with each number of jobs per group.
//! iostest.2  A [`Runner`] runs a case and tells each job's figures: [`Modelled`] in a world of its own; `cli` has one for real paths.
//! iostest.3  A case's random choices follow from its own seed, made of the plan's seed, workload, jobs and set: any case can be repeated
//!     alone.
//! iostest.4  A case in which an operation failed is no measurement: the plan ends with the reason.
//! iostest.5  When it is stopped, cases that ended are kept, and the one under way is not.
//! iostest.6  A situation of tenants has one case, with groups of its own, and before it those of its tenants alone. Those are run
//!     under `none`, whatever the scheduler, and are no result by themselves: see [`tenants`].

mod case;
mod error;
mod modelled;
mod sums;
pub mod tenants;

use std::collections::BTreeMap;

use fairlift_core::ceiling::Bounds;
use fairlift_core::time::secs;
use fairlift_core::{Duration, Group};

use crate::result::{Results, Run};
use crate::workload::Workload;

pub(crate) use case::START;
pub use error::RunError;
pub use fairlift_core::program::{Job, Measured};
pub use modelled::Modelled;
use tenants::Alone;

/// The plan of a measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The weight tree, the root first. Jobs are in its leaves; in the root if there are no others.
    pub groups: Vec<Group>,
    /// The bounds of groups, by their paths; not situations, nor a tenant alone.
    pub bounds: BTreeMap<String, Bounds>,
    /// Each is run by itself.
    pub workloads: Vec<Workload>,
    /// Jobs in each group: one case for each number.
    pub jobs: Vec<u32>,
    /// How often all is repeated.
    pub sets: u32,
    /// Of one case, in time of the disk.
    pub runtime: Duration,
    /// How long the disk is in use before, in situations.
    pub warm_up: Duration,
    /// Time that a reply and the next request are on their way, in situations on a modelled disk.
    pub round_trip: Duration,
    /// Bytes of an operation; `None`: what each workload has by default.
    pub block_size: Option<u32>,
    /// Bytes of each job's file.
    pub file_size: u64,
    /// Requests that each job of a direct workload keeps in flight.
    pub iodepth: u32,
    /// Where the files lie.
    pub placement: Placement,
    /// Seed of all random choices.
    pub seed: u64,
    /// How much of the end of each run's trace is kept.
    pub trace: usize,
}

/// Where the files of a case lie.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Placement {
    /// One after another from near the start of the disk on, as a fresh file system lays them.
    #[default]
    Together,
    /// Evenly over the whole disk, as far apart as can be: each begins this many bytes into its part, whole sectors.
    Within(u64),
}

impl Default for Plan {
    /// One group, one job, and `iostest`'s other defaults: 30 s, files of 512 MiB.
    fn default() -> Self {
        Self {
            groups: vec![Group::root()],
            bounds: BTreeMap::new(),
            workloads: Vec::new(),
            jobs: vec![1],
            sets: 1,
            runtime: secs(30),
            warm_up: tenants::WARM_UP,
            round_trip: tenants::ROUND_TRIP,
            block_size: None,
            file_size: 512 << 20,
            iodepth: 1,
            placement: Placement::Together,
            seed: 1,
            trace: 0,
        }
    }
}

/// One measurement: a workload, with a number of jobs in each group.
#[derive(Clone, Debug)]
pub struct Case {
    /// The running jobs.
    pub workload: Workload,
    /// Which repetition, from 1.
    pub set: u32,
    /// Jobs in each group.
    pub jobs: u32,
    /// Whether it says what a tenant can do alone, under `none` (iostest.6).
    pub alone: bool,
    /// How long, with its warm-up.
    pub runtime: Duration,
    /// How long the disk is in use before anything is counted.
    pub warm_up: Duration,
    /// As in [`Plan`].
    pub round_trip: Duration,
    /// Into how many equal parts the timeline divides it; at least 1.
    pub slots: u32,
    /// The weight tree, the root first.
    pub groups: Vec<Group>,
    /// As in [`Plan`].
    pub bounds: BTreeMap<String, Bounds>,
    /// As in [`Plan`].
    pub block_size: Option<u32>,
    /// As in [`Plan`].
    pub file_size: u64,
    /// As in [`Plan`].
    pub iodepth: u32,
    /// As in [`Plan`].
    pub placement: Placement,
    /// Seed of its random choices (iostest.3).
    pub seed: u64,
    /// As in [`Plan`].
    pub trace: usize,
}

/// The failure, in words for the user; `None` if there was none.
pub(crate) fn failure(measured: &Measured) -> Option<String> {
    let (_, meter) = measured.meters.iter().find(|(_, meter)| meter.failed > 0)?;
    let why = meter.why.map_or(String::new(), |errno| format!(": {errno}"));
    Some(format!("{} of {} operations of a job failed{why}", meter.failed, meter.operations))
}

/// Why a case could not be run: for the user, in one line.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Is told how far a run is, in time of the disk, and answers whether it is to stop.
pub type Watch<'a> = &'a mut dyn FnMut(Duration) -> bool;

/// Runs cases.
pub trait Runner {
    /// Whether it could run a case, as far as can be told beforehand: asked for every case of the first set before any begins.
    ///
    /// # Errors
    /// It could not.
    fn check(&mut self, _case: &Case) -> Result<(), Failure> {
        Ok(())
    }

    /// Runs one. `watch` is told now and then how far it is, and answers whether it is to stop.
    ///
    /// # Errors
    /// It could not be run.
    fn run(&mut self, case: &Case, watch: Watch<'_>) -> Result<Measured, Failure>;
}

/// How far a plan is.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A case begins: its number, from 1, and the number of all.
    Begins(&'a Case, usize, usize),
    /// The case that began last is so far.
    Goes(&'a Case, Duration),
    /// A case ended.
    Ended(&'a Run),
}

/// Runs a plan; `results` is the header, to which the runs are added.
///
/// # Errors
/// The plan cannot be, or a case could not be run. Earlier results are lost; but a plan is checked before it begins, so that only a real
/// disk fails later.
pub fn run(
    plan: &Plan,
    runner: &mut dyn Runner,
    mut results: Results,
    progress: &mut dyn FnMut(Progress<'_>),
    stop: &dyn Fn() -> bool,
) -> Result<Results, RunError> {
    let cases = plan.cases()?;
    // Sets differ in their seeds alone.
    for case in cases.iter().filter(|case| case.set == 1) {
        runner.check(case).map_err(|why| RunError::of(case, why))?;
    }
    let mut alone = Alone::default();
    for (index, case) in cases.iter().enumerate() {
        if stop() {
            results.interrupted = true; // iostest.5
            break;
        }
        progress(Progress::Begins(case, index + 1, cases.len()));
        let mut watch = |ran| {
            progress(Progress::Goes(case, ran));
            stop()
        };
        let measured = runner.run(case, &mut watch).map_err(|why| RunError::of(case, why))?;
        if let Some(failed) = failure(&measured) {
            return Err(RunError::of(case, failed.into())); // iostest.4
        }
        if measured.runtime < case.runtime {
            results.interrupted = true; // iostest.5
            break;
        }
        let mut run = case.run_of(&measured);
        if case.alone {
            alone.note(case, &run); // iostest.6
            continue;
        }
        if case.workload.is_situation() {
            alone.judge(case, &mut run);
        }
        progress(Progress::Ended(&run));
        results.runs.push(run);
    }
    Ok(results)
}

#[cfg(test)]
mod tests;
