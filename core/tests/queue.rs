//! The queue's rules, one scenario each, and all of them against a dull model over random runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use fairlift_core::model::Model;
use fairlift_core::queue::{Backing, Segment, Settings};
use fairlift_core::sched::none::None as NoScheduler;
use fairlift_core::sched::traits::*;
use fairlift_core::sched::{Kind, Next, Waiting};
use fairlift_core::time::{ms, secs, us};
use fairlift_core::trace::{Action, Item};
use fairlift_core::*;
use fairlift_lab::{Random, World, fixed_time, given_times};
use proptest::prelude::*;

const C0: ContextId = ContextId(0);
const C1: ContextId = ContextId(1);

fn stream(context: ContextId) -> Stream {
    Stream { group: GroupId::ROOT, priority: Priority::default(), context }
}

fn bio(op: Op, stream: StreamId, start: u64, sectors: u64, token: u64) -> Bio {
    let extent = Extent::new(Sector(start), sectors);
    Bio { op, flags: Flags::NONE, extent, stream, token: Token(token) }
}

/// A queue of a disk of a million sectors, and a stream in context 0.
fn queue(change: impl FnOnce(&mut Settings)) -> (Queue, StreamId) {
    let mut settings = Settings { contexts: 2, ..Settings::new(Kind::None, Limits::new(1_000_000)) };
    change(&mut settings);
    let mut queue = Queue::new(settings);
    let id = queue.add_stream(stream(C0));
    (queue, id)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

fn extents(queue: &mut Queue, now: Instant) -> Vec<(u64, u64)> {
    std::iter::from_fn(|| queue.poll_dispatch(now, C0)).map(|d| (d.extent.start.0, d.extent.sectors)).collect()
}

fn news(queue: &mut Queue) -> Vec<Finished> {
    std::iter::from_fn(|| queue.poll_finished(C0)).collect()
}

/// queue.2
#[test]
fn with_all_tags_out_nothing_is_dispatched() {
    let (mut queue, s) = queue(|settings| (settings.depth, settings.nr_requests) = (2, 8));
    for n in 0..3 {
        queue.submit(at(0), bio(Op::Read, s, n * 100, 8, n)).unwrap();
    }
    let first = queue.poll_dispatch(at(0), C0).unwrap();
    assert!(queue.poll_dispatch(at(0), C0).is_some());
    assert_eq!(queue.poll_dispatch(at(0), C0), None);
    queue.handle_completion(at(1), first.tag, Outcome::Done);
    assert!(queue.poll_dispatch(at(1), C0).is_some());
    assert_eq!(news(&mut queue), [Finished::Done(Token(0), Outcome::Done)]);
}

/// queue.3
#[test]
fn neighbours_in_a_batch_become_one_request_in_sector_order() {
    let (mut queue, s) = queue(|_| ());
    for (token, start) in [(1, 8), (2, 16), (0, 0)] {
        queue.submit(at(0), bio(Op::Write, s, start, 8, token)).unwrap();
    }
    let whole = queue.poll_dispatch(at(0), C0).unwrap();
    assert_eq!(whole.extent, Extent::new(Sector(0), 24));
    let segments: Vec<_> = queue.segments(whole.tag).collect();
    let expected = [0, 1, 2].map(|token| Segment { token: Token(token), offset: Bytes(0), bytes: Bytes(4096) });
    assert_eq!(segments, expected);
    assert_eq!(queue.groups().stream(s).stats().of(Op::Write).merges, 2);
    let mut counters = Vec::new();
    queue.counters(&mut |name, count| counters.push((name, count)));
    assert_eq!(counters, [("merges", 2)]);
}

/// queue.4
#[test]
fn a_request_goes_to_the_context_that_submitted_it() {
    let (mut queue, _) = queue(|_| ());
    let other = queue.add_stream(stream(C1));
    queue.submit(at(0), bio(Op::Read, other, 0, 8, 7)).unwrap();
    assert_eq!(queue.poll_dispatch(at(0), C0), None, "it is another's");
    assert_eq!(queue.poll_wake(), Some(C1));
    let granted = queue.poll_dispatch(at(0), C1).unwrap();
    queue.handle_completion(at(1), granted.tag, Outcome::Done);
    assert_eq!(queue.poll_finished(C0), None);
    assert_eq!(queue.poll_finished(C1), Some(Finished::Done(Token(7), Outcome::Done)));
}

/// queue.4
#[test]
fn neighbours_of_different_contexts_stay_apart() {
    let (mut queue, s) = queue(|settings| settings.scheduler = Kind::MqDeadline);
    let other = queue.add_stream(stream(C1));
    queue.submit(at(0), bio(Op::Read, s, 0, 8, 1)).unwrap();
    queue.submit(at(0), bio(Op::Read, other, 8, 8, 2)).unwrap();
    assert_eq!(extents(&mut queue, at(0)), [(0, 8)]);
}

/// queue.4
#[test]
fn neighbours_of_different_groups_stay_apart_and_so_do_a_durable_write_and_a_plain_one() {
    let (mut queue, s) = queue(|settings| {
        settings.scheduler = Kind::MqDeadline;
        settings.backings[0].fua = true;
        settings.groups.push(Group { path: "/a".into(), parent: Some(GroupId::ROOT), weight: Weight::new(100) });
    });
    let other = queue.add_stream(Stream { group: GroupId(1), ..stream(C0) });
    let durable = |start| Bio { flags: Flags::FUA, ..bio(Op::Write, s, start, 8, start) };
    queue.submit(at(0), bio(Op::Write, s, 0, 8, 0)).unwrap();
    queue.submit(at(0), durable(8)).unwrap();
    queue.submit(at(0), bio(Op::Write, other, 16, 8, 16)).unwrap();
    queue.submit(at(0), bio(Op::Write, s, 24, 8, 24)).unwrap();
    assert_eq!(extents(&mut queue, at(0)), [(0, 8), (8, 8), (16, 8), (24, 8)]);
    queue.submit(at(0), bio(Op::Write, s, 100, 8, 100)).unwrap();
    queue.submit(at(0), bio(Op::Write, s, 108, 8, 108)).unwrap();
    assert_eq!(extents(&mut queue, at(0)), [(100, 16)], "those of one kind do not");
}

/// queue.5
#[test]
fn a_flush_goes_first() {
    let (mut queue, s) = queue(|settings| settings.scheduler = Kind::MqDeadline);
    queue.submit(at(0), bio(Op::Write, s, 0, 8, 1)).unwrap();
    queue.submit(at(0), bio(Op::Flush, s, 0, 0, 2)).unwrap();
    assert_eq!(queue.poll_dispatch(at(0), C0).unwrap().op, Op::Flush);
}

/// queue.6
#[test]
fn an_overdue_bio_fails_at_once_and_gives_its_memory_back_later() {
    let (mut queue, s) = queue(|_| ());
    queue.submit(at(0), bio(Op::Read, s, 0, 8, 1)).unwrap();
    let stuck = queue.poll_dispatch(at(0), C0).unwrap();
    assert_eq!(queue.poll_timeout(), Some(at(30_000)));
    queue.handle_timeout(at(29_999));
    assert_eq!(news(&mut queue), []);
    queue.handle_timeout(at(30_000));
    assert_eq!(news(&mut queue), [Finished::TimedOut(Token(1))]);
    assert_eq!(queue.poll_timeout(), None);
    assert_eq!(queue.load().in_flight, 1, "the device still has it");
    queue.handle_completion(at(60_000), stuck.tag, Outcome::Done);
    assert_eq!(news(&mut queue), [Finished::Released(Token(1))]);
    assert_eq!(queue.load().in_flight, 0);
}

/// queue.6
#[test]
fn after_a_stall_nothing_is_late_for_as_long_again_and_then_it_is() {
    let (mut queue, s) = queue(|_| ());
    for n in 0..2 {
        queue.submit(at(n * 1000), bio(Op::Read, s, n * 100, 8, n)).unwrap();
        queue.poll_dispatch(at(n * 1000), C0).unwrap();
    }
    queue.handle_stall(at(40_000), secs(39));
    assert_eq!(queue.poll_timeout(), Some(at(70_000)));
    queue.handle_timeout(at(69_999));
    assert_eq!(news(&mut queue), []);
    queue.handle_timeout(at(70_000));
    assert_eq!(news(&mut queue), [0, 1].map(|n| Finished::TimedOut(Token(n))));
}

/// queue.6: a machine that stands for two seconds in each ten.
#[test]
fn a_bio_that_hangs_is_late_though_its_caller_stands_now_and_then() {
    let (mut queue, s) = queue(|_| ());
    queue.submit(at(0), bio(Op::Read, s, 0, 8, 0)).unwrap();
    queue.poll_dispatch(at(0), C0).unwrap();
    for second in [10, 20, 30] {
        queue.handle_stall(at(second * 1000), secs(2));
        queue.handle_timeout(at(second * 1000));
    }
    assert_eq!((news(&mut queue), queue.poll_timeout()), (vec![], Some(at(32_000))));
    queue.handle_timeout(at(32_000));
    assert_eq!(news(&mut queue), [Finished::TimedOut(Token(0))]);
}

/// queue.7
#[test]
fn what_a_busy_device_refused_goes_first_when_something_ended() {
    let (mut queue, s) = queue(|_| ());
    for n in 0..3 {
        queue.submit(at(0), bio(Op::Read, s, n * 100, 8, n)).unwrap();
    }
    let first = queue.poll_dispatch(at(0), C0).unwrap();
    let second = queue.poll_dispatch(at(0), C0).unwrap();
    queue.handle_busy(at(0), second.tag);
    assert_eq!(extents(&mut queue, at(0)), []);
    queue.handle_completion(at(1), first.tag, Outcome::Done);
    assert_eq!(extents(&mut queue, at(1)), [(100, 8), (200, 8)]);
}

/// queue.7
#[test]
fn with_nothing_in_flight_a_busy_device_is_asked_again_after_a_while() {
    let (mut queue, s) = queue(|_| ());
    queue.submit(at(0), bio(Op::Read, s, 0, 8, 0)).unwrap();
    let only = queue.poll_dispatch(at(0), C0).unwrap();
    queue.handle_busy(at(0), only.tag);
    assert_eq!(queue.poll_dispatch(at(0), C0), None);
    assert_eq!(queue.poll_timeout(), Some(at(3)));
    assert_eq!(extents(&mut queue, at(3)), [(0, 8)]);
    assert_eq!(queue.poll_timeout(), Some(at(30_003)), "the delay is over; only the request's own time is left");
}

/// queue.7: what hangs may never end, and the device takes others all the same.
#[test]
fn with_nothing_in_flight_but_what_hangs_a_busy_device_is_asked_again_after_a_while() {
    let (mut queue, s) = queue(|_| ());
    queue.submit(at(0), bio(Op::Read, s, 0, 8, 0)).unwrap();
    queue.poll_dispatch(at(0), C0).unwrap();
    queue.submit(at(1), bio(Op::Read, s, 100, 8, 1)).unwrap();
    let second = queue.poll_dispatch(at(1), C0).unwrap();
    queue.handle_busy(at(1), second.tag);
    assert_eq!(queue.poll_dispatch(at(4), C0), None, "it waits for the first");
    queue.handle_timeout(at(30_000));
    assert_eq!((news(&mut queue), queue.poll_timeout()), (vec![Finished::TimedOut(Token(0))], Some(at(30_003))));
    let second = queue.poll_dispatch(at(30_003), C0).unwrap();
    queue.handle_busy(at(30_003), second.tag);
    assert_eq!(queue.poll_timeout(), Some(at(30_006)));
    assert_eq!(extents(&mut queue, at(30_006)), [(100, 8)]);
}

/// queue.17: what hangs holds up nothing but its own place in the device, even if it never ends.
#[test]
fn what_waits_behind_a_request_that_hangs_goes_when_its_time_has_run_out() {
    for kind in Kind::ALL {
        for others_class in [PriorityClass::BestEffort, PriorityClass::Idle] {
            let (mut queue, s) = queue(|settings| settings.scheduler = kind);
            if kind.tunables().iter().any(|info| info.name == "device_depth") {
                queue.set_tunable("device_depth", "1").unwrap();
            }
            let other = queue.add_stream(Stream { priority: Priority { class: others_class, level: 4 }, ..stream(C0) });
            queue.submit(at(0), bio(Op::Read, s, 0, 8, 0)).unwrap();
            let stuck = queue.poll_dispatch(at(0), C0).unwrap();
            let submitted = [(Op::Write, s), (Op::Read, other), (Op::Write, other), (Op::Discard, other)];
            for (token, (op, stream)) in (1..).zip(submitted) {
                queue.submit(at(1), bio(op, stream, 1000 * token, 8, token)).unwrap();
            }
            let (mut now, mut ended) = (at(1), 0);
            while ended < submitted.len() && now < at(40_000) {
                now += ms(50);
                queue.handle_timeout(now);
                while let Some(next) = queue.poll_dispatch(now, C0) {
                    queue.handle_completion(now, next.tag, Outcome::Done);
                }
                ended += news(&mut queue).iter().filter(|news| matches!(news, Finished::Done(..))).count();
            }
            assert_eq!(ended, submitted.len(), "{} beside {others_class:?}", kind.name());
            queue.handle_timeout(at(40_000));
            news(&mut queue);
            queue.set_scheduler(at(40_000), kind);
            queue.handle_completion(at(40_000), stuck.tag, Outcome::Done);
            assert_eq!(
                (queue.load().in_flight, queue.load().waiting, news(&mut queue)),
                (0, 0, vec![Finished::Released(Token(0))])
            );
        }
    }
}

#[test]
fn a_bio_longer_than_the_device_takes_is_cut_and_ends_once() {
    let (mut queue, s) = queue(|settings| settings.limits.rw_max = 8);
    queue.submit(at(0), bio(Op::Read, s, 0, 20, 1)).unwrap();
    let tags: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(at(0), C0)).map(|d| d.tag).collect();
    assert_eq!(tags.len(), 3);
    let last = queue.segments(tags[2]).next().unwrap();
    assert_eq!((last.offset, last.bytes), (Bytes::of(16), Bytes::of(4)));
    queue.handle_completion(at(1), tags[1], Outcome::Failed(Errno::EIO));
    queue.handle_completion(at(1), tags[2], Outcome::Done);
    assert_eq!(news(&mut queue), [], "a part is missing");
    queue.handle_completion(at(1), tags[0], Outcome::Done);
    assert_eq!(news(&mut queue), [Finished::Done(Token(1), Outcome::Failed(Errno::EIO))]);
}

