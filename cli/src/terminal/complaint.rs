//! How a command that was not done, or not to its end, says so: in one style, on standard error.
//!
//! `error: WHAT: WHY`, or `FILE:LINE:COLUMN: error: WHAT: WHY` and the line; below what was typed wrong, where to read more.

use std::process::ExitCode;

use crate::syntax::mistake::{Mistake, render};

/// The exit status of a success, or of a failure, which is told with its reason.
pub(crate) fn done(result: Result<(), impl ToString>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => Complaint::Failed(why.to_string()).tell(""),
    }
}

/// Why a command ends without having done what it was asked.
#[derive(Debug)]
pub(crate) enum Complaint {
    /// A mistake on the command line or in a file, as [`render`](crate::syntax::mistake::render) shows it.
    Typed(String),
    /// A mistake in a config file, with none on the command line.
    InFile(String),
    /// The same, where reading the help helps nobody: what was typed is right, and cannot be done here.
    Refused(String),
    Failed(String),
}

impl Complaint {
    pub(crate) fn typed(mistakes: &[Mistake]) -> Self {
        Self::Typed(render("error: ", None, mistakes))
    }

    /// Prints it, and returns the exit status: 2 for mistakes on the command line, 1 for the rest.
    pub(crate) fn tell(&self, command: &str) -> ExitCode {
        match self {
            Self::Typed(mistakes) => {
                let name = ["fairlift", command, "--help"].into_iter().filter(|word| !word.is_empty());
                let name = name.collect::<Vec<_>>().join(" ");
                eprintln!("{}\n\nFor more information, try '{name}'.", mistakes.trim_end());
                ExitCode::from(2)
            }
            Self::InFile(mistakes) => {
                eprintln!("{}\n\n`fairlift config` explains every key.", mistakes.trim_end());
                ExitCode::from(2)
            }
            Self::Refused(mistakes) => {
                eprintln!("{}", mistakes.trim_end());
                ExitCode::FAILURE
            }
            Self::Failed(why) => {
                eprintln!("error: {}", why.trim_end());
                ExitCode::FAILURE
            }
        }
    }
}
