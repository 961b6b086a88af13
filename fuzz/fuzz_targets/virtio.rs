//! A guest of any kind against the reading of chains, and a front-end against the reading of messages.
//!
//! Input: one byte of setting (bit 0 read-only, bit 1 a block of 4096), a message's code, flags and descriptors (3 bytes), the head
//! and the size of the table (2 bytes), then the first of 64 KiB of a guest's memory, where its table starts at 0. A message
//! has the same bytes as its payload.

#![no_main]

use fairlift::export::offer::{BlockRequest, Offer};
use fairlift::export::vhost_user::chain::{ChainRequest, DESCRIPTORS_MAX, Reader};
use fairlift::export::vhost_user::proto::{HEADER, Header, PAYLOAD_MAX, Request};
use fairlift_core::Op;
use libfuzzer_sys::fuzz_target;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

const MEMORY: usize = 64 << 10;

thread_local! {
    /// Two regions: a range may cross from one to the other.
    static GUEST: GuestMemoryMmap = GuestMemoryMmap::from_ranges(&[
        (GuestAddress(0), MEMORY / 2),
        (GuestAddress(MEMORY as u64 / 2), MEMORY / 2),
    ])
    .unwrap();
}

fuzz_target!(|input: &[u8]| {
    let [setting, code, flags, descriptors, head, size, memory @ ..] = input else { return };
    let memory = &memory[..memory.len().min(MEMORY)];
    message(*code, *flags, usize::from(*descriptors % 4), memory);
    let offer = Offer {
        size: 1 << 30,
        block: if setting & 2 == 0 { 512 } else { 4096 },
        request_max: 1 << 20,
        read_only: setting & 1 != 0,
        discard: true,
        write_zeroes: true,
    };
    GUEST.with(|guest| {
        guest.write_slice(memory, GuestAddress(0)).unwrap();
        chain(&offer, guest, (*head).into(), 1 << (size % 11));
        guest.write_slice(&vec![0; memory.len()], GuestAddress(0)).unwrap();
    });
});

fn chain(offer: &Offer, guest: &GuestMemoryMmap, head: u16, size: u16) {
    let mut reader = Reader::default();
    let Ok(request) = reader.read(offer, guest, GuestAddress(0), size, head) else { return };
    let bytes = |ranges: &[(GuestAddress, u32)]| ranges.iter().map(|(_, len)| u64::from(*len)).sum::<u64>();
    assert!(reader.readable().len() + reader.writable().len() <= DESCRIPTORS_MAX + 1);
    let within = |at: u64, len: u64| {
        assert!(len > 0 && at + len <= offer.size && (at | len).is_multiple_of(offer.block));
    };
    match request.what {
        ChainRequest::Disk(BlockRequest { op: Op::Flush, .. }) | ChainRequest::Id(_) => {}
        ChainRequest::Disk(BlockRequest { op, at, len, .. }) => {
            within(at, len);
            assert!(op == Op::Read || !offer.read_only);
            match op {
                Op::Read => assert!(len == bytes(reader.writable()) && len <= offer.request_max),
                Op::Write => assert!(len == bytes(reader.readable()) && len <= offer.request_max),
                _ => {}
            }
        }
        ChainRequest::Refused(why) => assert!([5, 22, 95].contains(&why.errno().0)),
    }
    // What is there is had, and what is not is refused, without a panic.
    for (at, len) in reader.readable().iter().chain(reader.writable()) {
        let _ = guest.get_slices(*at, *len as usize).all(|slice| slice.is_ok());
    }
}

fn message(code: u8, flags: u8, descriptors: usize, payload: &[u8]) {
    let payload = &payload[..payload.len().min(PAYLOAD_MAX)];
    let words = [u32::from(code), u32::from(flags), payload.len() as u32];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let header: [u8; HEADER] = bytes.try_into().unwrap();
    let Ok(header) = Header::read(&header) else { return };
    match Request::read(&header, payload, descriptors) {
        Ok(Request::SetMemTable(regions)) => assert!(regions.len() == descriptors && !regions.is_empty()),
        Ok(Request::SetInflight { .. } | Request::SetBackendRequests) => assert_eq!(descriptors, 1),
        Ok(_) => {}
        Err(wrong) => assert!(!wrong.is_empty()),
    }
}
