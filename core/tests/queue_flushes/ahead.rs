//! Writes that are made durable ahead of the flush that will ask for it (sequence.6).

use super::*;

/// A write and a flush: the flags that the write goes with, and whether the flush goes to the device.
fn commit(queue: &mut Queue, stream: StreamId, token: u64) -> (Flags, bool) {
    ask(queue, at(token), Op::Write, Flags::NONE, stream, token).unwrap();
    let write = next(queue, at(token));
    queue.handle_completion(at(token), write.tag, DONE);
    flush(queue, at(token), stream, token + 1);
    let flush = queue.poll_dispatch(at(token), C0);
    flush.iter().for_each(|flush| queue.handle_completion(at(token), flush.tag, DONE));
    assert_eq!(news(queue), [done(token), done(token + 1)]);
    (write.flags, flush.is_some())
}

/// A queue whose stream has had the habit of flushing after each write for four times.
fn with_habit(change: impl FnOnce(&mut Settings)) -> (Queue, Vec<StreamId>) {
    let (mut queue, s) = queue(2, change);
    (0..4).for_each(|n| assert_eq!(commit(&mut queue, s[0], n * 10), (Flags::NONE, true)));
    (queue, s)
}

/// The flags with which the next write of the stream goes to the device.
fn flags_of_a_write(queue: &mut Queue, stream: StreamId, token: u64) -> Flags {
    ask(queue, at(token), Op::Write, Flags::NONE, stream, token).unwrap();
    next(queue, at(token)).flags
}

fn is_durable(flags: Flags) -> bool {
    flags.contains(Flags::FUA)
}

/// sequence.6
#[test]
fn a_stream_that_flushes_after_each_write_has_the_next_made_durable_at_once() {
    let (mut queue, s) = with_habit(|_| ());
    for n in 4..8 {
        let (flags, flushed) = commit(&mut queue, s[0], n * 10);
        assert!(is_durable(flags) && !flushed, "{n}: {flags:?}, {flushed}");
    }
}

/// sequence.6
#[test]
fn a_write_is_not_made_durable_at_once_for_nothing() {
    let (mut backing, s) = with_habit(|settings| settings.backings[0].fua = false);
    assert!(!is_durable(flags_of_a_write(&mut backing, s[0], 90)), "the backing cannot do it");
    let (mut off, s) = with_habit(|settings| settings.flush.ahead = false);
    assert!(!is_durable(flags_of_a_write(&mut off, s[0], 90)), "it is turned off");
    let (mut other, s) = with_habit(|_| ());
    assert!(!is_durable(flags_of_a_write(&mut other, s[1], 90)), "another stream has no such habit");
    let (mut company, s) = with_habit(|_| ());
    let submitted = [(s[0], 90), (s[1], 91)];
    submitted
        .iter()
        .for_each(|(stream, token)| ask(&mut company, at(90), Op::Write, Flags::NONE, *stream, *token).unwrap());
    let writes = submitted.map(|_| next(&mut company, at(90)));
    writes.iter().for_each(|write| company.handle_completion(at(91), write.tag, DONE));
    submitted.iter().for_each(|(stream, token)| flush(&mut company, at(91), *stream, token + 2));
    while let Some(flush) = company.poll_dispatch(at(92), C0) {
        company.handle_completion(at(92), flush.tag, DONE);
    }
    assert!(!is_durable(flags_of_a_write(&mut company, s[0], 94)), "others who flush share the next one too");
    let (mut unflushed, s) = with_habit(|_| ());
    ask(&mut unflushed, at(90), Op::Write, Flags::NONE, s[1], 90).unwrap();
    let write = next(&mut unflushed, at(90));
    unflushed.handle_completion(at(91), write.tag, DONE);
    assert!(!is_durable(flags_of_a_write(&mut unflushed, s[0], 92)), "a flush is needed all the same");
    let (mut busy, s) = with_habit(|_| ());
    ask(&mut busy, at(90), Op::Read, Flags::NONE, s[1], 90).unwrap();
    next(&mut busy, at(90));
    assert!(!is_durable(flags_of_a_write(&mut busy, s[0], 91)), "others wait, who are to know of the flush");
    let (mut twice, s) = with_habit(|_| ());
    assert!(is_durable(flags_of_a_write(&mut twice, s[0], 90)));
    assert!(!is_durable(flags_of_a_write(&mut twice, s[0], 91)), "two writes, and no flush between");
}

