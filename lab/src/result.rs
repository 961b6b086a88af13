//! The results: one format for runs on models and on real disks.
//!
//! The names are those of the JSON (documented in `docs/iostest-json.md`): fields may be added, none is renamed.

use std::collections::BTreeMap;
use std::fmt;

use fairlift_core::learn::idling_trial::Finding;
use serde::{Deserialize, Serialize};

/// All that one call of `iostest` measured.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Results {
    /// `iostest`.
    pub tool: String,
    /// Of Fairlift.
    pub version: String,
    /// The disk, as it was asked for.
    pub device: String,
    /// The machine, and its kernel's release, for measurements in real time. A model gives the same on any machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// The scheduler, or `raw`: the path without Fairlift.
    pub scheduler: String,
    /// The scheduler's tunables; of one that was swept, all its values.
    pub settings: BTreeMap<String, String>,
    /// Seed of all random choices.
    pub seed: u64,
    /// The bytes of a program's operation.
    #[serde(default)]
    pub block_size: u64,
    /// The bytes of a program's file.
    #[serde(default)]
    pub file_size: u64,
    /// Requests that each job of a direct workload keeps in flight.
    #[serde(default)]
    pub iodepth: u32,
    /// The bounds of groups, by their paths, as they are written: `max riops=3000`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
    /// Whether the run was stopped before all sets were done.
    #[serde(default)]
    pub interrupted: bool,
    /// The command line that repeats the measurement.
    #[serde(default)]
    pub command: String,
    /// One for each workload, number of jobs and set.
    pub runs: Vec<Run>,
    /// The same for the path without Fairlift, if that was measured beside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baseline: Vec<Run>,
}

/// Where it was measured.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Host {
    /// The machine's name.
    pub name: String,
    /// Its kernel's release: `6.12.57`.
    pub kernel: String,
}

/// `Host=tux Kernel=6.12.57`, as the tables of 2010 have it.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kernel } = self;
        write!(f, "Host={name} Kernel={kernel}")
    }
}

impl Results {
    /// The results of a sweep apart, in the order of its values, each with its own settings; others as they are. Results without Fairlift
    /// stay with the first.
    #[must_use]
    pub fn by_settings(&self) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::new();
        for run in &self.runs {
            match parts.iter_mut().find(|part| part.runs[0].settings == run.settings) {
                Some(part) => part.runs.push(run.clone()),
                None => {
                    let mut part = Self { runs: vec![run.clone()], baseline: Vec::new(), ..self.clone() };
                    part.settings.extend(run.settings.clone());
                    parts.push(part);
                }
            }
        }
        match parts.first_mut() {
            Some(first) => first.baseline.clone_from(&self.baseline),
            None => parts.push(self.clone()),
        }
        parts
    }
}

/// One run: a workload, with a number of jobs in each group.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Run {
    /// Its name.
    pub workload: String,
    /// The tunables in which it differs from other runs: of a sweep over values of one; else empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Which repetition, from 1.
    pub set: u32,
    /// Jobs in each group.
    pub jobs: u32,
    /// How long the disk was measured.
    pub runtime_s: f64,
    /// Of all groups, in 1024 bytes.
    pub total_kb_s: f64,
    /// Operations of all groups.
    pub iops: f64,
    /// The largest |share − ideal| ÷ ideal over groups.
    pub share_error_max: f64,
    /// Jain's index over groups: of bandwidth ÷ ideal.
    pub jain: f64,
    /// In the order of the tree.
    pub groups: Vec<Group>,
    /// Of a workload with several roles, what each got: in the order of the workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// Of a situation: how its tenants got on together.
    #[serde(flatten)]
    pub together: Option<Together>,
    /// The work of the disk.
    pub device_stats: DeviceStats,
    /// The counters of the scheduler.
    pub counters: BTreeMap<String, u64>,
    /// With `slice_idle=auto`: what its trials found, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
    /// Which groups were served when: for each of equal slots of the run, the bytes that each group got.
    #[serde(default)]
    pub timeline: Vec<Vec<u64>>,
    /// The latencies of all operations: (upper bound in µs, operations), rising.
    #[serde(default)]
    pub latencies: Vec<(f64, u64)>,
}

