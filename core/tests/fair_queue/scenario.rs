//! One rule each, read as a story.

use alloc::vec;
use alloc::vec::Vec;

use super::super::tags::{SHIFT, WEIGHT_MAX};
use super::super::{Arrival, FairQueue, IDLE_CLASS_TIMEOUT, Leaf};
use crate::time::ms;
use crate::{Group, GroupId, Instant, PriorityClass};

const ROOT: GroupId = GroupId::ROOT;
const BE: PriorityClass = PriorityClass::BestEffort;

/// Queues of the root, best effort, by weight.
fn queues<const N: usize>(weights: [u32; N]) -> (FairQueue, [Leaf; N]) {
    let mut fair = FairQueue::new(&[Group::root()]);
    let leaves = weights.map(|weight| fair.add_queue(ROOT, BE, weight));
    (fair, leaves)
}

/// One slot of `sectors`; the queue stays, with the same budget, or goes.
fn slot(fair: &mut FairQueue, sectors: u64, stays: bool) -> Leaf {
    let leaf = fair.select(Instant::ZERO).expect("somebody waits");
    fair.serve(sectors);
    fair.expire(stays.then(|| fair.budget_of(leaf)));
    leaf
}

/// Where a queue is, in sectors ÷ weight ahead of V.
fn ahead(fair: &mut FairQueue, leaf: Leaf) -> f64 {
    fair.settle();
    let (node, now) = (fair.entities.at(leaf.0), fair.tree_of(leaf.0).time);
    let tag = if fair.is_backlogged(leaf) { node.start } else { node.finish };
    (tag as i128 - now as i128) as f64 / (1_u64 << SHIFT) as f64
}

/// 1, 2, 6: each gets its share, and budgets a thousandfold apart don't matter.
#[test]
fn shares_follow_weights_whatever_the_budgets() {
    let weights = [1, 2, 3, 5, 8];
    let mut shares = Vec::new();
    for budgets in [[64; 5], [1, 1000, 10, 300, 3], [1000, 1, 500, 2, 7]] {
        let (mut fair, leaves) = queues(weights);
        leaves.iter().zip(budgets).for_each(|(&leaf, budget)| fair.activate(leaf, budget, Arrival::New));
        let mut served = [0_u64; 5];
        while served.iter().sum::<u64>() < 19 * 20_000 {
            let leaf = fair.select(Instant::ZERO).expect("somebody waits");
            let budget = fair.budget_of(leaf);
            fair.serve(u64::from(budget));
            served[leaf.0 as usize] += u64::from(budget);
            fair.expire(Some(budget));
        }
        shares.push(served);
    }
    for served in shares {
        for (sectors, weight) in served.into_iter().zip(weights) {
            let fair_share = 20_000 * u64::from(weight);
            assert!(sectors.abs_diff(fair_share) <= 2 * 1000 + fair_share / 100, "{served:?}");
        }
    }
}

/// wfq.5: a queue that always runs empty and always comes back in time has the share of those that never do, as long as what it
/// misses is no more than its budget.
#[test]
fn a_queue_that_comes_back_in_time_loses_nothing() {
    // A slot of the blinking queue and one of the others take turns, so it could have half of all.
    let share = |arrival, budget: u64| {
        let (mut fair, [steady, also, blinking]) = queues([1; 3]);
        for (leaf, budget) in [(steady, 8), (also, 8), (blinking, budget)] {
            fair.activate(leaf, budget as u32, Arrival::New);
        }
        let mut served = [0_u64; 3];
        let random = &mut super::Random(1);
        for _ in 0..30_000 {
            let leaf = fair.select(Instant::ZERO).expect("somebody waits");
            // It runs empty after a part of its budget, and is back while the next slot lasts.
            let sectors = if leaf == blinking { 1 + random.below(budget.min(16)) } else { 8 };
            let back = leaf != blinking && !fair.is_backlogged(blinking);
            fair.serve(sectors);
            served[leaf.0 as usize] += sectors;
            if back {
                fair.activate(blinking, budget as u32, arrival);
            }
            fair.expire((leaf != blinking).then_some(8));
        }
        served[2] as f64 / served[0] as f64
    };
    for budget in [16, 32, 64] {
        let (in_time, new) = (share(Arrival::InTime { coefficient: 1 }, budget), share(Arrival::New, budget));
        assert!((in_time - 1.0).abs() < 0.005, "in time, budget {budget}: {in_time}");
        assert!(new < 0.9, "without hole recovery, budget {budget}: {new}");
    }
}

