//! Tenants: the result of each, beside its entitlement.
//!
//! Example: a reader of 4 KiB at depth 1 does 9,800 reads a second alone, and the disk 110,000 when saturated. It can use
//! 0.09 of the disk. Beside a deep reader of the same weight it is entitled to all of that, for its weight's part is 0.5;
//! the deep reader is entitled to the other 0.91. If the small one does 2,100 reads a second, it achieves 2,100 ÷ 110,000
//! ÷ 0.09 = 0.21, and the isolation of the run is 0.21.
//!
//! entitlement.1  The capacity for a tenant's kind of request (read or write, order, block size, flushes) is the disk's rate of it when
//!     saturated: alone, scheduler `none`, 4 streams of depth 32; of depth 8 if blocks are larger than 64 KiB. It is the tenant's own rate
//!     alone, if that is more.
//! entitlement.2  A tenant's demand is its rate alone at its own depth, scheduler `none`, over the capacity: the part of the disk that it
//!     can use, at most 1.
//! entitlement.3  The entitlements are weighted max-min: each tenant has its weight's part of the disk, but no more than its demand; the
//!     rest goes to the others by weight. With groups within groups, each group divides what it has so.
//! entitlement.4  Achieved: (rate ÷ capacity) ÷ entitlement. Isolation: the least achieved. Use: the sum of rate ÷ capacity, over that of
//!     the entitlements.
//! entitlement.5  Runs alone are made once in each set for each kind and depth, before the first situation that needs them.
//! entitlement.6  A tenant that is entitled to less than its demand is saturating: weights alone bound it. Over each second of the run, its
//!     share of the saturating tenants' total is compared with its part of their entitlements.

use fairlift_core::{Duration, Group, GroupId};

use super::Case;
use crate::result::{Run, Tenant, Together};
use crate::workload::{Role, Workload};

/// Streams that saturate the disk (entitlement.1). Chosen: with 32 requests each as many as the default depth, 128.
const STREAMS: u32 = 4;

/// How long the disk is in use before anything is counted: as long as in the live bench (`benches/tenants.py`). By then
/// schedulers have learned what the disk is like.
pub const WARM_UP: Duration = fairlift_core::time::secs(1);

/// How long a reply and the next request are on their way, on average. Alone at depth 1, a client of a server on the same
/// machine does 40,000 reads a second of a disk that answers at once: 25 µs, and the double where the server has other
/// clients (`docs/measured/peers.md`). With it modelled SATA disks show what a live virtual disk does.
pub const ROUND_TRIP: Duration = fairlift_core::time::us(50);

/// The length of a slot of the timeline. Chosen: ten make a window of a second (entitlement.6).
pub(super) const SLOT: Duration = fairlift_core::time::ms(100);

/// The runs alone that a situation needs: a role, and how many streams play it.
pub(super) fn references(situation: &Workload) -> Vec<(Role, u32)> {
    situation.roles.iter().flat_map(|role| [saturating(role), (alone(role), 1)]).collect()
}

/// The workload of a run alone.
pub(super) fn reference(role: &Role, streams: u32) -> Workload {
    let streams = if streams == 1 { String::new() } else { format!("{streams} × ") };
    let name = format!("alone: {streams}{}", role.says());
    Workload { name, about: String::new(), roles: vec![role.clone()], groups: Vec::new() }
}

/// The load that saturates the disk with a tenant's kind of request (entitlement.1).
fn saturating(role: &Role) -> (Role, u32) {
    let depth = if role.block_size <= 64 << 10 { 32 } else { 8 };
    (Role { iodepth: Some(depth), think: Duration::ZERO, ..alone(role) }, STREAMS)
}

/// A tenant by itself (entitlement.2).
fn alone(role: &Role) -> Role {
    Role { group: None, name: "alone".into(), ..role.clone() }
}

/// A measurement alone in this set: a role, its streams, and its operations in a second.
#[derive(Default)]
pub(super) struct Alone(Vec<(Role, u32, f64)>);

impl Alone {
    /// A case of [`reference()`] ended.
    pub(super) fn note(&mut self, case: &Case, run: &Run) {
        let (role, jobs) = (&case.workload.roles[0], case.jobs);
        self.0.retain(|(other, streams, _)| (other, *streams) != (role, jobs)); // of the set before
        self.0.push((role.clone(), jobs, run.iops));
    }

    fn rate(&self, role: &Role, streams: u32) -> f64 {
        let one = self.0.iter().find(|(other, jobs, _)| other == role && *jobs == streams);
        one.expect("runs alone come before the situation that needs them").2
    }

