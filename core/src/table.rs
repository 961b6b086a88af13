//! A table of stated size whose rows are named by number.
//!
//! As the `slab` crate, but of a size that changes only when it is told to grow, with numbers of 32 bits, as lists keep them, and with rows that
//! do not say whether they are in use: the holder of a number knows the state of its row.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// Rows named by number.
pub(crate) struct Table<T> {
    rows: Vec<T>,
    /// From `len` on: the rows that are free, the next one first. Entries before mean nothing.
    free: Vec<u32>,
    len: usize,
    capacity: usize,
}

impl<T: Copy> Table<T> {
    /// No rows yet, and room for `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { rows: Vec::with_capacity(capacity), free: Vec::with_capacity(capacity), len: 0, capacity }
    }

    /// Rows in use.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// For how many rows there is room.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes room for `capacity` rows, if there is less.
    pub(crate) fn grow_to(&mut self, capacity: usize) {
        self.capacity = self.capacity.max(capacity);
        self.rows.reserve(self.capacity - self.rows.len());
        self.free.reserve(self.capacity - self.free.len());
    }

    /// Adds a row; `make` gets its number.
    #[inline(always)]
    pub(crate) fn insert(&mut self, make: impl FnOnce(u32) -> T) -> u32 {
        let number = match self.free.get(self.len) {
            Some(number) => *number,
            None => self.next_row(),
        };
        self.len += 1;
        match self.rows.get_mut(number as usize) {
            Some(free) => *free = make(number),
            None => self.rows.push(make(number)),
        }
        number
    }

    #[cold]
    fn next_row(&mut self) -> u32 {
        let number = self.rows.len() as u32;
        assert!(self.rows.len() < self.capacity, "a table of {} rows is full", self.capacity);
        self.free.push(number);
        number
    }

    #[inline]
    pub(crate) fn remove(&mut self, number: u32) -> T {
        self.free(number);
        self.rows[number as usize]
    }

    /// As [`Table::remove`], where nobody wants to know what was in it.
    #[inline]
    pub(crate) fn free(&mut self, number: u32) {
        self.len = self.len.wrapping_sub(1);
        *self.free.get_mut(self.len).expect("more rows are removed than are in use") = number;
    }

    /// All rows that there ever were, those that are free now included.
    #[inline]
    pub(crate) fn rows_mut(&mut self) -> &mut [T] {
        &mut self.rows
    }

    /// Rows that there ever were at once: all numbers are below it.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The rows in use, with their numbers; all are looked at.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = (u32, &T)> {
        let mut is_free = alloc::vec![false; self.rows.len()];
        self.free[self.len..].iter().for_each(|number| is_free[*number as usize] = true);
        let numbered = (0..).zip(&self.rows).zip(is_free);
        numbered.filter(|(_, is_free)| !is_free).map(|(row, _)| row)
    }

    /// A row, or `None` if there never was one of that number: how lists end.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.rows.get(number as usize)
    }
}

impl<T> Index<u32> for Table<T> {
    type Output = T;
    #[inline]
    fn index(&self, number: u32) -> &T {
        &self.rows[number as usize]
    }
}

impl<T> IndexMut<u32> for Table<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.rows[number as usize]
    }
}
