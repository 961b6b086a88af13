//! Schedulers and their tunables, as people name them.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use fairlift_core::tunable::{self, TunableInfo};
use fairlift_core::{flush, sched};
use fairlift_lab::suggestion;

/// With the scheduler that this build takes if none is named.
pub(crate) fn scheduler_help(says: &str) -> String {
    let [one, several, rotating] =
        [(1, false), (2, false), (2, true)].map(|(n, rotates)| sched::Kind::usual(n, rotates).name());
    format!("{says} [default: {several} where several tenants share a disk, {rotating} if it rotates, else {one}]")
}

pub(crate) fn schedulers() -> impl TypedValueParser<Value = sched::Kind> {
    PossibleValuesParser::new(sched::Kind::ALL.map(sched::Kind::name)).try_map(|name| parse_scheduler(&name))
}

pub(crate) fn parse_scheduler(name: &str) -> Result<sched::Kind, String> {
    let known = || sched::Kind::ALL.into_iter().map(sched::Kind::name);
    sched::Kind::from_name(name).ok_or_else(|| {
        let all = known().collect::<Vec<_>>().join(", ");
        format!("unknown scheduler \"{name}\": the schedulers are {all}{}", suggestion(name, known()))
    })
}

/// Reads `KEY=VALUE`.
pub(crate) fn parse_setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a setting has the form KEY=VALUE, as in read_expire=20ms")?;
    Ok((name.trim().into(), value.trim().into()))
}

/// The tunables of a disk: those of its scheduler, and those that all have.
pub(crate) fn tunables(kind: sched::Kind) -> impl Iterator<Item = &'static TunableInfo> {
    kind.tunables().iter().chain(flush::Settings::INFO)
}

/// Whether a tunable of a disk with this scheduler takes a value.
///
/// # Errors
/// Why it doesn't, and whether that is because of the name.
pub(crate) fn check_setting(kind: sched::Kind, name: &str, value: &str) -> Result<(), (bool, String)> {
    if flush::Settings::INFO.iter().any(|info| info.name == name) {
        let result = tunable::set(flush::Settings::TUNABLES, &mut flush::Settings::default(), name, value);
        return result.map_err(|error| (false, error.to_string()));
    }
    let known = tunables(kind).find(|info| info.name == name);
    kind.build(&sched::Setup::new(1)).set(name, value).map_err(|error| match known {
        Some(info) => (false, not_a_time(info, value).unwrap_or_else(|| error.to_string())),
        None => (true, unknown(kind, name)),
    })
}

/// The message for a value that is no time at all, where a time is needed.
fn not_a_time(info: &TunableInfo, value: &str) -> Option<String> {
    let auto = match info.range {
        tunable::Range::Duration(..) => "",
        tunable::Range::AutoDuration(..) => "auto, ",
        _ => return None,
    };
    let is_time = tunable::parse_duration(value).is_some() || value.parse::<u64>().is_ok();
    (!is_time).then(|| format!("\"{value}\" is not a time; examples: {auto}500ms, 2s"))
}

/// The message for a tunable that a disk with this scheduler does not have.
fn unknown(kind: sched::Kind, name: &str) -> String {
    if name == "weight" {
        return "a weight belongs to a group: --weight NAME=300 for an export of the command line, or [group.\"/PATH\"] weight = 300 \
                in a config file"
            .into();
    }
    let scheduler = kind.name();
    let known: Vec<_> = tunables(kind).map(|info| info.name).collect();
    let hint = suggestion(name, known.iter().copied());
    if !hint.is_empty() {
        return format!("unknown tunable \"{name}\"{hint}");
    }
    let has = |kind: &sched::Kind| kind.tunables().iter().any(|info| info.name == name);
    let others: Vec<_> = sched::Kind::ALL.into_iter().filter(has).map(sched::Kind::name).collect();
    let known = match kind.tunables() {
        [] => format!("scheduler {scheduler} has no tunables of its own; every scheduler has {}", known.join(", ")),
        [..] => format!("scheduler {scheduler} has {}", known.join(", ")),
    };
    match others.join(" and ") {
        none if none.is_empty() => format!("unknown tunable \"{name}\"; {known}"),
        others => format!("{name} belongs to {others}; {known}"),
    }
}
