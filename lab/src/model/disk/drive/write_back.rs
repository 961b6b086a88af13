//! Writes that end in the cache, and their way to the medium: drive.5, drive.6.

use fairlift_core::model::ModelRequest;
use fairlift_core::{Flags, Outcome};

use super::{Arm, Drive};

/// The most runs that the write cache keeps apart, and the longest that is written back at once, in sectors. No data sheet says:
/// chosen, a table of some KiB in the drive, and drive.5's MiB.
pub(super) const RUNS: usize = 1024;
const RUN_SECTORS: u64 = 2048;
/// How many runs on each side of the head are looked at when one is chosen. Chosen: as many on both as NCQ has commands.
const RUNS_SEEN: usize = 16;
/// No sector: the head goes on with none.
const NOWHERE: u64 = u64::MAX;

impl Drive {
    pub(super) fn must_write_back(&self) -> bool {
        let full = self.dirty.sectors * 4 > self.settings.write_cache_sectors() * 3 || self.dirty.runs() * 4 > RUNS * 3;
        !self.dirty.is_empty() && (full || self.flush.is_some() || !self.held.is_empty())
    }

    /// drive.6.
    pub(super) fn end_flush(&mut self, now: u64) {
        let writing = matches!(self.arm, Arm::WritesBack { .. });
        let Some(flush) = self.flush.as_mut().filter(|_| self.dirty.is_empty() && !writing) else { return };
        if *flush.ends.get_or_insert(now + self.settings.flush.as_nanos()) <= now {
            let id = flush.id;
            self.flush = None;
            self.end(now, id, Outcome::Done);
        }
    }

    /// drive.5.
    pub(super) fn look_at_write(&mut self, now: u64, request: &ModelRequest) {
        let (start, end) = (request.extent.start.0, request.extent.end().0);
        self.read_on_to(now);
        if let Arm::ReadsOn { segment, .. } = self.arm
            && self.cache.get(segment).start < end
            && start <= self.cache.get(segment).end
        {
            self.stop_reading_on(now);
        }
        self.cache.drop(start, end);
        let mut write = self.waiting_for(now, request);
        if end - start <= self.settings.write_cache_sectors() && !request.flags.contains(Flags::FUA) {
            self.held.push_back(write);
            return self.let_in(now);
        }
        write.ready = self.link_free.max(now) + self.link_time(end - start);
        self.link_free = write.ready;
        self.waiting.push(write);
    }

    /// drive.5: writes enter the cache as long as there is room.
    fn let_in(&mut self, now: u64) {
        while let Some(&write) = self.held.front()
            && self.dirty.sectors + write.sectors <= self.settings.write_cache_sectors()
            && self.dirty.runs() < RUNS
        {
            self.held.pop_front();
            self.dirty.add(write.start, write.end);
            self.transfer(now, now, write.id, write.sectors);
            self.choose_again(now);
        }
    }

    /// drive.5: the arm is over the cylinder of a run and waits for its start; another run may come by before that.
    fn choose_again(&mut self, now: u64) {
        let Arm::WritesBack { run, settled, from, .. } = self.arm else { return };
        if from <= now {
            return;
        }
        self.head.sector = NOWHERE;
        let at = now.max(settled);
        if self.nearest_run(at, run.0).is_none_or(|(_, there)| there >= from) {
            self.head.sector = run.1;
            return;
        }
        self.dirty.add(run.0, run.1); // the one that comes by first may touch it, and be one with it now
        if let Some((start, there)) = self.nearest_run(at, run.0) {
            self.write_run(at, start, there);
        }
    }

    /// drive.5: the run that is reached first of those near a sector, and when.
    fn nearest_run(&self, now: u64, near: u64) -> Option<(u64, u64)> {
        let runs = self.dirty.around(near, RUNS_SEEN);
        let reached = |start: u64| (start, self.arrive(now, start, self.geometry.place(start), true, 0));
        runs.iter().map(|run| reached(run.0)).min_by_key(|(_, at)| *at)
    }

    pub(super) fn write_back(&mut self, now: u64) {
        let Some((start, there)) = self.nearest_run(now, self.head.sector) else { return };
        self.wrote_back = true;
        self.write_run(now, start, there);
    }

    fn write_run(&mut self, now: u64, start: u64, there: u64) {
        let place = self.geometry.place(start);
        let settled = now + self.seek.time(place.cylinder.abs_diff(self.head.cylinder));
        let end = self.dirty.take(start, RUN_SECTORS);
        let until = there + (self.geometry.place(end).media - place.media);
        self.arm = Arm::WritesBack { run: (start, end), settled, from: there, until };
        self.leave_at(end);
        self.let_in(now);
    }
}
