//! For tests: a disk with a volatile cache, which answers late, in any order, and sometimes with an error. The oracle's [`Media`] says what may be
//! left of it after a cut of the power: each sector by itself, in any order, a flush covers what had ended before it was given.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use fairlift_core::queue::Segment;
use fairlift_core::{Errno, Extent, Instant, Limits, Op, Outcome, Sector, Tag};
use fairlift_lab::Random;
use fairlift_proving::power_cut::{Landing, Media, OnFailure, Piece, Stamp};

use crate::device::lane::{Address, Completed, Io, Lane, Request};
use crate::device::{Device, Facts, Run};
use crate::kernel::call::Call;
use crate::kernel::ring::Source;
use crate::sync::{Mutex, MutexGuard, lock};

pub(crate) const SECTOR: u64 = Sector::SIZE;

type SectorBytes = [u8; SECTOR as usize];

/// A disk as a file would be; what was never written is zeroes.
pub(crate) struct Volatile {
    pub(crate) size: u64,
    /// The sectors that somebody uses. No other is ever written.
    used: Box<[Range<u64>]>,
    content: Mutex<Content>,
    seed: u64,
    /// One request in this many fails, and is turned back; 0: none.
    faults: (u64, u64),
    /// Its block: requests are whole blocks, of this many sectors.
    block: u32,
}

pub(crate) struct Content {
    media: Media,
    /// The content of each stamp; the first is zeroes.
    known: Vec<SectorBytes>,
    requests: u64,
    /// Requests of lanes that have not ended.
    under_way: Vec<u64>,
    random: Random,
    /// The requests so far, in a letter each, with their ranges.
    pub(crate) log: Vec<(char, u64, u64)>,
    /// The next write fails with that.
    pub(crate) next_write: Option<Errno>,
    /// How many calls of its [`Store`] it still does before its power goes.
    calls_left: Option<u64>,
}

const ZEROES: Stamp = 0;

impl Volatile {
    pub(crate) fn new(size: u64, used: &[Range<u64>], seed: u64, faults: (u64, u64)) -> Arc<Self> {
        let used: Box<[_]> = used.iter().filter(|range| !range.is_empty()).cloned().collect();
        assert!(used.iter().all(|range| range.start % 8 == 0), "whole blocks");
        let sectors = used.iter().map(|range| range.end - range.start).sum();
        let media = Media::new(sectors, OnFailure::Keeps, seed);
        Arc::new(Self::of(size, used, media, vec![[0; SECTOR as usize]], seed, faults))
    }

    /// A disk that knows blocks of this size and no smaller ones, all of it used.
    pub(crate) fn in_blocks(size: u64, block: u64, seed: u64, faults: (u64, u64)) -> Arc<Self> {
        let whole = Self::new(size, std::slice::from_ref(&(0..size / SECTOR)), seed, faults);
        let whole = Arc::into_inner(whole).expect("it was just made");
        Arc::new(Self { block: (block / SECTOR) as u32, ..whole })
    }

    fn of(
        size: u64,
        used: Box<[Range<u64>]>,
        media: Media,
        known: Vec<SectorBytes>,
        seed: u64,
        faults: (u64, u64),
    ) -> Self {
        let content = Content {
            media,
            known,
            requests: 0,
            under_way: Vec::new(),
            random: Random::new(seed),
            log: Vec::new(),
            next_write: None,
            calls_left: None,
        };
        Self { size, used, content: Mutex::new(content), seed, faults, block: 1 }
    }

