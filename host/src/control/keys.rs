//! The keys of an export that can change while it is served: when one differs, and the sentence that tells it.

use fairlift_core::units::show_size;

use crate::config::{Backing, Config, Export};

type InConfig<'a> = (&'a Config, &'a Export);

pub(super) struct LiveKey {
    pub(super) key: &'static str,
    /// Whether another value is wanted than there was.
    pub(super) differs: fn(InConfig<'_>, InConfig<'_>) -> bool,
    /// Its change; also where the setting is the same and is looked at anew.
    pub(super) says: fn(InConfig<'_>, InConfig<'_>) -> String,
}

pub(super) const OF_EXPORT: [LiveKey; 6] = [
    LiveKey {
        key: "faults",
        differs: |(_, was), (_, is)| match (&was.backing, &is.backing) {
            (Backing::Fault(was), Backing::Fault(is)) => (&was.path, &was.faults) != (&is.path, &is.faults),
            _ => false,
        },
        says: |_, (_, is)| {
            let Backing::Fault(fault) = &is.backing else { return "no faults".into() };
            let (path, rules) = (fault.path.display(), fault.faults.rules.len());
            format!("faults of {path}, {rules} rule{}", if rules == 1 { "" } else { "s" })
        },
    },
    LiveKey {
        key: "size",
        differs: |(_, was), (_, is)| was.size != is.size,
        says: |_, (_, is)| format!("size {}", is.size.map_or_else(|| "up to the end".to_owned(), show_size)),
    },
    LiveKey {
        key: "group",
        differs: |(old, was), (new, is)| old.group(was).path != new.group(is).path,
        says: |(old, was), (new, is)| format!("group {:?} (was {:?})", new.group(is).path, old.group(was).path),
    },
    LiveKey {
        key: "ioprio",
        differs: |(_, was), (_, is)| was.priority != is.priority,
        says: |(_, was), (_, is)| format!("ioprio {} (was {})", is.priority, was.priority),
    },
    LiveKey {
        key: "read_only",
        differs: |(_, was), (_, is)| was.read_only != is.read_only,
        says: |_, (_, is)| if is.read_only { "read-only now" } else { "can be written now" }.into(),
    },
    LiveKey {
        key: "description",
        differs: |(_, was), (_, is)| was.description != is.description,
        says: |_, (_, is)| format!("description {:?}", is.description),
    },
];

/// The keys of an export that can change while it is served.
pub fn live_keys_of_exports() -> impl Iterator<Item = &'static str> {
    OF_EXPORT.iter().map(|row| row.key)
}
