//! The fair queue under random loads: against the dull model, and against its promises.
//!
//! Every run has a seed, and a failure ends with the command that repeats it; with `FAIRLIFT_SEEDS=1000`, more runs look
//! further, and `--show-output` shows what was seen worst.

extern crate std;

mod bound;
mod model;
mod scenario;

use std::vec::Vec;
use std::{println, vec};

use fairlift_lab::repeat::seeds;

use self::bound::Bounds;
use self::model::{Is, Model};
use super::entity::State;
use super::tags::ORIGIN;
use super::tree::NIL;
use super::{Arrival, FairQueue, Leaf};
use crate::{Group, GroupId, Instant, PriorityClass};

/// A small generator of our own, so that a seed means the same run for ever.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// Small and large with equal readiness: log-uniform from 1 to 2^`bits`.
    fn scale(&mut self, bits: u64) -> u32 {
        let top = self.below(bits + 1);
        (1 + self.below(1 << top)).min(u64::from(u32::MAX)) as u32
    }
}

/// What a kind of run does.
#[derive(Clone, Copy, Debug)]
struct Load {
    name: &'static str,
    /// Queues and groups to begin with, at most.
    queues: u64,
    groups: u64,
    weight_bits: u64,
    budget_bits: u64,
    classes: bool,
    /// Everybody is backlogged all the time.
    always: bool,
    /// Queues come back in time.
    in_time: bool,
    /// Groups are held and released, and queues and groups come back with credit: of so many bits.
    held: bool,
    credit_bits: u64,
    /// Slots beyond their budget, charges outside of slots, time that passes.
    loose: bool,
    /// Weights, classes, groups, and which entities there are, change.
    changes: bool,
    /// Where virtual time starts.
    origin: u128,
}

const PLAIN: Load = Load {
    name: "plain",
    queues: 10,
    groups: 6,
    weight_bits: 7,
    budget_bits: 8,
    classes: false,
    always: false,
    in_time: false,
    held: false,
    credit_bits: 0,
    loose: false,
    changes: false,
    origin: ORIGIN,
};

/// The real thing and the model, doing the same.
struct Pair {
    fair: FairQueue,
    model: Model,
    leaves: Vec<Leaf>,
    groups: Vec<GroupId>,
    now: Instant,
    /// Sectors left of the slot.
    left: u64,
    /// Sectors that the model was not told of yet.
    unsettled: u64,
    /// Where virtual time starts.
    origin: u128,
    steps: u64,
}

impl Pair {
    fn new(origin: u128) -> Self {
        let (fair, model) = (FairQueue::new(&[Group::root()]), Model::new(origin));
        let groups = vec![GroupId::ROOT];
        let mut pair =
            Self { fair, model, leaves: vec![], groups, now: Instant::ZERO, left: 0, unsettled: 0, origin, steps: 0 };
        pair.start_at_origin(GroupId::ROOT);
        pair
    }

    fn start_at_origin(&mut self, group: GroupId) {
        self.fair.group_mut(group).trees.iter_mut().for_each(|tree| tree.time = self.origin);
    }

    fn add_group(&mut self, parent: GroupId, weight: u32) {
        let group = self.fair.add_group(parent, weight);
        let slot = self.fair.group(group).entity as usize;
        self.model.add(slot, usize::from(parent.0), 1, weight, Some((usize::from(group.0), self.origin)));
        self.start_at_origin(group);
        self.groups.push(group);
    }

    fn add_queue(&mut self, group: GroupId, class: PriorityClass, weight: u32) {
        let leaf = self.fair.add_queue(group, class, weight);
        self.model.add(leaf.0 as usize, usize::from(group.0), class as usize, weight, None);
        self.leaves.push(leaf);
    }

    fn activate(&mut self, leaf: Leaf, budget: u32, arrival: Arrival) {
        self.fair.activate(leaf, budget, arrival);
        self.model.activate(leaf.0 as usize, u128::from(budget), arrival);
    }

    /// Holds a group if that is allowed, or else lets it go.
    fn hold_or_release(&mut self, group: GroupId, arrival: Arrival) {
        let at = usize::from(group.0);
        let state = self.fair.entities.at(self.fair.group(group).entity).state;
        if self.fair.group(group).is_throttled || state == State::Active {
            self.fair.unthrottle(group, arrival);
            self.model.unthrottle(at, arrival);
        } else {
            self.fair.throttle(group);
            self.model.throttle(at);
        }
    }

    fn select(&mut self) -> Option<Leaf> {
        let leaf = self.fair.select(self.now);
        assert_eq!(leaf.map(|leaf| leaf.0 as usize), self.model.select(self.now), "who is picked");
        self.left = leaf.map_or(0, |leaf| u64::from(self.fair.budget_of(leaf)));
        leaf
    }

