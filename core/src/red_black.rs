//! Red-black balance of a binary search tree, whatever its nodes are and however they are ordered.
//!
//! No red node has a red child, and every way down from the root meets as many black nodes; so no way down is more than twice as long as
//! another. Chosen over AVL because a removal rotates at most three times, and schedulers remove as often as they insert. A node's
//! children are named by side, so that the side to go down on is an index computed from a comparison, not a branch that random
//! positions make unpredictable; and so that each case and its mirror image are one piece of code.
//!
//! Two trees use it: [`tree`](crate::tree), of requests by position, and the fair queue's, of entities by finish tag, whose nodes also
//! know the least start tag below them ([`Nodes::rotated`], [`Nodes::lost`]).

/// No node.
pub(crate) const NIL: u32 = u32::MAX;
/// The sides of a node; the other side of `s` is `1 - s`.
pub(crate) const LEFT: usize = 0;
pub(crate) const RIGHT: usize = 1;

/// The colour of a node, or where else a row is that can be one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Colour {
    Red,
    Black,
    /// In a list that is too short to be a tree (least.5).
    Listed,
    /// In no tree.
    Outside,
}

/// The nodes of one or more trees, by slot.
pub(crate) trait Nodes {
    /// The children of a node, its parent ([`NIL`] of the root), and its colour.
    fn links(&self, slot: u32) -> (&[u32; 2], u32, Colour);
    fn links_mut(&mut self, slot: u32) -> (&mut [u32; 2], &mut u32, &mut Colour);
    /// `riser` has taken the place of `top`, which is its child now: what `top` knew of all below it, `riser` has to know.
    #[inline]
    fn rotated(&mut self, _top: u32, _riser: u32) {}
    /// A node has left a place below `at`; `heir`, if there is one, is above that and came from there.
    #[inline]
    fn lost(&mut self, _at: u32, _heir: u32) {}

    /// The child of a node on a side, or [`NIL`].
    #[inline]
    fn child(&self, slot: u32, side: usize) -> u32 {
        self.links(slot).0[side]
    }

    #[inline]
    fn parent(&self, slot: u32) -> u32 {
        self.links(slot).1
    }

    /// Whether there is a node, and it is red.
    #[inline]
    fn is_red(&self, slot: u32) -> bool {
        slot != NIL && self.has_red(slot)
    }

    /// Whether a node, which is there, is red.
    #[inline]
    fn has_red(&self, slot: u32) -> bool {
        self.links(slot).2 == Colour::Red
    }

    #[inline]
    fn set_red(&mut self, slot: u32, red: bool) {
        *self.links_mut(slot).2 = if red { Colour::Red } else { Colour::Black };
    }

    #[inline]
    fn side_of(&self, slot: u32, parent: u32) -> usize {
        usize::from(self.child(parent, RIGHT) == slot)
    }

    /// The last node on the way down from `at` that keeps to `side`.
    #[inline]
    fn outermost(&self, mut at: u32, side: usize) -> u32 {
        loop {
            let below = self.child(at, side);
            if below == NIL {
                return at;
            }
            at = below;
        }
    }

    /// The node after (on the right of) or before another, or [`NIL`].
    #[inline]
    fn beside(&self, slot: u32, side: usize) -> u32 {
        let below = self.child(slot, side);
        if below != NIL {
            return self.outermost(below, 1 - side);
        }
        let (mut from, mut at) = (slot, self.parent(slot));
        while at != NIL && self.child(at, side) == from {
            (from, at) = (at, self.parent(at));
        }
        at
    }

    /// Makes `child` (or nothing) the child of `parent` on `side`.
    #[inline]
    fn adopt(&mut self, parent: u32, side: usize, child: u32) {
        self.links_mut(parent).0[side] = child;
        if child != NIL {
            *self.links_mut(child).1 = parent;
        }
    }
}

/// Makes `new` (or nothing) the child of `parent` that `old` was.
#[inline]
fn put_in_place_of(root: &mut u32, nodes: &mut impl Nodes, old: u32, parent: u32, new: u32) {
    if parent == NIL {
        *root = new;
        if new != NIL {
            *nodes.links_mut(new).1 = NIL;
        }
    } else {
        nodes.adopt(parent, nodes.side_of(old, parent), new);
    }
}

/// Moves `top` down on `side`; its child on the other side takes its place.
fn rotate(root: &mut u32, nodes: &mut impl Nodes, top: u32, side: usize) {
    let (riser, parent) = (nodes.child(top, 1 - side), nodes.parent(top));
    let between = nodes.child(riser, side);
    nodes.adopt(top, 1 - side, between);
    put_in_place_of(root, nodes, top, parent, riser);
    nodes.adopt(riser, side, top);
    nodes.rotated(top, riser);
}

