//! Flushes that threads and tasks share: `fairlift_core::flush`, and the sleeping beyond it.
//!
//! Eight threads of a database each write a line of a log and call `fdatasync`. If the disk takes 5 ms for each call, the last
//! thread waits 40 ms; yet one call that begins after all have asked serves them all. The core knows which calls are needed.
//! Here is decided which thread makes one. The idea: a thread that finds that a call is due becomes the *leader* and makes it,
//! and the others sleep and share how it ended. The first of the eight leads at once; the seven that ask meanwhile share the
//! second call, and the last of them waits 10 ms.
//!
//! lead.1  A waiter that finds that a flush is to start leads: it flushes the device itself, with no lock held. All others sleep, or go on
//!         with other work.
//! lead.2  When the leader is done, how the flush ended is noted for all waiters that shared it, under the lock, before any is
//!         woken and before another flush can start. So the next flush may come and go while they are on their way: each finds
//!         its own end.
//! lead.3  Then the waiter that has waited longest is woken to lead the next. A waiter that comes before it leads instead, and
//!         the woken one waits on: it is not counted on for anything but to look.
//! lead.4  A waiter that gives up, woken or not, has another one look.
//! lead.5  A leader that gives up before it has begun hands over: another waiter leads. A leader that gives up later, or panics, leaves a flush
//!         with an unknown outcome: it counts as failed (`ECANCELED`), and is remembered like any failure, for the device's word on it was
//!         told to the leader alone. A task that may be dropped has the device asked by a thread that is not.
//! lead.6  A waiter with a time limit ([`FlushQueue::flush_within`]) gives up when it is over, however long the device takes.
//!
//! No flush waits for company here, as that would take a timer.
//!
//! ```
//! # extern crate fairlift_threads as fairlift;
//! use fairlift::flush::FlushQueue;
//! use std::io::Write;
//!
//! # let path = std::env::temp_dir().join(format!("fairlift-doc-{}", std::process::id()));
//! let (file, flushes) = (std::fs::File::create(&path)?, FlushQueue::new());
//! std::thread::scope(|scope| {
//!     for _ in 0..8 {
//!         scope.spawn(|| {
//!             (&file).write_all(b"a line of the log\n").unwrap();
//!             flushes.wrote();
//!             flushes.flush(|| file.sync_data()).unwrap(); // one for all that ask meanwhile
//!         });
//!     }
//! });
//! assert_eq!(flushes.counts().requested, 8);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A task asks by [`FlushQueue::join`]. If it is to lead, the device is best asked on a thread that nobody drops:
//!
//! ```
//! # extern crate fairlift_threads as fairlift;
//! use fairlift::flush::{FlushQueue, Turn};
//! use fairlift_core::{Errno, Outcome};
//! use std::{fs::File, sync::Arc};
//!
//! async fn flush(file: Arc<File>, flushes: &'static FlushQueue) -> Outcome {
//!     let lead = match flushes.join().await {
//!         Turn::Ended(outcome) => return outcome, // shared with another's flush
//!         Turn::Lead(lead) => lead,
//!     };
//!     // With an executor: spawn_blocking(..).await. Dropped while it waits, this task takes nothing from those that share.
//!     let device = std::thread::spawn(move || {
//!         let running = lead.begin();
//!         running.ended(match file.sync_data() {
//!             Ok(()) => Outcome::Done,
//!             Err(error) => Outcome::Failed(Errno(error.raw_os_error().unwrap_or(5))),
//!         })
//!     });
//!     device.join().expect("it does not panic")
//! }
//! # use std::{pin::pin, task::{Context, Poll, Waker}};
//! # let flushes = Box::leak(Box::new(FlushQueue::new()));
//! # let file = Arc::new(File::open("/dev/null")?);
//! # let _ = pin!(flush(file, flushes)).poll(&mut Context::from_waker(Waker::noop()));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use fairlift_core::flush::{Counts, Dirty, Flush, Round, Settings, Start};
use fairlift_core::{ContextId, Errno, Outcome};
use slab::Slab;

use crate::clock;
use crate::sync::{Mutex, MutexGuard, Parker, Sleeper, lock};

/// There is one context here: waiters are told apart by their rounds.
const CONTEXT: ContextId = ContextId(0);

/// Makes one flush of many that are asked for together; see the [module](self).
pub struct FlushQueue {
    dirty: Arc<Dirty>,
    state: Mutex<State>,
}

struct State {
    flush: Flush,
    waiters: Slab<Waiter>,
    /// Waiters that have not been told, in the order in which they asked.
    waiting: VecDeque<usize>,
    /// A waiter is to lead, and has not begun (lead.5).
    leading: bool,
}

struct Waiter {
    round: Round,
    /// How it ended, once it has (lead.2).
    ended: Option<Outcome>,
    sleeper: Sleeper,
}

