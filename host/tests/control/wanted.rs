//! What was asked of a server, as a dull model keeps it by names, and what of it is in force, as clients and the server's view show it.

use std::collections::{BTreeMap, BTreeSet};

use fairlift::config::Config;
use fairlift::control::View;
use fairlift_core::ceiling::Bounds;
use fairlift_core::sched::Kind;
use fairlift_core::{Op, Priority};

/// What was asked for and not taken back.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Wanted {
    /// By their paths: weights and bounds.
    pub(crate) groups: BTreeMap<String, (u16, Bounds)>,
    pub(crate) disks: BTreeMap<String, WantedDisk>,
    /// Those of them that nobody named: they go with their last export.
    pub(crate) made: BTreeSet<String>,
    pub(crate) exports: BTreeMap<String, WantedExport>,
    pub(crate) listeners: BTreeSet<String>,
    /// Exports that grew, and the bytes that their backings had then.
    pub(crate) grown: BTreeMap<String, u64>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct WantedDisk {
    pub(crate) scheduler: Kind,
    pub(crate) set: BTreeMap<String, String>,
    pub(crate) depth: Option<u16>,
    pub(crate) nr_requests: Option<u32>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct WantedExport {
    pub(crate) group: String,
    /// `None`: nobody named one.
    pub(crate) disk: Option<String>,
    pub(crate) read_only: bool,
    pub(crate) priority: Priority,
    pub(crate) description: String,
}

impl Wanted {
    /// What a configuration says.
    pub(crate) fn of(config: &Config) -> Self {
        let path = |at: usize| config.groups[at].path.clone();
        let groups = config.groups.iter().map(|group| {
            let bounds = config.bounds.get(&group.path).copied().unwrap_or_default();
            (group.path.clone(), (group.weight.get(), bounds))
        });
        let disks = config.disks.iter().map(|disk| {
            let (scheduler, set) = (disk.scheduler, disk.set.iter().cloned().collect());
            (disk.name.clone(), WantedDisk { scheduler, set, depth: disk.depth, nr_requests: disk.nr_requests })
        });
        let exports = config.exports.iter().map(|export| {
            let wanted = WantedExport {
                group: path(export.group.0.into()),
                disk: export.disk.map(|disk| config.disks[disk].name.clone()),
                read_only: export.read_only,
                priority: export.priority,
                description: export.description.clone(),
            };
            (export.name.clone(), wanted)
        });
        Self {
            groups: groups.collect(),
            disks: disks.collect(),
            exports: exports.collect(),
            listeners: config.listeners.iter().map(|listener| listener.address.to_string()).collect(),
            made: BTreeSet::new(),
            grown: BTreeMap::new(),
        }
    }

    /// What a configuration says, as far as it was asked for; takes note of the disks that nobody named.
    pub(crate) fn heard(&mut self, config: &Config) -> Self {
        let mut wanted = Self::of(config);
        let on: BTreeSet<_> = wanted.exports.values().filter_map(|export| export.disk.clone()).collect();
        let mut made: BTreeSet<_> = self.made.intersection(&on).cloned().collect();
        for (name, export) in &mut wanted.exports {
            if self.exports.get(name).is_some_and(|wanted| wanted.disk.is_none()) {
                let named = |disk: &String| self.disks.contains_key(disk) && !self.made.contains(disk);
                made.extend(export.disk.take_if(|disk| !named(disk)));
            }
        }
        for gone in self.made.difference(&made) {
            self.disks.remove(gone);
        }
        for new in made.difference(&self.made) {
            self.disks.extend(wanted.disks.get(new).map(|disk| (new.clone(), disk.clone())));
        }
        self.made = made;
        Self { made: self.made.clone(), grown: self.grown.clone(), ..wanted }
    }

    /// A group, after those above it that are missing.
    pub(crate) fn add_group(&mut self, path: &str) {
        let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).chain([path.len()]);
        for end in ends {
            self.groups.entry(path[..end].to_owned()).or_insert((100, Bounds::default()));
        }
    }

    pub(crate) fn disk(&mut self, name: &str) -> &mut WantedDisk {
        self.disks.get_mut(name).expect("it was asked for")
    }

    pub(crate) fn export(&mut self, name: &str) -> &mut WantedExport {
        self.exports.get_mut(name).expect("it was asked for")
    }
}

