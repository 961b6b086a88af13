//! Why: what a tenant's requests wait for, in plain words with figures.
//!
//! Two looks at the server, a second or so apart, say what the time between them was spent on. The time of a connection has two halves: for
//! a part of it the client has nothing outstanding, and for the rest its operations are in one of the [`Part`]s. The largest of these is
//! the cause. Example: carol's connection has something outstanding 95 % of the time, and 80 % of the time of carol's operations is
//! `flush`; so 76 % of the time is flushes, 5 % is carol's own pauses, and flushes are the cause.
//!
//! why.1  The time of the client's pauses and of the parts add up to the time of the tenant's connections.
//! why.2  A part is told with its cause: `others` with the neighbour that has most of the disk's time, and with advice, `flush` with the
//!        tenant that flushes most, `room` with the bound that is reached.
//! why.3  A worker that has no time left is the cause of waits that it alone can make: its clients seem to pause, devices and replies seem
//!        slow.
//! why.4  A tenant that is short could have more with the client that it has (share.3): its client's pauses are told last.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use fairlift::access::Grant;
use fairlift::config::Export;
use fairlift::control::view::{ClientView, DiskView, GroupView, OwnQueue};
use fairlift::control::{State, View};
use fairlift::gateways::PoolView;
use fairlift_core::ceiling::{Bounds, Rate, Rates};
use fairlift_core::objective::{Room, SECONDS, Standing};
use fairlift_core::waits::{Doing, Part};
use fairlift_core::{Duration, Op, Weight};
use serde_json::{Value, json};

use super::activity::{self, Activity, All, seconds};
use super::evicted::{self, Reads};
use super::pools;
use super::shares::{self, By, Share, Waits};
use super::show;

/// From this part of its time on a worker counts as having none left.
const BUSY: f64 = 0.85;
/// The least part of the time that is told.
const LEAST: f64 = 0.01;
/// The number of operations outstanding that counts as one at a time.
const ONE: f64 = 1.5;
/// A lower depth is not advised. Chosen: the depth that docs/do/slow.md begins with.
const SHALLOW: u64 = 8;

/// The figures of an export's tenant, between two looks.
struct Look<'a> {
    role: &'a Grant,
    state: &'a State,
    before: &'a View,
    after: &'a View,
    seconds: f64,
    tenant: &'a str,
    disk: &'a DiskView,
    was: Option<&'a DiskView>,
    on_disk: &'a OnDisk<'a>,
    /// Its connections to exports on the disk.
    clients: &'a [&'a ClientView],
    activity: Activity,
    share: Option<Share>,
}

struct OnDisk<'a> {
    all: All<'a>,
    shares: BTreeMap<&'a str, Share>,
}

struct Cause {
    name: &'static str,
    /// The part of the time of the tenant's connections.
    part: f64,
    says: String,
}

/// The causes of waits of each tenant on each of its disks, of exports that are meant, by themselves or their tenants, and may be seen.
pub(super) fn why(
    role: &Grant,
    state: &State,
    [before, after]: [&View; 2],
    pools: &[PoolView],
    is_meant: impl Fn(&Export, &str) -> bool,
) -> Vec<Value> {
    let config = &state.config;
    let seconds = seconds(after.at.since(before.at));
    // In the root group each connection is a tenant of its own.
    let place = |export: &Export| (export.group, export.disk);
    let places: BTreeMap<_, _> = config.exports.iter().map(|export| (&*export.name, place(export))).collect();
    let mut clients: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for client in &after.clients {
        let at = client.export.as_deref().and_then(|name| places.get(name).copied());
        clients.entry(at).or_default().push(client);
    }
    let outside = [before, after].map(|view| activity::outside(state, view));
    let mut seen = BTreeSet::new();
    let exports = config.exports.iter().filter(|export| {
        let tenant = &config.group(export).path;
        role.sees(tenant) && is_meant(export, tenant) && seen.insert(place(export))
    });
    let mut disks = BTreeMap::new();
    let answer = |export: &Export| {
        let name = &config.disks[export.disk?].name;
        let disk = after.disks.iter().find(|one| one.name == *name)?;
        let was = before.disks.iter().find(|one| one.name == *name);
        let on_disk = disks.entry(name).or_insert_with(|| {
            let all = All::new(disk, was, &outside);
            let rows = all.paths().map(|path| (path, all.of(path))).collect();
            OnDisk { shares: shares::shares(state, disk, &rows, seconds), all }
        });
        let clients = clients.get(&Some(place(export))).map_or(&[][..], Vec::as_slice);
        let tenant = &*config.group(export).path;
        let (activity, share) = (on_disk.all.of(tenant), on_disk.shares.get(tenant).copied());
        let look = Look { role, state, before, after, seconds, tenant, disk, was, on_disk, clients, activity, share };
        let mut answer = look.answer(&export.name);
        answer["pool"] = pools::shown(pools, name, tenant);
        Some(answer)
    };
    exports.filter_map(answer).collect()
}

