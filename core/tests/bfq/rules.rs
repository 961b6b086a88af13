//! Each rule of BFQ's, as a scenario.

use super::*;

/// A counter of BFQ's.
fn counted(bfq: &Bfq, name: &str) -> u64 {
    let mut found = 0;
    bfq.counters(&mut |each, count| found += if each == name { count } else { 0 });
    found
}

/// On a disk that rotates, in turns: as many streams in one group.
fn on_disk(streams: u32, settings: &[(&str, &str)]) -> Bench {
    let mut bench = Bench::new(0, bfq(&groups(&[]), 32, true, Settings::default()));
    for (name, value) in [("service", "turns"), ("low_latency", "0"), ("queue_merging", "off")].iter().chain(settings) {
        bench.bfq.set(name, value).expect("it can be set");
    }
    (0..streams).for_each(|id| bench.add_stream(id, stream(0, PriorityClass::BestEffort, 4)));
    bench
}

impl Bench {
    /// Gives the device one request after the other, each for so long, until so many have ended; which streams they were of.
    fn serve(&mut self, count: usize, each: Duration) -> Vec<u32> {
        let mut order = Vec::new();
        while order.len() < count {
            if let [gone] = self.dispatch(1)[..] {
                order.push(gone.stream.0);
                self.now += each;
                self.end(gone.id);
            } else {
                self.pass(each);
            }
        }
        order
    }
}

/// bfq.1
#[test]
fn a_stream_of_the_highest_level_has_eight_times_that_of_the_lowest_and_a_higher_class_goes_first() {
    let mut bench = Bench::new(0, bfq(&groups(&[]), 1, false, Settings::default()));
    bench.bfq.set("service", "together").expect("it can be set");
    bench.add_stream(0, stream(0, PriorityClass::BestEffort, 0));
    bench.add_stream(1, stream(0, PriorityClass::BestEffort, 7));
    bench.add_stream(2, stream(0, PriorityClass::RealTime, 7));
    for place in 0..150 {
        (0..3).for_each(|id| bench.ask(StreamId(id), Op::Read, Flags::NONE, (3 * place + u64::from(id)) << 16, 256));
    }
    let order = bench.serve(150 + 90, us(100));
    assert_eq!(order[..150], [2; 150], "all of the higher class");
    let high = order[150..].iter().filter(|id| **id == 0).count();
    assert!((79..=81).contains(&high), "80 of 90 by weight, and it had {high}");
}

/// bfq.3: turns end when the budget is used, when the time is up, and when nothing is left to ask.
#[test]
fn a_turn_is_a_budget_of_sectors_or_timeout_sync() {
    // The length of each run of requests of one stream.
    let turns = |settings: &[(&str, &str)], sectors: u64, each: Duration| {
        let mut bench = on_disk(2, settings);
        for place in 0..100 {
            (0..2).for_each(|id| {
                bench.ask(StreamId(id), Op::Read, Flags::NONE, (2 * place + u64::from(id)) << 10, sectors)
            });
        }
        let order = bench.serve(100, each);
        order.chunk_by(|a, b| a == b).map(<[u32]>::len).collect::<Vec<_>>()
    };
    assert_eq!(turns(&[("max_budget", "64")], 8, us(100))[..6], [1, 1, 4, 4, 8, 8], "64 sectors once they are needed");
    assert_eq!(turns(&[("max_budget", "64")], 128, us(100))[..4], [1; 4], "one that is larger goes, and ends the turn");
    assert_eq!(turns(&[("timeout_sync", "20ms")], 8, ms(9))[..4], [3; 4], "the third is sent at 18 ms");
}

/// bfq.4
#[test]
fn requests_of_a_turn_go_by_position_until_the_oldest_has_waited_for_fifo_expire() {
    let mut bench = on_disk(1, &[("timeout_sync", "10s")]);
    let ask = |bench: &mut Bench, starts: &[u64]| {
        starts.iter().for_each(|start| bench.ask(StreamId(0), Op::Read, Flags::NONE, start << 20, 8));
    };
    let next = |bench: &mut Bench| {
        let gone = bench.dispatch(1)[0];
        bench.end(gone.id);
        gone.extent.start.0 >> 20
    };
    ask(&mut bench, &[9, 5, 7]);
    assert_eq!([(); 2].map(|()| next(&mut bench)), [5, 7], "the nearest ahead first");
    ask(&mut bench, &[2]);
    bench.now += ms(100);
    ask(&mut bench, &[10, 11]);
    assert_eq!(next(&mut bench), 9, "it has waited for 100 ms, and is the nearest as well");
    bench.now += ms(24);
    assert_eq!(next(&mut bench), 10);
    bench.now += ms(1);
    assert_eq!(next(&mut bench), 2, "after 125 ms, though it is behind and far");
    assert_eq!(next(&mut bench), 11);
}

