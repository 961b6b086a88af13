//! The queue's flushes, one scenario each (sequence.1–5; sequence.6 is in `ahead`); against a dull model they are in `flush.rs`.

mod ahead;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use fairlift_core::flush::{self, Flush, SharedFlush};
use fairlift_core::queue::{Backing, Settings};
use fairlift_core::sched::none::None as NoScheduler;
use fairlift_core::sched::traits::*;
use fairlift_core::sched::{Kind, Next, RequestId, Waiting};
use fairlift_core::time::{ms, secs, us};
use fairlift_core::*;

const C0: ContextId = ContextId(0);
const DONE: Outcome = Outcome::Done;

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::new(Kind::None, Limits::new(1_000_000));
    settings.flush.group_commit = 0;
    change(&mut settings);
    settings
}

/// A queue, and so many streams, each in the group of its number, if there are so many.
fn queue(streams: usize, change: impl FnOnce(&mut Settings)) -> (Queue, Vec<StreamId>) {
    let mut queue = Queue::new(settings(change));
    let streams = add_streams(&mut queue, streams);
    (queue, streams)
}

fn add_streams(queue: &mut Queue, count: usize) -> Vec<StreamId> {
    let groups = queue.settings().groups.len();
    let group = |number: usize| GroupId(number.min(groups - 1) as u16);
    let stream = |number| Stream { group: group(number), priority: Priority::default(), context: C0 };
    (0..count).map(|number| queue.add_stream(stream(number))).collect()
}

fn ask(queue: &mut Queue, now: Instant, op: Op, flags: Flags, stream: StreamId, token: u64) -> Result<(), Refused> {
    let extent = if op == Op::Flush { Extent::NONE } else { Extent::new(Sector(token * 64), 8) };
    queue.submit(now, Bio { op, flags, extent, stream, token: Token(token) })
}

fn flush(queue: &mut Queue, now: Instant, stream: StreamId, token: u64) {
    ask(queue, now, Op::Flush, Flags::NONE, stream, token).unwrap();
}

fn next(queue: &mut Queue, now: Instant) -> Dispatch {
    queue.poll_dispatch(now, C0).expect("something is to go")
}

fn news(queue: &mut Queue) -> Vec<Finished> {
    std::iter::from_fn(|| queue.poll_finished(C0)).collect()
}

fn done(token: u64) -> Finished {
    Finished::Done(Token(token), DONE)
}

/// sequence.1
#[test]
fn a_thousand_flushes_are_one_though_there_is_one_request_and_one_tag() {
    let (mut queue, s) = queue(1, |settings| (settings.depth, settings.nr_requests) = (1, 256));
    (0..1000).for_each(|token| flush(&mut queue, at(0), s[0], token));
    let one = next(&mut queue, at(0));
    assert_eq!((one.op, queue.poll_dispatch(at(0), C0)), (Op::Flush, None));
    queue.handle_completion(at(5), one.tag, DONE);
    assert_eq!(news(&mut queue), (0..1000).map(done).collect::<Vec<_>>());
    assert_eq!((queue.load().in_flight, queue.load().waiting), (0, 0));
}

/// sequence.1
#[test]
fn a_full_table_holds_no_flush_up() {
    let (mut queue, s) = queue(1, |settings| (settings.depth, settings.nr_requests) = (2, 2));
    ask(&mut queue, at(0), Op::Read, Flags::NONE, s[0], 0).unwrap();
    next(&mut queue, at(0));
    ask(&mut queue, at(0), Op::Read, Flags::NONE, s[0], 1).unwrap();
    flush(&mut queue, at(0), s[0], 2);
    assert_eq!(ask(&mut queue, at(0), Op::Read, Flags::NONE, s[0], 3), Err(Refused::Full));
    assert_eq!(next(&mut queue, at(0)).op, Op::Flush);
}

