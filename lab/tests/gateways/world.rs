//! The world of several gateways before one cluster, in slots of virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use fairlift_core::Weight;
use fairlift_core::ceiling::{Bounds, Ceiling, Rate, Rates};
use fairlift_core::gateways::{Counted, Pool, Settings};
use fairlift_lab::Random;

/// Nanoseconds.
pub(crate) type Time = u64;

pub(crate) const SECOND: Time = 1_000_000_000;
/// For so long a gateway keeps to a whole number of outstanding requests: a part of one is a part of such times.
pub(crate) const SLOT: Time = SECOND / 100;
/// The cluster works on so many requests at once, each for so long on average: 64,000 a second.
pub(crate) const AT_ONCE: usize = 64;
pub(crate) const TAKES: Time = SECOND / 1000;

/// What a tenant asks for at a gateway.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tenant: usize,
    /// So much outstanding at any time.
    pub(crate) outstanding: u32,
    /// And no more than so many a second; 0: as many as it gets.
    pub(crate) rate: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Tenant {
    pub(crate) weight: u16,
    /// At least so many a second, over all gateways; 0: no floor.
    pub(crate) floor: u64,
    /// At most so many a second, over all gateways; 0: no ceiling.
    pub(crate) max: u64,
    /// How many times as long as others its requests take.
    pub(crate) cost: f64,
}

impl Tenant {
    fn settings(&self) -> Settings {
        let rates = |amount| if amount > 0 { Rates::NONE.with(Rate::Iops, amount) } else { Rates::NONE };
        let bounds = Bounds { ceiling: Ceiling::of(rates(self.max)), floor: rates(self.floor), latency: None };
        Settings { weight: Weight::new(self.weight), bounds, changed: 0 }
    }
}

/// A tenant at a gateway, while it runs.
pub(crate) struct At {
    pub(crate) load: Load,
    pub(crate) waiting: u32,
    /// When the next one may come, of a tenant with a rate.
    pub(crate) comes: Time,
    /// dmClock's tags: of the floor and the ceiling in time, of the weight in virtual time.
    pub(crate) floor_tag: f64,
    pub(crate) max_tag: f64,
    pub(crate) weight_tag: f64,
    /// This second: served, and slots in which something waited for the cluster, or for the ceiling.
    pub(crate) served: u64,
    pub(crate) hungry: u32,
    pub(crate) held: u32,
    /// Its weight, its floor and its ceiling here.
    pub(crate) weight: f64,
    pub(crate) floor: f64,
    pub(crate) max: f64,
}

pub(crate) struct Gateway {
    pub(crate) loads: Vec<At>,
    /// How much it may have outstanding; how much of the part of one is due; and what that makes in this slot.
    pub(crate) depth: f64,
    pub(crate) due: f64,
    pub(crate) now: u32,
    pub(crate) in_flight: u32,
    pub(crate) state: State,
    pub(crate) virtual_time: f64,
    pub(crate) pool: Pool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Up,
    /// It serves, but its figures do not come out, nor others' in.
    Silent,
    Dead,
}

/// The fate of a report on its way to one reader.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Carriage {
    /// Of so many in 100 nothing is heard.
    pub(crate) lost: u64,
    /// It is read by so many seconds late at most, each by another time: they overtake one another.
    pub(crate) late: u64,
}

pub(crate) struct World {
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) total: f64,
    pub(crate) random: Random,
    /// In the cluster: waits for a place; ends then. And answers that are on their way.
    pub(crate) queue: VecDeque<(usize, usize)>,
    pub(crate) working: BinaryHeap<Reverse<(Time, usize, usize)>>,
    pub(crate) answers: BinaryHeap<Reverse<(Time, usize, usize)>>,
    pub(crate) served: Vec<u64>,
    pub(crate) by_exchange: bool,
    pub(crate) carriage: Carriage,
    /// Each gateway's seconds begin at moments of their own.
    pub(crate) are_clocks_apart: bool,
    /// In each half second requests take the cluster longer than usual, by up to so many in 100; and how many times as long now.
    pub(crate) swing: u64,
    pub(crate) pace: f64,
    /// Answers to each gateway take so long, which is drawn anew from time to time, up to so much.
    pub(crate) away_most: Time,
    pub(crate) away: Vec<Time>,
    /// The reports of gateways, by their numbers, the latest last.
    pub(crate) reports: Vec<VecDeque<Vec<u8>>>,
}

/// Reports are read after this slot of a second.
pub(crate) const LATER: usize = (100.0 * fairlift_core::gateways::LATER) as usize - 1;
/// How many reports of a gateway are kept: a late one is one of them.
pub(crate) const KEPT: usize = 8;

fn name(gateway: usize) -> String {
    format!("gw{gateway}")
}

fn path(tenant: usize) -> String {
    format!("/t{tenant}")
}

