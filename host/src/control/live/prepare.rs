//! The first half of a transaction: all that can fail.

mod export;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use fairlift_core::ceiling::Bounds;
use fairlift_core::{Group, GroupId};

use super::{Live, Making, Prepared};
use crate::Error;
use crate::clock;
use crate::config::{self, Backing, Config};
use crate::control::arrange::{self, Opened};
use crate::control::difference::{Becomes, Of, Step, difference};
use crate::control::edit::{Edit, Leave};
use crate::control::tenants;
use crate::disk::{Disk, Registered};
use crate::export::Export;
use crate::export::clients::Served;
use crate::export::listen::{self, Listening};
use crate::worker::Backend;

pub(super) enum Why {
    No(String),
    /// Something is leaving that is in the way.
    Wait(String),
}

impl From<String> for Why {
    fn from(why: String) -> Self {
        Self::No(why)
    }
}

impl From<Error> for Why {
    fn from(error: Error) -> Self {
        Self::No(error.to_string())
    }
}

pub(super) struct Draft<'a> {
    pub(super) backend: &'a Backend,
    pub(super) served: &'a Served,
    dry_run: bool,
    pub(super) config: Config,
    pub(super) groups: BTreeMap<String, GroupId>,
    pub(super) disks: BTreeMap<String, usize>,
    pub(super) made: BTreeSet<String>,
    pub(super) opened: Vec<Opened>,
    pub(super) files: (BTreeSet<u32>, u32),
    /// Disks that were made in it, by number.
    pub(super) new_disks: HashMap<usize, Arc<Disk>>,
    /// Devices that go to disks that there are.
    pub(super) put: HashMap<usize, Vec<Registered>>,
    /// Exports as they are, and which of the opened devices those show that were added.
    pub(super) list: Vec<Arc<Export>>,
    pub(super) shows: HashMap<String, usize>,
    /// Numbers of groups that have one, or had one before.
    pub(super) taken: BTreeSet<GroupId>,
    /// Disks that shall have another scheduler, other tunables or bounds.
    pub(super) turned: BTreeSet<String>,
    pub(super) steps: Vec<Step>,
    pub(super) suited: Vec<Step>,
    pub(super) prepared: Vec<Prepared>,
    pub(super) wakes: bool,
}