    /// The model hears of it when it is looked at, as what is served until then is one step.
    fn serve(&mut self, sectors: u64) {
        self.fair.serve(sectors);
        self.unsettled += sectors;
        self.left = self.left.saturating_sub(sectors);
    }

    fn settle_model(&mut self) {
        if self.unsettled > 0 {
            self.model.serve(u128::from(self.unsettled));
            self.unsettled = 0;
        }
    }

    fn expire(&mut self, budget: Option<u32>) {
        self.fair.expire(budget);
        self.model.expire(budget.map(u128::from));
    }

    /// Everything that both know, and what has to be true of it.
    fn compare(&mut self) {
        self.settle_model();
        let (fair, model) = (&mut self.fair, &mut self.model);
        fair.settle();
        let served = model.served.map(|slot| Leaf(slot as u32));
        assert_eq!(fair.in_service(), served, "who is in service");
        // For this the model is copied, which would be most of the work.
        self.steps += 1;
        if self.steps.is_multiple_of(4) {
            assert_eq!(fair.next_if_idle(), model.next_if_idle().map(|slot| Leaf(slot as u32)), "who would be next");
        }
        for (slot, entity) in model.entities.iter().enumerate() {
            let Some(entity) = entity else { continue };
            let (node, row) = (fair.entities.at(slot as u32), fair.entities.at(slot as u32));
            let state = match entity.is {
                Is::Forgotten => State::Forgotten,
                Is::Idle => State::Idle,
                Is::Waiting => State::Active,
                Is::Served => State::InService,
            };
            assert_eq!(row.state, state, "the state of {slot}");
            assert_eq!(node.finish, entity.finish, "F of {slot}, {state:?}");
            assert_eq!(u128::from(row.service), entity.service, "the service of {slot}");
            if entity.is == Is::Waiting || entity.is == Is::Served {
                assert_eq!(node.start, entity.start, "S of {slot}, {state:?}");
                assert!(node.start <= node.finish || entity.is == Is::Served, "S > F of {slot}");
            }
            if entity.is == Is::Idle {
                assert!(node.finish >= self.origin, "an idle entity has a finish tag");
            }
        }
        for (group, row) in model.groups.iter().enumerate() {
            let Some(row) = row else { continue };
            assert_eq!(fair.groups[group].is_throttled, row.held, "whether group {group} is throttled");
            if let Some(slot) = row.slot {
                let state = fair.entities.at(slot as u32).state;
                let any = |is| (0..3).any(|class| !model.all(group, class, is).is_empty());
                let waits = any(Is::Waiting) && !row.held;
                assert_eq!(state == State::InService, any(Is::Served), "group {group} and its child in service");
                assert_eq!(state.is_backlogged(), waits || any(Is::Served), "group {group} and its children that wait");
            }
            for class in 0..3 {
                let tree = &fair.groups[group].trees[class];
                assert_eq!(tree.time, row.time[class], "V of group {group}, class {class}");
                assert_eq!(u128::from(tree.weights), model.weights(group, class), "W of group {group}, class {class}");
                assert_eq!(tree.debt, row.debt[class], "the debt of group {group}, class {class}");
                assert_eq!(tree.active.is_empty(), model.all(group, class, Is::Waiting).is_empty());
                assert_eq!(tree.idle.first == NIL, model.all(group, class, Is::Idle).is_empty());
            }
        }
    }
}

