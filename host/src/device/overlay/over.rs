//! Over: another server goes on with an overlay, whose clients stand still.
//!
//! The files of an overlay go over open, but where its blocks are is in this server's memory: what was written since the last flush is in no file. To
//! flush a thousand tops while their clients stand still would take a second or more. So the map is told as it is, and the new server flushes it when
//! a client asks for that. Example: a top with 50 MiB written in a row tells one page of 4 KiB.
//!
//! over.1  The whole state is told: the header that counts, and each page with its sequence, and whether it is yet to be written. So the new server reads
//!         neither from the file, where the old one may have been writing.
//! over.2  A server that takes over opens the files and the layers below, which nobody writes, and neither reads the map nor writes anything.
//!         It has no map until it is told.
//! over.3  A chain may become one top between the offer and the hand-over ([`flatten`](super::flatten)): then the header that is told names the
//!         base, and the layers in between are left out. A flattening that has not ended goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fairlift_core::record::Record;

use super::files::known;
use super::format::{BLOCK, Header};
use super::map::Own;
use super::{Layers, Overlay};
use crate::device::handed::OpenFile;
use crate::sync::lock;

/// Its part of a record.
const FLATTENS: &str = "flattens";

/// The top's file comes first.
pub(super) fn files(layers: &Layers) -> Result<Vec<OpenFile>, String> {
    let files = layers.files().map(|file| Arc::clone(file).hand_over());
    files.collect::<Result<Vec<_>, _>>().map(|all| all.into_iter().flatten().collect())
}

/// over.1
pub(super) fn tell(overlay: &Overlay, says: &mut Record) -> Result<Vec<u8>, String> {
    if lock(&overlay.claims).is_held(&(0..u64::MAX)) {
        return Err("has a write or a flush that timed out, and has not ended".into());
    }
    let layers = overlay.layers();
    layers.top.hand_on(says)?;
    let is_asked = |flag: &AtomicBool| flag.load(Ordering::Acquire);
    says.put(FLATTENS, &(is_asked(&overlay.is_deep) || is_asked(&overlay.is_flattened)));
    let header = lock(&layers.header);
    let mut bytes = header.encode()?;
    bytes.append(&mut layers.own.tell(&header.id));
    Ok(bytes)
}

