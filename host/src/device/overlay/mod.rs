//! Overlay: a disk that is another one until it is written.
//!
//! A thousand sandboxes begin with the same image, and each writes a little. A copy for each takes minutes and the disk full. So a disk has
//! two files: the base, which all share and nobody writes, and a top of its own, with the written blocks and a map of their places.
//! Example: `overlay:base=debian.img,top=alice.top`. A read of a block that alice never wrote comes from `debian.img`; the first write of a
//! block goes to `alice.top`, and from then on the block is there.
//!
//! overlay.1  A block is in the top once a write of it has completed; until then all read what is below. A first write of whole blocks is
//!            one write of data. One of a part of a block reads the block from below, once, and writes all of it.
//! overlay.2  A request that changes the place of a block has the block alone ([`claims`]). Other writes go straight to the top, as if it were the disk.
//! overlay.3  A flush makes the data durable, then writes the pages of the map that tell of it, then makes those durable; with no change of
//!            the map it is one flush of the top. So the map on the disk never tells of data that is not there. One flush that writes the
//!            map is under way at a time; those that come meanwhile wait for it ([`claims`]).
//! overlay.4  A block that is discarded, or written with zeroes, is given back to the file system, and reads as zeroes from then on,
//!            whatever is below.
//! overlay.5  A file below is opened read-only, under the lock that readers have, once for all overlays of a process. It is known again by
//!            its size and time of change (a file) or by its name (another top): a base that was changed is refused.
//! overlay.6  A page of the map has room in the file before the data that it maps is written: a full disk fails a write, and no flush.

pub mod format;

mod claims;
mod commit;
mod files;
mod flatten;
pub(crate) mod fork;
mod lane;
mod look;
mod map;
mod over;
mod pause;
mod shift;
pub(super) mod syntax;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fairlift_core::record::Record;
use fairlift_core::{ContextId, Limits, Sector, Tag};

use super::handed::OpenFile;
use super::lane::{Address, Lane, Tell};
use super::roots::Roots;
use super::{Device, Facts, Fault, Layer, Run};
use crate::kernel::buffer::Pages;
use crate::sync::{Mutex, lock};
use claims::Claims;
pub use commit::commit;
use files::Below;
use format::{BLOCK, Header, PageImage, TORN, data_offset, header_offset, page_offset};
use lane::OnOverlay;
pub use look::{Finding, TopInfo, look};
use map::{BlockState, Own, Place, Where};
use pause::Pause;
pub use shift::{Shifted, flatten, rebase};
use syntax::{BaseAt, Layered};

/// A request that waits for blocks or for a flush: its worker, and the step that ends when it may go on.
type BlockWaiter = (ContextId, Tag);

pub(super) struct Overlay {
    layered: Layered,
    /// A fork puts others in their place ([`fork`]).
    layers: Mutex<Arc<Layers>>,
    /// The lowest of the files below: it stays, whatever lies over it.
    base: Arc<dyn Layer>,
    read_only: bool,
    claims: Mutex<Claims<BlockWaiter>>,
    /// Lanes stop for a fork.
    pause: Pause,
    /// As many layers lie over each other as may, and forks are wanted; nobody has begun to flatten them (flatten.4).
    is_deep: AtomicBool,
    /// Somebody has.
    is_flattened: AtomicBool,
    /// One fork, or last flush, at a time.
    alone: Mutex<()>,
}

pub(super) struct Layers {
    top: Arc<dyn Layer>,
    header: Mutex<Header>,
    size: u64,
    /// Where what is below was found.
    base: BaseAt,
    below: Arc<Below>,
    own: Arc<Own>,
}

impl Overlay {
    fn layers(&self) -> Arc<Layers> {
        Arc::clone(&lock(&self.layers))
    }
}

impl Layers {
    fn places(&self) -> Where<'_> {
        Where { own: &self.own, below: &self.below.maps, base_size: self.below.base_size }
    }

    /// Where the data of a place begins in its file, and which of the lanes it is: the top's is the first. `at`: where that is read. The block
    /// in which the base ends may have a rest that is not even a sector of it.
    fn file_of(&self, place: Place, at: u64) -> Option<(usize, u64)> {
        match place {
            Place::Top => Some((0, data_offset(self.size))),
            Place::Below(0) if at >= self.below.base_size => None,
            Place::Below(at) => Some((1 + usize::from(at), self.below.files[usize::from(at)].offset)),
            Place::Nowhere => None,
        }
    }

    /// The top's file, then those below it from the bottom.
    fn files(&self) -> impl Iterator<Item = &Arc<dyn Layer>> {
        [&self.top].into_iter().chain(self.below.files.iter().map(|file| &file.file))
    }

    fn write_header(&self, change: impl FnOnce(&mut Header)) -> io::Result<()> {
        let mut header = lock(&self.header);
        let mut next = Header { sequence: header.sequence + 1, ..header.clone() };
        change(&mut next);
        let bytes = next.encode().map_err(io::Error::other)?;
        let mut memory = Pages::new(BLOCK as usize);
        memory.bytes_mut().copy_from_slice(&bytes);
        self.top.write_at(memory.bytes_mut(), header_offset(next.sequence))?;
        *header = next;
        Ok(())
    }

    /// Before the first write since it was opened, or closed.
    fn is_to_be_written(&self) -> io::Result<()> {
        if lock(&self.header).clean { self.write_header(|header| header.clean = false) } else { Ok(()) }
    }

    /// Before it is written; `change`: what else of the header is so from now on.
    fn begin(&self, torn: &[u64], change: impl FnOnce(&mut Header)) -> io::Result<()> {
        let Header { clean, opened, .. } = *lock(&self.header);
        if !clean {
            self.top.sync()?; // slot.6: of a server that was killed
        }
        self.write_header(|header| {
            header.clean = false;
            change(header);
        })?;
        let mut memory = Pages::new(BLOCK as usize);
        memory.bytes_mut().fill(TORN);
        // slot.5: they are durable with the first sync of the next flush.
        torn.iter().try_for_each(|at| self.top.write_at(memory.bytes_mut(), *at))?;
        // Those above it are to see that it was opened, also if a power cut loses the present writes. Above a new one there is nothing.
        if opened > 0 { self.top.sync() } else { Ok(()) }
    }

    /// Makes durable all that was written: overlay.3, by the thread that calls.
    fn flush(&self) -> io::Result<()> {
        let pages = self.own.take_dirty();
        let flushed = self.flush_pages(&pages);
        self.own.settle(&pages, flushed.is_ok());
        flushed
    }

    fn flush_pages(&self, pages: &[PageImage]) -> io::Result<()> {
        if pages.is_empty() {
            return self.top.sync();
        }
        self.is_to_be_written()?; // the first sync makes that durable
        self.top.sync()?;
        let id = lock(&self.header).id;
        let mut memory = Pages::new(BLOCK as usize);
        for page in pages {
            page.encode(&id, memory.bytes_mut());
            self.top.write_at(memory.bytes_mut(), page_offset(page.index, page.sequence))?;
        }
        self.top.sync()
    }

    /// Makes durable all that was written, and says in the header that no page is being written; `change`: what else of the header is so from
    /// now on.
    fn close(&self, change: impl FnOnce(&mut Header)) -> io::Result<()> {
        self.flush()?;
        self.write_header(|header| {
            header.clean = true;
            change(header);
        })?;
        self.top.sync()
    }
}

