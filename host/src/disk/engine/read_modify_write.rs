//! ReadModifyWrite: writes that begin or end within a block.
//!
//! A disk takes whole blocks, of 512 or 4096 bytes. A client that wants 100 bytes at 200 written has block 0 read, its bytes put in,
//! and the block written. If the request covers more blocks, only the first and the last are read. Zeroes of any length are made
//! by the disk for the whole blocks, then written into the first and the last.
//!
//! rmw.1  Others' writes into the same block meanwhile are not lost ([`Blocks`](crate::disk::blocks::Blocks)).
//! rmw.2  A client sees one request: it ends once, when its last step has, with the first error.
//! rmw.3  The reads and writes that this takes are its stream's, and so its tenant's.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fairlift_core::{Bio, Duration, Errno, Extent, Flags, Op, Outcome, Sector, Token, waits};

use super::{Engine, News};
use crate::disk::queue_io::Arrival;
use crate::kernel::ticket::{Memory, Part, Ticket};

#[derive(Default)]
pub(super) struct Claims {
    /// By their tickets.
    requests: BTreeMap<usize, Claimed>,
    /// The requests that edges belong to: both by their tickets.
    edges: BTreeMap<usize, usize>,
}

struct Claimed {
    disk: usize,
    request: Arrival,
    /// Of a request that begins or ends within a block.
    rmw: Option<ReadModifyWrite>,
}

/// How a request lies in its blocks, and how far it is.
pub(super) struct ReadModifyWrite {
    edges: Vec<Edge>,
    /// Steps of it that are under way.
    under_way: u32,
    step: Phase,
    failed: Option<Errno>,
    /// The front has been told that it timed out.
    released: bool,
}

/// A block that the request covers in part.
struct Edge {
    block: Extent,
    /// The bytes of it that are the client's.
    mine: Range<usize>,
    /// While it is read or written.
    ticket: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The edges are read.
    Read,
    /// The request itself is with the disk: a write with the bytes read, or zeroes for the whole blocks.
    Main,
    /// The edges are written, with zeroes in them.
    Write,
}

/// How far a worker is with the writes of a disk that did not claim their blocks (blocks.2).
#[derive(PartialEq, Eq)]
pub(super) enum Settling {
    /// There are none, or no worker claims blocks.
    Done,
    /// The requests in the queue are to end, and new bios wait.
    Waits,
    /// These are left, by their tickets: they took too long, and the device still has them.
    Late(BTreeSet<usize>),
}

impl Claims {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

impl Engine {
    /// As [`submit_late`](Self::submit_late), of a write, or write of zeroes, that is not whole blocks: it begins `skip` bytes after the
    /// start of `bio`, which covers its blocks, and is `bytes` long. A write has [`Memory::Part`].
    #[cold]
    pub(crate) fn submit_part(
        &mut self,
        disk: usize,
        bio: Bio,
        (waited, part): (Duration, waits::Part),
        (block, skip, bytes): (u64, u64, u64),
    ) {
        let mut request = Arrival { bio, at: self.before(waited), part };
        if !self.handles[disk].disk.blocks.is_on() {
            self.handles[disk].disk.blocks.begin();
            self.notifiers.wake_all(u64::MAX >> (64 - self.notifiers.workers()), self.context, &mut self.ring);
        }
        self.look_at_blocks();
        let (all, end) = (bio.extent, skip + bytes);
        let sectors = block / Sector::SIZE;
        let edge = |start: u64, mine: Range<u64>| Edge {
            block: Extent::new(Sector(all.start.0 + start / Sector::SIZE), sectors),
            mine: mine.start as usize..mine.end as usize,
            ticket: usize::MAX,
        };
        let last = end / block * block;
        let mut edges = Vec::with_capacity(2);
        if skip > 0 {
            edges.push(edge(0, skip..end.min(block)));
        }
        if end > last && (last > 0 || skip == 0) {
            edges.push(edge(last, 0..end - last));
        }
        if request.bio.op == Op::WriteZeroes {
            let first = skip.next_multiple_of(block);
            let start = Sector(all.start.0 + first / Sector::SIZE);
            request.bio.extent = Extent::new(start, last.saturating_sub(first) / Sector::SIZE);
        }
        let rmw = ReadModifyWrite { edges, under_way: 0, step: Phase::Read, failed: None, released: false };
        self.claim(disk, all, request, Some(rmw));
    }

