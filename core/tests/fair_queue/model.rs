//! The dull model: the rules of [`super::super`] over plain vectors that are searched end to end.
//!
//! Nothing is remembered that can be found out: weight sums are added up, the next child is searched for, and after every
//! change all groups are looked through for one whose budget or state is not what its children say. Only the rounding of
//! tags is agreed with the real thing, so that all tags and picks can be compared.

use alloc::vec::Vec;

use super::super::Arrival;
use crate::{Instant, PriorityClass};

const ONE: u128 = 1 << 40;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Is {
    Forgotten,
    Idle,
    Waiting,
    Served,
}

#[derive(Clone, Debug)]
pub(super) struct Entity {
    pub(super) parent: usize,
    /// The group that it is.
    pub(super) group: Option<usize>,
    pub(super) class: usize,
    pub(super) weight: u128,
    pub(super) budget: u128,
    pub(super) start: u128,
    pub(super) finish: u128,
    pub(super) is: Is,
    pub(super) service: u128,
    promise: Option<(u128, u128)>,
    carry: u128,
    /// When it was put where it is.
    sequence: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) time: [u128; 3],
    pub(super) debt: [u128; 3],
    /// What the last division left over; nothing once W changed.
    carry: [u128; 3],
    /// The entity that it is.
    pub(super) slot: Option<usize>,
    pub(super) held: bool,
    looked: Instant,
    passed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    /// By the numbers that the real thing gives.
    pub(super) entities: Vec<Option<Entity>>,
    pub(super) groups: Vec<Option<Group>>,
    pub(super) served: Option<usize>,
    sequence: u64,
}

fn put<T>(list: &mut Vec<Option<T>>, at: usize, what: T) {
    while list.len() <= at {
        list.push(None);
    }
    assert!(list[at].is_none(), "{at} is in use");
    list[at] = Some(what);
}

/// Raised is a queue alone (wfq.5), not what is above it.
fn above(arrival: Arrival) -> Arrival {
    if let Arrival::InTime { .. } = arrival { Arrival::InTime { coefficient: 1 } } else { arrival }
}

fn up(sectors: u128, weight: u128) -> u128 {
    (sectors * ONE).div_ceil(weight)
}

impl Entity {
    fn step(&mut self, sectors: u128) {
        let dividend = sectors * ONE + self.carry;
        self.carry = dividend % self.weight;
        self.start += dividend / self.weight;
    }
}

impl Model {
    pub(super) fn new(origin: u128) -> Self {
        let mut model = Self { entities: Vec::new(), groups: Vec::new(), served: None, sequence: 0 };
        model.put_group(0, None, origin);
        model
    }

    fn put_group(&mut self, group: usize, slot: Option<usize>, origin: u128) {
        let (time, looked) = ([origin; 3], Instant::ZERO);
        let row = Group { time, debt: [0; 3], carry: [0; 3], slot, held: false, looked, passed: false };
        put(&mut self.groups, group, row);
    }

    pub(super) fn add(&mut self, slot: usize, parent: usize, class: usize, weight: u32, group: Option<(usize, u128)>) {
        let time = self.groups[parent].as_ref().unwrap().time[class];
        let entity = Entity {
            parent,
            group: group.map(|(group, _)| group),
            class,
            weight: u128::from(weight),
            budget: 0,
            start: time,
            finish: time,
            is: Is::Forgotten,
            service: 0,
            promise: None,
            carry: 0,
            sequence: 0,
        };
        put(&mut self.entities, slot, entity);
        if let Some((group, origin)) = group {
            self.put_group(group, Some(slot), origin);
        }
    }

    pub(super) fn e(&mut self, slot: usize) -> &mut Entity {
        self.entities[slot].as_mut().unwrap()
    }

    fn g(&mut self, group: usize) -> &mut Group {
        self.groups[group].as_mut().unwrap()
    }

    pub(super) fn time(&self, slot: usize) -> u128 {
        let entity = self.entities[slot].as_ref().unwrap();
        self.groups[entity.parent].as_ref().unwrap().time[entity.class]
    }

