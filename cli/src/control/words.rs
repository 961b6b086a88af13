//! What is asked in JSON, as changes of the library.
//!
//! One table of words serves all routes, transactions and the command line: `{"weight": 300}` of a group is the same wherever it
//! is written. Numbers may be numbers or text (`"size": "10g"`), as in the config file.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::path::Path;

use fairlift::config::{Backing, Config, Disk, Listener, Tls};
use fairlift::control::{Change, Leave};
use fairlift_core::ceiling::Bounds;
use fairlift_core::{Group, sched};
use fairlift_lab::suggestion;
use serde_json::{Map, Value};

use crate::config::difference::named as by_name;
use crate::config::faults;
use crate::config::given::Given;
use crate::config::keys::{self, ExportKeys, GroupKeys};
use crate::config::row::{Act, KINDS, Kind, Row};
use crate::words::groups::own_path;
use crate::words::place;
use crate::words::place::check_path;
use crate::words::scheduler::{check_setting, tunables};

const ACTS: [(&str, Act); 3] = [("add", Act::Add), ("set", Act::Set), ("remove", Act::Remove)];

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

/// What the changes of one transaction are made from: what is in force, and what they have said so far.
pub(crate) struct Words<'a> {
    config: &'a Config,
    /// Where exports that are added have their sockets for virtual machines.
    sockets: Option<&'a Path>,
    groups: BTreeSet<String>,
    /// Limits of groups as they become.
    bounds: BTreeMap<String, Bounds>,
    /// Schedulers of disks that were said.
    schedulers: BTreeMap<String, sched::Kind>,
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
        let groups = config.groups.iter().map(|group| group.path.clone()).collect();
        Self { config, sockets, groups, bounds: config.bounds.clone(), schedulers: BTreeMap::new() }
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
        let name = name.to_owned();
        let group = match self.config.exports.iter().find(|export| export.name == name) {
            Some(export) => self.config.groups[usize::from(export.group.0)].path.clone(),
            None => own_path(&name),
        };
        let keys = Keys { kind, act, group, keys };
        match (kind, act) {
            (_, Act::Remove) => self.remove(kind, name, keys),
            (Kind::Group, Act::Add | Act::Set) => self.group(act, name, keys),
            (Kind::Export, Act::Add) => self.add_export(name, keys),
            (Kind::Export, Act::Set) => self.set_export(&name, keys),
            (Kind::Disk, Act::Add | Act::Set) => self.disk(act, name, keys),
            (Kind::Listener, Act::Add) => add_listener(&name, keys),
            (Kind::Listener, Act::Set) => {
                keys.finish(&[])?;
                Err("a listener cannot be changed: remove it, and add another".into())
            }
        }
    }

    fn remove(&mut self, kind: Kind, name: String, mut keys: Keys) -> Result<Vec<Change>, String> {
        let mut now = false;
        keys.put(keys::NOW, &name, &mut now)?;
        keys.finish(&[])?;
        let how = if now { Leave::Cut } else { Leave::Drain };
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
        let there = self.config.groups.iter().find(|group| group.path == name).map(|group| group.weight);
        let bounds = self.bounds.get(&name).copied().unwrap_or_default();
        let mut said = GroupKeys { weight: there.unwrap_or(Group::WEIGHT_DEFAULT), bounds };
        let mut changes = keys.put(keys::GROUP_ROWS, &name, &mut said)?;
        keys.finish(&[])?;
        said.bounds.check().map_err(|wrong| wrong.to_string())?;
        if said.bounds != bounds {
            self.bounds.insert(name.clone(), said.bounds);
        }
        if act == Act::Add {
            self.groups.insert(name.clone());
            changes.retain(|change| !matches!(change, Change::SetWeight { .. }));
            changes.insert(0, Change::AddGroup { path: name, weight: said.weight });
        }
        Ok(changes)
    }

    fn add_export(&mut self, name: String, mut keys: Keys) -> Result<Vec<Change>, String> {
        let mut said = ExportKeys::new(&name);
        let has_backing = keys.keys.contains_key("backing");
        keys.put(keys::EXPORT_ROWS, &name, &mut said)?;
        keys.finish(&[])?;
        if !has_backing {
            return Err(format!("export \"{name}\" needs a backing: {}", Backing::forms(" or ")));
        }
        let mut new = said.new;
        // The server has another directory than whoever asks.
        new.backing
            .paths()
            .into_iter()
            .try_for_each(|path| check_path(path))
            .map_err(|why| format!("backing: {why}"))?;
        new.backing = faults::settle(&new.backing).map_err(|why| format!("backing: {why}"))?;
        match (&new.vhost_user, self.sockets) {
            (Some(path), _) => check_path(path).map_err(|why| format!("vhost_user: {why}"))?,
            (None, Some(directory)) => new.vhost_user = Some(place::socket_in(directory, &name)?),
            (None, None) => {}
        }
        let mut changes = Vec::new();
        // As in the config file: a group that an export names needs no word of its own.
        if self.groups.insert(new.group.clone()) {
            changes.push(Change::AddGroup { path: new.group.clone(), weight: Group::WEIGHT_DEFAULT });
        }
        changes.push(Change::AddExport(new));
        Ok(changes)
    }

    fn set_export(&self, name: &str, mut keys: Keys) -> Result<Vec<Change>, String> {
        let there = self.config.exports.iter().find(|export| export.name == name);
        let mut said = there.map_or_else(|| ExportKeys::new(name), |there| by_name(self.config, there).into());
        let changes = keys.put(keys::EXPORT_ROWS, name, &mut said)?;
        let names = self.config.exports.iter().map(|export| &*export.name);
        keys.finish(&[]).map_err(|why| match there {
            Some(_) => why,
            None => format!("there is no export {name:?}{}; {why}", suggestion(name, names)),
        })?;
        Ok(changes)
    }

    fn disk(&mut self, act: Act, name: String, mut keys: Keys) -> Result<Vec<Change>, String> {
        let there = self.config.disks.iter().find(|disk| disk.name == name).filter(|_| act == Act::Set);
        let mut disk = there.map_or_else(|| Disk::new(&name, sched::Kind::usual(1, false)), Disk::clone);
        let before = self.schedulers.get(&name).copied().or(there.map(|disk| disk.scheduler));
        disk.scheduler = before.unwrap_or(disk.scheduler);
        let is_usual = !keys.keys.contains_key("scheduler");
        let mut changes = keys.put(keys::DISK_ROWS, &name, &mut disk)?;
        let kind = disk.scheduler;
        let set = keys.knobs()?;
        for (knob, value) in &set {
            check_setting(kind, knob, value).map_err(|(_, why)| why)?;
        }
        keys.finish(&tunables(kind).map(|info| info.name).collect::<Vec<_>>())?;
        self.schedulers.insert(name.clone(), kind);
        if act == Act::Add {
            return Ok(vec![Change::AddDisk(Disk { set, is_usual, ..disk })]);
        }
        changes.retain(|change| !matches!(change, Change::SetScheduler { .. } if before == Some(kind)));
        changes.extend(set.into_iter().map(|(knob, value)| Change::SetKnob { disk: name.clone(), knob, value }));
        Ok(changes)
    }
}

