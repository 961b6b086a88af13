//! Lock: how many workers one lock carries, on paper.
//!
//! A scheduler that decides between workers has one queue under one lock (disk.2). With more workers a worker finds the lock taken
//! more often, and from some number on another worker brings nothing. A machine of two processors shows the first waits; this model
//! takes what two can show (time under the lock, time outside it, what a wait costs) and plays any number of workers on a virtual clock.
//!
//! Example: a request needs 150 ns in each of two visits to the lock, and 700 ns outside. One worker serves a million a second. The lock
//! itself is full at 3.3 million, so three workers or four reach that at best, and eight bring no more. If a visit costs three times as
//! much where another worker was before, two workers that take turns serve hardly more than one.
//!
//! lock.1  A turn of a worker takes all requests that have come. For each disk that they are for, the worker visits the lock of that
//!         disk: to hand the requests in, and once more to take the ends out. Then clients have their replies, and ask again after
//!         `think`.
//! lock.2  Work costs a time for each turn (or visit), and a time for each request of it. A visit costs more where another worker was
//!         before: the queue's memory is in another cache. Each time is at least half of its mean and exponentially distributed beyond:
//!         a visit that happens to be long puts the others to sleep, and they go on sleeping.
//! lock.3  A worker that finds the lock taken looks again a number of times, ever later, and then sleeps. A worker that lets go wakes one sleeper;
//!         that takes time, in which the lock is free, and any worker that comes takes it. The sleeper that runs at last begins to look
//!         again. As in the standard library on Linux, a wake is due where a worker slept since the lock was taken, or its holder did.
//!
//! Each worker has a processor of its own here, and clients cost none.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fairlift_core::{Duration, Instant};
use fairlift_lab::Random;

/// What work costs, in nanoseconds: so much in any case, and so much for each request.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Cost {
    /// Of a turn, or of a visit.
    pub(crate) once: f64,
    /// Of each request in it.
    pub(crate) each: f64,
}

/// What a request costs where (lock.2).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Costs {
    /// Outside of the lock, in a turn.
    pub(crate) outside: Cost,
    /// Under the lock, in a visit.
    pub(crate) inside: Cost,
    /// Under the lock besides, in a visit after another worker's.
    pub(crate) moved: Cost,
}

/// What a wait costs (lock.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wait {
    /// A worker that finds the lock taken looks again after so long, and then ever twice as late.
    pub(crate) first: Duration,
    /// The longest pause between two looks.
    pub(crate) most: Duration,
    /// It sleeps after so many looks.
    pub(crate) looks: u32,
    /// Whether it looks though another sleeps.
    pub(crate) looks_anyway: bool,
    /// What the worker that wakes another spends, outside of the lock.
    pub(crate) wake: Duration,
    /// How long the other then takes to run.
    pub(crate) latency: Duration,
}

/// A load: so many workers, disks and requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Load {
    /// Workers.
    pub(crate) workers: usize,
    /// Disks, each with a lock; a request is for any of them.
    pub(crate) disks: usize,
    /// Requests that the clients of a worker keep under way.
    pub(crate) depth: u32,
    /// From a reply to the next request of that client.
    pub(crate) think: Duration,
    /// What work costs.
    pub(crate) costs: Costs,
    /// What waits cost.
    pub(crate) wait: Wait,
    /// What is left to chance.
    pub(crate) seed: u64,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Outcome {
    /// Requests served in a second.
    pub(crate) rate: f64,
    /// The part of the time in which a lock was held, on average over the locks.
    pub(crate) held: f64,
    /// The part of visits that found the lock taken.
    pub(crate) waited: f64,
    /// The part of visits that slept for it.
    pub(crate) slept: f64,
}

impl Load {
    /// Plays so long, and once more as long before, in which all comes to its pace.
    #[must_use]
    pub(crate) fn play(&self, time: Duration) -> Outcome {
        let mut play = Play::new(*self);
        play.until(Instant::ZERO + time);
        play.sums = Sums::default();
        play.until(Instant::ZERO + time + time);
        let Sums { served, visits, waited, slept, held } = play.sums;
        let part = |of: u64| of as f64 / visits.max(1) as f64;
        let nanos = time.as_nanos() as f64;
        Outcome {
            rate: served as f64 * 1e9 / nanos,
            held: held as f64 / nanos / self.disks as f64,
            waited: part(waited),
            slept: part(slept),
        }
    }
}

