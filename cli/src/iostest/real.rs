//! Cases on disks that are there: through Fairlift's engine, or straight to the path.

use std::error::Error;
use std::sync::Arc;

use fairlift::bench;
use fairlift::config::{Backing, Disk};
use fairlift_core::{GroupId, sched};
use fairlift_lab::iostest::{Case, Measured, Runner};

use crate::signals::Stop;

/// Runs cases in real time.
pub(crate) struct Real {
    /// What holds the data.
    pub(crate) backing: Backing,
    /// Who goes next.
    pub(crate) scheduler: sched::Kind,
    /// Its tunables, where they differ.
    pub(crate) set: Vec<(String, String)>,
    /// Requests in flight.
    pub(crate) depth: Option<u16>,
    /// Whether the path is asked without Fairlift.
    pub(crate) raw: bool,
    /// Tells the threads of the engine, which cannot be handed the caller's question.
    pub(crate) stop: Arc<Stop>,
}

impl Runner for Real {
    fn run(&mut self, case: &Case, _stop: &dyn Fn() -> bool) -> Result<Measured, Box<dyn Error + Send + Sync>> {
        let capacity = bench::capacity(&self.backing)?;
        let jobs = case.jobs(capacity / fairlift_core::Sector::SIZE)?;
        let job = |job: fairlift_lab::iostest::Job| bench::Job {
            group: job.group,
            priority: job.priority,
            program: job.program,
        };
        let setup = bench::Setup {
            disk: Disk {
                name: "iostest".into(),
                scheduler: self.scheduler,
                set: self.set.clone(),
                depth: self.depth,
                shared_tags: false,
                nr_requests: None,
                io_timeout: None,
            },
            groups: case.groups.clone(),
            backing: self.backing.clone(),
            read_only: !case.workload.writes(),
            workers: None,
            runtime: case.runtime,
            slots: case.slots,
        };
        let jobs = jobs.into_iter().map(job).collect();
        let stop = || self.stop.signal().is_some();
        let measured = if self.raw { bench::run_raw(&setup, jobs, &stop) } else { bench::run(&setup, jobs, &stop) }?;
        Ok(Measured {
            meters: measured.meters,
            runtime: measured.runtime,
            timeline: of_leaves(&measured.timeline, &case.leaves()),
            work: measured.work,
            counters: measured.counters,
        })
    }
}

/// The columns of the groups that have jobs.
fn of_leaves(timeline: &[Vec<u64>], leaves: &[GroupId]) -> Vec<Vec<u64>> {
    let bytes = |slot: &Vec<u64>, leaf: &GroupId| slot.get(usize::from(leaf.0)).copied().unwrap_or(0);
    timeline.iter().map(|slot| leaves.iter().map(|leaf| bytes(slot, leaf)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_keeps_the_groups_that_have_jobs() {
        let timeline = [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8]];
        assert_eq!(of_leaves(&timeline, &[GroupId(1), GroupId(3)]), [[1, 3], [5, 7], [0, 0]]);
    }
}
