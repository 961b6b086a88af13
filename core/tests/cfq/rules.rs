//! Rules one by one: what waits for what, and for how long.

use fairlift_core::model::Character;
use fairlift_core::sched::cfq::{Cfq, Settings};
use fairlift_core::sched::traits::*;
use fairlift_core::sched::{Next, RequestEnd, RequestId, Served, Setup, Waiting};
use fairlift_core::time::{ms, secs, us};
use fairlift_core::trace::Note;
use fairlift_core::{
    ContextId, Duration, Extent, Flags, Group, GroupId, Instant, Op, Priority, PriorityClass, Sector, Stream, StreamId,
    Weight,
};

use crate::sim::{DISK, Device, FLASH, Sim};

const ROOT: GroupId = GroupId::ROOT;
const RT: PriorityClass = PriorityClass::RealTime;
const BE: PriorityClass = PriorityClass::BestEffort;
const IDLE: PriorityClass = PriorityClass::Idle;

fn at(n: u64) -> Instant {
    Instant::ZERO + ms(n)
}

/// The lengths of the turns of each group, in milliseconds and requests.
fn turns(sim: &mut Sim, group: u16) -> Vec<(u64, u32)> {
    std::iter::from_fn(|| sim.cfq.poll_message())
        .filter(|message| message.group.0 == group)
        .filter_map(|message| match message.note {
            Note::SliceUsed { used, dispatched, .. } => Some((used.as_millis(), dispatched)),
            _ => None,
        })
        .collect()
}

/// vtime.3: in IOPS mode one that comes back waits for no more than the turns of those that are no further on.
#[test]
fn a_group_that_comes_back_is_not_put_behind_all_others() {
    let mut sim = Sim::new(Device::Parallel(1, ms(1)), 5, &[]);
    for _ in 0..50 {
        let group = sim.group(ROOT, 100);
        sim.reader(group, 8);
    }
    let rare = sim.group(ROOT, 100);
    let rare = sim.reader(rare, 1);
    sim.clients[rare].think = ms(200);
    sim.clients[rare].starts = at(1000);
    sim.run(secs(10));
    // Behind everybody it would wait for 50 turns of 8 ms. A turn under way, and its own request in the device.
    let waited = sim.clients[rare].longest_wait;
    assert!(sim.clients[rare].done > 40, "{}", sim.clients[rare].done);
    assert!(waited <= ms(9), "{waited}");
}

/// vtime.3: with slices, for one slice and what is in the device.
#[test]
fn with_slices_a_group_that_comes_back_waits_for_one_slice() {
    let mut sim = Sim::new(DISK, 4, &[("low_latency", "0")]);
    for _ in 0..10 {
        let group = sim.group(ROOT, 100);
        sim.reader(group, 4);
    }
    let rare = sim.group(ROOT, 100);
    let rare = sim.reader(rare, 1);
    sim.clients[rare].think = ms(500);
    sim.clients[rare].starts = at(3000);
    sim.run(secs(60));
    let waited = sim.clients[rare].longest_wait;
    assert!(sim.clients[rare].done > 50, "{}", sim.clients[rare].done);
    // A slice of 100 ms begins with the first end, 9 ms after its turn; idling at its end: none, for it has requests.
    assert!(waited <= ms(130), "{waited}");
}