/// wfq.5: a long absence gives no more credit than one budget, or one part in `coefficient` less for a raised queue.
#[test]
fn credit_of_an_absence_is_limited() {
    let (mut fair, [steady, late, raised]) = queues([1; 3]);
    let _ = [steady, late, raised].map(|leaf| fair.activate(leaf, 30, Arrival::New));
    let _ = [0; 3].map(|_| slot(&mut fair, 30, true));
    // Both leave, and miss 3,000 sectors.
    for _ in 0..3 {
        let leaf = fair.select(Instant::ZERO).expect("somebody waits");
        fair.serve(30);
        fair.expire((leaf == steady).then_some(30));
    }
    let _ = [0; 100].map(|_| slot(&mut fair, 30, true));
    fair.activate(late, 30, Arrival::InTime { coefficient: 1 });
    fair.activate(raised, 30, Arrival::InTime { coefficient: 2 });
    assert_eq!(ahead(&mut fair, late), -30.0);
    assert!((-1600.0..-1400.0).contains(&ahead(&mut fair, raised)), "{}", ahead(&mut fair, raised));
}

/// wfq.7, wfq.8: the lead of a queue that leaves ahead of its share is remembered, and later forgotten.
#[test]
fn leaving_and_coming_back_is_no_way_to_get_more() {
    let (mut fair, [steady, fickle]) = queues([1; 2]);
    let _ = [steady, fickle].map(|leaf| fair.activate(leaf, 10, Arrival::New));
    let mut served = [0_u64; 2];
    for _ in 0..1000 {
        let leaf = fair.select(Instant::ZERO).expect("somebody waits");
        fair.serve(10);
        served[leaf.0 as usize] += 10;
        fair.expire((leaf == steady).then_some(10));
        if leaf == fickle {
            fair.activate(fickle, 10, Arrival::New);
        }
    }
    assert!(served[0].abs_diff(served[1]) <= 20, "{served:?}");
    // Away for as long as it was ahead, its weight is no longer counted.
    while fair.select(Instant::ZERO) != Some(fickle) {
        fair.serve(10);
        fair.expire(Some(10));
    }
    fair.serve(10);
    fair.expire(None);
    let _ = [0; 5].map(|_| slot(&mut fair, 10, true));
    assert_eq!(fair.tree_of(fickle.0).weights, 1);
}

/// wfq.11: in sectors, nobody is richer or poorer by a new weight.
#[test]
fn a_new_weight_keeps_lead_and_lag_in_sectors() {
    let (mut fair, [a, b, c]) = queues([10, 10, 20]);
    let _ = [a, b, c].map(|leaf| fair.activate(leaf, 400, Arrival::New));
    assert_eq!(slot(&mut fair, 400, true), c, "its finish tag is the least");
    assert_eq!((ahead(&mut fair, a), ahead(&mut fair, c)), (-10.0, 10.0));
    fair.set_queue_weight(a, 100);
    fair.set_queue_weight(c, 200);
    assert_eq!((ahead(&mut fair, a), ahead(&mut fair, c)), (-1.0, 1.0));
    // Of a queue that is idle and ahead, too.
    while fair.select(Instant::ZERO) != Some(c) {
        fair.serve(400);
        fair.expire(Some(400));
    }
    fair.serve(400);
    fair.expire(None);
    let before = ahead(&mut fair, c);
    assert!(before > 0.0);
    fair.set_queue_weight(c, 20);
    assert!((ahead(&mut fair, c) - 10.0 * before).abs() < 1e-9);
}

