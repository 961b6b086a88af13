//! Requests in JSON, as edits of the configuration.
//!
//! One table of words serves all routes, transactions and the command line: `{"weight": 300}` of a group is the same wherever it
//! is written. Numbers may be numbers or text (`"size": "10g"`), as in the config file.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use fairlift::access::Rule;
use fairlift::config::{Address, Backing, Config, Disk, Export, Listener, Tls};
use fairlift::control::{Edit, Leave};
use fairlift_core::{Group, Weight, flush, sched};
use fairlift_lab::suggestion;
use serde_json::{Map, Value};

use super::show;
use crate::config::faults;
use crate::config::given::Given;
use crate::config::keys::{self, ExportKeys, GroupKeys};
use crate::config::row::{Act, KINDS, Kind, Row};
use crate::syntax::groups::own_path;
use crate::syntax::limits::parse_rate;
use crate::syntax::place;
use crate::syntax::place::check_path;
use crate::syntax::scheduler::{check_setting, tunables};
use crate::ways;

/// Sets a tunable to its default.
const DEFAULT: &str = "default";
const ACTS: [(&str, Act); 3] = [("add", Act::Add), ("set", Act::Set), ("remove", Act::Remove)];

/// The group of each export, both by name.
fn paths(config: &Config) -> impl Iterator<Item = (&str, &str)> {
    config.exports.iter().map(|export| (&*export.name, &*config.group(export).path))
}

pub(crate) fn parse_kind(word: &str) -> Result<Kind, String> {
    KINDS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind).ok_or_else(|| {
        let known = KINDS.map(|(name, _)| name);
        format!("kind takes {}, not \"{}\"{}", known.join(", "), word.escape_debug(), suggestion(word, known))
    })
}

pub(crate) struct Changes<'a> {
    edit: &'a mut Edit,
    /// The value before it.
    before: Config,
    /// How clients reach exports that are added and do not say so.
    ways: &'a ways::Flags,
    /// Whether clients are asked for a certificate.
    verifies: bool,
    /// The server's name among gateways, if it has one of its own.
    gateway: Option<String>,
}

impl<'a> Changes<'a> {
    pub(crate) fn new(edit: &'a mut Edit, ways: &'a ways::Flags, verifies: bool, gateway: Option<String>) -> Self {
        Self { before: edit.config.clone(), edit, ways, verifies, gateway }
    }

    /// A transaction: `[{"set": "group", "name": "/a", "weight": 300}, …]`.
    pub(crate) fn transaction(mut self, list: &Value) -> Result<(), String> {
        let list = list.as_array().ok_or("changes takes a list of changes")?;
        for (at, one) in list.iter().enumerate() {
            self.one(one).map_err(|why| format!("change {}: {why}", at + 1))?;
        }
        self.leave_own_groups();
        Ok(())
    }

    pub(crate) fn change(mut self, act: Act, kind: Kind, name: &str, keys: Map<String, Value>) -> Result<(), String> {
        self.act(act, kind, name, keys)?;
        self.leave_own_groups();
        Ok(())
    }

    /// A group that was made for an export goes with it, unless somebody gave it a weight or limits, or has delegated keys of it: exports
    /// that come and go leave no groups behind.
    fn leave_own_groups(self) {
        let Self { edit, before, .. } = self;
        if Arc::ptr_eq(&edit.config.exports, &before.exports) {
            return;
        }
        let now: HashMap<_, _> = paths(&edit.config).collect();
        let left = paths(&before).filter(|(name, was)| now.get(name) != Some(was));
        let left: Vec<_> = left.map(|(name, was)| (own_path(name), was)).filter(|(own, was)| own == was).collect();
        for (own, _) in left {
            let Config { groups, bounds, delegated, .. } = &edit.config;
            let is_plain = |group: &Group| group.path == own && group.weight == Weight::DEFAULT;
            if groups.iter().any(is_plain) && !bounds.contains_key(&own) && !delegated.contains_key(&own) {
                let _ = edit.remove_group(&own); // or something is in it
            }
        }
    }

