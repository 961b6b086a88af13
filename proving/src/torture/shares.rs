//! The suite `shares`: what tenants get of a disk while all of them want more, beside what plain arithmetic says is due.
//!
//! shares.1  All tenants keep more requests open than the disk takes, all requests are alike, and each takes the disk the same time.
//!     So a part of the time is a part of the requests, and what is due needs no model of the disk: weight by sum of weights, level
//!     by level.
//! shares.2  A tenant's *lag* is what was due to it less what it has had. In a period in which nothing is changed it may move by a
//!     bound that does not grow with the period: some requests, or some turns where a scheduler serves in turns. A share that is
//!     wrong by a part of a hundred leaves the bound sooner or later, and noise does not.
//! shares.3  A run has one [`Theme`]: weights that change between periods, floors, ceilings, or a tenant that flushes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use fairlift_core::ceiling::{Budget, Ceiling, Rate, Rates};
use fairlift_core::model::Character;
use fairlift_core::queue::Settings;
use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, secs, us};
use fairlift_core::{
    Bio, ContextId, Duration, Extent, Finished, Flags, Group, GroupId, Instant, Limits, Op, Outcome, Priority, Queue,
    Sector, Stream, StreamId, Tag, Token, Weight,
};

use super::Tried;
use super::swarm::one_of;
use super::tally::{Broken, Count, Tally};
use fairlift_lab::Random;

const C0: ContextId = ContextId(0);

/// What a run is about (shares.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Theme {
    Weights,
    Flushes,
    Floors,
    Ceilings,
}

