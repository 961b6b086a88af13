//! BFQ: fair by weight, in sectors.
//!
//! Tenants share a disk by weight, but disks and streams differ: 4 KiB that a seek brings take a hundred times as long as 4 KiB
//! that are read on, an array does more with many requests, a program that a person waits for should not stand in line. BFQ gives each
//! queue a *budget* of sectors and serves queues in the order of hierarchical B-WF2Q+ ([`fair_queue`](super::fair_queue)), which
//! bounds how far any queue gets ahead of its weight. An example: two groups of weight 300 and 100 read one file each. The disk reads
//! 63 MB/s; the groups get 47 and 16 MB/s, in turns of up to 8 and 4 MB.
//!
//! **Queues.** Each stream has a queue of its own for synchronous requests (reads, and writes with SYNC or FUA). Its other writes are in
//! a queue that the streams of its group and priority share. Queues and groups are entities of the fair queue.
//!
//! bfq.1  A queue's weight within its group is (8 − level) · 10; a group's is its own. Classes are strict (wfq.12 in
//!        [`fair_queue`](super::fair_queue)).
//! bfq.2  A request is charged its sectors when it is dispatched; one that the device turned back is not charged again.
//! bfq.3  A queue has the device until its budget is used, `timeout_sync` has passed, or it has no request and the device does not idle
//!        for it. A request larger than what is left of the budget ends the turn, unless it is the first.
//! bfq.4  Within its turn a queue's requests go by position, the nearest ahead first; but the oldest first if it has waited for
//!        `fifo_expire_sync` or `_async`.
//! bfq.5  Requests that were turned back go before everything.
//!
//! **In turns**, on a device that does one thing at a time, or does more that way. One queue has the device until its turn ends:
//!
//! turns.1  Budgets follow use: times 4 when used up, times 2 when the time was up; less by 4 minimal ones (or minimal) when the stream
//!          did not come back; what was used when the device did not idle for it. The largest is what the device does at its best in
//!          `timeout_sync` ([`rate`](crate::learn::rate)), the smallest 1/32 of it.
//! turns.2  A queue that is entitled to less than the average of those that compete gets a smaller budget and less time in proportion,
//!          down to 1/8: its turns are short rather than rare. And no group has more at a time than its part of a round of 550 ms, down
//!          to the same, so that no group waits for a second, however many there are and however slow their requests. Where another
//!          group begins to compete, the turn under way is shortened. (Added: in Linux light queues wait for all others' budgets.)
//! turns.3  A queue that seeks and did less than a quarter of what the fastest turns of late did in such a time is charged what they
//!          would have done, so that it does not have the device nearly for itself; no more than the largest budget. Turns that wrote do
//!          not say what is fast: a volatile cache takes in as much as it has room for. (Linux compares with the device's best ever, and
//!          charges slow queues so even when all are slow, which makes shares a matter of luck.)
//! turns.4  When the queue in service runs empty, the device idles for it if it is sync, has a short think time, and either order pays
//!          (on a device that rotates, or takes one request at a time from a stream that reads on) or shares would suffer (another
//!          group, class or weight competes). It idles for `slice_idle` at most,
//!          20 ms or more for a weight-raised one. Linux idles on a disk that queues for no stream that seeks; here such a disk is served
//!          in turns only where it does most that way, and one request at a time would be a turn of no time, which turns.3 never
//!          charged. The device does not idle for a stream that seeks and writes there: a cache takes that, and orders it.
//! turns.5  A stream that is back within 3 · `slice_idle` after its queue ran empty, without idling, has the rest of its budget and loses
//!          nothing by the hole. It preempts the queue in service if it would be next; so does a stream of a higher class, or one that
//!          is weight-raised more.
//!
//! **Together**, on a device that serves many at once and does more that way ([`idling_trial`](crate::learn::idling_trial), with
//! `slice_idle=auto`; `service` decides otherwise, or a fixed `slice_idle`: turns on a device that rotates, but for 0):
//!
//! together.1  A turn is at most [`QUANTUM`] sectors, and no request grows beyond that by merging.
//! together.2  A queue whose requests are all in the device, and whose stream asks again as soon as it is answered, keeps its place in the
//!             order as if something waited, where groups, classes or weights compete. When its turn comes and nothing waits, the others
//!             wait (a *share wait*), for they would get ahead of their weights. The device does not idle: it has that queue's requests.
//! together.3  Not at any price: the device is never left without work, a share wait ends after `timeout_sync`, and `group_idle=0` has
//!             none at all. Only for a queue that was weight-raised less than half a second ago (both.2), while no more than half of all are and no
//!             other group competes, does the device idle as in turns.4.
//! together.4  The device has no more requests than throughput needs (`depth.rs`), together.5 aside. What waits here goes by weight; what
//!             waits in the device does not.
//! together.5  On a device that does not rotate, reads have as many places as together.4 gives to all, whatever writes have of those: a
//!             cache that is full takes milliseconds for each write, and reads would have nothing to do with it. A writer that finds no
//!             room keeps its turn, and the queues behind it wait; but a reader that comes then, and would be next if the writer had no
//!             request, goes first, unless the writer is owed more.
//!
//! With together.2–4 there is no choice between shares and throughput for groups that can use their share, which Linux lacks ("no
//! solution currently exists"); for groups that cannot, `group_idle` says whether shares or throughput come first.
//!
//! **In both ways.**
//!
//! both.1  Async sectors count three times, unless groups or classes compete (then it would distort their shares).
//! both.2  With `low_latency`, a stream that a person seems to wait for has a higher weight within its group ([`weight_raising`]),
//!         and, beside others that do not, a small budget. Its time is that of its group, where groups compete.
//! both.3  Streams whose requests interleave into one sequential run share a queue ([`merge`]); not on a device that does not rotate and
//!         queues, as it turns out to be ([`crate::learn::queueing`]), and there no part of it runs.
//! both.4  `strict_guarantees`: turns, one request in the device, and idling for each stream that may come back.
//! both.5  Time that is spent for a stream outside of its requests (flushes) is charged as what others were not served in it ([`pace`]);
//!         until that is known, as what the device does at its best. What the group wrote since its last flush, and was charged for, is
//!         taken off: it is what the flush works off. Discards and writes of zeroes are charged so too: their length says little of their
//!         time.
//!
//! **Not here**, though Linux has it; each was tried on `sata-7200`:
//!
//! - *Injection* of others' requests while the device idles, and with it *wakers*, whose requests it would take first. What it is for,
//!   serving together does without idling: 4 groups of one random reader that thinks for 3 ms get 0.49 MB/s in turns, 0.49 with
//!   injection, 0.82 as it is; with 4 readers each 0.49, 0.49 and 1.68. Beside readers of depth 8 the total was 1.48 MB/s with 517
//!   requests injected in a minute and 1.48 with none.
//! - *I/O bound* as a condition for idling where order pays: a stream that thinks beside three sequential readers made the total
//!   40.1 MB/s with and without it, one that seeks and thinks 30.6 with it and 49.5 without.
//!
//! Hence the bounds: that of [`fair_queue`](super::fair_queue) for backlogged entities, where a slot is at most a budget or one request
//! more, and times three for async; and no queue waits longer than all others' budgets take.