    fn one(&mut self, one: &Value) -> Result<(), String> {
        const FORM: &str =
            "a change is an object such as {\"set\": \"group\", \"name\": \"/tenants/alice\", \"weight\": 300}";
        let mut keys = one.as_object().ok_or(FORM)?.clone();
        let found: Vec<_> = ACTS.iter().filter_map(|(word, act)| Some((*act, keys.remove(*word)?))).collect();
        let [(act, kind)] = &found[..] else { return Err(format!("{FORM}, with one of add, set and remove")) };
        let kind = parse_kind(kind.as_str().ok_or(FORM)?)?;
        let name = keys.remove("name").ok_or("name is missing")?;
        let name = name.as_str().ok_or("name takes text")?;
        self.act(*act, kind, name, keys)
    }

    fn act(&mut self, act: Act, kind: Kind, name: &str, keys: Map<String, Value>) -> Result<(), String> {
        let config = &self.edit.config;
        let export = config.exports.iter().find(|export| export.name == name);
        let group = export.map_or_else(|| own_path(name), |export| config.group(export).path.clone());
        let limits =
            ["max", "min", "burst"].iter().find_map(|key| Some(format!("{key}=\"{}", keys.get(*key)?.as_str()?)));
        let keys = Keys { kind, act, group, limits: limits.unwrap_or_default(), keys };
        match (kind, act) {
            (_, Act::Remove) => self.remove(kind, name, keys),
            (Kind::Group, Act::Add | Act::Set) => self.group(act, name, keys),
            (Kind::Export, Act::Add) => self.add_export(name, keys),
            (Kind::Export, Act::Set) => self.set_export(name, keys),
            (Kind::Disk, Act::Add | Act::Set) => self.disk(act, name, keys),
            (Kind::Listener, Act::Add) => self.add_listener(name, keys),
            (Kind::Listener, Act::Set) => {
                keys.finish(&[])?;
                Err("a listener cannot be changed: remove it, and add another".into())
            }
            (Kind::Client, Act::Add | Act::Set) => self.client(act, name, keys),
        }
    }

    fn remove(&mut self, kind: Kind, name: &str, mut keys: Keys) -> Result<(), String> {
        let mut now = false;
        keys.put(keys::NOW, &mut now)?;
        keys.finish(&[])?;
        match kind {
            Kind::Group => self.edit.remove_group(name),
            Kind::Export => self.edit.remove_export(name, if now { Leave::Cut } else { Leave::Drain }),
            Kind::Disk => self.edit.remove_disk(name),
            Kind::Listener => self.edit.remove_listener(name),
            Kind::Client => self.edit.remove_client(name),
        }
    }

    fn group(&mut self, act: Act, name: &str, mut keys: Keys) -> Result<(), String> {
        let Config { groups, bounds, .. } = &self.edit.config;
        let weight = groups.iter().find(|group| group.path == name).map_or(Weight::DEFAULT, |group| group.weight);
        let before = bounds.get(name).copied().unwrap_or_default();
        let mut group_keys = GroupKeys { weight, bounds: before, ..GroupKeys::default() };
        keys.put(keys::GROUP_ROWS, &mut group_keys)?;
        keys.finish(&[])?;
        group_keys.bounds.check().map_err(|wrong| wrong.to_string())?;
        if act == Act::Add {
            self.edit.add_group(name)?;
        }
        self.edit.set_weight(name, group_keys.weight)?;
        if group_keys.bounds != before {
            self.edit.set_bounds(name, group_keys.bounds)?;
        }
        Ok(())
    }

    fn add_export(&mut self, name: &str, mut keys: Keys) -> Result<(), String> {
        let mut keyed = ExportKeys::new(name);
        let has_backing = keys.keys.contains_key("backing");
        keys.put(keys::EXPORT_ROWS, &mut keyed)?;
        let ways = keys.put(ways::ROWS, &mut keyed.settings.ways)?;
        keys.finish(&[])?;
        if !has_backing {
            return Err(format!("export \"{name}\" needs a backing: {}", Backing::forms(" or ")));
        }
        let ExportKeys { mut settings, disk, group, .. } = keyed;
        // The server's directory is not the client's.
        settings
            .backing
            .paths()
            .into_iter()
            .try_for_each(|path| check_path(path))
            .map_err(|why| format!("backing: {why}"))?;
        settings.backing = faults::settle(&settings.backing).map_err(|why| format!("backing: {why}"))?;
        for (way, path) in settings.ways.iter().filter_map(|way| Some((way, way.path()?))) {
            check_path(path).map_err(|why| format!("{}: {why}", way.key()))?;
        }
        let wrong = self.ways.fill(name, |key| ways.contains(&key), true, &mut settings.ways);
        wrong.into_iter().map(|(_, why)| why).try_for_each(Err)?;
        // As in the config file: a group that an export names needs no word of its own.
        let group = group.unwrap_or_else(|| own_path(name));
        if self.edit.find_group(&group).is_err() {
            self.edit.add_group(&group)?;
        }
        self.edit.add_export(settings, disk.as_deref(), &group)
    }

