//! BFQ: fair by weight, in sectors.
//!
//! Tenants share a disk by weight, but disks and streams differ: 4 KiB that a seek brings take a hundred times as long as 4 KiB that are
//! read on, an array does more with many requests, and a program that a person waits for should not stand in line. This is BFQ for
//! readers who know Linux's: what is the same in a sentence, what is different with an example.
//!
//! **A budget** is a number of sectors, and a queue *in service* has the device until its budget is used. It is not a length of time,
//! so a queue that is slow is not paid for being slow, and the order among queues is that of hierarchical B-WF2Q+
//! ([`fair_queue`](super::fair_queue)), which bounds how far any queue gets ahead of its weight. Example: groups of weight 300 and 100
//! read one file each from a disk of 63 MB/s. They get 47 and 16 MB/s, in turns of up to 8 and 4 MB. As in Linux.
//!
//! **Idling**: a stream that reads one block at a time has nothing waiting just when its last block has come. If the device went on to
//! the next queue, an arm would seek for each block. Example: two such readers move 63 MB/s if the disk idles up to 8 ms for the one in
//! service, and 19 MB/s if it goes back and forth. As in Linux; but where Linux has `slice_idle` set by hand, here both ways are tried on
//! the requests that come (`slice_idle=auto`).
//!
//! **Two services**: in turns (`turns.rs`), as above; and together (`together.rs`), where a turn is 128 KiB, the device has requests of
//! many queues at once, and a queue that is behind its weight keeps its place. Example: four groups of random readers on an array of twelve
//! disks, four in each, get 4.5 MB/s in turns and 35 MB/s together, by weight both times. Linux has the first alone: a disk that queues
//! gets all it takes, and weights are lost, or is idled for.
//!
//! **Weight-raising** (`weight_raising.rs`): a stream that seems to start a program counts 30 times within its group, for some seconds.
//! Example: beside four writers a start takes 2.4 s on a lone disk in place of 10.7. Linux has soft real time and bursts too.
//!
//! **Cooperation** (`merge.rs`, `position.rs`): streams that read one place in turns share a queue. Example: two that read every second
//! block of a file move 62 MB/s in place of 16. As in Linux; not on a device that does not rotate and queues, and there no part
//! of it runs.
//!
//! **Charge** (`charge.rs`): the time of a group's flushes is charged to it, in sectors that others were not served. Linux charges nobody.
//!
//! **Learned properties** of the device and the streams are in [`learn`](crate::learn); nothing there knows BFQ.
//!
//! Each stream has a queue of its own for synchronous requests (reads, and writes with SYNC or FUA). Its other writes are in a queue that
//! the streams of its group and priority share. Queues and groups are entities of the fair queue. The rules of both services:
//!
//! bfq.1  A queue's weight within its group is (8 − level) · 10; a group's is its own. Classes are strict (wfq.12 in
//!        [`fair_queue`](super::fair_queue)).
//! bfq.2  A request is charged its sectors when it is dispatched; one that the device turned back is not charged again. (Linux charges
//!        asynchronous sectors three times, where all weights are equal; that gained nothing.)
//! bfq.3  A queue has the device until its budget is used, `timeout_sync` has passed, or it has no request and the device does not idle for
//!        it. A request larger than the rest of the budget ends the turn, unless it is the first.
//! bfq.4  Within its turn a queue's requests go by position, the nearest ahead first; but the oldest first if it has waited for
//!        `fifo_expire_sync` or `_async`.
//! bfq.5  Requests that were turned back go before everything.
//! bfq.6  `strict_guarantees`: turns, one request in the device, and idling for each stream that may come back.
//! bfq.7  With `low_latency`, streams are raised (raising.1–10).
//! bfq.8  Streams share queues where `queue_merging` says so, or, if it is `auto`, where the device rotates or does not queue.
//! bfq.9  A read that memory answered in its turn teaches nothing. It is charged all the same: for that turn others were kept out, and a
//!     stream that reads from memory and pays nothing would be next for ever.
//!
//! **Not here**, though Linux has it; each was tried on `sata-7200`:
//!
//! - *Injection* of others' requests while the device idles, and with it *wakers*, whose requests it would take first. Serving together
//!   reaches its purpose without idling: 4 groups of one random reader that thinks for 3 ms get 0.49 MB/s in turns, 0.49 with injection,
//!   0.82 as it is; with 4 readers each 0.49, 0.49 and 1.68. Beside readers of depth 8 the total was 1.48 MB/s with 517 requests injected
//!   in a minute and 1.48 with none.
//! - *I/O bound* as a condition for idling where order pays: a stream that thinks beside three sequential readers made the total
//!   40.1 MB/s with and without it, one that seeks and thinks 30.6 with it and 49.5 without.
//!
//! Hence the bounds: that of [`fair_queue`](super::fair_queue) for backlogged entities, where a slot is at most a budget or one request
//! more; and no queue waits longer than all others' budgets take.

