//! What has changed between two configurations: the changes that make the new one of the old one while the server runs, or what
//! of it cannot change while it runs.
//!
//! difference.1  Making the changes of the old configuration gives the new one; two equal ones differ in nothing.
//! difference.2  What cannot change is named, all of it, and then there are no changes.
//! difference.3  A file that is read again says what shall be of all that it names, or named when it was read last. What was added
//!               otherwise since (by `fairlift add`) stays, and so does a tunable that only `fairlift set` has named; what was
//!               changed otherwise is again as the file has it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use fairlift::config::{Address, Backing, Config, Disk, Export, Faults, Listener};
use fairlift::control::{Change, Leave, NewExport};
use fairlift_core::{Group, GroupId, Priority, PriorityClass, flush, sched};

use crate::words::place;
use crate::words::units::show_size;

/// Something that cannot change while the server runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fixed {
    /// What it is of.
    pub(crate) of: Of,
    /// The key in the file.
    pub(crate) key: &'static str,
    /// Why it cannot change.
    pub(crate) says: String,
}

/// Said of what a server has for its life.
pub(crate) const FROM_START_TO_END: &str = "is the server's from start to end; restart it for another one";

/// What a key is of, by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    Export(String),
    Disk(String),
    Server,
}

/// The changes that make `new` of `old`, in an order in which they can be made (difference.1).
///
/// # Errors
/// What cannot change (difference.2).
pub(crate) fn difference(old: &Config, new: &Config) -> Result<Vec<Change>, Vec<Fixed>> {
    let mut fixed = server(old, new);
    let mut changes = Vec::new();
    let certificate = certificate(old, new);
    // A listener may need it; when it goes, none may.
    let (first, last) = certificate.into_iter().partition(|_| new.tls.is_some());
    changes.extend::<Vec<_>>(first);
    listeners(old, new, &mut changes, &mut fixed);
    changes.extend::<Vec<_>>(last);
    let exports = |config: &'_ Config| config.exports.iter().map(|one| one.name.clone()).collect::<BTreeSet<_>>();
    for gone in exports(old).difference(&exports(new)) {
        changes.push(Change::RemoveExport { export: gone.clone(), how: Leave::Drain });
    }
    groups(old, new, &mut changes);
    for disk in new.disks.iter().filter(|disk| find_disk(old, &disk.name).is_none()) {
        changes.push(Change::AddDisk(disk.clone()));
    }
    for export in &new.exports {
        match old.exports.iter().find(|before| before.name == export.name) {
            Some(before) => turn_export((old, before), (new, export), &mut changes, &mut fixed),
            None => changes.push(Change::AddExport(named(new, export))),
        }
    }
    // What nothing is in any more; those below come before those above.
    for group in old.groups.iter().rev().filter(|group| !new.groups.iter().any(|there| there.path == group.path)) {
        changes.push(Change::RemoveGroup { path: group.path.clone() });
    }
    for disk in &old.disks {
        match find_disk(new, &disk.name) {
            Some(now) => turn_disk(disk, now, &mut changes, &mut fixed),
            None => changes.push(Change::RemoveDisk { disk: disk.name.clone() }),
        }
    }
    if fixed.is_empty() { Ok(changes) } else { Err(fixed) }
}

fn find_disk<'a>(config: &'a Config, name: &str) -> Option<&'a Disk> {
    config.disks.iter().find(|disk| disk.name == name)
}

fn path(config: &Config, group: GroupId) -> &str {
    &config.groups[usize::from(group.0)].path
}

fn disk_name<'a>(config: &'a Config, export: &Export) -> Option<&'a str> {
    export.disk.map(|disk| config.disks[disk].name.as_str())
}

fn server(old: &Config, new: &Config) -> Vec<Fixed> {
    let (a, b) = (&old.limits, &new.limits);
    let same = [
        ("workers", old.workers == new.workers),
        ("engine", old.engine == new.engine),
        ("max_connections", a.connections == b.connections),
        ("handshake_timeout", a.handshake_timeout == b.handshake_timeout),
        ("request_max", a.request_max == b.request_max),
        ("connection_requests", a.connection_requests == b.connection_requests),
        ("connection_memory", a.connection_memory == b.connection_memory),
        ("memory", a.memory == b.memory),
        ("drain_timeout", a.drain_timeout == b.drain_timeout),
        ("helpers", a.helpers == b.helpers),
        ("roots", old.roots.iter().map(|root| &root.path).eq(new.roots.iter().map(|root| &root.path))),
    ];
    let differ = same.into_iter().filter(|(_, same)| !same);
    differ.map(|(key, _)| Fixed { of: Of::Server, key, says: FROM_START_TO_END.into() }).collect()
}