/// Visits for each disk in a turn (lock.1).
const VISITS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum WorkerEvent {
    /// A worker wants the lock of its next visit.
    Wants(usize),
    /// A worker looks at the lock, for so many more times, the next one after so long.
    Looks(usize, u32, Duration),
    /// A worker that was woken runs.
    Runs(usize),
    /// A worker lets go of the lock.
    LetsGo(usize),
    /// A worker has answered so many.
    Answers(usize, u32),
    /// So many requests come to a worker.
    Comes(usize, u32),
}

#[derive(Default)]
struct Worker {
    /// Requests that have come.
    come: u32,
    /// Requests of the turn under way.
    turn: u32,
    /// The visits of the turn that are to come: the disk, and requests for it.
    visits: VecDeque<(usize, u32)>,
    /// Of those it had at first.
    parts: usize,
    /// Turns that have ended.
    turns: u64,
    /// It has slept for the lock that it wants or holds.
    has_slept: bool,
}

#[derive(Default)]
struct Lock {
    taken: bool,
    /// Some worker may sleep for it: who lets go looks.
    is_slept_for: bool,
    asleep: VecDeque<usize>,
    /// The worker that had it last.
    last: Option<usize>,
}

#[derive(Default)]
struct Sums {
    served: u64,
    visits: u64,
    waited: u64,
    slept: u64,
    held: u64,
}

struct Play {
    setup: Load,
    now: Instant,
    random: Random,
    /// (when, in what order, what): the earliest first.
    events: BinaryHeap<Reverse<(Instant, u64, WorkerEvent)>>,
    order: u64,
    workers: Vec<Worker>,
    locks: Vec<Lock>,
    sums: Sums,
}

impl Play {
    fn new(setup: Load) -> Self {
        let mut play = Self {
            now: Instant::ZERO,
            random: Random::new(setup.seed),
            events: BinaryHeap::new(),
            order: 0,
            workers: (0..setup.workers).map(|_| Worker::default()).collect(),
            locks: (0..setup.disks).map(|_| Lock::default()).collect(),
            sums: Sums::default(),
            setup,
        };
        for worker in 0..setup.workers {
            play.after(Duration::ZERO, WorkerEvent::Comes(worker, setup.depth));
        }
        play
    }

    fn after(&mut self, time: Duration, event: WorkerEvent) {
        self.order += 1;
        self.events.push(Reverse((self.now + time, self.order, event)));
    }

    fn until(&mut self, end: Instant) {
        while let Some(Reverse((at, _, event))) = self.events.peek().copied()
            && at < end
        {
            self.events.pop();
            self.now = at;
            match event {
                WorkerEvent::Comes(worker, count) => self.comes(worker, count),
                WorkerEvent::Wants(worker) => self.wants(worker),
                WorkerEvent::Looks(worker, more, pause) => self.looks(worker, more, pause),
                WorkerEvent::Runs(worker) => self.begins_to_look(worker),
                WorkerEvent::LetsGo(worker) => self.lets_go(worker),
                WorkerEvent::Answers(worker, count) => self.answers(worker, count),
            }
        }
        self.now = end;
    }

    fn comes(&mut self, worker: usize, count: u32) {
        self.workers[worker].come += count;
        if self.workers[worker].turn == 0 {
            self.begin(worker);
        }
    }

    /// lock.1
    fn begin(&mut self, worker: usize) {
        let count = std::mem::take(&mut self.workers[worker].come);
        let mut parts = vec![0; self.setup.disks];
        (0..count).for_each(|_| parts[self.random.below(self.setup.disks as u64) as usize] += 1);
        let parts = parts.into_iter().enumerate().filter(|(_, count)| *count > 0);
        let visits: VecDeque<_> = parts.flat_map(|part| [part; VISITS]).collect();
        let row = &mut self.workers[worker];
        (row.turn, row.parts, row.visits) = (count, visits.len() + 1, visits);
        self.works(worker, Duration::ZERO);
    }

