//! What is asked in JSON, as changes of the library.
//!
//! One table of words serves all routes, transactions and the command line: `{"weight": 300}` of a group is the same wherever it
//! is written. Numbers may be numbers or text (`"size": "10g"`), as in the config file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fairlift::config::{Backing, Config, Disk, Listener, Tls};
use fairlift::control::{Change, Leave, NewExport};
use fairlift_core::ceiling::Bounds;
use fairlift_core::learn::concurrency;
use fairlift_core::{Group, Priority, flush, sched};
use fairlift_lab::suggestion;
use serde_json::{Map, Value};

use crate::config::faults;
use crate::words::groups::own_path;
use crate::words::scheduler::{check_setting, parse_scheduler, tunables};
use crate::words::{backing, limits, nbd, place, ublk, units};

/// What can be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Group,
    Export,
    Disk,
    Listener,
}

/// What can be done with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Add,
    Set,
    Remove,
}

pub(crate) const KINDS: [(&str, Kind); 4] =
    [("group", Kind::Group), ("export", Kind::Export), ("disk", Kind::Disk), ("listener", Kind::Listener)];
const ACTS: [(&str, Act); 3] = [("add", Act::Add), ("set", Act::Set), ("remove", Act::Remove)];

/// The keys that each takes, beside its name: (add, set), and of a disk the tunables of its scheduler.
pub(crate) const fn keys(kind: Kind, act: Act) -> &'static [&'static str] {
    match (kind, act) {
        (Kind::Group, Act::Add | Act::Set) => &["weight", "max", "burst", "min", "latency"],
        (Kind::Export, Act::Add) => {
            &["backing", "offset", "size", "disk", "group", "ioprio", "read_only", "description", "vhost_user", "ublk"]
        }
        (Kind::Export, Act::Set) => &["group", "ioprio", "read_only", "size", "description", "faults"],
        (Kind::Disk, Act::Add) => &[
            "scheduler",
            "tunables",
            "depth",
            "nr_requests",
            "shared_tags",
            "io_timeout",
            "concurrency",
            "concurrency_max",
        ],
        (Kind::Disk, Act::Set) => &["scheduler", "tunables", "depth", "nr_requests"],
        (Kind::Listener, Act::Add) => &["tls"],
        (Kind::Listener, Act::Set) => &[],
        (_, Act::Remove) => &["now"],
    }
}

fn named<T: Copy>(all: &[(&'static str, T)], word: &str, what: &str) -> Result<T, String> {
    all.iter().find(|(name, _)| *name == word).map(|(_, one)| *one).ok_or_else(|| {
        let known = || all.iter().map(|(name, _)| *name);
        let list = known().collect::<Vec<_>>().join(", ");
        format!("{what} takes {list}, not \"{}\"{}", word.escape_debug(), suggestion(word, known()))
    })
}

pub(crate) fn parse_kind(word: &str) -> Result<Kind, String> {
    named(&KINDS, word, "kind")
}

/// What the changes of one transaction were made from so far.
pub(crate) struct Words<'a> {
    config: &'a Config,
    /// Where exports that are added have their sockets for virtual machines.
    sockets: Option<&'a Path>,
    groups: BTreeSet<String>,
    /// Limits of groups as they become.
    bounds: BTreeMap<String, Bounds>,
    /// Schedulers of disks as they become.
    schedulers: Vec<(String, sched::Kind)>,
}

/// What the changes of a list are about that goes or comes: exports that leave their group, and groups that get one.
fn moves(changes: &[Change]) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let (mut gone, mut used) = (BTreeSet::new(), BTreeSet::new());
    for change in changes {
        match change {
            Change::RemoveExport { export, .. } => _ = gone.insert(&**export),
            Change::MoveExport { export, group } => _ = (gone.insert(export), used.insert(&**group)),
            Change::AddExport(new) => _ = used.insert(&new.group),
            _ => {}
        }
    }
    (gone, used)
}

