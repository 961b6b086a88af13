//! An ordered tree without allocation: its nodes are slots of a table that several trees share.
//!
//! tree.1  A node is named by a slot number of the caller's choosing, so what the caller knows of a request and the
//!     request's place in the tree share one number, and removal starts at the node instead of searching for it.
//! tree.2  A slot is in at most one of the trees that share a [`Nodes`].
//! tree.3  Equal keys keep the order in which they came: a newcomer goes after its equals.
//! tree.4  Nothing is allocated, moved or freed after the table is made, unless it is told to grow.
//!
//! A red-black tree: the balance is in `red_black.rs`.

use alloc::vec::Vec;

use crate::red_black::{self, Colour, LEFT, NIL, Nodes as _, RIGHT};

/// The nodes of one or more [`Tree`]s, by slot.
#[derive(Default, Debug)]
pub struct Nodes(Vec<Node>);

/// An ordered set of slots; see the [module](self) for its rules.
///
/// Every method that takes a [`Nodes`] must be given the same one.
#[derive(Debug)]
pub struct Tree {
    root: u32,
}

/// 24 bytes, the key's alignment included: a byte of colour costs nothing, and packing it into a link would.
#[derive(Clone, Copy, Debug)]
struct Node {
    key: u64,
    child: [u32; 2],
    parent: u32,
    colour: Colour,
}

impl red_black::Nodes for Nodes {
    #[inline]
    fn links(&self, slot: u32) -> (&[u32; 2], u32, Colour) {
        let Node { child, parent, colour, .. } = self.at(slot);
        (child, *parent, *colour)
    }

    #[inline]
    fn links_mut(&mut self, slot: u32) -> (&mut [u32; 2], &mut u32, &mut Colour) {
        let Node { child, parent, colour, .. } = self.at_mut(slot);
        (child, parent, colour)
    }
}

