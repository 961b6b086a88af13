//! Fair: every tenant gets its part of the disk's time, and the disk is kept busy.
//!
//! A tenant is entitled to the smaller of its rate alone and its weight's part of the disk's time; the others share the rest
//! by weight. Four tenants of weight 100 to 400 that each keep 32 reads outstanding get 10, 20, 30 and 40 % of the disk's rate.
//! If the heaviest keeps one read outstanding, it is entitled to its rate alone, which is 7 %, and
//! the other three divide the rest. How near that comes on a real disk, which queues too, is in docs/fairness.md.
//!
//! fair.1  The currency is the disk's time. The cost of a request in it is learned while the disk serves (`cost`).
//! fair.2  The order is virtual time over the tree of groups, one request at a time ([`fair_queue`](super::fair_queue)): there
//!         are no turns, and an arrival that has had less than its part is next. A stream is an entity of weight
//!         (8 − level) · 10 in its group; classes are strict, but the idle class moves.
//! fair.3  Within a stream the oldest request goes first.
//! fair.4  There are no more requests in the device than throughput needs (`depth`). There are fewer where more would keep a tenant
//!         from its share, as long as that costs no more than a stated part of the throughput.
//! fair.5  Each tenant has places of its own in the device, which no other takes while the tenant's requests are on their way to and
//!         from its clients. A closed loop finds their number, from the part that the tenant had and its due (`admission`,
//!         `entitlement`).
//! fair.6  The device is never held idle. A tenant that comes back has no credit for the time that it was away.
//! fair.7  Flushes, discards and writes of zeroes are charged to the stream that asked, by the service that others missed in
//!         their time (`pace`). The group's charges for writes since its last flush are taken off a flush.
//! fair.8  A request that the device turned back goes first, and is not charged again.
//! fair.9  A group below its floor goes first (`floors`).
//! fair.14  A read that memory answered, though it had been charged, is paid back: the next requests of its stream go for that. Costs, depth
//!          and places learn nothing of it.
//!
//! fair.12  Others have fewer places while a tenant's latency is missed (`latency`): shares divide the places, a latency
//!          bounds their sum. Meanwhile no other depth is tried.
//!
//! fair.15  Where gateways share a pool, the pool gives the depth ([`gateways`](crate::gateways)), and it may be less than one request
//!          (`slots`). No other depth is tried: how much the cluster does then depends on the other gateways as well.
//!
//! Another depth, another scheduler, another server: fair.10, fair.11 and fair.13 in `handover`.
//!
//! Suits disks that do not rotate. Blind to where requests are, but for their cost: a disk that seeks wants
//! [`bfq`](super::bfq).
//!
//! The bound is that of the fair queue with the cost of a request for a budget, for dispatched requests. Dispatched requests are
//! in the disk's hands, which may order them otherwise; they are never more than the depth.

mod admission;
mod cost;
mod depth;
mod handover;
mod latency;
mod membership;
mod settings;
mod slots;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

pub use crate::cost_model::Model;
pub use settings::Settings;

use super::fair_queue::{Arrival, FairQueue, Leaf};
use super::request_list::{RequestList, RequestTable};
use super::{
    Charge, Entry, Membership, Merge, NR_REQUESTS_SHARED, Next, Report, RequestEnd, RequestId, Scheduler, Served,
    Setup, Side, Waiting,
};
use crate::entitlement::OWN;
use crate::floors::{Floors, Order};
use crate::learn::pace::{self, Pace};
use crate::record::{Record, Unreadable};
use crate::tunable::tune;
use crate::{Bytes, Direction, Duration, Group, GroupId, Instant, Op, Priority, StreamId};
use admission::{Admission, Bounds, TenantId};
use cost::{Costs, Finding, Shape, Sum, Track};
use depth::{Depth, Ended};
use latency::Latency;
use slots::Slots;

