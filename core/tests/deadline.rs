//! Deadline under random loads: the promises, and every answer against the dullest scheduler with the same rules.

use fairlift_core::sched::deadline::{Deadline, Settings};
use fairlift_core::sched::traits::*;
use fairlift_core::sched::{Next, RequestEnd, RequestId, Served, Side, Waiting};
use fairlift_core::time::ms;
use fairlift_core::{
    ContextId, Direction, Duration, Extent, Flags, GroupId, Instant, Op, Priority, PriorityClass, Sector, Stream,
    StreamId,
};
use proptest::prelude::*;

const CAPACITY: u32 = 32;
const STREAMS: u32 = 3;
/// The largest that the two tunables ever are here, so that the bound which follows from them holds throughout.
const BATCH_MAX: u32 = 4;
const STARVED_MAX: u32 = 3;

#[derive(Clone, Debug)]
enum Step {
    Insert { op: Op, start: u64, class: PriorityClass },
    Dispatch { times: u8 },
    Complete { nth: usize },
    TurnBack { nth: usize },
    Move { stream: u32, class: PriorityClass },
    Wait(Duration),
    Set(&'static str, u32),
}

fn step() -> impl Strategy<Value = Step> {
    use PriorityClass::{BestEffort, Idle, RealTime};
    let op = prop_oneof![4 => Just(Op::Read), 3 => Just(Op::Write), 1 => Just(Op::Discard)];
    let class = prop_oneof![1 => Just(RealTime), 6 => Just(BestEffort), 1 => Just(Idle)];
    let other = prop::sample::select(PriorityClass::ALL.to_vec());
    let knob = prop_oneof![
        (1..=BATCH_MAX).prop_map(|n| Step::Set("fifo_batch", n)),
        (1..=STARVED_MAX).prop_map(|n| Step::Set("writes_starved", n)),
        (0..100_u32).prop_map(|n| Step::Set("read_expire", n)),
        (0..300_u32).prop_map(|n| Step::Set("write_expire", n)),
        (100..400_u32).prop_map(|n| Step::Set("prio_aging_expire", n)),
        (0..2_u32).prop_map(|n| Step::Set("front_merges", n)),
        (0..6_u32).prop_map(|n| Step::Set("async_depth", n)),
    ];
    prop_oneof![
        // Few places, so that neighbours, equals and overlaps are common.
        24 => (op, 0..40_u64, class).prop_map(|(op, place, class)| Step::Insert { op, start: place * 4, class }),
        16 => (1..6_u8).prop_map(|times| Step::Dispatch { times }),
        12 => any::<usize>().prop_map(|nth| Step::Complete { nth }),
        2 => any::<usize>().prop_map(|nth| Step::TurnBack { nth }),
        2 => (0..STREAMS, other).prop_map(|(stream, class)| Step::Move { stream, class }),
        8 => (0..40_u64).prop_map(|n| Step::Wait(ms(n))),
        2 => knob,
    ]
}

/// A request as the model sees it.
#[derive(Clone, Debug)]
struct Entry {
    request: Waiting,
    arrived: Instant,
    /// The order of arrival among equals in sector order.
    turn: u64,
}

impl Entry {
    fn class(&self) -> PriorityClass {
        self.request.priority.class
    }

    fn direction(&self) -> Direction {
        self.request.op.direction()
    }

    fn start(&self) -> u64 {
        self.request.extent.start.0
    }
}

#[derive(Clone, Copy, Default)]
struct ClassModel {
    batch: Option<(Direction, u32)>,
    starved: u32,
    position: [u64; 2],
}

/// The rules of the scheduler over plain lists that are searched from end to end.
#[derive(Default)]
struct Model {
    settings: Settings,
    /// In the order of age.
    sorted: Vec<Entry>,
    /// The last one first.
    requeued: Vec<Entry>,
    out: Vec<Entry>,
    classes: [ClassModel; PriorityClass::COUNT],
}

impl Model {
    fn may_write(&self) -> bool {
        let writes = self.out.iter().filter(|e| e.direction() == Direction::Write).count();
        self.settings.async_depth == 0 || writes < self.settings.async_depth as usize
    }

    fn may_go(&self, entry: &Entry) -> bool {
        entry.direction() == Direction::Read || self.may_write()
    }

    fn highest(&self) -> Option<PriorityClass> {
        self.sorted.iter().chain(&self.requeued).chain(&self.out).map(Entry::class).min()
    }

