//! Chains: what a guest asks by a chain of descriptors. Pure: reads a guest's memory, and says what is asked.
//!
//! A chain is a header that the device reads (16 bytes: type, sector), data that it reads or writes, and one byte that it
//! writes: the status. How these are cut into descriptors is the guest's business, and so is a table of descriptors
//! elsewhere (an indirect one).
//!
//! Example: a read of 4 KiB is `[16 bytes, to read] [4096 bytes, to write] [1 byte, to write]`.
//!
//! chain.1  A chain that is none (it goes in circles, leaves its table, names memory that is not there, has no room for a status)
//!          is an error: the guest's driver is out of step, and its device ends.
//! chain.2  A chain that asks what cannot be (beyond the end, half a sector, a write where only reading is allowed) is answered
//!          by its status, and the device goes on.
//! chain.3  A chain has at most [`DESCRIPTORS_MAX`] descriptors, so that no guest makes the server keep long lists.

use fairlift_core::{Flags, Op, Sector};
use virtio_bindings::bindings::virtio_blk as blk;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address as _, Bytes as _, GuestAddress, GuestMemoryMmap};

use crate::export::offer::{BlockRequest, Offer, Refusal};

/// Pieces of data that guests may have in one request: they are told (`seg_max`).
pub const SEGMENTS_MAX: u32 = 254;
/// The longest chain: data, header and status.
pub const DESCRIPTORS_MAX: usize = SEGMENTS_MAX as usize + 2;
/// The length of a device's name for itself.
pub const ID_LEN: usize = 20;

/// The request of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainRequest {
    /// For the disk.
    Disk(BlockRequest),
    /// Tell the device's name, up to this many bytes.
    Id(u64),
    /// Answered by its status alone (chain.2).
    Refused(Refusal),
}

/// A request, as its chain says it; the data is with the [`Reader`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlkRequest {
    /// The request.
    pub what: ChainRequest,
    /// Where its status goes.
    pub status: GuestAddress,
}

type Ranges = Vec<(GuestAddress, u32)>;

/// Reads chains, one after the other.
#[derive(Default, Debug)]
pub struct Reader {
    /// Of the last chain, what the device may read and write. Of what was read, the data alone stays.
    readable: Ranges,
    writable: Ranges,
}

impl Reader {
    /// Reads the chain that starts at descriptor `head` of a table of `size`.
    ///
    /// # Errors
    /// It is none (chain.1).
    pub fn read(
        &mut self,
        offer: &Offer,
        memory: &GuestMemoryMmap,
        table: GuestAddress,
        size: u16,
        head: u16,
    ) -> Result<BlkRequest, String> {
        self.walk(memory, table, size, head)?;
        let status = last_byte(&mut self.writable).ok_or("it has no room for a status")?;
        let header = take(memory, &mut self.readable)?.ok_or("it has no whole header")?;
        let (kind, sector) = (header as u32, (header >> 64) as u64);
        let what = match kind {
            blk::VIRTIO_BLK_T_IN => offer.request(Op::Read, kind, sector, bytes(&self.writable)),
            blk::VIRTIO_BLK_T_OUT => offer.request(Op::Write, kind, sector, bytes(&self.readable)),
            blk::VIRTIO_BLK_T_FLUSH => offer.request(Op::Flush, kind, 0, 0),
            blk::VIRTIO_BLK_T_GET_ID => {
                return Ok(BlkRequest { what: ChainRequest::Id(bytes(&self.writable)), status });
            }
            blk::VIRTIO_BLK_T_DISCARD | blk::VIRTIO_BLK_T_WRITE_ZEROES => self.range(offer, memory, kind)?,
            _ => Err(Refusal::Kind(kind)),
        };
        Ok(BlkRequest { what: what.map_or_else(ChainRequest::Refused, ChainRequest::Disk), status })
    }

    /// Of the last chain, where the data of a write is.
    #[must_use]
    pub fn readable(&self) -> &[(GuestAddress, u32)] {
        &self.readable
    }

    /// Of the last chain, where the data of a read goes.
    #[must_use]
    pub fn writable(&self) -> &[(GuestAddress, u32)] {
        &self.writable
    }

