//! Jobs that ask a disk through its queue: a worker whose clients are programs.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use fairlift_core::program::Ask;
use fairlift_core::{Bio, ContextId, Duration, Errno, Extent, Instant, Op, Outcome, Sector, Stream, StreamId, Token};
use io_uring::cqueue;

use crate::device::helpers::Helpers;
use crate::disk::Disk;
use crate::disk::engine::{Command, Engine, News};
use crate::export::program::jobs::{Done, Jobs};
use crate::export::program::payload;
use crate::kernel::buffer::Pool;
use crate::kernel::clock;
use crate::kernel::notify::Notifiers;
use crate::kernel::ring::{Ring, Source};
use crate::kernel::sleep::Sleep;

/// How often disk and programs answer each other before the ring and the clock's other hands are looked at: a disk that
/// answers at once would keep the worker for ever.
const ROUNDS: usize = 64;

/// One thread, one ring, and the programs that it runs.
pub(super) struct Worker {
    engine: Engine,
    sleep: Sleep,
    disk: Arc<Disk>,
    notifiers: Arc<Notifiers>,
}

impl Worker {
    /// A worker for the calling thread, with so many bytes for payload.
    pub(super) fn new(
        context: ContextId,
        disk: Arc<Disk>,
        notifiers: Arc<Notifiers>,
        helpers: Arc<Helpers>,
        memory: u64,
    ) -> std::io::Result<Self> {
        let mut ring = Ring::new(1024, 8192, 32)?;
        let files: Vec<_> =
            disk.places().iter().filter_map(|place| crate::server::arrange::descriptor(&place.device)).collect();
        ring.register_files(&files)?;
        let pool = Pool::new(memory, 64);
        ring.register_pool(&pool);
        notifiers.open(context, ring.as_raw_fd());
        notifiers.arm_bell(context, &mut ring);
        let engine = Engine::new(ring, pool, context, &[Arc::clone(&disk)], Arc::clone(&notifiers), helpers);
        Ok(Self { engine, sleep: Sleep::new(), disk, notifiers })
    }

    /// Runs the jobs until their time is over, and waits for what is in flight; with it how many requests the device had not
    /// given back when `patience` was over.
    pub(super) fn run(mut self, mut jobs: Jobs<'_>, streams: &[Stream], patience: Duration) -> (Done, usize) {
        let course = jobs.course();
        let context = self.engine.context;
        let streams: Vec<_> =
            streams.iter().map(|stream| self.disk.queue(context).add_stream(Stream { context, ..*stream })).collect();
        let mut busy = true;
        loop {
            let before = clock::now();
            let due = if busy { before } else { jobs.due().min(self.engine.poll_timeout().unwrap_or(Instant::MAX)) };
            let now = self.wait(before, due);
            if course.is_over(now) {
                break;
            }
            jobs.sample(now);
            busy = (0..ROUNDS).all(|_| {
                let now = clock::now();
                !course.is_over(now) && self.exchange(now, &mut jobs, &streams)
            });
        }
        let done = jobs.finish();
        let lost = self.drain(patience);
        (done, lost)
    }

    /// Submits what was collected, waits, and takes in what completed.
    fn wait(&mut self, before: Instant, due: Instant) -> Instant {
        let due = if self.engine.launch_all() { before } else { due };
        let now = self.sleep.until(&mut self.engine.ring, before, Some(due));
        while let Some(entry) = self.engine.ring.reap() {
            match Source::unpack(entry.user_data()) {
                Source::Io { disk, tag } => self.engine.completed(disk, tag, entry.result()),
                Source::Bell => {
                    if !cqueue::more(entry.flags()) {
                        self.notifiers.arm_bell(self.engine.context, &mut self.engine.ring);
                    }
                    self.notifiers.answer_bell(self.engine.context);
                    self.look_around();
                }
                Source::Wake => self.look_around(),
                Source::Nobody => {}
                Source::Receive(_) | Source::Send(_) | Source::Accept(_) => unreachable!("there are no sockets"),
            }
        }
        now
    }

    fn look_around(&mut self) {
        self.notifiers.take_notice(self.engine.context);
        self.engine.woken();
    }

    /// Gives the disk the programs' asks and the programs the disk's news; whether there was any.
    fn exchange(&mut self, now: Instant, jobs: &mut Jobs<'_>, streams: &[StreamId]) -> bool {
        self.engine.turn(now);
        let mut news = std::mem::take(&mut self.engine.news);
        let some = !news.is_empty();
        for (command, what) in news.drain(..) {
            let Command { connection: job, cookie: token, .. } = self.engine.commands[command];
            match what {
                News::Ended(outcome) => jobs.ended(now, job, token as u32, outcome),
                News::TimedOut => jobs.ended(now, job, token as u32, Outcome::Failed(Errno::ETIMEDOUT)),
                News::Released => {}
            }
            self.release(command, what);
        }
        self.engine.news = news;
        jobs.ask(now, |job, ask, by_itself| {
            let taken = self.submit(job, streams[job], ask);
            if taken && by_itself {
                self.engine.turn(now); // it goes on before the next can be merged with it
            }
            taken
        }) || some
    }

    /// Gives back what a command held, if its memory is free.
    fn release(&mut self, command: usize, what: News) {
        if what != News::TimedOut
            && let Some(buffer) = self.engine.commands.remove(command).buffer
        {
            self.engine.pool.put(buffer);
        }
    }

    /// Takes an ask in, if there is memory for it.
    fn submit(&mut self, job: usize, stream: StreamId, ask: &Ask) -> bool {
        let Ask { token, op, flags, extent } = *ask;
        let buffer = if op.has_payload() {
            let Some(mut buffer) = self.engine.pool.get(extent.bytes() as usize) else { return false };
            if op == Op::Write {
                payload::fill(buffer.bytes_mut());
            }
            Some(buffer)
        } else {
            None
        };
        let command = self.engine.commands.insert(Command {
            connection: job,
            cookie: token.into(),
            op,
            offset: extent.start.bytes(),
            len: extent.bytes(),
            buffer,
            flags: 0,
        });
        let extent = if op == Op::Flush { Extent::new(Sector(0), 0) } else { extent };
        self.engine.submit(0, Bio { op, flags, extent, stream, token: Token(command as u64) });
        true
    }

    /// Waits until nothing is under way any more; how many requests were, when `patience` was over.
    fn drain(mut self, patience: Duration) -> usize {
        let start = clock::now();
        let mut now = start;
        while !self.engine.commands.is_empty() || self.engine.in_devices() > 0 {
            if now.since(start) > patience {
                // The kernel may still use our memory: it is left to it until the process ends.
                let lost = self.engine.in_devices();
                std::mem::forget(self);
                return lost;
            }
            // The one who was to look at the queue when a hold of the disk ends may have gone: each looks for himself.
            self.engine.woken();
            self.engine.turn(now);
            let news = std::mem::take(&mut self.engine.news);
            for &(command, what) in &news {
                self.release(command, what);
            }
            let due = now + fairlift_core::time::ms(if news.is_empty() { 2 } else { 0 });
            now = self.wait(now, due.min(self.engine.poll_timeout().unwrap_or(Instant::MAX)));
        }
        self.engine.ring.unregister_files();
        0
    }
}
