//! Peek: what of a file is in the page cache, and reading that at once.
//!
//! It is asked for two reasons. Where the ring would take a thread for each read, what is cached needs none. And what is cached is no work
//! of the disk: it is answered before it is scheduled, and charged to nobody (queue.19).
//!
//! peek.1  Where the file system says whether it would wait (`RWF_NOWAIT`), it is asked with the read itself.
//! peek.2  Else the kernel is asked which pages are there (`mincore`), and an ordinary read copies them. If one goes in between,
//!         that read waits for the disk: rare, and harmless unless the disk waits for us. So this is done only where nothing
//!         but the kernel lies below the file system: with an image that lies on a disk that we serve, a worker would wait for
//!         itself, for ever. FUSE is never such a file system, though it may have a block device (`fuseblk`): it asks a process
//!         before it looks into the page cache, even where it was told not to wait. So it is not asked by peek.1 either.
//! peek.3  The kernel answers "all there" to those who may not know. So it is asked only about files that are our user's own, or
//!         anybody's if we are allowed to act for all owners.
//! peek.4  Before a read is scheduled, only the kernel's count of cached pages will do (`cachestat`, since Linux 6.5; else `mincore`): a read
//!         that may not wait (`RWF_NOWAIT`) begins to fetch from the disk what is not there, whoever's turn it is. After the count it is the
//!         way to read: a page that goes in between costs one fetch. Without the count a read is tried when its turn has come. A lane whose
//!         last reads were all there takes the next for being there too, and does not ask: the count costs half of the read.
//! peek.5  Of such a file the kernel reads nothing ahead. Data fetched ahead for a sequential reader would be charged to nobody, and that
//!         reader would have the disk for itself. Clients read ahead by themselves: guests have page caches.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::thread::CapabilitySet;

use super::open::SQUASHFS;
use super::sys::{self, MappedPages};

pub(super) enum Peek {
    /// peek.1
    Nowait,
    /// peek.4
    Counted,
    /// peek.2
    Resident(MappedPages),
}

impl Peek {
    /// The way to look at a file's part of the page cache; `None`: there is none, and the kernel may read ahead.
    pub(super) fn of(file: &fs::File, metadata: &fs::Metadata, size: u64) -> Option<Self> {
        let found = Self::find(file, metadata, size);
        let is_squashfs = || sys::file_system(file).is_ok_and(|system| system == SQUASHFS);
        sys::read_ahead(file, found.is_none() && !is_squashfs()); // peek.5, open.5
        found
    }

    fn find(file: &fs::File, metadata: &fs::Metadata, size: u64) -> Option<Self> {
        if is_fuse(file) {
            return None;
        }
        let mut byte = [0u8; 1];
        let iovec = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        // SAFETY: the memory is ours, and outlives the call.
        let tried = unsafe { sys::read(file, &[iovec], 0, libc::RWF_NOWAIT) };
        if tried.map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |_| true) {
            return Some(if sys::cached_pages(file, 0, 1).is_ok() { Self::Counted } else { Self::Nowait });
        }
        let may_ask = may_know(metadata) && is_of_kernel(metadata.dev(), 0);
        may_ask.then(|| MappedPages::new(file, size).ok().map(Self::Resident)).flatten()
    }

    pub(super) const fn says(&self) -> &'static str {
        match self {
            Self::Nowait => ", cached data at once (RWF_NOWAIT)",
            Self::Counted => ", cached data at once (cachestat)",
            Self::Resident(_) => ", cached data at once (mincore)",
        }
    }

    /// Whether all of a range is cached; `None`: that is not known before it is read (peek.4).
    pub(super) fn has(&self, file: &fs::File, at: u64, len: u64) -> Option<bool> {
        match self {
            Self::Nowait => None,
            Self::Counted => Some(sys::cached_pages(file, at, len).is_ok_and(|pages| pages == sys::pages_of(at, len))),
            Self::Resident(mapping) => Some(mapping.is_resident(at, len)),
        }
    }

    /// How many bytes can be had now; `None` if that would be to wait. `known`: all of it is taken to be there.
    ///
    /// # Safety
    /// The memory is valid, and nobody else's.
    pub(super) unsafe fn read(
        &self,
        file: &fs::File,
        iovecs: &[libc::iovec],
        at: u64,
        len: u64,
        known: bool,
    ) -> Option<usize> {
        let flags = match self {
            Self::Nowait | Self::Counted => libc::RWF_NOWAIT,
            Self::Resident(_) => 0,
        };
        // Bytes for which an ordinary read would wait are asked for in any case (peek.2).
        if (!known || flags == 0) && self.has(file, at, len) == Some(false) {
            return None;
        }
        // SAFETY: the memory is the caller's promise.
        unsafe { sys::read(file, iovecs, at, flags) }.ok()
    }
}

/// Whether a process may lie below a file's file system (peek.2); also where that cannot be told.
fn is_fuse(file: &fs::File) -> bool {
    const FUSE: i64 = 0x6573_5546;
    sys::file_system(file).map_or(true, |magic| magic == FUSE)
}

/// Whether the kernel tells us the truth about a file's pages (peek.3).
fn may_know(metadata: &fs::Metadata) -> bool {
    let all_users = || {
        fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
    };
    let sets = || rustix::thread::capabilities(None);
    let for_all_owners = || sets().is_ok_and(|sets| sets.effective.contains(CapabilitySet::FOWNER));
    all_users() && (metadata.uid() == rustix::process::geteuid().as_raw() || for_all_owners())
}

/// Whether a block device is the kernel's down to the hardware (peek.2), as far as can be told; else `false`.
fn is_of_kernel(device: u64, depth: u32) -> bool {
    /// Drivers whose disks are hardware, or the hypervisor's.
    const DRIVERS: [&str; 7] = ["sd", "vd", "nvme", "xvd", "mmcblk", "sr", "pmem"];
    let place = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    let Ok(place) = fs::canonicalize(place) else { return false };
    // A partition's directory lies in that of its disk.
    let disk = if place.join("partition").exists() { place.parent().unwrap_or(&place) } else { &place };
    let name = disk.file_name().unwrap_or_default().to_string_lossy();
    if depth > 8 {
        return false;
    }
    if name.starts_with("loop") {
        let below = fs::read_to_string(disk.join("loop/backing_file"));
        return below.and_then(|path| fs::File::open(Path::new(path.trim_end()))).is_ok_and(|file| {
            !is_fuse(&file) && file.metadata().is_ok_and(|metadata| is_of_kernel(metadata.dev(), depth + 1))
        });
    }
    if name.starts_with("dm-") || name.starts_with("md") {
        let Ok(slaves) = fs::read_dir(disk.join("slaves")) else { return false };
        let devices = slaves.flatten().filter_map(|slave| fs::read_to_string(slave.path().join("dev")).ok());
        let mut devices = devices.map(|text| {
            let (major, minor) = text.trim().split_once(':')?;
            Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
        });
        let mut some = false;
        return devices.all(|device| {
            some = true;
            device.is_some_and(|device| is_of_kernel(device, depth + 1))
        }) && some;
    }
    DRIVERS.iter().any(|driver| name.starts_with(driver))
}
