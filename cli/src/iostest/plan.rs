//! From flags to a plan of measurements; all mistakes are found here, before anything runs.
//!
//! plan.1  The content of a disk is not destroyed unless `--write-to-device` is given.
//! plan.2  Choices that the flags leave open are made here, and [`command`] says all of them: the same words, the same run.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use fairlift::bench::{ASK_MAX, shape};
use fairlift::config::{Backing, Config};
use fairlift_core::ceiling::Bounds;
use fairlift_core::time::secs;
use fairlift_core::{Duration, Group, Sector, Weight, sched};
use fairlift_lab::iostest::{Case, Failure, Modelled, Plan, Runner as _};
use fairlift_lab::model::Spec;
use fairlift_lab::result::Results;
use fairlift_lab::suggestion;
use fairlift_lab::workload::{Does, Workload};

use super::args::IostestArgs;
use super::cgroups::Mount;
use super::clients::Judged;
use super::command::{command, distinct};
use super::reports::Reports;
use crate::config::given::{Amiss, Given};
use crate::config::{self, faults};
use crate::iostune::around::Around;
use crate::syntax::backing;
use crate::syntax::groups::place;
use crate::syntax::mistake::{Mistake, Source};
use crate::syntax::scheduler::check_setting;
use crate::syntax::units::show_size;
use crate::terminal::output::host;

pub(crate) struct Measurement {
    /// Which programs ask what.
    pub(crate) plan: Plan,
    pub(crate) device: TestDisk,
    pub(crate) scheduler: sched::Kind,
    /// With which tunables, as the user wrote them.
    pub(crate) set: Vec<(String, String)>,
    /// A tunable, and the values to measure with, one after the other.
    pub(crate) sweep: Option<(String, Vec<String>)>,
    pub(crate) depth: Option<u16>,
    /// The results before anything ran.
    pub(crate) header: Results,
}

type Note<'a> = &'a mut dyn FnMut(&str, String);

type Limits = BTreeMap<String, Bounds>;

pub(crate) enum TestDisk {
    /// A model, in virtual time.
    Model(Box<Spec>),
    Real(Backing),
    /// A server of others, in real time.
    Served(Judged),
}

/// The request of the flags; `None` if a mistake was added that leaves none.
pub(crate) fn plan(flags: &IostestArgs, reports: &Reports, mistakes: &mut Vec<Mistake>) -> Option<Measurement> {
    let mut note = |flag: &str, says: String| mistakes.push(Mistake::in_flag(flag, says));
    let (flag, named) = flags.measured();
    let device = match &named {
        _ if flag != "--device" => served(flags),
        None => Err("a disk is needed: sim:MODEL (see `fairlift models`), file:PATH, mem:SIZE or null:SIZE".into()),
        Some(text) => device(text),
    };
    let device = device.map_err(|says| note(flag, says)).ok();
    let mut workloads: Vec<Workload> = Vec::new();
    for name in distinct(&flags.workload) {
        for one in workloads_of(&name).map_err(|says| note("--workload", says)).unwrap_or_default() {
            match workloads.iter().find(|other| other.name == one.name) {
                None => workloads.push(one),
                Some(same) if *same == one => {}
                Some(_) => note("--workload", format!("{name}: another workload is called \"{}\"", one.name)),
            }
        }
    }
    check_device(flags, reports, &workloads, device.as_ref(), &mut note);
    let are_tenants = tenants(flags, &workloads, device.as_ref(), &mut note);
    let tree = groups(flags, &mut note);
    // The groups that have jobs: those without a group below.
    let leaves =
        |groups: &[Group]| groups.len() - groups.iter().filter_map(|group| group.parent).collect::<BTreeSet<_>>().len();
    let leaves = if are_tenants { 2 } else { tree.as_ref().map_or(1, |(groups, _)| leaves(groups)) };
    // The character of a real path is found out by bfq.
    let rotational = match &device {
        Some(TestDisk::Model(spec)) => spec.build(0).character().rotational,
        Some(TestDisk::Real(_) | TestDisk::Served(_)) | None => true,
    };
    let scheduler = flags.scheduler.unwrap_or_else(|| sched::Kind::usual(leaves, rotational));
    let tree = tree.map(|(groups, bounds)| (limited(flags, &groups, bounds, scheduler, &mut note), groups));
    let set = settings(flags, scheduler, &mut note);
    let sweep = sweep(flags, scheduler, &set, &mut note);
    let jobs = if are_tenants {
        vec![1]
    } else if flags.jobs.is_empty() {
        rising(flags.max_jobs.unwrap_or(JOBS_MAX))
    } else {
        distinct(&flags.jobs)
    };
    let (device, (bounds, groups)) = (device?, tree?);
    if !mistakes.is_empty() {
        return None;
    }
    let limits = bounds.iter().map(|(path, bounds)| (path.clone(), bounds.to_string())).collect();
    let plan = Plan {
        groups,
        bounds,
        workloads,
        jobs,
        sets: flags.sets,
        runtime: flags.runtime.unwrap_or(if are_tenants { RUNTIME_OF_TENANTS } else { Plan::default().runtime }),
        round_trip: match device {
            TestDisk::Model(_) => flags.round_trip.unwrap_or(Plan::default().round_trip),
            TestDisk::Real(_) | TestDisk::Served(_) => Duration::ZERO, // time passes by itself
        },
        block_size: flags.bs,
        file_size: flags.filesize,
        iodepth: flags.iodepth,
        seed: flags.seed,
        trace: if flags.trace.is_some() { TRACED } else { 0 },
        ..Plan::default()
    };
    let header = Results {
        tool: "iostest".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        device: named.unwrap_or_default(),
        host: (!matches!(device, TestDisk::Model(_))).then(host),
        scheduler: match &device {
            TestDisk::Served(Judged::Nbd(_)) => "server".into(),
            TestDisk::Served(Judged::Kernel(dir, _)) => {
                Around::of(dir).and_then(|around| around.scheduler()).unwrap_or_else(|| "kernel".into())
            }
            _ => scheduler.name().into(),
        },
        settings: effective(scheduler, &device, &set, sweep.as_ref()),
        seed: flags.seed,
        block_size: flags.bs.map_or(0, u64::from),
        file_size: flags.filesize,
        iodepth: flags.iodepth,
        limits,
        interrupted: false,
        command: command(flags, &plan, scheduler, &set),
        runs: Vec::new(),
        baseline: Vec::new(),
    };
    let measurement = Measurement { plan, device, scheduler, set, sweep, depth: flags.depth, header };
    match check_cases(&measurement) {
        Ok(()) => Some(measurement),
        Err(error) => {
            mistakes.push(Mistake::in_flag("", error.to_string()));
            None
        }
    }
}

