//! The configuration: exports, addresses and weights, the plain data that a [`Server`](crate::Server) is made from.
//!
//! Where it comes from (a TOML file, flags, a program) is the caller's business.

mod shares;
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use fairlift_core::ceiling::Bounds;
use fairlift_core::learn::concurrency;
use fairlift_core::{Duration, Group, GroupId, Priority, sched};
use serde::{Deserialize, Serialize};

pub use crate::device::backing::{Opaque, Outside};
pub use crate::device::kinds::*;
pub use crate::device::roots::Root;
pub use crate::kernel::ring::Engine;
pub use shares::{RadosAt, Shares, SharesAt, check_gateway};
pub use ways::{WayIn, Ways};

/// All that a [`Server`](crate::Server) needs to know. Copies share what is in an [`Arc`], until one of them changes it ([`Arc::make_mut`]).
#[derive(Clone, Debug)]
pub struct Config {
    /// The weight tree; the first is the root, and a parent comes before its children.
    pub groups: Arc<Vec<Group>>,
    /// The ceilings of groups, by their paths; each binds all groups below, on all disks together.
    pub bounds: Arc<BTreeMap<String, Bounds>>,
    /// The scheduling domains.
    pub disks: Arc<Vec<Disk>>,
    /// The settings of disks that [`Export::disk`] does not name; their names are made up.
    pub disk_default: Disk,
    /// The exports; at least one.
    pub exports: Arc<Vec<Export>>,
    /// Where clients connect; at least one.
    pub listeners: Vec<Listener>,
    /// How many worker threads; `None`: one for each CPU that the process may use, but no more than
    /// have room for [`Limits::request_max`] bytes of [`Limits::memory`] each.
    pub workers: Option<usize>,
    /// The kernel interface of the workers.
    pub engine: Engine,
    /// Bounds on the requests and resources of clients.
    pub limits: Limits,
    /// The server's certificate and the authorities that it trusts; needed where a listener's [`Tls`] is not `Off`.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Which clients may open which exports; none: every client may open all of them.
    pub clients: Vec<crate::access::Rule>,
    /// Certificates of clients that are let in no more; whom [`tls`](Self::tls) lets in is its own affair.
    pub revoked: Arc<crate::access::Revoked>,
    /// The keys of groups that a [tenant](crate::access::Control::Tenant) may change, by the path of the group; those below it have them too.
    pub delegated: BTreeMap<String, BTreeSet<String>>,
    /// The directories that the files of all backings must lie in, of exports that are added later as well; none: they may lie
    /// anywhere.
    pub roots: Vec<Root>,
}

/// Nothing to serve, nowhere: one group, no limits, all clients are let in, and disks that no [`Disk`] says more of have mq-deadline.
impl Default for Config {
    fn default() -> Self {
        Self {
            groups: vec![Group::root()].into(),
            bounds: Default::default(),
            disks: Default::default(),
            disk_default: Disk::new("default", sched::Kind::MqDeadline),
            exports: Default::default(),
            listeners: Vec::new(),
            workers: None,
            engine: Engine::default(),
            limits: Limits::default(),
            tls: None,
            clients: Vec::new(),
            revoked: Default::default(),
            delegated: BTreeMap::new(),
            roots: Vec::new(),
        }
    }
}

impl Config {
    /// Whether an export is a block device of this machine.
    #[must_use]
    pub fn has_block_devices(&self) -> bool {
        self.exports.iter().any(|export| export.ways.iter().any(WayIn::is_block_device))
    }

    /// The group of an export.
    #[must_use]
    pub fn group(&self, export: &Export) -> &Group {
        &self.groups[usize::from(export.group.0)]
    }
}

