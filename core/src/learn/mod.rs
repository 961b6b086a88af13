//! Learning while requests come and go: about the device, and about the streams.
//!
//! The declarations of a device are a first guess, and a stream declares nothing about its next request. Both are found out from the requests that
//! come anyway. Each part here watches one thing, knows no scheduler and has its own tests; schedulers and helper threads use those
//! they need.

pub(crate) mod comparison;
pub mod concurrency;
pub(crate) mod depth;
pub(crate) mod habits;
pub mod idling_trial;
pub(crate) mod pace;
pub(crate) mod rate;
pub(crate) mod rotation;
pub(crate) mod trials;
