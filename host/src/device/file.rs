//! File: a regular file or a block device.
//!
//! A write with FUA must be on the disk before its reply, and other clients must not wait for it. How that is done depends on
//! where the file lies. On ext4 with direct I/O it is one request of the ring (`RWF_DSYNC`). FUSE ignores that flag, and the
//! ring would start a thread of its own for each request there: a helper thread writes; then the queue has it flushed,
//! together with others (sequence.2). In tmpfs there is nothing to wait for: the worker copies at once. The idea: for each kind of file system and each operation there is a way
//! that keeps its word and does not hold up the worker. The fast ways are for the file systems that are known to keep theirs
//! (`is_trusted`); all others have the slow and sure ones.
//!
//! file.1  Direct I/O where the file system and the alignment take it, else through the page cache (`open`).
//! file.2  On a file system that lives in RAM (tmpfs, ramfs) a request is a copy: it is done at once, by a plain system call,
//!         for the ring would hand it to a helper thread.
//! file.3  Two servers cannot write one file: it is locked, shared for readers. A process lock (`fcntl`) tells a live server;
//!         the file's own lock (`flock`) stays until the kernel has ended what a killed one had in flight, and is waited for; so
//!         is a block device that such a server held (`open`).
//! file.4  Durable means `fdatasync` on a file and `fsync` on a block device. A durable write (FUA) is one request where the
//!         file system is known to take it so (`RWF_DSYNC`), else a write and then a sync: FUSE ignores the flag on direct I/O.
//!         Through the page cache such a write would be told, in place of a sync, that older writes were lost, and the kernel
//!         tells that once.
//! file.5  Missing abilities of the file system are learned once: discards then do nothing, as they may; zeroes are written out.
//!         Zeroes are also written out on file systems that are not known to make them: some FUSE servers answer "done" and
//!         have done nothing (nbdfuse 1.14, above a server without write-zeroes). New connections are not offered what is known
//!         not to work.
//! file.6  Where the ring would hand each request to a thread of its own (all but the file systems named in `is_trusted`, and block
//!         devices), our own few helper threads wait: as many reads at once as pay there. Data in the page cache is read at once, where
//!         that can be told (`peek`). On these files all counts as data, and nothing is read ahead: a worker that asked where the holes are
//!         might wait for another process.
//! file.7  Writes into the page cache go one by one, in their order: they are copies, or wait for the disk together. Direct
//!         writes go at once.
//! file.8  A fault is one line in the log, not one for each request that meets it (`faults`).
//! file.9  A file may end within a sector: the rest of its last sector reads as zeroes, and writes there are dropped, so that the file
//!         keeps its length.
//! file.10  A server that takes over from another one is given the open file, and with it the file's own lock, which so is never free. The
//!         process lock is the old server's until it ends; the new one takes it then. A third server that asks in between finds the
//!         file's own lock taken.

pub(super) mod faults;
mod format;
mod holder;
mod lane;
mod open;
mod peek;
mod reflink;
mod store;
pub(super) mod syntax;
mod sys;

#[cfg(feature = "qcow2")]
pub(super) use sys::lock_against_qemu;

use std::cell::Cell;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time;

use fairlift_core::record::Record;
use fairlift_core::{Errno, Flags, Limits, Op, Outcome, Sector};
use rustix::fs::SeekFrom;
use vm_memory::VolatileSlice;

use super::backing::NowBase;
use super::handed::OpenFile;
use super::lane::{Address, AtOnce, Lane, Tell};
use super::roots::{RootedPath, Roots};
use super::untold::Untold;
use super::{Device, Facts, Fault, Inline, Run, Stamp};
use crate::kernel::helpers::Order;
use crate::kernel::ticket::zero;
use crate::outcome::{errno, outcome};
use faults::Faults;
pub(crate) use holder::of as holder_of;
use lane::OnFile;
use open::{Opened, kind};
use peek::Peek;
use syntax::FileAccess;

