//! Format: what is in the file of a top, as bytes. Pure: neither files nor clocks.
//!
//! A top is one file: two headers, the map, the data. All numbers are little-endian, all parts lie on multiples of 4 KiB. Example: a disk
//! of 1 GiB has 262,144 blocks, 17 pages of map with two slots each, and its byte 0 lies at byte 1 MiB of the file.
//!
//! ```text
//! 0        header, slot A          8192       page 0 of the map, slot A      data     byte 0 of the disk
//! 4096     header, slot B          12288      page 0 of the map, slot B      (from the next 1 MiB on)
//!                                  16384      page 1 of the map, slot A …
//! ```
//!
//! slot.1  A header or page is written to the slot that its sequence says (odd: A, even: B), so that a cut in the middle of a write
//!           leaves the one before whole. Of two whole ones the higher sequence counts.
//! slot.2  A slot of zeroes was never written. If no slot is whole, and one that must have been written is torn, the file is damaged:
//!           only a first write (slot A, with slot B of zeroes) may be torn without a page before it. In a top that was closed in order
//!           no page is torn: the header says so.
//! slot.3  A page names the overlay and its place in the map, so that one of another file or place is not taken.
//! slot.4  The checksum (CRC-32C) covers the whole of a header or page.
//! slot.5  A torn page is overwritten with `TORN` before its slot is written again. The next page may have most sectors in common with
//!         the torn one, and could make it whole if the power went meanwhile: blocks would be again as they were before the crash.
//! slot.6  A header is durable before the next one is written, so that no cut tears both.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crc32c::{crc32c, crc32c_append};
use ring::digest::{SHA256, digest};

use crate::device::Stamp;

/// The blocks that the map counts in, and the size of headers and pages.
pub const BLOCK: u64 = 4096;
/// Blocks that a page of the map tells of: two bits each, behind its own 64 bytes.
pub const PAGE_BLOCKS: u64 = (BLOCK - HEAD as u64) * 4;
/// The words of a page, each of 32 blocks.
pub(super) const WORDS: usize = (BLOCK as usize - HEAD) / 8;
/// The bytes before the states of a page.
const HEAD: usize = 64;
/// Data begins on a multiple of this. Chosen: as large as the largest blocks and stripes of disks.
const ALIGN: u64 = 1 << 20;
/// How a header begins.
pub const MAGIC: [u8; 8] = *b"FLoverly";
const PAGE_MAGIC: [u8; 8] = *b"FLmap\0\0\0";
const VERSION: u32 = 1;
/// Where the path of the base begins in a header, and how long it may be.
const PATH: usize = 160;
const PATH_MAX: usize = SUM - PATH;
/// Where the checksum of a header is: of all before it.
const SUM: usize = BLOCK as usize - 4;
/// The largest disk: 64 TiB. Chosen: four times what a file of ext4 can have; its map takes 17 MB before anything is written.
pub(super) const SIZE_MAX: u64 = 1 << 46;

/// The name of an overlay, drawn when it was made.
pub type Id = [u8; 16];

/// The header of a top.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Grows with each writing of the header.
    pub sequence: u64,
    /// Of the disk, in bytes.
    pub size: u64,
    /// Drawn when it was made.
    pub id: Id,
    /// How often it was opened to be written.
    pub opened: u64,
    /// It was closed in order, and not opened to be written since: no page of its map is torn.
    pub clean: bool,
    /// It is being written into its base, or that was stopped.
    pub commits: bool,
    /// Its base.
    pub base: Base,
}

/// The base of a top.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Base {
    /// Where it was when the top was made.
    pub path: PathBuf,
    /// By what it is known again.
    pub is: Fingerprint,
}

