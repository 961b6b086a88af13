//! Tickets: whose a request is, and the memory that it holds.
//!
//! A front hands the engine a request as a ticket. The engine does not know what the owner means by its number: an NBD
//! connection's command, or a program's ask. All it needs is the memory, and for how long it must not be touched.

use std::ptr::NonNull;

use slab::Slab;

use super::buffer::Buffer;

/// What the engine keeps of a request, from its arrival until its front has done with it.
pub(crate) struct Ticket {
    /// The front's own name for it.
    pub(crate) owner: u64,
    pub(crate) memory: Memory,
}

/// The tickets of a worker; a request is known by its ticket's number.
pub(crate) type Tickets = Slab<Ticket>;

/// Where the payload of a request is.
pub(crate) enum Memory {
    /// It has none: a flush, a discard, a write of zeroes.
    None,
    /// A buffer of the worker's pool, which goes back there.
    Pool(Buffer),
    /// Memory of whoever asked (a virtual machine shares its own), which stays there.
    #[cfg_attr(not(test), expect(dead_code, reason = "of fronts that share memory with their clients"))]
    Guest(Guest),
}

/// Memory that somebody else owns, and has left to us.
pub(crate) struct Guest {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: whoever made it has promised that nobody else touches the memory (`Guest::new`).
unsafe impl Send for Guest {}

impl Guest {
    /// So many bytes from `start` on.
    ///
    /// # Safety
    /// They are valid, and nobody else touches them, until the ticket that holds them is released.
    #[cfg_attr(not(test), expect(dead_code, reason = "of fronts that share memory with their clients"))]
    pub(crate) const unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }
}

const NO_MEMORY: &str = "a read or write has memory until it is released";

impl Memory {
    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Pool(buffer) => buffer.bytes(),
            // SAFETY: the promise of `Guest::new`; the borrow of `self` keeps the ticket.
            Self::Guest(guest) => unsafe { std::slice::from_raw_parts(guest.start.as_ptr(), guest.len) },
            Self::None => panic!("{NO_MEMORY}"),
        }
    }

    /// The bytes, to be changed.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pool(buffer) => buffer.bytes_mut(),
            // SAFETY: as in `bytes`; the borrow is exclusive.
            Self::Guest(guest) => unsafe { std::slice::from_raw_parts_mut(guest.start.as_ptr(), guest.len) },
            Self::None => panic!("{NO_MEMORY}"),
        }
    }

    /// A part of it, as the kernel wants it, and its block if that may be registered.
    #[inline]
    pub(crate) fn piece(&self, offset: u64, bytes: u64) -> (libc::iovec, Option<u16>) {
        let (start, len, block) = match self {
            Self::Pool(buffer) => (buffer.as_ptr(), buffer.bytes().len(), buffer.block()),
            Self::Guest(guest) => (guest.start.as_ptr(), guest.len, None),
            Self::None => panic!("{NO_MEMORY}"),
        };
        assert!(offset + bytes <= len as u64, "a segment beyond its memory");
        (libc::iovec { iov_base: start.wrapping_add(offset as usize).cast(), iov_len: bytes as usize }, block)
    }
}
