//! Streams and groups that come, change and go: the queue's rules queue.8 to queue.12, one scenario each, and all of them under
//! random commands with every scheduler, held to what a dull model counts and a witness is told.

mod witness;

use std::collections::BTreeMap;

use fairlift_core::queue::Settings;
use fairlift_core::sched::{self, Kind};
use fairlift_core::stats::Stats;
use fairlift_core::time::{ms, us};
use fairlift_core::*;
use fairlift_lab::Random;
use proptest::prelude::*;
use witness::{EventLog, Witness, news};

const C0: ContextId = ContextId(0);
const IDLE: Priority = Priority { class: PriorityClass::Idle, level: 4 };

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

fn group(path: &str, parent: GroupId) -> Group {
    Group { path: path.into(), parent: Some(parent), weight: Weight::new(100) }
}

fn stream(group: GroupId) -> Stream {
    Stream { group, priority: Priority::default(), context: C0 }
}

fn read(stream: StreamId, start: u64, token: u64) -> Bio {
    let extent = Extent::new(Sector(start), 8);
    Bio { op: Op::Read, flags: Flags::NONE, extent, stream, token: Token(token) }
}

/// A queue with groups `/` (0), `/a` (1) and `/b` (2), whose scheduler tells what it was told.
fn queue(kind: Kind, depth: u16) -> (Queue, EventLog) {
    let settings = Settings {
        depth,
        nr_requests: 16.max(u32::from(depth)),
        groups: vec![Group::root(), group("/a", GroupId::ROOT), group("/b", GroupId::ROOT)],
        ..Settings::new(kind, Limits::new(1_000_000))
    };
    let mut queue = Queue::new(settings);
    let log = switch(&mut queue, at(0), kind);
    news(&log);
    (queue, log)
}

fn add_group(queue: &mut Queue, now: Instant, group: Group) -> GroupId {
    let id = queue.groups().free();
    queue.add_group(now, id, group);
    id
}

fn switch(queue: &mut Queue, now: Instant, kind: Kind) -> EventLog {
    let log = EventLog::default();
    let groups = &queue.settings().groups[..1];
    let setup = sched::Setup { groups, ..queue.settings().setup() };
    let witness = Witness::new(kind, &setup, &log);
    queue.take_over(now, kind, Box::new(witness));
    log
}

fn starts(queue: &mut Queue, now: Instant) -> Vec<(u64, Tag)> {
    std::iter::from_fn(|| queue.poll_dispatch(now, C0)).map(|d| (d.extent.start.0, d.tag)).collect()
}

fn ops(stats: &Stats) -> u64 {
    Op::ALL.iter().map(|op| stats.of(*op).ops).sum()
}

const A: GroupId = GroupId(1);
const B: GroupId = GroupId(2);

/// queue.8: what waits is in the plug, in the scheduler, among the flushes, or the rest of a bio that was cut.
#[test]
fn what_waits_of_a_stream_moves_with_it_wherever_it_waits() {
    let mut settings = Settings::new(Kind::None, Limits { discard_max: 8, ..Limits::new(1_000_000) });
    settings.groups = vec![Group::root(), group("/a", GroupId::ROOT), group("/b", GroupId::ROOT)];
    (settings.depth, settings.nr_requests) = (1, 6);
    let mut queue = Queue::new(settings);
    switch(&mut queue, at(0), Kind::None);
    queue.keep_trace(100);
    let s = queue.add_stream(stream(A));
    queue.submit(at(0), read(s, 0, 0)).unwrap();
    queue.submit(at(0), read(s, 100, 1)).unwrap();
    let out = starts(&mut queue, at(0));
    assert_eq!(out.len(), 1, "the other waits in the scheduler");
    let flush = Bio { op: Op::Flush, extent: Extent::NONE, ..read(s, 0, 2) };
    queue.submit(at(0), flush).unwrap();
    let discard = Bio { op: Op::Discard, extent: Extent::new(Sector(1000), 8 * 5), ..read(s, 0, 3) };
    queue.submit(at(0), discard).unwrap();
    queue.change_stream(at(1), s, stream(B));
    while queue.trace().pop().is_some() {}
    queue.handle_completion(at(2), out[0].1, Outcome::Done);
    while let Some(next) = queue.poll_dispatch(at(2), C0) {
        queue.handle_completion(at(2), next.tag, Outcome::Done);
    }
    let events: Vec<_> = std::iter::from_fn(|| queue.trace().pop()).filter_map(trace::Item::event).collect();
    let group_of = |action| events.iter().filter(|e| e.action == action).map(|e| e.group).collect::<Vec<_>>();
    assert_eq!(group_of(trace::Action::Dispatched), [B; 7], "a flush, a read and five discards");
    assert_eq!(group_of(trace::Action::Completed)[..2], [A, B], "what was in flight ends where it was charged");
}

