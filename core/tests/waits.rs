//! Where the time of bios goes: the parts add up, and each staged cause is the part that has the time.

use std::collections::BTreeMap;

use fairlift_core::queue::{Figures, Settings};
use fairlift_core::sched::Kind;
use fairlift_core::stats::Stats;
use fairlift_core::time::{ms, us};
use fairlift_core::waits::{Part, Times};
use fairlift_core::*;
use proptest::prelude::*;

const C0: ContextId = ContextId(0);
const ALICE: usize = 0;
const BOB: usize = 1;

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

/// A queue with a stream in each of two groups, and two in the root.
fn queue(kind: Kind, change: impl FnOnce(&mut Settings)) -> (Queue, Vec<StreamId>) {
    let mut settings = Settings::new(kind, Limits::new(1 << 40));
    let group = |path: &str| Group { path: path.into(), parent: Some(GroupId::ROOT), weight: Weight::new(100) };
    settings.groups.extend([group("/alice"), group("/bob")]);
    settings.flush.group_commit = 0;
    change(&mut settings);
    let mut queue = Queue::new(settings);
    let streams = [1, 2, 0, 0]
        .map(|group| queue.add_stream(Stream { group: GroupId(group), priority: Priority::default(), context: C0 }));
    (queue, streams.to_vec())
}

fn ask(queue: &mut Queue, now: Instant, stream: StreamId, op: Op, flags: Flags, token: u64) {
    let extent = if op == Op::Flush { Extent::NONE } else { Extent::new(Sector(token << 20), 8) };
    queue.submit(now, Bio { op, flags, extent, stream, token: Token(token) }).unwrap();
}

fn read(queue: &mut Queue, now: Instant, stream: StreamId, token: u64) {
    ask(queue, now, stream, Op::Read, Flags::NONE, token);
}

/// What each group has had, of a few streams and groups at a time.
fn figures(queue: &mut Queue, now: Instant) -> BTreeMap<GroupId, Figures> {
    let mut all = queue.figures_of_requests(now);
    all.extend((0..).map_while(|from| queue.groups_mut().figures_of_streams(now, from..from + 1)).flatten());
    all.extend((0..).step_by(2).map_while(|from| queue.groups_mut().figures_of_groups(now, from..from + 2)).flatten());
    let mut sums = BTreeMap::<GroupId, Figures>::new();
    all.iter().for_each(|(id, figures)| sums.entry(*id).or_default().add(figures));
    sums
}

/// All that a stream's bios have spent, of those that ended.
fn times(queue: &Queue, stream: StreamId) -> Times {
    all_times(&queue.groups().stream(stream).stats())
}

fn all_times(stats: &Stats) -> Times {
    let mut sum = Times::default();
    Op::ALL.iter().for_each(|op| sum.add(&stats.times(*op)));
    sum
}

fn one_part(queue: &Queue, stream: StreamId, parts: &[(Part, u64)]) {
    let mut wanted = Times::default();
    parts.iter().for_each(|(part, millis)| wanted.spend(*part, ms(*millis)));
    assert_eq!(times(queue, stream), wanted);
}

/// waits.2: the device takes one request at a time; alice's second read waits for bob's, and for her own first one.
#[test]
fn a_wait_is_parted_by_whose_requests_the_device_had() {
    let (mut queue, s) = queue(Kind::None, |settings| settings.depth = 1);
    for (token, stream) in [(1, ALICE), (2, BOB), (3, ALICE)] {
        read(&mut queue, at(0), s[stream], token);
    }
    for (go, end) in [(0, 4), (4, 7), (7, 8)] {
        let next = queue.poll_dispatch(at(go), C0).unwrap();
        queue.handle_completion(at(end), next.tag, Outcome::Done);
    }
    one_part(&queue, s[ALICE], &[(Part::Device, 4 + 1), (Part::Own, 4), (Part::Others, 3)]);
    one_part(&queue, s[BOB], &[(Part::Device, 3), (Part::Others, 4)]);
    let mut had = |group| figures(&mut queue, at(8))[&GroupId(group)].had;
    assert_eq!((had(1), had(2)), (ms(5), ms(3)));
}

