//! The view of a running command: progress, stopping, and the places of its reports.

pub(crate) mod columns;
pub(crate) mod complaint;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod stop;
