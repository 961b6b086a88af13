//! Live: what a server has, by names, and how changes are made of it.
//!
//! A transaction has two halves. In the first everything that can fail is done: the new configuration is worked out ([`plan`]),
//! files are opened, sockets bound, disks made; if anything fails it is all dropped again. The second half cannot fail. Example:
//! an export and its listener are added, and the port is taken: then the file is closed again, and no client has seen anything.
//!
//! live.1  Only this changes which disks, places, groups, exports and listeners there are, one transaction at a time. Workers
//!         learn of it when they are woken, between two batches.
//! live.2  What is removed is let go of in steps: clients leave the export; workers let go of its device; the place, the numbers
//!         and the descriptor are free. Each step is looked at by [`sweep`](Live::sweep): nobody waits for it.
//! live.3  A device that goes is flushed: what clients wrote and did not flush is as durable as at the end of the server.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use fairlift_core::learn::idling_trial::Finding;
use fairlift_core::{Group, GroupId, Sector};

use super::change::{Change, Leave, NewExport, Refused, State};
use super::plan;
use super::view::{self, ClientView, DiskView, View};
use crate::Error;
use crate::config::{self, Config};
use crate::device::{self, Device};
use crate::disk::{Disk, Registered};
use crate::export::Export;
use crate::export::listen::{self, Listening};
use crate::export::nbd::Exports;
use crate::export::nbd::service::{Client, Service};
use crate::kernel::clock;
use crate::server::arrange;
use crate::server::worker::Backend;

/// How often it is looked whether something has left that the next change needs, and how long at most in all.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(2);
const LOOKS: usize = 1000;

/// How much is kept of what the schedulers of a disk found out.
const FINDINGS: usize = 16;

/// As many exports as there are; each has at least a kilobyte.
const EXPORTS: usize = 32_768;

/// What a server has.
pub(crate) struct Live {
    version: u64,
    /// What is in force: every export names its disk.
    config: Config,
    /// The numbers by which queues know the groups.
    groups: BTreeMap<String, GroupId>,
    /// The numbers of the disks.
    disks: BTreeMap<String, usize>,
    /// Disks that nobody named: they go with their last export.
    made: BTreeSet<String>,
    opened: Vec<Opened>,
    exports_made: u64,
    listeners_made: usize,
    /// Numbers for files that were used and are free, and how many were ever used.
    files: (BTreeSet<u32>, u32),
    leaving: Leaving,
    /// The latest that the schedulers of disks found out.
    findings: BTreeMap<String, VecDeque<Finding>>,
    started: SystemTime,
}

/// A device that exports show.
#[derive(Clone)]
struct Opened {
    device: Arc<dyn Device>,
    /// The model, and the disk's name, if exports share it by them.
    model: Option<String>,
    disk: usize,
    start: Sector,
    file: Option<u32>,
    read_only: bool,
}

/// What was removed and has not gone (live.2).
#[derive(Default)]
struct Leaving {
    exports: Vec<(Arc<Export>, Leave)>,
    devices: Vec<Opened>,
    groups: Vec<GroupId>,
    /// Disks that were removed, or that go when they are empty.
    disks: Vec<usize>,
    listeners: Vec<Arc<Listening>>,
}