/// bfq.7
#[test]
fn a_stream_that_comes_is_raised_where_low_latency_says_so() {
    for (low_latency, raised) in [("1", 1), ("0", 0)] {
        let mut bench = on_disk(1, &[("low_latency", low_latency)]);
        bench.ask(StreamId(0), Op::Read, Flags::NONE, 0, 8);
        assert_eq!(counted(&bench.bfq, "raised"), raised);
    }
}

/// raising.1: its request in the device is work that it does.
#[test]
fn a_stream_with_a_request_in_the_device_is_not_idle() {
    let mut bench = on_disk(1, &[("low_latency", "0")]);
    bench.ask(StreamId(0), Op::Read, Flags::NONE, 0, 8);
    assert_eq!(bench.dispatch(1).len(), 1);
    bench.bfq.set("low_latency", "1").expect("it can be set");
    bench.ask(StreamId(0), Op::Read, Flags::NONE, 8, 8);
    assert_eq!(counted(&bench.bfq, "raised"), 0);
}

/// together.4: 8 of the 32 that the device takes, until throughput turns out to need more.
#[test]
fn the_device_has_no_more_than_the_depth_that_was_learned() {
    for (places, in_device) in [("0", 8), ("20", 20), ("100", 32)] {
        let mut bench = on_flash(places, &[100]);
        (0..64).for_each(|n| bench.ask(StreamId(0), Op::Read, Flags::NONE, n << 16, 8));
        assert_eq!(bench.dispatch(64).len(), in_device, "device_depth={places}");
    }
}

/// turns.5: a stream that asks for one request at a time and is not idled for, beside one that always asks.
#[test]
fn a_stream_that_is_back_in_time_takes_over_and_a_later_one_waits_for_the_turn() {
    for (back, takes_over) in [(24, true), (25, false)] {
        let mut bench = on_disk(2, &[("slice_idle", "0")]);
        bench.ask(StreamId(0), Op::Read, Flags::NONE, 0, 8);
        assert_eq!(bench.serve(1, ms(1)), [0]);
        (1..100).for_each(|n| bench.ask(StreamId(1), Op::Read, Flags::NONE, n << 16, 8));
        assert_eq!(bench.serve(back, ms(1)), vec![1; back]);
        bench.ask(StreamId(0), Op::Read, Flags::NONE, 8, 8);
        assert_eq!(bench.serve(1, ms(1)), [u32::from(!takes_over)], "after {back} ms");
    }
}

/// notes.1, notes.2
#[test]
fn of_messages_the_latest_are_kept_and_a_queue_that_streams_share_has_no_name() {
    let mut bench = on_disk(1, &[("max_budget", "8")]);
    bench.bfq.set_tracing(true);
    let mut place = 0;
    let mut write = |bench: &mut Bench, flags| {
        place += 1 << 16;
        bench.ask(StreamId(0), Op::Write, flags, place, 8);
        bench.settle(1);
        bench.bfq.set("low_latency", "1").expect("it can be set");
        bench.bfq.set("low_latency", "0").expect("it can be set");
    };
    (0..5000).for_each(|_| write(&mut bench, Flags::NONE));
    (0..10).for_each(|_| write(&mut bench, Flags::SYNC));
    let traced: Vec<_> = std::iter::from_fn(|| bench.bfq.poll_message()).collect();
    assert_eq!(traced.len(), 4096);
    assert_eq!(traced[0].stream, None, "written behind the stream's back");
    assert_eq!(traced[4095].stream, Some(StreamId(0)));
}

