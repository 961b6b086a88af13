//! The files of an overlay: making a top, opening it and the files below it.
//!
//! make.1  A top is made where there is none, or a file without data: a crash while one was made leaves such a file. The header comes last,
//!         and all of it is durable before the disk is served.
//! make.2  A file below is opened once in a process for all that have it, and known by its file: a thousand overlays of one base have one
//!         descriptor of it, one lock, one map.
//! make.3  A top that others lie over is durable before they are, also if the server that wrote it was killed.
//! make.4  A trial (a dry run, a check of a config file) leaves the directory and all files as they were: a top that would be made
//!         is made without a name, where it would be, and goes when it is closed.
//! make.5  The top of an ephemeral overlay is a file without a name: it is gone when it is closed, whatever ends the server. So nobody has to find
//!         and delete it, and no other file can be taken for it. It owes nothing to a flush, and others cannot lie over it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf, absolute};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Weak};

use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::fs::OFlags;

use super::claims::Claims;
use super::format::{
    BLOCK, Base, Fingerprint, Header, Id, MAGIC, PageImage, SIZE_MAX, SLOTS, Slots, data_offset, file_len,
    header_offset, headers, page, page_offset, pages, slot_offset,
};
use super::map::{LayerMap, Own};
use super::pause::Pause;
use super::syntax::{BaseAt, Layered};
use super::{Layers, Overlay};
use crate::device::file::syntax::{Direct, FileAccess};
use crate::device::file::{File, stamp};
use crate::device::handed;
use crate::device::roots::{RootedPath, Roots};
use crate::device::{Backing, Device, Layer, Sharing, Store};
use crate::kernel::buffer::Pages;
use crate::sync::{Mutex, lock};

/// How many tops may lie over each other, with the one that is written.
pub(super) const DEPTH_MAX: usize = 8;

/// The layers below a top: a base, and tops over it.
pub(super) struct Below {
    /// From the bottom: the base is the first.
    pub(super) files: Vec<LayerFile>,
    /// Of the layers over the base, from the lowest.
    pub(super) maps: Vec<LayerMap>,
    pub(super) base_size: u64,
    /// Where the lowest of the files is.
    pub(super) lowest: BaseAt,
    /// Of the disk that it is.
    pub(super) size: u64,
}

#[derive(Clone)]
pub(super) struct LayerFile {
    pub(super) file: Arc<dyn Layer>,
    /// Where the disk begins in it.
    pub(super) offset: u64,
    /// By what it is known.
    pub(super) is: Fingerprint,
}

/// Something below, under any name, and how it is read.
type BelowKey = (Sharing, Direct);

/// Layers or files that are open, each once for all overlays that use it (make.2).
type OpenOnce<T> = LazyLock<Mutex<HashMap<BelowKey, Weak<T>>>>;

/// Layers with all that is below them.
static OPEN: OpenOnce<Below> = LazyLock::new(Mutex::default);

/// Files, which several chains may have though they have nothing else in common: a top that was frozen lies in that of each of its forks. When a
/// second descriptor of one is closed, the process loses its lock (file.3).
static FILES: OpenOnce<dyn Layer> = LazyLock::new(Mutex::default);

fn there<T: ?Sized>(all: &OpenOnce<T>, key: &BelowKey) -> Option<Arc<T>> {
    lock(all).get(key).and_then(Weak::upgrade)
}

fn keep<T: ?Sized>(all: &OpenOnce<T>, key: BelowKey, one: &Arc<T>) {
    let mut all = lock(all);
    all.retain(|_, open| open.strong_count() > 0);
    all.insert(key, Arc::downgrade(one));
}

impl Below {
    pub(super) fn open(at: &BaseAt, direct: Direct, roots: &Roots, depth: usize) -> Result<Arc<Self>, String> {
        match at {
            BaseAt::File(path) => Self::open_file(path, direct, roots, depth),
            BaseAt::Named(text) => Self::open_already(text).ok_or_else(|| {
                format!(
                    "its base {text} is on another server and is not opened merely because a top names it: name it to the server \
                     (base={text}); \
                     fairlift overlay reads files and qcow2 images"
                )
            }),
            // A name of an export was replaced by its backing where exports are known.
            BaseAt::Export(_) => Err(format!("its base {at} is an export of a server, and here is none")),
            BaseAt::Backing(backing) => {
                Self::open_backing(at, backing, roots).map_err(|why| format!("its base {at}: {why}"))
            }
        }
    }