impl Live {
    pub(super) fn work_out<'a>(
        &self,
        (backend, served): (&'a Backend, &'a Served),
        edit: &Edit,
        dry_run: bool,
    ) -> Result<Draft<'a>, (Of, Why)> {
        let steps = difference(&self.config, edit).map_err(|all| {
            let first = all.into_iter().next().expect("it says what cannot be");
            (first.of.clone(), Why::No(first.to_string()))
        })?;
        let mut draft = Draft {
            backend,
            served,
            dry_run,
            config: edit.config.clone(),
            groups: self.groups.clone(),
            disks: self.disks.clone(),
            made: self.made.clone(),
            opened: self.opened.clone(),
            files: self.files.clone(),
            new_disks: HashMap::new(),
            put: HashMap::new(),
            list: served.service.exports().list.clone(),
            shows: HashMap::new(),
            taken: self.groups.values().chain(&self.leaving.groups).copied().collect(),
            turned: BTreeSet::new(),
            steps: Vec::new(),
            suited: Vec::new(),
            prepared: Vec::new(),
            wakes: false,
        };
        for step in &steps {
            self.prepare(&mut draft, step, edit).map_err(|why| (step.of.clone(), why))?;
        }
        let is_file = |name: &str| {
            let mut exports = draft.config.exports.iter();
            exports.any(|one| one.name == name && matches!(one.backing, Backing::File(_)))
        };
        let writes = |step: &Step| match (&step.of, step.what) {
            (Of::Export(name), Becomes::Comes | Becomes::Key("read_only" | "size")) => is_file(name),
            _ => false,
        };
        if let Some(step) = steps.iter().rfind(|step| writes(step)) {
            let there: HashMap<_, _> = draft.list.iter().map(|export| (&*export.name, &export.device)).collect();
            let device = |name: &str| draft.shows.get(name).map_or_else(|| there[name], |at| &draft.opened[*at].device);
            let shown = draft.config.exports.iter().map(|one| (one, device(&one.name)));
            arrange::check_shared(shown).map_err(|error| (step.of.clone(), error.into()))?;
        }
        draft.suit();
        draft.turn_disks()?;
        tenants::check_floors(&draft.config).map_err(|(path, why)| {
            let why = Why::No(format!("group {path}: min: {why}"));
            (Of::Group(path), why)
        })?;
        draft.drop_made();
        draft.steps = steps;
        Ok(draft)
    }

    fn prepare(&self, draft: &mut Draft<'_>, step: &Step, edit: &Edit) -> Result<(), Why> {
        match (&step.of, step.what) {
            (Of::Group(path), Becomes::Comes) => draft.add_group(path)?,
            (Of::Group(path), Becomes::Goes) => {
                let id = draft.groups.remove(path).expect("the step is about it");
                draft.set_bounds(id, Bounds::default());
                draft.then(move |making| making.live.leaving.groups.push(id));
            }
            (Of::Group(path), Becomes::Key("weight")) => {
                let (id, weight) = (draft.groups[path], draft.group(path).weight);
                // Workers learn of another weight with the ends of requests: none is woken.
                draft.prepared.push(Box::new(move |making| {
                    making.backend.disks.all().iter().for_each(|(_, disk)| disk.set_weight(clock::now(), id, weight));
                }));
            }
            (Of::Group(_), Becomes::Key("delegate")) => {} // no queue knows of it
            (Of::Group(path), Becomes::Key(_)) => {
                let bounds = draft.config.bounds.get(path).copied().unwrap_or_default();
                draft.set_bounds(draft.groups[path], bounds);
            }
            (Of::Disk(name), Becomes::Comes) => draft.add_disk(name)?,
            (Of::Disk(name), Becomes::Goes) => {
                let number = draft.disks.remove(name).expect("the step is about it");
                draft.made.remove(name);
                draft.then(move |making| making.live.leaving.disks.push(number));
            }
            (Of::Disk(name), Becomes::Key(_)) => _ = draft.turned.insert(name.clone()),
            (Of::Export(name), Becomes::Comes) => self.add_export(draft, name)?,
            (Of::Export(name), Becomes::Goes) => {
                let how = edit.leave.get(name).copied().unwrap_or(Leave::Drain);
                if how == Leave::Drain {
                    draft.is_not_held(name)?;
                }
                draft.shows.remove(name);
                draft.list.retain(|there| there.name != *name);
                let name = name.clone();
                draft.then(move |making| making.remove_export(&name, how));
            }
            (Of::Export(name), Becomes::Key(key)) => draft.turn_export(name, key)?,
            (Of::Listener(address), Becomes::Goes) => {
                let address = address.clone();
                draft.then(move |making| {
                    let service = &making.served.service;
                    making.live.leaving.listeners.extend(service.listeners.remove(&address));
                    service.changed();
                });
            }
            (Of::Listener(address), _) => self.add_listener(draft, address)?,
            (Of::Client(_), _) => draft.wakes = true, // The rules are published together.
            (Of::Server, _) => {
                draft.wakes = true; // Who is revoked is published with the rules.
                if let Some(tls) = draft.config.tls.clone() {
                    draft.then(move |making| making.served.service.listeners.set_tls(tls));
                }
            }
        }
        Ok(())
    }

    fn add_listener(&self, draft: &mut Draft<'_>, name: &str) -> Result<(), Why> {
        if self.leaving.listeners.iter().any(|leaving| leaving.name == name) {
            return Err(Why::Wait(format!("{name} is still being left")));
        }
        let mut listeners = draft.config.listeners.iter_mut();
        let listener = listeners.find(|one| one.address.to_string() == name).expect("the step is about it");
        if draft.dry_run {
            return Ok(listen::check(listener)?);
        }
        let listening = Listening::open(listener)?;
        *listener = listener.clone().bound(&listening.name);
        draft.then(move |making| {
            making.served.service.listeners.add(listening, making.live.listeners_made);
            making.served.service.changed();
            making.live.listeners_made += 1;
        });
        Ok(())
    }
}

/// A number that no queue knows a group by.
fn free_group(backend: &Backend, taken: &BTreeSet<GroupId>) -> Option<GroupId> {
    let disks = backend.disks.all();
    let is_free = |id: &GroupId| !taken.contains(id) && !disks.iter().any(|(_, disk)| disk.has_group(*id));
    // While few have gone, the next one is free; else one of those is that have.
    let next = taken.last().map_or(0, |last| last.0).saturating_add(1);
    let few_have_gone = usize::from(next) < 2 * taken.len() + 64;
    let next = Some(GroupId(next)).filter(|next| few_have_gone && is_free(next));
    next.or_else(|| (1..=u16::MAX).map(GroupId).find(is_free))
}

