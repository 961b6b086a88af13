//! The disk of a run: a modelled one or one that takes about the same for each request, and its faults.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fairlift_core::model::{Model, ModelCompletion, ModelRequest};
use fairlift_core::time::secs;
use fairlift_core::{Dispatch, Duration, Instant, Op};
use slab::Slab;

use super::step::{Fate, spread};
use super::swarm::Setup;

/// How much later than `io_timeout` a client may hear of it.
pub(super) const LATE_MAX: Duration = secs(1);

/// A request in the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub(super) queue: u16,
    pub(super) context: u16,
    pub(super) dispatch: Dispatch,
    pub(super) since: Instant,
    pub(super) fate: Fate,
    pub(super) luck: u64,
    serial: u64,
    has_left_model: bool,
}

/// An event in it at some time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum DiskEvent {
    /// A request ends: its place.
    Ends(u32),
    /// The clients of this request must have heard by now that it takes too long.
    IsLate(u32),
}

/// The disk: see the [module](self).
pub(super) struct FaultyDisk {
    model: Option<Box<dyn Model>>,
    service: Duration,
    spread: Duration,
    io_timeout: Duration,
    /// (when, in which order, which)
    events: BinaryHeap<Reverse<(Instant, u64, DiskEvent)>>,
    /// Requests in it.
    given: Slab<Given>,
    serial: u64,
    ended: Vec<ModelCompletion>,
    /// Nothing goes wrong any more.
    pub(super) is_honest: bool,
    /// Tags that come back only when it is reset.
    pub(super) lost_tags: u16,
}

impl FaultyDisk {
    pub(super) fn new(setup: &Setup) -> Self {
        Self {
            model: setup.build_model(),
            service: setup.service,
            spread: setup.spread,
            io_timeout: setup.queue.io_timeout,
            events: BinaryHeap::new(),
            given: Slab::new(),
            serial: 0,
            ended: Vec::new(),
            is_honest: false,
            lost_tags: 0,
        }
    }

    /// The longest that a request takes when nothing goes wrong: a guess that is too high, for a modelled disk.
    pub(super) fn service_max(&self) -> Duration {
        if self.model.is_some() { secs(5) } else { self.service + self.spread }
    }

    pub(super) fn give(
        &mut self,
        now: Instant,
        (queue, context): (u16, u16),
        dispatch: &Dispatch,
        fate: Fate,
        luck: u64,
    ) {
        let Dispatch { op, flags, extent, .. } = *dispatch;
        self.serial += 1;
        self.lost_tags += u16::from(fate == Fate::Lost);
        let (dispatch, serial) = (*dispatch, self.serial);
        let given = Given { queue, context, dispatch, since: now, fate, luck, serial, has_left_model: false };
        let place = self.given.insert(given) as u32;
        match &mut self.model {
            Some(model) => {
                let extent = if op == Op::Flush { fairlift_core::Extent::NONE } else { extent };
                model.submit(now, &ModelRequest { id: u64::from(place), op, flags, extent });
            }
            None => self.ends(now, place),
        }
        if matches!(fate, Fate::Slow(_) | Fate::Hangs | Fate::Lost) {
            let at = now + self.io_timeout + LATE_MAX;
            self.events.push(Reverse((at, self.serial, DiskEvent::IsLate(place))));
        }
    }

    /// A request would end now, or after its usual time where nothing models the disk: but for its fate.
    fn ends(&mut self, now: Instant, place: u32) {
        let Some(given) = self.given.get_mut(place as usize) else { return };
        given.has_left_model = true;
        let usual = match self.model {
            Some(_) => now.since(given.since),
            None => self.service + spread(given.luck, self.spread),
        };
        let takes = match given.fate {
            Fate::Slow(times) => Duration::from_nanos(usual.as_nanos().saturating_mul(times)),
            Fate::Hangs => self.io_timeout + LATE_MAX + LATE_MAX,
            Fate::Lost => return,
            _ => usual,
        };
        self.events.push(Reverse((given.since + takes, given.serial, DiskEvent::Ends(place))));
    }

    /// When something happens next.
    pub(super) fn next(&self) -> Option<Instant> {
        let own = self.events.peek().map(|Reverse((at, ..))| *at);
        match &self.model {
            Some(model) => [own, model.poll_event()].into_iter().flatten().min(),
            None => own,
        }
    }

    /// The events up to now: one at a time.
    pub(super) fn poll(&mut self, now: Instant) -> Option<(DiskEvent, Given)> {
        if let Some(model) = &mut self.model
            && model.poll_event().is_some_and(|at| at <= now)
        {
            let mut ended = std::mem::take(&mut self.ended);
            model.advance(now, &mut ended);
            for one in ended.drain(..) {
                self.ends(one.at, one.id as u32);
            }
            self.ended = ended;
        }
        while let Some(&Reverse((at, serial, event))) = self.events.peek()
            && at <= now
        {
            self.events.pop();
            let (DiskEvent::Ends(place) | DiskEvent::IsLate(place)) = event;
            let given = self.given.get(place as usize).filter(|given| given.serial == serial);
            let Some(&given) = given else { continue };
            if let DiskEvent::Ends(_) = event {
                self.given.remove(place as usize);
            }
            return Some((event, given));
        }
        None
    }

    /// Whether no request is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// The disk is reset: what hangs, and whose end was lost, fails now. From here on nothing goes wrong.
    pub(super) fn reset(&mut self, now: Instant) {
        self.is_honest = true;
        for (place, given) in &mut self.given {
            if !matches!(given.fate, Fate::Hangs | Fate::Lost | Fate::Slow(_)) {
                continue;
            }
            given.fate = Fate::Error;
            // Requests that the model still has end at its times.
            if self.model.is_none() || given.has_left_model {
                self.serial += 1;
                given.serial = self.serial;
                self.events.push(Reverse((now, self.serial, DiskEvent::Ends(place as u32))));
            }
        }
    }
}
