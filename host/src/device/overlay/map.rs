//! Map: where each block of the disk is. Shared by all workers; pure but for atomics.
//!
//! A top has two bits for each block: not there, data, zeroes. So has each layer between it and the base; those do not change, and all tops
//! above share their maps. A block is looked for from the top down. Example: the map of an unwritten disk of 1 GiB takes 500 bytes; of one
//! that was written everywhere 68 KiB.
//!
//! map.1  A page's memory is there once a block of it is.
//! map.2  A block becomes data when its write has completed, and its page is then to be written. A flush writes the map as it was when the
//!        flush began: a block that comes later belongs to the next flush, for its data may not be durable.
//! map.3  A page that could not be written is written by the next flush, to the same slot.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::format::{BLOCK, Id, LOW, PAGE_BLOCKS, PageImage, WORDS, page_index, pages};

/// The state of a block in a top.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockState {
    /// It is below.
    Absent = 0,
    Data = 1,
    /// It reads as zeroes.
    Zero = 2,
}

impl BlockState {
    fn of(bits: u64) -> Self {
        match bits & 3 {
            0 => Self::Absent,
            1 => Self::Data,
            _ => Self::Zero,
        }
    }

    /// A word of 32 blocks that are all so.
    const fn word(self) -> u64 {
        LOW * self as u64
    }
}

/// Where a block is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Top,
    /// In a file below, counted from the bottom: 0 is the base.
    Below(u8),
    /// Nowhere: it reads as zeroes.
    Nowhere,
}

/// How long a page is as it is told: a byte, and the page.
const HANDED: usize = 1 + BLOCK as usize;

pub(super) struct Own {
    pages: Box<[OnceLock<Box<Page>>]>,
    /// A bit for each page that is to be written.
    dirty: Box<[AtomicU64]>,
}

struct Page {
    words: [AtomicU64; WORDS],
    /// Of the slot that counts on the disk; 0: there is none.
    sequence: AtomicU64,
    /// There is room for it in the file.
    reserved: AtomicBool,
}

