//! What workers serve together of one disk that answers at once: thousands of reads of 4 KiB a second, by scheduler, depth and workers.
//!
//! `cargo bench -p fairlift --bench workers [-- SCHEDULER,… [RUNS]]`; each worker has a program of its own, in a group of its own, that
//! asks again when all that it asked has ended. `docs/measured/workers.md` (More processors) has figures.

use fairlift::bench::{Job, Setup, run};
use fairlift::config::{Disk, Engine, Null};
use fairlift_core::program::{Ask, Meter, Program};
use fairlift_core::sched::Kind;
use fairlift_core::time::ms;
use fairlift_core::{Duration, Extent, Flags, Group, GroupId, Instant, Op, Outcome, Priority, Sector, Weight};

const SECTORS: u64 = 8;
const BLOCKS: u64 = 1 << 17;

/// Reads blocks at random from a part of the disk.
struct Reader {
    start: u64,
    free: Vec<u32>,
    random: u64,
    meter: Meter,
}

impl Program for Reader {
    fn poll_ask(&mut self, _now: Instant) -> Option<Ask> {
        let token = self.free.pop()?;
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let extent = Extent::new(Sector((self.start + (self.random >> 33) % BLOCKS) * SECTORS), SECTORS);
        Some(Ask { token, op: Op::Read, flags: Flags::NONE, extent })
    }

    fn handle_end(&mut self, _now: Instant, token: u32, outcome: Outcome) {
        self.free.push(token);
        self.meter.ended(SECTORS * Sector::SIZE, outcome, Duration::ZERO);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }
}

/// Reads a second.
fn rate(kind: Kind, depth: u32, workers: u64) -> f64 {
    let size = 64 * BLOCKS * SECTORS * Sector::SIZE;
    let group =
        |number: u64| Group { path: format!("/{number}"), parent: Some(GroupId::ROOT), weight: Weight::new(100) };
    let setup = Setup {
        disk: Disk::new("d", kind),
        groups: std::iter::once(Group::root()).chain((1..=workers).map(group)).collect(),
        bounds: Default::default(),
        backing: Null { size, delay: Duration::ZERO }.into(),
        read_only: false,
        workers: Some(workers as usize),
        engine: Engine::Auto,
        runtime: ms(200),
        slots: 1,
        trace: 0,
    };
    let reader = |number: u64| Reader {
        start: number * BLOCKS,
        free: (0..depth).collect(),
        random: number,
        meter: Meter::default(),
    };
    let job = |number: u64| Job {
        group: GroupId(number as u16 + 1),
        priority: Priority::default(),
        program: Box::new(reader(number)),
    };
    let measured = run(&setup, (0..workers).map(job).collect(), &mut |_| false).expect("it runs");
    let reads: u64 = measured.meters.iter().map(|(_, meter)| meter.operations).sum();
    reads as f64 * 1e9 / measured.runtime.as_nanos() as f64
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    let wanted = args.next().unwrap_or_default();
    let runs = args.next().map_or(5, |runs| runs.parse().expect("RUNS is a number"));
    let most = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64).min(64);
    let workers: Vec<u64> = [1, 2, 4, 8, 16, 32, 64].into_iter().filter(|workers| *workers <= most).collect();
    println!(
        "| scheduler, depth | {} |",
        workers.iter().map(|n| format!("{n} workers")).collect::<Vec<_>>().join(" | ")
    );
    for kind in
        Kind::ALL.into_iter().filter(|kind| wanted.is_empty() || wanted.split(',').any(|name| name == kind.name()))
    {
        for depth in [1, 8, 32] {
            // In turn, so that a slow moment of the machine is in all of them.
            let mut rates = vec![Vec::new(); workers.len()];
            for _ in 0..runs {
                rates.iter_mut().zip(&workers).for_each(|(rates, workers)| rates.push(rate(kind, depth, *workers)));
            }
            let cell = |rates: &mut Vec<f64>| {
                rates.sort_by(f64::total_cmp);
                let [least, median, most] = [0, rates.len() / 2, rates.len() - 1].map(|n| rates[n] / 1e3);
                format!("{median:.0} ({least:.0} to {most:.0})")
            };
            println!("| {} {depth} | {} |", kind.name(), rates.iter_mut().map(cell).collect::<Vec<_>>().join(" | "));
        }
    }
}
