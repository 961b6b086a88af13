//! vhost-user-blk: a virtual machine's disk without a socket in between.
//!
//! The front-end (QEMU, cloud-hypervisor, crosvm) shares its guest's memory with us and says by messages where the guest's
//! rings are. After that it has no part in requests: the guest puts them into its rings and kicks an eventfd, which the
//! worker's io_uring polls; data goes between the guest's memory and the device in place.
//!
//! [`proto`] (messages) and [`chain`] (requests) are pure: bytes in, what is asked out. `device` is a front-end that is
//! connected, `ring` one of its rings, `inflight` what outlives a server that is killed, `handed` names the descriptors that go to another server. `front` has all devices of a worker, `syntax` what an export says of it.

pub mod chain;
mod config;
mod device;
mod front;
mod handed;
mod inflight;
mod memory;
pub mod proto;
mod ring;
pub(crate) mod service;
mod socket;
mod syntax;

pub use syntax::GuestSocket;
