//! Jobs that ask a file straight through io_uring: what the path does without us.
//!
//! A file that lives in RAM is asked by plain system calls, as a server asks it: the ring would hand each request to a helper
//! thread, and that would be measured.

use std::os::fd::AsRawFd;

use fairlift_core::program::Ask;
use fairlift_core::{Errno, Flags, Instant, Op, Outcome};
use slab::Slab;

use super::{WATCH, Watch};
use crate::clock;
use crate::device::{File, Inline as _};
use crate::disk::gauge::Gauge;
use crate::export::program::jobs::{Done, Jobs};
use crate::export::program::payload;
use crate::kernel::buffer::{Buffer, Pool};
use crate::kernel::call::{Call, Pieces, Work};
use crate::kernel::ring::{Kind, Ring};
use crate::kernel::sleep::Sleep;

/// How long the kernel may take to give back what is in flight: as much as a server waits for one request.
const PATIENCE: fairlift_core::Duration = fairlift_core::time::secs(30);

pub(super) struct Raw {
    // The ring goes before the memory that is registered with it, and that of flights.
    ring: Ring,
    pool: Pool,
    flights: Slab<Flight>,
    file: File,
    sleep: Sleep,
}

struct Flight {
    job: usize,
    ask: Ask,
    buffer: Option<Buffer>,
    /// Bytes moved so far.
    done: u64,
    /// The data is there, and is being made durable.
    syncing: bool,
}

/// The file, by its registered number.
const FILE: u32 = 0;

impl Raw {
    pub(super) fn new(file: File, memory: u64, engine: Kind) -> std::io::Result<Self> {
        let mut ring = Ring::new(engine, 1024, 8192, 64)?;
        ring.make_room_for_files(1)?;
        ring.set_file(FILE, Some(file.file.as_raw_fd()));
        let pool = Pool::new(memory, 64)?;
        ring.register_pool(&pool);
        Ok(Self { ring, pool, flights: Slab::with_capacity(1024), file, sleep: Sleep::new() })
    }

    /// Runs the jobs until their time is over or `watch` says so, and waits for the requests in flight; returns also how many of them the
    /// kernel did not give back.
    pub(super) fn run(mut self, mut jobs: Jobs<'_>, gauge: &Gauge, watch: Watch<'_>) -> (Done, usize) {
        let course = jobs.course;
        let mut looked = Instant::ZERO;
        let mut ends = Vec::new();
        let mut now = clock::now();
        while !course.is_over(now) {
            let before = self.flights.len();
            for (job, token, outcome) in ends.drain(..) {
                jobs.ended(now, job, token, outcome);
            }
            let mut flushes = 0;
            jobs.ask(now, |job, ask, _| {
                flushes += usize::from(ask.op == Op::Flush);
                self.launch(job, ask, &mut ends)
            });
            if !ends.is_empty() {
                gauge.note(now, 0, ends.len(), flushes);
                now = clock::now();
                gauge.note(now, ends.len(), 0, 0);
                flushes = 0;
            }
            gauge.note(now, 0, self.flights.len() - before, flushes);
            jobs.sample(now);
            if now.since(looked) >= WATCH {
                looked = now;
                if watch(now.since(course.start)) {
                    course.stop(now);
                    gauge.end(now);
                    break;
                }
            }
            if self.flights.is_empty() && !ends.is_empty() {
                continue;
            }
            let due = jobs.due(now).min(looked + WATCH);
            now = self.wait(now, due, &mut ends);
            gauge.note(now, ends.len(), 0, 0);
        }
        let done = jobs.finish();
        let start = now;
        while !self.flights.is_empty() {
            if now.since(start) > PATIENCE {
                // The kernel may still use our memory: it is left to it until the process ends.
                let lost = self.flights.len();
                std::mem::forget(self);
                return (done, lost);
            }
            now = self.wait(now, now + WATCH, &mut ends);
        }
        self.ring.unregister_files();
        (done, 0)
    }

    fn wait(&mut self, before: Instant, due: Instant, ends: &mut Vec<(usize, u32, Outcome)>) -> Instant {
        let now = self.sleep.until(&mut self.ring, before, Some(due), self.flights.len(), true, |_| false);
        while let Some(completion) = self.ring.reap() {
            let number = completion.data as usize;
            if let Some(outcome) = self.completed(number, completion.result) {
                let Flight { job, ask, buffer, .. } = self.flights.remove(number);
                buffer.into_iter().for_each(|buffer| self.pool.put(buffer));
                ends.push((job, ask.token, outcome));
            }
        }
        now
    }

