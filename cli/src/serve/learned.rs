//! Learned state, kept for the server that is started after this one: in a file (`learned`), or in memory that systemd holds.
//!
//! learned.1  The server writes it every second, so that a second of it is lost at most, whatever ends the server. Counters are not in it.
//! learned.2  There are two places for it, written in turn. The head of a place is cleared before its text is written, and written after it. So a server
//!            that is killed in between leaves the text before. A power cut may leave neither: then the next server begins anew. A file has the mark of
//!            a head from its first byte on, or is somebody else's; it is locked, and an upgrade hands it over with its lock.
//! learned.3  systemd is handed a file in memory once, and passes it to the next server under a name of ours. Where it keeps none
//!            (`FileDescriptorStoreMax`), nothing is said, and nothing is kept.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use fairlift::{Handle, Server};
use fairlift_core::record::Record;
use rustix::fs::{MemfdFlags, memfd_create};

use super::systemd;

/// The name by which systemd knows it.
pub(super) const NAME: &str = "fairlift-learned";
/// The name by which a file goes over to a server that takes over.
const FILE: &str = "fairlift-learned-file";
/// The most that a place holds. Chosen: 10,000 tenants take some 2 MiB. Bytes that were never written take no room.
const PLACE: u64 = 16 << 20;
/// Where the text begins in a place.
const TEXT: u64 = 4096;
/// A head: this, the text's length, its number, and when it was written, in nanoseconds since 1970.
const MAGIC: &[u8; 8] = b"FLlearn1";
const HEAD: usize = 32;
const EVERY: Duration = Duration::from_secs(1);

pub(super) struct Kept {
    file: File,
    is_in_memory: bool,
    next: u64,
    last: String,
}

/// Written as [`Kept::head`] reads it.
fn head(numbers: [u64; 3]) -> Vec<u8> {
    let [len, number, at] = numbers.map(u64::to_le_bytes);
    [*MAGIC, len, number, at].concat()
}

/// One without a text: texts are numbered from 1.
fn cleared() -> Vec<u8> {
    head([0; 3])
}

impl Kept {
    /// In this file, or the one that was passed; a server that takes over from none asks systemd to keep one. `None`: nowhere.
    pub(super) fn open(path: Option<&Path>, passed: Option<File>, is_first: bool) -> Result<Option<Self>, String> {
        if let Some(path) = path {
            return at_path(path, passed).map(Some).map_err(|why| format!("{}: {why}", path.display()));
        }
        let file = passed.or_else(|| is_first.then(in_memory).flatten());
        Ok(file.map(|file| Self { file, is_in_memory: true, next: 1, last: String::new() }))
    }

    /// Why it could not be opened: nothing is made or written.
    pub(super) fn check(path: &Path) -> Result<(), String> {
        let done = match opened(path, false) {
            Ok(file) => is_free(&file),
            Err(why) if why.kind() == io::ErrorKind::NotFound => can_be_made(path),
            Err(why) => Err(why.to_string()),
        };
        done.map_err(|why| format!("{}: {why}", path.display()))
    }

    /// The name by which a server with this file, or without one, is handed what keeps it.
    pub(super) fn handed_as(path: Option<&Path>) -> &'static str {
        if path.is_some() { FILE } else { NAME }
    }

    /// The lock on it, for a server that takes over from this one.
    pub(super) fn hand_over(&self) -> Option<(&'static str, OwnedFd)> {
        let file = self.file.try_clone().ok()?;
        Some((if self.is_in_memory { NAME } else { FILE }, file.into()))
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
        heads.sort_by_key(|(_, [_, number, _])| *number);
        self.next = heads.last().map_or(1, |(_, [_, number, _])| number.saturating_add(1));
        heads.into_iter().rev().find_map(|(place, [len, _, at])| {
            let mut text = vec![0; len as usize];
            self.file.read_exact_at(&mut text, place * PLACE + TEXT).ok()?;
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
            Some((String::from_utf8(text).ok()?, now.saturating_sub(Duration::from_nanos(at))))
        })
    }

    /// The length of a text, its number, and when it was written.
    fn head(&self, place: u64) -> Option<[u64; 3]> {
        let head = bytes_of_head(&self.file, place)?;
        let &[magic, len, number, at] = head.as_chunks().0 else { return None };
        let [len, number, at] = [len, number, at].map(u64::from_le_bytes);
        (magic == *MAGIC && number > 0 && len <= PLACE - TEXT).then_some([len, number, at])
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
        self.file.write_all_at(&cleared(), place)?;
        self.file.write_all_at(text.as_bytes(), place + TEXT)?;
        self.file.write_all_at(&head([text.len() as u64, self.next, at]), place)?;
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

fn bytes_of_head(file: &File, place: u64) -> Option<[u8; HEAD]> {
    let mut head = [0; HEAD];
    file.read_exact_at(&mut head, place * PLACE).ok()?;
    Some(head)
}

fn opened(path: &Path, create: bool) -> io::Result<File> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    let mut options = File::options();
    options.read(true).write(true).create(create).truncate(false).mode(0o600).custom_flags(flags).open(path)
}

