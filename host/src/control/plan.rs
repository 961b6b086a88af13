//! Plan: what a configuration is after a change, or why the change cannot be made. Nothing is opened or touched here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use fairlift_core::ceiling::Bounds;
use fairlift_core::sched::Setup;
use fairlift_core::{Group, GroupId, flush, sched, suggestion, tunable};

use super::change::{Change, NewExport};
use crate::config::{Backing, Config, Disk, Export, Faults, Listener, Tls};
use crate::export::listen;

/// As many groups as have numbers, some of which may be taken by groups that are leaving.
const GROUPS: usize = 60_000;

/// As deep as the tree may be: what walks it may recurse.
const LEVELS: usize = 32;

/// Makes one change of a configuration in which every export names its disk, but for those that were added here.
///
/// # Errors
/// What was asked, and what is possible; the configuration may then be changed in part, and is of no use.
pub fn change(config: &mut Config, change: &Change) -> Result<(), String> {
    match change {
        Change::AddGroup { path, weight } => add_group(config, path, *weight),
        Change::RemoveGroup { path } => remove_group(config, path),
        Change::SetWeight { group, weight } => set_weight(config, group, *weight),
        Change::SetBounds { group, bounds } => set_bounds(config, group, bounds),
        Change::AddDisk(disk) => add_disk(config, disk),
        Change::RemoveDisk { disk } => remove_disk(config, disk),
        Change::SetScheduler { disk, scheduler, is_usual, set } => {
            let disk = find_disk(config, disk)?;
            set_scheduler(disk, *scheduler, set)?;
            disk.is_usual = *is_usual;
            Ok(())
        }
        Change::SetKnob { disk, knob, value } => {
            let disk = find_disk(config, disk)?;
            check_knob(disk.scheduler, knob, value)?;
            put(&mut disk.set, knob, value);
            Ok(())
        }
        Change::SetDepth { disk, depth } => {
            let disk = find_disk(config, disk)?;
            disk.depth = *depth;
            check_bounds(disk)
        }
        Change::SetNrRequests { disk, nr_requests } => {
            let disk = find_disk(config, disk)?;
            disk.nr_requests = *nr_requests;
            check_bounds(disk)
        }
        Change::AddExport(new) => add_export(config, new),
        Change::RemoveExport { export, .. } => {
            let at = find_export(config, export)?;
            config.exports.remove(at);
            Ok(())
        }
        Change::MoveExport { export, group } => {
            let group = find_group(config, group);
            the_export(config, export)?.group = group?;
            Ok(())
        }
        Change::SetPriority { export, priority } => {
            the_export(config, export)?.priority = *priority;
            Ok(())
        }
        Change::SetReadOnly { export, read_only } => {
            the_export(config, export)?.read_only = *read_only;
            Ok(())
        }
        Change::SetDescription { export, description } => {
            let export = the_export(config, export)?;
            check_description(description)?;
            export.description.clone_from(description);
            Ok(())
        }
        Change::Grow { export, size } => grow(the_export(config, export)?, *size),
        Change::SetFaults { export, path, faults } => set_faults(config, export, path, faults),
        Change::AddListener(listener) => add_listener(config, listener),
        Change::RemoveListener { address } => remove_listener(config, address),
        Change::SetCertificate { tls } => set_certificate(config, tls.as_ref()),
    }
}

/// "There is no group "/tenats"; did you mean "/tenants"?", or all that there are if they are few.
fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone, there_are: &str) -> String {
    let hint = suggestion(name, known.clone());
    let mut says = format!("there is no {what} \"{}\"", name.escape_debug());
    if !hint.is_empty() {
        return says + &hint;
    }
    let some: Vec<_> = known.clone().take(8).collect();
    says += "; ";
    says += there_are;
    says += " ";
    match (some.len(), known.count()) {
        (0, _) => says += "none",
        (8, more) if more > 8 => says += &format!("{} and {} more", some.join(", "), more - 8),
        _ => says += &some.join(", "),
    }
    says
}

