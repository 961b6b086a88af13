//! A coordinator before a queue, as plain as can be, with bugs to choose from.
//!
//! It exists to be broken: each [`Bug`] is one that somebody has made or could make, and the tests must find it. Without a
//! bug it must pass them, which shows that what they find is the bug.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fairlift_core::queue::{Segment, Settings};
use fairlift_core::{
    Bio, ContextId, Dispatch, Extent, Finished, Flags, Instant, Op, Outcome, Queue, Refused, Stream, StreamId, Tag,
    Token,
};
use fairlift_proving::power_cut::Subject;

/// What is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bug {
    /// Who asks while a flush runs is released by that flush, not by the next.
    ReleasesWhoAskedDuringTheRunningFlush,
    /// The end of a flush makes the disk clean, though a write ended while it ran.
    ForgetsWhatEndedDuringAFlush,
    /// The start of a flush makes the disk clean, also if it then fails.
    ForgetsAFailedFlush,
    /// The disk is dirty when a write is asked for, and not when it ends: a flush that starts between the two cleans it.
    CountsWritesWhenTheyAreAskedFor,
    /// Only writes make the disk dirty; zeroes do not.
    ForgetsZeroes,
    /// Sharers of a flush that failed are told that it went well, but for the one who asked first.
    TellsTheErrorToTheFirstAlone,
    /// A write with FUA goes down without it.
    DropsFua,
    /// A flush of one device of the disk stands for one of another.
    SharesAcrossDevices,
    /// Who waits when a flush ends is forgotten if a client that shared it has gone meanwhile.
    LosesAWaiter,
    /// A flush that took too long is answered as if it had ended.
    TrustsATimeout,
}

impl Bug {
    pub(crate) const ALL: [Self; 10] = [
        Self::ReleasesWhoAskedDuringTheRunningFlush,
        Self::ForgetsWhatEndedDuringAFlush,
        Self::ForgetsAFailedFlush,
        Self::CountsWritesWhenTheyAreAskedFor,
        Self::ForgetsZeroes,
        Self::TellsTheErrorToTheFirstAlone,
        Self::DropsFua,
        Self::SharesAcrossDevices,
        Self::LosesAWaiter,
        Self::TrustsATimeout,
    ];
}

/// A device of the disk.
#[derive(Default)]
struct Device {
    /// A write has ended that no flush covers.
    is_dirty: bool,
    /// Who shares the flush that runs: (context, token), who asked first in front.
    running: Vec<(ContextId, Token)>,
    /// The bio that runs it.
    leader: Option<Token>,
    /// Who waits for the next.
    waiting: Vec<(Bio, ContextId)>,
}

/// A queue, and before it a coordinator: see the [module](self).
pub(crate) struct Coordinator {
    queue: Queue,
    bug: Option<Bug>,
    /// Sectors of a device.
    place: u64,
    devices: Vec<Device>,
    contexts: BTreeMap<StreamId, ContextId>,
    /// Writes under way: what each makes dirty when it ends.
    writes: BTreeMap<u64, (Op, usize)>,
    /// Leaders whose flush took too long: their memory is with the disk.
    overdue: BTreeSet<u64>,
    finished: BTreeMap<ContextId, VecDeque<Finished>>,
    wake: VecDeque<ContextId>,
    joined: u64,
}