impl<'a> Words<'a> {
    pub(crate) fn new(config: &'a Config, sockets: Option<&'a Path>) -> Self {
        Self {
            config,
            sockets,
            groups: config.groups.iter().map(|group| group.path.clone()).collect(),
            bounds: config.bounds.clone(),
            schedulers: config.disks.iter().map(|disk| (disk.name.clone(), disk.scheduler)).collect(),
        }
    }

    /// A transaction: `[{"set": "group", "name": "/a", "weight": 300}, …]`.
    pub(crate) fn transaction(&mut self, list: &Value) -> Result<Vec<Change>, String> {
        let list = list.as_array().ok_or("changes takes a list of changes")?;
        let mut all = Vec::new();
        for (at, one) in list.iter().enumerate() {
            all.extend(self.one(one).map_err(|why| format!("change {}: {why}", at + 1))?);
        }
        self.leave_own_groups(&mut all);
        Ok(all)
    }

    /// One change.
    pub(crate) fn change(
        &mut self,
        act: Act,
        kind: Kind,
        name: &str,
        keys: Map<String, Value>,
    ) -> Result<Vec<Change>, String> {
        let mut all = self.changes(act, kind, name, keys)?;
        self.leave_own_groups(&mut all);
        Ok(all)
    }

    /// A group that was made for an export goes with it, unless somebody gave it a weight or limits: exports that come and go
    /// leave no groups behind.
    fn leave_own_groups(&self, changes: &mut Vec<Change>) {
        let (gone, used) = moves(changes);
        let mut empty = Vec::new();
        for export in &gone {
            let path = own_path(export);
            let Some(at) = self.config.groups.iter().position(|group| group.path == path && group.parent.is_some())
            else {
                continue;
            };
            let mut inside = self.config.exports.iter().filter(|one| usize::from(one.group.0) == at);
            let is_left = inside.clone().any(|one| one.name == **export) && inside.all(|one| gone.contains(&*one.name));
            let below = format!("{path}/");
            let is_needed = used.contains(&*path) || self.groups.iter().any(|group| group.starts_with(&below));
            let is_plain = self.config.groups[at].weight == Group::WEIGHT_DEFAULT && !self.bounds.contains_key(&path);
            if is_left && !is_needed && is_plain && self.groups.contains(&path) {
                empty.push(Change::RemoveGroup { path });
            }
        }
        changes.extend(empty);
    }

    fn one(&mut self, one: &Value) -> Result<Vec<Change>, String> {
        const FORM: &str =
            "a change is an object such as {\"set\": \"group\", \"name\": \"/tenants/alice\", \"weight\": 300}";
        let mut keys = one.as_object().ok_or(FORM)?.clone();
        let found: Vec<_> = ACTS.iter().filter_map(|(word, act)| Some((*act, keys.remove(*word)?))).collect();
        let [(act, kind)] = &found[..] else { return Err(format!("{FORM}, with one of add, set and remove")) };
        let kind = parse_kind(kind.as_str().ok_or(FORM)?)?;
        let name = keys.remove("name").ok_or("name is missing")?;
        let name = name.as_str().ok_or("name takes text")?;
        self.changes(*act, kind, name, keys)
    }

    /// What is to be done with one thing.
    fn changes(&mut self, act: Act, kind: Kind, name: &str, keys: Map<String, Value>) -> Result<Vec<Change>, String> {
        let keys = Keys { kind, act, keys };
        let name = name.to_owned();
        match (kind, act) {
            (_, Act::Remove) => self.remove(kind, name, keys),
            (Kind::Group, Act::Add | Act::Set) => self.group(act, name, keys),
            (Kind::Export, Act::Add) => self.add_export(name, keys),
            (Kind::Export, Act::Set) => set_export(&name, keys),
            (Kind::Disk, Act::Add | Act::Set) => self.disk(act, name, keys),
            (Kind::Listener, Act::Add) => add_listener(&name, keys),
            (Kind::Listener, Act::Set) => {
                keys.finish(&[])?;
                Err("a listener cannot be changed: remove it, and add another".into())
            }
        }
    }

