//! The fair queue: hierarchical B-WF2Q+. It says which queue is served next, and charges it for its service.
//!
//! Many queues want one device, each with a weight, and their requests differ in size. Counting what each has had, ÷ weight, and serving
//! the least would do, but for queues that come and go: one that was away for a minute would then have the device for itself for as long.
//! So the tree keeps a clock, the virtual time V, that moves by the service ÷ the sum of the weights: it is where a queue would be that
//! always had exactly its share. A queue starts at V when it arrives. Each slot of service has a start tag S, where the queue is, and a
//! finish tag F, where it will be when its budget is used up. Only a queue that is not ahead of its share (S ≤ V) is served, and of those
//! the one that finishes first (least F).
//!
//! *Example.* Queues a and b of weight 1 and 3 always wait, with budgets of 12 sectors. At V = 0 their F are 12 and 4: b goes
//! first. V is then 12 ÷ 4 = 3, and b has S = 4: it is ahead, so a is next. V is 6, a has S = 12, and b is served twice, which
//! makes V 9 and 12. Both are at 12 now, b having been served three times and a once: b a b b, and so on for ever.
//!
//! An *entity* is a queue (a leaf) or a group. It has a weight w, a budget B in sectors, a start tag S, a finish tag F, and
//! the service of its present slot. A group has a *service tree* for each class of its children: a virtual time V, a sum of
//! weights W, the active set (entities that wait) and the idle set (those that do not, but had more than their share: F > V).
//! An entity in neither set that is not in service is *forgotten*. A *slot* is one path from the root to a leaf being in service.
//!
//! wfq.1   Serving s sectors: at every level of the path, service += s and V += s ÷ W.
//! wfq.2   An entity that waits has F = S + B ÷ w: by its budget, not by a request.
//! wfq.3   A forgotten entity arrives: S = V, and w joins W.
//! wfq.4   An entity of the idle set arrives: S = max(V, F); its weight is in W still.
//! wfq.5   An entity comes back in time ([`Arrival::InTime`]): as wfq.3 and wfq.4, with its old F, if less, in place of V, so
//!         that it loses nothing by the hole. If its new F is still less than V, both tags are moved up by V − F, or those of
//!         a weight-raised queue by (V − F) ÷ coefficient, so that no entity saves up credit.
//! wfq.6   The slot of an entity that still waits ends: S += service ÷ w (what it was given, not its budget), then wfq.2.
//! wfq.7   The slot of an entity that does not wait ends: F = S + service ÷ w. With F > V it goes to the idle set, otherwise it
//!         is forgotten.
//! wfq.8   A step of service forgets at most one idle entity, the one with the least F, if F ≤ V: its weight leaves W. When no
//!         entity waits or is in service and all of the idle set has F ≤ V, V becomes the greatest of these F.
//! wfq.9   Next is the entity with the least F among those with S ≤ V; of equals, the one that came first. If there is none, V
//!         jumps to the least S.
//! wfq.10  A group's budget is that of the child it would serve next. When that changes, so do its F and place, and so on
//!         upwards.
//! wfq.11  A new weight holds at once, and exactly: lead and lag are kept in *sectors*. S (or F, of an idle entity) moves so that w·(S − V)
//!         is unchanged. Linux changes the weight at the next requeue and leaves S, so what an entity is ahead or behind is multiplied with
//!         its weight. A new class or group ends the slot, if there is one; the entity takes its lead along and leaves its lag behind.
//! wfq.12  Classes are strict, the real-time before the best-effort before the idle. But an idle tree with a waiting entity
//!         that was passed over for 200 ms is served next, once; then another class is. Linux looks at the 200 ms alone: a
//!         group that is served less often than that then serves nothing but its idle class. Groups are best-effort.
//! wfq.13  The next one to be served is known for every group that is not in service; for the path in service it is worked out
//!         when asked ([`FairQueue::next_if_idle`]).
//! wfq.14  *Added.* By wfq.10 alone a thousand light groups whose next child changes would all be overdue at once, and every
//!         other entity would wait for the sum of their budgets. So an entity that lags (S < V) and waits with a smaller budget
//!         than before is not due at S + B ÷ w, perhaps long past, but at V + B ÷ w; its later slots follow at its rate, and
//!         none is later than it was due before (`tags::Promise`).
//! wfq.15  *Added.* Without this rule V would run ahead of all by every recovered hole, and wfq.5, which measures credit
//!         against V, would take away what it should give. An entity that leaves for good with a lead, or comes back (wfq.5)
//!         with a lag, in sectors, leaves as much as a debt of the tree: V rests until the debt was served. In the idle set the
//!         weight of the one would have slowed V down for as long, and that of the other, had it been there. A jump (wfq.9)
//!         ends all debts. An entity that leaves, or runs empty, with a lag takes as much of the debt along: what it asked for
//!         is not to be served, and it brings its lag again.
//! wfq.16  *Added.* An entity that had requests under way while it had nothing to ask ([`Arrival::Present`]) comes back as wfq.3 and wfq.4
//!         with its old F in place of V, but no further behind V than its credit ÷ w, and with the debt of wfq.15 for that. The service
//!         that it missed is made up for, as far as its requests under way could have used it.
//! wfq.17  *Added.* A group may be throttled ([`FairQueue::throttle`]), from the end of its slot on: its children wait, and the
//!         group does not, as if they did not either (wfq.7). When it is unthrottled it arrives, if something waits in it.
//!         While it is throttled V of its own children stands still, so among them nothing changes.
//!
//! # The bound
//! Let B̂ᵢ be the largest budget of sibling i, B̂ that of all of them, and no entity be served beyond the budget of its slot. The
//! position of i is P = S + service ÷ w; its lead P − V. While i waits or is in service, and V does not jump,
//!
//!   −(B̂ᵢ ÷ wᵢ + B̂ ÷ W)  ≤  Pᵢ − V  ≤  B̂ᵢ ÷ wᵢ · (1 − wᵢ ÷ W).
//!
//! *Lead.* A slot begins with S ≤ V (wfq.9). It moves P by s ÷ wᵢ, s ≤ B̂ᵢ, and V by s ÷ W (wfq.1). Between slots only V moves.
//!
//! *Lag.* F ≤ P + B̂ᵢ ÷ wᵢ (wfq.2, and wfq.14: what was due before was at most that after an S that was no greater). So it is enough that
//! an entity that is due at θ is served before V > θ + B̂ ÷ W. Let the last slot that began with F > θ, or the last jump, be at V = t. An
//! entity that then had F ≤ θ was not eligible, so S ≥ t; it gets at most w·(θ − t) in slots with F ≤ θ, as each of them has S + B ÷ w ≤ F.
//! An entity that had F > θ and S < t, and has F ≤ θ later, got there by wfq.14, at a V ≥ t, and is due from then on as if it had started at
//! that V: again at most w·(θ − t). Weights join W when S ≥ V (wfq.3, wfq.4) and leave it when P ≤ V (wfq.8), or else there is a debt
//! (wfq.15) that makes up for it. So the slots with F ≤ θ ask for no more than the available ∫W dV from t to θ; the slot that began at t
//! took at most B̂ of it; what is left when V = θ is at most B̂, and is served before anything else.
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
//! ([`FairQueue::charge`]), by its amount. A weight that changes scales what its owner is ahead or behind in sectors to the new
//! weight.
//!
//! *Credit* (wfq.16). Let Cᵢ be the largest credit with which i, or a queue below it, comes back. i begins with S = V₀ − c ÷ wᵢ at
//! most so far behind, and the debt grows by c. Slots with F ≤ θ, for any θ ≥ V₀, ask for c more and are given c more, while
//! V rests: so the lag of each sibling against V is bounded as before. That of i is bounded as before from its first slot
//! with F ≥ V₀ on; the slots before that are due at V₀, hence served before V > V₀ + B̂ ÷ W, and i lags by no more than
//! Cᵢ ÷ wᵢ + B̂ ÷ W until then. So for i, the lag has max(B̂ᵢ, Cᵢ) in place of B̂ᵢ, and that of a pair for each of the two
//!
//!   (B̂ᵢ + max(B̂ᵢ, Cᵢ)) ÷ wᵢ + (B̂ − B̂ᵢ) ÷ W.
//!
//! Against a V that did not rest, as it would be without i's credit, each sibling lags further by the sum of the credits that are not made
//! up for yet, ÷ W. It is not more: a credit is at most the service that i missed (old F to V). A throttled group (wfq.17) neither waits
//! nor is in service, so nothing is said of it until it is unthrottled; of its children, what is said above holds throughout.
//!
//! # Cost
//! Every operation is O(depth · log n). An entity is 128 bytes, two cache lines; a search reads one of them. Nothing is allocated
//! except by adding queues and groups; nothing recurses.