/// sequence.6, flush.10
#[test]
fn a_write_that_was_to_be_durable_and_fails_is_a_flush_that_failed_but_for_want_of_space() {
    let lost = Outcome::Failed(Errno::EIO);
    for (errno, told) in [(Errno::EIO, lost), (Errno::ENOSPC, DONE), (Errno::EDQUOT, DONE), (Errno::EFBIG, DONE)] {
        let (mut queue, s) = with_habit(|_| ());
        ask(&mut queue, at(90), Op::Write, Flags::NONE, s[0], 90).unwrap();
        let write = next(&mut queue, at(90));
        queue.handle_completion(at(91), write.tag, Outcome::Failed(errno));
        assert_eq!(news(&mut queue), [Finished::Done(Token(90), Outcome::Failed(errno))]);
        for token in [91, 92] {
            flush(&mut queue, at(93), s[0], token);
            if let Some(flush) = queue.poll_dispatch(at(93), C0) {
                queue.handle_completion(at(94), flush.tag, DONE);
            }
            assert_eq!(news(&mut queue), [Finished::Done(Token(token), told)]);
        }
    }
}

/// flush.10
#[test]
fn a_flush_of_another_stream_waits_until_a_durable_write_has_ended() {
    let (mut queue, s) = with_habit(|_| ());
    ask(&mut queue, at(90), Op::Write, Flags::NONE, s[0], 90).unwrap();
    let ahead = next(&mut queue, at(90));
    ask(&mut queue, at(90), Op::Write, Flags::NONE, s[1], 91).unwrap();
    let write = next(&mut queue, at(90));
    queue.handle_completion(at(91), write.tag, DONE);
    flush(&mut queue, at(91), s[1], 92);
    assert_eq!((news(&mut queue), queue.poll_dispatch(at(91), C0)), (vec![done(91)], None));
    queue.handle_completion(at(92), ahead.tag, DONE);
    assert_eq!((news(&mut queue), next(&mut queue, at(92)).op), (vec![done(90)], Op::Flush));
}

/// sequence.6, queue.6, queue.7
#[test]
fn a_durable_write_that_hangs_holds_no_flush_up_once_the_device_has_answered() {
    let answers = [Some(Outcome::Failed(Errno::EIO)), Some(DONE), None];
    for (answer, told) in answers.into_iter().zip([Outcome::Failed(Errno::EIO), DONE, DONE]) {
        let (mut queue, s) = with_habit(|settings| settings.io_timeout = secs(30));
        ask(&mut queue, at(90), Op::Write, Flags::NONE, s[0], 90).unwrap();
        let write = next(&mut queue, at(90));
        queue.handle_timeout(at(31_000));
        assert_eq!(news(&mut queue), [Finished::TimedOut(Token(90))]);
        flush(&mut queue, at(32_000), s[0], 91);
        assert_eq!(queue.poll_dispatch(at(32_000), C0), None);
        match answer {
            Some(outcome) => queue.handle_completion(at(32_000), write.tag, outcome),
            None => queue.handle_busy(at(32_000), write.tag),
        }
        if let Some(flush) = queue.poll_dispatch(at(33_000), C0) {
            queue.handle_completion(at(33_000), flush.tag, DONE);
        }
        let mut all = news(&mut queue);
        all.sort_by_key(|news| matches!(news, Finished::Done(..)));
        assert_eq!(all, [Finished::Released(Token(90)), Finished::Done(Token(91), told)]);
    }
}

