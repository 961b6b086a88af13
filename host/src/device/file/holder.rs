//! Who else has a block device: for the message that refuses it.
//!
//! The kernel answers an exclusive open with "busy", and does not say whose the device is. What is mounted, swap, and devices
//! made of it (device mapper, RAID) can be found out.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What has the device of that number, in a few words; `None` if that cannot be known: another program, or a mount out of sight.
pub(super) fn of(device: u64) -> Option<String> {
    let numbers: Vec<_> = [number(device)].into_iter().chain(partitions(&number(device))).collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(place) = numbers.iter().find_map(|number| mounted_at(&mounts, number)) {
        return Some(format!("is mounted at {place}"));
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps.lines().skip(1).filter_map(|line| line.split(' ').next()).any(|path| is_one_of(path, &numbers)) {
        return Some("is used as swap".into());
    }
    let holders = numbers.iter().flat_map(|number| entries(&format!("/sys/dev/block/{number}/holders")));
    let holders = holders.collect::<Vec<_>>().join(", ");
    (!holders.is_empty()).then(|| format!("is a part of {holders}"))
}

fn number(device: u64) -> String {
    format!("{}:{}", libc::major(device), libc::minor(device))
}

fn entries(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The numbers of a disk's partitions.
fn partitions(number: &str) -> Vec<String> {
    let disk = format!("/sys/dev/block/{number}");
    let is_partition = |name: &String| fs::exists(format!("{disk}/{name}/partition")).unwrap_or(false);
    let number = |name: String| fs::read_to_string(format!("{disk}/{name}/dev")).ok();
    let found = entries(&disk).into_iter().filter(is_partition).filter_map(number);
    found.map(|number| number.trim().to_owned()).collect()
}

/// The first mount point of a device in a table of mounts: its third column is the device, the fifth the place.
fn mounted_at(mounts: &str, number: &str) -> Option<String> {
    let columns = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let place =
        columns.filter(|columns| columns.get(2) == Some(&number)).find_map(|columns| columns.get(4).copied())?;
    Some(place.replace("\\040", " "))
}

fn is_one_of(path: &str, numbers: &[String]) -> bool {
    fs::metadata(Path::new(path)).is_ok_and(|metadata| numbers.contains(&number(metadata.rdev())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_the_number_of_its_device() {
        let mounts = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                      30 22 254:1 / /my\\040data rw - ext4 /dev/vda1 rw\n";
        assert_eq!(mounted_at(mounts, "254:0").as_deref(), Some("/"));
        assert_eq!(mounted_at(mounts, "254:1").as_deref(), Some("/my data"));
        assert_eq!(mounted_at(mounts, "254:10"), None);
        assert_eq!(mounted_at("nonsense\n", "254:0"), None);
    }
}
