//! Helpers: which blocking work goes next where threads are few, and how much of it at once.
//!
//! Some files can only be read by a thread that waits. Here is decided what the threads of a server do. The program that
//! runs them says [`push`](Helpers::push) and [`ended`](Helpers::ended), and asks [`start`](Helpers::start).
//!
//! helpers.1  At most `threads` jobs at once, however many disks and files there are.
//! helpers.2  A disk has at most as many concurrent jobs out as pay there (`Concurrency`); the others wait in order of arrival.
//! helpers.3  Ordered jobs of one file go one at a time, in order of arrival, beside the concurrent ones of its disk.
//! helpers.4  A disk takes another thread only while it has fewer than are free. So one that hangs has half of them, the next half of the
//!     rest: of 32, disks that hang take 16, 8, 4, 2, 1 and 1, and only the seventh finds none. A number that a disk cannot have is not
//!     tried: its `Concurrency` learns, or is fixed at, half of the threads at most.
//! helpers.5  Sources (a disk's concurrent jobs, a file's ordered ones) take round_robin.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::Instant;
use crate::learn::concurrency::{Concurrency, Settings};

/// How a job goes with the others of its disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// As many at once as pay (helpers.2).
    Concurrent,
    /// After those of the same file that came before (helpers.3).
    Ordered,
    /// Not counted by helpers.2, and not after others: as soon as there is a thread that its disk may take (helpers.4).
    Alone,
}

/// Which source a job is of, for [`Helpers::ended`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source(Of);

/// The common state of the jobs of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    /// They are a disk's, and go concurrently.
    Disk(usize),
    /// They are a disk's, and go alone.
    DiskAlone(usize),
    /// They are a file's, and ordered.
    File(usize),
}

/// Decides what the helper threads of a server do. `J` is a job, and is not looked at.
#[derive(Debug)]
pub struct Helpers<J> {
    threads: usize,
    running: usize,
    most: usize,
    disks: Vec<DiskQueues<J>>,
    files: Vec<JobQueue<J>>,
    /// Sources with waiting jobs, the next first (helpers.5).
    round_robin: VecDeque<Of>,
}

#[derive(Debug)]
struct DiskQueues<J> {
    concurrency: Concurrency,
    /// Of all its sources.
    running: usize,
    concurrent: JobQueue<J>,
    alone: JobQueue<J>,
}

#[derive(Debug)]
struct JobQueue<J> {
    disk: usize,
    waiting: VecDeque<J>,
    running: usize,
}

impl<J> JobQueue<J> {
    const fn of(disk: usize) -> Self {
        Self { disk, waiting: VecDeque::new(), running: 0 }
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }
}

/// Puts a disk or file under a number, the next one or that of one that is no more.
fn put<T>(all: &mut Vec<T>, number: usize, new: T, what: &str, is_idle: fn(&T) -> bool) {
    match all.get_mut(number) {
        Some(old) => {
            assert!(is_idle(old), "a {what} with jobs goes");
            *old = new;
        }
        None => {
            assert!(number == all.len(), "{what} {number} comes after {}", all.len());
            all.push(new);
        }
    }
}

impl<J> Helpers<J> {
    /// Helpers of at most `threads`, for `disks`, and for files on these disks.
    ///
    /// # Panics
    /// If there are no threads, or a file is on no disk.
    #[must_use]
    pub fn new(threads: usize, disks: &[Settings], files: &[usize]) -> Self {
        assert!(threads > 0, "no helper threads");
        assert!(files.iter().all(|disk| *disk < disks.len()), "a file on no disk");
        let mut all =
            Self { threads, running: 0, most: 0, disks: Vec::new(), files: Vec::new(), round_robin: VecDeque::new() };
        disks.iter().enumerate().for_each(|(number, settings)| all.set_disk(number, settings));
        files.iter().enumerate().for_each(|(number, disk)| all.set_file(number, *disk));
        all
    }

