//! Scenarios: what each program asks, and when it counts an operation.

use std::collections::BTreeMap;

use fairlift_core::time::{ms, secs};
use fairlift_core::{Errno, Flags, Instant, Op, Outcome};

use super::*;
use crate::Random;
use crate::workload::{JobPlacement, Workload};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn file(bytes: u64) -> Region {
    Region { start: Sector(2048), bytes }
}

/// A program, the time, and its requests that have not ended.
struct Play<P> {
    program: P,
    now: Instant,
    open: BTreeMap<u32, Ask>,
}

impl<P: Program> Play<P> {
    fn new(program: P) -> Self {
        Self { program, now: Instant::ZERO, open: BTreeMap::new() }
    }

    /// Its present request: (operation, offset and length in its file).
    fn asks(&mut self) -> Vec<(Op, u64, u64)> {
        let mut asks = Vec::new();
        while let Some(ask) = self.program.poll_ask(self.now) {
            assert!(self.open.insert(ask.token, ask).is_none(), "token {} is in use", ask.token);
            let offset = ask.extent.start.bytes().get().saturating_sub(file(0).start.bytes().get());
            asks.push((ask.op, offset, ask.extent.bytes().get()));
        }
        asks
    }

    /// Time goes on to when it wants to be asked, and so on up to `until`; what it asks meanwhile.
    fn wait(&mut self, until: Instant) -> Vec<(Op, u64, u64)> {
        let mut asks = self.asks();
        while let Some(at) = self.program.poll_timeout().filter(|at| *at <= until) {
            assert!(at > self.now, "it asks for {at:?} at {:?}, for ever", self.now);
            self.now = at;
            asks.extend(self.asks());
        }
        self.now = until;
        asks
    }

    fn end_with(&mut self, token: u32, outcome: Outcome) {
        self.open.remove(&token).expect("it was asked");
        self.program.handle_end(self.now, token, outcome);
    }

    /// The ask of the lowest token ends.
    fn end(&mut self) {
        let token = *self.open.keys().next().expect("something was asked");
        self.end_with(token, Outcome::Done);
    }

    fn operations(&self) -> u64 {
        self.program.meter().operations
    }
}

fn at(micros: u64) -> Instant {
    Instant::ZERO + us(micros)
}

fn reads(extents: &[(u64, u64)]) -> Vec<(Op, u64, u64)> {
    extents.iter().map(|(offset, bytes)| (Op::Read, offset * KIB, bytes * KIB)).collect()
}

// ---- read-ahead ----

fn reader(bytes: u64, block: u64) -> Play<ReadAhead> {
    Play::new(ReadAhead::new(file(bytes), block, Duration::ZERO, read_ahead::LARGEST))
}

/// read_ahead.1, read_ahead.4
#[test]
fn windows_grow_to_128_kib_and_start_small_again_with_the_file() {
    let mut play = reader(464 * KIB, 4 * KIB);
    let mut requests = Vec::new();
    while requests.len() < 8 {
        requests.extend(play.wait(play.now + us(200)));
        while !play.open.is_empty() {
            play.end();
        }
    }
    assert_eq!(requests[..6], reads(&[(0, 16), (16, 32), (48, 64), (112, 128), (240, 128), (368, 96)]));
    assert_eq!(requests[6..8], reads(&[(0, 16), (16, 32)]));
}

/// read_ahead.1: what the kernel calls `read_ahead_kb`.
#[test]
fn windows_grow_to_the_largest_that_was_set() {
    let mut play = Play::new(ReadAhead::new(file(4 * MIB), 4 * KIB, Duration::ZERO, 64 * KIB));
    let mut requests = Vec::new();
    while requests.len() < 5 {
        requests.extend(play.wait(play.now + us(200)));
        while !play.open.is_empty() {
            play.end();
        }
    }
    assert_eq!(requests[..5], reads(&[(0, 16), (16, 32), (48, 64), (112, 64), (176, 64)]));
}