/// What a run is made of, and what is due in it.
#[derive(Debug)]
pub(super) struct SharesRun {
    seed: u64,
    theme: Theme,
    kind: Kind,
    /// Whether the tenant that flushes reads too, like the others.
    reads: bool,
    /// What serves at first, with nothing looked at.
    before: Option<Kind>,
    knobs: Vec<(&'static str, String)>,
    queue: Settings,
    /// The groups whose streams ask, and how many streams each has.
    tenants: Vec<(GroupId, u16)>,
    op: Op,
    sectors: u64,
    /// The disk does so many at once, each for so long; a flush, alone.
    channels: usize,
    service: Duration,
    flush: Duration,
    periods: u64,
    /// Requests of each.
    period: u64,
}

/// The depth that `fair` is told, if it is told any.
fn told_depth(knobs: &[(&str, String)]) -> Option<u16> {
    knobs.iter().find(|(name, _)| *name == "device_depth").and_then(|(_, value)| value.parse().ok()).filter(|n| *n > 0)
}

impl SharesRun {
    pub(super) fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x7368_6172_6573);
        let r = &mut random;
        let theme = [Theme::Weights, Theme::Weights, Theme::Weights, Theme::Flushes, Theme::Floors, Theme::Ceilings]
            [r.below(6) as usize];
        let kind = match theme {
            Theme::Floors => Kind::Fair,
            // Where a tenant waits for the turns of others, those turns say what it gets.
            Theme::Ceilings => one_of(r, &[Kind::None, Kind::MqDeadline, Kind::Fair]),
            Theme::Weights | Theme::Flushes => one_of(r, &[Kind::Fair, Kind::Bfq, Kind::Cfq]),
        };
        // A tenant has whole places in a disk (fair.5): with few of them its part is rounded.
        let (channels, times): (&[usize], &[usize]) = match (kind, theme) {
            (Kind::Fair, Theme::Flushes) => (&[1, 4, 16, 32], &[1, 4, 8]),
            (Kind::Fair, _) => (&[16, 32], &[4, 8]),
            _ => (&[1, 2, 4, 8], &[1, 2, 4]),
        };
        let channels = one_of(r, channels);
        let depth = (channels * one_of(r, times)) as u16;
        let knobs: Vec<(&str, String)> = match kind {
            // While it learns its depth, a floor is kept less well.
            Kind::Fair => {
                vec![("device_depth", one_of(r, &[depth, if theme == Theme::Floors { depth } else { 0 }]).to_string())]
            }
            Kind::Bfq => vec![
                // Streams that begin have more than their weight for a while, and a run is one while.
                ("low_latency", "0".into()),
                ("queue_merging", "off".into()),
                ("service", one_of(r, &["turns", "together"]).into()),
            ],
            Kind::Cfq => vec![("slice_idle", one_of(r, &["0", "8ms"]).into())],
            _ => Vec::new(),
        };
        let groups = groups(r, theme);
        let is_parent = |id: u16| groups.iter().any(|group| group.parent == Some(GroupId(id)));
        let leaves: Vec<u16> = (1..groups.len() as u16).filter(|id| !is_parent(*id)).collect();
        let tenants: Vec<_> = leaves.into_iter().map(|id| (GroupId(id), one_of(r, &[1, 1, 2]))).collect();
        let (op, sectors) = (one_of(r, &[Op::Read, Op::Read, Op::Write]), one_of(r, &[8, 8, 64]));
        let op = if theme == Theme::Flushes { Op::Read } else { op };
        let limits = Limits::new(1 << 32);
        let streams: u32 = tenants.iter().map(|(_, count)| u32::from(*count)).sum();
        let queue = Settings {
            depth,
            nr_requests: streams * 2 * (u32::from(depth) + 4) + 16,
            groups,
            nomerges: true,
            character: Character { rotational: r.below(4) == 0, volatile_cache: true },
            seed: r.bits(),
            ..Settings::new(kind, limits)
        };
        Self {
            seed,
            theme,
            kind,
            before: (r.below(3) == 0).then(|| one_of(r, &Kind::ALL)),
            knobs,
            queue,
            tenants,
            op,
            sectors,
            channels,
            // Not so long that all that is in the disk ends more seldom than a floor is made up for (floor.2).
            service: Duration::from_nanos(
                one_of(r, &[us(200), us(500), if theme == Theme::Floors { us(500) } else { ms(2) }]).as_nanos()
                    * channels as u64,
            ),
            flush: one_of(r, &[ms(2), ms(10), ms(40)]),
            reads: theme != Theme::Flushes || r.below(3) > 0,
            periods: if theme == Theme::Weights { 1 + r.below(3) } else { 1 },
            period: 20_000,
        }
    }

    /// Steps: requests.
    pub(super) const fn requests(&self) -> u64 {
        self.periods * self.period
    }

    pub(super) fn says(&self) -> String {
        let Self { theme, kind, reads, before, knobs, queue, tenants, channels, service, flush, .. } = self;
        let groups: Vec<_> = queue.groups.iter().map(|group| (group.parent.map(|id| id.0), group.weight)).collect();
        format!(
            "{theme:?}: {}, {knobs:?}, after {before:?}, {:?}, depth {}, {channels} at once in {service}, flushes of {flush}, reads \
             beside them: {reads}, groups {groups:?}, tenants {tenants:?}",
            kind.name(),
            self.op,
            queue.depth,
        )
    }

    /// The part of the disk that is due to each tenant (shares.1).
    fn dues(&self, weights: &[u16]) -> Vec<f64> {
        let groups = &self.queue.groups;
        let of_parent = |parent: GroupId| -> f64 {
            let children = groups.iter().zip(weights).filter(|(group, _)| group.parent == Some(parent));
            children.map(|(_, weight)| f64::from(*weight)).sum()
        };
        let due = |leaf: GroupId| {
            let mut due = 1.0;
            let mut at = leaf;
            while let Some(parent) = groups[usize::from(at.0)].parent {
                due *= f64::from(weights[usize::from(at.0)]) / of_parent(parent);
                at = parent;
            }
            due
        };
        self.tenants.iter().map(|(id, _)| due(*id)).collect()
    }

    /// Requests that the disk does in a second.
    fn rate(&self) -> f64 {
        self.channels as f64 / seconds(self.service)
    }

    /// Requests of a turn, where a scheduler serves in turns.
    fn turn(&self) -> f64 {
        match self.kind {
            Kind::Bfq => self.rate() * 0.125 + 256.0 / self.sectors as f64,
            Kind::Cfq => self.rate() * 0.1,
            _ => 0.0,
        }
    }

    /// By how many requests a lag may move in a period (shares.2): what is in the disk, and two turns on each level.
    fn bound(&self) -> f64 {
        // `fair` tries other depths, and gives each tenant its places, while it serves.
        let rounds = if self.kind == Kind::Fair { 6.0 } else { 2.0 };
        rounds * f64::from(self.queue.depth) + 4.0 * self.tenants.len() as f64 + 4.0 * self.turn()
    }

    /// By what part of all requests the lag of a tenant with a part of `due` may move beside that, where the least part of any is
    /// `least`. `cfq` with slices charges what the disk has at the end of a turn to whoever is next. `fair` gives whole places, so
    /// where somebody's part is worth fewer than two, each tenant may win or lose half a place.
    fn slack(&self, due: f64, least: f64) -> f64 {
        let depth = f64::from(self.queue.depth);
        match self.kind {
            Kind::Cfq if self.queue.depth <= 4 || self.knobs[0].1 != "0" => 0.9 * due,
            Kind::Fair if least * depth < 2.0 => 0.5 * self.tenants.len() as f64 / depth,
            _ => 0.0,
        }
    }

    /// The run, until so many requests went to the disk.
    pub(super) fn go(&self, requests: u64) -> Tried {
        let mut run = Run::new(self);
        let result = run.go(requests);
        run.tally.one(Count::Runs);
        run.tally.add(Count::Millis, run.now.as_nanos() / 1_000_000);
        (run.tally, result)
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e9
}

