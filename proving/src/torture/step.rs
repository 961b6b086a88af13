//! A run's program: steps, each drawn by itself from the seed and its number.
//!
//! So a program is never written down, and a shorter one is the same numbers with some left out: a failing run is shrunk by
//! leaving out steps while it still fails. A step names a client or a group by a number that is taken modulo those that there
//! are, so that it means something whatever was left out before.

use fairlift_core::ceiling::{Ceiling, Rate, Rates};
use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, us};
use fairlift_core::{Duration, Extent, Flags, Op, Priority, PriorityClass, Sector};

use super::swarm::{REGION, REGIONS, Rates as Faults, Setup};
use fairlift_lab::Random;

#[derive(Debug)]
pub(super) struct ProgramStep {
    /// How long after the one before.
    pub(super) pause: Duration,
    pub(super) act: Act,
}

/// The action of a step.
#[derive(Debug)]
pub(super) enum Act {
    Ask { client: u64, op: Op, flags: Flags, extent: Extent, luck: u64 },
    Change(Change),
}

/// A change by an operator, or an action of a client besides asking.
#[derive(Debug)]
pub(super) enum Change {
    Scheduler(Kind),
    Weight {
        group: u64,
        weight: u16,
    },
    AddGroup {
        parent: u64,
        weight: u16,
    },
    RemoveGroup(u64),
    Move {
        client: u64,
        group: u64,
        priority: Priority,
    },
    /// A client goes away at once, and another comes.
    Abort(u64),
    Tunable {
        knob: u64,
        end: u64,
    },
    Bounds {
        depth: u16,
        more: u32,
    },
    Ceiling {
        group: u64,
        ceiling: Option<Ceiling>,
    },
    Floor {
        group: u64,
        floor: Rates,
    },
    Acknowledge,
}

