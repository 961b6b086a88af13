//! Floors: what a group gets in a second at least, whatever its weight.
//!
//! A weight is a part of what there is: with eight more tenants beside it, the same weight is half as much. A floor is an amount. A
//! group below its floor goes first until it has it; from then on its weight decides again. Example: nine readers of weight 100 on
//! a disk of 90,000 reads a second get 10,000 each. With `min = { riops = 20000 }` one of them gets 20,000, and the other eight
//! divide the 70,000 that are left.
//!
//! The rules of mClock (Gulati, Merchant & Varman, OSDI 2010) and hClock (Billaud & Gulati, EuroSys 2013): a reservation tag for
//! each group with a floor, ahead of the order by shares, in a tree. There is no second queue here: while a group is below its
//! floor its weight in the fair queue, and that of the groups above it, is so large that it goes first. The fair queue keeps its
//! bound, the disk is never idle, and service by the floor costs nothing of the share, for virtual time hardly moves meanwhile.
//!
//! floor.1  A group is below its floor while something waits in it and its tag is not later than now. Each request moves the tag on
//!          by its time at the floor's rate, whatever it was served for: what its weight brings counts.
//! floor.2  The tag is at most [`LAG`] behind: a group that asks for nothing saves nothing. It is at most [`LEAD`] ahead: what a
//!          group had while the disk was free is not held against it for longer.
//! floor.3  The floor of a group passes down to those below it by their weights; to serve a group below its floor, those above it
//!          go first as well.
//! floor.4  Where floors are more than the disk can do, groups below them share it in proportion to their floors.
//! floor.5  A group with a floor is not held back for its places in the device being taken, and may take those that are kept for
//!          others.

use alloc::vec::Vec;

use super::super::fair_queue::FairQueue;
use crate::ceiling::{Rate, Rates};
use crate::time::ms;
use crate::{Direction, Duration, Group, GroupId, Instant};

/// How far behind a tag may be (floor.2). Chosen: a tenth of the second in which a floor is to be met; a disk that stops for longer
/// is not made up for.
const LAG: Duration = ms(100);

/// How far ahead a tag may be (floor.2). Chosen: long beside the time between two requests of a floor of 100 a second, and a
/// twentieth of a second by which a floor can be late.
const LEAD: Duration = ms(50);

/// The weight of the group with the largest floor while it is below it: half of what the fair queue takes. Of 1,000 siblings of weight
/// 1,000 all together have half of it.
const RAISED: u32 = 1 << 21;

/// The least weight of a group below its floor: above every weight that can be set.
const RAISED_LEAST: u32 = 1 << 12;

/// One rate of a floor.
#[derive(Clone, Copy, Debug)]
struct Tag {
    rate: Rate,
    amount: u64,
    /// Up to when what was served is due.
    until: Instant,
}

#[derive(Debug)]
struct Floor {
    group: GroupId,
    tags: Vec<Tag>,
    /// Its weight while it goes first.
    weight: u32,
    is_behind: bool,
}

impl Floor {
    /// How large it is beside others: I/Os, and 4 KiB of bytes count as one.
    fn size(&self) -> u64 {
        let one = |tag: &Tag| if tag.rate.counts_bytes() { tag.amount.div_ceil(4096) } else { tag.amount };
        self.tags.iter().map(one).max().unwrap_or(1)
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    parent: Option<GroupId>,
    /// Its number in the fair queue.
    order: GroupId,
    weight: u32,
    /// The weight that it has instead, while it, or one below it, goes first; else 0.
    raised: u64,
    /// It, or one above it, has a floor.
    covered: bool,
}

impl Node {
    fn weight_now(&self) -> u32 {
        if self.raised > 0 { self.raised.min(2 * u64::from(RAISED)) as u32 } else { self.weight }
    }
}

/// The floors of the groups of a disk.
#[derive(Default, Debug)]
pub(super) struct Floors {
    nodes: Vec<Option<Node>>,
    all: Vec<Floor>,
    behind: u32,
}

impl Floors {
    /// A group came, or has another weight.
    pub(super) fn set_group(&mut self, id: GroupId, order: GroupId, group: &Group) {
        let at = usize::from(id.0);
        if self.nodes.len() <= at {
            self.nodes.resize(at + 1, None);
        }
        let covered = group.parent.is_some_and(|parent| self.covers(parent));
        let node = Node { parent: group.parent, order, weight: group.weight.into(), raised: 0, covered };
        match &mut self.nodes[at] {
            Some(there) => there.weight = node.weight,
            none => *none = Some(node),
        }
    }

    /// A group went.
    pub(super) fn remove_group(&mut self, id: GroupId) {
        self.nodes[usize::from(id.0)] = None;
    }

