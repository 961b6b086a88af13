//! What to serve, where, and with which weights: the plain data that a [`Server`](crate::Server) is made from.
//!
//! Where it comes from (a TOML file, flags, a program) is the caller's business.

mod copy_on_write;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use fairlift_core::ceiling::Bounds;
use fairlift_core::learn::concurrency;
use fairlift_core::{Duration, Group, GroupId, Priority, sched};

pub use crate::device::backing::Outside;
pub use crate::device::roots::Root;
pub use crate::device::said::*;
pub use crate::kernel::ring::Engine;
pub use copy_on_write::CopyOnWrite;

/// All that a [`Server`](crate::Server) needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The weight tree; the first is the root, and a parent comes before its children.
    pub groups: CopyOnWrite<Vec<Group>>,
    /// What groups may do at most in a second, by their paths; each binds all that is below it, on all disks together.
    pub bounds: CopyOnWrite<BTreeMap<String, Bounds>>,
    /// The scheduling domains.
    pub disks: CopyOnWrite<Vec<Disk>>,
    /// What the disks are like that [`Export::disk`] does not name; their names are made up.
    pub disk_default: Disk,
    /// What clients can connect to; at least one.
    pub exports: CopyOnWrite<Vec<Export>>,
    /// Where clients connect; at least one.
    pub listeners: Vec<Listener>,
    /// How many worker threads; `None`: one for each CPU that the process may use, but no more than
    /// have room for [`Limits::request_max`] bytes of [`Limits::memory`] each.
    pub workers: Option<usize>,
    /// What they give the kernel their work through.
    pub engine: Engine,
    /// Bounds on what clients may ask and hold.
    pub limits: Limits,
    /// The server's certificate and the authorities that it trusts; needed where a listener's [`Tls`] is not `Off`.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The directories that the files of all backings must lie in, of exports that are added later as well; none: they may lie
    /// anywhere.
    pub roots: Vec<Root>,
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
        }
    }
}

/// What a client connects to: a backing, or a range of one, under a name, in a group.
#[derive(Clone, Debug)]
pub struct Export {
    /// The name that clients ask for; may be empty.
    pub name: String,
    /// What it is, for people; shown by `nbdinfo --list`. Empty: nothing is said.
    pub description: String,
    /// What holds the data.
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
    /// A socket at which the front-end of a virtual machine (QEMU) finds it as a vhost-user block device; `None`: nowhere.
    pub vhost_user: Option<PathBuf>,
    /// Whether it is a block device of this machine (ublk), and what that is like; `None`: it is none.
    pub ublk: Option<Ublk>,
}

/// An export as a block device of this machine, `/dev/ublkb0`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ublk {
    /// Its number; `None`: the kernel chooses, or it is the one that a server before had for this export.
    pub id: Option<u32>,
    /// How many queues, 1 to 64; `None`: one for each worker. The kernel makes no more than it has CPUs.
    pub queues: Option<u16>,
    /// How many requests each queue may have, 1 to 4096; `None`: 128.
    pub depth: Option<u16>,
    /// Whether it is made without `CAP_SYS_ADMIN`, where a udev rule lets this user: such a device does not outlive its server, and no
    /// partitions are looked for on it.
    pub unprivileged: bool,
    /// Whether it outlives a server that is killed, and waits for the next one. What is in RAM never does.
    pub recover: bool,
    /// Whether it is left to the next server when this one ends in order, too.
    pub leave: bool,
    /// Whether the device of that [`id`](Self::id) is taken over whichever export it was.
    pub adopt: bool,
    /// Whether the server goes on, with a warning, where the device cannot be had.
    pub optional: bool,
    /// Whether the kernel looks for partitions when the device starts.
    pub partitions: bool,
}

impl Default for Ublk {
    fn default() -> Self {
        let (id, queues, depth, unprivileged, leave, adopt, optional) = Default::default();
        Self { id, queues, depth, unprivileged, recover: true, leave, adopt, optional, partitions: true }
    }
}

impl Ublk {
    /// Whether it can be as it is said.
    ///
    /// # Errors
    /// What is asked, and what is possible.
    pub fn check(&self) -> Result<(), String> {
        if self.queues.is_some_and(|queues| !(1..=64).contains(&queues)) {
            return Err(format!("ublk: queues takes a number from 1 to 64, not {}", self.queues.unwrap_or(0)));
        }
        if self.depth.is_some_and(|depth| !(1..=4096).contains(&depth)) {
            return Err(format!("ublk: depth takes a number from 1 to 4096, not {}", self.depth.unwrap_or(0)));
        }
        if self.id.is_some_and(|id| id >= 1 << 20) {
            return Err(format!("ublk: id takes a number from 0 to {}, not {}", (1 << 20) - 1, self.id.unwrap_or(0)));
        }
        if self.leave && !self.recover {
            return Err(
                "ublk: leave needs recover: a device that does not outlive its server cannot be left to the next"
                    .into(),
            );
        }
        if self.leave && self.unprivileged {
            return Err("ublk: the kernel leaves no unprivileged device to another server: leave cannot be".into());
        }
        if self.adopt && self.id.is_none() {
            return Err("ublk: adopt needs id: which device is meant".into());
        }
        Ok(())
    }
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
            vhost_user: None,
            ublk: None,
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
}

/// A place to listen at.
#[derive(Clone, Debug)]
pub enum Address {
    /// A unix socket, created with mode 0600; a stale socket file is replaced, a live one is not.
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
            Self::Inherited(fd) => write!(f, "socket {} from the service manager", fd.as_raw_fd()),
        }
    }
}

/// Whether traffic is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Tls {
    /// Never; `STARTTLS` is refused.
    #[default]
    Off,
    /// If the client asks.
    Optional,
    /// Always; nothing is told before.
    Required,
}

/// Bounds on what clients may ask and hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at once, all listeners together.
    pub connections: u32,
    /// How long a client may take from one option of its negotiation to the next; six times that for all of it.
    pub handshake_timeout: Duration,
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
    /// The kernel has threads of its own for what io_uring cannot do at once (flushes, holes, files that grow): each
    /// worker's ring at most this by the number of workers, and at least 16, for files and block devices, and as many again
    /// for sockets and all else, which hardly need any.
    pub helpers: u32,
}

impl Default for Limits {
    fn default() -> Self {
        use fairlift_core::time::secs;
        Self {
            connections: 4096,
            handshake_timeout: secs(10),
            request_max: 32 << 20,
            connection_requests: 128,
            connection_memory: 64 << 20,
            memory: 512 << 20,
            drain_timeout: secs(10),
            helpers: 32,
        }
    }
}
