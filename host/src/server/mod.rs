//! A server: workers, disks and exports, from the configuration to the last flush.

pub(crate) mod listen;
pub(crate) mod worker;

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, Weak};

use fairlift_core::{ContextId, Sector};

use crate::Error;
use crate::config::{self, Config, Limits};
use crate::device::Device;
use crate::device::helpers::Helpers;
use crate::disk::{Disk, Export};
use crate::export::nbd::{Exports, Service};
use crate::kernel::abort::AbortOnPanic;
use crate::kernel::notify::Notifiers;
use crate::server::listen::Listening;
use crate::server::worker::{Shared, Worker, descriptor};

/// A server that listens and is ready to run.
pub struct Server {
    shared: Arc<Shared>,
}

/// Tells a running server what to do, from any thread.
#[derive(Clone)]
pub struct Handle {
    // Not all that is shared: a handle that somebody keeps must not keep sockets and files open.
    draining: Arc<AtomicBool>,
    notifiers: Arc<Notifiers>,
    shared: Weak<Shared>,
}

impl Handle {
    /// Logs what each group has had so far of each disk, a line each, with its share of the bytes.
    pub fn log_shares(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.log_shares();
        }
    }

    /// Takes note, for the operator, of all flush errors there have been, and logs each: what was written before them may
    /// be lost, and flushes of those devices succeed again if the devices say so. Answers how many there were.
    pub fn acknowledge_flush_errors(&self) -> usize {
        self.shared.upgrade().map_or(0, |shared| shared.acknowledge_flush_errors())
    }

    /// Stops accepting, finishes what is in flight, closes connections and flushes; then [`Server::run`] returns.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.notifiers.ring_all();
    }
}

