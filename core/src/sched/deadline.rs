//! Deadline: serve in sector order, yet let nobody wait for ever.
//!
//! deadline.1  Requests leave in batches: one direction, rising sectors, at most `fifo_batch` of them.
//! deadline.2  Between batches reads go first, at most `writes_starved` times in a row while a write waits.
//! deadline.3  A batch starts at the next sector after the last one of its direction; but at the direction's oldest request if
//!     that has waited for `read_expire` or `write_expire`, or if nothing lies further on. Looked at between batches
//!     only: an expired request does not break a batch.
//! deadline.4  Each priority class has its own positions, batch, and count of passed-over writes.
//! deadline.5  A lower class goes when no request of a higher class waits or is at the device.
//! deadline.6  A request of a lower class that has waited for `prio_aging_expire` goes before everything of the higher one, the
//!     oldest first, each by itself; batches go on afterwards as if it had not been there.
//! deadline.7  Requests that the device turned back come first within their class, the last one before the others. They keep
//!     their age.
//! deadline.8  A newcomer that touches a waiting request of its class and direction joins it, at the end or (`front_merges`) at
//!     the start. When two waiting requests become one, it takes the place and the age of the older.
//! deadline.9  At most `async_depth` writes are at the device at once; 0 means no limit. Neither reads nor requests that were turned back
//!     are held back: the latter had their place already.
//! deadline.10  When a stream changes class, its waiting requests go along, each to the place that its age gives it, but those turned back
//!     behind their like. A request at the device stays of the class it had.
//!
//! Hence the bounds: the oldest request of a direction leaves, after its deadline, before `(writes_starved + 1) *
//! fifo_batch` others of its class have; and once a request of a lower class has aged, only older ones of lower classes
//! go before it.
//!
//! Suits disks that seek and loads that mix. Blind to which tenant asks: see `bfq`. Idea: Linux mq-deadline, from which it
//! departs where the bounds need it:
//! - Linux counts one batch and one row of reads for all classes; there, writes of one class that keep coming reset the
//!   patience of another's for ever (deadline.4).
//! - Linux lets a lower class go only if the request that is next *by position* has aged, not if any has (deadline.6).
//! - Linux fixes a deadline when the request comes; here a new `read_expire` also counts for those that wait.
//! - Linux takes `writes_starved` = 0, with which writes starve reads; here it is 1 or more (deadline.2).
//! - Linux's `async_depth` limits which requests get a tag, so it counts waiting requests too and is never 0; a scheduler here
//!   sees no tags, so it counts requests at the device (deadline.9).

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::{Charge, Entry, Membership, Merge, Next, Report, RequestId, Scheduler, Served, Side, Waiting};
use crate::entitlement::OWN;
use crate::list::{Linked, Links, List, NIL};
use crate::time::{ms, secs};
use crate::tree::{Nodes, Tree};
use crate::tunable::{settings, tune};
use crate::{Direction, Duration, Instant, PriorityClass, Sector, Stream, StreamId};

settings! {
    /// The tunables; the defaults are the kernel's.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Settings {
        /// the deadline of a read; when it has passed, the read is served out of sector order
        pub read_expire: Duration = ms(500), duration(ms(0), MS_MAX);
        /// the deadline of a write; when it has passed, the write is served out of sector order
        pub write_expire: Duration = secs(5), duration(ms(0), MS_MAX);
        /// the number of requests dispatched in sector order before deadlines and directions are checked again; 0
        /// counts as 1
        pub fifo_batch: u32 = 16, count(0, INT_MAX);
        /// the number of batches of reads dispatched in a row while a write waits
        pub writes_starved: u32 = 2, count(1, INT_MAX);
        /// whether a new request may be merged in front of a waiting one
        pub front_merges: bool = true, switch;
        /// the time that a request of a lower priority class may wait for higher classes
        pub prio_aging_expire: Duration = secs(10), duration(ms(0), MS_MAX);
        /// limit on writes in the device; 0: no limit
        pub async_depth: u32 = 0, count(0, u32::MAX);
    }
}

/// The kernel's largest number, `INT_MAX`, and as many milliseconds.
const INT_MAX: u32 = i32::MAX as u32;
const MS_MAX: Duration = ms(INT_MAX as u64);

impl Settings {
    const fn expire(&self, direction: Direction) -> Duration {
        match direction {
            Direction::Read => self.read_expire,
            Direction::Write => self.write_expire,
        }
    }
}

