//! A worker's requests on an image: handed over to librbd, and taken back when its event comes.

use std::ffi::c_int;
use std::os::fd::AsFd as _;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fairlift_core::queue::Segment;
use fairlift_core::{Errno, Flags, Instant, Op, Outcome, Tag};

use super::{Rbd, pack, unpack};
use crate::ceph::{Handle, THICK, done};
use crate::device::gather::Gather;
use crate::device::lane::{Address, Completed, Io, Lane, Request, each, list_memory, place_of};
use crate::kernel::ring::Source;

/// As many ends are taken out at once.
const BATCH: usize = 64;

pub(super) struct OnRbd {
    device: Arc<Rbd>,
    address: Address,
    aios: Vec<Aio>,
    in_flight: usize,
    gather: Gather,
    now: Instant,
    /// The ring looks for an event, or lets some ends come first; and it was told to look no more.
    is_armed: bool,
    is_cancelled: bool,
    is_leaving: bool,
}

/// A request that librbd has, or had.
#[derive(Default)]
struct Aio {
    since: Instant,
    /// Where it ends on the image, and how many bytes a read has to bring.
    end: u64,
    brings: u64,
    /// Its memory: librbd reads the list when it likes.
    iovecs: Vec<libc::iovec>,
}

impl Aio {
    /// How it ended (rbd.4), by librbd's result and the image's size afterwards.
    fn outcome(&self, result: isize, size: u64) -> Outcome {
        match result {
            ..0 => Outcome::Failed(Errno(-result as i32)),
            0.. if self.end > size || (result as u64) < self.brings => Outcome::Failed(Errno::EIO),
            0.. => Outcome::Done,
        }
    }
}

// SAFETY: the pointers in `iovecs` name memory of the same worker's tickets, with which they move to its thread.
unsafe impl Send for OnRbd {}

impl OnRbd {
    pub(super) fn new(device: Arc<Rbd>, address: Address) -> Self {
        Self {
            device,
            address,
            aios: Vec::new(),
            in_flight: 0,
            gather: Gather::default(),
            now: Instant::ZERO,
            is_armed: false,
            is_cancelled: false,
            is_leaving: false,
        }
    }

    fn data(&self) -> u64 {
        let Address { disk, place, .. } = self.address;
        Source::Io { disk, place, tag: Tag(0) }.pack()
    }

    fn start(&mut self, io: &mut Io<'_>, request: &Request, segments: &[Segment]) -> Result<(), Errno> {
        let _open = self.device.image.open().ok_or(Errno::ESHUTDOWN)?; // rbd.6
        let (api, image) = (self.device.image.api, self.device.image.handle);
        let Request { tag, op, flags, at, bytes, .. } = *request;
        if op == Op::Flush
            && let Some(errno) = self.device.image.untold.take()
        {
            return Err(errno); // rbd.5
        }
        let aio = place_of(&mut self.aios, usize::from(tag.0));
        // The image's last sector may not be whole: what is beyond its end reads as zeroes, and is not written.
        let size = self.device.size.load(Ordering::Relaxed);
        let bytes = if op == Op::Flush { 0 } else { bytes.min(size.saturating_sub(at)) };
        aio.since = self.now;
        aio.end = if op == Op::Flush { 0 } else { at + bytes };
        aio.brings = if op == Op::Read { bytes } else { 0 };
        aio.iovecs.clear();
        if op.has_payload() {
            list_memory(io.tickets, segments, op, bytes, &mut aio.iovecs);
        }
        let mut completion: Handle = null_mut();
        // SAFETY: makes a completion; what it is called back with is a number.
        done(unsafe { (api.rbd_aio_create_completion)(pack(io.context, tag), None, &raw mut completion) })?;
        let (pieces, count) = (aio.iovecs.as_ptr(), aio.iovecs.len() as c_int);
        let zeroes = if flags.contains(Flags::NO_UNMAP) { THICK } else { 0 };
        // SAFETY: the image is open; the list of pieces is not touched before the request has ended, nor dropped: a lane with requests
        // is kept. The memory is the device's until then (engine.1).
        let begun = done(unsafe {
            match op {
                Op::Read => (api.rbd_aio_readv)(image, pieces, count, at, completion),
                Op::Write => (api.rbd_aio_writev)(image, pieces, count, at, completion),
                Op::Flush => (api.rbd_aio_flush)(image, completion),
                Op::Discard => (api.rbd_aio_discard)(image, at, bytes, completion),
                Op::WriteZeroes => (api.rbd_aio_write_zeroes)(image, at, bytes as usize, completion, zeroes, 0),
            }
        });
        if begun.is_err() {
            // SAFETY: nobody else has the completion.
            unsafe { (api.rbd_aio_release)(completion) };
        }
        begun
    }

