//! The scheduler's rules, one request at a time, by hand. Time stands still where nothing else is said, so nothing is learned
//! and no tenant is held: the order is the fair queue's alone.

use fairlift_core::sched::fair::{Fair, Settings};
use fairlift_core::sched::traits::*;
use fairlift_core::sched::{Next, RequestEnd, RequestId, Served, Setup, Waiting};
use fairlift_core::time::{ms, us};
use fairlift_core::{
    ContextId, Duration, Extent, Flags, Group, GroupId, Instant, Op, Priority, PriorityClass, Sector, Stream, StreamId,
    Weight,
};

/// 4 µs a request and 500 ns a sector, whatever it does.
const MODEL: &str = "rbps=1024000000 rseqiops=125000 rrandiops=125000 wbps=1024000000 wseqiops=125000 wrandiops=125000";

pub(crate) fn cost(sectors: u64) -> u64 {
    4000 + 500 * sectors
}

pub(crate) struct Hand {
    pub(crate) fair: Fair,
    pub(crate) now: Instant,
    pub(crate) groups: Vec<Group>,
    pub(crate) streams: Vec<Stream>,
    next: u32,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) out: Vec<Waiting>,
}

impl Hand {
    pub(crate) fn new(depth: u16) -> Self {
        let setup = Setup { depth: 4096, ..Setup::new(1 << 16) };
        let mut fair = Fair::new(&setup, Settings::default());
        fair.set("device_depth", &depth.to_string()).unwrap();
        fair.set("cost_model", MODEL).unwrap();
        let groups = vec![Group::root()];
        Self { fair, now: Instant::ZERO, groups, streams: vec![], next: 0, waiting: vec![], out: vec![] }
    }

    pub(crate) fn group(&mut self, parent: GroupId, weight: u16) -> GroupId {
        let id = GroupId(self.groups.len() as u16);
        let group = Group { path: format!("/{}", id.0), parent: Some(parent), weight: Weight::new(weight) };
        self.fair.set_group(self.now, id, &group);
        self.groups.push(group);
        id
    }

    pub(crate) fn stream(&mut self, group: GroupId, class: PriorityClass, level: u8) -> usize {
        let stream = Stream { group, priority: Priority { class, level }, context: ContextId(0) };
        self.fair.add_stream(StreamId(self.streams.len() as u32), &stream);
        self.streams.push(stream);
        self.streams.len() - 1
    }

    /// A stream in a group of its own, of such a weight.
    pub(crate) fn tenant(&mut self, weight: u16) -> usize {
        let group = self.group(GroupId::ROOT, weight);
        self.stream(group, PriorityClass::BestEffort, 4)
    }

    pub(crate) fn asks(&mut self, stream: usize, op: Op, sectors: u64) {
        let Stream { group, priority, .. } = self.streams[stream];
        let (id, start) = (RequestId(self.next % (1 << 16)), u64::from(self.next) << 20);
        self.next += 1;
        let extent = Extent::new(Sector(start), sectors);
        let stream = StreamId(stream as u32);
        let request = Waiting { id, op, flags: Flags::NONE, extent, stream, group, priority };
        self.fair.insert(self.now, &request);
        self.waiting.push(request);
    }

    pub(crate) fn reads(&mut self, stream: usize, count: u32) {
        (0..count).for_each(|_| self.asks(stream, Op::Read, 8));
    }

    /// Whose request goes next to the device.
    pub(crate) fn goes(&mut self) -> Option<usize> {
        let id = match self.fair.dispatch(self.now) {
            Next::Request(id) => id,
            Next::Idle { .. } => panic!("the device is held idle"),
            Next::Empty => return None,
        };
        let at = self.waiting.iter().position(|request| request.id == id).expect("it waits");
        let request = self.waiting.remove(at);
        self.out.push(request);
        Some(request.stream.0 as usize)
    }

    /// The request that has been in the device for longest ends.
    pub(crate) fn ends(&mut self) {
        let request = self.out.remove(0);
        self.fair.completed(self.now, &Served { request, dispatched: self.now, end: RequestEnd::Done });
    }

