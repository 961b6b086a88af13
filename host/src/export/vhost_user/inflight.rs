//! The table of requests under way, in memory that outlives the server.
//!
//! A server that is killed leaves requests that the guest waits for: it has taken them from the available ring, and they are
//! not in the used ring. Example: of the requests 1 to 8, 3 and 7 have ended; the next server must do 1, 2, 4, 5, 6 and 8
//! again, and no other. The front-end keeps the table in between, and gives it to the next server. Its layout is the
//! specification's.
//!
//! inflight.1  A request is in the table before it is given to a device, and until the guest is told of its end.
//! inflight.2  The next server does what is in the table, in the order in which it was taken.
//! inflight.3  The tables also say whether the guest has switched its write cache off. Front-ends do not say it again to the next server, whose
//!             writes would end before they are durable, and the guest does not flush them. The specification has a word for features there,
//!             which no server has used.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vm_memory::{AtomicAccess, Bytes as _, FileOffset, MmapRegion, VolatileMemory as _};

use crate::kernel::lent::Lent;

/// Before the descriptors: features (8), version (2), descriptors (2), the last one that ended (2), and the used ring's index of then (2).
const HEAD: usize = 16;
const FEATURES: usize = 0;
const VERSION: usize = 8;
const DESCRIPTORS: usize = 10;
const LAST: usize = 12;
const USED: usize = 14;
/// Of a descriptor: whether it is under way (1), padding (5), the one that ended before (2), its place in the order (8).
const DESCRIPTOR: usize = 16;
const BEFORE: usize = 6;
const ORDER: usize = 8;
/// Of the features of the first table: the guest has no write cache (inflight.3).
const WRITES_THROUGH: u64 = 1 << 63;
/// Each ring's table starts on a cache line.
const ALIGN: usize = 64;

pub(super) struct Inflight {
    // Goes before what it names is unmapped.
    _lent: Lent,
    map: MmapRegion,
    queues: u16,
    size: u16,
}

/// The length of the tables of this number of rings.
pub(super) fn bytes(queues: u16, size: u16) -> usize {
    usize::from(queues) * stride(size)
}

fn stride(size: u16) -> usize {
    (HEAD + usize::from(size) * DESCRIPTOR).next_multiple_of(ALIGN)
}

impl Inflight {
    pub(super) fn new(queues: u16, size: u16) -> std::io::Result<Self> {
        let file = memfd_create("inflight", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes(queues, size) as u64)?;
        let tables = Self::open(file, 0, queues, size).map_err(std::io::Error::other)?;
        for queue in 0..queues {
            let start = usize::from(queue) * stride(size);
            tables.store(start + VERSION, 1u16);
            tables.store(start + DESCRIPTORS, size);
        }
        Ok(tables)
    }

    /// The tables that a front-end has kept.
    pub(super) fn open(file: OwnedFd, offset: u64, queues: u16, size: u16) -> Result<Self, String> {
        let file: std::fs::File = file.into();
        let length = file.metadata().map_err(|error| error.to_string())?.len();
        let bytes = bytes(queues, size);
        if offset.checked_add(bytes as u64).is_none_or(|end| end > length) {
            return Err(format!(
                "the tables of {queues} rings of {size} take {bytes} bytes from {offset} on, and the file has {length}"
            ));
        }
        let map = MmapRegion::from_file(FileOffset::new(file, offset), bytes).map_err(|error| error.to_string())?;
        let _lent = Lent::new(map.as_ptr(), map.size());
        Ok(Self { _lent, map, queues, size })
    }

    /// The file that others keep, and in it the place, the number of rings and their size.
    pub(super) fn shared(&self) -> (BorrowedFd<'_>, (u64, u16, u16)) {
        let at = self.map.file_offset().expect("it is mapped from a file");
        (at.file().as_fd(), (at.start(), self.queues, self.size))
    }

    /// Whether a ring of this size has a table.
    pub(super) const fn has(&self, ring: usize, size: u16) -> bool {
        ring < self.queues as usize && size <= self.size
    }

    /// Whether the guest had a write cache, as far as the previous server knew (inflight.3).
    pub(super) fn write_back(&self) -> bool {
        self.load::<u64>(FEATURES) & WRITES_THROUGH == 0
    }

    pub(super) fn keep_write_back(&self, write_back: bool) {
        let others = self.load::<u64>(FEATURES) & !WRITES_THROUGH;
        self.store(FEATURES, others | if write_back { 0 } else { WRITES_THROUGH });
    }

    fn store<T: AtomicAccess>(&self, at: usize, value: T) {
        let memory = self.map.as_volatile_slice();
        memory.store(value, at, Ordering::Release).expect("the tables are as long as they are said to be");
    }

    fn load<T: AtomicAccess>(&self, at: usize) -> T {
        let memory = self.map.as_volatile_slice();
        memory.load(at, Ordering::Acquire).expect("the tables are as long as they are said to be")
    }
}

