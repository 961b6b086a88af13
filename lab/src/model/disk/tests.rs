//! Scenarios on a drive: the rules of `drive.rs`.

use fairlift_core::model::{Model, ModelCompletion, ModelRequest};
use fairlift_core::time::{ms, secs};
use fairlift_core::{Extent, Flags, Instant, Op, Outcome, Sector};

use super::{Drive, Settings};
use crate::Random;
use crate::model::Metered;

const SECTORS: u64 = 976_773_168;

/// A disk, and the requests that ended on it.
struct Bench {
    disk: Metered<Drive>,
    now: Instant,
    submitted: u64,
    ended: Vec<ModelCompletion>,
}

fn bench(change: impl FnOnce(&mut Settings)) -> Bench {
    let mut settings = Settings::default();
    change(&mut settings);
    settings.check(SECTORS * 512).unwrap();
    let disk = Metered::new(super::new(&settings, SECTORS, 1));
    Bench { disk, now: Instant::ZERO, submitted: 0, ended: Vec::new() }
}

impl Bench {
    fn ask(&mut self, op: Op, flags: Flags, start: u64, sectors: u64) -> u64 {
        self.submitted += 1;
        let extent = Extent::new(Sector(start), sectors);
        self.disk.submit(self.now, &ModelRequest { id: self.submitted, op, flags, extent });
        self.submitted
    }

    fn read(&mut self, start: u64, sectors: u64) -> u64 {
        self.ask(Op::Read, Flags::NONE, start, sectors)
    }

    fn write(&mut self, start: u64, sectors: u64) -> u64 {
        self.ask(Op::Write, Flags::NONE, start, sectors)
    }

    /// Lets the disk work for `micros`.
    fn wait(&mut self, micros: u64) {
        self.now += fairlift_core::time::us(micros);
        self.disk.advance(self.now, &mut self.ended);
    }

    /// Until the request has ended; how many microseconds from now that takes.
    fn until(&mut self, id: u64) -> u64 {
        let from = self.now;
        loop {
            if let Some(ended) = self.ended.iter().find(|ended| ended.id == id) {
                assert_eq!(ended.outcome, Outcome::Done);
                return ended.at.since(from).as_nanos() / 1000;
            }
            self.now = self.disk.poll_event().expect("it is under way");
            self.disk.advance(self.now, &mut self.ended);
        }
    }

    /// How many microseconds a read of 8 sectors takes.
    fn reads(&mut self, start: u64) -> u64 {
        let id = self.read(start, 8);
        self.until(id)
    }

    fn order(&mut self) -> Vec<u64> {
        self.wait(10_000_000);
        self.ended.iter().map(|ended| ended.id).collect()
    }
}

const REVOLUTION: u64 = 8333;

/// drive.1: an ATA flush is not queued; what comes after it waits for it.
#[test]
fn a_flush_is_alone_in_the_drive() {
    let mut bench = bench(|_| {});
    let far = bench.read(900_000_000, 8);
    let flush = bench.ask(Op::Flush, Flags::NONE, 0, 0);
    let near = bench.read(0, 8);
    assert_eq!(bench.order(), [far, flush, near]);
}

/// drive.1, drive.3: with one command at a time the order is that of arrival; with 32 it is the arm's.
#[test]
fn commands_are_served_in_the_order_of_arrival_without_ncq_and_in_that_of_the_arm_with_it() {
    for (ncq, order) in [(1, [1, 2, 3, 4]), (32, [1, 3, 2, 4])] {
        let mut bench = bench(|settings| settings.ncq = ncq);
        bench.read(100_000_000, 8);
        bench.wait(1000);
        bench.read(800_000_000, 8);
        bench.read(101_000_000, 8);
        bench.wait(400_000);
        bench.read(0, 8);
        assert_eq!(bench.order(), order, "ncq={ncq}");
    }
}

