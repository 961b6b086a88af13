//! Overlays on disks that are slow, fail, and lose what was not flushed, against the dullest model; and on real files.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use fairlift_core::queue::Segment;
use fairlift_core::time::ms;
use fairlift_core::{
    Bio, ContextId, Duration, Errno, Extent, Flags, Group, GroupId, Instant, Op, Outcome, Priority, Sector, Stream,
    StreamId, Token, sched,
};
use fairlift_lab::{Random, repeat};
use vm_memory::VolatileSlice;

use super::files::{Below, LayerFile, Store, read_header};
use super::format::{BLOCK, Base, Fingerprint, Header, PAGE_BLOCKS, data_offset, file_len, header_offset};
use super::map::{BlockState, Merged};
use super::*;
use crate::config;
use crate::device::lane::{self, Address, Io, Lane, Request};
use crate::device::{Facts, Inline};
use crate::disk::engine::{Engine, News};
use crate::disk::{Disk, Disks};
use crate::kernel::buffer::Pool;
use crate::kernel::helpers::Helpers;
use crate::kernel::notify::Notifiers;
use crate::kernel::ring::{Kind, Ring, Source, Wait};
use crate::kernel::ticket::{Memory, Part};

mod cuts;

pub(super) const SECTOR: u64 = Sector::SIZE;

/// A disk with a volatile cache, as a file would be; what was never written is zeroes.
pub(super) struct Volatile {
    pub(super) size: u64,
    inner: Mutex<Content>,
    seed: u64,
    /// One in so many requests fails; 0: none.
    fails: u64,
}

#[derive(Default)]
struct Content {
    durable: BTreeMap<u64, [u8; SECTOR as usize]>,
    /// Writes since the last flush, in order; `None`: a hole was punched.
    cached: Vec<(u64, Option<[u8; SECTOR as usize]>)>,
    now: BTreeMap<u64, [u8; SECTOR as usize]>,
    /// What was asked, in a letter each, and where.
    log: Vec<(char, u64, u64)>,
    /// The next write fails with that.
    next_write: Option<Errno>,
}

impl Volatile {
    pub(super) fn new(size: u64, seed: u64, fails: u64) -> Arc<Self> {
        Arc::new(Self { size, inner: Mutex::default(), seed, fails })
    }

    fn content(&self) -> crate::sync::MutexGuard<'_, Content> {
        lock(&self.inner)
    }

    pub(super) fn put(&self, at: u64, bytes: &[u8]) {
        let mut content = self.content();
        for (place, sector) in (at / SECTOR..).zip(bytes.chunks_exact(SECTOR as usize)) {
            let sector: [u8; SECTOR as usize] = sector.try_into().unwrap();
            content.cached.push((place, Some(sector)));
            content.now.insert(place, sector);
        }
    }

    pub(super) fn get(&self, at: u64, bytes: &mut [u8]) {
        let content = self.content();
        for (place, sector) in (at / SECTOR..).zip(bytes.chunks_exact_mut(SECTOR as usize)) {
            sector.copy_from_slice(content.now.get(&place).unwrap_or(&[0; SECTOR as usize]));
        }
    }

    pub(super) fn settle(&self) {
        let content = &mut *self.content();
        for (place, sector) in content.cached.drain(..) {
            match sector {
                Some(sector) => _ = content.durable.insert(place, sector),
                None => _ = content.durable.remove(&place),
            }
        }
    }

    /// What is left after the power was cut: of what was not flushed any part, in any order.
    pub(super) fn cut(&self, random: &mut Random, seed: u64) -> Arc<Self> {
        let mut content = self.content();
        let mut durable = content.durable.clone();
        let mut cached = std::mem::take(&mut content.cached);
        let keeps = random.below(4);
        while !cached.is_empty() {
            let (place, sector) = cached.swap_remove(random.below(cached.len() as u64) as usize);
            if random.below(3) < keeps {
                match sector {
                    Some(sector) => _ = durable.insert(place, sector),
                    None => _ = durable.remove(&place),
                }
            }
        }
        let inner = Mutex::new(Content { now: durable.clone(), durable, ..Content::default() });
        Arc::new(Self { size: self.size, inner, seed, fails: self.fails })
    }

    fn take_log(&self) -> String {
        std::mem::take(&mut self.content().log).iter().map(|(what, ..)| *what).collect()
    }
}

