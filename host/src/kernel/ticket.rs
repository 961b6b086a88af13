//! Tickets: whose a request is, and the memory that it holds.
//!
//! A front hands the engine a request as a ticket. The engine does not know what the owner means by its number: an NBD
//! connection's command, or a program's ask. All it needs is the memory, and for how long it must not be touched.
//!
//! ticket.1  The memory of a virtual machine stays mapped as long as a ticket names it, even if the machine is gone.
//! ticket.2  A virtual machine may write to its memory while we or the kernel read it. So no reference to it is made: bytes are
//!           copied, to and from a `VolatileSlice`.

use std::ops::Range;
use std::sync::Arc;

use slab::Slab;
use smallvec::SmallVec;
use vm_memory::{GuestAddress, GuestMemoryBackend as _, VolatileSlice};

use super::buffer::Buffer;
use super::lent::Machine;

/// The engine's record of a request, from its arrival until its front has done with it.
pub(crate) struct Ticket {
    /// The front's own name for it.
    pub(crate) owner: u64,
    pub(crate) memory: Memory,
}

/// The tickets of a worker; a request is known by its ticket's number.
pub(crate) type Tickets = Slab<Ticket>;

pub(crate) enum Memory {
    /// It has none: a flush, a discard, a write of zeroes.
    None,
    /// A buffer of the worker's pool, which goes back there.
    Pool(Buffer),
    /// A buffer for whole blocks, for a client that asked for a part: its front sees that part, the device all of it.
    Part(Part),
    /// Memory of the virtual machine that asked, which stays there.
    Guest(Guest),
    /// An allocation map from a device: the length of each run, and whether it is a hole.
    Map(Vec<(u64, bool)>),
}

pub(crate) struct Part {
    pub(crate) buffer: Buffer,
    pub(crate) range: Range<usize>,
}

/// Pieces of a virtual machine's memory, one after the other.
pub(crate) struct Guest {
    /// One piece, as most have, is not allocated.
    pieces: SmallVec<[libc::iovec; 1]>,
    len: usize,
    /// Keeps the pieces mapped (ticket.1).
    _mapped: Arc<Machine>,
}

// SAFETY: the pointers name a mapping that `_mapped` keeps, wherever it goes. They are read and written as bytes that
// others may change at any time (ticket.2).
unsafe impl Send for Guest {}

impl Guest {
    /// The bytes at these addresses of a virtual machine; `None` if there is no memory at one of them.
    pub(crate) fn new(memory: &Arc<Machine>, ranges: &[(GuestAddress, u32)]) -> Option<Self> {
        let mut pieces = SmallVec::<[libc::iovec; 1]>::with_capacity(ranges.len());
        for slice in ranges.iter().flat_map(|(start, len)| memory.get_slices(*start, *len as usize)) {
            let slice = slice.ok()?;
            pieces.push(libc::iovec { iov_base: slice.ptr_guard_mut().as_ptr().cast(), iov_len: slice.len() });
        }
        let len = pieces.iter().map(|piece| piece.iov_len).sum();
        Some(Self { pieces, len, _mapped: Arc::clone(memory) })
    }

    /// Whether each piece starts and ends on a multiple of `align`.
    pub(crate) fn is_aligned(&self, align: usize) -> bool {
        self.pieces.iter().all(|piece| (piece.iov_base as usize | piece.iov_len).is_multiple_of(align))
    }

    /// The part that starts at `offset`, up to `bytes` long, piece by piece.
    fn part(&self, offset: usize, bytes: usize) -> impl Iterator<Item = libc::iovec> {
        assert!(offset + bytes <= self.len, "a segment beyond its memory");
        part(&self.pieces, offset, bytes)
    }

    pub(crate) fn slices(&self) -> impl Iterator<Item = VolatileSlice<'_>> {
        self.part_slices(0, self.len)
    }

    fn part_slices(&self, offset: usize, bytes: usize) -> impl Iterator<Item = VolatileSlice<'_>> {
        // SAFETY: the piece lies in a mapping that `_mapped` keeps, and so the borrow of `self` (ticket.1); nobody has a
        // reference to it (ticket.2).
        self.part(offset, bytes).map(|piece| unsafe { VolatileSlice::new(piece.iov_base.cast(), piece.iov_len) })
    }
}

/// The part of some memory that starts at `skip`, up to `left` bytes long, piece by piece.
pub(crate) fn part(pieces: &[libc::iovec], mut skip: usize, mut left: usize) -> impl Iterator<Item = libc::iovec> {
    pieces.iter().filter_map(move |piece| {
        let from = skip.min(piece.iov_len);
        skip -= from;
        let iov_len = left.min(piece.iov_len - from);
        left -= iov_len;
        (iov_len > 0).then(|| libc::iovec { iov_base: piece.iov_base.wrapping_byte_add(from), iov_len })
    })
}

const NO_MEMORY: &str = "a read or write has memory until it is released";

