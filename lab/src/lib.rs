//! The part of Fairlift that measures: the same queue and schedulers that serve production, on a virtual clock.
//!
//! A [`World`] is a clock, a [`Queue`](fairlift_core::Queue), a disk on paper ([`model`]) and programs that use it
//! ([`program`]). It makes no system call: a run depends on its inputs and the seed alone, and minutes of disk take as
//! long as their decisions take to compute.
//!
//! | module | contents |
//! |---|---|
//! | [`world`] | the clock, and the parts that it drives |
//! | [`model`] | disks on paper, and profiles with the source of every number |
//! | [`program`] | programs that read and write: readers with read-ahead, writers with writeback, and so on |
//! | [`workload`] | which programs run together, as data |
//! | [`iostest`] | groups × jobs × sets × workloads: how much each group got |
//! | [`iostune`] | the character of a disk, and the settings for it |
//! | [`check`] | promises that are looked at after every step |
//! | [`result`], [`report`] | one format of results, and reports of it for people |
//! | [`repeat`] | how a run that failed is repeated |
//! | [`timed`] | a disk whose times a function gives, for tests |

#![forbid(unsafe_code)]

pub mod check;
pub mod iostest;
pub mod iostune;
pub mod model;
pub mod program;
mod random;
pub mod repeat;
pub mod report;
pub mod result;
pub mod timed;
pub mod workload;
pub mod world;

pub use fairlift_core::suggestion;
pub use random::Random;
pub use timed::{fixed_time, given_times};
pub use world::{Completion, World};
