//! Status: who has how much of which disk now, beside what weights entitle to.

use std::collections::{BTreeMap, BTreeSet};

use fairlift::config::Config;
use fairlift::control::view::{DiskView, GroupView};
use fairlift::control::{State, View};
use fairlift_core::Op;
use fairlift_core::stats::{Histogram, Stats};
use serde_json::{Value, json};

/// What was done between two looks at a server.
pub(super) fn status(state: &State, before: &View, after: &View, seconds: f64) -> Value {
    let mut disks = Vec::new();
    let mut tenants = Vec::new();
    for disk in &after.disks {
        let old = before.disks.iter().find(|old| old.name == disk.name);
        let rows = rows(disk, old, seconds);
        let all = rows.iter().fold(0.0, |all, row| all + row.bps);
        let active: Vec<&str> = rows.iter().filter(|row| row.is_active()).map(|row| &*row.group.path).collect();
        let entitled = entitled(state, &active);
        for row in &rows {
            let weight =
                state.config.groups.iter().find(|group| group.path == row.group.path).map(|group| group.weight);
            tenants.push(json!({
                "path": row.group.path,
                "disk": disk.name,
                "weight": weight,
                "share": if all > 0.0 { row.bps / all } else { 0.0 },
                "entitled": entitled.get(&*row.group.path),
                "iops": row.iops,
                "bps": row.bps,
                "p50_us": row.quantile(500),
                "p99_us": row.quantile(990),
                "in_flight": row.group.figures.in_flight,
                "waiting": row.group.figures.open.saturating_sub(row.group.figures.in_flight),
            }));
        }
        let shown: BTreeSet<_> = rows.iter().map(|row| &*row.group.path).collect();
        for path in tenants_of(state, &disk.name).difference(&shown) {
            tenants.push(idle(state, &disk.name, path));
        }
        disks.push(json!({
            "name": disk.name,
            "scheduler": disk.scheduler.name(),
            "depth": disk.depth,
            "in_flight": disk.in_flight,
            "waiting": disk.waiting,
            "use": f64::from(disk.in_flight) / f64::from(disk.depth.max(1)),
            "bps": all,
        }));
    }
    json!({
        "version": state.version,
        "seconds": seconds,
        "disks": disks,
        "tenants": tenants,
        "connections": after.clients.len(),
        "flush_errors": after.flush_errors.len(),
    })
}

/// What a disk cannot do that is asked of it.
pub(super) fn warnings(view: &View) -> impl Iterator<Item = String> {
    let short = |disk: &DiskView| Some(format!("disk {:?}: {}", disk.name, disk.floors_short?));
    view.disks.iter().filter_map(short)
}

/// The groups that have exports on a disk.
fn tenants_of<'a>(state: &'a State, disk: &str) -> BTreeSet<&'a str> {
    let Config { exports, disks, groups, .. } = &state.config;
    let here = exports.iter().filter(|export| export.disk.is_some_and(|at| disks[at].name == disk));
    here.map(|export| &*groups[usize::from(export.group.0)].path).collect()
}

/// A tenant that has asked for nothing so far.
fn idle(state: &State, disk: &str, path: &str) -> Value {
    let weight = state.config.groups.iter().find(|group| group.path == path).map(|group| group.weight);
    json!({
        "path": path,
        "disk": disk,
        "weight": weight,
        "share": 0.0,
        "entitled": null,
        "iops": 0.0,
        "bps": 0.0,
        "p50_us": null,
        "p99_us": null,
        "in_flight": 0,
        "waiting": 0,
    })
}

struct Row<'a> {
    group: &'a GroupView,
    iops: f64,
    bps: f64,
    latency: Histogram,
}

impl Row<'_> {
    fn is_active(&self) -> bool {
        self.iops > 0.0 || self.group.figures.open > 0
    }

    fn quantile(&self, per_mille: u32) -> Option<f64> {
        (!self.latency.is_empty()).then(|| self.latency.quantile(per_mille).as_nanos() as f64 / 1000.0)
    }
}

