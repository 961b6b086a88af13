//! Fit (temporary).
use fairlift_core::sched::Kind;
use fairlift_core::time::secs;
use fairlift_lab::iostest::{Modelled, Placement, Plan, Runner};
use fairlift_lab::model::Spec;
use fairlift_lab::workload::Workload;

fn total(
    spec: &str,
    workload: &str,
    jobs: u32,
    placement: Placement,
    file: u64,
    depth: u16,
    iodepth: u32,
    s: u64,
) -> f64 {
    let plan = Plan {
        workloads: vec![Workload::named(workload).unwrap()],
        jobs: vec![jobs],
        runtime: secs(s),
        file_size: file,
        placement,
        iodepth,
        ..Plan::default()
    };
    let case = plan.cases().unwrap().remove(0);
    let mut runner =
        Modelled { spec: Spec::parse(spec).unwrap(), scheduler: Kind::None, set: vec![], depth: Some(depth) };
    let measured = runner.run(&case, &|| false).unwrap();
    measured.meters.iter().map(|(_, m)| m.bytes).sum::<u64>() as f64 / s as f64 / 1e6
}

fn main() {
    for spec in std::env::args().skip(1) {
        let (depth, want) =
            if spec.starts_with("sata") { (31, [63.3, 18.7, 21.6, 29.6]) } else { (128, [62.5, 86.5, 98.7, 112.5]) };
        let mut line = String::new();
        let mut worst: f64 = 0.0;
        for (n, want) in [1, 2, 4, 8].into_iter().zip(want) {
            let got = total(&spec, "bsr", n, Placement::Spread, 8 << 30, depth, 1, 20);
            worst = worst.max((got / want - 1.0).abs());
            line += &format!(" {got:6.1} ({:+3.0}%)", (got / want - 1.0) * 100.0);
        }
        line += " |";
        for n in [8, 16, 32, 64] {
            line += &format!(" {:6.1}", total(&spec, "bsr", n, Placement::Together, 512 << 20, depth, 1, 20));
        }
        println!("{:3.0}% {line}   {spec}", worst * 100.0);
    }
}