#[test]
fn a_discard_of_more_pieces_than_requests_is_done_in_several_rounds() {
    let mut settings = Settings::new(Kind::MqDeadline, Limits { discard_max: 8, ..Limits::new(1_000_000) });
    (settings.depth, settings.nr_requests) = (4, 4);
    let disk = fixed_time(settings.limits, us(10));
    let mut world = World::new(Queue::new(settings), Box::new(disk));
    world.remember();
    let s = world.add_stream(stream(C0));
    world.submit(bio(Op::Discard, s, 0, 8 * 50, 1)).unwrap();
    assert_eq!(world.submit(bio(Op::Read, s, 0, 8, 2)), Err(Refused::Full));
    assert_eq!(world.run().len(), 1);
    assert_eq!(world.dispatched().iter().map(|d| d.extent.sectors).sum::<u64>(), 400);
    assert_eq!(world.dispatched().len(), 50);
}

#[test]
fn who_was_refused_is_woken_when_there_is_room() {
    let (mut queue, s) = queue(|settings| (settings.depth, settings.nr_requests) = (1, 1));
    let other = queue.add_stream(stream(C1));
    queue.submit(at(0), bio(Op::Read, s, 0, 8, 1)).unwrap();
    assert_eq!(queue.submit(at(0), bio(Op::Read, other, 8, 8, 2)), Err(Refused::Full));
    let first = queue.poll_dispatch(at(0), C0).unwrap();
    while queue.poll_wake().is_some() {}
    queue.handle_completion(at(1), first.tag, Outcome::Done);
    assert!(std::iter::from_fn(|| queue.poll_wake()).any(|woken| woken == C1));
}

