//! What tenants get of a device in virtual time.

use fairlift_core::sched::Waiting;
use fairlift_core::sched::traits::*;
use fairlift_core::time::{ms, secs, us};
use fairlift_core::{GroupId, Op, Priority, PriorityClass};

use crate::sim::{Answers, DISK, Device, EARLY, EIGHT, Sim, assert_shares, one};

/// fair.2, fair.5
#[test]
fn tenants_that_could_use_all_of_the_device_get_their_weights_parts() {
    // With fewer places than requests are each tenant's part, places are shared by turns.
    for (depth, percent) in [("1", 1.0), ("2", 1.0), ("3", 12.0), ("5", 8.0), ("8", 2.5), ("16", 2.5), ("64", 2.5)] {
        let mut sim = Sim::new(DISK, 128, &[("device_depth", depth)]);
        for weight in [100, 200, 300, 400] {
            let client = sim.tenant(weight, 32);
            sim.clients[client].think = us(60);
        }
        sim.begin_all();
        sim.run(secs(1));
        let got = sim.run(secs(2));
        assert_shares(&got, &[1, 2, 3, 4], percent);
    }
}

/// fair.5: a tenant with one request at a time finds its place free, beside one that has all others.
#[test]
fn a_lone_reader_does_not_wait_for_a_deep_one() {
    for depth in [2, 8, 24, 64] {
        let set = depth.to_string();
        let mut sim = Sim::new(DISK, 128, &[("device_depth", &set)]);
        let [lone, deep] = [1, 64].map(|depth| sim.tenant(100, depth));
        sim.clients[lone].think = us(50);
        sim.clients[deep].think = us(50);
        sim.begin_all();
        sim.run(secs(1));
        let got = sim.run(secs(2));
        // What it would get if it never waited for a place.
        let each = f64::from(depth) / (DISK.speed)(depth as usize) + 51e-6;
        assert!(got[lone] as f64 >= 0.9 * 2.0 / each, "depth {depth}: {got:?}, and without waiting {:.0}", 2.0 / each);
        assert!(sim.most_inside <= depth as usize, "{} in the device", sim.most_inside);
    }
}

/// fair.5: a device that takes 64, works for a while, and answers all at once, to clients that come back a moment later.
#[test]
fn a_device_that_answers_in_lumps_is_shared_by_weight_too() {
    let mut sim = Sim::new(Device { answers: Answers::Every(us(800)), ..DISK }, 64, &[("device_depth", "64")]);
    for weight in [100, 200, 300, 400] {
        let client = sim.tenant(weight, 32);
        sim.clients[client].think = us(100);
    }
    sim.begin_all();
    sim.run(secs(1));
    // Of 64 places the parts are 6.4, 12.8, 19.2 and 25.6: a request more or less is a tenth.
    assert_shares(&sim.run(secs(2)), &[1, 2, 3, 4], 11.0);
}

/// fair.5, fair.6: what a tenant does not use goes to the others, by weight.
#[test]
fn a_tenant_with_one_request_at_a_time_leaves_the_rest_to_the_others() {
    let mut sim = Sim::new(DISK, 128, &[]);
    let lone = sim.tenant(400, 1);
    for weight in [100, 200, 300] {
        sim.tenant(weight, 32);
    }
    sim.begin_all();
    sim.run(secs(3));
    let got = sim.run(secs(2));
    assert_shares(&got[1..], &[1, 2, 3], 4.0);
    assert!(got[lone] >= 2 * 1_700, "{got:?}: the depth comes down for a tenant with one request");
    // At 64 it would have had 99,000 ÷ 64 a second.
    assert!(sim.counter("device_depth") < 64, "{}", sim.counter("device_depth"));
}

/// depth.5: of the best that the device can do, 85 %.
#[test]
fn a_tenant_that_lacks_costs_no_more_than_isolation_cost() {
    let mut sim = Sim::new(DISK, 128, &[]);
    sim.tenant(400, 1);
    for weight in [100, 200, 300] {
        sim.tenant(weight, 32);
    }
    sim.begin_all();
    sim.run(secs(10));
    let all = sim.run(secs(2)).iter().sum::<u64>();
    assert!(all >= 2 * 83_000, "{all} in two seconds, and 99,000 in each are possible");
}

