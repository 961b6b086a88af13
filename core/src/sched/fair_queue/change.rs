//! Changes at run time: weights, classes, groups, and the set of entities (wfq.11 and wfq.15).

use super::entity::{Entity, State, check_weight};
use super::tags::{Promise, Tag, rescaled};
use super::tree::NIL;
use super::{Arrival, FairQueue, Leaf};
use crate::{GroupId, PriorityClass};

/// The state that an entity takes along from one tree to another.
struct Baggage {
    backlogged: bool,
    /// Its position less V: a lead, or a lag of `behind`, one of them zero.
    ahead: Tag,
    behind: Tag,
}

impl FairQueue {
    /// Gives a queue another weight, effective at once and exactly (wfq.11). Raising is a weight like any other.
    ///
    /// # Panics
    /// The weight is not between 1 and [`FairQueue::WEIGHT_MAX`].
    pub fn set_queue_weight(&mut self, leaf: Leaf, weight: u32) {
        let _ = self.leaf(leaf);
        self.reweigh(leaf.0, weight);
    }

    /// Gives a group another weight; as [`FairQueue::set_queue_weight`]. That of the root has no meaning and stays.
    ///
    /// # Panics
    /// As there, or there is no such group.
    pub fn set_group_weight(&mut self, group: GroupId, weight: u32) {
        assert!(self.group(group).live, "group {} was removed", group.0);
        let slot = self.group(group).entity;
        if slot != NIL {
            self.reweigh(slot, weight);
        }
    }

    /// wfq.17: holds a group back, whatever waits in it, from the end of the present slot on.
    ///
    /// # Panics
    /// The group is the root, or waits: only a group in service, or without waiting requests, can be throttled.
    pub fn throttle(&mut self, group: GroupId) {
        let slot = self.group(group).entity;
        assert!(slot != NIL, "the root is throttled");
        let state = self.entities.at(slot).state;
        assert!(state != State::Active, "group {} is throttled while it waits for its slot", group.0);
        self.group_mut(group).is_throttled = true;
    }

    /// wfq.17: lets a group go on that was throttled; it arrives so if something waits in it. Of one that is not throttled, nothing
    /// is changed.
    pub fn unthrottle(&mut self, group: GroupId, arrival: Arrival) {
        if !core::mem::take(&mut self.group_mut(group).is_throttled) {
            return;
        }
        let row = self.group(group);
        let (slot, next) = (row.entity, row.next);
        if self.entities.at(slot).state.is_backlogged() || next == NIL {
            return; // Its slot lasts still, or nothing waits.
        }
        self.settle();
        let budget = self.entities.at(next).budget;
        self.wake(slot, budget, arrival);
        self.ascend(slot, arrival.above());
    }

    /// wfq.11.
    fn reweigh(&mut self, slot: u32, weight: u32) {
        check_weight(weight);
        self.settle();
        let (tree, entities) = self.tree_and_entities(slot);
        let (now, entity) = (tree.time, entities.at_mut(slot));
        let old = entity.weight;
        if weight == old {
            return;
        }
        entity.weight = weight;
        entity.drop_carry();
        let state = entity.state;
        if state == State::Forgotten {
            // It may come back with its lag (5, 16). A tag ahead of a V that was set back is no lead.
            if entity.finish < now {
                entity.finish = rescaled(entity.finish, now, old, weight);
            }
            return;
        }
        tree.remove_weight(old);
        tree.add_weight(weight);
        if state == State::Idle {
            tree.idle.remove(entities, slot);
            let entity = entities.at_mut(slot);
            // Not ahead any more, only not forgotten yet: nothing to keep.
            if entity.finish > now {
                entity.finish = rescaled(entity.finish, now, old, weight);
            }
            tree.idle.insert(entities, slot);
            return;
        }
        if state == State::Active {
            tree.active.remove(entities, slot);
        }
        let entity = entities.at_mut(slot);
        // Service in the present slot counts by the new weight, and comes out right: S − V is scaled, and the service is divided by the
        // weight when the slot ends.
        let start = rescaled(entity.start, now, old, weight);
        // The reference of the promise stays where it is.
        let late = (entity.start + entity.promise.late).saturating_sub(start);
        entity.promise = if late > 0 { Promise { late, ..entity.promise } } else { Promise::default() };
        entity.start = start;
        if state == State::Active {
            let budget = entity.budget;
            tree.wait(entities, slot, budget);
            self.ascend(slot, Arrival::New);
        }
    }