/// A tree of groups in which only those without children ask.
fn groups(random: &mut Random, theme: Theme) -> Vec<Group> {
    let mut groups = vec![Group::root()];
    let add = |groups: &mut Vec<Group>, parent, weight| {
        groups.push(Group { path: format!("/{}", groups.len()), parent: Some(parent), weight: Weight::new(weight) });
        GroupId(groups.len() as u16 - 1)
    };
    let most = if theme == Theme::Ceilings { 1 } else { 4 };
    for _ in 0..2 + random.below(most) {
        let weight = one_of(random, WEIGHTS);
        let group = add(&mut groups, GroupId::ROOT, weight);
        if theme == Theme::Weights && random.below(4) == 0 {
            for _ in 0..2 + random.below(2) {
                let weight = one_of(random, WEIGHTS);
                add(&mut groups, group, weight);
            }
        }
    }
    groups
}

const WEIGHTS: &[u16] = &[50, 100, 100, 200, 300, 500];

/// How a tenant stands.
#[derive(Clone, Copy, Default, Debug)]
struct Stand {
    got: u64,
    /// The least and the most that its lag was in this period.
    low: f64,
    high: f64,
}

impl Stand {
    /// So much was due by now; how far the lag has moved.
    fn moves(&mut self, due: f64) -> f64 {
        let lag = due - self.got as f64;
        (self.low, self.high) = (self.low.min(lag), self.high.max(lag));
        self.high - self.low
    }
}

/// A client's stream.
struct Asker {
    tenant: usize,
    stream: StreamId,
    open: u32,
    keeps: u32,
    /// It writes and flushes, in turns: whether it has written.
    commits: Option<bool>,
}

struct Run<'a> {
    setup: &'a SharesRun,
    tally: Tally,
    random: Random,
    queue: Queue,
    now: Instant,
    askers: Vec<Asker>,
    /// When each channel is free, and what is in the disk.
    free: Vec<Instant>,
    inside: BinaryHeap<Reverse<(Instant, Tag)>>,
    stands: Vec<Stand>,
    sent: u64,
    /// Time of the disk that flushes took.
    flushed: Duration,
}

type Result = std::result::Result<(), Broken>;