impl Nodes {
    /// Slots 0 to `capacity - 1`, in no tree.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let mut nodes = Self::default();
        nodes.grow_to(capacity);
        nodes
    }

    /// Adds slots, in no tree, so that there are `capacity`; what is there stays.
    pub fn grow_to(&mut self, capacity: usize) {
        assert!(u32::try_from(capacity).is_ok_and(|c| c < NIL), "a slot is a u32: {capacity} do not fit");
        let outside = Node { key: 0, child: [NIL; 2], parent: NIL, colour: Colour::Outside };
        self.0.resize(capacity.max(self.0.len()), outside);
    }

    /// Whether `slot` is in a tree.
    #[must_use]
    pub fn contains(&self, slot: u32) -> bool {
        self.at(slot).colour != Colour::Outside
    }

    /// The key that `slot` was last inserted with.
    #[must_use]
    pub fn key(&self, slot: u32) -> u64 {
        self.at(slot).key
    }

    /// The slot after `slot` in its tree.
    #[must_use]
    pub fn next(&self, slot: u32) -> Option<u32> {
        debug_assert!(self.contains(slot), "slot {slot} is in no tree");
        some(self.beside(slot, RIGHT))
    }

    /// The slot before `slot` in its tree.
    #[must_use]
    pub fn prev(&self, slot: u32) -> Option<u32> {
        debug_assert!(self.contains(slot), "slot {slot} is in no tree");
        some(self.beside(slot, LEFT))
    }

    fn at(&self, slot: u32) -> &Node {
        &self.0[slot as usize]
    }

    fn at_mut(&mut self, slot: u32) -> &mut Node {
        &mut self.0[slot as usize]
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// A tree of no slots.
    #[must_use]
    pub const fn new() -> Self {
        Self { root: NIL }
    }

    /// The slot with the lowest key.
    #[must_use]
    pub fn first(&self, nodes: &Nodes) -> Option<u32> {
        some(self.root).map(|root| nodes.outermost(root, LEFT))
    }

    /// The slot with the highest key.
    #[must_use]
    pub fn last(&self, nodes: &Nodes) -> Option<u32> {
        some(self.root).map(|root| nodes.outermost(root, RIGHT))
    }

    /// The first slot whose key is `key` or higher.
    #[must_use]
    pub fn first_at_or_after(&self, nodes: &Nodes, key: u64) -> Option<u32> {
        self.around(nodes, key).1
    }

    /// The last slot whose key is lower than `key`, and the first whose key is not: both neighbours in one way down.
    #[must_use]
    pub fn around(&self, nodes: &Nodes, key: u64) -> (Option<u32>, Option<u32>) {
        // By side gone down on: going right, the node itself is the best known `before`; going left, `after`.
        let mut turned = [NIL; 2];
        let mut at = self.root;
        while at != NIL {
            let node = nodes.at(at);
            let side = usize::from(node.key < key);
            turned[side] = at;
            at = node.child[side];
        }
        (some(turned[RIGHT]), some(turned[LEFT]))
    }

    /// Takes `slot` in, after all slots with the same key (tree.3).
    ///
    /// # Panics
    /// The slot is in a tree already, or beyond the capacity.
    #[inline]
    pub fn insert(&mut self, nodes: &mut Nodes, slot: u32, key: u64) {
        if self.root != NIL {
            return self.insert_below(nodes, slot, key);
        }
        assert!(!nodes.contains(slot), "slot {slot} is in a tree already"); // tree.2
        *nodes.at_mut(slot) = Node { key, child: [NIL; 2], parent: NIL, colour: Colour::Black };
        self.root = slot;
    }

    #[inline(never)]
    fn insert_below(&mut self, nodes: &mut Nodes, slot: u32, key: u64) {
        assert!(!nodes.contains(slot), "slot {slot} is in a tree already"); // tree.2
        let (mut parent, mut side, mut at) = (NIL, LEFT, self.root);
        while at != NIL {
            let node = nodes.at(at);
            (parent, side) = (at, usize::from(node.key <= key)); // tree.3
            at = node.child[side];
        }
        nodes.at_mut(slot).key = key;
        red_black::put_below(&mut self.root, nodes, slot, parent, side);
    }

    /// Takes `slot` out.
    ///
    /// # Panics
    /// The slot is in no tree, or beyond the capacity.
    #[inline]
    pub fn remove(&mut self, nodes: &mut Nodes, slot: u32) {
        let node = nodes.at_mut(slot);
        if self.root == slot && node.child == [NIL; 2] {
            node.colour = Colour::Outside;
            self.root = NIL;
        } else {
            self.remove_from_others(nodes, slot);
        }
    }

    #[inline(never)]
    fn remove_from_others(&mut self, nodes: &mut Nodes, slot: u32) {
        assert!(nodes.contains(slot), "slot {slot} is in no tree");
        red_black::take_out(&mut self.root, nodes, slot);
    }
}

