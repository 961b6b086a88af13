//! Shares: what part of a disk's time each tenant had between two looks, what part it was due, and the score, which is had ÷ due.
//!
//! Every view (`status`, `top`, `why`, the page, metrics, alerts) shows these three, and has them from here. Example: weights are
//! equal, alice reads 4 KiB and bob 256 KiB, and the disk is busy. Alice had 20 % of its time, bob 80 %, and both were due 50 %:
//! alice's score is 0.40.
//!
//! share.1  Had is the disk's time. A scheduler that learns costs (`fair`) knows how long a request takes of it: the time in which the disk
//!          was busy is divided by the cost of the ended requests. Under any other scheduler each of n requests in the device has 1/n of
//!          the time, of those of all workers together. The time of flushes comes on top, as it was charged.
//! share.2  The dues add up to all that was had: weighted max-min over the tree of groups. A tenant is due its weight's part, but no more
//!          than it could use; the rest goes to the others by weight.
//! share.3  A tenant could use what it would have if nobody else were there. Example: alice has one read outstanding for 80 % of the time,
//!          and each waits for three quarters of its time in the scheduler, or behind bob's in the device (share.5). Alone, alice would
//!          need 0.2 + 0.8 × 0.25 of the time for the same, and so could use 2.5 times as much. A client that waits for its disk thus could
//!          use much; one that pauses, as its own work or a rate makes it, little more than it had. A tenant that its ceiling (`max`) holds
//!          could use no more than it had.
//! share.4  A group with a floor (`min`) is due the disk time that the floor takes at the cost of its operations, but no more than it could
//!          use. Where floors are more than there is, they are due in proportion.
//! share.5  A device that has more requests than it does at once keeps each behind the others, and then the time that a request is in it
//!          is not the device's alone. Example: alice has 8 reads in the device and bob 24, each read takes 9 ms, and alice had a quarter of
//!          the disk's time; so 2.2 ms are the device's, and the rest is the wait for bob's. A tenant with k requests in it has of that
//!          time what it had of the disk's, times n ÷ k if the device does n at once and k is less: n is how many end in the time
//!          that the [fastest](DiskView::fastest) took since the start.
//! share.6  A request that waits for the disk waits behind its own tenant's requests and behind others', as the queue has counted it: by requests. Where
//!          costs are known each counts by its disk time: a request of 256 KiB holds the others up for longer than one of 4 KiB.
//! share.7  A tenant is short that had less than [`SHORT`] of its due. (What its client or its ceiling makes it wait for is not in its due.)

use std::collections::BTreeMap;
use std::ops::Bound;

use fairlift::control::State;
use fairlift::control::view::DiskView;
use fairlift_core::ceiling::{Rate, Rates};
use fairlift_core::cost_model::Model;
use fairlift_core::entitlement::Entitlement;
use fairlift_core::sched::Kind;
use fairlift_core::stats::Counters;
use fairlift_core::waits::Part;
use fairlift_core::{GroupId, Op};

use super::activity::{Activity, seconds};

/// A ceiling holds a tenant whose operations spend such a part of their time there. Chosen.
const HELD: f64 = 0.1;
/// A tenant that would need so little of the time alone could use all of the disk. Chosen: a look's parts are no more exact.
const LEAST: f64 = 0.01;
/// A tenant with less than this part of its due is short. Chosen, as in the alert `FairliftTenantShort`.
const SHORT: f64 = 0.8;

/// The share that a tenant had, and its due, as parts of the disk's time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Share {
    pub(super) had: f64,
    pub(super) due: f64,
    pub(super) by: By,
    pub(super) waits: Waits,
}

/// The division of its requests' waits between the tenant and others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Waits {
    /// The part of its requests' time in the device that they are behind others' (share.5).
    pub(super) behind: f64,
    /// How many times as much of the disk a request of it takes as one of the others (share.6).
    pub(super) costs: f64,
}

impl Waits {
    /// Of requests that nobody else is known to hold up.
    pub(super) const NONE: Self = Self { behind: 0.0, costs: 1.0 };
}

/// The reason for a tenant's due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// Its weight, and those of the others.
    Weight,
    /// It could use no more.
    Demand,
    /// A ceiling.
    Max,
    /// Its floor.
    Min,
}

impl By {
    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

impl Share {
    /// Had ÷ due; `None`: nothing was due, because the disk took no time.
    pub(super) fn score(&self) -> Option<f64> {
        (self.due > 0.0).then(|| self.had / self.due)
    }

