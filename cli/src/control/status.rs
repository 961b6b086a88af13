//! Status: how much of which disk each tenant has now, beside what its weight entitles it to, and what it waits for.

use std::collections::{BTreeMap, BTreeSet};

use fairlift::config::Config;
use fairlift::control::{State, View, view};
use fairlift_core::objective::{Room, Standing};
use fairlift_core::waits::Doing;
use serde_json::{Value, json};

use super::did::{self, All, Did};

/// The least part of its time that is told of a tenant.
const LEAST: f64 = 0.01;

/// What was done between two looks at a server.
pub(super) fn status(state: &State, before: &View, after: &View, seconds: f64) -> Value {
    let mut disks = Vec::new();
    let mut tenants = Vec::new();
    let outside = [before, after].map(|view| did::outside(state, view));
    let exports = exports(state);
    for disk in &after.disks {
        let was = before.disks.iter().find(|old| old.name == disk.name);
        let all = All::new(disk, was, outside.clone());
        let rows: BTreeMap<&str, Did> = all.paths().map(|path| (path, all.of(path))).collect();
        let sum = |of: fn(&Did) -> f64| rows.values().map(of).sum::<f64>();
        let (bytes, had, ops) = (sum(|did| did.bytes as f64), sum(|did| did.had), sum(|did| did.ops as f64));
        let active: Vec<&str> = rows.iter().filter(|(_, did)| did.is_active()).map(|(path, _)| *path).collect();
        let entitled = entitled(state, &active);
        let none = Did::default();
        let there = exports.get(&*disk.name);
        let mut paths: BTreeSet<&str> = rows.keys().copied().collect();
        paths.extend(there.into_iter().flat_map(BTreeMap::keys));
        let weights = weights(state);
        for path in paths {
            let did = rows.get(path).unwrap_or(&none);
            let part = |mine: f64, all: f64| if all > 0.0 { mine / all } else { 0.0 };
            let entitled = entitled.get(path);
            let latency = disk.objective(path).map(|(_, standing)| standing);
            tenants.push(json!({
                "path": path,
                "disk": disk.name,
                "exports": there.and_then(|there| there.get(path)),
                "weight": weights.get(path),
                "share": part(did.bytes as f64, bytes),
                "use": part(did.had, seconds * f64::from(disk.queues.max(1))),
                "entitled": entitled,
                "score": entitled.map(|entitled| part(part(did.had, had), *entitled)),
                "iops": did.ops as f64 / seconds,
                "bps": did.bytes as f64 / seconds,
                "p50_us": quantile(did, 500),
                "p99_us": quantile(did, 990),
                "latency_target_us": latency.map(|standing| standing.target.as_nanos() as f64 / 1000.0),
                "latency_met": latency.and_then(Standing::met),
                "latency_given_up": latency.map(|standing| standing.room == Room::GivenUp),
                "in_flight": did.in_flight,
                "waiting": did.open.saturating_sub(did.in_flight),
                "waits": waits(did, seconds),
            }));
        }
        let doing = |of: fn(&Doing) -> fairlift_core::Duration| {
            let was = was.map_or(0.0, |was| did::seconds(of(&was.doing)));
            ((did::seconds(of(&disk.doing)) - was) / seconds / f64::from(disk.queues.max(1))).clamp(0.0, 1.0)
        };
        disks.push(json!({
            "name": disk.name,
            "scheduler": disk.scheduler.name(),
            "depth": disk.depth,
            "in_flight": disk.in_flight,
            "waiting": disk.waiting,
            "use": f64::from(disk.in_flight) / f64::from(disk.depth.max(1)),
            "busy": doing(|doing| doing.busy),
            "flushing": doing(|doing| doing.flushing),
            "idling": doing(|doing| doing.idling),
            "iops": ops / seconds + 0.0, // a sum of nothing is -0.0
            "bps": bytes / seconds + 0.0,
        }));
    }
    json!({
        "version": state.version,
        "seconds": seconds,
        "disks": disks,
        "tenants": tenants,
        "engine": after.engine,
        "connections": after.clients.len(),
        "flush_errors": after.flush_errors.len(),
    })
}

