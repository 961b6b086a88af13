//! Live: what a server has, by names, and how changes are made of it.
//!
//! A transaction has two halves. In the first everything that can fail is done: the steps to the new configuration are worked out ([`difference`](super::difference)),
//! files are opened, sockets bound, disks made; if anything fails it is all dropped again. The second half cannot fail. Example:
//! an export and its listener are added, and the port is taken: then the file is closed again, and no client has seen anything.
//!
//! live.1  Only this changes which disks, places, groups, exports and listeners there are, one transaction at a time. Workers
//!         learn of it when they are woken, between two batches.
//! live.2  A removed export is let go of in steps: clients leave the export; workers let go of its device; the place, the numbers
//!         and the descriptor are free. Each step is looked at by [`sweep`](Live::sweep): nobody waits for it.
//! live.3  A device that goes is flushed: what clients wrote and did not flush is as durable as at the end of the server.

mod leave;
mod make;
mod prepare;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::SystemTime;

use fairlift_core::learn::idling_trial::Finding;
use fairlift_core::objective::Room;
use fairlift_core::queue::{Kept, Shortage};
use fairlift_core::{Duration, GroupId};
use prepare::Why;

use super::difference::Of;
use super::edit::{Edit, Leave};
use super::state::{Made, Refused, State};
use super::view::{self, ClientView, DiskView, View};
use crate::clock;
use crate::config::{self, Config};
use crate::control::arrange::Opened;
use crate::device::roots::Roots;
use crate::device::{Device, Fault};
use crate::disk::Past;
use crate::export::Export;
use crate::export::clients::Served;
use crate::export::front::Opening;
use crate::export::listen::Listening;
use crate::export::service::{Client, Service};
use crate::worker::Backend;
use crate::worker::turns::Turns;

/// How often it is looked whether something has left that the next change needs, and how long at most in all.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(2);
const LOOKS: usize = 1000;

/// How many disks that are gone are kept what was counted of, and backings what was lost. Chosen: more than come and go by turns.
const GONE: usize = 256;

/// Number of findings of a disk's schedulers that are kept.
const FINDINGS: usize = 16;

pub(crate) struct Live {
    /// Counted on from those of a server from which this one took over: none of them is one of another configuration here.
    pub(crate) version: u64,
    /// The configuration in force: every export names its disk.
    config: Arc<Config>,
    /// The configuration before the last change, and those of its disks that had no name.
    before: (Arc<Config>, BTreeSet<String>),
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
    /// Threads that flush devices which have gone, and close them, before the server ends; and the names of these.
    pub(crate) closing: Vec<(String, JoinHandle<()>)>,
    /// Where files of new exports must lie.
    pub(crate) roots: Roots,
    /// The latest that the schedulers of disks found out.
    findings: BTreeMap<String, VecDeque<Finding>>,
    /// Disks whose floors add up to more than they were seen to do.
    short: BTreeSet<String>,
    /// The reported latencies that are not kept, by disk and group.
    given_up: BTreeMap<(String, String), Duration>,
    /// The latest latency that was given up, by disk and group, until one as short is kept.
    gave_up: BTreeMap<(String, String), Duration>,
    started: SystemTime,
    /// The counters of removed disks, by their names, the latest last: a disk that comes again continues them.
    past: VecDeque<(String, Past)>,
    /// Connections to remote backings that were lost, by the names of backings that were closed.
    lost: BTreeMap<String, u64>,
}

/// Removed objects that have not gone yet (live.2).
#[derive(Default)]
struct Leaving {
    exports: Vec<(Arc<Export>, Leave)>,
    devices: Vec<Opened>,
    groups: Vec<GroupId>,
    /// Disks that were removed, or that go when they are empty.
    disks: Vec<usize>,
    listeners: Vec<Arc<Listening>>,
}

/// A transaction in its second half (live.1).
struct Making<'a> {
    live: &'a mut Live,
    backend: &'a Backend,
    served: &'a Served,
    /// Exports as they will be published, and the backings of new ones.
    list: Vec<Arc<Export>>,
    openings: Vec<(Opening, Arc<Export>)>,
}

