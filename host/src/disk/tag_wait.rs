//! How a worker waits for tags that workers share (scheduler `none`, `shared_tags`).
//!
//! The problem: four workers with a queue each share 8 tags, and two of the workers could take all 8 again and again. The
//! idea: a worker that lacks a tag waits in a queue until it is woken, and one that has taken its quota while others wait
//! goes behind them. The worker's own queue takes tags from the bitmap itself; here is the waiting (rule wake.6 of
//! `fairlift_core::tags`).
//!
//! tag_wait.1  A worker that waits asks its queue for nothing until it is woken, unless no other worker waits.
//! tag_wait.2  A worker that has used its quota waits behind the others, even while a tag is free.
//! tag_wait.3  A worker that has asked for nothing for a second gives up its assured part of the tags.

use std::sync::Arc;
use std::task::{Context, Waker};

use fairlift_core::tags::Quota;
use fairlift_core::{Duration, Instant};

use crate::tags::{Caller, TagQueue};

/// How long a worker without requests is still assured its part of shared tags. Chosen: longer than the pauses of a load that goes
/// on (the kernel: its request timer, of seconds).
const IDLE: Duration = fairlift_core::time::secs(1);

pub(crate) struct TagWait {
    tags: Arc<TagQueue>,
    caller: Caller,
    waker: Waker,
    user: usize,
    turn: Quota,
    over: bool,
    /// Since when nothing is asked for.
    idle: Option<Instant>,
}

impl TagWait {
    pub(crate) fn new(tags: &Arc<TagQueue>, user: usize, waker: Waker) -> Self {
        let caller = tags.caller_of(user);
        Self { tags: Arc::clone(tags), caller, waker, user, turn: Quota::default(), over: false, idle: None }
    }

    /// A turn of the worker begins; its queue has put back `came` tags. Answers whether it may ask for requests (tag_wait.1).
    pub(crate) fn begin(&mut self, came: usize) -> bool {
        if self.caller.is_waiting() && self.tags.waiting() == 1 {
            self.first_again(); // or we would wake ourselves
        }
        if came > 0 {
            self.tags.returned(came);
        }
        if !self.caller.is_waiting() {
            // Without looking: what is left over is passed on at the end of the turn.
            self.first_again();
        }
        !self.caller.is_waiting()
    }

    /// Stops waiting, if it did, and begins a new quota.
    fn first_again(&mut self) {
        if self.caller.is_queued() {
            self.caller.stop_waiting();
            self.over = false;
            self.turn.begin(self.tags.waiting());
        }
    }

    /// The queue has taken a tag; answers whether it may take another (tag_wait.2).
    pub(crate) fn took(&mut self) -> bool {
        let waiting = self.tags.waiting();
        self.over = waiting > 0 && !self.turn.goes_on(waiting);
        !self.over
    }

    /// The queue asks for no more now, because it lacks a tag, or has none to give them to, or its turn is over. Answers
    /// whether it shall ask again at once: a tag came back meanwhile.
    pub(crate) fn wait(&mut self, lacks_tag: bool) -> bool {
        let mut context = Context::from_waker(&self.waker);
        if self.over {
            self.caller.give_way(&mut context);
            return false;
        }
        lacks_tag && self.caller.poll_free(&mut context).is_ready()
    }

