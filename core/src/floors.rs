//! Floors: what a group gets in a second at least, whatever its weight.
//!
//! A weight is a part of the disk: with more tenants beside it, the same weight is worth less. A floor is an amount. A group below its
//! floor goes first until it has it; from then on its weight decides again. Example: nine readers of weight 100 on a disk of 90,000 reads a
//! second get 10,000 each. With `min = { riops = 20000 }` one of them gets 20,000, and the other eight divide the 70,000 that are left.
//!
//! The rules of mClock (Gulati, Merchant & Varman, OSDI 2010) and hClock (Billaud & Gulati, EuroSys 2013): a reservation tag for
//! each group with a floor, ahead of the order by shares, in a tree. There is no second queue here: while a group is below its
//! floor its weight in an [`Order`], and that of the groups above it, is so large that it goes first. The order keeps its
//! bound, the disk is never idle, and service by the floor costs nothing of the share, for virtual time hardly moves meanwhile.
//!
//! There are two such orders: that of the scheduler `fair`, in which requests wait for the disk, and that in which they wait for
//! the ceiling of a group above (`ceiling::held`). Example: `max = { riops = 3000 }` on `/t`, nine readers below it, and a
//! floor of 1000 on one. By weight it would be let through 333 times a second; below its floor it goes first, and has 1000 of the
//! 3000.
//!
//! floor.1  A group is below its floor while a request waits in it that the floor counts, and its tag is not later than now: one
//!          that only writes is never below a floor of reads. Each request moves the tag on by its time at the floor's rate,
//!          whatever it was served for: what its weight brings counts.
//! floor.2  The tag is at most [`LAG`] behind: a group that asks for nothing saves nothing. It is at most [`LEAD`] ahead: what a
//!          group had while the disk was free is not held against it for longer.
//! floor.3  The floor of a group passes down to those below it by their weights; to serve a group below its floor, those above it
//!          go first as well.
//! floor.4  Where floors are more than the disk can do, or than a ceiling above lets through, groups below them share it in
//!          proportion to their floors.
//! floor.5  A group is not held back for its places in the device being taken unless its tag is as far ahead as it can be, and may
//!          take those that are kept for others while it is below its floor. The problem: with its places for its weight's part
//!          alone, it never has more than that; free of them for good, it had a third more than its weight's part, with a
//!          floor of a tenth of that.
//! floor.6  The cost of a dispatch does not grow with the number of floors. A group ahead of its floor is looked at when its tag comes
//!          to be due, in the order of tags; any group, when something came or went in it. No other group changes.

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::ceiling::{Rate, Rates};
use crate::time::{ms, scale};
use crate::{Direction, Duration, Group, GroupId, Instant};

/// How far behind a tag may be (floor.2). Chosen: a tenth of the second in which a floor is to be met; a disk that stops for longer
/// is not made up for.
const LAG: Duration = ms(100);

/// How far ahead a tag may be (floor.2). Chosen: long beside the time between two requests of a floor of 100 a second, and a
/// twentieth of a second by which a floor can be late.
const LEAD: Duration = ms(50);

/// The weight of the group with the largest floor while it is below it: half of the largest weight of the fair queue. Of 1,000 siblings of
/// weight 1,000 all together have half of it.
const RAISED: u32 = 1 << 21;

/// The least weight of a group below its floor: above every weight that can be set.
const RAISED_LEAST: u32 = 1 << 12;

/// An order by weight, in which a group below its floor goes first.
pub(crate) trait Order {
    /// Whether a request in this direction waits in a group or below it, and could be next. The group's number is that of
    /// [`Floors::set_group`] said.
    fn has_backlog(&self, group: GroupId, way: Direction) -> bool;
    /// A group has another weight: its own, or by direction what it is raised to, if that is not 0.
    fn set_weight(&mut self, group: GroupId, weight: u32, raised: [u32; 2]);
}

#[derive(Clone, Copy, Debug)]
struct RateTag {
    rate: Rate,
    amount: u64,
    /// Up to when what was served is due.
    until: Instant,
}

#[derive(Debug)]
struct Floor {
    tags: Vec<RateTag>,
    /// By direction: how large it is beside others.
    size: [u64; 2],
    /// By direction: what it adds to the weights of its group and those above, while the group is below it; else 0.
    weight: [u32; 2],
    /// Its place in the order of tags, if it has one there; other places of it are stale.
    place: Option<Instant>,
    is_touched: bool,
}

impl Floor {
    fn new(tags: Vec<RateTag>) -> Self {
        // I/Os, and 4 KiB of bytes count as one.
        let one = |tag: &RateTag| if tag.rate.counts_bytes() { tag.amount.div_ceil(4096) } else { tag.amount };
        let size = |way| tags.iter().filter(|tag| tag.rate.counts(way)).map(one).max().unwrap_or(0);
        let size = Direction::ALL.map(size);
        Self { tags, size, weight: [0; 2], place: None, is_touched: false }
    }