    /// Adds a disk under a number, the next one or that of a disk that is no more.
    ///
    /// # Panics
    /// If the number is beyond the next, or the disk that had it has jobs.
    pub fn set_disk(&mut self, number: usize, settings: &Settings) {
        let half = u16::try_from(self.threads.div_ceil(2)).unwrap_or(u16::MAX); // helpers.4
        let concurrency = Concurrency::new(Settings { most: settings.most.min(half), ..*settings });
        let disk =
            DiskQueues { concurrency, running: 0, concurrent: JobQueue::of(number), alone: JobQueue::of(number) };
        let is_idle = |old: &DiskQueues<J>| old.concurrent.is_idle() && old.alone.is_idle() && old.running == 0;
        put(&mut self.disks, number, disk, "disk", is_idle);
    }

    /// Adds a file, which is on a disk, under a number, the next one or that of a file that is no more.
    ///
    /// # Panics
    /// If the number is beyond the next, or the file that had it has jobs.
    pub fn set_file(&mut self, number: usize, disk: usize) {
        put(&mut self.files, number, JobQueue::of(disk), "file", JobQueue::is_idle);
    }

    fn queue(&mut self, of: Of) -> &mut JobQueue<J> {
        match of {
            Of::Disk(disk) => &mut self.disks[disk].concurrent,
            Of::DiskAlone(disk) => &mut self.disks[disk].alone,
            Of::File(file) => &mut self.files[file],
        }
    }

