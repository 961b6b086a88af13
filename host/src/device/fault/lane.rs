//! A worker's side of a backing with faults: held requests, and those for the device.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fairlift_core::queue::Segment;
use fairlift_core::{Duration, Errno, Instant, Outcome, Tag};

use super::BeforeDevice;
use super::syntax::Then;
use crate::device::Device as _;
use crate::device::lane::{Batch, Completed, Io, Lane, Map, Request, cut, each};
use crate::sync::lock;

pub(super) struct BeforeFaults {
    device: Arc<BeforeDevice>,
    inner: Box<dyn Lane>,
    /// How often the rules had been changed when they were last looked at.
    seen: u64,
    /// Requests that wait for their time, by that and their tags.
    delayed: BTreeMap<(Instant, u16), Delayed>,
    /// Requests that wait for other rules.
    hung: Vec<Delayed>,
    /// Requests with a part at the device.
    short: Vec<Tag>,
}

/// A request that the device has not seen.
struct Delayed {
    request: Request,
    segments: Vec<Segment>,
    then: Then,
}

impl BeforeFaults {
    pub(super) fn new(device: Arc<BeforeDevice>, inner: Box<dyn Lane>) -> Self {
        let seen = device.changes.load(Ordering::Acquire);
        Self { device, inner, seen, delayed: BTreeMap::new(), hung: Vec::new(), short: Vec::new() }
    }

    /// Lets the device do something, and makes of its answers what the client shall hear.
    fn with_inner(&mut self, io: &mut Io<'_>, act: impl FnOnce(&mut dyn Lane, &mut Io<'_>)) {
        let (ended, busy) = (io.ended.len(), io.busy.len());
        act(&mut *self.inner, io);
        if self.short.is_empty() {
            return;
        }
        for (tag, outcome) in &mut io.ended[ended..] {
            if self.was_short(*tag) && *outcome == Outcome::Done {
                *outcome = Outcome::Failed(Errno::EIO);
            }
        }
        for tag in &io.busy[busy..] {
            self.was_short(*tag);
        }
    }

    fn was_short(&mut self, tag: Tag) -> bool {
        let place = self.short.iter().position(|short| *short == tag);
        place.map(|place| self.short.swap_remove(place)).is_some()
    }

    /// Lets the rules say what becomes of requests; what the device is to do at once is put into `batch`.
    fn judge<'a>(
        &mut self,
        io: &mut Io<'_>,
        now: Instant,
        requests: impl Iterator<Item = (&'a Request, &'a [Segment])>,
        batch: &mut Batch,
    ) {
        let device = Arc::clone(&self.device);
        let mut judge = lock(&device.judge);
        for (request, segments) in requests {
            match judge.judge(request.op, request.at, request.bytes) {
                None => batch.put(*request, segments.iter().copied()),
                Some((delay, then)) => {
                    let held = Delayed { request: *request, segments: segments.to_vec(), then };
                    if then == Then::Hang {
                        self.hung.push(held);
                    } else if delay.as_nanos() == 0 {
                        self.strike(io, held, batch);
                    } else {
                        self.delayed.insert((now + delay, request.tag.0), held);
                    }
                }
            }
        }
    }

    fn strike(&mut self, io: &mut Io<'_>, held: Delayed, batch: &mut Batch) {
        let Delayed { request, segments, then } = held;
        match then {
            Then::Go | Then::Hang => batch.put(request, segments),
            Then::Fail(errno) => {
                self.device.failed(request.op, errno);
                io.ended.push((request.tag, Outcome::Failed(errno)));
            }
            Then::Short(bytes) => {
                let block = u64::from(self.device.facts().block());
                let bytes = if request.op.has_payload() { bytes.min(request.bytes) / block * block } else { 0 };
                self.device.failed(request.op, Errno::EIO);
                if bytes == 0 {
                    return io.ended.push((request.tag, Outcome::Failed(Errno::EIO)));
                }
                self.short.push(request.tag);
                batch.put(Request { bytes, ..request }, cut(&segments, 0, bytes));
            }
        }
    }

    fn give(&mut self, io: &mut Io<'_>, now: Instant, batch: &Batch) {
        if !batch.requests.is_empty() {
            self.with_inner(io, |inner, io| inner.queue(io, now, &batch.requests, &batch.segments));
        }
    }
}

impl Lane for BeforeFaults {
    fn queue(&mut self, io: &mut Io<'_>, now: Instant, requests: &[Request], segments: &[Segment]) {
        let mut batch = Batch::default();
        self.judge(io, now, each(requests, segments), &mut batch);
        self.give(io, now, &batch);
    }

    fn launch(&mut self, io: &mut Io<'_>) {
        self.with_inner(io, |inner, io| inner.launch(io));
    }

    fn completed(&mut self, io: &mut Io<'_>, now: Instant, steps: &[Completed]) {
        self.with_inner(io, |inner, io| inner.completed(io, now, steps));
    }

    fn is_by_the_clock(&self) -> bool {
        true
    }

    fn poll(&mut self, io: &mut Io<'_>, now: Instant) {
        let mut batch = Batch::default();
        let changes = self.device.changes.load(Ordering::Acquire);
        if std::mem::replace(&mut self.seen, changes) != changes {
            let hung = std::mem::take(&mut self.hung);
            let again = hung.iter().map(|held| (&held.request, &held.segments[..]));
            self.judge(io, now, again, &mut batch); // fault.3
        }
        while let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
            let held = first.remove();
            self.strike(io, held, &mut batch);
        }
        self.with_inner(io, |inner, io| inner.poll(io, now));
        self.give(io, now, &batch);
        // The engine launches after it has queued, and not after a poll.
        if std::mem::take(&mut io.launch) {
            self.launch(io);
        }
    }

    fn stalled(&mut self, for_so_long: Duration) {
        self.inner.stalled(for_so_long);
    }

    fn is_pausing(&self) -> bool {
        self.inner.is_pausing()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let delayed = self.delayed.first_key_value().map(|((at, _), _)| *at);
        delayed.into_iter().chain(self.inner.poll_timeout()).min()
    }

    fn map(&mut self, io: &mut Io<'_>, now: Instant, map: Map) {
        self.inner.map(io, now, map);
    }

    fn leave(&mut self) {
        self.inner.leave();
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.delayed.len() + self.hung.len()
    }
}
