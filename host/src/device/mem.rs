//! Mem: RAM, allocated where something is written.
//!
//! ram.1  Blocks that were never written, or were discarded, read as zeroes and take no memory.
//! ram.2  A read sees each sector as it was before or after any write, never half: a chunk is read and written under its
//!        own lock. Requests to different chunks meet nobody.
//! ram.3  The bytes lie in a file without a name and a disk (memfd), mapped whole. So another server goes on with them: it is given the file.
//!        Where something is allocated the file knows; the new server asks it once nothing is written any more.

use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use fairlift_core::units::{parse_capacity, show_size};
use fairlift_core::{Flags, Outcome};

use fairlift_core::record::Record;
use rustix::fs::{FallocateFlags, MemfdFlags, SeekFrom, fallocate, ftruncate, memfd_create, seek};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory as _, VolatileSlice};

use super::backing::{About, BackingKind, Options, Syntax};
use super::handed::OpenFile;
use super::lane::{Address, AtOnce, Lane};
use super::roots::Roots;
use super::{Device, Facts, Inline, Run};
use crate::kernel::ticket::zero;

/// The bytes under one lock. Chosen: large enough that a disk of a gibibyte has 16,384 locks and a request of 4 KiB takes one;
/// small enough that a scattered write of 4 KiB costs no more than this.
const CHUNK: usize = 64 << 10;

/// The chunks of a table, which is made when one of them is first written. Chosen: a disk of 64 TiB that holds nothing costs 4 MB.
const TABLE: usize = 4096;

/// Whether something of a chunk was written (ram.1).
type Chunk = bool;
type Table = Box<[RwLock<Chunk>]>;

/// RAM, allocated where something is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ram {
    /// Its size in bytes.
    pub size: u64,
}

pub(super) const SYNTAX: Syntax = Syntax {
    schemes: &["mem"],
    form: "mem:SIZE",
    takes: "mem:SIZE",
    parse: |text, _| Ok(Ram { size: parse_capacity(Options::new("mem", &[], text)?.main)? }.into()),
};

impl BackingKind for Ram {
    fn about(&self) -> About<'_> {
        let shown = format!("RAM, {}", show_size(self.size));
        About { name: "mem".into(), shown, size: Some(self.size), ..About::new(format!("mem:{}", self.size), "ram") }
    }

    fn open(&self, _read_only: bool, roots: &Roots) -> Result<Arc<dyn Device>, String> {
        Ok(Arc::new(Mem::open(self.size, roots.unnamed()?).map_err(|error| error.to_string())?))
    }
}

pub(crate) struct Mem {
    size: u64,
    map: MmapRegion,
    file: Arc<File>,
    tables: Box<[OnceLock<Table>]>,
}

impl Mem {
    /// New, or of the bytes of another server, which may still write them (ram.3).
    pub(super) fn open(size: u64, handed: Option<File>) -> io::Result<Self> {
        let len = size.next_multiple_of(CHUNK as u64);
        let file = match handed {
            Some(file) if file.metadata()?.len() == len => file,
            Some(_) => return Err(io::Error::other(format!("the running server has another size than {size} bytes"))),
            None => {
                let file = memfd_create("ram", MemfdFlags::CLOEXEC)?;
                ftruncate(&file, len)?;
                file.into()
            }
        };
        let file = FileOffset::new(file, 0);
        let kept = Arc::clone(file.arc());
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let map = MmapRegion::from_file(file, len).map_err(|error| match error {
            vm_memory::mmap::MmapRegionError::Mmap(error) => error,
            other => io::Error::other(other),
        })?;
        let tables = size.div_ceil((TABLE * CHUNK) as u64);
        Ok(Self { size, map, file: kept, tables: (0..tables).map(|_| OnceLock::new()).collect() })
    }

    /// Learns where something is allocated (ram.3).
    fn look_for_data(&self) -> io::Result<()> {
        let (mut at, len) = (0, self.map.size() as u64);
        while at < len {
            let data = match seek(&self.file, SeekFrom::Data(at)) {
                Err(rustix::io::Errno::NXIO) => return Ok(()),
                found => found?,
            };
            at = seek(&self.file, SeekFrom::Hole(data))?;
            let chunks = (data / CHUNK as u64) as usize..at.div_ceil(CHUNK as u64) as usize;
            chunks.for_each(|index| *self.change(index) = true);
        }
        Ok(())
    }

