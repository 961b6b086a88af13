//! Groups share by weight, and flows of a group by level.

use fairlift_core::sched::traits::*;
use fairlift_core::time::{ms, secs, us};
use fairlift_core::{Duration, Flags, Group, GroupId, Instant, Op, PriorityClass, StreamId, Weight};

use crate::sim::{DISK, FLASH, Sim, assert_shares};

const ROOT: GroupId = GroupId::ROOT;

/// vtime.2
#[test]
fn groups_that_ask_for_much_share_requests_by_weight() {
    let mut sim = Sim::new(FLASH, 32, &[]);
    for weight in [100, 200, 700] {
        let group = sim.group(ROOT, weight);
        sim.reader(group, 64);
    }
    assert_shares(&sim.run(ms(500)), &[1, 2, 7], 1.0);
    assert_eq!(sim.most_in_device, 32, "and the device has all it takes");
}

/// vtime.2
#[test]
fn the_number_of_readers_in_a_group_does_not_count() {
    let mut sim = Sim::new(FLASH, 16, &[]);
    let (one, other) = (sim.group(ROOT, 100), sim.group(ROOT, 300));
    sim.reader(other, 16);
    for _ in 0..20 {
        sim.reader(one, 16);
    }
    let got = sim.run(ms(500));
    assert_shares(&[got[0], got[1..].iter().sum()], &[3, 1], 1.0);
    assert_shares(&got[1..], &[1; 20], 3.0);
}

/// vtime.4, iops.3
#[test]
fn groups_of_one_reader_that_waits_for_each_answer_share_by_weight() {
    let mut sim = Sim::new(FLASH, 32, &[]);
    for weight in [100, 200, 300, 400] {
        let group = sim.group(ROOT, weight);
        let reader = sim.reader(group, 1);
        sim.clients[reader].think = us(20);
    }
    assert_shares(&sim.run(ms(500)), &[1, 2, 3, 4], 1.0);
    assert!(sim.longest_hold <= ms(8), "{}", sim.longest_hold);
}

/// vtime.4
#[test]
fn without_group_idle_nobody_is_waited_for() {
    let mut sim = Sim::new(FLASH, 32, &[("group_idle", "0")]);
    for weight in [100, 200, 300, 400] {
        let group = sim.group(ROOT, weight);
        sim.reader(group, 1);
    }
    assert_shares(&sim.run(ms(400)), &[1; 4], 1.0);
    assert_eq!(sim.held, Duration::ZERO);
}

/// vtime.4
#[test]
fn a_group_that_thinks_for_long_is_not_waited_for() {
    let mut sim = Sim::new(FLASH, 32, &[]);
    let (slow, fast) = (sim.group(ROOT, 1000), sim.group(ROOT, 10));
    let (slow, fast) = (sim.reader(slow, 1), sim.reader(fast, 64));
    sim.clients[slow].think = ms(20);
    let got = sim.run(secs(2));
    assert!(got[fast] > 150_000, "the device does 160,000 in that time: {got:?}");
    assert!(got[slow] > 95, "{got:?}");
}

/// iops.3
#[test]
fn a_device_has_no_more_than_the_group_with_few_requests_allows_the_others() {
    let mut sim = Sim::new(FLASH, 128, &[("group_lead", "0")]);
    let (few, many) = (sim.group(ROOT, 100), sim.group(ROOT, 100));
    sim.reader(few, 2);
    sim.reader(many, 128);
    assert_shares(&sim.run(ms(400)), &[1, 1], 1.0);
    assert!(sim.most_in_device < 16, "{} in the device, 2 of which are the one's", sim.most_in_device);
}

/// iops.2
#[test]
fn a_long_request_counts_as_many_short_ones() {
    let mut sim = Sim::new(FLASH, 32, &[]);
    let (long, short) = (sim.group(ROOT, 100), sim.group(ROOT, 100));
    let long = sim.reader(long, 64);
    sim.reader(short, 64);
    (sim.clients[long].sectors, sim.clients[long].stride) = (1024, 1024);
    assert_shares(&sim.run(ms(400)), &[1, 4], 1.0);
}

/// vtime.1
#[test]
fn groups_below_groups_share_what_their_parent_has() {
    let mut sim = Sim::new(FLASH, 32, &[]);
    let (a, b) = (sim.group(ROOT, 100), sim.group(ROOT, 300));
    let (ax, ay) = (sim.group(a, 100), sim.group(a, 400));
    for group in [ax, ay, b] {
        sim.reader(group, 64);
    }
    assert_shares(&sim.run(ms(500)), &[5, 20, 75], 1.0);
}

