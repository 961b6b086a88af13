//! Faults: lines in the log, kept for those that watch events.
//!
//! faults.1  The first request that fails in some way is a line; those that follow in the same way are counted, and told with the next
//!           line, at most one a minute. Each line is an event too; the latest are kept until a client asks.
//! faults.2  That a file was deleted or cut is said once, when it is noticed; and once when it has its length again.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use fairlift_core::{Errno, Op};

use crate::clock;
use crate::device::Fault;
use crate::quiet::{self, Quiet};
use crate::sync::{Mutex, lock};

/// How many events are kept. Chosen: each is another way to fail, or a minute later.
const KEPT: usize = 64;

/// The messages logged for a file.
#[derive(Default)]
pub(in crate::device) struct Faults(Mutex<FaultLog>);

#[derive(Default)]
struct FaultLog {
    /// In which ways requests failed (faults.1).
    ways: Quiet<(Op, Errno)>,
    /// The faults logged and not fetched.
    kept: VecDeque<Fault>,
    deleted: bool,
    cut: bool,
}

impl Faults {
    pub(in crate::device) fn failed(&self, path: &Path, op: Op, errno: Errno) {
        let mut reports = lock(&self.0);
        let Some(untold) = reports.ways.tell(clock::now(), (op, errno)) else { return };
        if reports.kept.len() == KEPT {
            reports.kept.pop_front();
        }
        reports.kept.push_back(Fault { op, errno, more: untold });
        drop(reports);
        let error = io::Error::from_raw_os_error(errno.0);
        let what = match op {
            Op::Read => "a read failed",
            Op::Write => "a write failed",
            Op::Discard => "a discard failed",
            Op::WriteZeroes => "writing zeroes failed",
            Op::Flush => "a flush failed: the writes since the one before may be lost",
        };
        tracing::error!(path = %path.display(), %error, "{what}{}", quiet::more(untold));
    }

    pub(in crate::device) fn take(&self) -> VecDeque<Fault> {
        std::mem::take(&mut lock(&self.0).kept)
    }

    /// faults.2
    pub(super) fn looked(&self, path: &Path, wanted: u64, size: u64, names: u32) {
        let mut reports = lock(&self.0);
        let path = path.display();
        if names == 0 && !std::mem::replace(&mut reports.deleted, true) {
            tracing::warn!(
                %path,
                "deleted or replaced while it is served: the old file is served until the server ends, and is then lost"
            );
        }
        let cut = size < wanted;
        match (std::mem::replace(&mut reports.cut, cut), cut) {
            (false, true) => tracing::error!(
                %path,
                "cut to {size} bytes while it is served, of {wanted}: reads beyond that fail until it has its full size again"
            ),
            (true, false) => {
                tracing::info!(%path, "has its full size again; the part that was cut off reads as zeroes")
            }
            (true, true) | (false, false) => {}
        }
    }
}
