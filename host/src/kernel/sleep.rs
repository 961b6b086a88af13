//! How a worker waits: it looks for news for a moment, and only then sleeps.

use std::sync::OnceLock;

use fairlift_core::{Duration, Instant};

use crate::clock;
use crate::kernel::ring::Ring;

/// How long a worker looks for news before it sleeps: going to sleep and being woken costs more. Measured (docs/measured/workers.md, depth 1):
/// a client that sleeps on a virtual CPU needs 30 to 40 µs to be woken and to ask again, and a read of flash takes as long. With 32 µs,
/// QEMU's default (`poll-max-ns`), both came just too late, and were slept for; 64 µs bring no more than 48.
const SPIN: Duration = fairlift_core::time::us(48);

/// A worker with more requests than this, waiting or in devices, sleeps without looking for news. A worker that looks finds each answer after
/// a few microseconds, and has a turn for it alone. A worker that sleeps leaves its processor to the clients, and is told of several
/// answers at once. Measured (docs/measured/workers.md): a client with up to 16 requests has up to 1.3 times the rate where its worker
/// looks, and two clients of 64 at weights of 3:1 have 0.8 times theirs.
const FEW: usize = 16;

/// How much earlier a timer is set; the rest is spun, because a timer wakes a sleeper 20 µs late or more.
const LEAD: Duration = fairlift_core::time::us(32);

/// The longest wait that says whether a spin would have paid. Chosen: [`SPIN`], and 64 µs by which a virtual CPU was seen to be woken
/// late.
const SHORT: Duration = fairlift_core::time::us(112);

/// The most short waits to sleep through after a spin that failed, before the next spin. Chosen: a spin that fails then costs an
/// eighth of a microsecond for each wait.
const PAUSE: u32 = 256;

pub(crate) struct Sleep {
    /// By whether devices have requests: a client's pause says nothing of how long a disk takes.
    habits: [Habit; 2],
    /// Whether others have another CPU to run on meanwhile.
    may_spin: bool,
    /// For how long it has looked for news, since the start.
    pub(crate) looked: Duration,
}

/// Whether looking has paid for waits of one kind.
#[derive(Clone, Copy, Default)]
struct Habit {
    /// The number of short waits to sleep through.
    pause: u32,
    /// How many it was after the last time in vain.
    last: u32,
}

impl Habit {
    /// Looking was worth while, or not: what pays every second time is no more than guessed.
    fn tried(&mut self, paid: bool) {
        self.last = if paid { self.last / 2 } else { (2 * self.last).clamp(1, PAUSE) };
        self.pause = self.last;
    }

    fn slept(&mut self, length: Duration) {
        if length < SHORT {
            self.pause = self.pause.saturating_sub(1);
        } else {
            self.pause = self.pause.max(1);
        }
    }
}

/// Whether others have another CPU to run on while we look for their work.
pub(crate) fn may_spin() -> bool {
    // Asked once: the answer is several system calls away, and a server may have 10,000 disks.
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1))
}

impl Sleep {
    pub(crate) fn new() -> Self {
        Self { habits: [Habit { pause: 1, last: 0 }; 2], may_spin: may_spin(), looked: Duration::ZERO }
    }

    /// It is `before`: submits what was collected and waits for something to complete, or until something is due; the time
    /// afterwards. `open`: how many requests have no answer yet. `looks`: news may come at any time, so that it may be worth while to look for it.
    ///
    /// `watch` tells whether there is something to do that the ring does not know of; it is told whether we are about to
    /// sleep, so that it can see to it that the ring hears.
    ///
    /// A timer is set earlier ([`LEAD`]), and the rest is looked through.
    pub(crate) fn until(
        &mut self,
        ring: &mut Ring,
        before: Instant,
        due: Option<Instant>,
        open: usize,
        looks: bool,
        mut watch: impl FnMut(bool) -> bool,
    ) -> Instant {
        let mut now = before;
        let (busy, looks) = (open > 0, looks && open <= FEW);
        let spins = looks && self.may_spin && self.habits[usize::from(busy)].pause == 0;
        if spins || self.is_near(now, due) {
            ring.submit();
            // Submitting to a disk may take as long as the disk.
            let found;
            (now, found) = self.look(ring, clock::now(), due, || watch(false));
            let is_due = due.is_some_and(|due| now >= due);
            if spins && (found || !is_due) {
                self.habits[usize::from(busy)].tried(found);
            }
            if !ring.has_news() && (found || is_due) {
                return clock::now();
            }
        }
        // It may come to nothing, as for a read that goes on with its next page: without `watch` nobody sleeps.
        let has_news = ring.has_news();
        if !has_news && watch(true) {
            ring.submit();
            return clock::now();
        }
        let lead = if self.may_spin { LEAD } else { Duration::ZERO };
        ring.turn(if has_news { Some(Duration::ZERO) } else { due.map(|due| due.since(now + lead)) });
        now = clock::now();
        if !spins && looks {
            self.habits[usize::from(busy)].slept(now.since(before));
        }
        if self.is_near(now, due) && !ring.has_news() {
            (now, _) = self.look(ring, now, due, || watch(false));
            if ring.has_news() {
                ring.turn(Some(Duration::ZERO));
            }
        }
        now
    }

