//! Programs instead of clients.

pub(crate) mod jobs;
pub(crate) mod payload;