/// queue.20: as two workers do it, of which one has always more to ask than there is room for.
#[test]
fn a_worker_that_found_no_room_has_the_next_place_though_another_has_more_to_ask() {
    let (mut queue, s) = queue(|settings| (settings.depth, settings.nr_requests) = (2, 4));
    let other = queue.add_stream(stream(C1));
    let (mut device, mut number, mut had, mut is_woken) = (Vec::new(), 0, 0, true);
    for turn in 0..100 {
        for tag in std::mem::take(&mut device) {
            queue.handle_completion(at(turn), tag, Outcome::Done);
        }
        while queue.submit(at(turn), bio(Op::Read, s, number * 100, 8, number)).is_ok() {
            number += 1;
        }
        device.extend(std::iter::from_fn(|| queue.poll_dispatch(at(turn), C0)).map(|next| next.tag));
        is_woken |= std::iter::from_fn(|| queue.poll_wake()).any(|woken| woken == C1);
        if std::mem::take(&mut is_woken) {
            had += std::iter::from_fn(|| queue.poll_finished(C1)).count();
            let _ = queue.submit(at(turn), bio(Op::Read, other, 50, 8, u64::MAX));
            device.extend(std::iter::from_fn(|| queue.poll_dispatch(at(turn), C1)).map(|next| next.tag));
        }
    }
    assert!((20..=150).contains(&had), "{had} of the reads of one worker, {number} of the other's");
}

