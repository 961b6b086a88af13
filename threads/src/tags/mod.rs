//! Tags that can be waited for: `fairlift_core::tags`, and the sleeping beyond it.
//!
//! A device takes two requests at once, and eight threads have some for it. Each needs one of two tags, and must sleep while
//! both are out; a thread that is woken too seldom leaves the device idle, and one that is woken too often costs more than the
//! request. The rules for that (wake.1 to wake.6 of `fairlift_core::tags`) say when a caller is woken; here it sleeps. No
//! wake-up is lost, no tag lies free while a caller waits and none is on the way, and while no caller waits, taking and
//! returning a tag touches nothing but the bitmap.
//!
//! Callers wait as threads ([`Caller::get`]), as async tasks ([`Caller::acquire`]), or poll ([`Caller::poll_get`]); a
//! [`TagQueue`] does not care which.
//!
//! ```
//! # extern crate fairlift_threads as fairlift;
//! use fairlift::tags::{Settings, TagQueue};
//!
//! let tags = TagQueue::new(Settings::new(2))?;
//! std::thread::scope(|scope| {
//!     for _ in 0..8 {
//!         scope.spawn(|| {
//!             let mut caller = tags.caller();
//!             for _ in 0..1000 {
//!                 let tag = caller.get(); // sleeps while both are out
//!                 tags.put(tag);
//!             }
//!         });
//!     }
//! });
//! assert_eq!(tags.busy_count(), 0);
//! # Ok::<(), fairlift_core::tags::Error>(())
//! ```

mod caller;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod wait;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use fairlift_core::Tag;
use fairlift_core::sync::agree;
use fairlift_core::tags::{Bitmap, DEPTH_MAX, Error, Hint, Users, Wakeups, wake_batch};

pub use caller::{Acquire, Caller};
use wait::WaitQueues;

use crate::sync::{Mutex, lock};

/// The settings of a [`TagQueue`].
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many tags there are, reserved ones included.
    pub depth: usize,
    /// To how many it may grow; at least the depth.
    pub capacity: usize,
    /// How many of them are only for callers that are [entitled](Caller::reserved) to them; fewer than the depth. These
    /// are the lowest numbers.
    pub reserved: usize,
    /// How many of the others [shallow](Caller::shallow) callers may hold; `None`: all.
    pub shallow: Option<usize>,
    /// How many users share the tags, each assured its part while several are active; at least 1.
    pub users: usize,
    /// How many may be woken at once, at most; `None`: one fewer than there are processors, for one is busy giving tags
    /// back. More would only wait for a processor instead of a tag.
    pub wake_max: Option<usize>,
    /// Whether tags are given out in rising order, continuing after the last one.
    pub round_robin: bool,
}

impl Settings {
    /// Tags for one user, and all for everybody.
    #[must_use]
    pub const fn new(depth: usize) -> Self {
        Self { depth, capacity: depth, reserved: 0, shallow: None, users: 1, wake_max: None, round_robin: false }
    }
}

/// Tags that can be waited for; see the [module](self).
pub struct TagQueue {
    bitmap: Arc<Bitmap>,
    /// A queue of its own, so that it goes on in any case.
    reserved: Option<Arc<Self>>,
    /// The number of the first tag that is not reserved.
    offset: u16,
    shallow: Option<usize>,
    users: Arc<Users>,
    shared: bool,
    wake_max: usize,
    wakeups: Wakeups,
    resizing: Mutex<()>,
    /// How many callers there were: each begins elsewhere. Decides nothing that a model checker need look at.
    callers: std::sync::atomic::AtomicUsize,
    /// Which line is the next to be woken from.
    first: std::sync::atomic::AtomicUsize,
    /// The waiting callers, by the thing that they wait for: for each user those of its full and of its shallow callers.
    wait_queues: Box<[WaitQueues]>,
}

/// The tags that a caller may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Full,
    Shallow,
}