/// Its row of the registry.
pub const ENTRY: Entry = Entry {
    name: "fair",
    is_per_disk: true,
    nr_requests_min: NR_REQUESTS_SHARED,
    own_weights: [OWN; 2],
    tunables: Settings::INFO,
    build: |setup| Box::new(Fair::new(setup, Settings::default())),
};

/// Fairness in the disk's time: see the [module](self).
pub struct Fair {
    settings: Settings,
    waitings: RequestTable,
    /// By request: its shape, and its charge.
    shapes: Vec<Charged>,
    /// By their numbers in the fair queue, which groups have too.
    queues: Vec<Option<Queue>>,
    /// The queue of each stream.
    homes: Vec<u32>,
    groups: Vec<GroupState>,
    order: FairQueue,
    tenants: Admission,
    floors: Floors,
    latency: Latency,
    /// How many requests of others latencies leave in the device, and when that was looked at (fair.12).
    guests: Option<u32>,
    looked: Instant,
    costs: Costs,
    /// Whether something ended in the present window whose time is charged otherwise.
    is_spoilt: bool,
    /// Completions in the present window.
    sum: Sum,
    depth: Depth,
    /// The device's queue depth.
    depth_max: u32,
    /// How many requests may be in the device (fair.4).
    limit: u32,
    /// The same where gateways share a pool (fair.15).
    slots: Option<Slots>,
    in_flight: u32,
    /// In-flight requests of another scheduler.
    others: u32,
    pace: Pace,
    /// Tenants that have room again, while it is divided.
    released: Vec<TenantId>,
}

/// A stream's requests.
#[derive(Debug)]
struct Queue {
    line: RequestList,
    group: GroupId,
    priority: Priority,
    /// The tenant that it is while it is in the root.
    own: TenantId,
    track: Track,
    /// Its requests in the device.
    in_flight: u32,
    /// The charges for reads that memory answered: the next requests go for that (fair.14).
    paid: u64,
}

