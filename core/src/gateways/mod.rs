//! Gateways: several servers before one pool share it as one server would.
//!
//! A gateway sees its own part of a cluster alone. Example: a tenant that is alone at one of two gateways has half of the cluster, and
//! three at the other have a sixth each. So each gateway tells the others once a period what it served ([`Report`]), and works out from
//! all reports what is due (`division`). Nobody decides for the others: the same figures lead all to the same shares.
//!
//! gateway.1  A gateway that was not heard of for [`STALE`] periods is gone: its groups' parts are the others'. Periods are our own, though they end with those of others (the server's exchange.5), so
//!            no clock of another gateway is asked. Until then its last report counts, and its part is left to it.
//!            A gateway whose reports come late or get lost is waited for longer: for twice the longest time between two of them
//!            of late, and twelve periods at most. It would else be gone again and again, and the others take its part each time.
//! gateway.2  A report that is not newer than the one before, by its sequence, says nothing: a carrier may be late, or tell things twice.
//! gateway.3  A gateway that hears nothing goes on as it was, and so does one whose reports do not come out. It would else take the
//!            whole cluster for its own.
//! gateway.4  Two gateways of one name are known by their instances: ours was replaced by another's for [`STALE`] periods, or others' come
//!            by turns. Each says so once; shares of the two's service are wrong until one of them has another name. That is seen by
//!            twelve reports of one of them in a row.
//! gateway.5  Weights are whole numbers. The rest of one counts in the next period, so that over some periods it is exact.
//!
//! It reads no clock: how long a period was, is an argument.

mod division;
mod report;
mod room;
mod speed;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

pub use division::Due;
use division::{DEPTH_LEAST, Divided, Member, divide};
pub use report::{GroupReport, Report, Settings, VERSION};
use room::PoolRoom;
use speed::Speed;

use crate::Weight;
use crate::ceiling::{Bounds, Ceiling, Rate, Rates};
use crate::cost_model::Model;
use crate::record::Unreadable;

/// The part of a period after which its turn comes: reports of the one before are on their way until then.
pub const LATER: f64 = 0.2;
/// A gateway that was not heard of for this many periods is gone (gateway.1).
pub const STALE: u32 = 3;
/// The longest that a gateway is waited for. Chosen: where six of ten reports are lost, twelve in a row are one time in 500.
const STALE_MOST: u32 = 4 * STALE;
/// The longest time between two reports that counts, and the part of it that is left with each report. Chosen: a minute after twelve periods
/// were waited for it is seven.
const SILENCE_MOST: u32 = STALE_MOST / 2;
const SILENCE_LEFT: f64 = 0.99;
/// A group with fewer requests than this in a period has some periods taken together, up to four (gossip.3). From the simulation.
const FEW: f64 = 200.0;
const TOGETHER: f64 = 0.25;
/// A group without service is told of until its recent service is less than this. Chosen: next to nothing.
const QUIET: f64 = 1e-3;

/// A group's figures at a gateway in a period, a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Counted {
    /// In reads of 4 KiB (gossip.2).
    pub served: f64,
    /// Requests in all of the period.
    pub requests: f64,
    /// More of it waited for the disk, for most of the period.
    pub waits: bool,
    /// A ceiling held it.
    pub held: bool,
    /// By what a limit can count.
    pub rates: [f64; Rate::COUNT],
    /// How it is set here.
    pub settings: Settings,
}

/// Something to tell the operator, once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// A gateway was heard of for the first time, or again.
    Comes(String),
    /// A gateway is gone (gateway.1).
    Goes {
        /// Its name.
        gateway: String,
        /// The periods in which it was not heard of; `None`: it said so itself.
        silent: Option<u32>,
    },
    /// A report cannot be read, and is left out (gossip.1).
    Unreadable {
        /// The gateway.
        gateway: String,
        /// The fault.
        why: Unreadable,
    },
    /// Another gateway has a name that one has already (gateway.4).
    Twin(String),
    /// A group is set otherwise at some gateways: those settings hold that were changed last (division.6).
    Differs(String),
}

