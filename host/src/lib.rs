//! A fair, multi-queue block layer in user space.
#![warn(missing_docs)]
pub mod config;
pub mod export;