    /// Whose requests go next, one after the other.
    fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order = vec![];
        for _ in 0..count {
            order.push(self.goes().expect("something waits"));
            self.ends();
        }
        order
    }

    /// The same, each in 8 µs.
    fn paced(&mut self, count: usize) -> Vec<usize> {
        let mut order = vec![];
        for _ in 0..count {
            order.push(self.goes().expect("something waits"));
            self.now += us(8);
            self.ends();
        }
        order
    }

    /// The device turns the last one back.
    fn turns_back(&mut self) {
        let request = self.out.pop().expect("it is in the device");
        self.fair.requeue(self.now, &request);
        self.waiting.push(request);
    }

    fn moves(&mut self, stream: usize, group: GroupId) {
        self.streams[stream].group = group;
        for request in self.waiting.iter_mut().filter(|request| request.stream.0 as usize == stream) {
            request.group = group;
        }
        self.fair.change_stream(self.now, StreamId(stream as u32), &self.streams[stream]);
    }

    /// So many requests of each go and end, in 100 µs each, so that the tenants are known and have rooms.
    fn warm(&mut self, streams: &[usize], each: u32) {
        for round in 0..each {
            for stream in streams {
                self.reads(*stream, 1);
            }
            // All of a round are in the device at once.
            while self.goes().is_some() {}
            self.now += us(100);
            while let Some(request) = (!self.out.is_empty()).then(|| self.out.remove(0)) {
                let dispatched = Instant::from_nanos(self.now.as_nanos() - 100_000);
                self.fair.completed(self.now, &Served { request, dispatched, end: RequestEnd::Done });
                while self.goes().is_some() {}
            }
            assert!(round < each && self.waiting.is_empty());
        }
    }
}

fn count(order: &[usize], who: usize) -> usize {
    order.iter().filter(|one| **one == who).count()
}

/// fair.2: at every moment, not in the long run only.
#[test]
fn requests_go_by_weight_one_at_a_time() {
    let mut hand = Hand::new(1);
    let tenants = [100, 200, 300].map(|weight| hand.tenant(weight));
    let _ = tenants.map(|tenant| hand.reads(tenant, 200));
    let order = hand.order(300);
    for (at, part) in order.chunks(6).enumerate() {
        assert_eq!(tenants.map(|tenant| count(part, tenant)), [1, 2, 3], "turn {at}: {part:?}");
    }
}

/// fair.1, fair.2: a request of 60 KiB costs eight of 4 KiB.
#[test]
fn large_requests_go_as_much_more_seldom_as_they_cost_more() {
    let mut hand = Hand::new(1);
    let [small, large] = [100, 100].map(|weight| hand.tenant(weight));
    assert_eq!(cost(120), 8 * cost(8));
    hand.reads(small, 400);
    (0..50).for_each(|_| hand.asks(large, Op::Write, 120));
    let order = hand.order(360);
    assert_eq!((count(&order, small), count(&order, large)), (320, 40));
}

/// fair.2: there are no turns.
#[test]
fn a_tenant_that_had_less_goes_next_when_it_asks() {
    let mut hand = Hand::new(1);
    let [deep, other, light, heavy] = [100, 100, 100, 300].map(|weight| hand.tenant(weight));
    let _ = [deep, other].map(|tenant| hand.reads(tenant, 200));
    hand.order(51);
    hand.reads(heavy, 1);
    assert_eq!(hand.order(1), [heavy], "it is due before any other");
    hand.order(20);
    hand.reads(light, 1);
    assert!(hand.order(3).contains(&light), "nobody goes twice before it");
}

/// fair.3
#[test]
fn the_oldest_request_of_a_stream_goes_first() {
    let mut hand = Hand::new(4);
    let tenant = hand.tenant(100);
    hand.reads(tenant, 20);
    let requests: Vec<RequestId> = hand.waiting.iter().map(|request| request.id).collect();
    let mut went = vec![];
    while hand.goes().is_some() {
        went.push(hand.out[hand.out.len() - 1].id);
        hand.ends();
    }
    assert_eq!(went, requests);
}

