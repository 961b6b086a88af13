//! The config file: from text to checked parts, with every mistake noted by its place.
//!
//! Questions that only the flags answer (which scheduler a disk has that names none, where to listen) are left open here and decided in
//! [`plan`](crate::serve::plan).

pub(crate) mod faults;
pub(crate) mod given;
pub(crate) mod keys;
pub(crate) mod row;
pub(crate) mod section;
pub(crate) mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use fairlift::access::Rule;
use fairlift::config::{self, Address, Backing, Engine, Limits, SharesAt, Tls};
use fairlift::confine::Capability;
use fairlift::control::check_name;
use fairlift_core::ceiling::Bounds;
use fairlift_core::{GroupId, sched};
use fairlift_lab::suggestion;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::control::ControlPlace;
use crate::syntax::groups::Tree;
use crate::syntax::mistake::{Mistake, Source};
use crate::syntax::place::ListenAt;
use crate::syntax::{place, units};
use crate::ways;
use keys::{
    CLIENT, CLIENT_ROWS, DISK, DISK_ROWS, EXPORT, EXPORT_ROWS, ExportKeys, GROUP, GROUP_ROWS, GroupKeys, SERVER,
    SERVER_ROWS, SORTS,
};
use row::{Key, Sort};
use section::{Placed, Section, join, show};

/// The example config file, which explains itself.
pub(crate) const EXAMPLE: &str = include_str!("example.toml");

/// All that a config file says; what it doesn't say is `None`.
#[derive(Default, Debug)]
pub(crate) struct File {
    /// `[disk.…]`, in the order of the file.
    pub(crate) disks: Vec<Disk>,
    /// `[export.…]`, in the order of the file.
    pub(crate) exports: Vec<Export>,
    /// `[group.…]` and all groups that exports name.
    pub(crate) groups: Tree,
    /// Limits, by the group's path.
    pub(crate) bounds: BTreeMap<String, Bounds>,
    /// The groups that have a table of their own, and where it is.
    pub(crate) weighed: Vec<Placed<String>>,
    /// The keys of groups that tenants may change.
    pub(crate) delegated: BTreeMap<String, BTreeSet<String>>,
    pub(crate) floors: Vec<Placed<String>>,
    /// `[client.…]`, in the order of the file.
    pub(crate) clients: Vec<Allowed>,
    pub(crate) server: Server,
}

/// The rights of a client, as the file has them.
#[derive(Debug)]
pub(crate) struct Allowed {
    pub(crate) at: Range<usize>,
    pub(crate) certificate: Option<Range<usize>>,
    pub(crate) settings: Rule,
}

/// A scheduling domain as the file has it.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) at: Range<usize>,
    /// The priority, if given.
    pub(crate) scheduler: Option<sched::Kind>,
    /// Tunables and their values, the value with its place.
    pub(crate) set: Vec<(Placed<String>, Placed<String>)>,
    /// Its name, and all else.
    pub(crate) settings: config::Disk,
}

#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) at: Range<usize>,
    /// Where what holds the data is said.
    pub(crate) backing: Range<usize>,
    /// The keys of it that are written, and where their values are.
    pub(crate) places: BTreeMap<String, Range<usize>>,
    /// Its name, and all else; its disk is an index in [`File::disks`].
    pub(crate) settings: config::Export,
}

/// The server as the file has it; its keys are explained in [`SERVER_ROWS`].
#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) at: Option<Range<usize>>,
    /// Where the keys are that it has.
    places: BTreeMap<String, Range<usize>>,
    pub(crate) listen: Vec<Placed<ListenAt>>,
    pub(crate) control: Vec<Placed<ControlPlace>>,
    pub(crate) tls: Option<Tls>,
    pub(crate) tls_certificates: Option<PathBuf>,
    pub(crate) tls_verify_peer: bool,
    pub(crate) insecure: bool,
    pub(crate) roots: Vec<Placed<PathBuf>>,
    pub(crate) seccomp: Option<bool>,
    pub(crate) learned: Option<PathBuf>,
    pub(crate) gateway: Option<String>,
    pub(crate) keep_capabilities: Vec<Capability>,
    pub(crate) workers: Option<usize>,
    pub(crate) engine: Option<Engine>,
    /// Bounds, with the defaults where the file says nothing.
    pub(crate) limits: Limits,
}

