//! Swarm: what one run is made of, drawn from its seed (Groce et al., *Swarm Testing*, ISSTA 2012).
//!
//! A test that always has all options on never sees what one of them hides from another: a queue that is always full never shows
//! what an empty one does wrong. So each run draws which things happen in it at all, and how often.

use fairlift_core::model::{Character, Model};
use fairlift_core::queue::{Backing, Settings};
use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, secs, us};
use fairlift_core::{Duration, Group, GroupId, Limits, Op, Sector, Weight};

use fairlift_lab::Random;
use fairlift_lab::model::{Spec, profiles};

/// Number of stretches of the disk's sectors, far from each other on a disk that seeks.
pub(super) const REGIONS: u64 = 4;

/// Sectors of each stretch in use. Chosen: few, so that requests meet.
pub(super) const REGION: u64 = 2048;

/// How often something goes wrong, in parts of 4096.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Rates {
    pub(super) errors: u64,
    pub(super) full: u64,
    pub(super) delays: u64,
    pub(super) hangs: u64,
    pub(super) lost: u64,
    pub(super) busy: u64,
    pub(super) lies: u64,
}

/// The parameters of a run.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) seed: u64,
    /// Steps of its program.
    pub(super) steps: u64,
    /// Queues that share the disk, one for each worker, as under `none`.
    pub(super) queues: u16,
    /// Whether the queues take their tags from one set.
    pub(super) shared_tags: bool,
    pub(super) queue: Settings,
    /// `log2` of the distance between two stretches.
    pub(super) stride: u32,
    /// The name of a modelled disk, or a disk that takes `service` for each request, and up to `spread` more.
    pub(super) model: Option<&'static str>,
    pub(super) service: Duration,
    pub(super) spread: Duration,
    pub(super) clients: u32,
    /// Clients ask while fewer bios than this are open.
    pub(super) open_max: usize,
    /// By operation: parts of all that is asked.
    pub(super) mix: [u64; Op::COUNT],
    /// The most sectors of a bio, and the block that its extent is a multiple of.
    pub(super) sectors_max: u64,
    /// Number of bios in 16 that follow on the one before.
    pub(super) sequential: u64,
    /// Number of bios in 16 that come together with the one before.
    pub(super) batched: u64,
    pub(super) pause: Duration,
    /// Number of writes in 16 that have FUA.
    pub(super) fua: u64,
    /// The longest delay of workers.
    pub(super) lag: Duration,
    pub(super) rates: Rates,
    /// Steps of 4096 that change something instead of asking, and by kind of change how often it is that one.
    pub(super) changes: u64,
    pub(super) change_mix: [u64; CHANGES],
}

/// Kinds of changes: see `step::Change`.
pub(super) const CHANGES: usize = 11;

pub(super) fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

/// Nothing in most runs, little in some, much in few.
fn rate(random: &mut Random, usual: u64) -> u64 {
    match random.below(8) {
        0..4 => 0,
        4..7 => usual,
        _ => usual * 8,
    }
}