mod arrive;
mod charge;
mod competing;
mod device;
mod dispatch;
mod idling;
mod merge;
mod notes;
mod position;
mod settings;
mod streams;
mod together;
mod turn;
mod turns;
mod weight_raising;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::fair_queue::{Arrival, FairQueue, Leaf};
use super::notes::Notes;
use super::request_list::{BackSeek, RequestList, RequestTable};
use super::{
    Charge, Entry, Membership, Merge, NR_REQUESTS_SHARED, Next, Report, RequestEnd, RequestId, Scheduler, Served,
    Setup, Side, Waiting, queues,
};
use crate::entitlement::OWN;
use crate::learn::depth;
use crate::learn::habits::{Seek, Seekiness, ThinkTime};
use crate::learn::idling_trial::{self, Way};
use crate::learn::rotation::{Lone, Rotation};
use crate::learn::trials::{self, Trials};
use crate::record::{Record, Unreadable};
use crate::trace::{Expiry, Message, Note};
use crate::tunable::tune;
use crate::{Duration, Extent, Group, GroupId, Instant, Op, Priority, PriorityClass, Sector, Stream, StreamId};
use charge::Charges;
use competing::Competing;
use merge::{Asker, Merging};
pub use settings::{QUANTUM, Settings};
use streams::Levels;
use together::Together;
use turns::Turns;
use weight_raising::{Crowd, WeightRaising};

const NIL: u32 = u32::MAX;
/// More seeks than this among the last 32 requests make a queue one that seeks; the kernel's `BFQQ_SEEKY`.
const SEEKY: u32 = 19;

/// Requests of one stream that are waited for, or of one group that are not.
#[derive(Debug)]
struct Queue {
    requests: RequestList,
    group: GroupId,
    priority: Priority,
    is_sync: bool,
    /// It lost its turn because it had nothing to ask, with budget left (turns.5).
    ran_empty: bool,
    in_flight: u32,
    /// The sectors that it was found to need in a turn, if it is sync (turns.1), and the rest of the present turn.
    budget: u32,
    left: u32,
    think: ThinkTime,
    seeks: Seekiness,
    raising: WeightRaising,
    /// Where its last request that was dispatched ended.
    position: Sector,
}

impl Queue {
    /// Whether something of it waits or is in the device.
    const fn is_open(&self) -> bool {
        self.in_flight > 0 || !self.requests.is_empty()
    }
}

#[derive(Clone, Debug)]
struct GroupState {
    /// Async queues by class and level.
    asyncs: [[u32; 8]; PriorityClass::COUNT],
    /// Which it is to the fair queue.
    fair: GroupId,
    is_there: bool,
}

/// The turn of the queue in service.
#[derive(Clone, Copy, Debug)]
struct Turn {
    queue: u32,
    since: Instant,
    /// The longest that it may take.
    timeout: Duration,
    served: u64,
    /// Not all of that was read.
    wrote: bool,
    /// The device is held for it until then.
    idle_until: Option<Instant>,
}

