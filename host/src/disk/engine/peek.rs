//! A read is asked of memory above the disk before it is scheduled (queue.19 of the core).

use fairlift_core::queue::Segment;
use fairlift_core::{Bio, Bytes, Flags, Tag};

use super::{DiskHandle, Place};
use crate::device::lane::Request;
use crate::kernel::ticket::Tickets;

impl DiskHandle {
    /// A read, with the answer of memory above the disk in its flags. They are the engine's alone: a client that sets them is not believed, or its
    /// read would end with stale memory.
    #[inline]
    pub(super) fn peek(&mut self, tickets: &mut Tickets, bio: Bio) -> Bio {
        let bio = Bio { flags: bio.flags.without(Flags::CACHED.with(Flags::MISSED)), ..bio };
        if self.peeks { self.ask_memory(tickets, bio) } else { bio }
    }

    #[inline(never)]
    fn ask_memory(&mut self, tickets: &mut Tickets, bio: Bio) -> Bio {
        let Bio { op, flags, extent, token, .. } = bio;
        let (place, at) = Place::locate(&self.places, extent);
        let bytes = extent.bytes();
        let request = Request { tag: Tag(0), op, flags, at, bytes: bytes.get(), place, segments: 1 };
        let segment = Segment { token, offset: Bytes(0), bytes };
        let found = match self.lanes.get_mut(place).and_then(|lane| lane.peek(tickets, &request, &[segment])) {
            Some(true) => Flags::CACHED,
            Some(false) => Flags::MISSED,
            None => Flags::NONE,
        };
        Bio { flags: flags | found, ..bio }
    }
}
