//! Entitlement: what part of the disk's time each tenant is due.
//!
//! due.1  A tenant is due its weight's part of its group's due, but no more than it can use; the rest goes to its siblings by weight. That
//!                is weighted max-min over the tree of groups. Example: tenants of weight 100, 200 and 300 are due 30, 60 and 10 % if the
//!                last can use a tenth of the disk.
//! due.2  A node with a floor is due no less than that, as far as it can use it; its siblings divide the rest. Floors that add up to more
//!                than there is are due in proportion. The floor of a group is at least what the floors below it add up to.

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
    /// The most that it can use, the least that it is due, and its part, in parts of the disk.
    demand: f64,
    floor: f64,
    part: f64,
    is_full: bool,
}

/// The weight of the streams of a group that has groups below it, beside those: that of one stream of level 4 (fair.2).
pub(crate) const OWN: u32 = 40;

const NIL: u32 = u32::MAX;
const ROOT: u32 = 0;
/// Rounds of a division among siblings. Each but the last finds those that their demand bounds; four found all in random trees. The
/// rest of a round is divided by weight all the same.
const ROUNDS: u32 = 8;
/// Steps in which the level is found to which siblings with floors are filled (due.2). Chosen: each halves the error.
const HALVES: u32 = 60;

/// The tenants that share a disk at present, below their groups, and the part that each is due.
#[derive(Default, Debug)]
pub struct Entitlement {
    nodes: Vec<Node>,
    /// By group: its node, if it has one by now.
    of_group: Vec<u32>,
}

impl Entitlement {
    /// An empty tree; [`clear`](Self::clear) begins.
    #[must_use]
    pub const fn new() -> Self {
        Self { nodes: Vec::new(), of_group: Vec::new() }
    }

    /// Reserves room for `groups` and `tenants`: none is allocated later.
    pub fn reserve(&mut self, groups: usize, tenants: usize) {
        self.of_group.resize(self.of_group.len().max(groups), NIL);
        self.nodes.reserve((groups + tenants + 1).saturating_sub(self.nodes.len()));
    }

    /// Begins anew, with nobody there.
    pub fn clear(&mut self) {
        self.of_group.fill(NIL);
        self.nodes.clear();
        self.nodes.push(Node::new(NIL, 0.0));
        if let Some(root) = self.of_group.first_mut() {
            *root = ROOT;
        }
    }

    /// A tenant is there: in a group, whose ancestors `above` knows with their weights; `weight` is that of a stream in the
    /// root, and `None` if the tenant is the group itself. Answers which node it is.
    pub fn add(&mut self, group: GroupId, weight: Option<u32>, above: impl Fn(GroupId) -> (GroupId, u32)) -> u32 {
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

    /// Sets the most that a tenant can use.
    pub fn demand(&mut self, node: u32, demand: f64) {
        self.nodes[node as usize].demand = demand;
    }

    /// Sets the least that a node is due, as far as it can use it (due.2); until [`Entitlement::clear`].
    pub fn floor(&mut self, node: u32, floor: f64) {
        self.nodes[node as usize].floor = floor;
    }

    /// The node of a group, which [`add`](Entitlement::add) has made.
    #[must_use]
    pub fn of_group(&self, group: GroupId) -> Option<u32> {
        self.of_group.get(usize::from(group.0)).copied().filter(|node| *node != NIL)
    }

    /// Nobody can use anything, until [`Entitlement::demand`] says so.
    pub(crate) fn clear_demands(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.demand = 0.0);
    }

    /// The part that a node is due.
    #[must_use]
    pub fn part(&self, node: u32) -> f64 {
        self.nodes[node as usize].part
    }

    /// The floor of a node, with those below it, as far as it can use that.
    #[must_use]
    pub fn least(&self, node: u32) -> f64 {
        self.nodes[node as usize].floor
    }

    /// The sum of all parts.
    pub(crate) fn whole(&self) -> f64 {
        self.nodes[ROOT as usize].part.min(self.nodes[ROOT as usize].demand)
    }

    /// Adds up the demands of children, once those of all tenants are known.
    pub fn add_up(&mut self) {
        // A node comes after the one above it.
        for at in (1..self.nodes.len()).rev() {
            let Node { above, demand, .. } = self.nodes[at];
            self.nodes[above as usize].demand += demand;
        }
        self.add_up_floors();
    }

    /// due.2: a group is due what those below it are.
    fn add_up_floors(&mut self) {
        if self.nodes.iter().all(|node| node.floor == 0.0) {
            return;
        }
        for at in (0..self.nodes.len()).rev() {
            let mut below = 0.0;
            self.each_sibling(self.nodes[at].first, |child| below += child.floor);
            let node = &mut self.nodes[at];
            node.floor = node.floor.max(below).min(node.demand);
        }
    }

    /// Divides `whole` (due.1).
    pub fn divide(&mut self, whole: f64) {
        self.nodes[ROOT as usize].part = whole;
        for at in 0..self.nodes.len() {
            self.divide_node(at);
        }
    }