    fn walk(&mut self, memory: &GuestMemoryMmap, table: GuestAddress, size: u16, head: u16) -> Result<(), String> {
        self.readable.clear();
        self.writable.clear();
        let (mut table, mut size, mut index) = (table, size, head);
        let (mut indirect, mut seen, mut total) = (false, 0, 0);
        loop {
            if index >= size {
                return Err(format!("it names descriptor {index} of a table of {size}"));
            }
            if seen > DESCRIPTORS_MAX {
                return Err(format!("it goes in circles, or has more than {DESCRIPTORS_MAX} descriptors")); // chain.3
            }
            seen += 1;
            let at = table.checked_add(u64::from(index) * size_of::<Descriptor>() as u64);
            let found: Option<Descriptor> = at.and_then(|at| memory.read_obj(at).ok());
            let found = found.ok_or_else(|| format!("its table, at {:#x}, is not in the guest's memory", table.0))?;
            let len = found.len();
            if found.refers_to_indirect_table() {
                if indirect || found.has_next() {
                    return Err("it has an indirect table that is not its last descriptor, or is within another".into());
                }
                let entries = u16::try_from(len / size_of::<Descriptor>() as u32);
                if len == 0 || !len.is_multiple_of(size_of::<Descriptor>() as u32) || entries.is_err() {
                    return Err(format!("it has an indirect table of {len} bytes"));
                }
                (table, size, index, indirect) = (found.addr(), entries.expect("checked above"), 0, true);
                continue;
            }
            total += u64::from(len);
            if total > u64::from(u32::MAX) {
                return Err("it is longer than 4 GiB".into());
            }
            if len > 0 {
                if found.is_write_only() {
                    self.writable.push((found.addr(), len));
                } else if self.writable.is_empty() {
                    self.readable.push((found.addr(), len));
                } else {
                    return Err("it has memory to be read after memory to be written".into());
                }
            }
            if !found.has_next() {
                return Ok(());
            }
            index = found.next();
        }
    }

    /// The range of a discard or a write of zeroes: guests are told that they may name one in a request.
    fn range(
        &mut self,
        offer: &Offer,
        memory: &GuestMemoryMmap,
        kind: u32,
    ) -> Result<Result<BlockRequest, Refusal>, String> {
        let discard = kind == blk::VIRTIO_BLK_T_DISCARD;
        let op = if discard { Op::Discard } else { Op::WriteZeroes };
        let listed = bytes(&self.readable);
        if listed != size_of::<u128>() as u64 {
            return Ok(Err(Refusal::Ranges(listed)));
        }
        let range = take(memory, &mut self.readable)?.expect("it was counted");
        let (sector, sectors, flags) = (range as u64, (range >> 64) as u32, (range >> 96) as u32);
        let len = u64::from(sectors) * Sector::SIZE;
        // A discard has no flags; a write of zeroes may say that blocks may be given back.
        if flags > u32::from(!discard) {
            return Ok(Err(Refusal::Kind(kind)));
        }
        let keeps = if discard || flags & 1 != 0 { Flags::NONE } else { Flags::NO_UNMAP };
        let request = offer.request(op, kind, sector, len);
        Ok(request.map(|request| BlockRequest { flags: request.flags | keeps, ..request }))
    }
}

fn bytes(ranges: &[(GuestAddress, u32)]) -> u64 {
    ranges.iter().map(|(_, len)| u64::from(*len)).sum()
}

fn last_byte(ranges: &mut Ranges) -> Option<GuestAddress> {
    let (start, len) = ranges.last_mut()?;
    *len -= 1;
    let at = start.checked_add(u64::from(*len));
    if *len == 0 {
        ranges.pop();
    }
    at
}

fn not_there(at: GuestAddress) -> String {
    format!("its data or status, at {:#x}, is not in the guest's memory", at.0)
}