/// Why a change is not made.
enum Why {
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

/// What is done in the second half of a transaction.
enum Step {
    SetDisk {
        number: usize,
        disk: Arc<Disk>,
    },
    /// A device goes to a disk that has others; it is the one of that number among those that were opened.
    Put {
        opened: usize,
    },
    RemoveDisk {
        number: usize,
    },
    AddGroup {
        id: GroupId,
        group: Group,
    },
    RemoveGroup {
        id: GroupId,
    },
    SetWeight {
        id: GroupId,
        weight: u16,
    },
    Turn {
        disk: Arc<Disk>,
        change: Change,
    },
    Export {
        name: String,
        export: Export,
        opened: usize,
    },
    /// The export of that name becomes another one of the same life.
    Become {
        name: String,
        to: Box<dyn FnOnce(&mut Export)>,
    },
    RemoveExport {
        name: String,
        how: Leave,
    },
    Grown {
        opened: usize,
    },
    Listen(Listening),
    Leave {
        address: String,
    },
}

/// What a transaction has worked out so far.
struct Draft {
    config: Config,
    groups: BTreeMap<String, GroupId>,
    disks: BTreeMap<String, usize>,
    made: BTreeSet<String>,
    opened: Vec<Opened>,
    files: (BTreeSet<u32>, u32),
    /// Disks that were made in it, by number.
    new_disks: HashMap<usize, Arc<Disk>>,
    /// Devices that go to disks that there are.
    put: HashMap<usize, Vec<Registered>>,
    /// Exports as they are, and which of the opened devices those show that were added.
    list: Vec<Arc<Export>>,
    shows: HashMap<String, usize>,
    /// Numbers of groups that have one, or had one before.
    taken: BTreeSet<GroupId>,
    steps: Vec<Step>,
}

impl Live {
    /// A server as it starts: `config` is what is in force, with the disks that were made for exports that name none after the
    /// first `named`; `disk_of_file` as in [`arrange`].
    pub(crate) fn new(config: Config, named: usize, exports: &[Arc<Export>], backend: &Backend, files: u32) -> Self {
        let mut opened: Vec<Opened> = Vec::new();
        for (said, export) in config.exports.iter().zip(exports) {
            if opened.iter().any(|one| Arc::ptr_eq(&one.device, &export.device)) {
                continue;
            }
            let disk = backend.disks.get(export.disk);
            let place = disk.place_of(&export.device).expect("an export's device is on its disk");
            let model = match &said.backing {
                config::Backing::Model { name, .. } => Some(name.clone()),
                _ => None,
            };
            let same = |other: &config::Export| arrange::same_file(&other.backing, &said.backing);
            let read_only =
                said.read_only && config.exports.iter().filter(|other| same(other)).all(|other| other.read_only);
            let device = Arc::clone(&export.device);
            opened.push(Opened { device, model, disk: export.disk, start: place.start, file: place.file, read_only });
        }
        let numbered = config.groups.iter().enumerate();
        Self {
            version: 0,
            groups: numbered.map(|(id, group)| (group.path.clone(), GroupId(id as u16))).collect(),
            disks: config.disks.iter().enumerate().map(|(number, disk)| (disk.name.clone(), number)).collect(),
            made: config.disks[named..].iter().map(|disk| disk.name.clone()).collect(),
            opened,
            exports_made: exports.len() as u64,
            listeners_made: config.listeners.len(),
            files: (BTreeSet::new(), files),
            leaving: Leaving::default(),
            findings: BTreeMap::new(),
            started: SystemTime::now(),
            config,
        }
    }

    pub(crate) fn state(&self) -> State {
        State { version: self.version, config: self.config.clone() }
    }

    /// Makes changes, or none (control.1).
    pub(crate) fn apply(
        &mut self,
        backend: &Backend,
        service: &Service,
        changes: &[Change],
        version: Option<u64>,
        dry_run: bool,
    ) -> Result<State, Refused> {
        if let Some(asked) = version.filter(|asked| *asked != self.version) {
            return Err(Refused::Version { asked, now: self.version });
        }
        let mut looks = 0;
        let draft = loop {
            self.sweep(backend, service);
            match self.work_out(backend, service, changes, dry_run) {
                Ok(draft) => break draft,
                Err((at, Why::No(why))) => return Err(Refused::Change { at, why }),
                Err((at, Why::Wait(why))) if looks == LOOKS => return Err(Refused::Change { at, why }),
                Err((_, Why::Wait(_))) => {
                    looks += 1;
                    std::thread::sleep(PATIENCE);
                }
            }
        };
        if dry_run {
            return Ok(State { version: self.version, config: draft.config });
        }
        if !changes.is_empty() {
            self.make(backend, service, draft);
            self.version += 1;
        }
        Ok(self.state())
    }

    // ---- the first half ----

