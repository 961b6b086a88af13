//! The situations of tenants that are built in: `tenants.toml`, beside this file.
//!
//! The list is data, because the live bench reads it too.

use super::Workload;
use crate::suggestion;

/// The name of all situations whose groups are of one level.
pub const ALL: &str = "tenants";

/// How the name of one begins.
pub const PREFIX: &str = "tenants:";

/// Every situation that is built in, those with groups within groups last.
#[must_use]
pub fn built_in() -> Vec<Workload> {
    let mut list = Workload::read(include_str!("tenants.toml")).expect("a test reads it");
    for one in &mut list {
        one.name = format!("{PREFIX}{}", one.name);
    }
    list
}

/// Those that `tenants` stands for.
pub(super) fn all() -> Vec<Workload> {
    built_in().into_iter().filter(is_flat).collect()
}

/// The situation of that name, without its prefix.
pub(super) fn named(name: &str) -> Result<Workload, String> {
    let list = built_in();
    if let Some(place) = list.iter().position(|one| one.name.strip_prefix(PREFIX) == Some(name)) {
        return Ok(list.into_iter().nth(place).expect("it was found"));
    }
    let names: Vec<&str> = list.iter().filter_map(|one| one.name.strip_prefix(PREFIX)).collect();
    let hint = suggestion(name, names.iter().copied());
    Err(format!("unknown situation \"{name}\": the situations are {}{hint}", names.join(", ")))
}

/// Whether all its groups are right below the root.
fn is_flat(situation: &Workload) -> bool {
    situation.groups.iter().all(|group| group.path.matches('/').count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_situations_are_run_together_and_those_of_more_levels_by_name() {
        let names: Vec<String> = all().into_iter().map(|one| one.name).collect();
        assert_eq!((names.len(), names[0].as_str(), names[9].as_str()), (10, "tenants:readers-deep", "tenants:many"));
        let of = |name| {
            let situation = named(name).unwrap();
            situation.roles.iter().map(super::super::Role::says).collect::<Vec<_>>()
        };
        assert_eq!(of("commits-beside-readers"), ["randwrite 4k x4 flush_every=1", "randread 4k x64"]);
        assert_eq!(of("small-beside-writer"), ["randread 4k x1", "randwrite 1m x8"]);
        let weights: Vec<u16> =
            named("writers-large").unwrap().groups[1..].iter().map(|one| one.weight.get()).collect();
        assert_eq!(weights, [100, 200, 300, 400]);
        assert_eq!(named("three-levels").unwrap().groups.len(), 1 + 6 + 6);
    }

    #[test]
    fn an_unknown_situation_is_answered_with_those_there_are_and_the_nearest() {
        let why = named("small-besides-deep").unwrap_err();
        assert!(
            why.starts_with("unknown situation \"small-besides-deep\": the situations are readers-deep, "),
            "{why}"
        );
        assert!(why.ends_with("; did you mean \"small-beside-deep\"?"), "{why}");
    }
}