    fn next(&mut self, now: Instant) -> Option<RequestId> {
        let highest = self.highest()?;
        if let Some(aged) = self.aged(now, highest) {
            return Some(aged);
        }
        if let Some(entry) = self.requeued.iter().find(|e| e.class() == highest) {
            return Some(entry.request.id);
        }
        let mut class = self.classes[highest as usize];
        let going_on = class.batch.filter(|&(_, served)| served < self.settings.fifo_batch);
        let entry = if let Some((direction, served, entry)) =
            going_on.and_then(|(d, n)| Some((d, n, self.ahead(highest, d)?)))
        {
            class.batch = Some((direction, served + 1));
            entry
        } else {
            let lane = |direction| self.lane(highest, direction).next();
            let (reads, writes) = (lane(Direction::Read), lane(Direction::Write));
            let direction = match (reads, writes) {
                (None, None) => return None,
                (Some(_), None) => Direction::Read,
                (Some(_), Some(_)) if class.starved < self.settings.writes_starved => {
                    class.starved += 1;
                    Direction::Read
                }
                _ => {
                    class.starved = 0;
                    Direction::Write
                }
            };
            class.batch = Some((direction, 1));
            let (oldest, expire) = match direction {
                Direction::Read => (reads?, self.settings.read_expire),
                Direction::Write => (writes?, self.settings.write_expire),
            };
            self.ahead(highest, direction).filter(|_| now.since(oldest.arrived) < expire).unwrap_or(oldest)
        };
        class.position[entry.direction() as usize] = entry.start();
        let id = entry.request.id;
        self.classes[highest as usize] = class;
        Some(id)
    }

    /// Those that may go, the oldest first.
    fn lane(&self, class: PriorityClass, direction: Direction) -> impl Iterator<Item = &Entry> + Clone {
        self.sorted.iter().filter(move |e| e.class() == class && e.direction() == direction && self.may_go(e))
    }

    fn ahead(&self, class: PriorityClass, direction: Direction) -> Option<&Entry> {
        let from = self.classes[class as usize].position[direction as usize];
        self.lane(class, direction).filter(|e| e.start() >= from).min_by_key(|e| (e.start(), e.turn))
    }

    fn candidate(&self, newcomer: &Waiting) -> Option<(RequestId, Side)> {
        let (class, direction) = (newcomer.priority.class, newcomer.op.direction());
        let mut kind: Vec<_> =
            self.sorted.iter().filter(|e| e.class() == class && e.direction() == direction).collect();
        kind.sort_by_key(|e| (e.start(), e.turn));
        let after = kind.partition_point(|e| e.request.extent.start < newcomer.extent.start);
        if let Some(before) = kind[..after].last().filter(|e| e.request.extent.end() == newcomer.extent.start) {
            return Some((before.request.id, Side::Back));
        }
        let after = kind.get(after).filter(|e| e.request.extent.start == newcomer.extent.end())?;
        self.settings.front_merges.then_some((after.request.id, Side::Front))
    }

    fn aged(&self, now: Instant, highest: PriorityClass) -> Option<RequestId> {
        // Of those turned back, each class has its last one looked at.
        let first = |class| self.requeued.iter().find(move |e| e.class() == class);
        let lower = PriorityClass::ALL.into_iter().filter(|&class| class > highest);
        let entries = lower.flat_map(|class| {
            let of = |direction| self.lane(class, direction).next();
            [first(class), of(Direction::Read), of(Direction::Write)]
        });
        let oldest = entries.flatten().min_by_key(|e| e.arrived)?;
        (now.since(oldest.arrived) >= self.settings.prio_aging_expire).then_some(oldest.request.id)
    }

    fn take(&mut self, id: RequestId) -> Entry {
        let here = |e: &Entry| e.request.id == id;
        let entry = match self.sorted.iter().position(here) {
            Some(at) => self.sorted.remove(at),
            None => self.requeued.remove(self.requeued.iter().position(here).expect("it waits")),
        };
        self.out.push(entry.clone());
        entry
    }