/// slice.2: the turns of a stream that asks again as soon as all that it had went to the device are not free.
#[test]
fn a_stream_that_sends_all_at_once_and_asks_again_leaves_others_their_turns() {
    let setup = Setup { depth: 2, character: Character { rotational: true, volatile_cache: false }, ..Setup::new(8) };
    let mut cfq = Cfq::new(&setup, Settings { slice_idle: Some(Duration::ZERO), ..Settings::default() });
    cfq.set("group_idle", "0").unwrap();
    for number in 0..2 {
        let group = Group { path: format!("/{number}"), parent: Some(ROOT), weight: Weight::new(100) };
        cfq.set_group(at(0), GroupId(number + 1), &group);
        let stream = Stream { group: GroupId(number + 1), priority: Priority::default(), context: ContextId(0) };
        cfq.add_stream(StreamId(number.into()), &stream);
    }
    let mut submitted = 0;
    let mut ask = |cfq: &mut Cfq, now, id: u32| {
        submitted += 1;
        let stream = id / 4;
        let request = Waiting {
            id: RequestId(id),
            op: Op::Read,
            flags: Flags::NONE,
            extent: Extent::new(Sector(submitted * 7919 % 100_000 * 64), 8),
            stream: StreamId(stream),
            group: GroupId(stream as u16 + 1),
            priority: Priority::default(),
        };
        cfq.insert(now, &request);
        request
    };
    // Two requests of each wait, and numbers for two more of the first stream are free.
    let mut waiting: Vec<_> = [0, 1, 4, 5].into_iter().map(|id| (id, ask(&mut cfq, at(0), id))).collect();
    let (mut free, mut got) = (vec![2, 3], [0; 2]);
    for round in 0..1000 {
        let mut sent = Vec::new();
        for _ in 0..2 {
            let Next::Request(RequestId(id)) = cfq.dispatch(at(round)) else { break };
            sent.push(waiting.swap_remove(waiting.iter().position(|(other, _)| *other == id).unwrap()));
            got[id as usize / 4] += 1;
        }
        // The first stream asks again at once, the second when its requests have ended.
        for id in sent.iter().map(|(id, _)| *id).filter(|id| *id < 4) {
            let other = free.swap_remove(free.iter().position(|free| free / 4 == id / 4).unwrap());
            waiting.push((other, ask(&mut cfq, at(round), other)));
        }
        for (id, request) in sent {
            cfq.completed(at(round + 1), &Served { request, dispatched: at(round), end: RequestEnd::Done });
            if id < 4 {
                free.push(id);
            } else {
                waiting.push((id, ask(&mut cfq, at(round + 1), id)));
            }
        }
    }
    assert!(got[0].min(got[1]) * 2 > got[0].max(got[1]), "{got:?}");
}

/// slice.2: while a stream pauses and nobody else asks, its turn lasts, and costs it nothing.
#[test]
fn a_stream_that_was_away_from_an_idle_disk_does_not_pay_for_the_pause() {
    for op in [Op::Read, Op::Write] {
        for are_apart in [true, false] {
            let mut sim = Sim::new(DISK, 4, &[]);
            let groups = [(); 2].map(|()| if are_apart { sim.group(ROOT, 100) } else { ROOT });
            let (rare, other) = (sim.reader(groups[0], 1), sim.reader(groups[1], 1));
            (sim.clients[rare].op, sim.clients[rare].think) = (op, secs(10));
            sim.clients[other].starts = at(9000);
            sim.run(secs(30));
            let waited = sim.clients[rare].longest_wait;
            assert!(sim.clients[rare].done == 3 && waited <= ms(300), "{op:?}, apart: {are_apart}: {waited}");
        }
    }
}

/// vtime.3: absence earns no claim.
#[test]
fn who_was_away_gets_no_more_than_its_share_when_it_is_back() {
    let mut sim = Sim::new(FLASH, 8, &[]);
    let (steady, late) = (sim.group(ROOT, 100), sim.group(ROOT, 100));
    sim.reader(steady, 64);
    let late = sim.reader(late, 64);
    sim.clients[late].starts = at(1000);
    sim.run(ms(1000));
    let got = sim.run(ms(100));
    assert!(got[0].abs_diff(got[1]) < 200, "{got:?}");
}

/// cfq.2
#[test]
fn the_real_time_class_goes_first_and_the_idle_class_last() {
    for (device, set) in [(FLASH, [("slice_idle", "0")]), (DISK, [("slice_idle", "8")])] {
        let mut sim = Sim::new(device, 4, &set);
        for class in [IDLE, BE, RT] {
            sim.client(ROOT, Sim::at(class, 4), 32);
        }
        let got = sim.run(secs(1));
        assert!(got[2] > 100 * got[1].max(1) / 10 && got[1] >= got[0], "{got:?}");
    }
}