    fn work_out(
        &self,
        backend: &Backend,
        service: &Service,
        changes: &[Change],
        dry_run: bool,
    ) -> Result<Draft, (usize, Why)> {
        let mut draft = Draft {
            config: self.config.clone(),
            groups: self.groups.clone(),
            disks: self.disks.clone(),
            made: self.made.clone(),
            opened: self.opened.clone(),
            files: self.files.clone(),
            new_disks: HashMap::new(),
            put: HashMap::new(),
            list: service.exports().list.clone(),
            shows: HashMap::new(),
            taken: self.groups.values().chain(&self.leaving.groups).copied().collect(),
            steps: Vec::new(),
        };
        for (at, change) in changes.iter().enumerate() {
            let worked_out = plan::change(&mut draft.config, change).map_err(Why::No);
            let prepared = worked_out.and_then(|()| self.prepare(backend, &mut draft, change, dry_run));
            prepared.map_err(|why| (at, why))?;
        }
        draft.drop_made();
        Ok(draft)
    }

    fn prepare(&self, backend: &Backend, draft: &mut Draft, change: &Change, dry_run: bool) -> Result<(), Why> {
        match change {
            Change::AddGroup { .. } => {
                // It comes last, after its parents that were missing.
                for at in draft.groups.len()..draft.config.groups.len() {
                    let id =
                        free_group(backend, &draft.taken).ok_or("no number is free for another group".to_owned())?;
                    let said = draft.config.groups[at].clone();
                    let above = |parent: GroupId| draft.groups[&draft.config.groups[usize::from(parent.0)].path];
                    let group = Group { parent: said.parent.map(above), ..said };
                    draft.taken.insert(id);
                    draft.groups.insert(group.path.clone(), id);
                    draft.steps.push(Step::AddGroup { id, group });
                }
            }
            Change::RemoveGroup { path } => {
                let id = draft.groups.remove(path).expect("the plan knows it");
                draft.steps.push(Step::RemoveGroup { id });
            }
            Change::SetWeight { group, weight } => {
                let id = draft.groups[group];
                draft.steps.push(Step::SetWeight { id, weight: *weight });
            }
            Change::AddDisk(disk) => {
                let number = self.free_disk(backend, draft);
                let disk = self.new_disk(backend, draft, disk, None)?;
                draft.disks.insert(disk.name.clone(), number);
                draft.new_disks.insert(number, Arc::clone(&disk));
                draft.steps.push(Step::SetDisk { number, disk });
            }
            Change::RemoveDisk { disk } => {
                let number = draft.disks.remove(disk).expect("the plan knows it");
                draft.made.remove(disk);
                draft.steps.push(Step::RemoveDisk { number });
            }
            Change::SetScheduler { disk, .. } | Change::SetKnob { disk, .. } => {
                let disk = draft.disk(backend, disk);
                draft.steps.push(Step::Turn { disk, change: change.clone() });
            }
            Change::SetDepth { disk: name, .. } | Change::SetNrRequests { disk: name, .. } => {
                let disk = draft.disk(backend, name);
                let said = draft.config.disks.iter().find(|said| said.name == *name).expect("the plan knows it");
                let (depth, nr_requests) = (said.depth, said.nr_requests);
                disk.check_bounds(depth, nr_requests)?;
                draft.steps.push(Step::Turn { disk, change: change.clone() });
            }
            Change::AddExport(new) => self.prepare_export(backend, draft, new)?,
            Change::RemoveExport { export, how } => {
                draft.shows.remove(export);
                draft.list.retain(|there| there.name != *export);
                draft.steps.push(Step::RemoveExport { name: export.clone(), how: *how });
            }
            Change::MoveExport { export, group } => {
                let id = draft.groups[group];
                draft.becomes(export, move |export| export.group = id);
            }
            Change::SetPriority { export, priority } => {
                let priority = *priority;
                draft.becomes(export, move |export| export.priority = priority);
            }
            Change::SetReadOnly { export, read_only } => {
                let read_only = *read_only;
                if !read_only && draft.opened[draft.shown(export)].read_only {
                    let why = "its backing was opened for reading only, as no export of it was to be written; remove the \
                               export and add it again";
                    return Err(Why::No(format!("export \"{export}\" cannot be written: {why}")));
                }
                draft.becomes(export, move |export| export.read_only = read_only);
            }
            Change::SetDescription { export, description } => {
                let description = description.clone();
                draft.becomes(export, move |export| export.description = description);
            }
            Change::Grow { export, size } => {
                let opened = draft.shown(export);
                let device = Arc::clone(&draft.opened[opened].device);
                let said = draft.config.exports.iter().find(|said| said.name == *export).expect("the plan knows it");
                let there =
                    device.look_at_size().map_err(|error| format!("export \"{export}\": its backing: {error}"))?;
                let end = said.offset.saturating_add(size.unwrap_or(0));
                if end > there || said.offset >= there {
                    return Err(Why::No(format!(
                        "export \"{export}\" cannot grow to {} bytes: its backing has {there}, of which it starts at {}; \
                         make that larger first",
                        size.unwrap_or(0),
                        said.offset
                    )));
                }
                let size = size.unwrap_or(there - said.offset);
                let before = draft.list.iter().find(|there| there.name == *export).map_or(0, |there| there.size);
                if size < before {
                    let why = format!("has {before} bytes and can only grow, for its clients were told of them");
                    return Err(Why::No(format!("export \"{export}\" {why}; {size} is less")));
                }
                draft.steps.push(Step::Grown { opened });
                draft.becomes(export, move |export| export.size = size);
            }
            Change::AddListener(listener) => {
                let name = listen::name(&listener.address);
                if listener.tls != config::Tls::Off && draft.config.tls.is_none() {
                    let why = "the server was started without a certificate (tls_certificates)";
                    return Err(Why::No(format!("cannot listen with TLS at {name}: {why}")));
                }
                if self.leaving.listeners.iter().any(|leaving| leaving.name == name) {
                    return Err(Why::Wait(format!("{name} is still being left")));
                }
                if dry_run {
                    listen::check(listener)?;
                } else {
                    let listening = Listening::open(listener)?;
                    let said = draft.config.listeners.last_mut().expect("the plan put it there");
                    if let config::Address::Tcp(address) = &mut said.address
                        && let Some(bound) = listening.name.strip_prefix("tcp:").and_then(|bound| bound.parse().ok())
                    {
                        *address = bound; // With port 0 the kernel chose one.
                    }
                    draft.steps.push(Step::Listen(listening));
                }
            }
            Change::RemoveListener { address } => draft.steps.push(Step::Leave { address: address.clone() }),
        }
        Ok(())
    }

