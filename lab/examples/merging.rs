//! What a journal of more weight costs once clients share its queue: six clients and a journal, with merging as Linux did it.
//!
//! ```text
//! cargo run --release -p fairlift-lab --example merging
//! ```
//! In the manner of dbench: two clients write small files that lie beside the journal, with 1 ms of work between blocks, and four read
//! here and there, two blocks of 16 KiB at a time; the journal has twice the weight of a client. Linux's BFQ merged the queues of such
//! writers with the journal's, which kept its weight, and held the disk idle for it. Ours merges within a level (merge.3), so the last
//! arm is of this experiment alone. `low_latency` is off in all: raising is another matter.
//!
//! For each arm: MB/s with five seeds, mean and deviation, and how many times a queue was merged and the disk held idle.

use fairlift_core::queue::Settings;
use fairlift_core::sched::{Kind, bfq};
use fairlift_core::time::{ms, secs};
use fairlift_core::{ContextId, Duration, GroupId, Instant, Op, Priority, PriorityClass, Queue, Sector, Stream};
use fairlift_lab::World;
use fairlift_lab::model::Spec;
use fairlift_lab::program::{Pattern, Region};
use fairlift_lab::workload::{Does, JobPlacement, Role};

const LONG: Duration = secs(60);

struct Arm {
    name: &'static str,
    scheduler: Kind,
    set: &'static [(&'static str, &'static str)],
    across_levels: bool,
}

const fn arm(name: &'static str, scheduler: Kind, set: &'static [(&'static str, &'static str)]) -> Arm {
    Arm { name, scheduler, set, across_levels: false }
}

const TURNS: &[(&str, &str)] = &[("service", "turns"), ("queue_merging", "off"), ("low_latency", "0")];
const MERGING: &[(&str, &str)] = &[("service", "turns"), ("queue_merging", "on"), ("low_latency", "0")];
const ARMS: [Arm; 6] = [
    arm("none", Kind::None, &[]),
    arm("mq-deadline", Kind::MqDeadline, &[]),
    arm("bfq", Kind::Bfq, &[("low_latency", "0")]),
    arm("bfq, turns, merging off", Kind::Bfq, TURNS),
    arm("bfq, turns, merging within a level", Kind::Bfq, MERGING),
    Arm { across_levels: true, ..arm("bfq, turns, merging as Linux", Kind::Bfq, MERGING) },
];

fn main() {
    for arm in &ARMS {
        let runs: Vec<_> = (1..=5).map(|seed| run(arm, seed)).collect();
        let mean = |part: fn(&Run) -> f64| runs.iter().map(part).sum::<f64>() / runs.len() as f64;
        let rate = mean(|run| run.rate);
        let squares: f64 = runs.iter().map(|run| (run.rate - rate).powi(2)).sum();
        let deviation = (squares / (runs.len() - 1) as f64).sqrt();
        let (merges, holds) = (mean(|run| run.merges as f64), mean(|run| run.holds as f64));
        println!("{}\t{rate:.1}\t{deviation:.1}\t{merges:.0}\t{holds:.0}", arm.name);
    }
}

struct Run {
    rate: f64,
    merges: u64,
    holds: u64,
}

fn run(arm: &Arm, seed: u64) -> Run {
    let mut world = world(arm, seed);
    world.run_until(Instant::ZERO + LONG);
    let bytes: u64 = (0..cast().len()).map(|index| world.program(index).meter().bytes).sum();
    let rate = bytes as f64 / 1e6 / (LONG.as_nanos() as f64 / 1e9);
    let mut run = Run { rate, merges: 0, holds: 0 };
    world.queue().counters(&mut |name, count| match name {
        "queue_merges" => run.merges = count,
        "idle_holds" => run.holds = count,
        _ => {}
    });
    run
}

/// Who runs, and where its data lies.
fn cast() -> Vec<(Role, Region)> {
    let high = Priority { class: PriorityClass::BestEffort, level: 0 };
    let direct = |name, op, order, block_size| Role { block_size, ..Role::new(name, Does::Direct(op, order)) };
    let journal = Role { priority: high, ..Role::new("journal", Does::Journal) };
    let files = Role { think: ms(1), ..direct("files", Op::Write, Pattern::Sequential, 4 << 10) };
    let reader = Role { iodepth: Some(2), ..direct("reader", Op::Read, Pattern::Random, 16 << 10) };
    // A MiB each within the 4 MiB that are close (merge.2); the readers' half GiB are far from there.
    let near = |mib: u64| Region { start: Sector(mib << 11), bytes: 1 << 20 };
    let far = |part: u64| Region { start: Sector(part << 22), bytes: 1 << 29 };
    let mut cast = vec![(journal, near(1)), (files.clone(), near(2)), (files, near(3))];
    cast.extend((1..=4).map(|part| (reader.clone(), far(part))));
    cast
}

fn world(arm: &Arm, seed: u64) -> World {
    let spec = Spec::parse("ssd-plextor-m5").expect("it is built in");
    let model = spec.build(seed);
    let mut settings = Settings::new(arm.scheduler, model.limits());
    settings.depth = spec.depth();
    settings.character = model.character();
    settings.backings[0].volatile_cache = settings.character.volatile_cache;
    settings.nr_requests = settings.nr_requests.max(arm.scheduler.nr_requests(settings.depth));
    settings.seed = seed;
    let mut queue = Queue::new(settings);
    if arm.across_levels {
        let bfq = bfq::Bfq::new(&queue.settings().setup(), bfq::Settings::default()).merging_across_levels();
        queue.take_over(Instant::ZERO, arm.scheduler, Box::new(bfq));
    }
    for (name, value) in arm.set {
        queue.set_tunable(name, value).expect("it has this tunable");
    }
    let mut world = World::new(queue, model);
    for (number, (role, file)) in (1..).zip(cast()) {
        let part = JobPlacement {
            file,
            block: role.block_size.into(),
            depth: role.iodepth.unwrap_or(1),
            index: (0, 1),
            round_trip: Duration::ZERO,
            counts_from: Instant::ZERO,
            seed: number + 100 * seed,
        };
        let stream = Stream { group: GroupId::ROOT, priority: role.priority, context: ContextId(0) };
        world.add(stream, role.program(&part));
    }
    world
}
