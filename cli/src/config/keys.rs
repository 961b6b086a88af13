//! The keys of exports, disks, groups, listeners, clients and the server: one row for each.
//!
//! From a row come what the config file and JSON take for it, what a server that runs can have changed, the refusal of unknown
//! keys, the suggestions, what a shell completes, the types of the OpenAPI document, and the tables of `docs/config.md`
//! and `docs/config-server.md`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use fairlift::access::{Control, Rule};
use fairlift::config::{Disk, Export, Faults, Null, Tls, check_gateway};
use fairlift::control::check_path as check_group;
use fairlift_core::ceiling::Bounds;
use fairlift_core::learn::concurrency;
use fairlift_core::{Duration, Priority, Weight, sched};
use fairlift_lab::suggestion;

use super::Server;
use super::faults::read_file;
use super::given::Given;
use super::row::Put::{self, *};
use super::row::{Act, Key, Kind, Row, Sort, all};
use super::section::Placed;
use crate::control::place::parse_control;
use crate::syntax::place::{self, check_path, parse_engine, parse_place, parse_tls};
use crate::syntax::scheduler::parse_scheduler;
use crate::ways;

/// The keys that can be said of a thing that is added or set, beside its name, and of a disk the tunables of its scheduler.
pub(crate) fn keys(kind: Kind, act: Act) -> Vec<Key> {
    let all = match (kind, act) {
        (_, Act::Remove) => return all(NOW),
        (Kind::Group, _) => all(GROUP_ROWS),
        (Kind::Export, _) => export_keys(),
        (Kind::Disk, _) => all(DISK_ROWS),
        (Kind::Listener, _) => all(LISTENER_ROWS),
        (Kind::Client, _) => all(CLIENT_ROWS),
    };
    all.into_iter().filter(|key| key.acts[usize::from(act == Act::Set)]).collect()
}

/// The keys of a removal.
pub(crate) const NOW: &[Row<bool>] = &[Row::<bool>::new("now", Switch(|now, is| *now = is))
    .fixed("false", "whether to disconnect its clients at once, without an answer to their requests")];

pub(crate) struct ExportKeys {
    /// All that is no name.
    pub(crate) settings: Export,
    pub(crate) disk: Option<String>,
    pub(crate) group: Option<String>,
    /// Other rules of a backing with faults, and where they are.
    pub(crate) faults: (PathBuf, Faults),
}

impl From<Export> for ExportKeys {
    fn from(settings: Export) -> Self {
        Self { settings, disk: None, group: None, faults: Default::default() }
    }
}

impl ExportKeys {
    /// The keys of an export before any of them is read.
    pub(crate) fn new(name: &str) -> Self {
        Export::new(name, Null { size: 0, delay: Duration::ZERO }).into()
    }
}

pub(crate) struct GroupKeys {
    pub(crate) weight: Weight,
    pub(crate) bounds: Bounds,
    pub(crate) delegate: BTreeSet<String>,
}

impl Default for GroupKeys {
    fn default() -> Self {
        Self { weight: Weight::DEFAULT, bounds: Bounds::default(), delegate: BTreeSet::new() }
    }
}

/// NBD's limit on a description.
const DESCRIPTION_MAX: usize = 4096;

pub(crate) const EXPORT: Sort = Sort {
    name: "export",
    header: "[export.NAME]",
    says: "Clients connect to an export: a backing, or a range of one, under a name. A single export also answers to the empty name.",
    rows: export_keys,
};

fn export_keys() -> Vec<Key> {
    all(EXPORT_ROWS).into_iter().chain(all(ways::ROWS)).collect()
}