/// Its row of the registry.
pub const ENTRY: Entry = Entry {
    name: "mq-deadline",
    is_per_disk: true,
    nr_requests_min: 0,
    own_weights: [OWN; 2],
    tunables: Settings::INFO,
    build: |setup| Box::new(Deadline::new(setup.capacity, Settings::default())),
};

/// Sector order with deadlines; see the [module](self) for the rules.
///
/// Tables are sized when it is made; nothing is allocated afterwards. It counts what is at the device, so it must hear
/// of every completion, and an id must not be given to another request before that.
pub struct Deadline {
    settings: Settings,
    /// By request.
    slots: Vec<Slot>,
    /// By request; the tree of each queue is made of these.
    nodes: Nodes,
    /// By `PriorityClass as usize`.
    classes: [Class; PriorityClass::COUNT],
    waiting: usize,
    writes_out: u32,
    /// When what was held back at the last [`Scheduler::dispatch`] goes all the same.
    ages_at: Option<Instant>,
}

impl Deadline {
    /// A scheduler for up to `capacity` requests.
    #[must_use]
    pub fn new(capacity: usize, settings: Settings) -> Self {
        Self {
            settings,
            slots: vec![Slot::EMPTY; capacity],
            nodes: Nodes::new(capacity),
            classes: Default::default(),
            waiting: 0,
            writes_out: 0,
            ages_at: None,
        }
    }
}

impl Scheduler for Deadline {
    fn insert(&mut self, now: Instant, request: &Waiting) {
        let id = request.id.0;
        assert!(self.slots[id as usize].state == State::Elsewhere, "{:?} waits or is at the device", request.id);
        self.slots[id as usize] = Slot::new(now, request, State::Sorted);
        self.waiting += 1;
        let class = &mut self.classes[request.priority.class as usize];
        class.pending += 1;
        let queue = class.queue_mut(request.op.direction());
        queue.fifo.push_back(&mut self.slots, id);
        queue.sort_in(&mut self.nodes, id, request.extent.start);
    }

    fn dispatch(&mut self, now: Instant) -> Next {
        let Some(id) = self.aged(now).or_else(|| self.by_class(now)) else {
            let expire = self.settings.prio_aging_expire;
            self.ages_at = self.oldest_of_lower_classes().map(|id| self.slots[id as usize].arrived + expire);
            return Next::Empty;
        };
        self.ages_at = None;
        self.send(id);
        Next::Request(RequestId(id))
    }

    fn requeue(&mut self, now: Instant, request: &Waiting) {
        let id = request.id.0;
        let class = &mut self.classes[request.priority.class as usize];
        let slot = &mut self.slots[id as usize];
        match slot.state {
            State::Out => {
                slot.state = State::Requeued;
                self.writes_out -= u32::from(slot.direction == Direction::Write);
            }
            State::Elsewhere => {
                // Another scheduler, whose place this one took, had dispatched it. Its age is not known.
                *slot = Slot::new(now, request, State::Requeued);
                class.pending += 1;
            }
            State::Sorted | State::Requeued => panic!("{:?} waits already", request.id),
        }
        self.waiting += 1;
        class.requeued.push_front(&mut self.slots, id); // deadline.7
    }

    /// deadline.5 and deadline.9 hold nothing back.
    fn drain(&mut self, now: Instant) -> Option<RequestId> {
        let Self { settings, classes, slots, nodes, .. } = self;
        let id = classes.iter_mut().find_map(|class| class.next(settings, true, now, slots, nodes))?;
        self.send(id);
        self.forget(id);
        Some(RequestId(id))
    }

    fn len(&self) -> usize {
        self.waiting
    }

    fn resize(&mut self, capacity: usize, _depth: u16) {
        self.slots.resize(capacity.max(self.slots.len()), Slot::EMPTY);
        self.nodes.grow_to(capacity);
    }

    fn completed(&mut self, _now: Instant, served: &Served) {
        // Requests that the scheduler before dispatched were not counted here.
        if self.slots[served.request.id.0 as usize].state == State::Out {
            self.forget(served.request.id.0);
        }
    }

    /// After an answer that nothing may go: when the first request of a lower class will have aged (deadline.6).
    ///
    /// All else that changes an answer is an event.
    fn next_timeout(&self) -> Option<Instant> {
        self.ages_at
    }
}