impl Store for Volatile {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.get(at, into);
        Ok(())
    }

    fn write_at(&self, from: &[u8], at: u64) -> io::Result<()> {
        self.put(at, from);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.settle();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn next_data(&self, at: u64) -> Option<u64> {
        self.content().now.range(at / SECTOR..).next().map(|(place, _)| (place * SECTOR).max(at))
    }
}

impl Device for Volatile {
    fn facts(&self) -> Facts {
        Facts::plain(self.size)
    }

    fn called(&self) -> String {
        "volatile".into()
    }

    fn lane(self: Arc<Self>, _: Address) -> Box<dyn Lane> {
        Box::new(OnVolatile { random: Random::new(self.seed), device: self, waiting: Vec::new() })
    }

    fn run(&self, _: u64, len: u64) -> io::Result<Run> {
        Ok(Run { len, hole: false })
    }
}

impl Inline for Volatile {
    fn read(&self, at: u64, into: VolatileSlice<'_>) -> Outcome {
        self.content().log.push(('r', at, into.len() as u64));
        let mut bytes = vec![0; into.len()];
        self.get(at, &mut bytes);
        into.copy_from(&bytes);
        Outcome::Done
    }

    fn write(&self, at: u64, from: VolatileSlice<'_>, _: Flags) -> Outcome {
        let mut bytes = vec![0; from.len()];
        from.copy_to(&mut bytes);
        self.put(at, &bytes);
        Outcome::Done
    }

    fn flush(&self) -> Outcome {
        self.content().log.push(('f', 0, 0));
        self.settle();
        Outcome::Done
    }

    fn discard(&self, at: u64, len: u64) -> Outcome {
        let mut content = self.content();
        content.log.push(('d', at, len));
        for place in at / SECTOR..(at + len) / SECTOR {
            content.cached.push((place, None));
            content.now.remove(&place);
        }
        Outcome::Done
    }

    fn write_zeroes(&self, at: u64, len: u64, _: Flags) -> Outcome {
        self.content().log.push(('z', at, len));
        self.put(at, &vec![0; len as usize]);
        Outcome::Done
    }
}

/// Answers in any order, late, and sometimes with an error; a write that fails may have been done in part.
struct OnVolatile {
    device: Arc<Volatile>,
    waiting: Vec<(Request, Vec<Segment>)>,
    random: Random,
}

impl Lane for OnVolatile {
    fn queue(&mut self, _: &mut Io<'_>, _: Instant, requests: &[Request], mut segments: &[Segment]) {
        for request in requests {
            let (mine, rest) = segments.split_at(request.segments);
            segments = rest;
            self.waiting.push((*request, mine.to_vec()));
        }
    }

    fn is_by_the_clock(&self) -> bool {
        true
    }

