//! Pools that this server shares with other gateways: each gateway's part of one, and each group's part over all of them.
//!
//! Every view (`gateways`, `status`, `top`, `why`, the page, metrics) has these figures from here. They are those by which the last period was
//! divided (docs/cluster.md). Example: `pool` of a tenant is {"had": 0.25, "here": 0.20, "due": 0.25}: a quarter of all gateways' service was
//! this group's, most of it here, and a quarter was due.

use fairlift::gateways::{Due, GatewayView, PoolView};
use serde_json::{Value, json};

use super::activity::seconds;

/// Parts of less are not told of.
const LEAST: f64 = 0.0005;

/// A group's part of the pool that its disk is of; `None`: the disk is of no pool, or nothing is known of the group there.
pub(super) fn of<'a>(pools: &'a [PoolView], disk: &str, path: &str) -> Option<&'a Due> {
    pools.iter().find(|pool| pool.disk == disk)?.groups.get(path)
}

/// The key `pool` of a tenant.
pub(super) fn shown(pools: &[PoolView], disk: &str, path: &str) -> Value {
    of(pools, disk, path).map_or(Value::Null, |due| json!({"had": due.served, "here": due.here, "due": due.due}))
}

pub(super) fn gateways(pools: &[PoolView]) -> Value {
    pools.iter().map(pool).collect()
}

fn pool(pool: &PoolView) -> Value {
    let part = |served: f64| if pool.served > 0.0 { served / pool.served } else { 0.0 };
    let gateway = |seen: &GatewayView| {
        json!({
            "name": seen.name,
            "own": seen.is_own,
            "periods": seen.age,
            "groups": seen.groups,
            "depth": seen.depth,
            "had": part(seen.served),
            "due": seen.due,
            "wrong": wrong(pool, seen),
        })
    };
    let group = |(path, due): (&String, &Due)| {
        let mut shown = shown(std::slice::from_ref(pool), &pool.disk, path);
        shown["path"] = path.as_str().into();
        shown["weight"] = due.settings.weight.get().into();
        shown["wrong"] = due.differs.then_some("set otherwise at another gateway: what was changed last holds").into();
        shown
    };
    json!({
        "disk": pool.disk,
        "shares": pool.place,
        "gateway": pool.gateway,
        "heard_seconds": pool.heard.map(seconds),
        "trouble": pool.trouble,
        "depth": pool.pool_depth,
        "room": pool.room.as_ref().map(|(group, part)| json!({"group": group, "part": part})),
        "gateways": pool.gateways.iter().map(gateway).collect::<Value>(),
        "groups": pool.groups.iter().filter(|(path, due)| *path != "/" || due.served > LEAST).map(group).collect::<Value>(),
    })
}

fn wrong(pool: &PoolView, seen: &GatewayView) -> Option<String> {
    let deaf = pool.trouble.as_ref().filter(|_| seen.is_own).map(|why| format!("does not hear the others: {why}"));
    let marks = [
        (seen.is_gone, "gone: its part is the others'"),
        (seen.is_unreadable, "its last report cannot be read"),
        (seen.is_twin, "another gateway has this name"),
    ];
    let marks = marks.into_iter().filter(|(is_so, _)| *is_so).map(|(_, says)| says.to_owned());
    let all: Vec<_> = deaf.into_iter().chain(marks).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Faults of the pools' gateways, for `status`.
pub(super) fn warnings(pools: &[PoolView]) -> impl Iterator<Item = String> {
    pools.iter().flat_map(|pool| {
        pool.gateways.iter().filter_map(move |seen| {
            let wrong = wrong(pool, seen)?;
            Some(format!("disk {:?}: gateway {:?}: {wrong}", pool.disk, seen.name))
        })
    })
}