    /// Takes in a request that changes blocks, of a disk where blocks are claimed.
    #[cold]
    pub(super) fn claim(&mut self, disk: usize, extent: Extent, request: Arrival, rmw: Option<ReadModifyWrite>) {
        let (ticket, alone) = (request.bio.token.0 as usize, rmw.is_some());
        self.claims.requests.insert(ticket, Claimed { disk, request, rmw });
        if self.handles[disk].disk.blocks.claim(self.context, ticket, extent, alone) {
            self.begin(ticket);
        }
    }

    /// Begins with a request that has its blocks.
    fn begin(&mut self, ticket: usize) {
        let claimed = self.claims.requests.get_mut(&ticket).expect("a claim is of a request");
        let (disk, request) = (claimed.disk, claimed.request);
        let Some(rmw) = &mut claimed.rmw else { return self.ask(disk, request) };
        if request.bio.op == Op::WriteZeroes && request.bio.extent.sectors > 0 {
            (rmw.step, rmw.under_way) = (Phase::Main, 1);
            return self.ask(disk, request);
        }
        self.ask_edges(ticket, Phase::Read);
    }

    fn ask(&mut self, disk: usize, request: Arrival) {
        self.handles[disk].queue_io.backlog.push_back(request);
        self.mark(disk);
    }

    /// Reads or writes the edges of a request.
    fn ask_edges(&mut self, ticket: usize, step: Phase) {
        let claimed = self.claims.requests.get_mut(&ticket).expect("a request with edges claims them");
        let (disk, request) = (claimed.disk, claimed.request);
        let rmw = claimed.rmw.as_mut().expect("only these have edges");
        (rmw.step, rmw.under_way) = (step, rmw.edges.len() as u32);
        let durable = if request.bio.flags.contains(Flags::FUA) { Flags::FUA } else { Flags::NONE };
        let (op, flags) = match step {
            Phase::Read => (Op::Read, Flags::SYNC),
            Phase::Write | Phase::Main => (Op::Write, Flags::SYNC | durable),
        };
        for edge in &mut rmw.edges {
            if step == Phase::Read {
                let buffer = self.pool.get_anyway(edge.block.bytes().get() as usize);
                let owner = self.tickets[ticket].owner;
                edge.ticket = self.tickets.insert(Ticket { owner, memory: Memory::Pool(buffer) });
                self.claims.edges.insert(edge.ticket, ticket);
            }
            let bio = Bio { op, flags, extent: edge.block, token: Token(edge.ticket as u64), ..request.bio };
            self.handles[disk].queue_io.backlog.push_back(Arrival { bio, ..request });
        }
        self.mark(disk);
    }

    /// Looks at the news from `from` on for requests that claim blocks; whether there is more to do for disks.
    #[cold]
    pub(super) fn look_at_claims(&mut self, from: usize) {
        let news = self.news.split_off(from);
        for (ticket, what) in news {
            match self.claims.edges.get(&ticket) {
                Some(request) => self.news_of_step(*request, what),
                None if self.claims.requests.get(&ticket).is_some_and(|claimed| claimed.rmw.is_some()) => {
                    self.news_of_step(ticket, what);
                }
                None => {
                    self.news.push((ticket, what));
                    if what != News::TimedOut && self.claims.requests.contains_key(&ticket) {
                        self.let_go(ticket);
                    }
                }
            }
        }
    }

    fn news_of_step(&mut self, ticket: usize, what: News) {
        let claimed = self.claims.requests.get_mut(&ticket).expect("a step is of a request that claims blocks");
        let rmw = claimed.rmw.as_mut().expect("only these have steps");
        match what {
            News::TimedOut => {
                rmw.failed = Some(Errno::EIO);
                if !std::mem::replace(&mut rmw.released, true) {
                    self.news.push((ticket, News::TimedOut));
                }
                return; // `Released` will follow
            }
            News::Ended(Outcome::Failed(errno)) => rmw.failed = rmw.failed.or(Some(errno)),
            News::Ended(Outcome::Done) | News::Released => {}
        }
        rmw.under_way -= 1;
        if rmw.under_way > 0 {
            return;
        }
        let (disk, request) = (claimed.disk, claimed.request);
        let zeroes = request.bio.op == Op::WriteZeroes;
        match (rmw.failed, rmw.step) {
            (None, Phase::Main) if zeroes => self.ask_edges(ticket, Phase::Read),
            (None, Phase::Read) if zeroes => {
                for edge in &rmw.edges {
                    self.tickets[edge.ticket].memory.bytes_mut()[edge.mine.clone()].fill(0);
                }
                self.ask_edges(ticket, Phase::Write);
            }
            (None, Phase::Read) => {
                (rmw.step, rmw.under_way) = (Phase::Main, 1);
                for edge in std::mem::take(&mut rmw.edges) {
                    self.fill_up(ticket, request.bio.extent, &edge);
                    self.drop_edge(edge.ticket);
                }
                self.ask(disk, request);
            }
            (failed, _) => {
                let ended = failed.map_or(Outcome::Done, Outcome::Failed);
                self.news.push((ticket, if rmw.released { News::Released } else { News::Ended(ended) })); // rmw.2
                std::mem::take(&mut rmw.edges).iter().for_each(|edge| self.drop_edge(edge.ticket));
                self.let_go(ticket);
            }
        }
    }