    /// The layers that were opened by this name, if somebody has them still.
    fn open_already(text: &str) -> Option<Arc<Self>> {
        let open: Vec<_> = lock(&OPEN).values().filter_map(Weak::upgrade).collect();
        open.into_iter().find(|one| matches!(one.is(), Fingerprint::Named { .. }) && one.lowest.called() == text)
    }

    fn open_backing(at: &BaseAt, backing: &Backing, roots: &Roots) -> Result<Arc<Self>, String> {
        let key = (backing.sharing(None), Direct::Off);
        if let Some(open) = there(&OPEN, &key).filter(|_| key.0 != Sharing::None)
            && open.is() == image(&*open.files[0].file, at)?
        {
            return Ok(open);
        }
        let device = backing.kind().open_below(roots)?;
        let (is, size) = (image(&*device, at)?, device.facts().size);
        let lowest = at.absolute().map_err(|error| error.to_string())?;
        let opened = Arc::new(Self::base(device, is, size, lowest));
        keep(&OPEN, key, &opened);
        Ok(opened)
    }

    /// Opens what is at a path: a file of bare bytes, or a top with all that is below it.
    fn open_file(path: &Path, direct: Direct, roots: &Roots, depth: usize) -> Result<Arc<Self>, String> {
        let of_base = |why: String| format!("its base {}: {why}", path.display());
        if depth > DEPTH_MAX {
            return Err(of_base(format!("more than {DEPTH_MAX} overlays lie over each other")));
        }
        let place = roots.place(path).map_err(of_base)?;
        let metadata = place.metadata().map_err(|error| of_base(error.to_string()))?;
        let key = (handed::of(&metadata), direct);
        if let Some(open) = there(&OPEN, &key)
            && (matches!(open.is(), Fingerprint::Top { .. }) || open.is() == raw(&metadata, open.size))
        {
            return Ok(open);
        }
        let file = match there(&FILES, &key).filter(|file| file.facts().size == metadata.len()) {
            Some(file) => file,
            None => {
                let access = FileAccess { direct, ..FileAccess::default() };
                let file: Arc<dyn Layer> = Arc::new(File::open(&place, access, true).map_err(of_base)?);
                keep(&FILES, key.clone(), &file);
                file
            }
        };
        let opened = Arc::new(match is_top(&*file) {
            false => Self::bare(file, &metadata, path),
            true => Self::over(file, direct, roots, depth).map_err(of_base)?,
        });
        keep(&OPEN, key, &opened);
        Ok(opened)
    }

    /// A top that was open becomes a base: others that lie over it find it by its file (make.2).
    pub(super) fn known_as(self: &Arc<Self>, top: &Arc<dyn Layer>, direct: Direct) {
        if let Some(Ok(metadata)) = top.file().map(fs::File::metadata) {
            let key = (handed::of(&metadata), direct);
            keep(&FILES, key.clone(), top);
            keep(&OPEN, key, self);
        }
    }

    pub(super) fn bare(file: Arc<dyn Layer>, metadata: &fs::Metadata, path: &Path) -> Self {
        let size = file.facts().size;
        let lowest = absolute(path).unwrap_or_else(|_| path.to_owned()).into();
        Self::base(file, raw(metadata, size), size, lowest)
    }

    /// A base that lies over nothing.
    pub(super) fn base(file: Arc<dyn Layer>, is: Fingerprint, size: u64, lowest: BaseAt) -> Self {
        let files = vec![LayerFile { file, offset: 0, is }];
        Self { files, maps: Vec::new(), base_size: size, lowest, size }
    }