/// read_ahead.2
#[test]
fn a_buffered_reader_has_at_most_two_windows_outstanding() {
    let mut play = reader(4 * MIB, 4 * KIB);
    assert_eq!(play.wait(at(1000)), reads(&[(0, 16)]), "the first alone");
    play.end();
    assert_eq!(play.wait(at(2000)), reads(&[(16, 32), (48, 64)]), "the next, and at its start the one after");
    assert_eq!(play.wait(at(9000)), [], "it waits");
    play.end_with(1, Outcome::Done);
    assert_eq!(play.wait(at(10_000)), reads(&[(112, 128)]));
    assert_eq!(play.open.len(), 2);
}

/// read_ahead.3: the window after may come first.
#[test]
fn a_reader_waits_for_the_page_it_reads_and_no_other() {
    let mut play = reader(4 * MIB, 4 * KIB);
    play.wait(at(0));
    play.end();
    play.wait(at(100));
    assert_eq!(play.operations(), 4, "the first window is read");
    play.end_with(0, Outcome::Done);
    assert_eq!((play.wait(at(200)), play.operations()), (vec![], 4), "48 KiB is there, 16 KiB is not");
    play.end_with(1, Outcome::Done);
    play.wait(at(1000));
    assert_eq!(play.operations(), 4 + 8 + 16);
}

/// read_ahead.5
#[test]
fn what_is_in_memory_costs_the_time_to_copy_it() {
    let mut play = reader(4 * MIB, 4 * KIB);
    play.wait(at(500));
    play.end();
    play.wait(at(504));
    let meter = play.program.meter();
    assert_eq!((meter.operations, meter.bytes), (4, 16 * KIB));
    assert_eq!(meter.latency_max, us(501), "the first waited for the disk");
    assert!(meter.latency.quantile(750) < us(2), "the others did not");
}

#[test]
fn a_read_of_more_than_a_window_ends_when_all_of_it_is_there() {
    let mut play = reader(4 * MIB, 256 * KIB);
    for _ in 0..5 {
        play.wait(play.now + us(100));
        assert_eq!(play.operations(), 0);
        play.end();
    }
    play.wait(play.now + us(100));
    assert_eq!((play.operations(), play.program.meter().bytes), (1, 256 * KIB));
}

#[test]
fn a_window_that_failed_fails_the_reads_in_it() {
    let mut play = reader(4 * MIB, 4 * KIB);
    play.wait(at(0));
    play.end_with(0, Outcome::Failed(Errno::EIO));
    play.wait(at(100));
    play.end_with(1, Outcome::Done);
    play.wait(at(200));
    let meter = play.program.meter();
    assert_eq!((meter.operations, meter.failed, meter.bytes), (12, 4, 32 * KIB));
}

#[test]
fn a_reader_that_thinks_reads_one_block_at_a_time() {
    let mut play = Play::new(ReadAhead::new(file(4 * MIB), 4 * KIB, us(100), read_ahead::LARGEST));
    play.wait(at(0));
    play.end();
    play.wait(at(303));
    assert_eq!(play.operations(), 3, "1 us to read, 100 us to think");
    play.wait(at(304));
    assert_eq!(play.operations(), 4);
    assert_eq!(play.program.meter().latency_max, us(1), "thinking is not reading");
}

// ---- writeback ----

fn writer(order: Pattern, background: u64, limit: u64, bytes: u64) -> Play<WriteBack> {
    let settings = write_back::Settings { order, background, limit, ..Default::default() };
    Play::new(WriteBack::new(settings, file(bytes), 1))
}

/// write_back.1, write_back.2
#[test]
fn the_flusher_starts_when_more_than_its_threshold_is_dirty() {
    let mut play = writer(Pattern::Sequential, 4 * MIB, 64 * MIB, 512 * MIB);
    assert_eq!(play.wait(at(1024)), [], "4 MiB in 1024 us, and nothing written");
    assert_eq!(play.program.meter().bytes, 4 * MIB);
    let requests = play.wait(at(1040));
    assert_eq!(requests, [(Op::Write, 0, MIB)], "a mebibyte, and no more is dirty than may be");
    assert_eq!(play.open[&0].flags, Flags::NONE, "nobody waits for it");
    play.wait(at(100_000));
    assert_eq!(play.open.len(), 8, "eight at a time");
}

