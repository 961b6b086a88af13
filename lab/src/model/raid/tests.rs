//! Scenarios on an array: the rules of `raid.rs`.

use fairlift_core::model::{Model, ModelCompletion, ModelRequest};
use fairlift_core::time::{ms, secs, us};
use fairlift_core::{Extent, Flags, Instant, Op, Outcome, Sector};

use super::{Raid, Settings};
use crate::Random;

/// 100 GB.
const SECTORS: u64 = 200_000_000;
/// Sectors of a stripe of the default: 11 data chunks of 64 KiB.
const STRIPE: u64 = 11 * 128;

struct Bench {
    raid: Raid,
    sectors: u64,
    now: Instant,
    submitted: u64,
    ended: Vec<ModelCompletion>,
}

fn bench_of(sectors: u64, change: impl FnOnce(&mut Settings)) -> Bench {
    let mut settings = Settings::default();
    change(&mut settings);
    settings.check(sectors * 512).unwrap();
    Bench { raid: Raid::new(settings, sectors, 1), sectors, now: Instant::ZERO, submitted: 0, ended: Vec::new() }
}

fn bench(change: impl FnOnce(&mut Settings)) -> Bench {
    bench_of(SECTORS, change)
}

impl Bench {
    fn ask(&mut self, op: Op, flags: Flags, start: u64, sectors: u64) -> u64 {
        self.submitted += 1;
        let extent = Extent::new(Sector(start), sectors);
        self.raid.submit(self.now, &ModelRequest { id: self.submitted, op, flags, extent });
        self.submitted
    }

    fn step(&mut self) {
        self.now = self.raid.poll_event().expect("something is under way");
        self.raid.advance(self.now, &mut self.ended);
    }

    /// Until the request has ended; how many microseconds from now that takes.
    fn until(&mut self, id: u64) -> u64 {
        let from = self.now;
        loop {
            if let Some(ended) = self.ended.iter().find(|ended| ended.id == id) {
                assert_eq!(ended.outcome, Outcome::Done);
                return ended.at.since(from).as_nanos() / 1000;
            }
            self.step();
        }
    }

    fn takes(&mut self, op: Op, flags: Flags, start: u64, sectors: u64) -> u64 {
        let id = self.ask(op, flags, start, sectors);
        self.until(id)
    }

    /// How many of `op` the array does in ten seconds, `depth` at once, `sectors` long, anywhere.
    fn rate(&mut self, op: Op, sectors: u64, depth: u32) -> u64 {
        let mut random = Random::new(1);
        for _ in 0..depth {
            self.ask(op, Flags::NONE, random.below(self.sectors / sectors) * sectors, sectors);
        }
        let mut count = 0;
        while self.now < Instant::ZERO + secs(10) {
            self.step();
            for _ in 0..self.ended.len() {
                self.ask(op, Flags::NONE, random.below(self.sectors / sectors) * sectors, sectors);
                count += 1;
            }
            self.ended.clear();
        }
        count
    }
}

/// raid.1: the link is shared, and requests on one chunk do not fill it.
#[test]
fn data_crosses_the_link_one_after_another_and_a_single_chunk_at_its_own_rate() {
    let mut bench = bench(|s| (s.controller_rate, s.command_rate) = (400_000, 10_000));
    let (part, one) = (bench.takes(Op::Write, Flags::NONE, 0, 64), bench.takes(Op::Write, Flags::NONE, 64, 2048));
    assert!((3800..3900).contains(&part), "32 KiB at 10 MB/s: {part} us");
    assert!((7100..7200).contains(&one), "1 MiB, of which each 64 KiB at 10 MB/s: {one} us");
    let ids: Vec<_> = (0..32).map(|n| bench.ask(Op::Write, Flags::NONE, n * 2048, 2048)).collect();
    let all = ids.iter().map(|id| bench.until(*id)).sum::<u64>();
    assert!((32 * 2621..32 * 2621 + 9000).contains(&all), "32 MiB at 400 MB/s: {all} us");
}

/// raid.3: two reads and two writes for a small write, against one of each without parity; none but writes for a stripe.
#[test]
fn a_small_write_costs_four_ios_and_a_whole_stripe_costs_no_reads() {
    let through = |level: u32| bench(|s| (s.level, s.controller_cache) = (level, 0));
    let (reads, five, zero) =
        (through(5).rate(Op::Read, 8, 64), through(5).rate(Op::Write, 8, 64), through(0).rate(Op::Write, 8, 64));
    let ratio = reads as f64 / five as f64;
    assert!((3.0..5.0).contains(&ratio), "{reads} reads, {five} writes in 10 s");
    assert!(zero > five * 3, "{zero} writes without parity");
    // The read for a part of a stripe costs at least a revolution before it is written.
    let part = through(5).takes(Op::Write, Flags::NONE, STRIPE * 5000, 8);
    let whole = through(5).takes(Op::Write, Flags::NONE, STRIPE * 5000, STRIPE);
    assert!(part > 8333 && whole < part + 8333, "{part} us, {whole} us");
}

