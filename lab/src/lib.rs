//! The part of Fairlift that measures: the same queue and schedulers that serve production, on a virtual clock.
//!
//! A [`World`] is a clock, a [`Queue`](fairlift_core::Queue) and a modelled [`Device`]. It makes no system call: a run depends on its inputs and
//! the seed alone, and minutes of disk take as long as their decisions take to compute.

#![forbid(unsafe_code)]

pub mod model;
mod random;
pub mod report;
pub mod result;
mod suggest;
mod world;

pub use random::Random;
pub use suggest::suggestion;
pub use world::{Device, End, FixedTime, World};
