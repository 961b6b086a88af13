//! A server: workers, disks and exports, from the configuration to the last flush.

mod check;
mod fork;
mod handed;
mod report;
mod upgrade;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use fairlift_core::{ContextId, GroupId, Sector};

pub use check::Foreign;
pub use fork::ForkTop;
pub use upgrade::{Beside, Taking};

use crate::Error;
use crate::access::{Access, Grant, Peer, Token};
use crate::clock;
use crate::config::{Config, Limits};
use crate::control::arrange::{Arranged, arrange, export, open_all};
use crate::control::live::Live;
use crate::control::trace::Traced;
use crate::control::{Becomes, Edit, Event, Leave, Made, Of, Refused, State, Step, Trace, View};
use crate::device::{self, Backing, roots::Roots};
use crate::disk::Disks;
use crate::export::clients::{Clients, Served};
use crate::export::listen::{self, Listening};
use crate::export::listeners::Listeners;
use crate::export::service::{Exports, Service};
use crate::export::{DeviceView, Export};
use crate::gateways::{Gateways, PoolView};
use crate::kernel::abort::AbortOnPanic;
use crate::kernel::helpers::Helpers;
use crate::kernel::notify::Notifiers;
use crate::kernel::ring::{self, Choice};
use crate::worker::turns::Turns;
use crate::worker::{Backend, Worker};

/// A server that listens and is ready to run.
///
/// A gibibyte of RAM as `nbd+unix:///ram?socket=…`, served until the program says stop:
///
/// ```
/// use fairlift::Server;
/// use fairlift::config::{Address, Config, Disk, Export, Listener, Ram, Tls};
/// use fairlift::control::Edit;
/// use fairlift_core::sched;
///
/// let socket = std::env::temp_dir().join(format!("fairlift-doc-{}.sock", std::process::id()));
/// let ram = Disk::new("ram", sched::Kind::None);
/// let gibibyte = Ram { size: 1 << 30 };
/// let export = Export { disk: Some(0), ..Export::new("ram", gibibyte) }; // on the first of `disks`
/// let server = Server::bind(Config {
///     disk_default: ram.clone(),
///     disks: vec![ram].into(),
///     exports: vec![export].into(),
///     listeners: vec![Listener::new(Address::Unix(socket), Tls::Off)],
///     workers: Some(2),
///     ..Config::default()
/// })?;
/// let handle = server.handle();
/// let serving = std::thread::spawn(|| server.run());
///
/// // While clients read and write, the disk gets another scheduler.
/// let change = |edit: &mut Edit| edit.disk("ram").map(|disk| disk.scheduler = sched::Kind::Fair);
/// handle.change(change, None, false).expect("there is such a disk");
/// while handle.view(false).is_some_and(|view| view.disks[0].scheduler != sched::Kind::Fair) {
///     std::thread::yield_now();
/// }
///
/// handle.drain();
/// serving.join().expect("it does not panic")?;
/// # Ok::<(), fairlift::Error>(())
/// ```
pub struct Server {
    shared: Arc<Shared>,
    foreign: Vec<Foreign>,
}

/// Tells a running server what to do, from any thread.
#[derive(Clone)]
pub struct Handle {
    // A handle that somebody keeps must not keep sockets and files open.
    shared: Weak<Shared>,
}

impl Handle {
    /// Takes note, for the operator, of all flush errors there have been, and logs each: what was written before them may
    /// be lost, and flushes of those devices succeed again if the devices say so. Answers how many there were.
    pub fn acknowledge_flush_errors(&self) -> usize {
        self.shared.upgrade().map_or(0, |shared| shared.acknowledge_flush_errors())
    }

