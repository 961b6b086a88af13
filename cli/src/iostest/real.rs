//! Cases on real disks: through Fairlift's engine, or straight to the path.

use fairlift::bench;
use fairlift::config::{Backing, Disk, Engine};
use fairlift_core::{GroupId, sched};
use fairlift_lab::iostest::{Case, Failure, Measured, Runner, Watch};

pub(crate) struct Real {
    pub(crate) backing: Backing,
    pub(crate) disk: Disk,
    /// Whether the path is asked without Fairlift.
    pub(crate) raw: bool,
}

impl Runner for Real {
    fn run(&mut self, case: &Case, watch: Watch<'_>) -> Result<Measured, Failure> {
        // A tenant alone is as there is without fairness.
        let mut disk = self.disk.clone();
        if case.alone {
            (disk.scheduler, disk.set) = (sched::Kind::None, Vec::new());
        }
        measure_real(case, disk, &self.backing, self.raw, None, watch)
    }
}

/// Runs a case on a real disk, or the jobs of one group of it by one worker: through an engine of ours with this disk, or straight to the
/// path.
pub(crate) fn measure_real(
    case: &Case,
    disk: Disk,
    backing: &Backing,
    raw: bool,
    leaf: Option<GroupId>,
    watch: Watch<'_>,
) -> Result<Measured, Failure> {
    let mut jobs = case.jobs(bench::shape(backing, true)?.bytes / fairlift_core::Sector::SIZE)?;
    jobs.retain(|job| leaf.is_none_or(|leaf| job.group == leaf));
    let setup = bench::Setup {
        disk,
        groups: case.groups.clone(),
        bounds: case.bounds.clone(),
        backing: backing.clone(),
        read_only: !case.workload.writes(),
        workers: leaf.map(|_| 1),
        engine: Engine::Auto,
        runtime: case.runtime,
        slots: case.slots,
        trace: case.trace,
    };
    Ok(if raw { bench::run_raw(&setup, jobs, watch) } else { bench::run(&setup, jobs, watch) }?)
}
