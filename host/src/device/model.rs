//! Model: RAM that takes as long as a modelled disk would.
//!
//! A scheduler is to be tried with real clients on a disk that is not there. Data is kept in RAM, and a model from the lab says
//! when each request ends; the client is told then. The difficulty is our own lateness: a timer comes some 50 µs after it was
//! due, and a client that waits for each answer would ask that much later each time. So lateness is not charged to the disk.
//! Example: the model ends a read at 12.70 ms, and the worker wakes up and tells it at 12.75. The client asks again at 12.80.
//! That request counts as submitted at 12.75, and the client sees the model's rate.
//!
//! timing.1  A request's data moves when it goes out, and its end is told when the model says so. No client can tell the
//!           difference: requests that are under way together have no order, and a client that is told of a write's end finds
//!           it written.
//! timing.2  All workers share one model, under a lock taken once per batch. A worker that goes on in time puts the ends of
//!           other workers' requests into their boxes, and wakes them.
//! timing.3  A worker that heard of an end late has its next requests counted as submitted earlier by as much, though never before anything
//!           that has happened already.
//! timing.4  One of the workers that have requests in the model has a timer no later than the model's next event.

pub(super) mod syntax;

use std::fs::File;
use std::io;
use std::sync::Arc;

use fairlift_core::model::{Character, Model, ModelCompletion, ModelRequest};
use fairlift_core::queue::Segment;
use fairlift_core::record::Record;
use fairlift_core::{ContextId, Duration, Extent, Instant, Limits, Op, Outcome, Sector, Tag};

use super::handed::OpenFile;
use super::lane::{Address, Io, Lane, Request, answer, each};
use super::{Device, Facts, Mem, Run};
use crate::sync::{Mutex, lock};

/// The most by which a submission counts as earlier (timing.3), and how long after a late end. Chosen: a client that thinks for
/// longer does not wait for us, and a worker is seldom kept from the CPU for longer.
const LATE_MAX: Duration = fairlift_core::time::ms(10);

pub(crate) struct Modelled {
    name: String,
    data: Arc<Mem>,
    limits: Limits,
    character: Character,
    state: Mutex<State>,
}

struct State {
    model: Box<dyn Model>,
    /// The latest time that the model was told.
    clock: Instant,
    /// Ended requests, before they are put into boxes.
    ended: Vec<ModelCompletion>,
    /// By context; as many as have submitted something.
    boxes: Vec<Inbox>,
}

struct Inbox {
    open: usize,
    /// Those that have ended and were not fetched.
    ended: Vec<ModelCompletion>,
    /// When the worker will look by itself.
    armed: Instant,
    /// The delay with which it heard of its last fetch, and the time of that.
    late: Duration,
    heard: Instant,
}

impl Inbox {
    const EMPTY: Self =
        Self { open: 0, ended: Vec::new(), armed: Instant::MAX, late: Duration::ZERO, heard: Instant::ZERO };
}

/// The tasks of a worker after its visit to the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Next {
    /// Look again then; `None`: not before it submits or is woken.
    pub(crate) at: Option<Instant>,
    /// Wake these contexts, one bit each.
    pub(crate) wake: u64,
}

fn model_request(tag: Tag, op: Op, flags: fairlift_core::Flags, at: u64, bytes: u64) -> ModelRequest {
    ModelRequest {
        id: u64::from(tag.0),
        op,
        flags,
        extent: Extent::new(Sector(at / Sector::SIZE), bytes / Sector::SIZE),
    }
}

impl Modelled {
    pub(crate) fn new(text: &str, model: Box<dyn Model>, data: Option<File>) -> io::Result<Self> {
        let (limits, character) = (model.limits(), model.character());
        let data = Mem::open(limits.capacity * Sector::SIZE, data)?;
        Ok(Self {
            name: text.split(',').next().unwrap_or_default().to_owned(),
            data: Arc::new(data),
            limits,
            character,
            state: Mutex::new(State { model, clock: Instant::ZERO, ended: Vec::new(), boxes: Vec::new() }),
        })
    }

    /// Takes a batch of one context's requests in, and leaves `batch` empty. Their ids are their tags.
    pub(crate) fn submit(&self, now: Instant, context: ContextId, batch: &mut Vec<ModelRequest>) -> Next {
        let mut state = lock(&self.state);
        let own = usize::from(context.0);
        if state.boxes.len() <= own {
            state.boxes.resize_with(own + 1, || Inbox::EMPTY);
        }
        let inbox = &mut state.boxes[own];
        inbox.open += batch.len();
        let late = if now.since(inbox.heard) <= LATE_MAX { inbox.late } else { Duration::ZERO }; // timing.3
        let at = Instant::from_nanos(now.as_nanos().saturating_sub(late.as_nanos())).max(state.clock);
        state.advance(at);
        state.clock = at;
        for mut request in batch.drain(..) {
            request.id |= (own as u64) << 16;
            state.model.submit(at, &request);
        }
        state.next(own)
    }

