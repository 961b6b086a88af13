//! What can be turned on CFQ: the kernel's names, units and defaults.

use crate::Duration;
use crate::time::ms;
use crate::tunable::{Tunable, TunableInfo, infos};

/// What can be turned; the defaults are the kernel's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// With slices: requests that one queue may have in the device while others wait, half of it late in its slice. In
    /// IOPS mode: requests of one turn.
    pub quantum: u32,
    /// The age at which a read or synchronous write goes before those nearer to the head.
    pub fifo_expire_sync: Duration,
    /// The same of asynchronous writes.
    pub fifo_expire_async: Duration,
    /// How far back the head may go, in KiB.
    pub back_seek_max: u32,
    /// How many times a way back counts.
    pub back_seek_penalty: u32,
    /// The slice of a synchronous queue of level 4.
    pub slice_sync: Duration,
    /// The slice of an asynchronous queue of level 4.
    pub slice_async: Duration,
    /// Requests of an asynchronous slice while others wait: twice this for each level above 8.
    pub slice_async_rq: u32,
    /// How long the device is held idle for a queue that is expected to ask again soon; 0: never; `None`: for
    /// [`Settings::SLICE_IDLE`] where that pays, which is found out ([`idling_trial`](crate::sched::idling_trial)).
    pub slice_idle: Option<Duration>,
    /// How long others wait for a group that is expected to ask again soon; 0: not at all.
    pub group_idle: Duration,
    /// Requests by which groups that have some waiting may get ahead of one that is expected to ask again soon, in IOPS
    /// mode.
    pub group_lead: u32,
    /// Whether queues that are not worth idling for stay in their group.
    pub group_isolation: bool,
    /// Whether slices shrink, and asynchronous writes are held back, so that nobody waits for long.
    pub low_latency: bool,
    /// How long a round over all queues may take, with `low_latency`.
    pub target_latency: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            quantum: 8,
            fifo_expire_sync: ms(125),
            fifo_expire_async: ms(250),
            back_seek_max: 16 << 10,
            back_seek_penalty: 2,
            slice_sync: ms(100),
            slice_async: ms(40),
            slice_async_rq: 2,
            slice_idle: None,
            group_idle: ms(8),
            group_lead: 32,
            group_isolation: true,
            low_latency: true,
            target_latency: ms(300),
        }
    }
}

/// The kernel's largest number, `INT_MAX`.
const INT_MAX: u32 = i32::MAX as u32;
/// A slice or target of this length lets one queue have the device for a minute.
const SLICE_MAX: Duration = ms(60_000);
/// The kernel allows any idle time; a device that is held for longer than this serves nobody.
const IDLE_MAX: Duration = ms(1000);

pub(super) const ROWS: [Tunable<Settings>; 14] = [
    Tunable::count(
        "quantum",
        (1, INT_MAX),
        |s| &mut s.quantum,
        "with slices: limit on one queue's requests in the device while other queues wait; in IOPS mode: requests in one turn",
    ),
    Tunable::duration(
        "fifo_expire_sync",
        (ms(0), ms(INT_MAX as u64)),
        |s| &mut s.fifo_expire_sync,
        "the deadline of a read or synchronous write; when it has passed, the request is served before those nearer to the head",
    ),
    Tunable::duration(
        "fifo_expire_async",
        (ms(0), ms(INT_MAX as u64)),
        |s| &mut s.fifo_expire_async,
        "the deadline of an asynchronous write; when it has passed, the request is served before those nearer to the head",
    ),
    Tunable::count(
        "back_seek_max",
        (0, u32::MAX),
        |s| &mut s.back_seek_max,
        "the longest backward seek that counts as near, in KiB",
    ),
    Tunable::count(
        "back_seek_penalty",
        (1, INT_MAX),
        |s| &mut s.back_seek_penalty,
        "the factor by which a backward seek counts as longer than a forward one",
    ),
    Tunable::duration(
        "slice_sync",
        (ms(1), SLICE_MAX),
        |s| &mut s.slice_sync,
        "the time slice of a synchronous queue of level 4; the other levels get from 9/5 (level 0) to 2/5 (level 7) of it",
    ),
    Tunable::duration(
        "slice_async",
        (ms(1), SLICE_MAX),
        |s| &mut s.slice_async,
        "the time slice of an asynchronous queue of level 4; the other levels get from 9/5 (level 0) to 2/5 (level 7) of it",
    ),
    Tunable::count(
        "slice_async_rq",
        (1, INT_MAX),
        |s| &mut s.slice_async_rq,
        "limit on the requests in an asynchronous slice while other queues wait: this value times 2 * (8 - level)",
    ),
    Tunable::auto_duration(
        "slice_idle",
        (ms(0), IDLE_MAX),
        |s| &mut s.slice_idle,
        "how long the device may be held idle for a queue that is expected to ask again soon; auto: 8ms where idling raises throughput, else 0",
    ),
    Tunable::duration(
        "group_idle",
        (ms(0), IDLE_MAX),
        |s| &mut s.group_idle,
        "how long other groups wait for a group that is expected to ask again soon; 0: not at all",
    ),
    Tunable::count(
        "group_lead",
        (0, 1 << 20),
        |s| &mut s.group_lead,
        "in IOPS mode: how many requests other groups may get ahead of a group that is expected to ask again soon",
    ),
    Tunable::switch(
        "group_isolation",
        |s| &mut s.group_isolation,
        "whether queues that are not worth idling for are served in their own group; 0: in the root group",
    ),
    Tunable::switch(
        "low_latency",
        |s| &mut s.low_latency,
        "whether slices shrink and asynchronous writes are held back, so that each queue is served soon",
    ),
    Tunable::duration(
        "target_latency",
        (ms(1), SLICE_MAX),
        |s| &mut s.target_latency,
        "how long a round over all queues may take, with low_latency",
    ),
];

impl Settings {
    /// How long the device is held idle where that was found to pay; the kernel's default.
    pub const SLICE_IDLE: Duration = ms(8);

    /// What can be turned, described.
    pub const INFO: &[TunableInfo] = &infos(&ROWS);

    /// The slice of level 4.
    pub(super) const fn base_slice(&self, sync: bool) -> Duration {
        if sync { self.slice_sync } else { self.slice_async }
    }

    /// The slice of a level: 9/5 of the base for level 0, 2/5 for level 7.
    pub(super) const fn slice(&self, sync: bool, level: u8) -> Duration {
        Duration::from_nanos(self.base_slice(sync).as_nanos() / 5 * (9 - if level > 7 { 7 } else { level } as u64))
    }

    /// When a request that waits goes out of the order of places.
    pub(super) const fn fifo_expire(&self, sync: bool) -> Duration {
        if sync { self.fifo_expire_sync } else { self.fifo_expire_async }
    }
}
