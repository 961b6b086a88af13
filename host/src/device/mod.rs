//! Devices: one file or folder for each kind of backing.
//!
//! A device has two sides. [`Device`] is common to all workers: its size, abilities and allocation. A [`Lane`] is one worker's path to it:
//! it takes requests, and answers them now or later. To add a kind: implement both and [`backing::BackingKind`] in a file or folder of its
//! own, and give it a row below.

pub(crate) mod backing;
mod by_threads;
mod fault;
mod file;
mod gather;
pub(crate) mod handed;
pub(crate) mod lane;
mod mail;
mod mem;
mod model;
mod nbd;
mod null;
pub(crate) mod overlay;
mod qcow2;
mod rbd;
pub(crate) mod roots;
mod untold;
#[cfg(test)]
pub(crate) mod volatile;

use std::collections::VecDeque;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fairlift_core::record::Record;
use fairlift_core::{Errno, Flags, Limits, Op, Outcome, Sector};
use vm_memory::VolatileSlice;

pub(crate) use backing::{Options, Sharing};
pub(crate) use file::{File, holder_of};
use handed::OpenFile;
pub(crate) use kinds::{Backing, Factory, Faults, LoadCertificates};
use lane::{Address, Lane, Tell};
use mem::Mem;

backing::backings! {
    null => Null(Null),
    mem => Mem(Ram),
    file::syntax => File(FileAt, FileAccess, Direct),
    model::syntax => Model(Sim, Factory),
    nbd::syntax => Nbd(Nbd, NbdAddress, NbdTls, LoadCertificates),
    rbd::syntax => Rbd(Rbd),
    overlay::syntax => Overlay(Layered, BaseAt),
    qcow2::syntax => Qcow2(Qcow2),
    fault::syntax => Fault(Faulty, Faults, Rule, Then),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    /// Its sectors, its block, and the longest requests that it shall be given.
    pub(crate) limits: Limits,
    /// Its size in bytes. A file may end within its last sector: the rest of that reads as zeroes, and is not written.
    pub(crate) size: u64,
    /// Which physical device it is on: backings with the same one share a queue unless the config says otherwise.
    /// `None`: it shares with nobody.
    pub(crate) home: Option<u64>,
    /// Whether clients are told that they can flush. It does no harm where nothing is volatile; a model says what its disk
    /// would say.
    pub(crate) flush: bool,
    /// Whether it is known to have something that moves.
    pub(crate) rotational: bool,
    /// Whether what was written can be lost until it is flushed.
    pub(crate) volatile_cache: bool,
    /// Whether a write with FUA is durable when it ends.
    pub(crate) fua: bool,
    /// Whether it cannot be written, whoever asks.
    pub(crate) read_only: bool,
    /// Whether its data lies in memory, with no disk below.
    pub(crate) in_ram: bool,
    /// Whether threads must wait for it.
    pub(crate) needs_helpers: bool,
}

impl Facts {
    /// Of a device that takes everything, and is RAM.
    pub(crate) const fn plain(size: u64) -> Self {
        let limits = Limits::new(size.div_ceil(Sector::SIZE));
        Self {
            limits,
            size,
            home: None,
            flush: true,
            rotational: false,
            volatile_cache: false,
            fua: true,
            read_only: false,
            in_ram: false,
            needs_helpers: false,
        }
    }

    /// The smallest request, in bytes: all start and end on its multiples.
    pub(crate) const fn block(&self) -> u32 {
        self.limits.block * Sector::SIZE as u32
    }
}

/// A run of a backing, as block status tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// Bytes.
    pub(crate) len: u64,
    /// Not allocated; reads as zeroes.
    pub(crate) hole: bool,
}

/// By what a file is known again that nobody is to write: its size in bytes, and when it was changed last, in seconds and nanoseconds.
pub(crate) type Stamp = (u64, (i64, u32));

