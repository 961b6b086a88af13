//! The first half of a transaction: all that can fail.

mod export;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use fairlift_core::ceiling::Bounds;
use fairlift_core::{Group, GroupId, flush};

use super::{Live, Opened};
use crate::Error;
use crate::clock;
use crate::config::{self, Address, Config, Faults, Listener};
use crate::control::change::{Change, Leave};
use crate::control::{arrange, plan};
use crate::disk::{Disk, Possible, Registered};
use crate::export::Export;
use crate::export::clients::Served;
use crate::export::front::Opening;
use crate::export::listen::{self, Listening};
use crate::worker::Backend;

/// Why a change is not made.
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

/// What is done in the second half of a transaction.
pub(super) enum Step {
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
    SetBounds {
        id: GroupId,
        bounds: Bounds,
    },
    /// A disk has another scheduler, other tunables or bounds.
    Turn {
        disk: Arc<Disk>,
        to: Possible,
    },
    Export {
        export: Export,
        opened: usize,
        /// What opens it to those who do not come by listeners.
        openings: Vec<Opening>,
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
    Faults {
        opened: usize,
        faults: Faults,
    },
    Listen(Listening),
    Leave {
        address: String,
    },
    Certificate(Arc<rustls::ServerConfig>),
}

/// What a transaction has worked out so far.
pub(super) struct Draft {
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
    /// Disks that shall have another scheduler, other tunables or bounds, and the last change that says so.
    pub(super) turned: BTreeMap<String, usize>,
    /// What is told of disks that get the scheduler that their tenants need.
    pub(super) suited: Vec<String>,
    pub(super) steps: Vec<Step>,
}

impl Live {
    pub(super) fn work_out(
        &self,
        backend: &Backend,
        served: &Served,
        changes: &[Change],
        dry_run: bool,
    ) -> Result<Draft, (usize, Why)> {
        let mut draft = Draft {
            config: Config::clone(&self.config),
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
            turned: BTreeMap::new(),
            suited: Vec::new(),
            steps: Vec::new(),
        };
        for (at, change) in changes.iter().enumerate() {
            let worked_out = plan::change(&mut draft.config, change).map_err(Why::No);
            let prepared = worked_out.and_then(|()| self.prepare((backend, served), &mut draft, (at, change), dry_run));
            prepared.map_err(|why| (at, why))?;
        }
        let writes =
            |change: &Change| matches!(change, Change::AddExport(_) | Change::SetReadOnly { .. } | Change::Grow { .. });
        if let Some(at) = changes.iter().rposition(writes) {
            let shown = draft.config.exports.iter().map(|one| (one, &draft.opened[draft.shown(&one.name)].device));
            arrange::check_shared(shown).map_err(|error| (at, error.into()))?;
        }
        draft.suit(backend, changes.len().saturating_sub(1));
        draft.turn_disks(backend)?;
        let floors = plan::check_floors(&draft.config);
        floors
            .map_err(|(path, why)| (changes.len().saturating_sub(1), Why::No(format!("group {path}: min: {why}"))))?;
        draft.drop_made();
        Ok(draft)
    }