pub(super) struct Table {
    tables: Arc<Inflight>,
    start: usize,
    size: u16,
    taken: u64,
}

impl Table {
    /// Takes over a ring of this size, whose used ring has this index: with it what was under way, in order (inflight.2).
    pub(super) fn take_over(tables: &Arc<Inflight>, ring: usize, size: u16, used: u16) -> (Self, Vec<u16>) {
        assert!(tables.has(ring, size));
        let start = ring * stride(tables.size);
        let mut table = Self { tables: Arc::clone(tables), start, size, taken: 0 };
        if table.tables.load::<u16>(start + USED) != used {
            // It was killed after the guest had been told of an end, and before the table was.
            let last: u16 = table.tables.load(start + LAST);
            if last < size {
                table.set(last, false);
            }
            table.tables.store(start + USED, used);
        }
        let mut left: Vec<(u64, u16)> = (0..size)
            .filter(|head| table.tables.load::<u8>(table.of(*head)) == 1)
            .map(|head| (table.tables.load(table.of(head) + ORDER), head))
            .collect();
        left.sort_unstable();
        table.taken = left.last().map_or(0, |(order, _)| order.saturating_add(1));
        (table, left.into_iter().map(|(_, head)| head).collect())
    }

    /// A request was taken from the available ring (inflight.1).
    pub(super) fn took(&mut self, head: u16) {
        self.tables.store(self.of(head) + ORDER, self.taken);
        self.taken += 1;
        self.set(head, true);
    }

    /// The guest is about to be told that a request ended.
    pub(super) fn ending(&self, head: u16) {
        let before: u16 = self.tables.load(self.start + LAST);
        self.tables.store(self.of(head) + BEFORE, before);
        self.tables.store(self.start + LAST, head);
    }

    /// The guest was told: the used ring's index is now this.
    pub(super) fn ended(&self, head: u16, used: u16) {
        self.set(head, false);
        self.tables.store(self.start + USED, used);
    }

    fn set(&self, head: u16, under_way: bool) {
        self.tables.store(self.of(head), u8::from(under_way));
    }

    fn of(&self, head: u16) -> usize {
        debug_assert!(head < self.size);
        self.start + HEAD + usize::from(head) * DESCRIPTOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> Arc<Inflight> {
        Arc::new(Inflight::new(2, 8).unwrap())
    }

    /// The next server has another mapping of the same file.
    fn next(tables: &Inflight) -> Arc<Inflight> {
        let file = tables.shared().0.try_clone_to_owned().unwrap();
        Arc::new(Inflight::open(file, 0, 2, 8).unwrap())
    }

    /// inflight.2
    #[test]
    fn the_next_server_does_what_had_not_ended_in_its_order() {
        let tables = tables();
        let (mut table, left) = Table::take_over(&tables, 1, 8, 0);
        assert!(left.is_empty());
        for head in [5, 2, 7, 0, 3] {
            table.took(head);
        }
        for (head, used) in [(2, 1), (0, 2)] {
            table.ending(head);
            table.ended(head, used);
        }
        let (mut table, left) = Table::take_over(&next(&tables), 1, 8, 2);
        assert_eq!(left, [5, 7, 3]);
        table.took(2);
        assert_eq!(Table::take_over(&next(&tables), 1, 8, 2).1, [5, 7, 3, 2], "what is new comes last");
        assert!(Table::take_over(&next(&tables), 0, 8, 0).1.is_empty(), "the other ring has a table of its own");
    }

    #[test]
    fn what_the_guest_was_told_just_before_the_end_is_not_done_again() {
        let tables = tables();
        let (mut table, _) = Table::take_over(&tables, 0, 8, 0);
        table.took(4);
        table.took(6);
        table.ending(6); // and the used ring says 1, and then it is killed
        assert_eq!(Table::take_over(&next(&tables), 0, 8, 1).1, [4]);
        assert_eq!(Table::take_over(&next(&tables), 0, 8, 1).1, [4], "and so for the one after that");
    }

    /// inflight.3
    #[test]
    fn the_next_server_knows_that_the_guest_has_no_write_cache() {
        let tables = tables();
        assert!(next(&tables).write_back());
        tables.keep_write_back(false);
        assert!(!next(&tables).write_back());
        Table::take_over(&tables, 0, 8, 0).0.took(7);
        assert_eq!(Table::take_over(&next(&tables), 0, 8, 0).1, [7]);
        tables.keep_write_back(true);
        assert!(next(&tables).write_back());
    }

    #[test]
    fn tables_that_are_too_short_are_refused() {
        let file = tables().shared().0.try_clone_to_owned().unwrap();
        let error = Inflight::open(file, 64, 2, 8).err().unwrap();
        assert!(error.contains("2 rings of 8"), "{error}");
    }
}