type Prepared = Box<dyn FnOnce(&mut Making<'_>)>;

impl Live {
    /// A server as it starts: `config` is in force, with the disks that were made for exports that name none after the first `named`.
    pub(crate) fn new(config: Config, named: usize, opened: Vec<Opened>, roots: Roots) -> Self {
        let config = Arc::new(config);
        let numbered = config.groups.iter().enumerate();
        Self {
            version: 0,
            groups: numbered.map(|(id, group)| (group.path.clone(), GroupId(id as u16))).collect(),
            disks: config.disks.iter().enumerate().map(|(number, disk)| (disk.name.clone(), number)).collect(),
            made: config.disks[named..].iter().map(|disk| disk.name.clone()).collect(),
            files: (BTreeSet::new(), opened.iter().filter_map(|one| one.file).count() as u32),
            opened,
            exports_made: config.exports.len() as u64,
            listeners_made: config.listeners.len(),
            leaving: Leaving::default(),
            closing: Vec::new(),
            roots,
            findings: BTreeMap::new(),
            short: BTreeSet::new(),
            given_up: BTreeMap::new(),
            gave_up: BTreeMap::new(),
            started: SystemTime::now(),
            past: VecDeque::new(),
            lost: BTreeMap::new(),
            before: (Arc::clone(&config), BTreeSet::new()),
            config,
        }
    }

    pub(crate) fn is_leaving(&self) -> bool {
        let Leaving { exports, devices, groups, disks, listeners } = &self.leaving;
        let is_empty =
            exports.is_empty() && devices.is_empty() && groups.is_empty() && disks.is_empty() && listeners.is_empty();
        !(is_empty && self.flushed_last().is_empty())
    }

    pub(crate) fn state(&self) -> State {
        State { version: self.version, config: Arc::clone(&self.config) }
    }

    /// Makes what is in force another configuration, or leaves it (control.1).
    pub(crate) fn apply(
        &mut self,
        backend: &Backend,
        served: &Served,
        edit: impl FnOnce(&mut Edit) -> Result<(), String>,
        version: Option<u64>,
        dry_run: bool,
    ) -> Result<Made, Refused> {
        if let Some(expected) = version.filter(|expected| *expected != self.version) {
            return Err(Refused::Version { expected, now: self.version });
        }
        let mut wanted = Edit::from(Config::clone(&self.config));
        edit(&mut wanted).map_err(|why| Refused::Change { of: Of::Server, why })?;
        let mut looks = 0..LOOKS;
        let mut draft = loop {
            self.sweep(backend, served);
            match self.work_out((backend, served), &wanted, dry_run) {
                Ok(draft) => break draft,
                Err((_, Why::Wait(_))) if looks.next().is_some() => std::thread::sleep(PATIENCE),
                Err((of, Why::Wait(why) | Why::No(why))) => return Err(Refused::Change { of, why }),
            }
        };
        let (steps, suited) = (std::mem::take(&mut draft.steps), draft.suited.clone());
        if dry_run {
            return Ok(Made { state: State { version: self.version, config: Arc::new(draft.config) }, steps, suited });
        }
        self.before = (Arc::clone(&self.config), self.made.clone());
        self.make(draft);
        self.version += 1; // also where nothing differs: of two who know one version, only one may change it
        Ok(Made { state: self.state(), steps, suited })
    }

    /// Restores the state before a change that failed in part. Exports that it added are cut off.
    pub(crate) fn undo(&mut self, backend: &Backend, served: &Served, made: &Made) -> Result<(), Refused> {
        let (config, disks) = self.before.clone();
        let leave = made.added().map(|name| (name.clone(), Leave::Cut)).collect();
        let put = |edit: &mut Edit| {
            *edit = Edit { leave, ..Edit::from(Config::clone(&config)) };
            Ok(())
        };
        self.apply(backend, served, put, Some(made.state.version), false)?;
        self.made = disks;
        Ok(())
    }

    /// The server at this moment; `figures`: with the work of each group.
    pub(crate) fn view(&mut self, backend: &Backend, served: &Served, figures: bool) -> View {
        self.look_at_findings(backend, served);
        let groups = self.groups();
        let now = clock::now();
        let disk = |disk: &config::Disk| {
            let number = self.disks[&disk.name];
            let there = backend.disks.get(number);
            let waits = there.devices().iter().any(|device| device.facts().needs_helpers);
            let gave_up = self.gave_up.iter().filter(|((of, _), _)| *of == disk.name);
            let mut view = DiskView {
                concurrency: waits.then(|| backend.helpers.learned(number).0),
                findings: self.findings.get(&disk.name).map_or_else(Vec::new, |all| all.iter().copied().collect()),
                given_up: gave_up.map(|((_, group), target)| (group.clone(), *target)).collect(),
                ..there.view(now, &groups, figures)
            };
            let are_before = |(at, one): &(usize, Arc<crate::disk::Disk>)| *at != number && one.name == disk.name;
            let before = if figures { backend.disks.all() } else { Vec::new() };
            before.iter().filter(|one| are_before(one)).for_each(|(_, one)| view.goes_on_from(now, one));
            view
        };
        let clients = served.service.clients();
        let client = |((worker, _), client): (&(u16, usize), &Client)| {
            let Client { peer, export, since, unsent } = client.clone();
            ClientView { peer, export, worker: *worker, since, unsent: unsent.replies(), held: unsent.waits_for() }
        };
        let devices = backend.disks.all().into_iter().flat_map(|(_, disk)| disk.devices());
        let link = |device: Arc<dyn Device>| {
            let (name, mut link) = (view::name(&*device), device.link()?);
            link.lost += self.lost.get(&name).copied().unwrap_or_default();
            Some((name, link))
        };
        let links = devices.filter_map(link).collect();
        let errors = backend.disks.all().into_iter().flat_map(|(_, disk)| disk.flush_errors());
        View {
            version: self.version,
            started: self.started,
            workers: backend.notifiers.workers(),
            engine: backend.engine.to_string(),
            listeners: served.service.listeners.list().values().map(|listening| listening.name.clone()).collect(),
            exports: served.service.exports().list.iter().map(|export| (export.name.clone(), export.size)).collect(),
            disks: self.config.disks.iter().map(disk).collect(),
            clients: clients.iter().map(client).collect(),
            turned_away: served.service.gate.turned_away(),
            let_in: served.service.exports().access.counts().collect(),
            links,
            flush_errors: errors.map(|(device, errno)| (view::name(&*device), errno.0)).collect(),
            leaving: self.is_leaving() || served.is_leaving(),
            block_devices: served.devices(),
            at: now,
            worked: backend.turns.iter().map(Turns::read).collect(),
        }
    }

    /// The groups, by the numbers that queues know them by.
    pub(crate) fn groups(&self) -> Vec<(GroupId, String)> {
        self.groups.iter().map(|(path, id)| (*id, path.clone())).collect()
    }

    /// Keeps the new findings of schedulers, and reports them and failures.
    pub(crate) fn look_at_findings(&mut self, backend: &Backend, served: &Served) {
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
                served.service.events.tell("decided", of);
            });
        }
        self.look_at_promises(backend, &served.service);
        for one in &self.opened {
            for Fault { op, errno, more } in one.device.take_faults() {
                let of = vec![
                    ("backing", view::name(&*one.device)),
                    ("request", op.name().to_owned()),
                    ("error", std::io::Error::from_raw_os_error(errno.0).to_string()),
                    ("more", more.to_string()),
                ];
                served.service.events.tell("failed", of);
            }
        }
        self.findings.retain(|name, _| self.disks.contains_key(name));
    }

    /// Tells of floors that add up to too much, and of latencies that are given up, or kept again.
    fn look_at_promises(&mut self, backend: &Backend, service: &Service) {
        let mut given_up = BTreeMap::new();
        let names: BTreeMap<_, _> = self.groups.iter().map(|(path, id)| (*id, path)).collect();
        for (disk, number) in &self.disks {
            let Kept { latencies, short } = backend.disks.get(*number).kept(clock::now());
            let was_short = match short {
                Some(_) => !self.short.insert(disk.clone()),
                None => self.short.remove(disk),
            };
            if let Some(short) = short.filter(|_| !was_short) {
                tracing::warn!("disk {disk:?}: {short}");
                let Shortage { of_bytes, floors, done } = short;
                let of = vec![
                    ("disk", disk.clone()),
                    ("of", if of_bytes { "bytes" } else { "ios" }.to_owned()),
                    ("floors", floors.to_string()),
                    ("done", done.to_string()),
                ];
                service.events.tell("short", of);
            }
            for (id, standing) in latencies {
                let Some(group) = names.get(&id) else { continue };
                let of = (disk.clone(), (*group).clone());
                let (target, is_given_up) = (standing.target, standing.room == Room::GivenUp);
                // Of another latency nothing is known yet: it is not the one that was given up, and not kept either.
                if is_given_up != (self.given_up.get(&of) == Some(&target)) {
                    match is_given_up {
                        true => {
                            let view = backend.disks.get(*number).view(clock::now(), &self.groups(), true);
                            tracing::warn!("disk {disk:?}: {}", view.given_up(group, target));
                            self.gave_up.insert(of.clone(), target);
                        }
                        false => tracing::info!("disk {disk:?}: group {group}: a latency of {target} is kept again"),
                    }
                    let state = if is_given_up { "given up" } else { "kept" };
                    let of = [("disk", disk.clone()), ("group", (*group).clone()), ("latency", target.to_string())];
                    service.events.tell("latency", of.into_iter().chain([("state", state.to_owned())]).collect());
                }
                if is_given_up {
                    given_up.insert(of, target);
                } else if self.gave_up.get(&of).is_some_and(|lost| *lost >= target) && standing.met() == Some(1.0) {
                    self.gave_up.remove(&of);
                }
            }
        }
        self.given_up = given_up;
        self.gave_up.retain(|(disk, group), _| self.disks.contains_key(disk) && self.groups.contains_key(group));
    }
}