mod arrive;
mod device;
mod dispatch;
mod idling;
pub mod merge;
mod notes;
pub mod position;
mod settings;
mod streams;
mod turn;
pub mod weight_raising;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::fair_queue::{Arrival, FairQueue, Leaf};
use super::request_list::{BackSeek, RequestList, RequestTable};
use super::{
    Charge, Entry, Membership, Merge, NR_REQUESTS_SHARED, Next, Report, RequestId, Scheduler, Served, Setup, Side,
    Waiting,
};
use crate::learn::depth::{Depth, Ended};
use crate::learn::habits::{Seek, Seekiness, ThinkTime};
use crate::learn::idling_trial::{End, IdlingTrial, Way};
use crate::learn::pace;
use crate::learn::queueing::{self, Lone, Queueing, Rotation};
use crate::learn::rate::{Budgets, PeakRate};
use crate::trace::{Message, Note};
use crate::tunable::tune;
use crate::{Duration, Extent, Group, GroupId, Instant, Op, Priority, PriorityClass, Sector, Stream, StreamId};
use merge::{Asker, Merging};
use notes::Notes;
pub use settings::{QUANTUM, Settings};
use streams::Levels;
use weight_raising::{Crowd, WeightRaising};

/// No queue.
const NIL: u32 = u32::MAX;
/// Findings of trials that are kept for [`Report::poll_message`]. Chosen: at one trial in
/// 10 s, ten minutes of them.
const FINDINGS: usize = 64;
/// More than so many of the last 32 requests must be seeks for a queue to be one that seeks; the kernel's `BFQQ_SEEKY`.
const SEEKY: u32 = 19;

