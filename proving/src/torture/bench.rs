//! One run on a virtual clock: queues, workers, clients, a disk, and their checks.
//!
//! torture.1  Time moves only from event to event. A worker takes its turn when its clients ask, its requests end, its time has
//!     come, or another worker said so, and not otherwise: what waits for a wake-up that never comes, waits for ever, and is found.
//! torture.2  A program is carried out step by step. Then the disk is reset, nothing goes wrong any more, and all that is open
//!     must end within ten times its bound.
//! torture.3  The knowledge of a bio is its client's request; the queue's word on it is compared with that.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlift_core::queue::{Bound, Segment, SharedTags};
use fairlift_core::tags::{Bitmap, Users};
use fairlift_core::time::{ms, secs};
use fairlift_core::tunable::parse_duration;
use fairlift_core::{
    Bio, ContextId, Dispatch, Duration, Errno, Extent, Flags, GroupId, Instant, Op, Outcome, Priority, Queue, Refused,
    Sector, Stream, StreamId, Token,
};
use slab::Slab;

use super::device::{DiskEvent, FaultyDisk, Given};
use super::meters::Meters;
use super::sectors::Sectors;
use super::step::{Act, Fate, ProgramStep};
use super::swarm::{REGION, REGIONS, Setup};
use crate::power_cut::workers::with_shared_flushes;
use crate::tally::{Broken, Count, Result, Tally, broken};
use crate::turns::{self, Worker};
use fairlift_lab::check::Check;

/// Events without time moving after which a run has stopped: far more than all that can happen at one instant.
const STANDSTILL: u32 = 50_000;

/// A queue, and its checks.
pub(super) struct WatchedQueue {
    pub(super) queue: Queue,
    pub(super) check: Check,
    /// The most that may be in flight: the depth, or the number in flight when that became less.
    pub(super) in_flight_max: u16,
    /// Whether it ever took a tag.
    pub(super) is_active: bool,
}

/// A client: a connection.
pub(super) struct Client {
    pub(super) stream: StreamId,
    pub(super) at: Stream,
    pub(super) open: u32,
    /// It has gone, and its stream goes with its last bio.
    pub(super) is_gone: bool,
}

/// A bio under way, as its client knows it; its token is the row's number.
pub(super) struct OpenBio {
    pub(super) client: u32,
    pub(super) bio: Bio,
    pub(super) luck: u64,
    pub(super) order: u64,
    /// Group and priority when it was asked for, and how many streams had moved by then.
    pub(super) at: Stream,
    pub(super) moves: u64,
    pub(super) came: Instant,
    /// When the first part of it went to the disk.
    pub(super) given: Option<Instant>,
    /// The disk's report of its parts, as bits.
    pub(super) errors: u8,
    pub(super) is_told: bool,
    pub(super) turned_back: u8,
    pub(super) floors: Vec<u64>,
}

