//! Reflink: a file with the content of another one at one instant, which shares its space until one of the two is written.
//!
//! XFS, btrfs and bcachefs copy a file by its map alone. A fork of an image there is one call, and needs no overlay: both are plain files
//! afterwards, and neither is slower for it.
//!
//! reflink.1  The file system holds writes back meanwhile, and waits for those under way. So all answered writes are in the copy, and none that is
//!            begun later.
//! reflink.2  The copy is durable, with its name, before it is told of; and so is the data that both share.
//! reflink.3  A copy that is not whole is taken away.

use std::fs;
use std::io;

use super::File;
use crate::device::Store as _;
use crate::device::roots::RootedPath;

/// Makes a file that is not there yet.
pub(super) fn reflink(of: &File, into: &RootedPath<'_>) -> Result<(), String> {
    let path = into.path.display();
    let copy = || -> io::Result<bool> {
        let (file, is_new) = into.make()?;
        if !is_new {
            return Ok(false);
        }
        let copied = rustix::fs::ioctl_ficlone(&file, of).map_err(io::Error::from);
        let durable =
            copied.and_then(|()| of.sync()).and_then(|()| file.sync_all()).and_then(|()| into.sync_directory());
        durable.inspect_err(|_| drop(fs::remove_file(into.path))).map(|()| true) // reflink.3
    };
    match copy() {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("{path} exists already; give another file (top=PATH)")),
        Err(error) if is_not_possible(&error) => Err(format!(
            "a file can be forked where its file system copies by reference (XFS, btrfs), and this one does not ({error}): \
             serve it as overlay:base=PATH,top=PATH"
        )),
        Err(error) => Err(format!("{path} cannot be made: {error}")),
    }
}

/// Whether the file system copies no file by reference, or not to there.
fn is_not_possible(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EXDEV | libc::EINVAL | libc::ENOTTY | libc::ENOSYS))
}