/// Requests of one stream that are waited for, or of one group that are not.
#[derive(Debug)]
struct Queue {
    requests: RequestList,
    group: GroupId,
    priority: Priority,
    is_sync: bool,
    /// Its stream has gone, and others' requests are in flight still.
    is_leaving: bool,
    /// It lost its turn because it had nothing to ask, with budget left (turns.5).
    ran_empty: bool,
    in_flight: u32,
    /// How much it may be given in a row, and what is left of that, in sectors.
    budget_max: u32,
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

/// What a group has.
#[derive(Clone, Debug)]
struct GroupState {
    /// Async queues by class and level.
    asyncs: [[u32; 8]; PriorityClass::COUNT],
    /// Which it is to the fair queue.
    fair: GroupId,
    /// Sectors written since the last flush began, and before that since the one before: charged, and yet to be worked off by
    /// the device (both.5).
    written: u64,
    covered: u64,
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
    /// Queues that are raised, open or not.
    raised: u32,
    levels: Levels,
    fair: FairQueue,
    merging: Merging,
    turn: Option<Turn>,
    in_flight: u32,
    /// Those of them that read.
    reads: u32,
    crowd: Crowd,
    device: device::Device,
    /// What trials found, and nobody has taken yet.
    findings: VecDeque<Message>,
    counts: Counts,
    notes: Notes,
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
            raised: 0,
            levels: Levels::default(),
            fair: FairQueue::new(&[Group::root()]),
            merging: Merging::new(false),
            turn: None,
            in_flight: 0,
            reads: 0,
            crowd: Crowd::default(),
            device: device::Device::new(setup, &settings),
            findings: VecDeque::with_capacity(FINDINGS),
            counts: Counts::default(),
            notes: Notes::default(),
            settings,
        };
        this.put_group(GroupId::ROOT, &Group::root());
        for (id, group) in setup.groups.iter().enumerate().skip(1) {
            this.put_group(GroupId(id as u16), group);
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
                self.non_data_ends(now, self.waitings.op(id), None);
                self.left_device(self.waitings.owner(id), id);
                Some(id)
            }
            Next::Idle { .. } | Next::Nothing => None,
        }
    }

    fn requeue(&mut self, now: Instant, request: &Waiting) {
        self.non_data_ends(now, request.op, None);
        // To its queue it is in flight still: nothing more is asked before it has gone again.
        self.in_flight -= 1;
        self.reads -= u32::from(request.op == Op::Read);
        self.device.lone = None;
        self.waitings.requeue(request.id);
    }

    fn completed(&mut self, now: Instant, served: &Served) {
        self.ended(now, served);
    }

    fn len(&self) -> usize {
        self.waitings.len()
    }

    fn next_timeout(&self) -> Option<Instant> {
        // With nothing waiting, or no room in the device, the end of a hold changes nothing.
        let may_go = !self.waitings.is_empty() && !self.device.is_full;
        self.turn.and_then(|turn| turn.idle_until).filter(|_| may_go)
    }
}

impl Membership for Bfq {
    fn add_stream(&mut self, id: StreamId, stream: &Stream) {
        self.put_stream(id, stream);
    }

    fn remove_stream(&mut self, id: StreamId) {
        self.drop_stream(id);
    }

    fn change_stream(&mut self, now: Instant, id: StreamId, stream: &Stream) {
        self.notes.at(now);
        self.alter_stream(now, id, stream);
    }

    fn set_group(&mut self, _now: Instant, id: GroupId, group: &Group) {
        self.put_group(id, group);
    }

    fn remove_group(&mut self, _now: Instant, id: GroupId) {
        self.drop_group(id);
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
        self.device.pace.begins(now, self.in_flight);
        for group in &mut self.groups {
            (group.covered, group.written) = (group.written, 0);
        }
    }

    fn flush_ended(&mut self, now: Instant, charged: Duration) {
        self.device.pace.ends(now, charged);
    }

    fn charge(&mut self, _now: Instant, stream: StreamId, group: GroupId, time: Duration) {
        self.charge_for(stream, group, time);
    }

    fn is_ahead(&mut self, _now: Instant, group: GroupId) -> bool {
        let state = &self.groups[usize::from(group.0)];
        let others_go_on = !self.waitings.is_empty() || self.in_flight > 0;
        others_go_on && state.is_there && self.fair.is_ahead(state.fair)
    }
}

tune!(Bfq, settings_changed);

impl Report for Bfq {
    fn set_tracing(&mut self, on: bool) {
        self.notes.set_on(on);
    }

    fn poll_message(&mut self) -> Option<Message> {
        self.findings.pop_front().or_else(|| self.notes.take())
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
        tell("queue_merges", self.merging.queue_merges());
        tell("queue_splits", self.merging.queue_splits());
        tell("position_tree_ops", self.merging.position_tree_ops());
        self.device.counters(self.is_together(), tell);
    }
}
