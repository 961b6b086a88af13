//! A worker's requests on an overlay: each is one or several steps on the files of it.
//!
//! step.1  A read goes to the file that has its blocks, in runs. A write of blocks that are in the top goes there. Neither waits for others.
//! step.5  A request with a step that the file could not take now gives back what it has, and is offered again.
//! step.6  Data that the files below have in the page cache is read at once, before a read is scheduled, unless a part of it lies elsewhere.

mod change;
mod flush;

use std::ops::Range;
use std::sync::Arc;

use fairlift_core::queue::Segment;
use fairlift_core::{Flags, Instant, Op, Outcome, Tag};
use slab::Slab;

use self::change::Change;
use super::claims::MAP;
use super::format::{BLOCK, PageImage, data_offset};
use super::map::{BlockState, Cover};
use super::pause::stops;
use super::{Layers, Overlay};
use crate::device::lane::{Address, Batch, Completed, Io, Lane, Request, cut, each, list_memory};
use crate::kernel::ring::Source;
use crate::kernel::ticket::{Memory, Tickets};
use crate::sync::lock;

/// The lane of the top. Those of the files below follow.
const TOP: usize = 0;
/// A step that is our own call of the ring, which makes room in the file.
const ROOM: usize = usize::MAX;
/// A step that ends when a request may go on, because another worker lets it.
const LEAVE: usize = usize::MAX - 1;
/// No more steps than this at once: they are named by tags. Chosen: half of the number that those can name; one request has at most 300.
const STEPS_MAX: usize = 1 << 15;
/// How many pages of the map a flush writes at once. Chosen: enough to keep a disk busy, and 128 KiB of memory.
const PAGES_AT_ONCE: usize = 32;

pub(super) struct OnOverlay {
    device: Arc<Overlay>,
    /// The layers in use: the device's own, except in the time in which a fork changes them.
    layers: Arc<Layers>,
    /// Its number, and the order that it has seen (pause.1).
    number: usize,
    pause: u64,
    /// Requests that came while it was to stop.
    held: Vec<(Request, Vec<Segment>)>,
    address: Address,
    /// Of the files: the top's, then those below it from the bottom.
    lanes: Vec<FileLane>,
    pending: Slab<Pending>,
    /// Which request a step is of, and on which lane it is.
    steps: Slab<(usize, usize)>,
    /// Requests that can go on: they have got their blocks, or may flush.
    ready: Vec<usize>,
    now: Instant,
    ended: Vec<(Tag, Outcome)>,
    cached: Vec<Tag>,
    busy: Vec<Tag>,
}

/// The lane of a file, and the requests for it.
struct FileLane {
    lane: Box<dyn Lane>,
    batch: Batch,
}

struct Pending {
    request: Request,
    /// Its memory, if there is more to be done with it than to pass it on.
    segments: Vec<Segment>,
    left: u32,
    outcome: Outcome,
    /// A step was not answered by memory.
    missed: bool,
    /// A step could not be taken (step.5).
    busy: bool,
    stage: TopStage,
}

impl Pending {
    fn ended(&mut self, outcome: Outcome) {
        (self.outcome, self.missed) = (self.outcome.and(outcome), true);
    }

    /// Whether all steps were done so far.
    fn is_done(&self) -> bool {
        self.outcome == Outcome::Done && !self.busy
    }
}

enum TopStage {
    /// It ends when its steps have.
    Only,
    /// It waits for its blocks, or a flush for the map.
    Claim(Change),
    /// It waits for room in the map (step.2).
    Reserve(Change, u64),
    Fill(Change),
    Store(Change),
    Sync(Vec<PageImage>),
    /// The number of pages written, and those in writing.
    Pages(Vec<PageImage>, usize, Vec<usize>),
    Settle(Vec<PageImage>),
}