/// queue.9
#[test]
fn a_request_in_flight_ends_in_the_group_that_its_stream_has_left() {
    for kind in Kind::ALL {
        let (mut queue, log) = queue(kind, 4);
        let s = queue.add_stream(stream(A));
        queue.submit(at(0), read(s, 0, 1)).unwrap();
        let out = starts(&mut queue, at(0));
        queue.change_stream(at(1), s, stream(B));
        queue.handle_completion(at(2), out[0].1, Outcome::Done);
        assert_eq!(news(&log), ["stream 0 in group 2", "request of stream 0 in group 1 done"], "{}", kind.name());
    }
}

/// queue.9
#[test]
fn what_the_device_turns_back_after_a_move_waits_in_the_new_group() {
    for kind in Kind::ALL {
        let (mut queue, log) = queue(kind, 4);
        let s = queue.add_stream(stream(A));
        queue.submit(at(0), read(s, 0, 1)).unwrap();
        let out = starts(&mut queue, at(0));
        queue.change_stream(at(1), s, Stream { priority: IDLE, ..stream(B) });
        queue.handle_busy(at(2), out[0].1);
        let again = starts(&mut queue, at(100));
        queue.handle_completion(at(101), again[0].1, Outcome::Done);
        let ends = ["request of stream 0 in group 1 failed", "request of stream 0 in group 2 done"];
        assert_eq!(news(&log)[1..], ends, "{}", kind.name());
        assert_eq!(queue.poll_finished(C0), Some(Finished::Done(Token(1), Outcome::Done)));
    }
}

/// queue.10
#[test]
fn what_ended_before_a_move_counts_for_the_group_of_then() {
    let (mut queue, _) = queue(Kind::None, 1);
    let s = queue.add_stream(stream(A));
    for token in 0..5 {
        queue.submit(at(0), read(s, token * 100, token)).unwrap();
        if token == 3 {
            queue.change_stream(at(0), s, stream(B));
        }
        let out = starts(&mut queue, at(0));
        queue.handle_completion(at(1), out[0].1, Outcome::Done);
    }
    let done = |queue: &Queue| [A, B].map(|group| queue.groups().stats_of(group).of(Op::Read).ops);
    assert_eq!(done(&queue), [3, 2]);
    assert_eq!(queue.groups().stream(s).stats().of(Op::Read).ops, 5, "the stream did all of it");
    queue.change_stream(at(2), s, stream(A));
    assert_eq!(done(&queue), [3, 2], "and it takes nothing along when it goes back");
    queue.remove_stream(s);
    assert_eq!(done(&queue), [3, 2]);
    assert_eq!(queue.groups().stats().latency(Op::Read).unwrap().len(), 5);
}

/// queue.11
#[test]
fn a_group_that_someone_is_in_is_not_removed_and_the_error_says_who() {
    let (mut queue, log) = queue(Kind::None, 1);
    let streams = [(); 2].map(|()| queue.add_stream(stream(A)));
    let below = add_group(&mut queue, at(0), group("/a/x", A));
    add_group(&mut queue, at(0), group("/a/y", A));
    let says = |queue: &mut Queue, id| queue.remove_group(at(0), id).unwrap_err().to_string();
    assert_eq!(
        says(&mut queue, A),
        "group /a is not removed: 2 streams are in it, and /a/x, /a/y are below it; only an empty group can go"
    );
    queue.remove_group(at(0), below).unwrap();
    queue.change_stream(at(0), streams[0], stream(B));
    assert_eq!(
        says(&mut queue, A),
        "group /a is not removed: 1 stream is in it, and /a/y is below it; only an empty group can go"
    );
    assert_eq!(says(&mut queue, B), "group /b is not removed: 1 stream is in it; only an empty group can go");
    assert_eq!(says(&mut queue, GroupId::ROOT), "group / is not removed: the root is always there");
    let groups = ["group /a/x of weight 100", "group /a/y of weight 100", "group /a/x gone", "stream 0 in group 2"];
    assert_eq!(news(&log), groups);
}

