//! Difference: the steps from a configuration to another one, each with its sentence, or the steps that cannot be made while a server runs.
//!
//! The sentence goes to the log, an event, an answer and a dry run: `disk "ssd": depth 64 (was 32)`.
//!
//! difference.1  The steps are about all that differs, and about nothing else; two equal configurations have none.
//! difference.2  All changes that are impossible are named, and then there are no steps.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use fairlift_core::sched::Setup;
use fairlift_core::tunable;
use fairlift_core::units::show_size;
use fairlift_core::{Group, Weight, flush, sched};

use super::edit::{Edit, check_path, unknown};
use super::keys;
use super::tenants::tunables;
use crate::access::Rule;
use crate::config::{Backing, Config, Disk, Export, Limits, Tls};
use crate::export::Leave;

/// The object of a step, by its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Of {
    /// A group, by its path.
    Group(String),
    /// A disk.
    Disk(String),
    /// An export.
    Export(String),
    /// A listener, by its address.
    Listener(String),
    /// A rule for the rights of a client.
    Client(String),
    /// The server.
    Server,
}

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(path) => write!(f, "group {path:?}"),
            Self::Disk(name) => write!(f, "disk {name:?}"),
            Self::Export(name) => write!(f, "export {name:?}"),
            Self::Listener(address) => write!(f, "listener {address}"),
            Self::Client(name) => write!(f, "client {name:?}"),
            Self::Server => f.write_str("server"),
        }
    }
}

/// The change of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Becomes {
    /// It is new.
    Comes,
    /// It is removed.
    Goes,
    /// A key of it has another value. (All tunables of a disk are one key, `set`, as all bounds of a group are, `max`.)
    Key(&'static str),
}

/// A step; shown as its sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The object.
    pub of: Of,
    /// The change to it.
    pub what: Becomes,
    says: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            Of::Server => f.write_str(&self.says),
            of => write!(f, "{of}: {}", self.says),
        }
    }
}

impl Step {
    pub(super) fn new(of: Of, what: Becomes, says: impl Into<String>) -> Self {
        Self { of, what, says: says.into() }
    }
}

/// Something that cannot be, or not while the server runs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{of}: {key}: {says}")]
pub struct Impossible {
    /// The object with the key.
    pub of: Of,
    /// The key in the file.
    pub key: &'static str,
    /// Why it cannot be.
    pub says: String,
}

/// The text about settings that a server keeps for its life.
pub const FROM_START_TO_END: &str = "is the server's from start to end; restart it for another one";

/// The steps from `old` to the edit's wish, in an order in which they can be made (difference.1).
///
/// # Errors
/// The impossible steps (difference.2).
pub fn difference(old: &Config, edit: &Edit) -> Result<Vec<Step>, Vec<Impossible>> {
    let new = &edit.config;
    let mut all = Difference { edit, steps: Vec::new(), impossible: Vec::new() };
    all.server(old, new);
    let certificate = match (&old.tls, &new.tls) {
        (Some(old), Some(new)) => !Arc::ptr_eq(old, new),
        (old, new) => old.is_some() != new.is_some(),
    };
    // A listener may need it; when it goes, none may.
    if certificate && new.tls.is_some() {
        all.step(Of::Server, Becomes::Key("tls"), "certificates: read anew, for connections from now on");
    }
    all.listeners(old, new);
    if certificate && new.tls.is_none() {
        all.step(Of::Server, Becomes::Key("tls"), "certificate: none");
    }
    if old.revoked != new.revoked {
        let [was, now] = [old, new].map(|config| config.revoked.count());
        let lists = if new.revoked.is_empty() { "no list" } else { "other lists" };
        all.step(Of::Server, Becomes::Key("tls"), format!("revoked certificates: {lists}, {now} (were {was})"));
    }
    all.clients(old, new);
    let is_same = Arc::ptr_eq(&old.exports, &new.exports) && edit.leave.is_empty() && same_places(old, new);
    let [before, after] = [old, new].map(|config| match is_same {
        true => HashMap::new(),
        false => by_name(&config.exports, |export: &Export| &export.name),
    });
    let goes = |name: &&str| !after.contains_key(name) || edit.leave.contains_key(*name);
    for name in before.keys().copied().filter(goes).collect::<BTreeSet<_>>() {
        let cut = if edit.leave.get(name) == Some(&Leave::Cut) { ", and its clients cut off" } else { "" };
        let group = old.group(before[name]);
        let is_empty = !new.exports.iter().any(|export| new.group(export).path == group.path);
        let stays = is_empty && new.groups.iter().any(|there| there.path == group.path && there.parent.is_some());
        let stays = if stays { format!("; its group {:?} stays", group.path) } else { String::new() };
        all.step(Of::Export(name.into()), Becomes::Goes, format!("removed{cut}{stays}"));
    }
    all.groups_come_and_change(old, new);
    let disks = by_name(&old.disks, |disk: &Disk| &disk.name);
    for disk in new.disks.iter().filter(|disk| !disks.contains_key(&*disk.name)) {
        all.check_disk(disk);
        all.step(Of::Disk(disk.name.clone()), Becomes::Comes, format!("added, scheduler {}", disk.scheduler.name()));
    }
    for export in new.exports.iter().filter(|export| after.contains_key(&*export.name)) {
        match before.get(&*export.name).filter(|_| !edit.leave.contains_key(&export.name)) {
            Some(there) => all.export((old, there), (new, export)),
            None => all.export_comes(new, export),
        }
    }
    // Groups that are gone; those below come before those above.
    let groups = by_name(&new.groups, |group: &Group| &group.path);
    for group in old.groups.iter().rev().filter(|group| !groups.contains_key(&*group.path)) {
        all.step(Of::Group(group.path.clone()), Becomes::Goes, "removed");
    }
    let disks = by_name(&new.disks, |disk: &Disk| &disk.name);
    for disk in old.disks.iter() {
        match disks.get(&*disk.name) {
            Some(now) => all.disk(disk, now),
            None => all.step(Of::Disk(disk.name.clone()), Becomes::Goes, "removed"),
        }
    }
    if all.impossible.is_empty() { Ok(all.steps) } else { Err(all.impossible) }
}

