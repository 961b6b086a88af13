//! Another scheduler takes over, while requests wait and are in flight.
//!
//! queue.12  A scheduler that takes over is told of the existing groups, parents first, then of the streams, then of the waiting requests.
//!     Of what another has dispatched it hears only how many that are, until they have ended.
//! queue.15  A scheduler's learned state belongs to the device: the next scheduler of that kind begins with it. The
//!     problem: an operator tries `bfq` and goes back to `fair`, which then took the disk for one that does its best with 32
//!     requests at once, and had to learn anew what each costs.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use super::{Queue, Request, State};
use crate::group::StreamId;
use crate::record::Record;
use crate::sched::{Kind, RequestEnd, Scheduler, Served, Setup};
use crate::{Duration, Instant, Op};

/// The scheduler of a queue at present, and traces of earlier ones.
pub(super) struct Present {
    scheduler: Box<dyn Scheduler>,
    /// Number of earlier schedulers: none is told of requests that another has dispatched.
    pub(super) generation: u32,
    /// Requests in flight that an earlier one has dispatched, flushes not counted.
    others: u32,
    /// The knowledge of earlier schedulers about the device, by their kinds ([`Scheduler::hand_on`]).
    learned: Vec<(Kind, Record)>,
}

impl Deref for Present {
    type Target = dyn Scheduler;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &*self.scheduler
    }
}

impl DerefMut for Present {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.scheduler
    }
}

impl Present {
    pub(super) fn new(scheduler: Box<dyn Scheduler>) -> Self {
        Self { scheduler, generation: 0, others: 0, learned: Vec::new() }
    }

    /// The next one takes over, with `others` requests in flight that it did not dispatch. Answers the one before.
    fn replace(&mut self, mut next: Box<dyn Scheduler>, others: u32) -> Box<dyn Scheduler> {
        self.generation += 1;
        self.others = others;
        next.set_others(others);
        core::mem::replace(&mut self.scheduler, next)
    }

    /// Tells it that a request is in the device no more: all of it, if it dispatched it (queue.12).
    #[inline]
    pub(super) fn tell_ended(&mut self, now: Instant, request: &Request, end: RequestEnd) {
        if request.generation == self.generation {
            self.completed(now, &Served { request: request.waiting, dispatched: request.dispatched, end });
        } else {
            self.other_ended();
        }
    }

    /// Tells it that a flush, or a write that is durable at once, is under way no more, unless it was told when that took too long
    /// (queue.17). The time `charged` of it is charged next.
    pub(super) fn tell_flush_ended(&mut self, now: Instant, request: &Request, charged: Duration) {
        if request.generation == self.generation && matches!(request.state, State::InFlight(_)) {
            self.flush_ended(now, charged);
        }
    }

    /// A request has ended or came back that another scheduler had dispatched.
    #[cold]
    pub(super) fn other_ended(&mut self) {
        self.others -= 1;
        let others = self.others;
        self.set_others(others);
    }

    // ---- what was learned (queue.15) ----

    /// The knowledge of this scheduler, which is of this kind, and of earlier ones.
    fn take_all_learned(&mut self, kind: Kind) -> Vec<(Kind, Record)> {
        let mut learned = core::mem::take(&mut self.learned);
        let mut own = Record::default();
        self.hand_on(&mut own);
        if !own.is_empty() {
            learned.push((kind, own));
        }
        learned
    }
}

/// queue.15. A part that cannot be is learned anew (record.2).
fn give(learned: &mut Vec<(Kind, Record)>, kind: Kind, to: &mut dyn Scheduler) {
    if let Some(at) = learned.iter().position(|(of, _)| *of == kind) {
        let _ = to.take_on(&mut learned.swap_remove(at).1);
    }
}

impl Queue {
    /// Changes the scheduler; works under load. Waiting requests go over in the order in which they would have gone out, and
    /// the tunables are the new one's defaults.
    pub fn set_scheduler(&mut self, now: Instant, kind: Kind) {
        let groups = core::slice::from_ref(self.groups.root());
        let next = kind.build(&Setup { groups, ..self.settings.setup() });
        self.take_over(now, kind, next);
    }

    /// As [`Queue::set_scheduler`], with a scheduler that was made before, from [`Settings::setup`](super::Settings::setup) of
    /// [`Queue::settings`] with the root alone: making one takes longer than this, and need not keep the queue's users waiting. It
    /// may be the caller's own: `kind` only names it. Answers the one before.
    pub fn take_over(&mut self, now: Instant, kind: Kind, mut next: Box<dyn Scheduler>) -> Box<dyn Scheduler> {
        self.hear();
        next.set_tracing(self.trace.is_on());
        next.resize(self.requests.capacity(), self.settings.depth);
        let before = core::mem::replace(&mut self.settings.scheduler, kind);
        self.scheduler.learned = self.scheduler.take_all_learned(before);
        give(&mut self.scheduler.learned, kind, &mut *next);
        self.unplug(now);
        for (id, group) in self.groups.parents_first() {
            next.set_group(now, id, group); // queue.12
        }
        self.promises.tell(now, &mut *next);
        for (id, state) in &self.groups.streams {
            next.add_stream(StreamId(id as u32), &state.stream);
        }
        while let Some(id) = self.scheduler.drain(now) {
            next.insert(now, &self.requests[id.0].waiting);
        }
        assert!(self.scheduler.is_empty(), "{} kept requests to itself", before.name());
        let sent = self.device.tags.owners().map(|id| &self.requests[id.0]);
        let is_awaited =
            |request: &&Request| request.waiting.op != Op::Flush && matches!(request.state, State::InFlight(_));
        self.scheduler.replace(next, sent.filter(is_awaited).count() as u32)
    }

    /// The knowledge of its scheduler and of earlier ones about the device, for another queue of it ([`Queue::recall`]); its own scheduler keeps
    /// what it has learned.
    pub fn take_learned(&mut self) -> Vec<(Kind, Record)> {
        self.scheduler.take_all_learned(self.settings.scheduler)
    }

    /// Takes in the learned state of another queue's schedulers; before the first request.
    pub fn recall(&mut self, learned: Vec<(Kind, Record)>) {
        let Present { scheduler, learned: there, .. } = &mut self.scheduler;
        there.extend(learned);
        give(there, self.settings.scheduler, &mut **scheduler);
    }
}