/// A finding of a trial of `slice_idle=auto`.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Decision {
    /// When, in seconds of the run.
    pub at_s: f64,
    /// The best way: `idle`, the disk is held idle for one stream at a time; or `parallel`, it is not.
    pub from: String,
    /// The same from then on.
    pub to: String,
    /// Throughput with the disk held idle, in 1024 bytes.
    pub idle_kb_s: f64,
    /// Throughput without, in 1024 bytes.
    pub parallel_kb_s: f64,
}

impl Decision {
    /// In the words of the results.
    #[must_use]
    pub fn of(finding: &Finding) -> Self {
        Self {
            at_s: finding.at.as_nanos() as f64 / 1e9,
            from: finding.from.to_string(),
            to: finding.to.to_string(),
            idle_kb_s: finding.idle as f64,
            parallel_kb_s: finding.parallel as f64,
        }
    }
}

/// The figures of a group.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Group {
    /// `/g1`.
    pub path: String,
    /// Its weight.
    pub weight: u32,
    /// In 1024 bytes.
    pub kb_s: f64,
    /// Operations.
    pub iops: f64,
    /// Of the total: 0 to 1.
    pub share: f64,
    /// The share that its weight entitles it to: 0 to 1.
    pub ideal: f64,
    /// Half of its operations took no longer.
    pub lat_p50_us: f64,
    /// 99 % of its operations took no longer.
    pub lat_p99_us: f64,
    /// Its longest operation.
    pub lat_max_us: f64,
    /// The longest time in which nothing that it had asked of the disk ended, though something was under way.
    #[serde(default)]
    pub unserved_max_us: f64,
    /// How long limits held an operation, on average.
    #[serde(default)]
    pub held_us: f64,
    /// Of a situation: what it is entitled to, and how near it came.
    #[serde(flatten)]
    pub tenant: Option<Tenant>,
}

/// The entitlement of a tenant, and its distance from it: see [`tenants`](crate::iostest::tenants).
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Tenant {
    /// Its operation: `randread 4k x32`.
    pub does: String,
    /// Operations of its kind that the disk does in a second when it is saturated with them.
    pub capacity: f64,
    /// The part of the capacity that it can use: what it does alone, 0 to 1.
    pub demand: f64,
    /// The part of the disk that it is entitled to, 0 to 1.
    pub entitled: f64,
    /// Its part of the capacity, over its entitlement. The name in JSON is older.
    #[serde(rename = "score")]
    pub achieved: f64,
}

/// How the tenants of a run got on together.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize, Debug)]
pub struct Together {
    /// The least part of its entitlement that a tenant achieved.
    pub isolation: f64,
    /// The part of the disk at work: the sum of all parts, over the sum of all entitlements.
    #[serde(rename = "use")]
    pub used: f64,
    /// The largest |share − due| ÷ due of a saturating tenant over any second of the run, if there are two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_error_1s: Option<f64>,
}

/// The figures of the jobs of a role, in all groups together.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Role {
    /// Its name in the workload.
    pub name: String,
    /// How many jobs play it.
    pub jobs: u32,
    /// In 1024 bytes.
    pub kb_s: f64,
    /// Operations.
    pub iops: f64,
    /// Half of its operations took no longer.
    pub lat_p50_us: f64,
    /// 99 % of its operations took no longer.
    pub lat_p99_us: f64,
    /// Its longest operation.
    pub lat_max_us: f64,
}

/// The work of a disk during a run.
#[derive(Clone, Copy, PartialEq, Default, Serialize, Deserialize, Debug)]
pub struct DeviceStats {
    /// Requests that ended.
    pub requests: u64,
    /// Flushes among them.
    pub flushes: u64,
    /// The part of the time in which it had something to do: 0 to 1.
    pub busy: f64,
    /// Requests in it, on average over time.
    pub depth_mean: f64,
}
