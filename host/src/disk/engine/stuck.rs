//! Stuck: requests that wait for nothing, found while a server runs.
//!
//! A wake-up that is lost, or an answer that is told to nobody, leaves a client waiting for ever, and nobody notices: all workers sleep. So a
//! worker with requests in a queue looks now and then whether anything is under way that could end them.
//!
//! stuck.1  A request is stuck if its worker has it in the queue of a disk, and nothing is to happen: the queue has no timer (of a ceiling,
//!          a deadline, a scheduler that idles), no worker's device has a request of the disk, and none is on its way to or from one; or the
//!          queue has something for the worker, which does not fetch it. So it has been for [`PATIENCE`], at every look, and no request of the
//!          worker has ended. That bound is no timeout's: a request that waits for a device, however long, has a timer, or is in it.
//! stuck.2  It is counted and told in the log once, with the state of the queue; then the disk is given a turn, which wakes what merely slept.
//! stuck.3  A worker that has requests of clients looks once a second; one that has none sleeps for ever. A look costs no request anything.

use fairlift_core::{ContextId, Duration, Instant};

use super::{DiskHandle, Engine};

/// How often a worker looks. Chosen: a look takes a lock.
pub(crate) const LOOK: Duration = fairlift_core::time::secs(1);

/// How long nothing has happened. Chosen: other workers are woken in microseconds, and a machine seldom keeps one from a CPU for so long.
const PATIENCE: Duration = fairlift_core::time::secs(5);

/// The result of a look at a disk: since when, the number of requests, and the work done by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Still {
    since: Instant,
    requests: usize,
    moved: usize,
    logged: bool,
}

impl DiskHandle {
    /// Requests of the worker that are in the queue, or wait to be, and whose clients have not been answered.
    fn pending(&self) -> usize {
        self.queue_io.open as usize - self.queue_io.timed_out.len() + self.queue_io.backlog.len()
    }

    fn has_news(&self, context: ContextId) -> bool {
        self.queues.of(context).load().news >> context.0 & 1 != 0
    }

    /// Whether nothing is under way that could end them (stuck.1).
    fn nothing_is_under_way(&self) -> bool {
        self.queue_io.timeout.is_none()
            && self.is_at_rest()
            && self.in_lanes() == 0
            && self.queues.each().all(|queue| queue.load().in_flight == 0 && queue.poll_timeout().is_none())
    }

    fn tell_stuck(&self, worker: u16) {
        let (mut waiting, mut lack_tags) = (0, 0);
        for queue in self.queues.each() {
            waiting += queue.load().waiting;
            lack_tags += usize::from(queue.load().lacks_tag);
        }
        let queue_io = &self.queue_io;
        let not_fetched = self.has_news(ContextId(worker));
        tracing::error!(
            disk = self.disk.name,
            worker,
            in_queue = queue_io.open,
            outside = queue_io.backlog.len(),
            full = queue_io.full,
            timed_out = queue_io.timed_out.len(),
            not_fetched,
            waiting,
            lack_tags,
            shared_tags = queue_io.tag_wait.is_some(),
            state = self.state(),
            "watchdog: requests wait, and nothing is under way that would end them; this is a fault of the server, please report it"
        );
    }
}

impl Engine {
    /// Looks for requests that are stuck; how many disks have some that had none.
    #[cold]
    pub(crate) fn look_for_stuck(&mut self, now: Instant) -> u64 {
        let mut found = 0;
        for at in 0..self.handles.count() {
            let number = self.handles.number(at);
            let handle = &mut self.handles[number];
            let requests = handle.pending();
            if requests == 0 || !(handle.has_news(self.context) || handle.nothing_is_under_way()) {
                handle.still = None;
                continue;
            }
            let moved = handle.queue_io.moved;
            let before = handle.still.filter(|still| (still.requests, still.moved) == (requests, moved));
            let still = before.unwrap_or(Still { since: now, requests, moved, logged: false });
            let is_stuck = now.since(still.since) >= PATIENCE;
            handle.still = Some(Still { logged: still.logged || is_stuck, ..still });
            if is_stuck && !still.logged {
                found += 1;
                handle.tell_stuck(self.context.0);
            }
            if is_stuck {
                self.mark(number);
            }
        }
        found
    }
}