impl Look<'_> {
    fn answer(&self, export: &str) -> Value {
        let (activity, share) = (&self.activity, self.share);
        let mut causes = self.causes();
        // why.4
        let rank = |cause: &Cause| if self.is_short() && cause.name == "client" { 0.0 } else { cause.part };
        causes.sort_by(|one, two| rank(two).total_cmp(&rank(one)));
        let first = causes.first();
        let mut answer = json!({
            "export": export,
            "tenant": self.tenant,
            "disk": self.disk.name,
            "seconds": self.seconds,
            "cause": first.map(|cause| cause.name),
            "says": first.map(|cause| &cause.says),
            "helps": self.helps(first.is_some_and(|cause| cause.name == "others")),
            "had": share.map_or(0.0, |share| share.had),
            "due": share.map(|share| share.due),
            "due_by": share.map(|share| share.by.name()),
            "score": share.as_ref().and_then(Share::score),
            "short": self.is_short(),
            "iops": activity.ops as f64 / self.seconds,
            "bps": activity.bytes as f64 / self.seconds,
            "outstanding": self.outstanding(),
            "connections": self.clients.len(),
            "latency": null,
            "cache": self.evicted(),
            "causes": causes.iter().map(|Cause { name, part, says }| json!({
                "cause": name,
                "part": part,
                "says": says,
            })).collect::<Value>(),
        });
        show::bounds(&self.state.config, self.tenant, &mut answer);
        answer["latency"] = json!(self.latency()); // as it is kept
        answer
    }

    /// How the tenant's latency is kept, or for whose others make room; `None`: nobody's.
    fn latency(&self) -> Option<Value> {
        let own = self.disk.objective(self.tenant);
        let is_made = |(_, standing): &(&String, &Standing)| standing.room == Room::Made;
        let others = || self.disk.objectives.iter().find(is_made).map(|(path, standing)| (&**path, standing));
        let (path, standing) = own.or_else(others)?;
        let (target, met) = (standing.target, standing.met());
        let seen = met.map_or_else(|| "nothing was answered in".into(), |met| format!("kept in {} of", percent(met)));
        let mine = format!("its latency of {target}: {seen} the last {SECONDS} s");
        let says = match standing.room {
            Room::Made if !self.role.sees(path) && own.is_none() => {
                let says = "fewer of its requests are in the device, for the latency of another tenant";
                return Some(json!({"group": null, "target_us": null, "met": null, "says": says}));
            }
            Room::Made if own.is_none() => {
                format!("fewer of its requests are in the device, for the latency of {path}, {target}")
            }
            Room::Made => format!("{mine}; others make room for it"),
            Room::GivenUp if self.role.sees(path) => format!("{mine}; given up: {}", self.disk.why_given_up(path)),
            Room::GivenUp => format!("{mine}; given up: it was missed though others made room for it"),
            Room::Enough if !self.disk.scheduler.keeps_latency() => {
                format!("{mine}; scheduler {} does nothing for it", self.disk.scheduler.name())
            }
            Room::Enough => mine,
        };
        Some(json!({"group": path, "target_us": target.as_nanos() as f64 / 1000.0, "met": met, "says": says}))
    }

    /// The sentences on its reads through the page cache, if there is something to say.
    fn evicted(&self) -> Option<String> {
        let reads = |path| {
            let [before, now] = self.on_disk.all.cache(path);
            Reads { path, before, now }
        };
        let others: Vec<_> = self.on_disk.all.paths().filter(|path| *path != self.tenant).map(reads).collect();
        evicted::says(reads(self.tenant), &others, self.seconds, |path| self.role.sees(path))
    }

    fn is_short(&self) -> bool {
        self.share.is_some_and(|share| share.is_short())
    }

    /// How many of its operations were outstanding, on average.
    fn outstanding(&self) -> f64 {
        seconds(self.activity.times.sum()) / self.seconds
    }

    fn outstanding_by_stream(&self) -> f64 {
        self.outstanding() / f64::from(self.activity.streams.max(1))
    }

    /// All that took a part of the tenant's time (why.1).
    fn causes(&self) -> Vec<Cause> {
        if self.clients.is_empty() {
            let says = format!("no client is connected to an export of {} on {}", self.tenant, self.disk.name);
            return vec![Cause { name: "nobody", part: 1.0, says }];
        }
        let active = self.activity.active_part(self.seconds);
        let mut causes = Vec::new();
        if active < 1.0 - LEAST {
            causes.push(self.client(1.0 - active));
        }
        let busiest = self.busiest();
        // A worker that has no time left hears late that a request has ended: nobody is in the device before it.
        let waits = self.share.filter(|_| busiest.is_none()).map_or(Waits::NONE, |share| share.waits);
        let parts = self.activity.time_by_part(self.seconds, waits).filter(|(_, share)| *share >= LEAST);
        causes.extend(parts.map(|(part, share)| self.part(part, share)));
        if let Some(worker) = busiest {
            // why.3
            let of = |cause: &mut Cause| ["client", "reply", "device", "one at a time"].contains(&cause.name);
            let part = causes.extract_if(.., of).map(|cause| cause.part).sum();
            causes.push(self.worker(worker, part));
        }
        causes
    }

    fn client(&self, part: f64) -> Cause {
        let activity = &self.activity;
        let says = if activity.ops == 0 && activity.times.sum() == Duration::ZERO {
            let connections = self.clients.len();
            format!("the client asks for nothing ({connections} connection{})", if connections == 1 { "" } else { "s" })
        } else {
            let pause = part * self.seconds * f64::from(activity.streams.max(1)) / activity.ops.max(1) as f64;
            format!(
                "the client itself: {} of the time it has nothing outstanding; it pauses {} between operations",
                percent(part),
                time(pause)
            )
        };
        Cause { name: "client", part, says }
    }

    /// The description of one part of the time (why.2).
    fn part(&self, part: Part, share: f64) -> Cause {
        let (much, tenant, activity) = (percent(share), self.tenant, &self.activity);
        let each = each(activity, seconds(activity.times.of(part)));
        let (scheduler, outstanding) = (self.disk.scheduler.name(), self.outstanding());
        let by_stream = self.outstanding_by_stream();
        let says = match part {
            Part::Memory => format!(
                "payload memory: {much} of the time its operations wait for some of the server's {} MiB (memory)",
                self.state.config.limits.memory >> 20
            ),
            Part::Room => format!("{}: {much} of the time; {each}", self.bound()),
            Part::Limit => format!(
                "its ceiling: {much} of the time its operations are held by {}; {each}",
                ceilings(&self.state.config.bounds, tenant)
            ),
            Part::Others => self.others(share),
            Part::Own => {
                let most = self.disk.depth;
                let is_bound = outstanding >= f64::from(most);
                let bound = if is_bound { format!("; the disk takes {most} at once") } else { String::new() };
                format!(
                    "its own operations: {much} of the time they wait for others of {tenant}, which keeps {outstanding:.1} outstanding{bound}"
                )
            }
            Part::Idling => {
                let of_all = self.of_all(|| format!(", {} of the time", percent(self.doing(|doing| doing.idling))));
                format!(
                    "the disk is held idle on purpose ({scheduler}, slice_idle){of_all}: {much} of the time of {tenant}"
                )
            }
            Part::Flush => return self.flush(share),
            Part::Device if by_stream < ONE => {
                let says = format!(
                    "the client asks for one at a time: it keeps {by_stream:.1} outstanding in the device; {each}"
                );
                return Cause { name: "one at a time", part: share, says };
            }
            Part::Device => {
                let alone = self::each(activity, seconds(activity.times.of(part)) * (1.0 - self.behind()));
                format!("the device: {much} of its latency; {alone}")
            }
            Part::Reply => {
                format!("the client takes its replies slowly: {much} of the time they are ready and not sent; {each}")
            }
        };
        Cause { name: part.name(), part: share, says }
    }

    /// Which bound is reached where there is no room.
    fn bound(&self) -> String {
        let (activity, limits, connections) = (&self.activity, &self.state.config.limits, self.clients.len() as f64);
        let waiting = self.disk.in_flight + self.disk.waiting;
        if f64::from(waiting) >= 0.8 * f64::from(self.disk.nr_requests) {
            return format!("the queue of {} is full (nr_requests = {})", self.disk.name, self.disk.nr_requests);
        }
        if f64::from(activity.open) >= 0.8 * f64::from(limits.connection_requests) * connections {
            let most = limits.connection_requests;
            return format!("the client asks for more at once than a connection may (connection_requests = {most})");
        }
        let bytes = activity.bytes as f64 / activity.ops.max(1) as f64 * f64::from(activity.open);
        // A connection that is held back, and has neither as many requests as it may nor a full queue, has as many bytes.
        let is_held = self.clients.iter().any(|client| client.held.is_some());
        if is_held || bytes >= 0.5 * limits.connection_memory as f64 * connections {
            let most = limits.connection_memory >> 20;
            return format!(
                "the client asks for more bytes at once than a connection may (connection_memory = {most} MiB)"
            );
        }
        "a place in the device, or a turn of the worker".into()
    }

    /// The other tenant that had most of the disk's time, unless that is next to nothing, and how many of its requests are in the device.
    fn neighbour(&self) -> Option<(&str, f64)> {
        let shares = &self.on_disk.shares;
        let others = shares.iter().filter(|(path, _)| **path != self.tenant);
        let (path, most) = others.max_by(|one, two| one.1.had.total_cmp(&two.1.had))?;
        let all: f64 = shares.values().map(|share| share.had).sum();
        (most.had > 0.1 * all).then(|| (*path, self.on_disk.all.of(path).in_device(self.seconds)))
    }

    /// The part of its requests' time in the device that they are behind others'.
    fn behind(&self) -> f64 {
        self.share.map_or(0.0, |share| share.waits.behind)
    }

    fn others(&self, part: f64) -> String {
        let Some((path, beside)) = self.neighbour() else {
            return format!("other connections have the disk for {} of its latency", percent(part));
        };
        let (other, tenant) = (self.on_disk.shares[path], self.tenant);
        let mut says = match self.role.sees(path) {
            true => format!(
                "{path}: {} of its latency is waiting behind {path}, which had {} of the disk's time and keeps {:.1} requests outstanding",
                percent(part),
                percent(other.had),
                seconds(self.on_disk.all.of(path).times.sum()) / self.seconds
            ),
            false => format!("another tenant: {} of its latency is waiting behind others", percent(part)),
        };
        let Some(Share { had, due, by, .. }) = self.share else { return says };
        let _ = write!(says, "; {tenant} had {} and was due {} ({})", percent(had), percent(due), by.name());
        if self.is_inside() {
            let beside = match self.role.sees(path) {
                true => format!("{beside:.1} of {path}'s requests"),
                false => "others' requests".into(),
            };
            let _ = write!(says, "; the device holds {beside} beside its own");
            if self.activity.tells_each() {
                let (alone, device) = (time(self.alone()), time(self.device_time()));
                let _ = write!(says, "; alone, one of its own takes about {alone}, not {device}");
            }
        }
        says
    }

    /// Whether its requests wait behind others' in the device rather than before it.
    fn is_inside(&self) -> bool {
        let activity = &self.activity;
        self.behind() * activity.in_device(self.seconds) > seconds(activity.times.of(Part::Others)) / self.seconds
    }

    /// The time of one of its requests in the device alone, in seconds.
    fn alone(&self) -> f64 {
        self.device_time() * (1.0 - self.behind())
    }

    /// The device time of each of its operations, in seconds.
    fn device_time(&self) -> f64 {
        seconds(self.activity.times.of(Part::Device)) / self.activity.ops.max(1) as f64
    }

    /// Advice for a tenant whose own queue is longer than its latency, or that waits behind others and is due more, or whose weight alone
    /// decides; `None`: nothing is known.
    fn helps(&self, is_behind: bool) -> Option<String> {
        if let Some((path, standing)) = self.disk.objective(self.tenant)
            && standing.room == Room::GivenUp
            && self.role.sees(path)
            && let Some(OwnQueue { takes, most, .. }) = self.disk.own_queue(path)
        {
            let longer = set_latency(path, rounded(1.5 * seconds(takes)));
            return Some(format!("remedy: at most {most} outstanding, or more weight, or a longer latency ({longer})"));
        }
        let Share { had, due, by, .. } = self.share.filter(|_| is_behind || self.is_short())?;
        let (is_short, is_inside) = (self.is_short(), self.is_inside());
        let mut ways = Vec::new();
        if !self.disk.scheduler.keeps_latency() {
            ways.push("scheduler=fair, which serves by weight".to_owned());
        } else {
            if by == By::Weight && self.outstanding_by_stream() >= ONE {
                ways.push(self.weight_that_helps());
            }
            ways.extend(self.latency_that_helps(had / due).filter(|_| is_inside));
            ways.extend(self.depth_that_helps().filter(|_| is_inside && is_short));
            if !is_inside || is_short && ways.is_empty() {
                ways.push(self.ceiling_that_helps());
            }
        }
        match () {
            () if ways.is_empty() => None,
            () if is_short => Some(format!("remedy: {}", ways.join(", or "))),
            () if by == By::Weight && had <= 1.1 * due => {
                Some(format!("it had its due; for more than that: {}", ways.join(", or ")))
            }
            () => None,
        }
    }

    fn group(&self, path: &str) -> Option<&GroupView> {
        self.disk.groups.iter().find(|group| group.path == path)
    }

    /// Twice its weight, as far as there is more.
    fn weight_that_helps(&self) -> String {
        let (own, most) = (self.group(self.tenant).map(|group| group.weight.get()), Weight::MAX.get());
        match own.filter(|own| *own < most) {
            Some(own) => format!("more weight (fairlift set group {} weight={})", self.tenant, (2 * own).min(most)),
            None => "more weight".into(),
        }
    }

    /// A ceiling at half of the other tenant's rates, of the kinds that a ceiling counts, beside the ceilings that it has.
    fn ceiling_that_helps(&self) -> String {
        let Some((path, _)) = self.neighbour().filter(|(path, _)| self.role.sees(path)) else {
            return "a ceiling for the other".into();
        };
        let half = Rate::Iops.amount(&self.on_disk.all.of(path).data) as f64 / self.seconds / 2.0;
        let has = self.group(path).map_or(Rates::NONE, |group| group.bounds.ceiling.max);
        format!(
            "a ceiling for {path} (fairlift set group {path} max=\"{}\")",
            has.with(Rate::Iops, half.max(1.0) as u64)
        )
    }

    /// A latency that may be kept ([`target`]): no less than twice what one takes alone, nor than its own queue takes at its due; longer than one
    /// that was given up.
    fn latency_that_helps(&self, of_due: f64) -> Option<String> {
        let activity = &self.activity;
        if self.disk.objective(self.tenant).is_some_and(|(_, standing)| standing.room != Room::GivenUp)
            || !activity.tells_each()
        {
            return None;
        }
        let now = seconds(activity.times.sum()) / activity.ops as f64;
        let p99 = seconds(self.on_disk.all.latency(self.tenant).estimate(990));
        let fastest = [Op::Read, Op::Write].into_iter().filter_map(|op| self.disk.fastest(op)).min()?;
        let alone = 2.0 * self.alone().max(seconds(fastest));
        let least = if self.outstanding_by_stream() < ONE { alone } else { alone.max(now * of_due) };
        let micros = target(least, p99)?;
        let is_lost = self.disk.given_up.get(self.tenant).is_some_and(|lost| micros <= seconds(*lost) * 1e6);
        (!is_lost).then(|| format!("a latency ({})", set_latency(self.tenant, micros)))
    }

    /// Half the depth that there is, unless that is small.
    fn depth_that_helps(&self) -> Option<String> {
        let depth = self.disk.counters.get("device_depth").copied().filter(|depth| *depth > SHALLOW)?;
        let half = (depth / 2).max(SHALLOW);
        Some(format!(
            "a lower device_depth, which costs throughput (fairlift set disk {} device_depth={half})",
            self.disk.name
        ))
    }

    fn flush(&self, share: f64) -> Cause {
        let (activity, much) = (&self.activity, percent(share));
        let rate = |activity: &Activity| activity.flushes as f64 / self.seconds;
        let others = self.disk.groups.iter().filter(|group| group.path != self.tenant);
        let most = others
            .map(|group| (&group.path, self.on_disk.all.of(&group.path)))
            .max_by_key(|(_, activity)| activity.flushes);
        let (all, own) = (seconds(activity.times.of(Part::Flush)), seconds(activity.flush.of(Part::Flush)));
        // A write that is durable at once waits for its tenant's flush too (sequence.6).
        if own >= 0.5 * all || activity.flushes > most.as_ref().map_or(0, |(_, other)| other.flushes) {
            let each = time(all / activity.flushes.max(1) as f64);
            let says = format!(
                "its own flushes: {much} of the time it waits for them, {:.0} a second, {each} each",
                rate(activity)
            );
            return Cause { name: "own flushes", part: share, says };
        }
        let flushing = percent(self.doing(|doing| doing.flushing));
        let says = match most {
            Some((path, other)) if other.flushes > 0 && !self.role.sees(path) => {
                format!("the disk is flushed for another tenant: {much} of the time of {}", self.tenant)
            }
            Some((path, other)) if other.flushes > 0 => format!(
                "the disk is flushed {:.0} times a second for {path}, {flushing} of the time: {much} of the time of {}",
                rate(&other),
                self.tenant
            ),
            _ => format!(
                "flushes: the disk is being flushed {flushing} of the time, {much} of the time of {}",
                self.tenant
            ),
        };
        Cause { name: "flush", part: share, says }
    }

    /// The line for all tenants together, for a client that may see all.
    fn of_all(&self, says: impl FnOnce() -> String) -> String {
        if self.role.sees_all() { says() } else { String::new() }
    }

    /// For which part of the time the disk did something.
    fn doing(&self, of: fn(&Doing) -> Duration) -> f64 {
        activity::doing(self.disk, self.was, self.seconds, of)
    }

    /// For which part of the time a worker did something, and for which it had something to do and no CPU.
    fn busy(&self, worker: usize) -> (f64, f64) {
        let of = |view: &View| view.worked.get(worker).copied().unwrap_or_default();
        let (was, now) = (of(self.before), of(self.after));
        let ran = seconds(now.ran) - seconds(was.ran);
        let mut delayed = seconds(now.delayed) - seconds(was.delayed);
        // The kernel counts a wait for a CPU when it ends. The one that has not is taken to be as long as those before.
        match now.runs.saturating_sub(was.runs) {
            0 if was.wants && now.wants => delayed = self.seconds - ran,
            runs if now.wants && runs > 0 => delayed += delayed / runs as f64,
            _ => {}
        }
        let part = |time: f64| (time / self.seconds).clamp(0.0, 1.0);
        (part(ran + delayed), part(delayed))
    }

    /// The busiest of the workers that serve the tenant, if it has no time left.
    fn busiest(&self) -> Option<usize> {
        let workers = self.clients.iter().map(|client| usize::from(client.worker));
        let most = workers.max_by(|one, two| self.busy(*one).0.total_cmp(&self.busy(*two).0))?;
        (self.busy(most).0 >= BUSY).then_some(most)
    }

    fn worker(&self, worker: usize, part: f64) -> Cause {
        let others: Vec<String> = (0..self.after.workers)
            .filter(|other| *other != worker)
            .map(|other| format!("worker {other} {}", percent(self.busy(other).0)))
            .collect();
        let beside =
            if others.is_empty() { " (it is the only one)".into() } else { format!(" ({})", others.join(", ")) };
        let beside = self.of_all(|| beside);
        let (busy, delayed) = self.busy(worker);
        let says = format!(
            "worker {worker}, which serves {}, has no time left: it is busy {} of the time, for {} it waits for a CPU{beside}",
            self.tenant,
            percent(busy),
            percent(delayed)
        );
        Cause { name: "worker", part, says }
    }
}