/// together.2: a heavy stream that asks one request at a time, beside a light one that asks many.
fn heavy_beside_deep(group_idle: &str) -> (u64, u64) {
    let tree = groups(&[800, 100]);
    let mut bench = Bench::new(0, bfq(&tree, 32, false, Settings::default()));
    bench.bfq.set("group_idle", group_idle).expect("it can be set");
    bench.add_stream(0, stream(1, PriorityClass::BestEffort, 4));
    bench.add_stream(1, stream(2, PriorityClass::BestEffort, 4));
    let mut place = 0;
    let mut ask = |bench: &mut Bench, id| {
        place += 1000;
        bench.ask(StreamId(id), Op::Read, Flags::NONE, place, 8);
    };
    ask(&mut bench, 0);
    (0..16).for_each(|_| ask(&mut bench, 1));
    let mut served = [0, 0];
    for _ in 0..20_000 {
        for gone in bench.dispatch(32) {
            served[gone.stream.0 as usize] += 1;
        }
        bench.pass(us(10));
        // Each takes 100 µs.
        let done: Vec<_> = bench
            .in_device
            .iter()
            .filter(|(_, (_, since))| bench.now.since(*since) >= us(100))
            .map(|(id, _)| *id)
            .collect();
        for id in done {
            let who = bench.in_device[&id].0.stream.0;
            bench.end(id);
            ask(&mut bench, who);
        }
    }
    (served[0], served[1])
}

#[test]
fn a_heavy_stream_of_one_request_at_a_time_holds_the_light_one_to_its_share() {
    let (heavy, light) = heavy_beside_deep("8ms");
    let ratio = heavy as f64 / light as f64;
    assert!((7.6..8.4).contains(&ratio), "8 to 1 by weight, and it was {heavy} to {light}");
}

#[test]
fn without_group_idle_nobody_waits_for_anybody() {
    let (heavy, light) = heavy_beside_deep("0");
    assert!(light > 5 * heavy, "the deep one has what the device gives: {heavy} to {light}");
}

/// bfq.6
#[test]
fn strict_guarantees_have_one_request_in_the_device_and_wait_for_the_stream() {
    let tree = groups(&[100, 100]);
    let mut bench = Bench::new(0, bfq(&tree, 32, false, Settings::default()));
    bench.bfq.set("strict_guarantees", "1").expect("it can be set");
    bench.bfq.set("low_latency", "0").expect("it can be set");
    bench.add_stream(0, stream(1, PriorityClass::BestEffort, 4));
    bench.add_stream(1, stream(2, PriorityClass::BestEffort, 4));
    bench.ask(StreamId(0), Op::Read, Flags::NONE, 0, 8);
    let first = bench.dispatch(32);
    assert_eq!(first.len(), 1);
    bench.ask(StreamId(1), Op::Read, Flags::NONE, 1 << 20, 8);
    assert!(bench.dispatch(32).is_empty(), "one at a time");
    bench.end(first[0].id);
    assert!(bench.dispatch(32).is_empty(), "the device is held for the first");
    assert_eq!(bench.bfq.next_timeout(), Some(bench.now + ms(8)));
    bench.pass(secs(1));
    assert_eq!(bench.dispatch(32)[0].stream, StreamId(1), "and not for longer than slice_idle");
}

/// On a device that does not rotate, many at once, with so many places: a stream in a group of each weight.
fn on_flash(places: &str, weights: &[u16]) -> Bench {
    let mut bench = Bench::new(0, bfq(&groups(weights), 32, false, Settings::default()));
    for (name, value) in [("service", "together"), ("low_latency", "0"), ("device_depth", places)] {
        bench.bfq.set(name, value).expect("it can be set");
    }
    for id in 0..weights.len() {
        bench.add_stream(id as u32, stream(1 + id as u16, PriorityClass::BestEffort, 4));
    }
    bench
}

/// together.5
#[test]
fn a_device_full_of_writes_takes_reads_as_many_as_it_has_places() {
    let mut bench = on_flash("2", &[100, 1000, 1000, 1000]);
    for n in 0..8 {
        bench.ask(StreamId(0), Op::Write, Flags::SYNC, n << 16, 256);
    }
    assert_eq!(bench.dispatch(32).len(), 2, "what `device_depth` says");
    assert!(bench.dispatch(32).is_empty(), "and no write more");
    (1..4).for_each(|id| bench.ask(StreamId(id), Op::Read, Flags::NONE, u64::from(id) << 32, 8));
    let reads = bench.dispatch(32);
    assert!(reads.len() == 2 && reads.iter().all(|gone| gone.op == Op::Read), "{reads:?}");
    assert!(bench.dispatch(32).is_empty(), "as many reads, and no more");
    let write = *bench.in_device.iter().find(|(_, (gone, _))| gone.op == Op::Write).expect("two of them").0;
    bench.pass(ms(1));
    bench.end(write);
    assert!(bench.dispatch(32).is_empty(), "three are there: no place for a write, and reads have theirs");
    bench.end(reads[0].id);
    assert_eq!(bench.dispatch(32)[0].op, Op::Read);
}

