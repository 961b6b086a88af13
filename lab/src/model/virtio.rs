//! Virtual disk: answers in lumps.
//!
//! The disk of a virtual machine does not answer requests one by one. A worker of the host takes the queued requests, does them, and then
//! tells the machine of all of them at once. Example: 64 reads of 4 KiB are in the disk; each takes the worker 9 µs, and each round 84 µs
//! besides. Nothing ends for 660 µs, and then all 64 end. A read alone takes 93 µs. So the disk needs many requests for its best rate, and
//! the next request of a scheduler waits until the whole lump is done.
//!
//! ```text
//!  host ─▶ queue ─▶ worker: base + Σ (request + KiB × kib), of at most `lump` requests ─▶ host, all at once
//! ```
//!
//! lump.1  A lump begins when the worker is idle and something is queued. The worker takes the requests queued at that instant, in order of
//!         arrival, at most `lump` requests. Later requests wait for the next lump.
//! lump.2  A lump takes `base`, and for each request `request` and `kib` for each KiB of its payload, reads and writes alike.
//! lump.3  All requests of a lump end together. The next lump begins at once if anything is queued by then.
//! lump.4  A flush costs `flush` besides, as does a write with FUA. The disk says that it has a volatile cache.
//! lump.5  The time of a lump differs from this by up to `jitter` per cent, evenly spread, by the seed.
//!
//! **Not modelled:** the flash behind the host and its long tail, the host's cache (blocks that were not read lately are ten
//! times slower), limits that the host sets, several queues, the drift of tens of per cent within minutes.

use std::collections::VecDeque;

use fairlift_core::model::{Character, Model, ModelCompletion, ModelRequest};
use fairlift_core::time::{ms, secs, us};
use fairlift_core::{Duration, Flags, Instant, Limits, Op, Outcome, Sector, settings};

use crate::Random;

settings! {
    /// Its numbers, by default those of `virtio-ssd`, with sources as in `flash.rs`: the virtio disk of a small virtual machine, through ext4
    /// and direct I/O; the host and its flash are not known.
    #[derive(Clone, Debug)]
    pub struct Settings {
        /// a lump, whatever is in it
        pub base: Duration = us(84), duration(us(0), ms(10)); // F: 4 KiB reads at depth 1 and 8
        /// a request, whatever its length
        pub request: Duration = us(7), duration(us(0), ms(10)); // F: the same at depth 8 and 64
        /// a KiB that is read or written
        pub kib: Duration = Duration::from_nanos(500), duration(us(0), ms(1)); // F: 64 KiB writes at depth 8
        /// a flush, besides
        pub flush: Duration = us(10), duration(us(0), secs(1)); // E: 5,262 commits a second through a server (docs/measured/flush.md), where two requests take 186 µs
        /// requests that are answered at once, at most
        pub lump: u32 = 85, count(1, 65_535); // M: what was seen with 128 requests outstanding; a ring of 256 has room for 85 of three entries
        /// per cent by which the time of a lump differs
        pub jitter: u32 = 10, count(0, 90); // E
        /// requests that the driver sends at once
        pub depth: u32 = 128, count(1, 1023); // E: what Linux sends to a ring of 256
    }
}

impl Settings {
    /// The time that a request adds to its lump: lump.2, lump.4.
    fn cost(&self, request: &ModelRequest) -> u64 {
        let payload = if request.op.has_payload() { request.extent.sectors * Sector::SIZE } else { 0 };
        let durable = request.op == Op::Flush || request.flags.contains(Flags::FUA);
        let flush = if durable { self.flush.as_nanos() } else { 0 };
        self.request.as_nanos() + self.kib.as_nanos() * payload / 1024 + flush
    }
}

/// The model.
pub struct Virtio {
    settings: Settings,
    sectors: u64,
    random: Random,
    /// In no lump yet, in order of arrival.
    queued: VecDeque<ModelRequest>,
    /// The tasks of the worker; empty while it is idle.
    lump: Vec<ModelRequest>,
    began: Instant,
    /// When all of `lump` ends.
    ends: Instant,
    /// Its time, in thousandths of the time by the rules: lump.5.
    pace: u64,
}

impl Virtio {
    /// At rest.
    #[must_use]
    pub fn new(settings: Settings, sectors: u64, seed: u64) -> Self {
        Self {
            settings,
            sectors,
            random: Random::new(seed),
            queued: VecDeque::new(),
            lump: Vec::new(),
            began: Instant::ZERO,
            ends: Instant::ZERO,
            pace: 1000,
        }
    }

    /// Whether the worker takes a request that arrives now: lump.1.
    fn takes(&self, now: Instant) -> bool {
        self.lump.is_empty() || now == self.began && self.lump.len() < self.settings.lump as usize
    }

    fn take_in(&mut self, now: Instant, request: ModelRequest) {
        if self.lump.is_empty() {
            let jitter = u64::from(self.settings.jitter) * 10;
            self.pace = 1000 - jitter + self.random.below(2 * jitter + 1); // lump.5
            (self.began, self.ends) = (now, now);
            self.lasts(self.settings.base.as_nanos());
        }
        self.lasts(self.settings.cost(&request));
        self.lump.push(request);
    }

    /// The lump lasts `nanos` longer.
    fn lasts(&mut self, nanos: u64) {
        self.ends += Duration::from_nanos(nanos * self.pace / 1000);
    }
}

impl Model for Virtio {
    fn limits(&self) -> Limits {
        Limits::new(self.sectors)
    }