/// admission.1: readers that are mostly on their way could not use the places that a deep neighbour would lose. With their requests averaged over
/// the time in which they had one, the disk did a quarter of what it does.
#[test]
fn a_deep_tenant_loses_little_for_readers_that_are_mostly_away() {
    for (device, readers, away) in
        [(EIGHT, 2, us(100)), (EIGHT, 2, us(150)), (EIGHT, 4, us(250)), (EIGHT, 8, us(250)), (EARLY, 8, us(250))]
    {
        let rate = |set: &[(&str, &str)]| {
            let mut sim = Sim::new(device, 128, set);
            for _ in 0..readers {
                let client = sim.tenant(100, 1);
                sim.clients[client].away = away;
            }
            sim.tenant(100, 64);
            sim.begin_all();
            sim.run(secs(5));
            sim.run(secs(2)).iter().sum::<u64>()
        };
        let (free, had) = (rate(&[("device_depth", "64")]), rate(&[]));
        assert!(10 * had >= 8 * free, "{readers} readers {away:?} away: {had} of {free}");
    }
}

/// fair.4, admission.3: a share is no reason for fewer requests than a setting asks for.
#[test]
fn a_depth_that_is_given_is_the_depth() {
    let network = Device { speed: |n| 1000.0 * n as f64, ..EIGHT };
    let mut sim = Sim::new(network, 512, &[("device_depth", "256")]);
    sim.tenant(300, 16);
    sim.tenant(100, 256);
    sim.begin_all();
    sim.run(secs(3));
    let all = sim.run(secs(1)).iter().sum::<u64>();
    assert!(all > 230_000, "{all}, and 256 requests do 256,000");
}

/// admission.1, admission.3: readers whose clients are away between their reads cannot use more than they have. One was thought to be able to, the disk
/// had one request at a time for its sake, and each reader a quarter of what it does alone.
#[test]
fn readers_with_one_request_each_lose_no_more_than_isolation_cost() {
    let rate = |device, away, set: &[(&str, &str)]| {
        let mut sim = Sim::new(device, 128, set);
        for weight in [100, 200, 300, 400] {
            let client = sim.tenant(weight, 1);
            sim.clients[client].away = away;
        }
        sim.begin_all();
        sim.run(secs(5));
        sim.run(secs(2)).iter().sum::<u64>()
    };
    for (device, name) in [(EIGHT, "eight at once"), (DISK, "virtual")] {
        for away in [us(20), us(60), us(150)] {
            let free = rate(device, away, &[("device_depth", "64")]);
            let had = rate(device, away, &[]);
            assert!(20 * had >= 17 * free, "{name}, {away:?} away: {had} of {free}");
        }
    }
}

/// fair.6
#[test]
fn a_tenant_that_is_alone_has_all_of_the_device() {
    let mut sim = Sim::new(DISK, 128, &[]);
    sim.tenant(1, 128);
    sim.tenant(1000, 32);
    sim.begin(0);
    sim.run(secs(2));
    let got = sim.run(secs(1));
    assert!(got[0] > 95_000, "{got:?}");
}

/// fair.5: while a tenant's requests are on their way, its places are its own; when it has asked for nothing for two periods,
/// others have them.
#[test]
fn places_are_lent_when_a_tenant_has_asked_for_nothing_for_two_periods() {
    let mut sim = Sim::new(EIGHT, 64, &[("device_depth", "16")]);
    let [one, other] = [100, 300].map(|weight| sim.tenant(weight, 32));
    sim.clients[other].think = us(300);
    sim.begin_all();
    sim.run(secs(1));
    // Within a few requests: 4 of 16 places are its own.
    sim.clients[one].most_inside = 0;
    assert_shares(&sim.run(secs(1)), &[1, 3], 4.0);
    assert!((4..=6).contains(&sim.clients[one].most_inside), "{} of its own", sim.clients[one].most_inside);
    sim.clients[other].stops = sim.now;
    sim.clients[one].most_inside = 0;
    // What the other has left ends within 1 ms; 512 requests of one that has 4 of 8 servers take 13 ms.
    sim.run(ms(20));
    assert_eq!(sim.clients[one].most_inside, 16, "all of the places are lent");
}

/// fair.6: no credit for the time away, and none is lost by it either.
#[test]
fn a_tenant_that_was_away_comes_back_without_credit() {
    let mut sim = Sim::new(EIGHT, 32, &[("device_depth", "8")]);
    let [steady, away] = [100, 100].map(|weight| sim.tenant(weight, 16));
    sim.clients[away].stops = sim.now + secs(1);
    sim.begin_all();
    sim.run(secs(3));
    sim.clients[away].stops = fairlift_core::Instant::MAX;
    sim.clients[away].starts = sim.now;
    sim.begin(away);
    for _ in 0..5 {
        // 20 ms are 1,600 requests: two seconds of credit would be a hundred times as many.
        let got = sim.run(ms(20));
        assert!(got[steady] >= 700 && got[away] >= 700, "{got:?}");
    }
}

