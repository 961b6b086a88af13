//! The surroundings of a disk: its name in the kernel, its mounts, and the load of others meanwhile.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use fairlift::bench;
use fairlift_lab::iostune::Kernel;
use rustix::fs::{SeekFrom, major, minor, seek};

use crate::terminal::output::quoted;

/// The disk below a file or device, as far as the kernel tells.
#[derive(Clone, Debug)]
pub(crate) struct Around {
    /// `/sys/dev/block/8:1`, resolved: that of a partition is below its disk.
    place: PathBuf,
    /// The number of the device; `None`: the path is a file.
    device: Option<u64>,
}

impl Around {
    /// Of this path; `None` if there is no one disk below it: a file in RAM or on a network, several disks in one file system.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let is_device = metadata.file_type().is_block_device();
        let device = if is_device { metadata.rdev() } else { metadata.dev() };
        let place = fs::canonicalize(format!("/sys/dev/block/{}:{}", major(device), minor(device))).ok()?;
        Some(Self { place, device: is_device.then_some(device) })
    }

    /// The whole disk, if this is a partition.
    fn disk(&self) -> &Path {
        let is_part = self.place.join("partition").exists();
        self.place.parent().filter(|_| is_part).unwrap_or(&self.place)
    }

    /// As udev and cgroups name the disk.
    pub(crate) fn kernel(&self) -> Option<Kernel> {
        let name = self.disk().file_name()?.to_str()?.to_owned();
        let number = fs::read_to_string(self.disk().join("dev")).ok()?.trim().to_owned();
        let schedulers = fs::read_to_string(self.disk().join("queue/scheduler")).unwrap_or_default();
        let has_scheduler = schedulers.contains("mq-deadline") || schedulers.contains("bfq");
        Some(Kernel { name, number, has_scheduler })
    }

    /// The scheduler that the kernel has for it.
    pub(crate) fn scheduler(&self) -> Option<String> {
        let all = fs::read_to_string(self.disk().join("queue/scheduler")).ok()?;
        all.split(['[', ']']).nth(1).map(str::to_owned)
    }

    /// The mount point of the device or of a partition, or its other holder. Of a file: nothing.
    pub(crate) fn mounted(&self) -> Option<String> {
        Some(format!("the device {}", bench::holder(self.device?)?))
    }

    /// Bytes that the device, or the partition, has read and written so far.
    pub(crate) fn moved(&self) -> Option<u64> {
        let text = fs::read_to_string(self.place.join("stat")).ok()?;
        let fields: Vec<u64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        Some((fields.get(2)? + fields.get(6)?) * 512)
    }
}

/// The warning about a file with holes; `None`: they are too few to matter.
pub(crate) fn sparse(path: &Path) -> Option<String> {
    let holes = holes(path);
    (holes > 5.0).then(|| {
        format!(
            "{holes:.0} % of the file are holes, and reading holes does not reach a disk: rates are too high; a copy has none: \
             cp --sparse=never {} COPY",
            quoted(&path.display().to_string())
        )
    })
}

/// Which part of a file is holes, which are read without asking a disk, in %. Zero without holes, and of a block device.
pub(crate) fn holes(path: &Path) -> f64 {
    /// Enough to tell; a file may have millions.
    const RUNS_MAX: usize = 4096;
    let Ok(file) = File::open(path) else { return 0.0 };
    let Ok(size) = file.metadata().map(|metadata| metadata.len()) else { return 0.0 };
    let (mut at, mut data) = (0, 0);
    for _ in 0..RUNS_MAX {
        match seek(&file, SeekFrom::Data(at)) {
            Ok(start) if start < size => {
                let end = seek(&file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
                data += end - start;
                at = end;
            }
            Err(rustix::io::Errno::NXIO) => at = size, // no data behind it
            _ => return 0.0,
        }
        if at >= size {
            break;
        }
    }
    if at == 0 { 0.0 } else { 100.0 - data as f64 / at as f64 * 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let file = File::create(&path).unwrap();
        file.set_len(8 << 20).unwrap();
        assert_eq!(holes(&path), 100.0);
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; 2 << 20], 2 << 20).unwrap();
        assert_eq!(holes(&path), 75.0);
        let says = sparse(&path).unwrap();
        assert!(says.starts_with("75 % of the file are holes, "), "{says}");
        assert!(says.ends_with(&format!(": cp --sparse=never {} COPY", path.display())), "{says}");
        std::fs::write(&path, vec![1; 8 << 20]).unwrap();
        assert_eq!(sparse(&path), None);
    }
}