// ---- groups ----

/// Whether `path` can name a group.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub fn check_path(path: &str) -> Result<(), String> {
    if !path.starts_with('/') {
        return Err(format!("a group's path starts at the root: \"/{path}\""));
    }
    if path != "/" && path[1..].split('/').any(str::is_empty) {
        let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
        return Err(format!("a group's path has no empty parts; did you mean \"/{}\"?", parts.join("/")));
    }
    if path.chars().any(char::is_control) {
        return Err("a group's path has no control characters".into());
    }
    if path.matches('/').count() > LEVELS {
        return Err(format!("a group is at most {LEVELS} levels deep"));
    }
    if path.len() > 4096 {
        return Err("a group's path has at most 4096 bytes".into());
    }
    Ok(())
}

fn check_weight(weight: u16) -> Result<(), String> {
    if (1..=Group::WEIGHT_MAX).contains(&weight) {
        return Ok(());
    }
    Err(format!("weight takes a number from 1 to {}, not {weight}", Group::WEIGHT_MAX))
}

fn position(config: &Config, path: &str) -> Option<GroupId> {
    config.groups.iter().position(|group| group.path == path).map(|at| GroupId(at as u16))
}

fn find_group(config: &Config, path: &str) -> Result<GroupId, String> {
    let paths = config.groups.iter().map(|group| group.path.as_str());
    position(config, path).ok_or_else(|| unknown("group", path, paths, "there are"))
}

fn add_group(config: &mut Config, path: &str, weight: u16) -> Result<(), String> {
    check_path(path)?;
    check_weight(weight)?;
    if position(config, path).is_some() {
        return Err(format!("there is a group \"{path}\" already"));
    }
    let mut parent = GroupId::ROOT;
    let ends = path.match_indices('/').skip(1).map(|(at, _)| at).chain([path.len()]);
    let mut known: BTreeMap<&str, GroupId> = BTreeMap::new();
    for (at, group) in config.groups.iter().enumerate() {
        if path.starts_with(&group.path) {
            known.insert(&group.path, GroupId(at as u16));
        }
    }
    let mut missing = Vec::new();
    for end in ends {
        match known.get(&path[..end]) {
            Some(there) => parent = *there,
            None => missing.push(&path[..end]),
        }
    }
    if config.groups.len() + missing.len() > GROUPS {
        return Err(format!("there are at most {GROUPS} groups"));
    }
    for part in missing {
        let weight = if part == path { weight } else { Group::WEIGHT_DEFAULT };
        config.groups.push(Group { path: part.to_owned(), parent: Some(parent), weight });
        parent = GroupId((config.groups.len() - 1) as u16);
    }
    Ok(())
}

fn set_weight(config: &mut Config, path: &str, weight: u16) -> Result<(), String> {
    let at = find_group(config, path)?;
    check_weight(weight)?;
    if at == GroupId::ROOT {
        return Err("the root has no siblings, so that a weight of it would mean nothing".into());
    }
    config.groups[usize::from(at.0)].weight = weight;
    Ok(())
}

/// The groups of the exports on a disk, which the configuration names for each.
pub fn tenants(config: &Config, disk: usize) -> BTreeSet<GroupId> {
    config.exports.iter().filter(|export| export.disk == Some(disk)).map(|export| export.group).collect()
}

/// The scheduler of a disk: if nobody named it the one that suits its tenants, which is one with weights for two, and `fair` where a
/// floor or a latency was promised.
pub(crate) fn suitable(config: &Config, disk: usize, rotates: bool) -> sched::Kind {
    if !config.disks[disk].is_usual {
        return config.disks[disk].scheduler;
    }
    let tenants = tenants(config, disk);
    let is_promised = |group: &Group| {
        let bounds = config.bounds.get(&group.path);
        bounds.is_some_and(|bounds| !bounds.floor.is_none() || bounds.latency.is_some())
    };
    let is_promised = tenants.iter().any(|group| ancestors(config, *group).any(is_promised));
    if is_promised { sched::Kind::Fair } else { sched::Kind::usual(tenants.len(), rotates) }
}