impl Measurement {
    /// Runs cases on this model, with these tunables.
    pub(crate) fn modelled(&self, spec: &Spec, set: &[(String, String)]) -> Modelled {
        Modelled { spec: spec.clone(), scheduler: self.scheduler, set: set.to_vec(), depth: self.depth }
    }
}

/// Steps of a run that are kept where it is traced. Chosen: some seconds of a flash disk, in 25 MB.
const TRACED: usize = 1 << 18;

/// How long a situation of tenants lasts by default: all of them together are then a matter of seconds on a model.
const RUNTIME_OF_TENANTS: Duration = secs(2);

/// Whether these workloads may run on this disk, and the flags say something of them (plan.1).
fn check_device(
    flags: &IostestArgs,
    reports: &Reports,
    workloads: &[Workload],
    device: Option<&TestDisk>,
    note: Note<'_>,
) {
    let overwritten = match device {
        Some(TestDisk::Real(real)) if backing::holds_data(real) => Some(real.about().shown),
        Some(TestDisk::Served(Judged::Nbd(uri))) => Some(uri.clone()),
        _ => None,
    };
    if let Some(name) = overwritten {
        let writers: Vec<_> =
            workloads.iter().filter(|workload| workload.writes()).map(|workload| workload.name.as_str()).collect();
        if !writers.is_empty() && !flags.write_to_device {
            let says = format!(
                "{} writes to {name} and destroys its contents; add --write-to-device to allow that",
                writers.join(", "),
            );
            note("--workload", says);
        }
    }
    if let Some(TestDisk::Real(Backing::File(file))) = device {
        reports.check_device(&file.path, &mut *note);
    }
    let has_depth = |workload: &Workload| workload.has_depth() || workload.is_situation(); // refused for another reason
    if flags.iodepth > 1 && !workloads.is_empty() && !workloads.iter().any(has_depth) {
        let names: Vec<_> = workloads.iter().map(|workload| workload.name.as_str()).collect();
        let (names, has) = (names.join(", "), if names.len() == 1 { "has" } else { "have" });
        note(
            "--iodepth",
            format!("{names} {has} no direct reader or writer; --iodepth applies to dsr, drr, dsw, drw and mixed"),
        );
    }
    if flags.raw && !matches!(device, None | Some(TestDisk::Real(Backing::File(_)))) {
        note("--raw", "needs a file or block device: only those can be measured without Fairlift".into());
    }
}

