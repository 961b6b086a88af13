//! Change: what can be done to a server that runs, in the words of its configuration.
//!
//! Everything goes by name (an export's, a disk's, a group's path, a listener's address), for the places of things in a
//! [`Config`] change when others are removed.

use std::path::PathBuf;
use std::sync::Arc;

use fairlift_core::ceiling::Bounds;
use fairlift_core::{Priority, sched};

use crate::config::{Backing, Config, Disk, Faults, Listener, Ublk};
pub use crate::export::Leave;

/// One change.
#[derive(Clone, Debug)]
pub enum Change {
    /// Adds a group; its parents that are missing come with it, with the default weight.
    AddGroup {
        /// Its name from the root: `/tenants/carol`.
        path: String,
        /// Its share among its siblings, 1 to 1000.
        weight: u16,
    },
    /// Removes a group; no export and no group may be in it.
    RemoveGroup {
        /// Its name from the root.
        path: String,
    },
    /// Gives a group another weight.
    SetWeight {
        /// Its name from the root.
        group: String,
        /// Its share among its siblings, 1 to 1000.
        weight: u16,
    },
    /// Gives a group other bounds, or none: at least, and at most, so much in a second.
    SetBounds {
        /// Its name from the root.
        group: String,
        /// All that binds it from now on.
        bounds: Bounds,
    },
    /// Adds a disk, on which nothing is yet.
    AddDisk(Disk),
    /// Removes a disk; no export may be on it.
    RemoveDisk {
        /// Its name.
        disk: String,
    },
    /// Gives a disk another scheduler, with these tunables; all others have their defaults.
    SetScheduler {
        /// Its name.
        disk: String,
        /// Who goes next.
        scheduler: sched::Kind,
        /// As [`Disk::is_usual`].
        is_usual: bool,
        /// As [`Disk::set`].
        set: Vec<(String, String)>,
    },
    /// Sets one tunable of the scheduler that a disk has.
    SetKnob {
        /// The disk's name.
        disk: String,
        /// The tunable's name.
        knob: String,
        /// Its value, as people write it.
        value: String,
    },
    /// Changes how many requests a disk may have in flight: as [`Disk::depth`].
    SetDepth {
        /// The disk's name.
        disk: String,
        /// Requests in flight; `None`: what suits the disk.
        depth: Option<u16>,
    },
    /// Changes how many requests may wait and be in flight: as [`Disk::nr_requests`].
    SetNrRequests {
        /// The disk's name.
        disk: String,
        /// Requests; `None`: what suits the scheduler.
        nr_requests: Option<u32>,
    },
    /// Adds an export, which clients then find.
    AddExport(NewExport),
    /// Removes an export: no client finds it any more, and those that are connected leave.
    RemoveExport {
        /// Its name.
        export: String,
        /// How they leave.
        how: Leave,
    },
    /// Puts an export, with the clients that are connected to it, into another group.
    MoveExport {
        /// Its name.
        export: String,
        /// The group's name from the root; it must be there.
        group: String,
    },
    /// Changes the priority that an export's clients have within their group.
    SetPriority {
        /// Its name.
        export: String,
        /// Their priority.
        priority: Priority,
    },
    /// Changes whether clients may only read. Those that are connected were told otherwise: what they then write is refused.
    SetReadOnly {
        /// Its name.
        export: String,
        /// Whether they may only read.
        read_only: bool,
    },
    /// Changes what `nbdinfo --list` shows of an export.
    SetDescription {
        /// Its name.
        export: String,
        /// What it is, for people.
        description: String,
    },
    /// Makes an export larger, as [`Export::size`](crate::config::Export::size): up to the end of its backing, which is looked
    /// at anew. Clients see it when they connect again.
    Grow {
        /// Its name.
        export: String,
        /// How many bytes it shows; `None`: all that there are.
        size: Option<u64>,
    },
    /// Changes which requests of an export fail, and of all exports that share its backing: one with faults
    /// ([`Backing::Fault`]). Counting starts again.
    SetFaults {
        /// Its name.
        export: String,
        /// Where the rules were read.
        path: PathBuf,
        /// What they say.
        faults: Faults,
    },
    /// Listens at one more place.
    AddListener(Listener),
    /// Closes a listener; connections made through it stay open.
    RemoveListener {
        /// The place, as [`Server::addresses`](crate::Server::addresses) says it: `unix:/run/fairlift.sock`.
        address: String,
    },
    /// Gives the server another certificate, for connections that are encrypted from now on.
    SetCertificate {
        /// Certificate, key and whom to trust; `None`: no listener may need one.
        tls: Option<Arc<rustls::ServerConfig>>,
    },
}

/// An export to be added: an [`Export`](crate::config::Export) by names.
#[derive(Clone, Debug)]
pub struct NewExport {
    /// The name that clients ask for; may be empty.
    pub name: String,
    /// What it is, for people.
    pub description: String,
    /// What holds the data.
    pub backing: Backing,
    /// Where in the backing it starts, in bytes.
    pub offset: u64,
    /// How many bytes of the backing it shows; `None`: all from `offset` on.
    pub size: Option<u64>,
    /// The disk's name; `None`: the disk that its backing suggests.
    pub disk: Option<String>,
    /// Who pays: the group's name from the root. It must be there: an [`Change::AddGroup`] comes before.
    pub group: String,
    /// The priority of its clients within the group.
    pub priority: Priority,
    /// Whether clients may only read.
    pub read_only: bool,
    /// As [`Export::vhost_user`](crate::config::Export::vhost_user).
    pub vhost_user: Option<PathBuf>,
    /// As [`Export::ublk`](crate::config::Export::ublk).
    pub ublk: Option<Ublk>,
}

/// What is in force.
#[derive(Clone, Debug)]
pub struct State {
    /// How often something was changed since the start.
    pub version: u64,
    /// What a server would be started with to be the same: every export names its disk.
    pub config: Arc<Config>,
}

/// Why nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Another change came between.
    #[error("version {asked} was asked for, and the server is at version {now}: it was changed or restarted since")]
    Version {
        /// The version that the caller knew.
        asked: u64,
        /// The version that there is.
        now: u64,
    },
    /// One of the changes cannot be made, so that none was.
    #[error("{why}")]
    Change {
        /// Which one, from 0.
        at: usize,
        /// What was asked, and what is possible.
        why: String,
    },
    /// The server has ended.
    #[error("the server has ended")]
    Ended,
}
