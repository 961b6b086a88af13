//! Torture as a program: the suites of [`fairlift_proving::torture`], a line for each promise, and the command that repeats a failure.

mod args;
mod report;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use clap::Parser as _;
use fairlift_lab::repeat;
use fairlift_proving::torture::runner::{Campaign, Done, run};
use fairlift_proving::torture::{Count, SUITES, Suite, Tally, shrink};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use args::Args;
use report::{Report, command};

/// Tries, and reports. A broken promise: status 1; stopped by a signal: 128 + its number.
fn main() -> ExitCode {
    attempt(&Args::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn attempt(flags: &Args) -> io::Result<ExitCode> {
    let signal = stop_on_signal()?;
    let only: Vec<&'static str> =
        SUITES.iter().map(|suite| suite.name).filter(|name| flags.only.iter().any(|only| only == name)).collect();
    let threads = flags.threads.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from);
    let campaign = Campaign { only: &only, seed: flags.seed, time: flags.time(), runs: flags.runs, threads };
    let bar = bar();
    bar.set_length(campaign.time.map_or(1, |time| time.as_millis() as u64).max(1));
    let begun = Instant::now();
    let done = run(
        &campaign,
        &|done| {
            bar.set_position(begun.elapsed().as_millis() as u64);
            bar.set_message(so_far(done));
            signal.load(Ordering::Relaxed) > 0
        },
        &|suite, seed| {
            eprintln!("error: a run does not end: {}", command(suite, seed));
            std::process::exit(1);
        },
    );
    bar.finish_and_clear();
    let commit = repeat::commit();
    let report = Report { commit: &commit, seed: flags.seed, threads, time: begun.elapsed(), done: &done };
    let mut out = io::stdout().lock();
    out.write_all(if flags.json { report.json() } else { report.text() }.as_bytes())?;
    let Some((suite, seed)) = report.first() else {
        return Ok(match signal.load(Ordering::Relaxed) {
            0 if report.has_runs() => ExitCode::SUCCESS,
            0 => return Err(io::Error::other("no run has ended: nothing was tried")),
            signal => ExitCode::from(128 + u8::try_from(signal).unwrap_or(0)),
        });
    };
    if !flags.json
        && let Some(suite) = Suite::named(suite)
    {
        out.write_all(story(suite, seed).as_bytes())?;
    }
    Ok(ExitCode::FAILURE)
}

/// The number of the signal that came, 0 before: the first one is noted, so that a report comes; the second ends the process.
fn stop_on_signal() -> io::Result<Arc<AtomicUsize>> {
    let (signal, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    for number in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal finds `again` unset, and sets it.
        flag::register_conditional_default(number, Arc::clone(&again))?;
        flag::register(number, Arc::clone(&again))?;
        flag::register_usize(number, Arc::clone(&signal), usize::try_from(number).unwrap_or(1))?;
    }
    Ok(signal)
}

/// Shows on a terminal that it goes on, beside standard output.
fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The text of a bar for a time that is not over.
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
