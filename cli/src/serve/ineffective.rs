//! Settings that cannot act.
//!
//! A weight is a share of one disk relative to the group's siblings, under a scheduler that knows weights. Where one of these
//! is missing the server works, and nobody gets the share that the file promises: that is a warning. Example: alice has weight
//! 300 and an image on one file system, bob 100 and an image on another. Each has a disk for itself, so 300 means nothing.
//!
//! ineffective.1  A group in which no export is: often a misspelt path, so its nearest neighbour is named.
//!          (A group that has limits, and the weight that all have, is asked nothing more: limits need neither.)
//! ineffective.2  A group whose disks all have a scheduler without weights.
//! ineffective.3  A group that has no sibling on any of its disks, unless its weight is the one that all have.
//! ineffective.4  A disk on which no export is.
//! ineffective.5  A disk whose `nr_requests` two connections can fill. Weights decide among the requests inside only: with 64 places, a
//!          client that asks 128 at once holds them all, and a tenant of three times its weight gets a third as much.
//! ineffective.6  A change of a running server is asked about the groups that it is about: those whose weight it says, into which it puts
//!          an export, or that are on a disk which it gives a scheduler without weights. A group is often made before its first
//!          export: it is told of only where no disk of the server knows weights.
//! ineffective.7  A latency of a group whose disks all have a scheduler that makes no room for one.
//! ineffective.8  Exports of more RAM than the machine has: what clients write there is given out as they write, until nothing is left.
//! ineffective.9  A client that is to open an export that is not there, or those of a group that has none, or to come by an address at which
//!          the server does not listen.
//! ineffective.10  A client of exports that is known by its user or group, and that no unix socket lets in.
//! ineffective.11  A socket of virtual machines at which no client is both let in and allowed the export.
//! ineffective.12  A revocation list that has expired or is no trusted authority's, and an authority without one.
//! ineffective.13  A client that is known by its cgroup, where /proc shows a process to its own user alone.
//! ineffective.14  An export that no client may open, where clients have rules. The first rule takes all exports that it does not name from
//!           everybody: a server with alice's clients, to which a rule for bob's comes. (A block device is not opened by clients.)

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use fairlift::access::{Rule, is_below};
use fairlift::config::{Address, Backing, Config, Disk, Export, SocketMode, WayIn};
use fairlift::control::{Becomes, Of, Step};
use fairlift::export::vhost_user::GuestSocket;
use fairlift_core::{Group, GroupId, Weight, sched};
use fairlift_lab::suggestion;

use super::places::Places;
use crate::config::section::join;
use crate::syntax::mistake::{Mistake, hint};
use crate::syntax::place;

/// The settings that cannot act in a configuration in force (each export names its disk).
pub(super) fn warnings(config: &Config, places: &Places) -> Vec<Mistake> {
    let said = |sort: &str, name: &str| places.find(&join(sort, name));
    let groups = config.groups.iter().filter_map(|group| Some((&group.path, said("group", &group.path)?)));
    let groups = groups.flat_map(|(path, place)| {
        let why = [why_ineffective(config, path), why_late(config, path)];
        why.into_iter().flatten().map(move |why| place.says(why))
    });
    let disks = config.disks.iter().enumerate().filter_map(|(at, disk)| Some((at, said("disk", &disk.name)?)));
    let disks = disks.filter_map(|(at, place)| Some(place.says(why_useless(config, at)?)));
    let large = why_large(config).map(|(export, why)| places.named("export", export).says(why));
    let rules = config.clients.iter().flat_map(|rule| {
        let place = places.named("client", &rule.name);
        why_vain(config, rule).map(move |why| place.says(why))
    });
    let lists = config.revoked.warnings(SystemTime::now()); // ineffective.12
    let lists = lists.into_iter().map(|why| places.server("tls_certificates").says(format!("ca-crl.pem {why}")));
    let open = why_open(config).map(|(at, why)| places.listener(&at).says(why));
    let shut = |one| why_closed(config, one).or_else(|| why_for_nobody(config, one));
    let guests = config.exports.iter().filter_map(|one| Some(places.named("export", &one.name).says(shut(one)?)));
    groups.chain(disks).chain(large).chain(rules).chain(guests).chain(lists).chain(open).collect()
}

/// The settings that cannot act, as far as that is known before anything is opened: exports that name no disk count as on one together,
/// where weights mean something.
pub(super) fn warnings_unopened(config: &Config, places: &Places) -> Vec<Mistake> {
    let mut config = config.clone();
    let own = config.disks.len();
    Arc::make_mut(&mut config.exports).iter_mut().for_each(|export| _ = export.disk.get_or_insert(own));
    Arc::make_mut(&mut config.disks).push(Disk { is_usual: true, ..Disk::new("of its own", sched::Kind::Fair) });
    warnings(&config, places)
}

