//! Queues: one for the synchronous requests of each stream, and for each priority one for all asynchronous writes of a
//! group. CFQ's own word for them is `cfq_queue`; here they are flows, since a disk has a queue already.

use alloc::vec::Vec;

use super::settings::Settings;
use crate::learn::habits::{Seek, Seekiness, ThinkTime};
use crate::sched::request_list::RequestList;
use crate::time::scale;
use crate::tree::Nodes;
use crate::{Duration, Priority, PriorityClass, Sector, StreamId};

/// No flow, group or stream.
pub(super) const NIL: u32 = u32::MAX;

/// How a flow is served: which of its class's trees it is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Service {
    /// Synchronous, and the device is held idle for it.
    Sync,
    /// Synchronous, and served side by side with its like; the device is held idle for the last of them only.
    SyncNoidle,
    /// Asynchronous writes.
    Async,
}

impl Service {
    pub(super) const COUNT: usize = 3;
    pub(super) const ALL: [Self; Self::COUNT] = [Self::Sync, Self::SyncNoidle, Self::Async];
}

/// Requests that take turns as one.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) requests: RequestList,
    /// The stream that it was made for, unless it is asynchronous or an orphan.
    pub(super) stream: StreamId,
    /// Where its stream belongs.
    pub(super) home: u16,
    /// Where it is served: `home`, or the root's group without `group_isolation`.
    pub(super) group: u16,
    pub(super) priority: Priority,
    pub(super) sync: bool,
    /// Which tree it is in, or was in last.
    pub(super) service: Service,
    /// It takes turns: it is in a tree.
    pub(super) is_busy: bool,
    /// The service that it has had, as its weight counts it: its key in the tree.
    pub(super) served: u64,
    pub(super) in_flight: u32,
    /// Where its last request ended.
    pub(super) position: Sector,
    pub(super) think: ThinkTime,
    pub(super) seeks: Seekiness,
    /// Whether the device may be held idle for it, as its habits are.
    pub(super) idles: bool,
    /// It had four requests waiting at once: though it seeks, it is worth its slice.
    pub(super) is_deep: bool,
    /// Streams whose requests come here.
    pub(super) members: u32,
    /// The stream that it was made for has gone or has another.
    pub(super) is_orphan: bool,
    /// It is to be parted: what its members ask is no longer one run.
    pub(super) splits: bool,
}

/// More requests than this among the last 32 far from the one before: a flow that seeks; the kernel's `CFQQ_SEEKY`.
const SEEKS: u32 = 4;
/// This number of waiting requests makes a flow deep; the kernel's value.
const DEEP: u32 = 4;

impl Flow {
    pub(super) fn new(number: u32, group: u16, priority: Priority, sync: bool) -> Self {
        Self {
            requests: RequestList::new(number),
            stream: StreamId(NIL),
            home: group,
            group,
            priority,
            sync,
            service: if sync { Service::Sync } else { Service::Async },
            is_busy: false,
            served: 0,
            in_flight: 0,
            position: Sector(0),
            think: ThinkTime::default(),
            seeks: Seekiness::default(),
            idles: sync && priority.class != PriorityClass::Idle,
            is_deep: false,
            members: 0,
            is_orphan: false,
            splits: false,
        }
    }

    /// The distance that counts as a seek on this device.
    pub(super) const fn seek(rotational: bool) -> Seek {
        if rotational { Seek::ROTATIONAL } else { Seek::FLASH }
    }

    pub(super) const fn is_seeky(&self) -> bool {
        self.seeks.is_seeky(SEEKS)
    }

    /// A request came: whether the device may be held idle for this flow from now on.
    pub(super) fn learn(&mut self, slice_idle: Duration) {
        if !self.sync || self.priority.class == PriorityClass::Idle {
            self.idles = false;
            return;
        }
        self.is_deep |= self.requests.len() >= DEEP;
        if slice_idle == Duration::ZERO || (!self.is_deep && self.is_seeky()) {
            self.idles = false;
        } else {
            // A flow that always has something in the device never thinks, and is expected to ask again, as at first.
            self.idles = !self.think.is_longer_than(slice_idle);
        }
    }

    /// The tree that its habits put it in.
    pub(super) const fn service_now(&self) -> Service {
        match (self.sync, self.idles) {
            (false, _) => Service::Async,
            (true, false) => Service::SyncNoidle,
            (true, true) => Service::Sync,
        }
    }

    /// The weighed charge of the flow: for synchronous flows 5/9 of `charge` at level 0 to 5/2 at level 7; for asynchronous ones
    /// more, as their slices are shorter.
    pub(super) fn weigh(&self, settings: &Settings, charge: u64) -> u64 {
        let weighed = charge.saturating_mul(5) / (9 - u64::from(self.priority.level.min(7)));
        if self.sync {
            return weighed.min(1 << 60);
        }
        let (sync, own) = (settings.slice_sync.as_nanos(), settings.slice_async.as_nanos().max(1));
        scale(weighed, sync, own).min(1 << 60)
    }
}

/// All flows, by number.
#[derive(Default, Debug)]
pub(super) struct Flows {
    rows: Vec<Flow>,
    free: Vec<u32>,
    /// The service trees are made of these.
    pub(super) nodes: Nodes,
}

impl Flows {
    pub(super) fn add(&mut self, group: u16, priority: Priority, sync: bool) -> u32 {
        if let Some(number) = self.free.pop() {
            self.rows[number as usize] = Flow::new(number, group, priority, sync);
            return number;
        }
        let number = u32::try_from(self.rows.len()).expect("fewer flows than numbers");
        self.rows.push(Flow::new(number, group, priority, sync));
        self.nodes.grow_to(self.rows.len());
        self.free.reserve(self.rows.len() - self.free.len());
        number
    }

    /// Frees a number; nothing of the flow waits or is in the device.
    pub(super) fn remove(&mut self, number: u32) {
        let flow = &mut self.rows[number as usize];
        // A free flow is nobody's to free.
        flow.is_orphan = false;
        assert!(
            flow.requests.is_empty() && flow.in_flight == 0 && !flow.is_busy,
            "flow {number} goes, and has requests"
        );
        self.free.push(number);
    }

    /// Two different flows at once.
    pub(super) fn two(&mut self, one: u32, other: u32) -> (&mut Flow, &mut Flow) {
        let [one, other] =
            self.rows.get_disjoint_mut([one as usize, other as usize]).expect("different flows that exist");
        (one, other)
    }

    /// All numbers that were ever given out.
    pub(super) fn numbers(&self) -> core::ops::Range<u32> {
        0..self.rows.len() as u32
    }
}

impl core::ops::Index<u32> for Flows {
    type Output = Flow;
    #[inline]
    fn index(&self, number: u32) -> &Flow {
        &self.rows[number as usize]
    }
}

impl core::ops::IndexMut<u32> for Flows {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut Flow {
        &mut self.rows[number as usize]
    }
}
