//! Where writes go: a file of our own, which has no name any more.
//!
//! scratch.1  An existing file is never opened: the scratch file is made anew, or not at all.
//! scratch.2  Its name is removed as soon as it is made. The kernel takes its blocks back, however the program ends.
//! scratch.3  It is filled before anything is measured: what was never written is not read from the disk, and is slower to write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fairlift_core::Duration as Time;
use fairlift_lab::Random;

use crate::syntax::units::show_size;

/// The least that is worth measuring in.
pub(crate) const LEAST: u64 = 64 << 20;
const BLOCK: usize = 1 << 20;

/// A file without a name.
#[derive(Debug)]
pub(crate) struct Scratch {
    file: File,
}

impl Scratch {
    /// Makes it, of `bytes` or as many as half of the free space, and can fill within `time`; `None` if `stop` said so.
    pub(crate) fn make(
        path: &Path,
        bytes: u64,
        time: Time,
        stop: impl FnMut() -> bool,
    ) -> Result<Option<Self>, String> {
        let shown = path.display();
        let fail = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                format!("{shown} exists already and is left alone; choose another with --scratch, or remove it")
            }
            _ => format!("{shown}: {error}"),
        };
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(fail)?; // scratch.1
        fs::remove_file(path).map_err(fail)?; // scratch.2
        let free = rustix::fs::fstatvfs(&file).map_err(|error| fail(error.into()))?;
        let free = free.f_bavail.saturating_mul(free.f_frsize);
        let bytes = bytes.min(free / 2) / BLOCK as u64 * BLOCK as u64;
        if bytes < LEAST {
            return Err(format!(
                "{shown}: a scratch file needs {} within half of the free space, and {} are free",
                show_size(LEAST),
                show_size(free >> 20 << 20)
            ));
        }
        Ok(fill(&file, bytes, time, stop).map_err(fail)?.then_some(Self { file }))
    }

    /// How much of it was filled.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.metadata().map_or(LEAST, |metadata| metadata.len())
    }

    /// How it is opened again, by other processes too.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}

/// Writes up to the given number of bytes, and no longer than `time` once there is enough (scratch.3); whether it was not stopped.
fn fill(mut file: &File, bytes: u64, time: Time, mut stop: impl FnMut() -> bool) -> io::Result<bool> {
    let limit = Duration::from_nanos(time.as_nanos());
    let start = Instant::now();
    let mut random = Random::new(1);
    let mut block = vec![0; BLOCK];
    let mut done = 0;
    while done < bytes && (done < LEAST || start.elapsed() < limit) {
        if stop() {
            return Ok(false);
        }
        for part in block.chunks_exact_mut(8) {
            part.copy_from_slice(&random.bits().to_le_bytes()); // nothing that a disk could compress
        }
        file.write_all(&block)?;
        done += BLOCK as u64;
        if done.is_multiple_of(16 << 20) {
            file.sync_data()?;
        }
    }
    file.sync_all()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::time::secs;

    /// scratch.1
    #[test]
    fn a_file_that_is_there_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.iostune");
        fs::write(&path, "kept").unwrap();
        let refusal = Scratch::make(&path, LEAST, secs(1), || false).unwrap_err();
        assert!(refusal.contains("exists already and is left alone"), "{refusal}");
        assert_eq!(fs::read_to_string(path).unwrap(), "kept");
    }

    /// scratch.2, scratch.3
    #[test]
    fn it_has_data_and_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.iostune");
        let scratch = Scratch::make(&path, LEAST, secs(9), || false).unwrap().unwrap();
        assert!(!path.exists());
        assert_eq!(fs::metadata(scratch.path()).unwrap().len(), LEAST);
        assert!(Scratch::make(&path, LEAST, secs(9), || true).unwrap().is_none(), "stopped");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
