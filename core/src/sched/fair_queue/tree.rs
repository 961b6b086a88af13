//! Entities in order of their finish tags, with the least start tag of every subtree.
//!
//! least.1  Ordered by finish tag; an entity that comes later goes after its equals.
//! least.2  Every node knows the least start tag at and below it, so the eligible entity with the least finish tag (wfq.9) is
//!     found on one way down.
//! least.3  A node is a row of the entity table, in at most one tree; nothing is allocated.
//! least.4  An entity that is last in order is put there without a search.
//! least.5  Up to [`SHORT`] entities are a list, with their neighbours in `child`: most groups have no more that wait, and there a step
//!     along a list is cheaper than balance. Beyond that it is a tree, until an eighth of that is left.
//!
//! The balance of the tree is in `red_black.rs`. A way down reads one cache line of each entity, so a level costs one miss.

use super::entity::{Entities, Entity};
use super::tags::Tag;
use crate::red_black::{self, LEFT, Nodes as _, RIGHT};

pub(super) use crate::red_black::{Colour, NIL};
/// The most entities in a list (least.5): a search of half of them takes as many instructions as one in a tree.
const SHORT: u32 = 32;
/// The remains of a tree that becomes a list again. Chosen: far below [`SHORT`], so that the two forms do not alternate.
const FEW: usize = SHORT as usize / 8;

/// An ordered set of slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    /// [`NIL`] of a list.
    root: u32,
    /// The slot with the least finish tag, which is looked at far more often than any other.
    pub(super) first: u32,
    /// And that with the greatest: among equals the one that was served comes after all others (least.4).
    pub(super) last: u32,
    /// How many there are; of a tree, [`SHORT`] more.
    count: u32,
}

impl red_black::Nodes for Entities {
    #[inline]
    fn links(&self, slot: u32) -> (&[u32; 2], u32, Colour) {
        let Entity { child, above, colour, .. } = self.at(slot);
        (child, *above, *colour)
    }

    #[inline]
    fn links_mut(&mut self, slot: u32) -> (&mut [u32; 2], &mut u32, &mut Colour) {
        let Entity { child, above, colour, .. } = self.at_mut(slot);
        (child, above, colour)
    }

    /// least.2
    #[inline]
    fn rotated(&mut self, top: u32, riser: u32) {
        self.at_mut(riser).least = self.at(top).least;
        self.at_mut(top).least = self.computed(top);
    }

    /// least.2. Of the heir the old value is of another place; above it, only as far as values change.
    #[inline]
    fn lost(&mut self, mut at: u32, heir: u32) {
        let mut may_end = heir == NIL;
        while at != NIL {
            let least = self.computed(at);
            let node = self.at_mut(at);
            if may_end && node.least == least {
                return;
            }
            may_end |= at == heir;
            node.least = least;
            at = node.above;
        }
    }
}

impl Entities {
    #[inline]
    fn least_of(&self, slot: u32) -> Tag {
        if slot == NIL { Tag::MAX } else { self.at(slot).least }
    }

    /// The right `least` of `slot`, if those of its children are right (least.2).
    #[inline]
    fn computed(&self, slot: u32) -> Tag {
        let node = self.at(slot);
        node.start.min(self.least_of(node.child[LEFT])).min(self.least_of(node.child[RIGHT]))
    }

    /// A node with the start tag `start` comes below `at` (least.2).
    #[inline]
    fn lower_least(&mut self, mut at: u32, start: Tag) {
        while at != NIL && self.at(at).least > start {
            let node = self.at_mut(at);
            node.least = start;
            at = node.above;
        }
    }

    /// The slot after (on the right of) or before another.
    #[inline]
    fn neighbour(&self, slot: u32, side: usize) -> u32 {
        let Entity { child, colour, .. } = *self.at(slot);
        if colour == Colour::Listed { child[side] } else { self.beside(slot, side) }
    }
}

