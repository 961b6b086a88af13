//! Overlays on disks that are slow, fail, and lose what was not flushed; and on real files.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use fairlift_core::{ContextId, Errno, Extent, Flags, Instant, Op, Outcome, Sector, Tag, sched};
use fairlift_lab::Random;

use super::files::{Below, known, read_header};
use super::format::{
    self, BLOCK, Base, Fingerprint, Header, PAGE_BLOCKS, data_offset, file_len, header_offset, page_offset,
};
use super::map::BlockState;
use super::*;
use crate::device::Store;
use crate::device::file::syntax::Direct;
use crate::device::volatile::{SECTOR, Volatile};
use crate::disk::engine::News;
use crate::disk::engine::bench::{Workers, assert_at_rest, helpers, submit, turned, workers};

mod calm;
mod commit;
mod cuts;
pub(super) mod files;
mod known;
mod shift;
mod trial;

const SIZE: u64 = (PAGE_BLOCKS + 16) * BLOCK;

impl Store for Volatile {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.get(at, into);
        Ok(())
    }

    fn write_at(&self, from: &[u8], at: u64) -> io::Result<()> {
        self.call()?;
        self.put(at, from);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.call()?;
        self.settle();
        Ok(())
    }

    fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        self.call()?;
        self.erase(at, len);
        Ok(())
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        Store::zero(self, at, len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn next_data(&self, at: u64) -> Option<u64> {
        self.data_after(at)
    }
}

/// A file that has just been made for a top, with a disk of [`SIZE`] and these used sectors. It lies over bare bytes.
fn made(windows: &[Range<u64>], seed: u64, faults: (u64, u64)) -> Arc<Volatile> {
    made_over(Fingerprint::Raw { size: 0, changed: (0, 0) }, windows, seed, faults).1
}

fn made_over(is: Fingerprint, windows: &[Range<u64>], seed: u64, faults: (u64, u64)) -> (Header, Arc<Volatile>) {
    let base = Base { path: "base".into(), is };
    let header = Header::drawn(SIZE, base, 0).unwrap();
    let top = top_of(&header, windows, seed, faults);
    (header, top)
}

/// A file for a top with a header.
fn top_of(header: &Header, windows: &[Range<u64>], seed: u64, faults: (u64, u64)) -> Arc<Volatile> {
    let map = 0..page_offset(format::pages(SIZE), 1) / SECTOR;
    let data = windows.iter().map(|one| one.start + data_offset(SIZE) / SECTOR..one.end + data_offset(SIZE) / SECTOR);
    let used: Vec<_> = std::iter::once(map).chain(data).collect();
    let top = Volatile::new(file_len(SIZE), &used, seed, faults);
    top.put(header_offset(1), &header.encode().unwrap());
    top.settle();
    top
}

/// Opens what others lie over: bare bytes, and tops over those.
fn below(files: &[Arc<Volatile>]) -> Result<Arc<Below>, String> {
    below_as(Fingerprint::Raw { size: 0, changed: (0, 0) }, files)
}

fn below_as(is: Fingerprint, files: &[Arc<Volatile>]) -> Result<Arc<Below>, String> {
    let (base, tops) = files.split_first().expect("there is a base");
    let mut below = Arc::new(Below::base(Arc::clone(base) as _, is, base.size, PathBuf::from("base").into()));
    for top in tops {
        let header = read_header(&**top)?.0;
        below = Arc::new(Below::on(Arc::clone(top) as _, &header, &below)?);
    }
    Ok(below)
}

/// Opens a top, the last of these files, as a server would.
fn opened(files: &[Arc<Volatile>]) -> Result<Arc<Overlay>, String> {
    let (top, files) = files.split_last().expect("there is a top");
    let below = below(files)?;
    let header = read_header(&**top)?.0;
    known(&header, &header.base.path, below.is())?;
    let layers = begun(Arc::clone(top) as _, header, below)?;
    Ok(Arc::new(Overlay::of(layered(), layers, false)))
}

/// A top without options.
fn layered() -> Layered {
    let (base, size, direct) = (None, None, Direct::Auto);
    Layered { base, top: "top".into(), is_ephemeral: false, size, direct, base_direct: direct }
}

/// The layers of an open top that is written from now on.
fn begun(top: Arc<dyn Layer>, header: Header, below: Arc<Below>) -> Result<Layers, String> {
    let (layers, torn) = Layers::read(top, header, below, BaseAt::File("base".into()))?;
    layers.begin(&torn, |header| header.opened += 1).map_err(|error| error.to_string())?;
    Ok(layers)
}
