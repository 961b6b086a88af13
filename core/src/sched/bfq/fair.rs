//! The fair queue: hierarchical B-WF2Q+, who is served next and what it is charged.
//!
//! An *entity* is a queue (a leaf) or a group. It has a weight w, a budget B in sectors, a start tag S, a finish tag F, and
//! the service of its present slot. A group has a *service tree* for each class of its children: a virtual time V, a sum of
//! weights W, the active set (who waits) and the idle set (who does not, but had more than its share: F > V). A *slot* is
//! one path from the root to a leaf being in service.
//!
//!  1. Serving s sectors: at every level of the path, service += s and V += s ÷ W.
//!  2. Who waits has F = S + B ÷ w: by its budget, not by a request.
//!  3. Who is activated and forgotten: S = V, and w joins W.
//!  4. Who is activated and in the idle set: S = max(V, F); its weight is in W still.
//!  5. Who comes back in time ([`Arrival::InTime`]): as 3 and 4 with its old F, if less, in place of V, so that it loses
//!     nothing by the hole; if its new F is still less than V, both tags are moved up by V − F, of a raised queue by
//!     (V − F) ÷ coefficient, so that nobody saves up credit.
//!  6. Who still waits when its slot ends: S += service ÷ w (what it was given, not its budget), then rule 2.
//!  7. Who does not: F = S + service ÷ w; with F > V it goes to the idle set, otherwise it is forgotten.
//!  8. A step of service forgets at most one idle entity, the one with the least F, if F ≤ V: its weight leaves W. When
//!     nobody waits nor is in service and all of the idle set has F ≤ V, V becomes the greatest of these F.
//!  9. Next is the entity with the least F among those with S ≤ V; of equals, who came first. If there is none, V jumps to
//!     the least S.
//! 10. A group's budget is that of the child it would serve next. When that changes, so do its F and place, and so on
//!     upwards.
//! 11. A new weight holds at once, and exactly: lead and lag are kept in *sectors*. S (or F, of the idle) moves so that
//!     w·(S − V) is what it was. Linux changes the weight at the next requeue and leaves S, so what an entity is ahead or
//!     behind is multiplied with its weight. A new class or group ends the slot, if there is one; the entity takes its lead
//!     along and leaves its lag behind.
//! 12. Classes are strict, the real-time before the best-effort before the idle; but an idle tree where somebody waits and
//!     that was passed over for 200 ms is served next, once; then somebody else is. Linux looks at the 200 ms alone: a group
//!     that is served less often than that then serves nobody but its idle class. Groups are best-effort.
//! 13. What would be served next is known for every group that is not in service; for the path in service it is worked out
//!     when asked ([`Fair::next_if_idle`]).
//! 14. *Added.* Who lags (S < V) and waits with a smaller budget than before is not due at S + B ÷ w, perhaps long past, but
//!     at V + B ÷ w, later slots following at its rate, and nothing later than it was due before (`tags::Promise`).
//!     By rule 10 alone a thousand light groups whose next child changes would all be overdue at once, and everybody else
//!     would wait for the sum of their budgets.
//! 15. *Added.* Who leaves for good with a lead, or comes back (5) with a lag, in sectors, leaves as much as a debt of the
//!     tree: V rests until it was served. In the idle set the weight of the one would have slowed V down for as long, and
//!     that of the other, had it been there. Without the debt V runs ahead of everybody by every recovered hole, and rule 5,
//!     which measures credit against V, takes away what it should give. A jump (9) ends all debts.
//!
//! # The bound
//! Let B̂ᵢ be the largest budget of sibling i, B̂ that of all of them, and nobody be served beyond the budget of its slot. Its
//! position is P = S + service ÷ w; its lead P − V. While i waits or is in service, and V does not jump,
//!
//!   −(B̂ᵢ ÷ wᵢ + B̂ ÷ W)  ≤  Pᵢ − V  ≤  B̂ᵢ ÷ wᵢ · (1 − wᵢ ÷ W).
//!
//! *Lead.* A slot begins with S ≤ V (9). It moves P by s ÷ wᵢ, s ≤ B̂ᵢ, and V by s ÷ W (1). Between slots only V moves.
//!
//! *Lag.* F ≤ P + B̂ᵢ ÷ wᵢ (2, and 14: what was due before was at most that after an S that was no greater). So it is enough
//! that whoever is due at θ is served before V > θ + B̂ ÷ W. Let the last slot that began with F > θ, or the last jump, be at
//! V = t. Whoever then had F ≤ θ was not eligible, so S ≥ t; it gets at most w·(θ − t) in slots with F ≤ θ, as each of them
//! has S + B ÷ w ≤ F. Whoever had F > θ and S < t, and has F ≤ θ later, got there by 14, at a V ≥ t, and is due from then on
//! as if it had started at that V: again at most w·(θ − t). Weights join W when S ≥ V (3, 4) and leave it when P ≤ V (8), or
//! else there is a debt (15) that makes up for it. So the slots with F ≤ θ ask for no more than the ∫W dV from t to θ that there is, of which the
//! slot that began at t took B̂ at most; what is left when V = θ is at most B̂, and is served before anything else.
//!
//! *Pairs.* V is the same for siblings, and its jumps too. Over any interval in which i and j are backlogged, the service ÷
//! weight of the two differs by at most the sum of both ranges:
//!
//!   2·B̂ᵢ ÷ wᵢ + 2·B̂ⱼ ÷ wⱼ + (2·B̂ − B̂ᵢ − B̂ⱼ) ÷ W,
//!
//! which is the worst-case fair index of WF2Q+ with budgets for packets, for each of them. It holds at every level, since a
//! level's V counts only that level's service, and for every class. Where W changes, W is the least there was: no less than
//! wᵢ + wⱼ, and for the last term wᵢ and the least other weight. To the lag of the others add, ÷ W:
//! service beyond a budget, by its excess, at most once for each sibling at a time; service outside of slots
//! ([`Fair::charge`]), by its amount. A weight that changes scales what its owner is ahead or behind in sectors to the new weight.
//!
//! # Cost
//! Every operation is O(depth · log n). An entity is 128 bytes, two cache lines, of which a search reads one. Nothing is
//! allocated except by adding queues and groups; nothing recurses.

