//! The bound of the fair queue at every instant, for what is dispatched, with costs for budgets: see the header of
//! `fair_queue`. Tenants are always backlogged, and none is held.

use std::collections::BTreeMap;

use fairlift_core::{GroupId, Op, PriorityClass};
use fairlift_lab::Random;
use fairlift_lab::repeat::{named, seeds};

use crate::rules::{Hand, cost};

/// A group or a stream, as its siblings see it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Child {
    Group(u16),
    Stream(usize),
}

#[derive(Debug)]
struct One {
    above: u16,
    weight: f64,
    /// The largest request, and what it was served.
    largest: f64,
    served: f64,
}

/// Siblings that are backlogged all the time are never further apart, in service ÷ weight, than the largest requests of
/// theirs allow.
#[test]
fn siblings_are_never_further_apart_than_the_bound() {
    let mut worst: f64 = 0.0;
    for seed in seeds(0..60) {
        let mut random = Random::new(seed);
        let depth = [1, 4, 32][seed as usize % 3];
        let mut hand = Hand::new(depth);
        let mut children = BTreeMap::new();
        for _ in 0..random.below(6) {
            let above = random.below(hand.groups.len() as u64) as u16;
            let weight = 1 + random.below(1000) as u16;
            let group = hand.group(GroupId(above), weight);
            children.insert(Child::Group(group.0), One { above, weight: weight.into(), largest: 0.0, served: 0.0 });
        }
        // A group without streams of its own or below it is never backlogged; here each has one.
        let groups = hand.groups.len() as u64;
        for n in 0..groups + random.below(8) {
            let above = if n < groups { n } else { random.below(groups) } as u16;
            let level = random.below(8) as u8;
            let stream = hand.stream(GroupId(above), PriorityClass::BestEffort, level);
            let weight = f64::from(8 - level) * 10.0;
            children.insert(Child::Stream(stream), One { above, weight, largest: 0.0, served: 0.0 });
        }
        let sizes: Vec<u64> = (0..hand.streams.len()).map(|_| 8 << random.below(9)).collect();
        let path = |children: &BTreeMap<Child, One>, stream: usize| {
            let (mut path, mut at) = (vec![Child::Stream(stream)], children[&Child::Stream(stream)].above);
            while at != 0 {
                path.push(Child::Group(at));
                at = children[&Child::Group(at)].above;
            }
            path
        };
        for (stream, most) in sizes.iter().enumerate() {
            for child in path(&children, stream) {
                let one = children.get_mut(&child).unwrap();
                one.largest = one.largest.max(cost(*most) as f64);
            }
        }
        let ask = |hand: &mut Hand, random: &mut Random, stream: usize| {
            let op = if random.below(2) == 0 { Op::Read } else { Op::Write };
            hand.asks(stream, op, 8 * (1 + random.below(sizes[stream] / 8)));
        };
        for stream in 0..sizes.len() {
            (0..3).for_each(|_| ask(&mut hand, &mut random, stream));
        }
        // Of each pair: the least and the greatest that one was ahead of the other.
        let mut apart: BTreeMap<(Child, Child), (f64, f64)> = BTreeMap::new();
        for _ in 0..1500 {
            while let Some(stream) = hand.goes() {
                let request = hand.out[hand.out.len() - 1];
                for child in path(&children, stream) {
                    children.get_mut(&child).unwrap().served += cost(request.extent.sectors) as f64;
                }
                ask(&mut hand, &mut random, stream);
                for (one, a) in &children {
                    for (other, b) in children.iter().filter(|(other, b)| *other > one && b.above == a.above) {
                        let ahead = a.served / a.weight - b.served / b.weight;
                        let (low, high) = apart.entry((*one, *other)).or_insert((0.0, 0.0));
                        (*low, *high) = (low.min(ahead), high.max(ahead));
                        let siblings = || children.values().filter(|child| child.above == a.above);
                        let all: f64 = siblings().map(|child| child.weight).sum();
                        let largest = siblings().map(|child| child.largest).fold(0.0, f64::max);
                        let bound = 2.0 * a.largest / a.weight
                            + 2.0 * b.largest / b.weight
                            + (2.0 * largest - a.largest - b.largest) / all;
                        worst = worst.max((*high - *low) / bound);
                        assert!(*high - *low <= bound * (1.0 + 1e-6), "seed {seed}: {one:?} and {other:?}");
                    }
                }
            }
            assert_eq!(hand.out.len(), usize::from(depth));
            let nth = random.below(hand.out.len() as u64) as usize;
            hand.out.swap(0, nth);
            hand.ends();
        }
    }
    println!("two siblings apart by {worst:.3} of the bound");
    assert!(worst > 0.2 || named().is_some(), "{worst}: the loads look nowhere near the bound");
}
