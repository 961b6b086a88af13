//! The tunables of CFQ: the kernel's names, units and defaults.

use crate::Duration;
use crate::time::ms;
use crate::tunable::settings;

settings! {
    /// The tunables; the defaults are the kernel's.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Settings {
        /// with slices: limit on one queue's requests in the device while other queues wait; in IOPS mode: requests
        /// in one turn
        pub quantum: u32 = 8, count(1, INT_MAX);
        /// the deadline of a read or synchronous write; when it has passed, the request is served before those nearer
        /// to the head
        pub fifo_expire_sync: Duration = ms(125), duration(ms(0), ms(INT_MAX as u64));
        /// the deadline of an asynchronous write; when it has passed, the request is served before those nearer to
        /// the head
        pub fifo_expire_async: Duration = ms(250), duration(ms(0), ms(INT_MAX as u64));
        /// the longest backward seek that counts as near, in KiB
        pub back_seek_max: u32 = 16 << 10, count(0, u32::MAX);
        /// the factor by which a backward seek counts as longer than a forward one
        pub back_seek_penalty: u32 = 2, count(1, INT_MAX);
        /// the time slice of a synchronous queue of level 4; the other levels get from 9/5 (level 0) to 2/5 (level 7)
        /// of it
        pub slice_sync: Duration = ms(100), duration(ms(1), SLICE_MAX);
        /// the time slice of an asynchronous queue of level 4; the other levels get from 9/5 (level 0) to 2/5 (level
        /// 7) of it
        pub slice_async: Duration = ms(40), duration(ms(1), SLICE_MAX);
        /// limit on the requests in an asynchronous slice while other queues wait: this value times 2 * (8 - level)
        pub slice_async_rq: u32 = 2, count(1, INT_MAX);
        /// the time for which the device may be held idle for a queue that is expected to ask again soon; auto: 8ms where
        /// idling raises throughput, else 0
        pub slice_idle: Option<Duration> = None, auto_duration(ms(0), IDLE_MAX);
        /// the time that other groups wait for a group that is expected to ask again soon; 0: not at all
        pub group_idle: Duration = ms(8), duration(ms(0), IDLE_MAX);
        /// in IOPS mode: the number of requests by which other groups may get ahead of a group that is expected to ask again soon
        pub group_lead: u32 = 32, count(0, 1 << 20);
        /// whether queues that are not worth idling for are served in their own group; 0: in the root group
        pub group_isolation: bool = true, switch;
        /// whether slices shrink and asynchronous writes are held back, so that each queue is served soon
        pub low_latency: bool = true, switch;
        /// the length of a round over all queues, with low_latency
        pub target_latency: Duration = ms(300), duration(ms(1), SLICE_MAX);
    }
}

/// The kernel's largest number, `INT_MAX`.
const INT_MAX: u32 = i32::MAX as u32;
/// The longest slice or target. Chosen: one queue then has the device for a minute, and a larger value is a slip.
const SLICE_MAX: Duration = ms(60_000);
/// The longest idle time. Chosen: a device that is held for longer serves nobody; the kernel allows any.
const IDLE_MAX: Duration = ms(1000);

impl Settings {
    /// How long the device is held idle where that was found to pay; the kernel's default.
    pub const SLICE_IDLE: Duration = ms(8);

    /// The slice of a level: 9/5 of the base for level 0, 2/5 for level 7.
    pub(super) const fn slice(&self, sync: bool, level: u8) -> Duration {
        let of_level_4 = if sync { self.slice_sync } else { self.slice_async };
        Duration::from_nanos(of_level_4.as_nanos() / 5 * (9 - if level > 7 { 7 } else { level } as u64))
    }

    /// When a request that waits goes out of the order of places.
    pub(super) const fn fifo_expire(&self, sync: bool) -> Duration {
        if sync { self.fifo_expire_sync } else { self.fifo_expire_async }
    }
}
