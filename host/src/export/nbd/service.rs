//! What connections share: what is served, to how many, and the commands under way.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use fairlift_core::waits::Part;
use fairlift_core::{ContextId, Duration, Instant, Op};

use super::Exports;
use crate::config::{Limits, Tls};
use crate::events::Events;
use crate::export::listen::Listening;
use crate::export::ublk::service::Ublks;
use crate::export::vhost_user::service::{Door, Doors};
use crate::kernel::notify::Notifiers;
use crate::kernel::ring::Source;

/// What is served, and to how many: the same for all workers.
pub(crate) struct Service {
    exports: Mutex<Arc<Exports>>,
    /// Where clients connect, by numbers that do not come again.
    listeners: Mutex<BTreeMap<usize, Arc<Listening>>>,
    /// Where virtual machines connect.
    pub(crate) doors: Doors,
    /// The block devices of this machine.
    pub(crate) ublks: Ublks,
    /// Counts the changes of exports and listeners: a front that knows another number has to look.
    changes: AtomicU64,
    /// Who is connected, by worker and number.
    clients: Mutex<BTreeMap<(u16, usize), Client>>,
    pub(crate) events: Events,
    pub(crate) limits: Limits,
    tls: Mutex<Option<Arc<rustls::ServerConfig>>>,
    pub(crate) notifiers: Arc<Notifiers>,
    /// The order to finish.
    pub(crate) draining: Arc<AtomicBool>,
    /// Connections at each worker.
    pub(crate) loads: Box<[AtomicU32]>,
    /// Connections that one worker accepted for another, by the number of that one.
    pub(crate) newcomers: Box<[Mutex<Vec<Newcomer>>]>,
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

/// What a client waits for, or keeps waiting. Its worker writes it, and others read it.
#[derive(Default, Debug)]
pub(crate) struct Unsent {
    count: AtomicU64,
    /// In nanoseconds of the clock; 0: no replies are under way.
    since: AtomicU64,
    /// Since when its commands are not taken in, as above, and for which [`Part`].
    held: AtomicU64,
    held_for: AtomicU32,
}

impl Unsent {
    /// So many replies are offered to the client from now on.
    pub(crate) fn offered(&self, count: u64, now: Instant) {
        self.count.store(count, Ordering::Relaxed);
        self.since.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// It has taken all.
    pub(crate) fn taken(&self) {
        self.since.store(0, Ordering::Relaxed);
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

    /// What its commands wait for, and since when.
    pub(crate) fn waits_for(&self) -> Option<(Part, Instant)> {
        let since = self.held.load(Ordering::Relaxed);
        let part = Part::ALL.into_iter().find(|part| *part as u32 == self.held_for.load(Ordering::Relaxed))?;
        (since > 0).then(|| (part, Instant::from_nanos(since)))
    }
}

impl Service {
    /// A service of these exports at these places.
    pub(crate) fn new(
        exports: Exports,
        listeners: Vec<Listening>,
        doors: Vec<Door>,
        ublks: Ublks,
        limits: Limits,
        tls: Option<Arc<rustls::ServerConfig>>,
        notifiers: Arc<Notifiers>,
    ) -> Self {
        let workers = notifiers.workers();
        Self {
            exports: Mutex::new(Arc::new(exports)),
            listeners: Mutex::new(listeners.into_iter().map(Arc::new).enumerate().collect()),
            doors: Doors::new(doors, workers),
            ublks,
            changes: AtomicU64::new(0),
            clients: Mutex::default(),
            events: Events::default(),
            limits,
            tls: Mutex::new(tls),
            notifiers,
            draining: Arc::default(),
            loads: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            newcomers: (0..workers).map(|_| Mutex::default()).collect(),
        }
    }

    /// The exports that there are now.
    pub(crate) fn exports(&self) -> Arc<Exports> {
        Arc::clone(&self.exports.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other exports in place of those that there were; workers are to be woken then.
    pub(crate) fn set_exports(&self, exports: Exports) {
        *self.exports.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(exports);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// The certificate for a connection that becomes encrypted.
    pub(crate) fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another certificate in place. One that was there never goes without another: clients that came by a listener which
    /// has gone may still want it.
    pub(crate) fn set_tls(&self, tls: Arc<rustls::ServerConfig>) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = Some(tls);
    }

    /// Where clients connect now, with the numbers.
    pub(crate) fn listeners(&self) -> BTreeMap<usize, Arc<Listening>> {
        self.places().clone()
    }

    /// Listens at one more place; workers are to be woken then.
    pub(crate) fn listen(&self, listening: Listening, number: usize) {
        self.places().insert(number, Arc::new(listening));
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Listens at a place no more; workers are to be woken then. The place is free when nobody has what is answered.
    pub(crate) fn leave(&self, name: &str) -> Option<Arc<Listening>> {
        let mut places = self.places();
        let number = places.iter().find(|(_, place)| place.name == name).map(|(number, _)| *number)?;
        let left = places.remove(&number);
        self.changes.fetch_add(1, Ordering::AcqRel);
        left
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<Listening>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often exports or listeners changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Who is connected.
    pub(crate) fn clients(&self) -> MutexGuard<'_, BTreeMap<(u16, usize), Client>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn newcomers_of(&self, worker: ContextId) -> MutexGuard<'_, Vec<Newcomer>> {
        self.newcomers[usize::from(worker.0)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the connections of a worker share.
pub(crate) struct Common {
    pub(super) service: Arc<Service>,
    /// The commands under way, each at the number of its ticket; the other rows mean nothing.
    pub(super) commands: Vec<Command>,
    /// The connection that has waited longest for payload memory, if one does.
    pub(super) first_in_line: Option<usize>,
}

impl Common {
    /// Keeps a command that has just been given its ticket.
    #[inline]
    pub(super) fn put(&mut self, ticket: usize, command: Command) {
        match self.commands.get_mut(ticket) {
            Some(row) => *row = command,
            None => self.commands.resize(ticket + 1, command),
        }
    }
}

/// One operation of a client, from its arrival to the reply. Its payload is with its ticket.
#[derive(Clone, Copy)]
pub(super) struct Command {
    /// The client's name for it.
    pub(super) cookie: u64,
    /// How long it waited before it was taken in, and for what.
    pub(super) waited: (Duration, Part),
    pub(super) op: Op,
    /// In the export, in bytes.
    pub(super) offset: u64,
    /// In bytes.
    pub(super) len: u64,
    /// The protocol's flags.
    pub(super) flags: u16,
    /// It does not begin or not end with a block.
    pub(super) in_part: bool,
    /// It asks what is allocated; `op` means nothing.
    pub(super) is_map: bool,
}

/// A connection that was accepted.
pub(crate) struct Newcomer {
    pub(super) fd: OwnedFd,
    pub(super) tls: Tls,
}

/// What the kernel has done for a connection, or for a listener: a kind and a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Receive(usize),
    Send(usize),
    Accept(usize),
}

impl Event {
    pub(super) fn pack(self) -> u64 {
        let (kind, number) = match self {
            Self::Receive(connection) => (0, connection),
            Self::Send(connection) => (1, connection),
            Self::Accept(listener) => (2, listener),
        };
        Source::Front(kind << 48 | number as u64).pack()
    }

    pub(super) fn unpack(what: u64) -> Self {
        let number = (what & ((1 << 48) - 1)) as usize;
        match what >> 48 {
            0 => Self::Receive(number),
            1 => Self::Send(number),
            2 => Self::Accept(number),
            _ => unreachable!("a completion that was never submitted: {what:#x}"),
        }
    }
}