/// waits.4: in the root a stream is a tenant.
#[test]
fn streams_of_the_root_wait_for_each_other() {
    let (mut queue, s) = queue(Kind::None, |settings| settings.depth = 1);
    read(&mut queue, at(0), s[2], 1);
    read(&mut queue, at(0), s[3], 2);
    for (go, end) in [(0, 4), (4, 5)] {
        let next = queue.poll_dispatch(at(go), C0).unwrap();
        queue.handle_completion(at(end), next.tag, Outcome::Done);
    }
    one_part(&queue, s[3], &[(Part::Others, 4), (Part::Device, 1)]);
}

#[test]
fn a_flush_of_a_neighbour_is_named_in_the_device_and_before() {
    let (mut queue, s) = queue(Kind::None, |settings| settings.depth = 2);
    read(&mut queue, at(0), s[ALICE], 1);
    let one = queue.poll_dispatch(at(0), C0).unwrap();
    ask(&mut queue, at(2), s[BOB], Op::Flush, Flags::NONE, 2);
    let flush = queue.poll_dispatch(at(2), C0).unwrap();
    assert_eq!(flush.op, Op::Flush);
    read(&mut queue, at(3), s[ALICE], 3);
    assert_eq!(queue.poll_dispatch(at(3), C0), None, "both tags are out");
    queue.handle_completion(at(9), flush.tag, Outcome::Done);
    let two = queue.poll_dispatch(at(9), C0).unwrap();
    queue.handle_completion(at(10), one.tag, Outcome::Done);
    queue.handle_completion(at(12), two.tag, Outcome::Done);
    // The first: 2 before the flush, 7 in it, 1 after; the second: 6 in the flush, then 3 in the device.
    one_part(&queue, s[ALICE], &[(Part::Device, 2 + 1 + 3), (Part::Flush, 7 + 6)]);
    one_part(&queue, s[BOB], &[(Part::Flush, 7)]);
    assert_eq!(queue.groups_mut().doing(at(12)).flushing, ms(7));
    let flushed = |stream: usize| queue.groups().stream(s[stream]).stats().flushed;
    assert_eq!((flushed(ALICE), flushed(BOB)), (Duration::ZERO, ms(7)), "who asked for it is charged");
}

/// The scheduler `fair` takes a request for near if it begins within 16 MiB of its stream's last one; so do the figures.
#[test]
fn what_begins_near_the_end_of_the_last_is_counted() {
    let (mut queue, s) = queue(Kind::None, |_| {});
    let mut read = |stream: usize, sector: u64| {
        let extent = Extent::new(Sector(sector), 8);
        let bio = Bio { op: Op::Read, flags: Flags::NONE, extent, stream: s[stream], token: Token(sector) };
        queue.submit(at(0), bio).unwrap();
        let next = queue.poll_dispatch(at(0), C0).unwrap();
        queue.handle_completion(at(1), next.tag, Outcome::Done);
        queue.groups().stream(s[stream]).stats().of(Op::Read).near
    };
    assert_eq!(read(ALICE, 100_000), 0);
    assert_eq!((read(ALICE, 100_008), read(BOB, 100_016), read(ALICE, 100_016 + 4096 * 8)), (1, 0, 2));
    assert_eq!((read(ALICE, 50_000), read(ALICE, 50_008 - 4096 * 8)), (2, 3));
}

