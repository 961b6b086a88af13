//! Learning while requests come and go: about the device, and about the streams.
//!
//! The declarations of a device are a first guess, and a stream declares nothing about its next request. Both are found out from the requests that
//! come anyway. Each part here watches one thing, knows no scheduler and has its own tests; schedulers and helper threads use those
//! they need.
//!
//! | of the device | |
//! |---|---|
//! | `comparison` | which of two settings it does more with: samples of both in turn |
//! | [`idling_trial`] | whether it does more when it idles for the stream in service |
//! | `depth` | how many requests it needs at once |
//! | `trials` | the two above, for one device |
//! | [`concurrency`] | how many helper threads pay on a backing |
//! | `rotation` | whether it rotates |
//! | `rate` | its best rate |
//! | `pace` | its rate while it is busy, and so the cost of a flush |
//!
//! Of a stream, `habits` has how soon it asks again and how far away.

pub(crate) mod comparison;
pub mod concurrency;
pub(crate) mod depth;
pub(crate) mod habits;
pub mod idling_trial;
pub(crate) mod pace;
pub(crate) mod rate;
pub(crate) mod rotation;
pub(crate) mod trials;
