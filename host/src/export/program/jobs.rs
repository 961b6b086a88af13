//! The jobs of one thread: programs, their debts, and their work by a time.
//!
//! jobs.1  A program is told of ends and asked for more only until the time is over: what it had done by then counts.
//! jobs.2  A job that reaches beyond the end, is no whole blocks, is larger than [`ASK_MAX`], or would change a disk opened for
//!         reading, fails without the device being asked. The program hears of it in the next round.
//! jobs.3  An ask for which there is no memory waits, and its program with it.

use std::sync::atomic::{AtomicU64, Ordering};

use fairlift_core::program::{Ask, Job, Meter, Program, Unserved};
use fairlift_core::{Direction, Duration, Errno, GroupId, Instant, Limits, Op, Outcome, Sector};

use crate::sync::{Mutex, MutexGuard, lock};

/// The largest read or write, in bytes: as much as a server takes from a client by default.
pub const ASK_MAX: u64 = 32 << 20;

/// When a run starts and ends, and how it is cut into slots.
pub(crate) struct Course {
    pub(crate) start: Instant,
    pub(crate) runtime: Duration,
    pub(crate) slots: u32,
    /// When it ends, in nanoseconds: earlier than planned, if the watch says stop.
    end: AtomicU64,
    /// By group: jobs of one are in several threads.
    unserved: Vec<Mutex<Unserved>>,
}

impl Course {
    pub(crate) fn new(start: Instant, runtime: Duration, slots: u32, groups: usize) -> Self {
        let end = AtomicU64::new((start + runtime).as_nanos());
        Self { start, runtime, slots, end, unserved: (0..groups).map(|_| Mutex::default()).collect() }
    }

    /// The longest time that each group was unserved, once it is over.
    pub(crate) fn longest_unserved(&self) -> Vec<Duration> {
        (0..self.unserved.len() as u16).map(|group| self.unserved(GroupId(group)).longest(self.end())).collect()
    }

    fn unserved(&self, group: GroupId) -> MutexGuard<'_, Unserved> {
        lock(&self.unserved[usize::from(group.0)])
    }

    pub(crate) fn end(&self) -> Instant {
        Instant::from_nanos(self.end.load(Ordering::Acquire))
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now >= self.end()
    }

    /// It ends now, if it has not ended before.
    pub(crate) fn stop(&self, now: Instant) {
        self.end.fetch_min(now.as_nanos(), Ordering::AcqRel);
    }

    pub(crate) fn ran(&self) -> Duration {
        self.end().since(self.start)
    }

    /// The end of a slot, counted from 0.
    fn slot_end(&self, slot: usize) -> Instant {
        let nanos = u128::from(self.runtime.as_nanos()) * (slot as u128 + 1) / u128::from(self.slots.max(1));
        self.start + Duration::from_nanos(nanos as u64)
    }
}

/// The limits of the device in use.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) limits: Limits,
    pub(crate) read_only: bool,
}

pub(crate) struct Jobs<'a> {
    pub(crate) course: &'a Course,
    bounds: Bounds,
    list: Vec<Running>,
    /// Ends of asks that were refused (jobs.2).
    refused: Vec<(usize, u32, Outcome)>,
    timeline: Vec<Vec<u64>>,
}

struct Running {
    /// Its place among all jobs of the run.
    index: usize,
    group: GroupId,
    program: Box<dyn Program>,
    /// Something ended, or nothing was asked yet: it may have something to ask.
    touched: bool,
    due: Option<Instant>,
    /// Jobs that wait for memory (jobs.3).
    held: Option<Ask>,
    /// Bytes that the timeline has.
    bytes: u64,
}

/// The counters of the jobs of a thread at the end of the time.
pub(crate) struct Done {
    /// By the places of the jobs among all.
    pub(crate) meters: Vec<(usize, GroupId, Meter)>,
    pub(crate) timeline: Vec<Vec<u64>>,
}

impl<'a> Jobs<'a> {
    /// The jobs, each with its place among all of the run.
    pub(crate) fn new(course: &'a Course, bounds: Bounds, jobs: Vec<(usize, Job)>) -> Self {
        let running = |(index, Job { group, program, .. })| Running {
            index,
            group,
            program,
            touched: true,
            due: None,
            held: None,
            bytes: 0,
        };
        let list = jobs.into_iter().map(running).collect();
        Self { course, bounds, list, refused: Vec::new(), timeline: Vec::new() }
    }

    /// When to go on though nothing ended: at once, if a program is to be told that an ask was refused.
    pub(crate) fn due(&self, now: Instant) -> Instant {
        if !self.refused.is_empty() {
            return now;
        }
        let programs = self.list.iter().filter_map(|job| job.due);
        programs.chain(self.slot_end()).chain([self.course.end()]).min().expect("the end is due some time")
    }

    /// The end of the slot that runs; `None`: all are over.
    fn slot_end(&self) -> Option<Instant> {
        let slot = self.timeline.len();
        (slot < self.course.slots as usize).then(|| self.course.slot_end(slot))
    }

    pub(crate) fn ended(&mut self, now: Instant, job: usize, token: u32, outcome: Outcome) {
        let since = self.since_start(now);
        let job = &mut self.list[job];
        self.course.unserved(job.group).ended(now);
        job.touched = true;
        job.program.handle_end(since, token, outcome);
    }