    fn poll(&mut self, io: &mut Io<'_>, _: Instant) {
        for index in (0..self.waiting.len()).rev() {
            if self.random.below(3) > 0 {
                continue;
            }
            let (request, segments) = self.waiting.swap_remove(index);
            if self.random.below(40) == 0 {
                io.busy.push(request.tag);
                continue;
            }
            let fails = self.device.fails > 0 && self.random.below(self.device.fails) == 0;
            let errno = if request.op == Op::Write { self.device.content().next_write.take() } else { None };
            let outcome = match errno.or(fails.then_some(Errno::EIO)) {
                Some(errno) => Outcome::Failed(errno),
                None => {
                    if request.op == Op::Write {
                        self.device.content().log.push(('w', request.at, request.bytes));
                    }
                    lane::answer(&*self.device, io.tickets, &request, &mut &segments[..])
                }
            };
            io.ended.push((request.tag, outcome));
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(Instant::ZERO)
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }
}

/// Over `base`: a disk of `size` bytes in a file that has just been made.
pub(super) fn made(size: u64, seed: u64, fails: u64) -> Arc<Volatile> {
    let top = Volatile::new(file_len(size), seed, fails);
    let base = Base { path: "base".into(), is: Fingerprint::Raw { size: 0, changed: (0, 0) } };
    let header = Header { sequence: 1, size, id: [5; 16], opened: 0, clean: true, base };
    top.put(header_offset(1), &header.encode().unwrap());
    top.settle();
    top
}

pub(super) fn below(base: &Arc<Volatile>) -> Arc<Below> {
    Arc::new(Below {
        files: vec![LayerFile { device: Arc::clone(base) as Arc<dyn Device>, offset: 0 }],
        layers: vec![Fingerprint::Raw { size: base.size, changed: (0, 0) }],
        map: Merged::default(),
        base_size: base.size,
        size: base.size,
        is: Fingerprint::Raw { size: base.size, changed: (0, 0) },
    })
}

/// Opens a top as a server would.
pub(super) fn opened(top: &Arc<Volatile>, base: &Arc<Volatile>) -> Result<Arc<Overlay>, String> {
    let header = read_header(&**top)?.counts.unwrap();
    let layers = Layers::of(Arc::clone(top), header, below(base), "base".into(), false)?;
    Ok(Arc::new(Overlay::of("top".into(), layers, Access::default(), false)))
}

/// A request under way.
pub(super) struct Asked {
    worker: usize,
    ticket: usize,
    op: Op,
    sectors: Range<u64>,
    /// Of a flush: the first value that each sector could have then.
    marks: BTreeMap<u64, usize>,
}

/// What a sector may hold: the values that were written since the last flush, the one before that first.
#[derive(Clone)]
pub(super) struct History {
    pub(super) values: Vec<u8>,
    /// How many of them, from the first, are not to be seen any more while the server lives.
    pub(super) hidden: usize,
    pub(super) under_way: bool,
}

/// Two workers on an overlay, and beside them the dullest disk.
pub(super) struct Scene {
    pub(super) engines: Vec<(Engine, StreamId)>,
    pub(super) overlay: Arc<Overlay>,
    pub(super) top: Arc<Volatile>,
    pub(super) base: Arc<Volatile>,
    pub(super) dull: BTreeMap<u64, History>,
    pub(super) under_way: Vec<Asked>,
    pub(super) random: Random,
    pub(super) now: Instant,
}

/// The sectors that are used: at the start, and where one page of the map ends and the next begins.
pub(super) fn windows() -> [Range<u64>; 2] {
    let boundary = PAGE_BLOCKS * BLOCK / SECTOR;
    [0..160, boundary - 80..boundary + 80]
}

pub(super) const SIZE: u64 = (PAGE_BLOCKS + 16) * BLOCK;

fn engines(overlay: &Arc<Overlay>, kind: sched::Kind) -> Vec<(Engine, StreamId)> {
    let settings = config::Disk::new("d", kind);
    let device = Arc::clone(overlay) as Arc<dyn Device>;
    let disk = Arc::new(Disk::new(&settings, &[(device, None)], &[Group::root()], 2).unwrap());
    let notifiers = Arc::new(Notifiers::new(2).unwrap());
    let helpers = Helpers::new(1, &[disk.concurrency], &[], 2, Arc::clone(&notifiers));
    let disks = Disks::new(vec![disk]);
    let engine = |worker| {
        let context = ContextId(worker);
        let (ring, pool) = (Ring::new(Kind::Poll, 64, 64, 1).unwrap(), Pool::new(1 << 20, 1));
        let (disks, notifiers, helpers) = (Arc::clone(&disks), Arc::clone(&notifiers), Arc::clone(&helpers));
        let mut engine = Engine::new(ring, pool, context, disks, notifiers, helpers);
        let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context };
        let stream = engine.add_stream(0, stream);
        (engine, stream)
    };
    vec![engine(0), engine(1)]
}

/// A turn of a worker.
fn turned(engine: &mut Engine, now: Instant) {
    engine.ring.turn(Wait::AtMost(Duration::ZERO));
    while let Some(completion) = engine.ring.reap() {
        if let Source::Io { disk, place, tag } = Source::unpack(completion.data) {
            engine.completed(disk, place, tag, completion.result);
        }
    }
    engine.woken();
    engine.turn(now);
    engine.launch_all();
}

