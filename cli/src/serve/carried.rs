//! Exports that were added to a running server, and stand in no file, are there in the server that takes over: sandboxes come and go by commands.
//!
//! carried.1  Exports that were added and never named by the file or the arguments go over, as a reload leaves them. So do groups that
//!            the config does not have, with their weight and bounds.
//! carried.2  All else that was changed by hand is a difference, and refused: the file is to say it, or a reload to take it back.

use std::collections::HashSet;

use fairlift::config::Config;
use fairlift::control::Edit;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::config::keys::live_group_keys;
use crate::control::Changes;
use crate::ways;

/// Keys of an export that describe its state, not a setting.
const FOUND: [&str; 2] = ["block_device", "connections"];

/// The settings of a server, as far as they are looked at here.
#[derive(Deserialize)]
struct Settings<'a> {
    #[serde(borrow)]
    exports: Vec<&'a RawValue>,
    #[serde(borrow)]
    groups: &'a RawValue,
}

/// A group, and those below it.
#[derive(Deserialize)]
struct Branch<'a> {
    path: String,
    #[serde(borrow)]
    groups: Vec<&'a RawValue>,
}

/// A config with the additions to a server: its settings, and which exports were added. `sized`: those with a size of their own, for the size that is
/// shown is what an export has.
///
/// # Errors
/// An export or a group cannot be as it was: which, and why.
pub(super) fn with_added(
    config: Config,
    settings: &RawValue,
    (added, sized): (&[String], &[String]),
) -> Result<Config, String> {
    let Settings { exports, groups: tree } = serde_json::from_str(settings.get()).map_err(|why| why.to_string())?;
    let mut list = Vec::new();
    let known: HashSet<&str> = config.groups.iter().map(|group| &*group.path).collect();
    groups(tree, &known, &mut list).map_err(|why| why.to_string())?;
    let mut edit = Edit::from(config);
    for export in exports.into_iter().filter(|_| !added.is_empty()) {
        let export: Map<String, Value> = serde_json::from_str(export.get()).map_err(|why| why.to_string())?;
        let name = export.get("name").and_then(Value::as_str).unwrap_or_default();
        if !added.iter().any(|one| one == name) || edit.config.exports.iter().any(|one| one.name == name) {
            continue;
        }
        let is_sized = sized.iter().any(|one| one == name);
        let mut keys = export;
        keys.retain(|key, value| !FOUND.contains(&key.as_str()) && !value.is_null());
        keys.retain(|key, _| key != "size" || is_sized);
        // A disk that nobody has named is found again by where the backing is.
        let is_named = |disk: &Value| edit.config.disks.iter().any(|one| disk == &one.name);
        keys.retain(|key, value| key != "disk" || is_named(value));
        keys.insert("add".into(), json!("export"));
        list.push(Value::Object(keys));
    }
    Changes::new(&mut edit, &ways::Flags::default(), false, None).transaction(&Value::Array(list))?;
    Ok(edit.config)
}

/// Adds the groups of a tree that are not known, each after the one above it: also those that no export is in any more.
fn groups(tree: &RawValue, known: &HashSet<&str>, list: &mut Vec<Value>) -> serde_json::Result<()> {
    let Branch { path, groups: below } = serde_json::from_str(tree.get())?;
    if !known.contains(&*path) {
        let mut keys: Map<String, Value> = serde_json::from_str(tree.get())?;
        keys.retain(|key, _| live_group_keys().any(|live| live == key));
        keys.extend([("add".to_owned(), json!("group")), ("name".to_owned(), json!(path))]);
        list.push(Value::Object(keys));
    }
    below.into_iter().try_for_each(|one| groups(one, known, list))
}

#[cfg(test)]
mod tests {
    use fairlift::config::Disk;
    use fairlift_core::sched;

    use super::*;

    fn config() -> Config {
        Config { disk_default: Disk::new("d", sched::Kind::None), ..Config::default() }
    }

    /// carried.1, carried.2
    #[test]
    fn exports_that_were_added_go_over_with_their_groups_and_no_others() {
        let export = |name: &str, group: &str| {
            json!({"name": name, "description": "", "backing": "null:1048576", "offset": 0, "size": 1048576, "disk": "null", "group": group,
                   "ioprio": "be/4", "read_only": true, "block_device": null, "connections": 3, "vhost_user": null})
        };
        let of_group = json!({"path": "/t/a", "weight": 300, "exports": ["a"], "max": {"rbps": 1048576}, "groups": []});
        let tree = json!({"path": "/", "weight": 100, "groups": [{"path": "/t", "weight": 200, "groups": [of_group]}]});
        let settings = json!({"exports": [export("a", "/t/a"), export("b", "/t")], "groups": tree});
        let settings = serde_json::value::to_raw_value(&settings).unwrap();
        let added = ["a".into(), "gone".into()];
        for (sized, size) in [(&[][..], None), (&added[..1], Some(1 << 20))] {
            let config = with_added(config(), &settings, (&added, sized)).unwrap();
            let exports: Vec<_> =
                config.exports.iter().map(|one| (&*one.name, one.read_only, one.disk, one.size)).collect();
            assert_eq!(exports, [("a", true, None, size)]);
        }
        let config = with_added(config(), &settings, (&added, &[])).unwrap();
        let weights: Vec<_> = config.groups.iter().map(|group| (&*group.path, group.weight.get())).collect();
        assert_eq!(weights, [("/", 100), ("/t", 200), ("/t/a", 300)]);
        assert!(config.bounds.contains_key("/t/a") && !config.bounds.contains_key("/t"));
    }

    /// carried.1: as the group of an export that was removed.
    #[test]
    fn a_group_goes_over_though_no_export_is_in_it() {
        let export = json!({"name": "a", "backing": "null:1048576", "group": "/a"});
        let of = |path: &str, below: Value| json!({"path": path, "weight": 300, "exports": [], "groups": below});
        let tree = of("/", json!([of("/a", json!([])), of("/left", json!([of("/left/below", json!([]))]))]));
        let settings = serde_json::value::to_raw_value(&json!({"exports": [export], "groups": tree})).unwrap();
        for added in [&["a".to_owned()][..], &[]] {
            let config = with_added(config(), &settings, (added, &[])).unwrap();
            let paths: Vec<_> = config.groups.iter().map(|group| (&*group.path, group.weight.get())).collect();
            assert_eq!(paths, [("/", 100), ("/a", 300), ("/left", 300), ("/left/below", 300)]);
            assert_eq!(config.exports.len(), added.len());
        }
    }
}