mod change;
mod entity;
#[cfg(test)]
#[path = "../../tests/fair_queue/proof.rs"]
mod proof;
mod tags;
mod tree;
mod view;

use crate::time::ms;
use crate::{Duration, GroupId, Instant, PriorityClass};

pub use entity::FairQueue;
use entity::{Entities, Entity, GroupRow, ServiceTree, State};
use tags::{Tag, length};
use tree::NIL;

/// A queue of the fair queue, from [`FairQueue::add_queue`] until [`FairQueue::remove_queue`]; then the number is given out again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Leaf(pub u32);

/// How a queue becomes backlogged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It has been away.
    New,
    /// It left because it ran empty, with budget left and nobody waiting for it, and is back in time (wfq.5).
    InTime {
        /// By how much its weight is raised; 1 if it is not.
        coefficient: u32,
    },
    /// It was not away: it had requests under way, and nothing more to ask for a moment (wfq.16).
    Present {
        /// The most of the missed service that it is given back.
        credit: u32,
    },
}

impl Arrival {
    /// How the groups above arrive that are not backlogged yet: raised is the queue alone.
    const fn above(self) -> Self {
        match self {
            Self::InTime { .. } => Self::InTime { coefficient: 1 },
            Self::Present { .. } | Self::New => self,
        }
    }
}

