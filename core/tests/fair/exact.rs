//! Weights where everybody wants more: a tenant gets its weight's part, and not nearly.
//!
//! The tenants of a situation keep so many requests outstanding that each could do its part alone. Between an answer and the
//! next request a client is away for a while, as at the wire; the disks do more with every request that is in them, or are
//! full early; they answer one by one, or three quarters of what is in them at once.

use fairlift_core::time::{ms, secs, us};
use fairlift_core::{Duration, Op};

use crate::sim::{Answers, Device, EARLY, GROWING, STEEP, Sim};

/// Weight and depth of each tenant.
type Situation = (&'static str, &'static [(u16, u32)]);

const SITUATIONS: [Situation; 8] = [
    ("3:1, 64 each", &[(300, 64), (100, 64)]),
    ("3:1, 32 each", &[(300, 32), (100, 32)]),
    ("1:1, 64 beside 256", &[(100, 64), (100, 256)]),
    ("3:1, 128 beside 256", &[(300, 128), (100, 256)]),
    ("10:1, 128 each", &[(1000, 128), (100, 128)]),
    ("10:1, 256 each", &[(1000, 256), (100, 256)]),
    (
        "eight equal, 16 to 128",
        &[(100, 16), (100, 16), (100, 32), (100, 32), (100, 64), (100, 64), (100, 128), (100, 128)],
    ),
    ("four of 1 to 4, 32 each", &[(100, 32), (200, 32), (300, 32), (400, 32)]),
];

/// From an answer to the next request, on average: measured at the wire between a reply and the next request.
const AWAY: Duration = us(150);

fn with(device: Device, tenants: &[(u16, u32)], away: Duration, set: &[(&str, &str)]) -> Sim {
    let mut sim = Sim::new(device, 1024, set);
    for (weight, depth) in tenants {
        let client = sim.tenant(*weight, *depth);
        sim.clients[client].away = away;
    }
    sim.begin_all();
    sim
}

/// The most that any tenant is off from its part, in hundredths of the whole.
fn error(got: &[u64], parts: &[f64]) -> f64 {
    let (all, whole) = (got.iter().sum::<u64>() as f64, parts.iter().sum::<f64>());
    let off = got.iter().zip(parts).map(|(got, part)| (*got as f64 / all - part / whole).abs());
    100.0 * off.fold(0.0, f64::max)
}

/// What a disk does that answers one by one, with so many requests in it or on their way at most (Little's law).
fn with_lap(device: Device, most: f64, away: Duration) -> f64 {
    let fits = |inside: &usize| *inside as f64 + away.as_nanos() as f64 / 1e9 * (device.speed)(*inside) <= most;
    (1..=1024).take_while(fits).last().map_or(0.0, device.speed)
}

/// The most requests in a second at which each tenant can have its part on a disk that answers one by one: that with the fewest
/// requests for its part is the limit.
fn frontier(device: Device, tenants: &[(u16, u32)], parts: &[f64], away: Duration) -> f64 {
    let whole: f64 = parts.iter().sum();
    let laps = tenants.iter().zip(parts).map(|((_, depth), part)| f64::from(*depth) * whole / part);
    with_lap(device, laps.fold(f64::INFINITY, f64::min), away)
}

/// The answers of a disk, what they are called, the most error, and the least part of the frontier.
const ANSWERS: [(Answers, &str, f64, f64); 2] =
    [(Answers::Each, "one by one", 1.5, 0.95), (Answers::Part(0.75), "in lumps", 2.5, 0.9)];

