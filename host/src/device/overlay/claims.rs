//! Claims: which blocks are being written for the first time, and by whom; and which flush writes the map. Pure.
//!
//! A first write of 512 bytes reads its block from below, and writes the whole of it. If another write of the same block came in between,
//! it would be lost. So a request that changes where a block is has its blocks alone, on all workers. Example: A writes sector 0, B sector
//! 1 of a block that nobody has written; B waits for A, finds the block in the top, and writes its sector there.
//!
//! claim.1  Claims that overlap are held one after the other, in the order in which they were asked for.
//! claim.2  Blocks of zeroes are zeroes already only if nobody has them. A write that went straight to a block, while a discard made zeroes of
//!          it, has left its bytes in the file; they may land behind those of a first write that was under way beside it, which
//!          then shows them. Zeroes that were asked for later must come after both.

use std::collections::BTreeMap;
use std::ops::Range;

/// The map, claimed as blocks beyond any disk: one flush at a time writes it (overlay.3). Another one that found no page to write, because the
/// first has taken them, would answer before they are on the disk.
pub(super) const MAP: Range<u64> = u64::MAX - 1..u64::MAX;

/// Claims that are held, and that wait; `K` identifies the waiter.
#[derive(Debug)]
pub(super) struct Claims<K> {
    /// By their first block: they do not overlap. How they end.
    held: BTreeMap<u64, u64>,
    waiting: Vec<(Range<u64>, K)>,
}

impl<K> Default for Claims<K> {
    fn default() -> Self {
        Self { held: BTreeMap::new(), waiting: Vec::new() }
    }
}

impl<K: Copy> Claims<K> {
    /// Claims blocks; whether they are had. If not, [`release`](Self::release) will tell.
    pub(super) fn claim(&mut self, blocks: Range<u64>, who: K) -> bool {
        let waits = self.is_held(&blocks) || self.waiting.iter().any(|(before, _)| overlap(before, &blocks));
        if waits {
            self.waiting.push((blocks, who));
        } else {
            self.held.insert(blocks.start, blocks.end);
        }
        !waits
    }

    /// Gives a claim back; those that have theirs now.
    pub(super) fn release(&mut self, blocks: &Range<u64>) -> Vec<K> {
        assert_eq!(self.held.remove(&blocks.start), Some(blocks.end), "a claim is held until it is released");
        let mut granted = Vec::new();
        for (wanted, who) in std::mem::take(&mut self.waiting) {
            if self.claim(wanted, who) {
                granted.push(who);
            }
        }
        granted
    }

    pub(super) fn is_held(&self, blocks: &Range<u64>) -> bool {
        self.held.range(..blocks.end).next_back().is_some_and(|(_, end)| *end > blocks.start)
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use fairlift_lab::{Random, repeat};

    use super::*;

    /// claim.1
    #[test]
    fn claims_that_overlap_are_had_in_order_and_others_at_once() {
        let mut claims = Claims::default();
        assert!(claims.claim(0..4, 'a') && claims.claim(8..9, 'b'));
        assert!(!claims.claim(3..8, 'c'), "a has block 3");
        assert!(!claims.claim(4..5, 'e'), "c waits for it");
        assert!(!claims.claim(7..8, 'd'), "c waits for it");
        assert!(claims.release(&(8..9)).is_empty());
        assert_eq!(claims.release(&(0..4)), ['c']);
        assert_eq!(claims.release(&(3..8)), ['e', 'd']);
    }

    /// claim.1, against two loops.
    #[test]
    fn random_claims_never_overlap_and_all_are_had() {
        for seed in repeat::seeds(0..50) {
            let mut random = Random::new(seed);
            let (mut claims, mut all, mut held) = (Claims::default(), Vec::new(), Vec::new());
            for _ in 0..300 {
                if random.below(2) == 0 {
                    let start = random.below(30);
                    let blocks = start..start + 1 + random.below(6);
                    all.push(blocks.clone());
                    if claims.claim(blocks, all.len() - 1) {
                        held.push(all.len() - 1);
                    }
                } else if !held.is_empty() {
                    let one: usize = held.swap_remove(random.below(held.len() as u64) as usize);
                    held.append(&mut claims.release(&all[one]));
                }
                for (at, one) in held.iter().enumerate() {
                    assert!(held[..at].iter().all(|other| !overlap(&all[*one], &all[*other])));
                }
            }
            let mut had = 0;
            while let Some(one) = held.pop() {
                had += 1;
                held.append(&mut claims.release(&all[one]));
            }
            assert!(claims.held.is_empty() && claims.waiting.is_empty(), "{had} were left");
        }
    }
}
