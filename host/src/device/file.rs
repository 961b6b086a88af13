//! File: a regular file or a block device.
//!
//! F1  Direct I/O where the file system and the alignment take it, else through the page cache.
//! F2  On a file system that lives in RAM (tmpfs, ramfs) a request is a copy: it is done at once, by a plain system call,
//!     for the ring would hand it to a helper thread.
//! F3  Two servers cannot write one file: it is locked, shared for readers. A process lock (`fcntl`) tells a live server;
//!     the file's own lock (`flock`) stays until the kernel has ended what a killed one had in flight, and is waited for.
//! F4  Durable means `fdatasync` on a file and `fsync` on a block device. A durable write (FUA) is one request where the
//!     file system is known to take it so (`RWF_DSYNC`), else a write and then a sync: FUSE ignores it on direct I/O; and
//!     through the page cache it would be told, in place of a sync, that older writes were lost: the kernel tells it once.
//! F5  What the file system cannot do is learned once: discards then do nothing, as they may; zeroes are written out.
//!     They are also where the file system is not one that is known to make them: some FUSE servers answer "done" and
//!     have done nothing (nbdfuse 1.14, above a server without write-zeroes).

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time;

use fairlift_core::{Errno, Flags, Limits, Outcome, Sector};

use super::{Facts, Inline, Run, outcome};
use crate::Error;
use crate::config::Direct;

pub(crate) struct File {
    path: PathBuf,
    file: fs::File,
    size: u64,
    block: u32,
    home: u64,
    kind: Kind,
    direct: bool,
    in_ram: bool,
    trusted: bool,
    /// Cleared when the file system said that it cannot (F5).
    can_punch: AtomicBool,
    can_zero_range: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Regular,
    Block,
}