/// A file that is empty or not there yet, or that a server has written; the one that was passed if that is it, as its lock is ours.
fn at_path(path: &Path, passed: Option<File>) -> Result<Kept, String> {
    let fail = |why: io::Error| why.to_string();
    let mut file = opened(path, true).map_err(fail)?;
    let is = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
    match passed {
        Some(passed) if is(&passed).map_err(fail)? == is(&file).map_err(fail)? => file = passed,
        _ => is_free(&file)?,
    }
    if file.metadata().map_err(fail)?.len() == 0 {
        file.write_all_at(&cleared(), 0).and_then(|()| file.sync_data()).map_err(fail)?;
    }
    Ok(Kept { file, is_in_memory: false, next: 1, last: String::new() })
}

/// Takes the lock of a file that is empty, or that a server has written.
fn is_free(file: &File) -> Result<(), String> {
    let metadata = file.metadata().map_err(|why| why.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file; learned takes a file that the server makes".into());
    }
    let is_head = |head: [u8; HEAD]| head.starts_with(MAGIC);
    if metadata.len() > 0 && !(0..2).filter_map(|place| bytes_of_head(file, place)).any(is_head) {
        return Err("it is not the learned state of a server; learned takes a file that the server makes".into());
    }
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err("is in use by another server (it holds a lock on the file)".into()),
        // Some network file systems have no locks.
        Err(TryLockError::Error(why)) if why.kind() != io::ErrorKind::Unsupported => Err(why.to_string()),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Whether a file can be made in its directory.
fn can_be_made(path: &Path) -> Result<(), String> {
    use rustix::fs::{Access, access};
    let directory = path.parent().filter(|there| !there.as_os_str().is_empty()).unwrap_or(Path::new("."));
    access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(|why| io::Error::from(why).to_string())
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
        drop(first);
        let mut second = kept(&path);
        let (text, age) = second.read().unwrap();
        assert!(text == "two" && age < Duration::from_secs(60), "{text} {age:?}");
        // The next one goes where "one" was: its head is cleared, and some of the text is there.
        second.file.write_all_at(&cleared(), second.next % 2 * PLACE).unwrap();
        second.file.write_all_at(b"thr", second.next % 2 * PLACE + TEXT).unwrap();
        drop(second);
        let mut third = kept(&path);
        assert_eq!(third.read().unwrap().0, "two");
        third.write("three".into()).unwrap();
        drop(third);
        let mut last = kept(&path);
        assert_eq!(last.read().unwrap().0, "three");
        assert!(last.write("x".repeat(PLACE as usize)).is_err());
    }

    /// learned.2
    #[test]
    fn a_file_is_one_servers_and_goes_over_with_its_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("learned");
        Kept::check(&path).unwrap();
        assert!(!path.exists(), "a check makes nothing");
        let first = kept(&path);
        for why in [Kept::open(Some(&path), None, true).err().unwrap(), Kept::check(&path).unwrap_err()] {
            assert!(why.ends_with("is in use by another server (it holds a lock on the file)"), "{why}");
        }
        let (name, handed) = first.hand_over().unwrap();
        assert_eq!(name, Kept::handed_as(Some(&path)));
        let second = Kept::open(Some(&path), Some(handed.into()), false).unwrap();
        drop(first);
        assert!(Kept::check(&path).is_err(), "the second has the lock");
        drop(second);
        Kept::check(&path).unwrap();
        let why = Kept::check(&directory.path().join("none/learned")).unwrap_err();
        assert!(why.ends_with("none/learned: No such file or directory (os error 2)"), "{why}");
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
        // A file system can begin with zeroes.
        let image = [vec![0; 1024], vec![7; 3072]].concat();
        std::fs::write(&path, &image).unwrap();
        for why in [Kept::open(Some(&path), None, true).err().unwrap(), Kept::check(&path).unwrap_err()] {
            assert!(why.contains("not the learned state"), "{why}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), image);
    }
}
