//! A worker: one thread with one ring, on which a front and the devices meet.
//!
//! A turn: submit what was collected and wait, in one system call; read the clock; take in all that completed; let the
//! disks and the front answer each other until neither has news; then collect what the kernel shall do next. A client that
//! keeps 32 requests in flight is so received, queued, served and answered 32 at a time.

pub(crate) mod turns;

use std::sync::Arc;

use fairlift_core::{ContextId, Duration, Instant};

use crate::clock;
use crate::disk::Disks;
use crate::disk::engine::{Engine, LOOK};
use crate::export::front::Front;
use crate::kernel::buffer::Pool;
use crate::kernel::helpers::Helpers;
use crate::kernel::notify::Notifiers;
use crate::kernel::ring::{Choice, Completion, Ring, Source};
use crate::kernel::sleep::Sleep;
use turns::Turns;

/// How often the disks and the front answer each other before the ring is looked at. Chosen: a bound is all that matters. A front
/// that asks by itself, of a device that answers at once, would else keep the worker for ever.
const ROUNDS: usize = 64;

/// How many completions a worker of programs takes in before the disk gets what they ask next. A disk that waits for all of 32 is idle
/// meanwhile. Measured (docs/measured/workers.md): with 4 and `flight.1` a file does 1.15 to 1.4 times the I/O; with 2 it is little more, at
/// a fifth more processor time. Clients are answered by messages, which more of them share: their workers take in all.
const IN_A_TURN: u64 = 4;

/// How often a worker that is ending looks at its disks: the worker that was to look when the disk's idling ends may have gone.
/// Chosen: about the longest idling.
const ENDING: Duration = fairlift_core::time::ms(10);

/// A worker that is late by this much did not run: the process was stopped, its virtual machine was, or it had no CPU. Chosen: no timer is
/// as late on a machine that does anything else, and no `io_timeout` in use is as short.
const STALL: Duration = fairlift_core::time::secs(1);

/// The parts of a worker below its fronts.
pub(crate) struct Backend {
    pub(crate) disks: Arc<Disks>,
    /// How many files there can be on all disks, by their registered numbers.
    pub(crate) files: u32,
    pub(crate) notifiers: Arc<Notifiers>,
    pub(crate) helpers: Arc<Helpers>,
    pub(crate) turns: Arc<[Turns]>,
    pub(crate) engine: Choice,
}

/// One thread, one ring, and the front that it serves.
pub(crate) struct Worker<F> {
    // The ring, within the engine, goes before the memory that the front has registered with it.
    engine: Engine,
    front: F,
    sleep: Sleep,
    /// Of all workers.
    turns: Arc<[Turns]>,
    /// Disks and front had more to say to each other when the turn ended.
    busy: bool,
    /// When the last turn began.
    last: Instant,
    /// When to look for requests that wait for nothing.
    look_at: Instant,
}

impl Backend {
    /// An engine for the calling thread, with room for payload, and kernel threads for its ring.
    pub(crate) fn engine(&self, context: ContextId, memory: u64, threads: u32) -> std::io::Result<Engine> {
        let Self { disks, files, notifiers, helpers, .. } = self;
        let mut ring = Ring::new(self.engine.begin(), 1024, 8192, threads)?;
        ring.make_room_for_files(*files)?;
        let pool = Pool::new(memory, 64)?;
        ring.register_pool(&pool);
        notifiers.open(context, &ring);
        notifiers.arm_bell(context, &mut ring);
        Ok(Engine::new(ring, pool, context, Arc::clone(disks), Arc::clone(notifiers), Arc::clone(helpers)))
    }
}

impl<F: Front> Worker<F> {
    pub(crate) fn new(engine: Engine, front: F, turns: &Arc<[Turns]>) -> Self {
        Self {
            engine,
            front,
            sleep: Sleep::new(),
            turns: Arc::clone(turns),
            busy: true,
            last: Instant::MAX,
            look_at: Instant::ZERO,
        }
    }