impl Setup {
    /// The parameters that follow from the seed.
    pub(super) fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x7072_7475);
        let r = &mut random;
        let is_modelled = r.below(12) == 0;
        let model = is_modelled.then(|| {
            let all: Vec<_> = profiles().map(|profile| profile.name).collect();
            one_of(r, &all)
        });
        let kind = one_of(r, &Kind::ALL);
        let contexts = one_of(r, &[1, 1, 2, 4]);
        let queues = if kind == Kind::None { contexts } else { 1 };
        let depth = one_of(r, &[1, 2, 5, 16, 32, 64, 128]);
        let nr_requests = u32::from(depth) + one_of(r, &[0, 1, 7, 64, 256, 1024]);
        let block = one_of(r, &[1, 1, 1, 8]);
        let rw_max = block * one_of(r, &[1, 3, 8, 64, 2048, 2048, 2048]);
        let (capacity, stride) = match model {
            None => (REGIONS * REGION, REGION.trailing_zeros()),
            // As far apart as a gigabyte: seeks are long, and arrays have many stripes between.
            Some(_) => ((REGIONS - 1) * (1 << 21) + REGION, 21),
        };
        let mut limits = Limits {
            block,
            rw_max,
            discard_max: u64::from(block) * one_of(r, &[4, 64, 1 << 21]),
            write_zeroes_max: u64::from(block) * one_of(r, &[4, 64, 1 << 21]),
            segments_max: one_of(r, &[1, 2, 8, 128]),
            boundary: u64::from(block) * one_of(r, &[0, 0, 0, 16, 64]),
            ..Limits::new(capacity)
        };
        let character = Character { rotational: r.below(3) == 0, volatile_cache: r.below(4) > 0 };
        let mut backings =
            vec![Backing { volatile_cache: character.volatile_cache, fua: r.below(2) == 0, ..Backing::default() }];
        if r.below(4) == 0 {
            // The second half is another device's.
            let start = Sector((REGIONS / 2) << stride);
            backings.push(Backing { start, fua: r.below(2) == 0, ..Backing::default() });
            // No request goes to two of them: a server has a gap between them.
            limits.boundary = if limits.boundary == 0 { REGION } else { limits.boundary };
        }
        let mut queue = Settings {
            depth,
            nr_requests,
            contexts,
            groups: groups(r),
            io_timeout: one_of(r, &[ms(50), ms(500), secs(30)]),
            nomerges: r.below(6) == 0,
            character,
            backings,
            limits,
            ..Settings::new(kind, limits)
        };
        r.bits(); // so that known seeds keep their runs
        queue.flush.remember = r.below(4) == 0;
        queue.flush.coordinate = r.below(8) > 0;
        queue.flush.ahead = r.below(2) == 0;
        queue.flush.charge = r.below(4) > 0;
        let lies = if r.below(8) == 0 { 8 } else { 0 };
        let faults = r.below(4) > 0;
        let rates = Rates {
            errors: rate(r, 30),
            full: rate(r, 20),
            delays: rate(r, 30),
            hangs: rate(r, 4),
            lost: rate(r, 1),
            busy: rate(r, 20),
            lies,
        };
        let mut mix = [0; Op::COUNT];
        mix.iter_mut().for_each(|part| *part = r.below(6));
        mix[Op::Read as usize] += 4;
        mix[Op::Write as usize] += 3;
        mix[Op::Flush as usize] = one_of(r, &[0, 0, 1, 2]);
        let mut change_mix = [0; CHANGES];
        change_mix.iter_mut().for_each(|part| *part = r.below(2) * (1 + r.below(4)));
        Self {
            seed,
            steps: if is_modelled { 6_000 } else { one_of(r, &[2_000, 10_000, 40_000]) },
            queues,
            shared_tags: queues > 1 && r.below(2) == 0,
            queue,
            stride,
            model,
            service: one_of(r, &[us(1), us(20), us(100), ms(2)]),
            spread: one_of(r, &[Duration::ZERO, us(5), us(100), ms(5)]),
            clients: one_of(r, &[1, 2, 5, 12, 40]),
            open_max: one_of(r, &[1, 4, 32, 200, 600]),
            mix,
            // Bios are cut into some pieces, not into a hundred.
            sectors_max: one_of(r, &[1, 8, 8, 8, 40, 200]).min(4 * u64::from(rw_max)),
            sequential: one_of(r, &[0, 4, 12, 15]),
            batched: one_of(r, &[0, 8, 15]),
            pause: one_of(r, &[us(1), us(20), us(200), ms(3)]),
            fua: one_of(r, &[0, 0, 1, 8]),
            lag: one_of(r, &[Duration::ZERO, Duration::ZERO, us(30)]),
            rates: if faults { rates } else { Rates { lies, ..Rates::default() } },
            changes: one_of(r, &[0, 4, 40]),
            change_mix,
        }
    }

    /// As [`Setup::draw`], without the things that cost the test more than the queue: models, requests that are cut into pieces, clients
    /// that ask one by one. The checks are the same.
    pub(super) fn draw_flood(seed: u64) -> Self {
        let mut setup = Self::draw(seed);
        let mut random = Random::new(seed ^ 0x666c_6f6f_6400);
        let r = &mut random;
        let depth = one_of(r, &[16, 64, 128]);
        setup.queue.depth = depth;
        setup.queue.nr_requests = u32::from(depth) + one_of(r, &[64, 256]);
        let block = u64::from(setup.queue.limits.block);
        let boundary = if setup.queue.backings.len() > 1 { REGION } else { 0 };
        setup.queue.limits = Limits { block: setup.queue.limits.block, boundary, ..Limits::new(REGIONS * REGION) };
        (setup.model, setup.stride) = (None, REGION.trailing_zeros());
        let errors = one_of(r, &[0, 8, 30]);
        setup.rates = Rates { errors, full: errors / 2, delays: errors / 2, busy: errors / 2, lies: 0, ..setup.rates };
        Self {
            steps: 100_000,
            service: us(5),
            spread: one_of(r, &[Duration::ZERO, us(5)]),
            clients: one_of(r, &[2, 8, 24]),
            open_max: one_of(r, &[100, 300]),
            sectors_max: block.max(one_of(r, &[1, 8])),
            batched: 15,
            pause: us(20),
            lag: us(10),
            ..setup
        }
    }

    /// The modelled disk, if it is one.
    pub(super) fn build_model(&self) -> Option<Box<dyn Model>> {
        let spec = Spec::parse(&format!("{},size=4G", self.model?)).unwrap_or_else(|error| panic!("{error}"));
        Some(spec.build(self.seed))
    }

    /// Where among the sectors in use a sector of the disk is.
    pub(super) const fn index(&self, sector: u64) -> usize {
        ((sector >> self.stride) * REGION + (sector & ((1 << self.stride) - 1))) as usize
    }

    /// A sentence that names what is special about the run.
    pub(super) fn says(&self) -> String {
        let Self { queues, model, clients, .. } = self;
        let Settings { scheduler, contexts, depth, nr_requests, groups, .. } = &self.queue;
        let disk = model.map_or_else(|| format!("a disk that takes {}", self.service), |name| format!("sim:{name}"));
        format!(
            "{}, {queues} queues, {contexts} contexts, depth {depth}, {nr_requests} requests, {} groups, \
             {clients} clients, {disk}",
            scheduler.name(),
            groups.len()
        )
    }
}

/// A tree of groups, the root first.
fn groups(random: &mut Random) -> Vec<Group> {
    let mut groups = vec![Group::root()];
    for number in 1..=one_of(random, &[0, 1, 3, 8]) {
        let parent = random.below(groups.len() as u64) as u16;
        let weight = one_of(random, &[1, 100, 250, 1000]);
        groups.push(Group { path: format!("/{number}"), parent: Some(GroupId(parent)), weight: Weight::new(weight) });
    }
    groups
}
