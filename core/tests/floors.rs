//! Floors, ceilings and weights in one tree, under `fair`: held to a dull model, a fluid that is divided level by level.

use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use fairlift_core::ceiling::{Budget, Ceiling, Rate, Rates};
use fairlift_core::queue::{Bound, Settings};
use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, us};
use fairlift_core::{
    Bio, ContextId, Duration, Extent, Finished, Flags, Group, GroupId, Instant, Limits, Op, Outcome, Priority, Queue,
    Sector, Stream, StreamId, Token, Weight,
};
use proptest::prelude::*;

const C0: ContextId = ContextId(0);
/// The disk has so many requests at a time, each for so long.
const DEPTH: u16 = 128;
const TAKES: Duration = ms(16);
/// I/Os a second.
const CAPACITY: f64 = 8_000.0;
/// What a tenant keeps outstanding: enough for all of the disk.
const OUTSTANDING: u32 = 160;

/// The parents: three leaves below the root, and a group with three below it.
const PARENTS: [u16; 7] = [0, 0, 0, 0, 4, 4, 4];
const LEAVES: [usize; 6] = [1, 2, 3, 5, 6, 7];
const GROUPS: usize = 8;

/// What is said of a group; rates in I/Os a second, 0: nothing.
#[derive(Clone, Copy, Debug)]
struct Policy {
    weight: u16,
    floor: f64,
    ceiling: f64,
}

fn parent(group: usize) -> usize {
    usize::from(PARENTS[group - 1])
}

fn children(group: usize) -> impl Iterator<Item = usize> {
    (1..GROUPS).filter(move |child| parent(*child) == group)
}

/// The dull model: what each group gets of a fluid. `asks`: by group, whether it asks for all that it can get.
///
/// A group whose weight brings it less than its floor gets the difference first, and no group above it is charged for that. The
/// rest is shared by weight, level by level; nobody has more than its ceiling.
fn fluid(policies: &[Policy], asks: &[bool], all: f64) -> Vec<f64> {
    let below = |group: usize, of: &[f64]| children(group).map(|child| of[child]).sum::<f64>();
    let is_leaf = |group: usize| children(group).next().is_none();
    // The most that each can have.
    let mut most = vec![0.0; GROUPS];
    for group in (0..GROUPS).rev() {
        let ceiling = if policies[group].ceiling > 0.0 { policies[group].ceiling } else { f64::INFINITY };
        let submitted = if !is_leaf(group) {
            below(group, &most)
        } else if asks[group] {
            f64::INFINITY
        } else {
            0.0
        };
        most[group] = ceiling.min(submitted);
    }
    // What each gets first, for itself; all that was first below it; what its weight brings it.
    let (mut first, mut under, mut brought) = (vec![0.0; GROUPS], vec![0.0; GROUPS], vec![0.0; GROUPS]);
    for _ in 0..200 {
        for group in (0..GROUPS).rev() {
            under[group] = children(group).map(|child| first[child] + under[child]).sum();
        }
        brought[0] = all.min(most[0]) - under[0];
        for group in 0..GROUPS {
            let has = brought[group] + first[group];
            // A level rises until all is given away.
            let at = |level: f64| -> Vec<(usize, f64)> {
                let room = |child: usize| (most[child] - first[child] - under[child]).max(0.0);
                children(group)
                    .map(|child| (child, (level * f64::from(policies[child].weight)).min(room(child))))
                    .collect()
            };
            let (mut low, mut high) = (0.0, CAPACITY);
            for _ in 0..50 {
                let middle = f64::midpoint(low, high);
                if at(middle).iter().map(|(_, rate)| rate).sum::<f64>() < has { low = middle } else { high = middle }
            }
            at(low).into_iter().for_each(|(child, rate)| brought[child] = rate);
        }
        for group in 1..GROUPS {
            let lacks = policies[group].floor.min(most[group]) - brought[group] - under[group];
            first[group] = f64::midpoint(first[group], lacks.max(0.0));
        }
    }
    (0..GROUPS).map(|group| brought[group] + first[group] + under[group]).collect()
}

struct Sim {
    queue: Queue,
    now: Instant,
    streams: BTreeMap<usize, StreamId>,
    /// What is in the disk, by when it ends, the next one last.
    flying: BinaryHeap<std::cmp::Reverse<(Instant, fairlift_core::Tag)>>,
    submitted: u64,
    outstanding: Vec<u32>,
    /// How many requests each leaf keeps outstanding.
    keeps: [u32; GROUPS],
    /// When each leaf's requests went to the disk.
    gone: Vec<Vec<Instant>>,
}

