//! CFQ on the modelled disks, against what seed 001 measured with Linux's: the models were fitted on the Noop rows; the array's
//! memory for readers on its CFQ rows too.

use fairlift_core::sched::Kind;
use fairlift_core::time::secs;
use fairlift_core::{Group, GroupId, Weight};
use fairlift_lab::iostest::{Modelled, Placement, Plan, Runner};
use fairlift_lab::model::Spec;
use fairlift_lab::workload::Workload;

/// MB/s of so many buffered readers far apart, as the `dd`s of `iostune`, under CFQ.
fn readers(spec: &str, slice_idle: &str, readers: u32) -> f64 {
    let plan = Plan {
        workloads: vec![Workload::named("bsr").unwrap()],
        jobs: vec![readers],
        runtime: secs(30),
        // As dd, they never come to an end.
        file_size: 8 << 30,
        placement: Placement::Within(0),
        ..Plan::default()
    };
    let set = vec![("slice_idle".into(), slice_idle.into())];
    let mut runner = Modelled { spec: Spec::parse(spec).unwrap(), scheduler: Kind::Cfq, set, depth: None };
    let measured = runner.run(&plan.cases().unwrap()[0], &mut |_| false).unwrap();
    measured.meters.iter().map(|(_, meter)| meter.bytes).sum::<u64>() as f64 / 30.0 / 1e6
}

/// The rows of the table: 1, 2, 4 and 8 streams, MB/s.
fn predicted(spec: &str, slice_idle: &str, measured: [f64; 4]) -> [f64; 4] {
    let off = [0, 1, 2, 3].map(|row| (readers(spec, slice_idle, 1 << row) / measured[row] - 1.0) * 100.0);
    println!("{spec}: {measured:?} measured, off by {off:.0?} %");
    off
}

#[test]
fn the_cfq_rows_of_the_sata_disk_are_predicted_within_25_percent() {
    let off = predicted("sata-7200", "8ms", [63.2, 54.8, 50.3, 42.9]);
    assert!(off.iter().all(|off| off.abs() <= 25.0), "{off:?}");
}

/// On the SSD CFQ does not idle.
#[test]
fn the_cfq_rows_of_the_ssd_are_predicted_within_25_percent() {
    let off = predicted("ssd-2010", "0", [244.0, 228.0, 261.0, 266.0]);
    assert!(off.iter().all(|off| off.abs() <= 25.0), "{off:?}");
}

/// Between two slices the controller forgets what it read ahead for a reader (prefetch.4).
#[test]
fn the_cfq_rows_of_the_array_are_met_within_25_percent() {
    let off = predicted("eva-raid5-12", "8ms", [56.9, 34.8, 38.8, 44.4]);
    assert!(off.iter().all(|off| off.abs() <= 25.0), "{off:?}");
}

/// Table 1 and 2 of the seed: readers in 8 groups of weight 100 to 800, in slices and not; the windows are fitted.
#[test]
fn the_group_tables_of_the_array_are_met_within_25_percent() {
    let of = |at: u16| Group { path: format!("/g{at}"), parent: Some(GroupId::ROOT), weight: Weight::new(100 * at) };
    let mut workload = Workload::named("bsr").unwrap();
    workload.roles[0].read_ahead = 1 << 20;
    let plan = Plan {
        groups: std::iter::once(Group::root()).chain((1..=8).map(of)).collect(),
        workloads: vec![workload],
        jobs: vec![1, 2, 4, 8],
        ..Plan::default()
    };
    let tables =
        [("8ms", [213_701.0, 192_461.0, 173_847.0, 159_249.0]), ("0", [219_496.0, 320_159.0, 356_520.0, 348_747.0])];
    for (slice_idle, measured) in tables {
        let set = vec![("slice_idle".into(), slice_idle.into())];
        let spec = Spec::parse("eva-raid5-12").unwrap();
        let mut runner = Modelled { spec, scheduler: Kind::Cfq, set, depth: None };
        for (case, measured) in plan.cases().unwrap().iter().zip(measured) {
            let bytes =
                runner.run(case, &mut |_| false).unwrap().meters.iter().map(|(_, meter)| meter.bytes).sum::<u64>();
            let off = bytes as f64 / 1024.0 / 30.0 / measured - 1.0;
            assert!(off.abs() <= 0.25, "slice_idle={slice_idle}, {} jobs: {:+.0} %", case.jobs, off * 100.0);
        }
    }
}

/// The trials cost a few per cent; what is learned of streams meanwhile is not lost with them.
#[test]
fn a_lone_disk_that_finds_out_by_itself_is_held_idle_for_readers_and_loses_little() {
    for jobs in [1, 2, 4] {
        let [auto, fixed] = ["auto", "8ms"].map(|slice_idle| readers("sata-7200", slice_idle, jobs));
        assert!(auto >= 0.9 * fixed, "{jobs} readers: {auto:.1} MB/s with auto, {fixed:.1} with 8ms");
    }
}
