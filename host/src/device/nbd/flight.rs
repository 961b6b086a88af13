//! A request on its way to another server and back.

use fairlift_core::{ContextId, Errno, Flags, Instant, Op, Tag};

use super::ledger::{Given, Promise};
use crate::kernel::ticket::part;
use crate::wire::nbd::answers::Awaited;
use crate::wire::nbd::{CMD_FLAG_FAST_ZERO, CMD_FLAG_FUA, CMD_FLAG_NO_HOLE, Command, RequestHeader};

pub(super) struct Flight {
    /// The worker that is told when it has ended.
    pub(super) worker: ContextId,
    pub(super) ask: Ask,
    pub(super) flags: Flags,
    /// Place and length in the server's export.
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// Its memory, which is the device's until it is answered (engine.1).
    pub(super) iovecs: Vec<libc::iovec>,
    /// When it was asked for, and when it fails (remote.3).
    pub(super) since: Instant,
    pub(super) deadline: Instant,
    /// Of a flush: what it promised when it was asked for, whichever connection it goes by.
    pub(super) promise: Option<Promise>,
    /// A worker without a connection has passed it on: that is done once.
    pub(super) is_passed_on: bool,
    pub(super) here: Here,
}

/// The record of a request on its connection; on the next one it begins anew.
#[derive(Default)]
pub(super) struct Here {
    /// Its name there.
    pub(super) cookie: u64,
    /// The place in the sent bytes from which it is of use; 0: it was not put there.
    pub(super) end: u64,
    /// How it was answered, while the kernel still sends it (socket.4).
    pub(super) answer: Option<Result<(), Errno>>,
    /// Of what changes data.
    pub(super) given: Given,
    /// The allocation map as far as known, and whether there are more runs than the request wants.
    pub(super) runs: Vec<(u64, bool)>,
    pub(super) is_full: bool,
}

/// A question to the other server, with the name by which its worker knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    Op(Op, Tag),
    /// Which runs there are, at most so many.
    Map {
        ticket: usize,
        most: usize,
    },
}

// SAFETY: the pointers in `iovecs` name memory of a ticket, which its worker leaves to the device until it is answered (engine.1),
// whichever worker's connection the request goes by.
unsafe impl Send for Flight {}

impl Flight {
    /// Whether the server has other data when it has done it.
    pub(super) const fn changes_data(&self) -> bool {
        matches!(self.ask, Ask::Op(Op::Write | Op::WriteZeroes | Op::Discard, _))
    }

    pub(super) const fn awaited(&self) -> Awaited {
        match self.ask {
            Ask::Op(Op::Read, _) => Awaited::Read { at: self.at, len: self.bytes },
            Ask::Op(Op::Write | Op::Flush | Op::Discard | Op::WriteZeroes, _) => Awaited::Other,
            Ask::Map { .. } => Awaited::Status { len: self.bytes },
        }
    }

    /// The header to send, before the payload of a write.
    pub(super) fn header(&self) -> RequestHeader {
        let command = match self.ask {
            Ask::Op(Op::Read, _) => Command::Read,
            Ask::Op(Op::Write, _) => Command::Write,
            Ask::Op(Op::Flush, _) => Command::Flush,
            Ask::Op(Op::Discard, _) => Command::Trim,
            Ask::Op(Op::WriteZeroes, _) => Command::WriteZeroes,
            Ask::Map { .. } => Command::BlockStatus,
        };
        let mut flags = 0;
        if self.changes_data() && self.flags.contains(Flags::FUA) {
            flags |= CMD_FLAG_FUA;
        }
        if command == Command::WriteZeroes {
            for (flag, wire) in [(Flags::NO_UNMAP, CMD_FLAG_NO_HOLE), (Flags::FAST, CMD_FLAG_FAST_ZERO)] {
                if self.flags.contains(flag) {
                    flags |= wire;
                }
            }
        }
        RequestHeader { flags, command, cookie: self.here.cookie, offset: self.at, length: self.bytes }
    }

    /// The memory from a byte on, piece by piece.
    pub(super) fn memory(&self, from: u64, bytes: u64) -> impl Iterator<Item = libc::iovec> {
        part(&self.iovecs, from as usize, bytes as usize)
    }
}
