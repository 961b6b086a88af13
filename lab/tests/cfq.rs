//! CFQ on the modelled disks, against what seed 001 measured with Linux's: the models were fitted on the Noop rows alone.

use fairlift_core::sched::Kind;
use fairlift_core::time::secs;
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
        placement: Placement::Spread,
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

/// The array under slices of one reader at a time loses more than its model does: `docs/measured/schedulers.md` says by how much.
/// What the model does get is the row of one reader, and that more of them gain nothing.
#[test]
fn of_the_array_the_row_of_one_reader_is_predicted_and_that_more_of_them_gain_nothing() {
    let measured = [56.9, 34.8, 38.8, 44.4];
    let off = predicted("eva-raid5-12", "8ms", measured);
    assert!(off[0].abs() <= 25.0, "{off:?}");
    let model = [0, 1, 2, 3].map(|row| measured[row] * (1.0 + off[row] / 100.0));
    assert!(model[1..].iter().all(|total| *total < model[0]), "{model:?}");
}

/// The trials cost a few per cent; what is learned of streams meanwhile is not lost with them.
#[test]
fn a_lone_disk_that_finds_out_by_itself_is_held_idle_for_readers_and_loses_little() {
    for jobs in [1, 2, 4] {
        let [auto, fixed] = ["auto", "8ms"].map(|slice_idle| readers("sata-7200", slice_idle, jobs));
        assert!(auto >= 0.9 * fixed, "{jobs} readers: {auto:.1} MB/s with auto, {fixed:.1} with 8ms");
    }
}