    fn character(&self) -> Character {
        Character { rotational: false, volatile_cache: true }
    }

    fn submit(&mut self, now: Instant, request: &ModelRequest) {
        if self.takes(now) {
            self.take_in(now, *request);
        } else {
            self.queued.push_back(*request);
        }
    }

    fn poll_event(&self) -> Option<Instant> {
        (!self.lump.is_empty()).then_some(self.ends)
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<ModelCompletion>) {
        while !self.lump.is_empty() && self.ends <= now {
            let at = self.ends;
            let end = |ModelRequest { id, .. }| ModelCompletion { at, id, outcome: Outcome::Done };
            ended.extend(self.lump.drain(..).map(end)); // lump.3
            while let Some(next) = self.queued.front().copied()
                && self.takes(at)
            {
                self.queued.pop_front();
                self.take_in(at, next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::Extent;

    /// A lump takes 100 µs, a request 10, a KiB 1, a flush 500; four are answered at once.
    fn disk() -> Virtio {
        let settings =
            Settings { base: us(100), request: us(10), kib: us(1), flush: us(500), lump: 4, jitter: 0, depth: 128 };
        Virtio::new(settings, 1 << 20, 1)
    }

    fn at(n: u64) -> Instant {
        Instant::ZERO + us(n)
    }

    fn request(id: u64, op: Op, kib: u64) -> ModelRequest {
        ModelRequest { id, op, flags: Flags::NONE, extent: Extent::new(Sector(id * 64), kib * 2) }
    }

    /// Reads of 4 KiB, submitted at one time.
    fn reads(disk: &mut impl Model, time: u64, ids: std::ops::RangeInclusive<u64>) {
        ids.for_each(|id| disk.submit(at(time), &request(id, Op::Read, 4)));
    }

    /// The ends until nothing is left: (time in µs, request), by lump.
    fn ends(disk: &mut impl Model) -> Vec<(u64, Vec<u64>)> {
        let mut lumps: Vec<(u64, Vec<u64>)> = Vec::new();
        while let Some(next) = disk.poll_event() {
            let mut ended = Vec::new();
            disk.advance(next, &mut ended);
            let time = next.since(Instant::ZERO).as_nanos() / 1000;
            lumps.push((time, ended.iter().map(|one| one.id).collect()));
        }
        lumps
    }

    /// lump.1, lump.2, lump.3: what is there goes together and ends together; what comes later waits for all of it.
    #[test]
    fn what_arrives_meanwhile_waits_for_the_next_lump() {
        let mut disk = disk();
        reads(&mut disk, 0, 1..=3);
        reads(&mut disk, 1, 4..=4);
        reads(&mut disk, 141, 5..=5);
        assert_eq!(ends(&mut disk), [(142, vec![1, 2, 3]), (142 + 128, vec![4, 5])]);
    }

    /// lump.1: the worker takes no more than `lump` requests, the oldest first.
    #[test]
    fn a_lump_is_bounded() {
        let mut disk = disk();
        reads(&mut disk, 0, 1..=6);
        assert_eq!(ends(&mut disk), [(156, vec![1, 2, 3, 4]), (156 + 128, vec![5, 6])]);
    }

    /// lump.2: a small read ends with the large write beside it.
    #[test]
    fn a_lump_takes_what_its_payload_takes_and_small_requests_wait_for_large_ones() {
        let mut disk = disk();
        disk.submit(at(0), &request(1, Op::Read, 4));
        disk.submit(at(0), &request(2, Op::Write, 64));
        assert_eq!(ends(&mut disk), [(100 + 14 + 74, vec![1, 2])]);
    }

    /// lump.4
    #[test]
    fn flushes_and_fua_writes_cost_a_flush_and_discards_a_request() {
        let cost = |request: ModelRequest| {
            let mut disk = disk();
            disk.submit(at(0), &request);
            ends(&mut disk)[0].0 - 100
        };
        let flush = ModelRequest { extent: Extent::NONE, ..request(1, Op::Flush, 0) };
        assert_eq!(cost(flush), 510);
        assert_eq!(cost(ModelRequest { flags: Flags::FUA, ..request(1, Op::Write, 4) }), 514);
        assert_eq!(cost(request(1, Op::Discard, 1024)), 10);
    }

    /// lump.5
    #[test]
    fn the_time_of_a_lump_differs_evenly_by_the_seed() {
        let times = |seed| {
            let mut disk = Virtio::new(Settings { jitter: 10, ..disk().settings }, 1 << 20, seed);
            let mut now = 0;
            let lasted = (0..1000).map(|id| {
                disk.submit(at(now), &request(id, Op::Read, 4));
                let lasted = ends(&mut disk)[0].0 + 1 - now;
                now += lasted;
                lasted
            });
            lasted.collect::<Vec<_>>()
        };
        let some = times(1);
        assert!(some.iter().all(|time| (102..=127).contains(time)), "{some:?}");
        assert!((113..=116).contains(&(some.iter().sum::<u64>() / 1000)));
        assert!(some == times(1) && some != times(2));
    }

    #[test]
    fn a_request_that_takes_no_time_ends_in_the_next_step() {
        let settings = Settings { base: us(0), request: us(0), kib: us(0), ..disk().settings };
        let mut disk = crate::model::Metered::new(Virtio::new(settings, 1 << 20, 1));
        reads(&mut disk, 5, 1..=6);
        assert_eq!(ends(&mut disk), [(5, vec![1, 2, 3, 4, 5, 6])]);
        assert_eq!(disk.work().requests, 6);
    }
}
