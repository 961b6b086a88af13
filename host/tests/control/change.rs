//! Edits, each with what it asks for.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fairlift::config::{Disk, Export, FileAt, Listener, Ram};
use fairlift::control::{Edit, Leave};
use fairlift_core::Weight;
use fairlift_core::ceiling::Bounds;
use fairlift_core::sched::Kind;

use crate::client::MIB;
use crate::wanted::{Wanted, WantedDisk, WantedExport};

pub(crate) type Make = dyn Fn(&mut Edit) -> Result<(), String>;

/// An edit, with what it is, and what it asks for.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) says: String,
    pub(crate) edit: Arc<Make>,
    pub(crate) asks: Arc<dyn Fn(&mut Wanted)>,
}

impl Change {
    pub(crate) fn asks(self, asks: impl Fn(&mut Wanted) + 'static) -> Self {
        Self { asks: Arc::new(asks), ..self }
    }
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.says)
    }
}

pub(crate) fn change(says: impl Into<String>, edit: impl Fn(&mut Edit) -> Result<(), String> + 'static) -> Change {
    Change { says: says.into(), edit: Arc::new(edit), asks: Arc::new(|_| {}) }
}

pub(crate) fn add(export: Export, disk: Option<&str>, group: &str) -> Change {
    let (disk, group) = (disk.map(str::to_owned), group.to_owned());
    let says = format!("add {export:?} on {disk:?} in {group}");
    let Export { name, priority, read_only, description, .. } = export.clone();
    let wish = WantedExport { group: group.clone(), disk: disk.clone(), read_only, priority, description };
    change(says, move |edit| edit.add_export(export.clone(), disk.as_deref(), &group))
        .asks(move |all| _ = all.exports.insert(name.clone(), wish.clone()))
}

pub(crate) fn mem(name: &str, group: &str, disk: Option<&str>) -> Change {
    add(Export::new(name, Ram { size: MIB }), disk, group)
}

pub(crate) fn file(name: &str, path: &Path, read_only: bool) -> Change {
    let backing = FileAt::new(path);
    add(Export { read_only, ..Export::new(name, backing) }, None, "/")
}

pub(crate) fn remove(name: &str, how: Leave) -> Change {
    let (name, gone) = (name.to_owned(), name.to_owned());
    change(format!("remove {name} {how:?}"), move |edit| edit.remove_export(&name, how)).asks(move |all| {
        all.exports.remove(&gone);
        all.grown.remove(&gone);
    })
}

pub(crate) fn weight(group: &str, weight: u16) -> Change {
    let (group, of) = (group.to_owned(), group.to_owned());
    change(format!("{group}: weight {weight}"), move |edit| edit.set_weight(&group, Weight::new(weight)))
        .asks(move |all| all.groups.get_mut(&of).expect("it was asked for").0 = weight)
}

pub(crate) fn bounds(group: &str, bounds: Bounds) -> Change {
    let (group, of) = (group.to_owned(), group.to_owned());
    change(format!("{group}: {bounds}"), move |edit| edit.set_bounds(&group, bounds))
        .asks(move |all| all.groups.get_mut(&of).expect("it was asked for").1 = bounds)
}

pub(crate) fn group(path: &str) -> Change {
    let (path, of) = (path.to_owned(), path.to_owned());
    change(format!("add group {path}"), move |edit| edit.add_group(&path).map(drop)).asks(move |all| all.add_group(&of))
}

pub(crate) fn remove_group(path: &str) -> Change {
    let (path, gone) = (path.to_owned(), path.to_owned());
    change(format!("remove group {path}"), move |edit| edit.remove_group(&path))
        .asks(move |all| _ = all.groups.remove(&gone))
}

pub(crate) fn turn(disk: &str, says: impl Into<String>, to: impl Fn(&mut Disk) + 'static) -> Change {
    let disk = disk.to_owned();
    change(format!("disk {disk}: {}", says.into()), move |edit| {
        to(edit.disk(&disk)?);
        Ok(())
    })
}

