//! View: what a server is doing now, for people who watch it.

use std::collections::BTreeMap;
use std::time::SystemTime;

use fairlift_core::ceiling::Bounds;
use fairlift_core::learn::idling_trial::Finding;
use fairlift_core::objective::Standing;
use fairlift_core::queue::{Figures, Shortage};
use fairlift_core::sched::Kind;
use fairlift_core::stats::{Histogram, Stats};
use fairlift_core::tunable::{Range, TunableInfo};
use fairlift_core::waits::{Doing, Part};
use fairlift_core::{Duration, GroupId, Instant, Op, Weight, flush};

use crate::device::Device;
pub use crate::device::Link;
use crate::disk::Disk;
pub use crate::export::DeviceView;
pub use crate::worker::turns::Worked;

/// A server at one moment.
#[derive(Clone, Debug)]
pub struct View {
    /// How often something was changed since the start.
    pub version: u64,
    /// When it was bound.
    pub started: SystemTime,
    /// Worker threads.
    pub workers: usize,
    /// The kernel interface of the workers: `io_uring`, `poll`, or `poll (io_uring: EPERM)` if io_uring was refused.
    pub engine: String,
    /// Where clients connect.
    pub listeners: Vec<String>,
    /// The exports, and the bytes that each has.
    pub exports: Vec<(String, u64)>,
    /// The disks, in the order of the configuration.
    pub disks: Vec<DiskView>,
    /// The connected clients.
    pub clients: Vec<ClientView>,
    /// How many connections each rule of [`Config::clients`](crate::config::Config::clients) has let in.
    pub let_in: BTreeMap<String, u32>,
    /// How many clients were closed before they had opened an export, by the limit that they met.
    pub turned_away: Vec<(&'static str, u64)>,
    /// Backings that are somewhere else, by their names, and how they are connected.
    pub links: Vec<(String, Link)>,
    /// Flush errors that are not acknowledged: the backing, and the error's number.
    pub flush_errors: Vec<(String, i32)>,
    /// When this was so, by the server's clock.
    pub at: Instant,
    /// The counters of each worker.
    pub worked: Vec<Worked>,
    /// The exports that are block devices of this machine.
    pub block_devices: Vec<DeviceView>,
    /// Whether something that was removed has not quite gone.
    pub leaving: bool,
}

/// A disk at one moment.
#[derive(Clone, Debug)]
pub struct DiskView {
    /// Its name.
    pub name: String,
    /// The scheduler in place; one that was chosen a moment ago may not be there yet.
    pub scheduler: Kind,
    /// Whether the disk passes from one scheduler to another, so that new requests wait.
    pub frozen: bool,
    /// Requests that may be in flight.
    pub depth: u16,
    /// Requests that may wait or be in flight.
    pub nr_requests: u32,
    /// Requests that its devices have.
    pub in_flight: u32,
    /// Requests that wait for it.
    pub waiting: u32,
    /// The backings, with their bytes.
    pub devices: Vec<(String, u64)>,
    /// Whether it is known to rotate.
    pub rotational: bool,
    /// Requests at once that were found to pay, where threads wait for files; `None`: none do.
    pub concurrency: Option<u16>,
    /// The tunables, with their present values.
    pub knobs: Vec<Knob>,
    /// The latest that its scheduler found out about holding the device idle, the newest last.
    pub findings: Vec<Finding>,
    /// Whether floors add up to more than it was seen to do.
    pub floors_short: Option<Shortage>,
    /// How latencies are kept, by group, of those on all disks.
    pub objectives: BTreeMap<String, Standing>,
    /// The latest latency of each group that was given up here, until one as short is kept.
    pub given_up: BTreeMap<String, Duration>,
    /// Its activity, added up over its queues.
    pub doing: Doing,
    /// How many queues it has.
    pub queues: u32,
    /// The counters of its queues and scheduler, by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// The figures of each group here, except idle ones.
    pub groups: Vec<GroupView>,
}

/// Something that can be turned.
#[derive(Clone, Debug)]
pub struct Knob {
    /// Its name.
    pub name: &'static str,
    /// Its value now.
    pub value: String,
    /// The values that it takes.
    pub range: Range,
    /// Its activity.
    pub says: &'static str,
}

/// The figures of a group on a disk.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// Its name from the root.
    pub path: String,
    /// Its weight, as the disk's queue has it.
    pub weight: Weight,
    /// Its bounds, as the disk's queue has them.
    pub bounds: Bounds,
    /// Its service since the start, and its present state.
    pub figures: Figures,
    /// The part of its service before it came: a group that has gone and comes again goes on with its counters. `None`: it had none.
    pub began: Option<Box<Figures>>,
}

