//! Flushes against a dull model: a set of writes that are durable, and who was promised what.
//!
//! The state machine alone, then queues on top of it: one, and two that share. `FAIRLIFT_SEEDS` is how many runs of each.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};

use fairlift_core::flush::{Contexts, Flush, Round, Settings, SharedFlush, Start};
use fairlift_core::queue::{self, Backing};
use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, secs, us};
use fairlift_core::*;
use fairlift_lab::Random;
use fairlift_lab::repeat::seeds;

// ---- the state machine ----

/// What is asked of a coordinator here.
trait Coordinator {
    fn wrote(&mut self);
    fn ask(&mut self, now: Instant) -> Round;
    fn cancel(&mut self, round: Round);
    fn poll_start(&mut self, now: Instant) -> Start;
    fn start(&mut self, now: Instant);
    fn end(&mut self, now: Instant, outcome: Outcome);
    fn take(&mut self, round: Round) -> Option<Outcome>;
}

impl Coordinator for Flush {
    fn wrote(&mut self) {
        self.dirty().mark();
    }
    fn ask(&mut self, now: Instant) -> Round {
        Flush::ask(self, now, ContextId(0))
    }
    fn cancel(&mut self, round: Round) {
        Flush::cancel(self, round);
    }
    fn poll_start(&mut self, now: Instant) -> Start {
        Flush::poll_start(self, now)
    }
    fn start(&mut self, now: Instant) {
        Flush::start(self, now);
    }
    fn end(&mut self, now: Instant, outcome: Outcome) {
        Flush::end(self, now, outcome);
    }
    fn take(&mut self, round: Round) -> Option<Outcome> {
        Flush::take(self, round)
    }
}

