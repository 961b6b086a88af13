//! NBD: the network block device protocol, fixed newstyle.
//!
//! [`proto`] and [`handshake`] are pure: bytes in, events out. `serve` is a connection: it joins them to a socket and a disk.
//! `front` has all connections of a worker, and gives them to its loop.

mod check;
mod front;
pub mod handshake;
mod serve;
pub(crate) mod service;

use fairlift_core::Op;

use crate::config::Tls;
use crate::device::Facts;
use crate::export::Export;
use crate::export::service::Exports;
pub use crate::wire::nbd as proto;
use handshake::{Catalogue, ExportInfo, TlsPolicy};

impl Exports {
    fn info(&self, index: usize) -> ExportInfo<'_> {
        let export = &*self.list[index];
        let block = export.facts.block();
        // A client that is told of blocks keeps to them, and would not reach a last one that is not whole.
        let whole = export.size.is_multiple_of(block.into());
        ExportInfo {
            index,
            name: &export.name,
            description: &export.description,
            size: export.size,
            transmission_flags: transmission_flags(export),
            block_min: if whole { block } else { 1 },
            block_preferred: block.max(4096),
            block_max: self.request_max,
        }
    }
}

impl Catalogue for Exports {
    fn find(&self, name: &str) -> Option<ExportInfo<'_>> {
        // A single export also answers to the empty name.
        let alone = |_: &usize| name.is_empty() && self.list.len() == 1;
        let index = self.list.iter().position(|export| export.name == name).or_else(|| Some(0).filter(alone))?;
        Some(self.info(index))
    }

    fn for_each(&self, visit: &mut dyn FnMut(&ExportInfo<'_>)) {
        (0..self.list.len()).for_each(|index| visit(&self.info(index)));
    }
}

/// What clients may do with an export: what its file system was found unable to do is not offered to clients that come later.
///
/// `CAN_MULTI_CONN` is true because a flush is of the device, whatever connection it comes by: it covers every write
/// that was answered before.
fn transmission_flags(export: &Export) -> u16 {
    use proto::*;
    let Facts { limits, flush, rotational, .. } = &export.facts;
    let writable = !export.read_only;
    let offered = [
        (true, FLAG_HAS_FLAGS | FLAG_SEND_DF | FLAG_CAN_MULTI_CONN | FLAG_SEND_CACHE),
        (*flush, FLAG_SEND_FLUSH | FLAG_SEND_FUA),
        (*rotational, FLAG_ROTATIONAL),
        (export.read_only, FLAG_READ_ONLY),
        (writable && limits.max(Op::Discard) > 0 && export.device.can_discard(), FLAG_SEND_TRIM),
        (writable && limits.max(Op::WriteZeroes) > 0, FLAG_SEND_WRITE_ZEROES),
        (writable && limits.max(Op::WriteZeroes) > 0 && export.device.can_zero_fast(), FLAG_SEND_FAST_ZERO),
    ];
    offered.iter().filter(|(is, _)| *is).fold(0, |all, (_, flags)| all | flags)
}

impl From<Tls> for TlsPolicy {
    fn from(tls: Tls) -> Self {
        match tls {
            Tls::Off => Self::Off,
            Tls::Optional => Self::Optional,
            Tls::Required => Self::Required,
        }
    }
}
