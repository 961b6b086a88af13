//! Queued: what programs ask goes through the queue and scheduler of a disk, as the requests of a server's clients do.
//!
//! Each worker has a thread and a share of the jobs. All of them are made before the time begins: it would otherwise run
//! while the last ring is being set up. If one cannot be made, none is told to go.

use std::sync::{Arc, mpsc};
use std::thread::{self, ScopedJoinHandle};

use fairlift_core::learn::idling_trial::Finding;
use fairlift_core::program::{Job, Measured};
use fairlift_core::{ContextId, GroupId, Instant, Stream};

use super::{MEMORY, Setup, WATCH, Watch, measured, open};
use crate::Error;
use crate::clock;
use crate::config;
use crate::disk::gauge::Gauge;
use crate::disk::{Disk, Disks};
use crate::export::program::Programs;
use crate::export::program::jobs::{Bounds, Course, Done, Jobs};
use crate::kernel::helpers::Helpers;
use crate::kernel::notify::Notifiers;
use crate::kernel::ring::Choice;
use crate::worker::turns::Turns;
use crate::worker::{Backend, Worker};

/// How many threads the kernel may have for a worker's ring: as many as a server has helpers by default.
const KERNEL_THREADS: u32 = 32;

pub(super) struct Queued<'a> {
    setup: &'a Setup,
    workers: usize,
    bounds: Bounds,
    disk: Arc<Disk>,
    backend: Backend,
}

/// The counters of a worker, and the number of requests that did not come back; `None`: it was not told to go.
type WorkerEnd = Option<(Done, usize)>;

impl<'a> Queued<'a> {
    pub(super) fn new(setup: &'a Setup, jobs: usize) -> Result<Self, Error> {
        let workers = setup.workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        let workers = workers.clamp(1, 64).min(jobs.max(1));
        let device = open(&setup.backing, setup.read_only)?;
        let bounds = Bounds { limits: device.facts().limits, read_only: setup.read_only };
        let file = device.descriptor().map(|_| 0);
        let mut disk = Disk::new(&setup.disk, &[(device, file)], &setup.groups, workers)?;
        disk.gauge = Some(Gauge::new());
        let disk = Arc::new(disk);
        let notifiers = Arc::new(Notifiers::new(workers).map_err(Error::Ring)?);
        let threads = config::Limits::default().helpers as usize;
        let helpers = Helpers::new(threads, &[disk.concurrency], &[0], workers, Arc::clone(&notifiers));
        let turns = Turns::rows(workers);
        let disks = Disks::new(vec![Arc::clone(&disk)]);
        for (id, group) in setup.groups.iter().enumerate() {
            if let Some(bounds) = setup.bounds.get(&group.path) {
                disks.set_bounds(clock::now(), GroupId(id as u16), bounds);
            }
        }
        let engine = Choice::make(setup.engine)?;
        engine.say();
        let backend = Backend { disks, files: 1, notifiers, helpers, turns, engine };
        Ok(Self { setup, workers, bounds, disk, backend })
    }

    pub(super) fn run(self, jobs: Vec<Job>, watch: Watch<'_>) -> Result<Measured, Error> {
        let count = jobs.len();
        let mut shares: Vec<Vec<(usize, Job)>> = (0..self.workers).map(|_| Vec::new()).collect();
        for (index, job) in jobs.into_iter().enumerate() {
            shares[index % self.workers].push((index, job));
        }
        let (course, ended) = thread::scope(|scope| {
            let (say, hear) = mpsc::channel();
            let mut threads = Vec::with_capacity(self.workers);
            for (number, share) in shares.into_iter().enumerate() {
                let (go, gone) = mpsc::channel();
                let (this, say) = (&self, say.clone());
                let work = move || this.work(ContextId(number as u16), share, say, &gone);
                let thread = thread::Builder::new().name(format!("bench-{number}")).spawn_scoped(scope, work);
                threads.push((go, thread.expect("a thread can be made")));
            }
            drop(say);
            hear.iter().collect::<Result<Vec<()>, _>>().map_err(Error::Ring)?;
            let Setup { runtime, slots, groups, .. } = self.setup;
            let course = Arc::new(Course::new(clock::now(), *runtime, *slots, groups.len()));
            self.gauge().end(course.end());
            for (go, _) in &threads {
                // A worker that is gone has panicked: its thread is joined below.
                let _ = go.send(Arc::clone(&course));
            }
            let mut watch = |ran| {
                if self.setup.trace > 0 {
                    self.disk.set_trace(self.setup.trace); // queues come with their first stream
                }
                watch(ran)
            };
            look_after(&course, &mut watch, || {
                self.gauge().end(course.end());
                self.backend.notifiers.ring_all();
            });
            let join = |thread: ScopedJoinHandle<'_, WorkerEnd>| thread.join().expect("a worker does not panic");
            let ended: Vec<_> = threads.into_iter().filter_map(|(_, thread)| join(thread)).collect();
            Ok::<_, Error>((course, ended))
        })?;
        self.backend.helpers.stop();
        let (done, lost): (Vec<_>, Vec<usize>) = ended.into_iter().unzip();
        match lost.iter().sum() {
            0 => Ok(self.measured(count, &course, done)),
            lost => Err(Error::Undrained(lost)),
        }
    }

