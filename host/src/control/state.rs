//! State: what is in force, and why it was not changed.

use std::sync::Arc;

use super::difference::{Of, Step};
use crate::config::Config;

/// What is in force.
#[derive(Clone, Debug)]
pub struct State {
    /// How often something was changed since the start.
    pub version: u64,
    /// What a server would be started with to be the same: every export names its disk.
    pub config: Arc<Config>,
}

/// What a change has made, or would make.
#[derive(Clone, Debug)]
pub struct Made {
    /// What is then in force.
    pub state: State,
    /// What was done for it.
    pub steps: Vec<Step>,
    /// Disks that have another scheduler because of who shares them now.
    pub suited: Vec<Step>,
}

/// Why nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Another change came between.
    #[error("version {asked} was asked for, and the server is at version {now}: it was changed or restarted since")]
    Version {
        /// The version that the caller knew.
        asked: u64,
        /// The version that there is.
        now: u64,
    },
    /// It cannot be made, so that none of it was.
    #[error("{why}")]
    Change {
        /// What is in the way.
        of: Of,
        /// What was asked, and what is possible.
        why: String,
    },
    /// The server has ended.
    #[error("the server has ended")]
    Ended,
}
