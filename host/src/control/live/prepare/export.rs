//! An export that is added: its backing is found among those that are open, or opened and put on a disk.

use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use fairlift_core::Sector;
use fairlift_core::sched::Kind;

use super::super::Live;
use super::{Draft, Why};
use crate::config;
use crate::control::arrange::{self, OpenBacking, Opened};
use crate::control::naming;
use crate::device::{Backing, Device, Sharing};
use crate::disk::{Disk, Registered};
use crate::export::clients::Served;

/// As many exports as there are; each has at least a kilobyte.
const EXPORTS: usize = 32_768;

impl Live {
    pub(super) fn add_export(&self, draft: &mut Draft<'_>, name: &str) -> Result<(), Why> {
        let Draft { backend, served, dry_run, .. } = *draft;
        if draft.config.exports.len() > EXPORTS {
            return Err(Why::No(format!("there are at most {EXPORTS} exports")));
        }
        let at = draft.config.exports.iter().position(|one| one.name == name).expect("the step is about it");
        let settings = draft.config.exports[at].clone();
        self.roots.check(&settings.backing)?; // roots.3
        let named = settings.disk.map(|disk| draft.config.disks[disk].name.clone());
        let opened = match draft.find_opened(&settings, named.as_deref())? {
            Some(at) => at,
            None => {
                let open = if dry_run { Backing::try_open } else { Backing::open };
                self.open(draft, (&settings, open), named.as_deref())?
            }
        };
        let one = draft.opened[opened].clone();
        let home = draft.name(one.disk);
        let disk = draft.config.disks.iter().position(|disk| Some(&disk.name) == home);
        let path = &draft.config.group(&settings).path;
        let group = draft.groups[path];
        let placed = config::Export { disk, group, ..settings };
        // Its start is within the device, until it is known where that is.
        let export = arrange::export((&placed, path), &one.device, (one.disk, Sector(0)), 0)?;
        if draft.config.exports[at].disk != disk {
            Arc::make_mut(&mut draft.config.exports)[at].disk = disk;
        }
        if let Some(why) = served.is_in_the_way(&placed) {
            return Err(Why::Wait(why));
        }
        let wrong = |placed| Served::check(std::slice::from_ref(placed), &backend.engine).into_iter().next();
        let openings = match dry_run {
            true => wrong(&placed).map_or(Ok(vec![]), Err),
            false => served.prepare(&placed, &export, &backend.engine),
        }?;
        draft.shows.insert(name.to_owned(), opened);
        draft.then(move |making| making.add_export(export, opened, openings));
        Ok(())
    }

    /// Opens the backing of an export, and puts it on a disk; which of the opened it is.
    fn open(
        &self,
        draft: &mut Draft<'_>,
        (settings, open): (&config::Export, OpenBacking),
        named: Option<&str>,
    ) -> Result<usize, Why> {
        self.is_left(settings)?;
        draft.is_written(settings)?;
        let device = open(&arrange::resolved(settings, &draft.config.exports)?, settings.read_only, &self.roots)?;
        match device.foreign() {
            Some(why) if !settings.read_only => {
                return Err(Why::No(format!("export \"{}\": {why}; read_only=true serves it as it is", settings.name)));
            }
            why => why.iter().for_each(|why| tracing::warn!("{why}")),
        }
        let file = match device.descriptor() {
            None => None,
            Some(_) => Some(draft.file().ok_or_else(|| {
                format!(
                    "export \"{}\": io_uring has room for {} files of exports here, and all are taken (ulimit -n)",
                    settings.name, draft.backend.files
                )
            })?),
        };
        let registered = (Arc::clone(&device), file);
        let home = draft.disk_for(&*device, named);
        let disk = match home {
            Some(name) if !draft.disk(&name).is_empty() => {
                draft.put_on(&name, registered).map_err(|why| format!("export \"{}\": {why}", settings.name))?
            }
            Some(name) => draft.put_first(&name, registered)?,
            None => draft.put_alone(&settings.name, registered)?,
        };
        let read_only = settings.read_only || device.facts().read_only;
        let sharing = settings.backing.sharing(Some(disk));
        draft.opened.push(Opened { device, sharing, disk, start: Sector(0), file, read_only });
        Ok(draft.opened.len() - 1)
    }

    /// Whether a backing can be opened: if an export of it, or of a file that it lies over, has gone a moment ago, the device of that has to be
    /// closed first. To open it would wait for its lock, and the lock for the next [`sweep`](Live::sweep).
    fn is_left(&self, settings: &config::Export) -> Result<(), Why> {
        let (sharing, paths) = (settings.backing.sharing(None), paths_of(&settings.backing));
        let path_of = |one: &Opened| one.device.path().and_then(|path| absolute(path).ok());
        let is_it = |one: &&Opened| {
            sharing != Sharing::None && one.sharing == sharing
                || !one.read_only && path_of(one).is_some_and(|path| paths.contains(&path))
        };
        let shown =
            |one: &&Opened| self.leaving.exports.iter().any(|(export, _)| Arc::ptr_eq(&export.device, &one.device));
        if self.leaving.devices.iter().chain(self.opened.iter().filter(shown)).any(|one| is_it(&one)) {
            return Err(Why::Wait(still_left(settings)));
        }
        Ok(())
    }
}

