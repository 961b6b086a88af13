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
    says: "What clients connect to: a backing, or a range of one, under a name. A single export also answers to the empty name.",
    keys: &[
        key(
            "backing",
            "`null:SIZE[,delay=TIME]`, `mem:SIZE`, `file:PATH[,direct=auto\\|on\\|off]`, `sim:PROFILE[,size=SIZE]`, or a path",
            "required",
            "what holds the data",
        ),
        key("offset", "a size, a multiple of 512", "0", "where in the backing the export starts"),
        key("size", "a size, a multiple of 512", "up to the end", "how much of the backing it shows"),
        key(
            "disk",
            "the name of a `[disk.…]`",
            "one disk per device or file system",
            "the scheduling domain it belongs to; there, exports of the same `sim:` are of one modelled disk, as exports of one file are",
        ),
        key("group", "a path from the root, as in `\"/tenants/alice\"`", "`\"/\"`", "who pays for its clients"),
        key(
            "ioprio",
            "`rt/0` to `rt/7`, `be/0` to `be/7`, `idle`",
            "`be/4`",
            "the priority of its clients within the group",
        ),
        key("read_only", "true or false", "false", "whether clients may only read"),
        key("description", "text", "none", "what it is, for people; `nbdinfo --list` shows it"),
    ],
};

/// Scheduling domains.
pub(crate) const DISK: Sort = Sort {
    name: "disk",
    header: "[disk.NAME]",
    says: "A scheduling domain: exports that share one physical device, and the one queue that arbitrates among them.",
    keys: &[
        key(
            "scheduler",
            "the name of a scheduler; see `fairlift tunables`",
            "`--scheduler`, else `fair` where exports of several groups are on it (`bfq` if it rotates), else `mq-deadline`",
            "who goes next",
        ),
        key("set", "a table of tunables; see `docs/tunables.md`", "the scheduler's", "the scheduler's tunables"),
        key("depth", "1 to 4096", "128", "requests in flight in the device"),
        key(
            "shared_tags",
            "true or false",
            "false",
            "with scheduler `none`: whether the workers share the `depth`, each assured its part, or have as many each",
        ),
        key(
            "nr_requests",
            "1 to 1048576, at least `depth`",
            "twice the depth; with `fair`, `bfq` and `cfq` at least 4096",
            "requests that may wait and be in flight; weights count among these only",
        ),
        key("io_timeout", "a time, above zero", "30s", "how long a request may be in the device"),
        key(
            "concurrency",
            "`auto`, or 1 to 256",
            "`auto`: learned while it runs",
            "how many requests at once are given to files that helper threads must wait for (squashfs, FUSE, network file systems)",
        ),
        key("concurrency_max", "1 to 256", "16", "the most that `auto` tries; no more than half of `helpers`"),
    ],
};

/// Weights.
pub(crate) const GROUP: Sort = Sort {
    name: "group",
    header: "[group.\"/PATH\"]",
    says: "A node of the weight tree. A group that an export names exists without being written here, and so do its parents, each with the default weight.",
    keys: &[key("weight", "1 to 1000", "100", "its share among its siblings")],
};

/// The server itself.
pub(crate) const SERVER: Sort = Sort {
    name: "server",
    header: "[server]",
    says: "Where clients connect, and bounds on what they may ask and hold.",
    keys: &[
        key(
            "listen",
            "`unix:PATH`, `tcp:HOST:PORT`, or a list of them; with `,tls=…` behind one, `tls` does not count there",
            "`unix:` in the run directory",
            "where clients connect",
        ),
        key("tls", "`off`, `on` (if the client asks), `require`", "`off`", "whether traffic is encrypted"),
        key(
            "tls_certificates",
            "a directory",
            "none",
            "holds `server-cert.pem`, `server-key.pem` and, to verify clients, `ca-cert.pem`",
        ),
        key("tls_verify_peer", "true or false", "false", "whether clients need a certificate signed by `ca-cert.pem`"),
        key(
            "insecure",
            "true or false",
            "false",
            "whether to listen beyond the loopback though traffic may be in plain text",
        ),
        key("workers", "1 to 64", "one per CPU", "worker threads"),
        key("max_connections", "1 to 1048576", "4096", "connections at once, all listeners together"),
        key("handshake_timeout", "a time, above zero", "10s", "how long a client may take to negotiate"),
        key("request_max", "64k to 1g", "32m", "the largest read or write"),
        key("connection_requests", "1 to 480", "128", "requests that one connection may have under way"),
        key(
            "connection_memory",
            "a size, at least `request_max`",
            "64m",
            "payload that one connection may have under way",
        ),
        key("memory", "a size, at least `connection_memory`", "512m", "payload of all connections together"),
        key("drain_timeout", "a time", "10s", "how long a stopping server waits for clients to take their replies"),
        key(
            "helpers",
            "2 to 256",
            "32",
            "threads that wait for files which cannot be asked without waiting, all disks together; see `docs/files.md`",
        ),
    ],
};

/// All tables, in the order in which they are explained.
pub(crate) const SORTS: [Sort; 4] = [EXPORT, DISK, GROUP, SERVER];
