//! Handover: a disk goes from one scheduler to another while it is served.
//!
//! Between two schedulers that decide for the whole disk there is nothing to hand over: the one queue stays, and its requests go to the new
//! scheduler as they are. But `none` has a queue for each worker, and requests that wait in four queues are not in one. Then the disk is
//! frozen, as the kernel does it: workers keep new requests back, let those in the old queues end, and go on with the new queues when all
//! are empty. Example: four workers with 30 requests each under `none`, and the operator wants `bfq`. New requests wait in their workers
//! for as long as the disk takes for those 120.
//!
//! handover.1  While the disk is frozen no worker gives a queue anything, and none has anything in a queue when the new ones
//!             are taken: no request is in two queues or in none.
//! handover.2  A worker arrives when all that it had in the old queues has ended and its memory is free, and no device of its has a request
//!             of theirs: a flush outlasts those that waited for it (sequence.3 of the core). The last to arrive puts the new queues in
//!             place; each then takes its streams over.
//! handover.3  A worker counts from its first client on the disk until it ends: nobody waits for a worker that has nothing there. Until each
//!             has taken its streams over, no group goes: one of them may be in it.
//! handover.4  Counters go on: statistics of the old queues are added up and kept, also those of a group or disk that is gone, for
//!             one of its name.
//! handover.6  Bios that a ceiling holds in an old queue go back to their worker, and wait again in the new one: nobody waits for
//!             a bio that may not go for a minute.
//! handover.7  A scheduler's learned state of the disk outlasts it, as in one queue (queue.15 of the core).
//! handover.5  A flush that failed is not forgotten, and nothing counts as flushed that was not: the state of flushes belongs
//!             to the disk, and new queues believe that something was written.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, Weak};

use fairlift_core::flush::SharedFlush;
use fairlift_core::queue::Figures;
use fairlift_core::record::Record;
use fairlift_core::sched::{Kind, Setup};
use fairlift_core::stats::Stats;
use fairlift_core::waits::Doing;
use fairlift_core::{ContextId, Duration, Group, GroupId, Instant, Outcome, Queue};
use serde::{Deserialize, Serialize};

use super::disks::GroupBounds;
use super::queues::Queues;
use super::{Disk, Place, Plan};
use crate::config;

pub(super) struct State {
    /// `None`: no worker has had anything for the disk (disk.4).
    pub(super) queues: Option<Arc<Queues>>,
    next: Option<Pending>,
    /// Those before: workers have their streams there until they have looked.
    pub(super) before: Weak<Queues>,
    /// One bit for each worker that has a side of the disk, and has not ended (handover.3).
    here: u64,
    /// The counters of removed queues (handover.4).
    pub(super) past: Past,
    /// The knowledge of removed queues' schedulers about the disk (handover.7).
    learned: Vec<(Kind, Record)>,
    pub(super) plan: Plan,
    /// By rising start.
    pub(super) places: Arc<[Place]>,
    /// All but the root, parents first.
    pub(super) groups: Vec<(GroupId, Group)>,
    pub(super) bounds: GroupBounds,
}

/// Queues that wait until the old ones are empty.
struct Pending {
    queues: Arc<Queues>,
    /// One bit for each worker that has nothing in the old ones.
    arrived: u64,
}

/// How many groups that are gone a disk keeps what they had of. Chosen: each takes some 4 KiB.
const GONE: usize = 1024;

/// The counters of removed queues. The figures of groups are their counters and the device time that they have had.
#[derive(Default)]
pub(crate) struct Past {
    pub(super) groups: BTreeMap<GroupId, Figures>,
    pub(super) doing: Doing,
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// Of removed groups, by their paths, the latest last: a group that comes again continues them.
    gone: VecDeque<(String, Figures)>,
    /// What groups that have come again had before.
    pub(super) began: BTreeMap<GroupId, Figures>,
}

/// The counters of a disk for another server: by the paths of groups, what was done and the device time that they had.
#[derive(Serialize, Deserialize)]
pub(super) struct HandedPast {
    groups: Vec<(String, Stats, Duration)>,
    #[serde(default)]
    doing: Doing,
    #[serde(default)]
    counts: BTreeMap<String, u64>,
}