    /// Numbers of the entities of a tree that are in that state.
    pub(super) fn all(&self, group: usize, class: usize, is: Is) -> Vec<usize> {
        let matches = |e: &Entity| e.parent == group && e.class == class && e.is == is;
        (0..self.entities.len()).filter(|&s| self.entities[s].as_ref().is_some_and(matches)).collect()
    }

    pub(super) fn weights(&self, group: usize, class: usize) -> u128 {
        let counts = |e: &&Entity| e.parent == group && e.class == class && e.is != Is::Forgotten;
        self.entities.iter().flatten().filter(counts).map(|e| e.weight).sum()
    }

    fn least_finish(&self, mut among: Vec<usize>) -> Option<usize> {
        let key = |s: &usize| self.entities[*s].as_ref().map(|e| (e.finish, e.sequence)).unwrap();
        among.sort_by_key(key);
        among.first().copied()
    }

    /// wfq.9.
    fn pick(&self, group: usize, class: usize) -> Option<usize> {
        let waiting = self.all(group, class, Is::Waiting);
        let start = |s: usize| self.entities[s].as_ref().unwrap().start;
        let least = waiting.iter().map(|&s| start(s)).min()?;
        let time = self.groups[group].as_ref().unwrap().time[class].max(least);
        self.least_finish(waiting.into_iter().filter(|&s| start(s) <= time).collect())
    }

    fn next(&self, group: usize) -> Option<usize> {
        (0..3).find_map(|class| self.pick(group, class))
    }

    /// The queue that would be next without the 200 ms.
    pub(super) fn next_leaf(&self) -> Option<usize> {
        let mut group = 0;
        loop {
            let next = self.next(group)?;
            match self.entities[next].as_ref().unwrap().group {
                Some(below) => group = below,
                None => return Some(next),
            }
        }
    }

    pub(super) fn next_if_idle(&self) -> Option<usize> {
        let mut then = self.clone();
        if then.served.is_some() {
            then.expire(None);
        }
        then.next_leaf()
    }

    fn put_in(&mut self, slot: usize, is: Is) {
        self.sequence += 1;
        let sequence = self.sequence;
        let entity = self.e(slot);
        (entity.is, entity.sequence) = (is, sequence);
    }

    /// wfq.2 and wfq.14; `before` is when it was due, if it was backlogged before.
    fn wait(&mut self, slot: usize, budget: u128, before: Option<u128>) {
        let now = self.time(slot);
        let entity = self.e(slot);
        entity.budget = budget;
        let by_rule = entity.start + up(budget, entity.weight);
        entity.promise = entity.promise.filter(|&(due, _)| now < due);
        if let Some(before) = before {
            let late = entity.promise.map_or(0, |(_, late)| late);
            if by_rule + late < before && entity.start < now {
                let due = entity.promise.map_or(before, |(due, _)| due.max(before));
                entity.promise = Some((due, late.max(now - entity.start)));
            }
        }
        entity.finish = match entity.promise {
            None => by_rule,
            Some((due, late)) => by_rule.max(due.min(by_rule + late)),
        };
        self.put_in(slot, Is::Waiting);
    }

    /// wfq.7.
    fn rest(&mut self, slot: usize) {
        let now = self.time(slot);
        let entity = self.e(slot);
        entity.finish = entity.start;
        let is = if entity.finish > now { Is::Idle } else { Is::Forgotten };
        let (group, class) = (entity.parent, entity.class);
        let lag = now.saturating_sub(entity.finish) * entity.weight;
        let debt = &mut self.g(group).debt[class];
        *debt = debt.saturating_sub(lag); // 15
        self.put_in(slot, is);
        if is == Is::Forgotten {
            self.sum_changed(slot);
        }
        self.rest_tree(group, class);
    }

