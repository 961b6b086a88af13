//! Latencies of groups, whatever the scheduler: what is answered late is seen, for the group and for those above it.

use fairlift_core::objective::Room;
use fairlift_core::queue::{Bound, Settings};
use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, secs};
use fairlift_core::{
    Bio, ContextId, Duration, Extent, Finished, Flags, Group, GroupId, Instant, Limits, Op, Outcome, Priority, Queue,
    Sector, Stream, Token, Weight,
};

const C0: ContextId = ContextId(0);

struct Sim {
    queue: Queue,
    now: Instant,
    /// `/t`, `/t/a` and `/b`.
    groups: [GroupId; 3],
}

impl Sim {
    fn new(kind: Kind) -> Self {
        let mut queue = Queue::new(Settings::new(kind, Limits::new(1 << 21)));
        let now = Instant::ZERO + secs(5);
        let mut add = |path: &str, parent| {
            let id = queue.groups().free();
            queue.add_group(now, id, Group { path: path.into(), parent: Some(parent), weight: Weight::new(100) });
            id
        };
        let t = add("/t", GroupId::ROOT);
        let groups = [t, add("/t/a", t), add("/b", GroupId::ROOT)];
        Self { queue, now, groups }
    }

    /// Something of a group is asked, and answered after so long.
    fn ask(&mut self, group: GroupId, op: Op, took: Duration, outcome: Outcome) {
        let stream = self.queue.add_stream(Stream { group, priority: Priority::default(), context: C0 });
        let extent = if op == Op::Flush { Extent::new(Sector(0), 0) } else { Extent::new(Sector(64), 8) };
        self.queue.submit(self.now, Bio { op, flags: Flags::NONE, extent, stream, token: Token(1) }).unwrap();
        let tag = self.queue.poll_dispatch(self.now, C0).expect("it goes at once").tag;
        self.now += took;
        self.queue.handle_completion(self.now, tag, outcome);
        while self.queue.poll_finished(C0).is_some() {}
        self.queue.remove_stream(stream);
    }

    fn set_latency(&mut self, group: GroupId, latency: Option<Duration>) {
        self.queue.bind(self.now, group, &Bound { latency, ..Bound::default() });
    }

    fn met(&self, group: GroupId) -> Option<f64> {
        self.queue.kept(self.now + secs(1)).latencies.get(&group)?.met()
    }
}

#[test]
fn what_is_late_is_seen_for_the_group_and_those_above_under_every_scheduler() {
    for kind in Kind::ALL {
        let mut sim = Sim::new(kind);
        let [t, a, b] = sim.groups;
        sim.set_latency(t, Some(ms(4)));
        sim.set_latency(a, Some(ms(2)));
        sim.ask(a, Op::Read, ms(3), Outcome::Done);
        assert_eq!((sim.met(a), sim.met(t), sim.met(b)), (Some(0.0), Some(1.0), None), "{}", kind.name());
        sim.now += secs(1);
        sim.ask(a, Op::Write, ms(1), Outcome::Done);
        // Neither is a read or a write, nor of the group.
        sim.ask(a, Op::Flush, ms(9), Outcome::Done);
        sim.ask(b, Op::Read, ms(9), Outcome::Done);
        assert_eq!((sim.met(a), sim.met(t)), (Some(0.5), Some(1.0)), "{}", kind.name());
        sim.ask(t, Op::Read, ms(5), Outcome::Failed(fairlift_core::Errno::EIO));
        assert_eq!((sim.met(a), sim.met(t)), (Some(0.5), Some(0.5)), "{}", kind.name());
    }
}

/// It outlasts another scheduler, another target begins anew, and it goes with the group.
#[test]
fn a_latency_may_change_at_any_time() {
    let mut sim = Sim::new(Kind::Fair);
    let [t, a, _] = sim.groups;
    sim.set_latency(a, Some(ms(2)));
    sim.ask(a, Op::Read, ms(3), Outcome::Done);
    sim.queue.set_scheduler(sim.now, Kind::Bfq);
    assert_eq!(sim.met(a), Some(0.0));
    sim.set_latency(a, Some(ms(2)));
    assert_eq!(sim.met(a), Some(0.0), "it is what it was");
    sim.set_latency(a, Some(ms(5)));
    assert_eq!(sim.met(a), None, "what was late for 2 ms may not be for 5");
    sim.queue.set_scheduler(sim.now, Kind::Fair);
    assert_eq!(
        sim.queue.kept(sim.now).latencies.into_iter().map(|(id, one)| (id, one.target, one.room)).collect::<Vec<_>>(),
        [(a, ms(5), Room::Enough)]
    );
    sim.set_latency(t, Some(ms(1)));
    sim.queue.remove_group(sim.now, a).unwrap();
    assert_eq!(sim.queue.kept(sim.now).latencies.len(), 1);
    sim.set_latency(t, None);
    assert_eq!(sim.queue.kept(sim.now).latencies.len(), 0);
}

/// One that the device never answers is late when its time is over, and once.
#[test]
fn what_times_out_is_late() {
    let mut sim = Sim::new(Kind::Fair);
    let a = sim.groups[1];
    sim.set_latency(a, Some(secs(10)));
    let stream = sim.queue.add_stream(Stream { group: a, priority: Priority::default(), context: C0 });
    let extent = Extent::new(Sector(0), 8);
    sim.queue.submit(sim.now, Bio { op: Op::Read, flags: Flags::NONE, extent, stream, token: Token(1) }).unwrap();
    let tag = sim.queue.poll_dispatch(sim.now, C0).unwrap().tag;
    sim.now += secs(30);
    sim.queue.handle_timeout(sim.now);
    assert!(matches!(sim.queue.poll_finished(C0), Some(Finished::TimedOut(_))));
    assert_eq!(sim.met(a), Some(0.0));
    sim.now += secs(30);
    sim.queue.handle_completion(sim.now, tag, Outcome::Done);
    assert_eq!(sim.met(a), Some(0.0));
    sim.now += secs(40);
    assert_eq!(sim.met(a), None, "it was not counted again at the end");
}
