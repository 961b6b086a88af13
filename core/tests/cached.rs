//! Reads that memory above the disk answers are no work of the disk: nobody is charged for them, and nothing is learned of them (queue.19).

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlift_core::ceiling::{Budget, Ceiling, Rate, Rates};
use fairlift_core::queue::{Bound, Settings};
use fairlift_core::sched::Kind;
use fairlift_core::stats::Cache;
use fairlift_core::time::{secs, us};
use fairlift_core::*;

const C0: ContextId = ContextId(0);
/// The time that the disk takes for a read; it does as many at once.
const TAKES: Duration = us(400);
const AT_ONCE: usize = 4;
/// The pause of a client between an answer from memory and its next read.
const THINKS: Duration = us(25);
const CACHED: usize = 0;
const DISK: usize = 1;

/// How the reads of the first tenant are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answered {
    /// It does not read.
    Absent,
    /// By memory, before they are submitted.
    Before,
    /// By memory, when their turn has come.
    InTurn,
}

/// The figures of a run.
struct Seen {
    done: [u64; 2],
    cache: Cache,
    had: [Duration; 2],
    counters: BTreeMap<&'static str, u64>,
}

/// A disk, and two tenants of equal weight: one whose reads memory answers, and one that keeps 64 reads of the disk outstanding.
struct Sim {
    queue: Queue,
    streams: [StreamId; 2],
    now: Instant,
    next: u64,
    answered: Answered,
    /// By when they end: what the disk does, and clients that will ask.
    disk: Vec<(Instant, Tag)>,
    waiting: std::collections::VecDeque<Tag>,
    thinking: Vec<Instant>,
}

impl Sim {
    fn new(kind: Kind, answered: Answered) -> Self {
        let mut settings = Settings { depth: 32, nr_requests: 256, ..Settings::new(kind, Limits::new(1 << 30)) };
        for path in ["/cached", "/disk"] {
            settings.groups.push(Group { path: path.into(), parent: Some(GroupId::ROOT), weight: Weight::new(100) });
        }
        let mut queue = Queue::new(settings);
        let stream = |group| Stream { group: GroupId(group), priority: Priority::default(), context: C0 };
        let streams = [1, 2].map(|group| queue.add_stream(stream(group)));
        let (now, disk, waiting, thinking) = (Instant::ZERO, Vec::new(), Default::default(), Vec::new());
        Self { queue, streams, now, next: 0, answered, disk, waiting, thinking }
    }

    fn ask(&mut self, who: usize) {
        self.next += 1;
        let start = ((who as u64) << 29) | (self.next * 7_919 % 100_000 * 64);
        let flags = match (who, self.answered) {
            (CACHED, Answered::Before) => Flags::CACHED,
            (CACHED, _) => Flags::MISSED,
            _ => Flags::NONE,
        };
        let (stream, extent, token) = (self.streams[who], Extent::new(Sector(start), 8), Token(who as u64));
        self.queue.submit(self.now, Bio { op: Op::Read, flags, extent, stream, token }).unwrap();
    }

    /// Dispatches what may go; memory answers at once.
    fn dispatch(&mut self) {
        while let Some(dispatch) = self.queue.poll_dispatch(self.now, C0) {
            match dispatch.flags.contains(Flags::MISSED) {
                true => self.queue.handle_cached(self.now, dispatch.tag),
                false => self.waiting.push_back(dispatch.tag),
            }
        }
        while self.disk.len() < AT_ONCE
            && let Some(tag) = self.waiting.pop_front()
        {
            self.disk.push((self.now + TAKES, tag));
        }
    }

