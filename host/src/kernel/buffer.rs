//! Memory that the kernel borrows: payload buffers, and the ring of buffers that sockets receive into.
//!
//! While a read is in flight the kernel writes into its buffer at any time, so the buffer must neither move nor be used for
//! anything else. Each worker has a pool of its own with a fixed budget, so a client cannot make the server grow: with
//! 512 MiB for 4 workers, a worker gives out at most 128 MiB. A single request that is larger is served alone.
//!
//! buffer.1  A buffer is page-aligned, so that direct I/O takes it as it is.
//! buffer.2  A buffer belongs to one request from `get` to `put`, and its memory stays where it is in between.
//! buffer.3  All buffers of a worker together hold no more than its budget; past it `get` answers `Full`. A quarter of the budget
//!           is for buffers of up to 64 KiB alone, so that clients with large requests cannot keep all of it from the others. One
//!           buffer larger than the budget is given while no other is out. A request that gets none waits in a line, whichever front it comes by. While
//!           the first of it awaits a large one, nobody else is given any, and small ones keep to their quarter; once no large one is
//!           out, also to what the awaited one will leave: else it would find no room for as long as small ones are asked for.
//!           A buffer that is not from the arena needs new memory. Where the kernel has none, its request fails alone.
//! buffer.4  Once warm, buffers of up to 1 MiB come from free lists: nothing is allocated.
//! buffer.5  A block without a buffer in use can be given back to the kernel; it is all zeroes then, and has memory again once it is used. The
//!           ring forgets it first: the kernel would go on to read and write the old pages.

use std::io;
use std::ptr::NonNull;

use super::mapping::Mapping;

/// The alignment of every buffer: the kernel's page, which direct I/O takes on any disk.
const PAGE: usize = 4096;
/// A block is cut into buffers of one size class. Chosen: as large as the largest class.
pub(crate) const BLOCK: usize = 1 << 20;
/// The largest small buffer (buffer.3). Chosen: of the 128 MiB that each of four workers has by default, the quarter
/// that is kept for small ones holds 512 of them.
const SMALL: usize = 64 << 10;
/// 4, 16, 64, 256 KiB and 1 MiB. Chosen: by fours a request wastes less than three quarters, and five lists are few.
const CLASSES: usize = 5;

/// Page-aligned memory, zero and untouched until it is written to, given back when dropped.
pub(crate) struct Pages(Mapping);

impl Pages {
    /// Memory of this many bytes.
    ///
    /// # Panics
    /// There is no room for them in the address space.
    pub(crate) fn new(bytes: usize) -> Self {
        Self::reserve(bytes).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same. The allocator would fill aligned memory with zeroes itself, and so make all of it resident: hence a mapping.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Self> {
        assert!(bytes > 0);
        let refused = |error: io::Error| io::Error::new(error.kind(), format!("no memory for {bytes} bytes: {error}"));
        Mapping::private(bytes).map(Self).map_err(refused)
    }

    /// Where the kernel finds them.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.0.bytes().as_ptr().cast()
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.bytes().len()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has these bytes, zeroes at first, and the borrow is exclusive.
        unsafe { self.0.bytes().as_mut() }
    }

    /// Makes `len` bytes from `at` on zero and untouched, as at first. No pointer to them may be used any more.
    fn give_back(&mut self, at: usize, len: usize) {
        let bytes = &mut self.bytes_mut()[at..at + len];
        // SAFETY: the bytes are this mapping's, which is private and anonymous; the borrow is exclusive. That it fails changes nothing.
        let _ = unsafe { libc::madvise(bytes.as_mut_ptr().cast(), bytes.len(), libc::MADV_DONTNEED) };
    }
}

pub(crate) struct Buffer {
    start: NonNull<u8>,
    len: usize,
    home: Home,
}

