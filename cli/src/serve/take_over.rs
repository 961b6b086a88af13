//! `--take-over`: this server begins with all that a running one has, and that one ends. `fairlift upgrade` starts it.
//!
//! begin.1  The configurations of the running server and of this one are compared before anything changes: a difference is refused, and
//!          told key by key. An addition since that stands in no file is no difference ([`carried`]).
//! begin.2  Until it serves, this process leaves everything as it is when it ends, and its output goes to the command that has started it.
//!          From then on it writes where the previous server has written. It ends if that command has ended before it was ready.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fairlift::config::Address;
use fairlift::{Handle, Server, Taking};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Plan, carried, log, systemd};
use crate::control::{self, Control, ControlAt, Opened};
use crate::remote::Running;
use crate::terminal::complaint::Complaint;

/// Said to the command that has started this process once it serves.
pub(crate) const TAKEN: &str = "taken over";

/// Said to it before that, when it may not be ended any more: the clients are about to be its own.
pub(crate) const READY: &str = "ready";

/// Said to it if this was only to look.
pub(crate) const COULD: &str = "could take over";

/// How long the answer of a control server may take.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct TakeOver {
    pub(super) taking: Taking,
    running: Running,
    /// It is only to be seen whether it could.
    only_looks: bool,
}

impl TakeOver {
    /// Asks the server at a control socket, whose token may follow.
    pub(super) fn begin(socket: &Path, only_looks: bool) -> Result<Self, String> {
        let _ = rustix::process::setsid(); // the terminal of whoever upgrades is not the server's
        let control = format!("unix:{}", socket.display());
        let running = Running::ask(&control)?;
        let stream = ask(&control::parse_place(&control)?, running.version)?;
        Ok(Self { taking: Taking::begin(stream)?, running, only_looks })
    }

    /// The server that takes over, which serves nobody yet (begin.1).
    pub(super) fn open(&mut self, prepared: &Plan) -> Result<Server, Complaint> {
        let shown = |wrong: super::Wrong| Complaint::Refused(wrong.shown("the running server goes on"));
        let Running { settings, added, sized, request_max, .. } = &self.running;
        let config = carried::with_added(prepared.config.clone(), settings, (added, sized)).map_err(|why| {
            Complaint::Refused(format!(
                "error: objects added to the running server cannot be taken over: {why}\nthe running server goes on"
            ))
        })?;
        let server = Server::take_over(config, &mut self.taking).map_err(|error| shown(prepared.wrong(&[error])))?;
        let own = control::settings(&server.handle()).unwrap_or_default();
        let mut differences = differences(settings, &own);
        // Clients were told of it; that they may ask for more than they know costs nothing.
        let most = u64::from(prepared.config.limits.request_max);
        let less = request_max.filter(|told| *told > most);
        differences.extend(less.map(|told| format!("server request_max: {told} in force, {most} in the new server")));
        if differences.is_empty() {
            return Ok(server);
        }
        let list = differences.join("\n  ");
        let remedy = match prepared.source {
            Some(_) => "either run `fairlift reload`, or write the changes made by command into the config file",
            None => {
                "take back the changes made by command: the server has no config file to write them into (--config)"
            }
        };
        Err(Complaint::Refused(format!(
            "error: the running settings differ from those of the new server:\n  {list}\n{remedy}\n\
             the running server goes on"
        )))
    }

    /// Takes the clients once the workers run, and has control start; it ends when what is answered is dropped.
    pub(super) fn begin_serving(
        self,
        handle: Handle,
        mut endpoints: Vec<Opened>,
        start: impl FnOnce(Vec<Opened>) -> std::io::Result<Control> + Send + 'static,
    ) -> std::io::Result<Arc<Mutex<Option<Control>>>> {
        let control = Arc::new(Mutex::new(None));
        let place = Arc::clone(&control);
        let Self { mut taking, only_looks, .. } = self;
        let work = move || {
            if only_looks {
                taking.only_look();
                handle.let_go();
                let _ = say(COULD);
                std::process::exit(0); // begin.2
            }
            let outputs = ["output", "errors"].map(|name| taking.beside(name));
            if let Err(why) = taking.finish(&handle, || say(READY)) {
                let _ = writeln!(std::io::stderr(), "error: not taken over: {why}");
                handle.let_go();
                std::process::exit(1); // begin.2
            }
            endpoints.iter_mut().for_each(Opened::is_ours);
            let _ = say(TAKEN);
            write_there(outputs);
            log::handed();
            tracing::info!("taken over from the previous server; this is process {}", std::process::id());
            match start(endpoints) {
                Ok(started) => *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(started),
                Err(error) => tracing::error!(%error, "the server runs without control"),
            }
            systemd::ready();
        };
        std::thread::Builder::new().name("take-over".into()).spawn(work)?;
        Ok(control)
    }
}

/// Says a word to the command that has started this process, if that has not ended.
fn say(word: &str) -> Result<(), String> {
    writeln!(std::io::stdout(), "{word}").map_err(|error| format!("the command that started it has ended ({error})"))
}

/// Has this process print where the previous server has printed.
fn write_there([output, errors]: [Option<OwnedFd>; 2]) {
    let put = |to: Option<OwnedFd>, put: fn(OwnedFd) -> rustix::io::Result<()>| to.map_or(Ok(()), put);
    let done = put(output, rustix::stdio::dup2_stdout).and(put(errors, rustix::stdio::dup2_stderr));
    if let Err(error) = done {
        tracing::warn!(%error, "the log of the previous server cannot be continued");
    }
}

