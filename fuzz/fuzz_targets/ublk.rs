//! A kernel that says anything at all against the reading of descriptors.
//!
//! Input: one byte of setting (bit 0 read-only, bit 1 no discards, bit 2 no zeroes, bits 4 to 7 how many times 512 bytes are a block, as a
//! power of two), then descriptors of 24 bytes each.

#![no_main]

use fairlift::export::offer::{BlockRequest, Offer};
use fairlift::export::ublk::proto::{DESCRIPTOR, request};
use fairlift_core::Op;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [setting, descriptors @ ..] = input else { return };
    let offer = Offer {
        size: 1 << 30,
        block: 512 << (setting >> 4).min(3),
        request_max: 1 << 20,
        read_only: setting & 1 != 0,
        discard: setting & 2 == 0,
        write_zeroes: setting & 4 == 0,
    };
    for descriptor in descriptors.chunks_exact(DESCRIPTOR) {
        let within = |at: u64, len: u64| {
            assert!(len > 0 && at + len <= offer.size && (at | len).is_multiple_of(offer.block));
        };
        match request(descriptor.try_into().unwrap(), &offer) {
            Ok(BlockRequest { op: Op::Flush, .. }) => {}
            Ok(BlockRequest { op, at, len, .. }) => {
                within(at, len);
                assert!(op == Op::Read || !offer.read_only);
                assert!(!op.has_payload() || len <= offer.request_max);
                assert!(op != Op::Discard || offer.discard);
                assert!(op != Op::WriteZeroes || offer.write_zeroes);
            }
            Err(why) => assert!([5, 22, 95].contains(&why.errno().0)),
        }
    }
});
