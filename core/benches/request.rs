//! The cost of one request: submit, dispatch, completion, news; wall time.
//!
//! `cargo bench -p fairlift-core --bench request` measures ns; the same binary with `--count KIND STREAMS TURNS` does a
//! fixed number of requests and nothing else, for `benches/instructions.sh`; with `in-order` each stream reads on in a place
//! of its own, and `KEY=VALUE` turns a tunable.

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
    /// By stream, in blocks, if each reads on.
    in_order: Option<Vec<u64>>,
}

impl Load {
    fn new(kind: Kind, streams: usize) -> Self {
        let limits = Limits::new(1 << 31);
        let mut queue = Queue::new(Settings { depth: DEPTH, nr_requests: 1024, ..Settings::new(kind, limits) });
        let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context: CONTEXT };
        let streams = (0..streams).map(|_| queue.add_stream(stream)).collect();
        let random = Random::new(1);
        Self { queue, streams, random, now: Instant::ZERO, in_flight: vec![], next: 0, in_order: None }
    }

    fn start(mut self) -> Self {
        (0..QUEUED).for_each(|_| self.submit());
        self
    }

    /// Each stream reads on, every second block, in a place of its own.
    fn in_order(&mut self) {
        let apart = (1 << 28) / self.streams.len() as u64;
        self.in_order = Some((0..self.streams.len() as u64).map(|stream| stream * apart).collect());
    }

    fn submit(&mut self) {
        self.next = if self.next + 1 == self.streams.len() { 0 } else { self.next + 1 };
        let block = match &mut self.in_order {
            None => self.random.below(1 << 28),
            Some(places) => {
                places[self.next] = (places[self.next] + 2) % (1 << 28);
                places[self.next]
            }
        };
        let extent = Extent::new(Sector(block * 8), 8);
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
    if let [_, flag, kind, streams, turns, rest @ ..] = &args[..]
        && flag == "--count"
    {
        let mut load = Load::new(Kind::from_name(kind).expect("a scheduler"), streams.parse().expect("a number"));
        for word in rest {
            match word.split_once('=') {
                Some((key, value)) => load.queue.set_tunable(key, value).expect("a tunable"),
                None if word == "in-order" => load.in_order(),
                None => panic!("in-order or KEY=VALUE, not {word}"),
            }
        }
        let mut load = load.start();
        (0..turns.parse::<u32>().expect("a number")).for_each(|_| load.turn());
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    for kind in Kind::ALL {
        let mut group = criterion.benchmark_group(kind.name());
        group.throughput(Throughput::Elements(BATCH as u64)).measurement_time(Duration::from_secs(3));
        for streams in [1, 8, 64, 512] {
            let mut load = Load::new(kind, streams).start();
            load.turn();
            group.bench_function(BenchmarkId::from_parameter(streams), |b| b.iter(|| load.turn()));
        }
        group.finish();
    }
    criterion.final_summary();
}