/// A file lane's view of our worker, with answers of its own.
macro_rules! inner {
    ($self:ident, $io:ident) => {
        Io {
            context: $io.context,
            ring: &mut *$io.ring,
            pool: &mut *$io.pool,
            tickets: &mut *$io.tickets,
            helpers: $io.helpers,
            notifiers: $io.notifiers,
            ended: &mut $self.ended,
            cached: &mut $self.cached,
            busy: &mut $self.busy,
            mapped: &mut *$io.mapped,
            launch: false,
        }
    };
}

impl OnOverlay {
    pub(super) fn new(device: Arc<Overlay>, address: Address) -> Self {
        let Address { worker, disk, place, .. } = address;
        let (number, pause) = device.pause.join(worker, Source::Look { disk, place }.pack());
        let layers = device.layers();
        Self {
            device,
            lanes: lanes_of(&layers, address),
            layers,
            number,
            pause,
            held: Vec::new(),
            address,
            pending: Slab::new(),
            steps: Slab::new(),
            ready: Vec::new(),
            now: Instant::ZERO,
            ended: Vec::new(),
            cached: Vec::new(),
            busy: Vec::new(),
        }
    }

    // ---- stopping for a fork ----

    fn stops(&self) -> bool {
        stops(self.pause) || stops(self.device.pause.order())
    }

    /// Takes note of the order to lanes: to stop, once nothing is under way, or to go on (pause.1). Whether it goes on with something.
    fn look_at_pause(&mut self, io: &mut Io<'_>) -> bool {
        let order = self.device.pause.order();
        if order == self.pause || !self.pending.is_empty() && stops(order) {
            return false;
        }
        self.adopt(io);
        self.pause = order;
        if stops(order) {
            self.device.pause.stopped(self.number, order);
            return false;
        }
        let held = std::mem::take(&mut self.held);
        held.iter().for_each(|(request, segments)| self.take(io, request, segments));
        !held.is_empty()
    }

    /// Goes over to the layers that the device has by now.
    fn adopt(&mut self, io: &mut Io<'_>) {
        let layers = self.device.layers();
        if Arc::ptr_eq(&layers, &self.layers) {
            return;
        }
        assert!(self.pending.is_empty() && self.steps.is_empty(), "layers change while nothing is under way");
        self.lanes = lanes_of(&layers, self.address);
        self.address.file.iter().for_each(|file| io.ring.set_file(*file, layers.top.descriptor()));
        self.layers = layers;
    }

    // ---- taking in ----

    fn take(&mut self, io: &mut Io<'_>, request: &Request, segments: &[Segment]) {
        match request.op {
            _ if self.steps.len() >= STEPS_MAX => io.busy.push(request.tag),
            Op::Read => self.read(io, request, segments),
            Op::Write if !is_copy(request) && self.layers.places().is_in_top(request.at, request.bytes) => {
                let key = self.ask(request, &[], TopStage::Only);
                self.on_top(key, *request, segments);
            }
            Op::Write | Op::Discard | Op::WriteZeroes => self.change(io, request, segments),
            Op::Flush => {
                let key = self.ask(request, &[], TopStage::Claim(Change::default()));
                self.claim(io, key, MAP);
            }
        }
    }

    fn ask(&mut self, request: &Request, segments: &[Segment], stage: TopStage) -> usize {
        let pending = Pending {
            request: *request,
            segments: segments.to_vec(),
            left: 0,
            outcome: Outcome::Done,
            missed: false,
            busy: false,
            stage,
        };
        self.pending.insert(pending)
    }

    /// step.1
    fn read(&mut self, io: &mut Io<'_>, request: &Request, segments: &[Segment]) {
        let layers = Arc::clone(&self.layers);
        let mut key = None;
        for (place, at, bytes) in layers.places().runs(request.at, request.bytes) {
            let part = cut(segments, at - request.at, bytes);
            match layers.file_of(place, at) {
                None => part.for_each(|segment| {
                    list_memory(io.tickets, &[segment], Op::Read, 0, &mut Vec::new());
                }),
                Some((lane, offset)) => {
                    let key = *key.get_or_insert_with(|| self.ask(request, &[], TopStage::Only));
                    self.step(key, lane, Request { at: at + offset, bytes, ..*request }, part);
                }
            }
        }
        if key.is_none() {
            io.ended.push((request.tag, Outcome::Done));
        }
    }