impl Past {
    /// A group is gone that had this through the queues that there are.
    pub(super) fn leave(&mut self, id: GroupId, path: &str, mut figures: Figures) {
        self.began.remove(&id);
        let before = self.groups.remove(&id).into_iter().chain(self.take_gone(path));
        before.for_each(|before| figures.add(&before));
        self.gone.push_back((path.to_owned(), figures));
        while self.gone.len() > GONE {
            self.gone.pop_front();
        }
    }

    /// A group has come: what one of its path had before is its own.
    pub(super) fn come(&mut self, id: GroupId, group: &Group) {
        let Some(before) = self.take_gone(&group.path) else { return };
        self.began.entry(id).or_default().add(&before);
        self.groups.entry(id).or_default().add(&before);
    }

    fn take_gone(&mut self, path: &str) -> Option<Figures> {
        let at = self.gone.iter().position(|(gone, _)| gone == path)?;
        self.gone.remove(at).map(|(_, figures)| figures)
    }

    /// With what groups have had since, for another server.
    pub(super) fn handed(
        &self,
        groups: impl Iterator<Item = (String, Figures)>,
        doing: Doing,
        counts: BTreeMap<String, u64>,
    ) -> HandedPast {
        let all = self.gone.iter().cloned().chain(groups);
        HandedPast { groups: all.map(|(path, figures)| (path, figures.stats, figures.had)).collect(), doing, counts }
    }

    /// The past that another server [handed](Past::handed) on; `None`: the counts are impossible. Counters of another name than queues count by are left out.
    pub(super) fn of_handed(handed: HandedPast) -> Option<Self> {
        const MOST: u64 = 1 << 62;
        let HandedPast { groups, doing, counts } = handed;
        let is_possible = groups.iter().all(|(_, stats, had)| stats.is_possible() && had.as_nanos() < MOST)
            && [doing.flushing, doing.busy, doing.idling].iter().all(|time| time.as_nanos() < MOST)
            && counts.values().all(|count| *count < MOST);
        let known = |name: &str| Queue::COUNTED.into_iter().find(|known| *known == name);
        let counts = counts.into_iter().filter_map(|(name, count)| Some((known(&name)?, count)));
        let of_group = |(path, stats, had)| (path, Figures { stats, had, ..Figures::default() });
        let gone = groups.into_iter().map(of_group);
        is_possible.then(|| Self { gone: gone.collect(), doing, counts: counts.collect(), ..Self::default() })
    }

    fn add(&mut self, queues: &Queues) {
        for mut queue in queues.each() {
            // Nothing is in it: its clocks stand still.
            let groups = queue.groups_mut();
            let of_groups = groups.figures_of_groups(Instant::ZERO, 0..usize::MAX);
            let of_streams = groups.figures_of_streams(Instant::ZERO, 0..usize::MAX);
            for (id, Figures { stats, had, .. }) in of_groups.into_iter().chain(of_streams).flatten() {
                self.groups.entry(id).or_default().add(&Figures { stats, had, ..Figures::default() });
            }
            self.doing = self.doing + queue.groups_mut().doing(Instant::ZERO);
            queue.counters(&mut |name, count| *self.counts.entry(name).or_default() += count);
        }
    }
}

impl State {
    pub(super) fn new(plan: Plan, places: Arc<[Place]>, groups: Vec<(GroupId, Group)>) -> Self {
        Self {
            queues: None,
            next: None,
            before: Weak::new(),
            here: 0,
            past: Past::default(),
            learned: Vec::new(),
            plan,
            places,
            groups,
            bounds: GroupBounds::new(),
        }
    }

    /// The groups, the root first.
    pub(super) fn all_groups(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        std::iter::once((GroupId::ROOT, &self.plan.root)).chain(self.groups.iter().map(|(id, group)| (*id, group)))
    }

    /// The queues that the disk has, if any, and those that come next.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Queues>> {
        self.queues.iter().chain(self.next.as_ref().map(|next| &next.queues))
    }

    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Queue>> {
        self.all().flat_map(|queues| queues.each())
    }

    /// The queues that the disk has, which are made if it has none (disk.4).
    pub(super) fn queues(&mut self) -> Arc<Queues> {
        let Self { queues, plan, places, groups, bounds, .. } = self;
        let made = queues.get_or_insert_with(|| {
            let queues = plan.queues(Instant::ZERO, places, groups, false);
            bounds.iter().for_each(|(id, bound)| queues.bind(Instant::ZERO, *id, bound));
            Arc::new(queues)
        });
        Arc::clone(made)
    }
}

