//! The engine: what a worker does with requests, between the front above and the devices below.
//!
//! E1  A request stays with the worker that took it in. Its memory is the device's from dispatch to completion, and is not
//!     given back before, whatever became of the client.
//! E2  A disk's queue is locked once per batch: completions, new bios, dispatch and news in one go.
//! E3  Devices that answer at once are served in the loop; the others go through the ring, all of a turn in one system
//!     call, or to helper threads where the ring would take threads of its own. Where a model says when a request ends, its data has moved by then.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::task::Waker;

use crate::device::helpers::{Done, Helpers, Job, Work};
use crate::device::{self, Act, File, Inline, Modelled, asked};
use crate::disk::Disk;
use crate::disk::line::Line;
use crate::kernel::buffer::{Buffer, Pool};
use crate::kernel::notify::Notifiers;
use crate::kernel::ring::{Ring, Source};
use crate::kernel::ticket::{Memory, Ticket, Tickets};
use fairlift_core::{Bio, ContextId, Dispatch, Duration, Errno, Finished, Flags, Instant, Op, Outcome, Refused};
use fairlift_core::{Tag, model::Asked, queue::Segment};
use io_uring::types::Fixed;
use io_uring::{opcode, squeue, types};

/// News of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// It ended.
    Ended(Outcome),
    /// It failed; its memory is not free yet.
    TimedOut,
    /// Its memory is free.
    Released,
}

/// A worker's side of a disk.
struct Side {
    disk: Arc<Disk>,
    /// Bios that the queue had no room for, and new ones: they go in at the next turn.
    backlog: VecDeque<Bio>,
    /// What the device has answered since the last turn.
    ended: Vec<(Tag, Outcome)>,
    busy: Vec<Tag>,
    /// What to do for the device, each with the number of its segments, and all segments in that order.
    dispatches: Vec<(Dispatch, usize)>,
    segments: Vec<Segment>,
    flights: Box<[Flight]>,
    /// The models among its devices.
    models: Vec<InModel>,
    timeout: Option<Instant>,
    /// Where tags are shared: our place in the line for them.
    line: Option<Line>,
    /// The queue refused the first of the backlog.
    full: bool,
    dirty: bool,
}

/// A worker's side of a model.
struct InModel {
    /// Where on the disk it is.
    place: usize,
    /// What to submit before the turn ends.
    asked: Vec<Asked>,
    /// Requests in it.
    open: usize,
    /// When to look at it.
    due: Option<Instant>,
}

/// A request in the ring.
#[derive(Default)]
struct Flight {
    dispatch: Option<Dispatch>,
    place: usize,
    /// Where in the device it starts, in bytes.
    at: u64,
    /// Its memory; stays where it is while the kernel has it.
    iovecs: Vec<libc::iovec>,
    /// The block of the pool that its memory, if it is one piece, is in.
    block: Option<u16>,
    /// Bytes done so far.
    done: u64,
    step: Step,
}

/// How far a request in the ring is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Step {
    /// Moving data.
    #[default]
    Transfer,
    /// In `fallocate` with this mode.
    Allocate(i32),
    /// Writing zeroes from a page of them, because no `fallocate` can.
    WriteOut,
    /// Making all that was written durable.
    Sync,
}

// SAFETY: the pointers in `iovecs` name buffers of the same worker, with which they move to its thread.
unsafe impl Send for Flight {}

/// What a worker does with requests.
pub(crate) struct Engine {
    pub(crate) ring: Ring,
    pub(crate) pool: Pool,
    tickets: Tickets,
    pub(crate) context: ContextId,
    /// News for the front, by tickets, since it last looked.
    pub(crate) news: Vec<(usize, News)>,
    sides: Vec<Side>,
    delayed: BinaryHeap<Reverse<(Instant, usize, u16)>>,
    notifiers: Arc<Notifiers>,
    helpers: Arc<Helpers>,
    /// What helpers have done, while it is looked at.
    helped: Vec<Done>,
    zeroes: Buffer,
    dirty: Vec<usize>,
    /// Requests that go into the ring after the replies of the turn.
    launches: Vec<(usize, Tag)>,
}

