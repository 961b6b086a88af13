//! Ceilings, through the queue: held to a dull model that shares no code with them, and by scenario.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlift_core::ceiling::{Budget, Ceiling, Rate, Rates, TOLERANCE};
use fairlift_core::queue::{Bound, Settings};
use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, secs, us};
use fairlift_core::{
    Bio, ContextId, Direction, Duration, Extent, Finished, Flags, Group, GroupId, Instant, Limits, Op, Outcome,
    Priority, Queue, Sector, Stream, StreamId, Token, Weight,
};
use proptest::prelude::*;

const C0: ContextId = ContextId(0);

/// A queue on a device that answers at once, and what went to it.
struct Sim {
    queue: Queue,
    now: Instant,
    budgets: BTreeMap<u16, Arc<Budget>>,
    tokens: u64,
    submitted: BTreeMap<u64, (StreamId, Op)>,
    /// When, which stream, and what.
    gone: Vec<(Instant, StreamId, Op, u64)>,
}

impl Sim {
    /// Groups by their parents and weights, the root aside.
    fn new(kind: Kind, groups: &[(u16, u16)]) -> Self {
        let mut settings = Settings { depth: 4096, nomerges: true, ..Settings::new(kind, Limits::new(1 << 30)) };
        settings.nr_requests = 1 << 16;
        let group = |(at, (parent, weight)): (usize, &(u16, u16))| Group {
            path: format!("/{}", at + 1),
            parent: Some(GroupId(*parent)),
            weight: Weight::new(*weight),
        };
        settings.groups.extend(groups.iter().enumerate().map(group));
        Self {
            queue: Queue::new(settings),
            now: Instant::ZERO,
            budgets: BTreeMap::new(),
            tokens: 0,
            submitted: BTreeMap::new(),
            gone: Vec::new(),
        }
    }

    fn stream(&mut self, group: u16) -> StreamId {
        self.queue.add_stream(Stream { group: GroupId(group), priority: Priority::default(), context: C0 })
    }

    fn limit(&mut self, group: u16, ceiling: Ceiling) {
        let budget = Arc::new(Budget::new(&ceiling));
        let bound = Bound { budget: Some(Arc::clone(&budget)), ..Bound::default() };
        self.queue.bind(self.now, GroupId(group), &bound);
        self.budgets.insert(group, budget);
    }

    fn ask(&mut self, stream: StreamId, op: Op, sectors: u64) {
        self.tokens += 1;
        let start = Sector(self.tokens * 4096 % (1 << 29));
        let extent = Extent::new(start, if op == Op::Flush { 0 } else { sectors });
        let bio = Bio { op, flags: Flags::NONE, extent, stream, token: Token(self.tokens) };
        self.submitted.insert(self.tokens, (stream, op));
        self.queue.submit(self.now, bio).expect("there is room");
    }

    /// The device takes all that it is given, and answers at once. Which streams had an answer.
    fn turn(&mut self) -> Vec<StreamId> {
        let mut ended = Vec::new();
        self.queue.handle_timeout(self.now);
        while let Some(dispatch) = self.queue.poll_dispatch(self.now, C0) {
            self.gone.push((self.now, dispatch.stream, dispatch.op, dispatch.extent.bytes().get()));
            self.queue.handle_completion(self.now, dispatch.tag, Outcome::Done);
        }
        while let Some(news) = self.queue.poll_finished(C0) {
            let Finished::Done(token, Outcome::Done) = news else { panic!("{news:?}") };
            ended.push(self.submitted.remove(&token.0).expect("each ends once").0);
        }
        ended
    }

    /// Until then: all streams keep so many requests outstanding.
    fn saturate(&mut self, streams: &[(StreamId, Op, u64)], until: Instant) {
        loop {
            let mut ended = self.turn();
            while !ended.is_empty() {
                for stream in ended {
                    let (_, op, sectors) = streams.iter().find(|(one, ..)| *one == stream).expect("it is one of them");
                    self.ask(stream, *op, *sectors);
                }
                ended = self.turn();
            }
            let next = self.queue.poll_timeout().expect("something waits").max(self.now + us(1));
            if next >= until {
                self.now = until;
                return;
            }
            self.now = next;
        }
    }