/// Asks to take over; what is answered is a connection for that.
fn ask(at: &ControlAt, version: u64) -> Result<UnixStream, String> {
    let Address::Unix(socket) = &at.address else { return Err("a server is taken over at a unix socket".into()) };
    let fail = |error: std::io::Error| format!("{}: {error}", socket.display());
    let token = at.token.as_deref().map(control::token).transpose()?;
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let mut stream = UnixStream::connect(socket).map_err(fail)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
    let protocol = control::PROTOCOL;
    let request = format!(
        "POST /v1/take-over?version={version} HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: {protocol}\r\n\
         Content-Length: 0\r\n{token}\r\n"
    );
    stream.write_all(request.as_bytes()).map_err(fail)?;
    // The bytes after the head are the protocol's, and its descriptors come with its first byte.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if head.len() > 64 << 10 || stream.read(&mut byte).map_err(fail)? == 0 {
            return Err(format!("{}: no answer to the question whether this server may take over", socket.display()));
        }
        head.push(byte[0]);
    }
    if head.starts_with(b"HTTP/1.1 101") {
        return Ok(stream);
    }
    let mut body = Vec::new();
    let _ = stream.set_read_timeout(Some(Duration::from_millis(500)));
    let _ = stream.take(64 << 10).read_to_end(&mut body); // until it says no more
    let reason =
        serde_json::from_slice::<Value>(&body).ok().and_then(|value| Some(value["error"].as_str()?.to_owned()));
    Err(reason
        .unwrap_or_else(|| "the running server does not know how to hand over: it is older than this program".into()))
}

/// Parts of the settings that are not said but found, or change by themselves.
const FOUND: [&str; 11] = [
    "version",
    "connections",
    "block_device",
    "in_flight",
    "waiting",
    "findings",
    "devices",
    "frozen",
    "scheduler_in_place",
    "rotational",
    "concurrency",
];

/// Where two servers' settings differ, a line each (begin.1). Parts of the same text are not read: the values of 1,000 exports would take
/// several MiB on each side.
fn differences(running: &RawValue, new: &RawValue) -> Vec<String> {
    let mut lines = Vec::new();
    compare("", (running.get(), new.get()), &mut lines);
    lines
}

/// The parts of an object by their keys, or of a list of things by their names; `None`: it is another value.
fn parts(text: &str) -> Option<BTreeMap<String, &RawValue>> {
    let mut parts: BTreeMap<String, _> =
        if text.starts_with('[') { things(text)? } else { serde_json::from_str(text).ok()? };
    parts.retain(|key, _| !FOUND.contains(&key.as_str()));
    Some(parts)
}

#[derive(Default, Deserialize)]
struct ThingNames {
    name: Option<String>,
    path: Option<String>,
    address: Option<String>,
}

/// A list of things by their names, or by their numbers; `None`: it is a list of values.
fn things(text: &str) -> Option<BTreeMap<String, &RawValue>> {
    let list: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    let name = |(number, thing): (usize, &RawValue)| {
        let ThingNames { name, path, address } = serde_json::from_str(thing.get()).unwrap_or_default();
        name.or(path).or(address).unwrap_or_else(|| number.to_string())
    };
    let are_things = list.iter().all(|thing| thing.get().starts_with('{'));
    are_things.then(|| list.iter().copied().enumerate().map(|at| (name(at), at.1)).collect())
}

/// Adds a line for each value that differs; `at`: the names that lead here.
fn compare(at: &str, (running, new): (&str, &str), lines: &mut Vec<String>) {
    if running == new {
        return;
    }
    let all = [running, new].map(|text| match parts(text) {
        Some(parts) => (Value::Null, parts),
        None => (serde_json::from_str(text).unwrap_or_default(), BTreeMap::new()),
    });
    let [(theirs, of_running), (own, of_new)] = &all;
    if theirs != own {
        let shown = |value: &Value| if value.is_null() { "nothing".to_owned() } else { value.to_string() };
        lines.push(format!("{}: {} in force, {} in the new server", at.trim_start(), shown(theirs), shown(own)));
    }
    let names: BTreeSet<_> = of_running.keys().chain(of_new.keys()).collect();
    for name in names {
        let both = [of_running, of_new].map(|parts| parts.get(name).map_or("null", |part| part.get()));
        compare(&format!("{at} {name}"), both.into(), lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// begin.1
    #[test]
    fn two_settings_differ_key_by_key_and_not_by_what_is_found() {
        let running = json!({
            "version": 3,
            "exports": [{"name": "b", "size": 2}, {"name": "a", "size": 1, "connections": 7, "vhost_user": null}],
            "groups": {"path": "/", "weight": 100, "groups": [{"path": "/a", "weight": 300, "exports": ["a"]}]},
        });
        let mut new = json!({
            "version": 0,
            "exports": [{"name": "a", "size": 1, "connections": 0}, {"name": "b", "size": 2}],
            "groups": {"path": "/", "weight": 100, "groups": [{"path": "/a", "weight": 300, "exports": ["a"]}]},
        });
        let lines = |running: &Value, new: &Value| {
            // However either was laid out.
            let text = |text: String| RawValue::from_string(text).unwrap();
            differences(&text(format!("{running:#}")), &text(new.to_string()))
        };
        assert_eq!(lines(&running, &new), [""; 0]);
        new["groups"]["groups"][0]["weight"] = json!(100);
        new["exports"][1]["name"] = json!("c");
        assert_eq!(
            lines(&running, &new),
            [
                "exports b name: \"b\" in force, nothing in the new server",
                "exports b size: 2 in force, nothing in the new server",
                "exports c name: nothing in force, \"c\" in the new server",
                "exports c size: nothing in force, 2 in the new server",
                "groups groups /a weight: 300 in force, 100 in the new server",
            ]
        );
    }
}