    fn remove(&mut self, kind: Kind, name: String, mut keys: Keys) -> Result<Vec<Change>, String> {
        let how = if keys.take("now", switch)? == Some(true) { Leave::Cut } else { Leave::Drain };
        keys.finish(&[])?;
        Ok(vec![match kind {
            Kind::Group => {
                self.groups.remove(&name);
                self.bounds.remove(&name);
                Change::RemoveGroup { path: name }
            }
            Kind::Export => Change::RemoveExport { export: name, how },
            Kind::Disk => Change::RemoveDisk { disk: name },
            Kind::Listener => Change::RemoveListener { address: name },
        }])
    }

    fn group(&mut self, act: Act, name: String, mut keys: Keys) -> Result<Vec<Change>, String> {
        let weight = keys.take("weight", |text| number(&text, 1, u64::from(Group::WEIGHT_MAX)))?;
        let bounds = self.bounds(&name, &mut keys)?;
        keys.finish(&[])?;
        let weight = weight.map(|weight| weight as u16);
        let mut changes = Vec::new();
        if act == Act::Add {
            self.groups.insert(name.clone());
            let weight = weight.unwrap_or(Group::WEIGHT_DEFAULT);
            changes.push(Change::AddGroup { path: name.clone(), weight });
        } else {
            changes.extend(weight.map(|weight| Change::SetWeight { group: name.clone(), weight }));
        }
        changes.extend(bounds.map(|bounds| Change::SetBounds { group: name, bounds }));
        Ok(changes)
    }

    fn add_export(&mut self, name: String, mut keys: Keys) -> Result<Vec<Change>, String> {
        let backing = keys.take("backing", |text| parse_backing(&text))?;
        let vhost_user = match (keys.take("vhost_user", |text| parse_socket(&text))?, self.sockets) {
            (None, Some(directory)) => Some(place::socket_in(directory, &name)?),
            (said, _) => said,
        };
        if let Some(Value::Object(words)) = keys.keys.get("ublk") {
            let words: Vec<_> = words
                .iter()
                .map(|(word, value)| Ok(format!("{word}={}", text(value)?)))
                .collect::<Result<_, String>>()?;
            keys.keys.insert("ublk".into(), Value::String(words.join(",")));
        }
        let new = NewExport {
            vhost_user,
            ublk: keys.take("ublk", |text| ublk::parse(&text))?.flatten(),
            backing: backing.ok_or_else(|| {
                format!("export \"{name}\" needs a backing: null:SIZE, mem:SIZE, file:PATH, sim:PROFILE")
            })?,
            offset: keys.take("offset", |text| units::parse_size(&text))?.unwrap_or(0),
            size: keys.take("size", size)?.flatten(),
            disk: keys.take("disk", Ok)?,
            group: keys.take("group", Ok)?.unwrap_or_else(|| own_path(&name)),
            priority: keys.take("ioprio", priority)?.unwrap_or_default(),
            read_only: keys.take("read_only", switch)?.unwrap_or(false),
            description: keys.take("description", Ok)?.unwrap_or_default(),
            name,
        };
        keys.finish(&[])?;
        let mut changes = Vec::new();
        // As in the config file: a group that an export names needs no word of its own.
        if !self.groups.contains(&new.group) {
            self.groups.insert(new.group.clone());
            changes.push(Change::AddGroup { path: new.group.clone(), weight: Group::WEIGHT_DEFAULT });
        }
        changes.push(Change::AddExport(new));
        Ok(changes)
    }