    /// wfq.8, second half.
    fn rest_tree(&mut self, group: usize, class: usize) {
        if !self.all(group, class, Is::Waiting).is_empty() || !self.all(group, class, Is::Served).is_empty() {
            return;
        }
        self.g(group).debt[class] = 0;
        let idle = self.all(group, class, Is::Idle);
        if let Some(last) = idle.into_iter().map(|s| self.entities[s].as_ref().unwrap().finish).max()
            && last <= self.g(group).time[class]
        {
            self.g(group).time[class] = last;
        }
    }

    fn sum_changed(&mut self, slot: usize) {
        let Entity { parent, class, .. } = *self.e(slot);
        self.g(parent).carry[class] = 0;
    }

    /// wfq.1, wfq.8, wfq.15.
    fn advance(&mut self, slot: usize, sectors: u128) {
        let Entity { parent, class, .. } = *self.e(slot);
        let weights = self.weights(parent, class);
        let row = self.g(parent);
        let paid = row.debt[class].min(sectors * ONE);
        row.debt[class] -= paid;
        let dividend = sectors * ONE - paid + row.carry[class];
        row.carry[class] = dividend % weights;
        row.time[class] += dividend / weights;
        let now = row.time[class];
        if let Some(first) = self.least_finish(self.all(parent, class, Is::Idle))
            && self.e(first).finish <= now
        {
            self.e(first).is = Is::Forgotten;
            self.sum_changed(first);
        }
    }

    /// wfq.3 to wfq.5, wfq.15 and wfq.16.
    fn wake(&mut self, slot: usize, budget: u128, arrival: Arrival) {
        let now = self.time(slot);
        if self.e(slot).is == Is::Forgotten {
            self.sum_changed(slot);
        }
        let entity = self.e(slot);
        let (old, weight) = (entity.finish, entity.weight);
        let least = match arrival {
            Arrival::New => now,
            Arrival::InTime { .. } => old.min(now),
            Arrival::Present { credit } => old.max(now - up(u128::from(credit), weight)).min(now),
        };
        entity.start = if entity.is == Is::Idle { least.max(old) } else { least };
        if entity.is == Is::Forgotten || old < least {
            entity.carry = 0;
        }
        if let Arrival::InTime { coefficient } = arrival {
            let finish = entity.start + up(budget, weight);
            if finish < now {
                entity.start += (now - finish) / u128::from(coefficient);
            }
        }
        let Entity { parent, class, start, .. } = *entity;
        self.g(parent).debt[class] += now.saturating_sub(start) * weight;
        self.wait(slot, budget, None);
    }

    /// The budget that a group waits with, if it does (wfq.10 and wfq.17).
    fn budget_of_group(&self, group: usize) -> Option<u128> {
        let next = self.next(group).filter(|_| !self.groups[group].as_ref().unwrap().held)?;
        Some(self.entities[next].as_ref().unwrap().budget)
    }

    /// wfq.17.
    pub(super) fn throttle(&mut self, group: usize) {
        self.g(group).held = true;
    }

    /// wfq.17.
    pub(super) fn unthrottle(&mut self, group: usize, arrival: Arrival) {
        self.g(group).held = false;
        let slot = self.g(group).slot.unwrap();
        if let (Is::Idle | Is::Forgotten, Some(budget)) = (self.e(slot).is, self.budget_of_group(group)) {
            self.wake(slot, budget, arrival);
        }
        self.settle(above(arrival));
    }

    /// wfq.10, everywhere: lowest groups first, so that what changes below is seen above.
    fn settle(&mut self, arrival: Arrival) {
        let mut order: Vec<(usize, usize)> = Vec::new();
        for group in 1..self.groups.len() {
            if let Some(row) = &self.groups[group] {
                let (mut depth, mut slot) = (0, row.slot);
                while let Some(at) = slot {
                    depth += 1;
                    slot = self.groups[self.entities[at].as_ref().unwrap().parent].as_ref().unwrap().slot;
                }
                order.push((depth, group));
            }
        }
        order.sort_by_key(|&(depth, group)| (usize::MAX - depth, group));
        for (_, group) in order {
            let slot = self.g(group).slot.unwrap();
            let budget = self.budget_of_group(group);
            let Entity { is, budget: before, finish, .. } = *self.e(slot);
            match (is, budget) {
                (Is::Served, _) | (Is::Forgotten | Is::Idle, None) => {}
                (Is::Waiting, None) => self.rest(slot),
                (Is::Waiting, Some(budget)) if budget == before => {}
                (Is::Waiting, Some(budget)) => self.wait(slot, budget, Some(finish)),
                (_, Some(budget)) => self.wake(slot, budget, arrival),
            }
        }
    }

