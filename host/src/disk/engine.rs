//! The engine: what a worker does with requests, between the front above and the devices below.
//!
//! A front admits a request (a ticket with its memory) and submits a bio for it. In the next turn of the disk the engine
//! gives the queue all that is new, and takes out all that is to go to the devices. Example: 32 reads of one client become,
//! in one turn, 32 bios, one lock, perhaps 20 requests after merging, one call of the file's lane, and a system call for each 8.
//!
//! engine.1  A request stays with the worker that took it in. Its memory is the device's from dispatch to completion, and is not
//!           given back before, whatever becomes of the client.
//! engine.2  A disk's queue is locked once per batch: completions, new bios, dispatch and news in one go.
//! engine.3  A device is given the requests of a turn together, by its lane, and answers now or later. The engine does not know
//!           which kind of device it is.

#[cfg(test)]
pub(crate) mod bench;
mod handles;
mod peek;
mod read_modify_write;
mod stuck;

use std::sync::Arc;
use std::task::Waker;

use fairlift_core::stats::Stats;
use fairlift_core::waits;
use fairlift_core::{Bio, ContextId, Duration, Extent, Instant, Op, Outcome, Sector, Stream, StreamId, Tag};

pub(crate) use super::queue_io::News;
use super::queue_io::{Arrival, Member, QueueIo};
use super::queues::Queues;
use super::tag_wait::TagWait;
use super::{Disk, Disks, Place, Registered};
use crate::device::Device;
use crate::device::lane::{Address, Completed, Gone, Io, Lane, Map};
use crate::kernel::buffer::Pool;
use crate::kernel::helpers::{Done, Helpers};
use crate::kernel::notify::Notifiers;
use crate::kernel::ring::{Ring, Source};
use crate::kernel::ticket::{Memory, Part, Ticket, Tickets};
use handles::DiskHandles;
use read_modify_write::{Claims, Settling, changes};
pub(crate) use stuck::LOOK;
use stuck::Still;

/// No disk's change: to look at it again at the next turn.
const LOOK_AGAIN: u64 = u64::MAX;

struct DiskHandle {
    disk: Arc<Disk>,
    /// The disk's queues, and the change after which they were looked up.
    queues: Arc<Queues>,
    epoch: u64,
    handover: Handover,
    queue_io: QueueIo,
    places: Arc<[Place]>,
    /// Of its devices, by their places.
    lanes: Vec<Box<dyn Lane>>,
    /// The registered devices of the lanes.
    held: Vec<Option<Registered>>,
    /// The places of those that answer by the clock.
    timed: Vec<usize>,
    /// Reads of some pass through memory above the disk.
    peeks: bool,
    /// Writes claim their blocks ([`blocks`](super::blocks)).
    claims: bool,
    settling: Settling,
    /// Steps of requests that the ring or helpers have done since the last turn.
    completed: Vec<Completed>,
    /// Places whose lanes were told to look, since the last turn.
    looks: Vec<usize>,
    dirty: bool,
    /// The result of the last look, if nothing happens here.
    still: Option<Still>,
}

/// Whether the worker gives its queue new bios ([`handover`](super::handover)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Handover {
    /// It does.
    Open,
    /// The disk is frozen: what is in the queue is to end.
    Frozen,
    /// It has ended; the disk knows.
    Arrived,
}

