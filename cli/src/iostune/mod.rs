//! `fairlift iostune`: what a disk is like, and what to set for it.

mod args;
mod around;
mod real;
mod scratch;

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fairlift::bench;
use fairlift::config::Backing;
use fairlift_core::Duration;
use fairlift_core::time::secs;
use fairlift_lab::iostune::{
    Disk, Facts, Findings, Header, Kernel, Paper, Progress, Step, advise, find, measure, plan,
};
use fairlift_lab::model::Spec;
use fairlift_lab::{repeat, report};

use crate::terminal::output::{self, COMMIT, are_same, is_stdout, quoted, try_writing};
use crate::terminal::progress::bar;
use crate::terminal::stop::{Stop, stop_on_signal};
use crate::words::backing;
use crate::words::mistake::{Mistake, render};
use crate::words::units::show_size;

pub(crate) use args::IostuneArgs;
use around::Around;
use real::Real;
use scratch::Scratch;

/// The least that can be told apart from a cache, and cut among 16 streams.
const LEAST: u64 = 32 << 20;
/// Below it, caches of any kind hold most of it.
const SMALL: u64 = 1 << 30;
/// One part of so many of the time, at most, is for filling a scratch file.
const FILLING: u64 = 6;

/// Measures and reports. Wrong flags, or a disk that cannot be measured: status 2; what goes wrong later: 1; stopped by a
/// signal: 128 + its number.
pub(crate) fn iostune(flags: &IostuneArgs) -> ExitCode {
    match attempt(flags) {
        Ok(code) => code,
        Err((code, says)) => {
            eprintln!("{}", says.trim_end());
            code
        }
    }
}

/// What is measured.
struct Asked {
    name: String,
    target: Option<Target>,
    time: Duration,
    warnings: Vec<String>,
}

impl Asked {
    /// The file or device that is measured.
    fn file(&self) -> Option<&Path> {
        match &self.target {
            Some(Target::Real { backing: Backing::File { path, .. }, .. }) => Some(path),
            _ => None,
        }
    }