impl Membership for Deadline {
    /// deadline.10.
    fn change_stream(&mut self, _now: Instant, id: StreamId, stream: &Stream) {
        let to = stream.priority.class;
        for from in PriorityClass::ALL.into_iter().filter(|from| *from != to) {
            self.move_sorted(id, from, to, Direction::Read);
            self.move_sorted(id, from, to, Direction::Write);
            self.move_requeued(id, from, to);
        }
    }
}

impl Merge for Deadline {
    fn merge_candidate(&self, newcomer: &Waiting) -> Option<(RequestId, Side)> {
        let tree = &self.classes[newcomer.priority.class as usize].queue(newcomer.op.direction()).tree;
        let (before, after) = tree.around(&self.nodes, newcomer.extent.start.0);
        if let Some(before) = before.filter(|&slot| self.slots[slot as usize].end == newcomer.extent.start) {
            return Some((RequestId(before), Side::Back));
        }
        let after = after.filter(|&slot| self.nodes.key(slot) == newcomer.extent.end().0)?;
        self.settings.front_merges.then_some((RequestId(after), Side::Front)) // deadline.8
    }

    fn grown(&mut self, request: &Waiting, side: Side) {
        let (class, direction) = self.sorted(request.id);
        self.slots[request.id.0 as usize].end = request.extent.end();
        if side == Side::Front {
            let queue = self.classes[class].queue_mut(direction);
            queue.sort_out(&mut self.nodes, request.id.0);
            queue.sort_in(&mut self.nodes, request.id.0, request.extent.start);
        }
    }

    fn neighbour_after(&self, request: &Waiting) -> Option<RequestId> {
        let next = self.nodes.next(request.id.0)?;
        (self.nodes.key(next) == request.extent.end().0).then_some(RequestId(next))
    }

    fn absorbed(&mut self, kept: &Waiting, gone: RequestId) {
        let (class, direction) = self.sorted(kept.id);
        assert_eq!(self.sorted(gone), (class, direction), "{gone:?} and {:?} are not of one kind", kept.id);
        let queue = self.classes[class].queue_mut(direction);
        let arrived = self.slots[gone.0 as usize].arrived;
        let slot = &mut self.slots[kept.id.0 as usize];
        slot.end = kept.extent.end();
        if arrived < slot.arrived {
            slot.arrived = arrived;
            queue.fifo.remove(&mut self.slots, kept.id.0);
            queue.fifo.insert_after(&mut self.slots, gone.0, kept.id.0); // deadline.8
        }
        queue.take(&mut self.nodes, &mut self.slots, gone.0);
        self.slots[gone.0 as usize].state = State::Elsewhere;
        self.classes[class].pending -= 1;
        self.waiting -= 1;
    }
}

impl Charge for Deadline {}

tune!(Deadline);

impl Report for Deadline {}

impl Deadline {
    /// deadline.6: the oldest of the lower classes, if it has waited for too long.
    fn aged(&self, now: Instant) -> Option<u32> {
        let oldest = self.oldest_of_lower_classes()?;
        (now.since(self.slots[oldest as usize].arrived) >= self.settings.prio_aging_expire).then_some(oldest)
    }

    #[inline]
    fn oldest_of_lower_classes(&self) -> Option<u32> {
        let mut used = PriorityClass::ALL.into_iter().filter(|class| self.classes[*class as usize].pending > 0);
        let highest = used.next()?;
        used.next()?; // Nearly always one class is in use.
        self.oldest_below(highest)
    }

    #[cold]
    fn oldest_below(&self, class: PriorityClass) -> Option<u32> {
        let may_write = self.may_write();
        let heads = self.classes[class as usize + 1..].iter().flat_map(|class| {
            let writes = class.queue(Direction::Write).fifo.front().filter(|_| may_write);
            [class.requeued.front(), class.queue(Direction::Read).fifo.front(), writes]
        });
        heads.flatten().min_by_key(|&slot| self.slots[slot as usize].arrived)
    }

    /// deadline.5: the next request of the highest class that has any.
    fn by_class(&mut self, now: Instant) -> Option<u32> {
        let may_write = self.may_write();
        let class = self.classes.iter_mut().find(|class| class.pending > 0)?;
        class.next(&self.settings, may_write, now, &self.slots, &self.nodes)
    }

    /// deadline.9.
    const fn may_write(&self) -> bool {
        self.settings.async_depth == 0 || self.writes_out < self.settings.async_depth
    }

