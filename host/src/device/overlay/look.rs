//! Looking at a top: its properties, and its faults. Nothing is changed, and nothing locked.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::commit::under_way;
use super::files::{Below, DEPTH_MAX, for_each_page, is_top, known, raw, read_header};
use super::format::{Fingerprint, Header, SLOTS, Slots, file_len};
use super::map::Own;
use crate::device::Store as _;
use crate::device::file::syntax::Direct;
use crate::device::roots::Roots;

/// The description of a top.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopInfo {
    /// Its header.
    pub header: Header,
    /// Blocks of 4 KiB that are data in it.
    pub data: u64,
    /// And that read as zeroes, whatever is below.
    pub zeroes: u64,
    /// Bytes that it takes on its file system.
    pub takes: u64,
    /// The layers below it, from the nearest to the base.
    pub below: Vec<PathBuf>,
    /// The fault.
    pub findings: Vec<Finding>,
}

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The fault.
    pub what: String,
    /// Whether the overlay is refused for it.
    pub is_fatal: bool,
}

/// Looks at a top, all of its map, and the files below it.
///
/// # Errors
/// It cannot be read, or has no whole header.
pub fn look(path: &Path) -> Result<TopInfo, String> {
    let fail = |why: String| format!("{}: {why}", path.display());
    let file = fs::File::open(path).map_err(|error| fail(error.to_string()))?;
    let (header, torn) = read_header(&file).map_err(fail)?;
    let mut findings = Vec::new();
    let mut found = |what: String, is_fatal: bool| findings.push(Finding { what, is_fatal });
    if let Some((slot, why)) = torn {
        found(format!("header: slot {} was being written at a crash ({why}); the other counts", SLOTS[slot]), false);
    }
    let own = Own::new(header.size);
    for_each_page(&file, &header, |index, slots| {
        match slots {
            Err(why) => found(format!("page {index} of the map: {why}"), true),
            Ok(Slots { counts, torn }) => {
                if let Some((slot, why)) = torn {
                    let what = match header.clean {
                        true => format!(": {why}"),
                        false => format!(" was being written at a crash ({why}); the other counts"),
                    };
                    found(format!("page {index} of the map: slot {}{what}", SLOTS[slot]), header.clean);
                }
                counts.iter().for_each(|page| own.load(page));
            }
        }
        Ok(())
    })?;
    let metadata = file.metadata().map_err(|error| fail(error.to_string()))?;
    if metadata.len() < file_len(header.size) {
        found(format!("the file has {} bytes, of {}: the rest is lost", metadata.len(), file_len(header.size)), true);
    }
    let (mut below, mut at) = (Vec::new(), path.to_owned());
    let mut above = header.clone();
    loop {
        if above.commits {
            let of = if below.is_empty() { String::new() } else { format!("base {}: ", at.display()) };
            found(of + &under_way(&at.display()), false);
        }
        at.clone_from(&above.base.path);
        below.push(above.base.at().to_string().into());
        match base_of(&above) {
            Err(why) => break found(why, true),
            Ok(None) => break,
            Ok(Some(_)) if below.len() >= DEPTH_MAX => {
                break found(format!("more than {DEPTH_MAX} overlays lie over each other"), true);
            }
            Ok(Some(header)) => above = header,
        }
    }
    let (data, zeroes) = own.count();
    Ok(TopInfo { header, data, zeroes, takes: metadata.blocks() * 512, below, findings })
}

/// The base of a top: the header of another top, or `None`, a file of bare bytes.
fn base_of(above: &Header) -> Result<Option<Header>, String> {
    let fail = |why: String| format!("base {}: {why}", above.base.at());
    if let Fingerprint::Named { .. } = above.base.is {
        return Ok(None); // whoever serves the top looks there
    }
    if let Fingerprint::Image { .. } = above.base.is {
        let image = Below::open(&above.base.at(), Direct::Off, &Roots::default(), 1)?;
        return known(above, &above.base.path, image.is()).map(|()| None);
    }
    let file = fs::File::open(&above.base.path).map_err(|error| fail(error.to_string()))?;
    if is_top(&file) {
        let (header, _) = read_header(&file).map_err(fail)?;
        return known(above, &above.base.path, header.fingerprint()).map(|()| Some(header));
    }
    let metadata = file.metadata().map_err(|error| fail(error.to_string()))?;
    let size = file.len().map_err(|error| fail(error.to_string()))?;
    known(above, &above.base.path, raw(&metadata, size)).map(|()| None)
}