/// Its row of the registry.
pub const ENTRY: Entry = Entry {
    name: "bfq",
    is_per_disk: true,
    nr_requests_min: NR_REQUESTS_SHARED,
    own_weights: [OWN; 2],
    tunables: Settings::INFO,
    build: |setup| Box::new(Bfq::new(setup, Settings::default())),
};

/// Fair queueing by weight: see the [module](self).
pub struct Bfq {
    settings: Settings,
    waitings: RequestTable,
    /// By their numbers in the fair queue, which groups have too.
    queues: Vec<Option<Queue>>,
    /// The sync queue of each stream that is its own.
    homes: Vec<u32>,
    groups: Vec<GroupState>,
    levels: Levels,
    fair: FairQueue,
    competing: Competing,
    merging: Merging,
    turn: Option<Turn>,
    turns: Turns,
    together: Together,
    crowd: Crowd,
    charges: Charges,
    device: device::Device,
    counts: Counts,
    notes: Notes,
    /// When it was called last.
    now: Instant,
}

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    turns: u64,
    idlings: u64,
    share_waits: u64,
    share_waits_refused: u64,
    slow_turns: u64,
    preemptions: u64,
    raised: u64,
}

impl Bfq {
    /// An empty one, with the groups and the device that the setup names.
    #[must_use]
    pub fn new(setup: &Setup<'_>, settings: Settings) -> Self {
        let mut this = Self {
            waitings: RequestTable::new(setup.capacity),
            queues: Vec::new(),
            homes: Vec::new(),
            groups: Vec::new(),
            levels: Levels::default(),
            fair: FairQueue::new(&[Group::root()]),
            competing: Competing::default(),
            merging: Merging::default(),
            turn: None,
            turns: Turns::new(setup.character.rotational, &settings),
            together: Together::default(),
            crowd: Crowd::default(),
            charges: Charges::default(),
            device: device::Device::new(setup),
            counts: Counts::default(),
            notes: Notes::new(),
            now: Instant::ZERO,
            settings,
        };
        this.set_group(Instant::ZERO, GroupId::ROOT, &Group::root());
        for (id, group) in setup.groups.iter().enumerate().skip(1) {
            this.set_group(Instant::ZERO, GroupId(id as u16), group);
        }
        this.review_merging();
        this
    }

    #[inline]
    fn queue(&self, q: u32) -> &Queue {
        self.queues[q as usize].as_ref().expect("the queue exists")
    }

    #[inline]
    fn queue_mut(&mut self, q: u32) -> &mut Queue {
        self.queues[q as usize].as_mut().expect("the queue exists")
    }

    fn back_seek(&self) -> BackSeek {
        BackSeek { max: u64::from(self.settings.back_seek_max) * 2, penalty: self.settings.back_seek_penalty }
    }
}

impl Scheduler for Bfq {
    fn insert(&mut self, now: Instant, request: &Waiting) {
        self.arrive(now, request);
    }

    fn dispatch(&mut self, now: Instant) -> Next {
        self.next(now, false)
    }

    fn drain(&mut self, now: Instant) -> Option<RequestId> {
        match self.next(now, true) {
            Next::Request(id) => {
                self.charges.turned_back(now, self.waitings.op(id));
                self.left_device(self.waitings.owner(id), id);
                Some(id)
            }
            Next::Idle { .. } | Next::Empty => None,
        }
    }

    fn requeue(&mut self, now: Instant, request: &Waiting) {
        self.charges.turned_back(now, request.op);
        // To its queue it is in flight still: nothing more is asked before it has gone again.
        self.together.left(request.op);
        self.device.lone = None;
        self.waitings.requeue(request.id);
    }

    fn completed(&mut self, now: Instant, served: &Served) {
        self.ended(now, served);
    }