    fn count(&self, stream: StreamId, from: Instant, until: Instant) -> u64 {
        self.gone.iter().filter(|(at, of, ..)| *of == stream && (from..until).contains(at)).count() as u64
    }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + secs(seconds)
}

/// queue.20: a neighbour fills each place that comes free, and a timer's turn is one in which nothing has ended.
#[test]
fn what_a_ceiling_held_goes_on_beside_a_neighbour_that_keeps_the_table_full() {
    let mut sim = Sim::new(Kind::MqDeadline, &[(0, 100), (0, 100)]);
    sim.queue.set_bounds(sim.now, 2, 4);
    sim.limit(1, Ceiling::of(Rates::NONE.with(Rate::Iops, 100)));
    let (limited, busy) = (sim.stream(1), sim.stream(2));
    (0..20).for_each(|_| sim.ask(limited, Op::Read, 8));
    let (mut device, mut had, mut others) = (Vec::new(), 0, 0_u64);
    for turn in 0..2000 {
        let now = Instant::ZERO + us(500 * turn);
        if turn % 2 == 0 {
            std::mem::take(&mut device)
                .into_iter()
                .for_each(|tag| sim.queue.handle_completion(now, tag, Outcome::Done));
        }
        if sim.queue.poll_timeout().is_some_and(|due| due <= now) {
            sim.queue.handle_timeout(now);
        }
        let bio = |n: u64| {
            let extent = Extent::new(Sector(n * 64), 8);
            Bio { op: Op::Read, flags: Flags::NONE, extent, stream: busy, token: Token(1 << 40) }
        };
        while sim.queue.submit(now, bio(others)).is_ok() {
            others += 1;
        }
        device.extend(std::iter::from_fn(|| sim.queue.poll_dispatch(now, C0)).map(|next| next.tag));
        let news = std::iter::from_fn(|| sim.queue.poll_finished(C0));
        had += news.filter(|news| !matches!(news, Finished::Done(Token(token), _) if *token == 1 << 40)).count();
    }
    assert!(had == 20 && others > 1500, "{had} of one, and {others} of the other");
}

fn max(rate: Rate, amount: u64) -> Ceiling {
    Ceiling::of(Rates::NONE.with(rate, amount))
}

/// ceiling.1, ceiling.2, ceiling.5: under every scheduler, at depth 1 and 64.
#[test]
fn a_ceiling_holds_under_every_scheduler_and_without_long_gaps() {
    for kind in Kind::ALL {
        for depth in [1, 64] {
            let mut sim = Sim::new(kind, &[(0, 100)]);
            sim.limit(1, max(Rate::Riops, 3000));
            let reader = sim.stream(1);
            (0..depth).for_each(|_| sim.ask(reader, Op::Read, 8));
            sim.saturate(&[(reader, Op::Read, 8)], at(3));
            for second in 0..3 {
                let count = sim.count(reader, at(second), at(second + 1));
                assert!((2985..=3017).contains(&count), "{} at depth {depth}: {count}", kind.name());
            }
            let gap = sim.gone.windows(2).map(|two| two[1].0.since(two[0].0)).max().unwrap();
            assert!(gap <= ms(1), "{} at depth {depth}: {gap}", kind.name());
            let held = sim.queue.groups().stats_of(GroupId(1)).held;
            assert!(held.bios > 2900 && held.time > secs(2), "{held:?}");
        }
    }
}