impl Own {
    /// The empty map of a disk of `size` bytes.
    pub(super) fn new(size: u64) -> Self {
        let pages = pages(size);
        Self {
            pages: (0..pages).map(|_| OnceLock::new()).collect(),
            dirty: (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn page(&self, index: u64) -> &Page {
        self.pages[index as usize].get_or_init(|| {
            let words = [const { AtomicU64::new(0) }; WORDS];
            Box::new(Page { words, sequence: AtomicU64::new(0), reserved: AtomicBool::new(false) })
        })
    }

    /// Takes in a page that was read, before others see the map.
    pub(super) fn load(&self, image: &PageImage) {
        let page = self.page(image.index);
        page.words.iter().zip(&*image.words).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        page.sequence.store(image.sequence, Ordering::Relaxed);
        page.reserved.store(true, Ordering::Relaxed);
    }

    /// All of it, while nothing changes: each page that is in memory as it would be written, behind a byte with its state (over.1).
    pub(super) fn tell(&self, id: &Id) -> Vec<u8> {
        let there =
            || (0..self.pages.len() as u64).filter_map(|index| Some((index, self.pages[index as usize].get()?)));
        let mut all = vec![0; there().count() * HANDED];
        for ((index, page), bytes) in there().zip(all.chunks_exact_mut(HANDED)) {
            let is_dirty = self.dirty[(index / 64) as usize].load(Ordering::Acquire) >> (index % 64) & 1 != 0;
            let is_reserved = page.reserved.load(Ordering::Acquire);
            bytes[0] = u8::from(is_dirty) | u8::from(is_reserved) << 1;
            self.image(index).encode(id, &mut bytes[1..]);
        }
        all
    }

    /// The map of a disk of `size` bytes, as [`tell`](Self::tell) wrote it.
    ///
    /// # Errors
    /// The part that is not as it must be.
    pub(super) fn decode(size: u64, id: &Id, pages_handed: &[u8]) -> Result<Self, String> {
        let (own, pages) = (Self::new(size), pages_handed.chunks_exact(HANDED));
        if !pages.remainder().is_empty() {
            return Err(format!("its map comes in {} bytes", pages_handed.len()));
        }
        for bytes in pages {
            let index = page_index(&bytes[1..]).filter(|index| *index < own.pages.len() as u64);
            let index = index.ok_or("a page of its map is of another disk")?;
            let image = PageImage::decode(&bytes[1..], id, index, size.div_ceil(BLOCK))?;
            let image = image.ok_or("a page of its map is empty")?;
            own.load(&image);
            let page = own.page(index);
            page.sequence.store(image.sequence - 1, Ordering::Relaxed);
            page.reserved.store(bytes[0] & 2 != 0, Ordering::Relaxed);
            if bytes[0] & 1 != 0 {
                own.mark(index);
            }
        }
        Ok(own)
    }

    /// The state of a block in the top, and the end, at most `end`, up to which it is the same.
    pub(super) fn run(&self, block: u64, end: u64) -> (BlockState, u64) {
        let held = self.get(block);
        let mut at = block + 1;
        while at < end {
            let (index, within) = (at / PAGE_BLOCKS, at % PAGE_BLOCKS);
            let Some(page) = self.pages[index as usize].get() else {
                if held != BlockState::Absent {
                    break;
                }
                at = (index + 1) * PAGE_BLOCKS;
                continue;
            };
            let bit = within % 32 * 2;
            // The difference, from our block on.
            let other = (page.words[(within / 32) as usize].load(Ordering::Acquire) ^ held.word()) >> bit;
            if other != 0 {
                at += u64::from(other.trailing_zeros()) / 2;
                break;
            }
            at += 32 - within % 32;
        }
        (held, at.min(end))
    }

    fn get(&self, block: u64) -> BlockState {
        let within = block % PAGE_BLOCKS;
        let page = self.pages[(block / PAGE_BLOCKS) as usize].get();
        page.map_or(BlockState::Absent, |page| {
            BlockState::of(page.words[(within / 32) as usize].load(Ordering::Acquire) >> (within % 32 * 2))
        })
    }

    /// Says what the top has of blocks from now on: their data is written (map.2).
    pub(super) fn set(&self, blocks: Range<u64>, held: BlockState) {
        let mut at = blocks.start;
        while at < blocks.end {
            let index = at / PAGE_BLOCKS;
            let end = blocks.end.min((index + 1) * PAGE_BLOCKS);
            let page = self.page(index);
            while at < end {
                let within = at % PAGE_BLOCKS;
                let count = (32 - within % 32).min(end - at);
                let mask = if count == 32 { u64::MAX } else { ((1 << (2 * count)) - 1) << (within % 32 * 2) };
                let word = &page.words[(within / 32) as usize];
                let change = |old: u64| Some(old & !mask | held.word() & mask);
                let _ = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change);
                at += count;
            }
            // After the words: a flush that takes the mark sees them.
            self.mark(index);
        }
    }

    pub(super) fn mark(&self, index: u64) {
        // Always: an old mark may be taken just now, by a flush that does not see the words.
        self.dirty[(index / 64) as usize].fetch_or(1 << (index % 64), Ordering::AcqRel);
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty.iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Takes the pages that a flush is to write, as they are now (map.2).
    pub(super) fn take_dirty(&self) -> Vec<PageImage> {
        let mut all = Vec::new();
        for (at, word) in self.dirty.iter().enumerate() {
            let mut bits = if word.load(Ordering::Acquire) == 0 { 0 } else { word.swap(0, Ordering::AcqRel) };
            while bits != 0 {
                all.push(self.image(at as u64 * 64 + u64::from(bits.trailing_zeros())));
                bits &= bits - 1;
            }
        }
        all
    }

    fn image(&self, index: u64) -> PageImage {
        let page = self.page(index);
        let words = Box::new(std::array::from_fn(|at| page.words[at].load(Ordering::Acquire)));
        PageImage { index, sequence: page.sequence.load(Ordering::Relaxed) + 1, words }
    }

    /// A flush has written pages and made them durable, or it could not (map.3).
    pub(super) fn settle(&self, images: &[PageImage], are_written: bool) {
        for image in images {
            match are_written {
                true => self.page(image.index).sequence.store(image.sequence, Ordering::Relaxed),
                false => self.mark(image.index),
            }
        }
    }

    /// Of the pages of some blocks, the first that has no room in the file yet.
    pub(super) fn unreserved(&self, blocks: &Range<u64>) -> Option<u64> {
        (blocks.start / PAGE_BLOCKS..blocks.end.div_ceil(PAGE_BLOCKS)).find(|index| !self.is_reserved(*index))
    }

    /// Of some blocks those whose page has room in the file.
    pub(super) fn reserved_within(&self, blocks: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (start, end) = (blocks.start, blocks.end);
        let pages = (start / PAGE_BLOCKS..end.div_ceil(PAGE_BLOCKS)).filter(|index| self.is_reserved(*index));
        pages.map(move |index| start.max(index * PAGE_BLOCKS)..end.min((index + 1) * PAGE_BLOCKS))
    }

    fn is_reserved(&self, index: u64) -> bool {
        self.pages[index as usize].get().is_some_and(|page| page.reserved.load(Ordering::Acquire))
    }

    pub(super) fn reserved(&self, index: u64) {
        self.page(index).reserved.store(true, Ordering::Release);
    }

    /// How many blocks are (data, zeroes).
    pub(super) fn count(&self) -> (u64, u64) {
        let words = self.pages.iter().filter_map(OnceLock::get).flat_map(|page| &page.words);
        words.fold((0, 0), |(data, zeroes), word| {
            let word = word.load(Ordering::Relaxed);
            (data + u64::from((word & LOW).count_ones()), zeroes + u64::from((word & (LOW << 1)).count_ones()))
        })
    }
}

/// The map of a layer between a top and the base. It does not change.
#[derive(Clone)]
pub(super) struct LayerMap {
    pub(super) own: Arc<Own>,
    /// Of its disk, which may be shorter than one below it: what is beyond reads as zeroes.
    pub(super) blocks: u64,
}

/// Where the blocks of a disk are: in its top, or below.
pub(super) struct Where<'a> {
    pub(super) own: &'a Own,
    /// Of the layers between, from the lowest.
    pub(super) below: &'a [LayerMap],
    /// Of the base: what is beyond reads as zeroes.
    pub(super) base_size: u64,
}

impl Where<'_> {
    /// Where a block is, and up to where, but for `end`, others are there too. More zeroes may follow: those of the top, and those below.
    fn run(&self, block: u64, end: u64) -> (Place, u64) {
        let (held, end) = self.own.run(block, end);
        match held {
            BlockState::Data => (Place::Top, end),
            BlockState::Zero => (Place::Nowhere, end),
            BlockState::Absent => self.run_below(block, end),
        }
    }

    /// The same below the top.
    fn run_below(&self, block: u64, mut end: u64) -> (Place, u64) {
        for (at, layer) in self.below.iter().enumerate().rev() {
            if block >= layer.blocks {
                return (Place::Nowhere, end);
            }
            let held;
            (held, end) = layer.own.run(block, end.min(layer.blocks));
            match held {
                BlockState::Data => return (Place::Below(at as u8 + 1), end),
                BlockState::Zero => return (Place::Nowhere, end),
                BlockState::Absent => {}
            }
        }
        let base_end = self.base_size.div_ceil(BLOCK);
        if block >= base_end { (Place::Nowhere, end) } else { (Place::Below(0), end.min(base_end)) }
    }

    pub(super) fn of(&self, block: u64) -> Place {
        self.run(block, block + 1).0
    }

    /// The next blocks, from one on, that a layer between the top and the base has, and their state in a top over the base alone.
    pub(super) fn between(&self, from: u64, end: u64) -> Option<(Range<u64>, BlockState)> {
        let base_end = self.base_size.div_ceil(BLOCK);
        let mut at = from;
        while at < end {
            let (held, mut until) = self.own.run(at, end);
            if held == BlockState::Absent {
                let (place, same) = self.run_below(at, until);
                until = same;
                match place {
                    Place::Below(1..) => return Some((at..until, BlockState::Data)),
                    Place::Nowhere if at < base_end => return Some((at..until.min(base_end), BlockState::Zero)),
                    Place::Below(0) | Place::Nowhere | Place::Top => {}
                }
            }
            at = until;
        }
        None
    }

    /// The runs of a range of bytes: (place, start, bytes).
    pub(super) fn runs(&self, at: u64, bytes: u64) -> impl Iterator<Item = (Place, u64, u64)> {
        let (mut from, end) = (at, at + bytes);
        std::iter::from_fn(move || {
            (from < end).then(|| {
                let (place, until) = self.run(from / BLOCK, end.div_ceil(BLOCK));
                let start = std::mem::replace(&mut from, end.min(until * BLOCK));
                (place, start, from - start)
            })
        })
    }

    /// Whether all of some bytes are in the top.
    pub(super) fn is_in_top(&self, at: u64, bytes: u64) -> bool {
        let (first, last) = (at / BLOCK, (at + bytes).div_ceil(BLOCK));
        self.own.run(first, last) == (BlockState::Data, last)
    }
}

/// How a range of bytes covers blocks: those that it has in part, and those that it has whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cover {
    /// Blocks that it covers in part, the first and the last; one if that is both.
    pub(super) partial: Vec<u64>,
    pub(super) whole: Range<u64>,
}

