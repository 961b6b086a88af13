//! Flatten: a top that is written comes to lie over its base alone, while it is.
//!
//! A disk was forked seven times since it was made, and was written before each fork: eight tops lie over each other, and the next fork is
//! refused. So what lies between its top and its base is copied into the top, and then the top lies over the base: the next seven forks are
//! free. Example: `alice.top` lies over `alice.top.7` … `alice.top.1` over `debian.img`; these have 50 MiB, and so has `alice.top` afterwards.
//!
//! flatten.1  A copy is a write of its blocks that has no data ([`Flags::COPY_UP`](fairlift_core::Flags::COPY_UP)): it goes through the queue of the
//!            disk like any other, and has its blocks alone as a first write has (overlay.2). A block written before is not copied over; a write that
//!            comes meanwhile waits, and goes to the top.
//! flatten.2  Copied blocks are in the map, as if they had been written: a server that ends on the way goes on from there.
//! flatten.3  When nothing is left, lanes stop as for a fork; copies are made durable, then one write of the header names the base. So a cut of
//!            the power leaves the top over the one or the other, and it reads the same.
//! flatten.4  It begins when a fork has made a chain as long as it may be, or was refused for that. Forks of that disk lie over as many, and most are
//!            never forked: nothing is copied for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::files::{Below, LayerFile};
use super::format::{BLOCK, Base};
use super::{Layers, Overlay};
use crate::device::lane::Tell;
use crate::sync::lock;

/// How much is copied by one request. Chosen: one of a client is not held up by more than that, and disks are nearly as fast as they can be.
const PIECE: u64 = 64 << 10;

/// The next bytes to be copied: they begin in a block that is to be.
pub(super) fn next(layers: &Layers, from: u64) -> Option<(u64, u64)> {
    let (blocks, _) = layers.places().between(from / BLOCK, layers.size.div_ceil(BLOCK))?;
    let at = blocks.start * BLOCK;
    Some((at, PIECE.min(layers.size - at)))
}

/// flatten.3: whether nothing was left to be copied.
pub(super) fn rest_on_base(overlay: &Overlay, tell: Tell<'_>, wait: impl Fn()) -> Result<bool, String> {
    let _alone = lock(&overlay.alone);
    let layers = overlay.layers();
    if layers.below.files.len() == 1 {
        overlay.is_flattened.store(false, Ordering::Release);
        return Ok(true);
    }
    if next(&layers, 0).is_some() {
        return Ok(false); // it was forked meanwhile
    }
    let at = layers.below.lowest.clone();
    let path = at.recorded().map_err(|error| error.to_string())?;
    overlay.paused(tell, wait, || {
        let below = Arc::new(layers.below.lowest());
        let base = Base { path, is: below.is() };
        let written = layers.flush().and_then(|()| layers.write_header(|header| header.base = base));
        written.and_then(|()| layers.top.sync()).map_err(|error| error.to_string())?;
        let (top, own, header) = (Arc::clone(&layers.top), Arc::clone(&layers.own), lock(&layers.header).clone());
        *lock(&overlay.layers) = Arc::new(Layers::new(top, header, below, at, own));
        overlay.is_flattened.store(false, Ordering::Release);
        Ok(true)
    })
}

impl Below {
    pub(super) fn lowest(&self) -> Self {
        let LayerFile { file, is, .. } = self.files[0].clone();
        Self::base(file, is, self.base_size, self.lowest.clone())
    }
}