    fn free_disk(&self, backend: &Backend, draft: &Draft) -> usize {
        let free = backend.disks.free_from(0);
        let mut number = free;
        while draft.new_disks.contains_key(&number) {
            number = backend.disks.free_from(number + 1);
        }
        number
    }

    /// A disk with what is to be on it from the start, and all groups.
    fn new_disk(
        &self,
        backend: &Backend,
        draft: &Draft,
        settings: &config::Disk,
        device: Option<&Registered>,
    ) -> Result<Arc<Disk>, Why> {
        let root = &draft.config.groups[0];
        let disk = Disk::new(
            settings,
            device.map_or(&[], std::slice::from_ref),
            std::slice::from_ref(root),
            backend.notifiers.workers(),
        )?;
        let now = clock::now();
        for group in &draft.config.groups[1..] {
            let id = |at: GroupId| draft.groups[&draft.config.groups[usize::from(at.0)].path];
            let group = Group { parent: group.parent.map(id), ..group.clone() };
            disk.add_group(now, draft.groups[&group.path], &group);
        }
        Ok(Arc::new(disk))
    }

    fn prepare_export(&self, backend: &Backend, draft: &mut Draft, new: &NewExport) -> Result<(), Why> {
        if draft.config.exports.len() > EXPORTS {
            return Err(Why::No(format!("there are at most {EXPORTS} exports")));
        }
        let fail = |why: String| Why::No(format!("export \"{}\": {why}", new.name));
        let said = draft.config.exports.last().expect("the plan put it there").clone();
        let named = said.disk.map(|disk| draft.config.disks[disk].name.clone());
        let shared = draft.opened.iter().position(|one| {
            let same_disk = named.as_ref().is_some_and(|name| draft.disks[name] == one.disk);
            match &said.backing {
                config::Backing::File { .. } => is_of(one, &said),
                config::Backing::Model { name, .. } => same_disk && one.model.as_ref() == Some(name),
                config::Backing::Null { .. } | config::Backing::Mem { .. } => false,
            }
        });
        let opened = match shared {
            Some(at) => {
                let one = &draft.opened[at];
                let Some(there) = draft.name(one.disk) else {
                    let why = "its backing is still being left by another export";
                    return Err(Why::Wait(format!("export \"{}\": {why}", new.name)));
                };
                if one.read_only && !said.read_only {
                    let why = "its backing was opened for reading only by other exports; remove them first, or make it read-only";
                    return Err(fail(why.into()));
                }
                if let Some(name) = &named
                    && draft.disks[name] != one.disk
                {
                    return Err(fail(format!(
                        "its backing is on disk \"{there}\" already, by another export; one backing has one queue"
                    )));
                }
                at
            }
            None => self.open(backend, draft, &said, named.as_deref())?,
        };
        let one = draft.opened[opened].clone();
        let name = draft.name(one.disk);
        let disk = draft.config.disks.iter().position(|disk| Some(&disk.name) == name);
        let group = draft.groups[&new.group];
        let placed = config::Export { disk, group, ..said };
        let mut export = arrange::export(&placed, &one.device, (one.disk, Sector(0)), 0)?;
        export.start = Sector(placed.offset / Sector::SIZE); // and where the device is, when that is known
        draft.config.exports.last_mut().expect("the plan put it there").disk = disk;
        draft.shows.insert(new.name.clone(), opened);
        draft.steps.push(Step::Export { name: new.name.clone(), export, opened });
        Ok(())
    }