    /// Adds to a run what its tenants are entitled to, and how near they came.
    pub(super) fn judge(&self, case: &Case, run: &mut Run) {
        let tenants: Vec<(GroupId, &Role)> = case.cast();
        let able = |role: &Role| {
            let own = self.rate(&alone(role), 1);
            let (kind, streams) = saturating(role);
            let capacity = self.rate(&kind, streams).max(own);
            (capacity, part(own, capacity))
        };
        let able: Vec<(f64, f64)> = tenants.iter().map(|(_, role)| able(role)).collect();
        let leaves: Vec<_> = tenants.iter().zip(&able).map(|((group, _), (_, demand))| (*group, *demand)).collect();
        let entitled = tree_max_min(&case.groups, &leaves);
        for (place, (_, role)) in tenants.iter().enumerate() {
            let (group, (capacity, demand), entitled) = (&mut run.groups[place], able[place], entitled[place]);
            let achieved = part(part(group.iops, capacity), entitled);
            group.tenant = Some(Tenant { does: role.says(), capacity, demand, entitled, achieved });
        }
        let judged = || run.groups.iter().filter_map(|group| group.tenant.as_ref().map(|tenant| (group, tenant)));
        let used: f64 = judged().map(|(group, tenant)| part(group.iops, tenant.capacity)).sum();
        let together = Together {
            isolation: judged().map(|(_, tenant)| tenant.achieved).fold(f64::INFINITY, f64::min),
            used: part(used, entitled.iter().sum()),
            share_error_1s: share_error(run, &tenants),
        };
        run.together = Some(together);
    }
}

/// A part of a whole; 0 of nothing, for JSON has no NaN.
fn part(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 0.0 }
}

/// The largest |share − due| ÷ due of a saturating tenant over any second (entitlement.6); `None` if there are not two of them, or
/// the run is shorter.
fn share_error(run: &Run, tenants: &[(GroupId, &Role)]) -> Option<f64> {
    let slot = run.runtime_s / run.timeline.len().max(1) as f64;
    let window = ((1.0 / slot).round() as usize).max(1);
    let tenant = |place: usize| run.groups[place].tenant.as_ref();
    let saturating: Vec<usize> = (0..tenants.len())
        .filter(|place| tenant(*place).is_some_and(|one| one.entitled > 0.0 && one.entitled < one.demand * 0.999))
        .collect();
    if saturating.len() < 2 || run.timeline.len() < window {
        return None;
    }
    let due: f64 = saturating.iter().filter_map(|place| Some(tenant(*place)?.entitled)).sum();
    // Bytes ÷ block ÷ capacity: seconds of a fully used disk.
    let service = |slots: &[Vec<u64>], place: usize| -> f64 {
        let bytes: u64 = slots.iter().map(|slot| slot[place]).sum();
        let role = tenants[place].1;
        let operation = f64::from(role.block_size) * f64::from(role.flush_every.max(1));
        tenant(place).map_or(0.0, |one| part(bytes as f64 / operation, one.capacity))
    };
    let errors = run.timeline.windows(window).flat_map(|slots| {
        let all: f64 = saturating.iter().map(|place| service(slots, *place)).sum();
        saturating.iter().map(move |&place| {
            let due = tenant(place).map_or(0.0, |one| one.entitled) / due;
            (part(service(slots, place), all) - due).abs() / due
        })
    });
    Some(errors.fold(0.0, f64::max))
}

/// Weighted max-min of a disk among the leaves of a tree, each with its demand (entitlement.3); in their order.
fn tree_max_min(groups: &[Group], leaves: &[(GroupId, f64)]) -> Vec<f64> {
    let mut demands = vec![0.0; groups.len()];
    for &(leaf, demand) in leaves {
        up_from(groups, leaf).for_each(|group| demands[group] += demand);
    }
    let mut shares = vec![0.0; groups.len()];
    shares[0] = 1.0;
    // Parents come before their children.
    for parent in 0..groups.len() {
        let children = children(groups, parent);
        let wants: Vec<_> = children.iter().map(|child| (f64::from(groups[*child].weight), demands[*child])).collect();
        for (child, share) in children.iter().zip(max_min(shares[parent], &wants)) {
            shares[*child] = share;
        }
    }
    leaves.iter().map(|(leaf, _)| shares[usize::from(leaf.0)]).collect()
}

/// A group and those above it.
pub(super) fn up_from(groups: &[Group], leaf: GroupId) -> impl Iterator<Item = usize> {
    let up = |group: &GroupId| groups[usize::from(group.0)].parent;
    std::iter::successors(Some(leaf), up).map(|group| usize::from(group.0))
}