impl Server {
    /// A mistake in a key that is written; `None`: it is not.
    pub(crate) fn mistake(&self, key: &str, says: &str) -> Option<Mistake> {
        let at = self.places.get(key)?;
        Some(Mistake { at: Some(at.clone()), key: join(SERVER.name, key), says: says.into() })
    }
}

/// How long a config file may be. Chosen: a hundred thousand exports fit.
pub(crate) const LENGTH_MAX: u64 = 16 << 20;

/// Of how many places a text is told that they are no TOML. Chosen: a page of a terminal.
const ERRORS_MAX: usize = 8;

/// Whether a text has a table of a config file.
pub(crate) fn is_one(text: &str) -> bool {
    let (document, _) = DeTable::parse_recoverable(text);
    let document = document.get_ref();
    SORTS.iter().any(|sort| document.get(sort.name).is_some_and(|value| value.get_ref().as_table().is_some()))
}

/// Reads a config file; relative paths in it start at `dir`. Mistakes are added to `mistakes`.
pub(crate) fn read(source: &Source, dir: &Path, mistakes: &mut Vec<Mistake>) -> File {
    let (document, errors) = DeTable::parse_recoverable(&source.text);
    let mut found = Vec::new();
    let file = Reading { dir, mistakes: &mut found }.file(document.get_ref());
    if !errors.is_empty() {
        // The parser's guesses after an error are not the author's words: only certain parts are passed on.
        found.retain(|mistake| mistake.says.starts_with("unknown key"));
    }
    let first = errors.iter().take(ERRORS_MAX);
    mistakes.extend(first.map(|error| Mistake {
        at: Some(error.span().unwrap_or(0..0)),
        key: String::new(),
        says: match (error.message().trim(), wants(&source.text, error.span().unwrap_or(0..0).start)) {
            (says, Some(wants)) if says.starts_with("string values must be quoted") => wants, // quotes would not help
            (says, _) => says.replace('\n', ", "),
        },
    }));
    if let (more @ 1.., Some(last)) = (errors.len().saturating_sub(ERRORS_MAX), mistakes.last_mut()) {
        last.says += &format!("; and {more} more places are no TOML");
    }
    mistakes.append(&mut found);
    file
}

/// A value is no TOML, as in `weight = 150%`: what its key takes, if that is a number or a switch. `at` is where the value is.
fn wants(text: &str, at: usize) -> Option<String> {
    let before = text.get(..at)?;
    let line = before.rsplit('\n').next()?;
    let name = line.split_once('=')?.0.trim();
    let header = before.lines().rev().find_map(|line| line.trim_start().strip_prefix('['))?;
    let sort = SORTS.iter().find(|sort| header.split(['.', ']']).next() == Some(sort.name))?;
    sort.keys().iter().find(|key| key.name == name && key.is_plain()).map(Key::wants)
}

struct Reading<'a> {
    dir: &'a Path,
    mistakes: &'a mut Vec<Mistake>,
}

