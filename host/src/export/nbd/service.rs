//! What connections share: what is served, to how many, and the commands under way.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairlift_core::{ContextId, Op};

use super::Exports;
use crate::config::{Limits, Tls};
use crate::export::listen::Listening;
use crate::kernel::notify::Notifiers;
use crate::kernel::ring::Source;

/// What is served, and to how many: the same for all workers.
pub(crate) struct Service {
    pub(crate) exports: Exports,
    pub(crate) limits: Limits,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    pub(crate) listeners: Vec<Listening>,
    pub(crate) notifiers: Arc<Notifiers>,
    /// The order to finish.
    pub(crate) draining: Arc<AtomicBool>,
    /// Connections at each worker.
    pub(crate) loads: Box<[AtomicU32]>,
    /// Connections that one worker accepted for another, by the number of that one.
    pub(crate) newcomers: Box<[Mutex<Vec<Newcomer>>]>,
}

impl Service {
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
    pub(super) op: Op,
    /// In the export, in bytes.
    pub(super) offset: u64,
    /// In bytes.
    pub(super) len: u64,
    /// The protocol's flags.
    pub(super) flags: u16,
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
