//! Groups: a tree of weights, and the order in which groups are served, so that each gets its share.
//!
//! vtime.1  A group's share is the product, over the levels above it, of its weight by the weights of all that are active
//!     beside it. The streams of a group that has groups below count among those with weight 100, those of the root 200.
//! vtime.2  Serving a group moves its virtual time on by the charge divided by its share. The group that is least far on is
//!     served next. Charges are nanoseconds of the device; in IOPS mode requests, each counting [`REQUEST`].
//! vtime.3  A group that comes back is as far on as it was, or as the least of the present ones, whichever is further: it keeps its debts
//!     and loses its claims. If that is not beyond where an even device would be, which serves all at once in proportion to their shares,
//!     it goes before all others. So a group that has had no more than its share waits for the turn under way, and for one turn of each
//!     that came back since that turn began; others wait until they have had no more.
//! vtime.4  In IOPS mode a group that has nothing waiting stays for a while: as long as the device has requests of it, and `group_idle`
//!     after the last has ended, if it is in the habit of asking again by then. No other group gets further ahead of it than `group_lead` requests
//!     of the whole device. See the module above. A group that has only asynchronous writes in the device stays only while no group has
//!     synchronous requests: those do not wait for write-back.
//! vtime.5  When the weight of a group changes, what it is ahead of the least counts by the new share, and so for the groups below it: as
//!     service, it is what it was. (A group of weight 1 beside one of 1000 waits for 100 s after a slice of 100 ms. Without this rule, it
//!     would wait as long after its weight has become 1000.)
//!
//! Linux's CFQ puts a group that comes back behind all others (vtime.3), which a group that often runs empty pays for with its
//! share; to soften that it extends slices ("wait busy"). Here there is nothing to soften.

use alloc::vec::Vec;

use super::flow::{NIL, Service};
use crate::learn::habits::ThinkTime;
use crate::time::{scale, secs};
use crate::tree::{Nodes, Tree};
use crate::{Duration, Instant, Priority, PriorityClass};

/// The charge of a request in IOPS mode (vtime.2). Chosen: enough that a large share's part of it is not lost by rounding.
pub(super) const REQUEST: u64 = 1 << 20;
/// The share of a group that has the device for itself. Chosen: shares are exact to 1/65,536 (Linux: 1/4096).
const WHOLE: u64 = 1 << 16;
/// The least share, as one part in `LEAST` of the device. Chosen: no single charge lasts for ever, and none overflows.
const LEAST: u64 = WHOLE << 24;
/// The weight of the streams of a group beside the groups below it (vtime.1), the default of a group; of the root's twice as much.
const LEAF_WEIGHT: u64 = 100;
pub(super) const OWN_WEIGHTS: [u32; 2] = [2 * LEAF_WEIGHT as u32, LEAF_WEIGHT as u32];
/// How long the device may keep a group's requests before the others no longer wait for it (vtime.4). Chosen: as long as a
/// lower class waits (cfq.2).
const STUCK: Duration = secs(2);

/// How many kinds of asynchronous flows a group has: a level each of two classes, and one of the idle class.
const ASYNCS: usize = 17;

/// A value in another unit: `to.0` new units are `to.1` old ones; at most a value that lasts for ever.
pub(super) fn convert(value: u64, to: (u64, u64)) -> u64 {
    scale(value, to.0, to.1).min(1 << 60)
}

/// Where a group is in the order of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    /// Nowhere: it has nothing to be served, and nobody waits for it.
    Away,
    /// A flow of it can be served.
    Ready,
    /// It is expected to ask again soon (vtime.4).
    Expected,
}

/// The flows of a class and a service that take turns.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// By what they were served.
    pub(super) tree: Tree,
    pub(super) count: u32,
    pub(super) think: ThinkTime,
}

/// The flows of a priority class.
#[derive(Debug, Default)]
pub(super) struct Class {
    pub(super) services: [Waiters; Service::COUNT],
    /// Where a flow that comes back starts at the least.
    pub(super) floor: u64,
    /// How many flows take turns: now, and usually.
    pub(super) busy: u32,
    pub(super) usual: u32,
    /// Since when it has been passed over.
    pub(super) passed_since: Instant,
}