impl Scene {
    pub(super) fn new(seed: u64, fails: u64) -> Self {
        let mut random = Random::new(seed);
        let base_size = [SIZE, SIZE - 3 * BLOCK - SECTOR, 10 * BLOCK + 3 * SECTOR][random.below(3) as usize];
        let base = Volatile::new(base_size, seed + 1, 0);
        let mut dull = BTreeMap::new();
        for place in windows().into_iter().flatten() {
            let value = if place * SECTOR < base_size && random.below(8) > 0 { random.below(255) as u8 + 1 } else { 0 };
            if value > 0 {
                base.put(place * SECTOR, &[value; SECTOR as usize]);
            }
            dull.insert(place, History { values: vec![value], hidden: 0, under_way: false });
        }
        let top = made(SIZE, seed + 2, fails);
        let overlay = opened(&top, &base).unwrap();
        let kind = [sched::Kind::None, sched::Kind::MqDeadline][random.below(2) as usize];
        Self {
            engines: engines(&overlay, kind),
            overlay,
            top,
            base,
            dull,
            under_way: Vec::new(),
            random,
            now: Instant::ZERO,
        }
    }

    pub(super) fn any(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    pub(super) fn ask(&mut self) {
        let window = windows()[self.any(2) as usize].clone();
        let start = window.start + self.any(window.end - window.start);
        let longest = [1, 8, 40][self.any(3) as usize].min(window.end - start);
        let mut sectors = start..start + 1 + self.any(longest);
        let op =
            [Op::Read, Op::Write, Op::Write, Op::Write, Op::WriteZeroes, Op::Discard, Op::Flush][self.any(7) as usize];
        let per = BLOCK / SECTOR;
        if op == Op::Discard || self.any(3) == 0 {
            sectors = sectors.start / per * per..sectors.end.next_multiple_of(per);
        }
        let worker = self.any(2) as usize;
        if op == Op::Flush {
            let marks = self.dull.iter().map(|(place, history)| (*place, history.hidden)).collect();
            return self.submit(worker, op, Flags::NONE, 0..0, 0, marks);
        }
        let range = self.dull.range(sectors.clone()).map(|(_, history)| history.under_way);
        let changes = op != Op::Read;
        // Two that change the same sector at once end in either order, and nobody could say which value is to be there.
        if range.into_iter().any(|under_way| under_way) {
            return;
        }
        let beside = |asked: &Asked| {
            asked.op == Op::Read && asked.sectors.start < sectors.end && sectors.start < asked.sectors.end
        };
        if changes && self.under_way.iter().any(beside) {
            return;
        }
        let value = if op == Op::Write { self.any(255) as u8 + 1 } else { 0 };
        let flags = if op == Op::WriteZeroes && self.any(3) == 0 { Flags::NO_UNMAP } else { Flags::NONE };
        if changes {
            for (_, history) in self.dull.range_mut(sectors.clone()) {
                history.values.push(value);
                history.under_way = true;
            }
        }
        self.submit(worker, op, flags, sectors, value, BTreeMap::new());
    }

    fn submit(
        &mut self,
        worker: usize,
        op: Op,
        flags: Flags,
        sectors: Range<u64>,
        value: u8,
        marks: BTreeMap<u64, usize>,
    ) {
        let (engine, stream) = &mut self.engines[worker];
        let bytes = ((sectors.end - sectors.start) * SECTOR) as usize;
        let memory = match op {
            Op::Read | Op::Write => {
                let buffer = engine.pool.get(bytes).unwrap();
                let mut memory = Memory::Part(Part { buffer, range: 0..bytes });
                memory.bytes_mut().fill(value);
                memory
            }
            _ => Memory::None,
        };
        let ticket = engine.admit(0, memory);
        let extent = Extent::new(Sector(sectors.start), sectors.end - sectors.start);
        engine.submit(0, Bio { op, flags: Flags::SYNC | flags, extent, stream: *stream, token: Token(ticket as u64) });
        self.under_way.push(Asked { worker, ticket, op, sectors, marks });
    }

    pub(super) fn turn(&mut self, worker: usize) {
        let (engine, _) = &mut self.engines[worker];
        self.now += ms(1);
        turned(engine, self.now);
        for (ticket, news) in std::mem::take(&mut engine.news) {
            let at = self.under_way.iter().position(|asked| (asked.worker, asked.ticket) == (worker, ticket));
            let Asked { op, sectors, marks, .. } =
                self.under_way.swap_remove(at.expect("it is told of what was asked, once"));
            let News::Ended(outcome) = news else { panic!("{news:?}") };
            let done = outcome == Outcome::Done;
            match op {
                Op::Read if done => {
                    for (place, bytes) in sectors.zip(engine.memory(ticket).bytes().chunks_exact(SECTOR as usize)) {
                        let history = &self.dull[&place];
                        let may = &history.values[history.hidden..];
                        assert!(
                            bytes.iter().all(|byte| *byte == bytes[0]) && may.contains(&bytes[0]),
                            "sector {place} is {}, not {may:?}",
                            bytes[0]
                        );
                    }
                }
                Op::Read => {}
                Op::Flush => {
                    for (place, gone) in marks.into_iter().filter(|_| done) {
                        // What was there when it was asked for is durable, and so nothing older may come back.
                        let history = self.dull.get_mut(&place).unwrap();
                        history.values.drain(..gone);
                        history.hidden -= gone;
                        for asked in &mut self.under_way {
                            asked.marks.entry(place).and_modify(|mark| *mark = mark.saturating_sub(gone));
                        }
                    }
                }
                Op::Write | Op::WriteZeroes | Op::Discard => {
                    for (_, history) in self.dull.range_mut(sectors) {
                        history.under_way = false;
                        if done {
                            history.hidden = history.values.len() - 1;
                        }
                    }
                }
            }
            engine.release(ticket);
        }
    }

    pub(super) fn finish(&mut self) {
        let mut left = 5000;
        while !self.under_way.is_empty() {
            left -= 1;
            assert!(left > 0, "requests wait for each other for ever");
            self.turn(left % 2);
        }
    }

    /// Reads all sectors by an overlay, without its lanes.
    fn see(overlay: &Overlay, top: &Volatile, base: &Volatile) -> BTreeMap<u64, u8> {
        let see = |place: u64| {
            let mut bytes = [0; SECTOR as usize];
            match overlay.layers().places().of(place * SECTOR / BLOCK) {
                Place::Top => top.get(place * SECTOR + data_offset(SIZE), &mut bytes),
                Place::Below(_) if place * SECTOR < base.size => base.get(place * SECTOR, &mut bytes),
                _ => {}
            }
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "sector {place} is torn");
            (place, bytes[0])
        };
        windows().into_iter().flatten().map(see).collect()
    }
}

