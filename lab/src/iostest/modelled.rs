//! Cases on a disk on paper: a world for each.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlift_core::ceiling::{Bounds, Budget};
use fairlift_core::queue::{Bound, Settings};
use fairlift_core::sched::Kind;
use fairlift_core::time::secs;
use fairlift_core::tunable::parse_duration;
use fairlift_core::{ContextId, Duration, GroupId, Instant, Queue, Sector, Stream};

use super::{Case, Failure, Measured, RunError, Runner, Watch};
use crate::World;
use crate::check::Check;
use crate::model::Spec;

/// When a request to a disk on paper would time out: never, for it always answers, however deep its queue is. A day is the
/// longest run.
const PATIENCE: Duration = secs(30 * 86_400);

/// Runs cases on a disk on paper.
#[derive(Clone, Debug)]
pub struct Modelled {
    /// The disk.
    pub spec: Spec,
    /// The scheduler.
    pub scheduler: Kind,
    /// Its tunables, where they differ: (name, value).
    pub set: Vec<(String, String)>,
    /// Requests in flight; `None`: what the disk takes in ([`Spec::depth`]).
    pub depth: Option<u16>,
}

impl Runner for Modelled {
    fn check(&mut self, case: &Case) -> Result<(), Failure> {
        self.world(case)?;
        Ok(())
    }

    fn run(&mut self, case: &Case, watch: Watch<'_>) -> Result<Measured, Failure> {
        Ok(self.measure(case, Check::WATCH_EVERY, watch)?)
    }
}

impl Modelled {
    /// Runs a case, watching one of every `watched` sectors for reads of old data
    /// ([`Check::watch_every`](crate::check::Check::watch_every)); [`Runner::run`] watches as many as costs next to nothing.
    ///
    /// # Errors
    /// It could not be run.
    pub fn measure(&self, case: &Case, watched: u64, watch: Watch<'_>) -> Result<Measured, RunError> {
        let (mut world, groups) = self.world(case)?;
        world.check().watch_every(watched);
        let mut timeline = Vec::with_capacity(case.slots as usize);
        let mut before = vec![0; case.groups.len()];
        let mut runtime = Duration::ZERO;
        for slot in 1..=case.slots {
            if watch(runtime) {
                break;
            }
            let until = u128::from(case.runtime.as_nanos()) * u128::from(slot) / u128::from(case.slots);
            let until = Duration::from_nanos(until as u64);
            if !world.run_unless(Instant::ZERO + until, &mut |now| watch(now.since(Instant::ZERO))) {
                break;
            }
            runtime = until;
            let mut bytes = vec![0; case.groups.len()];
            for (index, group) in groups.iter().enumerate() {
                bytes[usize::from(group.0)] += world.program(index).meter().bytes;
            }
            timeline.push(bytes.iter().zip(&before).map(|(now, before)| now - before).collect());
            before = bytes;
        }
        let meter = |(index, group): (usize, &GroupId)| (*group, world.program(index).meter_at(world.now()));
        let meters = groups.iter().enumerate().map(meter).collect();
        let mut counters = BTreeMap::new();
        world.queue().counters(&mut |name, count| *counters.entry(name.to_owned()).or_default() += count);
        let unserved = (0..case.groups.len() as u16).map(|group| world.unserved(GroupId(group))).collect();
        let (mut held, mut asked) = (Vec::new(), Vec::new());
        for group in 0..case.groups.len() as u16 {
            let stats = world.queue().groups().stats_of(GroupId(group));
            held.push(stats.held.time);
            asked.push(stats.moved());
        }
        let mut findings = Vec::new();
        world.queue().take_findings(&mut |finding| findings.push(finding));
        let work = world.model().work();
        let trace = std::iter::from_fn(|| world.queue().trace().pop()).collect();
        let measured = Measured { meters, runtime, timeline, unserved, held, asked, work, counters, findings, trace };
        if runtime == case.runtime {
            world.drain(); // Nothing is lost.
        }
        Ok(measured)
    }

    /// The world of a case, and the group of each of its programs.
    fn world(&self, case: &Case) -> Result<(World, Vec<GroupId>), RunError> {
        let model = self.spec.build(case.seed);
        let limits = model.limits();
        let block = u64::from(limits.block) * Sector::SIZE;
        for role in &case.workload.roles {
            let block_size = case.block_size(role);
            if !block_size.is_multiple_of(block) {
                let name = self.spec.name;
                let why = format!("{case}: a block size of {block_size} bytes: that of sim:{name} is {block} bytes");
                return Err(RunError::Plan(why));
            }
        }
        // A tenant alone is as there is without fairness (iostest.6).
        let (scheduler, set) = if case.alone { (Kind::None, &[][..]) } else { (self.scheduler, &self.set[..]) };
        let mut settings = Settings { groups: case.groups.clone(), ..Settings::new(scheduler, limits) };
        settings.depth = self.depth.unwrap_or_else(|| self.spec.depth());
        settings.io_timeout = PATIENCE;
        settings.character = model.character();
        settings.backings[0].volatile_cache = settings.character.volatile_cache;
        settings.nr_requests = settings.nr_requests.max(scheduler.nr_requests(settings.depth));
        let mut queue = Queue::new(settings);
        queue.keep_trace(case.trace);
        for (name, value) in set {
            queue.set_tunable(name, value).map_err(|why| RunError::Plan(why.to_string()))?;
        }
        for (id, group) in case.groups.iter().enumerate() {
            let Some(Bounds { ceiling, floor, latency }) = case.bounds.get(&group.path) else { continue };
            let (now, id) = (Instant::ZERO, GroupId(id as u16));
            let budget = Some(Arc::new(Budget::new(ceiling)));
            queue.bind(now, id, &Bound { budget, floor: *floor, latency: *latency });
        }
        let jobs = case.jobs(limits.capacity)?;
        let idle = scheduler.tunables().iter().filter(|info| info.name.ends_with("_idle"));
        let hold_max = hold_max(idle.filter_map(|info| queue.tunable(info.name)));
        let mut world = World::new(queue, model);
        world.check().seed(case.seed);
        world.check().hold_max(hold_max);
        let groups = jobs.iter().map(|job| job.group).collect();
        for job in jobs {
            world.add(Stream { group: job.group, priority: job.priority, context: ContextId(0) }, job.program);
        }
        Ok((world, groups))
    }
}

/// How long a scheduler with idle times like these may hold the disk ([`Check::hold_max`]): twice the longest, for one may begin as another
/// ends; no less than for their defaults.
fn hold_max(idle: impl Iterator<Item = String>) -> Duration {
    let twice = |time: Duration| Duration::from_nanos(time.as_nanos().saturating_mul(2));
    idle.filter_map(|text| parse_duration(&text)).map(twice).fold(Check::HOLD_MAX, Duration::max)
}

#[cfg(test)]
mod tests {
    use fairlift_core::time::ms;

    use super::*;

    #[test]
    fn a_scheduler_may_hold_the_disk_as_long_as_its_tunables_say() {
        let hold = |idle: &[&str]| hold_max(idle.iter().map(|text| (*text).to_owned()));
        assert_eq!(hold(&[]), Check::HOLD_MAX);
        assert_eq!(hold(&["0s", "8ms"]), Check::HOLD_MAX);
        assert_eq!(hold(&["8ms", "100ms"]), ms(200));
    }
}