/// raid.3: writes that complete stripes leave the cache without reads: sequential writing is faster than a quarter.
#[test]
fn a_cache_makes_whole_stripes_of_sequential_writes() {
    let mut bench = bench(|s| s.controller_cache = 64 << 10);
    let (mut next, mut count) = (0, 0);
    for _ in 0..16 {
        bench.ask(Op::Write, Flags::NONE, next, 256);
        next += 256;
    }
    while bench.now < Instant::ZERO + secs(10) {
        bench.step();
        for _ in 0..bench.ended.len() {
            bench.ask(Op::Write, Flags::NONE, next, 256);
            next += 256;
            count += 1;
        }
        bench.ended.clear();
    }
    let rate = count as f64 * 0.131_072 / 10.0;
    assert!(rate > 250.0, "{rate} MB/s");
}

/// raid.4.
#[test]
fn a_battery_makes_a_flush_cheap() {
    let flush = |battery: bool| {
        let mut bench = bench(|s| s.battery = battery);
        let write = bench.takes(Op::Write, Flags::NONE, 5000, 8);
        assert!(write < 1000, "{write} us");
        assert_eq!(bench.raid.character().volatile_cache, !battery);
        bench.takes(Op::Flush, Flags::NONE, 0, 0)
    };
    assert!(flush(true) < 1000);
    assert!(flush(false) > 8333, "old data and parity are read, then written a revolution later");
    let mut bench = bench(|s| s.battery = false);
    assert!(bench.takes(Op::Write, Flags::FUA, 5000, 8) > 8333, "and so is what is forced");
    let mut sent = self::bench(|s| s.flush_ignored = true);
    assert!(sent.raid.character().volatile_cache && sent.takes(Op::Flush, Flags::NONE, 0, 0) < 1000);
}

/// raid.3: what is in the cache is written after a second, and read from there until then.
#[test]
fn what_was_written_is_read_from_the_cache_and_leaves_it_after_a_second() {
    let mut bench = bench(|_| {});
    let take = |bench: &mut Bench, op| (0..8).map(|n| bench.takes(op, Flags::NONE, n * 10_000_000, 8)).sum::<u64>();
    take(&mut bench, Op::Write);
    assert!(take(&mut bench, Op::Read) < 8 * 1000);
    while bench.raid.poll_event().is_some() {
        bench.step();
    }
    assert!(bench.now > Instant::ZERO + secs(1) && bench.now < Instant::ZERO + secs(2), "{:?}", bench.now);
    assert!(take(&mut bench, Op::Read) > 8 * 4000, "the disks have it now");
}

/// raid.3: memory that is half full is emptied before the second is over.
#[test]
fn a_cache_that_is_half_full_makes_room() {
    let mut bench = bench(|s| s.controller_cache = 1024);
    let write = |bench: &mut Bench, from: u64, to: u64| {
        (from..to).map(|n| bench.takes(Op::Write, Flags::NONE, n * 100_000, 32)).max().unwrap()
    };
    assert!(write(&mut bench, 0, 40) < 2000, "640 KiB find room");
    while bench.now < Instant::ZERO + us(700_000)
        && bench.raid.poll_event().is_some_and(|at| at < Instant::ZERO + us(700_000))
    {
        bench.step();
    }
    assert!(write(&mut bench, 100, 128) < 2000, "and so do 448 more");
}

/// raid.2: a reader who goes on finds what the controller has read meanwhile.
#[test]
fn a_sequential_reader_is_read_ahead_for() {
    let reads = |prefetch: u32| {
        let mut bench = bench(|s| {
            s.prefetch = prefetch;
            (s.disk.read_ahead, s.disk.read_ahead_min) = (0, 0);
        });
        (0..200).map(|n| bench.takes(Op::Read, Flags::NONE, n * 256, 256)).sum::<u64>()
    };
    let (without, with) = (reads(0), reads(1024));
    assert!(without > with * 2, "{without} us, {with} us with reading ahead");
}

