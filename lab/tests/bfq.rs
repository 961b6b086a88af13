//! BFQ on the modelled disks: what it promises a group that shares a disk with others.

use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, secs};
use fairlift_core::{Duration, Group, GroupId, Weight};
use fairlift_lab::iostest::{Modelled, Plan, Runner};
use fairlift_lab::model::Spec;
use fairlift_lab::workload::Workload;

/// Eight groups of weight 100 to 800 for two minutes on a lone disk: by how much shares are off at most, and the longest time
/// for which a group was left unserved.
fn eight_groups(slice_idle: &str, workload: &str, jobs: u32, iodepth: u32) -> (f64, Duration) {
    let of = |at: u16| Group { path: format!("/g{at}"), parent: Some(GroupId::ROOT), weight: Weight::new(100 * at) };
    let plan = Plan {
        groups: std::iter::once(Group::root()).chain((1..=8).map(of)).collect(),
        workloads: vec![Workload::named(workload).unwrap()],
        jobs: vec![jobs],
        iodepth,
        runtime: secs(120),
        ..Plan::default()
    };
    let spec = Spec::parse("sata-7200").unwrap();
    let set = vec![("slice_idle".into(), slice_idle.into())];
    let mut runner = Modelled { spec, scheduler: Kind::Bfq, set, depth: None };
    let measured = runner.run(&plan.cases().unwrap()[0], &mut |_| false).unwrap();
    let mut bytes = [0.0; 9];
    for (group, meter) in &measured.meters {
        bytes[usize::from(group.0)] += meter.bytes as f64;
    }
    let total: f64 = bytes.iter().sum();
    let off = (1..=8).map(|at| (bytes[at] / total * 36.0 / at as f64 - 1.0).abs()).fold(0.0, f64::max);
    let unserved = *measured.unserved.iter().max().unwrap();
    println!(
        "{slice_idle}: {workload}, {jobs} jobs of depth {iodepth}: off by {:.1} %, unserved for {unserved}",
        off * 100.0
    );
    (off, unserved)
}

/// turns.2: sixty-four streams take turns, and even the lightest group's come soon enough. (No turn is shorter than an eighth of
/// `timeout_sync`, and sixty-four of those are a second.) A trial of the other way, in the middle of a round, makes it longer.
#[test]
fn no_group_of_readers_is_left_alone_for_a_second_however_many_streams_there_are() {
    for (slice_idle, jobs, longest) in [
        ("8ms", 1, ms(900)),
        ("8ms", 2, ms(900)),
        ("8ms", 4, ms(900)),
        ("8ms", 8, ms(1200)),
        ("auto", 1, secs(1)),
        ("auto", 2, secs(1)),
        ("auto", 4, secs(1)),
        ("auto", 8, ms(1200)),
    ] {
        let (off, unserved) = eight_groups(slice_idle, "bsr", jobs, 1);
        assert!(off <= 0.02, "{slice_idle}, {jobs} jobs: {off}");
        assert!(unserved < longest, "{slice_idle}, {jobs} jobs: {unserved}");
    }
}

/// turns.2, turns.3: requests that are slow, or that a volatile cache takes in at once, do not leave a light group alone for many rounds.
#[test]
fn a_light_group_has_its_turns_beside_slow_requests_and_cached_writes() {
    let (off, unserved) = eight_groups("8ms", "drr", 1, 32);
    assert!(off <= 0.03, "{off}");
    assert!(unserved < secs(1), "{unserved}");
    let (_, unserved) = eight_groups("8ms", "mixed", 4, 32);
    assert!(unserved < secs(5), "{unserved}");
}