/// wfq.11: raised in the middle of its slot, a queue keeps what it is ahead by, in sectors.
#[test]
fn a_new_weight_in_the_middle_of_a_slot_counts_from_there() {
    let (mut fair, [a, b]) = queues([1, 1]);
    let _ = [a, b].map(|leaf| fair.activate(leaf, 100, Arrival::New));
    assert_eq!(fair.select(Instant::ZERO), Some(a));
    fair.serve(60);
    fair.set_queue_weight(a, 30);
    fair.serve(31);
    fair.expire(Some(100));
    // 60 sectors ÷ 1 are 30 ahead of V, 30 sectors, 1 by the new weight; 31 more ÷ 30, while V moves by 1.
    assert!((ahead(&mut fair, a) - (1.0 + 31.0 / 30.0 - 1.0)).abs() < 1e-9, "{}", ahead(&mut fair, a));
}

/// wfq.12: strict classes, and 200 ms.
#[test]
fn the_idle_class_waits_for_200_ms_at_most() {
    let mut fair = FairQueue::new(&[Group::root()]);
    let [real, best, idle] = PriorityClass::ALL.map(|class| fair.add_queue(ROOT, class, 1));
    let _ = [idle, best].map(|leaf| fair.activate(leaf, 8, Arrival::New));
    let mut now = Instant::ZERO;
    let mut picks = Vec::new();
    for turn in 0..50_u64 {
        if turn == 25 {
            fair.activate(real, 8, Arrival::New);
        }
        let leaf = fair.select(now).expect("somebody waits");
        fair.serve(8);
        fair.expire(Some(8));
        picks.push(leaf);
        now += ms(10);
    }
    let at: Vec<usize> = (0..50).filter(|&turn| picks[turn] == idle).collect();
    assert_eq!(at, [20, 40]);
    assert!((0..25).all(|turn| picks[turn] != real) && (25..50).all(|turn| picks[turn] != best));
}

/// wfq.12: a group that is served less often than every 200 ms serves others than its idle class too.
#[test]
fn the_idle_class_does_not_starve_the_others_of_a_group_that_is_seldom_served() {
    let mut fair = FairQueue::new(&[Group::root()]);
    let [_, best, idle] = PriorityClass::ALL.map(|class| fair.add_queue(ROOT, class, 1));
    let _ = [idle, best].map(|leaf| fair.activate(leaf, 8, Arrival::New));
    let mut now = Instant::ZERO;
    let mut served = [0; 3];
    for _ in 0..100 {
        served[fair.select(now).expect("somebody waits").0 as usize] += 1;
        fair.serve(8);
        fair.expire(Some(8));
        now += IDLE_CLASS_TIMEOUT;
    }
    assert_eq!(served, [0, 50, 50]);
}

/// wfq.13: what would be next, with what is left of the path in service competing too.
#[test]
fn preemption_looks_at_who_would_be_next() {
    let mut fair = FairQueue::new(&[Group::root()]);
    let group = fair.add_group(ROOT, 100);
    let [inner, sibling] = [1, 1].map(|weight| fair.add_queue(group, BE, weight));
    let outer = fair.add_queue(ROOT, BE, 100);
    let _ = [inner, sibling].map(|leaf| fair.activate(leaf, 100, Arrival::New));
    assert_eq!(fair.select(Instant::ZERO), Some(inner));
    fair.serve(10);
    assert_eq!(fair.next_if_idle(), Some(sibling), "the group would wait again, alone");
    fair.activate(outer, 400, Arrival::New);
    assert!(!fair.would_preempt(outer), "its budget is due later");
    fair.set_budget(outer, 20);
    assert!(fair.would_preempt(outer) && !fair.would_preempt(sibling) && !fair.would_preempt(inner));
    fair.expire(None);
    assert_eq!(fair.select(Instant::ZERO), Some(outer), "as foretold");
}

