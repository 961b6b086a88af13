//! Tags: the right to have one request in flight, as a small library of its own.
//!
//! | type | purpose |
//! |---|---|
//! | [`Bitmap`] | which tags are out; any number of threads take and return them, and nobody waits |
//! | [`Wakes`], [`Wakeups`], [`Quota`] | which caller to wake when a tag comes back, by rules that lose no wake-up; nothing sleeps here |
//! | [`Share`], [`Users`] | how many tags each of several users may hold |
//!
//! All is safe Rust on atomics and needs no operating system. The rest that sleeping needs (locks, parking, wakers) is `TagQueue` of
//! `fairlift-threads` (`fairlift::tags`), which is made of these.
//!
//! ```
//! use fairlift_core::tags::{Bitmap, Hint};
//!
//! let tags = Bitmap::new(4)?;
//! let mut hint = Hint::default();
//! let tag = tags.get(&mut hint).expect("none is out");
//! assert_eq!(tags.busy().collect::<Vec<_>>(), [tag]);
//! tags.put(tag);
//! # Ok::<(), fairlift_core::tags::Error>(())
//! ```
//!
//! The idea and the numbers are those of Linux's `sbitmap`, with the wake-up counters of 2022 that only ever grow.

mod bitmap;
mod share;
mod wake;

use core::fmt;

pub use bitmap::{Bitmap, Hint};
pub use share::{Share, Users};
pub use wake::{Quota, WAIT_QUEUES, Wakes, Wakeups, wake_batch};

/// The right to have one request in flight: a number below the depth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u16);

/// The most tags that there can be: a [`Tag`] is 16 bits.
pub const DEPTH_MAX: usize = 1 << 16;

/// Why tags are not as asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The depth is 0, or more than there was room made for.
    Depth {
        /// The request.
        requested: usize,
        /// The most that is possible.
        max: usize,
    },
    /// The shallow depth is 0 or above the depth.
    Shallow {
        /// The request.
        requested: usize,
        /// The depth.
        depth: usize,
    },
    /// As many tags are reserved as there are, or more.
    Reserved {
        /// The request.
        requested: usize,
        /// The depth.
        depth: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Depth { requested, max } => {
                write!(f, "a depth of {requested} is not possible: it is 1 to {max} tags")
            }
            Self::Shallow { requested, depth } => {
                write!(f, "a shallow depth of {requested} is not possible: it is 1 to the depth, which is {depth}")
            }
            Self::Reserved { requested, depth } => {
                write!(f, "{requested} of {depth} tags cannot be reserved: at least one is for everybody")
            }
        }
    }
}

impl core::error::Error for Error {}
