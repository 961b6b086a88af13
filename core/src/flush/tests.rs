//! Scenarios, one rule each.

use alloc::vec::Vec;

use super::*;
use crate::time::ms;

const C0: ContextId = ContextId(0);
const C1: ContextId = ContextId(1);
const EIO: Outcome = Outcome::Failed(Errno::EIO);

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

/// Where nobody waits for company, unless the test says so.
fn flush(change: impl FnOnce(&mut Settings)) -> Flush {
    let mut settings = Settings { group_commit: 0, ..Settings::default() };
    change(&mut settings);
    Flush::new(settings, true)
}

fn plain() -> Flush {
    flush(|_| ())
}

/// Starts and ends one, which takes a millisecond.
fn run(flush: &mut Flush, from: u64, outcome: Outcome) {
    assert_eq!(flush.poll_start(at(from)), Start::Now);
    flush.start(at(from));
    flush.end(at(from + 1), outcome);
}

/// flush.3
#[test]
fn a_lone_flush_goes_straight_down() {
    let mut flush = flush(|settings| settings.group_commit = 500);
    for n in 0..5 {
        let round = flush.ask(at(10 * n), C0);
        run(&mut flush, 10 * n, Outcome::Done);
        assert_eq!(flush.take(round), Some(Outcome::Done));
        flush.dirty().mark();
    }
    assert_eq!((flush.counts().sent, flush.counts().waits), (5, 0));
}

/// flush.1, flush.2
#[test]
fn who_asks_during_a_flush_shares_the_next() {
    let mut flush = plain();
    let first = flush.ask(at(0), C0);
    flush.poll_start(at(0));
    flush.start(at(0));
    let later: Vec<_> = (0..1000).map(|_| flush.ask(at(0), C0)).collect();
    assert_eq!(flush.poll_start(at(0)), Start::No, "one at a time");
    flush.dirty().mark();
    flush.end(at(1), Outcome::Done);
    assert_eq!(flush.take(first), Some(Outcome::Done));
    assert!(later.iter().all(|round| flush.take(*round).is_none()), "they asked after it had started");
    run(&mut flush, 1, Outcome::Done);
    assert!(later.iter().all(|round| flush.take(*round) == Some(Outcome::Done)));
    assert_eq!((flush.counts().requested, flush.counts().sent), (1001, 2));
}

/// flush.4: the seed's hard spot: the next one has come and gone before those of the first look.
#[test]
fn an_error_reaches_those_who_shared_it_and_nobody_else() {
    let mut flush = flush(|settings| settings.remember = false);
    let rounds: Vec<[Round; 2]> = [EIO, Outcome::Done, EIO, Outcome::Done]
        .into_iter()
        .zip(0..)
        .map(|(outcome, n)| {
            flush.dirty().mark();
            let pair = [flush.ask(at(n), C0), flush.ask(at(n), C1)];
            run(&mut flush, n, outcome);
            pair
        })
        .collect();
    for (pair, outcome) in rounds.iter().zip([EIO, Outcome::Done, EIO, Outcome::Done]) {
        assert_eq!(pair.map(|round| flush.take(round)), [Some(outcome); 2]);
    }
    assert!(flush.failures.is_empty(), "nothing is kept of what all have seen");
}

/// flush.5
#[test]
fn who_gives_up_disturbs_nobody() {
    let mut flush = plain();
    let (one, two) = (flush.ask(at(0), C0), flush.ask(at(0), C1));
    flush.cancel(one);
    assert_eq!(flush.poll_start(at(0)), Start::Now);
    flush.cancel(two);
    assert_eq!(flush.poll_start(at(0)), Start::No, "nobody is left who wants one");
    let (one, two) = (flush.ask(at(1), C0), flush.ask(at(1), C1));
    flush.poll_start(at(1));
    flush.start(at(1));
    flush.cancel(one);
    flush.end(at(2), EIO);
    assert_eq!(flush.take(two), Some(EIO));
    assert!(flush.failures.is_empty());
}