/// Another gateway, as it is known here.
#[derive(Clone, Default, Debug)]
struct Other {
    report: Report,
    /// Our own speed when it was heard of (speed.4).
    beside: Option<f64>,
    /// Periods since it was heard of, and the longest of late between two reports.
    age: u32,
    silence: f64,
    /// The instance before, if another one has come by this name.
    before: Option<u64>,
    is_gone: bool,
    is_twin: bool,
    /// Reports of this instance in a row.
    in_a_row: u32,
}

impl Other {
    /// speed.4
    fn speed(&self, own: &Report) -> Option<f64> {
        let times = own.speed.zip(self.beside).map_or(1.0, |(now, then)| now / then);
        self.report.speed.map(|speed| if self.age > 0 { times * speed } else { speed })
    }

    /// gateway.1
    fn patience(&self) -> u32 {
        ((2.0 * self.silence + 0.5) as u32).clamp(STALE, STALE_MOST)
    }
}

/// The pool as one of its gateways knows it: see the [module](self).
#[derive(Default, Debug)]
pub struct Pool {
    name: String,
    own: Report,
    speed: Speed,
    /// How many requests it was allowed at the beginning of the period that is over, and from its [`LATER`] part on.
    allowed: [f64; 2],
    others: BTreeMap<String, Other>,
    /// Gateways whose reports cannot be read.
    unreadable: BTreeSet<String>,
    /// How often in a row ours was another's (gateway.4).
    twins: u32,
    /// Groups whose differing settings were told of.
    differing: BTreeSet<String>,
    /// By group with a latency, the room that it needs (room.1).
    rooms: BTreeMap<String, PoolRoom>,
    /// By group, the part of a weight that whole ones left over (gateway.5).
    left_over: BTreeMap<String, f64>,
    divided: Divided,
    /// By gateway, the part of all that it is due.
    due: BTreeMap<String, f64>,
    notes: Vec<Note>,
    has_begun: bool,
}

/// A gateway's part for the next period.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Allotment {
    /// How many requests it may have outstanding; less than one: for part of the time.
    pub depth: f64,
    /// The groups that have something set, or that did something, by their paths.
    pub groups: BTreeMap<String, Allotted>,
}

/// A group's weight and bounds here for the next period.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Allotted {
    /// Its weight beside the siblings here (division.3).
    pub weight: Weight,
    /// Its part of the pool's bounds.
    pub bounds: Bounds,
}

/// A gateway, for those who look.
#[derive(Clone, PartialEq, Debug)]
pub struct GatewayView {
    /// Its name.
    pub name: String,
    /// It is this one.
    pub is_own: bool,
    /// Periods since it was heard of.
    pub age: u32,
    /// It is gone (gateway.1).
    pub is_gone: bool,
    /// How many requests it may have outstanding.
    pub depth: f64,
    /// Its service a second, in reads of 4 KiB.
    pub served: f64,
    /// The part of all that was served that it is due.
    pub due: f64,
    /// How many groups it told of.
    pub groups: usize,
    /// Another gateway has its name (gateway.4).
    pub is_twin: bool,
    /// Its last report could not be read (gossip.1).
    pub is_unreadable: bool,
}

impl Pool {
    /// A gateway that has heard of no other yet; `instance` is a number by chance.
    #[must_use]
    pub fn new(name: &str, instance: u64) -> Self {
        Self {
            name: name.into(),
            own: Report { instance, ..Report::default() },
            speed: Speed::anew(),
            ..Self::default()
        }
    }

    /// The costs of requests in random reads of 4 KiB: the mean of all gateways', `own` being this one's (gossip.2).
    pub fn costs(&mut self, own: Option<Model>) -> Option<Model> {
        self.own.costs = own.map(|own| own.in_reads());
        let there = self.others.values().filter(|other| !other.is_gone).map(|other| &other.report);
        let weighed = |report: &Report| {
            let served: f64 = report.groups.values().map(|group| group.served).sum();
            Some((served.max(QUIET), report.costs?))
        };
        Model::mean(core::iter::once(&self.own).chain(there).filter_map(weighed))
    }

