//! `fairlift iostest`: how a disk is shared, measured and reported.

mod args;
mod cgroups;
mod clients;
mod command;
mod plan;
mod real;
mod reports;
mod tracing;

use std::collections::BTreeMap;
use std::process::ExitCode;

use fairlift::config::{Backing, Disk};
use fairlift_lab::iostest::{Progress, RunError, Runner, run};
use fairlift_lab::repeat;
use fairlift_lab::result::{Results, Run};

use crate::iostune::around::sparse;
use crate::terminal::complaint::Complaint;
use crate::terminal::output::COMMIT;
use crate::terminal::progress::bar;
use crate::terminal::stop::{Stop, stop_on_signal};

pub(crate) use args::IostestArgs;
use clients::Clients;
pub(crate) use command::typed;
use plan::{Measurement, TestDisk};
use real::Real;
pub(crate) use real::measure_real;
pub(crate) use reports::{Form, Reports};
use tracing::Tracing;

/// Measures and reports. Wrong flags: status 2; what goes wrong later: 1; stopped by a signal: 128 + its number.
pub(crate) fn iostest(flags: &IostestArgs) -> ExitCode {
    attempt(flags).unwrap_or_else(|complaint| complaint.tell("iostest"))
}

fn attempt(flags: &IostestArgs) -> Result<ExitCode, Complaint> {
    let failed = Complaint::Failed;
    let mut mistakes = Vec::new();
    // A process that runs a part for another one reports to it.
    let of = if flags.part.is_some() { &IostestArgs::default() } else { flags };
    let reports = Reports::prepare(of, &mut mistakes);
    if let Some(kept) = &flags.report {
        if !mistakes.is_empty() {
            return Err(Complaint::typed(&mistakes));
        }
        let all = reports::read(kept).map_err(failed)?;
        reports.check(&all, &mut mistakes);
        if !mistakes.is_empty() {
            return Err(Complaint::typed(&mistakes));
        }
        reports.write(|form| reports::text(form, &all, of.total)).map_err(failed)?;
        return Ok(ExitCode::SUCCESS);
    }
    let measurement = plan::plan(flags, &reports, &mut mistakes);
    let Some(measurement) = measurement.filter(|_| mistakes.is_empty()) else {
        return Err(Complaint::typed(&mistakes));
    };
    if let (Some(part), TestDisk::Served(server)) = (&flags.part, &measurement.device) {
        let played = clients::play(&measurement.plan, server, part);
        return played.map(|()| ExitCode::SUCCESS).map_err(|error| failed(error.to_string()));
    }
    let reads = measurement.plan.workloads.iter().flat_map(|one| &one.roles).any(|role| !role.does.writes());
    if let (true, TestDisk::Real(Backing::File(file))) = (reads, &measurement.device) {
        sparse(&file.path).iter().for_each(|says| eprintln!("fairlift: {says}"));
    }
    let stop = stop_on_signal().map_err(|error| failed(error.to_string()))?;
    let (results, error) = measure(flags, &measurement, &stop);
    reports.write(|form| reports::text(form, std::slice::from_ref(&results), of.total)).map_err(failed)?;
    match (error, stop.signal()) {
        (Some(error @ RunError::Plan(_)), _) => Err(failed(error.to_string())),
        (Some(error), _) => Err(failed(format!("{error}\n{}", repeat::lines(&measurement.header.command, COMMIT)))),
        (None, Some(signal)) if results.interrupted => Ok(ExitCode::from(128 + u8::try_from(signal).unwrap_or(0))),
        (None, _) => Ok(ExitCode::SUCCESS),
    }
}

/// Runs the plan, once for each value of a sweep, then again without Fairlift if asked for. Results from before an error are kept.
fn measure(flags: &IostestArgs, measurement: &Measurement, stop: &Stop) -> (Results, Option<RunError>) {
    let _guard = repeat::Guard { command: &measurement.header.command, commit: COMMIT };
    let mut results = measurement.header.clone();
    // Each is a way through the plan: with this value of a tunable, if one is swept, and without Fairlift.
    let mut passes: Vec<(Option<(String, String)>, bool)> = match &measurement.sweep {
        Some((name, values)) => values.iter().map(|value| (Some((name.clone(), value.clone())), false)).collect(),
        None => vec![(None, false)],
    };
    passes.extend(flags.raw.then_some((None, true)));
    let bar = bar();
    let mut traces = tracing::Files::new(flags.trace.as_deref(), measurement, passes.len());
    for (place, (swept, raw)) in passes.iter().enumerate() {
        let set: Vec<_> = measurement.set.iter().chain(swept).cloned().collect();
        let settings: BTreeMap<_, _> = swept.iter().cloned().collect();
        let differs = match (swept, *raw) {
            (Some((name, value)), _) => format!(", {name}={value}"),
            (None, true) => ", without Fairlift".into(),
            (None, false) => String::new(),
        };
        let runner: Box<dyn Runner> = match &measurement.device {
            TestDisk::Model(spec) => Box::new(measurement.modelled(spec, &set)),
            TestDisk::Served(server) => Box::new(Clients::new(server, &measurement.plan)),
            TestDisk::Real(backing) => {
                let disk = Disk { set, depth: measurement.depth, ..Disk::new("iostest", measurement.scheduler) };
                Box::new(Real { backing: backing.clone(), disk, raw: *raw })
            }
        };
        let mut runner: Box<dyn Runner + '_> = match &mut traces {
            Some(files) if !*raw => Box::new(Tracing { runner, disk: &measurement.header.device, files }),
            _ => runner,
        };
        let runs = if *raw { &mut results.baseline } else { &mut results.runs };
        let mut begun = 0;
        let mut progress = |progress: Progress<'_>| match progress {
            Progress::Begins(case, number, of) => {
                let (number, all) = (place * of + number, passes.len() * of);
                let each = case.runtime.as_millis();
                begun = (number as u64 - 1) * each;
                bar.set_length(all as u64 * each);
                bar.set_position(begun);
                bar.set_message(format!("{number}/{all} {case}{differs}"));
            }
            Progress::Goes(case, ran) => bar.set_position(begun + ran.min(case.runtime).as_millis()),
            // Collected here, so that an error loses nothing.
            Progress::Ended(run) => runs.push(Run { settings: settings.clone(), ..run.clone() }),
        };
        let over = run(&measurement.plan, &mut *runner, measurement.header.clone(), &mut progress, &|| {
            stop.signal().is_some()
        });
        match over {
            Ok(over) => results.interrupted |= over.interrupted,
            Err(error) => {
                bar.finish_and_clear();
                results.interrupted = true;
                return (results, Some(error));
            }
        }
        if results.interrupted {
            break;
        }
    }
    bar.finish_and_clear();
    for line in traces.iter().flat_map(|files| &files.lines) {
        eprintln!("fairlift: {line}");
    }
    (results, None)
}
