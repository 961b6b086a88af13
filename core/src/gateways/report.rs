//! A gateway's report: what it served of each of its groups, and how these are set there.
//!
//! gossip.1  It is a [`Record`], with the version of its format. A reader leaves out a report of a later version, one that cannot be read,
//!           and one that says what cannot be (a negative rate, a weight of 0). It begins to count again with the first that can be read.
//! gossip.2  Service is told as the random reads of 4 KiB that the disk would have done in its place, a second. Each gateway learns by
//!           itself what a request costs, and its costs are larger the less of the cluster it has: only ratios can be compared. They
//!           are told as well, and each gateway counts by the mean of all, by how much each served. By ratios of its own, a gateway that
//!           took reads near one another for a third dearer than those far from one another had a quarter less than its due.
//! gossip.3  Recent service is told beside it: periods in which a group had few requests are taken together.
//! gossip.4  A gateway at which requests wait tells their service by its `speed`. Example: the cluster stood still for most of a second. A
//!           tenant's floor is more than all that was served in it, and the others would be due nothing in the next one.
//! gossip.5  A group that did nothing itself is told of for those below it that are told of: its weight is theirs beside its siblings, here
//!           and elsewhere. Only the root has none.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};

use serde::{Deserialize, Serialize};

use crate::ceiling::{Bounds, Ceiling, Rate, Rates};
use crate::cost_model::Model;
use crate::record::{Record, Unreadable};
use crate::{Duration, Weight};

/// The version of the format.
pub const VERSION: u32 = 2;
/// The most that a figure of a report may be. Chosen: beyond any cluster.
const MOST: f64 = 1e15;

/// A gateway's figures, as it tells them to the others.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Report {
    /// A number by chance, from the start of the server to its end: two gateways of one name have two.
    pub instance: u64,
    /// Counts the reports.
    pub sequence: u64,
    /// It is the last one: the gateway ends.
    pub ends: bool,
    /// How many requests it may have outstanding, as of its turn before.
    pub depth: f64,
    /// The service that one outstanding request of it has, a second (`speed`); `None`: it had none yet.
    pub(super) speed: Option<f64>,
    /// How many all gateways may have outstanding, as this one is set.
    pub pool_depth: f64,
    /// The costs of requests here, in random reads of 4 KiB; `None`: they are not known.
    pub costs: Option<Model>,
    /// By the paths of groups.
    pub groups: BTreeMap<String, GroupReport>,
}

/// A group in a report.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GroupReport {
    /// The service of it, and not of those below it, a second: in the last period (gossip.2).
    pub served: f64,
    /// The same over some periods (gossip.3).
    pub lately: f64,
    /// More of it waited for the disk, for most of the period.
    pub waits: bool,
    /// A ceiling held it.
    pub held: bool,
    /// Its requests and bytes in the last period, a second, by the kinds that a limit can count.
    pub rates: [f64; Rate::COUNT],
    /// The part of their requests that other gateways are to leave in the cluster for its latency; 1: all (room.1).
    pub(super) room: f64,
    /// How it is set there.
    pub settings: Settings,
}

/// How a group is set at a gateway.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Its share beside its siblings.
    pub weight: Weight,
    /// Its ceiling, its floor and its latency.
    pub bounds: Bounds,
    /// When that was said: milliseconds since 1970, on the gateway's own clock.
    pub changed: u64,
}

/// [`GroupReport`] as it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    served: f64,
    lately: f64,
    waits: bool,
    held: bool,
    rates: BTreeMap<String, f64>,
    room: f64,
    weight: u16,
    max: BTreeMap<String, u64>,
    burst: BTreeMap<String, u64>,
    burst_ns: u64,
    min: BTreeMap<String, u64>,
    latency_ns: Option<u64>,
    changed: u64,
}

fn written(rates: &Rates) -> BTreeMap<String, u64> {
    rates.iter().map(|(rate, amount)| (rate.name().into(), amount)).collect()
}

fn rate(name: &str) -> Option<Rate> {
    Rate::ALL.into_iter().find(|rate| rate.name() == name)
}