/// Whether disks and groups are at the places where exports know them.
fn same_places(old: &Config, new: &Config) -> bool {
    let same = |a: &Group, b: &Group| a.path == b.path;
    (Arc::ptr_eq(&old.groups, &new.groups) || old.groups.iter().zip(&*new.groups).all(|(a, b)| same(a, b)))
        && (Arc::ptr_eq(&old.disks, &new.disks) || old.disks.iter().zip(&*new.disks).all(|(a, b)| a.name == b.name))
}

fn by_name<T>(all: &[T], name: impl Fn(&T) -> &String) -> HashMap<&str, &T> {
    all.iter().map(|one| (name(one).as_str(), one)).collect()
}

struct Difference<'a> {
    edit: &'a Edit,
    steps: Vec<Step>,
    impossible: Vec<Impossible>,
}

impl Difference<'_> {
    fn step(&mut self, of: Of, what: Becomes, says: impl Into<String>) {
        self.steps.push(Step::new(of, what, says));
    }

    /// A key that has another value, which is shown beside the one that it had.
    fn turns<V: PartialEq>(&mut self, of: &Of, key: &'static str, (was, is): (&V, &V), show: impl Fn(&V) -> String) {
        if was != is {
            self.step(of.clone(), Becomes::Key(key), format!("{key} {} (was {})", show(is), show(was)));
        }
    }

    fn refuse(&mut self, of: &Of, key: &'static str, says: impl Into<String>) {
        self.impossible.push(Impossible { of: of.clone(), key, says: says.into() });
    }

    fn refuse_if(&mut self, wrong: bool, of: &Of, key: &'static str, says: impl Fn() -> String) {
        if wrong {
            self.refuse(of, key, says());
        }
    }

    fn server(&mut self, old: &Config, new: &Config) {
        // By name, so that the compiler asks for a new one.
        macro_rules! limits {
            ($($limit:ident)+) => {{
                let (Limits { connections, $($limit),+ }, is) = (old.limits, &new.limits);
                [("max_connections", connections == is.connections), $((stringify!($limit), $limit == is.$limit)),+]
            }};
        }
        let limits = limits! {
            handshake_timeout handshake_failures handshake_clients handshake_bytes
            request_max connection_requests connection_memory memory drain_timeout helpers
        };
        let first = [("workers", old.workers == new.workers), ("engine", old.engine == new.engine)];
        let [was, is] = [old, new].map(|config| config.roots.iter().map(|root| &root.path));
        for (key, same) in first.into_iter().chain(limits).chain([("roots", was.eq(is))]) {
            self.refuse_if(!same, &Of::Server, key, || FROM_START_TO_END.into());
        }
    }

    fn listeners(&mut self, old: &Config, new: &Config) {
        let find =
            |config: &Config, name: &str| config.listeners.iter().find(|one| one.address.to_string() == name).cloned();
        for listener in &old.listeners {
            let name = listener.address.to_string();
            let Some(now) = find(new, &name) else {
                self.step(Of::Listener(name), Becomes::Goes, "removed");
                continue;
            };
            for (what, differs) in
                [("TLS", now.tls != listener.tls), ("mode, owner or group", now.socket != listener.socket)]
            {
                self.refuse_if(differs, &Of::Server, "listen", || {
                    format!("{name} cannot change its {what} while the server listens there; restart the server, or remove the address, reload, and add it again")
                });
            }
        }
        for listener in &new.listeners {
            let name = listener.address.to_string();
            let encrypts = listener.tls != Tls::Off && new.tls.is_none();
            self.refuse_if(encrypts, &Of::Server, "tls_certificates", || format!("{name} needs a certificate"));
            if find(old, &name).is_none() {
                self.step(Of::Listener(name), Becomes::Comes, "added");
            }
        }
    }

    fn clients(&mut self, old: &Config, new: &Config) {
        let [before, after] = [old, new].map(|config| by_name(&config.clients, |rule: &Rule| &rule.name));
        let has = |config: &Config, of: fn(&Rule) -> bool| config.clients.iter().any(of);
        let lost = |of| has(old, of) && !has(new, of);
        let mut free = String::new();
        if lost(Rule::is_of_exports) {
            free += "; no [client] is left: every client may open every export";
        }
        if lost(|rule| rule.control.is_some()) {
            free += "; no table has control: any client that reaches the control server has the rights that its address gives";
        }
        for rule in old.clients.iter().filter(|rule| !after.contains_key(&*rule.name)) {
            self.step(Of::Client(rule.name.clone()), Becomes::Goes, format!("removed{free}"));
        }
        for rule in &new.clients {
            let of = Of::Client(rule.name.clone());
            rule.check().unwrap_or_else(|(key, why)| self.refuse(&of, key, why));
            match before.get(&*rule.name) {
                None => self.step(of, Becomes::Comes, format!("added, {rule}")),
                Some(was) if *was != rule => self.step(of, Becomes::Key("client"), format!("{rule} (was {was})")),
                Some(_) => {}
            }
        }
    }

    fn groups_come_and_change(&mut self, old: &Config, new: &Config) {
        if !Arc::ptr_eq(&old.groups, &new.groups) {
            let there = by_name(&old.groups, |group: &Group| &group.path);
            for group in new.groups.iter() {
                let (of, weight) = (Of::Group(group.path.clone()), group.weight);
                let was = there.get(&*group.path).map(|was| was.weight);
                if was == Some(weight) {
                    continue;
                }
                if group.parent.is_none() {
                    self.refuse(&of, "weight", "the root has no siblings, so that a weight of it would mean nothing");
                }
                match was {
                    Some(was) => self.turns(&of, "weight", (&was, &weight), Weight::to_string),
                    None => {
                        check_path(&group.path).unwrap_or_else(|why| self.refuse(&of, "path", why));
                        self.step(of, Becomes::Comes, format!("added, weight {weight}"));
                    }
                }
            }
        }
        let paths: BTreeSet<_> = old.delegated.keys().chain(new.delegated.keys()).collect();
        let says = |keys: Option<&BTreeSet<String>>| {
            keys.map_or("nothing".into(), |keys| keys.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
        };
        for path in paths.into_iter().filter(|path| old.delegated.get(*path) != new.delegated.get(*path)) {
            let [was, is] = [old, new].map(|config| says(config.delegated.get(path)));
            self.step(Of::Group(path.clone()), Becomes::Key("delegate"), format!("{is} delegated (was {was})"));
        }
        if Arc::ptr_eq(&old.bounds, &new.bounds) {
            return;
        }
        for group in new.groups.iter() {
            let of = || Of::Group(group.path.clone());
            let [was, is] = [old, new].map(|config| config.bounds.get(&group.path).copied().unwrap_or_default());
            if was == is {
                continue;
            }
            let root = if group.parent.is_none() { is.check_root() } else { Ok(()) };
            if let Err(wrong) = root.and_then(|()| is.check()) {
                self.refuse(&of(), wrong.key, wrong.to_string());
            }
            let or_none = |value: Option<String>| value.unwrap_or_else(|| "none".into());
            let changed = is.named().into_iter().zip(was.named()).filter(|(is, was)| is != was);
            let says = changed.map(|((name, is), (_, was))| format!("{name} {} (was {})", or_none(is), or_none(was)));
            self.step(of(), Becomes::Key("max"), says.collect::<Vec<_>>().join(", "));
        }
    }

    fn check_disk(&mut self, disk: &Disk) {
        let of = Of::Disk(disk.name.clone());
        check_name("a disk", &disk.name).unwrap_or_else(|why| self.refuse(&of, "name", why));
        if let Some(depth) = disk.depth.filter(|depth| !(1..=4096).contains(depth)) {
            self.refuse(&of, "depth", format!("takes a number from 1 to 4096, not {depth}"));
        }
        if let Some(number) = disk.nr_requests.filter(|number| !(1..=1 << 20).contains(number)) {
            self.refuse(&of, "nr_requests", format!("takes a number from 1 to 1048576, not {number}"));
        }
        let shares = disk.shares.is_some() && !disk.scheduler.shares_pools();
        self.refuse_if(shares, &of, "scheduler", || {
            format!("shares needs fair; {} shares no pool with other servers", disk.scheduler.name())
        });
        let set = disk.set.iter().try_for_each(|(knob, value)| check_knob(disk.scheduler, knob, value));
        set.unwrap_or_else(|why| self.refuse(&of, "set", why));
    }

    fn disk(&mut self, old: &Disk, new: &Disk) {
        let of = Of::Disk(new.name.clone());
        for (key, same) in [
            ("shared_tags", old.shared_tags == new.shared_tags),
            ("io_timeout", old.io_timeout == new.io_timeout),
            ("concurrency", old.concurrency == new.concurrency),
            ("shares", old.shares == new.shares),
        ] {
            self.refuse_if(!same, &of, key, || {
                "cannot change while the disk is in use; restart the server, or use another disk".into()
            });
        }
        let steps = self.steps.len();
        let (was, is) = (knobs(old), knobs(new));
        // The scheduler of a disk without one follows the number of tenants.
        let scheduler = |disk: &Disk| Some(disk.scheduler).filter(|_| !disk.is_usual);
        let key = Becomes::Key("scheduler");
        if scheduler(old) != scheduler(new) && old.scheduler != new.scheduler {
            let set: String = is.iter().map(|(knob, value)| format!(", {knob} = {value}")).collect();
            let (is, was) = (new.scheduler.name(), old.scheduler.name());
            self.step(of.clone(), key, format!("scheduler {is}{set} (was {was})"));
        } else {
            if old.is_usual != new.is_usual {
                let until = if new.is_usual { "until its tenants need another" } else { "regardless of its tenants" };
                self.step(of.clone(), key, format!("scheduler {}, {until}", new.scheduler.name()));
            }
            for knob in was.keys().chain(is.keys()).copied().collect::<BTreeSet<_>>() {
                let [was, is] = [&was, &is].map(|set| set.get(knob).copied().unwrap_or("default"));
                if was != is {
                    self.step(of.clone(), Becomes::Key("set"), format!("{knob} = {is} (was {was})"));
                }
            }
        }
        let auto = |number: &Option<u32>| number.map_or_else(|| "default".to_owned(), |number| number.to_string());
        self.turns(&of, "nr_requests", (&old.nr_requests, &new.nr_requests), auto);
        self.turns(&of, "depth", (&old.depth.map(u32::from), &new.depth.map(u32::from)), auto);
        if self.steps.len() > steps {
            self.check_disk(new);
        }
    }

    fn check_export(&mut self, of: &Of, export: &Export) {
        self.refuse_if(export.description.len() > 4096, of, "description", || "has at most 4096 bytes".into());
        if let Some(size) = export.size.filter(|size| *size == 0 || size % 512 != 0) {
            self.refuse(of, "size", format!("takes a multiple of 512 above 0, not {size}"));
        }
    }

    fn export_comes(&mut self, new: &Config, export: &Export) {
        let of = Of::Export(export.name.clone());
        check_name("an export", &export.name).unwrap_or_else(|why| self.refuse(&of, "name", why));
        self.check_export(&of, export);
        let offset = export.offset;
        self.refuse_if(!offset.is_multiple_of(512), &of, "offset", || format!("takes a multiple of 512, not {offset}"));
        let others = || new.exports.iter().filter(|other| other.name != export.name);
        for way in export.ways.iter() {
            way.check().unwrap_or_else(|why| self.refuse(&of, way.key(), why));
            let sole = |export: &Export| export.ways.find(way.key())?.sole();
            let Some(its) = way.sole() else { continue };
            if let Some(other) = others().find(|other| sole(other).as_ref() == Some(&its)) {
                self.refuse(&of, way.key(), format!("export \"{}\" has {its} already", other.name));
            }
        }
        let says = format!("added, {}, group {:?}", export.backing.about().shown, new.group(export).path);
        self.step(of, Becomes::Comes, says);
    }

    fn export(&mut self, (old, was): (&Config, &Export), (new, is): (&Config, &Export)) {
        let of = &Of::Export(is.name.clone());
        let steps = self.steps.len();
        let disk = |config: &Config, export: &Export| {
            export.disk.map_or_else(|| "its own".to_owned(), |disk| format!("{:?}", config.disks[disk].name))
        };
        let (from, to) = (disk(old, was), disk(new, is));
        let other_data = || "clients would find other data on the same disk".to_owned();
        let ways = was.ways.differing(&is.ways);
        let ways = ways.map(|way| (way.key(), true, format!("{} comes and goes with its export", way.makes())));
        let fixed = [
            ("backing", !is_same(&was.backing, &is.backing), other_data()),
            ("offset", was.offset != is.offset, other_data()),
            ("disk", from != to, format!("cannot go from disk {from} to {to} while it is served")),
        ];
        let shrinks = is.size.zip(was.size).filter(|(is, was)| is < was);
        let shrinks = shrinks.map(|(is, was)| format!("cannot shrink from {} to {}", show_size(was), show_size(is)));
        let shrinks = shrinks.map(|why| ("size", true, why));
        for (key, differs, why) in fixed.into_iter().chain(ways).chain(shrinks) {
            self.refuse_if(differs, of, key, || {
                format!("{why}; give the new one another name, or take the export away, reload, and add it again")
            });
        }
        let rows = keys::OF_EXPORT.iter().map(|row| (row, (row.differs)((old, was), (new, is))));
        for (row, _) in rows.clone().filter(|(_, differs)| *differs) {
            self.step(of.clone(), Becomes::Key(row.key), (row.says)((old, was), (new, is)));
        }
        if self.steps.len() > steps {
            self.check_export(of, is);
        }
        let Some(again) = self.edit.again.get(&is.name) else { return };
        for (row, _) in rows.filter(|(row, differs)| !differs && again.contains(row.key)) {
            self.step(of.clone(), Becomes::Key(row.key), (row.says)((old, was), (new, is)));
        }
    }
}