    /// Serves until the front is over. Answers how many requests the devices still had when the time was over.
    pub(crate) fn run(mut self) -> usize {
        let number = usize::from(self.engine.context.0);
        self.turns[number].begin();
        loop {
            let before = clock::now();
            let due = self.due(before);
            self.turns[number].waits(due);
            let open = self.engine.open();
            let front = &mut self.front;
            let looks = !self.engine.is_pausing();
            let now = self.sleep.until(&mut self.engine.ring, before, due, open, looks, |sleeps| front.watch(sleeps));
            self.engine.now = now;
            self.look_for_stall(before, now, due);
            self.turns[number].waits(Some(now));
            let mut completions = 0;
            let most = if F::ASKS_BY_ITSELF { IN_A_TURN } else { u64::MAX };
            while completions < most
                && let Some(completion) = self.engine.ring.reap()
            {
                self.completed(&completion);
                completions += 1;
            }
            self.turns[number].turn(completions, self.sleep.looked);
            self.front.look_at_clock(&mut self.engine);
            if self.front.gives_up_at(&self.engine).is_some() {
                self.engine.lift_ceilings();
            }
            self.settle(now);
            if now >= self.look_at {
                self.look_for_stuck(now);
            }
            let is_over = self.front.is_over(&self.engine) && self.engine.in_devices() == 0;
            if is_over || self.front.gives_up_at(&self.engine).is_some_and(|end| now > end) {
                self.engine.leave();
                self.turns[number].waits(None);
                let lost = self.engine.in_devices();
                match is_over {
                    true => self.engine.ring.unregister_files(),
                    // The kernel may still use our memory: it is left to it until the process ends.
                    false => std::mem::forget(self),
                }
                return lost;
            }
        }
    }

    /// A worker that was due long ago, or whose last turn took so long, did not run. It has not heard the answers of devices meanwhile, so
    /// nothing is late yet. A worker that had nothing to do, and no time set, asks the others: it may be the first to go on, and their
    /// requests are in the queue that it shares with them.
    #[inline]
    fn look_for_stall(&mut self, before: Instant, now: Instant, due: Option<Instant>) {
        let last = std::mem::replace(&mut self.last, now);
        let mut late = due.map_or(Duration::ZERO, |due| now.since(due.max(last))).max(before.since(last));
        if now.since(before) > STALL {
            late = late.max(Turns::latest(&self.turns, now));
        }
        if late <= STALL {
            return;
        }
        tracing::warn!(
            "worker {} did not run for {:.1} s (SIGSTOP, a virtual machine that was paused, no CPU): no request is late for that",
            self.engine.context.0,
            late.as_nanos() as f64 / 1e9
        );
        // Since the last turn nothing was heard.
        self.engine.stalled(now, if due.is_some() { now.since(last) } else { late });
        // The kernel reports its news when asked.
        self.engine.ring.turn(Some(Duration::ZERO));
    }

    /// When to go on though nothing completes.
    fn due(&self, now: Instant) -> Option<Instant> {
        if self.busy {
            return Some(now);
        }
        let ending = self.front.gives_up_at(&self.engine).map(|_| now + ENDING);
        let front = self.front.poll_timeout(&self.engine, now);
        let due = [self.engine.poll_timeout(), front, ending].into_iter().flatten().min();
        let look = (self.engine.open() > 0).then_some(self.look_at.max(now));
        due.into_iter().chain(look).min()
    }

    /// Once a second, if there are turns (stuck.3).
    #[cold]
    fn look_for_stuck(&mut self, now: Instant) {
        self.look_at = now + LOOK;
        let found = self.engine.look_for_stuck(now);
        if found > 0 {
            self.turns[usize::from(self.engine.context.0)].found_stuck(found);
        }
    }