mod change;
mod entity;
#[cfg(test)]
mod proof;
mod tags;
mod tree;
mod view;

use crate::time::ms;
use crate::{Duration, GroupId, Instant, PriorityClass};

pub use entity::Fair;
use entity::{Entity, ServiceTree, State};
use tags::{Tag, length};
use tree::NIL;

/// A queue of the fair queue, from [`Fair::add_queue`] until [`Fair::remove_queue`]; then the number is given out again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Leaf(pub u32);

/// How a queue becomes backlogged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It has been away.
    New,
    /// It left because it ran empty, with budget left and nobody waiting for it, and is back in time (rule 5).
    InTime {
        /// By how much its weight is raised; 1 if it is not.
        coefficient: u32,
    },
}

/// The longest that an idle class is passed over (rule 12).
pub const IDLE_CLASS_TIMEOUT: Duration = ms(200);

impl Fair {
    /// Tells that an idle queue is backlogged, with `budget` sectors for its next slot.
    ///
    /// # Panics
    /// It is backlogged already, or the budget is 0.
    pub fn activate(&mut self, leaf: Leaf, budget: u32, arrival: Arrival) {
        assert!(budget > 0, "the budget of queue {} is 0", leaf.0);
        let entity = self.leaf(leaf);
        assert!(!entity.state.is_backlogged(), "queue {} is backlogged already", leaf.0);
        self.count(leaf, true);
        self.wake(leaf.0, budget, arrival);
        let in_time = !matches!(arrival, Arrival::New);
        self.ascend(self.entities[leaf.0 as usize].parent, in_time);
    }