/// overlay.1–4: whatever two workers ask at once, of whole blocks or parts, each sector is what was last written there; after a power cut at
/// any time it is that, or anything written since the last flush.
#[test]
fn random_requests_and_power_cuts_are_those_of_a_table_of_sectors() {
    for seed in repeat::seeds(0..30) {
        let fails = [0, 0, 60][(seed % 3) as usize];
        let mut scene = Scene::new(seed, fails);
        for round in 0..12 {
            let steps = scene.any(120);
            for _ in 0..steps {
                if scene.any(3) == 0 {
                    scene.ask();
                } else {
                    let worker = scene.any(2) as usize;
                    scene.turn(worker);
                }
            }
            if round == 11 {
                break;
            }
            // The server is gone, with all that it had under way.
            let Scene { overlay, top, base, mut dull, mut random, engines: before, now, .. } = scene;
            drop((before, overlay));
            let top = top.cut(&mut random, seed + round);
            let overlay = opened(&top, &base).unwrap();
            for (place, value) in Scene::see(&overlay, &top, &base) {
                let history = dull.get_mut(&place).unwrap();
                assert!(
                    history.values.contains(&value),
                    "sector {place} is {value} after the cut, not one of {:?}",
                    history.values
                );
                *history = History { values: vec![value], hidden: 0, under_way: false };
            }
            let engines = engines(&overlay, sched::Kind::MqDeadline);
            scene = Scene { engines, overlay, top, base, dull, under_way: Vec::new(), random, now };
        }
        scene.finish();
        scene.engines.iter().for_each(|(engine, _)| assert_eq!((engine.open(), engine.pool.used()), (0, 0)));
        scene.overlay.flush_now().unwrap();
        let again = scene.top.cut(&mut Random::new(seed), 0);
        let again = (opened(&again, &scene.base).unwrap(), again);
        for (place, value) in Scene::see(&again.0, &again.1, &scene.base) {
            let history = &scene.dull[&place];
            assert!(history.values[history.hidden..].contains(&value), "sector {place} is {value} when it was closed");
        }
    }
}

