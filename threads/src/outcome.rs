//! How a call of the kernel ended, in the words of the queue.

use std::io;

use fairlift_core::{Errno, Outcome};

/// The meaning of an I/O error to the client.
pub fn errno(error: &io::Error) -> Errno {
    match error.kind() {
        // The file is shorter than it was.
        io::ErrorKind::UnexpectedEof => Errno::EIO,
        _ => error.raw_os_error().map_or(Errno::EIO, Errno),
    }
}

/// How a system call ended, as an outcome.
pub fn outcome(result: io::Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(error) => Outcome::Failed(errno(&error)),
    }
}
