//! Flags and config file together: what the server is made from.
//!
//! serve.1  Exports come from both. For everything else that is said once, the flag wins.
//! serve.2  `--scheduler` and `--depth` are for every disk that the file does not give one; `--set` is for every disk whose
//!     scheduler has that tunable and for which the file does not set it.
//! serve.3  Plain text does not leave the machine unless the operator says so.
//! serve.4  A disk for which nobody names a scheduler has `fair` if exports of more than one group are on it, or `bfq` if it rotates; else
//!     `mq-deadline`, which is cheaper and has nobody to be fair to, until a second tenant comes. The backings of a disk, and whether it
//!     rotates, are known when all is opened: here they are guessed, for tunables to be checked.
//! serve.5  Each export that names no group is a tenant: it has a group of its own, called after it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fairlift::config::{Address, Backing, Config, Disk, Export, FileAt, Limits, Listener, Ram, Root, Tls, WayIn};
use fairlift::control::{check_floors, check_name};
use fairlift_core::ceiling::{Bounds, Ceiling};
use fairlift_core::{GroupId, sched};

use super::args::ServeArgs;
use super::places::Places;
use crate::config::faults;
use crate::config::keys::why_unverified;
use crate::config::section::{Placed, join};
use crate::config::{self, File, Server};
use crate::control::ControlAt;
use crate::syntax::backing::Named;
use crate::syntax::certificates::{self, Certificate};
use crate::syntax::groups::{self, own_path};
use crate::syntax::mistake::{Mistake, SettingPlace, Source};
use crate::syntax::place::{self, ListenAt};
use crate::syntax::scheduler::{check_setting, tunables};
use crate::syntax::units::show_size;
use crate::ways;
use fairlift_lab::suggestion;

/// The configuration of a server, with the place of each part.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) config: Config,
    /// The keys of `[server]`, where flags win (serve.1); `listen` and `control` are taken out.
    pub(crate) server: Server,
    /// Where the server is looked at and changed; `None`: where it usually is.
    pub(crate) control: Option<Vec<ControlAt>>,
    /// The digest of the certificate.
    pub(crate) certificate: Option<Vec<u8>>,
    pub(crate) places: Places,
    /// The config file, which mistakes are shown in.
    pub(super) source: Option<Source>,
}

/// Joins flags, file and inherited sockets. The result is of use only if no mistake was added.
pub(crate) fn plan(
    flags: &ServeArgs,
    file: Option<File>,
    inherited: Vec<Arc<OwnedFd>>,
    mistakes: &mut Vec<Mistake>,
) -> Plan {
    let needs_exports = file.is_some();
    let mut file = file.unwrap_or_default();
    let places = Places::new(flags, &mut file);
    let server = overridden(flags, file.server);
    let mut joining = Joining { flags, config: file.config, server, places, mistakes };
    joining.exports(needs_exports);
    joining.weigh();
    joining.limit();
    joining.disks();
    let certificate = joining.certificate();
    joining.listeners(inherited);
    let control = joining.control();
    joining.check_workers();
    let Joining { mut config, server, mut places, mistakes, .. } = joining;
    // Only a certificate that is verified says who a client is.
    for rule in &config.clients {
        let place = || places.key(&join("client", &rule.name), "certificate");
        mistakes.extend(why_unverified(rule, server.tls_verify_peer).map(|why| place().says(why)));
    }
    for Placed { value: path, place } in &server.roots {
        places.put(format!("root {}", path.display()), place.clone());
        config.roots.push(Root { path: path.clone(), source: place.key.clone() });
    }
    (config.workers, config.engine, config.limits) = (server.workers, server.engine.unwrap_or_default(), server.limits);
    if let Err((path, says)) = check_floors(&config) {
        mistakes.push(places.key(&join("group", &path), "min").says(says));
    }
    Plan { config, server, control, certificate, places, source: None }
}