impl Draft<'_> {
    fn add_disk(&mut self, name: &str) -> Result<(), Why> {
        let settings = self.config.disks.iter().find(|disk| disk.name == name).expect("the step is about it");
        let disk = self.new_disk(settings, &[])?;
        self.disks.insert(name.to_owned(), self.free_disk());
        self.set_disk(self.disks[name], disk);
        Ok(())
    }

    fn free_disk(&self) -> usize {
        let mut number = self.backend.disks.free_from(0);
        while self.new_disks.contains_key(&number) {
            number = self.backend.disks.free_from(number + 1);
        }
        number
    }

    /// A disk with its first backings, and all groups.
    fn new_disk(&self, settings: &config::Disk, devices: &[Registered]) -> Result<Arc<Disk>, Why> {
        let disk = Disk::new(settings, devices, &self.config.groups[..1], self.backend.notifiers.workers())?;
        let now = clock::now();
        for group in &self.config.groups[1..] {
            let group = self.numbered(group);
            disk.add_group(now, self.groups[&group.path], &group);
        }
        Ok(Arc::new(disk))
    }

    /// A group, with its parent by the number that queues know that by.
    fn numbered(&self, group: &Group) -> Group {
        let id = |at: GroupId| self.groups[&self.config.groups[usize::from(at.0)].path];
        Group { parent: group.parent.map(id), ..group.clone() }
    }

    fn group(&self, path: &str) -> &Group {
        self.config.groups.iter().find(|group| group.path == path).expect("the step is about it")
    }

    /// Whether nobody has the block device of an export for himself, who would lose it.
    fn is_not_held(&self, export: &str) -> Result<(), Why> {
        let there = self.list.iter().find(|there| there.name == export);
        there.and_then(|there| self.served.holder(there.id)).map_or(Ok(()), |holder| {
            Err(Why::No(format!(
                "export \"{export}\" cannot be removed: {holder}; unmount or release it first, or remove it all the same, now (--now)"
            )))
        })
    }

    pub(super) fn then(&mut self, step: impl FnOnce(&mut Making<'_>) + 'static) {
        self.prepared.push(Box::new(step));
        self.wakes = true;
    }

    fn set_bounds(&mut self, id: GroupId, bounds: Bounds) {
        self.then(move |making| making.backend.disks.set_bounds(clock::now(), id, &bounds));
    }

    /// A group, after its parents.
    fn add_group(&mut self, path: &str) -> Result<(), Why> {
        let id = free_group(self.backend, &self.taken).ok_or("no number is free for another group".to_owned())?;
        let group = self.numbered(self.group(path));
        self.taken.insert(id);
        self.groups.insert(group.path.clone(), id);
        self.then(move |making| making.add_group(id, &group));
        Ok(())
    }

    /// Lets disks whose scheduler nobody named have one with weights, where their tenants need it now. It stays when they have gone:
    /// knowledge of a scheduler is not thrown away for the next.
    fn suit(&mut self) {
        for at in 0..self.config.disks.len() {
            let name = self.config.disks[at].name.clone();
            if !self.config.disks[at].is_usual || !self.disks.contains_key(&name) {
                continue;
            }
            let suits = tenants::suitable(&self.config, at, self.disk(&name).rotates());
            let scheduler = self.config.disks[at].scheduler;
            if !suits.has_weights() || suits == scheduler || scheduler.has_floors() {
                continue;
            }
            tenants::turn(&mut Arc::make_mut(&mut self.config.disks)[at], suits);
            let says = format!("scheduler {} (was {}), for its tenants to share it", suits.name(), scheduler.name());
            self.suited.push(Step::new(Of::Disk(name.clone()), Becomes::Key("scheduler"), says));
            self.turned.insert(name);
        }
    }

    /// All that is said of one disk is looked at, and made, at once.
    fn turn_disks(&mut self) -> Result<(), (Of, Why)> {
        for name in std::mem::take(&mut self.turned) {
            let Some(settings) = self.config.disks.iter().find(|settings| settings.name == name) else { continue };
            let disk = self.disk(&name);
            let to = disk.check(settings).map_err(|why| (Of::Disk(name), Why::No(why)))?;
            self.then(move |_| disk.turn(clock::now(), to));
        }
        Ok(())
    }

    fn turn_export(&mut self, name: &str, key: &str) -> Result<(), Why> {
        let settings =
            self.config.exports.iter().find(|settings| settings.name == *name).expect("the step is about it").clone();
        match key {
            "size" => self.grow(&settings)?,
            "faults" => {
                if let Backing::Fault(fault) = settings.backing {
                    let opened = self.shown(name);
                    self.then(move |making| making.live.opened[opened].device.set_faults(&fault.faults));
                }
            }
            "group" => {
                let path = Arc::<str>::from(&*self.config.group(&settings).path);
                let id = self.groups[&*path];
                self.becomes(name, move |export| (export.group, export.path) = (id, path));
            }
            "ioprio" => self.becomes(name, move |export| export.priority = settings.priority),
            "read_only" => self.set_read_only(name, settings.read_only)?,
            "description" => self.becomes(name, move |export| export.description = settings.description),
            _ => unreachable!("{key} cannot change (difference.2)"),
        }
        Ok(())
    }

    fn set_read_only(&mut self, export: &str, read_only: bool) -> Result<(), Why> {
        if !read_only && self.opened[self.shown(export)].read_only {
            let why = "its backing was opened for reading only, as no export of it was to be written; remove the export and \
                       add it again";
            return Err(Why::No(format!("export \"{export}\" cannot be written: {why}")));
        }
        self.becomes(export, move |export| export.read_only = read_only);
        Ok(())
    }

    fn grow(&mut self, settings: &config::Export) -> Result<(), Why> {
        let (export, size) = (&settings.name, settings.size);
        let opened = self.shown(export);
        let looked = self.opened[opened].device.look_at_size();
        let there = looked.map_err(|error| format!("export \"{export}\": its backing: {error}"))?;
        let block = u64::from(self.opened[opened].device.facts().block());
        if let Some(size) = size.filter(|size| size % block != 0) {
            let says = format!("must be a multiple of {block}, the block of its backing, and {size} is not");
            return Err(Why::No(format!("export \"{export}\": its size {says}")));
        }
        let end = settings.offset.saturating_add(size.unwrap_or(0));
        if end > there || settings.offset >= there {
            return Err(Why::No(format!(
                "export \"{export}\" cannot grow to {} bytes: its backing has {there} bytes, and it starts at byte {}; make that \
                 larger first",
                size.unwrap_or(0),
                settings.offset
            )));
        }
        let size = size.unwrap_or(there - settings.offset);
        let before = self.list.iter().find(|there| there.name == *export).map_or(0, |there| there.size);
        if size < before {
            let why = format!("has {before} bytes and can only grow, for its clients were told of them");
            return Err(Why::No(format!("export \"{export}\" {why}; {size} is less")));
        }
        let one = &self.opened[opened];
        if !self.backend.disks.get(one.disk).has_room(&one.device, there) {
            return Err(Why::No(format!(
                "export \"{export}\" cannot grow: its backing has {there} bytes now, and its disk keeps room for less; remove the \
                 export and add it again"
            )));
        }
        self.then(move |making| making.grown(opened, there));
        self.becomes(export, move |export| export.size = size);
        Ok(())
    }

    fn shown(&self, export: &str) -> usize {
        self.shows.get(export).copied().unwrap_or_else(|| {
            let there = self.list.iter().find(|there| there.name == export).expect("the step is about it");
            let same = |one: &Opened| Arc::ptr_eq(&one.device, &there.device);
            self.opened.iter().position(same).expect("an export shows a device")
        })
    }

    /// The name of a disk; `None`: it was removed, and its exports are leaving.
    fn name(&self, disk: usize) -> Option<&String> {
        self.disks.iter().find(|(_, number)| **number == disk).map(|(name, _)| name)
    }

    fn disk(&self, name: &str) -> Arc<Disk> {
        let number = self.disks[name];
        self.new_disks.get(&number).map_or_else(|| self.backend.disks.get(number), Arc::clone)
    }

    fn file(&mut self) -> Option<u32> {
        let (free, used) = &mut self.files;
        free.pop_first().or_else(|| {
            *used += 1;
            (*used <= self.backend.files).then(|| *used - 1)
        })
    }

    fn becomes(&mut self, export: &str, to: impl FnOnce(&mut Export) + 'static) {
        let name = export.to_owned();
        self.then(move |making| making.turn_export(&name, to));
    }

    /// Disks that nobody named go with their last export.
    fn drop_made(&mut self) {
        let Self { config, made, disks, .. } = self;
        let used: HashSet<_> = config.exports.iter().filter_map(|export| export.disk).collect();
        let is_left = |(at, disk): &(usize, &config::Disk)| made.contains(&disk.name) && !used.contains(at);
        let left: Vec<_> = config.disks.iter().enumerate().filter(is_left).map(|(at, _)| at).collect();
        for at in left.into_iter().rev() {
            let name = Arc::make_mut(&mut config.disks).remove(at).name;
            made.remove(&name);
            disks.remove(&name);
            let later = Arc::make_mut(&mut config.exports).iter_mut().filter_map(|export| export.disk.as_mut());
            later.for_each(|disk| *disk -= usize::from(*disk > at));
        }
    }
}