pub(crate) struct File {
    path: PathBuf,
    pub(crate) file: fs::File,
    /// As it was last told to be: it only grows.
    size: AtomicU64,
    block: u32,
    home: u64,
    /// As it was when the file was opened.
    rotational: bool,
    kind: FileKind,
    direct: bool,
    way: Way,
    /// Its part in the page cache; unset while it is read past that, and where reads of that part cannot be told.
    peek: OnceLock<Peek>,
    read_only: bool,
    /// The foreign format that it begins as, without a declaration that it is raw (open.4).
    foreign: Option<String>,
    /// Cleared when the file system said that it cannot (file.5).
    can_punch: AtomicBool,
    can_zero_range: AtomicBool,
    untold: Untold,
    faults: Faults,
}

/// How requests reach the file.
enum Way {
    /// file.2
    Inline,
    /// Through io_uring: the file system takes requests without blocking the worker, or says so.
    Ring,
    /// By threads that wait (file.6); reads are tried before.
    Helpers,
}

impl Way {
    const fn says(&self) -> &'static str {
        match self {
            Self::Inline => "it lives in RAM, and is served at once",
            Self::Ring => "served by the engine",
            Self::Helpers => "served by helper threads",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Regular,
    Block,
}

impl File {
    pub(crate) fn open(place: &RootedPath<'_>, access: FileAccess, read_only: bool) -> Result<Self, String> {
        let kind = kind(place)?;
        let opened = match place.handed(access.direct != syntax::Direct::Off, read_only)? {
            Some(file) => open::adopt(file, kind, access, (place.path, read_only))?, // file.10
            None => {
                let opened = open::open(place, kind, access, read_only)?;
                lock(&opened.file, opened.read_only)?; // file.3
                opened
            }
        };
        Self::of(place.path, kind, opened)
    }

    /// A regular file without a name that another server has open, and hands over with its lock (file.10).
    pub(crate) fn unnamed(path: &Path, file: fs::File, access: FileAccess, read_only: bool) -> Result<Self, String> {
        Self::of(path, FileKind::Regular, open::adopt(file, FileKind::Regular, access, (path, read_only))?)
    }

    fn of(path: &Path, kind: FileKind, opened: Opened) -> Result<Self, String> {
        let Opened { file, direct, block, size, read_only, foreign, why } = opened;
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        let system = sys::file_system(&file).unwrap_or_default();
        let in_ram = kind == FileKind::Regular && matches!(system, TMPFS | RAMFS);
        let home = if kind == FileKind::Block { metadata.rdev() } else { metadata.dev() };
        let way = match kind {
            _ if in_ram => Way::Inline,
            FileKind::Regular if !is_trusted(system) => Way::Helpers,
            FileKind::Regular | FileKind::Block => Way::Ring,
        };
        let io = if direct { format!("direct, in blocks of {block}") } else { "through the page cache".into() };
        let peek = if direct || in_ram { None } else { Peek::of(&file, &metadata, size) };
        let cached = match &peek {
            Some(peek) => peek.says(),
            None if direct || in_ram => "",
            None => ", each request",
        };
        tracing::info!(path = %path.display(), size, read_only, "opened: {io} ({why}); {}{cached}", way.says());
        Ok(Self {
            path: path.to_owned(),
            size: AtomicU64::new(size),
            block: if in_ram { 512 } else { block },
            home,
            rotational: !in_ram && is_rotational(home),
            kind,
            direct,
            way,
            peek: peek.map_or_else(OnceLock::new, OnceLock::from),
            read_only,
            foreign,
            can_punch: AtomicBool::new(true),
            can_zero_range: AtomicBool::new(true),
            untold: Untold::default(),
            faults: Faults::default(),
            file,
        })
    }

    /// It is at another path from now on.
    pub(crate) fn renamed(self, path: &Path) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// Whether a client knows of each sync that failed (untold.1).
    fn is_told(&self) -> Result<(), String> {
        self.untold.error().map_or(Ok(()), |error| {
            Err(format!(
                "could not be made durable ({error}), and a new server would not know of it: the next flush of a client tells that"
            ))
        })
    }

    fn in_ram(&self) -> bool {
        matches!(self.way, Way::Inline)
    }

