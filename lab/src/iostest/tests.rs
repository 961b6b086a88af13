//! Plans end to end, on disks that take a fixed time.

use super::*;
use crate::model::Spec;
use fairlift_core::sched::Kind;
use fairlift_core::time::secs;

fn header() -> Results {
    Results {
        tool: "iostest".into(),
        version: "0".into(),
        device: "sim:sata-7200".into(),
        scheduler: "none".into(),
        settings: BTreeMap::new(),
        seed: 1,
        block_size: 0,
        file_size: 0,
        iodepth: 1,
        interrupted: false,
        runs: Vec::new(),
    }
}

fn modelled() -> Modelled {
    Modelled { spec: Spec::parse("sata-7200").unwrap(), scheduler: Kind::None, set: Vec::new(), depth: None }
}

fn plan(workloads: &[&str]) -> Plan {
    let workloads = workloads.iter().map(|name| Workload::named(name).unwrap()).collect();
    Plan { workloads, runtime: secs(1), ..Plan::default() }
}

#[test]
fn every_workload_gets_something_done_and_the_same_seed_gives_the_same_bytes() {
    let plan = Plan { jobs: vec![1, 4], sets: 2, ..plan(&Workload::NAMES) };
    let bytes = || {
        let results = run(&plan, &mut modelled(), header(), &mut |_| (), &|| false).unwrap();
        assert_eq!(results.runs.len(), 2 * 2 * Workload::NAMES.len());
        for run in &results.runs {
            assert!(run.total_kb_s > 0.0, "{} moved nothing", run.workload);
        }
        serde_json::to_vec(&results).unwrap()
    };
    assert!(bytes() == bytes());
}
