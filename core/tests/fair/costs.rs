//! What is learned of costs, beside what a device does of each kind alone.

use fairlift_core::sched::Waiting;
use fairlift_core::time::secs;
use fairlift_core::{Bytes, Op};

use crate::sim::{Answers, Device, Sim, one};

/// What a tenant asks for.
#[derive(Clone, Copy, PartialEq, Debug)]
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

/// A device on which tenants of equal weights ask for these kinds, and keep so many requests outstanding each.
fn served(device: Device, kinds: &[Kind], depth: u32, set: &[(&str, &str)]) -> Sim {
    let mut sim = Sim::new(device, 128, set);
    for Kind { op, kib } in kinds {
        let client = sim.tenant(100, depth);
        let client = &mut sim.clients[client];
        (client.op, client.sectors) = (*op, 2 * kib);
    }
    sim
}

/// How long a device takes for one of a kind that is alone.
fn takes(device: Device, kind: Kind) -> f64 {
    let mut sim = served(device, &[kind], 32, &[("device_depth", "64")]);
    sim.begin_all();
    2.0 / sim.run(secs(2))[0] as f64
}

/// What one of a kind is thought to take.
fn thought(sim: &Sim, kind: Kind) -> f64 {
    let [rate, iops] =
        if kind.op == Op::Read { ["cost_rbps", "cost_rrandiops"] } else { ["cost_wbps", "cost_wrandiops"] };
    1.0 / sim.counter(iops) as f64 + (kind.kib - 4) as f64 * 1024.0 / sim.counter(rate) as f64
}

/// By how many per cent the first of two is thought to be too dear beside the second, after 2 and after 4 s.
fn off(device: Device, is_cloud: bool, kinds: [Kind; 2], depth: u32, image: Option<u64>) -> [f64; 2] {
    let mut sim = served(device, &kinds, depth, &[]);
    sim.clients.iter_mut().for_each(|client| client.image = image);
    sim.begin_all();
    // A cloud's volume has credit at first, and is three times as fast.
    sim.slowness = if is_cloud { 1.0 / 3.0 } else { 1.0 };
    sim.run(secs(1));
    sim.slowness = 1.0;
    let right = takes(device, kinds[0]) / takes(device, kinds[1]);
    [1, 2].map(|seconds| {
        sim.run(secs(seconds));
        100.0 * (thought(&sim, kinds[0]) / thought(&sim, kinds[1]) / right - 1.0)
    })
}

const PAIRS: [[Kind; 2]; 5] = [
    [reads(64), reads(4)],
    [reads(256), reads(4)],
    [writes(4), reads(4)],
    [writes(64), reads(4)],
    [reads(128), writes(16)],
];

/// cost.2, cost.6: what matters to shares is what a request costs beside another. Of loads that differ by a request or two the middle one
/// counts: a disk that does 230 large reads a second tells little in 2 s, and one load says as much of chance.
#[test]
fn costs_are_right_beside_each_other_after_two_seconds() {
    let mut wrong = vec![];
    for (name, device) in [("I/Os", BY_IOS), ("bandwidth", BY_BANDWIDTH), ("both", BY_BOTH), ("tokens", BY_TOKENS)] {
        for kinds in PAIRS {
            let all = [28, 30, 32, 34, 36].map(|depth| off(device, name == "tokens", kinds, depth, None));
            for (at, seconds) in [2, 4].into_iter().enumerate() {
                let mut all = all.map(|off| off[at]);
                all.sort_by(f64::total_cmp);
                let [least, _, middle, _, most] = all;
                // 230 of 256 KiB a second are not known better yet (docs/tried.md).
                let may = if name == "bandwidth" && kinds == PAIRS[1] { 40.0 } else { 15.0 };
                if middle.abs() > may {
                    wrong.push(format!(
                        "{name}: {kinds:?}: {least:+.0} to {most:+.0} %, {middle:+.0}, after {seconds} s"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// cost.6: a tenant that reads anywhere in an image of 192 MiB asks for a near one each sixth time, by chance. Trials of near ones alone told nothing,
/// and took most of the time.
#[test]
fn trials_tell_of_tenants_that_read_anywhere_in_a_small_image() {
    let mut wrong = vec![];
    for (name, device) in [("I/Os", BY_IOS), ("bandwidth", BY_BANDWIDTH), ("both", BY_BOTH)] {
        for kinds in [PAIRS[0], PAIRS[2], PAIRS[3]] {
            let mut all =
                [28, 29, 30, 31, 32, 33, 34, 35, 36].map(|depth| off(device, false, kinds, depth, Some(393_216))[0]);
            all.sort_by(f64::total_cmp);
            println!("{name}: {kinds:?}: {all:.0?}");
            if all[4].abs() > 15.0 {
                wrong.push(format!("{name}: {kinds:?}: {all:.0?} %"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