impl Disk {
    /// The counters of removed ones, for one of its name.
    pub(crate) fn take_past(&self) -> Past {
        let mut state = self.state();
        let mut past = std::mem::take(&mut state.past);
        if let Some(queues) = state.queues.take() {
            past.add(&queues);
        }
        // By the paths of groups: their numbers may be others' by then.
        state.all_groups().for_each(|(id, group)| past.leave(id, &group.path, Figures::default()));
        past
    }

    /// It goes on from the counts of a disk of the same name (handover.4).
    pub(crate) fn goes_on_from(&self, before: Past) {
        let mut state = self.state();
        let State { past, groups, plan, .. } = &mut *state;
        past.doing = past.doing + before.doing;
        before.counts.iter().for_each(|(name, count)| *past.counts.entry(name).or_default() += count);
        past.gone.extend(before.gone);
        past.come(GroupId::ROOT, &plan.root);
        groups.iter().for_each(|(id, group)| past.come(*id, group));
    }
}

/// The form that a disk can be changed into.
pub(crate) struct Possible(config::Disk);

/// The result of a worker's look at a disk's queues.
pub(crate) struct Found {
    /// The number of the change; odd: the disk is frozen.
    pub(crate) epoch: u64,
    pub(crate) queues: Arc<Queues>,
    pub(crate) places: Arc<[Place]>,
}

impl Disk {
    /// Whether its scheduler, tunables and bounds can be as `settings` say.
    pub(crate) fn check(&self, settings: &config::Disk) -> Result<Possible, String> {
        let plan = Plan { settings: settings.clone(), ..self.state().plan.clone() };
        plan.check()?;
        Ok(Possible(plan.settings))
    }

    /// Has another scheduler, other tunables or other bounds; that cannot fail. All of it is in place at once, but for settings that need
    /// other queues: those come when the workers, which the caller then wakes, have nothing in the old ones any more. A choice made
    /// meanwhile takes their place.
    pub(crate) fn turn(&self, now: Instant, Possible(settings): Possible) {
        let mut state = self.state();
        let was = std::mem::replace(&mut state.plan.settings, settings);
        let Some(queues) = &state.queues else { return };
        let (plan, is) = (&state.plan, &state.plan.settings);
        let is_new = was.scheduler != is.scheduler;
        let changed = was.set.iter().chain(&is.set);
        let changed = changed.filter(|one| is_new || !(was.set.contains(one) && is.set.contains(one)));
        // A tunable that is no longer set has its default again; one of the scheduler before has no value.
        let least = plan.least().expect("its settings were looked at before");
        let set = |knob: &String| is.set.iter().rfind(|(name, _)| name == knob).map(|(_, value)| value.clone());
        let value = |knob: &String| least.tunable(knob).map(|is| set(knob).unwrap_or(is));
        let values: Vec<_> = changed.filter_map(|(knob, _)| Some((knob, value(knob)?))).collect();
        let (depth, nr_requests) = plan.bounds();
        let turn = |queue: &mut Queue| {
            // Queues that go may have another scheduler.
            if queue.settings().scheduler == is.scheduler {
                for (knob, value) in &values {
                    queue.set_tunable(knob, value).expect("it was looked at before");
                }
            }
        };
        if !is_new {
            state.each().for_each(|mut queue| turn(&mut queue));
            let is_same = (was.depth, was.nr_requests) == (is.depth, is.nr_requests);
            if is_same || state.all().all(|queues| queues.set_bounds(now, depth, nr_requests)) {
                return;
            }
        } else if state.next.is_none() && queues.is_one() && plan.has_one_queue() {
            // The scheduler is made before the queue is taken, and the old one goes after that: workers do not wait for either.
            let root = [plan.root.clone()];
            let Setup { capacity, depth: at_once, character, .. } = queues.of(ContextId(0)).settings().setup();
            let next = is.scheduler.build(&Setup { capacity, depth: at_once, groups: &root, character });
            let mut queue = queues.of(ContextId(0));
            let old = queue.take_over(now, is.scheduler, next);
            turn(&mut queue);
            drop(queue);
            drop(old);
            queues.set_bounds(now, depth, nr_requests);
            return;
        }
        let queues = plan.queues(now, &state.places, &state.groups, true);
        self.take_next(&mut state, Arc::new(queues));
    }