    fn set_export(&mut self, name: &str, mut keys: Keys) -> Result<(), String> {
        let there = self.edit.config.exports.iter().find(|export| export.name == name);
        let mut keyed = there.map_or_else(|| ExportKeys::new(name), |there| there.clone().into());
        let put = keys.put(keys::EXPORT_ROWS, &mut keyed)?;
        let names = self.edit.config.exports.iter().map(|export| &*export.name);
        keys.finish(&[]).map_err(|why| match there {
            Some(_) => why,
            None => match suggestion(name, names) {
                hint if hint.is_empty() => format!("there is no export {name:?}; {why}"),
                hint => format!("there is no export {name:?}{hint}"),
            },
        })?;
        let ExportKeys { settings, group, faults: (path, faults), .. } = keyed;
        let (size, group) = (settings.size, group.map(|path| self.edit.find_group(&path)).transpose()?);
        *self.edit.export(name)? = Export { group: group.unwrap_or(settings.group), ..settings };
        if put.contains(&"size") {
            self.edit.grow(name, size)?;
        }
        if put.contains(&"faults") {
            self.edit.set_faults(name, &path, &faults)?;
        }
        Ok(())
    }

    fn disk(&mut self, act: Act, name: &str, mut keys: Keys) -> Result<(), String> {
        let there = self.edit.config.disks.iter().find(|disk| disk.name == name).filter(|_| act == Act::Set);
        let mut disk = there.map_or_else(|| Disk::new(name, sched::Kind::usual(1, false)), Disk::clone);
        let before = there.map(|disk| disk.scheduler);
        let put = keys.put(keys::DISK_ROWS, &mut disk)?;
        if let Some((shares, own)) = disk.shares.as_mut().filter(|_| act == Act::Add).zip(self.gateway.as_ref()) {
            shares.gateway.clone_from(own);
        }
        let kind = disk.scheduler;
        if before != Some(kind) {
            // Those that all schedulers have stay as they are.
            disk.set.retain(|(knob, _)| flush::Settings::INFO.iter().any(|info| info.name == knob));
        }
        for (knob, value) in keys.knobs()? {
            match check_setting(kind, &knob, &value) {
                Err((false, why)) if value != DEFAULT => return Err(format!("{why}; {knob}={DEFAULT} takes it back")),
                Err((true, why)) => return Err(why),
                Ok(()) | Err(_) => {}
            }
            disk.set.retain(|(one, _)| *one != knob);
            if value != DEFAULT {
                disk.set.push((knob, value));
            }
        }
        keys.finish(&tunables(kind).map(|info| info.name).collect::<Vec<_>>())?;
        let is_named = put.contains(&"scheduler");
        // Also where it names the present one, which tenants have brought: from then on it stays.
        if is_named || act == Act::Add {
            disk.is_usual = !is_named;
        }
        if act == Act::Add {
            return self.edit.add_disk(disk);
        }
        *self.edit.disk(name)? = disk;
        Ok(())
    }

    fn add_listener(&mut self, name: &str, mut keys: Keys) -> Result<(), String> {
        let mut tls = None;
        keys.put(keys::LISTENER_ROWS, &mut tls)?;
        keys.finish(&[])?;
        let at = place::parse_place(name)?;
        if let Address::Unix(path) = &at.address {
            check_path(path)?;
        }
        let tls = tls.or(at.tls).unwrap_or(Tls::Off);
        let listener = Listener { address: at.address, tls, socket: at.socket };
        if place::is_remote(&listener.address) && tls != Tls::Required {
            return Err(format!(
                "{name}: other machines can reach this address: add tls=require, or listen at tcp:127.0.0.1:PORT"
            ));
        }
        self.edit.add_listener(listener)
    }