/// Those that are the same however clients reach it; [`ways::ROWS`] are the others.
pub(crate) const EXPORT_ROWS: &[Row<ExportKeys>] = &[
    export("backing", Put::Backing(|export, backing| export.settings.backing = backing))
        .fixed("required",
            "the file, device, RAM, model, other server or Ceph image that holds the data; a block device that is mounted or held by another program is refused without `in_use=allow`, a file that another export writes to without `shared`; a file that begins as a qcow2, VMDK, VHDX or LUKS image is refused without `format=raw` by a reload and `add`; a start warns of it, and serves such an image read-only (a LUKS container stays writable)"),
    export("offset", Size(|export, bytes| export.settings.offset = bytes))
        .fixed("0", "the offset in the backing at which the export starts"),
    export("size", AutoSize(|export, size| export.settings.size = size))
        .live("up to the end", "the length of the export"),
    export("disk", Text(|export, name| Ok(name.into()).map(|name| export.disk = Some(name))))
        .takes("the name of a `[disk.…]`")
        .fixed("one disk per device or file system, named after it",
            "the scheduling domain of the export; exports with the same `sim:` text on one disk share one modelled disk, as exports of one file do"),
    export("group", Text(|export, path| Ok(path.into()).map(|path| export.group = Some(path))))
        .takes("a path from the root, as in `\"/tenants/alice\"`")
        .live("`/NAME`, a group of its own", "the group whose share its clients use"),
    export("ioprio", Text(|export, text| parse_priority(text).map(|priority| export.settings.priority = priority)))
        .takes("`rt/0` to `rt/7`, `be/0` to `be/7`, `idle`")
        .live("`be/4`", "the I/O priority of its clients within the group"),
    export("read_only", Switch(|export, is| export.settings.read_only = is))
        .live("false", "whether clients may only read"),
    export("description", Text(|export, text| parse_description(text).map(|text| export.settings.description = text)))
        .takes("text")
        .live("none", "a text for people; `nbdinfo --list` shows it"),
    export("faults", Text(|export, text| parse_faults(text).map(|faults| export.faults = faults)))
        .takes("a path")
        .live("those of the backing", "new rules for a backing with faults")
        .only(false, false),
];

pub(crate) const DISK: Sort = Sort {
    name: "disk",
    header: "[disk.NAME]",
    says: "A disk is a scheduling domain: the exports that share one physical device, and the one queue that arbitrates among them.\n\n\
     A disk without a name here is called after the device below it: the block device as the kernel calls it (`vda`; a logical volume by its \
     own name), else the mount point of the file system (`srv-images`; of `/`: `root`), `ram`, `null`, the model, the \
     host or socket of another server, or the pool of Ceph. RAM and models belong to one export, whose name follows: `ram-alice`; an export \
     `ram` has the disk `ram`. If two disks would have one name, or a table of this file has it, the name of the disk's first export by the alphabet follows, too. \
     Neither the order of exports nor an added export changes a name, now or at the next start; two file systems of one name get different names once \
     both are there.",
    rows: || all(DISK_ROWS),
};

pub(crate) const DISK_ROWS: &[Row<Disk>] = &[
    disk("scheduler", Choice(|| sched::Kind::ALL.map(sched::Kind::name).into(), |disk, name| parse_scheduler(name).map(|kind| disk.scheduler = kind)))
        .takes("the name of a scheduler; see `fairlift tunables`")
        .live("`--scheduler`, else `fair` where exports of several groups are on it (`bfq` if it rotates), else `mq-deadline` until a second group comes",
            "the scheduler: it decides which request is served next"),
    disk("set", Elsewhere)
        .takes("a table of tunables; see `docs/tunables.md`")
        .fixed("the scheduler's own", "the tunables of the scheduler")
        .only(true, false),
    disk("tunables", Elsewhere)
        .takes("an object of tunables")
        .live("the scheduler's own", "the tunables of the scheduler")
        .only(false, true),
    disk("depth", Auto(1, 4096, |disk, depth| disk.depth = depth.map(|depth| depth as u16)))
        .takes("1 to 4096")
        .live("128", "limit on requests in flight in the device"),
    disk("shared_tags", Switch(|disk, is| disk.shared_tags = is))
        .fixed("false",
            "whether the workers share `depth`, with a part assured to each; false: each worker has a `depth` of its own; for the scheduler `none`"),
    disk("nr_requests", Auto(1, 1 << 20, |disk, number| disk.nr_requests = number.map(|number| number as u32)))
        .takes("1 to 1048576, at least `depth`")
        .live("twice the depth; with `fair`, `bfq` and `cfq` at least 4096",
            "limit on requests that wait or are in flight; weights decide among these only"),
    disk("io_timeout", Time(|disk, time| disk.io_timeout = Some(time)))
        .fixed("30s", "time limit for a request in the device"),
    disk("concurrency", Auto(1, 256, fix_concurrency))
        .takes("`auto`, or 1 to 256")
        .fixed("`auto`: learned while it runs",
            "limit on concurrent requests to a file that helper threads have to wait for (squashfs, FUSE, network file systems)"),
    disk("concurrency_max", Number(1, 256, bound_concurrency))
        .fixed("16", "limit on the numbers that `auto` tries; at most half of `helpers`"),
    disk("shares", Text(|disk, text| text.parse().map(|shares| disk.shares = Some(shares))))
        .takes("`dir:PATH` (a directory that all gateways see) or `rados:POOL/OBJECT[,user=USER][,conf=PATH][,timeout=TIME]` (an object of a Ceph pool)")
        .fixed("none: this server alone serves the disk",
            "the meeting place of several servers before one pool: each reports there what it served, and weights and limits hold over all of them; needs the scheduler `fair`; see `docs/cluster.md`"),
];

