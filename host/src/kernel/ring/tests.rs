//! The same script on both rings: what completes is the same, and so are the bytes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixListener, UnixStream};

use fairlift_core::time::ms;
use fairlift_lab::{Random, repeat};

use super::*;
use crate::kernel::call::{Pieces, Work};

const SOCKETS: usize = 3;
/// Each is a buffer that a direct receive or a file read goes into.
const LEN: usize = 64 << 10;
const FILE: u64 = 256 << 10;

/// The kind of a call, so that its completion can be looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Receive(usize),
    Send(usize),
    Read(usize),
    Other,
    Accept,
}

/// One ring, with its files and memory.
struct Fixture {
    // Before what it may use.
    ring: Ring,
    ours: Vec<UnixStream>,
    theirs: Vec<UnixStream>,
    recv: RecvRing,
    /// Buffers that the test has not given back.
    held: Vec<u16>,
    memory: Vec<Vec<u8>>,
    outgoing: Vec<Vec<u8>>,
    messages: Vec<(Box<libc::iovec>, Box<libc::msghdr>)>,
    pieces: Vec<Vec<libc::iovec>>,
    file: fs::File,
    bell: OwnedFd,
    listener: UnixListener,
    path: std::path::PathBuf,
}

/// The content of a completion: its data, result, whether it goes on, and the bytes that came.
type Observed = (u64, i32, bool, Vec<u8>);

