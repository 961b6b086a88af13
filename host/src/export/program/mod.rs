//! Programs instead of clients: a front that asks by itself.

pub(crate) mod jobs;
pub(crate) mod payload;

use fairlift_core::program::Ask;
use fairlift_core::{Bio, Duration, Errno, Extent, Instant, Op, Outcome, Sector, Stream, StreamId, Token};

use super::front::Front;
use crate::disk::engine::{Engine, News};
use crate::kernel::ticket::Memory;
use jobs::{Done, Jobs};

/// The disk that programs ask: a worker of theirs has one.
const DISK: usize = 0;

pub(crate) struct Programs<'a> {
    jobs: Jobs<'a>,
    /// By job.
    streams: Vec<StreamId>,
    /// How long requests under way are waited for when the time is over.
    patience: Duration,
    /// The time at which it was over, and the programs' work by then.
    done: &'a mut Option<(Instant, Done)>,
}

impl<'a> Programs<'a> {
    /// The jobs, each with its stream, and the place for their work. Their time begins when it is told them.
    pub(crate) fn new(
        engine: &mut Engine,
        jobs: Jobs<'a>,
        streams: &[Stream],
        patience: Duration,
        done: &'a mut Option<(Instant, Done)>,
    ) -> Self {
        let context = engine.context;
        let stream = |stream: &Stream| engine.add_stream(DISK, Stream { context, ..*stream });
        Self { jobs, streams: streams.iter().map(stream).collect(), patience, done }
    }
}

/// The name of a request: the job, and the program's own number for it.
const fn owner(job: usize, token: u32) -> u64 {
    (job as u64) << 32 | token as u64
}

/// Takes an ask in, if there is memory for it.
fn submit(engine: &mut Engine, job: usize, stream: StreamId, ask: &Ask) -> bool {
    let Ask { token, op, flags, extent } = *ask;
    let memory = if op.has_payload() {
        let Ok(mut buffer) = engine.pool.get(extent.bytes().get() as usize) else { return false };
        if op == Op::Write {
            payload::fill(buffer.bytes_mut());
        }
        Memory::Pool(buffer)
    } else {
        Memory::None
    };
    let ticket = engine.admit(owner(job, token), memory);
    let extent = if op == Op::Flush { Extent::new(Sector(0), 0) } else { extent };
    engine.submit(DISK, Bio { op, flags, extent, stream, token: Token(ticket as u64) });
    true
}

impl Front for Programs<'_> {
    const ASKS_BY_ITSELF: bool = true;

    fn look_at_clock(&mut self, engine: &mut Engine) {
        if self.done.is_some() {
            return;
        }
        if self.jobs.course.is_over(engine.now) {
            *self.done = Some((engine.now, self.jobs.finish()));
        } else {
            self.jobs.sample(engine.now);
        }
    }

    fn news(&mut self, engine: &mut Engine, ticket: usize, news: News) {
        let owner = engine.owner(ticket);
        if !self.jobs.course.is_over(engine.now) {
            let (job, token) = ((owner >> 32) as usize, owner as u32);
            match news {
                News::Ended(outcome) => self.jobs.ended(engine.now, job, token, outcome),
                News::TimedOut => self.jobs.ended(engine.now, job, token, Outcome::Failed(Errno::ETIMEDOUT)),
                News::Released => {}
            }
        }
        if news != News::TimedOut {
            engine.release(ticket);
        }
    }

    fn go_on(&mut self, engine: &mut Engine) -> bool {
        if self.jobs.course.is_over(engine.now) {
            return false;
        }
        let streams = &self.streams;
        self.jobs.ask(engine.now, |job, ask, by_itself| {
            let taken = submit(engine, job, streams[job], ask);
            if taken && by_itself {
                engine.turn(engine.now); // it goes on before the next can be merged with it
            }
            taken
        })
    }

    fn poll_timeout(&self, _engine: &Engine, now: Instant) -> Option<Instant> {
        self.done.is_none().then(|| self.jobs.due(now))
    }

    fn gives_up_at(&self, _engine: &Engine) -> Option<Instant> {
        self.done.as_ref().map(|(at, _)| *at + self.patience)
    }

    fn is_over(&self, engine: &Engine) -> bool {
        self.done.is_some() && engine.open() == 0
    }
}