    /// step.2
    fn change(&mut self, io: &mut Io<'_>, request: &Request, segments: &[Segment]) {
        let Request { op, at, bytes, .. } = *request;
        let Cover { whole, .. } = Cover::of(at, bytes);
        let blocks = if op == Op::Discard { whole } else { at / BLOCK..(at + bytes).div_ceil(BLOCK) };
        let zeroes = op == Op::Discard || op == Op::WriteZeroes && !request.flags.contains(Flags::NO_UNMAP);
        // Another holder of the blocks may bring to light old data from before they were zeroes (claim.2).
        let is_free = || !lock(&self.device.claims).is_held(&blocks);
        let are_zeroes = || self.layers.own.run(blocks.start, blocks.end) == (BlockState::Zero, blocks.end);
        if zeroes && (blocks.is_empty() || is_free() && are_zeroes()) {
            return io.ended.push((request.tag, Outcome::Done));
        }
        let change = Change { blocks: blocks.clone(), ..Change::default() };
        let key = self.ask(request, segments, TopStage::Claim(change));
        self.claim(io, key, blocks);
    }

    /// Has a request go on once it has these blocks.
    fn claim(&mut self, io: &Io<'_>, key: usize, blocks: Range<u64>) {
        let leave = self.own_step(key, LEAVE);
        if lock(&self.device.claims).claim(blocks, (io.context, leave)) {
            self.may_go_on(leave);
        }
    }

    /// Adds a step of a request, for a lane.
    fn step(&mut self, key: usize, lane: usize, request: Request, segments: impl Iterator<Item = Segment>) {
        let tag = self.own_step(key, lane);
        self.pending[key].left += 1;
        self.lanes[lane].batch.put(Request { tag, ..request }, segments);
    }

    /// Names a step that no lane of a file does.
    fn own_step(&mut self, key: usize, what: usize) -> Tag {
        Tag(u16::try_from(self.steps.insert((key, what))).expect("steps are bounded"))
    }

    /// How completions name a step.
    fn data(&self, tag: Tag) -> u64 {
        let Address { disk, place, .. } = self.address;
        Source::Io { disk, place, tag }.pack()
    }

    /// A request that waited may go on.
    fn may_go_on(&mut self, leave: Tag) {
        let (key, _) = self.steps.remove(leave.0.into());
        self.ready.push(key);
    }

    /// Adds a step on the data of the top.
    fn on_top(&mut self, key: usize, request: Request, segments: &[Segment]) {
        let at = request.at + data_offset(self.layers.size);
        self.step(key, TOP, Request { at, ..request }, segments.iter().copied());
    }

    /// Adds a step that makes the top durable.
    fn sync(&mut self, key: usize) {
        let request = Request { op: Op::Flush, flags: Flags::NONE, at: 0, bytes: 0, ..self.pending[key].request };
        self.step(key, TOP, request, std::iter::empty());
    }

    // ---- going on ----

    /// Does all that can be done now.
    fn work(&mut self, io: &mut Io<'_>) {
        loop {
            while let Some(key) = self.ready.pop() {
                self.go_on(io, key);
            }
            for FileLane { lane, batch } in &mut self.lanes {
                if !batch.requests.is_empty() {
                    let mut inner = inner!(self, io);
                    lane.queue(&mut inner, self.now, &batch.requests, &batch.segments);
                    io.launch |= inner.launch;
                    batch.requests.clear();
                    batch.segments.clear();
                }
            }
            let has_answers = !self.ended.is_empty() || !self.cached.is_empty() || !self.busy.is_empty();
            if !has_answers && self.ready.is_empty() && !self.look_at_pause(io) {
                return;
            }
            let (mut ended, mut busy) = (std::mem::take(&mut self.ended), std::mem::take(&mut self.busy));
            let mut cached = std::mem::take(&mut self.cached);
            ended.drain(..).for_each(|(tag, outcome)| self.landed(io, tag, |pending| pending.ended(outcome)));
            cached.drain(..).for_each(|tag| self.landed(io, tag, |_| ()));
            busy.drain(..).for_each(|tag| self.landed(io, tag, |pending| pending.busy = true));
            // Nothing is put there meanwhile.
            (self.ended, self.cached, self.busy) = (ended, cached, busy);
        }
    }

