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
    let are_tenants = plan.workloads.iter().any(Workload::is_situation);
    let weights: Vec<u32> = plan.groups[1..].iter().map(|group| group.weight.into()).collect();
    let is_weighed = flags.groups.is_none() && !weights.is_empty();
    let each = |flag, given: &[(String, String)]| -> Vec<(&str, Option<String>)> {
        given.iter().map(|(name, value)| (flag, Some(format!("{name}={value}")))).collect()
    };
    let mut all = vec![
        (from, device.or_else(|| Some(String::new()))),
        ("--scheduler", (from == "--device").then(|| scheduler.name().into())),
        ("-w", Some(flags.workload.join(","))),
        ("--jobs", (!are_tenants).then(|| list(&plan.jobs))),
        ("--groups", flags.groups.as_ref().map(|path| path.display().to_string())),
        ("--weights", is_weighed.then(|| list(&weights))),
    ];
    all.extend([each("--max", &flags.max), each("--burst", &flags.burst), each("--min", &flags.min)].concat());
    all.extend(each("--set", set));
    all.extend([
        ("--sweep", flags.sweep.as_ref().map(|(name, values)| format!("{name}={}", distinct(values).join(",")))),
        ("--runtime", Some(plan.runtime.to_string())),
        ("--round-trip", flags.round_trip.map(|time| time.to_string())),
        ("-s", Some(plan.sets.to_string())),
        ("--iodepth", (plan.iodepth != 1).then(|| plan.iodepth.to_string())),
        ("--bs", plan.block_size.map(|bytes| bytes.to_string())),
        ("--filesize", Some(plan.file_size.to_string())),
        ("--depth", flags.depth.map(|depth| depth.to_string())),
        ("--seed", Some(plan.seed.to_string())),
    ]);
    typed("iostest", all, &[("--raw", flags.raw), ("--write-to-device", flags.write_to_device)])
}

/// A command with the flags that have a value, and the switches that are on.
pub(crate) fn typed(command: &str, values: Vec<(&str, Option<String>)>, switches: &[(&str, bool)]) -> String {
    let values = values.into_iter().filter_map(|(flag, value)| Some(format!(" {flag} {}", quoted(&value?))));
    let switches = switches.iter().filter(|(_, is_on)| *is_on).map(|(flag, _)| format!(" {flag}"));
    format!("fairlift {command}{}", values.chain(switches).collect::<String>())
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