#[test]
fn a_disk_that_is_held_idle_is_idling() {
    let (mut queue, s) = queue(Kind::Bfq, |settings| settings.character.rotational = true);
    queue.set_tunable("slice_idle", "8ms").unwrap();
    queue.set_tunable("low_latency", "0").unwrap();
    read(&mut queue, at(0), s[ALICE], 1);
    let next = queue.poll_dispatch(at(0), C0).unwrap();
    read(&mut queue, at(1), s[BOB], 2);
    queue.handle_completion(at(2), next.tag, Outcome::Done);
    assert_eq!(queue.poll_dispatch(at(2), C0), None, "alice may ask for what comes next");
    let until = queue.poll_timeout().unwrap();
    let next = queue.poll_dispatch(until, C0).expect("she did not");
    queue.handle_completion(until + ms(3), next.tag, Outcome::Done);
    let bob = times(&queue, s[BOB]);
    assert_eq!((bob.of(Part::Others), bob.of(Part::Device)), (ms(1), ms(3)));
    assert_eq!(bob.of(Part::Idling), until.since(at(2)));
    assert!(bob.of(Part::Idling) >= ms(4), "{bob:?}");
}

#[test]
fn what_a_bio_waited_before_the_queue_and_after_it_counts() {
    let (mut queue, s) = queue(Kind::None, |_| ());
    let bio =
        Bio { op: Op::Read, flags: Flags::NONE, extent: Extent::new(Sector(0), 8), stream: s[0], token: Token(1) };
    queue.submit_late(at(5), at(2), Part::Memory, bio).unwrap();
    let next = queue.poll_dispatch(at(5), C0).unwrap();
    queue.handle_completion(at(6), next.tag, Outcome::Done);
    queue.groups_mut().stream_mut(s[0]).replied(Op::Read, ms(9));
    one_part(&queue, s[0], &[(Part::Memory, 3), (Part::Device, 1), (Part::Reply, 9)]);
    let stats = queue.groups().stream(s[0]).stats();
    assert!(stats.latency(Op::Read).unwrap().quantile(500) >= ms(4), "what it waited before counts");
}

#[test]
fn a_stream_is_active_while_a_bio_of_it_has_not_ended() {
    let (mut queue, s) = queue(Kind::None, |_| ());
    for start in [0, 10] {
        read(&mut queue, at(start), s[ALICE], 1);
        let next = queue.poll_dispatch(at(start), C0).unwrap();
        queue.handle_completion(at(start + 2), next.tag, Outcome::Done);
    }
    read(&mut queue, at(20), s[ALICE], 1);
    let alice = &figures(&mut queue, at(23))[&GroupId(1)];
    assert_eq!((alice.stats.active, alice.streams, alice.open), (ms(2 + 2 + 3), 1, 1));
}

/// waits.5
#[test]
fn between_two_looks_a_stream_could_have_had_the_most_that_it_had_at_once() {
    let (mut queue, s) = queue(Kind::None, |_| ());
    let could = |queue: &mut Queue, now| {
        figures(queue, at(now)).get(&GroupId(1)).map_or(0, |alice| alice.stats.could.as_millis())
    };
    assert_eq!(could(&mut queue, 5), 0);
    let burst = |queue: &mut Queue, start, tokens: &[u64]| {
        tokens.iter().for_each(|token| read(queue, at(start), s[ALICE], *token));
        tokens.iter().map(|_| queue.poll_dispatch(at(start), C0).unwrap().tag).collect::<Vec<_>>()
    };
    let tags = burst(&mut queue, 10, &[1, 2, 3, 4]);
    tags[..3].iter().for_each(|tag| queue.handle_completion(at(20), *tag, Outcome::Done));
    assert_eq!(could(&mut queue, 50), 4 * 40, "four at once, since the first of them");
    queue.handle_completion(at(60), tags[3], Outcome::Done);
    assert_eq!(could(&mut queue, 70), 4 * 40 + 20, "one in this look");
    assert_eq!(could(&mut queue, 100), 4 * 40 + 20, "it asked for nothing");
    let tags = burst(&mut queue, 120, &[5]);
    queue.handle_completion(at(130), tags[0], Outcome::Done);
    assert_eq!(could(&mut queue, 150), 4 * 40 + 20 + 30, "one, since it was asked for");
}