/// queue.11
#[test]
fn a_removed_group_goes_when_its_last_request_has_ended_and_its_number_comes_back_then() {
    let (mut queue, log) = queue(Kind::MqDeadline, 4);
    let s = queue.add_stream(stream(A));
    for (token, start) in [(1, 0), (2, 100)] {
        queue.submit(at(0), read(s, start, token)).unwrap();
    }
    let out = starts(&mut queue, at(0));
    queue.change_stream(at(1), s, stream(B));
    queue.remove_group(at(1), A).unwrap();
    assert_eq!(queue.groups().iter().map(|(id, _)| id).collect::<Vec<_>>(), [GroupId::ROOT, B]);
    assert_eq!(add_group(&mut queue, at(1), group("/c", B)), GroupId(3), "its number is not free yet");
    queue.handle_completion(at(2), out[0].1, Outcome::Done);
    news(&log);
    queue.handle_busy(at(3), out[1].1);
    assert_eq!(news(&log), ["request of stream 0 in group 1 failed", "group /a gone"]);
    assert_eq!(add_group(&mut queue, at(4), group("/c/d", GroupId(3))), A, "now it is");
    assert_eq!(queue.groups().stats_of(A).of(Op::Read).ops, 0, "what another did is not the new group's");
    assert_eq!(queue.groups().stats().of(Op::Read).ops, 1);
}

/// queue.11
#[test]
fn a_removed_group_waits_for_the_removed_ones_below_it() {
    let (mut queue, log) = queue(Kind::None, 4);
    let below = add_group(&mut queue, at(0), group("/a/x", A));
    let s = queue.add_stream(stream(below));
    queue.submit(at(0), read(s, 0, 1)).unwrap();
    let out = starts(&mut queue, at(0));
    queue.change_stream(at(1), s, stream(B));
    queue.remove_group(at(1), below).unwrap();
    queue.remove_group(at(1), A).unwrap();
    news(&log);
    queue.handle_completion(at(2), out[0].1, Outcome::Done);
    assert_eq!(news(&log)[1..], ["group /a/x gone", "group /a gone"]);
}

/// queue.11: under bfq two streams share the queue of one of them, which moves and goes while the device has a request of the other.
#[test]
fn a_group_can_go_whose_last_stream_has_shared_its_queue() {
    let settings = Settings {
        depth: 4,
        nr_requests: 16,
        groups: vec![Group::root(), group("/a", GroupId::ROOT), group("/b", GroupId::ROOT)],
        ..Settings::new(Kind::Bfq, Limits::new(1_000_000))
    };
    let mut queue = Queue::new(settings);
    let (host, guest) = (queue.add_stream(stream(A)), queue.add_stream(stream(A)));
    for (token, from) in [(1, host), (2, guest), (3, host), (4, guest)] {
        queue.submit(at(token), read(from, token * 100, token)).unwrap();
        let out = starts(&mut queue, at(token));
        if token < 4 {
            out.into_iter().for_each(|(_, tag)| queue.handle_completion(at(token), tag, Outcome::Done));
        } else {
            let mut merges = 0;
            queue.counters(&mut |name, count| merges += if name == "queue_merges" { count } else { 0 });
            assert_eq!((out.len(), merges), (1, 1));
            queue.change_stream(at(5), host, stream(B));
            queue.remove_stream(host);
            queue.remove_group(at(5), B).unwrap();
            queue.handle_completion(at(6), out[0].1, Outcome::Done);
        }
    }
    queue.remove_stream(guest);
    queue.remove_group(at(7), A).unwrap();
}

