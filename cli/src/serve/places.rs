//! Where in flags and file things were said, so that a later finding (a backing that cannot be opened, a weight that cannot act) is told
//! with its line.

use std::ops::Range;
use std::path::{Path, PathBuf};

use fairlift::Error;
use fairlift::config::{Backing, Export};
use fairlift::control::Of;
use fairlift_lab::suggestion;

use super::args::ServeArgs;
use crate::config::section::{Placed, join};
use crate::config::{self, File};
use crate::control::ControlPlace;
use crate::syntax::backing;
use crate::syntax::mistake::Mistake;
use crate::syntax::place::{self, ListenAt};
use crate::ways;

/// A key of the file, or a flag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SettingPlace {
    /// Where in the file; `None`: in a flag.
    pub(crate) at: Option<Range<usize>>,
    /// How messages call it: `disk.ssd0.depth`, `--listen`.
    pub(crate) key: String,
}

impl SettingPlace {
    pub(crate) fn in_flag(flag: String) -> Self {
        Self { at: None, key: flag }
    }

    /// The value of a key of the file.
    pub(super) fn of<T>(placed: &Placed<T>, key: &str) -> Self {
        Self { at: Some(placed.at.clone()), key: key.into() }
    }

    pub(crate) fn says(&self, says: impl Into<String>) -> Mistake {
        Mistake { at: self.at.clone(), key: self.key.clone(), says: says.into() }
    }
}

#[derive(Clone, Default, Debug)]
pub(crate) struct Places {
    exports: Vec<(String, SettingPlace)>,
    /// By what messages call the backing.
    backings: Vec<(String, SettingPlace)>,
    /// By the address.
    listeners: Vec<(String, SettingPlace)>,
    /// Where exports listen by ways of their own, by the address.
    sockets: Vec<(String, SettingPlace)>,
    control: Vec<SettingPlace>,
    /// By the directory in which files must lie.
    roots: Vec<(String, SettingPlace)>,
    /// The table of the server's keys.
    server: Option<Range<usize>>,
    pub(super) disks: Vec<(String, SettingPlace)>,
    /// By the group's path: those that were given a weight, or a table.
    pub(super) groups: Vec<(String, SettingPlace)>,
    pub(super) clients: Vec<(String, SettingPlace)>,
}

impl Places {
    pub(super) fn new(flags: &ServeArgs, file: &File) -> Self {
        let mut places = Self::default();
        let table =
            |sort: &str, name: &str, at: &Range<usize>| SettingPlace { at: Some(at.clone()), key: join(sort, name) };
        for config::Export { at, backing, settings: export, .. } in &file.exports {
            let place = table("export", &export.name, at);
            let key = format!("{}.backing", place.key);
            places.backings.push((export.backing.about().opened, SettingPlace { at: Some(backing.clone()), key }));
            places.exports.push((export.name.clone(), place));
        }
        for named in &flags.exports {
            let place = SettingPlace::in_flag(format!("export {:?}", named.name));
            places.backings.push((named.backing.about().opened, place.clone()));
            places.exports.push((named.name.clone(), place));
        }
        if flags.listen.is_empty() {
            let place =
                |one: &Placed<ListenAt>| (place::show(&one.value.address), SettingPlace::of(one, "server.listen"));
            places.listeners = file.server.listen.iter().map(place).collect();
        }
        let root = |one: &Placed<PathBuf>| (one.value.display().to_string(), SettingPlace::of(one, "server.roots"));
        places.roots = match flags.root.is_empty() {
            true => file.server.roots.iter().map(root).collect(),
            false => Vec::new(),
        };
        let is_on = |place: &&Placed<ControlPlace>| place.value.0.is_some();
        let in_file = file.server.control.iter().filter(is_on).map(|one| SettingPlace::of(one, "server.control"));
        let in_flags = flags.control.iter().map(|_| SettingPlace::in_flag("--control".into()));
        places.control = if flags.control.is_empty() { in_file.collect() } else { in_flags.collect() };
        places.server.clone_from(&file.server.at);
        places.disks = file
            .disks
            .iter()
            .map(|disk| (disk.settings.name.clone(), table("disk", &disk.settings.name, &disk.at)))
            .collect();
        let clients = file.clients.iter();
        places.clients =
            clients.map(|one| (one.settings.name.clone(), table("client", &one.settings.name, &one.at))).collect();
        let tables = file.weighed.iter();
        places.groups = tables.map(|one| (one.value.clone(), table("group", &one.value, &one.at))).collect();
        places
    }

    /// Where an export listens by ways of its own; `is_set`: whether it has the key itself.
    pub(super) fn listens(&mut self, export: &Export, is_set: impl Fn(&str) -> bool) {
        for (way, path) in export.ways.iter().filter_map(|way| Some((way, way.path()?))) {
            let place = match (is_set(way.key()), self.export(&export.name)) {
                (true, place) => SettingPlace { key: format!("{}.{}", place.key, way.key()), ..place },
                (false, _) => SettingPlace::in_flag(ways::flag(way.key())),
            };
            self.sockets.push((format!("unix:{}", path.display()), place));
        }
    }