impl Reading<'_> {
    fn file(&mut self, document: &DeTable<'_>) -> File {
        for (key, value) in document {
            let known = SORTS.map(|sort| sort.name);
            if !known.contains(&key.get_ref().as_ref()) {
                let hint = match suggestion(key.get_ref(), known) {
                    _ if value.get_ref().get("roles").is_some() => {
                        "; this is a workload for fairlift iostest -w, and not a config".into()
                    }
                    hint if hint.is_empty() => format!("; the tables are {}", SORTS.map(|sort| sort.header).join(", ")),
                    hint => hint,
                };
                self.note(key.span(), &join("", key.get_ref()), format!("unknown table{hint}"));
            }
        }
        let disks: Vec<_> = self.sections(document, DISK).iter().map(|section| self.disk(section)).collect();
        let mut groups = Tree::default();
        let sections = self.sections(document, GROUP);
        let mut bounds = BTreeMap::new();
        let mut delegated = BTreeMap::new();
        let mut group = |section| self.group(section, &mut groups, (&mut bounds, &mut delegated));
        let weighed = sections.iter().filter_map(&mut group).collect();
        let exports = self.sections(document, EXPORT);
        let exports = exports.iter().filter_map(|section| self.export(section, &disks, &mut groups)).collect();
        let floor =
            |section: &Section<'_>| Some(Placed { value: section.name.clone(), at: section.raw("min")?.span() });
        let floors = sections.iter().filter_map(floor).collect();
        let clients: Vec<_> = self.sections(document, CLIENT).iter().map(|section| self.client(section)).collect();
        let empty = |value: &Spanned<DeValue<'_>>| value.get_ref().as_table().is_some_and(|all| all.is_empty());
        if let Some((key, _)) = document.get_key_value(CLIENT.name).filter(|(_, value)| empty(value)) {
            let says = "allows no client, and without any [client.NAME] every client may open every export: add one, or remove this line";
            self.note(key.span(), CLIENT.name, says.into());
        }
        let (mut disks, server) = (disks, self.server(document));
        for shares in disks.iter_mut().filter_map(|disk| disk.settings.shares.as_mut()) {
            shares.gateway = server.gateway.clone().unwrap_or_else(|| shares.gateway.clone());
        }
        File { disks, exports, groups, bounds, weighed, delegated, floors, clients, server }
    }

    /// The tables `[sort.NAME]`, in the order of the file.
    fn sections<'d>(&mut self, document: &'d DeTable<'d>, sort: Sort) -> Vec<Section<'d>> {
        let Some((key, value)) = document.get_key_value(sort.name) else { return Vec::new() };
        let table = self.table(sort, key.span(), sort.name, value);
        let mut entries: Vec<_> = table.into_iter().flatten().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let section = |(name, value): (&'d Spanned<DeString<'d>>, &'d Spanned<DeValue<'d>>)| {
            let path = join(sort.name, name.get_ref());
            let table = self.table(sort, name.span(), &path, value)?;
            Some(Section::new(path, name.get_ref(), name.span(), sort, table, self.mistakes))
        };
        entries.into_iter().filter_map(section).collect()
    }

    /// A value that must be a table, as the header of its sort says.
    fn table<'d>(
        &mut self,
        sort: Sort,
        at: Range<usize>,
        key: &str,
        value: &'d Spanned<DeValue<'d>>,
    ) -> Option<&'d DeTable<'d>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.note(at, key, format!("must be written {}, not as {}", sort.header, show(value.get_ref())));
        }
        table
    }

    fn disk(&mut self, section: &Section<'_>) -> Disk {
        let mut settings = config::Disk::new(&section.name, sched::Kind::MqDeadline);
        section.put(self.mistakes, DISK_ROWS, &mut settings);
        if let Some(SharesAt::Directory(path)) = settings.shares.as_mut().map(|shares| &mut shares.place) {
            *path = self.dir.join(&*path);
        }
        let mut set = Vec::new();
        if let Some(value) = section.raw("set") {
            match value.get_ref() {
                DeValue::Table(table) => {
                    for (name, value) in table {
                        let Some(text) = tunable_text(value.get_ref()) else {
                            let says = format!("takes text, a number, true or false, not {}", show(value.get_ref()));
                            self.note(value.span(), &join(&format!("{}.set", section.path), name.get_ref()), says);
                            continue;
                        };
                        set.push((
                            Placed { value: name.get_ref().to_string(), at: name.span() },
                            Placed { value: text, at: value.span() },
                        ));
                    }
                }
                other => {
                    let says = format!("takes a table such as {{ read_expire = \"20ms\" }}, not {}", show(other));
                    self.mistakes.push(section.mistake("set", value.span(), says));
                }
            }
        }
        if let Some(((requests, depth), value)) =
            settings.nr_requests.zip(settings.depth).zip(section.raw("nr_requests"))
            && requests < u32::from(depth)
        {
            let says = format!(
                "is {requests}, less than depth ({depth}); it must be at least depth, because requests in flight count too"
            );
            self.mistakes.push(section.mistake("nr_requests", value.span(), says));
        }
        let scheduler = section.raw("scheduler").map(|_| settings.scheduler);
        Disk { at: section.at.clone(), scheduler, set, settings }
    }

    /// Gives a group its weight and its bounds; answers its path and the place of its table.
    fn group(
        &mut self,
        section: &Section<'_>,
        groups: &mut Tree,
        (bounds, delegated): (&mut BTreeMap<String, Bounds>, &mut BTreeMap<String, BTreeSet<String>>),
    ) -> Option<Placed<String>> {
        let mut keys = GroupKeys::default();
        section.put(self.mistakes, GROUP_ROWS, &mut keys);
        let root = if section.name == "/" { keys.bounds.check_root() } else { Ok(()) };
        match root.and_then(|()| keys.bounds.check()) {
            Ok(()) if !keys.bounds.is_none() => _ = bounds.insert(section.name.clone(), keys.bounds),
            Ok(()) => {}
            Err(wrong) => {
                let key = wrong.key;
                let at = section.raw(key).map_or(section.at.clone(), Spanned::span);
                self.mistakes.push(section.mistake(key, at, wrong.to_string()));
            }
        }
        if !keys.delegate.is_empty() {
            delegated.insert(section.name.clone(), keys.delegate);
        }
        let has_weight = section.raw("weight").is_some();
        match groups.place(&section.name) {
            Ok(GroupId::ROOT) if !has_weight && !section.is_empty() => {}
            Ok(GroupId::ROOT) => {
                let says =
                    "the root group takes no weight, because it has no siblings; set the weights of its children";
                self.note(section.at.clone(), &section.path, says.into());
                return None;
            }
            Ok(group) => groups.weigh(group, keys.weight),
            Err(says) => {
                self.note(section.at.clone(), &section.path, says);
                return None;
            }
        }
        Some(Placed { value: section.name.clone(), at: section.at.clone() })
    }

    fn export(&mut self, section: &Section<'_>, disks: &[Disk], groups: &mut Tree) -> Option<Export> {
        let name = section.name.as_str();
        if let Err(says) = check_name("an export", name) {
            self.note(section.at.clone(), &section.path, says);
        }
        if section.raw("backing").is_none() {
            let says = "needs a backing, such as backing = \"file:/srv/disk.img\"";
            self.note(section.at.clone(), &section.path, says.into());
        }
        let mut keys = ExportKeys::new(name);
        let before = self.mistakes.len();
        section.put(self.mistakes, EXPORT_ROWS, &mut keys);
        section.put(self.mistakes, ways::ROWS, &mut keys.settings.ways);
        let mut settings = keys.settings;
        settings.ways.root(self.dir);
        let is_wrong = self.mistakes[before..].iter().any(|mistake| mistake.key == join(&section.path, "backing"));
        let disk = section.take(self.mistakes, "disk", |given| find_disk(given.text()?, disks));
        let group = section.take(self.mistakes, "group", |given| groups.place(given.text()?));
        let backing = section.raw("backing").filter(|_| !is_wrong)?.span();
        if let Some(capacity) = settings.backing.about().size {
            let end = settings.offset.saturating_add(settings.size.unwrap_or(512));
            let beyond =
                if settings.offset >= capacity { section.raw("offset").map(|value| ("offset", value)) } else { None };
            let size = || section.raw("size").filter(|_| settings.size.is_some() && end > capacity);
            if let Some((key, value)) = beyond.or_else(|| Some(("size", size()?))) {
                let says = format!("exceeds the backing, which has {}", units::show_size(capacity));
                self.mistakes.push(section.mistake(key, value.span(), says));
            }
        }
        let settings = config::Export {
            backing: self.rooted(settings.backing),
            disk: disk.map(|placed| placed.value),
            group: match group {
                Some(placed) => placed.value,
                None => groups.own(name).unwrap_or(GroupId::ROOT), // there are too many, which is told of those that are said
            },
            ..settings
        };
        Some(Export { at: section.at.clone(), backing, places: section.places(), settings })
    }

    fn client(&mut self, section: &Section<'_>) -> Allowed {
        let mut settings = Rule { name: section.name.clone(), ..Rule::default() };
        if let Err(says) = check_name("a client", &section.name) {
            self.note(section.at.clone(), &section.path, says);
        }
        let before = self.mistakes.len();
        section.put(self.mistakes, CLIENT_ROWS, &mut settings);
        if let Err((_, says)) = settings.check()
            && self.mistakes.len() == before
        {
            self.note(section.at.clone(), &section.path, says.into());
        }
        // As the places of `listen`: it is one of them.
        if let Some(path) = settings.listener.as_ref().and_then(|place| place.strip_prefix("unix:")) {
            settings.listener = Some(Address::Unix(self.dir.join(path)).to_string());
        }
        Allowed { at: section.at.clone(), certificate: section.raw("certificate").map(Spanned::span), settings }
    }

    fn server(&mut self, document: &DeTable<'_>) -> Server {
        let Some((key, value)) = document.get_key_value(SERVER.name) else { return Server::default() };
        let Some(table) = self.table(SERVER, key.span(), SERVER.name, value) else { return Server::default() };
        let section = Section::new(SERVER.name.into(), "", key.span(), SERVER, table, self.mistakes);
        let mut server = Server { at: Some(section.at.clone()), places: section.places(), ..Server::default() };
        section.put(self.mistakes, SERVER_ROWS, &mut server);
        for Placed { value: ListenAt { address, .. }, at } in &mut server.listen {
            let rooted = rooted_at(address.clone(), self.dir).map(|rooted| *address = rooted);
            self.mistakes.extend(rooted.err().map(|says| section.mistake("listen", at.clone(), says)));
        }
        for Placed { value: ControlPlace(place), at } in &mut server.control {
            let rooted = place.take().map(|place| place.rooted(self.dir)).transpose().map(|rooted| *place = rooted);
            self.mistakes.extend(rooted.err().map(|says| section.mistake("control", at.clone(), says)));
        }
        server.roots.iter_mut().for_each(|root| root.value = self.dir.join(&root.value));
        server.tls_certificates = server.tls_certificates.map(|path| self.dir.join(path));
        server.learned = server.learned.map(|path| self.dir.join(path));
        // A bound below what it has to hold is a mistake of the key that is written, if only one is.
        let Limits { request_max, connection_memory, memory, .. } = server.limits;
        let bounds =
            [("request_max", request_max.into()), ("connection_memory", connection_memory), ("memory", memory)];
        for [(least_key, least), (key, bytes)] in [[bounds[0], bounds[1]], [bounds[1], bounds[2]]] {
            if bytes < least {
                let (bytes, least) = (units::show_size(bytes), units::show_size(least));
                let says = format!("{key} is {bytes}, less than {least_key} ({least})");
                let mistake = server.mistake(key, &says).or_else(|| server.mistake(least_key, &says));
                self.mistakes.push(mistake.unwrap_or_else(|| section.mistake(key, section.at.clone(), says)));
            }
        }
        server
    }

    /// The backing, its paths starting at the file's directory.
    fn rooted(&self, mut backing: Backing) -> Backing {
        for path in backing.paths() {
            *path = self.dir.join(&path);
        }
        backing
    }

    fn note(&mut self, at: Range<usize>, key: &str, says: String) {
        self.mistakes.push(Mistake { at: Some(at), key: key.into(), says });
    }
}

fn rooted_at(address: Address, dir: &Path) -> Result<Address, String> {
    match address {
        Address::Unix(path) => {
            let path = dir.join(path);
            place::check_length(&path)?;
            Ok(Address::Unix(path))
        }
        other => Ok(other),
    }
}

fn find_disk(name: &str, disks: &[Disk]) -> Result<usize, String> {
    disks.iter().position(|disk| disk.settings.name == name).ok_or_else(|| {
        if disks.is_empty() {
            return format!("unknown disk \"{name}\": the file has no [disk.…]");
        }
        let known = || disks.iter().map(|disk| disk.settings.name.as_str());
        let all = known().collect::<Vec<_>>().join(", ");
        format!("unknown disk \"{name}\": the file has {all}{}", suggestion(name, known()))
    })
}

/// A tunable's value as the text that tunables are set with.
fn tunable_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Boolean(yes) => Some(u8::from(*yes).to_string()),
        _ => None,
    }
}