    pub(crate) fn content(&self) -> MutexGuard<'_, Content> {
        lock(&self.content)
    }

    /// The media's sector.
    fn place(&self, sector: u64) -> Option<u64> {
        let mut before = 0;
        for range in &self.used {
            if range.contains(&sector) {
                return Some(before + sector - range.start);
            }
            before += range.end - range.start;
        }
        None
    }

    pub(crate) fn put(&self, at: u64, bytes: &[u8]) {
        let mut content = self.content();
        let request = self.submit(&mut content, Op::Write, at, bytes.len() as u64, Some(bytes));
        content.ends(request, Outcome::Done, Landing::Last);
    }

    pub(crate) fn erase(&self, at: u64, len: u64) {
        let mut content = self.content();
        let request = self.submit(&mut content, Op::WriteZeroes, at, len, None);
        content.ends(request, Outcome::Done, Landing::Last);
    }

    pub(crate) fn get(&self, at: u64, bytes: &mut [u8]) {
        let content = self.content();
        for (sector, bytes) in (at / SECTOR..).zip(bytes.chunks_exact_mut(SECTOR as usize)) {
            let stamp = self.place(sector).map_or(ZEROES, |place| content.media.now(place));
            bytes.copy_from_slice(&content.known[stamp as usize]);
        }
    }

    pub(crate) fn settle(&self) {
        let mut content = self.content();
        let request = self.submit(&mut content, Op::Flush, 0, 0, None);
        content.ends(request, Outcome::Done, Landing::Last);
    }

    /// Gives a request to the media: what it does to which sector.
    fn submit(&self, content: &mut Content, op: Op, at: u64, len: u64, bytes: Option<&[u8]>) -> u64 {
        content.requests += 1;
        let sectors = at / SECTOR..(at + len) / SECTOR;
        let pieces = match op {
            Op::Read | Op::Flush => Vec::new(),
            Op::Write | Op::WriteZeroes | Op::Discard => {
                let piece = |(index, sector): (usize, u64)| {
                    let stamp = bytes.map_or(ZEROES, |bytes| {
                        let from = index * SECTOR as usize;
                        content.known.push(bytes[from..from + SECTOR as usize].try_into().unwrap());
                        content.known.len() as Stamp - 1
                    });
                    match self.place(sector) {
                        None => assert_ne!(op, Op::Write, "sector {sector} is used by nobody"),
                        Some(place) => return Some(Piece { extent: Extent::new(Sector(place), 1), stamp }),
                    }
                    None
                };
                sectors.enumerate().filter_map(piece).collect()
            }
        };
        let all = Extent::new(Sector(0), content.media.sectors());
        content.media.submit(content.requests, op, false, all, pieces);
        content.requests
    }

    /// The server is gone, and the disk is not: what it had been given ends, well or not.
    pub(crate) fn kill(&self) {
        let mut content = self.content();
        for request in std::mem::take(&mut content.under_way) {
            let outcome = [Outcome::Done, Outcome::Failed(Errno::EIO)][content.random.below(2) as usize];
            content.ends(request, outcome, Landing::Anywhere);
        }
    }

    /// The disk after a power cut: of the writes not flushed any part is left, in any order.
    pub(crate) fn cut(&self, random: &mut Random) -> Arc<Self> {
        let content = self.content();
        let mut known = vec![[0; SECTOR as usize]];
        // Nothing is left, or all, or anything; or that differs from block to block.
        let all = random.below(4);
        let mut block = all;
        let sectors: Vec<Stamp> = (0..content.media.sectors())
            .map(|sector| {
                if all == 3 && sector % 8 == 0 {
                    block = random.below(3);
                }
                let mut may = content.media.possible(sector);
                let stamp = match block {
                    0 => may.next().expect("it holds something"),
                    1 => content.media.now(sector),
                    _ => {
                        let may: Vec<_> = may.collect();
                        may[random.below(may.len() as u64) as usize]
                    }
                };
                if stamp == ZEROES {
                    return ZEROES;
                }
                known.push(content.known[stamp as usize]);
                known.len() as Stamp - 1
            })
            .collect();
        let seed = random.bits();
        let media = Media::holding(sectors, OnFailure::Keeps, seed);
        Arc::new(Self::of(self.size, self.used.clone(), media, known, seed, self.faults))
    }

    /// Its power goes after `calls` calls of its [`Store`].
    pub(crate) fn loses_power_after(&self, calls: u64) {
        self.content().calls_left = Some(calls);
    }

    /// It has power again.
    pub(crate) fn keeps_power(&self) {
        self.content().calls_left = None;
    }

    /// A call of it as a store; it fails when the power is gone.
    pub(crate) fn call(&self) -> io::Result<()> {
        match &mut self.content().calls_left {
            Some(0) => Err(io::Error::other("the power is gone")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Where the next data begins, at or after a byte.
    pub(crate) fn data_after(&self, at: u64) -> Option<u64> {
        let content = self.content();
        let from = at / SECTOR;
        let all = self.used.iter().cloned().flatten().zip(0..);
        let mut data = all.filter(|(sector, place)| *sector >= from && content.media.now(*place) != ZEROES);
        data.next().map(|(sector, _)| (sector * SECTOR).max(at))
    }

    pub(crate) fn take_log(&self) -> String {
        std::mem::take(&mut self.content().log).iter().map(|(what, ..)| *what).collect()
    }
}

impl Content {
    fn ends(&mut self, request: u64, outcome: Outcome, landing: Landing) {
        self.under_way.retain(|other| *other != request);
        self.media.end(request, outcome, landing);
    }
}

impl Device for Volatile {
    fn path(&self) -> Option<&std::path::Path> {
        Some(std::path::Path::new("/volatile"))
    }

    fn facts(&self) -> Facts {
        let plain = Facts::plain(self.size);
        Facts { limits: Limits { block: self.block, ..plain.limits }, ..plain }
    }

    fn called(&self) -> String {
        "volatile".into()
    }

    fn lane(self: Arc<Self>, address: Address) -> Box<dyn Lane> {
        Box::new(OnVolatile { random: Random::new(self.seed), device: self, address, waiting: Vec::new() })
    }

    fn run(&self, _: u64, len: u64) -> io::Result<Run> {
        Ok(Run { len, hole: false })
    }
}

/// Answers in any order, late, and sometimes with an error; a write that fails may have been done in part.
struct OnVolatile {
    device: Arc<Volatile>,
    address: Address,
    waiting: Vec<Waiting>,
    random: Random,
}

struct Waiting {
    request: Request,
    segments: Vec<Segment>,
    /// As the disk knows it; `None`: it will be turned back.
    number: Option<u64>,
}

impl OnVolatile {
    /// One in `of`; 0: never.
    fn chance(&mut self, of: u64) -> bool {
        of > 0 && self.random.below(of) == 0
    }

    /// Is told of a request in a later turn.
    fn later(&self, io: &mut Io<'_>, tag: Tag) {
        let Address { disk, place, .. } = self.address;
        // SAFETY: the call names no memory.
        unsafe { io.ring.push(Call::Nop, Source::Io { disk, place, tag }.pack()) }
    }
}

impl Lane for OnVolatile {
    fn queue(&mut self, io: &mut Io<'_>, _: Instant, requests: &[Request], mut segments: &[Segment]) {
        for request in requests {
            let (mine, rest) = segments.split_at(request.segments);
            segments = rest;
            let number = (!self.chance(self.device.faults.1)).then(|| {
                let mut bytes = Vec::new();
                if request.op == Op::Write {
                    for_each_piece(io, mine, |piece| {
                        let from = bytes.len();
                        bytes.resize(from + piece.len(), 0);
                        piece.copy_to(&mut bytes[from..]);
                    });
                }
                let bytes = (request.op == Op::Write).then_some(&*bytes);
                let mut content = self.device.content();
                let number = self.device.submit(&mut content, request.op, request.at, request.bytes, bytes);
                content.under_way.push(number);
                number
            });
            self.waiting.push(Waiting { request: *request, segments: mine.to_vec(), number });
            self.later(io, request.tag);
        }
    }

    fn completed(&mut self, io: &mut Io<'_>, _: Instant, steps: &[Completed]) {
        for Completed { tag, .. } in steps {
            if self.random.below(3) > 0 {
                self.later(io, *tag);
                continue;
            }
            let index = self.waiting.iter().position(|waiting| waiting.request.tag == *tag);
            let Waiting { request, segments, number } = self.waiting.swap_remove(index.expect("it waits"));
            let Some(number) = number else {
                io.busy.push(request.tag);
                continue;
            };
            let fails = self.chance(self.device.faults.0);
            let landing = [Landing::First, Landing::Last, Landing::Anywhere][self.random.below(3) as usize];
            let mut content = self.device.content();
            let errno = if request.op == Op::Write { content.next_write.take() } else { None };
            let outcome = errno.or(fails.then_some(Errno::EIO)).map_or(Outcome::Done, Outcome::Failed);
            content.ends(number, outcome, landing);
            if outcome == Outcome::Done {
                let letter = match request.op {
                    Op::Read => 'r',
                    Op::Write => 'w',
                    Op::Flush => 'f',
                    Op::Discard => 'd',
                    Op::WriteZeroes => 'z',
                };
                content.log.push((letter, request.at, request.bytes));
            }
            drop(content);
            if request.op == Op::Read {
                let mut at = request.at;
                for_each_piece(io, &segments, |piece| {
                    let mut bytes = vec![0; piece.len()];
                    self.device.get(at, &mut bytes);
                    piece.copy_from(&bytes);
                    at += bytes.len() as u64;
                });
            }
            io.ended.push((request.tag, outcome));
        }
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }
}

fn for_each_piece(io: &mut Io<'_>, segments: &[Segment], mut visit: impl FnMut(vm_memory::VolatileSlice<'_>)) {
    for segment in segments {
        let memory = &mut io.tickets[segment.token.0 as usize].memory;
        memory.for_each(segment.offset.get() as usize, segment.bytes.get() as usize, &mut visit);
    }
}
