//! Where in flags and file things were said, so that a later finding (a backing that cannot be opened, a weight that cannot act) is told
//! with its line.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use fairlift::Error;
use fairlift::config::Backing;
use fairlift::control::Of;
use fairlift_lab::suggestion;

use super::args::ServeArgs;
use crate::config::File;
use crate::config::section::join;
use crate::syntax::backing;
use crate::syntax::mistake::{Mistake, SettingPlace};

#[derive(Clone, Default, Debug)]
pub(crate) struct Places {
    /// The tables of the file and their values, by their paths.
    spans: BTreeMap<String, Range<usize>>,
    /// Flags, by the paths of the keys that they override (serve.1), and the places of settings that messages call by other words: `backing file:/srv/a.img`,
    /// `listener unix:/run/a.sock`, `root /srv`, `control 0`.
    others: BTreeMap<String, SettingPlace>,
}

impl Places {
    pub(super) fn new(flags: &ServeArgs, file: &mut File) -> Self {
        let mut places = Self { spans: std::mem::take(&mut file.spans), others: BTreeMap::new() };
        for (key, flag) in [
            ("keep_capabilities", (!flags.keep_capability.is_empty()).then(|| "--keep-capability".to_owned())),
            ("listen", (!flags.listen.is_empty()).then(|| "--listen".into())),
            ("tls", flags.tls.map(|_| "--tls".into())),
            ("tls_certificates", flags.tls_certificates.as_ref().map(|_| "--tls-certificates".into())),
            ("tls_verify_peer", flags.tls_verify_peer.then(|| "--tls-verify-peer".into())),
            ("workers", flags.workers.map(|workers| format!("--workers {workers}"))),
        ] {
            flag.into_iter().for_each(|flag| places.put(join("server", key), SettingPlace::in_flag(flag)));
        }
        let of_flags = flags.exports.iter().map(|named| (&named.name, &named.backing));
        for (name, backing) in file.config.exports.iter().map(|export| (&export.name, &export.backing)).chain(of_flags)
        {
            let place = places.backing(name);
            places.others.entry(format!("backing {}", backing.about().opened)).or_insert(place);
        }
        places
    }

    pub(super) fn put(&mut self, path: String, place: SettingPlace) {
        self.others.insert(path, place);
    }

    /// The place of a table or a key by its path, such as `disk.ssd0.depth`, if it was said.
    pub(super) fn find(&self, path: &str) -> Option<SettingPlace> {
        let in_file = || Some(SettingPlace { at: Some(self.spans.get(path)?.clone()), key: path.into() });
        self.others.get(path).cloned().or_else(in_file)
    }

    /// The same of a key of a table; without a place where it was not said.
    pub(super) fn key(&self, table: &str, key: &str) -> SettingPlace {
        let path = join(table, key);
        self.find(&path).unwrap_or_else(|| SettingPlace::in_flag(path))
    }

    /// An export, a disk or a client.
    pub(super) fn named(&self, sort: &str, name: &str) -> SettingPlace {
        self.find(&join(sort, name)).unwrap_or_else(|| SettingPlace::in_flag(format!("{sort} {name:?}")))
    }

    /// The object of a change, if it has a place.
    pub(super) fn of(&self, of: &Of) -> Option<SettingPlace> {
        match of {
            Of::Export(name) => Some(self.named("export", name)),
            Of::Disk(name) => Some(self.named("disk", name)),
            Of::Listener(address) => Some(self.listener(address)),
            Of::Group(path) => self.find(&join("group", path)),
            Of::Client(name) => Some(self.named("client", name)),
            Of::Server => None,
        }
    }

    pub(super) fn listener(&self, address: &str) -> SettingPlace {
        self.find(&format!("listener {address}")).unwrap_or_else(|| self.server("listen"))
    }

    pub(super) fn backing(&self, export: &str) -> SettingPlace {
        let key = join(&join("export", export), "backing");
        self.find(&key).unwrap_or_else(|| self.named("export", export))
    }

    pub(super) fn control(&self, number: usize) -> Option<SettingPlace> {
        self.find(&format!("control {number}"))
    }

    /// A key of the server, or its table where it has not the key.
    pub(super) fn server(&self, key: &str) -> SettingPlace {
        let path = join("server", key);
        let in_table = || Some(SettingPlace { key: path.clone(), ..self.find("server")? });
        self.find(&path).or_else(in_table).unwrap_or_else(|| SettingPlace::in_flag(key))
    }

    /// Why a change was refused, if that is an [`Error::Backing`], with its place.
    pub(super) fn locate_backing(&self, why: &str) -> Option<Mistake> {
        let is_of = |what: &str| why.strip_prefix(what).is_some_and(|rest| rest.starts_with(": "));
        let (_, place) = self.others.iter().find(|(what, _)| is_of(what))?;
        let why = why.strip_prefix("backing ")?;
        Some(place.says(why.strip_prefix("file:").unwrap_or(why)))
    }

    /// Why a server would not start, with its place.
    pub(super) fn locate(&self, error: &Error) -> Mistake {
        match error {
            Error::Backing { what, why } => {
                let path = what.strip_prefix("file:").unwrap_or(what);
                let says = format!("{path}: {}", with_neighbour(path, why));
                let place = self.find(&format!("backing {what}"));
                place.unwrap_or_else(|| SettingPlace::in_flag("backing")).says(says)
            }
            Error::Root { path, why } => {
                let path = path.display().to_string();
                let place = self.find(&format!("root {path}"));
                place.unwrap_or_else(|| SettingPlace::in_flag("--root")).says(format!("{path}: {why}"))
            }
            Error::Export { name, why } => self.named("export", name).says(why),
            Error::Disk { name, why } => self.named("disk", name).says(why),
            Error::Listen { address, why } => {
                let place = self.listener(address);
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
