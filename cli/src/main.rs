//! The command `fairlift`: flags, config, signals and words around the library.
//!
//! | module | what it holds |
//! |---|---|
//! | [`args`] | what can be said on the command line |
//! | [`config`], [`section`], [`keys`] | the config file: its keys, and how a table is read |
//! | [`plan`] | flags and file together, as the library's `Config` |
//! | [`backing`], [`place`], [`groups`], [`units`] | what the words in them mean |
//! | [`mistake`] | what is wrong, and where |
//! | [`serve`], [`signals`], [`systemd`], [`tls`], [`log`] | the running server |
//! | [`iostest`] | how a disk is shared, measured |
//! | [`iostune`] | what a disk is like, and what to set for it |
//! | [`output`] | where reports go |
//! | [`show`] | tunables, models, completions, manual pages |

mod args;
mod backing;
mod config;
mod groups;
mod iostest;
mod iostune;
mod keys;
mod log;
mod mistake;
mod output;
mod place;
mod plan;
mod progress;
mod section;
mod serve;
mod show;
mod signals;
mod systemd;
mod tls;
mod units;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Cli, Command, EXAMPLE};

fn main() -> ExitCode {
    let shown = match Cli::parse().command {
        Command::Serve(flags) => return serve::serve(&flags),
        Command::Iostest(flags) => return iostest::iostest(&flags),
        Command::Iostune(flags) => return iostune::iostune(&flags),
        Command::Models { model } => match show::models(model.as_deref()) {
            Ok(text) => show::print(text.as_bytes()),
            Err(refusal) => {
                eprintln!("{refusal}");
                return ExitCode::from(2);
            }
        },
        Command::Config => show::print(EXAMPLE.as_bytes()),
        Command::Tunables { scheduler } => show::print(show::tunables(scheduler).as_bytes()),
        Command::Completions { shell } => show::print(&show::completions(shell)),
        Command::Man { directory } => show::man(directory.as_deref()).and_then(|page| show::print(&page)),
    };
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fairlift: {error}");
            ExitCode::FAILURE
        }
    }
}
