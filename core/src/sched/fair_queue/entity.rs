//! The data: entities, groups with their service trees, and the tables that hold them.
//!
//! Invariants. An entity's weight is in the W of its tree unless it is forgotten. It is in the active set when it is
//! `Active`, in the idle set when it is `Idle`, in neither otherwise. A group is `InService` when a child is. A group that
//! is not throttled is `Active` when a child is and none is `InService`; a throttled one is `Idle` or `Forgotten` then, and never
//! `Active`. Where no child is in service, `next` is right, throttled or not.

use alloc::vec::Vec;

use super::Leaf;
use super::tags::{ORIGIN, Promise, Tag, WEIGHT_MAX, in_places, moved, moved_by};
use super::tree::{Colour, NIL, Tree};
use crate::{Group, GroupId, Instant, PriorityClass};

/// The fair queue of one disk; see the [module](super).
#[derive(Debug)]
pub struct FairQueue {
    pub(super) entities: Entities,
    pub(super) groups: Vec<GroupRow>,
    /// Numbers of removed entities and groups.
    free: Vec<u32>,
    free_groups: Vec<u16>,
    pub(super) in_service: u32,
    /// Sectors that it was served and that V does not show yet.
    pub(super) unsettled: u64,
}

#[derive(Debug)]
pub(super) struct Entities(pub(super) Vec<Entity>);

/// A queue or a group, waiting or not. A search reads the first of its two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Entity {
    /// F.
    pub(super) finish: Tag,
    /// S.
    pub(super) start: Tag,
    /// In a tree: the least S at and below it, what is below, what is above, and the colour.
    pub(super) least: Tag,
    pub(super) child: [u32; 2],
    pub(super) above: u32,
    pub(super) colour: Colour,
    pub(super) state: State,
    pub(super) class: PriorityClass,
    pub(super) live: bool,
    /// wfq.14.
    pub(super) promise: Promise,
    /// Sectors served in the present slot.
    pub(super) service: u64,
    pub(super) weight: u32,
    pub(super) budget: u32,
    /// The remainder of the last division of its service, less than its weight.
    carry: u32,
    /// Which group it is; `None` of a queue.
    pub(super) group: Option<GroupId>,
    pub(super) parent: GroupId,
}

const _: () = assert!(size_of::<Entity>() == 128 && core::mem::offset_of!(Entity, promise) == 64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// In no set, and its weight in no sum.
    Forgotten,
    /// In the idle set.
    Idle,
    /// In the active set: it waits.
    Active,
    /// Out of both sets, its slot lasting.
    InService,
}

impl State {
    pub(super) const fn is_backlogged(self) -> bool {
        matches!(self, Self::Active | Self::InService)
    }
}

/// Children of one group and class.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceTree {
    /// V.
    pub(super) time: Tag,
    /// W.
    pub(super) weights: u64,
    /// The remainder of the last division of service.
    carry: u64,
    /// The service due before V moves on (wfq.15), in places · weight, exactly.
    pub(super) debt: Tag,
    pub(super) active: Tree,
    pub(super) idle: Tree,
}

/// A group but for the entity that it is to its parent.
#[derive(Clone, Debug)]
pub(super) struct GroupRow {
    pub(super) trees: [ServiceTree; PriorityClass::COUNT],
    /// [`NIL`] of the root.
    pub(super) entity: u32,
    /// The child that would be served next; [`NIL`] if none waits. Not kept up to date while a child is in service.
    pub(super) next: u32,
    pub(super) in_service: u32,
    /// Queues and groups in it.
    pub(super) children: u32,
    /// wfq.12: when the idle class was last served or had nothing to do, and whether it was passed over since.
    pub(super) idle_looked_at: Instant,
    pub(super) idle_passed_over: bool,
    /// wfq.17: its children wait, and it does not.
    pub(super) is_throttled: bool,
    pub(super) live: bool,
}

impl Entities {
    #[inline]
    pub(super) fn at(&self, slot: u32) -> &Entity {
        &self.0[slot as usize]
    }

