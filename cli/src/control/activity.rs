//! Activity: the work of each group on a disk between two looks at a server, and the causes of its operations' waits.

use std::collections::BTreeMap;

use fairlift::config::Export;
use fairlift::control::view::DiskView;
use fairlift::control::{State, View};
use fairlift_core::queue::Figures;
use fairlift_core::stats::{Cache, Counters, Histogram};
use fairlift_core::waits::{Doing, Part, Times};
use fairlift_core::{Duration, Op};

use super::shares::Waits;

/// The work of a group, and the causes of its operations' waits.
#[derive(Clone, Default)]
pub(super) struct Activity {
    pub(super) times: Times,
    pub(super) flush: Times,
    pub(super) ops: u64,
    pub(super) flushes: u64,
    pub(super) bytes: u64,
    /// Its reads, and its writes.
    pub(super) data: [Counters; 2],
    pub(super) cache: Cache,
    /// The time in which the disk was busy, divided by requests in the device, in seconds.
    pub(super) had: f64,
    /// The time of flushes that it was charged, in seconds.
    pub(super) flushed: f64,
    /// For how long its streams had something outstanding, in seconds.
    pub(super) active: f64,
    /// For how long operations would have been outstanding, had each stream always had the most that it had at once, in seconds.
    pub(super) could: f64,
    pub(super) streams: u32,
    pub(super) open: u32,
    /// How long those that are open have taken up to now, all together, in seconds.
    pub(super) age: f64,
    pub(super) in_flight: u32,
}

/// How long commands of a group's clients have waited outside the queues of a disk, added up: not taken in, for want of memory or room, or with
/// replies that are not taken. By disk and group, at one moment; a client's disk is that of its export.
pub(super) type Outside<'a> = BTreeMap<(&'a str, &'a str), Times>;

pub(super) fn outside<'a>(state: &'a State, view: &View) -> Outside<'a> {
    let config = &state.config;
    let place =
        |export: &'a Export| Some((&*export.name, (&*config.disks[export.disk?].name, &*config.group(export).path)));
    let places: BTreeMap<&str, (&str, &str)> = config.exports.iter().filter_map(place).collect();
    let mut all = Outside::new();
    for client in view.clients.iter().filter(|client| client.held.is_some() || client.unsent.is_some()) {
        let Some(place) = client.export.as_deref().and_then(|name| places.get(name)) else { continue };
        let outside = all.entry(*place).or_default();
        if let Some((part, since)) = client.held {
            outside.spend(part, view.at.since(since));
        }
        if let Some((count, since)) = client.unsent {
            outside.spend(Part::Reply, Duration::from_nanos(count * view.at.since(since).as_nanos()));
        }
    }
    all
}

/// The work of each group on a disk, by its path.
pub(super) struct All<'a> {
    disk: &'a str,
    now: BTreeMap<&'a str, &'a Figures>,
    was: BTreeMap<&'a str, &'a Figures>,
    /// The waits outside at both moments.
    outside: &'a [Outside<'a>; 2],
}

impl<'a> All<'a> {
    pub(super) fn new(disk: &'a DiskView, was: Option<&'a DiskView>, outside: &'a [Outside<'a>; 2]) -> Self {
        let by_path = |disk: &'a DiskView| disk.groups.iter().map(|group| (&*group.path, &group.figures));
        // A group that has come since the first look begins with what it had before it went.
        let began = disk.groups.iter().filter_map(|group| Some((&*group.path, &**group.began.as_ref()?)));
        let was = began.chain(was.into_iter().flat_map(by_path)).collect();
        Self { disk: &disk.name, now: by_path(disk).collect(), was, outside }
    }

    /// The groups that have done anything since the start.
    pub(super) fn paths(&self) -> impl Iterator<Item = &'a str> {
        self.now.keys().copied()
    }

    /// The reads of a group through the page cache before the looks, and between them.
    pub(super) fn cache(&self, path: &str) -> [Cache; 2] {
        let of = |figures: Option<&&Figures>| figures.map_or_else(Cache::default, |figures| figures.stats.cache);
        let was = of(self.was.get(path));
        [was, of(self.now.get(path)).since(&was)]
    }

    pub(super) fn of(&self, path: &str) -> Activity {
        let Some(now) = self.now.get(path) else { return Activity::default() };
        let was = self.was.get(path).map(|was| Activity::of(was)).unwrap_or_default();
        let mut activity = Activity::of(now).since(&was);
        let [before, after] =
            [0, 1].map(|at: usize| self.outside[at].get(&(self.disk, path)).copied().unwrap_or_default());
        let outside = after.since(&before);
        activity.times.add(&outside);
        if activity.open == 0 {
            activity.active += seconds(outside.of(Part::Memory)) + seconds(outside.of(Part::Room));
        }
        activity
    }

    /// How long the operations of a group took that ended.
    pub(super) fn latency(&self, path: &str) -> Histogram {
        let mut all = Histogram::default();
        for op in Op::ALL {
            let of = |figures: Option<&&'a Figures>| figures.and_then(|figures| figures.stats.latency(op));
            match (of(self.now.get(path)), of(self.was.get(path))) {
                (Some(now), Some(was)) => all.add(&now.since(was)),
                (Some(now), None) => all.add(now),
                (None, _) => {}
            }
        }
        all
    }
}