/// drive.3: two runs far apart, asked last command first: each visit begins where its run begins, wherever the platter stands.
#[test]
fn commands_that_follow_each_other_are_served_in_their_order() {
    for op in [Op::Read, Op::Write] {
        for turned in 0..10 {
            let mut bench = bench(|_| {});
            bench.reads(400_000_000);
            bench.wait(100_000 + turned * REVOLUTION / 10);
            // The arm is on its way here until all are in the drive.
            bench.read(970_000_000, 8);
            let mut runs = [1000, 900_000_000].map(|start| {
                let run = (0..8).rev().map(|n| bench.ask(op, Flags::FUA, start + n * 64, 64));
                run.collect::<Vec<_>>()
            });
            runs.iter_mut().for_each(|run| run.reverse());
            let order = bench.order();
            let of = |run: &[u64]| order.iter().filter(|id| run.contains(id)).copied().collect::<Vec<_>>();
            assert_eq!(runs.each_ref().map(|run| of(run)), runs, "{op:?}, {turned} tenths of a revolution");
        }
    }
}

/// drive.3, drive.4: a deep reader that goes back to the start of its file leaves some commands at the end of it; it is in order again
/// when they are served, and as fast as before.
#[test]
fn a_deep_reader_that_jumps_is_in_order_again_soon() {
    for depth in [4, 16, 32, 64] {
        let mut bench = bench(|_| {});
        let (length, blocks) = (512, 512);
        for block in 0..depth {
            bench.read(block * length, length);
        }
        let mut order = Vec::new();
        while bench.submitted < 4 * blocks {
            bench.now = bench.disk.poll_event().unwrap();
            bench.disk.advance(bench.now, &mut bench.ended);
            for ended in std::mem::take(&mut bench.ended) {
                order.push(ended.id);
                bench.read(bench.submitted % blocks * length, length);
            }
        }
        for round in 0..3 {
            // From the second quarter on, up to the rest at the next jump.
            let part = round * blocks + blocks / 4..(round + 1) * blocks - 64;
            let from = order.iter().position(|id| *id == part.start).expect("it was read");
            let served = &order[from..][..(part.end - part.start) as usize];
            assert!(part.eq(served.iter().copied()), "depth {depth}, round {round}: {served:?}");
        }
    }
}

/// drive.3: a stream of near reads passes over a far one for `ncq_age`, not longer.
#[test]
fn nothing_is_passed_over_for_longer_than_ncq_age() {
    for age in [ms(50), ms(400)] {
        let mut bench = bench(|settings| {
            (settings.ncq_age, settings.read_ahead, settings.read_ahead_min) = (age, 0, 0);
        });
        let mut random = Random::new(1);
        for _ in 0..8 {
            bench.read(random.below(1_000_000), 8);
        }
        let far = bench.read(970_000_000, 8);
        let mut seen = 0;
        while !bench.ended.iter().any(|ended| ended.id == far) {
            assert!(bench.now < Instant::ZERO + secs(2), "it is passed over for ever");
            bench.now = bench.disk.poll_event().unwrap();
            bench.disk.advance(bench.now, &mut bench.ended);
            for _ in seen..bench.ended.len() {
                bench.read(random.below(1_000_000), 8);
            }
            seen = bench.ended.len();
        }
        let waited = bench.now.since(Instant::ZERO);
        assert!(waited > age && waited < age + ms(60), "{age}: {waited}");
    }
}

/// drive.2: the cache answers at the link's speed while the arm is elsewhere.
#[test]
fn a_hit_does_not_wait_for_the_arm() {
    let mut bench = bench(|_| {});
    bench.reads(1000);
    bench.wait(20_000);
    let far = bench.read(900_000_000, 8);
    bench.wait(1000);
    assert!(bench.reads(1100) < 500);
    assert!(bench.until(far) > 5000);
}

/// drive.4: data that the head passed while nobody asked is there; without that, the sector has just gone by.
#[test]
fn a_reader_that_comes_back_soon_does_not_lose_a_revolution() {
    for (read_ahead, most) in [(512, 500), (0, REVOLUTION + 1000)] {
        let mut bench = bench(|settings| (settings.read_ahead, settings.read_ahead_min) = (read_ahead, 0));
        bench.reads(1000);
        bench.wait(1000);
        let took = bench.reads(1008);
        assert!(took < most, "read_ahead={read_ahead}: {took} us");
        assert!(read_ahead > 0 || took > REVOLUTION - 1500, "{took} us");
    }
}

