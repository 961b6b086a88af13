//! The requests in the device, and their time limits.

use super::tag_source::TagSource;
use super::{Requests, Settings, State};
use crate::list::List;
use crate::sched::{BUSY_DELAY, RequestId};
use crate::{Duration, Instant, Tag};

/// How long things may take in the device (queue.6).
#[derive(Clone, Copy)]
pub(super) struct Patience {
    io_timeout: Duration,
    /// Nothing is late before this ([`Queue::handle_stall`](super::Queue::handle_stall)).
    lenient_until: Instant,
}

impl Patience {
    /// The caller did not run for so long until `now`.
    pub(super) fn extend(&mut self, now: Instant, for_so_long: Duration) {
        self.lenient_until = self.lenient_until.max(now + for_so_long.min(self.io_timeout));
    }

    /// When it takes too long, if it began then.
    #[inline]
    pub(super) fn late_at(self, since: Instant) -> Instant {
        (since + self.io_timeout).max(self.lenient_until)
    }

    /// For how long a debt may hold up a flush (sequence.5).
    pub(super) fn quarter(self) -> Duration {
        Duration::from_nanos(self.io_timeout.as_nanos() / 4)
    }
}

/// The queue's side of the device.
pub(super) struct InDevice {
    pub(super) tags: TagSource,
    /// Requests in flight whose time has not run out, the oldest first.
    pub(super) sent: List,
    /// After the device said "busy": no dispatch before this (queue.7).
    pub(super) busy_until: Option<Instant>,
    pub(super) patience: Patience,
}

impl InDevice {
    pub(super) fn new(settings: &Settings) -> Self {
        let patience = Patience { io_timeout: settings.io_timeout, lenient_until: Instant::ZERO };
        Self { tags: TagSource::new(settings), sent: List::default(), busy_until: None, patience }
    }

    /// Takes the tag from a request, and the request from the list of those in flight.
    #[inline(always)]
    pub(super) fn take_back(&mut self, settings: &Settings, requests: &mut Requests, tag: Tag) -> RequestId {
        let id = self.tags.take_back(settings, tag);
        let request = &requests[id.0];
        if let State::InFlight(_) = request.state {
            let links = request.links;
            self.sent.unlink(requests.rows_mut(), links);
        }
        id
    }

    /// A busy device is asked again after a while, unless something is in flight that will end before (queue.7): what has taken too
    /// long may never end.
    pub(super) fn ask_again(&mut self, now: Instant) {
        if self.busy_until == Some(Instant::MAX) && self.sent.front().is_none() {
            self.busy_until = Some(now + BUSY_DELAY);
        }
    }
}