impl File {
    pub(crate) fn open(path: &Path, direct: Direct, read_only: bool) -> Result<Self, Error> {
        let fail = |why: String| Error::Backing { what: format!("file:{}", path.display()), why };
        let open = |flags| fs::OpenOptions::new().read(true).write(!read_only).custom_flags(flags).open(path);
        // Opening a fifo would wait for its other end.
        let kind = match fs::metadata(path).map_err(|error| fail(error.to_string()))?.file_type() {
            kind if kind.is_file() => Kind::Regular,
            kind if kind.is_block_device() => Kind::Block,
            kind if kind.is_dir() => {
                return Err(fail("is a directory; a regular file or block device is needed".into()));
            }
            _ => return Err(fail("is neither a regular file nor a block device".into())),
        };
        let access = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if !read_only => {
                fail(format!("not writable ({error}); export it read-only, or change its permissions"))
            }
            _ => fail(error.to_string()),
        };
        let (file, is_direct) = match direct {
            Direct::Off => (open(0).map_err(access)?, false),
            Direct::Auto | Direct::On => match open(libc::O_DIRECT) {
                Ok(file) => (file, true),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && direct == Direct::Auto => {
                    (open(0).map_err(access)?, false) // F1
                }
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    return Err(fail("this file system takes no direct I/O; use direct = \"auto\" or \"off\"".into()));
                }
                Err(error) => return Err(access(error)),
            },
        };
        lock(&file, read_only).map_err(fail)?; // F3
        let metadata = file.metadata().map_err(|error| fail(error.to_string()))?;
        let size = match kind {
            Kind::Regular => metadata.len(),
            Kind::Block => io::Seek::seek(&mut &file, io::SeekFrom::End(0)).map_err(|e| fail(e.to_string()))?,
        };
        if size == 0 {
            return Err(fail("is empty; give it a size first (truncate -s 10G FILE)".into()));
        }
        if size % Sector::SIZE != 0 {
            let whole = size.next_multiple_of(Sector::SIZE);
            return Err(fail(format!(
                "has {size} bytes, which is not a multiple of 512, and a disk has whole sectors; pad it with: \
                 truncate -s {whole} {}",
                path.display()
            )));
        }
        let trusted = kind == Kind::Block || is_trusted(&file);
        let in_ram = kind == Kind::Regular && lives_in_ram(&file);
        tracing::info!(path = %path.display(), size, direct = is_direct, in_ram, read_only, "opened");
        let block = match (kind, is_direct && !in_ram) {
            (Kind::Block, _) => sys::block_size(&file).unwrap_or(512),
            (Kind::Regular, true) => sys::direct_alignment(&file).unwrap_or(512),
            (Kind::Regular, false) => 512,
        };
        let block = block.clamp(512, 65536);
        if size % u64::from(block) != 0 {
            return Err(fail(format!(
                "has {size} bytes, which is not a multiple of {block}, the block that direct I/O needs here; use \
                 direct=off, or pad it"
            )));
        }
        Ok(Self {
            path: path.to_owned(),
            size,
            block,
            home: if kind == Kind::Block { metadata.rdev() } else { metadata.dev() },
            kind,
            direct: is_direct,
            in_ram,
            trusted,
            can_punch: AtomicBool::new(true),
            can_zero_range: AtomicBool::new(true),
            file,
        })
    }

    pub(crate) fn facts(&self) -> Facts {
        let plain = Facts::plain(self.size);
        let limits = Limits { block: self.block / Sector::SIZE as u32, ..plain.limits };
        Facts {
            limits,
            home: Some(self.home),
            rotational: !self.in_ram && is_rotational(self.home),
            volatile_cache: !self.in_ram,
            fua: self.native_fua(),
            ..plain
        }
    }

    /// Whether requests go past the page cache (F1).
    pub(crate) const fn is_direct(&self) -> bool {
        self.direct
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Which file it is, whatever its name.
    pub(crate) fn identity(&self) -> io::Result<(u64, u64)> {
        let metadata = self.file.metadata()?;
        Ok(if self.kind == Kind::Block { (u64::MAX, metadata.rdev()) } else { (metadata.dev(), metadata.ino()) })
    }

    pub(crate) fn inline(&self) -> Option<&dyn Inline> {
        self.in_ram.then_some(self) // F2
    }

    /// The run of data or hole that starts at `at`, up to `len` bytes of it.
    pub(crate) fn run(&self, at: u64, len: u64) -> io::Result<Run> {
        if self.kind == Kind::Block {
            return Ok(Run { len, hole: false });
        }
        let data = sys::seek(&self.file, at, libc::SEEK_DATA)?;
        let (end, hole) = match data {
            Some(data) if data == at => (sys::seek(&self.file, at, libc::SEEK_HOLE)?, false),
            data => (data, true), // none: a hole up to the end
        };
        let run = end.map_or(len, |end| (end - at).min(len));
        // Where holes are finer than our sectors, a started sector counts as data.
        Ok(match run.next_multiple_of(Sector::SIZE).min(len) {
            whole if whole == run => Run { len: run, hole },
            whole => Run { len: whole, hole: false },
        })
    }

    pub(crate) fn will_need(&self, at: u64, len: u64) {
        if !self.direct {
            sys::will_need(&self.file, at, len);
        }
    }

    pub(crate) fn flush_now(&self) -> io::Result<()> {
        match self.kind {
            Kind::Regular => self.file.sync_data(), // F4
            Kind::Block => self.file.sync_all(),
        }
    }

    /// Whether a flush through the ring shall be an `fdatasync` (F4).
    pub(crate) fn flush_is_datasync(&self) -> bool {
        self.kind == Kind::Regular
    }

    /// Whether a durable write is one request (F4).
    pub(crate) const fn native_fua(&self) -> bool {
        self.trusted && self.direct
    }

    /// How `fallocate` shall be called to discard; `None` if nothing can.
    pub(crate) fn discard_mode(&self) -> Option<i32> {
        self.can_punch.load(Ordering::Relaxed).then_some(PUNCH)
    }

    /// How `fallocate` shall be called to write zeroes; `None` if they must be written out.
    pub(crate) fn zero_mode(&self, flags: Flags) -> Option<i32> {
        if !self.trusted {
            return None; // F5
        }
        let punch = !flags.contains(Flags::NO_UNMAP) && self.can_punch.load(Ordering::Relaxed);
        let range = self.can_zero_range.load(Ordering::Relaxed);
        if punch { Some(PUNCH) } else { range.then_some(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE) }
    }

    /// The file system said that it cannot do this (F5).
    pub(crate) fn learn_unsupported(&self, mode: i32) {
        let flag = if mode == PUNCH { &self.can_punch } else { &self.can_zero_range };
        if flag.swap(false, Ordering::Relaxed) {
            let what = if mode == PUNCH { "punch holes" } else { "zero ranges" };
            tracing::info!(path = %self.path.display(), "the file system cannot {what}; done without from now on");
        }
    }
}