enum Home {
    /// A block of the arena, cut for this class.
    Arena { block: u16, class: u8 },
    /// Memory of its own.
    Own(#[expect(dead_code, reason = "held to be freed with the buffer")] Pages),
}

// SAFETY: a buffer is the only handle on its bytes (buffer.2).
unsafe impl Send for Buffer {}

impl Buffer {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` bytes, initialised (zeroed at allocation), until `put` or drop; the
        // worker hands out no `&mut` while it reads, because both go through the borrow of `self`. While the kernel
        // writes into it (a read in flight), the worker does not look: the command is in the device's hands.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Where the kernel finds the bytes.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The number under which its block may be registered with the ring.
    pub(crate) fn block(&self) -> Option<u16> {
        match self.home {
            Home::Arena { block, .. } => Some(block),
            Home::Own(_) => None,
        }
    }

    /// How much of the budget it holds.
    fn weight(&self) -> u64 {
        match self.home {
            Home::Arena { class, .. } => class_size(usize::from(class)) as u64,
            Home::Own(_) => self.len as u64,
        }
    }

    /// The same, of a large one.
    fn large_weight(&self) -> u64 {
        if self.len > SMALL { self.weight() } else { 0 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoBuffer {
    /// The budget is used up until one comes back.
    Full,
    /// The kernel has no memory: of more for a process (`ulimit -v`), or where it promises no more than there is.
    NoMemory,
}

pub(crate) struct Pool {
    arena: Pages,
    blocks: u16,
    /// Blocks cut so far.
    cut: u16,
    free: [Vec<(NonNull<u8>, u16)>; CLASSES],
    used: u64,
    /// The part of it in buffers that are not small.
    used_large: u64,
    budget: u64,
    /// The log has that there was no memory.
    is_told: bool,
    /// Those that wait, the longest first (buffer.3).
    line: Vec<Waiting>,
    round: u64,
}

/// A request that waits for a buffer, and the round in which it last asked for it.
struct Waiting {
    who: u64,
    len: usize,
    round: u64,
}

// SAFETY: the free lists point into `arena`, which moves along with them.
unsafe impl Send for Pool {}

impl Pool {
    /// A pool that gives out at most `budget` bytes; the first `blocks` MiB come from one arena (touched as needed).
    pub(crate) fn new(budget: u64, blocks: u16) -> io::Result<Self> {
        let arena = Pages::reserve(usize::from(blocks.max(1)) * BLOCK)?;
        let (blocks, free, line) = (blocks.max(1), Default::default(), Vec::new());
        Ok(Self { arena, blocks, cut: 0, free, used: 0, used_large: 0, budget, is_told: false, line, round: 0 })
    }

    /// A buffer of `len` bytes, their content unspecified but never another process's (buffer.3).
    pub(crate) fn get(&mut self, len: usize) -> Result<Buffer, NoBuffer> {
        let Self { used, used_large, budget, .. } = *self;
        let weight = weight(len);
        let leaves_quarter = len <= SMALL || used_large == 0 || used_large + weight <= budget - budget / 4;
        if used > 0 && !(used + weight <= budget && leaves_quarter) {
            return Err(NoBuffer::Full);
        }
        self.take(len).map_err(|error| {
            if !std::mem::replace(&mut self.is_told, true) {
                tracing::warn!(%error, "a request fails, and others may");
            }
            NoBuffer::NoMemory
        })
    }

    /// The same, of a small one, while a large one of `awaited` bytes is awaited (buffer.3).
    fn get_beside(&mut self, len: usize, awaited: usize) -> Result<Buffer, NoBuffer> {
        let small = self.used - self.used_large + weight(len);
        let left = if self.used_large > 0 { self.budget } else { self.budget.saturating_sub(awaited as u64) };
        if small <= left.min(self.budget / 4) { self.get(len) } else { Err(NoBuffer::Full) }
    }

    /// The same as `get`, for one of several that ask, by a number of its own. If it is `Full`, it waits in line, and asks again in each
    /// round until it is not.
    pub(crate) fn get_in_line(&mut self, who: u64, len: usize) -> Result<Buffer, NoBuffer> {
        let place = self.line.iter().position(|one| one.who == who);
        let buffer = match self.line.first().map(|first| first.len).filter(|_| place != Some(0)) {
            // The request that has waited longest goes first: a large one would never find room.
            Some(_) if len > SMALL => Err(NoBuffer::Full),
            Some(awaited) if awaited > SMALL => self.get_beside(len, awaited),
            _ => self.get(len),
        };
        let waits = matches!(buffer, Err(NoBuffer::Full));
        let waiting = Waiting { who, len, round: self.round };
        match place {
            Some(place) if waits => self.line[place] = waiting,
            Some(place) => drop(self.line.remove(place)),
            None if waits => self.line.push(waiting),
            None => {}
        }
        buffer
    }

    /// All that wait are about to ask again: those that have not asked since the last time wait no more.
    pub(crate) fn next_round(&mut self) {
        let round = self.round;
        self.line.retain(|waiting| waiting.round == round);
        self.round += 1;
    }

    pub(crate) fn is_awaited(&self) -> bool {
        !self.line.is_empty()
    }

    /// A buffer, whatever is given out already: for a request that has its own, and needs this one to go on. Others wait the longer.
    ///
    /// # Panics
    /// Not even the memory for that is to be had: it is a block of a disk.
    pub(crate) fn get_anyway(&mut self, len: usize) -> Buffer {
        self.take(len).unwrap_or_else(|error| panic!("{error}"))
    }

    fn take(&mut self, len: usize) -> io::Result<Buffer> {
        let class = class_of(len);
        let buffer = match class.and_then(|class| Some((class, self.take_from_arena(class)?))) {
            Some((class, (start, block))) => Buffer { start, len, home: Home::Arena { block, class: class as u8 } },
            None => {
                let pages = Pages::reserve(len.next_multiple_of(PAGE))?;
                Buffer { start: pages.0.bytes().cast(), len, home: Home::Own(pages) }
            }
        };
        self.used += buffer.weight();
        self.used_large += buffer.large_weight();
        Ok(buffer)
    }

    pub(crate) fn put(&mut self, buffer: Buffer) {
        self.used -= buffer.weight();
        self.used_large -= buffer.large_weight();
        match buffer.home {
            Home::Arena { block, class } => self.free[usize::from(class)].push((buffer.start, block)),
            Home::Own(_) => {}
        }
    }

    /// Gives the memory back of blocks without a buffer in use (buffer.5); `forget` has the ring forget one, and says whether it has.
    pub(crate) fn give_back(&mut self, mut forget: impl FnMut(u16) -> bool) {
        let mut free = vec![0; usize::from(self.cut)];
        for (class, list) in self.free.iter().enumerate() {
            list.iter().for_each(|(_, block)| free[usize::from(*block)] += class_size(class));
        }
        for block in (0..self.cut).filter(|block| free[usize::from(*block)] == BLOCK) {
            if forget(block) {
                self.arena.give_back(usize::from(block) * BLOCK, BLOCK);
            }
        }
    }

    pub(crate) const fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn block_start(&self, block: u16) -> *mut u8 {
        assert!(block < self.blocks);
        // SAFETY: the arena holds `blocks` blocks.
        unsafe { self.arena.as_ptr().add(usize::from(block) * BLOCK) }
    }

    pub(crate) const fn blocks(&self) -> u16 {
        self.blocks
    }

    fn take_from_arena(&mut self, class: usize) -> Option<(NonNull<u8>, u16)> {
        if let Some(found) = self.free[class].pop() {
            return Some(found); // buffer.4
        }
        if self.cut == self.blocks {
            return None;
        }
        let block = self.cut;
        self.cut += 1;
        let start = self.block_start(block);
        for part in (0..BLOCK / class_size(class)).rev() {
            // SAFETY: the part lies within the block.
            let start = unsafe { start.add(part * class_size(class)) };
            self.free[class].push((NonNull::new(start).expect("inside the arena"), block));
        }
        self.free[class].pop()
    }
}

const fn class_size(class: usize) -> usize {
    PAGE << (2 * class)
}

fn class_of(len: usize) -> Option<usize> {
    (0..CLASSES).find(|class| len <= class_size(*class))
}

/// How much of the budget a buffer of this length holds.
fn weight(len: usize) -> u64 {
    class_of(len).map_or(len, class_size) as u64
}

/// Buffers that sockets receive into, chosen by the kernel when data is there: idle connections hold no memory.
///
/// recv.1  A buffer is the kernel's from `publish` to the completion that names it, then ours until published again.
pub(crate) struct RecvRing {
    entries: Pages,
    memory: Pages,
    size: u32,
    buffers: u16,
    /// Buffers that take part so far; it grows when the kernel runs out, so that a quiet server stays in warm memory.
    active: u16,
    tail: u16,
}

impl RecvRing {
    /// `buffers` (a power of two) of `size` bytes, none published yet.
    pub(crate) fn new(buffers: u16, size: u32) -> io::Result<Self> {
        assert!(buffers.is_power_of_two());
        Ok(Self {
            entries: Pages::reserve(usize::from(buffers) * size_of::<io_uring::types::BufRingEntry>())?,
            memory: Pages::reserve(usize::from(buffers) * size as usize)?,
            size,
            buffers,
            active: 0,
            tail: 0,
        })
    }

    /// Where the ring of entries is, for registering, and how many it has.
    pub(crate) fn entries(&self) -> (u64, u16) {
        (self.entries.as_ptr() as u64, self.buffers)
    }

    /// Lets one more buffer take part; whether there was one.
    pub(crate) fn grow(&mut self) -> bool {
        if self.active == self.buffers {
            return false;
        }
        let buffer = self.active;
        self.active += 1;
        self.publish(buffer);
        true
    }

    /// Gives the memory back, while nothing is received (buffer.5).
    pub(crate) fn give_back(&mut self) {
        self.memory.give_back(0, usize::from(self.active) * self.size as usize);
    }

    /// Bytes that the kernel received into a buffer.
    pub(crate) fn received(&self, buffer: u16, len: usize) -> &[u8] {
        assert!(buffer < self.active && len <= self.size as usize, "the kernel named a buffer it was not given");
        // SAFETY: the range lies within `memory` (asserted), is initialised (zeroed at allocation), and is ours until
        // it is published again (recv.1), which needs `&mut self`.
        unsafe {
            let start = self.memory.as_ptr().add(usize::from(buffer) * self.size as usize);
            std::slice::from_raw_parts(start, len)
        }
    }

    pub(crate) fn publish(&mut self, buffer: u16) {
        use io_uring::types::BufRingEntry;
        use std::sync::atomic::{AtomicU16, Ordering};
        assert!(buffer < self.active);
        let ring = self.entries.as_ptr().cast::<BufRingEntry>();
        // SAFETY: the slot lies within `entries`; the kernel reads it only once the tail says so. The tail is a `u16`
        // in the reserved field of the first entry, shared with the kernel alone, hence the atomic store.
        unsafe {
            let slot = &mut *ring.add(usize::from(self.tail & (self.buffers - 1)));
            slot.set_addr(self.memory.as_ptr().add(usize::from(buffer) * self.size as usize) as u64);
            slot.set_len(self.size);
            slot.set_bid(buffer);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(ring).cast_mut().cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn a_buffer_has_the_length_asked_for_and_starts_on_a_page() {
        let mut pool = Pool::new(64 << 20, 4).unwrap();
        for len in [1, 512, 4096, 4097, 65536, 1 << 20, 5 << 20] {
            let mut buffer = pool.get(len).unwrap();
            assert_eq!(buffer.bytes().len(), len);
            assert_eq!(buffer.as_ptr() as usize % PAGE, 0, "buffer.1");
            buffer.bytes_mut().fill(7);
            pool.put(buffer);
        }
        assert_eq!(pool.used(), 0);
    }

    /// buffer.2
    #[test]
    fn buffers_in_use_do_not_overlap() {
        let mut pool = Pool::new(64 << 20, 2).unwrap();
        let mut buffers: Vec<_> = (0..700).map(|n| (n, pool.get(4096).unwrap())).collect();
        for (n, buffer) in &mut buffers {
            buffer.bytes_mut().fill(*n as u8);
        }
        for (n, buffer) in &buffers {
            assert!(buffer.bytes().iter().all(|byte| *byte == *n as u8), "buffer {n} was written by another");
        }
    }

    /// buffer.3
    #[test]
    fn past_its_budget_the_pool_gives_nothing() {
        let mut pool = Pool::new(10 * 4096, 1).unwrap();
        let mut held: Vec<_> = (0..10).map(|_| pool.get(100).unwrap()).collect();
        assert_eq!(pool.get(1).err(), Some(NoBuffer::Full));
        pool.put(held.pop().unwrap());
        assert!(pool.get(1).is_ok());
    }

    /// buffer.3
    #[test]
    fn a_large_buffer_finds_room_though_small_ones_are_asked_for_without_an_end() {
        for large in [1 << 20, 20 << 20, 24 << 20, 28 << 20, 32 << 20] {
            let mut pool = Pool::new(32 << 20, 4).unwrap();
            let mut small: VecDeque<_> = std::iter::from_fn(|| pool.get(SMALL).ok()).collect();
            let mut rounds = 0;
            while pool.get(large).is_err() {
                pool.put(small.pop_front().expect("nothing else is out"));
                small.extend(pool.get_beside(4096, large));
                rounds += 1;
                assert!(rounds < 10_000, "{large} bytes find no room");
            }
        }
    }

    /// buffer.3
    #[test]
    fn small_buffers_have_a_quarter_whatever_is_asked_for() {
        let mut pool = Pool::new(64 << 20, 4).unwrap();
        let large = std::iter::from_fn(|| pool.get(1 << 20).ok()).count();
        let small = std::iter::from_fn(|| pool.get_beside(SMALL, 1 << 20).ok()).count();
        assert_eq!((large, small), (48, (16 << 20) / SMALL));
    }

    /// buffer.3
    #[test]
    fn small_buffers_are_given_while_the_large_one_that_is_awaited_waits_for_another_large_one() {
        let mut pool = Pool::new(32 << 20, 4).unwrap();
        let slow = pool.get(20 << 20).unwrap();
        assert!(pool.get_in_line(1, 32 << 20).is_err());
        let small: Vec<_> = std::iter::from_fn(|| pool.get_in_line(2, SMALL).ok()).collect();
        assert_eq!(small.len(), (8 << 20) / SMALL, "they have a quarter");
        pool.put(slow);
        assert!(pool.get_in_line(3, 4096).is_err(), "the first in line is next");
        small.into_iter().for_each(|buffer| pool.put(buffer));
        assert!(pool.get_in_line(1, 32 << 20).is_ok());
    }

    /// buffer.3: whichever fronts they come by.
    #[test]
    fn whoever_waits_longest_goes_first_and_whoever_asks_no_more_is_waited_for_no_more() {
        const LARGE: usize = 3 << 20;
        let mut pool = Pool::new(4 << 20, 4).unwrap();
        let mut all: VecDeque<_> = std::iter::from_fn(|| pool.get(SMALL).ok()).collect();
        for who in [7, 8, 9] {
            assert!(pool.get_in_line(who, LARGE).is_err(), "there is no memory");
        }
        for _ in 0..1000 {
            pool.next_round();
            pool.put(all.pop_front().unwrap());
            all.extend(pool.get_in_line(1, SMALL));
            // The first one has gone without a word.
            assert!(pool.get_in_line(9, LARGE).is_err(), "it is the last in line");
            if let Ok(buffer) = pool.get_in_line(8, LARGE) {
                pool.put(buffer);
                assert!(pool.get_in_line(9, LARGE).is_ok(), "then it is the next one's turn");
                return;
            }
        }
        panic!("a large one finds no room beside small ones");
    }

    /// buffer.5
    #[test]
    fn blocks_of_which_no_buffer_is_out_are_given_back() {
        let mut pool = Pool::new(64 << 20, 4).unwrap();
        let mut all: Vec<_> = (0..3 * BLOCK / SMALL).map(|_| pool.get(SMALL).unwrap()).collect();
        all.iter_mut().for_each(|buffer| buffer.bytes_mut().fill(7));
        let (stays, is_known) = (all.pop().unwrap(), 0);
        all.into_iter().for_each(|buffer| pool.put(buffer));
        let mut forgotten = Vec::new();
        pool.give_back(|block| {
            forgotten.push(block);
            block != is_known
        });
        assert!(stays.block() == Some(2) && stays.bytes().iter().all(|byte| *byte == 7));
        assert_eq!(forgotten, [0, 1]);
        let mut again: Vec<_> = (0..3 * BLOCK / SMALL - 1).map(|_| pool.get(SMALL).unwrap()).collect();
        for buffer in &mut again {
            let byte = if buffer.block() == Some(1) { 0 } else { 7 };
            assert!(buffer.bytes().iter().all(|is| *is == byte), "block {:?}", buffer.block());
            buffer.bytes_mut().fill(9);
        }
        assert_eq!(pool.used(), 3 << 20);
    }

    #[test]
    fn a_request_larger_than_the_budget_is_served_alone() {
        let mut pool = Pool::new(4096, 1).unwrap();
        let large = pool.get(1 << 20).unwrap();
        assert_eq!(pool.get(1).err(), Some(NoBuffer::Full));
        pool.put(large);
        assert!(pool.get(1).is_ok());
    }

    /// buffer.3
    #[test]
    fn where_the_kernel_has_no_memory_for_a_buffer_that_one_alone_is_missing() {
        let mut pool = Pool::new(u64::MAX, 1).unwrap();
        assert_eq!(pool.get(1 << 60).err(), Some(NoBuffer::NoMemory));
        assert!(pool.used() == 0 && pool.get(5 << 20).is_ok(), "nothing is held of it");
    }
}