/// fair.2
#[test]
fn classes_are_strict_but_the_idle_class_moves() {
    let mut hand = Hand::new(1);
    let group = hand.group(GroupId::ROOT, 100);
    let [real, best, idle] = PriorityClass::ALL.map(|class| hand.stream(group, class, 4));
    let _ = [idle, best].map(|stream| hand.reads(stream, 100));
    let mut order = vec![];
    for turn in 0..50 {
        if turn == 30 {
            hand.reads(real, 20);
        }
        order.extend(hand.order(1));
        hand.now += ms(10);
    }
    assert_eq!((0..50).filter(|turn| order[*turn] == idle).collect::<Vec<_>>(), [20, 40], "every 200 ms");
    assert_eq!(count(&order[..30], best), 29);
    assert_eq!(count(&order[30..], real), 19, "{order:?}");
}

/// fair.8
#[test]
fn what_the_device_turned_back_goes_first_and_is_not_charged_again() {
    let mut hand = Hand::new(2);
    let [one, other] = [100, 100].map(|weight| hand.tenant(weight));
    let _ = [one, other].map(|tenant| hand.reads(tenant, 400));
    let mut done = vec![];
    for _ in 0..200 {
        let who = hand.goes().unwrap();
        if who == one {
            let id = hand.out[0].id;
            (0..3).for_each(|_| {
                hand.turns_back();
                assert_eq!(hand.goes(), Some(one));
                assert_eq!(hand.out[0].id, id, "before all others");
            });
        }
        hand.ends();
        done.push(who);
    }
    assert_eq!(count(&done, one), 100, "it is charged once");
}

/// A stream that moves takes along what waits, what was turned back, and nothing of what is in the device.
#[test]
fn a_stream_moves_with_all_that_waits_of_it() {
    for root in [false, true] {
        let mut hand = Hand::new(8);
        let [from, to] = [100, 300].map(|weight| hand.group(GroupId::ROOT, weight));
        let to = if root { GroupId::ROOT } else { to };
        let [moving, stays] = [from, from].map(|group| hand.stream(group, PriorityClass::BestEffort, 4));
        let _ = [moving, stays].map(|stream| hand.reads(stream, 6));
        let _ = [(); 4].map(|()| hand.goes().unwrap());
        hand.turns_back();
        let returned = hand.waiting[hand.waiting.len() - 1];
        hand.moves(moving, to);
        assert_eq!(hand.goes(), Some(returned.stream.0 as usize));
        (0..4).for_each(|_| hand.ends());
        hand.moves(moving, from);
        hand.moves(moving, to);
        let order = hand.order(8);
        assert_eq!((count(&order, moving) + count(&order, stays), hand.goes()), (8, None));
    }
}

/// fair.5: where tenants are held, with a stream that moves out of one, into another, and into the root.
#[test]
fn a_stream_of_a_held_tenant_moves_and_all_of_it_goes() {
    for to_root in [false, true] {
        let mut hand = Hand::new(4);
        let [a, b] = [100, 100].map(|weight| hand.group(GroupId::ROOT, weight));
        let [one, other] = [a, b].map(|group| hand.stream(group, PriorityClass::BestEffort, 4));
        hand.warm(&[one, one, one, other, other, other], 100);
        let _ = [one, other].map(|stream| hand.reads(stream, 40));
        let before = std::iter::from_fn(|| hand.goes()).collect::<Vec<_>>();
        assert_eq!((before.len(), count(&before, one)), (4, 2), "each has its places, and is held");
        hand.moves(one, if to_root { GroupId::ROOT } else { b });
        hand.reads(one, 3);
        for _ in 0..79 + 4 {
            hand.now += us(50);
            hand.ends();
            while hand.goes().is_some() {}
        }
        assert_eq!((hand.waiting.len(), hand.out.len()), (0, 0));
        hand.moves(one, a);
        hand.reads(one, 2);
        assert_eq!(hand.order(2), [one; 2]);
    }
}

