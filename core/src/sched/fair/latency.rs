//! Latency: how many requests of others may be in the device while a tenant with a target asks.
//!
//! A tenant reads one block at a time beside a neighbour that keeps 64 reads outstanding. Its share is its rate
//! alone, and no order of waiting requests gives it that: the 64 are in the device, and its read is served beside them.
//! With 30 of them there it takes half as long. How many are too many depends on the disk, on the requests and on the
//! hour, so it is found by trying: a late answer means fewer, an answer in time a little more. Example: a target of 400
//! µs, on a disk that answers 64 requests in 640 µs. The neighbour's places shrink to some 35 within a dozen late
//! answers, and stay there; without the tenant they are 64 again.
//!
//! latency.1  Each late answer takes [`LESS`] of the places that others have together, each one in time adds [`MORE`].
//!            The two are equal where 1 answer in 250 is late, so that seconds with more than 1 in 100 are rare: steps
//!            that are equal at 1 in 100 missed the target in half of the seconds. No window and no percentile is kept.
//! latency.2  After [`CALM`] answers in time, one after the other, [`RISE`] times as much is added: without that others
//!            would have their places back after minutes.
//! latency.3  A step is divided by the answers of a round, which begins with an answer and ends with the first that was
//!            asked for after that. Of a tenant that keeps 32 outstanding 32 are late at once when the disk pauses, and
//!            say what one says.
//! latency.4  Others have at least one place. If a target is missed for [`PATIENCE`] while they have no more than
//!            [`LOW`], it is given up: they have their places again, and it is tried again after [`REST`], then after
//!            twice that, up to [`REST_MAX`]. It counts as given up until a trial does not miss it.
//!            Where gateways share a pool [`POOL_PATIENCE`] is as long as other gateways take to make their room.
//! latency.5  A tenant that was not answered for [`PATIENCE`] is away: no room is made for it. It has it as before when it
//!            is back.
//! latency.6  Twice the depth is not tried ([`Depth`](super::depth)) unless others could have [`TWICE`] the places that
//!            they have. Places beyond those that there are count on, up to [`SAVED`] times as many, so that a late answer
//!            in a trial is one of the 250.
//! latency.7  Others are those for which no room is made. Of tenants that all have targets which they miss, none makes
//!            room.
//!
//! A late answer as a sign of too deep a queue, and a gradual rise: PARDA (Gulati, Ahmad & Waldspurger, FAST 2009)
//! between hosts, Kyber for reads and writes in Linux, Gimbal (Min et al., SIGCOMM 2021) for each tenant; io.latency in
//! Linux, which shrinks the depth of the groups whose targets are looser; `K2` (Miemietz et al., 2019), which bounds
//! what is in the device for the sake of one class. They compare means or percentiles of windows; one answer at a time
//! needs neither, and acts at once.

use alloc::collections::BTreeMap;

use crate::objective::{ONE_IN, Room};
use crate::time::secs;
use crate::{Duration, GroupId, Instant};

/// latency.1. Chosen in a model of disks that answer in lumps and one by one: with 0.05 and 0.0005 47 to 88 % of
/// seconds were good, with 0.05 and 0.0002 all of those in which it could be kept, at 2 to 20 % fewer requests of
/// others.
const LESS: f64 = 0.05;
const MORE: f64 = 0.0002;
/// latency.2. At 1 late in 250 there are as many in time one after the other in 1 of 55 cases.
const CALM: f64 = 1000.0;
const RISE: f64 = 10.0;
/// latency.4; patience is that of latency.5 too.
const LOW: f64 = 1.5;
const PATIENCE: Duration = secs(1);
/// As long as [`crate::gateways`] takes to its least and to give up there.
const POOL_PATIENCE: Duration = secs(30);
const REST: Duration = secs(10);
const REST_MAX: Duration = secs(320);
/// This many late answers are no accident. Chosen: a disk that stops once makes one of a tenant that asks for one at a
/// time.
const LATE: u64 = 5;
/// latency.6
const TWICE: f64 = 2.0;
const SAVED: f64 = 8.0;
/// How long it may take until room is no longer made for a tenant that is away. Chosen: little beside a second.
pub(super) const LOOK: Duration = crate::time::ms(50);

/// The targets of the tenants of a disk.
#[derive(Clone, Default, Debug)]
pub(super) struct Latency {
    goals: BTreeMap<GroupId, Goal>,
    shares_pool: bool,
}

