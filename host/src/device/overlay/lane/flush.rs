//! A flush: the data, then the map.
//!
//! step.4  A flush that finds pages to write is a sync, writes of the pages, and a sync (overlay.3).

use fairlift_core::queue::Segment;
use fairlift_core::{Bytes, Flags, Op, Outcome, Token};

use super::super::claims::MAP;
use super::super::format::{BLOCK, Id, PageImage, page_offset};
use super::{OnOverlay, PAGES_AT_ONCE, TOP, TopStage};
use crate::device::lane::{Io, Request};
use crate::kernel::ticket::{Memory, Ticket};
use crate::sync::lock;

impl OnOverlay {
    /// overlay.3: no other flush writes the map now.
    pub(super) fn flush(&mut self, io: &mut Io<'_>, key: usize) {
        // One that is only read may have pages that a crash has torn, and leaves them so.
        if self.device.read_only || !self.layers.own.is_dirty() {
            self.let_go(io, &MAP);
            return self.sync(key);
        }
        if let Err(error) = self.layers.is_to_be_written() {
            self.pending[key].outcome = Outcome::Failed(crate::outcome::errno(&error));
            return self.flushed(io, key, &[]);
        }
        self.pending[key].stage = TopStage::Sync(self.layers.own.take_dirty()); // before the sync (map.2)
        self.sync(key);
    }

    pub(super) fn write_pages(&mut self, io: &mut Io<'_>, key: usize, pages: Vec<PageImage>, done: usize) {
        let id: Id = lock(&self.layers.header).id;
        let mut tickets = Vec::new();
        for page in &pages[done..pages.len().min(done + PAGES_AT_ONCE)] {
            let mut buffer = io.pool.get_anyway(BLOCK as usize);
            page.encode(&id, buffer.bytes_mut());
            let ticket = io.tickets.insert(Ticket { owner: 0, memory: Memory::Pool(buffer) });
            tickets.push(ticket);
            let at = page_offset(page.index, page.sequence);
            let request = Request { op: Op::Write, flags: Flags::NONE, at, bytes: BLOCK, ..self.pending[key].request };
            let segment = Segment { token: Token(ticket as u64), offset: Bytes(0), bytes: Bytes(BLOCK) };
            self.step(key, TOP, request, std::iter::once(segment));
        }
        self.pending[key].stage = TopStage::Pages(pages, done, tickets);
    }

    /// A flush that writes the map has ended.
    pub(super) fn flushed(&mut self, io: &mut Io<'_>, key: usize, pages: &[PageImage]) {
        self.layers.own.settle(pages, self.pending[key].is_done());
        self.let_go(io, &MAP);
        self.end(io, key);
    }
}
