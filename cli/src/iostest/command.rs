//! The command line that repeats a measurement.

use fairlift_core::sched;
use fairlift_lab::iostest::Plan;
use fairlift_lab::workload::Workload;

use super::args::IostestArgs;
use crate::terminal::output::quoted;

/// The command line that repeats a measurement (plan.2); the places of reports are left out, because they change nothing.
pub(super) fn command(flags: &IostestArgs, plan: &Plan, scheduler: sched::Kind, set: &[(String, String)]) -> String {
    let list = |numbers: &[u32]| numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let (from, device) = flags.measured();
    let mut arguments = vec!["fairlift".to_owned(), "iostest".into()];
    let mut say = |flag: &str, value: String| arguments.extend([flag.to_owned(), quoted(&value)]);
    say(from, device.unwrap_or_default());
    if from == "--device" {
        say("--scheduler", scheduler.name().into());
    }
    say("-w", flags.workload.join(","));
    let are_tenants = plan.workloads.iter().any(Workload::is_situation);
    if !are_tenants {
        say("--jobs", list(&plan.jobs));
    }
    match &flags.groups {
        Some(path) => say("--groups", path.display().to_string()),
        None if plan.groups.len() > 1 => {
            let weights: Vec<u32> = plan.groups[1..].iter().map(|group| group.weight.into()).collect();
            say("--weights", list(&weights));
        }
        None => {}
    }
    for (flag, given) in [("--max", &flags.max), ("--burst", &flags.burst), ("--min", &flags.min)] {
        given.iter().for_each(|(path, limits)| say(flag, format!("{path}={limits}")));
    }
    for (name, value) in set {
        say("--set", format!("{name}={value}"));
    }
    if let Some((name, values)) = &flags.sweep {
        say("--sweep", format!("{name}={}", distinct(values).join(",")));
    }
    say("--runtime", plan.runtime.to_string());
    if let Some(time) = flags.round_trip {
        say("--round-trip", time.to_string());
    }
    say("-s", plan.sets.to_string());
    if plan.iodepth != 1 {
        say("--iodepth", plan.iodepth.to_string());
    }
    if let Some(bytes) = plan.block_size {
        say("--bs", bytes.to_string());
    }
    say("--filesize", plan.file_size.to_string());
    if let Some(depth) = flags.depth {
        say("--depth", depth.to_string());
    }
    say("--seed", plan.seed.to_string());
    for (given, flag) in [(flags.raw, "--raw"), (flags.write_to_device, "--write-to-device")] {
        if given {
            arguments.push(flag.into());
        }
    }
    arguments.join(" ")
}

/// In the order given, each once.
pub(super) fn distinct<T: Clone + PartialEq>(all: &[T]) -> Vec<T> {
    let mut out: Vec<T> = Vec::new();
    for one in all {
        if !out.contains(one) {
            out.push(one.clone());
        }
    }
    out
}