    /// The turn is over. Passes on unused tags; answers when to look again, so as to give up our part (tag_wait.3).
    pub(crate) fn end(&mut self, now: Instant, idle: bool) -> Option<Instant> {
        self.tags.look();
        if !idle {
            self.idle = None;
            return None;
        }
        let since = *self.idle.get_or_insert(now);
        if now < since + IDLE {
            return Some(since + IDLE);
        }
        self.tags.retire(self.user);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::task::Wake;

    use fairlift_core::queue::{Settings, SharedTags};
    use fairlift_core::sched::Kind;
    use fairlift_core::*;

    use super::*;
    use crate::tags;

    /// Whether it rang since the last turn, and how often in all.
    struct Bell(AtomicBool, AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A worker with a queue, as the engine has it, and a device that takes one turn for everything.
    struct Worker {
        queue: Queue,
        stream: StreamId,
        wait: TagWait,
        bell: Arc<Bell>,
        in_device: Vec<Tag>,
        next: u64,
        dispatched: usize,
    }

    impl Worker {
        fn new(tags: &Arc<TagQueue>, user: usize) -> Self {
            let shared = SharedTags { bitmap: Arc::clone(tags.bitmap()), users: Arc::clone(tags.users()), user };
            let depth = tags.depth() as u16;
            let settings = Settings { tags: Some(shared), depth, ..Settings::new(Kind::None, Limits::new(1 << 40)) };
            let mut queue = Queue::new(settings);
            let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context: ContextId(0) };
            let stream = queue.add_stream(stream);
            let bell = Arc::new(Bell(AtomicBool::new(true), AtomicUsize::new(0)));
            let wait = TagWait::new(tags, user, Waker::from(Arc::clone(&bell)));
            Self { queue, stream, wait, bell, in_device: Vec::new(), next: 0, dispatched: 0 }
        }

        /// One turn, if there is a reason for one: something ended, or it was woken.
        fn turn(&mut self, backlog: bool) {
            let rung = self.bell.0.swap(false, Ordering::SeqCst);
            if !rung && self.in_device.is_empty() {
                return;
            }
            let (now, context) = (Instant::ZERO, ContextId(0));
            let came = self.in_device.len();
            for tag in self.in_device.drain(..) {
                self.queue.handle_completion(now, tag, Outcome::Done);
            }
            while self.queue.poll_finished(context).is_some() {}
            let mut may_ask = self.wait.begin(came);
            for _ in 0..if backlog { 64 - self.queue.load().waiting.min(64) } else { 0 } {
                let extent = Extent::new(Sector(self.next * 1024), 8);
                let bio =
                    Bio { op: Op::Read, flags: Flags::NONE, extent, stream: self.stream, token: Token(self.next) };
                self.next += 1;
                self.queue.submit(now, bio).unwrap();
            }
            while may_ask {
                let mut goes_on = true;
                while goes_on && let Some(dispatch) = self.queue.poll_dispatch(now, context) {
                    self.in_device.push(dispatch.tag);
                    self.dispatched += 1;
                    goes_on = self.wait.took();
                }
                may_ask = self.wait.wait(self.queue.load().lacks_tag);
            }
            let load = self.queue.load();
            self.wait.end(now, load.in_flight == 0 && load.waiting == 0);
        }
    }

    fn share(depth: usize, workers: usize) -> Vec<usize> {
        let tags = TagQueue::new(tags::Settings { users: workers, ..tags::Settings::new(depth) }).unwrap();
        let mut workers: Vec<_> = (0..workers).map(|user| Worker::new(&tags, user)).collect();
        for _ in 0..100_000 {
            workers.iter_mut().for_each(|worker| worker.turn(true));
        }
        workers.iter().map(|worker| worker.dispatched).collect()
    }

    /// tag_wait.2
    #[test]
    fn workers_that_all_want_more_than_there_is_have_equal_parts() {
        for (depth, workers) in [(1, 2), (2, 2), (4, 2), (8, 4), (64, 4)] {
            let parts = share(depth, workers);
            let (least, most) = (parts.iter().min().unwrap(), parts.iter().max().unwrap());
            assert!(*least * 10 > *most * 8, "depth {depth}: {parts:?}");
        }
    }

    /// tag_wait.3
    #[test]
    fn a_worker_that_asks_for_nothing_takes_nobody_s_part() {
        let tags = TagQueue::new(tags::Settings { users: 2, ..tags::Settings::new(16) }).unwrap();
        let (mut busy, mut idle) = (Worker::new(&tags, 0), Worker::new(&tags, 1));
        for _ in 0..10 {
            busy.turn(true);
            idle.turn(false);
        }
        assert_eq!((busy.in_device.len(), tags.users().active()), (16, 1));
    }

    #[test]
    fn a_tag_that_comes_back_wakes_one_worker_and_not_all() {
        let tags = TagQueue::new(tags::Settings { users: 4, ..tags::Settings::new(1) }).unwrap();
        let mut workers: Vec<_> = (0..4).map(|user| Worker::new(&tags, user)).collect();
        for _ in 0..10_000 {
            workers.iter_mut().for_each(|worker| worker.turn(true));
        }
        let rings: usize = workers.iter().map(|worker| worker.bell.1.load(Ordering::SeqCst)).sum();
        let dispatched: usize = workers.iter().map(|worker| worker.dispatched).sum();
        assert!(rings <= dispatched + 10, "{rings} rings for {dispatched} requests");
    }
}