impl Server {
    /// Opens the backings, locks them, and listens.
    ///
    /// # Errors
    /// io_uring is not to be had, or a backing, export, disk or listener cannot be what the configuration says; nothing is left behind.
    ///
    /// # Panics
    /// If an index in the configuration points nowhere, or a limit is outside the range that it is documented with.
    pub fn bind(config: Config) -> Result<Self, Error> {
        let Limits { request_max, connection_requests, helpers, .. } = config.limits;
        assert!((512..=1 << 30).contains(&request_max), "request_max is {request_max}");
        assert!((1..=480).contains(&connection_requests), "connection_requests is {connection_requests}");
        assert!((1..=256).contains(&helpers), "helpers is {helpers}");
        let limits = Limits { helpers: helpers.max(2), ..config.limits };
        let workers = config.workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let workers = workers.clamp(1, 64);
        crate::kernel::ring::Ring::new(1, 1, 1).map_err(Error::Ring)?; // or we would find out only once clients come
        let mut devices = Devices::default();
        let opened: Vec<_> =
            config.exports.iter().map(|e| devices.open(e, &config.exports)).collect::<Result<_, _>>()?;
        let Arranged { disks, placed, files, disk_of_file } = arrange(&config, &opened, workers)?;
        let exports = config.exports.iter().zip(&opened).zip(placed);
        let exports = exports.map(|((e, device), place)| export(e, device, place)).collect::<Result<_, _>>()?;
        let listeners = config.listeners.iter().map(Listening::open).collect::<Result<_, _>>()?;
        let notifiers = Arc::new(Notifiers::new(workers).map_err(Error::Ring)?);
        let lanes: Vec<_> = disks.iter().map(|disk| disk.concurrency).collect();
        let shared = Shared {
            helpers: Helpers::new(limits.helpers as usize, &lanes, &disk_of_file, workers, Arc::clone(&notifiers)),
            service: Service {
                exports: Exports { list: exports, request_max: limits.request_max },
                limits,
                tls: config.tls,
            },
            disks,
            files,
            listeners,
            notifiers,
            draining: Arc::default(),
            loads: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            newcomers: (0..workers).map(|_| Mutex::default()).collect(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Where it listens: `unix:/run/fairlift.sock`, `tcp:127.0.0.1:10809`.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.shared.listeners.iter().map(|listener| listener.name.clone()).collect()
    }

    /// Tells the server, once it runs, what to do.
    #[must_use]
    pub fn handle(&self) -> Handle {
        let Shared { draining, notifiers, .. } = &*self.shared;
        Handle {
            draining: Arc::clone(draining),
            notifiers: Arc::clone(notifiers),
            shared: Arc::downgrade(&self.shared),
        }
    }

    /// Serves until [`Handle::drain`] is called and all is finished and flushed.
    ///
    /// # Errors
    /// io_uring is not to be had, or the end was not clean.
    pub fn run(self) -> Result<(), Error> {
        let (say, hear) = mpsc::channel();
        let threads: Vec<_> = (0..self.shared.loads.len())
            .map(|number| {
                let (shared, say) = (Arc::clone(&self.shared), say.clone());
                let work = move || {
                    let _guard = AbortOnPanic;
                    let worker = Worker::new(ContextId(number as u16), shared);
                    // The other end waits for one word from each worker.
                    let _ = say.send(worker.as_ref().map(|_| ()).map_err(|error| {
                        error.raw_os_error().map_or(std::io::ErrorKind::Other.into(), std::io::Error::from_raw_os_error)
                    }));
                    worker.map_or(0, Worker::run)
                };
                std::thread::Builder::new().name(format!("worker-{number}")).spawn(work).expect("a thread can be made")
            })
            .collect();
        drop(say);
        let started = hear.iter().collect::<Result<Vec<()>, _>>().map_err(Error::Ring);
        if started.is_err() {
            self.handle().drain();
        }
        let mut lost = 0;
        for thread in threads {
            lost += thread.join().expect("a worker that panics ends the process");
        }
        self.shared.helpers.stop();
        started?;
        self.shared.log_stats();
        self.shared.log_shares();
        self.shared.flush_all()?;
        if lost > 0 { Err(Error::Undrained(lost)) } else { Ok(()) }
    }
}

/// The devices opened so far, each once.
#[derive(Default)]
struct Devices {
    files: HashMap<(u64, u64), Arc<Device>>,
    /// By the index of the disk and the model's name.
    models: HashMap<(usize, String), Arc<Device>>,
}

impl Devices {
    /// Opens the backing of an export; exports of one file share it, and so do exports of one model on one disk that
    /// they name.
    fn open(&mut self, export: &config::Export, all: &[config::Export]) -> Result<Arc<Device>, Error> {
        if let config::Backing::File { path, .. } = &export.backing
            && let Some(known) = identity(path).and_then(|identity| self.files.get(&identity))
        {
            return Ok(Arc::clone(known));
        }
        let model = match (&export.backing, export.disk) {
            (config::Backing::Model { name, .. }, Some(disk)) => Some((disk, name.clone())),
            _ => None,
        };
        if let Some(known) = model.as_ref().and_then(|model| self.models.get(model)) {
            return Ok(Arc::clone(known));
        }
        // A file that any of its exports may write is opened for writing.
        let read_only = all.iter().filter(|e| same_file(&e.backing, &export.backing)).all(|e| e.read_only);
        let device = Arc::new(Device::open(&export.backing, read_only && export.read_only)?);
        if let Device::File(file) = &*device
            && let Ok(identity) = file.identity()
        {
            self.files.insert(identity, Arc::clone(&device));
        }
        if let Some(model) = model {
            self.models.insert(model, Arc::clone(&device));
        }
        Ok(device)
    }
}

/// Which file a path names, as `File::identity` says it.
fn identity(path: &std::path::Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let metadata = std::fs::metadata(path).ok()?;
    let block = metadata.file_type().is_block_device();
    Some(if block { (u64::MAX, metadata.rdev()) } else { (metadata.dev(), metadata.ino()) })
}

fn same_file(a: &config::Backing, b: &config::Backing) -> bool {
    match (a, b) {
        (config::Backing::File { path: a, .. }, config::Backing::File { path: b, .. }) => {
            a == b || identity(a).is_some_and(|a| identity(b) == Some(a))
        }
        _ => false,
    }
}

/// The disks, and what is on them.
struct Arranged {
    disks: Vec<Arc<Disk>>,
    /// The disk that each export is on, and where its backing is there.
    placed: Vec<(usize, Sector)>,
    /// The files, by the numbers under which they will be registered.
    files: Vec<RawFd>,
    /// The disk that each of them is on.
    disk_of_file: Vec<usize>,
}

/// Puts the devices on disks: as the configuration says, else one disk for each file system or device.
fn arrange(config: &Config, opened: &[Arc<Device>], workers: usize) -> Result<Arranged, Error> {
    let mut settings = config.disks.clone();
    let mut homes: HashMap<u64, usize> = HashMap::new();
    let mut on_disk: Vec<usize> = Vec::new();
    for (index, (export, device)) in config.exports.iter().zip(opened).enumerate() {
        // Whoever shares a device shares its disk, even if only one of them names it.
        let named = (config.exports.iter().zip(opened)).find_map(|(e, d)| e.disk.filter(|_| Arc::ptr_eq(d, device)));
        if let (Some(own), Some(first)) = (export.disk, named)
            && own != first
        {
            let why = format!(
                "its backing is on disk \"{}\" already, by another export; one backing has one queue",
                settings[first].name
            );
            return Err(Error::Export { name: export.name.clone(), why });
        }
        let earlier = (0..index).find(|other| Arc::ptr_eq(&opened[*other], device)).map(|other| on_disk[other]);
        let home = device.facts().home;
        let disk = named.or(earlier).or_else(|| homes.get(&home?).copied()).unwrap_or_else(|| {
            let name = match device.path() {
                Some(path) => format!("of {}", path.display()),
                None => format!("of {}", export.name),
            };
            settings.push(config::Disk { name, ..config.disk_default.clone() });
            settings.len() - 1
        });
        if named.is_none()
            && let Some(home) = home
        {
            homes.insert(home, disk);
        }
        on_disk.push(disk);
    }
    let (mut files, mut disk_of_file) = (Vec::new(), Vec::new());
    let mut contents: Vec<Vec<(Arc<Device>, Option<u32>)>> = settings.iter().map(|_| Vec::new()).collect();
    for (disk, device) in on_disk.iter().zip(opened) {
        if !contents[*disk].iter().any(|(known, _)| Arc::ptr_eq(known, device)) {
            let file = descriptor(device).map(|fd| {
                files.push(fd);
                disk_of_file.push(*disk);
                files.len() as u32 - 1
            });
            contents[*disk].push((Arc::clone(device), file));
        }
    }
    let disks: Vec<_> = settings
        .iter()
        .zip(&contents)
        .map(|(settings, devices)| Ok(Arc::new(Disk::new(settings, devices, &config.groups, workers)?)))
        .collect::<Result<_, Error>>()?;
    let placed = (on_disk.iter().zip(opened))
        .map(|(disk, device)| {
            let place = disks[*disk].places().iter().find(|place| Arc::ptr_eq(&place.device, device));
            (*disk, place.expect("put there above").start)
        })
        .collect();
    Ok(Arranged { disks, placed, files, disk_of_file })
}

fn export(config: &config::Export, device: &Arc<Device>, (disk, start): (usize, Sector)) -> Result<Arc<Export>, Error> {
    let fail = |why: String| Error::Export { name: config.name.clone(), why };
    let facts = device.facts();
    let block = u64::from(facts.block());
    if !config.offset.is_multiple_of(block) || config.size.is_some_and(|size| size % block != 0) {
        return Err(fail(format!("its offset and size must be multiples of {block}, the block of its backing")));
    }
    let size = match config.size {
        Some(size) => size,
        None => facts.size().saturating_sub(config.offset),
    };
    if size == 0 || config.offset.checked_add(size).is_none_or(|end| end > facts.size()) {
        return Err(fail(format!(
            "it would show bytes {} to {} of a backing that has {}",
            config.offset,
            config.offset.saturating_add(size),
            facts.size()
        )));
    }
    Ok(Arc::new(Export {
        name: config.name.clone(),
        description: config.description.clone(),
        disk,
        device: Arc::clone(device),
        start: Sector(start.0 + config.offset / Sector::SIZE),
        offset: config.offset,
        size,
        read_only: config.read_only,
        group: config.group,
        priority: config.priority,
        facts,
        stats: Default::default(),
    }))
}
