//! `fairlift torture`: the suites of [`fairlift_lab::torture`], a line for each promise, and the command that repeats a failure.

mod args;
mod report;

use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Duration;

use fairlift_lab::torture::runner::{Asked, Done, run};
use fairlift_lab::torture::{Count, SUITES, Suite, Tally, shrink};

use crate::terminal::complaint::Complaint;
use crate::terminal::output;
use crate::terminal::progress::bar;
use crate::terminal::stop::stop_on_signal;

pub(crate) use args::TortureArgs;
use report::Report;

/// Tries, and reports. A broken promise: status 1; stopped by a signal: 128 + its number.
pub(crate) fn torture(flags: &TortureArgs) -> ExitCode {
    attempt(flags).unwrap_or_else(|complaint| complaint.tell("torture"))
}

fn attempt(flags: &TortureArgs) -> Result<ExitCode, Complaint> {
    let failed = |error: std::io::Error| Complaint::Failed(error.to_string());
    let stop = stop_on_signal().map_err(failed)?;
    let only: Vec<&'static str> =
        SUITES.iter().map(|suite| suite.name).filter(|name| flags.only.iter().any(|only| only == name)).collect();
    let threads = flags.threads.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from);
    let asked = Asked { only: &only, seed: flags.seed, time: flags.time(), runs: flags.runs, threads };
    let bar = bar();
    bar.set_length(asked.time.map_or(1, |time| time.as_millis() as u64).max(1));
    let begun = std::time::Instant::now();
    let done = run(
        &asked,
        &|done| {
            bar.set_position(begun.elapsed().as_millis() as u64);
            bar.set_message(so_far(done));
            stop.signal().is_some()
        },
        &|suite, seed| {
            eprintln!("fairlift torture: a run does not end: fairlift torture --only {suite} --seed {seed} --runs 1");
            std::process::exit(1);
        },
    );
    bar.finish_and_clear();
    let report = Report { seed: flags.seed, threads, time: begun.elapsed(), done: &done };
    let shown = if flags.json { report.json() } else { report.text() };
    output::print(shown.as_bytes()).map_err(failed)?;
    let Some((suite, seed)) = report.first() else {
        return Ok(match stop.signal() {
            Some(signal) => ExitCode::from(128 + u8::try_from(signal).unwrap_or(0)),
            None if report.has_runs() => ExitCode::SUCCESS,
            None => return Err(Complaint::Failed("no run has ended: nothing was tried".into())),
        });
    };
    if !flags.json
        && let Some(suite) = Suite::named(suite)
    {
        output::print(story(suite, seed).as_bytes()).map_err(failed)?;
    }
    Ok(ExitCode::FAILURE)
}

/// What a bar says of a time that is not over.
fn so_far(done: &[Done]) -> String {
    let mut sum = Tally::default();
    done.iter().for_each(|one| sum.add_all(&one.tally));
    let broken: usize = done.iter().map(|one| one.broken.len()).sum();
    let [ios, cuts] = [Count::Ios, Count::Cuts].map(|count| report::short(sum.get(count)));
    format!("{ios} I/Os, {} faults, {cuts} power cuts, {broken} violations", report::short(sum.faults()))
}

/// The shortest run that was found to fail as that of the seed does.
fn story(suite: &Suite, seed: u64) -> String {
    let mut out = format!("\nsuite {}, seed {seed}: {}\n", suite.name, (suite.says)(seed));
    let Some(small) = shrink(suite, seed, Duration::from_secs(60)) else {
        return out + "it did not fail once more\n";
    };
    out += &format!("{} of {} steps do it:\n", small.steps.len(), (suite.steps)(seed));
    for number in &small.steps {
        out += &format!("  {number:>6}  {}\n", (suite.step)(seed, *number));
    }
    out + &format!("{}\n", small.broken)
}
