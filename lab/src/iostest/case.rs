//! From a plan to its cases, and from a case to its jobs: which program runs in which group, on which file.

use std::collections::BTreeMap;
use std::fmt;

use fairlift_core::{Duration, Group, GroupId, Instant, Sector};

use super::{Case, Job, Placement, Plan, RunError, tenants};
use crate::Random;
use crate::model::{show_most, show_size};
use crate::program::{PAGE, Region};
use crate::workload::{Does, JobPlacement, Role, Workload};

/// Where the first file begins: as partitions and file systems do, a mebibyte from the start.
pub(crate) const START: u64 = 1 << 20;
/// Jobs in a case. Chosen: more than anybody runs on one disk, and few enough to be held in memory.
const JOBS_MAX: u64 = 4096;

impl Plan {
    /// How many slots the timeline of a run has. Chosen: half a second each in a run of the default 30 s, and no more than a
    /// plot of 560 points shows apart.
    pub const SLOTS: u32 = 60;

    /// The cases, in the order in which they are run: sets, within them workloads, within them jobs.
    ///
    /// # Errors
    /// Something in the plan is not possible.
    pub fn cases(&self) -> Result<Vec<Case>, RunError> {
        self.check()?;
        let mut cases = Vec::new();
        for set in 1..=self.sets {
            let mut alone = Vec::new();
            for workload in &self.workloads {
                if workload.is_situation() {
                    for (role, streams) in tenants::references(workload) {
                        if !alone.contains(&(role.clone(), streams)) {
                            let case = self.case(&tenants::reference(&role, streams), set, streams);
                            cases.push(Case {
                                groups: vec![Group::root()],
                                bounds: BTreeMap::new(),
                                alone: true,
                                ..self.tenants(case)
                            });
                            alone.push((role, streams));
                        }
                    }
                    let case = self.case(workload, set, 1);
                    cases.push(Case { groups: workload.groups.clone(), bounds: BTreeMap::new(), ..self.tenants(case) });
                    continue;
                }
                cases.extend(self.jobs.iter().map(|&jobs| self.case(workload, set, jobs)));
            }
        }
        cases.iter().filter(|case| case.set == 1).try_for_each(Case::check_roles)?;
        Ok(cases)
    }

    /// A case of it, whose random choices follow from the plan's seed.
    pub(crate) fn case(&self, workload: &Workload, set: u32, jobs: u32) -> Case {
        Case {
            workload: workload.clone(),
            set,
            jobs,
            alone: false,
            runtime: self.runtime,
            warm_up: Duration::ZERO,
            round_trip: Duration::ZERO,
            slots: Self::SLOTS,
            groups: self.groups.clone(),
            bounds: self.bounds.clone(),
            block_size: self.block_size,
            file_size: self.file_size,
            iodepth: self.iodepth,
            placement: self.placement,
            trace: self.trace,
            seed: seed_of(self.seed, &workload.name, jobs, set),
        }
    }

    /// With warm-up, a timeline fine enough for windows of a second, and blocks of the tenants' own sizes.
    fn tenants(&self, case: Case) -> Case {
        /// Chosen: two minutes in slots of [`tenants::SLOT`]; a longer run has longer slots.
        const SLOTS_MAX: u64 = 1200;
        let runtime = self.runtime + self.warm_up;
        let slots = runtime.as_nanos().div_ceil(tenants::SLOT.as_nanos()).clamp(1, SLOTS_MAX) as u32;
        let (warm_up, round_trip) = (self.warm_up, self.round_trip);
        Case { runtime, warm_up, round_trip, slots, block_size: None, ..case }
    }