    #[inline]
    fn send(&mut self, id: u32) {
        let Slot { state, class, direction, .. } = self.slots[id as usize];
        let class = &mut self.classes[class as usize];
        if state == State::Requeued {
            class.requeued.remove(&mut self.slots, id);
        } else {
            class.queue_mut(direction).take(&mut self.nodes, &mut self.slots, id);
        }
        self.slots[id as usize].state = State::Out;
        self.writes_out += u32::from(direction == Direction::Write);
        self.waiting -= 1;
    }

    /// Notes that a request is at the device no more.
    fn forget(&mut self, id: u32) {
        let slot = &mut self.slots[id as usize];
        slot.state = State::Elsewhere;
        self.classes[slot.class as usize].pending -= 1;
        self.writes_out -= u32::from(slot.direction == Direction::Write);
    }

    /// deadline.10: moves what a stream has in one queue to that of another class.
    fn move_sorted(&mut self, stream: StreamId, from: PriorityClass, to: PriorityClass, direction: Direction) {
        let mut next = self.classes[from as usize].queue(direction).fifo.front().unwrap_or(NIL);
        // They come in the order of age, so the place of one is after that of the last.
        let mut before = NIL;
        while next != NIL {
            let id = next;
            let Slot { links, stream: of, arrived, .. } = self.slots[id as usize];
            next = links.next;
            if of != stream {
                continue;
            }
            let start = Sector(self.nodes.key(id));
            self.classes[from as usize].queue_mut(direction).take(&mut self.nodes, &mut self.slots, id);
            let there = self.classes[to as usize].queue_mut(direction);
            let mut after =
                if before == NIL { there.fifo.front().unwrap_or(NIL) } else { self.slots[before as usize].links.next };
            while after != NIL && self.slots[after as usize].arrived <= arrived {
                (before, after) = (after, self.slots[after as usize].links.next);
            }
            there.fifo.insert_after(&mut self.slots, before, id);
            there.sort_in(&mut self.nodes, id, start);
            before = id;
            self.moved(id, from, to);
        }
    }

    /// deadline.10: moves the requests of a stream that were turned back.
    fn move_requeued(&mut self, stream: StreamId, from: PriorityClass, to: PriorityClass) {
        let mut next = self.classes[from as usize].requeued.front().unwrap_or(NIL);
        while next != NIL {
            let id = next;
            next = self.slots[id as usize].links.next;
            if self.slots[id as usize].stream == stream {
                self.classes[from as usize].requeued.remove(&mut self.slots, id);
                self.classes[to as usize].requeued.push_back(&mut self.slots, id);
                self.moved(id, from, to);
            }
        }
    }

    fn moved(&mut self, id: u32, from: PriorityClass, to: PriorityClass) {
        self.slots[id as usize].class = to;
        self.classes[from as usize].pending -= 1;
        self.classes[to as usize].pending += 1;
    }

    /// Class and direction of a request that waits in sector order.
    fn sorted(&self, id: RequestId) -> (usize, Direction) {
        let slot = &self.slots[id.0 as usize];
        assert!(slot.state == State::Sorted, "{id:?} does not wait in sector order");
        (slot.class as usize, slot.direction)
    }
}

/// The state of one priority class.
#[derive(Default)]
struct Class {
    /// By direction.
    queues: [DirectionQueue; 2],
    /// Requests that the device could not take (deadline.7).
    requeued: List,
    /// How many wait or are at the device (deadline.5).
    pending: u32,
    /// The batch that continues until it is used up or has nothing ahead (deadline.1).
    batch: Option<Batch>,
    /// How many batches of reads have gone while a write waited (deadline.2).
    starved: u32,
}

impl Class {
    fn queue(&self, direction: Direction) -> &DirectionQueue {
        &self.queues[direction as usize]
    }

    fn queue_mut(&mut self, direction: Direction) -> &mut DirectionQueue {
        &mut self.queues[direction as usize]
    }

    #[inline]
    fn next(
        &mut self,
        settings: &Settings,
        may_write: bool,
        now: Instant,
        slots: &[Slot],
        nodes: &Nodes,
    ) -> Option<u32> {
        let turned_back = self.requeued.front(); // deadline.7
        turned_back
            .or_else(|| self.continue_batch(settings, may_write, nodes))
            .or_else(|| self.start_batch(settings, may_write, now, slots, nodes))
    }

