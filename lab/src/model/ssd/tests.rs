//! Scenarios: rules ssd.1–7, ssd_write.1–3, ssd_read.1, seen from outside.

use super::*;
use crate::model::Metered;
use fairlift_core::time::{ms, us};
use fairlift_core::{Duration, Extent, Flags, Sector};

/// A disk whose times are easy to add up, without chance.
fn plain() -> Settings {
    Settings {
        overhead: us(10),
        read_command: us(1),
        write_command: us(2),
        link: 512,    // a sector a microsecond
        channel: 512, // likewise
        duplex: true,
        alone: false,
        slots: 1000,
        channels: 4,
        dies: 8,
        page: 4,
        read: us(50),
        spread: 0,
        unit: 16,
        program: us(1000),
        buffer: 64,
        plp: false,
        flush: ms(2),
        discard: us(100),
        read_ahead: 0,
        suspends: 0,
        ..Settings::default()
    }
}

struct Bench {
    ssd: Metered<Ssd>,
    now: Instant,
    next: u64,
}

impl Bench {
    fn new(settings: Settings) -> Self {
        Self { ssd: Metered::new(Ssd::new(settings, 1 << 24, 1)), now: Instant::ZERO, next: 0 }
    }

    fn submit(&mut self, op: Op, flags: Flags, start: u64, sectors: u64) -> u64 {
        self.next += 1;
        let extent = Extent::new(Sector(start), sectors);
        self.ssd.submit(self.now, &ModelRequest { id: self.next, op, flags, extent });
        self.next
    }

    fn read(&mut self, start: u64, sectors: u64) -> u64 {
        self.submit(Op::Read, Flags::NONE, start, sectors)
    }

    fn write(&mut self, start: u64, sectors: u64) -> u64 {
        self.submit(Op::Write, Flags::NONE, start, sectors)
    }

    fn flush(&mut self) -> u64 {
        self.submit(Op::Flush, Flags::NONE, 0, 0)
    }

    /// Until nothing is under way: (request, microseconds since the beginning), in order.
    fn run(&mut self) -> Vec<(u64, u64)> {
        let mut ended = Vec::new();
        while let Some(at) = self.ssd.poll_event() {
            assert!(at >= self.now, "an event lies in the past");
            self.now = at;
            self.ssd.advance(at, &mut ended);
        }
        assert!(ended.is_sorted_by_key(|one| one.at));
        ended.iter().map(|one| (one.id, one.at.as_nanos() / 1000)).collect()
    }

    fn at(&mut self, at: Duration) {
        let to = Instant::ZERO + at;
        let mut ended = Vec::new();
        while let Some(next) = self.ssd.poll_event().filter(|next| *next <= to) {
            self.ssd.advance(next, &mut ended);
        }
        self.now = to;
    }
}

/// ssd.1, ssd.2
#[test]
fn a_read_takes_overhead_controller_page_channel_and_link() {
    let mut bench = Bench::new(plain());
    bench.read(0, 8);
    assert_eq!(bench.run(), [(1, 10 + 1 + 50 + 8 + 8)]);
}

/// ssd.2
#[test]
fn a_long_read_takes_its_pages_at_once_and_the_link_one_after_the_other() {
    let mut bench = Bench::new(plain());
    bench.read(0, 64);
    // 8 pages on 8 dies; channels carry two each, the link eight.
    assert_eq!(bench.run(), [(1, 10 + 1 + 50 + 8 + 64)]);
}

/// ssd.1
#[test]
fn the_controller_bounds_the_rate() {
    let mut bench = Bench::new(Settings { read_command: us(100), ..plain() });
    for page in 0..4 {
        bench.read(page * 8, 8);
    }
    let ends: Vec<_> = bench.run().iter().map(|end| end.1).collect();
    assert_eq!(ends, [176, 276, 376, 476]);
}

/// ssd.1
#[test]
fn what_finds_no_slot_waits_until_one_ends() {
    let mut bench = Bench::new(Settings { slots: 1, ..plain() });
    bench.read(0, 8);
    bench.read(8, 8);
    assert_eq!(bench.run(), [(1, 77), (2, 154)]);
}

