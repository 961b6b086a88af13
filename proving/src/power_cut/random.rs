//! Random runs: several clients on few sectors, for long, with faults; all of it from one seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fairlift_core::time::{ms, secs, us};
use fairlift_core::{
    ContextId, Duration, Errno, Extent, Finished, Flags, GroupId, Instant, Op, Outcome, Priority, Refused, Sector,
    Stream, StreamId, Tag,
};

use super::{Bench, Count, Landing, OnFailure, Stamp, Subject, Tally};
use crate::turns::{self, Worker};
use fairlift_lab::Random;

/// Faults, in parts of a thousand.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Flushes that fail.
    pub flush: u64,
    /// Flushes that take longer than any timeout.
    pub stuck: u64,
    /// Other requests that fail.
    pub request: u64,
    /// Requests that the disk cannot take yet.
    pub busy: u64,
    /// Clients that go away, of all that ask.
    pub abort: u64,
    /// The disk after a failed flush.
    pub on_failure: OnFailure,
    /// Whether the subject lets flushes fail after one has failed.
    pub remembers: bool,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self =
        Self { flush: 0, stuck: 0, request: 0, busy: 0, abort: 0, on_failure: OnFailure::Keeps, remembers: false };

    /// Some of everything.
    pub const SOME: Self = Self { flush: 80, stuck: 5, request: 20, busy: 20, abort: 10, ..Self::NONE };
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The seed of all chance.
    pub seed: u64,
    /// Clients; each has a stream, in contexts and groups by turns.
    pub clients: u32,
    /// Contexts of the subject.
    pub contexts: u16,
    /// Groups of the subject.
    pub groups: u16,
    /// Devices on the disk.
    pub places: u64,
    /// Sectors of each.
    pub place: u64,
    /// Whether the disk knows FUA; else it takes no notice.
    pub fua: bool,
    /// Whether some writes have PREFLUSH, which not every subject knows.
    pub preflush: bool,
    /// Bios to be asked for.
    pub bios: u64,
    /// The faults.
    pub faults: Faults,
    /// Turns of a worker, of a thousand, before which an operator changes the scheduler, a weight or the depth.
    pub changes: u64,
}

impl Settings {
    /// Six clients of two contexts and groups on a device of 24 sectors.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let faults = Faults::NONE;
        Self {
            seed,
            clients: 6,
            contexts: 2,
            groups: 2,
            places: 1,
            place: 24,
            fua: true,
            preflush: true,
            bios: 1000,
            faults,
            changes: 0,
        }
    }

    /// Sectors of the disk.
    #[must_use]
    pub const fn sectors(&self) -> u64 {
        self.places * self.place
    }
}

/// Longer than a request may take in the disk (`io_timeout`, 30 s).
const STUCK: Duration = secs(45);

/// After so long without an end, all that is open is lost: ten times `io_timeout`.
const LOST: Duration = secs(300);

/// The longest that a disk may have nothing to do while a client waits: for company, or after it was busy.
const IDLE: Duration = ms(20);

#[derive(Clone, Copy)]
struct Client {
    stream: StreamId,
    context: ContextId,
    open: u32,
    /// It fills whatever room it has; else it asks for one after the other.
    depth: u32,
    /// It mostly writes and flushes in turn: where it has written, and not flushed.
    commits: Option<Option<Extent>>,
    asks_at: Instant,
    /// It was turned away, and asks again when its context has a turn.
    is_refused: bool,
    /// Counts the lives of a client that goes away and comes back: it hears nothing of requests of an earlier one.
    life: u32,
}

/// A bio under way.
struct Open {
    client: usize,
    life: u32,
    op: Op,
    /// Flushes of the disk that had failed when it was asked for (cut.3).
    failures: u64,
    is_overdue: bool,
    is_over: bool,
}

