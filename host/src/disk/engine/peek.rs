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

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use fairlift_core::{ContextId, Flags, Group, GroupId, Instant, Op, Priority, Sector, Stream, sched};

    use super::super::bench::{self, turned};
    use super::super::{Engine, News};
    use crate::config;
    use crate::device::lane::{Address, Io, Lane, Request};
    use crate::device::{Device, Facts};
    use crate::disk::Disk;
    use crate::kernel::ticket::Tickets;
    use fairlift_core::queue::Segment;
    use fairlift_core::{Outcome, StreamId};

    const SIZE: u64 = 1 << 20;

    /// A device above which is memory that knows its size.
    struct Cached;

    impl Device for Cached {
        fn facts(&self) -> Facts {
            Facts::plain(SIZE)
        }

        fn called(&self) -> String {
            "cached".into()
        }

        fn lane(self: Arc<Self>, _address: Address) -> Box<dyn Lane> {
            Box::new(Self)
        }
    }

    impl Lane for Cached {
        fn peeks(&self) -> bool {
            true
        }

        fn peek(&mut self, _tickets: &mut Tickets, request: &Request, _segments: &[Segment]) -> Option<bool> {
            assert!(request.at + request.bytes <= SIZE, "another one's request");
            Some(false)
        }

        fn queue(&mut self, io: &mut Io<'_>, _now: Instant, requests: &[Request], _segments: &[Segment]) {
            io.ended.extend(requests.iter().map(|request| (request.tag, Outcome::Done)));
        }
    }

    /// A client of a worker that was not woken yet.
    fn client(engine: &mut Engine) -> StreamId {
        let (group, priority) = (GroupId::ROOT, Priority::default());
        engine.add_stream(0, Stream { group, priority, context: ContextId(0) })
    }

    fn reads(worker: &mut (Engine, StreamId), now: &mut Instant, sectors: &Range<u64>) {
        let ticket = bench::submit(worker, Op::Read, Flags::NONE, sectors, &[]);
        turned(&mut worker.0, now);
        assert_eq!(std::mem::take(&mut worker.0.news), [(ticket, News::Ended(Outcome::Done))]);
        worker.0.release(ticket);
    }

    /// Exports are published before workers are woken for them: a client that asks for one at that moment finds it.
    #[test]
    fn a_client_is_served_by_a_backing_or_disk_that_came_a_moment_before() {
        let mut workers = bench::workers(Arc::new(Cached), sched::Kind::Fair, 1);
        let (mut now, (disk, disks)) = (Instant::ZERO, bench::disk(&workers));
        let worker = &mut workers[0];
        reads(worker, &mut now, &(0..8));
        let start = disk.add(&(Arc::new(Cached), None)).unwrap().0;
        worker.0.remove_stream(0, worker.1);
        worker.1 = client(&mut worker.0);
        reads(worker, &mut now, &(start..start + 8));
        // A disk on which is nothing any more is made anew with the next backing.
        worker.0.remove_stream(0, worker.1);
        let settings = config::Disk::new("d", sched::Kind::Fair);
        let anew = Disk::new(&settings, &[(Arc::new(Cached) as _, None)], &[Group::root()], 1).unwrap();
        disks.set(0, Some(Arc::new(anew)));
        worker.1 = client(&mut worker.0);
        reads(worker, &mut now, &(0..8));
        assert_eq!(Sector(start), disk.places()[1].start, "the disk before was left");
    }
}
