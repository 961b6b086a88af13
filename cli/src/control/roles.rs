//! Roles: what a client of the control server may see and change.
//!
//! The rules are those of `[client.NAME]`, and [`Grant`] is their result for a client. Each row of the table of routes has the [`Right`]
//! that it needs; this file says which roles have it, and which part of an answer a tenant sees. Looks at `status`, `why` and metrics are asked
//! with the role, and leave out the rest themselves.
//!
//! roles.1  A request is measured by the role of the client when it has come to its end, and an answer that takes time by the role when it
//!          goes out. A stream ends where the role has become another one, or the token of the place.
//! roles.2  A tenant sees what is of its groups and below them, the names of the groups above, and of its disks the names. A neighbour is
//!          "another tenant", and no figure is of a neighbour alone, or of all but the tenant.
//! roles.3  A tenant sets keys that are delegated for a group, which this group or one above it says, in its groups and below them. All else
//!          is refused by one sentence, whether what it names is there or not.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use fairlift::access::{Grant, is_below};
use fairlift::config::Config;
use fairlift::control::{Event, State, View};
use fairlift_core::{Group, GroupId};
use serde_json::{Map, Value};

use super::failure::{Failure, fail};

/// The rights that a client needs for a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Right {
    /// None: the route says nothing of this server.
    None,
    /// To see something, which is then all that the answer has.
    Own,
    See,
    /// To change all, or to have been delegated what is asked ([`may_set`]).
    Delegated,
    Change,
}

impl Right {
    pub(super) fn changes(self) -> bool {
        matches!(self, Self::Delegated | Self::Change)
    }

    /// Whether a client of this role has it.
    pub(super) fn is_of(self, role: &Grant) -> Result<(), Failure> {
        match (self, role) {
            (Self::None, _)
            | (Self::Own | Self::See, Grant::See | Grant::Change)
            | (Self::Own | Self::Delegated, Grant::Tenant(_))
            | (_, Grant::Change) => Ok(()),
            (_, role) => refuse(role),
        }
    }
}

/// The clients with a right that this client does not have.
fn refuse<T>(role: &Grant) -> Result<T, Failure> {
    let says = match role {
        Grant::None => "no [client] of the config file says by control that this client may look at the server".into(),
        Grant::Tenant(own) => format!(
            "this client sees only {} and changes only the keys delegated to it there; all else is for clients with control = \"see\" or \"change\"",
            own.join(", ")
        ),
        Grant::See | Grant::Change => {
            "this client may look only: clients with control = \"change\" change things".into()
        }
    };
    fail(StatusCode::FORBIDDEN, says)
}

/// Whether these keys of a group may be set (roles.3).
pub(super) fn may_set(role: &Grant, config: &Config, group: &str, keys: &Map<String, Value>) -> Result<(), Failure> {
    let Grant::Tenant(_) = role else { return Ok(()) };
    let is_there = config.groups.iter().any(|there| there.path == group);
    if is_there && role.sees(group) && keys.keys().all(|key| is_delegated(config, group, key)) {
        return Ok(());
    }
    refuse(role)
}

fn is_delegated(config: &Config, group: &str, key: &str) -> bool {
    config.delegated.iter().any(|(above, keys)| is_below(group, above) && keys.contains(key))
}

/// Whether a client may change the weight of some group, as the page offers.
pub(super) fn may_change(role: &Grant, config: &Config) -> bool {
    match role {
        Grant::None | Grant::See => false,
        Grant::Tenant(own) => own.iter().any(|group| is_delegated(config, group, "weight")),
        Grant::Change => true,
    }
}

/// The part of the state that a client may see (roles.2): a tenant's groups, with those above, its exports, its disks, and its clients.
pub(super) fn seen(role: &Grant, mut state: State, mut view: View) -> (State, View) {
    let Grant::Tenant(own) = role else { return (state, view) };
    let mut config = Config::clone(&state.config);
    let is_seen = |path: &str| role.sees(path) || own.iter().any(|own| is_below(own, path));
    let mut numbers = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for (at, group) in config.groups.iter().enumerate().filter(|(_, group)| is_seen(&group.path)) {
        numbers.insert(GroupId(at as u16), GroupId(groups.len() as u16));
        groups.push(Group { parent: group.parent.map(|parent| numbers[&parent]), ..group.clone() });
    }
    let mut exports = config.exports.to_vec();
    exports.retain(|export| role.sees(&config.group(export).path));
    let mut disks = Vec::new();
    for export in &mut exports {
        export.group = numbers[&export.group];
        export.disk = export.disk.map(|disk| {
            let name = &config.disks[disk].name;
            disks.iter().position(|there: &fairlift::config::Disk| there.name == *name).unwrap_or_else(|| {
                disks.push(config.disks[disk].clone());
                disks.len() - 1
            })
        });
    }
    let is_own = |name: &String| exports.iter().any(|export| export.name == *name);
    view.clients.retain(|client| client.export.as_ref().is_some_and(is_own));
    view.block_devices.retain(|device| is_own(&device.export));
    view.exports.retain(|(name, _)| is_own(name));
    (view.disks, view.listeners, view.links, view.flush_errors) = Default::default();
    Arc::make_mut(&mut config.bounds).retain(|path, _| role.sees(path));
    (config.groups, config.exports, config.disks) = (groups.into(), exports.into(), disks.into());
    (config.listeners, config.clients, config.delegated) = Default::default();
    state.config = config.into();
    (state, view)
}

