//! `fairlift upgrade`: starts a server that takes over from the one that runs, and tells how that went.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fairlift::config::Address;
use hyper::Method;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::{At, Server};
use super::tables::{list, text};
use super::{UpgradeArgs, absolute};
use crate::control::parse_place;
use crate::serve::{COULD, READY, TAKEN};
use crate::terminal::complaint;
use crate::terminal::output;

/// How long the previous server may take to end. Chosen: it has nothing left to do.
const LAST: Duration = Duration::from_secs(2);

/// How long block devices may take. Chosen: the kernel gives them to the new server within some tenths of a second once the old one has ended.
const DEVICES: Duration = Duration::from_secs(10);

/// How a reason ends that will have gone in a moment, how soon the upgrade is tried again then, and how often. Chosen: a connection to another
/// server is made, and a block device started, within some tenths of a second.
const TRANSIENT: &str = "try again in a moment";
const PAUSE: Duration = Duration::from_millis(300);
const TRIES: u32 = 5;

/// The state of a server that another one is to take over.
pub(crate) struct Running {
    pub(crate) settings: Box<RawValue>,
    pub(crate) version: u64,
    /// The exports that stand neither in its file nor in its arguments.
    pub(crate) added: Vec<String>,
    /// Those of them that have a size of their own: the others end with their backings.
    pub(crate) sized: Vec<String>,
    /// The largest request, as its clients were told.
    pub(crate) request_max: Option<u64>,
}

impl Running {
    pub(crate) fn ask(control: &str) -> Result<Self, String> {
        let server = Server::find(&At { control: Some(control.into()), json: false })?;
        let (settings, version) = server.ask(Method::GET, "/v1/state", None, None)?;
        let version = version.ok_or("the running server does not say which version its settings have")?;
        let (plan, _): (Value, _) = server.ask(Method::POST, "/v1/upgrade", None, None)?;
        let names = |key: &str| list(&plan[key]).iter().filter_map(Value::as_str).map(str::to_owned);
        let (added, sized) = (names("added").collect(), names("sized").collect());
        Ok(Self { settings, version, added, sized, request_max: plan["request_max"].as_u64() })
    }
}

pub(crate) fn upgrade(args: &UpgradeArgs) -> ExitCode {
    let mut tries = 1..TRIES;
    loop {
        match attempt(args) {
            Err(why) if why.contains(TRANSIENT) && tries.next().is_some() => {
                let _ = output::print(format!("tried again: {why}\n").as_bytes());
                std::thread::sleep(PAUSE);
            }
            done => return complaint::done(done),
        }
    }
}

fn attempt(args: &UpgradeArgs) -> Result<(), String> {
    let server = Server::find(&args.at)?;
    let Address::Unix(socket) = &server.address else {
        return Err(format!("{}: a server is taken over at a unix socket of control", server.shown));
    };
    let socket = absolute(socket)?;
    let (running, _): (Value, _) = server.ask(Method::POST, "/v1/upgrade", None, None)?;
    let tell = |line: &str| _ = output::print(format!("{line}\n").as_bytes());
    let program = match &args.program {
        // Started in the server's directory, it is looked for in this one; a name without a slash in PATH.
        Some(program) if program.components().count() > 1 => absolute(program)?,
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?,
    };
    // A program that was installed since is another file.
    if args.if_changed && output::are_same(Path::new(&format!("/proc/{}/exe", running["pid"])), &program) {
        tell("the running server already runs this program; nothing to do");
        return Ok(());
    }
    let lines = |key: &str| list(&running[key]).iter().filter_map(Value::as_str);
    let in_the_way: Vec<_> = lines("in_the_way").collect();
    if !in_the_way.is_empty() {
        return Err(format!("the running server cannot be taken over:\n  {}", in_the_way.join("\n  ")));
    }
    is_its_user(&running)?;
    is_of_its_service(&running)?;
    lines("plan").for_each(tell);
    let mut take_over = OsString::from("--take-over=");
    take_over.push(socket);
    if let Some(token) = args.at.control.as_deref().and_then(|text| parse_place(text).ok()?.token) {
        take_over.push(",token=");
        take_over.push(absolute(&token)?);
    }
    let mut child = start(&program, &take_over, &running, args.dry_run)?;
    let began = Instant::now();
    let came = wait(&mut child, began + Duration::from_secs_f64(args.within.min(1e6)));
    came.map_err(|why| format!("{}: {why}\nthe running server goes on", program.display()))?;
    if args.dry_run {
        tell("a new server could take over; nothing was changed");
        return Ok(());
    }
    wait_for_the_end(&running);
    let away = wait_for_devices(&server);
    let (new, old, took) = (child.id(), &running["pid"], began.elapsed().as_millis());
    tell(&format!("process {new} serves now, after {took} ms; {old} has ended"));
    for export in away {
        tell(&format!(
            "the block device of export {export:?} is not there yet; its requests wait (see the server's log)"
        ));
    }
    Ok(())
}