impl Draft<'_> {
    /// Whether a backing can be opened: a base that another export of this server writes is locked for as long as that export is there. To
    /// open it would wait for that in vain.
    fn is_written(&self, settings: &config::Export) -> Result<(), Why> {
        let paths = paths_of(&settings.backing);
        // By their last names first: of many, few need more.
        let is_called = |path: &&Path| paths.iter().any(|one| one.file_name() == path.file_name());
        let written = self.opened.iter().filter(|one| !one.read_only).filter_map(|one| one.device.path());
        let written = written.filter(is_called);
        // Tops without names are known by the directory in which they are: that several have.
        let is_file = |path: &PathBuf| paths.contains(path) && !path.is_dir();
        let mut written = written.filter_map(|path| absolute(path).ok()).filter(is_file);
        let Some(path) = written.next() else { return Ok(()) };
        let writers = self.config.exports.iter().filter(|one| one.name != settings.name && !one.read_only);
        let name = writers.filter(|one| paths_of(&one.backing).contains(&path)).map(|one| &one.name).next();
        let writer = name.map_or_else(|| "another export".into(), |name| format!("export \"{name}\""));
        Err(Why::No(format!(
            "export \"{}\": {} is written by {writer} of this server, and the base of an overlay must not be written: fork that export, \
             or remove it first",
            settings.name,
            path.display()
        )))
    }

    /// Puts a device on a disk that has nothing, which is made anew: the first device says what a disk is like.
    fn put_first(&mut self, name: &str, device: Registered) -> Result<usize, Why> {
        let at = self.config.disks.iter().position(|disk| disk.name == name).expect("it is there");
        let disk = self.new_disk(&self.config.disks[at], &[device])?;
        Arc::make_mut(&mut self.config.disks)[at] = disk.settings();
        Ok(self.set_disk(self.disks[name], disk))
    }

    /// Puts a device on a disk of its own, which goes with its last export.
    fn put_alone(&mut self, export: &str, device: Registered) -> Result<usize, Why> {
        let taken = self.config.disks.iter().map(|disk| &*disk.name).collect();
        let is_alone = device.0.facts().home.is_none();
        let called = naming::Called { device: device.0.called(), is_alone, export };
        let name = naming::names(taken, &[called]).remove(0);
        let mut settings = config::Disk { name: name.clone(), ..self.config.disk_default.clone() };
        // Its second tenant is seen when all changes are made.
        if settings.is_usual && settings.set.is_empty() {
            settings.scheduler = Kind::usual(1, device.0.facts().rotational);
        }
        self.disks.insert(name.clone(), self.free_disk());
        Arc::make_mut(&mut self.config.disks).push(settings);
        self.made.insert(name.clone());
        self.put_first(&name, device)
    }

    /// The device that an export is to show, if it is open already: which of the opened it is.
    fn find_opened(&self, settings: &config::Export, named: Option<&str>) -> Result<Option<usize>, Why> {
        let disk = named.map(|name| self.disks[name]);
        let Some(at) = self.opened.iter().position(|one| one.is_of(&settings.backing, disk)) else {
            return Ok(None);
        };
        let one = &self.opened[at];
        let Some(there) = self.name(one.disk) else { return Err(Why::Wait(still_left(settings))) };
        let fail = |why: String| Err(Why::No(format!("export \"{}\": {why}", settings.name)));
        if one.read_only && !settings.read_only {
            let why =
                "its backing was opened for reading only by other exports; remove them first, or make it read-only";
            return fail(why.into());
        }
        if disk.is_some_and(|disk| disk != one.disk) {
            return fail(format!(
                "its backing is on disk \"{there}\" already, by another export; one backing has one queue"
            ));
        }
        Ok(Some(at))
    }

    /// The disk of a device: the one that was named, or one that was made for others of the same home.
    fn disk_for(&self, device: &dyn Device, named: Option<&str>) -> Option<String> {
        let home = device.facts().home;
        let at_home = || {
            let same = |one: &&Opened| home.is_some() && one.device.facts().home == home;
            let mut known = self.opened.iter().filter(same).filter_map(|one| self.name(one.disk));
            known.find(|name| self.made.contains(*name)).cloned()
        };
        named.map(str::to_owned).or_else(at_home)
    }

    fn put_on(&mut self, name: &str, device: Registered) -> Result<usize, String> {
        let number = self.disks[name];
        let disk = self.disk(name);
        let put = self.put.entry(number).or_default();
        put.push(device);
        disk.could_take(put)?;
        let opened = self.opened.len();
        self.then(move |making| making.put(opened));
        Ok(number)
    }

    /// A disk that was made; answers its number.
    pub(super) fn set_disk(&mut self, number: usize, disk: Arc<Disk>) -> usize {
        self.new_disks.insert(number, Arc::clone(&disk));
        self.then(move |making| making.set_disk(number, disk));
        number
    }
}

impl Opened {
    /// Whether it is the backing that an export is to show: also a file that has another one in its place by now.
    fn is_of(&self, settings: &Backing, disk: Option<usize>) -> bool {
        let sharing = settings.sharing(disk);
        let same_path = || matches!(sharing, Sharing::File(..)) && self.device.path() == settings.about().file;
        sharing != Sharing::None && self.sharing == sharing || same_path()
    }
}

/// The files of a backing, by their absolute paths.
fn paths_of(backing: &Backing) -> Vec<PathBuf> {
    backing.clone().paths().into_iter().filter_map(|path| absolute(path).ok()).collect()
}

fn still_left(settings: &config::Export) -> String {
    format!("export \"{}\": its backing is still being left by another export", settings.name)
}
