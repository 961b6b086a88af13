//! CFQ: streams take turns with the device, and groups of streams share it by weight.
//!
//! cfq.1  Each stream has a queue (here: a flow) for its reads and synchronous writes. Asynchronous writes of a group share
//!     one flow for each priority. Within a flow the oldest request goes first at the start of a turn if it has waited for
//!     `fifo_expire_sync` or `fifo_expire_async`; else the nearest to where the flow was, a little way back included
//!     (`request_list`).
//! cfq.2  Groups are served in the order of their virtual times (vtime.1-5 in `group.rs`). Within a group the highest priority
//!     class goes first; a class that has been passed over for 2 s gets one turn.
//! cfq.3  Within a class, flows are in three trees: synchronous ones that the device is held idle for, the other synchronous ones, and
//!     asynchronous ones. A flow's place follows from the service it has had, in inverse proportion to the slice of its level: it is served
//!     next if it has had the least. A flow that comes back starts no earlier than the least of the present ones (as vtime.3). So flows of
//!     a class share by level, and each waits at most for one turn of each other.
//!
//! There are two ways to take turns: slices (slice.1-7 in `slice.rs`), where one flow has the device for a time, and IOPS mode
//! (iops.1-4 in `iops.rs`), where many are in the device at once. IOPS mode is on when the device queues, and `slice_idle` is 0
//! or `auto` and the device does more that way ([`idling_trial`](crate::learn::idling_trial)). When it changes, all virtual times count
//! something else, requests or time: each is as far ahead of the least as before, at the device's present pace.
//!
//! cfq.4  A request that the device turned back goes before all others, and is not charged again.
//! cfq.5  A change of group or priority takes along what waits, at once. A request in the device counts for the group and flow that it was
//!     sent for.
//! cfq.6  Device time that was spent for a stream outside of its requests (a flush) moves its group and its flow on as a slice of that
//!     length does, and is no part of the turn in service; in IOPS mode as many requests. The service of others meanwhile is taken off
//!     (`pace`). So are discards and zeroes charged in IOPS mode: for their time.
//! cfq.7  Without `group_isolation` the flows that the device is not held idle for are served in the root group. (Linux had
//!     this as the default, and gave it up: weights then do not hold for streams that think long or seek.)
//! cfq.8  Flows that read one run together become one, and part again (cooperate.1-4 in `cooperate.rs`), on devices that rotate or
//!     do not queue.
//! cfq.9  Of a read that memory answered in its turn nothing is learned. Its turn is charged all the same: others were kept out for it.
//!
//! Bounds. While only one class asks: a request that is the n-th oldest of its flow goes within n rounds of its group, a round being one
//! turn of each flow. A turn is a slice and the requests that the device still has of it; in IOPS mode it is `quantum` requests. A group
//! waits, for each turn that it had, until the others have had as much by weight. The device is held idle for at most `slice_idle` or
//! `group_idle` at a time, and only while the one it is held for has, by its habits, less than that to think.
//!
//! Suits disks that seek, shared by programs that read; and with `slice_idle` 0, anything that many groups share. Idea:
//! Linux's CFQ (2.6.33 to 4.20), from which it departs:
//! - flows have a virtual time, where Linux has a time of day by which they are due: so that levels count in IOPS mode as
//!   well, and no one has to be given back what was left of a slice;
//! - a group that comes back is not put behind all others (vtime.3);
//! - a group's service begins anew at each of its turns, where Linux keeps the rest of it;
//! - in IOPS mode others go on while a group is waited for, within bounds (vtime.4);
//! - in IOPS mode merging is limited and does not change what is charged (iops.2), and writers wait for each other as readers
//!   do (vtime.4);
//! - a lower class has a bound (cfq.2);
//! - charged is the time for which a flow had the device, without rounding up to a tick (but see slice.2).

mod async_depth;
mod cooperate;
mod flow;
mod group;
mod iops;
mod order;
mod preempt;
mod settings;
mod slice;
mod streams;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

pub use settings::Settings;

use super::notes::Notes;
use super::request_list::{BackSeek, RequestTable};
use super::{
    Charge, Entry, Merge, NR_REQUESTS_SHARED, Next, Report, RequestEnd, RequestId, Scheduler, Served, Setup, Side,
    Waiting, queues,
};
use crate::learn::idling_trial::{End, IdlingTrial, Way};
use crate::learn::pace::{self, Pace};
use crate::trace::{Message, Note};
use crate::tunable::tune;
use crate::{Duration, GroupId, Instant, Sector, StreamId};
use flow::{Flow, Flows};
use group::Groups;
use iops::Tempo;
use order::Serving;
use slice::Slice;
use streams::Binding;