    fn sorted_mut(&mut self, id: RequestId) -> &mut Entry {
        self.sorted.iter_mut().find(|e| e.request.id == id).expect("it waits in sector order")
    }
}

/// The scheduler, the model, and what the promises are measured with.
struct Run {
    real: Deadline,
    model: Model,
    now: Instant,
    turn: u64,
    free: Vec<RequestId>,
    /// By class and direction: the oldest request once expired, and how many of its class have gone since by rule.
    passed_over: [[Option<(RequestId, u32)>; 2]; PriorityClass::COUNT],
}

impl Run {
    fn new() -> Self {
        let settings = Settings { fifo_batch: BATCH_MAX, prio_aging_expire: ms(300), ..Settings::default() };
        Self {
            real: Deadline::new(CAPACITY as usize, settings.clone()),
            model: Model { settings, ..Model::default() },
            now: Instant::ZERO,
            turn: 0,
            free: (0..CAPACITY).rev().map(RequestId).collect(),
            passed_over: Default::default(),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Insert { op, start, class } => self.insert(op, start, class)?,
            Step::Dispatch { times } => {
                for _ in 0..times {
                    self.dispatch()?;
                }
            }
            Step::Complete { nth } => {
                if let Some(entry) = self.pick_out(nth) {
                    self.free.push(entry.request.id);
                    self.real.completed(
                        self.now,
                        &Served { request: entry.request, dispatched: self.now, end: RequestEnd::Done },
                    );
                }
            }
            Step::TurnBack { nth } => {
                if let Some(entry) = self.pick_out(nth) {
                    self.real.requeue(self.now, &entry.request);
                    self.model.requeued.insert(0, entry);
                }
            }
            Step::Move { stream, class } => self.change(StreamId(stream), class),
            Step::Wait(time) => self.now += time,
            Step::Set(name, value) => {
                self.real.set(name, &value.to_string()).unwrap();
                let s = &mut self.model.settings;
                match name {
                    "fifo_batch" => s.fifo_batch = value,
                    "writes_starved" => s.writes_starved = value,
                    "read_expire" => s.read_expire = ms(value.into()),
                    "write_expire" => s.write_expire = ms(value.into()),
                    "prio_aging_expire" => s.prio_aging_expire = ms(value.into()),
                    "front_merges" => s.front_merges = value == 1,
                    "async_depth" => s.async_depth = value,
                    _ => unreachable!("{name}"),
                }
            }
        }
        prop_assert_eq!(self.real.len(), self.model.sorted.len() + self.model.requeued.len());
        Ok(())
    }

    fn pick_out(&mut self, nth: usize) -> Option<Entry> {
        let out = &mut self.model.out;
        (!out.is_empty()).then(|| out.swap_remove(nth % out.len()))
    }

    /// A stream is of another class now, and what waits of it too.
    fn change(&mut self, id: StreamId, class: PriorityClass) {
        let priority = Priority { class, level: 0 };
        let stream = Stream { group: GroupId::ROOT, priority, context: ContextId(0) };
        self.real.change_stream(self.now, id, &stream);
        let moves = |entry: &Entry| entry.request.stream == id && entry.class() != class;
        // By the class and direction they come from, the oldest first.
        for from in PriorityClass::ALL {
            for direction in [Direction::Read, Direction::Write] {
                let list = &mut self.model.sorted;
                let of = |e: &Entry| moves(e) && e.class() == from && e.direction() == direction;
                while let Some(at) = list.iter().position(of) {
                    let mut entry = list.remove(at);
                    entry.request.priority = priority;
                    self.turn += 1;
                    entry.turn = self.turn;
                    let after = list.iter().position(|e| e.arrived > entry.arrived).unwrap_or(list.len());
                    list.insert(after, entry);
                }
            }
            let list = &mut self.model.requeued;
            while let Some(at) = list.iter().position(|e| moves(e) && e.class() == from) {
                let mut entry = list.remove(at);
                entry.request.priority = priority;
                list.push(entry);
            }
        }
    }

    /// Merges as the queue does, or inserts.
    fn insert(&mut self, op: Op, start: u64, class: PriorityClass) -> Result<(), TestCaseError> {
        let Some(id) = self.free.pop() else { return Ok(()) };
        self.turn += 1;
        let newcomer = Waiting {
            id,
            op,
            flags: Flags::NONE,
            extent: Extent::new(Sector(start), 4),
            stream: StreamId((start / 4) as u32 % STREAMS),
            group: GroupId::ROOT,
            priority: Priority { class, level: 0 },
        };
        let candidate = self.real.merge_candidate(&newcomer);
        prop_assert_eq!(candidate, self.model.candidate(&newcomer));
        let Some((host, side)) = candidate else {
            self.real.insert(self.now, &newcomer);
            self.model.sorted.push(Entry { request: newcomer, arrived: self.now, turn: self.turn });
            return Ok(());
        };
        self.free.push(id);
        let (turn, front_merges) = (self.turn, self.model.settings.front_merges);
        let entry = self.model.sorted_mut(host);
        prop_assert_eq!((entry.class(), entry.direction()), (class, op.direction()));
        match side {
            Side::Back => prop_assert_eq!(entry.request.extent.end(), newcomer.extent.start),
            Side::Front => {
                prop_assert!(front_merges);
                prop_assert_eq!(newcomer.extent.end(), entry.request.extent.start);
                entry.request.extent.start = newcomer.extent.start;
                entry.turn = turn;
            }
        }
        entry.request.extent.sectors += 4;
        let mut kept = entry.clone();
        self.real.grown(&kept.request, side);
        if let Some(gone) = self.real.neighbour_after(&kept.request).filter(|_| side == Side::Back) {
            let at = |id| self.model.sorted.iter().position(|e| e.request.id == id).expect("it waits in sector order");
            let (kept_at, gone_at) = (at(kept.request.id), at(gone));
            let other = self.model.sorted[gone_at].clone();
            prop_assert_eq!((other.class(), other.direction()), (kept.class(), kept.direction()));
            prop_assert_eq!(other.request.extent.start, kept.request.extent.end());
            kept.request.extent.sectors += other.request.extent.sectors;
            let older = other.arrived < kept.arrived;
            kept.arrived = kept.arrived.min(other.arrived);
            self.real.absorbed(&kept.request, gone);
            self.model.sorted[if older { gone_at } else { kept_at }] = kept;
            self.model.sorted.remove(if older { kept_at } else { gone_at });
            self.free.push(gone);
        }
        Ok(())
    }

