//! Tags under load: who gives them out fastest, who makes whom wait, and who is fair.
//!
//! ```text
//! cargo bench -p fairlift --bench tags -- [--model hold|device|device1us] [--threads 2,20,40] [--depth 2,4,…]
//!                                         [--only NAME,…] [--seconds 0.3] [--repeat 3] [--tasks] [--alone] [--runs]
//! ```
//! Repetitions go round all depths and contenders, so that a slow minute of the machine is not one depth's. Columns: million
//! tags a second, mean and standard deviation; then medians: p99 and the longest of the waits (of those that found no tag at
//! once); context switches for each tag; Jain's index over threads; and the machine's part: how long a cache line took from one
//! processor to the other and back, before or after the run, whichever was longer, and how many processors other programs kept
//! busy. `--runs`: a line for each run instead, as values between tabs.
//!
//! Those who wait are threads, or with `--tasks` tasks on two threads of a tokio runtime. Models: `hold` keeps a tag for 1 µs and gives it back; `device` puts it into a ring that one polling thread empties in
//! order, giving tags back (`device1us`: 1 µs for each).

mod contenders;
#[path = "../../../threads/tests/two_step/mod.rs"]
mod two_step;

/// Whose locks and atomics the counter-example uses.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

    pub(crate) use fairlift_core::sync::agree;

    /// Waits; a lost wake-up would end the benchmark, so after a while it looks again.
    pub(crate) fn wait<'a, T>(bell: &Condvar, guard: MutexGuard<'a, T>) -> (MutexGuard<'a, T>, bool) {
        let (guard, timeout) = bell.wait_timeout(guard, std::time::Duration::from_millis(20)).unwrap();
        (guard, timeout.timed_out())
    }
}

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use contenders::{ArrayPark, AsyncLock, Bare, Contender, CrateSbitmap, MutexVec, Ours, Shared, ToTasks, Tokio};
use crossbeam_queue::ArrayQueue;
use fairlift_core::stats::Histogram;
use two_step::TwoStep;

#[derive(Clone, Copy, PartialEq)]
enum Model {
    Hold,
    Device(u64),
}

const MODELS: [(&str, Model); 3] =
    [("hold", Model::Hold), ("device", Model::Device(0)), ("device1us", Model::Device(1000))];

/// What one run of one contender gave.
struct Cell {
    rate: f64,
    p99: f64,
    max: f64,
    switches: f64,
    jain: f64,
    /// How long a cache line took to the other processor and back, in ns.
    line: f64,
    /// Processors that other programs kept busy meanwhile.
    others: f64,
}

struct Options {
    models: Vec<&'static str>,
    threads: Vec<usize>,
    depths: Vec<usize>,
    only: Vec<String>,
    seconds: f64,
    repeat: usize,
    alone: bool,
    tasks: bool,
    runs: bool,
}

type Runner = fn(Model, usize, usize, f64) -> Cell;

const ALL: [(&str, Runner); 8] = [
    ("fairlift", run::<Ours>),
    ("  20 users", run::<Shared>),
    ("two-step", run::<TwoStep>),
    ("sbitmap+condvar", run::<CrateSbitmap>),
    ("mutex+condvar", run::<MutexVec>),
    ("array+park", run::<ArrayPark>),
    ("async-lock", run::<AsyncLock>),
    ("tokio", run::<Tokio>),
];

const TASKS: [(&str, Runner); 3] =
    [("fairlift", run_tasks::<Ours>), ("async-lock", run_tasks::<AsyncLock>), ("tokio", run_tasks::<Tokio>)];