/// Gives a disk the scheduler that suits it; but if tunables of another were said with it, it keeps that one.
pub fn settle(config: &mut Config, disk: usize, rotates: bool) {
    let suits = suitable(config, disk, rotates);
    let there = &mut config.disks[disk];
    if there.set.iter().all(|(knob, _)| tunables(suits).any(|name| name == knob)) {
        there.scheduler = suits;
    }
}

/// A group, those above it, and the root.
fn ancestors(config: &Config, group: GroupId) -> impl Iterator<Item = &Group> {
    let of = |group: GroupId| &config.groups[usize::from(group.0)];
    std::iter::successors(Some(of(group)), move |group| group.parent.map(of))
}

/// What can be turned on a disk with a scheduler.
fn tunables(scheduler: sched::Kind) -> impl Iterator<Item = &'static str> + Clone {
    scheduler.tunables().iter().chain(flush::Settings::INFO).map(|info| info.name)
}

/// Whether each group with a floor is on disks only whose scheduler has floors, as far as exports name their disks.
///
/// # Errors
/// The path of the first that is not, and why.
pub fn check_floors(config: &Config) -> Result<(), (String, String)> {
    for (path, _) in config.bounds.iter().filter(|(_, bounds)| !bounds.floor.is_none()) {
        for export in &config.exports {
            if !ancestors(config, export.group).any(|group| group.path == *path) {
                continue;
            }
            let disk = export.disk.map_or(&config.disk_default, |disk| &config.disks[disk]);
            // Where nobody named it, the scheduler follows what is promised.
            if !disk.is_usual && !disk.scheduler.has_floors() {
                let why = format!(
                    "export {:?} is on a disk with scheduler {}, which keeps no floors; fair does",
                    export.name,
                    disk.scheduler.name()
                );
                return Err((path.clone(), why));
            }
        }
    }
    Ok(())
}

fn set_bounds(config: &mut Config, group: &str, bounds: &Bounds) -> Result<(), String> {
    let at = find_group(config, group)?;
    let root = if at == GroupId::ROOT { bounds.check_root() } else { Ok(()) };
    root.and_then(|()| bounds.check()).map_err(|wrong| wrong.to_string())?;
    config.bounds.remove(group);
    if !bounds.is_none() {
        config.bounds.insert(group.to_owned(), *bounds);
    }
    Ok(())
}

fn remove_group(config: &mut Config, path: &str) -> Result<(), String> {
    let at = find_group(config, path)?;
    if at == GroupId::ROOT {
        return Err("the root is always there".into());
    }
    let exports = config.exports.iter().filter(|export| export.group == at).map(|export| &export.name);
    let below = config.groups.iter().filter(|group| group.parent == Some(at)).map(|group| &group.path);
    in_use("group", path, "export", exports.collect())?;
    in_use("group", path, "group", below.collect())?;
    config.groups.remove(usize::from(at.0));
    config.bounds.remove(path);
    let shift = |id: &mut GroupId| id.0 -= u16::from(*id > at);
    config.groups.iter_mut().filter_map(|group| group.parent.as_mut()).for_each(shift);
    config.exports.iter_mut().for_each(|export| shift(&mut export.group));
    Ok(())
}

/// Refuses to remove what others use, and says who does.
fn in_use(what: &str, name: &str, user: &str, users: Vec<&String>) -> Result<(), String> {
    match &users[..] {
        [] => Ok(()),
        [one] => Err(format!("{what} \"{name}\" is in use: {user} \"{one}\" is in it")),
        [first, rest @ ..] => {
            Err(format!("{what} \"{name}\" is in use: {user} \"{first}\" and {} more are in it", rest.len()))
        }
    }
}