    /// Appends what has ended of a context's requests.
    pub(crate) fn fetch(&self, now: Instant, context: ContextId, ended: &mut Vec<(Tag, Outcome)>) -> Next {
        let mut state = lock(&self.state);
        let own = usize::from(context.0);
        state.advance(now);
        if let Some(inbox) = state.boxes.get_mut(own)
            && let Some(last) = inbox.ended.last()
        {
            (inbox.late, inbox.heard) = (now.since(last.at).min(LATE_MAX), now);
            inbox.open -= inbox.ended.len();
            ended.extend(inbox.ended.drain(..).map(|end| (Tag((end.id & 0xffff) as u16), end.outcome)));
        }
        state.next(own)
    }
}

impl Device for Modelled {
    fn facts(&self) -> Facts {
        let Character { rotational, volatile_cache } = self.character;
        let plain = Facts::plain(self.limits.capacity * Sector::SIZE);
        Facts { limits: self.limits, flush: volatile_cache, rotational, volatile_cache, ..plain }
    }

    fn called(&self) -> String {
        self.name.clone()
    }

    fn lane(self: Arc<Self>, _address: Address) -> Box<dyn Lane> {
        Box::new(InModel { device: self, batch: Vec::new(), open: 0, due: None })
    }

    /// The new server's disk begins at rest.
    fn hand_over(self: Arc<Self>) -> Result<Vec<OpenFile>, String> {
        Arc::clone(&self.data).hand_over()
    }

    fn take_on(&self, says: &mut Record, bytes: &[u8]) -> Result<(), String> {
        self.data.take_on(says, bytes)
    }

    fn run(&self, at: u64, len: u64) -> io::Result<Run> {
        self.data.run(at, len)
    }
}

struct InModel {
    device: Arc<Modelled>,
    batch: Vec<ModelRequest>,
    open: usize,
    due: Option<Instant>,
}

impl InModel {
    /// The tasks after the worker's visit to the model.
    fn leave(&mut self, io: &mut Io<'_>, next: Next) {
        self.due = next.at;
        io.notifiers.wake_all(next.wake, io.context, io.ring);
    }
}

impl Lane for InModel {
    /// timing.1
    fn queue(&mut self, io: &mut Io<'_>, now: Instant, requests: &[Request], segments: &[Segment]) {
        for (request, segments) in each(requests, segments) {
            // RAM does not fail; how the request ends, the model says.
            let _ = answer(&*self.device.data, io.tickets, request, segments);
            self.batch.push(model_request(request.tag, request.op, request.flags, request.at, request.bytes));
        }
        self.open += requests.len();
        let next = self.device.submit(now, io.context, &mut self.batch);
        self.leave(io, next);
    }

    fn is_by_the_clock(&self) -> bool {
        true
    }

    fn poll(&mut self, io: &mut Io<'_>, now: Instant) {
        let before = io.ended.len();
        let next = self.device.fetch(now, io.context, io.ended);
        self.open -= io.ended.len() - before;
        self.leave(io, next);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn in_flight(&self) -> usize {
        self.open
    }
}

impl State {
    /// Goes on from event to event, as the lab does, up to `now` (timing.2).
    fn advance(&mut self, now: Instant) {
        while let Some(at) = self.model.poll_event().filter(|at| *at <= now) {
            self.clock = self.clock.max(at);
            self.model.advance(self.clock, &mut self.ended);
            for end in self.ended.drain(..) {
                self.boxes[(end.id >> 16) as usize].ended.push(end);
            }
        }
    }