    fn bytes(&self, index: usize, offset: usize, bytes: usize) -> VolatileSlice<'_> {
        self.map.get_slice(index * CHUNK + offset, bytes).expect(WITHIN)
    }

    /// A chunk, to be read; `None` if nothing was ever written near it.
    fn look(&self, index: usize) -> Option<RwLockReadGuard<'_, Chunk>> {
        let table = self.tables[index / TABLE].get()?;
        // A chunk is bytes: a panic in between leaves them as valid as before.
        Some(table[index % TABLE].read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A chunk, to be written.
    fn change(&self, index: usize) -> RwLockWriteGuard<'_, Chunk> {
        let table = self.tables[index / TABLE].get_or_init(|| (0..TABLE).map(|_| RwLock::new(false)).collect());
        table[index % TABLE].write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for Mem {
    fn facts(&self) -> Facts {
        Facts { in_ram: true, ..Facts::plain(self.size) }
    }

    fn called(&self) -> String {
        "ram".into()
    }

    fn lane(self: Arc<Self>, _address: Address) -> Box<dyn Lane> {
        Box::new(AtOnce(self))
    }

    fn hand_over(self: Arc<Self>) -> Result<Vec<OpenFile>, String> {
        Ok(vec![Arc::clone(&self.file) as OpenFile])
    }

    fn take_on(&self, _says: &mut Record, _bytes: &[u8]) -> Result<(), String> {
        self.look_for_data().map_err(|error| error.to_string())
    }

    /// Up to the end of the chunk, or of the table if there is none.
    fn run(&self, at: u64, len: u64) -> io::Result<Run> {
        let (index, offset) = place(at);
        Ok(match self.look(index) {
            Some(chunk) => Run { len: len.min((CHUNK - offset) as u64), hole: !*chunk },
            None => Run { len: len.min(((TABLE - index % TABLE) * CHUNK - offset) as u64), hole: true },
        })
    }
}

fn place(at: u64) -> (usize, usize) {
    ((at / CHUNK as u64) as usize, (at % CHUNK as u64) as usize)
}

/// The parts of a range, chunk by chunk: (chunk, offset in it, bytes).
fn chunks(mut at: u64, mut len: u64) -> impl Iterator<Item = (usize, usize, usize)> {
    std::iter::from_fn(move || {
        let (index, offset) = place(at);
        let bytes = len.min((CHUNK - offset) as u64);
        (at, len) = (at + bytes, len - bytes);
        (bytes > 0).then_some((index, offset, bytes as usize))
    })
}

const WITHIN: &str = "a part lies within its range";

impl Inline for Mem {
    fn read(&self, at: u64, mut into: VolatileSlice<'_>) -> Outcome {
        for (index, offset, bytes) in chunks(at, into.len() as u64) {
            let (part, rest) = into.split_at(bytes).expect(WITHIN);
            match self.look(index).as_deref() {
                Some(true) => self.bytes(index, offset, bytes).copy_to_volatile_slice(part),
                Some(false) | None => zero(&part), // ram.1
            }
            into = rest;
        }
        Outcome::Done
    }

    fn write(&self, at: u64, mut from: VolatileSlice<'_>, _flags: Flags) -> Outcome {
        for (index, offset, bytes) in chunks(at, from.len() as u64) {
            let (part, rest) = from.split_at(bytes).expect(WITHIN);
            let mut chunk = self.change(index);
            part.copy_to_volatile_slice(self.bytes(index, offset, bytes));
            *chunk = true;
            from = rest;
        }
        Outcome::Done
    }

    fn discard(&self, at: u64, len: u64) -> Outcome {
        for (index, offset, bytes) in chunks(at, len) {
            if self.look(index).is_none_or(|chunk| !*chunk) {
                continue; // ram.1
            }
            let mut chunk = self.change(index);
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if bytes == CHUNK && fallocate(&self.file, punch, (index * CHUNK) as u64, CHUNK as u64).is_ok() {
                *chunk = false; // ram.1
            } else if *chunk {
                zero(&self.bytes(index, offset, bytes));
            }
        }
        Outcome::Done
    }

    fn write_zeroes(&self, at: u64, len: u64, flags: Flags) -> Outcome {
        if !flags.contains(Flags::NO_UNMAP) {
            return self.discard(at, len);
        }
        for (index, offset, bytes) in chunks(at, len) {
            let mut chunk = self.change(index);
            zero(&self.bytes(index, offset, bytes));
            *chunk = true;
        }
        Outcome::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mem: &Mem, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; len];
        assert_eq!(mem.read(at, bytes.as_mut_slice().into()), Outcome::Done);
        bytes
    }

    fn write<const N: usize>(mem: &Mem, at: u64, mut bytes: [u8; N]) {
        assert_eq!(mem.write(at, bytes.as_mut_slice().into(), Flags::NONE), Outcome::Done);
    }

    fn allocated(mem: &Mem) -> usize {
        let tables = mem.tables.iter().filter_map(OnceLock::get);
        tables.flat_map(|table| table.iter()).filter(|chunk| *chunk.read().unwrap()).count()
    }

    #[test]
    fn what_is_written_across_chunks_is_read_back_and_the_rest_is_zeroes() {
        let mem = Mem::open(1 << 20, None).unwrap();
        let at = CHUNK as u64 - 512;
        write(&mem, at, [7; 2048]);
        assert_eq!(read(&mem, at, 2048), [7; 2048]);
        assert_eq!(read(&mem, at - 512, 512), [0; 512]);
        assert_eq!(read(&mem, at + 2048, 512), [0; 512]);
        assert_eq!(allocated(&mem), 2);
    }

    /// ram.1
    #[test]
    fn a_discarded_chunk_gives_its_memory_back() {
        let mem = Mem::open(1 << 20, None).unwrap();
        write(&mem, 0, [7; 3 * CHUNK]);
        mem.discard(512, 3 * CHUNK as u64 - 1024);
        assert_eq!(allocated(&mem), 2, "only the middle one was covered whole");
        assert_eq!(read(&mem, 0, 1024), [[7; 512], [0; 512]].concat());
    }

    #[test]
    fn zeroes_without_a_hole_stay_allocated() {
        let mem = Mem::open(1 << 20, None).unwrap();
        mem.write_zeroes(0, CHUNK as u64, Flags::NO_UNMAP);
        assert_eq!(allocated(&mem), 1);
        mem.write_zeroes(0, CHUNK as u64, Flags::NONE);
        assert_eq!(allocated(&mem), 0);
    }

    #[test]
    fn a_large_disk_costs_what_is_written_to_it() {
        let mem = Mem::open(64 << 40, None).unwrap();
        let (near, far) = (TABLE * CHUNK, 63 << 40);
        write(&mem, far, [7; 512]);
        mem.discard(0, 1 << 30);
        assert_eq!(mem.tables.iter().filter(|table| table.get().is_some()).count(), 1);
        assert_eq!(mem.run(512, 1 << 40).unwrap(), Run { len: near as u64 - 512, hole: true });
        assert_eq!((read(&mem, far, 512), read(&mem, 0, 512)), (vec![7; 512], vec![0; 512]));
    }

    #[test]
    fn a_size_that_is_no_multiple_of_the_chunk_has_a_short_last_run() {
        let mem = Mem::open(CHUNK as u64 + 512, None).unwrap();
        assert_eq!(mem.run(CHUNK as u64, 512).unwrap(), Run { len: 512, hole: true });
        write(&mem, CHUNK as u64, [1; 512]);
        assert_eq!(mem.run(CHUNK as u64, 512).unwrap(), Run { len: 512, hole: false });
    }

    /// ram.3
    #[test]
    fn another_server_has_the_bytes_and_knows_where_there_are_some() {
        let old = Mem::open(3 << 20, None).unwrap();
        let new = Mem::open(3 << 20, Some(old.file.try_clone().unwrap())).unwrap();
        let chunk = CHUNK as u64;
        write(&old, 0, [5; CHUNK]);
        old.discard(0, chunk);
        write(&old, 7 * chunk - 512, [7; 1024]);
        new.take_on(&mut Record::default(), &[]).unwrap();
        assert_eq!(read(&new, 7 * chunk - 512, 1024), [7; 1024]);
        assert_eq!((read(&new, 0, 512), allocated(&new)), (vec![0; 512], 2));
        assert!(new.run(0, 512).unwrap().hole && !new.run(6 * chunk, 512).unwrap().hole);
        drop(old);
        write(&new, 0, [9; 512]);
        assert_eq!(read(&new, 0, 512), [9; 512]);
        assert!(Mem::open(1 << 20, Some(new.file.try_clone().unwrap())).is_err(), "another size");
    }
}
