//! Errors for words on the command line that are not understood: in the same style as all other errors, and with the probable meaning.

use std::process::ExitCode;

use clap::ValueEnum as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap_complete::Shell;
use fairlift_lab::suggestion;

use super::Cli;
use crate::remote::meant;
use crate::syntax::mistake::{Mistake, hint, render};
use crate::terminal::complaint::Complaint;
use crate::terminal::output::quoted;

/// Flags that people know from other servers or commands, and their counterparts here.
const ELSEWHERE: [(&[&str], &str); 9] = [
    (&["--control"], "it follows a command that asks a server, as in fairlift status --control ADDRESS"),
    (&["--version", "-V"], "`fairlift version` says it"),
    (
        &["--weights", "--share", "--shares"],
        "--weight NAME=N gives one export its weight, and may be given several times",
    ),
    (
        &["--group", "--groups"],
        "--weight NAME=N gives an export a group of its own; other groups are set in a config file (`fairlift config` shows one)",
    ),
    (&["--port", "-p", "--host", "--bind", "--address", "--ip"], "an address is given as --listen tcp:HOST:PORT"),
    (&["--socket", "--unix", "-k"], "a socket is given as --listen unix:PATH"),
    (&["--export", "--name", "-e", "-x"], "an export is given as NAME=BACKING, without a flag"),
    (&["--size"], "a size is a part of the backing, as in mem:1g, null:1g or sim:MODEL,size=1g"),
    (
        &["--daemon", "--daemonize", "--background", "--fork", "-d"],
        "fairlift serve stays in the foreground; systemd, or & in a shell, runs it in the background",
    ),
];

/// Commands that people look for, and where to find what they do.
const COMMANDS: [(&[&str], &str); 5] = [
    (&["schedulers", "scheduler"], "`fairlift tunables` lists the schedulers and their tunables"),
    (&["stop", "quit", "shutdown", "kill"], "SIGTERM or Ctrl-C stops a server: `systemctl stop fairlift`, or kill PID"),
    (&["start", "run", "server", "nbd"], "`fairlift serve` starts a server"),
    (&["list", "ls", "exports", "info"], "`nbdinfo --list URI` lists a server's exports"),
    (&["check", "validate", "test"], "`fairlift serve --config FILE --check` checks flags and a config file"),
];

/// Said of a file that `reload` is to read.
const RELOADED: &str = "reload takes no file: it reads the one again that the server was started with; change that one, or start a \
                        server with another (fairlift serve --config FILE)";

/// Ends the program as the error wants it: help goes to standard output, all else is refused with status 2.
pub(crate) fn answer(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.exit()
        }
        _ => {
            // The first word that is a command's name is the command.
            let command = <Cli as clap::CommandFactory>::command();
            let typed = std::env::args().skip(1).find(|word| command.find_subcommand(word).is_some());
            let typed = typed.unwrap_or_default();
            let says = render("error: ", None, &[explain(error, &typed)]);
            Complaint::Typed(says).tell(&typed)
        }
    }
}

/// `typed`: the command.
fn explain(error: &clap::Error, typed: &str) -> Mistake {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(all)) => Some(all.join(", ")),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg).unwrap_or_default();
    let elsewhere = |table: &[(&[&str], &'static str)], word: &str| {
        table.iter().find(|(words, _)| words.contains(&word)).map(|(_, says)| *says)
    };
    match error.kind() {
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            // A part of the path in a place of its own is quoted by itself.
            let flag = argument.split([' ', '=']).next().filter(|flag| flag.starts_with('-'));
            let key = format!("{} {value}", flag.unwrap_or_default());
            let known = text(ContextKind::ValidValue).filter(|known| !known.is_empty());
            let says = match (std::error::Error::source(error), known) {
                (Some(why), _) => why.to_string(),
                (None, Some(known)) if argument.starts_with(['<', '[']) => {
                    let what = argument.trim_matches(['<', '>', '[', ']', '.']).to_lowercase();
                    let hint = match suggestion(&value, known.split(", ")) {
                        hint if hint.is_empty() && what == "kind" => meant(&value),
                        hint => hint,
                    };
                    format!("unknown {what}; there are {known}{hint}")
                }
                (None, Some(known)) => {
                    let is = if value.is_empty() { "needs a value" } else { "is unknown" };
                    format!("{is}; there is {known}{}", suggestion(&value, known.split(", ")))
                }
                (None, None) => "needs a value".into(),
            };
            Mistake::in_flag(key.trim(), says)
        }
        ErrorKind::UnknownArgument if typed == "reload" && !(argument.starts_with('-') && argument != "--config") => {
            Mistake::in_flag(&argument, RELOADED)
        }
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            let meant = match elsewhere(&ELSEWHERE, argument.split('=').next().unwrap_or_default()) {
                Some(says) => format!("; {says}"),
                None => {
                    text(ContextKind::SuggestedArg).map_or_else(String::new, |flag| format!("; did you mean {flag}?"))
                }
            };
            Mistake::in_flag(&argument, format!("there is no such flag{meant}"))
        }
        ErrorKind::UnknownArgument if ["status", "top"].contains(&typed) => {
            let one = quoted(&argument);
            let why = format!("{typed} shows all tenants; `fairlift why {one}` says what this one waits for");
            let filter =
                if typed == "top" { format!(", `fairlift top --filter {one}` shows it alone") } else { String::new() };
            Mistake::in_flag(&argument, why + &filter)
        }
        ErrorKind::UnknownArgument => Mistake::in_flag(&argument, "is one word too many"),
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            let command = <Cli as clap::CommandFactory>::command();
            let known: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
            let near = || hint(&word, known.iter().copied(), || format!("; the commands are {}", known.join(", ")));
            let meant = elsewhere(&COMMANDS, &word).map_or_else(near, |says| format!("; {says}"));
            Mistake::in_flag(&word, format!("there is no such command{meant}"))
        }
        ErrorKind::MissingRequiredArgument if argument == "<SHELL>" => {
            let shells: Vec<_> = Shell::value_variants().iter().map(ToString::to_string).collect();
            Mistake::in_flag("", format!("for which shell? There is {}", shells.join(", ")))
        }
        ErrorKind::MissingRequiredArgument => Mistake::in_flag("", format!("{argument} is missing")),
        _ => {
            let shown = error.to_string();
            let first = shown.split("\n\n").next().unwrap_or_default();
            Mistake::in_flag("", first.trim().trim_start_matches("error: "))
        }
    }
}
