//! Learned state, kept for the server that is started after this one: in a file (`learned`), or in memory that systemd holds.
//!
//! learned.1  The server writes it every second, so that a second of it is lost at most, whatever ends the server. Counters are not in it.
//! learned.2  There are two places for it, written in turn. The head of a place is cleared before its text is written, and written after it. So a server
//!            that is killed in between leaves the text before. A power cut may leave neither: then the next server begins anew.
//! learned.3  systemd is handed a file in memory once, and passes it to the next server under a name of ours. Where it keeps none
//!            (`FileDescriptorStoreMax`), nothing is said, and nothing is kept.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use fairlift::{Handle, Server};
use fairlift_core::record::Record;
use rustix::fs::{MemfdFlags, memfd_create};

use super::systemd;

/// The name by which systemd knows it.
pub(super) const NAME: &str = "fairlift-learned";
/// The most that a place holds. Chosen: 10,000 tenants take some 2 MiB. Bytes that were never written take no room.
const PLACE: u64 = 16 << 20;
/// Where the text begins in a place.
const TEXT: u64 = 4096;
/// A head: this, the text's length, its number, and when it was written, in nanoseconds since 1970.
const MAGIC: &[u8; 8] = b"FLlearn1";
const HEAD: usize = 32;
/// How often it is written.
const EVERY: Duration = Duration::from_secs(1);

/// Where it is kept.
pub(super) struct Kept {
    file: File,
    is_in_memory: bool,
    next: u64,
    last: String,
}

struct PlaceHead {
    len: u64,
    number: u64,
    at: u64,
}

impl Kept {
    /// In this file, or the one that was passed; a server that takes over from none asks systemd to keep one. `None`: nowhere.
    pub(super) fn open(path: Option<&Path>, passed: Option<File>, is_first: bool) -> Result<Option<Self>, String> {
        if let Some(path) = path {
            return at_path(path).map(Some).map_err(|why| format!("{}: {why}", path.display()));
        }
        let file = passed.or_else(|| is_first.then(in_memory).flatten());
        Ok(file.map(|file| Self { file, is_in_memory: true, next: 1, last: String::new() }))
    }

    /// The memory that systemd holds, for a server that takes over from this one.
    pub(super) fn memory(&self) -> Option<OwnedFd> {
        self.is_in_memory.then(|| self.file.try_clone().ok().map(OwnedFd::from)).flatten()
    }

    /// Has a server begin with the saved knowledge, if there is some.
    pub(super) fn tell(&mut self, server: &Server) {
        let Some((text, age)) = self.read() else { return };
        let record = match Record::parse(&text) {
            Ok(record) => record,
            Err(why) => {
                return tracing::warn!(%why, "the previous server's learned state cannot be read: this server begins without it");
            }
        };
        let nanos = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let left_out = server.take_on(record, fairlift_core::Duration::from_nanos(nanos));
        left_out
            .iter()
            .for_each(|why| tracing::info!(%why, "a part of the previous server's learned state is left out"));
        tracing::info!("begins with the state that a server had learned {:.1} s ago", age.as_secs_f64());
    }

    /// The latest text, and how old it is.
    fn read(&mut self) -> Option<(String, Duration)> {
        let mut heads: Vec<_> = (0..2).filter_map(|place| Some((place, self.head(place)?))).collect();
        heads.sort_by_key(|(_, head)| head.number);
        self.next = heads.last().map_or(1, |(_, head)| head.number.saturating_add(1));
        heads.into_iter().rev().find_map(|(place, head)| {
            let mut text = vec![0; head.len as usize];
            self.file.read_exact_at(&mut text, place * PLACE + TEXT).ok()?;
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
            Some((String::from_utf8(text).ok()?, now.saturating_sub(Duration::from_nanos(head.at))))
        })
    }

    fn head(&self, place: u64) -> Option<PlaceHead> {
        let head = self.bytes_of_head(place)?;
        let number = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let says = PlaceHead { len: number(8)?, number: number(16)?, at: number(24)? };
        (head.starts_with(MAGIC) && says.len <= PLACE - TEXT).then_some(says)
    }