/// The ceilings that may hold a tenant: its own, and those above it.
fn ceilings<'a>(bounds: &BTreeMap<String, Bounds>, tenant: &'a str) -> String {
    let above = |path: &&'a str| match path.rsplit_once('/')? {
        ("", "") => None,
        ("", _) => Some("/"),
        (above, _) => Some(above),
    };
    let has_max = |path: &&str| bounds.get(*path).is_some_and(|bounds| !bounds.ceiling.is_none());
    let all: Vec<_> = std::iter::successors(Some(tenant), above).filter(has_max).collect();
    if all.is_empty() { "a ceiling".into() } else { format!("max of {}", all.join(" or ")) }
}

fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

/// A time with two digits or more, in its unit.
fn time(seconds: f64) -> String {
    match seconds {
        1.0.. => format!("{seconds:.1} s"),
        1e-3.. => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.0} µs", seconds * 1e6),
    }
}

/// Each operation's part of a time that all of them took together, where that can be said: one cannot have waited for longer than the look,
/// and open ones have not had all of theirs.
fn each(activity: &Activity, all: f64) -> String {
    match (activity.tells_each(), activity.open) {
        (true, _) => format!("{} for each operation", time(all / activity.ops as f64)),
        (false, 0) => "none has ended".into(),
        (false, open) => {
            let ended = if activity.ops == 0 { "none".into() } else { activity.ops.to_string() };
            format!("{ended} ended, and {open} have been open for {} on average", time(activity.age / f64::from(open)))
        }
    }
}

