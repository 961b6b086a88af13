//! Helpers: threads that wait for files, so that workers need not.
//!
//! A read of a file on a network file system blocks its thread for as long as the other end takes. io_uring would start a thread of its own
//! for each such read; here a few helper threads serve all files. `fairlift_core::helpers` decides their next job, and how many of them
//! work at once for which disk; here are the threads.
//!
//! helper.1  A helper exists while there is work for it, and five seconds longer.
//! helper.2  As many helpers are awake as jobs are out, and no more. A worker that pushes a job wakes one helper if the job may
//!           start; a helper that ends a job takes the next one itself, and wakes others only if by its end more may start.
//! helper.3  A worker's bell rings when the first result is put on its list, and not again before the worker took the list.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time;

use fairlift_core::learn::concurrency;
use fairlift_core::{ContextId, helpers as plan};

use crate::clock;
use crate::kernel::abort::AbortOnPanic;
use crate::kernel::call::Task;
use crate::kernel::notify::Notifiers;
use crate::sync::{Mutex, lock};

pub(crate) use plan::Order;

/// How long a helper waits for work before it goes. Chosen: longer than the pauses of a load that goes on.
const IDLE: time::Duration = time::Duration::from_secs(5);

/// The stack of a helper. Chosen: twice what unpacking a cluster of a qcow2 image took without optimisation. Pages that are not used take no memory.
const STACK: usize = 256 << 10;

/// Work for a file, or for things made of files, and the worker that is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) worker: ContextId,
    /// The worker's number for it.
    pub(crate) data: u64,
    /// How much of the file is concerned.
    pub(crate) sectors: u64,
    pub(crate) task: Task,
}

/// The end of a job: its data, and the result of the system call, or the negative error.
pub(crate) type Done = (u64, i32);

pub(crate) struct Helpers {
    state: Mutex<State>,
    work: Condvar,
    gone: Condvar,
    done: Box<[Mutex<Vec<Done>>]>,
    notifiers: Arc<Notifiers>,
    threads: usize,
}

struct State {
    plan: plan::Helpers<Job>,
    /// Started by the plan, and not yet taken by a helper.
    ready: VecDeque<(plan::Source, Job)>,
    alive: usize,
    sleeping: usize,
    /// Sleeping helpers that were woken, and have not noticed.
    called: usize,
    stopping: bool,
}

