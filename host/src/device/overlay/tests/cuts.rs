//! Power cuts: random requests of three workers at once, on disks with volatile caches. At any instant the power is cut: of what was not
//! flushed any sector survives or not. The top is opened again from that, and the power-cut oracle of the proving ground, which knows what
//! was asked and answered and nothing else, judges every sector. A server that is killed leaves the cache as it is; one that is closed
//! in order may lose its power meanwhile.
//!
//! `FAIRLIFT_SEEDS=5600 cargo test --release -p fairlift --lib overlay::tests::cuts -- --nocapture` makes more than a million cuts.

use std::collections::BTreeMap;

use fairlift_lab::repeat::seeds;
use fairlift_proving::power_cut::{Oracle, Stamp};

use fairlift_core::Tag;

use super::super::format::page_offset;
use super::*;
use volatile::Volatile;

mod volatile;

const WORKERS: u64 = 3;

/// The sectors that are used: at the start, and where one page of the map ends and the next begins.
fn windows() -> [Range<u64>; 2] {
    let boundary = PAGE_BLOCKS * PER_BLOCK;
    [0..64, boundary - 32..boundary + 32]
}

const PER_BLOCK: u64 = BLOCK / SECTOR;

/// What a sector holds: nothing, or the number of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Zeroes,
    Write(u64),
}

/// What a write brings, of this number: it says so everywhere, and where it belongs.
fn content(number: u64, sectors: Range<u64>) -> Vec<u8> {
    let sector = |sector: u64| [number.to_le_bytes(), sector.to_le_bytes()].concat().repeat(SECTOR as usize / 16);
    sectors.flat_map(sector).collect()
}

fn found(sector: u64, bytes: &[u8]) -> Found {
    if bytes == [0; SECTOR as usize] {
        return Found::Zeroes;
    }
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let is_whole = bytes[8..16] == sector.to_le_bytes() && bytes[16..] == bytes[..bytes.len() - 16];
    assert!(is_whole, "sector {sector} is torn, or another: {:?}", &bytes[..32]);
    Found::Write(number)
}

/// What the base holds is numbered from here on.
const BASE: u64 = 1 << 60;

/// A request under way.
struct Asked {
    worker: usize,
    ticket: usize,
    op: Op,
    sectors: Range<u64>,
    /// What the oracle knows it by, if it changes anything or is a flush.
    stamp: Option<Stamp>,
    /// Of a read: what must have been seen by then.
    floors: Vec<u64>,
}

/// When a request was asked and ended, on a clock of requests.
#[derive(Clone, Copy)]
struct When {
    asked: u64,
    ended: u64,
}

const NOT_YET: u64 = u64::MAX;

/// What is known of the disk, since the power was cut last.
struct Known {
    /// Of sectors by their number.
    oracle: Oracle,
    /// What each sector held then.
    first: BTreeMap<u64, Found>,
    /// Which stamps brought zeroes.
    zeroed: BTreeMap<u64, Vec<Stamp>>,
    /// The number before that of the first stamp.
    before: u64,
    /// By stamp, less 1.
    stamps: Vec<When>,
    /// When the latest write was asked that has ended well: while the server lives, nothing older is read.
    floors: BTreeMap<u64, u64>,
    /// After a server was killed: what was known before. A cut may still bring that back, until a flush has been answered.
    earlier: Option<Box<Known>>,
    clock: u64,
}

impl Known {
    fn new(first: BTreeMap<u64, Found>, before: u64) -> Self {
        Self {
            oracle: Oracle::new(windows()[1].end),
            first,
            zeroed: BTreeMap::new(),
            before,
            stamps: Vec::new(),
            floors: BTreeMap::new(),
            earlier: None,
            clock: 0,
        }
    }

    /// The number of the next stamp.
    fn next(&self) -> u64 {
        self.before + self.stamps.len() as u64 + 1
    }

