//! ublk: an export as a block device of this machine, `/dev/ublkb0`.
//!
//! The kernel's driver (`ublk_drv`) has a block device for us, and gives us its requests through io_uring: each worker has
//! a command waiting in the kernel for each request that may come, and answers one request and waits for the next with one more
//! command. Data is copied by the kernel between the request and a buffer of the worker's pool. Example: `mkfs.ext4
//! /dev/ublkb0`, with 32 requests at once, costs the worker one system call for all 32.
//!
//! [`proto`] is pure: orders to the driver, and its requests. `control` gives it orders, which wait in the kernel and so have threads of their own
//! (`service`). `device` is a block device as it is made and found again, `names` what people call it; `queue` is one of its queues at a worker, and
//! `front` has all queues of a worker. `syntax` is an export's setting for it. [`orphans`] are devices whose
//! server has died.

mod control;
mod device;
mod front;
mod names;
pub mod orphans;
pub mod proto;
mod queue;
pub(crate) mod service;
mod syntax;

pub use syntax::Ublk;