pub(crate) struct Engine {
    pub(crate) ring: Ring,
    pub(crate) pool: Pool,
    tickets: Tickets,
    pub(crate) context: ContextId,
    /// When the turn began.
    pub(crate) now: Instant,
    /// Clients of the worker are held, for another server or until one hands them over.
    pub(crate) holds: bool,
    /// Since when the worker lets no clients in and answers those that it has: the server ends.
    pub(crate) drains: Option<Instant>,
    /// News for the front, by tickets, since it last looked.
    pub(crate) news: Vec<(usize, News)>,
    /// Of the disks that its clients use, and of those that all workers share out (disk.4).
    handles: DiskHandles,
    claims: Claims,
    disks: Arc<Disks>,
    /// The change of the disks that was looked at last.
    disks_seen: u64,
    pub(crate) notifiers: Arc<Notifiers>,
    helpers: Arc<Helpers>,
    /// The completions of helpers, while they are looked at.
    helped: Vec<Done>,
    dirty: Vec<usize>,
    /// Maps that lanes have told, by tickets.
    mapped: Vec<(usize, Outcome)>,
    /// Lanes, by disk and place, that put something into the ring after the replies of the turn.
    launches: Vec<(usize, usize)>,
}

/// The parts of the engine that a lane of `handle` uses.
macro_rules! io {
    ($engine:ident, $handle:ident) => {
        Io {
            context: $engine.context,
            ring: &mut $engine.ring,
            pool: &mut $engine.pool,
            tickets: &mut $engine.tickets,
            helpers: &$engine.helpers,
            notifiers: &$engine.notifiers,
            ended: &mut $handle.queue_io.ended,
            cached: &mut $handle.queue_io.cached,
            busy: &mut $handle.queue_io.busy,
            mapped: &mut $engine.mapped,
            launch: false,
        }
    };
}

impl Engine {
    pub(crate) fn new(
        ring: Ring,
        pool: Pool,
        context: ContextId,
        disks: Arc<Disks>,
        notifiers: Arc<Notifiers>,
        helpers: Arc<Helpers>,
    ) -> Self {
        let mut engine = Self {
            ring,
            pool,
            tickets: Tickets::with_capacity(1024),
            context,
            now: Instant::ZERO,
            holds: false,
            drains: None,
            news: Vec::with_capacity(1024),
            handles: DiskHandles::default(),
            claims: Claims::default(),
            disks,
            disks_seen: 0,
            notifiers,
            helpers,
            helped: Vec::with_capacity(256),
            dirty: Vec::new(),
            mapped: Vec::new(),
            launches: Vec::with_capacity(64),
        };
        engine.look_at_disks();
        engine
    }

    /// Takes note of disks that came and went. It is called before anything is asked of a disk that has come.
    #[cold]
    fn look_at_disks(&mut self) {
        let (seen, disks) = self.disks.look();
        self.disks_seen = seen;
        for (number, disk) in disks.into_iter().enumerate() {
            let is_gone = |its: &Arc<Disk>| disk.as_ref().is_none_or(|disk| !Arc::ptr_eq(its, disk));
            if self.handles.has(number) && is_gone(&self.handles[number].disk) {
                let handle = self.handles.remove(number);
                assert!(
                    handle.queue_io.open == 0 && handle.queue_io.streams.is_empty(),
                    "a disk went while a worker had something on it"
                );
                handle.disk.leave(self.context);
                self.dirty.retain(|dirty| *dirty != number);
            }
            if let Some(disk) = disk.filter(|disk| !self.handles.has(number) && disk.is_shared_out()) {
                self.enter(number, disk);
            }
        }
    }

    #[cold]
    fn enter(&mut self, number: usize, disk: Arc<Disk>) {
        self.handles.insert(number, DiskHandle::new(number, disk, self.context, &self.notifiers, &mut self.ring));
        self.mark(number);
    }

    /// Adds a stream to a disk; what is answered is the name by which bios and the calls below mean it, whatever queues the
    /// disk has.
    pub(crate) fn add_stream(&mut self, disk: usize, stream: Stream) -> StreamId {
        // A client may have found its export before the worker is woken for it.
        if self.disks_seen != self.disks.changes() {
            self.look_at_disks();
        }
        if !self.handles.has(disk) {
            self.enter(disk, self.disks.get(disk));
        }
        let handle = &mut self.handles[disk];
        if handle.epoch != handle.disk.epoch() {
            handle.follow(disk, self.context, &self.notifiers, &mut self.ring);
        }
        let id = handle.queues.of(self.context).add_stream(stream);
        StreamId(handle.queue_io.streams.insert(Member { stream, id, before: Stats::default() }) as u32)
    }