    /// The same with a top over it, which nobody writes any more.
    pub(super) fn with(&self, top: Arc<dyn Layer>, header: &Header, own: Arc<Own>) -> Self {
        // A top that was put over a longer disk ends where it did (shift.2).
        let map = LayerMap { own, blocks: header.size.div_ceil(BLOCK) };
        let maps = self.maps.iter().cloned().chain([map]).collect();
        let layer = LayerFile { file: top, offset: data_offset(header.size), is: header.fingerprint() };
        let files = self.files.iter().cloned().chain([layer]).collect();
        Self { files, maps, base_size: self.base_size, lowest: self.lowest.clone(), size: header.size }
    }

    /// By what it is known, whatever lies below the highest of its files.
    pub(super) fn is(&self) -> Fingerprint {
        self.files.last().expect("there is a base").is
    }

    fn over(file: Arc<dyn Layer>, direct: Direct, roots: &Roots, depth: usize) -> Result<Self, String> {
        let (header, _) = read_header(&*file)?;
        let below = Self::open(&header.base.at(), direct, roots, depth + 1)?;
        Self::on(file, &header, &below)
    }

    /// A top, on the files below it.
    pub(super) fn on(file: Arc<dyn Layer>, header: &Header, below: &Self) -> Result<Self, String> {
        known(header, &header.base.path, below.is())?;
        if !header.clean {
            // The top of a killed server: those above rely on the data that they read of it, and on how often it was opened (make.3).
            file.sync().map_err(|error| format!("it was not closed, and cannot be made durable: {error}"))?;
        }
        let (own, _) = read_map(&*file, header)?;
        if below.files.len() >= DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} overlays lie over each other"));
        }
        Ok(below.with(file, header, own.into()))
    }
}

/// By what a file of bare bytes is known again; a block device by its size alone.
pub(super) fn raw(metadata: &fs::Metadata, size: u64) -> Fingerprint {
    let (size, changed) = stamp(metadata, size);
    Fingerprint::Raw { size, changed }
}

/// By what an image is known again, or something that is elsewhere.
fn image(device: &dyn Device, at: &BaseAt) -> Result<Fingerprint, String> {
    let stamps = device.stamps().map_err(|error| error.to_string())?;
    if stamps.is_empty() {
        return Ok(Fingerprint::named(device.facts().size, &at.called()));
    }
    Ok(Fingerprint::image(device.facts().size, &stamps))
}

pub(super) fn is_top(file: &dyn Store) -> bool {
    let mut memory = Pages::new(2 * BLOCK as usize);
    let is_long = file.len().is_ok_and(|len| len >= 2 * BLOCK);
    is_long
        && file.read_at(memory.bytes_mut(), 0).is_ok()
        && [0, BLOCK as usize].iter().any(|at| memory.bytes_mut()[*at..].starts_with(&MAGIC))
}

/// Whether the files below a top are those with which the top was made.
pub(super) fn known(header: &Header, path: &Path, is: Fingerprint) -> Result<(), String> {
    let is_there = path == header.base.path || absolute(path).is_ok_and(|path| path == header.base.path);
    let path = path.display();
    match (header.base.is, is) {
        (was, is) if was == is => Ok(()),
        (was, is) if header.commits && is_there && was.may_become(is) => Ok(()), // into.1
        _ if !is_there => Err(format!(
            "it is over another base than {path}: over {}, or a copy of it that keeps its size and time of change (cp -p)",
            header.base.path.display()
        )),
        (Fingerprint::Top { id: was, .. }, Fingerprint::Top { id: is, .. }) if was == is => Err(format!(
            "its base {path} was opened for writing since: reads through it may mix old data and new; a base must not be written"
        )),
        (Fingerprint::Raw { size: was, .. }, Fingerprint::Raw { size: is, .. }) => Err(format!(
            "its base {path} was changed since: {}; a base must not be written: restore it (with its time of change: cp -p), or begin with a new top",
            if was == is {
                "its time of change is another".to_owned()
            } else {
                format!("it had {was} bytes and has {is}")
            }
        )),
        (Fingerprint::Named { size: was, digest }, Fingerprint::Named { size: is, digest: now }) if digest == now => {
            Err(format!(
                "its base {path} was changed since: it had {was} bytes and has {is}; a base is not to be written: begin with a new top"
            ))
        }
        (Fingerprint::Image { size: was, files, .. }, Fingerprint::Image { size: is, .. }) => Err(format!(
            "its base qcow2:{path} was changed since: {}; a base must not be written: restore it (with its time of change: cp -p), or begin with a new top",
            match (was == is, files) {
                (false, _) => format!("its disk had {was} bytes and has {is}"),
                (true, 1) => "its size or its time of change is another".into(),
                (true, _) =>
                    format!("the size or time of change of one of its {files} files is another, or it lies over others"),
            }
        )),
        _ => Err(format!("its base {path} is another by now than that with which it was made")),
    }
}

