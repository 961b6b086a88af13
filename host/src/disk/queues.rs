//! The queues of a disk under one scheduler: one for all workers, or one for each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairlift_core::queue::{Settings, SharedTags};
use fairlift_core::sched::Kind;
use fairlift_core::tags::DEPTH_MAX;
use fairlift_core::{ContextId, Group, GroupId, Instant, Queue, tunable};

use super::Bound;
use crate::tags::{self, TagQueue};

/// Tags that queues share can become so many times as many while they are used. Chosen: with 16 the tags of a depth are still spread over
/// four words, as they are without room to grow (bitmap.2).
const GROWTH: usize = 16;

/// The queues of a disk.
pub(crate) struct Queues {
    list: Box<[Mutex<Queue>]>,
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
    ) -> Result<Self, tunable::Error> {
        let count = count(settings);
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
            groups.iter().for_each(|(id, group)| queue.add_group_at(now, *id, group.clone()));
            set.iter().try_for_each(|(name, value)| queue.set_tunable(name, value))?;
            Ok(Mutex::new(queue))
        };
        Ok(Self { list: (0..count).map(queue).collect::<Result<_, _>>()?, tags })
    }

    /// Changes how many requests may be in flight in each, and how many may wait or be in flight; `false`, and nothing has changed,
    /// if there is no room for so many shared tags.
    pub(super) fn set_bounds(&self, now: Instant, depth: u16, nr_requests: u32) -> bool {
        if self.tags.as_ref().is_some_and(|tags| tags.resize(depth.into()).is_err()) {
            return false;
        }
        self.each().for_each(|mut queue| queue.set_bounds(now, depth, nr_requests.max(depth.into())));
        true
    }

    /// The queue that a context uses.
    #[inline]
    pub(crate) fn of(&self, context: ContextId) -> MutexGuard<'_, Queue> {
        lock(&self.list[usize::from(context.0) % self.list.len()])
    }

    /// How many there are.
    pub(super) const fn count(&self) -> usize {
        self.list.len()
    }

    /// One of them.
    pub(super) fn nth(&self, number: usize) -> MutexGuard<'_, Queue> {
        lock(&self.list[number])
    }

    /// Each of them, once.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Queue>> {
        self.list.iter().map(lock)
    }

    /// Binds a group, where they have it.
    pub(super) fn bind(&self, now: Instant, id: GroupId, bound: &Bound) {
        for mut queue in self.each().filter(|queue| queue.has_group(id)) {
            queue.set_ceiling(now, id, bound.budget.clone());
            queue.set_floor(now, id, bound.floor);
        }
    }

    /// The scheduler of each.
    pub(super) fn scheduler(&self) -> Kind {
        self.nth(0).settings().scheduler
    }

    /// Whether all workers have the same one.
    pub(super) const fn is_one(&self) -> bool {
        self.list.len() == 1
    }

    /// The tags that a context's queue shares with the others', if it does.
    pub(super) const fn tags(&self) -> Option<&Arc<TagQueue>> {
        self.tags.as_ref()
    }
}

/// How many queues a disk has under these settings (disk.2).
pub(super) fn count(settings: &Settings) -> usize {
    if settings.scheduler.is_per_disk() { 1 } else { settings.contexts.into() }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    // A panic within the queue is a broken promise about clients' data: the server does not go on after it.
    queue.lock().unwrap_or_else(|_: PoisonError<_>| panic!("a worker panicked in the queue of a disk"))
}
