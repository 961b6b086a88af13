//! The kernel's knowledge of the device below a file: its name, and its other holders.
//!
//! The kernel answers an exclusive open with "busy", and does not say whose the device is. Mounts, swap, and devices made of it (device
//! mapper, RAID) can be found out.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The holder of the device of that number, in a few words; `None` if unknown: another program, or a mount out of sight.
pub(crate) fn of(device: u64) -> Option<String> {
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

/// The name of a device, or the mount point of its file system if no block device is below (tmpfs, overlay, NFS): `vda`, `srv-images`.
/// The number alone decides, not the path by which it was come to, unless nothing is mounted by that number (a subvolume of btrfs).
pub(super) fn called(device: u64, path: &Path) -> String {
    let place = format!("/sys/dev/block/{}", number(device));
    // A logical volume is dm-3 today and may be dm-4 tomorrow. The name that it was given stays.
    let given = fs::read_to_string(format!("{place}/dm/name")).ok();
    let named = || Some(fs::read_link(&place).ok()?.file_name()?.to_string_lossy().into_owned());
    let mounted = || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let place = mounted_at(&mounts, &number(device)).or_else(|| mounted_above(&mounts, path))?;
        Some(if place == "/" { "root".into() } else { place.trim_matches('/').replace('/', "-") })
    };
    given.or_else(named).or_else(mounted).unwrap_or_else(|| "files".into())
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

/// The shortest mount point of a device in a table of mounts.
fn mounted_at(mounts: &str, number: &str) -> Option<String> {
    places(mounts)
        .filter(|(of, _)| *of == number)
        .map(|(_, place)| place)
        .min_by_key(|place| (place.len(), place.clone()))
}

/// The mount point that a path lies below.
fn mounted_above(mounts: &str, path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    places(mounts).map(|(_, place)| place).filter(|place| path.starts_with(place)).max_by_key(String::len)
}

/// The table of mounts: the third column is the device, the fifth the place.
fn places(mounts: &str) -> impl Iterator<Item = (&str, String)> {
    let columns = mounts.lines().map(|line| line.split(' '));
    columns.filter_map(|mut line| Some((line.nth(2)?, line.nth(1)?.replace("\\040", " "))))
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

    #[test]
    fn of_several_mount_points_the_shortest_counts_and_a_path_lies_below_the_longest() {
        let mounts = "30 1 0:30 / /srv/images rw - nfs host:/x rw\n31 1 0:30 / /mnt rw - nfs host:/x rw\n32 1 0:31 / / rw - overlay o rw\n\
                      33 1 0:32 / /usr rw - btrfs /dev/sdb rw\n";
        assert_eq!(mounted_at(mounts, "0:30").as_deref(), Some("/mnt"));
        assert_eq!(mounted_above(mounts, Path::new("/usr/bin")).as_deref(), Some("/usr"));
        assert_eq!(mounted_above(mounts, Path::new("/dev")).as_deref(), Some("/"));
    }
}