    /// Changes the budget of the next slot of a waiting queue.
    ///
    /// Of the queue in service, the new budget is that of the present slot, whose place in the order is not changed by it;
    /// of an idle queue nothing is changed.
    pub fn set_budget(&mut self, leaf: Leaf, budget: u32) {
        assert!(budget > 0, "the budget of queue {} is 0", leaf.0);
        match self.leaf(leaf).state {
            State::Idle | State::Forgotten => {}
            State::InService => self.entities[leaf.0 as usize].budget = budget,
            State::Active => {
                self.rebudget(leaf.0, budget);
                self.ascend(self.entities[leaf.0 as usize].parent, false);
            }
        }
    }

    /// Begins the slot of whoever is next and says who it is; `None` if nobody waits.
    ///
    /// # Panics
    /// A slot has not ended ([`Fair::expire`]).
    pub fn select(&mut self, now: Instant) -> Option<Leaf> {
        assert!(self.in_service == NIL, "queue {} is in service", self.in_service);
        let mut group = GroupId::ROOT;
        if self.group(group).next == NIL {
            return None;
        }
        loop {
            let slot = self.choose(group, now);
            let class = self.entities[slot as usize].class;
            let tree = &mut self.groups[usize::from(group.0)].trees[class as usize];
            tree.jump(tree.active.least(&self.nodes));
            tree.active.remove(&mut self.nodes, slot);
            self.group_mut(group).in_service = slot;
            let entity = &mut self.entities[slot as usize];
            entity.state = State::InService;
            entity.service = 0;
            match entity.group {
                Some(below) => group = below,
                None => {
                    self.in_service = slot;
                    return Some(Leaf(slot));
                }
            }
        }
    }

    /// Rules 9, 12 and 13: the child of `group` that is served next, somebody waiting.
    fn choose(&mut self, group: GroupId, now: Instant) -> u32 {
        let next = self.group(group).next;
        let class = self.entities[next as usize].class;
        let Self { groups, nodes, .. } = self;
        let group = &mut groups[usize::from(group.0)];
        let idle = &group.trees[PriorityClass::Idle as usize];
        if idle.active.is_empty() || class == PriorityClass::Idle {
            (group.idle_looked_at, group.idle_passed_over) = (now, false);
            return next;
        }
        if group.idle_passed_over && now.since(group.idle_looked_at) >= IDLE_CLASS_TIMEOUT {
            (group.idle_looked_at, group.idle_passed_over) = (now, false);
            return idle.pick(nodes);
        }
        group.idle_passed_over = true;
        next
    }

    /// Rule 1: charges the queue in service.
    ///
    /// # Panics
    /// No queue is in service.
    pub fn serve(&mut self, sectors: u64) {
        assert!(self.in_service != NIL, "{sectors} sectors were served, and no queue is in service");
        self.serve_from(self.in_service, sectors);
    }

    /// Charges the entity `slot` and all above it, which are in service.
    fn serve_from(&mut self, mut slot: u32, sectors: u64) {
        while slot != NIL {
            let entity = &mut self.entities[slot as usize];
            entity.service += sectors;
            let (class, parent) = (entity.class, entity.parent);
            self.advance(parent, class, sectors);
            slot = self.group(parent).entity;
        }
    }

    /// Rules 1, 8 and 15: V moves by `sectors`, and one who is not ahead any more is forgotten.
    #[inline]
    fn advance(&mut self, group: GroupId, class: PriorityClass, sectors: u64) {
        let tree = &mut self.groups[usize::from(group.0)].trees[class as usize];
        tree.advance(sectors);
        let first = tree.idle.first();
        if first != NIL && self.nodes.at(first).finish <= tree.time {
            tree.idle.remove(&mut self.nodes, first);
            let entity = &mut self.entities[first as usize];
            tree.remove_weight(entity.weight);
            entity.state = State::Forgotten;
        }
    }