    /// share.7
    pub(super) fn is_short(&self) -> bool {
        self.score().is_some_and(|score| score < SHORT)
    }
}

/// The shares of all groups that were active, of a disk at which one looked for so long.
pub(super) fn shares<'a>(
    state: &State,
    disk: &DiskView,
    rows: &BTreeMap<&'a str, Activity>,
    length: f64,
) -> BTreeMap<&'a str, Share> {
    let length = length.max(1e-9);
    let whole = length * f64::from(disk.queues.max(1));
    let had: BTreeMap<&str, f64> = had(disk, rows).into_iter().map(|(path, had)| (path, had / whole)).collect();
    let floors = state.config.bounds.iter().filter_map(|(path, bounds)| {
        let (mut ops, mut sum) = ([Counters::default(); 2], 0.0);
        for (path, activity) in members(rows, path) {
            ops.iter_mut().zip(&activity.data).for_each(|(ops, more)| ops.add(more));
            sum += had[path];
        }
        Some((&**path, sum * floor(&bounds.floor, &ops, length)?))
    });
    let ended: u64 = rows.values().map(|activity| activity.data[0].ops + activity.data[1].ops).sum();
    // share.5: how many requests the device does at once, where most are reads and where most are writes; `None`: nothing ended.
    let at_once = [Op::Read, Op::Write].map(|op| {
        let took = disk.fastest(op).filter(|_| ended > 0)?;
        Some(seconds(took) * ended as f64 / length)
    });
    let in_device = rows.values().filter(|activity| activity.in_device(length) > 0.0).count();
    let data = |path: &str| had[path] - rows[path].flushed / whole;
    let sums = |of: &dyn Fn(&str) -> f64| rows.keys().map(|path| of(path)).sum::<f64>();
    let (all, all_counted) = (sums(&data), sums(&|path| rows[path].had));
    let waits = |path: &str, activity: &Activity| {
        let inside = activity.in_device(length);
        let is_alone = in_device == usize::from(inside > 0.0);
        let wants = at_once[usize::from(activity.data[0].ops < activity.data[1].ops)].filter(|_| !is_alone);
        let behind = wants.map_or(0.0, |wants| behind(data(path) / all, inside, wants));
        let odds = |mine: f64, all: f64| mine / (all - mine);
        let costs = Some(odds(data(path), all) / odds(activity.had, all_counted))
            .filter(|costs| costs.is_finite() && *costs > 0.0);
        Waits { behind, costs: costs.unwrap_or(1.0) }
    };
    let active = rows.iter().filter(|(_, activity)| activity.is_active());
    let waits: BTreeMap<&str, Waits> = active.map(|(path, activity)| (*path, waits(path, activity))).collect();
    let wants = waits.iter().map(|(path, waits)| (*path, Want::of(&rows[path], had[path], *waits))).collect();
    let due = divide(disk.scheduler, state, had.values().sum(), &wants, &floors.collect());
    due.into_iter().map(|(path, (due, by))| (path, Share { had: had[path], due, by, waits: waits[path] })).collect()
}

/// share.5: for a tenant's part of the service of all, its requests in the device, and the device's best depth.
fn behind(part: f64, inside: f64, wants: f64) -> f64 {
    let own = part * (wants / inside).max(1.0);
    if own.is_finite() { (1.0 - own).max(0.0) } else { 0.0 }
}

/// The part of a disk due to each group by weights alone, while all of `active` want all of it.
pub(super) fn by_weight<'a>(
    scheduler: Kind,
    state: &State,
    active: impl Iterator<Item = &'a str>,
) -> BTreeMap<&'a str, f64> {
    let wants = active.map(|path| (path, Want { most: f64::INFINITY, is_held: false })).collect();
    divide(scheduler, state, 1.0, &wants, &BTreeMap::new()).into_iter().map(|(path, (due, _))| (path, due)).collect()
}

/// share.1: in seconds.
fn had<'a>(disk: &DiskView, rows: &BTreeMap<&'a str, Activity>) -> BTreeMap<&'a str, f64> {
    let busy: f64 = rows.values().map(|activity| activity.had).sum();
    // The costs that the disk's scheduler has learned.
    let model = Model::of_counters(|name| disk.counters.get(name).copied());
    let cost = |activity: &Activity| match model {
        Some(model) => cost(&model, activity),
        None if disk.queues > 1 => activity.in_device(1.0),
        None => activity.had,
    };
    let all: f64 = rows.values().map(cost).sum();
    let part = |activity: &Activity| if all > 0.0 { busy * cost(activity) / all } else { activity.had };
    rows.iter().map(|(path, activity)| (*path, part(activity) + activity.flushed)).collect()
}