/// A device that answers at once, so that nothing is gained by going through the ring.
///
/// Ranges lie within the device; the caller has checked.
pub(crate) trait Inline {
    fn read(&self, at: u64, into: VolatileSlice<'_>) -> Outcome;
    fn write(&self, at: u64, from: VolatileSlice<'_>, flags: Flags) -> Outcome;
    fn flush(&self) -> Outcome {
        Outcome::Done
    }
    fn discard(&self, at: u64, len: u64) -> Outcome;
    fn write_zeroes(&self, at: u64, len: u64, flags: Flags) -> Outcome;
}

/// The bytes of a layer, by the thread that calls, however long that takes. Memory begins on a page; places and lengths are whole blocks.
/// A store is only read, unless it has the methods that write.
pub(crate) trait Store: Send + Sync {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    /// Where the next data begins, at or after a byte; `None`: there is none.
    fn next_data(&self, at: u64) -> Option<u64> {
        Some(at)
    }
    fn write_at(&self, _from: &[u8], _at: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    /// The same, with the file's time of change.
    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }
    /// Bytes read as zeroes from now on, and take no room where that can be.
    fn zero(&self, _at: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    /// Bytes are read by nobody any more, and take no room where that can be.
    fn discard(&self, _at: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// The store is only read from now on, and others may read it: through the page cache unless it stays `direct`.
    fn becomes_base(&self, _direct: bool) {}
    fn file(&self) -> Option<&fs::File> {
        None
    }
}

/// A layer of an overlay: lanes serve it, and threads.
pub(crate) trait Layer: Store + Device {}

impl<T: Store + Device> Layer for T {}

/// A request that failed, told once for many of its kind.
pub(crate) struct Fault {
    pub(crate) op: Op,
    pub(crate) errno: Errno,
    /// The number of equal failures since the last message.
    pub(crate) more: u64,
}

/// Something that holds data: one for all workers.
pub(crate) trait Device: Send + Sync {
    fn facts(&self) -> Facts;

    /// The foreign format that it begins as (a qcow2, a LUKS container), without a declaration that it is raw, and the remedy.
    fn foreign(&self) -> Option<&str> {
        None
    }

    /// The default name of its disk.
    fn called(&self) -> String;

    fn lane(self: Arc<Self>, address: Address) -> Box<dyn Lane>;

    /// Whether it is somewhere else: its connections are shared out among all workers, so that each has a lane of it before a client comes. Its
    /// lanes tell what is allocated ([`Lane::map`]), because that takes time; it is not asked for a [`run`](Self::run).
    fn is_remote(&self) -> bool {
        false
    }

    /// The files by which another server serves what it is, while this one lives: their locks go with them. One without a name comes first.
    ///
    /// # Errors
    /// Why no other server can: a phrase that follows its name.
    fn hand_over(self: Arc<Self>) -> Result<Vec<OpenFile>, String> {
        Err("has a state in this server's memory that cannot be handed over yet".into())
    }

    /// The sockets by which another server goes on with a remote backing, for the offer; in `says` its `name`, and their negotiated state.
    fn links(&self, _says: &mut Record) -> Vec<OpenFile> {
        Vec::new()
    }

    /// Its state in this server's memory, for another server, which has the files already: in `says`, and as bytes. Nothing is asked of it
    /// meanwhile, nor afterwards.
    ///
    /// # Errors
    /// Why no other server can go on with it now.
    fn hand_on(&self, _says: &mut Record) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    /// Goes on where the one was that has told this; nothing was asked of it before.
    ///
    /// # Errors
    /// The mistake in it, or that it is missing.
    fn take_on(&self, _says: &mut Record, _bytes: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// The server that has handed it over has ended: what that held for its life alone is held here from now on.
    fn has_gone_over(&self) -> bool {
        true
    }

    /// The process is about to end, and nothing is asked of it any more: ends what would outlive the process elsewhere.
    fn let_go(&self) {}

    /// The run of data or hole that starts at a byte, up to `len` bytes of it: at least one sector. Where that is not known all is data.
    fn run(&self, _at: u64, len: u64) -> io::Result<Run> {
        Ok(Run { len, hole: false })
    }

    /// The name under which it reports [`changed`](Self::changed) blocks, if it knows them.
    fn changes(&self) -> Option<&'static str> {
        None
    }

    /// The run that starts at a byte, up to `len` bytes of it: how long it is, and whether it was changed. A device that does not know says
    /// that all was.
    fn changed(&self, _at: u64, len: u64) -> (u64, bool) {
        (len, true)
    }

    /// The files that it is made of and only reads, as they are now; none: it is known by its name.
    fn stamps(&self) -> io::Result<Vec<Stamp>> {
        Ok(Vec::new())
    }

    /// Makes durable all that was written; blocks.
    fn flush_now(&self) -> io::Result<()> {
        Ok(())
    }

    /// Has what it is now be something that a fork can be made of, while it is written; what that is. `own`: the fork's own file, for a
    /// device that copies itself there. `tell` tells a worker that a lane is to look.
    fn freeze(&self, _tell: Tell<'_>, _roots: &roots::Roots, _own: &Path) -> Result<backing::NowBase, String> {
        Err("has become another one meanwhile, which cannot be forked".into())
    }

    /// Whether layers are to be flattened: asked once by the one that does it then.
    fn is_to_be_flattened(&self) -> bool {
        false
    }

    /// The next range at or after an offset for which a write with [`Flags::COPY_UP`](fairlift_core::Flags::COPY_UP) is to be made until it
    /// can be flattened: (start, length).
    fn next_to_copy_up(&self, _from: u64) -> Option<(u64, u64)> {
        None
    }

    /// Lays its highest layer over the lowest, if all that is between them was copied up; whether it was. `tell` as for a freeze.
    fn flatten(&self, _tell: Tell<'_>) -> Result<bool, String> {
        Ok(true)
    }

    /// Its present size in bytes, in case it was made larger without a word to us.
    fn look_at_size(&self) -> io::Result<u64> {
        Ok(self.facts().size)
    }

    /// Whether its size may be another one, as somebody has told since this was asked last; nothing is waited for.
    fn was_resized(&self) -> bool {
        false
    }

    /// It is from now on as large as [`look_at_size`](Self::look_at_size) has said, unless that is less.
    fn grow(&self, _size: u64) {}

    fn failed(&self, _op: Op, _errno: Errno) {}

    /// The failures since the last call, as far as they were logged.
    fn take_faults(&self) -> VecDeque<Fault> {
        VecDeque::new()
    }

    /// From now on its requests meet these faults, if it is a device that was opened with some.
    fn set_faults(&self, _faults: &Faults) {}

    /// Whether a discard gives anything back, as far as is known.
    fn can_discard(&self) -> bool {
        true
    }

    /// Whether zeroes are quicker made than written, as far as is known.
    fn can_zero_fast(&self) -> bool {
        true
    }

    /// The descriptor that rings shall know, if it has one.
    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    /// The path, for messages.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Whether nothing is between us and the data.
    fn is_direct(&self) -> bool {
        true
    }

    /// How it is connected, if it is somewhere else.
    fn link(&self) -> Option<Link> {
        None
    }
}

/// How a device that is somewhere else is connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Connections that there are.
    pub up: u16,
    /// And that there shall be.
    pub of: u16,
    /// Since when it is as it is.
    pub since: SystemTime,
    /// Why there are too few; empty if there are not.
    pub why: String,
    /// How many were lost since the start.
    pub lost: u64,
    /// There are writes that were answered, not flushed, and may be lost: the next flush fails.
    pub in_doubt: bool,
}

/// The first runs of a range of `len` bytes, at most `most`, each at its full length: `next(offset, max)` gives the run that begins at an
/// offset, up to a length.
pub(crate) fn runs(
    len: u64,
    most: usize,
    mut next: impl FnMut(u64, u64) -> io::Result<(u64, bool)>,
) -> io::Result<Vec<(u64, bool)>> {
    let mut runs: Vec<(u64, bool)> = Vec::new();
    let mut done = 0;
    while done < len {
        let (bytes, is) = next(done, len - done)?;
        assert!(bytes > 0 && bytes <= len - done, "a run of {bytes} in {}", len - done);
        done += bytes;
        let full = runs.len() == most;
        match runs.last_mut() {
            Some((last, was)) if *was == is => *last += bytes,
            _ if full => break,
            _ => runs.push((bytes, is)),
        }
    }
    Ok(runs)
}

/// Whether all bytes are zero: data shows by its first ones, as a rule.
#[inline]
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    match bytes.split_first_chunk::<16>() {
        Some((first, rest)) => u128::from_ne_bytes(*first) == 0 && *rest == bytes[..rest.len()],
        None => bytes.iter().all(|byte| *byte == 0),
    }
}

/// The home of devices that are no files: the same for the same words.
fn home(words: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    hasher.finish() | 1 << 63 // no file's
}
