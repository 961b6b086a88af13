//! Shift: a top lies over another base, and reads of it stay as they were. Nobody serves it meanwhile.
//!
//! A disk was forked seven times, and eight tops lie over each other: the next fork is refused. Or the image was rebuilt, and a sandbox is to
//! lie over the new one. In both cases some blocks that the top leaves to its base would change with it. Example: `alice.top` lies over
//! `alice.top.1`, which has 50 MiB over `debian.img`. These 50 MiB are copied to `alice.top`, and then it lies over `debian.img` alone.
//!
//! shift.1  Data that the top reads of its base, and would not read of the new one, is copied into the top and made durable before its header names the
//!          new one, in one write. So whatever ends it, the top reads the same, over the one or the other; what was copied is not copied again.
//! shift.2  Tops that lie over this one stay good, for it reads the same: it is not counted as opened to be written.
//! shift.3  A file that is in both chains is not compared with itself. A block of zeroes takes no room in the top.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::Layers;
use super::commit::under_way;
use super::files::{Below, known, read_header};
use super::format::{BLOCK, Base, Header, PAGE_BLOCKS, data_offset};
use super::map::{BlockState, Place, Where};
use super::syntax::BaseAt;
use crate::device::Layer;
use crate::device::file::File;
use crate::device::file::syntax::{Direct, FileAccess};
use crate::device::handed;
use crate::device::kinds::Qcow2;
use crate::device::roots::{RootedPath, Roots};
use crate::kernel::buffer::Pages;

/// How much is read at once. Chosen: disks and arrays are as fast as they can be.
pub(super) const PIECE: u64 = 1 << 20;
/// How much is copied before that is made durable. Chosen: a second's work of a hard disk is lost by a kill.
pub(super) const SETTLE: u64 = 64 << 20;

/// The fate of a top that was to be shifted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shifted {
    /// It is done, and this many bytes were copied.
    Done(u64),
    /// It was stopped. The same once more goes on.
    Stopped,
}

/// Asked while there is more to do, with the bytes of the disk that were looked at, and how many there are: whether to go on.
pub(super) type GoesOn<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// Puts a top over the lowest of the files below it, and copies the layers between into the top.
///
/// # Errors
/// It is in use, what is below is not as it was, or a file cannot be read or written.
pub fn flatten(top: &Path, goes_on: GoesOn<'_>) -> Result<Shifted, String> {
    put_over(top, None, goes_on).map_err(|why| format!("{}: {why}", top.display()))
}

/// Puts a top over another base: what is read of it stays as it is.
///
/// # Errors
/// As for [`flatten`].
pub fn rebase(top: &Path, base: &Path, goes_on: GoesOn<'_>) -> Result<Shifted, String> {
    let image = base.to_str().and_then(|text| text.strip_prefix("qcow2:"));
    let base = match image {
        Some(path) => BaseAt::Backing(Qcow2 { path: path.into() }.into()),
        None => base.to_owned().into(),
    };
    put_over(top, Some(base), goes_on).map_err(|why| format!("{}: {why}", top.display()))
}

/// Puts a top over a base; `None`: the lowest of the files below it.
fn put_over(top: &Path, base: Option<BaseAt>, goes_on: GoesOn<'_>) -> Result<Shifted, String> {
    let (file, header) = open_top(top)?;
    if header.commits {
        return Err(under_way(&top.display()));
    }
    let below = Below::open(&header.base.at(), Direct::Off, &Roots::default(), 1)?;
    known(&header, &header.base.path, below.is())?;
    let at = base.unwrap_or_else(|| below.lowest.clone());
    let new = Below::open(&at, Direct::Off, &Roots::default(), 1)?;
    let base = Base { path: at.recorded().map_err(|error| error.to_string())?, is: new.is() };
    if header.base == base {
        return Ok(Shifted::Done(0));
    }
    let (layers, torn) = Layers::read(file, header, below, at)?;
    let done = layers.begin(&torn, |_| ()).and_then(|()| shift(&layers, &new, base, goes_on));
    done.map_err(|error| error.to_string())
}

pub(super) fn open_top(path: &Path) -> Result<(Arc<File>, Header), String> {
    let in_use =
        "; a server that serves it, or a top over it, must not meanwhile: remove the export, or stop the server";
    let file = open_alone(path, true, in_use)?;
    let (header, _) = read_header(&*file)?;
    Ok((file, header))
}