    pub(crate) fn change_stream(&mut self, now: Instant, disk: usize, stream: StreamId, to: Stream) {
        let handle = &mut self.handles[disk];
        let member = &mut handle.queue_io.streams[stream.0 as usize];
        member.stream = to;
        handle.queues.of(self.context).change_stream(now, member.id, to);
    }

    /// Removes a stream; what it has done.
    ///
    /// # Panics
    /// If a bio of it has not ended.
    pub(crate) fn remove_stream(&mut self, disk: usize, stream: StreamId) -> Stats {
        let handle = &mut self.handles[disk];
        let mut queue = handle.queues.of(self.context);
        handle.queue_io.tell_replies(&mut queue);
        let Member { id, before: mut stats, .. } = handle.queue_io.streams.remove(stream.0 as usize);
        stats.add(&queue.groups().stream(id).stats());
        queue.remove_stream(id);
        drop(queue);
        self.mark(disk); // the disk may have been held idle for it
        stats
    }

    /// The worker ends: nobody waits for it any more.
    pub(crate) fn leave(&mut self) {
        let leave =
            |handle: &DiskHandle| handle.disk.leave(self.context) | (handle.disk.blocks.settled(self.context) != 0);
        if self.handles.iter().fold(false, |wake, handle| leave(handle) | wake) {
            self.notifiers.ring_all();
        }
    }

    /// A ticket for a request of the front, which knows it as `owner`.
    #[inline]
    pub(crate) fn admit(&mut self, owner: u64, memory: Memory) -> usize {
        self.tickets.insert(Ticket { owner, memory })
    }

    /// Tells a worker that a lane of its is to look, from any thread.
    pub(crate) fn teller(&self) -> impl Fn(ContextId, u64) + Send + use<> {
        let helpers = Arc::clone(&self.helpers);
        move |worker, lane| helpers.tell(worker, (lane, 0))
    }

    pub(crate) fn is_flushed(&self, disk: usize, device: &Arc<dyn Device>) -> Result<(), String> {
        self.disks.get(disk).is_flushed(device)
    }

    /// Has this worker look around, from any thread.
    pub(crate) fn waker(&self) -> impl Fn() + Send + use<> {
        let (notifiers, worker) = (Arc::clone(&self.notifiers), self.context);
        move || notifiers.ring_bell(worker)
    }

    /// The front's name of a request.
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

    /// Gives back what a request held, which has ended and that no device has (engine.1); how many bytes of the pool.
    #[inline(always)]
    pub(crate) fn release(&mut self, ticket: usize) -> u64 {
        match self.tickets.remove(ticket).memory {
            Memory::Pool(buffer) | Memory::Part(Part { buffer, .. }) => {
                let bytes = buffer.bytes().len() as u64;
                self.pool.put(buffer);
                bytes
            }
            Memory::Guest(_) | Memory::None | Memory::Map(_) => 0,
        }
    }

    /// Gives memory back that no request has (buffer.5).
    #[cold]
    pub(crate) fn give_memory_back(&mut self) {
        self.pool.give_back(|block| self.ring.forget(block));
    }

    /// Requests of the front that it has not released.
    pub(crate) fn open(&self) -> usize {
        self.tickets.len()
    }

    /// Takes a bio in, for the next turn of its disk; its token is its ticket.
    #[inline]
    pub(crate) fn submit(&mut self, disk: usize, bio: Bio) {
        self.submit_late(disk, bio, Duration::ZERO, waits::Part::Room);
    }

