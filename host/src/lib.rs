//! A fair, multi-queue block layer in user space: the part that does.
//!
//! A [`Server`] is made from a [`Config`](config::Config) and serves files, block devices and RAM over NBD. Its workers
//! have one thread and one io_uring each; what goes to a device when is decided by `fairlift-core`.
//!
//! | module | contents |
//! |---|---|
//! | [`access`] | which exports a client may open, and how much of the server it may see and change |
//! | [`config`] | the configuration, as plain data |
//! | [`confine`] | giving up what a server no longer needs once it has started |
//! | [`control`] | changes while it serves |
//! | [`tags`] | tags that threads and tasks can wait for; a library of its own |
//! | [`flush`] | flushes that threads and tasks share; a library of its own |
//! | [`mod@bench`] | programs instead of clients |
//! | [`wire`] | the codec of NBD, pure, which its servers and clients share |
//! | [`export`] | serving clients: [NBD](export::nbd), a pure negotiation, and the connections |
//! | `server` | a server of workers and exports, from its start to its end |
//! | `worker` | the loop of one thread, between its clients and the disks |
//! | `gateways` | servers before one pool, and their reports to each other |
//! | `disk` | a scheduling domain with its queue, and the engine between it and the devices |
//! | `device` | the devices that hold the data |
//! | `ceph` | a Ceph cluster, by its library |
//! | `kernel` | io_uring, the memory it borrows, and how workers wake each other |

pub mod access;
pub mod bench;
mod ceph;
pub mod config;
pub mod confine;
pub mod control;
mod device;
mod disk;
mod error;
pub mod events;
pub mod export;
pub mod gateways;
mod kernel;
mod quiet;
mod server;
pub mod wire;
mod worker;

pub use error::Error;
pub use fairlift_threads::{flush, tags};
pub use server::{Beside, Foreign, ForkTop, Handle, Server, Taking};

/// Overlays: looking at their files.
pub mod overlay {
    pub use crate::device::overlay::{Finding, Shifted, TopInfo, commit, flatten, format, look, rebase};
}

pub(crate) use fairlift_threads::{clock, outcome, sync};