    /// How long some work takes (lock.2).
    fn work(&mut self, mean: f64) -> Duration {
        let half = Duration::from_nanos((mean / 2.0) as u64);
        half + self.random.exponential(half)
    }

    /// A worker works outside up to its next visit, or to the end of its turn.
    fn works(&mut self, worker: usize, besides: Duration) {
        let Cost { once, each } = self.setup.costs.outside;
        let Worker { turn, parts, .. } = self.workers[worker];
        let mean = (once + each * f64::from(turn)) / parts as f64;
        let time = self.work(mean);
        let event = if self.workers[worker].visits.is_empty() {
            WorkerEvent::Answers(worker, turn)
        } else {
            WorkerEvent::Wants(worker)
        };
        self.after(time + besides, event);
    }

    fn answers(&mut self, worker: usize, count: u32) {
        self.sums.served += u64::from(count);
        self.workers[worker].turn = 0;
        self.workers[worker].turns += 1;
        self.after(self.setup.think, WorkerEvent::Comes(worker, count));
        if self.workers[worker].come > 0 {
            self.begin(worker);
        }
    }

    fn lock_of(&self, worker: usize) -> usize {
        self.workers[worker].visits.front().expect("a worker that wants a lock visits it").0
    }

    fn wants(&mut self, worker: usize) {
        self.workers[worker].has_slept = false;
        self.sums.visits += 1;
        let number = self.lock_of(worker);
        self.sums.waited += u64::from(self.locks[number].taken);
        self.begins_to_look(worker);
    }

    /// lock.3
    fn begins_to_look(&mut self, worker: usize) {
        let Wait { first, looks, .. } = self.setup.wait;
        self.looks(worker, looks, first);
    }

    fn looks(&mut self, worker: usize, more: u32, pause: Duration) {
        let Lock { taken, is_slept_for, .. } = self.locks[self.lock_of(worker)];
        let Wait { most, looks_anyway, .. } = self.setup.wait;
        if !taken {
            self.takes(worker);
        } else if more == 0 || is_slept_for && !looks_anyway {
            self.sleeps(worker);
        } else {
            // Longer or shorter by half, as the host does it.
            let nanos = pause.as_nanos() / 2 + self.random.below(pause.as_nanos());
            self.after(Duration::from_nanos(nanos), WorkerEvent::Looks(worker, more - 1, (pause + pause).min(most)));
        }
    }

    fn sleeps(&mut self, worker: usize) {
        let number = self.lock_of(worker);
        if !std::mem::replace(&mut self.workers[worker].has_slept, true) {
            self.sums.slept += 1;
        }
        self.locks[number].is_slept_for = true;
        self.locks[number].asleep.push_back(worker);
    }

    fn takes(&mut self, worker: usize) {
        let number = self.lock_of(worker);
        let count = f64::from(self.workers[worker].visits[0].1);
        let lock = &mut self.locks[number];
        lock.taken = true;
        lock.is_slept_for = self.workers[worker].has_slept; // lock.3
        let Costs { inside, moved, .. } = self.setup.costs;
        let is_moved = lock.last.replace(worker).is_some_and(|last| last != worker);
        let moved = if is_moved { moved } else { Cost::default() };
        let mean = inside.once + moved.once + (inside.each + moved.each) * count;
        let time = self.work(mean);
        self.sums.held += time.as_nanos();
        self.after(time, WorkerEvent::LetsGo(worker));
    }

