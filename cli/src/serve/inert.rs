//! What was said and cannot act.
//!
//! A weight is a share of one disk relative to the group's siblings, under a scheduler that knows weights. Where one of these
//! is missing the server works, and nobody gets the share that the file promises: that is a warning. Example: alice has weight
//! 300 and an image on one file system, bob 100 and an image on another. Each has a disk for itself, so 300 means nothing.
//!
//! inert.1  A group in which no export is: often a misspelt path, so its nearest neighbour is named.
//!          (A group that has limits, and the weight that all have, is asked nothing more: limits need neither.)
//! inert.2  A group whose disks all have a scheduler without weights.
//! inert.3  A group that has no sibling on any of its disks.
//! inert.4  A disk on which no export is.
//! inert.5  A disk whose `nr_requests` two connections can fill. Weights decide among the requests inside only: with 64 places,
//!          a client that asks 128 at once holds them all, and a tenant of three times its weight gets a third of what it gets.

use std::collections::BTreeSet;

use fairlift::config::Config;
use fairlift_core::{Group, GroupId, sched};
use fairlift_lab::suggestion;

use super::places::Places;
use crate::words::mistake::Mistake;

/// What cannot act in a configuration that is in force (each export names its disk).
pub(super) fn warnings(config: &Config, places: &Places) -> Vec<Mistake> {
    let groups = places.groups.iter().filter_map(|(path, said)| Some(said.says(why_inert(config, path)?)));
    let is_empty = |name: &str| {
        let disk = config.disks.iter().position(|disk| disk.name == name);
        !config.exports.iter().any(|export| export.disk == disk)
    };
    let disks = places.disks.iter().filter(|(name, _)| is_empty(name)); // inert.4
    let disks = disks.map(|(_, said)| said.says("no export is on this disk"));
    let small = places.disks.iter().filter_map(|(name, said)| Some(said.says(why_small(config, name)?)));
    groups.chain(disks).chain(small).collect()
}

/// Why weights cannot act on a disk where they could (inert.5).
fn why_small(config: &Config, name: &str) -> Option<String> {
    let place = config.disks.iter().position(|disk| disk.name == name)?;
    let disk = &config.disks[place];
    let groups: BTreeSet<_> =
        config.exports.iter().filter(|one| one.disk == Some(place)).map(|one| one.group).collect();
    let (asked, at_once) = (disk.nr_requests?, 2 * config.limits.connection_requests);
    (disk.scheduler.has_weights() && groups.len() > 1 && asked < at_once).then(|| {
        format!(
            "nr_requests is {asked}, which two connections can fill ({at_once}); weights decide among these requests only, so \
             raise it, or leave it out for {}",
            disk.scheduler.nr_requests(disk.depth.unwrap_or(0))
        )
    })
}

/// Why the weight of a group cannot act; `None` if it can.
fn why_inert(config: &Config, path: &str) -> Option<String> {
    let group = config.groups.iter().find(|group| group.path == path)?;
    let parent = &config.groups[usize::from(group.parent?.0)];
    let own: BTreeSet<_> = exports_below(config, &group.path).map(|(disk, _)| disk).collect();
    if own.is_empty() {
        let used = config.exports.iter().flat_map(|export| ancestors(config, export.group));
        let used: BTreeSet<_> = used.map(|group| group.path.as_str()).collect();
        let hint = match suggestion(path, used.iter().copied()) {
            hint if hint.is_empty() => "; an export is put into it with group = ".to_owned() + &format!("{path:?}"),
            hint => hint,
        };
        return Some(format!("no export is in this group{hint}")); // inert.1
    }
    if config.bounds.contains_key(path) && group.weight == Group::WEIGHT_DEFAULT {
        return None;
    }
    let rivals: Vec<_> = exports_below(config, &parent.path).filter(|(_, at)| !is_below(&at.path, path)).collect();
    let shared: BTreeSet<_> = rivals.iter().map(|(disk, _)| *disk).filter(|disk| own.contains(disk)).collect();
    let name = |disk: usize| &config.disks[disk].name;
    if let Some(first) = shared.first() {
        if shared.iter().any(|disk| config.disks[*disk].scheduler.has_weights()) {
            return None;
        }
        let with: Vec<_> =
            sched::Kind::ALL.into_iter().filter(|kind| kind.has_weights()).map(sched::Kind::name).collect();
        let scheduler = config.disks[*first].scheduler.name();
        let (last, others) = with.split_last().expect("some scheduler has weights");
        // inert.2
        return Some(format!(
            "its weight has no effect: disk {:?} has scheduler {scheduler}, which knows no weights; {} and {last} do",
            name(*first),
            others.join(", ")
        ));
    }
    let own: Vec<_> = own.into_iter().map(|disk| format!("{:?}", name(disk))).collect();
    let own = own.join(", ");
    Some(match rivals.first() {
        // inert.3
        None => format!("its weight has no effect: no other group in {:?} has an export to share with", parent.path),
        Some((disk, other)) => format!(
            "its weight has no effect: its exports are on disk {own}, and those of {:?} on disk {:?}; weights count among \
             the exports of one disk, which disk = \"NAME\" puts them on",
            other.path,
            name(*disk)
        ),
    })
}