/// write_back.4, write_back.5
#[test]
fn a_throttled_writer_waits_until_pages_have_reached_the_disk() {
    let mut play = writer(Pattern::Sequential, MIB, 16 * MIB, 512 * MIB);
    play.wait(at(50_000));
    assert_eq!(play.program.meter().bytes, 16 * MIB);
    assert_eq!(play.program.meter().latency_max, us(1));
    play.end();
    play.wait(at(60_000));
    assert_eq!(play.program.meter().bytes, 17 * MIB, "as much as there was room for");
    let waited = play.program.meter().latency_max;
    assert_eq!(waited, us(50_000 - 16 * 256 + 1), "the write that met the limit took as long as it waited");
}

/// write_back.3
#[test]
fn old_pages_are_written_though_they_are_few() {
    let settings = write_back::Settings { think: secs(1000), ..Default::default() };
    let mut play = Play::new(WriteBack::new(settings, file(512 * MIB), 1));
    assert_eq!(play.wait(at(34_999_999)), [], "looked at every 5 s, written when 30 s old");
    assert_eq!(play.wait(at(35_000_000)), [(Op::Write, 0, 4 * KIB)]);
}

/// write_back.5
#[test]
fn what_the_flusher_could_not_write_is_told_to_the_next_write() {
    let mut play = writer(Pattern::Sequential, MIB, 2 * MIB, 512 * MIB);
    play.wait(at(1000));
    play.end_with(0, Outcome::Failed(Errno::EIO));
    assert_eq!(play.program.meter().failed, 0);
    play.wait(at(2000));
    assert_eq!(play.program.meter().failed, 1);
}

/// write_back.6
#[test]
fn no_page_is_on_its_way_twice() {
    let mut play = writer(Pattern::Random, 64 * KIB, 512 * KIB, MIB);
    let mut random = Random::new(3);
    for _ in 0..2000 {
        play.wait(play.now + us(random.below(50)));
        let open: Vec<_> = play.open.values().map(|ask| ask.extent).collect();
        for (index, one) in open.iter().enumerate() {
            assert!(open[..index].iter().all(|other| !one.overlaps(*other)), "{open:?}");
        }
        if !open.is_empty() && random.below(3) == 0 {
            play.end();
        }
    }
    assert!(play.operations() > 1000);
}

// ---- direct and paged ----

fn direct(op: Op, order: Pattern, depth: u32, think: Duration) -> Play<Direct> {
    let settings = direct::Settings { think, ..direct::Settings::new(op, order, 32 * KIB, depth) };
    Play::new(Direct::new(settings, file(MIB), 1))
}

/// direct.1
#[test]
fn a_direct_reader_keeps_its_depth() {
    let mut play = direct(Op::Read, Pattern::Sequential, 3, Duration::ZERO);
    assert_eq!(play.asks(), reads(&[(0, 32), (32, 32), (64, 32)]));
    play.now = at(10);
    play.end();
    assert_eq!(play.asks(), reads(&[(96, 32)]));
    assert_eq!((play.operations(), play.program.meter().latency_max), (1, us(10)));
}

/// direct.1
#[test]
fn a_direct_writer_thinks_before_it_asks_again() {
    let mut play = direct(Op::Write, Pattern::Random, 1, us(70));
    assert_eq!(play.asks().len(), 1);
    assert_eq!(play.open[&0].flags, Flags::SYNC);
    play.now = at(10);
    play.end();
    assert_eq!(play.wait(at(79)), []);
    assert_eq!(play.wait(at(80)).len(), 1);
}