    /// The disk as a config file has it, wherever that file may lie.
    fn in_a_config(&self) -> String {
        let Some(path) = self.file() else { return self.name.clone() };
        let (shown, whole) =
            (path.display().to_string(), std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        self.name.replacen(&shown, &whole.display().to_string(), 1)
    }
}

enum Target {
    Model(Spec),
    Real { backing: Backing, facts: Facts, around: Option<Around>, write_to: Option<WriteTo> },
}

fn attempt(flags: &IostuneArgs) -> Result<ExitCode, (ExitCode, String)> {
    let failed = |says: String| (ExitCode::FAILURE, format!("fairlift: {says}"));
    let mut mistakes = Vec::new();
    for (flag, path) in [("--json", &flags.json), ("--html", &flags.html)] {
        if let Some(path) = path.as_ref().filter(|path| !is_stdout(path))
            && let Err(error) = try_writing(path)
        {
            mistakes.push(Mistake::in_flag(flag, format!("{}: {error}", path.display())));
        }
    }
    if flags.json.is_some() && flags.json == flags.html {
        mistakes.push(Mistake::in_flag("--html", "is also the file of --json; choose another"));
    }
    let asked = look(flags).map_err(|(flag, says)| mistakes.push(Mistake::in_flag(flag, says))).ok();
    let disk = asked.as_ref().and_then(Asked::file);
    for (flag, path) in [("--json", &flags.json), ("--html", &flags.html)] {
        if let (Some(path), Some(disk)) = (path, disk)
            && are_same(path, disk)
        {
            mistakes.push(Mistake::in_flag(
                flag,
                "is the disk that is measured, and the report would overwrite it; choose another file",
            ));
        }
    }
    let Some(asked) = asked.filter(|_| mistakes.is_empty()) else {
        return Err((ExitCode::from(2), render(None, &mistakes)));
    };
    let stop = stop_on_signal().map_err(|error| failed(error.to_string()))?;
    let (found, error) = run(flags, &asked, &stop).map_err(|says| (ExitCode::from(2), says))?;
    report(flags, &found).map_err(failed)?;
    match (error, stop.signal()) {
        (Some(error), _) => Err(failed(error)),
        (None, Some(signal)) if found.header.interrupted => Ok(ExitCode::from(128 + u8::try_from(signal).unwrap_or(0))),
        (None, _) => Ok(ExitCode::SUCCESS),
    }
}

/// Looks at the disk before anything is measured.
///
/// # Errors
/// It cannot be measured: the flag, and why.
fn look(flags: &IostuneArgs) -> Result<Asked, (&'static str, String)> {
    let device = |says| ("--device", says);
    let name = flags.device.as_deref().or(flags.path.as_deref());
    let name = name.ok_or_else(|| device("a disk is needed: a path, or sim:MODEL (see `fairlift models`)".into()))?;
    let time = flags.time.unwrap_or(if flags.quick { secs(30) } else { secs(180) });
    let mut asked = Asked { name: name.into(), target: None, time, warnings: Vec::new() };
    if let Some(model) = name.strip_prefix("sim:") {
        let spec = Spec::parse(model).map_err(|error| device(error.to_string()))?;
        enough(spec.size).map_err(device)?;
        if flags.scratch.is_some() {
            return Err(("--scratch", "a modelled disk has no files; --write alone is enough".into()));
        }
        asked.target = Some(Target::Model(spec));
        return Ok(asked);
    }
    let backing =
        backing::parse(name).and_then(|backing| backing::check(&backing).map(|()| backing)).map_err(device)?;
    let shape = bench::shape(&backing).map_err(|error| device(error.to_string()))?;
    enough(shape.bytes).map_err(device)?;
    // RAM is empty at the start of every run.
    let mut facts = Facts { bytes: shape.bytes, block: shape.block, scratch: None, at_rest: true };
    let (mut around, mut write_to) = (None, None);
    if let Backing::File { path, .. } = &backing {
        facts.at_rest = false;
        around = Around::of(path).filter(|_| !shape.in_ram);
        let is_file = path.is_file();
        asked.warnings.extend(look_inside(path, shape).map_err(device)?);
        let mounted = around.as_ref().and_then(Around::mounted);
        if flags.write {
            let to = where_to_write(flags, path, is_file, mounted.as_deref())?;
            facts.scratch = matches!(to, WriteTo::Device(_)).then_some(shape.bytes);
            write_to = Some(to);
        }
        if let Some(mounted) = mounted {
            asked.warnings.push(format!("{mounted}: other I/O there disturbs the measurement"));
        }
    } else if flags.scratch.is_some() || flags.i_know_this_destroys_data {
        return Err(("--write", "is enough for this disk, which holds no data".into()));
    } else if flags.write {
        facts.scratch = Some(shape.bytes);
    }
    asked.warnings.extend(busy());
    asked.target = Some(Target::Real { backing, facts, around, write_to });
    Ok(asked)
}

/// Whether it is large enough.
fn enough(bytes: u64) -> Result<(), String> {
    if bytes >= LEAST {
        return Ok(());
    }
    Err(format!("the disk has {}; at least {} are needed", show_size(bytes), show_size(LEAST)))
}

/// What of a file or device casts doubt on its rates.
fn look_inside(path: &Path, shape: bench::Shape) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    let holes = if path.is_file() { around::holes(path) } else { 0.0 };
    if holes >= 99.0 {
        return Err(format!(
            "{0}: the file has no data, only holes, and reading holes does not reach a disk; fill it first: \
             dd if=/dev/urandom of={0} bs=1M count={1} conv=notrunc",
            path.display(),
            shape.bytes >> 20
        ));
    }
    if holes > 5.0 {
        warnings.push(format!(
            "{holes:.0} % of the file are holes, and reading holes does not reach a disk: rates are too high"
        ));
    }
    if !shape.direct && !shape.in_ram {
        warnings.push("direct I/O is not possible here: the rates are those of the page cache, not of the disk".into());
    }
    if shape.bytes < SMALL && !shape.in_ram {
        warnings.push(format!("{} is small, and caches may hold it; measure 1 GiB or more", show_size(shape.bytes)));
    }
    Ok(warnings)
}