/// Give blocks back, keep the size; reads as zeroes afterwards.
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

/// Whether `fallocate` says that it cannot do this here.
pub(crate) const fn is_unsupported(errno: i32) -> bool {
    matches!(errno, libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV)
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Inline for File {
    fn read(&self, at: u64, into: &mut [u8]) -> Outcome {
        outcome(self.file.read_exact_at(into, at))
    }

    fn write(&self, at: u64, from: &[u8], _flags: Flags) -> Outcome {
        outcome(self.file.write_all_at(from, at))
    }

    fn flush(&self) -> Outcome {
        outcome(self.flush_now())
    }

    fn discard(&self, at: u64, len: u64) -> Outcome {
        let Some(mode) = self.discard_mode() else { return Outcome::Done };
        match sys::fallocate(&self.file, mode, at, len) {
            Err(error) if error.raw_os_error().is_some_and(is_unsupported) => {
                self.learn_unsupported(mode);
                Outcome::Done // F5
            }
            result => outcome(result),
        }
    }

    fn write_zeroes(&self, at: u64, len: u64, flags: Flags) -> Outcome {
        while let Some(mode) = self.zero_mode(flags) {
            match sys::fallocate(&self.file, mode, at, len) {
                Err(error) if error.raw_os_error().is_some_and(is_unsupported) => self.learn_unsupported(mode),
                result => return outcome(result),
            }
        }
        if flags.contains(Flags::FAST) {
            return Outcome::Failed(Errno::ENOTSUP);
        }
        static ZEROES: [u8; 1 << 16] = [0; 1 << 16];
        let mut done = 0;
        while done < len {
            let part = (len - done).min(ZEROES.len() as u64);
            if let Err(error) = self.file.write_all_at(&ZEROES[..part as usize], at + done) {
                return Outcome::Failed(super::errno(&error));
            }
            done += part;
        }
        Outcome::Done
    }
}

/// How long the last requests of a killed server are waited for.
const LOCK_PATIENCE: time::Duration = time::Duration::from_secs(10);

/// Whether the kernel calls the disk below a device number rotational; `false` where there is no such disk (a network file
/// system, several disks in one file system).
fn is_rotational(device: u64) -> bool {
    let place = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    // A partition has no queue of its own: its disk, the directory above, has.
    let says = |path: &str| fs::read_to_string(format!("{place}/{path}/queue/rotational"));
    says(".").or_else(|_| says("..")).is_ok_and(|text| text.trim() == "1")
}

/// Locks the file, or says who else might have it (F3).
fn lock(file: &fs::File, read_only: bool) -> Result<(), String> {
    if !sys::process_lock(file, read_only) {
        return Err("is in use by another server (it holds a lock on the file)".into());
    }
    let start = time::Instant::now();
    loop {
        let result = if read_only { file.try_lock_shared() } else { file.try_lock() };
        match result {
            Ok(()) => return Ok(()),
            Err(fs::TryLockError::WouldBlock) if start.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(time::Duration::from_millis(5));
            }
            Err(fs::TryLockError::WouldBlock) => {
                return Err("is in use by another program (it holds a lock on the file)".into());
            }
            // Some network file systems have no locks.
            Err(fs::TryLockError::Error(error)) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(()),
            Err(fs::TryLockError::Error(error)) => return Err(format!("cannot be locked: {error}")),
        }
    }
}