    fn len(&self) -> usize {
        self.waitings.len()
    }

    fn resize(&mut self, capacity: usize, depth: u16) {
        self.waitings.grow_to(capacity);
        self.device.set_depth(depth);
        self.review_merging();
    }

    fn set_others(&mut self, others: u32) {
        self.device.others = others;
    }

    fn hand_on(&self, into: &mut Record) {
        self.device.hand_on(into);
    }

    fn take_on(&mut self, from: &mut Record) -> Result<(), Unreadable> {
        self.device.take_on(from)
    }

    fn next_timeout(&self) -> Option<Instant> {
        // With nothing waiting, or no room in the device, the end of a hold changes nothing.
        let may_go = !self.waitings.is_empty() && !self.device.is_full;
        self.turn.and_then(|turn| turn.idle_until).filter(|_| may_go)
    }
}

impl Merge for Bfq {
    fn merge_candidate(&self, newcomer: &Waiting) -> Option<(RequestId, Side)> {
        let q = self.queue_of(newcomer)?;
        let requests = &self.queue(q).requests;
        if requests.is_empty() {
            return None;
        }
        let (id, side) = requests.merge_candidate(&self.waitings, newcomer)?;
        self.may_grow(id, newcomer.extent.sectors).then_some((id, side))
    }

    fn grown(&mut self, request: &Waiting, side: Side) {
        let q = self.waitings.owner(request.id);
        let old_end = self.waitings.extent(request.id).end();
        let queue = self.queues[q as usize].as_mut().expect("it waits there");
        queue.requests.grown(&mut self.waitings, request, side);
        queue.seeks.grown(old_end, request.extent.end());
        self.head_changed(q);
    }

    fn neighbour_after(&self, request: &Waiting) -> Option<RequestId> {
        let q = self.waitings.owner(request.id);
        let after = self.queue(q).requests.neighbour_after(&self.waitings, request)?;
        self.may_grow(after, request.extent.sectors).then_some(after)
    }

    fn absorbed(&mut self, kept: &Waiting, gone: RequestId) {
        let q = self.waitings.owner(kept.id);
        let queue = self.queues[q as usize].as_mut().expect("it waits there");
        queue.requests.absorbed(&mut self.waitings, kept, gone);
        self.head_changed(q);
    }
}

impl Charge for Bfq {
    fn flush_began(&mut self, now: Instant) {
        self.charges.flush_begins(now, self.together.in_flight);
    }

    fn flush_ended(&mut self, now: Instant, charged: Duration) {
        self.charges.pace.ends(now, charged);
    }

    fn charge(&mut self, _now: Instant, stream: StreamId, group: GroupId, time: Duration) {
        self.charge_for(stream, group, time);
    }

    fn is_ahead(&mut self, _now: Instant, group: GroupId) -> bool {
        let state = &self.groups[usize::from(group.0)];
        let others_go_on = !self.waitings.is_empty() || self.together.in_flight > 0;
        others_go_on && state.is_there && self.fair.is_ahead(state.fair)
    }
}

tune!(Bfq, settings_changed);

impl Report for Bfq {
    fn set_tracing(&mut self, on: bool) {
        self.notes.set_on(on);
    }

    fn poll_message(&mut self) -> Option<Message> {
        self.notes.take()
    }

    fn counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        let Counts { turns, idlings, share_waits, share_waits_refused, slow_turns, preemptions, raised } = self.counts;
        tell("turns", turns);
        tell("idle_holds", idlings);
        tell("lulls", share_waits);
        tell("lulls_refused", share_waits_refused);
        tell("slow_turns", slow_turns);
        tell("preemptions", preemptions);
        tell("raised", raised);
        tell("queue_merges", self.merging.merges);
        tell("queue_splits", self.merging.partings);
        tell("position_tree_ops", self.merging.positions.ops);
        self.device.trials.counters(self.is_together(), tell);
    }
}
