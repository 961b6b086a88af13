//! Queue I/O: what goes between a worker and the queue of a disk in one turn.

use std::collections::{BTreeSet, VecDeque};

use fairlift_core::queue::Segment;
use fairlift_core::stats::Stats;
use fairlift_core::waits::Part;
use fairlift_core::{
    Bio, ContextId, Dispatch, Duration, Errno, Finished, Instant, Op, Outcome, Queue, Refused, Stream, StreamId, Tag,
};
use slab::Slab;

use super::Place;
use super::tag_wait::TagWait;
use crate::device::lane::Request;

/// The traffic between a worker and the queue of a disk: bios and news above, requests and answers below.
#[derive(Default)]
pub(super) struct QueueIo {
    /// The streams of the front, by the numbers that it knows them by.
    pub(super) streams: Slab<Member>,
    /// Bios in the queue that have not ended, or whose memory is not free.
    pub(super) open: u32,
    /// The tickets of those that took too long: their clients were told, and the device still has them.
    pub(super) timed_out: BTreeSet<usize>,
    /// Requests of the queue that the devices have. A flush among them is nobody's once all that waited for it were told that it took too long.
    pub(super) in_devices: usize,
    /// How much of the queue's news was taken.
    pub(super) moved: usize,
    /// Bios that the queue had no room for, and new ones: they go in at the next turn.
    pub(super) backlog: VecDeque<Arrival>,
    /// How many of the backlog, from its front, the queue has been told of.
    pub(super) announced: usize,
    /// Replies that were sent, and how long they took, since the last turn.
    pub(super) replied: Vec<(StreamId, Op, Duration)>,
    /// The queue refused the first of the backlog.
    pub(super) full: bool,
    /// The answers of devices since the last turn.
    pub(super) ended: Vec<(Tag, Outcome)>,
    pub(super) cached: Vec<Tag>,
    pub(super) busy: Vec<Tag>,
    /// The requests for the devices, and all their segments in that order.
    pub(super) requests: Vec<Request>,
    pub(super) segments: Vec<Segment>,
    /// When the queue is to be asked though nothing happened.
    pub(super) timeout: Option<Instant>,
    /// Where tags are shared: how we wait for them.
    pub(super) tag_wait: Option<TagWait>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    Ended(Outcome),
    /// It failed; its memory is not free yet.
    TimedOut,
    /// After `TimedOut`: the device has let go; the front may now `release` it.
    Released,
}

/// A bio, and when its client asked for it.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub(super) bio: Bio,
    pub(super) at: Instant,
    /// The cause of its wait since.
    pub(super) part: Part,
}

/// A stream of the front.
pub(super) struct Member {
    pub(super) stream: Stream,
    /// The queue's name of it.
    pub(super) id: StreamId,
    /// Its counters in removed queues.
    pub(super) before: Stats,
}

/// A worker's turn with a queue, in this order.
impl QueueIo {
    pub(super) fn with_capacity(depth: usize) -> Self {
        Self {
            backlog: VecDeque::with_capacity(256),
            replied: Vec::with_capacity(64),
            ended: Vec::with_capacity(depth),
            requests: Vec::with_capacity(depth),
            segments: Vec::with_capacity(depth * 4),
            ..Self::default()
        }
    }

    /// Whether nothing of ours is in the queue, nor anything of the queue in a device.
    pub(super) const fn is_out(&self) -> bool {
        self.open == 0 && self.in_devices == 0
    }

    /// Whether the devices have answered something since the last turn.
    pub(super) fn has_answers(&self) -> bool {
        !self.ended.is_empty() || !self.cached.is_empty() || !self.busy.is_empty()
    }

    /// Tells the queue what the devices have answered, and that its time has come; how many tags it gets back.
    #[inline]
    pub(super) fn complete(&mut self, queue: &mut Queue, now: Instant) -> usize {
        let came = self.ended.len() + self.cached.len() + self.busy.len();
        self.in_devices -= came;
        for (tag, outcome) in self.ended.drain(..) {
            queue.handle_completion(now, tag, outcome);
        }
        for tag in self.cached.drain(..) {
            queue.handle_cached(now, tag);
        }
        for tag in self.busy.drain(..) {
            queue.handle_busy(now, tag);
        }
        if self.timeout.is_some_and(|at| at <= now) {
            queue.handle_timeout(now);
        }
        came
    }

    #[inline]
    pub(super) fn tell_replies(&mut self, queue: &mut Queue) {
        for (stream, op, time) in self.replied.drain(..) {
            queue.groups_mut().stream_mut(self.streams[stream.0 as usize].id).replied(op, time);
        }
    }