    fn lets_go(&mut self, worker: usize) {
        let number = self.lock_of(worker);
        self.workers[worker].visits.pop_front();
        let lock = &mut self.locks[number];
        lock.taken = false;
        let mut besides = Duration::ZERO;
        if std::mem::take(&mut lock.is_slept_for) {
            besides = self.setup.wait.wake;
            if let Some(sleeper) = lock.asleep.pop_front() {
                self.after(self.setup.wait.latency, WorkerEvent::Runs(sleeper));
            }
        }
        self.works(worker, besides);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::time::{ms, us};

    const fn ns(nanos: u64) -> Duration {
        Duration::from_nanos(nanos)
    }

    /// The standard library's wait; waking costs 7 µs and takes 15.
    const STD: Wait =
        Wait { first: ns(28), most: ns(28), looks: 100, looks_anyway: false, wake: us(7), latency: us(15) };
    const EVER_LATER: Wait = Wait { first: ns(250), most: us(16), looks: 9, looks_anyway: true, ..STD };

    fn setup(workers: usize, wait: Wait) -> Load {
        let costs = Costs {
            outside: Cost { once: 200.0, each: 100.0 },
            inside: Cost { once: 200.0, each: 150.0 },
            moved: Cost::default(),
        };
        Load { workers, disks: 1, depth: 8, think: Duration::ZERO, costs, wait, seed: 1 }
    }

    fn near(is: f64, wanted: f64) -> bool {
        (is / wanted - 1.0).abs() < 0.01
    }

    /// lock.1: a turn of 8 takes 200 + 800 ns outside and 2 × (200 + 1200) in its visits.
    #[test]
    fn one_worker_serves_what_its_times_add_up_to_and_never_waits() {
        let Outcome { rate, held, waited, slept } = setup(1, STD).play(ms(20));
        assert!(near(rate, 8e9 / 3800.0), "{rate}");
        assert!(near(held, 2800.0 / 3800.0), "{held}");
        assert_eq!((waited, slept), (0.0, 0.0));
    }

    /// lock.1: with 64 disks two workers rarely meet; with one they do nothing else.
    #[test]
    fn workers_add_up_where_locks_are_many_and_not_where_one_is_full() {
        let rate = |workers, disks| Load { disks, ..setup(workers, EVER_LATER) }.play(ms(20)).rate;
        let (one, eight) = (rate(1, 64), rate(8, 64));
        assert!(eight > 5.0 * one, "{one} and {eight}");
        // The lock alone: 8 requests in 2 × 1400 ns.
        assert!(rate(8, 1) < 8e9 / 2800.0);
    }

    /// lock.1: a client that thinks for as long as the rest takes leaves its worker half of the time idle.
    #[test]
    fn a_worker_whose_clients_think_waits_for_them() {
        let thinks = Load { think: ns(3800), ..setup(1, STD) };
        assert!(near(thinks.play(ms(20)).rate, 8e9 / 7600.0));
    }

    /// lock.2: two workers pay for the move, and a worker alone does not.
    #[test]
    fn a_visit_after_another_workers_costs_more() {
        let moved = Cost { once: 3000.0, each: 0.0 };
        let rate = |workers, moved| {
            let setup = setup(workers, EVER_LATER);
            Load { costs: Costs { moved, ..setup.costs }, ..setup }.play(ms(20)).rate
        };
        assert!(near(rate(1, moved), rate(1, Cost::default())));
        assert!(rate(2, moved) < 0.9 * rate(2, Cost::default()));
    }

    /// lock.3
    #[test]
    fn looking_ever_later_saves_sleeps_and_serves_more() {
        let costs = Costs { moved: Cost { once: 1000.0, each: 175.0 }, ..setup(2, STD).costs };
        let play = |wait| Load { costs, ..setup(2, wait) }.play(ms(20));
        let (std, ours) = (play(STD), play(EVER_LATER));
        assert!(ours.slept < std.slept / 10.0, "{ours:?} {std:?}");
        assert!(ours.rate > 1.2 * std.rate, "{ours:?} {std:?}");
    }

    /// lock.3: every sleeper is woken in the end: with as many workers as there can be, each is served.
    #[test]
    fn nobody_sleeps_for_ever() {
        for wait in [STD, EVER_LATER] {
            let setup = Load { depth: 1, ..setup(64, wait) };
            let mut play = Play::new(setup);
            play.until(Instant::ZERO + ms(200));
            assert!(play.workers.iter().all(|worker| worker.turns > 1), "{wait:?}");
        }
    }

    #[test]
    fn a_seed_says_it_all() {
        let play = |seed| Load { seed, ..setup(4, STD) }.play(ms(5));
        assert_eq!(play(7), play(7));
        assert_ne!(play(7), play(8));
    }
}