fn listeners(old: &Config, new: &Config, changes: &mut Vec<Change>, fixed: &mut Vec<Fixed>) {
    let find = |config: &Config, name: &str| config.listeners.iter().find(|one| name_of(one) == name).cloned();
    for listener in &old.listeners {
        let name = name_of(listener);
        match find(new, &name) {
            None => changes.push(Change::RemoveListener { address: name }),
            Some(now) if now.tls != listener.tls => {
                let says =
                    format!("{name} cannot change its TLS while it is listened at; take it away first, and reload");
                fixed.push(Fixed { of: Of::Server, key: "listen", says });
            }
            Some(_) => {}
        }
    }
    let added = new.listeners.iter().filter(|one| find(old, &name_of(one)).is_none());
    changes.extend(added.cloned().map(Change::AddListener));
}

/// Certificates are compared by where they are: [`wanted`] keeps the one that there is if its files are the same.
fn certificate(old: &Config, new: &Config) -> Option<Change> {
    let same = match (&old.tls, &new.tls) {
        (Some(old), Some(new)) => Arc::ptr_eq(old, new),
        (None, None) => true,
        _ => false,
    };
    (!same).then(|| Change::SetCertificate { tls: new.tls.clone() })
}

/// As [`Server::addresses`](fairlift::Server::addresses) calls it.
fn name_of(listener: &Listener) -> String {
    use std::os::fd::AsRawFd as _;
    match &listener.address {
        Address::Inherited(socket) => format!("socket {} from the service manager", socket.as_raw_fd()),
        address => place::show(address),
    }
}

fn groups(old: &Config, new: &Config, changes: &mut Vec<Change>) {
    for group in new.groups.iter().filter(|group| group.parent.is_some()) {
        match old.groups.iter().find(|before| before.path == group.path) {
            None => changes.push(Change::AddGroup { path: group.path.clone(), weight: group.weight }),
            Some(before) if before.weight != group.weight => {
                changes.push(Change::SetWeight { group: group.path.clone(), weight: group.weight });
            }
            Some(_) => {}
        }
    }
    for group in &new.groups {
        let [before, after] = [old, new].map(|config| config.bounds.get(&group.path).copied().unwrap_or_default());
        if before != after {
            changes.push(Change::SetBounds { group: group.path.clone(), bounds: after });
        }
    }
}

fn turn_disk(old: &Disk, new: &Disk, changes: &mut Vec<Change>, fixed: &mut Vec<Fixed>) {
    let disk = || new.name.clone();
    for (key, same) in [
        ("shared_tags", old.shared_tags == new.shared_tags),
        ("io_timeout", old.io_timeout == new.io_timeout),
        ("concurrency", old.concurrency == new.concurrency),
    ] {
        if !same {
            let says = "is a disk's from start to end; restart the server, or use another disk".into();
            fixed.push(Fixed { of: Of::Disk(disk()), key, says });
        }
    }
    let (was, is) = (knobs(old), knobs(new));
    // A tunable that is not set any more has its default again, which only a new scheduler gives it.
    let is_unset = was.keys().any(|knob| !is.contains_key(knob));
    // One that nobody names follows the tenants.
    let scheduler = |disk: &Disk| Some(disk.scheduler).filter(|_| !disk.is_usual);
    if scheduler(old) != scheduler(new) || is_unset {
        let (scheduler, is_usual) = (new.scheduler, new.is_usual);
        changes.push(Change::SetScheduler { disk: disk(), scheduler, is_usual, set: new.set.clone() });
    } else {
        let set = is.into_iter().filter(|(knob, value)| was.get(knob) != Some(value));
        changes.extend(set.map(|(knob, value)| Change::SetKnob {
            disk: disk(),
            knob: knob.into(),
            value: value.into(),
        }));
    }
    let depth = (old.depth != new.depth).then(|| Change::SetDepth { disk: disk(), depth: new.depth });
    let requests = (old.nr_requests != new.nr_requests)
        .then(|| Change::SetNrRequests { disk: disk(), nr_requests: new.nr_requests });
    changes.extend(requests.into_iter().chain(depth));
}

/// Given twice, the last one holds.
fn knobs(disk: &Disk) -> BTreeMap<&str, &str> {
    disk.set.iter().map(|(knob, value)| (knob.as_str(), value.as_str())).collect()
}