/// sequence.2
#[test]
fn what_a_backing_cannot_make_durable_by_itself_is_followed_by_a_flush() {
    let (mut queue, s) = queue(1, |settings| settings.backings[0].fua = false);
    ask(&mut queue, at(0), Op::Write, Flags::FUA, s[0], 1).unwrap();
    let data = next(&mut queue, at(0));
    assert_eq!((data.op, data.flags), (Op::Write, Flags::NONE));
    queue.handle_completion(at(1), data.tag, DONE);
    assert_eq!(news(&mut queue), []);
    let after = next(&mut queue, at(1));
    assert_eq!(after.op, Op::Flush);
    queue.handle_completion(at(2), after.tag, DONE);
    assert_eq!(news(&mut queue), [done(1)]);
}

/// sequence.2
#[test]
fn what_a_backing_can_make_durable_by_itself_is_asked_of_it() {
    let (mut queue, s) = queue(1, |settings| settings.backings[0].fua = true);
    ask(&mut queue, at(0), Op::Write, Flags::FUA, s[0], 1).unwrap();
    let data = next(&mut queue, at(0));
    assert_eq!((data.op, data.flags), (Op::Write, Flags::FUA));
    queue.handle_completion(at(1), data.tag, DONE);
    assert_eq!((news(&mut queue), queue.poll_dispatch(at(1), C0)), (vec![done(1)], None));
}

/// sequence.2
#[test]
fn a_barrier_is_a_flush_its_data_and_a_flush() {
    let (mut queue, s) = queue(1, |settings| settings.backings[0].fua = false);
    ask(&mut queue, at(0), Op::Write, Flags::FUA | Flags::PREFLUSH, s[0], 1).unwrap();
    for op in [Op::Flush, Op::Write, Op::Flush] {
        assert_eq!(news(&mut queue), []);
        let step = next(&mut queue, at(0));
        assert_eq!((step.op, queue.poll_dispatch(at(0), C0)), (op, None));
        queue.handle_completion(at(0), step.tag, DONE);
    }
    assert_eq!(news(&mut queue), [done(1)]);
}

/// sequence.2
#[test]
fn a_write_whose_first_flush_failed_is_not_written() {
    let (mut queue, s) = queue(1, |_| ());
    ask(&mut queue, at(0), Op::Write, Flags::PREFLUSH, s[0], 1).unwrap();
    let first = next(&mut queue, at(0));
    queue.handle_completion(at(1), first.tag, Outcome::Failed(Errno::EIO));
    assert_eq!(news(&mut queue), [Finished::Done(Token(1), Outcome::Failed(Errno::EIO))]);
    assert_eq!(queue.poll_dispatch(at(1), C0), None);
}

/// sequence.2
#[test]
fn without_a_volatile_cache_only_data_is_sent() {
    let (mut queue, s) = queue(1, |settings| settings.backings[0].volatile_cache = false);
    ask(&mut queue, at(0), Op::Write, Flags::FUA | Flags::PREFLUSH, s[0], 1).unwrap();
    flush(&mut queue, at(0), s[0], 2);
    let data = next(&mut queue, at(0));
    assert_eq!((data.op, data.flags), (Op::Write, Flags::NONE));
    assert_eq!((news(&mut queue), queue.poll_dispatch(at(0), C0)), (vec![done(2)], None));
}

#[test]
fn backings_are_flushed_each_by_itself() {
    let second = Backing { start: Sector(500_000), ..Backing::default() };
    let (mut queue, s) = queue(1, |settings| settings.backings.push(second));
    flush(&mut queue, at(0), s[0], 0);
    let extent = Extent::new(Sector(500_008), 0);
    queue.submit(at(0), Bio { op: Op::Flush, flags: Flags::NONE, extent, stream: s[0], token: Token(1) }).unwrap();
    let starts = [next(&mut queue, at(0)).extent.start.0, next(&mut queue, at(0)).extent.start.0];
    assert_eq!(starts, [0, 500_000]);
}

