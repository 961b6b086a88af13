//! Questions that the policy may ask.

use super::entity::State;
use super::tags::Tag;
use super::tree::NIL;
use super::{FairQueue, Leaf};
use crate::time::scale;
use crate::{GroupId, PriorityClass};

/// The tags of an entity in service as they would be if it waited.
#[derive(Clone, Copy)]
struct WaitingTags {
    slot: u32,
    class: PriorityClass,
    start: Tag,
    finish: Tag,
    budget: u32,
}

impl FairQueue {
    /// The queue in service.
    #[inline]
    #[must_use]
    pub fn in_service(&self) -> Option<Leaf> {
        (self.in_service != NIL).then_some(Leaf(self.in_service))
    }

    /// Whether a queue waits or is in service.
    #[must_use]
    pub fn is_backlogged(&self, leaf: Leaf) -> bool {
        self.leaf(leaf).state.is_backlogged()
    }

    /// Whether something waits in a group or below it that could be next.
    #[must_use]
    pub fn has_backlog(&self, group: GroupId) -> bool {
        self.group(group).next != NIL
    }

    /// The part of all service that a queue, if it is backlogged, is entitled to while those that are backlogged now are: in
    /// parts of 65,536, rounded up. Throttled groups above it count as if they were not throttled.
    #[must_use]
    pub fn share_of(&self, leaf: Leaf) -> u32 {
        self.share_from(leaf.0)
    }

    /// The same of its group.
    #[must_use]
    pub fn share_of_group(&self, leaf: Leaf) -> u32 {
        self.share_from(self.group(self.leaf(leaf).parent).entity)
    }

    fn share_from(&self, mut slot: u32) -> u32 {
        let mut share = 1_u64 << 16;
        while slot != NIL {
            let entity = self.entities.at(slot);
            let (parent, weight) = (entity.parent, u64::from(entity.weight));
            let weights = self.tree_of(slot).weights;
            let is_left_out = entity.state == State::Forgotten && self.is_throttled(slot);
            share = (share * weight).div_ceil(if is_left_out { weights + weight } else { weights.max(weight) });
            slot = self.group(parent).entity;
        }
        share as u32
    }

    /// Whether an entity is a group that is throttled.
    fn is_throttled(&self, slot: u32) -> bool {
        self.entities.at(slot).group.is_some_and(|group| self.group(group).is_throttled)
    }

    /// The service an idle group would have had while the others received `served`; 0 for a backlogged group. A throttled group with
    /// requests counts as backlogged: the service that it misses is given back when it is unthrottled.
    #[must_use]
    pub fn beside(&self, group: GroupId, served: u64) -> u64 {
        const WHOLE: u64 = 1 << 16;
        let (mut slot, mut share) = (self.group(group).entity, WHOLE);
        if slot == NIL || self.entities.at(slot).state.is_backlogged() || self.group(group).next != NIL {
            return 0;
        }
        while slot != NIL {
            let entity = self.entities.at(slot);
            let (weight, weights) = (u64::from(entity.weight), self.tree_of(slot).weights);
            let counted = entity.state != State::Forgotten;
            share = share * weight / if counted { weights.max(weight) } else { weights + weight };
            slot = self.group(entity.parent).entity;
        }
        if share == WHOLE {
            return 0;
        }
        scale(served, share, WHOLE - share)
    }

    /// Whether a group, or one above it, was served beyond its share (S > V, or F > V of an idle one) while a sibling waits or
    /// is in service: a queue of it that asked now would have to wait.
    pub fn is_ahead(&mut self, group: GroupId) -> bool {
        self.settle();
        let mut slot = self.group(group).entity;
        while slot != NIL {
            let entity = self.entities.at(slot);
            let row = self.group(entity.parent);
            let tree = &row.trees[entity.class as usize];
            let (at, is_alone) = match entity.state {
                State::InService => return false,
                State::Forgotten => (tree.time, true),
                State::Idle => (entity.finish, row.next == NIL && row.in_service == NIL),
                State::Active => {
                    let alone = tree.active.first == slot && tree.active.last == slot;
                    (entity.start, alone && row.in_service == NIL)
                }
            };
            if at > tree.time && !is_alone {
                return true;
            }
            slot = row.entity;
        }
        false
    }

    /// The budget that a queue was last given, in sectors.
    #[must_use]
    pub fn budget_of(&self, leaf: Leaf) -> u32 {
        self.leaf(leaf).budget
    }

    /// The queue that would be served next if the one in service went idle now, or, if none is in service, at all (wfq.13).
    pub fn next_if_idle(&mut self) -> Option<Leaf> {
        self.settle();
        let mut slot = self.in_service;
        // The tags with which the path in service would wait, as other children do; none at first.
        let mut waiting: Option<WaitingTags> = None;
        while slot != NIL {
            let parent = self.entities.at(slot).parent;
            let (next, budget) = self.next_with(parent, waiting);
            self.group_mut(parent).next = next;
            slot = self.group(parent).entity;
            let goes_on = slot != NIL && next != NIL && !self.group(parent).is_throttled; // 17
            waiting = goes_on.then(|| self.waiting(slot, budget));
        }
        let mut group = GroupId::ROOT;
        loop {
            let next = self.group(group).next;
            if next == NIL {
                return None;
            }
            match self.entities.at(next).group {
                Some(below) => group = below,
                None => return Some(Leaf(next)),
            }
        }
    }

    /// Whether `leaf`, which waits, would be next if the queue in service went idle: the cheap test of wfq.13, to which the
    /// policy adds its own.
    pub fn would_preempt(&mut self, leaf: Leaf) -> bool {
        self.leaf(leaf).state == State::Active && self.next_if_idle() == Some(leaf)
    }

    /// wfq.6 and wfq.10, tried: a group in service as it would wait with `budget`.
    fn waiting(&self, slot: u32, budget: u32) -> WaitingTags {
        let mut entity = *self.entities.at(slot);
        entity.start += entity.moved(entity.service);
        let finish = entity.new_finish(budget, self.tree_of(slot).time);
        WaitingTags { slot, class: entity.class, start: entity.start, finish, budget }
    }

    /// wfq.9, with one more waiting: which would be next, and its budget.
    fn next_with(&self, group: GroupId, waiting: Option<WaitingTags>) -> (u32, u32) {
        for class in PriorityClass::ALL {
            let tree = &self.group(group).trees[class as usize];
            let more = waiting.filter(|waiting| waiting.class == class);
            let least = tree.active.least(&self.entities).min(more.map_or(Tag::MAX, |more| more.start));
            if least == Tag::MAX {
                continue;
            }
            let time = tree.time.max(least);
            let first = tree.active.eligible(&self.entities, time);
            return match more {
                Some(more) if more.start <= time && (first == NIL || more.finish < self.entities.at(first).finish) => {
                    (more.slot, more.budget)
                }
                _ => (first, self.entities.at(first).budget),
            };
        }
        (NIL, 0)
    }
}
