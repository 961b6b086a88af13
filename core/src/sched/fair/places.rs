//! Places: how many requests each tenant may have in the device.
//!
//! Virtual time alone does not share a disk that answers in lumps. A virtual disk may take 64 requests, work for 800 µs, and
//! answer all at once: then 64 places are free, and whatever waits goes, in whichever order. What just came back to its clients
//! returns a moment later and finds the disk full. A tenant of weight 400 with 32 requests outstanding, beside three lighter
//! ones, had 27 % of such a disk instead of 40, though it was always first in the order. So each tenant has places of its own,
//! which nobody takes while its requests are on their way; what it never uses goes to the others.
//!
//! places.1  A tenant that gets the part y of the disk's time, and whose requests are in the device for L, has y · L worth of
//!           requests in it (Little's law). So that is its room, in the currency of cost; one request always fits.
//! places.2  The parts are weighted max-min over the tree of groups: each child of a group has its weight's part, but no more
//!           than it can use with what it keeps outstanding; what it leaves goes to its siblings by weight.
//! places.3  All rooms together hold as many requests as the depth says.

use alloc::vec::Vec;

use crate::GroupId;

/// A node of the tree: a group, or a tenant in it.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// The node above; [`NIL`] of the root.
    above: u32,
    /// Its first child, and the next child of the node above.
    first: u32,
    next: u32,
    weight: f64,
    /// The most that it can use, and what it gets, in parts of the disk.
    demand: f64,
    part: f64,
    is_full: bool,
}

const NIL: u32 = u32::MAX;
const ROOT: u32 = 0;
/// Rounds of a division among siblings. Each but the last finds those that their demand bounds; four found all in random trees,
/// and what a round leaves out is divided by weight all the same.
const ROUNDS: u32 = 8;

/// The tenants that share a disk at present, below their groups.
#[derive(Debug)]
pub(super) struct Places {
    nodes: Vec<Node>,
    /// By group: its node, if it has one by now.
    of_group: Vec<u32>,
}

