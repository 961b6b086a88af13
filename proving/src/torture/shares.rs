//! The suite `shares`: the service of tenants while all of them want more, beside their dues by plain arithmetic.
//!
//! shares.1  All tenants keep more requests open than the disk takes, all requests are alike, and each takes the disk the same time. So a
//!     part of the time is a part of the requests, and dues need no model of the disk: weight by sum of weights, level by level.
//! shares.2  A tenant's *lag* is its due less its service. In a period in which nothing is changed it may move by a bound that does not
//!     grow with the period: some requests, or some turns where a scheduler serves in turns. A share that is wrong by a part of a hundred
//!     leaves the bound sooner or later, and noise does not.
//! shares.3  A run has one [`Theme`]: weights that change between periods, floors, ceilings, or a tenant that flushes.

use std::sync::Arc;

use fairlift_core::ceiling::{Budget, Ceiling, Rate, Rates};
use fairlift_core::model::{Character, Model};
use fairlift_core::queue::{Bound, Settings};
use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, secs, us};
use fairlift_core::{
    ContextId, Duration, Group, GroupId, Instant, Limits, Op, Outcome, Priority, Queue, Sector, Stream, Weight,
};

use super::Verdict;
use super::swarm::one_of;
use crate::tally::{Count, Result, Tally, broken};
use fairlift_lab::program::direct::{Direct, Settings as Asks};
use fairlift_lab::program::{Pattern, Region};
use fairlift_lab::{Random, World, given_times};

/// The subject of a run (shares.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Theme {
    Weights,
    Flushes,
    Floors,
    Ceilings,
}

/// The parameters of a run, and its dues.
#[derive(Debug)]
pub(super) struct SharesRun {
    seed: u64,
    theme: Theme,
    kind: Kind,
    /// Whether the tenant that flushes reads too, like the others.
    reads: bool,
    /// The first scheduler, with nothing looked at.
    before: Option<Kind>,
    knobs: Vec<(&'static str, String)>,
    queue: Settings,
    /// The groups whose streams ask, and how many streams each has.
    tenants: Vec<(GroupId, u16)>,
    op: Op,
    sectors: u64,
    /// The disk serves this many at once, each for a time; a flush, alone.
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
            ..Settings::new(kind, limits)
        };
        r.bits(); // so that known seeds keep their runs
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

    /// By what part of all requests the lag of a tenant with a part of `due` may move beside that, where the least part of any is `least`.
    /// `cfq` with slices charges requests in the disk at the end of a turn to the next queue. `fair` gives whole places, so where
    /// somebody's part is worth fewer than two, each tenant may win or lose half a place.
    fn slack(&self, due: f64, least: f64) -> f64 {
        let depth = f64::from(self.queue.depth);
        match self.kind {
            Kind::Cfq if self.queue.depth <= 4 || self.knobs[0].1 != "0" => 0.9 * due,
            Kind::Fair if least * depth < 2.0 => 0.5 * self.tenants.len() as f64 / depth,
            _ => 0.0,
        }
    }

    /// The disk: a flush has it alone.
    fn disk(&self) -> Box<dyn Model> {
        let (service, flush, mut free) = (self.service, self.flush, vec![Instant::ZERO; self.channels]);
        Box::new(given_times(self.queue.limits, move |now, request, _| {
            let ends = if request.op == Op::Flush {
                let ends = free.iter().copied().max().unwrap_or(now).max(now) + flush;
                free.fill(ends);
                ends
            } else {
                let channel = free.iter_mut().min().expect("a disk has channels");
                *channel = (*channel).max(now) + service;
                *channel
            };
            (ends.since(now), Outcome::Done)
        }))
    }