/// The longest that an idle class is passed over (wfq.12): the kernel's `BFQ_CL_IDLE_TIMEOUT`.
pub const IDLE_CLASS_TIMEOUT: Duration = ms(200);

impl FairQueue {
    /// Tells that an idle queue is backlogged, with `budget` sectors for its next slot.
    ///
    /// # Panics
    /// It is backlogged already, or the budget is 0.
    pub fn activate(&mut self, leaf: Leaf, budget: u32, arrival: Arrival) {
        assert!(budget > 0, "the budget of queue {} is 0", leaf.0);
        let entity = self.leaf(leaf);
        assert!(!entity.state.is_backlogged(), "queue {} is backlogged already", leaf.0);
        self.settle();
        self.wake(leaf.0, budget, arrival);
        self.ascend(leaf.0, arrival.above());
    }

    /// Changes the budget of the next slot of a waiting queue.
    ///
    /// Of the queue in service, the new budget is that of the present slot, whose place in the order is not changed by it;
    /// of an idle queue nothing is changed.
    pub fn set_budget(&mut self, leaf: Leaf, budget: u32) {
        assert!(budget > 0, "the budget of queue {} is 0", leaf.0);
        match self.leaf(leaf).state {
            State::Idle | State::Forgotten => {}
            State::InService => self.entities.at_mut(leaf.0).budget = budget,
            State::Active => {
                self.settle();
                self.rebudget(leaf.0, budget);
                self.ascend(leaf.0, Arrival::New);
            }
        }
    }

    /// Begins the slot of the queue that is next and says which it is; `None` if none waits.
    ///
    /// # Panics
    /// A slot has not ended ([`FairQueue::expire`]).
    pub fn select(&mut self, now: Instant) -> Option<Leaf> {
        assert!(self.in_service == NIL, "queue {} is in service", self.in_service);
        let Self { entities, groups, .. } = self;
        let mut group = &mut groups[usize::from(GroupId::ROOT.0)];
        if group.next == NIL {
            return None;
        }
        loop {
            let slot = group.choose(entities, now);
            group.in_service = slot;
            let Entity { class, start, .. } = *entities.at(slot);
            let tree = &mut group.trees[class as usize];
            tree.jump(start); // If it is not eligible, nobody is, and its S is the least.
            tree.active.remove(entities, slot);
            let entity = entities.at_mut(slot);
            entity.state = State::InService;
            entity.service = 0;
            match entity.group {
                Some(below) => group = &mut groups[usize::from(below.0)],
                None => {
                    self.in_service = slot;
                    return Some(Leaf(slot));
                }
            }
        }
    }

    /// wfq.1: charges the queue in service.
    ///
    /// Between two calls that look at V nobody sees where it is, so what is served between them counts as one step.
    ///
    /// # Panics
    /// No queue is in service.
    #[inline]
    pub fn serve(&mut self, sectors: u64) {
        assert!(self.in_service != NIL, "{sectors} sectors were served, and no queue is in service");
        self.unsettled += sectors;
    }