    /// A worker, on its thread: says whether it could be made, waits until it is told to go, and runs its share of the jobs.
    fn work(
        &self,
        context: ContextId,
        share: Vec<(usize, Job)>,
        say: mpsc::Sender<std::io::Result<()>>,
        gone: &mpsc::Receiver<Arc<Course>>,
    ) -> WorkerEnd {
        // The other end waits for one word from each.
        let (engine, made) = match self.backend.engine(context, MEMORY / self.workers as u64, KERNEL_THREADS) {
            Ok(engine) => (Some(engine), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let _ = say.send(made);
        drop(say);
        let course = gone.recv().ok()?; // unless another worker could not be made
        let streams: Vec<_> = (share.iter())
            .map(|(_, job)| Stream { group: job.group, priority: job.priority, context: ContextId(0) })
            .collect();
        let jobs = Jobs::new(&course, self.bounds, share);
        let mut engine = engine?;
        let io_timeout = self.disk.io_timeout();
        let mut done = None;
        let programs = Programs::new(&mut engine, jobs, &streams, io_timeout + io_timeout, &mut done);
        let lost = Worker::new(engine, programs, &self.backend.turns).run();
        let (_, done) = done.expect("a worker leaves programs whose time is over");
        Some((done, lost))
    }

    fn gauge(&self) -> &Gauge {
        self.disk.gauge.as_ref().expect("it was given one")
    }

    /// The counters of the jobs, of the disk and of its helpers.
    fn measured(&self, count: usize, course: &Course, done: Vec<Done>) -> Measured {
        let mut measured = measured(count, course, done, self.gauge().read());
        for (id, figures) in self.disk.figures(clock::now()) {
            let group = usize::from(id.0);
            (measured.held[group], measured.asked[group]) = (figures.stats.held.time, figures.stats.moved());
        }
        self.disk.counters(&mut |name, count| *measured.counters.entry(name.to_owned()).or_default() += count);
        self.disk.take_findings(&mut |finding| {
            let at = Instant::ZERO + finding.at.since(course.start);
            measured.findings.push(Finding { at, ..finding });
        });
        self.disk.take_trace(usize::MAX, &mut |item| measured.trace.push(item));
        let (most, learned) = (self.backend.helpers.most(), self.backend.helpers.learned(0));
        if most > 0 {
            measured.counters.insert("helpers_most".into(), most as u64);
            measured.counters.insert("concurrency_level".into(), learned.0.into());
            measured.counters.insert("concurrency_changes".into(), learned.1);
        }
        measured
    }
}

/// Waits until a course is over, and ends it before if `watch` says so.
fn look_after(course: &Course, watch: Watch<'_>, stopped: impl FnOnce()) {
    loop {
        let now = clock::now();
        if course.is_over(now) {
            return;
        }
        if watch(now.since(course.start)) {
            course.stop(now);
            return stopped();
        }
        let nanos = course.end().since(now).as_nanos().min(WATCH.as_nanos());
        std::thread::sleep(std::time::Duration::from_nanos(nanos));
    }
}
