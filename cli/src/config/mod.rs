//! The config file: from text to checked parts, with every mistake noted by its place.
//!
//! What only the flags can tell (which scheduler a disk has that names none, where to listen) is left open here and
//! decided in [`plan`](crate::serve::plan).

pub(crate) mod difference;
pub(crate) mod faults;
pub(crate) mod keys;
pub(crate) mod section;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use fairlift::config::{Address, Backing, Engine, Limits, Tls, Ublk};
use fairlift::confine::Capability;
use fairlift_core::ceiling::{Bounds, Ceiling, Rates};
use fairlift_core::learn::concurrency;
use fairlift_core::{Duration, Group, GroupId, Priority, sched};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::control::{ControlPlace, parse_control};
use crate::words::groups::Tree;
use crate::words::mistake::{Mistake, Source};
use crate::words::place::ListenAt;
use crate::words::{backing, limits, nbd, place, rbd, scheduler, units};
use fairlift_lab::suggestion;
use keys::{DISK, EXPORT, GROUP, SERVER, SORTS, Sort};
use section::{Placed, Section, join, number, parsed, show, size, some_time, switch, text, time, ublk};

/// The example config file, which explains itself.
pub(crate) const EXAMPLE: &str = include_str!("example.toml");

/// Said of a list of addresses that has none.
const NO_ADDRESS: &str = "lists no address; leave the key out for the default socket";

/// The keys of a group that limit it.
const BOUNDS: [&str; 4] = ["max", "burst", "min", "latency"];

/// All that a config file says; what it doesn't say is `None`.
#[derive(Debug)]
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
    /// Where floors are.
    pub(crate) floors: Vec<Placed<String>>,
    /// `[server]`.
    pub(crate) server: Server,
}

/// A scheduling domain as the file has it.
#[derive(Debug)]
pub(crate) struct Disk {
    /// Its name.
    pub(crate) name: String,
    /// Where its table is.
    pub(crate) at: Range<usize>,
    /// Who goes next.
    pub(crate) scheduler: Option<sched::Kind>,
    /// Tunables and their values, the value with its place.
    pub(crate) set: Vec<(Placed<String>, Placed<String>)>,
    /// Requests in flight.
    pub(crate) depth: Option<u16>,
    /// Whether the workers share them.
    pub(crate) shared_tags: bool,
    /// Requests that wait and are in flight.
    pub(crate) nr_requests: Option<u32>,
    /// How long a request may be in the device.
    pub(crate) io_timeout: Option<Duration>,
    /// How many at once helpers wait for.
    pub(crate) concurrency: concurrency::Settings,
}

/// An export as the file has it.
#[derive(Debug)]
pub(crate) struct Export {
    /// Its name.
    pub(crate) name: String,
    /// Where its table is.
    pub(crate) at: Range<usize>,
    /// What holds the data.
    pub(crate) backing: Placed<Backing>,
    /// Where in the backing it starts.
    pub(crate) offset: u64,
    /// How many bytes it shows.
    pub(crate) size: Option<u64>,
    /// The index of its disk in [`File::disks`].
    pub(crate) disk: Option<usize>,
    /// Who pays.
    pub(crate) group: GroupId,
    /// The priority of its clients.
    pub(crate) priority: Priority,
    /// Whether clients may only read.
    pub(crate) read_only: bool,
    /// Where virtual machines find it.
    pub(crate) vhost_user: Option<PathBuf>,
    /// Whether it is a block device of this machine, if that is said.
    pub(crate) ublk: Option<Option<Ublk>>,
    /// What it is, for people.
    pub(crate) description: String,
}

