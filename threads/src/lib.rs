//! The state that threads share: tags and flushes that threads and tasks wait for.
//!
//! | module | contents |
//! |---|---|
//! | [`tags`] | tags that threads and tasks can wait for |
//! | [`flush`] | flushes that threads and tasks share |
//! | [`sync`] | locks and parking, from one place |
//! | [`clock`] | the clock of requests |
//! | [`outcome`] | how a call of the kernel ended, in the words of the queue |
//!
//! Users have the first two from the crate `fairlift`. Model checkers and ThreadSanitizer (`tests/run loom shuttle tsan`) build this crate
//! and `fairlift-core`, and nothing else of Fairlift.

#![forbid(unsafe_code)]

pub mod clock;
pub mod flush;
pub mod outcome;
pub mod sync;
pub mod tags;