/// A node of the weight tree.
#[derive(Debug)]
pub(super) struct Group {
    parent: u32,
    weight: u64,
    /// The active children: the sum of weights, and their number; the group's own flows count as one.
    sum: u64,
    active: u32,
    /// Whether its own flows count: it stands somewhere.
    pub(super) presence: Presence,
    /// Its virtual time (vtime.2).
    pub(super) time: u64,
    pub(super) classes: [Class; PriorityClass::COUNT],
    /// Flows that take turns, and those of them that are synchronous.
    pub(super) busy: u32,
    pub(super) busy_sync: u32,
    /// Requests in the device: asynchronous, synchronous.
    pub(super) in_flight: [u32; 2],
    pub(super) last_dispatch: Instant,
    /// When the device last answered one of them.
    pub(super) last_end: Instant,
    pub(super) think: ThinkTime,
    /// Its asynchronous flows, by class and level.
    pub(super) asyncs: [u32; ASYNCS],
}

impl Group {
    fn new(parent: u32, weight: u16) -> Self {
        Self {
            parent,
            weight: u64::from(weight).max(1),
            sum: 0,
            active: 0,
            presence: Presence::Away,
            time: 0,
            classes: Default::default(),
            busy: 0,
            busy_sync: 0,
            in_flight: [0; 2],
            last_dispatch: Instant::ZERO,
            last_end: Instant::ZERO,
            think: ThinkTime::default(),
            asyncs: [NIL; ASYNCS],
        }
    }

    /// Where in `asyncs` the flow of a priority is.
    pub(super) const fn async_place(priority: Priority) -> usize {
        let level = if priority.level > 7 { 7 } else { priority.level } as usize;
        match priority.class {
            PriorityClass::RealTime => level,
            PriorityClass::BestEffort => 8 + level,
            PriorityClass::Idle => 16,
        }
    }

    const fn leaf_weight(&self) -> u64 {
        if self.parent == NIL { 2 * LEAF_WEIGHT } else { LEAF_WEIGHT }
    }

    /// Whether nothing of it waits or is in the device.
    pub(super) const fn is_quiet(&self) -> bool {
        self.busy == 0 && self.in_flight[0] + self.in_flight[1] == 0
    }

    /// Until when others wait for it though nothing of it waits (vtime.4); `None` if they don't.
    pub(super) fn expected_until(&self, group_idle: Duration) -> Option<Instant> {
        if group_idle == Duration::ZERO || self.think.is_longer_than(group_idle) {
            return None;
        }
        if self.in_flight != [0; 2] {
            return Some(self.last_dispatch + STUCK);
        }
        self.think.last_end().map(|end| end + group_idle)
    }
}

/// All groups, by number, and the order in which they are served.
#[derive(Debug)]
pub(super) struct Groups {
    rows: Vec<Group>,
    nodes: Nodes,
    ready: Tree,
    expected: Tree,
    /// The least virtual time of the active ones, so far.
    floor: u64,
    /// The virtual time of an even device (vtime.3).
    even: u64,
}

impl Groups {
    /// The root alone.
    pub(super) fn new() -> Self {
        let rows = alloc::vec![Group::new(NIL, crate::Weight::DEFAULT.get())];
        Self { rows, nodes: Nodes::new(1), ready: Tree::new(), expected: Tree::new(), floor: 0, even: 0 }
    }

    /// A group was added, or has another weight.
    pub(super) fn set(&mut self, id: u16, parent: Option<u16>, weight: u16) {
        let number = usize::from(id);
        let parent = parent.map_or(NIL, u32::from);
        while self.rows.len() <= number {
            self.rows.push(Group::new(0, weight)); // its weight does not change below
            self.nodes.grow_to(self.rows.len());
        }
        let row = &mut self.rows[number];
        if row.active == 0 && row.is_quiet() {
            row.parent = parent; // Perhaps another than the one that had this number before.
        }
        if row.weight == u64::from(weight).max(1) {
            return; // All groups are told of one after the other, and what follows looks at all.
        }
        let shares: Vec<_> = self.at_and_below(id).map(|id| (id, self.inverse_share(id))).collect();
        let row = &mut self.rows[number];
        let (old, above) = (core::mem::replace(&mut row.weight, u64::from(weight).max(1)), row.parent);
        if row.active > 0 && above != NIL {
            self.rows[above as usize].sum = self.rows[above as usize].sum - old + self.rows[number].weight;
        }
        // vtime.5
        self.raise_floor();
        for (id, before) in shares {
            let ahead = self[id].time.saturating_sub(self.floor);
            if ahead > 0 {
                self[id].time = self.floor.saturating_add(convert(ahead, (self.inverse_share(id), before)));
                self.leave_order(id);
                self.enter_order(id, self[id].time);
            }
        }
    }

