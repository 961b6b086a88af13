//! BFQ merges and parts queues while streams come, go and change: nothing is lost, and nobody waits for ever.

use fairlift_core::sched::traits::*;
use fairlift_core::sched::{Kind, Next, RequestEnd, RequestId, Served, Setup, Waiting};
use fairlift_core::time::{ms, us};
use fairlift_core::*;
use proptest::prelude::*;

const STREAMS: u32 = 6;
const GROUPS: u16 = 3;
const CAPACITY: usize = 24;
/// What the device takes at once: more than four, so it works on several.
const DEPTH: u16 = 8;

/// What happens next; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    /// A stream reads the next block of its own, of those that all read in turns, or anywhere.
    Ask(u8, Place),
    /// So many are sent as long as there is something to send.
    Dispatch(u8),
    End(u8),
    TurnBack(u8),
    /// A stream that has nothing waiting or in flight goes, and another comes for it.
    Replace(u8, u8),
    /// A stream goes to a group, with a level.
    Change(u8, u8, u8),
    Merging(u8),
    Wait(u16),
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Own,
    InTurns,
    Anywhere(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let place = prop_oneof![
        2 => Just(Place::Own),
        6 => Just(Place::InTurns),
        2 => any::<u32>().prop_map(Place::Anywhere),
    ];
    prop_oneof![
        12 => (any::<u8>(), place).prop_map(|(stream, place)| Step::Ask(stream, place)),
        6 => (1_u8..6).prop_map(Step::Dispatch),
        8 => any::<u8>().prop_map(Step::End),
        1 => any::<u8>().prop_map(Step::TurnBack),
        1 => any::<(u8, u8)>().prop_map(|(stream, group)| Step::Replace(stream, group)),
        1 => any::<(u8, u8, u8)>().prop_map(|(stream, group, level)| Step::Change(stream, group, level)),
        1 => (0_u8..3).prop_map(Step::Merging),
        2 => (1_u16..20_000).prop_map(Step::Wait),
    ]
}

struct Run {
    scheduler: Box<dyn Scheduler>,
    now: Instant,
    streams: Vec<Stream>,
    /// By request: what waits, and what is in flight.
    waiting: Vec<Option<Waiting>>,
    in_flight: Vec<(Waiting, Instant)>,
    /// Where each stream is, and where all are that read in turns.
    own: Vec<u64>,
    in_turns: u64,
}

fn stream(group: u16, level: u8) -> Stream {
    let priority = Priority { level: level % 8, ..Priority::default() };
    Stream { group: GroupId(group % GROUPS), priority, context: ContextId(0) }
}

impl Run {
    fn new(rotational: bool) -> Self {
        let group =
            |path: &str, weight| Group { path: path.into(), parent: Some(GroupId::ROOT), weight: Weight::new(weight) };
        let groups = [Group::root(), group("/a", 100), group("/b", 300)];
        let character = fairlift_core::model::Character { rotational, volatile_cache: false };
        let setup = Setup { depth: DEPTH, groups: &groups, character, ..Setup::new(CAPACITY) };
        let mut scheduler = Kind::Bfq.build(&setup);
        let streams: Vec<Stream> = (0..STREAMS).map(|id| stream((id / 3) as u16, 4)).collect();
        for (id, stream) in (0..).zip(&streams) {
            scheduler.add_stream(StreamId(id), stream);
        }
        let own = (0..u64::from(STREAMS)).map(|id| id << 24).collect();
        let waiting = vec![None; CAPACITY];
        let now = Instant::ZERO + ms(1);
        Self { scheduler, now, streams, waiting, in_flight: Vec::new(), own, in_turns: 1 << 30 }
    }

    fn ask(&mut self, id: u32, place: Place) {
        let free = |id: usize| self.waiting[id].is_none() && !self.in_flight.iter().any(|(w, _)| w.id.0 as usize == id);
        let Some(slot) = (0..CAPACITY).find(|&id| free(id)) else { return };
        let start = match place {
            Place::Own => {
                self.own[id as usize] += 8;
                self.own[id as usize]
            }
            Place::InTurns => {
                self.in_turns += 8;
                self.in_turns
            }
            Place::Anywhere(at) => u64::from(at) * 8,
        };
        let Stream { group, priority, .. } = self.streams[id as usize];
        let (id, stream) = (RequestId(slot as u32), StreamId(id));
        let extent = Extent::new(Sector(start), 8);
        let waiting = Waiting { id, op: Op::Read, flags: Flags::NONE, extent, stream, group, priority };
        self.scheduler.insert(self.now, &waiting);
        self.waiting[slot] = Some(waiting);
    }

