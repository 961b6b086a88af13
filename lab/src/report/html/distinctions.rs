//! The differences between results that are shown beside each other.

use std::fmt::Write as _;

use super::super::table::{limits, round};
use crate::result::Results;

/// The distinctions of each result from the others of its device and scheduler, each with a space before it: settings that differ, and a
/// number if nothing else does.
pub(super) fn distinctions(all: &[Results]) -> Vec<String> {
    let settings_of_each: Vec<Vec<(&str, String)>> = all.iter().map(settings).collect();
    let alike = |a: &Results, b: &Results| a.device == b.device && a.scheduler == b.scheduler;
    let mut out: Vec<String> = Vec::new();
    for (one, mine) in all.iter().zip(&settings_of_each) {
        let others =
            || all.iter().zip(&settings_of_each).filter(|(other, _)| alike(one, other)).map(|(_, theirs)| theirs);
        let differs = |pair: &&(&str, String)| others().any(|theirs| !theirs.contains(pair));
        out.push(mine.iter().filter(differs).map(|(name, value)| format!(" {name}={value}")).collect());
    }
    let same = |a: usize, b: usize| alike(&all[a], &all[b]) && settings_of_each[a] == settings_of_each[b];
    for (place, label) in out.iter_mut().enumerate() {
        let number = (0..=place).filter(|other| same(*other, place)).count();
        if number > 1 || (place + 1..all.len()).any(|other| same(place, other)) {
            let _ = write!(label, " no. {number}");
        }
    }
    out
}

/// The figures of a result's head, by name.
fn settings(results: &Results) -> Vec<(&str, String)> {
    let mut settings: Vec<_> = results.settings.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let numbers = [("bs", results.block_size), ("filesize", results.file_size), ("iodepth", results.iodepth.into())];
    settings.extend(numbers.map(|(name, number)| (name, number.to_string())));
    settings.extend([("seed", results.seed.to_string()), ("version", results.version.clone())]);
    settings
        .extend(results.host.iter().flat_map(|host| [("host", host.name.clone()), ("kernel", host.kernel.clone())]));
    settings.extend(limits(results).map(|limits| ("limits", limits)));
    // Each situation has groups of its own.
    if let Some(run) = results.runs.first().filter(|run| run.together.is_none()) {
        let weights: Vec<_> = run.groups.iter().map(|group| group.weight.to_string()).collect();
        settings.extend([("runtime", format!("{}s", round(run.runtime_s))), ("weights", weights.join(","))]);
    }
    settings
}