    fn landed(&mut self, io: &mut Io<'_>, tag: Tag, note: impl FnOnce(&mut Pending)) {
        let (key, _) = self.steps.remove(tag.0.into());
        let pending = &mut self.pending[key];
        note(pending);
        pending.left -= 1;
        if pending.left == 0 {
            self.stage_ended(io, key);
        }
    }

    /// All steps of a stage have ended.
    fn stage_ended(&mut self, io: &mut Io<'_>, key: usize) {
        let pending = &mut self.pending[key];
        let is_done = pending.is_done();
        match std::mem::replace(&mut pending.stage, TopStage::Only) {
            TopStage::Only => self.end(io, key),
            TopStage::Reserve(change, index) if is_done => {
                self.layers.own.reserved(index);
                self.reserve(io, key, change);
            }
            TopStage::Reserve(change, _) if pending.request.op == Op::Discard && !pending.busy => {
                // A full disk is trimmed where it has something, and that is where the map has room.
                pending.outcome = Outcome::Done;
                self.fill(io, key, change);
            }
            TopStage::Fill(change) if is_done => self.store(io, key, change),
            TopStage::Reserve(change, _) | TopStage::Fill(change) | TopStage::Store(change) => {
                self.changed(io, key, change);
            }
            TopStage::Sync(pages) if is_done => self.write_pages(io, key, pages, 0),
            TopStage::Pages(pages, done, tickets) => {
                tickets.iter().for_each(|ticket| give_back(io, *ticket));
                let done = done + tickets.len();
                match is_done {
                    true if done < pages.len() => self.write_pages(io, key, pages, done),
                    true => {
                        self.pending[key].stage = TopStage::Settle(pages);
                        self.sync(key);
                    }
                    false => self.flushed(io, key, &pages),
                }
            }
            TopStage::Sync(pages) | TopStage::Settle(pages) => self.flushed(io, key, &pages),
            TopStage::Claim(_) => unreachable!("a request that waits has no steps"),
        }
    }

    /// A request has its blocks, or a flush the map.
    fn go_on(&mut self, io: &mut Io<'_>, key: usize) {
        let pending = &mut self.pending[key];
        let request @ Request { op, at, bytes, .. } = pending.request;
        let TopStage::Claim(change) = std::mem::replace(&mut pending.stage, TopStage::Only) else {
            unreachable!("it waits")
        };
        if op == Op::Flush {
            self.flush(io, key);
        } else if op == Op::Write && !is_copy(&request) && self.layers.places().is_in_top(at, bytes) {
            // The holder of the blocks before has put them there.
            self.let_go(io, &change.blocks);
            let segments = std::mem::take(&mut self.pending[key].segments);
            self.on_top(key, request, &segments);
        } else {
            self.reserve(io, key, change);
        }
    }

    fn end(&mut self, io: &mut Io<'_>, key: usize) {
        let Pending { request, outcome, missed, busy, .. } = self.pending.remove(key);
        match outcome {
            Outcome::Done if busy => io.busy.push(request.tag), // step.5
            Outcome::Done if request.op == Op::Read && !missed => io.cached.push(request.tag),
            _ => io.ended.push((request.tag, outcome)),
        }
    }

    /// Launches what is to be launched, where the engine does not.
    fn launch_now(&mut self, io: &mut Io<'_>) {
        if std::mem::take(&mut io.launch) {
            self.launch(io);
        }
    }
}