fn add_listener(name: &str, mut keys: Keys) -> Result<Vec<Change>, String> {
    let mut tls = None;
    keys.put(keys::LISTENER_ROWS, name, &mut tls)?;
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

/// Keys that have not been used.
struct Keys {
    kind: Kind,
    act: Act,
    /// That of the export of this name.
    group: String,
    keys: Map<String, Value>,
}

impl Keys {
    /// Puts what is said into `to`; the changes that this is of a thing of that name, if it is there.
    fn put<T>(&mut self, rows: &[Row<T>], name: &str, to: &mut T) -> Result<Vec<Change>, String> {
        let mut said = Vec::new();
        for row in rows.iter().filter(|row| row.is_put(self.act)) {
            let Some(value) = self.keys.remove(row.name) else { continue };
            let given = Given::try_from(&value).map_err(|why| format!("{}: {why}", row.name))?;
            row.put(to, &given).map_err(|wrong| wrong.line(row.name))?;
            said.push(row);
        }
        let mut changes: Vec<_> = said.iter().filter_map(|row| Some(row.change()?(name, to))).collect();
        // Several keys may be one change.
        changes.dedup_by(|one, other| discriminant(one) == discriminant(other));
        Ok(changes)
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
        let text = |value: &Value| Given::try_from(value)?.text().map(str::to_owned);
        all.into_iter()
            .map(|(knob, value)| Ok((knob.clone(), text(&value).map_err(|why| format!("{knob}: {why}"))?)))
            .collect()
    }

    /// Refuses what is left.
    fn finish(&self, more: &[&'static str]) -> Result<(), String> {
        let Some((key, value)) = self.keys.iter().next() else { return Ok(()) };
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let kind = KINDS.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| *name);
        let own = keys::keys(self.kind, self.act);
        let known = || own.iter().map(|key| key.name).chain(more.iter().copied());
        let list = match suggestion(key, known()) {
            _ if self.kind == Kind::Export && keys::keys(Kind::Group, self.act).iter().any(|one| one.name == *key) => {
                format!("; that is a group's: fairlift set group {} {key}={value}", self.group)
            }
            hint if !hint.is_empty() => hint,
            _ if own.is_empty() => format!("; a {kind} has none that can be set"),
            _ => format!("; there are {}", known().collect::<Vec<_>>().join(", ")),
        };
        Err(format!(
            "unknown key \"{}\" of a{} {kind}{list}",
            key.escape_debug(),
            if kind == "export" { "n" } else { "" }
        ))
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
            (
                json!({"set": "export", "name": "a", "weight": 5}),
                "there is no export \"a\"; unknown key \"weight\" of an export; that is a group's: fairlift set group /a weight=5",
            ),
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
