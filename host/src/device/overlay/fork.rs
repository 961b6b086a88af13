//! Fork: what an overlay is at one instant becomes the base of others, while it is written.
//!
//! A sandbox has installed its tools, and ten more are to begin from there. Its top so far is frozen: it gets a name of its own, and a new,
//! empty top over it takes the place of the one before. Example: `alice.top` becomes `alice.top.1`, which nobody writes from then on; alice
//! goes on in a new `alice.top` over it, and `fork` makes `bob.top` over `alice.top.1`.
//!
//! fork.1  All lanes stop between two requests ([`pause`](super::pause)): that is the instant. Writes answered before are below both, and
//!         the fork sees none that is begun later. No request fails because of it.
//! fork.2  A frozen top is durable before anything lies over it: its data and its map. Then its header says that it was closed; a fork does not
//!         wait until that is durable.
//! fork.3  On the disk a crash leaves the state before or after. The new top is made under another name, the one that is written gets its second
//!         name (`link`), and the new one takes its first name (`rename`), once the other two are durable. A second name that a crash has
//!         left is used by the next fork.
//! fork.4  A top in which nothing was written is not frozen: the layers below it are the whole disk (unless they are longer). So a thousand
//!         forks of an image are a thousand tops over it, and chains grow by forks of changed disks only.
//! fork.5  If the requests under way do not end within a few seconds, there is no fork, and all goes on as before.

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{PathBuf, absolute};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, OFlags, linkat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::files::{Below, DEPTH_MAX, write_new};
use super::format::{Base, Header};
use super::map::Own;
use super::syntax::BaseAt;
use super::{Layers, Overlay};
use crate::device::Layer;
use crate::device::backing::NowBase;
use crate::device::file::File;
use crate::device::file::syntax::Direct;
use crate::device::lane::Tell;
use crate::device::roots::{Roots, directory_of};
use crate::sync::lock;

/// How long what is under way may take to end. Chosen: a disk that takes longer hangs, and clients would see a fork.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether it has. Chosen: a flash disk ends what it has in less.
pub(super) const LOOK: Duration = Duration::from_micros(200);

/// A fork's work on files, and its waits.
pub(super) trait Steps {
    /// Gives the top its second name, which is durable once the new top is: where it is then.
    fn link(&mut self) -> io::Result<PathBuf>;
    /// Makes a new top with this header, durable as the second name is then, and opens it.
    fn make(&self, header: &Header) -> Result<Arc<dyn Layer>, String>;
    /// The new top takes the name of the one before.
    fn rename(&self) -> io::Result<()>;
    /// Takes away what was made for a fork that is none.
    fn give_up(&self);
    /// Lets the workers run a moment.
    fn wait(&self);
}

pub(super) fn freeze(overlay: &Overlay, tell: Tell<'_>, roots: &Roots) -> Result<NowBase, String> {
    freeze_by(overlay, tell, || OnFiles::of(overlay, roots))
}