    /// Gives a group a floor, or none.
    pub(super) fn set(&mut self, now: Instant, id: GroupId, rates: &Rates, order: &mut FairQueue) {
        if rates.is_none() && !self.all.iter().any(|floor| floor.group == id) {
            return; // Groups come and go by the thousand.
        }
        (0..self.all.len()).for_each(|at| self.turn(at, false, order));
        let before = self.all.iter().position(|floor| floor.group == id).map(|at| self.all.swap_remove(at));
        if !rates.is_none() {
            let until = |rate| {
                let old = before.as_ref().and_then(|floor| floor.tags.iter().find(|tag| tag.rate == rate));
                old.map_or(now, |tag| tag.until)
            };
            let tags = rates.iter().map(|(rate, amount)| Tag { rate, amount, until: until(rate) }).collect();
            self.all.push(Floor { group: id, tags, weight: 0, is_behind: false });
        }
        // floor.4
        let largest = self.all.iter().map(Floor::size).max().unwrap_or(1);
        for floor in &mut self.all {
            let part = u128::from(floor.size()) * u128::from(RAISED) / u128::from(largest);
            floor.weight = (part as u32).max(RAISED_LEAST);
        }
        for at in 0..self.nodes.len() {
            let mut up = self.nodes[at].map(|_| GroupId(at as u16));
            let mut covered = false;
            while let Some(id) = up {
                covered |= self.all.iter().any(|floor| floor.group == id);
                up = self.nodes[usize::from(id.0)].and_then(|node| node.parent);
            }
            if let Some(node) = &mut self.nodes[at] {
                node.covered = covered;
            }
        }
    }

    /// Whether there are any.
    #[inline]
    pub(super) fn are_some(&self) -> bool {
        !self.all.is_empty()
    }

    /// Whether a group is below its floor, and waits.
    #[inline]
    pub(super) const fn is_behind(&self) -> bool {
        self.behind > 0
    }

    /// Whether a group, or one above it, has a floor (floor.5).
    #[inline]
    pub(super) fn covers(&self, id: GroupId) -> bool {
        self.nodes.get(usize::from(id.0)).is_some_and(|node| node.is_some_and(|node| node.covered))
    }

    /// The weight that a group has now in the fair queue.
    pub(super) fn weight(&self, id: GroupId) -> u32 {
        self.node(id).weight_now()
    }

    /// A request of a group goes to the device (floor.1).
    pub(super) fn count(&mut self, now: Instant, id: GroupId, direction: Direction, bytes: u64) {
        let mut up = Some(id);
        while let Some(id) = up {
            if let Some(floor) = self.all.iter_mut().find(|floor| floor.group == id) {
                for tag in floor.tags.iter_mut().filter(|tag| tag.rate.counts(direction)) {
                    let amount = if tag.rate.counts_bytes() { bytes } else { 1 };
                    let time = u128::from(amount) * 1_000_000_000 / u128::from(tag.amount);
                    let time = Duration::from_nanos(u64::try_from(time).unwrap_or(u64::MAX));
                    // floor.2
                    let behind = Instant::from_nanos(now.as_nanos().saturating_sub(LAG.as_nanos()));
                    tag.until = (tag.until.max(behind) + time).min((now + LEAD).max(now + time));
                }
            }
            up = self.nodes[usize::from(id.0)].and_then(|node| node.parent);
        }
    }

    /// Looks who is below its floor now, and has those go first.
    pub(super) fn update(&mut self, now: Instant, order: &mut FairQueue) {
        for at in 0..self.all.len() {
            let floor = &self.all[at];
            let is_due = floor.tags.iter().any(|tag| tag.until <= now);
            let is_behind = is_due && order.has_backlog(self.node(floor.group).order);
            self.turn(at, is_behind, order);
        }
    }

    fn node(&self, id: GroupId) -> &Node {
        self.nodes[usize::from(id.0)].as_ref().expect("a group that is named is there")
    }

    /// Has a group and those above it go first, or not any more (floor.3).
    fn turn(&mut self, at: usize, is_behind: bool, order: &mut FairQueue) {
        let Floor { group, weight, is_behind: before, .. } = &mut self.all[at];
        if core::mem::replace(before, is_behind) == is_behind {
            return;
        }
        let (mut at, weight) = (*group, *weight);
        self.behind = if is_behind { self.behind + 1 } else { self.behind - 1 };
        while let Some(parent) = self.node(at).parent {
            let node = self.nodes[usize::from(at.0)].as_mut().expect("it is there");
            // What several below it need counts together.
            node.raised = if is_behind { node.raised + u64::from(weight) } else { node.raised - u64::from(weight) };
            order.set_group_weight(node.order, node.weight_now());
            at = parent;
        }
    }
}