    /// As [`submit`](Self::submit), of a bio that has waited so long already, for `part`.
    #[inline]
    pub(crate) fn submit_late(&mut self, disk: usize, bio: Bio, waited: Duration, part: waits::Part) {
        let at = self.before(waited);
        let handle = &mut self.handles[disk];
        let bio = if bio.op == Op::Read { handle.peek(&mut self.tickets, bio) } else { bio };
        let request = Arrival { bio, at, part };
        if handle.claims && changes(bio.op) {
            return self.claim(disk, bio.extent, request, None);
        }
        handle.queue_io.backlog.push_back(request);
        self.mark(disk);
    }

    /// A time so long before this turn began.
    fn before(&self, waited: Duration) -> Instant {
        Instant::from_nanos(self.now.as_nanos().saturating_sub(waited.as_nanos()))
    }

    /// Asks a device, which has its place at `start`, what is allocated in a range of it; the answer is in the memory of the ticket.
    pub(crate) fn map(&mut self, disk: usize, start: Sector, map: Map) {
        let handle = &mut self.handles[disk];
        let (place, _) = Place::locate(&handle.places, Extent::new(start, 0));
        if handle.held[place].is_none() {
            handle.take_lane(disk, place, self.context, &mut self.ring);
        }
        handle.lanes[place].map(&mut io!(self, handle), self.now, map);
        self.mark(disk);
    }

    /// Replies to bios of a stream were sent, after this time in all. The queue hears of it at its next turn.
    pub(crate) fn replied(&mut self, disk: usize, stream: StreamId, op: Op, time: Duration) {
        self.handles[disk].queue_io.replied.push((stream, op, time));
    }

    /// Whether the queue of a disk had no room when last asked.
    pub(crate) fn is_full(&self, disk: usize) -> bool {
        self.handles[disk].queue_io.full
    }

    /// Another worker, a full queue or a helper thread woke this one.
    pub(crate) fn woken(&mut self) {
        if self.disks_seen != self.disks.changes() {
            self.look_at_disks();
        }
        let mut helped = std::mem::take(&mut self.helped);
        self.helpers.take(self.context, &mut helped);
        for (data, result) in helped.drain(..) {
            match Source::unpack(data) {
                Source::Io { disk, place, tag } => self.completed(disk, place, tag, result),
                Source::Look { disk, place } => self.look(disk, place),
                _ => unreachable!("lanes ask helpers"),
            }
        }
        self.helped = helped;
        self.look_at_blocks();
        for at in 0..self.handles.count() {
            self.mark(self.handles.number(at));
        }
    }

    /// What ceilings hold goes at once, and is paid for later (ceiling.11).
    pub(crate) fn lift_ceilings(&mut self) {
        let now = self.now;
        self.handles.iter().for_each(|handle| handle.queues.of(self.context).ceilings().lift(now));
        self.woken();
    }

    /// They hold again what comes from now on.
    pub(crate) fn lower_ceilings(&self) {
        self.handles.iter().for_each(|handle| handle.queues.of(self.context).ceilings().lower());
    }

    /// The worker did not run for so long until `now`, though it was to: no request counts as late that became so meanwhile.
    #[cold]
    pub(crate) fn stalled(&mut self, now: Instant, for_so_long: Duration) {
        for at in 0..self.handles.count() {
            let number = self.handles.number(at);
            let handle = &mut self.handles[number];
            handle.queues.of(self.context).handle_stall(now, for_so_long);
            handle.still = None;
            handle.lanes.iter_mut().for_each(|lane| lane.stalled(for_so_long));
        }
        self.woken();
    }

    pub(crate) fn in_devices(&self) -> usize {
        self.handles.iter().map(DiskHandle::in_lanes).sum()
    }