impl Fixture {
    fn new(kind: super::Kind, name: &str) -> Self {
        let mut ring = Ring::new(kind, 64, 256, 4).unwrap();
        ring.make_room_for_files(4).unwrap();
        let dir = std::env::temp_dir();
        let path = dir.join(format!("fairlift-ring-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let image = dir.join(format!("fairlift-ring-{name}-{}.img", std::process::id()));
        let file = fs::File::options().create(true).truncate(true).read(true).write(true).open(&image).unwrap();
        fs::remove_file(&image).unwrap();
        file.set_len(FILE).unwrap();
        ring.set_file(2, Some(file.as_raw_fd()));
        let mut recv = RecvRing::new(4, 4096).unwrap();
        ring.register_recv(&recv).unwrap();
        recv.grow();
        recv.grow();
        let (ours, theirs) = (0..SOCKETS).map(|_| UnixStream::pair().unwrap()).unzip();
        let bell = bell();
        let buffers = || (0..SOCKETS).map(|_| vec![0; LEN]).collect();
        let (memory, outgoing) = (buffers(), buffers());
        let (held, messages, pieces) = Default::default();
        Self { ring, ours, theirs, recv, held, memory, outgoing, messages, pieces, file, bell, listener, path }
    }

    fn push(&mut self, call: Call, data: u64) {
        // SAFETY: what it names is this fixture's, which drops the ring first and leaves the memory alone until it has completed.
        unsafe { self.ring.push(call, data) }
    }

    /// All that completes until nothing more does, in an order of its own; among it what `must`.
    fn settle(&mut self, kinds: &[Kind], must: &[u64]) -> Vec<Observed> {
        let (mut seen, mut idle): (Vec<Observed>, _) = (Vec::new(), 0);
        // A helper may take its time.
        while idle < 3 || idle < 5000 && !must.iter().all(|data| seen.iter().any(|(of, ..)| of == data)) {
            self.ring.turn(Some(ms(1)));
            idle += 1;
            while let Some(completion) = self.ring.reap() {
                idle = 0;
                seen.push(self.see(kinds, completion));
                assert!(seen.len() < 1000, "there is no end of it");
            }
        }
        seen.sort();
        // A descriptor that gets ready twice is told of once or twice.
        seen.dedup_by(|one, other| one == other && one.2 && kinds.get(one.0 as usize) == Some(&Kind::Other));
        seen
    }

    fn see(&mut self, kinds: &[Kind], completion: Completion) -> Observed {
        let Completion { data, mut result, .. } = completion;
        let bytes = match kinds.get(data as usize) {
            Some(Kind::Receive(_) | Kind::Other) if completion.buffer.is_some() => {
                let buffer = completion.buffer.expect("seen");
                self.held.push(buffer);
                self.recv.received(buffer, result as usize).to_vec()
            }
            Some(Kind::Receive(socket) | Kind::Read(socket)) if result > 0 => {
                self.memory[*socket][..result as usize].to_vec()
            }
            Some(Kind::Accept) if result >= 0 => {
                // SAFETY: the kernel has just made it for us.
                drop(unsafe { OwnedFd::from_raw_fd(result) });
                result = 0;
                Vec::new()
            }
            _ => Vec::new(),
        };
        (data, result, completion.goes_on, bytes)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// An eventfd.
fn bell() -> OwnedFd {
    // SAFETY: takes numbers and returns a new descriptor.
    unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) }
}

/// A script, told to both.
struct Both {
    fixtures: [Fixture; 2],
    random: Random,
    /// By data.
    kinds: Vec<Kind>,
    /// Calls that have not ended, by data.
    open: BTreeSet<u64>,
    /// Of those, what cancels are tried on.
    waiting: BTreeSet<u64>,
    /// Numbers that can have a receive, a send.
    receiving: [bool; SOCKETS],
    sending: [bool; SOCKETS],
    reading: [bool; SOCKETS],
    accepting: bool,
    /// Something is under way at the file.
    at_file: bool,
}

impl Both {
    fn new(seed: u64) -> Self {
        let fixtures = [Fixture::new(super::Kind::IoUring, "uring"), Fixture::new(super::Kind::Poll, "poll")];
        let (kinds, open, waiting, receiving, sending, reading, accepting, at_file) = Default::default();
        let random = Random::new(seed);
        Self { fixtures, random, kinds, open, waiting, receiving, sending, reading, accepting, at_file }
    }

    fn any(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    fn number(&mut self, kind: Kind) -> u64 {
        self.kinds.push(kind);
        let data = self.kinds.len() as u64 - 1;
        self.open.insert(data);
        data
    }

    /// One step; what must complete for it.
    fn step(&mut self, first: bool) -> Option<u64> {
        let (which, socket) = (self.any(16), self.any(SOCKETS));
        match which {
            0 | 1 if !self.receiving[socket] && !self.reading[socket] => {
                let (shared, wait, len) = (self.any(2) == 0, self.any(2) == 0, 1 + self.any(LEN));
                let data = self.number(Kind::Receive(socket));
                self.receiving[socket] = true;
                for fixture in &mut self.fixtures {
                    let into = (!shared).then(|| (fixture.memory[socket].as_mut_ptr(), len as u32));
                    fixture.push(Call::Receive { fd: fixture.ours[socket].as_raw_fd(), into, wait }, data);
                }
            }
            2..=4 => {
                let bytes: Vec<u8> = (0..1 + self.any(9000)).map(|_| self.random.below(256) as u8).collect();
                let mut room = true;
                for fixture in &mut self.fixtures {
                    fixture.theirs[socket].set_nonblocking(true).unwrap();
                    // Once it has left, or is full, nothing goes.
                    room = room && fixture.theirs[socket].write(&bytes).is_ok();
                }
            }
            5 if !self.sending[socket] => {
                let most = [LEN, 100][self.any(2)];
                let len = 1 + self.any(most);
                let data = self.number(Kind::Send(socket));
                self.sending[socket] = true;
                for fixture in &mut self.fixtures {
                    fixture.outgoing[socket][..len]
                        .iter_mut()
                        .enumerate()
                        .for_each(|(n, byte)| *byte = (n as u64 ^ data) as u8);
                    let (iov_base, iov_len) = (fixture.outgoing[socket].as_mut_ptr().cast(), len);
                    let mut iovec = Box::new(libc::iovec { iov_base, iov_len });
                    // SAFETY: all zeroes are a valid `msghdr`.
                    let mut message: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
                    (message.msg_iov, message.msg_iovlen) = (&raw mut *iovec, 1);
                    let call = Call::Send { fd: fixture.ours[socket].as_raw_fd(), message: &raw const *message };
                    fixture.messages.push((iovec, message));
                    fixture.push(call, data);
                }
            }
            6 => {
                let mut got = self.fixtures.iter_mut().map(|fixture| {
                    fixture.theirs[socket].set_nonblocking(true).unwrap();
                    let mut all = Vec::new();
                    let _ = fixture.theirs[socket].read_to_end(&mut all);
                    all
                });
                assert_eq!(got.next(), got.next(), "what arrived at the other end");
            }
            // Of two that are under way at once, either may be the first.
            7 if !std::mem::replace(&mut self.at_file, true) => {
                let (at, len) = (self.any(FILE as usize) as u64, 1 + self.any(LEN));
                let data = self.number(Kind::Other);
                for fixture in &mut self.fixtures {
                    let start = fixture.outgoing[0].as_mut_ptr();
                    let from = Pieces::One { start, len: len as u32, block: None };
                    fixture.push(Call::File(2, Work::Write { from, at, flags: 0 }), data);
                }
                return Some(data);
            }
            8 | 9 if !self.receiving[socket] && !std::mem::replace(&mut self.at_file, true) => {
                // Past the end too.
                let at = self.any(FILE as usize * 5 / 4) as u64;
                let data = self.number(Kind::Read(socket));
                self.reading[socket] = true;
                for fixture in &mut self.fixtures {
                    let start = fixture.memory[socket].as_mut_ptr();
                    let piece = |from: usize, len: usize| libc::iovec {
                        iov_base: start.wrapping_add(from).cast(),
                        iov_len: len,
                    };
                    fixture.pieces.push(vec![piece(0, 512), piece(512, 1000)]);
                    let into = Pieces::of(fixture.pieces.last().expect("pushed"), None);
                    fixture.push(Call::File(2, Work::Read { into, at }), data);
                }
                return Some(data);
            }
            10 if !std::mem::replace(&mut self.at_file, true) => {
                let (at, len) = (self.any(FILE as usize) as u64, 1 + self.any(LEN) as u64);
                let mode = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;
                let work = [
                    Work::Allocate { mode, at, len },
                    Work::Allocate { mode: 1 << 20, at, len },
                    Work::Sync { data_only: self.any(2) == 0 },
                ][self.any(3)];
                // There is no file 3.
                let file = 2 + u32::from(self.any(8) == 0);
                let data = self.number(Kind::Other);
                self.fixtures.iter_mut().for_each(|fixture| fixture.push(Call::File(file, work), data));
                return Some(data);
            }
            11 => {
                let (multi, data) = (self.any(2) == 0, self.number(Kind::Other));
                self.waiting.insert(data);
                self.fixtures
                    .iter_mut()
                    .for_each(|fixture| fixture.ring.poll(fixture.bell.as_fd(), libc::POLLIN, multi, data));
            }
            12 => {
                let data = self.number(Kind::Other);
                self.fixtures.iter_mut().for_each(|fixture| fixture.ring.signal(fixture.bell.as_fd(), Some(data)));
                return Some(data);
            }
            13 => {
                // So that there is something to wait for again.
                let polled = self.waiting.iter().any(|data| self.kinds[*data as usize] == Kind::Other);
                for fixture in &mut self.fixtures {
                    let mut bell = fs::File::from(fixture.bell.try_clone().unwrap());
                    let mut ready = [rustix::event::PollFd::new(&fixture.bell, rustix::event::PollFlags::IN)];
                    if !polled && rustix::event::poll(&mut ready, Some(&rustix::event::Timespec::default())) == Ok(1) {
                        bell.read_exact(&mut [0; 8]).unwrap();
                    }
                }
            }
            14 => {
                if !self.accepting {
                    self.accepting = true;
                    let data = self.number(Kind::Accept);
                    self.waiting.insert(data);
                    self.fixtures.iter_mut().for_each(|fixture| fixture.ring.accept(fixture.listener.as_fd(), data));
                }
                self.fixtures.iter().for_each(|fixture| drop(UnixStream::connect(&fixture.path).unwrap()));
            }
            // Calls of the same batch may have completed by then, or not.
            15 if first => {
                // A waiting call, or one that does not exist.
                let all: Vec<u64> = self.waiting.iter().copied().collect();
                let data = if all.is_empty() { u64::MAX } else { all[self.any(all.len())] };
                self.waiting.remove(&data);
                let cancel = self.number(Kind::Other);
                self.fixtures.iter_mut().for_each(|fixture| fixture.push(Call::Cancel { data }, cancel));
                return Some(cancel);
            }
            _ if self.any(10) == 0 => {
                let how = [std::net::Shutdown::Write, std::net::Shutdown::Both][self.any(2)];
                self.fixtures.iter().for_each(|fixture| drop(fixture.theirs[socket].shutdown(how)));
            }
            _ if self.any(10) == 0 => {
                let how = std::net::Shutdown::Read;
                self.fixtures.iter().for_each(|fixture| drop(fixture.ours[socket].shutdown(how)));
            }
            _ if self.any(3) == 0 => {
                for fixture in &mut self.fixtures {
                    // It completes with nothing; that it was done shows.
                    let bell = bell();
                    fixture.ring.signal(bell.as_fd(), None);
                    let mut ready = [rustix::event::PollFd::new(&bell, rustix::event::PollFlags::IN)];
                    while rustix::event::poll(&mut ready, Some(&rustix::event::Timespec::default())) != Ok(1) {
                        fixture.ring.turn(Some(ms(1)));
                    }
                    let mut count = [0; 8];
                    fs::File::from(bell).read_exact(&mut count).unwrap();
                    assert_eq!(u64::from_ne_bytes(count), 1);
                }
            }
            _ => {
                // Buffers go back, or are held, so that there are none.
                let keep = self.any(3);
                for fixture in &mut self.fixtures {
                    while fixture.held.len() > keep {
                        let buffer = fixture.held.remove(0);
                        fixture.recv.publish(buffer);
                    }
                }
                self.fixtures.iter_mut().for_each(|fixture| fixture.push(Call::Nop, 0));
                return Some(0);
            }
        }
        None
    }

    /// Lets both do what there is to do, and compares.
    fn compare(&mut self, must: &[u64]) -> Vec<Observed> {
        let [uring, poll] = &mut self.fixtures;
        let wanted = uring.settle(&self.kinds, must);
        let is = poll.settle(&self.kinds, must);
        self.at_file = false;
        assert_eq!(is.len(), wanted.len(), "poll: {}, io_uring: {}", short(&is), short(&wanted));
        assert!(is == wanted, "poll: {}, io_uring: {}", short(&is), short(&wanted));
        for (data, _, goes_on, _) in &wanted {
            if *goes_on || *data >= self.kinds.len() as u64 {
                continue;
            }
            self.open.remove(data);
            self.waiting.remove(data);
            match self.kinds[*data as usize] {
                Kind::Receive(socket) => self.receiving[socket] = false,
                Kind::Send(socket) => self.sending[socket] = false,
                Kind::Read(socket) => self.reading[socket] = false,
                Kind::Accept => self.accepting = false,
                Kind::Other => {}
            }
        }
        wanted
    }
}

fn short(all: &[Observed]) -> String {
    format!("{:?}", all.iter().map(|(data, result, more, bytes)| (data, result, more, bytes.len())).collect::<Vec<_>>())
}

/// poll.1, poll.2, poll.3: receives into buffers that may run out, sends to those who do not read, peers that leave, files, eventfds,
/// listeners and cancels, in any order: both rings complete the same calls with the same results and the same bytes.
#[test]
fn a_ring_without_io_uring_completes_what_io_uring_would() {
    if let Err(error) = Uring::probe() {
        println!("skipped: io_uring is not to be had: {error}");
        return;
    }
    let mut happened = BTreeSet::new();
    for seed in repeat::seeds(0..5) {
        let mut both = Both::new(seed);
        both.number(Kind::Other); // of `Nop`
        for _ in 0..150 {
            // Some go in one batch.
            let must: Vec<u64> = (0..1 + both.any(2)).filter_map(|nth| both.step(nth == 0)).collect();
            for (data, result, ..) in both.compare(&must) {
                let kind = both.kinds.get(data as usize).map(|kind| format!("{kind:?}")[..4].to_owned());
                happened.insert((kind, result.clamp(-1000, 1)));
            }
        }
        let [uring, poll] = &both.fixtures;
        let mut images = [vec![0; FILE as usize], vec![0; FILE as usize]];
        uring.file.read_exact_at(&mut images[0], 0).unwrap();
        poll.file.read_exact_at(&mut images[1], 0).unwrap();
        assert!(images[0] == images[1], "the files are the same");
    }
    let results = |kind: &str| -> Vec<i32> {
        happened.iter().filter(|(of, _)| of.as_deref() == Some(kind)).map(|(_, result)| *result).collect()
    };
    println!("{happened:?}");
    // Or nothing was compared.
    assert!([-libc::ENOBUFS, 0, 1].iter().all(|result| results("Rece").contains(result)), "{:?}", results("Rece"));
    assert!([-libc::EPIPE, 1].iter().all(|result| results("Send").contains(result)), "{:?}", results("Send"));
    assert!([0, 1].iter().all(|result| results("Read").contains(result)), "{:?}", results("Read"));
    assert!([-libc::ECANCELED, 0].iter().all(|result| results("Acce").contains(result)), "{:?}", results("Acce"));
    let others = [-libc::ECANCELED, -libc::ENOENT, -libc::EBADF, -libc::EOPNOTSUPP, 0, 1];
    assert!(others.iter().all(|result| results("Othe").contains(result)), "{:?}", results("Othe"));
}

/// poll.1: when a send must wait differs, by how much memory the kernel takes for it; that it goes on does not.
#[test]
fn a_send_that_must_wait_goes_on_when_the_other_end_reads() {
    let kinds = [super::Kind::IoUring, super::Kind::Poll];
    for kind in kinds.into_iter().filter(|kind| *kind == super::Kind::Poll || Uring::probe().is_ok()) {
        let mut fixture = Fixture::new(kind, &format!("send-{kind:?}"));
        fixture.theirs[0].set_nonblocking(true).unwrap();
        fixture.outgoing[0].iter_mut().enumerate().for_each(|(n, byte)| *byte = (n % 251) as u8);
        let mut iovec = libc::iovec { iov_base: fixture.outgoing[0].as_mut_ptr().cast(), iov_len: LEN };
        // SAFETY: all zeroes are a valid `msghdr`.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut iovec, 1);
        let call = Call::Send { fd: fixture.ours[0].as_raw_fd(), message: &raw const message };
        let (mut sent, mut arrived) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            loop {
                fixture.push(call, 0);
                match fixture.settle(&[Kind::Send(0)], &[])[..] {
                    [] => break,
                    [(0, bytes @ 1.., false, _)] => sent.extend_from_slice(&fixture.outgoing[0][..bytes as usize]),
                    ref other => panic!("{kind:?}: {}", short(other)),
                }
                assert!(sent.len() < 64 * LEN, "{kind:?}: nothing had to wait");
            }
            let _ = fixture.theirs[0].read_to_end(&mut arrived);
            assert!(arrived == sent, "{kind:?}: a send that waits has sent nothing");
            let [(0, bytes @ 1.., false, _)] = fixture.settle(&[Kind::Send(0)], &[0])[..] else {
                panic!("{kind:?}: it did not go on")
            };
            sent.extend_from_slice(&fixture.outgoing[0][..bytes as usize]);
        }
        let _ = fixture.theirs[0].read_to_end(&mut arrived);
        assert!(arrived == sent, "{kind:?}");
    }
}

#[test]
fn a_pause_ends_by_itself_or_when_it_is_taken_back() {
    let mut fixture = Fixture::new(super::Kind::IoUring, "pause");
    assert!(fixture.ring.pause(ms(1), 1));
    assert!(fixture.ring.pause(fairlift_core::time::secs(1000), 2));
    fixture.ring.submit();
    fixture.ring.cancel(2);
    let seen: Vec<_> = fixture.settle(&[], &[1, 2]).into_iter().map(|(data, result, ..)| (data, result)).collect();
    assert!(seen.contains(&(1, -libc::ETIME)) && seen.contains(&(2, -libc::ECANCELED)), "{seen:?}");
    let mut poll = Ring::new(super::Kind::Poll, 8, 8, 1).unwrap();
    assert!(!poll.pause(ms(1), 1), "it has no timers");
}