/// Runs `subject` until `bios` were asked for and have ended.
///
/// # Errors
/// The promise that is broken, with the seed and the time.
pub fn run(settings: &Settings, subject: &mut dyn Subject) -> Result<Tally, String> {
    let mut run = Trial::new(settings, subject);
    match run.go() {
        Ok(()) => Ok(run.bench.tally),
        Err(says) => {
            let cuts = run.bench.tally.get(Count::Cuts);
            Err(format!("seed {}, cut {cuts} at {:?}: {says}", settings.seed, run.now))
        }
    }
}

/// (when, in which order, whose tag and context, whether badly)
type Ending = (Instant, u64, u16, u16, bool);

struct Trial<'a> {
    settings: &'a Settings,
    subject: &'a mut dyn Subject,
    bench: Bench,
    random: Random,
    now: Instant,
    clients: Vec<Client>,
    contexts: Vec<Worker>,
    /// By stamp, less 1.
    open: Vec<Open>,
    left: usize,
    /// The pending completions of the disk: the earliest first.
    ends: BinaryHeap<Reverse<Ending>>,
    order: u64,
    failures: u64,
}

impl<'a> Trial<'a> {
    fn new(settings: &'a Settings, subject: &'a mut dyn Subject) -> Self {
        let mut random = Random::new(settings.seed);
        let clients = (0..settings.clients).map(|number| {
            let context = ContextId(number as u16 % settings.contexts);
            let group = GroupId(number as u16 / settings.contexts % settings.groups);
            let stream = subject.add_stream(Stream { group, priority: Priority::default(), context });
            let depth = [1, 1, 2, 8][random.below(4) as usize];
            let commits = (depth == 1 && random.below(4) > 0).then_some(None);
            Client { stream, context, open: 0, depth, commits, asks_at: Instant::ZERO, is_refused: false, life: 0 }
        });
        let clients = clients.collect();
        let mut bench = Bench::new(settings.places, settings.place, settings.faults.on_failure, settings.seed ^ 0x5eed);
        bench.fua = settings.fua;
        Self {
            settings,
            subject,
            bench,
            random,
            now: Instant::ZERO,
            clients,
            contexts: vec![Worker::default(); usize::from(settings.contexts)],
            open: Vec::new(),
            left: 0,
            ends: BinaryHeap::new(),
            order: 0,
            failures: 0,
        }
    }

    fn go(&mut self) -> Result<(), String> {
        let mut last = Instant::ZERO;
        while !self.has_asked_all() || self.left > 0 {
            let Some(next) = self.next_event() else {
                return Err(format!("{} bios wait for nothing", self.left)); // cut.2, cut.4
            };
            if self.ends.is_empty() && self.left > 0 && next > self.now + IDLE {
                return Err(format!("{} bios wait until {next:?}, though the disk has nothing to do", self.left)); // cut.4
            }
            self.now = self.now.max(next);
            let before = self.left;
            self.disk_ends()?;
            for index in 0..self.clients.len() {
                if self.may_ask(index) && self.clients[index].asks_at <= self.now {
                    self.wake(self.clients[index].context);
                }
            }
            let first = self.random.below(self.settings.contexts.into()) as u16;
            for step in 0..self.settings.contexts {
                let context = ContextId((first + step) % self.settings.contexts);
                if self.contexts[usize::from(context.0)].next().is_some_and(|at| at <= self.now) {
                    self.turn(context)?;
                }
            }
            if self.left != before || self.left == 0 {
                last = self.now;
            } else if self.now.since(last) > LOST {
                return Err(format!("{} bios never end", self.left)); // cut.2
            }
        }
        Ok(())
    }

    fn has_asked_all(&self) -> bool {
        self.open.len() as u64 >= self.settings.bios
    }

    /// Whether a client has room to ask, and was not turned away.
    fn may_ask(&self, index: usize) -> bool {
        let client = &self.clients[index];
        !self.has_asked_all() && client.open < client.depth && !client.is_refused
    }

