//! Wake: which waiting caller to wake when a tag comes back.
//!
//! Eight threads share four tags. When a tag comes back, one of the four that sleep must be woken, or the tag lies idle; but a
//! wake-up costs more than a hundred tags taken and returned, so waking one for each tag would make the tags a matter of
//! waking. The idea: one caller at a time is on its way from sleep, and all others keep the tags in use meanwhile.
//!
//! wake.1  While no caller waits, neither counter is touched.
//! wake.2  Two counters only ever grow. Each tag that comes back while a caller waits adds to the *completions*. The caller
//!     that advances the *wake-ups* to them, in one step, looks after all that came back until then. There is nothing to
//!     reset, so nothing that can fall between two steps.
//! wake.3  While a caller that was woken has not yet run, no other is woken: callers that take tags and give them back
//!     meanwhile keep them in use, and a wake-up costs more than a hundred of them.
//! wake.4  A caller that was woken, or takes a tag while others wait, or goes to wait, then looks: if a tag is free, a caller
//!     waits and none is on the way, it wakes one. So no tag is free while a caller waits and none is on the way to it.
//! wake.5  A wake-up is for as many as there are free tags, at most [`wake_batch`], and no more than can run at once; they are
//!     taken from eight queues, in turn, by an index that is advanced before each is looked at. Callers join them in turn as
//!     well.
//! wake.6  While others wait, a caller takes a bounded number of tags and then waits in line: the more wait, the fewer.
//!
//! wake.1, wake.2 and wake.5 are those of Linux since 6.2 ("sbitmap: use two atomic counters"). There a batch that is not full is
//! not woken; wake.3 and wake.4 are instead of that, because a tag that is free while a caller waits is a tag too few, and because
//! at depths below 16 that batch is 1 and saves nothing.

use crate::sync::{AtomicUsize, Ordering, agree};

/// In how many queues callers that wait are spread (wake.5): the kernel's `SBQ_WAIT_QUEUES`.
pub const WAIT_QUEUES: usize = 8;

/// How many are woken at once, at most (wake.5): an eighth of the tags that the most restricted caller may have, 1 to 8.
///
/// `shallow` is the least shallow depth that callers are held to, `users` how many share the tags.
#[must_use]
pub fn wake_batch(depth: usize, shallow: Option<usize>, users: usize) -> usize {
    let each = depth.div_ceil(users.max(1));
    (each.min(shallow.unwrap_or(depth)) / WAIT_QUEUES).clamp(1, 8)
}

/// The common knowledge of all callers that wait for the same tags: the two counters that only ever grow (wake.2), and how many wait and
/// are on the way.
#[derive(Default, Debug)]
pub struct Wakeups {
    completions: AtomicUsize,
    wakeups: AtomicUsize,
    waiting: AtomicUsize,
    on_the_way: AtomicUsize,
}

impl Wakeups {
    /// How many wait, those on the way not among them.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Counts tags that came back while a caller waited.
    pub fn completed(&self, tags: usize) {
        self.completions.fetch_add(tags, Ordering::SeqCst);
    }

    /// Whether this caller is to look after what came back; `false`: another does, or nothing did.
    pub fn claim(&self) -> bool {
        let mut wakeups = self.wakeups.load(Ordering::SeqCst);
        loop {
            // In this order: read later, the completions cannot be behind.
            let completions = self.completions.load(Ordering::SeqCst);
            if completions == wakeups {
                return false;
            }
            match self.wakeups.compare_exchange(wakeups, completions, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                // The winner may have counted before our completion: look again.
                Err(now) => wakeups = now,
            }
        }
    }

    /// The completions and the wake-ups so far.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.completions.load(Ordering::SeqCst), self.wakeups.load(Ordering::SeqCst))
    }

    /// Whether a caller was woken and has not run yet (wake.3): the rest is then left to it (wake.4).
    #[must_use]
    pub fn is_someone_on_the_way(&self) -> bool {
        self.on_the_way.load(Ordering::SeqCst) > 0
    }

    /// Counts callers that are about to be woken.
    pub fn set_out(&self, count: usize) {
        self.on_the_way.fetch_add(count, Ordering::SeqCst);
        agree();
    }

    /// Counts callers on the way that have run, or were gone after all; the caller looks again (wake.4).
    ///
    /// # Panics
    /// If fewer are on the way.
    pub fn arrived(&self, count: usize) {
        let before = self.on_the_way.fetch_sub(count, Ordering::SeqCst);
        assert!(before >= count, "{count} arrived of {before} on the way");
        agree();
    }
}

/// Those of them that wait for the same reason; the eight queues that hold them belong to the code that can sleep.
#[derive(Default, Debug)]
pub struct Wakes {
    waiting: AtomicUsize,
    join: AtomicUsize,
    wake: AtomicUsize,
}

