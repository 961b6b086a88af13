//! Each promise, broken on purpose.

use fairlift_core::model::{Character, Model, ModelRequest, Work};
use fairlift_core::queue::Settings;
use fairlift_core::sched::traits::*;
use fairlift_core::sched::{Kind, Next, RequestId, Waiting};
use fairlift_core::time::{ms, secs, us};
use fairlift_core::{Bytes, Flags, GroupId, Limits, Priority, Stream, StreamId, Token};

use super::*;
use crate::program::{Direct, Pattern, Region, direct};
use crate::{World, fixed_time};

const LIMITS: Limits = Limits::new(1 << 20);

fn settings() -> Settings {
    Settings { depth: 4, nr_requests: 8, ..Settings::new(Kind::None, LIMITS) }
}

/// Four readers of four requests each, for a second.
fn run(queue: Queue, model: Box<dyn Model>) {
    let mut world = World::new(queue, model);
    world.check().seed(77);
    for index in 0..4 {
        let file = Region { start: Sector(index * 8192), bytes: 1 << 20 };
        let settings = direct::Settings::new(Op::Read, Pattern::Random, 4096, 4);
        let stream =
            Stream { group: GroupId::ROOT, priority: Priority::default(), context: fairlift_core::ContextId(0) };
        world.add(stream, Box::new(Direct::new(settings, file, index)));
    }
    world.run_until(Instant::ZERO + secs(1));
    world.drain();
}

fn run_with(scheduler: impl Scheduler + 'static) {
    let mut queue = Queue::new(settings());
    queue.take_over(Instant::ZERO, Kind::None, Box::new(scheduler));
    run(queue, Box::new(fixed_time(LIMITS, us(100))));
}

#[test]
fn an_honest_queue_and_disk_break_no_promise() {
    run_with(Wrong(Vec::new(), |waiting: &mut Vec<Waiting>| Next::Request(waiting.remove(0).id)));
}

/// A scheduler that answers "what next" in a way of its own.
struct Wrong<F>(Vec<Waiting>, F);

impl<F: FnMut(&mut Vec<Waiting>) -> Next + Send> Scheduler for Wrong<F> {
    fn insert(&mut self, _now: Instant, request: &Waiting) {
        self.0.push(*request);
    }

    fn dispatch(&mut self, _now: Instant) -> Next {
        if self.0.is_empty() { Next::Empty } else { (self.1)(&mut self.0) }
    }