    fn next_event(&self) -> Option<Instant> {
        // A context whose turn is due waits for it.
        let is_woken = |client: &Client| self.contexts[usize::from(client.context.0)].runs_at.is_some();
        let clients = (0..self.clients.len()).filter(|index| self.may_ask(*index)).map(|index| &self.clients[index]);
        let clients = clients.filter(|client| !is_woken(client)).map(|client| client.asks_at).min();
        let disk = self.ends.peek().map(|Reverse((at, ..))| *at);
        [clients, disk, turns::next(&self.contexts)].into_iter().flatten().min()
    }

    /// A context is to take a turn, as soon as it gets to it.
    fn wake(&mut self, context: ContextId) {
        let lag = us(self.random.below(3) * self.random.below(20));
        self.contexts[usize::from(context.0)].wake(self.now + lag);
    }

    /// The turn of a context, as a server's worker takes it (cut.4).
    fn turn(&mut self, context: ContextId) -> Result<(), String> {
        let (ended, is_due) = self.contexts[usize::from(context.0)].begin(self.now);
        for (tag, outcome) in ended {
            self.subject.handle_completion(self.now, tag, outcome);
            self.bench.cut()?;
        }
        if is_due {
            self.subject.handle_timeout(self.now, context);
        }
        if self.settings.changes > 0 && self.random.below(1000) < self.settings.changes {
            self.subject.change(self.now, &mut self.random);
            self.bench.tally.one(Count::Changes);
            self.bench.cut()?;
            (0..self.settings.contexts).for_each(|other| self.wake(ContextId(other)));
        }
        for index in 0..self.clients.len() {
            if self.clients[index].context == context {
                self.clients[index].is_refused = false;
                while self.may_ask(index) && self.clients[index].asks_at <= self.now {
                    self.ask_once(index)?;
                }
            }
        }
        while let Some(dispatch) = self.subject.poll_dispatch(self.now, context) {
            if self.random.below(1000) < self.settings.faults.busy {
                self.subject.handle_busy(self.now, dispatch.tag);
                continue;
            }
            self.bench.given(&dispatch, &self.subject.segments(dispatch.tag));
            self.schedule(dispatch.op, dispatch.tag, context);
            self.bench.cut()?;
        }
        while let Some(news) = self.subject.poll_finished(context) {
            self.heard(context, news)?;
            self.bench.cut()?;
        }
        while let Some(other) = self.subject.poll_wake(context) {
            let is_refused = |client: &Client| client.is_refused && client.context == context;
            if other != context || self.clients.iter().any(is_refused) {
                self.wake(other);
            }
        }
        self.contexts[usize::from(context.0)].timeout = self.subject.poll_timeout(context);
        Ok(())
    }

    fn ask_once(&mut self, index: usize) -> Result<(), String> {
        let (op, flags, extent) = self.choose(index);
        let Client { stream, life, .. } = self.clients[index];
        let bio = self.bench.submitted(op, flags, extent, stream);
        match self.subject.submit(self.now, bio) {
            Ok(()) => {}
            Err(Refused::Full) => {
                self.bench.oracle.refused(bio.token.0);
                self.clients[index].is_refused = true;
                return Ok(());
            }
            Err(refused) => return Err(format!("{bio:?} is refused: {refused}")),
        }
        let failures = self.failures;
        self.open.push(Open { client: index, life, op, failures, is_overdue: false, is_over: false });
        self.left += 1;
        self.bench.cut()?;
        let pause = if self.random.below(3) == 0 { us(self.random.below(400)) } else { Duration::ZERO };
        let client = &mut self.clients[index];
        client.open += 1;
        client.asks_at = self.now + pause;
        if self.random.below(1000) < self.settings.faults.abort {
            self.abort(index);
        }
        Ok(())
    }

    /// The client is gone, and another comes in its place; what it asked for goes on, but nobody hears of it.
    fn abort(&mut self, index: usize) {
        let client = &mut self.clients[index];
        for (number, open) in self.open.iter().enumerate() {
            if open.client == index && open.life == client.life && !open.is_over {
                self.bench.oracle.abandoned(number as Stamp + 1);
            }
        }
        client.life += 1;
        client.open = 0;
    }