    /// These queues come next; the disk freezes until the old ones are empty.
    fn take_next(&self, state: &mut State, queues: Arc<Queues>) {
        for (id, bound) in &state.bounds {
            queues.bind(Instant::ZERO, *id, bound);
        }
        match &mut state.next {
            Some(next) => next.queues = queues,
            None => {
                state.next = Some(Pending { queues, arrived: 0 });
                self.epoch.fetch_add(1, Ordering::AcqRel);
            }
        }
        self.hand_over(state);
    }

    /// The disk has other places: workers look at them before they give their queues anything more.
    pub(super) fn moved(&self) {
        self.epoch.fetch_add(2, Ordering::AcqRel);
    }

    #[cfg(test)]
    pub(crate) fn scheduler(&self) -> Kind {
        let state = self.state();
        state.queues.as_ref().map_or(state.plan.settings.scheduler, |queues| queues.nth(0).settings().scheduler)
    }

    /// The number of the last change: a worker that knows another number has to [look](Self::look).
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.epoch() % 2 == 1
    }

    /// A worker has its first client here, and counts from now on (handover.3); which queues the disk has.
    pub(crate) fn enter(&self, context: ContextId) -> Found {
        self.state().here |= 1 << context.0;
        self.look()
    }

    pub(crate) fn look(&self) -> Found {
        let mut state = self.state();
        Found { epoch: self.epoch(), queues: state.queues(), places: Arc::clone(&state.places) }
    }

    /// A worker has nothing in the old queues any more (handover.2); whether it was the last, and is to wake the others.
    pub(crate) fn arrive(&self, context: ContextId) -> bool {
        let mut state = self.state();
        if let Some(next) = &mut state.next {
            next.arrived |= 1 << context.0;
        }
        self.hand_over(&mut state)
    }

    /// A worker ends (handover.3); whether the others are to be woken.
    pub(crate) fn leave(&self, context: ContextId) -> bool {
        let mut state = self.state();
        state.here &= !(1 << context.0);
        self.hand_over(&mut state)
    }

    /// Puts the new queues in place if all workers have arrived (handover.1).
    fn hand_over(&self, state: &mut State) -> bool {
        let here = state.here;
        let Some(Pending { queues, .. }) = state.next.take_if(|next| next.arrived & here == here) else { return false };
        let old = state.queues.replace(Arc::clone(&queues)).expect("others come next only where there are some");
        state.before = Arc::downgrade(&old);
        state.past.add(&old);
        if old.is_one() {
            state.learned.extend(old.of(ContextId(0)).take_learned()); // handover.7
        }
        if queues.is_one() {
            let learned = std::mem::take(&mut state.learned);
            queues.of(ContextId(0)).recall(learned);
        }
        for place in state.places.iter().filter(|place| !place.is_free) {
            // A queue that was alone had a state of its own, unless it was handed over before.
            let lost = old.of(ContextId(0)).flushes().error(place.start);
            place.flush.with(&mut |flush| {
                if let (Some(errno), None) = (lost, flush.lost()) {
                    flush.ended_alone(Outcome::Failed(errno)); // handover.5
                }
            });
        }
        self.epoch.fetch_add(1, Ordering::AcqRel);
        true
    }
}

#[cfg(test)]
mod tests {
    use fairlift_core::model::{Character, Model, ModelCompletion, ModelRequest, Work};
    use fairlift_core::{Bio, Errno, Extent, Flags, Limits, Op, Priority, Sector, Stream, Token, Weight};

    use super::*;
    use crate::config::{Backing, Factory, Faults, Faulty, Ram, Rule, Sim, Then};
    use crate::device::Device;
    use crate::disk::engine::News;
    use crate::disk::engine::bench::{self, turned};

    /// A disk that forgets when the power fails.
    struct Volatile;

    impl Model for Volatile {
        fn limits(&self) -> Limits {
            Limits::new(2048)
        }

        fn character(&self) -> Character {
            Character { rotational: false, volatile_cache: true }
        }

        fn submit(&mut self, _now: Instant, _asked: &ModelRequest) {}

