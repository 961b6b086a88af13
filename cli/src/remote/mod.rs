//! The commands that look at a running server and change it: `status`, `top`, `why`, `gateways`, `trace`, `get`, `set`, `add`, `fork`, `remove`,
//! `events`, `acknowledge`, `reload`.
//!
//! Each asks the server's control socket one thing and shows the answer; what is possible is decided there.

mod args;
mod client;
mod complete;
mod meant;
mod tables;
mod top;
mod upgrade;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use hyper::Method;
use serde_json::{Map, Value, json};

pub(crate) use args::{
    AddArgs, EventsArgs, ForkArgs, GetArgs, How, RemoveArgs, SetArgs, StatusArgs, TopArgs, TraceArgs, UpgradeArgs,
    WhyArgs,
};
pub(crate) use client::At;
use client::Server;
pub(crate) use meant::meant;
pub(crate) use upgrade::{Running, upgrade};

use crate::blktrace::Taken;
use crate::control::{Kind, parse_kind};
use crate::syntax::backing;
use crate::syntax::place::encode;
use crate::terminal::complaint::{self, Complaint};
use crate::terminal::output;
use fairlift::config::Backing;

/// The result, as text for people and as the server's answer; or the error.
pub(crate) type Shown = Result<(String, Value), String>;

pub(crate) fn show(at: &At, shown: Shown) -> ExitCode {
    let text = match shown {
        Ok((_, value)) if at.json => format!("{value:#}\n"),
        Ok((text, _)) => text,
        Err(why) => {
            if at.json {
                let _ = output::print(format!("{:#}\n", json!({"error": why})).as_bytes());
            }
            return Complaint::Failed(why).tell("");
        }
    };
    complaint::done(output::print(text.as_bytes()))
}

/// Asks one thing, and shows the answer as `render` tells it to people.
fn ask(at: &At, method: Method, path: &str, render: impl FnOnce(&Value) -> String) -> ExitCode {
    let answer = Server::find(at).and_then(|server| server.ask(method, path, None, None));
    show(at, answer.map(|(value, _)| (render(&value), value)))
}

pub(crate) fn status(args: &StatusArgs) -> ExitCode {
    ask(&args.at, Method::GET, &format!("/v1/status?seconds={}", args.seconds), tables::status)
}

pub(crate) fn gateways(at: &At) -> ExitCode {
    ask(at, Method::GET, "/v1/gateways", tables::gateways)
}

pub(crate) fn top(args: &TopArgs) -> ExitCode {
    if args.once || args.at.json {
        return show(&args.at, top::once(args));
    }
    complaint::done(top::watch(args))
}

pub(crate) fn why(args: &WhyArgs) -> ExitCode {
    type Renderer = fn(&Value) -> String;
    let (path, render): (String, Renderer) = match &args.of {
        None => ("/v1/why?".into(), tables::why_each),
        Some(path) if path.starts_with('/') => (format!("/v1/why?tenant={}&", encoded(path)), tables::why_tenant),
        Some(export) => (format!("/v1/why/{}?", encoded(export)), tables::why),
    };
    ask(&args.at, Method::GET, &format!("{path}seconds={}", args.seconds), render)
}

pub(crate) fn trace(args: &TraceArgs) -> ExitCode {
    let export = args.export.as_ref().map_or_else(String::new, |name| format!("&export={}", encoded(name)));
    let path = format!("/v1/trace?seconds={}{export}", args.seconds);
    let mut taken = Taken::default();
    let Some(output) = &args.output else {
        let line = |(at, disk, tenant, says): (f64, String, String, String)| match args.at.json {
            true => json!({"at": at, "disk": disk, "tenant": tenant, "says": says}).to_string(),
            false => format!("{at:.6} {disk} {tenant} {says}"),
        };
        let mut follow = |bytes: &[u8]| {
            taken.add(bytes)?;
            let lines = taken.take_messages().into_iter().map(|message| line(message) + "\n").collect::<String>();
            Ok(output::print(lines.as_bytes()).is_ok())
        };
        return complaint::done(Server::find(&args.at).and_then(|server| {
            if let Ok((disks, _)) = server.ask(Method::GET, "/v1/disks", None, None) {
                silent(&disks).for_each(|says| eprintln!("{says}"));
            }
            server.fetch(&path, &mut follow)
        }));
    };
    let mut take = || {
        let server = Server::find(&args.at)?;
        server.fetch(&path, |bytes| taken.add(bytes).map(|()| true))?;
        let written = taken.write(output).map_err(|error| format!("{}: {error}", output.display()))?;
        let value = json!({"events": taken.events(), "lost": taken.lost(), "files": written});
        let lost = if taken.lost() > 0 { format!(", {} were lost", taken.lost()) } else { String::new() };
        Ok((format!("{} events{lost}: {}\n", taken.events(), written.join(", ")), value))
    };
    show(&args.at, take())
}

