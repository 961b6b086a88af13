//! `fairlift iostune`: the character of a disk, and the settings for it.

mod args;
pub(crate) mod around;
mod look;
mod real;
pub(crate) mod scratch;

use std::process::ExitCode;

use fairlift_core::Duration;
use fairlift_lab::iostune::{
    Findings, Header, Kernel, Paper, ProbeRun, Progress, UnderTest, advise, find, measure, plan,
};
use fairlift_lab::{repeat, report};

use crate::iostest::{Form, Reports, typed};
use crate::syntax::mistake::Mistake;
use crate::terminal::complaint::Complaint;
use crate::terminal::output::{COMMIT, host};
use crate::terminal::progress::bar;
use crate::terminal::stop::{Stop, stop_on_signal};

pub(crate) use args::IostuneArgs;
use around::Around;
use look::{Measurement, SMALL, Target, WriteTo, look};
use real::Real;
use scratch::Scratch;

/// Filling a scratch file takes at most one part in this number of the time.
const FILLING: u64 = 6;

/// Measures and reports. Wrong flags, or a disk that cannot be measured: status 2; what goes wrong later: 1; stopped by a
/// signal: 128 + its number.
pub(crate) fn iostune(flags: &IostuneArgs) -> ExitCode {
    attempt(flags).unwrap_or_else(|complaint| complaint.tell("iostune"))
}

fn attempt(flags: &IostuneArgs) -> Result<ExitCode, Complaint> {
    let failed = Complaint::Failed;
    let mut mistakes = Vec::new();
    let reports = Reports::new([&flags.json, &flags.html], None, &mut mistakes);
    let measurement = look(flags).map_err(|(flag, says)| mistakes.push(Mistake::in_flag(flag, says))).ok();
    if let Some(disk) = measurement.as_ref().and_then(Measurement::file) {
        reports.check_device(disk, |flag, says| mistakes.push(Mistake::in_flag(flag, says)));
    }
    let Some(measurement) = measurement.filter(|_| mistakes.is_empty()) else {
        return Err(Complaint::typed(&mistakes));
    };
    let stop = stop_on_signal().map_err(|error| failed(error.to_string()))?;
    let (found, error) = run(flags, &measurement, &stop).map_err(|says| Complaint::Typed(format!("error: {says}")))?;
    let text = |form| match form {
        Form::Text => report::tune::text(&found),
        Form::Json => report::tune::to_json(&found),
        Form::Html => report::html::tuning(&found),
    };
    reports.write(text).map_err(failed)?;
    match (error, stop.signal()) {
        (Some(error), _) => Err(failed(error)),
        (None, Some(signal)) if found.header.interrupted => Ok(ExitCode::from(128 + u8::try_from(signal).unwrap_or(0))),
        (None, _) => Ok(ExitCode::SUCCESS),
    }
}

/// Measures, and finds out what follows.
fn run(flags: &IostuneArgs, measurement: &Measurement, stop: &Stop) -> Result<(Findings, Option<String>), String> {
    let stopped = || stop.signal().is_some();
    let bar = bar();
    let mut time = measurement.time;
    let mut kernel = Kernel::default();
    let mut scratch = None;
    let mut warnings = measurement.warnings.clone();
    let mut disk: Box<dyn UnderTest> = match &measurement.target {
        Target::Model(spec) => Box::new(Paper { spec: spec.clone(), write: flags.write }),
        Target::Real { backing, facts, around, write_to } => {
            if let Some(named) = around.as_ref().and_then(Around::kernel) {
                kernel = named;
            }
            let mut facts = *facts;
            if let Some(WriteTo::Scratch(path)) = write_to {
                bar.set_message(format!("filling {}", path.display()));
                let filling = Duration::from_nanos(time.as_nanos() / FILLING);
                time = time - filling;
                let bytes = if flags.quick { 256 << 20 } else { SMALL };
                scratch = Scratch::make(path, bytes, filling, stopped).map_err(|says| format!("--scratch: {says}"))?;
                facts.scratch = scratch.as_ref().map(Scratch::bytes);
            }
            let scratch = scratch.as_ref().map(Scratch::path);
            Box::new(Real { backing: backing.clone(), facts, scratch, around: around.clone(), own: 0, all: 0 })
        }
    };
    let typed = command(flags, measurement);
    let _guard = repeat::Guard { command: &typed, commit: COMMIT };
    let facts = disk.facts();
    let steps = plan(&facts, time, flags.quick);
    announce(measurement, flags);
    let all: u64 = steps.iter().map(|step| step.each.as_nanos() * u64::from(step.runs)).sum();
    bar.set_length(all / 1_000_000);
    let count = steps.len();
    let mut number = 0;
    let mut progress = |progress: Progress<'_>| match progress {
        Progress::Begins(ProbeRun { probe, .. }, at) => {
            number += 1;
            bar.set_position(at.as_nanos() / 1_000_000);
            bar.set_message(format!("{number}/{count} {}", probe.about()));
        }
        Progress::Goes(at) => bar.set_position(at.as_nanos() / 1_000_000),
    };
    let measured = measure(&steps, &mut *disk, flags.seed, &mut progress, &stopped);
    bar.finish_and_clear();
    warnings.extend(disk.disturbed());
    drop(scratch);
    let header = Header {
        tool: "iostune".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        device: measurement.name.clone(),
        host: matches!(measurement.target, Target::Real { .. }).then(host),
        seed: flags.seed,
        command: typed.clone(),
        bytes: facts.bytes,
        block: facts.block,
        virtual_time: matches!(measurement.target, Target::Model(_)),
        took_s: measured.ran.as_nanos() as f64 / 1e9,
        interrupted: measured.interrupted || measured.error.is_some(),
    };
    let mut found = find(header, &measured.outcomes);
    found.recommend = advise(&found, &measurement.in_a_config(), &kernel);
    warnings.append(&mut found.warnings);
    found.warnings = warnings;
    Ok((found, measured.error.map(|error| format!("{error}\n{}", repeat::lines(&typed, COMMIT)))))
}

