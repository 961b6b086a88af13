//! `--run`: a server that lives as long as a command does, as nbdkit has it.
//!
//! captive.1  A shell runs the command once clients are served, and variables tell it where: `uri`, `unixsocket`, `nbd`, `port`, `exportname`,
//!            `FAIRLIFT_CONTROL`.
//! captive.2  Without `--listen` nobody else finds the server: its sockets are in a directory of its own, which goes at the end.
//! captive.3  When the command has ended the server drains, and the exit code is the command's. A signal to end is for the command; Ctrl-C, which
//!            a terminal sends to the command too, is left to it. A server that ends first ends the command.
//! captive.4  A server starts no programs; its filter of system calls forbids it. So this process starts both, and stays outside.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use fairlift::config::{Address, Config};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::TempDir;

use super::{ServeArgs, bound_addresses, systemd};
use crate::syntax::place;

/// The server of a command is told by this variable where it has a directory of its own.
const DIRECTORY: &str = "FAIRLIFT_RUN_DIRECTORY";

/// The server is looked at so often until it serves.
const AGAIN: Duration = Duration::from_millis(20);

/// The directory of this server, if it is that of a command.
pub(super) fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// The flags of such a server (captive.2), which does not outlive the process that started it.
pub(super) fn private(flags: &ServeArgs, directory: &Path) -> ServeArgs {
    let _ = set_parent_process_death_signal(Some(Signal::TERM)); // or its parent would have to end it
    let mut own = flags.clone();
    if own.listen.is_empty() {
        own.listen.push(Address::Unix(directory.join("nbd.sock")).into());
    }
    own
}

/// Tells the process that started this server where it serves, by the first export (captive.1).
pub(super) fn tell(config: &Config, bound: &[String], control: Option<&str>) {
    let places: Vec<_> = bound_addresses(config, bound).collect();
    let name = config.exports.first().map_or("", |export| &export.name);
    let tls = config.listeners.first().map(|listener| listener.tls);
    let uri = places.first().zip(tls).and_then(|(address, tls)| place::uri(address, tls, name)).unwrap_or_default();
    let unix = places.iter().find_map(|address| match address {
        Address::Unix(path) => Some(std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string()),
        _ => None,
    });
    let port = places.iter().find_map(place::tcp_address).map(|address| address.port().to_string());
    // As QEMU wrote it before there were URIs.
    let nbd = match (&unix, &port) {
        (Some(path), _) => format!("nbd:unix:{path}:exportname={name}"),
        (None, Some(port)) => format!("nbd:localhost:{port}:exportname={name}"),
        (None, None) => String::new(),
    };
    let (unix, port) = (unix.unwrap_or_default(), port.unwrap_or_default());
    let control = control.unwrap_or_default();
    systemd::tell(&format!(
        "uri={uri}\0unixsocket={unix}\0nbd={nbd}\0port={port}\0exportname={name}\0FAIRLIFT_CONTROL={control}"
    ));
}

/// A directory that nobody else can enter (captive.2).
fn own_directory(above: &Path) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("fairlift-run-").permissions(Permissions::from_mode(0o700)).tempdir_in(above)
}

/// Starts the server and then the command, and waits for both.
pub(super) fn supervise(command: &str) -> io::Result<ExitCode> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGCHLD])?;
    let above = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let own = own_directory(&std::path::absolute(above)?)?;
    let ready = own.path().join("ready");
    let notifications = UnixDatagram::bind(&ready)?;
    notifications.set_read_timeout(Some(AGAIN))?;
    let mut server = Command::new(std::env::current_exe()?);
    server.args(std::env::args_os().skip(1)).env(DIRECTORY, own.path()).env("NOTIFY_SOCKET", &ready);
    // Ctrl-C is not for it, and the terminal's input is the command's.
    let mut server = server.env_remove("RUNTIME_DIRECTORY").stdin(Stdio::null()).process_group(0).spawn()?;
    let mut notified = String::new();
    let mut word = [0; 1 << 16];
    while notified.rsplit('\n').nth(1) != Some("READY=1") {
        if let Some(status) = server.try_wait()? {
            return Ok(code(status)); // It has said why.
        }
        if signals.pending().any(|signal| signal != SIGCHLD) {
            end(&server, Signal::TERM);
        }
        if let Ok(length) = notifications.recv(&mut word) {
            notified += &String::from_utf8_lossy(&word[..length]);
            notified.push('\n');
        }
    }
    let notified = notified.lines().flat_map(|line| line.split('\0')).filter_map(|word| word.split_once('='));
    let mut ran = Command::new("/bin/sh");
    ran.arg("-c").arg(command).envs(notified.filter(|(name, _)| *name != "READY"));
    let mut ran = ran.spawn().inspect_err(|_| end(&server, Signal::TERM))?;
    let mut ended = None;
    for signal in signals.forever() {
        match signal {
            SIGCHLD => {}
            _ if ended.is_some() => end(&server, Signal::TERM), // at once
            SIGHUP => end(&ran, Signal::HUP),
            SIGTERM => end(&ran, Signal::TERM),
            _ => {} // captive.3
        }
        if ended.is_none() {
            ended = ran.try_wait()?;
            ended.iter().for_each(|_| end(&server, Signal::TERM));
        }
        if let Some(status) = server.try_wait()? {
            let Some(ended) = ended else {
                end(&ran, Signal::TERM);
                return Ok(code(ran.wait()?));
            };
            return Ok(code(if ended.success() { status } else { ended }));
        }
    }
    Ok(ExitCode::SUCCESS) // Nobody closes the signals.
}

/// Sends a signal to a process that has not been waited for.
fn end(child: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal); // which may have ended
}

/// As a shell tells it.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// captive.2
    #[test]
    fn nobody_else_enters_the_directory_of_its_sockets() {
        let above = tempfile::tempdir().unwrap();
        let own = own_directory(above.path()).unwrap();
        let mode = own.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