/// The fate of a waiter that asked for a flush.
#[must_use]
pub enum Turn<'a> {
    /// It is to flush the device, and to say how that ended.
    Lead(Lead<'a>),
    /// It shared a flush that ended.
    Ended(Outcome),
}

impl Default for FlushQueue {
    fn default() -> Self {
        Self::with_settings(Settings::default())
    }
}

impl FlushQueue {
    /// Of a device with a volatile cache, in which something may be.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, with settings of one's own; only [`Settings::remember`] counts here.
    #[must_use]
    pub fn with_settings(settings: Settings) -> Self {
        let flush = Flush::new(Settings { group_commit: 0, ..settings }, true);
        let dirty = Arc::clone(flush.dirty());
        Self {
            dirty,
            state: Mutex::new(State { flush, waiters: Slab::new(), waiting: VecDeque::new(), leading: false }),
        }
    }

    /// A write has ended. Without this, flushes find nothing to do: to be said before anybody counts on the write.
    pub fn wrote(&self) {
        self.dirty.mark();
    }

    /// Makes durable all that had been [written](FlushQueue::wrote), by `device` or by sharing another caller's call of it;
    /// sleeps as long as that takes.
    ///
    /// # Errors
    /// The device failed; or one before did, and nobody has [taken note](FlushQueue::acknowledge).
    pub fn flush(&self, device: impl FnOnce() -> io::Result<()>) -> Result<(), Errno> {
        self.flush_by(None, device)
    }

    /// The same, waiting for others' flushes for so long at most (lead.6): a device that hangs in one of them is not waited for.
    /// One's own call of `device` takes as long as it takes.
    ///
    /// # Errors
    /// As [`FlushQueue::flush`]; and `ETIMEDOUT`: it is not known whether what was written is durable.
    pub fn flush_within(&self, time: Duration, device: impl FnOnce() -> io::Result<()>) -> Result<(), Errno> {
        self.flush_by(Instant::now().checked_add(time), device)
    }

    fn flush_by(&self, end: Option<Instant>, device: impl FnOnce() -> io::Result<()>) -> Result<(), Errno> {
        let parker = Parker::new();
        let mut asking = Asking { queue: self, waiter: None, leads: false };
        let turn = loop {
            match asking.look(|| Sleeper::Thread(parker.unparker())) {
                Some(turn) => break turn,
                None if parker.park_until(end) => {}
                None => return Err(Errno::ETIMEDOUT),
            }
        };
        let outcome = match turn {
            Turn::Ended(outcome) => outcome,
            Turn::Lead(lead) => lead.begin().ended(crate::outcome::outcome(device())),
        };
        match outcome {
            Outcome::Done => Ok(()),
            Outcome::Failed(errno) => Err(errno),
        }
    }

    /// Asks for a flush as a task: awaited, it has ended or is to be done. Dropped before, it disturbs nobody. Kept, but not
    /// polled when it is woken, it may hold up those that wait behind it: it could be the one that is to look (lead.3).
    pub fn join(&self) -> Join<'_> {
        Join(Asking { queue: self, waiter: None, leads: false })
    }

    /// The operator, or a program that knows the loss, acknowledges it: later flushes succeed if the device says so.
    pub fn acknowledge(&self) {
        self.lock().flush.acknowledge();
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().flush.counts()
    }

    /// How many wait, or are on their way from having waited.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().waiters.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Changes the state, and wakes waiters once the lock has been given back.
    fn wake_after<R>(&self, change: impl FnOnce(&mut State, &mut Vec<Sleeper>) -> R) -> R {
        let mut wake = Vec::new();
        let result = change(&mut self.lock(), &mut wake);
        wake.into_iter().for_each(Sleeper::wake);
        result
    }
}

impl State {
    /// Notes how it ended for its waiters (lead.2), and answers whether a flush is to start; `wake` gets
    /// the waiters to be woken when the lock has been given back.
    fn settle(&mut self, wake: &mut Vec<Sleeper>) -> bool {
        if self.leading {
            return false;
        }
        let start = self.flush.poll_start(clock::now());
        while let Some(number) = self.waiting.front()
            && let Some(outcome) = self.flush.take(self.waiters[*number].round)
        {
            let waiter = &mut self.waiters[*number];
            waiter.ended = Some(outcome);
            wake.push(waiter.sleeper.clone());
            self.waiting.pop_front();
        }
        start == Start::Now
    }

    /// As [`State::settle`], and has the first that waits look if a flush is to start (lead.3).
    fn pass_on(&mut self, wake: &mut Vec<Sleeper>) {
        if self.settle(wake)
            && let Some(first) = self.waiting.front()
        {
            wake.push(self.waiters[*first].sleeper.clone());
        }
    }
}

struct Asking<'a> {
    queue: &'a FlushQueue,
    waiter: Option<usize>,
    /// It is to lead, and has not begun.
    leads: bool,
}

