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
use std::path::PathBuf;
use std::sync::Arc;

use fairlift::config::{Address, Backing, Config, Disk, Export, FileAt, Limits, Listener, Ram, Root, Tls, WayIn};
use fairlift::control::{check_floors, check_name};
use fairlift_core::ceiling::{Bounds, Ceiling};
use fairlift_core::{GroupId, sched};

use super::args::ServeArgs;
use super::confine::Confinement;
use super::places::Places;
use crate::config::faults;
use crate::config::keys::why_unverified;
use crate::config::section::{Placed, join};
use crate::config::{self, File, Server};
use crate::control::ControlAt;
use crate::syntax::backing::Named;
use crate::syntax::certificates::{self, Certificate};
use crate::syntax::groups::Tree;
use crate::syntax::mistake::{Mistake, SettingPlace, Source};
use crate::syntax::place;
use crate::syntax::place::ListenAt;
use crate::syntax::scheduler::{check_setting, tunables};
use crate::syntax::units::show_size;
use crate::ways;
use fairlift_lab::suggestion;

/// The configuration of a server, with the place of each part.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) config: Config,
    /// Where the server is looked at and changed; `None`: where it usually is.
    pub(crate) control: Option<Vec<ControlAt>>,
    /// The digest of the certificate.
    pub(crate) certificate: Option<Vec<u8>>,
    pub(crate) confinement: Confinement,
    pub(crate) learned: Option<PathBuf>,
    /// The server's name among gateways, if the file says one.
    pub(crate) gateway: Option<String>,
    pub(crate) places: Places,
    /// Whether clients are asked for a certificate.
    pub(crate) verifies: bool,
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
    let from_file = file.is_some();
    let mut file = file.unwrap_or_default();
    let mut places = Places::new(flags, &mut file);
    let exports = exports(flags, &mut file, from_file, &mut places, mistakes);
    weigh(flags, &mut file.groups, &exports, &mut places, mistakes);
    limit(flags, &file.groups, &exports, &mut file.bounds, mistakes);
    let (disks, disk_default) = disks(flags, &file, &exports, &places, mistakes);
    let verifies = flags.tls_verify_peer || file.server.tls_verify_peer;
    let listen = said("--listen", &flags.listen, &file.server.listen);
    let certificate = certificate(flags, &file.server, (&listen, verifies), &places, mistakes);
    let listeners = listeners(flags, &file.server, (listen, inherited, &exports), &mut places, mistakes);
    let control = control(flags, &file.server, &listeners, &mut places, mistakes);
    let limits = file.server.limits;
    let workers = workers(flags, &file.server, &places, mistakes);
    // Only a certificate that is verified says who a client is.
    for rule in &file.clients {
        let place = || places.key(&join("client", &rule.name), "certificate");
        mistakes.extend(why_unverified(rule, verifies).map(|why| place().says(why)));
    }
    let mut roots = Vec::new();
    for Placed { value: path, place } in said("--root", &flags.root, &file.server.roots) {
        places.put(format!("root {}", path.display()), place.clone());
        roots.push(Root { path, source: place.key });
    }
    let config = Config {
        bounds: file.bounds.into(),
        groups: file.groups.into_groups().into(),
        disks: disks.into(),
        disk_default,
        exports: exports.into(),
        listeners,
        workers,
        engine: flags.engine.or(file.server.engine).unwrap_or_default(),
        limits: Limits {
            connections: flags.max_connections.unwrap_or(limits.connections),
            handshake_timeout: flags.handshake_timeout.unwrap_or(limits.handshake_timeout),
            ..limits
        },
        revoked: certificate.as_ref().map(|certificate| Arc::clone(&certificate.revoked)).unwrap_or_default(),
        tls: certificate.as_ref().map(|certificate| Arc::clone(&certificate.config)),
        clients: file.clients,
        delegated: file.delegated,
        roots,
    };
    if let Err((path, says)) = check_floors(&config) {
        mistakes.push(places.key(&join("group", &path), "min").says(says));
    }
    let confinement = Confinement::new(flags, &file.server);
    Plan {
        config,
        control,
        certificate: certificate.map(|certificate| certificate.digest),
        confinement,
        learned: file.server.learned,
        gateway: file.server.gateway,
        places,
        verifies,
        source: None,
    }
}