    /// Answers whether something was sent.
    fn dispatch(&mut self) -> bool {
        for _ in 0..2 {
            match self.scheduler.dispatch(self.now) {
                Next::Request(id) => {
                    let waiting = self.waiting[id.0 as usize].take().expect("only what waits is sent, and once");
                    self.in_flight.push((waiting, self.now));
                    return true;
                }
                Next::Empty => return false,
                Next::Idle { until } => {
                    assert!(until > self.now, "held until now");
                    assert!(until <= self.now + ms(134), "held for longer than a turn and a pause");
                    self.now = until;
                }
            }
        }
        false
    }

    fn end(&mut self, which: usize) {
        if !self.in_flight.is_empty() {
            let (request, dispatched) = self.in_flight.swap_remove(which % self.in_flight.len());
            self.now += us(200);
            self.scheduler.completed(self.now, &Served { request, dispatched, end: RequestEnd::Done });
        }
    }

    fn is_quiet(&self, id: u32) -> bool {
        let mut all = self.waiting.iter().flatten().chain(self.in_flight.iter().map(|(waiting, _)| waiting));
        all.all(|waiting| waiting.stream.0 != id)
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Ask(id, place) => self.ask(u32::from(id) % STREAMS, place),
            Step::Dispatch(times) => drop((0..times).take_while(|_| self.dispatch()).count()),
            Step::End(which) => self.end(which.into()),
            Step::TurnBack(which) => {
                if !self.in_flight.is_empty() {
                    let (request, _) = self.in_flight.swap_remove(usize::from(which) % self.in_flight.len());
                    self.scheduler.requeue(self.now, &request);
                    self.waiting[request.id.0 as usize] = Some(request);
                }
            }
            Step::Replace(id, group) => {
                let id = u32::from(id) % STREAMS;
                if self.is_quiet(id) {
                    self.scheduler.remove_stream(StreamId(id));
                    self.streams[id as usize] = stream(group.into(), 4);
                    self.scheduler.add_stream(StreamId(id), &self.streams[id as usize]);
                }
            }
            Step::Change(id, group, level) => {
                let id = u32::from(id) % STREAMS;
                let to = stream(group.into(), level / 32);
                self.streams[id as usize] = to;
                self.scheduler.change_stream(self.now, StreamId(id), &to);
                for waiting in self.waiting.iter_mut().flatten().filter(|waiting| waiting.stream.0 == id) {
                    (waiting.group, waiting.priority) = (to.group, to.priority);
                }
            }
            Step::Merging(how) => {
                let how = ["auto", "on", "off"][usize::from(how)];
                self.scheduler.set("queue_merging", how).expect("there is such a tunable");
            }
            Step::Wait(micros) => self.now += us(micros.into()),
        }
        assert_eq!(self.scheduler.len(), self.waiting.iter().flatten().count());
    }

    /// Everything is served that waits.
    fn finish(&mut self) {
        for _ in 0..4 * CAPACITY {
            while self.dispatch() {}
            self.end(0);
        }
        assert!(self.scheduler.is_empty() && self.in_flight.is_empty(), "{:?} wait", self.waiting);
        for id in 0..STREAMS {
            self.scheduler.remove_stream(StreamId(id));
        }
        for group in 1..GROUPS {
            self.scheduler.remove_group(self.now, GroupId(group));
        }
    }

    fn counter(&self, wanted: &str) -> u64 {
        let mut sum = 0;
        self.scheduler.counters(&mut |name, count| sum += if name == wanted { count } else { 0 });
        sum
    }
}

fairlift_lab::proptest! {
    #[test]
    fn nothing_is_lost_while_queues_are_merged_and_parted(
        rotational in any::<bool>(),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut run = Run::new(rotational);
        for step in &steps {
            run.step(step);
        }
        run.finish();
    }
}

