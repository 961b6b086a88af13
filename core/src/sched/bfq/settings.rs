//! What can be turned on BFQ.

use crate::Duration;
use crate::time::{ms, secs};
use crate::tunable::settings;

settings! {
    /// What can be turned; names, units and defaults are the kernel's where it has them.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Settings {
        /// the longest time for which the device is held idle for a stream that ran out of requests; auto: 8ms where
        /// the device does more that way, else 0
        pub slice_idle: Option<Duration> = None, auto_duration(ms(0), secs(1)),
            also "slice_idle_us" auto_micros(0, 1_000_000) "the same in microseconds";
        /// how long others wait, where many are served at once, for a group that is expected to ask again soon; 0:
        /// not at all
        pub group_idle: Duration = ms(8), duration(ms(0), secs(1));
        /// the longest time for which one stream is served in a row
        pub timeout_sync: Duration = ms(125), duration(ms(1), MS_MAX);
        /// the most sectors of one stream that are served in a row; 0: what the device does at its best in
        /// `timeout_sync`, and 256 where many streams are served at once
        pub max_budget: u32 = 0, count(0, INT_MAX);
        /// whether streams that someone waits at have a higher weight within their group for some time
        pub low_latency: bool = true, switch;
        /// whether guarantees count more than throughput: one request at a time in the device, and always idle
        pub strict_guarantees: bool = false, switch;
        /// how long a sync request may wait before it goes out of sector order
        pub fifo_expire_sync: Duration = ms(125), duration(ms(1), MS_MAX);
        /// how long an async request may wait before it goes out of sector order
        pub fifo_expire_async: Duration = ms(250), duration(ms(1), MS_MAX);
        /// the farthest way back that counts as near, in KiB
        pub back_seek_max: u32 = 16 << 10, count(0, INT_MAX);
        /// how many times a way back counts
        pub back_seek_penalty: u32 = 2, count(1, INT_MAX);
        /// limit on requests in the device, which reads may exceed beside writes; 0: learned, as many as throughput needs
        pub device_depth: u32 = 0, count(0, 65_535);
        /// the least part of the useful depth, in %, that stays in use while others wait for a group that is behind its
        /// weight; 100: requests never wait for another group
        pub share_floor: u32 = 10, count(0, 100);
        /// whether streams are served in turns or many at once
        pub service: u8 = 0, choice("auto", "turns", "together");
        /// whether streams that read one place in turns share a queue; auto: not on devices that do not rotate and
        /// queue
        pub queue_merging: u8 = 0, choice("auto", "on", "off");
    }
}

/// What one stream is given in a row where many are served at once, in sectors: 128 KiB.
pub const QUANTUM: u32 = 256;

const INT_MAX: u32 = i32::MAX as u32;
const MS_MAX: Duration = ms(INT_MAX as u64);

impl Settings {
    /// How long the device is held idle where that was found to pay; the kernel's default.
    pub const SLICE_IDLE: Duration = ms(8);
}