/// flush.6
#[test]
fn a_flush_that_finds_nothing_written_is_not_sent() {
    let mut flush = plain();
    flush.ask(at(0), C0);
    run(&mut flush, 0, Outcome::Done); // what was there before us
    let round = flush.ask(at(5), C1);
    assert_eq!(flush.poll_start(at(5)), Start::Spared(Contexts(0b10)));
    assert_eq!(flush.take(round), Some(Outcome::Done));
    flush.dirty().mark();
    flush.ask(at(6), C0);
    assert_eq!(flush.poll_start(at(6)), Start::Now);
    assert_eq!((flush.counts().sent, flush.counts().spared), (1, 1));
}

/// flush.6
#[test]
fn what_is_written_during_a_flush_is_left_for_the_next() {
    let mut flush = plain();
    flush.ask(at(0), C0);
    flush.poll_start(at(0));
    flush.start(at(0));
    flush.dirty().mark();
    flush.ask(at(1), C0);
    flush.end(at(2), Outcome::Done);
    assert_eq!(flush.poll_start(at(2)), Start::Now);
}

/// flush.7
#[test]
fn after_a_failed_flush_all_fail_until_somebody_takes_note() {
    let mut flush = plain();
    for (n, outcome) in [(0, EIO), (10, Outcome::Done), (20, Outcome::Done)] {
        let round = flush.ask(at(n), C0);
        run(&mut flush, n, outcome); // it is sent all the same, written or not
        assert_eq!(flush.take(round), Some(EIO));
    }
    flush.acknowledge();
    flush.dirty().mark();
    let round = flush.ask(at(30), C0);
    run(&mut flush, 30, Outcome::Done);
    assert_eq!(flush.take(round), Some(Outcome::Done));
}

/// flush.7
#[test]
fn where_a_retry_means_something_it_is_made() {
    let mut flush = flush(|settings| settings.remember = false);
    flush.ask(at(0), C0);
    run(&mut flush, 0, EIO);
    let round = flush.ask(at(10), C0);
    assert_eq!(
        flush.poll_start(at(10)),
        Start::Now,
        "what failed is still to be flushed, though nothing was written since"
    );
    flush.start(at(10));
    flush.end(at(11), Outcome::Done);
    assert_eq!(flush.take(round), Some(Outcome::Done));
}

/// flush.8
#[test]
fn without_a_volatile_cache_none_is_sent() {
    let mut flush = Flush::new(Settings::default(), false);
    let round = flush.ask(at(0), C0);
    assert!(matches!(flush.poll_start(at(0)), Start::Spared(_)));
    assert_eq!(flush.take(round), Some(Outcome::Done));
}

/// Counts of threads that write and flush in a loop.
struct Crowd {
    requested: u64,
    sent: u64,
    waits: u64,
    millis: u64,
}

/// Threads that write for `think` and flush, for a number of flushes; a flush takes `took`, and starts once `held` is over.
fn crowd_on(
    (took, held): (impl Fn(u64) -> u64, u64),
    threads: usize,
    think: impl Fn(usize) -> u64,
    runs: usize,
    group_commit: u32,
) -> Crowd {
    let mut flush = flush(|settings| settings.group_commit = group_commit);
    let mut next: Vec<Option<u64>> = (0..threads).map(|thread| Some(think(thread))).collect();
    let mut waiting: Vec<(usize, Round)> = Vec::new();
    let (mut now, mut end, mut free) = (0, None, 0);
    let mut sent = 0;
    while sent < runs {
        for (thread, due) in next.iter_mut().enumerate() {
            if due.is_some_and(|due| due <= now) {
                *due = None;
                flush.dirty().mark();
                waiting.push((thread, flush.ask(at(now), C0)));
            }
        }
        if end == Some(now) {
            flush.end(at(now), Outcome::Done);
            (end, free) = (None, now + held);
            waiting.retain(|(thread, round)| {
                let ended = flush.take(*round).is_some();
                if ended {
                    next[*thread] = Some(now + think(*thread));
                }
                !ended
            });
        }
        let start = flush.poll_start(at(now));
        if now < free && start != Start::No {
            flush.hold(at(now));
        } else if start == Start::Now {
            flush.start(at(now));
            end = Some(now + took(now));
            sent += 1;
        }
        now += 1;
    }
    let Counts { requested, sent, waits, .. } = flush.counts();
    Crowd { requested, sent, waits, millis: now }
}

