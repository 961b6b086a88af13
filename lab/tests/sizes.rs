//! Small requests beside large ones on a modelled NVMe disk, through the whole queue.

use fairlift_core::sched::Kind;
use fairlift_core::time::secs;
use fairlift_lab::iostest::{Modelled, Plan, Runner};
use fairlift_lab::model::Spec;
use fairlift_lab::workload::Workload;

const SMALL: &str = r#"{ weight = 100, does = "direct-read", order = "random", block_size = "4k", iodepth = 64 },"#;
const LARGE: &str = r#"{ weight = 100, does = "direct-read", order = "random", block_size = "64k", iodepth = 32 },"#;

/// The bytes that the first of these tenants reads.
fn read(tenants: &str, kind: Kind, seed: u64) -> u64 {
    let workloads = Workload::read(&format!("[one]\nabout = \"\"\ntenants = [\n{tenants}\n]\n")).unwrap();
    let plan = Plan { workloads, runtime: secs(2), warm_up: secs(1), seed, ..Plan::default() };
    let case = plan.cases().unwrap().pop().unwrap();
    let mut runner = Modelled { spec: Spec::parse("nvme-plp").unwrap(), scheduler: kind, set: vec![], depth: None };
    runner.run(&case, &mut |_| false).unwrap().meters[0].1.bytes
}

/// depth.9: where windows told of costs in which places were empty, the small reads did 0.4 of what they do alone, not 0.73.
#[test]
fn small_reads_have_most_of_their_part_beside_large_ones() {
    for seed in [1, 2] {
        let alone = read(SMALL, Kind::None, seed);
        let part = read(&format!("{SMALL}\n{LARGE}"), Kind::Fair, seed) as f64 / alone as f64;
        assert!(part > 0.6, "seed {seed}: {part:.2} of what they do alone");
    }
}
