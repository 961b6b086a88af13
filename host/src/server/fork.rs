//! A fork: an export with the content of another one at one instant, made while that is written.

use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use super::{Handle, Shared};
use crate::config::{Backing, Null};
use crate::control::{Edit, Made, Of, Refused};
use crate::device::Device;
use crate::device::backing::NowBase;
use crate::disk::Disk;

/// The place of a fork's writes. `None`: beside the top of the forked disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForkTop {
    /// In this file, which must not be there.
    Named(Option<PathBuf>),
    /// In this directory, in a file without a name: it is gone with the export, or with the server.
    Ephemeral(Option<PathBuf>),
}

impl Handle {
    /// Adds an export with another one's data at one instant: all writes that were answered before are in both, none that is begun later is in
    /// the fork. The forked export goes on, and is durable up to there. `top` is where what the fork writes goes. `add` adds the export with
    /// the backing that it is given; it is called twice, the first time to see whether it can be added.
    ///
    /// # Errors
    /// It is no overlay nor a file on a file system with reflinks, too many tops lie over each other, what is under way does not end within a few seconds, or why the export cannot
    /// be added. If the last is found out late, what is forked lies over one top more.
    pub fn fork(
        &self,
        (of, name): (&str, &str),
        top: &ForkTop,
        add: impl Fn(&mut Edit, Backing) -> Result<(), String>,
        version: Option<u64>,
        dry_run: bool,
    ) -> Result<Made, Refused> {
        let refused =
            |why: String| Refused::Change { of: Of::Export(of.into()), why: format!("export \"{of}\": {why}") };
        let shared = self.shared.upgrade().ok_or(Refused::Ended)?;
        let state = shared.live().state();
        let there = Edit::from(crate::config::Config::clone(&state.config));
        let found = there.find_export(of).map_err(|why| Refused::Change { of: Of::Export(of.into()), why })?;
        let backing = state.config.exports[found].backing.clone();
        let forks = backing.forks().map_err(|why| refused(why.into()))?;
        let (beside, ending) = forks.beside();
        let is_plain = !name.contains('/') && !name.starts_with('.');
        let (own, is_ephemeral) = match top {
            ForkTop::Named(own) => {
                (own.clone().or_else(|| is_plain.then(|| beside.join(format!("{name}{ending}")))), false)
            }
            ForkTop::Ephemeral(directory) => (Some(directory.clone().unwrap_or_else(|| beside.to_owned())), true),
        };
        if let Some(why) = forks.is_never_ephemeral().filter(|_| is_ephemeral) {
            return Err(refused(why.into()));
        }
        let needs = || refused(format!("a fork called {name:?} needs a file of its own: say where (top=PATH)"));
        let own = absolute(own.ok_or_else(needs)?).map_err(|error| refused(error.to_string()))?;
        // Before anything is frozen: whatever its base will be, it is opened by what is written of it.
        let stand_in = NowBase { base: PathBuf::from("base").into(), size: None };
        if !forks.forked(stand_in, own.clone(), is_ephemeral).is_read_as_written() {
            let says = "of its fork would be read as another path, with options; give another one";
            return Err(refused(format!("the path {} {says}", own.display())));
        }
        let takes = if is_ephemeral { shared.takes_unnamed(&own) } else { shared.is_free(&own) };
        takes.map_err(refused)?;
        // With a backing that costs nothing, and is large enough: what is wrong beside that is found before anything is frozen.
        let stand_in = || Null { size: 1 << 60, delay: Default::default() }.into();
        let would = self.change(|edit| add(edit, stand_in()), version, true)?;
        if dry_run {
            return Ok(would);
        }
        let goes = || refused("another server is taking over; try again in a moment".into());
        let _forks = shared.forks.try_read().map_err(|_| goes())?;
        let (device, disk) = shared.shown_by(of).map_err(refused)?;
        let is_flushed = || disk.is_flushed(&device).map_err(refused);
        is_flushed()?;
        let now = shared.freeze(&*device, &own).map_err(refused)?;
        let is_copy = now.base == own.clone().into();
        let made = forks.forked(now, own.clone(), is_ephemeral);
        // Once more: the kernel tells an error once, and may have told it to a client meanwhile.
        let added = is_flushed().and_then(|()| self.change(|edit| add(edit, made), version, false));
        added.inspect_err(|_| {
            if is_copy {
                let _ = std::fs::remove_file(&own);
            }
        })
    }
}

impl Shared {
    /// Whether a file can be made there: none has the name.
    fn is_free(&self, own: &Path) -> Result<(), String> {
        let roots = self.live().roots.clone();
        match roots.place(own)?.metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(format!("its fork's file {}: {error}", own.display())),
            Ok(_) => Err(format!("its fork's file {} exists already; give another file (top=PATH)", own.display())),
        }
    }

    /// Whether a file without a name can be made in a directory: it is made, and gone.
    fn takes_unnamed(&self, directory: &Path) -> Result<(), String> {
        let roots = self.live().roots.clone();
        let made = roots.place(directory)?.make_unnamed();
        made.map(drop).map_err(|error| format!("its fork's file cannot be made in {}: {error}", directory.display()))
    }

    /// The device that an export shows, and its disk.
    fn shown_by(&self, export: &str) -> Result<(Arc<dyn Device>, Arc<Disk>), String> {
        let exports = self.served.service.exports();
        let there = exports.list.iter().find(|one| one.name == export);
        let shown = there.and_then(|one| Some((Arc::clone(&one.device), self.backend.disks.find(one.disk)?)));
        shown.ok_or_else(|| "it has been removed".into())
    }

    /// Freezes what a device is, by the thread that calls.
    fn freeze(&self, device: &dyn Device, own: &Path) -> Result<NowBase, String> {
        let roots = self.live().roots.clone();
        let frozen = device.freeze(&|worker, lane| self.backend.helpers.tell(worker, (lane, 0)), &roots, own);
        // It may have to be flattened: a worker looks for that where exports change.
        self.served.service.changed();
        self.backend.notifiers.ring_all();
        frozen
    }
}
