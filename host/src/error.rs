//! Why a server could not start or go on.

use std::io;
use std::path::PathBuf;

/// Why a server could not start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A backing could not be opened or used.
    #[error("backing {what}: {why}")]
    Backing {
        /// The backing as the user wrote it.
        what: String,
        /// The mistake, and the remedy.
        why: String,
    },
    /// A directory in which files must lie cannot be used.
    #[error("root {}: {why}", path.display())]
    Root {
        /// The directory.
        path: PathBuf,
        /// The mistake.
        why: String,
    },
    /// An export cannot be what it is said to be.
    #[error("export \"{name}\": {why}")]
    Export {
        /// Its name.
        name: String,
        /// The mistake.
        why: String,
    },
    /// A disk cannot be set up as it is said to be.
    #[error("disk \"{name}\": {why}")]
    Disk {
        /// Its name.
        name: String,
        /// The mistake.
        why: String,
    },
    /// A listener could not be set up.
    #[error("cannot listen at {address}: {why}")]
    Listen {
        /// Where.
        address: String,
        /// The mistake.
        why: String,
    },
    /// The kernel refuses io_uring, which was asked for, or another need of a worker.
    #[error(
        "io_uring is not available ({0}): it needs Linux 6.1 or newer, kernel.io_uring_disabled = 0, and no seccomp \
         filter against it (containers often have one); with engine = \"auto\" the server does without"
    )]
    Ring(io::Error),
    /// A thread of the server cannot be made.
    #[error(
        "a worker's thread cannot be made: {0} (limits are ulimit -u, TasksMax of the service, pids.max of the cgroup)"
    )]
    Thread(io::Error),
    /// The last flush, before the end, failed, or one before it had: data that was not flushed by a client may be lost.
    #[error("a flush of {path} failed, and the writes before it may be lost: {source}")]
    LastFlush {
        /// The backing.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A worker stopped with requests in flight that the kernel does not give back.
    #[error("{0} requests were still in the device when the time to drain was over")]
    Undrained(usize),
}