/// So many rounds in which each of four streams reads the next block, one after the other.
fn read_in_turns(run: &mut Run, rounds: u32) {
    for _ in 0..rounds {
        for id in 0..3 {
            run.ask(id, Place::InTurns);
        }
        while run.dispatch() {}
        for _ in 0..3 {
            run.end(0);
        }
        while run.dispatch() {}
    }
    run.finish_what_waits();
}

impl Run {
    fn finish_what_waits(&mut self) {
        for _ in 0..4 * CAPACITY {
            while self.dispatch() {}
            self.end(0);
        }
    }
}

#[test]
fn streams_that_read_in_turns_share_a_queue_on_a_disk_that_rotates() {
    let mut run = Run::new(true);
    read_in_turns(&mut run, 50);
    assert_eq!(run.counter("queue_merges"), 2, "two join the third");
    assert!(run.counter("position_tree_ops") > 100);
}

#[test]
fn nobody_gets_the_weight_of_another() {
    for (group, level) in [(0, 3), (1, 4)] {
        let mut run = Run::new(true);
        for id in 1..3 {
            run.streams[id as usize] = stream(group, level);
            run.scheduler.change_stream(run.now, StreamId(id), &stream(group, level));
        }
        read_in_turns(&mut run, 50);
        assert_eq!(run.counter("queue_merges"), 1, "the two that are alike");
    }
}

#[test]
fn streams_that_go_their_own_ways_are_parted_and_stay_so() {
    let mut run = Run::new(true);
    read_in_turns(&mut run, 10);
    assert_eq!((run.counter("queue_merges"), run.counter("queue_splits")), (2, 0));
    // From now on each seeks, within 4 MiB of the others.
    for turn in 0..5000_u32 {
        run.ask(turn % 3, Place::Anywhere((1 << 27) + turn * 419 % 1000));
        run.finish_what_waits();
    }
    assert_eq!((run.counter("queue_merges"), run.counter("queue_splits")), (2, 2));
}

#[test]
fn where_merging_is_useless_none_of_its_bookkeeping_runs() {
    let mut run = Run::new(false);
    read_in_turns(&mut run, 50);
    assert_eq!((run.counter("position_tree_ops"), run.counter("queue_merges")), (0, 0));
}

#[test]
fn merging_follows_what_the_device_takes_at_once_in_both_directions() {
    let mut run = Run::new(false);
    for (depth, is_on) in [(DEPTH, false), (1, true), (4, true), (5, false)] {
        run.scheduler.resize(CAPACITY, depth);
        let ops = run.counter("position_tree_ops");
        read_in_turns(&mut run, 10);
        assert_eq!(run.counter("position_tree_ops") > ops, is_on, "one that takes {depth}");
    }
}

#[test]
fn merging_is_switched_on_and_off_with_requests_waiting() {
    let mut run = Run::new(false);
    run.step(&Step::Merging(1));
    for id in 0..3 {
        run.ask(id, Place::InTurns);
        run.ask(id, Place::InTurns);
    }
    assert_eq!(run.counter("queue_merges"), 2);
    run.step(&Step::Merging(2));
    let ops = run.counter("position_tree_ops");
    run.ask(0, Place::InTurns);
    assert_eq!((run.counter("position_tree_ops"), run.counter("queue_merges")), (ops, 2));
    run.step(&Step::Merging(1));
    assert!(run.counter("position_tree_ops") > ops, "what waits is found again");
    run.ask(1, Place::InTurns);
    assert_eq!(run.counter("queue_merges"), 3);
    run.finish();
}

#[test]
fn a_shared_queue_outlives_the_stream_whose_it_was() {
    let mut run = Run::new(true);
    run.step(&Step::Merging(1));
    run.ask(2, Place::InTurns);
    run.ask(0, Place::InTurns);
    run.ask(1, Place::InTurns);
    run.finish_what_waits();
    // All three use 2's queue; it goes, and its number comes back.
    for _ in 0..3 {
        run.step(&Step::Replace(2, 0));
        run.ask(0, Place::InTurns);
        run.ask(1, Place::InTurns);
        run.ask(2, Place::InTurns);
        run.finish_what_waits();
    }
    run.finish();
}