/// queue.20
#[test]
fn a_worker_that_found_no_room_and_asks_no_more_keeps_no_place() {
    let (mut queue, s) = queue(|settings| (settings.depth, settings.nr_requests) = (1, 2));
    let other = queue.add_stream(stream(C1));
    let woken = |queue: &mut Queue| std::iter::from_fn(|| queue.poll_wake()).collect::<Vec<_>>();
    queue.submit(at(0), bio(Op::Read, s, 0, 8, 1)).unwrap();
    queue.submit(at(0), bio(Op::Read, s, 100, 8, 2)).unwrap();
    let first = queue.poll_dispatch(at(0), C0).unwrap();
    assert_eq!(queue.submit(at(0), bio(Op::Read, other, 200, 8, 3)), Err(Refused::Full));
    assert_eq!((queue.poll_dispatch(at(0), C1), woken(&mut queue)), (None, vec![]));
    queue.handle_completion(at(1), first.tag, Outcome::Done);
    assert_eq!(queue.submit(at(1), bio(Op::Read, s, 300, 8, 4)), Err(Refused::Full), "the place is the other's");
    assert!(queue.poll_dispatch(at(1), C0).is_some());
    assert_eq!(woken(&mut queue), [C0, C1]);
    assert_eq!(queue.poll_dispatch(at(1), C1), None, "its client has gone");
    assert_eq!(woken(&mut queue), [C0]);
    queue.submit(at(1), bio(Op::Read, s, 300, 8, 4)).unwrap();
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let (mut queue, s) = queue(|settings| {
        settings.limits = Limits { block: 8, discard_max: 0, ..Limits::new(1000) };
    });
    let mut refused = |bio| queue.submit(at(0), bio).unwrap_err().to_string();
    assert_eq!(refused(bio(Op::Read, s, 992, 16, 1)), "sectors 992 to 1008 asked of a disk of 1000");
    assert_eq!(
        refused(bio(Op::Read, s, u64::MAX - 7, 16, 1)),
        "sectors 18446744073709551608 to 18446744073709551615 asked of a disk of 1000"
    );
    assert_eq!(refused(bio(Op::Read, s, 4, 8, 1)), "4+8 is not whole blocks of 4096 bytes");
    assert_eq!(refused(bio(Op::Discard, s, 0, 8, 1)), "this device cannot discard");
    assert_eq!(refused(bio(Op::Write, s, 0, 0, 1)), "a request for nothing");
    let (mut queue, s) = self::queue(|settings| settings.limits = Limits::new(1001));
    queue.submit(at(0), bio(Op::Read, s, 993, 8, 1)).unwrap();
    assert!(queue.submit(at(0), bio(Op::Read, s, 994, 8, 1)).is_err());
}