    /// How large it is, the larger of both directions.
    fn largest(&self) -> u64 {
        self.size.into_iter().max().unwrap_or(0)
    }

    /// The time from which on requests in this direction are below the floor.
    fn due(&self, way: Direction) -> Instant {
        let counts = self.tags.iter().filter(|tag| tag.rate.counts(way));
        counts.map(|tag| tag.until).min().unwrap_or(Instant::MAX)
    }
}

#[derive(Debug)]
struct Node {
    parent: Option<GroupId>,
    /// Its number in the order.
    order: GroupId,
    weight: u32,
    /// By direction: what the floors of it and of those below it, that it goes first for, add up to.
    raised: [u64; 2],
    /// By direction: how many requests wait in it and below it, while there are floors.
    waiting: [u32; 2],
    floor: Option<Floor>,
}

impl Node {
    fn raised(&self) -> [u32; 2] {
        self.raised.map(|raised| raised.min(2 * u64::from(RAISED)) as u32)
    }
}

/// The floors of groups, in one order.
#[derive(Default, Debug)]
pub(crate) struct Floors {
    nodes: Vec<Option<Node>>,
    /// How many floors there are of each size.
    sizes: BTreeMap<u64, u32>,
    /// Groups ahead of their floors, by when their tags are due (floor.6).
    ahead: BinaryHeap<Reverse<(Instant, GroupId)>>,
    /// Groups in which something came or went.
    touched: Vec<GroupId>,
    /// How many groups are below their floors, by direction counted apart.
    behind: u32,
}

impl Floors {
    /// A group came, or has another weight.
    pub(crate) fn set_group(&mut self, id: GroupId, order: GroupId, group: &Group) {
        let at = usize::from(id.0);
        self.nodes.resize_with(self.nodes.len().max(at + 1), || None);
        match &mut self.nodes[at] {
            Some(there) => there.weight = group.weight.into(),
            none => {
                let (parent, weight) = (group.parent, group.weight.into());
                *none = Some(Node { parent, order, weight, raised: [0; 2], waiting: [0; 2], floor: None });
            }
        }
    }

    /// A group went, which had no floor any more.
    pub(crate) fn remove_group(&mut self, id: GroupId) {
        self.nodes[usize::from(id.0)] = None;
    }

    /// Gives a group a floor, or none. Answers whether it is the first one: then [`Floors::count_waiting`] is to follow.
    pub(crate) fn set(&mut self, now: Instant, id: GroupId, rates: &Rates, order: &mut impl Order) -> bool {
        let (were_some, largest) = (self.are_some(), self.largest());
        Direction::ALL.into_iter().for_each(|way| self.turn(id, way, false, order));
        let before = self.node_mut(id).floor.take();
        if let Some(floor) = &before {
            let count = self.sizes.get_mut(&floor.largest()).expect("each floor is counted");
            *count -= 1;
            if *count == 0 {
                self.sizes.remove(&floor.largest());
            }
        }
        if !rates.is_none() {
            let until = |rate| {
                let old = before.iter().flat_map(|floor| &floor.tags).find(|tag| tag.rate == rate);
                old.map_or(now, |tag| tag.until)
            };
            let tag = |(rate, amount)| RateTag { rate, amount, until: until(rate) };
            let floor = Floor::new(rates.iter().map(tag).collect());
            *self.sizes.entry(floor.largest()).or_default() += 1;
            self.node_mut(id).floor = Some(floor);
            self.touch(id);
        }
        if self.largest() != largest && self.behind > 0 {
            // floor.4
            for at in 0..self.nodes.len() {
                for way in Direction::ALL {
                    let id = GroupId(at as u16);
                    if self.floor_mut(id).is_some_and(|floor| floor.weight[way as usize] > 0) {
                        self.turn(id, way, false, order);
                        self.turn(id, way, true, order);
                    }
                }
            }
        }
        self.are_some() && !were_some
    }

    /// Counts the waiting requests anew.
    pub(crate) fn count_waiting(&mut self, all: impl Iterator<Item = (GroupId, Direction)>) {
        self.nodes.iter_mut().flatten().for_each(|node| node.waiting = [0; 2]);
        all.for_each(|(id, way)| self.came(id, way));
    }

    fn largest(&self) -> u64 {
        self.sizes.last_key_value().map_or(1, |(size, _)| *size)
    }

    #[inline]
    pub(crate) fn are_some(&self) -> bool {
        !self.sizes.is_empty()
    }

    /// Whether a group is below its floor, and waits.
    #[inline]
    pub(crate) const fn is_behind(&self) -> bool {
        self.behind > 0
    }

    pub(crate) fn tell_weight(&self, id: GroupId, order: &mut impl Order) {
        let node = self.node(id);
        order.set_weight(node.order, node.weight, node.raised());
    }

    /// A request waits in a group.
    #[inline]
    pub(crate) fn came(&mut self, id: GroupId, way: Direction) {
        self.waits(id, |waiting| waiting[way as usize] += 1);
    }

