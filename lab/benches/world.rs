//! How fast the world turns: simulated I/Os per second of CPU time of one core, and the time of the table of issue 4.
//!
//! `cargo bench -p fairlift-lab --bench world [FILTER]`

use std::time::Instant as Clock;

use fairlift_core::model::Model;
use fairlift_core::queue::Settings;
use fairlift_core::sched::Kind;
use fairlift_core::time::{secs, us};
use fairlift_core::{
    ContextId, Duration, Group, GroupId, Instant, Limits, Op, Priority, Queue, Sector, Stream, Weight,
};
use fairlift_lab::iostest::{Modelled, Plan, Runner};
use fairlift_lab::model::Spec;
use fairlift_lab::program::{Direct, Pattern, Region, direct};
use fairlift_lab::workload::Workload;
use fairlift_lab::{World, fixed_time};

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let wanted = |name: &str| name.contains(&filter);
    for (streams, depth) in [(1, 1), (64, 1), (64, 4), (256, 1)] {
        for kind in Kind::ALL {
            let name = format!("fixed-time {} {streams}x{depth}", kind.name());
            if wanted(&name) {
                let limits = Limits::new(1 << 30);
                report(&name, turn(Box::new(fixed_time(limits, us(80))), kind, Op::Read, streams, depth));
            }
        }
    }
    for (profile, op) in [("nvme-plp", Op::Read), ("nvme-plp", Op::Write), ("sata-7200", Op::Read)] {
        for kind in Kind::ALL {
            let name = format!("{profile} {} {} 64x4", kind.name(), op.name());
            if let Some(spec) = Spec::parse(profile).ok().filter(|_| wanted(&name)) {
                report(&name, turn(spec.build(1), kind, op, 64, 4));
            }
        }
    }
    for (workload, jobs) in [("bsr", 8), ("bsr", 1), ("bsw", 8), ("drr", 8)] {
        let name = format!("table eva-raid5-12 {workload} 8 groups x {jobs}");
        if wanted(&name) {
            table(&name, workload, jobs);
        }
    }
}

/// A second of it: requests that ended, simulated time, and seconds of CPU.
fn turn(model: Box<dyn Model>, kind: Kind, op: Op, streams: u64, depth: u32) -> (u64, Duration, f64) {
    let limits = model.limits();
    let settings = Settings { depth: 1023, nr_requests: 2046, ..Settings::new(kind, limits) };
    let mut world = World::new(Queue::new(settings), model);
    let share = limits.capacity / streams * Sector::SIZE / 4096 * 4096;
    for index in 0..streams {
        let file = Region { start: Sector(index * share / Sector::SIZE), bytes: share };
        let settings = direct::Settings::new(op, Pattern::Random, 4096, depth);
        let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context: ContextId(0) };
        world.add(stream, Box::new(Direct::new(settings, file, index)));
    }
    // Warm: tables have grown.
    world.run_until(world.now() + us(1000));
    let (from, requests) = (world.now(), world.model().work().requests);
    let cpu = Cpu::now();
    while cpu.seconds() < 1.0 {
        world.run_until(world.now() + us(10_000));
    }
    let elapsed = cpu.seconds();
    (world.model().work().requests - requests, world.now().since(from), elapsed)
}

/// CPU time of this process: others on the machine do not count.
struct Cpu(f64, Clock);

impl Cpu {
    fn now() -> Self {
        Self(Self::used().unwrap_or_default(), Clock::now())
    }

    /// Since then; by the wall clock where the kernel does not tell.
    fn seconds(&self) -> f64 {
        Self::used().map_or_else(|| self.1.elapsed().as_secs_f64(), |used| used - self.0)
    }

    fn used() -> Option<f64> {
        let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
        Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
    }
}

fn report(name: &str, (requests, simulated, elapsed): (u64, Duration, f64)) {
    let rate = requests as f64 / elapsed;
    let nanos = elapsed * 1e9 / requests as f64;
    let ratio = simulated.as_nanos() as f64 / 1e9 / elapsed;
    println!("{name:45} {:8.3} M I/Os per second   {nanos:7.0} ns each   {ratio:8.2} s of disk per s", rate / 1e6);
}

/// 30 s of a table's row, from weights 100 to 800.
fn table(name: &str, workload: &str, jobs: u32) {
    let mut groups = vec![Group::root()];
    for index in 1..=8 {
        groups.push(Group {
            path: format!("/g{index}"),
            parent: Some(GroupId::ROOT),
            weight: Weight::new(100 * index),
        });
    }
    let workloads = vec![Workload::named(workload).expect("built in")];
    let plan = Plan { groups, workloads, jobs: vec![jobs], runtime: secs(30), ..Plan::default() };
    let spec = Spec::parse("eva-raid5-12").expect("built in");
    let mut runner = Modelled { spec, scheduler: Kind::None, set: Vec::new(), depth: None };
    let case = &plan.cases().expect("possible")[0];
    let cpu = Cpu::now();
    let measured = runner.run(case, &mut |_| false).expect("it runs");
    let elapsed = cpu.seconds();
    let run = case.run_of(&measured);
    let end = Instant::ZERO + measured.runtime;
    println!(
        "{name:45} {elapsed:8.3} s of CPU for {} of disk: {:.0} KB/s, {} requests",
        end.since(Instant::ZERO),
        run.total_kb_s,
        run.device_stats.requests
    );
}