/// Takes a node in, whose place below `parent` is empty.
#[inline]
pub(crate) fn put_below(root: &mut u32, nodes: &mut impl Nodes, slot: u32, parent: u32, side: usize) {
    let (children, above, colour) = nodes.links_mut(slot);
    (*children, *above, *colour) = ([NIL; 2], parent, Colour::Red);
    nodes.links_mut(parent).0[side] = slot;
    if nodes.has_red(parent) {
        came(root, nodes, slot);
    }
}

/// Mends the tree when `red`, which has come in, may have a red parent.
fn came(root: &mut u32, nodes: &mut impl Nodes, mut red: u32) {
    loop {
        let parent = nodes.parent(red);
        if parent == NIL {
            nodes.set_red(red, false);
            return;
        }
        if !nodes.has_red(parent) {
            return;
        }
        // The root is black, so a red parent has a parent.
        let top = nodes.parent(parent);
        let side = nodes.side_of(parent, top);
        let uncle = nodes.child(top, 1 - side);
        if nodes.is_red(uncle) {
            nodes.set_red(parent, false);
            nodes.set_red(uncle, false);
            nodes.set_red(top, true);
            red = top;
            continue;
        }
        let mut middle = parent;
        if nodes.child(parent, side) != red {
            rotate(root, nodes, parent, side);
            middle = red;
        }
        rotate(root, nodes, top, 1 - side);
        nodes.set_red(middle, false);
        nodes.set_red(top, true);
        return;
    }
}

#[inline]
pub(crate) fn take_out(root: &mut u32, nodes: &mut impl Nodes, slot: u32) {
    let (&[left, right], parent, colour) = nodes.links(slot);
    *nodes.links_mut(slot).2 = Colour::Outside;
    // Where a node goes missing (`gap`, `side`), what is there then, and the colour that is missing.
    let (gap, side, filler, missing);
    if left != NIL && right != NIL {
        // The next node, which has no left child, leaves its own place and takes this one over.
        let heir = nodes.outermost(right, LEFT);
        let (&[_, below], heir_parent, heir_colour) = nodes.links(heir);
        (filler, missing) = (below, heir_colour);
        if heir == right {
            (gap, side) = (heir, RIGHT);
        } else {
            (gap, side) = (heir_parent, LEFT);
            nodes.adopt(heir_parent, LEFT, below);
            nodes.adopt(heir, RIGHT, right);
        }
        nodes.adopt(heir, LEFT, left);
        put_in_place_of(root, nodes, slot, parent, heir);
        *nodes.links_mut(heir).2 = colour;
        nodes.lost(gap, heir);
    } else {
        (filler, missing) = (if left == NIL { right } else { left }, colour);
        (gap, side) = (parent, if parent == NIL { LEFT } else { nodes.side_of(slot, parent) });
        put_in_place_of(root, nodes, slot, parent, filler);
        nodes.lost(gap, NIL);
    }
    if missing != Colour::Black {
        return;
    }
    if nodes.is_red(filler) {
        nodes.set_red(filler, false);
    } else {
        lacks_black(root, nodes, gap, side);
    }
}

/// Mends the tree when ways down through `side` of `parent` meet one black node too few.
fn lacks_black(root: &mut u32, nodes: &mut impl Nodes, mut parent: u32, mut side: usize) {
    while parent != NIL {
        // The other side has a black node more than this one, so there is a sibling.
        let mut sibling = nodes.child(parent, 1 - side);
        if nodes.has_red(sibling) {
            nodes.set_red(sibling, false);
            nodes.set_red(parent, true);
            rotate(root, nodes, parent, side);
            sibling = nodes.child(parent, 1 - side);
        }
        let (far, near) = (nodes.child(sibling, 1 - side), nodes.child(sibling, side));
        let is_red = nodes.has_red(parent);
        if nodes.is_red(far) {
            nodes.set_red(far, false);
            nodes.set_red(sibling, is_red);
            nodes.set_red(parent, false);
            rotate(root, nodes, parent, side);
            return;
        }
        if nodes.is_red(near) {
            nodes.set_red(near, is_red);
            nodes.set_red(parent, false);
            rotate(root, nodes, sibling, 1 - side);
            rotate(root, nodes, parent, side);
            return;
        }
        nodes.set_red(sibling, true);
        if is_red {
            nodes.set_red(parent, false);
            return;
        }
        let above = nodes.parent(parent);
        if above != NIL {
            side = nodes.side_of(parent, above);
        }
        parent = above;
    }
}