/// A scene without chance: one request after the other.
struct Calm(Scene);

impl Calm {
    fn new() -> Self {
        let base = Volatile::new(SIZE, 1, 0);
        for place in 0..160 {
            base.put(place * SECTOR, &[7; SECTOR as usize]);
        }
        let top = made(SIZE, 1, 0);
        let overlay = opened(&top, &base).unwrap();
        let engines = engines(&overlay, sched::Kind::None);
        top.take_log();
        let (dull, random, now) = (BTreeMap::new(), Random::new(0), Instant::ZERO);
        Self(Scene { engines, overlay, top, base, dull, under_way: Vec::new(), random, now })
    }

    /// Does something; what came of it, and what was read.
    fn does(&mut self, op: Op, sectors: Range<u64>, value: u8) -> (Outcome, Vec<u8>) {
        self.0.submit(0, op, Flags::NONE, sectors, value, BTreeMap::new());
        let Asked { ticket, .. } = self.0.under_way.pop().unwrap();
        for _ in 0..1000 {
            let (engine, _) = &mut self.0.engines[0];
            self.0.now += ms(1);
            turned(engine, self.0.now);
            if let Some((_, News::Ended(outcome))) = engine.news.pop() {
                let bytes = if op == Op::Read { engine.memory(ticket).bytes().to_vec() } else { Vec::new() };
                engine.release(ticket);
                return (outcome, bytes);
            }
        }
        panic!("it did not end");
    }

    /// The value of each sector that is read.
    fn reads(&mut self, sectors: Range<u64>) -> Vec<u8> {
        let (outcome, bytes) = self.does(Op::Read, sectors, 0);
        assert_eq!(outcome, Outcome::Done);
        bytes.chunks_exact(SECTOR as usize).map(|sector| sector[0]).collect()
    }

    fn done(&mut self, op: Op, sectors: Range<u64>, value: u8) {
        assert_eq!(self.does(op, sectors, value).0, Outcome::Done);
    }

    /// What the top and the base were asked since.
    fn asked(&self) -> (String, String) {
        (self.0.top.take_log(), self.0.base.take_log())
    }
}

fn said(top: &str, base: &str) -> (String, String) {
    (top.into(), base.into())
}

/// overlay.1, overlay.3: what each kind of request costs.
#[test]
fn a_first_write_of_a_block_is_one_write_and_one_of_a_part_reads_once() {
    let mut calm = Calm::new();
    calm.done(Op::Write, 8..16, 1);
    assert_eq!(calm.asked(), said("w", ""));
    calm.done(Op::Write, 17..18, 2);
    assert_eq!(calm.asked(), said("w", "r"), "a part reads its block, and is written with it");
    calm.done(Op::Write, 18..19, 3);
    calm.done(Op::Write, 8..16, 4);
    assert_eq!(calm.asked(), said("ww", ""), "what is in the top is written straight");
    calm.done(Op::Flush, 0..0, 0);
    assert_eq!(calm.asked(), said("fwf", ""), "data, the page that tells of it, and again");
    calm.done(Op::Write, 8..16, 5);
    calm.done(Op::Flush, 0..0, 0);
    assert_eq!(calm.asked(), said("wf", ""), "the map is as it was");
    assert_eq!(calm.reads(16..20), [7, 2, 3, 7]);
    calm.asked();
    // Three blocks, of which the first and the last are had in part: one write.
    calm.done(Op::Write, 30..42, 6);
    assert_eq!(calm.asked(), said("w", "rr"));
    assert_eq!(calm.reads(29..44), [7, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7]);
    assert_eq!(calm.asked(), said("r", ""));
    assert_eq!(calm.reads(0..16)[7..9], [7, 5]);
    assert_eq!(calm.asked(), said("r", "r"), "a read in two runs");
}

