//! Quick runs on models.
use fairlift_core::sched::Kind;
use fairlift_core::time::ms;
use fairlift_core::{Group, GroupId};
use fairlift_lab::iostest::{Modelled, Plan, Runner, run, Progress};
use fairlift_lab::model::Spec;
use fairlift_lab::workload::Workload;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let get = |k: &str, d: &str| args.iter().position(|a| a == k).map_or(d.to_string(), |i| args[i + 1].clone());
    let all = |k: &str| args.iter().enumerate().filter(|(_, a)| *a == k).map(|(i, _)| args[i + 1].clone()).collect::<Vec<_>>();
    let spec = Spec::parse(&get("-d", "nvme-plp")).unwrap();
    let mut groups = vec![Group::root()];
    let tree = get("--tree", "");
    if tree.is_empty() {
        for w in get("--weights", "100,200,300,400,500,600,700,800").split(',').filter(|w| !w.is_empty() && *w != "0") {
            let n = groups.len();
            groups.push(Group { path: format!("/g{n}"), parent: Some(GroupId(0)), weight: w.parse().unwrap() });
        }
    } else {
        // name:parent:weight,...
        for part in tree.split(',') {
            let f: Vec<&str> = part.split(':').collect();
            groups.push(Group { path: f[0].into(), parent: Some(GroupId(f[1].parse().unwrap())), weight: f[2].parse().unwrap() });
        }
    }
    for s in get("-s", "bfq").split(',') {
        for w in get("-w", "drr").split(',') {
            for q in get("-q", "1").split(',') {
                let workloads = if w.ends_with(".toml") { Workload::read(&std::fs::read_to_string(w).unwrap()).unwrap() } else { vec![Workload::named(w).unwrap()] };
                let plan = Plan { groups: groups.clone(), workloads, jobs: get("-j", "1").split(',').map(|j| j.parse().unwrap()).collect(), iodepth: q.parse().unwrap(), runtime: ms(get("-t", "1000").parse().unwrap()), block_size: Some(get("--bs", "0").parse().unwrap()).filter(|b| *b > 0), seed: get("--seed", "1").parse().unwrap(), ..Plan::default() };
                let set = if s == "bfq" { all("--set").iter().map(|kv| kv.split_once('=').map(|(a, b)| (a.to_string(), b.to_string())).unwrap()).collect() } else { vec![] };
                let mut m = Modelled { spec: spec.clone(), scheduler: Kind::from_name(s).unwrap(), set, depth: Some(get("--depth", "0").parse().unwrap()).filter(|d| *d > 0) };
                for case in plan.cases().unwrap() {
                    let one = m.run(&case, &|| false).unwrap();
                    let _ = (run, |_: Progress<'_>| ());
                    let r = case.run_of(&one);
                    print!("{} {s} {w} qd{q} j{}: {:.1} MB/s err {:.3} dm {:.1} | ", get("-d", "nvme-plp"), r.jobs, r.total_kb_s / 1024.0, r.share_error_max, r.device_stats.depth_mean);
                    for g in &r.groups { print!("{:.3} ", g.share / g.ideal); }
                    print!("| p99 us {:.0}..{:.0} {:?}", r.groups.iter().map(|g| g.lat_p99_us).fold(f64::MAX, f64::min), r.groups.iter().map(|g| g.lat_p99_us).fold(0.0, f64::max), one.counters.iter().filter(|(_, v)| **v > 0).collect::<Vec<_>>());
                    for x in &r.roles { print!(" {}:{:.1}MB/s p50 {:.0} p99 {:.0}", x.name, x.kb_s / 1024.0, x.lat_p50_us, x.lat_p99_us); }
                    if args.iter().any(|a| a == "--timeline") { println!(); for t in &one.timeline { println!("{t:?}"); } }
                    println!();
                }
            }
        }
    }
}
