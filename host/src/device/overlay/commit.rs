//! Commit: what a top changed is written into its base, and the top is empty from then on. Nobody serves either meanwhile.
//!
//! A sandbox has built what all others are to begin with. Its top could be the base of the next ones, and each such step is one more top over
//! another. Instead the image becomes what the sandbox is. Example: `alice.top` has 50 MiB over `debian.img`. They are written to
//! `debian.img`, and `alice.top` is an empty top over the image as it is now.
//!
//! into.1  Before the first byte of the base is written, the top's header says that this is under way, durably. From then on the base may be
//!         one that was changed: a file of bare bytes that has the size that it had, or a top that was opened to be written once more. Its
//!         changed blocks are in the top too, and read there. So whatever ends it, the disk reads the same, and the command goes on.
//! into.2  The base is durable, with its time of change, before the top's map is emptied.
//! into.3  The emptied map is durable before the data of the top is given back; and all that before its header names the base as it is now and
//!         says that nothing is under way.
//! into.4  Tops that lie over this one stay good, as with shift.2. Others over the same base are refused from then on, for it was changed: one
//!         that is seen, beside the top or the base, stops the command before it changes anything.

use std::fmt::Display;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Layers;
use super::files::{Below, is_top, known, raw, read_header};
use super::format::{BLOCK, Fingerprint, Header, PAGE_BLOCKS, data_offset, file_len};
use super::map::BlockState;
use super::shift::{GoesOn, PIECE, SETTLE, Shifted, open_alone, open_top};
use crate::device::file::syntax::Direct;
use crate::device::handed;
use crate::device::roots::{Roots, directory_of};
use crate::device::{Device as _, Layer};
use crate::kernel::buffer::Pages;
use crate::sync::lock;

/// Writes what a top has into its base, and empties the top.
///
/// # Errors
/// One of the two is in use, the base is not as it was or has another size, another top lies over it, or a file cannot be read or written.
pub fn commit(top: &Path, goes_on: GoesOn<'_>) -> Result<Shifted, String> {
    commit_top(top, goes_on).map_err(|why| format!("{}: {why}", top.display()))
}

fn commit_top(top: &Path, goes_on: GoesOn<'_>) -> Result<Shifted, String> {
    let (file, header) = open_top(top)?;
    let base = header.base.path.clone();
    if let Fingerprint::Image { .. } | Fingerprint::Named { .. } = header.base.is {
        return Err(format!(
            "its base {} is read, and not written: only a file or a top is. Serve the disk, and make an image of it (qemu-img convert \
             nbd:… NEW.img)",
            header.base.at()
        ));
    }
    let (below, lower) = open_base(&base).map_err(|why| format!("its base {}: {why}", base.display()))?;
    known(&header, &base, below.is())?;
    if below.size != header.size {
        return Err(format!(
            "its disk has {} bytes, and its base {} has {}: a disk that was made larger (size=) cannot be written into its base",
            header.size,
            base.display(),
            below.size
        ));
    }
    if let Some(other) = other_over((top, &base), below.is()).map_err(|error| error.to_string())? {
        return Err(format!(
            "{} lies over {} too, and would be refused once that is written: delete it, or put it over a copy (fairlift overlay rebase)",
            other.display(),
            base.display()
        ));
    }
    let (layers, torn) = Layers::read(file, header, Arc::new(below), base.into())?;
    write_into((&layers, &torn), &lower, goes_on).map_err(|error| error.to_string())
}

/// The message for a top whose commit was begun and has not ended.
pub(super) fn under_way(top: &impl Display) -> String {
    format!(
        "it is being written into its base, or that was stopped. The disk reads as before; to continue: fairlift overlay commit --write-to-base {top}"
    )
}

/// A base that nobody else has, as the lower part of a top, and to be written.
fn open_base(path: &Path) -> Result<(Below, Lower), String> {
    let in_use = ", and no server may have it meanwhile, nor a top over it: remove their exports, or stop the server";
    let file = open_alone(path, false, in_use)?;
    if let Some(foreign) = file.foreign().filter(|_| file.facts().read_only) {
        return Err(foreign.to_owned());
    }
    if !is_top(&*file) {
        let metadata = file.file.metadata().map_err(|error| error.to_string())?;
        let below = Below::bare(file.clone(), &metadata, path);
        let bare = Arc::clone(&file);
        let is = move || Ok(raw(&bare.file.metadata()?, bare.facts().size));
        let lower = Lower::Bare { file, size: below.size, is: Box::new(is) };
        return Ok((below, lower));
    }
    let (header, _) = read_header(&*file)?;
    if header.commits {
        return Err(under_way(&path.display()));
    }
    let next = header.base.at();
    let under = Below::open(&next, Direct::Off, &Roots::default(), 1)?;
    let below = Below::on(file.clone(), &header, &under)?;
    let (layers, torn) = Layers::read(file, header, under, next)?;
    Ok((below, Lower::Top { layers, torn }))
}