/// ceiling.3: a child may have more than its parent, and then has the parent's; ceiling.6: its children share by weight.
#[test]
fn a_parent_binds_its_children_and_they_share_what_it_has_by_weight() {
    let mut sim = Sim::new(Kind::None, &[(0, 100), (1, 100), (1, 300), (0, 100)]);
    sim.limit(1, max(Rate::Iops, 4000));
    sim.limit(2, max(Rate::Iops, 9000));
    let streams = [sim.stream(2), sim.stream(3), sim.stream(4)];
    let all = streams.map(|stream| (stream, Op::Write, 8));
    for stream in &streams[..2] {
        (0..32).for_each(|_| sim.ask(*stream, Op::Write, 8));
    }
    sim.saturate(&all, at(4));
    let counts = streams.map(|stream| sim.count(stream, at(1), at(4)));
    assert!(counts[0].abs_diff(3000) < 40 && counts[1].abs_diff(9000) < 40, "{counts:?}");
    // The group beside them is free.
    sim.ask(streams[2], Op::Write, 8);
    assert!(sim.turn().contains(&streams[2]));
    // What one leaves, the other has.
    sim.queue.set_weight(sim.now, GroupId(2), Weight::new(1));
    sim.saturate(&all[..2], at(5));
    assert!(sim.count(streams[0], at(4), at(5)) < 50);
}

/// floor.1, floor.3, floor.4, below a ceiling that binds: nine readers share 3000 IOPS, and one has a floor of 1000; a floor on a group
/// of two; and floors that are more than the ceiling.
#[test]
fn floors_are_kept_within_the_ceiling_of_a_group_above() {
    // 1 is above all others; 2 is above 3 and 4.
    let groups: Vec<_> = [(0, 100), (1, 100), (2, 100), (2, 300)].into_iter().chain([(1, 100); 8]).collect();
    let floors = |floors: &[(u16, u64)]| {
        let mut sim = Sim::new(Kind::Fair, &groups);
        sim.limit(1, max(Rate::Riops, 3000));
        for (group, floor) in floors {
            let floor = Rates::NONE.with(Rate::Riops, *floor);
            sim.queue.bind(sim.now, GroupId(*group), &Bound { floor, ..Bound::default() });
        }
        let streams: Vec<_> = (3..=12).map(|group| (sim.stream(group), Op::Read, 8)).collect();
        for (stream, ..) in &streams {
            (0..32).for_each(|_| sim.ask(*stream, Op::Read, 8));
        }
        sim.saturate(&streams, at(3));
        // 3, 4, and the others.
        let counts: Vec<_> = streams.iter().map(|(stream, ..)| sim.count(*stream, at(1), at(3)) / 2).collect();
        assert!(counts.iter().sum::<u64>().abs_diff(3000) <= 6, "{counts:?}");
        counts
    };
    let near = |had: u64, due: u64| assert!(had.abs_diff(due) <= due / 50 + 2, "{had}, not {due}");
    // By weight a ninth, parted 1:3.
    let counts = floors(&[]);
    near(counts[0], 83);
    near(counts[2], 333);
    let counts = floors(&[(5, 1000)]);
    near(counts[2], 1000);
    counts[3..].iter().for_each(|count| near(*count, 250));
    let counts = floors(&[(2, 1000), (5, 500)]);
    near(counts[0], 250);
    near(counts[1], 750);
    near(counts[2], 500);
    counts[3..].iter().for_each(|count| near(*count, 1500 / 7));
    // 4500 of 3000.
    let counts = floors(&[(5, 3000), (6, 1500)]);
    near(counts[2], 2000);
    near(counts[3], 1000);
}

/// ceiling.5: reads do not hold writes up, and nothing holds a flush up.
#[test]
fn writes_pass_reads_that_wait_and_flushes_pass_all() {
    let mut sim = Sim::new(Kind::MqDeadline, &[(0, 100)]);
    sim.limit(1, max(Rate::Riops, 10));
    let stream = sim.stream(1);
    (0..5).for_each(|_| sim.ask(stream, Op::Read, 8));
    sim.turn();
    sim.ask(stream, Op::Write, 8);
    sim.turn();
    sim.ask(stream, Op::Flush, 0);
    sim.turn();
    let went: Vec<_> = sim.gone.iter().map(|(.., op, _)| *op).collect();
    assert_eq!(went, [Op::Read, Op::Write, Op::Flush]);
    let held: Vec<_> = sim.queue.ceilings().each().map(|(id, held)| (id, held.bio.op, held.since)).collect();
    assert_eq!(held, [(GroupId(1), Op::Read, Instant::ZERO); 4]);
}