    /// Whether its file system is known to keep its word; all others wait in helper threads (file.6).
    const fn is_trusted(&self) -> bool {
        !matches!(self.way, Way::Helpers)
    }

    /// How helpers are to do something; `None` if the ring does it (file.6, file.7).
    fn by_helpers(&self, op: Op) -> Option<Order> {
        match (&self.way, op) {
            (Way::Ring, Op::Write) if !self.direct => Some(Order::Ordered),
            (Way::Ring | Way::Inline, _) => None,
            (Way::Helpers, Op::Read) => Some(Order::Concurrent),
            (Way::Helpers, Op::Write) if self.direct => Some(Order::Concurrent),
            (Way::Helpers, Op::Write | Op::Discard | Op::WriteZeroes) => Some(Order::Ordered),
            (Way::Helpers, Op::Flush) => Some(Order::Alone),
        }
    }

    /// How many of the bytes from `at` on are the file's, not those that fill up its last sector (file.9).
    #[inline]
    fn within(&self, at: u64, bytes: u64) -> u64 {
        bytes.min(self.size.load(Ordering::Relaxed).saturating_sub(at))
    }

    /// Looks whether the file is still there and as long as it was, and says what is new (file.8). Costs less than a flush.
    fn look(&self) {
        if self.kind == FileKind::Regular
            && let Ok((size, names)) = sys::size_and_names(&self.file)
        {
            self.faults.looked(&self.path, self.size.load(Ordering::Relaxed), size, names);
        }
    }

    /// The file as one that answers at once, if it does.
    pub(crate) fn inline(&self) -> Option<&Self> {
        self.in_ram().then_some(self) // file.2
    }

    /// Whether a flush through the ring shall be an `fdatasync` (file.4).
    pub(crate) fn flush_is_datasync(&self) -> bool {
        self.kind == FileKind::Regular
    }

    /// Whether a durable write is one request (file.4).
    pub(crate) const fn native_fua(&self) -> bool {
        self.is_trusted() && self.direct
    }

    /// How `fallocate` shall be called to discard; `None` if nothing can.
    pub(crate) fn discard_mode(&self) -> Option<i32> {
        self.can_punch.load(Ordering::Relaxed).then_some(PUNCH)
    }

    /// How `fallocate` shall be called to write zeroes; `None` if they must be written out.
    pub(crate) fn zero_mode(&self, flags: Flags) -> Option<i32> {
        if !self.is_trusted() {
            return None; // file.5
        }
        let punch = !flags.contains(Flags::NO_UNMAP) && self.can_punch.load(Ordering::Relaxed);
        let range = self.can_zero_range.load(Ordering::Relaxed);
        if punch { Some(PUNCH) } else { range.then_some(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE) }
    }