    /// Ends the slot. `budget` is that of the queue's next slot if it is backlogged still, and `None` if it is not.
    ///
    /// # Panics
    /// No queue is in service, or the budget is 0.
    pub fn expire(&mut self, budget: Option<u32>) {
        let mut slot = self.in_service;
        assert!(slot != NIL, "a slot ends, and no queue is in service");
        assert!(budget != Some(0), "the budget of queue {slot} is 0");
        if budget.is_none() {
            self.count(Leaf(slot), false);
        }
        self.in_service = NIL;
        let mut budget = budget;
        while slot != NIL {
            let entity = &mut self.entities[slot as usize];
            let (service, parent) = (core::mem::take(&mut entity.service), entity.parent);
            self.nodes.at_mut(slot).start += entity.moved(service);
            self.group_mut(parent).in_service = NIL;
            match budget {
                Some(budget) => self.wait(slot, budget), // 6
                None => self.rest(slot),                 // 7
            }
            self.refresh(parent);
            budget = self.next_budget(parent); // 10
            slot = self.group(parent).entity;
        }
    }

    /// Charges a queue for service outside of a slot, such as a flush: its tags, and those of all above it, move as if it
    /// had been served, whether it is in service, waits or is idle.
    pub fn charge(&mut self, leaf: Leaf, sectors: u64) {
        let _ = self.leaf(leaf);
        let mut slot = leaf.0;
        while slot != NIL {
            let Entity { state, class, parent, budget, .. } = self.entities[slot as usize];
            match state {
                State::InService => return self.serve_from(slot, sectors), // So is all above.
                State::Active => {
                    self.take_out(slot);
                    self.advance(parent, class, sectors);
                    self.nodes.at_mut(slot).start += self.entities[slot as usize].moved(sectors);
                    // Below, the next child may have changed, or even become the only one.
                    let below = self.entities[slot as usize].group;
                    let budget = below.and_then(|below| self.next_budget(below)).unwrap_or(budget);
                    self.wait(slot, budget);
                }
                State::Idle | State::Forgotten => {
                    let start = self.join(slot, None); // 3, 4
                    self.advance(parent, class, sectors);
                    self.nodes.at_mut(slot).start = start + self.entities[slot as usize].moved(sectors);
                    self.rest(slot); // 7
                }
            }
            if self.group(parent).in_service == NIL {
                self.refresh(parent);
            }
            slot = self.group(parent).entity;
        }
    }

    /// Rules 3 to 5, then 2: makes an idle or forgotten entity wait.
    fn wake(&mut self, slot: u32, budget: u32, arrival: Arrival) {
        let now = self.tree_of(slot).time;
        let old_finish = self.nodes.at(slot).finish;
        let hole = match arrival {
            Arrival::InTime { coefficient } if old_finish < now => Some(coefficient.max(1)),
            Arrival::InTime { .. } | Arrival::New => None,
        };
        self.nodes.at_mut(slot).start = self.join(slot, hole.map(|_| old_finish));
        if let Some(coefficient) = hole {
            let weight = self.entities[slot as usize].weight;
            let (tree, nodes) = self.tree_and_nodes(slot);
            let node = nodes.at_mut(slot);
            let finish = node.start + length(budget, weight);
            node.start += now.saturating_sub(finish) / Tag::from(coefficient);
            tree.debt += (now - node.start) * Tag::from(weight); // 15
        }
        // It was not due at any time.
        self.nodes.at_mut(slot).finish = 0;
        self.wait(slot, budget);
    }

    /// Rules 3 and 4: counts an idle or forgotten entity in W, out of both sets, and says what its S is; `least` is the least
    /// that it can be, if that is not V.
    fn join(&mut self, slot: u32, least: Option<Tag>) -> Tag {
        let finish = self.nodes.at(slot).finish;
        let Entity { state, weight, .. } = self.entities[slot as usize];
        let (tree, nodes) = self.tree_and_nodes(slot);
        let least = least.unwrap_or(tree.time);
        if state == State::Idle {
            tree.idle.remove(nodes, slot);
            if finish >= least {
                return finish;
            }
        } else {
            tree.add_weight(weight);
        }
        self.entities[slot as usize].drop_carry();
        least
    }

    /// Rules 2 and 14: puts an entity, which is in W and in neither set, in the active set with the S that it has.
    fn wait(&mut self, slot: u32, budget: u32) {
        let now = self.tree_of(slot).time;
        let entity = &mut self.entities[slot as usize];
        entity.budget = budget;
        entity.state = State::Active;
        let length = length(budget, entity.weight);
        let node = self.nodes.at_mut(slot);
        node.finish = entity.promise.finish(node.start, length, now, node.finish);
        let (tree, nodes) = self.tree_and_nodes(slot);
        tree.active.insert(nodes, slot);
    }

