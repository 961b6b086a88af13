//! NBD: the network block device protocol, fixed newstyle.
//!
//! [`proto`] and [`handshake`] are pure: bytes in, events out. `serve` is a connection: it joins them to a socket and a disk.
//! `front` has all connections of a worker, and gives them to its loop.

mod check;
pub(crate) mod front;
pub mod handshake;
mod serve;
mod service;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use fairlift_core::Op;

use crate::access::{Entry, Peer, Right, Rights};
use crate::device::Facts;
use crate::export::Export;
use crate::export::allowed::Allowed;
use crate::export::service::Exports;
pub use crate::wire::nbd as proto;
use handshake::{Catalogue, ExportInfo};

/// The exports as a client sees them.
struct Seen<'a> {
    exports: &'a Exports,
    request_max: u32,
    rights: Rights<'a>,
    /// The exports that it may open (access.4), each with its rights.
    allowed: Arc<Allowed>,
    /// The names that it asked for in one packet and that are none of an export which it may open.
    missed: RefCell<Vec<String>>,
    /// By what it was let in to the export that it chose.
    entry: Cell<Option<Entry>>,
}

impl<'a> Seen<'a> {
    fn new(exports: &'a Exports, peer: &Peer, request_max: u32) -> Self {
        let rights = exports.access.of(peer);
        let allowed = exports.lists.of(&exports.list, &rights);
        Self { exports, request_max, rights, allowed, missed: RefCell::default(), entry: Cell::default() }
    }

    fn info(&self, (index, right): (usize, Right)) -> ExportInfo<'a> {
        let export = &self.exports.list[index];
        let block = export.facts.block();
        // A client that is told of blocks keeps to them, and would not reach a last one that is not whole.
        let whole = export.size.is_multiple_of(block.into());
        ExportInfo {
            index,
            name: &export.name,
            description: &export.description,
            size: export.size,
            transmission_flags: transmission_flags(export, right),
            block_min: if whole { block } else { 1 },
            block_preferred: block.max(4096),
            block_max: self.request_max,
            changes: export.device.changes(),
        }
    }
}

impl Catalogue for Seen<'_> {
    fn find(&self, name: &str) -> Option<ExportInfo<'_>> {
        // A single export also answers to the empty name.
        let alone = || self.allowed.all.first().copied().filter(|_| name.is_empty() && self.allowed.all.len() == 1);
        let found = self.allowed.find(&self.exports.list, name).or_else(alone);
        if found.is_none() {
            self.missed.borrow_mut().push(name.to_owned());
        }
        Some(self.info(found?))
    }

    fn for_each(&self, visit: &mut dyn FnMut(&ExportInfo<'_>)) {
        self.allowed.all.iter().for_each(|one| visit(&self.info(*one)));
    }

    fn count(&self) -> usize {
        self.allowed.all.len()
    }

    fn enter<'a>(&'a self, info: ExportInfo<'a>) -> Option<ExportInfo<'a>> {
        let export = &self.exports.list[info.index];
        let entry = self.rights.enter(&export.name, &export.path)?;
        let info = self.info((info.index, entry.right));
        self.entry.set(Some(entry));
        Some(info)
    }
}

/// The rights of clients to an export: operations that its file system was found unable to do are not offered to later clients.
///
/// `CAN_MULTI_CONN` is true because a flush is of the device, whatever connection it comes by: it covers every write
/// that was answered before.
fn transmission_flags(export: &Export, right: Right) -> u16 {
    use proto::*;
    let Facts { limits, flush, rotational, .. } = &export.facts;
    let writable = !export.read_only && right == Right::Write;
    let offered = [
        (true, FLAG_HAS_FLAGS | FLAG_SEND_DF | FLAG_CAN_MULTI_CONN | FLAG_SEND_CACHE),
        (*flush, FLAG_SEND_FLUSH | FLAG_SEND_FUA),
        (*rotational, FLAG_ROTATIONAL),
        (!writable, FLAG_READ_ONLY),
        (writable && limits.max(Op::Discard) > 0 && export.device.can_discard(), FLAG_SEND_TRIM),
        (writable && limits.max(Op::WriteZeroes) > 0, FLAG_SEND_WRITE_ZEROES),
        (writable && limits.max(Op::WriteZeroes) > 0 && export.device.can_zero_fast(), FLAG_SEND_FAST_ZERO),
    ];
    offered.iter().filter(|(is, _)| *is).fold(0, |all, (_, flags)| all | flags)
}
