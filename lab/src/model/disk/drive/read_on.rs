//! Reading on after a command: drive.4.

use super::super::segments::Segment;
use super::{Arm, Drive, Queued};

impl Drive {
    /// The part of a read before `there` was read.
    pub(super) fn leave_out(&self, read: &mut Queued, there: u64) {
        assert!(there < read.end, "nothing of a read is left, and it waits");
        (read.start, read.place) = (there, self.geometry.place(there));
    }

    /// drive.4: what waits for sectors that the head reads on to without leaving, or that come after such, waits for that.
    pub(super) fn join(&mut self) {
        let Arm::ReadsOn { segment, .. } = self.arm else { return };
        let Segment { start, end, .. } = *self.cache.get(segment);
        let (mut next, mut came) = (0, false);
        while let Some(&read) = self.waiting.get(next) {
            let until = self.joined.last().map_or(end, |last| last.end);
            if read.write || read.start < start || read.start > until || read.end <= end {
                next += 1;
                continue;
            }
            self.waiting.remove(next);
            let at = self.joined.partition_point(|one| one.end <= read.end);
            self.joined.insert(at, read);
            // A read that was passed over may continue where this ends.
            (next, came) = (0, true);
        }
        if came {
            self.cache.hit(segment, self.cache.get(segment).reader); // used, but nothing was read of it yet
            self.owe();
        }
    }

    /// drive.4: how long the head stays for those that joined.
    pub(super) fn owe(&mut self) {
        let others = self.has_other_work();
        let (Some(first), Some(last)) = (self.joined.first(), self.joined.last()) else { return };
        if let Arm::ReadsOn { ref mut owed, ref mut limit, ref mut visit, .. } = self.arm {
            let capacity = self.geometry.capacity;
            *limit = (*limit).max(last.end + self.settings.ahead_sectors()).min(capacity);
            if !others {
                (*owed, *visit) = ((first.end + self.settings.ahead_min_sectors()).min(capacity), true);
            }
        }
    }

    /// The reader of the segment that is being read on is at `end`.
    pub(super) fn go_further(&mut self, segment: usize, end: u64) {
        if let Arm::ReadsOn { segment: reading, ref mut limit, .. } = self.arm
            && reading == segment
        {
            *limit = (*limit).max(end + self.settings.ahead_sectors()).min(self.geometry.capacity);
        }
    }

    /// drive.4: from `from` on, where the head is now.
    pub(super) fn read_on(&mut self, now: u64, segment: usize, from: u64, sequential: bool) {
        let capacity = self.geometry.capacity;
        let limit = (from + self.settings.ahead_sectors()).min(capacity);
        if limit == from {
            return;
        }
        let owed = if sequential { (from + self.settings.ahead_min_sectors()).min(limit) } else { from };
        let media = self.geometry.place(from).media;
        self.arm = Arm::ReadsOn { segment, since: now, media, owed, limit, visit: sequential };
        self.join();
    }

    /// drive.4: the last served reader has used up half of the data that was read on for it.
    pub(super) fn resume(&mut self, now: u64) {
        let Some(segment) = self.cache.last_used() else { return };
        let &Segment { end, reader, sequential, .. } = self.cache.get(segment);
        let limit = (reader + self.settings.ahead_sectors()).min(self.geometry.capacity);
        if sequential && end < limit && (end - reader) * 2 <= self.settings.ahead_sectors() {
            let place = self.geometry.place(end);
            let since = self.arrive(now, end, place, false, 0);
            self.arm = Arm::ReadsOn { segment, since, media: place.media, owed: end, limit, visit: false };
            self.leave_at(end);
        }
    }

    /// The part read on so far is in the cache.
    pub(super) fn read_on_to(&mut self, now: u64) {
        if let Arm::ReadsOn { segment, since, media, limit, .. } = self.arm {
            let end = self.geometry.sector(media + now.saturating_sub(since)).min(limit);
            self.cache.extend(segment, end);
            self.head.sector = end;
        }
    }

    pub(super) fn stop_reading_on(&mut self, now: u64) {
        self.read_on_to(now);
        self.head.cylinder = self.geometry.place(self.head.sector.saturating_sub(1)).cylinder;
        if let Arm::ReadsOn { segment, .. } = self.arm {
            self.arm = Arm::Idle;
            let there = self.head.sector;
            for index in 0..self.joined.len() {
                let mut read = self.joined[index];
                if read.end <= there {
                    // All of it has come this very nanosecond.
                    self.cache.hit(segment, read.end);
                    self.transfer(now, read.arrived, read.id, read.sectors);
                    continue;
                }
                if read.start < there {
                    self.leave_out(&mut read, there);
                }
                self.waiting.push(read);
            }
            self.joined.clear();
            self.look_again(now, segment);
        }
    }

    /// The head stops reading on; at the end of a visit, a reader that goes on there goes last (drive.4).
    pub(super) fn end_visit(&mut self, now: u64, visited: bool) {
        self.stop_reading_on(now);
        self.head.visited = if visited { self.reader_goes_to() } else { 0 };
    }

    /// How far the waiting commands go on from the head, without a gap larger than the read-ahead.
    fn reader_goes_to(&self) -> u64 {
        let mut to = self.head.sector + self.settings.ahead_sectors();
        let further = |to: u64| {
            let near = self.waiting.iter().filter(|one| self.head.sector <= one.start && one.start <= to);
            near.map(|one| one.end + self.settings.ahead_sectors()).max().filter(|end| *end > to)
        };
        while let Some(end) = further(to) {
            to = end;
        }
        to
    }

    /// Waiting reads may have come into the cache meanwhile, or their start.
    fn look_again(&mut self, now: u64, segment: usize) {
        let Segment { start, end, .. } = *self.cache.get(segment);
        let mut next = 0;
        while let Some(&read) = self.waiting.get(next) {
            next += 1;
            if read.write || read.start < start || read.start >= end {
                continue;
            }
            if read.end <= end {
                next -= 1;
                self.waiting.remove(next);
                self.cache.hit(segment, read.end);
                self.transfer(now, read.arrived, read.id, read.sectors);
            } else {
                let mut read = read;
                self.leave_out(&mut read, end);
                self.waiting[next - 1] = read;
            }
        }
    }
}
