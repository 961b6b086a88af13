//! Naming: what a disk is called that nobody named.
//!
//! naming.1  A disk is called as its device is ([`Device::called`](crate::device::Device::called)): `vda`, `srv`, `ram`. The order of exports makes no difference.
//! naming.2  A disk of one export alone (RAM, a model) is called after both: `ram-alice`, or `ram` if the export is called so too. So another export,
//!           which comes later or is there at the next start, changes no name. Where two others would be called alike, or a disk of that name is
//!           there, the name of an export comes behind as well, the first by the alphabet that is on the disk.
//! naming.3  A name is one word that no shell takes apart.

use std::collections::{BTreeSet, HashMap};

/// The origin of a disk's name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Called<'a> {
    pub(crate) device: String,
    /// Whether no other export can be on it unless it is named.
    pub(crate) is_alone: bool,
    /// The first of its exports.
    pub(crate) export: &'a str,
}

/// Names for disks that are called after these, beside disks that have names.
pub(crate) fn names(taken: BTreeSet<&str>, disks: &[Called<'_>]) -> Vec<String> {
    let or_disk = |word: String| if word.is_empty() { "disk".to_owned() } else { word };
    let called: Vec<_> = disks.iter().map(|one| or_disk(word(&one.device))).collect();
    let mut alike: HashMap<&str, usize> = HashMap::new();
    let has_export = |at: usize| disks[at].is_alone && word(disks[at].export) != called[at];
    (0..disks.len()).filter(|at| !has_export(*at)).for_each(|at| *alike.entry(&called[at]).or_default() += 1);
    let mut given: BTreeSet<String> = BTreeSet::new();
    let mut names = called.clone();
    let mut order: Vec<_> = (0..disks.len()).collect();
    order.sort_by_key(|at| disks[*at].export);
    for at in order {
        let called = &*called[at];
        let mut name = called.to_owned();
        if has_export(at) || alike[called] > 1 || taken.contains(called) {
            let export = word(disks[at].export);
            let long = if export.is_empty() { name } else { format!("{name}-{export}") };
            let is_free =
                |name: &String| !taken.contains(&**name) && !given.contains(name) && !alike.contains_key(&**name);
            let numbered = (2..).map(|number| format!("{long}-{number}"));
            name = std::iter::once(long.clone()).chain(numbered).find(is_free).expect("numbers do not end");
        }
        given.insert(name.clone());
        names[at] = name;
    }
    names
}

/// naming.3
fn word(text: &str) -> String {
    let plain = |letter: char| if letter.is_alphanumeric() || "._+@:-".contains(letter) { letter } else { '-' };
    text.chars().map(plain).collect::<String>().trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn called(taken: &[&str], disks: &[(&'static str, &'static str)]) -> Vec<String> {
        let called = |(device, export): &(&'static str, &'static str)| Called {
            device: (*device).into(),
            is_alone: *device == "ram",
            export,
        };
        let disks: Vec<_> = disks.iter().map(called).collect();
        names(taken.iter().copied().collect(), &disks)
    }

    /// naming.1, naming.2
    #[test]
    fn a_disk_is_called_as_its_device_and_where_two_would_be_called_alike_an_export_tells_them_apart() {
        assert_eq!(called(&["ssd"], &[("vda", "b"), ("ram", "a")]), ["vda", "ram-a"], "it is so without a second, too");
        assert_eq!(called(&[], &[("ram", "ram"), ("ram", "a"), ("vda", "vda")]), ["ram", "ram-a", "vda"]);
        assert_eq!(called(&[], &[("srv", "b"), ("srv", "a")]), ["srv-b", "srv-a"]);
        assert_eq!(called(&[], &[("ram", "bob"), ("vda", "x"), ("ram", "alice")]), ["ram-bob", "vda", "ram-alice"]);
        assert_eq!(called(&["vda"], &[("vda", "b")]), ["vda-b"]);
        assert_eq!(called(&["vda", "vda-b"], &[("vda", "b")]), ["vda-b-2"]);
        assert_eq!(called(&[], &[("ram", ""), ("ram", "a")]), ["ram", "ram-a"], "an export without a name");
        assert_eq!(called(&[], &[("ram", "a"), ("ram", "b"), ("ram-a", "c")]), ["ram-a-2", "ram-b", "ram-a"]);
    }

    /// naming.1: any order of any disks gives each the same name, and none has that of another.
    #[test]
    fn names_are_the_same_in_any_order_and_no_two_are_alike() {
        let exports = Just(["", "a", "b", "a-2", "b!", "b?", "c"]).prop_shuffle();
        let devices = vec(select(&["ram", "vda", "ram-a", "vda-b", "vda-b-2", ""][..]), 7);
        proptest!(|(exports in exports, devices in devices)| {
            let disks: Vec<_> = devices.into_iter().zip(exports).collect();
            let mut sorted = disks.clone();
            sorted.sort_unstable();
            let taken = ["ram", "vda-b-2"];
            let by_disk = |disks: &[_]| disks.iter().copied().zip(called(&taken, disks)).collect::<BTreeSet<_>>();
            prop_assert_eq!(by_disk(&disks), by_disk(&sorted));
            let names: BTreeSet<_> = called(&taken, &disks).into_iter().chain(taken.map(String::from)).collect();
            prop_assert_eq!(names.len(), disks.len() + taken.len());
        });
    }

    /// naming.3
    #[test]
    fn a_name_is_one_word() {
        assert_eq!(
            called(&[], &[("my data", "a"), ("cciss!c0d0", "b"), ("/", "c")]),
            ["my-data", "cciss-c0d0", "disk"]
        );
        assert_eq!(called(&["ram"], &[("ram", "it's \"$a\"")]), ["ram-it-s---a"]);
    }
}