/// By what a base is known again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fingerprint {
    /// A file of bare bytes.
    Raw {
        /// In bytes.
        size: u64,
        /// When it was changed last, in seconds and nanoseconds.
        changed: (i64, u32),
    },
    /// The top of another overlay.
    Top {
        /// Its name.
        id: Id,
        /// How often it was opened to be written.
        opened: u64,
    },
    /// A qcow2 image, with the files below it.
    Image {
        /// Of the disk, in bytes.
        size: u64,
        /// How many files it is made of.
        files: u32,
        /// Follows from the size and time of change of each.
        digest: Id,
    },
    /// Data that is somewhere else, and known by its name.
    Named {
        /// In bytes.
        size: u64,
        /// Follows from its name.
        digest: Id,
    },
}

pub(super) const fn pages(size: u64) -> u64 {
    size.div_ceil(BLOCK).div_ceil(PAGE_BLOCKS)
}

pub(super) const fn data_offset(size: u64) -> u64 {
    page_offset(pages(size), 1).next_multiple_of(ALIGN)
}

pub(super) const fn file_len(size: u64) -> u64 {
    data_offset(size) + size.next_multiple_of(BLOCK)
}

/// Where a page lies that has this sequence (slot.1).
pub(super) const fn page_offset(index: u64, sequence: u64) -> u64 {
    slot_offset(index, slot(sequence))
}

pub(super) const fn slot_offset(index: u64, slot: usize) -> u64 {
    2 * BLOCK + index * 2 * BLOCK + slot as u64 * BLOCK
}

/// Where a header of this sequence lies (slot.1).
pub(super) const fn header_offset(sequence: u64) -> u64 {
    slot(sequence) as u64 * BLOCK
}

const fn slot(sequence: u64) -> usize {
    if sequence % 2 == 1 { 0 } else { 1 }
}

/// The byte with which a torn page is overwritten (slot.5). No page has a sector of it: two bits of ones are the state of no block.
pub(super) const TORN: u8 = 0xff;

/// A name of a slot, for people.
pub(super) const SLOTS: [&str; 2] = ["A", "B"];

impl Fingerprint {
    /// The fingerprint of a named thing of this size.
    pub(super) fn named(size: u64, called: &str) -> Self {
        Self::Named { size, digest: short_digest(called.as_bytes()) }
    }

    /// The fingerprint of an image with a disk of this size, by the stamps of its files.
    pub(super) fn image(size: u64, files: &[Stamp]) -> Self {
        let stamp = |(size, (seconds, nanos)): &Stamp| {
            [&size.to_le_bytes()[..], &seconds.to_le_bytes(), &nanos.to_le_bytes()].concat()
        };
        let stamps: Vec<u8> = files.iter().flat_map(stamp).collect();
        Self::Image { size, files: files.len() as u32, digest: short_digest(&stamps) }
    }
}

impl Header {
    /// By what the top is known to those that lie over it.
    pub(super) const fn fingerprint(&self) -> Fingerprint {
        Fingerprint::Top { id: self.id, opened: self.opened }
    }