/// Another top over a base that is this now, in the directory of the top or of the base (into.4).
fn other_over((top, base): (&Path, &Path), is: Fingerprint) -> io::Result<Option<PathBuf>> {
    let which = |path: &Path| fs::metadata(path).map(|metadata| handed::of(&metadata));
    let (top_is, base_is) = (which(top)?, which(base)?);
    let lies_over = |path: &Path| -> Option<bool> {
        let file = fs::File::open(path).ok()?;
        let (header, _) = is_top(&file).then(|| read_header(&file).ok())??;
        Some(header.base.is == is && which(&header.base.path).is_ok_and(|one| one == base_is))
    };
    for directory in [directory_of(top), directory_of(base)] {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let path = entry.path();
            let is_other = entry.file_type()?.is_file() && which(&path).is_ok_and(|one| one != top_is);
            if is_other && lies_over(&path) == Some(true) {
                return Ok(Some(path));
            }
        }
    }
    Ok(None)
}

/// The target of a commit.
pub(super) enum Lower {
    /// A file of bare bytes, with a disk of this size, and its present fingerprint.
    Bare { file: Arc<dyn Layer>, size: u64, is: Box<dyn Fn() -> io::Result<Fingerprint>> },
    /// Another top; where slots lie that are torn.
    Top { layers: Layers, torn: Vec<u64> },
}

impl Lower {
    /// Before it is written: `was`, what the top above knows it by.
    fn begin(&self, was: Fingerprint) -> io::Result<()> {
        let Self::Top { layers, torn } = self else { return Ok(()) };
        layers.begin(torn, |header| {
            // Once, however often this is stopped and goes on (into.1).
            if header.fingerprint() == was {
                header.opened += 1;
            }
        })
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            // It may end within a block.
            Self::Bare { file, size, .. } => file.write_at(&bytes[..(size - at).min(bytes.len() as u64) as usize], at),
            Self::Top { layers, .. } => {
                layers.top.write_at(bytes, at + data_offset(layers.size))?;
                layers.own.set(at / BLOCK..(at + bytes.len() as u64) / BLOCK, BlockState::Data);
                Ok(())
            }
        }
    }

    fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        match self {
            Self::Bare { file, size, .. } => file.zero(at, len.min(size - at)),
            Self::Top { layers, .. } => {
                layers.own.set(at / BLOCK..(at + len) / BLOCK, BlockState::Zero);
                layers.top.discard(at + data_offset(layers.size), len)
            }
        }
    }

    /// Makes it durable; what it is known by then (into.2).
    fn close(&self) -> io::Result<Fingerprint> {
        match self {
            Self::Bare { file, is, .. } => {
                file.sync_all()?;
                is()
            }
            Self::Top { layers, .. } => {
                layers.close(|_| ())?;
                Ok(lock(&layers.header).fingerprint())
            }
        }
    }

    /// Makes durable what was written so far.
    fn settle(&self) -> io::Result<()> {
        match self {
            Self::Bare { file, .. } => file.sync(),
            Self::Top { layers, .. } => layers.flush(),
        }
    }
}

/// into.1–3
pub(super) fn write_into((layers, torn): (&Layers, &[u64]), lower: &Lower, goes_on: GoesOn<'_>) -> io::Result<Shifted> {
    let all = held(layers);
    let Header { commits, base, .. } = lock(&layers.header).clone();
    if all.is_empty() && !commits {
        return Ok(Shifted::Done(0));
    }
    layers.begin(torn, |header| header.commits = true)?;
    lower.begin(base.is)?;
    let mut memory = Pages::new(PIECE as usize);
    let (mut written, mut settled) = (0, 0);
    for (blocks, state) in &all {
        let mut at = blocks.start * BLOCK;
        let end = blocks.end * BLOCK;
        while at < end {
            if !goes_on(at, layers.size) {
                lower.close()?;
                layers.close(|_| ())?;
                return Ok(Shifted::Stopped);
            }
            let len = (end - at).min(if *state == BlockState::Data { PIECE } else { u64::MAX });
            if *state == BlockState::Data {
                let piece = &mut memory.bytes_mut()[..len as usize];
                layers.top.read_at(piece, at + data_offset(layers.size))?;
                lower.write(at, piece)?;
                written += len;
            } else {
                lower.zero(at, len)?;
            }
            at += len;
            if written - settled >= SETTLE {
                lower.settle()?;
                settled = written;
            }
        }
    }
    let is = lower.close()?; // into.2
    all.into_iter().for_each(|(blocks, _)| layers.own.set(blocks, BlockState::Absent));
    layers.flush()?;
    layers.top.discard(data_offset(layers.size), file_len(layers.size) - data_offset(layers.size))?; // into.3
    layers.close(|header| {
        header.base.is = is;
        header.commits = false;
    })?;
    Ok(Shifted::Done(written))
}

/// Which blocks a top has, in runs of at most a page of the map.
fn held(layers: &Layers) -> Vec<(Range<u64>, BlockState)> {
    let (mut all, mut at, blocks) = (Vec::new(), 0, layers.size.div_ceil(BLOCK));
    while at < blocks {
        let (state, end) = layers.own.run(at, blocks.min(at + PAGE_BLOCKS));
        if state != BlockState::Absent {
            all.push((at..end, state));
        }
        at = end;
    }
    all
}

impl Fingerprint {
    /// Whether a base that was this may be that after a commit that was begun (into.1).
    pub(super) fn may_become(self, is: Self) -> bool {
        match (self, is) {
            (Self::Raw { size: was, .. }, Self::Raw { size: is, .. }) => was == is,
            (Self::Top { id: was, opened }, Self::Top { id: is, opened: now }) => was == is && now == opened + 1,
            _ => false,
        }
    }
}
