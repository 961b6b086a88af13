//! A change of where blocks are, by one request.
//!
//! step.2  A request that changes where blocks are goes through these: it gets its blocks alone (claim.1); the map's page gets room in the
//!         file (overlay.6); blocks that it has in part are read from below; all is written; the map is told; the blocks are let go.
//! step.3  The bytes read around a part, and the client's bytes, are one write: nothing is copied.

use std::ops::Range;

use fairlift_core::queue::Segment;
use fairlift_core::{Bytes, Errno, Flags, Op, Outcome, Token};

use super::super::format::{BLOCK, page_offset};
use super::super::map::{BlockState, Cover, Place};
use super::{OnOverlay, ROOM, TopStage, give_back, is_copy};
use crate::device::file::is_unsupported;
use crate::device::lane::{Completed, Io, Request};
use crate::kernel::call::{Call, Work};
use crate::kernel::ticket::{Memory, Ticket};
use crate::sync::lock;

#[derive(Default)]
pub(super) struct Change {
    pub(super) blocks: Range<u64>,
    pub(super) edges: Vec<Edge>,
    /// The state of blocks in the top, once all is written.
    pub(super) becomes: Vec<(Range<u64>, BlockState)>,
}

/// A block that a request has in part, and that is not in the top.
pub(super) struct Edge {
    block: u64,
    /// Of the memory that all of it is read into.
    ticket: usize,
}

impl OnOverlay {
    /// overlay.6
    pub(super) fn reserve(&mut self, io: &mut Io<'_>, key: usize, change: Change) {
        while let Some(index) = self.layers.own.unreserved(&change.blocks) {
            let Some(file) = self.address.file else {
                self.layers.own.reserved(index);
                continue;
            };
            let step = self.own_step(key, ROOM);
            let pending = &mut self.pending[key];
            (pending.left, pending.stage) = (pending.left + 1, TopStage::Reserve(change, index));
            // Room is made, and nothing changed: another worker may do the same, and a flush may write there.
            let work = Work::Allocate { mode: libc::FALLOC_FL_KEEP_SIZE, at: page_offset(index, 1), len: 2 * BLOCK };
            // SAFETY: the call names no memory; its descriptor is the device's, which has a request.
            unsafe { io.ring.push(Call::File(file, work), self.data(step)) }
            return;
        }
        self.fill(io, key, change);
    }

    /// Our own call of the ring has ended.
    pub(super) fn allocated(&mut self, step: &Completed) {
        match -step.result {
            libc::EINTR | libc::EAGAIN => self.busy.push(step.tag),
            // Where it is not possible a full disk may fail a flush.
            errno if errno <= 0 || is_unsupported(errno) => self.ended.push((step.tag, Outcome::Done)),
            errno => {
                self.layers.top.failed(Op::Write, Errno(errno));
                self.ended.push((step.tag, Outcome::Failed(Errno(errno))));
            }
        }
    }

    /// Reads the blocks that a request has in part, where they are not in the top.
    pub(super) fn fill(&mut self, io: &mut Io<'_>, key: usize, mut change: Change) {
        let request @ Request { op, at, bytes, .. } = self.pending[key].request;
        let parts = match op {
            _ if is_copy(&request) => self.to_be_copied(&mut change),
            Op::Discard => Vec::new(),
            _ => Cover::of(at, bytes).partial,
        };
        for block in parts {
            let from = self.layers.places().of(block);
            let is_needed = match from {
                Place::Top => false,
                Place::Nowhere => op == Op::Write,
                Place::Below(_) => true,
            };
            if is_needed {
                let mut buffer = io.pool.get_anyway(BLOCK as usize);
                buffer.bytes_mut().fill(0);
                let ticket = io.tickets.insert(Ticket { owner: 0, memory: Memory::Pool(buffer) });
                let edge = Edge { block, ticket };
                if let Some((lane, offset)) = self.layers.file_of(from, block * BLOCK) {
                    let (op, flags, at) = (Op::Read, Flags::SYNC, block * BLOCK + offset);
                    let read = Request { op, flags, at, bytes: BLOCK, ..request };
                    self.step(key, lane, read, std::iter::once(memory_of(&edge, 0..BLOCK)));
                }
                change.edges.push(edge);
            }
        }
        if self.pending[key].left > 0 {
            self.pending[key].stage = TopStage::Fill(change);
        } else {
            self.store(io, key, change);
        }
    }

    pub(super) fn store(&mut self, io: &mut Io<'_>, key: usize, mut change: Change) {
        match self.pending[key].request.op {
            Op::Write if is_copy(&self.pending[key].request) => self.store_copies(key, &mut change),
            Op::Write => self.store_write(key, &mut change),
            Op::Discard | Op::WriteZeroes => self.store_zeroes(io, key, &mut change),
            Op::Read | Op::Flush => unreachable!("it changes nothing"),
        }
        if self.pending[key].left == 0 {
            self.changed(io, key, change);
        } else {
            self.pending[key].stage = TopStage::Store(change);
        }
    }