/// wfq.14: light groups whose next child changes, all at once, do not hold up a heavy queue beyond its bound.
#[test]
fn a_crowd_of_shrinking_budgets_holds_nobody_up() {
    const CROWD: u32 = 200;
    let (big, small) = (1000, 1);
    let mut fair = FairQueue::new(&[Group::root()]);
    let heavy = [(); 2].map(|()| fair.add_queue(ROOT, BE, 100));
    let mut small_ones = Vec::new();
    for _ in 0..CROWD {
        let group = fair.add_group(ROOT, 1);
        let large = fair.add_queue(group, BE, 1);
        small_ones.push(fair.add_queue(group, PriorityClass::RealTime, 1));
        fair.activate(large, big, Arrival::New);
    }
    let _ = heavy.map(|leaf| fair.activate(leaf, small, Arrival::New));
    let weights = f64::from(CROWD + 200);
    let bound = f64::from(small) / 100.0 + f64::from(big) / weights;
    let mut worst = 0.0_f64;
    for turn in 0..100_000_u32 {
        if turn == 50_000 {
            // Half of the groups have had their slot, the others lag by half of it.
            small_ones.iter().for_each(|&leaf| fair.activate(leaf, small, Arrival::New));
        }
        let leaf = fair.select(Instant::ZERO).expect("somebody waits");
        let budget = fair.budget_of(leaf);
        fair.serve(u64::from(budget));
        fair.expire(Some(budget));
        let _ = heavy.map(|leaf| worst = worst.max(-ahead(&mut fair, leaf)));
    }
    assert!(worst <= bound + 1e-6, "lag {worst}, bound {bound}");
}

/// wfq.15: a queue that leaves with a lead, by a new class, does not leave the loss to the others.
#[test]
fn what_a_queue_was_ahead_is_made_up_for_when_it_leaves() {
    let mut fair = FairQueue::new(&[Group::root()]);
    let stays = [(); 4].map(|()| fair.add_queue(ROOT, BE, 1));
    let goes = [(); 20].map(|()| fair.add_queue(ROOT, BE, 1));
    let _ = stays.map(|leaf| fair.activate(leaf, 100, Arrival::New));
    let _ = goes.map(|leaf| fair.activate(leaf, 90, Arrival::New));
    // Those with the smaller budgets go first.
    let _ = [(); 20].map(|()| assert!(goes.contains(&slot(&mut fair, 90, true))));
    let lag = -ahead(&mut fair, stays[0]);
    let _ = goes.map(|leaf| fair.remove_queue(leaf));
    for _ in 0..4 {
        assert_eq!(fair.select(Instant::ZERO).map(|leaf| leaf.0 < 4), Some(true));
        fair.serve(100);
        fair.expire(Some(100));
        for leaf in stays {
            assert!(-ahead(&mut fair, leaf) <= lag + 1e-6, "the lag grew from {lag} to {}", -ahead(&mut fair, leaf));
        }
    }
}

/// wfq.16: a queue with requests under way is given back what it missed, up to its credit, at nobody's cost but the time that
/// this takes.
#[test]
fn a_queue_that_was_present_gets_back_what_it_missed_up_to_its_credit() {
    for (missed, credit, behind) in [(40, 100, 20.0), (400, 100, 100.0), (400, 0, 0.0)] {
        let (mut fair, [steady, also, present]) = queues([1, 1, 1]);
        let _ = [steady, also, present].map(|leaf| fair.activate(leaf, 10, Arrival::New));
        let _ = [0; 2].map(|_| slot(&mut fair, 10, true));
        assert_eq!(slot(&mut fair, 10, false), present);
        // The other two are served by turns; what each is served is what the third misses.
        (0..missed / 10).for_each(|_| assert_ne!(slot(&mut fair, 10, true), present));
        fair.activate(present, 10, Arrival::Present { credit });
        assert_eq!(-ahead(&mut fair, present), behind, "missed {missed}, credit {credit}");
        let before = [steady, also].map(|leaf| ahead(&mut fair, leaf));
        // It goes alone until that is made up for, and V rests meanwhile.
        let alone = (0..).take_while(|_| slot(&mut fair, 10, true) == present).count();
        assert!((alone as f64 - behind / 10.0).abs() <= 1.0, "{alone} slots of 10 for {behind}");
        let after = [steady, also].map(|leaf| ahead(&mut fair, leaf));
        assert!(before.iter().zip(after).all(|(before, after)| after > before - 10.0), "{before:?}, then {after:?}");
    }
}

