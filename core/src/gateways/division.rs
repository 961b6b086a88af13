//! The division: the due of each gateway's groups, from all gateways' reports.
//!
//! *Example.* Tenant A is at gateway 1, tenants B, C and D are at gateway 2; their weights are equal, and all want more. Each is due a
//! quarter of the pool's service, so gateway 1 is due a quarter of it and gateway 2 three quarters. They had a half each. So gateway 1 has
//! fewer requests outstanding from now on, and gateway 2 more.
//!
//! division.1  The groups' due of the whole service is as a single server would find it (`entitlement`): groups that want no more have
//!             their own service, the others the rest by weight, and no less than their floors.
//! division.2  A group at several gateways has at each the part of its due that it had there lately. A tenth of the way to equal parts is
//!             made in each period, among gateways at which it wants more: else a part that was small by chance stayed so.
//! division.3  Of a group that has half of its service here, each request counts as two here: it has half its weight beside others, and
//!             half its floor. That is dmClock's δ (Gulati et al., OSDI 2010), told by the gateways and not by the clients.
//! division.4  A gateway is due what its groups' parts add up to. The cluster serves in order of arrival, so it divides its time by how much is
//!             outstanding. A gateway may have outstanding what it is due, divided by its `speed`, and all gateways' together are the pool's depth.
//!             Only ratios of speeds count, and each gateway finds its own. A gateway at which nothing waits, and that had no more than it is
//!             due, is not held: it may have an equal part, so that a client that comes finds room.
//! division.5  A ceiling is divided by need: a gateway at which it holds nobody keeps what its group took and a quarter more, the others
//!             have equal parts of the rest. Each has a little in any case, with which it begins when a client comes.
//! division.6  Where settings of a group differ between gateways, those hold that were changed last, by the clocks of the gateways; of two
//!             that were changed at once, those of the gateway whose name comes last.
//! division.7  No more than [`GROUPS_MOST`] groups of a pool are divided, those whose paths come first; the others keep what they have.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::report::{GroupReport, Report, Settings};
use crate::GroupId;
use crate::ceiling::{Rate, Rates};
use crate::entitlement::{Entitlement, OWN};

/// The part of the way to equal parts that is made in a period (division.2). Chosen: a client that comes to a second gateway has nearly its
/// part there after twenty periods; with a half, a tenant with few requests at one gateway went to and fro.
const EVENLY: f64 = 0.1;
/// A gateway at which nothing waits is held all the same if it had more than this of its due: all requests of its clients are in the
/// cluster then, before the others' due. Chosen.
const CONTENT: f64 = 1.05;
/// By how much a gateway's depth grows in a period at most: one that takes another for gone may be wrong. From the simulation: with 4, two
/// gateways were off by 14 % where three of ten reports are lost (6 % with this); with 2, a cluster is half idle for ten seconds after
/// the largest gateway died.
const GROWS: f64 = 2.5;
/// The least that a gateway has outstanding on average: one request for a twentieth of the time. Chosen.
pub(super) const DEPTH_LEAST: f64 = 0.05;
/// How much more than its group took a gateway keeps of a ceiling, and how much of it all gateways have in any case (division.5). Chosen.
const CEILING_MORE: f64 = 1.25;
const CEILING_LEAST: f64 = 0.05;

/// The most groups that are divided (division.7): the tree of groups has no more numbers.
const GROUPS_MOST: usize = u16::MAX as usize;

/// A gateway that counts, as it is told of.
pub(super) struct Member<'a> {
    pub(super) name: &'a str,
    pub(super) report: &'a Report,
    /// The service of one outstanding request there, a second; `None`: it is not known yet.
    pub(super) speed: Option<f64>,
}

/// A group's part of the pool.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Due {
    /// How it is set, at whichever gateway that was changed last (division.6).
    pub settings: Settings,
    /// It is set otherwise at some gateway.
    pub differs: bool,
    /// The service of it and of those below it at all gateways, as a part of all that was served.
    pub served: f64,
    /// The same here alone.
    pub here: f64,
    /// Its due at all gateways, as a part of all that was served.
    pub due: f64,
    /// The part of its due that is to be served here (division.2): 1 divided by 1 + δ.
    pub part: f64,
    /// The part of its ceiling that it has here (division.5).
    pub ceiling: f64,
}

