//! What holds the data: one file for each kind of backing.

mod file;
pub(crate) mod helpers;
mod mem;
mod model;
mod null;

use std::io;
use std::path::Path;

use fairlift_core::{Duration, Errno, Flags, Limits, Op, Outcome, Sector};

use crate::Error;
use crate::config::Backing;

pub(crate) use file::{Act, File, is_unsupported};
pub(crate) use mem::Mem;
pub(crate) use model::{Modelled, asked};
pub(crate) use null::Null;

/// Something that holds data.
pub(crate) enum Device {
    Null(Null),
    Mem(Mem),
    File(File),
    Model(Modelled),
}

/// What is known of a backing when it has been opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    /// Its size, its block, and the longest requests that it shall be given.
    pub(crate) limits: Limits,
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
}

impl Facts {
    /// Of a device that takes everything, and is RAM.
    pub(crate) const fn plain(size: u64) -> Self {
        let limits = Limits::new(size / Sector::SIZE);
        Self { limits, home: None, flush: true, rotational: false, volatile_cache: false, fua: true }
    }

    /// Bytes.
    pub(crate) const fn size(&self) -> u64 {
        self.limits.capacity * Sector::SIZE
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

/// A device that answers at once, so that nothing is gained by going through the ring.
///
/// Ranges lie within the device; whoever calls has checked.
pub(crate) trait Inline {
    fn read(&self, at: u64, into: &mut [u8]) -> Outcome;
    fn write(&self, at: u64, from: &[u8], flags: Flags) -> Outcome;
    fn flush(&self) -> Outcome;
    fn discard(&self, at: u64, len: u64) -> Outcome;
    fn write_zeroes(&self, at: u64, len: u64, flags: Flags) -> Outcome;
}

impl Device {
    pub(crate) fn open(backing: &Backing, read_only: bool) -> Result<Self, Error> {
        Ok(match backing {
            Backing::Null { size, delay } => Self::Null(Null::new(*size, *delay)),
            Backing::Mem { size } => Self::Mem(Mem::new(*size)),
            Backing::Model { model, .. } => Self::Model(Modelled::new(model.build())),
            Backing::File { path, direct } => Self::File(File::open(path, *direct, read_only)?),
        })
    }

    pub(crate) fn facts(&self) -> Facts {
        match self {
            Self::Null(null) => null.facts(),
            Self::Mem(mem) => mem.facts(),
            Self::File(file) => file.facts(),
            Self::Model(model) => model.facts(),
        }
    }

    /// The device as one whose data moves at once, if it does.
    pub(crate) fn inline(&self) -> Option<&dyn Inline> {
        match self {
            Self::Null(null) => Some(null),
            Self::Mem(mem) => Some(mem),
            Self::File(file) => file.inline(),
            Self::Model(model) => Some(model.inline()),
        }
    }

    /// The model that says when a request ends, if one does.
    pub(crate) fn model(&self) -> Option<&Modelled> {
        match self {
            Self::Model(model) => Some(model),
            Self::Null(_) | Self::Mem(_) | Self::File(_) => None,
        }
    }

    /// How long an answer is held back.
    pub(crate) fn delay(&self) -> Duration {
        match self {
            Self::Null(null) => null.delay(),
            Self::Mem(_) | Self::File(_) | Self::Model(_) => Duration::ZERO,
        }
    }

    /// What is allocated in a range: the first runs, at most `most`, each as long as it is.
    pub(crate) fn map(&self, at: u64, len: u64, most: usize) -> io::Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        let mut done = 0;
        while done < len {
            let run = match self {
                Self::Null(_) => Run { len: len - done, hole: true },
                Self::Mem(mem) => mem.run(at + done, len - done),
                Self::File(file) => file.run(at + done, len - done)?,
                Self::Model(model) => model.data().run(at + done, len - done),
            };
            assert!(run.len > 0 && run.len <= len - done, "a run of {} in {}", run.len, len - done);
            done += run.len;
            let full = runs.len() == most;
            match runs.last_mut() {
                Some(last) if last.hole == run.hole => last.len += run.len,
                _ if full => break,
                _ => runs.push(run),
            }
        }
        Ok(runs)
    }

    /// Says that a range will be read soon.
    pub(crate) fn will_need(&self, at: u64, len: u64) {
        if let Self::File(file) = self {
            file.will_need(at, len);
        }
    }

    /// Makes durable all that was written; blocks.
    pub(crate) fn flush_now(&self) -> io::Result<()> {
        match self {
            Self::Null(_) | Self::Mem(_) | Self::Model(_) => Ok(()),
            Self::File(file) => file.flush_now(),
        }
    }

    /// Whether a discard gives anything back, as far as is known.
    pub(crate) fn can_discard(&self) -> bool {
        match self {
            Self::File(file) => file.can_discard(),
            Self::Null(_) | Self::Mem(_) | Self::Model(_) => true,
        }
    }

    /// Whether zeroes are quicker made than written, as far as is known.
    pub(crate) fn can_zero_fast(&self) -> bool {
        match self {
            Self::File(file) => file.can_zero_fast(),
            Self::Null(_) | Self::Mem(_) | Self::Model(_) => true,
        }
    }

    /// A request failed.
    pub(crate) fn failed(&self, op: Op, errno: Errno) {
        if let Self::File(file) = self {
            file.failed(op, errno);
        }
    }

    /// Whether threads must wait for it.
    pub(crate) fn needs_helpers(&self) -> bool {
        match self {
            Self::File(file) => file.needs_helpers(),
            Self::Null(_) | Self::Mem(_) | Self::Model(_) => false,
        }
    }

    /// The path, for messages.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Null(_) | Self::Mem(_) | Self::Model(_) => None,
            Self::File(file) => Some(file.path()),
        }
    }
}

/// What an I/O error means to who asked.
pub(crate) fn errno(error: &io::Error) -> Errno {
    match error.kind() {
        // The file is shorter than it was.
        io::ErrorKind::UnexpectedEof => Errno::EIO,
        _ => error.raw_os_error().map_or(Errno::EIO, Errno),
    }
}

/// How a system call ended, as an outcome.
pub(crate) fn outcome(result: io::Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(error) => Outcome::Failed(errno(&error)),
    }
}