    /// A group, and all that are below it.
    fn at_and_below(&self, id: u16) -> impl Iterator<Item = u16> {
        let above = |at: &u16| u16::try_from(self[*at].parent).ok();
        (0..self.rows.len())
            .map(|at| at as u16)
            .filter(move |at| core::iter::successors(Some(*at), above).any(|at| at == id))
    }

    /// A group has gone; its number may come back as another's. Answers its asynchronous flows.
    pub(super) fn remove(&mut self, id: u16) -> impl Iterator<Item = u32> + use<> {
        assert!(self[id].is_quiet(), "group {id} goes, and has requests");
        self.set_presence(id, Presence::Away);
        let old = core::mem::replace(&mut self.rows[usize::from(id)], Group::new(0, 1));
        assert!(old.active == 0, "group {id} goes, and has groups below");
        old.asyncs.into_iter().filter(|flow| *flow != NIL)
    }

    /// How many numbers there are; not all of them are in use.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The group to be served next.
    pub(super) fn first_ready(&self) -> Option<u16> {
        self.ready.first(&self.nodes).map(|id| id as u16)
    }

    /// The group, of those that are expected to ask again soon, that is least far on.
    pub(super) fn first_expected(&self) -> Option<u16> {
        self.expected.first(&self.nodes).map(|id| id as u16)
    }

    /// Places a group by its virtual time. A group that comes back loses its claims (vtime.3).
    pub(super) fn set_presence(&mut self, id: u16, presence: Presence) {
        let before = self[id].presence;
        if before == presence {
            return;
        }
        let mut place = self[id].time;
        if before == Presence::Away {
            place = self.come_back(id);
            self.count_active(id, true);
        } else {
            self.leave_order(id);
        }
        self[id].presence = presence;
        self.enter_order(id, place);
        if presence == Presence::Away {
            self.count_active(id, false);
        }
    }

    /// The order in which a group stands, if it is present.
    fn order(&mut self, id: u16) -> Option<(&mut Tree, &mut Nodes)> {
        match self[id].presence {
            Presence::Away => None,
            Presence::Ready => Some((&mut self.ready, &mut self.nodes)),
            Presence::Expected => Some((&mut self.expected, &mut self.nodes)),
        }
    }

    fn leave_order(&mut self, id: u16) {
        if let Some((tree, nodes)) = self.order(id) {
            tree.remove(nodes, id.into());
        }
    }

    fn enter_order(&mut self, id: u16, place: u64) {
        if let Some((tree, nodes)) = self.order(id) {
            tree.insert(nodes, id.into(), place);
        }
    }

    /// Where a group that comes back goes in the order of service (vtime.3).
    fn come_back(&mut self, id: u16) -> u64 {
        self.raise_floor();
        // A group that leaves takes its part of the even device's time along, be it more or less than that; so its error adds up, but it is
        // nowhere beyond all present groups.
        let lasts = [self.ready.last(&self.nodes), self.expected.last(&self.nodes)];
        let most = lasts.into_iter().flatten().map(|id| self.nodes.key(id)).max();
        self.even = self.even.max(self.floor).min(most.unwrap_or(u64::MAX).max(self.floor));
        let (floor, even) = (self.floor, self.even);
        let group = &mut self[id];
        group.time = group.time.max(floor);
        if group.time <= even { floor.saturating_sub(1) } else { group.time }
    }

    /// Whether another group that has something to be served is less far on (vtime.2), or, of one that is nowhere, whether it would
    /// be no exception if it came back (vtime.3).
    pub(super) fn is_ahead(&self, id: u16) -> bool {
        let (Some(group), Some(first)) = (self.rows.get(usize::from(id)), self.first_ready()) else { return false };
        first != id && group.time > self[first].time && (group.presence != Presence::Away || group.time > self.even)
    }