    /// The file system said that it cannot do this (file.5).
    fn learn_unsupported(&self, mode: i32) {
        let flag = if mode == PUNCH { &self.can_punch } else { &self.can_zero_range };
        if flag.swap(false, Ordering::Relaxed) {
            let what = if mode == PUNCH { "punch holes" } else { "zero ranges" };
            tracing::info!(path = %self.path.display(), "the file system cannot {what}; the server no longer uses that");
        }
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Device for File {
    fn facts(&self) -> Facts {
        let plain = Facts::plain(self.size.load(Ordering::Relaxed));
        let limits = Limits { block: self.block / Sector::SIZE as u32, ..plain.limits };
        Facts {
            limits,
            home: Some(self.home),
            rotational: self.rotational,
            volatile_cache: !self.in_ram(),
            fua: self.native_fua(),
            read_only: self.read_only,
            in_ram: self.in_ram(),
            needs_helpers: !self.is_trusted(),
            ..plain
        }
    }

    fn freeze(&self, _tell: Tell<'_>, roots: &Roots, own: &Path) -> Result<NowBase, String> {
        if self.kind == FileKind::Block {
            return Err(
                "it is a block device, and has no copy by reference: serve it as overlay:base=PATH,top=PATH".into()
            );
        }
        reflink::reflink(self, &roots.place(own)?)?;
        Ok(NowBase { base: own.to_owned().into(), size: None })
    }

    fn foreign(&self) -> Option<&str> {
        self.foreign.as_deref()
    }

    fn hand_over(self: Arc<Self>) -> Result<Vec<OpenFile>, String> {
        self.is_told()?;
        Ok(vec![self])
    }

    /// Its last sync may have failed since the offer.
    fn hand_on(&self, _says: &mut Record) -> Result<Vec<u8>, String> {
        self.is_told().map(|()| Vec::new())
    }

    fn has_gone_over(&self) -> bool {
        sys::process_lock(&self.file, self.read_only) // file.10
    }

    fn called(&self) -> String {
        holder::called(self.home, &self.path)
    }

    fn look_at_size(&self) -> io::Result<u64> {
        // Direct I/O reaches whole blocks only.
        let block = if self.direct { u64::from(self.block) } else { 1 };
        open::size_of(&self.file).map(|size| size / block * block).map_err(io::Error::other)
    }

    fn grow(&self, size: u64) {
        self.size.fetch_max(size, Ordering::Relaxed);
    }

    fn lane(self: Arc<Self>, address: Address) -> Box<dyn Lane> {
        if self.in_ram() { Box::new(AtOnce(self)) } else { Box::new(OnFile::new(self, address)) }
    }

    fn run(&self, at: u64, len: u64) -> io::Result<Run> {
        if self.kind == FileKind::Block || !self.is_trusted() {
            return Ok(Run { len, hole: false }); // file.6
        }
        let data = sys::seek(&self.file, SeekFrom::Data(at))?;
        let hole = match data {
            Some(data) if data <= at => sys::seek(&self.file, SeekFrom::Hole(at))?,
            _ => None,
        };
        Ok(run_of(at, len, data, hole))
    }

    fn flush_now(&self) -> io::Result<()> {
        self.look();
        match self.kind {
            _ if self.read_only => Ok(()), // and some file systems would refuse it
            FileKind::Regular => self.untold.sync(|| self.file.sync_data()), // file.4
            FileKind::Block => self.untold.sync(|| self.file.sync_all()),
        }
    }

    fn failed(&self, op: Op, errno: Errno) {
        self.faults.failed(&self.path, op, errno);
        if op == Op::Read && errno == Errno::EIO {
            self.look();
        }
    }

    fn take_faults(&self) -> VecDeque<Fault> {
        self.faults.take()
    }

    fn can_discard(&self) -> bool {
        self.can_punch.load(Ordering::Relaxed)
    }

    fn can_zero_fast(&self) -> bool {
        self.zero_mode(Flags::NONE).is_some()
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.file.as_raw_fd())
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn is_direct(&self) -> bool {
        self.direct
    }
}

/// Of a block device with this size that alone.
pub(crate) fn stamp(metadata: &fs::Metadata, size: u64) -> Stamp {
    match metadata.is_file() {
        true => (metadata.len(), (metadata.mtime(), u32::try_from(metadata.mtime_nsec()).unwrap_or(0))),
        false => (size, (0, 0)),
    }
}

/// The first `bytes` of a slice, and the rest.
fn split<'a>(slice: &VolatileSlice<'a>, bytes: u64) -> (VolatileSlice<'a>, VolatileSlice<'a>) {
    slice.split_at(bytes as usize).expect("no more than all of it")
}

/// The run that starts at `at`, up to `len` bytes of it, by the file system's answers on the next data and, if that starts there, the
/// next hole; `None`: there is no more of it up to the end.
///
/// Between the two answers the data may have been discarded: the hole then starts at `at` too. It is data for one more sector, as in every
/// case that would make an empty run.
fn run_of(at: u64, len: u64, data: Option<u64>, hole: Option<u64>) -> Run {
    let is_hole = data.is_none_or(|data| data > at);
    let end = if is_hole { data } else { hole };
    let run = end.map_or(len, |end| end.saturating_sub(at).min(len));
    // Where holes are finer than our sectors, a started sector counts as data.
    match run.max(1).next_multiple_of(Sector::SIZE).min(len) {
        whole if whole == run => Run { len: run, hole: is_hole },
        whole => Run { len: whole, hole: false },
    }
}

/// Zeroes to be written where nothing else makes them; on a page boundary, so that direct I/O takes them. 64 KiB are chosen:
/// the largest block of direct I/O that clients are asked to keep to (`open.rs`).
#[repr(align(4096))]
struct Zeroes([u8; 1 << 16]);

static ZEROES: Zeroes = Zeroes([0; 1 << 16]);

/// Give blocks back, keep the size; reads as zeroes afterwards.
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

/// Whether `fallocate` says that it cannot do this here.
pub(super) const fn is_unsupported(errno: i32) -> bool {
    matches!(errno, libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV)
}

impl Inline for File {
    fn read(&self, at: u64, into: VolatileSlice<'_>) -> Outcome {
        let (into, beyond) = split(&into, self.within(at, into.len() as u64));
        zero(&beyond);
        outcome(sys::read_exact_at(&self.file, into, at))
    }