impl<'a> Run<'a> {
    fn new(setup: &'a SharesRun) -> Self {
        let first = Settings { scheduler: setup.before.unwrap_or(setup.kind), ..setup.queue.clone() };
        let mut queue = Queue::new(first);
        let mut askers = Vec::new();
        for (tenant, (group, count)) in setup.tenants.iter().enumerate() {
            let mut add = |keeps, commits| {
                let stream = queue.add_stream(Stream { group: *group, priority: Priority::default(), context: C0 });
                askers.push(Asker { tenant, stream, open: 0, keeps, commits });
            };
            let flushes = setup.theme == Theme::Flushes && tenant == 0;
            if setup.reads || !flushes {
                (0..*count).for_each(|_| add(u32::from(setup.queue.depth) + 4, None));
            }
            if flushes {
                (0..4).for_each(|_| add(1, Some(false)));
            }
        }
        Self {
            setup,
            tally: Tally::default(),
            random: Random::new(setup.seed ^ 0x6469_736b),
            queue,
            now: Instant::ZERO,
            askers,
            free: vec![Instant::ZERO; setup.channels],
            inside: BinaryHeap::new(),
            stands: vec![Stand::default(); setup.tenants.len()],
            sent: 0,
            flushed: Duration::ZERO,
        }
    }

    fn go(&mut self, requests: u64) -> Result {
        let setup = self.setup;
        if setup.before.is_some() {
            self.serve(200, |_, _| Ok(()))?;
            self.queue.set_scheduler(self.now, setup.kind);
        }
        for (name, value) in &setup.knobs {
            self.queue.set_tunable(name, value).unwrap_or_else(|error| panic!("{name}={value}: {error}"));
        }
        match setup.theme {
            Theme::Weights => self.weights(requests),
            Theme::Flushes => self.flushes(requests),
            Theme::Floors => self.floors(requests),
            Theme::Ceilings => self.ceilings(requests),
        }
    }

    /// Each tenant has its weight's part of the requests, in each period.
    fn weights(&mut self, requests: u64) -> Result {
        let (setup, bound) = (self.setup, self.setup.bound());
        let mut weights: Vec<u16> = setup.queue.groups.iter().map(|group| group.weight.get()).collect();
        let mut left = requests;
        for period in 0..setup.periods {
            if period > 0 {
                for (id, weight) in weights.iter_mut().enumerate().skip(1) {
                    *weight = one_of(&mut self.random, WEIGHTS);
                    self.queue.set_weight(self.now, GroupId(id as u16), Weight::new(*weight));
                }
                self.tally.one(Count::Changes);
            }
            let dues = setup.dues(&weights);
            let least = dues.iter().copied().fold(1.0, f64::min);
            self.stands.fill(Stand::default());
            let mut sent = 0;
            self.serve(setup.period.min(left), |run, tenant| {
                run.stands[tenant].got += 1;
                sent += 1;
                for (stand, due) in run.stands.iter_mut().zip(&dues) {
                    let moved = stand.moves(due * sent as f64);
                    let bound = bound + setup.slack(*due, least) * sent as f64;
                    if moved > bound {
                        let says = format!(
                            "a tenant with {due:.3} of the weight has {} of {sent} requests; its lag moved by {moved:.0}, and may by \
                             {bound:.0}",
                            stand.got
                        );
                        return Err(Broken::new("W1", says));
                    }
                }
                run.tally.one(Count::Shared);
                Ok(())
            })?;
            left -= setup.period.min(left);
        }
        Ok(())
    }

    /// The tenant that flushes has no more than its part of the disk's time, flushes included.
    fn flushes(&mut self, requests: u64) -> Result {
        let setup = self.setup;
        let weights: Vec<u16> = setup.queue.groups.iter().map(|group| group.weight.get()).collect();
        let due = setup.dues(&weights)[0];
        // What a flush is worth is learned, of one or two seconds (pace.2).
        let learned = self.now + secs(3);
        let mut count = (0_u64, 0_u64, Duration::ZERO);
        self.serve(requests, |run, tenant| {
            if run.now < learned {
                count.2 = run.flushed;
                return Ok(());
            }
            count.1 += 1;
            count.0 += u64::from(tenant == 0);
            run.tally.one(Count::Shared);
            Ok(())
        })?;
        let one = seconds(setup.service) / setup.channels as f64;
        let flushes = seconds(self.flushed - count.2);
        let all = count.1 as f64 * one + flushes;
        let own = count.0 as f64 * one + flushes;
        // A run tells only that a share is wrong. A tenant that only commits was seen 0.17 off; one that reads too was seen 0.25 off under
        // `fair`, for it keeps its places, and 0.07 under the others.
        let off = match setup.kind {
            _ if !setup.reads => 0.22,
            Kind::Fair => 0.32,
            _ => 0.15,
        };
        if all > 4.0 && own > (due + off) * all {
            let says = format!(
                "a tenant with {due:.3} of the weight has {:.3} of the disk's time, {flushes:.2} s of flushes in {all:.2} s included",
                own / all
            );
            return Err(Broken::new("W1", says));
        }
        Ok(())
    }

