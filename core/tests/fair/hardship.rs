//! Loads that are hard on a scheduler. Whatever happens, every request ends, and no tenant starves.

use fairlift_core::sched::Waiting;
use fairlift_core::sched::traits::*;
use fairlift_core::time::{ms, secs, us};
use fairlift_core::{GroupId, Instant, Op, Priority, PriorityClass};

use crate::sim::{Answers, Client, DISK, Device, Sim, assert_shares, one};

/// No client asks any more, and everything that waits ends.
fn finish(sim: &mut Sim) {
    sim.clients.iter_mut().for_each(|client| client.stops = Instant::ZERO);
    sim.run(secs(30));
    assert!(sim.fair.is_empty() && sim.clients.iter().all(|client| client.inside == 0));
}

/// On a device that answers, no request waits for a second.
fn assert_short_waits(sim: &Sim) {
    for (n, client) in sim.clients.iter().enumerate() {
        assert!(client.longest_wait < secs(1), "client {n} waited {}", client.longest_wait);
    }
}

#[test]
fn weights_may_change_a_hundred_times_a_second() {
    for (turns, each) in [(40, ms(100)), (400, ms(10))] {
        let mut sim = Sim::new(DISK, 64, &[]);
        for _ in 0..4 {
            sim.tenant(100, 32);
        }
        sim.begin_all();
        sim.run(secs(1));
        let weights = [[1, 1000, 100, 100], [1000, 1, 100, 100], [100, 100, 1, 1000], [100, 100, 1000, 1]];
        let mut all = [0; 4];
        for turn in 0..turns {
            for (n, weight) in weights[turn % 4].into_iter().enumerate() {
                sim.weigh(GroupId(n as u16 + 1), weight);
            }
            sim.run(each).iter().zip(&mut all).for_each(|(got, all)| *all += got);
        }
        // Each had the same weights, in turn.
        assert_shares(&all, &[1; 4], 10.0);
        assert_short_waits(&sim);
        finish(&mut sim);
    }
}

/// It has most of the disk while the other one pauses (its places are few until a period is over), and no credit for having waited: beside each other both have a half at once.
#[test]
fn a_tenant_may_ask_only_while_another_pauses() {
    let mut sim = Sim::new(DISK, 64, &[]);
    let (steady, shy) = (sim.tenant(100, 32), sim.tenant(100, 32));
    let alone = {
        let mut sim = Sim::new(DISK, 64, &[]);
        sim.tenant(100, 32);
        sim.begin_all();
        sim.run(secs(1));
        sim.run(ms(500))[0] as f64 * 2.0
    };
    let turn = |sim: &mut Sim, client: usize, time| {
        sim.clients[client].stops = Instant::MAX;
        sim.begin(client);
        let done = sim.run(time)[client];
        sim.clients[client].stops = sim.now;
        sim.run(ms(3)); // what is under way ends
        assert_eq!(sim.clients[client].inside, 0);
        done
    };
    let mut in_pauses = 0;
    for _ in 0..50 {
        turn(&mut sim, steady, ms(50));
        in_pauses += turn(&mut sim, shy, ms(20));
    }
    assert!(in_pauses as f64 >= 0.75 * alone, "{in_pauses} in 1 s of pauses, and {alone} a second alone");
    for client in [steady, shy] {
        sim.clients[client].stops = Instant::MAX;
        sim.begin(client);
    }
    let both = sim.run(ms(500));
    assert_shares(&both, &[1, 1], 10.0);
    assert_short_waits(&sim);
    finish(&mut sim);
}

#[test]
fn streams_may_come_go_and_move_between_groups_and_the_root() {
    let mut sim = Sim::new(DISK, 64, &[]);
    for weight in [100, 200, 300] {
        sim.tenant(weight, 16);
    }
    sim.begin_all();
    for turn in 0..300_u64 {
        let client = turn as usize * 7 % sim.clients.len();
        let group = GroupId((turn * 5 % 4) as u16);
        let class = if turn % 9 == 0 { PriorityClass::Idle } else { PriorityClass::BestEffort };
        sim.change(client, group, Priority { class, level: (turn % 8) as u8 });
        if turn % 20 == 0 {
            let new = sim.client(group, Priority::default(), 4);
            sim.begin(new);
        }
        if turn % 30 == 10 {
            sim.clients[client].stops = sim.now;
        }
        sim.run(ms(7));
    }
    finish(&mut sim);
}

#[test]
fn a_tenant_with_4096_requests_keeps_nobody_out() {
    let mut sim = Sim::new(DISK, 64, &[]);
    let deep = sim.tenant(100, 4096);
    let others = [1, 4, 16].map(|depth| sim.tenant(100, depth));
    sim.begin_all();
    sim.run(secs(2));
    sim.clients.iter_mut().for_each(|client| client.longest_wait = fairlift_core::Duration::ZERO);
    let got = sim.run(secs(2));
    for other in others {
        let Client { depth, longest_wait, .. } = &sim.clients[other];
        assert!(*longest_wait < ms(3), "a tenant with {depth} waited {longest_wait}");
    }
    assert!(got[others[2]] as f64 >= 0.8 * got[deep] as f64 / 3.0, "{got:?}");
    finish(&mut sim);
}

