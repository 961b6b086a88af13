//! BFQ on the modelled disks: what it promises a group that shares a disk with others.

use fairlift_core::sched::Kind;
use fairlift_core::time::secs;
use fairlift_core::{Duration, Group, GroupId};
use fairlift_lab::iostest::{Modelled, Plan, Runner};
use fairlift_lab::model::Spec;
use fairlift_lab::workload::Workload;

/// Eight groups of weight 100 to 800 for two minutes on a lone disk: by how much shares are off at most, and the longest time
/// for which a group was left unserved.
fn eight_groups(workload: &str, jobs: u32, iodepth: u32) -> (f64, Duration) {
    let of = |at: u16| Group { path: format!("/g{at}"), parent: Some(GroupId::ROOT), weight: 100 * at };
    let plan = Plan {
        groups: std::iter::once(Group::root()).chain((1..=8).map(of)).collect(),
        workloads: vec![Workload::named(workload).unwrap()],
        jobs: vec![jobs],
        iodepth,
        runtime: secs(120),
        ..Plan::default()
    };
    let spec = Spec::parse("sata-7200").unwrap();
    let mut runner = Modelled { spec, scheduler: Kind::Bfq, set: Vec::new(), depth: None };
    let measured = runner.run(&plan.cases().unwrap()[0], &mut |_| false).unwrap();
    let mut bytes = [0.0; 9];
    for (group, meter) in &measured.meters {
        bytes[usize::from(group.0)] += meter.bytes as f64;
    }
    let total: f64 = bytes.iter().sum();
    let off = (1..=8).map(|at| (bytes[at] / total * 36.0 / at as f64 - 1.0).abs()).fold(0.0, f64::max);
    let unserved = *measured.unserved.iter().max().unwrap();
    println!("{workload}, {jobs} jobs of depth {iodepth}: off by {:.1} %, unserved for {unserved}", off * 100.0);
    (off, unserved)
}

/// T2: sixty-four streams take turns, and even the lightest group's come soon enough.
#[test]
fn no_group_of_readers_is_left_alone_for_a_second_however_many_streams_there_are() {
    for jobs in [1, 2, 4, 8] {
        let (off, unserved) = eight_groups("bsr", jobs, 1);
        assert!(off <= 0.02, "{jobs} jobs: {off}");
        assert!(unserved < secs(1), "{jobs} jobs: {unserved}");
    }
}

/// T2, T3: requests that are slow, or that a volatile cache takes in at once, do not leave a light group alone for many rounds.
#[test]
fn a_light_group_has_its_turns_beside_slow_requests_and_cached_writes() {
    let (off, unserved) = eight_groups("drr", 1, 32);
    assert!(off <= 0.03, "{off}");
    assert!(unserved < secs(1), "{unserved}");
    let (_, unserved) = eight_groups("mixed", 4, 32);
    assert!(unserved < secs(5), "{unserved}");
}