/// Given twice, the last one holds.
fn knobs(disk: &Disk) -> BTreeMap<&str, &str> {
    disk.set.iter().map(|(knob, value)| (knob.as_str(), value.as_str())).collect()
}

/// Rules of faults can change.
fn is_same(a: &Backing, b: &Backing) -> bool {
    match (a, b) {
        (Backing::Fault(a), Backing::Fault(b)) => is_same(&a.inner, &b.inner),
        (a, b) => a == b,
    }
}

fn check_knob(scheduler: sched::Kind, knob: &str, value: &str) -> Result<(), String> {
    if flush::Settings::INFO.iter().any(|info| info.name == knob) {
        let result = tunable::set(flush::Settings::TUNABLES, &mut flush::Settings::default(), knob, value);
        return result.map_err(|error| error.to_string());
    }
    let known = tunables(scheduler);
    if !known.clone().any(|name| name == knob) {
        return Err(unknown("tunable", knob, known, &format!("scheduler {} has", scheduler.name())));
    }
    scheduler.build(&Setup::new(1)).set(knob, value).map_err(|error| error.to_string())
}

/// Whether an export or a disk can have that name: NBD carries no longer one.
///
/// # Errors
/// The mistake in the name of `whose`.
pub fn check_name(whose: &str, name: &str) -> Result<(), String> {
    if name.len() > 4096 {
        return Err(format!("{whose}'s name has at most 4096 bytes"));
    }
    if name.chars().any(char::is_control) { Err(format!("{whose}'s name has no control characters")) } else { Ok(()) }
}