    /// Gives the queue the backlog, as far as it has room.
    #[inline]
    pub(super) fn submit(&mut self, queue: &mut Queue, now: Instant, to_front: &mut Vec<(usize, News)>) {
        while let Some(Arrival { bio, at, part }) = self.backlog.front() {
            let stream = self.streams[bio.stream.0 as usize].id;
            let (op, at) = (bio.op, *at);
            match queue.submit_late(now, at, *part, Bio { stream, ..*bio }) {
                Ok(()) => self.open += 1,
                Err(Refused::Full) => {
                    self.full = true;
                    break;
                }
                // The protocol has checked the range already; the device's own word is passed on all the same.
                Err(Refused::Unsupported(_)) => {
                    to_front.push((bio.token.0 as usize, News::Ended(Outcome::Failed(Errno::ENOTSUP))));
                }
                Err(Refused::Empty | Refused::BeyondEnd { .. } | Refused::Unaligned { .. }) => {
                    to_front.push((bio.token.0 as usize, News::Ended(Outcome::Failed(Errno::EINVAL))));
                }
            }
            if self.announced > 0 {
                queue.groups_mut().stream_mut(stream).comes_in(now, op, at);
                self.announced -= 1;
            }
            self.backlog.pop_front();
        }
        // The queue is told of those that wait outside.
        for Arrival { bio, at, .. } in self.backlog.range(self.announced..) {
            queue.groups_mut().stream_mut(self.streams[bio.stream.0 as usize].id).waits_outside(bio.op, *at);
        }
        self.announced = self.backlog.len();
    }

    /// The queue forgets what it was told of bios that wait outside.
    #[cold]
    pub(super) fn forget_backlog(&mut self, queue: &mut Queue) {
        for Arrival { bio, at, .. } in self.backlog.range(..std::mem::take(&mut self.announced)) {
            queue.groups_mut().stream_mut(self.streams[bio.stream.0 as usize].id).comes_in(*at, bio.op, *at);
        }
    }

    /// Takes back what ceilings hold of ours.
    #[cold]
    pub(super) fn take_back(&mut self, queue: &mut Queue, now: Instant, context: ContextId) {
        self.forget_backlog(queue);
        for bio in queue.take_held(context).into_iter().rev() {
            let member = self.streams.iter().find(|(_, member)| member.id == bio.stream);
            let (stream, _) = member.expect("a stream whose bios wait is there");
            let bio = Bio { stream: StreamId(stream as u32), ..bio };
            self.backlog.push_front(Arrival { bio, at: now, part: Part::Limit });
            self.open -= 1;
        }
    }

    /// Takes what the scheduler gives us for the devices; where tags are shared, until we have to wait for one.
    #[inline]
    pub(super) fn dispatch(&mut self, queue: &mut Queue, now: Instant, context: ContextId, places: &[Place]) {
        loop {
            let mut goes_on = true;
            while goes_on && let Some(dispatch) = queue.poll_dispatch(now, context) {
                let before = self.segments.len();
                self.segments.extend(queue.segments(dispatch.tag));
                let Dispatch { tag, op, flags, extent, .. } = dispatch;
                let (place, at) = Place::locate(places, extent);
                let segments = self.segments.len() - before;
                self.requests.push(Request { tag, op, flags, at, bytes: extent.bytes().get(), place, segments });
                self.in_devices += 1;
                goes_on = self.tag_wait.as_mut().is_none_or(TagWait::took);
            }
            if !self.tag_wait.as_mut().is_some_and(|wait| wait.wait(queue.load().lacks_tag)) {
                break;
            }
        }
    }

    /// Takes what became of our bios, for the front.
    #[inline]
    pub(super) fn take_news(&mut self, queue: &mut Queue, context: ContextId, to_front: &mut Vec<(usize, News)>) {
        let before = to_front.len();
        while let Some(news) = queue.poll_finished(context) {
            to_front.push(match news {
                Finished::Done(token, outcome) => {
                    self.open -= 1;
                    (token.0 as usize, News::Ended(outcome))
                }
                Finished::TimedOut(token) => {
                    self.timed_out.insert(token.0 as usize);
                    (token.0 as usize, News::TimedOut)
                }
                Finished::Released(token) => {
                    self.open -= 1;
                    self.timed_out.remove(&(token.0 as usize));
                    (token.0 as usize, News::Released)
                }
            });
        }
        self.moved = self.moved.wrapping_add(to_front.len() - before);
    }

    /// Asks when the next turn is due though nothing happens, and ends the turn of shared tags.
    #[inline]
    pub(super) fn look_ahead(&mut self, queue: &Queue, now: Instant) {
        self.timeout = queue.poll_timeout();
        if let Some(wait) = &mut self.tag_wait {
            let load = queue.load();
            let idle = wait.end(now, load.in_flight == 0 && load.waiting == 0);
            self.timeout = self.timeout.into_iter().chain(idle).min();
        }
    }
}