/// An export, by names.
pub(crate) fn named(config: &Config, export: &Export) -> NewExport {
    NewExport {
        name: export.name.clone(),
        description: export.description.clone(),
        backing: export.backing.clone(),
        offset: export.offset,
        size: export.size,
        disk: disk_name(config, export).map(str::to_owned),
        group: path(config, export.group).to_owned(),
        priority: export.priority,
        read_only: export.read_only,
        vhost_user: export.vhost_user.clone(),
        ublk: export.ublk.clone(),
    }
}

fn turn_export(
    (old, was): (&Config, &Export),
    (new, is): (&Config, &Export),
    changes: &mut Vec<Change>,
    fixed: &mut Vec<Fixed>,
) {
    let export = || is.name.clone();
    let mut refuse = |key, why: String| {
        let says = format!("{why}; give the new one another name, or take the export away, reload, and add it again");
        fixed.push(Fixed { of: Of::Export(is.name.clone()), key, says });
    };
    if !is_same(&was.backing, &is.backing) {
        refuse("backing", "clients would find other data on the same disk".into());
    }
    if let (Backing::Fault(was), Backing::Fault(is)) = (&was.backing, &is.backing)
        && (&was.path, &was.faults) != (&is.path, &is.faults)
    {
        let (path, faults) = (is.path.clone(), is.faults.clone());
        changes.push(Change::SetFaults { export: export(), path, faults });
    }
    if was.offset != is.offset {
        refuse("offset", "clients would find other data on the same disk".into());
    }
    if was.vhost_user != is.vhost_user {
        refuse("vhost_user", "a socket for virtual machines comes and goes with its export".into());
    }
    if was.ublk != is.ublk {
        refuse("ublk", "a block device comes and goes with its export".into());
    }
    let (from, to) = (disk_name(old, was), disk_name(new, is));
    if from != to {
        let show = |disk: Option<&str>| disk.map_or_else(|| "its own".to_owned(), |disk| format!("{disk:?}"));
        refuse("disk", format!("cannot go from disk {} to {} while it is served", show(from), show(to)));
    }
    match (was.size, is.size) {
        (Some(before), Some(now)) if now < before => {
            refuse("size", format!("cannot shrink from {} to {}", show_size(before), show_size(now)));
        }
        (before, now) if before != now => changes.push(Change::Grow { export: export(), size: now }),
        _ => {}
    }
    let group = path(new, is.group);
    if path(old, was.group) != group {
        changes.push(Change::MoveExport { export: export(), group: group.to_owned() });
    }
    if was.priority != is.priority {
        changes.push(Change::SetPriority { export: export(), priority: is.priority });
    }
    if was.read_only != is.read_only {
        changes.push(Change::SetReadOnly { export: export(), read_only: is.read_only });
    }
    if was.description != is.description {
        changes.push(Change::SetDescription { export: export(), description: is.description.clone() });
    }
}

/// Rules of faults can change.
fn is_same(a: &Backing, b: &Backing) -> bool {
    match (a, b) {
        (Backing::Fault(a), Backing::Fault(b)) => is_same(&a.inner, &b.inner),
        (a, b) => a == b,
    }
}

/// What shall be in force when a file says `new` that said `was` before, and `now` is in force (difference.3): `new` with the
/// disks that were made for exports which name none, and with what was added otherwise. `rotates`: whether a disk does.
pub(crate) fn wanted(now: &Config, was: &Config, new: &Config, rotates: impl Fn(&str) -> bool) -> Config {
    let mut wanted = new.clone();
    let is_said = |disk: &str| [was, new].iter().any(|config| find_disk(config, disk).is_some());
    for disk in &mut wanted.disks {
        let Some(there) = find_disk(now, &disk.name) else { continue };
        settle(disk, there, &rotates);
        keep_knobs(disk, there, find_disk(was, &disk.name));
    }
    for disk in now.disks.iter().filter(|disk| !is_said(&disk.name)) {
        wanted.disks.push(disk.clone());
    }
    let place = |wanted: &Config, name: &str| wanted.disks.iter().position(|disk| disk.name == name);
    for at in 0..wanted.exports.len() {
        let export = &wanted.exports[at];
        let there = now.exports.iter().find(|there| there.name == export.name);
        let Some(made) = there.and_then(|there| disk_name(now, there)).filter(|made| !is_said(made)) else { continue };
        if export.disk.is_none() {
            let disk = place(&wanted, made).expect("put there above");
            wanted.disks[disk] = Disk { name: made.to_owned(), ..new.disk_default.clone() };
            if let Some(there) = find_disk(now, made) {
                settle(&mut wanted.disks[disk], there, &rotates);
                keep_knobs(&mut wanted.disks[disk], there, Some(&was.disk_default));
            }
            wanted.exports[at].disk = Some(disk);
        }
    }
    for export in &now.exports {
        if [was, new].iter().any(|config| config.exports.iter().any(|one| one.name == export.name)) {
            continue;
        }
        let disk = disk_name(now, export).map(|name| {
            place(&wanted, name).unwrap_or_else(|| {
                wanted.disks.extend(find_disk(now, name).cloned());
                wanted.disks.len() - 1
            })
        });
        let group = keep_group(&mut wanted, now, export.group);
        wanted.exports.push(Export { disk, group, ..export.clone() });
    }
    for (at, group) in now.groups.iter().enumerate() {
        if ![was, new].iter().any(|config| config.groups.iter().any(|one| one.path == group.path)) {
            keep_group(&mut wanted, now, GroupId(at as u16));
        }
    }
    let is_any_port = |listener: &Listener| matches!(&listener.address, Address::Tcp(address) if address.port() == 0);
    let has = |config: &Config, name: &str| config.listeners.iter().any(|one| name_of(one) == name);
    // A listener whose port is left to the kernel keeps the port that the kernel chose.
    wanted.listeners.retain(|one| !(is_any_port(one) && has(was, &name_of(one))));
    let others = now.listeners.iter().filter(|one| !has(was, &name_of(one)) && !has(new, &name_of(one)));
    wanted.listeners.extend(others.cloned());
    wanted
}