    fn bytes_of_head(&self, place: u64) -> Option<[u8; HEAD]> {
        let mut head = [0; HEAD];
        self.file.read_exact_at(&mut head, place * PLACE).ok()?;
        Some(head)
    }

    /// Whether the file is a server's: a head is there, or one that is cleared.
    fn is_a_servers(&self) -> bool {
        let is_one = |head: [u8; HEAD]| head.starts_with(MAGIC) || head == [0; HEAD];
        (0..2).filter_map(|place| self.bytes_of_head(place)).any(is_one)
    }

    /// learned.2
    fn write(&mut self, text: String) -> io::Result<()> {
        if text == self.last {
            return Ok(());
        }
        if text.len() as u64 > PLACE - TEXT {
            return Err(io::Error::other(format!(
                "{} bytes are more than the {} that are kept",
                text.len(),
                PLACE - TEXT
            )));
        }
        let place = self.next % 2 * PLACE;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let mut head = [0; HEAD];
        self.file.write_all_at(&head, place)?;
        self.file.write_all_at(text.as_bytes(), place + TEXT)?;
        head[..8].copy_from_slice(MAGIC);
        for (to, number) in head[8..].chunks_exact_mut(8).zip([text.len() as u64, self.next, at]) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        self.file.write_all_at(&head, place)?;
        (self.next, self.last) = (self.next.saturating_add(1), text);
        Ok(())
    }

    /// Writes what this server learns, every second until it has ended (learned.1).
    pub(super) fn keep(mut self, handle: Handle) -> io::Result<()> {
        let work = move || {
            self.read(); // the server from which this one took over may have written since
            let mut has_failed = false;
            while let Some(record) = handle.hand_on(false) {
                if let Err(error) = self.write(record.to_string()) {
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!(%error, "the learned state is not kept for the next server");
                    }
                } else {
                    has_failed = false;
                }
                drop(record);
                std::thread::sleep(EVERY);
            }
        };
        std::thread::Builder::new().name("learned".into()).spawn(work).map(drop)
    }
}

/// A file that is empty or not there yet, or that a server has written.
fn at_path(path: &Path) -> Result<Kept, String> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags).open(path);
    let file = file.map_err(|why| why.to_string())?;
    let metadata = file.metadata().map_err(|why| why.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file; learned takes a file that the server makes".into());
    }
    let kept = Kept { file, is_in_memory: false, next: 1, last: String::new() };
    if metadata.len() > 0 && !kept.is_a_servers() {
        return Err("it is not the learned state of a server; learned takes a file that the server makes".into());
    }
    Ok(kept)
}

/// learned.3
fn in_memory() -> Option<File> {
    let memory = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC).ok()?);
    systemd::store(NAME, memory.as_fd()).then_some(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(path: &Path) -> Kept {
        Kept::open(Some(path), None, true).unwrap().unwrap()
    }

    /// learned.2
    #[test]
    fn a_server_that_is_killed_while_it_writes_leaves_the_text_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("learned");
        let mut first = kept(&path);
        assert!(first.read().is_none());
        first.write("one".into()).unwrap();
        first.write("two".into()).unwrap();
        let mut second = kept(&path);
        let (text, age) = second.read().unwrap();
        assert!(text == "two" && age < Duration::from_secs(60), "{text} {age:?}");
        // The next one goes where "one" was: its head is cleared, and some of the text is there.
        second.file.write_all_at(&[0; HEAD], second.next % 2 * PLACE).unwrap();
        second.file.write_all_at(b"thr", second.next % 2 * PLACE + TEXT).unwrap();
        let mut third = kept(&path);
        assert_eq!(third.read().unwrap().0, "two");
        third.write("three".into()).unwrap();
        assert_eq!(kept(&path).read().unwrap().0, "three");
        assert!(kept(&path).write("x".repeat(PLACE as usize)).is_err());
    }

    #[test]
    fn a_file_of_somebody_else_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("letter");
        std::fs::write(&path, "dear reader, this is no file of a server, and longer than a head of one").unwrap();
        let why = Kept::open(Some(&path), None, true).err().unwrap();
        assert!(why.contains("not the learned state"), "{why}");
        assert!(Kept::open(Some(directory.path()), None, true).is_err());
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("dear reader"));
    }
}