    fn asked(&mut self, op: Op, flags: Flags, sectors: &Range<u64>) -> Stamp {
        self.clock += 1;
        self.stamps.push(When { asked: self.clock, ended: NOT_YET });
        let extent = Extent::new(Sector(sectors.start), sectors.end - sectors.start);
        // A discard of whole blocks gives zeroes here (overlay.4), which others do not promise.
        let stamp = self.oracle.asked(if op == Op::Discard { Op::WriteZeroes } else { op }, flags, extent);
        assert_eq!(stamp, self.stamps.len() as Stamp);
        if matches!(op, Op::WriteZeroes | Op::Discard) {
            sectors.clone().for_each(|sector| self.zeroed.entry(sector).or_default().push(stamp));
        }
        stamp
    }

    fn ended(&mut self, stamp: Stamp, op: Op, sectors: &Range<u64>, outcome: Outcome) {
        self.clock += 1;
        self.oracle.ended(stamp, outcome);
        let when = &mut self.stamps[stamp as usize - 1];
        when.ended = self.clock;
        if outcome == Outcome::Done && op == Op::Flush {
            self.earlier = None;
        } else if outcome == Outcome::Done {
            for sector in sectors.clone() {
                let floor = self.floors.entry(sector).or_default();
                *floor = when.asked.max(*floor);
            }
        }
    }

    /// All that what was found may be.
    fn stamps_of(&self, sector: u64, found: Found) -> impl Iterator<Item = Stamp> {
        let first = (self.first[&sector] == found).then_some(0);
        let zeroed = self.zeroed.get(&sector).filter(|_| found == Found::Zeroes).into_iter().flatten().copied();
        let written = match found {
            Found::Write(number) if self.before < number && number < BASE => Some(number - self.before),
            _ => None,
        };
        first.into_iter().chain(zeroed).chain(written)
    }

    /// Whether a sector may hold that after a cut.
    fn judge(&self, sector: u64, found: Found) -> Result<(), String> {
        let mut why = format!("sector {sector} holds {found:?}, which nobody asked to be there");
        for stamp in self.stamps_of(sector, found) {
            match self.oracle.judge(sector, stamp) {
                Ok(()) => return Ok(()),
                Err(says) => why = says,
            }
        }
        match &self.earlier {
            Some(earlier) if self.oracle.judge(sector, 0).is_ok() => earlier.judge(sector, found),
            _ => Err(why),
        }
    }

    fn judge_all(&self, all: &BTreeMap<u64, Found>) {
        for (sector, found) in all {
            self.judge(*sector, *found).unwrap_or_else(|why| panic!("after a cut {why}"));
        }
    }

    /// Whether a read may find that which was asked for when a sector had this floor.
    fn may_be_read(&self, sector: u64, found: Found, floor: u64) {
        let is_new =
            |stamp: Stamp| if stamp == 0 { floor == 0 } else { self.stamps[stamp as usize - 1].ended >= floor };
        let is_one = self.stamps_of(sector, found).any(is_new);
        assert!(is_one, "sector {sector} is read as {found:?}, which is older than it may be");
    }
}

/// Workers on an overlay, and what is known of it.
struct Trial {
    engines: Vec<(Engine, StreamId)>,
    overlay: Arc<Overlay>,
    top: Arc<Volatile>,
    base: Arc<Volatile>,
    known: Known,
    under_way: Vec<Asked>,
    random: Random,
    now: Instant,
    cuts: u64,
}

fn over(overlay: &Arc<Overlay>, random: &mut Random) -> Vec<(Engine, StreamId)> {
    engines(overlay, [sched::Kind::None, sched::Kind::MqDeadline][random.below(2) as usize], WORKERS as u16)
}

impl Trial {
    fn new(seed: u64, fails: u64) -> Self {
        let mut random = Random::new(seed);
        let base_size = [SIZE, SIZE - 3 * BLOCK - SECTOR, 5 * BLOCK + 3 * SECTOR][random.below(3) as usize];
        let within = windows().map(|window| window.start..window.end.min(base_size.div_ceil(BLOCK) * PER_BLOCK));
        let base = Volatile::new(base_size, &within, seed + 1, (0, 40));
        let mut first = BTreeMap::new();
        for sector in windows().into_iter().flatten() {
            let is_there = sector * SECTOR < base_size && random.below(8) > 0;
            if is_there {
                base.put(sector * SECTOR, &content(BASE + sector, sector..sector + 1));
            }
            first.insert(sector, if is_there { Found::Write(BASE + sector) } else { Found::Zeroes });
        }
        base.settle();
        let top = made(&windows(), seed + 2, (fails, 40));
        let overlay = opened(&top, &base).unwrap();
        let engines = over(&overlay, &mut random);
        let (known, under_way, now) = (Known::new(first, 0), Vec::new(), Instant::ZERO);
        Self { engines, overlay, top, base, known, under_way, random, now, cuts: 0 }
    }