    /// When to turn the disks though nothing completed.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.handles.iter().filter_map(DiskHandle::due).min()
    }

    /// Whether lanes let answers come before they look at them, and no other lane awaits any: it is not worth while to look for
    /// news then.
    pub(crate) fn is_pausing(&self) -> bool {
        let mut lanes = self.handles.iter().flat_map(|handle| &handle.lanes);
        self.handles.iter().any(|handle| handle.timed.iter().any(|place| handle.lanes[*place].is_pausing()))
            && lanes.all(|lane| lane.is_pausing() || lane.in_flight() == 0)
    }

    /// The ring or a helper has done a step of a request: the lane hears of it at the next turn.
    #[inline]
    pub(crate) fn completed(&mut self, disk: usize, place: usize, tag: Tag, result: i32) {
        self.handles[disk].completed.push(Completed { place, tag, result });
        self.mark(disk);
    }

    /// A lane is to look, at the next turn. It may be gone by now.
    pub(crate) fn look(&mut self, disk: usize, place: usize) {
        if self.handles.has(disk) {
            self.handles[disk].looks.push(place);
            self.mark(disk);
        }
    }

    /// Turns every disk that has something to do, until none has; fills `news`.
    pub(crate) fn turn(&mut self, now: Instant) {
        for at in 0..self.handles.count() {
            let disk = self.handles.number(at);
            if self.handles[disk].due().is_some_and(|at| at <= now) {
                self.mark(disk);
            }
        }
        let mut seen = self.news.len();
        loop {
            while let Some(disk) = self.dirty.pop() {
                self.handles[disk].dirty = false;
                self.hear(now, disk);
                self.turn_queue(now, disk);
                self.execute(now, disk);
            }
            if self.claims.is_empty() {
                return;
            }
            self.look_at_claims(seen);
            seen = self.news.len();
            if self.dirty.is_empty() {
                return;
            }
        }
    }

    fn mark(&mut self, disk: usize) {
        if !std::mem::replace(&mut self.handles[disk].dirty, true) {
            self.dirty.push(disk);
        }
    }

    fn hear(&mut self, now: Instant, number: usize) {
        let handle = &mut self.handles[number];
        let mut io = io!(self, handle);
        // First, for an answered request is not late.
        for steps in handle.completed.chunk_by(|one, next| one.place == next.place) {
            handle.lanes[steps[0].place].completed(&mut io, now, steps);
        }
        handle.completed.clear();
        for place in handle.looks.drain(..) {
            if let Some(lane) = handle.lanes.get_mut(place) {
                lane.look(&mut io, now);
            }
        }
        for place in &handle.timed {
            handle.lanes[*place].poll(&mut io, now);
        }
    }

    /// engine.2
    fn turn_queue(&mut self, now: Instant, number: usize) {
        let handle = &mut self.handles[number];
        if handle.epoch != handle.disk.epoch() {
            handle.follow(number, self.context, &self.notifiers, &mut self.ring);
        }
        let mut queue = handle.queues.of(self.context);
        let queue_io = &mut handle.queue_io;
        let came = queue_io.complete(&mut queue, now);
        let may_ask = queue_io.tag_wait.as_mut().is_none_or(|wait| wait.begin(came));
        queue_io.full = false;
        queue_io.tell_replies(&mut queue);
        match handle.handover {
            _ if handle.settling == Settling::Waits => queue_io.take_back(&mut queue, now, self.context),
            Handover::Open => queue_io.submit(&mut queue, now, &mut self.news),
            Handover::Frozen | Handover::Arrived => queue_io.take_back(&mut queue, now, self.context), // handover.6
        }
        if may_ask {
            queue_io.dispatch(&mut queue, now, self.context, &handle.places);
        }
        queue.handle_flushes(now);
        if let Some(gauge) = &handle.disk.gauge {
            let flushes = queue_io.requests.iter().filter(|request| request.op == Op::Flush).count();
            gauge.note(now, came, queue_io.requests.len(), flushes);
        }
        queue_io.take_news(&mut queue, self.context, &mut self.news);
        let mut has_room = false;
        while let Some(context) = queue.poll_wake() {
            if context == self.context {
                has_room = queue_io.full; // for what was refused in this turn
            } else {
                self.notifiers.wake(context, &mut self.ring);
            }
        }
        queue_io.look_ahead(&queue, now);
        drop(queue);
        if has_room {
            self.mark(number);
        }
        self.hand_over(number);
    }

    /// Goes on with work that waited for the queue to be empty: letting go of a device, and another scheduler.
    #[inline]
    fn hand_over(&mut self, number: usize) {
        let handle = &mut self.handles[number];
        if handle.epoch == LOOK_AGAIN && handle.is_at_rest() && handle.lanes.iter().all(|lane| lane.in_flight() == 0) {
            self.mark(number); // what it could not let go, it can now
            return;
        }
        if handle.settling != Settling::Done {
            return self.settle(number); // it has something in the queue, or is turned again
        }
        if handle.handover == Handover::Frozen && handle.queue_io.is_out() {
            handle.handover = Handover::Arrived;
            if handle.disk.arrive(self.context) {
                self.notifiers.wake_all(u64::MAX >> (64 - self.notifiers.workers()), self.context, &mut self.ring);
                self.mark(number);
            }
        }
    }

    /// Gives what was dispatched to the devices, those that follow one another on a device together.
    fn execute(&mut self, now: Instant, number: usize) {
        let handle = &mut self.handles[number];
        let mut taken = std::mem::take(&mut handle.queue_io.requests);
        let mut all = std::mem::take(&mut handle.queue_io.segments);
        let mut segments = &all[..];
        for requests in taken.chunk_by(|one, next| one.place == next.place) {
            let (mine, others) = segments.split_at(requests.iter().map(|request| request.segments).sum());
            segments = others;
            let place = requests[0].place;
            if handle.held[place].is_none() {
                handle.take_lane(number, place, self.context, &mut self.ring);
            }
            let mut io = io!(self, handle);
            handle.lanes[place].queue(&mut io, now, requests, mine);
            if io.launch && self.launches.last() != Some(&(number, place)) {
                self.launches.push((number, place));
            }
        }
        taken.clear();
        all.clear();
        (handle.queue_io.requests, handle.queue_io.segments) = (taken, all);
        self.news.extend(self.mapped.drain(..).map(|(ticket, outcome)| (ticket, News::Ended(outcome))));
        self.mark_if_answered(number);
    }

    /// Puts the requests of the turn into the ring, to be called before it is waited for; whether one ended on the way, so
    /// that there is another turn to take.
    pub(crate) fn launch_all(&mut self) -> bool {
        let mut launches = std::mem::take(&mut self.launches);
        for (number, place) in launches.drain(..) {
            let handle = &mut self.handles[number];
            let mut io = io!(self, handle);
            handle.lanes[place].launch(&mut io);
            self.mark_if_answered(number);
        }
        self.launches = launches;
        !self.dirty.is_empty()
    }

    fn mark_if_answered(&mut self, number: usize) {
        let handle = &self.handles[number];
        if handle.queue_io.has_answers() || !self.mapped.is_empty() {
            self.mark(number);
        }
    }
}