impl Engine {
    pub(crate) fn new(
        ring: Ring,
        mut pool: Pool,
        context: ContextId,
        disks: &[Arc<Disk>],
        notifiers: Arc<Notifiers>,
        helpers: Arc<Helpers>,
    ) -> Self {
        let sides: Vec<_> = disks
            .iter()
            .map(|disk| {
                let depth = disk.queue(context).settings().depth;
                let models = disk.places().iter().enumerate().filter(|(_, place)| place.device.model().is_some());
                Side {
                    disk: Arc::clone(disk),
                    backlog: VecDeque::with_capacity(256),
                    ended: Vec::with_capacity(usize::from(depth)),
                    busy: Vec::new(),
                    dispatches: Vec::with_capacity(usize::from(depth)),
                    segments: Vec::with_capacity(usize::from(depth) * 4),
                    flights: (0..depth).map(|_| Flight::default()).collect(),
                    models: models.map(|(place, _)| InModel { place, asked: Vec::new(), open: 0, due: None }).collect(),
                    timeout: None,
                    line: disk.tags().map(|tags| {
                        let waker = Waker::from(Arc::new(notifiers.waker(context)));
                        Line::new(tags, usize::from(context.0), waker)
                    }),
                    full: false,
                    dirty: false,
                }
            })
            .collect();
        if sides.iter().any(|side: &Side| !side.models.is_empty()) {
            Ring::be_punctual();
        }
        let mut zeroes = pool.get(1 << 16).expect("the budget is larger than one buffer");
        zeroes.bytes_mut().fill(0);
        let tickets = Tickets::with_capacity(1024);
        let (news, delayed, dirty) = (Vec::with_capacity(1024), BinaryHeap::new(), Vec::new());
        let helped = Vec::with_capacity(256);
        Self {
            ring,
            pool,
            tickets,
            context,
            news,
            sides,
            delayed,
            notifiers,
            helpers,
            helped,
            zeroes,
            dirty,
            launches: Vec::with_capacity(256),
        }
    }

    /// The disk of that number.
    pub(crate) fn disk(&self, disk: usize) -> &Disk {
        &self.sides[disk].disk
    }

    /// A ticket for a request of the front, which knows it as `owner`.
    #[inline]
    pub(crate) fn admit(&mut self, owner: u64, memory: Memory) -> usize {
        self.tickets.insert(Ticket { owner, memory })
    }

    /// What the front calls a request.
    #[inline]
    pub(crate) fn owner(&self, ticket: usize) -> u64 {
        self.tickets[ticket].owner
    }

    /// The memory of a request that no device has.
    #[inline]
    pub(crate) fn memory(&self, ticket: usize) -> &Memory {
        &self.tickets[ticket].memory
    }

    /// The memory of a request that no device has, to be filled.
    #[inline]
    pub(crate) fn memory_mut(&mut self, ticket: usize) -> &mut Memory {
        &mut self.tickets[ticket].memory
    }

    /// Gives back what a request held, which has ended and that no device has (E1); how many bytes of the pool.
    #[inline]
    pub(crate) fn release(&mut self, ticket: usize) -> u64 {
        match self.tickets.remove(ticket).memory {
            Memory::Pool(buffer) => {
                let bytes = buffer.bytes().len() as u64;
                self.pool.put(buffer);
                bytes
            }
            Memory::Guest(_) | Memory::None => 0,
        }
    }

    /// Requests of the front that it has not released.
    pub(crate) fn open(&self) -> usize {
        self.tickets.len()
    }

    /// Takes a bio in, for the next turn of its disk; its token is its ticket.
    pub(crate) fn submit(&mut self, disk: usize, bio: Bio) {
        self.sides[disk].backlog.push_back(bio);
        self.mark(disk);
    }

    /// Whether the queue of a disk had no room when last asked.
    pub(crate) fn is_full(&self, disk: usize) -> bool {
        self.sides[disk].full
    }

    /// Answers the worker's bell, and lets the ring hear it again if that has ended.
    pub(crate) fn answer_bell(&mut self, arm: bool) {
        if arm {
            self.notifiers.arm_bell(self.context, &mut self.ring);
        }
        self.notifiers.answer_bell(self.context);
    }

    /// The worker takes its notice away, and then looks around.
    pub(crate) fn take_notice(&self) {
        self.notifiers.take_notice(self.context);
    }

