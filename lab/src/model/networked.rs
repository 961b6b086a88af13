//! Networked: a cluster of storage daemons behind a network, as one client of it sees it.
//!
//! Such a device has many times the disks that one machine has, and a client cannot use them: a request takes as long as the way there and
//! back, and the client's own connection carries a bounded number of requests in a second. Example: `rbd-3x` does 4.4 million reads a
//! second; one client gets 100,000 of them, with 36 requests outstanding, and 3,000 with one. And it is as even as its worst daemon: one
//! that is away holds up one object in sixty until the others have noticed, 20 s later.
//!
//! ```text
//!  client ─▶ window ─▶ connection (one at a time) ─▶ way ─▶ daemon of the object (some at a time) ─▶ way ─▶ client
//! ```
//!
//! net.1  At most `window` requests are under way; later ones wait in order of arrival.
//! net.2  Each of the `connections` sends one request at a time: `link`, and `kib` for each KiB of payload, whichever way that goes. Requests
//!        take the connections in turn.
//! net.3  A daemon works on `at_once` requests at a time, those that came first. There are `osds` of them, and an object of 4 MiB is on one of
//!        them, by a hash of its number.
//! net.4  A request takes its daemon `read` or `write` (which has the replicas in it); the part `spread` of it, in per cent, is drawn from an
//!        exponential distribution; and one in `tail` takes `tail_time` more.
//! net.5  A flush ends when all writes before it have, `flush` later.
//! net.6  About every `stall_every` a daemon, by the seed, begins nothing for `stall`.
//!
//! **Not modelled:** the client's cache, recovery and its load on the daemons, scrubbing, other clients.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fairlift_core::model::{Character, Model, ModelCompletion, ModelRequest};
use fairlift_core::time::{ms, secs, us};
use fairlift_core::{Duration, Instant, Limits, Op, Outcome, Sector, settings};

use super::{Profile, Settings as Any};
use crate::Random;

/// Sectors of an object (Ceph's default, 4 MiB).
const OBJECT: u64 = (4 << 20) / Sector::SIZE;

/// Every number with its source: **M** published by the page named, **F** fitted on it, **D** a default in Ceph's documentation, **E** estimated.
///
/// The page is ceph.io, "Ceph Reef Freeze Part 1: RBD Performance" (2023): 10 nodes, 60 NVMe drives, three replicas.
pub(super) const PROFILES: &[Profile] = &[Profile {
    name: "rbd-3x",
    about: "an image of a Ceph cluster of 60 NVMe drives with three replicas, as one client sees it",
    size: 1 << 40,
    settings: || Any::Networked(Settings::default()),
}];

settings! {
    /// Its numbers. By default those of `rbd-3x`.
    #[derive(Clone, Debug)]
    pub struct Settings {
        /// connections of the client
        pub connections: u32 = 1, count(1, 64);
        /// a connection, for a request
        pub link: Duration = us(10), duration(us(0), ms(10)); // E: 100,000 requests a second of one client
        /// a connection, for a KiB of payload
        pub kib: Duration = Duration::from_nanos(350), duration(us(0), ms(1)); // E: 25 Gb/s
        /// requests under way, at most
        pub window: u32 = 1024, count(1, 65_535); // D: objecter_inflight_ops
        /// the network, once
        pub way: Duration = us(50), duration(us(0), secs(1)); // E: half of a round trip within a data centre
        /// a daemon, for a read
        pub read: Duration = us(200), duration(us(0), secs(1)); // E
        /// a daemon, for a write
        pub write: Duration = us(330), duration(us(0), secs(1)); // F: "sub 0.5ms average latency" of synchronous 4 KiB writes
        /// a flush
        pub flush: Duration = us(10), duration(us(0), secs(1)); // E: nothing is in a cache
        /// daemons
        pub osds: u32 = 60, count(1, 10_000); // M
        /// requests that a daemon works on at a time
        pub at_once: u32 = 15, count(1, 1024); // F: 4.4 million random reads a second
        /// per cent of a daemon's time that are left to chance
        pub spread: u32 = 20, count(0, 100); // F: "sub 0.5ms 99% latency"
        /// requests for each one that is late; 0: none is
        pub tail: u32 = 1000, count(0, 1_000_000); // F: "sub 0.8ms 99.9% latency"
        /// by how much it is
        pub tail_time: Duration = us(300), duration(us(0), secs(10)); // F: the same
        /// how often a daemon is away; 0: never
        pub stall_every: Duration = secs(0), duration(us(0), secs(3600)); // none, unless it is asked for
        /// for how long it is
        pub stall: Duration = secs(20), duration(us(0), secs(600)); // D: osd_heartbeat_grace, after which a daemon that is away is taken for dead
    }
}

#[derive(Clone, Default)]
struct Daemon {
    /// When each of those that it works on ends; at most `at_once`.
    working: BinaryHeap<Reverse<Instant>>,
    away_until: Instant,
}

