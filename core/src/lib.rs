//! The part of Fairlift that decides.
//!
//! Given the clients' requests ([`Bio`]) and a device's [`Limits`], a [`Queue`] says which request goes to the device next, and tells when
//! each bio has ended. It reads no clock, starts no thread, does no I/O and never sees a payload byte: time is an argument, and so is
//! everything the device answers. The same source therefore serves production (`fairlift`), the simulator (`fairlift-lab`) and the tests.

#![cfg_attr(not(any(loom, shuttle)), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod ceiling;
pub mod cost_model;
pub mod entitlement;
mod floors;
pub mod flush;
pub mod gateways;
pub mod group;
pub mod helpers;
pub mod learn;
pub mod limits;
mod list;
pub mod model;
pub mod objective;
pub mod program;
pub mod queue;
pub mod record;
mod red_black;
pub mod request;
pub mod sched;
pub mod stats;
mod suggest;
pub mod sync;
mod table;
pub mod tags;
pub mod time;
pub mod trace;
pub mod tree;
pub mod tunable;
pub mod units;
pub mod waits;

pub use group::{ContextId, Group, GroupId, Priority, PriorityClass, Stream, StreamId, Weight};
pub use limits::Limits;
pub use queue::{Dispatch, Finished, Queue, Refused};
pub use request::{Bio, Bytes, Direction, Errno, Extent, Flags, Op, Outcome, Sector, Token};
pub use suggest::suggestion;
pub use tags::Tag;
pub use time::{Duration, Instant};