/// overlay.4
#[test]
fn what_is_discarded_reads_as_zeroes_and_costs_the_top_nothing() {
    let mut calm = Calm::new();
    calm.done(Op::Write, 8..16, 1);
    calm.asked();
    calm.done(Op::Discard, 4..36, 0);
    assert_eq!(calm.asked(), said("d", ""), "whole blocks, and what is there of them in the top");
    assert_eq!(calm.reads(0..40), [[7; 8].as_slice(), &[0; 24], &[7; 8]].concat());
    calm.asked();
    calm.done(Op::WriteZeroes, 42..72, 0);
    assert_eq!(calm.asked(), said("w", "r"), "the block that is not whole is read and written");
    assert_eq!(calm.reads(40..73), [[7; 2].as_slice(), &[0; 30], &[7]].concat());
    calm.asked();
    // A file system that cannot punch holes leaves there what was.
    calm.0.top.put(data_offset(SIZE) + BLOCK, &[9; BLOCK as usize]);
    assert_eq!(calm.reads(8..16), [0; 8]);
    calm.asked();
    calm.done(Op::Write, 9..10, 3);
    assert_eq!(calm.asked(), said("w", ""), "around it are zeroes, whatever is below");
    assert_eq!(calm.reads(8..16), [0, 3, 0, 0, 0, 0, 0, 0]);
    assert_eq!(calm.0.overlay.layers().own.run(1, 2), (BlockState::Data, 2));
    let hole = |at, len| calm.0.overlay.run(at * SECTOR, len * SECTOR).unwrap();
    assert_eq!(
        (hole(16, 24), hole(8, 24)),
        (Run { len: 16 * SECTOR, hole: true }, Run { len: 8 * SECTOR, hole: false })
    );
}

/// A first write that finds the disk full changes nothing, and the next may succeed.
#[test]
fn a_full_disk_fails_one_write_and_its_block_is_as_it_was() {
    let mut calm = Calm::new();
    for sectors in [8..16, 17..18] {
        calm.0.top.content().next_write = Some(Errno::ENOSPC);
        assert_eq!(calm.does(Op::Write, sectors.clone(), 1).0, Outcome::Failed(Errno::ENOSPC));
        assert_eq!(calm.reads(sectors.clone()), vec![7; (sectors.end - sectors.start) as usize]);
        calm.done(Op::Flush, 0..0, 0);
        calm.done(Op::Write, sectors.clone(), 2);
        assert_eq!(calm.reads(sectors.clone()), vec![2; (sectors.end - sectors.start) as usize]);
    }
}

/// slot.2, as a server meets it.
#[test]
fn a_map_that_is_damaged_is_refused_and_one_that_was_torn_by_a_crash_is_not() {
    let page = |sequence| format::page_offset(0, sequence);
    let mut calm = Calm::new();
    for value in 1..3 {
        calm.done(Op::Write, u64::from(value) * 8..u64::from(value) * 8 + 8, value);
        calm.done(Op::Flush, 0..0, 0);
    }
    let Scene { top, base, overlay, engines, .. } = calm.0;
    drop((engines, overlay));
    let torn = |slots: &[u64], clean: bool| {
        let copy = top.cut(&mut Random::new(0), 0);
        if clean {
            opened(&copy, &base).unwrap().flush_now().unwrap();
        }
        slots.iter().for_each(|sequence| copy.put(page(*sequence) + 1024, &[9; 512]));
        opened(&copy, &base).map(|overlay| overlay.layers().own.run(0, 4))
    };
    // What was torn is written again when the top is closed, though nothing else is.
    let copy = top.cut(&mut Random::new(0), 0);
    copy.put(page(2) + 1024, &[9; 512]);
    opened(&copy, &base).unwrap().flush_now().unwrap();
    assert_eq!(opened(&copy, &base).unwrap().layers().own.run(0, 4), (BlockState::Absent, 1));
    assert_eq!(torn(&[], false), Ok((BlockState::Absent, 1)));
    assert_eq!(torn(&[2], false), Ok((BlockState::Absent, 1)), "the page before counts");
    assert!(torn(&[1, 2], false).unwrap_err().contains("page 0 of its map: slot A"), "none is whole");
    assert!(
        torn(&[2], true).unwrap_err().contains("is damaged: page 0"),
        "it was closed in order, so nothing was being written"
    );
    let copy = top.cut(&mut Random::new(0), 0);
    copy.put(1024, &[9; 512]);
    copy.put(4096 + 1024, &[9; 512]);
    assert!(opened(&copy, &base).map(drop).unwrap_err().contains("slot A: its checksum is wrong; slot B"));
}

