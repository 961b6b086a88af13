//! Reads: from the disks, or ahead of the reader (raid.2, raid.5).

use fairlift_core::Op;
use fairlift_core::model::ModelRequest;

use super::{Raid, Task, TaskKind, streams};

impl Raid {
    /// raid.2.
    pub(super) fn read(&mut self, now: u64, request: &ModelRequest) {
        let (start, end) = (request.extent.start.0, request.extent.end().0);
        if self.settings.cache_sectors() > 0 && self.layout.pieces(start, end).all(|piece| self.cache.covers(&piece)) {
            self.transfer(now, request);
            return;
        }
        let task = self.task(TaskKind::Read { request: *request, stream: None });
        let (stream, found) = self.streams.read(now, task, start, end);
        let mut left = 0;
        if let Some(found) = found {
            left += self.read_parts(now, task, start, found.start.min(end));
            left += self.read_parts(now, task, found.end, end) + found.under_way;
            self.read_ahead(now, &found);
        } else {
            left += self.read_parts(now, task, start, end);
        }
        if left == 0 {
            self.tasks.remove(task);
            return self.read_ends(now, request, stream);
        }
        self.tasks[task] = Task { left, kind: TaskKind::Read { request: *request, stream } };
    }

    /// All of a read is in the controller.
    pub(super) fn read_ends(&mut self, now: u64, request: &ModelRequest, stream: Option<u32>) {
        let at = self.transfer(now, request);
        if let Some(stream) = stream {
            self.streams.ended(at, stream);
        }
    }

    fn read_ahead(&mut self, now: u64, found: &streams::Found) {
        if !self.streams.wants(found, self.settings.prefetch_sectors()) {
            return;
        }
        while let Some(ahead) =
            self.streams.ahead(found, self.settings.prefetch_sectors(), self.layout.chunk, self.sectors)
        {
            let task = self.task(TaskKind::Ahead(ahead));
            self.tasks[task].left = self.read_parts(now, task, ahead.start, ahead.end);
        }
    }

    /// Asks the disks for the extent from `start` to `end`; in how many parts (raid.5).
    fn read_parts(&mut self, now: u64, task: usize, start: u64, end: u64) -> u32 {
        let mut parts = 0;
        for piece in self.layout.pieces(start, end) {
            let (place, sectors) = (piece.stripe * self.layout.chunk + piece.from, piece.to - piece.from);
            let disk = self.layout.disk(piece.stripe, piece.index);
            let from = if disk < self.missing { self.missing..self.layout.disks as usize } else { disk..disk + 1 };
            for disk in from {
                self.members.submit(now, disk, task, Op::Read, place, sectors);
                parts += 1;
            }
        }
        parts
    }
}