    /// Rule 7: puts an entity, which is in W and in neither set, in the idle set or forgets it, with S for its F.
    fn rest(&mut self, slot: u32) {
        let finish = self.nodes.at(slot).start;
        self.nodes.at_mut(slot).finish = finish;
        let weight = self.entities[slot as usize].weight;
        let (tree, nodes) = self.tree_and_nodes(slot);
        let ahead = finish > tree.time;
        if ahead {
            tree.idle.insert(nodes, slot);
        } else {
            tree.remove_weight(weight);
        }
        let entity = &mut self.entities[slot as usize];
        entity.state = if ahead { State::Idle } else { State::Forgotten };
        let (parent, class) = (entity.parent, entity.class);
        self.rest_tree(parent, class);
    }

    /// Rule 8, second half: where nobody waits nor is in service, V may be what the last of the idle has.
    fn rest_tree(&mut self, group: GroupId, class: PriorityClass) {
        let in_service = self.group(group).in_service;
        let is_served = in_service != NIL && self.entities[in_service as usize].class == class;
        let Self { groups, nodes, .. } = self;
        let tree = &mut groups[usize::from(group.0)].trees[class as usize];
        if is_served || !tree.active.is_empty() {
            return;
        }
        tree.debt = 0;
        let last = tree.idle.last(nodes);
        if last != NIL && nodes.at(last).finish <= tree.time {
            tree.time = nodes.at(last).finish;
        }
    }

    /// Gives a waiting entity another budget and the place that goes with it.
    fn rebudget(&mut self, slot: u32, budget: u32) {
        self.take_out(slot);
        self.wait(slot, budget);
    }

    /// Takes a waiting entity out of the active set; the caller puts it somewhere.
    fn take_out(&mut self, slot: u32) {
        let (tree, nodes) = self.tree_and_nodes(slot);
        tree.active.remove(nodes, slot);
    }

    /// Rule 10: the children of `group` changed, and so may all above.
    fn ascend(&mut self, mut group: GroupId, in_time: bool) {
        loop {
            // What is in service is settled when its slot ends.
            if self.group(group).in_service != NIL {
                return;
            }
            self.refresh(group);
            let budget = self.next_budget(group);
            let slot = self.group(group).entity;
            if slot == NIL {
                return;
            }
            let Entity { state, budget: before, parent, .. } = self.entities[slot as usize];
            match (state, budget) {
                (State::InService, _) => unreachable!("group {} is in service and none of its children", group.0),
                (State::Active, Some(budget)) if budget == before => return,
                (State::Active, Some(budget)) => self.rebudget(slot, budget),
                (State::Active, None) => {
                    self.take_out(slot);
                    self.rest(slot);
                }
                (State::Idle | State::Forgotten, None) => return,
                (State::Idle | State::Forgotten, Some(budget)) => {
                    let arrival = if in_time { Arrival::InTime { coefficient: 1 } } else { Arrival::New };
                    self.wake(slot, budget, arrival);
                }
            }
            group = parent;
        }
    }

    /// Rules 9 and 12, without the 200 ms: finds out who is next in a group that is not in service.
    fn refresh(&mut self, group: GroupId) {
        let Self { groups, nodes, .. } = self;
        let group = &mut groups[usize::from(group.0)];
        group.next = group.trees.iter().find(|tree| !tree.active.is_empty()).map_or(NIL, |tree| tree.pick(nodes));
    }

    /// The budget of the next child of `group`; `None` if no child waits.
    fn next_budget(&self, group: GroupId) -> Option<u32> {
        let next = self.group(group).next;
        (next != NIL).then(|| self.entities[next as usize].budget)
    }
}

impl ServiceTree {
    /// Rule 9: who would be next, and [`NIL`] if nobody waits.
    #[inline]
    fn pick(&self, nodes: &tree::Nodes) -> u32 {
        self.active.eligible(nodes, self.time.max(self.active.least(nodes)))
    }
}