/// One run; what came closest to its bound.
fn run(load: Load, seed: u64, steps: u32) -> Bounds {
    let random = &mut Random(seed);
    let mut pair = Pair::new(load.origin);
    let weight = |random: &mut Random| random.scale(load.weight_bits);
    let class = |random: &mut Random| {
        if load.classes { random.of(&PriorityClass::ALL) } else { PriorityClass::BestEffort }
    };
    for _ in 0..random.below(load.groups + 1) {
        let parent = random.of(&pair.groups);
        let weight = weight(random);
        pair.add_group(parent, weight);
    }
    for _ in 0..2 + random.below(load.queues - 1) {
        let (group, class, weight) = (random.of(&pair.groups), class(random), weight(random));
        pair.add_queue(group, class, weight);
    }
    // A queue has small or large budgets for the whole run, so that some differ by much.
    let bits: Vec<u64> = (0..1000).map(|_| random.below(load.budget_bits + 1)).collect();
    let budget = |random: &mut Random, leaf: Leaf| random.scale(bits[leaf.0 as usize]);
    let mut bounds = Bounds::default();
    bounds.mind(&pair, |leaf| 1 << bits[leaf.0 as usize], load.always);
    if load.always {
        for leaf in pair.leaves.clone() {
            let budget = budget(random, leaf);
            pair.activate(leaf, budget, Arrival::New);
        }
    }
    for _ in 0..steps {
        if load.loose && random.one_in(4) {
            pair.now = Instant::from_nanos(pair.now.as_nanos() + random.below(120_000_000));
        }
        let leaf = random.of(&pair.leaves);
        // Half of the time the next look finds service that V does not show yet.
        let mut unseen = false;
        match random.below(20) {
            0..4 if !load.always => {
                pair.settle_model();
                if !pair.fair.is_backlogged(leaf) {
                    let arrival = arrival(random, load);
                    let budget = budget(random, leaf);
                    bounds.comes(&pair, leaf, arrival);
                    pair.activate(leaf, budget, arrival);
                }
            }
            4 => {
                pair.settle_model();
                let budget = budget(random, leaf);
                if pair.fair.in_service() != Some(leaf) {
                    pair.fair.set_budget(leaf, budget);
                    pair.model.set_budget(leaf.0 as usize, u128::from(budget));
                }
            }
            5 if load.loose => {
                pair.settle_model();
                let sectors = 1 + random.below(300);
                pair.fair.charge(leaf, sectors);
                pair.model.charge(leaf.0 as usize, u128::from(sectors));
            }
            8 | 9 if load.held => {
                pair.settle_model();
                let group = random.of(&pair.groups);
                let arrival = arrival(random, load);
                if group != GroupId::ROOT {
                    bounds.comes_group(&pair, group, arrival);
                    pair.hold_or_release(group, arrival);
                }
            }
            6 | 7 if load.changes => {
                pair.settle_model();
                change(&mut pair, random, load, leaf);
                bounds.changed();
            }
            _ => match pair.fair.in_service() {
                None => {
                    let _ = pair.select();
                }
                Some(leaf) => {
                    if pair.left > 0 && !random.one_in(4) {
                        let most = if random.one_in(3) { pair.left } else { pair.left.min(8) };
                        let sectors = 1 + random.below(most) + if load.loose { random.below(3) } else { 0 };
                        bounds.served(&pair, leaf, sectors);
                        pair.serve(sectors);
                        unseen = random.one_in(2);
                    } else {
                        pair.settle_model();
                        let stays = load.always || !random.one_in(3);
                        let budget = stays.then(|| budget(random, leaf));
                        pair.expire(budget);
                    }
                }
            },
        }
        if !unseen {
            pair.compare();
            bounds.look(&pair);
        }
    }
    // Nothing is lost: each queue that is backlogged is served, once.
    if pair.fair.in_service().is_some() {
        pair.settle_model();
        pair.expire(None);
    }
    for group in pair.groups.clone() {
        if pair.fair.group(group).is_throttled {
            pair.hold_or_release(group, Arrival::New);
            pair.compare();
        }
    }
    let mut waiting: Vec<Leaf> = pair.leaves.iter().copied().filter(|&leaf| pair.fair.is_backlogged(leaf)).collect();
    while let Some(leaf) = pair.select() {
        let at = waiting.iter().position(|&other| other == leaf).expect("who is picked waits");
        waiting.swap_remove(at);
        pair.expire(None);
        pair.compare();
    }
    assert_eq!(waiting, [], "who waits is picked");
    bounds
}

/// How a queue or a group comes back.
fn arrival(random: &mut Random, load: Load) -> Arrival {
    match random.below(4) {
        0 | 1 if load.in_time => Arrival::InTime { coefficient: if load.loose { random.of(&[1, 30]) } else { 1 } },
        2 if load.credit_bits > 0 => Arrival::Present { credit: random.scale(load.credit_bits) },
        3 if load.held && load.credit_bits == 0 => Arrival::Present { credit: 0 },
        _ => Arrival::New,
    }
}

/// A change under way.
fn change(pair: &mut Pair, random: &mut Random, load: Load, leaf: Leaf) {
    let group = random.of(&pair.groups);
    match random.below(12) {
        0..3 => {
            let raised = random.of(&[1, 1, 30, 3000]);
            let weight = random.scale(load.weight_bits) * raised;
            pair.fair.set_queue_weight(leaf, weight);
            pair.model.reweigh(leaf.0 as usize, weight);
        }
        3 | 4 if group != GroupId::ROOT => {
            let weight = random.scale(load.weight_bits);
            pair.fair.set_group_weight(group, weight);
            pair.model.reweigh(pair.fair.group(group).entity as usize, weight);
        }
        5 | 6 => {
            pair.fair.move_queue(leaf, group);
            let entity = pair.model.e(leaf.0 as usize);
            if entity.parent != usize::from(group.0) {
                let class = entity.class;
                pair.model.relocate(leaf.0 as usize, usize::from(group.0), class);
            }
        }
        7 => {
            let class = random.of(&PriorityClass::ALL);
            pair.fair.set_queue_class(leaf, class);
            let entity = pair.model.e(leaf.0 as usize);
            if entity.class != class as usize {
                let parent = entity.parent;
                pair.model.relocate(leaf.0 as usize, parent, class as usize);
            }
        }
        8 if pair.leaves.len() > 2 => {
            pair.leaves.retain(|&other| other != leaf);
            pair.fair.remove_queue(leaf);
            pair.model.remove(leaf.0 as usize);
        }
        9 if pair.leaves.len() < 20 => {
            let (class, weight) = (random.of(&PriorityClass::ALL), random.scale(load.weight_bits));
            pair.add_queue(group, class, weight);
        }
        10 if pair.groups.len() < 12 => {
            let weight = random.scale(load.weight_bits);
            pair.add_group(group, weight);
        }
        11 if group != GroupId::ROOT && pair.fair.group(group).children == 0 => {
            pair.groups.retain(|&other| other != group);
            let slot = pair.fair.group(group).entity as usize;
            pair.fair.remove_group(group);
            pair.model.remove(slot);
        }
        _ => {}
    }
    // A slot that the change ended has nothing left.
    if pair.fair.in_service().is_none() {
        pair.left = 0;
    }
}