/// cfq.2
#[test]
fn a_class_that_was_passed_over_for_two_seconds_gets_a_turn() {
    for (device, set) in [(FLASH, [("slice_idle", "0")]), (DISK, [("slice_idle", "8")])] {
        let mut sim = Sim::new(device, 4, &set);
        for class in [IDLE, BE, RT] {
            sim.client(ROOT, Sim::at(class, 4), 32);
        }
        sim.run(ms(1900));
        assert_eq!((sim.clients[0].done, sim.clients[1].done), (0, 0));
        sim.run(secs(4));
        assert!(sim.clients[0].done >= 1 && sim.clients[1].done >= 1);
        let rt = sim.clients[2].done;
        assert!(sim.clients[1].done * 10 < rt, "{} of {rt}", sim.clients[1].done);
    }
}

/// cfq.1
#[test]
fn a_request_that_has_waited_for_fifo_expire_starts_the_next_turn() {
    let mut sim = Sim::new(Device::Parallel(1, ms(1)), 5, &[("fifo_expire_sync", "50")]);
    let (reader, far) = (sim.reader(ROOT, 16), sim.reader(ROOT, 16));
    sim.run(secs(2));
    let longest = sim.clients[reader].longest_wait.max(sim.clients[far].longest_wait);
    assert!(longest < ms(100), "{longest}");
}

/// iops.1
#[test]
fn a_turn_in_iops_mode_is_quantum_requests() {
    let mut sim = Sim::new(Device::Parallel(1, ms(1)), 5, &[("quantum", "3")]);
    sim.reader(ROOT, 16);
    sim.reader(ROOT, 16);
    sim.run(ms(60));
    let runs = sim.order.chunk_by(|a, b| a == b).map(<[usize]>::len).collect::<Vec<_>>();
    assert!(runs.iter().skip(1).rev().skip(1).all(|run| *run == 3), "{runs:?}");
}

/// slice.1
#[test]
fn a_slice_is_a_fifth_longer_for_each_level_and_shrinks_where_many_wait() {
    let mut sim = Sim::new(DISK, 4, &[("low_latency", "0")]);
    let group = sim.group(ROOT, 100);
    sim.client(group, Sim::at(BE, 0), 4);
    let other = sim.group(ROOT, 100);
    sim.client(other, Sim::at(BE, 7), 4);
    sim.cfq.set_tracing(true);
    sim.run(secs(5));
    let all: Vec<_> = std::iter::from_fn(|| sim.cfq.poll_message()).collect();
    let of = |group: u16| {
        let used = all.iter().filter(|message| message.group.0 == group).filter_map(|message| match message.note {
            Note::SliceUsed { used, .. } => Some(used.as_millis()),
            _ => None,
        });
        used.skip(1).collect::<Vec<_>>()
    };
    // From the turn to the first end: 9 ms, and what the other still has in the device.
    assert!(of(1).iter().all(|used| (180..=200).contains(used)), "{:?}", of(1));
    assert!(of(2).iter().all(|used| (40..=60).contains(used)), "{:?}", of(2));
    sim.cfq.set("low_latency", "1").unwrap();
    for _ in 0..9 {
        sim.client(group, Sim::at(BE, 4), 4);
    }
    let mut sim2 = Sim::new(DISK, 4, &[]);
    for _ in 0..10 {
        sim2.reader(ROOT, 4);
    }
    sim2.cfq.set_tracing(true);
    sim2.run(secs(5));
    let shrunk = turns(&mut sim2, 0);
    assert!(shrunk.iter().skip(5).all(|(used, _)| (28..=52).contains(used)), "300 ms for ten of them: {shrunk:?}");
}

/// slice.4
#[test]
fn the_device_is_held_for_a_reader_that_asks_again_soon() {
    let mut sim = Sim::new(DISK, 4, &[]);
    for _ in 0..2 {
        let reader = sim.reader(ROOT, 1);
        sim.clients[reader].think = ms(2);
    }
    sim.run(secs(10));
    let switches = sim.order.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(switches < 120, "{switches} in 10 s: a slice is 100 ms");
    assert!(sim.longest_hold <= ms(8), "{}", sim.longest_hold);
}

/// slice.4
#[test]
fn it_is_not_held_for_one_that_thinks_for_longer() {
    let mut sim = Sim::new(DISK, 4, &[("group_idle", "0")]);
    for _ in 0..2 {
        let reader = sim.reader(ROOT, 1);
        sim.clients[reader].think = ms(12);
    }
    sim.run(secs(1));
    let held = sim.held;
    sim.run(secs(9));
    assert!(sim.held.as_nanos() - held.as_nanos() < ms(50).as_nanos(), "{} in 9 s, once learnt", sim.held);
}

