//! The cost of BFQ's fair queue alone, by the slot, with everybody backlogged.
//!
//! A queue either leaves at the end of its slot and comes back at once (select, serve, expire and activate, once each), or
//! stays (without activate). `cargo bench -p fairlift-core --bench fair` measures ns; the same binary with `--count GROUPS
//! QUEUES leaves|stays SLOTS` does that many slots and nothing else, for `benches/instructions.sh fair`.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use fairlift_core::sched::fair_queue::{Arrival, FairQueue};
use fairlift_core::time::us;
use fairlift_core::{Group, GroupId, Instant, PriorityClass};

/// Slots of one measurement.
const SLOTS: u32 = 1000;

struct Load {
    fair: FairQueue,
    now: Instant,
    turn: u32,
}

impl Load {
    /// `groups` of weights 100 to 800, or none, with the queues spread over them; queues of weights 10 to 80.
    fn new(groups: u32, queues: u32) -> Self {
        let mut fair = FairQueue::new(&[Group::root()]);
        let groups: Vec<GroupId> =
            (0..groups).map(|group| fair.add_group(GroupId::ROOT, 100 * (1 + group % 8))).collect();
        for queue in 0..queues {
            let group = if groups.is_empty() { GroupId::ROOT } else { groups[queue as usize % groups.len()] };
            let leaf = fair.add_queue(group, PriorityClass::BestEffort, 10 * (1 + queue % 8));
            fair.activate(leaf, budget(queue), Arrival::New);
        }
        let mut load = Self { fair, now: Instant::ZERO, turn: 0 };
        // So that all have had turns, and nothing is in step any more.
        load.slots(2 * queues, true);
        load
    }

    fn slots(&mut self, slots: u32, leaves: bool) {
        for _ in 0..slots {
            self.turn += 1;
            self.now += us(10);
            let leaf = self.fair.select(self.now).expect("everybody waits");
            self.fair.serve(u64::from(8 + self.turn % 56));
            if leaves {
                self.fair.expire(None);
                self.fair.activate(black_box(leaf), budget(self.turn), Arrival::New);
            } else {
                self.fair.expire(Some(budget(self.turn)));
            }
        }
    }
}

/// 64 to 1,086 sectors, so that the order changes all the time.
fn budget(turn: u32) -> u32 {
    64 + (turn.wrapping_mul(2_654_435_761) >> 22)
}

fn main() {
    let args: Vec<_> = std::env::args().collect();
    if let [_, flag, groups, queues, what, slots, ..] = &args[..]
        && flag == "--count"
    {
        let number = |text: &String| text.parse::<u32>().expect("a number");
        Load::new(number(groups), number(queues)).slots(number(slots), what == "leaves");
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    for (groups, what) in [0, 8, 1000].into_iter().flat_map(|groups| [(groups, "leaves"), (groups, "stays")]) {
        let mut group = criterion.benchmark_group(format!("fair, {groups} groups, {what}"));
        group.throughput(Throughput::Elements(SLOTS.into())).measurement_time(Duration::from_secs(2));
        for queues in [1, 8, 64, 512, 1000, 10_000] {
            if queues < groups {
                continue;
            }
            let mut load = Load::new(groups, queues);
            group.bench_function(BenchmarkId::from_parameter(queues), |b| {
                b.iter(|| load.slots(SLOTS, what == "leaves"))
            });
        }
        group.finish();
    }
    criterion.final_summary();
}