    fn run(mut self, time: Duration) -> Seen {
        (0..64).for_each(|_| self.ask(DISK));
        if self.answered != Answered::Absent {
            (0..4).for_each(|_| self.ask(CACHED));
        }
        let mut done = [0; 2];
        while self.now < Instant::ZERO + time {
            self.dispatch();
            let mut is_news = false;
            while let Some(Finished::Done(token, outcome)) = self.queue.poll_finished(C0) {
                assert_eq!(outcome, Outcome::Done);
                (done[token.0 as usize], is_news) = (done[token.0 as usize] + 1, true);
                match token.0 as usize {
                    CACHED => self.thinking.push(self.now + THINKS),
                    who => self.ask(who),
                }
            }
            if is_news {
                continue;
            }
            let ends = self.disk.iter().map(|(at, _)| *at).chain(self.thinking.iter().copied());
            self.now = ends.chain(self.queue.poll_timeout()).min().expect("something is to happen").max(self.now);
            let now = self.now;
            let (ended, rest) = self.disk.iter().partition(|(at, _)| *at <= now);
            self.disk = rest;
            let ended: Vec<(Instant, Tag)> = ended;
            ended.iter().for_each(|(_, tag)| self.queue.handle_completion(now, *tag, Outcome::Done));
            self.queue.handle_timeout(now);
            let before = self.thinking.len();
            self.thinking.retain(|at| *at > now);
            (self.thinking.len()..before).for_each(|_| self.ask(CACHED));
        }
        let figures = self.queue.groups_mut().figures_of_groups(self.now, 0..3).unwrap();
        let had = [1, 2].map(|group| figures.iter().find(|(id, _)| id.0 == group).unwrap().1.had);
        let cache = self.queue.groups().stats_of(GroupId(1)).cache;
        assert_eq!(self.queue.groups().stats_of(GroupId(2)).cache, Cache::default(), "it passes no memory");
        let mut counters = BTreeMap::new();
        self.queue.counters(&mut |name, value| _ = counters.insert(name, value));
        Seen { done, cache, had, counters }
    }
}

/// The disk is the other tenant's, whether its neighbour reads from memory or not.
#[test]
fn a_tenant_beside_one_that_reads_from_memory_has_all_of_the_disk() {
    for kind in Kind::ALL {
        let alone = Sim::new(kind, Answered::Absent).run(secs(4));
        // A turn of bfq or cfq keeps others out, whatever becomes of it (bfq.9, cfq.9).
        let has_turns = matches!(kind, Kind::Bfq | Kind::Cfq);
        for answered in
            [Answered::Before, Answered::InTurn].into_iter().filter(|way| *way == Answered::Before || !has_turns)
        {
            let both = Sim::new(kind, answered).run(secs(4));
            let (name, part) = (kind.name(), both.done[DISK] as f64 / alone.done[DISK] as f64);
            let of_time = both.had[CACHED].as_nanos() as f64 / both.had[DISK].as_nanos() as f64;
            println!(
                "{name}, {answered:?}: {part:.3} of the disk, memory {} reads, had {of_time:.4}",
                both.done[CACHED]
            );
            assert!(part > 0.98, "{name}, {answered:?}: {part:.3} of what it does alone");
            assert!(of_time < 0.01, "{name}, {answered:?}: of the disk's time it had {of_time:.4}");
            // Up to four have ended of which the client has not heard yet.
            let unheard = both.cache.hits - both.done[CACHED];
            assert!(unheard <= 4 && both.cache.misses == 0, "{name}, {answered:?}: {:?}", both.cache);
            assert_eq!(both.cache.hit_bytes, both.cache.hits * 4096);
            // Not held up by what others have in the disk: 4 at once, 25 µs between an answer and the next.
            if answered == Answered::Before {
                assert!(both.done[CACHED] >= 4 * 4_000_000 / 25 - 8, "{name}: memory answered {}", both.done[CACHED]);
            }
        }
    }
}

