//! Protocols that servers and clients share: bytes to values and back, without I/O.

pub(crate) mod bytes;
pub mod hand_over;
pub mod nbd;
