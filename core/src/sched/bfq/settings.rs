//! What can be turned on BFQ.

use crate::Duration;
use crate::time::{ms, secs};
use crate::tunable::{Tunable, TunableInfo, infos};

/// What can be turned; names, units and defaults are the kernel's where it has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The longest time for which the device is held idle for a stream that ran out of requests; 0: never, for many are
    /// served at once; `None`: [`Settings::SLICE_IDLE`] where that pays, which is found out ([`idling_trial`](crate::sched::idling_trial)).
    pub slice_idle: Option<Duration>,
    /// How long others wait, where many are served at once, for a group that is expected to ask again soon; 0: not at all.
    pub group_idle: Duration,
    /// The longest time for which one stream is served in a row.
    pub timeout_sync: Duration,
    /// The most sectors of one stream that are served in a row; 0: what the device does at its best in `timeout_sync`, and
    /// where many streams are served at once [`QUANTUM`].
    pub max_budget: u32,
    /// Whether streams that someone waits at have a higher weight for some time.
    pub low_latency: bool,
    /// Whether guarantees count more than throughput: one request at a time in the device, and always idle.
    pub strict_guarantees: bool,
    /// How long a sync request may wait before it goes out of sector order.
    pub fifo_expire_sync: Duration,
    /// How long an async request may wait before it goes out of sector order.
    pub fifo_expire_async: Duration,
    /// The farthest way back that counts as near, in KiB.
    pub back_seek_max: u32,
    /// How many times a way back counts.
    pub back_seek_penalty: u32,
    /// Requests in the device at once; 0: as many as throughput needs, which is learned.
    pub device_depth: u32,
    /// The least part of the useful depth, in %, that stays in use, on average, while others wait for one who is behind.
    pub share_floor: u32,
    /// Whether streams are served in turns or many at once: 0 auto, 1 turns, 2 together.
    pub service: u8,
    /// Whether streams that read one place in turns share a queue: 0 auto, 1 on, 2 off.
    pub queue_merging: u8,
}

/// What one stream is given in a row where many are served at once, in sectors: 128 KiB.
pub const QUANTUM: u32 = 256;

impl Default for Settings {
    fn default() -> Self {
        Self {
            slice_idle: None,
            group_idle: ms(8),
            timeout_sync: ms(125),
            max_budget: 0,
            low_latency: true,
            strict_guarantees: false,
            fifo_expire_sync: ms(125),
            fifo_expire_async: ms(250),
            back_seek_max: 16 << 10,
            back_seek_penalty: 2,
            device_depth: 0,
            share_floor: 10,
            service: 0,
            queue_merging: 0,
        }
    }
}

const INT_MAX: u32 = i32::MAX as u32;
const MS_MAX: Duration = ms(INT_MAX as u64);

pub(super) const ROWS: [Tunable<Settings>; 15] = [
    Tunable::auto_duration(
        "slice_idle",
        (ms(0), secs(1)),
        |s| &mut s.slice_idle,
        "how long the device may be held idle for a stream that has run out of requests; auto: 8ms where idling raises throughput, else 0",
    ),
    Tunable::auto_micros("slice_idle_us", (0, 1_000_000), |s| &mut s.slice_idle, "slice_idle in microseconds"),
    Tunable::duration(
        "group_idle",
        (ms(0), secs(1)),
        |s| &mut s.group_idle,
        "how long other groups wait for a group that is expected to ask again soon, where many streams are served at once; 0: not at all",
    ),
    Tunable::duration(
        "timeout_sync",
        (ms(1), MS_MAX),
        |s| &mut s.timeout_sync,
        "the longest time for which one stream is served in a row",
    ),
    Tunable::count(
        "max_budget",
        (0, INT_MAX),
        |s| &mut s.max_budget,
        "limit on the sectors of one stream that are served in a row; 0: what the device transfers in `timeout_sync` at its peak rate, or 256 where many streams are served at once",
    ),
    Tunable::switch(
        "low_latency",
        |s| &mut s.low_latency,
        "whether interactive streams have a higher weight within their group for some time",
    ),
    Tunable::switch(
        "strict_guarantees",
        |s| &mut s.strict_guarantees,
        "whether guarantees come before throughput: one request in the device at a time, and idling for every stream",
    ),
    Tunable::duration(
        "fifo_expire_sync",
        (ms(1), MS_MAX),
        |s| &mut s.fifo_expire_sync,
        "the deadline of a sync request; when it has passed, the request is served out of sector order",
    ),
    Tunable::duration(
        "fifo_expire_async",
        (ms(1), MS_MAX),
        |s| &mut s.fifo_expire_async,
        "the deadline of an async request; when it has passed, the request is served out of sector order",
    ),
    Tunable::count(
        "back_seek_max",
        (0, INT_MAX),
        |s| &mut s.back_seek_max,
        "the longest backward seek that counts as near, in KiB",
    ),
    Tunable::count(
        "back_seek_penalty",
        (1, INT_MAX),
        |s| &mut s.back_seek_penalty,
        "the factor by which a backward seek counts as longer than a forward one",
    ),
    Tunable::count(
        "device_depth",
        (0, 65_535),
        |s| &mut s.device_depth,
        "limit on requests in the device, apart from reads that are served beside writes; 0: learned, as many as throughput needs",
    ),
    Tunable::count(
        "share_floor",
        (0, 100),
        |s| &mut s.share_floor,
        "the least part of the useful depth, in %, that stays in use while other streams wait for one that is behind its share; 100: no stream waits",
    ),
    Tunable::choice(
        "service",
        &["auto", "turns", "together"],
        |s| &mut s.service,
        "whether streams are served one after the other (turns) or many at once (together)",
    ),
    Tunable::choice(
        "queue_merging",
        &["auto", "on", "off"],
        |s| &mut s.queue_merging,
        "whether streams whose requests interleave into one sequential run share a queue; auto: off on devices that do not rotate and have a queue of their own",
    ),
];

impl Settings {
    /// How long the device is held idle where that was found to pay; the kernel's default.
    pub const SLICE_IDLE: Duration = ms(8);

    /// The tunables.
    pub const INFO: &'static [TunableInfo] = &infos(&ROWS);
}
