//! Exports and their clients, for all protocols.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::SystemTime;

use fairlift_core::Instant;
use fairlift_core::waits::Part;

use super::allowed::Lists;
use super::hold::Hold;
use super::listeners::Listeners;
use super::{Export, Leave};
use crate::access::{Access, Gate, Origin, Peer};
use crate::clock;
use crate::config::Limits;
use crate::events::Events;
use crate::kernel::notify::Notifiers;
use crate::quiet::{self, Quiet};
use crate::sync::{Mutex, MutexGuard, lock};

/// The exports, as clients find them.
pub(crate) struct Exports {
    pub(crate) list: Vec<Arc<Export>>,
    pub(crate) access: Arc<Access>,
    /// Those that were removed and that clients may still be connected to, and how these leave.
    pub(crate) leaving: BTreeMap<u64, Leave>,
    /// Those that clients may open.
    pub(crate) lists: Lists,
}

impl Exports {
    pub(crate) fn new(list: Vec<Arc<Export>>, access: Arc<Access>, leaving: BTreeMap<u64, Leave>) -> Self {
        Self { list, access, leaving, lists: Lists::default() }
    }

    /// The export of a number, as it is now: their numbers rise in the order in which they came.
    pub(crate) fn get(&self, id: u64) -> Option<&Arc<Export>> {
        self.list.binary_search_by_key(&id, |export| export.id).ok().map(|at| &self.list[at])
    }
}

/// The exports and the number of their clients: the same for all workers and protocols.
pub(crate) struct Service {
    exports: Mutex<Arc<Exports>>,
    /// Counts the changes of exports and listeners: a front that knows another number has to look.
    changes: AtomicU64,
    pub(crate) listeners: Listeners,
    /// The connected clients, by worker and number.
    clients: Mutex<BTreeMap<(u16, usize), Client>>,
    /// Where clients came from that were refused an export.
    pub(crate) refused: Mutex<Quiet<Origin>>,
    /// How many clients of an address are heard.
    pub(crate) gate: Gate,
    pub(crate) events: Events,
    pub(crate) limits: Limits,
    pub(crate) notifiers: Arc<Notifiers>,
    /// The order to finish.
    pub(crate) draining: AtomicBool,
    /// The order to hold clients, for another server or until one hands them over.
    pub(crate) hold: Hold,
}

/// A client, as operators see it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Where it comes from.
    pub(crate) peer: String,
    /// `None`: it negotiates.
    pub(crate) export: Option<String>,
    pub(crate) since: SystemTime,
    pub(crate) unsent: Arc<Unsent>,
}

/// The holder of the keys of a connection with TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encryption {
    /// This process, for good: it is over a unix socket.
    Bound = 1,
    /// This process, until the kernel takes them ([`kernel::ktls`](crate::kernel::ktls)).
    Process,
    Kernel,
}

/// The cause of a client's wait, or of a wait for the client. Its worker writes it, and others read it.
#[derive(Default, Debug)]
pub(crate) struct Unsent {
    count: AtomicU64,
    /// In nanoseconds of the clock; 0: no replies are under way.
    since: AtomicU64,
    /// Since when its commands are not taken in, as above, and for which [`Part`].
    held: AtomicU64,
    held_for: AtomicU32,
    encrypted: AtomicU32,
}