/// The keys of `[server]`, where flags win (serve.1).
fn overridden(flags: &ServeArgs, server: Server) -> Server {
    let kept = if flags.keep_capability.is_empty() { &server.keep_capabilities } else { &flags.keep_capability };
    Server {
        keep_capabilities: kept.clone(),
        listen: said("--listen", &flags.listen, server.listen),
        control: said("--control", &flags.control, server.control),
        roots: said("--root", &flags.root, server.roots),
        tls: flags.tls.or(server.tls),
        tls_certificates: flags.tls_certificates.clone().or(server.tls_certificates),
        tls_verify_peer: flags.tls_verify_peer || server.tls_verify_peer,
        insecure: flags.insecure || server.insecure,
        seccomp: flags.seccomp.or(server.seccomp),
        workers: flags.workers.map(usize::from).or(server.workers),
        engine: flags.engine.or(server.engine),
        limits: Limits {
            connections: flags.max_connections.unwrap_or(server.limits.connections),
            handshake_timeout: flags.handshake_timeout.unwrap_or(server.limits.handshake_timeout),
            ..server.limits
        },
        ..server
    }
}

/// The values of a list, each with its place (serve.1).
fn said<T: Clone>(flag: &str, given: &[T], in_file: Vec<Placed<T>>) -> Vec<Placed<T>> {
    let in_flags = given.iter().map(|value| Placed { value: value.clone(), place: SettingPlace::in_flag(flag) });
    if given.is_empty() { in_file } else { in_flags.collect() }
}

/// The configuration of a file, whose parts become those of file and flags, one after the other.
struct Joining<'a> {
    flags: &'a ServeArgs,
    config: Config,
    server: Server,
    places: Places,
    mistakes: &'a mut Vec<Mistake>,
}

