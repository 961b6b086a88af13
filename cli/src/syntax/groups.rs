//! The weight tree: groups by path, each with its parents.

use fairlift::control::check_path;
use fairlift_core::{Group, GroupId};

/// As many as have numbers.
const GROUPS: usize = u16::MAX as usize;

/// The group of that path, made with its parents and the default weight if it is not there yet. A parent comes before its children.
pub(crate) fn place(tree: &mut Vec<Group>, path: &str) -> Result<GroupId, String> {
    check_path(path)?;
    Group::place(tree, path, GROUPS)
}

/// The path of the group of an export that names none: `/alice` of `alice`. Slashes within it lead down, as in a path; a name that
/// can be no path leads to the root.
pub(crate) fn own_path(export: &str) -> String {
    let parts: Vec<_> = export.split('/').filter(|part| !part.is_empty()).collect();
    let path = format!("/{}", parts.join("/"));
    if check_path(&path).is_ok() { path } else { "/".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_of_an_export_is_called_after_it() {
        let long = "a/".repeat(40);
        for (export, path) in
            [("alice", "/alice"), ("vms/web", "/vms/web"), ("/a//b/", "/a/b"), ("", "/"), ("/", "/"), (&long, "/")]
        {
            assert_eq!(own_path(export), path, "{export}");
        }
    }

    #[test]
    fn a_group_comes_with_its_parents_before_it() {
        let mut tree = vec![Group::root()];
        let alice = place(&mut tree, "/tenants/alice").unwrap();
        assert_eq!(place(&mut tree, "/tenants/alice"), Ok(alice), "naming it again is no new group");
        place(&mut tree, "/tenants/bob").unwrap();
        assert_eq!(place(&mut tree, "/"), Ok(GroupId::ROOT));
        let shown: Vec<_> =
            tree.into_iter().map(|g| (g.path, g.parent.map(|parent| parent.0), g.weight.get())).collect();
        let group = |path: &str, parent, weight| (path.to_owned(), parent, weight);
        assert_eq!(
            shown,
            [
                group("/", None, 100),
                group("/tenants", Some(0), 100),
                group("/tenants/alice", Some(1), 100),
                group("/tenants/bob", Some(1), 100),
            ]
        );
    }

    #[test]
    fn a_malformed_path_is_refused() {
        let mut tree = vec![Group::root()];
        let deep = "/a".repeat(33);
        for (path, why) in [
            ("", "a group's path starts at the root: \"/\""),
            ("tenants/a", "a group's path starts at the root: \"/tenants/a\""),
            ("/tenants/", "a group's path has no empty parts; did you mean \"/tenants\"?"),
            ("/a//b", "a group's path has no empty parts; did you mean \"/a/b\"?"),
            ("/a\n", "a group's path has no control characters"),
            (&deep, "a group is at most 32 levels deep"),
        ] {
            assert_eq!(place(&mut tree, path), Err(why.into()), "{path}");
        }
    }
}