/// Whether the workloads are situations of tenants, for which the flags of groups and jobs say nothing.
fn tenants(flags: &IostestArgs, workloads: &[Workload], device: Option<&TestDisk>, note: Note<'_>) -> bool {
    let (situations, others): (Vec<_>, Vec<_>) = workloads.iter().partition(|workload| workload.is_situation());
    let Some(first) = situations.first() else {
        if flags.round_trip.is_some() {
            note("--round-trip", "applies only to situations of tenants: -w tenants".into());
        }
        return false;
    };
    if let Some(other) = others.first() {
        let says = format!(
            "{} has groups of its own, {} uses those of the flags; run them separately",
            first.name, other.name
        );
        note("--workload", says);
    }
    for (flag, given) in [
        ("-G", flags.group_mode),
        ("--nrgrp", flags.nrgrp.is_some()),
        ("--weights", !flags.weights.is_empty()),
        ("--groups", flags.groups.is_some()),
        ("--max", !flags.max.is_empty()),
        ("--burst", !flags.burst.is_empty()),
        ("--min", !flags.min.is_empty()),
        ("-m", flags.max_jobs.is_some()),
        ("--jobs", !flags.jobs.is_empty()),
        ("--iodepth", flags.iodepth != 1),
        ("--bs", flags.bs.is_some()),
    ] {
        if given {
            let says = "has no effect on tenants, which have groups, weights, depths and block sizes of their own; describe others in a file: -w FILE.toml";
            note(flag, says.into());
        }
    }
    if flags.round_trip.is_some() && matches!(device, Some(TestDisk::Real(_))) {
        note("--round-trip", "applies only to a modelled disk; on a real disk the time passes by itself".into());
    }
    true
}

/// A server or a directory of others, from the flags.
fn served(flags: &IostestArgs) -> Result<TestDisk, String> {
    let server = match (&flags.target, flags.dir.clone().unwrap_or_default()) {
        (Some(uri), _) => Judged::Nbd(uri.clone()),
        (None, dir) => match std::fs::metadata(&dir) {
            Ok(metadata) if metadata.is_dir() => Judged::Kernel(dir, Mount::find()),
            Ok(_) => return Err(format!("{} is no directory", dir.display())),
            Err(error) => return Err(format!("{}: {error}", dir.display())),
        },
    };
    server.backing("/", None)?;
    Ok(TestDisk::Served(server))
}

fn device(text: &str) -> Result<TestDisk, String> {
    if let Some(model) = text.strip_prefix("sim:") {
        return Spec::parse(model).map(|spec| TestDisk::Model(Box::new(spec)));
    }
    let backing = backing::parse(text).and_then(|backing| faults::settle(&backing))?;
    backing::check(&backing)?;
    Ok(TestDisk::Real(backing))
}

/// A built-in workload, or those that a file describes: all, or one of them (`FILE.toml:NAME`).
fn workloads_of(name: &str) -> Result<Vec<Workload>, String> {
    if Path::new(name).extension().is_none_or(|extension| extension != "toml") {
        let Some((file, one)) = name.rsplit_once(':').filter(|(file, _)| file.ends_with(".toml")) else {
            return Workload::all_named(name);
        };
        let all = workloads_of(file)?;
        let names: Vec<_> = all.iter().map(|workload| workload.name.as_str()).collect();
        let hint = suggestion(one, names.iter().copied());
        let refusal = format!("{file} has no workload \"{one}\": its workloads are {}{hint}", names.join(", "));
        return all.into_iter().find(|workload| workload.name == one).map(|one| vec![one]).ok_or(refusal);
    }
    let text = std::fs::read_to_string(name).map_err(|error| format!("{name}: {error}"))?;
    let workloads = Workload::read(&text).map_err(|mistake| format!("{name}:{mistake}"))?;
    match workloads.iter().find(|workload| Workload::named(&workload.name).is_ok()) {
        Some(workload) => Err(format!("{name}: \"{}\" is a built-in workload; choose another name", workload.name)),
        None => Ok(workloads),
    }
}

/// The tunables: those of `--set`, and `-I`.
fn settings(flags: &IostestArgs, scheduler: sched::Kind, note: Note<'_>) -> Vec<(String, String)> {
    let mut set: Vec<(String, String)> = Vec::new();
    let given = flags.set.iter().map(|(name, value)| (format!("--set {name}={value}"), &**name, value));
    let idle = flags.slice_idle.iter().map(|value| ("-I".to_owned(), "slice_idle", value));
    for (flag, name, value) in given.chain(idle) {
        set.retain(|(one, _)| one != name); // Given twice, the last one holds.
        set.push((name.to_owned(), value.clone()));
        check_setting(scheduler, name, value).unwrap_or_else(|(_, says)| note(&flag, says));
    }
    set
}

