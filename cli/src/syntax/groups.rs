//! The weight tree: groups by path, each with its parents.

use fairlift::control::check_path;
use fairlift_core::{Group, GroupId, Weight};

/// As many as have numbers.
const GROUPS: usize = u16::MAX as usize;

/// The groups so far; a parent comes before its children.
#[derive(Clone, Debug)]
pub(crate) struct Tree(Vec<Group>);

impl Default for Tree {
    fn default() -> Self {
        Self(vec![Group::root()])
    }
}

impl Tree {
    /// The group of that path, made with its parents and the default weight if it is not there yet.
    pub(crate) fn place(&mut self, path: &str) -> Result<GroupId, String> {
        check_path(path)?;
        Group::place(&mut self.0, path, GROUPS)
    }

    /// The group of an export that names none: one of its own, called after it.
    pub(crate) fn own(&mut self, export: &str) -> Result<GroupId, String> {
        self.place(&own_path(export))
    }

    pub(crate) fn find(&self, path: &str) -> Option<GroupId> {
        let place = self.0.iter().position(|group| group.path == path)?;
        u16::try_from(place).ok().map(GroupId)
    }

    pub(crate) fn path(&self, group: GroupId) -> &str {
        &self.0[usize::from(group.0)].path
    }

    /// All paths but the root's.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0[1..].iter().map(|group| group.path.as_str())
    }

    pub(crate) fn weigh(&mut self, group: GroupId, weight: Weight) {
        self.0[usize::from(group.0)].weight = weight;
    }

    pub(crate) fn into_groups(self) -> Vec<Group> {
        self.0
    }
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
        let mut tree = Tree::default();
        let alice = tree.place("/tenants/alice").unwrap();
        assert_eq!(tree.place("/tenants/alice"), Ok(alice), "naming it again is no new group");
        tree.place("/tenants/bob").unwrap();
        assert_eq!(tree.place("/"), Ok(GroupId::ROOT));
        tree.weigh(alice, Weight::new(300));
        let shown: Vec<_> =
            tree.into_groups().into_iter().map(|g| (g.path, g.parent.map(|parent| parent.0), g.weight.get())).collect();
        let group = |path: &str, parent, weight| (path.to_owned(), parent, weight);
        assert_eq!(
            shown,
            [
                group("/", None, 100),
                group("/tenants", Some(0), 100),
                group("/tenants/alice", Some(1), 300),
                group("/tenants/bob", Some(1), 100),
            ]
        );
    }

    #[test]
    fn a_malformed_path_is_refused() {
        let mut tree = Tree::default();
        let deep = "/a".repeat(33);
        for (path, why) in [
            ("", "a group's path starts at the root: \"/\""),
            ("tenants/a", "a group's path starts at the root: \"/tenants/a\""),
            ("/tenants/", "a group's path has no empty parts; did you mean \"/tenants\"?"),
            ("/a//b", "a group's path has no empty parts; did you mean \"/a/b\"?"),
            ("/a\n", "a group's path has no control characters"),
            (&deep, "a group is at most 32 levels deep"),
        ] {
            assert_eq!(tree.place(path), Err(why.into()), "{path}");
        }
    }
}