    /// Makes what is in force another configuration, all of it or nothing: see [`control`](crate::control). `edit` gets the one that there
    /// is. A dry run returns the configuration that would be in force, or why not.
    ///
    /// `version`: the [`State::version`] that the caller knows; if there is another one by now, nothing is changed. There is another
    /// one afterwards, also where nothing differs.
    ///
    /// # Errors
    /// The error of `edit`, or why the change cannot be made, and nothing has changed. Where the block device of an export that was added
    /// does not come, all of it is undone, which is a change of its own, or stays if it cannot be ([`Refused::InPart`]); clients of an export
    /// that was removed have left by then.
    pub fn change(
        &self,
        edit: impl FnOnce(&mut Edit) -> Result<(), String>,
        version: Option<u64>,
        dry_run: bool,
    ) -> Result<Made, Refused> {
        let shared = self.shared.upgrade().ok_or(Refused::Ended)?;
        if shared.is_draining() {
            return Err(Refused::Ended);
        }
        let made = shared.change(edit, version, dry_run)?;
        if !dry_run {
            shared.wait_for_block_devices(&made)?;
        }
        Ok(made)
    }

    /// Whether the server has not ended.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.shared.strong_count() > 0
    }

    /// The configuration in force; `None`: the server has ended.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        Some(self.shared.upgrade()?.live().state())
    }

    /// Drops removed exports, disks and groups, as far as clients and workers have let go of them; whether some are left. A change does it
    /// too: this is for a server that is not changed for long. Exports whose size is `auto` become as large as their backings, where these
    /// tell that they have grown.
    pub fn sweep(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| {
            if !shared.is_draining() {
                shared.hear_of_sizes();
            }
            let mut live = shared.live();
            live.look_at_findings(&shared.backend, &shared.served);
            live.sweep(&shared.backend, &shared.served)
        })
    }

    /// The server's present activity; `figures`: with the counters of each group, for which all streams are looked at.
    /// `None`: the server has ended.
    #[must_use]
    pub fn view(&self, figures: bool) -> Option<View> {
        let shared = self.shared.upgrade()?;
        Some(shared.live().view(&shared.backend, &shared.served, figures))
    }

    /// The pools that this server shares with others, as it knows them. Empty: there are none, or the server has ended.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolView> {
        self.shared.upgrade().map_or_else(Vec::new, |shared| shared.gateways.view())
    }

    /// Traces what happens to each request of all disks, until what is answered is dropped; `None`: a trace is being taken, or the
    /// server has ended.
    #[must_use]
    pub fn trace(&self) -> Option<Trace> {
        let shared = self.shared.upgrade()?;
        let export = |export: &Arc<Export>| Traced {
            name: export.name.clone(),
            disk: export.disk,
            start: export.start,
            sectors: export.size / Sector::SIZE,
            group: export.group,
        };
        let exports = shared.served.service.exports().list.iter().map(export).collect();
        Trace::begin(&shared.backend.disks, &shared.is_traced, shared.live().groups(), exports)
    }

    /// A client's rights at the control server; [`Grant::None`]: also where the server has ended.
    #[must_use]
    pub fn role(&self, peer: &Peer) -> Grant {
        self.shared.upgrade().map_or(Grant::None, |shared| shared.served.service.exports().access.role(peer))
    }

    /// Has the cgroup of a client at a unix socket be known, where a rule asks for it.
    pub fn learn_cgroup(&self, socket: BorrowedFd<'_>, peer: &mut Peer) {
        if let Some(shared) = self.shared.upgrade() {
            listen::learn_cgroup(socket, &shared.served.service.exports().access, peer);
        }
    }

    /// Whether a client is known by a token, whatever it may.
    #[must_use]
    pub fn knows(&self, token: Token) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.served.service.exports().access.knows(token))
    }

    /// Tells an event that only the caller knows of.
    pub fn tell(&self, kind: &'static str, of: Vec<(&'static str, String)>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.served.service.events.tell(kind, of);
        }
    }

    /// The events after the one of a number, and how many events before those are not kept any more; `None`: nothing, and the number of the
    /// latest.
    #[must_use]
    pub fn events(&self, after: Option<u64>) -> (Vec<Event>, u64) {
        self.shared.upgrade().map_or((Vec::new(), 0), |shared| shared.served.service.events.after(after))
    }

    /// Waits until the block devices of exports that the server was started with are there; how they are. Empty: there are
    /// none, or the server has ended.
    #[must_use]
    pub fn block_devices(&self) -> Vec<DeviceView> {
        let served = self.shared.upgrade().map(|shared| Arc::clone(&shared.served));
        served.map_or_else(Vec::new, |served| served.settled_devices())
    }

    /// Stops accepting, finishes what is in flight, closes connections and flushes; then [`Server::run`] returns.
    pub fn drain(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.served.service.draining.store(true, Ordering::Release);
            shared.backend.notifiers.ring_all();
        }
    }
}

