//! The queue of a disk: what turns bios of many clients into requests for one device.
//!
//! Clients ask in their own sizes and at their own times; a device takes a limited number at once, is fast in one order and slow in
//! another, and sometimes fails or hangs. The queue stands between them. Each file below is one stage of a request:
//!
//! ```text
//!  submit ──▶ merge ──▶ (scheduler) ──▶ dispatch ──▶ device ──▶ complete
//!    cut to     plug,                     tag,                    bios end,
//!    the        neighbours                context                 room for others
//!    limits     join
//!      └── flush_sequence: a flush, and a write with PREFLUSH or FUA, in up to three steps ──┘
//! ```
//!
//! An example: a client submits 32 writes of 4 KiB, each behind the other, and then asks [`Queue::poll_dispatch`]. The first such
//! question ends the batch: the 32 bios have become one request of 128 KiB, which the scheduler gets, which takes a tag, and which
//! the device is asked for. [`Queue::handle_completion`] of that tag ends all 32 bios, and [`Queue::poll_finished`] tells of each.
//!
//! queue.1  Each bio that was accepted ends exactly once.
//! queue.2  A request in flight holds a tag. With all tags out nothing is dispatched.
//! queue.3  Bios submitted before the first `poll_dispatch` are one batch (a *plug*): neighbours in it are merged, and the
//!          scheduler gets it whole.
//! queue.4  A request stays in the context that submitted it. Bios are merged only within a group, a priority and a context, and a
//!          request is given only to its own context.
//! queue.5  Flushes do not pass through the scheduler, and are dispatched first. Flushes of one backing that are asked for
//!          together become one ([`crate::flush`]).
//! queue.6  A bio that takes longer than `io_timeout` in the device fails, but its memory stays the device's until the device has
//!          answered: [`Finished::TimedOut`] tells the first, [`Finished::Released`] the second.
//!          A caller that did not run for a while says so ([`Queue::handle_stall`]): nothing is late for as long again.
//! queue.7  A request that the device could not take ([`Queue::handle_busy`]) is dispatched first, once something else has ended, or after
//!          [`BUSY_DELAY`](crate::sched::BUSY_DELAY) if nothing is in flight, or only requests that have taken too long.
//!
//! | rules | file | about |
//! |---|---|---|
//! | queue.8–11 | `queue/groups.rs` | streams and groups that come, change and go |
//! | queue.12 | `queue/switch.rs` | another scheduler |
//! | queue.13 | `queue/ceilings.rs` | ceilings of groups |
//! | queue.14 | `queue/bounds.rs` | another depth |
//! | queue.18 | `queue/hand_on.rs` | another server |
//! | queue.19 | `queue/complete.rs` | reads that memory answers |
//! | queue.20 | `queue/contexts.rs` | who waits for room |
//!
//! A stage owns its state and is asked. From outside: [`Queue::groups`] (and the streams in them), [`Queue::flushes`],
//! [`Queue::ceilings`], [`Queue::trace`]. Within: tags in `queue/tag_source.rs`, what contexts have to fetch in `queue/contexts.rs`.
//!
//! A round of a context: `handle_completion` for all that has ended, `submit` for all that is new, `poll_dispatch` until `None`,
//! `poll_finished` until `None`, `poll_wake` until `None`, then `poll_timeout`.

use alloc::string::String;
use alloc::vec::Vec;

mod bounds;
mod ceilings;
mod complete;
mod contexts;
mod dispatch;
mod events;
mod flush_sequence;
mod flushes;
mod groups;
mod hand_on;
mod in_device;
mod intake;
mod merge;
mod promises;
mod requests;
mod settings;
mod shortage;
mod submit;
mod switch;
mod tag_source;
mod waits;

pub use events::{Dispatch, Finished, Load, Refused, Segment};
pub use flushes::Flushes;
pub use groups::{GroupInUse, Groups, StreamState};
pub use promises::{Bound, Kept};
pub use settings::{Backing, Settings, SharedTags};
pub use shortage::Shortage;
pub use waits::Figures;

use contexts::Contexts;

use crate::ceiling::Ceilings;
use crate::flush;
use crate::group::ContextId;
use crate::learn::idling_trial::Finding;
use crate::list::NIL;
use crate::sched::{RequestId, Waiting};
use crate::stats::Stats;
use crate::trace::{Action, Item, Note, Trace, TraceEvent};
use crate::tunable;
use crate::{Instant, Op};

use in_device::{InDevice, Patience};
use intake::Intake;
use promises::Promises;
use requests::{BioState, Request, Requests, SegmentNode, State};
use switch::Present;

