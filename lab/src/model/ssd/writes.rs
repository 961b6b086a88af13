//! Writes, flushes and discards: ssd.4–7.
//!
//! ssd_write.1  A write has a place in the buffer from before its data crosses the link until its program ends.
//! ssd_write.2  A flush is done with the data when everything taken in before it was programmed; older programs count too.
//! ssd_write.3  The mapping is made durable for one flush at a time, in order; discards take the same turn.

use std::cmp::Reverse;
use std::collections::VecDeque;

use fairlift_core::model::ModelRequest;
use fairlift_core::{Direction, Extent, Flags, Op};

use super::nand::Job;
use super::{PackedEvent, Settings, Ssd};

/// The smallest unit of a write (ssd.8), in sectors: the 4 KiB of usual mappings. Smaller or unaligned writes cost as much.
const MAPPED: u64 = 8;
/// A write of this many sectors leaves whole blocks behind, wherever it goes. Chosen: half a mebibyte.
const LONG: u64 = 1024;

/// The write buffer, in bytes.
pub(super) struct Buffer {
    size: u64,
    unit: u64,
    used: u64,
    /// Of that, not being programmed.
    waiting: u64,
    /// Taken in, given to dies, and made durable, since the beginning.
    taken: u64,
    pub(super) given: u64,
    durable: u64,
    /// Programs started since the beginning, and under way.
    programs: u64,
    programming: u32,
    /// Writes for which there is no room, and those whose data waits for the link (ssd.4).
    writes: VecDeque<Write>,
    crossing: VecDeque<Write>,
    /// Whether the data of a write is on a link that carries one direction at a time.
    is_crossing: bool,
    /// Flushes that wait for their data (ssd_write.2).
    flushes: VecDeque<Flush>,
    /// When the mapping is free to be made durable again (ssd_write.3).
    mapping: u64,
}

/// A write that waits for room.
#[derive(Clone, Copy, Debug)]
struct Write {
    slot: u32,
    sectors: u64,
    bytes: u64,
    durable: bool,
}

/// A flush that waits for programs.
#[derive(Clone, Copy, Debug)]
struct Flush {
    slot: u32,
    ready: u64,
    /// It covers what was taken in up to here.
    up_to: u64,
    /// The last program that belongs to it, once that has started.
    last: Option<u64>,
}

impl Buffer {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            size: u64::from(settings.buffer) << 10,
            unit: u64::from(settings.unit) << 10,
            used: 0,
            waiting: 0,
            taken: 0,
            given: 0,
            durable: 0,
            programs: 0,
            programming: 0,
            writes: VecDeque::new(),
            crossing: VecDeque::new(),
            is_crossing: false,
            flushes: VecDeque::new(),
            mapping: 0,
        }
    }

    const fn has_room(&self, bytes: u64) -> bool {
        self.used + bytes <= self.size || self.used == 0
    }

    /// How much the next program takes: ssd.5.
    fn next_program(&self) -> Option<u64> {
        if self.waiting >= self.unit {
            return Some(self.unit);
        }
        let flush = self.flushes.back().is_some_and(|flush| flush.up_to > self.given);
        // A buffer smaller than a unit would never have one together.
        let stuck = !self.writes.is_empty() && self.programming == 0;
        (self.waiting > 0 && (flush || stuck)).then_some(self.waiting)
    }
}

impl Ssd {
    pub(super) fn write(&mut self, slot: u32, extent: Extent, flags: Flags) {
        let (start, end) = (extent.start.0, extent.end().0);
        let sequential = self.write_streams.follow(start, end).is_some() || extent.sectors >= LONG;
        self.space.written(start, extent.sectors, sequential);
        let write = Write {
            slot,
            sectors: extent.sectors,
            bytes: (end.next_multiple_of(MAPPED) - start / MAPPED * MAPPED) * 512,
            durable: flags.contains(Flags::FUA) && !self.settings.plp,
        };
        if self.buffer.writes.is_empty() && self.buffer.has_room(write.bytes) {
            self.admit(write);
        } else {
            self.buffer.writes.push_back(write);
        }
        self.program();
    }

    pub(super) fn flush(&mut self, slot: u32) {
        let at = self.clock;
        let buffer = &self.buffer;
        let is_clean = buffer.flushes.is_empty() && buffer.durable == buffer.taken;
        if self.settings.plp || self.settings.flush_spared && is_clean {
            // If the last flush that had something to do has ended, that is.
            let end = if self.settings.plp { at } else { at.max(buffer.mapping) };
            self.ends_at(end, slot); // ssd.7
            return;
        }
        self.wait_for_programs(slot, at);
        self.program();
    }

