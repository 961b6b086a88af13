//! The queues of a worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use fairlift_core::Instant;

use super::queue::Queue;
use super::seats::Seats;
use super::service::{Newcomer, Tag, Ublks};
use crate::disk::engine::{Engine, News};
use crate::export::front::Front;
use crate::export::service::{Client, Service};
use crate::kernel::ring::Completion;

/// The queues of a worker.
pub(crate) struct Ublk {
    service: Arc<Service>,
    /// What all workers have of them.
    common: Arc<Ublks>,
    queues: Seats<Queue>,
    /// Queues that were given to this worker in this turn. They are taken up once the engine has looked which disks there are: that of an
    /// export that was just added may have the number of one that has just gone.
    newcomers: Vec<Newcomer>,
    /// Queues with something that waits.
    waiting: Vec<usize>,
    /// Queues that may be over.
    ending: Vec<usize>,
    /// Reads that have ended, whose memory the kernel copies from when it takes what was collected.
    spent: Vec<usize>,
    /// The change of exports that was looked at last.
    changes_seen: u64,
    /// Since when we have been draining.
    draining: Option<Instant>,
}

/// Devices are numbered from here on, among the clients of a worker.
const CLIENTS: usize = 1 << 33;

impl Ublk {
    /// No queues yet.
    pub(crate) fn new(service: Arc<Service>, common: Arc<Ublks>) -> Self {
        let changes_seen = service.changes();
        let (newcomers, waiting, ending, spent, draining) = Default::default();
        Self { service, common, queues: Seats::new(), newcomers, waiting, ending, spent, changes_seen, draining }
    }

    /// A queue was given to this worker.
    fn welcome(&mut self, engine: &mut Engine, newcomer: Newcomer) {
        let Newcomer { device, export, file, number, descriptors } = newcomer;
        let client = Client {
            peer: device.path(),
            export: Some(export.name.clone()),
            since: SystemTime::now(),
            unsent: Arc::default(),
        };
        let seat = self.queues.take(|seat| Queue::new(engine, (device, file), export, (number, seat), descriptors));
        if number == 0 {
            self.service.clients().insert((engine.context.0, CLIENTS + seat), client);
        }
    }

    /// Exports have come, changed or gone. A queue whose export is gone goes on until its device is stopped.
    #[cold]
    fn look_at_exports(&mut self, engine: &mut Engine, now: Instant) {
        let exports = self.service.exports();
        for (_, queue) in self.queues.all() {
            if let Some(there) = exports.list.iter().find(|there| there.id == queue.export().id) {
                queue.follow(engine, now, there);
            }
        }
    }

    /// Begins with nothing more of devices that are left to another server.
    fn look_at_left(&mut self) {
        for (seat, queue) in self.queues.all().filter(|(_, queue)| queue.device.is_left()) {
            queue.leave();
            self.ending.push(seat);
        }
    }

    /// Gives back the memory of reads that the kernel has taken.
    fn release_spent(&mut self, engine: &mut Engine) {
        if !self.spent.is_empty() && engine.ring.is_submitted() {
            self.spent.drain(..).for_each(|ticket| {
                engine.release(ticket);
            });
        }
    }

    /// Others want memory: what reads hold is given back at once.
    pub(crate) fn make_room(&mut self, engine: &mut Engine) {
        if !self.spent.is_empty() {
            engine.ring.submit();
            self.release_spent(engine);
        }
    }
}

impl Front for Ublk {
    const ASKS_BY_ITSELF: bool = false;

    type Done = ();

    fn completed(&mut self, engine: &mut Engine, _now: Instant, what: u64, completion: &Completion) {
        let Tag { seat, tag } = Tag::of_event(what);
        // A queue that has left is asked more, which is for the next server.
        let Some(queue) = self.queues.answered(seat) else { return };
        let waited = queue.is_held_back();
        queue.completed(engine, tag, completion.result);
        if queue.is_held_back() {
            if !waited {
                self.waiting.push(seat);
            }
        } else {
            self.ending.push(seat);
        }
    }

    /// There may be newcomers, or the order to drain.
    fn woken(&mut self, engine: &mut Engine, now: Instant) {
        self.newcomers.append(&mut self.common.newcomers_of(engine.context));
        let changes = self.service.changes();
        if std::mem::replace(&mut self.changes_seen, changes) != changes {
            self.look_at_exports(engine, now);
        }
        if self.draining.is_none() && self.service.draining.load(Ordering::Acquire) {
            self.draining = Some(now);
            self.common.drain();
        }
        self.look_at_left();
    }

    fn look_at_clock(&mut self, engine: &mut Engine, _now: Instant) {
        for newcomer in std::mem::take(&mut self.newcomers) {
            self.welcome(engine, newcomer);
            self.look_at_left();
        }
        self.release_spent(engine);
    }

    #[inline]
    fn news(&mut self, engine: &mut Engine, _now: Instant, ticket: usize, news: News) {
        let Tag { seat, tag } = Tag::of_ticket(engine.owner(ticket));
        let queue = self.queues.get(seat).expect("a queue stays while it serves something");
        self.spent.extend(queue.news(engine, ticket, tag, news));
        if queue.is_left() {
            self.ending.push(seat);
        }
    }

    fn go_on(&mut self, engine: &mut Engine, _now: Instant) -> bool {
        let mut some = false;
        let queues = &mut self.queues;
        self.waiting.retain(|seat| {
            let Some(queue) = queues.get(*seat) else { return false };
            some |= queue.go_on(engine);
            queue.is_held_back()
        });
        some
    }

    fn arm(&mut self, engine: &mut Engine, _now: Instant) {
        for seat in std::mem::take(&mut self.ending) {
            let Some(queue) = self.queues.get(seat).filter(|queue| queue.is_over()) else { continue };
            // What was collected for it names its descriptor.
            engine.ring.submit();
            let commands = queue.close(engine);
            self.queues.leave(seat, commands);
            self.service.clients().remove(&(engine.context.0, CLIENTS + seat));
        }
    }

    fn waits_for_memory(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn poll_timeout(&self, _now: Instant) -> Option<Instant> {
        None
    }

    fn gives_up_at(&self) -> Option<Instant> {
        let patience = self.service.limits.drain_timeout;
        self.draining.map(|since| since + patience + patience)
    }

    fn is_over(&self, _engine: &Engine) -> bool {
        self.draining.is_some()
            && self.newcomers.is_empty()
            && self.queues.are_empty()
            && self.spent.is_empty()
            && self.common.has_drained()
    }

    fn finish(&mut self) {}
}
