//! World: virtual clock + queue + model + programs. One seed, one run.
//!
//! world.1  Time moves only from event to event.
//! world.2  Events of one time happen in the order in which they were set; what the disk ends comes before what the clock
//!     starts.
//! world.3  All that programs ask at one instant is one batch: the queue is asked what goes to the disk when everybody has
//!     spoken. But a program that asks one by one ([`Program::asks_one_by_one`]) has each ask go on before the next: neighbours are
//!     merged only while they wait.
//! world.4  An ask that the queue has no room for waits, its program with it, and goes in as soon as there is room; the one
//!     that came first goes first.
//! world.5  After every step the promises of [`check`](crate::check) are looked at.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fairlift_core::model::{Model, ModelCompletion, ModelRequest};
use fairlift_core::program::{Ask, Program, Unserved};
use fairlift_core::time::secs;
use fairlift_core::{
    Bio, ContextId, Dispatch, Duration, Errno, Finished, GroupId, Instant, Outcome, Queue, Refused, Stream, StreamId,
    Token,
};
use slab::Slab;

use crate::check::Check;

/// The lab's queues have one context.
const CONTEXT: ContextId = ContextId(0);

/// The caller of [`World::submit`].
const BY_HAND: u32 = u32::MAX;

/// Turns without time moving after which the world has stopped: a program or model asks for "now" for ever. Chosen: far more than
/// all that can happen at one instant.
const STANDSTILL: u32 = 1_000_000;

/// After how many events a run says how far it is, and asks whether it is to stop: some milliseconds of ours.
const EVENTS: u32 = 4096;

/// How long a drain waits for the next end. Chosen: no disk on paper takes a minute for anything.
const HOUR: Duration = secs(3600);

/// How and when a bio that was submitted by hand ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// When.
    pub at: Instant,
    /// Which.
    pub token: Token,
    /// How.
    pub outcome: Outcome,
}

/// A program in the world.
struct Process {
    program: Box<dyn Program>,
    stream: StreamId,
    group: GroupId,
    /// When it wants to be asked again; what `timers` says otherwise is out of date.
    timer: Option<Instant>,
    /// It is in `ready`.
    is_ready: bool,
    /// Its last ask is in `refused` (world.4).
    is_refused: bool,
}

/// Something asked that has not ended; its number is the bio's token.
#[derive(Clone, Copy)]
struct Open {
    client: u32,
    /// The asker's own name for it.
    token: u64,
}

/// Virtual clock + queue + model + programs: see the [module](self) for the rules.
pub struct World {
    now: Instant,
    queue: Queue,
    model: Box<dyn Model>,
    clients: Vec<Process>,
    /// By group, as far as groups have programs.
    unserved: Vec<Unserved>,
    open: Slab<Open>,
    /// (when, in which order, which program): the earliest first (world.2).
    timers: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    order: u64,
    /// Programs that may ask now, in the order in which they may.
    ready: Vec<u32>,
    /// Asks that wait for room (world.4).
    refused: VecDeque<Bio>,
    /// Whether programs may ask.
    asking: bool,
    ended: Vec<ModelCompletion>,
    check: Check,
    /// Turns since time moved.
    turns: u32,
    ends: Vec<Completion>,
    dispatched: Option<Vec<Dispatch>>,
}

impl World {
    /// A world at time zero, without programs.
    ///
    /// # Panics
    /// If the queue has more than one context.
    #[must_use]
    pub fn new(queue: Queue, model: Box<dyn Model>) -> Self {
        let check = Check::new(&queue);
        Self {
            now: Instant::ZERO,
            queue,
            model,
            clients: Vec::new(),
            unserved: Vec::new(),
            open: Slab::new(),
            timers: BinaryHeap::new(),
            order: 0,
            ready: Vec::new(),
            refused: VecDeque::new(),
            asking: true,
            ended: Vec::new(),
            check,
            turns: 0,
            ends: Vec::new(),
            dispatched: None,
        }
    }

