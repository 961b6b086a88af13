//! The device's learned character, and its use accordingly.

use super::*;

/// All that is learned of the device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) depth: u32,
    /// Requests of the scheduler before, still in the device.
    pub(super) others: u32,
    pub(super) rotation: Rotation,
    pub(super) trials: Trials,
    /// The last answer was that the depth keeps requests waiting.
    pub(super) is_full: bool,
    /// Where the last request that was dispatched ended.
    pub(super) position: Sector,
    /// The read that is alone in the device.
    pub(super) lone: Option<(RequestId, Lone)>,
}

impl Device {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let rotational = setup.character.rotational;
        let depth = u32::from(setup.depth).max(1);
        Self {
            depth,
            others: 0,
            rotation: Rotation::new(rotational),
            trials: Trials::new(depth, rotational),
            is_full: false,
            position: Sector(0),
            lone: None,
        }
    }

    /// It takes another number of requests at once.
    pub(super) fn set_depth(&mut self, depth: u16) {
        self.depth = u32::from(depth).max(1);
        self.trials.set_max(self.depth);
    }

    /// For the next one: whether distance costs time, and which way and depths trials have found.
    pub(super) fn hand_on(&self, into: &mut Record) {
        into.put("rotates", &self.is_rotational());
        self.trials.hand_on(into);
    }

    pub(super) fn take_on(&mut self, from: &mut Record) -> Result<(), Unreadable> {
        if let Some(rotates) = from.take("rotates")? {
            self.rotation = Rotation::new(rotates);
        }
        self.trials.take_on(from)
    }

    /// Whether it takes several at once.
    #[inline]
    pub(super) const fn queues(&self) -> bool {
        queues(self.depth)
    }

    #[inline]
    pub(super) const fn is_rotational(&self) -> bool {
        self.rotation.is_rotational()
    }
}

impl Bfq {
    /// Whether many streams are served at once, rather than one after the other.
    #[inline]
    pub(super) fn is_together(&self) -> bool {
        if self.settings.strict_guarantees {
            return false; // bfq.6
        }
        let device = &self.device;
        match (self.settings.service, self.settings.slice_idle) {
            (1, _) => false,
            (2, _) => true,
            _ if device.depth <= 1 || device.is_rotational() && self.turns_are_forced() => false,
            (_, None) => device.trials.ways.way() == Way::Parallel,
            (_, Some(idle)) if device.is_rotational() => idle == Duration::ZERO,
            (_, Some(_)) => device.queues(),
        }
    }

    /// raising.9, in the only group that competes.
    #[inline]
    fn turns_are_forced(&self) -> bool {
        let in_service = || self.turn.map(|turn| &self.queue(turn.queue).raising);
        self.crowd.forces_turns(in_service) && !self.groups_compete()
    }

    /// How many requests may be in the device (together.4), and reads whatever else is in it (together.5).
    #[inline]
    pub(super) fn limit(&self) -> u32 {
        match self.settings.device_depth {
            _ if self.settings.strict_guarantees => 1, // bfq.6
            0 => self.device.trials.limit(self.is_together()),
            depth => depth.min(self.device.depth),
        }
    }

    /// How long others may be held for one who thinks; bfq.6 asks for no less than the default.
    #[inline]
    pub(super) fn slice_idle(&self) -> Duration {
        let idle = self.settings.slice_idle.unwrap_or(Settings::SLICE_IDLE);
        if self.settings.strict_guarantees { idle.max(Settings::SLICE_IDLE) } else { idle }
    }

    /// The time by which habits are judged: the longest for which anybody may be waited for.
    #[inline]
    pub(super) fn habitual_idle(&self) -> Duration {
        self.slice_idle().max(self.settings.group_idle)
    }

    /// Whether a waiting request may become larger by that (together.1): one large command would leave a device that works on several at a
    /// time with one thing to do.
    pub(super) fn may_grow(&self, id: RequestId, by: u64) -> bool {
        !self.is_together() || self.waitings.extent(id).sectors + by <= Together::budget_max(&self.settings).into()
    }