    /// deadline.1.
    fn continue_batch(&mut self, settings: &Settings, may_write: bool, nodes: &Nodes) -> Option<u32> {
        let Batch { direction, served } = self.batch.as_mut()?;
        if *served >= settings.fifo_batch || (*direction == Direction::Write && !may_write) {
            return None;
        }
        let queue = &mut self.queues[*direction as usize];
        let next = queue.ahead?;
        queue.position = nodes.key(next);
        *served += 1;
        Some(next)
    }

    /// deadline.2, deadline.3.
    fn start_batch(
        &mut self,
        settings: &Settings,
        may_write: bool,
        now: Instant,
        slots: &[Slot],
        nodes: &Nodes,
    ) -> Option<u32> {
        let reads = self.queue(Direction::Read).fifo.front().is_some();
        let writes = may_write && self.queue(Direction::Write).fifo.front().is_some();
        let direction = match (reads, writes) {
            (false, false) => return None,
            (true, false) => Direction::Read,
            (true, true) if self.starved < settings.writes_starved => {
                self.starved += 1;
                Direction::Read
            }
            (_, true) => {
                self.starved = 0;
                Direction::Write
            }
        };
        self.batch = Some(Batch { direction, served: 1 });
        let queue = self.queue_mut(direction);
        let oldest = queue.fifo.front()?;
        let expired = now.since(slots[oldest as usize].arrived) >= settings.expire(direction);
        let first = queue.ahead.filter(|_| !expired).unwrap_or(oldest);
        queue.position = nodes.key(first);
        if queue.ahead != Some(first) {
            queue.ahead = queue.tree.first_at_or_after(nodes, queue.position);
        }
        Some(first)
    }
}

/// Requests that leave in a row.
struct Batch {
    direction: Direction,
    /// How many have left.
    served: u32,
}

/// The waiting requests of one class and direction.
#[derive(Default)]
struct DirectionQueue {
    /// By first sector.
    tree: Tree,
    /// By age, the oldest first.
    fifo: List,
    /// First sector of the last request of a batch; [`DirectionQueue::ahead`] follows from it.
    position: u64,
    /// The first of `tree` at or after `position`: kept at hand, so that a batch goes on without a search.
    ahead: Option<u32>,
}

impl DirectionQueue {
    #[inline]
    fn sort_in(&mut self, nodes: &mut Nodes, id: u32, start: Sector) {
        self.tree.insert(nodes, id, start.0);
        if start.0 >= self.position && self.ahead.is_none_or(|ahead| start.0 < nodes.key(ahead)) {
            self.ahead = Some(id);
        }
    }

    #[inline]
    fn sort_out(&mut self, nodes: &mut Nodes, id: u32) {
        if self.ahead == Some(id) {
            self.ahead = nodes.next(id);
        }
        self.tree.remove(nodes, id);
    }

    #[inline]
    fn take(&mut self, nodes: &mut Nodes, slots: &mut [Slot], id: u32) {
        self.sort_out(nodes, id);
        self.fifo.remove(slots, id);
    }
}

#[derive(Clone)]
struct Slot {
    /// When it came; the oldest part of it, if it is the work of a merge (deadline.8).
    arrived: Instant,
    /// The first sector after it; where it starts is its key in the tree.
    end: Sector,
    /// Its place in its [`List`].
    links: Links,
    stream: StreamId,
    state: State,
    class: PriorityClass,
    direction: Direction,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not known here.
    Elsewhere,
    /// It waits in the tree and the list of a queue.
    Sorted,
    /// The device could not take it; it waits in its class's list of those.
    Requeued,
    /// At the device.
    Out,
}

/// There is one for every request, so it stays in half a cache line.
const _: () = assert!(size_of::<Slot>() == 32);

impl Slot {
    const EMPTY: Self = Self {
        arrived: Instant::ZERO,
        end: Sector(0),
        links: Links::NONE,
        stream: StreamId(NIL),
        state: State::Elsewhere,
        class: PriorityClass::BestEffort,
        direction: Direction::Read,
    };

    fn new(now: Instant, request: &Waiting, state: State) -> Self {
        let (class, direction) = (request.priority.class, request.op.direction());
        let stream = request.stream;
        Self { arrived: now, end: request.extent.end(), stream, state, class, direction, ..Self::EMPTY }
    }
}

impl Linked for Slot {
    #[inline]
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

#[cfg(test)]
mod tests;