impl Joining<'_> {
    /// Each worker's part of the memory takes the largest request.
    fn check_workers(&mut self) {
        let Server { workers: Some(workers), limits, .. } = self.server else { return };
        let (memory, request) = (limits.memory, u64::from(limits.request_max));
        // That `memory` takes one request has been looked at.
        if memory >= request && memory / (workers as u64) < request {
            let says = format!(
                "memory is {}, too little for {workers} workers that each serve a request of request_max ({}); set workers to at \
                 most {}, or memory to at least {}",
                show_size(memory),
                show_size(request),
                memory / request,
                show_size(request * workers as u64)
            );
            self.mistakes.push(self.places.server("workers").says(says));
        }
    }

    /// The weights of `--weight` (serve.5).
    fn weigh(&mut self) {
        for (name, weight) in &self.flags.weight {
            let flag = SettingPlace::in_flag(format!("--weight {name}={weight}"));
            match self.group_of(name) {
                Ok(GroupId::ROOT) => {
                    let says = "there is no group \"/\" with siblings, so that its weight would mean something";
                    self.mistakes.push(flag.says(says));
                }
                Ok(group) => {
                    let group = &mut Arc::make_mut(&mut self.config.groups)[usize::from(group.0)];
                    group.weight = *weight;
                    self.places.put(join("group", &group.path), flag);
                }
                Err(says) => self.mistakes.push(flag.says(says)),
            }
        }
    }

    /// The group that a flag means by an export's name, or by its own.
    fn group_of(&self, name: &str) -> Result<GroupId, String> {
        let Config { exports, groups, .. } = &self.config;
        let export = exports.iter().find(|export| export.name == name).map(|export| export.group);
        let group = || groups.iter().position(|group| group.path == name).map(|at| GroupId(at as u16));
        export.or_else(group).ok_or_else(|| {
            let paths = groups[1..].iter().map(|group| &*group.path);
            let known = exports.iter().map(|export| &*export.name).chain(paths);
            let kind = if name.starts_with('/') { "group" } else { "export" };
            format!("there is no {kind} {name:?}{}", suggestion(name, known))
        })
    }

    /// `--max`: it takes the place of the file's value (serve.1).
    fn limit(&mut self) {
        for (name, max) in &self.flags.max {
            let limited = self.group_of(name).and_then(|group| {
                let path = &self.config.groups[usize::from(group.0)].path;
                let there = self.config.bounds.get(path).copied().unwrap_or_default();
                let now = Bounds { ceiling: Ceiling { max: *max, ..there.ceiling }, ..there };
                now.check().map_err(|wrong| wrong.to_string())?;
                Arc::make_mut(&mut self.config.bounds).insert(path.clone(), now);
                Ok(())
            });
            if let Err(says) = limited {
                self.mistakes.push(Mistake::in_flag(&format!("--max {name}={max}"), says));
            }
        }
    }

    /// The exports (serve.1), with those on the command line in groups of their own and on the default disk (serve.5). Without a file there is
    /// one in any case.
    fn exports(&mut self, needs_exports: bool) {
        let Self { flags, config, places, mistakes, .. } = self;
        let (exports, groups) = (Arc::make_mut(&mut config.exports), Arc::make_mut(&mut config.groups));
        let in_file = exports.len();
        for export in exports.iter_mut() {
            match faults::settle(&export.backing) {
                Ok(backing) => export.backing = backing,
                Err(says) => mistakes.push(places.backing(&export.name).says(says)),
            }
            export.read_only |= flags.read_only;
        }
        let usual = Named { name: "ram".into(), backing: Ram { size: 1 << 30 }.into() };
        let alone = (flags.exports.is_empty() && !needs_exports).then_some(&usual);
        for (number, named) in flags.exports.iter().chain(alone).enumerate() {
            let mut refuse = |says| mistakes.push(Mistake::in_flag(&format!("export {:?}", named.name), says));
            if let Err(says) = check_name("an export", &named.name) {
                refuse(says);
            }
            if let Some(path) = config_file(&named.backing) {
                refuse(format!(
                    "{path} is a config file, and clients could overwrite it: use --config {path}; or to serve its bytes: file:{path},format=raw"
                ));
            }
            let backing = faults::settle(&named.backing).unwrap_or_else(|says| {
                refuse(says);
                named.backing.clone()
            });
            if exports[..in_file].iter().any(|export| export.name == named.name) {
                refuse("the config file defines it too; names must be unique: NAME=BACKING".into());
            } else if let Some(first) = flags.exports[..number].iter().position(|other| other.name == named.name) {
                let (first, second) = (first + 1, number + 1);
                refuse(format!("is defined twice (backings {first} and {second}); names must be unique: NAME=BACKING"));
            }
            exports.push(Export {
                read_only: flags.read_only,
                group: groups::place(groups, &own_path(&named.name)).unwrap_or(GroupId::ROOT),
                ..Export::new(&named.name, backing)
            });
        }
        self.ways();
        if self.config.exports.is_empty() && self.mistakes.is_empty() {
            let says = "no export to serve: add [export.NAME] to the config file, or NAME=BACKING to the command line";
            self.mistakes.push(Mistake::in_flag("", says));
        }
    }

    /// The ways to each export beside listeners: those that it says itself, then those of flags.
    fn ways(&mut self) {
        let Self { flags, config, places, mistakes, .. } = self;
        let mut taken = BTreeMap::new();
        for export in Arc::make_mut(&mut config.exports) {
            let (name, path) = (&export.name, join("export", &export.name));
            let key = |key: &str| places.find(&join(&path, key));
            let wrong = flags.ways.fill(name, |way| key(way).is_some(), false, &mut export.ways);
            mistakes.extend(wrong.into_iter().map(|(flag, says)| Mistake::in_flag(&flag, says)));
            let mut sockets = Vec::new();
            for way in export.ways.iter() {
                let place = key(way.key()).unwrap_or_else(|| SettingPlace::in_flag(ways::flag(way.key())));
                if let Some(sole) = way.sole()
                    && let Some(other) = taken.insert((way.key(), sole.clone()), name)
                {
                    mistakes.push(place.says(format!("exports {other:?} and {name:?} cannot both have {sole}")));
                }
                sockets.extend(way.path().map(|path| (format!("listener unix:{}", path.display()), place)));
            }
            sockets.into_iter().for_each(|(socket, place)| places.put(socket, place));
        }
    }

    /// The disks of the file, and the default one (serve.2).
    fn disks(&mut self) {
        let Self { flags, config: Config { exports, disks, disk_default, .. }, places, mistakes, .. } = self;
        let disks = Arc::make_mut(disks);
        // Disks that are made for exports which name none count together: which of these share a device is known only when they are opened.
        let usual = |place| {
            let here = exports.iter().filter(|export| export.disk == place).map(|export| export.group);
            flags.scheduler.unwrap_or_else(|| sched::Kind::usual(here.collect::<BTreeSet<_>>().len(), false))
        };
        let scheduler = usual(None);
        let in_file: Vec<_> = disks.iter().map(|disk| disk.set.clone()).collect();
        for (place, disk) in disks.iter_mut().enumerate() {
            if disk.is_usual {
                disk.scheduler = if disk.shares.is_some() { sched::Kind::Fair } else { usual(Some(place)) };
            }
            for (name, value) in &disk.set {
                let place = || places.key(&join(&join("disk", &disk.name), "set"), name);
                mistakes.extend(check_setting(disk.scheduler, name, value).err().map(|(_, says)| place().says(says)));
            }
            disk.is_usual &= flags.scheduler.is_none() && disk.shares.is_none();
            disk.depth = disk.depth.or(flags.depth);
        }
        let is_usual = flags.scheduler.is_none();
        let mut usual = Disk { depth: flags.depth, is_usual, ..Disk::new("default", scheduler) };
        for (name, value) in &flags.set {
            let has = |disk: &Disk| tunables(disk.scheduler).any(|info| info.name == name);
            let mut kinds: Vec<_> =
                disks.iter().chain([&usual]).filter(|disk| has(disk)).map(|d| d.scheduler).collect();
            if kinds.is_empty() {
                kinds.push(scheduler); // It says what it has instead.
            }
            if let Some((_, says)) = kinds.into_iter().find_map(|kind| check_setting(kind, name, value).err()) {
                mistakes.push(Mistake::in_flag(&format!("--set {name}={value}"), says));
                continue;
            }
            for (place, disk) in disks.iter_mut().chain([&mut usual]).enumerate().filter(|(_, disk)| has(disk)) {
                if !in_file.get(place).is_some_and(|set| set.iter().any(|(one, _)| one == name)) {
                    disk.set.retain(|(one, _)| one != name); // Given twice, the last one holds.
                    disk.set.push((name.clone(), value.clone()));
                }
            }
        }
        *disk_default = usual;
    }

    /// Where clients connect (serve.3).
    fn listeners(&mut self, inherited: Vec<Arc<OwnedFd>>) {
        let Self { config, server, places, mistakes, .. } = self;
        let plain = |address: Address| Placed { value: address.into(), place: SettingPlace::in_flag("--listen") };
        let mut all = std::mem::take(&mut server.listen);
        all.extend(inherited.into_iter().map(|socket| plain(Address::Inherited(socket))));
        if all.is_empty() {
            match place::default_socket() {
                Ok(path) => all.push(plain(Address::Unix(path))),
                Err(says) => mistakes.push(Mistake::in_flag("--listen", says)),
            }
        }
        // The second of two would find the first, and take it for another server's. (A port that the kernel chooses is never another's.)
        let sockets = config.exports.iter().flat_map(|export| export.ways.iter()).filter_map(WayIn::path);
        let mut taken: BTreeSet<_> = sockets.map(|path| Address::Unix(path.to_owned()).to_string()).collect();
        let listener = |Placed { value: ListenAt { address, tls, socket }, place: at }: Placed<ListenAt>| {
            let is_chosen = place::tcp_address(&address).is_some_and(|tcp| tcp.port() == 0);
            if !is_chosen && !taken.insert(address.to_string()) {
                let why = "is an address of this server already: another listener, or the socket of an export";
                mistakes.push(at.says(format!("{address} {why}")));
            }
            let tls = tls.or(server.tls).unwrap_or_default();
            if tls != Tls::Required && !server.insecure && place::is_remote(&address) {
                let why = match tls {
                    Tls::Optional => "TLS is on but not required, so clients may still use plain text",
                    _ => "without TLS the data can be read and changed on the way",
                };
                let remedy = match at.at {
                    Some(_) => "tls = \"require\" with tls_certificates = \"DIR\", or insecure = true",
                    None => "--tls require --tls-certificates DIR, or --insecure",
                };
                let shown = place::show(&address);
                let says =
                    format!("other machines can reach {shown}, and {why}; set {remedy} if you trust the network");
                mistakes.push(at.says(says));
            }
            places.put(format!("listener {}", place::show(&address)), at);
            Listener { address, tls, socket }
        };
        config.listeners = all.into_iter().map(listener).collect();
    }

    /// Where the server is looked at and changed; `None`: where it usually is.
    fn control(&mut self) -> Option<Vec<ControlAt>> {
        let wanted = std::mem::take(&mut self.server.control);
        if wanted.is_empty() {
            return None;
        }
        let of_listeners = self.config.listeners.iter();
        let mut taken: BTreeMap<_, _> =
            of_listeners.map(|listener| (place::show(&listener.address), "clients of exports")).collect();
        let is_alone = wanted.len() == 1;
        let mut all = Vec::new();
        for Placed { value, place: at } in wanted {
            let Some(place) = value.0 else {
                if !is_alone {
                    self.mistakes.push(at.says("\"off\" stands alone: with it there is no control server"));
                }
                continue;
            };
            let shown = place::show(&place.address);
            // A port that the kernel chooses is never another's.
            let whose = taken.insert(shown.clone(), "control").filter(|_| !shown.ends_with(":0"));
            self.mistakes.extend(whose.map(|whose| at.says(format!("{shown} is for {whose} already"))));
            self.places.put(format!("control {}", all.len()), at);
            all.push(place);
        }
        Some(all)
    }

    /// The certificate of the server, where any listener encrypts; its digest.
    fn certificate(&mut self) -> Option<Vec<u8>> {
        let Self { config, server, places, .. } = self;
        let (usual, verifies) = (server.tls, server.tls_verify_peer);
        let mut all = server.listen.iter().filter_map(|placed| placed.value.tls).chain(usual);
        let encrypts = all.any(|tls| tls != Tls::Off);
        let wrong = match &server.tls_certificates {
            Some(directory) if encrypts => match certificates::load(directory, verifies) {
                Ok(Certificate { config: tls, digest, revoked }) => {
                    (config.tls, config.revoked) = (Some(tls), revoked);
                    return Some(digest);
                }
                Err(says) => places.server("tls_certificates").says(says),
            },
            None if encrypts => {
                let place = places.find("server.tls").unwrap_or_else(|| SettingPlace::in_flag("--tls"));
                let name = if place.at.is_some() { "tls_certificates = \"DIR\"" } else { "--tls-certificates DIR" };
                place.says(format!(
                    "needs a certificate: name the directory with server-cert.pem and server-key.pem: {name}"
                ))
            }
            Some(_) if usual.is_none() => {
                let says = "has no effect, because TLS is off by default; set tls to \"require\", \"on\" (if the client asks) \
                            or \"off\"";
                places.server("tls_certificates").says(says)
            }
            None if usual.is_none() && verifies => {
                places.server("tls_verify_peer").says("has no effect, because TLS is off by default")
            }
            _ => return None,
        };
        self.mistakes.push(wrong);
        None
    }
}

/// A backing that was typed where `--config` was meant: a file that ends in `.toml` and is one of ours, unless it is said to be raw.
fn config_file(backing: &Backing) -> Option<std::path::Display<'_>> {
    let Backing::File(file) = backing else { return None };
    let FileAt { path, access } = &**file;
    let is_there = || std::fs::metadata(path).is_ok_and(|there| there.is_file() && there.len() <= config::LENGTH_MAX);
    let is_ours = || std::fs::read_to_string(path).is_ok_and(|text| config::is_one(&text));
    let is_meant = !access.is_raw && path.extension().is_some_and(|end| end == "toml") && is_there() && is_ours();
    is_meant.then(|| path.display())
}

#[cfg(test)]
mod tests;