/// together.5: who writes has his turn, and no room; who reads and would be next is not in his way.
#[test]
fn a_newcomer_that_reads_passes_a_writer_that_waits_for_room_if_he_would_be_next() {
    for (weight, passes) in [(1000, true), (1, false)] {
        let mut bench = on_flash("1", &[100, 100, weight]);
        for n in 0..4 {
            bench.ask(StreamId(0), Op::Write, Flags::SYNC, n << 16, 256);
            bench.ask(StreamId(1), Op::Read, Flags::NONE, (n + 9) << 16, 256);
        }
        let mut reads = 0;
        loop {
            let gone = bench.dispatch(32);
            let writes = bench.in_device.values().filter(|(gone, _)| gone.op == Op::Write).count();
            assert_eq!(writes, 1, "there is one place for those");
            let Some(read) = gone.iter().find(|gone| gone.op == Op::Read) else { break };
            reads += 1;
            bench.pass(us(100));
            bench.end(read.id);
        }
        assert!(reads <= 2, "{reads} reads, and the writer has had one request: his turn it is");
        bench.ask(StreamId(2), Op::Read, Flags::NONE, 1 << 32, 256);
        assert_eq!(bench.dispatch(32).len(), usize::from(passes), "weight {weight}");
    }
}

/// together.5: small writes, many of them in a turn, and the first reader that there is.
#[test]
fn a_reader_is_not_behind_the_rest_of_a_turn_of_writes_that_waits_for_room() {
    let mut bench = on_flash("1", &[100, 1000]);
    for n in 0..16 {
        bench.ask(StreamId(0), Op::Write, Flags::SYNC, n << 16, 8);
    }
    assert_eq!(bench.dispatch(32).len(), 1);
    bench.ask(StreamId(1), Op::Read, Flags::NONE, 1 << 32, 8);
    assert_eq!(bench.dispatch(32)[0].op, Op::Read);
}

/// together.5: a newcomer that writes has no room either.
#[test]
fn who_writes_does_not_end_the_turn_of_another_that_waits_for_room() {
    let mut bench = on_flash("1", &[100, 1000]);
    for n in 0..16 {
        bench.ask(StreamId(0), Op::Write, Flags::SYNC, n << 16, 8);
    }
    bench.dispatch(32);
    bench.ask(StreamId(1), Op::Write, Flags::SYNC, 1 << 32, 8);
    assert_eq!(counted(&bench.bfq, "preemptions"), 0);
}

/// together.3: the others wait for one who starts a program, and not where most do.
#[test]
fn where_most_are_raised_nobody_has_the_device_for_himself() {
    for (level, waits) in [(7, true), (4, false)] {
        let mut bench = Bench::new(0, bfq(&groups(&[]), 32, false, Settings::default()));
        bench.bfq.set("service", "together").expect("it can be set");
        // Of another level than the default, it is not raised.
        for (id, level) in [(0, 4), (1, 7), (2, level)] {
            bench.add_stream(id, stream(0, PriorityClass::BestEffort, level));
        }
        bench.ask(StreamId(0), Op::Read, Flags::NONE, 0, 8);
        assert_eq!(bench.dispatch(32).len(), 1);
        for id in [1, 2] {
            bench.ask(StreamId(id), Op::Read, Flags::NONE, u64::from(id) << 20, 8);
        }
        let gone = bench.dispatch(32);
        assert_eq!(gone.iter().all(|gone| gone.stream != StreamId(1)), waits, "level {level}: {gone:?}");
    }
}

/// turns.4: whether the disk takes several at once or not, an arm follows one stream; what it writes goes to its cache.
#[test]
fn a_disk_that_rotates_is_held_for_a_reader_that_seeks_though_it_queues() {
    for (op, held) in [(Op::Read, true), (Op::Write, false)] {
        let mut bench = Bench::new(0, bfq(&groups(&[]), 32, true, Settings::default()));
        for (name, value) in [("service", "turns"), ("low_latency", "0"), ("queue_merging", "off")] {
            bench.bfq.set(name, value).expect("it can be set");
        }
        (0..3).for_each(|id| bench.add_stream(id, stream(0, PriorityClass::BestEffort, 4)));
        // Many in the device at once: it queues. And all far apart: it seeks.
        let far = |n: u64| n * 7919 % 1000 * (1 << 16);
        for round in 0..20 {
            for n in 0..16 {
                bench.ask(StreamId(0), op, Flags::SYNC, far(round * 16 + n), 8);
            }
            bench.settle(32);
        }
        bench.ask(StreamId(0), op, Flags::SYNC, far(3), 8);
        let first = bench.dispatch(32)[0];
        bench.ask(StreamId(2), op, Flags::SYNC, far(5), 8);
        bench.pass(ms(5));
        bench.end(first.id);
        let next = bench.dispatch(32);
        assert_eq!(next.is_empty(), held, "{op:?}: {next:?}");
    }
}