    /// The tasks of the context `own`, which now leaves.
    fn next(&mut self, own: usize) -> Next {
        let event = self.model.poll_event();
        let mut wake = 0;
        for (number, inbox) in self.boxes.iter().enumerate().filter(|(number, _)| *number != own) {
            wake |= u64::from(!inbox.ended.is_empty()) << number;
        }
        let at = event.filter(|_| self.boxes.get(own).is_some_and(|inbox| inbox.open > 0));
        if let Some(inbox) = self.boxes.get_mut(own) {
            inbox.armed = at.unwrap_or(Instant::MAX);
        }
        if let Some(event) = event
            && self.boxes.iter().all(|inbox| inbox.armed > event)
            && let Some(waiting) = self.boxes.iter().position(|inbox| inbox.open > 0)
        {
            wake |= 1 << waiting; // timing.4
        }
        Next { at, wake }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use fairlift_core::Flags;
    use fairlift_core::model::Work;
    use fairlift_core::time::{ms, us};

    use super::*;

    /// Serves one after the other, a millisecond each.
    struct OneByOne(VecDeque<ModelCompletion>, Instant);

    impl Model for OneByOne {
        fn limits(&self) -> Limits {
            Limits::new(2048)
        }

        fn character(&self) -> Character {
            Character { rotational: false, volatile_cache: true }
        }

        fn submit(&mut self, now: Instant, request: &ModelRequest) {
            assert!(now >= self.1, "time ran backwards");
            self.1 = now;
            let at = self.0.back().map_or(now, |last| last.at) + ms(1);
            self.0.push_back(ModelCompletion { at, id: request.id, outcome: Outcome::Done });
        }

        fn poll_event(&self) -> Option<Instant> {
            self.0.front().map(|end| end.at)
        }

        fn advance(&mut self, now: Instant, ended: &mut Vec<ModelCompletion>) {
            assert!(now >= self.1, "time ran backwards");
            self.1 = now;
            while let Some(end) = self.0.pop_front_if(|end| end.at <= now) {
                ended.push(end);
            }
        }

        fn work(&self) -> Work {
            Work::default()
        }
    }

    const A: ContextId = ContextId(0);
    const B: ContextId = ContextId(1);

    fn at(time: Duration) -> Instant {
        Instant::ZERO + time
    }

    fn disk() -> Modelled {
        Modelled::new("one-by-one", Box::new(OneByOne(VecDeque::new(), Instant::ZERO)), None).unwrap()
    }

    fn submit(disk: &Modelled, time: Duration, context: ContextId, tag: u16) -> Next {
        disk.submit(at(time), context, &mut vec![model_request(Tag(tag), Op::Read, Flags::NONE, 0, 4096)])
    }

    fn fetch(disk: &Modelled, time: Duration, context: ContextId) -> (Vec<u16>, Next) {
        let mut ended = Vec::new();
        let next = disk.fetch(at(time), context, &mut ended);
        (ended.iter().map(|(tag, _)| tag.0).collect(), next)
    }

    #[test]
    fn a_request_ends_when_the_model_says_so() {
        let disk = disk();
        assert_eq!(submit(&disk, ms(5), A, 7), Next { at: Some(at(ms(6))), wake: 0 });
        assert_eq!(fetch(&disk, us(5999), A), (vec![], Next { at: Some(at(ms(6))), wake: 0 }));
        assert_eq!(fetch(&disk, ms(6), A), (vec![7], Next { at: None, wake: 0 }));
    }

    /// timing.2
    #[test]
    fn whoever_looks_wakes_the_others_whose_requests_ended() {
        let disk = disk();
        submit(&disk, ms(0), A, 1);
        submit(&disk, ms(0), B, 1);
        let (ended, next) = fetch(&disk, ms(2), A);
        assert_eq!((ended, next.wake), (vec![1], 0b10));
        assert_eq!(fetch(&disk, ms(2), B), (vec![1], Next { at: None, wake: 0 }));
    }

    /// timing.3
    #[test]
    fn a_client_that_waits_for_each_answer_is_as_fast_as_the_model_though_every_end_is_told_late() {
        let disk = disk();
        let mut now = Duration::ZERO;
        submit(&disk, now, A, 1);
        for n in 1..=100 {
            now = ms(n) + us(n % 7 * 50);
            assert_eq!(fetch(&disk, now, A).0, [1], "operation {n}");
            submit(&disk, now, A, 1);
        }
    }

    /// timing.3
    #[test]
    fn a_newcomer_is_not_served_faster_because_somebody_was_told_late_long_ago() {
        let disk = disk();
        submit(&disk, ms(0), A, 1);
        fetch(&disk, ms(6), A);
        assert_eq!(submit(&disk, ms(17), A, 1).at, Some(at(ms(18))));
    }

    /// timing.4
    #[test]
    fn whoever_leaves_the_model_wakes_somebody_whose_timer_would_be_too_late() {
        let disk = disk();
        submit(&disk, ms(0), A, 1);
        submit(&disk, ms(0), B, 1);
        assert_eq!(fetch(&disk, us(500), B).1.at, Some(at(ms(1))));
        assert_eq!(fetch(&disk, ms(1), A).1, Next { at: None, wake: 0 }, "B looks by itself");
        submit(&disk, ms(1), A, 1);
        lock(&disk.state).boxes[1].armed = at(ms(9)); // as if the model had said so
        lock(&disk.state).boxes[0].open = 0;
        assert_eq!(fetch(&disk, us(1100), A).1, Next { at: None, wake: 0b10 });
    }
}