/// slice.5: `slice_idle` where it applies, else `group_idle`.
#[test]
fn the_device_is_held_for_a_group_where_it_is_not_held_for_the_flow() {
    let held = |set: &[(&str, &str)]| {
        let mut sim = Sim::new(DISK, 1, set);
        for _ in 0..2 {
            let group = sim.group(ROOT, 100);
            let reader = sim.reader(group, 1);
            sim.clients[reader].think = ms(2);
        }
        sim.run(secs(5));
        (sim.held > ms(1000), sim.longest_hold)
    };
    assert!(held(&[("slice_idle", "0")]).0, "for the group");
    assert!(!held(&[("slice_idle", "0"), ("group_idle", "0")]).0, "for nobody");
    assert!(held(&[("group_idle", "0")]).0, "for the flow");
    let (_, longest) = held(&[("slice_idle", "3"), ("group_idle", "500")]);
    assert!(longest <= ms(3), "{longest}: the flow comes first");
}

/// slice.6
#[test]
fn a_flow_has_quantum_requests_in_the_device_while_others_wait() {
    let most = |readers: u32| {
        let mut sim = Sim::new(DISK, 64, &[("low_latency", "0")]);
        for _ in 0..readers {
            sim.reader(ROOT, 32);
        }
        sim.run(secs(2));
        sim.most_in_device
    };
    assert_eq!(most(1), 32, "alone it has all");
    assert!(most(2) <= 8 + 4, "{}: eight, and what is left of the other's at its end", most(2));
}

/// slice.6
#[test]
fn a_reader_beside_a_heap_of_writes_waits_for_few_of_them() {
    let read = |set: &[(&str, &str)]| {
        let mut sim = Sim::new(DISK, 500, set);
        let (writer, reader) = (sim.reader(ROOT, 900), sim.reader(ROOT, 1));
        sim.clients[writer].op = Op::Write;
        sim.clients[reader].think = us(500);
        sim.run(secs(20));
        let got = sim.run(secs(20));
        assert!(got[writer] > 100, "{set:?}: {got:?}");
        got[reader]
    };
    let with_slices = read(&[("slice_idle", "8")]);
    assert!(with_slices > 4000, "{with_slices}");
    let (held_back, not) = (read(&[("slice_idle", "0")]), read(&[("slice_idle", "0"), ("low_latency", "0")]));
    assert!(held_back * 2 > not * 3, "in IOPS mode: {held_back} with low_latency, {not} without");
}

/// preempt.1
#[test]
fn a_read_does_not_wait_for_the_end_of_an_asynchronous_slice() {
    let mut sim = Sim::new(DISK, 2, &[]);
    let (writer, reader) = (sim.reader(ROOT, 100), sim.reader(ROOT, 1));
    sim.clients[writer].op = Op::Write;
    sim.clients[reader].think = ms(300);
    sim.run(secs(10));
    assert!(sim.clients[reader].longest_wait <= ms(20), "{}", sim.clients[reader].longest_wait);
}

/// preempt.1: a writer waits for the reads in the device, and each that ends brings another.
#[test]
fn a_writer_that_has_sent_nothing_yet_is_not_taken_over_from() {
    for (priority, apart, least) in [(BE, true, 1000), (BE, false, 1000), (RT, false, 8)] {
        let mut sim = Sim::new(DISK, 8, &[]);
        let groups = [(); 2].map(|()| if apart { sim.group(ROOT, 100) } else { ROOT });
        let writer = sim.reader(groups[0], 64);
        sim.clients[writer].op = Op::Write;
        sim.client(groups[1], Sim::at(priority, 4), 8);
        sim.run(secs(2));
        let got = sim.run(secs(10));
        assert!(got[writer] >= least && got[1] >= 1000, "{priority:?}, apart: {apart}: {got:?}");
    }
}