/// A gateway's part of the pool.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Divided {
    pub(super) depth: f64,
    /// The service of all gateways a second, in reads of 4 KiB.
    pub(super) whole: f64,
    /// Each gateway's due of that, in their order.
    pub(super) due: Vec<f64>,
    pub(super) groups: BTreeMap<String, Due>,
}

/// A group of the pool while it is divided.
struct PoolGroup<'a> {
    path: &'a str,
    above: usize,
    settings: Option<Settings>,
    differs: bool,
    /// Each gateway's figures, in their order.
    reports: Vec<Option<&'a GroupReport>>,
    /// Its own streams' due at each gateway.
    due: Vec<f64>,
    /// `None`: nothing is asked for.
    node: Option<u32>,
}

/// The groups that are told of and those above them, each after the one above it; the root is the first.
fn rows<'a>(members: &[Member<'a>]) -> Vec<PoolGroup<'a>> {
    let mut reports: BTreeMap<&'a str, Vec<Option<&'a GroupReport>>> = BTreeMap::new();
    let none = || vec![None; members.len()];
    for (at, member) in members.iter().enumerate() {
        for (path, one) in &member.report.groups {
            reports.entry(path).or_insert_with(none)[at] = Some(one);
            let ends = path.match_indices('/').map(|(end, _)| &path[..end.max(1)]);
            ends.for_each(|above| _ = reports.entry(above).or_insert_with(none));
        }
    }
    reports.entry("/").or_insert_with(none);
    let mut places = BTreeMap::new();
    // "/a" comes before "/a/b": what is above comes first.
    let numbered = reports.into_iter().take(GROUPS_MOST).enumerate();
    numbered
        .map(|(at, (path, reports))| {
            places.insert(path, at);
            let above = path.rfind('/').map_or("/", |end| &path[..end.max(1)]);
            let present = || reports.iter().zip(members).filter_map(|(one, member)| Some((one.as_ref()?, member.name)));
            // division.6
            let newest = present().max_by_key(|(one, name)| (one.settings.changed, *name));
            let settings = newest.map(|(one, _)| one.settings);
            let is_other = |one: &GroupReport| settings.is_some_and(|newest| !same(&newest, &one.settings));
            let differs = present().any(|(one, _)| is_other(one));
            let above = places.get(above).copied().unwrap_or(0);
            PoolGroup { path, above, settings, differs, reports, due: vec![0.0; members.len()], node: None }
        })
        .collect()
}

fn same(one: &Settings, other: &Settings) -> bool {
    one.weight == other.weight && one.bounds == other.bounds
}

impl PoolGroup<'_> {
    fn sum(&self, of: impl Fn(&GroupReport) -> f64) -> f64 {
        self.reports.iter().flatten().map(|one| of(one)).sum()
    }

    fn any(&self, of: impl Fn(&GroupReport) -> bool) -> bool {
        self.reports.iter().flatten().any(|one| of(one))
    }

    /// division.2: the part of its due that it has at each gateway.
    fn part_at_gateways(&self) -> Vec<f64> {
        let all = self.sum(|report| report.lately);
        let even = 1.0 / self.reports.iter().flatten().count() as f64;
        let lately = |report: &GroupReport| if all > 0.0 { report.lately / all } else { even };
        let mut parts: Vec<f64> = self.reports.iter().map(|report| report.map_or(0.0, lately)).collect();
        let wants = |report: &Option<&GroupReport>| report.is_some_and(|report| report.waits || report.held);
        let count = self.reports.iter().filter(|report| wants(report)).count();
        let sum: f64 = self.reports.iter().zip(&parts).filter(|(report, _)| wants(report)).map(|(_, part)| part).sum();
        for (report, part) in self.reports.iter().zip(&mut parts) {
            if wants(report) {
                *part += EVENLY * (sum / count as f64 - *part);
            }
        }
        parts
    }
}

