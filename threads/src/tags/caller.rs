//! Caller: takes tags, and waits for them as a thread, as a task, or by polling.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use fairlift_core::Tag;
use fairlift_core::tags::{Hint, Quota};

use super::wait::{QueueEnd, WAITING, WOKEN, Waiter};
use super::{Class, TagQueue};
use crate::sync::{Parker, Sleeper};

/// How often a thread looks for a tag before it sleeps, if that helped the last times; each is some 50 ns, so that all are
/// no longer than going to sleep and being woken.
const SPIN: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 64 };

/// A taker of tags: a thread or a task. Dropped while it waits, it passes on its wake-up.
pub struct Caller {
    tags: Arc<TagQueue>,
    class: Class,
    user: usize,
    line: usize,
    hint: Hint,
    turn: Quota,
    /// The turn is over: if others wait, this one waits too, whether or not a tag is free (wake.6).
    over: bool,
    waiter: Arc<Waiter>,
    /// Whether it polled and has not got up since: in line, or on the way.
    queued: bool,
    /// The queue that the waiter is in, or was taken out of.
    queue: usize,
    parker: Parker,
    spin: u32,
}

impl Caller {
    pub(super) fn new(tags: Arc<TagQueue>, user: usize) -> Self {
        assert!(user < tags.users.len(), "there is no user {user}: there are {}", tags.users.len());
        let waiter = Arc::new(Waiter::default());
        let hint = Hint::of(tags.callers.fetch_add(1, Ordering::Relaxed));
        let line = tags.queues_of(Class::Full, user);
        Self {
            tags,
            class: Class::Full,
            user,
            line,
            hint,
            turn: Quota::default(),
            over: false,
            waiter,
            queued: false,
            queue: 0,
            parker: Parker::new(),
            spin: SPIN,
        }
    }

    /// The same, held to the shallow depth: so that the likes of it never hold every tag, while that is less than the depth.
    ///
    /// # Panics
    /// If no shallow depth was set.
    #[must_use]
    pub fn shallow(mut self) -> Self {
        assert!(self.tags.shallow.is_some(), "a shallow caller of tags without a shallow depth");
        self.leave();
        (self.class, self.line) = (Class::Shallow, self.tags.queues_of(Class::Shallow, self.user));
        self
    }

    /// A caller that is entitled to the reserved tags, and to no others.
    ///
    /// # Panics
    /// If none are reserved.
    #[must_use]
    pub fn reserved(self) -> Self {
        self.tags.reserved.as_ref().expect("a caller for reserved tags where none are").caller()
    }

    /// Takes a tag if one is free, though others wait; may miss one that comes back at that moment. A caller that waited as a
    /// task waits no longer.
    #[inline]
    pub fn try_get(&mut self) -> Option<Tag> {
        if self.queued {
            self.leave();
        }
        let tag = self.tags.take(self.class, self.user, &mut self.hint)?;
        let waiting = self.tags.wakeups.waiting();
        if waiting > 0 {
            self.over = !self.turn.goes_on(waiting);
            self.tags.look(); // wake.4
        }
        Some(tag)
    }

    /// Takes a tag; sleeps while there is none. A caller that waited as a task waits no longer.
    #[inline]
    pub fn get(&mut self) -> Tag {
        if self.queued {
            self.leave();
        }
        self.try_get_in_turn().unwrap_or_else(|| self.wait())
    }

    /// Takes a tag, or arranges for the task to be woken when there may be one.
    ///
    /// A task that was woken must poll again, or drop the caller, or [`Caller::leave`]: others count on it (wake.3).
    pub fn poll_get(&mut self, context: &mut Context<'_>) -> Poll<Tag> {
        let place = if self.queued {
            if self.poll_woken(context) == Poll::Pending {
                return Poll::Pending;
            }
            if let Some(tag) = self.arrive() {
                return Poll::Ready(tag);
            }
            QueueEnd::Before
        } else {
            if let Some(tag) = self.try_get_in_turn() {
                return Poll::Ready(tag);
            }
            QueueEnd::Behind
        };
        self.join(Sleeper::Task(context.waker().clone()), place).map_or(Poll::Pending, Poll::Ready)
    }

    /// Waits until there may be a tag for this caller, and takes none: for code that takes it from [`TagQueue::bitmap`].
    ///
    /// After taking, or finding nothing to take, they call [`TagQueue::look`]: that passes on tags that they did not need.
    pub fn poll_free(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.queued && self.poll_woken(context) == Poll::Pending {
            return Poll::Pending;
        }
        if self.stop_waiting() {
            return Poll::Ready(());
        }
        self.sit_down(Sleeper::Task(context.waker().clone()), QueueEnd::Behind);
        if self.tags.room(self.line, 0) == 0 {
            return Poll::Pending;
        }
        self.stop_waiting();
        Poll::Ready(())
    }

