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

use fairlift::access::Rule;
use fairlift::config::{
    Address, Backing, Config, Disk, Export, FileAt, Limits, Listener, Ram, Root, SocketMode, Tls, WayIn,
};
use fairlift::control::{check_floors, check_name};
use fairlift_core::ceiling::{Bounds, Ceiling};
use fairlift_core::{GroupId, sched};

use super::args::ServeArgs;
use super::confine::Confinement;
use super::places::{Places, SettingPlace};
use crate::config::faults;
use crate::config::keys::why_unverified;
use crate::config::section::{Placed, join};
use crate::config::{self, File, Server};
use crate::control::ControlAt;
use crate::syntax::backing::Named;
use crate::syntax::certificates::{self, Certificate};
use crate::syntax::groups::Tree;
use crate::syntax::mistake::{Mistake, Source};
use crate::syntax::place;
use crate::syntax::place::ListenAt;
use crate::syntax::scheduler::{check_setting, tunables};
use crate::syntax::units::show_size;
use fairlift_lab::suggestion;

/// How many groups have exports on a disk of the file, or (`None`) on those that are made for exports that name no disk,
/// which count together: which of them share a device is known only when they are opened.
fn groups_on(exports: &[Export], disk: Option<usize>) -> usize {
    let here = exports.iter().filter(|export| export.disk == disk);
    here.map(|export| export.group).collect::<BTreeSet<_>>().len()
}

/// The configuration of a server, with the place of each part.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) config: Config,
    /// Where the server is looked at and changed; `None`: where it usually is.
    pub(crate) control: Option<Vec<ControlAt>>,
    /// The digest of the certificate.
    pub(crate) certificate: Option<Vec<u8>>,
    pub(crate) confinement: Confinement,
    /// The file that keeps what is learned.
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
    let mut places = Places::new(flags, &file);
    let exports = exports(flags, &mut file, from_file, &mut places, mistakes);
    weigh(flags, &mut file.groups, &exports, &mut places, mistakes);
    limit(flags, &file.groups, &exports, &mut file.bounds, mistakes);
    let (disks, disk_default) = disks(flags, &file, &exports, mistakes);
    let (listeners, certificate) = listeners(flags, &file.server, (inherited, &exports), mistakes);
    let control = control(flags, &file.server, &listeners, mistakes);
    let limits = file.server.limits;
    let workers = workers(flags, &file.server, mistakes);
    let verifies = flags.tls_verify_peer || file.server.tls_verify_peer;
    let clients = clients(verifies, &file, mistakes);
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
        clients,
        delegated: file.delegated,
        roots: roots(flags, &file.server),
    };
    if let Err((path, says)) = check_floors(&config) {
        let at = file.floors.iter().find(|floor| floor.value == path).map(|floor| floor.at.clone());
        mistakes.push(Mistake { at, key: join(&join("group", &path), "min"), says });
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

/// The rights of clients. Only a certificate that is verified says who a client is.
fn clients(verifies: bool, file: &File, mistakes: &mut Vec<Mistake>) -> Vec<Rule> {
    for config::Allowed { certificate, settings, .. } in &file.clients {
        mistakes.extend(why_unverified(settings, verifies).map(|why| Mistake {
            at: certificate.clone(),
            key: join("client", &settings.name) + ".certificate",
            says: why.into(),
        }));
    }
    file.clients.iter().map(|client| client.settings.clone()).collect()
}

/// The directories that files must lie in (serve.1).
fn roots(flags: &ServeArgs, server: &Server) -> Vec<Root> {
    let in_file =
        || server.roots.iter().map(|placed| Root { path: placed.value.clone(), source: "server.roots".into() });
    let in_flags = flags.root.iter().map(|path| Root { path: path.clone(), source: "--root".into() });
    if flags.root.is_empty() { in_file().collect() } else { in_flags.collect() }
}

/// How many workers, if that was said: each one's part of the memory takes the largest request.
fn workers(flags: &ServeArgs, server: &Server, mistakes: &mut Vec<Mistake>) -> Option<usize> {
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
        let in_file = server.mistake("workers", &says).filter(|_| flags.workers.is_none());
        mistakes.push(in_file.unwrap_or_else(|| Mistake::in_flag(&format!("--workers {workers}"), says)));
    }
    Some(workers)
}