    /// Gives a queue another class. If it is in service, its slot ends and it waits.
    pub fn set_queue_class(&mut self, leaf: Leaf, class: PriorityClass) {
        let entity = self.leaf(leaf);
        if entity.class != class {
            self.relocate(leaf, entity.parent, class);
        }
    }

    /// Puts a queue in another group. If it is in service, its slot ends and it waits.
    ///
    /// # Panics
    /// There is no such group.
    pub fn move_queue(&mut self, leaf: Leaf, to: GroupId) {
        assert!(self.group(to).live, "group {} was removed", to.0);
        let entity = self.leaf(leaf);
        if entity.parent != to {
            self.relocate(leaf, to, entity.class);
        }
    }

    fn relocate(&mut self, leaf: Leaf, to: GroupId, class: PriorityClass) {
        let slot = leaf.0;
        self.end_slot_of(slot);
        let baggage = self.leave(slot);
        let from = self.entities.at(slot).parent;
        self.group_mut(from).children -= 1;
        self.group_mut(to).children += 1;
        let entity = self.entities.at_mut(slot);
        (entity.parent, entity.class) = (to, class);
        entity.promise = Promise::default();
        entity.drop_carry();
        let (budget, weight) = (entity.budget, entity.weight);
        let (tree, entities) = self.tree_and_entities(slot);
        let position = tree.time + baggage.ahead;
        let entity = entities.at_mut(slot);
        (entity.start, entity.finish) = (position, position.saturating_sub(baggage.behind));
        if baggage.backlogged {
            entity.finish = 0;
            tree.add_weight(weight);
            tree.wait(entities, slot, budget);
            self.ascend(slot, Arrival::New);
        } else if baggage.ahead > 0 {
            entity.state = State::Idle;
            tree.add_weight(weight);
            tree.idle.insert(entities, slot);
        }
    }

    /// Removes a queue, whatever it is doing; if it is in service, its slot ends.
    pub fn remove_queue(&mut self, leaf: Leaf) {
        let _ = self.leaf(leaf);
        self.remove_entity(leaf.0);
    }

    pub(super) fn remove_entity(&mut self, slot: u32) {
        self.end_slot_of(slot);
        let _ = self.leave(slot);
        self.free_entity(slot);
    }

    /// Ends the slot of an entity if it has one, or else brings V up to date.
    fn end_slot_of(&mut self, slot: u32) {
        self.settle();
        if self.in_service == slot {
            let budget = self.entities.at(slot).budget;
            self.expire(Some(budget));
        }
    }

    /// wfq.15: takes an entity, which is not in service, out of its tree for good.
    fn leave(&mut self, slot: u32) -> Baggage {
        let Entity { state, weight, parent, class, .. } = *self.entities.at(slot);
        let backlogged = state == State::Active;
        let (tree, entities) = self.tree_and_entities(slot);
        let position = match state {
            State::Active => {
                tree.active.remove(entities, slot);
                entities.at(slot).start
            }
            State::Idle => {
                tree.idle.remove(entities, slot);
                entities.at(slot).finish
            }
            State::Forgotten => entities.at(slot).finish,
            State::InService => unreachable!("the slot of entity {slot} has ended"),
        };
        let now = tree.time;
        let (mut ahead, behind) = (position.saturating_sub(now), now.saturating_sub(position));
        if state == State::Forgotten {
            // V may have been set back since (wfq.8): that is no lead.
            ahead = 0;
        } else {
            tree.remove_weight(weight);
            tree.debt += ahead * Tag::from(weight);
            if backlogged {
                tree.forgive(behind, weight);
            }
        }
        self.entities.at_mut(slot).state = State::Forgotten;
        self.rest_tree(parent, class);
        if backlogged {
            self.ascend(slot, Arrival::New);
        }
        Baggage { backlogged, ahead, behind }
    }
}