// ---- disks ----

fn find_disk<'a>(config: &'a mut Config, name: &str) -> Result<&'a mut Disk, String> {
    let Some(at) = config.disks.iter().position(|disk| disk.name == name) else {
        return Err(unknown("disk", name, config.disks.iter().map(|disk| disk.name.as_str()), "there are"));
    };
    Ok(&mut config.disks[at])
}

fn set_scheduler(disk: &mut Disk, scheduler: sched::Kind, set: &[(String, String)]) -> Result<(), String> {
    set.iter().try_for_each(|(knob, value)| check_knob(scheduler, knob, value))?;
    disk.set.clear();
    for (knob, value) in set {
        put(&mut disk.set, knob, value); // Given twice, the last one holds.
    }
    disk.scheduler = scheduler;
    Ok(())
}

fn put(set: &mut Vec<(String, String)>, knob: &str, value: &str) {
    set.retain(|(one, _)| one != knob);
    set.push((knob.to_owned(), value.to_owned()));
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

/// (Whether they fit each other is looked at when all is said.)
fn check_bounds(disk: &Disk) -> Result<(), String> {
    if let Some(depth) = disk.depth
        && !(1..=4096).contains(&depth)
    {
        return Err(format!("depth takes a number from 1 to 4096, not {depth}"));
    }
    match disk.nr_requests {
        Some(number) if !(1..=1 << 20).contains(&number) => {
            Err(format!("nr_requests takes a number from 1 to 1048576, not {number}"))
        }
        _ => Ok(()),
    }
}

fn check_name(what: &str, name: &str) -> Result<(), String> {
    if name.len() > 4096 {
        return Err(format!("{what}'s name has at most 4096 bytes, not {}", name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err(format!("{what}'s name has no control characters"));
    }
    Ok(())
}

fn add_disk(config: &mut Config, disk: &Disk) -> Result<(), String> {
    check_name("a disk", &disk.name)?;
    if disk.name.is_empty() {
        return Err("a disk needs a name".into());
    }
    if config.disks.iter().any(|there| there.name == disk.name) {
        return Err(format!("there is a disk \"{}\" already", disk.name));
    }
    disk.set.iter().try_for_each(|(knob, value)| check_knob(disk.scheduler, knob, value))?;
    check_bounds(disk)?;
    config.disks.push(disk.clone());
    Ok(())
}

fn remove_disk(config: &mut Config, name: &str) -> Result<(), String> {
    find_disk(config, name)?;
    let at = config.disks.iter().position(|disk| disk.name == name).expect("found just now");
    let exports = config.exports.iter().filter(|export| export.disk == Some(at)).map(|export| &export.name);
    in_use("disk", name, "export", exports.collect())?;
    config.disks.remove(at);
    let disks = config.exports.iter_mut().filter_map(|export| export.disk.as_mut());
    disks.for_each(|disk| *disk -= usize::from(*disk > at));
    Ok(())
}

// ---- exports ----

fn find_export(config: &Config, name: &str) -> Result<usize, String> {
    let names = config.exports.iter().map(|export| export.name.as_str());
    config
        .exports
        .iter()
        .position(|export| export.name == name)
        .ok_or_else(|| unknown("export", name, names, "there are"))
}

fn the_export<'a>(config: &'a mut Config, name: &str) -> Result<&'a mut Export, String> {
    let at = find_export(config, name)?;
    Ok(&mut config.exports[at])
}

/// Exports of one backing with faults share the rules.
fn set_faults(config: &mut Config, export: &str, path: &Path, faults: &Faults) -> Result<(), String> {
    let Backing::Fault(there) = &the_export(config, export)?.backing else {
        return Err(format!(
            "export \"{export}\" has no faults to change: its backing is none with rules (fault:RULES,inner=BACKING)"
        ));
    };
    let name = there.name.clone();
    for one in &mut config.exports {
        if let Backing::Fault(there) = &mut one.backing
            && there.name == name
        {
            (there.path, there.faults) = (path.to_owned(), faults.clone());
        }
    }
    Ok(())
}

fn grow(export: &mut Export, size: Option<u64>) -> Result<(), String> {
    check_size(size)?;
    if let (Some(now), Some(size)) = (export.size, size)
        && size < now
    {
        return Err(format!(
            "export \"{}\" has {now} bytes and can only grow, for its clients were told of them; {size} is less",
            export.name
        ));
    }
    export.size = size;
    Ok(())
}

fn check_size(size: Option<u64>) -> Result<(), String> {
    match size {
        Some(size) if size == 0 || size % 512 != 0 => Err(format!("size takes a multiple of 512 above 0, not {size}")),
        _ => Ok(()),
    }
}

fn check_description(text: &str) -> Result<(), String> {
    if text.len() > 4096 { Err("a description has at most 4096 bytes".into()) } else { Ok(()) }
}

fn add_export(config: &mut Config, new: &NewExport) -> Result<(), String> {
    check_name("an export", &new.name)?;
    check_description(&new.description)?;
    if config.exports.iter().any(|there| there.name == new.name) {
        return Err(format!("there is an export \"{}\" already", new.name));
    }
    if !new.offset.is_multiple_of(512) {
        return Err(format!("offset takes a multiple of 512, not {}", new.offset));
    }
    check_size(new.size)?;
    let disk = match &new.disk {
        Some(name) => {
            find_disk(config, name)?;
            config.disks.iter().position(|disk| disk.name == *name)
        }
        None => None,
    };
    let group = find_group(config, &new.group)?;
    if let Some(path) = &new.vhost_user
        && let Some(there) = config.exports.iter().find(|there| there.vhost_user.as_ref() == Some(path))
    {
        return Err(format!("export \"{}\" has the socket {} (vhost_user) already", there.name, path.display()));
    }
    if let Some(ublk) = &new.ublk {
        ublk.check()?;
        let same = |there: &&Export| ublk.id.is_some() && there.ublk.as_ref().is_some_and(|other| other.id == ublk.id);
        if let Some(there) = config.exports.iter().find(same) {
            return Err(format!("export \"{}\" has the ublk device of that id already", there.name));
        }
    }
    config.exports.push(Export {
        name: new.name.clone(),
        description: new.description.clone(),
        backing: new.backing.clone(),
        offset: new.offset,
        size: new.size,
        disk,
        group,
        priority: new.priority,
        read_only: new.read_only,
        vhost_user: new.vhost_user.clone(),
        ublk: new.ublk.clone(),
    });
    Ok(())
}

// ---- listeners ----

fn add_listener(config: &mut Config, listener: &Listener) -> Result<(), String> {
    let name = listen::name(&listener.address);
    if config.listeners.iter().any(|there| listen::name(&there.address) == name) {
        return Err(format!("it listens at {name} already"));
    }
    config.listeners.push(listener.clone());
    Ok(())
}

fn remove_listener(config: &mut Config, address: &str) -> Result<(), String> {
    let names: Vec<_> = config.listeners.iter().map(|listener| listen::name(&listener.address)).collect();
    let at = names.iter().position(|name| name == address);
    let unknown = || unknown("listener", address, names.iter().map(String::as_str), "it listens at");
    config.listeners.remove(at.ok_or_else(unknown)?);
    Ok(())
}

fn set_certificate(config: &mut Config, tls: Option<&Arc<rustls::ServerConfig>>) -> Result<(), String> {
    let needs = config.listeners.iter().find(|listener| listener.tls != Tls::Off);
    if let (None, Some(listener)) = (tls, needs) {
        return Err(format!("{} needs a certificate", listen::name(&listener.address)));
    }
    config.tls = tls.cloned();
    Ok(())
}