    /// Tags must not change while the entity is in a tree.
    #[inline]
    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Entity {
        &mut self.0[slot as usize]
    }
}

impl Entity {
    /// An entity in no set.
    pub(super) fn new(tag: Tag, parent: GroupId, class: PriorityClass, weight: u32, group: Option<GroupId>) -> Self {
        Self {
            finish: tag,
            start: tag,
            least: tag,
            child: [NIL; 2],
            above: NIL,
            colour: Colour::Outside,
            state: State::Forgotten,
            class,
            live: true,
            promise: Promise::default(),
            service: 0,
            weight,
            budget: 0,
            carry: 0,
            group,
            parent,
        }
    }

    /// How far `sectors` of service move its tags.
    #[inline]
    pub(super) fn moved(&mut self, sectors: u64) -> Tag {
        let mut carry = u64::from(self.carry);
        let moved = moved(sectors, u64::from(self.weight), &mut carry);
        self.carry = carry as u32;
        moved
    }

    /// Its tags are set, not moved: nothing is left over of the service before.
    #[inline]
    pub(super) fn drop_carry(&mut self) {
        self.carry = 0;
    }
}

impl ServiceTree {
    /// A weight joins W.
    #[inline]
    pub(super) fn add_weight(&mut self, weight: u32) {
        self.weights += u64::from(weight);
        self.carry = 0;
    }

    /// A weight leaves W.
    #[inline]
    pub(super) fn remove_weight(&mut self, weight: u32) {
        self.weights -= u64::from(weight);
        self.carry = 0;
    }

    /// wfq.9: V jumps to the least S if nobody is eligible, and nobody is behind any more.
    #[inline]
    pub(super) fn jump(&mut self, least: Tag) {
        if least > self.time {
            (self.time, self.debt, self.carry) = (least, 0, 0);
        }
    }

    /// wfq.1 and wfq.15: V moves by `sectors`, once the debt is paid.
    #[inline]
    pub(super) fn advance(&mut self, sectors: u64) {
        if self.debt == 0 {
            self.time += moved(sectors, self.weights, &mut self.carry);
        } else {
            self.pay(sectors);
        }
    }

    #[inline(never)]
    fn pay(&mut self, sectors: u64) {
        let places = in_places(sectors);
        if places <= self.debt {
            self.debt -= places;
        } else {
            let debt = core::mem::take(&mut self.debt);
            self.time += moved_by(places - debt, self.weights, &mut self.carry);
        }
    }
}

impl GroupRow {
    fn new(entity: u32) -> Self {
        let tree = ServiceTree { time: ORIGIN, weights: 0, carry: 0, debt: 0, active: Tree::EMPTY, idle: Tree::EMPTY };
        Self {
            trees: [tree; PriorityClass::COUNT],
            entity,
            next: NIL,
            in_service: NIL,
            children: 0,
            idle_looked_at: Instant::ZERO,
            idle_passed_over: false,
            is_throttled: false,
            live: true,
        }
    }
}

impl FairQueue {
    /// The groups of a configuration, by their places in it: the root first, a parent before its children.
    ///
    /// # Panics
    /// They are not in that order, or a weight is out of range.
    #[must_use]
    pub fn new(groups: &[Group]) -> Self {
        assert!(groups.first().is_some_and(|root| root.parent.is_none()), "the first group is the root");
        let mut fair = Self {
            entities: Entities(Vec::new()),
            groups: Vec::with_capacity(groups.len()),
            free: Vec::new(),
            free_groups: Vec::new(),
            in_service: NIL,
            unsettled: 0,
        };
        fair.groups.push(GroupRow::new(NIL));
        for group in &groups[1..] {
            let parent = group.parent.expect("only the first group is the root");
            let _ = fair.add_group(parent, u32::from(group.weight));
        }
        fair
    }