/// Its row of the registry.
pub const ENTRY: Entry = Entry {
    name: "cfq",
    is_per_disk: true,
    nr_requests_min: NR_REQUESTS_SHARED,
    own_weights: group::OWN_WEIGHTS,
    tunables: Settings::INFO,
    build: |setup| Box::new(Cfq::new(setup, Settings::default())),
};

/// Complete fairness; see the [module](self) for the rules.
pub struct Cfq {
    settings: Settings,
    rotational: bool,
    table: RequestTable,
    /// By request in the device: the group that it counts for (cfq.5).
    sent_for: Vec<u16>,
    /// By request: what it counts in IOPS mode (iops.2).
    pieces: Vec<u32>,
    flows: Flows,
    groups: Groups,
    /// By stream.
    bindings: Vec<Binding>,
    /// The owner of the turn.
    turn: Option<Slice>,
    /// The flows that have the device, and their group, with slices.
    serving: Option<Serving>,
    /// Whether the device takes several requests at once.
    queues: bool,
    iops: bool,
    /// The present value of `slice_idle`.
    idle: Duration,
    /// With `auto`: whether it pays.
    idling_trial: IdlingTrial,
    /// In the device: asynchronous, synchronous.
    in_flight: [u32; 2],
    /// Flows that take turns, in all groups; and those of them that are synchronous.
    busy: u32,
    busy_sync: u32,
    /// Where the last request that was sent ends.
    head: Sector,
    /// When a synchronous request last ended that had waited for too long, if one has.
    last_late: Option<Instant>,
    /// In requests, each counting [`group::REQUEST`] (cfq.6).
    pace: Pace,
    /// The duration of the last discard or write of zeroes.
    non_data: Duration,
    tempo: Tempo,
    /// The latest time that was told.
    now: Instant,
    /// Some virtual time is [far](FAR) on.
    is_far: bool,
    /// Until when the last answer was "nothing", since the device is held idle for a flow.
    idle_until: Option<Instant>,
    notes: Notes,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    merges: u64,
    splits: u64,
    preemptions: u64,
    idlings: u64,
}

/// The next step towards a dispatch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decision {
    /// This flow sends its next.
    Send(u32),
    /// Nothing: a flow or group is expected to ask by then.
    Idle(Instant),
    /// Nothing before something ends.
    Wait,
}

/// Virtual times begin anew when one is so far on. Chosen: a quarter of their range, and no charge is as much. A hundred thousand writes a
/// second at level 7 are so far in eleven weeks, and requests of groups in a year and a half.
const FAR: u64 = 1 << 62;

impl Cfq {
    /// A scheduler with the settings in `setup`.
    #[must_use]
    pub fn new(setup: &Setup<'_>, settings: Settings) -> Self {
        let mut this = Self {
            settings,
            rotational: setup.character.rotational,
            table: RequestTable::new(setup.capacity),
            sent_for: vec![0; setup.capacity],
            pieces: vec![0; setup.capacity],
            flows: Flows::default(),
            groups: Groups::new(),
            bindings: Vec::new(),
            turn: None,
            serving: None,
            queues: queues(setup.depth.into()),
            iops: false,
            idle: Duration::ZERO,
            idling_trial: IdlingTrial::new(if setup.character.rotational { Way::Idle } else { Way::Parallel }),
            in_flight: [0; 2],
            busy: 0,
            busy_sync: 0,
            head: Sector(0),
            last_late: None,
            pace: Pace::default(),
            non_data: Duration::ZERO,
            tempo: Tempo::default(),
            now: Instant::ZERO,
            is_far: false,
            idle_until: None,
            notes: Notes::new(),
            counts: Counts::default(),
        };
        for (id, group) in (0..).zip(setup.groups) {
            this.groups.set(id, group.parent.map(|parent| parent.0), group.weight.get());
        }
        this.idle = this.slice_idle();
        this.iops = this.is_iops();
        this
    }

    fn back(&self) -> BackSeek {
        // A KiB is two sectors.
        BackSeek { max: u64::from(self.settings.back_seek_max) * 2, penalty: self.settings.back_seek_penalty }
    }