/// The settings of steps made that cannot act in the configuration then in force (ineffective.6).
pub(super) fn warnings_of(config: &Config, steps: &[Step]) -> Vec<String> {
    let above = |export: &Export| weighed_above(config, path_of(config, export));
    let [mut weights, mut latencies, mut clients, mut exports] = [(); 4].map(|()| BTreeSet::<&str>::new());
    for step in steps {
        match (&step.of, step.what) {
            (Of::Group(path), Becomes::Key("max")) => _ = latencies.insert(path),
            (Of::Group(path), Becomes::Key(_)) => _ = weights.insert(path),
            (Of::Group(path), Becomes::Comes) => weights.extend(weighed_above(config, path).filter(|one| one == path)),
            (Of::Export(name), Becomes::Comes | Becomes::Key("group")) => {
                exports.insert(name);
                weights.extend(config.exports.iter().filter(|export| export.name == *name).flat_map(above));
            }
            (Of::Disk(name), Becomes::Key("scheduler")) => {
                let Some(at) = config.disks.iter().position(|disk| disk.name == *name) else { continue };
                if !config.disks[at].scheduler.keeps_latency() {
                    latencies.extend(config.bounds.keys().map(|path| &**path));
                }
                if !config.disks[at].scheduler.has_weights() {
                    weights.extend(config.exports.iter().filter(|export| export.disk == Some(at)).flat_map(above));
                }
            }
            (Of::Client(name), _) => {
                clients.insert(name);
                exports.extend(config.exports.iter().map(|export| &*export.name));
            }
            _ => {}
        }
    }
    let weights = weights.into_iter().filter_map(|path| Some(("group", path, why_ineffective_now(config, path)?)));
    let latencies = latencies.into_iter().filter_map(|path| Some(("group", path, why_late(config, path)?)));
    let comes = steps.iter().any(|step| matches!((&step.of, step.what), (Of::Export(_), Becomes::Comes)));
    let large = comes.then(|| why_large(config)).flatten().map(|(export, why)| ("export", export, why));
    let rules = config.clients.iter().filter(|rule| clients.contains(&*rule.name));
    let vain = rules.flat_map(|rule| why_vain(config, rule).map(move |why| ("client", &*rule.name, why)));
    let shut = config.exports.iter().filter(|export| exports.contains(&*export.name));
    let shut = shut.filter_map(|one| Some(("export", &*one.name, why_for_nobody(config, one)?)));
    let all = weights.chain(latencies).chain(large).chain(vain).chain(shut);
    all.map(|(sort, name, why)| format!("{sort} {name:?}: {why}")).collect()
}

fn path_of<'a>(config: &'a Config, export: &Export) -> &'a str {
    &config.groups[usize::from(export.group.0)].path
}

/// A group and those above it, as far as they have another weight than the usual one.
fn weighed_above<'a>(config: &'a Config, path: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let group = config.groups.iter().position(|group| group.path == path).unwrap_or(0);
    let all = ancestors(config, GroupId(group as u16));
    all.filter(|group| group.weight != Weight::DEFAULT).map(|group| group.path.as_str())
}

/// Why the weight of a group cannot act, where its first export may still come.
fn why_ineffective_now(config: &Config, path: &str) -> Option<String> {
    if exports_below(config, path).next().is_some() {
        return why_ineffective(config, path);
    }
    let first = config.disks.first()?;
    (!config.disks.iter().any(can_share)).then(|| no_weights(first))
}

/// Whether weights mean something on a disk, or will where two tenants are on it.
const fn can_share(disk: &Disk) -> bool {
    disk.is_usual || disk.scheduler.has_weights()
}

/// Why the latency of a group cannot act; `None`: it has none, or it can, or no export is there (ineffective.7).
fn why_late(config: &Config, path: &str) -> Option<String> {
    config.bounds.get(path)?.latency?;
    let mut disks = exports_below(config, path).map(|(disk, _)| &config.disks[disk]);
    let first = disks.next()?;
    let is_kept = std::iter::once(first).chain(disks).any(|disk| disk.scheduler.keeps_latency());
    (!is_kept).then(|| {
        let (name, scheduler) = (&first.name, first.scheduler.name());
        format!(
            "its latency has no effect: disk {name:?} has scheduler {scheduler}, which makes no room for it; fair does"
        )
    })
}

/// ineffective.2
fn no_weights(disk: &Disk) -> String {
    let with: Vec<_> = sched::Kind::ALL.into_iter().filter(|kind| kind.has_weights()).map(sched::Kind::name).collect();
    let (last, others) = with.split_last().expect("some scheduler has weights");
    let (name, scheduler) = (&disk.name, disk.scheduler.name());
    format!(
        "its weight has no effect: disk {name:?} has scheduler {scheduler}, which knows no weights; {} and {last} do",
        others.join(", ")
    )
}

/// Why a disk has no use, or weights cannot act on it where they could (ineffective.4, ineffective.5).
fn why_useless(config: &Config, place: usize) -> Option<String> {
    let disk = &config.disks[place];
    let here = config.exports.iter().filter(|one| one.disk == Some(place));
    let groups: BTreeSet<_> = here.map(|one| one.group).collect();
    if groups.is_empty() {
        return Some("no export is on this disk".into());
    }
    let (places, at_once) = (disk.nr_requests?, 2 * config.limits.connection_requests);
    (disk.scheduler.has_weights() && groups.len() > 1 && places < at_once).then(|| {
        format!(
            "nr_requests is {places}, which two connections can fill ({at_once}); weights decide among these requests only, so \
             raise it, or leave it out for {}",
            disk.scheduler.nr_requests(disk.depth.unwrap_or(0))
        )
    })
}

/// Which export has the most RAM, and why all that they have is too much (ineffective.8).
fn why_large(config: &Config) -> Option<(&str, String)> {
    let ram = config.exports.iter().filter_map(|export| match &export.backing {
        Backing::Mem(ram) => Some((&*export.name, ram.size)),
        _ => None,
    });
    let all = ram.clone().fold(0, |all: u64, (_, size)| all.saturating_add(size));
    let (largest, _) = ram.max_by_key(|(_, size)| *size)?;
    let there = memory()?;
    (all > there).then(|| {
        let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / (1_u64 << 30) as f64);
        let (all, there) = (gib(all), gib(there));
        (
            largest,
            format!("exports have {all} of RAM, and this machine {there}: once clients have written as much, the kernel ends the server"),
        )
    })
}