/// The scheduler of a disk that is there, if nobody names it: the one that it has, or one of as many tenants where it is known whether
/// the disk rotates.
fn settle(disk: &mut Disk, there: &Disk, rotates: impl Fn(&str) -> bool) {
    if disk.is_usual && there.is_usual {
        disk.scheduler = there.scheduler;
    } else if disk.is_usual && disk.set.is_empty() {
        let tenants = if disk.scheduler.has_weights() { 2 } else { 1 };
        disk.scheduler = sched::Kind::usual(tenants, rotates(&disk.name));
    }
}

/// The tunables that a disk has now and that the file neither names nor named, as far as its scheduler has them.
fn keep_knobs(disk: &mut Disk, now: &Disk, was: Option<&Disk>) {
    let is_of_all = |knob: &str| flush::Settings::INFO.iter().any(|info| info.name == knob);
    let is_said = |knob: &str| [was, Some(disk)].into_iter().flatten().any(|disk| knobs(disk).contains_key(knob));
    let kept =
        now.set.iter().filter(|(knob, _)| !is_said(knob) && (now.scheduler == disk.scheduler || is_of_all(knob)));
    let kept: Vec<_> = kept.cloned().collect();
    disk.set.extend(kept);
}

/// The group as it is now, with those above it, if it is not wanted anyway.
fn keep_group(wanted: &mut Config, now: &Config, group: GroupId) -> GroupId {
    let group = &now.groups[usize::from(group.0)];
    if let Some(at) = wanted.groups.iter().position(|there| there.path == group.path) {
        return GroupId(at as u16);
    }
    let parent = group.parent.map(|parent| keep_group(wanted, now, parent));
    if let Some(bounds) = now.bounds.get(&group.path) {
        wanted.bounds.insert(group.path.clone(), *bounds);
    }
    wanted.groups.push(Group { parent, ..group.clone() });
    GroupId((wanted.groups.len() - 1) as u16)
}