/// A scheduling domain: one device, one queue.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its name in the config, logs and statistics.
    pub name: String,
    /// Which scheduler.
    pub scheduler: sched::Kind,
    /// Whether nobody named it: then it is the one that suits the disk and the tenants on it, and becomes another when a second tenant
    /// comes ([`settle`](crate::control::settle)).
    pub is_usual: bool,
    /// The scheduler's tunables that differ from their defaults, as (name, value); already checked by the caller with
    /// `Tune::set`.
    pub set: Vec<(String, String)>,
    /// Requests in flight; `None`: 128, or twice the most of [`concurrency`](Self::concurrency) where helper threads must
    /// wait for a file on it: what waits behind them is then still in the scheduler's hands.
    pub depth: Option<u16>,
    /// Whether the workers share those `depth` requests where each has a queue of its own (scheduler `none`); else each
    /// may have as many in flight. Where a scheduler decides for all, it has `depth` for all.
    pub shared_tags: bool,
    /// Requests that may wait and be in flight, for each hardware context or shared; `None`: what suits the scheduler
    /// ([`sched::Kind::nr_requests`](fairlift_core::sched::Kind::nr_requests)).
    pub nr_requests: Option<u32>,
    /// How long a request may be in the device; `None`: 30 s.
    pub io_timeout: Option<Duration>,
    /// How many requests at once are given to files that helper threads must wait for; never more than half of
    /// [`Limits::helpers`].
    pub concurrency: concurrency::Settings,
    /// Where it meets the same disk of other gateways; `None`: this server alone serves it.
    pub shares: Option<Shares>,
}

impl Disk {
    /// A disk with this scheduler, and the defaults for all else.
    #[must_use]
    pub fn new(name: impl Into<String>, scheduler: sched::Kind) -> Self {
        Self {
            name: name.into(),
            scheduler,
            is_usual: false,
            set: Vec::new(),
            depth: None,
            shared_tags: false,
            nr_requests: None,
            io_timeout: None,
            concurrency: concurrency::Settings::default(),
            shares: None,
        }
    }
}

/// An export: a backing, or a range of one, under a name, in a group.
#[derive(Clone, Debug)]
pub struct Export {
    /// The name that clients ask for; may be empty.
    pub name: String,
    /// A description for people; shown by `nbdinfo --list`. Empty: nothing is said.
    pub description: String,
    /// The backing.
    pub backing: Backing,
    /// Where in the backing it starts, in bytes; a multiple of 512.
    pub offset: u64,
    /// How many bytes of the backing it shows, a multiple of 512; `None`: all from `offset` on.
    pub size: Option<u64>,
    /// The index in [`Config::disks`]; `None`: the disk that its backing suggests, one for each file system or device.
    pub disk: Option<usize>,
    /// The group that is charged.
    pub group: GroupId,
    /// The priority of its clients within the group.
    pub priority: Priority,
    /// Whether clients may only read.
    pub read_only: bool,
    /// How clients reach it beside the [`listeners`](Config::listeners).
    pub ways: Ways,
}

impl Export {
    /// All of a backing, for reading and writing, in the root group, on the disk that the backing suggests.
    #[must_use]
    pub fn new(name: impl Into<String>, backing: impl Into<Backing>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            backing: backing.into(),
            offset: 0,
            size: None,
            disk: None,
            group: GroupId::ROOT,
            priority: Priority::default(),
            read_only: false,
            ways: Ways::default(),
        }
    }
}

/// Where clients connect.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The place.
    pub address: Address,
    /// Whether traffic is encrypted.
    pub tls: Tls,
    /// The permissions of a unix socket.
    pub socket: SocketMode,
}

impl Listener {
    /// A place; a unix socket has the usual mode.
    #[must_use]
    pub fn new(address: Address, tls: Tls) -> Self {
        Self { address, tls, socket: SocketMode::default() }
    }

    /// The same as it came to be, by its name then: with port 0 the kernel chose one.
    pub(crate) fn bound(self, name: &str) -> Self {
        match (&self.address, name.strip_prefix("tcp:").and_then(|address| address.parse().ok())) {
            (Address::Tcp(_), Some(chosen)) => Self { address: Address::Tcp(chosen), ..self },
            _ => self,
        }
    }
}

/// The permissions of a unix socket, which its file has before clients can connect. At other addresses it
/// means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketMode {
    /// The permission bits; a process with the right to write may connect.
    pub mode: u32,
    /// A user; `None`: the server's.
    pub owner: Option<u32>,
    /// A group; `None`: the server's.
    pub group: Option<u32>,
}