/// The detail of an event that an export has come from another group, which the event names.
pub(super) const MOVED: &str = "moved";

/// Whether an event is about something that a client may see: of a tenant, about one group or export that is its own now, and was before.
pub(super) fn tells(role: &Grant, config: &Config, event: &Event) -> bool {
    let Grant::Tenant(_) = role else { return true };
    if event.of.iter().any(|(key, _)| *key == MOVED) {
        return false;
    }
    let export = |name: &str| config.exports.iter().find(|export| export.name == name);
    event.of.iter().any(|(key, value)| match *key {
        "group" => role.sees(value),
        "export" => export(value).is_some_and(|export| role.sees(&config.group(export).path)),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use axum::http::Method;
    use fairlift::control::Event;

    use super::super::routes::{Does, ROUTES};
    use super::super::{Act, Kind};
    use super::*;

    fn tenant() -> Grant {
        Grant::Tenant(vec!["/t/a".into()])
    }

    /// Each row of the table, by each role.
    #[test]
    fn a_route_is_open_to_the_roles_that_have_its_right() {
        for route in ROUTES {
            let looks = route.method == Method::GET;
            let page = matches!(route.does, Does::Page(_));
            let of_all = matches!(
                route.does,
                Does::Trace
                    | Does::History
                    | Does::Gateways
                    | Does::List(Kind::Disk | Kind::Listener | Kind::Client)
                    | Does::Look(Kind::Disk | Kind::Listener | Kind::Client)
            );
            let delegated = route.does == Does::Change(Act::Set, Kind::Group);
            let got = [Grant::None, tenant(), Grant::See, Grant::Change].map(|role| route.needs.is_of(&role).is_ok());
            let wanted = [page, looks && !of_all || delegated, looks, true];
            assert_eq!(got, wanted, "{} {}", route.method, route.path);
            assert_eq!(route.needs.changes(), !looks, "{} {}", route.method, route.path);
        }
    }

    const GROUPS: [&str; 7] = ["/", "/t", "/t/a", "/t/a/x", "/t/a/x/y", "/t/ab", "/t/b"];

    fn config(delegated: &[(&str, &[&str])]) -> Config {
        let mut config = crate::control::changes::tests::config();
        let groups = GROUPS.map(|path| {
            let above = path.rsplit_once('/').map(|(above, _)| if above.is_empty() { "/" } else { above });
            let parent = GROUPS.iter().position(|one| Some(*one) == above && path != "/");
            Group { parent: parent.map(|at| GroupId(at as u16)), path: path.into(), ..Group::root() }
        });
        config.groups = groups.to_vec().into();
        let delegating = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        config.delegated = delegated.iter().map(|(path, keys)| ((*path).to_owned(), delegating(keys))).collect();
        config
    }

    /// roles.3: every group, with every set of groups that delegate.
    #[test]
    fn a_tenant_sets_what_its_group_or_one_above_delegates() {
        let mut allowed = 0;
        for group in GROUPS.iter().chain(&["/t/a/none", "/t/c"]) {
            for set in 0..1 << GROUPS.len() {
                let delegating = GROUPS.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
                let config = config(&delegating.map(|(_, path)| (*path, &["max"][..])).collect::<Vec<_>>());
                let above = |path: &&str| *path == "/" || *path == *group || group.starts_with(&format!("{path}/"));
                let is_delegated = GROUPS.iter().enumerate().any(|(at, path)| set >> at & 1 == 1 && above(path));
                let own = ["/t/a", "/t/a/x", "/t/a/x/y"].contains(group);
                let may = |role: &Grant, keys: &[&str]| {
                    let keys = keys.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
                    may_set(role, &config, group, &keys).is_ok()
                };
                assert_eq!(may(&tenant(), &["max"]), own && is_delegated, "{group} {:?}", config.delegated);
                assert!(!may(&tenant(), &["max", "weight"]) && !may(&tenant(), &["delegate"]), "{group}");
                assert!(may(&Grant::Change, &["weight"]));
                allowed += usize::from(own && is_delegated);
            }
        }
        assert!(allowed > 100, "{allowed}");
    }

    #[test]
    fn an_event_is_told_to_a_tenant_if_it_is_about_its_group() {
        let config = config(&[]);
        let tells = |of: Vec<(&'static str, &str)>, role: &Grant| {
            let of = of.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
            tells(role, &config, &Event { number: 1, at: std::time::SystemTime::now(), kind: "changed", of })
        };
        assert!(tells(vec![("group", "/t/a/x"), ("what", "x")], &tenant()));
        let moved = || vec![("group", "/t/a"), (MOVED, "true"), ("what", "group \"/t/a\" (was \"/t/b\")")];
        assert!(!tells(moved(), &tenant()) && tells(moved(), &Grant::See));
        for other in
            [("group", "/t/ab"), ("group", "/t"), ("export", "gone"), ("disk", "d"), ("what", "group \"/t/a\"")]
        {
            assert!(!tells(vec![other], &tenant()) && tells(vec![other], &Grant::See), "{other:?}");
        }
    }
}