fn rates(written: &BTreeMap<String, u64>) -> Option<Rates> {
    written.iter().try_fold(Rates::NONE, |rates, (name, amount)| Some(rates.with(rate(name)?, *amount)))
}

impl From<&GroupReport> for Written {
    fn from(group: &GroupReport) -> Self {
        let GroupReport { served, lately, waits, held, rates, room, settings } = *group;
        let Settings { weight, bounds, changed } = settings;
        let Bounds { ceiling: Ceiling { max, burst, length }, floor, latency } = bounds;
        Self {
            served,
            lately,
            waits,
            held,
            rates: Rate::ALL.into_iter().map(|rate| (rate.name().into(), rates[rate as usize])).collect(),
            room,
            weight: weight.get(),
            max: written(&max),
            burst: written(&burst),
            burst_ns: length.as_nanos(),
            min: written(&floor),
            latency_ns: latency.map(Duration::as_nanos),
            changed,
        }
    }
}

impl Written {
    /// gossip.1: `None`: it says what cannot be.
    fn read(&self) -> Option<GroupReport> {
        let is_figure = |figure: f64| (0.0..MOST).contains(&figure);
        let weight = (1..=Weight::MAX.get()).contains(&self.weight).then(|| Weight::new(self.weight))?;
        let length = Duration::from_nanos(self.burst_ns);
        let ceiling = Ceiling { max: rates(&self.max)?, burst: rates(&self.burst)?, length };
        let latency = self.latency_ns.map(Duration::from_nanos);
        let bounds = Bounds { ceiling, floor: rates(&self.min)?, latency };
        bounds.check().ok()?;
        let mut counted = [0.0; Rate::COUNT];
        for (name, amount) in &self.rates {
            counted[rate(name)? as usize] = *amount;
        }
        let are_figures = [self.served, self.lately].into_iter().chain(counted).all(is_figure);
        let is_part = self.room > 0.0 && self.room <= 1.0;
        (are_figures && is_part).then_some(GroupReport {
            served: self.served,
            lately: self.lately,
            waits: self.waits,
            held: self.held,
            rates: counted,
            room: self.room,
            settings: Settings { weight, bounds, changed: self.changed },
        })
    }
}

/// The path of a group that can be one.
fn is_path(path: &str) -> bool {
    path == "/" || path.starts_with('/') && path.len() <= 4096 && path[1..].split('/').all(|name| !name.is_empty())
}

impl Report {
    /// As it is carried.
    #[must_use]
    pub fn write(&self) -> String {
        let mut record = Record::default();
        record.put("version", &VERSION);
        record.put("instance", &self.instance);
        record.put("sequence", &self.sequence);
        record.put("ends", &self.ends);
        record.put("depth", &self.depth);
        record.put("speed", &self.speed);
        record.put("pool_depth", &self.pool_depth);
        record.put("costs", &self.costs.map(|costs| costs.values()));
        let groups: BTreeMap<&str, Written> = self.groups.iter().map(|(path, group)| (&**path, group.into())).collect();
        record.put("groups", &groups);
        record.to_string()
    }