/// The same, where each flush takes 10 ms: flushes asked and sent, and waits.
fn crowd(threads: usize, think: impl Fn(usize) -> u64, runs: usize, group_commit: u32) -> (u64, u64, u64) {
    let Crowd { requested, sent, waits, .. } = crowd_on((|_| 10, 0), threads, think, runs, group_commit);
    (requested, sent, waits)
}

/// commit.1, commit.2
#[test]
fn threads_that_come_back_at_once_share_every_flush() {
    let (requested, sent, _) = crowd(16, |thread| 1 + thread as u64 % 2, 2000, 250);
    assert!(requested > 15 * sent, "{requested} asked, {sent} sent");
    let (requested, sent, waits) = crowd(16, |thread| 1 + thread as u64 % 2, 200, 0);
    assert!(
        requested < 9 * sent && waits == 0,
        "without company they part into two crowds: {requested} asked, {sent} sent"
    );
}

/// commit.3
#[test]
fn a_wait_that_does_not_pay_is_seldom_tried_again() {
    // Two threads come back late: the wait for them brings none.
    let (_, sent, waits) = crowd(2, |thread| [7, 9][thread], 2000, 250);
    assert!(waits * 10 < sent, "{waits} waits for {sent} flushes");
}

/// commit.3: a flush takes at least 6 ms and ends with a turn of 8 ms. A flush that waits for all four threads misses a turn.
#[test]
fn a_wait_that_brings_all_and_misses_a_turn_is_not_kept() {
    let rate = |group_commit| {
        let turn = |now: u64| (now + 6).next_multiple_of(8) - now;
        let crowd = crowd_on((turn, 0), 4, |thread| [1, 4, 5, 5][thread], 4000, group_commit);
        crowd.requested * 1000 / crowd.millis
    };
    let (with, without) = (rate(250), rate(0));
    assert!(with * 20 > without * 19, "{with} a second where flushes may wait, {without} where none does");
}

/// commit.3
#[test]
fn flushes_that_are_held_back_say_nothing_of_waits() {
    let think = |thread| 1 + thread as u64 % 4;
    let held = crowd_on((|_| 10, 2), 16, think, 500, 250);
    assert_eq!(held.waits, 0, "the way that is kept is that without waits, for none was tried");
    assert!(crowd_on((|_| 10, 0), 16, think, 500, 250).waits > 0);
}

/// commit.4
#[test]
fn where_a_flush_takes_next_to_nothing_nobody_waits() {
    let mut flush = flush(|settings| (settings.group_commit, settings.group_commit_min) = (500, ms(20)));
    for n in 0..10 {
        flush.ask(at(n * 10), C0);
        flush.poll_start(at(n * 10));
        flush.start(at(n * 10));
        flush.ask(at(n * 10), C0);
        flush.dirty().mark();
        flush.end(at(n * 10 + 9), Outcome::Done);
    }
    assert_eq!(flush.counts().waits, 0);
}

/// flush.10
#[test]
fn one_write_is_made_durable_ahead_of_its_flush_at_a_time_and_none_beside_a_flush() {
    let mut flush = plain();
    let first = flush.ask(at(0), C0);
    assert!(!flush.begin_ahead(), "a flush is asked for");
    run(&mut flush, 0, Outcome::Done);
    assert_eq!(flush.take(first), Some(Outcome::Done));
    assert!(flush.begin_ahead() && !flush.begin_ahead());
    flush.dirty().mark();
    let second = flush.ask(at(2), C1);
    assert_eq!(flush.poll_start(at(2)), Start::No);
    assert_eq!(flush.end_ahead(Outcome::Done, true), Contexts(1 << C1.0));
    assert!(!flush.begin_ahead());
    run(&mut flush, 3, Outcome::Done);
    assert_eq!(flush.take(second), Some(Outcome::Done));
    assert!(flush.begin_ahead());
    flush.end_ahead(EIO, true);
    assert!(!flush.begin_ahead(), "what was written may be lost");
}
