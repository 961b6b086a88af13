//! BFQ: fair by weight, in sectors.

pub mod burst;
mod cooperate;
mod depth;
mod dispatch;
pub mod fair;
pub mod inject;
pub mod io_bound;
mod lull;
mod members;
pub mod merge;
pub mod position;
pub mod raise;
pub mod rate;
mod settings;
mod together;
mod trial;
pub mod waker;

use alloc::string::String;
use alloc::vec::Vec;

use super::habits::{Seek, Seekiness, ThinkTime};
use super::line::{BackSeek, Line, Waitings};
use super::queueing::{self, Queueing};
use super::{Next, RequestId, Scheduler, Served, Setup, Side, Waiting};
use crate::tunable::{self, TunableInfo};
use crate::{Duration, Flags, Group, GroupId, Instant, Op, Priority, PriorityClass, Sector, Stream, StreamId};
use depth::Depth;
use lull::Lull;
use merge::Merging;
use fair::{Arrival, Fair, Leaf};
pub use settings::Settings;
use settings::ROWS;
use together::Together;

/// No queue.
const NIL: u32 = u32::MAX;

/// Requests of one stream that are waited for, or of one group that are not.
#[derive(Debug)]
struct Queue {
    line: Line,
    group: GroupId,
    priority: Priority,
    is_sync: bool,
    in_flight: u32,
    /// How much it may be given in a row, in sectors.
    budget_max: u64,
    /// What is left of the budget of the present or last slot.
    left: u64,
    /// Whether it lost its slot because it had nothing to ask, with budget left.
    ran_empty: bool,
    /// Its stream has gone; others may use it still.
    is_left: bool,
    think: ThinkTime,
    seeks: Seekiness,
    /// Where its last request that was dispatched ended.
    position: Sector,
}

impl Queue {
    /// Whether something of it waits or is in flight.
    fn is_open(&self) -> bool {
        !self.line.is_empty() || self.in_flight > 0
    }
}

/// What a group has.
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
    served: u64,
    /// The device is held for it until then.
    held: Option<Instant>,
}

/// Fair queueing by weight: see the [module](self).
pub struct Bfq {
    settings: Settings,
    waitings: Waitings,
    /// By their numbers in the fair queue, which groups have too.
    queues: Vec<Option<Queue>>,
    /// Which sync queue each stream uses.
    merging: Merging,
    groups: Vec<GroupState>,
    fair: Fair,
    turn: Option<Turn>,
    in_flight: u32,
    /// Queues of which something waits or is in flight.
    open: u32,
    device_depth: u32,
    /// For turns, and for many at once.
    depths: [Depth; 2],
    /// Sectors per 2^20 ns of the fastest turns of late.
    best: u64,
    together: Together,
    queueing: Queueing,
    is_rotational: bool,
    /// What `is_shared` was at the last end.
    was_shared: bool,
    /// The last answer was that the limit keeps requests waiting.
    pressed: bool,
    /// How much of the device waiting for somebody may still cost; see `lull`.
    lull: Lull,
    counts: Counts,
}

#[derive(Clone, Copy, Default, Debug)]
struct Counts { holds: u64, skips: u64, expired: u64, slow: u64 }

impl Bfq {
    /// An empty one, with the groups and the device that the setup names.
    #[must_use]
    pub fn new(setup: &Setup<'_>, settings: Settings) -> Self {
        let rotational = setup.character.rotational;
        let mut this = Self {
            settings,
            waitings: Waitings::new(setup.capacity),
            queues: Vec::new(),
            merging: Merging::new(false),
            groups: Vec::new(),
            fair: Fair::new(&[Group::root()]),
            turn: None,
            in_flight: 0,
            open: 0,
            device_depth: setup.depth.into(),
            depths: [true, rotational].map(|all| Depth::new(setup.depth.into(), all)),
            best: 0,
            together: Together::new(),
            queueing: Queueing::new(queueing::Depth::BFQ, !rotational),
            is_rotational: rotational,
            was_shared: false,
            pressed: false,
            lull: Lull::default(),
            counts: Counts::default(),
        };
        this.put_group(GroupId::ROOT, &Group::root());
        for (id, group) in setup.groups.iter().enumerate().skip(1) {
            this.put_group(GroupId(id as u16), group);
        }
        this.switch_merging(Instant::ZERO);
        this
    }

