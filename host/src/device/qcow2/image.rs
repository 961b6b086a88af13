//! Image: a chain of files, opened and looked through.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fairlift_core::{Errno, Op};
use imago::qcow2::Qcow2;
use imago::raw::Raw;
use imago::{FormatAccess, Mapping};

use super::header::{BYTES, Head};
use super::storage::ChainFile;
use crate::device::by_threads::ByThreads;
use crate::device::file::faults::Faults;
use crate::device::file::syntax::{Direct, FileAccess};
use crate::device::file::{File, lock_against_qemu, stamp};
use crate::device::handed::{self, OpenFile};
use crate::device::lane::{Address, Lane};
use crate::device::roots::{Roots, directory_of};
use crate::device::{Device, Facts, Fault, Run, Stamp, Store};

/// As many files may lie over each other. Chosen: twice as many as tops of overlays may; each costs every read a look at its tables.
pub(super) const CHAIN_MAX: usize = 16;
/// How much memory the tables of a chain may take. Chosen: a disk of 64 TiB in the usual clusters of 64 KiB takes 9 MiB.
const MEMORY_MAX: u64 = 256 << 20;
/// As many runs of an image are looked at when it is opened; what lies behind them counts as data. Chosen: a quarter of a TiB in the usual clusters,
/// each somewhere else, and a second or two; the holes among them take at most 32 MiB.
const RUNS_MAX: usize = 4 << 20;

pub(super) struct QcowImage {
    path: PathBuf,
    disk: FormatAccess<ChainFile>,
    /// The image's file, and those below it.
    files: Vec<Arc<File>>,
    /// The holes of the chain, in order.
    holes: Vec<Range<u64>>,
    /// The crate has panicked (qcow2.5).
    is_broken: AtomicBool,
    /// An error was told with all its words.
    is_told: AtomicBool,
    faults: Faults,
}

impl QcowImage {
    pub(super) fn open(path: &Path, roots: &Roots) -> Result<Self, String> {
        let mut chain = Chain { roots, files: Vec::new(), memory: 0 };
        let (disk, holes) = caught(|| {
            let disk = chain.qcow2(path)?;
            let holes = holes(&disk).map_err(|error| format!("is damaged: {error}"))?;
            Ok((disk, holes))
        })
        .unwrap_or_else(|panic| Err(format!("is damaged: {panic}")))?;
        let (size, files) = (disk.size(), chain.files);
        tracing::info!(path = %path.display(), size, files = files.len(), holes = holes.len(), "qcow2 image opened");
        Ok(Self {
            path: path.to_owned(),
            disk,
            files,
            holes,
            is_broken: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            faults: Faults::default(),
        })
    }
}

impl Store for QcowImage {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let read = caught(|| self.disk.read(into, at)).unwrap_or_else(|panic| {
            self.is_broken.store(true, Ordering::Relaxed);
            Err(io::Error::other(panic))
        });
        if let Err(error) = &read
            && !self.is_told.swap(true, Ordering::Relaxed)
        {
            tracing::error!(image = %self.path.display(), at, %error, "a qcow2 image cannot be read");
        }
        read
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.size())
    }
}

/// Does something that the crate may panic in (qcow2.5); a panic is told in words. Afterwards its leftovers are only dropped.
fn caught<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
        format!("its reader has given up ({})", words.unwrap_or("for no reason that it told"))
    })
}

struct Chain<'a> {
    roots: &'a Roots,
    files: Vec<Arc<File>>,
    memory: u64,
}