    /// Gives `take` what the programs ask, and whether each ask goes on by itself, until they ask no more or it answers no;
    /// whether there was anything.
    pub(crate) fn ask(&mut self, now: Instant, mut take: impl FnMut(usize, &Ask, bool) -> bool) -> bool {
        let since = self.since_start(now);
        let mut refused = std::mem::take(&mut self.refused);
        let mut some = !refused.is_empty();
        for (job, token, outcome) in refused.drain(..) {
            self.ended(now, job, token, outcome);
        }
        self.refused = refused;
        for (number, job) in self.list.iter_mut().enumerate() {
            if !job.touched && job.due.is_none_or(|due| now < due) {
                continue;
            }
            let course = self.course;
            let next = |job: &mut Running| {
                let ask = job.program.poll_ask(since)?;
                course.unserved(job.group).submitted(now);
                Some(ask)
            };
            while let Some(ask) = job.held.take().or_else(|| next(job)) {
                if let Some(errno) = self.bounds.refuse(&ask) {
                    self.refused.push((number, ask.token, Outcome::Failed(errno)));
                } else if !take(number, &ask, job.program.asks_one_by_one()) {
                    job.held = Some(ask);
                    break;
                }
                some = true;
            }
            job.touched = job.held.is_some();
            job.due = job.program.poll_timeout().map(|at| self.course.start + at.since(Instant::ZERO));
        }
        some
    }

    /// Notes how much each group got in the slots that are over.
    pub(crate) fn sample(&mut self, now: Instant) {
        while self.slot_end().is_some_and(|end| now >= end) {
            self.note_slot();
        }
    }

    pub(crate) fn finish(&mut self) -> Done {
        let end = self.course.end();
        self.sample(end);
        if self.slot_end().is_some() {
            self.note_slot();
        }
        let since = self.since_start(end);
        let meters = self.list.iter().map(|job| (job.index, job.group, job.program.meter_at(since))).collect();
        Done { meters, timeline: std::mem::take(&mut self.timeline) }
    }

    fn note_slot(&mut self) {
        let mut slot = vec![0; self.course.unserved.len()];
        for job in &mut self.list {
            let bytes = job.program.meter().bytes;
            slot[usize::from(job.group.0)] += bytes - job.bytes;
            job.bytes = bytes;
        }
        self.timeline.push(slot);
    }

    /// A time as the programs are told it.
    fn since_start(&self, now: Instant) -> Instant {
        Instant::ZERO + now.since(self.course.start)
    }
}

impl Bounds {
    /// Why an ask fails without the device being asked (jobs.2).
    fn refuse(&self, ask: &Ask) -> Option<Errno> {
        let Ask { op, extent, .. } = *ask;
        if self.read_only && op.direction() == Direction::Write && op != Op::Flush {
            return Some(Errno::EPERM);
        }
        if op == Op::Flush {
            return None;
        }
        let beyond = extent.start.0.checked_add(extent.sectors).is_none_or(|end| end > self.limits.capacity);
        let large = op.has_payload() && extent.sectors > ASK_MAX / Sector::SIZE;
        if extent.sectors == 0 || beyond || large || !self.limits.aligned(extent) {
            return Some(Errno::EINVAL);
        }
        (self.limits.max(op) == 0).then_some(Errno::ENOTSUP)
    }
}

#[cfg(test)]
mod tests {
    use fairlift_core::time::{ms, secs};
    use fairlift_core::{Extent, Flags};

    use super::*;

    #[test]
    fn slots_are_equal_parts_of_the_run_whatever_their_number() {
        let course = Course::new(Instant::ZERO + secs(5), secs(1), 3, 1);
        assert_eq!(course.slot_end(0), Instant::ZERO + secs(5) + Duration::from_nanos(333_333_333));
        assert_eq!(course.slot_end(2), course.end());
    }

    #[test]
    fn a_course_that_is_stopped_ran_until_then_and_one_that_is_over_does_not_change() {
        let course = Course::new(Instant::ZERO + secs(5), secs(1), 3, 1);
        course.stop(Instant::ZERO + secs(5) + ms(20));
        course.stop(Instant::ZERO + secs(5) + ms(40));
        assert_eq!(course.ran(), ms(20));
    }

    /// jobs.2
    #[test]
    fn what_the_device_must_not_be_asked_is_refused() {
        let limits = Limits { block: 8, discard_max: 0, ..Limits::new(1 << 20) };
        let refuse = |read_only, op, start, sectors| {
            let extent = Extent::new(Sector(start), sectors);
            Bounds { limits, read_only }.refuse(&Ask { token: 0, op, flags: Flags::NONE, extent })
        };
        assert_eq!(refuse(false, Op::Write, (1 << 20) - 8, 8), None);
        assert_eq!(refuse(true, Op::Write, 0, 8), Some(Errno::EPERM));
        assert_eq!(refuse(true, Op::Read, 0, 8), None);
        assert_eq!(refuse(true, Op::Flush, 0, 0), None);
        assert_eq!(refuse(false, Op::Read, (1 << 20) - 8, 16), Some(Errno::EINVAL), "beyond the end");
        assert_eq!(refuse(false, Op::Read, u64::MAX - 7, 16), Some(Errno::EINVAL), "beyond any end");
        assert_eq!(refuse(false, Op::Read, 4, 8), Some(Errno::EINVAL), "half a block");
        assert_eq!(refuse(false, Op::Read, 0, 0), Some(Errno::EINVAL), "nothing");
        assert_eq!(refuse(false, Op::Read, 0, (64 << 20) / 512), Some(Errno::EINVAL), "too much");
        assert_eq!(refuse(false, Op::Discard, 0, 8), Some(Errno::ENOTSUP));
    }
}