/// preempt.1, preempt.4: nobody starves by being taken over from.
#[test]
fn readers_that_seek_side_by_side_do_not_keep_a_third_from_the_device() {
    let mut sim = Sim::new(DISK, 4, &[]);
    for _ in 0..3 {
        let reader = sim.reader(ROOT, 1);
        sim.clients[reader].stride = 1 << 20;
    }
    let other = sim.group(ROOT, 100);
    let other = sim.reader(other, 1);
    sim.clients[other].stride = 1 << 20;
    let got = sim.run(secs(30));
    assert!(got.iter().all(|one| *one > 200), "{got:?}");
    let longest = sim.clients.iter().map(|client| client.longest_wait).max().unwrap();
    assert!(longest < ms(700), "{longest}");
}

/// preempt.4
#[test]
fn two_that_take_over_from_each_other_do_not_starve_a_third_of_their_group() {
    let mut sim = Sim::new(DISK, 4, &[]);
    for _ in 0..3 {
        let reader = sim.reader(ROOT, 1);
        sim.clients[reader].stride = 1 << 20;
    }
    let got = sim.run(secs(30));
    assert!(got.iter().all(|one| *one > 800), "{got:?}");
}

/// preempt.4
#[test]
fn who_takes_over_in_its_group_does_not_keep_a_heavier_group_waiting() {
    let mut sim = Sim::new(DISK, 4, &[]);
    let (light, heavy) = (sim.group(ROOT, 10), sim.group(ROOT, 1000));
    for _ in 0..2 {
        let reader = sim.reader(light, 1);
        sim.clients[reader].stride = 1 << 20;
    }
    let rare = sim.reader(heavy, 1);
    (sim.clients[rare].stride, sim.clients[rare].think) = (1 << 20, ms(100));
    sim.clients[rare].starts = at(1000);
    sim.run(secs(30));
    assert!(sim.clients[rare].longest_wait < ms(50), "{}", sim.clients[rare].longest_wait);
}

/// cooperate.1
#[test]
fn two_that_read_one_run_in_turn_become_one() {
    let mut sim = Sim::new(DISK, 1, &[]);
    let readers: Vec<_> = (0..2).map(|_| sim.reader(ROOT, 1)).collect();
    for (n, reader) in (0..).zip(readers) {
        (sim.clients[reader].stride, sim.clients[reader].think) = (16, us(100));
        sim.start_at(reader, n * 8);
    }
    sim.run(secs(10));
    let mut merges = 0;
    sim.cfq.counters(&mut |name, count| merges += if name == "queue_merges" { count } else { 0 });
    assert!(merges >= 1);
    let done: u64 = sim.clients.iter().map(|client| client.done).sum();
    assert!(done > 7000, "{done} of 10,000 that an arm can do which reads on");
}

/// cooperate.4
#[test]
fn on_flash_that_queues_nothing_is_merged() {
    let mut sim = Sim::new(FLASH, 32, &[("slice_idle", "8")]);
    for n in 0..2 {
        let reader = sim.reader(ROOT, 1);
        sim.clients[reader].stride = 16;
        sim.start_at(reader, n * 8);
    }
    sim.run(secs(5));
    sim.cfq.counters(&mut |name, count| assert!(name != "queue_merges" || count == 0));
}

/// slice.7
#[test]
fn an_asynchronous_slice_is_over_after_so_many_requests_while_others_wait() {
    let mut sim = Sim::new(Device::Arm(us(100), us(100)), 1, &[("low_latency", "0")]);
    for level in [4, 0] {
        let writer = sim.client(ROOT, Sim::at(BE, level), 200);
        sim.clients[writer].op = Op::Write;
    }
    sim.run(secs(2));
    let runs = |who: usize| {
        let runs = sim.order.chunk_by(|a, b| a == b).filter(|run| run[0] == who);
        runs.map(<[usize]>::len).collect::<Vec<_>>()
    };
    assert!(runs(0).iter().all(|run| run % 16 == 0 || *run < 16), "2 * 2 * 4: {:?}", runs(0));
    assert!(runs(0).contains(&16) && runs(1).contains(&32), "{:?} {:?}", runs(0), runs(1));
}