    pub(super) fn activate(&mut self, slot: usize, budget: u128, arrival: Arrival) {
        self.wake(slot, budget, arrival);
        self.settle(above(arrival));
    }

    pub(super) fn set_budget(&mut self, slot: usize, budget: u128) {
        let Entity { is, finish, .. } = *self.e(slot);
        match is {
            Is::Served => self.e(slot).budget = budget,
            Is::Waiting => self.wait(slot, budget, Some(finish)),
            Is::Idle | Is::Forgotten => {}
        }
        self.settle(Arrival::New);
    }

    pub(super) fn select(&mut self, now: Instant) -> Option<usize> {
        let mut group = 0;
        self.next(0)?;
        loop {
            let mut next = self.next(group).unwrap();
            let idle = self.pick(group, PriorityClass::Idle as usize);
            let row = self.groups[group].as_mut().unwrap();
            match idle {
                Some(idle) if idle != next => {
                    if row.passed && now.as_nanos() - row.looked.as_nanos() >= 200_000_000 {
                        next = idle;
                        (row.looked, row.passed) = (now, false);
                    } else {
                        row.passed = true;
                    }
                }
                _ => (row.looked, row.passed) = (now, false),
            }
            let class = self.e(next).class;
            let starts = self.all(group, class, Is::Waiting);
            let least = starts.into_iter().map(|s| self.e(s).start).min().unwrap();
            let row = self.g(group);
            if least > row.time[class] {
                (row.time[class], row.debt[class], row.carry[class]) = (least, 0, 0);
            }
            self.e(next).service = 0;
            self.e(next).is = Is::Served;
            match self.e(next).group {
                Some(below) => group = below,
                None => {
                    self.served = Some(next);
                    return Some(next);
                }
            }
        }
    }

    fn above(&self, slot: usize) -> Option<usize> {
        self.groups[self.entities[slot].as_ref().unwrap().parent].as_ref().unwrap().slot
    }

    pub(super) fn serve(&mut self, sectors: u128) {
        self.charge(self.served.unwrap(), sectors);
    }

    pub(super) fn expire(&mut self, budget: Option<u128>) {
        let (mut at, mut budget) = (self.served.take(), budget);
        while let Some(slot) = at {
            let entity = self.e(slot);
            let before = entity.finish;
            entity.step(entity.service);
            entity.service = 0;
            match budget {
                Some(budget) => self.wait(slot, budget, Some(before)),
                None => self.rest(slot),
            }
            budget = self.budget_of_group(self.entities[slot].as_ref().unwrap().parent);
            at = self.above(slot);
        }
    }

    pub(super) fn charge(&mut self, slot: usize, sectors: u128) {
        let mut at = Some(slot);
        while let Some(slot) = at {
            let now = self.time(slot);
            let Entity { is, finish, group, mut budget, .. } = *self.e(slot);
            match is {
                Is::Served => {
                    self.e(slot).service += sectors;
                    self.advance(slot, sectors);
                }
                Is::Waiting => {
                    self.advance(slot, sectors);
                    self.e(slot).step(sectors);
                    if let Some(next) = group.and_then(|group| self.next(group)) {
                        budget = self.e(next).budget;
                    }
                    self.wait(slot, budget, Some(finish));
                }
                Is::Idle | Is::Forgotten => {
                    if is == Is::Forgotten {
                        self.sum_changed(slot);
                    }
                    let start = if is == Is::Idle { now.max(finish) } else { now };
                    self.e(slot).is = Is::Waiting; // for its weight to count
                    self.advance(slot, sectors);
                    if is == Is::Forgotten || finish < now {
                        self.e(slot).carry = 0;
                    }
                    self.e(slot).start = start;
                    self.e(slot).step(sectors);
                    self.rest(slot);
                }
            }
            at = self.above(slot);
        }
    }