/// queue.12: parents first, though the number of a child may be the smaller one; and those that leave until they have left.
#[test]
fn a_scheduler_that_takes_over_sees_the_groups_and_streams_that_there_are() {
    let (mut queue, _) = queue(Kind::None, 4);
    let s = queue.add_stream(stream(A));
    queue.submit(at(0), read(s, 0, 1)).unwrap();
    let out = starts(&mut queue, at(0));
    queue.remove_group(at(0), B).unwrap();
    let c = add_group(&mut queue, at(0), group("/c", GroupId::ROOT));
    assert_eq!(c, B);
    let high = add_group(&mut queue, at(0), group("/d", GroupId::ROOT));
    queue.remove_group(at(0), c).unwrap();
    let low = add_group(&mut queue, at(0), group("/d/e", high));
    assert!(low < high);
    queue.set_weight(at(0), high, Weight::new(300));
    queue.change_stream(at(0), s, Stream { priority: IDLE, ..stream(low) });
    queue.remove_group(at(0), A).unwrap();

    let log = switch(&mut queue, at(1), Kind::MqDeadline);
    let groups = ["group /a of weight 100", "group /d of weight 300", "group /d/e of weight 100"];
    assert_eq!(news(&log), groups);
    assert_eq!(queue.groups().stream(s).stream().group, low);
    queue.handle_completion(at(2), out[0].1, Outcome::Done);
    assert_eq!(news(&log), ["group /a gone"], "and not of what the scheduler before it had dispatched");
}

/// queue.12
#[test]
fn a_scheduler_hears_of_no_end_that_another_began() {
    for kind in Kind::ALL {
        let (mut queue, first) = queue(kind, 8);
        let s = queue.add_stream(stream(A));
        let submit = |queue: &mut Queue, token: u64| queue.submit(at(0), read(s, token * 100, token)).unwrap();
        (0..3).for_each(|token| submit(&mut queue, token));
        let mut old = starts(&mut queue, at(0));
        // It may hold some back; those go over.
        let second = switch(&mut queue, at(1), kind);
        submit(&mut queue, 3);
        let new = starts(&mut queue, at(1));
        // What the old one dispatched and the device turns back is new to the new one.
        queue.handle_busy(at(2), old.pop().unwrap().1);
        queue.set_scheduler(at(3), kind);
        let third = switch(&mut queue, at(4), kind);
        for (_, tag) in old.into_iter().chain(new) {
            queue.handle_completion(at(5), tag, Outcome::Done);
        }
        for log in [&first, &second, &third] {
            let news = news(log);
            assert!(!news.iter().any(|line| line.starts_with("request")), "{}: {news:?}", kind.name());
        }
        let mut now = at(6);
        while queue.load().waiting > 0 {
            for (_, tag) in starts(&mut queue, now) {
                queue.handle_completion(now, tag, Outcome::Done);
            }
            now += ms(1);
        }
        assert!(news(&third).iter().any(|line| line == "request of stream 0 in group 1 done"));
    }
}

#[test]
fn a_change_that_changes_nothing_is_not_told() {
    let (mut queue, log) = queue(Kind::None, 1);
    let s = queue.add_stream(stream(A));
    queue.change_stream(at(0), s, stream(A));
    queue.set_weight(at(0), A, Weight::new(100));
    assert!(news(&log).is_empty());
    queue.set_weight(at(0), A, Weight::new(1000));
    assert_eq!(news(&log), ["group /a of weight 1000"]);
}

#[test]
#[should_panic(expected = "a weight is a number from 1 to 1000")]
fn a_weight_out_of_range_is_our_own_mistake() {
    let _ = Weight::new(1001);
}

#[test]
fn a_weight_that_is_written_is_a_number_from_1_to_1000() {
    let read = |text: &str| text.parse().map(Weight::get);
    assert_eq!(["1", "300", "1000"].map(read), [Ok(1), Ok(300), Ok(1000)]);
    for wrong in ["0", "1001", "-1", "x", ""] {
        assert_eq!(read(wrong), Err(format!("a weight is a number from 1 to 1000, not {wrong:?}; {}", Weight::MEANS)));
    }
    assert_eq!(Weight::new(300).to_string(), "300");
}

#[test]
#[should_panic(expected = "no group GroupId(2)")]
fn nobody_enters_a_group_that_was_removed() {
    let (mut queue, _) = queue(Kind::None, 1);
    let s = queue.add_stream(stream(B));
    queue.submit(at(0), read(s, 0, 1)).unwrap();
    starts(&mut queue, at(0));
    queue.change_stream(at(0), s, stream(A));
    queue.remove_group(at(0), B).unwrap();
    queue.change_stream(at(0), s, stream(B));
}

#[test]
#[should_panic(expected = "is of ContextId(0) and stays there")]
fn a_stream_stays_in_its_context() {
    let (mut queue, _) = queue(Kind::None, 1);
    let s = queue.add_stream(stream(A));
    queue.change_stream(at(0), s, Stream { context: ContextId(1), ..stream(A) });
}