    /// Each tenant with a floor has it; there is enough for all.
    fn floors(&mut self, requests: u64) -> Result {
        let setup = self.setup;
        let rate = setup.rate();
        let part = 0.7 / setup.tenants.len() as f64;
        let floors: Vec<f64> =
            setup.tenants.iter().map(|_| (part * self.random.below(3) as f64 / 2.0 * rate).floor()).collect();
        for ((group, _), floor) in setup.tenants.iter().zip(&floors) {
            self.queue.set_floor(self.now, *group, Rates::NONE.with(Rate::Iops, *floor as u64));
        }
        let since = self.now;
        // A tenth of a second of it, and what the disk has.
        let room = |floor: f64| floor * 0.1 + 2.0 * f64::from(setup.queue.depth) + 2.0;
        self.serve(requests, |run, tenant| {
            run.stands[tenant].got += 1;
            let time = seconds(run.now.since(since));
            for (stand, floor) in run.stands.iter_mut().zip(&floors) {
                let lag = floor * time - stand.got as f64;
                stand.low = stand.low.min(lag);
                if lag - stand.low > room(*floor) {
                    let says = format!(
                        "a tenant with a floor of {floor} I/Os a second has {} in {time:.3} s, and was {:.0} ahead",
                        stand.got, -stand.low
                    );
                    return Err(Broken::new("W2", says));
                }
            }
            run.tally.one(Count::Reserved);
            Ok(())
        })
    }

    /// A tenant has its ceiling, no less and no more, whatever else is changed; a ceiling of the other direction is none.
    fn ceilings(&mut self, requests: u64) -> Result {
        let setup = self.setup;
        let weights: Vec<u16> = setup.queue.groups.iter().map(|group| group.weight.get()).collect();
        let (group, streams) = setup.tenants[0];
        // Some are far apart: a request is owed for longer than a change takes to come.
        let least = setup.dues(&weights)[0].min(1.0 / setup.tenants.len() as f64) * setup.rate();
        let amounts = [0.02, 0.1, 0.4].map(|part: f64| ((part * least) as u64).max(2));
        let (own, other) = if setup.op == Op::Read { (Rate::Riops, Rate::Wiops) } else { (Rate::Wiops, Rate::Riops) };
        let pause = one_of(&mut self.random, &[ms(7), ms(60), secs(3600)]);
        let ceiling = |amount: u64| Ceiling::of(Rates::NONE.with(own, amount).with(other, 1));
        let mut amount = one_of(&mut self.random, &amounts);
        let budget = Arc::new(Budget::new(&ceiling(amount)));
        self.queue.set_ceiling(self.now, group, Some(Arc::clone(&budget)));
        // What was asked before there was a ceiling, what is in the disk, and what the ceiling lets through at once.
        let most = amounts[2] as f64;
        let room = f64::from(2 + streams) * f64::from(setup.queue.depth + 4) + most * 0.012 + 4.0;
        let (mut since, mut due, mut next) = (self.now, 0.0, self.now + pause);
        self.serve(requests, |run, tenant| {
            run.stands[tenant].got += 1;
            let now = run.now;
            due += amount as f64 * seconds(now.since(since));
            since = now;
            let moved = run.stands[0].moves(due);
            if moved > room {
                let says = format!(
                    "a tenant with a ceiling of {amount} I/Os a second has {} where {due:.0} are due; its lag moved by {moved:.0}, and \
                     may by {room:.0}",
                    run.stands[0].got
                );
                return Err(Broken::new("W2", says));
            }
            if now >= next {
                amount = one_of(&mut run.random, &amounts);
                budget.set(now, &ceiling(amount));
                run.queue.ceiling_changed(now, group);
                run.tally.one(Count::Changes);
                next = now + pause;
            }
            run.tally.one(Count::Reserved);
            Ok(())
        })
    }

