//! The schedulers: which request goes next.
//!
//! A scheduler holds requests that wait for the device and answers "what next". It never blocks, never reads a clock,
//! and allocates nothing once warm: its tables are sized for `capacity` requests when it is made, or told to grow.

pub mod bfq;
pub mod cfq;
pub mod deadline;
pub mod fair;
pub mod fair_queue;
pub mod none;
mod notes;
mod request_list;
pub mod traits;

use alloc::boxed::Box;

use crate::model::Character;
use crate::tunable::TunableInfo;
use crate::{Duration, Extent, Flags, Group, GroupId, Instant, Op, Priority, StreamId};

pub use traits::{Charge, Membership, Merge, Report, Scheduler, Tune};

/// The setup of a scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Requests that may wait or be in flight at once.
    pub capacity: usize,
    /// Requests that may be in the device at once.
    pub depth: u16,
    /// The weight tree, parents first; what changes later is told by [`Membership::set_group`].
    pub groups: &'a [Group],
    /// The device's character as declared: a first guess, because observations count more.
    pub character: Character,
}

/// Whether a device with this many requests at once works on several: CFQ's `CFQ_HW_QUEUE_MIN`. To find out by observation gained nothing
/// (docs/tried.md).
pub(crate) const fn queues(depth: u32) -> bool {
    depth > 4
}

impl Setup<'_> {
    /// An unknown device, with no groups but the root, which is in no list: for code that only asks about a scheduler's properties.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        let character = Character { rotational: false, volatile_cache: false };
        Self { capacity, depth: 1, groups: &[], character }
    }
}

/// A request's place in the queue's table: below the `capacity` that the scheduler was made with, unique from
/// insertion to completion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u32);

/// The description of a waiting request for a scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Its name while it waits.
    pub id: RequestId,
    /// Its operation; never [`Op::Flush`], because flushes do not pass through a scheduler.
    pub op: Op,
    /// How it wants to be treated.
    pub flags: Flags,
    /// Where on the disk.
    pub extent: Extent,
    /// The stream that asks.
    pub stream: StreamId,
    /// The group of the stream.
    pub group: GroupId,
    /// The priority of the stream.
    pub priority: Priority,
}

impl Waiting {
    /// Whether a program waits for it: a read, or a write with SYNC or FUA.
    #[must_use]
    pub const fn is_sync(&self) -> bool {
        matches!(self.op, Op::Read) || self.flags.intersects(Flags::SYNC.with(Flags::FUA))
    }
}

/// Which side of a waiting request a newcomer joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The newcomer ends where the waiting request starts.
    Front,
    /// The newcomer starts where the waiting request ends.
    Back,
}

/// A scheduler's answer to "what next".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// This request; it no longer waits.
    Request(RequestId),
    /// Nothing until then: the device is being held idle for a stream that will ask again soon.
    Idle {
        /// When to ask again at the latest.
        until: Instant,
    },
    /// Nothing may go before the next insertion, completion or [`Scheduler::next_timeout`].
    Empty,
}

/// The fate of a request, for schedulers that learn from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// The request as it was dispatched.
    pub request: Waiting,
    /// When it went to the device.
    pub dispatched: Instant,
    /// How it ended.
    pub end: RequestEnd,
}

/// How a request ended, as far as it tells of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestEnd {
    /// The device did it.
    Done,
    /// It failed: that says nothing about the device's speed.
    Failed,
    /// Memory above the disk had it: the device did nothing, so nothing is learned of it (queue.19).
    Cached,
}

impl Served {
    /// Whether the device did it.
    #[must_use]
    pub const fn ok(&self) -> bool {
        matches!(self.end, RequestEnd::Done)
    }
}

