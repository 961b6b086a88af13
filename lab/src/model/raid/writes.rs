//! Writes: to memory or the disks, a stripe at a time (raid.3), and flushed (raid.4).

use fairlift_core::model::ModelRequest;
use fairlift_core::{Flags, Op, Outcome};

use super::stripes::Spans;
use super::{Raid, STAY, Task, TaskKind};

impl Raid {
    /// raid.3.
    pub(super) fn write(&mut self, now: u64, request: &ModelRequest) {
        let (start, end) = (request.extent.start.0, request.extent.end().0);
        let stripes = start / self.layout.stripe()..=(end - 1) / self.layout.stripe();
        let held = self.cache.sectors + self.leaving_sectors;
        let room =
            held + (end - start) <= self.settings.cache_sectors() && self.cache.has_place(stripes.clone().count());
        let forced = request.flags.contains(Flags::FUA) && !self.settings.battery;
        if room && !forced {
            for piece in self.layout.pieces(start, end) {
                self.cache.add(now, &self.layout, &piece);
            }
            self.transfer(now, request);
            return;
        }
        // Its data crosses the link while the disks are on their way.
        self.crosses(now, end - start);
        let task = self.task(TaskKind::Write { request: *request });
        for stripe in stripes {
            let mut spans = Spans::NONE;
            let (from, to) = (stripe * self.layout.stripe(), (stripe + 1) * self.layout.stripe());
            self.layout.pieces(start.max(from), end.min(to)).for_each(|piece| _ = spans.add(&piece));
            self.tasks[task].left += 1;
            self.write_stripe(now, Some(task), stripe, &spans);
        }
    }

    fn write_stripe(&mut self, now: u64, of: Option<usize>, stripe: u64, spans: &Spans) {
        let task = self.task(TaskKind::Stripe { of, stripe, spans: *spans, reading: true });
        let mut left = 0;
        let members = &mut self.members;
        spans.reads(&self.layout, stripe, self.missing, |part| {
            members.submit(now, part.disk, task, Op::Read, part.start, part.sectors);
            left += 1;
        });
        self.tasks[task].left = left;
        if left == 0 {
            self.write_parts(now, task);
        }
    }

    /// All that the new parity needs was read.
    pub(super) fn write_parts(&mut self, now: u64, task: usize) {
        let Task { left, kind: TaskKind::Stripe { stripe, spans, reading, .. } } = &mut self.tasks[task] else {
            unreachable!("only a stripe is written")
        };
        *reading = false;
        let members = &mut self.members;
        spans.writes(&self.layout, *stripe, self.missing, |part| {
            members.submit(now, part.disk, task, Op::Write, part.start, part.sectors);
            *left += 1;
        });
        assert!(*left > 0, "with at most as many disks missing as there is parity, something is written");
    }

    /// raid.3: what leaves the cache now.
    pub(super) fn write_back(&mut self, now: u64) {
        while self.leaving < self.layout.disks as usize * 2 {
            let full = self.cache.sectors * 2 > self.settings.cache_sectors() || self.cache.is_crowded();
            let old = self.cache.oldest().is_some_and(|came| came + STAY <= now);
            let next = self.cache.take_complete();
            let must = full || old || !self.flushes.is_empty();
            let Some((stripe, spans)) = next.or_else(|| if must { self.cache.take_next() } else { None }) else {
                return;
            };
            self.leaving += 1;
            self.leaving_sectors += spans.sectors();
            self.write_stripe(now, None, stripe, &spans);
        }
    }

    /// raid.4.
    pub(super) fn flush(&mut self, now: u64) {
        if self.flushes.is_empty() || self.flushing || !self.cache.is_empty() || self.leaving > 0 {
            return;
        }
        if !self.settings.disk.write_cache {
            return self.end_flushes(now);
        }
        let task = self.task(TaskKind::Flush);
        let disks = self.missing..self.layout.disks as usize;
        self.tasks[task].left = disks.len() as u32;
        disks.for_each(|disk| self.members.submit(now, disk, task, Op::Flush, 0, 0));
        self.flushing = true;
    }

    pub(super) fn end_flushes(&mut self, now: u64) {
        while let Some(id) = self.flushes.pop_front() {
            self.end(now, id, Outcome::Done);
        }
    }
}