impl World {
    pub(crate) fn new(tenants: Vec<Tenant>, loads: Vec<Vec<Load>>, by_exchange: bool, seed: u64) -> Self {
        let total = (3 * AT_ONCE) as f64;
        let gateways = loads.len();
        let depth = total / gateways as f64;
        let at = |load: Load| {
            let Tenant { weight, floor, max, .. } = tenants[load.tenant];
            At {
                load,
                waiting: if load.rate == 0 { load.outstanding } else { 0 },
                comes: 0,
                floor_tag: 0.0,
                max_tag: 0.0,
                weight_tag: 0.0,
                served: 0,
                hungry: 0,
                held: 0,
                weight: weight.into(),
                floor: floor as f64,
                max: max as f64,
            }
        };
        let gateway = |(number, loads): (usize, Vec<Load>)| Gateway {
            loads: loads.into_iter().map(at).collect(),
            depth,
            due: 0.0,
            now: 0,
            in_flight: 0,
            state: State::Up,
            virtual_time: 0.0,
            pool: Pool::new(&name(number), number as u64),
        };
        Self {
            served: vec![0; tenants.len()],
            reports: vec![VecDeque::new(); loads.len()],
            gateways: loads.into_iter().enumerate().map(gateway).collect(),
            tenants,
            total,
            random: Random::new(seed),
            queue: VecDeque::new(),
            working: BinaryHeap::new(),
            by_exchange,
            carriage: Carriage::default(),
            are_clocks_apart: false,
            swing: 0,
            pace: 1.0,
            away_most: 0,
            away: vec![0; gateways],
            answers: BinaryHeap::new(),
        }
    }

    /// Runs for so many seconds from `from` on; what each tenant got.
    pub(crate) fn run(&mut self, from: u64, seconds: u64) -> Vec<u64> {
        self.served.fill(0);
        self.run_slots(100 * from, 100 * (from + seconds));
        self.served.clone()
    }

    pub(crate) fn run_slots(&mut self, from: u64, to: u64) {
        for slot in from..to {
            let now = slot * SLOT;
            if self.swing > 0 && slot % 50 == 0 {
                self.pace = 1.0 + self.random.below(self.swing + 1) as f64 / 100.0;
            }
            for gateway in 0..self.gateways.len() {
                // For a second to five.
                if self.away_most > 0 && slot % 100 == 0 && self.random.below(3) == 0 {
                    self.away[gateway] = self.random.below(self.away_most + 1);
                }
                self.begin_slot(now, gateway);
            }
            let first =
                |all: &BinaryHeap<Reverse<(Time, usize, usize)>>| all.peek().map_or(Time::MAX, |Reverse((at, ..))| *at);
            while first(&self.working).min(first(&self.answers)) < now + SLOT {
                if first(&self.answers) < first(&self.working) {
                    let Some(Reverse((at, gateway, load))) = self.answers.pop() else { break };
                    self.answered(at, gateway, load);
                    continue;
                }
                let Some(Reverse((at, gateway, load))) = self.working.pop() else { break };
                match self.away[gateway] {
                    0 => self.answered(at, gateway, load),
                    away => self.answers.push(Reverse((at + away, gateway, load))),
                }
                if let Some((gateway, load)) = self.queue.pop_front() {
                    self.work(at, gateway, load);
                }
            }
            for number in 0..self.gateways.len() {
                let apart = if self.are_clocks_apart { 100 * number / self.gateways.len() } else { 0 };
                match (slot as usize + apart) % 100 {
                    99 if self.by_exchange => self.tell(number),
                    LATER if self.by_exchange => self.turn(number),
                    _ => {}
                }
            }
        }
    }

    fn begin_slot(&mut self, now: Time, number: usize) {
        let gateway = &mut self.gateways[number];
        gateway.due += gateway.depth.fract();
        gateway.now = gateway.depth as u32 + u32::from(gateway.due >= 1.0);
        gateway.due -= f64::from(gateway.due >= 1.0);
        for at in &mut gateway.loads {
            let is_held = at.waiting > 0 && at.max > 0.0 && at.max_tag > now as f64 / SECOND as f64 + 0.005;
            at.held += u32::from(is_held);
            at.hungry += u32::from(at.waiting > 0 && at.load.rate == 0 && !is_held);
            if at.load.rate > 0 && at.comes <= now {
                // What comes in this slot, in one piece.
                let count = (at.load.rate * SLOT).div_ceil(SECOND);
                at.comes = at.comes.max(now.saturating_sub(SLOT)) + count * SECOND / at.load.rate;
                at.waiting = (at.waiting + count as u32).min(at.load.outstanding);
            }
        }
        self.dispatch(now, number);
    }

    fn answered(&mut self, now: Time, number: usize, load: usize) {
        let gateway = &mut self.gateways[number];
        gateway.in_flight -= 1;
        if gateway.state != State::Dead {
            let at = &mut gateway.loads[load];
            at.served += 1;
            at.waiting += u32::from(at.load.rate == 0);
            self.served[at.load.tenant] += 1;
        }
        self.dispatch(now, number);
    }

