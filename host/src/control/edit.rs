//! Edit: a configuration becomes another one, by the names of things. Nothing is opened or touched here.
//!
//! Names and not places, for the places of things in a [`Config`] change when others are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use fairlift_core::ceiling::Bounds;
use fairlift_core::{Group, GroupId, Weight, suggestion};

use super::difference::check_name;
use crate::access::Rule;
use crate::config::{Backing, Config, Disk, Export, Faults, Listener};
pub use crate::export::Leave;

/// The most groups of a configuration. The rest of the 65,535 numbers is for groups that are leaving.
const GROUPS: usize = 60_000;

/// The wanted configuration, and steps of it that the configuration does not show.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The wanted configuration.
    pub config: Config,
    /// Exports that go, also where another one of their name comes, and how their clients leave.
    pub(super) leave: BTreeMap<String, Leave>,
    /// Exports, and keys of theirs, that are looked at anew: a size that is up to the end, rules of faults.
    pub(super) again: BTreeMap<String, BTreeSet<&'static str>>,
}

impl From<Config> for Edit {
    fn from(config: Config) -> Self {
        Self { config, leave: BTreeMap::new(), again: BTreeMap::new() }
    }
}

/// A method fails, and says why in a line, if nothing has the name that it is given, if something has the name of what
/// it adds, if what is to go is in use, or if what it is given cannot be.
impl Edit {
    // ---- groups ----

    /// The place of a group.
    pub fn find_group(&self, path: &str) -> Result<GroupId, String> {
        let paths = self.config.groups.iter().map(|group| group.path.as_str());
        let at = paths.clone().position(|one| one == path);
        at.map(|at| GroupId(at as u16)).ok_or_else(|| match group_meant(&self.config, path) {
            Some(meant) => format!("there is no group \"{}\"{meant}", path.escape_debug()),
            None => unknown("group", path, paths, "there are"),
        })
    }

    /// Adds a group with the default weight, and its parents that are missing; its place.
    pub fn add_group(&mut self, path: &str) -> Result<GroupId, String> {
        check_path(path)?;
        if self.config.groups.iter().any(|group| group.path == path) {
            return Err(format!("there is a group \"{path}\" already"));
        }
        Group::place(Arc::make_mut(&mut self.config.groups), path, GROUPS)
    }

    /// Gives a group another weight.
    pub fn set_weight(&mut self, path: &str, weight: Weight) -> Result<(), String> {
        let at = self.find_group(path)?;
        Arc::make_mut(&mut self.config.groups)[usize::from(at.0)].weight = weight;
        Ok(())
    }

    /// Gives a group other bounds, or none.
    pub fn set_bounds(&mut self, path: &str, bounds: Bounds) -> Result<(), String> {
        self.find_group(path)?;
        let all = Arc::make_mut(&mut self.config.bounds);
        _ = if bounds.is_none() { all.remove(path) } else { all.insert(path.to_owned(), bounds) };
        Ok(())
    }

    /// Removes a group.
    pub fn remove_group(&mut self, path: &str) -> Result<(), String> {
        let at = self.find_group(path)?;
        if at == GroupId::ROOT {
            return Err("the root is always there".into());
        }
        let Config { groups, exports, bounds, delegated, .. } = &mut self.config;
        let inside = exports.iter().filter(|export| export.group == at).map(|export| &export.name);
        let below = groups.iter().filter(|group| group.parent == Some(at)).map(|group| &group.path);
        in_use("group", path, "export", inside.collect())?;
        in_use("group", path, "group", below.collect())?;
        let groups = Arc::make_mut(groups);
        groups.remove(usize::from(at.0));
        Arc::make_mut(bounds).remove(path);
        delegated.remove(path); // or the next group of that path would have it
        let shift = |id: &mut GroupId| id.0 -= u16::from(*id > at);
        groups.iter_mut().filter_map(|group| group.parent.as_mut()).for_each(shift);
        Arc::make_mut(exports).iter_mut().for_each(|export| shift(&mut export.group));
        Ok(())
    }

