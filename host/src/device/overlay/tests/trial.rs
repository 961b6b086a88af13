//! A trial: disks that are forks of each other, each with workers that are asked anything at random. At any instant the power is cut, or the
//! server ends in another way; what is known of each disk judges what is left.

use std::cell::{Cell, RefCell};

use fairlift_proving::power_cut::Stamp;

use super::super::files::DEPTH_MAX;
use super::super::flatten::{next, rest_on_base};
use super::super::fork::{Steps, freeze_by};
use super::known::{BASE, Found, Known, content, found};
use super::*;

const WORKERS: u64 = 3;
/// Limit on disks: there are forks of forks all the same, because any of them may go.
const DISKS: usize = 4;

/// The sectors that are used: at the start, and where one page of the map ends and the next begins.
pub(super) fn windows() -> [Range<u64>; 2] {
    let boundary = PAGE_BLOCKS * PER_BLOCK;
    [0..64, boundary - 32..boundary + 32]
}

pub(super) const PER_BLOCK: u64 = BLOCK / SECTOR;

/// A request under way.
struct InFlight {
    worker: usize,
    ticket: usize,
    op: Op,
    sectors: Range<u64>,
    /// Its stamp in the oracle, if it changes anything or is a flush.
    stamp: Option<Stamp>,
    /// Of a read: what must have been seen by then.
    floors: Vec<u64>,
}

/// Workers on an overlay, and the knowledge about it.
struct Disk {
    workers: Workers,
    overlay: Arc<Overlay>,
    /// The base, the tops below, and the one that is written.
    files: Vec<Arc<Volatile>>,
    known: Known,
    under_way: Vec<InFlight>,
}

pub(super) struct Trial {
    disks: Vec<Disk>,
    random: Random,
    now: Instant,
    faults: (u64, u64),
    /// Disks that were ever made: their writes have numbers of their own.
    made: u64,
    pub(super) cuts: u64,
    pub(super) forks: u64,
    pub(super) depth: usize,
    pub(super) flattened: u64,
}

fn over(overlay: &Arc<Overlay>, random: &mut Random) -> Workers {
    let kind = [sched::Kind::None, sched::Kind::MqDeadline][random.below(2) as usize];
    workers(Arc::clone(overlay) as Arc<dyn Device>, kind, WORKERS as u16)
}

/// Reads all sectors by an overlay, without its lanes.
fn see(overlay: &Overlay, files: &[Arc<Volatile>]) -> BTreeMap<u64, Found> {
    let (mut all, layers) = (BTreeMap::new(), overlay.layers());
    for block in windows().into_iter().flat_map(|window| window.step_by(PER_BLOCK as usize)) {
        let mut bytes = [0; BLOCK as usize];
        match layers.places().of(block / PER_BLOCK) {
            Place::Top => files[files.len() - 1].get(block * SECTOR + data_offset(SIZE), &mut bytes),
            Place::Below(at) => {
                let at = usize::from(at);
                files[at].get(block * SECTOR + layers.below.files[at].offset, &mut bytes);
            }
            Place::Nowhere => {}
        }
        let sectors = (block..).zip(bytes.chunks_exact(SECTOR as usize));
        all.extend(sectors.map(|(sector, bytes)| (sector, found(sector, bytes))));
    }
    all
}

/// The files of a disk for which a cut may have left the one base or the other (flatten.3).
fn lie_on(mut files: Vec<Arc<Volatile>>) -> Vec<Arc<Volatile>> {
    let top = files.len() - 1;
    let header = read_header(&*files[top]).ok().map(|(header, _)| header);
    if header.is_some_and(|header| matches!(header.base.is, Fingerprint::Raw { .. })) {
        files.drain(1..top);
    }
    files
}

/// Opens what a cut has left.
fn opens(files: &[Arc<Volatile>]) -> Arc<Overlay> {
    opened(files).unwrap_or_else(|why| panic!("after a cut the top {why}"))
}

impl Trial {
    pub(super) fn new(seed: u64, fails: u64) -> Self {
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
        let faults = (fails, 40);
        let files = vec![base, made(&windows(), seed + 2, faults)];
        let overlay = opened(&files).unwrap();
        let workers = over(&overlay, &mut random);
        let disk = Disk { workers, overlay, files, known: Known::new(first, 0), under_way: Vec::new() };
        Self {
            disks: vec![disk],
            random,
            now: Instant::ZERO,
            faults,
            made: 1,
            cuts: 0,
            forks: 0,
            depth: 1,
            flattened: 0,
        }
    }

