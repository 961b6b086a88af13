//! The queues of a disk under one scheduler: one for all workers, or one for each.
//!
//! queues.1  A worker that finds the queue taken looks again after a moment, twice as late each time, and at last sleeps. The problem: a
//!           visit takes some microseconds, and being put to sleep and woken takes ten times as long, of both workers' time. Looking
//!           all the time is no remedy: the queue then changes hands at each visit, and its memory goes from cache to cache, which
//!           takes as long again. Looking ever later leaves it where it is for a few visits. With one CPU nobody lets go while
//!           another looks: a worker sleeps at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use fairlift_core::queue::{Settings, SharedTags};
use fairlift_core::tags::DEPTH_MAX;
use fairlift_core::time::us;
use fairlift_core::{ContextId, Duration, Group, GroupId, Instant, Queue};

use super::Bound;
use crate::clock;
use crate::kernel::sleep::may_spin;
use crate::tags::{self, TagQueue};

/// Shared tags can grow by this factor while they are used. Chosen: with 16 the tags of a depth are still spread over four words, as they
/// are without room to grow (bitmap.2).
const GROWTH: usize = 16;

/// The first look, and the longest pause between two (queues.1). By the model of the lock (`fairlift_lab::lock`): with less at most, two
/// workers whose caches are far apart serve less; with more at first, workers that rarely meet do.
const PAUSES: [Duration; 2] = [Duration::from_nanos(250), us(16)];

/// Chosen: 64 µs in all, about twice the time of a sleep and a wake-up.
const LOOKS: u32 = 9;

pub(crate) struct Queues {
    list: Box<[Mutex<Queue>]>,
    /// Others have another CPU to run on while we look (queues.1).
    looks: bool,
    /// The tags that the queues share, if they do.
    tags: Option<Arc<TagQueue>>,
}

impl Queues {
    /// Queues made from `settings`, with these groups below the root, parents first, and these tunables of the scheduler; where
    /// each worker has its own, they share tags if that is asked for (disk.2).
    pub(super) fn new(
        now: Instant,
        settings: &Settings,
        groups: &[(GroupId, Group)],
        set: &[(String, String)],
        share_tags: bool,
    ) -> Self {
        let count = if settings.scheduler.is_per_disk() { 1 } else { settings.contexts.into() }; // disk.2
        let depth = usize::from(settings.depth);
        let tags = (share_tags && count > 1).then(|| {
            let capacity = depth.saturating_mul(GROWTH).min(DEPTH_MAX);
            let settings = tags::Settings { users: count, capacity, ..tags::Settings::new(depth) };
            TagQueue::new(settings).expect("the depth was looked at before")
        });
        let queue = |user| {
            let shared = tags.as_ref().map(|tags| SharedTags {
                bitmap: Arc::clone(tags.bitmap()),
                users: Arc::clone(tags.users()),
                user,
            });
            let mut queue = Queue::new(Settings { tags: shared, ..settings.clone() });
            groups.iter().for_each(|(id, group)| queue.add_group(now, *id, group.clone()));
            for (name, value) in set {
                queue.set_tunable(name, value).expect("the scheduler's settings were looked at before");
            }
            Mutex::new(queue)
        };
        Self { list: (0..count).map(queue).collect(), looks: may_spin(), tags }
    }

    /// Changes how many requests may be in flight in each, and how many may wait or be in flight; `false`, and nothing has changed, if
    /// there is no room for that number of shared tags.
    pub(super) fn set_bounds(&self, now: Instant, depth: u16, nr_requests: u32) -> bool {
        if self.tags.as_ref().is_some_and(|tags| tags.resize(depth.into()).is_err()) {
            return false;
        }
        self.each().for_each(|mut queue| queue.set_bounds(now, depth, nr_requests.max(depth.into())));
        true
    }

