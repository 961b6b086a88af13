//! Profiles of disks that rotate: every number with its source.

use super::{Profile, Settings, disk, raid};

pub(super) const PROFILES: &[Profile] = &[
    Profile {
        name: "sata-7200",
        about: "a SATA disk of 2010, 7200 rpm",
        size: 500_107_862_016,
        settings: || Settings::Disk(disk::Settings::default()),
    },
    Profile {
        name: "eva-raid5-12",
        about: "a storage array of 2010: 12 SATA disks in RAID 5",
        size: 5 << 40,
        settings: || Settings::Raid(raid::Settings::default()),
    },
];