/// sequence.3
#[test]
fn a_stuck_flush_is_told_of_and_no_other_starts_before_the_device_has_answered() {
    let (mut queue, s) = queue(1, |settings| settings.io_timeout = secs(30));
    flush(&mut queue, at(0), s[0], 1);
    let stuck = next(&mut queue, at(0));
    flush(&mut queue, at(10_000), s[0], 2);
    flush(&mut queue, at(35_000), s[0], 3);
    assert_eq!(queue.poll_dispatch(at(10_000), C0), None);
    assert_eq!(queue.poll_timeout(), Some(at(30_000)));
    queue.handle_timeout(at(30_000));
    assert_eq!(news(&mut queue), [Finished::TimedOut(Token(1)), Finished::Released(Token(1))]);
    assert_eq!((queue.poll_timeout(), queue.poll_dispatch(at(30_000), C0)), (Some(at(40_000)), None));
    queue.handle_timeout(at(40_000));
    assert_eq!(news(&mut queue), [Finished::TimedOut(Token(2)), Finished::Released(Token(2))]);
    assert_eq!(queue.groups().stats().of(Op::Flush).failed, 2);
    queue.handle_completion(at(50_000), stuck.tag, DONE);
    // It did end well, and nothing has been written since it began: so the last one has nothing to do.
    assert_eq!((news(&mut queue), queue.poll_dispatch(at(50_000), C0)), (vec![done(3)], None));
}

/// sequence.3
#[test]
fn a_flush_is_not_late_for_a_stall_of_ours() {
    let (mut queue, s) = queue(1, |settings| settings.io_timeout = secs(30));
    ask(&mut queue, at(0), Op::Write, Flags::NONE, s[0], 0).unwrap();
    let write = next(&mut queue, at(0));
    queue.handle_completion(at(0), write.tag, DONE);
    assert_eq!(news(&mut queue), [done(0)]);
    flush(&mut queue, at(0), s[0], 1);
    assert_eq!(next(&mut queue, at(0)).op, Op::Flush);
    queue.handle_stall(at(35_000), secs(30));
    queue.handle_timeout(at(35_000));
    assert_eq!((news(&mut queue), queue.poll_timeout()), (vec![], Some(at(65_000))));
    queue.handle_timeout(at(65_000));
    assert_eq!(news(&mut queue), [Finished::TimedOut(Token(1)), Finished::Released(Token(1))]);
}

/// sequence.3
#[test]
fn who_waits_for_a_flush_that_gets_no_tag_is_told_in_time() {
    let (mut queue, s) = queue(1, |settings| (settings.depth, settings.io_timeout) = (1, secs(30)));
    ask(&mut queue, at(0), Op::Read, Flags::NONE, s[0], 0).unwrap();
    let hung = next(&mut queue, at(0));
    flush(&mut queue, at(1000), s[0], 1);
    assert_eq!((queue.poll_dispatch(at(1000), C0), queue.poll_timeout()), (None, Some(at(30_000))));
    queue.handle_timeout(at(30_000));
    assert_eq!((news(&mut queue), queue.poll_timeout()), (vec![Finished::TimedOut(Token(0))], Some(at(31_000))));
    queue.handle_timeout(at(31_000));
    assert_eq!(news(&mut queue), [Finished::TimedOut(Token(1)), Finished::Released(Token(1))]);
    queue.handle_completion(at(32_000), hung.tag, DONE);
    assert_eq!((news(&mut queue), queue.poll_dispatch(at(32_000), C0)), (vec![Finished::Released(Token(0))], None));
}

