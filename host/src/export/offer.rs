//! Offer: what an export takes, as clients are told that count in sectors: the driver in a virtual machine, and the kernel's own.

use fairlift_core::{Op, Sector};

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
