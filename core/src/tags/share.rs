//! Share: how many tags each of several users of one map may hold.
//!
//! Three disks share a controller with 32 tags. Without a rule, one of them under heavy load takes all 32, and a request to
//! another waits for it. With three users active, each may hold 11; when two fall silent, the third may hold 32 again.
//!
//! users.1  While one user is active it may hold them all. While several are, each may hold its part, rounded up, and never
//!     fewer than four: so each is assured its part of a depth of at least four for each, once the others have given back
//!     what they hold above theirs. Below that depth it is turns that keep them apart (wake.6).
//! users.2  A user becomes active when it asks for a tag, and inactive when a timer finds it without one and says so.
//!
//! The numbers are those of Linux `block/blk-mq-tag.c` (`hctx_may_queue`).

use alloc::boxed::Box;

use crate::sync::{AtomicBool, AtomicUsize, Ordering, agree};

/// Tags that a user may always hold, however many others are active (users.1): the kernel's, in `hctx_may_queue`. (Under a model
/// checker one, so that it sees users at their share.)
const LEAST: usize = if cfg!(any(loom, shuttle)) { 1 } else { 4 };

/// The users of one map.
#[derive(Debug)]
pub struct Users {
    active: AtomicUsize,
    users: Box<[Share]>,
}

/// One user's part.
#[derive(Debug)]
pub struct Share {
    held: AtomicUsize,
    active: AtomicBool,
}

impl Users {
    /// A share for this many users, none of them active.
    #[must_use]
    pub fn new(users: usize) -> Self {
        let user = |_| Share { held: AtomicUsize::new(0), active: AtomicBool::new(false) };
        Self { active: AtomicUsize::new(0), users: (0..users).map(user).collect() }
    }

    /// How many there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "tags always have a user")]
    pub const fn len(&self) -> usize {
        self.users.len()
    }

    /// How many are active.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active.load(Ordering::SeqCst)
    }

    /// How many of `depth` tags each may hold now (users.1).
    #[must_use]
    pub fn share(&self, depth: usize) -> usize {
        match self.active() {
            0 | 1 => depth,
            active => depth.div_ceil(active).max(LEAST).min(depth),
        }
    }

    /// Counts a tag for a user, or answers `false`: it holds its share. To be asked before a tag is taken.
    pub fn hold(&self, user: usize, depth: usize) -> bool {
        let share = &self.users[user];
        let before = share.held.fetch_add(1, Ordering::SeqCst);
        agree();
        // users.2; after it counted, so that either the timer that retires this user sees the tag, or this user sees that it is
        // retired.
        if !share.active.load(Ordering::SeqCst) && !share.active.swap(true, Ordering::SeqCst) {
            self.active.fetch_add(1, Ordering::SeqCst);
        }
        if before < self.share(depth) {
            return true;
        }
        share.held.fetch_sub(1, Ordering::SeqCst);
        false
    }

    /// A user's tag came back, or was not there to be taken.
    ///
    /// # Panics
    /// If it holds none.
    pub fn release(&self, user: usize) {
        // Looked at first, so that a caught panic leaves the count as it was.
        assert!(self.held(user) > 0, "user {user} gave back a tag that it did not hold");
        self.users[user].held.fetch_sub(1, Ordering::SeqCst);
    }

    /// How many tags a user holds.
    #[must_use]
    pub fn held(&self, user: usize) -> usize {
        self.users[user].held.load(Ordering::SeqCst)
    }

    /// Makes a user inactive if it holds nothing (users.2); answers whether the others' shares grew: then callers that wait must be
    /// looked after.
    pub fn retire(&self, user: usize) -> bool {
        let share = &self.users[user];
        if self.held(user) > 0 || !share.active.swap(false, Ordering::SeqCst) {
            return false;
        }
        self.active.fetch_sub(1, Ordering::SeqCst);
        agree();
        // It may have taken a tag meanwhile, and thought itself active.
        if self.held(user) > 0 && !share.active.swap(true, Ordering::SeqCst) {
            self.active.fetch_add(1, Ordering::SeqCst);
            return false;
        }
        true
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// users.1
    #[test]
    fn one_user_may_hold_all_and_two_may_hold_half_each() {
        let users = Users::new(2);
        for _ in 0..16 {
            assert!(users.hold(0, 16));
        }
        assert!(!users.hold(0, 16), "there are no more");
        assert!(users.hold(1, 16), "the other one is assured its part, whether or not a tag is free");
        assert_eq!(users.share(16), 8);
        users.release(0);
        assert!(!users.hold(0, 16), "it still holds more than its part");
    }

    /// users.1
    #[test]
    fn however_many_are_active_four_are_assured() {
        let users = Users::new(40);
        for user in 0..40 {
            assert!(users.hold(user, 64));
        }
        assert_eq!(users.share(64), 4);
        assert_eq!(users.share(3), 3, "but not more than there are");
    }

    /// users.2
    #[test]
    fn who_holds_nothing_can_retire_and_the_others_shares_grow() {
        let users = Users::new(2);
        assert!(users.hold(0, 16) && users.hold(1, 16));
        assert!(!users.retire(1), "it holds one");
        users.release(1);
        assert!(users.retire(1));
        assert_eq!((users.active(), users.share(16)), (1, 16));
        assert!(!users.retire(1), "it is so already");
        assert!(users.hold(1, 16));
        assert_eq!(users.active(), 2);
    }

    #[test]
    #[should_panic(expected = "user 0 gave back a tag that it did not hold")]
    fn a_tag_returned_for_the_wrong_user_stops_the_program() {
        Users::new(1).release(0);
    }
}
