//! Offer: what an export takes, as clients are told that count in sectors: the driver in a virtual machine, and the kernel's own.

use fairlift_core::{Bio, Flags, Op, Sector, StreamId, Token};

use super::Export;

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
    pub(super) const fn new(op: Op, at: u64, len: u64) -> Self {
        Self { op, at, len, flags: Flags::SYNC }
    }

    /// The same for the disk of the export.
    pub(super) fn bio(self, export: &Export, stream: StreamId, ticket: usize) -> Bio {
        let Self { op, at, len, flags } = self;
        Bio { op, flags, extent: export.extent(op, at, len), stream, token: Token(ticket as u64) }
    }
}

/// Why a range is none that can be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misfit {
    /// It is longer than the longest read or write.
    TooLong,
    /// It is of nothing.
    Empty,
    /// It ends behind the export's end, or begins there.
    Beyond,
    /// It is not whole blocks.
    Blocks,
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

    /// Where a read or write of `len` bytes from a sector on is, in bytes.
    ///
    /// # Errors
    /// It cannot be served.
    pub fn transfer(&self, sector: u64, len: u64) -> Result<u64, Misfit> {
        if len > self.request_max { Err(Misfit::TooLong) } else { self.range(sector, len) }
    }

    /// Where any `len` bytes from a sector on are, in bytes.
    ///
    /// # Errors
    /// They cannot be served.
    pub fn range(&self, sector: u64, len: u64) -> Result<u64, Misfit> {
        if len == 0 {
            return Err(Misfit::Empty);
        }
        let at = sector.checked_mul(Sector::SIZE).ok_or(Misfit::Beyond)?;
        if at.checked_add(len).is_none_or(|end| end > self.size) {
            return Err(Misfit::Beyond);
        }
        if (at | len).is_multiple_of(self.block) { Ok(at) } else { Err(Misfit::Blocks) }
    }
}