    /// step.3
    fn store_write(&mut self, key: usize, change: &mut Change) {
        let request = self.pending[key].request;
        let (mut at, mut end) = (request.at, request.at + request.bytes);
        let mut segments = Vec::new();
        if let Some(head) = change.edges.iter().find(|edge| edge.block == at / BLOCK && !at.is_multiple_of(BLOCK)) {
            segments.push(memory_of(head, 0..at % BLOCK));
            at -= at % BLOCK;
        }
        segments.append(&mut self.pending[key].segments);
        if let Some(tail) = change.edges.iter().find(|edge| edge.block == end / BLOCK && !end.is_multiple_of(BLOCK)) {
            segments.push(memory_of(tail, end % BLOCK..BLOCK));
            end = end.next_multiple_of(BLOCK);
        }
        change.becomes.push((change.blocks.clone(), BlockState::Data));
        self.on_top(key, Request { at, bytes: end - at, ..request }, &segments);
    }

    /// flatten.1
    fn store_copies(&mut self, key: usize, change: &mut Change) {
        let request = self.pending[key].request;
        for edge in &change.edges {
            let (at, block) = (edge.block * BLOCK, edge.block..edge.block + 1);
            self.on_top(key, Request { at, bytes: BLOCK, ..request }, &[memory_of(edge, 0..BLOCK)]);
            change.becomes.push((block, BlockState::Data));
        }
    }

    /// The blocks of data between the top and the base; those of zeroes become that in the top.
    fn to_be_copied(&self, change: &mut Change) -> Vec<u64> {
        let (mut at, mut data) = (change.blocks.start, Vec::new());
        while let Some((found, held)) = self.layers.places().between(at, change.blocks.end) {
            at = found.end;
            match held {
                BlockState::Data => data.extend(found),
                _ => change.becomes.push((found, held)),
            }
        }
        data
    }

    /// overlay.4
    fn store_zeroes(&mut self, io: &mut Io<'_>, key: usize, change: &mut Change) {
        let request = self.pending[key].request;
        let Cover { partial, whole } = Cover::of(request.at, request.bytes);
        let range = |blocks: &Range<u64>| (blocks.start * BLOCK, (blocks.end - blocks.start) * BLOCK);
        if !whole.is_empty() && request.flags.contains(Flags::NO_UNMAP) && request.op == Op::WriteZeroes {
            let (at, bytes) = range(&whole);
            self.on_top(key, Request { at, bytes, ..request }, &[]);
            change.becomes.push((whole, BlockState::Data));
        } else if !whole.is_empty() {
            if let Some(data) = self.data_within(&whole) {
                let (at, bytes) = range(&data);
                self.on_top(key, Request { op: Op::Discard, flags: Flags::NONE, at, bytes, ..request }, &[]);
            }
            let has_room = self.layers.own.reserved_within(&whole);
            change.becomes.extend(has_room.map(|blocks| (blocks, BlockState::Zero)));
        }
        if request.op == Op::Discard {
            return; // it may leave as they are what it has of blocks in part
        }
        for block in partial {
            let from = request.at.max(block * BLOCK);
            let to = (request.at + request.bytes).min((block + 1) * BLOCK);
            let edge = change.edges.iter().find(|edge| edge.block == block);
            match (edge, self.layers.places().of(block)) {
                (Some(edge), _) => {
                    let mine = (from - block * BLOCK) as usize..(to - block * BLOCK) as usize;
                    io.tickets[edge.ticket].memory.bytes_mut()[mine].fill(0);
                    let segments = [memory_of(edge, 0..BLOCK)];
                    let (op, at) = (Op::Write, block * BLOCK);
                    self.on_top(key, Request { op, flags: Flags::NONE, at, bytes: BLOCK, ..request }, &segments);
                    change.becomes.push((block..block + 1, BlockState::Data));
                }
                (None, Place::Top) => {
                    let flags = Flags::NO_UNMAP;
                    self.on_top(key, Request { flags, at: from, bytes: to - from, ..request }, &[]);
                }
                (None, _) => {} // zeroes already
            }
        }
    }

    /// From the first to the last of some blocks that are data in the top.
    fn data_within(&self, blocks: &Range<u64>) -> Option<Range<u64>> {
        let (mut at, mut found) = (blocks.start, None::<Range<u64>>);
        while at < blocks.end {
            let (held, end) = self.layers.own.run(at, blocks.end);
            if held == BlockState::Data {
                found = Some(found.map_or(at, |found| found.start)..end);
            }
            at = end;
        }
        found
    }

    /// A request that changes where blocks are has ended.
    pub(super) fn changed(&mut self, io: &mut Io<'_>, key: usize, change: Change) {
        if self.pending[key].is_done() {
            for (blocks, held) in change.becomes {
                self.layers.own.set(blocks, held); // overlay.1
            }
        }
        change.edges.iter().for_each(|edge| give_back(io, edge.ticket));
        self.let_go(io, &change.blocks);
        self.end(io, key);
    }

    /// Lets blocks go, and those go on that waited for them, here or on other workers.
    pub(super) fn let_go(&mut self, io: &mut Io<'_>, blocks: &Range<u64>) {
        let granted = lock(&self.device.claims).release(blocks);
        for (worker, leave) in granted {
            if worker == io.context {
                self.may_go_on(leave);
            } else {
                io.helpers.tell(worker, (self.data(leave), 0));
            }
        }
    }
}

fn memory_of(edge: &Edge, part: Range<u64>) -> Segment {
    Segment { token: Token(edge.ticket as u64), offset: Bytes(part.start), bytes: Bytes(part.end - part.start) }
}
