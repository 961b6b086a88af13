//! The kernel's groups: a cgroup for each of ours, with its weight, for as long as a case runs.

use std::fs;
use std::path::{Path, PathBuf};

use fairlift_core::{Group, GroupId};

/// Where the hierarchy is that can weigh what its members read and write.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Mount(PathBuf);

impl Mount {
    pub(crate) fn find() -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let place = mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
        let mount = Self::at(Path::new(place.ok_or("cgroup v2 is not mounted")?))?;
        let one = Group { path: "/one".into(), parent: Some(GroupId::ROOT), ..Group::root() };
        Cgroups::make(&mount, &[Group::root(), one]).map(|_| mount)
    }

    fn at(place: &Path) -> Result<Self, String> {
        let controllers = fs::read_to_string(place.join("cgroup.controllers")).unwrap_or_default();
        if !controllers.split_whitespace().any(|one| one == "io") {
            return Err(format!("{} has no io controller", place.display()));
        }
        match fs::write(place.join("cgroup.subtree_control"), "+io") {
            Ok(()) => Ok(Self(place.to_owned())),
            Err(error) => Err(format!("{}: {error}", place.join("cgroup.subtree_control").display())),
        }
    }
}

/// Cgroups as our groups are, below one that is for all. They are removed with this, when nobody is in them.
pub(super) struct Cgroups(Vec<PathBuf>);

impl Cgroups {
    pub(super) fn make(mount: &Mount, groups: &[Group]) -> Result<Self, String> {
        let top = mount.0.join(format!("fairlift-iostest-{}", std::process::id()));
        let mut all = Self(Vec::new());
        for (place, group) in groups.iter().enumerate() {
            let path = top.join(group.path.trim_start_matches('/'));
            let fail = |error| format!("{}: {error}", path.display());
            fs::create_dir(&path).map_err(fail)?;
            all.0.push(path.clone());
            if groups.iter().any(|other| other.parent == Some(GroupId(place as u16))) {
                fs::write(path.join("cgroup.subtree_control"), "+io").map_err(fail)?;
            }
            let weigh = |file: &str| fs::write(path.join(file), group.weight.to_string());
            let weighed = ["io.weight", "io.bfq.weight"].map(|file| weigh(file).is_ok()); // io.cost has one, BFQ the other
            if group.parent.is_some() && !weighed.contains(&true) {
                return Err(format!("{} has neither io.weight nor io.bfq.weight", path.display()));
            }
        }
        Ok(all)
    }

    pub(super) fn take(&self, group: GroupId, process: u32) -> Result<(), String> {
        let members = self.0[usize::from(group.0)].join("cgroup.procs");
        fs::write(&members, process.to_string()).map_err(|error| format!("{}: {error}", members.display()))
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            let _ = fs::remove_dir(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::groups::place;
    use fairlift_core::Weight;

    #[test]
    fn each_group_has_a_cgroup_with_its_weight() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Mount::at(dir.path()).unwrap_err().contains("no io controller"));
        fs::write(dir.path().join("cgroup.controllers"), "cpu io memory\n").unwrap();
        let mount = Mount::at(dir.path()).unwrap();
        let mut groups = vec![Group::root()];
        for (path, weight) in [("/a", 100), ("/a/x", 300)] {
            let group = place(&mut groups, path).unwrap();
            groups[usize::from(group.0)].weight = Weight::new(weight);
        }
        let cgroups = Cgroups::make(&mount, &groups).unwrap();
        let below = |place: usize, file: &str| fs::read_to_string(cgroups.0[place].join(file)).unwrap();
        assert_eq!(groups[2].path, "/a/x");
        assert_eq!((below(1, "io.weight"), below(2, "io.bfq.weight")), ("100".into(), "300".into()));
        assert_eq!(below(1, "cgroup.subtree_control"), "+io");
        cgroups.take(GroupId(2), 4711).unwrap();
        assert_eq!(below(2, "cgroup.procs"), "4711");
    }
}