/// vtime.1
#[test]
fn the_streams_of_a_group_with_groups_below_count_100_beside_them_and_those_of_the_root_200() {
    let mut sim = Sim::new(FLASH, 32, &[]);
    let a = sim.group(ROOT, 200);
    let below = sim.group(a, 300);
    for group in [ROOT, a, below] {
        sim.reader(group, 64);
    }
    assert_shares(&sim.run(ms(500)), &[400, 100, 300], 1.0);
}

/// vtime.2
#[test]
fn a_new_weight_counts_from_then_on() {
    let mut sim = Sim::new(FLASH, 32, &[]);
    let (one, other) = (sim.group(ROOT, 100), sim.group(ROOT, 100));
    sim.reader(one, 64);
    sim.reader(other, 64);
    assert_shares(&sim.run(ms(400)), &[1, 1], 1.0);
    sim.cfq.set_group(sim.now, other, &Group { weight: Weight::new(400), ..sim.groups[2].clone() });
    assert_shares(&sim.run(ms(400)), &[1, 4], 1.0);
}

/// vtime.2: a group of weight 1 beside one of 1000 has had 10 ms, and would wait for 10 s. Its weight is raised, or that of the group above it.
#[test]
fn a_weight_that_is_raised_counts_for_who_waits_already() {
    for below in [false, true] {
        let mut sim = Sim::new(DISK, 1, &[]);
        let (heavy, light) = (sim.group(ROOT, 1000), sim.group(ROOT, 1));
        let reads = if below { sim.group(light, 100) } else { light };
        sim.reader(heavy, 4);
        sim.reader(reads, 4);
        sim.run(secs(1));
        let before = sim.clients[1].done;
        let then = sim.run(secs(2))[1];
        assert!(before > 0 && then == 0, "it has had its part for a while: {before} and {then}");
        let group = sim.groups[usize::from(light.0)].clone();
        sim.cfq.set_group(sim.now, light, &Group { weight: Weight::new(1000), ..group.clone() });
        assert_shares(&sim.run(secs(3)), &[1, 1], 12.0);
        sim.cfq.set_group(sim.now, light, &Group { weight: Weight::new(1), ..group });
        let after = sim.run(secs(6));
        assert!(after[1] * 20 < after[0], "and a lower one as well: {after:?}");
    }
}

/// vtime.1
#[test]
fn two_hundred_groups_share_by_weight() {
    let mut sim = Sim::new(FLASH, 64, &[]);
    let weights: Vec<u64> = (0..200).map(|n| 50 + n % 4 * 50).collect();
    for weight in &weights {
        let group = sim.group(ROOT, *weight as u16);
        sim.reader(group, 2);
    }
    assert_shares(&sim.run(secs(2)), &weights, 5.0);
}

/// A scheduler that takes over is told of all groups while the disk's workers wait.
#[test]
fn sixty_thousand_groups_are_told_in_a_moment() {
    let mut sim = Sim::new(FLASH, 32, &[]);
    let began = std::time::Instant::now();
    (0..60_000).for_each(|_| _ = sim.group(ROOT, 100));
    assert!(began.elapsed() < std::time::Duration::from_secs(2), "{:?}", began.elapsed());
}

/// slice.2, vtime.2
#[test]
fn with_slices_groups_share_time() {
    let mut sim = Sim::new(DISK, 32, &[]);
    for weight in [100, 200, 300] {
        let group = sim.group(ROOT, weight);
        let reader = sim.reader(group, 1);
        sim.clients[reader].think = us(100);
    }
    let got = sim.run(secs(60));
    assert_shares(&got, &[1, 2, 3], 8.0);
    assert!(got.iter().sum::<u64>() > 45_000, "and the arm rarely moves: {got:?}");
}

/// slice.2: who seeks gets as much time, not as many requests.
#[test]
fn with_slices_a_group_that_seeks_gets_as_much_time_as_one_that_does_not() {
    let mut sim = Sim::new(DISK, 4, &[]);
    let (near, far) = (sim.group(ROOT, 100), sim.group(ROOT, 100));
    let (near, far) = (sim.reader(near, 1), sim.reader(far, 1));
    sim.clients[far].stride = 1 << 20;
    let got = sim.run(secs(60));
    assert_shares(&[got[near], got[far] * 9], &[1, 1], 10.0);
}