    /// The run, until `requests` went to the disk.
    pub(super) fn go(&self, requests: u64) -> Verdict {
        let mut run = Run::new(self);
        let broken = run.go(requests).err();
        run.tally.one(Count::Runs);
        run.tally.add(Count::Ios, run.world.model().work().requests);
        run.tally.add(Count::Millis, run.world.now().as_nanos() / 1_000_000);
        Verdict { tally: run.tally, broken }
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

/// A tenant's lag, and the requests that it got.
#[derive(Clone, Copy, Default, Debug)]
struct Lag {
    got: u64,
    /// The least and the most that its lag was in this period.
    low: f64,
    high: f64,
}

impl Lag {
    /// The due by now, and the movement of the lag.
    fn moves(&mut self, due: f64) -> f64 {
        let lag = due - self.got as f64;
        (self.low, self.high) = (self.low.min(lag), self.high.max(lag));
        self.high - self.low
    }
}

struct Run<'a> {
    setup: &'a SharesRun,
    tally: Tally,
    random: Random,
    world: World,
    /// By stream: whose it is.
    tenants: Vec<usize>,
    lags: Vec<Lag>,
    /// Of what the world has dispatched, how much was looked at.
    seen: usize,
    sent: u64,
    /// Time of the disk that flushes took.
    flushed: Duration,
}

impl<'a> Run<'a> {
    fn new(setup: &'a SharesRun) -> Self {
        let first = Settings { scheduler: setup.before.unwrap_or(setup.kind), ..setup.queue.clone() };
        let mut world = World::new(Queue::new(first), setup.disk());
        world.check().seed(setup.seed);
        world.remember();
        let mut tenants = Vec::new();
        for (tenant, (group, count)) in setup.tenants.iter().enumerate() {
            let mut add = |asks| {
                let stream = Stream { group: *group, priority: Priority::default(), context: ContextId(0) };
                let file = Region { start: Sector(0), bytes: 1 << 40 };
                world.add(stream, Box::new(Direct::new(asks, file, setup.seed ^ (tenants.len() as u64) << 32)));
                tenants.push(tenant);
            };
            let asks = |op, depth| Asks::new(op, Pattern::Random, setup.sectors * Sector::SIZE, depth);
            let flushes = setup.theme == Theme::Flushes && tenant == 0;
            if setup.reads || !flushes {
                (0..*count).for_each(|_| add(asks(setup.op, u32::from(setup.queue.depth) + 4)));
            }
            if flushes {
                (0..4).for_each(|_| add(Asks { flush_every: 1, ..asks(Op::Write, 1) }));
            }
        }
        Self {
            setup,
            tally: Tally::default(),
            random: Random::new(setup.seed ^ 0x6469_736b),
            world,
            tenants,
            lags: vec![Lag::default(); setup.tenants.len()],
            seen: 0,
            sent: 0,
            flushed: Duration::ZERO,
        }
    }