impl Cover {
    pub(super) fn of(at: u64, bytes: u64) -> Self {
        let end = at + bytes;
        let whole = at.div_ceil(BLOCK)..end / BLOCK;
        let whole = whole.start..whole.end.max(whole.start);
        let mut partial = Vec::new();
        if !at.is_multiple_of(BLOCK) {
            partial.push(at / BLOCK);
        }
        if !end.is_multiple_of(BLOCK) && partial.last() != Some(&(end / BLOCK)) {
            partial.push(end / BLOCK);
        }
        Self { partial, whole }
    }
}

#[cfg(test)]
mod tests {
    use fairlift_lab::{Random, repeat};

    use super::*;

    const BLOCKS: u64 = 3 * PAGE_BLOCKS;
    const SIZE: u64 = BLOCKS * BLOCK;

    #[test]
    fn a_run_ends_where_the_state_changes_and_goes_over_words_and_pages() {
        let own = Own::new(SIZE);
        assert_eq!(own.run(0, BLOCKS), (BlockState::Absent, 3 * PAGE_BLOCKS));
        own.set(5..7, BlockState::Data);
        own.set(40..PAGE_BLOCKS + 3, BlockState::Zero);
        for (at, end, run) in [
            (0, 100, (BlockState::Absent, 5)),
            (5, 100, (BlockState::Data, 7)),
            (5, 6, (BlockState::Data, 6)),
            (7, 100, (BlockState::Absent, 40)),
            (41, BLOCKS, (BlockState::Zero, PAGE_BLOCKS + 3)),
            (PAGE_BLOCKS + 3, BLOCKS, (BlockState::Absent, BLOCKS)),
        ] {
            assert_eq!(own.run(at, end), run, "{at}");
        }
        own.set(41..42, BlockState::Data);
        assert_eq!((own.get(40), own.get(41), own.get(42)), (BlockState::Zero, BlockState::Data, BlockState::Zero));
        assert_eq!(own.count(), (3, PAGE_BLOCKS + 3 - 41));
    }

