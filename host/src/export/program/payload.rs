//! The payload of programs' writes: bytes that no drive can compress or deduplicate away within a megabyte.

use std::sync::OnceLock;

/// The length of the pattern. Chosen: no request of the usual sizes has a part of it twice.
const LEN: usize = 1 << 20;

/// Fills a buffer with the pattern, which is the same in every run.
pub(crate) fn fill(buffer: &mut [u8]) {
    static PATTERN: OnceLock<Box<[u8]>> = OnceLock::new();
    let pattern = PATTERN.get_or_init(|| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            // SplitMix64 (Steele, Lea, Flood 2014).
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)).to_ne_bytes()
        };
        (0..LEN / 8).flat_map(|_| next()).collect()
    });
    for part in buffer.chunks_mut(LEN) {
        part.copy_from_slice(&pattern[..part.len()]);
    }
}
