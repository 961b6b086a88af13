//! The state that the connections of a worker share, their work, and the kernel's work for them.

use std::sync::Arc;

use fairlift_core::waits::Part;
use fairlift_core::{Duration, Op};

use super::proto::RequestHeader;
use crate::export::present::Present;
use crate::export::service::Service;
use crate::kernel::ring::Source;

/// The state that the connections of a worker share.
pub(crate) struct Common {
    pub(super) service: Arc<Service>,
    pub(super) present: Present,
    /// The commands under way, each at the number of its ticket; the other rows mean nothing.
    pub(super) commands: Vec<Command>,
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
    pub(super) header: RequestHeader,
    /// The time that it waited before it was taken in, and the reason.
    pub(super) waited: (Duration, Part),
    /// Nothing if it asks for a block status.
    pub(super) op: Op,
    /// It does not begin or not end with a block.
    pub(super) in_part: bool,
}

/// A completion for a connection or for a listener: a kind and a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UserData {
    Receive(usize),
    Send(usize),
    Accept(usize),
}

impl UserData {
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
