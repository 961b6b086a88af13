//! A load straight on a model: requests in a closed loop, without queue or scheduler. For tests and examples of models.

use fairlift_core::model::{Model, ModelCompletion, ModelRequest};
use fairlift_core::{Duration, Extent, Flags, Instant, Op, Sector};
use fairlift_lab::Random;

/// So many requests of one sort, kept in flight.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) op: Op,
    pub(crate) flags: Flags,
    /// Bytes of a request.
    pub(crate) block: u64,
    pub(crate) depth: u32,
    pub(crate) sequential: bool,
    /// Whether each request is followed by a flush, and the next waits for that.
    pub(crate) flushed: bool,
    /// Bytes of the disk that it covers, from its beginning.
    pub(crate) span: u64,
}

impl Load {
    pub(crate) fn new(op: Op, block: u64, depth: u32) -> Self {
        Self { op, flags: Flags::NONE, block, depth, sequential: false, flushed: false, span: u64::MAX }
    }

    pub(crate) fn sequential(self) -> Self {
        Self { sequential: true, ..self }
    }

    pub(crate) fn flushed(self) -> Self {
        Self { flushed: true, ..self }
    }
}

/// What a load got.
#[derive(Clone, Default)]
pub(crate) struct Got {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// Nanoseconds, sorted.
    pub(crate) latencies: Vec<u64>,
}

impl Got {
    pub(crate) fn iops(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }

    pub(crate) fn mb_s(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e6
    }

    pub(crate) fn mean_us(&self) -> f64 {
        self.latencies.iter().sum::<u64>() as f64 / self.latencies.len() as f64 / 1000.0
    }

    /// 0.99: what 99 of 100 did not exceed.
    pub(crate) fn quantile_us(&self, part: f64) -> f64 {
        let last = self.latencies.len() - 1;
        self.latencies[(last as f64 * part) as usize] as f64 / 1000.0
    }
}

struct Slot {
    load: usize,
    began: Instant,
    flushing: bool,
}

/// Runs loads side by side on a disk that has seen `before` already; what each got in `time` after a tenth as much.
pub(crate) fn run(
    model: &mut dyn Model,
    loads: &[Load],
    from: Instant,
    time: Duration,
    seed: u64,
) -> (Vec<Got>, Instant) {
    let sectors = model.limits().capacity;
    let mut random = Random::new(seed);
    let mut cursors: Vec<u64> =
        (0..loads.len() as u64).map(|n| sectors / loads.len() as u64 * n / 2048 * 2048).collect();
    let mut got = vec![Got::default(); loads.len()];
    let measured = from + Duration::from_nanos(time.as_nanos() / 10);
    let stop = measured + time;
    let mut place = |load: &Load, cursor: &mut u64| {
        let length = load.block / 512;
        let span = (load.span / 512).min(sectors);
        if load.sequential {
            let start = if *cursor + length > span { 0 } else { *cursor };
            *cursor = start + length;
            Extent::new(Sector(start), length)
        } else {
            Extent::new(Sector(random.below(span / length) * length), length)
        }
    };
    let mut slots: Vec<Slot> = Vec::new();
    for (index, load) in loads.iter().enumerate() {
        for _ in 0..load.depth {
            let extent = place(load, &mut cursors[index]);
            let id = slots.len() as u64;
            slots.push(Slot { load: index, began: from, flushing: false });
            model.submit(from, &ModelRequest { id, op: load.op, flags: load.flags, extent });
        }
    }
    let mut ended: Vec<ModelCompletion> = Vec::new();
    let mut under_way = slots.len();
    let mut now = from;
    while under_way > 0 {
        now = model.poll_event().expect("something is under way");
        model.advance(now, &mut ended);
        for end in ended.drain(..) {
            let slot = &mut slots[end.id as usize];
            let load = &loads[slot.load];
            let next = if load.flushed && !slot.flushing {
                slot.flushing = true;
                ModelRequest { id: end.id, op: Op::Flush, flags: Flags::NONE, extent: Extent::NONE }
            } else {
                slot.flushing = false;
                if end.at >= measured && end.at < stop {
                    got[slot.load].bytes += load.block;
                    got[slot.load].latencies.push(end.at.since(slot.began).as_nanos());
                }
                if now >= stop {
                    under_way -= 1;
                    continue;
                }
                slot.began = now;
                let extent = place(load, &mut cursors[slot.load]);
                ModelRequest { id: end.id, op: load.op, flags: load.flags, extent }
            };
            model.submit(now, &next);
        }
    }
    for one in &mut got {
        one.seconds = time.as_nanos() as f64 / 1e9;
        one.latencies.sort_unstable();
    }
    (got, now)
}
