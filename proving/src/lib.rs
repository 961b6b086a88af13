//! The proving ground: what Fairlift promises, tried by runs that are drawn at random and repeated by their seed.
//!
//! It drives the queue and the schedulers that serve production, on the virtual clocks and modelled disks of [`fairlift_lab`].
//! It is for those who change Fairlift, and no part of what is installed:
//!
//! ```text
//! cargo run --release -p fairlift-proving -- --seconds 60
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`torture`] | what is promised, under anything that can happen, by seed |
//! | [`power_cut`] | whether what was promised is on the disk, should the power fail at any instant |

#![forbid(unsafe_code)]

pub mod power_cut;
mod tally;
pub mod torture;
mod turns;