/// A target.
#[derive(Clone, Debug)]
struct Goal {
    target: Duration,
    /// The places that others may have, and that they had the last time.
    others: f64,
    most: f64,
    /// Answers in time, one after the other.
    in_time: u64,
    /// The present round: when it began, and its answers; and how many the last one had (latency.3).
    round: Instant,
    answers: u64,
    a_round: f64,
    last: Instant,
    /// Since when others have had few places, and the answers since (latency.4).
    low: Option<Instant>,
    ended: u64,
    late: u64,
    given_up: bool,
    /// It is tried again then; and how long it rests the next time.
    rests_until: Instant,
    rest: Duration,
}

impl Latency {
    /// Gives a group a target, or none.
    pub(super) fn set(&mut self, group: GroupId, target: Option<Duration>) {
        match target {
            None => self.goals.remove(&group),
            Some(target) => self.goals.insert(group, Goal::new(target)),
        };
    }

    /// Other gateways make room as well.
    pub(super) fn share_pool(&mut self) {
        self.shares_pool = true;
    }

    /// A tenant was answered, while others had `most` places. Answers whether they may have more or fewer now.
    pub(super) fn answered(&mut self, now: Instant, group: GroupId, latency: Duration, most: u32) -> bool {
        let Some(goal) = self.goals.get_mut(&group) else { return false };
        let before = goal.asks(now);
        goal.answered(now, latency, f64::from(most).max(1.0), if self.shares_pool { POOL_PATIENCE } else { PATIENCE });
        before != goal.asks(now)
    }

    /// How many requests others may have in the device together; `None`: no target bounds it.
    pub(super) fn bound(&self, now: Instant) -> Option<u32> {
        self.goals.values().filter_map(|goal| goal.asks(now).0).min()
    }

    /// Whether twice the depth is not to be tried (latency.6).
    pub(super) fn is_strained(&self, now: Instant) -> bool {
        self.goals.values().any(|goal| goal.asks(now).1)
    }

    /// Whether room is made for a group (latency.7).
    pub(super) fn protects(&self, now: Instant, group: GroupId) -> bool {
        self.goals.get(&group).is_some_and(|goal| goal.asks(now).0.is_some())
    }

    /// The room for a group.
    pub(super) fn room(&self, now: Instant, group: GroupId) -> Room {
        match self.goals.get(&group) {
            Some(goal) if goal.given_up => Room::GivenUp,
            Some(goal) if goal.asks(now).0.is_some() => Room::Made,
            _ => Room::Enough,
        }
    }
}

impl Goal {
    const fn new(target: Duration) -> Self {
        Self {
            target,
            others: f64::INFINITY,
            most: 1.0,
            in_time: 0,
            round: Instant::ZERO,
            answers: 0,
            a_round: 1.0,
            last: Instant::ZERO,
            low: None,
            ended: 0,
            late: 0,
            given_up: false,
            rests_until: Instant::ZERO,
            rest: REST,
        }
    }

    /// How many requests of others it leaves in the device, if that is fewer than there are; and whether no more may be
    /// tried.
    fn asks(&self, now: Instant) -> (Option<u32>, bool) {
        let acts = now >= self.rests_until && now.since(self.last) < PATIENCE;
        ((acts && self.others < self.most).then_some(self.others as u32), acts && self.others < TWICE * self.most)
    }

    fn answered(&mut self, now: Instant, latency: Duration, most: f64, patience: Duration) {
        if now.since(self.last) >= PATIENCE {
            self.low = None; // the time while it was away does not count
        }
        self.last = now;
        self.answers += 1;
        if now.since(self.round) >= latency {
            (self.a_round, self.answers, self.round) = (self.answers as f64, 0, now);
        }
        if now < self.rests_until {
            return;
        }
        let is_late = latency > self.target;
        let step = if is_late {
            self.in_time = 0;
            -LESS
        } else {
            self.in_time += 1;
            if self.in_time as f64 > CALM * self.a_round { MORE * RISE } else { MORE }
        };
        self.most = most;
        self.others = (self.others * (1.0 + step / self.a_round)).clamp(1.0, SAVED * most);
        self.look(now, is_late, patience);
    }