#[test]
fn the_scheduler_can_be_changed_while_requests_wait() {
    let (mut queue, s) = queue(|settings| (settings.depth, settings.nr_requests) = (2, 16));
    for n in 0..10 {
        queue.submit(at(0), bio(Op::Read, s, 1000 - n * 100, 8, n)).unwrap();
    }
    let mut ended = 0;
    for round in 0..10 {
        queue.set_scheduler(at(round), if round % 2 == 0 { Kind::MqDeadline } else { Kind::None });
        let tags: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(at(round), C0)).map(|d| d.tag).collect();
        tags.into_iter().for_each(|tag| queue.handle_completion(at(round), tag, Outcome::Done));
        ended += news(&mut queue).len();
    }
    assert_eq!(ended, 10);
}

#[test]
fn a_change_of_scheduler_takes_over_what_a_higher_class_holds_back() {
    let (mut queue, be) = queue(|settings| settings.scheduler = Kind::MqDeadline);
    let class = PriorityClass::RealTime;
    let rt = queue.add_stream(Stream { priority: Priority { class, level: 0 }, ..stream(C0) });
    queue.submit(at(0), bio(Op::Read, rt, 0, 8, 1)).unwrap();
    queue.submit(at(0), bio(Op::Read, be, 800, 8, 2)).unwrap();
    assert_eq!(extents(&mut queue, at(0)), [(0, 8)], "the lower class waits for the higher one");
    queue.set_scheduler(at(1), Kind::None);
    assert_eq!(extents(&mut queue, at(1)), [(800, 8)]);
}

/// queue.14: eight are in flight, and two may be.
#[test]
fn with_a_smaller_depth_nothing_goes_until_fewer_are_in_flight_and_all_end() {
    let (mut queue, s) = queue(|settings| (settings.depth, settings.nr_requests) = (8, 16));
    for n in 0..12 {
        queue.submit(at(0), bio(Op::Read, s, n * 100, 8, n)).unwrap();
    }
    let tags: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(at(0), C0)).map(|d| d.tag).collect();
    queue.set_bounds(at(1), 2, 16);
    for (ended, tag) in (1..).zip(&tags) {
        queue.handle_completion(at(1), *tag, Outcome::Done);
        let next = queue.poll_dispatch(at(1), C0);
        assert_eq!(next.is_some(), ended > 6, "{ended} of 8 have ended");
        assert!(queue.load().in_flight <= 8 - ended.min(6));
    }
    assert_eq!((queue.load().in_flight, queue.load().waiting, news(&mut queue).len()), (2, 2, 8));
}

/// queue.14: there and back, and tags of both depths are told apart.
#[test]
fn with_a_greater_depth_more_go_at_once() {
    let (mut queue, s) = queue(|settings| (settings.depth, settings.nr_requests) = (2, 40));
    for n in 0..40 {
        queue.submit(at(0), bio(Op::Read, s, n * 100, 8, n)).unwrap();
    }
    assert_eq!(extents(&mut queue, at(0)).len(), 2);
    assert!(queue.load().lacks_tag);
    for depth in [20, 3, 33] {
        queue.set_bounds(at(1), depth, 40);
        extents(&mut queue, at(1));
        assert_eq!(queue.load().in_flight, depth.max(if depth == 3 { 20 } else { 0 }));
    }
    (0..33).for_each(|tag| queue.handle_completion(at(2), Tag(tag), Outcome::Done));
    assert_eq!((news(&mut queue).len(), extents(&mut queue, at(2)).len()), (33, 7));
}

/// queue.14: a context that was refused hears that there is room now.
#[test]
fn with_room_for_more_requests_whoever_was_refused_is_woken() {
    for kind in Kind::ALL {
        let (mut queue, s) =
            queue(|settings| (settings.scheduler, settings.depth, settings.nr_requests) = (kind, 1, 2));
        let fill = |queue: &mut Queue, until: u64| {
            let submitted = (0..).find(|n| queue.submit(at(0), bio(Op::Read, s, n * 100, 8, *n)).is_err());
            assert_eq!(submitted, Some(until), "{}", kind.name());
        };
        fill(&mut queue, 2);
        while queue.poll_wake().is_some() {}
        queue.set_bounds(at(0), 1, 50);
        assert_eq!(queue.poll_wake(), Some(C0), "{}", kind.name());
        fill(&mut queue, 48);
        queue.set_bounds(at(0), 1, 10);
        fill(&mut queue, 0);
        for left in (0..50).rev() {
            let next = queue.poll_dispatch(at(0), C0).unwrap();
            queue.handle_completion(at(0), next.tag, Outcome::Done);
            assert_eq!(queue.load().waiting, left, "{}", kind.name());
        }
        fill(&mut queue, 10);
    }
}

