//! Pools that this server shares with other gateways: each gateway's part of one, and each group's part over all of them.
//!
//! Every view (`gateways`, `status`, `top`, `why`, the page, metrics) has these figures from here. They are those by which the last period was
//! divided (docs/cluster.md). Example: `pool` of a tenant is {"had": 0.25, "here": 0.20, "due": 0.25}: a quarter of all gateways' service was
//! this group's, most of it here, and a quarter was due.

use std::fmt::Write as _;

use fairlift::gateways::{Due, GatewayView, PoolView};
use serde_json::{Value, json};

/// Parts of less are not told of.
const LEAST: f64 = 0.0005;

/// A group's part of the pool that its disk is of; `None`: the disk is of no pool, or nothing is known of the group there.
pub(super) fn of<'a>(pools: &'a [PoolView], disk: &str, path: &str) -> Option<&'a Due> {
    pools.iter().find(|pool| pool.disk == disk)?.groups.get(path)
}

/// The key `pool` of a tenant.
pub(super) fn beside(pools: &[PoolView], disk: &Value, path: &Value) -> Value {
    let found = disk.as_str().zip(path.as_str()).and_then(|(disk, path)| of(pools, disk, path));
    found.map_or(Value::Null, |due| json!({"had": due.served, "here": due.here, "due": due.due}))
}

/// All pools, with their gateways and the groups that were told of.
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
        let mut shown = beside(std::slice::from_ref(pool), &pool.disk.as_str().into(), &path.as_str().into());
        shown["path"] = path.as_str().into();
        shown["weight"] = due.settings.weight.get().into();
        shown["wrong"] = due.differs.then_some("set otherwise at another gateway: what was changed last holds").into();
        shown
    };
    json!({
        "disk": pool.disk,
        "shares": pool.place,
        "gateway": pool.gateway,
        "heard_seconds": pool.heard.map(|since| since.as_nanos() as f64 / 1e9),
        "trouble": pool.trouble,
        "depth": pool.pool_depth,
        "room": pool.room.as_ref().map(|(group, part)| json!({"group": group, "part": part})),
        "gateways": pool.gateways.iter().map(gateway).collect::<Value>(),
        "groups": pool.groups.iter().filter(|(path, due)| *path != "/" || due.served > LEAST).map(group).collect::<Value>(),
    })
}

fn wrong(pool: &PoolView, seen: &GatewayView) -> Option<String> {
    let mut all = Vec::new();
    match &pool.trouble {
        Some(why) if seen.is_own => all.push(format!("does not hear the others: {why}")),
        _ => {}
    }
    if seen.is_gone {
        all.push("gone: its part is the others'".into());
    }
    if seen.is_unreadable {
        all.push("its last report cannot be read".into());
    }
    if seen.is_twin {
        all.push("another gateway has this name".into());
    }
    (!all.is_empty()).then(|| all.join("; "))
}

/// Faults of the pools' gateways, for `status`.
pub(super) fn warnings(pools: &[PoolView]) -> impl Iterator<Item = String> {
    pools.iter().flat_map(|pool| {
        pool.gateways.iter().filter_map(move |seen| {
            let mut says = format!("disk {:?}: gateway {:?}: ", pool.disk, seen.name);
            write!(says, "{}", wrong(pool, seen)?).ok()?;
            Some(says)
        })
    })
}
