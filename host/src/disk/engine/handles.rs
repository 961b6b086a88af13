//! DiskHandles: what a worker has of each disk, by the disks' numbers.
//!
//! Of 10,000 disks a worker's clients may use three. It has a handle of those three only (disk.4), and work for all its disks is work for
//! three.

use std::ops::{Index, IndexMut};

use super::DiskHandle;

#[derive(Default)]
pub(super) struct DiskHandles {
    by_number: Vec<Option<Box<DiskHandle>>>,
    /// The numbers of existing handles, in no order.
    there: Vec<usize>,
}

impl DiskHandles {
    #[inline]
    pub(super) fn has(&self, number: usize) -> bool {
        self.by_number.get(number).is_some_and(Option::is_some)
    }

    pub(super) fn insert(&mut self, number: usize, handle: DiskHandle) {
        assert!(!self.has(number), "a worker has one handle of a disk");
        if self.by_number.len() <= number {
            self.by_number.resize_with(number + 1, || None);
        }
        self.by_number[number] = Some(Box::new(handle));
        self.there.push(number);
    }

    pub(super) fn remove(&mut self, number: usize) -> Box<DiskHandle> {
        self.there.retain(|there| *there != number);
        self.by_number[number].take().expect("a handle that goes was there")
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.there.len()
    }

    /// The number of the disk of one of them.
    #[inline]
    pub(super) fn number(&self, at: usize) -> usize {
        self.there[at]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &DiskHandle> {
        self.there.iter().map(|number| &self[*number])
    }
}

impl Index<usize> for DiskHandles {
    type Output = DiskHandle;
    #[inline]
    fn index(&self, number: usize) -> &DiskHandle {
        self.by_number[number].as_deref().expect("a worker has a handle of a disk that its clients use")
    }
}

impl IndexMut<usize> for DiskHandles {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut DiskHandle {
        self.by_number[number].as_deref_mut().expect("a worker has a handle of a disk that its clients use")
    }
}
