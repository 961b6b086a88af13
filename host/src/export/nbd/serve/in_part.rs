//! Requests that are not whole blocks: where they lie in the blocks that the device takes.

use fairlift_core::{Bio, Op};

use super::super::proto::RequestHeader;
use super::super::service::Command;
use crate::disk::engine::Engine;
use crate::export::Export;

/// Where in its first block a request begins, and how many bytes of payload its blocks have.
#[cold]
pub(super) fn in_blocks(header: &RequestHeader, block: u64, payload: u64) -> (usize, u64) {
    let (skip, end) = (header.offset % block, (header.offset + header.length).next_multiple_of(block));
    (skip as usize, if payload > 0 { end - header.offset + skip } else { 0 })
}

/// The whole blocks of a range: where they begin, and how many bytes they are.
pub(super) fn inner(offset: u64, len: u64, block: u64) -> Option<(u64, u64)> {
    let (start, end) = (offset.next_multiple_of(block), (offset + len) / block * block);
    (start < end).then(|| (start, end - start))
}

/// Submits a request that is not whole blocks: `bio` has its operation and flags.
#[cold]
pub(super) fn submit_in_part(engine: &mut Engine, export: &Export, command: &Command, mut bio: Bio) {
    let block = u64::from(export.facts.block());
    let Command { header: RequestHeader { offset, length: len, .. }, op, waited, .. } = *command;
    let skip = offset % block;
    let first = offset - skip;
    bio.extent = export.extent(op, first, (offset + len).next_multiple_of(block) - first);
    match op {
        Op::Write | Op::WriteZeroes => return engine.submit_part(export.disk, bio, waited, (block, skip, len)),
        Op::Discard => {
            let (from, bytes) = inner(offset, len, block).expect("a discard of nothing was answered");
            bio.extent = export.extent(op, from, bytes);
        }
        Op::Read | Op::Flush => {}
    }
    engine.submit_late(export.disk, bio, waited.0, waited.1);
}