impl Sim {
    fn new(policies: &[Policy]) -> Self {
        let mut settings = Settings { depth: DEPTH, nomerges: true, ..Settings::new(Kind::Fair, Limits::new(1 << 30)) };
        settings.groups.extend((1..GROUPS).map(|id| Group {
            path: format!("/{id}"),
            parent: Some(GroupId(PARENTS[id - 1])),
            weight: Weight::new(policies[id].weight),
        }));
        let mut queue = Queue::new(settings);
        queue.set_tunable("device_depth", &DEPTH.to_string()).unwrap();
        for (id, policies) in policies.iter().enumerate() {
            let rates = |rate: f64| Rates::NONE.with(Rate::Iops, rate as u64);
            let budget = (policies.ceiling > 0.0).then(|| Arc::new(Budget::new(&Ceiling::of(rates(policies.ceiling)))));
            let bound = Bound { budget, floor: rates(policies.floor), latency: None };
            queue.bind(Instant::ZERO, GroupId(id as u16), &bound);
        }
        let streams = LEAVES
            .map(|leaf| {
                let stream = Stream { group: GroupId(leaf as u16), priority: Priority::default(), context: C0 };
                (leaf, queue.add_stream(stream))
            })
            .into();
        let (outstanding, gone) = (vec![0; GROUPS], vec![Vec::new(); GROUPS]);
        Self {
            queue,
            now: Instant::ZERO,
            streams,
            flying: BinaryHeap::new(),
            submitted: 0,
            outstanding,
            gone,
            keeps: [OUTSTANDING; GROUPS],
        }
    }

    /// Until then: those that ask keep their requests outstanding.
    fn run(&mut self, asks: &[bool], until: Instant) {
        while self.now < until {
            for leaf in LEAVES.into_iter().filter(|leaf| asks[*leaf]) {
                while self.outstanding[leaf] < self.keeps[leaf] {
                    self.submitted += 1;
                    let start = Sector(self.submitted * 4096 % (1 << 29));
                    let extent = Extent::new(start, 8);
                    let (stream, token) = (self.streams[&leaf], Token(leaf as u64));
                    let bio = Bio { op: Op::Read, flags: Flags::NONE, extent, stream, token };
                    self.queue.submit(self.now, bio).expect("there is room");
                    self.outstanding[leaf] += 1;
                }
            }
            self.queue.handle_timeout(self.now);
            while let Some(dispatch) = self.queue.poll_dispatch(self.now, C0) {
                let leaf = self.streams.iter().find(|(_, stream)| **stream == dispatch.stream).unwrap().0;
                self.gone[*leaf].push(self.now);
                self.flying.push(std::cmp::Reverse((self.now + TAKES, dispatch.tag)));
            }
            let ends = self.flying.peek().map(|next| next.0.0);
            let next = [ends, self.queue.poll_timeout(), Some(until)].into_iter().flatten().min().expect("an end");
            self.now = next.max(self.now + us(1));
            while let Some(std::cmp::Reverse((_, tag))) =
                self.flying.peek().copied().filter(|next| next.0.0 <= self.now)
            {
                self.flying.pop();
                self.queue.handle_completion(self.now, tag, Outcome::Done);
            }
            while let Some(news) = self.queue.poll_finished(C0) {
                let Finished::Done(Token(leaf), Outcome::Done) = news else { panic!("{news:?}") };
                self.outstanding[leaf as usize] -= 1;
            }
        }
    }

    /// How many requests of a group, and of those below it, went to the disk.
    fn set_floor(&mut self, group: u16, floor: Rates) {
        self.queue.bind(self.now, GroupId(group), &Bound { floor, ..Bound::default() });
    }

    fn count(&self, group: usize, from: Instant, until: Instant) -> f64 {
        let own = &self.gone[group];
        let own = own.partition_point(|at| *at < until) - own.partition_point(|at| *at < from);
        own as f64 + children(group).map(|child| self.count(child, from, until)).sum::<f64>()
    }
}

fn policies() -> impl Strategy<Value = Policy> {
    let weight = prop::sample::select(vec![50_u16, 100, 200, 400]);
    let rate = |low: u64, high: u64| prop_oneof![2 => Just(0_u64), 1 => low..high];
    (weight, rate(100, 2500), rate(300, 4000)).prop_map(|(weight, floor, ceiling)| Policy {
        weight,
        floor: floor as f64,
        ceiling: ceiling as f64,
    })
}