pub(crate) const GROUP: Sort = Sort {
    name: "group",
    header: "[group.\"/PATH\"]",
    says: "A group is a node of the weight tree. Its limits bind all below it, on all disks together. A group that an export names needs no table of its own; it and its parents then have the default weight.",
    rows: || all(GROUP_ROWS),
};

pub(crate) const GROUP_ROWS: &[Row<GroupKeys>] = &[
    group("weight", Number(1, Weight::MAX.get() as u64, |group, weight| group.weight = Weight::new(weight as u16)))
        .live("100", "the group's share relative to its siblings")
        .means(Weight::MEANS),
    group("max", Rates(|group| &mut group.bounds.ceiling.max))
        .takes("a table of `rbps`, `wbps`, `riops`, `wiops`, `bps`, `iops`, or text such as `\"riops=3000 wbps=50m\"`")
        .live("no limit",
            "the ceiling: the most that the group may do in a second, even while the disk is idle; see `docs/limits.md`"),
    group("burst", Burst(|group| &mut group.bounds.ceiling))
        .takes("as `max`, with `seconds`")
        .live("no bursts; `seconds`: 1",
            "the rates above `max` that the group may reach for `seconds`, after it has used less than `max` for long enough"),
    group("min", Rates(|group| &mut group.bounds.floor))
        .takes("as `max`")
        .live("none",
            "the floor: the least that the group gets in a second while it asks for it, as far as the disk can; needs the scheduler `fair`"),
    group("latency", Latency(|group, latency| group.bounds.latency = latency))
        .live("`none`",
            "the latency target: the time in which 99 of 100 reads and writes of the group are answered; other groups make room for it; needs the scheduler `fair`; see `docs/limits.md`"),
    group("delegate", List(None, |group, text, _| delegable(text).map(|()| _ = group.delegate.insert(text.into()))))
        .takes("a list of the keys above")
        .fixed("none",
            "the keys of this group, and of those below it, that a client with `control = \"tenant\"` may change, if its own group is the same or above; see `docs/control-access.md`")
        .only(true, false),
];

/// The keys of a group that can change while the server runs.
pub(crate) fn live_group_keys() -> impl Iterator<Item = &'static str> {
    GROUP_ROWS.iter().filter(|row| row.is_put(Act::Set)).map(|row| row.name)
}

fn delegable(text: &str) -> Result<(), String> {
    if live_group_keys().any(|name| name == text) {
        return Ok(());
    }
    let list = live_group_keys().collect::<Vec<_>>().join(", ");
    Err(format!("takes {list}, not {text:?}{}", suggestion(text, live_group_keys())))
}

/// Where clients connect, of a listener that is added.
pub(crate) const LISTENER_ROWS: &[Row<Option<Tls>>] = &[Row::<Option<Tls>>::new(
    "tls",
    Choice(|| vec!["off", "on", "require"], |tls, text| parse_tls(text).map(|read| *tls = Some(read))),
)
.fixed("`off`", "whether traffic is encrypted")
.only(false, true)];