/// flush.10: what another stream has written meanwhile may be what there was no room for.
#[test]
fn a_lack_of_space_is_the_writes_own_only_if_nothing_else_was_written() {
    let (mut queue, s) = with_habit(|_| ());
    ask(&mut queue, at(90), Op::Write, Flags::NONE, s[0], 90).unwrap();
    let ahead = next(&mut queue, at(90));
    ask(&mut queue, at(90), Op::Write, Flags::NONE, s[1], 91).unwrap();
    let other = next(&mut queue, at(90));
    queue.handle_completion(at(91), other.tag, DONE);
    queue.handle_completion(at(92), ahead.tag, Outcome::Failed(Errno::ENOSPC));
    news(&mut queue);
    flush(&mut queue, at(93), s[1], 92);
    let flush = next(&mut queue, at(93));
    queue.handle_completion(at(94), flush.tag, DONE);
    assert_eq!(news(&mut queue), [Finished::Done(Token(92), Outcome::Failed(Errno::ENOSPC))]);
}

/// sequence.6: it is decided when the write goes to the device.
#[test]
fn a_write_that_waits_for_its_turn_holds_no_flush_up() {
    let (mut queue, s) = with_habit(|settings| (settings.scheduler, settings.depth) = (Kind::MqDeadline, 1));
    ask(&mut queue, at(80), Op::Read, Flags::NONE, s[1], 80).unwrap();
    let read = next(&mut queue, at(80));
    queue.handle_completion(at(81), read.tag, DONE);
    assert_eq!(news(&mut queue), [done(80)]);
    ask(&mut queue, at(90), Op::Write, Flags::NONE, s[0], 90).unwrap();
    ask(&mut queue, at(90), Op::Read, Flags::NONE, s[1], 91).unwrap();
    let read = next(&mut queue, at(90));
    assert_eq!(read.op, Op::Read);
    flush(&mut queue, at(90), s[1], 92);
    assert_eq!((queue.poll_dispatch(at(90), C0), news(&mut queue)), (None, vec![done(92)]), "nothing is unflushed");
    ask(&mut queue, at(90), Op::Read, Flags::NONE, s[1], 93).unwrap();
    queue.handle_completion(at(91), read.tag, DONE);
    while let Some(dispatch) = queue.poll_dispatch(at(91), C0) {
        assert!(!is_durable(dispatch.flags) || queue.load().waiting == 0, "{dispatch:?}");
        queue.handle_completion(at(91), dispatch.tag, DONE);
    }
    assert_eq!(news(&mut queue).len(), 3);
}

/// queue.17: a flush, or a durable write, that never ends says nothing of what others cost.
#[test]
fn a_flush_that_never_ends_makes_no_discards_free() {
    for is_ahead in [false, true] {
        let (mut queue, s) = with_habit(|settings| {
            settings.io_timeout = secs(30);
            settings.scheduler = Kind::Fair;
            let group = |path: &str| Group { path: path.into(), parent: Some(GroupId::ROOT), weight: Weight::new(100) };
            settings.groups.extend(["/reads", "/discards"].map(group));
        });
        queue.set_tunable("device_depth", "2").unwrap();
        let [reads, discards] = [1, 2].map(|group| {
            queue.add_stream(Stream { group: GroupId(group), priority: Priority::default(), context: C0 })
        });
        for token in [90, 91] {
            ask(&mut queue, at(90), Op::Write, Flags::NONE, s[0], token).unwrap();
            let write = next(&mut queue, at(90));
            if is_ahead {
                break;
            }
            queue.handle_completion(at(90), write.tag, DONE);
        }
        if !is_ahead {
            flush(&mut queue, at(91), s[0], 92);
            assert_eq!(next(&mut queue, at(91)).op, Op::Flush);
        }
        queue.handle_timeout(at(31_000));
        news(&mut queue);
        // One at a time: a read takes 0.1 ms, a discard 5 ms.
        let (mut now, mut token, mut spent) = (at(31_000), 0, [Duration::ZERO; 2]);
        let mut ask_again = |queue: &mut Queue, now, which: usize| {
            token = 100 + (token + 1) % 1000;
            let (op, stream) = [(Op::Read, reads), (Op::Discard, discards)][which];
            ask(queue, now, op, Flags::NONE, stream, token).unwrap();
        };
        (0..16).for_each(|number| ask_again(&mut queue, now, number % 2));
        while now < at(41_000) {
            queue.handle_timeout(now);
            let Some(dispatch) = queue.poll_dispatch(now, C0) else {
                now = queue.poll_timeout().unwrap();
                continue;
            };
            let (which, takes) = if dispatch.op == Op::Read { (0, us(100)) } else { (1, ms(5)) };
            (now, spent[which]) = (now + takes, spent[which] + takes);
            queue.handle_completion(now, dispatch.tag, DONE);
            ask_again(&mut queue, now, which);
        }
        let part = spent[1].as_nanos() as f64 / (spent[0] + spent[1]).as_nanos() as f64;
        assert!((0.3..0.8).contains(&part), "discards had {part:.2} of the time");
    }
}

