//! Blocks: the right to change a disk's blocks, once a client writes parts of them.
//!
//! A disk changes whole blocks. If a client writes 100 bytes, the block is read, changed in memory and written back; what
//! another client has written into that block in between would be lost. So such a write has its blocks to itself. Example: A
//! writes bytes 0 to 99, B bytes 100 to 199, both of block 0: B's read waits until A's write has ended.
//!
//! blocks.1  A write of whole blocks shares them with other such writes; a write of parts of blocks has its own alone. Requests that must
//!           wait go in the order in which they were asked.
//! blocks.2  Nobody keeps account of a disk's writes before a client first writes a part of a block there: until then, writes of whole
//!           blocks cost nothing. From then on each worker first lets end what the disk's queue has of it, and then claims blocks for each
//!           write. The first part is written when all workers do so that have clients here; a worker whose first client comes later does
//!           so from the start. Where a request took too long and is still in the device, parts wait for its end, and nothing else does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use fairlift_core::{ContextId, Extent};

use crate::sync::{Mutex, lock};

/// A request: its worker, and its ticket there.
type Key = (u16, usize);

#[derive(Default)]
pub(crate) struct Blocks {
    on: AtomicBool,
    table: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// One bit for each worker that is here and may have writes under way without a claim.
    unsettled: u64,
    held: BTreeMap<Key, Claim>,
    waiting: VecDeque<(Key, Claim)>,
    /// Claims that waited and have been granted, by worker, until it takes them.
    granted: BTreeMap<u16, Vec<usize>>,
}

#[derive(Clone, Copy)]
struct Claim {
    extent: Extent,
    alone: bool,
}

impl Claim {
    /// Whether both cannot be held at once (blocks.1).
    fn excludes(&self, other: &Self) -> bool {
        (self.alone || other.alone)
            && self.extent.start.0 < other.extent.start.0 + other.extent.sectors
            && other.extent.start.0 < self.extent.start.0 + self.extent.sectors
    }
}

impl Blocks {
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// A worker has its first client here; whether it claims blocks for all its writes from the start, since others do.
    pub(crate) fn enter(&self, worker: ContextId) -> bool {
        let mut table = lock(&self.table);
        // Under the lock: if this is too early to see it, who claims next sees that the worker is here.
        let on = self.is_on();
        table.unsettled |= u64::from(!on) << worker.0;
        on
    }

    /// Blocks are claimed from now on; all workers are to be woken.
    pub(crate) fn begin(&self) {
        self.on.store(true, Ordering::Release);
    }

    /// A worker claims blocks for all its writes from now on, and has none under way without, or it has ended; the workers
    /// that are to be woken.
    pub(crate) fn settled(&self, worker: ContextId) -> u64 {
        let mut table = lock(&self.table);
        table.unsettled &= !(1 << worker.0);
        table.grant()
    }

    /// Claims blocks; whether the request may go. If it may not, it is granted later.
    pub(crate) fn claim(&self, worker: ContextId, ticket: usize, extent: Extent, alone: bool) -> bool {
        let mut table = lock(&self.table);
        let (key, claim) = ((worker.0, ticket), Claim { extent, alone });
        let goes = table.may_hold(&claim) && !table.waiting.iter().any(|(_, before)| before.excludes(&claim));
        if goes {
            table.held.insert(key, claim);
        } else {
            table.waiting.push_back((key, claim));
        }
        goes
    }

    /// A request has ended; the workers that are to be woken.
    pub(crate) fn release(&self, worker: ContextId, ticket: usize) -> u64 {
        let mut table = lock(&self.table);
        table.held.remove(&(worker.0, ticket)).expect("a claim is held until it is released");
        table.grant()
    }

    /// The requests of a worker that waited and may go.
    pub(crate) fn take_granted(&self, worker: ContextId) -> Vec<usize> {
        lock(&self.table).granted.remove(&worker.0).unwrap_or_default()
    }
}

impl State {
    fn may_hold(&self, claim: &Claim) -> bool {
        (!claim.alone || self.unsettled == 0) && !self.held.values().any(|held| held.excludes(claim))
    }

    /// Grants waiting claims that can be granted, in order; the workers that have something.
    fn grant(&mut self) -> u64 {
        let mut workers = 0;
        let mut waiting: VecDeque<(Key, Claim)> = VecDeque::new();
        for (key, claim) in std::mem::take(&mut self.waiting) {
            if self.may_hold(&claim) && !waiting.iter().any(|(_, before)| before.excludes(&claim)) {
                self.held.insert(key, claim);
                self.granted.entry(key.0).or_default().push(key.1);
                workers |= 1 << key.0;
            } else {
                waiting.push_back((key, claim));
            }
        }
        self.waiting = waiting;
        workers
    }
}

#[cfg(test)]
mod tests {
    use fairlift_core::Sector;

    use super::*;

    const A: ContextId = ContextId(0);
    const B: ContextId = ContextId(1);

    fn at(start: u64, sectors: u64) -> Extent {
        Extent::new(Sector(start), sectors)
    }

    fn settled() -> Blocks {
        let blocks = entered();
        blocks.begin();
        blocks.settled(A);
        blocks.settled(B);
        blocks
    }

    fn entered() -> Blocks {
        let blocks = Blocks::default();
        assert!(!blocks.enter(A) && !blocks.enter(B), "nobody claims blocks yet");
        blocks
    }

    /// blocks.1
    #[test]
    fn whole_blocks_are_shared_and_parts_are_had_alone_in_order() {
        let blocks = settled();
        assert!(blocks.claim(A, 1, at(0, 8), false));
        assert!(blocks.claim(B, 1, at(4, 8), false), "both write whole blocks");
        assert!(!blocks.claim(A, 2, at(8, 1), true), "B writes there");
        assert!(blocks.claim(A, 3, at(12, 1), true), "nobody writes there");
        assert!(!blocks.claim(B, 2, at(8, 1), false), "A was first");
        assert_eq!(blocks.release(A, 1), 0);
        assert_eq!(blocks.release(B, 1), 0b01);
        assert_eq!((blocks.take_granted(A), blocks.take_granted(B)), (vec![2], vec![]));
        assert_eq!(blocks.release(A, 2), 0b10);
        assert_eq!(blocks.take_granted(B), [2]);
    }

    /// blocks.2
    #[test]
    fn parts_wait_until_all_workers_claim_blocks_and_whole_blocks_do_not() {
        let blocks = entered();
        blocks.begin();
        assert_eq!(blocks.settled(A), 0);
        assert!(!blocks.claim(A, 1, at(0, 1), true), "B may have a write there under way");
        assert!(blocks.claim(A, 2, at(8, 1), false));
        assert_eq!(blocks.settled(B), 0b01);
        assert_eq!(blocks.take_granted(A), [1]);
    }

    /// blocks.2
    #[test]
    fn a_worker_that_comes_later_is_not_waited_for_and_claims_blocks_from_the_start() {
        let blocks = Blocks::default();
        blocks.enter(A);
        blocks.begin();
        blocks.settled(A);
        assert!(blocks.claim(A, 1, at(0, 1), true), "nobody else is here");
        assert!(blocks.enter(B));
        assert!(!blocks.claim(B, 1, at(0, 1), false), "A writes there");
        assert!(blocks.claim(A, 2, at(8, 1), true), "B has claimed all that it writes");
        assert_eq!((blocks.release(A, 1), blocks.take_granted(B)), (0b10, vec![1]));
    }
}