    fn check(&self) -> Result<(), RunError> {
        let fail = |why: String| Err(RunError::Plan(why));
        if self.workloads.is_empty() {
            return fail("no workload is given".into());
        }
        if self.jobs.is_empty() || self.jobs.contains(&0) {
            return fail("a group needs at least 1 job".into());
        }
        if self.sets == 0 {
            return fail("at least 1 set is needed".into());
        }
        if self.runtime.as_nanos() < u64::from(Self::SLOTS) {
            return fail(format!("a runtime of {} is too short to measure", self.runtime));
        }
        if self.iodepth == 0 || self.iodepth > 4096 {
            return fail(format!("iodepth takes a number from 1 to 4096, not {}", self.iodepth));
        }
        if self.groups.first().is_none_or(|root| root.parent.is_some()) {
            return fail("the weight tree has no root".into());
        }
        if let Some(block) = self.block_size
            && (block == 0 || !u64::from(block).is_multiple_of(Sector::SIZE))
        {
            return fail(format!("a block size is a multiple of {} bytes, not {block}", Sector::SIZE));
        }
        if self.file_size < PAGE || !self.file_size.is_multiple_of(PAGE) {
            return fail(format!("a file size is a multiple of {PAGE} bytes, not {}", self.file_size));
        }
        for workload in &self.workloads {
            for role in &workload.roles {
                let block = self.block_size.unwrap_or(role.block_size);
                if u64::from(block) > self.file_size {
                    let (name, file) = (&workload.name, self.file_size);
                    return fail(format!(
                        "{name}: a block of {block} bytes is larger than the file, which has {file} bytes"
                    ));
                }
                let of_two = match role.does {
                    Does::Journal => Some("a journal"),
                    Does::Mail => Some("a mailbox"),
                    _ => None,
                };
                if let Some(it) = of_two.filter(|_| 2 * u64::from(block) > self.file_size) {
                    let (name, file) = (&workload.name, self.file_size);
                    return fail(format!(
                        "{name}: {it} needs at least two blocks of {block} bytes, and the file has {file} bytes"
                    ));
                }
            }
            if workload.roles.iter().all(|role| role.once || role.share == 0) {
                return fail(format!("{}: the workload has no role for the jobs", workload.name));
            }
        }
        Ok(())
    }
}

impl Case {
    /// The groups that have jobs: the leaves of the tree, in its order.
    #[must_use]
    pub fn leaves(&self) -> Vec<GroupId> {
        let is_parent = |id: GroupId| self.groups.iter().any(|group| group.parent == Some(id));
        (0..self.groups.len() as u16).map(GroupId).filter(|id| !is_parent(*id)).collect()
    }

    /// The jobs, in order: the group and the role of each.
    #[must_use]
    pub fn cast(&self) -> Vec<(GroupId, &Role)> {
        let mut cast = Vec::new();
        let mut once: Vec<&Role> = self.workload.roles.iter().filter(|role| role.once).collect();
        for group in self.leaves() {
            let path = &self.groups[usize::from(group.0)].path;
            once.retain(|role| {
                let here = role.group.is_none() || role.is_of(path);
                cast.extend(here.then_some((group, *role)));
                !here
            });
            let dealt = self.dealt(group);
            cast.extend((0..self.jobs as usize).map(|job| (group, dealt[job % dealt.len()])));
        }
        cast
    }

    /// The jobs of one leaf alone, as if there were no other: on a disk, or in a file, of their own.
    #[must_use]
    pub fn part(&self, leaf: GroupId) -> Self {
        let mut part = self.clone();
        let path = self.groups[usize::from(leaf.0)].path.clone();
        part.groups = vec![Group { path, ..Group::root() }];
        part.seed = Random::new(self.seed ^ u64::from(leaf.0)).bits();
        let cast = self.cast();
        part.workload.roles.retain(|role| !role.once || cast.contains(&(leaf, role)));
        part
    }

    /// The roles that the jobs of a group play, in turn (workload.1, workload.4).
    fn dealt(&self, group: GroupId) -> Vec<&Role> {
        let path = &self.groups[usize::from(group.0)].path;
        let own = deal(&self.workload.roles, |role| role.is_of(path));
        if own.is_empty() { deal(&self.workload.roles, |role| role.group.is_none()) } else { own }
    }

    /// Whether every group has roles, and every role its group (workload.4).
    fn check_roles(&self) -> Result<(), RunError> {
        let leaves = self.leaves();
        let paths = || leaves.iter().map(|leaf| self.groups[usize::from(leaf.0)].path.as_str());
        let name = &self.workload.name;
        if let Some(role) =
            self.workload.roles.iter().find(|role| role.group.is_some() && !paths().any(|path| role.is_of(path)))
        {
            let (role, group, paths) =
                (&role.name, role.group.as_deref().unwrap_or_default(), paths().collect::<Vec<_>>().join(", "));
            return Err(RunError::Plan(format!(
                "{name}: role {role} is for group {group}, and the groups are {paths}"
            )));
        }
        if let Some(leaf) = leaves.iter().find(|leaf| self.dealt(**leaf).is_empty()) {
            let path = &self.groups[usize::from(leaf.0)].path;
            return Err(RunError::Plan(format!(
                "{name}: the jobs of {path} have no role: all roles are for other groups"
            )));
        }
        Ok(())
    }