impl DiskHandle {
    fn new(number: usize, disk: Arc<Disk>, context: ContextId, notifiers: &Arc<Notifiers>, ring: &mut Ring) -> Self {
        let queues = disk.enter(context).queues;
        let depth = queues.of(context).settings().depth;
        let claims = disk.blocks.enter(context); // blocks.2
        let mut handle = Self {
            disk,
            queues,
            // The places come when it follows the disk, and whether that is frozen.
            epoch: LOOK_AGAIN,
            queue_io: QueueIo::with_capacity(depth.into()),
            handover: Handover::Open,
            places: Arc::default(),
            timed: Vec::new(),
            peeks: false,
            claims,
            settling: Settling::Done,
            lanes: Vec::new(),
            held: Vec::new(),
            completed: Vec::with_capacity(depth.into()),
            looks: Vec::new(),
            dirty: false,
            still: None,
        };
        handle.wait_for_tags(context, notifiers);
        handle.follow(number, context, notifiers, ring);
        handle
    }

    /// The disk has frozen, or has other queues or places.
    #[cold]
    fn follow(&mut self, number: usize, context: ContextId, notifiers: &Arc<Notifiers>, ring: &mut Ring) {
        let found = self.disk.look();
        if !Arc::ptr_eq(&found.queues, &self.queues) {
            assert!(self.queue_io.is_out(), "the queues were changed while a worker had something in them");
            let old = std::mem::replace(&mut self.queues, Arc::clone(&found.queues));
            self.queue_io.forget_backlog(&mut old.of(context));
            for (_, Member { stream, id, before }) in &mut self.queue_io.streams {
                let mut old = old.of(context);
                before.add(&old.groups().stream(*id).stats());
                old.remove_stream(*id);
                *id = self.queues.of(context).add_stream(*stream);
            }
            (self.queue_io.timeout, self.queue_io.full) = (None, false);
            self.wait_for_tags(context, notifiers);
        }
        self.handover = if found.epoch % 2 == 1 { Handover::Frozen } else { Handover::Open };
        self.places = found.places;
        self.epoch = if self.let_go(ring) { found.epoch } else { LOOK_AGAIN };
        let shared_out = |place: &Place| place.device.as_ref().is_some_and(|device| device.is_remote());
        for index in 0..self.places.len() {
            if self.held[index].is_none() && shared_out(&self.places[index]) {
                self.take_lane(number, index, context, ring);
            }
        }
    }