    fn write(&self, at: u64, from: VolatileSlice<'_>, _flags: Flags) -> Outcome {
        let (from, _) = split(&from, self.within(at, from.len() as u64));
        outcome(sys::write_all_at(&self.file, from, at))
    }

    fn flush(&self) -> Outcome {
        outcome(self.flush_now())
    }

    fn discard(&self, at: u64, len: u64) -> Outcome {
        let Some(mode) = self.discard_mode() else { return Outcome::Done };
        match sys::fallocate(&self.file, mode, at, len) {
            Err(error) if error.raw_os_error().is_some_and(is_unsupported) => {
                self.learn_unsupported(mode);
                Outcome::Done // file.5
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
        let (mut done, len) = (0, self.within(at, len));
        while done < len {
            let part = (len - done).min(ZEROES.0.len() as u64);
            if let Err(error) = self.file.write_all_at(&ZEROES.0[..part as usize], at + done) {
                return Outcome::Failed(errno(&error));
            }
            done += part;
        }
        Outcome::Done
    }
}

/// Whether the kernel calls the disk below a device number rotational; `false` where there is no such disk (a network file
/// system, several disks in one file system). Of a virtio disk it says so whatever the disk is, since no host tells: that is
/// no reason to take it for one whose arm must be waited for.
///
/// To find it out takes some twenty system calls. A thousand files of one disk are opened one after the other: it is found out once.
fn is_rotational(device: u64) -> bool {
    thread_local!(static LAST: Cell<Option<(u64, bool, time::Instant)>> = const { Cell::new(None) });
    let fresh = |(of, _, at): &(u64, bool, time::Instant)| *of == device && at.elapsed() < AS_IT_WAS;
    if let Some((_, known, _)) = LAST.get().filter(fresh) {
        return known;
    }
    let found = find_rotational(device);
    LAST.set(Some((device, found, time::Instant::now())));
    found
}

/// The time for which a disk's properties are taken as unchanged. Chosen: thousands of files are opened in that time.
const AS_IT_WAS: time::Duration = time::Duration::from_secs(1);

fn find_rotational(device: u64) -> bool {
    let place = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    // A partition has no queue of its own: its disk, the directory above, has.
    let says = |path: &str| fs::read_to_string(format!("{place}/{path}/queue/rotational"));
    let is_virtio = |path: &str| {
        fs::canonicalize(format!("{place}/{path}/device/subsystem")).is_ok_and(|bus| bus.ends_with("virtio"))
    };
    let declared = says(".").or_else(|_| says("..")).is_ok_and(|text| text.trim() == "1");
    declared && !is_virtio(".") && !is_virtio("..")
}

/// Locks the file, or says who else might have it (file.3).
fn lock(file: &fs::File, read_only: bool) -> Result<(), String> {
    if !sys::process_lock(file, read_only) {
        return Err(open::LOCKED.into());
    }
    let start = time::Instant::now();
    loop {
        let result = if read_only { file.try_lock_shared() } else { file.try_lock() };
        match result {
            Ok(()) => return Ok(()),
            Err(fs::TryLockError::WouldBlock) if start.elapsed() < open::PATIENCE => {
                std::thread::sleep(open::AGAIN);
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

// The numbers of file systems are those of statfs(2).
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// Whether the file system of a disk is one that is known to keep its word: direct writes with `RWF_DSYNC` are durable (file.4), and a
/// range that `fallocate` zeroed or punched reads as zeroes (file.5).
fn is_trusted(system: i64) -> bool {
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683e;
    const F2FS: i64 = 0xf2f5_2010;
    matches!(system, EXT4 | XFS | BTRFS | F2FS)
}

#[cfg(test)]
mod tests {
    use fairlift_core::sched;

    use super::*;
    use crate::device::Store;
    use crate::disk::engine::News;
    use crate::disk::engine::bench::{submit, turned, workers};

    const fn data(len: u64) -> Run {
        Run { len, hole: false }
    }

    const fn hole(len: u64) -> Run {
        Run { len, hole: true }
    }

    #[test]
    fn a_run_ends_where_the_next_one_starts_in_whole_sectors() {
        assert_eq!(run_of(4096, 1 << 20, Some(4096), Some(8192)), data(4096));
        assert_eq!(run_of(4096, 1 << 20, Some(8192), None), hole(4096));
        assert_eq!(run_of(4096, 1024, Some(8192), None), hole(1024));
        assert_eq!(run_of(4096, 1 << 20, None, None), hole(1 << 20));
        assert_eq!(run_of(4096, 1 << 20, Some(4096), None), data(1 << 20));
        assert_eq!(run_of(4096, 1 << 20, Some(4196), None), data(512), "a started sector counts as data");
        assert_eq!(run_of(4096, 1 << 20, Some(4096), Some(4196)), data(512));
    }

    /// untold.1: a fork syncs the file, and that fails. The kernel tells it once; who flushes next must hear of it.
    #[test]
    fn a_sync_that_failed_for_no_client_fails_the_next_flush() {
        let path = std::env::temp_dir().join(format!("fairlift-file-untold-{}", std::process::id()));
        fs::write(&path, [1; 8192]).unwrap();
        let mut file = File::open(&RootedPath::anywhere(&path), FileAccess::default(), false).unwrap();
        fs::remove_file(&path).unwrap();
        // Nothing makes a pipe durable.
        let mut cannot: fs::File = std::os::fd::OwnedFd::from(io::pipe().unwrap().0).into();
        std::mem::swap(&mut file.file, &mut cannot);
        assert!(Store::sync(&file).is_err());
        std::mem::swap(&mut file.file, &mut cannot);
        assert!(Store::sync(&file).is_err(), "what another fork lies over is as little durable");
        let file = Arc::new(file);
        assert!(Arc::clone(&file).hand_over().is_err(), "a new server would not know of it");
        let hands_on = || file.hand_on(&mut Record::default()).is_ok();
        assert!(!hands_on(), "nor would it of one that failed after the offer");
        let mut workers = workers(Arc::clone(&file) as Arc<dyn Device>, sched::Kind::None, 1);
        let ticket = submit(&mut workers[0], Op::Flush, Flags::NONE, &(0..0), &[]);
        let mut now = fairlift_core::Instant::ZERO;
        while workers[0].0.news.is_empty() {
            turned(&mut workers[0].0, &mut now);
        }
        assert_eq!(workers[0].0.news, [(ticket, News::Ended(Outcome::Failed(Errno::EINVAL)))]);
        // The queue remembers it from now on (flush.7).
        assert!(Store::sync(&*file).is_ok() && hands_on() && Arc::clone(&file).hand_over().is_ok());
    }

    /// A discard between the two questions, and file systems that answer what cannot be.
    #[test]
    fn a_run_is_never_empty() {
        assert_eq!(run_of(4096, 1 << 20, Some(4096), Some(4096)), data(512));
        assert_eq!(run_of(4096, 1 << 20, Some(4096), Some(0)), data(512));
        assert_eq!(run_of(4096, 1 << 20, Some(0), Some(8192)), data(4096));
        assert_eq!(run_of(4096, 512, Some(0), Some(u64::MAX)), data(512));
    }
}
