//! Nobody waits for longer than the rules let the others go first.

use fairlift_core::time::{ms, secs, us};
use fairlift_core::{Duration, GroupId, PriorityClass};
use proptest::prelude::*;

use crate::sim::{Device, Sim};

/// Groups: weight, and of each stream its level and how many requests it keeps.
type Load = Vec<(u16, Vec<(u8, u32)>)>;

fn load() -> impl Strategy<Value = Load> {
    let streams = prop::collection::vec((0..8_u8, 1..20_u32), 1..4);
    prop::collection::vec((prop_oneof![Just(10), Just(1000), 50..500_u16], streams), 1..6)
}

fn start(device: Device, depth: usize, set: &[(&str, &str)], load: &Load) -> Sim {
    let mut sim = Sim::new(device, depth, set);
    for (weight, streams) in load {
        let group = sim.group(GroupId::ROOT, *weight);
        for (level, depth) in streams {
            sim.client(group, Sim::at(PriorityClass::BestEffort, *level), *depth);
        }
    }
    sim
}

/// A part of a load: how many parts like it there are in the whole.
fn parts(load: &Load, group: usize) -> f64 {
    load.iter().map(|(weight, _)| f64::from(*weight)).sum::<f64>() / f64::from(load[group].0)
}

fairlift_lab::proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// IOPS mode: its group has to be served for its own turns, and for as many of its neighbours as their levels say and two
    /// more of each; and the device for as many as its group's share says, two turns of each other group, the lead, and what
    /// is in it.
    #[test]
    fn in_iops_mode_nobody_waits_for_more_requests_than_shares_and_levels_allow_others(load in load()) {
        const QUANTUM: f64 = 8.0;
        let mut sim = start(Device::Parallel(8, us(100)), 32, &[], &load);
        sim.run(secs(1));
        let mut client = 0;
        for (group, (_, streams)) in load.iter().enumerate() {
            for (level, depth) in streams {
                let turns = (f64::from(*depth) / QUANTUM).ceil() + 1.0;
                let others = streams.iter().map(|(other, _)| {
                    turns * QUANTUM * f64::from(9 - other) / f64::from(9 - level) + 2.0 * QUANTUM
                });
                let requests = others.sum::<f64>() * parts(&load, group)
                    + 2.0 * QUANTUM * (load.len() as f64 + parts(&load, group))
                    + 32.0 + 32.0;
                // Where a group with few requests is waited for, the device serves one after the other.
                let bound = Duration::from_nanos((requests * 100_000.0) as u64);
                let waited = sim.clients[client].longest_wait;
                prop_assert!(waited <= bound, "stream {}: {} and not {}", client, waited, bound);
                client += 1;
            }
        }
    }

    /// Slices: the same in time. A turn is at most the slice of its level, the way there, and what the device then still has of
    /// it; a group keeps the device for its part of `target_latency` at the least.
    #[test]
    fn with_slices_nobody_waits_for_longer_than_shares_and_levels_allow_others(load in load()) {
        let mut sim = start(Device::Arm(ms(1), ms(9)), 8, &[], &load);
        sim.run(secs(40));
        let whole = load.len() as f64;
        let mut client = 0;
        for (group, (_, streams)) in load.iter().enumerate() {
            for (level, depth) in streams {
                // Each of its turns serves one at the least; most serve many, so few are needed.
                let turns = (f64::from(*depth) / 8.0).ceil() + 1.0;
                let turn = |level: u8| 20.0 * f64::from(9 - level) + 9.0 + 8.0 * 9.0;
                let others = streams.iter().map(|(other, _)| {
                    turns * turn(*level) * f64::from(9 - other) / f64::from(9 - level) + 2.0 * turn(*other)
                });
                let bound_ms = (others.sum::<f64>() + 2.0 * 300.0) * parts(&load, group) + whole * 2.0 * (300.0 + turn(0));
                let bound = ms(bound_ms as u64);
                let waited = sim.clients[client].longest_wait;
                prop_assert!(waited <= bound, "stream {}: {} and not {}", client, waited, bound);
                client += 1;
            }
        }
    }
}