    // ---- disks ----

    /// Adds a disk, on which nothing is yet.
    pub fn add_disk(&mut self, disk: Disk) -> Result<(), String> {
        if disk.name.is_empty() {
            return Err("a disk needs a name".into());
        }
        if self.config.disks.iter().any(|there| there.name == disk.name) {
            return Err(format!("there is a disk \"{}\" already", disk.name));
        }
        Arc::make_mut(&mut self.config.disks).push(disk);
        Ok(())
    }

    /// Removes a disk.
    pub fn remove_disk(&mut self, name: &str) -> Result<(), String> {
        let at = self.find_disk(name)?;
        let Config { disks, exports, .. } = &mut self.config;
        let on_it = exports.iter().filter(|export| export.disk == Some(at)).map(|export| &export.name);
        in_use("disk", name, "export", on_it.collect())?;
        Arc::make_mut(disks).remove(at);
        let later = Arc::make_mut(exports).iter_mut().filter_map(|export| export.disk.as_mut());
        later.for_each(|disk| *disk -= usize::from(*disk > at));
        Ok(())
    }

    // ---- exports ----

    /// Adds an export in a group, on a disk, or (`None`) on the one that its backing suggests.
    pub fn add_export(&mut self, export: Export, disk: Option<&str>, group: &str) -> Result<(), String> {
        if self.config.exports.iter().any(|there| there.name == export.name) {
            return Err(format!("there is an export \"{}\" already", export.name));
        }
        let disk = disk.map(|name| self.find_disk(name)).transpose()?;
        let group = self.find_group(group)?;
        Arc::make_mut(&mut self.config.exports).push(Export { disk, group, ..export });
        Ok(())
    }

    /// Removes an export: no client finds it any more, and those that are connected leave.
    pub fn remove_export(&mut self, name: &str, how: Leave) -> Result<(), String> {
        let at = self.find_export(name)?;
        Arc::make_mut(&mut self.config.exports).remove(at);
        self.leave.insert(name.to_owned(), how);
        Ok(())
    }

    /// Makes an export as large as it is said, or (`None`) as its backing is now.
    pub fn grow(&mut self, name: &str, size: Option<u64>) -> Result<(), String> {
        self.export(name)?.size = size;
        self.again.entry(name.to_owned()).or_default().insert("size");
        Ok(())
    }

    /// Changes which requests of an export fail, and of all exports that share its backing. Counting starts again.
    pub fn set_faults(&mut self, name: &str, path: &Path, faults: &Faults) -> Result<(), String> {
        let Backing::Fault(there) = &self.export(name)?.backing else {
            return Err(format!(
                "export \"{name}\" has no faults to change: its backing is none with rules (fault:RULES,inner=BACKING)"
            ));
        };
        let shared = there.name.clone();
        for export in Arc::make_mut(&mut self.config.exports) {
            if let Backing::Fault(there) = &mut export.backing
                && there.name == shared
            {
                (there.path, there.faults) = (path.to_owned(), faults.clone());
            }
        }
        self.again.entry(name.to_owned()).or_default().insert("faults");
        Ok(())
    }

    // ---- listeners ----

    /// Listens at one more place.
    pub fn add_listener(&mut self, listener: Listener) -> Result<(), String> {
        let name = listener.address.to_string();
        if self.config.listeners.iter().any(|there| there.address.to_string() == name) {
            return Err(format!("it listens at {name} already"));
        }
        self.config.listeners.push(listener);
        Ok(())
    }

    /// Listens no more at a place, as [`Server::addresses`](crate::Server::addresses) calls it; clients that came by it stay.
    pub fn remove_listener(&mut self, address: &str) -> Result<(), String> {
        let names: Vec<_> = self.config.listeners.iter().map(|listener| listener.address.to_string()).collect();
        let at = names.iter().position(|name| name == address);
        let unknown = || unknown("listener", address, names.iter().map(String::as_str), "it listens at");
        self.config.listeners.remove(at.ok_or_else(unknown)?);
        Ok(())
    }