    /// A request waits no more in a group.
    #[inline]
    pub(crate) fn went(&mut self, id: GroupId, way: Direction) {
        self.waits(id, |waiting| waiting[way as usize] -= 1);
    }

    /// Something changed in a group: it is looked at next time, and those above it (floor.6).
    #[inline]
    pub(crate) fn touch(&mut self, id: GroupId) {
        self.waits(id, |_| {});
    }

    #[inline]
    fn waits(&mut self, id: GroupId, change: impl Fn(&mut [u32; 2])) {
        if !self.are_some() {
            return;
        }
        let mut up = Some(id);
        while let Some(id) = up {
            let node = self.nodes[usize::from(id.0)].as_mut().expect("a group that is named is there");
            change(&mut node.waiting);
            if let Some(floor) = &mut node.floor
                && !core::mem::replace(&mut floor.is_touched, true)
            {
                self.touched.push(id);
            }
            up = node.parent;
        }
    }

    /// A request of a group goes on (floor.1). Answers whether the group needs its floor: its tag, or that of a group
    /// above it, is not as far ahead as it can be (floor.5).
    pub(crate) fn count(&mut self, now: Instant, id: GroupId, direction: Direction, bytes: u64) -> bool {
        let (mut up, mut needs_it) = (Some(id), false);
        while let Some(id) = up {
            let node = self.node_mut(id);
            for tag in node.floor.iter_mut().flat_map(|floor| &mut floor.tags) {
                if tag.rate.counts(direction) {
                    let amount = if tag.rate.counts_bytes() { bytes } else { 1 };
                    let time = Duration::from_nanos(scale(amount, 1_000_000_000, tag.amount));
                    // floor.2
                    let behind = Instant::from_nanos(now.as_nanos().saturating_sub(LAG.as_nanos()));
                    let most = (now + LEAD).max(now + time);
                    tag.until = (tag.until.max(behind) + time).min(most);
                    needs_it |= tag.until < most;
                }
            }
            up = node.parent;
        }
        needs_it
    }

    /// Looks who is below its floor now, and has those go first.
    pub(crate) fn update(&mut self, now: Instant, order: &mut impl Order) {
        while let Some(id) = self.touched.pop() {
            self.look(now, id, order);
        }
        while let Some(Reverse((due, id))) = self.ahead.peek().copied()
            && due <= now
        {
            self.ahead.pop();
            if let Some(floor) = self.floor_mut(id)
                && floor.place == Some(due)
            {
                floor.place = None;
                self.look(now, id, order);
            }
        }
    }

    /// Looks whether a group is below its floor; if it is not, when it will be.
    fn look(&mut self, now: Instant, id: GroupId, order: &mut impl Order) {
        for way in Direction::ALL {
            let Some(Node { waiting, order: of, floor: Some(floor), .. }) = &mut self.nodes[usize::from(id.0)] else {
                return; // It has none any more.
            };
            floor.is_touched = false;
            let waits = waiting[way as usize] > 0;
            let due = floor.due(way);
            if waits && due > now && due < floor.place.unwrap_or(Instant::MAX) {
                floor.place = Some(due);
                self.ahead.push(Reverse((due, id)));
            }
            let is_behind = waits && due <= now && order.has_backlog(*of, way);
            self.turn(id, way, is_behind, order);
        }
    }

    fn node(&self, id: GroupId) -> &Node {
        self.nodes[usize::from(id.0)].as_ref().expect("a group that is named is there")
    }

    fn node_mut(&mut self, id: GroupId) -> &mut Node {
        self.nodes[usize::from(id.0)].as_mut().expect("a group that is named is there")
    }

    fn floor_mut(&mut self, id: GroupId) -> Option<&mut Floor> {
        self.nodes.get_mut(usize::from(id.0))?.as_mut()?.floor.as_mut()
    }

    /// Has a group and those above it go first, or not any more (floor.3).
    fn turn(&mut self, id: GroupId, way: Direction, is_behind: bool, order: &mut impl Order) {
        let (largest, way) = (self.largest(), way as usize);
        let Some(floor) = &mut self.node_mut(id).floor else { return };
        if (floor.weight[way] > 0) == is_behind {
            return;
        }
        // floor.4
        let part = u128::from(floor.size[way]) * u128::from(RAISED) / u128::from(largest);
        let now = if is_behind { (part as u32).max(RAISED_LEAST) } else { 0 };
        let before = core::mem::replace(&mut floor.weight[way], now);
        self.behind = if is_behind { self.behind + 1 } else { self.behind - 1 };
        let mut at = id;
        while let Some(parent) = self.node(at).parent {
            // The needs of several groups below it count together.
            let raised = &mut self.node_mut(at).raised[way];
            *raised = *raised + u64::from(now) - u64::from(before);
            self.tell_weight(at, order);
            at = parent;
        }
    }
}