/// The disks whose schedulers say nothing of themselves.
fn silent(disks: &Value) -> impl Iterator<Item = String> {
    let scheduler_of = |disk: &Value| Some((disk["name"].as_str()?.to_owned(), disk["scheduler"].as_str()?.to_owned()));
    let all = disks.as_array().into_iter().flatten().filter_map(scheduler_of);
    let silent = all.filter(|(_, scheduler)| !["bfq", "cfq"].contains(&&**scheduler));
    silent.map(|(name, scheduler)| format!("{name}: {scheduler} says nothing of itself; bfq and cfq do"))
}

pub(crate) fn get(args: &GetArgs) -> Shown {
    let server = Server::find(&args.at)?;
    let path = match (args.kind.as_deref(), args.name.as_deref()) {
        (None, _) => "/v1/state".into(),
        (Some("server"), None) => "/v1".into(),
        (Some("connection"), None) => "/v1/connections".into(),
        (Some(kind @ ("server" | "connection")), Some(_)) => {
            return Err(format!("a {kind} has no name: fairlift get {kind}"));
        }
        (Some(kind), None) => format!("/v1/{kind}s"),
        (Some(kind), Some(name)) => thing(parse_kind(kind)?, name),
    };
    let (value, _) = server.ask(Method::GET, &path, None, None)?;
    Ok((tables::any(&value), value))
}

pub(crate) fn set(args: &SetArgs) -> Shown {
    change(&args.how, Method::PATCH, &thing(args.kind, &args.name), keys(&args.keys, "weight=300")?)
}

pub(crate) fn add(args: &AddArgs) -> Shown {
    let kind = args.kind;
    let example = match args.keys.first() {
        Some(backing) if kind == Kind::Export && !args.name.contains('=') => format!("{}={backing}", args.name),
        _ => "weight=300".into(),
    };
    let mut all = keys(&args.keys, &example)?;
    let name = match kind {
        Kind::Export => {
            let named = backing::parse_named(&args.name).map_err(|why| format!("export {}: {why}", args.name))?;
            // The server has another directory.
            let text = match args.name.split_once('=') {
                Some((name, text)) if name == named.name => text,
                _ => &args.name,
            };
            all.insert("backing".into(), Value::String(rooted(named.backing, text)?));
            named.name
        }
        // The server has another directory.
        Kind::Listener => args
            .name
            .strip_prefix("unix:")
            .and_then(|path| std::path::absolute(path).ok())
            .map_or_else(|| args.name.clone(), |path| format!("unix:{}", path.display())),
        _ => args.name.clone(),
    };
    all.insert(if kind == Kind::Group { "path" } else { "name" }.into(), Value::String(name));
    change(&args.how, Method::POST, &format!("/v1/{}s", kind.name()), all)
}

pub(crate) fn remove(args: &RemoveArgs) -> Shown {
    let all = args.now.then(|| ("now".to_owned(), true.into())).into_iter().collect();
    change(&args.how, Method::DELETE, &thing(args.kind, &args.name), all)
}

pub(crate) fn fork(args: &ForkArgs) -> Shown {
    let mut all = keys(&args.keys, "ublk=true")?;
    all.insert("name".into(), Value::String(args.name.clone()));
    if let Some(group) = &args.group {
        all.insert("group".into(), Value::String(group.clone()));
    }
    // The server has another directory.
    let whole = |path: &Path| Ok::<_, String>(Value::String(absolute(path)?.to_string_lossy().into_owned()));
    if let Some(top) = &args.top {
        all.insert("top".into(), whole(top)?);
    }
    if let Some(directory) = &args.ephemeral {
        let place = directory.as_deref().map_or(Ok(Value::Bool(true)), whole)?;
        all.insert("ephemeral".into(), place);
    }
    change(&args.how, Method::POST, &format!("{}/fork", thing(Kind::Export, &args.of)), all)
}

pub(crate) fn acknowledge(at: &At) -> ExitCode {
    ask(at, Method::POST, "/v1/acknowledge", |value| match value["acknowledged"].as_u64() {
        Some(0) => "no flush has failed\n".to_owned(),
        errors => format!("flush errors acknowledged: {}\n", errors.unwrap_or_default()),
    })
}

pub(crate) fn reload(how: &How) -> Shown {
    change(how, Method::POST, "/v1/reload", Map::new())
}

pub(crate) fn events(args: &EventsArgs) -> ExitCode {
    // The number of the latest one: a server that takes over goes on after it.
    let latest = Cell::new(args.after);
    let path = || {
        let from = latest.get().map_or_else(|| format!("last={}", args.last), |after| format!("after={after}"));
        format!("/v1/events?{from}")
    };
    let show = |line: &str| {
        let Some(data) = line.strip_prefix("data: ").or_else(|| line.strip_prefix("data:")) else { return true };
        let event = serde_json::from_str::<Value>(data);
        if let Some(number) = event.as_ref().ok().and_then(|event| event["number"].as_u64()) {
            latest.set(Some(number));
        }
        let shown = match event {
            Ok(event) if !args.at.json => tables::event(&event),
            _ => data.to_owned(),
        };
        output::print(format!("{shown}\n").as_bytes()).is_ok()
    };
    complaint::done(Server::find(&args.at).and_then(|server| server.follow(path, show)))
}