impl Places {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new(), of_group: Vec::new() }
    }

    /// There may be so many groups and tenants: none is allocated for later.
    pub(super) fn reserve(&mut self, groups: usize, tenants: usize) {
        self.of_group.resize(self.of_group.len().max(groups), NIL);
        self.nodes.reserve((groups + tenants + 1).saturating_sub(self.nodes.len()));
    }

    /// Begins anew, with nobody there.
    pub(super) fn clear(&mut self) {
        self.of_group.fill(NIL);
        self.nodes.clear();
        self.nodes.push(Node::new(NIL, 0.0));
        if let Some(root) = self.of_group.first_mut() {
            *root = ROOT;
        }
    }

    /// A tenant is there: in a group, whose ancestors `above` knows with their weights; `weight` is that of a stream in the
    /// root, and `None` if the tenant is the group itself. Answers which node it is.
    pub(super) fn add(
        &mut self,
        group: GroupId,
        weight: Option<u32>,
        above: impl Fn(GroupId) -> (GroupId, u32),
    ) -> u32 {
        let of_group = self.add_group(group, &above);
        match weight {
            Some(weight) => self.push(of_group, weight.into()),
            None => of_group,
        }
    }

    fn add_group(&mut self, group: GroupId, above: &impl Fn(GroupId) -> (GroupId, u32)) -> u32 {
        let known = self.of_group[usize::from(group.0)];
        if known != NIL {
            return known;
        }
        let (parent, weight) = above(group);
        let parent = self.add_group(parent, above);
        let node = self.push(parent, weight.into());
        self.of_group[usize::from(group.0)] = node;
        node
    }

    fn push(&mut self, above: u32, weight: f64) -> u32 {
        let node = self.nodes.len() as u32;
        let next = core::mem::replace(&mut self.nodes[above as usize].first, node);
        self.nodes.push(Node { next, ..Node::new(above, weight) });
        node
    }

    /// A tenant can use so much at the most.
    pub(super) fn demand(&mut self, node: u32, demand: f64) {
        self.nodes[node as usize].demand = demand;
    }

    /// Nobody can use anything, until [`Places::demand`] says so.
    pub(super) fn clear_demands(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.demand = 0.0);
    }

    /// What a tenant gets.
    pub(super) fn part(&self, node: u32) -> f64 {
        self.nodes[node as usize].part
    }

    /// Whether a tenant gets all that it can use.
    pub(super) fn is_full(&self, node: u32) -> bool {
        self.nodes[node as usize].is_full
    }

    /// Adds up the demands of children, once those of all tenants are known.
    pub(super) fn add_up(&mut self) {
        // A node comes after the one above it.
        for at in (1..self.nodes.len()).rev() {
            let Node { above, demand, .. } = self.nodes[at];
            self.nodes[above as usize].demand += demand;
        }
    }

    /// Divides `whole` (places.2).
    pub(super) fn divide(&mut self, whole: f64) {
        self.nodes[ROOT as usize].part = whole;
        for at in 0..self.nodes.len() {
            self.divide_node(at);
        }
    }

    fn divide_node(&mut self, at: usize) {
        let Node { first, part, .. } = self.nodes[at];
        let (mut left, mut weights, mut child) = (part, 0.0, first);
        while child != NIL {
            let node = &mut self.nodes[child as usize];
            node.is_full = false;
            weights += node.weight;
            child = node.next;
        }
        for _ in 0..ROUNDS {
            let (mut changed, mut child) = (false, first);
            while child != NIL {
                let node = &mut self.nodes[child as usize];
                child = node.next;
                if !node.is_full && node.demand * weights <= left * node.weight {
                    (node.part, node.is_full, changed) = (node.demand, true, true);
                    left -= node.demand;
                    weights -= node.weight;
                }
            }
            if !changed {
                break;
            }
        }
        child = first;
        while child != NIL {
            let node = &mut self.nodes[child as usize];
            child = node.next;
            if !node.is_full {
                node.part = (left * node.weight / weights).max(0.0);
            }
        }
    }
}