/// The rights of clients to exports and to the control server.
pub(crate) const CLIENT: Sort = Sort {
    name: "client",
    header: "[client.NAME]",
    says: "A client may open the exports that it is allowed here. Without any `[client.…]` every client may open every export; with one, \
     exports that no table allows a client do not exist for it. A table fits a client if all of its keys `uid` to `token` fit. A client that \
     several tables fit has the rights of all of them. Tables hold for NBD clients and virtual machines (`vhost_user`), and with `control` and \
     `token` for clients of the control server; block devices have keys of their own. A table with a `token`, or without exports, restricts no \
     client of exports. See `docs/do/access.md` and `docs/control-access.md`.",
    rows: || all(CLIENT_ROWS),
};

pub(crate) const CLIENT_ROWS: &[Row<Rule>] = &[
    client("uid", Number(0, NO_ID - 1, |rule, uid| rule.uid = Some(uid as u32)))
        .live("any client", "the user of the process at the other end of a unix socket"),
    client("gid", Number(0, NO_ID - 1, |rule, gid| rule.gid = Some(gid as u32)))
        .live("any client", "the group of this process; its supplementary groups do not count"),
    client("cgroup", Text(|rule, text| text.parse().map(|path| rule.cgroup = Some(path))))
        .takes("a path from the root, as `/proc/PID/cgroup` has it after `0::`, such as `\"/system.slice/vm-alice.scope\"`")
        .live("any client", "the cgroup (of version 2) that this process is in, or one above it"),
    client("certificate", Text(|rule, text| text.parse().map(|subject| rule.certificate = Some(subject))))
        .takes("`CN=NAME`, `DNS:NAME`, `URI:NAME`, `email:NAME`, or `sha256:` and its fingerprint")
        .live("any client",
            "a name in the client's certificate, or the fingerprint of that certificate; needs `tls_verify_peer`, or `control` and a control address with certificates"),
    client("address", Text(|rule, text| text.parse().map(|network| rule.address = Some(network))))
        .takes("an IP address, or a range such as `192.0.2.0/24`")
        .live("any client", "the address, or range of addresses, that the client comes from"),
    client("listener", Text(|rule, text| place::parse(text).map(|address| rule.listener = Some(address.to_string()))))
        .takes("one of the addresses of `listen`, or `unix:` and the path of a `vhost_user`")
        .live("any client", "the address that the client has connected to"),
    client("token", Text(|rule, text| text.parse().map(|token| rule.token = Some(token))))
        .takes("`sha256:` and the digest of a token, as `printf %s \"$TOKEN\" | sha256sum` prints it")
        .live("any client", "the token that the client sends to the control server; needs `control`"),
    client("exports", List(Some("lists no export"), |rule, text, _| Ok(_ = rule.exports.insert(text.into()))))
        .takes("the name of an export, or a list of them")
        .live("none", "the exports that the client may open"),
    client("group", Text(|rule, text| check_group(text).map(|()| rule.group = Some(text.into()))))
        .takes("a path from the root, as in `\"/tenants/alice\"`")
        .live("none", "a group: the client may open the exports of this one and of all below it"),
    client("control", Choice(|| Control::ALL.map(Control::name).into(), |rule, text| text.parse().map(|control| rule.control = Some(control))))
        .takes("`none`; `tenant`: see its own `group`, and change the keys that `delegate` lists there; `see`: see all; `change`: change all")
        .live("`none`, or where no table has `control`: the rights that the control address gives",
            "the client's rights at the control server; see `docs/control-access.md`"),
    client("read_only", Switch(|rule, is| rule.read_only = is))
        .live("false", "whether the client may only read"),
    client("max_connections", Number(1, 1 << 20, |rule, most| rule.max_connections = Some(most as u32)))
        .live("those of the server", "limit on the connections of this client"),
];

/// Why a client cannot be known by its certificate; `verifies`: clients are asked for one. (Places of control ask for themselves.)
pub(crate) fn why_unverified(rule: &Rule, verifies: bool) -> Option<&'static str> {
    let is_unknown = !verifies && rule.control.is_none() && rule.certificate.is_some();
    is_unknown.then_some("needs tls_verify_peer = true: no client is asked for a certificate")
}

/// The number that the kernel takes for no user.
const NO_ID: u64 = u32::MAX as u64;

pub(crate) const SERVER: Sort = Sort {
    name: "server",
    header: "[server]",
    says: "The server: addresses for clients, and limits on their requests and memory.",
    rows: || all(SERVER_ROWS),
};