    /// Opens the backing of an export, and finds it a disk; which of the opened it is.
    fn open(
        &self,
        backend: &Backend,
        draft: &mut Draft,
        said: &config::Export,
        named: Option<&str>,
    ) -> Result<usize, Why> {
        if let config::Backing::File { path, .. } = &said.backing
            && let Some(identity) = arrange::identity(path)
            && self.leaving.devices.iter().any(|one| one.device.identity() == Some(identity))
        {
            return Err(Why::Wait(format!(
                "export \"{}\": its backing is still being left by another export",
                said.name
            )));
        }
        let device = device::open(&said.backing, said.read_only)?;
        let file = match device.descriptor() {
            None => None,
            Some(_) => Some(draft.file(backend.files).ok_or_else(|| {
                format!(
                    "export \"{}\": io_uring has room for {} files of exports here, and all are taken (ulimit -n)",
                    said.name, backend.files
                )
            })?),
        };
        let registered = (Arc::clone(&device), file);
        let home = device.facts().home;
        let at_home = || {
            let same = |one: &&Opened| home.is_some() && one.device.facts().home == home;
            let mut known = draft.opened.iter().filter(same).filter_map(|one| draft.name(one.disk));
            known.find(|name| draft.made.contains(*name)).cloned()
        };
        let name = named.map(str::to_owned).or_else(at_home);
        let disk = match &name {
            Some(name) if !draft.disk(backend, name).is_empty() || draft.has_put(draft.disks[name]) => {
                let number = draft.disks[name];
                let put = draft.put.entry(number).or_default();
                put.push(registered);
                draft
                    .new_disks
                    .get(&number)
                    .map_or_else(|| backend.disks.get(number), Arc::clone)
                    .could_take(put)
                    .map_err(|why| format!("export \"{}\": {why}", said.name))?;
                draft.steps.push(Step::Put { opened: draft.opened.len() });
                number
            }
            // On a disk that has nothing the first device says what that is like.
            Some(name) => {
                let number = draft.disks[name];
                let at = draft.config.disks.iter().position(|disk| disk.name == *name).expect("it is there");
                let disk = self.new_disk(backend, draft, &draft.config.disks[at].clone(), Some(&registered))?;
                draft.config.disks[at] = disk.settings();
                draft.put.insert(number, Vec::new());
                draft.new_disks.insert(number, Arc::clone(&disk));
                draft.steps.push(Step::SetDisk { number, disk });
                number
            }
            None => {
                let of = device.path().map_or_else(|| said.name.clone(), |path| path.display().to_string());
                let mut name = format!("of {of}");
                while draft.config.disks.iter().any(|disk| disk.name == name) {
                    name.push('\'');
                }
                let settings = config::Disk { name: name.clone(), ..draft.config.disk_default.clone() };
                let disk = self.new_disk(backend, draft, &settings, Some(&registered))?;
                let number = self.free_disk(backend, draft);
                draft.config.disks.push(disk.settings());
                draft.made.insert(name.clone());
                draft.disks.insert(name, number);
                draft.put.insert(number, Vec::new());
                draft.new_disks.insert(number, Arc::clone(&disk));
                draft.steps.push(Step::SetDisk { number, disk });
                number
            }
        };
        let model = match &said.backing {
            config::Backing::Model { name, .. } => Some(name.clone()),
            _ => None,
        };
        draft.opened.push(Opened { device, model, disk, start: Sector(0), file, read_only: said.read_only });
        Ok(draft.opened.len() - 1)
    }