/// The model.
pub struct Networked {
    settings: Settings,
    sectors: u64,
    random: Random,
    /// Beyond the window.
    waiting: VecDeque<ModelRequest>,
    /// When each connection has sent all that it was given, and whose turn it is.
    links: Vec<Instant>,
    turn: usize,
    daemons: Vec<Daemon>,
    /// When the last write ends.
    written: Instant,
    next_stall: Option<Instant>,
    /// Requests under way, by their end; those that end together, by name.
    ends: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl Networked {
    /// At rest.
    #[must_use]
    pub fn new(settings: Settings, sectors: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let stalls = settings.stall_every > Duration::ZERO;
        Self {
            next_stall: stalls.then(|| Instant::ZERO + random.exponential(settings.stall_every)),
            sectors,
            random,
            waiting: VecDeque::new(),
            links: vec![Instant::ZERO; settings.connections as usize],
            turn: 0,
            daemons: vec![Daemon::default(); settings.osds as usize],
            written: Instant::ZERO,
            ends: BinaryHeap::new(),
            settings,
        }
    }

    /// It goes on its way: net.2 to net.5.
    fn send(&mut self, now: Instant, request: &ModelRequest) {
        if request.op == Op::Flush {
            let ends = now.max(self.written) + self.settings.flush;
            return self.ends.push(Reverse((ends, request.id)));
        }
        self.stall(now);
        let payload = if request.op.has_payload() { request.extent.sectors * Sector::SIZE } else { 0 };
        let link = self.settings.link.as_nanos() + self.settings.kib.as_nanos() * payload / 1024;
        self.turn = (self.turn + 1) % self.links.len();
        let sent = self.links[self.turn].max(now) + Duration::from_nanos(link);
        self.links[self.turn] = sent;
        let takes = self.takes(request.op);
        let number = self.daemon(request.extent.start.0 / OBJECT);
        let daemon = &mut self.daemons[number];
        let mut begins = (sent + self.settings.way).max(daemon.away_until);
        if daemon.working.len() == self.settings.at_once as usize {
            let Reverse(free) = daemon.working.pop().expect("a daemon works on one request at least");
            begins = begins.max(free);
        }
        let done = begins + takes;
        daemon.working.push(Reverse(done));
        let ends = done + self.settings.way;
        if request.op != Op::Read {
            self.written = self.written.max(ends);
        }
        self.ends.push(Reverse((ends, request.id)));
    }

    /// How long a daemon takes: net.4.
    fn takes(&mut self, op: Op) -> Duration {
        let mean = if op == Op::Read { self.settings.read } else { self.settings.write }.as_nanos();
        let spread = mean * u64::from(self.settings.spread) / 100;
        let chance = self.random.exponential(Duration::from_nanos(spread.max(1)));
        let tail = u64::from(self.settings.tail);
        let late = tail > 0 && self.random.below(tail) == 0;
        let late = if late { self.settings.tail_time } else { Duration::ZERO };
        Duration::from_nanos(mean - spread) + if spread > 0 { chance } else { Duration::ZERO } + late
    }

    /// Which daemon has an object: net.3.
    fn daemon(&self, object: u64) -> usize {
        // Fibonacci hashing; the high bits are the mixed ones.
        (object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % self.daemons.len()
    }

    /// Daemons go away: net.6.
    fn stall(&mut self, now: Instant) {
        while let Some(at) = self.next_stall.filter(|at| *at <= now) {
            let daemon = self.random.below(self.daemons.len() as u64) as usize;
            self.daemons[daemon].away_until = at + self.settings.stall;
            self.next_stall = Some(at + self.random.exponential(self.settings.stall_every));
        }
    }
}

impl Model for Networked {
    fn limits(&self) -> Limits {
        Limits::new(self.sectors)
    }

    fn character(&self) -> Character {
        Character { rotational: false, volatile_cache: true }
    }

    fn submit(&mut self, now: Instant, request: &ModelRequest) {
        if self.ends.len() < self.settings.window as usize {
            self.send(now, request);
        } else {
            self.waiting.push_back(*request); // net.1
        }
    }

    fn poll_event(&self) -> Option<Instant> {
        self.ends.peek().map(|Reverse((at, _))| *at)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<ModelCompletion>) {
        while let Some(Reverse((at, id))) = self.ends.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.ends.pop();
            ended.push(ModelCompletion { at, id, outcome: Outcome::Done });
            if let Some(next) = self.waiting.pop_front() {
                self.send(at, &next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::{Extent, Flags};

    /// A connection takes 10 µs and 1 for a KiB, the way 50, a read 200, a write 300; one daemon works on two at a time.
    fn settings() -> Settings {
        Settings {
            connections: 1,
            link: us(10),
            kib: us(1),
            window: 8,
            way: us(50),
            read: us(200),
            write: us(300),
            flush: us(5),
            osds: 1,
            at_once: 2,
            spread: 0,
            tail: 0,
            tail_time: us(0),
            stall_every: us(0),
            stall: us(0),
        }
    }

    fn request(id: u64, op: Op, at: u64, kib: u64) -> ModelRequest {
        ModelRequest { id, op, flags: Flags::NONE, extent: Extent::new(Sector(at), kib * 2) }
    }

    /// When what was asked at once ends, in µs, by name.
    fn ends(settings: Settings, all: &[ModelRequest]) -> Vec<u64> {
        let mut device = Networked::new(settings, 1 << 30, 1);
        all.iter().for_each(|one| device.submit(Instant::ZERO, one));
        let mut ended = Vec::new();
        while let Some(next) = device.poll_event() {
            device.advance(next, &mut ended);
        }
        ended.sort_by_key(|one| one.id);
        ended.iter().map(|one| one.at.since(Instant::ZERO).as_nanos() / 1000).collect()
    }

    fn reads(count: u64) -> Vec<ModelRequest> {
        (0..count).map(|id| request(id, Op::Read, 0, 4)).collect()
    }

    /// net.2, net.3, net.4
    #[test]
    fn requests_share_the_connection_and_then_the_daemon() {
        assert_eq!(ends(settings(), &reads(3)), [314, 328, 14 + 50 + 200 + 200 + 50]);
        assert_eq!(ends(Settings { connections: 2, at_once: 9, ..settings() }, &reads(3)), [314, 314, 328]);
        assert_eq!(ends(settings(), &[request(0, Op::Write, 0, 64)]), [74 + 50 + 300 + 50]);
        assert_eq!(ends(settings(), &[request(0, Op::Discard, 0, 64)]), [10 + 50 + 300 + 50]);
    }

    /// net.1
    #[test]
    fn beyond_the_window_requests_wait_for_an_end() {
        let narrow = Settings { window: 2, at_once: 9, ..settings() };
        assert_eq!(ends(narrow, &reads(4)), [314, 328, 628, 642]);
    }

    /// net.3
    #[test]
    fn objects_are_spread_over_the_daemons() {
        let spread = Settings { osds: 60, at_once: 1, link: us(0), kib: us(0), window: 60_000, ..settings() };
        let all: Vec<_> = (0..6000).map(|id| request(id, Op::Read, id * OBJECT, 4)).collect();
        let last = *ends(spread, &all).iter().max().unwrap();
        assert!((100 * 200..130 * 200).contains(&last), "a hundred each, more or less: {last}");
    }

    /// net.5
    #[test]
    fn a_flush_waits_for_the_writes_before_it() {
        let all = [request(0, Op::Write, 0, 4), ModelRequest { extent: Extent::NONE, ..request(1, Op::Flush, 0, 0) }];
        assert_eq!(ends(settings(), &all), [414, 419]);
        assert_eq!(ends(settings(), &all[1..]), [5]);
    }

    /// net.6
    #[test]
    fn a_daemon_that_is_away_holds_up_its_own_objects_alone() {
        let away = Settings { osds: 4, at_once: 64, stall_every: ms(10), stall: ms(500), window: 60_000, ..settings() };
        let mut device = Networked::new(away, 1 << 30, 3);
        let mut ended = Vec::new();
        for id in 0..2000 {
            device.submit(Instant::ZERO + us(10 * id), &request(id, Op::Read, id * OBJECT, 4));
        }
        while let Some(next) = device.poll_event() {
            device.advance(next, &mut ended);
        }
        let late = ended.iter().filter(|one| one.at > Instant::ZERO + ms(400)).count();
        assert!((200..1500).contains(&late), "{late} of 2000 were held up");
    }

    /// As the page has it: the profile's synchronous writes, and the cluster's throughput in all.
    #[test]
    fn the_profile_does_what_was_published() {
        let Any::Networked(profile) = (PROFILES[0].settings)() else { unreachable!() };
        let mut device = Networked::new(profile.clone(), 1 << 31, 1);
        let (mut now, mut took, mut ended) = (Instant::ZERO, Vec::new(), Vec::new());
        for id in 0..20_000 {
            device.submit(now, &request(id, Op::Write, id * 8, 4));
            let end = device.poll_event().unwrap();
            device.advance(end, &mut ended);
            took.push(end.since(now).as_nanos() / 1000);
            now = end;
        }
        took.sort_unstable();
        let (mean, p99, p999) = (took.iter().sum::<u64>() / 20_000, took[19_800], took[19_980]);
        println!("synchronous writes of 4 KiB: {mean} µs, 99th percentile {p99}, 99.9th {p999}");
        assert!((400..500).contains(&mean) && p999 < 1100, "{mean} {p99} {p999}");
        let rate = f64::from(profile.osds * profile.at_once) / (profile.read.as_nanos() as f64 / 1e9);
        assert!((4.2e6..4.6e6).contains(&rate), "random reads a second, of all clients: {rate}");
    }
}