/// The values of a list, each with its place (serve.1).
fn said<T: Clone>(flag: &str, given: &[T], in_file: &[Placed<T>]) -> Vec<Placed<T>> {
    let in_flags = given.iter().map(|value| Placed { value: value.clone(), place: SettingPlace::in_flag(flag) });
    if given.is_empty() { in_file.to_vec() } else { in_flags.collect() }
}

/// How many workers, if that was said: each one's part of the memory takes the largest request.
fn workers(flags: &ServeArgs, server: &Server, places: &Places, mistakes: &mut Vec<Mistake>) -> Option<usize> {
    let workers = flags.workers.map(usize::from).or(server.workers)?;
    let (memory, request) = (server.limits.memory, u64::from(server.limits.request_max));
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
        mistakes.push(places.server("workers").says(says));
    }
    Some(workers)
}

/// The weights of `--weight` (serve.5).
fn weigh(flags: &ServeArgs, groups: &mut Tree, exports: &[Export], places: &mut Places, mistakes: &mut Vec<Mistake>) {
    for (name, weight) in &flags.weight {
        let flag = SettingPlace::in_flag(format!("--weight {name}={weight}"));
        match group_of(name, groups, exports) {
            Ok(GroupId::ROOT) => {
                mistakes
                    .push(flag.says("there is no group \"/\" with siblings, so that its weight would mean something"));
            }
            Ok(group) => {
                groups.weigh(group, *weight);
                places.put(join("group", groups.path(group)), flag);
            }
            Err(says) => mistakes.push(flag.says(says)),
        }
    }
}

/// The group that a flag means by an export's name, or by its own.
fn group_of(name: &str, groups: &Tree, exports: &[Export]) -> Result<GroupId, String> {
    let export = exports.iter().find(|export| export.name == name);
    export.map(|export| export.group).or_else(|| groups.find(name)).ok_or_else(|| {
        let known = exports.iter().map(|export| export.name.as_str()).chain(groups.paths());
        let kind = if name.starts_with('/') { "group" } else { "export" };
        format!("there is no {kind} {name:?}{}", suggestion(name, known))
    })
}

/// `--max`: it takes the place of the file's value (serve.1).
fn limit(
    flags: &ServeArgs,
    groups: &Tree,
    exports: &[Export],
    bounds: &mut BTreeMap<String, Bounds>,
    mistakes: &mut Vec<Mistake>,
) {
    for (name, max) in &flags.max {
        let limited = group_of(name, groups, exports).and_then(|group| {
            let path = groups.path(group).to_owned();
            let there = bounds.get(&path).copied().unwrap_or_default();
            let ceiling = Ceiling { max: *max, ..there.ceiling };
            let now = Bounds { ceiling, ..there };
            now.check().map_err(|wrong| wrong.to_string())?;
            bounds.insert(path, now);
            Ok(())
        });
        if let Err(says) = limited {
            mistakes.push(Mistake::in_flag(&format!("--max {name}={max}"), says));
        }
    }
}