/// fair.5: whatever the depths and whatever the disk, at a learned depth.
#[test]
fn shares_are_exact_where_everybody_wants_more() {
    let mut missed = vec![];
    for (disk, name) in [(GROWING, "growing"), (EARLY, "full early"), (STEEP, "steep")] {
        for (answers, how, most, least) in ANSWERS {
            for (situation, tenants) in SITUATIONS {
                let device = Device { answers, ..disk };
                let mut sim = with(device, tenants, AWAY, &[]);
                sim.run(secs(1));
                let got = sim.run(secs(3));
                let parts: Vec<f64> = tenants.iter().map(|(weight, _)| f64::from(*weight)).collect();
                let off = error(&got, &parts);
                let part = got.iter().sum::<u64>() as f64 / 3.0 / frontier(disk, tenants, &parts, AWAY);
                let depth = sim.counter("device_depth");
                println!(
                    "{name}, {how}, {situation}: off by {off:.1}, {part:.2} of the frontier, depth {depth} of {} to {}",
                    sim.counter("depth_least"),
                    sim.counter("depth_wanted")
                );
                if off > most || part < least {
                    missed.push(format!("{name}, {how}, {situation}: off by {off:.1}, {part:.2} of the frontier"));
                }
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// admission.1: also of clients that are as slow as fio's nbd engine, on disks that do more with more requests than the heavy tenant has:
/// of its 64 a third are on their way. One disk does half of its best with 78 of 256 requests.
#[test]
fn shares_are_exact_of_slow_clients_that_keep_less_than_fills_the_disk() {
    let root = |n: usize| 2000.0 * (n.min(256) as f64).powf(0.58);
    let slow = |n: usize| (STEEP.speed)(n) / 5.0;
    let mut missed = vec![];
    for (disk, name, away) in [
        (GROWING, "growing", us(400)),
        (STEEP, "steep", us(400)),
        (Device { speed: slow, ..STEEP }, "steep and slow", us(800)),
        (Device { speed: root, ..STEEP }, "a root of its requests", us(800)),
    ] {
        for (answers, how, ..) in ANSWERS {
            for light in [64, 128, 256] {
                let tenants = [(300, 64), (100, light)];
                let mut sim = with(Device { answers, ..disk }, &tenants, away, &[]);
                sim.run(secs(1));
                let got = sim.run(secs(4));
                let off = error(&got, &[3.0, 1.0]);
                let part = got.iter().sum::<u64>() as f64 / 4.0 / frontier(disk, &tenants, &[3.0, 1.0], away);
                println!("{name}, {how}, 64 beside {light}: off by {off:.1}, {part:.2} of the frontier");
                if off > 1.5 || part < 0.93 {
                    missed
                        .push(format!("{name}, {how}, 64 beside {light}: off by {off:.1}, {part:.2} of the frontier"));
                }
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Where the disk takes all that there is, and nothing waits, weights count all the same: what fewer places cost is found out.
#[test]
fn weights_count_where_the_disk_takes_all_that_there_is() {
    let mut sim = with(GROWING, &[(300, 16), (100, 16)], AWAY, &[]);
    sim.run(secs(1));
    let off = error(&sim.run(secs(2)), &[3.0, 1.0]);
    assert!(off < 2.0, "off by {off:.1}");
}

/// depth.6: weights count where there are more tenants than a disk needs requests, and most of what each asks is on its way.
#[test]
fn a_hundred_tenants_with_few_requests_each_share_by_weight() {
    let tenants: Vec<(u16, u32)> = (0..100).map(|n| (100 * (n % 4 + 1), 4)).collect();
    for answers in [Answers::Each, Answers::Part(0.75)] {
        let mut sim = with(Device { answers, ..EARLY }, &tenants, us(1500), &[]);
        sim.run(secs(2));
        let got = sim.run(secs(3));
        let class = |class: usize| got.iter().skip(class).step_by(4).sum::<u64>();
        let off = error(&[class(0), class(1), class(2), class(3)], &[1.0, 2.0, 3.0, 4.0]);
        let part = got.iter().sum::<u64>() as f64 / 3.0 / (EARLY.speed)(64);
        println!("off by {off:.1}, {part:.2} of the disk, depth {}", sim.counter("device_depth"));
        assert!(off < 2.0 && part > 0.9, "off by {off:.1}, {part:.2} of the disk");
    }
}

/// A weight that is changed acts within 0.3 s, on disks of 100,000 requests a second.
#[test]
fn another_weight_acts_within_three_tenths_of_a_second() {
    for disk in [GROWING, EARLY] {
        let mut sim = with(disk, &[(300, 64), (100, 64)], AWAY, &[]);
        sim.run(secs(2));
        sim.weigh(sim.streams[0].group, 100);
        sim.weigh(sim.streams[1].group, 300);
        sim.run(ms(300));
        let off = error(&sim.run(ms(200)), &[1.0, 3.0]);
        assert!(off < 4.0, "off by {off:.1}");
    }
}

/// depth.4: another weight acts within 1.5 s also where the share can be had only with fewer requests in the disk than were ever tried, on a slow
/// disk that eight requests fill. In the first second of a load it takes longer.
#[test]
fn another_weight_acts_soon_where_it_takes_a_depth_that_was_never_tried() {
    let slow = |n: usize| (EARLY.speed)(n * 4) / 27.0;
    let mut late = vec![];
    for before in 3..=12 {
        let mut sim = with(Device { speed: slow, ..EARLY }, &[(100, 8), (300, 32)], AWAY, &[]);
        sim.run(ms(500 * before));
        sim.weigh(sim.streams[0].group, 600);
        sim.run(ms(1500));
        let off = error(&sim.run(secs(1)), &[600.0, 300.0]);
        if off > 4.0 {
            late.push(format!("after {} ms: off by {off:.1}", 500 * before));
        }
    }
    assert!(late.is_empty(), "{late:#?}");
}

/// A tenant that comes or goes: the others have theirs within half a second.
#[test]
fn a_tenant_that_comes_or_goes_is_made_room_for_within_half_a_second() {
    let mut sim = with(GROWING, &[(100, 64), (200, 64), (300, 64)], AWAY, &[]);
    sim.run(secs(2));
    for _ in 0..3 {
        let newcomer = sim.tenant(400, 64);
        sim.clients[newcomer].away = AWAY;
        sim.begin(newcomer);
        sim.run(ms(500));
        let got = sim.run(ms(300));
        let now = [&got[..3], &got[newcomer..=newcomer]].concat();
        assert!(error(&now, &[1.0, 2.0, 3.0, 4.0]) < 4.0, "came: {now:?}");
        sim.clients[newcomer].stops = sim.now;
        sim.run(ms(500));
        let got = &sim.run(ms(300))[..3];
        assert!(error(got, &[1.0, 2.0, 3.0]) < 4.0, "went: {got:?}");
    }
}

/// Reads beside writes, small beside large: in the disk's time, once costs are learned.
#[test]
fn kinds_that_differ_share_the_disks_time() {
    let work = |request: &fairlift_core::sched::Waiting| {
        let op = if request.op == Op::Write { 1.6 } else { 1.0 };
        crate::sim::one(request) * op * (1.0 + 0.06 * (request.extent.sectors as f64 / 2.0 - 4.0))
    };
    for (op, sectors, depth) in [(Op::Write, 8, 64), (Op::Read, 128, 32)] {
        let mut sim = with(Device { work, ..GROWING }, &[(100, 64), (100, depth)], AWAY, &[]);
        (sim.clients[1].op, sim.clients[1].sectors) = (op, sectors);
        sim.run(secs(2));
        let off = error(&sim.run_for_work(secs(3)), &[1.0, 1.0]);
        assert!(off < 5.0, "{op:?} of {sectors} sectors: off by {off:.1}");
    }
}
