//! The tunables of BFQ.

use crate::Duration;
use crate::time::{ms, secs};
use crate::tunable::settings;

settings! {
    /// The tunables; names, units and defaults are the kernel's where it has them.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Settings {
        /// the time for which the device may be held idle for a stream that has run out of requests; auto: 8ms where idling
        /// raises throughput, else 0
        pub slice_idle: Option<Duration> = None, auto_duration(ms(0), secs(1)),
            also "slice_idle_us" auto_micros(0, 1_000_000) "slice_idle in microseconds";
        /// the time that other groups wait for a group that is expected to ask again soon, where many streams are served
        /// at once; 0: not at all
        pub group_idle: Duration = ms(8), duration(ms(0), secs(1));
        /// the longest time for which one stream is served in a row
        pub timeout_sync: Duration = ms(125), duration(ms(1), MS_MAX);
        /// limit on the sectors of one stream that are served in a row; 0: what the device transfers in
        /// `timeout_sync` at its peak rate, or 256 where many streams are served at once
        pub max_budget: u32 = 0, count(0, INT_MAX);
        /// whether interactive streams have a higher weight within their group for some time
        pub low_latency: bool = true, switch;
        /// whether guarantees come before throughput: one request in the device at a time, and idling for every
        /// stream
        pub strict_guarantees: bool = false, switch;
        /// the deadline of a sync request; when it has passed, the request is served out of sector order
        pub fifo_expire_sync: Duration = ms(125), duration(ms(1), MS_MAX);
        /// the deadline of an async request; when it has passed, the request is served out of sector order
        pub fifo_expire_async: Duration = ms(250), duration(ms(1), MS_MAX);
        /// the longest backward seek that counts as near, in KiB
        pub back_seek_max: u32 = 16 << 10, count(0, INT_MAX);
        /// the factor by which a backward seek counts as longer than a forward one
        pub back_seek_penalty: u32 = 2, count(1, INT_MAX);
        /// limit on requests in the device, apart from reads that are served beside writes; 0: learned, as many as
        /// throughput needs
        pub device_depth: u32 = 0, count(0, 65_535);
        /// whether streams are served one after the other (turns) or many at once (together)
        pub service: u8 = 0, choice("auto", "turns", "together");
        /// whether streams whose requests interleave into one sequential run share a queue; auto: off on devices that
        /// do not rotate and have a queue of their own
        pub queue_merging: u8 = 0, choice("auto", "on", "off");
    }
}

/// The budget of one stream where many are served at once, in sectors. Chosen: 128 KiB, for
/// one large command leaves an array with one thing to do (docs/measured/schedulers.md).
pub const QUANTUM: u32 = 256;

const INT_MAX: u32 = i32::MAX as u32;
const MS_MAX: Duration = ms(INT_MAX as u64);

impl Settings {
    /// How long the device is held idle where that was found to pay; the kernel's default.
    pub const SLICE_IDLE: Duration = ms(8);
}