impl TagQueue {
    /// Tags, none of them out.
    ///
    /// # Errors
    /// The depth is 0 or above the capacity, or that is above 65,536; all tags are reserved; or the shallow depth is 0 or
    /// above what is left.
    ///
    /// # Panics
    /// If there is no user.
    pub fn new(settings: Settings) -> Result<Arc<Self>, Error> {
        let Settings { depth, capacity, reserved, shallow, users, wake_max, round_robin } = settings;
        assert!(users > 0, "tags without a user");
        if capacity > DEPTH_MAX || !(1..=capacity).contains(&depth) {
            return Err(Error::Depth { requested: depth, max: capacity.clamp(1, DEPTH_MAX) });
        }
        if reserved >= depth {
            return Err(Error::Reserved { requested: reserved, depth });
        }
        let bitmap = Bitmap::with_capacity(depth - reserved, capacity - reserved)?.numbered_from(reserved);
        let bitmap = if round_robin { bitmap.round_robin() } else { bitmap };
        if let Some(shallow) = shallow {
            bitmap.check_shallow(shallow)?;
        }
        Ok(Arc::new(Self {
            bitmap: Arc::new(bitmap),
            reserved: (reserved > 0)
                .then(|| Self::new(Settings { wake_max, ..Settings::new(reserved) }))
                .transpose()?,
            offset: reserved as u16,
            shallow,
            users: Arc::new(Users::new(users)),
            shared: users > 1,
            wake_max: wake_max.unwrap_or_else(processors).max(1),
            wakeups: Wakeups::default(),
            resizing: Mutex::new(()),
            callers: std::sync::atomic::AtomicUsize::new(0),
            first: std::sync::atomic::AtomicUsize::new(0),
            wait_queues: (0..users * (1 + usize::from(shallow.is_some()))).map(|_| WaitQueues::default()).collect(),
        }))
    }

    /// A caller that takes tags: each thread or task has its own.
    pub fn caller(self: &Arc<Self>) -> Caller {
        self.caller_of(0)
    }

    /// A caller that takes tags for a user.
    ///
    /// # Panics
    /// If there is no such user.
    pub fn caller_of(self: &Arc<Self>, user: usize) -> Caller {
        Caller::new(Arc::clone(self), user)
    }

    /// Gives a tag back, for the only user.
    ///
    /// # Panics
    /// If it is not out; or if there are several users: see [`TagQueue::put_of`].
    #[inline]
    pub fn put(&self, tag: Tag) {
        assert!(!self.shared, "tag {} came back, and it is not said for which user", tag.0);
        self.put_of(0, tag);
    }

    /// Gives a tag back that a user holds.
    ///
    /// # Panics
    /// If it is not out, or there is no such user, or it holds none.
    #[inline]
    pub fn put_of(&self, user: usize, tag: Tag) {
        let Some(own) = tag.0.checked_sub(self.offset) else {
            return self.reserved.as_ref().expect("it has an offset").put(tag);
        };
        if self.shared {
            self.users.release(user);
        }
        self.bitmap.put(Tag(own));
        self.returned(1);
    }

    /// Gives many tags back, for the only user: one step for each run of them in one word.
    ///
    /// # Panics
    /// As [`TagQueue::put`]; or if one of them is reserved.
    pub fn put_batch(&self, tags: &[Tag]) {
        assert!(!self.shared, "tags came back, and it is not said for which user");
        let number = |tag: &Tag| tag.0.checked_sub(self.offset).expect("reserved tags come back one by one");
        self.bitmap.put_batch(tags.iter().map(|tag| Tag(number(tag))));
        self.returned(tags.len());
    }

    /// Tags came back, through [`TagQueue::bitmap`]: callers that wait for them hear of it.
    #[inline]
    pub fn returned(&self, tags: usize) {
        agree();
        if self.wakeups.waiting() > 0 {
            self.look_after(tags);
        } // wake.1
    }

    #[cold]
    fn look_after(&self, tags: usize) {
        self.wakeups.completed(tags); // wake.2
        if self.wakeups.claim() {
            self.wake_all();
        }
    }

    /// Changes how many tags there are, while they are out; a smaller number holds once those above it are back.
    ///
    /// # Errors
    /// No tag would be left that is not reserved, or there is no room for `depth`; then nothing has changed.
    pub fn resize(&self, depth: usize) -> Result<(), Error> {
        let reserved = usize::from(self.offset);
        if depth <= reserved {
            let error = Error::Reserved { requested: reserved, depth };
            return Err(if depth == 0 { Error::Depth { requested: 0, max: self.capacity() } } else { error });
        }
        let _one_at_a_time = lock(&self.resizing);
        self.bitmap.resize(depth - reserved).map_err(|_| Error::Depth { requested: depth, max: self.capacity() })?;
        self.look();
        Ok(())
    }