/// The scheduler learns of the disk, and not of memory.
#[test]
fn the_estimates_of_a_disk_are_the_same_beside_reads_from_memory() {
    let alone = Sim::new(Kind::Fair, Answered::Absent).run(secs(8));
    for answered in [Answered::Before, Answered::InTurn] {
        let both = Sim::new(Kind::Fair, answered).run(secs(8));
        for name in ["cost_rrandiops", "depth_wanted"] {
            let (was, is) = (alone.counters[name], both.counters[name]);
            println!("{answered:?}: {name} {is} (alone {was})");
            assert!(is.abs_diff(was) * 10 <= was, "{answered:?}: {name} is {is}, and alone {was}");
        }
    }
}

/// A read that is several requests counts as cached only if all of them were.
#[test]
fn a_read_of_which_memory_has_a_part_counts_as_missed() {
    let limits = Limits { rw_max: 8, ..Limits::new(1 << 20) };
    for (cached, seen) in [([true, true], (1, 0)), ([true, false], (0, 1)), ([false, true], (0, 1))] {
        let mut queue = Queue::new(Settings::new(Kind::Fair, limits));
        let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context: C0 };
        let stream = queue.add_stream(stream);
        let extent = Extent::new(Sector(0), 16);
        queue
            .submit(Instant::ZERO, Bio { op: Op::Read, flags: Flags::MISSED, extent, stream, token: Token(0) })
            .unwrap();
        for cached in cached {
            let tag = queue.poll_dispatch(Instant::ZERO, C0).expect("one of two").tag;
            match cached {
                true => queue.handle_cached(Instant::ZERO, tag),
                false => queue.handle_completion(Instant::ZERO + us(100), tag, Outcome::Done),
            }
        }
        assert_eq!(queue.poll_finished(C0), Some(Finished::Done(Token(0), Outcome::Done)));
        let cache = queue.groups().stats().cache;
        assert_eq!((cache.hits, cache.misses), seen, "{cached:?}");
    }
}

/// A stream's next read of the disk is near its last one of the disk, wherever memory has answered it meanwhile.
#[test]
fn a_read_that_memory_answers_is_at_no_place_of_the_disk() {
    for answered in [Answered::Absent, Answered::Before, Answered::InTurn] {
        let mut queue = Queue::new(Settings::new(Kind::Fair, Limits::new(1 << 30)));
        let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context: C0 };
        let stream = queue.add_stream(stream);
        let far = if answered == Answered::Before { Flags::CACHED } else { Flags::MISSED };
        for (start, flags) in [(1 << 20, Flags::NONE), (1 << 25, far), ((1 << 20) + 8, Flags::NONE)] {
            let extent = Extent::new(Sector(start), 8);
            queue.submit(Instant::ZERO, Bio { op: Op::Read, flags, extent, stream, token: Token(0) }).unwrap();
            if let Some(dispatch) = queue.poll_dispatch(Instant::ZERO, C0) {
                match answered == Answered::InTurn && dispatch.flags.contains(Flags::MISSED) {
                    true => queue.handle_cached(Instant::ZERO, dispatch.tag),
                    false => queue.handle_completion(Instant::ZERO + us(100), dispatch.tag, Outcome::Done),
                }
            }
            assert!(queue.poll_finished(C0).is_some());
        }
        let near = queue.groups().stats().of(Op::Read).near;
        assert_eq!(near, u64::from(answered != Answered::Absent), "{answered:?}");
    }
}

/// A ceiling counts requests, whoever answers them.
#[test]
fn a_ceiling_holds_reads_that_memory_has_answered() {
    let mut sim = Sim::new(Kind::Fair, Answered::Before);
    let ceiling = Ceiling::of(Rates::NONE.with(Rate::Iops, 1000));
    let bound = Bound { budget: Some(Arc::new(Budget::new(&ceiling))), ..Bound::default() };
    sim.queue.bind(Instant::ZERO, GroupId(1), &bound);
    let seen = sim.run(secs(2));
    assert!((1_990..=2_020).contains(&seen.done[CACHED]), "{} in two seconds", seen.done[CACHED]);
    assert!(seen.cache.hits - seen.done[CACHED] <= 4 && seen.cache.misses == 0, "{:?}", seen.cache);
}