    // ---- the second half ----

    fn make(&mut self, backend: &Backend, service: &Service, draft: Draft) {
        let Draft { config, groups, disks, made, opened, files, steps, .. } = draft;
        (self.config, self.groups, self.disks, self.opened, self.files) = (config, groups, disks, opened, files);
        let before = std::mem::replace(&mut self.made, made);
        let now = clock::now();
        let mut list = service.exports().list.clone();
        for step in steps {
            match step {
                Step::SetDisk { number, disk } => {
                    backend.helpers.set_disk(number, &disk.concurrency);
                    self.leaving.disks.retain(|leaving| *leaving != number);
                    for one in self.opened.iter_mut().filter(|one| one.disk == number) {
                        if let Some(place) = disk.place_of(&one.device) {
                            one.start = place.start;
                            one.file.iter().for_each(|file| backend.helpers.set_file(*file, number));
                        }
                    }
                    backend.disks.set(number, Some(disk));
                }
                Step::Put { opened } => {
                    let one = &mut self.opened[opened];
                    one.file.iter().for_each(|file| backend.helpers.set_file(*file, one.disk));
                    let registered = (Arc::clone(&one.device), one.file);
                    one.start = backend.disks.get(one.disk).add(&registered).expect("there was a place just now");
                }
                Step::RemoveDisk { number } => self.leaving.disks.push(number),
                Step::AddGroup { id, group } => {
                    backend.disks.all().iter().filter(|(_, disk)| !disk.has_group(id)).for_each(|(_, disk)| {
                        disk.add_group(now, id, &group);
                    });
                }
                Step::RemoveGroup { id } => self.leaving.groups.push(id),
                Step::SetWeight { id, weight } => {
                    backend.disks.all().iter().for_each(|(_, disk)| disk.set_weight(now, id, weight));
                }
                Step::Turn { disk, change } => turn(&disk, &change, &self.config),
                Step::Export { name, mut export, opened } => {
                    self.exports_made += 1;
                    export.id = self.exports_made;
                    export.start = Sector(export.start.0 + self.opened[opened].start.0);
                    debug_assert!(export.name == name);
                    list.push(Arc::new(export));
                }
                Step::Become { name, to } => {
                    if let Some(there) = list.iter_mut().find(|export| export.name == name) {
                        let mut export = Export::clone(there);
                        to(&mut export);
                        export.facts = export.device.facts();
                        *there = Arc::new(export);
                    }
                }
                Step::RemoveExport { name, how } => {
                    if let Some(at) = list.iter().position(|export| export.name == name) {
                        self.leaving.exports.push((list.remove(at), how));
                    }
                }
                Step::Grown { opened } => {
                    let one = &self.opened[opened];
                    one.device.grow();
                    backend.disks.get(one.disk).grown(&one.device);
                }
                Step::Listen(listening) => {
                    service.listen(listening, self.listeners_made);
                    self.listeners_made += 1;
                }
                Step::Leave { address } => self.leaving.listeners.extend(service.leave(&address)),
            }
        }
        for name in before.difference(&self.made) {
            tracing::debug!(disk = name, "goes with its last export");
        }
        self.publish(service, list);
        backend.notifiers.ring_all();
    }

    fn publish(&self, service: &Service, list: Vec<Arc<Export>>) {
        let leaving = self.leaving.exports.iter().map(|(export, how)| (export.id, *how)).collect();
        service.set_exports(Exports { list, leaving, request_max: service.limits.request_max });
    }

    // ---- what there is ----

