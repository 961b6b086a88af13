//! Cgroup: which branch of the machine's tree of control groups a process is in.
//!
//! A host may run the virtual machines of all tenants as one user. Example: systemd starts each of them in a cgroup of its own, such as
//! `/system.slice/vm-alice.scope`, and no process gets out of its cgroup but by root or whom root lets.
//!
//! cgroup.1  A process is in a cgroup, and in those above it: `/a/b` is in `/a`, and `/ab` is not.
//! cgroup.2  It counts where the process is when it has connected, or when the first rule that asks for cgroups comes. Nothing is read
//!           where no rule asks, nor of a client that is turned away unheard.
//! cgroup.3  A cgroup that cannot be read is none: the process has ended, or is in another PID namespace; `/proc` is not there, or hides
//!           it; there is no cgroup of version 2.
//! cgroup.4  The number of a process that has ended may be another's by now. So the kernel is asked for a descriptor of the process that
//!           has connected (`SO_PEERPIDFD`, Linux 6.5), and the process must still live after its cgroup was read. An older kernel
//!           tells the number alone.

use std::fmt;
use std::str::FromStr;

use super::is_below;

/// A path from the root of the tree of version 2, as `/proc/PID/cgroup` has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cgroup(String);

impl Cgroup {
    /// That of a process, from its `/proc/PID/cgroup`; `None`: cgroup.3.
    pub(crate) fn of(text: &str) -> Option<Self> {
        // The kernel's words for the cgroup of a process that has ended.
        let paths = text.lines().filter_map(|line| line.strip_prefix("0::"));
        paths.filter(|path| !path.ends_with(" (deleted)")).find_map(|path| path.parse().ok())
    }

    /// cgroup.1
    pub(super) fn is_in(&self, above: &Self) -> bool {
        is_below(&self.0, &above.0)
    }
}

impl FromStr for Cgroup {
    type Err = String;

    /// From the root of this cgroup namespace has no name beyond itself: `/../other` is no path (cgroup.3).
    fn from_str(path: &str) -> Result<Self, String> {
        let parts = path.strip_prefix('/').map(|rest| rest.split('/'));
        let is_name = |part: &str| !["", ".", ".."].contains(&part) && !part.contains('\n');
        let is_path = path == "/" || parts.is_some_and(|mut parts| parts.all(is_name));
        let is_file = is_below(path, "/sys/fs/cgroup");
        (is_path && !is_file).then(|| Self(path.into())).ok_or_else(|| {
            format!("takes a path as /proc/PID/cgroup has it after 0::, such as /system.slice/vm-alice.scope, not \"{path}\"")
        })
    }
}

impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cgroup.1
    #[test]
    fn a_process_is_in_its_cgroup_and_those_above_and_in_none_that_begins_alike() {
        let is_in = |its: &str, above: &str| its.parse::<Cgroup>().unwrap().is_in(&above.parse().unwrap());
        for (its, above) in [("/a", "/a"), ("/a/b", "/a"), ("/a/b/c", "/a/b"), ("/", "/"), ("/a", "/")] {
            assert!(is_in(its, above), "{its} in {above}");
        }
        for (its, above) in [("/ab", "/a"), ("/a", "/a/b"), ("/", "/a"), ("/b/a", "/a")] {
            assert!(!is_in(its, above), "{its} in {above}");
        }
    }

    /// cgroup.3
    #[test]
    fn the_line_of_version_2_is_taken_and_nothing_that_is_no_path() {
        let of = |text| Cgroup::of(text).map(|its| its.0);
        assert_eq!(of("0::/a/b.scope\n"), Some("/a/b.scope".into()));
        assert_eq!(of("9:name=systemd:/x\n10::/y\n0::/\n"), Some("/".into()));
        assert_eq!(of("0::/a 0::/b:c\n"), Some("/a 0::/b:c".into()));
        for none in [
            "",
            "1:cpu:/a\n",
            "10::/a\n",
            "0::\n",
            "0::a\n",
            "0::/../a\n",
            "0::/a/../b\n",
            "0::/a (deleted)\n",
            " 0::/a",
        ] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_rule_has_a_path_as_the_kernel_writes_it() {
        for wrong in ["", "a", "/a/", "//a", "/a//b", "/a/./b", "/..", "/a\nb", "/sys/fs/cgroup", "/sys/fs/cgroup/a"] {
            assert!(wrong.parse::<Cgroup>().is_err(), "{wrong:?}");
        }
        assert_eq!("/a\\x2db/c@1.service".parse::<Cgroup>().unwrap().to_string(), "/a\\x2db/c@1.service");
    }
}
