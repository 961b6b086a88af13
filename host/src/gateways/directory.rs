//! Reports in a directory that all gateways see: a local one in a test, else one of a shared file system.
//!
//! directory.1  A gateway's report is the file `NAME.report`. It is written whole beside it and renamed, so that no reader sees a part.
//! directory.2  A file that is not a report's by its name is not looked at; one that is longer than [`LONGEST`] is read no further.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::Carrier;
use crate::config::check_gateway;

const ENDING: &str = ".report";
/// The longest report that is read. Chosen: some 30,000 groups; a file that somebody else put there does not fill the memory.
const LONGEST: u64 = 8 << 20;

pub(super) struct Directory {
    path: PathBuf,
}

impl Directory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match fs::metadata(path)?.is_dir() {
            true => Ok(Self { path: path.to_owned() }),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }
}

impl Carrier for Directory {
    /// directory.1
    fn write(&mut self, gateway: &str, report: &[u8]) -> io::Result<()> {
        let beside = self.path.join(format!("{gateway}.{}.new", std::process::id()));
        let place = self.path.join(format!("{gateway}{ENDING}"));
        let written = File::create(&beside).and_then(|mut file| file.write_all(report));
        written.and_then(|()| fs::rename(&beside, place)).inspect_err(|_| {
            let _ = fs::remove_file(&beside); // The first failure is told.
        })
    }

    /// directory.2
    fn read(&mut self) -> io::Result<Vec<(String, Vec<u8>)>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let Some(gateway) = name.to_str().and_then(|name| name.strip_suffix(ENDING)) else { continue };
            if check_gateway(gateway).is_err() {
                continue;
            }
            match File::open(self.path.join(&name)) {
                Ok(file) => {
                    let mut report = Vec::new();
                    file.take(LONGEST).read_to_end(&mut report)?;
                    all.push((gateway.to_owned(), report));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {} // It was taken away meanwhile.
                Err(error) => return Err(error),
            }
        }
        all.sort();
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that goes with the test.
    struct There(PathBuf);

    impl There {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("fairlift-gateways-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for There {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// directory.1, directory.2
    #[test]
    fn each_gateway_has_its_latest_report_and_other_files_are_none() {
        let there = There::new("reports");
        let mut one = Directory::open(&there.0).unwrap();
        let mut two = Directory::open(&there.0).unwrap();
        one.write("gw1", b"old").unwrap();
        one.write("gw1", b"new").unwrap();
        two.write("gw2", b"other").unwrap();
        fs::write(there.0.join("notes.txt"), "x").unwrap();
        fs::write(there.0.join(".report"), "x").unwrap();
        let all = [("gw1".to_owned(), b"new".to_vec()), ("gw2".to_owned(), b"other".to_vec())];
        assert_eq!(one.read().unwrap(), all);
        assert_eq!(two.read().unwrap(), all);
    }

    #[test]
    fn a_directory_that_is_not_there_is_refused() {
        let there = There::new("none");
        assert!(Directory::open(&there.0.join("none")).is_err());
        let file = there.0.join("file");
        fs::write(&file, "").unwrap();
        assert!(Directory::open(&file).is_err());
    }
}