    /// As it lies in the file.
    ///
    /// # Errors
    /// The path of the base is too long.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let path = self.base.path.as_os_str().as_bytes();
        if path.len() > PATH_MAX {
            return Err(format!("the path of its base has {} bytes, and {PATH_MAX} are possible", path.len()));
        }
        let mut bytes = vec![0; BLOCK as usize];
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &(BLOCK as u32).to_le_bytes());
        put(16, &self.sequence.to_le_bytes());
        put(24, &self.size.to_le_bytes());
        put(32, &self.id);
        put(48, &self.opened.to_le_bytes());
        put(56, &data_offset(self.size).to_le_bytes());
        match self.base.is {
            Fingerprint::Raw { size, changed: (seconds, nanos) } => {
                put(64, &0u32.to_le_bytes());
                put(72, &size.to_le_bytes());
                put(80, &seconds.to_le_bytes());
                put(88, &nanos.to_le_bytes());
            }
            Fingerprint::Top { id, opened } => {
                put(64, &1u32.to_le_bytes());
                put(96, &id);
                put(112, &opened.to_le_bytes());
            }
            Fingerprint::Image { size, files, digest } => {
                put(64, &2u32.to_le_bytes());
                put(72, &size.to_le_bytes());
                put(92, &files.to_le_bytes());
                put(96, &digest);
            }
            Fingerprint::Named { size, digest } => {
                put(64, &3u32.to_le_bytes());
                put(72, &size.to_le_bytes());
                put(96, &digest);
            }
        }
        put(68, &(path.len() as u32).to_le_bytes());
        put(120, &u32::from(self.clean).to_le_bytes());
        put(124, &u32::from(self.commits).to_le_bytes());
        put(PATH, path);
        let sum = crc32c(&bytes[..SUM]);
        bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    /// Reads a header; `None`: it was never written.
    ///
    /// # Errors
    /// It is none, it is damaged, or it is of a version that this program does not know.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, String> {
        let bytes = bytes.get(..BLOCK as usize).ok_or("it ends within its header")?;
        if crate::device::is_zero(bytes) {
            return Ok(None);
        }
        if bytes[..8] != MAGIC {
            return Err("it begins with something else".into());
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(format!("it has version {version}, and this program knows version {VERSION}"));
        }
        if u32_at(bytes, SUM) != crc32c(&bytes[..SUM]) {
            return Err("its checksum is wrong".into());
        }
        let (block, sequence, size) = (u32_at(bytes, 12), u64_at(bytes, 16), u64_at(bytes, 24));
        if u64::from(block) != BLOCK {
            return Err(format!("it has blocks of {block} bytes, and {BLOCK} are possible"));
        }
        if sequence == 0 || size == 0 || size > SIZE_MAX {
            return Err(format!("a disk of {size} bytes, written for time {sequence}, is not possible"));
        }
        if u64_at(bytes, 56) != data_offset(size) {
            return Err(format!("its data begins at byte {}, and not at {}", u64_at(bytes, 56), data_offset(size)));
        }
        let length = u32_at(bytes, 68) as usize;
        let path = bytes[PATH..PATH + PATH_MAX].get(..length).ok_or("the path of its base is too long")?;
        let is = match u32_at(bytes, 64) {
            0 => {
                let seconds = u64_at(bytes, 80).cast_signed();
                Fingerprint::Raw { size: u64_at(bytes, 72), changed: (seconds, u32_at(bytes, 88)) }
            }
            1 => Fingerprint::Top { id: id_at(bytes, 96), opened: u64_at(bytes, 112) },
            2 => Fingerprint::Image { size: u64_at(bytes, 72), files: u32_at(bytes, 92), digest: id_at(bytes, 96) },
            3 => Fingerprint::Named { size: u64_at(bytes, 72), digest: id_at(bytes, 96) },
            other => return Err(format!("its base is of kind {other}, which this program does not know")),
        };
        let flag = |at: usize, what: &str| match u32_at(bytes, at) {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("it {what} in way {other}, which this program does not know")),
        };
        let (clean, commits) = (flag(120, "was closed")?, flag(124, "is written into its base")?);
        let base = Base { path: Path::new(OsStr::from_bytes(path)).to_owned(), is };
        Ok(Some(Self { sequence, size, id: id_at(bytes, 32), opened: u64_at(bytes, 48), clean, commits, base }))
    }
}

/// A page of the map, as it is to be written or was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageImage {
    /// Its place in the map.
    pub index: u64,
    /// Grows with each writing of it.
    pub sequence: u64,
    /// Two bits for each block, the first in the lowest.
    pub words: Box<[u64; WORDS]>,
}