/// Divides the pool; `own`: which of the gateways asks.
pub(super) fn divide(members: &[Member<'_>], own: usize) -> Divided {
    let mut rows = rows(members);
    let whole: f64 = rows.iter().map(|row| row.sum(|report| report.served)).sum();
    entitle(&mut rows, whole);
    let due: Vec<f64> = (0..members.len()).map(|at| rows.iter().map(|row| row.due[at]).sum()).collect();
    let depth = depth(members, own, &due);
    let ceilings: Vec<f64> = (0..rows.len()).map(|at| ceiling(&rows, at, members.len(), own)).collect();
    let served = with_below(&rows, |row| row.sum(|report| report.served));
    let here = with_below(&rows, |row| row.reports[own].map_or(0.0, |report| report.served));
    let lately = with_below(&rows, |row| row.reports[own].map_or(0.0, |report| report.lately));
    let due_all = with_below(&rows, |row| row.due.iter().sum());
    let due_here = with_below(&rows, |row| row.due[own]);
    let of_whole = |amount: f64| if whole > 0.0 { amount / whole } else { 0.0 };
    let groups = rows.iter().enumerate().filter_map(|(at, row)| {
        let settings = row.settings?;
        let there = row.reports.iter().flatten().count();
        let part = match due_here[at] / due_all[at] {
            // It may begin here at any moment, and then has its part as if it had been there.
            part if lately[at] == 0.0 || !part.is_finite() => {
                1.0 / (there + usize::from(row.reports[own].is_none())) as f64
            }
            part => part.clamp(0.0, 1.0),
        };
        let due = Due {
            settings,
            differs: row.differs,
            served: of_whole(served[at]),
            here: of_whole(here[at]),
            due: of_whole(due_all[at]),
            part,
            ceiling: ceilings[at],
        };
        Some((row.path.into(), due))
    });
    let groups = groups.collect();
    Divided { depth, whole, due, groups }
}

/// A figure of each group, with those below it.
fn with_below(rows: &[PoolGroup<'_>], of: impl Fn(&PoolGroup<'_>) -> f64) -> Vec<f64> {
    let mut all: Vec<f64> = rows.iter().map(of).collect();
    // Each comes after the one above it.
    for at in (1..rows.len()).rev() {
        all[rows[at].above] += all[at];
    }
    all
}

/// Whether a group is another one, or below it.
fn is_in(path: &str, above: &str) -> bool {
    above == "/" || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// How many times as much as was done such rates are, the greatest of them or the least; `None`: there are none, or nothing was done
/// that they count.
fn times(rates: &Rates, done: impl Fn(usize) -> f64, pick: fn(f64, f64) -> f64) -> Option<f64> {
    let times =
        |(rate, amount): (Rate, u64)| Some(amount as f64 / done(rate as usize)).filter(|times| times.is_finite());
    rates.iter().filter_map(times).reduce(pick)
}

/// division.1
fn entitle(rows: &mut [PoolGroup<'_>], whole: f64) {
    let mut entitlement = Entitlement::new();
    entitlement.reserve(rows.len(), rows.len());
    entitlement.clear();
    let above: Vec<(GroupId, u32)> = rows
        .iter()
        .map(|row| (GroupId(row.above as u16), row.settings.map_or(100, |settings| settings.weight.into())))
        .collect();
    let mut has_below = vec![false; rows.len()];
    rows.iter().enumerate().skip(1).for_each(|(_, row)| has_below[row.above] = true);
    for at in 0..rows.len() {
        if rows[at].any(|report| report.served > 0.0 || report.waits || report.held) {
            let own = (at == 0 || has_below[at]).then_some(OWN);
            rows[at].node = Some(entitlement.add(GroupId(at as u16), own, |id| above[usize::from(id.0)]));
        }
    }
    entitlement.clear_demands();
    for (node, row) in rows.iter().filter_map(|row| Some((row.node?, row))) {
        let served = row.sum(|report| report.served);
        let bounds = row.settings.map(|settings| settings.bounds).unwrap_or_default();
        let done = |rate| row.sum(|report| report.rates[rate]);
        let most = times(&bounds.ceiling.max, done, f64::min).map_or(f64::INFINITY, |times| served * times.max(1.0));
        let waits = row.any(|report| report.waits);
        entitlement.demand(node, if waits { most.min(whole) } else { served });
    }
    // A floor is that of all below the group, too.
    let served = with_below(rows, |row| row.sum(|report| report.served));
    let done: [_; Rate::COUNT] =
        core::array::from_fn(|rate| with_below(rows, |row| row.sum(|report| report.rates[rate])));
    for (at, row) in rows.iter().enumerate() {
        let Some(settings) = row.settings else { continue };
        let Some(node) = entitlement.of_group(GroupId(at as u16)) else { continue };
        if let Some(times) = times(&settings.bounds.floor, |rate| done[rate][at], f64::max) {
            entitlement.floor(node, (served[at] * times).min(whole));
        }
    }
    entitlement.add_up();
    entitlement.divide(whole);
    for (node, row) in rows.iter_mut().filter_map(|row| Some((row.node?, row))) {
        let due = entitlement.part(node);
        row.due = row.part_at_gateways().into_iter().map(|part| part * due).collect();
    }
}

/// division.4: how many requests a gateway may have outstanding.
fn depth(members: &[Member<'_>], own: usize, due: &[f64]) -> f64 {
    let pool = members.iter().map(|member| member.report.pool_depth).fold(f64::INFINITY, f64::min);
    let even = pool / members.len() as f64;
    let (known, sum) =
        members.iter().filter_map(|member| member.speed).fold((0, 0.0), |(n, sum), speed| (n + 1, sum + speed));
    let mean = if known > 0 { sum / f64::from(known) } else { 1.0 };
    let needs = |at: usize| due[at] / members[at].speed.unwrap_or(mean);
    let part = pool * needs(own) / (0..members.len()).map(needs).sum::<f64>();
    let most = pool.max(DEPTH_LEAST);
    if !part.is_finite() {
        return members[own].report.depth.clamp(DEPTH_LEAST, most); // nothing was served, so nothing is due
    }
    let reports = &members[own].report.groups;
    let got: f64 = reports.values().map(|report| report.served).sum();
    let is_content = !reports.values().any(|report| report.waits) && got <= CONTENT * due[own];
    let depth = if is_content { even.max(2.0 * part) } else { part.min(GROWS * members[own].report.depth) };
    depth.clamp(DEPTH_LEAST, most)
}

/// division.5: the part of its ceiling that a group has at a gateway.
fn ceiling(rows: &[PoolGroup<'_>], at: usize, members: usize, own: usize) -> f64 {
    let row = &rows[at];
    let Some(settings) = row.settings else { return 1.0 };
    let max = &settings.bounds.ceiling.max;
    if max.is_none() {
        return 1.0;
    }
    let there: Vec<usize> = (0..members).filter(|member| row.reports[*member].is_some()).collect();
    let Some(mine) = there.iter().position(|member| *member == own) else { return CEILING_LEAST };
    let mut division = Entitlement::new();
    division.reserve(1, there.len());
    division.clear();
    let least = CEILING_LEAST / there.len() as f64;
    let nodes: Vec<u32> = there.iter().map(|_| division.add(GroupId::ROOT, Some(1), |_| (GroupId::ROOT, 1))).collect();
    division.clear_demands();
    for (member, node) in there.iter().zip(&nodes) {
        let reports =
            || rows.iter().filter(|other| is_in(other.path, row.path)).filter_map(|other| other.reports[*member]);
        let used = |(rate, amount): (Rate, u64)| {
            reports().map(|report| report.rates[rate as usize]).sum::<f64>() / amount as f64
        };
        let used = max.iter().map(used).fold(0.0, f64::max);
        let demand = if reports().any(|report| report.held) { 1.0 } else { used * CEILING_MORE };
        division.demand(*node, demand.clamp(least, 1.0));
        division.floor(*node, least);
    }
    division.add_up();
    division.divide(1.0);
    let left = 1.0 - nodes.iter().map(|node| division.part(*node)).sum::<f64>();
    division.part(nodes[mine]) + left.max(0.0) / there.len() as f64
}