    /// Takes an ask in, if there is memory for it; it may end at once.
    fn launch(&mut self, job: usize, ask: &Ask, ends: &mut Vec<(usize, u32, Outcome)>) -> bool {
        let mut buffer = if ask.op.has_payload() {
            let Ok(mut buffer) = self.pool.get(ask.extent.bytes().get() as usize) else { return false };
            if ask.op == Op::Write {
                payload::fill(buffer.bytes_mut());
            }
            Some(buffer)
        } else {
            None
        };
        if let Some(outcome) = self.at_once(ask, buffer.as_mut()) {
            buffer.into_iter().for_each(|buffer| self.pool.put(buffer));
            ends.push((job, ask.token, outcome));
            return true;
        }
        let number = self.flights.insert(Flight { job, ask: *ask, buffer, done: 0, syncing: false });
        self.push(number);
        true
    }

    /// Does what is asked of a file in RAM.
    fn at_once(&self, ask: &Ask, buffer: Option<&mut Buffer>) -> Option<Outcome> {
        let inline = self.file.inline()?;
        let (at, len) = (ask.extent.start.bytes().get(), ask.extent.bytes().get());
        Some(match (ask.op, buffer) {
            (Op::Read, Some(buffer)) => inline.read(at, buffer.bytes_mut().into()),
            (Op::Write, Some(buffer)) => inline.write(at, buffer.bytes_mut().into(), ask.flags),
            (Op::Read | Op::Write, None) => unreachable!("a read or write has a buffer"),
            (Op::Flush, _) => inline.flush(),
            (Op::Discard, _) => inline.discard(at, len),
            (Op::WriteZeroes, _) => inline.write_zeroes(at, len, ask.flags),
        })
    }

    fn push(&mut self, number: usize) {
        let flight = &self.flights[number];
        let Ask { op, flags, extent, .. } = flight.ask;
        let (at, left) = (extent.start.bytes().get() + flight.done, extent.bytes().get() - flight.done);
        let work = match op {
            _ if flight.syncing => Some(self.sync()),
            Op::Flush => Some(self.sync()),
            Op::Read | Op::Write => {
                let buffer = flight.buffer.as_ref().expect("a read or write has a buffer until it ends");
                let start = buffer.as_ptr().wrapping_add(flight.done as usize);
                let block = buffer.block().filter(|block| self.ring.is_fixed(&self.pool, *block));
                let piece = Pieces::One { start, len: left as u32, block };
                let flags = if flags.contains(Flags::FUA) && self.file.native_fua() { libc::RWF_DSYNC } else { 0 };
                Some(if op == Op::Read {
                    Work::Read { into: piece, at }
                } else {
                    Work::Write { from: piece, at, flags }
                })
            }
            Op::Discard | Op::WriteZeroes => {
                let mode = if op == Op::Discard { self.file.discard_mode() } else { self.file.zero_mode(flags) };
                mode.map(|mode| Work::Allocate { mode, at, len: left })
            }
        };
        let call = work.map_or(Call::Nop, |work| Call::File(FILE, work));
        // SAFETY: the call names the flight's buffer, which goes back to the pool after the completion (`wait`), and which
        // `run` leaves to the kernel if that does not come.
        unsafe { self.ring.push(call, number as u64) }
    }

    fn sync(&self) -> Work {
        Work::Sync { data_only: self.file.flush_is_datasync() }
    }

    /// The kernel has done a step; the outcome, if it was the last.
    fn completed(&mut self, number: usize, result: i32) -> Option<Outcome> {
        let flight = &mut self.flights[number];
        let Ask { op, flags, extent, .. } = flight.ask;
        if [-libc::EINTR, -libc::EAGAIN].contains(&result) {
            self.push(number);
            return None;
        }
        if result < 0 {
            return Some(Outcome::Failed(Errno(-result)));
        }
        if op == Op::WriteZeroes && self.file.zero_mode(flags).is_none() {
            return Some(Outcome::Failed(Errno::ENOTSUP)); // nothing was done
        }
        if op.has_payload() && !flight.syncing {
            if result == 0 {
                return Some(Outcome::Failed(Errno::EIO)); // the file is shorter than it was
            }
            flight.done += result as u64;
            if flight.done < extent.bytes().get() {
                self.push(number);
                return None;
            }
        }
        let durable = op == Op::Write && self.file.native_fua() || op == Op::Read || op == Op::Flush;
        if flags.contains(Flags::FUA) && !durable && !flight.syncing {
            flight.syncing = true;
            self.push(number);
            return None;
        }
        Some(Outcome::Done)
    }
}