    fn choose(&mut self, client: usize) -> (Op, Flags, Extent) {
        let random = &mut self.random;
        let client = &mut self.clients[client];
        let luck = random.below(20);
        if let Some(Some(written)) = client.commits
            && luck > 0
        {
            client.commits = Some(None);
            return (Op::Flush, Flags::NONE, written);
        }
        let (op, fua) = match luck {
            1.. if client.commits.is_some() => (Op::Write, false),
            0..8 => (Op::Write, false),
            8..10 => (Op::Write, true),
            10..16 => (Op::Flush, false),
            16 => (Op::WriteZeroes, false),
            17 => (Op::WriteZeroes, true),
            18 => (Op::Discard, random.below(2) == 0),
            _ => (Op::Read, false),
        };
        let place = random.below(self.settings.places) * self.settings.place;
        let sectors = 1 + random.below(6);
        let start = place + random.below(self.settings.place - sectors + 1);
        if client.commits.is_some() && op == Op::Write {
            client.commits = Some(Some(Extent::new(Sector(start), sectors)));
        }
        // One of each kind of write.
        let preflush = self.settings.preflush && client.commits.is_none() && matches!(luck, 7 | 9 | 16 | 17);
        let flag = |is_set, flag| if is_set { flag } else { Flags::NONE };
        (op, flag(fua, Flags::FUA) | flag(preflush, Flags::PREFLUSH), Extent::new(Sector(start), sectors))
    }

    /// When, and how, the disk will end what it was just given.
    fn schedule(&mut self, op: Op, tag: Tag, context: ContextId) {
        let faults = self.settings.faults;
        let random = &mut self.random;
        let luck = random.below(1000);
        let (takes, fails) = match op {
            Op::Flush if luck < faults.stuck => (STUCK, random.below(2) == 0),
            Op::Flush => (us(random.below(3000)), luck < faults.stuck + faults.flush),
            _ => (us(5 + random.below(300)), luck < faults.request),
        };
        self.order += 1;
        self.ends.push(Reverse((self.now + takes, self.order, tag.0, context.0, fails)));
    }

    fn disk_ends(&mut self) -> Result<(), String> {
        while let Some(&Reverse((at, _, tag, context, fails))) = self.ends.peek()
            && at <= self.now
        {
            self.ends.pop();
            let outcome = if fails { Outcome::Failed(Errno::EIO) } else { Outcome::Done };
            self.failures += u64::from(fails);
            self.bench.ends(Tag(tag), outcome, Landing::Anywhere)?;
            self.contexts[usize::from(context)].ended.push((Tag(tag), outcome));
            self.wake(ContextId(context));
        }
        Ok(())
    }

    fn heard(&mut self, context: ContextId, news: Finished) -> Result<(), String> {
        let (Finished::Done(token, _) | Finished::TimedOut(token) | Finished::Released(token)) = news;
        let open = &mut self.open[token.0 as usize - 1];
        let client = &mut self.clients[open.client];
        let is_expected = matches!(news, Finished::Released(_)) == open.is_overdue;
        if open.is_over || !is_expected || client.context != context {
            return Err(format!("context {} hears {news:?} of a bio that is not under way there", context.0)); // cut.2
        }
        let outcome = match news {
            Finished::Done(_, outcome) => outcome,
            Finished::TimedOut(_) | Finished::Released(_) => Outcome::Failed(Errno::ETIMEDOUT),
        };
        if !open.is_overdue && open.life == client.life {
            client.open -= 1;
        }
        if let Finished::TimedOut(_) = news {
            open.is_overdue = true;
            return Ok(());
        }
        open.is_over = true;
        self.left -= 1;
        let remembers = self.settings.faults.remembers && self.failures > 0;
        let is_unprovoked = self.failures == open.failures && outcome != Outcome::Failed(Errno::ETIMEDOUT);
        if open.op == Op::Flush && outcome != Outcome::Done && is_unprovoked && !remembers {
            return Err(format!("flush {} ends with {outcome:?}, but no flush failed since", token.0)); // cut.3
        }
        self.bench.heard(token, outcome);
        Ok(())
    }
}