fn change(how: &How, method: Method, path: &str, keys: Map<String, Value>) -> Shown {
    let server = Server::find(&how.at)?;
    let path = if how.dry_run { format!("{path}?dry_run=true") } else { path.to_owned() };
    let (mut value, version): (Value, _) = server.ask(method, &path, Some(&Value::Object(keys)), how.if_version)?;
    if value["frozen"] == true && !how.dry_run {
        thaw(&server, &path, &mut value);
    }
    let version = version.map_or_else(String::new, |version| format!("version {version}\n"));
    let changes = tables::changed(&value);
    let outcome = match () {
        () if value["changes"].as_array().is_some_and(Vec::is_empty) => "nothing differs; nothing was changed\n".into(),
        () if how.dry_run => "it could be done; nothing was changed\n".into(),
        () => version,
    };
    Ok((changes + &outcome, value))
}

/// Waits until a disk has its new scheduler, two seconds at most: until then it shows what was before. The change has been made in any case.
fn thaw(server: &Server, path: &str, disk: &mut Value) {
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(20));
        let Ok((Value::Object(now), _)) = server.ask(Method::GET, path, None, None) else { return };
        let is_over = now["frozen"] == false;
        now.into_iter().for_each(|(key, value)| disk[key] = value);
        if is_over {
            return;
        }
    }
}

/// The path of one thing: what is not plain in a name is encoded.
fn thing(kind: Kind, name: &str) -> String {
    let name =
        if kind == Kind::Group { name.strip_prefix('/').filter(|rest| !rest.is_empty()).unwrap_or(name) } else { name };
    let plain: &[u8] = if matches!(kind, Kind::Group | Kind::Listener) { b":/" } else { b":" };
    format!("/v1/{}s/{}", kind.name(), encode(name.as_bytes(), plain))
}

fn encoded(name: &str) -> String {
    encode(name.as_bytes(), b":")
}

fn keys(typed: &[String], example: &str) -> Result<Map<String, Value>, String> {
    let mut all = Map::new();
    for one in typed {
        let (key, value) =
            one.split_once('=').ok_or_else(|| format!("\"{one}\" has no \"=\": KEY=VALUE, as in {example}"))?;
        if all.insert(key.into(), Value::String(value.into())).is_some() {
            return Err(format!("{key} is given twice"));
        }
    }
    Ok(all)
}

/// A backing as it was written, or with its paths from the root if it has some.
fn rooted(mut backing: Backing, text: &str) -> Result<String, String> {
    let mut paths = backing.paths();
    if paths.is_empty() {
        return Ok(text.to_owned());
    }
    for path in &mut paths {
        **path = absolute(path)?;
    }
    Ok(backing.about().written)
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_paths() {
        assert_eq!(thing(Kind::Group, "/tenants/al ice"), "/v1/groups/tenants/al%20ice");
        assert_eq!(thing(Kind::Group, "/"), "/v1/groups//");
        assert_eq!(thing(Kind::Export, "a/b%"), "/v1/exports/a%2Fb%25");
        assert_eq!(thing(Kind::Listener, "unix:/run/a.sock"), "/v1/listeners/unix:/run/a.sock");
    }

    #[test]
    fn a_relative_path_starts_where_the_command_was_given() {
        let whole = |text: &str| rooted(backing::parse(text).unwrap(), text).unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(whole("a.img,direct=off"), format!("file:{}/a.img,direct=off", here.display()));
        assert_eq!(whole("file:/b.img"), "file:/b.img");
        assert_eq!(whole("mem:1g"), "mem:1g");
        assert_eq!(whole("rbd:p/i,conf=c.conf"), format!("rbd:p/i,conf={}/c.conf", here.display()));
        let here = here.display();
        assert_eq!(whole("nbd+unix:///x?socket=a.sock"), format!("nbd:nbd+unix:///x?socket={here}/a.sock"));
        assert_eq!(
            whole("fault:a.toml,inner=b.img,direct=off"),
            format!("fault:{here}/a.toml,inner=file:{here}/b.img,direct=off")
        );
    }

    #[test]
    fn keys_have_values_and_come_once() {
        assert_eq!(keys(&["weight=3=4".into()], "").unwrap()["weight"], "3=4");
        assert!(
            keys(&["carol.img".into()], "carol=carol.img").unwrap_err().ends_with("KEY=VALUE, as in carol=carol.img")
        );
        assert!(keys(&["a=1".into(), "a=2".into()], "").unwrap_err().contains("twice"));
    }
}
