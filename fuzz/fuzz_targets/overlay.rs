//! A file of anybody's against the reading of tops: headers and pages of the map.
//!
//! Input: the first 8 KiB of a file (two slots of its header), then two slots of a page. What is short is filled up with zeroes. With an
//! even first byte of the rest (behind 16 KiB) the page's checksum is made right, so that what lies behind it is read too.

#![no_main]

use fairlift::overlay::format::{self, BLOCK, Header, PageImage};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (slot, four) = (BLOCK as usize, 4 * BLOCK as usize);
    let mut bytes = input[..input.len().min(four)].to_vec();
    bytes.resize(four, 0);
    let sealed = input.get(four).is_some_and(|byte| byte % 2 == 0);
    if let Ok(slots) = format::headers(&bytes) {
        if let Some(header) = slots.counts {
            let again = header.encode().expect("its path had room");
            assert_eq!(Header::decode(&again), Ok(Some(header.clone())), "what was read is written as it was");
            read_page(&bytes[2 * slot..], &header.id, header.size.div_ceil(BLOCK));
        }
    }
    if sealed {
        // A page that is whole, whatever it says.
        let words = bytes[2 * slot + 64..3 * slot].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let words = words.collect::<Vec<_>>().try_into().expect("as many as a page has");
        let page = PageImage { index: u64::from(bytes[0] % 4), sequence: u64::from(bytes[1] % 4), words };
        page.encode(&[0; 16], &mut bytes[2 * slot..]);
    }
    read_page(&bytes[2 * slot..], &[0; 16], u64::from(bytes[2]) * 200);
});

fn read_page(bytes: &[u8], id: &format::Id, blocks: u64) {
    for index in 0..3 {
        if let Ok(slots) = format::page(bytes, id, index, blocks) {
            slots.counts.iter().for_each(|page| assert_eq!(page.index, index));
        }
    }
}