/// Reads the header of a top; and which of its slots is torn, and how.
pub(super) fn read_header(store: &dyn Store) -> Result<(Header, Option<(usize, String)>), String> {
    if store.len().is_ok_and(|len| len < 2 * BLOCK) {
        return Err("is no overlay's top: it is shorter than a header".into());
    }
    let mut memory = Pages::new(2 * BLOCK as usize);
    store.read_at(memory.bytes_mut(), 0).map_err(|error| format!("its header cannot be read: {error}"))?;
    let Slots { counts, torn } =
        headers(memory.bytes_mut()).map_err(|why| format!("is damaged, or no overlay's top: {why}"))?;
    Ok((counts.ok_or("is no overlay's top, or was never finished: it has no header")?, torn))
}

/// Shows the pages of a map that were ever written, each as its two slots.
pub(super) fn for_each_page(
    store: &dyn Store,
    header: &Header,
    mut visit: impl FnMut(u64, Result<Slots<PageImage>, String>) -> Result<(), String>,
) -> Result<(), String> {
    let mut memory = Pages::new(2 * BLOCK as usize);
    let (mut index, end, blocks) = (0, pages(header.size), header.size.div_ceil(BLOCK));
    while index < end {
        let Some(data) = store.next_data(page_offset(index, 1)) else { break };
        index = index.max((data - page_offset(0, 1)) / (2 * BLOCK));
        if index >= end {
            break;
        }
        let read = store.read_at(memory.bytes_mut(), page_offset(index, 1));
        let slots = read.map_err(|error| error.to_string());
        visit(index, slots.and_then(|()| page(memory.bytes_mut(), &header.id, index, blocks)))?;
        index += 1;
    }
    Ok(())
}

/// Reads the map of a top; where slots lie that are torn.
fn read_map(store: &dyn Store, header: &Header) -> Result<(Own, Vec<u64>), String> {
    let len = store.len().map_err(|error| error.to_string())?;
    if len < file_len(header.size) {
        return Err(format!("is damaged: it has {len} bytes, of {}", file_len(header.size)));
    }
    let (own, mut all_torn) = (Own::new(header.size), Vec::new());
    let wrong = |index: u64, why: String| format!("is damaged: page {index} of its map: {why}");
    for_each_page(store, header, |index, slots| {
        let Slots { counts, torn } = slots.map_err(|why| wrong(index, why))?;
        if let Some((slot, why)) = torn {
            if header.clean {
                return Err(wrong(index, format!("slot {}: {why}", SLOTS[slot])));
            }
            tracing::warn!(
                page = index,
                slot = SLOTS[slot],
                why,
                "a page of the map was being written when the server ended: the one before counts"
            );
            own.mark(index); // so that the slot is whole when the top is closed
            all_torn.push(slot_offset(index, slot));
        }
        counts.iter().for_each(|page| own.load(page));
        Ok(())
    })?;
    Ok((own, all_torn))
}