    /// Puts what an edge was read into around the client's bytes.
    fn fill_up(&mut self, ticket: usize, all: Extent, edge: &Edge) {
        let [Ticket { memory: there, .. }, Ticket { memory: Memory::Part(Part { buffer, .. }), .. }] =
            self.tickets.get_disjoint_mut([edge.ticket, ticket]).expect("both are under way")
        else {
            panic!("a write that begins or ends within a block has a part of a buffer")
        };
        let at = ((edge.block.start.0 - all.start.0) * Sector::SIZE) as usize;
        let block = &mut buffer.bytes_mut()[at..at + there.bytes().len()];
        block[..edge.mine.start].copy_from_slice(&there.bytes()[..edge.mine.start]);
        block[edge.mine.end..].copy_from_slice(&there.bytes()[edge.mine.end..]);
    }

    /// Gives back the memory of an edge, if it has been asked for.
    fn drop_edge(&mut self, edge: usize) {
        if self.claims.edges.remove(&edge).is_some() {
            self.release(edge);
        }
    }

    /// A request has ended: others may have its blocks.
    fn let_go(&mut self, ticket: usize) {
        let claimed = self.claims.requests.remove(&ticket).expect("a request lets go of its claim once");
        let wake = self.handles[claimed.disk].disk.blocks.release(self.context, ticket);
        self.wake_granted(claimed.disk, wake);
    }

    /// Wakes those workers to whose requests blocks of a disk were granted, and begins with our own.
    fn wake_granted(&mut self, disk: usize, workers: u64) {
        self.notifiers.wake_all(workers, self.context, &mut self.ring);
        if workers & 1 << self.context.0 != 0 {
            self.take_granted(disk);
        }
    }

    fn take_granted(&mut self, disk: usize) {
        for ticket in self.handles[disk].disk.blocks.take_granted(self.context) {
            self.begin(ticket);
        }
    }

    /// Looks whether blocks are claimed on disks where they were not, and whether some were granted to our requests.
    pub(super) fn look_at_blocks(&mut self) {
        for at in 0..self.handles.count() {
            let disk = self.handles.number(at);
            let handle = &mut self.handles[disk];
            if handle.claims {
                self.take_granted(disk);
            } else if handle.disk.blocks.is_on() {
                (handle.claims, handle.settling) = (true, Settling::Waits); // blocks.2
                self.mark(disk);
            }
        }
    }

