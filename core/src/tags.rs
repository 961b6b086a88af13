//! Tags: the right to have one request in flight.
//!
//! A plain allocator for one owner: a bit per tag, the lowest free one first, so that a shallow load stays in warm
//! memory. (The scalable one that many threads share is another type with the same words.)

use alloc::boxed::Box;
use alloc::vec;

/// The right to have one request in flight: a number below the depth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u16);

/// The tags of one device queue.
#[derive(Debug)]
pub struct TagSet {
    /// A set bit is a free tag.
    free: Box<[u64]>,
    depth: u16,
    used: u16,
}

impl TagSet {
    /// As many tags as `depth`, all free.
    ///
    /// # Panics
    /// If `depth` is 0.
    #[must_use]
    pub fn new(depth: u16) -> Self {
        assert!(depth > 0, "a device takes at least one request at a time");
        let mut free = vec![u64::MAX; usize::from(depth).div_ceil(64)].into_boxed_slice();
        if !depth.is_multiple_of(64) {
            free[usize::from(depth) / 64] = (1 << (depth % 64)) - 1;
        }
        Self { free, depth, used: 0 }
    }

    /// Takes a free tag, or `None` while all are in use.
    pub fn get(&mut self) -> Option<Tag> {
        let (index, word) = self.free.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros();
        *word &= *word - 1;
        self.used += 1;
        Some(Tag((index * 64) as u16 + bit as u16))
    }

    /// Gives a tag back.
    ///
    /// # Panics
    /// If it is not in use: whoever returns a tag twice has lost track of a request.
    pub fn put(&mut self, tag: Tag) {
        assert!(self.is_used(tag), "tag {} was given back twice", tag.0);
        self.free[usize::from(tag.0) / 64] |= 1 << (tag.0 % 64);
        self.used -= 1;
    }

    /// Whether the tag is in use.
    #[must_use]
    pub fn is_used(&self, tag: Tag) -> bool {
        tag.0 < self.depth && self.free[usize::from(tag.0) / 64] & (1 << (tag.0 % 64)) == 0
    }

    /// How many tags are in use.
    #[must_use]
    pub const fn used(&self) -> u16 {
        self.used
    }

    /// How many tags there are.
    #[must_use]
    pub const fn depth(&self) -> u16 {
        self.depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tag_is_given_out_once_and_can_come_back() {
        for depth in [1, 63, 64, 65, 200] {
            let mut tags = TagSet::new(depth);
            for n in 0..depth {
                assert_eq!(tags.get(), Some(Tag(n)));
            }
            assert_eq!(tags.get(), None, "depth {depth} is all there is");
            tags.put(Tag(depth / 2));
            assert_eq!(tags.get(), Some(Tag(depth / 2)));
        }
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn a_tag_given_back_twice_stops_the_program() {
        let mut tags = TagSet::new(4);
        let tag = tags.get().unwrap();
        tags.put(tag);
        tags.put(tag);
    }
}