/// Opens a file to be written; if somebody has it, the error ends with `in_use`.
pub(super) fn open_alone(path: &Path, is_raw: bool, in_use: &str) -> Result<Arc<File>, String> {
    let access = FileAccess { direct: Direct::Off, is_raw, ..FileAccess::default() };
    let opened = File::open(&RootedPath::anywhere(path), access, false);
    opened.map(Arc::new).map_err(|why| if why.contains("in use") { why + in_use } else { why })
}

/// shift.1
pub(super) fn shift(layers: &Layers, new: &Below, base: Base, goes_on: GoesOn<'_>) -> io::Result<Shifted> {
    let (blocks, old) = (layers.size.div_ceil(BLOCK), &*layers.below);
    let (mut was, mut becomes) = (Pages::new(PIECE as usize), Pages::new(PIECE as usize));
    let (mut copied, mut settled, mut at) = (0, 0, 0);
    while at < blocks {
        if !goes_on(at * BLOCK, layers.size) {
            layers.close(|_| ())?;
            return Ok(Shifted::Stopped);
        }
        let (held, mut end) = layers.own.run(at, blocks.min(at + PAGE_BLOCKS));
        if held == BlockState::Absent {
            let from = place_of(layers, old, at, &mut end);
            let to = place_of(layers, new, at, &mut end);
            if !is_same((old, from), (new, to)) {
                end = end.min(at + PIECE / BLOCK);
                let len = ((end - at) * BLOCK) as usize;
                let (was, becomes) = (&mut was.bytes_mut()[..len], &mut becomes.bytes_mut()[..len]);
                read(old, from, at, was)?;
                read(new, to, at, becomes)?;
                copied += keep(layers, at, was, becomes)?;
            }
        }
        at = end;
        if copied - settled >= SETTLE {
            layers.flush()?;
            settled = copied;
        }
    }
    layers.close(|header| header.base = base)?;
    Ok(Shifted::Done(copied))
}

/// The place of a block that the top does not have, in the layers below; `end` becomes the end of the run there too.
fn place_of(layers: &Layers, below: &Below, at: u64, end: &mut u64) -> Place {
    let places = Where { own: &layers.own, below: &below.maps, base_size: below.base_size };
    let (place, _, len) = places.runs(at * BLOCK, (*end - at) * BLOCK).next().expect("a run of something");
    *end = at + len / BLOCK;
    place
}

/// shift.3
fn is_same((old, from): (&Below, Place), (new, to): (&Below, Place)) -> bool {
    let which = |store: &dyn Layer| store.file()?.metadata().ok().map(|metadata| handed::of(&metadata));
    match (from, to) {
        (Place::Below(from), Place::Below(to)) => {
            let (from, to) = (&old.files[usize::from(from)].file, &new.files[usize::from(to)].file);
            Arc::ptr_eq(from, to) || which(&**from).is_some_and(|one| which(&**to) == Some(one))
        }
        (from, to) => from == to,
    }
}

/// Reads whole blocks that are in one place below.
pub(super) fn read(below: &Below, place: Place, at: u64, into: &mut [u8]) -> io::Result<()> {
    into.fill(0);
    let Place::Below(index) = place else { return Ok(()) };
    let file = &below.files[usize::from(index)];
    // The base may end within a block.
    let there = if index == 0 { below.base_size.saturating_sub(at * BLOCK) } else { u64::MAX };
    let len = there.min(into.len() as u64) as usize;
    file.file.read_at(&mut into[..len], at * BLOCK + file.offset)
}

/// Puts those blocks into the top that would not be as they were; how many bytes.
fn keep(layers: &Layers, first: u64, was: &[u8], becomes: &[u8]) -> io::Result<u64> {
    let held = |(was, becomes): (&[u8], &[u8])| match was {
        _ if was == becomes => BlockState::Absent,
        _ if was.iter().all(|byte| *byte == 0) => BlockState::Zero,
        _ => BlockState::Data,
    };
    let all: Vec<_> = was.chunks(BLOCK as usize).zip(becomes.chunks(BLOCK as usize)).map(held).collect();
    let (mut at, mut copied) = (0, 0);
    for run in all.chunk_by(BlockState::eq) {
        let (start, end) = (at, at + run.len());
        at = end;
        let blocks = first + start as u64..first + end as u64;
        let bytes = start * BLOCK as usize..end * BLOCK as usize;
        if run[0] == BlockState::Data {
            copied += bytes.len() as u64;
            layers.top.write_at(&was[bytes], blocks.start * BLOCK + data_offset(layers.size))?;
        }
        if run[0] != BlockState::Absent {
            layers.own.set(blocks, run[0]);
        }
    }
    Ok(copied)
}
