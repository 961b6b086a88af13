//! Random plans on random disks, with every check on: whatever is asked, no promise is broken and the seed gives the run.

use fairlift_core::queue::Settings;
use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, us};
use fairlift_core::{ContextId, Group, GroupId, Instant, Op, Priority, Queue, Sector, Stream, Weight};
use fairlift_lab::World;
use fairlift_lab::iostest::{Case, Measured, Modelled, Placement, Plan};
use fairlift_lab::model::Spec;
use fairlift_lab::program::{Direct, Pattern, Region, direct};
use fairlift_lab::workload::Workload;
use proptest::prelude::*;

/// One of each kind, and small enough to build quickly.
const DISKS: [&str; 6] =
    ["sata-7200", "eva-raid5-12", "ssd-2010", "ssd-sata-consumer,size=8G", "nvme-plp,size=8G", "virtio-ssd,size=8G"];

fn tree(weights: &[u16]) -> Vec<Group> {
    let leaf = |(index, weight): (usize, &u16)| Group {
        path: format!("/g{}", index + 1),
        parent: Some(GroupId::ROOT),
        weight: Weight::new(*weight),
    };
    std::iter::once(Group::root()).chain(weights.iter().enumerate().map(leaf)).collect()
}

fn measure(case: &Case, disk: &str, scheduler: Kind, depth: u16) -> Measured {
    let spec = Spec::parse(disk).expect("a disk that there is");
    let runner = Modelled { spec, scheduler, set: Vec::new(), depth: Some(depth) };
    runner.measure(case, 8, &mut |_| false).expect("a plan that can be")
}

fairlift_lab::proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_promise_is_broken_and_the_seed_gives_the_run(
        workload in prop::sample::select(Workload::built_in()),
        disk in prop::sample::select(DISKS.to_vec()),
        scheduler in prop::sample::select(Kind::ALL.to_vec()),
        weights in prop::collection::vec(1u16..1000, 1..4),
        jobs in 1u32..6,
        depth in prop::sample::select(vec![1u16, 2, 32, 128]),
        block in prop::sample::select(vec![None, Some(4096), Some(64 << 10)]),
        iodepth in 1u32..9,
        spread in any::<bool>(),
        // Small files, so that reads meet writes and runs come round.
        file_size in prop::sample::select(vec![256u64 << 10, 4 << 20, 64 << 20]),
        seed in any::<u64>(),
    ) {
        let plan = Plan {
            groups: tree(&weights),
            workloads: vec![workload],
            jobs: vec![jobs],
            runtime: ms(100),
            block_size: block,
            file_size,
            iodepth,
            placement: if spread { Placement::Within(0) } else { Placement::Together },
            seed,
            ..Plan::default()
        };
        let case = &plan.cases().unwrap()[0];
        let run = || case.run_of(&measure(case, disk, scheduler, depth));
        prop_assert_eq!(run(), run());
    }
}

/// Who reads what others write, in a file so small that they meet all the time: reads return the latest writes (check.4), and
/// merging, cutting, timing out and running out of room change nothing about that.
#[test]
fn readers_and_writers_of_one_file_see_the_latest_writes() {
    for disk in DISKS {
        for (scheduler, depth) in [(Kind::None, 2), (Kind::None, 32), (Kind::MqDeadline, 2), (Kind::MqDeadline, 32)] {
            let model = Spec::parse(disk).unwrap().build(5);
            let limits = model.limits();
            let settings = Settings {
                depth,
                nr_requests: 2 * u32::from(depth),
                io_timeout: ms(30),
                ..Settings::new(scheduler, limits)
            };
            let mut world = World::new(Queue::new(settings), model);
            world.check().watch_every(1);
            let file = Region { start: Sector(2048), bytes: 128 << 10 };
            for index in 0..8 {
                let op = if index % 2 == 0 { Op::Read } else { Op::Write };
                let block = 4096 << (index / 2 % 3);
                let (order, think) = (Pattern::Random, us(index * 50));
                let program =
                    Direct::new(direct::Settings { think, ..direct::Settings::new(op, order, block, 4) }, file, index);
                let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context: ContextId(0) };
                world.add(stream, Box::new(program));
            }
            world.run_until(Instant::ZERO + ms(500));
            world.drain();
            assert!((0..8).all(|index| world.program(index).meter().operations > 0), "{disk}: someone got nothing");
        }
    }
}
