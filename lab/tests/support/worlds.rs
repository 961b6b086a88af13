//! Whole worlds: programs, queue with `none`, and a model.

use fairlift_core::queue::Settings;
use fairlift_core::sched::Kind;
use fairlift_core::{Duration, Instant, Queue, Sector, Stream};
use fairlift_lab::World;
use fairlift_lab::model::Spec;
use fairlift_lab::program::{Program, ReadAhead, Region};

/// An empty world with a disk that takes `depth` requests at once.
pub(crate) fn world(spec: &str, depth: u16) -> World {
    let model = Spec::parse(spec).unwrap().build(1);
    let settings = Settings::new(Kind::None, model.limits());
    let nr_requests = settings.nr_requests.max(2 * u32::from(depth));
    World::new(Queue::new(Settings { depth, nr_requests, ..settings }), model)
}

/// Whoever asks is alike.
pub(crate) fn stream() -> Stream {
    Stream { group: fairlift_core::GroupId(0), priority: Default::default(), context: fairlift_core::ContextId(0) }
}

/// Goyal's `iostune`: so many `dd`, each reading its own part of the disk through the page cache; MB/s of each.
pub(crate) fn dd(spec: &str, streams: u64, time: Duration) -> Vec<f64> {
    let mut world = world(spec, 31);
    let part = world.model().limits().capacity / streams / 2048 * 2048;
    for number in 0..streams {
        let file = Region { start: Sector(part * number), bytes: part * Sector::SIZE };
        world.add(stream(), Box::new(ReadAhead::new(file, 4096, Duration::ZERO, 128 << 10)) as Box<dyn Program>);
    }
    world.run_until(Instant::ZERO + time);
    let rate = |bytes: u64| bytes as f64 / (time.as_nanos() as f64 / 1e9) / 1e6;
    (0..streams as usize).map(|index| rate(world.program(index).meter().bytes)).collect()
}