/// raid.5: a read of missing data keeps all others busy.
#[test]
fn reads_with_a_disk_missing_are_made_from_all_others() {
    let rate = |missing: u32| bench(|s| s.missing = missing).rate(Op::Read, 8, 64);
    let (all, less) = (rate(0), rate(1));
    // One of twelve reads becomes eleven: 22 I/Os instead of 12.
    let ratio = all as f64 / less as f64;
    assert!((1.5..2.6).contains(&ratio), "{all} reads, {less} with a disk missing");
}

/// raid.5: until it fails, a disk does its part.
#[test]
fn a_disk_that_fails_later_is_there_until_then() {
    let rate = |missing, from| bench(|s| (s.missing, s.missing_from) = (missing, from)).rate(Op::Read, 8, 64);
    let (all, less, half) = (rate(0, secs(0)), rate(1, secs(0)), rate(1, secs(5)));
    let mean = (all + less) / 2;
    assert!(
        half.abs_diff(mean) < mean / 20,
        "{half} reads in 10 s, in 5 of them with all disks; {all} with all, {less} with less"
    );
}

/// raid.6: the rebuild keeps its rate, takes from others, and ends.
#[test]
fn a_missing_disk_is_rebuilt_at_the_rate_that_was_set() {
    let mut bench = bench_of(2_000_000, |s| (s.missing, s.rebuild) = (1, 20_000));
    let asleep = bench.takes(Op::Read, Flags::NONE, 0, 8);
    assert!(asleep < 60_000);
    while bench.raid.poll_event().is_some() {
        bench.step();
    }
    // 1 GB on eleven disks: 93 MB each, at 20 MB/s.
    assert!((4..6).contains(&(bench.now.as_nanos() / 1_000_000_000)), "{:?}", bench.now);
    let rate = |rebuild: u32| self::bench(|s| (s.missing, s.rebuild) = (1, rebuild)).rate(Op::Read, 8, 32);
    assert!(rate(20_000) < rate(0) * 9 / 10, "{} of {}", rate(20_000), rate(0));
}

/// Nothing is lost and nothing ends twice, whatever is asked and however the array is made.
#[test]
fn every_request_ends_once() {
    for seed in 1..25 {
        let mut random = Random::new(seed);
        let mut bench = bench_of(4_000_000, |s| {
            s.level = [0, 5, 6][seed as usize % 3];
            s.missing = [0, 1, 2][seed as usize % 3] * (seed as u32 / 3 % 2);
            s.missing_from = if s.missing > 0 { ms(seed * 5) } else { ms(0) };
            s.rebuild = if s.missing > 0 { 50_000 } else { 0 };
            s.controller_cache = [0, 256, 64 << 10][seed as usize / 6 % 3];
            s.battery = seed % 4 < 2;
            s.prefetch = [0, 512][seed as usize / 2 % 2];
            s.prefetch_streams = 4;
            s.disk.write_cache = seed % 5 == 0;
        });
        let mut next = 0;
        for _ in 0..600 {
            let (start, sectors) = (random.below(4_000_000 - 2048), 1 + random.below(2048));
            next = (next + 256) % 3_999_000;
            match random.below(20) {
                0 => bench.ask(Op::Flush, Flags::NONE, 0, 0),
                1..5 => bench.ask(Op::Write, Flags::NONE, start, sectors),
                5 => bench.ask(Op::Write, Flags::FUA, start, sectors),
                6..12 => bench.ask(Op::Read, Flags::NONE, start, sectors),
                12..14 => bench.ask(Op::Write, Flags::NONE, next, 256),
                _ => bench.ask(Op::Read, Flags::NONE, next, 256),
            };
            bench.now += us(random.below(6000));
            bench.raid.advance(bench.now, &mut bench.ended);
        }
        while bench.raid.poll_event().is_some() {
            bench.step();
        }
        assert!(bench.ended.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let mut ids: Vec<_> = bench.ended.iter().map(|ended| ended.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (1..=600).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn arrays_that_cannot_be_are_refused_with_what_is_possible() {
    let why = |change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check(SECTORS * 512).unwrap_err()
    };
    assert!(why(|s| s.level = 1).contains("it takes 0, 5 or 6"));
    assert!(why(|s| s.disks = 2).contains("level=5 takes at least 3"));
    assert!(why(|s| s.missing = 2).contains("level=5 takes at most 1"));
    assert!(why(|s| s.rebuild = 1000).contains("no disk is missing"));
    assert!(
        why(|s| s.disk_size = 9).contains("12 disks of disk_size=9 at level=5 hold 94413M"),
        "{}",
        why(|s| s.disk_size = 9)
    );
    assert!(why(|s| s.disk.read_ahead = 4000).contains("read_ahead=4000 is not possible"));
}