/// The command that sets a latency, in microseconds.
fn set_latency(path: &str, micros: f64) -> String {
    format!("fairlift set group {path} latency={}", Duration::from_nanos((1e3 * micros) as u64))
}

/// A latency in microseconds for a tenant with such a 99th percentile, in seconds: half of that or somewhat less, at least `least`. `None`: that
/// would hardly be shorter than the percentile is.
fn target(least: f64, p99: f64) -> Option<f64> {
    let micros = rounded(least).max(rounded_down(p99 / 2.0));
    (micros <= 0.8e6 * p99).then_some(micros)
}

/// The next of 1, 2, 5, 10 and so on that is no less than `seconds`, in microseconds: advice that changes with each look is useless.
fn rounded(seconds: f64) -> f64 {
    let micros = (seconds * 1e6).max(1.0);
    steps(micros).into_iter().find(|step| *step >= micros).unwrap_or(micros)
}

/// The last of these that is no more.
fn rounded_down(seconds: f64) -> f64 {
    let micros = (seconds * 1e6).max(1.0);
    steps(micros).into_iter().rfind(|step| *step <= micros).unwrap_or(micros)
}

/// 1, 2, 5 and 10 times the power of ten below a time.
fn steps(micros: f64) -> [f64; 4] {
    let unit = 10_f64.powf(micros.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|step| (step * unit).round())
}

