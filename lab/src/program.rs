//! Programs on paper: what reads and writes a disk, one file each.
//!
//! Each is a small state machine that asks as its kind of program does ([`Program`]); its operations are what the program itself would
//! count: a `read()`, a `write()` and `fsync()`, a whole start. Costs of CPU time are stated where they are used; the cost of copying is
//! [`COPY`].
//!
//! A file is one run of sectors. A program that comes to its end starts again at its beginning; what it read before is no
//! longer in memory, as if the page cache were smaller than the file.

mod blocks;
pub mod direct;
pub mod fsync;
pub mod in_turn;
pub mod interactive;
pub mod journal;
pub mod mail;
pub mod open_loop;
pub mod pages;
pub mod read_ahead;
pub mod write_back;

use fairlift_core::time::us;
use fairlift_core::{Duration, Extent, Sector};

pub use direct::Direct;
pub use fairlift_core::program::{Ask, Meter, Program};
pub use fsync::fsync;
pub use in_turn::InTurn;
pub use interactive::interactive;
pub use journal::journal;
pub use mail::mail;
pub use open_loop::OpenLoop;
pub use pages::pages;
pub use read_ahead::ReadAhead;
pub use write_back::WriteBack;

/// A page of the page cache, in bytes.
pub const PAGE: u64 = 4096;

/// CPU time to bring a page from the page cache to the program or back, its part of the system call included. An estimate:
/// `memcpy` at some 8 GB/s, and half a microsecond for `read()`.
pub const COPY: Duration = us(1);

/// Where a program's data lies on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its first sector.
    pub start: Sector,
    /// Its length in bytes: whole pages, at least one.
    pub bytes: u64,
}

impl Region {
    /// The sectors of `bytes` bytes from `offset` on; both whole sectors, within the file.
    #[must_use]
    pub const fn extent(&self, offset: u64, bytes: u64) -> Extent {
        Extent::new(Sector(self.start.0 + offset / Sector::SIZE), bytes / Sector::SIZE)
    }
}

/// In what order a program goes through its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// From its start to its end, and again.
    Sequential,
    /// Block by block, by chance.
    Random,
}

/// CPU time to copy `bytes`.
const fn copying(bytes: u64) -> Duration {
    Duration::from_nanos(COPY.as_nanos() * bytes / PAGE)
}

#[cfg(test)]
mod tests;