pub(super) fn children(groups: &[Group], parent: usize) -> Vec<usize> {
    (0..groups.len()).filter(|child| groups[*child].parent == Some(GroupId(parent as u16))).collect()
}

/// Divides `whole` by weight among (weight, demand): nobody gets more than its demand, and the rest goes to the others by weight.
#[must_use]
pub fn max_min(whole: f64, wants: &[(f64, f64)]) -> Vec<f64> {
    let mut shares = vec![0.0; wants.len()];
    let mut open: Vec<usize> = (0..wants.len()).collect();
    let mut left = whole;
    while !open.is_empty() {
        let weights: f64 = open.iter().map(|place| wants[*place].0).sum();
        let offer = |place: usize| left * wants[place].0 / weights;
        let (full, rest): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|place| wants[**place].1 <= offer(**place) + 1e-12);
        if full.is_empty() {
            open.iter().for_each(|place| shares[*place] = offer(*place));
            break;
        }
        full.iter().for_each(|place| shares[*place] = wants[*place].1);
        left -= full.iter().map(|place| wants[*place].1).sum::<f64>();
        open = rest;
    }
    shares
}

#[cfg(test)]
mod tests {
    use fairlift_core::Weight;
    use proptest::prelude::*;

    use super::*;

    fn near(a: &[f64], b: &[f64]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9)
    }

    /// entitlement.3
    #[test]
    fn what_a_tenant_cannot_use_goes_to_the_others_by_weight() {
        assert_eq!(max_min(1.0, &[(100.0, 1.0), (300.0, 1.0)]), [0.25, 0.75], "both want more than there is");
        assert_eq!(max_min(1.0, &[(100.0, 0.1), (100.0, 1.0)]), [0.1, 0.9]);
        assert_eq!(max_min(1.0, &[(400.0, 0.1), (100.0, 0.2)]), [0.1, 0.2], "together they want less than there is");
        // The second is bounded only when the first has left some of its part.
        let shares = max_min(1.0, &[(200.0, 0.1), (100.0, 0.4), (100.0, 1.0)]);
        assert!(near(&shares, &[0.1, 0.4, 0.5]), "{shares:?}");
        assert_eq!(max_min(1.0, &[]), [] as [f64; 0]);
    }

    /// entitlement.3
    #[test]
    fn a_group_divides_what_it_has_among_those_below_it() {
        let group = |path: &str, parent, weight| Group {
            path: path.into(),
            parent: Some(GroupId(parent)),
            weight: Weight::new(weight),
        };
        let groups = [
            Group::root(),
            group("/a", 0, 300),
            group("/a/x", 1, 100),
            group("/a/y", 1, 200),
            group("/b", 0, 100),
            group("/b/x", 4, 100),
        ];
        let leaves = |a, b, c| [(GroupId(2), a), (GroupId(3), b), (GroupId(5), c)];
        assert!(near(&tree_max_min(&groups, &leaves(1.0, 1.0, 1.0)), &[0.25, 0.5, 0.25]));
        // The rest of /a/y is for /a/x before it is for /b.
        assert!(near(&tree_max_min(&groups, &leaves(1.0, 0.15, 1.0)), &[0.6, 0.15, 0.25]));
        assert!(near(&tree_max_min(&groups, &leaves(0.1, 0.15, 1.0)), &[0.1, 0.15, 0.75]));
    }

    /// The dullest version: a level is raised until all is given away; at each, nobody has more than its demand.
    fn by_level(whole: f64, wants: &[(f64, f64)]) -> Vec<f64> {
        let at = |level: f64| -> Vec<f64> { wants.iter().map(|(weight, demand)| demand.min(level * weight)).collect() };
        let (mut low, mut high) = (0.0, 2.0);
        for _ in 0..200 {
            let middle = f64::midpoint(low, high);
            if at(middle).iter().sum::<f64>() < whole { low = middle } else { high = middle }
        }
        at(low)
    }

    crate::proptest! {
        /// entitlement.3
        #[test]
        fn max_min_is_the_level_at_which_all_is_given_away(
            wants in proptest::collection::vec((1_u16..=1000, 0.0_f64..=1.0), 1..12),
            whole in 0.01_f64..=1.0,
        ) {
            let wants: Vec<_> = wants.into_iter().map(|(weight, demand)| (f64::from(weight), demand)).collect();
            let (shares, dull) = (max_min(whole, &wants), by_level(whole, &wants));
            for (share, dull) in shares.iter().zip(&dull) {
                prop_assert!((share - dull).abs() < 1e-6, "{shares:?}, not {dull:?}");
            }
        }
    }
}