    /// map.2, map.3
    #[test]
    fn a_flush_takes_pages_as_they_are_and_what_failed_is_taken_again_for_the_same_slot() {
        let own = Own::new(SIZE);
        assert!(!own.is_dirty() && own.take_dirty().is_empty());
        own.set(1..2, BlockState::Data);
        own.set(2 * PAGE_BLOCKS..2 * PAGE_BLOCKS + 1, BlockState::Zero);
        let taken = own.take_dirty();
        own.set(3..4, BlockState::Data);
        assert_eq!(
            taken.iter().map(|page| (page.index, page.sequence, page.words[0])).collect::<Vec<_>>(),
            [(0, 1, 4), (2, 1, 2)]
        );
        own.settle(&taken[..1], true);
        own.settle(&taken[1..], false);
        let taken = own.take_dirty();
        assert_eq!(
            taken.iter().map(|page| (page.index, page.sequence, page.words[0])).collect::<Vec<_>>(),
            [(0, 2, 68), (2, 1, 2)]
        );
        let again = Own::new(SIZE);
        taken.iter().for_each(|page| again.load(page));
        assert_eq!(again.run(0, 5), (BlockState::Absent, 1));
        assert!(!again.is_dirty() && again.get(3) == BlockState::Data);
        assert_eq!(again.unreserved(&(0..PAGE_BLOCKS + 1)), Some(1));
        let all: Vec<_> = again.reserved_within(&(7..BLOCKS)).collect();
        assert_eq!(all, [7..PAGE_BLOCKS, 2 * PAGE_BLOCKS..BLOCKS]);
    }