impl Unsent {
    /// Counts replies offered to the client from now on.
    pub(crate) fn offered(&self, count: u64, now: Instant) {
        self.count.store(count, Ordering::Relaxed);
        self.since.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// It has taken all.
    pub(crate) fn taken(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// Both directions are encrypted from now on.
    pub(crate) fn is_encrypted_by(&self, by: Encryption) {
        self.encrypted.store(by as u32, Ordering::Relaxed);
    }

    /// The holder of its keys; `None`: it is not encrypted.
    pub(crate) fn encryption(&self) -> Option<Encryption> {
        let by = self.encrypted.load(Ordering::Relaxed);
        [Encryption::Bound, Encryption::Process, Encryption::Kernel].into_iter().find(|one| *one as u32 == by)
    }

    /// Its commands have waited since then; `None`: they do not any more.
    pub(crate) fn held(&self, since: Option<(Part, Instant)>) {
        self.held_for.store(since.map_or(0, |(part, _)| part as u32), Ordering::Relaxed);
        self.held.store(since.map_or(0, |(_, since)| since.as_nanos()), Ordering::Relaxed);
    }

    /// How many replies are under way, and since when.
    pub(crate) fn replies(&self) -> Option<(u64, Instant)> {
        let since = self.since.load(Ordering::Relaxed);
        (since > 0).then(|| (self.count.load(Ordering::Relaxed), Instant::from_nanos(since)))
    }

    /// The cause of its commands' wait, and since when.
    pub(crate) fn waits_for(&self) -> Option<(Part, Instant)> {
        let since = self.held.load(Ordering::Relaxed);
        let part = Part::ALL.into_iter().find(|part| *part as u32 == self.held_for.load(Ordering::Relaxed))?;
        (since > 0).then(|| (part, Instant::from_nanos(since)))
    }
}

impl Service {
    /// A service of these exports; `begins_held`: no client is served before another server has handed its clients over.
    pub(crate) fn new(
        exports: Exports,
        listeners: Listeners,
        limits: Limits,
        notifiers: Arc<Notifiers>,
        begins_held: bool,
    ) -> Self {
        Self {
            hold: Hold::new(notifiers.workers(), begins_held),
            exports: Mutex::new(Arc::new(exports)),
            changes: AtomicU64::new(0),
            listeners,
            clients: Mutex::default(),
            refused: Mutex::default(),
            gate: Gate::new(limits.connections, limits.handshake_failures, limits.handshake_clients),
            events: Events::default(),
            limits,
            notifiers,
            draining: AtomicBool::new(false),
        }
    }

    pub(crate) fn exports(&self) -> Arc<Exports> {
        Arc::clone(&lock(&self.exports))
    }

    /// Puts other exports in place of those that there were; workers are to be woken then.
    pub(crate) fn set_exports(&self, exports: Exports) {
        *lock(&self.exports) = Arc::new(exports);
        self.changed();
    }

    /// Exports or listeners have changed; workers are to be woken then.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Tells in the log that a client asked for exports that it may not open, or that are not there: `missed` has their names. Which of
    /// these it is, is looked up only for a line: a client could measure it (access.4).
    pub(crate) fn tell_refused(&self, exports: &Exports, peer: &Peer, missed: &[String]) {
        /// As many names as fit a line.
        const NAMED: usize = 3;
        let mut refused = lock(&self.refused);
        let Some(untold) = refused.tell(clock::now(), peer.into()) else { return };
        drop(refused);
        let rights = exports.access.of(peer);
        let why = |name: &str| {
            let count = exports.list.iter().fold(0, |count, export| count + usize::from(export.name == *name));
            let may = exports.list.iter().any(|export| export.name == *name && rights.of(name, &export.path).is_some());
            let all = ["there is none", "no [client] allows it", "it has as many connections as it may have"];
            all[count.min(1) + usize::from(may)]
        };
        let shown = |name: &String| format!("{:?}: {}", name.chars().take(64).collect::<String>(), why(name));
        let mut names = missed.iter().take(NAMED).map(shown).collect::<Vec<_>>().join(", ");
        if missed.len() > NAMED {
            names += &format!(", and {} more names", missed.len() - NAMED);
        }
        let mut shown = peer.shown.clone();
        shown += &peer.cgroup.as_ref().map_or_else(String::new, |its| format!(", cgroup {its}"));
        shown += &peer.certificate.as_ref().map_or_else(String::new, |its| format!(", certificate {its}"));
        let (at, more) = (&peer.listener, quiet::more(untold));
        tracing::warn!("refused: {shown} asked at {at} for export {names}{more}");
    }

    pub(crate) fn clients(&self) -> MutexGuard<'_, BTreeMap<(u16, usize), Client>> {
        lock(&self.clients)
    }
}
