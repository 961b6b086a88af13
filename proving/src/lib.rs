//! The proving ground: what Fairlift promises, tried by runs that are drawn at random and repeated by their seed.
//!
//! It drives the queue and the schedulers that serve production, on the virtual clocks and modelled disks of [`fairlift_lab`]. It is for
//! developers of Fairlift, and not installed:
//!
//! ```text
//! cargo run --release -p fairlift-proving -- --seconds 60
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`torture`] | the promises, under anything that can happen, by seed |
//! | [`power_cut`] | whether what was promised is on the disk, should the power fail at any instant |

#![forbid(unsafe_code)]

pub mod power_cut;
mod tally;
pub mod torture;
mod turns;