proptest! {
    // The seed is given, so that a run says the same of every commit. Of 20,000 trees, seeds 1 to 40 in a release build, one did not hold before
    // admission.7, and all do since. FAIRLIFT_SEED=2 tries others.
    #![proptest_config(ProptestConfig { max_shrink_iters: 0, rng_seed: proptest::test_runner::RngSeed::Fixed(fairlift_lab::repeat::named().unwrap_or(1)), failure_persistence: None, ..ProptestConfig::with_cases(if cfg!(debug_assertions) { 30 } else { 500 }) })]

    /// floor.1 to floor.5, ceiling.1 to ceiling.3: in no window of any length is a group below its floor while the disk could,
    /// or above its ceiling; the rest is shared by weight; and the disk is never idle while something may go.
    #[test]
    fn every_group_has_its_floor_its_ceiling_and_its_weights_part_of_the_rest(
        mut policies in prop::collection::vec(policies(), GROUPS),
        asks in prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.8), GROUPS), 2),
        ceilings: bool,
    ) {
        // What can be kept: of the root nothing is said, no floor is above a ceiling at it or above it, and all have room.
        (policies[0].floor, policies[0].ceiling) = (0.0, 0.0);
        if !ceilings {
            policies.iter_mut().for_each(|policies| policies.ceiling = 0.0);
        }
        for policies in policies.iter_mut().filter(|policies| policies.ceiling > 0.0) {
            policies.floor = policies.floor.min(policies.ceiling).floor();
        }
        // Those below a ceiling fit into it.
        let ceilings_of: Vec<_> = policies.iter().map(|policies| policies.ceiling).enumerate().filter(|(_, rate)| *rate > 0.0).collect();
        for (group, ceiling) in ceilings_of {
            let below = children(group).map(|child| policies[child].floor).sum::<f64>();
            let part = (0.9 * ceiling / below).min(1.0);
            children(group).for_each(|child| policies[child].floor = (policies[child].floor * part).floor());
        }
        let floors: f64 = policies.iter().map(|policies| policies.floor).sum();
        let part = (0.8 * CAPACITY / floors).min(1.0);
        policies.iter_mut().for_each(|policies| policies.floor = (policies.floor * part).floor());

        let mut sim = Sim::new(&policies);
        let mut from = Instant::ZERO;
        for asks in &asks {
            // First places in the device go from some to others, and what ceilings hold of those that ask no more ends.
            let start = from + ms(2000);
            let until = start + ms(500);
            sim.run(asks, until);
            let whole = fluid(&policies, asks, CAPACITY);
            for length in [ms(20), ms(100), ms(500)] {
                let seconds = length.as_nanos() as f64 / 1e9;
                let mut start = start;
                while start + length <= until {
                    for group in 1..GROUPS {
                        let had = sim.count(group, start, start + length);
                        let Policy { floor, ceiling, .. } = policies[group];
                        // It may have been ahead by 50 ms (floor.2), and is behind by a round of the disk and a request of each other.
                        let due = floor.min(whole[group]) * (seconds - 0.05) - f64::from(DEPTH) - GROUPS as f64;
                        prop_assert!(had >= due, "{group}: {had} in {length} from {start:?}, and its floor is {floor}: {policies:?} {asks:?}");
                        // What the ceiling let through may have waited for the disk.
                        let most = ceiling * (seconds + 0.005) + 1.0 + f64::from(OUTSTANDING) * children(group).count().max(1) as f64;
                        prop_assert!(ceiling == 0.0 || had <= most, "{group}: {had} in {length}, and its ceiling is {ceiling}");
                    }
                    start += ms(10);
                }
            }
            let seconds = until.since(start).as_nanos() as f64 / 1e9;
            // A tenant that is held by its ceiling seems to lack, and 15 % may be given up for it (`isolation_cost`), as far as what depths do is
            // known by then.
            let all = sim.count(0, start, until);
            prop_assert!(all >= 0.81 * whole[0] * seconds, "{all} of {}: {policies:?} {asks:?}", whole[0] * seconds);
            // Places in the device are whole ones, of each tenant. Where a group below its floor has siblings at their ceilings, more
            // of what it gets is counted as by its floor than the model does: there parts by weight may be half of the model's, and
            // nothing is said of them.
            let place = seconds * CAPACITY / f64::from(DEPTH);
            let rest = fluid(&policies, asks, all / seconds);
            for group in children(0).filter(|_| !ceilings) {
                let (had, due) = (sim.count(group, start, until), rest[group] * seconds);
                prop_assert!((had - due).abs() <= 0.25 * due + place * children(group).count().max(1) as f64, "{group}: {had}, not {due}: {policies:?} {asks:?}");
            }
            from = until;
        }
    }
}