    fn disk(&mut self, act: Act, name: String, mut keys: Keys) -> Result<Vec<Change>, String> {
        let scheduler = keys.take("scheduler", |text| parse_scheduler(&text))?;
        let depth = keys.take("depth", |text| auto(&text, |text| number(text, 1, 4096)))?;
        let nr_requests = keys.take("nr_requests", |text| auto(&text, |text| number(text, 1, 1 << 20)))?;
        let before = self.schedulers.iter().find(|(one, _)| *one == name).map(|(_, scheduler)| *scheduler);
        let kind = scheduler.or(before).unwrap_or_else(|| sched::Kind::usual(1, false));
        let mut set = Vec::new();
        for (knob, value) in keys.knobs()? {
            check_setting(kind, &knob, &value).map_err(|(_, why)| why)?;
            set.push((knob, value));
        }
        self.schedulers.retain(|(one, _)| *one != name);
        self.schedulers.push((name.clone(), kind));
        if act == Act::Add {
            let (depth, nr_requests) = (depth.flatten(), nr_requests.flatten());
            let disk = Disk {
                set,
                is_usual: scheduler.is_none(),
                depth: depth.map(|depth| depth as u16),
                nr_requests: nr_requests.map(|number| number as u32),
                ..Disk::new(name, kind)
            };
            return Ok(vec![Change::AddDisk(fixed_of_disk(disk, keys)?)]);
        }
        keys.finish(&tunables(kind).map(|info| info.name).collect::<Vec<_>>())?;
        let mut changes = Vec::new();
        if let Some(depth) = depth {
            changes.push(Change::SetDepth { disk: name.clone(), depth: depth.map(|depth| depth as u16) });
        }
        if let Some(number) = nr_requests {
            changes.push(Change::SetNrRequests { disk: name.clone(), nr_requests: number.map(|number| number as u32) });
        }
        if let Some(scheduler) = scheduler.filter(|scheduler| before != Some(*scheduler)) {
            // Those that all schedulers have stay as they are.
            let there = self.config.disks.iter().find(|disk| disk.name == name).map_or(&[][..], |disk| &disk.set);
            let all = |knob: &str| flush::Settings::INFO.iter().any(|info| info.name == knob);
            let kept = there.iter().filter(|(knob, _)| all(knob)).cloned();
            let (disk, is_usual) = (name.clone(), false);
            changes.push(Change::SetScheduler { disk, scheduler, is_usual, set: kept.collect() });
        }
        changes.extend(set.into_iter().map(|(knob, value)| Change::SetKnob { disk: name.clone(), knob, value }));
        Ok(changes)
    }
}

impl Words<'_> {
    /// What binds a group from now on, if that is said.
    fn bounds(&mut self, name: &str, keys: &mut Keys) -> Result<Option<Bounds>, String> {
        let max = keys.take_rates("max", limits::parse)?;
        let burst = keys.take_rates("burst", limits::parse_burst)?;
        let floor = keys.take_rates("min", limits::parse)?;
        let latency =
            keys.take("latency", |text| limits::parse_latency(if text == "auto" { "none" } else { &text }))?;
        if max.is_none() && burst.is_none() && floor.is_none() && latency.is_none() {
            return Ok(None);
        }
        let mut bounds = self.bounds.get(name).copied().unwrap_or_default();
        bounds.ceiling.max = max.unwrap_or(bounds.ceiling.max);
        if let Some((rates, length)) = burst {
            (bounds.ceiling.burst, bounds.ceiling.length) = (rates, length);
        }
        bounds.floor = floor.unwrap_or(bounds.floor);
        bounds.latency = latency.unwrap_or(bounds.latency);
        bounds.check().map_err(|wrong| wrong.to_string())?;
        self.bounds.insert(name.to_owned(), bounds);
        Ok(Some(bounds))
    }
}