/// The same at the other server, before its first request.
pub(super) fn take_on(overlay: &Overlay, says: &mut Record, bytes: &[u8]) -> Result<(), String> {
    let layers = overlay.layers();
    let (header, pages) = bytes.split_at_checked(BLOCK as usize).ok_or("its map was not told")?;
    let header = Header::decode(header)?.ok_or("its header is empty")?;
    let Header { id, size, .. } = *lock(&layers.header);
    if (header.id, header.size) != (id, size) {
        return Err("the state is that of another top".into());
    }
    let own = Arc::new(Own::decode(size, &id, pages)?);
    let (below, base) = match header.base.is {
        _ if known(&header, &header.base.path, layers.below.is()).is_ok() => {
            (Arc::clone(&layers.below), layers.base.clone())
        }
        is if is == layers.below.files[0].is => (Arc::new(layers.below.lowest()), layers.below.lowest.clone()), // over.3
        _ => return Err("it lies over another base by now".into()),
    };
    overlay.is_deep.store(says.take(FLATTENS).ok().flatten().unwrap_or(false), Ordering::Release);
    *lock(&overlay.layers) = Arc::new(Layers::new(Arc::clone(&layers.top), header, below, base, own));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use fairlift_core::{ContextId, Tag};

    use super::*;
    use crate::config;
    use crate::device::handed::HandedFiles;
    use crate::device::overlay::claims::MAP;
    use crate::device::overlay::flatten::rest_on_base;
    use crate::device::overlay::fork;
    use crate::device::overlay::format::data_offset;
    use crate::device::overlay::map::{BlockState, Place};
    use crate::device::overlay::tests::files::Directory;
    use crate::device::roots::Roots;
    use crate::kernel::buffer::Pages;

    const WORDS: &str = "base=base,top=a";

    fn open(directory: &Directory, words: &str, roots: &Roots) -> Result<Arc<Overlay>, String> {
        let config::Backing::Overlay(layered) = directory.parse(words)? else { panic!("{words}") };
        roots.opens("a");
        Overlay::open(&layered, (false, true), roots).map(Arc::new)
    }

    /// The offer of another server.
    fn offered(overlay: &Overlay) -> Roots {
        let mut handed = HandedFiles::default();
        for file in files(&overlay.layers()).unwrap() {
            handed.add("a", file.as_fd().try_clone_to_owned().unwrap()).unwrap();
        }
        Roots::default().with(handed)
    }

    /// A block is written, as by a lane.
    fn put(overlay: &Overlay, block: u64) {
        let layers = overlay.layers();
        let at = data_offset(layers.size) + block * BLOCK;
        layers.top.write_at(Pages::new(BLOCK as usize).bytes_mut(), at).unwrap();
        layers.own.set(block..block + 1, BlockState::Data);
    }

    fn places(overlay: &Overlay) -> Vec<Place> {
        (0..8).map(|block| overlay.layers().places().of(block)).collect()
    }

    fn handed_on(old: &Overlay, new: &Overlay) -> Result<(), String> {
        let mut says = Record::default();
        let bytes = tell(old, &mut says)?;
        take_on(new, &mut says, &bytes)
    }

    /// over.1, over.2
    #[test]
    fn a_map_goes_over_with_all_that_was_written_after_the_offer_and_nothing_is_written_by_two() {
        let directory = Directory::new("over");
        let old = open(&directory, WORDS, &Roots::default()).unwrap();
        put(&old, 1);
        old.layers().flush().unwrap();
        put(&old, 2);
        let before = std::fs::read(directory.at("a")).unwrap();
        let new = open(&directory, WORDS, &offered(&old)).unwrap();
        assert!(
            std::fs::read(directory.at("a")).unwrap() == before,
            "it has written to the top that another server has"
        );
        assert_eq!(places(&new), [Place::Below(0); 8], "it has read the map");
        put(&old, 3);
        old.layers().flush().unwrap();
        old.layers().own.set(5..6, BlockState::Zero);
        handed_on(&old, &new).unwrap();
        let all = [0, 1, 1, 1, 0, 2, 0, 0].map(|one| [Place::Below(0), Place::Top, Place::Nowhere][one]);
        assert_eq!(places(&new), all);
        std::mem::forget(old);
        put(&new, 7);
        new.layers().flush().unwrap();
        std::mem::forget(new);
        // Its lock is another server's: a copy is read.
        std::fs::copy(directory.at("a"), directory.at("b")).unwrap();
        let again = open(&directory, "base=base,top=b", &Roots::default()).unwrap();
        assert_eq!(places(&again)[..7], all[..7]);
        assert_eq!(places(&again)[7], Place::Top);
    }

    /// over.1
    #[test]
    fn what_is_told_of_another_top_or_not_at_all_is_refused() {
        let directory = Directory::new("over-other");
        let old = open(&directory, WORDS, &Roots::default()).unwrap();
        let other = open(&directory, "base=base,top=b", &Roots::default()).unwrap();
        let new = open(&directory, WORDS, &offered(&old)).unwrap();
        assert!(handed_on(&other, &new).unwrap_err().contains("another top"));
        assert!(take_on(&new, &mut Record::default(), &[]).unwrap_err().contains("not told"));
        put(&old, 1);
        let mut bytes = tell(&old, &mut Record::default()).unwrap();
        bytes[BLOCK as usize + 1 + 2000] ^= 1;
        assert!(take_on(&new, &mut Record::default(), &bytes).unwrap_err().contains("checksum"));
        bytes.pop();
        assert!(take_on(&new, &mut Record::default(), &bytes).is_err());
        let Err(why) = open(&directory, "base=base,top=c", &offered(&old)) else { panic!("it is made beside") };
        assert!(why.contains("is not there") && !directory.at("c").exists(), "{why}");
    }

    /// over.1: a flush that writes the map is under way, and was answered as timed out.
    #[test]
    fn a_map_that_is_being_written_is_not_told() {
        let directory = Directory::new("over-timed-out");
        let old = open(&directory, WORDS, &Roots::default()).unwrap();
        for blocks in [MAP, 1..2] {
            assert!(lock(&old.claims).claim(blocks.clone(), (ContextId(0), Tag(0))));
            let why = tell(&old, &mut Record::default()).unwrap_err();
            assert!(why.contains("timed out"), "{why}");
            lock(&old.claims).release(&blocks);
        }
        assert!(tell(&old, &mut Record::default()).is_ok());
    }

    /// over.3
    #[test]
    fn a_chain_that_becomes_one_top_after_the_offer_is_one_at_the_new_server() {
        let directory = Directory::new("over-flat");
        let old = open(&directory, WORDS, &Roots::default()).unwrap();
        put(&old, 1);
        fork::freeze(&old, &|_, _| (), &Roots::default()).unwrap();
        let new = open(&directory, WORDS, &offered(&old)).unwrap();
        assert_eq!(new.layers().below.files.len(), 2);
        put(&old, 1); // as it is copied
        assert_eq!(rest_on_base(&old, &|_, _| (), || ()), Ok(true));
        handed_on(&old, &new).unwrap();
        assert_eq!((new.layers().below.files.len(), places(&new)[1]), (1, Place::Top));
        assert!(!new.is_deep.load(Ordering::Acquire));
    }
}