/// A backing that comes later has room for its flush too, and the scheduler for the number that a request then has.
#[test]
fn a_full_queue_has_room_for_a_flush_of_each_backing_that_has_come() {
    for kind in Kind::ALL {
        let (mut queue, s) =
            queue(|settings| (settings.scheduler, settings.depth, settings.nr_requests) = (kind, 4, 4));
        let backing = |n: u64| Backing { start: Sector(n * 1000), ..Backing::default() };
        (1..4).for_each(|n| queue.add_backing(&backing(n), Limits::new(1_000_000)));
        for n in 0..4 {
            let flush = Bio { extent: Extent::new(Sector(n * 1000), 0), ..bio(Op::Flush, s, 0, 0, n) };
            queue.submit(at(0), flush).unwrap();
        }
        let flushes: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(at(0), C0)).collect();
        assert_eq!(flushes.len(), 4);
        (0..4).for_each(|n| queue.submit(at(0), bio(Op::Read, s, n * 100, 8, 4 + n)).unwrap());
        flushes.iter().for_each(|flush| queue.handle_completion(at(1), flush.tag, Outcome::Done));
        assert_eq!(extents(&mut queue, at(1)).len(), 4, "{}", kind.name());
    }
}

/// queue.12: of what the scheduler before has sent, the next one hears how many that are, until they have ended.
#[test]
fn a_scheduler_that_takes_over_hears_how_many_requests_of_others_are_in_the_device() {
    let (mut queue, s) = queue(|settings| (settings.depth, settings.nr_requests) = (8, 16));
    for n in 0..6 {
        let op = if n == 0 { Op::Flush } else { Op::Read };
        queue.submit(at(0), bio(op, s, n * 100, if n == 0 { 0 } else { 8 }, n)).unwrap();
    }
    let tags: Vec<_> = (0..4).map(|_| queue.poll_dispatch(at(0), C0).unwrap().tag).collect();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let next = Listener(NoScheduler::new(20), Arc::clone(&heard));
    queue.take_over(at(1), Kind::None, Box::new(next));
    assert_eq!(*heard.lock().unwrap(), [3], "a flush is none of a scheduler's");
    queue.handle_completion(at(2), tags[0], Outcome::Done);
    queue.handle_completion(at(2), tags[1], Outcome::Failed(Errno::EIO));
    queue.handle_busy(at(2), tags[2]);
    queue.handle_completion(at(3), tags[3], Outcome::Done);
    assert_eq!(*heard.lock().unwrap(), [3, 2, 1, 0]);
    assert_eq!(extents(&mut queue, at(9)).len(), 3, "what was turned back, and what waited");
}

/// fair.11: two may be in the device, and the scheduler before has sent two.
#[test]
fn a_scheduler_that_takes_over_does_not_give_the_device_its_depth_once_more() {
    for kind in [Kind::Fair, Kind::Bfq] {
        let (mut queue, s) = queue(|settings| (settings.scheduler, settings.depth) = (kind, 16));
        let other = queue.add_stream(stream(C0));
        queue.set_tunable("device_depth", "2").unwrap();
        for n in 0..8 {
            queue.submit(at(0), bio(Op::Read, [s, other][n as usize % 2], n * 10_000, 8, n)).unwrap();
        }
        let tags: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(at(0), C0)).map(|d| d.tag).collect();
        assert_eq!(tags.len(), 2, "{}", kind.name());
        queue.set_scheduler(at(1), kind);
        queue.set_tunable("device_depth", "2").unwrap();
        assert_eq!(queue.poll_dispatch(at(1), C0), None, "{}", kind.name());
        queue.handle_completion(at(2), tags[0], Outcome::Done);
        assert_eq!(extents(&mut queue, at(2)).len(), 1, "{}", kind.name());
    }
}

/// queue.15: a disk that does its best with 64 requests at once, and is filled by two streams.
#[test]
fn what_a_scheduler_has_learned_of_the_disk_is_there_when_it_comes_back() {
    let found = |queue: &Queue| {
        let mut depth = 0;
        queue.counters(&mut |name, count| depth += if name == "device_depth" { count } else { 0 });
        depth
    };
    for (kind, other) in [(Kind::Fair, Kind::Bfq), (Kind::Bfq, Kind::Fair)] {
        let limits = Limits::new(1 << 30);
        let settings = Settings { depth: 64, ..Settings::new(kind, limits) };
        let first = found(&Queue::new(settings.clone()));
        let mut world = World::new(Queue::new(settings), Box::new(fixed_time(limits, us(500))));
        let (streams, mut random) = ([(); 2].map(|()| world.add_stream(stream(C0))), Random::new(3));
        for token in 0..200_000 {
            let start = random.below(1 << 27) * 8;
            while world.submit(bio(Op::Read, streams[token as usize % 2], start, 8, token)).is_err() {
                world.step();
            }
        }
        let now = world.now();
        let queue = world.queue();
        let known = found(queue);
        assert_ne!(known, first, "{} has learned something", kind.name());
        queue.set_scheduler(now, other);
        queue.set_scheduler(now, kind);
        assert_eq!(found(queue), known, "{}", kind.name());
        queue.set_scheduler(now, kind);
        assert_eq!(found(queue), known, "{} after {0}", kind.name());
        queue.set_bounds(now, 5, 100);
        assert!(found(queue) <= 5, "{} of 5", found(queue));
        world.run();
    }
}

