//! The queues of a worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use super::device::Newcomer;
use super::proto::REQUEST_MAX;
use super::queue::UblkQueue;
use super::service::{TICKET, Tag, Ublks};
use crate::disk::engine::{Engine, News};
use crate::export::front::{Clients, Front, Protocol as _};
use crate::export::hold::Report;
use crate::export::present::{Fate, Present};
use crate::export::service::{Client, Exports};
use crate::kernel::buffer::Pages;
use crate::kernel::ring::Completion;

pub(crate) struct Ublk {
    /// The state that all workers share.
    common: Arc<Ublks>,
    /// By queue slots, which do not come again. Example: a device is left for the next server, and the kernel answers a command of its queue
    /// with a request for that server. That answer finds no queue.
    queues: BTreeMap<usize, UblkQueue>,
    /// The next queue slot.
    next: usize,
    /// Queues that were given to this worker in this turn. They are taken up once the engine has looked which disks there are: that of an
    /// export that was just added may have the number of one that has just gone.
    newcomers: Vec<Newcomer>,
    /// Queues with something that waits.
    waiting: Vec<usize>,
    /// Queues that may be over.
    ending: Vec<usize>,
    /// Reads that have ended: the kernel copies from their memory when it takes the collected commands.
    spent: Vec<usize>,
    /// Where the data of writes goes for which there is no memory (blkqueue.6).
    spill: Option<Pages>,
    present: Present,
}

/// Devices are numbered from here on, among the clients of a worker.
const CLIENTS: usize = TICKET as usize;

impl Ublk {
    pub(crate) fn new(common: Arc<Ublks>) -> Self {
        Self {
            queues: BTreeMap::new(),
            next: 0,
            newcomers: Vec::new(),
            waiting: Vec::new(),
            ending: Vec::new(),
            spent: Vec::new(),
            spill: None,
            present: Present::new(&common.service.exports()),
            common,
        }
    }

    fn welcome(&mut self, engine: &mut Engine, mut newcomer: Newcomer) {
        // It may have changed on the way here.
        newcomer.export = self.common.service.exports().get(newcomer.export.id).cloned().unwrap_or(newcomer.export);
        let (export, peer, number) = (Arc::clone(&newcomer.export), newcomer.device.path(), newcomer.number);
        if self.spill.is_none() {
            self.spill = Pages::reserve(REQUEST_MAX as usize).ok();
            self.spill.iter_mut().for_each(|spill| spill.bytes_mut()[0] = 0); // as a rule, some data fits into a page that is there
        }
        let queue_slot = self.next;
        self.next += 1;
        self.queues.insert(queue_slot, UblkQueue::new(engine, newcomer, queue_slot));
        self.present.join(&export, queue_slot);
        if number == 0 {
            let (export, since) = (Some(export.name.clone()), SystemTime::now());
            let client = Client { peer, export, since, unsent: Arc::default() };
            self.common.service.clients().insert((engine.context.0, CLIENTS + queue_slot), client);
        }
    }