/// A scheduler in the registry: what others know of it without one at hand. Each scheduler's file has its own, as `ENTRY`.
pub struct Entry {
    /// The name, as in the kernel's `queue/scheduler`.
    pub name: &'static str,
    /// Whether all contexts of a disk share one instance. `none` decides nothing between contexts, so each has its own and no
    /// lock is contended.
    pub is_per_disk: bool,
    /// How many requests may wait or be in flight at least, unless a config says otherwise; 0: two for each tag, as in the
    /// kernel. Where groups share by weight it is more: a request that finds the table full waits outside, where no weight
    /// counts, and a group that has few requests inside cannot use its share. Above 0 says that groups share by weight.
    pub nr_requests_min: u32,
    /// The weight of a group's own streams beside the groups below it: of the root, and of any other.
    pub own_weights: [u32; 2],
    /// The tunables.
    pub tunables: &'static [TunableInfo],
    /// A new instance with default settings.
    pub build: fn(&Setup<'_>) -> Box<dyn Scheduler>,
}

/// As [`Entry::nr_requests_min`], of schedulers that share by weight. Chosen: 64 requests for each of 64 tenants, for weights do
/// not count among what waits outside.
pub const NR_REQUESTS_SHARED: u32 = 4096;

/// Makes [`Kind`] of the rows of the registry.
macro_rules! registry {
    ($($(#[doc = $says:literal])+ $kind:ident = $module:ident,)+) => {
        /// Which scheduler.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Kind {
            $($(#[doc = $says])+ $kind,)+
        }

        impl Kind {
            /// All of them, in the order of the registry.
            pub const ALL: [Self; [$(Self::$kind),+].len()] = [$(Self::$kind),+];

            /// Its row.
            #[must_use]
            pub const fn entry(self) -> &'static Entry {
                match self {
                    $(Self::$kind => &$module::ENTRY,)+
                }
            }
        }
    };
}

// The registry: a new scheduler is a file, its `pub mod` above, and a row here with its `///` line; then
// `UPDATE_DOCS=1 cargo test -p fairlift-cli`.
registry! {
    /// First come, first served.
    None = none,
    /// Sector order with deadlines.
    MqDeadline = deadline,
    /// Fair by weight, in the disk's time.
    Fair = fair,
    /// Fair by weight, in sectors.
    Bfq = bfq,
    /// Turns by time, groups by weight; or requests by weight.
    Cfq = cfq,
}

impl Kind {
    /// The name, as in the kernel's `queue/scheduler`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// The one called `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether all contexts of a disk share one instance.
    #[must_use]
    pub const fn is_per_disk(self) -> bool {
        self.entry().is_per_disk
    }

    /// The weight of a group's own streams beside the groups below it; `is_root`: the group is the root.
    #[must_use]
    pub const fn own_weight(self, is_root: bool) -> u32 {
        self.entry().own_weights[if is_root { 0 } else { 1 }]
    }

    /// How many requests may wait or be in flight, unless a config says otherwise.
    #[must_use]
    pub fn nr_requests(self, depth: u16) -> u32 {
        (2 * u32::from(depth)).max(self.entry().nr_requests_min)
    }

    /// Whether groups share by weight: such a scheduler has room for the requests of many
    /// ([`Entry::nr_requests_min`]), since weights decide among those only.
    #[must_use]
    pub const fn has_weights(self) -> bool {
        self.entry().nr_requests_min > 0
    }

    /// The scheduler of a disk for which nobody names one. Weights mean something to two tenants; a lone one has nobody to share
    /// with, and `mq-deadline` does less for each request.
    #[must_use]
    pub const fn usual(tenants: usize, rotates: bool) -> Self {
        match (tenants, rotates) {
            (0 | 1, _) => Self::MqDeadline,
            (_, false) => Self::Fair,
            (_, true) => Self::Bfq,
        }
    }

    /// Whether a group can have a floor ([`Membership::set_floor`]).
    #[must_use]
    pub const fn has_floors(self) -> bool {
        matches!(self, Self::Fair)
    }

    /// Whether gateways can share a pool by it ([`Scheduler::share_depth`]).
    #[must_use]
    pub const fn shares_pools(self) -> bool {
        matches!(self, Self::Fair)
    }

    /// Whether others make room for a group's latency ([`Membership::set_latency`]).
    #[must_use]
    pub const fn keeps_latency(self) -> bool {
        matches!(self, Self::Fair)
    }

    /// The tunables.
    #[must_use]
    pub const fn tunables(self) -> &'static [TunableInfo] {
        self.entry().tunables
    }

    /// A new instance with default settings.
    #[must_use]
    pub fn build(self, setup: &Setup<'_>) -> Box<dyn Scheduler> {
        (self.entry().build)(setup)
    }
}

/// How long a device that said "busy" is left alone when nothing of ours is in flight: the kernel's `BLK_MQ_RESOURCE_DELAY`.
pub const BUSY_DELAY: Duration = crate::time::ms(3);