/// A client.
#[derive(Clone, Debug)]
pub struct ClientView {
    /// Where it comes from.
    pub peer: String,
    /// The export that it has chosen; `None`: it is negotiating.
    pub export: Option<String>,
    /// The worker that serves it.
    pub worker: u16,
    /// When it connected.
    pub since: SystemTime,
    /// Replies that it has not taken, and since when they are offered; `None`: it has taken all.
    pub unsent: Option<(u64, Instant)>,
    /// The cause for which its commands wait before they are taken in, and since when.
    pub held: Option<(Part, Instant)>,
}

impl DiskView {
    /// The latency that a group has, or else the nearest above it.
    #[must_use]
    pub fn objective(&self, path: &str) -> Option<(&str, &Standing)> {
        let above = |path: &'_ str| path.rsplit_once('/').map(|(above, _)| above.len());
        let lengths = std::iter::successors(Some(path.len()), |length| above(&path[..*length]));
        let mut found = lengths.filter_map(|length| self.objectives.get_key_value(&path[..length]));
        found.next().map(|(path, standing)| (&**path, standing))
    }

    /// The fastest operations since the start: those of an idle disk. `None`: there were fewer than eight.
    #[must_use]
    pub fn fastest(&self, op: Op) -> Option<Duration> {
        let of = |stats: &Stats| {
            // A read that memory answered is the fastest of all, and none of the disk's.
            let cached = if op == Op::Read { stats.cache.hits } else { 0 };
            fastest(stats.latency(op)?, cached)
        };
        self.groups.iter().filter_map(|group| of(&group.figures.stats)).min()
    }

    /// The queue of a group's own clients, if that alone takes longer than its latency.
    #[must_use]
    pub fn own_queue(&self, group: &str) -> Option<OwnQueue> {
        let Standing { target, rate, .. } = *self.objectives.get(group)?;
        let is_below =
            |path: &str| path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let own = self.groups.iter().filter(|one| is_below(&one.path));
        let open: u64 = own.map(|one| u64::from(one.figures.open)).sum();
        let most = (u128::from(rate) * u128::from(target.as_nanos()) / 1_000_000_000) as u64;
        // One at a time would have to be in time, or it is not the queue.
        let is_own = open > most && most > 0 && self.alone()? <= target;
        is_own.then(|| OwnQueue { open, rate, takes: Duration::from_nanos(open * 1_000_000_000 / rate), most })
    }

    fn alone(&self) -> Option<Duration> {
        [Op::Read, Op::Write].into_iter().filter_map(|op| self.fastest(op)).min()
    }

    /// Why the latency of a group is not kept, though others have few requests in the device.
    #[must_use]
    pub fn why_given_up(&self, group: &str) -> String {
        let target = self.objectives.get(group).map(|standing| standing.target);
        match (self.own_queue(group), self.alone()) {
            (Some(OwnQueue { open, rate, takes, most }), _) => format!(
                "{open} of its own are outstanding: at the {rate} a second that it has, that alone takes {}; with at most {most}, more weight, or a \
                 longer latency it could be kept",
                rough(takes)
            ),
            (None, Some(alone)) if Some(alone) > target => format!("the device takes {} at the least", rough(alone)),
            _ => "a single request of a neighbour in the device, or a flush, takes longer".into(),
        }
    }

    /// The facts about a latency that is given up.
    #[must_use]
    pub fn given_up(&self, group: &str, target: Duration) -> String {
        let why = self.why_given_up(group);
        format!(
            "group {group}: a latency of {target} cannot be kept: {why}; no room is made for it, and it is tried again"
        )
    }
}

/// The number of fastest operations: an idle disk takes this long for one. Chosen: some, for one may be a mistake.
const FASTEST: u64 = 8;

