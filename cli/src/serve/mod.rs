//! `fairlift serve`: from flags to a server that runs until it is told to stop.

mod args;
mod log;
mod plan;
mod signals;
mod systemd;
mod tls;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use fairlift::Server;
use fairlift::config::{Address, Config, Tls};

use crate::config;
use crate::control;
use crate::terminal::output;
use crate::words::mistake::{Mistake, Source, render};
use crate::words::{backing, place};
pub(crate) use args::ServeArgs;
use plan::plan;

/// Serves until drained. Wrong flags or config: status 2; what goes wrong later: 1.
pub(crate) fn serve(flags: &ServeArgs) -> ExitCode {
    let config = match prepare(flags) {
        Ok(config) => config,
        Err(refusal) => {
            eprint!("{refusal}");
            return ExitCode::from(2);
        }
    };
    if flags.check {
        println_or_not(&format!("ok: {}\n", summary(&config)));
        return ExitCode::SUCCESS;
    }
    log::start();
    raise_file_limit();
    match run(flags, config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fairlift: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads and checks everything; the refusal is ready to be shown.
fn prepare(flags: &ServeArgs) -> Result<Config, String> {
    let source = flags.config.as_deref().map(read_source).transpose()?;
    let mut mistakes = Vec::new();
    let inherited = systemd::inherited().unwrap_or_else(|says| {
        mistakes.push(Mistake::in_flag("LISTEN_FDS", says));
        Vec::new()
    });
    let dir = flags.config.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let file = source.as_ref().map(|source| config::read(source, dir, &mut mistakes));
    let config = plan(flags, file, inherited, &mut mistakes);
    if mistakes.is_empty() {
        return Ok(config);
    }
    let mut refusal = render(source.as_ref(), &mistakes);
    if mistakes.len() > 1 {
        let _ = writeln!(refusal, "{} mistakes; the server was not started", mistakes.len());
    }
    Err(refusal)
}

fn read_source(path: &Path) -> Result<Source, String> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| format!("--config {name}: {error}\n"))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{name}:{line}: not UTF-8 text: byte {valid} is 0x{:02x}\n", error.as_bytes()[valid])
    })?;
    Ok(Source { name, text })
}

fn run(flags: &ServeArgs, config: Config) -> Result<(), Box<dyn std::error::Error>> {
    let described = config.clone();
    let server = Server::bind(config)?;
    let places = control::open(&flags.control, &described)?;
    let _watch = signals::drain_on_signal(server.handle())?;
    let teach = flags.exports.is_empty() && flags.config.is_none();
    println_or_not(&announcement(&described, &server.addresses(), teach));
    let _control = control::start(places, server.handle(), None)?;
    systemd::ready();
    server.run()?;
    tracing::info!("drained");
    Ok(())
}

/// What is served and where: a line with the URI for each export and place, then, if asked, what to try.
fn announcement(config: &Config, bound: &[String], teach: bool) -> String {
    let mut out = String::new();
    let mut first = None;
    for export in &config.exports {
        for (place, listener) in config.listeners.iter().enumerate() {
            let address = bound_address(&listener.address, bound.get(place));
            let Some(uri) = place::uri(&address, listener.tls, &export.name) else { continue };
            let _ = writeln!(out, "serving {} ({}) at {uri}", export.name, backing::show(&export.backing));
            first.get_or_insert(uri);
        }
    }
    if let Some(uri) = first.filter(|_| teach) {
        let _ = write!(
            out,
            "try in another terminal:\n  \
             nbdinfo '{uri}'\n  \
             nbdcopy --progress '{uri}' null:\n  \
             fio --name=try --ioengine=nbd --uri='{uri}' --rw=randwrite --bs=4k --iodepth=32 --size=1g --runtime=10\n\
             Ctrl-C stops the server; `fairlift help serve` explains more\n"
        );
    }
    out
}

/// The address as it came to be: with port 0 the kernel chose one.
fn bound_address(asked: &Address, bound: Option<&String>) -> Address {
    match (asked, bound.map(|text| place::parse(text))) {
        (Address::Tcp(asked), Some(Ok(Address::Tcp(bound)))) if asked.port() == 0 => Address::Tcp(bound),
        _ => asked.clone(),
    }
}

fn summary(config: &Config) -> String {
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let tls = config.listeners.iter().any(|listener| listener.tls != Tls::Off);
    format!(
        "{}, {}, {}, {}{}",
        count(config.exports.len(), "export"),
        count(config.disks.len(), "disk"),
        count(config.groups.len(), "group"),
        count(config.listeners.len(), "listener"),
        if tls { " with TLS" } else { "" }
    )
}

/// What nobody reads is no reason to stop serving.
fn println_or_not(text: &str) {
    let _ = output::print(text.as_bytes());
}

/// Thousands of connections need more files than the usual 1024; the hard limit is the operator's word.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

#[cfg(test)]
mod tests;
