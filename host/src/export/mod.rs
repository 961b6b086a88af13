//! What clients connect to, one folder for each protocol.
pub mod nbd;
pub(crate) mod program;
