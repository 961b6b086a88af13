//! Sides: what a worker has of each disk, by the disks' numbers.
//!
//! Of 10,000 disks a worker's clients may use three. It has a side of those three only (disk.4), and what it does for all of them, it does
//! for three.

use std::ops::{Index, IndexMut};

use super::Side;

/// A worker's sides of disks.
#[derive(Default)]
pub(super) struct Sides {
    by_number: Vec<Option<Box<Side>>>,
    /// The numbers of existing sides, in no order.
    there: Vec<usize>,
}

impl Sides {
    /// Whether the worker has a side of a disk.
    #[inline]
    pub(super) fn has(&self, number: usize) -> bool {
        self.by_number.get(number).is_some_and(Option::is_some)
    }

    pub(super) fn insert(&mut self, number: usize, side: Side) {
        assert!(!self.has(number), "a worker has one side of a disk");
        if self.by_number.len() <= number {
            self.by_number.resize_with(number + 1, || None);
        }
        self.by_number[number] = Some(Box::new(side));
        self.there.push(number);
    }

    pub(super) fn remove(&mut self, number: usize) -> Box<Side> {
        self.there.retain(|there| *there != number);
        self.by_number[number].take().expect("a side that goes was there")
    }

    /// How many there are.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.there.len()
    }

    /// The number of the disk of one of them.
    #[inline]
    pub(super) fn number(&self, at: usize) -> usize {
        self.there[at]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Side> {
        self.there.iter().map(|number| &self[*number])
    }
}

impl Index<usize> for Sides {
    type Output = Side;
    #[inline]
    fn index(&self, number: usize) -> &Side {
        self.by_number[number].as_deref().expect("a worker has a side of a disk that its clients use")
    }
}

impl IndexMut<usize> for Sides {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut Side {
        self.by_number[number].as_deref_mut().expect("a worker has a side of a disk that its clients use")
    }
}