    fn is_iops(&self) -> bool {
        self.idle == Duration::ZERO && self.queues
    }

    /// For how long the device is held idle, where it is.
    fn slice_idle(&self) -> Duration {
        match self.settings.slice_idle {
            Some(fixed) => fixed,
            None if self.idling_trial.way() == Way::Idle => Settings::SLICE_IDLE,
            None => Duration::ZERO,
        }
    }

    /// The time by which habits are judged: that for which the device would be held idle.
    fn habitual_idle(&self) -> Duration {
        self.settings.slice_idle.unwrap_or(Settings::SLICE_IDLE)
    }

    fn settings_changed(&mut self, _name: &str) {
        self.choose_mode();
    }

    /// Turns IOPS mode on or off, as settings and device now are.
    fn choose_mode(&mut self) {
        let idle = self.slice_idle();
        if idle != core::mem::replace(&mut self.idle, idle) {
            for number in self.flows.numbers() {
                self.flows[number].learn(self.idle);
            }
        }
        let iops = self.is_iops();
        if iops == self.iops {
            return;
        }
        let (requests, nanos) = self.tempo.pace();
        self.begin_anew(iops, if iops { (requests, nanos) } else { (nanos, requests) });
    }

    /// Virtual times begin anew, each as far ahead of the least as it was: `to.0` new units are `to.1` old ones.
    #[cold]
    fn begin_anew(&mut self, iops: bool, to: (u64, u64)) {
        self.expire(self.now);
        self.serving = None;
        (self.iops, self.is_far) = (iops, false);
        for number in self.flows.numbers() {
            let flow = &self.flows[number];
            let floor = self.groups[flow.group].classes[flow.priority.class as usize].floor;
            if flow.is_busy {
                self.leave(number);
            }
            let flow = &mut self.flows[number];
            flow.served = group::convert(flow.served.saturating_sub(floor), to);
        }
        self.groups.convert(to);
        for number in self.flows.numbers() {
            self.settle(number);
        }
        for id in 0..self.groups.len() {
            self.place(id as u16);
        }
    }

    /// The request of a flow that goes next (cfq.1).
    fn next_of(&self, number: u32) -> RequestId {
        let flow = &self.flows[number];
        let oldest = flow.requests.oldest().expect("a flow that is served has a request");
        let starts = self.turn.as_ref().is_some_and(|turn| turn.dispatched == 0);
        let age = self.now.since(self.table.arrived(oldest));
        if flow.requests.len() == 1 || starts && age >= self.settings.fifo_expire(flow.sync) {
            return oldest;
        }
        flow.requests.next_from(&self.table, flow.position, self.back()).unwrap_or(oldest)
    }

    /// Takes out what a flow sends next.
    fn take(&mut self, number: u32) -> RequestId {
        let id = self.next_of(number);
        let flow = &mut self.flows[number];
        flow.requests.take(&mut self.table, id);
        let extent = self.table.extent(id);
        flow.position = extent.end();
        self.head = extent.end();
        if let Some(turn) = &mut self.turn {
            turn.dispatched += 1;
            turn.sectors += extent.sectors;
            turn.pieces += if pace::is_non_data(self.table.op(id)) { 1 } else { self.pieces[id.0 as usize].into() };
        }
        id
    }

    /// A request is in the device.
    fn sent(&mut self, id: RequestId, group: u16) {
        let number = self.table.owner(id);
        let (now, sync) = (self.now, self.flows[number].sync);
        let in_flight = self.in_flight[0] + self.in_flight[1];
        if in_flight == 0 {
            self.tempo.starts(now);
        }
        self.pace.count(now, in_flight, 0);
        if pace::is_non_data(self.table.op(id)) {
            self.pace.begins(now, in_flight);
        }
        self.sent_for[id.0 as usize] = group;
        self.in_flight[usize::from(sync)] += 1;
        self.flows[number].in_flight += 1;
        let group = &mut self.groups[group];
        group.in_flight[usize::from(sync)] += 1;
        group.last_dispatch = now;
    }