    /// A chain of tops, each over those before, against a byte for each block.
    #[test]
    fn a_block_is_where_the_highest_layer_says() {
        for seed in repeat::seeds(0..40) {
            let mut random = Random::new(seed);
            let size = (PAGE_BLOCKS + random.below(200) + 1) * BLOCK;
            let base_size = random.below(size / BLOCK + 2) * BLOCK + random.below(2) * 512;
            let blocks = size.div_ceil(BLOCK);
            let beyond = |block: u64| block >= base_size.div_ceil(BLOCK);
            let mut dull: Vec<Place> =
                (0..blocks).map(|block| if beyond(block) { Place::Nowhere } else { Place::Below(0) }).collect();
            let mut below = Vec::new();
            let layers = random.below(4) as u8 + 1;
            for layer in 1..=layers {
                let own = Own::new(size);
                for _ in 0..random.below(12) {
                    let start = [0, PAGE_BLOCKS - 40][random.below(2) as usize] + random.below(80);
                    let range = start.min(blocks - 1)..(start + 1 + random.below(70)).min(blocks);
                    let held = [BlockState::Data, BlockState::Zero][random.below(2) as usize];
                    own.set(range.clone(), held);
                    let place = match held {
                        BlockState::Data if layer == layers => Place::Top,
                        BlockState::Data => Place::Below(layer),
                        _ => Place::Nowhere,
                    };
                    dull[range.start as usize..range.end as usize].fill(place);
                }
                if layer == layers {
                    let all = Where { own: &own, below: &below, base_size };
                    for _ in 0..200 {
                        let at = random.below(size / 512) * 512;
                        let bytes = (random.below(300) + 1) * 512;
                        let bytes = bytes.min(size - at);
                        let mut next = at;
                        let mut before = None;
                        for (place, start, len) in all.runs(at, bytes) {
                            assert_eq!(start, next);
                            let is_longest = before.replace(place) != Some(place) || place == Place::Nowhere;
                            assert!(len > 0 && is_longest, "runs are as long as they can be");
                            next = start + len;
                            for block in start / BLOCK..next.div_ceil(BLOCK) {
                                assert_eq!(dull[block as usize], place, "block {block}");
                                assert_eq!(all.of(block), place);
                            }
                        }
                        assert_eq!(next, at + bytes);
                        let top =
                            (at / BLOCK..(at + bytes).div_ceil(BLOCK)).all(|block| dull[block as usize] == Place::Top);
                        assert_eq!(all.is_in_top(at, bytes), top);
                    }
                }
                // What lies over it may be larger, and what is below it too.
                let end = if random.below(3) == 0 { random.below(blocks) } else { blocks };
                dull[end as usize..].fill(Place::Nowhere);
                below.push(LayerMap { own: Arc::new(own), blocks: end });
            }
        }
    }

    #[test]
    fn a_range_has_blocks_whole_and_in_part() {
        for (at, bytes, partial, whole) in [
            (0, 4096, vec![], 0..1),
            (512, 512, vec![0], 1..1),
            (512, 4096, vec![0, 1], 1..1),
            (4096, 4608, vec![2], 1..2),
            (3584, 9216, vec![0, 3], 1..3),
            (3584, 512, vec![0], 1..1),
        ] {
            assert_eq!(Cover::of(at, bytes), Cover { partial, whole }, "{bytes} at {at}");
        }
    }
}