impl Queue {
    /// The charge for a request of this cost after the credit in `paid`, and the rest of that credit. The charge is never 0.
    fn due(&self, cost: u32) -> (u32, u64) {
        if self.paid == 0 {
            return (cost, 0);
        }
        let due = u64::from(cost).saturating_sub(self.paid).max(1) as u32;
        (due, self.paid - u64::from(cost - due))
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Charged {
    shape: Shape,
    cost: u32,
}

#[derive(Clone, Copy, Debug)]
struct GroupState {
    is_there: bool,
    order: GroupId,
    tenant: Option<TenantId>,
    /// Charges for writes since the last flush, and for those that the last flush covered (fair.7).
    written: u64,
    covered: u64,
}

/// No queue.
const NIL: u32 = u32::MAX;

/// A queue's weight among its siblings (fair.2).
fn weight_of(priority: Priority) -> u32 {
    (8 - u32::from(priority.level)) * 10
}

impl Fair {
    /// An empty one, with the groups and the device that the setup names.
    #[must_use]
    pub fn new(setup: &Setup<'_>, settings: Settings) -> Self {
        let mut this = Self {
            waitings: RequestTable::new(setup.capacity),
            shapes: vec![Charged::default(); setup.capacity],
            queues: Vec::new(),
            homes: Vec::new(),
            groups: Vec::new(),
            order: FairQueue::new(&[Group::root()]),
            tenants: Admission::new(),
            floors: Floors::default(),
            latency: Latency::default(),
            guests: None,
            looked: Instant::ZERO,
            costs: Costs::new(settings.cost_model),
            is_spoilt: false,
            sum: Sum::default(),
            depth: Depth::new(setup.depth.into()),
            depth_max: u32::from(setup.depth).max(1),
            limit: 0,
            slots: None,
            in_flight: 0,
            others: 0,
            pace: Pace::default(),
            released: Vec::new(),
            settings,
        };
        this.settings_changed("device_depth");
        this.set_group(Instant::ZERO, GroupId::ROOT, &Group::root());
        for (id, group) in setup.groups.iter().enumerate().skip(1) {
            this.set_group(Instant::ZERO, GroupId(id as u16), group);
        }
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

    /// The tenant that a request of a stream's queue, sent for a group, counts for.
    #[inline]
    fn tenant(&self, q: u32, group: GroupId) -> TenantId {
        self.groups[usize::from(group.0)].tenant.unwrap_or_else(|| self.queue(q).own)
    }

    /// The cost of the oldest request of a queue, if it has one.
    #[inline(always)]
    fn next_cost(&self, q: u32) -> Option<u32> {
        let queue = self.queue(q);
        let oldest = queue.line.oldest()?;
        Some(queue.due(self.costs.price(self.shapes[oldest.0 as usize].shape)).0)
    }

    /// Puts a queue into the order that may be in it; its tenant is this one.
    fn wake(&mut self, q: u32, tenant: TenantId) {
        if !self.order.is_backlogged(Leaf(q)) {
            self.enter(q, tenant);
        }
    }

    /// Puts a queue into the order that is not in it, if it has requests and is not held; its tenant is this one.
    #[inline(always)]
    fn enter(&mut self, q: u32, tenant: TenantId) {
        let queue = self.queue(q);
        let (group, is_present) = (queue.group, queue.in_flight > 0);
        if self.is_by_itself(group) && self.tenants.is_held(tenant) {
            return;
        }
        if let Some(cost) = self.next_cost(q) {
            let arrival = self.arrival(tenant, is_present);
            self.order.activate(Leaf(q), cost, arrival);
            self.floors.touch(group);
        }
    }

    /// How a tenant's requests come into the order: what it missed while it had requests under way it is given back.
    fn arrival(&self, tenant: TenantId, is_present: bool) -> Arrival {
        match is_present {
            true => Arrival::Present { credit: self.tenants.missed(tenant, &self.costs) },
            false => Arrival::New,
        }
    }

    /// Whether the streams of a group are tenants by themselves.
    #[inline]
    fn is_by_itself(&self, group: GroupId) -> bool {
        self.groups[usize::from(group.0)].tenant.is_none()
    }

    /// A tenant has room in the device again: a stream's queue, or a group.
    fn release(&mut self, q: u32, group: GroupId) {
        let tenant = self.tenant(q, group);
        if self.is_by_itself(group) {
            return self.wake(q, tenant);
        }
        let arrival = self.arrival(tenant, true);
        self.order.unthrottle(self.groups[usize::from(group.0)].order, arrival);
        self.floors.touch(group);
    }

    /// Gives each tenant its places in the device (fair.5); `all`: as many as it likes.
    #[cold]
    fn give_places(&mut self, all: bool) {
        let mut released = core::mem::take(&mut self.released);
        match all {
            true => self.tenants.give_all(),
            false => {
                self.tenants.give(self.depth.trial(), self.limit, &self.costs);
                if let Some(guests) = self.guests {
                    self.tenants.make_room(guests, |group| self.latency.protects(self.looked, group)); // fair.12
                }
            }
        }
        self.tenants.release(&mut released);
        for tenant in released.drain(..) {
            let (q, group) = self.tenants.home(tenant);
            self.release(q, group);
        }
        self.released = released;
    }

    /// Whether the device has no place for the next request (fair.4).
    fn is_full(&self) -> bool {
        let most = self.slots.as_ref().map_or(self.limit, |slots| slots.at_most().min(self.depth_max)); // fair.15
        most.saturating_sub(self.in_flight + self.others) == 0 // fair.11
    }

    /// The next request; `all`: nothing is held back.
    #[inline(always)]
    fn next(&mut self, now: Instant, all: bool) -> Next {
        if let Some(id) = self.waitings.take_requeued() {
            self.begins(now, self.waitings.op(id)); // fair.8
            return Next::Request(id);
        }
        if let Some(slots) = &mut self.slots {
            slots.pass(now);
        }
        if self.floors.are_some() && !self.waitings.is_empty() {
            self.floors.update(now, &mut self.order); // fair.9
        }
        if self.waitings.is_empty() || !all && self.is_full() {
            return Next::Empty;
        }
        let mut chosen = self.order.select(now);
        if chosen.is_none() && all {
            self.give_places(true);
            chosen = self.order.select(now);
            assert!(chosen.is_some(), "{} requests wait, and none is in the order", self.waitings.len());
        }
        let Some(Leaf(q)) = chosen else { return Next::Empty }; // fair.5
        let queue = self.queues[q as usize].as_mut().expect("it waits");
        let id = queue.line.oldest().expect("a queue in the order has requests"); // fair.3
        let op = queue.line.take(&mut self.waitings, id);
        queue.in_flight += 1;
        let (group, own) = (queue.group, queue.own);
        let charged = &mut self.shapes[id.0 as usize];
        let shape = charged.shape;
        let cost = self.costs.price(shape);
        charged.cost = cost;
        let (due, paid) = queue.due(cost);
        queue.paid = paid;
        self.order.serve(due.into());
        let state = &mut self.groups[usize::from(group.0)];
        if shape.write {
            state.written += u64::from(cost);
        }
        let (order, is_group) = (state.order, state.tenant.is_some());
        let tenant = state.tenant.unwrap_or(own);
        let mut is_free = all;
        if self.floors.are_some() {
            if !all {
                let bytes = Bytes::of(shape.sectors.into());
                is_free = self.floors.count(now, group, op.direction(), bytes.get()); // floor.5
                if is_free {
                    self.tenants.goes_beyond(tenant);
                }
            }
            self.floors.went(group, op.direction());
        }
        let is_held = self.tenants.sent(tenant, shape) && !is_free;
        if is_held && is_group {
            self.order.throttle(order);
        }
        let next = if is_held && !is_group { None } else { self.next_cost(q) };
        self.order.expire(next);
        self.begins(now, op);
        Next::Request(id)
    }

    /// A request goes to the device.
    #[inline]
    fn begins(&mut self, now: Instant, op: Op) {
        if pace::is_non_data(op) {
            self.pace.begins(now, self.in_flight);
        } else if self.in_flight == 0 {
            // Beside others the time goes on, and counts when the next ends.
            self.pace.count(now, 0, 0);
        }
        self.in_flight += 1;
    }

    /// A flush, discard or write of zeroes ended; `charged` is the part of its time that is charged. Returns how long it took.
    fn non_data_ends(&mut self, now: Instant, charged: Duration) -> Duration {
        let took = self.pace.ends(now, charged);
        self.depth.lost(now, took, self.pace.lost(took));
        took
    }

    /// A request is in the device no more, and did not end there.
    fn comes_back(&mut self, now: Instant, op: Op) {
        if pace::is_non_data(op) {
            self.pace.ends(now, Duration::ZERO);
        }
        self.in_flight -= 1;
    }

    /// Learns from a request that ended.
    fn learn(&mut self, now: Instant, tenant: TenantId, charged: Charged) {
        let Charged { shape, cost } = charged;
        self.sum.add(shape, self.costs.kind(shape));
        let (before, on_trial) = (self.limit, self.costs.on_trial());
        let worth = self.costs.of(shape);
        let ended = self.depth.ended(now, worth, self.in_flight + 1, self.waitings.len() as u32);
        match ended {
            Ended::Open => {}
            Ended::Void => (self.sum, self.is_spoilt) = (Sum::default(), false),
            Ended::Full { time, lost } => {
                let sum = core::mem::take(&mut self.sum);
                if !core::mem::take(&mut self.is_spoilt) {
                    let tenants = &self.tenants;
                    match self.costs.learn(&sum, time, lost, |costs| tenants.inside(costs)) {
                        Finding::More => {}
                        Finding::Anew => self.measure_depths_anew(),
                        Finding::Scale(times) => {
                            self.pace.rescale(times);
                            self.tenants.rescale(times);
                        }
                    }
                }
            }
        }
        let is_over = self.tenants.served(now, tenant, cost);
        if is_over {
            let part = f64::from(self.settings.isolation_cost) / 100.0;
            let bounds = Bounds {
                most: self.depth.wanted().into(),
                least: self.depth.floor(part),
                least_exact: self.depth.bend(part),
            };
            let Some(period) = self.tenants.end_period(now, before.into(), &self.depth, &self.costs, bounds) else {
                return;
            };
            if period.changed {
                self.depth.review();
            }
            self.depth.set_places(&period);
        } else if let Ended::Open = ended {
            return;
        }
        self.limit = self.depth.limit();
        if is_over || self.limit != before || self.costs.on_trial() != on_trial {
            self.give_places(false);
        }
    }

    /// fair.12: others may have more or fewer requests in the device.
    #[cold]
    fn make_room(&mut self, now: Instant) {
        self.looked = now;
        let guests = self.latency.bound(now);
        self.depth.set_held(self.latency.is_strained(now));
        if core::mem::replace(&mut self.guests, guests) != guests {
            self.give_places(false);
        }
    }

    /// The depth that a setting gives, up to the device's.
    fn given(&self) -> Option<u32> {
        let depth = self.slots.as_ref().map_or(self.settings.device_depth, Slots::nearest); // fair.15
        (depth > 0).then(|| depth.min(self.depth_max))
    }

    /// Depths were measured in costs that no longer hold.
    fn measure_depths_anew(&mut self) {
        self.depth = Depth::new(self.depth_max);
        self.depth.set_given(self.given());
        self.depth.resume();
    }

    fn settings_changed(&mut self, name: &str) {
        match name {
            "device_depth" => {
                self.depth.set_given(self.given());
                self.limit = self.depth.limit();
            }
            "cost_model" => {
                self.costs = Costs::again(self.settings.cost_model);
                self.measure_depths_anew();
                self.limit = self.depth.limit();
            }
            _ => {}
        }
    }
}

impl Scheduler for Fair {
    fn insert(&mut self, now: Instant, request: &Waiting) {
        let q = self.homes[request.stream.0 as usize];
        let queue = self.queues[q as usize].as_mut().expect("the stream has a queue");
        let shape = queue.track.next(request.op, request.extent);
        self.shapes[request.id.0 as usize] = Charged { shape, cost: 0 };
        let was_empty = queue.line.is_empty();
        queue.line.add(&mut self.waitings, now, request);
        let tenant = self.tenant(q, request.group);
        self.tenants.came(now, tenant);
        self.floors.came(request.group, request.op.direction());
        if was_empty {
            self.enter(q, tenant);
        }
    }

    fn dispatch(&mut self, now: Instant) -> Next {
        self.next(now, false)
    }

    fn drain(&mut self, now: Instant) -> Option<RequestId> {
        let Next::Request(id) = self.next(now, true) else { return None };
        self.comes_back(now, self.waitings.op(id));
        let q = self.waitings.owner(id);
        let group = self.queue(q).group;
        let tenant = self.tenant(q, group);
        self.tenants.left(now, tenant);
        if self.leaves(q, tenant, id) {
            self.release(q, group);
        }
        Some(id)
    }

    fn requeue(&mut self, now: Instant, request: &Waiting) {
        self.comes_back(now, request.op);
        self.waitings.requeue(request.id);
    }

    fn len(&self) -> usize {
        self.waitings.len()
    }

    fn resize(&mut self, capacity: usize, depth: u16) {
        self.fit(capacity, depth);
    }

    fn set_others(&mut self, others: u32) {
        self.others = others;
    }

    fn share_depth(&mut self, now: Instant, depth: f64) {
        self.slots.get_or_insert_with(|| Slots::new(now, depth)).set(depth);
        self.latency.share_pool();
        self.depth.set_given(self.given());
        self.limit_may_be_another();
    }

    fn next_timeout(&self) -> Option<Instant> {
        let waits = !self.waitings.is_empty();
        self.slots.as_ref().filter(|_| waits && self.is_full()).map(Slots::until)
    }

    fn hand_on(&self, into: &mut Record) {
        self.hand_learned_on(into);
    }

    fn take_on(&mut self, from: &mut Record) -> Result<(), Unreadable> {
        self.take_learned_on(from)
    }

    fn hand_on_group(&self, id: GroupId, into: &mut Record) {
        self.groups[usize::from(id.0)].tenant.iter().for_each(|tenant| self.tenants.hand_on(*tenant, into));
    }

    fn take_on_group(&mut self, id: GroupId, from: &mut Record) -> Result<(), Unreadable> {
        self.groups[usize::from(id.0)].tenant.map_or(Ok(()), |tenant| self.tenants.take_on(tenant, from))
    }

    fn completed(&mut self, now: Instant, served: &Served) {
        let Waiting { id, op, stream, group, .. } = served.request;
        let q = self.homes[stream.0 as usize];
        let charged = self.shapes[id.0 as usize];
        if pace::is_non_data(op) {
            // Their time is charged as it turns out, and is not used to learn the costs of reads and writes.
            self.is_spoilt = true;
            self.pace.count(now, self.in_flight, 0);
            let took = self.non_data_ends(now, Duration::ZERO);
            if served.ok() {
                let worth = self.pace.worth(took).unwrap_or(0);
                self.charge_for(q, group, worth.saturating_sub(charged.cost.into()));
            }
        } else {
            self.pace.count(now, self.in_flight, if served.ok() { charged.cost.into() } else { 0 });
        }
        let tenant = self.tenant(q, group);
        self.tenants.left(now, tenant);
        self.in_flight -= 1;
        match served.end {
            RequestEnd::Cached => self.queue_mut(q).paid += u64::from(charged.cost), // fair.14
            RequestEnd::Done | RequestEnd::Failed => self.learn(now, tenant, charged),
        }
        if self.depth.is_held() && now.since(self.looked) > latency::LOOK {
            self.make_room(now); // latency.5
        }
        if self.leaves(q, tenant, id) {
            self.release(q, group);
        }
    }
}

impl Merge for Fair {
    fn merge_candidate(&self, newcomer: &Waiting) -> Option<(RequestId, Side)> {
        let line = &self.queue(self.homes[newcomer.stream.0 as usize]).line;
        if line.is_empty() { None } else { line.merge_candidate(&self.waitings, newcomer) }
    }

    fn grown(&mut self, request: &Waiting, side: Side) {
        let q = self.waitings.owner(request.id);
        let queue = self.queues[q as usize].as_mut().expect("it waits there");
        queue.line.grown(&mut self.waitings, request, side);
        queue.track.reach(request.extent.end());
        self.resized(q, request);
    }

    fn neighbour_after(&self, request: &Waiting) -> Option<RequestId> {
        self.queue(self.waitings.owner(request.id)).line.neighbour_after(&self.waitings, request)
    }

    fn absorbed(&mut self, kept: &Waiting, gone: RequestId) {
        let q = self.waitings.owner(kept.id);
        let queue = self.queues[q as usize].as_mut().expect("it waits there");
        queue.line.absorbed(&mut self.waitings, kept, gone);
        let tenant = self.tenant(q, kept.group);
        self.tenants.merged(tenant);
        self.floors.went(kept.group, kept.op.direction());
        self.resized(q, kept);
    }
}

impl Charge for Fair {
    fn flush_began(&mut self, now: Instant) {
        self.pace.begins(now, self.in_flight);
        for group in &mut self.groups {
            (group.covered, group.written) = (group.written, 0);
        }
    }

    fn flush_ended(&mut self, now: Instant, charged: Duration) {
        self.non_data_ends(now, charged);
    }

    fn charge(&mut self, _now: Instant, stream: StreamId, group: GroupId, time: Duration) {
        let q = self.homes[stream.0 as usize];
        // As long as the pace is not known, nothing is: costs may be a thousand times what they are taken for (cost.5), and its time a
        // debt of seconds.
        let worth = self.pace.worth(time).unwrap_or(0);
        let state = &mut self.groups[usize::from(group.0)];
        let covered = state.covered.min(worth);
        state.covered -= covered;
        let order = state.order;
        let worth = worth - covered;
        self.tenants.charge(self.tenant(q, group), worth);
        let beside = self.order.beside(order, self.pace.meanwhile(time));
        self.charge_for(q, group, worth.saturating_sub(beside));
    }

    fn is_ahead(&mut self, _now: Instant, group: GroupId) -> bool {
        let state = &self.groups[usize::from(group.0)];
        let others_go_on = !self.waitings.is_empty() || self.in_flight > 0;
        let owes = |tenant| self.tenants.owes(tenant);
        others_go_on && state.is_there && (state.tenant.is_some_and(owes) || self.order.is_ahead(state.order))
    }
}

/// fair.9: one order for both directions.
impl Order for FairQueue {
    fn has_backlog(&self, group: GroupId, _: Direction) -> bool {
        self.has_backlog(group)
    }

    fn set_weight(&mut self, group: GroupId, weight: u32, raised: [u32; 2]) {
        let raised = raised[0].saturating_add(raised[1]).min(Self::WEIGHT_MAX);
        self.set_group_weight(group, if raised > 0 { raised } else { weight });
    }
}

tune!(Fair, settings_changed);

impl Report for Fair {
    fn counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        tell("device_depth", self.depth.present().into());
        tell("depth_wanted", self.depth.wanted().into());
        tell("depth_least", self.depth.floor(f64::from(self.settings.isolation_cost) / 100.0) as u64);
        tell("depth_trials", self.depth.trials());
        let model = self.costs.model();
        for (name, value) in [
            ("cost_rbps", model.rbps),
            ("cost_rseqiops", model.rseqiops),
            ("cost_rrandiops", model.rrandiops),
            ("cost_wbps", model.wbps),
            ("cost_wseqiops", model.wseqiops),
            ("cost_wrandiops", model.wrandiops),
        ] {
            tell(name, value as u64);
        }
    }
}

impl Fair {
    /// A request is not known any more, which was in the device. Answers whether its tenant has room again, and had none.
    #[inline(always)]
    fn leaves(&mut self, q: u32, tenant: TenantId, id: RequestId) -> bool {
        self.waitings.forget(id);
        self.queue_mut(q).in_flight -= 1;
        self.tenants.has_room_again(tenant)
    }

    /// Charges what a stream asked for when it was in a group (fair.7); where it is in another one now, the group alone.
    fn charge_for(&mut self, q: u32, group: GroupId, worth: u64) {
        let state = &self.groups[usize::from(group.0)];
        if self.queue(q).group == group {
            self.order.charge(Leaf(q), worth);
        } else if state.is_there {
            self.order.charge_group(state.order, worth);
        }
    }

    /// Counts anew what waits in each group, for its floor.
    fn count_waiting(&mut self) {
        let (waitings, queues) = (&self.waitings, &self.queues);
        let group = |q: u32| queues[q as usize].as_ref().expect("the queue exists").group;
        self.floors
            .count_waiting(waitings.in_lists().map(|id| (group(waitings.owner(id)), waitings.op(id).direction())));
    }

    /// A waiting request became larger; if it is the next of its queue, so is the queue's budget.
    fn resized(&mut self, q: u32, request: &Waiting) {
        self.shapes[request.id.0 as usize].shape.resize(request.op, request.extent);
        if self.queue(q).line.oldest() == Some(request.id)
            && let Some(cost) = self.next_cost(q)
        {
            self.order.set_budget(Leaf(q), cost);
        }
    }
}