/// cfq.3
#[test]
fn levels_count_within_a_group_in_iops_mode() {
    let mut sim = Sim::new(FLASH, 32, &[]);
    let (one, other) = (sim.group(ROOT, 100), sim.group(ROOT, 100));
    for level in [0, 4, 7] {
        sim.client(one, Sim::at(PriorityClass::BestEffort, level), 64);
    }
    sim.reader(other, 64);
    let got = sim.run(ms(500));
    assert_shares(&got[..3], &[9, 5, 2], 2.0);
    assert_shares(&[got[..3].iter().sum(), got[3]], &[1, 1], 1.0);
}

/// cfq.3, slice.1
#[test]
fn levels_count_within_a_group_with_slices() {
    let mut sim = Sim::new(DISK, 32, &[]);
    for level in [0, 4, 7] {
        sim.client(ROOT, Sim::at(PriorityClass::BestEffort, level), 2);
    }
    assert_shares(&sim.run(secs(60)), &[9, 5, 2], 12.0);
}

/// cfq.6
#[test]
fn time_spent_in_flushes_is_charged_to_the_group_that_asked() {
    let mut sim = Sim::new(FLASH, 8, &[]);
    let (plain, flushes) = (sim.group(ROOT, 100), sim.group(ROOT, 100));
    sim.reader(plain, 64);
    let stream = sim.reader(flushes, 64);
    sim.run(ms(100));
    let mut sum = [0, 0];
    // The device serves 8 in 100 us: 5 ms of each 20 ms are 400 requests of 1600.
    for _ in 0..50 {
        sim.cfq.charge(sim.now, StreamId(stream as u32), flushes, ms(5));
        let got = sim.run(ms(20));
        (sum[0], sum[1]) = (sum[0] + got[0], sum[1] + got[1]);
    }
    assert_shares(&sum, &[1000, 600], 4.0);
}

/// cfq.6
#[test]
fn with_slices_a_flush_is_charged_by_its_time() {
    let mut sim = Sim::new(DISK, 32, &[]);
    let (plain, flushes) = (sim.group(ROOT, 100), sim.group(ROOT, 100));
    sim.reader(plain, 2);
    let stream = sim.reader(flushes, 2);
    let mut sum = [0, 0];
    for _ in 0..60 {
        sim.cfq.charge(sim.now, StreamId(stream as u32), flushes, ms(250));
        let got = sim.run(secs(1));
        (sum[0], sum[1]) = (sum[0] + got[0], sum[1] + got[1]);
    }
    assert_shares(&sum, &[625, 375], 8.0);
}

/// cfq.7
#[test]
fn without_isolation_those_who_are_not_idled_for_share_as_one_group() {
    let mut sim = Sim::new(FLASH, 32, &[("group_isolation", "0")]);
    for weight in [100, 1000] {
        let group = sim.group(ROOT, weight);
        sim.reader(group, 64);
    }
    assert_shares(&sim.run(ms(400)), &[1, 1], 1.0);
}

/// vtime.2: asynchronous writes are the group's too.
#[test]
fn writers_share_by_the_weights_of_their_groups() {
    let mut sim = Sim::new(FLASH, 16, &[]);
    for weight in [100, 300] {
        let group = sim.group(ROOT, weight);
        for _ in 0..2 {
            let writer = sim.reader(group, 100);
            sim.clients[writer].op = Op::Write;
        }
    }
    sim.run(secs(2));
    let got = sim.run(secs(2));
    assert_shares(&[got[0] + got[1], got[2] + got[3]], &[1, 3], 3.0);
}

/// iops.2: the lightest group waits longest, so its requests merge most.
#[test]
fn groups_whose_requests_merge_while_they_wait_share_what_they_asked() {
    let mut sim = Sim::new(FLASH, 128, &[]);
    sim.merges = true;
    for weight in [100, 200, 300, 400] {
        let group = sim.group(ROOT, weight);
        let writer = sim.reader(group, 32);
        (sim.clients[writer].op, sim.clients[writer].flags) = (Op::Write, Flags::SYNC);
        (sim.clients[writer].sectors, sim.clients[writer].stride) = (64, 64);
    }
    assert_shares(&sim.run(ms(500)), &[1, 2, 3, 4], 1.0);
    assert_eq!(sim.longest_request, 256, "four of 32 KiB become one, and no more");
}