    /// Adds a rule.
    pub fn add_client(&mut self, rule: Rule) -> Result<(), String> {
        if rule.name.is_empty() {
            return Err("a client needs a name".into());
        }
        check_name("a client", &rule.name)?;
        if self.find_client(&rule.name).is_ok() {
            return Err(format!("client {:?} is there already", rule.name));
        }
        self.config.clients.push(rule);
        Ok(())
    }

    /// Removes a rule: what no other allows its client is refused from now on.
    pub fn remove_client(&mut self, name: &str) -> Result<(), String> {
        let at = self.find_client(name)?;
        self.config.clients.remove(at);
        Ok(())
    }
}

macro_rules! by_name {
    ($($(#[$of:meta])* $get:ident, $find:ident: $what:literal in $all:ident, $kind:ty, $change:expr;)+) => {
        impl Edit {
            $(pub(crate) fn $find(&self, name: &str) -> Result<usize, String> {
                let names = self.config.$all.iter().map(|one| one.name.as_str());
                names.clone().position(|one| one == name).ok_or_else(|| unknown($what, name, names, "there are"))
            }

            $(#[$of])*
            ///
            /// # Errors
            /// There is none of that name.
            pub fn $get(&mut self, name: &str) -> Result<&mut $kind, String> {
                let at = self.$find(name)?;
                Ok(&mut $change(&mut self.config.$all)[at])
            })+
        }
    };
}

by_name! {
    /// A disk, to be changed.
    disk, find_disk: "disk" in disks, Disk, Arc::make_mut;
    /// An export, to be changed.
    export, find_export: "export" in exports, Export, Arc::make_mut;
    /// A rule for the rights of a client, to change all but its name.
    client, find_client: "client" in clients, Rule, Vec::as_mut_slice;
}

/// `; did you mean "/tenants/alice"?` of a group `/alice` that is not there: the group of an export of that name, or the only one that ends so.
#[must_use]
pub fn group_meant(config: &Config, path: &str) -> Option<String> {
    let name = path.strip_prefix('/').unwrap_or(path);
    let of_export = config.exports.iter().find(|export| export.name == name).map(|export| usize::from(export.group.0));
    let ends_so = |group: &Group| group.path.rsplit('/').next() == Some(name);
    let mut ending = (0..config.groups.len()).filter(|at| ends_so(&config.groups[*at]));
    let only = ending.next().filter(|_| ending.next().is_none());
    let meant = of_export.filter(|at| *at != 0).or(only.filter(|_| !name.is_empty()))?;
    Some(format!("; did you mean \"{}\"?", config.groups[meant].path))
}

/// "There is no group "/tenats"; did you mean "/tenants"?", or all that there are if they are few.
pub(super) fn unknown<'a>(
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
    there_are: &str,
) -> String {
    let hint = suggestion(name, known.clone());
    let says = format!("there is no {what} \"{}\"", name.escape_debug());
    if !hint.is_empty() {
        return says + &hint;
    }
    let some = known.clone().take(8).collect::<Vec<_>>().join(", ");
    match known.count() {
        0 => format!("{says}; {there_are} none"),
        count @ 9.. => format!("{says}; {there_are} {some} and {} more", count - 8),
        _ => format!("{says}; {there_are} {some}"),
    }
}

fn in_use(what: &str, name: &str, user: &str, users: Vec<&String>) -> Result<(), String> {
    let are = match &users[..] {
        [] => return Ok(()),
        [one] => format!("\"{one}\" is"),
        [first, rest @ ..] => format!("\"{first}\" and {} more are", rest.len()),
    };
    Err(format!("{what} \"{name}\" is in use: {user} {are} in it"))
}

/// As deep as the tree may be: what walks it may recurse.
const LEVELS: usize = 32;

/// Whether `path` can name a group.
///
/// # Errors
/// The mistake, and the correct form.
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