/// sequence.3
#[test]
fn a_stuck_flush_that_fails_in_the_end_is_remembered() {
    let (mut queue, s) = queue(1, |settings| settings.io_timeout = secs(30));
    flush(&mut queue, at(0), s[0], 1);
    let stuck = next(&mut queue, at(0));
    queue.handle_timeout(at(30_000));
    news(&mut queue);
    queue.handle_completion(at(31_000), stuck.tag, Outcome::Failed(Errno::EIO));
    assert_eq!(queue.flushes().error(Sector(0)), Some(Errno::EIO));
    flush(&mut queue, at(32_000), s[0], 2);
    let again = next(&mut queue, at(32_000));
    queue.handle_completion(at(33_000), again.tag, DONE);
    assert_eq!(news(&mut queue), [Finished::Done(Token(2), Outcome::Failed(Errno::EIO))]);
    queue.flushes().acknowledge(Sector(0));
    flush(&mut queue, at(34_000), s[0], 3);
    let last = queue.poll_dispatch(at(34_000), C0);
    if let Some(last) = last {
        queue.handle_completion(at(35_000), last.tag, DONE);
    }
    assert_eq!(news(&mut queue), [done(3)]);
}

/// queue.7
#[test]
fn a_flush_that_the_device_turned_back_goes_again() {
    let (mut queue, s) = queue(1, |_| ());
    flush(&mut queue, at(0), s[0], 1);
    let one = next(&mut queue, at(0));
    queue.handle_busy(at(0), one.tag);
    flush(&mut queue, at(1), s[0], 2);
    let one = next(&mut queue, at(3));
    queue.handle_completion(at(4), one.tag, DONE);
    assert_eq!(news(&mut queue)[0], done(1));
}

#[test]
fn flushes_that_are_not_coordinated_go_down_each_by_itself() {
    let (mut queue, s) = queue(1, |settings| settings.flush.coordinate = false);
    (0..3).for_each(|token| flush(&mut queue, at(0), s[0], token));
    let ops: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(at(0), C0)).map(|d| d.op).collect();
    assert_eq!(ops, [Op::Flush; 3]);
}

type Charges = Arc<Mutex<Vec<(u32, u16, u64)>>>;

/// None, and writes down what it is charged: stream, group, microseconds.
struct Charged(NoScheduler, Charges, Ahead);

/// The groups that have had more than their share.
type Ahead = Arc<Mutex<Vec<u16>>>;

impl Scheduler for Charged {
    fn insert(&mut self, now: Instant, request: &Waiting) {
        self.0.insert(now, request);
    }

    fn dispatch(&mut self, now: Instant) -> Next {
        self.0.dispatch(now)
    }

    fn requeue(&mut self, now: Instant, request: &Waiting) {
        self.0.requeue(now, request);
    }

    fn drain(&mut self, now: Instant) -> Option<RequestId> {
        self.0.drain(now)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn resize(&mut self, capacity: usize, depth: u16) {
        self.0.resize(capacity, depth);
    }
}

impl Membership for Charged {}

impl Merge for Charged {}

impl Charge for Charged {
    fn is_ahead(&mut self, _now: Instant, group: GroupId) -> bool {
        self.2.lock().unwrap().contains(&group.0)
    }