impl ProgramStep {
    /// The step of that number.
    pub(super) fn draw(setup: &Setup, number: u64) -> Self {
        let mut random = Random::new(setup.seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        let r = &mut random;
        let bits = r.bits();
        let pause = if bits % 16 < setup.batched {
            Duration::ZERO
        } else {
            Duration::from_nanos(r.below(2 * setup.pause.as_nanos()))
        };
        if bits >> 8 & 4095 < setup.changes {
            return Self { pause, act: Act::Change(Change::draw(setup, r)) };
        }
        let op = which(r.below(setup.mix.iter().sum()), &setup.mix).map_or(Op::Read, |op| Op::ALL[op]);
        let block = u64::from(setup.queue.limits.block);
        let sectors = (1 + (bits >> 20) % setup.sectors_max).next_multiple_of(block);
        let region = bits >> 32 & (REGIONS - 1);
        // A client that goes on reads or writes where it would be after this many steps.
        let is_next = bits >> 40 & 15 < setup.sequential;
        let offset = if is_next { number * sectors } else { r.bits() } % (REGION - sectors) / block * block;
        let start = Sector((region << setup.stride) + offset);
        let extent = if op == Op::Flush { Extent::new(start, 0) } else { Extent::new(start, sectors) };
        let fua = matches!(op, Op::Write | Op::WriteZeroes) && bits >> 44 & 15 < setup.fua;
        let sync = if bits >> 48 & 3 == 0 { Flags::SYNC } else { Flags::NONE };
        let preflush = if fua && bits >> 50 & 3 == 0 { Flags::PREFLUSH } else { Flags::NONE };
        let flags = if fua { sync.with(Flags::FUA).with(preflush) } else { sync };
        let client = if is_next { bits >> 52 & 3 } else { bits >> 52 };
        Self { pause, act: Act::Ask { client, op, flags, extent, luck: r.bits() } }
    }

    /// Its text for people that look for the mistake.
    pub(super) fn says(&self, setup: &Setup) -> String {
        match &self.act {
            Act::Ask { client, op, flags, extent, luck } => {
                let fate = Fate::of(setup, *luck, *op);
                let client = client % u64::from(setup.clients);
                format!("after {}, client {client}: {} {extent:?} {flags:?}; the disk: {fate:?}", self.pause, op.name())
            }
            Act::Change(change) => format!("after {}: {change:?}", self.pause),
        }
    }
}

impl Change {
    fn draw(setup: &Setup, r: &mut Random) -> Self {
        let all = setup.change_mix.iter().sum::<u64>();
        let which = which(if all == 0 { 0 } else { r.below(all) }, &setup.change_mix);
        let group = r.below(1 << 16);
        let weight = [1, 10, 100, 500, 1000][r.below(5) as usize];
        match which.unwrap_or(1) {
            0 => Self::Scheduler(Kind::ALL[r.below(Kind::ALL.len() as u64) as usize]),
            1 => Self::Weight { group, weight },
            2 => Self::AddGroup { parent: group, weight },
            3 => Self::RemoveGroup(group),
            4 => {
                let class = [PriorityClass::BestEffort, PriorityClass::RealTime, PriorityClass::Idle];
                let class = class[(r.below(6) as usize).saturating_sub(3)];
                Self::Move { client: r.bits() >> 8, group, priority: Priority { class, level: r.below(8) as u8 } }
            }
            5 => Self::Abort(r.bits() >> 8),
            6 => Self::Tunable { knob: r.bits() >> 8, end: r.below(4) },
            7 => Self::Bounds { depth: 1 + r.below(64) as u16, more: r.below(64) as u32 },
            8 => Self::Ceiling { group, ceiling: (r.below(3) > 0).then(|| ceiling(r)) },
            9 => Self::Floor {
                group,
                floor: if r.below(2) == 0 { Rates::NONE } else { Rates::NONE.with(any(r), 1 + r.below(100_000)) },
            },
            _ => Self::Acknowledge,
        }
    }
}

fn any(random: &mut Random) -> Rate {
    Rate::ALL[random.below(Rate::COUNT as u64) as usize]
}

/// A ceiling of one rate or two, sometimes with a burst.
fn ceiling(random: &mut Random) -> Ceiling {
    let mut ceiling = Ceiling::NONE;
    for _ in 0..1 + random.below(2) {
        let rate = any(random);
        let amount = if rate.counts_bytes() { 1 << (18 + random.below(12)) } else { 200 << random.below(10) };
        ceiling.max = ceiling.max.with(rate, amount);
        if random.below(4) == 0 {
            ceiling.burst = ceiling.burst.with(rate, amount * (2 + random.below(8)));
            ceiling.length = if random.below(2) == 0 { ms(20) } else { ms(400) };
        }
    }
    ceiling
}

/// The device's treatment of a request, from the luck of the bio that it begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Fine,
    Error,
    Full,
    /// It takes this many times as long.
    Slow(u64),
    /// It takes longer than `io_timeout`.
    Hangs,
    /// Its end is never heard of, until the device is reset.
    Lost,
    Busy,
    Lies(Lie),
}

/// A device that reports work that it has not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lie {
    Dropped,
    /// The last sectors are not written.
    Torn,
    /// It is written to another place.
    Misdirected,
}

impl Fate {
    pub(super) fn of(setup: &Setup, luck: u64, op: Op) -> Self {
        let Faults { errors, full, delays, hangs, lost, busy, lies } = setup.rates;
        let more = luck >> 12;
        match which(luck & 4095, &[errors, full, delays, hangs, lost, busy, lies]) {
            Some(0) => Self::Error,
            Some(1) if op == Op::Read || op == Op::Flush => Self::Error,
            Some(1) => Self::Full,
            Some(2) => Self::Slow(2 + more % 999),
            Some(3) => Self::Hangs,
            Some(4) => Self::Lost,
            Some(5) => Self::Busy,
            Some(_) if op == Op::Write => Self::Lies([Lie::Dropped, Lie::Torn, Lie::Misdirected][(more % 3) as usize]),
            _ => Self::Fine,
        }
    }
}

/// In which of some parts, laid end to end, a place lies; `None` beyond them.
fn which(mut place: u64, parts: &[u64]) -> Option<usize> {
    parts.iter().position(|part| {
        let is_it = place < *part;
        place = place.wrapping_sub(*part);
        is_it
    })
}

/// A time up to `most`, from luck.
pub(super) fn spread(luck: u64, most: Duration) -> Duration {
    let nanos = most.as_nanos();
    if nanos == 0 { us(0) } else { Duration::from_nanos((luck >> 24) % (nanos + 1)) }
}