    /// Begins with nothing more of devices that are left to another server.
    fn look_at_left(&mut self) {
        for (queue_slot, queue) in &mut self.queues {
            if queue.device.is_left.load(Ordering::Acquire) {
                queue.left = true;
                self.ending.push(*queue_slot);
            }
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
}

impl Front for Ublk {
    fn completed(&mut self, engine: &mut Engine, what: u64, completion: &Completion) {
        let Tag { queue_slot, tag } = Tag::of(what);
        // A request of a queue that has left is for the next server.
        let Some(queue) = self.queues.get_mut(&queue_slot) else { return };
        let waited = queue.is_held_back();
        queue.completed(engine, tag, completion.result);
        if queue.is_held_back() {
            if !waited {
                self.waiting.push(queue_slot);
            }
        } else {
            self.ending.push(queue_slot);
        }
    }

    fn woken(&mut self, engine: &mut Engine) {
        self.newcomers.append(&mut self.common.newcomers.take(engine.context));
        self.look_at_left();
    }

    fn look_at_clock(&mut self, engine: &mut Engine) {
        for newcomer in std::mem::take(&mut self.newcomers) {
            self.welcome(engine, newcomer);
            self.look_at_left();
        }
        self.release_spent(engine);
    }

    #[inline]
    fn news(&mut self, engine: &mut Engine, ticket: usize, news: News) {
        let Tag { queue_slot, tag } = Tag::of(engine.owner(ticket));
        let queue = self.queues.get_mut(&queue_slot).expect("a queue stays while it serves something");
        self.spent.extend(queue.news(engine, ticket, tag, news));
        if queue.left {
            self.ending.push(queue_slot);
        }
    }

    fn go_on(&mut self, engine: &mut Engine) -> bool {
        if engine.holds {
            return false; // hold.1
        }
        let mut some = false;
        let (queues, spill) = (&mut self.queues, self.spill.as_ref());
        self.waiting.retain(|queue_slot| {
            let Some(queue) = queues.get_mut(queue_slot) else { return false };
            some |= queue.go_on(engine, spill);
            queue.is_held_back()
        });
        some
    }

    fn arm(&mut self, engine: &mut Engine) {
        for queue_slot in std::mem::take(&mut self.ending) {
            if !self.queues.get(&queue_slot).is_some_and(UblkQueue::is_over) {
                continue;
            }
            let Some(queue) = self.queues.remove(&queue_slot) else { continue };
            // Collected requests for it name its descriptor.
            engine.ring.submit();
            self.present.leave(queue.export.id, queue_slot);
            queue.close(engine);
            self.common.service.clients().remove(&(engine.context.0, CLIENTS + queue_slot));
        }
    }

    fn waits_for_memory(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn make_room(&mut self, engine: &mut Engine) {
        if !self.spent.is_empty() {
            engine.ring.submit();
            self.release_spent(engine);
        }
    }

    fn is_over(&self, _engine: &Engine) -> bool {
        self.newcomers.is_empty() && self.queues.is_empty() && self.spent.is_empty() && self.common.has_drained()
    }
}

impl Clients for Ublk {
    /// A queue whose export is gone goes on until its device is stopped.
    #[cold]
    fn follow(&mut self, engine: &mut Engine, exports: &Exports) {
        for (queue_slot, fate) in self.present.follow(exports) {
            if let (Fate::Changed(export), Some(queue)) = (fate, self.queues.get_mut(&queue_slot)) {
                queue.follow(engine, &export);
            }
        }
    }

    fn drain(&mut self, _engine: &mut Engine) {
        self.common.drain();
    }

    /// The kernel has all ended requests by then. Requests that were fetched and not begun it gives to the next server (blkqueue.5).
    fn held(&mut self, engine: &mut Engine) -> Option<Report> {
        if !self.newcomers.is_empty() || !self.queues.values().all(UblkQueue::stands_still) {
            return None;
        }
        engine.ring.submit();
        self.release_spent(engine);
        Some(if engine.context.0 == 0 { self.common.held() } else { Ok(Vec::new()) })
    }

    fn serve_on(&mut self, engine: &mut Engine) {
        if engine.context.0 == 0 && !self.common.service.draining.load(Ordering::Acquire) {
            self.common.start();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::{engine, newcomer};
    use super::super::proto;
    use super::*;
    use crate::access::Access;
    use crate::config::Limits;
    use crate::export::front::Protocol;
    use crate::export::listeners::Listeners;
    use crate::export::service::Service;
    use crate::kernel::ring::Source;

    /// The kernel answers a command of a queue, by its slot here, with a request.
    fn answer(front: &mut Ublk, engine: &mut Engine, queue_slot: usize) {
        let data = Tag { queue_slot, tag: 0 }.event();
        let Source::Front(what) = Source::unpack(data) else { panic!("it is a front's") };
        let (buffer, socket_has_more, goes_on) = Default::default();
        let completion = Completion { data, result: proto::REQUEST, buffer, socket_has_more, goes_on };
        front.completed(engine, what, &completion);
    }

    /// The request is for the server that the device was left to.
    #[test]
    fn a_late_answer_to_a_queue_that_has_left_reaches_no_other_queue() {
        let (mut engine, export) = engine();
        let access = Arc::new(Access::new(&[], &Arc::default(), &Access::default()));
        let exports = Exports::new(vec![Arc::clone(&export)], access, BTreeMap::new());
        let (listeners, notifiers) = (Listeners::new(Vec::new(), None), Arc::clone(&engine.notifiers));
        let service = Arc::new(Service::new(exports, listeners, Limits::default(), notifiers, false));
        let mut front = Ublk::new(Arc::new(Ublks::new(&service)));
        let first = newcomer(&export);
        let device = Arc::clone(&first.device);
        front.welcome(&mut engine, first);
        device.is_left.store(true, Ordering::Release);
        front.look_at_left();
        front.arm(&mut engine);
        assert!(front.queues.is_empty(), "it has left, and the kernel has its commands");
        front.welcome(&mut engine, newcomer(&export));
        answer(&mut front, &mut engine, 0);
        assert!(front.waiting.is_empty() && front.ending.is_empty());
        answer(&mut front, &mut engine, 1);
        assert_eq!(front.waiting, [1], "and its own do");
    }
}