/// vtime.4: the device has all that a group of write-back asks, and others wait for what it asks next.
#[test]
fn groups_of_buffered_writers_with_few_requests_share_by_weight() {
    let mut sim = buffered_writers(&[]);
    assert_shares(&sim.run(ms(500)), &[1, 2, 3, 4], 1.0);
}

/// slice.2: with slices most of a turn's writes go on in the device when the turn is over, and the next turn is soon.
#[test]
fn groups_of_buffered_writers_share_by_weight_after_a_time_of_slices() {
    let mut sim = buffered_writers(&[("slice_idle", "8")]);
    sim.run(ms(500));
    sim.cfq.set("slice_idle", "0").unwrap();
    sim.run(ms(200));
    assert_shares(&sim.run(ms(500)), &[1, 2, 3, 4], 1.0);
}

/// vtime.4: a device with room for all serves a reader as often as it asks, though a heavier group is behind its share.
#[test]
fn a_reader_does_not_wait_for_the_write_back_of_another_group() {
    let mut sim = Sim::new(FLASH, 64, &[]);
    let (heavy, light) = (sim.group(ROOT, 1000), sim.group(ROOT, 100));
    let (writer, reader) = (sim.reader(heavy, 4), sim.reader(light, 1));
    sim.clients[writer].op = Op::Write;
    let got = sim.run(ms(100));
    assert!(got[reader] > 990, "of a thousand times 100 us: {got:?}");
}

/// Four groups, each with write-back of 8 requests at a time, on a device that takes all of them.
fn buffered_writers(set: &[(&str, &str)]) -> Sim {
    let mut sim = Sim::new(FLASH, 64, set);
    for weight in [100, 200, 300, 400] {
        let group = sim.group(ROOT, weight);
        let writer = sim.reader(group, 8);
        sim.clients[writer].op = Op::Write;
    }
    sim
}

/// Nobody loses by a mode: when it changes, all start anew and share by weight as before.
#[test]
fn shares_hold_before_and_after_the_mode_changes() {
    let mut sim = Sim::new(FLASH, 32, &[]);
    for weight in [100, 300] {
        let group = sim.group(ROOT, weight);
        sim.reader(group, 64);
    }
    assert_shares(&sim.run(ms(300)), &[1, 3], 1.0);
    sim.cfq.set("slice_idle", "8").unwrap();
    assert_shares(&sim.run(secs(4)), &[1, 3], 9.0);
    sim.cfq.set("slice_idle", "0").unwrap();
    sim.run(ms(10));
    assert_shares(&sim.run(ms(300)), &[1, 3], 1.0);
}

/// A synchronous write is as good as a read.
#[test]
fn synchronous_writes_share_as_reads_do() {
    let mut sim = Sim::new(FLASH, 32, &[]);
    for (weight, flags) in [(100, Flags::SYNC), (200, Flags::FUA)] {
        let group = sim.group(ROOT, weight);
        let writer = sim.reader(group, 1);
        (sim.clients[writer].op, sim.clients[writer].flags) = (Op::Write, flags);
    }
    assert_shares(&sim.run(ms(400)), &[1, 2], 1.0);
}

/// cfq.3, vtime.2: after so many requests that virtual time would be at the end of its range. (It counts writes of a terabyte as many, and
/// with these slices each of them as more.)
#[test]
fn shares_hold_when_virtual_time_has_gone_on_for_years() {
    let mut sim = Sim::new(FLASH, 32, &[("slice_sync", "60s"), ("slice_async", "1ms")]);
    let group = sim.group(ROOT, 100);
    let (writer, reader) = (sim.reader(group, 32), sim.reader(group, 32));
    (sim.clients[writer].op, sim.clients[writer].sectors) = (Op::Write, 1 << 31);
    sim.clients[reader].starts = Instant::ZERO + ms(120);
    assert!(sim.run(ms(100))[writer] > 1000);
    sim.clients[writer].sectors = 8;
    sim.cfq.set("slice_sync", "100ms").unwrap();
    sim.cfq.set("slice_async", "40ms").unwrap();
    sim.run(ms(20));
    assert_shares(&sim.run(ms(200)), &[2, 5], 5.0);
}