/// The tunable that is swept, and its values, each once.
fn sweep(
    flags: &IostestArgs,
    scheduler: sched::Kind,
    set: &[(String, String)],
    note: Note<'_>,
) -> Option<(String, Vec<String>)> {
    let (name, values) = flags.sweep.as_ref()?;
    if set.iter().any(|(one, _)| one == name) {
        note("--sweep", format!("{name} is also set by another flag; give it once"));
    }
    let values = distinct(values);
    if let Some((_, says)) = values.iter().find_map(|value| check_setting(scheduler, name, value).err()) {
        note("--sweep", says);
    }
    Some((name.clone(), values))
}

/// All tunables of a scheduler: as the user wrote them, the rest with their defaults, which follow from the model's declarations.
fn effective(
    scheduler: sched::Kind,
    device: &TestDisk,
    set: &[(String, String)],
    sweep: Option<&(String, Vec<String>)>,
) -> BTreeMap<String, String> {
    if let TestDisk::Served(server) = device {
        let Judged::Kernel(_, mount) = server else { return BTreeMap::new() };
        return BTreeMap::from([("cgroups".into(), if mount.is_ok() { "io".into() } else { "none".into() })]);
    }
    let mut setup = sched::Setup::new(1);
    if let TestDisk::Model(spec) = device {
        setup.character = spec.build(1).character();
    }
    let mut built = scheduler.build(&setup);
    // One knob can have two names, as slice_idle and slice_idle_us: they are not to say two things.
    set.iter().for_each(|(name, value)| _ = built.set(name, value));
    let all = built.tunables().iter().map(|info| (info.name.to_owned(), built.get(info.name).unwrap_or_default()));
    let mut settings: BTreeMap<_, _> = all.collect();
    for (name, value) in sweep.into_iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value))) {
        _ = built.set(name, value);
        settings.retain(|name, was| built.get(name).as_ref() == Some(was));
    }
    settings.extend(set.iter().cloned());
    settings.extend(sweep.map(|(name, values)| (name.clone(), values.join(","))));
    settings
}

/// The bounds of groups: those of the file, overridden by the flags.
fn limited(flags: &IostestArgs, groups: &[Group], mut all: Limits, scheduler: sched::Kind, note: Note<'_>) -> Limits {
    type Read = fn(&Given, &mut Bounds) -> Result<(), Amiss>;
    let max: Read = |given, bounds| given.rates().map(|rates| bounds.ceiling.max = rates);
    let burst: Read = |given, bounds| given.burst().map(|burst| (bounds.ceiling.burst, bounds.ceiling.length) = burst);
    let min: Read = |given, bounds| given.rates().map(|rates| bounds.floor = rates);
    let given = [("--max", &flags.max, max), ("--burst", &flags.burst, burst), ("--min", &flags.min, min)];
    for (flag, path, text, read) in
        given.iter().flat_map(|(flag, given, read)| given.iter().map(move |(path, text)| (flag, path, text, read)))
    {
        if !groups.iter().any(|group| group.path == *path) {
            let paths: Vec<_> = groups.iter().map(|group| group.path.as_str()).collect();
            note(flag, format!("there is no group {path:?}; the groups are {}", paths.join(", ")));
        } else if let Err(wrong) = read(&Given::Word(text.clone()), all.entry(path.clone()).or_default()) {
            note(flag, format!("{path}: {}", wrong.into_text()));
        }
    }
    for (path, bounds) in &all {
        let root = if path == "/" { bounds.check_root() } else { Ok(()) };
        if let Err(wrong) = root.and_then(|()| bounds.check()) {
            note(&format!("--{}", wrong.key), format!("{path}: {wrong}"));
        }
        if !bounds.floor.is_none() && !scheduler.has_floors() {
            note("--min", format!("{path}: scheduler {} keeps no floors; fair does", scheduler.name()));
        }
    }
    all.retain(|_, bounds| !bounds.is_none());
    all
}