/// What a disk cannot do that is asked of it.
pub(super) fn warnings(view: &View) -> impl Iterator<Item = String> {
    let short = view.disks.iter().filter_map(|disk| Some(format!("disk {:?}: {}", disk.name, disk.floors_short?)));
    let given_up = view.disks.iter().flat_map(|disk| {
        let all = disk.objectives.iter().filter(|(_, standing)| standing.room == Room::GivenUp);
        all.map(|(group, standing)| format!("disk {:?}: {}", disk.name, view::given_up(group, standing.target)))
    });
    let parted = view.links.iter().filter(|(_, link)| link.up < link.of).map(|(name, link)| {
        let since = link.since.elapsed().unwrap_or_default().as_secs();
        format!("{name}: degraded for {since} s, {} of {} connections: {}", link.up, link.of, link.why)
    });
    let doubt = view.links.iter().filter(|(_, link)| link.in_doubt).map(|(name, _)| {
        format!("{name}: a connection was lost before writes were flushed; they may be lost, and the next flush fails")
    });
    short.chain(given_up).chain(parted).chain(doubt)
}

/// What a tenant's time went into, what took less than a hundredth left out: a [`Part`](fairlift_core::waits::Part), or `client` for
/// the client's pauses. Empty: it has asked for nothing.
fn waits(did: &Did, seconds: f64) -> Value {
    if !did.is_active() {
        return json!({});
    }
    let client = [("client", 1.0 - did.active_part(seconds))];
    let all = did.parts(seconds).map(|(part, share)| (part.name(), share)).chain(client);
    all.filter(|(_, share)| *share >= LEAST).map(|(name, share)| (name.to_owned(), json!(share))).collect()
}

fn quantile(did: &Did, per_mille: u32) -> Option<f64> {
    (!did.latency.is_empty()).then(|| did.latency.estimate(per_mille).as_nanos() as f64 / 1000.0)
}

fn weights(state: &State) -> BTreeMap<&str, u16> {
    state.config.groups.iter().map(|group| (&*group.path, group.weight)).collect()
}

/// The exports of each disk, by group.
fn exports(state: &State) -> BTreeMap<&str, BTreeMap<&str, Vec<&str>>> {
    let Config { exports, disks, groups, .. } = &state.config;
    let mut all: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for export in exports {
        let Some(disk) = export.disk else { continue };
        let group = &*groups[usize::from(export.group.0)].path;
        all.entry(&*disks[disk].name).or_default().entry(group).or_default().push(&export.name);
    }
    all
}

/// What part of a disk each group is entitled to while all of `active` ask for it.
pub(super) fn entitled<'a>(state: &State, active: &[&'a str]) -> BTreeMap<&'a str, f64> {
    let groups = &state.config.groups;
    let numbers: BTreeMap<&str, usize> = groups.iter().enumerate().map(|(at, group)| (&*group.path, at)).collect();
    let number = |path: &str| numbers.get(path).copied();
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
    use fairlift::config::{Disk, Engine, Limits};
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
            engine: Engine::Auto,
            limits: Limits::default(),
            tls: None,
            roots: Vec::new(),
        };
        let state = State { version: 0, config };
        let all = entitled(&state, &["/t/a", "/t/b", "/u"]);
        assert_eq!((all["/t/a"], all["/t/b"], all["/u"]), (0.75 * 0.75, 0.75 * 0.25, 0.25));
        assert_eq!(entitled(&state, &["/t/a", "/u"])["/t/a"], 0.75);
        assert_eq!(entitled(&state, &["/t/b"])["/t/b"], 1.0);
        assert_eq!(entitled(&state, &["/", "/u"])["/u"], 0.5, "exports of the root count as one");
    }
}