    fn completed(&mut self, completion: &Completion) {
        match Source::unpack(completion.data) {
            Source::Io { disk, place, tag } => self.engine.completed(disk, place, tag, completion.result),
            Source::Front(what) => self.front.completed(&mut self.engine, what, completion),
            Source::Wake => self.look_around(),
            Source::Bell => {
                let Engine { ring, notifiers, context, .. } = &mut self.engine;
                if !completion.goes_on {
                    notifiers.arm_bell(*context, ring);
                }
                notifiers.answer_bell(*context);
                self.look_around();
            }
            Source::Look { disk, place } => self.engine.look(disk, place),
            Source::Unheard(worker) => self.engine.notifiers.ring_bell(worker),
            Source::Nobody => {}
        }
    }

    /// Another thread has news for the front, or a disk.
    fn look_around(&mut self) {
        self.engine.notifiers.take_notice(self.engine.context);
        self.front.woken(&mut self.engine);
        self.engine.woken();
    }

    /// Lets disks and front answer each other until neither has news, then tells the kernel.
    fn settle(&mut self, mut now: Instant) {
        loop {
            self.busy = true;
            for round in 0..ROUNDS {
                if F::ASKS_BY_ITSELF && round > 0 {
                    now = clock::now();
                    self.engine.now = now;
                }
                if !self.turn_disks(now) {
                    self.busy = false;
                    break;
                }
            }
            let used = self.engine.pool.used();
            self.front.arm(&mut self.engine);
            let goes_on = self.engine.launch_all();
            // A client that is gone, or has TLS, gives memory back only now: another may wait for it.
            let freed = self.front.waits_for_memory() && self.engine.pool.used() != used;
            if self.busy || !goes_on && !freed {
                return;
            }
        }
    }

    /// Gives disks the front's requests and the front the disks' news; whether there was any.
    fn turn_disks(&mut self, now: Instant) -> bool {
        self.engine.turn(now);
        let mut news = std::mem::take(&mut self.engine.news);
        let some = !news.is_empty();
        for (ticket, what) in news.drain(..) {
            self.front.news(&mut self.engine, ticket, what);
        }
        self.engine.news = news;
        self.front.go_on(&mut self.engine) || some
    }
}

#[cfg(test)]
mod tests {
    use fairlift_core::time::secs;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::disk::engine::News;
    use crate::kernel::ring::Kind;

    struct Nobody;

    impl Front for Nobody {
        fn news(&mut self, _engine: &mut Engine, _ticket: usize, _news: News) {
            unreachable!("it asks for nothing");
        }

        fn go_on(&mut self, _engine: &mut Engine) -> bool {
            false
        }

        fn is_over(&self, _engine: &Engine) -> bool {
            true
        }
    }

    /// notify.1
    #[test]
    fn a_worker_whose_message_the_kernel_does_not_take_is_woken_by_its_bell() {
        let Ok(ring) = Ring::new(Kind::IoUring, 8, 8, 1) else {
            return println!("skipped: io_uring is not to be had");
        };
        let (notifiers, other) = (Arc::new(Notifiers::new(2).unwrap()), ContextId(1));
        let helpers = Helpers::new(1, &[], &[], 2, Arc::clone(&notifiers));
        let (pool, disks) = (Pool::new(1 << 20, 1).unwrap(), Disks::new(Vec::new()));
        let engine = Engine::new(ring, pool, ContextId(0), disks, Arc::clone(&notifiers), helpers);
        let mut worker = Worker::new(engine, Nobody, &Turns::rows(2));
        notifiers.deafen(other);
        for time in 0..2 {
            notifiers.wake(other, &mut worker.engine.ring);
            worker.engine.ring.turn(Some(secs(10)));
            while let Some(completion) = worker.engine.ring.reap() {
                worker.completed(&completion);
            }
            let bell = &mut [PollFd::from_borrowed_fd(notifiers.bell(other), PollFlags::IN)];
            assert_eq!(poll(bell, Some(&Timespec::default())), Ok(1), "nothing woke it, the {time}th time");
            notifiers.answer_bell(other);
            notifiers.take_notice(other);
        }
    }
}