/// Said of a list of addresses that has none.
const NO_ADDRESS: Option<&str> = Some("lists no address; leave the key out for the default socket");

pub(crate) const SERVER_ROWS: &[Row<Server>] = &[
    server("listen", List(NO_ADDRESS, |server, text, place| parse_place(text).map(|value| server.listen.push(Placed { value, place }))))
        .takes("`unix:PATH[,mode=0660][,owner=NAME][,group=NAME]`, `tcp:HOST:PORT`, or a list of them; `,tls=…` after an address overrides `tls` for it")
        .fixed("`unix:` in the run directory", "the addresses for clients"),
    server("control", List(NO_ADDRESS, |server, text, place| parse_control(text).map(|value| server.control.push(Placed { value, place }))))
        .takes("`unix:PATH[,mode=0660][,owner=NAME][,group=NAME][,read_only]`, `tcp:HOST:PORT,token=FILE`, `tcp:HOST:PORT,certificates=DIR`, `off`, or a list of places")
        .fixed("beside the first unix socket",
            "the addresses of the control server, which shows and changes the running server, and the clients it lets in; see `docs/control-access.md`"),
    server("tls", Text(|server, text| parse_tls(text).map(|tls| server.tls = Some(tls))))
        .takes("`off`, `on` (if the client asks), `require`")
        .fixed("`off`", "whether traffic is encrypted"),
    server("tls_certificates", Text(|server, text| Ok(text.into()).map(|path| server.tls_certificates = Some(path))))
        .takes("a directory")
        .fixed("none",
            "the directory with `server-cert.pem`, `server-key.pem` and, to verify clients, `ca-cert.pem` and, for revoked certificates, `ca-crl.pem`"),
    server("tls_verify_peer", Switch(|server, is| server.tls_verify_peer = is))
        .fixed("false", "whether clients need a certificate signed by `ca-cert.pem`"),
    server("insecure", Switch(|server, is| server.insecure = is))
        .fixed("false", "whether to listen on addresses that other machines can reach, even without TLS"),
    server("workers", Number(1, 64, |server, number| server.workers = Some(number as usize)))
        .takes("1 to 64, at most `memory` / `request_max`")
        .fixed("one per CPU, as far as `memory` allows", "the number of worker threads"),
    server("engine", Text(|server, text| parse_engine(text).map(|engine| server.engine = Some(engine))))
        .takes("`\"auto\"`, `\"io_uring\"` or `\"poll\"`")
        .fixed("`\"auto\"`: io_uring, or `poll` where it is refused",
            "the kernel interface of the workers: io_uring, or epoll and threads, which cost more CPU and work in containers that refuse io_uring"),
    server("max_connections", Number(1, 1 << 20, |server, number| server.limits.connections = number as u32))
        .fixed("4096", "limit on connections, all addresses together"),
    server("handshake_timeout", Time(|server, time| server.limits.handshake_timeout = time))
        .fixed("10s", "time limit for a step of a client's handshake; six times that for all of it"),
    server("handshake_failures", Number(0, 1 << 20, |server, number| server.limits.handshake_failures = number as u32))
        .fixed("10",
            "limit on handshakes a second from one address (IPv4, a /64 of IPv6, a user at a unix socket) that fail; ten seconds' worth may come at once; 0 is no limit"),
    server("handshake_clients", Number(1, 1 << 20, |server, number| server.limits.handshake_clients = number as u32))
        .fixed("1024",
            "limit on clients of one address that are in their handshake; at most half of `max_connections`"),
    // A client may send requests behind its last option, and as many are looked at as one buffer holds.
    server("handshake_bytes", Other(|server, given| size_from(512, given).map(|size| server.limits.handshake_bytes = size)))
        .takes("512k to 1g")
        .fixed("1m", "limit on the bytes that a client sends before it has opened an export"),
    server("request_max", Other(|server, given| size_from(64, given).map(|size| server.limits.request_max = size as u32)))
        .takes("64k to 1g")
        .fixed("32m", "the largest read or write"),
    server("connection_requests", Number(1, 480, |server, number| server.limits.connection_requests = number as u32))
        .fixed("128", "limit on the requests of one connection that have no reply yet"),
    server("connection_memory", Other(|server, given| given.size().map(|size| server.limits.connection_memory = size)))
        .takes("a size, at least `request_max`")
        .fixed("64m", "limit on the payload of these requests"),
    server("memory", Other(|server, given| given.size().map(|size| server.limits.memory = size)))
        .takes("a size, at least `connection_memory`")
        .fixed("512m", "limit on the payload of all connections together"),
    server("roots", List(Some("lists no directory; leave the key out to serve files from anywhere"), |server, text, place| parse_root(text).map(|value| server.roots.push(Placed { value, place }))))
        .takes("a directory, or a list of them")
        .fixed("anywhere",
            "the directories that must contain the files of all backings, also of exports that are added later; no symbolic link leads out of them"),
    server("seccomp", Switch(|server, is| server.seccomp = Some(is)))
        .fixed("true",
            "whether to install a filter of system calls once the server has started; false is for debugging"),
    server("keep_capabilities", List(None, |server, text, _| text.parse().map(|one| server.keep_capabilities.push(one))))
        .takes("the name of a capability, such as `CAP_DAC_OVERRIDE`, or a list of them")
        .fixed("none",
            "the capabilities to keep once the server has started; it drops all others; see `docs/do/confine.md`"),
    server("learned", Text(|server, text| Ok(text.into()).map(|path| server.learned = Some(path))))
        .takes("a path, best in the run directory")
        .fixed("none; systemd keeps it where its unit says `FileDescriptorStoreMax=1`",
            "the file to which the server writes, every second, its model of each disk and the debts of groups to their limits, for the server that is started after a crash; created if it is missing"),
    server("gateway", Text(|server, text| check_gateway(text).map(|()| server.gateway = Some(text.into()))))
        .takes("a name of letters, digits, `-`, `_` and `.`")
        .fixed("the host's name", "the server's name among the gateways of one pool (`shares` of a disk)"),
    server("drain_timeout", Other(|server, given| given.time().map(|time| server.limits.drain_timeout = time)))
        .takes("a time")
        .fixed("10s", "the time that a stopping server gives clients to read their replies"),
    server("helpers", Number(2, 256, |server, number| server.limits.helpers = number as u32))
        .fixed("32",
            "limit on threads, all disks together, that wait for files which the kernel cannot read asynchronously; see `docs/files-threads.md`"),
];

