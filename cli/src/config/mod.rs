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

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairlift::access::Rule;
use fairlift::config::{Address, Backing, Config, Disk, Engine, Export, Limits, SharesAt, Tls};
use fairlift::confine::Capability;
use fairlift::control::check_name;
use fairlift_core::{Group, GroupId, sched};
use fairlift_lab::suggestion;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::control::ControlPlace;
use crate::syntax::groups::{self, own_path};
use crate::syntax::mistake::{Mistake, Source, hint};
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
    /// Disks, exports, clients and groups, in the order of the file; groups that exports name are among them.
    pub(crate) config: Config,
    pub(crate) server: Server,
    /// Where its tables and their values are, by their paths: `disk.ssd0`, `disk.ssd0.depth`.
    pub(crate) spans: BTreeMap<String, Range<usize>>,
}

/// The server as the file has it; its keys are explained in [`SERVER_ROWS`].
#[derive(Debug, Default)]
pub(crate) struct Server {
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
    let file = Reading { dir, mistakes: &mut found, spans: BTreeMap::new() }.file(document.get_ref());
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
    spans: BTreeMap<String, Range<usize>>,
}

impl Reading<'_> {
    fn file(mut self, document: &DeTable<'_>) -> File {
        for (key, value) in document {
            let known = SORTS.map(|sort| sort.name);
            if !known.contains(&key.get_ref().as_ref()) {
                let hint = match value.get_ref().get("roles") {
                    Some(_) => "; this is a workload for fairlift iostest -w, and not a config".into(),
                    None => hint(key.get_ref(), known, || {
                        format!("; the tables are {}", SORTS.map(|sort| sort.header).join(", "))
                    }),
                };
                self.note(key.span(), &join("", key.get_ref()), format!("unknown table{hint}"));
            }
        }
        let mut config = Config::default();
        let mut disks: Vec<_> = self.sections(document, DISK).iter().map(|section| self.disk(section)).collect();
        self.sections(document, GROUP).iter().for_each(|section| self.group(section, &mut config));
        let mut exports = Vec::new();
        for section in self.sections(document, EXPORT) {
            exports.extend(self.export(&section, &disks, Arc::make_mut(&mut config.groups)));
        }
        config.clients.extend(self.sections(document, CLIENT).iter().map(|section| self.client(section)));
        let empty = |value: &Spanned<DeValue<'_>>| value.get_ref().as_table().is_some_and(|all| all.is_empty());
        if let Some((key, _)) = document.get_key_value(CLIENT.name).filter(|(_, value)| empty(value)) {
            let says = "allows no client, and without any [client.NAME] every client may open every export: add one, or remove this line";
            self.note(key.span(), CLIENT.name, says.into());
        }
        let server = self.server(document);
        for shares in disks.iter_mut().filter_map(|disk| disk.shares.as_mut()) {
            shares.gateway = server.gateway.clone().unwrap_or_else(|| shares.gateway.clone());
        }
        (config.disks, config.exports) = (disks.into(), exports.into());
        File { config, server, spans: self.spans }
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
            Some(self.section(path, name.get_ref(), name.span(), sort, table))
        };
        entries.into_iter().filter_map(section).collect()
    }

    fn section<'d>(
        &mut self,
        path: String,
        name: &str,
        at: Range<usize>,
        sort: Sort,
        table: &'d DeTable<'d>,
    ) -> Section<'d> {
        self.spans.extend(table.iter().map(|(key, value)| (join(&path, key.get_ref()), value.span())));
        self.spans.insert(path.clone(), at.clone());
        Section::new(path, name, at, sort, table, self.mistakes)
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
        let mut settings = Disk::new(&section.name, sched::Kind::MqDeadline);
        section.put(self.mistakes, DISK_ROWS, &mut settings);
        if let Some(SharesAt::Directory(path)) = settings.shares.as_mut().map(|shares| &mut shares.place) {
            *path = self.dir.join(&*path);
        }
        settings.set = self.tunables(section).unwrap_or_default();
        if let Some((requests, depth)) = settings.nr_requests.zip(settings.depth)
            && requests < u32::from(depth)
        {
            let says = format!(
                "is {requests}, less than depth ({depth}); it must be at least depth, because requests in flight count too"
            );
            self.mistakes.push(section.place("nr_requests").says(says));
        }
        settings.is_usual = section.raw("scheduler").is_none();
        settings
    }

    fn tunables(&mut self, section: &Section<'_>) -> Option<Vec<(String, String)>> {
        let (value, place) = (section.raw("set")?.get_ref(), section.place("set"));
        let Some(table) = value.as_table() else {
            let says = format!("takes a table such as {{ read_expire = \"20ms\" }}, not {}", show(value));
            self.mistakes.push(place.says(says));
            return None;
        };
        let mut set = Vec::new();
        for (name, value) in table {
            let (at, path) = (name.span().start..value.span().end, join(&place.key, name.get_ref()));
            match tunable_text(value.get_ref()) {
                Some(text) => set.push((name.get_ref().to_string(), text)),
                None => {
                    let says = format!("takes text, a number, true or false, not {}", show(value.get_ref()));
                    self.note(at.clone(), &path, says);
                }
            }
            self.spans.insert(path, at);
        }
        Some(set)
    }

    fn group(&mut self, section: &Section<'_>, config: &mut Config) {
        let mut keys = GroupKeys::default();
        section.put(self.mistakes, GROUP_ROWS, &mut keys);
        let root = if section.name == "/" { keys.bounds.check_root() } else { Ok(()) };
        match root.and_then(|()| keys.bounds.check()) {
            Ok(()) if !keys.bounds.is_none() => {
                Arc::make_mut(&mut config.bounds).insert(section.name.clone(), keys.bounds);
            }
            Ok(()) => {}
            Err(wrong) => self.mistakes.push(section.place(wrong.key).says(wrong.to_string())),
        }
        if !keys.delegate.is_empty() {
            config.delegated.insert(section.name.clone(), keys.delegate);
        }
        let has_weight = section.raw("weight").is_some();
        let groups = Arc::make_mut(&mut config.groups);
        match groups::place(groups, &section.name) {
            Ok(GroupId::ROOT) if !has_weight && !section.is_empty() => {}
            Ok(GroupId::ROOT) => {
                let says =
                    "the root group takes no weight, because it has no siblings; set the weights of its children";
                self.mistakes.push(section.header().says(says));
            }
            Ok(group) => groups[usize::from(group.0)].weight = keys.weight,
            Err(says) => self.mistakes.push(section.header().says(says)),
        }
    }

    fn export(&mut self, section: &Section<'_>, disks: &[Disk], all: &mut Vec<Group>) -> Option<Export> {
        let name = section.name.as_str();
        self.mistakes.extend(check_name("an export", name).err().map(|says| section.header().says(says)));
        if section.raw("backing").is_none() {
            let says = "needs a backing, such as backing = \"file:/srv/disk.img\"";
            self.mistakes.push(section.header().says(says));
        }
        let mut keys = ExportKeys::new(name);
        let before = self.mistakes.len();
        section.put(self.mistakes, EXPORT_ROWS, &mut keys);
        section.put(self.mistakes, ways::ROWS, &mut keys.settings.ways);
        let ExportKeys { mut settings, disk, group, .. } = keys;
        settings.ways.root(self.dir);
        let backing = section.place("backing");
        let is_wrong = self.mistakes[before..].iter().any(|mistake| mistake.key == backing.key);
        let disk = disk.and_then(|name| section.right(self.mistakes, "disk", find_disk(&name, disks)));
        let group = group.and_then(|path| section.right(self.mistakes, "group", groups::place(all, &path)));
        section.raw("backing").filter(|_| !is_wrong)?;
        if let Some(capacity) = settings.backing.about().size {
            let end = settings.offset.saturating_add(settings.size.unwrap_or(512));
            let beyond = [("offset", settings.offset >= capacity), ("size", settings.size.is_some() && end > capacity)];
            if let Some((key, _)) = beyond.into_iter().find(|(key, is)| *is && section.raw(key).is_some()) {
                let says = format!("exceeds the backing, which has {}", units::show_size(capacity));
                self.mistakes.push(section.place(key).says(says));
            }
        }
        // There may be too many groups, which is told of those that are said.
        let group = group.unwrap_or_else(|| groups::place(all, &own_path(name)).unwrap_or(GroupId::ROOT));
        Some(Export { backing: self.rooted(settings.backing), disk, group, ..settings })
    }

    fn client(&mut self, section: &Section<'_>) -> Rule {
        let mut settings = Rule { name: section.name.clone(), ..Rule::default() };
        self.mistakes.extend(check_name("a client", &section.name).err().map(|says| section.header().says(says)));
        let before = self.mistakes.len();
        section.put(self.mistakes, CLIENT_ROWS, &mut settings);
        if let Err((_, says)) = settings.check()
            && self.mistakes.len() == before
        {
            self.mistakes.push(section.header().says(says));
        }
        // As the places of `listen`: it is one of them.
        if let Some(path) = settings.listener.as_ref().and_then(|place| place.strip_prefix("unix:")) {
            settings.listener = Some(Address::Unix(self.dir.join(path)).to_string());
        }
        settings
    }

    fn server(&mut self, document: &DeTable<'_>) -> Server {
        let Some((key, value)) = document.get_key_value(SERVER.name) else { return Server::default() };
        let Some(table) = self.table(SERVER, key.span(), SERVER.name, value) else { return Server::default() };
        let section = self.section(SERVER.name.into(), "", key.span(), SERVER, table);
        let mut server = Server::default();
        section.put(self.mistakes, SERVER_ROWS, &mut server);
        for Placed { value: ListenAt { address, .. }, place } in &mut server.listen {
            self.mistakes.extend(place::root(address, self.dir).err().map(|says| place.says(says)));
        }
        for Placed { value: ControlPlace(at), place } in &mut server.control {
            let rooted = at.as_mut().map_or(Ok(()), |at| at.root(self.dir));
            self.mistakes.extend(rooted.err().map(|says| place.says(says)));
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
                let written = [key, least_key].into_iter().find(|key| section.raw(key).is_some());
                self.mistakes.push(section.place(written.unwrap_or(key)).says(says));
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

fn find_disk(name: &str, disks: &[Disk]) -> Result<usize, String> {
    disks.iter().position(|disk| disk.name == name).ok_or_else(|| {
        if disks.is_empty() {
            return format!("unknown disk \"{name}\": the file has no [disk.…]");
        }
        let known = || disks.iter().map(|disk| disk.name.as_str());
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