/// The idle class has one request in the device, and one in a turn.
#[test]
fn the_idle_class_takes_one_at_a_time() {
    let mut sim = Sim::new(DISK, 8, &[]);
    sim.client(ROOT, Sim::at(IDLE, 4), 32);
    sim.client(ROOT, Sim::at(IDLE, 4), 32);
    sim.run(secs(1));
    assert!(sim.most_in_device <= 2, "{}", sim.most_in_device);
}

/// Metadata takes over from data (preempt.3), and goes before its neighbours.
#[test]
fn metadata_does_not_wait_for_the_end_of_a_slice() {
    let longest = |flags| {
        let mut sim = Sim::new(DISK, 1, &[("low_latency", "0")]);
        for _ in 0..4 {
            sim.reader(ROOT, 4);
        }
        let meta = sim.reader(ROOT, 1);
        (sim.clients[meta].flags, sim.clients[meta].think) = (flags, ms(400));
        sim.clients[meta].starts = at(1000);
        sim.run(secs(30));
        sim.clients[meta].longest_wait
    };
    assert!(longest(Flags::META) < ms(30), "{}", longest(Flags::META));
    assert!(longest(Flags::NONE) > ms(60), "{}", longest(Flags::NONE));
}

#[test]
fn a_slice_is_told_as_the_kernel_tells_it() {
    let mut sim = Sim::new(FLASH, 8, &[]);
    let group = sim.group(ROOT, 100);
    sim.reader(group, 1);
    sim.cfq.set_tracing(true);
    sim.run(ms(1));
    let message = sim.cfq.poll_message().unwrap();
    assert_eq!((message.group, message.stream.map(|id| id.0)), (group, Some(0)));
    assert_eq!(message.note.to_string(), "sl_used=0 disp=1 charge=1 iops=1 sect=8");
    sim.cfq.set_tracing(false);
    assert_eq!(sim.cfq.poll_message(), None);
}

/// What is out of range is refused, and says what is possible.
#[test]
fn a_tunable_out_of_range_or_of_the_wrong_unit_is_refused() {
    let mut sim = Sim::new(FLASH, 1, &[]);
    let mut says = |name, value| sim.cfq.set(name, value).unwrap_err().to_string();
    assert_eq!(says("quantum", "0"), "quantum takes a number from 1 to 2147483647, not \"0\"");
    assert_eq!(
        says("slice_idle", "8kb"),
        "slice_idle takes auto, or a time from 0s to 1s (a bare number counts ms), not \"8kb\""
    );
    assert!(says("slice_async_us", "1").contains("this scheduler has quantum, fifo_expire_sync"));
    sim.cfq.set("slice_idle", "auto").unwrap();
    assert_eq!(sim.cfq.get("slice_idle").as_deref(), Some("auto"));
    assert_eq!(sim.held, Duration::ZERO);
}

/// A read of stream 0 by hand, in the root's group.
fn read(sim: &mut Sim, id: u32, sector: u64) -> Waiting {
    let request = Waiting {
        id: RequestId(id),
        op: Op::Read,
        flags: Flags::NONE,
        extent: Extent::new(Sector(sector), 8),
        stream: StreamId(0),
        group: sim.streams[0].group,
        priority: Priority::default(),
    };
    sim.cfq.insert(sim.now, &request);
    request
}

/// cfq.1: without it, who is behind the head would wait for as long as others come ahead of it.
#[test]
fn a_request_behind_the_head_goes_when_it_is_old() {
    let mut sim = Sim::new(FLASH, 32, &[("quantum", "1")]);
    sim.reader(ROOT, 0);
    let mut ahead = 1 << 30;
    let mut go = |sim: &mut Sim, id| {
        ahead += 8;
        read(sim, id, ahead)
    };
    go(&mut sim, 1);
    assert_eq!(sim.cfq.dispatch(sim.now), Next::Request(RequestId(1)));
    read(&mut sim, 0, 100);
    for step in 1..200 {
        go(&mut sim, 1 + step);
        sim.now += ms(1);
        let Next::Request(id) = sim.cfq.dispatch(sim.now) else { panic!("one of them goes") };
        assert_eq!(id.0 == 0, step == 125, "after {step} ms");
        if id.0 == 0 {
            return;
        }
    }
    panic!("it still waits");
}