fn main() {
    let options = options();
    if options.alone {
        return alone();
    }
    let (waiters, contenders): (_, &[(&str, Runner)]) =
        if options.tasks { ("tasks", &TASKS) } else { ("threads", &ALL) };
    let is_wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    if !options.runs {
        println!("M tags/s, mean ± deviation (p99 of waits / longest, µs; switches per tag; Jain; line, ns; others)\n");
    }
    for (model_name, model) in MODELS.iter().filter(|(name, _)| options.models.contains(name)) {
        for &threads in &options.threads {
            let mut cells: BTreeMap<(usize, usize), Vec<Cell>> = BTreeMap::new();
            for _ in 0..options.repeat {
                for &depth in &options.depths {
                    for (n, (name, run)) in contenders.iter().enumerate().filter(|(_, (name, _))| is_wanted(name)) {
                        let (before, load) = (line(), Load::now());
                        let cell = run(*model, depth, threads, options.seconds);
                        let others = load.of_others();
                        let cell = Cell { line: before.max(line()), others, ..cell };
                        if options.runs {
                            let Cell { rate, p99, max, switches, jain, line, others } = cell;
                            let name = name.trim();
                            println!(
                                "{model_name}\t{threads}\t{depth}\t{name}\t{rate}\t{p99}\t{max}\t{switches}\t{jain}\t{line}\t{others}"
                            );
                        }
                        cells.entry((depth, n)).or_default().push(cell);
                    }
                }
            }
            if !options.runs {
                println!("{model_name}, {threads} {waiters}");
                cells.iter().for_each(|((depth, n), cells)| show(*depth, contenders[*n].0, cells));
                println!();
            }
        }
    }
}

fn show(depth: usize, name: &str, cells: &[Cell]) {
    let of = |part: fn(&Cell) -> f64| median(cells.iter().map(part).collect());
    let mean = cells.iter().map(|c| c.rate).sum::<f64>() / cells.len() as f64;
    let squares: f64 = cells.iter().map(|c| (c.rate - mean).powi(2)).sum();
    println!(
        "  depth {depth:2}  {name:16} {mean:7.3} ± {:5.3}  ({:8.0} / {:8.0}; {:6.3}; {:5.3}; {:4.0}; {:4.2})",
        (squares / (cells.len() - 1).max(1) as f64).sqrt(),
        of(|c| c.p99),
        of(|c| c.max),
        of(|c| c.switches),
        of(|c| c.jain),
        of(|c| c.line),
        of(|c| c.others)
    );
}

/// How long a cache line takes to another processor and back, in ns: the least of ten times 1,000 rounds.
fn line() -> f64 {
    const ROUNDS: usize = 1000;
    let (ball, mut least) = (AtomicUsize::new(0), f64::INFINITY);
    let pass = |turns: std::ops::Range<usize>| {
        for turn in turns.step_by(2) {
            while ball.load(Ordering::Acquire) != turn {
                std::hint::spin_loop();
            }
            ball.store(turn + 1, Ordering::Release);
        }
    };
    for _ in 0..10 {
        ball.store(0, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| pass(1..2 * ROUNDS));
            pass(0..3); // the other has begun
            let started = Instant::now();
            pass(4..2 * ROUNDS);
            least = least.min(started.elapsed().as_nanos() as f64 / ROUNDS as f64);
        });
    }
    least
}

/// One contender, one model: threads that ask for tags as fast as they get them.
fn run<C: Contender>(model: Model, depth: usize, threads: usize, seconds: f64) -> Cell {
    let (tags, ring) = (C::new(depth), ArrayQueue::new(depth));
    let (stop, drained) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        if matches!(model, Model::Device(_)) {
            scope.spawn(|| complete(model, &tags, &ring, &drained));
        }
        let before = switches();
        let started = Instant::now();
        let (tags, ring, stop) = (&tags, &ring, &stop);
        let submitters: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut me = tags.me(thread);
                    let mut mine = Mine::default();
                    while !stop.load(Ordering::Relaxed) {
                        let tag = tags.try_get(&mut me).unwrap_or_else(|| {
                            let began = Instant::now();
                            let tag = tags.get(&mut me);
                            mine.waited(began.elapsed());
                            tag
                        });
                        mine.count += 1;
                        match model {
                            Model::Hold => {
                                spin(1000);
                                tags.put(tag);
                            }
                            Model::Device(_) => ring.push(tag).expect("no more tags than places"),
                        }
                    }
                    mine
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
        let all: Vec<_> = submitters.into_iter().map(|submitter| submitter.join().unwrap()).collect();
        let cell = cell(&all, started.elapsed(), switches() - before);
        drained.store(true, Ordering::Relaxed);
        cell
    })
}