pub(crate) fn knob(disk: &str, name: &str, value: &str) -> Change {
    let (name, value) = (name.to_owned(), value.to_owned());
    let (of, knob) = (disk.to_owned(), (name.clone(), value.clone()));
    turn(disk, format!("{name} = {value}"), move |disk| {
        disk.set.retain(|(one, _)| *one != name);
        disk.set.push((name.clone(), value.clone()));
    })
    .asks(move |all| all.disk(&of).set.extend([knob.clone()]))
}

pub(crate) fn scheduler(disk: &str, kind: Kind) -> Change {
    turn(disk, kind.name(), move |disk| (disk.scheduler, disk.is_usual, disk.set) = (kind, false, Vec::new())).asks({
        let of = disk.to_owned();
        move |all| (all.disk(&of).scheduler, all.disk(&of).set) = (kind, BTreeMap::new())
    })
}

pub(crate) fn depth(disk: &str, depth: Option<u16>) -> Change {
    let of = disk.to_owned();
    turn(disk, format!("depth {depth:?}"), move |disk| disk.depth = depth).asks(move |all| all.disk(&of).depth = depth)
}

pub(crate) fn nr_requests(disk: &str, number: Option<u32>) -> Change {
    let of = disk.to_owned();
    turn(disk, format!("nr_requests {number:?}"), move |disk| disk.nr_requests = number)
        .asks(move |all| all.disk(&of).nr_requests = number)
}

pub(crate) fn add_disk(disk: Disk) -> Change {
    let Disk { name, scheduler, depth, nr_requests, .. } = disk.clone();
    let wish = WantedDisk { scheduler, set: disk.set.iter().cloned().collect(), depth, nr_requests };
    change(format!("add {disk:?}"), move |edit| edit.add_disk(disk.clone()))
        .asks(move |all| _ = all.disks.insert(name.clone(), wish.clone()))
}

pub(crate) fn remove_disk(name: &str) -> Change {
    let (name, gone) = (name.to_owned(), name.to_owned());
    change(format!("remove disk {name}"), move |edit| edit.remove_disk(&name))
        .asks(move |all| _ = all.disks.remove(&gone))
}

/// Changes an export.
pub(crate) fn export(name: &str, says: impl Into<String>, to: impl Fn(&mut Export) + 'static) -> Change {
    let name = name.to_owned();
    change(format!("export {name}: {}", says.into()), move |edit| {
        to(edit.export(&name)?);
        Ok(())
    })
}

pub(crate) fn put(name: &str, group: &str) -> Change {
    let (name, group) = (name.to_owned(), group.to_owned());
    let (moved, to) = (name.clone(), group.clone());
    change(format!("{name} into {group}"), move |edit| {
        let group = edit.find_group(&group)?;
        edit.export(&name)?.group = group;
        Ok(())
    })
    .asks(move |all| all.export(&moved).group.clone_from(&to))
}

pub(crate) fn read_only(name: &str, read_only: bool) -> Change {
    let of = name.to_owned();
    export(name, format!("read-only {read_only}"), move |export| export.read_only = read_only)
        .asks(move |all| all.export(&of).read_only = read_only)
}

pub(crate) fn grow(name: &str, size: Option<u64>) -> Change {
    let name = name.to_owned();
    change(format!("grow {name} to {size:?}"), move |edit| edit.grow(&name, size))
}

pub(crate) fn listen(listener: Listener) -> Change {
    let name = listener.address.to_string();
    change(format!("add {listener:?}"), move |edit| edit.add_listener(listener.clone()))
        .asks(move |all| _ = all.listeners.insert(name.clone()))
}

pub(crate) fn leave(address: String) -> Change {
    let gone = address.clone();
    change(format!("leave {address}"), move |edit| edit.remove_listener(&address))
        .asks(move |all| _ = all.listeners.remove(&gone))
}
