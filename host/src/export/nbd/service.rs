//! What connections share: where they come from, and the commands under way.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairlift_core::waits::Part;
use fairlift_core::{ContextId, Duration, Op};

use crate::config::Tls;
use crate::export::listen::Listening;
use crate::export::service::Service;
use crate::kernel::ring::Source;

/// Where clients connect, and what comes in there: the same for all workers.
pub(crate) struct Listeners {
    service: Arc<Service>,
    /// By numbers that do not come again.
    list: Mutex<BTreeMap<usize, Arc<Listening>>>,
    tls: Mutex<Option<Arc<rustls::ServerConfig>>>,
    /// Connections at each worker.
    pub(super) loads: Box<[AtomicU32]>,
    /// Connections that one worker accepted for another, by the number of that one.
    newcomers: Box<[Mutex<Vec<Newcomer>>]>,
}

impl Listeners {
    /// Clients of this service connect at these places.
    pub(crate) fn new(service: &Arc<Service>, list: Vec<Listening>, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let workers = service.notifiers.workers();
        Self {
            service: Arc::clone(service),
            list: Mutex::new(list.into_iter().map(Arc::new).enumerate().collect()),
            tls: Mutex::new(tls),
            loads: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            newcomers: (0..workers).map(|_| Mutex::default()).collect(),
        }
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
    pub(crate) fn list(&self) -> BTreeMap<usize, Arc<Listening>> {
        self.places().clone()
    }

    /// Listens at one more place; workers are to be woken then.
    pub(crate) fn listen(&self, listening: Listening, number: usize) {
        self.places().insert(number, Arc::new(listening));
        self.service.changed();
    }

    /// Listens at a place no more; workers are to be woken then. The place is free when nobody has what is answered.
    pub(crate) fn leave(&self, name: &str) -> Option<Arc<Listening>> {
        let mut places = self.places();
        let number = places.iter().find(|(_, place)| place.name == name).map(|(number, _)| *number)?;
        let left = places.remove(&number);
        self.service.changed();
        left
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<Listening>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn newcomers_of(&self, worker: ContextId) -> MutexGuard<'_, Vec<Newcomer>> {
        self.newcomers[usize::from(worker.0)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the connections of a worker share.
pub(crate) struct Common {
    pub(super) service: Arc<Service>,
    pub(super) listeners: Arc<Listeners>,
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
