//! What can be turned on BFQ.

use crate::Duration;
use crate::time::{ms, secs};
use crate::tunable::{Tunable, TunableInfo, infos};

/// What can be turned; names, units and defaults are the kernel's where it has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The longest time for which the device is held idle for a stream that ran out of requests.
    pub slice_idle: Duration,
    /// The longest time for which one stream is served in a row.
    pub timeout_sync: Duration,
    /// The most sectors of one stream that are served in a row; 0: what the device does in `timeout_sync`, or little on a device that serves many at once.
    pub max_budget: u32,
    /// Whether streams that someone waits at get a higher weight for some time.
    pub low_latency: bool,
    /// Whether guarantees count more than throughput.
    pub strict_guarantees: bool,
    /// How long a sync request may wait before it is served out of sector order.
    pub fifo_expire_sync: Duration,
    /// How long an async request may wait before it is served out of sector order.
    pub fifo_expire_async: Duration,
    /// The farthest way back that is near, in KiB.
    pub back_seek_max: u32,
    /// How many times a way back counts.
    pub back_seek_penalty: u32,
    /// Requests in the device at once; 0: as many as throughput needs, which is learned.
    pub device_depth: u32,
    /// The least part of the useful depth, in %, that is kept in the device while others wait for whom it is.
    pub share_floor: u32,
    /// 1: turns; 2: many at once; 0: auto.
    pub turns: u32,
    /// Sectors.
    pub quantum: u32,
    /// Whether streams that read one place in turns share a queue: 0 never, 1 always, 2 where the device rotates or does not
    /// queue.
    pub queue_merging: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slice_idle: ms(8),
            timeout_sync: ms(125),
            max_budget: 0,
            low_latency: true,
            strict_guarantees: false,
            fifo_expire_sync: ms(125),
            fifo_expire_async: ms(250),
            back_seek_max: 16 << 10,
            back_seek_penalty: 2,
            device_depth: 0,
            share_floor: 33,
            turns: 0,
            quantum: 256,
            queue_merging: 2,
        }
    }
}

const INT_MAX: u32 = i32::MAX as u32;
const MS_MAX: Duration = ms(INT_MAX as u64);

pub(super) const ROWS: [Tunable<Settings>; 14] = [
    Tunable::duration("slice_idle", (ms(0), secs(1)), |s| &mut s.slice_idle, "the longest time for which the device is held idle for a stream that ran out of requests"),
    Tunable::duration("timeout_sync", (ms(1), MS_MAX), |s| &mut s.timeout_sync, "the longest time for which one stream is served in a row"),
    Tunable::count("max_budget", (0, INT_MAX), |s| &mut s.max_budget, "the most sectors of one stream that are served in a row; 0: found by what the device does"),
    Tunable::switch("low_latency", |s| &mut s.low_latency, "whether streams that someone waits at get a higher weight for some time"),
    Tunable::switch("strict_guarantees", |s| &mut s.strict_guarantees, "whether guarantees count more than throughput: one request at a time, always idle for who may come back"),
    Tunable::duration("fifo_expire_sync", (ms(1), MS_MAX), |s| &mut s.fifo_expire_sync, "how long a sync request may wait before it is served out of sector order"),
    Tunable::duration("fifo_expire_async", (ms(1), MS_MAX), |s| &mut s.fifo_expire_async, "how long an async request may wait before it is served out of sector order"),
    Tunable::count("back_seek_max", (0, INT_MAX), |s| &mut s.back_seek_max, "the farthest way back that is near, in KiB"),
    Tunable::count("back_seek_penalty", (1, INT_MAX), |s| &mut s.back_seek_penalty, "how many times a way back counts"),
    Tunable::count("device_depth", (0, 65_535), |s| &mut s.device_depth, "requests in the device at once; 0: as many as throughput needs, which is learned"),
    Tunable::count("share_floor", (0, 100), |s| &mut s.share_floor, "the least part of the useful depth, in %, that others keep while they wait for one who is behind"),
    Tunable::count("turns", (0, 2), |s| &mut s.turns, "turns"),
    Tunable::count(
        "queue_merging",
        (0, 2),
        |s| &mut s.queue_merging,
        "whether streams that read one place in turns share a queue: 0 never, 1 always, 2 where the device rotates or does \
         not queue",
    ),
    Tunable::count("quantum", (0, 65_535), |s| &mut s.quantum, "sectors"),
];

impl Settings {
    /// The tunables.
    pub const INFO: &'static [TunableInfo] = &infos(&ROWS);
}
