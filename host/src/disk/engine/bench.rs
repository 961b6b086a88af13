//! For tests: workers on one disk, without threads: each takes a turn when the test says so.

use std::ops::Range;
use std::sync::Arc;

use fairlift_core::time::ms;
use fairlift_core::{
    Bio, ContextId, Duration, Extent, Flags, Group, GroupId, Instant, Op, Priority, Sector, Stream, StreamId, Token,
    sched,
};

use super::Engine;
use crate::config;
use crate::device::Device;
use crate::disk::{Disk, Disks};
use crate::kernel::buffer::Pool;
use crate::kernel::helpers::Helpers;
use crate::kernel::notify::Notifiers;
use crate::kernel::ring::{Kind, Ring, Source};
use crate::kernel::ticket::{Memory, Part};

/// Workers, each with a stream of the disk.
pub(crate) type Workers = Vec<(Engine, StreamId)>;

/// Starts this many workers on a disk that is a device.
pub(crate) fn workers(device: Arc<dyn Device>, kind: sched::Kind, count: u16) -> Workers {
    let settings = config::Disk::new("d", kind);
    let file = device.descriptor().map(|_| 0);
    let disk = Arc::new(Disk::new(&settings, &[(device, file)], &[Group::root()], count.into()).unwrap());
    let notifiers = Arc::new(Notifiers::new(count.into()).unwrap());
    let helpers = Helpers::new(1, &[disk.concurrency], &[0], count.into(), Arc::clone(&notifiers));
    let disks = Disks::new(vec![disk]);
    let engine = |worker| {
        let context = ContextId(worker);
        let (ring, pool) = (Ring::new(Kind::Poll, 64, 64, 1).unwrap(), Pool::new(1 << 20, 1).unwrap());
        let (disks, notifiers, helpers) = (Arc::clone(&disks), Arc::clone(&notifiers), Arc::clone(&helpers));
        let mut engine = Engine::new(ring, pool, context, disks, notifiers, helpers);
        let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context };
        let stream = engine.add_stream(0, stream);
        (engine, stream)
    };
    (0..count).map(engine).collect()
}

/// Whether a device of the worker is polled each turn.
pub(crate) fn is_polled(engine: &Engine) -> bool {
    engine.handles.iter().any(|handle| !handle.timed.is_empty())
}

/// The disk that they are on, and the list of disks that it is in.
pub(crate) fn disk(workers: &Workers) -> (Arc<Disk>, Arc<Disks>) {
    let disks = &workers[0].0.disks;
    (disks.get(0), Arc::clone(disks))
}

/// By whom they are told what others have done.
pub(crate) fn helpers(workers: &Workers) -> Arc<Helpers> {
    Arc::clone(&workers[0].0.helpers)
}

/// Takes in the completions of a worker's ring.
pub(crate) fn reap(engine: &mut Engine) {
    engine.ring.turn(Some(Duration::ZERO));
    while let Some(completion) = engine.ring.reap() {
        if let Source::Io { disk, place, tag } = Source::unpack(completion.data) {
            engine.completed(disk, place, tag, completion.result);
        }
    }
}

/// A turn of a worker that was woken.
pub(crate) fn turned(engine: &mut Engine, now: &mut Instant) {
    *now += ms(1);
    reap(engine);
    engine.woken();
    engine.turn(*now);
    engine.launch_all();
}

/// Asks for something; `bytes` are those of a write. Answers the engine's name for it.
pub(crate) fn submit(
    (engine, stream): &mut (Engine, StreamId),
    op: Op,
    flags: Flags,
    sectors: &Range<u64>,
    bytes: &[u8],
) -> usize {
    let extent = Extent::new(Sector(sectors.start), sectors.end - sectors.start);
    let memory = match op {
        Op::Read | Op::Write => {
            let len = extent.bytes().get() as usize;
            let buffer = engine.pool.get(len).unwrap();
            let mut memory = Memory::Part(Part { buffer, range: 0..len });
            match op {
                Op::Write => memory.bytes_mut().copy_from_slice(bytes),
                _ => memory.bytes_mut().fill(0xee),
            }
            memory
        }
        _ => Memory::None,
    };
    let ticket = engine.admit(0, memory);
    engine.submit(0, Bio { op, flags, extent, stream: *stream, token: Token(ticket as u64) });
    ticket
}

/// All that they were asked has ended and was released.
pub(crate) fn assert_at_rest(workers: &Workers) {
    workers.iter().for_each(|(engine, _)| assert_eq!((engine.open(), engine.pool.used()), (0, 0)));
}