impl Overlay {
    /// `begins`: it is to be written, unless it is opened for reading only. Else it is opened to see whether it can be: no top is made, and none is
    /// written (make.4).
    pub(super) fn open(
        layered: &Layered,
        how @ (read_only, begins): (bool, bool),
        roots: &Roots,
    ) -> Result<Self, String> {
        if layered.is_ephemeral {
            return Self::of_unnamed(layered, how, roots);
        }
        let place = roots.place(&layered.top)?;
        let is_new = is_to_be_made(&place)?;
        if is_new && !begins {
            let is_there = |error: &io::Error| error.kind() != io::ErrorKind::NotFound;
            place.open(OFlags::RDWR).err().filter(is_there).map_or(Ok(()), |error| Err(cannot_be_made(error)))?;
            return Self::of_unnamed(layered, how, roots);
        }
        // The layers below a new top are held, so that they are opened once.
        let new = if is_new { Some(new_top(layered, read_only, roots)?) } else { None };
        if let Some((_, header)) = &new {
            make_named(header, &place)?;
        }
        Self::of_top(layered, File::open(&place, layered.access(), read_only)?, how, roots)
    }

    /// Of a top that is made without a name.
    fn of_unnamed(layered: &Layered, how: (bool, bool), roots: &Roots) -> Result<Self, String> {
        if let Some(file) = roots.unnamed()? {
            return Self::of_top(layered, File::unnamed(&layered.top, file, layered.access(), how.0)?, how, roots);
        }
        let (_below, header) = new_top(layered, how.0, roots)?;
        let made = roots.place(layered.directory())?.make_unnamed();
        let file = made.and_then(|file| write_new(&file, &header).map(|()| file)).map_err(cannot_be_made)?;
        let place = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let opened = File::open(&RootedPath::anywhere(&place), layered.access(), false)?;
        Self::of_top(layered, opened.renamed(&layered.top), how, roots)
    }

    /// Of a top that is open.
    fn of_top(layered: &Layered, file: File, (read_only, begins): (bool, bool), roots: &Roots) -> Result<Self, String> {
        let (header, _) = read_header(&file)?;
        if let Some(size) = layered.size.filter(|size| *size != header.size) {
            return Err(format!(
                "has a disk of {} bytes, and not of {size}; size is for a top that is made",
                header.size
            ));
        }
        let (base, below) = below_of(layered, &header, roots)?;
        if below.files.len() > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} overlays lie over each other"));
        }
        if header.commits {
            let top = layered.top.display();
            tracing::warn!(%top, "{}", super::commit::under_way(&top));
        }
        tracing::info!(top = %layered.top.display(), %base, layers = below.files.len(), "overlay opened");
        let top = Arc::new(file);
        let layers = match roots.are_handed() {
            true => {
                let own = Own::new(header.size).into();
                Layers::new(top, header, below, base, own) // over.2
            }
            false => {
                let (layers, torn) = Layers::read(top, header, below, base)?;
                if begins && !read_only {
                    let begun = layers.begin(&torn, |header| header.opened += 1);
                    begun.map_err(|error| format!("it cannot be written: {error}"))?;
                }
                layers
            }
        };
        Ok(Self::of(layered.clone(), layers, read_only))
    }

    pub(super) fn of(layered: Layered, layers: Layers, read_only: bool) -> Self {
        Self {
            layered,
            base: Arc::clone(&layers.below.files[0].file),
            layers: Mutex::new(Arc::new(layers)),
            read_only,
            claims: Mutex::new(Claims::default()),
            pause: Pause::default(),
            is_deep: AtomicBool::new(false),
            is_flattened: AtomicBool::new(false),
            alone: Mutex::new(()),
        }
    }
}

/// The layers below a top, and the place where they were found: the given one, if the top lies over it. After forks the given one is at the
/// bottom, or anywhere between: the next layer is then where the top says.
fn below_of(layered: &Layered, header: &Header, roots: &Roots) -> Result<(BaseAt, Arc<Below>), String> {
    let next = || -> Result<_, String> {
        let at = header.base.at();
        let below = Below::open(&at, layered.base_direct, roots, 1)?;
        known(header, &header.base.path, below.is())?;
        Ok((at, below))
    };
    let Some(base) = &layered.base else { return next() };
    let below = Below::open(base, layered.base_direct, roots, 1)?;
    let path = base.recorded().map_err(|error| error.to_string())?;
    let Err(why) = known(header, &path, below.is()) else { return Ok((base.clone(), below)) };
    match header.base.is {
        Fingerprint::Top { .. } if path != header.base.path => {
            let (path, next) = next()?;
            if next.files.iter().any(|file| file.is == below.is()) { Ok((path, next)) } else { Err(why) }
        }
        _ => Err(why),
    }
}

