//! The cost of one request: submit, dispatch, completion, news; and the memory of one stream.
//!
//! `cargo bench -p fairlift-core --bench request [-- FILTER]` measures ns. The same binary does one thing and nothing else:
//!
//! - `--count SCHEDULER STREAMS GROUPS TURNS [KEY=VALUE...]`: so many turns of 32 requests, for `benches/instructions.sh`;
//! - `--memory [SCHEDULER...]`: bytes for each stream, as a Markdown table.
//!
//! `KEY=VALUE` is a tunable, `rotational=1`, `in_order=1`: each stream reads on in a place of its own, `floor=N`: each group has
//! a floor of N reads a second, `ceiling=N`: and a ceiling, or `again=1`: who is answered asks again. Otherwise streams ask in turn, whoever is answered: then those of heavy groups seldom have more than
//! one request waiting, and nearly every turn of a fair scheduler is one request, which is the worst case. Streams are spread
//! over the groups, which have weights from 100 to 800 and are below the root; 0 groups: all streams are in the root.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use fairlift_core::ceiling::{Budget, Ceiling, Rate, Rates};
use fairlift_core::queue::{Bound, Finished, Settings};
use fairlift_core::sched::Kind;
use fairlift_core::time::us;
use fairlift_core::*;
use fairlift_lab::Random;

#[path = "../tests/counting/mod.rs"]
mod counting;

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
    /// How many more than were asked for have ended in the turns so far.
    surplus: usize,
    /// By stream, in blocks, if each reads on.
    in_order: Option<Vec<u64>>,
    /// Who is answered asks again.
    again: bool,
}

impl Load {
    fn new(kind: Kind, streams: usize, groups: u16, set: &[&str]) -> Self {
        let mut settings = Settings { depth: DEPTH, nr_requests: 1024, ..Settings::new(kind, Limits::new(1 << 31)) };
        settings.groups.extend((0..groups).map(|n| Group {
            path: format!("/g{n}"),
            parent: Some(GroupId::ROOT),
            weight: Weight::new(100 * (1 + n % 8)),
        }));
        // Words of this bench, and then tunables.
        settings.character.rotational = set.contains(&"rotational=1");
        let of_queue = |pair: &(&str, &str)| !["rotational", "in_order", "again", "floor", "ceiling"].contains(&pair.0);
        let mut queue = Queue::new(settings);
        for (name, value) in set.iter().filter_map(|pair| pair.split_once('=')).filter(of_queue) {
            queue.set_tunable(name, value).expect("a tunable and its value");
        }
        let amount = |word: &str| set.iter().find_map(|pair| pair.strip_prefix(word)?.strip_prefix('=')?.parse().ok());
        for id in (1..=groups).map(GroupId) {
            let mut bound = Bound::default();
            if let Some(amount) = amount("floor") {
                bound.floor = Rates::NONE.with(Rate::Riops, amount);
            }
            if let Some(amount) = amount("ceiling") {
                let budget = Budget::new(&Ceiling::of(Rates::NONE.with(Rate::Riops, amount)));
                bound.budget = Some(Arc::new(budget));
            }
            queue.bind(Instant::ZERO, id, &bound);
        }
        let stream = |n: usize| {
            let group = if groups == 0 { 0 } else { 1 + n % usize::from(groups) };
            Stream { group: GroupId(group as u16), priority: Priority::default(), context: CONTEXT }
        };
        // Each stream reads on, every second block, in a place of its own.
        let places = || (0..streams as u64).map(|n| n * ((1 << 28) / streams as u64)).collect();
        let in_order = set.contains(&"in_order=1").then(places);
        let streams = (0..streams).map(|n| queue.add_stream(stream(n))).collect();
        Self {
            queue,
            streams,
            random: Random::new(1),
            now: Instant::ZERO,
            in_flight: vec![],
            next: 0,
            surplus: 0,
            in_order,
            again: set.contains(&"again=1"),
        }
    }

    fn filled(kind: Kind, streams: usize, groups: u16, set: &[&str]) -> Self {
        let mut load = Self::new(kind, streams, groups, set);
        (0..QUEUED).for_each(|_| load.submit());
        load
    }

    /// The next stream asks.
    fn submit(&mut self) {
        self.next = if self.next + 1 == self.streams.len() { 0 } else { self.next + 1 };
        self.ask(self.next);
    }

    fn ask(&mut self, nth: usize) {
        let block = match &mut self.in_order {
            None => self.random.below(1 << 28),
            Some(places) => {
                places[nth] = (places[nth] + 2) % (1 << 28);
                places[nth]
            }
        };
        let extent = Extent::new(Sector(block * 8), 8);
        let stream = self.streams[nth];
        let bio = Bio { op: Op::Read, flags: Flags::SYNC, extent, stream, token: Token(nth as u64) };
        self.queue.submit(self.now, bio).expect("there is room");
    }