/// The exports (serve.1), with those on the command line in groups of their own and on the default disk (serve.5).
fn exports(
    flags: &ServeArgs,
    file: &mut File,
    from_file: bool,
    places: &mut Places,
    mistakes: &mut Vec<Mistake>,
) -> Vec<Export> {
    let mut exports: Vec<Export> = Vec::new();
    for settings in &file.exports {
        let backing = faults::settle(&settings.backing).unwrap_or_else(|says| {
            mistakes.push(places.backing(&settings.name).says(says));
            settings.backing.clone()
        });
        exports.push(Export { backing, read_only: settings.read_only || flags.read_only, ..settings.clone() });
    }
    let usual = Named { name: "ram".into(), backing: Ram { size: 1 << 30 }.into() };
    let alone = (flags.exports.is_empty() && !from_file).then_some(&usual);
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
        if file.exports.iter().any(|export| export.name == named.name) {
            refuse("the config file defines it too; names must be unique: NAME=BACKING".into());
        } else if let Some(first) = flags.exports[..number].iter().position(|other| other.name == named.name) {
            let (first, second) = (first + 1, number + 1);
            refuse(format!("is defined twice (backings {first} and {second}); names must be unique: NAME=BACKING"));
        }
        exports.push(Export {
            read_only: flags.read_only,
            group: file.groups.own(&named.name).unwrap_or(GroupId::ROOT),
            ..Export::new(&named.name, backing)
        });
    }
    let mut taken = BTreeMap::new();
    for export in &mut exports {
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
    if exports.is_empty() && mistakes.is_empty() {
        let says = "no export to serve: add [export.NAME] to the config file, or NAME=BACKING to the command line";
        mistakes.push(Mistake::in_flag("", says));
    }
    exports
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

/// The disks of the file, then the default one (serve.2).
fn disks(
    flags: &ServeArgs,
    file: &File,
    exports: &[Export],
    places: &Places,
    mistakes: &mut Vec<Mistake>,
) -> (Vec<Disk>, Disk) {
    // Disks that are made for exports which name none count together: which of these share a device is known only when they are opened.
    let usual = |place| {
        let here = exports.iter().filter(|export| export.disk == place).map(|export| export.group);
        flags.scheduler.unwrap_or_else(|| sched::Kind::usual(here.collect::<BTreeSet<_>>().len(), false))
    };
    let scheduler = usual(None);
    let mut disks = Vec::new();
    for (place, disk) in file.disks.iter().enumerate() {
        let scheduler = match disk.shares {
            _ if !disk.is_usual => disk.scheduler,
            Some(_) => sched::Kind::Fair,
            None => usual(Some(place)),
        };
        for (name, value) in &disk.set {
            let place = || places.key(&join(&join("disk", &disk.name), "set"), name);
            mistakes.extend(check_setting(scheduler, name, value).err().map(|(_, says)| place().says(says)));
        }
        let is_usual = disk.is_usual && flags.scheduler.is_none() && disk.shares.is_none();
        disks.push(Disk { scheduler, is_usual, depth: disk.depth.or(flags.depth), ..disk.clone() });
    }
    let is_usual = flags.scheduler.is_none();
    let mut usual = Disk { depth: flags.depth, is_usual, ..Disk::new("default", scheduler) };
    for (name, value) in &flags.set {
        let has = |disk: &Disk| tunables(disk.scheduler).any(|info| info.name == name);
        let mut kinds: Vec<_> = disks.iter().chain([&usual]).filter(|disk| has(disk)).map(|d| d.scheduler).collect();
        if kinds.is_empty() {
            kinds.push(scheduler); // It says what it has instead.
        }
        if let Some((_, says)) = kinds.into_iter().find_map(|kind| check_setting(kind, name, value).err()) {
            mistakes.push(Mistake::in_flag(&format!("--set {name}={value}"), says));
            continue;
        }
        for (place, disk) in disks.iter_mut().chain([&mut usual]).enumerate().filter(|(_, disk)| has(disk)) {
            let in_file = file.disks.get(place).is_some_and(|disk| disk.set.iter().any(|(one, _)| one == name));
            if !in_file {
                disk.set.retain(|(one, _)| one != name); // Given twice, the last one holds.
                disk.set.push((name.clone(), value.clone()));
            }
        }
    }
    (disks, usual)
}

/// Where clients connect (serve.3).
fn listeners(
    flags: &ServeArgs,
    server: &Server,
    (mut all, inherited, exports): (Vec<Placed<ListenAt>>, Vec<Arc<OwnedFd>>, &[Export]),
    places: &mut Places,
    mistakes: &mut Vec<Mistake>,
) -> Vec<Listener> {
    let plain = |address: Address| Placed { value: address.into(), place: SettingPlace::in_flag("--listen") };
    all.extend(inherited.into_iter().map(|socket| plain(Address::Inherited(socket))));
    if all.is_empty() {
        match place::default_socket() {
            Ok(path) => all.push(plain(Address::Unix(path))),
            Err(says) => mistakes.push(Mistake::in_flag("--listen", says)),
        }
    }
    let usual_tls = flags.tls.or(server.tls).unwrap_or_default();
    let insecure = flags.insecure || server.insecure;
    // The second of two would find the first, and take it for another server's. (A port that the kernel chooses is never another's.)
    let sockets = exports.iter().flat_map(|export| export.ways.iter()).filter_map(WayIn::path);
    let mut taken: BTreeSet<_> = sockets.map(|path| Address::Unix(path.to_owned()).to_string()).collect();
    let listener = |Placed { value: ListenAt { address, tls, socket }, place: at }: Placed<ListenAt>| {
        let is_chosen = place::tcp_address(&address).is_some_and(|tcp| tcp.port() == 0);
        if !is_chosen && !taken.insert(address.to_string()) {
            let why = "is an address of this server already: another listener, or the socket of an export";
            mistakes.push(at.says(format!("{address} {why}")));
        }
        let tls = tls.unwrap_or(usual_tls);
        if tls != Tls::Required && !insecure && place::is_remote(&address) {
            let why = match tls {
                Tls::Optional => "TLS is on but not required, so clients may still use plain text",
                _ => "without TLS the data can be read and changed on the way",
            };
            let remedy = match at.at {
                Some(_) => "tls = \"require\" with tls_certificates = \"DIR\", or insecure = true",
                None => "--tls require --tls-certificates DIR, or --insecure",
            };
            let shown = place::show(&address);
            let says = format!("other machines can reach {shown}, and {why}; set {remedy} if you trust the network");
            mistakes.push(at.says(says));
        }
        places.put(format!("listener {}", place::show(&address)), at);
        Listener { address, tls, socket }
    };
    all.into_iter().map(listener).collect()
}

/// Where the server is looked at and changed; `None`: where it usually is.
fn control(
    flags: &ServeArgs,
    server: &Server,
    listeners: &[Listener],
    places: &mut Places,
    mistakes: &mut Vec<Mistake>,
) -> Option<Vec<ControlAt>> {
    let wanted = said("--control", &flags.control, &server.control);
    if wanted.is_empty() {
        return None;
    }
    let of_listeners = listeners.iter().map(|listener| (place::show(&listener.address), "clients of exports"));
    let mut taken: BTreeMap<_, _> = of_listeners.collect();
    let mut all = Vec::new();
    for Placed { value, place: at } in &wanted {
        let Some(place) = &value.0 else {
            if wanted.len() > 1 {
                mistakes.push(at.says("\"off\" stands alone: with it there is no control server"));
            }
            continue;
        };
        let shown = place::show(&place.address);
        // A port that the kernel chooses is never another's.
        let whose = taken.insert(shown.clone(), "control").filter(|_| !shown.ends_with(":0"));
        mistakes.extend(whose.map(|whose| at.says(format!("{shown} is for {whose} already"))));
        places.put(format!("control {}", all.len()), at.clone());
        all.push(place.clone());
    }
    Some(all)
}

/// The certificate of the server, where any listener encrypts.
fn certificate(
    flags: &ServeArgs,
    server: &Server,
    (listen, verifies): (&[Placed<ListenAt>], bool),
    places: &Places,
    mistakes: &mut Vec<Mistake>,
) -> Option<Certificate> {
    let mut of_listeners = listen.iter().filter_map(|placed| placed.value.tls);
    let usual = flags.tls.or(server.tls);
    let encrypts = usual.is_some_and(|tls| tls != Tls::Off) || of_listeners.any(|tls| tls != Tls::Off);
    let directory = flags.tls_certificates.as_ref().or(server.tls_certificates.as_ref());
    let wrong = match directory {
        Some(directory) if encrypts => match certificates::load(directory, verifies) {
            Ok(certificate) => return Some(certificate),
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
    mistakes.push(wrong);
    None
}

#[cfg(test)]
mod tests;