    /// A request is not in the device any more; answers the group that it counted for.
    fn unsent(&mut self, id: RequestId) -> u16 {
        let number = self.table.owner(id);
        let sync = usize::from(self.flows[number].sync);
        let group = self.sent_for[id.0 as usize];
        if pace::is_non_data(self.table.op(id)) {
            self.non_data = self.pace.ends(self.now, Duration::ZERO);
        }
        self.in_flight[sync] -= 1;
        self.flows[number].in_flight -= 1;
        let row = &mut self.groups[group];
        (row.in_flight[sync], row.last_end) = (row.in_flight[sync] - 1, self.now);
        group
    }

    fn note(&mut self, group: u16, stream: Option<StreamId>, note: Note) {
        if self.notes.on {
            self.notes.keep(self.now, GroupId(group), stream, note);
        }
    }

    /// Puts a flow where its waiting requests say: among those that take turns, or not.
    fn settle(&mut self, number: u32) {
        let flow = &self.flows[number];
        if flow.requests.is_empty() && flow.is_busy {
            self.leave(number);
        } else if !flow.requests.is_empty() && !flow.is_busy {
            self.join(number);
        }
    }
}

impl Scheduler for Cfq {
    fn insert(&mut self, now: Instant, request: &Waiting) {
        self.now = now;
        let sync = request.is_sync();
        let number = self.flow_of(request, sync);
        self.lapse(number);
        if sync {
            self.learn(number, request);
        } else if self.iops {
            self.learn_write(request.group.0);
        }
        self.pieces[request.id.0 as usize] = iops::pieces(request.extent.sectors);
        self.flows[number].requests.add(&mut self.table, now, request);
        if sync {
            self.flows[number].learn(self.idle);
        }
        self.settle(number);
        if !self.iops {
            self.preempt(number, request);
        }
    }

    fn dispatch(&mut self, now: Instant) -> Next {
        self.now = now;
        self.idle_until = None;
        if let Some(id) = self.table.take_requeued() {
            return Next::Request(id); // cfq.4
        }
        if self.table.is_empty() {
            return Next::Empty;
        }
        if self.is_far {
            self.begin_anew(self.iops, (1, 1));
        }
        let decision = if self.iops { self.step_iops() } else { self.step_slice() };
        match decision {
            Decision::Send(number) => {
                let id = self.take(number);
                self.sent(id, self.flows[number].group);
                if self.iops && self.flows[number].requests.is_empty() {
                    self.expire(now);
                }
                Next::Request(id)
            }
            Decision::Idle(until) => {
                self.idle_until = Some(until);
                self.counts.idlings += 1;
                Next::Idle { until }
            }
            Decision::Wait => Next::Empty,
        }
    }

    fn requeue(&mut self, now: Instant, request: &Waiting) {
        self.now = now;
        // It still counts as in the device: it has its place there, and was charged.
        self.table.requeue(request.id);
    }

    fn drain(&mut self, now: Instant) -> Option<RequestId> {
        self.now = now;
        let id = match self.table.take_requeued() {
            Some(id) => id,
            None => {
                let number = self.next_unheld()?;
                let id = self.take(number);
                if self.flows[number].requests.is_empty() {
                    self.expire(now);
                }
                id
            }
        };
        self.table.forget(id);
        Some(id)
    }

    fn len(&self) -> usize {
        self.table.len()
    }

    fn resize(&mut self, capacity: usize, depth: u16) {
        self.table.grow_to(capacity);
        let capacity = capacity.max(self.sent_for.len());
        self.sent_for.resize(capacity, 0);
        self.pieces.resize(capacity, 0);
        self.queues = queues(depth.into());
        self.choose_mode();
    }