/// fair.5: a group below a group that is held, or else what comes below would be held too.
#[test]
fn a_group_that_is_added_below_a_held_one_is_not_held_with_it() {
    let mut hand = Hand::new(4);
    let [a, b] = [100, 100].map(|weight| hand.group(GroupId::ROOT, weight));
    let [one, other] = [a, b].map(|group| hand.stream(group, PriorityClass::BestEffort, 4));
    hand.warm(&[one, one, one, other, other, other], 100);
    let _ = [one, other].map(|stream| hand.reads(stream, 40));
    while hand.goes().is_some() {}
    let below = hand.group(a, 100);
    let inner = hand.stream(below, PriorityClass::BestEffort, 4);
    hand.reads(inner, 4);
    for _ in 0..84 {
        hand.now += us(50);
        hand.ends();
        while hand.goes().is_some() {}
    }
    assert_eq!((hand.waiting.len(), hand.out.len()), (0, 0));
}

/// fair.5: a deep tenant leaves the place of one that asks for one request at a time, which goes at once, whatever waits.
#[test]
fn a_tenant_that_asks_for_little_finds_its_place_free() {
    let mut hand = Hand::new(16);
    let [lone, deep] = [100, 100].map(|weight| hand.tenant(weight));
    let mut round = vec![deep; 24];
    round.push(lone);
    hand.warm(&round, 60);
    hand.reads(deep, 100);
    while hand.goes().is_some() {}
    assert!(hand.out.len() <= 15, "{} in 16 places", hand.out.len());
    for _ in 0..20 {
        hand.now += us(30);
        hand.reads(lone, 1);
        assert_eq!(hand.goes(), Some(lone));
        assert_eq!(hand.goes(), None);
        hand.now += us(70);
        let last = hand.out.pop().expect("the lone request is in the device");
        hand.out.insert(0, last);
        hand.ends();
        assert_eq!(hand.goes(), None, "the place is kept for the next");
        hand.ends();
        assert_eq!(hand.goes(), Some(deep));
    }
}

/// fair.5: held or not, another scheduler is given all.
#[test]
fn a_scheduler_that_takes_over_is_given_what_held_tenants_have() {
    let mut hand = Hand::new(4);
    let tenants = [100, 100].map(|weight| hand.tenant(weight));
    let root = hand.stream(GroupId::ROOT, PriorityClass::BestEffort, 0);
    let [one, other] = tenants;
    hand.warm(&[one, one, other, other, root, root], 100);
    let _ = [one, other, root].map(|stream| hand.reads(stream, 20));
    while hand.goes().is_some() {}
    hand.turns_back();
    let mut left: Vec<RequestId> = hand.waiting.iter().map(|request| request.id).collect();
    while let Some(id) = hand.fair.drain(hand.now) {
        let at = left.iter().position(|one| *one == id).expect("it waits, and was not given yet");
        left.remove(at);
    }
    assert_eq!((left.len(), hand.fair.len()), (0, 0));
}

/// fair.7: what a flush took is made up for by its tenant, but for what its own writes paid for.
#[test]
fn a_flush_is_charged_to_the_tenant_that_asked() {
    let mut hand = Hand::new(1);
    let [one, other] = [100, 100].map(|weight| hand.tenant(weight));
    // A pace: one request of 8 µs each 8 µs.
    for _ in 0..1000 {
        let _ = [one, other].map(|tenant| hand.reads(tenant, 1));
        hand.paced(2);
    }
    let _ = [one, other].map(|tenant| hand.reads(tenant, 600));
    let flush = |hand: &mut Hand| {
        hand.fair.flush_began(hand.now);
        hand.now += us(800);
        hand.fair.flush_ended(hand.now, us(800));
        let group = hand.streams[one].group;
        hand.fair.charge(hand.now, StreamId(one as u32), group, us(800));
    };
    flush(&mut hand);
    let order = hand.paced(100);
    assert!(count(&order, one) <= 3, "800 µs are 100 reads that the other is served first: {}", count(&order, one));
    let order = hand.paced(100);
    assert!((45..=55).contains(&count(&order, one)), "and then it is paid: {}", count(&order, one));
    // 50 writes, which cost as much as half of the flush that covers them.
    (0..50).for_each(|_| hand.asks(one, Op::Write, 8));
    let waiting = hand.waiting.len();
    hand.paced(waiting);
    let _ = [one, other].map(|tenant| hand.reads(tenant, 300));
    flush(&mut hand);
    let order = hand.paced(200);
    assert!((70..=80).contains(&count(&order, one)), "half is paid already: {}", count(&order, one));
}

