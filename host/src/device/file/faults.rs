//! Faults: what is said of them in the log, and kept for whoever watches events.
//!
//! faults.1  The first request that fails in some way is a line; those that follow in the same way are counted, and told with the
//!           next line, at most one a minute. What is a line is an event too; the latest are kept until somebody asks.
//! faults.2  That a file was deleted or cut is said once, when it is noticed; and that it is as long as it was again.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use fairlift_core::{Duration, Errno, Instant, Op};

use crate::clock;
use crate::device::Fault;

/// How long a fault that was told is not told again. Chosen: a log of a bad night is a few hundred lines.
const QUIET: Duration = fairlift_core::time::secs(60);

/// How many events are kept. Chosen: each is another way to fail, or a minute later.
const KEPT: usize = 64;

/// What was told of a file.
#[derive(Default)]
pub(in crate::device) struct Faults(Mutex<Told>);

#[derive(Default)]
struct Told {
    /// In which ways requests failed, when that was told, and how often since.
    ways: Vec<(Op, Errno, Instant, u64)>,
    /// What was told in the log, and not taken.
    kept: VecDeque<Fault>,
    deleted: bool,
    cut: bool,
}

impl Told {
    /// Whether a failure is to be told (faults.1); then, how many were not since the last.
    fn failed(&mut self, now: Instant, op: Op, errno: Errno) -> Option<u64> {
        match self.ways.iter_mut().find(|(o, e, ..)| (*o, *e) == (op, errno)) {
            Some((.., last, untold)) if now.since(*last) < QUIET => {
                *untold += 1;
                None
            }
            Some((.., last, untold)) => {
                *last = now;
                Some(std::mem::take(untold))
            }
            None => {
                self.ways.push((op, errno, now, 0));
                Some(0)
            }
        }
    }
}

impl Faults {
    pub(in crate::device) fn failed(&self, path: &Path, op: Op, errno: Errno) {
        let mut told = self.told();
        let Some(untold) = told.failed(clock::now(), op, errno) else { return };
        if told.kept.len() == KEPT {
            told.kept.pop_front();
        }
        told.kept.push_back(Fault { op, errno, more: untold });
        drop(told);
        let error = io::Error::from_raw_os_error(errno.0);
        let what = match op {
            Op::Read => "a read failed",
            Op::Write => "a write failed",
            Op::Discard => "a discard failed",
            Op::WriteZeroes => "writing zeroes failed",
            Op::Flush => "a flush failed: what was written since the one before may be lost",
        };
        let more = if untold > 0 { format!(" ({untold} more since the last line)") } else { String::new() };
        tracing::error!(path = %path.display(), %error, "{what}{more}");
    }

    pub(in crate::device) fn take(&self) -> VecDeque<Fault> {
        std::mem::take(&mut self.told().kept)
    }

    /// faults.2
    pub(super) fn looked(&self, path: &Path, wanted: u64, size: u64, names: u32) {
        let mut told = self.told();
        let path = path.display();
        if names == 0 && !std::mem::replace(&mut told.deleted, true) {
            tracing::warn!(
                %path,
                "deleted, or replaced by another file of that name, while it is served: it is served on, and is gone when the server ends"
            );
        }
        let cut = size < wanted;
        match (std::mem::replace(&mut told.cut, cut), cut) {
            (false, true) => tracing::error!(
                %path,
                "cut to {size} bytes while it is served, of {wanted}: reads beyond fail until it is as long again"
            ),
            (true, false) => tracing::info!(%path, "as long as it was again; what was cut off reads as zeroes"),
            (true, true) | (false, false) => {}
        }
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use fairlift_core::time::secs;

    use super::*;

    /// faults.1
    #[test]
    fn a_fault_is_a_line_a_minute_however_many_requests_meet_it() {
        let mut told = Told::default();
        let mut lines = Vec::new();
        for n in 0..1300 {
            let now = Instant::ZERO + Duration::from_nanos(secs(1).as_nanos() / 10 * n);
            lines.extend(told.failed(now, Op::Write, Errno::ENOSPC));
        }
        assert_eq!(lines, [0, 599, 599]);
        assert_eq!(told.failed(Instant::ZERO + secs(130), Op::Read, Errno::ENOSPC), Some(0), "another way to fail");
    }
}