/// How long it will take, before it begins.
fn announce(measurement: &Measurement, flags: &IostuneArgs) {
    let seconds = measurement.time.as_nanos() as f64 / 1e9;
    let of = if matches!(measurement.target, Target::Model(_)) { " of virtual time" } else { "" };
    let writes = if flags.write { "" } else { "; nothing is written" };
    eprintln!("fairlift: measuring {}: at most about {seconds:.0} s{of}{writes}", measurement.name);
}

/// The command line that repeats a measurement.
fn command(flags: &IostuneArgs, measurement: &Measurement) -> String {
    let values = vec![
        ("--device", Some(measurement.name.clone())),
        ("--time", Some(measurement.time.to_string())),
        ("--scratch", flags.scratch.as_ref().map(|path| path.display().to_string())),
        ("--seed", Some(flags.seed.to_string())),
    ];
    let is_destroyed = ("--i-know-this-destroys-data", flags.i_know_this_destroys_data);
    typed("iostune", values, &[("--quick", flags.quick), ("--write", flags.write), is_destroyed])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fairlift_core::time::secs;
    use fairlift_lab::model::Spec;

    use super::*;
    use crate::config;
    use crate::syntax::mistake::{Source, render};

    fn advice(model: &str, write: bool) -> Findings {
        let mut disk = Paper { spec: Spec::parse(model).unwrap(), write };
        let steps = plan(&disk.facts(), secs(4), true);
        let measured = measure(&steps, &mut disk, 1, &mut |_| (), &|| false);
        let mut found = find(Header::default(), &measured.outcomes);
        found.recommend = advise(&found, &format!("sim:{model}"), &Kernel::default());
        found
    }

    /// The recommended settings are accepted by `fairlift serve --config`.
    #[test]
    fn the_recommended_config_is_read_without_a_mistake() {
        for (model, write) in [("sata-7200", false), ("eva-raid5-12", true), ("ssd-2010", true), ("nvme-plp", false)] {
            let fairlift = advice(model, write).recommend.fairlift;
            let text = fairlift.config.unwrap();
            let source = Source { name: "recommended".into(), text };
            let mut mistakes = Vec::new();
            let file = config::read(&source, Path::new(""), &mut mistakes);
            assert!(mistakes.is_empty(), "{}\n{}", source.text, render("error: ", Some(&source), &mistakes));
            assert_eq!((file.config.disks.len(), file.config.exports.len()), (1, 1), "{model}");
            assert_eq!(fairlift.flush_coordinate.is_some(), write, "{model}");
            assert!(
                fairlift
                    .why
                    .iter()
                    .all(|why| why.chars().any(|c| c.is_ascii_digit()) || why.starts_with("scheduler bfq"))
            );
        }
    }

    #[test]
    fn the_command_in_the_results_is_what_was_asked() {
        let flags = IostuneArgs { quick: true, write: true, seed: 7, ..IostuneArgs::default() };
        let target = Target::Model(Spec::parse("sata-7200").unwrap());
        let measurement = Measurement { name: "a b.img".into(), target, time: secs(30), warnings: Vec::new() };
        let expected = "fairlift iostune --device 'a b.img' --time 30s --seed 7 --quick --write";
        assert_eq!(command(&flags, &measurement), expected);
    }
}