/// Where writes may go.
enum WriteTo {
    /// On the device itself, which is held so that nobody mounts it meanwhile.
    Device(#[expect(dead_code, reason = "held, not used")] OwnedFd),
    /// Into a file that is made for it.
    Scratch(PathBuf),
}

/// Decides where is written, and refuses where somebody's data is.
fn where_to_write(
    flags: &IostuneArgs,
    path: &Path,
    is_file: bool,
    mounted: Option<&str>,
) -> Result<WriteTo, (&'static str, String)> {
    if is_file {
        if flags.i_know_this_destroys_data {
            let says = "is for block devices; for a file, --write makes a scratch file".into();
            return Err(("--i-know-this-destroys-data", says));
        }
        // Not beside a link to it, which may be on another disk.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let beside = || PathBuf::from(format!("{}.iostune", path.display()));
        let scratch = flags.scratch.clone().unwrap_or_else(beside);
        let disk = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev()).ok();
        let folder = scratch.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if let (Some(there), Some(here)) = (disk(folder), disk(&path))
            && there != here
        {
            let says = format!(
                "{} is on another file system than {}, so its writes would not measure this disk",
                scratch.display(),
                path.display()
            );
            return Err(("--scratch", says));
        }
        if scratch.symlink_metadata().is_ok() {
            let says = format!(
                "{} exists already and is left alone; choose another with --scratch, or remove it",
                scratch.display()
            );
            return Err(("--scratch", says));
        }
        return Ok(WriteTo::Scratch(scratch));
    }
    if let Some(scratch) = &flags.scratch {
        let says = format!(
            "{}: a file is not on this device, so its writes would not measure it; leave --scratch out",
            scratch.display()
        );
        return Err(("--scratch", says));
    }
    if !flags.i_know_this_destroys_data {
        let says = format!(
            "destroys all data on {}; add --i-know-this-destroys-data to allow that, or leave --write out",
            path.display()
        );
        return Err(("--write", says));
    }
    if let Some(mounted) = mounted {
        return Err(("--write", format!("{}: {mounted}; nothing is written on it", path.display())));
    }
    // The kernel answers EBUSY if a file system, swap or another device has it.
    let exclusive = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::EXCL | rustix::fs::OFlags::CLOEXEC;
    match rustix::fs::open(path, exclusive, rustix::fs::Mode::empty()) {
        Ok(held) => Ok(WriteTo::Device(held)),
        Err(error) => Err(("--write", format!("{}: {}", path.display(), std::io::Error::from(error)))),
    }
}

/// Whether the machine does so much that rates are not the disk's.
fn busy() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split(' ').next()?.parse().ok()?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (load > 0.7 * cpus as f64)
        .then(|| format!("the machine is busy (load {load:.1} on {cpus} CPUs): rates of fast disks are too low"))
}

/// Measures, and finds out what follows.
///
/// # Errors
/// The scratch file could not be made.
fn run(flags: &IostuneArgs, asked: &Asked, stop: &Stop) -> Result<(Findings, Option<String>), String> {
    let stopped = || stop.signal().is_some();
    let bar = bar();
    let mut time = asked.time;
    let mut kernel = Kernel::default();
    let mut scratch = None;
    let mut warnings = asked.warnings.clone();
    let mut disk: Box<dyn Disk> = match asked.target.as_ref().expect("looked at") {
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
                scratch = Scratch::make(path, bytes, filling, &stopped).map_err(|says| format!("--scratch: {says}"))?;
                facts.scratch = scratch.as_ref().map(Scratch::bytes);
            }
            let scratch = scratch.as_ref().map(Scratch::path);
            Box::new(Real { backing: backing.clone(), facts, scratch, around: around.clone(), own: 0, all: 0 })
        }
    };
    let typed = command(flags, asked);
    let _guard = repeat::Guard { command: &typed, commit: COMMIT };
    let facts = disk.facts();
    let steps = plan(&facts, time, flags.quick);
    announce(asked, flags);
    let all: u64 = steps.iter().map(|step| step.each.as_nanos() * u64::from(step.runs)).sum();
    bar.set_length(all / 1_000_000);
    let count = steps.len();
    let mut number = 0;
    let mut progress = |progress: Progress<'_>| match progress {
        Progress::Begins(Step { probe, .. }, at) => {
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
        device: asked.name.clone(),
        seed: flags.seed,
        command: typed.clone(),
        bytes: facts.bytes,
        block: facts.block,
        virtual_time: matches!(asked.target, Some(Target::Model(_))),
        took_s: measured.ran.as_nanos() as f64 / 1e9,
        interrupted: measured.interrupted || measured.error.is_some(),
    };
    let mut found = find(header, &measured.outcomes);
    found.recommend = advise(&found, &asked.in_a_config(), &kernel);
    warnings.append(&mut found.warnings);
    found.warnings = warnings;
    Ok((found, measured.error.map(|error| format!("{error}\n{}", repeat::lines(&typed, COMMIT)))))
}

/// How long it will take, before it begins.
fn announce(asked: &Asked, flags: &IostuneArgs) {
    let seconds = asked.time.as_nanos() as f64 / 1e9;
    let of = if matches!(asked.target, Some(Target::Model(_))) { " of virtual time" } else { "" };
    let writes = if flags.write { "" } else { "; nothing is written" };
    eprintln!("fairlift: measuring {}: at most about {seconds:.0} s{of}{writes}", asked.name);
}

/// What to type to measure the same again.
fn command(flags: &IostuneArgs, asked: &Asked) -> String {
    let mut words = vec!["fairlift".to_owned(), "iostune".into(), "--device".into(), quoted(&asked.name)];
    if flags.quick {
        words.push("--quick".into());
    }
    words.extend(["--time".into(), asked.time.to_string()]);
    if flags.write {
        words.push("--write".into());
    }
    if let Some(path) = &flags.scratch {
        words.extend(["--scratch".into(), quoted(&path.display().to_string())]);
    }
    if flags.i_know_this_destroys_data {
        words.push("--i-know-this-destroys-data".into());
    }
    words.extend(["--seed".into(), flags.seed.to_string()]);
    words.join(" ")
}