/// cost.5: when the scheduler learns that all costs are another, what tenants had is in the new ones at once. In the old ones the disk did a
/// quarter of its work for half a second.
#[test]
fn a_disk_whose_costs_are_learned_is_kept_busy_meanwhile() {
    let mut sim = Sim::new(&[PLAIN; GROUPS]);
    for n in 1..=8 {
        let (from, until) = (sim.now, Instant::ZERO + ms(n * 250));
        sim.run(&[true; GROUPS], until);
        let done = 4.0 * sim.count(0, from, until);
        assert!(done >= 0.9 * CAPACITY, "{done} a second in quarter {n}");
    }
}

const PLAIN: Policy = Policy { weight: 100, floor: 0.0, ceiling: 0.0 };

/// admission.1, admission.2: at times a tenant at its ceiling waited for places, and was due more than its ceiling lets through; then places were
/// kept for it that it could not fill. With some ceilings in a tree the disk did three quarters of what it can, for as long as one looked.
#[test]
fn tenants_at_their_ceilings_cost_the_others_nothing() {
    let mut policies = [PLAIN; GROUPS];
    for (group, weight, ceiling) in [(1, 400, 629.0), (3, 400, 1391.0), (6, 400, 2587.0), (7, 400, 0.0)] {
        (policies[group].weight, policies[group].ceiling) = (weight, ceiling);
    }
    policies[3].floor = 705.0;
    let mut sim = Sim::new(&policies);
    let asks = core::array::from_fn::<_, GROUPS, _>(|group| [1, 3, 6, 7].contains(&group));
    let (from, until) = (Instant::ZERO + ms(1000), Instant::ZERO + ms(4000));
    sim.run(&asks, until);
    let done = sim.count(0, from, until) / 3.0;
    assert!(done >= 0.93 * CAPACITY, "{done} a second");
    let capped = sim.count(3, from, until) / 3.0;
    assert!((capped - 1391.0).abs() < 20.0, "{capped} a second of 1391");
}

/// admission.2: a ceiling of the group above lets lumps through, which wait in the scheduler. They were taken for requests in the device: the
/// tenant had 73 of 128 places where it was due two, and for a quarter of a second the disk did little more than half of what it can.
#[test]
fn requests_that_wait_below_a_ceiling_take_no_places() {
    let mut policies = [PLAIN; GROUPS];
    for (group, weight, ceiling) in [(1, 400, 0.0), (2, 200, 0.0), (3, 200, 3773.0), (4, 50, 1448.0), (5, 200, 0.0)] {
        (policies[group].weight, policies[group].ceiling) = (weight, ceiling);
    }
    (policies[6].weight, policies[6].ceiling, policies[7].weight) = (50, 1897.0, 400);
    let mut sim = Sim::new(&policies);
    let due = fluid(&policies, &[true; GROUPS], CAPACITY);
    for n in 1..=30 {
        let (from, until) = (sim.now, Instant::ZERO + ms(n * 250));
        sim.run(&[true; GROUPS], until);
        let (all, below) = (4.0 * sim.count(0, from, until), 4.0 * sim.count(4, from, until));
        assert!(all >= 0.9 * CAPACITY, "{all} a second in quarter {n}");
        assert!(n < 4 || below <= 2.0 * due[4], "{below} a second in quarter {n}, and it is due {:.0}", due[4]);
    }
}

/// admission.2: what a floor brought a group was taken for what its places did, so that hardly one was left. When its siblings went, and it was due
/// ten times as much, it had a quarter of that for a second.
#[test]
fn a_group_that_its_floor_served_has_its_places_when_its_siblings_go() {
    let mut policies = [PLAIN; GROUPS];
    (policies[2].weight, policies[3].weight, policies[4].weight) = (50, 50, 400);
    (policies[5].weight, policies[6].weight, policies[7].weight) = (50, 50, 400);
    (policies[6].floor, policies[7].floor) = (936.0, 265.0);
    let mut sim = Sim::new(&policies);
    let mut asks = [true; GROUPS];
    sim.run(&asks, Instant::ZERO + ms(2500));
    (asks[5], asks[7]) = (false, false);
    let (from, until) = (Instant::ZERO + ms(3000), Instant::ZERO + ms(3500));
    sim.run(&asks, until);
    let (had, due) = (2.0 * sim.count(6, from, until), fluid(&policies, &asks, CAPACITY)[6]);
    assert!(had >= 0.85 * due, "{had} a second of {due}");
}