/// direct.4
#[test]
fn a_lane_that_flushes_commits_its_writes_together() {
    let settings =
        direct::Settings { flush_every: 2, ..direct::Settings::new(Op::Write, Pattern::Sequential, 32 * KIB, 1) };
    let mut play = Play::new(Direct::new(settings, file(MIB), 1));
    for offset in [0, 64 * KIB] {
        let before = play.operations();
        for place in 0..2 {
            assert_eq!(play.asks(), [(Op::Write, offset + place * 32 * KIB, 32 * KIB)]);
            play.now += us(10);
            play.end();
        }
        assert_eq!((play.asks(), play.operations()), (vec![(Op::Flush, 0, 0)], before));
        play.now += us(500);
        play.end();
        assert_eq!(play.operations(), before + 1);
    }
    assert_eq!((play.program.meter().bytes, play.program.meter().latency_max), (128 * KIB, us(520)));
}

/// direct.5
#[test]
fn a_request_is_on_its_way_for_half_to_one_and_a_half_of_the_round_trip() {
    let settings =
        direct::Settings { round_trip: us(100), ..direct::Settings::new(Op::Read, Pattern::Random, 32 * KIB, 1) };
    let mut play = Play::new(Direct::new(settings, file(MIB), 1));
    let mut all = Duration::ZERO;
    for _ in 0..1000 {
        assert_eq!(play.asks().len(), 1);
        play.end();
        assert_eq!(play.asks(), []);
        let next = play.program.poll_timeout().unwrap();
        let way = next.since(play.now);
        assert!((us(50)..us(150)).contains(&way), "{way}");
        all = all + way;
        play.now = next;
    }
    assert!((all.as_nanos() as f64 / 1e8 - 1.0).abs() < 0.05, "100 us on average: {all}");
}

/// direct.6
#[test]
fn what_ends_before_it_counts_is_warm_up() {
    let settings =
        direct::Settings { counts_from: at(20), ..direct::Settings::new(Op::Read, Pattern::Random, 32 * KIB, 1) };
    let mut play = Play::new(Direct::new(settings, file(MIB), 1));
    for (now, operations) in [(19, 0), (20, 1), (21, 2)] {
        play.asks();
        play.now = at(now);
        play.end();
        assert_eq!(play.operations(), operations, "at {now}");
    }
}

#[test]
fn interleaved_readers_together_read_every_block_once() {
    let settings = direct::Settings::new(Op::Read, Pattern::Sequential, 32 * KIB, 1);
    let mut seen = Vec::new();
    for index in 0..3 {
        let mut play = Play::new(Direct::interleaved(settings, file(MIB), index, 3));
        // 32 blocks among three.
        for _ in 0..if index == 2 { 10 } else { 11 } {
            seen.extend(play.asks().iter().map(|(_, offset, _)| offset / (32 * KIB)));
            play.end();
        }
        assert_eq!(play.asks(), reads(&[(32 * index, 32)]), "then from its first again");
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..32).collect::<Vec<_>>());
}

/// pages.1, pages.2
#[test]
fn a_random_buffered_reader_asks_for_the_pages_it_touches_and_copies_them() {
    let mut play = Play::new(pages(file(MIB), 6 * KIB, Duration::ZERO, 1));
    for _ in 0..20 {
        let requests = play.asks();
        let &[(Op::Read, offset, bytes)] = &requests[..] else { panic!("{requests:?}") };
        assert!(offset % (4 * KIB) == 0 && bytes == 8 * KIB, "{requests:?}");
        play.now += us(100);
        play.end();
        assert_eq!(play.asks(), [], "it copies");
        play.now = play.program.poll_timeout().unwrap();
    }
    play.asks();
    assert_eq!((play.operations(), play.program.meter().bytes), (20, 120 * KIB));
    assert_eq!(play.program.meter().latency_max, us(100) + Duration::from_nanos(1500));
}

// ---- programs that sync ----

/// fsync.1, fsync.2, fsync.3
#[test]
fn a_block_is_durable_when_its_flush_has_ended() {
    let mut play = Play::new(fsync(file(8 * KIB), 4 * KIB, false, Duration::ZERO));
    for offset in [0, 4 * KIB, 0] {
        let before = (play.operations(), play.now);
        assert_eq!(play.wait(play.now + us(1)), [(Op::Write, offset, 4 * KIB)]);
        assert_eq!(play.open[&0].flags, Flags::SYNC);
        play.now += us(10);
        play.end();
        assert_eq!(play.asks(), [(Op::Flush, 0, 0)]);
        assert_eq!(play.operations(), before.0);
        play.now += us(500);
        play.end();
        assert_eq!(play.operations(), before.0 + 1);
    }
    assert_eq!(play.program.meter().latency_max, us(1 + 10 + 500));
}