    /// Takes a job for a file in.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn push(&mut self, file: usize, order: Order, job: J) {
        let disk = self.files[file].disk;
        let source = match order {
            Order::Concurrent => Of::Disk(disk),
            Order::Alone => Of::DiskAlone(disk),
            Order::Ordered => Of::File(file),
        };
        let queue = self.queue(source);
        queue.waiting.push_back(job);
        if queue.waiting.len() == 1 {
            self.round_robin.push_back(source);
        }
    }

    /// The job that goes next, if one may.
    pub fn start(&mut self) -> Option<(Source, J)> {
        let at = (0..self.round_robin.len()).find(|at| self.may_start(self.round_robin[*at]))?;
        let source = self.round_robin.remove(at).expect("found just now");
        let queue = self.queue(source);
        let job = queue.waiting.pop_front().expect("whose turn comes has jobs");
        queue.running += 1;
        let (disk, more) = (queue.disk, !queue.waiting.is_empty());
        if more {
            self.round_robin.push_back(source); // helpers.5
        }
        self.disks[disk].running += 1;
        self.running += 1;
        self.most = self.most.max(self.running);
        Some((Source(source), job))
    }

    /// A job of `sectors` ended.
    ///
    /// # Panics
    /// If none of that source was out.
    pub fn ended(&mut self, now: Instant, Source(source): Source, sectors: u64) {
        let queue = self.queue(source);
        assert!(queue.running > 0, "a job ended that was not out: {source:?}");
        let (running, number) = (queue.running, queue.disk);
        queue.running -= 1;
        let more = !queue.waiting.is_empty();
        let disk = &mut self.disks[number];
        if matches!(source, Of::Disk(_)) {
            let full = running >= usize::from(disk.concurrency.allowed()) && more;
            disk.concurrency.ended(now, sectors, full);
        }
        disk.running -= 1;
        self.running -= 1;
    }

    /// Jobs that are out.
    #[must_use]
    pub const fn running(&self) -> usize {
        self.running
    }

    /// The most that were out at once.
    #[must_use]
    pub const fn most(&self) -> usize {
        self.most
    }

    /// How many at once are known to pay on a disk, and how often that has changed.
    #[must_use]
    pub fn learned(&self, disk: usize) -> (u16, u64) {
        let concurrency = &self.disks[disk].concurrency;
        (concurrency.level, concurrency.changes)
    }

    fn may_start(&self, source: Of) -> bool {
        let (disk, fits) = match source {
            Of::Disk(number) => {
                let disk = &self.disks[number];
                (disk, disk.concurrent.running < usize::from(disk.concurrency.allowed())) // helpers.2
            }
            Of::DiskAlone(number) => (&self.disks[number], true),
            Of::File(number) => {
                let file = &self.files[number];
                (&self.disks[file.disk], file.running == 0) // helpers.3
            }
        };
        fits && disk.running < self.threads - self.running // helpers.1, helpers.4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ms;

    const SIXTEEN: Settings = Settings { most: 16, fixed: true };

    fn all<J>(helpers: &mut Helpers<J>) -> Vec<(Source, J)> {
        core::iter::from_fn(|| helpers.start()).collect()
    }

    /// helpers.2
    #[test]
    fn past_the_bound_of_a_disk_jobs_wait_in_order() {
        let mut helpers = Helpers::new(100, &[Settings { most: 3, fixed: true }], &[0]);
        (0..6).for_each(|n| helpers.push(0, Order::Concurrent, n));
        let out = all(&mut helpers);
        assert_eq!(out.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [0, 1, 2]);
        helpers.ended(Instant::ZERO, out[1].0, 8);
        assert_eq!(helpers.start().map(|(_, n)| n), Some(3));
        assert!(helpers.start().is_none());
    }

    /// helpers.3
    #[test]
    fn writes_of_a_file_go_one_by_one_and_reads_beside_them() {
        let mut helpers = Helpers::new(100, &[SIXTEEN], &[0, 0]);
        for (file, order, name) in [(0, Order::Ordered, "a"), (0, Order::Ordered, "b"), (1, Order::Ordered, "c")] {
            helpers.push(file, order, name);
        }
        helpers.push(0, Order::Concurrent, "r");
        let out = all(&mut helpers);
        assert_eq!(out.iter().map(|(_, n)| *n).collect::<Vec<_>>(), ["a", "c", "r"]);
        helpers.ended(Instant::ZERO, out[0].0, 8);
        assert_eq!(helpers.start().map(|(_, n)| n), Some("b"));
    }

    /// helpers.1, helpers.4
    #[test]
    fn disks_that_hang_leave_threads_to_those_that_come_later() {
        let mut helpers = Helpers::new(32, &[SIXTEEN; 7], &[0, 1, 2, 3, 4, 5, 6]);
        let mut taken = Vec::new();
        for disk in 0..7 {
            (0..100).for_each(|n| helpers.push(disk, Order::Concurrent, n));
            taken.push(all(&mut helpers).len());
        }
        assert_eq!(taken, [16, 8, 4, 2, 1, 1, 0]);
        assert_eq!(helpers.running(), 32);
    }

    /// helpers.4
    #[test]
    fn no_more_is_learned_than_half_of_the_threads() {
        let learn = Settings { most: 16, fixed: false };
        let mut helpers = Helpers::new(7, &[SIXTEEN, learn], &[0, 1]);
        assert_eq!(helpers.learned(0).0, 4);
        // It does one at a time: that is found out, though eight at once cannot be tried.
        (0..100).for_each(|n| helpers.push(1, Order::Concurrent, n));
        let mut out = VecDeque::new();
        for n in 0..2000 {
            out.extend(all(&mut helpers));
            let (source, _) = out.pop_front().expect("there is always more to do");
            helpers.push(1, Order::Concurrent, n);
            helpers.ended(Instant::ZERO + ms(n), source, 8);
        }
        assert_eq!((helpers.learned(1).0, helpers.most()), (1, 4));
    }

    /// helpers.1
    #[test]
    fn no_more_threads_are_busy_than_there_are() {
        let (disks, files): (Vec<_>, Vec<_>) = (0..100).map(|disk| (SIXTEEN, disk)).unzip();
        let mut helpers = Helpers::new(32, &disks, &files);
        for n in 0..10_000 {
            helpers.push(n % 100, [Order::Concurrent, Order::Ordered, Order::Alone][n % 3], n);
        }
        let mut ended = 0;
        let mut out = VecDeque::new();
        loop {
            out.extend(all(&mut helpers));
            assert!(helpers.running() <= 32);
            let Some((source, _)) = out.pop_front() else { break };
            helpers.ended(Instant::ZERO + ms(ended), source, 8);
            ended += 1;
        }
        assert_eq!((ended, helpers.most()), (10_000, 32));
    }

    /// helpers.5
    #[test]
    fn sources_take_turns() {
        let mut helpers = Helpers::new(2, &[SIXTEEN; 2], &[0, 1]);
        (0..100).for_each(|_| helpers.push(0, Order::Concurrent, 'a'));
        (0..3).for_each(|_| helpers.push(1, Order::Concurrent, 'b'));
        let mut order = alloc::string::String::new();
        while let Some((source, name)) = helpers.start() {
            order.push(name);
            helpers.ended(Instant::ZERO, source, 8);
        }
        assert!(order.starts_with("abababaaa"), "{order}");
    }
}