    /// Until so many requests went to the disk; each is told by its tenant.
    fn serve(&mut self, requests: u64, mut tell: impl FnMut(&mut Self, usize) -> Result) -> Result {
        let until = self.sent + requests;
        while self.sent < until {
            self.ask();
            while let Some(dispatch) = self.queue.poll_dispatch(self.now, C0) {
                let asker = self.askers.iter().position(|asker| asker.stream == dispatch.stream);
                let tenant = self.askers[asker.expect("a client asked")].tenant;
                let ends = self.begins(dispatch.op);
                self.inside.push(Reverse((ends, dispatch.tag)));
                self.tally.one(Count::Requests);
                if dispatch.op == Op::Flush {
                    self.flushed = self.flushed + self.setup.flush;
                    continue;
                }
                self.fits()?;
                self.sent += 1;
                tell(self, tenant)?;
            }
            while let Some(news) = self.queue.poll_finished(C0) {
                self.finished(news)?;
            }
            while self.queue.poll_wake().is_some() {}
            if self.askers.iter().any(|asker| asker.open < asker.keeps) {
                continue;
            }
            let next =
                [self.inside.peek().map(|Reverse((at, _))| *at), self.queue.poll_timeout()].into_iter().flatten().min();
            let Some(next) = next else {
                return Err(Broken::new("L1", "all tenants wait, and nothing is to happen"));
            };
            self.now = self.now.max(next);
            while let Some(&Reverse((at, tag))) = self.inside.peek()
                && at <= self.now
            {
                self.inside.pop();
                self.queue.handle_completion(self.now, tag, Outcome::Done);
            }
            self.queue.handle_timeout(self.now);
        }
        Ok(())
    }

    /// A client that has fewer requests open than it keeps asks for more.
    fn ask(&mut self) {
        for number in 0..self.askers.len() {
            while self.askers[number].open < self.askers[number].keeps {
                let start = self.random.below(1 << 20) * 2048;
                let asker = &mut self.askers[number];
                let op = match &mut asker.commits {
                    None => self.setup.op,
                    Some(has_written) => {
                        *has_written = !*has_written;
                        if *has_written { Op::Write } else { Op::Flush }
                    }
                };
                let extent =
                    if op == Op::Flush { Extent::NONE } else { Extent::new(Sector(start), self.setup.sectors) };
                let flags = if op == Op::Write { Flags::SYNC } else { Flags::NONE };
                let bio = Bio { op, flags, extent, stream: asker.stream, token: Token(number as u64) };
                asker.open += 1;
                self.queue.submit(self.now, bio).expect("there is room for all that is open");
            }
        }
    }

    /// A request goes to the disk: when it ends. A flush has the disk alone.
    fn begins(&mut self, op: Op) -> Instant {
        if op == Op::Flush {
            let ends = self.free.iter().copied().max().unwrap_or(self.now).max(self.now) + self.setup.flush;
            self.free.fill(ends);
            return ends;
        }
        let channel = self.free.iter_mut().min().expect("a disk has channels");
        *channel = (*channel).max(self.now) + self.setup.service;
        *channel
    }

    /// There is no more in the disk than `fair` was told, whoever dispatched it.
    fn fits(&self) -> Result {
        let told = told_depth(&self.setup.knobs).filter(|_| self.queue.settings().scheduler == Kind::Fair);
        let flushes = self.setup.theme == Theme::Flushes;
        match told.filter(|_| !flushes) {
            Some(most) if self.queue.in_flight() > most => {
                let says = format!("{} requests are in the disk, and device_depth is {most}", self.queue.in_flight());
                Err(Broken::new("W1", says))
            }
            _ => Ok(()),
        }
    }

    fn finished(&mut self, news: Finished) -> Result {
        match news {
            Finished::Done(Token(number), Outcome::Done) => {
                self.askers[number as usize].open -= 1;
                self.tally.one(Count::Ios);
                Ok(())
            }
            // A flush behind the debts of its tenant waits for a quarter of io_timeout, and no disk hangs here.
            other => Err(Broken::new("L4", format!("{other:?} on a disk on which nothing goes wrong"))),
        }
    }
}