impl Wakes {
    /// How many wait, those on the way not among them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// The queue to join (wake.5).
    pub fn queue_to_join(&self) -> usize {
        self.join.fetch_add(1, Ordering::SeqCst) % WAIT_QUEUES
    }

    /// The queue to wake from next (wake.5).
    pub fn queue_to_wake(&self) -> usize {
        self.wake.fetch_add(1, Ordering::SeqCst) % WAIT_QUEUES
    }

    /// One is in a queue; to be said under that queue's lock.
    pub fn joined(&self, all: &Wakeups) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        all.waiting.fetch_add(1, Ordering::SeqCst);
        agree();
    }

    /// One left its queue, woken or not; to be said under that queue's lock.
    pub fn left(&self, all: &Wakeups) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        all.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How many tags a caller may still take while others wait (wake.6).
#[derive(Clone, Copy, Debug)]
pub struct Quota(usize);

/// The tags that are taken while all waiters have had a quota, about: with many of them each quota is small. Chosen: at a million
/// requests a second all waiters are through in 2 ms.
/// (Under a model checker so few that it sees quotas used up.)
const ROUND: usize = if cfg!(any(loom, shuttle)) { 2 } else { 2048 };
/// The smallest quota and the largest. Chosen: below, changing places costs more than the quota saves; above, nothing more is
/// saved.
const QUOTA: (usize, usize) = if cfg!(any(loom, shuttle)) { (1, 2) } else { (8, 1024) };

impl Default for Quota {
    fn default() -> Self {
        Self(QUOTA.1)
    }
}

impl Quota {
    /// Begins, with `waiting` others.
    pub fn begin(&mut self, waiting: usize) {
        self.0 = (ROUND / (waiting + 1)).clamp(QUOTA.0, QUOTA.1);
    }

    /// Counts a tag that was taken, with `waiting` others; answers whether it may take another.
    #[inline]
    pub fn goes_on(&mut self, waiting: usize) -> bool {
        if waiting > 0 {
            self.0 = self.0.saturating_sub(1);
        }
        self.0 > 0
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// The table of the kernel's documentation, and its rule for shared tags.
    #[test]
    fn a_batch_is_an_eighth_of_the_tags_that_the_most_restricted_may_have() {
        for (depth, batch) in [(1, 1), (2, 1), (15, 1), (16, 2), (32, 4), (63, 7), (64, 8), (1024, 8)] {
            assert_eq!(wake_batch(depth, None, 1), batch, "depth {depth}");
        }
        assert_eq!(wake_batch(64, Some(16), 1), 2);
        assert_eq!(wake_batch(64, None, 4), 2);
        assert_eq!(wake_batch(64, None, 40), 1);
    }

    /// wake.2
    #[test]
    fn one_winner_looks_after_all_that_came_back() {
        let wakeups = Wakeups::default();
        assert!(!wakeups.claim(), "nothing came back");
        wakeups.completed(3);
        wakeups.completed(2);
        assert!(wakeups.claim());
        assert!(!wakeups.claim());
        assert_eq!(wakeups.counts(), (5, 5));
    }

    /// wake.3
    #[test]
    fn who_was_woken_is_on_the_way_until_it_has_run() {
        let (wakes, all) = (Wakes::default(), Wakeups::default());
        (0..3).for_each(|_| wakes.joined(&all));
        assert_eq!((wakes.waiting(), all.waiting(), all.is_someone_on_the_way()), (3, 3, false));
        all.set_out(2);
        (0..2).for_each(|_| wakes.left(&all));
        assert_eq!((wakes.waiting(), all.waiting(), all.is_someone_on_the_way()), (1, 1, true));
        all.arrived(1);
        assert!(all.is_someone_on_the_way());
        all.arrived(1);
        assert!(!all.is_someone_on_the_way());
    }

    /// wake.5
    #[test]
    fn queues_are_joined_and_woken_in_turn() {
        let wakes = Wakes::default();
        let joined: [usize; 9] = core::array::from_fn(|_| wakes.queue_to_join());
        assert_eq!(joined, [0, 1, 2, 3, 4, 5, 6, 7, 0]);
        assert_eq!(joined, core::array::from_fn(|_| wakes.queue_to_wake()));
    }

    /// wake.6
    #[test]
    fn a_quota_is_smaller_the_more_wait() {
        let taken = |waiting| {
            let mut quota = Quota::default();
            quota.begin(waiting);
            1 + (0..10_000).take_while(|_| quota.goes_on(waiting)).count()
        };
        assert_eq!((taken(1), taken(19), taken(1000)), (1024, 102, 8));
        assert_eq!(taken(0), 10_001, "alone, for ever");
    }

    #[test]
    #[should_panic(expected = "1 arrived of 0 on the way")]
    fn one_who_arrives_twice_stops_the_program() {
        Wakeups::default().arrived(1);
    }
}