/// The queue of a disk. See the [module](self) for its rules and the order in which to call it.
///
/// # Examples
///
/// Two neighbouring reads become one request; when the device has done it, both have ended:
///
/// ```
/// use fairlift_core::queue::Settings;
/// use fairlift_core::time::us;
/// use fairlift_core::{Bio, ContextId, Extent, Finished, Flags, GroupId, Instant, Limits, Op, Outcome, Priority, Queue};
/// use fairlift_core::{Sector, Stream, Token, sched::Kind};
///
/// let mut queue = Queue::new(Settings::new(Kind::MqDeadline, Limits::new(1 << 21))); // a disk of 1 GiB
/// let context = ContextId(0);
/// let stream = queue.add_stream(Stream { group: GroupId::ROOT, priority: Priority::default(), context });
///
/// let now = Instant::ZERO;
/// for (token, sector) in [(1, 0), (2, 8)] {
///     let extent = Extent::new(Sector(sector), 8);
///     queue.submit(now, Bio { op: Op::Read, flags: Flags::NONE, extent, stream, token: Token(token) })?;
/// }
///
/// let dispatch = queue.poll_dispatch(now, context).expect("the device has room");
/// assert_eq!(dispatch.extent, Extent::new(Sector(0), 16));
/// assert_eq!(queue.poll_dispatch(now, context), None);
///
/// queue.handle_completion(now + us(80), dispatch.tag, Outcome::Done);
/// assert_eq!(queue.poll_finished(context), Some(Finished::Done(Token(1), Outcome::Done)));
/// assert_eq!(queue.poll_finished(context), Some(Finished::Done(Token(2), Outcome::Done)));
/// # Ok::<(), fairlift_core::Refused>(())
/// ```
///
/// A tenant with three times the weight gets three times the share, and another weight or scheduler works under load:
///
/// ```
/// use fairlift_core::queue::Settings;
/// use fairlift_core::{Group, GroupId, Instant, Limits, Queue, Weight, sched::Kind};
///
/// let mut queue = Queue::new(Settings::new(Kind::Fair, Limits::new(1 << 21)));
/// let root = Some(GroupId::ROOT);
/// let alice = queue.groups().free();
/// queue.add_group(Instant::ZERO, alice, Group { path: "/alice".into(), parent: root, weight: Weight::new(300) });
/// queue.set_weight(Instant::ZERO, alice, Weight::DEFAULT);
/// queue.set_tunable("isolation_cost", "5")?;
/// queue.set_scheduler(Instant::ZERO, Kind::Bfq);
/// assert_eq!(queue.tunable("slice_idle").as_deref(), Some("auto"));
/// # Ok::<(), fairlift_core::tunable::Error>(())
/// ```
pub struct Queue {
    settings: Settings,
    scheduler: Present,
    requests: Requests,
    contexts: Contexts,
    intake: Intake,
    flushes: Flushes,
    device: InDevice,
    groups: Groups,
    ceilings: Ceilings,
    promises: Promises,
    trace: Trace,
    /// Until somebody takes them.
    findings: Vec<Finding>,
}