/// fair.7: what it is worth is not known, so nobody owes it.
#[test]
fn a_flush_of_a_disk_of_which_nothing_is_known_is_charged_to_nobody() {
    let mut hand = Hand::new(1);
    let [one, other] = [100, 100].map(|weight| hand.tenant(weight));
    let group = hand.streams[one].group;
    hand.reads(other, 100);
    assert_eq!(hand.goes(), Some(other));
    hand.reads(one, 100);
    hand.fair.flush_began(hand.now);
    hand.now += us(800);
    hand.fair.flush_ended(hand.now, us(800));
    hand.fair.charge(hand.now, StreamId(one as u32), group, us(800));
    hand.ends();
    assert!(!hand.fair.is_ahead(hand.now, group), "its next flush may go");
    let order = hand.paced(100);
    assert!((45..=55).contains(&count(&order, one)), "{}", count(&order, one));
}

/// fair.7: though the stream that asked is another group's now.
#[test]
fn a_flush_is_charged_to_the_group_that_asked() {
    let mut hand = Hand::new(1);
    let [from, to, beside] = [100; 3].map(|weight| hand.group(GroupId::ROOT, weight));
    let streams = [from, from, to, beside].map(|group| hand.stream(group, PriorityClass::BestEffort, 4));
    let [moves, stays, there, other] = streams;
    for _ in 0..1000 {
        let _ = streams.map(|stream| hand.reads(stream, 1));
        hand.paced(4);
    }
    let _ = [stays, there, other].map(|stream| hand.reads(stream, 400));
    hand.fair.flush_began(hand.now);
    hand.moves(moves, to);
    hand.now += us(800);
    hand.fair.flush_ended(hand.now, us(800));
    hand.fair.charge(hand.now, StreamId(moves as u32), from, us(800));
    let order = hand.paced(150);
    assert!(count(&order, stays) <= 3, "its group's flush took 100 reads: {}", count(&order, stays));
    assert!(count(&order, there).abs_diff(count(&order, other)) <= 2, "nobody else's did");
}

/// fair.6: a tenant that has asked for nothing is not owed anything.
#[test]
fn absence_earns_nothing() {
    let mut hand = Hand::new(1);
    let [steady, away] = [100, 100].map(|weight| hand.tenant(weight));
    hand.reads(steady, 600);
    hand.order(500);
    hand.reads(away, 100);
    let order = hand.order(20);
    assert!((9..=11).contains(&count(&order, away)), "{order:?}");
}

/// A weight holds at once.
#[test]
fn a_new_weight_holds_from_the_next_request_on() {
    let mut hand = Hand::new(1);
    let [one, other] = [100, 100].map(|weight| hand.tenant(weight));
    let _ = [one, other].map(|tenant| hand.reads(tenant, 1000));
    hand.order(100);
    for weight in [300, 100, 900, 50] {
        hand.groups[1].weight = Weight::new(weight);
        hand.fair.set_group(hand.now, GroupId(1), &hand.groups[1]);
        let order = hand.order(200);
        let part = 200.0 * f64::from(weight) / f64::from(weight + 100);
        assert!((count(&order, one) as f64 - part).abs() <= 2.0, "{weight}: {} and not {part}", count(&order, one));
    }
    assert_eq!(Duration::ZERO, hand.now.since(Instant::ZERO));
}