pub(super) fn freeze_by<S: Steps>(
    overlay: &Overlay,
    tell: Tell<'_>,
    steps: impl FnOnce() -> Result<S, String>,
) -> Result<NowBase, String> {
    let _alone = lock(&overlay.alone);
    let layers = overlay.layers();
    if lock(&layers.header).commits {
        return Err(format!(
            "its top: {}; remove this export first",
            super::commit::under_way(&overlay.layered.top.display())
        ));
    }
    if overlay.layered.is_ephemeral && !layers.is_empty() {
        return Err(
            "is ephemeral, and was written: there is no file of that which a fork could lie over; fork what it was forked from, or make \
             it without --ephemeral where it is to be forked itself"
                .into(),
        );
    }
    let is_below = layers.is_empty() && layers.size >= layers.below.size; // fork.4
    if layers.below.files.len() >= DEPTH_MAX && !is_below {
        if overlay.read_only {
            return Err(format!("{DEPTH_MAX} tops lie over each other already, and a fork would be one more"));
        }
        overlay.is_deep.store(true, Ordering::Release); // flatten.4
        return Err(format!(
            "{DEPTH_MAX} tops lie over each other already, and a fork would be one more; they are being flattened, and then it can be \
             forked: fairlift overlay info {} tells how many there are",
            overlay.layered.top.display()
        ));
    }
    let at = |base: &BaseAt, size| {
        let base = base.absolute().map_err(|error| error.to_string())?;
        Ok(NowBase { base, size })
    };
    if is_below {
        return at(&layers.base, Some(layers.size).filter(|size| *size != layers.below.size));
    }
    if overlay.read_only {
        return at(&overlay.layered.top.clone().into(), None); // Nobody writes it.
    }
    let mut steps = steps()?;
    let no_name = |error: io::Error| format!("its top cannot get a second name: {error}");
    let linked = steps.link().map_err(no_name)?;
    let frozen = absolute(linked).map_err(no_name).inspect_err(|_| steps.give_up())?;
    let made = layers.header_above(frozen.clone()).and_then(|header| Ok((steps.make(&header)?, header)));
    let (top, header) = made.inspect_err(|_| steps.give_up())?;
    let not_durable = |error: io::Error| format!("its top cannot be made durable: {error}");
    let freezes = || {
        layers.flush().map_err(not_durable)?; // fork.2
        steps.rename().map_err(|error| format!("the new top cannot take its place: {error}"))?;
        // Only now, for it is not written again. If that fails or a power cut undoes it, whoever lies over it makes it durable once more (make.3).
        let _ = layers.write_header(|header| header.clean = true);
        overlay.switch(&layers, top, header);
        Ok(())
    };
    // Writes until lanes stop are all that is left to be made durable then.
    let settled = layers.top.sync().map_err(not_durable);
    let done = settled.and_then(|()| overlay.paused(tell, || steps.wait(), freezes));
    done.inspect_err(|_| steps.give_up()).and_then(|()| at(&frozen.into(), None))
}

/// The steps of a fork of a top that is a file, in its directory.
pub(super) struct OnFiles<'a> {
    overlay: &'a Overlay,
    roots: &'a Roots,
    directory: fs::File,
    top: &'a OsStr,
    /// The new top, until it takes the name.
    temporary: OsString,
    /// The second name, if this fork has made it.
    linked: Option<OsString>,
}

impl<'a> OnFiles<'a> {
    pub(super) fn of(overlay: &'a Overlay, roots: &'a Roots) -> Result<Self, String> {
        let top = overlay.layered.top.file_name().ok_or("its top has no name")?;
        let place = roots.place(directory_of(&overlay.layered.top))?;
        let directory = place.open(OFlags::RDONLY | OFlags::DIRECTORY).map_err(|error| error.to_string())?;
        let temporary = [OsStr::new("."), top, OsStr::new(".fork")].join(OsStr::new(""));
        Ok(Self { overlay, roots, directory, top, temporary, linked: None })
    }

    /// Where something lies.
    fn at(&self, name: &OsStr) -> PathBuf {
        directory_of(&self.overlay.layered.top).join(name)
    }

