//! Bitmap: which tags are out. Any number of threads take and return them, and none waits for another.
//!
//! Sixteen threads each take a number below 128 for every request, and return it when the request ends. Were all bits in one
//! place, each of these operations would take the cache line from the thread before. So the bits are spread, and each thread
//! goes back to where it found one last: 128 tags are four words of 32, on lines of their own, and four threads share each.
//!
//! bitmap.1  A tag is out at most once: it is taken by the one atomic operation that finds its bit clear, or that finds it
//!     among the returned ones.
//! bitmap.2  Words are spread: each lies on cache lines of its own, and has 64 bits, halved while fewer than four words would
//!     hold the depth, so that a shallow map too is several words.
//! bitmap.3  A caller begins where its hint says, at the tag that it took last: callers that began apart stay apart. In
//!     round-robin order the next tag is the one after the last that was taken; hints are not used then.
//! bitmap.4  Returning is deferred: a returned bit goes to a second word, on another cache line, and comes back to the first
//!     in one swap when that looks full. A caller that takes does not disturb one that returns.
//! bitmap.5  The depth can change while tags are out. Tags at and above a smaller depth are not given out again, and those
//!     that are out are simply returned: the change has [settled](Bitmap::is_settled) when the last one is back.
//! bitmap.6  A shallow depth is spread evenly over the words: a caller that is held to it can take no more than that,
//!     and, if it is less than the depth, never all.
//!
//! Idea: Linux `lib/sbitmap.c` (bitmap.2 to bitmap.4, and bitmap.6 as it is since 6.12). Different: no lock around the swap, and the
//! swapper takes its own tag out of the returned bits without a further operation, which makes one-bit words cheap.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use super::{DEPTH_MAX, Error, Tag};
use crate::sync::{AtomicUsize, Ordering, agree};

/// Where a caller looks first: one for each thread or context that takes tags.
///
/// The default begins at the first tag. Several callers do better apart: see [`Hint::of`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Hint(usize);

impl Hint {
    /// The hint of the `n`th caller: far from those of its neighbours, whatever the depth.
    #[must_use]
    pub const fn of(n: usize) -> Self {
        // Fibonacci hashing: the multiples of the golden ratio spread evenly, however many there are.
        Self((n as u32).wrapping_mul(0x9e37_79b9) as usize >> 8)
    }

    /// The next one to be taken is, if it is free, `tag`: the caller that returned it has it in a warm cache.
    pub const fn warm(&mut self, tag: Tag) {
        self.0 = tag.0 as usize;
    }
}

/// On a cache line of its own: 128 bytes, because processors fetch lines in pairs.
#[repr(align(128))]
struct CacheLine(AtomicUsize);

/// A word of the map (bitmap.2).
struct Word {
    held: Held,
    /// A set bit was returned (bitmap.4); it is also set in `held`.
    returned: CacheLine,
}

/// The words that takers look at.
#[repr(align(128))]
struct Held {
    /// A set bit is out, or returned and not yet swapped back.
    bits: AtomicUsize,
    /// A set bit is below the depth (bitmap.5).
    usable: AtomicUsize,
}

/// Which tags are out; see the [module](super) for an example.
pub struct Bitmap {
    words: Box<[Word]>,
    /// The binary logarithm of the bits in a word.
    shift: u32,
    depth: AtomicUsize,
    /// How many there is room for.
    capacity: usize,
    /// Where the next one begins, in round-robin order (bitmap.3).
    round: Option<CacheLine>,
    /// The number of the first tag in messages.
    first: usize,
}

impl Bitmap {
    /// As many tags as `depth`, none of them out.
    ///
    /// # Errors
    /// The depth is 0 or above [`DEPTH_MAX`].
    pub fn new(depth: usize) -> Result<Self, Error> {
        Self::with_capacity(depth, depth)
    }

    /// As many tags as `depth`, none of them out, with room to grow to `capacity`.
    ///
    /// # Errors
    /// The depth is 0 or above the capacity, or that is above [`DEPTH_MAX`].
    pub fn with_capacity(depth: usize, capacity: usize) -> Result<Self, Error> {
        if capacity > DEPTH_MAX {
            return Err(Error::Depth { requested: capacity, max: DEPTH_MAX });
        }
        if !(1..=capacity).contains(&depth) {
            return Err(Error::Depth { requested: depth, max: capacity.max(1) });
        }
        let mut shift = usize::BITS.trailing_zeros();
        while shift > 0 && 4 << shift > depth {
            shift -= 1; // bitmap.2
        }
        // Room for much more than the depth of now need not be words of one bit.
        while shift < usize::BITS.trailing_zeros() && capacity.div_ceil(1 << shift) > 64 {
            shift += 1;
        }
        let word = |index| Word {
            held: Held { bits: AtomicUsize::new(0), usable: AtomicUsize::new(own(index, shift, depth)) },
            returned: CacheLine(AtomicUsize::new(0)),
        };
        let words = (0..capacity.div_ceil(1 << shift)).map(word).collect();
        Ok(Self { words, shift, depth: AtomicUsize::new(depth), capacity, round: None, first: 0 })
    }