/// ceiling.4: what is merged, cut or carries no data counts as it was asked.
#[test]
fn bios_count_as_they_were_asked() {
    let mut settings = Settings::new(Kind::MqDeadline, Limits { rw_max: 64, ..Limits::new(1 << 30) });
    settings.groups.push(Group { path: "/a".into(), parent: Some(GroupId::ROOT), weight: Weight::new(100) });
    let mut queue = Queue::new(settings);
    let budget = Arc::new(Budget::new(&max(Rate::Iops, 1000)));
    let bound = Bound { budget: Some(Arc::clone(&budget)), ..Bound::default() };
    queue.bind(Instant::ZERO, GroupId(1), &bound);
    let stream = queue.add_stream(Stream { group: GroupId(1), priority: Priority::default(), context: C0 });
    let mut submit = |op, start, sectors| {
        let extent = Extent::new(Sector(start), sectors);
        queue.submit(Instant::ZERO, Bio { op, flags: Flags::NONE, extent, stream, token: Token(0) }).unwrap();
    };
    // Four neighbours that become one request, and one that is cut into four: five.
    (0..4).for_each(|n| submit(Op::Read, n * 8, 8));
    submit(Op::Read, 4096, 256);
    let free = budget.free_at(Direction::Read);
    assert_eq!(free, Instant::ZERO, "5 ms of 1000 a second, less the tolerance of 5 ms");
    budget.charge(Instant::ZERO, Direction::Read, 0);
    assert_eq!(budget.free_at(Direction::Read), Instant::ZERO + ms(1));

    let mut sim = Sim::new(Kind::None, &[(0, 100)]);
    sim.limit(1, max(Rate::Wbps, 1 << 20));
    let stream = sim.stream(1);
    (0..10).for_each(|_| sim.ask(stream, Op::Discard, 1 << 20)); // 5 GiB of discards cost 5 KiB
    assert_eq!(sim.turn().len(), 10);
    sim.ask(stream, Op::WriteZeroes, 2048);
    assert_eq!(sim.turn().len(), 1, "one passes whole");
    sim.ask(stream, Op::WriteZeroes, 8);
    assert_eq!(sim.turn().len(), 0, "and is paid for");
    let free = sim.budgets[&1].free_at(Direction::Write).since(at(1));
    assert!(free < ms(1), "a second for a mebibyte: {free}");
}

/// ceiling.9: a lower ceiling, a higher one, and none, while bios wait.
#[test]
fn a_ceiling_that_changes_holds_at_once() {
    let mut sim = Sim::new(Kind::None, &[(0, 100)]);
    sim.limit(1, max(Rate::Iops, 1));
    let stream = sim.stream(1);
    (0..64).for_each(|_| sim.ask(stream, Op::Read, 8));
    assert_eq!(sim.turn().len(), 1);
    sim.budgets[&1].set(sim.now, &max(Rate::Iops, 1000));
    sim.queue.ceilings().look_again(sim.now, GroupId(1));
    sim.saturate(&[(stream, Op::Read, 8)], at(1));
    assert!(sim.gone.len().abs_diff(1000) < 10, "{}", sim.gone.len());
    sim.turn();
    sim.queue.bind(sim.now, GroupId(1), &Bound::default());
    sim.turn();
    assert!(sim.submitted.is_empty());
    assert!(sim.queue.load().held == 0 && sim.queue.poll_timeout().is_none());
}

/// queue.8, queue.13: what waits goes along with its stream; at the end it goes at once; a worker can have it back.
#[test]
fn what_waits_can_be_moved_let_go_and_taken_back() {
    let mut sim = Sim::new(Kind::Fair, &[(0, 100), (0, 100)]);
    sim.limit(1, max(Rate::Iops, 1));
    let [one, two] = [sim.stream(1), sim.stream(1)];
    for stream in [one, two] {
        (0..3).for_each(|_| sim.ask(stream, Op::Write, 8));
    }
    assert_eq!(sim.turn(), [one]);
    let to = Stream { group: GroupId(2), priority: Priority::default(), context: C0 };
    sim.queue.change_stream(sim.now, one, to);
    assert_eq!(sim.turn(), [one, one]);
    let back = sim.queue.take_held(C0);
    assert_eq!(back.iter().map(|bio| bio.token.0).collect::<Vec<_>>(), [4, 5, 6]);
    sim.queue.remove_stream(one);
    for bio in back {
        sim.queue.submit(sim.now, bio).unwrap();
    }
    assert_eq!(sim.turn().len(), 0);
    sim.queue.ceilings().lift(sim.now);
    assert_eq!(sim.turn(), [two, two, two]);
    sim.queue.remove_stream(two);
}

