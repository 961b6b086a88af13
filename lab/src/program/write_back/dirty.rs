//! Which pages of a file are dirty: a bit each.

use std::ops::Range;

/// The dirty pages of a file.
pub(super) struct Dirty {
    words: Vec<u64>,
    /// How many are dirty.
    pub(super) pages: u64,
    count: u64,
    /// Where the flusher goes on.
    cursor: u64,
}

impl Dirty {
    /// A file of `count` pages, all clean.
    pub(super) fn new(count: u64) -> Self {
        Self { words: vec![0; count.div_ceil(64) as usize], pages: 0, count, cursor: 0 }
    }

    pub(super) fn add(&mut self, pages: Range<u64>) {
        for page in pages {
            let (word, bit) = (&mut self.words[(page / 64) as usize], 1 << (page % 64));
            self.pages += u64::from(*word & bit == 0);
            *word |= bit;
        }
    }

    /// Makes the next run of dirty pages clean that touches none of `busy`, at most `max` pages from where the last one
    /// ended: its first page and how many.
    pub(super) fn take_run<'a>(
        &mut self,
        max: u64,
        busy: impl Iterator<Item = &'a (u64, u64)> + Clone,
    ) -> Option<(u64, u64)> {
        let mut from = self.cursor;
        let mut wrapped = false;
        loop {
            let Some(start) = self.first_dirty(from) else {
                if wrapped || self.pages == 0 {
                    return None;
                }
                (from, wrapped) = (0, true);
                continue;
            };
            let holds = |page: u64| busy.clone().find(|(first, pages)| (*first..first + pages).contains(&page));
            if let Some((first, pages)) = holds(start) {
                from = first + pages;
                continue;
            }
            let mut end = start;
            while end < self.count && end - start < max && self.is_dirty(end) && holds(end).is_none() {
                self.words[(end / 64) as usize] &= !(1 << (end % 64));
                end += 1;
            }
            self.pages -= end - start;
            self.cursor = end;
            return Some((start, end - start));
        }
    }

    fn is_dirty(&self, page: u64) -> bool {
        self.words[(page / 64) as usize] & (1 << (page % 64)) != 0
    }

    /// The first dirty page from `from` on.
    fn first_dirty(&self, from: u64) -> Option<u64> {
        let index = (from / 64) as usize;
        let first = *self.words.get(index)? & (u64::MAX << (from % 64));
        if first != 0 {
            return Some(index as u64 * 64 + u64::from(first.trailing_zeros()));
        }
        let (index, word) = self.words.iter().enumerate().skip(index + 1).find(|(_, word)| **word != 0)?;
        Some(index as u64 * 64 + u64::from(word.trailing_zeros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(dirty: &mut Dirty, busy: &[(u64, u64)]) -> Option<(u64, u64)> {
        dirty.take_run(100, busy.iter())
    }

    #[test]
    fn runs_come_in_the_order_of_the_file_and_go_round() {
        let mut dirty = Dirty::new(1000);
        dirty.add(60..70);
        dirty.add(65..72);
        dirty.add(500..650);
        assert_eq!(dirty.pages, 162);
        assert_eq!(run(&mut dirty, &[]), Some((60, 12)));
        assert_eq!(run(&mut dirty, &[]), Some((500, 100)), "no longer than allowed");
        dirty.add(3..4);
        assert_eq!(run(&mut dirty, &[]), Some((600, 50)));
        assert_eq!(run(&mut dirty, &[]), Some((3, 1)), "from the start again");
        assert_eq!((run(&mut dirty, &[]), dirty.pages), (None, 0));
    }

    #[test]
    fn what_is_on_its_way_is_left_out() {
        let mut dirty = Dirty::new(100);
        dirty.add(10..30);
        assert_eq!(run(&mut dirty, &[(5, 7), (20, 5)]), Some((12, 8)));
        assert_eq!(run(&mut dirty, &[(5, 7), (20, 5)]), Some((25, 5)));
        assert_eq!(run(&mut dirty, &[(5, 7), (20, 5)]), None, "all that is left is on its way");
        assert_eq!(run(&mut dirty, &[]), Some((10, 2)), "and can go when it has arrived");
    }
}