/// queue.10: also while it is looked at, by a clock that is before a worker's.
#[test]
fn what_was_told_of_a_group_never_falls() {
    let (mut queue, s) = queue(Kind::Fair, |_| ());
    let mut counted = (Duration::ZERO, Duration::ZERO);
    let mut alice = |queue: &mut Queue, now| {
        let alice = figures(queue, now).remove(&GroupId(1)).unwrap();
        let before = core::mem::replace(&mut counted, (alice.stats.active, alice.had));
        assert!(counted.0 >= before.0 && counted.1 >= before.1, "{before:?}, then {counted:?}");
        (counted.0.as_millis(), counted.1.as_millis())
    };
    read(&mut queue, at(0), s[ALICE], 1);
    let one = queue.poll_dispatch(at(0), C0).unwrap();
    assert_eq!(alice(&mut queue, at(10)), (10, 10));
    queue.handle_completion(at(9), one.tag, Outcome::Done);
    assert_eq!(alice(&mut queue, at(20)), (10, 10), "it ended at a worker that had read its clock before");
    read(&mut queue, at(20), s[ALICE], 2);
    let two = queue.poll_dispatch(at(20), C0).unwrap();
    let stream = Stream { group: GroupId(2), ..queue.groups().stream(s[ALICE]).stream() };
    queue.change_stream(at(25), s[ALICE], stream);
    assert_eq!(alice(&mut queue, at(27)).0, 15, "what it did in her group is hers");
    queue.handle_completion(at(30), two.tag, Outcome::Done);
    assert_eq!(alice(&mut queue, at(30)), (15, 20));
    queue.remove_stream(s[ALICE]);
    assert_eq!(alice(&mut queue, at(30)), (15, 20));
    assert_eq!(figures(&mut queue, at(30))[&GroupId(2)].stats.active, ms(5));
}

#[test]
fn a_bio_that_waits_outside_has_time_too() {
    let (mut queue, s) = queue(Kind::MqDeadline, |settings| (settings.depth, settings.nr_requests) = (1, 1));
    read(&mut queue, at(0), s[BOB], 1);
    let one = queue.poll_dispatch(at(0), C0).unwrap();
    let extent = Extent::new(Sector(0), 8);
    let bio = Bio { op: Op::Read, flags: Flags::NONE, extent, stream: s[ALICE], token: Token(2) };
    assert_eq!(queue.submit_late(at(3), at(2), Part::Room, bio), Err(Refused::Full));
    queue.groups_mut().stream_mut(s[ALICE]).waits_outside(Op::Read, at(2));
    let alice = &figures(&mut queue, at(7))[&GroupId(1)];
    assert_eq!((alice.open, alice.stats.active, all_times(&alice.under_way).of(Part::Room)), (1, ms(5), ms(5)));
    queue.handle_completion(at(8), one.tag, Outcome::Done);
    queue.groups_mut().stream_mut(s[ALICE]).comes_in(at(9), Op::Read, at(2));
    queue.submit_late(at(9), at(2), Part::Room, bio).unwrap();
    let two = queue.poll_dispatch(at(9), C0).unwrap();
    queue.handle_completion(at(10), two.tag, Outcome::Done);
    one_part(&queue, s[ALICE], &[(Part::Room, 7), (Part::Device, 1)]);
    assert_eq!(
        figures(&mut queue, at(20))[&GroupId(1)].stats.active,
        ms(8),
        "from when it was asked for to its end, once"
    );
}

