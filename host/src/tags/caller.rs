//! Caller: someone who takes tags, and waits for them as a thread, as a task, or by polling.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use fairlift_core::Tag;
use fairlift_core::tags::{Hint, Turn};

use super::seat::{AWAY, Place, Seat, Sleeper, WAITING, WOKEN};
use super::{Class, TagQueue};
use crate::sync::Parker;

/// How often a thread looks for a tag before it sleeps, if that helped the last times; each is some 50 ns, so that all are
/// no longer than going to sleep and being woken.
const SPIN: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 64 };

/// Someone who takes tags: a thread or a task. Dropped while it waits, it passes on what it was woken for.
pub struct Caller {
    tags: Arc<TagQueue>,
    class: Class,
    user: usize,
    line: usize,
    hint: Hint,
    turn: Turn,
    /// The turn is over: if others wait, this one waits too, whether or not a tag is free (W6).
    over: bool,
    seat: Arc<Seat>,
    /// The queue that the seat is in, or was taken out of.
    queue: usize,
    parker: Parker,
    spin: u32,
}

impl Caller {
    pub(super) fn new(tags: Arc<TagQueue>, user: usize) -> Self {
        assert!(user < tags.users.len(), "there is no user {user}: there are {}", tags.users.len());
        let seat = Arc::new(Seat::default());
        let hint = Hint::of(tags.callers.fetch_add(1, Ordering::Relaxed));
        let line = tags.line_of(Class::Full, user);
        Self {
            tags,
            class: Class::Full,
            user,
            line,
            hint,
            turn: Turn::default(),
            over: false,
            seat,
            queue: 0,
            parker: Parker::new(),
            spin: SPIN,
        }
    }

    /// The same, held to the shallow depth: so that the likes of it can never hold every tag.
    ///
    /// # Panics
    /// If no shallow depth was set.
    #[must_use]
    pub fn shallow(mut self) -> Self {
        assert!(self.tags.shallow.is_some(), "a shallow caller of tags without a shallow depth");
        (self.class, self.line) = (Class::Shallow, self.tags.line_of(Class::Shallow, self.user));
        self
    }

    /// The same, entitled to the reserved tags, and to no others.
    ///
    /// # Panics
    /// If none are reserved.
    #[must_use]
    pub fn reserved(mut self) -> Self {
        assert!(self.tags.reserved.is_some(), "a caller for reserved tags where none are");
        (self.class, self.line) = (Class::Reserved, self.tags.line_of(Class::Reserved, self.user));
        self
    }

    /// Takes a tag if one is free, whoever waits.
    #[inline]
    pub fn try_get(&mut self) -> Option<Tag> {
        let tag = self.tags.take(self.class, self.user, &mut self.hint)?;
        let waiting = self.tags.waiting();
        if waiting > 0 {
            self.over = !self.turn.goes_on(waiting);
            self.tags.look(); // W4
        }
        Some(tag)
    }

    /// Takes a tag; sleeps while there is none.
    #[inline]
    pub fn get(&mut self) -> Tag {
        match self.try_get_in_turn() {
            Some(tag) => tag,
            None => self.wait(),
        }
    }

    /// Takes a tag, or arranges for the task to be woken when there may be one.
    ///
    /// A task that was woken must poll again, or drop the caller, or [`Caller::leave`]: others count on it (W3).
    pub fn poll_get(&mut self, context: &mut Context<'_>) -> Poll<Tag> {
        let place = match self.seat.state() {
            WAITING => {
                self.seat.replace(Sleeper::Task(context.waker().clone()));
                if self.seat.state() == WAITING {
                    return Poll::Pending;
                }
                Place::Before(self.queue)
            }
            WOKEN => Place::Before(self.queue),
            _ => match self.try_get_in_turn() {
                Some(tag) => return Poll::Ready(tag),
                None => Place::Behind,
            },
        };
        if place != Place::Behind
            && let Some(tag) = self.arrive()
        {
            return Poll::Ready(tag);
        }
        match self.sit(Sleeper::Task(context.waker().clone()), place) {
            Some(tag) => Poll::Ready(tag),
            None => Poll::Pending,
        }
    }

    /// Waits until there may be a tag for this caller, and takes none: for those who take it from [`TagQueue::bitmap`].
    ///
    /// After taking, or finding nothing to take, they call [`TagQueue::look`]: that passes on what they did not need.
    pub fn poll_free(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.seat.state() == WAITING {
            self.seat.replace(Sleeper::Task(context.waker().clone()));
            if self.seat.state() == WAITING {
                return Poll::Pending;
            }
        }
        if self.tags.lines[self.line].stand_up(&self.seat, self.queue, &self.tags.wakeups) {
            return Poll::Ready(());
        }
        self.queue = self.tags.lines[self.line].sit(
            &self.seat,
            Sleeper::Task(context.waker().clone()),
            Place::Behind,
            &self.tags.wakeups,
        );
        if self.tags.room(self.line, 0) == 0 {
            return Poll::Pending;
        }
        self.tags.lines[self.line].stand_up(&self.seat, self.queue, &self.tags.wakeups);
        Poll::Ready(())
    }

    /// A tag, once there is one. Dropped before, it disturbs nobody.
    pub const fn acquire(&mut self) -> Acquire<'_> {
        Acquire(self)
    }

    /// Waits no longer; passes on what it was woken for.
    pub fn leave(&mut self) {
        if self.seat.state() != AWAY && self.tags.lines[self.line].stand_up(&self.seat, self.queue, &self.tags.wakeups)
        {
            self.tags.look(); // W4
        }
    }

    /// Takes a tag if one is free and it is not the turn of others who wait (W6).
    #[inline]
    pub fn try_get_in_turn(&mut self) -> Option<Tag> {
        if self.over && self.tags.waiting() > 0 {
            return None; // W6
        }
        self.over = false;
        self.try_get()
    }

    #[cold]
    fn wait(&mut self) -> Tag {
        if let Some(tag) = self.spin() {
            return tag;
        }
        let mut place = Place::Behind;
        loop {
            let sleeper = Sleeper::Thread(self.parker.unparker());
            if let Some(tag) = self.sit(sleeper, place) {
                return tag;
            }
            while self.seat.state() != WOKEN {
                self.parker.park();
            }
            if let Some(tag) = self.arrive().or_else(|| self.spin()) {
                return tag;
            }
            place = Place::Before(self.queue);
        }
    }

    /// Sits down, and looks once more: a tag that came back before nobody woke us for.
    fn sit(&mut self, sleeper: Sleeper, place: Place) -> Option<Tag> {
        let tags = Arc::clone(&self.tags);
        self.queue = tags.lines[self.line].sit(&self.seat, sleeper, place, &tags.wakeups);
        if self.over {
            // Others first: one of them, or the one who sat down, is woken if there is a tag (W6).
            tags.look();
            return None;
        }
        let tag = tags.take(self.class, self.user, &mut self.hint)?;
        tags.lines[self.line].stand_up(&self.seat, self.queue, &tags.wakeups);
        tags.look(); // W4
        Some(tag)
    }

    /// Was woken: takes a tag if one is still there, and wakes others if more are (W4).
    fn arrive(&mut self) -> Option<Tag> {
        self.over = false;
        let tag = self.tags.take(self.class, self.user, &mut self.hint);
        let line = &self.tags.lines[self.line];
        line.stand_up(&self.seat, self.queue, &self.tags.wakeups);
        self.turn.begin(self.tags.waiting());
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