    pub(super) fn any(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    fn any_disk(&mut self) -> usize {
        self.any(self.disks.len() as u64) as usize
    }

    /// Something is asked, or a worker takes a turn; and the power could be cut.
    pub(super) fn step(&mut self, busy: u64) {
        let at = self.any_disk();
        if self.any(busy) == 0 {
            self.ask(at);
        } else {
            self.turn_of(at);
        }
        if self.any(3) == 0 {
            let at = self.any_disk();
            self.cut(at, &self.disks[at].files.clone());
        }
    }

    fn ask(&mut self, at: usize) {
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
        let Disk { workers, known, under_way, .. } = &mut self.disks[at];
        let number = known.next();
        let changed = match op {
            Op::Read => None,
            Op::Write | Op::WriteZeroes => Some(sectors.clone()),
            Op::Discard => Some(sectors.start..sectors.end / PER_BLOCK * PER_BLOCK).filter(|range| !range.is_empty()),
            Op::Flush => Some(0..windows()[1].end),
        };
        let stamp = changed.map(|range| known.submitted(op, flags, &range));
        let floors = if op == Op::Read { known.floors(sectors.clone()) } else { Vec::new() };
        let bytes = if op == Op::Write { content(number, sectors.clone()) } else { Vec::new() };
        let ticket = submit(&mut workers[worker], op, flags, &sectors, &bytes);
        under_way.push(InFlight { worker, ticket, op, sectors, stamp, floors });
    }

    fn turn_of(&mut self, at: usize) {
        let worker = self.any(WORKERS) as usize;
        self.turn(at, worker);
    }

    fn turn(&mut self, at: usize, worker: usize) {
        let Disk { workers, known, under_way, .. } = &mut self.disks[at];
        let (engine, _) = &mut workers[worker];
        turned(engine, &mut self.now);
        for (ticket, news) in std::mem::take(&mut engine.news) {
            let at = under_way.iter().position(|pending| (pending.worker, pending.ticket) == (worker, ticket));
            let InFlight { op, sectors, stamp, floors, .. } =
                under_way.swap_remove(at.expect("it is told of what was asked, once"));
            let News::Ended(outcome) = news else { panic!("{news:?}") };
            if op == Op::Read && outcome == Outcome::Done {
                let bytes = engine.memory(ticket).bytes();
                for ((sector, bytes), floor) in sectors.clone().zip(bytes.chunks_exact(SECTOR as usize)).zip(floors) {
                    known.may_be_read(sector, found(sector, bytes), floor);
                }
            }
            if let Some(stamp) = stamp {
                let sectors =
                    if op == Op::Discard { sectors.start..sectors.end / PER_BLOCK * PER_BLOCK } else { sectors };
                known.ended(stamp, op, &sectors, outcome);
            }
            engine.release(ticket);
        }
    }

    pub(super) fn finish(&mut self) {
        for at in 0..self.disks.len() {
            let mut left = 5000;
            while !self.disks[at].under_way.is_empty() {
                left -= 1;
                assert!(left > 0, "requests wait for each other for ever");
                self.turn(at, left % WORKERS as usize);
            }
        }
    }

    /// All requests have ended: nothing is left of them, and the base was read only.
    pub(super) fn assert_at_rest(&self) {
        for disk in &self.disks {
            assert_at_rest(&disk.workers);
            assert!(disk.files[0].take_log().chars().all(|letter| letter == 'r'), "the base is read only");
        }
    }

    /// The power could be cut here: what is left in these files is looked at as a disk, and this life goes on.
    fn cut(&mut self, at: usize, files: &[Arc<Volatile>]) {
        let mut files = self.survivors(files);
        let top = files.len() - 1;
        if files.len() == self.disks[at].overlay.layers().below.files.len() + 1 {
            let opened = |header: &Header| header.opened;
            let was = lock(&self.disks[at].overlay.layers().header).opened;
            let in_file = read_header(&*files[top]).ok().map(|(header, _)| opened(&header));
            assert!(
                was == 1 || in_file == Some(was),
                "it was opened {was} times, and tells those above it of {in_file:?}"
            );
        }
        let overlay = opens(&files);
        let all = see(&overlay, &files);
        self.disks[at].known.judge_all(&all);
        self.cuts += 1;
        if self.any(8) > 0 {
            return;
        }
        // And once more, while it is closed: what was there stays.
        files[top].loses_power_after(self.random.below(8));
        let _ = overlay.flush_now();
        files = self.survivors(&files);
        assert!(see(&opens(&files), &files) == all, "what a cut has left is lost by the next");
        self.cuts += 1;
    }

    /// The files left of a base and the tops over it after a cut.
    fn survivors(&mut self, files: &[Arc<Volatile>]) -> Vec<Arc<Volatile>> {
        let tops = files[1..].iter().map(|top| top.cut(&mut self.random));
        lie_on([Arc::clone(&files[0])].into_iter().chain(tops).collect())
    }

    // ---- forks ----

    /// Forks a disk, while all of them are asked more, and maybe in vain; whether the server ended meanwhile, and if by a cut.
    pub(super) fn fork(&mut self) -> Option<bool> {
        let at = self.any_disk();
        let overlay = Arc::clone(&self.disks[at].overlay);
        let is_frozen = !overlay.layers().is_empty(); // fork.4
        let (ends, loses_power) = (self.any(20), self.any(6) == 0);
        if loses_power {
            self.disks[at].files.last().expect("there is a top").loses_power_after(self.random.below(8));
        }
        let (outcome, helpers) = (Cell::new(Fate::Lives), helpers(&self.disks[at].workers));
        let forking = RefCell::new(&mut *self);
        let steps =
            Forking { trial: &forking, at, ends, made: RefCell::default(), fate: &outcome, stamp: Cell::new(0) };
        let froze = freeze_by(&overlay, &|worker, lane| helpers.tell(worker, (lane, 0)), || Ok(steps));
        let top = &self.disks[at].files[self.disks[at].files.len() - 1];
        match froze {
            _ if outcome.get() == Fate::Killed => return Some(false),
            Err(why) if why.contains("the power is gone") => return Some(true),
            Err(why) if why.contains("lie over each other") => {
                assert_eq!(self.disks[at].files.len(), DEPTH_MAX + 1, "{why}");
                top.keeps_power();
                if self.disks.len() > 1 {
                    self.disks.swap_remove(at);
                }
                return None;
            }
            Err(why) => {
                assert!(why.contains("not today"), "{why}");
                top.keeps_power();
                return None;
            }
            Ok(_) => top.keeps_power(),
        }
        let frozen = &self.disks[at].files[self.disks[at].files.len() - 2];
        let is_closed = || read_header(&**frozen).unwrap().0.clean;
        // Where a file fails now and then, the last step of a fork may have (make.3).
        assert!(!is_frozen || loses_power || self.faults.0 > 0 || is_closed(), "what is frozen was closed");
        self.disks[at].files.iter().for_each(|file| file.keeps_power());
        self.made += 1;
        self.forks += 1;
        let (layers, disk) = (overlay.layers(), &self.disks[at]);
        let (header, top) = made_over(layers.below.is(), &windows(), self.made, self.faults);
        let files: Vec<_> = disk.files[..disk.files.len() - 1].iter().chain([&top]).map(Arc::clone).collect();
        let layers = begun(top, header, Arc::clone(&layers.below)).unwrap();
        let overlay = Arc::new(Overlay::of(layered(), layers, false));
        let first = see(&overlay, &files);
        let floors = disk.known.floors(first.keys().copied());
        for ((sector, found), floor) in first.iter().zip(floors) {
            disk.known.may_be_read(*sector, *found, floor);
        }
        self.depth = self.depth.max(files.len() - 1);
        let (workers, known) = (over(&overlay, &mut self.random), Known::new(first, self.made << 40));
        self.disks.push(Disk { workers, overlay, files, known, under_way: Vec::new() });
        if self.disks.len() > DISKS {
            let goes = self.any_disk();
            self.disks.swap_remove(goes);
        }
        None
    }

    // ---- flattening ----

    /// Copies what lies between a disk's top and its base while all are asked more, and then lays it over the base; whether a cut ended that.
    pub(super) fn flatten(&mut self) -> Option<bool> {
        let at = self.any_disk();
        let overlay = Arc::clone(&self.disks[at].overlay);
        let mut from = 0;
        while let Some((start, len)) = next(&overlay.layers(), from) {
            from = start + len;
            let (worker, sectors) = (self.any(WORKERS) as usize, start / SECTOR..from / SECTOR);
            let Disk { workers, under_way, .. } = &mut self.disks[at];
            // Bytes that must be seen by nobody.
            let ticket = submit(&mut workers[worker], Op::Write, Flags::COPY_UP, &sectors, &vec![0xdd; len as usize]);
            under_way.push(InFlight { worker, ticket, op: Op::Write, sectors, stamp: None, floors: Vec::new() });
            for _ in 0..self.any(12) {
                self.step(3);
            }
        }
        if self.any(2) == 0 {
            (0..30).for_each(|_| self.turn_of(at)); // what was asked ends, and nothing is left to be copied
        }
        let loses_power = self.any(4) == 0;
        if loses_power {
            self.disks[at].files.last().expect("there is a top").loses_power_after(self.random.below(5));
        }
        let (depth, helpers) = (overlay.layers().below.files.len(), helpers(&self.disks[at].workers));
        let trial = RefCell::new(&mut *self);
        let wait = || {
            let trial = &mut **trial.borrow_mut();
            if !loses_power {
                trial.step(3);
            }
            trial.turn_of(at);
        };
        let flat = rest_on_base(&overlay, &|worker, lane| helpers.tell(worker, (lane, 0)), wait);
        match flat {
            Err(why) => {
                assert!(why.contains("the power is gone"), "{why}");
                return Some(true);
            }
            Ok(is_flat) => {
                self.flattened += u64::from(is_flat && depth > 1);
                let files = &mut self.disks[at].files;
                files.iter().for_each(|file| file.keeps_power());
                *files = lie_on(std::mem::take(files));
                assert!(!is_flat || files.len() == 2);
            }
        }
        None
    }

    // ---- ends of a server ----

    /// The server ends, in one of its ways or as it has already (`is_cut`: by a cut), and another goes on.
    pub(super) fn next_life(&mut self, ended: Option<bool>) {
        let mut is_cut = ended.unwrap_or(false);
        let way = if ended.is_some() { 1 } else { self.any(4) };
        match way {
            0 => is_cut = self.close(),
            1 => {}
            _ => is_cut = true,
        }
        for disk in &mut self.disks {
            disk.workers.clear();
            for InFlight { stamp, op, sectors, .. } in disk.under_way.drain(..) {
                if let Some(stamp) = stamp {
                    disk.known.ended(stamp, op, &sectors, Outcome::Failed(Errno::EIO));
                }
            }
            disk.files.iter().for_each(|file| file.keeps_power());
            if !is_cut {
                disk.files[1..].iter().for_each(|file| file.kill());
            }
        }
        if is_cut {
            self.all_are_cut();
        } else {
            self.prepared_tops_get_others_over_them();
        }
        if self.any(4) == 0 {
            for at in 0..self.disks.len() {
                let calls = self.any(3);
                let files = &self.disks[at].files;
                files[files.len() - 1].loses_power_after(calls);
                if let Err(why) = opened(files) {
                    assert!(why.contains("the power is gone"), "{why}");
                }
            }
            self.all_are_cut();
            is_cut = true;
        }
        for disk in &mut self.disks {
            disk.overlay = opens(&disk.files);
            let all = see(&disk.overlay, &disk.files);
            disk.known.judge_all(&all);
            let known = Known::new(all, disk.known.next() - 1);
            let before = std::mem::replace(&mut disk.known, known);
            disk.known.earlier = (!is_cut).then(|| Box::new(before));
            disk.workers = over(&disk.overlay, &mut self.random);
        }
        self.cuts += u64::from(is_cut);
    }

    /// The power is gone: of each file, whoever lies over it, the same is left.
    fn all_are_cut(&mut self) {
        let mut cut: Vec<(*const Volatile, Arc<Volatile>)> = Vec::new();
        for file in self.disks.iter_mut().flat_map(|disk| &mut disk.files[1..]) {
            let was = Arc::as_ptr(file);
            let known = cut.iter().find(|(before, _)| *before == was).map(|(_, left)| Arc::clone(left));
            let left = known.unwrap_or_else(|| file.cut(&mut self.random));
            // The old file is kept, for its address.
            cut.push((was, Arc::clone(&left)));
            *file = left;
        }
        self.disks.iter_mut().for_each(|disk| disk.files = lie_on(std::mem::take(&mut disk.files)));
    }

    /// Tops of the server that was killed are not served again, but others over them: what they have is durable then.
    fn prepared_tops_get_others_over_them(&mut self) {
        for at in 0..self.disks.len() {
            let disk = &self.disks[at];
            if disk.files.len() > DEPTH_MAX || self.random.below(3) > 0 {
                continue;
            }
            let is = below(&disk.files).unwrap_or_else(|why| panic!("a top that was killed {why}")).is();
            self.made += 1;
            let (_, top) = made_over(is, &windows(), self.made, self.faults);
            let disk = &mut self.disks[at];
            disk.files.push(top);
            let all = see(&opens(&disk.files), &disk.files);
            disk.known.judge_all(&all);
            disk.known = Known::new(all, disk.known.next() - 1);
        }
    }

    /// Closes the overlays in order, after which what was answered is durable; or the power goes meanwhile.
    fn close(&mut self) -> bool {
        self.finish();
        let is_cut = self.any(2) == 0;
        for at in 0..self.disks.len() {
            let calls = self.any(6);
            let disk = &mut self.disks[at];
            if is_cut {
                disk.files[disk.files.len() - 1].loses_power_after(calls);
            }
            let all = 0..windows()[1].end;
            let stamp = disk.known.submitted(Op::Flush, Flags::NONE, &all);
            let outcome = if disk.overlay.flush_now().is_ok() { Outcome::Done } else { Outcome::Failed(Errno::EIO) };
            disk.known.ended(stamp, Op::Flush, &all, outcome);
        }
        is_cut
    }
}

/// The fate of the server that forks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lives,
    Killed,
}