    fn charge(&mut self, _now: Instant, stream: StreamId, group: GroupId, time: Duration) {
        self.1.lock().unwrap().push((stream.0, group.0, time.as_nanos() / 1000));
    }
}

impl Tune for Charged {}

impl Report for Charged {}

fn charged(charge: bool, change: impl FnOnce(&mut Settings)) -> (Queue, Vec<StreamId>, Charges) {
    let settings = settings(|settings| {
        change(settings);
        settings.flush.charge = charge;
        for path in ["/a", "/b"] {
            settings.groups.push(Group { path: path.into(), parent: Some(GroupId::ROOT), weight: Weight::new(100) });
        }
    });
    let charges = Charges::default();
    let (queue, streams, _) = with_debts(settings, &charges);
    (queue, streams, charges)
}

fn with_debts(settings: Settings, charges: &Charges) -> (Queue, Vec<StreamId>, Ahead) {
    let ahead = Ahead::default();
    let scheduler = Charged(NoScheduler::new(settings.setup().capacity), Arc::clone(charges), Arc::clone(&ahead));
    let mut queue = Queue::new(settings);
    queue.take_over(at(0), Kind::None, Box::new(scheduler));
    let streams = add_streams(&mut queue, 4); // in /, /a, /b, /b
    (queue, streams, ahead)
}

/// With /a in debt.
fn in_debt(charge: bool) -> (Queue, Vec<StreamId>, Ahead) {
    let settings = settings(|settings| {
        (settings.flush.charge, settings.io_timeout) = (charge, secs(30));
        for path in ["/a", "/b"] {
            settings.groups.push(Group { path: path.into(), parent: Some(GroupId::ROOT), weight: Weight::new(100) });
        }
    });
    let (queue, streams, ahead) = with_debts(settings, &Charges::default());
    ahead.lock().unwrap().push(1);
    (queue, streams, ahead)
}

/// sequence.5
#[test]
fn a_flush_waits_until_the_only_group_that_asks_has_paid() {
    let (mut queue, s, ahead) = in_debt(true);
    flush(&mut queue, at(0), s[1], 1);
    assert_eq!((queue.poll_dispatch(at(0), C0), queue.poll_timeout()), (None, Some(at(7_500))));
    ahead.lock().unwrap().clear();
    let one = next(&mut queue, at(5));
    queue.handle_completion(at(9), one.tag, DONE);
    assert_eq!(news(&mut queue), [done(1)]);
}

/// sequence.5
#[test]
fn nobody_waits_for_anothers_debt_and_the_debtor_shares_what_others_start() {
    let (mut queue, s, _) = in_debt(true);
    flush(&mut queue, at(0), s[1], 1);
    assert_eq!(queue.poll_dispatch(at(0), C0), None);
    flush(&mut queue, at(1), s[2], 2);
    let one = next(&mut queue, at(1));
    queue.handle_completion(at(9), one.tag, DONE);
    assert_eq!(news(&mut queue), [done(1), done(2)]);
}

/// sequence.5: where it is held back for ever, it goes before it would take too long.
#[test]
fn a_debtor_waits_for_a_quarter_of_io_timeout_and_no_longer() {
    let (mut queue, s, _) = in_debt(true);
    flush(&mut queue, at(0), s[1], 1);
    for time in [0, 1_000, 7_499] {
        assert_eq!((queue.poll_dispatch(at(time), C0), queue.poll_timeout()), (None, Some(at(7_500))));
    }
    queue.handle_timeout(at(7_500));
    let one = next(&mut queue, at(7_500));
    // Who asks meanwhile has waited for less when that one ends.
    ask(&mut queue, at(7_501), Op::Write, Flags::NONE, s[1], 2).unwrap();
    let data = next(&mut queue, at(7_501));
    queue.handle_completion(at(7_502), data.tag, DONE);
    flush(&mut queue, at(7_503), s[1], 3);
    queue.handle_completion(at(7_510), one.tag, DONE);
    assert_eq!(news(&mut queue), [done(2), done(1)]);
    assert_eq!((queue.poll_dispatch(at(7_510), C0), queue.poll_timeout()), (None, Some(at(15_003))));
    assert_eq!(next(&mut queue, at(15_003)).op, Op::Flush);
}

/// sequence.5
#[test]
fn where_flushes_are_not_charged_none_waits_for_debts() {
    let (mut queue, s, _) = in_debt(false);
    flush(&mut queue, at(0), s[1], 1);
    assert_eq!(next(&mut queue, at(0)).op, Op::Flush);
}

/// sequence.4
#[test]
fn groups_that_share_a_flush_pay_equal_parts_of_it() {
    let (mut queue, s, charges) = charged(true, |_| ());
    for (token, stream) in [1, 2, 3, 3].into_iter().enumerate() {
        flush(&mut queue, at(0), s[stream], token as u64);
    }
    let one = next(&mut queue, at(10));
    queue.handle_completion(at(22), one.tag, DONE);
    assert_eq!(*charges.lock().unwrap(), [(1, 1, 6000), (2, 2, 2000), (3, 2, 2000), (3, 2, 2000)]);
}

/// sequence.4
#[test]
fn time_in_which_two_backings_are_flushed_is_charged_once_and_discards_are_left_to_the_scheduler() {
    let (mut queue, s, charges) = charged(true, |settings| {
        settings.backings.push(Backing { start: Sector(500_000), ..Backing::default() });
    });
    ask(&mut queue, at(0), Op::Discard, Flags::NONE, s[1], 0).unwrap();
    ask(&mut queue, at(0), Op::WriteZeroes, Flags::NONE, s[2], 1).unwrap();
    while let Some(data) = queue.poll_dispatch(at(0), C0) {
        queue.handle_completion(at(5), data.tag, DONE);
    }
    flush(&mut queue, at(5), s[1], 2);
    let extent = Extent::new(Sector(500_008), 0);
    queue.submit(at(5), Bio { op: Op::Flush, flags: Flags::NONE, extent, stream: s[2], token: Token(3) }).unwrap();
    let (one, two) = (next(&mut queue, at(5)), next(&mut queue, at(5)));
    queue.handle_completion(at(15), one.tag, DONE);
    queue.handle_completion(at(19), two.tag, DONE);
    assert_eq!(*charges.lock().unwrap(), [(1, 1, 10_000), (2, 2, 4000)]);
}

/// sequence.4
#[test]
fn who_does_not_want_it_is_not_charged() {
    let (mut queue, s, charges) = charged(false, |_| ());
    flush(&mut queue, at(0), s[1], 0);
    let one = next(&mut queue, at(0));
    queue.handle_completion(at(10), one.tag, DONE);
    assert!(charges.lock().unwrap().is_empty());
}

/// What queues share; the first calls after `armed` see what another worker does between two of them.
#[derive(Debug)]
struct Racing {
    flush: Mutex<Flush>,
    /// How many more calls there are before the other worker is faster.
    armed: AtomicU32,
}

impl SharedFlush for Racing {
    fn with(&self, act: &mut dyn FnMut(&mut Flush)) {
        let mut flush = self.flush.lock().unwrap();
        let armed = self.armed.load(Ordering::SeqCst);
        if armed > 0 {
            self.armed.store(armed - 1, Ordering::SeqCst);
            if armed == 1 {
                flush.ask(at(30_000), ContextId(1));
                flush.start(at(30_000));
            }
        }
        act(&mut flush);
    }
}

/// sequence.3: who waited for a tag all that time, and another queue's worker starts the flush just as they are told; then that
/// flush ends, and the other worker's next one is to start.
#[test]
fn nobody_starts_a_flush_when_all_who_waited_here_have_just_been_told_that_it_took_too_long() {
    let shared = Flush::new(flush::Settings { group_commit: 0, ..flush::Settings::default() }, true);
    let racing = Arc::new(Racing { flush: Mutex::new(shared), armed: AtomicU32::new(0) });
    let share: Arc<dyn SharedFlush> = Arc::<Racing>::clone(&racing);
    let (mut queue, s) = queue(1, |settings| {
        (settings.depth, settings.nr_requests, settings.io_timeout) = (1, 2, secs(30));
        settings.backings[0].flush = Some(share);
        settings.backings.push(Backing { start: Sector(500_000), ..Backing::default() });
    });
    ask(&mut queue, at(0), Op::Read, Flags::NONE, s[0], 7).unwrap();
    let read = next(&mut queue, at(0));
    flush(&mut queue, at(0), s[0], 1);
    assert_eq!(queue.poll_dispatch(at(0), C0), None, "there is no tag");
    racing.armed.store(2, Ordering::SeqCst); // one look, and then
    queue.handle_timeout(at(30_000));
    assert!(news(&mut queue).contains(&Finished::TimedOut(Token(1))));
    let mut other = racing.flush.lock().unwrap();
    other.end(at(30_001), DONE);
    other.dirty().mark();
    other.ask(at(30_001), ContextId(1));
    drop(other);
    let extent = Extent::new(Sector(500_008), 0);
    queue.submit(at(30_002), Bio { op: Op::Flush, flags: Flags::NONE, extent, stream: s[0], token: Token(2) }).unwrap();
    queue.handle_completion(at(30_003), read.tag, DONE);
    assert_eq!(next(&mut queue, at(30_003)).extent.start, Sector(500_000));
    assert_eq!(queue.poll_dispatch(at(30_003), C0), None);
}

/// sequence.5: a flush that was needless is the last thing that its group asked for, and another scheduler never hears of the group.
#[test]
fn a_group_that_is_gone_does_not_decide_whether_a_flush_waits() {
    for kind in Kind::ALL {
        let (mut queue, s) = queue(3, |settings| {
            let group = |path: &str| Group { path: path.into(), parent: Some(GroupId::ROOT), ..Group::root() };
            settings.groups.extend(["/a", "/b"].map(group));
        });
        for token in [1, 2] {
            flush(&mut queue, at(token), s[2], token);
            while let Some(one) = queue.poll_dispatch(at(token), C0) {
                queue.handle_completion(at(token), one.tag, DONE);
            }
        }
        assert_eq!(news(&mut queue), [done(1), done(2)], "of /b, and nothing was to be flushed by the second one");
        queue.remove_stream(s[2]);
        queue.remove_group(at(3), GroupId(2)).unwrap();
        queue.set_scheduler(at(3), kind);
        ask(&mut queue, at(4), Op::Write, Flags::NONE, s[1], 4).unwrap();
        for op in [Op::Write, Op::Flush] {
            let one = next(&mut queue, at(4));
            assert_eq!(one.op, op, "{}", kind.name());
            queue.handle_completion(at(4), one.tag, DONE);
            if op == Op::Write {
                flush(&mut queue, at(4), s[1], 5);
            }
        }
        assert_eq!(news(&mut queue), [done(4), done(5)], "{}", kind.name());
    }
}

/// flush.7
#[test]
fn a_failed_flush_is_remembered_though_flushes_are_not_coordinated() {
    let (mut queue, s) = queue(1, |settings| settings.flush.coordinate = false);
    flush(&mut queue, at(0), s[0], 1);
    let one = next(&mut queue, at(0));
    queue.handle_completion(at(1), one.tag, Outcome::Failed(Errno::EIO));
    assert_eq!(queue.flushes().error(Sector(0)), Some(Errno::EIO));
    flush(&mut queue, at(2), s[0], 2);
    let two = next(&mut queue, at(2));
    queue.handle_completion(at(3), two.tag, DONE);
    let failed = |token| Finished::Done(Token(token), Outcome::Failed(Errno::EIO));
    assert_eq!(news(&mut queue), [failed(1), failed(2)]);
    queue.flushes().acknowledge(Sector(0));
    flush(&mut queue, at(4), s[0], 3);
    let three = next(&mut queue, at(4));
    queue.handle_completion(at(5), three.tag, DONE);
    assert_eq!(news(&mut queue), [done(3)]);
}

/// flush.7
#[test]
fn who_turns_remembering_off_has_the_next_flush_that_succeeds_count() {
    let (mut queue, s) = queue(1, |_| ());
    flush(&mut queue, at(0), s[0], 1);
    let one = next(&mut queue, at(0));
    queue.handle_completion(at(1), one.tag, Outcome::Failed(Errno::EIO));
    news(&mut queue);
    queue.set_tunable("flush_remember", "0").unwrap();
    flush(&mut queue, at(2), s[0], 2);
    let two = next(&mut queue, at(2));
    queue.handle_completion(at(3), two.tag, DONE);
    assert_eq!(news(&mut queue), [done(2)]);
}