impl Helpers {
    /// At most `threads`, for `disks`, and files that are each on one of them; none is started yet.
    pub(crate) fn new(
        threads: usize,
        disks: &[concurrency::Settings],
        files: &[usize],
        workers: usize,
        notifiers: Arc<Notifiers>,
    ) -> Arc<Self> {
        let plan = plan::Helpers::new(threads, disks, files);
        let state = State { plan, ready: VecDeque::new(), alive: 0, sleeping: 0, called: 0, stopping: false };
        let done = (0..workers).map(|_| Mutex::default()).collect();
        Arc::new(Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            gone: Condvar::new(),
            done,
            notifiers,
            threads,
        })
    }

    /// Takes a job for a file in.
    ///
    /// # Safety
    /// The memory that the job names stays valid, and is left to the helper, until [`take`](Self::take) has answered with
    /// the job's data.
    pub(crate) unsafe fn push(self: &Arc<Self>, file: usize, order: Order, job: Job) {
        let mut state = self.state();
        state.plan.push(file, order, job);
        let spawn = self.start(&mut state);
        drop(state);
        if let Err(error) = self.spawn(spawn) {
            // Nobody else would do it. We block, and go on.
            tracing::error!(%error, "no helper thread can be made: a worker waits for a file itself");
            drop(self.work_off(self.state()));
        }
    }

    /// Takes what was done for a worker: `into` must be empty, and is filled.
    pub(crate) fn take(&self, worker: ContextId, into: &mut Vec<Done>) {
        assert!(into.is_empty());
        std::mem::swap(&mut *lock(&self.done[usize::from(worker.0)]), into);
    }

    /// Lets helpers go that have nothing to do, and those that have, after it.
    pub(crate) fn stop(&self) {
        self.state().stopping = true;
        self.work.notify_all();
    }

    /// Stops, and waits until all that was asked is done.
    pub(crate) fn finish(&self) {
        self.stop();
        let mut state = self.state();
        while state.alive > 0 {
            state = self.gone.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn most(&self) -> usize {
        self.state().plan.most()
    }

    /// The concurrency that paid for a disk: (requests at once, changes).
    pub(crate) fn learned(&self, disk: usize) -> (u16, u64) {
        self.state().plan.learned(disk)
    }

    pub(crate) fn set_disk(&self, disk: usize, settings: &concurrency::Settings) {
        self.state().plan.set_disk(disk, settings);
    }

    pub(crate) fn set_file(&self, file: u32, disk: usize) {
        self.state().plan.set_file(file as usize, disk);
    }

    /// Makes ready what may start, and wakes helpers for it; how many are to be made, for lack of sleeping ones (helper.2).
    fn start(&self, state: &mut State) -> usize {
        while let Some(started) = state.plan.start() {
            state.ready.push_back(started);
        }
        let awake = state.alive - state.sleeping + state.called;
        let lacking = state.plan.running().saturating_sub(awake);
        let called = lacking.min(state.sleeping - state.called);
        (0..called).for_each(|_| self.work.notify_one());
        state.called += called;
        let spawn = (lacking - called).min(self.threads - state.alive);
        state.alive += spawn;
        spawn
    }

    /// Makes `count` helpers, which [`start`](Self::start) has counted already, or as many of them as can be made.
    ///
    /// # Errors
    /// There is none, these or others: what is ready is left to the worker.
    fn spawn(self: &Arc<Self>, count: usize) -> io::Result<()> {
        for left in (1..=count).rev() {
            let helpers = Arc::clone(self);
            let builder = std::thread::Builder::new().name("helper".to_owned()).stack_size(STACK);
            if let Err(error) = builder.spawn(move || helpers.help()) {
                let mut state = self.state();
                state.alive -= left;
                return if state.alive > 0 { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }

    fn help(self: Arc<Self>) {
        let _guard = AbortOnPanic; // or its job would never end, nor be told of
        crate::kernel::ring::be_flusher();
        let mut state = self.state();
        loop {
            state = self.work_off(state);
            if state.stopping {
                break;
            }
            state.sleeping += 1;
            let (back, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.sleeping -= 1;
            state.called = state.called.saturating_sub(1).min(state.sleeping);
            if waited.timed_out() && state.ready.is_empty() {
                break; // helper.1
            }
        }
        state.alive -= 1;
        self.gone.notify_all();
    }

    fn work_off<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while let Some((source, job)) = state.ready.pop_front() {
            drop(state);
            // SAFETY: the worker that pushed the job keeps its memory until it takes the result, which comes after.
            let result = unsafe { job.task.perform() };
            let now = clock::now();
            state = self.state();
            state.plan.ended(now, source, job.sectors);
            let spawn = self.start(&mut state);
            drop(state);
            let _ = self.spawn(spawn); // if there is nobody else, what is ready is ours, in the next round
            self.tell(job.worker, (job.data, result));
            state = self.state();
        }
        state
    }

    /// Tells a worker that something is done, by a helper or by another worker (helper.3).
    pub(crate) fn tell(&self, worker: ContextId, done: Done) {
        let mut list = lock(&self.done[usize::from(worker.0)]);
        list.push(done);
        let first = list.len() == 1;
        drop(list);
        if first {
            self.notifiers.ring_bell(worker);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::kernel::call::{Pieces, Work};

    fn pool(threads: usize, most: u16) -> Arc<Helpers> {
        let notifiers = Arc::new(Notifiers::new(1).unwrap());
        Helpers::new(threads, &[concurrency::Settings { most, fixed: true }], &[0], 1, notifiers)
    }

    fn wait_for(helpers: &Helpers, count: usize) -> Vec<Done> {
        let (mut all, mut some) = (Vec::new(), Vec::new());
        while all.len() < count {
            helpers.take(ContextId(0), &mut some);
            all.append(&mut some);
            std::thread::yield_now();
        }
        all
    }

    fn threads_of(helpers: &Helpers) -> usize {
        helpers.state().alive
    }

    #[test]
    fn what_many_push_is_done_by_few() {
        let mut file = std::env::temp_dir();
        file.push(format!("fairlift-helpers-{}", std::process::id()));
        std::fs::write(&file, vec![7; 64 << 10]).unwrap();
        let open = std::fs::File::open(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let helpers = pool(3, 16);
        let mut buffers = vec![vec![0u8; 512]; 1000];
        let iovecs: Vec<_> =
            (buffers.iter_mut()).map(|b| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() }).collect();
        for (n, iovec) in iovecs.iter().enumerate() {
            let into = Pieces::of(std::slice::from_ref(iovec), None);
            let work = Work::Read { into, at: 512 * (n as u64 % 128) };
            let task = Task::Call(open.as_raw_fd(), work);
            let job = Job { worker: ContextId(0), data: n as u64, sectors: 1, task };
            // SAFETY: the buffers live until all results were taken.
            unsafe { helpers.push(0, Order::Concurrent, job) }
            assert!(threads_of(&helpers) <= 3);
        }
        let mut done = wait_for(&helpers, 1000);
        done.sort_by_key(|(data, _)| *data);
        assert!(done.iter().enumerate().all(|(n, done)| *done == (n as u64, 512)));
        assert!(buffers.iter().flatten().all(|byte| *byte == 7));
        helpers.stop();
        while threads_of(&helpers) > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_error_is_told_as_the_kernel_has_it() {
        let helpers = pool(1, 1);
        let task = Task::Call(-1, Work::Sync { data_only: true });
        let job = Job { worker: ContextId(0), data: 5, sectors: 0, task };
        // SAFETY: it names no memory.
        unsafe { helpers.push(0, Order::Alone, job) }
        assert_eq!(wait_for(&helpers, 1), [(5, -libc::EBADF)]);
        helpers.stop();
    }
}