/// All tables, in the order in which they are explained.
pub(crate) const SORTS: [Sort; 5] = [EXPORT, DISK, GROUP, CLIENT, SERVER];

/// A row's beginning, which says what it is a key of.
macro_rules! rows_of {
    ($($begin:ident: $of:ty,)*) => {
        $(const fn $begin(name: &'static str, put: Put<$of>) -> Row<$of> {
            Row::new(name, put)
        })*
    };
}

rows_of! {
    export: ExportKeys,
    disk: Disk,
    group: GroupKeys,
    client: Rule,
    server: Server,
}

/// A size of so many KiB or more, up to 1 GiB.
fn size_from(kib: u64, given: &Given) -> Result<u64, String> {
    let bytes = Some(given.size()?).filter(|bytes| (kib << 10..=1 << 30).contains(bytes));
    bytes.ok_or_else(|| format!("takes a size from {kib}k to 1g, not {}", given.show()))
}

fn parse_root(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("takes a directory, not \"\"".into()) } else { Ok(text.into()) }
}

fn parse_priority(text: &str) -> Result<Priority, String> {
    text.parse().map_err(|form| format!("{form}, not {text:?}"))
}

fn parse_description(text: &str) -> Result<String, String> {
    if text.len() > DESCRIPTION_MAX { Err(format!("takes at most {DESCRIPTION_MAX} bytes")) } else { Ok(text.into()) }
}

fn parse_faults(text: &str) -> Result<(PathBuf, Faults), String> {
    let path = PathBuf::from(text);
    check_path(&path)?;
    read_file(&path).map(|faults| (path, faults))
}

fn fix_concurrency(disk: &mut Disk, number: Option<u64>) {
    if let Some(number) = number {
        disk.concurrency = concurrency::Settings { most: number as u16, fixed: true };
    }
}