impl Activity {
    pub(super) fn of(figures: &Figures) -> Self {
        let mut activity = Self {
            data: [Op::Read, Op::Write].map(|op| figures.stats.of(op)),
            cache: figures.stats.cache,
            had: seconds(figures.had),
            flushed: seconds(figures.stats.flushed),
            active: seconds(figures.stats.active),
            could: seconds(figures.stats.could),
            streams: figures.streams,
            open: figures.open,
            in_flight: figures.in_flight,
            ..Self::default()
        };
        for op in Op::ALL {
            let mut times = figures.stats.times(op);
            times.add(&figures.under_way.times(op));
            activity.age += seconds(figures.under_way.times(op).sum());
            activity.times.add(&times);
            let Counters { ops, bytes, .. } = figures.stats.of(op);
            activity.ops += ops;
            activity.bytes += bytes;
            if op == Op::Flush {
                (activity.flush, activity.flushes) = (times, ops);
            }
        }
        activity
    }

    pub(super) fn since(mut self, was: &Self) -> Self {
        self.times = self.times.since(&was.times);
        self.flush = self.flush.since(&was.flush);
        for (mine, was) in [(&mut self.ops, was.ops), (&mut self.flushes, was.flushes), (&mut self.bytes, was.bytes)] {
            *mine = mine.saturating_sub(was);
        }
        for (mine, was) in self.data.iter_mut().zip(&was.data) {
            *mine = mine.since(was);
        }
        self.cache = self.cache.since(&was.cache);
        let times = [
            (&mut self.had, was.had),
            (&mut self.flushed, was.flushed),
            (&mut self.active, was.active),
            (&mut self.could, was.could),
        ];
        for (mine, was) in times {
            *mine = (*mine - was).max(0.0);
        }
        self
    }

    /// Whether what they took can be divided by those that ended: not where fewer ended than are open.
    pub(super) fn tells_each(&self) -> bool {
        self.ops > 0 && self.ops >= u64::from(self.open)
    }

    /// How many of its operations wait for the disk.
    pub(super) fn waiting(&self) -> u32 {
        self.open.saturating_sub(self.in_flight)
    }

    pub(super) fn is_active(&self) -> bool {
        self.ops > 0 || self.open > 0
    }

    /// The part of their time for which its streams had something outstanding, in a look of `length` seconds.
    pub(super) fn active_part(&self, length: f64) -> f64 {
        let whole = length * f64::from(self.streams.max(1));
        let replying = seconds(self.times.of(Part::Reply));
        // While replies are under way nothing is pending in the queue, and the client does not pause either.
        (self.active.max(replying.min(whole)) / whole).clamp(0.0, 1.0)
    }

    /// Which part of the operations its clients had outstanding that they could have had; the rest was with the clients.
    pub(super) fn asks(&self) -> f64 {
        let had = seconds(self.times.sum()) - seconds(self.times.of(Part::Reply));
        if had < self.could { had / self.could } else { 1.0 }
    }

    /// How many of its operations the device had, on average.
    pub(super) fn in_device(&self, length: f64) -> f64 {
        seconds(self.times.of(Part::Device)) / length
    }

    /// The part of its streams' time that went into each thing; the rest of it their clients paused.
    pub(super) fn time_by_part(&self, length: f64, waits: Waits) -> impl Iterator<Item = (Part, f64)> {
        let active = self.active_part(length);
        self.parts_of_time(waits).map(move |(part, of)| (part, active * of))
    }

    /// The part of its operations' time that went into each thing.
    pub(super) fn parts_of_time(&self, waits: Waits) -> impl Iterator<Item = (Part, f64)> {
        let all = seconds(self.times.sum());
        let of = |part| seconds(self.times.of(part));
        let Waits { behind, costs } = waits;
        // share.5, share.6
        let (inside, queued) = (behind * of(Part::Device), of(Part::Own) + of(Part::Others));
        let own = if queued > 0.0 {
            queued * of(Part::Own) * costs / (of(Part::Own) * costs + of(Part::Others))
        } else {
            0.0
        };
        Part::ALL.into_iter().map(move |part| {
            let time = match part {
                Part::Device => of(part) - inside,
                Part::Own => own,
                Part::Others => queued - own + inside,
                _ => of(part),
            };
            (part, if all > 0.0 { time / all } else { 0.0 })
        })
    }
}

/// The part of the time between two looks in which a disk did something.
pub(super) fn doing(disk: &DiskView, was: Option<&DiskView>, length: f64, of: fn(&Doing) -> Duration) -> f64 {
    let was = was.map_or(0.0, |was| seconds(of(&was.doing)));
    ((seconds(of(&disk.doing)) - was) / length / f64::from(disk.queues.max(1))).clamp(0.0, 1.0)
}

pub(super) fn seconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e9
}