/// Runs of one kind.
fn runs(load: Load) -> Bounds {
    let steps = if cfg!(miri) { 60 } else { 500 };
    let mut worst = Bounds::default();
    for seed in seeds(1..if cfg!(miri) { 2 } else { 31 }) {
        worst.keep_worse(&run(load, seed, steps), seed);
    }
    worst
}

#[test]
fn the_fair_queue_does_what_the_dull_model_does() {
    for classes in [false, true] {
        let _ = runs(Load { classes, in_time: true, loose: true, ..PLAIN });
    }
}

#[test]
fn the_fair_queue_does_what_the_dull_model_does_while_everything_changes() {
    let _ = runs(Load { classes: true, in_time: true, loose: true, changes: true, ..PLAIN });
    let _ = runs(Load { name: "changing", changes: true, weight_bits: 3, ..PLAIN });
}

/// 16, 17: by themselves, and beside all others.
#[test]
fn the_fair_queue_does_what_the_dull_model_does_while_groups_are_held() {
    let held = Load { name: "held", held: true, credit_bits: 9, ..PLAIN };
    let _ = runs(held);
    let _ = runs(Load { name: "held, deep", groups: 14, ..held });
    let all = Load { name: "held, changing", classes: true, in_time: true, loose: true, changes: true, ..held };
    let _ = runs(all);
    let _ = runs(Load { name: "held, late", weight_bits: 10, origin: u128::MAX - (1 << 90), budget_bits: 32, ..all });
    let _ = runs(Load { name: "held, large", credit_bits: 32, budget_bits: 32, weight_bits: 10, ..all });
}

/// vtags.3: as late as never, and with the largest weights and budgets.
#[test]
fn nothing_changes_at_the_end_of_virtual_time() {
    let late = Load { name: "late", origin: u128::MAX - (1 << 90), classes: true, in_time: true, loose: true, ..PLAIN };
    let _ = runs(Load { changes: true, ..late });
    let _ = runs(Load { name: "large", weight_bits: 22, budget_bits: 32, ..late });
    let early = Load { name: "large changes", weight_bits: 10, budget_bits: 32, origin: ORIGIN, changes: true, ..late };
    let _ = runs(early);
}

/// The bound: as derived in the header, at every level and instant.
#[test]
fn siblings_are_never_further_apart_than_the_bound() {
    for load in [
        Load { name: "always backlogged", always: true, ..PLAIN },
        Load { name: "always backlogged, equal weights", always: true, weight_bits: 0, ..PLAIN },
        Load { name: "always backlogged, flat", always: true, groups: 0, weight_bits: 10, ..PLAIN },
        Load { name: "always backlogged, deep", always: true, groups: 14, queues: 14, ..PLAIN },
        Load { name: "coming and going", ..PLAIN },
        Load { name: "coming and going, classes", classes: true, ..PLAIN },
        Load { name: "coming and going, in time", in_time: true, ..PLAIN },
        Load { name: "coming and going, with small credits", credit_bits: 4, ..PLAIN },
        Load { name: "coming and going, with large credits", credit_bits: 12, ..PLAIN },
        Load { name: "coming and going, in time and with credit", in_time: true, credit_bits: 8, ..PLAIN },
        Load { name: "held", held: true, ..PLAIN },
        Load { name: "held, with credits", held: true, credit_bits: 8, ..PLAIN },
        Load {
            name: "held, with large credits and equal weights",
            held: true,
            credit_bits: 12,
            weight_bits: 0,
            ..PLAIN
        },
        Load { name: "held, with credits, deep", held: true, credit_bits: 10, groups: 14, queues: 14, ..PLAIN },
    ] {
        let worst = runs(load);
        println!("fair queue, {}: {worst}", load.name);
        worst.assert_kept();
    }
}
