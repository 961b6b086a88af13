//! Positions: whose next request is where, so that queues can be found that read the same place.
//!
//! position.1  A queue is here while something of it waits, at the first sector of the request that it would send next, and in the
//!     tree of its group.
//! position.2  The closest queue to a sector is the nearer of the two whose requests start on either side; of two at the same
//!     sector, the one that came there first.
//! position.3  Every change and every look is counted: `position_tree_ops`.

use alloc::vec::Vec;

use crate::Sector;
use crate::tree::{Nodes, Tree};

/// The next requests of queues, by position; see the [module](self) for the rules. Queues and groups are numbers.
#[derive(Default, Debug)]
pub(super) struct Positions {
    /// By queue.
    nodes: Nodes,
    /// By queue: the group in whose tree it is, if it is in one.
    group: Vec<u16>,
    /// By group.
    trees: Vec<Tree>,
    /// How many changes and looks there were (position.3).
    pub(super) ops: u64,
}

impl Positions {
    /// Makes room for a queue.
    pub(super) fn add_queue(&mut self, queue: u32) {
        self.nodes.grow_to(queue as usize + 1);
        self.group.resize(self.group.len().max(queue as usize + 1), 0);
    }

    /// Makes room for a group.
    pub(super) fn add_group(&mut self, group: u16) {
        self.trees.resize_with(self.trees.len().max(usize::from(group) + 1), Tree::new);
    }

    /// A queue's next request starts at `head`; `None`: nothing of it waits (position.1).
    pub(super) fn set(&mut self, queue: u32, group: u16, head: Option<Sector>) {
        let was = self.nodes.contains(queue).then(|| (self.group[queue as usize], self.nodes.key(queue)));
        let is = head.map(|head| (group, head.0));
        if was == is {
            return;
        }
        self.ops += 1; // position.3
        if let Some((group, _)) = was {
            self.trees[usize::from(group)].remove(&mut self.nodes, queue);
        }
        if let Some((group, key)) = is {
            self.trees[usize::from(group)].insert(&mut self.nodes, queue, key);
            self.group[queue as usize] = group;
        }
    }

    /// The queue of a group, other than `except`, whose next request is closest to `to` (position.2); and how far it is in sectors.
    pub(super) fn closest(&mut self, group: u16, to: Sector, except: u32) -> Option<(u32, u64)> {
        self.ops += 1; // position.3
        let (mut before, mut after) = self.trees[usize::from(group)].around(&self.nodes, to.0);
        // The excluded request is passed over; it is there once.
        if before == Some(except) {
            before = self.nodes.prev(except);
        }
        if after == Some(except) {
            after = self.nodes.next(except);
        }
        let far = |queue: u32| (queue, self.nodes.key(queue).abs_diff(to.0));
        match (before.map(far), after.map(far)) {
            (Some(before), Some(after)) => Some(if before.1 < after.1 { before } else { after }),
            (one, other) => one.or(other),
        }
    }

    /// Takes all queues out; does not count, for all counting has ended.
    pub(super) fn clear(&mut self) {
        for tree in &mut self.trees {
            while let Some(queue) = tree.first(&self.nodes) {
                tree.remove(&mut self.nodes, queue);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues 0, 1, 2, … of group 1 at the given sectors.
    fn positions(heads: &[u64]) -> Positions {
        let mut positions = Positions::default();
        positions.add_group(2);
        for (queue, &head) in (0..).zip(heads) {
            positions.add_queue(queue);
            positions.set(queue, 1, Some(Sector(head)));
        }
        positions
    }

    /// position.2
    #[test]
    fn the_nearer_of_both_sides_is_closest() {
        let mut positions = positions(&[100, 200, 300]);
        for (to, expected) in [
            (0, (0, 100)),
            (149, (0, 49)),
            (150, (1, 50)), // as far: what lies ahead
            (200, (1, 0)),
            (251, (2, 49)),
            (999, (2, 699)),
        ] {
            assert_eq!(positions.closest(1, Sector(to), 9), Some(expected), "to {to}");
        }
    }

    /// position.2
    #[test]
    fn who_asks_is_not_closest_to_himself() {
        let mut positions = positions(&[100, 200, 300]);
        assert_eq!(positions.closest(1, Sector(200), 1), Some((2, 100)));
        assert_eq!(positions.closest(1, Sector(190), 1), Some((0, 90)));
        assert_eq!(positions.closest(1, Sector(101), 0), Some((1, 99)));
        assert_eq!(positions.closest(1, Sector(240), 2), Some((1, 40)));
        positions.set(2, 1, Some(Sector(500)));
        assert_eq!(positions.closest(1, Sector(201), 1), Some((0, 101)), "behind him, and behind that");
        let mut alone = self::positions(&[100]);
        assert_eq!((alone.closest(1, Sector(99), 0), alone.closest(1, Sector(101), 0)), (None, None));
    }

    /// position.1
    #[test]
    fn groups_are_apart_and_a_queue_moves_between_them() {
        let mut positions = positions(&[100, 200]);
        assert_eq!(positions.closest(2, Sector(100), 9), None);
        positions.set(1, 2, Some(Sector(200)));
        assert_eq!(positions.closest(2, Sector(100), 9), Some((1, 100)));
        assert_eq!(positions.closest(1, Sector(199), 9), Some((0, 99)));
    }

    /// position.1
    #[test]
    fn who_has_nothing_waiting_is_nowhere() {
        let mut positions = positions(&[100, 200]);
        positions.set(0, 1, None);
        assert_eq!(positions.closest(1, Sector(100), 9), Some((1, 100)));
        positions.set(1, 1, Some(Sector(50)));
        assert_eq!(positions.closest(1, Sector(100), 9), Some((1, 50)));
        positions.set(0, 1, Some(Sector(60)));
        positions.clear();
        assert_eq!(positions.closest(1, Sector(100), 9), None);
        positions.set(0, 1, Some(Sector(7)));
        assert_eq!(positions.closest(1, Sector(7), 9), Some((0, 0)), "and can be filled again");
    }

    /// position.3
    #[test]
    fn changes_and_looks_are_counted_and_what_changes_nothing_is_not() {
        let mut positions = positions(&[100]);
        assert_eq!(positions.ops, 1);
        positions.set(0, 1, Some(Sector(100)));
        assert_eq!(positions.ops, 1);
        positions.set(0, 1, Some(Sector(101)));
        positions.set(0, 1, None);
        positions.set(0, 1, None);
        positions.closest(1, Sector(0), 9);
        assert_eq!(positions.ops, 4);
    }
}
