//! Turns: how busy each worker is.
//!
//! A worker's time within a system call is work too, so the kernel is asked for the time that its thread had a CPU, and for the time that
//! it waited for one. Only what it spent looking for news is known to itself alone. One thread writes a row and others read it: it costs a
//! worker a few stores in each turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use fairlift_core::{Duration, Instant};

#[derive(Default)]
#[repr(align(128))] // no two rows share a line of the cache, or the pair of lines that is fetched together
pub(crate) struct Turns {
    /// Its thread; 0: there is none.
    thread: AtomicI32,
    count: AtomicU64,
    completions: AtomicU64,
    /// How often it found requests that wait for nothing (stuck.1).
    stuck: AtomicU64,
    /// For how long it looked for news, in nanoseconds.
    looked: AtomicU64,
    /// The longest that was told of it having run, in nanoseconds: the kernel counts a turn later than it is known what of it was looking.
    reported: AtomicU64,
    /// When its next turn is due, or the one that it is in began, in nanoseconds; 0: it comes whenever something happens.
    due: AtomicU64,
}

/// The same at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Worked {
    /// Turns begun.
    pub turns: u64,
    /// Completions taken in them.
    pub completions: u64,
    /// How often it found requests on a disk that wait for nothing, which is a fault of the server.
    pub stuck: u64,
    /// For how long it had a CPU and did something with it.
    pub ran: Duration,
    /// For how long it had something to do and no CPU, up to when it had one last.
    pub delayed: Duration,
    /// How often it was given a CPU.
    pub runs: u64,
    /// Whether it has a CPU at this moment or waits for one.
    pub wants: bool,
}

impl Turns {
    pub(crate) fn rows(workers: usize) -> Arc<[Self]> {
        (0..workers).map(|_| Self::default()).collect()
    }

    pub(crate) fn begin(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_pid(), Ordering::Relaxed);
    }

    /// A turn has taken `completions`, and has looked for news for a time.
    #[inline]
    pub(crate) fn turn(&self, completions: u64, looked: Duration) {
        self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.completions.store(self.completions.load(Ordering::Relaxed) + completions, Ordering::Relaxed);
        self.looked.store(looked.as_nanos(), Ordering::Relaxed);
    }

    /// It waits, until then at the latest; or is in a turn since then: what it gives to devices in it has no other sign that it stands
    /// still.
    #[inline]
    pub(crate) fn waits(&self, due: Option<Instant>) {
        self.due.store(due.map_or(0, Instant::as_nanos), Ordering::Relaxed);
    }

    /// How late at `now` the worker is that is latest: its next turn, or the end of the one that it is in.
    pub(crate) fn latest(rows: &[Self], now: Instant) -> Duration {
        let dues = rows.iter().map(|row| row.due.load(Ordering::Relaxed)).filter(|due| *due > 0);
        dues.map(|due| now.since(Instant::from_nanos(due))).max().unwrap_or(Duration::ZERO)
    }

    pub(crate) fn found_stuck(&self, disks: u64) {
        self.stuck.fetch_add(disks, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Worked {
        let of = |row: &AtomicU64| row.load(Ordering::Relaxed);
        let thread = self.thread.load(Ordering::Relaxed);
        let [cpu, delayed, runs] = scheduled(thread);
        let ran = cpu.saturating_sub(of(&self.looked));
        let ran = Duration::from_nanos(self.reported.fetch_max(ran, Ordering::Relaxed).max(ran));
        Worked {
            turns: of(&self.count),
            completions: of(&self.completions),
            stuck: of(&self.stuck),
            ran,
            delayed: Duration::from_nanos(delayed),
            runs,
            wants: wants(thread),
        }
    }
}

/// Whether a thread of ours has a CPU or waits for one.
fn wants(thread: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    text.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('R'))
}

/// For how long a thread of ours had a CPU, for how long it waited for one, and how often it was given one.
fn scheduled(thread: i32) -> [u64; 3] {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
    let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap_or(0));
    [(); 3].map(|()| numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::time::us;

    /// Example: one worker has nothing to do, and the other was due 3 µs ago.
    #[test]
    fn the_latest_turn_is_that_of_the_worker_that_was_due_first() {
        let (rows, now) = (Turns::rows(3), Instant::ZERO + us(5));
        assert_eq!(Turns::latest(&rows, now), Duration::ZERO, "none has begun");
        rows[1].waits(Some(now + us(2)));
        rows[2].waits(Some(now + us(3)));
        assert_eq!((Turns::latest(&rows, now), Turns::latest(&rows, now + us(5))), (Duration::ZERO, us(3)));
        rows[0].waits(Some(Instant::ZERO + us(1)));
        assert_eq!(Turns::latest(&rows, now), us(4), "it stands still in a turn");
        rows.iter().for_each(|row| row.waits(None));
        assert_eq!(Turns::latest(&rows, Instant::MAX), Duration::ZERO);
    }

    #[test]
    fn what_a_worker_did_is_its_time_on_a_cpu_without_what_it_looked_for_news() {
        let turns = Turns::default();
        assert_eq!(turns.read(), Worked::default(), "there is no thread");
        turns.begin();
        let mut sum = 0_u64;
        (0..20_000_000).for_each(|n| sum = std::hint::black_box(sum ^ n));
        turns.turn(3, Duration::ZERO);
        let before = turns.read();
        assert!(before.ran > us(100), "{before:?}");
        turns.turn(4, Duration::from_nanos(u64::MAX));
        let after = turns.read();
        assert_eq!((after.turns, after.completions, after.ran), (2, 7, before.ran), "never less than was told");
        turns.reported.store(0, Ordering::Relaxed);
        assert_eq!(turns.read().ran, Duration::ZERO, "it only looked for news");
        assert!(after.wants && after.runs > 0, "it runs: {after:?}");
    }
}