        fn poll_event(&self) -> Option<Instant> {
            None
        }

        fn advance(&mut self, _now: Instant, _ended: &mut Vec<ModelCompletion>) {}

        fn work(&self) -> Work {
            Work::default()
        }
    }

    fn disk(scheduler: Kind) -> Disk {
        disk_with(&config::Disk::new("d", scheduler))
    }

    fn disk_with(settings: &config::Disk) -> Disk {
        let disk = unused(settings);
        (0..2).for_each(|worker| _ = disk.enter(ContextId(worker)));
        disk
    }

    fn device() -> Arc<dyn Device> {
        let model = Factory::new(|| Box::new(Volatile));
        let backing = Backing::from(Sim { name: "volatile".into(), size: 1 << 20, model });
        backing.open(false, &Default::default()).unwrap()
    }

    fn unused(settings: &config::Disk) -> Disk {
        Disk::new(settings, &[(device(), None)], &[Group::root()], 2).unwrap()
    }

    fn flush(disk: &Disk, outcome: Outcome) -> bool {
        flush_at(disk, Sector(0), outcome)
    }

    /// Asks for a flush of the backing there, and has the device answer so; whether it was asked at all.
    fn flush_at(disk: &Disk, at: Sector, outcome: Outcome) -> bool {
        let (queues, now, context) = (disk.look().queues, Instant::ZERO, ContextId(0));
        let mut queue = queues.of(context);
        let stream = Stream { group: GroupId::ROOT, priority: Priority::default(), context };
        let stream = queue.add_stream(stream);
        let extent = Extent::new(at, 0);
        queue.submit(now, Bio { op: Op::Flush, flags: Flags::NONE, extent, stream, token: Token(0) }).unwrap();
        let sent = queue.poll_dispatch(now, context);
        if let Some(dispatch) = sent {
            queue.handle_completion(now, dispatch.tag, outcome);
        }
        let _ = queue.poll_dispatch(now, context);
        while queue.poll_finished(context).is_some() {}
        queue.remove_stream(stream);
        sent.is_some()
    }

    /// Changes its settings.
    fn turn(disk: &Disk, change: impl FnOnce(&mut config::Disk)) {
        let mut settings = disk.settings();
        change(&mut settings);
        let possible = disk.check(&settings).unwrap();
        disk.turn(Instant::ZERO, possible);
    }

    fn schedule(disk: &Disk, kind: Kind) {
        turn(disk, |settings| settings.scheduler = kind);
    }

    fn hand_over(disk: &Disk, kind: Kind) {
        schedule(disk, kind);
        assert!(disk.is_frozen() && !disk.arrive(ContextId(0)) && disk.arrive(ContextId(1)), "the last one tells");
        assert!(!disk.is_frozen() && disk.scheduler() == kind);
    }

    /// handover.5
    #[test]
    fn a_failed_flush_is_remembered_and_nothing_counts_as_flushed() {
        for (first, second) in [(Kind::None, Kind::Bfq), (Kind::Bfq, Kind::None)] {
            let disk = disk(first);
            assert!(flush(&disk, Outcome::Failed(Errno::EIO)));
            hand_over(&disk, second);
            let (device, errno) = disk.flush_errors().pop().unwrap();
            assert!(errno == Errno::EIO && disk.is_flushed(&device).unwrap_err().contains("fairlift acknowledge"));
            assert_eq!(disk.acknowledge_flush_errors().len(), 1);
            assert!(flush(&disk, Outcome::Done), "what was written before is not known to be flushed");
            hand_over(&disk, first);
            assert!(disk.flush_errors().is_empty() && disk.is_flushed(&device).is_ok());
        }
    }

    /// Example: the operator of a disk has said that a retry means something there (`flush_remember=0`), and then no longer says so.
    #[test]
    fn whether_a_failed_flush_is_remembered_is_as_it_is_set_for_a_later_device_and_under_another_scheduler_too() {
        let set = vec![("flush_remember".into(), "0".into())];
        let disk = disk_with(&config::Disk { set, ..config::Disk::new("d", Kind::None) });
        let later = disk.add(&(device(), None)).unwrap();
        for at in [Sector(0), later] {
            assert!(flush_at(&disk, at, Outcome::Failed(Errno::EIO)));
        }
        assert!(disk.flush_errors().is_empty(), "nothing is remembered");
        turn(&disk, |settings| (settings.scheduler, settings.set) = (Kind::Bfq, vec![]));
        assert!(!disk.arrive(ContextId(0)) && disk.arrive(ContextId(1)));
        assert_eq!(disk.look().queues.of(ContextId(0)).tunable("flush_remember").as_deref(), Some("1"));
        for at in [Sector(0), later] {
            assert!(flush_at(&disk, at, Outcome::Failed(Errno::EIO)));
        }
        assert_eq!(disk.acknowledge_flush_errors().len(), 2, "it is remembered again");
    }