    fn completed(&mut self, now: Instant, served: &Served) {
        self.now = now;
        let id = served.request.id;
        let number = self.table.owner(id);
        let (in_flight, waiting) = (self.in_flight[0] + self.in_flight[1], self.table.len() as u32);
        let flow = &self.flows[number];
        let is_data = !pace::is_non_data(served.request.op);
        let end = End {
            // Discards move no data, whatever they cover, nor does what failed.
            sectors: if is_data && served.ok() { served.request.extent.sectors } else { 0 },
            open: in_flight - 1 + waiting,
            several: in_flight + waiting > flow.in_flight + flow.requests.len(),
            seeks: flow.seeks.last_was_seek(),
        };
        let group = self.unsent(id);
        let is_cached = served.end == RequestEnd::Cached;
        let pieces = u64::from(self.pieces[id.0 as usize]);
        if !is_cached {
            self.tempo.ended(now, pieces); // cfq.9
        }
        if is_data && served.ok() {
            self.pace.count(now, in_flight, pieces * group::REQUEST);
        }
        if self.iops && served.ok() && !is_data {
            // One request of it is charged already.
            let worth = self.pace.worth(self.non_data);
            let rest = worth.map_or(0, |worth| worth.saturating_sub(group::REQUEST));
            self.groups.charge(group, rest.min(1 << 50));
        }
        if self.flows[number].sync {
            self.flows[number].think.ended(now);
            self.thought_ended(number, group);
            if now.since(self.table.arrived(id)) >= self.settings.fifo_expire_sync {
                self.last_late = Some(now);
            }
        } else if self.iops {
            self.groups[group].think.ended(now);
        }
        self.table.forget(id);
        self.start_slice(number);
        if self.settings.slice_idle.is_none() && !is_cached && self.idling_trial.ended(now, end) {
            if let Some(finding) = self.idling_trial.take_finding() {
                self.notes.keep_finding(finding);
            }
            self.choose_mode();
        }
        if self.iops {
            self.place(group);
        }
        self.release(number);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.idle_until.filter(|_| !self.table.is_empty())
    }
}

impl Merge for Cfq {
    fn merge_candidate(&self, newcomer: &Waiting) -> Option<(RequestId, Side)> {
        let number = self.flow_for(newcomer, newcomer.is_sync())?;
        let (id, side) = self.flows[number].requests.merge_candidate(&self.table, newcomer)?;
        self.may_grow(id, newcomer.extent.sectors).then_some((id, side))
    }

    fn grown(&mut self, request: &Waiting, side: Side) {
        let old = self.table.extent(request.id);
        self.pieces[request.id.0 as usize] += iops::pieces(request.extent.sectors - old.sectors);
        let flow = &mut self.flows[self.table.owner(request.id)];
        if side == Side::Back {
            flow.seeks.grown(old.end(), request.extent.end());
        }
        flow.requests.grown(&mut self.table, request, side);
    }

    fn neighbour_after(&self, request: &Waiting) -> Option<RequestId> {
        let after = self.flows[self.table.owner(request.id)].requests.neighbour_after(&self.table, request)?;
        self.may_grow(after, request.extent.sectors).then_some(after)
    }

    fn absorbed(&mut self, kept: &Waiting, gone: RequestId) {
        self.pieces[kept.id.0 as usize] += self.pieces[gone.0 as usize];
        self.flows[self.table.owner(kept.id)].requests.absorbed(&mut self.table, kept, gone);
    }
}

impl Charge for Cfq {
    fn flush_began(&mut self, now: Instant) {
        self.pace.begins(now, self.in_flight[0] + self.in_flight[1]);
    }

    fn flush_ended(&mut self, now: Instant, charged: Duration) {
        self.pace.ends(now, charged);
    }

    /// cfq.6.
    fn charge(&mut self, now: Instant, stream: StreamId, group: GroupId, time: Duration) {
        self.now = now;
        let charge = match self.iops {
            true => {
                let beside = self.groups.beside(group.0, self.pace.meanwhile(time));
                self.pace.worth(time).unwrap_or(0).saturating_sub(beside)
            }
            false => {
                let lost = self.pace.lost(time);
                if let Some(turn) = &mut self.turn {
                    turn.paid = (turn.paid + lost).min(now.since(turn.began));
                }
                lost.as_nanos()
            }
        };
        self.groups.charge(group.0, charge.min(1 << 50));
        let number = self.bindings[stream.0 as usize].flow;
        let served = self.flows[number].weigh(&self.settings, charge.min(1 << 50));
        self.serve(number, served);
    }

    fn is_ahead(&mut self, now: Instant, group: GroupId) -> bool {
        self.now = now;
        let turn = self.turn.map(|turn| self.flows[turn.flow].group);
        !self.table.is_empty() && turn != Some(group.0) && self.groups.is_ahead(group.0)
    }
}

tune!(Cfq, settings_changed);

impl Report for Cfq {
    fn set_tracing(&mut self, on: bool) {
        self.notes.set_on(on);
    }

    fn poll_message(&mut self) -> Option<Message> {
        self.notes.take()
    }

    fn counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        tell("queue_merges", self.counts.merges);
        tell("queue_splits", self.counts.splits);
        tell("preemptions", self.counts.preemptions);
        tell("holds", self.counts.idlings);
        tell("idle_trials", self.idling_trial.trials);
    }
}