    /// A worker's turns until a batch has ended and as many have come: one, unless the scheduler keeps the disk for someone.
    /// What ended beyond that counts in the next.
    fn turn(&mut self) {
        let mut ended = self.surplus;
        while ended < BATCH {
            self.now += us(100);
            if self.in_flight.is_empty()
                && let Some(at) = self.queue.poll_timeout()
            {
                self.now = self.now.max(at);
            }
            for tag in self.in_flight.drain(..) {
                self.queue.handle_completion(self.now, tag, Outcome::Done);
            }
            while let Some(news) = self.queue.poll_finished(CONTEXT) {
                ended += 1;
                match black_box(news) {
                    Finished::Done(Token(nth), _) if self.again => self.ask(nth as usize),
                    _ => self.submit(),
                }
            }
            while let Some(request) = self.queue.poll_dispatch(self.now, CONTEXT) {
                self.in_flight.push(black_box(request).tag);
            }
            while self.queue.poll_wake().is_some() {}
        }
        self.surplus = ended - BATCH;
    }
}

/// What streams take: when they come, when each has read once, and when all have gone and others come.
fn memory(kinds: &[Kind]) {
    const STREAMS: i64 = 8192; // A power of two, for tables double when they are full.
    println!("Bytes for each of {STREAMS} streams in 8 groups, with none of their requests under way.\n");
    println!("| scheduler | never used | has read once | of that the scheduler's |\n|---|---|---|---|");
    let mut own = None;
    for kind in kinds {
        let before = counting::bytes();
        let mut load = Load::new(*kind, 1, 8, &[]);
        load.streams.reserve_exact(STREAMS as usize);
        let with_one = counting::bytes();
        let group = |n: i64| GroupId(1 + (n % 8) as u16);
        for n in 1..STREAMS {
            let stream = Stream { group: group(n), priority: Priority::default(), context: CONTEXT };
            load.streams.push(load.queue.add_stream(stream));
        }
        let unused = counting::bytes() - with_one;
        for _ in 0..STREAMS {
            load.submit();
            while load.in_flight.is_empty() {
                load.now += us(100);
                while let Some(request) = load.queue.poll_dispatch(load.now, CONTEXT) {
                    load.in_flight.push(request.tag);
                }
            }
            for tag in std::mem::take(&mut load.in_flight) {
                load.queue.handle_completion(load.now, tag, Outcome::Done);
            }
            while load.queue.poll_finished(CONTEXT).is_some() {}
        }
        let used = counting::bytes() - with_one;
        let base = *own.get_or_insert(used);
        println!("| {} | {} | {} | {} |", kind.name(), unused / STREAMS, used / STREAMS, (used - base) / STREAMS);
        drop(load);
        assert_eq!(counting::bytes(), before, "all of it is given back");
    }
}

fn kind(name: &str) -> Kind {
    Kind::from_name(name).unwrap_or_else(|| panic!("no scheduler {name}"))
}

fn main() {
    let args: Vec<_> = std::env::args().collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().unwrap_or_else(|_| panic!("no number: {text}"));
    match &args[1..] {
        ["--count", name, streams, groups, turns, set @ ..] => {
            let mut load = Load::filled(kind(name), number(streams), number(groups) as u16, set);
            (0..number(turns)).for_each(|_| load.turn());
        }
        ["--memory"] => memory(&Kind::ALL),
        ["--memory", names @ ..] => memory(&names.iter().map(|name| kind(name)).collect::<Vec<_>>()),
        _ => time(),
    }
}

fn time() {
    let mut criterion = Criterion::default().configure_from_args();
    for kind in Kind::ALL {
        let mut group = criterion.benchmark_group(kind.name());
        let (warm_up, measurement) = (Duration::from_millis(500), Duration::from_secs(2));
        group.throughput(Throughput::Elements(BATCH as u64)).warm_up_time(warm_up).measurement_time(measurement);
        for (streams, groups) in [1, 64, 10_000].into_iter().flat_map(|n| [(n, 0), (n, 8), (n, 1000)]) {
            let id = BenchmarkId::from_parameter(format!("{streams} streams, {groups} groups"));
            group.bench_function(id, |b| {
                let mut load = Load::filled(kind, streams, groups, &[]);
                (0..=streams / BATCH).for_each(|_| load.turn());
                b.iter(|| load.turn());
            });
        }
        group.finish();
    }
    criterion.final_summary();
}