    /// Keys of an existing rule that are not given stay. [`DEFAULT`], in JSON also null, takes a key back.
    fn client(&mut self, act: Act, name: &str, mut keys: Keys) -> Result<(), String> {
        let mut rule = Rule { name: name.into(), ..Rule::default() };
        let there = self.edit.config.clients.iter().find(|there| there.name == name).filter(|_| act == Act::Set);
        if let Some(there) = there {
            rule.token = there.token.filter(|_| !keys.keys.contains_key("token"));
            let Value::Object(mut stays) = show::rule_keys(there) else { unreachable!("keys are an object") };
            stays.remove("token"); // of which only the beginning is shown
            stays.retain(|_, value| !value.as_array().is_some_and(Vec::is_empty));
            stays.into_iter().for_each(|(key, value)| _ = keys.keys.entry(key).or_insert(value));
        }
        let is_default = |value: &Value| value.is_null() || value == DEFAULT;
        let is_key = |key: &str| keys::CLIENT_ROWS.iter().any(|row| row.name == key);
        keys.keys.retain(|key, value| !(is_default(value) && is_key(key)));
        keys.put(keys::CLIENT_ROWS, &mut rule)?;
        keys.finish(&[])?;
        // That of the file starts where the file has it.
        let given = rule.listener.as_ref().filter(|_| there.is_none_or(|there| there.listener != rule.listener));
        if let Some(path) = given.and_then(|place| place.strip_prefix("unix:")) {
            check_path(Path::new(path)).map_err(|why| format!("listener: {why}"))?;
        }
        keys::why_unverified(&rule, self.verifies).map_or(Ok(()), |why| Err(format!("certificate: {why}")))?;
        if act == Act::Add {
            return self.edit.add_client(rule);
        }
        *self.edit.client(name)? = rule;
        Ok(())
    }
}

/// Keys that have not been used.
struct Keys {
    kind: Kind,
    act: Act,
    /// That of the export of this name.
    group: String,
    /// Limits that it says, up to the closing quote.
    limits: String,
    keys: Map<String, Value>,
}