/// fsync.1
#[test]
fn by_fua_both_are_one_write() {
    let mut play = Play::new(fsync(file(MIB), 4 * KIB, true, Duration::ZERO));
    assert_eq!(play.wait(at(1)), [(Op::Write, 0, 4 * KIB)]);
    assert_eq!(play.open[&0].flags, Flags::SYNC | Flags::FUA);
    play.end();
    assert_eq!(play.operations(), 1);
}

/// journal.1, journal.2, journal.3
#[test]
fn a_commit_is_its_log_a_flush_and_a_commit_block() {
    let mut play = Play::new(journal(file(256 * KIB), 4 * KIB, Duration::ZERO, 9));
    let mut place = 0;
    for commit in 1..=40 {
        let requests = play.asks();
        let &[(Op::Write, offset, bytes)] = &requests[..] else { panic!("{requests:?}") };
        assert!(offset == place && bytes > 0 && bytes <= 64 * KIB, "{requests:?} at {place}");
        play.end();
        assert_eq!(play.asks(), [(Op::Flush, 0, 0)]);
        play.end();
        place = (place + bytes) % (256 * KIB);
        assert_eq!(play.asks(), [(Op::Write, place, 4 * KIB)]);
        assert!(play.open[&0].flags.contains(Flags::FUA));
        place = (place + 4 * KIB) % (256 * KIB);
        assert_eq!(play.operations(), commit - 1);
        play.end();
        assert_eq!(play.operations(), commit);
    }
}

/// in_turn.1, in_turn.2
#[test]
fn an_ask_that_fails_ends_the_operation_and_the_next_begins_after_its_think_time() {
    let mut play = Play::new(fsync(file(MIB), 4 * KIB, false, ms(2)));
    assert_eq!(play.wait(at(1)), [(Op::Write, 0, 4 * KIB)]);
    play.end_with(0, Outcome::Failed(Errno::EIO));
    assert_eq!((play.operations(), play.program.meter().failed), (1, 1));
    assert_eq!(play.wait(at(2001)), [], "it thinks, and asks for no flush");
    assert_eq!(play.wait(at(2002)), [(Op::Write, 4 * KIB, 4 * KIB)]);
}

/// mail.1, mail.2, mail.3
#[test]
fn mails_are_created_appended_to_and_read_and_what_is_written_is_flushed_with_its_inode() {
    let mut play = Play::new(mail(file(64 * MIB), 4 * KIB, Duration::ZERO, 9));
    let inodes = 1000_u64.div_ceil(16) * 4 * KIB;
    for operation in 0..300 {
        let mut requests = play.wait(play.now + us(4));
        let mut then = |play: &mut Play<InTurn>| {
            play.end();
            requests.extend(play.asks());
        };
        while play.operations() == operation {
            then(&mut play);
        }
        play.now += us(10);
        let kinds: Vec<_> = requests.iter().map(|(op, ..)| *op).collect();
        let wanted = match operation % 3 {
            0 => &[Op::Write, Op::Write, Op::Flush][..],
            1 => &[Op::Read, Op::Write, Op::Write, Op::Flush],
            _ => &[Op::Read],
        };
        assert_eq!(kinds, wanted, "operation {operation}");
        let mails: Vec<_> = requests.iter().filter(|(_, offset, bytes)| *offset >= inodes && *bytes > 0).collect();
        assert!(mails.iter().all(|(_, _, bytes)| *bytes <= 8 * 4 * KIB), "{requests:?}");
        if let [(Op::Read, read, bytes), (Op::Write, written, _)] = mails[..] {
            assert!(*written == read + bytes || (*bytes == 8 * 4 * KIB && written == read), "{requests:?}");
        }
        if operation % 3 < 2 {
            let inode = requests[requests.len() - 2];
            assert!(inode.1 < inodes && inode.2 == 4 * KIB, "{requests:?}");
        }
    }
}