/// A change as people read it, beside what there was.
pub(crate) fn describe(change: &Change, old: &Config) -> String {
    let disk = |name: &str| find_disk(old, name);
    let export = |name: &str| old.exports.iter().find(|one| one.name == name);
    let auto = |number: Option<u32>| number.map_or_else(|| "default".to_owned(), |number| number.to_string());
    match change {
        Change::AddGroup { path, weight } => format!("group {path:?}: added, weight {weight}"),
        Change::RemoveGroup { path } => format!("group {path:?}: removed"),
        Change::SetWeight { group, weight } => {
            let was = old.groups.iter().find(|one| one.path == *group).map_or(0, |one| one.weight);
            format!("group {group:?}: weight {weight} (was {was})")
        }
        Change::SetBounds { group, bounds } => {
            let was = old.bounds.get(group).copied().unwrap_or_default();
            format!("group {group:?}: {} (was {})", bounds, was)
        }
        Change::AddDisk(disk) => format!("disk {:?}: added, scheduler {}", disk.name, disk.scheduler.name()),
        Change::RemoveDisk { disk } => format!("disk {disk:?}: removed"),
        Change::SetScheduler { disk: name, scheduler, set, .. } => {
            let was = disk(name).filter(|disk| disk.scheduler == *scheduler);
            if let Some(differ) = was.map(|was| differ(was, set)).filter(|differ| !differ.is_empty()) {
                return format!("disk {name:?}: {differ}");
            }
            let was = disk(name).map_or("", |disk| disk.scheduler.name());
            let set = set.iter().map(|(knob, value)| format!(", {knob} = {value}")).collect::<String>();
            format!("disk {name:?}: scheduler {}{set} (was {was})", scheduler.name())
        }
        Change::SetKnob { disk: name, knob, value } => {
            let was = disk(name).and_then(|disk| knobs(disk).get(knob.as_str()).copied()).unwrap_or("default");
            format!("disk {name:?}: {knob} = {value} (was {was})")
        }
        Change::SetDepth { disk: name, depth } => {
            let was = disk(name).and_then(|disk| disk.depth).map(u32::from);
            format!("disk {name:?}: depth {} (was {})", auto(depth.map(u32::from)), auto(was))
        }
        Change::SetNrRequests { disk: name, nr_requests } => {
            let was = disk(name).and_then(|disk| disk.nr_requests);
            format!("disk {name:?}: nr_requests {} (was {})", auto(*nr_requests), auto(was))
        }
        Change::AddExport(new) => {
            format!("export {:?}: added, {}, group {:?}", new.name, new.backing.about().shown, new.group)
        }
        Change::RemoveExport { export, how: Leave::Drain } => format!("export {export:?}: removed"),
        Change::RemoveExport { export, how: Leave::Cut } => {
            format!("export {export:?}: removed, and its clients cut off")
        }
        Change::MoveExport { export: name, group } => {
            let was = export(name).map_or("", |one| path(old, one.group));
            format!("export {name:?}: group {group:?} (was {was:?})")
        }
        Change::SetPriority { export: name, priority } => {
            let was = export(name).map_or_else(String::new, |one| ioprio(one.priority));
            format!("export {name:?}: ioprio {} (was {was})", ioprio(*priority))
        }
        Change::SetReadOnly { export: name, read_only } => {
            format!("export {name:?}: {}", if *read_only { "read-only now" } else { "can be written now" })
        }
        Change::SetDescription { export: name, description } => format!("export {name:?}: description {description:?}"),
        Change::Grow { export: name, size } => {
            format!("export {name:?}: size {}", size.map_or_else(|| "up to the end".to_owned(), show_size))
        }
        Change::SetFaults { export: name, path, faults } => faults_of(name, path, faults),
        Change::AddListener(listener) => format!("listener {}: added", name_of(listener)),
        Change::RemoveListener { address } => format!("listener {address}: removed"),
        Change::SetCertificate { tls: Some(_) } => "certificate: another one, for connections from now on".into(),
        Change::SetCertificate { tls: None } => "certificate: none".into(),
    }
}

/// Disks that have another scheduler after changes because of their tenants, a line each.
pub(crate) fn suited(before: &Config, after: &Config) -> Vec<String> {
    let both = after.disks.iter().filter_map(|disk| Some((find_disk(before, &disk.name)?, disk)));
    both.filter(|(was, is)| was.is_usual && is.is_usual && was.scheduler != is.scheduler)
        .map(|(was, is)| {
            let (was, name) = (was.scheduler.name(), &is.name);
            format!("disk {name:?}: scheduler {} (was {was}), for its tenants to share it", is.scheduler.name())
        })
        .collect()
}

fn faults_of(export: &str, path: &Path, faults: &Faults) -> String {
    let rules = faults.rules.len();
    format!("export {export:?}: faults of {}, {rules} rule{}", path.display(), if rules == 1 { "" } else { "s" })
}

/// What another set of tunables changes under one scheduler: those that it leaves out have their defaults again.
fn differ(old: &Disk, set: &[(String, String)]) -> String {
    let (was, is) = (knobs(old), BTreeMap::from_iter(set.iter().map(|(knob, value)| (knob.as_str(), value.as_str()))));
    let all: BTreeSet<_> = was.keys().chain(is.keys()).copied().filter(|knob| was.get(knob) != is.get(knob)).collect();
    let value = |of: &BTreeMap<&str, &str>, knob: &str| of.get(knob).copied().unwrap_or("default").to_owned();
    let all: Vec<_> =
        all.into_iter().map(|knob| format!("{knob} = {} (was {})", value(&is, knob), value(&was, knob))).collect();
    all.join(", ")
}

fn ioprio(priority: Priority) -> String {
    match priority.class {
        PriorityClass::RealTime => format!("rt/{}", priority.level),
        PriorityClass::BestEffort => format!("be/{}", priority.level),
        PriorityClass::Idle => "idle".into(),
    }
}

#[cfg(test)]
mod tests;