/// The broken twins: ours, but for one thing.
struct Twin {
    inner: Flush,
    breaks: Breaks,
    running: Option<Round>,
    forgot: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Breaks {
    /// Who asks while a flush is under way is told with that one.
    JoinsTheRunningOne,
    /// What was written while a flush was under way counts as flushed by it.
    CleansTooMuch,
    /// After a failed flush nothing counts as left to flush.
    ForgetsFailures,
}

impl Coordinator for Twin {
    fn wrote(&mut self) {
        if self.breaks != Breaks::CleansTooMuch || self.running.is_none() {
            self.inner.dirty().mark();
        }
    }
    fn ask(&mut self, now: Instant) -> Round {
        let round = self.inner.ask(now, ContextId(0));
        match self.running {
            Some(running) if self.breaks == Breaks::JoinsTheRunningOne => {
                self.inner.cancel(round);
                running
            }
            _ => round,
        }
    }
    fn cancel(&mut self, round: Round) {
        self.inner.cancel(round);
    }
    fn poll_start(&mut self, now: Instant) -> Start {
        if self.forgot && self.inner.poll_start(now) == Start::Now {
            self.forgot = false;
            self.inner.start(now);
            self.inner.end(now, Outcome::Done);
            return Start::Spared(Contexts(0));
        }
        self.inner.poll_start(now)
    }
    fn start(&mut self, now: Instant) {
        self.running = Some(self.inner.start(now));
    }
    fn end(&mut self, now: Instant, outcome: Outcome) {
        self.running = None;
        self.forgot = self.breaks == Breaks::ForgetsFailures && outcome != Outcome::Done;
        self.inner.end(now, outcome);
    }
    fn take(&mut self, round: Round) -> Option<Outcome> {
        self.inner.take(round)
    }
}

/// Who asked for a flush.
struct Waiter {
    round: Round,
    /// Writes that had ended when it asked.
    covers: u64,
    /// Device flushes that had started then.
    started: u64,
}

/// One run. Writes are numbered in the order in which they end; `durable` is up to where they are safe.
fn run_coordinator(flush: &mut dyn Coordinator, seed: u64, remember: bool) {
    let mut random = Random::new(seed);
    let mut now = Instant::ZERO;
    let (mut written, mut durable) = (1_u64, 0_u64); // one from before we came
    let (mut started, mut running, mut failed) = (0, None::<u64>, false);
    let mut last_good_start = None;
    let mut waiters: Vec<Waiter> = Vec::new();
    for step in 0..150 {
        now += us(random.below(2000));
        let is_last = step > 140;
        match random.below(if is_last { 1 } else { 10 }) {
            // The device answers.
            0 | 1 => {
                if let Some(covers) = running.take() {
                    let outcome = if random.below(6) == 0 { Outcome::Failed(Errno::EIO) } else { Outcome::Done };
                    flush.end(now, outcome);
                    match outcome {
                        Outcome::Done => {
                            last_good_start = Some(covers);
                            if !failed || !remember {
                                durable = durable.max(covers);
                            }
                        }
                        Outcome::Failed(_) => failed = true,
                    }
                    // All who shared it hear the same, and nobody else hears anything.
                    let expected = if failed && remember { Outcome::Failed(Errno::EIO) } else { outcome };
                    waiters.retain(|waiter| {
                        let answered = flush.take(waiter.round);
                        let shares = waiter.started < started;
                        assert_eq!(answered, shares.then_some(expected), "seed {seed}, step {step}");
                        if answered == Some(Outcome::Done) {
                            assert!(waiter.covers <= durable, "seed {seed}, step {step}: told too early");
                        }
                        assert!(waiter.started + 2 >= started, "seed {seed}: three flushes for one");
                        answered.is_none()
                    });
                }
            }
            2..=4 => {
                written += 1;
                flush.wrote();
            }
            5 if !waiters.is_empty() => {
                let waiter = waiters.swap_remove(random.below(waiters.len() as u64) as usize);
                flush.cancel(waiter.round);
            }
            _ => waiters.push(Waiter { round: flush.ask(now), covers: written, started }),
        }
        match flush.poll_start(now) {
            Start::Now => {
                assert!(running.is_none() && !waiters.is_empty(), "seed {seed}, step {step}: for nobody, or a second");
                flush.start(now);
                (running, started) = (Some(written), started + 1);
            }
            Start::Spared(_) => {
                assert!(running.is_none(), "seed {seed}");
                assert_eq!(last_good_start, Some(written), "seed {seed}, step {step}: something was left to flush");
                assert!(durable == written, "seed {seed}, step {step}: told too early");
                for waiter in waiters.drain(..) {
                    assert_eq!(flush.take(waiter.round), Some(Outcome::Done), "seed {seed}, step {step}");
                }
            }
            Start::At(_) => assert!(running.is_none()),
            Start::No => assert!(running.is_some() || waiters.is_empty(), "seed {seed}, step {step}: nobody moves"),
        }
    }
}

fn settings(remember: bool, group_commit: u32) -> Settings {
    Settings { remember, group_commit, ..Settings::default() }
}

#[test]
fn nobody_is_told_too_early_too_late_or_what_is_another_s() {
    for seed in seeds(0..2000) {
        let (remember, group_commit) = (seed % 2 == 0, [0, 250][seed as usize / 2 % 2]);
        run_coordinator(&mut Flush::new(settings(remember, group_commit), true), seed, remember);
    }
}

#[test]
fn the_model_finds_each_broken_twin() {
    for breaks in [Breaks::JoinsTheRunningOne, Breaks::CleansTooMuch, Breaks::ForgetsFailures] {
        let finds = |seed| {
            let inner = Flush::new(settings(false, 0), true);
            let mut twin = Twin { inner, breaks, running: None, forgot: false };
            catch_unwind(move || run_coordinator(&mut twin, seed, false)).is_err()
        };
        assert!((0..20).any(finds), "{breaks:?} goes unnoticed");
    }
}

// ---- the queue ----

#[derive(Debug)]
struct Shared(Mutex<Flush>);

impl SharedFlush for Shared {
    fn with(&self, act: &mut dyn FnMut(&mut Flush)) {
        act(&mut self.0.lock().unwrap());
    }
}

/// The second backing starts here.
const SECOND: u64 = 4096;

/// What the device has.
struct InDevice {
    queue: usize,
    dispatch: Dispatch,
    /// The writes in it, or those that a flush covers.
    writes: BTreeSet<u64>,
}

/// A bio that has not ended.
struct Open {
    op: Op,
    flags: Flags,
    backing: usize,
    /// Sectors that the device has not ended.
    left: u64,
    /// Writes to its backing that had been told to have ended when it was asked for.
    before: BTreeSet<u64>,
    /// Whether a flush had failed by then.
    failed: bool,
}

/// What is true of a backing.
#[derive(Default)]
struct Truth {
    /// Writes that the device has ended, those told to have, and those that are durable.
    ended: BTreeSet<u64>,
    answered: BTreeSet<u64>,
    durable: BTreeSet<u64>,
    flushing: usize,
    failed: bool,
}

struct Runner {
    seed: u64,
    remember: bool,
    queues: Vec<Queue>,
    streams: Vec<StreamId>,
    device: Vec<InDevice>,
    open: Vec<Option<Open>>,
    truth: [Truth; 2],
    now: Instant,
    late: BTreeSet<u64>,
    /// Who has a reason to look at its queue: something of its own, or it was woken. Nobody else looks.
    woken: [bool; 2],
}

impl Runner {
    fn new(seed: u64, count: usize) -> Self {
        let remember = seed.is_multiple_of(2);
        let flush = settings(remember, if seed.is_multiple_of(3) { 250 } else { 0 });
        let share = |volatile| -> Option<Arc<dyn SharedFlush>> {
            (count > 1)
                .then(|| Arc::new(Shared(Mutex::new(Flush::new(flush.clone(), volatile)))) as Arc<dyn SharedFlush>)
        };
        let backings = vec![
            Backing { fua: false, flush: share(true), ..Backing::default() },
            Backing { start: Sector(SECOND), flush: share(true), ..Backing::default() },
        ];
        let kind = if count > 1 || seed.is_multiple_of(5) { Kind::None } else { Kind::MqDeadline };
        let limits = Limits { rw_max: 16, discard_max: 32, ..Limits::new(2 * SECOND) };
        let small = seed.is_multiple_of(7);
        let queues = (0..count).map(|_| {
            let mut settings = queue::Settings { contexts: 2, ..queue::Settings::new(kind, limits) };
            (settings.backings, settings.flush, settings.io_timeout) = (backings.clone(), flush.clone(), secs(3600));
            (settings.depth, settings.nr_requests) = if small { (1, 1) } else { (4, 8) };
            Queue::new(settings)
        });
        let mut queues: Vec<_> = queues.collect();
        let streams = (0..2).map(|number: usize| {
            let context = ContextId(number as u16);
            let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context };
            queues[number % count].add_stream(stream)
        });
        let streams = streams.collect();
        let (device, open, late) = (Vec::new(), Vec::new(), BTreeSet::new());
        let (truth, now) = (Default::default(), Instant::ZERO);
        Self { seed, remember, queues, streams, device, open, truth, now, late, woken: [true; 2] }
    }