/// The cost of a group's operations, in seconds of the disk. Discards and writes of zeroes count as reads of 4 KiB, as for the scheduler.
fn cost(model: &Model, activity: &Activity) -> f64 {
    let data = [false, true].map(|write| {
        let from_memory = if write { (0, 0) } else { (activity.cache.hits, activity.cache.hit_bytes) };
        model.seconds_of(write, &activity.data[usize::from(write)], from_memory)
    });
    let rest = activity.ops.saturating_sub(activity.flushes + activity.data[0].ops + activity.data[1].ops);
    data[0] + data[1] + rest as f64 / model.rrandiops
}

/// The part of a disk that a group could use.
struct Want {
    most: f64,
    /// By a ceiling.
    is_held: bool,
}

impl Want {
    /// share.3: of a tenant that did and had this.
    fn of(activity: &Activity, had: f64, waits: Waits) -> Self {
        let parts: Vec<(Part, f64)> = activity.parts_of_time(waits).collect();
        let part = |of: &[Part]| parts.iter().filter(|(part, _)| of.contains(part)).map(|(_, part)| part).sum::<f64>();
        if part(&[Part::Limit]) > HELD {
            return Self { most: had, is_held: true };
        }
        let alone = 1.0 - activity.asks() * part(&[Part::Room, Part::Others, Part::Own, Part::Idling]);
        Self { most: if alone > LEAST { had / alone } else { f64::INFINITY }, is_held: false }
    }
}

/// A group and those below it.
fn members<'b, 'a>(
    rows: &'b BTreeMap<&'a str, Activity>,
    path: &'b str,
) -> impl Iterator<Item = (&'b &'a str, &'b Activity)> {
    let below = if path == "/" { path.to_owned() } else { format!("{path}/") };
    let own = rows.get_key_value(path).filter(|_| path != "/");
    let rest = rows.range::<str, _>((Bound::Included(&*below), Bound::Unbounded));
    own.into_iter().chain(rest.take_while(move |(path, _)| path.starts_with(&below)))
}

/// share.4: how many times as much as was done a floor is; `None`: there is none, or nothing was done that it counts.
fn floor(floor: &Rates, done: &[Counters; 2], length: f64) -> Option<f64> {
    let times = |(rate, amount): (Rate, u64)| {
        Some(amount as f64 * length / rate.amount(done) as f64).filter(|times| times.is_finite())
    };
    floor.iter().filter_map(times).reduce(f64::max)
}