/// A queue under random commands, and what a dull model knows of it.
struct Run {
    queue: Queue,
    random: Random,
    now: Instant,
    /// Each stream, and how many of its bios are open.
    streams: BTreeMap<StreamId, (Stream, u32)>,
    groups: BTreeMap<GroupId, Group>,
    /// Bios that ended, by group.
    ended: BTreeMap<GroupId, u64>,
    /// Bios that ended in groups that are no more.
    gone: u64,
    open: BTreeMap<u64, StreamId>,
    in_flight: Vec<Tag>,
    tokens: u64,
    log: EventLog,
}

impl Run {
    fn new(seed: u64, depth: u16) -> Self {
        let mut random = Random::new(seed);
        let (queue, log) = queue(pick(&mut random, &Kind::ALL), depth);
        let groups: BTreeMap<_, _> = queue.groups().iter().map(|(id, group)| (id, group.clone())).collect();
        let ended = groups.keys().map(|id| (*id, 0)).collect();
        Self {
            queue,
            random,
            now: Instant::ZERO,
            streams: BTreeMap::new(),
            groups,
            ended,
            gone: 0,
            open: BTreeMap::new(),
            in_flight: vec![],
            tokens: 0,
            log,
        }
    }

    fn some_group(&mut self) -> GroupId {
        let ids: Vec<_> = self.groups.keys().copied().collect();
        pick(&mut self.random, &ids)
    }

    fn some_stream(&mut self) -> Option<StreamId> {
        let ids: Vec<_> = self.streams.keys().copied().collect();
        (!ids.is_empty()).then(|| pick(&mut self.random, &ids))
    }