    fn raise_floor(&mut self) {
        let firsts = [self.ready.first(&self.nodes), self.expected.first(&self.nodes)];
        let least = firsts.into_iter().flatten().map(|id| self.nodes.key(id)).min();
        self.floor = self.floor.max(least.unwrap_or(0));
    }

    /// Moves a group's virtual time on (vtime.2).
    pub(super) fn charge(&mut self, id: u16, charge: u64) {
        let inverse_share = self.inverse_share(id);
        let way = scale(charge, inverse_share, WHOLE).min(1 << 60);
        // Before it leaves its place: a lone group takes the floor along.
        self.raise_floor();
        let group = &mut self[id];
        group.time = group.time.saturating_add(way);
        let (time, presence) = (group.time, group.presence);
        if presence != Presence::Away {
            self.even = self.even.saturating_add(charge);
        }
        self.leave_order(id);
        self.enter_order(id, time);
    }

    /// Into how many parts like this group's the device is parted, in units of 1/[`WHOLE`]: the inverse of its share (vtime.1).
    pub(super) fn inverse_share(&self, id: u16) -> u64 {
        let group = &self[id];
        let mut inverse_share = WHOLE;
        if group.active > 1 || group.presence == Presence::Away {
            // Others are active below it.
            let own = group.leaf_weight();
            let sum = if group.presence == Presence::Away { group.sum + own } else { group.sum };
            inverse_share = inverse_share * sum / own;
        }
        let mut at = group;
        while at.parent != NIL {
            let above = &self.rows[at.parent as usize];
            let sum = if at.active == 0 { above.sum + at.weight } else { above.sum };
            inverse_share = (inverse_share.saturating_mul(sum) / at.weight).min(LEAST);
            at = above;
        }
        inverse_share
    }

    /// The part of `whole` that a group's share gives it.
    pub(super) fn part_of(&self, id: u16, whole: Duration) -> Duration {
        Duration::from_nanos(scale(whole.as_nanos(), WHOLE, self.inverse_share(id)))
    }

    /// The service an idle group would have had while the others received `served`; 0 for a backlogged group.
    pub(super) fn beside(&self, id: u16, served: u64) -> u64 {
        let others = self.inverse_share(id) - WHOLE;
        let waits = self[id].presence == Presence::Ready || others == 0;
        if waits { 0 } else { scale(served, WHOLE, others) }
    }

    /// The part of a number of things that a group's share gives it.
    pub(super) fn part_of_number(&self, id: u16, whole: u32) -> u32 {
        u32::try_from(u64::from(whole) * WHOLE / self.inverse_share(id)).unwrap_or(u32::MAX)
    }

    /// A group's own flows count from now on, or no longer; so do the groups up to one that is active anyway.
    fn count_active(&mut self, id: u16, comes: bool) {
        let (mut at, mut weight) = (usize::from(id), self[id].leaf_weight());
        loop {
            let group = &mut self.rows[at];
            let others = group.active - u32::from(!comes);
            group.active = others + u32::from(comes);
            group.sum = if comes { group.sum + weight } else { group.sum - weight };
            if others > 0 || group.parent == NIL {
                return;
            }
            (at, weight) = (group.parent as usize, group.weight);
        }
    }

    /// Charges count in another unit from now on: `to.0` new units are `to.1` old ones.
    pub(super) fn convert(&mut self, to: (u64, u64)) {
        self.raise_floor();
        let floor = self.floor;
        for id in (0..self.rows.len()).map(|id| id as u16) {
            let group = &mut self[id];
            let time = convert(group.time.saturating_sub(floor), to);
            group.time = time;
            for class in &mut group.classes {
                class.floor = 0;
            }
            self.leave_order(id);
            self.enter_order(id, time);
        }
        self.even = convert(self.even.saturating_sub(floor), to);
        self.floor = 0;
    }
}

impl core::ops::Index<u16> for Groups {
    type Output = Group;
    #[inline]
    fn index(&self, id: u16) -> &Group {
        &self.rows[usize::from(id)]
    }
}

impl core::ops::IndexMut<u16> for Groups {
    #[inline]
    fn index_mut(&mut self, id: u16) -> &mut Group {
        &mut self.rows[usize::from(id)]
    }
}