/// Whether the file system is one that is known to keep its word: direct writes with `RWF_DSYNC` are durable (F4), and a
/// range that `fallocate` zeroed or punched reads as zeroes (F5).
fn is_trusted(file: &fs::File) -> bool {
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683e;
    const F2FS: i64 = 0xf2f5_2010;
    matches!(sys::file_system(file), Ok(EXT4 | XFS | BTRFS | F2FS | TMPFS | RAMFS))
}

const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

fn lives_in_ram(file: &fs::File) -> bool {
    matches!(sys::file_system(file), Ok(TMPFS | RAMFS))
}

/// The system calls that the standard library has no name for.
mod sys {
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::AsRawFd;

    fn check(result: i32) -> io::Result<()> {
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Takes a lock that the process holds until it ends or closes the file; whether nobody else has it. It is taken as had
    /// where there are no such locks.
    pub(super) fn process_lock(file: &std::fs::File, shared: bool) -> bool {
        let kind = if shared { libc::F_RDLCK } else { libc::F_WRLCK };
        // SAFETY: all zeroes are a valid `flock`: from the start of the file.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_whence, lock.l_len) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short, 1);
        // SAFETY: `lock` outlives the call.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) };
        let error = io::Error::last_os_error().raw_os_error();
        result == 0 || !matches!(error, Some(libc::EACCES | libc::EAGAIN))
    }

    /// The next data or hole at or after `at`; `None` if there is none.
    pub(super) fn seek(file: &std::fs::File, at: u64, whence: i32) -> io::Result<Option<u64>> {
        // SAFETY: takes and returns numbers. The file position that it moves is used by nobody.
        let found = unsafe { libc::lseek64(file.as_raw_fd(), at as i64, whence) };
        match u64::try_from(found) {
            Ok(found) => Ok(Some(found)),
            Err(_) => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
                error => Err(error),
            },
        }
    }

    pub(super) fn fallocate(file: &std::fs::File, mode: i32, at: u64, len: u64) -> io::Result<()> {
        // SAFETY: takes numbers.
        check(unsafe { libc::fallocate64(file.as_raw_fd(), mode, at as i64, len as i64) })
    }

    pub(super) fn will_need(file: &std::fs::File, at: u64, len: u64) {
        // SAFETY: takes numbers. It is advice: an error means that nothing was read ahead.
        unsafe { libc::posix_fadvise64(file.as_raw_fd(), at as i64, len as i64, libc::POSIX_FADV_WILLNEED) };
    }

    /// The magic number of the file system.
    pub(super) fn file_system(file: &std::fs::File) -> io::Result<i64> {
        let mut stat = MaybeUninit::<libc::statfs64>::zeroed();
        // SAFETY: `stat` has room for what the call writes; all zeroes are a valid value of it.
        let stat = unsafe {
            check(libc::fstatfs64(file.as_raw_fd(), stat.as_mut_ptr()))?;
            stat.assume_init()
        };
        Ok(stat.f_type)
    }

    /// The block of a block device, in bytes.
    pub(super) fn block_size(file: &std::fs::File) -> io::Result<u32> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: BLKSSZGET writes one int.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::BLKSSZGET, &raw mut bytes) })?;
        u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// What offsets and lengths of direct I/O must be multiples of, in bytes (Linux 6.1).
    pub(super) fn direct_alignment(file: &std::fs::File) -> Option<u32> {
        let mut stat = MaybeUninit::<libc::statx>::zeroed();
        // SAFETY: the path is empty and terminated, `stat` has room for what the call writes; all zeroes are valid.
        let stat = unsafe {
            let (fd, empty) = (file.as_raw_fd(), c"".as_ptr());
            check(libc::statx(fd, empty, libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, stat.as_mut_ptr())).ok()?;
            stat.assume_init()
        };
        (stat.stx_mask & libc::STATX_DIOALIGN != 0 && stat.stx_dio_offset_align != 0)
            .then_some(stat.stx_dio_offset_align)
    }
}
