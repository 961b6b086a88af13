//! A fair, multi-queue block layer in user space: the part that does.
//!
//! A [`Server`] is made from a [`Config`](config::Config) and serves files, block devices and RAM over NBD. Its workers
//! have one thread and one io_uring each; what goes to a device when is decided by `fairlift-core`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`] | what to serve, as plain data |
//! | [`tags`] | tags that threads and tasks can wait for; a library of its own |
//! | [`flush`] | flushes that threads and tasks share; a library of its own |
//! | [`mod@bench`] | programs instead of clients |
//! | [`export::nbd`] | the protocol: a pure codec and negotiation, and the connections |
//! | `worker`, `engine` | the loop: sockets above, devices below |
//! | `ring`, `buffer`, `notify` | io_uring, the memory it borrows, and how workers wake each other |
//! | `device`, `disk` | what holds the data, and the queue in front of it |

mod abort;
pub mod bench;
mod buffer;
mod clock;
pub mod config;
mod device;
mod disk;
mod engine;
mod error;
pub mod export;
pub mod flush;
mod gauge;
mod helpers;
mod line;
mod listen;
mod notify;
mod ring;
mod server;
mod sleep;
mod sync;
pub mod tags;
mod worker;

pub use error::Error;
pub use server::{Handle, Server};