/// The scheduler of a disk, its depth, its places for requests, and all tunables.
type Turned = (Kind, u16, u32, BTreeMap<&'static str, String>);

/// What is in force.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct InForce {
    pub(crate) listeners: BTreeSet<String>,
    pub(crate) exports: BTreeMap<String, Answers>,
    pub(crate) disks: BTreeMap<String, Turned>,
    /// Weights and bounds in the queues of disks, of the groups that did something there.
    pub(crate) groups: BTreeMap<(String, String), (u16, Bounds)>,
}

/// An export, as a client finds it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Answers {
    pub(crate) size: u64,
    pub(crate) read_only: bool,
    pub(crate) description: String,
    /// The disk and the group that a read of it counts for.
    pub(crate) counts_for: (String, String),
}

impl InForce {
    /// What a view shows, beside what clients find.
    pub(crate) fn of(view: &View, exports: BTreeMap<String, Answers>) -> Self {
        let disks = view.disks.iter().map(|disk| {
            let knobs = disk.knobs.iter().map(|knob| (knob.name, knob.value.clone())).collect();
            (disk.name.clone(), (disk.scheduler, disk.depth, disk.nr_requests, knobs))
        });
        let groups = view.disks.iter().flat_map(|disk| {
            let of = move |path: &String| (disk.name.clone(), path.clone());
            disk.groups.iter().map(move |group| (of(&group.path), (group.weight.get(), group.bounds)))
        });
        Self {
            listeners: view.listeners.iter().cloned().collect(),
            exports,
            disks: disks.collect(),
            groups: groups.collect(),
        }
    }

    /// What of `asked` is not in force; `shown`: a value as a scheduler shows it.
    pub(crate) fn lacks(&self, wanted: &Wanted, shown: impl Fn(Kind, &str, &str) -> String) -> Vec<String> {
        let mut all = Vec::new();
        let grown = &wanted.grown;
        if self.listeners != wanted.listeners {
            all.push(format!("it listens at {:?}", self.listeners));
        }
        let names = |keys: Vec<&String>| keys.into_iter().cloned().collect::<BTreeSet<_>>();
        if names(self.exports.keys().collect()) != names(wanted.exports.keys().collect()) {
            all.push(format!("it serves {:?}", self.exports));
        }
        for (name, answers) in &self.exports {
            let Some(wanted) = wanted.exports.get(name) else { continue };
            let is_on = wanted.disk.as_ref().is_none_or(|disk| *disk == answers.counts_for.0);
            let says = (answers.read_only, &answers.description) == (wanted.read_only, &wanted.description);
            let has_grown = grown.get(name).is_none_or(|bytes| *bytes == answers.size);
            if !is_on || !says || !has_grown || answers.counts_for.1 != wanted.group {
                all.push(format!("export {name} is {answers:?}"));
            }
        }
        for (name, disk) in &wanted.disks {
            let Some((scheduler, depth, nr_requests, knobs)) = self.disks.get(name) else {
                all.push(format!("there is no disk {name}"));
                continue;
            };
            let bounds = disk.depth.is_none_or(|wanted| wanted == *depth)
                && disk.nr_requests.is_none_or(|wanted| wanted == *nr_requests);
            let set = |(knob, value): (&String, &String)| {
                knobs.get(knob.as_str()) == Some(&shown(disk.scheduler, knob, value))
            };
            if *scheduler != disk.scheduler || !bounds || !disk.set.iter().all(set) {
                all.push(format!("disk {name} is {:?}", self.disks[name]));
            }
        }
        for ((disk, path), is) in &self.groups {
            if wanted.groups.get(path) != Some(is) {
                all.push(format!("group {path} on disk {disk} has {is:?}"));
            }
        }
        all
    }
}

/// How many reads each group has done on each disk.
pub(crate) fn reads(view: &View) -> BTreeMap<(String, String), u64> {
    let groups = view.disks.iter().flat_map(|disk| disk.groups.iter().map(move |group| (disk, group)));
    groups
        .map(|(disk, group)| ((disk.name.clone(), group.path.clone()), group.figures.stats.of(Op::Read).ops))
        .collect()
}