    /// handover.2: a flush is nobody's once all that waited for it were told that it took too long, and the device has it all the same.
    #[test]
    fn a_flush_that_hangs_keeps_other_queues_waiting_until_the_device_has_answered() {
        let rule = Rule { ops: vec![Op::Flush], ..Rule::each(Then::Hang) };
        let (faults, inner) = (Faults { seed: 0, rules: vec![rule] }, Ram { size: 1 << 20 }.into());
        let faulty = Faulty { name: "fault:".into(), path: "rules".into(), faults, inner };
        let device = Backing::from(faulty).open(false, &Default::default()).unwrap();
        let mut workers = bench::workers(Arc::clone(&device), Kind::None, 2);
        let (mut now, (disk, _)) = (Instant::ZERO, bench::disk(&workers));
        let flushed = bench::submit(&mut workers[0], Op::Flush, Flags::NONE, &(0..0), &[]);
        turned(&mut workers[0].0, &mut now);
        now += fairlift_core::time::secs(31);
        turned(&mut workers[0].0, &mut now);
        assert_eq!(workers[0].0.news, [(flushed, News::TimedOut), (flushed, News::Released)]);
        workers[0].0.news.clear();
        workers[0].0.release(flushed);
        schedule(&disk, Kind::Fair);
        let mut turn_all = |workers: &mut bench::Workers| {
            (0..2).for_each(|_| workers.iter_mut().for_each(|(engine, _)| turned(engine, &mut now)));
        };
        turn_all(&mut workers);
        assert!(disk.is_frozen(), "the device has a flush of the queues before");
        device.set_faults(&Faults::default());
        turn_all(&mut workers);
        assert!(!disk.is_frozen() && disk.scheduler() == Kind::Fair);
        let flushed = bench::submit(&mut workers[1], Op::Flush, Flags::NONE, &(0..0), &[]);
        turn_all(&mut workers);
        assert_eq!(workers[1].0.news, [(flushed, News::Ended(Outcome::Done))]);
        workers[1].0.release(flushed);
        bench::assert_at_rest(&workers);
    }

    /// handover.3: a worker takes its streams over when it looks, and until then no new queue has them.
    #[test]
    fn a_group_stays_until_each_worker_has_taken_its_streams_over() {
        let mut workers = bench::workers(device(), Kind::None, 2);
        let (mut now, (disk, _)) = (Instant::ZERO, bench::disk(&workers));
        let (id, parent) = (GroupId(1), Some(GroupId::ROOT));
        disk.add_group(now, id, &Group { path: "/alice".into(), parent, weight: Weight::DEFAULT });
        let alice = Stream { group: id, priority: Priority::default(), context: ContextId(0) };
        let alice = workers[0].0.add_stream(0, alice);
        schedule(&disk, Kind::Fair);
        workers.iter_mut().for_each(|(engine, _)| turned(engine, &mut now));
        assert!(!disk.is_frozen(), "the last one has put the new queue in place");
        assert!(!disk.remove_group(now, id), "a client of the first worker is in it");
        turned(&mut workers[0].0, &mut now);
        workers[0].0.remove_stream(0, alice);
        assert!(disk.remove_group(now, id));
    }

