//! What is learned of costs, beside what a device does of each kind alone.

use fairlift_core::sched::Waiting;
use fairlift_core::time::secs;
use fairlift_core::{Bytes, Op};

use crate::sim::{Answers, Device, Sim, one};

/// What a tenant asks for.
#[derive(Clone, Copy, Debug)]
struct Kind {
    op: Op,
    kib: u64,
}

const fn reads(kib: u64) -> Kind {
    Kind { op: Op::Read, kib }
}

const fn writes(kib: u64) -> Kind {
    Kind { op: Op::Write, kib }
}

fn kib(request: &Waiting) -> f64 {
    Bytes::of(request.extent.sectors).get() as f64 / 1024.0
}

/// A device without a queue, of one unit of work a second.
const fn bound(work: fn(&Waiting) -> f64) -> Device {
    Device { speed: |_| 1.0, work, answers: Answers::Each }
}

/// 20,000 requests a second, whatever they are.
const BY_IOS: Device = bound(|request| one(request) / 20e3);
/// 60 MB a second.
const BY_BANDWIDTH: Device = bound(|request| one(request) * kib(request) / 58_594.0);
/// A request takes as long as 32 KiB, a write twice as long as a read.
const BY_BOTH: Device = bound(|request| {
    let times = if request.op == Op::Read { 1.0 } else { 2.0 };
    one(request) * times * (32.0 + kib(request)) / 600e3
});
/// A volume of a cloud: 16 KiB are an I/O, of which there are 10,000 a second.
const BY_TOKENS: Device = bound(|request| one(request) * (kib(request) / 16.0).ceil() / 10e3);

/// A device on which tenants of equal weights ask for these kinds.
fn asked(device: Device, kinds: &[Kind], set: &[(&str, &str)]) -> Sim {
    let mut sim = Sim::new(device, 128, set);
    for Kind { op, kib } in kinds {
        let client = sim.tenant(100, 32);
        let client = &mut sim.clients[client];
        (client.op, client.sectors) = (*op, 2 * kib);
    }
    sim
}

/// How long a device takes for one of a kind that is alone.
fn takes(device: Device, kind: Kind) -> f64 {
    let mut sim = asked(device, &[kind], &[("device_depth", "64")]);
    sim.begin_all();
    2.0 / sim.run(secs(2))[0] as f64
}

/// What one of a kind is thought to take.
fn thought(sim: &Sim, kind: Kind) -> f64 {
    let [rate, iops] =
        if kind.op == Op::Read { ["cost_rbps", "cost_rrandiops"] } else { ["cost_wbps", "cost_wrandiops"] };
    1.0 / sim.counter(iops) as f64 + (kind.kib - 4) as f64 * 1024.0 / sim.counter(rate) as f64
}

/// By how many per cent the first is thought to be too dear beside the second.
fn off(sim: &Sim, device: Device, [one, other]: [Kind; 2]) -> f64 {
    let right = takes(device, one) / takes(device, other);
    100.0 * (thought(sim, one) / thought(sim, other) / right - 1.0)
}

const PAIRS: [[Kind; 2]; 5] = [
    [reads(64), reads(4)],
    [reads(256), reads(4)],
    [writes(4), reads(4)],
    [writes(64), reads(4)],
    [reads(128), writes(16)],
];

/// cost.2, cost.6: what matters to shares is what a request costs beside another.
#[test]
fn costs_are_right_beside_each_other_after_two_seconds() {
    let mut wrong = vec![];
    for (name, device) in [("I/Os", BY_IOS), ("bandwidth", BY_BANDWIDTH), ("both", BY_BOTH), ("tokens", BY_TOKENS)] {
        for kinds in PAIRS {
            let mut sim = asked(device, &kinds, &[]);
            sim.begin_all();
            // A cloud's volume has credit at first, and is three times as fast.
            sim.slowness = if name == "tokens" { 1.0 / 3.0 } else { 1.0 };
            sim.run(secs(1));
            sim.slowness = 1.0;
            for seconds in [2, 4] {
                sim.run(secs(seconds / 2));
                let off = off(&sim, device, kinds);
                if off.abs() > 15.0 {
                    wrong.push(format!("{name}: {kinds:?}: {off:+.0} % after {seconds} s"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
