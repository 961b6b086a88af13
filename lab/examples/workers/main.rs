//! The tables of `docs/measured/workers.md`, More processors: `cargo run --release -p fairlift-lab --example workers`.

mod lock;

use fairlift_core::Duration;
use fairlift_core::time::{ms, us};
use lock::{Cost, Costs, Load, Wait};

const fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// The standard library's: 100 looks of 28 ns. A wake costs the waker 7 µs and takes 15: medians of a pair of threads that wake each
/// other, from 4.7 to 8.7 µs and from 2.9 to 20.
const STD: Wait = Wait { first: ns(28), most: ns(28), looks: 100, looks_anyway: false, wake: us(7), latency: us(15) };

/// As `host/src/disk/queues.rs`, queues.1.
const EVER_LATER: Wait = Wait { first: ns(250), most: us(16), looks: 9, looks_anyway: true, ..STD };

const WORKERS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

fn setup(workers: usize, depth: u32, costs: Costs, wait: Wait) -> Load {
    Load { workers, disks: 1, depth, think: Duration::ZERO, costs, wait, seed: 1 }
}

fn thousands(setup: Load) -> f64 {
    setup.play(ms(20)).rate / 1e3
}

/// Nanoseconds of a visit by the same worker, of one after another's, outside of each visit; thousands a second by one and by two.
type Measured = (&'static str, u32, [f64; 3], [f64; 2]);

/// Before queues.1, in two series; docs/measured/peers.md says how.
const MEASURED: [Measured; 11] = [
    ("mq-deadline", 1, [339.0, 1652.0, 307.0], [773.0, 446.0]),
    ("mq-deadline", 8, [904.0, 3610.0, 709.0], [2479.0, 1256.0]),
    ("mq-deadline", 8, [936.0, 1736.0, 737.0], [2390.0, 1750.0]),
    ("mq-deadline", 32, [5088.0, 7228.0, 3312.0], [1903.0, 1519.0]),
    ("mq-deadline", 32, [3928.0, 6912.0, 2707.0], [2410.0, 1737.0]),
    ("fair", 1, [243.0, 547.0, 193.0], [1147.0, 817.0]),
    ("fair", 8, [1225.0, 2098.0, 764.0], [2011.0, 1265.0]),
    ("fair", 8, [1786.0, 2181.0, 1009.0], [1430.0, 1168.0]),
    ("cfq", 1, [599.0, 817.0, 311.0], [551.0, 503.0]),
    ("cfq", 8, [2160.0, 2704.0, 1021.0], [1259.0, 972.0]),
    ("cfq", 32, [5278.0, 10375.0, 2506.0], [2057.0, 1215.0]),
];

fn validate() {
    println!("| | one: measured | predicted | | two: measured | predicted | |\n|---|--:|--:|--:|--:|--:|--:|");
    for (name, depth, [own, other, outside], measured) in MEASURED {
        let once = |once| Cost { once, each: 0.0 };
        let costs = Costs { outside: once(2.0 * outside), inside: once(own), moved: once(other - own) };
        print!("| {name}, {depth} |");
        for (workers, measured) in (1..).zip(measured) {
            let predicted = thousands(setup(workers, depth, costs, STD));
            print!(" {measured:.0} | {predicted:.0} | {:+.0} % |", (predicted / measured - 1.0) * 100.0);
        }
        println!();
    }
}

/// Under the lock, in a visit, and besides after another worker's on another core: lines through the measured ones.
const INSIDE: [(&str, Cost, Cost); 3] = [
    ("mq-deadline", Cost { once: 200.0, each: 130.0 }, Cost { once: 1150.0, each: 170.0 }),
    ("fair", Cost { once: 150.0, each: 160.0 }, Cost { once: 1200.0, each: 200.0 }),
    ("cfq", Cost { once: 350.0, each: 190.0 }, Cost { once: 1200.0, each: 200.0 }),
];

fn table(name: &str, outside: Cost, disks: impl Fn(usize) -> usize) {
    let heads = WORKERS.map(|workers| workers.to_string()).join(" | ");
    println!("\n{name}\n\n| | {heads} |\n|---|{}", "--:|".repeat(WORKERS.len()));
    for (scheduler, inside, moved) in INSIDE {
        for (how, wait) in [("sleeps", STD), ("looks", EVER_LATER)] {
            let costs = Costs { outside, inside, moved };
            let cells = WORKERS.map(|workers| {
                let rate = thousands(Load { disks: disks(workers), ..setup(workers, 32, costs, wait) });
                format!("{:.2}", rate / 1e3)
            });
            println!("| {scheduler}, {how} | {} |", cells.join(" | "));
        }
    }
}

fn main() {
    validate();
    let programs = Cost { once: 400.0, each: 190.0 };
    table("One disk, programs in the workers", programs, |_| 1);
    table("One disk of RAM, NBD", Cost { once: 3000.0, each: 1200.0 }, |_| 1);
    table("One disk, NBD, a file with direct I/O", Cost { once: 3000.0, each: 3300.0 }, |_| 1);
    table(
        "As many disks as workers, each worker with clients on all, NBD",
        Cost { once: 3000.0, each: 1200.0 },
        |workers| workers,
    );
}
