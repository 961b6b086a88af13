//! The cost of one request: submit, dispatch, completion, news; wall time.
//!
//! `cargo bench -p fairlift-core --bench request` measures ns; the same binary with `--count KIND STREAMS` does a fixed
//! number of requests and nothing else, for `benches/instructions.sh`.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use fairlift_core::queue::Settings;
use fairlift_core::sched::Kind;
use fairlift_core::time::us;
use fairlift_core::*;
use fairlift_lab::Random;

const CONTEXT: ContextId = ContextId(0);
/// Requests that wait or are in flight all the time.
const QUEUED: u64 = 256;
const DEPTH: u16 = 32;
/// What a worker takes in at a time.
const BATCH: usize = 32;

/// A disk that always has `QUEUED` random 4 KiB reads to do.
struct Load {
    queue: Queue,
    streams: Vec<StreamId>,
    random: Random,
    now: Instant,
    in_flight: Vec<Tag>,
    next: usize,
}

impl Load {
    fn new(kind: Kind, streams: usize) -> Self {
        let limits = Limits::new(1 << 31);
        let mut queue = Queue::new(Settings { depth: DEPTH, nr_requests: 1024, ..Settings::new(kind, limits) });
        let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context: CONTEXT };
        let streams = (0..streams).map(|_| queue.add_stream(stream)).collect();
        let random = Random::new(1);
        let mut load = Self { queue, streams, random, now: Instant::ZERO, in_flight: vec![], next: 0 };
        (0..QUEUED).for_each(|_| load.submit());
        load
    }

    fn submit(&mut self) {
        let extent = Extent::new(Sector(self.random.below(1 << 28) * 8), 8);
        self.next = if self.next + 1 == self.streams.len() { 0 } else { self.next + 1 };
        let stream = self.streams[self.next];
        let bio = Bio { op: Op::Read, flags: Flags::SYNC, extent, stream, token: Token(7) };
        self.queue.submit(self.now, bio).expect("there is room");
    }

    /// One turn of a worker: a batch ends, as many come, and the device is filled again.
    fn turn(&mut self) {
        self.now += us(100);
        for tag in self.in_flight.drain(..) {
            self.queue.handle_completion(self.now, tag, Outcome::Done);
        }
        while let Some(news) = self.queue.poll_finished(CONTEXT) {
            black_box(news);
            self.submit();
        }
        while let Some(request) = self.queue.poll_dispatch(self.now, CONTEXT) {
            self.in_flight.push(black_box(request).tag);
        }
        while self.queue.poll_wake().is_some() {}
    }
}

fn main() {
    let args: Vec<_> = std::env::args().collect();
    if let [_, flag, kind, streams, turns, ..] = &args[..]
        && flag == "--count"
    {
        let mut load = Load::new(Kind::from_name(kind).expect("a scheduler"), streams.parse().expect("a number"));
        (0..turns.parse::<u32>().expect("a number")).for_each(|_| load.turn());
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    for kind in Kind::ALL {
        let mut group = criterion.benchmark_group(kind.name());
        group.throughput(Throughput::Elements(BATCH as u64)).measurement_time(Duration::from_secs(3));
        for streams in [1, 8, 64, 512] {
            let mut load = Load::new(kind, streams);
            load.turn();
            group.bench_function(BenchmarkId::from_parameter(streams), |b| b.iter(|| load.turn()));
        }
        group.finish();
    }
    criterion.final_summary();
}