/// The disk and the group of each export in a group or below it.
fn exports_below<'a>(config: &'a Config, path: &'a str) -> impl Iterator<Item = (usize, &'a Group)> {
    let placed =
        config.exports.iter().filter_map(|export| Some((export.disk?, &config.groups[usize::from(export.group.0)])));
    placed.filter(move |(_, group)| is_below(&group.path, path))
}

/// Whether a group is another one or below it.
fn is_below(path: &str, above: &str) -> bool {
    above == "/" || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A group and those above it, without the root.
fn ancestors(config: &Config, group: GroupId) -> impl Iterator<Item = &Group> {
    let of = |group: GroupId| config.groups.get(usize::from(group.0)).filter(|group| group.parent.is_some());
    std::iter::successors(of(group), move |group| of(group.parent?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::args::ServeArgs;
    use super::super::plan::{Plan, plan};
    use super::*;
    use crate::config;
    use crate::words::mistake::{Severity, Source, render};

    /// What is said of a file in which every export names its disk. Its listener is left out.
    fn said(text: &str) -> String {
        let source = Source { name: "f.toml".into(), text: text.into() };
        let mut mistakes = Vec::new();
        let file = config::read(&source, Path::new("/base"), &mut mistakes);
        let Plan { config, places, .. } = plan(&ServeArgs::default(), Some(file), Vec::new(), &mut mistakes);
        assert_eq!(mistakes, []);
        render(Severity::Warning, Some(&source), &warnings(&config, &places))
    }

    /// Exports `a`, `b`, … each with its disk and group.
    fn exports(all: &[(&str, &str)]) -> String {
        let one = |(number, (disk, group)): (usize, &(&str, &str))| {
            let name = char::from(b'a' + number as u8);
            format!("[export.{name}]\nbacking = \"mem:1m\"\ndisk = {disk:?}\ngroup = {group:?}\n")
        };
        all.iter().enumerate().map(one).collect()
    }

    fn weight(group: &str) -> String {
        format!("[group.{group:?}]\nweight = 300\n")
    }

    /// The first line, without the place.
    fn first(text: &str) -> String {
        let shown = said(text);
        shown.lines().next().and_then(|line| line.split_once(": warning: ")).unwrap_or_default().1.to_owned()
    }

    #[test]
    fn a_weight_that_acts_is_not_spoken_of() {
        let two = exports(&[("d", "/t/a"), ("d", "/t/b")]);
        for scheduler in ["fair", "bfq", "cfq"] {
            let disk = format!("[disk.d]\nscheduler = {scheduler:?}\n");
            assert_eq!(said(&(disk + &two + &weight("/t/a"))), "");
        }
        assert_eq!(
            said(&("[disk.d]\n".to_owned() + &two + &weight("/t/a"))),
            "",
            "the default is a scheduler with weights"
        );
        // Clients of the parent itself are siblings too, and so is who is below a sibling.
        let parent = exports(&[("d", "/t"), ("d", "/t/b")]);
        assert_eq!(said(&("[disk.d]\n".to_owned() + &parent + &weight("/t/b"))), "");
        let below = exports(&[("d", "/t/a/x"), ("d", "/t/b/y/z")]);
        assert_eq!(said(&("[disk.d]\n".to_owned() + &below + &weight("/t/b"))), "");
        // One disk on which it acts is enough.
        let disks = "[disk.d]\n[disk.e]\nscheduler = \"none\"\n".to_owned();
        let both = exports(&[("d", "/a"), ("d", "/b"), ("e", "/a"), ("e", "/b")]);
        assert_eq!(said(&(disks + &both + &weight("/a"))), "");
    }

    /// inert.1
    #[test]
    fn a_group_without_exports_has_its_nearest_neighbour_named_with_its_line() {
        let text = "[disk.d]\n".to_owned() + &exports(&[("d", "/tenants/alice"), ("d", "/tenants/bob")]);
        assert_eq!(
            said(&(text.clone() + &weight("/tenants/alcie"))),
            "\
f.toml:10:8: warning: group.\"/tenants/alcie\": no export is in this group; did you mean \"/tenants/alice\"?
  10 | [group.\"/tenants/alcie\"]
     |        ^^^^^^^^^^^^^^^^
"
        );
        assert!(
            first(&(text.clone() + &weight("/tenant"))).ends_with("did you mean \"/tenants\"?"),
            "a parent is near too"
        );
        let far = first(&(text + &weight("/backup")));
        assert_eq!(
            far,
            "group.\"/backup\": no export is in this group; an export is put into it with group = \"/backup\""
        );
    }

    /// inert.2
    #[test]
    fn a_scheduler_without_weights_is_named_with_those_that_have_them() {
        for scheduler in ["none", "mq-deadline"] {
            let text = format!("[disk.d]\nscheduler = {scheduler:?}\n") + &exports(&[("d", "/a"), ("d", "/b")]);
            assert_eq!(
                first(&(text + &weight("/a"))),
                format!(
                    "group.\"/a\": its weight has no effect: disk \"d\" has scheduler {scheduler}, which knows no weights; \
                     fair, bfq and cfq do"
                )
            );
        }
    }

    /// inert.3
    #[test]
    fn a_group_that_is_alone_on_its_disk_has_nobody_to_share_with() {
        let alone =
            "[disk.d]\nscheduler = \"fair\"\n".to_owned() + &exports(&[("d", "/t/a"), ("d", "/t/a/x"), ("d", "/u")]);
        assert_eq!(
            first(&(alone + &weight("/t/a"))),
            "group.\"/t/a\": its weight has no effect: no other group in \"/t\" has an export to share with"
        );
        let apart = "[disk.d]\n[disk.e]\n".to_owned() + &exports(&[("d", "/a"), ("e", "/b")]);
        assert_eq!(
            first(&(apart + &weight("/a"))),
            "group.\"/a\": its weight has no effect: its exports are on disk \"d\", and those of \"/b\" on disk \"e\"; \
             weights count among the exports of one disk, which disk = \"NAME\" puts them on"
        );
    }

    /// inert.4
    #[test]
    fn a_disk_without_exports_is_told() {
        let text = "[disk.d]\n[disk.e]\n".to_owned() + &exports(&[("d", "/a")]);
        assert!(said(&text).starts_with("f.toml:2:7: warning: disk.e: no export is on this disk\n"), "{}", said(&text));
    }

    /// inert.5
    #[test]
    fn a_table_that_two_clients_can_fill_is_told() {
        let two = exports(&[("d", "/a"), ("d", "/b")]);
        let disk = |words: &str| format!("[disk.d]\ndepth = 32\n{words}\n{two}");
        assert_eq!(
            first(&disk("nr_requests = 64")),
            "disk.d: nr_requests is 64, which two connections can fill (256); weights decide among these requests only, so \
             raise it, or leave it out for 4096"
        );
        for right in ["", "nr_requests = 256", "nr_requests = 64\nscheduler = \"none\""] {
            assert_eq!(said(&disk(right)), "", "{right}");
        }
    }
}