/// The same with tasks on two threads of a runtime, and with blocking threads only where the device is.
fn run_tasks<C: ToTasks>(model: Model, depth: usize, tasks: usize, seconds: f64) -> Cell {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let shared = Arc::new((C::new(depth), ArrayQueue::new(depth), AtomicBool::new(false), AtomicBool::new(false)));
    let device = {
        let shared = Arc::clone(&shared);
        matches!(model, Model::Device(_))
            .then(|| std::thread::spawn(move || complete(model, &shared.0, &shared.1, &shared.3)))
    };
    let before = switches();
    let started = Instant::now();
    let submitters: Vec<_> = (0..tasks)
        .map(|task| {
            let shared = Arc::clone(&shared);
            runtime.spawn(async move {
                let (tags, ring, stop, _) = &*shared;
                let mut me = tags.me(task);
                let mut mine = Mine::default();
                while !stop.load(Ordering::Relaxed) {
                    let tag = match tags.try_get(&mut me) {
                        Some(tag) => tag,
                        None => {
                            let began = Instant::now();
                            let tag = tags.acquire(&mut me).await;
                            mine.waited(began.elapsed());
                            tag
                        }
                    };
                    mine.count += 1;
                    match model {
                        Model::Hold => {
                            spin(1000);
                            tags.put(tag);
                        }
                        Model::Device(_) => ring.push(tag).expect("no more tags than places"),
                    }
                }
                mine
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs_f64(seconds));
    shared.2.store(true, Ordering::Relaxed);
    let all = runtime.block_on(async {
        let mut all = Vec::new();
        for submitter in submitters {
            all.push(submitter.await.unwrap());
        }
        all
    });
    let cell = cell(&all, started.elapsed(), switches() - before);
    shared.3.store(true, Ordering::Relaxed);
    if let Some(device) = device {
        device.join().unwrap();
    }
    cell
}

/// The device: empties the ring in order, until `drained` is said and it is empty.
fn complete<C: Contender>(model: Model, tags: &C, ring: &ArrayQueue<u16>, drained: &AtomicBool) {
    let Model::Device(each) = model else { unreachable!() };
    while let Some(tag) = ring.pop().map(Some).or_else(|| (!drained.load(Ordering::Relaxed)).then_some(None)) {
        match tag {
            Some(tag) => {
                spin(each);
                tags.put(tag);
            }
            None => std::hint::spin_loop(),
        }
    }
}

/// What one submitter did.
#[derive(Default)]
struct Mine {
    count: u64,
    waits: Histogram,
    longest: Duration,
}

impl Mine {
    fn waited(&mut self, waited: Duration) {
        self.waits.record(fairlift_core::Duration::from_nanos(waited.as_nanos() as u64));
        self.longest = self.longest.max(waited);
    }
}

fn cell(all: &[Mine], took: Duration, switches: i64) -> Cell {
    let mut waits = Histogram::default();
    all.iter().for_each(|mine| waits.add(&mine.waits));
    let longest = all.iter().map(|mine| mine.longest).max().unwrap_or_default();
    let total: f64 = all.iter().map(|mine| mine.count as f64).sum();
    let squares: f64 = all.iter().map(|mine| (mine.count as f64).powi(2)).sum();
    Cell {
        rate: total / took.as_secs_f64() / 1e6,
        p99: waits.quantile(990).as_nanos() as f64 / 1e3,
        max: longest.as_nanos() as f64 / 1e3,
        switches: switches as f64 / total,
        jain: total * total / (all.len() as f64 * squares),
        line: 0.0,
        others: 0.0,
    }
}

/// Nobody else there: what taking a tag and giving it back costs.
fn alone() {
    fn time<C: Contender>(name: &str) {
        let mut cells = Vec::new();
        for depth in [1, 2, 8, 64, 256] {
            let tags = C::new(depth);
            let mut me = tags.me(0);
            let mut runs = Vec::new();
            for _ in 0..100 {
                let started = Instant::now();
                for _ in 0..50_000 {
                    let tag = tags.try_get(&mut me).unwrap();
                    tags.put(std::hint::black_box(tag));
                }
                runs.push(started.elapsed().as_nanos() as f64 / 5e4);
            }
            // The least of many short runs: the one that nobody else disturbed.
            cells.push(format!("{:6.1}", runs.into_iter().fold(f64::INFINITY, f64::min)));
        }
        println!("  {name:16} {}", cells.join(" "));
    }
    println!("ns for one get and put, alone, at depth 1, 2, 8, 64, 256");
    let word = AtomicUsize::new(0);
    let mut pair = f64::INFINITY;
    for _ in 0..100 {
        let started = Instant::now();
        for _ in 0..50_000 {
            std::hint::black_box(word.fetch_or(1, Ordering::SeqCst) & 1);
            std::hint::black_box(word.fetch_and(!1, Ordering::SeqCst) & 1);
        }
        pair = pair.min(started.elapsed().as_nanos() as f64 / 5e4);
    }
    println!("  one atomic pair  {pair:6.1}");
    time::<Ours>("fairlift");
    time::<Bare>("its bitmap");
    time::<TwoStep>("two-step");
    time::<CrateSbitmap>("sbitmap");
    time::<MutexVec>("mutex");
    time::<ArrayPark>("array");
    time::<AsyncLock>("async-lock");
    time::<Tokio>("tokio");
}

/// Keeps the CPU for so many nanoseconds.
fn spin(nanos: u64) {
    if nanos > 0 {
        let until = Instant::now() + Duration::from_nanos(nanos);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }
}

/// Context switches of this process so far, of its own accord or not.
fn switches() -> i64 {
    let usage = usage();
    usage.ru_nvcsw + usage.ru_nivcsw
}

fn usage() -> libc::rusage {
    // SAFETY: `rusage` is plain numbers, for which zeroes are valid; the call fills in the one that it is given.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    }
}

/// How busy the machine was until now, and this process.
struct Load {
    at: Instant,
    all: f64,
    own: f64,
}

impl Load {
    fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").expect("Linux");
        let of_all: Vec<f64> =
            stat.lines().next().expect("all processors").split_whitespace().skip(1).flat_map(str::parse).collect();
        // All but idle, waiting for I/O, and what guests had (which user time has already); in hundredths of a second.
        let all = [0, 1, 2, 5, 6, 7].iter().map(|at| of_all[*at]).sum::<f64>() / 100.0;
        let usage = usage();
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Self { at: Instant::now(), all, own: seconds(usage.ru_utime) + seconds(usage.ru_stime) }
    }

    /// The processors that others kept busy since.
    fn of_others(&self) -> f64 {
        let now = Self::now();
        ((now.all - self.all) - (now.own - self.own)).max(0.0) / now.at.duration_since(self.at).as_secs_f64()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs a future on this thread, which sleeps while it waits.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn options() -> Options {
    let mut options = Options {
        models: vec!["hold", "device"],
        threads: vec![2, 20, 40],
        depths: vec![2, 4, 8, 16, 32, 64],
        only: Vec::new(),
        seconds: 0.3,
        repeat: 3,
        alone: false,
        tasks: false,
        runs: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        let numbers = |text: String| text.split(',').map(|n| n.parse().expect("a number")).collect();
        match arg.as_str() {
            "--model" => {
                let began = value();
                options.models =
                    MODELS.iter().map(|(name, _)| *name).filter(|name| began.split(',').any(|a| a == *name)).collect();
            }
            "--threads" => options.threads = numbers(value()),
            "--depth" => options.depths = numbers(value()),
            "--only" => options.only = value().split(',').map(String::from).collect(),
            "--seconds" => options.seconds = value().parse().expect("seconds"),
            "--repeat" => options.repeat = value().parse().expect("a number"),
            "--alone" => options.alone = true,
            "--tasks" => options.tasks = true,
            "--runs" => options.runs = true,
            "--bench" => {}
            other => panic!("unknown option {other}"),
        }
    }
    options
}
