//! A worker's requests on something that is only read, by threads that wait: zeroes at once, all else by a helper thread.

use std::ptr::NonNull;
use std::sync::Arc;

use fairlift_core::queue::Segment;
use fairlift_core::{Errno, Instant, Op, Outcome, Sector};
use vm_memory::VolatileSlice;

use super::lane::{Address, Completed, Io, Lane, Request, each, list_memory, place_of};
use super::{Device, Layer, Store};
use crate::kernel::call::{Fill, Pieces, Task};
use crate::kernel::helpers::{Job, Order};
use crate::kernel::ring::Source;

/// How much a thread reads at once, into memory of its own. Chosen: four of the usual clusters of a qcow2 image.
const PIECE: usize = 256 << 10;

pub(super) struct ByThreads<D> {
    device: Arc<D>,
    address: Address,
    /// The memory of requests in flight, by tag: it stays where it is while a helper has it.
    flights: Vec<Vec<libc::iovec>>,
    in_flight: usize,
}

// SAFETY: the pointers in `flights` name memory of the same worker's tickets, with which they move to its thread.
unsafe impl<D: Device> Send for ByThreads<D> {}

impl<D: Layer + 'static> ByThreads<D> {
    pub(super) fn new(device: Arc<D>, address: Address) -> Self {
        Self { device, address, flights: Vec::new(), in_flight: 0 }
    }

    fn read(&mut self, io: &mut Io<'_>, request: &Request, segments: &[Segment]) {
        let Request { tag, at, bytes, .. } = *request;
        if self.device.run(at, bytes).is_ok_and(|run| run.hole && run.len == bytes) {
            list_memory(io.tickets, segments, Op::Read, 0, &mut Vec::new());
            return io.ended.push((tag, Outcome::Done));
        }
        let index = usize::from(tag.0);
        let iovecs = place_of(&mut self.flights, index);
        assert!(iovecs.is_empty(), "tag {index} is in flight twice");
        list_memory(io.tickets, segments, Op::Read, bytes, iovecs);
        let into = Pieces::Many { iovecs: iovecs.as_ptr(), count: iovecs.len() as u32 };
        let task = Task::Fill { from: NonNull::from(&*self.device as &dyn Fill), into, at };
        let data = Source::Io { disk: self.address.disk, place: self.address.place, tag }.pack();
        let job = Job { worker: io.context, data, sectors: bytes / Sector::SIZE, task };
        let number = self.address.file.expect("a file is registered");
        self.in_flight += 1;
        // SAFETY: the iovecs are not touched until the result is taken (`completed`), nor dropped, nor is the device: a lane with requests is
        // kept. The memory is the device's until it answers (engine.1).
        unsafe { io.helpers.push(number as usize, Order::Concurrent, job) }
    }
}

impl<D: Layer + 'static> Lane for ByThreads<D> {
    fn queue(&mut self, io: &mut Io<'_>, _now: Instant, requests: &[Request], segments: &[Segment]) {
        for (request, segments) in each(requests, segments) {
            match request.op {
                Op::Read => self.read(io, request, segments),
                Op::Flush => io.ended.push((request.tag, Outcome::Done)),
                // Nobody is offered these (`Facts::read_only`).
                Op::Write | Op::Discard | Op::WriteZeroes => {
                    io.ended.push((request.tag, Outcome::Failed(Errno::EPERM)))
                }
            }
        }
    }

    fn completed(&mut self, io: &mut Io<'_>, _now: Instant, steps: &[Completed]) {
        for step in steps {
            self.flights[usize::from(step.tag.0)].clear();
            self.in_flight -= 1;
            let outcome = match step.result {
                0.. => Outcome::Done,
                failed => Outcome::Failed(Errno(-failed)),
            };
            if let Outcome::Failed(errno) = outcome {
                self.device.failed(Op::Read, errno);
            }
            io.ended.push((step.tag, outcome));
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl<D: Store> Fill for D {
    fn fill(&self, mut at: u64, into: &mut dyn Iterator<Item = VolatileSlice<'_>>) -> Result<(), Errno> {
        let mut memory = Vec::new();
        for piece in into {
            let mut done = 0;
            while done < piece.len() {
                let rest = piece.offset(done).map_err(|_| Errno::EIO)?;
                memory.resize(rest.len().min(PIECE), 0);
                let read = self.read_at(&mut memory, at);
                read.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
                rest.copy_from(&memory);
                done += memory.len();
                at += memory.len() as u64;
            }
        }
        Ok(())
    }
}