    /// Lets go of the devices that went; whether all could be let go.
    fn let_go(&mut self, ring: &mut Ring) -> bool {
        let mut all = true;
        for index in 0..self.held.len() {
            let Some((held, file)) = &self.held[index] else { continue };
            if self.places.get(index).is_some_and(|place| place.has(held)) {
                continue;
            }
            self.lanes[index].leave();
            if !self.is_at_rest() || self.lanes[index].in_flight() > 0 {
                all = false; // engine.1
                continue;
            }
            file.iter().for_each(|file| ring.set_file(*file, None));
            (self.lanes[index], self.held[index]) = (Box::new(Gone), None);
        }
        while self.lanes.len() > self.places.len() && self.held.last().is_some_and(Option::is_none) {
            self.lanes.pop();
            self.held.pop();
        }
        while self.lanes.len() < self.places.len() {
            self.lanes.push(Box::new(Gone));
            self.held.push(None);
        }
        self.timed = (0..self.lanes.len()).filter(|place| self.lanes[*place].is_by_the_clock()).collect();
        all
    }

    /// Takes a lane of the device at a place, for its first request.
    #[cold]
    fn take_lane(&mut self, number: usize, place: usize, context: ContextId, ring: &mut Ring) {
        let Place { device: Some(device), file, .. } = &self.places[place] else { return };
        let io_timeout = self.queues.of(context).settings().io_timeout;
        self.held[place] = Some((Arc::clone(device), *file));
        let (worker, disk, file) = (context, number, *file);
        self.lanes[place] =
            Arc::clone(device).lane(Address { worker, disk, place, file, is_beside: false, io_timeout });
        // Once there is the lane: it says when the descriptor becomes another one.
        file.iter().for_each(|file| ring.set_file(*file, device.descriptor()));
        self.peeks |= self.lanes[place].peeks();
        if self.lanes[place].is_by_the_clock() {
            self.timed.push(place);
            Ring::be_punctual();
        }
    }

    /// Requests that its devices have of the worker.
    fn in_lanes(&self) -> usize {
        self.lanes.iter().map(|lane| lane.in_flight()).sum()
    }