    /// The server at this moment; `figures`: with what each group has done.
    pub(crate) fn view(&mut self, backend: &Backend, service: &Service, figures: bool) -> View {
        self.look_at_findings(backend, service);
        let groups: Vec<_> = self.groups.iter().map(|(path, id)| (*id, path.clone())).collect();
        let disk = |disk: &config::Disk| {
            let number = self.disks[&disk.name];
            let there = backend.disks.get(number);
            let waits = there.devices().iter().any(|device| device.needs_helpers());
            DiskView {
                concurrency: waits.then(|| backend.helpers.learned(number).0),
                findings: self.findings.get(&disk.name).map_or_else(Vec::new, |all| all.iter().copied().collect()),
                ..there.view(&groups, figures)
            }
        };
        let clients = service.clients();
        let client = |((worker, _), client): (&(u16, usize), &Client)| {
            let Client { peer, export, since } = client.clone();
            ClientView { peer, export, worker: *worker, since }
        };
        let errors = backend.disks.all().into_iter().filter_map(|(_, disk)| disk.flush_error());
        View {
            version: self.version,
            started: self.started,
            workers: backend.notifiers.workers(),
            listeners: service.listeners().values().map(|listening| listening.name.clone()).collect(),
            exports: service.exports().list.iter().map(|export| (export.name.clone(), export.size)).collect(),
            disks: self.config.disks.iter().map(disk).collect(),
            clients: clients.iter().map(client).collect(),
            flush_errors: errors.map(|(device, errno)| (view::name(&*device), errno.0)).collect(),
            leaving: self.leaving.is_something(),
        }
    }

    /// Keeps what schedulers found out since this was asked last, and tells it.
    pub(crate) fn look_at_findings(&mut self, backend: &Backend, service: &Service) {
        for (name, number) in &self.disks {
            backend.disks.get(*number).take_findings(&mut |finding| {
                let all = self.findings.entry(name.clone()).or_default();
                if all.len() == FINDINGS {
                    all.pop_front();
                }
                all.push_back(finding);
                let of = vec![
                    ("disk", name.clone()),
                    ("slice_idle", format!("{:?}", finding.to).to_lowercase()),
                    ("idle_kib_s", finding.idle.to_string()),
                    ("parallel_kib_s", finding.parallel.to_string()),
                ];
                service.events.tell("decided", of);
            });
        }
        self.findings.retain(|name, _| self.disks.contains_key(name));
    }

    // ---- what leaves ----

