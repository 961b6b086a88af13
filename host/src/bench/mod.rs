//! Bench: an export whose client is a program.
//!
//! [`run`] lets [`Program`](fairlift_core::program::Program)s ask a backing through the same engine, queue and scheduler that serve
//! clients; [`run_raw`] gives the same asks straight to a file, as the baseline.

mod queued;
mod raw;

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlift_core::model::Work;
use fairlift_core::program::Meter;
use fairlift_core::{Duration, Group, GroupId};

use crate::Error;
use crate::clock;
use crate::config::{self, Backing};
use crate::device::roots::{RootedPath, Roots};
use crate::device::{self, Device as _, File};
use crate::disk::gauge::Gauge;
use crate::kernel::ring::Choice;

pub use crate::export::program::jobs::ASK_MAX;
use crate::export::program::jobs::{Bounds, Course, Done, Jobs};
pub use fairlift_core::program::{Job, Measured};
use queued::Queued;
use raw::Raw;

/// The workload, and its duration.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The scheduler and its settings, the depth, the timeout.
    pub disk: config::Disk,
    /// The weight tree; the first is the root.
    pub groups: Vec<Group>,
    /// The bounds of groups, by their paths.
    pub bounds: BTreeMap<String, fairlift_core::ceiling::Bounds>,
    /// The backing. It is opened anew by each run, so RAM is empty and a model at rest.
    pub backing: Backing,
    /// Whether it is opened for reading only: what would change it then fails with `EPERM`, and nothing is written.
    pub read_only: bool,
    /// How many threads; `None`: one for each CPU that the process may use.
    pub workers: Option<usize>,
    /// The kernel interface of the workers.
    pub engine: config::Engine,
    /// How long, unless the watch says stop before.
    pub runtime: Duration,
    /// Into how many equal parts the timeline cuts `runtime`.
    pub slots: u32,
    /// How much of the end of each queue's trace is kept.
    pub trace: usize,
}

/// The facts of a backing, before any request to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Its size in bytes: where programs may ask.
    pub bytes: u64,
    /// The smallest request, in bytes.
    pub block: u32,
    /// Whether nothing is between us and the device: false of a file that is read through the page cache.
    pub direct: bool,
    /// Whether it is RAM.
    pub in_ram: bool,
    /// Whether nothing can be written to it, as it was opened.
    pub read_only: bool,
}

/// Opens a backing, for reading only or not, and says what it is like.
///
/// # Errors
/// It cannot be opened so, or a server has it.
pub fn shape(backing: &Backing, read_only: bool) -> Result<Shape, Error> {
    let device = open(backing, read_only)?;
    let facts = device.facts();
    let (block, direct, read_only) = (facts.block(), device.is_direct(), facts.read_only);
    Ok(Shape { bytes: facts.size, block, direct, in_ram: facts.in_ram, read_only })
}

/// The other holder of the block device of that number: where it is mounted, swap, or a device made of it. `None`: none that is known.
#[must_use]
pub fn holder(device: u64) -> Option<String> {
    crate::device::holder_of(device)
}

/// Is told how far a run is, and answers whether it is to stop.
pub type Watch<'a> = &'a mut dyn FnMut(Duration) -> bool;

/// Runs the jobs through the queue and scheduler of a disk, as clients of a server would be served, until the time is over or `watch` says
/// so; then waits for the requests in flight.
///
/// # Errors
/// io_uring is not to be had, the backing or disk cannot be what it is said to be, or requests do not come back.
///
/// # Panics
/// If a job's group is not in [`Setup::groups`].
pub fn run(setup: &Setup, jobs: Vec<Job>, watch: Watch<'_>) -> Result<Measured, Error> {
    check_groups(setup, &jobs);
    Queued::new(setup, jobs.len())?.run(jobs, watch)
}