    /// How it stands with its queue, for the log.
    fn state(&self) -> &'static str {
        match self.handover {
            _ if self.settling == Settling::Waits => "settling blocks",
            Handover::Open => "open",
            Handover::Frozen => "frozen for another scheduler",
            Handover::Arrived => "waits for other workers",
        }
    }

    /// Whether the queue knows all that the lanes have answered.
    fn is_at_rest(&self) -> bool {
        self.completed.is_empty() && !self.queue_io.has_answers()
    }

    /// Makes ready to wait for tags, where they are shared.
    fn wait_for_tags(&mut self, context: ContextId, notifiers: &Arc<Notifiers>) {
        self.queue_io.tag_wait = self.queues.tags().map(|tags| {
            let waker = Waker::from(Arc::new(notifiers.waker(context)));
            TagWait::new(tags, usize::from(context.0), waker)
        });
    }

    /// When to turn it though nothing completed.
    fn due(&self) -> Option<Instant> {
        let timed = self.timed.iter().filter_map(|place| self.lanes[*place].poll_timeout());
        timed.chain(self.queue_io.timeout).min()
    }
}

#[cfg(test)]
mod tests {
    use fairlift_core::{Flags, Group, GroupId, Priority, Token, sched};
    use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

    use super::*;
    use crate::config;
    use crate::kernel::lent::Machine;
    use crate::kernel::ring::Kind;
    use crate::kernel::ticket::Guest;

    /// An engine with one disk, of RAM, and a stream on it.
    fn engine() -> (Engine, fairlift_core::StreamId) {
        let settings = config::Disk::new("d", sched::Kind::None);
        let device = config::Backing::from(config::Ram { size: 1 << 20 }).open(false, &Default::default()).unwrap();
        let disk = Arc::new(Disk::new(&settings, &[(device, None)], &[Group::root()], 1).unwrap());
        let notifiers = Arc::new(Notifiers::new(1).unwrap());
        let helpers = Helpers::new(1, &[disk.concurrency], &[], 1, Arc::clone(&notifiers));
        let (ring, pool) = (Ring::new(Kind::Poll, 8, 8, 1).unwrap(), Pool::new(1 << 20, 1).unwrap());
        let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context: ContextId(0) };
        let mut engine = Engine::new(ring, pool, ContextId(0), Disks::new(vec![disk]), notifiers, helpers);
        let stream = engine.add_stream(0, stream);
        (engine, stream)
    }

    #[test]
    fn a_request_with_the_memory_of_a_guest_is_served_in_place() {
        let (mut engine, stream) = engine();
        let machine = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap();
        let machine = Arc::new(Machine::new(machine));
        machine.write_slice(&[7; 4096], GuestAddress(0)).unwrap();
        // Read into two places: a request may be scattered.
        let parts: [&[_]; 2] =
            [&[(GuestAddress(0), 4096)], &[(GuestAddress(0x3000), 4096 - 512), (GuestAddress(0x1000), 512)]];
        for (op, parts) in [Op::Write, Op::Read].into_iter().zip(parts) {
            let ticket = engine.admit(42, Memory::Guest(Guest::new(&machine, parts).unwrap()));
            let extent = Extent::new(Sector(8), 8);
            // A client that says that memory has answered its read is not believed (queue.19).
            let flags = if op == Op::Read { Flags::CACHED } else { Flags::NONE };
            engine.submit(0, Bio { op, flags, extent, stream, token: Token(ticket as u64) });
            engine.turn(Instant::ZERO);
            assert_eq!(engine.news, [(ticket, News::Ended(Outcome::Done))]);
            engine.news.clear();
            assert_eq!((engine.owner(ticket), engine.release(ticket)), (42, 0), "nothing of the pool");
        }
        let mut there = vec![0; 0x4000];
        machine.read_slice(&mut there, GuestAddress(0)).unwrap();
        let wanted = [vec![7; 0x1200], vec![0; 0x1e00], vec![7; 0xe00], vec![0; 0x200]].concat();
        assert!(there == wanted, "the bytes are where they were asked for, and nowhere else");
        assert_eq!(engine.open(), 0);
    }
}