    /// Once the queue of a disk has nothing more of ours that did not claim its blocks, or only what took too long, new writes claim them,
    /// and go. Once that has ended, too, parts of blocks are written (blocks.2).
    #[cold]
    pub(super) fn settle(&mut self, disk: usize) {
        let handle = &mut self.handles[disk];
        let queue_io = &mut handle.queue_io;
        match &mut handle.settling {
            Settling::Waits if queue_io.open as usize == queue_io.timed_out.len() => {
                handle.settling = Settling::Late(queue_io.timed_out.clone());
                assert!(queue_io.announced == 0, "a queue was told of bios that leave the backlog");
                for request in std::mem::take(&mut queue_io.backlog) {
                    let claimed = self.claims.requests.contains_key(&(request.bio.token.0 as usize));
                    match changes(request.bio.op) && !claimed {
                        true => self.claim(disk, request.bio.extent, request, None),
                        false => self.ask(disk, request),
                    }
                }
                self.mark(disk);
            }
            Settling::Late(left) => left.retain(|ticket| queue_io.timed_out.contains(ticket)),
            Settling::Waits | Settling::Done => {}
        }
        let handle = &mut self.handles[disk];
        if handle.settling == Settling::Late(BTreeSet::new()) {
            handle.settling = Settling::Done;
            let wake = handle.disk.blocks.settled(self.context);
            self.wake_granted(disk, wake);
            self.mark(disk);
        }
    }
}

#[inline]
pub(super) const fn changes(op: Op) -> bool {
    matches!(op, Op::Write | Op::Discard | Op::WriteZeroes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fairlift_core::{Instant, sched};
    use fairlift_lab::{Random, repeat};

    use super::super::bench::{Workers, assert_at_rest, reap, submit, turned, workers};
    use super::*;
    use crate::config::{Backing, Faults, Faulty, Ram, Rule, Then};
    use crate::device::volatile::Volatile;

    /// A request under way.
    struct Ongoing {
        worker: usize,
        ticket: usize,
        op: Op,
        bytes: Range<usize>,
    }

    /// Two workers, and beside them the dullest disk: a byte each, `None` where a request failed.
    struct Scene {
        engines: Workers,
        block: usize,
        wanted: Vec<Option<u8>>,
        under_way: Vec<Ongoing>,
        random: Random,
    }

    impl Scene {
        fn new(seed: u64) -> Self {
            let mut random = Random::new(seed);
            let block = [512, 4096][random.below(2) as usize];
            let size = block as usize * 12;
            let fails = random.below(2) * 20;
            let disk = Volatile::in_blocks(size as u64, block, seed, (fails, 0));
            let kind = [sched::Kind::None, sched::Kind::MqDeadline][random.below(2) as usize];
            let engines = workers(disk, kind, 2);
            Self { engines, block: block as usize, wanted: vec![Some(0); size], under_way: vec![], random }
        }

        fn any(&mut self, end: usize) -> usize {
            self.random.below(end as u64) as usize
        }

        /// Asks for something, of whole blocks or not. Writes may overlap; a read has no byte in common with a write under way.
        fn ask(&mut self, whole: bool) {
            let (size, block) = (self.wanted.len(), self.block);
            let mut start = self.any(size);
            let longest = [64, block, 4 * block][self.any(3)].min(size - start);
            let mut end = start + 1 + self.any(longest);
            if whole || self.any(3) == 0 {
                (start, end) = (start / block * block, end.next_multiple_of(block));
            }
            let op = [Op::Read, Op::Write, Op::Write, Op::WriteZeroes][self.any(4)];
            let beside = |write: &&Ongoing| write.bytes.start < end && start < write.bytes.end;
            let beside: Vec<_> =
                self.under_way.iter().filter(beside).map(|write| (write.op, write.bytes.clone())).collect();
            if beside.iter().any(|(other, _)| (op == Op::Read) != (*other == Op::Read)) {
                return;
            }
            let (value, worker) = (self.any(256) as u8, self.any(2));
            let (from, to) = (start / block * block, end.next_multiple_of(block));
            let (engine, stream) = &mut self.engines[worker];
            let memory = match op {
                Op::WriteZeroes => Memory::None,
                _ => {
                    let buffer = engine.pool.get(to - from).unwrap();
                    let mut memory = Memory::Part(Part { buffer, range: start - from..end - from });
                    memory.bytes_mut().fill(value);
                    memory
                }
            };
            let ticket = engine.admit(0, memory);
            let sector = |bytes: usize| bytes as u64 / Sector::SIZE;
            let extent = Extent::new(Sector(sector(from)), sector(to - from));
            let bio = Bio { op, flags: Flags::SYNC, extent, stream: *stream, token: Token(ticket as u64) };
            if op == Op::Read || (start, end) == (from, to) {
                engine.submit(0, bio);
            } else {
                let waited = (fairlift_core::Duration::ZERO, fairlift_core::waits::Part::Room);
                engine.submit_part(0, bio, waited, (block as u64, (start - from) as u64, (end - start) as u64));
            }
            if op != Op::Read {
                self.wanted[start..end].fill(Some(if op == Op::Write { value } else { 0 }));
                // Of two that are under way at once, either may be the last: nobody can say which, byte by byte.
                for (_, bytes) in beside {
                    self.wanted[bytes.start.max(start)..bytes.end.min(end)].fill(None);
                }
            }
            self.under_way.push(Ongoing { worker, ticket, op, bytes: start..end });
        }

        /// Lets a worker take a turn, woken or not.
        fn turn(&mut self, worker: usize, woken: bool) {
            let (engine, _) = &mut self.engines[worker];
            reap(engine);
            if woken {
                engine.woken();
            }
            engine.turn(Instant::ZERO);
            for (ticket, news) in std::mem::take(&mut engine.news) {
                let at = self.under_way.iter().position(|write| (write.worker, write.ticket) == (worker, ticket));
                let Ongoing { op, bytes, .. } =
                    self.under_way.swap_remove(at.expect("it is told of what was asked, once"));
                match news {
                    News::Ended(Outcome::Done) if op == Op::Read => {
                        let wanted = self.wanted[bytes.clone()].iter();
                        let same = wanted
                            .zip(engine.memory(ticket).bytes())
                            .all(|(wanted, is)| wanted.is_none_or(|w| w == *is));
                        assert!(same, "bytes {bytes:?} are not what was written there");
                    }
                    News::Ended(Outcome::Done) => {}
                    News::Ended(Outcome::Failed(_)) if op == Op::Read => {}
                    News::Ended(Outcome::Failed(_)) => self.wanted[bytes].fill(None),
                    other => panic!("{other:?}"),
                }
                engine.release(ticket);
            }
        }
    }

    /// rmw.1, rmw.2, blocks.1, blocks.2: whatever two workers ask at once, whole blocks or parts of them, on a disk that is slow and may
    /// fail, each byte holds its last write.
    #[test]
    fn concurrent_writes_of_parts_of_blocks_are_those_of_a_byte_array() {
        for seed in repeat::seeds(0..60) {
            let mut scene = Scene::new(seed);
            for step in 0..400 {
                match scene.any(3) {
                    // So that whole blocks are under way that nobody has claimed when the first part comes.
                    0 => scene.ask(step < 60),
                    _ => {
                        let (worker, woken) = (scene.any(2), scene.any(2) == 0);
                        scene.turn(worker, woken);
                    }
                }
            }
            let mut left = 2000;
            while !scene.under_way.is_empty() {
                left -= 1;
                assert!(left > 0, "requests wait for each other for ever");
                scene.turn(left % 2, true);
            }
            assert_at_rest(&scene.engines);
        }
    }

    /// blocks.2: a write that hangs was in the device before the first part came, and may still change any block.
    #[test]
    fn a_write_that_hangs_keeps_parts_of_blocks_waiting_and_nothing_else() {
        let rule = Rule { ops: vec![Op::Write], times: Some(1), ..Rule::each(Then::Hang) };
        let (faults, inner) = (Faults { seed: 0, rules: vec![rule] }, Ram { size: 1 << 20 }.into());
        let faulty = Faulty { name: "fault:".into(), path: "rules".into(), faults, inner };
        let device = Backing::from(faulty).open(false, &Default::default()).unwrap();
        let (mut engines, mut now) = (workers(Arc::clone(&device), sched::Kind::None, 2), Instant::ZERO);
        let hung = submit(&mut engines[0], Op::Write, Flags::NONE, &(0..8), &[1; 4096]);
        turned(&mut engines[0].0, &mut now);
        let (engine, stream) = &mut engines[1];
        let buffer = engine.pool.get(512).unwrap();
        let part = engine.admit(0, Memory::Part(Part { buffer, range: 100..200 }));
        let (extent, token) = (Extent::new(Sector(64), 1), Token(part as u64));
        let bio = Bio { op: Op::Write, flags: Flags::NONE, extent, stream: *stream, token };
        engine.submit_part(0, bio, (Duration::ZERO, waits::Part::Room), (512, 100, 100));
        let mut turn = |engines: &mut Workers, after: Duration| {
            now += after;
            (0..3).for_each(|_| engines.iter_mut().for_each(|(engine, _)| turned(engine, &mut now)));
            [0, 1].map(|worker: usize| std::mem::take(&mut engines[worker].0.news))
        };
        turn(&mut engines, Duration::ZERO);
        let others = [Op::Read, Op::Write].map(|op| submit(&mut engines[0], op, Flags::NONE, &(16..24), &[2; 4096]));
        assert_eq!(turn(&mut engines, Duration::ZERO), [vec![], vec![]], "it may end in time");
        let [mut first, second] = turn(&mut engines, fairlift_core::time::secs(31));
        first.sort_by_key(|(ticket, _)| *ticket);
        let done = others.map(|ticket| (ticket, News::Ended(Outcome::Done)));
        assert_eq!((first, second), ([&[(hung, News::TimedOut)][..], &done].concat(), vec![]));
        device.set_faults(&Faults::default());
        let after = turn(&mut engines, Duration::ZERO);
        assert_eq!(after, [vec![(hung, News::Released)], vec![(part, News::Ended(Outcome::Done))]]);
        others.into_iter().chain([hung]).for_each(|ticket| _ = engines[0].0.release(ticket));
        engines[1].0.release(part);
        assert_at_rest(&engines);
    }
}