    /// wfq.11.
    pub(super) fn reweigh(&mut self, slot: usize, weight: u32) {
        let now = self.time(slot);
        let new = u128::from(weight);
        let Entity { is, weight: old, .. } = *self.e(slot);
        if old == new {
            return;
        }
        let scaled = |tag: u128| {
            if tag >= now { now + ((tag - now) * old).div_ceil(new) } else { now - (now - tag) * old / new }
        };
        if is != Is::Forgotten {
            self.sum_changed(slot);
        }
        let entity = self.e(slot);
        entity.weight = new;
        match is {
            Is::Forgotten => {
                entity.carry = 0;
                entity.finish = if entity.finish < now { scaled(entity.finish) } else { entity.finish };
            }
            Is::Idle => {
                entity.carry = 0;
                if entity.finish > now {
                    entity.finish = scaled(entity.finish);
                }
                self.put_in(slot, Is::Idle);
            }
            Is::Waiting | Is::Served => {
                entity.carry = 0;
                let start = scaled(entity.start);
                entity.promise = entity.promise.and_then(|(due, late)| {
                    let late = (entity.start + late).saturating_sub(start);
                    (late > 0).then_some((due, late))
                });
                entity.start = start;
                let (budget, finish) = (entity.budget, entity.finish);
                if is == Is::Waiting {
                    self.wait(slot, budget, Some(finish));
                }
                self.settle(Arrival::New);
            }
        }
    }

    fn end_slot_of(&mut self, slot: usize) {
        if self.served == Some(slot) {
            let budget = self.e(slot).budget;
            self.expire(Some(budget));
        }
    }

    /// wfq.15; what was ahead, behind, and whether it waited.
    fn leave(&mut self, slot: usize) -> (u128, u128, bool) {
        let now = self.time(slot);
        let entity = self.e(slot);
        let Entity { is, parent, class, weight, start, finish, .. } = *entity;
        entity.is = Is::Forgotten;
        if is != Is::Forgotten {
            self.sum_changed(slot);
        }
        let position = if is == Is::Waiting { start } else { finish };
        let ahead = if is == Is::Forgotten { 0 } else { position.saturating_sub(now) };
        let debt = &mut self.g(parent).debt[class];
        *debt += ahead * weight;
        if is == Is::Waiting {
            *debt = debt.saturating_sub(now.saturating_sub(start) * weight);
        }
        self.rest_tree(parent, class);
        self.settle(Arrival::New);
        (ahead, now.saturating_sub(position), is == Is::Waiting)
    }

    pub(super) fn relocate(&mut self, slot: usize, group: usize, class: usize) {
        self.end_slot_of(slot);
        let (ahead, behind, waited) = self.leave(slot);
        let entity = self.e(slot);
        (entity.parent, entity.class, entity.promise, entity.carry) = (group, class, None, 0);
        let now = self.time(slot);
        let entity = self.e(slot);
        entity.start = now + ahead;
        entity.finish = now + ahead - behind.min(now);
        let budget = entity.budget;
        if waited || ahead > 0 {
            self.sum_changed(slot);
        }
        if waited {
            self.wait(slot, budget, None);
        } else if ahead > 0 {
            self.put_in(slot, Is::Idle);
        }
        self.settle(Arrival::New);
    }

    pub(super) fn remove(&mut self, slot: usize) {
        self.end_slot_of(slot);
        self.leave(slot);
        if let Some(group) = self.e(slot).group {
            self.groups[group] = None;
        }
        self.entities[slot] = None;
    }
}