/// Gives the same asks straight to a file by io_uring, or its substitute ([`Setup::engine`]), from one thread: no queue, no scheduler, no merging,
/// nothing held back. Of [`Setup::disk`] and [`Setup::workers`] nothing is used.
///
/// # Errors
/// As [`run`], or the backing is no file.
///
/// # Panics
/// If a job's group is not in [`Setup::groups`].
pub fn run_raw(setup: &Setup, jobs: Vec<Job>, watch: Watch<'_>) -> Result<Measured, Error> {
    check_groups(setup, &jobs);
    let Backing::File(at) = &allowed(&setup.backing, setup.read_only) else {
        let (what, why) =
            (setup.backing.about().name, "is no file: only the path to a file or block device can be measured raw");
        return Err(Error::Backing { what, why: why.into() });
    };
    let file = File::open(&RootedPath::anywhere(&at.path), at.access, setup.read_only)
        .map_err(|why| setup.backing.refused(why))?;
    let bounds = Bounds { limits: file.facts().limits, read_only: setup.read_only };
    let count = jobs.len();
    let engine = Choice::make(setup.engine)?;
    engine.say();
    let raw = Raw::new(file, MEMORY, engine.begin()).map_err(Error::Ring)?;
    let course = Course::new(clock::now(), setup.runtime, setup.slots, setup.groups.len());
    let gauge = Gauge::new();
    gauge.end(course.end());
    let jobs = Jobs::new(&course, bounds, jobs.into_iter().enumerate().collect());
    let (done, lost) = raw.run(jobs, &gauge, watch);
    if lost > 0 { Err(Error::Undrained(lost)) } else { Ok(measured(count, &course, vec![done], gauge.read())) }
}

/// Payload bytes of all workers together: as a server has by default.
const MEMORY: u64 = 512 << 20;

/// How often a [`Watch`] is asked. Chosen: a stop is felt at once, and asking costs nothing.
const WATCH: Duration = fairlift_core::time::ms(20);

fn check_groups(setup: &Setup, jobs: &[Job]) {
    for Job { group, .. } in jobs {
        assert!(usize::from(group.0) < setup.groups.len(), "a job is in {group:?}, which the setup does not have");
    }
}

/// The backing, as it may be opened: a device that is in use can be measured by reading it, since nobody keeps the data, in any
/// format.
fn allowed(backing: &Backing, read_only: bool) -> Backing {
    match backing {
        Backing::File(at) => {
            let may_be_in_use = read_only || at.access.may_be_in_use;
            let access = config::FileAccess { may_be_in_use, is_raw: true, ..at.access };
            config::FileAt { path: at.path.clone(), access }.into()
        }
        Backing::Fault(fault) => {
            let inner = allowed(&fault.inner, read_only);
            config::Faulty { inner, ..(**fault).clone() }.into()
        }
        other => other.clone(),
    }
}

fn open(backing: &Backing, read_only: bool) -> Result<Arc<dyn device::Device>, Error> {
    allowed(backing, read_only).open(read_only, &Roots::default())
}

/// The counters of `count` jobs, in several threads.
fn measured(count: usize, course: &Course, all: Vec<Done>, work: Work) -> Measured {
    let mut timeline: Vec<Vec<u64>> = Vec::new();
    let mut meters: Vec<(usize, GroupId, Meter)> = Vec::with_capacity(count);
    for done in all {
        meters.extend(done.meters);
        for (number, slot) in done.timeline.into_iter().enumerate() {
            match timeline.get_mut(number) {
                Some(sum) => sum.iter_mut().zip(slot).for_each(|(sum, bytes)| *sum += bytes),
                None => timeline.push(slot),
            }
        }
    }
    meters.sort_by_key(|(index, ..)| *index);
    let meters = meters.into_iter().map(|(_, group, meter)| (group, meter)).collect();
    let (runtime, unserved) = (course.ran(), course.longest_unserved());
    let (held, asked) = (vec![Duration::ZERO; unserved.len()], vec![(0, 0); unserved.len()]);
    let (counters, findings, trace) = (BTreeMap::new(), Vec::new(), Vec::new());
    Measured { meters, runtime, timeline, unserved, held, asked, work, counters, findings, trace }
}