/// wfq.15: the debt of a queue that lags is that queue's alone: it goes when the queue runs empty, moves or is removed, and is
/// not there twice when it comes back.
#[test]
fn a_queue_that_lags_takes_its_debt_along() {
    let debt = |fair: &mut FairQueue| {
        fair.settle();
        (fair.group(ROOT).trees[BE as usize].debt >> SHIFT) as u64
    };
    for goes in ["empty", "moves", "removed"] {
        let (mut fair, [steady, also, present]) = queues([1, 1, 2]);
        let group = fair.add_group(ROOT, 1);
        let _ = [steady, also, present].map(|leaf| fair.activate(leaf, 10, Arrival::New));
        assert_eq!(slot(&mut fair, 10, false), present);
        (0..20).for_each(|_| assert_ne!(slot(&mut fair, 10, true), present));
        fair.activate(present, 10, Arrival::Present { credit: 60 });
        assert_eq!((ahead(&mut fair, present), debt(&mut fair)), (-30.0, 60));
        assert_eq!(slot(&mut fair, 10, true), present);
        assert_eq!((ahead(&mut fair, present), debt(&mut fair)), (-25.0, 50));
        match goes {
            "empty" => {
                assert_eq!(slot(&mut fair, 10, false), present);
                assert_eq!((ahead(&mut fair, present), debt(&mut fair)), (-20.0, 0), "it asks for nothing");
                fair.activate(present, 10, Arrival::Present { credit: 60 });
                assert_eq!((ahead(&mut fair, present), debt(&mut fair)), (-20.0, 40), "and asks again");
            }
            "moves" => fair.move_queue(present, group),
            _ => fair.remove_queue(present),
        }
        if goes != "empty" {
            assert_eq!(debt(&mut fair), 0, "{goes}");
        }
    }
}

/// wfq.11: of a queue that is away, too, if it comes back with its lag.
#[test]
fn a_new_weight_keeps_the_lag_of_an_absent_queue_in_sectors() {
    let (mut fair, [steady, present]) = queues([10, 10]);
    let _ = [steady, present].map(|leaf| fair.activate(leaf, 10, Arrival::New));
    let _ = slot(&mut fair, 10, true);
    assert_eq!(slot(&mut fair, 10, false), present);
    (0..10).for_each(|_| assert_eq!(slot(&mut fair, 10, true), steady));
    let before = ahead(&mut fair, present);
    assert!(before < 0.0);
    fair.set_queue_weight(present, 100);
    assert!((ahead(&mut fair, present) - before / 10.0).abs() < 1e-9);
    fair.activate(present, 10, Arrival::Present { credit: 1000 });
    assert!((ahead(&mut fair, present) - before / 10.0).abs() < 1e-9, "in sectors it missed what it missed");
}

/// wfq.16: credit is no gift: a queue that has had its share has none, whatever is offered.
#[test]
fn a_queue_that_had_its_share_is_not_given_more_for_being_present() {
    let (mut fair, [steady, also, eager]) = queues([1; 3]);
    let _ = [steady, also, eager].map(|leaf| fair.activate(leaf, 10, Arrival::New));
    let mut served = [0_u64; 3];
    for _ in 0..3000 {
        let leaf = fair.select(Instant::ZERO).expect("somebody waits");
        fair.serve(10);
        served[leaf.0 as usize] += 10;
        fair.expire((leaf != eager).then_some(10));
        if leaf == eager {
            fair.activate(eager, 10, Arrival::Present { credit: 1000 });
        }
    }
    assert!(served.iter().all(|&sectors| sectors.abs_diff(10_000) <= 20), "{served:?}");
}

/// Groups of the root, each with a queue.
fn groups<const N: usize>(weights: [u32; N]) -> (FairQueue, [(GroupId, Leaf); N]) {
    let mut fair = FairQueue::new(&[Group::root()]);
    let groups = weights.map(|weight| {
        let group = fair.add_group(ROOT, weight);
        (group, fair.add_queue(group, BE, 1))
    });
    (fair, groups)
}