/// bfq.8: merge.7 of merging.
#[test]
fn on_a_device_that_does_not_rotate_and_queues_no_position_is_kept() {
    let tree = groups(&[]);
    for (rotational, kept) in [(false, false), (true, true)] {
        let mut bench = Bench::new(0, bfq(&tree, 32, rotational, Settings::default()));
        (0..4).for_each(|id| bench.add_stream(id, stream(0, PriorityClass::BestEffort, 4)));
        for round in 0..200 {
            for id in 0..4 {
                bench.ask(StreamId(id), Op::Read, Flags::NONE, (round * 4 + u64::from(id)) * 64, 64);
            }
            bench.settle(32);
        }
        let ops = counted(&bench.bfq, "position_tree_ops");
        assert_eq!(ops > 0, kept, "{ops} operations");
    }
}

/// bfq.5, bfq.2: what comes back is not charged again, and goes first.
#[test]
fn what_the_device_turned_back_goes_first() {
    let mut bench = Bench::new(0, bfq(&groups(&[]), 32, false, Settings::default()));
    bench.add_stream(0, stream(0, PriorityClass::BestEffort, 4));
    (0..3).for_each(|at| bench.ask(StreamId(0), Op::Read, Flags::NONE, at * 1000, 8));
    let first = bench.dispatch(2);
    let (id, request) = (first[1].id, first[1]);
    bench.in_device.remove(&id);
    bench.bfq.requeue(bench.now, &request);
    bench.waiting.insert(id, request);
    assert_eq!(bench.dispatch(2)[0].id, id);
    bench.settle(2);
}

/// charge.1: time spent for a stream's flushes counts against its group.
#[test]
fn a_group_that_is_charged_for_its_flushes_has_less_of_the_device() {
    let served = |charge: bool| {
        let mut bench = Bench::new(0, bfq(&groups(&[100, 100]), 32, false, Settings::default()));
        (0..2).for_each(|id| bench.add_stream(id, stream(id as u16 + 1, PriorityClass::BestEffort, 4)));
        let mut place = 0;
        let mut served = [0_u64; 2];
        for _ in 0..2000 {
            for id in 0..2 {
                while bench.waiting.values().filter(|waiting| waiting.stream.0 == id).count() < 8 {
                    place += 1000;
                    bench.ask(StreamId(id), Op::Read, Flags::NONE, place, 64);
                }
            }
            for gone in bench.dispatch(4) {
                served[gone.stream.0 as usize] += 1;
            }
            if charge {
                bench.bfq.charge(bench.now, StreamId(0), GroupId(1), us(50));
            }
            bench.pass(us(100));
            let ids: Vec<_> = bench.in_device.keys().copied().collect();
            ids.into_iter().for_each(|id| bench.end(id));
        }
        served
    };
    let [fair, other] = served(false);
    assert!(fair.abs_diff(other) < 20, "{fair} and {other}");
    let [charged, other] = served(true);
    assert!(charged * 10 < other * 9, "{charged} and {other}");
}

/// A hold that ends while the device is full would have the scheduler asked again for ever.
#[test]
fn a_full_device_is_no_reason_to_ask_again() {
    let mut bench = Bench::new(0, bfq(&groups(&[100, 100]), 32, false, Settings::default()));
    bench.bfq.set("service", "turns").expect("it can be set");
    (0..2).for_each(|id| bench.add_stream(id, stream(id as u16 + 1, PriorityClass::BestEffort, 4)));
    bench.ask(StreamId(0), Op::Read, Flags::NONE, 0, 8);
    assert_eq!(bench.dispatch(32).len(), 1);
    bench.ask(StreamId(1), Op::Read, Flags::NONE, 1 << 20, 8);
    assert!(bench.dispatch(32).is_empty());
    assert!(bench.bfq.next_timeout().is_some(), "held for the first, whose request is in the device");
    bench.bfq.set("device_depth", "1").expect("it can be set");
    bench.now += secs(1);
    assert!(bench.dispatch(32).is_empty());
    assert_eq!(bench.bfq.next_timeout(), None);
}