impl<'a> Asking<'a> {
    /// Asks, if it has not; then what has become of it, or `None` while it is to sleep.
    fn look(&mut self, sleeper: impl FnOnce() -> Sleeper) -> Option<Turn<'a>> {
        self.queue.wake_after(|state, wake| {
            let (number, sleeper) = match self.waiter {
                Some(number) => (number, Some(sleeper)),
                None => {
                    let round = state.flush.ask(clock::now(), CONTEXT);
                    let number = state.waiters.insert(Waiter { round, ended: None, sleeper: sleeper() });
                    state.waiting.push_back(number);
                    self.waiter = Some(number);
                    (number, None)
                }
            };
            let turn = self.turn(state, number, wake);
            if let (None, Some(sleeper)) = (&turn, sleeper) {
                state.waiters[number].sleeper = sleeper();
            }
            turn
        })
    }

    fn turn(&mut self, state: &mut State, number: usize, wake: &mut Vec<Sleeper>) -> Option<Turn<'a>> {
        let start = state.settle(wake);
        if let Some(outcome) = state.waiters[number].ended {
            state.waiters.remove(number);
            self.waiter = None;
            if start && let Some(first) = state.waiting.front() {
                wake.push(state.waiters[*first].sleeper.clone());
            }
            return Some(Turn::Ended(outcome));
        }
        if !start {
            return None;
        }
        state.leading = true; // lead.1
        self.waiter = None;
        Some(Turn::Lead(Lead(Asking { queue: self.queue, waiter: Some(number), leads: true })))
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Some(number) = self.waiter else { return };
        self.queue.wake_after(|state, wake| {
            let waiter = state.waiters.remove(number);
            if self.leads {
                state.leading = false; // lead.5
            }
            if waiter.ended.is_none() {
                state.waiting.retain(|other| *other != number);
                state.flush.cancel(waiter.round);
            }
            state.pass_on(wake); // lead.4
        });
    }
}

/// The duty to flush the device; see [`Turn::Lead`]. Dropped, it is another waiter's (lead.5).
#[must_use = "others wait until it has ended"]
pub struct Lead<'a>(Asking<'a>);

impl<'a> Lead<'a> {
    /// The device is about to be asked: waiters that ask from now on share the next flush.
    pub fn begin(mut self) -> Running<'a> {
        let queue = self.0.queue;
        let number = self.0.waiter.take().expect("who leads waits until it begins");
        let mut state = queue.lock();
        state.leading = false;
        let round = state.flush.start(clock::now());
        state.waiting.retain(|other| *other != number);
        state.waiters.remove(number);
        drop(state);
        Running { queue, round: Some(round) }
    }
}

/// A flush that is under way; see [`Lead::begin`].
#[must_use = "others wait until it has ended"]
pub struct Running<'a> {
    queue: &'a FlushQueue,
    /// The flush; `None` once it has ended.
    round: Option<Round>,
}

impl Running<'_> {
    /// The device has answered a flush that was asked for after this began. Answers how it ended for the leader: a
    /// success after a failure that nobody has taken note of is none.
    pub fn ended(mut self, outcome: Outcome) -> Outcome {
        self.tell(outcome)
    }

    fn tell(&mut self, outcome: Outcome) -> Outcome {
        let Some(round) = self.round.take() else { return outcome };
        self.queue.wake_after(|state, wake| {
            state.flush.end(clock::now(), outcome);
            let outcome = state.flush.take(round).expect("it has just ended");
            state.pass_on(wake);
            outcome
        })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.tell(Outcome::Failed(Errno(libc::ECANCELED))); // lead.5
    }
}

/// A flush that a task asked for; see [`FlushQueue::join`].
#[must_use = "it asks for nothing unless it is polled"]
pub struct Join<'a>(Asking<'a>);

impl<'a> Future for Join<'a> {
    type Output = Turn<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Turn<'a>> {
        self.0.look(|| Sleeper::Task(context.waker().clone())).map_or(Poll::Pending, Poll::Ready)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// lead.6
    #[test]
    fn who_waits_for_a_time_only_is_told_though_the_device_hangs() {
        let flushes = FlushQueue::new();
        let (began, hear) = channel();
        let (release, released) = channel::<()>();
        std::thread::scope(|scope| {
            let flushes = &flushes;
            let stuck = scope.spawn(move || {
                flushes.flush(|| {
                    began.send(()).unwrap();
                    released.recv().unwrap();
                    Ok(())
                })
            });
            hear.recv().unwrap();
            let late = flushes.flush_within(Duration::from_millis(1), || unreachable!("a flush is under way"));
            assert_eq!((late, flushes.waiting()), (Err(Errno::ETIMEDOUT), 0));
            release.send(()).unwrap();
            assert_eq!(stuck.join().unwrap(), Ok(()));
        });
        // Nothing was poisoned, and a waiter that is alone waits for no other.
        flushes.wrote();
        assert_eq!(flushes.flush_within(Duration::ZERO, || Ok(())), Ok(()));
    }
}
