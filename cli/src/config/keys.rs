//! One row per key of the config file.
//!
//! From those rows come the refusal of unknown keys, the suggestions, and the tables of `docs/config.md`.

/// What can be said of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    /// As it is written.
    pub(crate) name: &'static str,
    /// What values it takes.
    pub(crate) takes: &'static str,
    /// What holds where it is not written.
    pub(crate) default: &'static str,
    /// What it does, in a phrase.
    pub(crate) says: &'static str,
}

/// A sort of table in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sort {
    /// Its first word.
    pub(crate) name: &'static str,
    /// How its header is written.
    pub(crate) header: &'static str,
    /// What it describes.
    pub(crate) says: &'static str,
    /// What may be in it.
    pub(crate) keys: &'static [Key],
}

const fn key(name: &'static str, takes: &'static str, default: &'static str, says: &'static str) -> Key {
    Key { name, takes, default, says }
}

/// What clients connect to.
pub(crate) const EXPORT: Sort = Sort {
    name: "export",
    header: "[export.NAME]",
    says: "An export is what clients connect to: a backing, or a range of one, under a name. A single export also answers to the empty name.",
    keys: &[
        key(
            "backing",
            "`null:SIZE[,delay=TIME]`, `mem:SIZE`, `file:PATH[,direct=auto\\|on\\|off][,in_use=allow]`, `sim:PROFILE[,size=SIZE]`, `nbd:URI[,reconnect=TIME][,connections=NUMBER][,tls=DIR]`, `rbd:POOL/IMAGE[@SNAPSHOT][,user=USER][,conf=PATH][,namespace=NAME][,timeout=TIME]`, `fault:RULES,inner=BACKING`, or a path",
            "required",
            "the file, device, RAM, model, other server or Ceph image that holds the data; a block device that is mounted or held by another program is refused without `in_use=allow`",
        ),
        key("offset", "a size, a multiple of 512", "0", "where in the backing the export starts"),
        key("size", "a size, a multiple of 512", "up to the end", "how much of the backing it shows"),
        key(
            "disk",
            "the name of a `[disk.…]`",
            "one disk per device or file system",
            "the scheduling domain of the export; exports with the same `sim:` text on one disk share one modelled disk, as exports of one file do",
        ),
        key(
            "group",
            "a path from the root, as in `\"/tenants/alice\"`",
            "`/NAME`, a group of its own",
            "the group whose share its clients use",
        ),
        key(
            "ioprio",
            "`rt/0` to `rt/7`, `be/0` to `be/7`, `idle`",
            "`be/4`",
            "the I/O priority of its clients within the group",
        ),
        key("read_only", "true or false", "false", "whether clients may only read"),
        key(
            "vhost_user",
            "a path",
            "`--vhost-user` DIR with the export's name, else none",
            "a socket at which a virtual machine finds the export as a vhost-user block device",
        ),
        key(
            "ublk",
            "true, false, or a table of `id`, `queues`, `depth`, `unprivileged`, `recover`, `leave`, `optional`, `partitions`",
            "`--ublk`, else false",
            "whether the export is a block device of this machine, /dev/ublkbN; see `docs/ublk.md`",
        ),
        key("description", "text", "none", "a text for people; `nbdinfo --list` shows it"),
    ],
};

/// Scheduling domains.
pub(crate) const DISK: Sort = Sort {
    name: "disk",
    header: "[disk.NAME]",
    says: "A disk is a scheduling domain: the exports that share one physical device, and the one queue that arbitrates among them.",
    keys: &[
        key(
            "scheduler",
            "the name of a scheduler; see `fairlift tunables`",
            "`--scheduler`, else `fair` where exports of several groups are on it (`bfq` if it rotates), else `mq-deadline` until a second group comes",
            "the scheduler: it decides which request is served next",
        ),
        key("set", "a table of tunables; see `docs/tunables.md`", "the scheduler's own", "tunables of the scheduler"),
        key("depth", "1 to 4096", "128", "limit on requests in flight in the device"),
        key(
            "shared_tags",
            "true or false",
            "false",
            "with scheduler `none`: true: the workers share `depth`, and each is assured a part; false: each worker has a `depth` of its own",
        ),
        key(
            "nr_requests",
            "1 to 1048576, at least `depth`",
            "twice the depth; with `fair`, `bfq` and `cfq` at least 4096",
            "limit on requests that wait or are in flight; weights decide among these only",
        ),
        key("io_timeout", "a time, above zero", "30s", "time limit for a request in the device"),
        key(
            "concurrency",
            "`auto`, or 1 to 256",
            "`auto`: learned while it runs",
            "limit on concurrent requests to a file that helper threads have to wait for (squashfs, FUSE, network file systems)",
        ),
        key("concurrency_max", "1 to 256", "16", "limit on what `auto` tries; at most half of `helpers`"),
    ],
};