/// Takes 16 bytes off the front, if there are so many: some numbers, the first in the lowest bits.
fn take(memory: &GuestMemoryMmap, ranges: &mut Ranges) -> Result<Option<u128>, String> {
    let mut into = [0; size_of::<u128>()];
    let (mut got, mut used) = (0, 0);
    for (start, len) in ranges.iter_mut() {
        let part = (into.len() - got).min(*len as usize);
        memory.read_slice(&mut into[got..got + part], *start).map_err(|_| not_there(*start))?;
        got += part;
        if part < *len as usize {
            *start = start.checked_add(part as u64).ok_or_else(|| not_there(*start))?;
            *len -= part as u32;
            break;
        }
        used += 1;
        if got == into.len() {
            break;
        }
    }
    ranges.drain(..used);
    Ok((got == into.len()).then(|| u128::from_le_bytes(into)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: u64 = 0x1000;
    const INDIRECT: u64 = 0x2000;
    const HEADER: u64 = 0x8000;
    const DATA: u64 = 0x9000;
    const STATUS: u64 = 0xf000;
    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    const TABLE_OF: u16 = 4;

    const OFFER: Offer =
        Offer { size: 1 << 20, block: 512, request_max: 1 << 18, read_only: false, discard: true, write_zeroes: true };

    fn guest() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10000)]).unwrap()
    }

    fn put(memory: &GuestMemoryMmap, table: u64, index: u64, (at, len, flags, next): (u64, u32, u16, u16)) {
        let descriptor = Descriptor::new(at, len, flags, next);
        memory.write_obj(descriptor, GuestAddress(table + index * 16)).unwrap();
    }

    fn header(memory: &GuestMemoryMmap, kind: u32, sector: u64) {
        memory.write_obj(kind.to_le(), GuestAddress(HEADER)).unwrap();
        memory.write_obj(sector.to_le(), GuestAddress(HEADER + 8)).unwrap();
    }

    fn read(memory: &GuestMemoryMmap, offer: &Offer) -> Result<(BlkRequest, Reader), String> {
        let mut reader = Reader::default();
        let request = reader.read(offer, memory, GuestAddress(TABLE), 8, 0)?;
        Ok((request, reader))
    }

    /// A request in three descriptors, as Linux writes it.
    fn plain(kind: u32, sector: u64, data: u32) -> GuestMemoryMmap {
        let memory = guest();
        header(&memory, kind, sector);
        put(&memory, TABLE, 0, (HEADER, 16, NEXT, 1));
        put(&memory, TABLE, 1, (DATA, data, NEXT | if kind == 0 { WRITE } else { 0 }, 2));
        put(&memory, TABLE, 2, (STATUS, 1, WRITE, 0));
        memory
    }

    #[test]
    fn a_read_and_a_write_as_linux_writes_them() {
        let (request, reader) = read(&plain(0, 8, 4096), &OFFER).unwrap();
        let disk = |op| ChainRequest::Disk(BlockRequest { op, at: 4096, len: 4096, flags: Flags::SYNC });
        assert_eq!(request, BlkRequest { what: disk(Op::Read), status: GuestAddress(STATUS) });
        assert_eq!(reader.writable(), [(GuestAddress(DATA), 4096)]);
        let (request, reader) = read(&plain(1, 8, 4096), &OFFER).unwrap();
        assert_eq!(request, BlkRequest { what: disk(Op::Write), status: GuestAddress(STATUS) });
        assert_eq!(reader.readable(), [(GuestAddress(DATA), 4096)]);
    }

    /// A header in two parts, the second with data behind it; a status at the end of the data.
    #[test]
    fn how_a_chain_is_cut_does_not_matter() {
        let memory = guest();
        header(&memory, 1, 0);
        put(&memory, TABLE, 0, (HEADER, 5, NEXT, 3));
        put(&memory, TABLE, 3, (HEADER + 5, 11 + 512, NEXT, 5));
        put(&memory, TABLE, 5, (DATA, 512, NEXT, 7));
        put(&memory, TABLE, 7, (STATUS, 4, WRITE, 0));
        let (request, reader) = read(&memory, &OFFER).unwrap();
        let what = ChainRequest::Disk(BlockRequest { op: Op::Write, at: 0, len: 1024, flags: Flags::SYNC });
        assert_eq!(request, BlkRequest { what, status: GuestAddress(STATUS + 3) });
        assert_eq!(reader.readable(), [(GuestAddress(HEADER + 16), 512), (GuestAddress(DATA), 512)]);
    }

    #[test]
    fn a_table_may_be_elsewhere_once() {
        let memory = plain(0, 0, 512);
        for index in 0..3 {
            let descriptor: Descriptor = memory.read_obj(GuestAddress(TABLE + index * 16)).unwrap();
            memory.write_obj(descriptor, GuestAddress(INDIRECT + index * 16)).unwrap();
        }
        put(&memory, TABLE, 0, (INDIRECT, 48, TABLE_OF, 0));
        let what = ChainRequest::Disk(BlockRequest { op: Op::Read, at: 0, len: 512, flags: Flags::SYNC });
        assert_eq!(read(&memory, &OFFER).unwrap().0.what, what);
        put(&memory, INDIRECT, 0, (INDIRECT, 48, TABLE_OF, 0));
        assert!(read(&memory, &OFFER).unwrap_err().contains("is not its last descriptor"));
        for (len, flags, wanted) in [
            (47, TABLE_OF, "an indirect table of 47 bytes"),
            (0, TABLE_OF, "an indirect table of 0 bytes"),
            (48, TABLE_OF | NEXT, "is not its last descriptor"),
        ] {
            put(&memory, TABLE, 0, (INDIRECT, len, flags, 1));
            assert!(read(&memory, &OFFER).unwrap_err().contains(wanted));
        }
    }

    /// chain.1
    #[test]
    fn what_is_no_chain_is_broken() {
        let broken = |says: &str, change: &dyn Fn(&GuestMemoryMmap)| {
            let memory = plain(0, 0, 512);
            change(&memory);
            let why = read(&memory, &OFFER).unwrap_err();
            assert!(why.contains(says), "{why}");
        };
        let header_again = |m: &GuestMemoryMmap| put(m, TABLE, 1, (DATA, 512, NEXT | WRITE, 0)); // 0 1 0
        broken("after memory to be written", &header_again);
        broken("in circles", &|m| put(m, TABLE, 1, (DATA, 512, NEXT | WRITE, 1))); // 0 1 1 1 …
        broken("descriptor 8 of a table of 8", &|m| put(m, TABLE, 1, (DATA, 512, NEXT | WRITE, 8)));
        broken("no whole header", &|m| put(m, TABLE, 0, (HEADER, 15, NEXT, 1)));
        broken("its data or status, at 0x10000", &|m| put(m, TABLE, 0, (0x10000, 16, NEXT, 1)));
        broken("no room for a status", &|m| put(m, TABLE, 0, (HEADER, 16, 0, 0)));
        broken("longer than 4 GiB", &|m| put(m, TABLE, 1, (DATA, u32::MAX, NEXT | WRITE, 2)));
        let mut reader = Reader::default();
        for table in [0x10000, 0xfff0 + 1, u64::MAX - 15] {
            let found = reader.read(&OFFER, &guest(), GuestAddress(table), 8, 0);
            let why = found.unwrap_err();
            assert!(why.contains(&format!("its table, at {table:#x}")), "{why}");
        }
    }

    /// chain.2
    #[test]
    fn what_cannot_be_is_refused_and_no_more() {
        let refused = |kind, sector, data, offer: &Offer| match read(&plain(kind, sector, data), offer).unwrap().0.what
        {
            ChainRequest::Refused(why) => why,
            what => panic!("{what:?} was taken"),
        };
        assert_eq!(refused(0, 2047, 1024, &OFFER), Refusal::Beyond(2047, 1024));
        assert_eq!(refused(1, u64::MAX, 512, &OFFER), Refusal::Beyond(u64::MAX, 512));
        assert_eq!(refused(1, 0, 100, &OFFER), Refusal::Blocks(0, 100));
        assert_eq!(refused(0, 0, 1 << 19, &OFFER), Refusal::Length(1 << 19));
        assert_eq!(refused(77, 0, 512, &OFFER), Refusal::Kind(77));
        assert_eq!([Refusal::Kind(77), Refusal::ReadOnly].map(|why| super::super::config::status(why.errno())), [2, 1]);
        assert_eq!(refused(1, 0, 512, &Offer { read_only: true, ..OFFER }), Refusal::ReadOnly);
        assert_eq!(refused(0, 1, 4096, &Offer { block: 4096, ..OFFER }), Refusal::Blocks(1, 4096));
    }

    #[test]
    fn a_discard_names_one_range() {
        let request = |kind, len: u32, flags: u32, offer: &Offer| {
            let memory = plain(kind, 0, len);
            memory.write_obj(16u64.to_le(), GuestAddress(DATA)).unwrap();
            memory.write_obj(8u32.to_le(), GuestAddress(DATA + 8)).unwrap();
            memory.write_obj(flags.to_le(), GuestAddress(DATA + 12)).unwrap();
            read(&memory, offer).unwrap().0.what
        };
        let disk = |op, flags| ChainRequest::Disk(BlockRequest { op, at: 8192, len: 4096, flags: Flags::SYNC | flags });
        assert_eq!(request(11, 16, 0, &OFFER), disk(Op::Discard, Flags::NONE));
        assert_eq!(request(13, 16, 1, &OFFER), disk(Op::WriteZeroes, Flags::NONE));
        assert_eq!(request(13, 16, 0, &OFFER), disk(Op::WriteZeroes, Flags::NO_UNMAP));
        assert_eq!(request(11, 32, 0, &OFFER), ChainRequest::Refused(Refusal::Ranges(32)));
        assert_eq!(request(11, 16, 1, &OFFER), ChainRequest::Refused(Refusal::Kind(11)));
        assert_eq!(request(11, 16, 0, &Offer { discard: false, ..OFFER }), ChainRequest::Refused(Refusal::Kind(11)));
        assert_eq!(request(13, 16, 0, &Offer { read_only: true, ..OFFER }), ChainRequest::Refused(Refusal::ReadOnly));
    }
}