    /// Gives tags out in rising order, and continues after the last one, whichever caller asks (bitmap.3).
    ///
    /// For devices that want their slots used in turn. Callers then meet in one place: it is slower.
    #[must_use]
    pub fn round_robin(mut self) -> Self {
        self.round = Some(CacheLine(AtomicUsize::new(0)));
        self
    }

    /// Calls the first tag so in messages: for an owner that has others before it.
    #[must_use]
    pub const fn numbered_from(mut self, first: usize) -> Self {
        self.first = first;
        self
    }

    /// How many tags there are.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth.load(Ordering::SeqCst)
    }

    /// How many there is room for.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Takes a free tag, or says that there is none; it may miss one that comes back at that moment.
    #[inline]
    pub fn get(&self, hint: &mut Hint) -> Option<Tag> {
        self.take(hint, None).0
    }

    /// Whether a shallow depth is possible.
    ///
    /// # Errors
    /// It is 0 or above the depth.
    pub fn check_shallow(&self, shallow: usize) -> Result<(), Error> {
        let depth = self.depth();
        if (1..=depth).contains(&shallow) { Ok(()) } else { Err(Error::Shallow { requested: shallow, depth }) }
    }

    /// As [`Bitmap::get`], with `shallow` among that many tags, spread over the map (bitmap.6); also says whether, on the way, tags that
    /// had been returned became free for all.
    ///
    /// Until then another caller might have looked for them in vain: a caller that keeps waiters must look after them. A shallow
    /// depth above the depth is no restriction; [`Bitmap::check_shallow`] finds it where it comes from.
    ///
    /// # Panics
    /// If `shallow` is 0.
    #[inline]
    pub fn take(&self, hint: &mut Hint, shallow: Option<usize>) -> (Option<Tag>, bool) {
        // Nearly always the hinted word has a bit, and nothing else need be known.
        if shallow.is_none()
            && self.round.is_none()
            && let Some(word) = self.words.get(hint.0 >> self.shift)
            && let Some(bit) = word.take_free(hint.0 & ((1 << self.shift) - 1))
        {
            hint.0 = (hint.0 >> self.shift) << self.shift | bit as usize;
            return (Some(Tag(hint.0 as u16)), false);
        }
        self.search(hint, shallow)
    }

    fn search(&self, hint: &mut Hint, shallow: Option<usize>) -> (Option<Tag>, bool) {
        let depth = self.depth();
        if let Some(shallow) = shallow {
            // A depth that shrank since it was checked holds everybody to less than the request.
            assert!(shallow > 0, "{}", Error::Shallow { requested: shallow, depth });
        }
        let begin = match &self.round {
            Some(round) => round.0.load(Ordering::Relaxed),
            None => hint.0,
        };
        let begin = if begin < depth { begin } else { begin % depth };
        let bits = 1 << self.shift;
        let words = depth.div_ceil(bits);
        let (mut index, mut from) = (begin >> self.shift, begin & (bits - 1));
        let mut freed = false;
        // In round-robin order the bits before the first one come last: their word is looked at twice.
        let around = self.round.is_none();
        for _ in 0..words + usize::from(!around) {
            let most = shallow.map_or(usize::MAX, |shallow| self.part(index, depth, shallow));
            if let Some(bit) = self.words[index].take(from, most, around, &mut freed) {
                let tag = index << self.shift | bit as usize;
                match &self.round {
                    Some(round) => round.0.store(tag + 1, Ordering::Relaxed),
                    None => hint.0 = tag,
                }
                return (Some(Tag(tag as u16)), freed);
            }
            index = if index + 1 == words { 0 } else { index + 1 };
            from = 0;
        }
        hint.0 = 0;
        (None, freed)
    }

    /// Returns a tag.
    ///
    /// # Panics
    /// If it is not out: a caller that returns a tag twice has lost track of a request.
    #[inline]
    pub fn put(&self, tag: Tag) {
        let (word, bit) = self.place(tag);
        // Looked at before anything changes: a caught panic must not leave a tag that can be given out twice.
        let held = word.held.bits.load(Ordering::Relaxed) & bit != 0;
        assert!(held, "tag {} was given back twice", self.first + usize::from(tag.0));
        let before = word.returned.0.fetch_or(bit, Ordering::SeqCst);
        assert!(before & bit == 0, "tag {} was given back twice", self.first + usize::from(tag.0));
    }

    /// Returns a tag so that it is the first to be taken again: for a single owner, which has no use for deferring (bitmap.4).
    ///
    /// # Panics
    /// As [`Bitmap::put`].
    #[inline]
    pub fn put_now(&self, tag: Tag) {
        let (word, bit) = self.place(tag);
        word.clear(bit, self.first + (usize::from(tag.0) & !((1 << self.shift) - 1)));
    }

    /// Returns many tags, with one step for each run of them in one word.
    ///
    /// # Panics
    /// As [`Bitmap::put`].
    pub fn put_batch(&self, tags: impl IntoIterator<Item = Tag>) {
        let (mut index, mut bits) = (0, 0);
        for tag in tags {
            let (word, bit) = (usize::from(tag.0) >> self.shift, 1 << (usize::from(tag.0) & ((1 << self.shift) - 1)));
            if word != index && bits != 0 {
                self.words[index].clear(bits, self.first + (index << self.shift));
                bits = 0;
            }
            index = word;
            assert!(bits & bit == 0, "tag {} was given back twice", tag.0);
            bits |= bit;
        }
        if bits != 0 {
            self.words[index].clear(bits, self.first + (index << self.shift));
        }
    }

    /// Changes the depth while tags are out (bitmap.5); [`Bitmap::is_settled`] says when a smaller one holds. One change at a
    /// time: two at once may leave parts of both.
    ///
    /// # Errors
    /// The depth is 0 or above the capacity; then nothing has changed.
    pub fn resize(&self, depth: usize) -> Result<(), Error> {
        if !(1..=self.capacity).contains(&depth) {
            return Err(Error::Depth { requested: depth, max: self.capacity });
        }
        self.depth.store(depth, Ordering::SeqCst);
        for (index, word) in self.words.iter().enumerate() {
            word.held.usable.store(own(index, self.shift, depth), Ordering::SeqCst);
        }
        agree();
        Ok(())
    }

    /// Whether no tag at or above the depth is out any more.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let depth = self.depth();
        self.busy().all(|tag| usize::from(tag.0) < depth)
    }

    /// Whether the tag is out.
    #[must_use]
    pub fn is_busy(&self, tag: Tag) -> bool {
        usize::from(tag.0) >> self.shift < self.words.len() && {
            let (word, bit) = self.place(tag);
            word.busy() & bit != 0
        }
    }

    /// The tags that are out, in rising order: each that is out all the while, and none that is free all the while, save
    /// one that goes from returned to free just then (bitmap.4).
    pub fn busy(&self) -> impl Iterator<Item = Tag> {
        (0..self.capacity).map(|number| Tag(number as u16)).filter(|tag| self.is_busy(*tag))
    }

    /// How many tags are out.
    #[must_use]
    pub fn busy_count(&self) -> usize {
        self.words.iter().map(|word| word.busy().count_ones() as usize).sum()
    }

    /// How many tags could be taken now, of the first `shallow` if that is given.
    #[must_use]
    pub fn free_count(&self, shallow: Option<usize>) -> usize {
        let depth = self.depth();
        let words = self.words.iter().enumerate().take(depth.div_ceil(1 << self.shift));
        let free = |(index, word): (usize, &Word)| {
            let most = shallow.map_or(usize::MAX, |shallow| self.part(index, depth, shallow));
            (!word.busy() & word.held.usable.load(Ordering::SeqCst) & most).count_ones() as usize
        };
        words.map(free).sum()
    }

    fn place(&self, tag: Tag) -> (&Word, usize) {
        let number = usize::from(tag.0);
        let word = self.words.get(number >> self.shift);
        let word = word.unwrap_or_else(|| {
            panic!("tag {} never was: there are {}", self.first + number, self.first + self.capacity)
        });
        (word, 1 << (number & ((1 << self.shift) - 1)))
    }

    /// The bits of a word that are its part of a shallow depth (bitmap.6): rounded so that the parts add up.
    fn part(&self, index: usize, depth: usize, shallow: usize) -> usize {
        let (shallow, depth) = (shallow.min(depth) as u64, depth as u64);
        let before = |index: usize| (((index << self.shift) as u64).min(depth) * shallow).div_ceil(depth);
        ones((before(index + 1) - before(index)) as usize)
    }
}