    fn submit(&mut self, client: usize, op: Op, flags: Flags, start: u64, sectors: u64) {
        let token = self.open.len() as u64;
        let backing = usize::from(start >= SECOND);
        let extent = Extent::new(Sector(start), if op == Op::Flush { 0 } else { sectors });
        let bio = Bio { op, flags, extent, stream: self.streams[client], token: Token(token) };
        let queue = client % self.queues.len();
        self.woken[client] = true;
        if self.queues[queue].submit(self.now, bio).is_ok() {
            let truth = &self.truth[backing];
            self.open.push(Some(Open {
                op,
                flags,
                backing,
                left: extent.sectors,
                before: truth.answered.clone(),
                failed: truth.failed,
            }));
        }
    }

    fn dispatch(&mut self) {
        for client in 0..2 {
            let queue = client % self.queues.len();
            if self.queues[queue].poll_timeout().is_some_and(|at| at <= self.now) {
                self.queues[queue].handle_timeout(self.now);
                self.woken[client] = true;
            }
            if !std::mem::take(&mut self.woken[client]) {
                continue;
            }
            while let Some(dispatch) = self.queues[queue].poll_dispatch(self.now, ContextId(client as u16)) {
                let backing = usize::from(dispatch.extent.start.0 >= SECOND);
                let truth = &mut self.truth[backing];
                let writes = if dispatch.op == Op::Flush {
                    truth.flushing += 1;
                    assert_eq!(truth.flushing, 1, "seed {}: two flushes of a backing at once", self.seed);
                    truth.ended.clone()
                } else {
                    self.queues[queue].segments(dispatch.tag).map(|segment| segment.token.0).collect()
                };
                for token in writes.iter().filter(|_| dispatch.op == Op::Write) {
                    let open = self.open[*token as usize].as_ref().expect("it is open");
                    assert!(
                        !open.flags.contains(Flags::PREFLUSH) || open.before.is_subset(&truth.durable),
                        "seed {}: data before its preflush",
                        self.seed
                    );
                    // The first backing has no FUA of its own.
                    assert!(backing == 1 || !dispatch.flags.contains(Flags::FUA));
                }
                self.device.push(InDevice { queue, dispatch, writes });
            }
            self.hear(client);
        }
    }