/// The machine's memory in bytes. By a file and not by `sysinfo`, of which rustix takes for granted that it cannot be refused.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())?;
    Some(kib.saturating_mul(1024))
}

/// The parts of a rule for a client that cannot act (ineffective.9).
fn why_vain<'a>(config: &'a Config, rule: &'a Rule) -> impl Iterator<Item = String> + 'a {
    let names = || config.exports.iter().map(|export| export.name.as_str());
    let exports = rule.exports.iter().filter(move |name| names().all(|there| there != **name));
    let exports = exports.map(move |name| format!("there is no export {name:?}{}", suggestion(name, names())));
    let groups = || config.groups.iter().map(|group| group.path.as_str());
    let group = rule.group.iter().filter(|path| exports_below(config, path).next().is_none());
    let group =
        group.map(move |path| format!("no export is in group {path:?} or below it{}", suggestion(path, groups())));
    let sockets = || config.exports.iter().filter_map(|one| Some(one.ways.get::<GuestSocket>()?.address()));
    let places =
        move || config.listeners.iter().map(|one| one.address.clone()).chain(sockets()).map(|at| at.to_string());
    let listener = rule.listener.iter().filter(move |place| places().all(|there| there != **place));
    let listener = listener.map(move |place| {
        format!("it does not listen at {place}, only at {}", places().collect::<Vec<_>>().join(", "))
    });
    exports.chain(group).chain(listener).chain(why_shut_out(config, rule)).chain(why_hidden(rule))
}

/// Why the cgroups of others cannot be read (ineffective.13).
fn why_hidden(rule: &Rule) -> Option<String> {
    let path = rule.cgroup.as_ref()?;
    let own = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    // A confined server may not ask the kernel for its further groups, and a reload asks again.
    let (status, first) = (own("status"), rustix::process::getegid().as_raw().to_string());
    let further = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    let why = hidden_by(&own("mountinfo"), |gid| further.split_whitespace().chain([&*first]).any(|its| its == gid))?;
    Some(format!("the server cannot tell whether a process of another user is in cgroup {path}: {why}"))
}

/// The mount that hides processes of other users from users in these groups.
fn hidden_by(mounts: &str, is_in: impl Fn(&str) -> bool) -> Option<String> {
    let mounts = mounts.lines().rev().filter_map(|line| line.split_once(" - "));
    let Some((_, proc)) = mounts.into_iter().find(|(at, _)| at.split(' ').nth(4) == Some("/proc")) else {
        return Some("/proc is not mounted".into());
    };
    let is_hidden = |option: &&str| option.strip_prefix("hidepid=").is_some_and(|how| !["0", "off"].contains(&how));
    let option = proc.split([' ', ',']).find(is_hidden)?;
    // The kernel's exempt group; it is root's if none is said. With 4 (ptraceable) there is none.
    let exempt = proc.split([' ', ',']).find_map(|option| option.strip_prefix("gid=")).unwrap_or("0");
    if is_in(exempt) && !["hidepid=4", "hidepid=ptraceable"].contains(&option) {
        return None;
    }
    Some(format!(
        "/proc is mounted with {option}, as by ProtectProc= of a systemd unit (ProtectProc=default shows all)"
    ))
}

/// Why a client that is known by its user or group cannot connect; `None`: it can, or that cannot be told (ineffective.10).
fn why_shut_out(config: &Config, rule: &Rule) -> Option<String> {
    let who = rule.uid.map(|uid| format!("uid {uid}")).or(rule.gid.map(|gid| format!("gid {gid}")));
    let who = who.filter(|_| rule.is_of_exports())?; // places of control have modes of their own
    let listeners = config.listeners.iter().filter(|one| place::tcp_address(&one.address).is_none());
    let listeners = listeners.map(|one| (one.address.clone(), one.socket, format!("listen = \"{}", one.address)));
    let its = config.exports.iter().filter(|export| rule.allows(&export.name, path_of(config, export)));
    let sockets = its.filter_map(|export| export.ways.get::<GuestSocket>());
    let sockets = sockets.map(|one| (one.address(), one.socket, format!("vhost_user = \"{}", one.path.display())));
    let mut shut = None;
    for (at, socket, setting) in listeners.chain(sockets).filter(|(at, ..)| applies_at(rule, at)) {
        if matches!(at, Address::Inherited(_)) || lets_in(socket, rule) {
            return None;
        }
        shut.get_or_insert((at, socket, setting));
    }
    let (at, SocketMode { mode, owner, .. }, setting) = shut?;
    let owner = place::user(owner.unwrap_or_else(|| rustix::process::geteuid().as_raw()));
    Some(format!(
        "{who} cannot connect to {at} (mode {mode:04o} of {owner}): {setting},mode=0660,group=…\", at a start"
    ))
}

/// Whether a rule is for clients that come by an address.
fn applies_at(rule: &Rule, at: &Address) -> bool {
    rule.listener.as_ref().is_none_or(|place| at.to_string() == *place)
}