/// wfq.17: what waits in a throttled group waits, whatever comes or goes in it; released, the group is given back what it missed.
#[test]
fn a_held_group_waits_until_it_is_released() {
    let (mut fair, [(held, a), (_, b)]) = groups([1, 1]);
    let also = fair.add_queue(held, BE, 1);
    let _ = [a, b].map(|leaf| fair.activate(leaf, 10, Arrival::New));
    assert_eq!(fair.select(Instant::ZERO), Some(a));
    fair.serve(10);
    assert_eq!(fair.next_if_idle(), Some(b));
    fair.throttle(held);
    fair.activate(also, 10, Arrival::New);
    assert_eq!(fair.next_if_idle(), Some(b), "the slot of the held group will be its last");
    fair.expire(Some(10));
    let _ = [0; 10].map(|_| assert_eq!(slot(&mut fair, 10, true), b));
    assert!(fair.is_backlogged(a) && !fair.would_preempt(a));
    assert_eq!(slot(&mut fair, 10, false), b);
    assert_eq!(fair.select(Instant::ZERO), None, "all that waits is throttled");
    fair.activate(b, 10, Arrival::New);
    fair.unthrottle(held, Arrival::Present { credit: 45 });
    let turns = [0; 4].map(|_| slot(&mut fair, 10, true));
    assert!(!turns.contains(&b), "{turns:?}");
    let turns: Vec<Leaf> = (0..4).map(|_| slot(&mut fair, 10, true)).collect();
    assert!(turns.contains(&b), "{turns:?}");
}

/// 17
#[test]
fn what_a_held_group_is_asked_about_is_answered_as_if_it_waited() {
    let (mut fair, [(held, a), (other, b)]) = groups([3, 1]);
    let _ = [a, b].map(|leaf| fair.activate(leaf, 10, Arrival::New));
    assert_eq!(fair.select(Instant::ZERO), Some(a));
    fair.throttle(held);
    fair.expire(Some(10));
    assert_eq!((fair.share_of(a), fair.share_of(b)), (3 << 14, 1 << 16), "a share counts those that are not throttled");
    assert_eq!(fair.beside(held, 1000), 0, "something waits there");
    assert!(!fair.is_ahead(held), "it has had no more than its share");
    fair.charge(a, 300);
    assert!(fair.is_ahead(held) && !fair.is_ahead(other), "and now it has");
    assert_eq!(slot(&mut fair, 10, true), b);
}

/// wfq.17: streams move into and out of held groups, and change what they like; nobody is lost.
#[test]
fn queues_move_into_and_out_of_held_groups() {
    let (mut fair, [(held, a), (open, b)]) = groups([1, 1]);
    fair.throttle(held);
    let _ = [a, b].map(|leaf| fair.activate(leaf, 10, Arrival::New));
    fair.move_queue(b, held);
    assert_eq!(fair.select(Instant::ZERO), None, "both wait in the held group");
    fair.set_group_weight(held, 7);
    fair.set_queue_weight(a, 7);
    fair.set_budget(a, 3);
    fair.set_queue_class(b, PriorityClass::RealTime);
    fair.move_queue(a, open);
    assert_eq!(slot(&mut fair, 3, false), a);
    fair.unthrottle(held, Arrival::New);
    assert_eq!(fair.select(Instant::ZERO), Some(b));
    // In the middle of its slot the group is throttled, and b goes elsewhere.
    fair.throttle(held);
    fair.move_queue(b, open);
    assert_eq!(slot(&mut fair, 10, false), b);
    assert_eq!(fair.select(Instant::ZERO), None);
    fair.remove_group(held);
    let again = fair.add_group(ROOT, 1);
    assert_eq!(again, held, "its number comes back, and it is not throttled");
    fair.move_queue(a, again);
    fair.activate(a, 10, Arrival::New);
    assert_eq!(fair.select(Instant::ZERO), Some(a));
}

