//! World: virtual clock + queue + device. One seed, one run.
//!
//! V1  Time moves only from event to event.
//! V2  Events of one time happen in the order in which they were set.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fairlift_core::{
    Bio, ContextId, Dispatch, Duration, Finished, Instant, Outcome, Queue, Refused, Stream, StreamId, Tag, Token,
};

/// A disk on paper: says how long a request takes.
pub trait Device {
    /// A request arrives at `now`, with `in_flight` others in the device; when does it end, and how?
    fn serve(&mut self, now: Instant, request: &Dispatch, in_flight: u16) -> (Instant, Outcome);
}

/// Takes the same time for every request, all at once: the plainest device there is.
#[derive(Clone, Copy, Debug)]
pub struct FixedTime(pub Duration);

impl Device for FixedTime {
    fn serve(&mut self, now: Instant, _request: &Dispatch, _in_flight: u16) -> (Instant, Outcome) {
        (now + self.0, Outcome::Done)
    }
}

/// How and when a bio ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// When.
    pub at: Instant,
    /// Which.
    pub token: Token,
    /// How.
    pub outcome: Outcome,
}

/// Virtual clock + queue + device.
pub struct World<D> {
    now: Instant,
    queue: Queue,
    device: D,
    /// (when, in what order, what): the earliest first (V2).
    events: BinaryHeap<Reverse<(Instant, u64, Tag)>>,
    outcomes: Vec<Outcome>,
    order: u64,
    dispatched: Vec<Dispatch>,
}

/// The lab's queues have one context.
const CONTEXT: ContextId = ContextId(0);

impl<D: Device> World<D> {
    /// A world at time zero.
    #[must_use]
    pub fn new(queue: Queue, device: D) -> Self {
        let outcomes = vec![Outcome::Done; usize::from(queue.settings().depth)];
        let (events, dispatched) = (BinaryHeap::new(), Vec::new());
        Self { now: Instant::ZERO, queue, device, events, outcomes, order: 0, dispatched }
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The queue.
    pub const fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// All that went to the device so far, in order.
    #[must_use]
    pub fn dispatched(&self) -> &[Dispatch] {
        &self.dispatched
    }

    /// Adds a stream.
    pub fn add_stream(&mut self, stream: Stream) -> StreamId {
        self.queue.add_stream(stream)
    }

    /// Asks for a bio to be done; nothing goes to the device before the next step.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    pub fn submit(&mut self, bio: Bio) -> Result<(), Refused> {
        self.queue.submit(self.now, bio)
    }

    /// Gives the device what it may have, goes to the next event, and says what ended; `None` when nothing is left.
    pub fn step(&mut self) -> Option<Vec<End>> {
        self.dispatch();
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        let timeout = self.queue.poll_timeout();
        self.now = event.into_iter().chain(timeout).min()?; // V1
        self.queue.handle_timeout(self.now);
        while let Some(Reverse((at, _, tag))) = self.events.peek().copied() {
            if at > self.now {
                break;
            }
            self.events.pop();
            self.queue.handle_completion(self.now, tag, self.outcomes[usize::from(tag.0)]);
        }
        self.dispatch();
        let mut ends = Vec::new();
        while let Some(news) = self.queue.poll_finished(CONTEXT) {
            let at = self.now;
            match news {
                Finished::Done(token, outcome) => ends.push(End { at, token, outcome }),
                Finished::TimedOut(token) => {
                    let outcome = Outcome::Failed(fairlift_core::Errno::ETIMEDOUT);
                    ends.push(End { at, token, outcome });
                }
                Finished::Released(_) => {}
            }
        }
        Some(ends)
    }

    /// Steps until nothing is left to do; all that ended.
    pub fn run(&mut self) -> Vec<End> {
        let mut ends = Vec::new();
        while let Some(some) = self.step() {
            ends.extend(some);
        }
        ends
    }

    fn dispatch(&mut self) {
        while let Some(request) = self.queue.poll_dispatch(self.now, CONTEXT) {
            let (at, outcome) = self.device.serve(self.now, &request, self.queue.in_flight() - 1);
            self.outcomes[usize::from(request.tag.0)] = outcome;
            self.order += 1;
            self.events.push(Reverse((at, self.order, request.tag)));
            self.dispatched.push(request);
        }
    }
}