/// ceiling.11
#[test]
fn what_goes_while_ceilings_are_lifted_is_paid_for_once_they_hold_again() {
    let mut sim = Sim::new(Kind::Fair, &[(0, 100)]);
    sim.limit(1, max(Rate::Iops, 1));
    let one = sim.stream(1);
    (0..3).for_each(|_| sim.ask(one, Op::Write, 8));
    assert_eq!(sim.turn(), [one]);
    sim.queue.ceilings().lift(sim.now);
    assert_eq!(sim.turn(), [one, one]);
    sim.ask(one, Op::Write, 8); // which waited for room until now
    assert_eq!(sim.turn(), [one]);
    sim.queue.ceilings().lower();
    sim.ask(one, Op::Write, 8);
    for second in 0..4 {
        assert_eq!(sim.turn(), [], "after {second} s of the four that are owed");
        sim.now += secs(1);
    }
    assert_eq!(sim.turn(), [one]);
    sim.queue.remove_stream(one);
}

/// A leaky bucket in floating point: what a meter says in ticks.
#[derive(Clone)]
struct Bucket {
    rate: f64,
    size: f64,
    level: f64,
    at: Instant,
    counts: Rate,
}

impl Bucket {
    fn all(ceiling: &Ceiling) -> Vec<Self> {
        let mut all = Vec::new();
        let tolerance = TOLERANCE.as_nanos() as f64 / 1e9;
        for counts in Rate::ALL {
            let Some(max) = ceiling.max.get(counts) else { continue };
            let slow = max as f64;
            let fast = ceiling.burst.get(counts).map(|fast| fast as f64);
            let saved = fast.map_or(0.0, |fast| (fast - slow) * ceiling.length.as_nanos() as f64 / 1e9);
            let bucket = |rate, size| Self { rate, size, level: 0.0, at: Instant::ZERO, counts };
            all.push(bucket(slow, saved + slow * tolerance));
            all.extend(fast.map(|fast| bucket(fast, fast * tolerance)));
        }
        all
    }

    fn level(&self, now: Instant) -> f64 {
        (self.level - self.rate * now.since(self.at).as_nanos() as f64 / 1e9).max(0.0)
    }

    /// Whether it is over its brim for sure, or (`unsure`) may be: by a microsecond of its rate, and a millionth of what it may hold.
    fn is_over(&self, now: Instant, unsure: bool) -> bool {
        let slack = if unsure { -1e-6 } else { 1e-6 };
        self.level(now) > self.size * (1.0 + slack) + self.rate * slack
    }

    fn add(&mut self, now: Instant, bytes: u64) {
        let amount = if self.counts.counts_bytes() { bytes as f64 } else { 1.0 };
        (self.level, self.at) = (self.level(now) + amount, now);
    }
}

fn ceilings() -> impl Strategy<Value = Ceiling> {
    let rates = prop::collection::vec((0usize..6, 0u32..5), 1..3);
    (rates, prop::option::weighted(0.4, 1u64..4)).prop_map(|(rates, burst)| {
        let mut ceiling = Ceiling::NONE;
        for (rate, size) in rates {
            let rate = Rate::ALL[rate];
            let amount = 50 * 7u64.pow(size) * if rate.counts_bytes() { 4096 } else { 1 };
            ceiling.max = ceiling.max.with(rate, amount);
            if let Some(times) = burst {
                ceiling.burst = ceiling.burst.with(rate, amount * times);
                ceiling.length = secs(times);
            }
        }
        ceiling
    })
}