/// The bits of a word that are below the depth.
fn own(index: usize, shift: u32, depth: usize) -> usize {
    ones(depth.saturating_sub(index << shift).min(1 << shift))
}

/// A mask of the lowest `count` bits.
fn ones(count: usize) -> usize {
    if count as u32 == usize::BITS { usize::MAX } else { (1 << count) - 1 }
}

impl Word {
    /// Takes a free bit, the first from `from` on, or else the first; gives up where [`Word::take`] would go on.
    #[inline]
    fn take_free(&self, from: usize) -> Option<u32> {
        let usable = self.held.usable.load(Ordering::SeqCst);
        if let Some(bit) = choose(!self.held.bits.load(Ordering::SeqCst) & usable, from, true) {
            return self.try_take(bit).then_some(bit);
        }
        // A single one that was returned needs nothing but to be taken from there: words of one bit never do.
        let returned = self.returned.0.load(Ordering::SeqCst);
        let alone = returned & usable != 0 && returned.is_power_of_two();
        let ours = alone
            && self.returned.0.compare_exchange(returned, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            && self.keep(returned);
        ours.then(|| returned.trailing_zeros())
    }

    /// Keeps bits that were taken, unless the depth has shrunk below them (bitmap.5).
    #[inline]
    fn keep(&self, bits: usize) -> bool {
        agree();
        let keep = self.held.usable.load(Ordering::SeqCst) & bits == bits;
        if !keep {
            self.free(bits);
        }
        keep
    }

    /// Takes one of the bits in `part`, from `from` on, or, if `around`, before it.
    fn take(&self, from: usize, part: usize, around: bool, freed: &mut bool) -> Option<u32> {
        loop {
            let usable = part & self.held.usable.load(Ordering::SeqCst);
            let held = self.held.bits.load(Ordering::SeqCst);
            if let Some(bit) = choose(!held & usable, from, around) {
                if self.try_take(bit) {
                    return Some(bit);
                }
                continue;
            }
            let ahead = if around { usable } else { usable & usize::MAX << from };
            if self.returned.0.load(Ordering::SeqCst) & ahead == 0 {
                return None;
            }
            // bitmap.1: the caller that swaps a bit out of here is the only one that can give it on.
            let returned = self.returned.0.swap(0, Ordering::SeqCst);
            let mine = choose(returned & usable, from, around);
            *freed |= self.free(returned & !mine.map_or(0, |bit| 1 << bit));
            if let Some(bit) = mine
                && self.keep(1 << bit)
            {
                return mine;
            }
        }
    }

    /// Takes this bit, unless another was faster or the depth has shrunk below it (bitmap.5).
    #[inline]
    fn try_take(&self, bit: u32) -> bool {
        if self.held.bits.fetch_or(1 << bit, Ordering::SeqCst) & (1 << bit) != 0 {
            return false; // bitmap.1
        }
        self.keep(1 << bit)
    }

    /// Makes bits free that are ours; answers whether there were any.
    fn free(&self, bits: usize) -> bool {
        if bits != 0 {
            self.held.bits.fetch_and(!bits, Ordering::SeqCst);
        }
        bits != 0
    }

    /// Makes bits free that are out.
    #[inline]
    fn clear(&self, bits: usize, first: usize) {
        let wrong = bits & (!self.held.bits.load(Ordering::Relaxed) | self.returned.0.load(Ordering::Relaxed));
        assert!(wrong == 0, "tag {} was given back twice", first + wrong.trailing_zeros() as usize);
        self.held.bits.fetch_and(!bits, Ordering::SeqCst);
    }

    fn busy(&self) -> usize {
        // In this order, a bit that is out all the while is seen so: it cannot be seen returned before it was.
        let returned = self.returned.0.load(Ordering::SeqCst);
        self.held.bits.load(Ordering::SeqCst) & !returned
    }
}

/// The lowest bit of `free` from `from` on, or else, if `around`, before it.
#[inline]
fn choose(free: usize, from: usize, around: bool) -> Option<u32> {
    let ahead = free & usize::MAX << from;
    let from_there = if ahead == 0 && around { free } else { ahead };
    (from_there != 0).then(|| from_there.trailing_zeros())
}

/// How full it is, a word at a time: `Bitmap { depth: 6, busy: 3, words: "#.|#.|#." }`.
impl fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (depth, mut words) = (self.depth(), String::new());
        for (index, word) in self.words.iter().enumerate() {
            let (busy, first) = (word.busy(), index << self.shift);
            // Above the depth only what is still out is worth showing.
            let shown = depth.saturating_sub(first).min(1 << self.shift);
            let shown = shown.max((usize::BITS - busy.leading_zeros()) as usize);
            if shown > 0 && index > 0 {
                words.push('|');
            }
            words.extend((0..shown).map(|bit| match (busy >> bit & 1 == 1, first + bit < depth) {
                (true, true) => '#',
                (true, false) => '!', // out, and above the depth
                (false, _) => '.',
            }));
        }
        f.debug_struct("Bitmap")
            .field("depth", &depth)
            .field("busy", &self.busy_count())
            .field("words", &words)
            .finish()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
