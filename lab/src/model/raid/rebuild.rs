//! The rebuild of a missing disk (raid.6).

use fairlift_core::Op;

use super::{Raid, Task, TaskKind};

/// The unit of the rebuild, in sectors of each disk: raid.6's MiB.
const REBUILD: u64 = 2048;

impl Raid {
    /// raid.6: starts the next part, if it is time.
    pub(super) fn rebuild(&mut self, now: u64) {
        let Some((_, start)) = self.rebuild.take_if(|(at, _)| *at <= now) else { return };
        let sectors = REBUILD.min(self.layout.each(self.sectors) - start);
        let next = now + sectors * 512 * 1_000_000_000 / (u64::from(self.settings.rebuild) * 1000);
        let disks = self.missing..self.layout.disks as usize;
        let task = self.task(TaskKind::Rebuild { start, sectors, next, reading: true });
        self.tasks[task].left = disks.len() as u32;
        for disk in disks {
            self.members.submit(now, disk, task, Op::Read, start, sectors);
        }
    }

    pub(super) fn rebuild_write(&mut self, now: u64, task: usize) {
        let Task { left, kind: TaskKind::Rebuild { start, sectors, reading, .. } } = &mut self.tasks[task] else {
            unreachable!("only what is rebuilt is written to the spare")
        };
        (*left, *reading) = (1, false);
        // The spare is in the place of the first that is missing.
        self.members.submit(now, 0, task, Op::Write, *start, *sectors);
    }
}