// ---- real files ----

/// A directory with a base of 1 MiB.
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fairlift-overlay-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("base"), vec![3; 1 << 20]).unwrap();
        Self(path)
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn open(&self, words: &str) -> Result<Arc<dyn Device>, String> {
        self.said(words)?.open(false, &Default::default()).map_err(|error| error.to_string())
    }

    pub(super) fn said(&self, words: &str) -> Result<config::Backing, String> {
        let words = words.split(',').map(|word| match word.split_once('=') {
            Some((key @ ("base" | "top"), name)) => format!("{key}={}", self.at(name).display()),
            _ => word.to_owned(),
        });
        let text = format!("overlay:{}", words.collect::<Vec<_>>().join(","));
        config::Backing::parse(&text, &crate::device::backing::tests::OUTSIDE)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// make.1, overlay.5
#[test]
fn a_top_is_made_once_and_known_again_and_its_base_must_be_as_it_was() {
    let directory = Directory::new("made");
    let refused = |words: &str| directory.open(words).map(drop).unwrap_err();
    let made = directory.open("base=base,top=a").unwrap();
    assert_eq!((made.facts().size, made.facts().limits.block), (1 << 20, 1));
    assert!(made.run(0, 1 << 20).unwrap().len == 1 << 20);
    drop(made);
    drop(directory.open("base=base,top=a").unwrap());
    drop(directory.open("top=a").unwrap());
    assert!(refused("top=b").contains("is not there; base=PATH"));
    assert!(refused("base=base,top=b,size=512k").contains("less than its base has (1048576 bytes)"));
    assert!(!directory.at("b").exists(), "what is refused leaves nothing");
    assert!(refused("base=base,top=a,size=2m").contains("a disk of 1048576 bytes, and not of 2097152"));
    assert_eq!(directory.open("base=base,top=b,size=2m").unwrap().facts().size, 2 << 20);
    let told = look(&directory.at("a")).unwrap();
    assert_eq!((told.header.opened, told.findings.len(), told.data), (3, 0, 0));
    std::fs::write(directory.at("other"), [1; 4096]).unwrap();
    assert!(refused("base=other,top=a").contains("it had 1048576 bytes and has 4096"));
    std::fs::write(directory.at("empty"), []).unwrap();
    drop(directory.open("base=base,top=empty").unwrap());
    assert!(refused("top=other").contains("no overlay's top"));
    std::fs::write(directory.at("base"), vec![4; 1 << 20]).unwrap();
    let why = refused("top=a");
    assert!(
        why.contains("was changed since: its time of change is another") && why.contains("begin with a new top"),
        "{why}"
    );
    assert!(look(&directory.at("a")).unwrap().findings[0].is_fatal);
}

/// make.2, overlay.5: a chain, and what is in its middle.
#[test]
fn tops_lie_over_tops_up_to_eight_and_what_is_below_is_opened_once() {
    let directory = Directory::new("chain");
    let refused = |words: &str| directory.open(words).map(drop).unwrap_err();
    let mut below = "base".to_owned();
    for layer in 1..=8 {
        let top = format!("t{layer}");
        drop(directory.open(&format!("base={below},top={top}")).unwrap());
        below = top;
    }
    assert!(refused("base=t8,top=t9").contains("more than 8 overlays"));
    let (one, two) = (directory.open("base=t2,top=x").unwrap(), directory.open("base=t2,top=y").unwrap());
    let count = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = count.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|path| path == directory.at("t2"))).count();
    assert_eq!(open, 1, "both have it by one descriptor");
    drop((one, two));
    drop(directory.open("top=t2").unwrap());
    assert!(refused("top=x").contains("was opened to be written since"));
    assert!(look(&directory.at("t3")).unwrap().findings[0].what.contains("was opened to be written since"));
    assert_eq!(look(&directory.at("t2")).unwrap().below, [directory.at("t1"), directory.at("base")]);
}