    /// Brings V of the path in service up to date with the service.
    #[inline]
    fn settle(&mut self) {
        if self.unsettled > 0 {
            let sectors = core::mem::take(&mut self.unsettled);
            self.serve_from(self.in_service, sectors);
        }
    }

    /// Charges the entity `slot` and all above it, which are in service.
    fn serve_from(&mut self, mut slot: u32, sectors: u64) {
        let Self { entities, groups, .. } = self;
        while slot != NIL {
            let entity = entities.at_mut(slot);
            entity.service += sectors;
            let (class, parent) = (entity.class, entity.parent);
            let group = &mut groups[usize::from(parent.0)];
            group.trees[class as usize].serve(entities, sectors);
            slot = group.entity;
        }
    }

    /// Ends the slot. `budget` is that of the queue's next slot if it is backlogged still, and `None` if it is not.
    ///
    /// # Panics
    /// No queue is in service, or the budget is 0.
    pub fn expire(&mut self, mut budget: Option<u32>) {
        let mut slot = self.in_service;
        assert!(slot != NIL, "a slot ends, and no queue is in service");
        assert!(budget != Some(0), "the budget of queue {slot} is 0");
        self.in_service = NIL;
        let sectors = core::mem::take(&mut self.unsettled);
        let Self { entities, groups, .. } = self;
        while slot != NIL {
            let entity = entities.at_mut(slot);
            entity.start += entity.moved(entity.service + sectors);
            entity.service = 0;
            let (class, parent) = (entity.class, entity.parent);
            let group = &mut groups[usize::from(parent.0)];
            let tree = &mut group.trees[class as usize];
            group.in_service = NIL;
            if sectors > 0 {
                tree.serve(entities, sectors); // 1, as in `settle`
            }
            match budget {
                Some(budget) => tree.wait(entities, slot, budget), // 6
                None => {
                    tree.rest(entities, slot); // 7
                    tree.rest_all(entities);
                }
            }
            group.refresh(entities);
            budget = group.next_budget(entities); // 10
            slot = group.entity;
        }
    }

    /// Charges a queue for service outside of a slot, such as a flush: its tags, and those of all above it, move as if it
    /// had been served, whether it is in service, waits or is idle.
    pub fn charge(&mut self, leaf: Leaf, sectors: u64) {
        let _ = self.leaf(leaf);
        self.charge_from(leaf.0, sectors);
    }

    /// As [`FairQueue::charge`], for service that none of a group's queues is to pay for, but the group and all above it. The
    /// root pays nothing.
    ///
    /// # Panics
    /// There is no such group.
    pub fn charge_group(&mut self, group: GroupId, sectors: u64) {
        assert!(self.group(group).live, "group {} was removed", group.0);
        self.charge_from(self.group(group).entity, sectors);
    }

    fn charge_from(&mut self, mut slot: u32, sectors: u64) {
        self.settle();
        let mut budget = (slot != NIL).then(|| self.entities.at(slot).budget);
        while slot != NIL {
            let Self { entities, groups, .. } = self;
            let Entity { state, class, parent, .. } = *entities.at(slot);
            if state == State::InService {
                return self.serve_from(slot, sectors); // So is all above.
            }
            let group = &mut groups[usize::from(parent.0)];
            let tree = &mut group.trees[class as usize];
            if state == State::Active {
                tree.active.remove(entities, slot);
                tree.serve(entities, sectors);
            } else {
                tree.join(entities, slot, tree.time); // 3, 4
                tree.serve(entities, sectors);
            }
            let entity = entities.at_mut(slot);
            entity.start += entity.moved(sectors);
            match budget {
                // Of a group, the next child may have changed.
                Some(budget) if state == State::Active => tree.wait(entities, slot, budget),
                _ => tree.rest(entities, slot), // 7
            }
            self.rest_tree(parent, class);
            let Self { entities, groups, .. } = self;
            let group = &mut groups[usize::from(parent.0)];
            if group.in_service == NIL {
                group.refresh(entities);
            }
            budget = group.next_budget(entities);
            slot = group.entity;
        }
    }