    /// Adds a group to `parent` and says which it is: the number that was given back last, or the next one.
    ///
    /// # Panics
    /// There is no such parent, the weight is out of range, or there are 65,536 groups.
    pub fn add_group(&mut self, parent: GroupId, weight: u32) -> GroupId {
        let group = GroupId(self.free_groups.pop().unwrap_or_else(|| {
            let next = u16::try_from(self.groups.len()).expect("at most 65,536 groups");
            self.groups.push(GroupRow::new(NIL));
            next
        }));
        let slot = self.add_entity(parent, PriorityClass::BestEffort, weight, Some(group));
        *self.group_mut(group) = GroupRow::new(slot);
        group
    }

    /// Removes an empty group.
    ///
    /// # Panics
    /// It is the root, was removed, or has queues or groups in it.
    pub fn remove_group(&mut self, group: GroupId) {
        let row = self.group(group);
        assert!(row.live && row.entity != NIL, "group {} is the root or was removed", group.0);
        assert!(row.children == 0, "group {} has {} queues and groups in it", group.0, row.children);
        let slot = row.entity;
        self.group_mut(group).live = false;
        self.free_groups.push(group.0);
        self.remove_entity(slot);
    }

    /// Adds an idle queue to `group`.
    ///
    /// # Panics
    /// There is no such group, or the weight is not between 1 and [`FairQueue::WEIGHT_MAX`].
    pub fn add_queue(&mut self, group: GroupId, class: PriorityClass, weight: u32) -> Leaf {
        Leaf(self.add_entity(group, class, weight, None))
    }

    fn add_entity(&mut self, parent: GroupId, class: PriorityClass, weight: u32, group: Option<GroupId>) -> u32 {
        check_weight(weight);
        self.settle();
        assert!(self.group(parent).live, "group {} was removed", parent.0);
        self.group_mut(parent).children += 1;
        let entity = Entity::new(self.group(parent).trees[class as usize].time, parent, class, weight, group);
        if let Some(slot) = self.free.pop() {
            *self.entities.at_mut(slot) = entity;
            return slot;
        }
        let entities = &mut self.entities.0;
        assert!(entities.len() < NIL as usize, "an entity is a u32");
        entities.push(entity);
        entities.len() as u32 - 1
    }

    /// Gives back an entity that is in no set and no sum.
    pub(super) fn free_entity(&mut self, slot: u32) {
        let entity = self.entities.at_mut(slot);
        entity.live = false;
        let parent = entity.parent;
        self.group_mut(parent).children -= 1;
        self.free.push(slot);
    }

    /// The largest weight: that of 1,000 raised 3,000-fold is less.
    pub const WEIGHT_MAX: u32 = WEIGHT_MAX;

    #[inline]
    pub(super) fn leaf(&self, leaf: Leaf) -> &Entity {
        let entity = self.entities.at(leaf.0);
        assert!(entity.live && entity.group.is_none(), "{leaf:?} is no queue, or was removed");
        entity
    }

    #[inline]
    pub(super) fn group(&self, group: GroupId) -> &GroupRow {
        &self.groups[usize::from(group.0)]
    }

    #[inline]
    pub(super) fn group_mut(&mut self, group: GroupId) -> &mut GroupRow {
        &mut self.groups[usize::from(group.0)]
    }

    /// The service tree that an entity belongs to.
    #[inline]
    pub(super) fn tree_of(&self, slot: u32) -> &ServiceTree {
        let entity = self.entities.at(slot);
        &self.groups[usize::from(entity.parent.0)].trees[entity.class as usize]
    }

    /// As [`FairQueue::tree_of`], to change, and the entities beside it.
    #[inline]
    pub(super) fn tree_and_entities(&mut self, slot: u32) -> (&mut ServiceTree, &mut Entities) {
        let entity = self.entities.at(slot);
        (&mut self.groups[usize::from(entity.parent.0)].trees[entity.class as usize], &mut self.entities)
    }
}

pub(super) fn check_weight(weight: u32) {
    assert!((1..=WEIGHT_MAX).contains(&weight), "a weight of {weight} is not between 1 and {WEIGHT_MAX}");
}