/// The server as the file has it.
#[derive(Debug, Default)]
pub(crate) struct Server {
    /// Where its table is.
    pub(crate) at: Option<Range<usize>>,
    /// Where clients connect.
    pub(crate) listen: Vec<Placed<ListenAt>>,
    /// Where the server is looked at and changed.
    pub(crate) control: Vec<Placed<ControlPlace>>,
    /// Whether traffic is encrypted.
    pub(crate) tls: Option<Placed<Tls>>,
    /// The directory with the server's certificate.
    pub(crate) tls_certificates: Option<Placed<PathBuf>>,
    /// Whether clients need a certificate.
    pub(crate) tls_verify_peer: Option<Placed<bool>>,
    /// Whether plain text may leave the machine.
    pub(crate) insecure: Option<bool>,
    /// Where files must lie.
    pub(crate) roots: Vec<Placed<PathBuf>>,
    /// Whether system calls are given up.
    pub(crate) seccomp: Option<Placed<bool>>,
    /// Capabilities that are not.
    pub(crate) keep_capabilities: Vec<Placed<Capability>>,
    /// Worker threads.
    pub(crate) workers: Option<Placed<usize>>,
    /// What they give the kernel their work through.
    pub(crate) engine: Option<Engine>,
    /// Bounds, with the defaults where the file says nothing.
    pub(crate) limits: Limits,
}

/// Reads a config file; relative paths in it start at `dir`. Mistakes are added to `mistakes`.
pub(crate) fn read(source: &Source, dir: &Path, mistakes: &mut Vec<Mistake>) -> File {
    let (document, errors) = DeTable::parse_recoverable(&source.text);
    let mut found = Vec::new();
    let file = Reading { dir, mistakes: &mut found }.file(document.get_ref());
    if !errors.is_empty() {
        // What the parser guessed after an error is not what the author wrote: only what is certain is passed on.
        found.retain(|mistake| mistake.says.starts_with("unknown key"));
    }
    mistakes.extend(errors.iter().map(|error| Mistake {
        at: Some(error.span().unwrap_or(0..0)),
        key: String::new(),
        says: error.message().trim().replace('\n', ", "),
    }));
    mistakes.append(&mut found);
    file
}

struct Reading<'a> {
    dir: &'a Path,
    mistakes: &'a mut Vec<Mistake>,
}