    fn some_place(&mut self) -> Stream {
        let class = pick(&mut self.random, &PriorityClass::ALL);
        let priority = Priority { class, level: self.random.below(8) as u8 };
        Stream { group: self.some_group(), priority, context: C0 }
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0..=9 => self.submit(),
            10..=17 => self.dispatch(),
            18..=23 => self.end(),
            24 => {
                if let Some(tag) = self.some_tag() {
                    self.queue.handle_busy(self.now, tag);
                }
            }
            25..=27 => self.now += us(self.random.below(10_000)),
            28..=29 if self.streams.len() < 8 => {
                let place = self.some_place();
                let id = self.queue.add_stream(place);
                assert!(self.streams.insert(id, (place, 0)).is_none(), "{id:?} is another's");
            }
            30..=33 => {
                if let Some(id) = self.some_stream() {
                    let place = self.some_place();
                    self.queue.change_stream(self.now, id, place);
                    self.streams.get_mut(&id).unwrap().0 = place;
                }
            }
            34 => {
                if let Some(id) = self.some_stream()
                    && self.streams[&id].1 == 0
                {
                    self.queue.remove_stream(id);
                    self.streams.remove(&id);
                }
            }
            35 if self.groups.len() < 8 => {
                let parent = self.some_group();
                self.tokens += 1;
                let group = group(&format!("/{}", self.tokens), parent);
                let id = add_group(&mut self.queue, self.now, group.clone());
                assert!(self.groups.insert(id, group).is_none(), "{id:?} is another's");
                self.ended.insert(id, 0);
            }
            36 => {
                let (id, weight) = (self.some_group(), 1 + self.random.below(1000) as u16);
                self.queue.set_weight(self.now, id, Weight::new(weight));
                self.groups.get_mut(&id).unwrap().weight = Weight::new(weight);
            }
            37..=38 => self.remove_group(),
            39 => {
                let kind = pick(&mut self.random, &Kind::ALL);
                self.log = switch(&mut self.queue, self.now, kind);
            }
            _ => {}
        }
        self.fetch();
    }

    fn submit(&mut self) {
        let Some(stream) = self.some_stream() else { return };
        let op = pick(&mut self.random, &[Op::Read, Op::Read, Op::Write, Op::Discard, Op::Flush]);
        // Few places, so that neighbours are common.
        let extent = Extent::new(Sector(self.random.below(60) * 8), 8 * (1 + self.random.below(4)));
        let extent = if op == Op::Flush { Extent::NONE } else { extent };
        let bio = Bio { op, extent, ..read(stream, 0, self.tokens) };
        if self.queue.submit(self.now, bio).is_ok() {
            self.open.insert(self.tokens, stream);
            self.streams.get_mut(&stream).unwrap().1 += 1;
        }
        self.tokens += 1;
    }

    fn dispatch(&mut self) {
        for _ in 0..=self.random.below(4) {
            self.in_flight.extend(self.queue.poll_dispatch(self.now, C0).map(|dispatch| dispatch.tag));
        }
    }

    fn some_tag(&mut self) -> Option<Tag> {
        let nth = self.random.below(self.in_flight.len().max(1) as u64) as usize;
        (!self.in_flight.is_empty()).then(|| self.in_flight.swap_remove(nth))
    }

    fn end(&mut self) {
        if let Some(tag) = self.some_tag() {
            let outcome = if self.random.below(8) == 0 { Outcome::Failed(Errno::EIO) } else { Outcome::Done };
            self.queue.handle_completion(self.now, tag, outcome);
        }
    }

    fn remove_group(&mut self) {
        let id = self.some_group();
        let streams = self.streams.values().filter(|(stream, _)| stream.group == id).count();
        let below = self.groups.values().filter(|group| group.parent == Some(id)).count();
        match self.queue.remove_group(self.now, id) {
            Ok(()) => {
                assert_eq!((streams, below), (0, 0));
                assert_ne!(id, GroupId::ROOT);
                self.groups.remove(&id);
                self.gone += self.ended.remove(&id).unwrap();
            }
            Err(in_use) => {
                assert_eq!((in_use.streams, in_use.groups.len()), (streams, below));
                assert!(id == GroupId::ROOT || streams + below > 0, "{in_use}");
            }
        }
    }

    fn fetch(&mut self) {
        while let Some(news) = self.queue.poll_finished(C0) {
            let Finished::Done(Token(token), _) = news else { panic!("{news:?}: nothing was late") };
            let stream = self.open.remove(&token).unwrap_or_else(|| panic!("{token} ended twice"));
            let (place, open) = self.streams.get_mut(&stream).unwrap();
            *open -= 1;
            *self.ended.get_mut(&place.group).unwrap() += 1;
        }
    }

    /// What can be asked of the queue is what the model knows.
    fn compare(&self) {
        let groups: BTreeMap<_, _> = self.queue.groups().iter().map(|(id, group)| (id, group.clone())).collect();
        assert_eq!(groups, self.groups);
        for (id, ended) in &self.ended {
            assert_eq!(ops(&self.queue.groups().stats_of(*id)), *ended, "bios that ended in {id:?}");
        }
        assert_eq!(ops(&self.queue.groups().stats()), self.gone + self.ended.values().sum::<u64>());
        for (id, (stream, _)) in &self.streams {
            assert_eq!(self.queue.groups().stream(*id).stream(), *stream);
        }
    }

    /// The load ends, and the device answers all.
    fn drain(&mut self) {
        for _ in 0..10_000 {
            self.fetch();
            if self.open.is_empty() {
                break;
            }
            self.in_flight.extend(starts(&mut self.queue, self.now).into_iter().map(|(_, tag)| tag));
            for tag in std::mem::take(&mut self.in_flight) {
                self.queue.handle_completion(self.now, tag, Outcome::Done);
            }
            self.now += ms(1);
        }
        assert!(self.open.is_empty(), "{} bios never end", self.open.len());
        assert_eq!((self.queue.load().in_flight, self.queue.load().waiting), (0, 0));
    }
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

fairlift_lab::proptest! {
    /// queue.1 and queue.8 to queue.12: whoever comes, moves and goes, and whatever scheduler takes over, every bio ends once and counts
    /// for the group in which it ended, and the scheduler is told what it was promised.
    #[test]
    fn nothing_is_lost_or_counted_wrongly_while_everything_moves(seed in any::<u64>(), depth in 1u16..8) {
        let mut run = Run::new(seed, depth);
        for step in 0..600 {
            run.step();
            if step % 16 == 0 {
                run.compare();
            }
        }
        run.drain();
        run.compare();
        let ids: Vec<_> = run.streams.keys().copied().collect();
        ids.into_iter().for_each(|id| run.queue.remove_stream(id));
        // With nobody in them, all groups go, from the leaves up.
        while run.queue.groups().iter().count() > 1 {
            let ids: Vec<_> = run.queue.groups().iter().map(|(id, _)| id).collect();
            let before = ids.len();
            ids.into_iter().for_each(|id| drop(run.queue.remove_group(run.now, id)));
            assert!(run.queue.groups().iter().count() < before);
        }
    }
}