    fn complete(&mut self, index: usize, fails: bool) {
        let InDevice { queue, dispatch, writes } = self.device.swap_remove(index);
        let outcome = if fails { Outcome::Failed(Errno::EIO) } else { Outcome::Done };
        let backing = usize::from(dispatch.extent.start.0 >= SECOND);
        let truth = &mut self.truth[backing];
        let segments: Vec<_> = self.queues[queue].segments(dispatch.tag).collect();
        match dispatch.op {
            Op::Flush => {
                truth.flushing -= 1;
                truth.failed |= fails;
                let is_forgiven = !self.remember || !truth.failed;
                if !fails && is_forgiven {
                    truth.durable.extend(&writes);
                }
            }
            Op::Read => {}
            Op::Write | Op::Discard | Op::WriteZeroes => {
                for segment in segments {
                    let open = self.open[segment.token.0 as usize].as_mut().expect("it is open");
                    open.left -= segment.bytes.sectors();
                    if open.left == 0 {
                        truth.ended.insert(segment.token.0);
                    }
                }
                if !fails && dispatch.flags.contains(Flags::FUA) {
                    self.late.extend(&writes);
                }
            }
        }
        self.queues[queue].handle_completion(self.now, dispatch.tag, outcome);
        (0..2).filter(|client| client % self.queues.len() == queue).for_each(|client| self.woken[client] = true);
    }

    /// Takes in a client's news.
    fn hear(&mut self, client: usize) {
        let queue = client % self.queues.len();
        while let Some(news) = self.queues[queue].poll_finished(ContextId(client as u16)) {
            let Finished::Done(Token(token), outcome) = news else { panic!("nothing takes that long") };
            let Open { op, flags, backing, before, failed, .. } =
                self.open[token as usize].take().expect("it ends once");
            let truth = &mut self.truth[backing];
            if outcome != Outcome::Done {
                continue;
            }
            match op {
                Op::Flush => {
                    assert!(before.is_subset(&truth.durable), "seed {}: flush {token} told too early", self.seed);
                    assert!(!(self.remember && failed), "seed {}: a failure is forgotten", self.seed);
                }
                Op::Read => {}
                Op::Write | Op::Discard | Op::WriteZeroes => {
                    truth.answered.insert(token);
                    if backing == 1 && op == Op::Write && flags.contains(Flags::FUA) {
                        assert!(self.late.contains(&token));
                        truth.durable.insert(token);
                    }
                    if flags.contains(Flags::FUA) {
                        assert!(truth.durable.contains(&token), "seed {}: {token} is not durable", self.seed);
                    }
                }
            }
        }
        while let Some(ContextId(woken)) = self.queues[queue].poll_wake() {
            self.woken[usize::from(woken)] |= usize::from(woken) != client;
        }
    }
}

fn run_queues(seed: u64, count: usize) {
    let mut random = Random::new(seed);
    let mut runner = Runner::new(seed, count);
    for _ in 0..120 {
        runner.now += us(random.below(500));
        match random.below(8) {
            0..=3 => {
                let op = [Op::Write, Op::Write, Op::Flush, Op::Flush, Op::Discard, Op::Read][random.below(6) as usize];
                let mut flags = Flags::NONE;
                if op != Op::Read && random.below(3) == 0 {
                    flags |= Flags::FUA;
                }
                if op == Op::Write && random.below(4) == 0 {
                    flags |= Flags::PREFLUSH;
                }
                let client = random.below(2) as usize;
                runner.submit(
                    client,
                    op,
                    flags,
                    random.below(2) * SECOND + random.below(64) * 8,
                    8 * (1 + random.below(4)),
                );
            }
            4 => runner.dispatch(),
            _ if !runner.device.is_empty() => {
                let index = random.below(runner.device.len() as u64) as usize;
                runner.complete(index, random.below(20) == 0);
            }
            _ => {}
        }
    }
    // Whatever happened, it all ends once the device answers.
    for _ in 0..2000 {
        runner.now += ms(1);
        runner.dispatch();
        if !runner.device.is_empty() {
            runner.complete(0, false);
        }
    }
    let open = runner.open.iter().flatten().count();
    assert_eq!(open, 0, "seed {seed}: {open} never ended");
    let left: usize =
        runner.queues.iter().map(|queue| queue.load().waiting + usize::from(queue.load().in_flight)).sum();
    assert_eq!(left, 0, "seed {seed}");
}

#[test]
fn a_queue_keeps_what_flushes_fua_and_preflush_promise() {
    seeds(0..1000).for_each(|seed| run_queues(seed, 1));
}

#[test]
fn queues_that_share_flushes_keep_it_too() {
    seeds(0..1000).for_each(|seed| run_queues(seed, 2));
}