    /// Reads what [`Report::write`] wrote (gossip.1).
    ///
    /// # Errors
    /// It is damaged, or of a later version: which part, and why.
    pub fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        let wrong = |part: &str, why: String| Unreadable { part: part.into(), why };
        let text = core::str::from_utf8(bytes).map_err(|why| wrong("report", why.to_string()))?;
        let mut record = Record::parse(text)?;
        let version: u32 = record.need("version")?;
        if version != VERSION {
            return Err(wrong("version", alloc::format!("it is {version}, and this server knows {VERSION}")));
        }
        let figure = |record: &mut Record, name: &str, least: f64| -> Result<f64, Unreadable> {
            let figure: f64 = record.need(name)?;
            let is_one = (least..MOST).contains(&figure);
            if is_one { Ok(figure) } else { Err(wrong(name, alloc::format!("{figure} is out of range"))) }
        };
        let costs: Option<[f64; 6]> = record.need("costs")?;
        let is_cost = |cost: f64| (1.0 / MOST..MOST).contains(&cost);
        if costs.is_some_and(|costs| !costs.into_iter().all(is_cost)) {
            return Err(wrong("costs", alloc::format!("no request costs {costs:?}")));
        }
        let speed: Option<f64> = record.need("speed")?;
        if speed.is_some_and(|speed| !(1.0 / MOST..MOST).contains(&speed)) {
            return Err(wrong("speed", alloc::format!("{speed:?} is out of range")));
        }
        let groups: BTreeMap<String, Written> = record.need("groups")?;
        if groups.len() >= usize::from(u16::MAX) {
            return Err(wrong("groups", alloc::format!("they are {}", groups.len())));
        }
        let read = |(path, written): (String, Written)| match written.read().filter(|_| is_path(&path)) {
            Some(group) => Ok((path, group)),
            None => Err(wrong("groups", alloc::format!("no group is as {path:?} is told"))),
        };
        Ok(Self {
            instance: record.need("instance")?,
            sequence: record.need("sequence")?,
            ends: record.need("ends")?,
            depth: figure(&mut record, "depth", 0.0)?,
            speed,
            pool_depth: figure(&mut record, "pool_depth", 1.0)?,
            costs: costs.map(Model::from),
            groups: groups.into_iter().map(read).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{ms, secs};

    fn report() -> Report {
        let ceiling = Ceiling {
            max: Rates::NONE.with(Rate::Riops, 3000),
            burst: Rates::NONE.with(Rate::Riops, 9000),
            length: secs(5),
        };
        let bounds = Bounds { ceiling, floor: Rates::NONE.with(Rate::Iops, 7), latency: Some(ms(2)) };
        let settings = Settings { weight: Weight::new(300), bounds, changed: 1_700_000_000_000 };
        let group =
            GroupReport { served: 12.5, lately: 11.0, waits: true, held: false, rates: [1.5; 6], room: 0.5, settings };
        Report {
            instance: u64::MAX,
            sequence: 3,
            ends: false,
            depth: 0.37,
            speed: Some(250.0),
            pool_depth: 128.0,
            costs: Some(Model::from([4096.0, 2.0, 1.0, 2048.0, 1.0, 0.5])),
            groups: [("/tenants/alice".into(), group)].into(),
        }
    }

    #[test]
    fn a_report_comes_back_as_it_was() {
        assert_eq!(Report::read(report().write().as_bytes()), Ok(report()));
    }

    /// A later release may tell more.
    #[test]
    fn figures_that_are_not_known_are_skipped() {
        let text = report().write().replace("\"room\":0.5,", "\"room\":0.5,\"colour\":7,");
        assert!(text.contains("colour"));
        assert_eq!(Report::read(text.as_bytes()), Ok(report()));
    }

    /// gossip.1
    #[test]
    fn what_is_damaged_or_later_is_left_out() {
        let text = report().write();
        for (from, to) in [
            ("\"version\":2", "\"version\":3"),
            ("\"depth\":0.37", "\"depth\":-1.0"),
            ("\"costs\":[4096.0", "\"costs\":[0.0"),
            ("\"speed\":250.0", "\"speed\":0.0"),
            ("\"weight\":300", "\"weight\":0"),
            ("\"weight\":300", "\"weight\":1001"),
            ("\"served\":12.5", "\"served\":-1.0"),
            ("\"served\":12.5", "\"served\":1e300"),
            ("\"room\":0.5", "\"room\":0.0"),
            ("\"room\":0.5", "\"room\":1.5"),
            ("/tenants/alice", "tenants/alice"),
            ("/tenants/alice", "/tenants//alice"),
            ("\"riops\":9000", "\"riops\":1"),
            ("\"min\":{\"iops\"", "\"min\":{\"wishes\""),
        ] {
            let damaged = text.replace(from, to);
            assert_ne!(damaged, text, "{from}");
            Report::read(damaged.as_bytes()).unwrap_err();
        }
        for length in 0..text.len() {
            Report::read(&text.as_bytes()[..length]).unwrap_err();
        }
        Report::read(b"\xff").unwrap_err();
    }
}