impl Lane for OnOverlay {
    fn peeks(&self) -> bool {
        self.lanes.iter().any(|one| one.lane.peeks())
    }

    /// step.6
    fn peek(&mut self, tickets: &mut Tickets, request: &Request, segments: &[Segment]) -> Option<bool> {
        if self.pause != self.device.pause.order() || stops(self.pause) {
            return None;
        }
        let layers = Arc::clone(&self.layers);
        let mut passes = None;
        for (place, at, bytes) in layers.places().runs(request.at, request.bytes) {
            let (lane, offset) = layers.file_of(place, at)?;
            let part = Request { at: at + offset, bytes, ..*request };
            let done = match bytes == request.bytes {
                true => self.lanes[lane].lane.peek(tickets, &part, segments),
                false => {
                    let segments: Vec<_> = cut(segments, at - request.at, bytes).collect();
                    self.lanes[lane].lane.peek(tickets, &part, &segments)
                }
            };
            if !done? {
                return done;
            }
            passes = done;
        }
        passes
    }

    fn queue(&mut self, io: &mut Io<'_>, now: Instant, requests: &[Request], segments: &[Segment]) {
        self.now = now;
        self.look_at_pause(io);
        for (request, segments) in each(requests, segments) {
            match self.stops() {
                true => self.held.push((*request, segments.to_vec())),
                false => self.take(io, request, segments),
            }
        }
        self.work(io);
    }

    fn launch(&mut self, io: &mut Io<'_>) {
        loop {
            for FileLane { lane, .. } in &mut self.lanes {
                let mut inner = inner!(self, io);
                lane.launch(&mut inner);
            }
            self.work(io);
            if !std::mem::take(&mut io.launch) {
                return;
            }
        }
    }

    fn completed(&mut self, io: &mut Io<'_>, now: Instant, steps: &[Completed]) {
        self.now = now;
        let mut rest = steps;
        while let [first, ..] = rest {
            let lane = self.steps[first.tag.0.into()].1;
            let same = rest.iter().take_while(|step| self.steps[step.tag.0.into()].1 == lane).count();
            let (steps, others) = rest.split_at(same);
            rest = others;
            match lane {
                ROOM => steps.iter().for_each(|step| self.allocated(step)),
                LEAVE => steps.iter().for_each(|step| self.may_go_on(step.tag)),
                lane => {
                    let mut inner = inner!(self, io);
                    self.lanes[lane].lane.completed(&mut inner, now, steps);
                    io.launch |= inner.launch;
                }
            }
        }
        self.work(io);
        self.launch_now(io);
    }

    /// pause.4
    fn look(&mut self, io: &mut Io<'_>, now: Instant) {
        self.now = now;
        self.work(io);
        self.launch_now(io);
    }

    fn in_flight(&self) -> usize {
        self.pending.len() + self.held.len()
    }
}

impl Drop for OnOverlay {
    fn drop(&mut self) {
        self.device.pause.leave(self.number);
    }
}

/// The lanes of the files of an overlay: the top's, then those below it from the bottom. None of them answers by the clock.
fn lanes_of(layers: &Layers, address: Address) -> Vec<FileLane> {
    let beside = Address { is_beside: true, ..address };
    let addresses = std::iter::once(address).chain(std::iter::repeat(beside));
    let lanes = layers.files().zip(addresses).map(|(file, address)| Arc::clone(file).lane(address));
    lanes.map(|lane| FileLane { lane, batch: Batch::default() }).collect()
}

/// Whether a request is a copy from between the top and the base (flatten.1).
fn is_copy(request: &Request) -> bool {
    request.op == Op::Write && request.flags.contains(Flags::COPY_UP)
}

fn give_back(io: &mut Io<'_>, ticket: usize) {
    if let Memory::Pool(buffer) = io.tickets.remove(ticket).memory {
        io.pool.put(buffer);
    }
}
