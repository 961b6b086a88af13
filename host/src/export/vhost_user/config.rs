//! A guest's view of its device: features, and the configuration that it reads.

use vhost::vhost_user::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use virtio_bindings::bindings::virtio_blk as blk;
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use fairlift_core::{Errno, Sector};

use super::chain::{ID_LEN, SEGMENTS_MAX};
use crate::export::Export;
use crate::export::offer::Offer;

/// The most rings of a device: more than virtual CPUs that most guests have.
pub(super) const RINGS_MAX: usize = 64;
pub(super) const RING_SIZE_MAX: u16 = 1024;
/// Sectors that guests may discard, or make zeroes, with one request.
const RANGE_MAX: u32 = 1 << 22;
/// Where in the configuration the guest says whether writes may stay in a cache.
pub(super) const WRITE_BACK: usize = 32;
const SPACE: usize = 60;

/// Whether tables of requests in flight are kept for this number of rings of that size.
pub(super) fn check_tables(queues: u16, size: u16) -> Result<(), String> {
    let (queues_max, size_max) = (RINGS_MAX, RING_SIZE_MAX);
    if usize::from(queues) > queues_max || size > size_max {
        return Err(format!("tables for {queues} rings of {size}: at most {queues_max} of {size_max} are kept"));
    }
    Ok(())
}

/// The offer to front-ends.
pub(super) fn protocol_features() -> u64 {
    let features = VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::BACKEND_REQ
        | VhostUserProtocolFeatures::INFLIGHT_SHMFD;
    features.bits()
}

/// Whether front-end and server speak of protocol features.
pub(super) const fn speaks_of_features(features: u64) -> bool {
    features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0
}

/// The offer to guests.
pub(super) fn features(export: &Export) -> u64 {
    let offer = Offer::of(export, u64::MAX);
    let bits = [
        (true, VIRTIO_F_VERSION_1),
        (true, VIRTIO_RING_F_INDIRECT_DESC),
        (true, VIRTIO_RING_F_EVENT_IDX),
        (true, blk::VIRTIO_BLK_F_SIZE_MAX),
        (true, blk::VIRTIO_BLK_F_SEG_MAX),
        (true, blk::VIRTIO_BLK_F_BLK_SIZE),
        (true, blk::VIRTIO_BLK_F_TOPOLOGY),
        (true, blk::VIRTIO_BLK_F_MQ),
        (export.facts.flush, blk::VIRTIO_BLK_F_FLUSH),
        (export.facts.flush, blk::VIRTIO_BLK_F_CONFIG_WCE),
        (export.read_only, blk::VIRTIO_BLK_F_RO),
        (offer.discard, blk::VIRTIO_BLK_F_DISCARD),
        (offer.write_zeroes, blk::VIRTIO_BLK_F_WRITE_ZEROES),
    ];
    let offered = bits.iter().filter(|(is, _)| *is).fold(0, |all, (_, bit)| all | 1 << bit);
    offered | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
}

/// The features that guests may have chosen: also those that another right of their front-end, or another export, had offered before.
pub(super) fn accepted(export: &Export) -> u64 {
    let rights = [blk::VIRTIO_BLK_F_RO, blk::VIRTIO_BLK_F_DISCARD, blk::VIRTIO_BLK_F_WRITE_ZEROES];
    rights.iter().fold(features(export), |all, bit| all | 1 << bit)
}

pub(super) const fn has_event_index(features: u64) -> bool {
    features & 1 << VIRTIO_RING_F_EVENT_IDX != 0
}

/// Whether each write must be durable when it ends: the guest has no flush, or has said that it will not use it.
pub(super) const fn writes_through(features: u64, write_back: bool) -> bool {
    let flushes = features & 1 << blk::VIRTIO_BLK_F_FLUSH != 0;
    let chooses = features & 1 << blk::VIRTIO_BLK_F_CONFIG_WCE != 0;
    !flushes || chooses && !write_back
}

/// The status that a guest gets for a request which has failed.
pub(super) fn status(errno: Errno) -> u8 {
    if errno == Errno::ENOTSUP { blk::VIRTIO_BLK_S_UNSUPP as u8 } else { blk::VIRTIO_BLK_S_IOERR as u8 }
}

/// The most pieces of a request, and the longest one: together no more than the longest request that is served.
fn pieces(request_max: u64) -> (u32, u32) {
    const PAGE: u64 = 4096;
    let pieces = (request_max / PAGE).clamp(1, SEGMENTS_MAX.into());
    (pieces as u32, (request_max / pieces / PAGE * PAGE) as u32)
}

/// The configuration that a guest reads.
pub(super) fn space(export: &Export, request_max: u64, write_back: bool) -> [u8; SPACE] {
    let block = export.facts.block();
    let align = block.max(4096);
    let mut space = [0; SPACE];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(export.size / Sector::SIZE).to_le_bytes());
    let (pieces, longest) = pieces(request_max);
    put(8, &longest.to_le_bytes());
    put(12, &pieces.to_le_bytes());
    put(20, &block.to_le_bytes());
    put(24, &[(align / block).ilog2() as u8, 0]);
    put(26, &((align / block) as u16).to_le_bytes());
    put(WRITE_BACK, &[u8::from(write_back)]);
    put(34, &(RINGS_MAX as u16).to_le_bytes());
    let per_block = block / Sector::SIZE as u32;
    for (at, value) in [(36, RANGE_MAX), (40, 1), (44, per_block), (48, RANGE_MAX), (52, 1)] {
        put(at, &value.to_le_bytes());
    }
    put(56, &[u8::from(export.device.can_discard())]);
    space
}

/// The name of the device: the export's name, as far as there is room for it.
pub(super) fn id(export: &Export) -> [u8; ID_LEN] {
    let mut id = [0; ID_LEN];
    id.iter_mut().zip(export.name.bytes()).for_each(|(to, from)| *to = from);
    id
}