/// What is a disk's from start to end.
fn fixed_of_disk(disk: Disk, mut keys: Keys) -> Result<Disk, String> {
    let shared_tags = keys.take("shared_tags", switch)?.unwrap_or(false);
    let io_timeout = keys.take("io_timeout", |text| units::parse_time(&text).and_then(units::some_time))?;
    let most = keys.take("concurrency_max", |text| number(&text, 1, 256))?;
    let fixed = keys.take("concurrency", |text| auto(&text, |text| number(text, 1, 256)))?.flatten();
    keys.finish(&[])?;
    let usual = concurrency::Settings::default();
    let concurrency = match fixed {
        Some(number) => concurrency::Settings { most: number as u16, fixed: true },
        None => concurrency::Settings { most: most.map_or(usual.most, |most| most as u16), ..usual },
    };
    Ok(Disk { shared_tags, io_timeout, concurrency, ..disk })
}

fn add_listener(name: &str, mut keys: Keys) -> Result<Vec<Change>, String> {
    let tls = keys.take("tls", |text| place::parse_tls(&text))?;
    keys.finish(&[])?;
    let at = place::parse_place(name)?;
    let tls = tls.or(at.tls).unwrap_or(Tls::Off);
    let listener = Listener { address: at.address, tls };
    if place::is_remote(&listener.address) && tls != Tls::Required {
        return Err(format!(
            "{name}: other machines can reach this address: add tls=require, or listen at tcp:127.0.0.1:PORT"
        ));
    }
    Ok(vec![Change::AddListener(listener)])
}

fn set_export(name: &str, mut keys: Keys) -> Result<Vec<Change>, String> {
    let export = || name.to_owned();
    let mut changes = Vec::new();
    changes.extend(keys.take("group", Ok)?.map(|group| Change::MoveExport { export: export(), group }));
    changes.extend(keys.take("ioprio", priority)?.map(|priority| Change::SetPriority { export: export(), priority }));
    changes
        .extend(keys.take("read_only", switch)?.map(|read_only| Change::SetReadOnly { export: export(), read_only }));
    changes.extend(keys.take("size", size)?.map(|size| Change::Grow { export: export(), size }));
    changes.extend(
        keys.take("description", Ok)?.map(|description| Change::SetDescription { export: export(), description }),
    );
    let faults = keys.take("faults", |text| {
        let path = PathBuf::from(text);
        check_path(&path)?;
        Ok((faults::read_file(&path)?, path))
    })?;
    changes.extend(faults.map(|(faults, path)| Change::SetFaults { export: export(), path, faults }));
    keys.finish(&[])?;
    Ok(changes)
}

/// Reads a backing; a path must start at the root, for the server is somewhere else than whoever asks.
fn parse_backing(text: &str) -> Result<Backing, String> {
    let backing = backing::parse(text)?;
    check_paths(&backing)?;
    faults::settle(&backing)
}

fn check_paths(backing: &Backing) -> Result<(), String> {
    match backing {
        Backing::File { path, .. } => check_path(path),
        Backing::Nbd(remote) => nbd::paths(remote).try_for_each(check_path),
        Backing::Rbd(image) => image.conf.iter().try_for_each(|conf| check_path(conf)),
        Backing::Fault(fault) => check_path(&fault.path).and_then(|()| check_paths(&fault.inner)),
        Backing::Null { .. } | Backing::Mem { .. } | Backing::Model { .. } => Ok(()),
    }
}

fn parse_socket(text: &str) -> Result<PathBuf, String> {
    check_path(text.as_ref())?;
    Ok(text.into())
}

fn check_path(path: &Path) -> Result<(), String> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(format!("takes a path from the root, for the server has another directory, not \"{}\"", path.display()))
}

fn priority(text: String) -> Result<Priority, String> {
    text.parse::<Priority>().map_err(|form| format!("{form}, not \"{text}\""))
}

/// A size, or `auto`: all that there is.
fn size(text: String) -> Result<Option<u64>, String> {
    auto(&text, units::parse_size)
}

fn auto<T>(text: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == "auto" { Ok(None) } else { parse(text).map(Some) }
}