impl PageImage {
    /// As it lies in the file of an overlay.
    pub fn encode(&self, id: &Id, into: &mut [u8]) {
        let into = &mut into[..BLOCK as usize];
        into[..HEAD].fill(0);
        into[..8].copy_from_slice(&PAGE_MAGIC);
        into[8..16].copy_from_slice(&self.index.to_le_bytes());
        into[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        into[24..40].copy_from_slice(id);
        for (word, bytes) in self.words.iter().zip(into[HEAD..].chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let sum = page_sum(into);
        into[60..64].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads the page of this index of a disk with `blocks` blocks; `None`: it was never written.
    ///
    /// # Errors
    /// The part that is not as it must be.
    pub fn decode(bytes: &[u8], id: &Id, index: u64, blocks: u64) -> Result<Option<Self>, String> {
        let bytes = bytes.get(..BLOCK as usize).ok_or("the file ends there")?;
        if crate::device::is_zero(bytes) {
            return Ok(None);
        }
        if bytes[..8] != PAGE_MAGIC {
            return Err("it begins with something else".into());
        }
        if u32_at(bytes, 60) != page_sum(bytes) {
            return Err("its checksum is wrong".into());
        }
        if u64_at(bytes, 8) != index {
            return Err(format!("it is page {}", u64_at(bytes, 8)));
        }
        if id_at(bytes, 24) != *id {
            return Err("it is of another overlay".into());
        }
        let sequence = u64_at(bytes, 16);
        if sequence == 0 {
            return Err("its sequence is 0".into());
        }
        let mut words = Box::new([0; WORDS]);
        for (word, bytes) in words.iter_mut().zip(bytes[HEAD..].chunks_exact(8)) {
            *word = u64_at(bytes, 0);
        }
        let own = blocks.saturating_sub(index * PAGE_BLOCKS).min(PAGE_BLOCKS);
        for (at, word) in words.iter().enumerate() {
            // Data is 01, zero 10.
            if word & word >> 1 & LOW != 0 {
                return Err("a block of it has an invalid state".into());
            }
            let within = own.saturating_sub(at as u64 * 32).min(32);
            if within < 32 && word >> (2 * within) != 0 {
                return Err("it tells of blocks beyond the disk".into());
            }
        }
        Ok(Some(Self { index, sequence, words }))
    }
}

/// Which page of a map it is, as it says.
pub(super) fn page_index(bytes: &[u8]) -> Option<u64> {
    (bytes.len() == BLOCK as usize).then(|| u64_at(bytes, 8))
}

/// The lower bit of each block.
pub(super) const LOW: u64 = 0x5555_5555_5555_5555;

/// Of the two slots of a header or page, the one that counts (slot.1, slot.2).
#[derive(Debug)]
pub struct Slots<T> {
    /// The last whole one, if one was written.
    pub counts: Option<T>,
    /// The fault, and its slot.
    pub torn: Option<(usize, String)>,
}

/// The slot that counts, by the content of each and the sequences of complete ones.
///
/// # Errors
/// None is whole, though one was.
pub(super) fn choose<T>(
    [a, b]: [Result<Option<T>, String>; 2],
    sequence: impl Fn(&T) -> u64,
) -> Result<Slots<T>, String> {
    let placed = |at: usize, read: Result<Option<T>, String>| match read? {
        Some(one) if slot(sequence(&one)) != at => {
            Err(format!("it has sequence {}, which belongs to the other slot", sequence(&one)))
        }
        one => Ok(one),
    };
    match (placed(0, a), placed(1, b)) {
        (Ok(Some(a)), Ok(Some(b))) => {
            let counts = if sequence(&a) > sequence(&b) { a } else { b };
            Ok(Slots { counts: Some(counts), torn: None })
        }
        (Ok(Some(one)), Ok(None)) if sequence(&one) == 1 => Ok(Slots { counts: Some(one), torn: None }),
        // Slot A is written first, and again only when B was.
        (Ok(Some(one)), Ok(None)) => {
            Err(format!("slot A has sequence {}, and slot B, which was written before it, has nothing", sequence(&one)))
        }
        (Ok(None), Ok(Some(_))) => Err("slot B was written, and slot A, which comes first, has nothing".into()),
        (Ok(None), Ok(None)) => Ok(Slots { counts: None, torn: None }),
        (Ok(Some(one)), Err(why)) => Ok(Slots { counts: Some(one), torn: Some((1, why)) }),
        (Err(why), Ok(Some(one))) => Ok(Slots { counts: Some(one), torn: Some((0, why)) }),
        (Err(why), Ok(None)) => Ok(Slots { counts: None, torn: Some((0, why)) }),
        (Ok(None), Err(why)) => Err(format!("slot A has nothing, and slot B, which comes after it: {why}")),
        (Err(a), Err(b)) => Err(format!("slot A: {a}; slot B: {b}")),
    }
}

/// The header that counts, of the first two blocks of a file; `None`: it has none yet.
///
/// # Errors
/// The damage.
pub fn headers(bytes: &[u8]) -> Result<Slots<Header>, String> {
    let slot = |at: usize| Header::decode(bytes.get(at * BLOCK as usize..).unwrap_or_default());
    choose([slot(0), slot(1)], |header| header.sequence)
}

/// The page of the map that counts, of its two slots.
///
/// # Errors
/// The damage.
pub fn page(bytes: &[u8], id: &Id, index: u64, blocks: u64) -> Result<Slots<PageImage>, String> {
    let slot = |at: usize| PageImage::decode(bytes.get(at * BLOCK as usize..).unwrap_or_default(), id, index, blocks);
    choose([slot(0), slot(1)], |page| page.sequence)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn short_digest(bytes: &[u8]) -> Id {
    id_at(digest(&SHA256, bytes).as_ref(), 0)
}

fn id_at(bytes: &[u8], at: usize) -> Id {
    bytes[at..at + 16].try_into().expect("sixteen bytes")
}

/// Of all of a page but the checksum itself.
fn page_sum(bytes: &[u8]) -> u32 {
    crc32c_append(crc32c(&bytes[..60]), &bytes[HEAD..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let is = Fingerprint::Raw { size: 1 << 30, changed: (1_700_000_000, 5) };
        let base = Base { path: "/images/base.img".into(), is };
        Header { sequence: 1, size: 1 << 30, id: [7; 16], opened: 1, clean: false, commits: false, base }
    }

    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let sum = crc32c(&bytes[..SUM]);
        bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let one = header();
        assert_eq!(Header::decode(&one.encode().unwrap()), Ok(Some(one.clone())));
        let base = Base { path: "t".into(), is: Fingerprint::Top { id: [9; 16], opened: 4 } };
        let other = Header { sequence: 2, size: 512, clean: true, commits: true, base, ..one.clone() };
        assert_eq!(Header::decode(&other.encode().unwrap()), Ok(Some(other)));
        let base = Base { path: "i".into(), is: Fingerprint::Image { size: 1 << 30, files: 2, digest: [5; 16] } };
        let third = Header { base, ..one.clone() };
        assert_eq!(Header::decode(&third.encode().unwrap()), Ok(Some(third)));
        let base = Base { path: "nbd://host/x".into(), is: Fingerprint::named(1 << 30, "nbd://host/x") };
        let fourth = Header { base, ..one.clone() };
        assert_eq!(Header::decode(&fourth.encode().unwrap()), Ok(Some(fourth)));
        assert_eq!(Header::decode(&[0; 4096]), Ok(None));
        let long = Base { path: "x".repeat(4000).into(), ..one.base.clone() };
        assert!(Header { base: long, ..one }.encode().is_err());
    }

    /// slot.4
    #[test]
    fn no_byte_of_a_header_or_page_changes_unseen() {
        let good = header().encode().unwrap();
        let page = PageImage { index: 3, sequence: 1, words: Box::new([0x1249; WORDS]) };
        let mut image = vec![0; BLOCK as usize];
        page.encode(&[7; 16], &mut image);
        assert_eq!(PageImage::decode(&image, &[7; 16], 3, 1 << 20), Ok(Some(page)));
        for at in 0..BLOCK as usize {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(Header::decode(&bad).is_err(), "byte {at} of a header");
            let mut bad = image.clone();
            bad[at] ^= 0x10;
            assert!(PageImage::decode(&bad, &[7; 16], 3, 1 << 20).is_err(), "byte {at} of a page");
        }
    }

    /// A header whose checksum is right, and that cannot be: each field.
    #[test]
    fn a_header_that_cannot_be_is_refused_with_what_is_wrong() {
        let good = header().encode().unwrap();
        for (at, bytes, why) in [
            (0, &b"x"[..], "something else"),
            (8, &[2], "version 2"),
            (12, &[0, 2], "blocks of 512 bytes"),
            (16, &[0], "is not possible"),
            (24, &[0, 0, 0, 0], "is not possible"),
            (31, &[0xff], "is not possible"),
            (56, &[1], "its data begins at byte"),
            (64, &[9], "kind 9"),
            (68, &[0xff, 0xff], "too long"),
            (120, &[2], "closed in way 2"),
            (124, &[2], "written into its base in way 2"),
        ] {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            let says = Header::decode(&sealed(bad)).unwrap_err();
            assert!(says.contains(why), "{at}: {says}");
        }
        assert!(Header::decode(&good[..4095]).unwrap_err().contains("ends within"));
    }

    /// slot.3
    #[test]
    fn a_page_that_cannot_be_is_refused_with_what_is_wrong() {
        let words = Box::new([0; WORDS]);
        let page = |index, sequence, id: u8, change: &dyn Fn(&mut [u64; WORDS])| {
            let mut page = PageImage { index, sequence, words: words.clone() };
            change(&mut page.words);
            let mut bytes = vec![0; BLOCK as usize];
            page.encode(&[id; 16], &mut bytes);
            PageImage::decode(&bytes, &[7; 16], 1, PAGE_BLOCKS + 33)
        };
        assert!(page(1, 1, 7, &|words| words[1] = 2).is_ok());
        for (read, why) in [
            (page(0, 1, 7, &|_| ()), "it is page 0"),
            (page(1, 0, 7, &|_| ()), "sequence is 0"),
            (page(1, 1, 8, &|_| ()), "another overlay"),
            (page(1, 1, 7, &|words| words[0] = 3 << 8), "an invalid state"),
            (page(1, 1, 7, &|words| words[1] = 1 << 2), "beyond the disk"),
            (page(1, 1, 7, &|words| words[503] = 1), "beyond the disk"),
        ] {
            let says = read.unwrap_err();
            assert!(says.contains(why), "{says}");
        }
    }

    /// slot.1, slot.2
    #[test]
    fn the_last_whole_slot_counts_and_none_that_must_be_there_may_be_missing() {
        let bad = || Err("torn".to_owned());
        let chosen = |a, b| {
            choose([a, b], |sequence: &u64| *sequence).map(|slots| (slots.counts, slots.torn.map(|torn| torn.0)))
        };
        for (a, b, counts) in [
            (Ok(None), Ok(None), Ok((None, None))),
            (bad(), Ok(None), Ok((None, Some(0)))),
            (Ok(Some(1)), Ok(None), Ok((Some(1), None))),
            (Ok(Some(1)), bad(), Ok((Some(1), Some(1)))),
            (Ok(Some(1)), Ok(Some(2)), Ok((Some(2), None))),
            (bad(), Ok(Some(2)), Ok((Some(2), Some(0)))),
            (Ok(Some(3)), Ok(Some(2)), Ok((Some(3), None))),
        ] {
            assert_eq!(chosen(a.clone(), b.clone()), counts, "{a:?} {b:?}");
        }
        for (a, b) in [
            (bad(), bad()),
            (Ok(None), bad()),
            (Ok(None), Ok(Some(2))),
            (Ok(Some(3)), Ok(None)),
            (Ok(Some(2)), bad()),
            (Ok(Some(2)), Ok(Some(1))),
        ] {
            assert!(chosen(a.clone(), b.clone()).is_err(), "{a:?} {b:?}");
        }
    }

    #[test]
    fn the_data_of_a_disk_begins_behind_its_map() {
        assert_eq!((pages(1), data_offset(1), file_len(1)), (1, 1 << 20, (1 << 20) + 4096));
        assert_eq!((pages(1 << 30), data_offset(1 << 30)), (17, 1 << 20));
        let tera = 1 << 40;
        assert!(page_offset(pages(tera), 1) <= data_offset(tera) && data_offset(tera) < tera / 4000);
        assert_eq!([page_offset(0, 1), page_offset(0, 2), page_offset(1, 3)], [8192, 12288, 16384]);
    }
}