    fn divide_node(&mut self, at: usize) {
        let Node { first, part, .. } = self.nodes[at];
        let (mut left, mut weights, mut floors) = (part, 0.0, 0.0);
        self.each_sibling(first, |node| {
            node.is_full = false;
            weights += node.weight;
            floors += node.floor;
        });
        if floors > 0.0 {
            return self.fill(first, part, floors);
        }
        for _ in 0..ROUNDS {
            let mut changed = false;
            self.each_sibling(first, |node| {
                if !node.is_full && node.demand * weights <= left * node.weight {
                    (node.part, node.is_full, changed) = (node.demand, true, true);
                    left -= node.demand;
                    weights -= node.weight;
                }
            });
            if !changed {
                break;
            }
        }
        self.each_sibling(first, |node| {
            if !node.is_full {
                node.part = (left * node.weight / weights).max(0.0);
            }
        });
    }

    /// A node and its siblings after it; none if there is no node.
    fn each_sibling(&mut self, first: u32, mut act: impl FnMut(&mut Node)) {
        let mut child = first;
        while child != NIL {
            let node = &mut self.nodes[child as usize];
            child = node.next;
            act(node);
        }
    }

    /// due.2: fills siblings, from `first` on, to the level at which they have all of `whole`.
    fn fill(&mut self, first: u32, whole: f64, floors: f64) {
        let at = |node: &Node, level: f64| (level * node.weight).max(node.floor).min(node.demand);
        // A weight is at least 1: at this level all that is not full has more than there is.
        let (mut low, mut high) = (0.0, whole.max(0.0));
        for _ in 0..HALVES {
            let (middle, mut sum) = ((low + high) / 2.0, 0.0);
            self.each_sibling(first, |node| sum += at(node, middle));
            if sum <= whole { low = middle } else { high = middle }
        }
        let scale = if floors > whole { whole.max(0.0) / floors } else { 1.0 };
        self.each_sibling(first, |node| node.part = if scale < 1.0 { node.floor * scale } else { at(node, low) });
    }
}

impl Node {
    const fn new(above: u32, weight: f64) -> Self {
        Self { above, first: NIL, next: NIL, weight, demand: 0.0, floor: 0.0, part: 0.0, is_full: false }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    /// The parts of siblings in `whole`, the dull way: by search for the level to which all are filled.
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

    /// A group, or a tenant with a demand.
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

    /// due.1: each gets its weight's part, or its demand, and the rest goes to its siblings.
    #[test]
    fn parts_are_weighted_max_min_at_every_level() {
        let mut seeds = fairlift_lab::repeat::seeds(1..2);
        let seed = &mut seeds.next().unwrap();
        let mut due = Entitlement::new();
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
            due.reserve(groups, 40);
            due.clear();
            // Some groups are tenants, and some have streams that are tenants.
            let mut tenants = vec![];
            for group in 1..groups {
                if random(seed, 2) == 0 {
                    let node = due.add(GroupId(group as u16), None, |id| above[usize::from(id.0)]);
                    tenants.push((node, group));
                }
            }
            for _ in 0..random(seed, 20) {
                let group = random(seed, groups as u64) as usize;
                let weight = 10 * (1 + random(seed, 8) as u32);
                let node = due.add(GroupId(group as u16), Some(weight), |id| above[usize::from(id.0)]);
                tree.push(Dull { above: group, weight: weight.into(), demand: 0.0, part: 0.0 });
                tenants.push((node, tree.len() - 1));
            }
            due.clear_demands();
            let mut wanted = 0.0;
            for (node, at) in &tenants {
                let demand = random(seed, 1000) as f64 / 10_f64.powi(random(seed, 5) as i32);
                due.demand(*node, demand);
                tree[*at].demand += demand;
                wanted += demand;
            }
            due.add_up();
            let whole = wanted * random(seed, 12) as f64 / 10.0;
            due.divide(whole);
            divide(whole, &mut tree);
            let near = |one: f64, other: f64| (one - other).abs() <= 1e-9 * whole.max(1e-3);
            for (node, at) in &tenants {
                assert!(near(due.part(*node), tree[*at].part), "{} and not {}", due.part(*node), tree[*at].part);
            }
            let top = due.nodes.iter().filter(|node| node.above == ROOT).map(|node| node.part).sum::<f64>();
            assert!(near(top, whole.min(wanted)), "{top} of {whole}, and {wanted} was asked for");
        }
    }

    /// due.1: in any order of tenants, even if each round finds one more that its demand bounds.
    #[test]
    fn nothing_is_lost_where_the_demands_are_found_one_by_one() {
        let mut due = Entitlement::new();
        due.reserve(1, 40);
        due.clear();
        let mut demands = vec![];
        let (mut left, mut before) = (1.0, 0.0);
        for at in 0..40 {
            let level = left / f64::from(40 - at);
            // More than the level was before, and hardly less than it is now.
            let demand = if at == 0 { level / 2.0 } else { before + (level - before) / 2.0 };
            (left, before) = (left - demand, level);
            demands.push(demand * if at == 39 { 10.0 } else { 1.0 });
        }
        let nodes: Vec<u32> = demands.iter().map(|_| due.add(GroupId::ROOT, Some(10), |_| unreachable!())).collect();
        due.clear_demands();
        nodes.iter().zip(&demands).for_each(|(node, demand)| due.demand(*node, *demand));
        due.add_up();
        due.divide(1.0);
        let parts: Vec<f64> = nodes.iter().map(|node| due.part(*node)).collect();
        assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{parts:?}");
        for (part, demand) in parts.iter().zip(&demands) {
            assert!(*part >= demand.min(1.0 / 40.0) - 1e-12, "{part} of {demand}: less than an equal part");
        }
    }
}