impl Memory {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Pool(buffer) => buffer.bytes(),
            Self::Part(part) => &part.buffer.bytes()[part.range.clone()],
            Self::Guest(_) => panic!("a virtual machine's memory is never referred to"), // ticket.2
            Self::None | Self::Map(_) => panic!("{NO_MEMORY}"),
        }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pool(buffer) => buffer.bytes_mut(),
            Self::Part(part) => &mut part.buffer.bytes_mut()[part.range.clone()],
            Self::Guest(_) => panic!("a virtual machine's memory is never referred to"), // ticket.2
            Self::None | Self::Map(_) => panic!("{NO_MEMORY}"),
        }
    }

    /// Shows a part of it, piece by piece.
    #[inline]
    pub(crate) fn for_each(&mut self, offset: usize, bytes: usize, mut visit: impl FnMut(VolatileSlice<'_>)) {
        match self {
            Self::Pool(buffer) | Self::Part(Part { buffer, .. }) => {
                visit((&mut buffer.bytes_mut()[offset..offset + bytes]).into())
            }
            Self::Guest(guest) => guest.part_slices(offset, bytes).for_each(visit),
            Self::None | Self::Map(_) => panic!("{NO_MEMORY}"),
        }
    }

    /// Adds a part of it, as the kernel wants it, and says its block if that may be registered.
    #[inline]
    pub(crate) fn pieces(&self, offset: u64, bytes: u64, into: &mut Vec<libc::iovec>) -> Option<u16> {
        let (offset, bytes) = (offset as usize, bytes as usize);
        match self {
            Self::Pool(buffer) | Self::Part(Part { buffer, .. }) => {
                assert!(offset + bytes <= buffer.bytes().len(), "a segment beyond its memory");
                let start = buffer.as_ptr().wrapping_add(offset).cast();
                into.push(libc::iovec { iov_base: start, iov_len: bytes });
                buffer.block()
            }
            Self::Guest(guest) => {
                into.extend(guest.part(offset, bytes));
                None
            }
            Self::None | Self::Map(_) => panic!("{NO_MEMORY}"),
        }
    }
}

pub(crate) fn zero(slice: &VolatileSlice<'_>) {
    // SAFETY: the slice is valid for writes of its length. Others may write to it at the same time (ticket.2): what they or we
    // write is there afterwards, and nobody relies on which.
    unsafe { slice.ptr_guard_mut().as_ptr().write_bytes(0, slice.len()) }
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes as _, GuestMemoryMmap};

    use super::*;

    fn machine() -> Arc<Machine> {
        // Two regions side by side.
        let ranges = [(GuestAddress(0), 0x2000), (GuestAddress(0x2000), 0x2000)];
        Arc::new(Machine::new(GuestMemoryMmap::from_ranges(&ranges).unwrap()))
    }

    fn bytes(memory: &mut Memory, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        memory.for_each(offset, len, |slice| {
            let before = bytes.len();
            bytes.resize(before + slice.len(), 0);
            slice.copy_to(&mut bytes[before..]);
        });
        bytes
    }

    /// Ranges that follow one another in a request are apart in memory, and one may cross from region to region.
    #[test]
    fn a_part_of_several_pieces_is_those_bytes() {
        let machine = machine();
        let all: Vec<u8> = (0..0x4000u32).map(|n| (n / 7) as u8).collect();
        machine.write_slice(&all, GuestAddress(0)).unwrap();
        let ranges = [(GuestAddress(0x100), 0x10), (GuestAddress(0x1ff0), 0x20), (GuestAddress(0x3000), 1)];
        let guest = Guest::new(&machine, &ranges).unwrap();
        drop(machine); // ticket.1
        let wanted: Vec<u8> = [&all[0x100..0x110], &all[0x1ff0..0x2010], &all[0x3000..0x3001]].concat();
        let mut memory = Memory::Guest(guest);
        assert_eq!(bytes(&mut memory, 0, 0x31), wanted);
        assert_eq!(bytes(&mut memory, 0x0f, 3), wanted[0x0f..0x12]);
        let mut iovecs = Vec::new();
        assert_eq!(memory.pieces(0x08, 0x29, &mut iovecs), None);
        assert_eq!(iovecs.iter().map(|iovec| iovec.iov_len).collect::<Vec<_>>(), [8, 0x10, 0x10, 1]);
    }

    #[test]
    fn memory_that_is_not_there_is_not_had() {
        let machine = machine();
        for (start, len) in [(0x4000, 1), (0x3fff, 2), (u64::MAX, 2), (0, u32::MAX)] {
            assert!(Guest::new(&machine, &[(GuestAddress(start), len)]).is_none(), "{len} at {start:#x}");
            assert!(Guest::new(&machine, &[(GuestAddress(0), 1), (GuestAddress(start), len)]).is_none());
        }
    }

    #[test]
    fn alignment_is_that_of_the_worst_piece() {
        let machine = machine();
        let aligned = |ranges: &[(u64, u32)]| {
            let ranges: Vec<_> = ranges.iter().map(|(start, len)| (GuestAddress(*start), *len)).collect();
            Guest::new(&machine, &ranges).unwrap().is_aligned(512)
        };
        assert!(aligned(&[(0x200, 512), (0x1000, 4096)]));
        assert!(!aligned(&[(0x200, 512), (0x1001, 512)]));
        assert!(!aligned(&[(0x200, 100), (0x1000, 412)]));
    }
}
