//! Opening a file, and whether the page cache is bypassed.
//!
//! open.1  Direct I/O is used where the kernel says how (`statx`, a block device's sector), or, where it says nothing, where a
//!         first read goes through. A file system may open a file with `O_DIRECT` and then refuse each request, or cache it all
//!         the same: what is cached by clients already would then be twice in memory.
//! open.2  An end that direct I/O cannot reach (a size that is no multiple of its block) is no reason to refuse a file: unless direct
//!         I/O was asked for, it goes through the page cache, and the log says why.
//! open.3  A block device that is mounted, or held by another program, is refused unless the operator allows it. A server
//!         that writes holds it from then on; one that reads only looks whether it is free, so that several can have it.
//!         A killed server's ring holds its files a moment longer than the server lives, as with locks (file.3): so a device
//!         that nobody is known to have is asked for again.
//! open.4  A file that begins as something else than a disk (a qcow2, a LUKS container) is told, unless it is said to be raw
//!         ([`format`](super::format)). An image of another format is not written: a write would destroy it. A running server refuses to add either;
//!         a start tells of them ([`Foreign`](crate::Foreign)), and the operator decides.
//! open.5  Through the page cache the kernel reads nothing ahead, from before the first read on, where the cache can be looked at (peek.5), and
//!         on squashfs. There it would unpack up to 20 blocks in front of each reader (2.5 MiB) with the one decompressor that all share, and
//!         push out blocks that others are about to ask for.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, ioctl_blksszget};

use super::syntax::{Direct, FileAccess};
use super::{FileKind, format, holder, sys};
use crate::device::Store;
use crate::device::roots::RootedPath;
use crate::kernel::buffer::Pages;

pub(super) struct Opened {
    pub(super) file: fs::File,
    pub(super) direct: bool,
    /// The unit of all requests, in bytes.
    pub(super) block: u32,
    pub(super) size: u64,
    pub(super) read_only: bool,
    /// The foreign format that it begins as, without a declaration that it is raw, and the remedy (open.4).
    pub(super) foreign: Option<String>,
    /// Why it is direct, or why not.
    pub(super) why: String,
}

/// Said of a file that a server has.
pub(super) const LOCKED: &str = "is in use by another server (it holds a lock on the file)";

/// How long the last requests of a killed server are waited for. Chosen: a disk that works ends them in that time, and the operator
/// has an answer within it.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How often they are looked for.
pub(super) const AGAIN: Duration = Duration::from_millis(5);

/// The largest block of direct I/O that clients are asked to keep to: the largest minimum that NBD allows (`doc/proto.md`, "Block
/// size constraints").
const BLOCK_MOST: u32 = 65536;

/// The kind of file at a path, before it is opened: opening a fifo would wait for its other end.
pub(super) fn kind(place: &RootedPath<'_>) -> Result<FileKind, String> {
    let metadata = place.metadata().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound
            if place.path.parent().is_some_and(|one| !one.as_os_str().is_empty() && !one.exists()) =>
        {
            format!("{error}; its directory is not there")
        }
        io::ErrorKind::NotFound => {
            format!("{error}; a new disk of 10 GiB is made by: truncate -s 10g {}", place.path.display())
        }
        _ => error.to_string(),
    })?;
    match metadata.file_type() {
        kind if kind.is_file() => Ok(FileKind::Regular),
        kind if kind.is_block_device() => Ok(FileKind::Block),
        kind if kind.is_dir() => Err("is a directory; a regular file or block device is needed".into()),
        _ => Err("is neither a regular file nor a block device".into()),
    }
}

/// The number of squashfs, as statfs(2) says it.
pub(super) const SQUASHFS: i64 = 0x7371_7368;

pub(super) fn open(
    place: &RootedPath<'_>,
    kind: FileKind,
    access: FileAccess,
    read_only: bool,
) -> Result<Opened, String> {
    let opened = open_somehow(place, kind, access, read_only)?;
    let Some(format) = format::of(&opened.file, opened.block).filter(|_| !access.is_raw) else { return Ok(opened) };
    let foreign = Some(format.tell(place.path));
    if read_only || format.may_be_a_clients() {
        return Ok(Opened { foreign, ..opened });
    }
    drop(opened);
    Ok(Opened { foreign, ..open_somehow(place, kind, access, true)? }) // open.4
}

fn open_somehow(
    place: &RootedPath<'_>,
    kind: FileKind,
    FileAccess { direct, may_be_in_use, .. }: FileAccess,
    read_only: bool,
) -> Result<Opened, String> {
    // Of a regular file O_EXCL means nothing here.
    let exclusive = if kind == FileKind::Block && !may_be_in_use { OFlags::EXCL } else { OFlags::empty() };
    let access = |error: io::Error| match error.kind() {
        io::ErrorKind::ResourceBusy if !exclusive.is_empty() => in_use_message(place),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if !read_only => {
            let is_readable = open_patiently(place, OFlags::RDONLY).is_ok();
            let (what, read_only) = match is_readable {
                true => ("not writable", "export it read-only, or "),
                false => ("neither readable nor writable", ""),
            };
            let is_root = rustix::process::geteuid().is_root();
            let root =
                if is_root { " (root without CAP_DAC_OVERRIDE is subject to them: keep_capabilities)" } else { "" };
            format!("{what} ({error}); {read_only}change its permissions{root}")
        }
        _ => error.to_string(),
    };
    let mode = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if read_only {
        open_patiently(place, mode | exclusive).map_err(access)?; // open.3: it is closed again at once
    }
    let held = if read_only { OFlags::empty() } else { exclusive };
    let open = |flags| open_patiently(place, mode | held | flags);
    let cached = |why: String| {
        let file = open(OFlags::empty()).map_err(access)?;
        sys::read_ahead(&file, false); // open.5
        let size = size_of(&file)?;
        let block = cached_block(&file, kind);
        Ok(Opened { file, direct: false, block, size, read_only, foreign: None, why })
    };
    if direct == Direct::Off {
        return cached("direct=off".into());
    }
    let why_not = match open(OFlags::DIRECT) {
        Ok(file) => {
            let size = size_of(&file)?;
            match direct_block(&file, kind, size) {
                Ok((block, why)) => {
                    return Ok(Opened { file, direct: true, block, size, read_only, foreign: None, why });
                }
                Err(why) => why,
            }
        }
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => "this file system takes no direct I/O".to_owned(),
        Err(error) => return Err(access(error)),
    };
    match direct {
        Direct::On => Err(format!("{why_not}; use direct = \"auto\" or \"off\"")),
        Direct::Auto | Direct::Off => cached(why_not), // open.2
    }
}