/// What a scheduler around another one leaves to that.
macro_rules! as_its_first {
    () => {
        fn dispatch(&mut self, now: Instant) -> Next {
            self.0.dispatch(now)
        }

        fn requeue(&mut self, now: Instant, request: &Waiting) {
            self.0.requeue(now, request);
        }

        fn len(&self) -> usize {
            self.0.len()
        }

        fn resize(&mut self, capacity: usize, depth: u16) {
            self.0.resize(capacity, depth);
        }
    };
}

/// Says what it hears of others' requests.
struct Listener(NoScheduler, Arc<Mutex<Vec<u32>>>);

impl Scheduler for Listener {
    fn insert(&mut self, now: Instant, request: &Waiting) {
        self.0.insert(now, request);
    }

    as_its_first! {}

    fn set_others(&mut self, others: u32) {
        self.1.lock().unwrap().push(others);
    }
}

impl Membership for Listener {}

impl Merge for Listener {}

impl Charge for Listener {}

impl Tune for Listener {}

impl Report for Listener {}

#[test]
fn a_trace_tells_the_way_of_a_bio() {
    let (mut queue, s) = queue(|_| ());
    queue.keep_trace(16);
    queue.submit(at(0), bio(Op::Read, s, 0, 8, 1)).unwrap();
    let request = queue.poll_dispatch(at(1), C0).unwrap();
    queue.handle_completion(at(2), request.tag, Outcome::Done);
    let events = std::iter::from_fn(|| queue.trace().pop()).filter_map(Item::event);
    let actions: Vec<_> = events.map(|event| event.action).collect();
    let way = [Action::Queued, Action::Got, Action::Inserted, Action::Dispatched, Action::Completed];
    assert_eq!(actions, way);
}

#[test]
fn a_trace_has_what_the_scheduler_says_of_its_turns_also_after_another_is_chosen() {
    let (mut queue, s) = queue(|settings| settings.scheduler = Kind::Cfq);
    let other = queue.add_stream(Stream { group: GroupId::ROOT, priority: Priority::default(), context: C0 });
    let mut now = 0;
    let messages = |queue: &mut Queue, now: &mut u64| {
        for stream in [s, other, s, other] {
            queue.submit(at(*now), bio(Op::Read, stream, 8 * *now, 8, *now)).unwrap();
            while let Some(request) = queue.poll_dispatch(at(*now), C0) {
                *now += 1;
                queue.handle_completion(at(*now), request.tag, Outcome::Done);
            }
            *now += 100;
        }
        let items: Vec<_> = std::iter::from_fn(|| queue.trace().pop()).collect();
        let message =
            |item: &Item| if let Item::Message(message) = item { Some(message.note.to_string()) } else { None };
        items.iter().filter_map(message).collect::<Vec<_>>()
    };
    assert_eq!(messages(&mut queue, &mut now), [""; 0], "nobody listens");
    queue.keep_trace(100);
    let cfq = messages(&mut queue, &mut now);
    assert!(cfq.iter().any(|line| line.starts_with("sl_used=")), "{cfq:?}");
    queue.set_scheduler(at(now), Kind::Bfq);
    let bfq = messages(&mut queue, &mut now);
    assert!(bfq.iter().any(|line| line.starts_with("expire (")), "{bfq:?}");
    queue.keep_trace(0);
    assert_eq!(messages(&mut queue, &mut now), [""; 0], "nobody listens any more");
}

#[test]
fn what_a_removed_stream_did_still_counts_for_its_group() {
    let (mut queue, s) = queue(|_| ());
    queue.submit(at(0), bio(Op::Write, s, 0, 8, 1)).unwrap();
    let request = queue.poll_dispatch(at(0), C0).unwrap();
    queue.handle_completion(at(5), request.tag, Outcome::Done);
    queue.remove_stream(s);
    assert_eq!(queue.groups().stats_of(GroupId::ROOT).of(Op::Write).bytes, 4096);
    assert_eq!(queue.groups().stats().latency(Op::Write).unwrap().len(), 1);
}

/// A disk that is slow, fails and gets stuck by chance.
fn fickle(limits: Limits, seed: u64) -> Box<dyn Model> {
    let mut random = Random::new(seed);
    Box::new(given_times(limits, move |_, _, _| {
        let outcome = if random.below(20) == 0 { Outcome::Failed(Errno::EIO) } else { Outcome::Done };
        let time = if random.below(50) == 0 { secs(31) } else { us(random.below(5000)) };
        (time, outcome)
    }))
}