/// Weights and limits.
pub(crate) const GROUP: Sort = Sort {
    name: "group",
    header: "[group.\"/PATH\"]",
    says: "A group is a node of the weight tree. Its limits bind all below it, on all disks together. A group that an export names needs no table of its own; it and its parents then have the default weight.",
    keys: &[
        key("weight", "1 to 1000", "100", "the group's share relative to its siblings"),
        key(
            "max",
            "a table of `rbps`, `wbps`, `riops`, `wiops`, `bps`, `iops`, or text such as `\"riops=3000 wbps=50m\"`",
            "no limit",
            "the most that the group may do in a second, whatever is idle; see `docs/limits.md`",
        ),
        key(
            "min",
            "as `max`",
            "none",
            "the least that the group gets in a second while it asks for it, as far as the disk can; needs the scheduler `fair`",
        ),
        key(
            "burst",
            "as `max`, with `seconds`",
            "no bursts; `seconds`: 1",
            "what the group may do for so many seconds after it did less than `max` for long enough",
        ),
        key(
            "latency",
            "a time, above zero, or `none`",
            "`none`",
            "how long 99 of 100 reads and writes of the group take at most: others make room for that; needs the scheduler `fair`; see `docs/limits.md`",
        ),
    ],
};

/// The server itself.
pub(crate) const SERVER: Sort = Sort {
    name: "server",
    header: "[server]",
    says: "The server: addresses for clients, and limits on what clients may ask for and hold.",
    keys: &[
        key(
            "listen",
            "`unix:PATH`, `tcp:HOST:PORT`, or a list of them; `,tls=…` after an address overrides `tls` for it",
            "`unix:` in the run directory",
            "the addresses for clients",
        ),
        key(
            "control",
            "`unix:PATH[,mode=0660][,owner=NAME][,group=NAME][,read_only]`, `tcp:HOST:PORT,token=FILE`, `tcp:HOST:PORT,certificates=DIR`, `off`, or a list of places",
            "beside the first unix socket",
            "where the server is looked at and changed while it runs, and who may; see `docs/control.md`",
        ),
        key("tls", "`off`, `on` (if the client asks), `require`", "`off`", "whether traffic is encrypted"),
        key(
            "tls_certificates",
            "a directory",
            "none",
            "the directory with `server-cert.pem`, `server-key.pem` and, to verify clients, `ca-cert.pem`",
        ),
        key("tls_verify_peer", "true or false", "false", "whether clients need a certificate signed by `ca-cert.pem`"),
        key(
            "insecure",
            "true or false",
            "false",
            "whether to listen on addresses that other machines can reach, even without TLS",
        ),
        key(
            "workers",
            "1 to 64, at most `memory` / `request_max`",
            "one per CPU, as far as `memory` allows",
            "the number of worker threads",
        ),
        key(
            "engine",
            "`\"auto\"`, `\"io_uring\"` or `\"poll\"`",
            "`\"auto\"`: io_uring, or `poll` where it is refused",
            "what the workers use of the kernel: io_uring, or epoll and threads, which works in containers that refuse io_uring and costs more CPU",
        ),
        key("max_connections", "1 to 1048576", "4096", "limit on connections, all addresses together"),
        key(
            "handshake_timeout",
            "a time, above zero",
            "10s",
            "time limit for a step of a client's handshake; six times that for all of it",
        ),
        key("request_max", "64k to 1g", "32m", "the largest read or write"),
        key("connection_requests", "1 to 480", "128", "limit on requests of one connection that are under way"),
        key(
            "connection_memory",
            "a size, at least `request_max`",
            "64m",
            "limit on the payload of one connection that is under way",
        ),
        key(
            "memory",
            "a size, at least `connection_memory`",
            "512m",
            "limit on the payload of all connections together",
        ),
        key(
            "roots",
            "a directory, or a list of them",
            "anywhere",
            "the directories that the files of all backings must lie in, also of exports that are added later; no symbolic link leads out of them",
        ),
        key(
            "seccomp",
            "true or false",
            "true",
            "whether the server gives up the system calls that it does not need, once it has started; false is for debugging",
        ),
        key(
            "keep_capabilities",
            "the name of a capability, such as `CAP_DAC_OVERRIDE`, or a list of them",
            "none",
            "capabilities that are not given up once the server has started; see `docs/do/confine.md`",
        ),
        key("drain_timeout", "a time", "10s", "how long a stopping server waits for clients to read their replies"),
        key(
            "helpers",
            "2 to 256",
            "32",
            "limit on threads that wait for files, all disks together: files that the kernel cannot read asynchronously; see `docs/files.md`",
        ),
    ],
};

/// All tables, in the order in which they are explained.
pub(crate) const SORTS: [Sort; 4] = [EXPORT, DISK, GROUP, SERVER];