/// drive.4: after a pause of a second only `read_ahead` is there.
#[test]
fn the_head_reads_on_for_read_ahead_and_no_further() {
    let mut bench = bench(|_| {});
    bench.reads(1000);
    bench.wait(1_000_000);
    assert!(bench.reads(1008 + 1024 - 8) < 500, "512 KiB are there");
    let mut bench = self::bench(|_| {});
    bench.reads(1000);
    bench.wait(1_000_000);
    assert!(bench.reads(1008 + 1024 + 8) > 500, "and no more");
}

/// drive.4: between two far readers the arm goes to and fro, and each visit serves `read_ahead_min` more than was asked.
#[test]
fn a_visit_to_a_sequential_reader_takes_some_more_along() {
    let visits = |min: u32| {
        let mut bench = bench(|settings| settings.read_ahead_min = min);
        let mut next = [0, 500_000_000];
        let mut under_way = [0, 0];
        let mut total = 0;
        while bench.now < Instant::ZERO + secs(5) {
            for reader in 0..2 {
                if bench.ended.iter().any(|ended| ended.id == under_way[reader]) || under_way[reader] == 0 {
                    under_way[reader] = bench.read(next[reader], 256);
                    next[reader] += 256;
                    total += 1;
                }
            }
            bench.ended.clear();
            bench.now = bench.disk.poll_event().unwrap();
            bench.disk.advance(bench.now, &mut bench.ended);
        }
        total
    };
    let (none, some) = (visits(0), visits(256));
    assert!(some > none * 2, "{none} reads, {some} with 256 KiB more each time");
}

/// Sectors a second of a reader or writer of 256 KiB at a time, with `depth` in flight.
fn sequential(op: Op, depth: u64) -> u64 {
    let mut bench = bench(|_| {});
    let mut next = 0;
    for _ in 0..depth {
        bench.ask(op, Flags::NONE, next, 512);
        next += 512;
    }
    let mut total = 0;
    while bench.now < Instant::ZERO + secs(2) {
        bench.now = bench.disk.poll_event().unwrap();
        bench.disk.advance(bench.now, &mut bench.ended);
        for ended in std::mem::take(&mut bench.ended) {
            total += if ended.at > Instant::ZERO + secs(1) { 512 } else { 0 };
            bench.ask(op, Flags::NONE, next, 512);
            next += 512;
        }
    }
    total
}

/// drive.1: what has no room in the drive waits outside, and a flush goes before it.
#[test]
fn a_flush_goes_before_commands_that_the_drive_has_no_room_for() {
    let mut bench = bench(|settings| settings.ncq = 2);
    let reads: Vec<_> = (1..=4).map(|nth| bench.read(nth * SECTORS / 5, 8)).collect();
    let flushes = [(); 2].map(|()| bench.ask(Op::Flush, Flags::NONE, 0, 0));
    bench.wait(200_000);
    let order = bench.order();
    let at = |id: u64| order.iter().position(|other| *other == id).expect("it has ended");
    assert!(flushes.iter().all(|flush| (2..4).contains(&at(*flush))), "{order:?}");
    assert!(reads[..2].iter().all(|read| at(*read) < 2) && reads[2..].iter().all(|read| at(*read) >= 4), "{order:?}");
}

/// drive.4, drive.5: what the head passes in a second at the outer edge.
#[test]
fn requests_that_follow_each_other_are_served_as_the_head_passes_however_many_wait() {
    let medium = 64_800_000 / 512;
    for op in [Op::Read, Op::Write] {
        for depth in [1, 2, 4, 32, 64] {
            let got = sequential(op, depth);
            assert!(
                got.abs_diff(medium) < medium / 20,
                "{op:?}, depth {depth}: {got} sectors, the medium has {medium}"
            );
        }
    }
}

/// drive.4: what goes on where another goes on joins, though it came before.
#[test]
fn reads_that_came_in_reverse_are_served_as_the_head_passes() {
    let mut bench = bench(|_| {});
    bench.reads(0);
    bench.read(8, 504);
    let reads = [2560, 1536, 512].map(|start| bench.read(start, 1024));
    // 256 KiB and 512 KiB, then 512 KiB each, at 64.8 MB/s.
    for (read, most) in reads.into_iter().rev().zip([13_000, 9000, 9000]) {
        let took = bench.until(read);
        assert!(took < most, "{took} us");
    }
}