/// The weight tree, and the bounds of its groups: the root alone, numbered groups, or that of a file.
fn groups(flags: &IostestArgs, note: Note<'_>) -> Option<(Vec<Group>, Limits)> {
    if let Some(path) = &flags.groups {
        return groups_of(path).map_err(|says| note("--groups", says)).ok();
    }
    if !flags.group_mode && flags.nrgrp.is_none() && flags.weights.is_empty() {
        return Some((vec![Group::root()], Limits::new()));
    }
    let given = flags.weights.len();
    let number = flags.nrgrp.map_or(if given > 0 { given } else { 8 }, usize::from);
    if given > 0 && given != number {
        let weights = if given == 1 { "1 weight is".into() } else { format!("{given} weights are") };
        let groups = if number == 1 { "1 group".into() } else { format!("{number} groups") };
        note("--weights", format!("{weights} given for {groups} (--nrgrp); give one weight for each group"));
        return None;
    }
    let usual =
        (1..=number).map(|place| Weight::new(Weight::MAX.get().min(u16::try_from(place * 100).unwrap_or(u16::MAX))));
    let weights: Vec<Weight> = if given > 0 { flags.weights.clone() } else { usual.collect() };
    let mut tree = vec![Group::root()];
    for (number, weight) in (1..).zip(weights) {
        let group = place(&mut tree, &format!("/g{number}")).map_err(|says| note("--nrgrp", says)).ok()?;
        tree[usize::from(group.0)].weight = weight;
    }
    Some((tree, Limits::new()))
}

fn groups_of(path: &Path) -> Result<(Vec<Group>, Limits), String> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let source = Source { name: name.clone(), text };
    let mut mistakes = Vec::new();
    let file = config::read(&source, path.parent().unwrap_or(Path::new("")), &mut mistakes);
    // The users and groups of its sockets may be those of another machine.
    mistakes.retain(|mistake| !mistake.key.starts_with("server."));
    if !mistakes.is_empty() {
        return Err(mistakes.iter().map(|mistake| mistake.line(Some(&source))).collect::<Vec<_>>().join("\n"));
    }
    let Config { groups, bounds, .. } = file.config;
    if groups.len() == 1 {
        return Err(format!("{name} has no [group.\"/PATH\"]"));
    }
    Ok((Arc::unwrap_or_clone(groups), Arc::unwrap_or_clone(bounds)))
}

/// The largest number of jobs, unless -m says otherwise.
const JOBS_MAX: u32 = 8;

/// 1, 2, 4, … below `max`, then `max`.
fn rising(max: u32) -> Vec<u32> {
    let mut jobs: Vec<u32> = (0..32).map(|power| 1 << power).take_while(|jobs| *jobs < max).collect();
    jobs.push(max);
    jobs
}

/// Whether every case can be, as far as can be told: files fit on the disk, blocks are of its size.
fn check_cases(measurement: &Measurement) -> Result<(), Failure> {
    // Sets differ in their seeds alone.
    let mut cases = measurement.plan.cases()?.into_iter().filter(|case| case.set == 1);
    let (sectors, block) = match &measurement.device {
        TestDisk::Model(spec) => {
            let mut runner = measurement.modelled(spec, &measurement.set);
            return cases.try_for_each(|case| runner.check(&case));
        }
        TestDisk::Real(backing) => {
            let writer = measurement.plan.workloads.iter().find(|workload| workload.writes());
            let shape = shape(backing, writer.is_none())?;
            if let Some(writer) = writer.filter(|_| shape.read_only) {
                return Err(format!("{} writes, and {} is read-only", writer.name, backing.about().shown).into());
            }
            (shape.bytes / Sector::SIZE, shape.block)
        }
        TestDisk::Served(_) => (u64::MAX / (64 * Sector::SIZE), 1), // each client looks at its own
    };
    cases.try_for_each(|case| {
        check_asks(&case, block.into())?;
        Ok(case.jobs(sectors).map(drop)?)
    })
}

/// Whether nothing is asked of a real disk that is too large for it, or no whole blocks of `own` bytes.
fn check_asks(case: &Case, own: u64) -> Result<(), String> {
    // A page cache asks for whole pages.
    let asked = case.workload.roles.iter().filter(|role| !matches!(role.does, Does::Buffered(..)));
    if let Some(block) = asked.map(|role| case.block_size(role)).find(|block| !block.is_multiple_of(own)) {
        return Err(format!("{case}: a block size of {block} bytes: that of the disk is {own} bytes"));
    }
    let sizes =
        case.workload.roles.iter().map(|role| (role, role.largest_ask(case.block_size(role)).min(case.file_size)));
    let Some((role, bytes)) = sizes.into_iter().find(|(_, bytes)| *bytes > ASK_MAX) else { return Ok(()) };
    let (role, block) = (&role.name, show_size(case.block_size(role)));
    let (bytes, max) = (show_size(bytes), show_size(ASK_MAX));
    Err(format!("{case}: {role} with blocks of {block} asks for {bytes} at a time; on a real disk the limit is {max}"))
}

#[cfg(test)]
mod tests;