/// depth.9: the places of those that had gone were empty for half a second, and what this cost was blamed on far reads, which the light group did
/// most: for seconds after it had a third of its due.
#[test]
fn costs_are_not_learned_while_places_of_those_that_have_gone_are_empty() {
    let mut policies = [PLAIN; GROUPS];
    for (group, weight) in [(1, 50), (2, 200), (3, 200), (4, 400), (5, 50), (6, 400), (7, 200)] {
        policies[group].weight = weight;
    }
    let mut sim = Sim::new(&policies);
    let mut asks = [true; GROUPS];
    sim.run(&asks, Instant::ZERO + ms(2500));
    (asks[6], asks[7]) = (false, false);
    let (from, until) = (Instant::ZERO + ms(3500), Instant::ZERO + ms(5500));
    sim.run(&asks, until);
    let due = fluid(&policies, &asks, CAPACITY);
    for group in [1, 2, 3, 5] {
        let had = sim.count(group, from, until) / 2.0;
        assert!((had - due[group]).abs() <= 0.1 * due[group], "{group}: {had} a second of {}", due[group]);
    }
}

/// admission.7: the places of those that had gone were kept for 512 ends, of which the group that was left made 64 a second: for seconds it did less
/// than a hundredth of what the disk can. At which end of a period they go does not matter.
#[test]
fn a_light_group_that_is_left_alone_has_the_disk() {
    let mut policies = [PLAIN; GROUPS];
    for (group, weight) in [(1, 400), (2, 400), (3, 400), (5, 50), (6, 400), (7, 400)] {
        policies[group].weight = weight;
    }
    let mut alone = [false; GROUPS];
    alone[5] = true;
    for n in 0..8 {
        let mut sim = Sim::new(&policies);
        sim.run(&[true; GROUPS], Instant::ZERO + ms(2500 + 8 * n));
        let from = sim.now + ms(500);
        sim.run(&alone, from + ms(250));
        let had = 4.0 * sim.count(5, from, from + ms(250));
        assert!(had >= 0.9 * CAPACITY, "{had} a second, and it is alone ({n})");
    }
}

/// floor.1: a group that reads alone is not below its floor of writes.
#[test]
fn a_floor_of_writes_lets_no_reads_go_first() {
    let mut policies = [PLAIN; GROUPS];
    (policies[1].weight, policies[2].weight) = (100, 300);
    let mut sim = Sim::new(&policies);
    sim.set_floor(1, Rates::NONE.with(Rate::Wiops, 500));
    sim.queue.set_tunable("device_depth", "1").unwrap(); // so that the order decides alone
    let mut asks = [false; GROUPS];
    (asks[1], asks[2]) = (true, true);
    let (from, until) = (Instant::ZERO + ms(1000), Instant::ZERO + ms(2000));
    sim.run(&asks, until);
    let [with, without] = [1, 2].map(|leaf| sim.count(leaf, from, until));
    let quarter = (with + without) / 4.0;
    assert!((with - quarter).abs() <= 1.0, "{with} reads beside {without}, by weight a quarter");
}

/// floor.5: a place in the device brings 250 requests a second, and the weight of 1 brings it one place.
#[test]
fn a_floor_is_met_in_more_places_than_the_weight_brings() {
    let mut policies = [Policy { weight: 1000, floor: 0.0, ceiling: 0.0 }; GROUPS];
    policies[1] = Policy { weight: 1, floor: 2000.0, ceiling: 0.0 };
    let mut sim = Sim::new(&policies);
    let asks = std::array::from_fn::<_, GROUPS, _>(|leaf| (1..=3).contains(&leaf));
    let (from, until) = (Instant::ZERO + ms(1000), Instant::ZERO + ms(2000));
    sim.run(&asks, until);
    let had = sim.count(1, from, until);
    assert!((1960.0..=2080.0).contains(&had), "{had}, and the floor is 2000");
}

