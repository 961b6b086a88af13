//! iostune: measures a disk, and recommends settings for it.
//!
//! iostune.1  A measurement is a list of [`Probe`]s. Each is a case as of [`iostest`](crate::iostest), so that the same steps
//!     run on a disk on paper ([`Paper`]) and on a real one (`cli`).
//! iostune.2  The time is bounded: each step has its part of it, cut into equal runs. A step ends early when three runs or more are
//!     so close that their mean is known to [`KNOWN`].
//! iostune.3  Runs of a step differ in their seeds and places, so that none reads what was read just before; but for the step that
//!     finds out whether that is faster.
//! iostune.4  Nothing is written unless there is somewhere to write ([`Facts::scratch`]).
//! iostune.5  When it is stopped, what was measured before counts.
//! iostune.6  A verdict or advice names the figures that it follows from; a figure that was not measured is absent, not guessed.
//!
//! The idea is Vivek Goyal's: "identify if we should use slice_idle or not" by parallel sequential readers in different areas of a disk
//! (July 2010, seed 001). The advice follows from the queue's measured rates here with either setting.

mod advice;
mod findings;
mod judge;
mod paper;
mod probe;
mod sample;

use fairlift_core::Duration;

use crate::iostest::{Case, Failure, Measured, RunError, Watch};

pub use advice::{Kernel, advise};
pub use findings::{
    Again, Alignment, Beside, Character, CostModel, Durable, Findings, Header, Op, Recommend, RecommendFairlift,
    RecommendKernel, Reference, Size, Streams, Verdict, Writes,
};
pub use judge::find;
pub use paper::Paper;
pub use probe::{Area, Probe, ProbeRun, Way, plan};
pub use sample::{Figure, Sample};

/// How well the mean of runs is to be known for a step to end early: its standard error, against the mean.
/// Chosen: a gain of 5 % (`judge.rs`) is then more than twice what chance may do.
pub const KNOWN: f64 = 0.02;

/// The facts of a disk before anything is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Bytes that are read.
    pub bytes: u64,
    /// The smallest request, in bytes.
    pub block: u32,
    /// Bytes that may be written, if any may (iostune.4).
    pub scratch: Option<u64>,
    /// Whether each run finds the disk at rest, as those on paper are: nothing that one run leaves behind meets the next.
    pub at_rest: bool,
}

/// A runner of probes.
pub trait UnderTest {
    /// The known facts.
    fn facts(&self) -> Facts;

    /// Runs a case on this way and place. `watch` is told now and then how far it is, and answers whether it is to stop.
    ///
    /// # Errors
    /// It could not be run.
    fn run(&mut self, way: Way, place: Area, case: &Case, watch: Watch<'_>) -> Result<Measured, Failure>;

    /// Whether others used it meanwhile, in words.
    fn disturbed(&self) -> Option<String> {
        None
    }
}

/// The result of a step.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The step.
    pub probe: Probe,
    /// One for each run that ended.
    pub samples: Vec<Sample>,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A step begins, after this part of the planned time.
    Begins(&'a ProbeRun, Duration),
    /// The part of the planned time that is over.
    Goes(Duration),
}

/// The measurements, and the end of the run.
#[derive(Debug)]
pub struct Measurement {
    /// By step, in order; of the last one perhaps fewer runs than planned.
    pub outcomes: Vec<Outcome>,
    /// Whether it was stopped (iostune.5).
    pub interrupted: bool,
    /// The error that ended it, if not a stop.
    pub error: Option<RunError>,
    /// Time of the disk that it took.
    pub ran: Duration,
}

/// Runs the steps of a [`plan`].
pub fn measure(
    steps: &[ProbeRun],
    disk: &mut dyn UnderTest,
    seed: u64,
    progress: &mut dyn FnMut(Progress<'_>),
    stop: &dyn Fn() -> bool,
) -> Measurement {
    let facts = disk.facts();
    let mut all = Measurement { outcomes: Vec::new(), interrupted: false, error: None, ran: Duration::ZERO };
    let (mut planned, mut count) = (Duration::ZERO, 0);
    for step in steps {
        progress(Progress::Begins(step, planned));
        let mut samples = Vec::new();
        for run in 0..step.runs {
            if stop() {
                all.interrupted = true; // iostune.5
                break;
            }
            // iostune.3
            let number = if facts.at_rest { u64::from(run) } else { count };
            count += 1;
            let case = step.case(&facts, seed, if step.probe == Probe::Again { 0 } else { number });
            let before = planned + nanos(step.each, u64::from(run));
            let mut watch = |ran| {
                progress(Progress::Goes(before + ran));
                stop()
            };
            match disk.run(step.probe.way(), step.probe.place(), &case, &mut watch) {
                Err(why) => all.error = Some(RunError::of(&case, why)),
                Ok(mut measured) => {
                    all.ran = all.ran + measured.runtime;
                    if let Some(failed) = crate::iostest::failure(&measured) {
                        all.error = Some(RunError::of(&case, failed.into()));
                    } else if measured.runtime < case.runtime {
                        all.interrupted = true; // iostune.5
                    } else {
                        if matches!(step.probe, Probe::Beside(_)) {
                            measured.meters.truncate(1); // the reader's
                        }
                        samples.push(Sample::of(&measured, step.probe.in_flight()));
                    }
                }
            }
            if all.error.is_some() || all.interrupted || is_known(&samples) && step.probe != Probe::Again {
                break; // iostune.2
            }
        }
        planned = planned + nanos(step.each, u64::from(step.runs));
        if !samples.is_empty() {
            all.outcomes.push(Outcome { probe: step.probe, samples });
        }
        if all.error.is_some() || all.interrupted {
            break;
        }
    }
    all
}

fn nanos(each: Duration, times: u64) -> Duration {
    Duration::from_nanos(each.as_nanos() * times)
}

/// Whether the mean rate is known well enough (iostune.2).
fn is_known(samples: &[Sample]) -> bool {
    samples.len() >= 3 && sample::standard_error(samples.iter().map(|sample| sample.iops)) <= KNOWN
}

#[cfg(test)]
mod tests;