impl Device for Overlay {
    fn facts(&self) -> Facts {
        let layers = self.layers();
        let mut facts = layers.top.facts();
        for below in layers.below.files.iter().map(|file| file.file.facts()) {
            facts.limits.block = facts.limits.block.max(below.limits.block);
            facts.needs_helpers |= below.needs_helpers;
        }
        let plain = Facts::plain(layers.size);
        Facts {
            limits: Limits { block: facts.limits.block, ..plain.limits },
            size: plain.size,
            flush: plain.flush,
            volatile_cache: !self.layered.is_ephemeral, // make.5
            fua: false,                                 // the map is to follow
            read_only: self.read_only,
            ..facts
        }
    }

    fn foreign(&self) -> Option<&str> {
        self.base.foreign()
    }

    fn called(&self) -> String {
        self.layers().top.called()
    }

    fn lane(self: Arc<Self>, address: Address) -> Box<dyn Lane> {
        Box::new(OnOverlay::new(self, address))
    }

    fn hand_over(self: Arc<Self>) -> Result<Vec<OpenFile>, String> {
        over::files(&self.layers())
    }

    fn hand_on(&self, says: &mut Record) -> Result<Vec<u8>, String> {
        over::tell(self, says)
    }

    fn take_on(&self, says: &mut Record, bytes: &[u8]) -> Result<(), String> {
        over::take_on(self, says, bytes)
    }

    fn has_gone_over(&self) -> bool {
        self.layers().files().all(|file| file.has_gone_over())
    }

    fn run(&self, at: u64, len: u64) -> io::Result<Run> {
        let layers = self.layers();
        let (place, _, len) = layers.places().runs(at, len).next().expect("a run of something");
        let within = layers.below.base_size.next_multiple_of(Sector::SIZE).saturating_sub(at);
        match place {
            Place::Below(0) if within > 0 => self.base.run(at, len.min(within)),
            // Of the base: the rest of a block that it ends in.
            Place::Below(0) | Place::Nowhere => Ok(Run { len, hole: true }),
            Place::Below(1..) | Place::Top => Ok(Run { len, hole: false }),
        }
    }

    /// The content of the top.
    fn changes(&self) -> Option<&'static str> {
        Some("top")
    }

    fn changed(&self, at: u64, len: u64) -> (u64, bool) {
        let (held, end) = self.layers().own.run(at / BLOCK, (at + len).div_ceil(BLOCK));
        ((end * BLOCK - at).min(len), held != BlockState::Absent)
    }

    fn flush_now(&self) -> io::Result<()> {
        if self.read_only || self.layered.is_ephemeral {
            return Ok(());
        }
        let _alone = lock(&self.alone);
        self.layers().close(|_| ())
    }

    fn freeze(&self, tell: Tell<'_>, roots: &Roots, _own: &Path) -> Result<super::backing::NowBase, String> {
        fork::freeze(self, tell, roots)
    }

    fn is_to_be_flattened(&self) -> bool {
        let is_asked = self.is_deep.load(Ordering::Relaxed) && self.is_deep.swap(false, Ordering::AcqRel);
        if is_asked {
            self.is_flattened.store(true, Ordering::Release);
        }
        is_asked
    }

    fn next_to_copy_up(&self, from: u64) -> Option<(u64, u64)> {
        flatten::next(&self.layers(), from)
    }

    fn flatten(&self, tell: Tell<'_>) -> Result<bool, String> {
        flatten::rest_on_base(self, tell, || std::thread::sleep(fork::LOOK))
    }

    fn take_faults(&self) -> VecDeque<Fault> {
        self.layers().files().flat_map(|file| file.take_faults()).collect()
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.layers().top.descriptor()
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.layered.top)
    }

    fn is_direct(&self) -> bool {
        self.layers().files().any(|file| file.is_direct())
    }
}
