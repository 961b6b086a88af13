//! A disk goes from one scheduler to another while clients write and read it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fairlift::config::{Address, Backing, Config, Disk, Export, FileAt, Listener, Ram, Tls};
use fairlift::control::{Edit, Made, Refused};
use fairlift::{Handle, Server};
use fairlift_core::sched::Kind;

const CLIENTS: u64 = 6;
const BLOCK: u64 = 4096;
/// Requests that a client keeps in flight.
const BATCH: u64 = 16;
/// Blocks that a client has for itself.
const BLOCKS: u64 = 256;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const FUA: u16 = 1;

fn serve(socket: &Path, backing: Backing, shared_tags: bool) -> Server {
    let disk = Disk { depth: Some(8), shared_tags, ..Disk::new("d", Kind::None) };
    let export = Export { disk: Some(0), ..Export::new("d", backing) };
    let config = Config {
        disk_default: disk.clone(),
        disks: vec![disk].into(),
        exports: vec![export].into(),
        listeners: vec![Listener::new(Address::Unix(socket.to_owned()), Tls::Off)],
        workers: Some(3),
        ..Config::default()
    };
    Server::bind(config).unwrap()
}

/// A client that asks and looks at what it is answered.
struct Client {
    socket: UnixStream,
    number: u64,
    cookie: u64,
    /// How often each of its blocks was written.
    written: Vec<u64>,
}

impl Client {
    fn connect(path: &Path, number: u64) -> Self {
        let mut socket = UnixStream::connect(path).unwrap();
        // A request that is lost ends the test, with its name, instead of hanging it.
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.read_exact(&mut [0; 18]).unwrap();
        socket.write_all(&3u32.to_be_bytes()).unwrap();
        socket.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\x01d").unwrap();
        socket.read_exact(&mut [0; 10]).unwrap();
        Self { socket, number, cookie: 0, written: vec![0; BLOCKS as usize] }
    }

    fn at(&self, block: u64) -> u64 {
        (self.number * BLOCKS + block) * BLOCK
    }

    /// What a block holds after so many writes: nobody else writes the same anywhere.
    fn content(&self, block: u64) -> Vec<u8> {
        let words = [self.at(block), self.written[block as usize], self.number, 0x5eed];
        let none = self.written[block as usize] == 0;
        let word = |n: u64| if none { 0 } else { words[n as usize % 4].wrapping_mul(n | 1) };
        (0..BLOCK / 8).flat_map(|n| word(n).to_be_bytes()).collect()
    }

