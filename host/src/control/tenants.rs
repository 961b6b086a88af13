//! Tenants: those that share a disk, and the scheduler that they need.

use std::collections::BTreeSet;
use std::sync::Arc;

use fairlift_core::{Group, GroupId, flush, sched};

use crate::config::{Config, Disk};

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
    let there = &mut Arc::make_mut(&mut config.disks)[disk];
    if there.set.iter().all(|(knob, _)| tunables(suits).any(|name| name == knob)) {
        there.scheduler = suits;
    }
}

/// Gives a disk whose scheduler nobody named another one: of its tunables those stay that all schedulers have.
pub(crate) fn turn(disk: &mut Disk, scheduler: sched::Kind) {
    disk.scheduler = scheduler;
    disk.set.retain(|(knob, _)| flush::Settings::INFO.iter().any(|info| info.name == knob));
}

fn ancestors(config: &Config, group: GroupId) -> impl Iterator<Item = &Group> {
    let of = |group: GroupId| &config.groups[usize::from(group.0)];
    std::iter::successors(Some(of(group)), move |group| group.parent.map(of))
}

pub(super) fn tunables(scheduler: sched::Kind) -> impl Iterator<Item = &'static str> + Clone {
    scheduler.tunables().iter().chain(flush::Settings::INFO).map(|info| info.name)
}

/// Whether each group with a floor is on disks only whose scheduler has floors, as far as exports name their disks.
///
/// # Errors
/// The path of the first that is not, and why.
pub fn check_floors(config: &Config) -> Result<(), (String, String)> {
    for (path, _) in config.bounds.iter().filter(|(_, bounds)| !bounds.floor.is_none()) {
        for export in config.exports.iter() {
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
