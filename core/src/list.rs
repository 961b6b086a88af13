//! A doubly linked list whose links are in the rows of the caller's table.
//!
//! A request waits in several orders at once (by sector, by age, by time of dispatch) and leaves all of them when it goes.
//! With the links in its own row it leaves from anywhere at once, and nothing is allocated.

/// No row: what lies beyond either end of a list.
pub(crate) const NIL: u32 = u32::MAX;

/// The rows before and after a row in its list; [`NIL`] at its ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl Links {
    /// Of a row that is in no list.
    pub(crate) const NONE: Self = Self { prev: NIL, next: NIL };
}

/// A row that can be in a [`List`]: in one at a time.
pub(crate) trait Linked {
    fn links(&mut self) -> &mut Links;
}

/// A list of rows by number. Every method that takes rows must be given the same table.
#[derive(Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NIL, tail: NIL }
    }
}

impl List {
    #[inline]
    pub(crate) fn front(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    #[inline]
    pub(crate) fn back(&self) -> Option<u32> {
        (self.tail != NIL).then_some(self.tail)
    }

    #[inline]
    pub(crate) fn push_back(&mut self, rows: &mut [impl Linked], id: u32) {
        let prev = core::mem::replace(&mut self.tail, id);
        let before = if prev == NIL { &mut self.head } else { &mut rows[prev as usize].links().next };
        *before = id;
        *rows[id as usize].links() = Links { prev, next: NIL };
    }

    pub(crate) fn push_front(&mut self, rows: &mut [impl Linked], id: u32) {
        self.insert_after(rows, NIL, id);
    }

    /// Puts `id` after `prev`, or in front if that is [`NIL`].
    pub(crate) fn insert_after(&mut self, rows: &mut [impl Linked], prev: u32, id: u32) {
        let next = if prev == NIL { self.head } else { rows[prev as usize].links().next };
        self.join(rows, prev, id);
        self.join(rows, id, next);
    }

    #[inline]
    pub(crate) fn remove(&mut self, rows: &mut [impl Linked], id: u32) {
        let links = *rows[id as usize].links();
        self.unlink(rows, links);
    }

    /// Removes a row that has these links.
    #[inline]
    pub(crate) fn unlink(&mut self, rows: &mut [impl Linked], links: Links) {
        self.join(rows, links.prev, links.next);
    }

    /// Makes `prev` and `next` neighbours; [`NIL`] stands for either end.
    #[inline]
    fn join(&mut self, rows: &mut [impl Linked], prev: u32, next: u32) {
        let after_prev = if prev == NIL { &mut self.head } else { &mut rows[prev as usize].links().next };
        *after_prev = next;
        let before_next = if next == NIL { &mut self.tail } else { &mut rows[next as usize].links().prev };
        *before_next = prev;
    }
}