    fn ask(&mut self, out: &mut Vec<u8>, command: u16, flags: u16, block: u64, len: u64) {
        out.extend(0x2560_9513_u32.to_be_bytes());
        out.extend(flags.to_be_bytes());
        out.extend(command.to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        out.extend(if command == FLUSH { 0 } else { self.at(block) }.to_be_bytes());
        out.extend((len as u32).to_be_bytes());
        self.cookie += 1;
    }

    /// The cookie of the next reply, which must be no error.
    fn reply(&mut self) -> u64 {
        let mut head = [0; 16];
        self.socket.read_exact(&mut head).expect("a reply comes");
        assert_eq!(head[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "it is no error");
        u64::from_be_bytes(head[8..].try_into().unwrap())
    }

    /// Writes some blocks and flushes, then reads them back, all in flight at once; how many requests that was.
    fn round(&mut self, random: &mut u64) -> u64 {
        let mut next = || {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *random >> 33
        };
        let first = next() % (BLOCKS - BATCH);
        let mut out = Vec::new();
        let base = self.cookie;
        for n in 0..BATCH {
            let block = first + n;
            self.written[block as usize] += 1;
            let flags = if next() % 8 == 0 { FUA } else { 0 };
            self.ask(&mut out, WRITE, flags, block, BLOCK);
            out.extend(self.content(block));
        }
        self.ask(&mut out, FLUSH, 0, 0, 0);
        self.socket.write_all(&out).unwrap();
        let mut seen: Vec<u64> = (0..=BATCH).map(|_| self.reply()).collect();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(base..=base + BATCH), "each is answered once: {seen:?}");
        out.clear();
        let base = self.cookie;
        for n in 0..BATCH {
            self.ask(&mut out, READ, 0, first + n, BLOCK);
        }
        self.socket.write_all(&out).unwrap();
        let mut seen = vec![false; BATCH as usize];
        let mut bytes = vec![0; BLOCK as usize];
        for _ in 0..BATCH {
            let n = self.reply() - base;
            self.socket.read_exact(&mut bytes).unwrap();
            assert!(!std::mem::replace(&mut seen[n as usize], true), "it is answered once");
            assert!(bytes == self.content(first + n), "client {} reads what it wrote", self.number);
        }
        2 * BATCH + 1
    }
}

fn set_scheduler(handle: &Handle, disk: &str, kind: Kind, set: &[(&str, &str)]) -> Result<Made, Refused> {
    let set: Vec<_> = set.iter().map(|(knob, value)| ((*knob).to_owned(), (*value).to_owned())).collect();
    let edit = |edit: &mut Edit| edit.disk(disk).map(|disk| (disk.scheduler, disk.set) = (kind, set));
    handle.change(edit, None, false)
}

fn scheduler(handle: &Handle) -> Kind {
    handle.view(false).unwrap().disks[0].scheduler
}

fn wait_for(handle: &Handle, kind: Kind) {
    let start = Instant::now();
    while scheduler(handle) != kind {
        assert!(start.elapsed() < Duration::from_secs(20), "{} is not in place", kind.name());
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Schedulers and depths follow one another while clients work: nothing is lost, answered twice, or read otherwise than it was written.
fn schedulers_follow_one_another(name: &str, backing: Backing, shared_tags: bool) {
    let socket: PathBuf = std::env::temp_dir().join(format!("fairlift-{name}-{}.sock", std::process::id()));
    let server = serve(&socket, backing, shared_tags);
    let handle = server.handle();
    let serving = std::thread::spawn(move || server.run());
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (stop, served, socket) = (Arc::clone(&stop), Arc::clone(&served), socket.clone());
            std::thread::spawn(move || {
                let (mut client, mut random) = (Client::connect(&socket, number), number + 1);
                while !stop.load(Ordering::Relaxed) {
                    served.fetch_add(client.round(&mut random), Ordering::Relaxed);
                }
            })
        })
        .collect();
    let order = [Kind::Fair, Kind::Bfq, Kind::None, Kind::MqDeadline, Kind::None, Kind::Bfq, Kind::Fair, Kind::None];
    let depths = [Some(40), Some(2), None, Some(200), Some(9)];
    for (kind, depth) in order.iter().zip(depths.iter().cycle()).cycle().take(5 * order.len()) {
        let before = served.load(Ordering::Relaxed);
        set_scheduler(&handle, "d", *kind, &[]).unwrap();
        wait_for(&handle, *kind);
        let edit = |edit: &mut Edit| edit.disk("d").map(|disk| disk.depth = *depth);
        handle.change(edit, None, false).unwrap();
        // Some are served under each.
        let start = Instant::now();
        while served.load(Ordering::Relaxed) < before + 3 * CLIENTS {
            assert!(start.elapsed() < Duration::from_secs(20), "nothing is served under {}", kind.name());
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    handle.drain();
    serving.join().unwrap().unwrap();
}

#[test]
fn over_ram_schedulers_follow_one_another() {
    schedulers_follow_one_another("ram", Backing::from(Ram { size: CLIENTS * BLOCKS * BLOCK }), false);
}

#[test]
fn over_ram_with_shared_tags_schedulers_follow_one_another() {
    schedulers_follow_one_another("tags", Backing::from(Ram { size: CLIENTS * BLOCKS * BLOCK }), true);
}

#[test]
fn over_a_file_schedulers_follow_one_another() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("handover-{}.img", std::process::id()));
    std::fs::File::create(&path).unwrap().set_len(CLIENTS * BLOCKS * BLOCK).unwrap();
    let backing = Backing::from(FileAt::new(&path));
    schedulers_follow_one_another("file", backing, false);
    std::fs::remove_file(&path).unwrap();
}

/// A server that is told to stop while a disk is between two schedulers ends as ever.
#[test]
fn a_server_ends_while_a_disk_is_frozen() {
    let socket: PathBuf = std::env::temp_dir().join(format!("fairlift-end-{}.sock", std::process::id()));
    let server = serve(&socket, Backing::from(Ram { size: CLIENTS * BLOCKS * BLOCK }), false);
    let handle = server.handle();
    assert!(set_scheduler(&handle, "e", Kind::Bfq, &[]).is_err(), "there is no such disk");
    assert!(set_scheduler(&handle, "d", Kind::Bfq, &[("depth", "x")]).is_err(), "there is no such tunable");
    // No client uses the disk yet, so the change waits for no worker.
    set_scheduler(&handle, "d", Kind::Bfq, &[]).unwrap();
    assert_eq!(scheduler(&handle), Kind::Bfq);
    let serving = std::thread::spawn(move || server.run());
    let mut client = Client::connect(&socket, 0);
    client.round(&mut 1);
    set_scheduler(&handle, "d", Kind::None, &[]).unwrap();
    handle.drain();
    serving.join().unwrap().unwrap();
}