    /// Takes the notes since this was called last.
    pub fn take_notes(&mut self) -> Vec<Note> {
        core::mem::take(&mut self.notes)
    }

    /// A report was found under a gateway's name.
    pub fn hear(&mut self, gateway: &str, bytes: &[u8]) {
        let report = match Report::read(bytes) {
            Ok(report) => {
                self.unreadable.remove(gateway);
                report
            }
            Err(why) => {
                if self.unreadable.insert(gateway.into()) {
                    self.notes.push(Note::Unreadable { gateway: gateway.into(), why });
                }
                return;
            }
        };
        if gateway == self.name {
            // gateway.4: one of a previous server is there when ours has not been written yet.
            let is_other = self.own.sequence > 0 && report.instance != self.own.instance;
            self.twins = if is_other { self.twins.saturating_add(1) } else { 0 };
            if self.twins == STALE {
                self.notes.push(Note::Twin(gateway.into()));
            }
            return;
        }
        let Some(there) = self.others.get_mut(gateway) else {
            if !report.ends {
                self.notes.push(Note::Comes(gateway.into()));
                self.speed = Speed::anew(); // speed.4
                let new = Other { report, beside: self.own.speed, silence: 1.0, ..Other::default() };
                self.others.insert(gateway.into(), new);
            }
            return;
        };
        let is_new = report.instance != there.report.instance;
        if !is_new {
            if report.sequence <= there.report.sequence {
                return; // gateway.2
            }
            // gateway.1
            there.silence = (SILENCE_LEFT * there.silence).max(there.age.min(SILENCE_MOST).into());
            there.in_a_row = there.in_a_row.saturating_add(1);
            if there.in_a_row >= STALE_MOST {
                (there.is_twin, there.before) = (false, None); // gateway.4
            }
        } else {
            (there.silence, there.in_a_row) = (1.0, 0);
            let before = there.before.replace(there.report.instance);
            if before == Some(report.instance) && !core::mem::replace(&mut there.is_twin, true) {
                self.notes.push(Note::Twin(gateway.into())); // gateway.4
            }
        }
        let was_gone = core::mem::replace(&mut there.is_gone, report.ends);
        if was_gone != report.ends {
            self.speed = if is_new { Speed::anew() } else { Speed::default() }; // speed.4
        }
        match (was_gone, report.ends) {
            (true, false) => self.notes.push(Note::Comes(gateway.into())),
            (false, true) => self.notes.push(Note::Goes { gateway: gateway.into(), silent: None }),
            _ => {}
        }
        (there.report, there.beside, there.age) = (report, self.own.speed, 0);
    }

    /// Each group here with a latency: whether it missed that in the period that is over, and `None`: it was not answered. Comes before
    /// [`Pool::count`].
    pub fn latencies(&mut self, missed: &BTreeMap<String, Option<bool>>) {
        self.rooms.retain(|path, _| missed.contains_key(path));
        for (path, missed) in missed {
            self.rooms.entry(path.clone()).or_insert(PoolRoom::new()).period(*missed);
        }
    }

