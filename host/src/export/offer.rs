//! Offer: what an export takes, as clients are told that count in sectors: the driver in a virtual machine, and the kernel's own.

use fairlift_core::{Bio, Errno, Flags, Op, Outcome, Sector, StreamId, Token};

use super::Export;
use crate::disk::engine::News;

/// The limits of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Its size, in bytes.
    pub size: u64,
    /// Ranges start and end on its multiples; in bytes, a power of two.
    pub block: u64,
    /// The longest read or write, in bytes.
    pub request_max: u64,
    /// Whether clients may only read.
    pub read_only: bool,
    /// Whether it takes discards.
    pub discard: bool,
    /// Whether it takes writes of zeroes.
    pub write_zeroes: bool,
}

/// A request to an export. A flush has no range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRequest {
    /// What is to be done.
    pub op: Op,
    /// Its first byte.
    pub at: u64,
    /// How many bytes.
    pub len: u64,
    /// How it is to be done.
    pub flags: Flags,
}

impl BlockRequest {
    /// The same for the disk of the export.
    pub(super) fn bio(self, export: &Export, stream: StreamId, ticket: usize) -> Bio {
        let Self { op, at, len, flags } = self;
        Bio { op, flags, extent: export.extent(op, at, len), stream, token: Token(ticket as u64) }
    }
}

/// Why a request cannot be served. Ranges are told by their first sector and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Its kind is unknown, or the export cannot do it.
    Kind(u32),
    /// It would change what may only be read.
    ReadOnly,
    /// It is of nothing, or longer than the longest read or write.
    Length(u64),
    /// It ends behind the export's end, or begins there.
    Beyond(u64, u64),
    /// It is not whole blocks.
    Blocks(u64, u64),
    /// It has a list of ranges that is none, of this many bytes.
    Ranges(u64),
}

impl Refusal {
    /// The answer for the client.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Kind(_) => Errno::ENOTSUP,
            Self::Beyond(..) | Self::ReadOnly => Errno::EIO,
            Self::Length(_) | Self::Blocks(..) | Self::Ranges(_) => Errno::EINVAL,
        }
    }
}

/// How a request of such a client has ended. `None`: it has not, and its time is over. The client is told once the device has let go of
/// its memory.
#[inline]
pub(super) fn ended(news: News, export: &Export, (protocol, client): (&str, &str)) -> Option<Outcome> {
    match news {
        News::Ended(outcome) => Some(outcome),
        News::Released => Some(Outcome::Failed(Errno::EIO)),
        News::TimedOut => {
            tracing::warn!(
                export = export.name,
                "{protocol}: a request exceeded io_timeout; the {client} gets its error when the disk returns it"
            );
            None
        }
    }
}

impl Offer {
    pub(super) fn of(export: &Export, request_max: u64) -> Self {
        let takes = |op| !export.read_only && export.facts.limits.max(op) > 0;
        Self {
            size: export.size,
            block: export.facts.block().into(),
            request_max,
            read_only: export.read_only,
            discard: takes(Op::Discard) && export.device.can_discard(),
            write_zeroes: takes(Op::WriteZeroes),
        }
    }

    /// A request for `len` bytes from a sector on; its protocol knows the operation by the number `kind`.
    ///
    /// # Errors
    /// It cannot be served.
    pub fn request(&self, op: Op, kind: u32, sector: u64, len: u64) -> Result<BlockRequest, Refusal> {
        let request = |at, len| BlockRequest { op, at, len, flags: Flags::SYNC };
        if op == Op::Flush {
            return Ok(request(0, 0));
        }
        if self.read_only && op != Op::Read {
            return Err(Refusal::ReadOnly);
        }
        if op == Op::Discard && !self.discard || op == Op::WriteZeroes && !self.write_zeroes {
            return Err(Refusal::Kind(kind));
        }
        if len == 0 || op.has_payload() && len > self.request_max {
            return Err(Refusal::Length(len));
        }
        let beyond = Refusal::Beyond(sector, len);
        let at = sector.checked_mul(Sector::SIZE).ok_or(beyond)?;
        if at.checked_add(len).is_none_or(|end| end > self.size) {
            return Err(beyond);
        }
        if (at | len).is_multiple_of(self.block) { Ok(request(at, len)) } else { Err(Refusal::Blocks(sector, len)) }
    }
}