/// floor.5: four tenants that ask now and then have four of 32 places kept for them, and a floor is more than the other 28 bring.
#[test]
fn a_floor_is_met_in_places_that_are_kept_for_others() {
    let mut policies = [PLAIN; GROUPS];
    policies[1].floor = 1850.0;
    let mut sim = Sim::new(&policies);
    sim.queue.set_tunable("device_depth", "32").unwrap(); // 2000 a second
    let (all, deep) = ([true; GROUPS], std::array::from_fn::<_, GROUPS, _>(|leaf| leaf == 1 || leaf == 2));
    [3, 5, 6, 7].into_iter().for_each(|leaf| sim.keeps[leaf] = 1);
    for n in 0..60 {
        let start = Instant::ZERO + ms(n * 50);
        sim.run(&all, start + us(1));
        sim.run(&deep, start + ms(50));
    }
    let had = sim.count(1, Instant::ZERO + ms(1500), Instant::ZERO + ms(3000)) / 1.5;
    assert!(had >= 0.98 * 1850.0, "{had}, and the floor is 1850");
}

/// queue.16: nothing is said of floors that can be kept, nor of a disk that was never busy for a second; and both figures of those
/// that cannot, of groups that have streams here.
#[test]
fn floors_that_are_more_than_the_disk_does_are_told_with_both_figures() {
    let mut policies = [PLAIN; GROUPS];
    (policies[1].floor, policies[5].floor, policies[6].floor, policies[4].floor) = (2000.0, 1000.0, 1500.0, 2000.0);
    let (now, mut sim) = (Instant::ZERO, Sim::new(&policies));
    let asks = [true; GROUPS];
    sim.run(&asks, now + ms(2500));
    assert_eq!(sim.queue.kept(sim.now).short, None, "4500 of 8000 can be kept");
    let floor = Rates::NONE.with(Rate::Riops, 90_000).with(Rate::Wiops, 5000);
    sim.set_floor(2, floor);
    assert_eq!(sim.queue.kept(sim.now).short, None, "it was not tried yet");
    sim.run(&asks, now + ms(7000));
    let short = sim.queue.kept(sim.now).short.expect("99,500 cannot be kept");
    assert_eq!(
        (short.floors, short.of_bytes),
        (99_500, false),
        "4 is one floor of 2500: its children need more than it says"
    );
    assert!((7000..=8100).contains(&short.done), "{short}");
    sim.set_floor(2, Rates::NONE);
    sim.run(&asks, now + ms(11_000));
    assert_eq!(sim.queue.kept(sim.now).short, None);
}

/// queue.16: a disk that stood still for a while does less than the floors in that second, and they are kept all the same; and what
/// was said of a slow disk is no longer said once it is fast.
#[test]
fn a_disk_that_stood_still_for_a_while_is_not_short() {
    let mut policies = [PLAIN; GROUPS];
    policies[1].floor = 7600.0;
    let (mut sim, asks) = (Sim::new(&policies), [true; GROUPS]);
    let run = |sim: &mut Sim, time| sim.run(&asks, sim.now + time);
    for _ in 0..3 {
        run(&mut sim, ms(1000));
        sim.now += ms(400);
        run(&mut sim, ms(1000));
        assert_eq!(sim.queue.kept(sim.now).short, None, "it does 8000 again, and the floor of 7600 is kept");
        run(&mut sim, ms(3000));
        assert_eq!(sim.queue.kept(sim.now).short, None);
    }
    for _ in 0..5 {
        (0..5).for_each(|_| (run(&mut sim, ms(100)), sim.now += ms(100)).0);
    }
    let short = sim.queue.kept(sim.now).short.expect("it does half, for seconds on end");
    assert!(short.done < 7600, "{short}");
    run(&mut sim, ms(4000));
    assert_eq!(sim.queue.kept(sim.now).short, None, "it was seen to do 8000");
}

/// queue.16
#[test]
fn nothing_is_short_once_the_groups_with_the_floors_are_gone() {
    let mut policies = [PLAIN; GROUPS];
    policies[1].floor = 90_000.0;
    let mut sim = Sim::new(&policies);
    sim.run(&[true; GROUPS], Instant::ZERO + ms(7000));
    assert!(sim.queue.kept(sim.now).short.is_some());
    let root = Stream { group: GroupId::ROOT, priority: Priority::default(), context: C0 };
    (0..GROUPS - 2).for_each(|stream| sim.queue.change_stream(sim.now, StreamId(stream as u32), root));
    sim.run(&[false; GROUPS], sim.now + ms(7000));
    (1..GROUPS).rev().for_each(|group| sim.queue.remove_group(sim.now, GroupId(group as u16)).unwrap());
    assert_eq!(sim.queue.kept(sim.now).short, None);
}