    /// A request of such size ended, of those that were in flight; learns from it.
    pub(super) fn learn(&mut self, now: Instant, served: &Served, sectors: u64) {
        let (in_flight, waiting) = (self.together.in_flight, self.waitings.len() as u32);
        let is_together = self.is_together();
        let is_held = self.turn.is_some_and(|turn| turn.idle_until.is_some());
        // Requests that could be dispatched as well if the depth allowed it.
        let could = match self.turn {
            Some(turn) if !is_together => self.queue(turn.queue).requests.len(),
            _ => waiting,
        };
        let several = self.crowd.open > 1 && !(self.device.is_rotational() && self.turns_are_forced());
        let queue = self.queue(self.waitings.owner(served.request.id));
        let seeks = queue.seeks.last_was_seek();
        let is_alone = queue.in_flight == 1 && queue.requests.is_empty();
        let what = match served.request.op {
            Op::Read if is_alone && seeks && !self.device.is_rotational() => depth::Ended::Single,
            Op::Write => depth::Ended::Write,
            _ => depth::Ended::Other,
        };
        self.turns.rate.ended(now);
        let lone = self.device.lone.take_if(|(id, _)| *id == served.request.id);
        if let Some((_, lone)) = lone
            && self.device.rotation.ended(now, lone)
        {
            self.device.trials.rotates(now, self.device.rotation.is_rotational());
            self.review_merging();
        }
        let is_auto = self.settings.slice_idle.is_none() && self.settings.service == 0;
        let end = trials::Ended {
            sectors,
            what,
            demand: in_flight + could,
            share_wait: is_held && is_together,
            is_together,
            way: is_auto.then_some(idling_trial::End { sectors, open: in_flight - 1 + waiting, several, seeks }),
        };
        let has_other_turns = self.device.trials.ended(now, &end);
        if let Some(finding) = self.device.trials.ways.take_finding() {
            self.notes.keep_finding(finding);
        }
        if has_other_turns {
            self.plan_anew(is_together);
        }
    }

    /// The service changes: waiting queues are in the order by a turn of the other's length, which may be many times as long.
    #[cold]
    fn plan_anew(&mut self, is_together: bool) {
        let in_service = self.turn.map(|turn| turn.queue);
        for q in 0..self.queues.len() as u32 {
            let waits = self.queues[q as usize].as_ref().is_some_and(|queue| !queue.requests.is_empty());
            if waits && in_service != Some(q) {
                self.fair.set_budget(Leaf(q), self.budget(q, is_together));
            }
        }
    }

    #[inline]
    pub(super) fn note_dispatch(&mut self, now: Instant, id: RequestId, extent: Extent) {
        let (op, in_flight) = (self.waitings.op(id), self.together.in_flight);
        let counts = Extent::new(extent.start, charge::size(op, extent.sectors));
        let seek = self.seek();
        self.turns.dispatched(now, counts, in_flight, seek, &self.settings);
        let device = &mut self.device;
        device.lone = (in_flight == 0 && op == Op::Read).then(|| {
            let distance = extent.start.0.abs_diff(device.position.0);
            (id, Lone { dispatched: now, distance, sectors: extent.sectors })
        });
        device.position = extent.end();
    }

    #[inline]
    pub(super) const fn seek(&self) -> Seek {
        if self.device.is_rotational() { Seek::ROTATIONAL } else { Seek::FLASH }
    }

    /// bfq.8: switches merging on or off as the device and the settings ask.
    pub(super) fn review_merging(&mut self) {
        let on = match self.settings.queue_merging {
            0 => self.device.is_rotational() || !self.device.queues(),
            choice => choice == 1,
        };
        if self.merging.set_on(on) && on {
            for q in 0..self.queues.len() as u32 {
                if self.queues[q as usize].is_some() {
                    self.head_changed(q);
                }
            }
        }
    }

    pub(super) fn settings_changed(&mut self, name: &str) {
        match name {
            "queue_merging" => self.review_merging(),
            "max_budget" | "timeout_sync" => self.turns.settings_changed(&self.settings),
            "low_latency" if !self.settings.low_latency => self.end_raising(),
            _ => {}
        }
    }
}
