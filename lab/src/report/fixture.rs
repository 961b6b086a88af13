//! Results made by hand, for the tests of reports.

use std::collections::BTreeMap;

use crate::result::{Decision, DeviceStats, Group, Results, Role, Run, Tenant, Together};

/// Results without runs, of groups with these weights.
pub(super) fn results(weights: &[u32]) -> Results {
    let shown: Vec<_> = weights.iter().map(ToString::to_string).collect();
    Results {
        tool: "iostest".into(),
        version: "0.1.0".into(),
        device: "sim:eva-raid5-12".into(),
        host: None,
        scheduler: "cfq".into(),
        settings: BTreeMap::from([("slice_idle".into(), "8ms".into()), ("quantum".into(), "8".into())]),
        seed: 1,
        block_size: 4096,
        file_size: 512 << 20,
        iodepth: 1,
        limits: BTreeMap::new(),
        interrupted: false,
        command: format!("fairlift iostest --device sim:eva-raid5-12 -G --weights {} --seed 1", shown.join(",")),
        runs: Vec::new(),
        baseline: Vec::new(),
    }
}

/// A run with these rates of the groups `/g1`, `/g2`, … of these weights, in KB a second.
pub(super) fn run(workload: &str, set: u32, jobs: u32, groups: &[(u32, f64)]) -> Run {
    let total: f64 = groups.iter().map(|(_, kb_s)| kb_s).sum();
    let weights: u32 = groups.iter().map(|(weight, _)| weight).sum();
    let groups: Vec<_> = (1..)
        .zip(groups)
        .map(|(number, (weight, kb_s))| Group {
            path: format!("/g{number}"),
            weight: *weight,
            kb_s: *kb_s,
            iops: kb_s / 4.0,
            share: if total > 0.0 { kb_s / total } else { 0.0 },
            ideal: f64::from(*weight) / f64::from(weights),
            lat_p50_us: 100.0 * f64::from(number),
            lat_p99_us: 1000.0 * f64::from(number),
            lat_max_us: 20_000.0 * f64::from(number),
            unserved_max_us: 0.0,
            held_us: 0.0,
            tenant: None,
        })
        .collect();
    let errors = groups.iter().map(|group| (group.share - group.ideal).abs() / group.ideal);
    Run {
        workload: workload.into(),
        settings: BTreeMap::new(),
        set,
        jobs,
        runtime_s: 30.0,
        total_kb_s: total,
        iops: total / 4.0,
        share_error_max: errors.fold(0.0, f64::max),
        jain: 0.987,
        roles: Vec::new(),
        together: None,
        device_stats: DeviceStats { requests: 1000, flushes: 0, busy: 0.98, depth_mean: 12.1 },
        counters: BTreeMap::from([("queue_merges".into(), 0)]),
        decisions: Vec::new(),
        timeline: vec![groups.iter().map(|group| group.kb_s as u64 * 1024).collect(); 4],
        latencies: vec![(100.0, 50), (1000.0, 40), (20_000.0, 10)],
        groups,
    }
}

/// A run of a situation in which the second of two tenants achieves 0.5 of its entitlement.
pub(super) fn situation(name: &str) -> Run {
    let mut run = run(name, 1, 1, &[(100, 100.0), (300, 300.0)]);
    for (group, achieved) in run.groups.iter_mut().zip([1.5, 0.5]) {
        let tenant =
            Tenant { does: "randread 4k x32".into(), capacity: 1000.0, demand: 0.9, entitled: group.ideal, achieved };
        group.tenant = Some(tenant);
    }
    run.together = Some(Together { isolation: 0.5, used: 0.75, share_error_1s: Some(0.5) });
    run
}

/// Results of a sweep over `slice_idle`: two numbers of jobs with each of two values.
pub(super) fn swept() -> Results {
    let mut results = results(&[]);
    results.settings.insert("slice_idle".into(), "0,8ms".into());
    for (value, shares) in [("0", [250.0, 250.0]), ("8ms", [100.0, 300.0])] {
        for jobs in [1, 4] {
            let mut run = run("bsr", 1, jobs, &[(100, shares[0]), (300, shares[1])]);
            run.settings.insert("slice_idle".into(), value.into());
            run.groups[0].unserved_max_us = f64::from(jobs) * 100.0;
            results.runs.push(run);
        }
    }
    results
}

/// The finding of a trial: an array is better not held idle.
pub(super) fn decision() -> Decision {
    Decision { at_s: 0.703, from: "idle".into(), to: "parallel".into(), idle_kb_s: 60_412.0, parallel_kb_s: 187_000.0 }
}

/// The figures of a role of this name.
pub(super) fn role(name: &str, kb_s: f64) -> Role {
    Role {
        name: name.into(),
        jobs: 1,
        kb_s,
        iops: kb_s / 4.0,
        lat_p50_us: 10.0,
        lat_p99_us: 500.0,
        lat_max_us: 9_000.0,
    }
}
