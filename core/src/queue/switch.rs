//! Another scheduler takes over, while requests wait and are in flight.
//!
//! queue.12  A scheduler that takes over is told of the groups that there are, parents first, then of the streams, then of what
//!     waits. Of what another has dispatched it hears only how many that are, until they have ended.
//! queue.15  What a scheduler has learned of the device is the device's: the next scheduler of that kind begins with it. The
//!     problem: an operator tries `bfq` and goes back to `fair`, which then took the disk for one that does its best with 32
//!     requests at once, and had to learn anew what each costs.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Queue, Request, Step};
use crate::group::StreamId;
use crate::sched::{Kind, Learned, Scheduler, Setup};
use crate::{Instant, Op};

impl Queue {
    /// Changes the scheduler; works under load. What waits goes over in the order in which it would have gone out, and
    /// the tunables are the new one's defaults.
    pub fn set_scheduler(&mut self, now: Instant, kind: Kind) {
        let next = kind.build(&self.setup());
        self.take_over(now, kind, next);
    }

    /// What a scheduler that takes over is made from.
    #[must_use]
    pub fn setup(&self) -> Setup<'_> {
        let groups = core::slice::from_ref(self.groups.root());
        Setup { groups, capacity: self.requests.capacity(), ..self.settings.setup() }
    }

    /// As [`Queue::set_scheduler`], with a scheduler of that kind that was made from [`Queue::setup`]: making one takes longer
    /// than this, and need not keep the queue's users waiting. Answers the one before.
    pub fn take_over(&mut self, now: Instant, kind: Kind, mut next: Box<dyn Scheduler>) -> Box<dyn Scheduler> {
        let own = self.own_learned();
        self.learned.extend(own);
        Self::give(&mut self.learned, kind, &mut *next);
        let old = self.replace_scheduler(now, next);
        self.settings.scheduler = kind;
        old
    }

    /// As [`Queue::set_scheduler`], with a scheduler of the caller's own, which was told of no group but the root and is
    /// made for at least `nr_requests` requests. Answers the one before.
    pub fn replace_scheduler(&mut self, now: Instant, mut next: Box<dyn Scheduler>) -> Box<dyn Scheduler> {
        self.unplug(now);
        for (id, group) in self.groups.parents_first() {
            next.set_group(now, id, group); // queue.12
        }
        for (id, floor) in &self.floors {
            next.set_floor(now, *id, floor);
        }
        for (id, objective) in &self.objectives {
            next.set_latency(now, *id, Some(objective.target()));
        }
        for (id, state) in &self.streams {
            next.add_stream(StreamId(id as u32), &state.stream);
        }
        next.set_tracing(self.trace.is_some());
        while let Some(id) = self.scheduler.drain(now) {
            next.insert(now, &self.requests[id.0].waiting);
        }
        assert!(self.scheduler.is_empty(), "{} kept requests to itself", self.settings.scheduler.name());
        self.generation += 1;
        let sent = self.tags.owners().map(|id| &self.requests[id.0]);
        let is_awaited =
            |request: &&Request| request.waiting.op != Op::Flush && matches!(request.step, Step::InFlight(_));
        self.others = sent.filter(is_awaited).count() as u32;
        next.set_others(self.others);
        core::mem::replace(&mut self.scheduler, next)
    }

    /// Takes out what schedulers have learned of the device, for another queue of it ([`Queue::recall`]). Its own scheduler begins
    /// anew.
    pub fn take_learned(&mut self) -> Vec<(Kind, Learned)> {
        let own = self.own_learned();
        core::mem::take(&mut self.learned).into_iter().chain(own).collect()
    }

    /// Takes in what another queue's schedulers have learned of the device.
    pub fn recall(&mut self, learned: Vec<(Kind, Learned)>) {
        self.learned.extend(learned);
        Self::give(&mut self.learned, self.settings.scheduler, &mut *self.scheduler);
    }

    fn own_learned(&mut self) -> Option<(Kind, Learned)> {
        Some((self.settings.scheduler, self.scheduler.take_learned()?))
    }

    /// queue.15
    fn give(learned: &mut Vec<(Kind, Learned)>, kind: Kind, to: &mut dyn Scheduler) {
        if let Some(at) = learned.iter().position(|(of, _)| *of == kind) {
            to.recall(learned.swap_remove(at).1);
        }
    }

    /// A request has ended or came back that another scheduler had dispatched.
    pub(super) fn other_ended(&mut self) {
        self.others -= 1;
        self.scheduler.set_others(self.others);
    }
}