impl Queue {
    /// An empty queue.
    ///
    /// # Panics
    /// If a number in `settings` is 0 or there are more than 64 contexts.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        assert!((1..=64).contains(&settings.contexts), "1 to 64 contexts, not {}", settings.contexts);
        assert!(settings.limits.block > 0 && settings.limits.rw_max > 0 && settings.limits.segments_max > 0);
        assert!(settings.nr_requests >= u32::from(settings.depth), "fewer requests than may be in flight");
        assert!(settings.depth > 0, "nothing may be in flight");
        assert!(!settings.backings.is_empty(), "a disk has a backing");
        assert!(settings.backings.is_sorted_by_key(|backing| backing.start), "backings by rising start");
        Self {
            scheduler: Present::new(settings.scheduler.build(&settings.setup())),
            requests: Requests::new(&settings),
            contexts: Contexts::new(&settings),
            intake: Intake::new(&settings),
            flushes: Flushes::new(&settings),
            device: InDevice::new(&settings),
            groups: Groups::new(&settings.groups),
            ceilings: Ceilings::new(&settings.groups),
            promises: Promises::default(),
            trace: Trace::default(),
            findings: Vec::new(),
            settings,
        }
    }

    /// When to call [`Queue::handle_timeout`] and [`Queue::poll_dispatch`] though nothing else happened.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = |id: u32| self.device.patience.late_at(self.requests[id].dispatched);
        let overdue = self.device.sent.front().map(due);
        let busy = self.device.busy_until.filter(|until| *until != Instant::MAX);
        // While no tag is free, or the device is busy, asking the scheduler would change nothing.
        let may_ask = self.device.busy_until.is_none() && !self.device.tags.lacks;
        let held = self.scheduler.next_timeout().filter(|_| may_ask);
        [overdue, busy, held, self.flushes.due(), self.ceilings.due()].into_iter().flatten().min()
    }

    // ---- knobs and counters ----

    /// The settings with which the queue was made; for tunables that were changed since, ask [`Queue::tunable`].
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The flushes of its backings.
    pub const fn flushes(&mut self) -> &mut Flushes {
        &mut self.flushes
    }

    /// The present value of a tunable of the scheduler or of the queue ([`flush::Settings::INFO`]).
    #[must_use]
    pub fn tunable(&self, name: &str) -> Option<String> {
        let own = tunable::get(flush::Settings::TUNABLES, &self.settings.flush, name);
        own.or_else(|| self.scheduler.get(name))
    }

    /// Sets a tunable of the scheduler, or one of the queue for all queues that share its flushes; works under load.
    ///
    /// # Errors
    /// There is no such tunable, or the value is malformed or out of range.
    pub fn set_tunable(&mut self, name: &str, value: &str) -> Result<(), tunable::Error> {
        if !flush::Settings::INFO.iter().any(|info| info.name == name) {
            return self.scheduler.set(name, value);
        }
        tunable::set(flush::Settings::TUNABLES, &mut self.settings.flush, name, value)?;
        self.flushes.set(&self.settings.flush);
        Ok(())
    }

    /// The names by which it counts what only rises, whatever its scheduler.
    pub const COUNTED: [&'static str; 6] =
        ["merges", "flushes_asked", "flushes_sent", "flushes_failed", "flushes_spared", "flush_waits"];

    /// The counters beside [`Groups::stats`], each by name: `merges`, the bios that joined another's request, and the scheduler's counters
    /// since it was chosen ([`Report::counters`](crate::sched::Report::counters)).
    pub fn counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        let merges = |stats: &Stats| Op::ALL.iter().map(|op| stats.of(*op).merges).sum::<u64>();
        tell("merges", self.groups.all_stats().map(merges).sum());
        self.flushes.tell(tell);
        self.scheduler.counters(tell);
    }

    /// The bios that wait for the ceilings of groups.
    pub const fn ceilings(&mut self) -> &mut Ceilings {
        &mut self.ceilings
    }

    /// How much there is to do.
    #[must_use]
    pub fn load(&self) -> Load {
        let in_flight = self.device.tags.in_flight;
        let waiting = self.requests.len() - usize::from(in_flight) + self.flushes.waiting();
        let (held, news) = (self.ceilings.len, self.contexts.news());
        Load { in_flight, waiting, held, news, lacks_tag: self.device.tags.lacks }
    }

    /// The scheduler's decisions about holding the device idle (`slice_idle=auto`) since the last call.
    pub fn take_findings(&mut self, tell: &mut dyn FnMut(Finding)) {
        self.hear();
        self.findings.drain(..).for_each(tell);
    }

    /// Keeps the latest `bound` events and messages of the scheduler from now on; 0 keeps none. Earlier ones are gone.
    pub fn keep_trace(&mut self, bound: usize) {
        self.trace.keep(bound);
        self.scheduler.set_tracing(bound > 0);
    }

    /// The trace, if [`Queue::keep_trace`] enables it.
    pub fn trace(&mut self) -> &mut Trace {
        self.hear();
        &mut self.trace
    }

    /// Fetches what the scheduler has said.
    #[cold]
    fn hear(&mut self) {
        while let Some(message) = self.scheduler.poll_message() {
            if let Note::Compared(finding) = message.note {
                self.findings.push(finding);
            }
            if self.trace.is_on() {
                self.trace.push(Item::Message(message));
            }
        }
    }
}

impl Trace {
    /// Keeps what happened to a request, or to a bio as it waits, where events are kept.
    #[inline]
    fn note(&mut self, groups: &Groups, at: Instant, action: Action, request: &Waiting) {
        if self.is_on() {
            self.note_now(groups, at, action, request);
        }
    }

    #[cold]
    fn note_now(&mut self, groups: &Groups, at: Instant, action: Action, request: &Waiting) {
        let Waiting { op, extent, stream, group, .. } = *request;
        let context = groups.streams.get(stream.0 as usize).map_or(ContextId(0), |state| state.stream.context);
        self.push(Item::Event(TraceEvent { at, action, op, extent, stream, group, context }));
    }
}