fairlift_lab::proptest! {
    /// queue.1, queue.2 and queue.14, over random loads, limits, bounds and devices, while streams move between groups and classes
    /// and schedulers take over; and the same seed gives the same run.
    #[test]
    fn every_bio_ends_exactly_once_and_every_sector_is_asked_for_once(
        seed in any::<u64>(),
        kind in prop::sample::select(Kind::ALL.to_vec()),
        nomerges in any::<bool>(),
        depth in 1u16..20,
        extra in 0u32..20,
        rw_max in 1u32..64,
        boundary in prop::sample::select(vec![0u64, 7, 64]),
        segments_max in 1u16..6,
    ) {
        let run = || {
            let limits = Limits { rw_max, boundary, segments_max, discard_max: 100, ..Limits::new(5000) };
            let group = |path: &str, weight| Group { path: path.into(), parent: Some(GroupId::ROOT), weight: Weight::new(weight) };
            let groups = vec![Group::root(), group("/a", 100), group("/b", 700)];
            let nr_requests = u32::from(depth) + extra;
            let settings = Settings { depth, nr_requests, nomerges, groups, ..Settings::new(kind, limits) };
            let mut world = World::new(Queue::new(settings), fickle(limits, seed));
            world.remember();
            world.check().watch_every(1);
            let mut random = Random::new(seed ^ 1);
            let streams: Vec<_> = (0..4).map(|_| world.add_stream(stream(C0))).collect();
            let mut submitted: BTreeMap<u64, Bio> = BTreeMap::new();
            let mut sectors = 0;
            let mut ends = Vec::new();
            let mut ended: BTreeMap<u64, u32> = BTreeMap::new();
            let (mut depth, mut before) = (depth, 0);
            for token in 0..200 {
                let op = [Op::Read, Op::Write, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes][random.below(6) as usize];
                // Few places, so that neighbours are common.
                let (start, len) = (random.below(200) * 8, 8 * (1 + random.below(5)));
                let bio = match op {
                    Op::Flush => bio(op, streams[0], 0, 0, token),
                    _ => bio(op, streams[random.below(4) as usize], start, len, token),
                };
                while let Err(refused) = world.submit(bio) {
                    assert_eq!(refused, Refused::Full);
                    ends.extend(world.step().expect("a full queue has something to do"));
                }
                sectors += bio.extent.sectors;
                submitted.insert(token, bio);
                if random.below(3) == 0 {
                    ends.extend(world.step().unwrap_or_default());
                }
                let now = world.now();
                match random.below(40) {
                    0..=3 => {
                        let group = GroupId(random.below(3) as u16);
                        let class = PriorityClass::ALL[random.below(3) as usize];
                        let place = Stream { group, priority: Priority { class, level: 4 }, context: C0 };
                        world.queue().change_stream(now, streams[random.below(4) as usize], place);
                    }
                    4 => world.queue().set_scheduler(now, Kind::ALL[random.below(Kind::ALL.len() as u64) as usize]),
                    5 => world.queue().set_weight(now, GroupId(1), Weight::new(1 + random.below(1000) as u16)),
                    6 | 7 => {
                        (depth, before) = (1 + random.below(30) as u16, world.queue().load().in_flight);
                        world.queue().set_bounds(now, depth, u32::from(depth) + random.below(30) as u32);
                    }
                    _ => {}
                }
                before = before.min(world.queue().load().in_flight);
                assert!(world.queue().load().in_flight <= depth.max(before), "queue.14");
            }
            ends.extend(world.run());
            for end in &ends {
                *ended.entry(end.token.0).or_default() += 1;
            }
            assert_eq!(ended.len(), submitted.len(), "every bio ends");
            assert!(ended.values().all(|times| *times == 1), "and once");
            assert_eq!((world.queue().load().in_flight, world.queue().load().waiting), (0, 0));
            let dispatched: u64 = world.dispatched().iter().map(|d| d.extent.sectors).sum();
            assert_eq!(dispatched, sectors, "no sector is asked for twice or forgotten");
            let limits = world.queue().settings().limits;
            for request in world.dispatched().iter().filter(|d| d.op != Op::Flush) {
                assert!(limits.fits(request.op, request.extent), "{request:?} is more than the device takes");
            }
            streams.into_iter().for_each(|s| world.queue().remove_stream(s));
            ends
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn what_a_scheduler_counts_is_told_beside_what_the_queue_does() {
    let settings = Settings::new(Kind::None, Limits::new(1_000_000));
    let mut queue = Queue::new(settings);
    queue.take_over(at(0), Kind::None, Box::new(Counting(NoScheduler::new(0), 0)));
    let s = queue.add_stream(stream(C0));
    for n in 0..3 {
        queue.submit(at(0), bio(Op::Read, s, n * 100, 8, n)).unwrap();
    }
    assert_eq!(extents(&mut queue, at(0)).len(), 3);
    let mut counters = BTreeMap::new();
    queue.counters(&mut |name, count| assert_eq!(counters.insert(name, count), None));
    assert_eq!(counters, BTreeMap::from([("merges", 0), ("inserted", 3)]));
}

/// Counts what it is given.
struct Counting(NoScheduler, u64);

impl Scheduler for Counting {
    fn insert(&mut self, now: Instant, request: &Waiting) {
        self.1 += 1;
        self.0.insert(now, request);
    }

    as_its_first! {}
}

impl Membership for Counting {}

impl Merge for Counting {}

impl Charge for Counting {}

impl Tune for Counting {}

impl Report for Counting {
    fn counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        tell("inserted", self.1);
    }
}
