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