    fn dispatch(&mut self) -> Result<bool, TestCaseError> {
        self.note_expired();
        let highest = self.model.highest();
        let expected = self.model.next(self.now);
        let next = self.real.dispatch(self.now);
        prop_assert_eq!(next, expected.map_or(Next::Empty, Next::Request));
        let Some(id) = expected else {
            let again = self.real.next_timeout();
            prop_assert!(again.is_none_or(|at| at > self.now), "asked again at {:?}, though nothing goes", again);
            return Ok(false);
        };
        let requeued = self.model.requeued.iter().any(|e| e.request.id == id);
        let entry = self.model.take(id);
        for head in self.passed_over.iter_mut().flatten() {
            head.take_if(|(oldest, _)| *oldest == id);
        }
        // What had aged and what was turned back goes outside batches.
        if Some(entry.class()) == highest && !requeued {
            for (_, passed) in self.passed_over[entry.class() as usize].iter_mut().flatten() {
                *passed += 1;
                let bound = (STARVED_MAX + 1) * BATCH_MAX;
                prop_assert!(*passed < bound, "an expired request is passed over {} times", *passed);
            }
        }
        Ok(true)
    }

    /// Starts the count for the oldest of each class and direction that has expired, and may go.
    fn note_expired(&mut self) {
        for class in PriorityClass::ALL {
            for (direction, expire) in [
                (Direction::Read, self.model.settings.read_expire),
                (Direction::Write, self.model.settings.write_expire),
            ] {
                let mut lane = self.model.sorted.iter().filter(|e| e.class() == class && e.direction() == direction);
                let head = lane.next().filter(|e| self.now.since(e.arrived) >= expire && self.model.may_go(e));
                let noted = &mut self.passed_over[class as usize][direction as usize];
                *noted = head.map(|head| {
                    let id = head.request.id;
                    noted.filter(|(oldest, _)| *oldest == id).unwrap_or((id, 0))
                });
            }
        }
    }
}

fairlift_lab::proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Every answer is the model's; the oldest of a direction is passed over less often than promised once its deadline
    /// has come; and when the load ends, everything goes, once.
    #[test]
    fn it_answers_as_the_rules_say_and_loses_nothing(steps in prop::collection::vec(step(), 1..400)) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step)?;
        }
        while !run.real.is_empty() {
            let went = run.dispatch()?;
            // At the device is nothing that could not complete: if nothing goes, something must be there.
            prop_assert!(went || !run.model.out.is_empty(), "{} wait, and nothing goes", run.real.len());
            run.step(&Step::Complete { nth: 0 })?;
        }
        prop_assert!(run.model.sorted.is_empty() && run.model.requeued.is_empty());
    }

    /// However the highest class floods, a request of a lower one goes once it has aged: at once, but for older ones.
    #[test]
    fn a_lower_class_waits_for_its_age_and_for_older_ones_only(
        lower in prop::collection::vec((0..40_u64, any::<bool>(), any::<bool>()), 1..8),
        flood in prop::collection::vec(0..40_u64, 200),
    ) {
        let mut run = Run::new();
        let age = ms(300);
        for &(place, write, idle) in &lower {
            let class = if idle { PriorityClass::Idle } else { PriorityClass::BestEffort };
            run.insert(if write { Op::Write } else { Op::Read }, place * 4, class)?;
            run.now += ms(1);
        }
        let mut by_age: Vec<Entry> = run.model.sorted.clone();
        by_age.sort_by_key(|e| e.arrived);
        let mut expected = by_age.into_iter();
        for place in flood {
            run.insert(Op::Read, place * 4, PriorityClass::RealTime)?;
            run.dispatch()?;
            let entry = run.model.out.pop().expect("something went");
            run.real.completed(run.now, &Served { request: entry.request, dispatched: run.now, end: RequestEnd::Done });
            run.free.push(entry.request.id);
            if entry.class() != PriorityClass::RealTime {
                let next = expected.next().expect("a lower one for each that goes");
                prop_assert_eq!(entry.request.id, next.request.id);
                let lateness = run.now.since(next.arrived + age);
                prop_assert!(lateness <= ms(lower.len() as u64 * 2), "{} after it has aged", lateness);
            }
            run.now += ms(2);
        }
        prop_assert!(expected.next().is_none(), "all have gone");
    }
}
