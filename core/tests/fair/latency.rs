//! Latencies as tenants see them: others make room for one, as much as it takes and no more; and one that cannot be
//! kept costs little.
//!
//! A reader keeps one request outstanding, and takes 50 µs from an answer to the next, on disks that are as dull as
//! those of the other scenarios, which answer one by one or many at once.

use fairlift_core::objective::Room;
use fairlift_core::sched::Waiting;
use fairlift_core::sched::traits::*;
use fairlift_core::time::{ms, secs, us};
use fairlift_core::{Duration, GroupId, Op};

use crate::sim::{Answers, DISK, Device, EARLY, GROWING, Sim, assert_shares, one};

const LUMPS: Device = Device { answers: Answers::Part(0.75), ..GROWING };
const PAUSE: Duration = us(50);

/// A reader of depth 1 with a target, beside others of some weight and depth.
fn beside(device: Device, target: Duration, others: &[(u16, u32)]) -> Sim {
    let mut sim = Sim::new(device, 1024, &[]);
    let reader = sim.tenant(100, 1);
    sim.clients[reader].away = PAUSE;
    sim.target(reader, Some(target));
    for (weight, depth) in others {
        let other = sim.tenant(*weight, *depth);
        sim.clients[other].away = PAUSE;
    }
    sim
}

/// What all clients do in a second without any target, in the disk's units.
fn without(sim: impl Fn() -> Sim) -> f64 {
    let mut sim = sim();
    sim.target(0, None);
    sim.begin_all();
    sim.run(secs(2));
    sim.run_for_work(secs(3)).iter().sum::<u64>() as f64
}

fn room(sim: &Sim, client: usize) -> Room {
    sim.fair.room(sim.now, sim.streams[client].group)
}

/// The target is met in 19 of 20 seconds, most of the disk is in use, and nobody waits for long.
fn assert_kept(name: &str, sim: impl Fn() -> Sim, least_use: f64) {
    let all = without(&sim);
    let mut sim = sim();
    sim.begin_all();
    sim.run(secs(2));
    let got = sim.run_for_work(secs(20)).iter().sum::<u64>() as f64 * 3.0 / 20.0;
    let (met, part) = (sim.met(0, 2), got / all);
    println!("{name}: met in {met:.2}, {part:.2} of the disk in use, {:?}", room(&sim, 0));
    assert!(met >= 0.95 && part >= least_use, "{name}: met in {met:.2}, {part:.2} of the disk in use");
    for (at, client) in sim.clients.iter().enumerate() {
        assert!(client.longest_wait < ms(100), "{name}: {at} waited {}", client.longest_wait);
    }
}

/// fair.12, latency.1
#[test]
fn a_reader_is_answered_in_time_beside_64_reads() {
    for (name, device, target) in [
        ("growing", GROWING, us(350)),
        ("full early", EARLY, us(250)),
        ("lumps", LUMPS, us(700)),
        ("it is kept anyway", GROWING, ms(2)),
    ] {
        assert_kept(name, || beside(device, target, &[(100, 64)]), 0.6);
    }
}

/// fair.12: large writes cost so many small reads, and few of them are many.
#[test]
fn a_reader_is_answered_in_time_beside_large_writes() {
    let work = |request: &Waiting| one(request) * if request.op == Op::Write { 60.0 } else { 1.0 };
    for answers in [Answers::Each, Answers::Every(us(20))] {
        let sim = || {
            let mut sim = beside(Device { work, answers, ..GROWING }, us(160), &[(100, 8)]);
            (sim.clients[1].op, sim.clients[1].sectors) = (Op::Write, 2048);
            sim
        };
        assert_kept("large writes", sim, 0.6);
    }
}

/// fair.12: weights divide what is left.
#[test]
fn others_share_by_weight_what_is_left() {
    let mut sim = beside(GROWING, us(400), &[(300, 64), (100, 64)]);
    sim.begin_all();
    sim.run(secs(3));
    let got = sim.run(secs(5));
    assert_shares(&got[1..], &[3, 1], 6.0);
    assert!(sim.met(0, 3) >= 0.8, "{}", sim.met(0, 3));
}

/// A target acts within a second of being set, and its places come back within three once it goes.
#[test]
fn a_target_may_come_and_go() {
    let mut sim = beside(GROWING, us(300), &[(100, 64)]);
    sim.target(0, None);
    sim.begin_all();
    sim.run(secs(2));
    let before = sim.run(secs(1))[1];
    sim.target(0, Some(us(300)));
    sim.run(secs(1));
    let during = sim.run(secs(1));
    assert!(room(&sim, 0) == Room::Made && (during[1] as f64) < 0.85 * before as f64, "{during:?} of {before}");
    sim.target(0, None);
    sim.run(secs(1));
    let after = sim.run(secs(1))[1];
    assert!(after as f64 > 0.97 * before as f64, "{after} of {before}");
}

/// latency.4: a target below what the empty disk does is given up, and costs little.
#[test]
fn a_target_that_nobody_can_keep_is_given_up() {
    let all = without(|| beside(GROWING, us(1), &[(100, 64)]));
    let mut sim = beside(GROWING, us(1), &[(100, 64)]);
    sim.begin_all();
    sim.run(secs(3));
    assert_eq!(room(&sim, 0), Room::GivenUp);
    let got = sim.run_for_work(secs(60)).iter().sum::<u64>() as f64 / 20.0;
    assert!(got > 0.9 * all, "{:.2} of what it is without", got / all);
}

/// latency.5: of a reader that is away others know nothing after a second.
#[test]
fn a_reader_that_is_away_is_no_reason_to_make_room() {
    let mut sim = beside(GROWING, us(250), &[(100, 64)]);
    sim.begin_all();
    sim.run(secs(2));
    sim.clients[0].stops = sim.now;
    sim.run(ms(1100));
    assert_eq!(room(&sim, 0), Room::Enough);
    let got = sim.run(secs(1))[1];
    assert!(got > 90_000, "{got}");
}

/// Targets of a nanosecond and of an hour, on one, on all and on the root, on disks that are even and that stall.
#[test]
fn targets_may_be_anything_and_nobody_waits_for_a_second() {
    for device in [DISK, LUMPS] {
        for targets in [vec![1, 1, 1, 1, 1], vec![1, 3_600_000_000_000, 300_000, u64::MAX, 0], vec![300_000; 5]] {
            let mut sim = beside(device, Duration::from_nanos(targets[0]), &[(100, 4), (300, 64), (1, 1), (1000, 256)]);
            for (client, target) in targets.iter().enumerate().skip(1) {
                sim.target(client, Some(Duration::from_nanos(*target)));
            }
            sim.fair.set_latency(sim.now, GroupId::ROOT, Some(Duration::from_nanos(targets[1])));
            sim.begin_all();
            sim.run(secs(2));
            for slowness in [10.0, 1.0] {
                sim.slowness = slowness;
                let got = sim.run(secs(3));
                assert!(got.iter().all(|got| *got > 0), "{targets:?}: {got:?}");
            }
            for (at, client) in sim.clients.iter().enumerate() {
                assert!(client.longest_wait < secs(1), "{targets:?}: {at} waited {}", client.longest_wait);
            }
            (0..5).for_each(|client| sim.target(client, None));
            sim.clients.iter_mut().for_each(|client| client.stops = fairlift_core::Instant::ZERO);
            sim.run(secs(5));
            assert!(sim.fair.is_empty());
        }
    }
}