impl Reading<'_> {
    fn file(&mut self, document: &DeTable<'_>) -> File {
        for (key, _) in document {
            let known = SORTS.map(|sort| sort.name);
            if !known.contains(&key.get_ref().as_ref()) {
                let hint = match suggestion(key.get_ref(), known) {
                    hint if hint.is_empty() => format!("; the tables are {}", SORTS.map(|sort| sort.header).join(", ")),
                    hint => hint,
                };
                self.note(key.span(), &join("", key.get_ref()), format!("unknown table{hint}"));
            }
        }
        let disks: Vec<_> = self.sections(document, DISK).iter().map(|section| self.disk(section)).collect();
        let mut groups = Tree::new();
        let sections = self.sections(document, GROUP);
        let weighed = sections.iter().filter_map(|section| self.group(section, &mut groups)).collect();
        let bounds =
            sections.iter().filter_map(|section| Some((section.name.clone(), self.bounds(section)?))).collect();
        let exports = self.sections(document, EXPORT);
        let exports = exports.iter().filter_map(|section| self.export(section, &disks, &mut groups)).collect();
        let floors = sections
            .iter()
            .filter_map(|section| Some(Placed { value: section.name.clone(), at: section.raw("min")?.span() }));
        let floors = floors.collect();
        File { disks, exports, groups, bounds, weighed, floors, server: self.server(document) }
    }

    /// The tables `[sort.NAME]`, in the order of the file.
    fn sections<'d>(&mut self, document: &'d DeTable<'d>, sort: Sort) -> Vec<Section<'d>> {
        let Some((key, value)) = document.get_key_value(sort.name) else { return Vec::new() };
        let Some(table) = value.get_ref().as_table() else {
            self.note(
                key.span(),
                sort.name,
                format!("must be written {}, not as {}", sort.header, show(value.get_ref())),
            );
            return Vec::new();
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let mut sections = Vec::new();
        for (name, value) in entries {
            let path = join(sort.name, name.get_ref());
            match value.get_ref().as_table() {
                Some(table) => {
                    sections.push(Section::new(path, name.get_ref(), name.span(), sort, table, self.mistakes));
                }
                None => {
                    let says = format!("must be written {}, not as {}", sort.header, show(value.get_ref()));
                    self.note(name.span(), &path, says);
                }
            }
        }
        sections
    }

    fn disk(&mut self, section: &Section<'_>) -> Disk {
        let scheduler =
            section.take(self.mistakes, "scheduler", parsed(scheduler::parse_scheduler)).map(|placed| placed.value);
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
        let depth: Option<u16> = section.take(self.mistakes, "depth", number(1..=4096)).map(|placed| placed.value);
        let nr_requests = section.take(self.mistakes, "nr_requests", number::<u32>(1..=1 << 20));
        if let Some((requests, depth)) = nr_requests.as_ref().zip(depth)
            && requests.value < u32::from(depth)
        {
            let says = format!(
                "is {}, less than depth ({depth}); it must be at least depth, because requests in flight count too",
                requests.value
            );
            self.mistakes.push(section.mistake("nr_requests", requests.at.clone(), says));
        }
        Disk {
            name: section.name.clone(),
            at: section.at.clone(),
            scheduler,
            set,
            depth,
            shared_tags: section.take(self.mistakes, "shared_tags", switch).is_some_and(|placed| placed.value),
            nr_requests: nr_requests.map(|placed| placed.value),
            io_timeout: section.take(self.mistakes, "io_timeout", some_time).map(|placed| placed.value),
            concurrency: self.concurrency(section),
        }
    }

    fn concurrency(&mut self, section: &Section<'_>) -> concurrency::Settings {
        let fixed = section.take(self.mistakes, "concurrency", |value| match value.as_str() {
            Some("auto") => Ok(None),
            _ => number(1..=256)(value).map(Some).map_err(|says| format!("{says}, or \"auto\"")),
        });
        let most = section.take(self.mistakes, "concurrency_max", number(1..=256)).map(|placed| placed.value);
        match (fixed.and_then(|placed| placed.value), most) {
            (Some(most), _) => concurrency::Settings { most, fixed: true },
            (None, Some(most)) => concurrency::Settings { most, fixed: false },
            (None, None) => concurrency::Settings::default(),
        }
    }

    /// Gives a group its weight; answers its path and the place of its table.
    fn group(&mut self, section: &Section<'_>, groups: &mut Tree) -> Option<Placed<String>> {
        let weight = section.take(self.mistakes, "weight", number(1..=i128::from(Group::WEIGHT_MAX)));
        match groups.place(&section.name) {
            Ok(GroupId::ROOT) if weight.is_none() && BOUNDS.iter().any(|key| section.raw(key).is_some()) => {}
            Ok(GroupId::ROOT) => {
                let says =
                    "the root group takes no weight, because it has no siblings; set the weights of its children";
                self.note(section.at.clone(), &section.path, says.into());
                return None;
            }
            Ok(group) => groups.weigh(group, weight.map_or(Group::WEIGHT_DEFAULT, |placed| placed.value)),
            Err(says) => {
                self.note(section.at.clone(), &section.path, says);
                return None;
            }
        }
        Some(Placed { value: section.name.clone(), at: section.at.clone() })
    }

    /// The limits of a group, if it has any.
    fn bounds(&mut self, section: &Section<'_>) -> Option<Bounds> {
        let mut length = Ceiling::NONE.length;
        let [max, burst, floor] = ["max", "burst", "min"].map(|key| {
            let length = (key == "burst").then_some(&mut length);
            section.raw(key).map_or(Rates::NONE, |value| self.rates(section, key, value, length))
        });
        let latency = section.take(self.mistakes, "latency", |value| match value.as_str() {
            Some(text) => limits::parse_latency(text),
            None => some_time(value).map(Some),
        });
        let latency = latency.and_then(|placed| placed.value);
        let bounds = Bounds { ceiling: Ceiling { max, burst, length }, floor, latency };
        let root = if section.name == "/" { bounds.check_root() } else { Ok(()) };
        if let Err(wrong) = root.and_then(|()| bounds.check()) {
            let key = wrong.key();
            let at = section.raw(key).map_or(section.at.clone(), Spanned::span);
            self.mistakes.push(section.mistake(key, at, wrong.to_string()));
            return None;
        }
        Some(bounds).filter(|bounds| !bounds.is_none())
    }

    /// Rates, as text or as a table; with `length`, as of a burst.
    fn rates(
        &mut self,
        section: &Section<'_>,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        mut length: Option<&mut Duration>,
    ) -> Rates {
        let mut rates = Rates::NONE;
        let table = match value.get_ref() {
            DeValue::Table(table) => table,
            DeValue::String(text) => {
                let read = match &length {
                    Some(_) => limits::parse_burst(text),
                    None => limits::parse(text).map(|rates| (rates, Duration::ZERO)),
                };
                match read {
                    Ok((read, said)) => {
                        length.iter_mut().for_each(|length| **length = said);
                        rates = read;
                    }
                    Err(says) => self.mistakes.push(section.mistake(key, value.span(), says)),
                }
                return rates;
            }
            other => {
                let says = format!("takes a table such as {{ riops = 3000, wbps = \"50m\" }}, not {}", show(other));
                self.mistakes.push(section.mistake(key, value.span(), says));
                return rates;
            }
        };
        for (name, value) in table {
            let path = join(&join(&section.path, key), name.get_ref());
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(_) => show(value.get_ref()),
                other => {
                    self.note(value.span(), &path, format!("takes a number or a size, not {}", show(other)));
                    continue;
                }
            };
            if let Some(length) = length.as_deref_mut().filter(|_| name.get_ref() == limits::SECONDS) {
                match limits::parse_seconds(&text) {
                    Ok(said) => *length = said,
                    Err(says) => self.note(value.span(), &path, says),
                }
                continue;
            }
            match limits::parse_rate(name.get_ref()) {
                Ok(rate) => match limits::parse_amount(rate, &text) {
                    Ok(amount) => rates = rates.with(rate, amount.unwrap_or(0)),
                    Err(says) => self.note(value.span(), &path, says),
                },
                Err(says) => self.note(name.span(), &path, says),
            }
        }
        rates
    }

    fn export(&mut self, section: &Section<'_>, disks: &[Disk], groups: &mut Tree) -> Option<Export> {
        let name = section.name.as_str();
        if let Err(says) = check_name(name) {
            self.note(section.at.clone(), &section.path, says);
        }
        if section.raw("backing").is_none() {
            let says = "needs a backing, such as backing = \"file:/srv/disk.img\"";
            self.note(section.at.clone(), &section.path, says.into());
        }
        let backing = section.take(self.mistakes, "backing", parsed(backing::parse));
        let sectors = |value: &DeValue<'_>| size(value).and_then(units::whole_sectors);
        let offset = section.take(self.mistakes, "offset", sectors);
        let size = section.take(self.mistakes, "size", |value| match sectors(value)? {
            0 => Err("the size must be larger than 0".into()),
            bytes => Ok(bytes),
        });
        if let Some(capacity) = backing.as_ref().and_then(|placed| capacity(&placed.value)) {
            let start = offset.as_ref().map_or(0, |placed| placed.value);
            let end = size.as_ref().map_or(start.saturating_add(512), |placed| start.saturating_add(placed.value));
            let beyond = if start >= capacity { offset.as_ref().map(|p| ("offset", p)) } else { None };
            let beyond = beyond.or_else(|| size.as_ref().filter(|_| end > capacity).map(|p| ("size", p)));
            if let Some((key, placed)) = beyond {
                let says = format!("exceeds the backing, which has {}", units::show_size(capacity));
                self.mistakes.push(section.mistake(key, placed.at.clone(), says));
            }
        }
        let disk = section.take(self.mistakes, "disk", |value| find_disk(&text(value)?, disks));
        let group = section.take(self.mistakes, "group", |value| groups.place(&text(value)?));
        let priority = section.take(self.mistakes, "ioprio", |value| {
            text(value)?.parse::<Priority>().map_err(|form| format!("{form}, not {}", show(value)))
        });
        let read_only = section.take(self.mistakes, "read_only", switch);
        let vhost_user = section.take(self.mistakes, "vhost_user", text);
        let ublk = section.take(self.mistakes, "ublk", ublk);
        let description = section.take(self.mistakes, "description", |value| {
            let text = text(value)?;
            if text.len() > NAME_MAX { Err(format!("takes at most {NAME_MAX} bytes")) } else { Ok(text) }
        });
        Some(Export {
            name: name.into(),
            at: section.at.clone(),
            backing: backing.map(|placed| Placed { value: self.rooted(placed.value), at: placed.at })?,
            offset: offset.map_or(0, |placed| placed.value),
            size: size.map(|placed| placed.value),
            disk: disk.map(|placed| placed.value),
            group: match group {
                Some(placed) => placed.value,
                None => groups.own(name).unwrap_or(GroupId::ROOT), // there are too many, which is told of those that are said
            },
            priority: priority.map_or(Priority::default(), |placed| placed.value),
            read_only: read_only.is_some_and(|placed| placed.value),
            vhost_user: vhost_user.map(|placed| self.dir.join(placed.value)),
            ublk: ublk.map(|placed| placed.value),
            description: description.map_or_else(String::new, |placed| placed.value),
        })
    }

    fn server(&mut self, document: &DeTable<'_>) -> Server {
        let Some((key, value)) = document.get_key_value(SERVER.name) else { return Server::default() };
        let Some(table) = value.get_ref().as_table() else {
            let says = format!("must be written [server], not as {}", show(value.get_ref()));
            self.note(key.span(), SERVER.name, says);
            return Server::default();
        };
        let section = Section::new(SERVER.name.into(), "", key.span(), SERVER, table, self.mistakes);
        Server {
            at: Some(section.at.clone()),
            listen: self.listen(&section),
            control: self.control(&section),
            tls: section.take(self.mistakes, "tls", parsed(place::parse_tls)),
            tls_certificates: section
                .take(self.mistakes, "tls_certificates", text)
                .map(|placed| Placed { value: self.dir.join(placed.value), at: placed.at }),
            tls_verify_peer: section.take(self.mistakes, "tls_verify_peer", switch),
            insecure: section.take(self.mistakes, "insecure", switch).map(|placed| placed.value),
            roots: self.roots(&section),
            seccomp: section.take(self.mistakes, "seccomp", switch),
            keep_capabilities: self.list(&section, "keep_capabilities", None, str::parse),
            workers: section.take(self.mistakes, "workers", number(1..=64)),
            engine: section.take(self.mistakes, "engine", parsed(place::parse_engine)).map(|placed| placed.value),
            limits: self.limits(&section),
        }
    }

    fn listen(&mut self, section: &Section<'_>) -> Vec<Placed<ListenAt>> {
        let dir = self.dir;
        self.list(section, "listen", Some(NO_ADDRESS), |text| {
            let place = place::parse_place(text)?;
            Ok(ListenAt { address: rooted_at(place.address, dir)?, ..place })
        })
    }

    fn control(&mut self, section: &Section<'_>) -> Vec<Placed<ControlPlace>> {
        let dir = self.dir;
        self.list(section, "control", Some(NO_ADDRESS), |text| {
            let place = parse_control(text)?;
            Ok(ControlPlace(place.0.map(|at| at.rooted(dir)).transpose()?))
        })
    }

    fn roots(&mut self, section: &Section<'_>) -> Vec<Placed<PathBuf>> {
        let dir = self.dir;
        let none = "lists no directory; leave the key out to serve files from anywhere";
        self.list(section, "roots", Some(none), |text| match text {
            "" => Err("takes a directory, not \"\"".into()),
            _ => Ok(dir.join(text)),
        })
    }

    /// A text, or a list of texts; `none` is said of a list without any, if that is a mistake.
    fn list<T>(
        &mut self,
        section: &Section<'_>,
        key: &str,
        none: Option<&str>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<Placed<T>> {
        let Some(value) = section.raw(key) else { return Vec::new() };
        let one = std::slice::from_ref(value);
        let all: &[Spanned<DeValue<'_>>] = value.get_ref().as_array().map_or(one, |list| list);
        if let Some(none) = none.filter(|_| all.is_empty()) {
            self.mistakes.push(section.mistake(key, value.span(), none));
        }
        let mut read_all = Vec::new();
        for value in all {
            match text(value.get_ref()).and_then(|text| read(&text)) {
                Ok(read) => read_all.push(Placed { value: read, at: value.span() }),
                Err(says) => self.mistakes.push(section.mistake(key, value.span(), says)),
            }
        }
        read_all
    }

    fn limits(&mut self, section: &Section<'_>) -> Limits {
        let usual = Limits::default();
        let request_max = section.take(self.mistakes, "request_max", |value| match size(value)? {
            bytes if (64 << 10..=1 << 30).contains(&bytes) => u32::try_from(bytes).map_err(|e| e.to_string()),
            _ => Err(format!("takes a size from 64k to 1g, not {}", show(value))),
        });
        let connection_memory = section.take(self.mistakes, "connection_memory", size);
        let memory = section.take(self.mistakes, "memory", size);
        // A bound below what it has to hold is a mistake of the key that is written, if only one is.
        let mut at_least =
            |key: &str, of: &Option<Placed<u64>>, usual: u64, least_key: &str, least: (u64, Option<Range<usize>>)| {
                let bytes = of.as_ref().map_or(usual, |placed| placed.value);
                if bytes < least.0 {
                    let says = format!(
                        "{key} is {}, less than {least_key} ({})",
                        units::show_size(bytes),
                        units::show_size(least.0)
                    );
                    let (key, at) = of
                        .as_ref()
                        .map(|placed| (key, placed.at.clone()))
                        .or(least.1.map(|at| (least_key, at)))
                        .unwrap_or((key, section.at.clone()));
                    self.mistakes.push(section.mistake(key, at, says));
                }
                bytes
            };
        let request = request_max.as_ref().map_or(usual.request_max, |placed| placed.value);
        let connection_bytes = at_least(
            "connection_memory",
            &connection_memory,
            usual.connection_memory,
            "request_max",
            (request.into(), request_max.map(|placed| placed.at)),
        );
        let bytes = at_least(
            "memory",
            &memory,
            usual.memory,
            "connection_memory",
            (connection_bytes, connection_memory.map(|placed| placed.at)),
        );
        Limits {
            connections: section
                .take(self.mistakes, "max_connections", number(1..=1 << 20))
                .map_or(usual.connections, |placed| placed.value),
            handshake_timeout: section
                .take(self.mistakes, "handshake_timeout", some_time)
                .map_or(usual.handshake_timeout, |placed| placed.value),
            request_max: request,
            connection_requests: section
                .take(self.mistakes, "connection_requests", number(1..=480))
                .map_or(usual.connection_requests, |placed| placed.value),
            connection_memory: connection_bytes,
            memory: bytes,
            drain_timeout: section
                .take(self.mistakes, "drain_timeout", time)
                .map_or(usual.drain_timeout, |placed| placed.value),
            helpers: section
                .take(self.mistakes, "helpers", number(2..=256))
                .map_or(usual.helpers, |placed| placed.value),
        }
    }

    /// The backing, its path starting at the file's directory.
    fn rooted(&self, backing: Backing) -> Backing {
        match backing {
            Backing::File { path, direct, in_use } => Backing::File { path: self.dir.join(path), direct, in_use },
            Backing::Rbd(image) => Backing::Rbd(Box::new(rbd::rooted(*image, self.dir))),
            Backing::Nbd(remote) => Backing::Nbd(Box::new(nbd::rooted(*remote, self.dir))),
            Backing::Fault(mut fault) => {
                (fault.path, fault.inner) = (self.dir.join(&fault.path), self.rooted(fault.inner));
                Backing::Fault(fault)
            }
            other => other,
        }
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

/// What NBD allows for a name.
const NAME_MAX: usize = 4096;

/// Whether clients can ask for an export of that name.
///
/// # Errors
/// The protocol cannot carry it.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if name.len() > NAME_MAX {
        return Err(format!("an export's name has at most {NAME_MAX} bytes"));
    }
    if name.chars().any(char::is_control) {
        return Err("an export's name has no control characters".into());
    }
    Ok(())
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

/// The size of a backing that says it itself.
fn capacity(backing: &Backing) -> Option<u64> {
    match backing {
        Backing::Null { size, .. } | Backing::Mem { size } | Backing::Model { size, .. } => Some(*size),
        Backing::Fault(fault) => capacity(&fault.inner),
        Backing::File { .. } | Backing::Nbd(_) | Backing::Rbd(_) => None,
    }
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