    #[test]
    fn other_bounds_freeze_nothing_unless_workers_share_tags_and_there_is_no_room_for_so_many() {
        let bounds = |disk: &Disk| {
            let queues = disk.look().queues;
            let each = queues.each().map(|queue| (queue.settings().depth, queue.settings().nr_requests));
            each.collect::<Vec<_>>()
        };
        let one = disk(Kind::Fair);
        turn(&one, |settings| settings.depth = Some(4096));
        assert_eq!((one.is_frozen(), bounds(&one)), (false, vec![(4096, 8192)]));
        let settings = config::Disk { shared_tags: true, depth: Some(4), ..config::Disk::new("d", Kind::None) };
        let several = disk_with(&settings);
        turn(&several, |settings| (settings.depth, settings.nr_requests) = (Some(64), Some(70)));
        assert_eq!((several.is_frozen(), bounds(&several)), (false, vec![(64, 70); 2]));
        assert_eq!(several.look().queues.tags().map(|tags| tags.depth()), Some(64));
        turn(&several, |settings| (settings.depth, settings.nr_requests) = (Some(65), None));
        assert!(several.is_frozen(), "there is room for 16 times as many tags as at first");
        (0..2).for_each(|worker| _ = several.arrive(ContextId(worker)));
        assert_eq!((several.is_frozen(), bounds(&several)), (false, vec![(65, 130); 2]));
    }

    /// disk.4
    #[test]
    fn a_disk_that_nobody_uses_has_no_queue_and_begins_with_what_was_changed_until_then() {
        let (disk, now, alice) = (unused(&config::Disk::new("d", Kind::MqDeadline)), Instant::ZERO, GroupId(1));
        disk.add_group(
            now,
            alice,
            &Group { path: "/alice".into(), parent: Some(GroupId::ROOT), weight: Weight::new(100) },
        );
        disk.set_weight(now, alice, Weight::new(300));
        schedule(&disk, Kind::Fair);
        turn(&disk, |settings| settings.set.push(("isolation_cost".into(), "5".into())));
        let read_expire = vec![("read_expire".into(), "5ms".into())];
        assert!(disk.check(&config::Disk { set: read_expire, ..disk.settings() }).is_err(), "mq-deadline had it");
        turn(&disk, |settings| settings.depth = Some(7));
        assert!(disk.queues().is_none() && disk.scheduler() == Kind::Fair && !disk.is_frozen());
        let queues = disk.enter(ContextId(1)).queues;
        let queue = queues.of(ContextId(1));
        let settings = queue.settings();
        assert_eq!((settings.scheduler, settings.depth), (Kind::Fair, 7));
        assert_eq!(queue.tunable("isolation_cost").as_deref(), Some("5"));
        assert_eq!(queue.groups().iter().find(|(id, _)| *id == alice).map(|(_, group)| group.weight.get()), Some(300));
    }

    /// handover.3
    #[test]
    fn a_worker_without_a_client_here_is_not_waited_for() {
        let disk = unused(&config::Disk::new("d", Kind::None));
        disk.enter(ContextId(1));
        schedule(&disk, Kind::Fair);
        assert!(disk.is_frozen() && disk.arrive(ContextId(1)) && !disk.is_frozen());
    }

    /// handover.7
    #[test]
    fn what_was_learned_of_the_disk_outlasts_queues() {
        let disk = disk(Kind::Fair);
        disk.look().queues.of(ContextId(0)).recall(vec![(Kind::Cfq, Record::default())]);
        let kinds = |disk: &Disk| disk.look().queues.of(ContextId(0)).take_learned().into_iter().map(|(kind, _)| kind);
        hand_over(&disk, Kind::None);
        assert_eq!(kinds(&disk).count(), 0, "queues of several workers have no use for it");
        hand_over(&disk, Kind::Bfq);
        assert_eq!(kinds(&disk).collect::<Vec<_>>(), [Kind::Cfq, Kind::Fair, Kind::Bfq]);
    }

    /// handover.3, handover.4
    #[test]
    fn a_worker_that_has_ended_is_not_waited_for_and_counts_go_on() {
        let disk = disk(Kind::None);
        flush(&disk, Outcome::Done);
        let count = |disk: &Disk| {
            let mut flushes = 0;
            disk.counters(&mut |name, count| flushes += if name == "flushes_asked" { count } else { 0 });
            (flushes, disk.stats_by_group(Instant::ZERO).len())
        };
        assert_eq!(count(&disk), (1, 1));
        assert!(!disk.leave(ContextId(1)));
        schedule(&disk, Kind::Fair);
        schedule(&disk, Kind::Bfq);
        assert!(disk.arrive(ContextId(0)));
        assert_eq!((disk.scheduler(), count(&disk)), (Kind::Bfq, (1, 1)), "the last that was chosen");
    }
}
