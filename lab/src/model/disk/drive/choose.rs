//! Which command is next: drive.3.

use super::super::geometry::Position;
use super::{Drive, Queued};

impl Drive {
    /// drive.3: the command that is next.
    pub(super) fn choose(&self, now: u64) -> usize {
        let mut best = (true, u64::MAX, 0);
        for (index, command) in self.waiting.iter().enumerate() {
            // Commands wait in the order in which they came, but for the few that left a visit.
            if now.saturating_sub(command.arrived) > self.settings.ncq_age.as_nanos() {
                return self.start_of_run(index);
            }
            let last = self.head.sector <= command.start && command.start <= self.head.visited;
            let this = (last, self.expect(now, command), index);
            if this < best && self.before(command).is_none() {
                best = this;
            }
        }
        best.2
    }

    /// The first of the commands that follow each other up to this one.
    fn start_of_run(&self, mut index: usize) -> usize {
        while let Some(before) = self.before(&self.waiting[index]) {
            index = before;
        }
        index
    }

    /// The command that this one follows (drive.3): none if the head has just come to this one.
    fn before(&self, command: &Queued) -> Option<usize> {
        let follows = |one: &Queued| one.end == command.start && one.write == command.write;
        if command.start == self.head.sector { None } else { self.waiting.iter().position(follows) }
    }

    /// When the drive expects to reach a command (drive.3): an arm that would come just in time may come too late, which costs a
    /// revolution, so it does not count on that; the less so the longer the way.
    fn expect(&self, now: u64, command: &Queued) -> u64 {
        let there = self.reach(now, command);
        if command.start == self.head.sector {
            return there;
        }
        let way = self.seek.time(command.place.cylinder.abs_diff(self.head.cylinder));
        let just_in_time = there < now + way + way * u64::from(self.settings.ncq_margin) / 100;
        there + if just_in_time { self.geometry.revolution } else { 0 }
    }

    /// When a command's first sector is under the head, if the arm goes there now.
    pub(super) fn reach(&self, now: u64, command: &Queued) -> u64 {
        self.arrive(now, command.start, command.place, command.write, command.ready)
    }

    pub(super) fn arrive(&self, now: u64, start: u64, place: Position, write: bool, ready: u64) -> u64 {
        let mut at = now;
        if start != self.head.sector {
            at += self.seek.time(place.cylinder.abs_diff(self.head.cylinder));
            at += if write { self.settings.write_settle.as_nanos() } else { 0 };
        }
        at = at.max(ready);
        at + self.geometry.rotation(at + self.phase, place.media)
    }
}