#[derive(Clone, Debug)]
enum Step {
    Ask { stream: usize, op: Op, sectors: u64, count: u8 },
    Wait(Duration),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let op = prop::sample::select(vec![Op::Read, Op::Read, Op::Write, Op::Discard, Op::WriteZeroes, Op::Flush]);
    prop::collection::vec(
        prop_oneof![
            (0usize..5, op, 1u64..512, 1u8..40).prop_map(|(stream, op, sectors, count)| Step::Ask {
                stream,
                op,
                sectors,
                count
            }),
            (0u64..2_000_000).prop_map(|n| Step::Wait(us(n / 10))),
        ],
        1..60,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 200 } else { 2000 }))]

    /// At no instant has any node more than its ceiling and burst; and nothing waits for longer than the grain though no ceiling
    /// above it is behind (ceiling.1 to ceiling.7).
    #[test]
    fn no_node_is_above_its_ceiling_and_nothing_waits_for_nothing(
        set in prop::collection::btree_map(0u16..5, ceilings(), 1..5),
        steps in steps(),
    ) {
        // A root, two below it, and two below the first of these.
        let parents = [0u16, 0, 0, 1, 1];
        // `none`, so that what is let through goes to the device at once.
        let mut sim = Sim::new(Kind::None, &[(0, 100), (0, 300), (1, 100), (1, 500)]);
        let streams: Vec<_> = (0..5).map(|group| sim.stream(group)).collect();
        let mut buckets: BTreeMap<u16, Vec<Bucket>> = BTreeMap::new();
        for (group, ceiling) in &set {
            sim.limit(*group, *ceiling);
            buckets.insert(*group, Bucket::all(ceiling));
        }
        let path = |mut group: u16| {
            let mut path = vec![group];
            while group != 0 {
                group = parents[usize::from(group)];
                path.push(group);
            }
            path
        };
        // Since when each group and direction could go, as far as the model knows.
        let mut free_since: BTreeMap<(u16, bool), Instant> = BTreeMap::new();
        let mut look = |sim: &mut Sim| {
            sim.turn();
            for (now, stream, op, bytes) in sim.gone.drain(..) {
                if op == Op::Flush {
                    continue;
                }
                let group = streams.iter().position(|one| *one == stream).unwrap() as u16;
                let bytes = if op == Op::Discard { 512 } else { bytes };
                for node in path(group) {
                    for bucket in buckets.get_mut(&node).into_iter().flatten() {
                        if bucket.counts.counts(op.direction()) {
                            assert!(!bucket.is_over(now, false), "{node} is over {:?} at {now:?}", bucket.counts);
                            bucket.add(now, bytes);
                        }
                    }
                }
            }
            for group in 0..5u16 {
                for direction in [Direction::Read, Direction::Write] {
                    let key = (group, direction == Direction::Read);
                    let blocked = path(group).iter().filter_map(|node| buckets.get(node)).flatten().any(|bucket| {
                        bucket.counts.counts(direction) && bucket.is_over(sim.now, true)
                    });
                    let since = *free_since.entry(key).or_insert(sim.now);
                    if blocked {
                        free_since.remove(&key);
                    } else {
                        let held: Vec<_> = sim.queue.ceilings().each().collect();
                        let waits = held.iter().any(|(id, held)| (*id, held.bio.op.direction()) == (GroupId(group), direction) && sim.now.since(since.max(held.since)) > ms(1));
                        assert!(!waits, "{group} waits for nothing at {:?}: {held:?}", sim.now);
                    }
                }
            }
        };
        for step in steps {
            match step {
                Step::Ask { stream, op, sectors, count } => {
                    (0..count).for_each(|_| sim.ask(streams[stream], op, sectors));
                    look(&mut sim);
                }
                Step::Wait(time) => {
                    let until = sim.now + time;
                    while let Some(due) = sim.queue.poll_timeout().filter(|due| *due < until) {
                        sim.now = due.max(sim.now + us(1));
                        look(&mut sim);
                    }
                    sim.now = until;
                    look(&mut sim);
                }
            }
        }
        sim.queue.ceilings().lift(sim.now);
        sim.turn();
        prop_assert!(sim.submitted.is_empty(), "all ends");
        prop_assert_eq!(sim.queue.load().held, 0);
    }
}