    fn any(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    fn ask(&mut self) {
        let window = windows()[self.any(2) as usize].clone();
        let start = window.start + self.any(window.end - window.start);
        let longest = [1, 8, 40][self.any(3) as usize].min(window.end - start);
        let mut sectors = start..start + 1 + self.any(longest);
        let all =
            [Op::Read, Op::Write, Op::Write, Op::Write, Op::Write, Op::WriteZeroes, Op::Discard, Op::Flush, Op::Flush];
        let op = all[self.any(all.len() as u64) as usize];
        if op == Op::Discard || self.any(3) == 0 {
            sectors = sectors.start / PER_BLOCK * PER_BLOCK..sectors.end.next_multiple_of(PER_BLOCK);
        }
        if op == Op::Discard && self.any(3) == 0 {
            sectors.end -= 3; // the last block stays as it is
        }
        if op == Op::Flush {
            sectors = 0..0;
        }
        let mut flags = Flags::SYNC;
        if op == Op::WriteZeroes && self.any(3) == 0 {
            flags |= Flags::NO_UNMAP;
        }
        if matches!(op, Op::Write | Op::WriteZeroes | Op::Discard) && self.any(6) == 0 {
            flags |= Flags::FUA;
        }
        let worker = self.any(WORKERS) as usize;
        let number = self.known.next();
        let changed = match op {
            Op::Read => None,
            Op::Write | Op::WriteZeroes => Some(sectors.clone()),
            Op::Discard => Some(sectors.start..sectors.end / PER_BLOCK * PER_BLOCK).filter(|range| !range.is_empty()),
            Op::Flush => Some(0..windows()[1].end),
        };
        let stamp = changed.map(|range| self.known.asked(op, flags, &range));
        let floors = sectors.clone().map(|sector| self.known.floors.get(&sector).copied().unwrap_or(0));
        let floors = if op == Op::Read { floors.collect() } else { Vec::new() };
        let (engine, stream) = &mut self.engines[worker];
        let bytes = if op == Op::Write { content(number, sectors.clone()) } else { Vec::new() };
        let ticket = submit(engine, *stream, op, flags, &sectors, &bytes);
        self.under_way.push(Asked { worker, ticket, op, sectors, stamp, floors });
    }

    fn turn(&mut self, worker: usize) {
        let (engine, _) = &mut self.engines[worker];
        self.now += ms(1);
        turned(engine, self.now);
        for (ticket, news) in std::mem::take(&mut engine.news) {
            let at = self.under_way.iter().position(|asked| (asked.worker, asked.ticket) == (worker, ticket));
            let Asked { op, sectors, stamp, floors, .. } =
                self.under_way.swap_remove(at.expect("it is told of what was asked, once"));
            let News::Ended(outcome) = news else { panic!("{news:?}") };
            if op == Op::Read && outcome == Outcome::Done {
                let bytes = engine.memory(ticket).bytes();
                for ((sector, bytes), floor) in sectors.clone().zip(bytes.chunks_exact(SECTOR as usize)).zip(floors) {
                    self.known.may_be_read(sector, found(sector, bytes), floor);
                }
            }
            if let Some(stamp) = stamp {
                let sectors =
                    if op == Op::Discard { sectors.start..sectors.end / PER_BLOCK * PER_BLOCK } else { sectors };
                self.known.ended(stamp, op, &sectors, outcome);
            }
            engine.release(ticket);
        }
    }

    fn finish(&mut self) {
        let mut left = 5000;
        while !self.under_way.is_empty() {
            left -= 1;
            assert!(left > 0, "requests wait for each other for ever");
            self.turn(left % WORKERS as usize);
        }
    }

    /// The top is opened again from what survived of a disk.
    fn opens(&self, top: &Arc<Volatile>) -> Arc<Overlay> {
        opened(top, &self.base).unwrap_or_else(|why| panic!("after a cut the top {why}"))
    }

    /// Reads all sectors by an overlay, without its lanes.
    fn see(&self, overlay: &Overlay, top: &Volatile) -> BTreeMap<u64, Found> {
        let mut all = BTreeMap::new();
        for block in windows().into_iter().flat_map(|window| window.step_by(PER_BLOCK as usize)) {
            let mut bytes = [0; BLOCK as usize];
            match overlay.layers().places().of(block / PER_BLOCK) {
                Place::Top => top.get(block * SECTOR + data_offset(SIZE), &mut bytes),
                Place::Below(_) => self.base.get(block * SECTOR, &mut bytes),
                Place::Nowhere => {}
            }
            all.extend(
                (block..)
                    .zip(bytes.chunks_exact(SECTOR as usize))
                    .map(|(sector, bytes)| (sector, found(sector, bytes))),
            );
        }
        all
    }

    /// The power could be cut here: what is left is looked at, and this life goes on.
    fn cut(&mut self) {
        let top = self.top.cut(&mut self.random);
        let opened = |header: &Header| header.opened;
        let was = lock(&self.overlay.layers().header).opened;
        let told = read_header(&*top).ok().and_then(|slots| slots.counts.as_ref().map(opened));
        assert!(was == 1 || told == Some(was), "it was opened {was} times, and tells those above it of {told:?}");
        let overlay = self.opens(&top);
        let all = self.see(&overlay, &top);
        self.known.judge_all(&all);
        self.cuts += 1;
        if self.any(8) > 0 {
            return;
        }
        // And once more, while it is closed: what was there stays.
        let calls = self.any(8);
        top.loses_power_after(calls);
        let _ = overlay.flush_now();
        let top = top.cut(&mut self.random);
        assert!(self.see(&self.opens(&top), &top) == all, "what a cut has left is lost by the next");
        self.cuts += 1;
    }

    /// The server ends, in one of its ways, and another goes on.
    fn next_life(&mut self) {
        let mut is_cut = false;
        match self.any(4) {
            0 => is_cut = self.close(),
            1 => self.top.kill(),
            _ => is_cut = true,
        }
        self.engines.clear();
        for Asked { stamp, op, sectors, .. } in self.under_way.drain(..) {
            if let Some(stamp) = stamp {
                self.known.ended(stamp, op, &sectors, Outcome::Failed(Errno::EIO));
            }
        }
        if is_cut {
            self.top = self.top.cut(&mut self.random);
        }
        if self.any(4) == 0 {
            let calls = self.any(3);
            self.top.loses_power_after(calls);
            if let Err(why) = opened(&self.top, &self.base) {
                assert!(why.contains("the power is gone"), "{why}");
            }
            (self.top, is_cut) = (self.top.cut(&mut self.random), true);
        }
        self.overlay = self.opens(&self.top);
        let all = self.see(&self.overlay, &self.top);
        self.known.judge_all(&all);
        let known = Known::new(all, self.known.next() - 1);
        let before = std::mem::replace(&mut self.known, known);
        self.known.earlier = (!is_cut).then(|| Box::new(before));
        self.cuts += u64::from(is_cut);
        self.engines = over(&self.overlay, &mut self.random);
    }

    /// Closes the overlay in order, after which what was answered is durable; or the power goes meanwhile.
    fn close(&mut self) -> bool {
        self.finish();
        let is_cut = self.any(2) == 0;
        if is_cut {
            let calls = self.any(6);
            self.top.loses_power_after(calls);
        }
        let all = 0..windows()[1].end;
        let stamp = self.known.asked(Op::Flush, Flags::NONE, &all);
        let outcome = if self.overlay.flush_now().is_ok() { Outcome::Done } else { Outcome::Failed(Errno::EIO) };
        self.known.ended(stamp, Op::Flush, &all, outcome);
        is_cut
    }
}

/// overlay.1–4, slot.1, slot.2: whatever three workers ask at once, of whole blocks or parts, each sector is what was last written there;
/// after a cut of the power at any instant it is that, or anything written since the last flush; and so through many cuts.
#[test]
fn what_was_flushed_survives_cuts_of_the_power_at_any_instant() {
    let (mut cuts, mut lives) = (0, 0);
    for seed in seeds(0..10) {
        let mut trial = Trial::new(seed, [0, 0, 60][(seed % 3) as usize]);
        for _ in 0..8 {
            let (steps, busy) = (trial.any(120), 2 + trial.any(3));
            for _ in 0..steps {
                if trial.any(busy) == 0 {
                    trial.ask();
                } else {
                    let worker = trial.any(WORKERS) as usize;
                    trial.turn(worker);
                }
                if trial.any(3) == 0 {
                    trial.cut();
                }
            }
            trial.next_life();
            lives += 1;
        }
        trial.finish();
        trial.engines.iter().for_each(|(engine, _)| assert_eq!((engine.open(), engine.pool.used()), (0, 0)));
        assert!(trial.base.take_log().chars().all(|letter| letter == 'r'), "the base is read only");
        cuts += trial.cuts;
    }
    println!("{cuts} cuts of the power in {lives} lives of a server");
}

/// slot.5: the power goes while a page is written again, and then a second time.
#[test]
fn a_torn_page_is_not_made_whole_by_the_next_one() {
    let (base, top) = (Volatile::new(SIZE, &windows(), 1, (0, 0)), made(&windows(), 1, (0, 0)));
    let slot = page_offset(0, 2);
    // A page of which two sectors tell something; the next one differs from it in the first alone.
    let page = |overlay: &Overlay| {
        let layers = overlay.layers();
        layers.own.mark(0);
        let mut bytes = vec![0; BLOCK as usize];
        layers.own.take_dirty()[0].encode(&lock(&layers.header).id, &mut bytes);
        bytes
    };
    let overlay = opened(&top, &base).unwrap();
    overlay.layers().own.set(0..1, BlockState::Zero);
    overlay.layers().own.set(2000..2001, BlockState::Zero);
    overlay.flush_now().unwrap();
    let overlay = opened(&top, &base).unwrap();
    overlay.layers().own.set(0..1, BlockState::Data);
    let first = page(&overlay);
    top.put(slot, &first[..SECTOR as usize]);
    top.settle();
    let overlay = opened(&top, &base).unwrap();
    assert_eq!(overlay.layers().own.run(0, 1).0, BlockState::Zero);
    let next = page(&overlay);
    assert!(first[SECTOR as usize..] == next[SECTOR as usize..] && first != next);
    top.put(slot + SECTOR, &next[SECTOR as usize..]);
    top.settle();
    assert_eq!(opened(&top, &base).unwrap().layers().own.run(0, 1).0, BlockState::Zero, "as after the first cut");
}

/// slot.6: servers that are killed before they flush leave a header that is whole, also if the power goes while the last one opens.
#[test]
fn a_top_is_opened_after_servers_that_were_killed_and_a_cut() {
    for seed in seeds(0..20) {
        let mut random = Random::new(seed);
        let (base, top) = (Volatile::new(SIZE, &windows(), seed, (0, 0)), made(&windows(), seed, (0, 0)));
        for _ in 0..=random.below(3) {
            drop(opened(&top, &base).unwrap());
        }
        top.loses_power_after(random.below(4));
        let _ = opened(&top, &base);
        let told = opened(&top.cut(&mut random), &base).map(drop);
        assert_eq!(told, Ok(()));
    }
}

/// claim.2
#[test]
fn zeroes_over_zeroes_wait_for_a_first_write_that_is_under_way() {
    let ends_at_once = |op, somebody_writes: bool| {
        let (base, top) = (Volatile::new(SIZE, &windows(), 1, (0, 0)), made(&windows(), 1, (0, 0)));
        let overlay = opened(&top, &base).unwrap();
        overlay.layers().own.set(1..2, BlockState::Zero);
        if somebody_writes {
            assert!(lock(&overlay.claims).claim(1..2, (ContextId(0), Tag(0))));
        }
        let (mut engine, stream) = engines(&overlay, sched::Kind::None, 1).pop().unwrap();
        submit(&mut engine, stream, op, Flags::SYNC, &(8..16), &[]);
        (1..9).for_each(|turn| engine.turn(Instant::ZERO + ms(turn)));
        !engine.news.is_empty()
    };
    for op in [Op::Discard, Op::WriteZeroes] {
        assert_eq!((ends_at_once(op, false), ends_at_once(op, true)), (true, false), "{op:?}");
    }
}

// ---- what a trial is made of ----

/// A disk of [`SIZE`] in a file that has just been made, of which these sectors are used.
fn made(windows: &[Range<u64>], seed: u64, faults: (u64, u64)) -> Arc<Volatile> {
    let map = 0..page_offset(format::pages(SIZE), 1) / SECTOR;
    let data = windows.iter().map(|one| one.start + data_offset(SIZE) / SECTOR..one.end + data_offset(SIZE) / SECTOR);
    let used: Vec<_> = std::iter::once(map).chain(data).collect();
    let top = Volatile::new(file_len(SIZE), &used, seed, faults);
    let base = Base { path: "base".into(), is: Fingerprint::Raw { size: 0, changed: (0, 0) } };
    let header = Header { sequence: 1, size: SIZE, id: [5; 16], opened: 0, clean: true, base };
    top.put(header_offset(1), &header.encode().unwrap());
    top.settle();
    top
}

fn below(base: &Arc<Volatile>) -> Arc<Below> {
    let is = Fingerprint::Raw { size: base.size, changed: (0, 0) };
    Arc::new(Below {
        files: vec![LayerFile { device: Arc::clone(base) as Arc<dyn Device>, offset: 0 }],
        layers: vec![is],
        map: Merged::default(),
        base_size: base.size,
        size: base.size,
        is,
    })
}

/// Opens a top as a server would.
fn opened(top: &Arc<Volatile>, base: &Arc<Volatile>) -> Result<Arc<Overlay>, String> {
    let header = read_header(&**top)?.counts.unwrap();
    let layers = Layers::of(Arc::clone(top), header, below(base), "base".into(), false)?;
    Ok(Arc::new(Overlay::of("top".into(), layers, Access::default(), false)))
}

/// So many workers on a disk that is an overlay.
fn engines(overlay: &Arc<Overlay>, kind: sched::Kind, workers: u16) -> Vec<(Engine, StreamId)> {
    let count = usize::from(workers);
    let settings = config::Disk::new("d", kind);
    let device = Arc::clone(overlay) as Arc<dyn Device>;
    let disk = Arc::new(Disk::new(&settings, &[(device, None)], &[Group::root()], count).unwrap());
    let notifiers = Arc::new(Notifiers::new(count).unwrap());
    let helpers = Helpers::new(1, &[disk.concurrency], &[], count, Arc::clone(&notifiers));
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
    (0..workers).map(engine).collect()
}

/// Asks for something; `bytes` are those of a write. What the engine calls it.
fn submit(engine: &mut Engine, stream: StreamId, op: Op, flags: Flags, sectors: &Range<u64>, bytes: &[u8]) -> usize {
    let extent = Extent::new(Sector(sectors.start), sectors.end - sectors.start);
    let memory = match op {
        Op::Read | Op::Write => {
            let len = (extent.sectors * SECTOR) as usize;
            let buffer = engine.pool.get(len).unwrap();
            let mut memory = Memory::Part(Part { buffer, range: 0..len });
            match op {
                Op::Write => memory.bytes_mut().copy_from_slice(bytes),
                _ => memory.bytes_mut().fill(0xee),
            }
            memory
        }
        _ => Memory::None,
    };
    let ticket = engine.admit(0, memory);
    engine.submit(0, Bio { op, flags, extent, stream, token: Token(ticket as u64) });
    ticket
}
