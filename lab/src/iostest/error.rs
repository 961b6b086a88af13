//! Why a plan cannot be.

use std::fmt;

/// Why a plan cannot be run, or was not.
#[derive(Debug)]
pub enum Error {
    /// Something in the plan is not possible: what was asked, and what is.
    Plan(String),
    /// A case could not be run: which, and why.
    Runner(String, Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(why) => f.write_str(why),
            Self::Runner(case, why) => write!(f, "{case}: {why}"),
        }
    }
}

impl std::error::Error for Error {}
