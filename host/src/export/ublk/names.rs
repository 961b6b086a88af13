//! The name of a device for people: `/dev/fairlift/alice` is a link to `/dev/ublkb3`.
//!
//! The link stays while a server is away, and so says whose device an orphan is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::control::block_path;

const PLACE: &str = "/dev/fairlift";

/// The link of an export: its name, with characters that udev would not have in one written as `\x2f`; `None`: no file can be called so.
pub(super) fn link(export: &str) -> Option<PathBuf> {
    let mut name = String::new();
    for c in export.chars() {
        if c.is_alphanumeric() || "#+-.:=@_".contains(c) {
            name.push(c);
        } else {
            c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| {
                let _ = write!(name, "\\x{byte:02x}");
            });
        }
    }
    (!["", ".", ".."].contains(&&*name) && name.len() <= 255).then(|| Path::new(PLACE).join(name))
}

/// Makes the link of an export; another one of that name goes, and so does the device's old name.
pub(super) fn set(link: &Path, id: u32) -> io::Result<()> {
    if !Path::new(PLACE).exists() {
        fs::create_dir_all(PLACE)?;
        // Every user who may open the device finds it, whatever the umask of the server.
        fs::set_permissions(PLACE, fs::Permissions::from_mode(0o755))?;
    }
    links().filter(|(before, of)| *of == id && before != link).for_each(|(before, _)| {
        let _ = fs::remove_file(before);
    });
    let new = Path::new(PLACE).join(format!(".{id}.new"));
    let _ = fs::remove_file(&new);
    std::os::unix::fs::symlink(format!("../ublkb{id}"), &new)?;
    fs::rename(&new, link)
}

/// Takes a link away, if it is that of this device.
pub(super) fn unset(link: &Path, id: u32) {
    if points_to(link) == Some(id) {
        let _ = fs::remove_file(link);
        let _ = fs::remove_dir(PLACE); // where it was the last
    }
}

fn points_to(link: &Path) -> Option<u32> {
    fs::read_link(link).ok()?.to_str()?.strip_prefix("../ublkb")?.parse().ok()
}

/// All links, with the number of the device that each leads to.
fn links() -> impl Iterator<Item = (PathBuf, u32)> {
    let entries = fs::read_dir(PLACE).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| Some((entry.path(), points_to(&entry.path())?)))
}

/// The names of devices, by their numbers.
pub(super) fn all() -> BTreeMap<u32, String> {
    links().filter_map(|(link, id)| Some((id, link.file_name()?.to_str()?.to_owned()))).collect()
}

/// Takes away the links of a device that is gone.
pub(super) fn forget(id: u32) {
    if !Path::new(&block_path(id)).exists() {
        links().filter(|(_, of)| *of == id).for_each(|(link, _)| unset(&link, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exports_name_is_a_files_name() {
        let name = |export| link(export).map(|path| path.to_str().unwrap().to_owned());
        assert_eq!(name("alice-1.img"), Some("/dev/fairlift/alice-1.img".into()));
        assert_eq!(name("a/b c"), Some("/dev/fairlift/a\\x2fb\\x20c".into()));
        assert_eq!(name("müller"), Some("/dev/fairlift/müller".into()));
        assert_eq!([name(""), name("."), name(".."), name(&"x".repeat(300))], [None, None, None, None]);
    }
}