    pub(super) fn discard(&mut self, slot: u32, request: &ModelRequest) {
        if request.op == Op::Discard || !request.flags.contains(Flags::NO_UNMAP) {
            self.space.discarded(request.extent.start.0, request.extent.sectors);
        }
        let end = self.mapping_turn(self.clock, self.settings.discard.as_nanos());
        self.ends_at(end, slot);
    }

    /// The job of a die ends, unless a read has put it off.
    pub(super) fn job_ends(&mut self, die: usize) {
        let at = self.clock;
        let end = self.nand.job_end(die);
        if end > at {
            self.events.push(Reverse((end, PackedEvent::job(die))));
            return;
        }
        if let Job::Host { bytes, .. } = self.nand.finish(die) {
            self.buffer.used -= u64::from(bytes);
            self.buffer.programming -= 1;
            self.end_flushes();
            while let Some(write) = self.buffer.writes.front().copied()
                && self.buffer.has_room(write.bytes)
            {
                self.buffer.writes.pop_front();
                self.admit(write);
            }
        }
        // Its debt goes before the next program.
        if let Some(job) = self.nand.due(die) {
            let time = match job {
                Job::Erase => self.settings.erase.as_nanos(),
                Job::Move | Job::Host { .. } => (self.settings.read + self.settings.program).as_nanos(),
            };
            self.start_job(die, job, time);
        }
        self.program();
    }

    /// There is room for a write.
    fn admit(&mut self, write: Write) {
        self.buffer.used += write.bytes;
        if self.buffer.is_crossing {
            self.buffer.crossing.push_back(write);
        } else {
            self.cross(write);
        }
    }

    /// The data of a write crosses the link into the buffer.
    fn cross(&mut self, write: Write) {
        self.buffer.waiting += write.bytes;
        self.buffer.taken += write.bytes;
        let end = self.link.carry(Direction::Write, self.clock, write.sectors);
        if !self.link.duplex {
            self.buffer.is_crossing = true;
            self.events.push(Reverse((end, PackedEvent::LINK_TURN)));
        }
        if write.durable {
            self.wait_for_programs(write.slot, end);
        } else {
            self.ends_at(end, write.slot);
        }
    }

    /// The link is free for the data of the next write: ssd.4.
    pub(super) fn link_turn(&mut self) {
        self.buffer.is_crossing = false;
        if let Some(write) = self.buffer.crossing.pop_front() {
            self.cross(write);
            self.program();
        }
    }

    /// ssd_write.2
    fn wait_for_programs(&mut self, slot: u32, ready: u64) {
        let buffer = &mut self.buffer;
        let last = (buffer.given >= buffer.taken).then_some(buffer.programs);
        buffer.flushes.push_back(Flush { slot, ready, up_to: buffer.taken, last });
        self.end_flushes();
    }

    /// ssd_write.2, ssd_write.3
    fn end_flushes(&mut self) {
        while let Some(flush) = self.buffer.flushes.front().copied() {
            if flush.last.is_none_or(|last| self.nand.programs_up_to(last)) {
                break;
            }
            self.buffer.flushes.pop_front();
            self.buffer.durable = flush.up_to;
            let end = self.mapping_turn(self.clock.max(flush.ready), self.settings.flush.as_nanos());
            self.ends_at(end, flush.slot);
        }
    }

    fn mapping_turn(&mut self, at: u64, time: u64) -> u64 {
        self.buffer.mapping = self.buffer.mapping.max(at) + time;
        self.buffer.mapping
    }

    /// Starts programs, as long as there is something to program and a die without a job: ssd.5.
    fn program(&mut self) {
        while let Some(bytes) = self.buffer.next_program() {
            let Some(die) = self.nand.idle_die() else { break };
            let cost = self.space.program(bytes);
            self.nand.owe(die, cost.moves, cost.erases);
            let buffer = &mut self.buffer;
            buffer.programs += 1;
            buffer.programming += 1;
            buffer.waiting -= bytes;
            buffer.given += bytes;
            for flush in buffer.flushes.iter_mut().rev().take_while(|flush| flush.last.is_none()) {
                if flush.up_to <= buffer.given {
                    flush.last = Some(buffer.programs);
                }
            }
            let job = Job::Host { bytes: bytes as u32, number: buffer.programs };
            let time = if cost.slc { self.settings.slc_program } else { self.settings.program };
            self.start_job(die, job, time.as_nanos());
        }
    }

    fn start_job(&mut self, die: usize, job: Job, time: u64) {
        let end = self.nand.start(self.clock, die, job, time);
        self.events.push(Reverse((end, PackedEvent::job(die))));
    }
}