    fn prepare(
        &self,
        (backend, served): (&Backend, &Served),
        draft: &mut Draft,
        (at, change): (usize, &Change),
        dry_run: bool,
    ) -> Result<(), Why> {
        match change {
            Change::AddGroup { .. } => draft.add_groups(backend)?,
            Change::RemoveGroup { path } => {
                let id = draft.groups.remove(path).expect("the plan knows it");
                draft.steps.push(Step::SetBounds { id, bounds: Bounds::default() });
                draft.steps.push(Step::RemoveGroup { id });
            }
            Change::SetWeight { group, weight } => {
                draft.steps.push(Step::SetWeight { id: draft.groups[group], weight: *weight });
            }
            Change::SetBounds { group, bounds } => {
                draft.steps.push(Step::SetBounds { id: draft.groups[group], bounds: *bounds });
            }
            Change::AddDisk(disk) => self.add_disk(backend, draft, disk)?,
            Change::RemoveDisk { disk } => {
                let number = draft.disks.remove(disk).expect("the plan knows it");
                draft.made.remove(disk);
                draft.steps.push(Step::RemoveDisk { number });
            }
            Change::SetScheduler { disk, .. }
            | Change::SetKnob { disk, .. }
            | Change::SetDepth { disk, .. }
            | Change::SetNrRequests { disk, .. } => _ = draft.turned.insert(disk.clone(), at),
            Change::AddExport(new) => self.add_export((backend, served), draft, new, dry_run)?,
            Change::RemoveExport { export, how } => {
                if *how == Leave::Drain {
                    draft.is_not_held(served, export)?;
                }
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
            Change::SetReadOnly { export, read_only } => draft.set_read_only(export, *read_only)?,
            Change::SetDescription { export, description } => {
                let description = description.clone();
                draft.becomes(export, move |export| export.description = description);
            }
            Change::Grow { export, size } => draft.grow(backend, export, *size)?,
            Change::SetFaults { export, faults, .. } => {
                draft.steps.push(Step::Faults { opened: draft.shown(export), faults: faults.clone() });
            }
            Change::AddListener(listener) => self.add_listener(draft, listener, dry_run)?,
            Change::RemoveListener { address } => draft.steps.push(Step::Leave { address: address.clone() }),
            Change::SetCertificate { tls } => draft.steps.extend(tls.clone().map(Step::Certificate)),
        }
        Ok(())
    }

    fn add_listener(&self, draft: &mut Draft, listener: &Listener, dry_run: bool) -> Result<(), Why> {
        let name = listen::name(&listener.address);
        if listener.tls != config::Tls::Off && draft.config.tls.is_none() {
            let why = "the server has no certificate (tls_certificates)";
            return Err(Why::No(format!("cannot listen with TLS at {name}: {why}")));
        }
        if self.leaving.listeners.iter().any(|leaving| leaving.name == name) {
            return Err(Why::Wait(format!("{name} is still being left")));
        }
        if dry_run {
            return Ok(listen::check(listener)?);
        }
        let listening = Listening::open(listener)?;
        let said = draft.config.listeners.last_mut().expect("the plan put it there");
        if let Address::Tcp(address) = &mut said.address
            && let Some(bound) = listening.name.strip_prefix("tcp:").and_then(|bound| bound.parse().ok())
        {
            *address = bound; // With port 0 the kernel chose one.
        }
        draft.steps.push(Step::Listen(listening));
        Ok(())
    }

    fn add_disk(&self, backend: &Backend, draft: &mut Draft, disk: &config::Disk) -> Result<(), Why> {
        let number = self.free_disk(backend, draft);
        let disk = self.new_disk(backend, draft, disk, None)?;
        draft.disks.insert(disk.name.clone(), number);
        draft.new_disks.insert(number, Arc::clone(&disk));
        draft.steps.push(Step::SetDisk { number, disk });
        Ok(())
    }

    fn free_disk(&self, backend: &Backend, draft: &Draft) -> usize {
        let mut number = backend.disks.free_from(0);
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

impl Draft {
    /// Whether nobody has the block device of an export for himself, who would lose it.
    fn is_not_held(&self, served: &Served, export: &str) -> Result<(), Why> {
        let there = self.list.iter().find(|there| there.name == export);
        there.and_then(|there| served.holder(there.id)).map_or(Ok(()), |holder| {
            Err(Why::No(format!(
                "export \"{export}\" cannot be removed: {holder}; unmount or release it first, or remove it all the same, now (--now)"
            )))
        })
    }

    /// The groups that the plan has added: it comes last, after its parents that were missing.
    fn add_groups(&mut self, backend: &Backend) -> Result<(), Why> {
        for at in self.groups.len()..self.config.groups.len() {
            let id = free_group(backend, &self.taken).ok_or("no number is free for another group".to_owned())?;
            let said = self.config.groups[at].clone();
            let above = |parent: GroupId| self.groups[&self.config.groups[usize::from(parent.0)].path];
            let group = Group { parent: said.parent.map(above), ..said };
            self.taken.insert(id);
            self.groups.insert(group.path.clone(), id);
            self.steps.push(Step::AddGroup { id, group });
        }
        Ok(())
    }

    /// Lets disks whose scheduler nobody named have one with weights, where their tenants need it now. It stays when they have gone:
    /// what it has learned is not thrown away for the next.
    fn suit(&mut self, backend: &Backend, change: usize) {
        for at in 0..self.config.disks.len() {
            let name = self.config.disks[at].name.clone();
            if !self.config.disks[at].is_usual || !self.disks.contains_key(&name) {
                continue;
            }
            let suits = plan::suitable(&self.config, at, self.disk(backend, &name).rotates());
            let tenants = plan::tenants(&self.config, at).len();
            let there = &mut self.config.disks[at];
            if !suits.has_weights() || suits == there.scheduler || there.scheduler.has_floors() {
                continue;
            }
            let was = std::mem::replace(&mut there.scheduler, suits).name();
            there.set.retain(|(knob, _)| flush::Settings::INFO.iter().any(|info| info.name == knob));
            let tenants = if tenants == 1 { "one tenant".into() } else { format!("{tenants} tenants") };
            self.suited.push(format!("disk {name}: scheduler {} (was {was}) for {tenants}", suits.name()));
            self.turned.insert(name, change);
        }
    }

    /// All that is said of one disk is looked at, and made, at once.
    fn turn_disks(&mut self, backend: &Backend) -> Result<(), (usize, Why)> {
        for (name, at) in std::mem::take(&mut self.turned) {
            let Some(said) = self.config.disks.iter().find(|said| said.name == name) else { continue };
            let disk = self.disk(backend, &name);
            let to = disk.check(said).map_err(|why| (at, Why::No(why)))?;
            self.steps.push(Step::Turn { disk, to });
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

    fn grow(&mut self, backend: &Backend, export: &str, size: Option<u64>) -> Result<(), Why> {
        let opened = self.shown(export);
        let said = self.config.exports.iter().find(|said| said.name == *export).expect("the plan knows it");
        let looked = self.opened[opened].device.look_at_size();
        let there = looked.map_err(|error| format!("export \"{export}\": its backing: {error}"))?;
        let end = said.offset.saturating_add(size.unwrap_or(0));
        if end > there || said.offset >= there {
            return Err(Why::No(format!(
                "export \"{export}\" cannot grow to {} bytes: its backing has {there}, of which it starts at {}; make that \
                 larger first",
                size.unwrap_or(0),
                said.offset
            )));
        }
        let size = size.unwrap_or(there - said.offset);
        let before = self.list.iter().find(|there| there.name == *export).map_or(0, |there| there.size);
        if size < before {
            let why = format!("has {before} bytes and can only grow, for its clients were told of them");
            return Err(Why::No(format!("export \"{export}\" {why}; {size} is less")));
        }
        let one = &self.opened[opened];
        if !self.new_disks.contains_key(&one.disk) && !backend.disks.get(one.disk).has_room(&one.device, there) {
            return Err(Why::No(format!(
                "export \"{export}\" cannot grow: its backing has {there} bytes now, and its disk keeps room for less; remove the \
                 export and add it again"
            )));
        }
        self.steps.push(Step::Grown { opened });
        self.becomes(export, move |export| export.size = size);
        Ok(())
    }

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
