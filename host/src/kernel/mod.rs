//! The interface to Linux: rings and the memory that they borrow, the time, sleep, and the ways in which threads wake each other.

pub(crate) mod abort;
pub(crate) mod buffer;
pub(crate) mod call;
pub(crate) mod heap;
pub(crate) mod helpers;
pub(crate) mod ktls;
pub(crate) mod lent;
pub(crate) mod mapping;
pub(crate) mod notify;
pub(crate) mod ring;
pub(crate) mod sleep;
pub(crate) mod ticket;