/// Writes the reports, and to standard output what belongs there.
fn report(flags: &IostuneArgs, found: &Findings) -> Result<(), String> {
    let (mut shown, mut failed) = (None, Vec::new());
    let json = flags.json.as_ref().map(|path| (path, report::tune::to_json(found)));
    let html = flags.html.as_ref().map(|path| (path, report::html::tuning(found)));
    for (path, text) in json.into_iter().chain(html) {
        if is_stdout(path) {
            shown = Some(text);
        } else if let Err(error) = std::fs::write(path, text) {
            failed.push(format!("{}: {error}", path.display()));
        }
    }
    let shown = shown.unwrap_or_else(|| report::tune::text(found));
    if let Err(error) = output::print(shown.as_bytes()) {
        failed.push(error.to_string());
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\nfairlift: ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::words::mistake::Source;

    fn advice(model: &str, write: bool) -> Findings {
        let mut disk = Paper { spec: Spec::parse(model).unwrap(), write };
        let steps = plan(&disk.facts(), secs(4), true);
        let measured = measure(&steps, &mut disk, 1, &mut |_| (), &|| false);
        let mut found = find(Header::default(), &measured.outcomes);
        found.recommend = advise(&found, &format!("sim:{model}"), &Kernel::default());
        found
    }

    /// What is recommended is what `fairlift serve --config` takes.
    #[test]
    fn the_recommended_config_is_read_without_a_mistake() {
        for (model, write) in [("sata-7200", false), ("eva-raid5-12", true), ("ssd-2010", true), ("nvme-plp", false)] {
            let fairlift = advice(model, write).recommend.fairlift;
            let text = fairlift.config.unwrap();
            let source = Source { name: "recommended".into(), text };
            let mut mistakes = Vec::new();
            let file = config::read(&source, Path::new(""), &mut mistakes);
            assert!(mistakes.is_empty(), "{}\n{}", source.text, render(Some(&source), &mistakes));
            assert_eq!((file.disks.len(), file.exports.len()), (1, 1), "{model}");
            assert_eq!(fairlift.flush_coordinate.is_some(), write, "{model}");
            assert!(
                fairlift
                    .why
                    .iter()
                    .all(|why| why.chars().any(|c| c.is_ascii_digit()) || why.starts_with("scheduler bfq"))
            );
        }
    }

    /// Somebody's data is not written on.
    #[test]
    fn writes_go_into_a_new_file_or_where_it_was_said_that_all_may_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let to = |flags: &IostuneArgs, is_file, mounted| match where_to_write(flags, &path, is_file, mounted) {
            Ok(WriteTo::Device(_)) => "device".to_owned(),
            Ok(WriteTo::Scratch(path)) => path.file_name().unwrap().to_str().unwrap().to_owned(),
            Err((flag, says)) => format!("{flag}: {says}"),
        };
        let plain = IostuneArgs { write: true, ..IostuneArgs::default() };
        let sure = IostuneArgs { i_know_this_destroys_data: true, ..IostuneArgs::default() };
        let named = IostuneArgs { scratch: Some(dir.path().join("mine")), ..IostuneArgs::default() };
        assert_eq!(to(&plain, true, None), "image.iostune");
        assert_eq!(to(&named, true, None), "mine");
        assert!(to(&sure, true, None).contains("is for block devices"));
        assert!(to(&plain, false, None).contains("add --i-know-this-destroys-data"));
        assert!(to(&sure, false, Some("it is mounted at /srv")).contains("it is mounted at /srv; nothing is written"));
        assert!(to(&named, false, None).contains("leave --scratch out"));
        std::fs::write(dir.path().join("image.iostune"), "kept").unwrap();
        assert!(to(&plain, true, None).contains("exists already and is left alone"));
    }

    #[test]
    fn a_disk_has_to_be_large_enough() {
        assert_eq!(enough(32 << 20), Ok(()));
        assert_eq!(enough(1 << 20), Err("the disk has 1 MiB; at least 32 MiB are needed".into()));
    }

    #[test]
    fn the_command_in_the_results_is_what_was_asked() {
        let flags = IostuneArgs { quick: true, write: true, seed: 7, ..IostuneArgs::default() };
        let asked = Asked { name: "a b.img".into(), target: None, time: secs(30), warnings: Vec::new() };
        let expected = "fairlift iostune --device 'a b.img' --quick --time 30s --write --seed 7";
        assert_eq!(command(&flags, &asked), expected);
    }
}