#[test]
#[should_panic(expected = "group 1 is throttled while it waits for its slot")]
fn a_group_that_waits_for_its_slot_is_not_held() {
    let (mut fair, [(group, leaf)]) = groups([1]);
    fair.activate(leaf, 8, Arrival::New);
    fair.throttle(group);
}

#[test]
#[should_panic(expected = "the root is throttled")]
fn the_root_is_not_held() {
    queues([1]).0.throttle(ROOT);
}

/// Charges: what a flush took is paid back in turns that others have, at every level.
#[test]
fn service_outside_of_slots_is_charged() {
    let mut fair = FairQueue::new(&[Group::root()]);
    let groups = [(); 2].map(|()| fair.add_group(ROOT, 10));
    let leaves = groups.map(|group| fair.add_queue(group, BE, 1));
    fair.activate(leaves[0], 10, Arrival::New);
    // Idle, in a group that is idle, and forgotten.
    fair.charge(leaves[1], 1000);
    fair.activate(leaves[1], 10, Arrival::New);
    let mut served = [0_u64; 2];
    for _ in 0..100 {
        served[usize::from(slot(&mut fair, 10, true) == leaves[1])] += 10;
    }
    assert_eq!(served, [1000, 0]);
    for _ in 0..100 {
        served[usize::from(slot(&mut fair, 10, true) == leaves[1])] += 10;
    }
    assert!(served[1].abs_diff(500) <= 10, "{served:?}");
}

/// Charges: of a group alone, none of its queues is poorer for it than another, and of the root, nobody.
#[test]
fn a_group_may_be_charged_by_itself() {
    let (mut fair, [(one, a), (_, b)]) = groups([1, 1]);
    let c = fair.add_queue(one, BE, 1);
    fair.charge_group(one, 500); // Nobody waits, so nobody is behind for it.
    let _ = [a, b, c].map(|leaf| fair.activate(leaf, 10, Arrival::New));
    let _ = [one, ROOT].map(|group| fair.charge_group(group, 500));
    let mut served = [0_u64; 3];
    for _ in 0..300 {
        let leaf = slot(&mut fair, 10, true);
        served[[a, b, c].iter().position(|one| *one == leaf).unwrap()] += 10;
    }
    assert!(served[0].abs_diff(served[2]) <= 10, "{served:?}");
    assert!(served[1].abs_diff(1750) <= 20, "{served:?}: of 3,000 and 500 the other group has half");
}

/// Nothing recurses: a group within a group, 60,000 deep.
#[test]
fn depth_has_no_limit() {
    let depth = if cfg!(miri) { 500 } else { 60_000 };
    let mut fair = FairQueue::new(&[Group::root()]);
    let mut group = ROOT;
    let mut leaves = vec![fair.add_queue(ROOT, BE, 1)];
    for _ in 0..depth {
        group = fair.add_group(group, 1);
    }
    leaves.push(fair.add_queue(group, BE, 1));
    leaves.iter().for_each(|&leaf| fair.activate(leaf, 8, Arrival::New));
    let picks: Vec<Leaf> = (0..6).map(|_| slot(&mut fair, 8, true)).collect();
    assert_eq!(picks.iter().filter(|&&leaf| leaf == leaves[0]).count(), 3);
    fair.remove_queue(leaves[1]);
}

#[test]
#[should_panic(expected = "queue 0 is backlogged already")]
fn a_backlogged_queue_is_not_activated() {
    let (mut fair, [leaf]) = queues([1]);
    fair.activate(leaf, 8, Arrival::New);
    fair.activate(leaf, 8, Arrival::New);
}

#[test]
#[should_panic(expected = "Leaf(0) is no queue, or was removed")]
fn a_removed_queue_is_gone() {
    let (mut fair, [leaf]) = queues([1]);
    fair.remove_queue(leaf);
    fair.activate(leaf, 8, Arrival::New);
}

#[test]
#[should_panic(expected = "is not between 1 and")]
fn weights_have_a_range() {
    let _ = queues([WEIGHT_MAX + 1]);
}