    /// wfq.3 to wfq.5, then wfq.2: makes an idle or forgotten entity wait.
    #[inline(always)]
    fn wake(&mut self, slot: u32, budget: u32, arrival: Arrival) {
        let (tree, entities) = self.tree_and_entities(slot);
        let (now, old_finish) = (tree.time, entities.at(slot).finish);
        let least = match arrival {
            _ if old_finish >= now => now,
            Arrival::New => now,
            Arrival::InTime { .. } => old_finish,
            Arrival::Present { credit } => old_finish.max(now.saturating_sub(length(credit, entities.at(slot).weight))),
        };
        tree.join(entities, slot, least);
        let entity = entities.at_mut(slot);
        if least < now {
            if let Arrival::InTime { coefficient } = arrival {
                let finish = entity.start + length(budget, entity.weight);
                entity.start += now.saturating_sub(finish) / Tag::from(coefficient.max(1));
            }
            tree.debt += (now - entity.start) * Tag::from(entity.weight); // 15
        }
        // It was not due at any time.
        entity.finish = 0;
        tree.wait(entities, slot, budget);
    }

    /// wfq.8, second half, where an entity may be in service.
    fn rest_tree(&mut self, group: GroupId, class: PriorityClass) {
        let Self { groups, entities, .. } = self;
        let group = &mut groups[usize::from(group.0)];
        if group.in_service == NIL || entities.at(group.in_service).class != class {
            group.trees[class as usize].rest_all(entities);
        }
    }

    /// Gives a waiting entity another budget and the place that goes with it.
    fn rebudget(&mut self, slot: u32, budget: u32) {
        let (tree, entities) = self.tree_and_entities(slot);
        let finish = entities.at_mut(slot).new_finish(budget, tree.time);
        if tree.active.keeps_place(entities, slot, finish) {
            entities.at_mut(slot).finish = finish;
        } else {
            tree.active.remove(entities, slot);
            entities.at_mut(slot).finish = finish;
            tree.active.insert(entities, slot);
        }
    }

    /// wfq.10: `slot`, which waits, came or has new tags, or is not there any more; so all above may change.
    fn ascend(&mut self, mut slot: u32, arrival: Arrival) {
        loop {
            let Self { groups, entities, .. } = self;
            let group = &mut groups[usize::from(entities.at(slot).parent.0)];
            // The entity in service is settled when its slot ends.
            if group.in_service != NIL {
                return;
            }
            if !group.refresh_for(entities, slot) || group.entity == NIL {
                return;
            }
            let budget = group.next_budget(entities);
            slot = group.entity;
            let Entity { state, budget: before, parent, class, .. } = *entities.at(slot);
            match (state, budget) {
                (State::InService, _) => unreachable!("entity {slot} is in service and none of its children"),
                (State::Active, Some(budget)) if budget == before => return,
                (State::Active, Some(budget)) => self.rebudget(slot, budget),
                (State::Active, None) => {
                    let (tree, entities) = self.tree_and_entities(slot);
                    tree.active.remove(entities, slot);
                    tree.rest(entities, slot);
                    self.rest_tree(parent, class);
                }
                (State::Idle | State::Forgotten, None) => return,
                (State::Idle | State::Forgotten, Some(budget)) => self.wake(slot, budget, arrival),
            }
        }
    }
}

impl GroupRow {
    /// wfq.9, wfq.12 and wfq.13: the child that is served next, where one waits.
    #[inline]
    fn choose(&mut self, entities: &Entities, now: Instant) -> u32 {
        let idle = &self.trees[PriorityClass::Idle as usize];
        if idle.active.is_empty() || entities.at(self.next).class == PriorityClass::Idle {
            (self.idle_looked_at, self.idle_passed_over) = (now, false);
            return self.next;
        }
        if self.idle_passed_over && now.since(self.idle_looked_at) >= IDLE_CLASS_TIMEOUT {
            (self.idle_looked_at, self.idle_passed_over) = (now, false);
            return idle.pick(entities);
        }
        self.idle_passed_over = true;
        self.next
    }

    /// wfq.9 and wfq.12, without the 200 ms: finds out which is next, none being in service.
    #[inline(always)]
    fn refresh(&mut self, entities: &Entities) {
        for tree in &self.trees {
            if !tree.active.is_empty() {
                self.next = tree.pick(entities);
                return;
            }
        }
        self.next = NIL;
    }