impl Coordinator {
    /// Before a queue of these settings that sends each flush by itself, and of devices of so many sectors.
    pub(crate) fn new(mut settings: Settings, place: u64, bug: Option<Bug>) -> Self {
        (settings.flush.coordinate, settings.flush.remember) = (false, false);
        let places = settings.backings.len();
        Self {
            queue: Queue::new(settings),
            bug,
            place,
            devices: (0..places).map(|_| Device::default()).collect(),
            contexts: BTreeMap::new(),
            writes: BTreeMap::new(),
            overdue: BTreeSet::new(),
            finished: BTreeMap::new(),
            wake: VecDeque::new(),
            joined: 0,
        }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn device_of(&self, extent: Extent) -> usize {
        (extent.start.0 / self.place) as usize
    }

    fn tell(&mut self, context: ContextId, token: Token, outcome: Outcome) {
        self.finished.entry(context).or_default().push_back(Finished::Done(token, outcome));
        self.wake.push_back(context);
    }

    fn flush(&mut self, now: Instant, bio: Bio) -> Result<(), Refused> {
        let context = self.contexts[&bio.stream];
        let index = self.device_of(bio.extent);
        let shares = if self.has(Bug::SharesAcrossDevices) {
            self.devices.iter().position(|device| device.leader.is_some()).unwrap_or(index)
        } else {
            index
        };
        if self.devices[shares].leader.is_some() {
            if self.has(Bug::ReleasesWhoAskedDuringTheRunningFlush) {
                self.devices[shares].running.push((context, bio.token));
            } else {
                self.devices[shares].waiting.push((bio, context));
            }
            return Ok(());
        }
        if !self.devices[index].is_dirty {
            self.tell(context, bio.token, Outcome::Done);
            return Ok(());
        }
        self.queue.submit(now, bio)?;
        self.start(index, bio.token, vec![(context, bio.token)]);
        Ok(())
    }

    fn start(&mut self, index: usize, leader: Token, running: Vec<(ContextId, Token)>) {
        let forgets_at_end = self.has(Bug::ForgetsWhatEndedDuringAFlush);
        let device = &mut self.devices[index];
        (device.leader, device.running) = (Some(leader), running);
        if !forgets_at_end {
            device.is_dirty = false;
        }
    }

    /// The flush that `token` led has ended, or took too long.
    fn flush_ended(&mut self, now: Instant, index: usize, outcome: Outcome) {
        let bug = self.bug;
        let device = &mut self.devices[index];
        device.leader = None;
        if outcome != Outcome::Done && bug != Some(Bug::ForgetsAFailedFlush) {
            device.is_dirty = true;
        }
        if bug == Some(Bug::ForgetsWhatEndedDuringAFlush) && outcome == Outcome::Done {
            device.is_dirty = false;
        }
        let (sharers, waiting) = (std::mem::take(&mut device.running), std::mem::take(&mut device.waiting));
        for (place, (context, token)) in sharers.into_iter().enumerate() {
            self.joined += 1;
            let lies = place > 0 && bug == Some(Bug::TellsTheErrorToTheFirstAlone);
            if bug == Some(Bug::LosesAWaiter) && self.joined.is_multiple_of(50) {
                continue;
            }
            self.tell(context, token, if lies { Outcome::Done } else { outcome });
        }
        let sharers: Vec<_> = waiting.iter().map(|(bio, context)| (*context, bio.token)).collect();
        let Some((bio, _)) = waiting.first() else { return };
        match self.queue.submit(now, *bio) {
            Ok(()) => {
                self.start(index, bio.token, sharers);
                self.wake.push_back(self.contexts[&bio.stream]);
            }
            Err(_) => panic!("the test's queue has room for a flush of each device"),
        }
    }

    /// News of the queue; what of it is for clients is in `finished`.
    fn hear(&mut self, now: Instant, context: ContextId) {
        while let Some(news) = self.queue.poll_finished(context) {
            let (Finished::Done(token, _) | Finished::TimedOut(token) | Finished::Released(token)) = news;
            let leads = self.devices.iter().position(|device| device.leader == Some(token));
            match (news, leads) {
                (Finished::Done(_, outcome), Some(index)) => self.flush_ended(now, index, outcome),
                (Finished::TimedOut(_), Some(index)) => {
                    self.overdue.insert(token.0);
                    let outcome = match self.bug {
                        Some(Bug::TrustsATimeout) => Outcome::Done,
                        _ => Outcome::Failed(fairlift_core::Errno::ETIMEDOUT),
                    };
                    self.flush_ended(now, index, outcome);
                }
                (Finished::Released(_), None) if self.overdue.remove(&token.0) => {}
                _ => {
                    if let Some((op, index)) = self.writes.remove(&token.0)
                        && !self.has(Bug::CountsWritesWhenTheyAreAskedFor)
                        && !(self.has(Bug::ForgetsZeroes) && op == Op::WriteZeroes)
                    {
                        self.devices[index].is_dirty = true;
                    }
                    if let Finished::TimedOut(_) = news {
                        self.writes.insert(token.0, (Op::Write, 0)); // dirty once more when it ends
                    }
                    self.finished.entry(context).or_default().push_back(news);
                    self.wake.push_back(context);
                }
            }
        }
    }
}

impl Subject for Coordinator {
    fn add_stream(&mut self, stream: Stream) -> StreamId {
        let id = self.queue.add_stream(stream);
        self.contexts.insert(id, stream.context);
        id
    }

    fn submit(&mut self, now: Instant, mut bio: Bio) -> Result<(), Refused> {
        if bio.op == Op::Flush {
            return self.flush(now, bio);
        }
        if bio.op != Op::Read && self.has(Bug::DropsFua) {
            bio.flags = Flags::NONE;
        }
        self.queue.submit(now, bio)?;
        let index = self.device_of(bio.extent);
        if bio.op != Op::Read {
            self.writes.insert(bio.token.0, (bio.op, index));
            self.devices[index].is_dirty |= self.has(Bug::CountsWritesWhenTheyAreAskedFor);
        }
        Ok(())
    }

    fn poll_dispatch(&mut self, now: Instant, context: ContextId) -> Option<Dispatch> {
        let dispatch = self.queue.poll_dispatch(now, context);
        self.hear_all(now);
        dispatch
    }

    fn segments(&self, tag: Tag) -> Vec<Segment> {
        self.queue.segments(tag).collect()
    }

    fn handle_completion(&mut self, now: Instant, tag: Tag, outcome: Outcome) {
        self.queue.handle_completion(now, tag, outcome);
        self.hear_all(now);
    }

    fn handle_busy(&mut self, now: Instant, tag: Tag) {
        self.queue.handle_busy(now, tag);
        self.hear_all(now);
    }

    fn handle_timeout(&mut self, now: Instant, _context: ContextId) {
        self.queue.handle_timeout(now);
        self.hear_all(now);
    }

    fn poll_finished(&mut self, context: ContextId) -> Option<Finished> {
        self.finished.get_mut(&context)?.pop_front()
    }

    fn poll_wake(&mut self, _context: ContextId) -> Option<ContextId> {
        self.wake.pop_front().or_else(|| self.queue.poll_wake())
    }

    fn poll_timeout(&self, _context: ContextId) -> Option<Instant> {
        self.queue.poll_timeout()
    }
}

impl Coordinator {
    fn hear_all(&mut self, now: Instant) {
        for context in 0..self.queue.settings().contexts {
            self.hear(now, ContextId(context));
        }
    }
}