impl Node {
    const fn new(above: u32, weight: f64) -> Self {
        Self { above, first: NIL, next: NIL, weight, demand: 0.0, part: 0.0, is_full: false }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    /// What siblings get of `whole`: the dull way, by looking for the level to which all are filled.
    fn levels(whole: f64, siblings: &[(f64, f64)]) -> Vec<f64> {
        if siblings.iter().map(|(_, demand)| demand).sum::<f64>() <= whole {
            return siblings.iter().map(|(_, demand)| *demand).collect();
        }
        let at = |level: f64| siblings.iter().map(move |(weight, demand)| demand.min(level * weight));
        let (mut low, mut high) = (0.0, 1e18);
        for _ in 0..300 {
            let middle = (low + high) / 2.0;
            if at(middle).sum::<f64>() <= whole { low = middle } else { high = middle }
        }
        at(low).collect()
    }

    /// A group, or a tenant that asks for so much.
    struct Dull {
        above: usize,
        weight: f64,
        demand: f64,
        part: f64,
    }

    /// Parents come before their children.
    fn divide(whole: f64, tree: &mut [Dull]) {
        for at in (1..tree.len()).rev() {
            let (above, demand) = (tree[at].above, tree[at].demand);
            tree[above].demand += demand;
        }
        tree[0].part = whole;
        for at in 0..tree.len() {
            let children: Vec<usize> = (1..tree.len()).filter(|child| tree[*child].above == at).collect();
            let siblings: Vec<_> = children.iter().map(|child| (tree[*child].weight, tree[*child].demand)).collect();
            for (child, part) in children.iter().zip(levels(tree[at].part, &siblings)) {
                tree[*child].part = part;
            }
        }
    }

    fn random(seed: &mut u64, below: u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % below
    }

    /// places.2: each gets its weight's part, or what it can use, and what that leaves goes to its siblings.
    #[test]
    fn parts_are_weighted_max_min_at_every_level() {
        let mut seeds = fairlift_lab::repeat::seeds(1..2);
        let seed = &mut seeds.next().unwrap();
        let mut places = Places::new();
        for _ in 0..3000 {
            let groups = 1 + random(seed, 8) as usize;
            let above: Vec<(GroupId, u32)> = (0..groups)
                .map(|at| (GroupId(random(seed, at.max(1) as u64) as u16), 1 + random(seed, 1000) as u32))
                .collect();
            let mut tree: Vec<Dull> = above
                .iter()
                .map(|(parent, weight)| Dull {
                    above: usize::from(parent.0),
                    weight: (*weight).into(),
                    demand: 0.0,
                    part: 0.0,
                })
                .collect();
            places.reserve(groups, 40);
            places.clear();
            // Some groups are tenants, and some have streams that are tenants.
            let mut tenants = vec![];
            for group in 1..groups {
                if random(seed, 2) == 0 {
                    let node = places.add(GroupId(group as u16), None, |id| above[usize::from(id.0)]);
                    tenants.push((node, group));
                }
            }
            for _ in 0..random(seed, 20) {
                let group = random(seed, groups as u64) as usize;
                let weight = 10 * (1 + random(seed, 8) as u32);
                let node = places.add(GroupId(group as u16), Some(weight), |id| above[usize::from(id.0)]);
                tree.push(Dull { above: group, weight: weight.into(), demand: 0.0, part: 0.0 });
                tenants.push((node, tree.len() - 1));
            }
            places.clear_demands();
            let mut asked = 0.0;
            for (node, at) in &tenants {
                let demand = random(seed, 1000) as f64 / 10_f64.powi(random(seed, 5) as i32);
                places.demand(*node, demand);
                tree[*at].demand += demand;
                asked += demand;
            }
            places.add_up();
            let whole = asked * random(seed, 12) as f64 / 10.0;
            places.divide(whole);
            divide(whole, &mut tree);
            let near = |one: f64, other: f64| (one - other).abs() <= 1e-9 * whole.max(1e-3);
            for (node, at) in &tenants {
                assert!(near(places.part(*node), tree[*at].part), "{} and not {}", places.part(*node), tree[*at].part);
            }
            let top = places.nodes.iter().filter(|node| node.above == ROOT).map(|node| node.part).sum::<f64>();
            assert!(near(top, whole.min(asked)), "{top} of {whole}, and {asked} was asked for");
        }
    }

    /// places.2: whoever comes first, even if each round finds one more whose demand bounds it.
    #[test]
    fn nothing_is_lost_where_the_demands_are_found_one_by_one() {
        let mut places = Places::new();
        places.reserve(1, 40);
        places.clear();
        let mut demands = vec![];
        let (mut left, mut before) = (1.0, 0.0);
        for at in 0..40 {
            let level = left / f64::from(40 - at);
            // More than the level was before, and hardly less than it is now.
            let demand = if at == 0 { level / 2.0 } else { before + (level - before) / 2.0 };
            (left, before) = (left - demand, level);
            demands.push(demand * if at == 39 { 10.0 } else { 1.0 });
        }
        let nodes: Vec<u32> = demands.iter().map(|_| places.add(GroupId::ROOT, Some(10), |_| unreachable!())).collect();
        places.clear_demands();
        nodes.iter().zip(&demands).for_each(|(node, demand)| places.demand(*node, *demand));
        places.add_up();
        places.divide(1.0);
        let parts: Vec<f64> = nodes.iter().map(|node| places.part(*node)).collect();
        assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{parts:?}");
        for (part, demand) in parts.iter().zip(&demands) {
            assert!(*part >= demand.min(1.0 / 40.0) - 1e-12, "{part} of {demand}: less than an equal part");
        }
    }
}