    /// latency.4
    fn look(&mut self, now: Instant, is_late: bool, patience: Duration) {
        if self.others > LOW {
            return self.is_kept();
        }
        let since = *self.low.get_or_insert_with(|| {
            (self.ended, self.late) = (0, 0);
            now
        });
        self.ended += 1;
        self.late += u64::from(is_late);
        if now.since(since) < patience {
            return;
        }
        if self.late >= LATE && self.late * ONE_IN > self.ended {
            // The places stay as few as they are: a trial is short.
            (self.low, self.given_up) = (None, true);
            self.rests_until = now + self.rest;
            self.rest = (self.rest + self.rest).min(REST_MAX);
        } else if self.ended >= LATE * ONE_IN {
            self.is_kept();
        }
    }

    fn is_kept(&mut self) {
        (self.low, self.given_up, self.rest) = (None, false, REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{ms, us};

    const ONE: GroupId = GroupId(1);

    /// A disk on paper, beside others that always want more than they may have, and a tenant that keeps some
    /// outstanding.
    struct Dull {
        latency: Latency,
        now: Instant,
        most: u32,
        /// How long an answer takes, by the requests of others in the device.
        takes: fn(u32, &mut Noise) -> Duration,
        noise: Noise,
        /// Of the answers of each tenant: how many there were, how many were late, and the others' places, added up.
        ended: u64,
        late: u64,
        places: u64,
    }

    /// A random part, 0 to 999.
    struct Noise(u64);

    impl Noise {
        fn draw(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % 1000
        }
    }

    /// All that is in the device is answered at once; a request that comes meanwhile waits for the next time.
    fn lumps(others: u32, noise: &mut Noise) -> Duration {
        let lump = 82_000 + 8_800 * u64::from(others + 1);
        Duration::from_nanos(lump + lump * noise.draw() / 1000)
    }

    /// One after the other, 10 µs each, and now and then one that takes long: M/D/1 with a load that rises with the
    /// places.
    fn queueing(others: u32, noise: &mut Noise) -> Duration {
        let long = if noise.draw() < 2 { 1_000_000 } else { 0 };
        Duration::from_nanos(100_000 + long + 10_000 * u64::from(others) * (500 + noise.draw()) / 1000)
    }

    impl Dull {
        fn new(target: Duration, takes: fn(u32, &mut Noise) -> Duration) -> Self {
            let mut latency = Latency::default();
            latency.set(ONE, Some(target));
            let (now, noise) = (Instant::ZERO, Noise(1));
            Self { latency, now, most: 64, takes, noise, ended: 0, late: 0, places: 0 }
        }

        fn others(&self) -> u32 {
            self.latency.bound(self.now).unwrap_or(self.most)
        }

        /// The tenant keeps `outstanding` for so long. Answers which part of the answers was late, and the mean of
        /// others' places.
        fn run(&mut self, time: Duration, outstanding: u64) -> (f64, f64) {
            (self.ended, self.late, self.places) = (0, 0, 0);
            let until = self.now + time;
            while self.now < until {
                let others = self.others();
                let took = (self.takes)(others, &mut self.noise);
                self.now += took;
                for _ in 0..outstanding {
                    self.ended += 1;
                    self.late += u64::from(took > self.latency.goals[&ONE].target);
                    self.places += u64::from(others);
                    self.latency.answered(self.now, ONE, took, self.most);
                }
            }
            (self.late as f64 / self.ended as f64, self.places as f64 / self.ended as f64)
        }

        fn room(&self) -> Room {
            self.latency.room(self.now, ONE)
        }
    }

    /// latency.1, latency.3: fewer than 1 in 100 are late, at as many places of others as that allows.
    #[test]
    fn others_have_as_many_places_as_the_target_allows() {
        for outstanding in [1, 32] {
            for (target, takes, least, most) in [
                (us(400), lumps as fn(u32, &mut Noise) -> Duration, 10.0, 14.0),
                (us(700), lumps, 26.0, 32.0),
                (us(400), queueing, 18.0, 26.0),
            ] {
                let mut disk = Dull::new(target, takes);
                disk.run(secs(2), outstanding);
                let (late, places) = disk.run(secs(20), outstanding);
                assert!(
                    late < 0.008 && (least..=most).contains(&places),
                    "{outstanding} at {target}: {late}, {places}"
                );
                assert_eq!(disk.room(), Room::Made);
            }
        }
    }

    /// latency.1, latency.2: a target that the disk keeps anyway costs nothing, and one that it keeps again soon does
    /// not.
    #[test]
    fn places_come_back_when_the_target_is_met_with_room_to_spare() {
        let mut disk = Dull::new(ms(2), lumps);
        assert_eq!((disk.run(secs(5), 1), disk.room()), ((0.0, 64.0), Room::Enough));
        disk.latency.set(ONE, Some(us(400)));
        disk.run(secs(5), 1);
        assert!(disk.others() < 20);
        disk.latency.goals.get_mut(&ONE).unwrap().target = ms(2); // as a disk that has become faster
        disk.run(secs(5), 1);
        assert_eq!((disk.others(), disk.room()), (64, Room::Enough));
    }

    /// latency.4
    #[test]
    fn what_cannot_be_kept_is_given_up_and_tried_again_ever_less_often() {
        let mut disk = Dull::new(us(50), queueing);
        disk.run(secs(3), 1);
        assert_eq!((disk.others(), disk.room()), (64, Room::GivenUp));
        let (_, places) = disk.run(secs(1500), 1);
        assert!(places > 61.0, "others had {places} of 64 places");
        // The disk becomes as fast as that asks.
        disk.takes = |others, _| us(u64::from(others));
        disk.run(REST_MAX, 1);
        assert_eq!(disk.room(), Room::Made);
        assert!((40..=51).contains(&disk.others()), "{}", disk.others());
    }

    /// latency.4: of one that is hardly asked, and of one that is late every other time.
    #[test]
    fn few_answers_are_enough_to_give_up() {
        let mut disk = Dull::new(ms(1), |_, _| ms(250));
        disk.run(secs(60), 1);
        assert_eq!(disk.room(), Room::GivenUp);
        let mut disk = Dull::new(ms(100), |_, noise| ms(50 + noise.draw() / 10));
        disk.run(secs(60), 1);
        assert_eq!(disk.room(), Room::GivenUp);
    }

    /// latency.4: it was missed while the disk stood still, and not because of others.
    #[test]
    fn one_pause_of_the_disk_is_no_reason_to_give_up() {
        let mut disk = Dull::new(us(400), lumps);
        disk.run(secs(3), 1);
        let before = disk.others();
        (0..3).for_each(|_| _ = disk.latency.answered(disk.now, ONE, ms(900), disk.most));
        assert!(disk.room() == Room::Made && disk.others() >= before * 8 / 10);
    }

    /// latency.5
    #[test]
    fn no_room_is_made_for_a_tenant_that_is_away() {
        let mut disk = Dull::new(us(400), lumps);
        disk.run(secs(3), 1);
        let before = disk.others();
        disk.now += ms(1001);
        assert_eq!((disk.others(), disk.room()), (64, Room::Enough));
        assert!(!disk.latency.protects(disk.now, ONE));
        disk.run(us(1), 1);
        assert!(disk.others().abs_diff(before) <= 4 && disk.latency.protects(disk.now, ONE));
    }

    /// Targets that no disk meets, that every disk meets, and limits that are no number of places.
    #[test]
    fn targets_may_be_anything() {
        for target in [Duration::from_nanos(1), secs(3600), Duration::MAX, Duration::ZERO] {
            for most in [0, 1, 64, u32::MAX] {
                let mut disk = Dull::new(target, lumps);
                disk.most = most.min(1 << 20); // the model's own sums
                disk.run(ms(1500), 1);
                disk.latency.answered(Instant::MAX, ONE, Duration::MAX, most);
                disk.latency.answered(Instant::ZERO, ONE, Duration::ZERO, most);
                disk.latency.answered(Instant::ZERO, GroupId(7), Duration::ZERO, most);
                assert!(disk.latency.bound(Instant::ZERO).is_none_or(|bound| (1..=most.max(1)).contains(&bound)));
                disk.latency.set(ONE, None);
                assert!(disk.latency.bound(Instant::ZERO).is_none());
            }
        }
    }

    /// Many targets at once: the tightest that can be kept counts.
    #[test]
    fn the_tightest_target_bounds_the_others() {
        let mut disk = Dull::new(us(700), lumps);
        disk.latency.set(GroupId(2), Some(us(400)));
        for _ in 0..100_000 {
            let took = (disk.takes)(disk.others(), &mut disk.noise);
            disk.now += took;
            [ONE, GroupId(2)].into_iter().for_each(|group| _ = disk.latency.answered(disk.now, group, took, disk.most));
        }
        assert!((8..=14).contains(&disk.others()), "{}", disk.others());
        assert_eq!((disk.room(), disk.latency.room(disk.now, GroupId(2))), (Room::Enough, Room::Made));
    }
}