    fn go(&mut self, requests: u64) -> Result {
        let setup = self.setup;
        if setup.before.is_some() {
            self.serve(200, |_, _| Ok(()))?;
            let now = self.world.now();
            self.world.queue().set_scheduler(now, setup.kind);
        }
        for (name, value) in &setup.knobs {
            self.world.queue().set_tunable(name, value).unwrap_or_else(|error| panic!("{name}={value}: {error}"));
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
                let now = self.world.now();
                for (id, weight) in weights.iter_mut().enumerate().skip(1) {
                    *weight = one_of(&mut self.random, WEIGHTS);
                    self.world.queue().set_weight(now, GroupId(id as u16), Weight::new(*weight));
                }
                self.tally.one(Count::Changes);
            }
            let dues = setup.dues(&weights);
            let least = dues.iter().copied().fold(1.0, f64::min);
            self.lags.fill(Lag::default());
            let mut sent = 0;
            self.serve(setup.period.min(left), |run, tenant| {
                run.lags[tenant].got += 1;
                sent += 1;
                for (tenant, due) in run.lags.iter_mut().zip(&dues) {
                    let moved = tenant.moves(due * sent as f64);
                    let bound = bound + setup.slack(*due, least) * sent as f64;
                    if moved > bound {
                        let says = format!(
                            "a tenant with {due:.3} of the weight has {} of {sent} requests; its lag moved by {moved:.0}, and may by \
                             {bound:.0}",
                            tenant.got
                        );
                        return broken("W1", says);
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
        // The worth of a flush is learned, of one or two seconds (pace.2).
        let learned = self.world.now() + secs(3);
        let mut count = (0_u64, 0_u64, Duration::ZERO);
        self.serve(requests, |run, tenant| {
            if run.world.now() < learned {
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
            return broken("W1", says);
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
        let since = self.world.now();
        for ((group, _), floor) in setup.tenants.iter().zip(&floors) {
            let floor = Rates::NONE.with(Rate::Iops, *floor as u64);
            self.world.queue().bind(since, *group, &Bound { floor, ..Bound::default() });
        }
        // A tenth of a second of it, and the requests in the disk.
        let room = |floor: f64| floor * 0.1 + 2.0 * f64::from(setup.queue.depth) + 2.0;
        self.serve(requests, |run, tenant| {
            run.lags[tenant].got += 1;
            let time = seconds(run.world.now().since(since));
            for (tenant, floor) in run.lags.iter_mut().zip(&floors) {
                let lag = floor * time - tenant.got as f64;
                tenant.low = tenant.low.min(lag);
                if lag - tenant.low > room(*floor) {
                    let says = format!(
                        "a tenant with a floor of {floor} I/Os a second has {} in {time:.3} s, and was {:.0} ahead",
                        tenant.got, -tenant.low
                    );
                    return broken("W2", says);
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
        let now = self.world.now();
        let bound = Bound { budget: Some(Arc::clone(&budget)), ..Bound::default() };
        self.world.queue().bind(now, group, &bound);
        // Requests from before the ceiling, those in the disk, and those that the ceiling lets through at once.
        let most = amounts[2] as f64;
        let room = f64::from(2 + streams) * f64::from(setup.queue.depth + 4) + most * 0.012 + 4.0;
        let (mut since, mut due, mut next) = (now, 0.0, now + pause);
        self.serve(requests, |run, tenant| {
            run.lags[tenant].got += 1;
            let now = run.world.now();
            due += amount as f64 * seconds(now.since(since));
            since = now;
            let moved = run.lags[0].moves(due);
            if moved > room {
                let says = format!(
                    "a tenant with a ceiling of {amount} I/Os a second has {} where {due:.0} are due; its lag moved by {moved:.0}, and \
                     may by {room:.0}",
                    run.lags[0].got
                );
                return broken("W2", says);
            }
            if now >= next {
                amount = one_of(&mut run.random, &amounts);
                budget.set(now, &ceiling(amount));
                run.world.queue().ceilings().look_again(now, group);
                run.tally.one(Count::Changes);
                next = now + pause;
            }
            run.tally.one(Count::Reserved);
            Ok(())
        })
    }

    /// Until `requests` went to the disk; each is told by its tenant.
    fn serve(&mut self, requests: u64, mut tell: impl FnMut(&mut Self, usize) -> Result) -> Result {
        let until = self.sent + requests;
        while self.sent < until {
            if self.world.step().is_none() {
                return broken("L1", "all tenants wait, and nothing is to happen");
            }
            self.fits()?;
            while let Some(dispatch) = self.world.dispatched().get(self.seen).copied() {
                self.seen += 1;
                self.tally.one(Count::Requests);
                if dispatch.op == Op::Flush {
                    self.flushed = self.flushed + self.setup.flush;
                    continue;
                }
                self.sent += 1;
                tell(self, self.tenants[dispatch.stream.0 as usize])?;
            }
        }
        // A flush behind the debts of its tenant waits for a quarter of io_timeout, and no disk hangs here.
        match (0..self.tenants.len()).find_map(|asker| self.world.program(asker).meter().why) {
            Some(why) => broken("L4", format!("{why} on a disk on which nothing goes wrong")),
            None => Ok(()),
        }
    }

    /// There is no more in the disk than `fair` was told, whoever dispatched it.
    fn fits(&mut self) -> Result {
        let queue = self.world.queue();
        let is_told = queue.settings().scheduler == Kind::Fair && self.setup.theme != Theme::Flushes;
        match told_depth(&self.setup.knobs).filter(|_| is_told) {
            Some(most) if queue.load().in_flight > most => {
                let says = format!("{} requests are in the disk, and device_depth is {most}", queue.load().in_flight);
                broken("W1", says)
            }
            _ => Ok(()),
        }
    }
}