/// Why no client may open an export; `None`: one may, or that was not asked for (ineffective.14).
fn why_for_nobody(config: &Config, export: &Export) -> Option<String> {
    let of_exports = || config.clients.iter().filter(|rule| rule.is_of_exports());
    let is_allowed = || of_exports().any(|rule| rule.allows(&export.name, path_of(config, export)));
    if of_exports().next().is_none() || export.ways.iter().any(WayIn::is_block_device) || is_allowed() {
        return None;
    }
    let listener = config.listeners.first().map(|one| one.address.to_string()).unwrap_or_default();
    Some(format!(
        "no [client.…] allows it, so no client may open it; to allow every client of {listener}: [client.others] with \
         listener = {listener:?} and exports = {:?}",
        export.name
    ))
}

/// The address by which every client of other machines may open the exports of every tenant.
fn why_open(config: &Config) -> Option<(String, String)> {
    let tenants = config.exports.iter().map(|export| export.group).collect::<BTreeSet<_>>().len();
    let listener = config.listeners.iter().find(|listener| place::is_remote(&listener.address))?;
    (tenants > 1 && !config.clients.iter().any(Rule::is_of_exports)).then(|| {
        let at = place::show(&listener.address);
        let says = format!(
            "other machines can reach {at}, and each may open the exports of all {tenants} tenants; [client.NAME] in the config file \
             restricts that"
        );
        (at, says)
    })
}

/// Why no virtual machine can have an export; `None`: one can, or that was not asked for (ineffective.11).
fn why_closed(config: &Config, export: &Export) -> Option<String> {
    let guest = export.ways.get::<GuestSocket>()?;
    let fits = |rule: &&Rule| {
        let is_any = rule.uid.is_none() && rule.gid.is_none();
        let is_elsewhere = rule.certificate.is_some() || rule.address.is_some() || rule.token.is_some();
        !is_elsewhere && applies_at(rule, &guest.address()) && (is_any || lets_in(guest.socket, rule))
    };
    let allows = |rule: &Rule| rule.allows(&export.name, path_of(config, export));
    let is_bounded = config.clients.iter().any(Rule::is_of_exports);
    let is_open = config.clients.iter().filter(fits).any(allows);
    let at = guest.address();
    (is_bounded && !is_open).then(|| {
        format!(
            "no virtual machine can use {at}: no [client.NAME] allows its export to a process that can connect there; one with listener = \"{at}\" would"
        )
    })
}

/// Whether a socket may let a client in. Which further groups it has is not known.
fn lets_in(SocketMode { mode, owner, group }: SocketMode, rule: &Rule) -> bool {
    let owner = owner.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let group = group.unwrap_or_else(|| rustix::process::getegid().as_raw());
    match (rule.uid, rule.gid) {
        (Some(0), _) => true,
        (Some(uid), _) if uid == owner => mode & 0o200 != 0,
        (None, Some(gid)) if gid == group => mode & 0o220 != 0, // It may be the owner's.
        _ => mode & 0o022 != 0,
    }
}

/// Why the weight of a group cannot act; `None` if it can.
fn why_ineffective(config: &Config, path: &str) -> Option<String> {
    let group = config.groups.iter().find(|group| group.path == path)?;
    let parent = &config.groups[usize::from(group.parent?.0)];
    let own: BTreeSet<_> = exports_below(config, &group.path).map(|(disk, _)| disk).collect();
    if own.is_empty() {
        let used = config.exports.iter().flat_map(|export| ancestors(config, export.group));
        let used: BTreeSet<_> = used.map(|group| group.path.as_str()).collect();
        let hint = hint(path, used, || format!("; an export is put into it with group = {path:?}"));
        return Some(format!("no export is in this group{hint}")); // ineffective.1
    }
    if config.bounds.contains_key(path) && group.weight == Weight::DEFAULT {
        return None;
    }
    let rivals: Vec<_> = exports_below(config, &parent.path).filter(|(_, at)| !is_below(&at.path, path)).collect();
    let shared: BTreeSet<_> = rivals.iter().map(|(disk, _)| *disk).filter(|disk| own.contains(disk)).collect();
    let name = |disk: usize| &config.disks[disk].name;
    if let Some(first) = shared.first() {
        if shared.iter().any(|disk| can_share(&config.disks[*disk])) {
            return None;
        }
        return Some(no_weights(&config.disks[*first]));
    }
    // The weight that all have promises nothing where nobody shares; where somebody does, it promises an equal part.
    if group.weight == Weight::DEFAULT {
        return None;
    }
    let own: Vec<_> = own.into_iter().map(|disk| format!("{:?}", name(disk))).collect();
    let own = own.join(", ");
    Some(match rivals.first() {
        // ineffective.3
        None => format!("its weight has no effect: no other group in {:?} has an export to share with", parent.path),
        Some((disk, other)) => format!(
            "its weight has no effect: its exports are on disk {own}, and those of {:?} on disk {:?}; weights count among \
             the exports of one disk, which disk = \"NAME\" puts them on",
            other.path,
            name(*disk)
        ),
    })
}

/// The disk and the group of each export in a group or below it.
fn exports_below<'a>(config: &'a Config, path: &'a str) -> impl Iterator<Item = (usize, &'a Group)> {
    let placed =
        config.exports.iter().filter_map(|export| Some((export.disk?, &config.groups[usize::from(export.group.0)])));
    placed.filter(move |(_, group)| is_below(&group.path, path))
}