fn bound_concurrency(disk: &mut Disk, most: u64) {
    if !disk.concurrency.fixed {
        disk.concurrency.most = most as u16;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fairlift::config::Ways;
    use serde_json::{Value, json};
    use toml::de::DeTable;

    use super::super::row::KINDS;
    use super::*;

    /// A row's result for a value in the file and in JSON.
    fn both<T>(rows: &[Row<T>], new: impl Fn() -> T, show: impl Fn(&T) -> String, key: &str, toml: &str, json: &Value) {
        let row = rows.iter().find(|row| row.name == key).unwrap();
        let document = format!("it = {toml}");
        let table = DeTable::parse(&document).unwrap();
        let [mut file, mut of_client] = [new(), new()];
        row.put(&mut file, &table.get_ref()["it"].get_ref().into()).unwrap();
        row.put(&mut of_client, &json.into()).unwrap();
        assert_eq!(show(&file), show(&of_client), "{key}");
        assert_ne!(show(&file), show(&new()), "{key} is put nowhere");
    }

    #[test]
    fn a_key_means_the_same_in_the_file_and_in_json() {
        let disk = |key, toml, json| {
            both(DISK_ROWS, || Disk::new("d", sched::Kind::None), |disk| format!("{disk:?}"), key, toml, &json);
        };
        disk("scheduler", "\"bfq\"", json!("bfq"));
        disk("depth", "64", json!("64"));
        disk("shared_tags", "true", json!("on"));
        disk("nr_requests", "70", json!(70));
        disk("io_timeout", "\"2s\"", json!("2000ms"));
        disk("concurrency", "8", json!(8));
        disk("concurrency_max", "8", json!(8));
        disk("shares", "\"dir:/srv/pool\"", json!("dir:/srv/pool"));
        let new = GroupKeys::default;
        let group = |key, toml, json| {
            both(GROUP_ROWS, new, |group| format!("{} {:?}", group.weight, group.bounds), key, toml, &json);
        };
        group("weight", "300", json!("300"));
        group("max", "{ riops = 3000, wbps = \"50m\" }", json!("riops=3000 wbps=50m"));
        group("burst", "\"riops=9 seconds=5\"", json!({"riops": 9, "seconds": "5"}));
        group("min", "{ iops = 7 }", json!({"iops": 7}));
        group("latency", "\"2ms\"", json!("2ms"));
        let export = |key, toml, json| {
            both(EXPORT_ROWS, || ExportKeys::new("a"), |export| format!("{:?}", export.settings), key, toml, &json);
        };
        export("backing", "\"mem:1m\"", json!("mem:1m"));
        export("offset", "512", json!("512"));
        export("size", "\"1m\"", json!(1 << 20));
        export("ioprio", "\"rt/2\"", json!("rt/2"));
        let way = |key, toml, json| both(ways::ROWS, Ways::default, |ways| format!("{ways:?}"), key, toml, &json);
        let client = |key, toml, json| both(CLIENT_ROWS, Rule::default, |rule| format!("{rule:?}"), key, toml, &json);
        client("uid", "1001", json!("1001"));
        client("address", "\"10.0.0.0/8\"", json!("10.0.0.0/8"));
        client("exports", "[\"a\", \"b\"]", json!("a,b"));
        client("exports", "\"a,b\"", json!(["a,b"]));
        client("control", "\"see\"", json!("see"));
        way("vhost_user", "\"/run/a\"", json!("/run/a"));
        way("ublk", "{ queues = 2, recover = false }", json!({"queues": 2, "recover": false}));
    }

    #[test]
    fn the_keys_that_can_be_set_of_an_export_are_those_that_a_server_can_change() {
        let settable = keys(Kind::Export, Act::Set).into_iter().map(|key| key.name).collect::<BTreeSet<_>>();
        assert_eq!(settable, fairlift::control::live_keys_of_exports().collect());
    }

    #[test]
    fn every_key_that_can_be_asked_for_has_its_type() {
        let acts = |kind| [Act::Add, Act::Set].map(|act| keys(kind, act));
        let all = KINDS.iter().flat_map(|(_, kind)| acts(*kind)).flatten().chain(SORTS.iter().flat_map(Sort::keys));
        for key in all {
            assert!(key.schema.as_object().is_some_and(|schema| !schema.is_empty()), "{}", key.name);
            assert!(!key.says.is_empty() && !key.takes.is_empty() && !key.default.is_empty(), "{}", key.name);
        }
    }
}