impl Keys {
    /// Puts what is said into `to`; which keys that were.
    fn put<T>(&mut self, rows: &[Row<T>], to: &mut T) -> Result<Vec<&'static str>, String> {
        let mut put = Vec::new();
        for row in rows.iter().filter(|row| row.is_put(self.act)) {
            let Some(value) = self.keys.remove(row.name) else { continue };
            // It is `auto` where that is a value; a text would be that word.
            if value.is_null() && row.is_text() {
                return Err(format!("{}: takes text in quotes, not null", row.name));
            }
            row.put(to, &Given::from(&value)).map_err(|wrong| format!("{}: {}", row.name, wrong.into_text()))?;
            put.push(row.name);
        }
        Ok(put)
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
        let text = |value: &Value| Given::from(value).text().map(str::to_owned);
        all.into_iter()
            .map(|(knob, value)| Ok((knob.clone(), text(&value).map_err(|why| format!("{knob}: {why}"))?)))
            .collect()
    }

    /// Refuses what is left.
    fn finish(&self, more: &[&'static str]) -> Result<(), String> {
        let Some((key, value)) = self.keys.iter().next() else { return Ok(()) };
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let kind = self.kind.name();
        let own = keys::keys(self.kind, self.act);
        let known = || own.iter().map(|key| key.name).chain(more.iter().copied());
        let list = match suggestion(key, known()) {
            _ if self.kind == Kind::Export && keys::keys(Kind::Group, self.act).iter().any(|one| one.name == *key) => {
                format!("; that is a group's: fairlift set group {} {key}={value}", self.group)
            }
            _ if self.kind == Kind::Group && parse_rate(key).is_ok() && !self.limits.is_empty() => {
                let rates = self.keys.iter().filter(|(key, _)| parse_rate(key).is_ok());
                let one = |(key, value): (&String, &Value)| format!(" {key}={}", value.as_str().unwrap_or_default());
                let all: String = rates.map(one).collect();
                format!("; several limits are one word, in quotes: {}{all}\"", self.limits)
            }
            _ if self.kind == Kind::Group && parse_rate(key).is_ok() => {
                format!("; a ceiling is written max={key}={value}, a floor min={key}={value}")
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
pub(super) mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;

    use fairlift::control::{Step, difference};
    use serde_json::json;

    pub(in crate::control) fn config() -> Config {
        Config {
            disk_default: Disk::new("default", sched::Kind::MqDeadline),
            disks: vec![Disk::new("ssd0", sched::Kind::Fair)].into(),
            ..Config::default()
        }
    }

    fn read(list: Value) -> Result<Vec<String>, String> {
        let mut edit = Edit::from(config());
        Changes::new(&mut edit, &ways::Flags::default(), false, None).transaction(&list)?;
        Ok(difference(&config(), &edit).unwrap().iter().map(Step::to_string).collect())
    }

    #[test]
    fn numbers_may_be_text_and_an_exports_group_comes_with_it() {
        let add = |weight: Value| read(json!([{"add": "group", "name": "/a", "weight": weight}]));
        assert_eq!(add(json!(300)), Ok(vec!["group \"/a\": added, weight 300".into()]));
        assert_eq!(add(json!(300)), add(json!("300")));
        let two = read(json!([
            {"add": "export", "name": "a", "backing": "mem:1m", "group": "/t/a"},
            {"add": "export", "name": "b", "backing": "mem:1m", "group": "/t/a", "ioprio": "idle"},
        ]));
        let groups = two.unwrap().into_iter().filter(|step| step.starts_with("group")).collect::<Vec<_>>();
        assert_eq!(groups, ["group \"/t\": added, weight 100", "group \"/t/a\": added, weight 100"]);
        let fair = read(json!([{"set": "disk", "name": "ssd0", "scheduler": "fair", "isolation_cost": 9}]));
        assert_eq!(fair, Ok(vec!["disk \"ssd0\": isolation_cost = 9 (was default)".into()]), "it has fair already");
        let back = |knob: &str| {
            read(
                json!([{"set": "disk", "name": "ssd0", "isolation_cost": 9}, {"set": "disk", "name": "ssd0", knob: "default"}]),
            )
        };
        assert_eq!(back("isolation_cost"), Ok(vec![]));
        assert!(back("read_expire").unwrap_err().contains("read_expire belongs to mq-deadline"));
        assert!(
            read(json!([{"set": "disk", "name": "ssd0", "isolation_cost": "x"}]))
                .unwrap_err()
                .ends_with("; isolation_cost=default takes it back")
        );
    }

    #[test]
    fn a_scheduler_that_tenants_have_brought_stays_once_it_is_named() {
        let brought = Disk { is_usual: true, ..Disk::new("d", sched::Kind::Fair) };
        let before = Config { disks: vec![brought].into(), ..config() };
        let set = |keys: Value| {
            let (mut edit, keys) = (Edit::from(before.clone()), keys.as_object().unwrap().clone());
            Changes::new(&mut edit, &ways::Flags::default(), false, None)
                .change(Act::Set, Kind::Disk, "d", keys)
                .unwrap();
            let steps = difference(&before, &edit).unwrap().iter().map(Step::to_string).collect::<Vec<_>>();
            (edit.config.disks[0].is_usual, steps.join("; "))
        };
        let stays = (false, "disk \"d\": scheduler fair, regardless of its tenants".to_owned());
        assert_eq!(set(json!({"scheduler": "fair"})), stays);
        assert_eq!(set(json!({"depth": 7})), (true, "disk \"d\": depth 7 (was default)".to_owned()));
    }

    #[test]
    fn an_export_has_its_socket_where_the_others_have_theirs_or_where_it_says() {
        let line = ["fairlift", "serve", "--vhost-user", "/run/vm", "--ublk"];
        let Command::Serve(flags) = Cli::try_parse_from(line).unwrap().command else { panic!("serve") };
        let add = |name: &str, more: Value| {
            let mut one = json!({"add": "export", "name": name, "backing": "mem:1m"});
            one.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let mut edit = Edit::from(config());
            Changes::new(&mut edit, &flags.ways, false, None).transaction(&json!([one]))?;
            Ok::<_, String>(edit.config.exports[0].ways.iter().map(|way| (way.key(), way.written())).collect())
        };
        let socket = |at: &str| Ok(vec![("vhost_user", at.to_owned())]);
        assert_eq!(add("a", json!({})), socket("/run/vm/a"), "a block device is said of exports at the start");
        assert_eq!(add("a/b", json!({"vhost_user": "/run/b"})), socket("/run/b"));
        assert!(add("a/b", json!({})).unwrap_err().contains("cannot have its name"));
    }

    /// A rule with every key is the same when its shown form is given back.
    #[test]
    fn a_client_keeps_the_keys_that_are_not_spoken_of() {
        let token = format!("sha256:{}", "7".repeat(64));
        let all = json!({
            "uid": 7, "gid": "8", "cgroup": "/a.slice", "certificate": "DNS:A.example", "address": "10.0.0.0/8", "listener": "tcp:localhost:1",
            "token": token, "exports": ["a,b", "default"], "group": "/t", "control": "see", "read_only": true,
            "max_connections": 3,
        });
        let with = |more: Value| {
            let mut keys = all.as_object().unwrap().clone();
            keys.extend(more.as_object().unwrap().clone());
            keys
        };
        let made = |changes: &[(Act, Value)]| {
            let mut edit = Edit::from(config());
            for (act, keys) in changes {
                let flags = ways::Flags::default();
                Changes::new(&mut edit, &flags, true, None).change(
                    *act,
                    Kind::Client,
                    "x",
                    keys.as_object().unwrap().clone(),
                )?;
            }
            Ok::<_, String>(edit.config.clients)
        };
        let once = |more: Value| made(&[(Act::Add, with(more).into())]).unwrap();
        assert_eq!(keys::keys(Kind::Client, Act::Set).len(), all.as_object().unwrap().len(), "each key is tried");
        for (set, wanted) in [
            (json!({}), json!({})),
            (json!({"uid": 9}), json!({"uid": 9})),
            (json!({"exports": "c,d"}), json!({"exports": ["c", "d"]})),
            (
                json!({"token": format!("sha256:{}", "8".repeat(64))}),
                json!({"token": format!("sha256:{}", "8".repeat(64))}),
            ),
            (json!({"address": "default", "token": null}), json!({"address": null, "token": "default"})),
            (json!({"exports": "default"}), json!({"exports": null})),
        ] {
            assert_eq!(made(&[(Act::Add, all.clone()), (Act::Set, set.clone())]).unwrap(), once(wanted), "{set}");
        }
        let mut keys = all.as_object().unwrap().clone();
        keys.keys().for_each(|key| assert_ne!(once(json!({key: null})), once(json!({})), "{key}"));
        assert!(!show::rule_keys(&once(json!({}))[0]).to_string().contains(&token));
        for (key, value, why) in [
            ("exports", json!([]), "exports: lists no export"),
            ("exports", json!(""), "exports: lists no export"),
            ("exports", json!([["a"]]), "exports: takes text in quotes, not a list"),
            ("listener", json!("unix:a.sock"), "listener: takes a path from the root"),
            ("token", json!("secret"), "and not the token itself"),
            ("prots", json!(null), "unknown key \"prots\" of a client"),
        ] {
            let says = made(&[(Act::Add, with(json!({key: value})).into())]).unwrap_err();
            assert!(says.contains(why) && !says.contains("secret"), "{key}: {says}");
        }
        assert!(made(&[(Act::Add, all.clone()), (Act::Add, all.clone())]).unwrap_err().contains("is there already"));
        assert!(made(&[(Act::Set, json!({"uid": 1}))]).unwrap_err().contains("there is no client \"x\""));
        keys = with(json!({"control": null, "token": null}));
        let says = Changes::new(&mut Edit::from(config()), &ways::Flags::default(), false, None)
            .change(Act::Add, Kind::Client, "x", keys)
            .unwrap_err();
        assert_eq!(says, "certificate: needs tls_verify_peer = true: no client is asked for a certificate");
    }

    #[test]
    fn a_relative_listener_of_the_file_stays_when_another_key_is_set() {
        let mut edit = Edit::from(config());
        let rule = Rule { listener: Some("unix:a.sock".into()), exports: ["a".into()].into(), ..Rule::default() };
        edit.add_client(Rule { name: "x".into(), ..rule }).unwrap();
        let mut set = |keys: Value| {
            let keys = keys.as_object().unwrap().clone();
            Changes::new(&mut edit, &ways::Flags::default(), false, None).change(Act::Set, Kind::Client, "x", keys)
        };
        assert_eq!(set(json!({"max_connections": 4})), Ok(()));
        assert!(set(json!({"listener": "unix:b.sock"})).unwrap_err().contains("takes a path from the root"));
        assert_eq!(edit.config.clients[0].listener.as_deref(), Some("unix:a.sock"));
    }

    #[test]
    fn a_client_that_says_not_how_it_is_known_is_refused_as_in_the_file() {
        for (keys, key) in
            [(json!({}), "uid"), (json!({"uid": 7}), "exports"), (json!({"uid": 7, "control": "tenant"}), "control")]
        {
            let mut edit = Edit::from(config());
            let keys = keys.as_object().unwrap().clone();
            Changes::new(&mut edit, &ways::Flags::default(), false, None)
                .change(Act::Add, Kind::Client, "x", keys)
                .unwrap();
            let wrong = difference(&config(), &edit).unwrap_err();
            assert_eq!(wrong.iter().map(|one| one.key).collect::<Vec<_>>(), [key]);
            assert_eq!(wrong[0].says, edit.config.clients[0].check().unwrap_err().1);
        }
    }

    #[test]
    fn a_disk_that_is_added_has_the_servers_own_name_among_gateways() {
        let mut edit = Edit::from(config());
        let add = json!([{"add": "disk", "name": "pool", "scheduler": "fair", "shares": "dir:/srv/pool"}]);
        let ways = ways::Flags::default();
        Changes::new(&mut edit, &ways, false, Some("gw2".into())).transaction(&add).unwrap();
        assert_eq!(edit.config.disks[1].shares.as_ref().unwrap().gateway, "gw2");
    }

    #[test]
    fn a_group_by_the_name_of_an_export_in_it_or_by_its_last_part_is_meant() {
        let refusal = |group: &str, name: &str| {
            let add = json!({"add": "export", "name": "alice", "backing": "mem:1m", "group": group});
            read(json!([add, {"set": "group", "name": name, "weight": 3}])).unwrap_err()
        };
        let says = |meant: &str| format!("change 2: there is no group \"/alice\"; did you mean \"{meant}\"?");
        assert_eq!(refusal("/tenants/alice", "/alice"), says("/tenants/alice"));
        assert_eq!(refusal("/gold", "/alice"), says("/gold"), "which its export is in");
        assert!(refusal("/t/bob", "bob").ends_with("no group \"bob\"; did you mean \"/t/bob\"?"));
        assert!(refusal("/t/bob", "/dave").ends_with("there are /, /t, /t/bob"), "{}", refusal("/t/bob", "/dave"));
    }

    #[test]
    fn what_is_not_known_is_named_with_the_nearest() {
        for (one, why) in [
            (
                json!({"set": "group", "name": "/a", "iops": 2000}),
                "unknown key \"iops\" of a group; a ceiling is written max=iops=2000, a floor min=iops=2000",
            ),
            (
                json!({"set": "group", "name": "/a", "max": "riops=2000", "wiops": "5"}),
                "unknown key \"wiops\" of a group; several limits are one word, in quotes: max=\"riops=2000 wiops=5\"",
            ),
            (
                json!({"set": "group", "name": "/a", "wieght": 3}),
                "unknown key \"wieght\" of a group; did you mean \"weight\"?",
            ),
            (
                json!({"set": "grup", "name": "/a"}),
                "kind takes group, export, disk, listener, client, not \"grup\"; did you mean \"group\"?",
            ),
            (json!({"set": "group", "add": "group", "name": "/a"}), "one of add, set and remove"),
            (json!({"set": "group", "name": "/a", "weight": 0}), "weight: takes a number from 1 to 1000, not \"0\""),
            (json!({"set": "group", "name": "/a", "weight": [1]}), "weight: takes a number from 1 to 1000, not a list"),
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
            (json!({"set": "export", "name": "a", "description": null}), "description: takes text in quotes, not null"),
            (json!({"set": "disk", "name": "ssd0", "scheduler": "fare"}), "did you mean \"fair\"?"),
            (json!({"add": "listener", "name": "tcp:0.0.0.0:1"}), "other machines can reach this address"),
            (json!({"add": "listener", "name": "unix:a.sock,mode=0660"}), "takes a path from the root"),
        ] {
            let says = read(json!([one])).unwrap_err();
            assert!(says.contains(why), "{one}: {says}");
        }
    }
}