impl Default for SocketMode {
    /// 0600: for the server's own user and root.
    fn default() -> Self {
        Self { mode: 0o600, owner: None, group: None }
    }
}

/// As it is written behind the path, in numbers: nothing, if it is the usual one.
impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, owner, group } = self;
        let mode = Some(mode).filter(|mode| **mode != Self::default().mode);
        mode.map_or(Ok(()), |mode| write!(f, ",mode={mode:04o}"))?;
        owner.map_or(Ok(()), |uid| write!(f, ",owner={uid}"))?;
        group.map_or(Ok(()), |gid| write!(f, ",group={gid}"))
    }
}

/// A place to listen at.
#[derive(Clone, Debug)]
pub enum Address {
    /// A unix socket; a stale socket file is replaced, a live one is not.
    Unix(PathBuf),
    /// A TCP address. The caller has refused a non-loopback one without TLS.
    Tcp(SocketAddr),
    /// A listening socket that another process made (socket activation).
    Inherited(Arc<std::os::fd::OwnedFd>),
}

/// As a client would write it.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Inherited(fd) => match bound(fd) {
                Some(bound) => bound.fmt(f),
                None => write!(f, "socket {} from the service manager", fd.as_raw_fd()),
            },
        }
    }
}

/// Where a socket listens; `None`: at no path or port.
fn bound(socket: &std::os::fd::OwnedFd) -> Option<Address> {
    let bound = rustix::net::getsockname(socket).ok()?;
    if let Ok(tcp) = SocketAddr::try_from(bound.clone()) {
        return Some(Address::Tcp(tcp));
    }
    let unix = rustix::net::SocketAddrUnix::try_from(bound).ok()?;
    Some(Address::Unix(PathBuf::from(std::ffi::OsStr::from_bytes(unix.path_bytes()?))))
}

/// Whether traffic is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tls {
    /// Never; `STARTTLS` is refused.
    #[default]
    Off,
    /// If the client asks.
    Optional,
    /// Always; nothing is told before.
    Required,
}

/// Bounds on the requests and resources of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at once, all listeners together.
    pub connections: u32,
    /// How long a client may take from one option of its negotiation to the next; six times that for all of it.
    pub handshake_timeout: Duration,
    /// Clients a second of one address whose negotiation fails, ten seconds' worth at once; beyond, those of the address are
    /// turned away. 0: any number.
    pub handshake_failures: u32,
    /// Clients of one address that negotiate at once; at most half of `connections`.
    pub handshake_clients: u32,
    /// Bytes that a client may send before it has chosen an export.
    pub handshake_bytes: u64,
    /// The largest read or write, 512 bytes to 1 GiB: what is advertised as maximum block size.
    pub request_max: u32,
    /// Requests that one connection may have under way, 1 to 480: their replies fit one message, which the kernel takes in
    /// up to 1024 pieces.
    pub connection_requests: u32,
    /// Payload bytes that one connection may have under way; at least `request_max`.
    pub connection_memory: u64,
    /// Payload bytes of all connections together.
    pub memory: u64,
    /// How long a stopping server waits for clients to take their replies.
    pub drain_timeout: Duration,
    /// Threads that wait for files which cannot be asked without waiting, 1 to 256, for all disks together; 1 is taken as 2,
    /// for one disk that hangs would take it.
    ///
    /// The kernel has threads of its own for work that io_uring cannot do at once (flushes, holes, files that grow): each worker's ring at
    /// most this by the number of workers, and at least 16, for files and block devices, and as many again for sockets and all else, which
    /// hardly need any.
    pub helpers: u32,
}

impl Default for Limits {
    fn default() -> Self {
        use fairlift_core::time::secs;
        Self {
            connections: 4096,
            handshake_timeout: secs(10),
            handshake_failures: 10,
            handshake_clients: 1024,
            handshake_bytes: 1 << 20,
            request_max: 32 << 20,
            connection_requests: 128,
            connection_memory: 64 << 20,
            memory: 512 << 20,
            drain_timeout: secs(10),
            helpers: 32,
        }
    }
}