    fn work(&mut self, now: Time, gateway: usize, load: usize) {
        let cost = self.tenants[self.gateways[gateway].loads[load].load.tenant].cost;
        let takes =
            self.random.exponential(fairlift_core::Duration::from_nanos((TAKES as f64 * cost * self.pace) as u64));
        self.working.push(Reverse((now + takes.as_nanos(), gateway, load)));
    }

    /// dmClock at one gateway: floors that are due first, then by weight.
    fn dispatch(&mut self, now: Time, number: usize) {
        loop {
            let (tenants, gateway) = (&self.tenants, &mut self.gateways[number]);
            if gateway.in_flight >= gateway.now || gateway.state == State::Dead {
                return;
            }
            let seconds = now as f64 / SECOND as f64;
            let may = |at: &At| at.waiting > 0 && (at.max == 0.0 || at.max_tag <= seconds + 0.005);
            let waiting = || gateway.loads.iter().enumerate().filter(|(_, at)| may(at));
            let floor = waiting().filter(|(_, at)| at.floor > 0.0 && at.floor_tag <= seconds);
            let floor = floor.min_by(|one, other| one.1.floor_tag.total_cmp(&other.1.floor_tag)).map(|(load, _)| load);
            let tag = |at: &At| at.weight_tag.max(gateway.virtual_time);
            let weight = waiting().min_by(|one, other| tag(one.1).total_cmp(&tag(other.1))).map(|(load, _)| load);
            let Some(load) = floor.or(weight) else { return };
            let at = &mut gateway.loads[load];
            if at.floor > 0.0 {
                // As the server's (floor.2): neither is much saved, nor is much held against it that it had while there was more.
                at.floor_tag = at.floor_tag.clamp(seconds - 0.1, seconds + 0.05) + 1.0 / at.floor;
            }
            if at.max > 0.0 {
                at.max_tag = at.max_tag.max(seconds) + 1.0 / at.max;
            }
            if floor.is_none() {
                // Another one's tag counts from here on, if it had nothing to ask.
                let start = at.weight_tag.max(gateway.virtual_time);
                gateway.virtual_time = start;
                at.weight_tag = start + tenants[at.load.tenant].cost / at.weight;
            }
            at.waiting -= 1;
            gateway.in_flight += 1;
            match self.working.len() < AT_ONCE {
                true => self.work(now, number, load),
                false => self.queue.push_back((number, load)),
            }
        }
    }

    /// A new server in the place of one that is dead: it has its part before its first client.
    pub(crate) fn start_again(&mut self, number: usize) {
        let gateway = &mut self.gateways[number];
        gateway.state = State::Up;
        gateway.pool = Pool::new(&name(number), self.random.below(u64::MAX));
        for at in &mut gateway.loads {
            (at.waiting, at.served, at.hungry, at.held) = (0, 0, 0, 0);
        }
        self.tell(number);
        self.turn(number);
    }

    /// Once a second: what was served here. A gateway that is silent leaves no report.
    fn tell(&mut self, number: usize) {
        let Self { tenants, gateways, reports, .. } = self;
        let gateway = &mut gateways[number];
        if gateway.state == State::Dead {
            return;
        }
        let count = |at: &mut At| {
            let tenant = &tenants[at.load.tenant];
            let (served, hungry, held) =
                (std::mem::take(&mut at.served) as f64, std::mem::take(&mut at.hungry), std::mem::take(&mut at.held));
            let mut rates = [0.0; Rate::COUNT];
            rates[Rate::Iops as usize] = served;
            let counted = Counted {
                served: served * tenant.cost,
                requests: served,
                waits: hungry >= 50,
                held: held >= 50,
                rates,
                settings: tenant.settings(),
            };
            (path(at.load.tenant), counted)
        };
        let groups: BTreeMap<String, Counted> = gateway.loads.iter_mut().map(count).collect();
        if gateway.state == State::Silent {
            return;
        }
        gateway.pool.count(&groups, self.total);
        let kept = &mut reports[number];
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(gateway.pool.report().write().into_bytes());
    }

    /// Then: what the others told, and what follows from it. A gateway that is silent goes on as it was.
    fn turn(&mut self, number: usize) {
        let Self { gateways, reports, random, carriage, .. } = self;
        let gateway = &mut gateways[number];
        if gateway.state != State::Up || reports[number].is_empty() {
            return; // Its first second is not over yet.
        }
        for (other, reports) in reports.iter().enumerate().filter(|(other, _)| *other != number) {
            let late = random.below(carriage.late + 1) as usize;
            if let Some(report) = reports.iter().rev().nth(late)
                && random.below(100) >= carriage.lost
            {
                gateway.pool.hear(&name(other), report);
            }
        }
        let turn = gateway.pool.turn();
        gateway.depth = turn.depth;
        for at in &mut gateway.loads {
            let Some(held) = turn.groups.get(&path(at.load.tenant)) else { continue };
            let rate = |rates: &Rates| rates.get(Rate::Iops).unwrap_or(0) as f64;
            at.weight = held.weight.into();
            (at.floor, at.max) = (rate(&held.bounds.floor), rate(&held.bounds.ceiling.max));
        }
    }
}