    /// As [`GroupRow::refresh`] after a change of `slot` alone, V being what it was: often one comparison tells. Answers whether the
    /// budget of the next child may be another.
    #[inline]
    fn refresh_for(&mut self, entities: &Entities, slot: u32) -> bool {
        let before = self.next;
        if before == NIL || before == slot {
            self.refresh(entities);
            return true;
        }
        let (next, other) = (entities.at(before), entities.at(slot));
        let now = self.trees[next.class as usize].time;
        if other.state != State::Active || other.class < next.class || next.start > now {
            self.refresh(entities);
        } else if other.class == next.class && other.start <= now && other.finish < next.finish {
            self.next = slot;
        }
        self.next != before
    }

    /// The budget of the next child; `None` if no child waits, or the group is held back (17).
    #[inline]
    fn next_budget(&self, entities: &Entities) -> Option<u32> {
        (self.next != NIL && !self.is_throttled).then(|| entities.at(self.next).budget)
    }
}

impl ServiceTree {
    /// wfq.9: which would be next, and [`NIL`] if none waits.
    #[inline(always)]
    fn pick(&self, entities: &Entities) -> u32 {
        let found = self.active.eligible(entities, self.time);
        if found != NIL { found } else { self.active.eligible(entities, self.active.least(entities)) }
    }

    /// wfq.1 and wfq.8: V moves by `sectors`, and an entity that is not ahead any more is forgotten.
    #[inline(always)]
    fn serve(&mut self, entities: &mut Entities, sectors: u64) {
        self.advance(sectors);
        let first = self.idle.first;
        if first != NIL && entities.at(first).finish <= self.time {
            self.forget(entities, first);
        }
    }

    #[inline(never)]
    fn forget(&mut self, entities: &mut Entities, slot: u32) {
        self.idle.remove(entities, slot);
        let entity = entities.at_mut(slot);
        entity.state = State::Forgotten;
        self.remove_weight(entity.weight);
    }

    /// wfq.3 and wfq.4: counts an idle or forgotten entity in W, out of both sets, with the S that it then has, `least` or more.
    #[inline(always)]
    fn join(&mut self, entities: &mut Entities, slot: u32, least: Tag) {
        if entities.at(slot).state == State::Idle {
            self.idle.remove(entities, slot);
            let entity = entities.at_mut(slot);
            if entity.finish >= least {
                entity.start = entity.finish;
                return;
            }
        } else {
            self.add_weight(entities.at(slot).weight);
        }
        let entity = entities.at_mut(slot);
        entity.start = least;
        entity.drop_carry();
    }

    /// wfq.2 and wfq.14: puts an entity, which is in W and in neither set, in the active set with the S that it has.
    #[inline(always)]
    fn wait(&mut self, entities: &mut Entities, slot: u32, budget: u32) {
        let entity = entities.at_mut(slot);
        entity.state = State::Active;
        entity.finish = entity.new_finish(budget, self.time);
        self.active.insert(entities, slot);
    }

    /// wfq.7: puts an entity, which is in W and in neither set, in the idle set or forgets it, with S for its F.
    #[inline(always)]
    fn rest(&mut self, entities: &mut Entities, slot: u32) {
        let entity = entities.at_mut(slot);
        entity.finish = entity.start;
        if entity.finish > self.time {
            entity.state = State::Idle;
            self.idle.insert(entities, slot);
        } else {
            entity.state = State::Forgotten;
            let (weight, behind) = (entity.weight, self.time - entity.finish);
            self.remove_weight(weight);
            self.forgive(behind, weight);
        }
    }

    /// wfq.15: an entity leaves that lags.
    #[inline]
    pub(super) fn forgive(&mut self, behind: Tag, weight: u32) {
        if self.debt > 0 {
            self.debt = self.debt.saturating_sub(behind * Tag::from(weight));
        }
    }

    /// wfq.8, second half: where nobody waits, and nobody is in service, V may be what the last of the idle has.
    #[inline]
    fn rest_all(&mut self, entities: &Entities) {
        if !self.active.is_empty() {
            return;
        }
        self.debt = 0;
        let last = self.idle.last;
        if last != NIL && entities.at(last).finish <= self.time {
            self.time = entities.at(last).finish;
        }
    }
}

impl Entity {
    /// wfq.2 and wfq.14: takes a budget, and says what F it makes at V = `now`.
    #[inline]
    fn new_finish(&mut self, budget: u32, now: Tag) -> Tag {
        self.budget = budget;
        self.promise.finish(self.start, length(budget, self.weight), now, self.finish)
    }
}