    /// Looks for news for a moment, though not longer than until something is due; the time afterwards, and whether there is some.
    fn look(
        &mut self,
        ring: &mut Ring,
        from: Instant,
        due: Option<Instant>,
        mut watch: impl FnMut() -> bool,
    ) -> (Instant, bool) {
        let mut now = from;
        let found = loop {
            if ring.has_news() || watch() {
                break true;
            }
            if now.since(from) >= SPIN || due.is_some_and(|due| now >= due) {
                break false;
            }
            (0..8).for_each(|_| std::hint::spin_loop());
            now = clock::now();
        };
        self.looked = self.looked + now.since(from);
        (now, found)
    }

    /// Whether something is due so soon that it is not worth while to sleep.
    fn is_near(&self, now: Instant, due: Option<Instant>) -> bool {
        self.may_spin && due.is_some_and(|due| now < due && due.since(now) <= LEAD)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::kernel::call::Call;
    use crate::kernel::ring::Kind;

    #[test]
    fn time_goes_on_though_something_is_always_due_already() {
        let mut ring = Ring::new(Kind::Poll, 8, 8, 1).unwrap();
        let mut sleep = Sleep { habits: [Habit::default(); 2], may_spin: true, looked: Duration::ZERO };
        let start = clock::now();
        let mut now = start;
        for _ in 0..1000 {
            now = sleep.until(&mut ring, now, Some(now), 0, true, |_| false);
        }
        assert!(now > start);
    }

    /// Example: a disk answers within the time once, twice not, and then always.
    #[test]
    fn looking_in_vain_is_tried_ever_less_often_and_goes_on_once_it_pays() {
        let mut habit = Habit::default();
        habit.tried(true);
        assert_eq!(habit.pause, 0, "it pays");
        let mut pauses = Vec::new();
        for _ in 0..12 {
            habit.tried(false);
            pauses.push(habit.pause);
            (0..habit.pause).for_each(|_| habit.slept(SPIN));
        }
        assert_eq!(pauses[..4], [1, 2, 4, 8]);
        assert_eq!(pauses[11], PAUSE);
        (0..9).for_each(|_| habit.tried(true));
        assert_eq!(habit.pause, 0);
        habit.slept(SHORT + SHORT);
        assert_eq!(habit.pause, 1, "what took long is slept through, and the next one like it");
    }

    /// Example: what a receive is woken for has been taken by somebody else. The kernel has something to do, and nothing completes.
    #[test]
    fn nobody_sleeps_before_the_front_has_been_asked_though_the_kernel_had_something_to_do() {
        let Ok(mut ring) = Ring::new(Kind::IoUring, 8, 8, 1) else {
            return println!("skipped: io_uring is not to be had");
        };
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let into = Some((Box::leak(Box::new(0_u8)) as *mut u8, 1));
        // SAFETY: the memory stays for ever, and is the call's alone; the socket is there longer than it.
        unsafe { ring.push(Call::Receive { fd: ours.as_raw_fd(), into, wait: true }, 0) }
        ring.submit();
        theirs.write_all(&[1]).unwrap();
        ours.read_exact(&mut [0]).unwrap();
        let mut sleep = Sleep { habits: [Habit { pause: 1, last: 0 }; 2], may_spin: false, looked: Duration::ZERO };
        let (before, mut is_asked) = (clock::now(), false);
        let due = before + fairlift_core::time::ms(200);
        let now = sleep.until(&mut ring, before, Some(due), 0, true, |sleeps| {
            is_asked |= sleeps;
            false
        });
        assert!(is_asked || now < due, "it slept, and the front has not seen to it that events wake the worker");
    }

    /// News that only the front sees end a wait, looked for or slept. With many requests open it is slept, though looking has paid.
    #[test]
    fn a_wait_ends_for_what_the_ring_does_not_know_of() {
        let mut ring = Ring::new(Kind::Poll, 8, 8, 1).unwrap();
        for (open, pause) in [(0, 0), (0, 1), (FEW, 0), (FEW + 1, 0)] {
            let habit = Habit { pause, last: 0 };
            let mut sleep = Sleep { habits: [habit; 2], may_spin: true, looked: Duration::ZERO };
            let mut answers = Vec::new();
            sleep.until(&mut ring, clock::now(), None, open, true, |sleeps| {
                answers.push(sleeps);
                true
            });
            assert_eq!(answers, [pause > 0 || open > FEW], "{open} requests");
        }
    }
}