/// A file that another server has open, as it is there: how it is read and written is the open file's, and so is its lock.
pub(super) fn adopt(
    file: fs::File,
    kind: FileKind,
    access: FileAccess,
    (path, read_only): (&Path, bool),
) -> Result<Opened, String> {
    let flags = rustix::fs::fcntl_getfl(&file).map_err(|error| error.to_string())?;
    let is_read_only = flags & OFlags::RWMODE == OFlags::RDONLY;
    let size = size_of(&file)?;
    let direct = flags.contains(OFlags::DIRECT);
    let block = if direct { direct_block(&file, kind, size)?.0 } else { cached_block(&file, kind) };
    let foreign = format::of(&file, block).filter(|_| !access.is_raw).map(|format| format.tell(path));
    if is_read_only && !read_only && foreign.is_none() {
        return Err("the running server has it open for reading only: restart it to write".into());
    }
    let why = "as the previous server has it".into();
    // A top that was frozen is open for writing still, and nobody writes it.
    Ok(Opened { file, direct, block, size, read_only: read_only || is_read_only, foreign, why })
}

/// The unit of requests through the page cache.
fn cached_block(file: &fs::File, kind: FileKind) -> u32 {
    if kind == FileKind::Block { ioctl_blksszget(file).unwrap_or(512).clamp(512, BLOCK_MOST) } else { 512 }
}

/// The alignment of direct I/O on an open file, and its source; or the reason why there is none (open.1).
fn direct_block(file: &fs::File, kind: FileKind, size: u64) -> Result<(u32, String), String> {
    let (block, why) = match (kind, sys::direct_alignment(file)) {
        (FileKind::Block, _) => (ioctl_blksszget(file).unwrap_or(512), "its sector"),
        (FileKind::Regular, Some((0, _))) => return Err("this file takes no direct I/O, by statx".into()),
        (FileKind::Regular, Some((_, memory))) if memory > sys::PAGE as u32 => {
            return Err(format!("direct I/O needs memory on multiples of {memory} here"));
        }
        (FileKind::Regular, Some((block, _))) => (block, "by statx"),
        (FileKind::Regular, None) => (tried(file)?, "by trying"),
    };
    let block = block.max(512);
    match block {
        _ if block > BLOCK_MOST => Err(format!("direct I/O is in blocks of {block} here")),
        _ if !size.is_multiple_of(u64::from(block)) => {
            Err(format!("its {size} bytes are not a multiple of {block}, the block of direct I/O here"))
        }
        _ => Ok((block, why.into())),
    }
}

/// The least block that a direct read takes.
fn tried(file: &fs::File) -> Result<u32, String> {
    let mut memory = Pages::new(sys::PAGE as usize);
    for block in [512, 4096] {
        match FileExt::read_at(file, &mut memory.bytes_mut()[..block as usize], 0) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            // Requests will meet any other fault of it, too.
            _ => return Ok(block),
        }
    }
    Err("a direct read was refused".into())
}

pub(super) fn size_of(file: &fs::File) -> Result<u64, String> {
    let size = Store::len(file).map_err(|error| error.to_string())?;
    if size == 0 {
        return Err("is empty: a disk image has the size of the disk".into());
    }
    Ok(size)
}

/// open.3
fn open_patiently(place: &RootedPath<'_>, flags: OFlags) -> io::Result<fs::File> {
    let start = Instant::now();
    loop {
        match place.open(flags) {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy
                    && start.elapsed() < PATIENCE
                    && !is_locked(place)
                    && holder(place).is_none() =>
            {
                std::thread::sleep(AGAIN);
            }
            other => return other,
        }
    }
}

/// Whether a live server has it.
fn is_locked(place: &RootedPath<'_>) -> bool {
    place.open(OFlags::RDONLY).is_ok_and(|file| !sys::process_lock(&file, true))
}

fn holder(place: &RootedPath<'_>) -> Option<String> {
    place.metadata().map_or_else(|error| Some(error.to_string()), |metadata| holder::of(metadata.rdev()))
}

/// open.3
fn in_use_message(place: &RootedPath<'_>) -> String {
    if is_locked(place) {
        return LOCKED.into();
    }
    let who = holder(place);
    let who = who.as_deref().unwrap_or("is held by another program, or mounted out of sight (in another container)");
    format!(
        "{who}; serving it would mix two users' data, and can destroy it; to serve it anyway: file:{},in_use=allow",
        place.path.display()
    )
}