/// The state that all workers of a server share.
struct Shared {
    backend: Backend,
    served: Arc<Served>,
    live: Mutex<Live>,
    gateways: Gateways,
    is_traced: Arc<AtomicBool>,
    /// Another server is taking over.
    is_handed_over: AtomicBool,
    /// Read by each fork from its freeze to its export, and written while clients are given away: a server that takes over knows nothing of a top
    /// that is frozen just then.
    forks: RwLock<()>,
}

/// How many threads the kernel may have for a worker's ring, at least. Chosen: a disk that hangs takes one for each request that
/// waits for it there, and the flushes of other disks need some as well; with two they were seen to stand.
const KERNEL_THREADS: u32 = 16;
/// How long the end waits for a change that is being made. Chosen: one takes milliseconds, and one that reads a file of a server that is gone may last
/// for ever. And how long for a last flush until the log has it.
const CHANGE: Duration = Duration::from_secs(5);

impl Shared {
    fn is_draining(&self) -> bool {
        self.served.service.draining.load(Ordering::Acquire)
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        // A panic in the middle of a change leaves it half made: nobody changes anything more.
        self.live.lock().unwrap_or_else(|_: PoisonError<_>| panic!("a change of the server panicked"))
    }

    fn change(
        &self,
        edit: impl FnOnce(&mut Edit) -> Result<(), String>,
        version: Option<u64>,
        dry_run: bool,
    ) -> Result<Made, Refused> {
        self.live().apply(&self.backend, &self.served, edit, version, dry_run)
    }