// ---- by the clock ----

/// open_loop.1, open_loop.2
#[test]
fn arrivals_do_not_wait_for_the_disk_and_their_waiting_counts() {
    let mut play = Play::new(OpenLoop::new(Op::Read, Pattern::Random, 1000, file(MIB), 4 * KIB, 4));
    let requests = play.wait(at(500_000)).len();
    assert!((400..600).contains(&requests), "{requests} in half a second of 1000 per second");
    play.end_with(0, Outcome::Done);
    assert!(play.program.meter().latency_max > ms(490));
}

/// open_loop.3
#[test]
fn more_than_1024_are_not_asked_at_a_time() {
    let mut play = Play::new(OpenLoop::new(Op::Write, Pattern::Sequential, 100_000, file(MIB), 4 * KIB, 4));
    assert_eq!(play.wait(at(50_000)).len(), 1024);
    assert_eq!(play.program.poll_timeout(), None, "who comes now is not written down: there would be no end of them");
    play.end();
    assert_eq!(play.wait(at(50_001)).len(), 1, "one that came before");
    play.end();
    assert!(play.program.meter().latency.quantile(1) > ms(30), "and had waited since");
}

/// interactive.1, interactive.4
#[test]
fn a_start_is_one_operation_of_reads_that_wait_for_each_other() {
    let mut play = Play::new(interactive(file(512 * MIB), 4 * KIB, 6));
    let mut reads = 0;
    while play.operations() == 0 {
        let requests = play.wait(play.now + us(300));
        assert_eq!((requests.len(), play.open.len()), (1, 1));
        reads += 1;
        play.now += us(100);
        play.end();
    }
    assert_eq!(reads, interactive::READS);
    let meter = play.program.meter();
    assert!(meter.latency_max > ms(40) && meter.bytes > 400 * 4 * KIB);
    let end = play.now;
    assert_eq!(play.wait(end + (interactive::PAUSE - us(1))), [], "somebody works with it");
    assert_eq!(play.wait(end + interactive::PAUSE).len(), 1);
}

/// Of every built-in workload: within its file, whole sectors, tokens not used twice, no spinning.
#[test]
fn every_program_keeps_to_its_file_and_lets_time_pass() {
    for Workload { name, roles, .. } in Workload::built_in() {
        for role in &roles {
            for block in [512, 4 * KIB, 12 * KIB, 256 * KIB] {
                let bytes = 3 * MIB;
                let part = JobPlacement {
                    file: file(bytes),
                    block,
                    depth: 4,
                    index: (1, 3),
                    round_trip: Duration::ZERO,
                    counts_from: Instant::ZERO,
                    seed: block,
                };
                let mut play = Play::new(Boxed(role.program(&part)));
                let mut random = Random::new(block);
                for _ in 0..300 {
                    for (op, offset, length) in play.wait(play.now + us(random.below(300))) {
                        assert!(op == Op::Flush || length > 0 && offset + length <= bytes, "{name}: {offset}+{length}");
                    }
                    if !play.open.is_empty() && random.below(4) > 0 {
                        let nth = random.below(play.open.len() as u64) as usize;
                        let token = *play.open.keys().nth(nth).unwrap();
                        let outcome = if random.below(20) == 0 { Outcome::Failed(Errno::EIO) } else { Outcome::Done };
                        play.end_with(token, outcome);
                    }
                }
                assert!(play.operations() > 0, "{name} with blocks of {block} gets nothing done");
            }
        }
    }
}

struct Boxed(Box<dyn Program>);

impl Program for Boxed {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        self.0.poll_ask(now)
    }

    fn handle_end(&mut self, now: Instant, token: u32, outcome: Outcome) {
        self.0.handle_end(now, token, outcome);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }

    fn meter(&self) -> &Meter {
        self.0.meter()
    }
}
