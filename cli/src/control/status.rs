//! Status: each tenant's share and due of each disk ([`shares`](super::shares)), and the causes of its waits.

use std::collections::{BTreeMap, BTreeSet};

use fairlift::access::Grant;
use fairlift::control::{State, View};
use fairlift::gateways::PoolView;
use fairlift_core::Duration;
use fairlift_core::objective::{Room, Standing};
use fairlift_core::stats::Histogram;
use fairlift_core::waits::Doing;
use serde_json::{Value, json};

use super::activity::{self, Activity, All};
use super::shares::{Share, Waits};
use super::{pools, shares, show};

/// The least part of its time that is told of a tenant.
const LEAST: f64 = 0.01;

/// The work between two looks at a server, as far as a client may see it: of a tenant its rows, and its disks with their figures alone (roles.2).
pub(super) fn status(role: &Grant, state: &State, [before, after]: [&View; 2], pools: &[PoolView]) -> Value {
    let is_tenant = matches!(role, Grant::Tenant(_));
    let mut streams = 0;
    let seconds = activity::seconds(after.at.since(before.at));
    let mut disks = Vec::new();
    let mut tenants = Vec::new();
    let outside = [before, after].map(|view| activity::outside(state, view));
    let exports = exports(state);
    let weights = state.config.groups.iter().map(|group| (&*group.path, group.weight.get()));
    let weights: BTreeMap<&str, u16> = weights.collect();
    for disk in &after.disks {
        let was = before.disks.iter().find(|old| old.name == disk.name);
        let all = All::new(disk, was, &outside);
        let rows: BTreeMap<&str, Activity> = all.paths().map(|path| (path, all.of(path))).collect();
        let bytes = rows.values().map(|activity| activity.bytes as f64).sum::<f64>();
        let shares = shares::shares(state, disk, &rows, seconds);
        let entitled = shares::by_weight(disk.scheduler, state, shares.keys().copied());
        let none = Activity::default();
        let there = exports.get(&*disk.name);
        let mut paths: BTreeSet<&str> = rows.keys().copied().collect();
        paths.extend(there.into_iter().flat_map(BTreeMap::keys));
        paths.retain(|path| role.sees(path));
        if is_tenant && paths.is_empty() {
            continue;
        }
        for &path in &paths {
            let activity = rows.get(path).unwrap_or(&none);
            let part = |mine: f64, all: f64| if all > 0.0 { mine / all } else { 0.0 };
            let (share, took) = (shares.get(path), all.latency(path));
            let latency = disk.objective(path).map(|(_, standing)| standing);
            let mut tenant = json!({
                "path": path,
                "disk": disk.name,
                "exports": there.and_then(|there| there.get(path)),
                "weight": weights.get(path),
                "share": part(activity.bytes as f64, bytes),
                "use": part(activity.had, seconds * f64::from(disk.queues.max(1))),
                "entitled": entitled.get(path),
                "had": share.map_or(0.0, |share| share.had),
                "due": share.map(|share| share.due),
                "due_by": share.map(|share| share.by.name()),
                "score": share.and_then(Share::score),
                "short": share.is_some_and(|share| share.is_short()),
                "iops": activity.ops as f64 / seconds,
                "bps": activity.bytes as f64 / seconds,
                "cached_iops": activity.cache.hits as f64 / seconds,
                "missed_iops": activity.cache.misses as f64 / seconds,
                "missed_bps": activity.cache.miss_bytes as f64 / seconds,
                "p50_us": quantile(&took, 500),
                "p99_us": quantile(&took, 990),
                "latency_target_us": latency.map(|standing| standing.target.as_nanos() as f64 / 1000.0),
                "latency_met": latency.and_then(Standing::met),
                "latency_given_up": latency.map(|standing| standing.room == Room::GivenUp),
                "in_flight": activity.in_flight,
                "waiting": activity.waiting(),
                "connections": activity.streams,
                "waits": waits(activity, share.copied(), seconds),
                "pool": pools::shown(pools, &disk.name, path),
            });
            show::bounds(&state.config, path, &mut tenant);
            tenants.push(tenant);
        }
        let sum = |of: fn(&Activity) -> u64| paths.iter().filter_map(|path| rows.get(path)).map(of).sum::<u64>();
        streams += sum(|activity| activity.streams.into());
        let (in_flight, waiting) = match is_tenant {
            true => (sum(|activity| activity.in_flight.into()), sum(|activity| activity.waiting().into())),
            false => (disk.in_flight.into(), disk.waiting.into()),
        };
        let mut shown = json!({
            "name": disk.name,
            "scheduler": disk.scheduler.name(),
            "depth": disk.depth,
            "in_flight": in_flight,
            "waiting": waiting,
        });
        if !is_tenant {
            let doing = |of: fn(&Doing) -> Duration| activity::doing(disk, was, seconds, of).into();
            shown["use"] = (f64::from(disk.in_flight) / f64::from(disk.depth.max(1))).into();
            shown["busy"] = doing(|doing| doing.busy);
            shown["flushing"] = doing(|doing| doing.flushing);
            shown["idling"] = doing(|doing| doing.idling);
        }
        shown["iops"] = (sum(|activity| activity.ops) as f64 / seconds).into();
        shown["bps"] = (sum(|activity| activity.bytes) as f64 / seconds).into();
        disks.push(shown);
    }
    let rules = state.config.clients.iter().filter(|_| !is_tenant);
    json!({
        "version": state.version,
        "seconds": seconds,
        "disks": disks,
        "tenants": tenants,
        "engine": after.engine,
        "connections": if is_tenant { streams } else { after.clients.len() as u64 },
        "clients": rules.map(|rule| show::client_rule(rule, after)).collect::<Value>(),
        "flush_errors": if is_tenant { 0 } else { after.flush_errors.len() },
    })
}

/// The demands that a disk cannot meet.
pub(super) fn warnings(view: &View) -> impl Iterator<Item = String> {
    let short = view.disks.iter().filter_map(|disk| Some(format!("disk {:?}: {}", disk.name, disk.floors_short?)));
    let given_up = view.disks.iter().flat_map(|disk| {
        let all = disk.objectives.iter().filter(|(_, standing)| standing.room == Room::GivenUp);
        all.map(|(group, standing)| format!("disk {:?}: {}", disk.name, disk.given_up(group, standing.target)))
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

/// The parts of a tenant's time by their names, with `client` for the client's pauses, from [`LEAST`] on. Empty: it has asked for nothing.
fn waits(activity: &Activity, share: Option<Share>, seconds: f64) -> Value {
    if !activity.is_active() {
        return json!({});
    }
    let client = [("client", 1.0 - activity.active_part(seconds))];
    let waits = share.map_or(Waits::NONE, |share| share.waits);
    let all = activity.time_by_part(seconds, waits).map(|(part, share)| (part.name(), share)).chain(client);
    all.filter(|(_, share)| *share >= LEAST).map(|(name, share)| (name.to_owned(), json!(share))).collect()
}

fn quantile(took: &Histogram, per_mille: u32) -> Option<f64> {
    (!took.is_empty()).then(|| took.estimate(per_mille).as_nanos() as f64 / 1000.0)
}

/// The exports of each disk, by group.
fn exports(state: &State) -> BTreeMap<&str, BTreeMap<&str, Vec<&str>>> {
    let config = &state.config;
    let mut all: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for export in config.exports.iter() {
        let Some(disk) = export.disk else { continue };
        let of_disk = all.entry(&*config.disks[disk].name).or_default();
        of_disk.entry(&*config.group(export).path).or_default().push(&export.name);
    }
    all
}