    /// Lets go of what was removed, as far as nobody has anything to do with it any more (live.2); whether something is left.
    pub(crate) fn sweep(&mut self, backend: &Backend, service: &Service) -> bool {
        let now = clock::now();
        let mut news = false;
        let list = service.exports().list.clone();
        let before = self.leaving.exports.len();
        self.leaving.exports.retain(|(export, _)| {
            let used = Arc::strong_count(&export.stats) > 1;
            if !used {
                service.events.tell("removed", vec![("export", export.name.clone())]);
            }
            used
        });
        if self.leaving.exports.len() != before {
            self.publish(service, list.clone());
        }
        let leaving = &self.leaving.exports;
        let in_use = |device: &Arc<dyn Device>| {
            let of = |export: &Arc<Export>| Arc::ptr_eq(&export.device, device);
            list.iter().any(of) || leaving.iter().any(|(export, _)| of(export))
        };
        let (stay, go): (Vec<_>, Vec<_>) = self.opened.drain(..).partition(|one| in_use(&one.device));
        self.opened = stay;
        for one in go {
            backend.disks.get(one.disk).remove(&one.device);
            self.leaving.devices.push(one);
            news = true;
        }
        if news {
            backend.notifiers.ring_all();
        }
        let (stay, go): (Vec<_>, Vec<_>) =
            self.leaving.devices.drain(..).partition(|one| Arc::strong_count(&one.device) > 1);
        self.leaving.devices = stay;
        for one in go {
            backend.disks.get(one.disk).free(one.start);
            self.files.0.extend(one.file);
            if !self.disks.values().any(|number| *number == one.disk) && !self.leaving.disks.contains(&one.disk) {
                self.leaving.disks.push(one.disk);
            }
            close(one.device); // live.3
        }
        self.leaving.disks.retain(|number| {
            let busy = !backend.disks.get(*number).is_empty();
            if !busy {
                backend.disks.set(*number, None);
                news = true;
            }
            busy
        });
        let disks = backend.disks.all();
        self.leaving.groups.retain(|id| {
            disks.iter().fold(false, |left, (_, disk)| !disk.remove_group(now, *id) || disk.has_group(*id) || left)
        });
        self.leaving.listeners.retain(|listening| Arc::strong_count(listening) > 1);
        if news {
            backend.notifiers.ring_all();
        }
        self.leaving.is_something()
    }
}

impl Leaving {
    fn is_something(&self) -> bool {
        let Self { exports, devices, groups, disks, listeners } = self;
        !(exports.is_empty() && devices.is_empty() && groups.is_empty() && disks.is_empty() && listeners.is_empty())
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

/// Whether a device is the file that an export is to show.
fn is_of(one: &Opened, said: &config::Export) -> bool {
    let config::Backing::File { path, .. } = &said.backing else { return false };
    one.device.path() == Some(path)
        || one.device.identity().is_some_and(|identity| arrange::identity(path) == Some(identity))
}

impl Draft {
    /// Which of the opened devices an export shows.
    fn shown(&self, export: &str) -> usize {
        self.shows.get(export).copied().unwrap_or_else(|| {
            let there = self.list.iter().find(|there| there.name == export).expect("the plan knows it");
            let same = |one: &Opened| Arc::ptr_eq(&one.device, &there.device);
            self.opened.iter().position(same).expect("an export shows a device")
        })
    }

    /// The name of a disk; `None`: it was removed, and what is on it is leaving.
    fn name(&self, disk: usize) -> Option<&String> {
        self.disks.iter().find(|(_, number)| **number == disk).map(|(name, _)| name)
    }

    fn disk(&self, backend: &Backend, name: &str) -> Arc<Disk> {
        let number = self.disks[name];
        self.new_disks.get(&number).map_or_else(|| backend.disks.get(number), Arc::clone)
    }

    /// Whether a device was put on a disk in this transaction.
    fn has_put(&self, disk: usize) -> bool {
        self.put.contains_key(&disk)
    }

    /// A number for a file.
    fn file(&mut self, most: u32) -> Option<u32> {
        let (free, used) = &mut self.files;
        free.pop_first().or_else(|| {
            *used += 1;
            (*used <= most).then(|| *used - 1)
        })
    }

    fn becomes(&mut self, export: &str, to: impl FnOnce(&mut Export) + 'static) {
        self.steps.push(Step::Become { name: export.to_owned(), to: Box::new(to) });
    }

    /// Disks that nobody named go with their last export.
    fn drop_made(&mut self) {
        let Self { config, made, disks, .. } = self;
        while let Some(at) = config.disks.iter().enumerate().position(|(at, disk)| {
            made.contains(&disk.name) && !config.exports.iter().any(|export| export.disk == Some(at))
        }) {
            let name = config.disks.remove(at).name;
            made.remove(&name);
            disks.remove(&name);
            let later = config.exports.iter_mut().filter_map(|export| export.disk.as_mut());
            later.for_each(|disk| *disk -= usize::from(*disk > at));
        }
    }
}

/// Turns a knob of a disk; that it can be turned so was looked at before.
fn turn(disk: &Disk, change: &Change, config: &Config) {
    let now = clock::now();
    let result = match change {
        Change::SetScheduler { scheduler, set, .. } => disk.set_scheduler(now, *scheduler, set),
        Change::SetKnob { knob, value, .. } => disk.set_tunable(knob, value),
        Change::SetDepth { .. } | Change::SetNrRequests { .. } => {
            let said = config.disks.iter().find(|said| said.name == disk.name);
            said.map_or(Ok(()), |said| disk.set_bounds(now, said.depth, said.nr_requests))
        }
        _ => Ok(()),
    };
    if let Err(error) = result {
        tracing::error!(disk = disk.name, %error, "a change that was found right could not be made");
    }
}

/// Flushes a device that nobody uses any more, and closes it (live.3). A disk that hangs shall not hang who changes others.
fn close(device: Arc<dyn Device>) {
    let flush = move || {
        if let Err(error) = device.flush_now() {
            let path = device.path().unwrap_or_else(|| "memory".as_ref()).display();
            tracing::error!(%path, %error, "the last flush failed, and what was written before it may be lost");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("closing".into()).spawn(flush) {
        tracing::error!(%error, "no thread can be made to flush a device that goes");
    }
}