/// share.2: divides the time of a disk among groups; `floors` has their floors.
fn divide<'a>(
    scheduler: Kind,
    state: &State,
    whole: f64,
    wants: &BTreeMap<&'a str, Want>,
    floors: &BTreeMap<&str, f64>,
) -> BTreeMap<&'a str, (f64, By)> {
    let groups = &state.config.groups;
    let numbers: BTreeMap<&str, GroupId> = groups.iter().map(|group| &*group.path).zip((0..).map(GroupId)).collect();
    let above = |id: GroupId| {
        let group = &groups[usize::from(id.0)];
        (group.parent.unwrap_or(GroupId::ROOT), group.weight.into())
    };
    let mut parts = Entitlement::new();
    parts.reserve(groups.len(), wants.len());
    parts.clear();
    let there = wants.iter().filter_map(|(path, want)| Some((*path, want, *numbers.get(path)?)));
    let tenants: Vec<_> = there
        .map(|(path, want, group)| {
            // A group's own operations compete with the groups below it.
            let node = parts.add(group, Some(scheduler.own_weight(group == GroupId::ROOT)), above);
            parts.demand(node, want.most);
            (path, want, node, group)
        })
        .collect();
    for (path, floor) in floors {
        if let Some(node) = numbers.get(path).and_then(|group| parts.of_group(*group)) {
            parts.floor(node, *floor);
        }
    }
    parts.add_up();
    parts.divide(whole);
    let result = |(path, want, node, group): (&'a str, &Want, u32, GroupId)| {
        let (part, near) = (parts.part(node), 1e-9 * whole);
        let is_least = |node| parts.least(node) > 0.0 && parts.part(node) <= parts.least(node) + near;
        let by = match () {
            () if want.is_held => By::Max,
            () if part >= want.most - near => By::Demand,
            () if parts.of_group(group).is_some_and(is_least) => By::Min,
            () => By::Weight,
        };
        (path, (part, by))
    };
    tenants.into_iter().map(result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift::config::{Config, Disk};
    use fairlift_core::{Group, Weight, sched};

    fn state() -> State {
        let group = |path: &str, parent, weight| Group {
            path: path.into(),
            parent: Some(GroupId(parent)),
            weight: Weight::new(weight),
        };
        let groups =
            vec![Group::root(), group("/t", 0, 300), group("/t/a", 1, 300), group("/t/b", 1, 100), group("/u", 0, 100)];
        let config =
            Config { groups: groups.into(), disk_default: Disk::new("d", sched::Kind::Fair), ..Config::default() };
        State { version: 0, config: config.into() }
    }

    /// share.2
    #[test]
    fn what_weights_give_a_group_depends_on_who_else_asks() {
        let state = state();
        let due = |active: &[&'static str]| by_weight(Kind::Fair, &state, active.iter().copied());
        let all = due(&["/t/a", "/t/b", "/u"]);
        assert_eq!((all["/t/a"], all["/t/b"], all["/u"]), (0.75 * 0.75, 0.75 * 0.25, 0.25));
        assert_eq!(due(&["/t/a", "/u"])["/t/a"], 0.75);
        assert_eq!(due(&["/t/b"])["/t/b"], 1.0);
    }

    /// share.2: 40 beside 100; under `cfq` 100, and 200 in the root.
    #[test]
    fn what_is_a_groups_own_counts_beside_the_groups_below_it_as_for_the_scheduler() {
        let state = state();
        let due =
            |kind, active: &[&'static str], path| (by_weight(kind, &state, active.iter().copied())[path] * 1e6).round();
        for (kind, root, inner) in [(Kind::Fair, 285_714.0, 214_286.0), (Kind::Cfq, 666_667.0, 375_000.0)] {
            let all = (due(kind, &["/", "/u"], "/"), due(kind, &["/", "/u"], "/u"));
            assert_eq!(all, (root, 1e6 - root), "{kind:?}");
            assert_eq!(due(kind, &["/t", "/t/b", "/u"], "/t"), inner, "{kind:?}: of three quarters");
        }
    }

    /// The due of each, of a disk's whole time: in order a, b and u.
    fn due(most: [f64; 3], floors: &[(&str, f64)]) -> [(f64, By); 3] {
        let paths = ["/t/a", "/t/b", "/u"];
        let wants = paths.into_iter().zip(most).map(|(path, most)| (path, Want { most, is_held: false })).collect();
        let all = divide(Kind::Fair, &state(), 1.0, &wants, &floors.iter().copied().collect());
        paths.map(|path| ((all[path].0 * 1e6).round() / 1e6, all[path].1))
    }

    /// share.2
    #[test]
    fn what_a_tenant_does_not_use_goes_to_its_siblings_first() {
        let inf = f64::INFINITY;
        assert_eq!(due([0.15, inf, inf], &[]), [(0.15, By::Demand), (0.6, By::Weight), (0.25, By::Weight)]);
        assert_eq!(due([0.15, 0.05, inf], &[]), [(0.15, By::Demand), (0.05, By::Demand), (0.8, By::Weight)]);
        assert_eq!(due([inf, inf, 0.2], &[]), [(0.6, By::Weight), (0.2, By::Weight), (0.2, By::Demand)]);
    }

    /// share.4
    #[test]
    fn a_floor_is_due_before_weights_count() {
        let inf = f64::INFINITY;
        assert_eq!(due([inf; 3], &[("/u", 0.4)]), [(0.45, By::Weight), (0.15, By::Weight), (0.4, By::Min)]);
        assert_eq!(due([inf, inf, 0.3], &[("/u", 0.4)])[2], (0.3, By::Demand), "no more than it could use");
        assert_eq!(due([inf; 3], &[("/t/b", 0.5)]), [(0.25, By::Weight), (0.5, By::Min), (0.25, By::Weight)]);
        let [(a, _), (b, _), (u, _)] = due([inf; 3], &[("/t/b", 1.5), ("/u", 0.5)]);
        assert_eq!((a, b, u), (0.0, 0.75, 0.25), "more than there is, in proportion");
    }

    /// share.4: a floor is that of all below a group.
    #[test]
    fn a_group_and_those_below_it_are_its_members() {
        let rows = ["/", "/t", "/t-x", "/t/a", "/t/a/b", "/u"].map(|path| (path, Activity::default())).into();
        let of = |path| members(&rows, path).map(|(path, _)| *path).collect::<Vec<_>>();
        assert_eq!(of("/t"), ["/t", "/t/a", "/t/a/b"]);
        assert_eq!(of("/t-x"), ["/t-x"]);
        assert_eq!(of("/"), ["/", "/t", "/t-x", "/t/a", "/t/a/b", "/u"], "each once");
    }

    /// share.3: had a fifth of the disk in a second, with this mean number of operations in each part.
    #[test]
    fn what_a_tenant_could_use_is_what_it_would_have_alone() {
        let most = |asks: f64, parts: &[(Part, u64)], behind| {
            let mut activity = Activity::default();
            parts.iter().for_each(|(part, millis)| activity.times.spend(*part, fairlift_core::time::ms(*millis)));
            activity.could = seconds(activity.times.sum()) / asks;
            let Want { most, is_held } = Want::of(&activity, 0.2, Waits { behind, ..Waits::NONE });
            ((most * 1e6).round() / 1e6, is_held)
        };
        assert_eq!(most(1.0, &[(Part::Device, 8000)], 0.0), (0.2, false), "nothing holds it up");
        assert_eq!(
            most(1.0, &[(Part::Device, 1000)], 0.75),
            (0.8, false),
            "three quarters of its time are others' in the device"
        );
        assert_eq!(most(1.0, &[(Part::Device, 250), (Part::Others, 750)], 0.0), (0.8, false), "or in the scheduler");
        assert_eq!(
            most(0.8, &[(Part::Device, 200), (Part::Others, 600)], 0.0),
            (0.5, false),
            "and its client pauses for a fifth"
        );
        assert_eq!(
            most(1.0, &[(Part::Device, 1), (Part::Own, 999)], 0.0),
            (f64::INFINITY, false),
            "it waits for its own"
        );
        assert_eq!(most(1.0, &[(Part::Others, 1000)], 0.0), (f64::INFINITY, false), "nothing of it was served");
        assert_eq!(
            most(1.0, &[(Part::Flush, 900), (Part::Device, 100)], 0.0),
            (0.2, false),
            "alone its flushes take as long"
        );
        assert_eq!(most(1.0, &[(Part::Device, 8000), (Part::Limit, 4000)], 0.0), (0.2, true), "a ceiling holds it");
        assert_eq!(most(1.0, &[(Part::Device, 8000), (Part::Limit, 400)], 0.0), (0.2, false), "hardly");
        assert_eq!(most(0.0, &[], 0.0), (0.2, false), "it asked for nothing");
    }

    /// share.5: 32 requests in the device, 8 of them alice's.
    #[test]
    fn time_in_the_device_behind_others_is_theirs() {
        assert_eq!(behind(0.25, 8.0, 4.0), 0.75, "it does its best with the half of hers");
        assert_eq!(behind(0.25, 8.0, 16.0), 0.5, "with twice as many: alone she would leave half of it idle");
        assert_eq!(behind(0.25, 8.0, 64.0), 0.0, "it takes more than there are: nobody is behind anybody");
        assert_eq!((behind(0.0, 0.0, 4.0), behind(f64::NAN, 1.0, 4.0)), (0.0, 0.0), "nothing was done");
    }

    /// share.1
    #[test]
    fn had_is_what_operations_cost_where_costs_are_known() {
        let model =
            Model { rbps: 1e6, rseqiops: 1000.0, rrandiops: 100.0, wbps: 1e6, wseqiops: 1000.0, wrandiops: 50.0 };
        let data = |ops, bytes, merges, near| Counters { ops, bytes, merges, near, failed: 0 };
        let activity = |read, write| Activity { data: [read, write], ops: 0, ..Activity::default() };
        let near = |activity: Activity, seconds: f64| {
            assert!((cost(&model, &activity) - seconds).abs() < 1e-9, "{}", cost(&model, &activity))
        };
        near(activity(data(10, 40_960, 0, 0), Counters::default()), 0.1);
        near(activity(Counters::default(), data(1, 4096 + 1_000_000, 0, 0)), 1.02);
        // Ten in a row are one request, which is far from the one before.
        near(activity(data(10, 40_960, 9, 9), Counters::default()), 0.01 + 9.0 * 4096e-6);
        near(activity(data(10, 40_960, 0, 9), Counters::default()), 0.01 + 0.009);
        near(Activity { ops: 3, flushes: 1, ..Activity::default() }, 0.02);
    }
}