/// The previous server ends once it has told the service manager its successor: after this command that is done.
fn wait_for_the_end(running: &Value) {
    let (process, until) = (format!("/proc/{}/stat", running["pid"]), Instant::now() + LAST);
    // A process that has ended stays in /proc until its parent has waited for it, and some parents never do.
    let is_there = || std::fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z "));
    while is_there() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The exports whose block devices are still with the kernel.
fn away(exports: &Value) -> Vec<String> {
    let is_away = |export: &&Value| export["block_device"]["live"] == false;
    list(exports).iter().filter(is_away).map(|export| text(&export["name"])).collect()
}

/// Waits until the new server has the block devices of the one before; those that it has not by then.
fn wait_for_devices(server: &Server) -> Vec<String> {
    let until = Instant::now() + DEVICES;
    loop {
        // A server that does not say is not waited for.
        let exports = server.ask(Method::GET, "/v1/exports", None, None);
        let away = exports.map(|(exports, _)| away(&exports)).unwrap_or_default();
        if away.is_empty() || Instant::now() > until {
            return away;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A server of another user could do what the running one could not, or not open what that one has.
fn is_its_user(running: &Value) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    match running["uid"].as_u64() {
        Some(uid) if uid != u64::from(own) => Err(format!(
            "the running server runs as user {uid}; a server started here would run as user {own}: \
             sudo -u '#{uid}' fairlift upgrade"
        )),
        _ => Ok(()),
    }
}

/// A service manager ends what is left of a service, and knows nothing of a process outside.
fn is_of_its_service(running: &Value) -> Result<(), String> {
    if running["environment"]["NOTIFY_SOCKET"].is_null() {
        return Ok(());
    }
    let cgroup = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok();
    if cgroup("self").is_some_and(|own| Some(own) == cgroup(&running["pid"].to_string())) {
        return Ok(());
    }
    Err("the running server is a systemd service; a server started here would not be: install the new program, and let the service do it by \
         systemctl reload (with ExecReload=/usr/bin/fairlift upgrade in its unit, as the packaged ones have)"
        .into())
}

fn start(program: &Path, take_over: &OsStr, running: &Value, only_look: bool) -> Result<Child, String> {
    let arguments = list(&running["arguments"]).iter().filter_map(Value::as_str);
    let mut command = Command::new(program);
    command.args(arguments).arg(take_over).args(only_look.then_some("--take-over-look"));
    if let Some(directory) = running["directory"].as_str() {
        command.current_dir(directory);
    }
    for (name, value) in running["environment"].as_object().into_iter().flatten() {
        match value.as_str() {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| format!("{}: {error}", program.display()))
}

/// Waits until the new server serves, or has looked. It is ended if it is not ready in time; once it is, the two servers have bounds of
/// their own.
fn wait(child: &mut Child, until: Instant) -> Result<(), String> {
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let (say, hear) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines().map_while(Result::ok));
        lines.map(|line| say.send(line)).find(Result::is_err)
    });
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = errors.map(|mut errors| errors.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut is_ready = false;
    loop {
        let line = match is_ready {
            true => hear.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            false => hear.recv_timeout(until.saturating_duration_since(Instant::now())),
        };
        match line.as_deref() {
            Ok(TAKEN | COULD) => return Ok(()),
            Ok(line) => is_ready |= line == READY,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let _ = child.kill(); // it may have ended
                break;
            }
        }
    }
    let in_time = is_ready || Instant::now() < until;
    let how = child.wait().map_err(|error| error.to_string())?;
    let how = if in_time { how.to_string() } else { "it was not ready in time, and was ended".to_owned() };
    Err(format!("{how}\n{}", errors.join().unwrap_or_default().trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_away_whose_block_device_is_not_there() {
        let exports = r#"[{"name": "a", "size": 1, "block_device": null}, {"name": "b", "block_device": {"path": "/dev/ublkb0", "live": false}},
            {"name": "c", "block_device": {"path": "/dev/ublkb1", "live": true}}]"#;
        assert_eq!(away(&serde_json::from_str(exports).unwrap()), ["b"]);
    }
}