/// fair.1: the currency is the disk's time, as soon as it is known.
#[test]
fn large_writes_and_small_reads_get_equal_time() {
    // 5 µs each, and 1.25 for each KiB: a read of 4 KiB takes 10 µs, a write of 64 KiB 85.
    let work = |request: &Waiting| one(request) * (0.5 + 0.125 * request.extent.sectors as f64 / 2.0);
    let device = Device { speed: |n| n.min(8) as f64 * 12_500.0, work, answers: Answers::Each };
    let given = "rbps=819200000 rseqiops=100000 rrandiops=100000 wbps=819200000 wseqiops=100000 wrandiops=100000";
    let unknown = "rbps=500000000 rseqiops=100000 rrandiops=100000 wbps=4000000000 wseqiops=100000 wrandiops=100000";
    for (model, percent) in [(given, 8.0), (unknown, 8.0)] {
        let mut sim = Sim::new(device, 32, &[("device_depth", "16"), ("cost_model", model)]);
        let [reader, writer] = [100, 100].map(|weight| sim.tenant(weight, 32));
        (sim.clients[writer].op, sim.clients[writer].sectors) = (Op::Write, 128);
        // Now and then somebody else asks for something else, or nothing could be told apart.
        let others = [(Op::Read, 256), (Op::Write, 8)].map(|(op, sectors)| {
            let client = sim.tenant(30, 4);
            (sim.clients[client].op, sim.clients[client].sectors, sim.clients[client].think) = (op, sectors, ms(3));
            client
        });
        sim.begin_all();
        sim.run(secs(6));
        let got = sim.run(secs(2));
        assert!(others.iter().all(|other| got[*other] > 40), "{got:?}");
        assert_shares(&[2 * got[reader], 17 * got[writer]], &[1, 1], percent);
    }
}

/// fair.2: by level within a group, and a group's streams together have no more than the group's part.
#[test]
fn streams_share_their_groups_part_by_level() {
    let mut sim = Sim::new(EIGHT, 64, &[("device_depth", "4")]);
    let group = sim.group(GroupId::ROOT, 100);
    for level in [0, 4, 7] {
        sim.client(group, Priority { class: PriorityClass::BestEffort, level }, 16);
    }
    sim.tenant(100, 32);
    sim.begin_all();
    sim.run(secs(1));
    assert_shares(&sim.run(secs(2)), &[8, 4, 1, 13], 4.0);
}

/// Rooms at every level: groups below groups, and streams beside groups.
#[test]
fn a_tree_of_groups_is_shared_by_weight_at_every_level() {
    for depth in ["0", "8", "24"] {
        let mut sim = Sim::new(DISK, 64, &[("device_depth", depth)]);
        let above = sim.group(GroupId::ROOT, 300);
        let below = [100, 200].map(|weight| sim.group(above, weight));
        for group in below {
            sim.client(group, Priority::default(), 32);
        }
        sim.tenant(100, 32);
        sim.begin_all();
        sim.run(secs(2));
        assert_shares(&sim.run(secs(2)), &[1, 2, 1], 4.0);
    }
}

/// Tenants that want it all, in one, two and three levels of groups: within 2 % in each second from the first on, at a depth
/// that is learned and at one that is given.
#[test]
fn saturating_tenants_have_their_shares_in_every_second() {
    for (device, levels, depth) in [DISK, EIGHT]
        .iter()
        .flat_map(|device| [1, 2, 3].map(|levels| (*device, levels)))
        .flat_map(|(device, levels)| ["0", "16"].map(|depth| (device, levels, depth)))
    {
        let mut sim = Sim::new(device, 64, &[("device_depth", depth)]);
        let mut parts = vec![];
        for weight in [100, 300] {
            let above =
                (1..levels).fold(GroupId::ROOT, |above, level| sim.group(above, if level == 1 { weight } else { 50 }));
            for own in [100, 200] {
                let own = if levels == 1 { own * weight / 100 } else { own };
                let group = sim.group(above, own);
                let client = sim.client(group, Priority::default(), 40);
                sim.clients[client].think = us(50);
                parts.push(u64::from(if levels == 1 { own } else { own * weight / 100 }));
            }
        }
        sim.begin_all();
        for _ in 0..2 {
            assert_shares(&sim.run(secs(1)), &parts, 2.0);
        }
    }
}