    /// Somebody granted us something, or made room, or has done something for us.
    pub(crate) fn woken(&mut self) {
        let mut helped = std::mem::take(&mut self.helped);
        self.helpers.take(self.context, &mut helped);
        for (disk, tag, result) in helped.drain(..) {
            self.completed(disk, tag, result);
        }
        self.helped = helped;
        for disk in 0..self.sides.len() {
            self.mark(disk);
        }
    }

    /// Requests that the devices have.
    pub(crate) fn in_devices(&self) -> usize {
        self.delayed.len()
            + self.sides.iter().flat_map(|side| &side.models).map(|model| model.open).sum::<usize>()
            + self.sides.iter().flat_map(|side| &side.flights).filter(|flight| flight.dispatch.is_some()).count()
    }

    /// When to turn the disks though nothing completed.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let delayed = self.delayed.peek().map(|Reverse((at, ..))| *at);
        let sides =
            self.sides.iter().flat_map(|side| side.models.iter().filter_map(|model| model.due).chain(side.timeout));
        sides.chain(delayed).min()
    }

    /// Turns every disk that has something to do, until none has; fills `news`.
    pub(crate) fn turn(&mut self, now: Instant) {
        while let Some(Reverse((at, disk, tag))) = self.delayed.peek().copied() {
            if now < at {
                break;
            }
            self.delayed.pop();
            self.sides[disk].ended.push((Tag(tag), Outcome::Done));
            self.mark(disk);
        }
        for disk in 0..self.sides.len() {
            let Side { timeout, models, .. } = &self.sides[disk];
            if timeout.iter().chain(models.iter().filter_map(|model| model.due.as_ref())).any(|at| *at <= now) {
                self.mark(disk);
            }
        }
        while let Some(disk) = self.dirty.pop() {
            self.sides[disk].dirty = false;
            self.fetch_from_models(now, disk);
            self.turn_queue(now, disk);
            self.execute(now, disk);
        }
    }

    fn mark(&mut self, disk: usize) {
        if !std::mem::replace(&mut self.sides[disk].dirty, true) {
            self.dirty.push(disk);
        }
    }

    /// Takes what has ended by the word of models.
    fn fetch_from_models(&mut self, now: Instant, number: usize) {
        let Side { disk, models, ended, .. } = &mut self.sides[number];
        for model in models {
            let before = ended.len();
            let next = modelled(disk, model.place).fetch(now, self.context, ended);
            model.open -= ended.len() - before;
            model.due = next.at;
            self.notifiers.wake_all(next.wake, self.context, &mut self.ring);
        }
    }

    /// Gives models what went out to them.
    fn submit_to_models(&mut self, now: Instant, number: usize) {
        let Side { disk, models, .. } = &mut self.sides[number];
        for model in models.iter_mut().filter(|model| !model.asked.is_empty()) {
            model.open += model.asked.len();
            let next = modelled(disk, model.place).submit(now, self.context, &mut model.asked);
            model.due = next.at;
            self.notifiers.wake_all(next.wake, self.context, &mut self.ring);
        }
    }

    /// E2
    fn turn_queue(&mut self, now: Instant, number: usize) {
        let side = &mut self.sides[number];
        let mut queue = side.disk.queue(self.context);
        let came = side.ended.len() + side.busy.len();
        for (tag, outcome) in side.ended.drain(..) {
            queue.handle_completion(now, tag, outcome);
        }
        for tag in side.busy.drain(..) {
            queue.handle_busy(now, tag);
        }
        if side.timeout.is_some_and(|at| at <= now) {
            queue.handle_timeout(now);
        }
        let mut may_ask = side.line.as_mut().is_none_or(|line| line.begin(came));
        side.full = false;
        while let Some(bio) = side.backlog.front() {
            match queue.submit(now, *bio) {
                Ok(()) => {}
                Err(Refused::Full) => {
                    side.full = true;
                    break;
                }
                // The protocol has checked the range already; the device's own word is passed on all the same.
                Err(Refused::Unsupported(_)) => {
                    self.news.push((bio.token.0 as usize, News::Ended(Outcome::Failed(Errno::ENOTSUP))));
                }
                Err(Refused::Empty | Refused::BeyondEnd { .. } | Refused::Unaligned { .. }) => {
                    self.news.push((bio.token.0 as usize, News::Ended(Outcome::Failed(Errno::EINVAL))));
                }
            }
            side.backlog.pop_front();
        }
        while may_ask {
            let mut goes_on = true;
            while goes_on && let Some(dispatch) = queue.poll_dispatch(now, self.context) {
                let before = side.segments.len();
                side.segments.extend(queue.segments(dispatch.tag));
                side.dispatches.push((dispatch, side.segments.len() - before));
                goes_on = side.line.as_mut().is_none_or(Line::took);
            }
            may_ask = side.line.as_mut().is_some_and(|line| line.wait(queue.lacks_tag()));
        }
        queue.handle_flushes(now);
        if let Some(gauge) = &side.disk.gauge {
            let flushes = side.dispatches.iter().filter(|(dispatch, _)| dispatch.op == Op::Flush).count();
            gauge.note(now, came, side.dispatches.len(), flushes);
        }
        while let Some(news) = queue.poll_finished(self.context) {
            self.news.push(match news {
                Finished::Done(token, outcome) => (token.0 as usize, News::Ended(outcome)),
                Finished::TimedOut(token) => (token.0 as usize, News::TimedOut),
                Finished::Released(token) => (token.0 as usize, News::Released),
            });
        }
        while let Some(context) = queue.poll_wake() {
            if context != self.context {
                self.notifiers.wake(context, &mut self.ring);
            }
        }
        side.timeout = queue.poll_timeout();
        if let Some(line) = &mut side.line {
            let idle = line.end(now, queue.in_flight() == 0 && queue.waiting() == 0);
            side.timeout = side.timeout.into_iter().chain(idle).min();
        }
    }

    /// Gives what was dispatched to the devices.
    fn execute(&mut self, now: Instant, number: usize) {
        let side = &mut self.sides[number];
        let disk = Arc::clone(&side.disk);
        let mut dispatches = std::mem::take(&mut side.dispatches);
        let mut segments = std::mem::take(&mut side.segments);
        let mut rest = &segments[..];
        for (dispatch, count) in dispatches.drain(..) {
            let (mine, others) = rest.split_at(count);
            rest = others;
            let (index, at) = disk.locate(dispatch.extent);
            let place = disk.place(index);
            if let Some(inline) = place.device.inline() {
                let outcome = self.answer(inline, &dispatch, at, mine); // E3
                if let Outcome::Failed(errno) = outcome {
                    place.device.failed(dispatch.op, errno);
                }
                let delay = place.device.delay();
                if let Some(model) = self.sides[number].models.iter_mut().find(|model| model.place == index) {
                    model.asked.push(asked(dispatch.tag, dispatch.op, dispatch.flags, at, dispatch.extent.bytes()));
                } else if delay == Duration::ZERO {
                    self.sides[number].ended.push((dispatch.tag, outcome));
                    self.mark(number);
                } else {
                    self.delayed.push(Reverse((now + delay, number, dispatch.tag.0)));
                }
            } else {
                let flight = &mut self.sides[number].flights[usize::from(dispatch.tag.0)];
                assert!(flight.dispatch.is_none(), "tag {} is in flight twice", dispatch.tag.0);
                (flight.dispatch, flight.place, flight.at, flight.done) = (Some(dispatch), index, at, 0);
                flight.iovecs.clear();
                if dispatch.op.has_payload() {
                    for segment in mine {
                        let memory = &self.tickets[segment.token.0 as usize].memory;
                        let (iovec, block) = memory.piece(segment.offset, segment.bytes);
                        flight.iovecs.push(iovec);
                        flight.block = block;
                    }
                }
                self.launches.push((number, dispatch.tag));
            }
        }
        segments.clear();
        let side = &mut self.sides[number];
        (side.dispatches, side.segments) = (dispatches, segments);
        self.submit_to_models(now, number);
    }

    /// Does a request on a device that answers at once.
    fn answer(&mut self, device: &dyn Inline, dispatch: &Dispatch, mut at: u64, segments: &[Segment]) -> Outcome {
        match dispatch.op {
            Op::Flush => device.flush(),
            Op::Discard => device.discard(at, dispatch.extent.bytes()),
            Op::WriteZeroes => device.write_zeroes(at, dispatch.extent.bytes(), dispatch.flags),
            Op::Read | Op::Write => {
                let mut outcome = Outcome::Done;
                for segment in segments {
                    let memory = &mut self.tickets[segment.token.0 as usize].memory;
                    let range = segment.offset as usize..(segment.offset + segment.bytes) as usize;
                    outcome = outcome.and(match dispatch.op {
                        Op::Read => device.read(at, &mut memory.bytes_mut()[range]),
                        _ => device.write(at, &memory.bytes()[range], dispatch.flags),
                    });
                    at += segment.bytes;
                }
                outcome
            }
        }
    }

    /// Puts the requests of the turn into the ring, to be called before it is waited for; whether one ended on the way, so that
    /// there is another turn to take.
    ///
    /// The kernel takes entries in order, and some microseconds for each read or write: the replies of a turn go before them, so
    /// that clients ask again while it does.
    pub(crate) fn launch_all(&mut self) -> bool {
        let mut launches = std::mem::take(&mut self.launches);
        for (number, tag) in launches.drain(..) {
            self.launch(number, tag);
        }
        self.launches = launches;
        !self.dirty.is_empty()
    }

    /// Puts a new request into the ring.
    fn launch(&mut self, number: usize, tag: Tag) {
        let side = &mut self.sides[number];
        let flight = &mut side.flights[usize::from(tag.0)];
        let dispatch = flight.dispatch.expect("a flight that is launched was filled in");
        let file = file_of(&side.disk, flight.place);
        flight.step = match dispatch.op {
            Op::Read | Op::Write => Step::Transfer,
            Op::Flush if file.is_read_only() => return self.land(number, tag, Outcome::Done),
            Op::Flush => Step::Sync,
            Op::Discard => match file.discard_mode() {
                Some(mode) => Step::Allocate(mode),
                None => return self.land(number, tag, Outcome::Done),
            },
            Op::WriteZeroes => match file.zero_mode(dispatch.flags) {
                Some(mode) => Step::Allocate(mode),
                None if dispatch.flags.contains(Flags::FAST) => {
                    return self.land(number, tag, Outcome::Failed(Errno::ENOTSUP));
                }
                None => Step::WriteOut,
            },
        };
        self.push(number, tag);
    }

    /// Submits the present step of a request.
    fn push(&mut self, number: usize, tag: Tag) {
        let side = &mut self.sides[number];
        let flight = &mut side.flights[usize::from(tag.0)];
        let dispatch = flight.dispatch.expect("a flight is filled in until it lands");
        let file = file_of(&side.disk, flight.place);
        let number_of_file = side.disk.place(flight.place).file.expect("a file is registered");
        let fixed = Fixed(number_of_file);
        let (at, left) = (flight.at + flight.done, dispatch.extent.bytes() - flight.done);
        let act = match (flight.step, dispatch.op) {
            (Step::Transfer, Op::Read) => Act::Read,
            (Step::Transfer | Step::WriteOut, _) => Act::Write,
            (Step::Allocate(_), _) => Act::Allocate,
            (Step::Sync, _) => Act::Sync,
        };
        if let Some(order) = file.by_helpers(act) {
            if act == Act::Read
                // SAFETY: the iovecs name memory of tickets that wait for this read, and that nobody else has (E1).
                && let Some(bytes) = unsafe { file.read_now(&flight.iovecs, at, left) }
            {
                return self.completed(number, tag, bytes as i32);
            }
            let (iovecs, count) = (flight.iovecs.as_ptr(), flight.iovecs.len());
            let work = match flight.step {
                Step::Transfer if act == Act::Read => Work::Read { iovecs, count, at },
                Step::Transfer => {
                    let flags = if dispatch.flags.contains(Flags::FUA) { libc::RWF_DSYNC } else { 0 };
                    Work::Write { iovecs, count, at, flags }
                }
                Step::WriteOut => {
                    let len = left.min(self.zeroes.bytes().len() as u64) as usize;
                    Work::WriteOut { from: self.zeroes.as_ptr(), len, at }
                }
                Step::Allocate(mode) => Work::Allocate { mode, at, len: left },
                Step::Sync => Work::Sync { data_only: file.flush_is_datasync() },
            };
            let bytes = match work {
                Work::WriteOut { len, .. } => len as u64,
                Work::Read { .. } | Work::Write { .. } | Work::Allocate { .. } | Work::Sync { .. } => left,
            };
            let sectors = bytes / fairlift_core::Sector::SIZE;
            let job = Job { worker: self.context, disk: number, tag, fd: file.as_raw_fd(), sectors, work };
            // SAFETY: as for the ring, below; the result is taken in `woken`.
            unsafe { self.helpers.push(number_of_file as usize, order, job) }
            return;
        }
        let entry = match flight.step {
            Step::Transfer => {
                // There is no vectored operation on registered memory before Linux 6.15.
                let block = flight.block.filter(|_| flight.iovecs.len() == 1);
                let block = block.filter(|block| self.ring.is_fixed(&self.pool, *block));
                // The queue asks it only of those that can (`Facts::fua`).
                let durable = dispatch.flags.contains(Flags::FUA);
                transfer(dispatch.op, durable, fixed, &flight.iovecs, block, at)
            }
            Step::Allocate(mode) => opcode::Fallocate::new(fixed, left).offset(at).mode(mode).build(),
            Step::WriteOut => {
                let len = left.min(self.zeroes.bytes().len() as u64) as u32;
                opcode::Write::new(fixed, self.zeroes.as_ptr(), len).offset(at).build()
            }
            Step::Sync => {
                let datasync = file.flush_is_datasync();
                let flags = if datasync { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
                opcode::Fsync::new(fixed).flags(flags).build()
            }
        };
        let entry = entry.user_data(Source::Io { disk: number, tag }.pack());
        // SAFETY: the entry names the flight's iovecs, which are not touched until its completion (`completed`); memory
        // of tickets, which their front releases after `News::Ended` or `Released`, after that completion (E1); and the zeroes,
        // which live as long as the engine, whose ring is dropped before them.
        unsafe { self.ring.push(&entry) }
    }

    /// The kernel has done a step of a request: `result` as the system call would have returned it.
    pub(crate) fn completed(&mut self, number: usize, tag: Tag, result: i32) {
        let side = &mut self.sides[number];
        let flight = &mut side.flights[usize::from(tag.0)];
        let dispatch = flight.dispatch.expect("the kernel completes what was launched, once");
        let file = file_of(&side.disk, flight.place);
        let total = dispatch.extent.bytes();
        match (result, flight.step) {
            (_, _) if result == -libc::EINTR => return self.push(number, tag),
            (_, _) if result == -libc::EAGAIN => {
                flight.dispatch = None;
                side.busy.push(tag);
                return self.mark(number);
            }
            (..0, Step::Allocate(mode)) if device::is_unsupported(-result) => {
                file.learn_unsupported(mode);
                return self.launch(number, tag);
            }
            (..0, step) => {
                let op = if step == Step::Sync { Op::Flush } else { dispatch.op };
                file.failed(op, Errno(-result));
                return self.land(number, tag, Outcome::Failed(Errno(-result)));
            }
            // The file is shorter than it was.
            (0, Step::Transfer | Step::WriteOut) => {
                file.failed(dispatch.op, Errno::EIO);
                return self.land(number, tag, Outcome::Failed(Errno::EIO));
            }
            (1.., Step::Transfer) => {
                flight.done += result as u64;
                if flight.done < total {
                    advance(&mut flight.iovecs, result as usize);
                    return self.push(number, tag);
                }
            }
            (1.., Step::WriteOut) => {
                flight.done += result as u64;
                if flight.done < total {
                    return self.push(number, tag);
                }
            }
            (_, Step::Allocate(_)) => flight.done = total,
            (_, Step::Sync) => file.look(),
        }
        self.land(number, tag, Outcome::Done);
    }

    fn land(&mut self, number: usize, tag: Tag, outcome: Outcome) {
        let side = &mut self.sides[number];
        side.flights[usize::from(tag.0)].dispatch = None;
        side.ended.push((tag, outcome));
        self.mark(number);
    }
}