/// Why turns end, for whom the device is held, and who is raised.
#[test]
fn whoever_listens_is_told_what_bfq_does_for_reasons_of_its_own() {
    let mut bench = Bench::new(0, bfq(&groups(&[100, 100]), 1, true, Settings::default()));
    (0..2).for_each(|id| bench.add_stream(id, stream(id as u16 + 1, PriorityClass::BestEffort, 4)));
    bench.bfq.set_tracing(true);
    bench.ask(StreamId(0), Op::Read, Flags::NONE, 0, 8);
    bench.ask(StreamId(1), Op::Read, Flags::NONE, 1 << 20, 8);
    let first = bench.dispatch(1);
    bench.pass(ms(1));
    bench.end(first[0].id);
    assert!(bench.dispatch(1).is_empty(), "held for the first");
    bench.pass(secs(1));
    bench.dispatch(1);
    bench.bfq.set("low_latency", "0").expect("it can be set");
    let messages = |bfq: &mut Bfq| {
        std::iter::from_fn(|| bfq.poll_message())
            .map(|message| format!("{} {}: {}", message.group.0, message.stream.expect("one stream's").0, message.note))
            .collect::<Vec<_>>()
    };
    let all = messages(&mut bench.bfq);
    assert_eq!(all.len(), 6, "{all:#?}");
    assert_eq!(all[..2], ["1 0: wrais starting x30", "2 1: wrais starting x30"]);
    assert_eq!(all[2], "1 0: arm idle: 20 ms busy=0");
    assert!(all[3].starts_with("1 0: expire (too_idle) used=8 budget="), "{}", all[3]);
    assert!(all[3].ends_with(" ms=21"), "{}", all[3]);
    assert_eq!(all[4..], ["1 0: wrais ending", "2 1: wrais ending"]);
    bench.bfq.set_tracing(false);
    bench.settle(1);
    assert_eq!(messages(&mut bench.bfq), [""; 0], "nothing is kept for nobody");
}

/// merge.3: who shares a queue, and who has one of his own again.
#[test]
fn whoever_listens_is_told_who_shares_a_queue() {
    let mut bench = Bench::new(0, bfq(&groups(&[]), 1, true, Settings::default()));
    (0..2).for_each(|id| bench.add_stream(id, stream(0, PriorityClass::BestEffort, 4)));
    bench.bfq.set("low_latency", "0").expect("it can be set"); // A raised one's turn is long.
    bench.bfq.set_tracing(true);
    for round in 0..20 {
        (0..2).for_each(|id| bench.ask(StreamId(id), Op::Read, Flags::NONE, (2 * round + u64::from(id)) * 64, 64));
        bench.settle(1);
    }
    let all: Vec<_> = std::iter::from_fn(|| bench.bfq.poll_message()).collect();
    let merged: Vec<_> = all.iter().filter(|message| message.note == Note::Merged).collect();
    assert_eq!(merged.len(), 1);
    assert_eq!(merged[0].stream, Some(StreamId(1)));
    for round in 0..500 {
        (0..2).for_each(|id| {
            bench.ask(StreamId(id), Op::Read, Flags::NONE, (1 << 30) * u64::from(id + 1) + round * (1 << 20), 8);
        });
        bench.settle(1);
    }
    assert!(std::iter::from_fn(|| bench.bfq.poll_message()).any(|message| message.note == Note::Parted));
}

/// merge.3: streams of unlike levels share no queue.
#[test]
fn unlike_levels_share_no_queue() {
    let merges = |levels: [u8; 2]| {
        let mut bench = Bench::new(0, bfq(&groups(&[]), 1, true, Settings::default()));
        (0..).zip(levels).for_each(|(id, level)| bench.add_stream(id, stream(0, PriorityClass::BestEffort, level)));
        bench.bfq.set("low_latency", "0").expect("it can be set"); // A raised one's turn is long.
        for round in 0..20 {
            (0..2).for_each(|id| bench.ask(StreamId(id), Op::Read, Flags::NONE, (2 * round + u64::from(id)) * 64, 64));
            bench.settle(1);
        }
        counted(&bench.bfq, "queue_merges")
    };
    assert_eq!((merges([0, 4]), merges([4, 4])), (0, 1));
}