fn switch(text: String) -> Result<bool, String> {
    match text.as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(format!("takes true or false, not \"{text}\"")),
    }
}

fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("takes a number from {least} to {most}, not \"{}\"", text.escape_debug()))
}

/// Keys that have not been used.
struct Keys {
    kind: Kind,
    act: Act,
    keys: Map<String, Value>,
}

impl Keys {
    /// Takes a key out and reads its value.
    fn take<T>(&mut self, key: &str, read: impl FnOnce(String) -> Result<T, String>) -> Result<Option<T>, String> {
        if !keys(self.kind, self.act).contains(&key) {
            return Ok(None);
        }
        let Some(value) = self.keys.remove(key) else { return Ok(None) };
        text(&value).and_then(read).map(Some).map_err(|why| format!("{key}: {why}"))
    }

    /// Takes rates out: text as in the config file, or an object, as in `{"riops": 3000, "wbps": "50m"}`.
    fn take_rates<T>(&mut self, key: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>, String> {
        if let Some(Value::Object(rates)) = self.keys.get(key) {
            let words = rates.iter().map(|(rate, amount)| Ok(format!("{rate}={}", text(amount)?)));
            let words: Result<Vec<_>, String> = words.collect();
            let words = words.map_err(|why| format!("{key}: {why}"))?;
            let all = if words.is_empty() { "max".into() } else { words.join(" ") };
            self.keys.insert(key.into(), Value::String(all));
        }
        self.take(key, |text| read(if text == "auto" { "max" } else { &text }))
    }

    /// Takes the tunables out: those within `tunables`, and those that stand beside it, of other schedulers too.
    fn knobs(&mut self) -> Result<Vec<(String, String)>, String> {
        let mut all = Vec::new();
        match self.keys.remove("tunables") {
            None => {}
            Some(Value::Object(set)) => all.extend(set),
            Some(_) => return Err("tunables takes an object, such as {\"slice_idle\": \"auto\"}".into()),
        }
        let known: BTreeSet<_> = sched::Kind::ALL.into_iter().flat_map(tunables).map(|info| info.name).collect();
        let beside: Vec<_> = known.into_iter().filter(|name| self.keys.contains_key(*name)).collect();
        all.extend(beside.into_iter().filter_map(|name| self.keys.remove_entry(name)));
        all.into_iter()
            .map(|(knob, value)| Ok((knob.clone(), text(&value).map_err(|why| format!("{knob}: {why}"))?)))
            .collect()
    }

    /// Refuses what is left.
    fn finish(&self, more: &[&'static str]) -> Result<(), String> {
        let Some(key) = self.keys.keys().next() else { return Ok(()) };
        let kind = KINDS.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| *name);
        let known = keys(self.kind, self.act);
        let hint = suggestion(key, known.iter().chain(more).copied());
        let list = match (hint.is_empty(), known.is_empty()) {
            (false, _) => hint,
            (true, true) => format!("; a {kind} has none that can be set"),
            (true, false) => {
                format!("; there are {}", known.iter().chain(more).copied().collect::<Vec<_>>().join(", "))
            }
        };
        Err(format!(
            "unknown key \"{}\" of a{} {kind}{list}",
            key.escape_debug(),
            if kind == "export" { "n" } else { "" }
        ))
    }
}

/// A value as text.
fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(switch) => Ok(switch.to_string()),
        Value::Null => Ok("auto".into()),
        Value::Array(_) | Value::Object(_) => Err("takes text, a number, true or false".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift::config::{Engine, Limits};
    use serde_json::json;

    fn config() -> Config {
        Config {
            groups: vec![Group::root()],
            bounds: Default::default(),
            disk_default: Disk::new("default", sched::Kind::MqDeadline),
            disks: vec![Disk::new("ssd0", sched::Kind::Fair)],
            exports: vec![],
            listeners: vec![],
            workers: None,
            engine: Engine::Auto,
            limits: Limits::default(),
            tls: None,
            roots: Vec::new(),
        }
    }

    fn read(list: Value) -> Result<String, String> {
        Words::new(&config(), None).transaction(&list).map(|changes| format!("{changes:?}"))
    }

    #[test]
    fn numbers_may_be_text_and_an_exports_group_comes_with_it() {
        let one = read(json!([{"set": "group", "name": "/a", "weight": 300}]));
        assert_eq!(one, read(json!([{"set": "group", "name": "/a", "weight": "300"}])));
        let two = read(json!([
            {"add": "export", "name": "a", "backing": "mem:1m", "group": "/t/a"},
            {"add": "export", "name": "b", "backing": "mem:1m", "group": "/t/a", "ioprio": "idle"},
        ]));
        assert_eq!(two.unwrap().matches("AddGroup").count(), 1);
        let fair = read(json!([{"set": "disk", "name": "ssd0", "scheduler": "fair", "isolation_cost": 9}])).unwrap();
        assert!(fair.contains("SetKnob") && !fair.contains("SetScheduler"), "{fair}: it has fair already");
    }

    #[test]
    fn an_export_has_its_socket_where_the_others_have_theirs_or_where_it_says() {
        let add = |name: &str, more: Value| {
            let mut one = json!({"add": "export", "name": name, "backing": "mem:1m"});
            one.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let changes = Words::new(&config(), Some("/run/vm".as_ref())).transaction(&json!([one]))?;
            let Some(Change::AddExport(new)) = changes.into_iter().next_back() else { panic!("it adds an export") };
            Ok::<_, String>(new.vhost_user)
        };
        assert_eq!(add("a", json!({})), Ok(Some("/run/vm/a".into())));
        assert_eq!(add("a/b", json!({"vhost_user": "/run/b"})), Ok(Some("/run/b".into())));
        assert!(add("a/b", json!({})).unwrap_err().contains("cannot have its name"));
    }

    #[test]
    fn what_is_not_known_is_named_with_the_nearest() {
        for (one, why) in [
            (
                json!({"set": "group", "name": "/a", "wieght": 3}),
                "unknown key \"wieght\" of a group; did you mean \"weight\"?",
            ),
            (
                json!({"set": "grup", "name": "/a"}),
                "kind takes group, export, disk, listener, not \"grup\"; did you mean \"group\"?",
            ),
            (json!({"set": "group", "add": "group", "name": "/a"}), "one of add, set and remove"),
            (json!({"set": "group", "name": "/a", "weight": 0}), "weight: takes a number from 1 to 1000, not \"0\""),
            (json!({"set": "group", "name": "/a", "weight": [1]}), "weight: takes text, a number, true or false"),
            (json!({"set": "group"}), "name is missing"),
            (json!(7), "a change is an object such as"),
            (json!({"add": "export", "name": "a"}), "export \"a\" needs a backing"),
            (json!({"add": "export", "name": "a", "backing": "file:a.img"}), "takes a path from the root"),
            (
                json!({"add": "export", "name": "a", "backing": "mem:1m", "vhost_user": "a"}),
                "takes a path from the root",
            ),
            (json!({"set": "export", "name": "a", "bakcing": "x"}), "unknown key \"bakcing\" of an export"),
            (json!({"set": "disk", "name": "ssd0", "slice_idle": 0}), "slice_idle belongs to bfq"),
            (json!({"set": "disk", "name": "ssd0", "tunables": {"slice_idle": 0}}), "slice_idle belongs to bfq"),
            (json!({"set": "disk", "name": "ssd0", "scheduler": "fare"}), "did you mean \"fair\"?"),
            (json!({"add": "listener", "name": "tcp:0.0.0.0:1"}), "other machines can reach this address"),
        ] {
            let says = read(json!([one])).unwrap_err();
            assert!(says.contains(why), "{one}: {says}");
        }
    }
}