fn file_of(disk: &Disk, place: usize) -> &File {
    match &*disk.place(place).device {
        device::Device::File(file) => file,
        device::Device::Null(_) | device::Device::Mem(_) | device::Device::Model(_) => {
            unreachable!("what answers at once has no flights")
        }
    }
}

fn modelled(disk: &Disk, place: usize) -> &Modelled {
    disk.place(place).device.model().expect("the places of models were looked up when the engine was made")
}

/// Drops the first `bytes` of some memory.
fn advance(iovecs: &mut Vec<libc::iovec>, mut bytes: usize) {
    let whole = iovecs.iter().take_while(|iovec| {
        let fits = iovec.iov_len <= bytes;
        bytes -= if fits { iovec.iov_len } else { 0 };
        fits
    });
    let whole = whole.count();
    iovecs.drain(..whole);
    if let Some(first) = iovecs.first_mut() {
        first.iov_base = first.iov_base.wrapping_byte_add(bytes);
        first.iov_len -= bytes;
    }
}

/// A read or write. Memory of one piece is named by the entry, otherwise by `iovecs`.
pub(crate) fn transfer(
    op: Op,
    durable: bool,
    file: Fixed,
    iovecs: &[libc::iovec],
    block: Option<u16>,
    at: u64,
) -> squeue::Entry {
    let durable = if durable { libc::RWF_DSYNC } else { 0 };
    let (start, len) = (iovecs[0].iov_base.cast::<u8>(), iovecs[0].iov_len as u32);
    match (op, block, iovecs) {
        (Op::Read, Some(block), _) => opcode::ReadFixed::new(file, start, len, block).offset(at).build(),
        (Op::Read, None, [_]) => opcode::Read::new(file, start, len).offset(at).build(),
        (Op::Read, None, _) => opcode::Readv::new(file, iovecs.as_ptr(), iovecs.len() as u32).offset(at).build(),
        (_, Some(block), _) => opcode::WriteFixed::new(file, start, len, block).offset(at).rw_flags(durable).build(),
        (_, None, [_]) => opcode::Write::new(file, start, len).offset(at).rw_flags(durable).build(),
        (_, None, _) => {
            opcode::Writev::new(file, iovecs.as_ptr(), iovecs.len() as u32).offset(at).rw_flags(durable).build()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use fairlift_core::{Extent, Flags, Group, GroupId, Priority, Sector, Stream, Token, sched};

    use super::*;
    use crate::config;
    use crate::device::Device;
    use crate::kernel::ticket::Guest;

    /// An engine with one disk, of RAM, and a stream on it.
    fn engine() -> (Engine, fairlift_core::StreamId) {
        let settings = config::Disk {
            name: "d".into(),
            scheduler: sched::Kind::None,
            set: Vec::new(),
            depth: None,
            shared_tags: false,
            if_rotational: None,
            nr_requests: None,
            io_timeout: None,
            concurrency: Default::default(),
        };
        let device = Arc::new(Device::open(&config::Backing::Mem { size: 1 << 20 }, false).unwrap());
        let disk = Arc::new(Disk::new(&settings, &[(device, None)], &[Group::root()], 1).unwrap());
        let notifiers = Arc::new(Notifiers::new(1).unwrap());
        let helpers = Helpers::new(1, &[disk.concurrency], &[], 1, Arc::clone(&notifiers));
        let (ring, pool) = (Ring::new(8, 8, 1).unwrap(), Pool::new(1 << 20, 1));
        let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context: ContextId(0) };
        let stream = disk.queue(ContextId(0)).add_stream(stream);
        (Engine::new(ring, pool, ContextId(0), &[disk], notifiers, helpers), stream)
    }

    #[test]
    fn a_request_with_the_memory_of_a_guest_is_served_in_place() {
        let (mut engine, stream) = engine();
        let (mut from, mut into) = ([7u8; 4096], [0u8; 4096]);
        for (op, memory) in [(Op::Write, &mut from), (Op::Read, &mut into)] {
            // SAFETY: the array outlives the ticket, and is not looked at before that is released.
            let guest = unsafe { Guest::new(NonNull::from(memory).cast(), 4096) };
            let ticket = engine.admit(42, Memory::Guest(guest));
            let extent = Extent::new(Sector(8), 8);
            engine.submit(0, Bio { op, flags: Flags::NONE, extent, stream, token: Token(ticket as u64) });
            engine.turn(Instant::ZERO);
            assert_eq!(engine.news, [(ticket, News::Ended(Outcome::Done))]);
            engine.news.clear();
            assert_eq!((engine.owner(ticket), engine.release(ticket)), (42, 0), "nothing of the pool");
        }
        assert_eq!((into, engine.open()), ([7; 4096], 0));
    }
}
