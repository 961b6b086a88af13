//! The questions of a server that is to take over from this one: how this one was started, and then all that it has.
//!
//! takeover.1  Only root and the user of this server may ask, at a unix socket, and only a client that may change all.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::Response;
use fairlift::control::State;
use fairlift::{Beside, Handle};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use super::ConfigFile;
use super::endpoint::Caller;
use super::failure::{Failure, bad, fail};

/// The protocol that both sides speak after the answer.
pub(crate) const PROTOCOL: &str = "fairlift-hand-over";

/// The variables that a server looks at.
const VARIABLES: [&str; 10] = [
    "CEPH_CONF",
    "CEPH_KEYRING",
    "FAIRLIFT_ENGINE",
    "JOURNAL_STREAM",
    "NOTIFY_SOCKET",
    "RUNTIME_DIRECTORY",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
];

pub(crate) struct StartedAs {
    /// As another server is told it.
    shown: Value,
    /// Why no other process can be started so.
    why_not: Option<&'static str>,
    tell: fn(&str),
    /// A descriptor that goes over, by this name.
    beside: Option<(&'static str, OwnedFd)>,
}

impl StartedAs {
    /// This one; `is_of_a_command`: it ends with a command (`--run`). `tell` tells the service manager a word.
    pub(crate) fn now(is_of_a_command: bool, tell: fn(&str), beside: Option<(&'static str, OwnedFd)>) -> Self {
        let text = |path: std::io::Result<std::path::PathBuf>| path.ok()?.into_os_string().into_string().ok();
        // Without the program, and without what a server was told that took over.
        let is_ours = |word: &OsString| word.to_string_lossy().starts_with("--take-over");
        let arguments: Vec<_> = std::env::args_os().skip(1).filter(|word| !is_ours(word)).collect();
        let why_not = match () {
            () if arguments.iter().any(|word| word.to_str().is_none()) => Some("an argument of the server is no UTF-8"),
            () if is_of_a_command => Some("the server is that of a command (--run)"),
            () => None,
        };
        let environment = VARIABLES.into_iter().map(|name| (name, std::env::var(name).ok()));
        let shown = json!({
            "pid": std::process::id(),
            "uid": rustix::process::geteuid().as_raw(),
            "program": text(std::env::current_exe()),
            "arguments": arguments.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
            "directory": text(std::env::current_dir()),
            "environment": environment.collect::<BTreeMap<_, _>>(),
            "why_not": why_not,
        });
        Self { shown, why_not, tell, beside }
    }
}

/// The descriptors of this process that go over beside those of the library's server.
pub(super) struct Handed {
    pub(super) process: Arc<StartedAs>,
    pub(super) sockets: Vec<(String, OwnedFd)>,
}

impl Handed {
    /// takeover.1
    fn may(who: &Caller) -> Result<(), Failure> {
        if who.peer.is_root_or_own() {
            return Ok(());
        }
        fail(StatusCode::FORBIDDEN, "a server is taken over by root or its own user, at a unix socket of control")
    }

    /// How this server was started, and which things a new one would take over or not.
    pub(super) fn plan(&self, who: &Caller, handle: &Handle, file: &dyn ConfigFile) -> Result<Value, Failure> {
        Self::may(who)?;
        let (plan, in_the_way) = match handle.plan_hand_over() {
            Ok(plan) => (plan, Vec::new()),
            Err(in_the_way) => (Vec::new(), in_the_way),
        };
        let mut shown = self.process.shown.clone();
        shown["plan"] = json!(plan);
        if let Some(State { config, .. }) = handle.state() {
            let added: Vec<_> = config.exports.iter().filter(|export| !file.names(&export.name)).collect();
            shown["added"] = added.iter().map(|export| &*export.name).collect();
            shown["sized"] = added.iter().filter(|one| one.size.is_some()).map(|export| &*export.name).collect();
            shown["request_max"] = config.limits.request_max.into();
        }
        shown["in_the_way"] = self.process.why_not.map(str::to_owned).into_iter().chain(in_the_way).collect();
        Ok(shown)
    }

    /// Speaks with the new server from now on, by the connection on which it has asked.
    pub(super) fn begin(
        &self,
        who: Caller,
        handle: Handle,
        version: u64,
        upgrade: Option<hyper::upgrade::OnUpgrade>,
    ) -> Result<Response, Failure> {
        Self::may(&who)?;
        let upgrade = upgrade.ok_or_else(|| bad(format!("this is for another server: Upgrade: {PROTOCOL}")))?;
        let failed = |error: std::io::Error| Failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
        let (output, errors) = (std::io::stdout(), std::io::stderr());
        let sockets = self.sockets.iter().map(|(name, socket)| (&**name, socket.as_fd()));
        let own = self.process.beside.iter().map(|(name, descriptor)| (*name, descriptor.as_fd()));
        let all = sockets.chain(own).chain([("output", output.as_fd()), ("errors", errors.as_fd())]);
        let copy = |(name, descriptor): (&str, BorrowedFd<'_>)| {
            Ok::<_, std::io::Error>(Beside { name: name.to_owned(), descriptor: descriptor.try_clone_to_owned()? })
        };
        let beside = all.map(copy).collect::<Result<_, _>>().map_err(failed)?;
        let tell = self.process.tell;
        tokio::spawn(async move {
            let upgraded = match upgrade.await {
                Ok(upgraded) => upgraded,
                Err(error) => return tracing::warn!(%error, "a server that was to take over has left"),
            };
            let Ok(parts) = upgraded.downcast::<TokioIo<tokio::net::UnixStream>>() else {
                return tracing::warn!("a server that was to take over came by no unix socket");
            };
            match parts.io.into_inner().into_std() {
                Ok(stream) => in_a_thread(who, handle, stream, version, beside, tell),
                Err(error) => tracing::warn!(%error, "the socket of a server that was to take over cannot be used"),
            }
        });
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(header::CONNECTION, "upgrade")
            .header(header::UPGRADE, PROTOCOL)
            .body(Body::empty())
            .map_err(|error| Failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }
}

/// Hands over, which may take its time; then the process ends at once.
fn in_a_thread(who: Caller, handle: Handle, stream: UnixStream, version: u64, beside: Vec<Beside>, tell: fn(&str)) {
    let work = move || {
        let peer = rustix::net::sockopt::socket_peercred(&stream).map(|peer| peer.pid.as_raw_nonzero());
        match handle.hand_over(stream, version, &beside) {
            Ok(false) => tracing::info!(who = who.name, "another server has looked whether it could take over"),
            Ok(true) => {
                if let Ok(pid) = peer {
                    tell(&format!("MAINPID={pid}"));
                    tracing::info!("handed over to process {pid}");
                }
                handle.let_go();
                std::process::exit(0);
            }
            Err(why) => {
                tracing::warn!(who = who.name, "no other server has taken over: {why}");
                handle.tell("not upgraded", vec![("who", who.name), ("why", why)]);
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("hand-over".into()).spawn(work) {
        tracing::warn!(%error, "no thread can be made for a server that was to take over");
    }
}