#[cfg(test)]
mod tests {
    use fairlift_core::ceiling::Ceiling;

    use super::*;

    #[test]
    fn a_latency_that_is_advised_is_one_of_few() {
        let shown = [0.0, 28e-6, 637e-6, 960e-6, 2e-3, 2.3e-3, 41e-3, 1.2].map(rounded);
        assert_eq!(shown, [1.0, 50.0, 1e3, 1e3, 2e3, 5e3, 5e4, 2e6]);
        let shown = [0.0, 28e-6, 960e-6, 2e-3, 2.3e-3, 41e-3, 1.2].map(rounded_down);
        assert_eq!(shown, [1.0, 20.0, 500.0, 2e3, 2e3, 2e4, 1e6]);
    }

    /// A reader whose 99th percentile was 6 ms was advised 200 µs, twice what a read takes alone, and had it given up.
    #[test]
    fn a_latency_that_is_advised_is_no_small_part_of_what_a_tenant_has() {
        assert_eq!(target(200e-6, 6e-3), Some(2e3));
        assert_eq!(target(200e-6, 10e-3), Some(5e3));
        assert_eq!(target(3e-3, 7e-3), Some(5e3), "its own queue takes 3 ms");
        assert_eq!(target(4e-3, 6e-3), None, "5 ms are hardly less than 6");
    }