fn some(slot: u32) -> Option<u32> {
    (slot != NIL).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of the given keys; slots count from 0.
    fn tree(keys: &[u64]) -> (Tree, Nodes) {
        let (mut tree, mut nodes) = (Tree::new(), Nodes::new(keys.len()));
        for (slot, &key) in (0..).zip(keys) {
            tree.insert(&mut nodes, slot, key);
            check(&tree, &nodes);
        }
        (tree, nodes)
    }

    fn in_order(tree: &Tree, nodes: &Nodes) -> Vec<u32> {
        core::iter::successors(tree.first(nodes), |&slot| nodes.next(slot)).collect()
    }

    /// Parents and children agree, no red has a red child, and all ways down meet as many blacks.
    fn check(tree: &Tree, nodes: &Nodes) {
        fn blacks(nodes: &Nodes, at: u32, parent: u32) -> u32 {
            if at == NIL {
                return 0;
            }
            let node = nodes.at(at);
            assert_eq!(node.parent, parent, "the parent of {at}");
            assert!(!(nodes.is_red(at) && nodes.is_red(parent)), "{at} and its parent {parent} are red");
            let [left, right] = node.child.map(|child| blacks(nodes, child, at));
            assert_eq!(left, right, "black nodes below {at}");
            left + u32::from(node.colour == Colour::Black)
        }
        assert!(!nodes.is_red(tree.root), "the root is red");
        blacks(nodes, tree.root, NIL);
    }

    /// tree.3.
    #[test]
    fn equals_keep_the_order_in_which_they_came() {
        let (tree, nodes) = tree(&[7, 7, 3, 7, 9, 7]);
        assert_eq!(in_order(&tree, &nodes), [2, 0, 1, 3, 5, 4]);
        assert_eq!(tree.first_at_or_after(&nodes, 7), Some(0), "the first of the equals");
        assert_eq!(tree.around(&nodes, 7), (Some(2), Some(0)), "what is before the equals, and their first");
    }

    #[test]
    fn an_empty_tree_has_no_first_last_or_neighbour() {
        let (tree, nodes) = tree(&[]);
        assert_eq!((tree.first(&nodes), tree.last(&nodes), tree.around(&nodes, 5)), (None, None, (None, None)));
    }

    /// Up, down, and from both ends: the insertions that unbalance a tree fastest; then the same for removals.
    #[test]
    fn the_tree_stays_balanced_whatever_the_order() {
        let n = 64;
        let up: Vec<u64> = (0..n).collect();
        let down: Vec<u64> = up.iter().rev().copied().collect();
        let zigzag: Vec<u64> = (0..n).map(|i| if i % 2 == 0 { i } else { 2 * n - i }).collect();
        // 37 is coprime to 64, so this visits every key once.
        let hop: Vec<u64> = (0..n).map(|i| i * 37 % n).collect();
        for keys in [&up, &down, &zigzag, &hop] {
            for out in [&up, &down, &hop] {
                let (mut tree, mut nodes) = tree(keys);
                for &slot in out {
                    let slot = u32::try_from(slot).unwrap();
                    tree.remove(&mut nodes, slot);
                    assert!(!nodes.contains(slot));
                    check(&tree, &nodes);
                }
                assert_eq!(tree.first(&nodes), None);
            }
        }
    }

    /// tree.2.
    #[test]
    #[should_panic(expected = "slot 0 is in a tree already")]
    fn a_slot_is_in_one_tree_at_most() {
        let (_one, mut nodes) = tree(&[1]);
        Tree::new().insert(&mut nodes, 0, 1);
    }

    #[test]
    #[should_panic(expected = "slot 0 is in no tree")]
    fn what_is_not_there_cannot_be_removed() {
        let (mut tree, mut nodes) = tree(&[1]);
        tree.remove(&mut nodes, 0);
        tree.remove(&mut nodes, 0);
    }

    /// tree.4.
    #[test]
    fn a_table_that_grows_keeps_what_is_in_its_trees() {
        let (mut tree, mut nodes) = tree(&[5, 3]);
        nodes.grow_to(4);
        nodes.grow_to(1);
        tree.insert(&mut nodes, 3, 4);
        check(&tree, &nodes);
        assert_eq!(in_order(&tree, &nodes), [1, 3, 0]);
        assert!(!nodes.contains(2));
    }

    /// tree.1.
    #[test]
    fn trees_share_a_table_without_meeting() {
        let (mut nodes, mut even, mut odd) = (Nodes::new(20), Tree::new(), Tree::new());
        for slot in 0..20 {
            let tree = if slot % 2 == 0 { &mut even } else { &mut odd };
            tree.insert(&mut nodes, slot, u64::from(20 - slot));
        }
        assert_eq!(in_order(&even, &nodes), [18, 16, 14, 12, 10, 8, 6, 4, 2, 0]);
        assert_eq!(in_order(&odd, &nodes), [19, 17, 15, 13, 11, 9, 7, 5, 3, 1]);
        assert_eq!((odd.last(&nodes), nodes.prev(1)), (Some(1), Some(3)));
    }
}