    /// Takes out what has ended (rbd.1).
    fn reap(&mut self, io: &mut Io<'_>) {
        let device = Arc::clone(&self.device);
        let Some(open) = device.image.open() else { return }; // rbd.6
        let (api, image) = (device.image.api, device.image.handle);
        // That it is empty is no matter: another worker was quicker.
        _ = rustix::io::read(&self.device.event, &mut [0u8; 8]);
        let mut wake = 0;
        loop {
            let mut ended: [Handle; BATCH] = [null_mut(); BATCH];
            // SAFETY: the image is open, and takes as many completions out as there is room for.
            let taken = unsafe { (api.rbd_poll_io_events)(image, ended.as_mut_ptr(), BATCH as c_int) };
            let taken = usize::try_from(taken).unwrap_or(0).min(BATCH);
            let size = if taken == 0 { 0 } else { self.known(device.image.size_while(&open)) };
            for completion in &ended[..taken] {
                // SAFETY: it was made by one of our workers and has ended; nobody else has it.
                let (argument, result) = unsafe {
                    let outcome = ((api.rbd_aio_get_arg)(*completion), (api.rbd_aio_get_return_value)(*completion));
                    (api.rbd_aio_release)(*completion);
                    outcome
                };
                let (worker, tag) = unpack(argument);
                if worker == io.context {
                    self.ended(io, tag, result, size);
                } else {
                    self.device.mail.tell(worker, |ended| ended.push((tag, result)));
                    wake |= 1 << worker.0;
                }
            }
            if taken < BATCH {
                break;
            }
        }
        if wake != 0 {
            io.notifiers.wake_all(wake, io.context, io.ring);
        }
    }

    fn ended(&mut self, io: &mut Io<'_>, tag: Tag, result: isize, size: u64) {
        let aio = &self.aios[usize::from(tag.0)];
        self.gather.answered(self.now.since(aio.since));
        io.ended.push((tag, aio.outcome(result, size)));
        self.in_flight -= 1;
    }

    /// The image's size. Where librbd cannot tell it, the last one that is known: what it has said to be done is not taken for failed.
    fn known(&self, size: Result<u64, Errno>) -> u64 {
        size.unwrap_or_else(|_| self.device.size.load(Ordering::Relaxed))
    }

    /// Whether the ring looks for events that nobody waits for any more: the last one may have been seen by another worker.
    const fn is_to_cancel(&self) -> bool {
        self.is_leaving && self.is_armed && !self.is_cancelled && self.in_flight == 0
    }

    fn arm(&mut self, io: &mut Io<'_>) {
        if self.in_flight > 0 && !self.is_armed {
            self.is_armed = true;
            io.ring.poll(self.device.event.as_fd(), libc::POLLIN, false, self.data());
        }
    }
}

impl Lane for OnRbd {
    fn queue(&mut self, io: &mut Io<'_>, now: Instant, requests: &[Request], segments: &[Segment]) {
        self.now = now;
        for (request, segments) in each(requests, segments) {
            match self.start(io, request, segments) {
                Ok(()) => self.in_flight += 1,
                Err(errno) => io.ended.push((request.tag, Outcome::Failed(errno))),
            }
        }
        self.arm(io);
    }

    fn completed(&mut self, io: &mut Io<'_>, now: Instant, _steps: &[Completed]) {
        self.now = now;
        (self.is_armed, self.is_cancelled) = (false, false);
        let before = self.in_flight;
        self.reap(io);
        let some = self.in_flight < before;
        if some && self.gather.pause(self.in_flight).is_some_and(|length| io.ring.pause(length, self.data())) {
            self.is_armed = true;
        }
        self.arm(io);
    }

    fn is_by_the_clock(&self) -> bool {
        true // it hears from other workers
    }

    fn poll(&mut self, io: &mut Io<'_>, now: Instant) {
        self.now = now;
        if let Some(ended) = self.device.mail.take(io.context) {
            let size = self.known(self.device.image.size());
            ended.into_iter().for_each(|(tag, result)| self.ended(io, tag, result, size));
        }
        if self.is_to_cancel() {
            self.is_cancelled = true;
            io.ring.cancel(self.data());
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.is_to_cancel().then_some(Instant::ZERO)
    }

    fn leave(&mut self) {
        self.is_leaving = true;
    }

    fn in_flight(&self) -> usize {
        self.in_flight + usize::from(self.is_leaving && self.is_armed)
    }
}
