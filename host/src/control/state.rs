//! State: what is in force, and why it was not changed.

use std::sync::Arc;

use super::difference::{Becomes, Of, Step};
use crate::config::Config;

/// The configuration in force.
#[derive(Clone, Debug)]
pub struct State {
    /// How often something was changed since the start, also of the servers from which this one has taken over.
    pub version: u64,
    /// The configuration that would start the same server: every export names its disk.
    pub config: Arc<Config>,
}

/// The result of a change, made or possible.
#[derive(Clone, Debug)]
pub struct Made {
    /// The configuration in force after it.
    pub state: State,
    /// The steps made for it.
    pub steps: Vec<Step>,
    /// Disks that have another scheduler because of the tenants that share them now.
    pub suited: Vec<Step>,
}

impl Made {
    pub(crate) fn added(&self) -> impl Iterator<Item = &String> {
        self.steps.iter().filter_map(|step| match (&step.of, step.what) {
            (Of::Export(name), Becomes::Comes) => Some(name),
            _ => None,
        })
    }
}

/// Why a change was not made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Another change came between.
    #[error("version {expected} was asked for, and the server is at version {now}: it was changed or restarted since")]
    Version {
        /// The version that the caller knew.
        expected: u64,
        /// The version that there is.
        now: u64,
    },
    /// It cannot be made, so that none of it was.
    #[error("{why}")]
    Change {
        /// The obstacles.
        of: Of,
        /// The mistake, and the possible values.
        why: String,
    },
    /// A part of it did not come, and the others cannot be undone: these are in force.
    #[error("{why}; in force all the same, for it cannot be undone ({not}): {made}")]
    InPart {
        /// Why that part did not come.
        why: String,
        /// Why the others cannot be undone.
        not: String,
        /// The others, each as its sentence.
        made: String,
    },
    /// The server has ended.
    #[error("the server has ended")]
    Ended,
}