    fn queue(&self, q: u32) -> &Queue {
        self.queues[q as usize].as_ref().expect("the queue exists")
    }

    fn queue_mut(&mut self, q: u32) -> &mut Queue {
        self.queues[q as usize].as_mut().expect("the queue exists")
    }

    fn back_seek(&self) -> BackSeek {
        BackSeek { max: u64::from(self.settings.back_seek_max) * 2, penalty: self.settings.back_seek_penalty }
    }
}

/// Whether someone waits for it.
fn is_sync(op: Op, flags: Flags) -> bool {
    op == Op::Read || flags.contains(Flags::SYNC) || flags.contains(Flags::FUA)
}

impl Scheduler for Bfq {
    fn add_stream(&mut self, id: StreamId, stream: &Stream) {
        self.put_stream(id, stream);
    }

    fn remove_stream(&mut self, id: StreamId) {
        self.drop_stream(id);
    }

    fn change_stream(&mut self, now: Instant, id: StreamId, stream: &Stream) {
        self.alter_stream(now, id, stream);
    }

    fn set_group(&mut self, _now: Instant, id: GroupId, group: &Group) {
        self.put_group(id, group);
    }

    fn remove_group(&mut self, _now: Instant, id: GroupId) {
        self.drop_group(id);
    }

    fn insert(&mut self, now: Instant, request: &Waiting) {
        self.arrive(now, request);
    }

    fn dispatch(&mut self, now: Instant) -> Next {
        self.next(now, false)
    }

    fn drain(&mut self, now: Instant) -> Option<RequestId> {
        match self.next(now, true) {
            Next::Request(id) => {
                self.left_device(id);
                Some(id)
            }
            Next::Hold { .. } | Next::Nothing => None,
        }
    }

    fn requeue(&mut self, _now: Instant, request: &Waiting) {
        // To its queue it is out still, which keeps the queue: it goes before everything, whoever's turn it is.
        self.in_flight -= 1;
        self.waitings.turn_back(request.id);
    }

    fn completed(&mut self, now: Instant, served: &Served) {
        self.ended(now, served);
    }

    fn len(&self) -> usize {
        self.waitings.len()
    }

    fn merge_candidate(&self, newcomer: &Waiting) -> Option<(RequestId, Side)> {
        let q = self.queue_of(newcomer)?;
        self.queue(q).line.merge_candidate(&self.waitings, newcomer)
    }

    fn grown(&mut self, request: &Waiting, side: Side) {
        let q = self.waitings.owner(request.id) as usize;
        let queue = self.queues[q].as_mut().expect("it waits there");
        queue.line.grown(&mut self.waitings, request, side);
        self.tell_head(q as u32);
    }

    fn neighbour_after(&self, request: &Waiting) -> Option<RequestId> {
        let q = self.waitings.owner(request.id);
        self.queue(q).line.neighbour_after(&self.waitings, request)
    }

    fn absorbed(&mut self, kept: &Waiting, gone: RequestId) {
        let q = self.waitings.owner(kept.id) as usize;
        let queue = self.queues[q].as_mut().expect("it waits there");
        queue.line.absorbed(&mut self.waitings, kept, gone);
        self.tell_head(q as u32);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.turn.and_then(|turn| turn.held)
    }

    fn counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        tell("holds", self.counts.holds);
        tell("holds_skipped", self.counts.skips);
        tell("depth_limit", self.depths[usize::from(self.is_shared())].base().into());
        tell("depth_trials", self.depths.iter().map(Depth::trials).sum());
        tell("slots", self.counts.expired);
        tell("slow_slots", self.counts.slow);
        tell("shared", self.is_shared().into());
        tell("position_tree_ops", self.merging.position_tree_ops());
        tell("queue_merges", self.merging.queue_merges());
        tell("queue_splits", self.merging.queue_splits());
    }

    fn tunables(&self) -> &'static [TunableInfo] {
        Settings::INFO
    }

    fn get(&self, name: &str) -> Option<String> {
        tunable::get(&ROWS, &self.settings, name)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), tunable::Error> {
        tunable::set(&ROWS, &mut self.settings, name, value)?;
        // There is no time here: nobody who moves comes back in time.
        self.switch_merging(Instant::MAX);
        Ok(())
    }
}