/// A run: see the [module](self).
pub(super) struct Bench<'a> {
    pub(super) setup: &'a Setup,
    pub(super) tally: Tally,
    pub(super) now: Instant,
    pub(super) queues: Vec<WatchedQueue>,
    pub(super) contexts: Vec<Worker>,
    pub(super) clients: Vec<Client>,
    /// Present clients.
    pub(super) here: Vec<u32>,
    pub(super) rows: Slab<OpenBio>,
    /// Of those that are open: whose clients were told that they take too long.
    pub(super) answered: usize,
    pub(super) device: FaultyDisk,
    pub(super) sectors: Sectors,
    pub(super) meters: Meters,
    pub(super) bounds: BTreeMap<GroupId, Bound>,
    /// Events since time moved.
    turns: u32,
    /// How often a stream moved.
    pub(super) moves: u64,
    pub(super) groups_made: u64,
    /// By backing, and by place of its bit: the order of the latest error of a flush, or of a write that was durable at once.
    pub(super) flush_errors: Vec<[u64; 8]>,
    /// Empty between calls.
    pub(super) segments: Vec<Segment>,
    tags: Option<Arc<Bitmap>>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(setup: &'a Setup) -> Self {
        let mut settings = setup.queue.clone();
        if setup.queues > 1 {
            settings = with_shared_flushes(&settings);
        }
        let shared = setup.shared_tags.then(|| SharedTags {
            bitmap: Arc::new(Bitmap::new(settings.depth.into()).unwrap_or_else(|error| panic!("{error}"))),
            users: Arc::new(Users::new(setup.queues.into())),
            user: 0,
        });
        let watched = |user: u16| {
            let tags = shared.clone().map(|tags| SharedTags { user: user.into(), ..tags });
            let queue = Queue::new(fairlift_core::queue::Settings { tags, ..settings.clone() });
            let mut check = Check::new(&queue);
            check.seed(setup.seed);
            check.watch_every(1 << 40); // the sectors have a model of their own
            WatchedQueue { queue, check, in_flight_max: settings.depth, is_active: false }
        };
        let mut bench = Self {
            setup,
            tally: Tally::default(),
            now: Instant::ZERO,
            queues: (0..setup.queues).map(watched).collect(),
            contexts: vec![Worker::default(); setup.queue.contexts.into()],
            clients: Vec::new(),
            here: Vec::new(),
            rows: Slab::new(),
            answered: 0,
            device: FaultyDisk::new(setup),
            sectors: Sectors::new(REGIONS * REGION),
            meters: Meters::default(),
            bounds: BTreeMap::new(),
            turns: 0,
            moves: 0,
            groups_made: 0,
            flush_errors: vec![[0; 8]; setup.queue.backings.len()],
            segments: Vec::new(),
            tags: shared.as_ref().map(|tags| Arc::clone(&tags.bitmap)),
        };
        for number in 0..setup.clients {
            let group = GroupId(number as u16 % setup.queue.groups.len() as u16);
            bench.arrives(Stream {
                group,
                priority: Priority::default(),
                context: ContextId(number as u16 % setup.queue.contexts),
            });
        }
        bench
    }

    /// A client comes.
    pub(super) fn arrives(&mut self, at: Stream) {
        let number = self.queue_of(at.context.0);
        let stream = self.queues[number].queue.add_stream(at);
        self.here.push(self.clients.len() as u32);
        self.clients.push(Client { stream, at, open: 0, is_gone: false });
    }

    /// The queue of a worker.
    pub(super) fn queue_of(&self, context: u16) -> usize {
        usize::from(context) % self.queues.len()
    }

    /// Carries out the steps of these numbers, and lets all end (torture.2).
    pub(super) fn go(&mut self, steps: impl Iterator<Item = u64>) -> Result {
        for number in steps {
            let ProgramStep { pause, act } = ProgramStep::draw(self.setup, number);
            if pause > Duration::ZERO {
                self.pass(pause)?;
            }
            match act {
                Act::Ask { client, op, flags, extent, luck } => self.ask(client, op, flags, extent, luck)?,
                Act::Change(change) => self.change(&change),
            }
        }
        self.end()
    }

    /// Lets this much time pass.
    fn pass(&mut self, time: Duration) -> Result {
        let until = self.now + time;
        while self.next().is_some_and(|next| next <= until) {
            self.event()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// A client asks, as soon as few enough bios are open.
    fn ask(&mut self, client: u64, op: Op, flags: Flags, extent: Extent, luck: u64) -> Result {
        while self.rows.len() - self.answered >= self.setup.open_max {
            if !self.event()? {
                return Err(self.stuck());
            }
        }
        let client = self.here[(client % self.here.len() as u64) as usize];
        let Client { stream, at, .. } = self.clients[client as usize];
        let context = usize::from(at.context.0);
        let number = self.queue_of(at.context.0);
        let mut was_full = false;
        let bio = loop {
            let bio = Bio { op, flags, extent, stream, token: Token(self.rows.vacant_key() as u64) };
            match self.queues[number].queue.submit(self.now, bio) {
                Ok(()) => break bio,
                Err(Refused::Full) => {
                    // It asks again when its worker takes a turn: a client that was turned away is woken.
                    if !std::mem::replace(&mut was_full, true) {
                        self.tally.one(Count::Full);
                        self.wake(context);
                    }
                    self.contexts[context].waits_for_room = true;
                    let turns = self.contexts[context].turns;
                    while self.contexts[context].turns == turns {
                        if !self.event()? {
                            return broken(
                                "W3",
                                format!("a client of context {context} waits for room, and nothing will wake it"),
                            );
                        }
                    }
                }
                Err(Refused::Unsupported(_)) => return Ok(()),
                Err(refused) => return broken("L1", format!("{bio:?} is refused: {refused}")),
            }
        };
        self.contexts[context].waits_for_room = false;
        self.wake(context);
        self.queues[number].check.submitted(self.now, &bio);
        let at = self.clients[client as usize].at;
        self.clients[client as usize].open += 1;
        let order = self.sectors.next();
        let floors = match op {
            Op::Read => self.sectors.read_begins(self.setup.index(extent.start.0), extent.sectors),
            _ => Vec::new(),
        };
        self.rows.insert(OpenBio {
            client,
            bio,
            luck,
            order,
            at,
            moves: self.moves,
            came: self.now,
            given: None,
            errors: 0,
            is_told: false,
            turned_back: 0,
            floors,
        });
        Ok(())
    }

    /// A bio is over.
    pub(super) fn release(&mut self, token: usize) {
        let OpenBio { client, is_told, .. } = self.rows.remove(token);
        self.answered -= usize::from(is_told);
        self.clients[client as usize].open -= 1;
        self.leaves(client as usize);
        if self.rows.is_empty() && !self.meters.is_empty() {
            self.meters.rest(self.now);
        }
    }

    /// A client that has gone is forgotten when nothing of it is open.
    pub(super) fn leaves(&mut self, client: usize) {
        let Client { stream, at, open: 0, is_gone: true } = self.clients[client] else { return };
        let number = self.queue_of(at.context.0);
        self.queues[number].queue.remove_stream(stream);
        self.wake(at.context.0.into()); // the disk may have been held idle for it
    }

    /// A worker is to take a turn, as soon as it gets to it.
    pub(super) fn wake(&mut self, context: usize) {
        let lag = match self.setup.lag.as_nanos() {
            0 => Duration::ZERO,
            lag => Duration::from_nanos(self.sectors.next().wrapping_mul(0x9e37_79b9_7f4a_7c15) % lag),
        };
        self.contexts[context].wake(self.now + lag);
    }

    /// When something happens next.
    fn next(&self) -> Option<Instant> {
        [self.device.next(), turns::next(&self.contexts)].into_iter().flatten().min()
    }

    /// Goes to the next event and lets it happen; whether there was one (torture.1).
    pub(super) fn event(&mut self) -> Result<bool> {
        let Some(next) = self.next() else { return Ok(false) };
        self.turns = if next > self.now { 0 } else { self.turns + 1 };
        if self.turns > STANDSTILL {
            return broken(
                "L1",
                format!("time does not move any more at {:?}, with {} bios open", self.now, self.rows.len()),
            );
        }
        self.now = self.now.max(next);
        while let Some((event, given)) = self.device.poll(self.now) {
            match event {
                DiskEvent::Ends(_) => {
                    let outcome = self.landed(&given)?;
                    self.contexts[usize::from(given.context)].ended.push((given.dispatch.tag, outcome));
                    self.wake(given.context.into());
                }
                DiskEvent::IsLate(_) => self.is_late(&given)?,
            }
        }
        for context in 0..self.contexts.len() {
            if self.contexts[context].next().is_some_and(|at| at <= self.now) {
                self.turn(context)?;
            }
        }
        self.all_are_woken()?;
        Ok(true)
    }

    /// A context with something to fetch is to take a turn; and if nothing is to happen, nobody waits (torture.1). It is looked at after
    /// each event: the next change would wake all, and hide it.
    fn all_are_woken(&self) -> Result {
        for (number, context) in (0..).zip(&self.contexts) {
            if context.runs_at.is_none() && self.queues[self.queue_of(number)].queue.load().news >> number & 1 != 0 {
                return broken("W3", format!("the queue has something for context {number}, and nothing wakes it"));
            }
        }
        if !self.rows.is_empty() && self.device.is_empty() && self.next().is_none() {
            return Err(self.stuck());
        }
        Ok(())
    }

    /// The turn of a worker, as a server's takes it.
    fn turn(&mut self, context: usize) -> Result {
        let (now, number) = (self.now, self.queue_of(context as u16));
        let id = ContextId(context as u16);
        let (ended, is_due) = self.contexts[context].begin(now);
        let gives_tags_back = self.tags.is_some() && !ended.is_empty();
        for (tag, outcome) in ended {
            let watched = &mut self.queues[number];
            watched.queue.handle_completion(now, tag, outcome);
            watched.in_flight_max =
                watched.in_flight_max.min(watched.queue.settings().depth.max(watched.queue.load().in_flight));
        }
        if is_due {
            self.queues[number].queue.handle_timeout(now);
        }
        while let Some(dispatch) = self.queues[number].queue.poll_dispatch(now, id) {
            self.dispatched(number, context, &dispatch)?;
        }
        while let Some(news) = self.queues[number].queue.poll_finished(id) {
            self.finished(number, context, news)?;
        }
        while let Some(other) = self.queues[number].queue.poll_wake() {
            if usize::from(other.0) != context || self.contexts[context].waits_for_room {
                self.wake(other.0.into());
            }
        }
        // Another worker was woken for the rest of one worker's turn; and a queue may lack requests that its neighbours hold.
        let is_last = self.queues.len() == 1 && self.contexts.iter().all(|context| context.runs_at.is_none());
        let WatchedQueue { queue, check, .. } = &mut self.queues[number];
        let timeout = queue.poll_timeout();
        self.contexts[context].timeout = timeout;
        if queue.load().in_flight > 0 || is_last {
            check.settled(now, queue, timeout, false);
        }
        if gives_tags_back {
            for context in 0..self.contexts.len() {
                if self.queues[self.queue_of(context as u16)].queue.load().lacks_tag {
                    self.wake(context);
                }
            }
        }
        Ok(())
    }

    /// A request goes to the disk, or is turned back by it.
    fn dispatched(&mut self, number: usize, context: usize, dispatch: &Dispatch) -> Result {
        self.look_at_dispatch(number, context, dispatch)?;
        let first = self.queues[number].queue.segments(dispatch.tag).next();
        let row = first.map(|segment| (segment.token.0 as usize, segment.offset.sectors()));
        let luck = match row {
            Some((row, offset)) => self.rows[row].luck ^ offset.wrapping_mul(0xff51_afd7_ed55_8ccd),
            None => self.sectors.next().wrapping_mul(0xd6e8_feb8_6659_fd93) >> 7, // a flush that several share
        };
        let mut fate = if self.device.is_honest { Fate::Fine } else { Fate::of(self.setup, luck, dispatch.op) };
        if fate == Fate::Busy {
            fate = Fate::Fine;
            if let Some((row, _)) = row
                && self.rows[row].turned_back < 3
            {
                self.rows[row].turned_back += 1;
                self.tally.one(Count::Busy);
                self.queues[number].queue.handle_busy(self.now, dispatch.tag);
                return Ok(());
            }
        }
        // Of shared tags a queue gets no more than its part, and all that are lost may be of one queue.
        let mut tags = self.queues[number].queue.settings().depth;
        if self.setup.shared_tags {
            tags = tags.min(tags.div_ceil(self.setup.queues).max(4));
        }
        if fate == Fate::Lost && self.device.lost_tags * 2 + 2 > tags {
            fate = Fate::Hangs; // some tags stay
        }
        self.given(number, dispatch)?;
        let count = match fate {
            Fate::Error | Fate::Full => Some(Count::Errors),
            Fate::Slow(_) => Some(Count::Delays),
            Fate::Hangs | Fate::Lost => Some(Count::Hangs),
            Fate::Lies(_) => Some(Count::Lies),
            Fate::Fine | Fate::Busy => None,
        };
        if let Some(count) = count {
            self.tally.one(count);
        }
        if count == Some(Count::Delays) || count == Some(Count::Hangs) {
            self.flush_fails(dispatch.extent.start, bit(Errno::ETIMEDOUT));
        }
        self.tally.one(Count::Requests);
        self.device.give(self.now, (number as u16, context as u16), dispatch, fate, luck);
        Ok(())
    }

    pub(super) fn backing_of(&self, at: Sector) -> usize {
        self.setup.queue.backings.iter().rposition(|backing| backing.start <= at).unwrap_or(0)
    }

    /// A flush of the backing of a sector, or a write that is durable at once, fails so, or may.
    pub(super) fn flush_fails(&mut self, at: Sector, bits: u8) {
        let (order, backing) = (self.sectors.next(), self.backing_of(at));
        (0..8).filter(|place| bits & 1 << place != 0).for_each(|place| self.flush_errors[backing][place] = order);
    }

    /// How flushes of the backing of a sector have failed since then, as bits.
    pub(super) fn flush_errors(&self, at: Sector, since: u64) -> u8 {
        let orders = self.flush_errors[self.backing_of(at)];
        (0..8).filter(|place| orders[*place] > since).map(|place| 1 << place).sum()
    }

    /// The disk is reset, and all that is open must end (torture.2).
    fn end(&mut self) -> Result {
        self.device.reset(self.now);
        for watched in &mut self.queues {
            watched.queue.ceilings().lift(self.now);
        }
        self.meters = Meters::default();
        // A bio held by a ceiling is woken by the lifting of it; a hung request by its end.
        for context in 0..self.contexts.len() {
            if self.queues[self.queue_of(context as u16)].queue.poll_timeout().is_some() {
                self.wake(context);
            }
        }
        let bound = self.bound();
        let until = self.now + Duration::from_nanos(bound.as_nanos() * 10);
        // A flush that has taken too long is told at once, and its end is heard later.
        let is_unheard = |worker: &Worker| !worker.ended.is_empty();
        while !self.rows.is_empty() || !self.device.is_empty() || self.contexts.iter().any(is_unheard) {
            if !self.event()? {
                return Err(self.stuck());
            }
            if self.now > until {
                return broken(
                    "L1",
                    format!("{} bios are open after ten times {bound}, though nothing goes wrong", self.rows.len()),
                );
            }
        }
        for watched in &mut self.queues {
            let load = watched.queue.load();
            let left = (load.in_flight, load.waiting, load.held);
            if left != (0, 0, 0) {
                return broken(
                    "L1",
                    format!("all bios have ended, and the queue holds {left:?}: in flight, waiting, held"),
                );
            }
            watched.check.drained(self.now);
        }
        if let Some(busy) = self.tags.as_ref().map(|tags| tags.busy_count()).filter(|busy| *busy > 0) {
            return broken("L1", format!("all bios have ended, and {busy} tags are out"));
        }
        let lies = self.sectors.look_at_all().map_err(|says| Broken::new("S1", says))?;
        self.tally.add(Count::Found, lies);
        self.tally.add(Count::Millis, self.now.as_nanos() / 1_000_000);
        self.tally.one(Count::Runs);
        Ok(())
    }

    /// In what time all that is open ends when nothing goes wrong: each piece by itself, and the disk held idle before each.
    fn bound(&self) -> Duration {
        let limits = &self.setup.queue.limits;
        let pieces: u64 = self
            .rows
            .iter()
            .map(|(_, row)| {
                let extent = row.bio.extent;
                let most =
                    limits.max(row.bio.op).clamp(1, if limits.boundary == 0 { u64::MAX } else { limits.boundary });
                extent.sectors / most + 4
            })
            .sum();
        let one = self.device.service_max() + self.hold_max() + self.setup.lag;
        Duration::from_nanos(one.as_nanos().saturating_mul(pieces)) + secs(2)
    }

    /// How long a scheduler may hold the disk idle.
    pub(super) fn hold_max(&self) -> Duration {
        let queue = &self.queues[0].queue;
        let set = |name| queue.tunable(name).and_then(|value| parse_duration(&value)).unwrap_or(Duration::ZERO);
        let longest = set("slice_idle").max(set("group_idle")).max(ms(20));
        longest + longest
    }

    fn stuck(&self) -> Broken {
        let rows: Vec<_> = self.rows.iter().take(3).map(|(_, row)| row.bio).collect();
        Broken::new("L1", format!("{} bios wait for nothing, such as {rows:?}", self.rows.len()))
    }
}

/// The errors that the disk gives, as bits.
pub(super) fn bit(errno: Errno) -> u8 {
    match errno {
        Errno::EIO => 1,
        Errno::ENOSPC => 2,
        Errno::ETIMEDOUT => 4,
        _ => 128,
    }
}

/// How the disk ends a request, by its fate.
pub(super) fn outcome(given: &Given) -> Outcome {
    match given.fate {
        Fate::Error => Outcome::Failed(Errno::EIO),
        Fate::Full => Outcome::Failed(Errno::ENOSPC),
        Fate::Hangs if given.luck & 1 << 60 != 0 => Outcome::Failed(Errno::EIO),
        _ => Outcome::Done,
    }
}
