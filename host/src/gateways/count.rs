//! Count: the figures of a gateway's groups from one look at a disk to the next.

use std::collections::{BTreeMap, BTreeSet};

use fairlift_core::ceiling::Rate;
use fairlift_core::cost_model::Model;
use fairlift_core::gateways::{Counted, Settings};
use fairlift_core::queue::Figures;
use fairlift_core::stats::{Counters, Stats};
use fairlift_core::waits::{Part, Times};
use fairlift_core::{Group, Op, Weight};

use crate::config::Config;

/// A group with at least this many waiting requests on average wants more than it has. Chosen: one request waits for half of the time.
const WAITS: f64 = 0.5;
/// A ceiling holds a group with at least this many requests waiting there on average. Chosen.
const HELD: f64 = 0.1;

#[derive(Clone, Default)]
struct Before {
    stats: Stats,
    /// The time that requests waited for the disk, and for a ceiling, those included that wait still, in seconds.
    waited: f64,
    held: f64,
}

#[derive(Default)]
pub(super) struct Count {
    before: BTreeMap<String, Before>,
    /// Settings at the last look, with when they were found to be so.
    settings: BTreeMap<String, Settings>,
}

impl Count {
    /// Counts up to now: by a disk's figures, `seconds` after the last look. `costs` has the costs of requests in random reads of 4 KiB, and how
    /// many of those the disk does in a second; `changed` is the time of day in milliseconds.
    pub(super) fn look(
        &mut self,
        figures: &BTreeMap<String, Figures>,
        costs: Option<(Model, f64)>,
        config: &Config,
        seconds: f64,
        changed: u64,
    ) -> BTreeMap<String, Counted> {
        let settings = self.settings(config, changed);
        let is_first = self.before.is_empty();
        // gossip.5: of a group those below it come first.
        let (mut paths, mut above) = (BTreeSet::new(), BTreeSet::new());
        for (path, settings) in settings.iter().rev() {
            if figures.contains_key(path) || !settings.bounds.is_none() || above.contains(&**path) {
                above.extend(path.rfind('/').filter(|end| *end > 0).map(|end| &path[..end]));
                paths.insert(path);
            }
        }
        let none = Figures::default();
        let count = |path: &String| {
            let figures = figures.get(path).unwrap_or(&none);
            let now = Before::of(figures);
            let before = self.before.insert(path.clone(), now.clone()).unwrap_or_default();
            // A previous server's counts are not of this period.
            let before = if is_first { now.clone() } else { before };
            (path.clone(), now.since(&before, costs, seconds, settings[path]))
        };
        let counted = paths.into_iter().map(count).collect();
        self.settings = settings;
        counted
    }

    fn settings(&self, config: &Config, changed: u64) -> BTreeMap<String, Settings> {
        let settings = |group: &Group| {
            let bounds = config.bounds.get(&group.path).copied().unwrap_or_default();
            let weight = if group.parent.is_some() { group.weight } else { Weight::DEFAULT };
            let new = Settings { weight, bounds, changed };
            let was = self.settings.get(&group.path).filter(|was| was.weight == weight && was.bounds == bounds);
            (group.path.clone(), was.copied().unwrap_or(new))
        };
        config.groups.iter().map(settings).collect()
    }
}

impl Before {
    fn of(figures: &Figures) -> Self {
        let time = |parts: &[Part]| {
            let times = |stats: &Stats, op: Op| -> f64 {
                let times: Times = stats.times(op);
                parts.iter().map(|part| times.of(*part).as_nanos() as f64).sum()
            };
            Op::ALL.iter().map(|op| times(&figures.stats, *op) + times(&figures.under_way, *op)).sum::<f64>() / 1e9
        };
        let waited = time(&[Part::Others, Part::Own, Part::Idling, Part::Room]);
        Self { stats: figures.stats.clone(), waited, held: time(&[Part::Limit]) }
    }

    fn since(&self, before: &Self, costs: Option<(Model, f64)>, seconds: f64, settings: Settings) -> Counted {
        let of = |write: bool| {
            let ops = Op::ALL.into_iter().filter(|op| op.has_payload() && (*op != Op::Read) == write);
            let mut sum = Counters::default();
            ops.for_each(|op| sum.add(&self.stats.of(op).since(&before.stats.of(op))));
            sum
        };
        let done = [of(false), of(true)];
        let cache = self.stats.cache.since(&before.stats.cache);
        let requests = (done[0].ops.saturating_sub(cache.hits) + done[1].ops) as f64;
        let flushed = self.stats.flushed.as_nanos().saturating_sub(before.stats.flushed.as_nanos());
        let served = match costs {
            Some((model, reads)) => {
                let [read, written] = &done;
                let data = model.seconds_of(false, read, (cache.hits, cache.hit_bytes));
                data + model.seconds_of(true, written, (0, 0)) + flushed as f64 / 1e9 * reads
            }
            None => requests,
        };
        let rates = Rate::ALL.map(|rate| rate.amount(&done) as f64 / seconds);
        Counted {
            served: served.max(0.0) / seconds,
            requests,
            waits: (self.waited - before.waited) / seconds >= WAITS,
            held: (self.held - before.held) / seconds >= HELD,
            rates,
            settings,
        }
    }
}

#[cfg(test)]
mod tests {
    use fairlift_core::GroupId;
    use fairlift_core::time::ms;
    use fairlift_core::{Bytes, Outcome};

    use super::*;

    /// 1,000 reads and 500 writes of 4 KiB in two seconds, beside the counts before the first look.
    #[test]
    fn counts_of_two_seconds_are_told_a_second() {
        let config = Config { groups: vec![Group::root()].into(), ..Config::default() };
        let mut figures = BTreeMap::from([("/".to_owned(), Figures::default())]);
        let (mut count, mut looks) = (Count::default(), vec![]);
        for _ in 0..2 {
            let stats = &mut figures.get_mut("/").unwrap().stats;
            (0..1000).for_each(|_| stats.ended(Op::Read, Bytes::of(8), Outcome::Done, ms(1)));
            (0..500).for_each(|_| stats.ended(Op::Write, Bytes::of(8), Outcome::Done, ms(1)));
            looks.push(count.look(&figures, None, &config, 2.0, 7)["/"]);
        }
        assert_eq!(looks[0].served, 0.0, "a previous server counted that");
        let counted = looks[1];
        assert_eq!((counted.served, counted.requests), (750.0, 1500.0));
        let rate = |rate: Rate| counted.rates[rate as usize];
        assert_eq!([Rate::Riops, Rate::Wiops, Rate::Iops].map(rate), [500.0, 250.0, 750.0]);
        assert_eq!([Rate::Rbps, Rate::Wbps, Rate::Bps].map(rate), [500.0, 250.0, 750.0].map(|rate| 4096.0 * rate));
    }

    /// gossip.5
    #[test]
    fn groups_above_those_that_asked_are_counted_for_their_weights() {
        let group =
            |path: &str, parent| Group { path: path.into(), parent: Some(GroupId(parent)), weight: Weight::new(300) };
        let groups = vec![Group::root(), group("/a", 0), group("/a/b", 1), group("/a/b/c", 2), group("/idle", 0)];
        let config = Config { groups: groups.into(), ..Config::default() };
        let figures = BTreeMap::from([("/a/b/c".to_owned(), Figures::default())]);
        let counted = Count::default().look(&figures, None, &config, 1.0, 7);
        assert_eq!(counted.keys().collect::<Vec<_>>(), ["/a", "/a/b", "/a/b/c"]);
        assert_eq!(counted["/a"].settings.weight, Weight::new(300));
    }
}