/// A stream in the root is a tenant by itself, by the weight of its level.
#[test]
fn streams_in_the_root_are_tenants() {
    let mut sim = Sim::new(DISK, 64, &[("device_depth", "32")]);
    for level in [0, 4, 6] {
        sim.client(GroupId::ROOT, Priority { class: PriorityClass::BestEffort, level }, 32);
    }
    sim.tenant(60, 32);
    sim.begin_all();
    sim.run(secs(1));
    assert_shares(&sim.run(secs(2)), &[8, 4, 2, 6], 4.0);
}

/// Another level is another share, in the order and of the places.
#[test]
fn a_stream_in_the_root_may_have_another_level() {
    let level = |level| Priority { class: PriorityClass::BestEffort, level };
    let mut sim = Sim::new(DISK, 64, &[("device_depth", "32")]);
    let [one, _] = [7, 4].map(|at| sim.client(GroupId::ROOT, level(at), 32));
    sim.begin_all();
    sim.run(secs(1));
    assert_shares(&sim.run(secs(1)), &[1, 4], 4.0);
    sim.change(one, GroupId::ROOT, level(0));
    sim.run(ms(200));
    assert_shares(&sim.run(secs(1)), &[8, 4], 4.0);
}

/// fair.4: the learned depth is what the device needs, and no more requests are in it.
#[test]
fn the_depth_is_learned_and_kept() {
    let mut sim = Sim::new(EIGHT, 64, &[]);
    let _ = [100, 100].map(|weight| sim.tenant(weight, 64));
    sim.begin_all();
    sim.run(secs(5));
    assert!((8..=12).contains(&sim.counter("device_depth")), "{}", sim.counter("device_depth"));
    let got = sim.run(secs(1));
    assert!(got.iter().sum::<u64>() >= 78_000, "{got:?} of 80,000");
    assert_shares(&got, &[1, 1], 3.0);
}

/// Each tunable, while requests wait and are in the device.
#[test]
fn tunables_may_be_set_under_load() {
    let mut sim = Sim::new(DISK, 64, &[]);
    for weight in [100, 200] {
        sim.tenant(weight, 48);
    }
    let lone = sim.tenant(100, 1);
    sim.begin_all();
    sim.run(secs(2));
    for depth in [1_u16, 64, 3, 17, 0, 2] {
        sim.fair.set("device_depth", &depth.to_string()).unwrap();
        assert_eq!(sim.fair.get("device_depth").unwrap(), depth.to_string());
        sim.run(ms(50));
        sim.most_inside = 0;
        let got = sim.run(ms(200));
        let most = if depth == 0 { 64 } else { usize::from(depth) };
        assert!(sim.most_inside <= most, "{} in the device with {depth}", sim.most_inside);
        assert_shares(&got[..2], &[1, 2], 12.0);
    }
    sim.fair.set("device_depth", "0").unwrap();
    sim.fair.set("isolation_cost", "0").unwrap();
    sim.run(secs(5));
    let throughput = sim.run(secs(1));
    sim.fair.set("isolation_cost", "50").unwrap();
    sim.run(secs(5));
    let isolation = sim.run(secs(1));
    assert!(4 * isolation[lone] > 5 * throughput[lone], "{throughput:?}, then {isolation:?}");
    let sum = |got: &[u64]| got.iter().sum::<u64>();
    assert!(sum(&isolation) * 100 >= sum(&throughput) * 49, "{throughput:?}, then {isolation:?}");
    let model = "rbps=1000000 rseqiops=10 rrandiops=10 wbps=1000000 wseqiops=10 wrandiops=10";
    sim.fair.set("cost_model", model).unwrap();
    assert_eq!(sim.fair.get("cost_model").unwrap(), model);
    assert_eq!(sim.counter("cost_rrandiops"), 10);
    assert!(sim.fair.set("cost_model", "rbps=1").is_err());
    assert_eq!(sim.fair.get("cost_model").unwrap(), model, "what is wrong changes nothing");
    sim.run(secs(1));
    assert_shares(&sim.run(secs(1))[..2], &[1, 2], 10.0);
    sim.fair.set("cost_model", "auto").unwrap();
    sim.run(secs(1));
}