    /// Bytes of an operation of a role.
    #[must_use]
    pub fn block_size(&self, role: &Role) -> u64 {
        u64::from(self.block_size.unwrap_or(role.block_size))
    }

    /// Places the files and makes the programs.
    ///
    /// # Errors
    /// The files do not fit on a disk of this capacity.
    pub fn jobs(&self, capacity_sectors: u64) -> Result<Vec<Job>, RunError> {
        let jobs = self.leaves().len() as u64 * u64::from(self.jobs);
        if jobs > JOBS_MAX {
            let why = format!("{self}: all groups together have {jobs} jobs; the limit is {JOBS_MAX}");
            return Err(RunError::Plan(why));
        }
        let cast = self.cast();
        let mut random = Random::new(self.seed);
        // Which file, and which of those that share it.
        let mut files: Vec<(u64, u64)> = Vec::new();
        let mut count = 0;
        for (at, one) in cast.iter().enumerate() {
            let before = || cast[..at].iter().rposition(|other| other == one);
            match (one.1.does == Does::Interleaved).then(before).flatten() {
                Some(before) => files.push((files[before].0, files[before].1 + 1)),
                None => {
                    files.push((count, 0));
                    count += 1;
                }
            }
        }
        let starts = self.starts(capacity_sectors, count)?;
        let jobs = cast.iter().zip(&files).map(|(&(group, role), &(file, index))| {
            let of = files.iter().filter(|(other, _)| *other == file).count() as u64;
            let part = JobPlacement {
                file: Region { start: starts[file as usize], bytes: self.file_size },
                block: self.block_size(role),
                depth: role.iodepth.unwrap_or(self.iodepth),
                index: (index, of),
                round_trip: self.round_trip,
                counts_from: Instant::ZERO + self.warm_up,
                seed: random.bits(),
            };
            Job { group, priority: role.priority, program: role.program(&part) }
        });
        Ok(jobs.collect())
    }

    /// The start of each of `files`.
    fn starts(&self, capacity_sectors: u64, files: u64) -> Result<Vec<Sector>, RunError> {
        let capacity = capacity_sectors * Sector::SIZE;
        let needed = files.saturating_mul(self.file_size).saturating_add(START);
        if needed > capacity {
            let (s, do_not) = if files == 1 { ("", "does not") } else { ("s", "do not") };
            return Err(RunError::Plan(format!(
                "{self}: {files} file{s} of {} {do_not} fit on this disk of {}; choose a smaller file size (--filesize)",
                show_size(self.file_size),
                show_most(capacity)
            )));
        }
        let part = (capacity - START) / files / PAGE * PAGE;
        let (apart, skip) = match self.placement {
            Placement::Together => (self.file_size, 0),
            Placement::Within(skip) => (part, skip),
        };
        if self.file_size + skip > apart {
            let bytes = self.file_size;
            return Err(RunError::Plan(format!(
                "{self}: a file of {bytes} bytes that starts {skip} bytes into its part exceeds the part, which has {apart} bytes"
            )));
        }
        Ok((0..files).map(|file| Sector((START + skip + file * apart) / Sector::SIZE)).collect())
    }
}

/// `bsr, set 2, 4 jobs`; of tenants `tenants:many, set 2`.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.alone || self.workload.is_situation() {
            return write!(f, "{}, set {}", self.workload.name, self.set);
        }
        let s = if self.jobs == 1 { "" } else { "s" };
        write!(f, "{}, set {}, {} job{s}", self.workload.name, self.set, self.jobs)
    }
}

/// The roles that jobs play, in turn (workload.1).
fn deal(roles: &[Role], is_among: impl Fn(&Role) -> bool) -> Vec<&Role> {
    let among: Vec<&Role> = roles.iter().filter(|role| !role.once && is_among(role)).collect();
    let rounds = 0..among.iter().map(|role| role.share).max().unwrap_or_default();
    rounds.flat_map(|round| among.iter().copied().filter(move |role| round < role.share)).collect()
}

/// A case's own seed (iostest.3).
fn seed_of(seed: u64, workload: &str, jobs: u32, set: u32) -> u64 {
    let numbers = workload.bytes().map(u64::from).chain([u64::from(jobs), u64::from(set)]);
    numbers.fold(seed, |seed, word| Random::new(seed ^ word).bits())
}