/// The weights of `--weight` (serve.5).
fn weigh(flags: &ServeArgs, groups: &mut Tree, exports: &[Export], places: &mut Places, mistakes: &mut Vec<Mistake>) {
    for (name, weight) in &flags.weight {
        let flag = format!("--weight {name}={weight}");
        let group = match group_of(name, groups, exports) {
            Ok(group) => group,
            Err(says) => {
                mistakes.push(Mistake::in_flag(&flag, says));
                continue;
            }
        };
        if group == GroupId::ROOT {
            mistakes.push(Mistake::in_flag(
                &flag,
                "there is no group \"/\" with siblings, so that its weight would mean something",
            ));
            continue;
        }
        groups.weigh(group, *weight);
        let path = groups.path(group).to_owned();
        places.groups.retain(|(known, _)| *known != path); // The flag wins (serve.1).
        places.groups.push((path, SettingPlace::in_flag(flag)));
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
    let mut add = |mut export: Export, is_set: &dyn Fn(&str) -> bool, mistakes: &mut Vec<Mistake>| {
        let wrong = flags.ways.fill(&export.name, is_set, false, &mut export.ways);
        mistakes.extend(wrong.into_iter().map(|(flag, says)| Mistake::in_flag(&flag, says)));
        places.listens(&export, is_set);
        exports.push(export);
    };
    for config::Export { backing: at, places: keys, settings, .. } in &file.exports {
        let backing = faults::settle(&settings.backing).unwrap_or_else(|says| {
            let key = join("export", &settings.name) + ".backing";
            mistakes.push(Mistake { at: Some(at.clone()), key, says });
            settings.backing.clone()
        });
        let export = Export { backing, read_only: settings.read_only || flags.read_only, ..settings.clone() };
        add(export, &|key| keys.contains_key(key), mistakes);
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
        if file.exports.iter().any(|export| export.settings.name == named.name) {
            refuse("the config file defines it too; names must be unique: NAME=BACKING".into());
        } else if let Some(first) = flags.exports[..number].iter().position(|other| other.name == named.name) {
            let (first, second) = (first + 1, number + 1);
            refuse(format!("is defined twice (backings {first} and {second}); names must be unique: NAME=BACKING"));
        }
        let export = Export {
            read_only: flags.read_only,
            group: file.groups.own(&named.name).unwrap_or(GroupId::ROOT),
            ..Export::new(&named.name, backing)
        };
        add(export, &|_| false, mistakes);
    }
    let mut taken = BTreeMap::new();
    for (export, way) in exports.iter().flat_map(|export| export.ways.iter().map(move |way| (export, way))) {
        let (name, Some(sole)) = (&export.name, way.sole()) else { continue };
        if let Some(other) = taken.insert((way.key(), sole.clone()), name) {
            let says = format!("exports {other:?} and {name:?} cannot both have {sole}");
            let in_file = file.exports.iter().find(|export| export.settings.name == *name);
            mistakes.push(match in_file.and_then(|export| export.places.get(way.key())) {
                Some(at) => Mistake { at: Some(at.clone()), key: join(&join("export", name), way.key()), says },
                None => Mistake::in_flag(way.key(), says),
            });
        }
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
fn disks(flags: &ServeArgs, file: &File, exports: &[Export], mistakes: &mut Vec<Mistake>) -> (Vec<Disk>, Disk) {
    let usual = |place| flags.scheduler.unwrap_or_else(|| sched::Kind::usual(groups_on(exports, place), false));
    let scheduler = usual(None);
    let mut disks = Vec::new();
    for (place, disk) in file.disks.iter().enumerate() {
        let shares = disk.settings.shares.is_some();
        let own = disk.scheduler.or(shares.then_some(sched::Kind::Fair));
        let scheduler = own.unwrap_or_else(|| usual(Some(place)));
        let mut set = Vec::new();
        for (name, value) in &disk.set {
            match check_setting(scheduler, &name.value, &value.value) {
                Ok(()) => set.push((name.value.clone(), value.value.clone())),
                Err((of_name, says)) => mistakes.push(Mistake {
                    at: Some(if of_name { name.at.clone() } else { value.at.clone() }),
                    key: join(&format!("{}.set", join("disk", &disk.settings.name)), &name.value),
                    says,
                }),
            }
        }
        disks.push(Disk {
            scheduler,
            is_usual: disk.scheduler.or(flags.scheduler).is_none() && !shares,
            set,
            depth: disk.settings.depth.or(flags.depth),
            ..disk.settings.clone()
        });
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
            let in_file = file.disks.get(place).is_some_and(|disk| disk.set.iter().any(|(one, _)| one.value == *name));
            if !in_file {
                disk.set.retain(|(one, _)| one != name); // Given twice, the last one holds.
                disk.set.push((name.clone(), value.clone()));
            }
        }
    }
    (disks, usual)
}

/// Where clients connect, and the certificate (serve.3).
fn listeners(
    flags: &ServeArgs,
    server: &Server,
    (inherited, exports): (Vec<Arc<OwnedFd>>, &[Export]),
    mistakes: &mut Vec<Mistake>,
) -> (Vec<Listener>, Option<Certificate>) {
    let usual_tls = flags.tls.or(server.tls);
    let mut places: Vec<(ListenAt, Option<&Placed<ListenAt>>)> = if flags.listen.is_empty() {
        server.listen.iter().map(|placed| (placed.value.clone(), Some(placed))).collect()
    } else {
        flags.listen.iter().map(|place| (place.clone(), None)).collect()
    };
    let plain = |address: Address| (address.into(), None);
    places.extend(inherited.into_iter().map(|socket| plain(Address::Inherited(socket))));
    if places.is_empty() {
        match place::default_socket() {
            Ok(path) => places.push(plain(Address::Unix(path))),
            Err(says) => mistakes.push(Mistake::in_flag("--listen", says)),
        }
    }
    let at = |placed: Option<&Placed<ListenAt>>| match placed {
        Some(one) => SettingPlace::of(one, "server.listen"),
        None => SettingPlace::in_flag("--listen".into()),
    };
    // The second of two would find the first, and take it for another server's. (A port that the kernel chooses is never another's.)
    let sockets = exports.iter().flat_map(|export| export.ways.iter()).filter_map(WayIn::path);
    let mut taken: BTreeSet<_> = sockets.map(|path| Address::Unix(path.to_owned()).to_string()).collect();
    for (ListenAt { address, .. }, placed) in &places {
        let is_chosen = place::tcp_address(address).is_some_and(|tcp| tcp.port() == 0);
        if !is_chosen && !taken.insert(address.to_string()) {
            let says =
                format!("{address} is an address of this server already: another listener, or the socket of an export");
            mistakes.push(at(*placed).says(says));
        }
    }
    // One place with TLS is enough to need the certificate.
    let encrypts = |tls: &Tls| *tls != Tls::Off;
    let single = places.iter().filter_map(|(place, _)| place.tls).find(encrypts);
    let config = certificate(flags, server, usual_tls.filter(encrypts).or(single).or(usual_tls), mistakes);
    let usual_tls = usual_tls.unwrap_or_default();

    let insecure = flags.insecure || server.insecure;
    for (ListenAt { address, tls, .. }, placed) in &places {
        let tls = tls.unwrap_or(usual_tls);
        if tls == Tls::Required || insecure || !place::is_remote(address) {
            continue;
        }
        let why = match tls {
            Tls::Optional => "TLS is on but not required, so clients may still use plain text",
            _ => "without TLS the data can be read and changed on the way",
        };
        let shown = place::show(address);
        let says = format!("other machines can reach {shown}, and {why}; set");
        mistakes.push(match placed {
            Some(placed) => Mistake {
                at: Some(placed.at.clone()),
                key: "server.listen".into(),
                says: format!(
                    "{says} tls = \"require\" with tls_certificates = \"DIR\", or insecure = true if you trust the network"
                ),
            },
            None => Mistake::in_flag(
                "--listen",
                format!("{says} --tls require --tls-certificates DIR, or --insecure if you trust the network"),
            ),
        });
    }
    let listener = |(ListenAt { address, tls, rights }, placed): (ListenAt, Option<&Placed<ListenAt>>)| {
        let socket = rights.numbers().unwrap_or_else(|says| {
            mistakes.push(at(placed).says(says));
            SocketMode::default()
        });
        Listener { address, tls: tls.unwrap_or(usual_tls), socket }
    };
    (places.into_iter().map(listener).collect(), config)
}

/// Where the server is looked at and changed; `None`: where it usually is.
fn control(
    flags: &ServeArgs,
    server: &Server,
    listeners: &[Listener],
    mistakes: &mut Vec<Mistake>,
) -> Option<Vec<ControlAt>> {
    let in_file = server.control.iter().map(|placed| (&placed.value, SettingPlace::of(placed, "server.control")));
    let in_flags = flags.control.iter().map(|place| (place, SettingPlace::in_flag("--control".into())));
    let wanted: Vec<_> = if flags.control.is_empty() { in_file.collect() } else { in_flags.collect() };
    if wanted.is_empty() {
        return None;
    }
    // A port that the kernel chooses is never another's.
    let name = |address: &Address| Some(place::show(address)).filter(|name| !name.ends_with(":0"));
    let mut taken: Vec<_> = listeners.iter().map(|listener| (name(&listener.address), "clients of exports")).collect();
    let mut all = Vec::new();
    for (place, at) in &wanted {
        let Some(place) = &place.0 else {
            if wanted.len() > 1 {
                mistakes.push(at.says("\"off\" stands alone: with it there is no control server"));
            }
            continue;
        };
        let shown = name(&place.address);
        if let Some((_, whose)) = shown.as_ref().and_then(|_| taken.iter().find(|(name, _)| *name == shown)) {
            mistakes.push(at.says(format!("{} is for {whose} already", place::show(&place.address))));
        }
        taken.push((shown, "control"));
        all.push(place.clone());
    }
    Some(all)
}

fn certificate(
    flags: &ServeArgs,
    server: &Server,
    configured: Option<Tls>,
    mistakes: &mut Vec<Mistake>,
) -> Option<Certificate> {
    let verify = flags.tls_verify_peer || server.tls_verify_peer;
    let place = |flag_given: bool, key: &str, says: String| {
        let in_file = || ["tls_certificates", "tls_verify_peer"].iter().find_map(|key| server.mistake(key, &says));
        let in_file = if flag_given { None } else { in_file() };
        match in_file {
            Some(mistake) => Mistake { key: format!("server.{}", key.replace('-', "_")), ..mistake },
            None => Mistake::in_flag(&format!("--{key}"), says),
        }
    };
    let directory = flags.tls_certificates.as_ref().or(server.tls_certificates.as_ref());
    match (configured, directory) {
        (None, Some(_)) => {
            let says = "has no effect, because TLS is off by default; set tls to \"require\", \"on\" (if the client asks) \
                        or \"off\"";
            mistakes.push(place(flags.tls_certificates.is_some(), "tls-certificates", says.into()));
            None
        }
        (None, None) if verify => {
            let says = "has no effect, because TLS is off by default";
            mistakes.push(place(flags.tls_verify_peer, "tls-verify-peer", says.into()));
            None
        }
        (None | Some(Tls::Off), _) => None,
        (Some(_), None) => {
            let says = "needs a certificate: name the directory with server-cert.pem and server-key.pem";
            let in_file = server.mistake("tls", &format!("{says}: tls_certificates = \"DIR\""));
            let in_flag = || Mistake::in_flag("--tls", format!("{says}: --tls-certificates DIR"));
            mistakes.push(in_file.filter(|_| flags.tls.is_none()).unwrap_or_else(in_flag));
            None
        }
        (Some(_), Some(directory)) => match certificates::load(directory, verify) {
            Ok(certificate) => Some(certificate),
            Err(says) => {
                mistakes.push(place(flags.tls_certificates.is_some(), "tls-certificates", says));
                None
            }
        },
    }
}

#[cfg(test)]
mod tests;