/// drive.4: a reader that always has its next windows waiting, a few or many, does not keep the arm from others.
#[test]
fn a_visit_ends_though_its_reader_has_more() {
    for depth in [2, 31] {
        let waited = waits_beside_a_reader(depth).unwrap_or_else(|| panic!("depth {depth}: it is passed over"));
        assert!(waited < ms(60), "depth {depth}: {waited}");
    }
}

/// The time that a read of a far place waits beside a reader with `depth` windows of 128 KiB in flight.
fn waits_beside_a_reader(depth: usize) -> Option<fairlift_core::Duration> {
    let mut bench = bench(|_| {});
    let mut next = 0;
    let far = 900_000_000;
    let mut waits = None;
    let mut seen = 0;
    for _ in 0..depth {
        bench.read(next, 256);
        next += 256;
    }
    while bench.now < Instant::ZERO + secs(1) {
        if waits.is_none() && bench.now > Instant::ZERO + ms(100) {
            waits = Some((bench.read(far, 8), bench.now));
        }
        bench.now = bench.disk.poll_event().unwrap();
        bench.disk.advance(bench.now, &mut bench.ended);
        for ended in &bench.ended[seen..] {
            if let Some((id, since)) = waits
                && ended.id == id
            {
                return Some(ended.at.since(since));
            }
        }
        for _ in seen..bench.ended.len() {
            bench.read(next, 256);
            next += 256;
        }
        seen = bench.ended.len();
    }
    None
}

/// drive.5: a writer that fills the cache faster than the medium takes it, and a reader of far places, go on side by side.
#[test]
fn neither_a_full_cache_nor_a_reader_keeps_the_arm_from_the_other() {
    let mut bench = bench(|_| {});
    let mut random = Random::new(4);
    let (mut next, mut reads, mut writes) = (0, 0, 0);
    let mut read = bench.read(random.below(SECTORS - 8), 8);
    for _ in 0..16 {
        bench.write(next, 256);
        next += 256;
    }
    while bench.now < Instant::ZERO + secs(5) {
        bench.now = bench.disk.poll_event().unwrap();
        bench.disk.advance(bench.now, &mut bench.ended);
        for ended in std::mem::take(&mut bench.ended) {
            if ended.id == read {
                reads += 1;
                read = bench.read(random.below(SECTORS - 8), 8);
            } else {
                writes += 1;
                bench.write(next, 256);
                next += 256;
            }
        }
    }
    assert!(reads > 50 && writes > 500, "{reads} reads of 4 KiB, {writes} writes of 128 KiB in 5 s");
}

/// drive.5: a write ends in the cache unless the cache is off or the write is forced; then it costs the arm's way.
#[test]
fn a_write_costs_the_way_of_the_arm_only_when_it_must_be_on_the_medium() {
    let mut cached = bench(|_| {});
    let id = cached.write(500_000_000, 8);
    assert!(cached.until(id) < 500);
    let id = cached.ask(Op::Write, Flags::FUA, 100_000_000, 8);
    assert!(cached.until(id) > 2000);
    let mut through = bench(|settings| settings.write_cache = false);
    let id = through.write(500_000_000, 8);
    assert!(through.until(id) > 2000);
    assert!(!through.disk.character().volatile_cache && cached.disk.character().volatile_cache);
}

/// drive.5: what is in the cache is read from there.
#[test]
fn what_was_just_written_is_read_back_without_the_arm() {
    let mut bench = bench(|_| {});
    bench.write(500_000_000, 8);
    bench.write(800_000_000, 8);
    bench.wait(600);
    assert!(bench.reads(800_000_000) < 500);
}

/// drive.5: when the cache is full, writes come at the medium's speed.
#[test]
fn more_writes_than_the_cache_holds_come_at_the_speed_of_the_medium() {
    let mut bench = bench(|_| {});
    let mut random = Random::new(2);
    let mut ended = 0;
    for _ in 0..8 {
        bench.write(random.below(SECTORS / 8) * 8, 8);
    }
    let mut late = 0;
    while bench.now < Instant::ZERO + secs(20) {
        bench.now = bench.disk.poll_event().unwrap();
        bench.disk.advance(bench.now, &mut bench.ended);
        for _ in 0..bench.ended.len() {
            bench.write(random.below(SECTORS / 8) * 8, 8);
        }
        late += if bench.now > Instant::ZERO + secs(10) { bench.ended.len() } else { 0 };
        ended += bench.ended.len();
        bench.ended.clear();
    }
    assert!((1000..5000).contains(&late), "{late} in 10 s, {ended} in 20");
}

