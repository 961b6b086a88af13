//! The command `fairlift`: flags, config, signals and words around the library.

mod args;
mod blktrace;
mod config;
mod control;
#[doc(hidden)]
pub mod hostile;
mod iostest;
mod iostune;
mod overlay;
mod remote;
mod serve;
mod show;
mod syntax;
mod terminal;
mod ublk;
mod ways;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Cli, Command, refusal};
use crate::config::EXAMPLE;
use crate::terminal::complaint::{self, Complaint};
use crate::terminal::output;

/// The output of `fairlift version`.
const VERSION: &str = concat!("fairlift ", env!("CARGO_PKG_VERSION"), " (", env!("FAIRLIFT_COMMIT"), ")\n");

/// Does what the command line asks; the code that the process ends with.
#[must_use]
pub fn run() -> ExitCode {
    show::complete();
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return refusal::answer(&error),
    };
    let shown = match command {
        Command::Serve(flags) => return serve::serve(&flags),
        Command::Status(args) => return remote::status(&args),
        Command::Top(args) => return remote::top(&args),
        Command::Why(args) => return remote::why(&args),
        Command::Gateways(at) => return remote::gateways(&at),
        Command::Trace(args) => return remote::trace(&args),
        Command::Get(args) => return remote::show(&args.at, remote::get(&args)),
        Command::Set(args) => return remote::show(&args.how.at, remote::set(&args)),
        Command::Add(args) => return remote::show(&args.how.at, remote::add(&args)),
        Command::Fork(args) => return remote::show(&args.how.at, remote::fork(&args)),
        Command::Remove(args) => return remote::show(&args.how.at, remote::remove(&args)),
        Command::Events(args) => return remote::events(&args),
        Command::Acknowledge(at) => return remote::acknowledge(&at),
        Command::Reload(how) => return remote::show(&how.at, remote::reload(&how)),
        Command::Upgrade(args) => return remote::upgrade(&args),
        Command::Ublk(args) => return ublk::ublk(&args),
        Command::Overlay(args) => return overlay::overlay(&args),
        Command::Iostest(flags) => return iostest::iostest(&flags),
        Command::Iostune(flags) => return iostune::iostune(&flags),
        Command::Models { model } => match show::models(model.as_deref()) {
            Ok(text) => output::print(text.as_bytes()),
            Err(says) => return Complaint::Typed(format!("error: {says}")).tell("models"),
        },
        Command::Config => output::print(EXAMPLE.as_bytes()),
        Command::Tunables { scheduler } => output::print(show::tunables(scheduler).as_bytes()),
        Command::Token => show::token().and_then(|lines| output::print(&lines)),
        Command::Version => output::print(VERSION.as_bytes()),
        Command::Completions { shell } => show::completions(shell).and_then(|script| output::print(&script)),
        Command::Man { directory } => show::man(directory.as_deref()).and_then(|page| output::print(&page)),
        Command::Units { directory } => show::units(directory.as_deref()).and_then(|unit| output::print(&unit)),
    };
    complaint::done(shown)
}