    /// Adds a program; it asks as soon as the world runs. The answer is its index.
    pub fn add(&mut self, stream: Stream, program: Box<dyn Program>) -> usize {
        let group = stream.group;
        let groups = self.unserved.len().max(usize::from(group.0) + 1);
        self.unserved.resize(groups, Unserved::default());
        let stream = self.queue.add_stream(stream);
        let index = self.clients.len();
        self.clients.push(Process { program, stream, group, timer: None, is_ready: true, is_refused: false });
        self.ready.push(index as u32);
        index
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The program of that index.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn program(&self, index: usize) -> &dyn Program {
        &*self.clients[index].program
    }

    /// The longest time so far that the programs of a group were left [`Unserved`], all together.
    #[must_use]
    pub fn unserved(&self, group: GroupId) -> Duration {
        self.unserved.get(usize::from(group.0)).map_or(Duration::ZERO, |unserved| unserved.longest(self.now))
    }

    /// The queue.
    pub const fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// The disk.
    #[must_use]
    pub fn model(&self) -> &dyn Model {
        &*self.model
    }

    /// A look after every step, to name its seed or change its bounds.
    pub const fn check(&mut self) -> &mut Check {
        &mut self.check
    }

    /// Runs up to `until`, what happens at that instant included.
    pub fn run_until(&mut self, until: Instant) {
        self.run_unless(until, &mut |_| false);
    }

    /// Runs up to `until`, unless `stop` says so before, which hears every few thousand events what time it is; whether it
    /// came so far.
    pub fn run_unless(&mut self, until: Instant, stop: &mut dyn FnMut(Instant) -> bool) -> bool {
        let mut events = 0;
        while let Some(next) = self.settle()
            && next <= until
        {
            events += 1;
            if events % EVENTS == 0 && stop(self.now) {
                return false;
            }
            self.go_to(next);
        }
        self.now = self.now.max(until);
        true
    }

    /// Lets no program ask any more, and runs until all that was asked has ended.
    ///
    /// # Panics
    /// If nothing ends for an hour of the disk: something is lost (world.5).
    pub fn drain(&mut self) {
        self.asking = false;
        let mut left = self.check.open + self.refused.len();
        let mut last = self.now;
        while let Some(next) = self.settle()
            && left > 0
            && next < last + HOUR
        {
            self.go_to(next);
            let now = self.check.open + self.refused.len();
            if now < left {
                last = self.now;
            }
            left = now;
        }
        self.check.drained(self.now);
    }

    // ---- by hand: streams without a program ----

    /// Adds a stream without a program, for [`World::submit`].
    pub fn add_stream(&mut self, stream: Stream) -> StreamId {
        self.queue.add_stream(stream)
    }

    /// Asks for a bio to be done; nothing goes to the disk before the next step.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    pub fn submit(&mut self, bio: Bio) -> Result<(), Refused> {
        let number = self.open.insert(Open { client: BY_HAND, token: bio.token.0 });
        let bio = Bio { token: Token(number as u64), ..bio };
        self.queue.submit(self.now, bio).inspect_err(|_| _ = self.open.remove(number))?;
        self.check.submitted(self.now, &bio);
        Ok(())
    }

    /// Gives the disk what it may have, goes to the next event, and says what ended of the bios submitted by hand; `None`
    /// when nothing is left.
    pub fn step(&mut self) -> Option<Vec<Completion>> {
        let next = self.settle()?;
        self.go_to(next);
        self.settle();
        Some(std::mem::take(&mut self.ends))
    }

    /// Steps until nothing is left to do; all that ended of the bios submitted by hand.
    pub fn run(&mut self) -> Vec<Completion> {
        let mut ends = Vec::new();
        while let Some(some) = self.step() {
            ends.extend(some);
        }
        ends
    }

    /// Remembers requests to the disk from now on, for [`World::dispatched`].
    pub fn remember(&mut self) {
        self.dispatched.get_or_insert_default();
    }

    /// All that went to the disk since [`World::remember`], in order.
    #[must_use]
    pub fn dispatched(&self) -> &[Dispatch] {
        self.dispatched.as_deref().unwrap_or_default()
    }

    // ---- a turn ----

    /// Everybody speaks, and the disk gets what it may have; says when something happens next.
    fn settle(&mut self) -> Option<Instant> {
        loop {
            let mut index = 0;
            while let Some(&client) = self.ready.get(index) {
                self.let_ask(client);
                index += 1;
            }
            self.ready.clear();
            self.dispatch(); // world.3
            if !self.listen() {
                break;
            }
            // Something ended without the disk (a flush with nothing to do): its program goes on.
            self.turns += 1;
            assert!(self.turns < STANDSTILL, "{}: time does not move any more", self.check.place(self.now));
        }
        let timeout = self.queue.poll_timeout();
        self.check.settled(self.now, &self.queue, timeout, !self.refused.is_empty()); // world.5
        let timer = loop {
            match self.timers.peek() {
                // Out of date: it wants to be asked at another time.
                Some(Reverse((at, _, client))) if self.clients[*client as usize].timer != Some(*at) => {
                    self.timers.pop();
                }
                next => break next.map(|Reverse((at, ..))| *at),
            }
        };
        [self.model.poll_event(), timeout, timer].into_iter().flatten().min()
    }

    /// Time moves, and events that are due by then happen.
    fn go_to(&mut self, now: Instant) {
        // An overdue event (a hold that ended while no tag was free) happens now, not in the past.
        let now = now.max(self.now);
        self.turns = if now > self.now { 0 } else { self.turns + 1 };
        assert!(self.turns < STANDSTILL, "{}: time does not move any more", self.check.place(now));
        self.now = now; // world.1
        let mut ended = std::mem::take(&mut self.ended);
        self.model.advance(now, &mut ended);
        for one in ended.drain(..) {
            let tag = self.check.ended(now, &one, &self.queue);
            self.queue.handle_completion(now, tag, one.outcome);
        }
        self.ended = ended;
        if self.queue.poll_timeout().is_some_and(|at| at <= now) {
            self.queue.handle_timeout(now);
        }
        self.listen();
        while let Some(&Reverse((at, _, client))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            let this = &mut self.clients[client as usize];
            if this.timer == Some(at) {
                this.timer = None;
                self.make_ready(client);
            }
        }
    }