/// drive.5: the arm has 8 ms to wait for the sector that was written first; the one that comes by before it is written first.
#[test]
fn what_comes_by_while_the_arm_waits_is_written_first() {
    let mut bench = bench(|_| {});
    let mut flushed = |order: [u64; 2]| {
        for place in order {
            bench.write(place * 8, 8);
        }
        let flush = bench.ask(Op::Flush, Flags::NONE, 0, 0);
        bench.until(flush)
    };
    flushed([0, 1]);
    // The head has just passed both: they are a revolution away, in either order.
    for order in [[0, 1], [1, 0], [0, 1], [1, 0]] {
        let took = flushed(order);
        assert!((7000..9000).contains(&took), "{order:?}: {took} us");
    }
}

/// drive.6: a flush waits for all data in the cache. Without any it costs next to nothing, or the stated time.
#[test]
fn a_flush_waits_for_what_is_in_the_cache() {
    let mut dear = bench(|settings| settings.flush = ms(5));
    for _ in 0..2 {
        let flush = dear.ask(Op::Flush, Flags::NONE, 0, 0);
        assert!((5000..5500).contains(&dear.until(flush)));
    }
    let mut bench = bench(|_| {});
    let mut random = Random::new(3);
    for _ in 0..20 {
        bench.write(random.below(SECTORS / 8) * 8, 8);
    }
    let flush = bench.ask(Op::Flush, Flags::NONE, 0, 0);
    let took = bench.until(flush);
    assert!(took > 60_000, "twenty places: {took} us");
    let again = bench.ask(Op::Flush, Flags::NONE, 0, 0);
    assert!(bench.until(again) < 500);
}

/// Nothing is lost and nothing ends twice, whatever is asked; what ends is told in order of time.
#[test]
fn every_request_ends_once() {
    for seed in 1..20 {
        let mut random = Random::new(seed);
        let mut bench = bench(|settings| {
            settings.write_cache = seed % 2 == 0;
            settings.ncq = [1, 4, 32][seed as usize % 3];
            settings.read_ahead = [0, 128, 512][seed as usize / 3 % 3];
            settings.read_ahead_min = settings.read_ahead / 2;
        });
        for _ in 0..600 {
            let span = if random.below(2) == 0 { 4000 } else { SECTORS - 300 };
            let (start, sectors) = (random.below(span), 1 + random.below(256));
            match random.below(20) {
                0 => bench.ask(Op::Flush, Flags::NONE, 0, 0),
                1..8 => bench.write(start, sectors),
                8 => bench.ask(Op::Write, Flags::FUA, start, sectors),
                _ => bench.read(start, sectors),
            };
            bench.wait(random.below(3000));
        }
        bench.wait(60_000_000);
        assert_eq!(bench.disk.poll_event(), None, "at rest");
        assert!(bench.ended.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let mut ids: Vec<_> = bench.ended.iter().map(|ended| ended.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (1..=600).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(bench.disk.work().requests, 600);
    }
}

#[test]
fn parameters_that_do_not_go_together_are_refused_with_what_is_possible() {
    let why = |change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check(1 << 40).unwrap_err()
    };
    assert!(
        why(|s| s.seek_average = ms(20)).contains("it takes 7534us to 15613us"),
        "{}",
        why(|s| s.seek_average = ms(20))
    );
    assert!(why(|s| s.seek_full = ms(0)).contains("at least seek_track=800us"));
    assert!(why(|s| s.rate_inner = 65_000).contains("at most rate_outer=64800"));
    assert!(why(|s| s.read_ahead = 513).contains("leaves 512 KiB"));
    assert!(why(|s| (s.read_ahead, s.read_ahead_min) = (64, 65)).contains("at most read_ahead=64"));
    assert!(
        Settings::default().check(4096).unwrap_err().contains("size=4K is not possible: a hard disk has at least 1M")
    );
}