    #[test]
    fn groups_with_a_floor_or_a_latency_alone_hold_nobody() {
        let max = |riops| Bounds {
            ceiling: Ceiling { max: Rates::NONE.with(Rate::Riops, riops), ..Ceiling::NONE },
            ..Bounds::default()
        };
        let floor = Bounds { floor: Rates::NONE.with(Rate::Riops, 1), ..Bounds::default() };
        let of = |all: &[(&str, Bounds)]| {
            ceilings(&all.iter().map(|(path, bounds)| ((*path).to_owned(), *bounds)).collect(), "/t/a")
        };
        assert_eq!(of(&[("/t/a", floor), ("/t", max(9)), ("/t/b", max(1))]), "max of /t");
        assert_eq!(of(&[("/t/a", max(9)), ("/t", floor), ("/", max(5))]), "max of /t/a or /");
        assert_eq!(of(&[("/", max(5))]), "max of /");
        assert_eq!(of(&[("/t/a", floor)]), "a ceiling");
    }

    #[test]
    fn no_time_is_told_for_each_where_fewer_ended_than_are_open() {
        let activity = |ops, open| Activity { ops, open, age: 11.2, ..Activity::default() };
        assert_eq!(each(&activity(64, 56), 6.4), "100.0 ms for each operation");
        assert_eq!(each(&activity(1, 56), 56.0), "1 ended, and 56 have been open for 200.0 ms on average");
        assert_eq!(each(&activity(0, 4), 4.0), "none ended, and 4 have been open for 2.8 s on average");
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!([0.000_012, 0.004_04, 2.5].map(time), ["12 µs", "4.0 ms", "2.5 s"]);
        assert_eq!(percent(0.714), "71 %");
    }
}