impl Tree {
    pub(super) const EMPTY: Self = Self { root: NIL, first: NIL, last: NIL, count: 0 };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first == NIL
    }

    /// The least start tag; [`Tag::MAX`] if there is no slot.
    #[inline]
    pub(super) fn least(&self, nodes: &Entities) -> Tag {
        if self.root != NIL {
            return nodes.at(self.root).least;
        }
        let (mut least, mut at) = (Tag::MAX, self.first);
        while at != NIL {
            let node = nodes.at(at);
            least = least.min(node.start);
            at = node.child[RIGHT];
        }
        least
    }

    /// The first slot whose start tag is `time` or less, or [`NIL`] (least.2).
    #[inline(always)]
    pub(super) fn eligible(&self, nodes: &Entities, time: Tag) -> u32 {
        // Most often the first of all is eligible.
        if self.first == NIL || nodes.at(self.first).start <= time { self.first } else { self.search(nodes, time) }
    }

    #[inline(never)]
    fn search(&self, nodes: &Entities, time: Tag) -> u32 {
        if self.root == NIL {
            let mut at = nodes.at(self.first).child[RIGHT];
            while at != NIL && nodes.at(at).start > time {
                at = nodes.at(at).child[RIGHT];
            }
            return at;
        }
        if nodes.at(self.root).least > time {
            return NIL;
        }
        let mut at = self.root;
        loop {
            let node = nodes.at(at);
            if nodes.least_of(node.child[LEFT]) <= time {
                at = node.child[LEFT];
            } else if node.start <= time {
                return at;
            } else {
                at = node.child[RIGHT];
            }
        }
    }

    /// Whether `slot`, which is in the tree, would be where it is with another finish tag too, coming anew (least.1).
    pub(super) fn keeps_place(&self, nodes: &Entities, slot: u32, finish: Tag) -> bool {
        let (before, after) = (nodes.neighbour(slot, LEFT), nodes.neighbour(slot, RIGHT));
        (before == NIL || nodes.at(before).finish <= finish) && (after == NIL || finish < nodes.at(after).finish)
    }

    /// Takes `slot` in by the tags that its node has.
    #[inline(always)]
    pub(super) fn insert(&mut self, nodes: &mut Entities, slot: u32) {
        assert!(nodes.at(slot).colour == Colour::Outside, "entity {slot} is in a tree already"); // least.3
        if self.count >= SHORT {
            return self.insert_below(nodes, slot);
        }
        self.count += 1;
        let (before, after) = self.gap_for(nodes, nodes.at(slot).finish);
        let node = nodes.at_mut(slot);
        (node.child, node.colour) = ([before, after], Colour::Listed);
        self.link(nodes, before, slot);
        self.link_back(nodes, slot, after);
    }

    /// In a list: between which two a slot with such a finish tag belongs (least.1).
    #[inline(always)]
    fn gap_for(&self, nodes: &Entities, finish: Tag) -> (u32, u32) {
        let (mut before, mut after) = (self.last, NIL);
        while before != NIL {
            let node = nodes.at(before);
            if node.finish <= finish {
                break;
            }
            (before, after) = (node.child[LEFT], before);
        }
        (before, after)
    }

    /// In a list: after `before`, or first if that is none, comes `slot`.
    #[inline]
    fn link(&mut self, nodes: &mut Entities, before: u32, slot: u32) {
        if before == NIL { self.first = slot } else { nodes.at_mut(before).child[RIGHT] = slot }
    }

    /// In a list: before `after`, or last if that is none, comes `slot`.
    #[inline]
    fn link_back(&mut self, nodes: &mut Entities, slot: u32, after: u32) {
        if after == NIL { self.last = slot } else { nodes.at_mut(after).child[LEFT] = slot }
    }

    /// Makes a tree of the list (least.5).
    #[cold]
    fn plant(&mut self, nodes: &mut Entities) {
        let mut at = core::mem::replace(self, Self::EMPTY).first;
        while at != NIL {
            let next = nodes.at(at).child[RIGHT];
            self.insert_below(nodes, at);
            at = next;
        }
        self.count += SHORT;
    }

    /// Makes a list of the tree, in which few are left (least.5).
    #[cold]
    fn uproot(&mut self, nodes: &mut Entities) {
        let (mut slots, mut at) = ([NIL; FEW], self.first);
        for slot in &mut slots {
            *slot = at;
            at = nodes.neighbour(at, RIGHT);
        }
        *self = Self::EMPTY;
        for slot in slots {
            nodes.at_mut(slot).colour = Colour::Outside;
            self.insert(nodes, slot);
        }
    }

    #[inline(never)]
    fn insert_below(&mut self, nodes: &mut Entities, slot: u32) {
        if self.root == NIL && self.count > 0 {
            self.plant(nodes);
        }
        self.count += 1;
        let Entity { finish, start, .. } = *nodes.at(slot);
        if self.root == NIL {
            let node = nodes.at_mut(slot);
            (node.least, node.child, node.above, node.colour) = (start, [NIL; 2], NIL, Colour::Black);
            (self.root, self.first, self.last) = (slot, slot, slot);
            return;
        }
        let (parent, side) = if nodes.at(self.last).finish <= finish {
            nodes.lower_least(self.last, start);
            (core::mem::replace(&mut self.last, slot), RIGHT) // least.4, least.1
        } else {
            self.place_for(nodes, slot)
        };
        nodes.at_mut(slot).least = start;
        red_black::put_below(&mut self.root, nodes, slot, parent, side);
    }

    /// Where `slot`, which is not the last, belongs: below which, and on which side.
    fn place_for(&mut self, nodes: &mut Entities, slot: u32) -> (u32, usize) {
        let Entity { finish, start, .. } = *nodes.at(slot);
        let (mut parent, mut side, mut at) = (NIL, LEFT, self.root);
        let mut is_first = true;
        while at != NIL {
            let node = nodes.at_mut(at);
            node.least = node.least.min(start);
            (parent, side) = (at, usize::from(node.finish <= finish)); // least.1
            is_first &= side == LEFT;
            at = node.child[side];
        }
        if is_first {
            self.first = slot;
        }
        (parent, side)
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, nodes: &mut Entities, slot: u32) {
        let node = nodes.at_mut(slot);
        if node.colour != Colour::Listed {
            return self.remove_from_tree(nodes, slot);
        }
        node.colour = Colour::Outside;
        let [before, after] = node.child;
        self.count -= 1;
        self.link(nodes, before, after);
        self.link_back(nodes, before, after);
    }

    #[inline(never)]
    fn remove_from_tree(&mut self, nodes: &mut Entities, slot: u32) {
        assert!(nodes.at(slot).colour != Colour::Outside, "entity {slot} is in no tree");
        if self.first == slot {
            self.first = nodes.neighbour(slot, RIGHT);
        } else if self.last == slot {
            self.last = nodes.neighbour(slot, LEFT);
        }
        red_black::take_out(&mut self.root, nodes, slot);
        self.count -= 1;
        if self.count == SHORT + FEW as u32 {
            self.uproot(nodes);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::{GroupId, PriorityClass};

    /// Checks the whole tree below `at` and returns black nodes and slots in order.
    fn check(nodes: &Entities, at: u32, parent: u32, order: &mut Vec<u32>) -> u32 {
        if at == NIL {
            return 0;
        }
        let node = nodes.at(at);
        assert_eq!(node.above, parent, "the parent of {at}");
        assert!(!(nodes.is_red(at) && nodes.is_red(parent)), "{at} and its parent {parent} are red");
        let left = check(nodes, node.child[LEFT], at, order);
        order.push(at);
        let right = check(nodes, node.child[RIGHT], at, order);
        assert_eq!(node.least, nodes.computed(at), "the least start below {at}");
        assert_eq!(left, right, "black nodes below {at}");
        left + u32::from(node.colour == Colour::Black)
    }

    /// Checks what is kept, list or tree, and returns the slots in order.
    fn order(tree: &Tree, nodes: &Entities) -> Vec<u32> {
        let mut order = Vec::new();
        if tree.root != NIL {
            check(nodes, tree.root, NIL, &mut order);
        } else if tree.first != NIL {
            let (mut before, mut at) = (NIL, tree.first);
            while at != NIL {
                assert_eq!((nodes.at(at).child[LEFT], nodes.at(at).colour), (before, Colour::Listed));
                order.push(at);
                (before, at) = (at, nodes.at(at).child[RIGHT]);
            }
        }
        assert_eq!(order.len() as u32, tree.count - if tree.root == NIL { 0 } else { SHORT });
        order
    }

    /// least.1, least.2, least.5: random insertions and removals against a list that is searched end to end.
    #[test]
    fn the_tree_answers_as_a_sorted_list_does() {
        let mut seeds = fairlift_lab::repeat::seeds(1..2);
        let mut seed = seeds.next().unwrap();
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut nodes =
            Entities((0..64).map(|_| Entity::new(0, GroupId::ROOT, PriorityClass::BestEffort, 1, None)).collect());
        let (mut tree, mut list, mut turns) = (Tree::EMPTY, Vec::<u32>::new(), 0);
        for step in 0..20_000_u32 {
            let slot = random(64) as u32;
            let crowd = [3, 1, 0, 2][step as usize / 1_000 % 4];
            let was_tree = tree.root != NIL;
            if let Some(at) = list.iter().position(|&s| s == slot) {
                if random(4) >= crowd {
                    list.remove(at);
                    tree.remove(&mut nodes, slot);
                }
            } else if random(4) < crowd {
                let start = Tag::from(random(50));
                (nodes.at_mut(slot).start, nodes.at_mut(slot).finish) = (start, start + Tag::from(random(20)));
                let at = list.partition_point(|&s| nodes.at(s).finish <= nodes.at(slot).finish);
                list.insert(at, slot);
                tree.insert(&mut nodes, slot);
            }
            assert_eq!(order(&tree, &nodes), list);
            turns += u32::from(was_tree != (tree.root != NIL));
            if let Some(at) = (!list.is_empty()).then(|| random(list.len() as u64) as usize) {
                let beside = [LEFT, RIGHT].map(|side| nodes.neighbour(list[at], side));
                assert_eq!(beside, [at.wrapping_sub(1), at + 1].map(|at| list.get(at).copied().unwrap_or(NIL)));
            }
            assert_eq!(tree.first, list.first().copied().unwrap_or(NIL));
            assert_eq!(tree.last, list.last().copied().unwrap_or(NIL));
            assert_eq!(tree.least(&nodes), list.iter().map(|&s| nodes.at(s).start).min().unwrap_or(Tag::MAX));
            let time = Tag::from(random(60));
            let expected = list.iter().copied().find(|&s| nodes.at(s).start <= time).unwrap_or(NIL);
            assert_eq!(tree.eligible(&nodes, time), expected);
        }
        assert!(turns >= 8, "a list became a tree, or a tree a list, {turns} times");
    }
}