impl Layers {
    /// Of an open top, with its content; where slots lie that are torn.
    pub(super) fn read(
        top: Arc<dyn Layer>,
        header: Header,
        below: Arc<Below>,
        base: BaseAt,
    ) -> Result<(Self, Vec<u64>), String> {
        let (own, torn) = read_map(&*top, &header)?;
        Ok((Self::new(top, header, below, base, own.into()), torn))
    }

    pub(super) fn new(top: Arc<dyn Layer>, header: Header, below: Arc<Below>, base: BaseAt, own: Arc<Own>) -> Self {
        Self { top, size: header.size, header: Mutex::new(header), below, base, own }
    }
}

/// Whether there is no top yet: no file, or one without data (make.1).
fn is_to_be_made(place: &RootedPath<'_>) -> Result<bool, String> {
    match place.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error.to_string()),
        Ok(metadata) if !metadata.is_file() => Err("is no regular file, and a top is one".into()),
        Ok(metadata) if metadata.len() == 0 => Ok(true),
        Ok(_) => {
            let file = place.open(OFlags::RDONLY).map_err(|error| error.to_string())?;
            Ok(file.next_data(0).is_none())
        }
    }
}

/// The layers below a new top, and its header.
fn new_top(layered: &Layered, read_only: bool, roots: &Roots) -> Result<(Arc<Below>, Header), String> {
    if roots.are_handed() {
        return Err("is not there, and the running server has it: put it back".into());
    }
    if read_only {
        return Err("is not there, and a top is not made for an export that is read-only".into());
    }
    let Some(base) = &layered.base else {
        return Err("does not exist; to make it, give its base (base=PATH)".into());
    };
    let below = Below::open(base, layered.base_direct, roots, 1)?;
    let size = layered.size.unwrap_or(below.size);
    if size < below.size {
        return Err(format!("size={size} is less than its base has ({} bytes); it may be more", below.size));
    }
    if size == 0 || size > SIZE_MAX {
        return Err(format!("a disk of {size} bytes is not possible: it has at most {SIZE_MAX}"));
    }
    let path = base.recorded().map_err(|error| error.to_string())?;
    let header = Header::drawn(size, Base { path, is: below.is() }, 0)?;
    Ok((below, header))
}

/// make.1
fn make_named(header: &Header, place: &RootedPath<'_>) -> Result<(), String> {
    let (file, is_new) = place.make().map_err(cannot_be_made)?;
    let write = || {
        write_new(&file, header)?;
        file.sync_all()?;
        place.sync_directory()
    };
    write().map_err(|error| {
        if is_new {
            let _ = fs::remove_file(place.path);
        }
        cannot_be_made(error)
    })?;
    let Header { size, base, .. } = header;
    tracing::info!(top = %place.path.display(), base = %base.path.display(), size, "overlay made");
    Ok(())
}

/// Makes an empty file a top with this header.
pub(super) fn write_new(file: &fs::File, header: &Header) -> io::Result<()> {
    let bytes = header.encode().map_err(io::Error::other)?;
    file.set_len(file_len(header.size))?;
    file.write_all_at(&bytes, header_offset(header.sequence))
}

fn cannot_be_made(error: io::Error) -> String {
    let more = if error.raw_os_error() == Some(libc::EMFILE) { ": each top takes one (ulimit -n)" } else { "" };
    format!("cannot be made: {error}{more}")
}

impl Header {
    pub(super) fn drawn(size: u64, base: Base, opened: u64) -> Result<Self, String> {
        let mut id = Id::default();
        SystemRandom::new().fill(&mut id).map_err(|_| "the system has no random numbers")?;
        Ok(Self { sequence: 1, size, id, opened, clean: true, commits: false, base })
    }
}