    /// Hears what the queue has to tell; whether anybody may ask because of it.
    fn listen(&mut self) -> bool {
        while let Some(news) = self.queue.poll_finished(CONTEXT) {
            self.hear(news);
        }
        let mut woken = false;
        while self.queue.poll_wake().is_some() {
            woken = true;
        }
        if woken {
            self.admit();
        }
        !self.ready.is_empty()
    }

    /// A bio ended, or timed out, or its memory is free.
    fn hear(&mut self, news: Finished) {
        self.check.finished(self.now, news);
        let (token, outcome, is_over) = match news {
            Finished::Done(token, outcome) => (token, Some(outcome), true),
            Finished::TimedOut(token) => (token, Some(Outcome::Failed(Errno::ETIMEDOUT)), false),
            Finished::Released(token) => (token, None, true),
        };
        let Open { client, token: theirs } = self.open[token.0 as usize];
        if is_over {
            self.open.remove(token.0 as usize);
        }
        let Some(outcome) = outcome else { return };
        if client == BY_HAND {
            return self.ends.push(Completion { at: self.now, token: Token(theirs), outcome });
        }
        let this = &mut self.clients[client as usize];
        self.unserved[usize::from(this.group.0)].ended(self.now);
        this.program.handle_end(self.now, theirs as u32, outcome);
        self.make_ready(client);
    }

    fn make_ready(&mut self, client: u32) {
        let this = &mut self.clients[client as usize];
        if !this.is_ready {
            this.is_ready = true;
            self.ready.push(client);
        }
    }

    /// A program asks all it wants, and says when it will want more.
    fn let_ask(&mut self, client: u32) {
        self.clients[client as usize].is_ready = false;
        if !self.asking {
            return;
        }
        let mut asks = 0;
        while !self.clients[client as usize].is_refused {
            let Some(ask) = self.clients[client as usize].program.poll_ask(self.now) else { break };
            self.take(client, ask);
            if self.clients[client as usize].program.asks_one_by_one() {
                self.dispatch(); // world.3
            }
            asks += 1;
            assert!(asks < STANDSTILL, "{}: program {client} asks without end", self.check.place(self.now));
        }
        let this = &mut self.clients[client as usize];
        // A program that waits for room does nothing else meanwhile (world.4).
        let timer = if this.is_refused { None } else { this.program.poll_timeout() };
        if timer != this.timer {
            this.timer = timer;
            if let Some(at) = timer {
                self.order += 1;
                self.timers.push(Reverse((at, self.order, client)));
            }
        }
    }

    fn take(&mut self, client: u32, ask: Ask) {
        let Ask { token, op, flags, extent } = ask;
        let number = self.open.insert(Open { client, token: u64::from(token) });
        let Process { stream, group, .. } = self.clients[client as usize];
        self.unserved[usize::from(group.0)].submitted(self.now);
        let bio = Bio { op, flags, extent, stream, token: Token(number as u64) };
        // An ask that comes later does not overtake those that wait for room (world.4).
        if !self.refused.is_empty() || !self.enter(&bio) {
            self.clients[client as usize].is_refused = true;
            self.refused.push_back(bio);
        }
    }

    /// Whether the queue takes it.
    fn enter(&mut self, bio: &Bio) -> bool {
        match self.queue.submit(self.now, *bio) {
            Ok(()) => {
                self.check.submitted(self.now, bio);
                true
            }
            Err(Refused::Full) => false,
            Err(refused) => panic!("{}: a program asks what cannot be: {refused}", self.check.place(self.now)),
        }
    }

    /// There may be room: asks that wait go in, in the order in which they came (world.4).
    fn admit(&mut self) {
        while let Some(bio) = self.refused.front().copied()
            && self.enter(&bio)
        {
            self.refused.pop_front();
            let client = self.open[bio.token.0 as usize].client;
            self.clients[client as usize].is_refused = false;
            self.make_ready(client);
        }
    }

    fn dispatch(&mut self) {
        while let Some(request) = self.queue.poll_dispatch(self.now, CONTEXT) {
            self.check.dispatched(self.now, &request, self.queue.segments(request.tag));
            let Dispatch { tag, op, flags, extent, .. } = request;
            self.model.submit(self.now, &ModelRequest { id: u64::from(tag.0), op, flags, extent });
            if let Some(dispatched) = &mut self.dispatched {
                dispatched.push(request);
            }
        }
    }
}

#[cfg(test)]
mod tests;