/// sequence.4, sequence.6
#[test]
fn a_write_that_was_made_durable_at_once_is_charged_as_a_flush() {
    for (charge, wanted) in [(true, vec![(1, 1, 7000)]), (false, vec![])] {
        let (mut queue, s, charges) = charged(charge, |_| ());
        (0..4).for_each(|n| assert_eq!(commit(&mut queue, s[1], n * 10), (Flags::NONE, true)));
        charges.lock().unwrap().clear();
        ask(&mut queue, at(90), Op::Write, Flags::NONE, s[1], 90).unwrap();
        let write = next(&mut queue, at(90));
        queue.handle_completion(at(97), write.tag, DONE);
        assert_eq!((is_durable(write.flags), charges.lock().unwrap().clone()), (true, wanted));
    }
}

/// sequence.6: whatever happens to such a write, flushes go on after it.
#[test]
fn a_durable_write_that_is_turned_back_or_moves_or_outlives_its_scheduler_leaves_flushes_free() {
    const MOVED: Stream =
        Stream { group: GroupId(1), priority: Priority { class: PriorityClass::BestEffort, level: 4 }, context: C0 };
    type Act = dyn Fn(&mut Queue, StreamId, Tag) -> Tag;
    let acts: [&Act; 4] = [
        &|queue, _, tag| {
            queue.handle_busy(at(91), tag);
            next(queue, at(200)).tag
        },
        &|queue, _, tag| {
            queue.set_scheduler(at(91), Kind::MqDeadline);
            tag
        },
        &|queue, stream, tag| {
            queue.change_stream(at(91), stream, MOVED);
            queue.handle_busy(at(91), tag);
            next(queue, at(200)).tag
        },
        &|queue, _, tag| {
            queue.set_scheduler(at(91), Kind::Fair);
            queue.handle_busy(at(91), tag);
            queue.handle_timeout(at(200));
            next(queue, at(200)).tag
        },
    ];
    for (number, act) in acts.iter().enumerate() {
        let (mut queue, s) = with_habit(|settings| {
            settings.groups.push(Group { path: "/a".into(), parent: Some(GroupId::ROOT), weight: Weight::new(100) });
        });
        ask(&mut queue, at(90), Op::Write, Flags::NONE, s[0], 90).unwrap();
        let write = next(&mut queue, at(90));
        assert!(is_durable(write.flags), "{number}");
        let tag = act(&mut queue, s[0], write.tag);
        queue.handle_completion(at(201), tag, DONE);
        ask(&mut queue, at(202), Op::Write, Flags::NONE, s[1], 91).unwrap();
        let other = next(&mut queue, at(202));
        queue.handle_completion(at(203), other.tag, DONE);
        flush(&mut queue, at(203), s[1], 92);
        let last = next(&mut queue, at(203));
        assert_eq!(last.op, Op::Flush, "{number}");
        queue.handle_completion(at(204), last.tag, DONE);
        assert_eq!(news(&mut queue), [done(90), done(91), done(92)], "{number}");
    }
}