/// A group and those above it, without the root.
fn ancestors(config: &Config, group: GroupId) -> impl Iterator<Item = &Group> {
    let of = |group: GroupId| config.groups.get(usize::from(group.0)).filter(|group| group.parent.is_some());
    std::iter::successors(of(group), move |group| of(group.parent?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fairlift::control::{Edit, Leave, difference};

    use super::super::args::ServeArgs;
    use super::super::plan::{Plan, plan};
    use super::*;
    use crate::config;
    use crate::syntax::mistake::{Source, render};

    /// ineffective.13
    #[test]
    fn the_mount_of_proc_says_whether_it_shows_the_processes_of_others() {
        let at =
            |place: &str, options: &str| format!("24 1 0:22 / {place} rw,nosuid shared:13 - proc proc {options}\n");
        let (nobody, root, seven) = (|_: &str| false, |gid: &str| gid == "0", |gid: &str| gid == "7");
        let shown = [at("/proc", "rw"), at("/proc", "rw,hidepid=off"), at("/x", "rw,hidepid=2") + &at("/proc", "rw")];
        assert_eq!(shown.map(|mounts| hidden_by(&mounts, nobody)), [None, None, None]);
        let over = at("/proc", "rw") + &at("/proc", "rw,gid=7,hidepid=invisible");
        assert!(hidden_by(&over, root).unwrap().starts_with("/proc is mounted with hidepid=invisible,"));
        assert_eq!((hidden_by(&over, seven), hidden_by(&at("/proc", "rw,hidepid=1"), root)), (None, None));
        assert!(hidden_by(&at("/proc", "rw,hidepid=ptraceable"), root).is_some());
        assert!(hidden_by(&at("/proc", "rw,hidepid=2"), seven).unwrap().contains("hidepid=2"));
        assert_eq!(hidden_by(&at("/x", "rw"), nobody), Some("/proc is not mounted".into()));
    }

    /// The messages for a file in which every export names its disk. Its listener is left out.
    fn warnings_text(text: &str) -> String {
        let source = Source { name: "f.toml".into(), text: text.into() };
        let mut mistakes = Vec::new();
        let file = config::read(&source, Path::new("/base"), &mut mistakes);
        let Plan { config, places, .. } = plan(&ServeArgs::default(), Some(file), Vec::new(), &mut mistakes);
        assert_eq!(mistakes, []);
        render("warning: ", Some(&source), &warnings(&config, &places))
    }

    /// The messages for a file.
    fn config_of(text: &str) -> Config {
        let source = Source { name: "f.toml".into(), text: text.into() };
        let mut mistakes = Vec::new();
        let file = config::read(&source, Path::new("/base"), &mut mistakes);
        plan(&ServeArgs::default(), Some(file), Vec::new(), &mut mistakes).config
    }

    /// The messages for the steps to a configuration from another one.
    fn warnings_between(config: &Config, otherwise: &[&dyn Fn(&mut Edit)]) -> Vec<String> {
        let mut before = Edit::from(config.clone());
        otherwise.iter().for_each(|edit| edit(&mut before));
        warnings_of(config, &difference(&before.config, &config.clone().into()).unwrap())
    }

    /// Exports `a`, `b`, … each with its disk and group.
    fn exports(all: &[(&str, &str)]) -> String {
        let one = |(number, (disk, group)): (usize, &(&str, &str))| {
            let name = char::from(b'a' + number as u8);
            format!("[export.{name}]\nbacking = \"mem:1m\"\ndisk = {disk:?}\ngroup = {group:?}\n")
        };
        all.iter().enumerate().map(one).collect()
    }

    fn weight(group: &str) -> String {
        format!("[group.{group:?}]\nweight = 300\n")
    }

    /// ineffective.8
    #[test]
    fn more_ram_than_the_machine_has_is_told_of_the_largest_export() {
        let text =
            exports(&[("d", "/a"), ("d", "/b"), ("d", "/c")]).replacen("1m", "999t", 2).replacen("999t", "1t", 1)
                + "[disk.d]\n";
        assert!(
            first(&text).starts_with("export.b: exports have 1024000.0 GiB of RAM, and this machine "),
            "{}",
            warnings_text(&text)
        );
        assert_eq!(warnings_text(&text.replace("999t", "1m").replace("1t", "1m")), "");
        let (config, name) = (config_of(&text), "b".to_owned());
        let shown = warnings_between(&config, &[&move |edit| edit.remove_export(&name, Leave::Drain).unwrap()]);
        assert!(shown[0].starts_with("export \"b\": exports have"), "{shown:?}");
    }

    /// The first line, without the place.
    fn first(text: &str) -> String {
        let shown = warnings_text(text);
        shown.lines().next().and_then(|line| line.split_once(": warning: ")).unwrap_or_default().1.to_owned()
    }

    #[test]
    fn a_weight_that_acts_is_not_spoken_of() {
        let two = exports(&[("d", "/t/a"), ("d", "/t/b")]);
        for scheduler in ["fair", "bfq", "cfq"] {
            let disk = format!("[disk.d]\nscheduler = {scheduler:?}\n");
            assert_eq!(warnings_text(&(disk + &two + &weight("/t/a"))), "");
        }
        assert_eq!(
            warnings_text(&("[disk.d]\n".to_owned() + &two + &weight("/t/a"))),
            "",
            "the default is a scheduler with weights"
        );
        // Clients of the parent itself are siblings too, and so are those below a sibling.
        let parent = exports(&[("d", "/t"), ("d", "/t/b")]);
        assert_eq!(warnings_text(&("[disk.d]\n".to_owned() + &parent + &weight("/t/b"))), "");
        let below = exports(&[("d", "/t/a/x"), ("d", "/t/b/y/z")]);
        assert_eq!(warnings_text(&("[disk.d]\n".to_owned() + &below + &weight("/t/b"))), "");
        // One disk on which it acts is enough.
        let disks = "[disk.d]\n[disk.e]\nscheduler = \"none\"\n".to_owned();
        let both = exports(&[("d", "/a"), ("d", "/b"), ("e", "/a"), ("e", "/b")]);
        assert_eq!(warnings_text(&(disks + &both + &weight("/a"))), "");
    }

    /// ineffective.1
    #[test]
    fn a_group_without_exports_has_its_nearest_neighbour_named_with_its_line() {
        let text = "[disk.d]\n".to_owned() + &exports(&[("d", "/tenants/alice"), ("d", "/tenants/bob")]);
        assert_eq!(
            warnings_text(&(text.clone() + &weight("/tenants/alcie"))),
            "\
f.toml:10:8: warning: group.\"/tenants/alcie\": no export is in this group; did you mean \"/tenants/alice\"?
  10 | [group.\"/tenants/alcie\"]
     |        ^^^^^^^^^^^^^^^^
"
        );
        assert!(
            first(&(text.clone() + &weight("/tenant"))).ends_with("did you mean \"/tenants\"?"),
            "a parent is near too"
        );
        let far = first(&(text + &weight("/backup")));
        assert_eq!(
            far,
            "group.\"/backup\": no export is in this group; an export is put into it with group = \"/backup\""
        );
    }

    /// ineffective.2
    #[test]
    fn a_scheduler_without_weights_is_named_with_those_that_have_them() {
        for scheduler in ["none", "mq-deadline"] {
            let text = format!("[disk.d]\nscheduler = {scheduler:?}\n") + &exports(&[("d", "/a"), ("d", "/b")]);
            assert_eq!(
                first(&(text + &weight("/a"))),
                format!(
                    "group.\"/a\": its weight has no effect: disk \"d\" has scheduler {scheduler}, which knows no weights; \
                     fair, bfq and cfq do"
                )
            );
        }
    }

    /// ineffective.7
    #[test]
    fn a_latency_under_a_scheduler_that_makes_no_room_is_told() {
        let text = |scheduler| {
            let disk = format!("[disk.d]\nscheduler = {scheduler:?}\n");
            disk + &exports(&[("d", "/a"), ("d", "/b")]) + "[group.\"/a\"]\nlatency = \"2ms\"\n"
        };
        let why = |scheduler| {
            format!(
                "its latency has no effect: disk \"d\" has scheduler {scheduler}, which makes no room for it; fair does"
            )
        };
        for scheduler in ["none", "bfq"] {
            assert_eq!(first(&text(scheduler)), format!("group.\"/a\": {}", why(scheduler)));
        }
        assert_eq!(warnings_text(&text("fair")), "");
        let config = config_of(&text("bfq"));
        let none = |edit: &mut Edit| edit.set_bounds("/a", Default::default()).unwrap();
        let turn = |edit: &mut Edit| edit.disk("d").unwrap().scheduler = sched::Kind::Fair;
        let wanted = [format!("group \"/a\": {}", why("bfq"))];
        assert_eq!(warnings_between(&config, &[&none]), wanted);
        assert_eq!(warnings_between(&config, &[&turn]), wanted);
        assert_eq!(warnings_between(&config, &[&turn, &none]), wanted, "it is told once");
    }

    /// ineffective.3
    #[test]
    fn a_group_that_is_alone_on_its_disk_has_nobody_to_share_with() {
        let alone =
            "[disk.d]\nscheduler = \"fair\"\n".to_owned() + &exports(&[("d", "/t/a"), ("d", "/t/a/x"), ("d", "/u")]);
        assert_eq!(
            first(&(alone.clone() + &weight("/t/a"))),
            "group.\"/t/a\": its weight has no effect: no other group in \"/t\" has an export to share with"
        );
        assert_eq!(first(&(alone + "[group.\"/t/a\"]\nweight = 100\n")), "", "the weight that all have");
        let apart = "[disk.d]\n[disk.e]\n".to_owned() + &exports(&[("d", "/a"), ("e", "/b")]);
        assert_eq!(
            first(&(apart + &weight("/a"))),
            "group.\"/a\": its weight has no effect: its exports are on disk \"d\", and those of \"/b\" on disk \"e\"; \
             weights count among the exports of one disk, which disk = \"NAME\" puts them on"
        );
    }

    /// ineffective.4
    #[test]
    fn a_disk_without_exports_is_told() {
        let text = "[disk.d]\n[disk.e]\n".to_owned() + &exports(&[("d", "/a")]);
        assert!(
            warnings_text(&text).starts_with("f.toml:2:7: warning: disk.e: no export is on this disk\n"),
            "{}",
            warnings_text(&text)
        );
    }

    /// ineffective.6
    #[test]
    fn a_change_is_asked_about_the_groups_that_it_is_about() {
        let config = config_of;
        let two = |scheduler: &str| {
            let disk = format!("[disk.d]\nscheduler = {scheduler:?}\n");
            config(
                &(disk + &exports(&[("d", "/t/a"), ("d", "/b")]) + &weight("/t") + "[group.\"/new\"]\nweight = 100\n"),
            )
        };
        let (plain, fair) = (two("mq-deadline"), two("fair"));
        let says = |group: &str| {
            let why = "disk \"d\" has scheduler mq-deadline, which knows no weights; fair, bfq and cfq do";
            vec![format!("group {group:?}: its weight has no effect: {why}")]
        };
        let no_group = |edit: &mut Edit| edit.remove_group("/new").unwrap();
        let weighed = |path: &'static str| move |edit: &mut Edit| edit.set_weight(path, Weight::new(77)).unwrap();
        let elsewhere = |name: &'static str| move |edit: &mut Edit| edit.export(name).unwrap().group = GroupId::ROOT;
        let turn = |kind| move |edit: &mut Edit| edit.disk("d").unwrap().scheduler = kind;
        let with = |config: &Config, weight| {
            let mut edit = Edit::from(config.clone());
            edit.set_weight("/new", Weight::new(weight)).unwrap();
            edit.config
        };
        // A group without exports, in which one may come: only where no disk knows weights.
        assert_eq!(warnings_between(&with(&plain, 200), &[&no_group]), says("/new"));
        assert_eq!(warnings_between(&with(&fair, 200), &[&no_group]), [""; 0]);
        assert_eq!(warnings_between(&with(&fair, 300), &[&weighed("/new")]), [""; 0]);
        assert_eq!(warnings_between(&plain, &[&no_group]), [""; 0], "the weight that all have");
        // One with exports; and an export that comes into a group whose weight, or that of one above it, was said.
        assert_eq!(warnings_between(&plain, &[&weighed("/b"), &elsewhere("b")]), says("/b"), "it is told once");
        assert_eq!(warnings_between(&plain, &[&elsewhere("a")]), says("/t"));
        assert_eq!(warnings_between(&plain, &[&elsewhere("b")]), [""; 0]);
        assert_eq!(warnings_between(&fair, &[&weighed("/b"), &elsewhere("a")]), [""; 0]);
        // A scheduler that takes the effect of weights away.
        assert_eq!(warnings_between(&plain, &[&turn(sched::Kind::Bfq)]), says("/t"));
        assert_eq!(warnings_between(&fair, &[&turn(sched::Kind::None)]), [""; 0]);
        // It has nobody to share with.
        let alone = "[disk.d]\nscheduler = \"fair\"\n".to_owned() + &exports(&[("d", "/a")]) + &weight("/a");
        let shown = warnings_between(&config(&alone), &[&weighed("/a")]);
        assert_eq!(
            shown,
            ["group \"/a\": its weight has no effect: no other group in \"/\" has an export to share with"]
        );
    }

    /// ineffective.5
    #[test]
    fn a_table_that_two_clients_can_fill_is_told() {
        let two = exports(&[("d", "/a"), ("d", "/b")]);
        let disk = |words: &str| format!("[disk.d]\ndepth = 32\n{words}\n{two}");
        assert_eq!(
            first(&disk("nr_requests = 64")),
            "disk.d: nr_requests is 64, which two connections can fill (256); weights decide among these requests only, so \
             raise it, or leave it out for 4096"
        );
        for right in ["", "nr_requests = 256", "nr_requests = 64\nscheduler = \"none\""] {
            assert_eq!(warnings_text(&disk(right)), "", "{right}");
        }
    }

    #[test]
    fn before_anything_is_opened_a_misspelt_name_is_told_and_no_weight_is_doubted() {
        let text = (exports(&[("d", "/a"), ("d", "/b")]) + &weight("/a")).replace("disk = \"d\"\n", "");
        let unopened = |more: &str| {
            let source = Source { name: "f.toml".into(), text: text.clone() + more };
            let file = config::read(&source, Path::new("/base"), &mut Vec::new());
            let Plan { config, places, .. } = plan(&ServeArgs::default(), Some(file), Vec::new(), &mut Vec::new());
            warnings_unopened(&config, &places).into_iter().map(|one| one.key + ": " + &one.says).collect::<Vec<_>>()
        };
        assert_eq!(unopened(""), [""; 0]);
        assert_eq!(unopened(&weight("/aa")), ["group.\"/aa\": no export is in this group; did you mean \"/a\"?"]);
        assert_eq!(
            unopened("[client.c]\nuid = 0\ngroup = \"/\"\nexports = \"bb\"\n"),
            ["client.c: there is no export \"bb\"; did you mean \"b\"?"]
        );
    }

    /// ineffective.14
    #[test]
    fn an_export_that_the_first_rule_takes_from_everybody_is_told() {
        let server = "[server]\nlisten = \"unix:d.sock\"\n[disk.d]\n";
        let text = |rules: &str| server.to_owned() + &exports(&[("d", "/t/a"), ("d", "/b")]) + rules;
        let bob = "[client.bob]\nlistener = \"unix:d.sock\"\nexports = \"b\"\n";
        let why = "no [client.…] allows it, so no client may open it; to allow every client of unix:/base/d.sock: [client.others] with \
                   listener = \"unix:/base/d.sock\" and exports = \"a\"";
        assert_eq!(first(&text(bob)), format!("export.a: {why}"));
        let token = format!("[client.m]\ntoken = \"sha256:{}\"\ncontrol = \"see\"\n", "0".repeat(64));
        for right in [
            "",
            &token,
            &format!("{bob}[client.others]\nlistener = \"unix:d.sock\"\nexports = \"a\"\n"),
            &format!("{bob}[client.t]\nlistener = \"unix:d.sock\"\ngroup = \"/t\"\n"),
        ] {
            assert_eq!(warnings_text(&text(right)), "", "{right}");
        }
        let device = text(bob).replace("group = \"/t/a\"\n", "group = \"/t/a\"\nublk = true\n");
        assert_eq!(warnings_text(&device), "", "a block device is opened without a rule");
        let config = config_of(&text(bob));
        let wanted = [format!("export \"a\": {why}")];
        let no_rule = |edit: &mut Edit| edit.config.clients.clear();
        let without = |name: &'static str| move |edit: &mut Edit| edit.remove_export(name, Leave::Drain).unwrap();
        assert_eq!(warnings_between(&config, &[&no_rule]), wanted);
        assert_eq!(warnings_between(&config, &[&without("a")]), wanted);
        assert_eq!(warnings_between(&config, &[&without("b")]), [""; 0], "only what the change is about");
    }

    #[test]
    fn tenants_whose_exports_other_machines_may_open_are_told() {
        let server = "[server]\ninsecure = true\nlisten = [\"unix:d.sock\", \"tcp:0.0.0.0:1\"]\n[disk.d]\n";
        let text = |group: &str| server.to_owned() + &exports(&[("d", "/a"), ("d", group)]);
        let why = "f.toml:3:26: warning: server.listen: other machines can reach tcp:0.0.0.0:1, and each may open the exports of all 2 tenants; ";
        assert!(warnings_text(&text("/b")).starts_with(why), "{}", warnings_text(&text("/b")));
        assert_eq!(warnings_text(&text("/a")), "");
    }

    /// ineffective.10
    #[test]
    fn a_client_that_no_socket_lets_in_is_told() {
        let me = rustix::process::geteuid().as_raw();
        let vain = |listen: &str, uid: u32| {
            let server = format!("[server]\nlisten = {listen}\n[client.bob]\nuid = {uid}\nexports = [\"a\"]\n");
            let config = config_of(&(server + "[export.a]\nbacking = \"mem:1m\"\n"));
            why_shut_out(&config, &config.clients[0])
        };
        let stranger = me + 4242;
        let says = format!(
            "uid {stranger} cannot connect to unix:/base/d.sock (mode 0600 of {}): listen = \"unix:/base/d.sock,mode=0660,group=…\", at a start",
            place::user(me)
        );
        assert_eq!(vain("\"unix:d.sock\"", stranger), Some(says));
        for right in
            ["\"unix:d.sock,mode=0660\"", "[\"unix:c.sock\", \"unix:d.sock,mode=0666\"]", "\"tcp:127.0.0.1:1\""]
        {
            assert_eq!(vain(right, stranger), None, "{right}");
        }
        assert_eq!((vain("\"unix:d.sock\"", me), vain("\"unix:d.sock\"", 0)), (None, None));
        let its = format!("\"unix:d.sock,owner={stranger}\"");
        assert_eq!(vain(&its, stranger), None);
        let operator =
            format!("[client.o]\nuid = {stranger}\ncontrol = \"change\"\n[export.a]\nbacking = \"mem:1m\"\n");
        let config = config_of(&("[server]\nlisten = \"unix:d.sock\"\n".to_owned() + &operator));
        assert_eq!(why_shut_out(&config, &config.clients[0]), None, "who comes to the control server alone");
    }

    /// ineffective.10, ineffective.11
    #[test]
    fn a_socket_of_virtual_machines_that_is_for_nobody_is_told() {
        let me = rustix::process::geteuid().as_raw();
        let [guest, other] = [me + 4242, me + 4243];
        let why_not = |mode: &str, rule: &str| {
            let export = format!(
                "[export.a]\nbacking = \"mem:1m\"\nvhost_user = \"a.vm{mode}\"\ngroup = \"/a\"\ndisk = \"d\"\n[disk.d]\n"
            );
            let config = config_of(&(export + "[client.vm]\n" + rule + "\n"));
            let vain = config.clients.iter().flat_map(|rule| why_vain(&config, rule));
            vain.chain(why_closed(&config, &config.exports[0])).collect::<Vec<_>>()
        };
        let closed = "no virtual machine can use unix:/base/a.vm: no [client.NAME] allows its export to a process that can connect there; one with \
                      listener = \"unix:/base/a.vm\" would";
        let of_guest = format!("uid = {guest}\n");
        let shut =
            format!("uid {guest} cannot connect to unix:/base/a.vm (mode 0600 of {}): vhost_user = ", place::user(me));
        let reasons = why_not("", &(of_guest.clone() + "listener = \"unix:a.vm\"\ngroup = \"/a\""));
        assert_eq!(reasons, [shut + "\"/base/a.vm,mode=0660,group=…\", at a start", closed.into()]);
        for rule in [
            "address = \"10.0.0.1\"\nexports = \"a\"".to_owned(),
            format!("uid = {me}\ngroup = \"/a\"\nlistener = \"unix:b\""),
        ] {
            assert_eq!(why_not("", &rule).last().map(String::as_str), Some(closed), "{rule}");
        }
        for (mode, rule) in [
            ("", format!("uid = {me}\nexports = \"a\"")),
            ("", "listener = \"unix:a.vm\"\ngroup = \"/\"".into()),
            ("", "token = \"sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\"\ncontrol = \"see\"".into()),
            (&*format!(",owner={guest}"), of_guest.clone() + "exports = \"a\""),
            (",mode=0660", format!("uid = {other}\nexports = \"a\"")),
        ] {
            assert_eq!(why_not(mode, &rule), [""; 0], "{mode} {rule}");
        }
    }
}