    #[inline]
    pub(crate) fn of(&self, context: ContextId) -> MutexGuard<'_, Queue> {
        self.lock(&self.list[usize::from(context.0) % self.list.len()])
    }

    pub(super) const fn count(&self) -> usize {
        self.list.len()
    }

    pub(super) fn nth(&self, number: usize) -> MutexGuard<'_, Queue> {
        self.lock(&self.list[number])
    }

    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Queue>> {
        self.list.iter().map(|queue| self.lock(queue))
    }

    /// Binds a group, where they have it.
    pub(super) fn bind(&self, now: Instant, id: GroupId, bound: &Bound) {
        for mut queue in self.each().filter(|queue| queue.groups().has(id)) {
            queue.bind(now, id, &bound.of_queue);
        }
    }

    /// Whether all workers have the same one.
    pub(super) const fn is_one(&self) -> bool {
        self.list.len() == 1
    }

    /// The tags that a context's queue shares with the others', if it does.
    pub(super) const fn tags(&self) -> Option<&Arc<TagQueue>> {
        self.tags.as_ref()
    }

    #[inline]
    fn lock<'a>(&self, queue: &'a Mutex<Queue>) -> MutexGuard<'a, Queue> {
        // An error may have the lock in it, and is to be gone before it is waited for.
        if let Ok(queue) = queue.try_lock() {
            return queue;
        }
        self.wait_for(queue)
    }

    /// queues.1
    #[cold]
    fn wait_for<'a>(&self, queue: &'a Mutex<Queue>) -> MutexGuard<'a, Queue> {
        let [mut pause, most] = PAUSES;
        for _ in 0..if self.looks { LOOKS } else { 0 } {
            let since = clock::now();
            // Longer or shorter by half: workers that look in step find the queue taken by one another.
            let nanos = pause.as_nanos() / 2 + since.as_nanos() % pause.as_nanos();
            while clock::now().since(since).as_nanos() < nanos {
                std::hint::spin_loop();
            }
            pause = (pause + pause).min(most);
            match queue.try_lock() {
                Err(TryLockError::WouldBlock) => {}
                Ok(queue) => return queue,
                Err(TryLockError::Poisoned(_)) => break,
            }
        }
        // A panic within the queue is a broken promise about clients' data: the server does not go on after it.
        queue.lock().unwrap_or_else(|_: PoisonError<_>| panic!("a worker panicked in the queue of a disk"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use fairlift_core::Limits;
    use fairlift_core::sched::Kind;

    use super::*;

    const WORKER: ContextId = ContextId(0);

    fn queues(looks: bool) -> Queues {
        let settings = Settings::new(Kind::MqDeadline, Limits::new(1 << 20));
        Queues { looks, ..Queues::new(Instant::ZERO, &settings, &[], &[], false) }
    }

    /// queues.1: whether the other lets go while we look or long after, on one CPU or several.
    #[test]
    fn a_worker_gets_the_queue_however_long_another_has_it() {
        for (looks, micros) in [(true, 0), (true, 10), (true, 2000), (false, 10), (false, 2000)] {
            let queues = &queues(looks);
            let (say, hear) = mpsc::channel();
            thread::scope(|scope| {
                scope.spawn(move || {
                    let mut queue = queues.of(WORKER);
                    say.send(()).unwrap();
                    thread::sleep(std::time::Duration::from_micros(micros));
                    queue.set_bounds(Instant::ZERO, 7, 14);
                });
                hear.recv().unwrap();
                assert_eq!(queues.of(WORKER).settings().depth, 7, "looks: {looks}, {micros} us: it was not let go yet");
            });
        }
    }

    #[test]
    fn nobody_goes_on_with_a_queue_in_which_a_worker_panicked() {
        for looks in [true, false] {
            let queues = &queues(looks);
            let panicked = |in_it: bool| {
                let work = move || {
                    let _queue = queues.of(WORKER);
                    assert!(!in_it, "as planned");
                };
                thread::scope(|scope| scope.spawn(work).join().is_err())
            };
            assert!(!panicked(false));
            assert!(panicked(true));
            assert!(panicked(false), "looks: {looks}: the next one went on");
        }
    }
}