    /// Whether no tag above the depth is out any more.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.bitmap.is_settled()
    }

    /// How many tags there are.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.bitmap.depth() + usize::from(self.offset)
    }

    /// How many tags are out.
    #[must_use]
    pub fn busy_count(&self) -> usize {
        self.bitmap.busy_count() + self.reserved.as_ref().map_or(0, |reserved| reserved.busy_count())
    }

    /// The tags that are out, in rising order; see [`Bitmap::busy`].
    pub fn busy(&self) -> impl Iterator<Item = Tag> {
        let others = self.bitmap.busy().map(|tag| Tag(tag.0 + self.offset));
        self.reserved.iter().flat_map(|reserved| reserved.bitmap.busy()).chain(others)
    }

    /// How many callers wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.wakeups.waiting() + self.reserved.as_ref().map_or(0, |reserved| reserved.waiting())
    }

    /// The two counters: tags that came back while a caller waited, and those of them that were looked after.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        self.wakeups.counts()
    }

    /// The tags that are not reserved, for code that takes them without waiting here. It says when some [came
    /// back](TagQueue::returned), and [look](TagQueue::look) after they took or tried to: taking can free others.
    #[must_use]
    pub const fn bitmap(&self) -> &Arc<Bitmap> {
        &self.bitmap
    }

    /// How many each user holds, where several share.
    #[must_use]
    pub const fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// Makes a user inactive if it holds nothing: the shares of the others grow. For a timer.
    pub fn retire(&self, user: usize) {
        if self.users.retire(user) {
            self.look();
        }
    }

    /// Wakes callers for tags to which none is on the way (wake.4).
    #[inline]
    pub fn look(&self) {
        if self.wakeups.waiting() > 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        // wake.3: one on the way looks again when it arrives (wake.4).
        while !self.wakeups.is_someone_on_the_way() && !self.wake_some() {}
    }

    /// Wakes as many as there are free tags, at most a batch (wake.5); answers `false` if some had left before they could be
    /// woken: others may meanwhile have thought that a caller was on the way.
    fn wake_some(&self) -> bool {
        let shared_by = if self.shared { self.users.active() } else { 1 };
        let mut left = wake_batch(self.bitmap.depth(), self.shallow, shared_by).min(self.wake_max);
        let mut promised = 0;
        // After the line that was woken from last comes the next one.
        let first = self.first.load(Relaxed);
        for index in 0..self.wait_queues.len() {
            let index = (first + index) % self.wait_queues.len();
            let line = &self.wait_queues[index];
            let waiting = line.wakes.waiting();
            let count = if waiting > 0 { self.room(index, promised).min(waiting).min(left) } else { 0 };
            if count > 0 {
                self.wakeups.set_out(count);
                self.first.store(index + 1, Relaxed);
                if line.wake(count, &self.wakeups) < count {
                    return false;
                }
                (left, promised) = (left - count, promised + count);
                if left == 0 {
                    break;
                }
            }
        }
        true
    }

    /// Takes a tag, if there is one that such a caller may have.
    #[inline]
    fn take(&self, class: Class, user: usize, hint: &mut Hint) -> Option<Tag> {
        if self.shared && !self.users.hold(user, self.bitmap.depth()) {
            // Others of the same user may have been refused because of tags that we seemed to hold.
            agree();
            self.look();
            return None;
        }
        let (tag, freed) = self.bitmap.take(hint, self.shallow_of(class));
        if tag.is_none() {
            if self.shared {
                self.users.release(user);
            }
            if freed || self.shared {
                // Others may have missed a tag that became free, or that we seemed to hold.
                agree();
                self.look();
            }
        }
        tag.map(|tag| Tag(tag.0 + self.offset))
    }

    /// Number of tags that callers in a line could take, if `promised` of the free ones are for others.
    fn room(&self, index: usize, promised: usize) -> usize {
        let (class, user) = self.who(index);
        let free = self.bitmap.free_count(self.shallow_of(class)).saturating_sub(promised);
        if !self.shared {
            return free;
        }
        let depth = self.bitmap.depth();
        free.min(self.users.share(depth).saturating_sub(self.users.held(user)))
    }

    fn shallow_of(&self, class: Class) -> Option<usize> {
        self.shallow.filter(|_| class == Class::Shallow)
    }

    fn queues_of(&self, class: Class, user: usize) -> usize {
        let each = 1 + usize::from(self.shallow.is_some());
        match class {
            Class::Full => user * each,
            Class::Shallow => user * each + each - 1,
        }
    }

    fn who(&self, line: usize) -> (Class, usize) {
        let each = 1 + usize::from(self.shallow.is_some());
        let class = if each == 2 && line % 2 == 1 { Class::Shallow } else { Class::Full };
        (class, line / each)
    }

    fn capacity(&self) -> usize {
        self.bitmap.capacity() + usize::from(self.offset)
    }
}

/// How many processors there are for callers that are woken.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get() - 1)
}

/// How full it is, and how many callers wait.
impl fmt::Debug for TagQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (completions, wakeups) = self.counts();
        f.debug_struct("TagQueue")
            .field("bitmap", &self.bitmap)
            .field("reserved", &self.reserved)
            .field("waiting", &self.waiting())
            .field("completions", &completions)
            .field("wakeups", &wakeups)
            .finish()
    }
}
