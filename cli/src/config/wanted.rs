//! The configuration wanted when a config file is read again.
//!
//! wanted.1  A file that is read again decides about all that it names, or named when it was read last. Additions made otherwise since (by
//!           `fairlift add`) stay, and so does a tunable that only `fairlift set` has named; other changes are undone, as the file has it.

use std::sync::Arc;

use fairlift::config::{Config, Disk, Export, Listener};
use fairlift_core::{Group, GroupId, flush, sched};

use crate::syntax::place::tcp_address;
use crate::syntax::scheduler::check_setting;

fn find_disk<'a>(config: &'a Config, name: &str) -> Option<&'a Disk> {
    config.disks.iter().find(|disk| disk.name == name)
}

fn disk_name<'a>(config: &'a Config, export: &Export) -> Option<&'a str> {
    export.disk.map(|disk| config.disks[disk].name.as_str())
}

/// The configuration to be in force when a file says `new` that said `was` before, and `now` is in force (wanted.1): `new` with the disks
/// that were made for exports which name none, and with additions made otherwise. `rotates`: whether a disk does.
pub(crate) fn wanted(now: &Config, was: &Config, new: &Config, rotates: impl Fn(&str) -> bool) -> Config {
    let mut wanted = new.clone();
    let is_in_file = |disk: &str| [was, new].iter().any(|config| find_disk(config, disk).is_some());
    for disk in Arc::make_mut(&mut wanted.disks) {
        let Some(there) = find_disk(now, &disk.name) else { continue };
        settle(disk, there, find_disk(was, &disk.name), &rotates);
    }
    for disk in now.disks.iter().filter(|disk| !is_in_file(&disk.name)) {
        Arc::make_mut(&mut wanted.disks).push(disk.clone());
    }
    let place = |wanted: &Config, name: &str| wanted.disks.iter().position(|disk| disk.name == name);
    for at in 0..wanted.exports.len() {
        let export = &wanted.exports[at];
        let there = now.exports.iter().find(|there| there.name == export.name);
        let Some(made) = there.and_then(|there| disk_name(now, there)).filter(|made| !is_in_file(made)) else {
            continue;
        };
        if export.disk.is_none() {
            let disk = place(&wanted, made).expect("put there above");
            let made_anew = &mut Arc::make_mut(&mut wanted.disks)[disk];
            *made_anew = Disk { name: made.to_owned(), ..new.disk_default.clone() };
            if let Some(there) = find_disk(now, made) {
                settle(made_anew, there, Some(&was.disk_default), &rotates);
            }
            Arc::make_mut(&mut wanted.exports)[at].disk = Some(disk);
        }
    }
    for export in now.exports.iter() {
        if [was, new].iter().any(|config| config.exports.iter().any(|one| one.name == export.name)) {
            continue;
        }
        let disk = disk_name(now, export).map(|name| {
            place(&wanted, name).unwrap_or_else(|| {
                Arc::make_mut(&mut wanted.disks).extend(find_disk(now, name).cloned());
                wanted.disks.len() - 1
            })
        });
        let group = keep_group(&mut wanted, now, export.group);
        Arc::make_mut(&mut wanted.exports).push(Export { disk, group, ..export.clone() });
    }
    for (at, group) in now.groups.iter().enumerate() {
        if ![was, new].iter().any(|config| config.groups.iter().any(|one| one.path == group.path)) {
            keep_group(&mut wanted, now, GroupId(at as u16));
        }
    }
    let has = |config: &Config, name: &str| config.listeners.iter().any(|one| one.address.to_string() == name);
    let is_other = |one: &&Listener| ![was, new].iter().any(|config| has(config, &one.address.to_string()));
    let mut others: Vec<_> = now.listeners.iter().filter(is_other).cloned().collect();
    // A listener whose port is left to the kernel keeps the port that the kernel chose. (Those of the file come first.)
    for listener in was.listeners.iter() {
        let Some(any) = tcp_address(&listener.address).filter(|address| address.port() == 0) else { continue };
        let is_it = |one: &Listener| {
            one.tls == listener.tls && tcp_address(&one.address).is_some_and(|address| address.ip() == any.ip())
        };
        let there = others.iter().position(is_it).map(|at| others.remove(at));
        let is_in_file = |one: &Listener| tcp_address(&one.address) == Some(any);
        let Some(at) = wanted.listeners.iter().position(is_in_file) else { continue };
        match there {
            Some(there) => wanted.listeners[at].address = there.address,
            None => _ = wanted.listeners.remove(at),
        }
    }
    wanted.listeners.extend(others);
    let is_in_file = |name: &str| [was, new].iter().any(|config| config.clients.iter().any(|rule| rule.name == name));
    wanted.clients.extend(now.clients.iter().filter(|rule| !is_in_file(&rule.name)).cloned());
    wanted
}

/// The scheduler of an existing disk, if none is named: the present one, or the usual one for as many tenants where it is known whether the
/// disk rotates. With it come the tunables that the disk has now and that the file neither names nor named (in `was`), as far as the scheduler has them.
fn settle(disk: &mut Disk, there: &Disk, was: Option<&Disk>, rotates: impl Fn(&str) -> bool) {
    if disk.is_usual && there.is_usual {
        disk.scheduler = there.scheduler;
        // The file says them with the scheduler of its own tenants. Another one, which a tenant by command has brought, may not have them.
        disk.set.retain(|(knob, value)| check_setting(there.scheduler, knob, value).is_ok());
    } else if disk.is_usual && disk.set.is_empty() {
        let tenants = if disk.scheduler.has_weights() { 2 } else { 1 };
        disk.scheduler = sched::Kind::usual(tenants, rotates(&disk.name));
    }
    let is_of_all = |knob: &str| flush::Settings::INFO.iter().any(|info| info.name == knob);
    let is_in_file =
        |knob: &str| [was, Some(disk)].into_iter().flatten().any(|disk| disk.set.iter().any(|(one, _)| one == knob));
    let fits = |knob: &str| there.scheduler == disk.scheduler || is_of_all(knob);
    let kept = there.set.iter().filter(|(knob, _)| !is_in_file(knob) && fits(knob));
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
        Arc::make_mut(&mut wanted.bounds).insert(group.path.clone(), *bounds);
    }
    Arc::make_mut(&mut wanted.groups).push(Group { parent, ..group.clone() });
    GroupId((wanted.groups.len() - 1) as u16)
}

#[cfg(test)]
mod tests;