#[test]
fn a_thousand_tenants_may_ask_once_a_minute() {
    let mut sim = Sim::new(DISK, 64, &[]);
    let deep = sim.tenant(100, 64);
    sim.begin(deep);
    for n in 0..1000_u64 {
        let tenant = sim.tenant(100, 1);
        sim.clients[tenant].think = secs(60);
        sim.clients[tenant].starts = Instant::ZERO + ms(60 * n / 6);
        sim.begin(tenant);
    }
    let got = sim.run(secs(12));
    assert!(got[deep] > 12 * 75_000, "{} of about 99,000 a second", got[deep]);
    for client in &sim.clients[1..] {
        assert!(client.done >= 1 && client.longest_wait < ms(3), "{} after {}", client.done, client.longest_wait);
    }
    finish(&mut sim);
}

#[test]
fn a_thousand_tenants_may_wake_at_once() {
    let mut sim = Sim::new(DISK, 64, &[]);
    let deep = sim.tenant(100, 32);
    sim.begin(deep);
    let wakes = Instant::ZERO + secs(1);
    for _ in 0..1000 {
        let tenant = sim.tenant(100, 4);
        sim.clients[tenant].starts = wakes;
        sim.begin(tenant);
    }
    sim.run(secs(3));
    assert_short_waits(&sim);
    sim.clients.iter_mut().for_each(|client| client.longest_wait = fairlift_core::Duration::ZERO);
    assert_shares(&sim.run(secs(3))[1..], &[1; 1000], 12.0);
    assert_short_waits(&sim);
    finish(&mut sim);
}

#[test]
fn a_device_may_be_ten_times_slower_for_a_while() {
    for (depth, percent) in [("32", 4.0), ("0", 10.0)] {
        let mut sim = Sim::new(DISK, 64, &[("device_depth", depth)]);
        for weight in [100, 300] {
            let tenant = sim.tenant(weight, 32);
            sim.clients[tenant].think = us(50);
        }
        sim.begin_all();
        sim.run(secs(1));
        for slowness in [10.0, 1.0] {
            sim.slowness = slowness;
            sim.run(secs(1));
            assert_shares(&sim.run(secs(4)), &[1, 3], percent);
        }
        assert_short_waits(&sim);
        finish(&mut sim);
    }
}

/// A disk of which a read of 4 KiB takes 5 µs and one of 32 KiB 22 µs, and writes twice as long, beside four tenants that want
/// it all and never ask for anything else; the model of it, with a word that is wrong by a factor.
pub(crate) fn with_model(wrong: usize, factor: f64) -> Sim {
    let work = |request: &Waiting| {
        let op = if request.op == Op::Write { 1.0 } else { 0.5 };
        one(request) * op * (1.0 + 0.125 * (request.extent.sectors as f64 / 2.0 - 4.0))
    };
    let device = Device { speed: |n| n.min(8) as f64 * 12_500.0, work, answers: Answers::Each };
    let mut words = [1638.4e6, 2e5, 2e5, 819.2e6, 1e5, 1e5];
    words[wrong] *= factor;
    let [a, b, c, d, e, f] = words.map(|word| word as u64);
    let model = format!("rbps={a} rseqiops={b} rrandiops={c} wbps={d} wseqiops={e} wrandiops={f}");
    let mut sim = Sim::new(device, 64, &[("device_depth", "16"), ("cost_model", &model)]);
    for (op, sectors) in [(Op::Read, 8), (Op::Read, 64), (Op::Write, 8), (Op::Write, 64)] {
        let tenant = sim.tenant(100, 16);
        let client = &mut sim.clients[tenant];
        (client.op, client.sectors, client.think) = (op, sectors, us(30));
    }
    sim.begin_all();
    sim
}

/// cost.6, cost.7: each word of the model.
#[test]
fn a_model_that_is_wrong_by_ten_is_right_within_five_seconds() {
    for wrong in 0..6 {
        for factor in [0.1, 10.0] {
            let mut sim = with_model(wrong, factor);
            sim.run(secs(5));
            let got = sim.run_for_work(secs(1));
            assert_shares(&got, &[1; 4], 10.0);
            assert_short_waits(&sim);
            finish(&mut sim);
        }
    }
}

/// cost.6: what is learned while nothing changes does not lead away from what is right.
#[test]
fn a_model_that_is_right_stays_right() {
    let mut sim = with_model(0, 1.0);
    for second in 0..8 {
        let off = if second == 2 { 18.0 } else { 6.0 }; // learned anew (cost.7)
        assert_shares(&sim.run_for_work(secs(1)), &[1; 4], off);
    }
}
