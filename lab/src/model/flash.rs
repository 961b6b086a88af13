//! Profiles of solid-state disks: every number with its source.

use super::{Profile, Settings, ssd};

pub(super) const PROFILES: &[Profile] = &[Profile {
    name: "ssd-2010",
    about: "a SATA SSD of 2010",
    size: 80 << 30,
    settings: || Settings::Ssd(ssd::Settings::default()),
}];