    /// The part of its requests that this gateway leaves in the cluster, and the group for whose latency at another gateway it does so; `None`:
    /// all (room.5).
    #[must_use]
    pub fn room(&self) -> Option<(&str, f64)> {
        let own = self.rooms.values().map(PoolRoom::factor).fold(1.0, f64::min);
        let there = self.others.values().filter(|other| !other.is_gone).flat_map(|other| &other.report.groups);
        let rooms = there.map(|(path, group)| (&**path, group.room)).filter(|(_, room)| *room < own);
        rooms.min_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// Divides what was [counted](Pool::count) here and [heard](Pool::hear) of others in the period that is over. Answers what holds in the next one.
    pub fn turn(&mut self) -> Allotment {
        if !self.has_begun {
            let there = self.others.values().filter(|other| !other.is_gone).count();
            self.own.depth = self.own.pool_depth / (1 + there) as f64;
            self.has_begun = true;
        }
        for (name, other) in &mut self.others {
            // gateway.1
            if other.age >= other.patience() && !core::mem::replace(&mut other.is_gone, true) {
                self.notes.push(Note::Goes { gateway: name.clone(), silent: Some(other.age) });
                self.speed = Speed::default(); // speed.4
            }
        }
        let others = self.others.iter().filter(|(_, other)| !other.is_gone);
        let others = others.map(|(name, other)| Member { name, report: &other.report, speed: other.speed(&self.own) });
        let own = Member { name: &self.name, report: &self.own, speed: self.own.speed };
        let members: Vec<_> = core::iter::once(own).chain(others).collect();
        self.divided = divide(&members, 0);
        let part = |due: &f64| if self.divided.whole > 0.0 { due / self.divided.whole } else { 0.0 };
        self.due = members.iter().zip(&self.divided.due).map(|(member, due)| (member.name.into(), part(due))).collect();
        self.own.depth = self.divided.depth;
        self.others.values_mut().for_each(|other| other.age = other.age.saturating_add(1));
        self.tell_differences();
        self.allot()
    }

    /// A period is over, with these counts here; `depth`: how many requests all gateways may have outstanding, as this one is
    /// set. It is told by the next [report](Pool::report); where no [turn](Pool::turn) follows, the one before goes on (gateway.3).
    pub fn count(&mut self, groups: &BTreeMap<String, Counted>, depth: f64) {
        let sum = |of: fn(&Counted) -> f64| groups.values().map(of).sum::<f64>();
        let waits = groups.values().any(|counted| counted.waits);
        // speed.2, gossip.4
        let [before, then] = self.allowed;
        let allowed = LATER * before + (1.0 - LATER) * then;
        self.allowed[0] = then;
        let times = self.speed.period(sum(|one| one.served), sum(|one| one.requests), allowed, waits);
        let Some([of_service, of_requests]) = times else {
            // The figures are told as they were, but the settings of the groups that are told of hold at once.
            self.own.pool_depth = depth;
            for (path, group) in &mut self.own.groups {
                group.settings = groups.get(path).map_or(group.settings, |counted| counted.settings);
            }
            return;
        };
        self.own.speed = self.speed.get();
        let before = core::mem::take(&mut self.own.groups);
        // gossip.5: of a group those below it come first.
        let mut above = BTreeSet::new();
        for (path, counted) in groups.iter().rev() {
            let Counted { served, requests, waits, held, rates, settings } = *counted;
            let (served, rates) = (of_service * served, rates.map(|rate| of_requests * rate));
            let lately = match before.get(path).map(|group| group.lately) {
                None | Some(0.0) => served,
                Some(lately) => lately + (requests / FEW).clamp(TOGETHER, 1.0) * (served - lately),
            };
            let lately = if lately > QUIET { lately } else { 0.0 };
            // A limit is everybody's: of a group that has one and does nothing, the others still leave a little of it here (division.5).
            if lately > 0.0 || waits || held || !settings.bounds.is_none() || above.contains(&**path) {
                above.extend(path.rfind('/').filter(|end| *end > 0).map(|end| &path[..end]));
                let room = self.rooms.get(path).map_or(1.0, PoolRoom::factor);
                self.own
                    .groups
                    .insert(path.clone(), GroupReport { served, lately, waits, held, rates, room, settings });
            }
        }
        self.own.pool_depth = depth;
    }

    fn tell_differences(&mut self) {
        let differing = self.divided.groups.iter().filter(|(_, due)| due.differs).map(|(path, _)| path.clone());
        let differing: BTreeSet<_> = differing.collect();
        self.notes.extend(differing.difference(&self.differing).cloned().map(Note::Differs));
        self.differing = differing;
    }

    fn allot(&mut self) -> Allotment {
        let weights = self.weights();
        let held = |(path, due): (&String, &Due)| {
            let Bounds { ceiling: Ceiling { max, burst, length }, floor, latency } = due.settings.bounds;
            let ceiling = Ceiling { max: part_of(&max, due.ceiling), burst: part_of(&burst, due.ceiling), length };
            let bounds = Bounds { ceiling, floor: part_of(&floor, due.part), latency };
            (path.clone(), Allotted { weight: weights[path], bounds })
        };
        let groups = self.divided.groups.iter().map(held).collect();
        let room = self.room().map_or(1.0, |(_, room)| room);
        let depth = (self.own.depth * room).max(DEPTH_LEAST);
        let is_first = self.allowed[1] == 0.0;
        self.allowed = [if is_first { depth } else { self.allowed[0] }, depth];
        Allotment { depth, groups }
    }

    /// division.3, gateway.5
    fn weights(&mut self) -> BTreeMap<String, Weight> {
        let exact = |due: &Due| f64::from(due.settings.weight) * due.part;
        let groups = || self.divided.groups.iter().filter(|(path, _)| *path != "/");
        let most = groups().map(|(_, due)| exact(due)).fold(0.0, f64::max);
        // Streams of the root keep their weights beside groups: so do those.
        let has_root = self.own.groups.contains_key("/");
        let scale = if most > 0.0 && !has_root { f64::from(Weight::MAX) / most } else { 1.0 };
        let mut left_over = BTreeMap::new();
        let mut whole = |(path, due): (&String, &Due)| {
            let exact = exact(due) * scale + self.left_over.get(path).copied().unwrap_or_default();
            let whole = ((exact + 0.5) as u16).clamp(1, Weight::MAX.get());
            left_over.insert(path.clone(), (exact - f64::from(whole)).clamp(-1.0, 1.0));
            (path.clone(), Weight::new(whole))
        };
        let weights = self.divided.groups.iter().map(&mut whole).collect();
        self.left_over = left_over;
        weights
    }

    /// The report of this gateway, which is the next.
    pub fn report(&mut self) -> &Report {
        self.own.sequence += 1;
        &self.own
    }

    /// The report with which this gateway ends.
    pub fn last_report(&mut self) -> &Report {
        (self.own.ends, self.own.groups) = (true, BTreeMap::new());
        self.report()
    }

    /// The groups' parts of the pool, by their paths, as of the last period.
    #[must_use]
    pub fn groups(&self) -> &BTreeMap<String, Due> {
        &self.divided.groups
    }

    /// The service of all gateways a second, in reads of 4 KiB.
    #[must_use]
    pub fn served(&self) -> f64 {
        self.divided.whole
    }

    /// The gateways, this one included, by name.
    #[must_use]
    pub fn gateways(&self) -> Vec<GatewayView> {
        let seen = |name: &str, report: &Report, age, is_gone, is_own, is_twin| GatewayView {
            name: name.into(),
            is_own,
            age,
            is_gone,
            depth: report.depth,
            served: report.groups.values().map(|group| group.served).sum(),
            due: self.due.get(name).copied().unwrap_or_default(),
            groups: report.groups.len(),
            is_twin,
            is_unreadable: self.unreadable.contains(name),
        };
        let others = self.others.iter().map(|(name, Other { report, age, is_gone, is_twin, .. })| {
            seen(name, report, age.saturating_sub(1), *is_gone, false, *is_twin)
        });
        let own = seen(&self.name, &self.own, 0, false, true, self.twins >= STALE);
        let mut all: Vec<_> = core::iter::once(own).chain(others).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }
}

/// A part of each rate; at least 1 of each.
fn part_of(rates: &Rates, part: f64) -> Rates {
    rates.iter().fold(Rates::NONE, |all, (rate, amount)| all.with(rate, ((amount as f64 * part + 0.5) as u64).max(1)))
}

#[cfg(test)]
mod tests;
