//! Why a plan cannot be.

use std::fmt;

use super::{Case, Failure};

/// Why a plan cannot be run, or was not.
#[derive(Debug)]
pub enum RunError {
    /// Something in the plan is not possible: the request, and the possible values.
    Plan(String),
    /// A case could not be run: which, and why.
    Runner(String, Failure),
}

impl RunError {
    /// A runner's error about a case; one about the plan names the case itself.
    pub(crate) fn of(case: &Case, why: Failure) -> Self {
        match why.downcast::<Self>() {
            Ok(why) => *why,
            Err(why) => Self::Runner(case.to_string(), why),
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(why) => f.write_str(why),
            Self::Runner(case, why) => write!(f, "{case}: {why}"),
        }
    }
}

impl std::error::Error for RunError {}