fn rows<'a>(disk: &'a DiskView, old: Option<&DiskView>, seconds: f64) -> Vec<Row<'a>> {
    let none = Stats::default();
    let row = |group: &'a GroupView| {
        let before = old.and_then(|old| old.groups.iter().find(|old| old.path == group.path));
        let before = before.map_or(&none, |before| &before.figures.stats);
        let (mut ops, mut bytes, mut latency) = (0, 0, Histogram::default());
        for op in Op::ALL {
            ops += group.figures.stats.of(op).ops.saturating_sub(before.of(op).ops);
            bytes += group.figures.stats.of(op).bytes.saturating_sub(before.of(op).bytes);
            if let Some(now) = group.figures.stats.latency(op) {
                latency.add(&before.latency(op).map_or_else(|| now.clone(), |before| now.since(before)));
            }
        }
        Row { group, iops: ops as f64 / seconds, bps: bytes as f64 / seconds, latency }
    };
    disk.groups.iter().map(row).collect()
}

/// What part of a disk each group is entitled to while all of `active` ask for it.
pub(super) fn entitled<'a>(state: &State, active: &[&'a str]) -> BTreeMap<&'a str, f64> {
    let groups = &state.config.groups;
    let number = |path: &str| groups.iter().position(|group| group.path == path);
    // A group competes as itself, and all below it as it.
    let mut competes = vec![false; groups.len()];
    let mut own = vec![false; groups.len()];
    for path in active {
        let mut at = number(path);
        if let Some(at) = at {
            own[at] = true;
        }
        while let Some(here) = at.filter(|here| !std::mem::replace(&mut competes[*here], true)) {
            at = groups[here].parent.map(|parent| usize::from(parent.0));
        }
    }
    // What each has to divide among those directly below it, and itself, which counts as one of the default weight.
    let mut sums = vec![0.0; groups.len()];
    for (at, group) in groups.iter().enumerate().filter(|(at, _)| competes[*at]) {
        if let Some(parent) = group.parent {
            sums[usize::from(parent.0)] += f64::from(group.weight);
        }
        if own[at] {
            sums[at] += f64::from(fairlift_core::Group::WEIGHT_DEFAULT);
        }
    }
    let mut parts = vec![0.0; groups.len()];
    for (at, group) in groups.iter().enumerate().filter(|(at, _)| competes[*at]) {
        parts[at] = match group.parent.map(|parent| usize::from(parent.0)) {
            None => 1.0,
            Some(parent) => parts[parent] * f64::from(group.weight) / sums[parent],
        };
    }
    let whole = |at: usize| parts[at] * f64::from(fairlift_core::Group::WEIGHT_DEFAULT) / sums[at];
    active.iter().filter_map(|path| Some((*path, whole(number(path)?)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift::config::{Disk, Limits};
    use fairlift_core::{Group, GroupId, sched};

    #[test]
    fn what_a_group_is_entitled_to_depends_on_who_else_asks() {
        let group = |path: &str, parent, weight| Group { path: path.into(), parent: Some(GroupId(parent)), weight };
        let groups =
            vec![Group::root(), group("/t", 0, 300), group("/t/a", 1, 300), group("/t/b", 1, 100), group("/u", 0, 100)];
        let config = Config {
            groups,
            bounds: Default::default(),
            disk_default: Disk::new("d", sched::Kind::Fair),
            disks: vec![],
            exports: vec![],
            listeners: vec![],
            workers: None,
            limits: Limits::default(),
            tls: None,
        };
        let state = State { version: 0, config };
        let all = entitled(&state, &["/t/a", "/t/b", "/u"]);
        assert_eq!((all["/t/a"], all["/t/b"], all["/u"]), (0.75 * 0.75, 0.75 * 0.25, 0.25));
        assert_eq!(entitled(&state, &["/t/a", "/u"])["/t/a"], 0.75);
        assert_eq!(entitled(&state, &["/t/b"])["/t/b"], 1.0);
        assert_eq!(entitled(&state, &["/", "/u"])["/u"], 0.5, "exports of the root count as one");
    }
}