/// The steps of a fork, between which others run, the power may go, the server may be killed, or a step may fail.
struct Forking<'a, 'b> {
    trial: &'a RefCell<&'b mut Trial>,
    /// Which disk is forked.
    at: usize,
    /// Drawn: at which step it ends.
    ends: u64,
    made: RefCell<Option<Arc<Volatile>>>,
    fate: &'a Cell<Fate>,
    stamp: Cell<Stamp>,
}

impl Forking<'_, '_> {
    /// Others run, and the power could be cut.
    fn instant(&self, number: u64) -> io::Result<()> {
        let trial = &mut **self.trial.borrow_mut();
        for _ in 0..trial.any(6) {
            trial.step(3);
        }
        let files = trial.disks[self.at].files.clone();
        trial.cut(self.at, &files);
        match self.ends {
            ends if ends == number => {
                self.fate.set(Fate::Killed);
                Err(io::Error::other("it was killed"))
            }
            // Once the new top has the name, there is no way back.
            ends if ends == 10 + number && number < 3 => Err(io::Error::other("not today")),
            _ => Ok(()),
        }
    }
}

impl Steps for Forking<'_, '_> {
    fn link(&mut self) -> io::Result<PathBuf> {
        self.instant(0)?;
        Ok("/frozen".into())
    }

    fn make(&self, header: &Header) -> Result<Arc<dyn Layer>, String> {
        let seed = self.trial.borrow_mut().any(1 << 20);
        let faults = self.trial.borrow().faults;
        let top = top_of(header, &windows(), seed, faults);
        *self.made.borrow_mut() = Some(Arc::clone(&top));
        self.instant(1).map_err(|error| error.to_string())?;
        Ok(top)
    }

    fn rename(&self) -> io::Result<()> {
        self.instant(2)?;
        {
            let disk = &mut self.trial.borrow_mut().disks[self.at];
            disk.files.push(self.made.borrow_mut().take().expect("it was made"));
            self.stamp.set(disk.known.submitted(Op::Flush, Flags::NONE, &(0..windows()[1].end)));
        }
        self.instant(3)?;
        let known = &mut self.trial.borrow_mut().disks[self.at].known;
        known.ended(self.stamp.get(), Op::Flush, &(0..windows()[1].end), Outcome::Done); // fork.2
        Ok(())
    }

    fn give_up(&self) {}

    fn wait(&self) {
        let trial = &mut **self.trial.borrow_mut();
        trial.step(3);
        trial.turn_of(self.at);
    }
}