    /// Sits down behind all others, though a tag may be free: the caller that is woken for it may be this one (wake.6).
    pub fn give_way(&mut self, context: &mut Context<'_>) {
        self.stop_waiting();
        self.sit_down(Sleeper::Task(context.waker().clone()), QueueEnd::Behind);
        self.tags.look();
    }

    /// Whether it waits, or was woken and has not got up.
    pub const fn is_queued(&self) -> bool {
        self.queued
    }

    /// Whether it sits in line and has not been woken.
    pub fn is_waiting(&self) -> bool {
        self.queued && self.waiter.state() == WAITING
    }

    /// Gets up, and leaves it to the caller to [look](TagQueue::look); answers whether it had been woken.
    pub fn stop_waiting(&mut self) -> bool {
        std::mem::take(&mut self.queued)
            && self.tags.wait_queues[self.line].remove(&self.waiter, self.queue, &self.tags.wakeups)
    }

    /// Whether it was woken; if not, it will be by this task's waker.
    fn poll_woken(&self, context: &Context<'_>) -> Poll<()> {
        if self.waiter.state() == WAITING {
            self.waiter.replace(Sleeper::Task(context.waker().clone()));
        }
        if self.waiter.state() == WAITING { Poll::Pending } else { Poll::Ready(()) }
    }

    fn sit_down(&mut self, sleeper: Sleeper, place: QueueEnd) {
        assert!(!self.queued, "a caller waits in two places");
        self.queued = true;
        self.queue = self.tags.wait_queues[self.line].join(&self.waiter, sleeper, place, &self.tags.wakeups);
    }

    /// A tag, once there is one. Dropped before, it disturbs nobody; woken, it must be polled or dropped (wake.3).
    pub const fn acquire(&mut self) -> Acquire<'_> {
        Acquire(self)
    }

    /// Waits no longer; passes on the tags that it was woken for.
    pub fn leave(&mut self) {
        if self.stop_waiting() {
            self.tags.look(); // wake.4
        }
    }

    /// Takes a tag if one is free and it is not the turn of others that wait (wake.6).
    #[inline]
    pub fn try_get_in_turn(&mut self) -> Option<Tag> {
        if self.over && self.tags.wakeups.waiting() > 0 {
            return None; // wake.6
        }
        self.over = false;
        self.try_get()
    }

    #[cold]
    fn wait(&mut self) -> Tag {
        if let Some(tag) = self.spin() {
            return tag;
        }
        let mut place = QueueEnd::Behind;
        loop {
            let sleeper = Sleeper::Thread(self.parker.unparker());
            if let Some(tag) = self.join(sleeper, place) {
                return tag;
            }
            while self.waiter.state() != WOKEN {
                self.parker.park();
            }
            if let Some(tag) = self.arrive().or_else(|| self.spin()) {
                return tag;
            }
            place = QueueEnd::Before;
        }
    }

    /// Sits down, and looks once more: a tag that came back before nobody woke us for.
    fn join(&mut self, sleeper: Sleeper, place: QueueEnd) -> Option<Tag> {
        self.sit_down(sleeper, place);
        if self.over {
            // Others first: one of them, or the one that sat down, is woken if there is a tag (wake.6).
            self.tags.look();
            return None;
        }
        let tag = self.tags.take(self.class, self.user, &mut self.hint)?;
        self.stop_waiting();
        self.tags.look(); // wake.4
        Some(tag)
    }

    /// Was woken: takes a tag if one is still there, and wakes others if more are (wake.4).
    fn arrive(&mut self) -> Option<Tag> {
        self.over = false;
        let tag = self.tags.take(self.class, self.user, &mut self.hint);
        self.stop_waiting();
        self.turn.begin(self.tags.wakeups.waiting());
        self.tags.look();
        tag
    }

    /// Looks for a tag some times before it sleeps, as often as that was worth it before.
    fn spin(&mut self) -> Option<Tag> {
        if self.over {
            return None;
        }
        for _ in 0..self.spin {
            std::hint::spin_loop();
            if let Some(tag) = self.try_get() {
                self.spin = (self.spin * 2).min(SPIN);
                return Some(tag);
            }
        }
        self.spin = (self.spin / 2).max(SPIN / 8);
        None
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A tag, once there is one; see [`Caller::acquire`].
#[must_use = "it takes no tag unless it is polled"]
pub struct Acquire<'a>(&'a mut Caller);

impl Future for Acquire<'_> {
    type Output = Tag;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Tag> {
        self.0.poll_get(context)
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