/// The time of the fastest operations.
fn fastest(latency: &Histogram, beside: u64) -> Option<Duration> {
    let mut left = FASTEST + beside;
    let found = latency.buckets().find(|(_, count)| {
        left = left.saturating_sub(*count);
        left == 0
    });
    found.map(|(end, _)| end)
}

/// Operations of a group's own clients, at the rate that it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnQueue {
    /// Those that have not ended.
    pub open: u64,
    /// How many end in a second.
    pub rate: u64,
    /// So long it takes until these have ended.
    pub takes: Duration,
    /// The number of operations that would meet the latency.
    pub most: u64,
}

/// A time in two digits, as it is written.
#[must_use]
pub fn rough(time: Duration) -> Duration {
    let nanos = time.as_nanos();
    let unit = 10_u64.pow(nanos.max(1).ilog10().saturating_sub(1));
    Duration::from_nanos((nanos + unit / 2) / unit * unit)
}

impl Disk {
    /// The disk at this moment. Its queues are each looked at once; a worker that wants one meanwhile waits for as long.
    pub(crate) fn view(&self, now: Instant, groups: &[(GroupId, String)], figures: bool) -> DiskView {
        // First: with a scheduler that was looked at before it had gone, and a disk that is frozen no more, `set` would take the change for made.
        let frozen = self.is_frozen();
        let devices = self.devices();
        let (settings, knobs) = self.with_queue(|queue, (depth, nr_requests)| {
            let scheduler = queue.settings().scheduler;
            let infos = scheduler.tunables().iter().chain(flush::Settings::INFO);
            let knob = |info: &TunableInfo| {
                let TunableInfo { name, range, says } = *info;
                Some(Knob { name, value: queue.tunable(name)?, range, says })
            };
            ((scheduler, depth, nr_requests), infos.filter_map(knob).collect())
        });
        let (in_flight, waiting) = self.load();
        let names: BTreeMap<_, _> = groups.iter().map(|(id, path)| (*id, path)).collect();
        let had = if figures { self.figures_by_path(now) } else { BTreeMap::new() };
        let bound = if figures { self.bound() } else { BTreeMap::new() };
        let group = |(id, path): &(GroupId, String)| {
            let (weight, bounds, began) = bound.get(id)?.clone();
            let (figures, began) = (had.get(path)?.clone(), began.map(Box::new));
            Some(GroupView { path: path.clone(), weight, bounds, figures, began })
        };
        let objective = |(id, standing)| Some(((*names.get(&id)?).clone(), standing));
        let mut counters = BTreeMap::new();
        if figures {
            self.counters(&mut |name, count| *counters.entry(name).or_default() += count);
        }
        let (doing, count) = self.doing(now);
        let kept = self.kept(now);
        DiskView {
            name: self.name.clone(),
            scheduler: settings.0,
            frozen,
            depth: settings.1,
            nr_requests: settings.2,
            in_flight,
            waiting,
            rotational: devices.iter().any(|device| device.facts().rotational),
            devices: devices.iter().map(|device| (name(&**device), device.facts().size)).collect(),
            concurrency: None,
            knobs,
            findings: Vec::new(),
            floors_short: kept.short,
            objectives: kept.latencies.into_iter().filter_map(objective).collect(),
            given_up: BTreeMap::new(),
            doing,
            queues: count,
            counters,
            groups: groups.iter().filter_map(group).collect(),
        }
    }
}

impl DiskView {
    /// Adds what was counted on a disk of its name that has not quite gone, so that nothing falls until it has (handover.4).
    pub(crate) fn goes_on_from(&mut self, now: Instant, before: &Disk) {
        let had = before.figures_by_path(now);
        for group in &mut self.groups {
            if let Some(had) = had.get(&group.path) {
                group.figures.add(had);
                group.began.get_or_insert_default().add(had);
            }
        }
        before.counters(&mut |name, count| *self.counters.entry(name).or_default() += count);
        self.doing = self.doing + before.doing(now).0;
    }
}

pub(crate) fn name(device: &dyn Device) -> String {
    device.path().map_or_else(|| "memory".into(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_two_digits() {
        let shown = [1, 46_545_454, 5_340_000, 999_600, 1_204_000_000]
            .map(|nanos| rough(Duration::from_nanos(nanos)).to_string());
        assert_eq!(shown, ["1ns", "47ms", "5300us", "1ms", "1200ms"]);
    }
}