/// cfq.4, cfq.5
#[test]
fn what_was_turned_back_moves_with_its_stream_and_its_old_group_can_go() {
    let mut sim = Sim::new(FLASH, 32, &[]);
    let (old, new) = (sim.group(ROOT, 100), sim.group(ROOT, 100));
    sim.reader(old, 0);
    let mut request = read(&mut sim, 0, 100);
    assert_eq!(sim.cfq.dispatch(sim.now), Next::Request(RequestId(0)));
    sim.cfq.requeue(sim.now, &request);
    let stream = Stream { group: new, ..sim.streams[0] };
    sim.cfq.change_stream(sim.now, StreamId(0), &stream);
    sim.cfq.remove_group(sim.now, old);
    request.group = new;
    assert_eq!(sim.cfq.dispatch(sim.now), Next::Request(RequestId(0)));
    sim.cfq.completed(sim.now, &Served { request, dispatched: sim.now, end: RequestEnd::Done });
    sim.cfq.remove_stream(StreamId(0));
    sim.cfq.remove_group(sim.now, new);
    assert!(sim.cfq.is_empty());
}

/// cfq.4: it was charged when it first went.
#[test]
fn what_was_turned_back_goes_before_all_others_and_is_not_charged_again() {
    let mut sim = Sim::new(FLASH, 32, &[]);
    sim.reader(ROOT, 0);
    sim.cfq.set_tracing(true);
    let first = read(&mut sim, 0, 100);
    assert_eq!(sim.cfq.dispatch(sim.now), Next::Request(RequestId(0)));
    read(&mut sim, 1, 50);
    sim.cfq.requeue(sim.now, &first);
    assert_eq!(sim.cfq.len(), 2);
    assert_eq!(sim.cfq.dispatch(sim.now), Next::Request(RequestId(0)));
    assert_eq!(sim.cfq.dispatch(sim.now), Next::Request(RequestId(1)));
    let charged = std::iter::from_fn(|| sim.cfq.poll_message()).map(|message| message.note.to_string());
    assert_eq!(charged.collect::<Vec<_>>(), ["sl_used=0 disp=1 charge=1 iops=1 sect=8"; 2]);
}

/// cfq.5
#[test]
fn reads_and_writes_that_wait_move_with_their_stream_and_those_of_others_stay() {
    let mut sim = Sim::new(FLASH, 32, &[]);
    let (old, new) = (sim.group(ROOT, 100), sim.group(ROOT, 100));
    sim.reader(old, 0);
    sim.reader(old, 0);
    let ask = |sim: &mut Sim, id: u32, op, stream: u32| {
        // The last one is the nearest to the head: of one queue it goes first.
        let extent = Extent::new(Sector(9000 - u64::from(id) * 1000), 8);
        let (stream, priority) = (StreamId(stream), Priority::default());
        let request = Waiting { id: RequestId(id), op, flags: Flags::NONE, extent, stream, group: old, priority };
        sim.cfq.insert(sim.now, &request);
        request
    };
    let mut requests = [ask(&mut sim, 0, Op::Read, 0), ask(&mut sim, 1, Op::Write, 0), ask(&mut sim, 2, Op::Write, 1)];
    for (id, request) in (0..2).zip(&mut requests) {
        request.group = new;
        assert_eq!(request.id, RequestId(id));
    }
    sim.cfq.change_stream(sim.now, StreamId(0), &Stream { group: new, ..sim.streams[0] });
    // Served and gone: the other stream's write, then its group.
    sim.cfq.set_group(sim.now, new, &Group { weight: Weight::new(1), ..sim.groups[2].clone() });
    sim.cfq.set_group(sim.now, old, &Group { weight: Weight::new(1000), ..sim.groups[1].clone() });
    for _ in 0..3 {
        let Next::Request(id) = sim.cfq.dispatch(sim.now) else { panic!("all of them go") };
        let request = requests[id.0 as usize];
        sim.cfq.completed(sim.now, &Served { request, dispatched: sim.now, end: RequestEnd::Done });
        if id == RequestId(2) {
            sim.cfq.remove_stream(StreamId(1));
            sim.cfq.remove_group(sim.now, old);
        }
    }
    assert!(sim.cfq.is_empty());
}