#[derive(Clone, Debug)]
enum Step {
    Ask { stream: usize, op: Op, flags: Flags, early: u64 },
    Complete { nth: usize, ok: bool },
    TurnBack { nth: usize },
    Wait(Duration),
    Scheduler(Kind),
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop::sample::select(vec![Op::Read, Op::Read, Op::Write, Op::Write, Op::Flush, Op::Discard]);
    let flags = prop::sample::select(vec![Flags::NONE, Flags::FUA, Flags::PREFLUSH, Flags::FUA | Flags::PREFLUSH]);
    prop_oneof![
        6 => (0..4usize, op, flags, 0..200u64).prop_map(|(stream, op, flags, early)| Step::Ask { stream, op, flags, early }),
        4 => (0..64usize, prop::bool::weighted(0.9)).prop_map(|(nth, ok)| Step::Complete { nth, ok }),
        1 => (0..64usize).prop_map(|nth| Step::TurnBack { nth }),
        5 => prop_oneof![1..500u64, 1000..20_000u64, Just(40_000_000)].prop_map(|n| Step::Wait(us(n))),
        1 => prop::sample::select(Kind::ALL.to_vec()).prop_map(Step::Scheduler),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// waits.3: whatever happens, what bios have spent is what has passed since they were asked for, at every moment.
    #[test]
    fn the_parts_of_all_bios_are_the_time_since_they_were_asked_for(
        kind in prop::sample::select(Kind::ALL.to_vec()), fua: bool, depth in 1..5u16, steps in prop::collection::vec(step(), 1..200),
    ) {
        let (mut queue, streams) = queue(kind, |settings| {
            (settings.depth, settings.nr_requests) = (depth, 16);
            settings.backings[0].fua = fua;
        });
        let mut now = at(1);
        let (mut token, mut ended) = (0, [Duration::ZERO; Op::COUNT]);
        let mut submitted: BTreeMap<u64, (Op, Instant)> = BTreeMap::new();
        let mut in_device: Vec<Dispatch> = Vec::new();
        for step in steps {
            match step {
                Step::Ask { stream, op, flags, early } => {
                    token += 1;
                    let extent = if op == Op::Flush { Extent::NONE } else { Extent::new(Sector(token % 8 * 8), 8) };
                    let flags = if op == Op::Read || op == Op::Flush { Flags::NONE } else { flags };
                    let since = Instant::from_nanos(now.as_nanos() - 1000 * early);
                    let bio = Bio { op, flags, extent, stream: streams[stream], token: Token(token) };
                    if queue.submit_late(now, since, Part::Memory, bio).is_ok() {
                        submitted.insert(token, (op, since));
                    }
                }
                Step::Complete { nth, ok } if !in_device.is_empty() => {
                    let one = in_device.remove(nth % in_device.len());
                    queue.handle_completion(now, one.tag, if ok { Outcome::Done } else { Outcome::Failed(Errno::EIO) });
                    if !ok {
                        queue.flushes().acknowledge(Sector(0));
                    }
                }
                Step::TurnBack { nth } if !in_device.is_empty() => {
                    let one = in_device.remove(nth % in_device.len());
                    queue.handle_busy(now, one.tag);
                }
                Step::Complete { .. } | Step::TurnBack { .. } => {}
                Step::Wait(time) => {
                    now += time;
                    queue.handle_timeout(now);
                }
                Step::Scheduler(kind) => queue.set_scheduler(now, kind),
            }
            while let Some(next) = queue.poll_dispatch(now, C0) {
                in_device.push(next);
            }
            while let Some(news) = queue.poll_finished(C0) {
                if let Finished::Done(Token(token), _) | Finished::TimedOut(Token(token)) = news {
                    let (op, since) = submitted.remove(&token).expect("it was asked for, and ends once");
                    ended[op as usize] = ended[op as usize] + now.since(since);
                }
            }
            let mut all = Stats::default();
            for group in figures(&mut queue, now).values() {
                all.add(&group.stats);
                all.add(&group.under_way);
            }
            for op in Op::ALL {
                let waits = submitted.values().filter(|(one, _)| *one == op).map(|(_, since)| now.since(*since));
                let wanted = waits.fold(ended[op as usize], |sum, one| sum + one);
                prop_assert_eq!(all.times(op).sum(), wanted, "{:?} at {:?}", op, now);
            }
        }
    }
}