    /// The object of a change, if it has a place.
    pub(super) fn of(&self, of: &Of) -> Option<SettingPlace> {
        match of {
            Of::Export(name) => Some(self.export(name)),
            Of::Disk(name) => Some(self.disk(name)),
            Of::Listener(address) => Some(self.listener(address)),
            Of::Group(path) => find(&self.groups, path),
            Of::Client(name) => Some(self.client(name)),
            Of::Server => None,
        }
    }

    pub(super) fn export(&self, name: &str) -> SettingPlace {
        find(&self.exports, name).unwrap_or_else(|| SettingPlace::in_flag(format!("export {name:?}")))
    }

    pub(super) fn disk(&self, name: &str) -> SettingPlace {
        find(&self.disks, name).unwrap_or_else(|| SettingPlace::in_flag(format!("disk {name:?}")))
    }

    pub(super) fn client(&self, name: &str) -> SettingPlace {
        find(&self.clients, name).unwrap_or_else(|| SettingPlace::in_flag(format!("client {name:?}")))
    }

    /// The addresses, all together.
    pub(super) fn listen(&self) -> SettingPlace {
        self.listeners.first().map_or_else(|| SettingPlace::in_flag("--listen".into()), |(_, place)| place.clone())
    }

    /// One of the addresses.
    pub(super) fn listener(&self, address: &str) -> SettingPlace {
        find(&self.listeners, address).unwrap_or_else(|| self.listen())
    }

    pub(super) fn backing(&self, name: &str) -> SettingPlace {
        let export = self.export(name);
        let key = format!("{}.backing", export.key);
        self.backings.iter().find(|(_, place)| place.key == key).map_or(export, |(_, place)| place.clone())
    }

    pub(super) fn control(&self, number: usize) -> Option<SettingPlace> {
        self.control.get(number).cloned()
    }

    pub(super) fn server(&self, key: &str) -> SettingPlace {
        let at = self.server.clone();
        let key = if at.is_some() { format!("server.{key}") } else { key.to_owned() };
        SettingPlace { at, key }
    }

    /// Why a change was refused, if that is an [`Error::Backing`], with its place.
    pub(super) fn locate_backing(&self, why: &str) -> Option<Mistake> {
        let why = why.strip_prefix("backing ")?;
        let is_of = |what: &str| why.strip_prefix(what).is_some_and(|rest| rest.starts_with(": "));
        let (_, place) = self.backings.iter().find(|(what, _)| is_of(what))?;
        Some(place.says(why.strip_prefix("file:").unwrap_or(why)))
    }

    /// Why a server would not start, with its place.
    pub(super) fn locate(&self, error: &Error) -> Mistake {
        match error {
            Error::Backing { what, why } => {
                let path = what.strip_prefix("file:").unwrap_or(what);
                let says = format!("{path}: {}", with_neighbour(path, why));
                find(&self.backings, what).map_or_else(|| Mistake::in_flag("backing", &says), |place| place.says(&says))
            }
            Error::Root { path, why } => {
                let path = path.display().to_string();
                find(&self.roots, &path)
                    .unwrap_or_else(|| SettingPlace::in_flag("--root".into()))
                    .says(format!("{path}: {why}"))
            }
            Error::Export { name, why } => self.export(name).says(why),
            Error::Disk { name, why } => self.disk(name).says(why),
            Error::Listen { address, why } => {
                let place = find(&self.listeners, address).or_else(|| find(&self.sockets, address));
                let place = place.unwrap_or_else(|| SettingPlace::in_flag("--listen".into()));
                let cure = match why.ends_with("server is listening there") {
                    true => format!(
                        "; give this server an address of its own ({}), or look at the other server (fairlift status)",
                        place.key
                    ),
                    false => String::new(),
                };
                place.says(format!("{address}: {why}{cure}"))
            }
            other => Mistake::in_flag("", other.to_string()),
        }
    }
}

/// Why a backing is no disk image, if that can be told without opening it.
pub(super) fn missing(backing: &Backing) -> Option<String> {
    let Backing::File(file) = backing else { return None };
    let path = file.path.display().to_string();
    let why = backing::check(backing).err()?;
    let Some(rest) = why.strip_prefix(&format!("{path}: ")) else { return Some(why) };
    Some(format!("{path}: {}", with_neighbour(&path, rest)))
}

/// Why a file was not opened; if it is not there, with the file beside it of nearly the same name. (Only the operator who starts or checks
/// a server sees this, never its clients.)
fn with_neighbour(path: &str, why: &str) -> String {
    let missing = std::io::Error::from(rustix::io::Errno::NOENT).to_string();
    let (Some(rest), Some(name)) = (why.strip_prefix(&missing), Path::new(path).file_name()) else { return why.into() };
    let dir = Path::new(path).parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let files = beside.filter(|one| one.file_type().is_ok_and(|kind| !kind.is_dir()));
    let names: Vec<_> = files.filter_map(|one| one.file_name().into_string().ok()).collect();
    let hint = suggestion(&name.to_string_lossy(), names.iter().map(String::as_str));
    missing + &hint + rest
}

fn find(all: &[(String, SettingPlace)], name: &str) -> Option<SettingPlace> {
    all.iter().find(|(one, _)| one == name).map(|(_, place)| place.clone())
}