/// ssd.1
#[test]
fn with_sata_a_flush_lets_others_end_and_then_keeps_them_out() {
    let mut bench = Bench::new(Settings { alone: true, ..plain() });
    bench.write(0, 8);
    bench.read(800, 8);
    bench.flush();
    bench.read(1600, 8);
    let ends = bench.run();
    // Write and read end; then the flush: command, program, mapping; then the last read.
    assert_eq!(ends.iter().map(|end| end.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let read = ends[1].1;
    assert_eq!(ends[2].1, read + 12 + 1000 + 2000);
    assert_eq!(ends[3].1, ends[2].1 + 77);
    let mut bench = Bench::new(plain());
    bench.write(0, 8);
    bench.flush();
    bench.read(1600, 8);
    assert_eq!(bench.run().last().unwrap().0, 2, "without, the read passes it");
}

/// ssd.4, ssd_write.1
#[test]
fn writes_end_in_the_buffer_until_it_is_full_and_then_as_programs_make_room() {
    let mut bench = Bench::new(plain());
    for number in 0..5 {
        bench.write(number * 1000, 32);
    }
    let ends = bench.run();
    let at = |id: u64| ends.iter().find(|end| end.0 == id).unwrap().1;
    assert_eq!([at(1), at(2), at(3), at(4)], [44, 76, 108, 140], "four times 16 KiB fill the buffer");
    assert_eq!(at(5), 12 + 1000 + 32, "the first program ends, and its place is taken");
}

/// ssd.4
#[test]
fn on_a_link_of_one_direction_at_a_time_a_read_waits_for_one_write_not_for_all() {
    for (duplex, took) in [(false, 12 + 128 + 8), (true, 10 + 9 + 50 + 8 + 8)] {
        let mut bench = Bench::new(Settings { duplex, buffer: 1024, unit: 1024, ..plain() });
        for number in 0..4 {
            bench.write(number * 1000, 128);
        }
        bench.read(8000, 8);
        let ends = bench.run();
        let at = |id: u64| ends.iter().find(|end| end.0 == id).unwrap().1;
        assert_eq!(at(5), took, "duplex: {duplex}");
        assert_eq!(at(4) - at(1), if duplex { 3 * 128 } else { 3 * 128 + 8 });
    }
}

/// ssd.5
#[test]
fn less_than_a_unit_stays_in_the_buffer() {
    let mut bench = Bench::new(plain());
    bench.write(0, 8);
    assert_eq!(bench.run(), [(1, 20)]);
    assert_eq!(bench.now, Instant::ZERO + us(20), "no program follows");
}

/// ssd.7, ssd_write.2
#[test]
fn a_flush_programs_what_is_buffered_and_makes_the_mapping_durable() {
    let mut bench = Bench::new(plain());
    bench.write(0, 8);
    bench.at(us(100));
    bench.flush();
    assert_eq!(bench.run(), [(2, 100 + 12 + 1000 + 2000)]);
    for (flush_spared, took) in [(false, 2012), (true, 12)] {
        let mut bench = Bench::new(Settings { flush_spared, ..plain() });
        bench.write(0, 8);
        bench.flush();
        bench.at(ms(10));
        bench.flush();
        assert_eq!(bench.run(), [(3, 10_000 + took)], "nothing was written since");
    }
}

#[test]
fn a_flush_holds_up_no_read_that_comes_later() {
    let mut bench = Bench::new(plain());
    bench.flush();
    bench.read(0, 8);
    assert_eq!(bench.run(), [(2, 79), (1, 2012)]);
}

/// ssd_write.3
#[test]
fn flushes_after_a_write_each_take_turns_at_the_mapping() {
    let mut bench = Bench::new(plain());
    for number in 0..4 {
        bench.write(number * 1000, 8);
        bench.flush();
    }
    let flushes: Vec<_> = bench.run().iter().filter(|end| end.0 % 2 == 0).map(|end| end.1).collect();
    assert_eq!(flushes.len(), 4);
    assert!(flushes.windows(2).all(|pair| pair[1] - pair[0] == 2000), "{flushes:?}: this is what coalescing saves");
}

/// ssd.7
#[test]
fn a_durable_write_costs_what_write_and_flush_cost() {
    let mut bench = Bench::new(plain());
    bench.submit(Op::Write, Flags::FUA, 0, 8);
    assert_eq!(bench.run(), [(1, 12 + 1000 + 2000)]);
}

/// ssd.7
#[test]
fn with_protection_flushes_and_durable_writes_cost_a_command() {
    let mut bench = Bench::new(Settings { plp: true, ..plain() });
    assert!(!bench.ssd.character().volatile_cache);
    bench.submit(Op::Write, Flags::FUA, 0, 8);
    bench.at(ms(1));
    bench.flush();
    assert_eq!(bench.run(), [(2, 1012)]);
    assert!(Bench::new(plain()).ssd.character().volatile_cache);
}

/// ssd.3, ssd_read.1
#[test]
fn a_sequential_stream_is_read_ahead_from_its_second_read_on() {
    let mut bench = Bench::new(Settings { read_ahead: 16, ..plain() });
    let took = |bench: &mut Bench, start| {
        let before = bench.now;
        bench.read(start, 8);
        bench.run();
        bench.now.since(before).as_nanos() / 1000
    };
    assert_eq!(took(&mut bench, 0), 77);
    assert_eq!(took(&mut bench, 8), 77, "nothing is known before the second");
    for start in (16..800).step_by(8) {
        assert!(took(&mut bench, start) < 60, "{start}: from memory");
    }
    assert_eq!(took(&mut bench, 10_000), 77, "a read elsewhere");
}

/// ssd.8
#[test]
fn small_and_crooked_writes_cost_whole_pages() {
    let mut bench = Bench::new(plain());
    for number in 0..4 {
        bench.write(number * 1000 + 7, 2); // two pages of 4 KiB each
    }
    bench.at(ms(100));
    assert_eq!(bench.ssd.model.buffer.given, 32 << 10);
}

/// ssd.6
#[test]
fn a_worn_disk_programs_scattered_writes_several_times() {
    let took = |pool, scatter| {
        let mut bench = Bench::new(Settings { pool, scatter, overprovision: 70, ..plain() });
        for number in 0..4000_u64 {
            bench.write(number * 999_983 % (1 << 24) / 8 * 8, 8);
        }
        bench.run();
        bench.ssd.model.clock
    };
    assert!(took(0, 100) > 4 * took(100, 0));
}

#[test]
fn discards_cost_the_same_whatever_their_length_and_take_turns() {
    let mut bench = Bench::new(plain());
    bench.submit(Op::Discard, Flags::NONE, 0, 1 << 20);
    bench.submit(Op::WriteZeroes, Flags::NO_UNMAP, 0, 8);
    assert_eq!(bench.run(), [(1, 112), (2, 212)]);
}

#[test]
fn once_warm_nothing_grows() {
    let mut bench = Bench::new(Settings { slots: 32, pool: 0, scatter: 100, read_ahead: 64, ..plain() });
    let mut capacities = Vec::new();
    for round in 0..4_u64 {
        for number in 0..2000 {
            bench.read((round * 2000 + number) * 7919 % (1 << 20) * 8, 8 + number % 3 * 64);
            bench.write(number * 104_729 % (1 << 20) * 8, 64);
        }
        bench.flush();
        bench.run();
        let ssd = &bench.ssd;
        let lists = [ssd.model.requests.capacity(), ssd.model.held.capacity(), ssd.model.ends.capacity()];
        capacities.push((lists, ssd.model.events.capacity()));
    }
    assert_eq!(capacities[1], capacities[3]);
    assert!(capacities[3].1 < 2048, "{capacities:?}: no more than what 32 slots need");
}

#[test]
fn busy_time_and_depth_are_counted_from_submission_to_end() {
    let mut bench = Bench::new(plain());
    bench.read(0, 8);
    bench.read(0, 8);
    let ends = bench.run();
    let work = bench.ssd.work();
    assert_eq!((work.requests, work.flushes), (2, 0));
    assert_eq!(work.busy, ends[1].1 * 1000);
    assert_eq!(work.depth_time, (ends[0].1 + ends[1].1) * 1000);
}