    fn requeue(&mut self, _now: Instant, request: &Waiting) {
        self.0.insert(0, *request);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn resize(&mut self, _capacity: usize, _depth: u16) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

impl<F: FnMut(&mut Vec<Waiting>) -> Next + Send> Membership for Wrong<F> {}

impl<F: FnMut(&mut Vec<Waiting>) -> Next + Send> Merge for Wrong<F> {}

impl<F: FnMut(&mut Vec<Waiting>) -> Next + Send> Charge for Wrong<F> {}

impl<F: FnMut(&mut Vec<Waiting>) -> Next + Send> Tune for Wrong<F> {}

impl<F: FnMut(&mut Vec<Waiting>) -> Next + Send> Report for Wrong<F> {}

/// check.1
#[test]
#[should_panic(expected = "waits for a disk that has nothing to do, and nobody holds it")]
fn a_scheduler_that_forgets_a_request_is_found_when_the_disk_has_nothing_else() {
    let mut count = 0;
    run_with(Wrong(Vec::new(), move |waiting: &mut Vec<Waiting>| {
        count += 1;
        let next = waiting.remove(0);
        if count == 50 && !waiting.is_empty() { Next::Request(waiting.remove(0).id) } else { Next::Request(next.id) }
    }));
}

/// check.5
#[test]
#[should_panic(expected = "waits for a disk that has nothing to do, and nobody holds it")]
fn a_scheduler_that_leaves_the_disk_idle_without_a_hold_is_found() {
    let mut count = 0;
    run_with(Wrong(Vec::new(), move |waiting: &mut Vec<Waiting>| {
        count += 1;
        if count > 50 { Next::Empty } else { Next::Request(waiting.remove(0).id) }
    }));
}

/// Holds the disk for so long before each request.
struct Holds(Vec<RequestId>, Duration, Option<Instant>);

impl Scheduler for Holds {
    fn insert(&mut self, now: Instant, request: &Waiting) {
        self.0.push(request.id);
        self.2.get_or_insert(now + self.1);
    }

    fn dispatch(&mut self, now: Instant) -> Next {
        match self.2 {
            Some(until) if now < until => Next::Idle { until },
            Some(_) if self.0.is_empty() => Next::Empty,
            Some(_) => {
                self.2 = Some(now + self.1);
                Next::Request(self.0.remove(0))
            }
            None => Next::Empty,
        }
    }

    fn requeue(&mut self, _now: Instant, request: &Waiting) {
        self.0.insert(0, request.id);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn resize(&mut self, _capacity: usize, _depth: u16) {}

    fn next_timeout(&self) -> Option<Instant> {
        self.2.filter(|_| !self.0.is_empty())
    }
}

impl Membership for Holds {}

impl Merge for Holds {}

impl Charge for Holds {}

impl Tune for Holds {}

impl Report for Holds {}

/// check.5
#[test]
fn a_hold_within_its_limit_is_allowed() {
    run_with(Holds(Vec::new(), ms(8), None));
}

/// check.5: the message names the seed.
#[test]
#[should_panic(expected = "seed 77 at 0.000000000 s: read")]
fn a_hold_beyond_its_limit_is_found() {
    run_with(Holds(Vec::new(), ms(41), None));
}

/// A disk that changes some of its requests.
struct Liar<F> {
    inner: Box<dyn Model>,
    lie: F,
}

impl<F: FnMut(&mut Vec<ModelCompletion>) + Send> Model for Liar<F> {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn character(&self) -> Character {
        self.inner.character()
    }

    fn submit(&mut self, now: Instant, request: &ModelRequest) {
        self.inner.submit(now, request);
    }

    fn poll_event(&self) -> Option<Instant> {
        self.inner.poll_event()
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<ModelCompletion>) {
        self.inner.advance(now, ended);
        (self.lie)(ended);
    }

    fn work(&self) -> Work {
        self.inner.work()
    }
}

fn run_on(lie: impl FnMut(&mut Vec<ModelCompletion>) + Send + 'static) {
    let inner = Box::new(fixed_time(LIMITS, us(100)));
    run(Queue::new(settings()), Box::new(Liar { inner, lie }));
}

/// check.1: the queue gives up after `io_timeout`, but the disk never answers.
#[test]
#[should_panic(expected = "never ends")]
fn a_disk_that_loses_a_request_is_found_at_the_end() {
    let mut lost = false;
    run_on(move |ended| {
        if !lost {
            lost = ended.pop().is_some();
        }
    });
}

/// check.2
#[test]
#[should_panic(expected = "the disk ends request 3, which it does not have")]
fn a_disk_that_ends_a_request_twice_is_found() {
    run_on(|ended| {
        if let Some(last) = ended.last().copied() {
            ended.push(last);
        }
    });
}

/// check.3
#[test]
#[should_panic(expected = "was given at 0.000000000 s, and ends at 0.500000000 s")]
fn a_disk_that_ends_a_request_in_the_future_is_found() {
    run_on(|ended| {
        if let Some(last) = ended.last_mut() {
            last.at = Instant::ZERO + ms(500);
        }
    });
}

/// Calls the checks as a world would, with the calls of a broken queue.
struct ByHand(Check);

const TAG: Tag = Tag(2);

impl ByHand {
    fn new() -> Self {
        let mut check = Check::new(&Queue::new(settings()));
        check.watch_every(1);
        Self(check)
    }

    fn submit(&mut self, op: Op, token: u64, start: u64, sectors: u64) {
        let extent = Extent::new(Sector(start), sectors);
        let bio = Bio { op, flags: Flags::NONE, extent, stream: StreamId(0), token: Token(token) };
        self.0.submitted(Instant::ZERO, &bio);
    }

    /// A request at `start`, of the sectors of one bio from `offset` on.
    fn dispatch(&mut self, op: Op, start: u64, token: u64, offset: u64, sectors: u64) {
        let extent = Extent::new(Sector(start), sectors);
        let request = Dispatch { tag: TAG, op, flags: Flags::NONE, extent, stream: StreamId(0) };
        self.0.dispatched(Instant::ZERO, &request, std::iter::once(segment(token, offset, sectors)));
    }

    fn end(&mut self, token: u64, offset: u64, sectors: u64) {
        let ended = ModelCompletion { at: Instant::ZERO, id: u64::from(TAG.0), outcome: Outcome::Done };
        self.0.taken_back(Instant::ZERO, &ended);
        self.0.landed(Instant::ZERO, Outcome::Done, std::iter::once(segment(token, offset, sectors)));
    }

    fn finish(&mut self, token: u64) {
        self.0.finished(Instant::ZERO, Finished::Done(Token(token), Outcome::Done));
    }

    /// All of it, as it should be.
    fn whole(&mut self, op: Op, token: u64, start: u64, sectors: u64) {
        self.submit(op, token, start, sectors);
        self.dispatch(op, start, token, 0, sectors);
        self.end(token, 0, sectors);
        self.finish(token);
    }
}

fn segment(token: u64, offset: u64, sectors: u64) -> Segment {
    Segment { token: Token(token), offset: Bytes::of(offset), bytes: Bytes::of(sectors) }
}

#[test]
fn a_bio_in_pieces_that_lie_side_by_side_is_whole() {
    let mut check = ByHand::new();
    check.submit(Op::Read, 0, 100, 24);
    for offset in [16, 0, 8] {
        check.dispatch(Op::Read, 100 + offset, 0, offset, 8);
        check.end(0, offset, 8);
    }
    check.finish(0);
    assert_eq!(check.0.open, 0);
}

/// check.1: three pieces of eight, but one of them twice and one never.
#[test]
#[should_panic(expected = "read 100+24 of stream 0 ends, but not all of it was given to the disk")]
fn a_piece_given_twice_in_place_of_another_is_found() {
    let mut check = ByHand::new();
    check.submit(Op::Read, 0, 100, 24);
    for offset in [0, 8, 8] {
        check.dispatch(Op::Read, 100 + offset, 0, offset, 8);
        check.end(0, offset, 8);
    }
    check.finish(0);
}

/// check.2
#[test]
#[should_panic(expected = "goes to the disk twice")]
fn a_bio_given_twice_is_found() {
    let mut check = ByHand::new();
    check.submit(Op::Read, 0, 100, 8);
    for _ in 0..2 {
        check.dispatch(Op::Read, 100, 0, 0, 8);
        check.end(0, 0, 8);
    }
}

/// check.2
#[test]
#[should_panic(expected = "of a bio that is not open")]
fn a_bio_that_ends_twice_is_found() {
    let mut check = ByHand::new();
    check.whole(Op::Read, 0, 100, 8);
    check.finish(0);
}

/// check.2
#[test]
#[should_panic(expected = "is in the disk, and its tag is given out again")]
fn a_tag_given_out_twice_is_found() {
    let mut check = ByHand::new();
    check.submit(Op::Read, 0, 100, 8);
    check.submit(Op::Read, 1, 200, 8);
    check.dispatch(Op::Read, 100, 0, 0, 8);
    check.dispatch(Op::Read, 200, 1, 0, 8);
}

/// check.3
#[test]
#[should_panic(expected = "ends before the disk has ended it")]
fn a_bio_that_ends_before_the_disk_has_done_it_is_found() {
    let mut check = ByHand::new();
    check.submit(Op::Write, 0, 100, 8);
    check.dispatch(Op::Write, 100, 0, 0, 8);
    check.finish(0);
}

/// check.1
#[test]
#[should_panic(expected = "goes to sector 108, with the data of another")]
fn a_bio_that_goes_to_another_place_is_found() {
    let mut check = ByHand::new();
    check.submit(Op::Write, 0, 100, 8);
    check.dispatch(Op::Write, 108, 0, 0, 8);
}

/// check.1
#[test]
#[should_panic(expected = "is nowhere: not waiting, not in the disk, and not ended")]
fn a_bio_that_is_nowhere_is_found_at_once() {
    let mut check = ByHand::new();
    check.submit(Op::Read, 0, 100, 8);
    check.0.idle(Instant::ZERO, 0, None, false);
}

/// check.1
#[test]
#[should_panic(expected = "the queue is empty, and someone waits for room")]
fn a_wake_up_that_is_lost_is_found() {
    ByHand::new().0.idle(Instant::ZERO, 0, None, true);
}

/// check.4: the second write was said to have ended, but the first lands after it (a queue that keeps writes and mixes them up).
#[test]
#[should_panic(expected = "read 100+8 of stream 0 returns what sector 100 held before its last write")]
fn a_read_of_what_was_overwritten_is_found() {
    let mut check = ByHand::new();
    check.whole(Op::Write, 0, 100, 8);
    check.whole(Op::Write, 1, 100, 8);
    check.0.versions.landed(Extent::new(Sector(100), 8), 1);
    check.0.versions.finished(Extent::new(Sector(100), 8), 1, 2, true);
    check.whole(Op::Read, 2, 100, 8);
}