    /// Has backings looked at that were reported as resized elsewhere.
    fn hear_of_sizes(self: &Arc<Self>) {
        let devices = self.backend.disks.all().into_iter().flat_map(|(_, disk)| disk.devices());
        let resized_devices: Vec<_> = devices.filter(|device| device.was_resized()).collect();
        if resized_devices.is_empty() {
            return;
        }
        let shared = Arc::downgrade(self);
        // A look takes as long as the backing does, and a client of control does not wait for it.
        let look = move || {
            let differs =
                |device: &Arc<dyn device::Device>| device.look_at_size().is_ok_and(|size| size != device.facts().size);
            let resized: Vec<_> = resized_devices.into_iter().filter(differs).collect();
            if let Some(shared) = shared.upgrade().filter(|_| !resized.is_empty()) {
                shared.follow_sizes(&resized);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("sizes".into()).spawn(look) {
            tracing::warn!(%error, "a backing that was resized elsewhere cannot be looked at");
        }
    }

    /// Exports without a size of their own become as large as these backings.
    fn follow_sizes(&self, resized: &[Arc<dyn device::Device>]) {
        let exports = self.served.service.exports().list.clone();
        let config = self.live().state().config;
        let follows =
            |export: &&Arc<Export>| config.exports.iter().all(|one| one.size.is_none() || one.name != export.name);
        let shown = exports.iter().filter(|export| resized.iter().any(|one| Arc::ptr_eq(one, &export.device)));
        for export in shown.filter(follows) {
            let name = &export.name;
            // It may have been given one since, and keeps that.
            let grow = |edit: &mut Edit| match edit.export(name)?.size {
                Some(_) => Err("it has a size of its own by now".into()),
                None => edit.grow(name, None),
            };
            match self.change(grow, None, false) {
                Ok(Made { state, steps, .. }) => {
                    tracing::info!(export = name, version = state.version, "its backing has grown, and so has it");
                    let what = steps.iter().map(Step::to_string).collect::<Vec<_>>().join("; ");
                    let of =
                        vec![("version", state.version.to_string()), ("who", "its backing".into()), ("what", what)];
                    self.served.service.events.tell("changed", of);
                }
                Err(why) => tracing::warn!(export = name, %why, "its backing was resized elsewhere"),
            }
        }
    }

    /// Waits for the block devices of exports that were added. If one cannot be started all of the change is undone.
    fn wait_for_block_devices(&self, made: &Made) -> Result<(), Refused> {
        let exports = self.served.service.exports();
        let there = |name: &String| exports.list.iter().find(|export| export.name == *name).map(|export| export.id);
        let fails = |name: &String| Some((name.clone(), self.served.wait(there(name)?).err()?));
        let failed: Vec<_> = made.added().filter_map(fails).collect();
        if failed.is_empty() {
            return Ok(());
        }
        let whys: Vec<_> = failed.iter().map(|(name, why)| format!("export \"{name}\": {why}")).collect();
        let why = whys.join("; ");
        let undone = self.live().undo(&self.backend, &self.served, made); // and lets go of what is live
        if let Err(not) = undone {
            // It goes all the same, if nobody has removed it meanwhile.
            for (name, _) in &failed {
                let _ = self.change(|edit| edit.remove_export(name, Leave::Cut), None, false);
            }
            let is_gone = |step: &&Step| {
                step.what == Becomes::Comes
                    && failed.iter().any(|(name, _)| matches!(&step.of, Of::Export(of) if of == name))
            };
            let stay = made.steps.iter().filter(|step| !is_gone(step)).chain(&made.suited);
            let made = stay.map(Step::to_string).collect::<Vec<_>>().join("; ");
            if !made.is_empty() {
                return Err(Refused::InPart { why, not: not.to_string(), made });
            }
        }
        Err(Refused::Change { of: Of::Server, why })
    }

    /// Exchanges reports with the other gateways of its disks' pools, until it ends.
    fn follow_gateways(self: &Arc<Self>) -> std::io::Result<()> {
        let (shared, notifiers) = (Arc::clone(self), Arc::clone(&self.backend.notifiers));
        let in_force = move || (!shared.is_handed_over.load(Ordering::Acquire)).then(|| shared.live().state().config);
        self.gateways.follow(&self.backend.disks, in_force, move || notifiers.ring_all())
    }

    /// Closes removed devices, which are as durable as the others then (live.3); no worker has anything of them any more.
    fn close_removed(&self) {
        let until = Instant::now() + CHANGE;
        while matches!(self.live.try_lock(), Err(TryLockError::WouldBlock)) {
            if Instant::now() >= until {
                return tracing::warn!(
                    "a change does not end: an export that was removed just before may lack its last flush"
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut live = self.live();
        live.sweep(&self.backend, &self.served);
        let closing = std::mem::take(&mut live.closing);
        drop(live);
        while closing.iter().any(|(_, thread)| !thread.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        for (path, thread) in closing {
            if !thread.is_finished() {
                tracing::warn!(
                    path,
                    "an export of it was removed, and its last flush takes long: the end waits for it"
                );
            }
            drop(thread.join()); // one that panicked has told why
        }
    }

    fn worker(&self, context: ContextId) -> std::io::Result<Worker<Clients>> {
        if !ring::be_flusher() && context.0 == 0 {
            tracing::debug!(
                "PR_SET_IO_FLUSHER refused (CAP_SYS_RESOURCE): images inside images need memory of their own"
            );
        }
        let (limits, workers) = (&self.served.service.limits, self.backend.notifiers.workers() as u64);
        let threads = limits.helpers.div_ceil(workers as u32).max(KERNEL_THREADS);
        let mut engine = self.backend.engine(context, limits.memory / workers, threads)?;
        let clients = Clients::new(&mut engine, &self.served)?;
        Ok(Worker::new(engine, clients, &self.backend.turns))
    }
}

fn workers(config: &Config) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    config.workers.unwrap_or_else(|| usual_workers(cpus, &config.limits)).clamp(1, 64)
}

/// One for each CPU, but no more than have room for a request of `request_max` each.
fn usual_workers(cpus: usize, limits: &Limits) -> usize {
    let roomy = limits.memory / u64::from(limits.request_max).max(1);
    cpus.min(usize::try_from(roomy).unwrap_or(usize::MAX)).max(1)
}

impl Server {
    /// Opens the backings, locks them, and listens.
    ///
    /// # Errors
    /// io_uring is not to be had, or a backing, export, disk or listener cannot be what the configuration says; nothing is left
    /// behind.
    ///
    /// # Panics
    /// If an index in the configuration points nowhere, or a limit is outside the range that it is documented with.
    pub fn bind(config: Config) -> Result<Self, Error> {
        Self::build(config, None)
    }

    fn build(config: Config, mut taking: Option<&mut Taking>) -> Result<Self, Error> {
        let Limits { request_max, connection_requests, helpers, .. } = config.limits;
        assert!((512..=1 << 30).contains(&request_max), "request_max is {request_max}");
        assert!((1..=480).contains(&connection_requests), "connection_requests is {connection_requests}");
        assert!((1..=256).contains(&helpers), "helpers is {helpers}");
        let limits = Limits { helpers: helpers.max(2), ..config.limits };
        let workers = workers(&config);
        // Or we would find out only once clients come.
        let engine = Choice::make(config.engine)?;
        engine.say();
        let files = engine.files;
        let roots = Roots::open(&config.roots)?;
        let places = match &mut taking {
            None => roots.clone(),
            Some(taking) => roots.with(std::mem::take(&mut taking.files)),
        };
        let opened: Vec<_> = open_all(&config.exports, &places, Backing::open).collect::<Result<_, _>>()?;
        let left = places.left();
        if left > 0 {
            let why =
                format!("the running server has {left} that no export of the config is; fairlift reload, then upgrade");
            return Err(Error::Backing { what: "files".into(), why });
        }
        let foreign = check::foreign(&config.exports, &opened);
        let before = taking.as_ref().and_then(|taking| taking.schedulers.as_ref());
        let Arranged { disks, placed, opened: each, in_force } = arrange(&config, &opened, workers, before)?;
        let disk_of_file: Vec<_> = each.iter().filter(|one| one.file.is_some()).map(|one| one.disk).collect();
        if disk_of_file.len() > files as usize {
            let why = format!("there are {}, and a ring takes {files} here (ulimit -n)", disk_of_file.len());
            return Err(Error::Backing { what: "files".into(), why });
        }
        let numbered = config.exports.iter().zip(&opened).zip(placed).zip(1..);
        let exports: Vec<Arc<Export>> = numbered
            .map(|(((e, device), place), id)| Ok(Arc::new(export((e, &config.group(e).path), device, place, id)?)))
            .collect::<Result<_, Error>>()?;
        let listeners: Vec<_> = match &mut taking {
            None => config.listeners.iter().map(Listening::open).collect::<Result<_, _>>()?,
            Some(taking) => taking.listen(&config.listeners)?,
        };
        let bound = config.listeners.iter().zip(&listeners).map(|(wanted, there)| wanted.clone().bound(&there.name));
        let in_force = Config { listeners: bound.collect(), ..in_force };
        let gateways = Gateways::open(&disks, taking.is_some()).map_err(|(name, why)| Error::Disk { name, why })?;
        let notifiers = Arc::new(Notifiers::new(workers).map_err(Error::Ring)?);
        let listeners = Listeners::new(listeners, config.tls);
        let access = Arc::new(Access::new(&config.clients, &config.revoked, &Access::default()));
        let published = Exports::new(exports.clone(), access, BTreeMap::new());
        let holds = taking.is_some();
        let service = Arc::new(Service::new(published, listeners, limits, Arc::clone(&notifiers), holds));
        let served = Arc::new(Served::new(service));
        for (settings, export) in config.exports.iter().zip(&exports) {
            served.prepare(settings, export, &engine)?.into_iter().for_each(|open| open(export));
        }
        let lanes: Vec<_> = disks.iter().map(|disk| disk.concurrency).collect();
        let backend = Backend {
            helpers: Helpers::new(limits.helpers as usize, &lanes, &disk_of_file, workers, Arc::clone(&notifiers)),
            disks: Disks::new(disks),
            files,
            notifiers,
            turns: Turns::rows(workers),
            engine,
        };
        for (id, group) in config.groups.iter().enumerate() {
            if let Some(bounds) = config.bounds.get(&group.path) {
                assert!(bounds.check().is_ok(), "group {}: {bounds:?}", group.path);
                backend.disks.set_bounds(clock::now(), GroupId(id as u16), bounds);
            }
        }
        let live = Live::new(in_force, config.disks.len(), each, roots);
        let shared = Shared {
            backend,
            served,
            live: Mutex::new(live),
            gateways,
            is_traced: Arc::default(),
            is_handed_over: AtomicBool::new(false),
            forks: RwLock::new(()),
        };
        Ok(Self { shared: Arc::new(shared), foreign })
    }

    /// Where it listens: `unix:/run/fairlift.sock`, `tcp:127.0.0.1:10809`.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.shared.served.service.listeners.list().values().map(|listener| listener.name.clone()).collect()
    }

    /// Tells the server, once it runs, what to do.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { shared: Arc::downgrade(&self.shared) }
    }

    /// Serves until [`Handle::drain`] is called and all is finished and flushed.
    ///
    /// # Errors
    /// io_uring is not to be had, or the end was not clean.
    pub fn run(self) -> Result<(), Error> {
        let (say, hear) = mpsc::channel();
        let spawned: Vec<_> = (0..self.shared.backend.notifiers.workers())
            .map(|number| {
                let (shared, say) = (Arc::clone(&self.shared), say.clone());
                let work = move || {
                    let _guard = AbortOnPanic;
                    let worker = shared.worker(ContextId(number as u16));
                    // The other end waits for one word from each worker.
                    let _ = say.send(worker.as_ref().map(|_| ()).map_err(|error| {
                        error.raw_os_error().map_or(std::io::ErrorKind::Other.into(), std::io::Error::from_raw_os_error)
                    }));
                    worker.map_or(0, Worker::run)
                };
                std::thread::Builder::new().name(format!("worker-{number}")).spawn(work)
            })
            .collect();
        drop(say);
        let (threads, refused): (Vec<_>, Vec<_>) = spawned.into_iter().partition(Result::is_ok);
        let started = match refused.into_iter().find_map(Result::err) {
            Some(error) => Err(Error::Thread(error)),
            None => {
                if let Err(error) = self.shared.follow_gateways() {
                    tracing::error!(%error, "no thread for the exchange with other gateways: shares are this server's alone");
                }
                self.shared.served.start();
                hear.iter().collect::<Result<Vec<()>, _>>().map_err(Error::Ring)
            }
        };
        if started.is_err() {
            self.handle().drain();
            let hold = &self.shared.served.service.hold;
            if hold.is_on() {
                hold.end(&self.shared.backend.notifiers);
            }
        }
        let mut lost = 0;
        for thread in threads.into_iter().flatten() {
            lost += thread.join().expect("a worker that panics ends the process");
        }
        self.shared.gateways.end();
        self.shared.backend.helpers.stop();
        started?;
        self.shared.log_stats();
        self.shared.log_shares();
        let flushed = self.shared.flush_all();
        self.shared.close_removed();
        flushed?;
        if let Some(failure) = self.shared.served.take_failure() {
            return Err(failure);
        }
        if lost > 0 { Err(Error::Undrained(lost)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_each_worker_has_room_for_the_largest_request() {
        let limits = Limits::default();
        assert_eq!(
            [1, 4, 16, 64].map(|cpus| usual_workers(cpus, &limits)),
            [1, 4, 16, 16],
            "512 MiB, requests of 32 MiB"
        );
        let narrow = Limits { memory: 64 << 20, ..limits };
        assert_eq!(usual_workers(8, &narrow), 2);
        assert_eq!(usual_workers(8, &Limits { memory: 1 << 20, ..limits }), 1);
    }
}