impl Chain<'_> {
    /// qcow2.2
    fn file(&mut self, path: &Path) -> Result<Arc<File>, String> {
        if self.files.len() >= CHAIN_MAX {
            return Err(format!(
                "has more than {CHAIN_MAX} files in its chain: flatten it (qemu-img convert -O qcow2)"
            ));
        }
        let place = self.roots.place(path)?;
        let access = FileAccess { direct: Direct::Off, is_raw: true, ..FileAccess::default() };
        let file = File::open(&place, access, true)?;
        let which = |file: &File| file.file.metadata().map(|metadata| handed::of(&metadata)).ok();
        if self.files.iter().any(|above| which(above) == which(&file)) {
            return Err("is in its chain twice".into());
        }
        if !lock_against_qemu(&file.file) {
            return Err("is being written by QEMU: have it stop, or take a copy".into());
        }
        let file = Arc::new(file);
        self.files.push(Arc::clone(&file));
        Ok(file)
    }

    fn qcow2(&mut self, path: &Path) -> Result<FormatAccess<ChainFile>, String> {
        let file = self.file(path)?;
        let mut bytes = [0; BYTES];
        let read = FileExt::read_at(&file.file, &mut bytes, 0).map_err(|error| error.to_string())?;
        let head = Head::read(&bytes[..read], path)?;
        self.memory += head.memory;
        if self.memory > MEMORY_MAX {
            return Err(format!(
                "would need {} MiB of memory for its tables, with those of the images above it, and {} MiB are possible: convert it (qemu-img convert -O qcow2)",
                self.memory >> 20,
                MEMORY_MAX >> 20
            ));
        }
        let damaged = |error: io::Error| format!("is damaged: {error}");
        let mut image = Qcow2::open_image(ChainFile::new(&file, head.cluster), false).map_err(damaged)?;
        let backing = match image.implicit_backing_file().map(String::as_str) {
            None => None,
            Some(name) => {
                let below = backing_path(path, name)?;
                let format = image.implicit_backing_format().map(String::as_str);
                let opened = self.backing(path, &below, format);
                Some(opened.map_err(|why| format!("lies over {}, which {why}", below.display()))?)
            }
        };
        image.set_data_file(None);
        image.set_backing(backing);
        Ok(FormatAccess::new(image))
    }

    fn backing(&mut self, above: &Path, path: &Path, format: Option<&str>) -> Result<FormatAccess<ChainFile>, String> {
        match format {
            Some("qcow2") => self.qcow2(path),
            Some("raw") => {
                let file = ChainFile::new(&self.file(path)?, 512);
                Ok(FormatAccess::new(Raw::open_image(file, false).map_err(|error| error.to_string())?))
            }
            Some(other) => Err(format!("is said to be of format \"{other}\": raw and qcow2 are read")),
            // A guest writes what a raw image begins with: what it is must not be taken from there.
            None => Err(format!(
                "has no format set: set it by qemu-img rebase -u -F raw|qcow2 -b {} {}",
                path.display(),
                above.display()
            )),
        }
    }
}

/// Where what an image lies over is: from the image's directory.
fn backing_path(image: &Path, name: &str) -> Result<PathBuf, String> {
    let is_elsewhere = name.split('/').next().is_some_and(|first| first.contains(':'));
    if is_elsewhere || name.is_empty() || name.contains('\0') {
        return Err(format!("lies over \"{}\", which is no path: files are read", name.escape_debug()));
    }
    Ok(directory_of(image).join(name))
}

/// Looks through all tables of a chain for features that the reader lacks (qcow2.4).
fn holes(disk: &FormatAccess<ChainFile>) -> io::Result<Vec<Range<u64>>> {
    let (mut holes, mut at, size): (Vec<Range<u64>>, _, _) = (Vec::new(), 0, disk.size());
    for _ in 0..RUNS_MAX {
        if at >= size {
            break;
        }
        let (mapping, len) = disk.get_mapping(at, size - at)?;
        let (len, hole) = match mapping {
            Mapping::Zero { .. } => (len, true),
            Mapping::Raw { storage, offset, .. } => {
                let Run { len: run, hole } = storage.run(offset, len)?;
                (run, hole)
            }
            _ => (len, false),
        };
        if len == 0 {
            return Err(io::Error::other(format!("the entry at byte {at} leads nowhere")));
        }
        match holes.last_mut() {
            Some(last) if hole && last.end == at => last.end += len,
            _ if hole => holes.push(at..at + len),
            _ => {}
        }
        at += len;
    }
    Ok(holes)
}

/// The run that starts at a byte, by the holes.
fn run(holes: &[Range<u64>], at: u64, len: u64) -> Run {
    match holes.get(holes.partition_point(|hole| hole.end <= at)) {
        Some(hole) if hole.start <= at => Run { len: len.min(hole.end - at), hole: true },
        Some(hole) => Run { len: len.min(hole.start - at), hole: false },
        None => Run { len, hole: false },
    }
}

impl Device for QcowImage {
    fn facts(&self) -> Facts {
        let Facts { home, rotational, .. } = self.files[0].facts();
        Facts { home, rotational, read_only: true, needs_helpers: true, ..Facts::plain(self.disk.size()) }
    }

    fn called(&self) -> String {
        self.files[0].called()
    }

    fn lane(self: Arc<Self>, address: Address) -> Box<dyn Lane> {
        Box::new(ByThreads::new(self, address))
    }

    fn hand_over(self: Arc<Self>) -> Result<Vec<OpenFile>, String> {
        Ok(self.files.iter().map(|file| Arc::clone(file) as OpenFile).collect())
    }

    fn has_gone_over(&self) -> bool {
        self.files.iter().all(|file| file.has_gone_over())
    }

    fn run(&self, at: u64, len: u64) -> io::Result<Run> {
        Ok(run(&self.holes, at, len))
    }

    fn stamps(&self) -> io::Result<Vec<Stamp>> {
        self.files.iter().map(|file| Ok(stamp(&file.file.metadata()?, file.facts().size))).collect()
    }

    fn failed(&self, op: Op, errno: Errno) {
        self.faults.failed(&self.path, op, errno);
    }

    fn take_faults(&self) -> VecDeque<Fault> {
        self.faults.take()
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.files[0].descriptor()
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn is_direct(&self) -> bool {
        false
    }
}
