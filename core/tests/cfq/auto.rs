//! `slice_idle=auto`: the device finds out, and shares hold meanwhile.

use fairlift_core::GroupId;
use fairlift_core::learn::idling_trial::Way;
use fairlift_core::sched::traits::*;
use fairlift_core::time::{ms, secs};
use fairlift_core::trace::Note;

use crate::sim::{Device, Sim, assert_shares};

/// Groups of these weights with a reader each, of so many requests at a time, on a device that is left to find out.
fn sim(device: Device, weights: &[u16], requests: u32) -> Sim {
    let mut sim = Sim::new(device, 32, &[("slice_idle", "auto")]);
    for weight in weights {
        let group = sim.group(GroupId::ROOT, *weight);
        sim.reader(group, requests);
    }
    sim
}

/// What was found: from, to.
fn found(sim: &mut Sim) -> Vec<(Way, Way)> {
    let messages = std::iter::from_fn(|| sim.cfq.poll_message());
    let findings = messages.filter_map(|message| match message.note {
        Note::Compared(finding) => Some((finding.from, finding.to)),
        _ => None,
    });
    findings.collect()
}

#[test]
fn an_arm_is_held_idle_and_a_dozen_of_them_are_not() {
    let mut arm = sim(Device::Arm(ms(1), ms(9)), &[100; 8], 1);
    arm.run(secs(3));
    assert!(found(&mut arm).iter().all(|(_, to)| *to == Way::Idle));
    // It says that it rotates, and does not care where it reads: 12 at a time.
    let mut arms = sim(Device::Arm(ms(1), ms(9)), &[100; 8], 1);
    arms.device = Device::Parallel(12, ms(2));
    arms.run(secs(2));
    assert_eq!(found(&mut arms), [(Way::Idle, Way::Parallel)]);
}

#[test]
fn shares_hold_while_ways_are_tried_and_after() {
    for (device, requests) in [(Device::Arm(ms(1), ms(9)), 4), (Device::Parallel(8, ms(1)), 16)] {
        let mut sim = sim(device, &[100, 200, 300], requests);
        let got = sim.run(secs(20));
        assert_shares(&got, &[1, 2, 3], 10.0);
        assert!(!found(&mut sim).is_empty(), "nothing was tried");
    }
}

#[test]
fn the_same_requests_give_the_same_ways() {
    let run = || {
        let mut sim = sim(Device::Parallel(4, ms(1)), &[100, 300], 8);
        (sim.run(secs(15)), found(&mut sim))
    };
    assert_eq!(run(), run());
}