    /// Takes a name away, if it is there.
    fn unlink(&self, name: &OsStr) -> io::Result<()> {
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Steps for OnFiles<'_> {
    /// The first name that is free, or that a crash has left (fork.3).
    fn link(&mut self) -> io::Result<PathBuf> {
        let of = |name: &OsStr| statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let top = of(self.top)?;
        let open = self.overlay.layers().top.file().map(fs::File::metadata).transpose()?;
        let named = statat(&self.directory, self.top, AtFlags::empty())?;
        if open.is_some_and(|open| (open.dev(), open.ino()) != (named.st_dev, named.st_ino)) {
            return Err(io::Error::other("another file was put in its place, and the server has the one before"));
        }
        let is_left = |name: &OsStr| of(name).is_ok_and(|one| (one.st_dev, one.st_ino) == (top.st_dev, top.st_ino));
        let mut names = (1u32..).map(|number| [self.top, OsStr::new(&number.to_string())].join(OsStr::new(".")));
        loop {
            let name = names.next().expect("a directory has fewer names");
            match linkat(&self.directory, self.top, &self.directory, &name, AtFlags::empty()) {
                Err(Errno::EXIST) if is_left(&name) => return Ok(self.at(&name)),
                Err(Errno::EXIST) => {}
                linked => {
                    linked?;
                    let path = self.at(&name);
                    self.linked = Some(name);
                    return Ok(path);
                }
            }
        }
    }

    fn make(&self, header: &Header) -> Result<Arc<dyn Layer>, String> {
        let path = self.at(&self.temporary);
        let place = self.roots.place(&path)?;
        let write = || {
            self.unlink(&self.temporary)?; // a crash may have left one
            let (file, is_new) = place.make()?;
            if !is_new {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            write_new(&file, header)?;
            file.sync_all()?;
            self.directory.sync_all() // the second name too: where there is a journal, it is on the disk with the file
        };
        write().map_err(|error| format!("a new top cannot be made: {error}"))?;
        let file = File::open(&place, self.overlay.layered.access(), false)?;
        Ok(Arc::new(file.renamed(&self.overlay.layered.top)))
    }

    fn rename(&self) -> io::Result<()> {
        renameat(&self.directory, &self.temporary, &self.directory, self.top)?;
        if let Err(error) = self.directory.sync_all() {
            // It has the name, and the old file has it no more: there is no way back.
            tracing::error!(top = %self.at(self.top).display(), %error, "a fork's names may not outlive a power cut");
        }
        Ok(())
    }

    fn give_up(&self) {
        let _ = self.unlink(&self.temporary);
        self.linked.iter().for_each(|name| drop(self.unlink(name)));
    }

    fn wait(&self) {
        std::thread::sleep(LOOK);
    }
}

impl Layers {
    /// Whether nothing was written (fork.4).
    pub(super) fn is_empty(&self) -> bool {
        self.own.count() == (0, 0)
    }

    /// Of a new top over this one, which is at a path then.
    pub(super) fn header_above(&self, path: PathBuf) -> Result<Header, String> {
        let base = Base { path, is: lock(&self.header).fingerprint() };
        // It is written as it is, and begins as one that was opened: when it is opened again later, others may lie over it.
        Header::drawn(self.size, base, 1)
    }

    pub(super) fn frozen(&self) -> Below {
        self.below.with(Arc::clone(&self.top), &lock(&self.header), Arc::clone(&self.own))
    }
}

impl Overlay {
    /// Goes on above what was written so far: no lane has anything under way.
    fn switch(&self, layers: &Layers, top: Arc<dyn Layer>, header: Header) {
        assert!(self.pause.is_quiet(), "layers change while nothing is under way");
        let below = Arc::new(layers.frozen());
        layers.top.becomes_base(self.layered.base_direct != Direct::Off);
        below.known_as(&layers.top, self.layered.base_direct);
        let path = header.base.path.clone();
        tracing::info!(top = %self.layered.top.display(), frozen = %path.display(), layers = below.files.len(), "forked");
        self.is_deep.store(below.files.len() >= DEPTH_MAX, Ordering::Release); // flatten.4
        let own = Own::new(header.size).into();
        *lock(&self.layers) = Arc::new(Layers::new(top, header, below, path.into(), own));
    }

    /// Does something while no lane has anything under way (fork.1).
    pub(super) fn paused<T>(
        &self,
        tell: Tell<'_>,
        wait: impl Fn(),
        act: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        self.pause.turn(tell);
        let end = Instant::now() + PATIENCE;
        while !self.pause.is_quiet() && Instant::now() <= end {
            wait();
        }
        let done = match self.pause.is_quiet() {
            true => act(),
            false => Err(format!(
                "requests in flight have not ended within {} s (fairlift why gives the reason); nothing was changed",
                PATIENCE.as_secs()
            )), // fork.5
        };
        self.pause.turn(tell);
        done
    }
}
