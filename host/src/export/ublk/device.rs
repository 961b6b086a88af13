//! A block device: how it is made, taken over from a server that died, and stopped.
//!
//! blockdev.1  A device that holds data which outlives the server outlives it too: if the server is killed, the kernel keeps the device's
//!             requests until another server of the same export takes it over. One in RAM goes with its server: its data is gone, and clients
//!             must not find zeroes in its place.
//! blockdev.2  A device is known again by a mark that its server gave it: of the export's name, and of its backing and range.
//! blockdev.3  A device of another process that is alive is never touched.
//! blockdev.4  A device that stops has its file systems written back first, while it is still served: after that the driver fails all
//!             requests.
//! blockdev.5  One thread at a time acts on a device, from its start to its end.
//! blockdev.6  A device with set rights is found under its name, and known by it, once its file has those rights. It does not start where that
//!             cannot be.
//! blockdev.7  A server that takes over from another one makes no device and removes none: it finds those of that one, and recovers each once
//!             that process has ended. Until then it has not touched them.

mod handed;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fairlift_core::ContextId;

use super::control::{self, Control, block_path, device_path};
use super::names;
use super::proto::{self, DESCRIPTOR, Info, Order, Params, QUEUE_STRIDE, State};
use super::syntax::Ublk;
use crate::config::{Backing, WayIn as _};
use crate::export::offer::Offer;
use crate::export::present::Newcomers;
use crate::export::service::Service;
use crate::export::{DeviceView, Export, patiently};
use crate::kernel::mapping::Mapping;
use crate::sync::{Mutex, lock};

/// For how long a device's last server may take to die. Chosen: as long as its lock on a file is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same where that server was handed over: it has nothing left to do, and its end is all that the device waits for.
const PATIENCE_HANDED: Duration = Duration::from_secs(60);
/// For how long the file of a device that was just made may take to be there, and ours: udev gives it to us.
const FILE: Duration = Duration::from_secs(5);
/// How often that is looked at.
const AGAIN: Duration = Duration::from_millis(2);
/// Requests of a queue where nobody says how many. Chosen: as the driver's own program has.
const DEPTH: u16 = 128;
/// The first bits of a mark: it is one of ours.
const MARK: u64 = 0xfa17 << 48;

pub(crate) struct BlockDevice {
    pub(super) info: Info,
    pub(super) ublk: Ublk,
    /// The number of its export.
    pub(super) export: u64,
    /// The name of its export.
    pub(super) name: String,
    /// A previous server had made it.
    recovered: bool,
    /// That server hands over to this one (blockdev.7).
    pub(super) is_handed: bool,
    /// Its export is removed: no server is to go on with it.
    pub(super) is_removed: AtomicBool,
    /// In bytes, as its clients see it.
    size: AtomicU64,
    link: Option<PathBuf>,
    is_live: AtomicBool,
    /// Its queues begin with nothing more: what is asked is for another server.
    pub(super) is_left: AtomicBool,
    pub(super) why_not: Mutex<Option<String>>,
    /// blockdev.5
    at_work: Mutex<Stage>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The driver knows it.
    Made,
    /// Workers were given its queues.
    Given,
    /// It was started.
    Live,
    /// It is removed, or another server's concern.
    Gone,
}

/// By what an export's device is known again (blockdev.2).
fn mark(name: &str, backing: &Backing, offset: u64) -> u64 {
    let backing = backing.about().name;
    let file = backing.strip_prefix("file:").map(|path| std::path::absolute(path).unwrap_or_else(|_| path.into()));
    let backing = file.map_or(backing.clone(), |path| path.display().to_string());
    // FNV-1a: it must be the same in every version of us.
    let bytes = [name.as_bytes(), &[0], backing.as_bytes(), &[0], &offset.to_le_bytes()].concat();
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    MARK | (hash ^ (hash >> 48)) & !(u64::MAX << 48)
}

pub(super) const fn is_ours(mark: u64) -> bool {
    mark >> 48 == MARK >> 48
}

impl BlockDevice {
    /// Makes the device of an export, or finds the one that a previous server has left.
    pub(super) fn make(
        ublk: &Ublk,
        backing: &Backing,
        export: &Export,
        (request_max, workers): (u32, usize),
        takes_over: bool,
    ) -> Result<Self, String> {
        ublk.check()?;
        let mut maker = Maker { control: Control::open()?, ublk, export, params: params(export, request_max) };
        let mark = mark(&export.name, backing, export.offset);
        let outlives = backing.about().outlives; // blockdev.1
        let recovers = outlives && ublk.recover && !ublk.unprivileged;
        if takes_over {
            let is_it = |info: &Info| recovers && (info.mark == mark || ublk.adopt && ublk.id == Some(info.id));
            return maker.of_another(is_it);
        }
        let (mut found, own) = (None, std::process::id() as i32);
        for id in ublk.id.map_or_else(control::all, |id| vec![id]) {
            let info = match maker.control.info(id) {
                Ok(info) => info,
                Err(error) if [Some(libc::ENODEV), Some(libc::ENOENT)].contains(&error.raw_os_error()) => continue,
                Err(error) if ublk.id.is_some() => return Err(format!("{}: {error}", device_path(id))),
                // Somebody else's, whom we know nothing of.
                Err(_) => continue,
            };
            if info.mark != mark && ublk.id.is_none() {
                continue;
            }
            match (info.state(), control::runs(info.pid) && info.pid != own) {
                (State::Live, true) | (State::Dead, true) if ublk.id.is_some() => {
                    // blockdev.3
                    return Err(format!("{} is served by process {} already", block_path(id), info.pid));
                }
                (_, true) if info.state() != State::Quiesced => {}
                (State::Quiesced | State::FailsAll | State::Live, _)
                    if (info.mark == mark || ublk.adopt) && !(info.state() == State::Live && info.pid == own) =>
                {
                    if !recovers {
                        let why = if outlives {
                            "recover is off"
                        } else {
                            "its data was in the memory of the server that died"
                        };
                        return Err(format!(
                            "{} waits for a server of this export, and {why}: `fairlift ublk remove {id}` first",
                            block_path(id)
                        ));
                    }
                    found = Some(info);
                }
                (State::Dead, _) if is_ours(info.mark) => {
                    // It was stopped, or was never started: its server has died.
                    let gone = maker.control.tell(Order::DEL_DEV, &info, 0);
                    gone.map_err(|error| format!("{} is of no use, and cannot be removed: {error}", device_path(id)))?;
                }
                _ => {
                    return Err(format!(
                        "{} is another's ({}): take another id, or remove that one (`fairlift ublk remove {id}`), or take it over \
                         (`fairlift ublk recover {id}`)",
                        block_path(id),
                        info.state().name()
                    ));
                }
            }
        }
        if let Some(info) = found {
            return maker.found(&info);
        }
        if let (true, Some(id)) = (ublk.adopt, ublk.id) {
            return Err(format!(
                "there is no ublk device {id} to take over; there are {}",
                control::show(&control::all())
            ));
        }
        let info = maker.add(recovers, mark, workers)?;
        let device = maker.device(&info, maker.params.size, false);
        if device.info.by_path() {
            until_ours(&device_path(info.id)).map_err(|error| {
                format!(
                    "{} does not come to belong to this user ({error}): an unprivileged device needs a udev rule that gives it \
                     (docs/ublk.md)",
                    device_path(info.id)
                )
            })?;
        }
        let taken = maker.control.set_params(&device.info, &maker.params);
        taken.map_err(|error| {
            format!("the kernel does not take a ublk device such as this export (SET_PARAMS: {error})")
        })?;
        Ok(device)
    }

    pub(super) fn path(&self) -> String {
        block_path(self.info.id)
    }

    /// Whether it is left for the next server when this one ends.
    pub(super) fn leaves(&self) -> bool {
        let outlives = self.info.flags & proto::USER_RECOVERY != 0;
        self.ublk.leave && outlives && !self.is_removed.load(Ordering::Acquire)
    }

    /// Whether it is there, or why it will not be; that it is not yet is no error.
    pub(super) fn is_there(&self) -> Result<bool, String> {
        let why = lock(&self.why_not).clone();
        why.map_or_else(|| Ok(self.is_live.load(Ordering::Acquire)), Err)
    }

    pub(super) fn view(&self) -> DeviceView {
        DeviceView {
            export: self.name.clone(),
            path: self.path(),
            link: self.link.as_ref().map(|link| link.display().to_string()),
            live: self.is_live.load(Ordering::Acquire),
            recovered: self.recovered,
            queues: self.info.queues,
            depth: self.info.depth,
        }
    }

    /// The operations that it offers of the export.
    pub(super) fn offer(&self, export: &Export) -> Offer {
        offer(export, self.info.request_max)
    }

    /// Gives its queues to the workers and starts it, which has its partitions looked for. Waits in the kernel.
    pub(super) fn start(self: &Arc<Self>, service: &Service, newcomers: &Newcomers<Newcomer>) -> Result<(), String> {
        let mut stage = lock(&self.at_work);
        if *stage != Stage::Made {
            return Ok(()); // removed meanwhile
        }
        let Some(export) = service.exports().get(self.export).cloned() else {
            return Ok(()); // removed meanwhile
        };
        let begun = Instant::now();
        let fail = |what: &str, error: &io::Error| format!("{}: {what}: {error}", self.path());
        let mut control = Control::open()?;
        if self.recovered {
            control.take_over(&self.info, if self.is_handed { PATIENCE_HANDED } else { PATIENCE }).map_err(
                |error| match error.raw_os_error() {
                    Some(libc::EBUSY) => format!("{} is served by another process", self.path()),
                    _ => fail("the driver does not give it to another server (START_USER_RECOVERY)", &error),
                },
            )?;
        }
        let file = open(&device_path(self.info.id)).map_err(|error| fail("its own file cannot be had", &error))?;
        let file = Arc::new(OwnedFd::from(file));
        let workers = service.notifiers.workers();
        let map = |number| Descriptors::map(&file, number, self.info.depth);
        let all: Vec<_> = (0..self.info.queues)
            .map(map)
            .collect::<Result<_, _>>()
            .map_err(|error| fail("it cannot be mapped", &error))?;
        *stage = Stage::Given;
        for (number, descriptors) in (0..).zip(all) {
            // Small devices with one queue each are not all the first worker's.
            let worker = ContextId(((u64::from(self.info.id) + u64::from(number)) % workers as u64) as u16);
            let newcomer = Newcomer {
                device: Arc::clone(self),
                export: Arc::clone(&export),
                file: Arc::clone(&file),
                number,
                descriptors,
            };
            newcomers.send(worker, newcomer);
            service.notifiers.ring_bell(worker);
        }
        drop((file, export));
        let (order, pid) =
            (if self.recovered { Order::END_USER_RECOVERY } else { Order::START_DEV }, std::process::id());
        control
            .tell(order, &self.info, pid.into())
            .map_err(|error| fail(&format!("it does not start ({})", order.name), &error))?;
        if let Some(mode) = self.ublk.file {
            mode.put(Path::new(&self.path())).map_err(|why| format!("{}: {why}", self.path()))?; // blockdev.6
        }
        if let Some(link) = &self.link
            && let Err(error) = names::set(link, self.info.id)
        {
            tracing::warn!("export {:?}: {} cannot be made: {error}", self.name, link.display());
        }
        *stage = Stage::Live;
        self.is_live.store(true, Ordering::Release);
        drop(stage);
        let (path, recovered) = (self.path(), self.recovered);
        tracing::info!(
            export = self.name,
            path,
            recovered,
            took_us = begun.elapsed().as_micros() as u64,
            "ublk: the device is there"
        );
        if !self.is_handed {
            service.events.tell("attached", vec![("export", self.name.clone()), ("device", path)]);
        }
        // The export may have grown since the device was made, by this server or the one before.
        if let Some(export) = service.exports().get(self.export) {
            self.grow(export);
        }
        Ok(())
    }

    /// Leaves it for the next server. A device that was not started is of no use to that.
    pub(super) fn leave(&self, service: &Service) -> Result<(), String> {
        let mut stage = lock(&self.at_work);
        match *stage {
            Stage::Gone => {}
            Stage::Made | Stage::Given if !self.recovered => {
                drop(stage);
                return self.stop(service);
            }
            Stage::Made | Stage::Given | Stage::Live => {
                tracing::info!(export = self.name, path = self.path(), "ublk: the device is left for the next server");
                self.let_go(&mut stage);
            }
        }
        Ok(())
    }

    fn let_go(&self, stage: &mut Stage) {
        *stage = Stage::Gone;
        self.is_live.store(false, Ordering::Release);
        self.is_left.store(true, Ordering::Release);
    }

    /// Stops it and takes it away. Waits for its requests, which the workers serve meanwhile.
    pub(super) fn stop(&self, service: &Service) -> Result<(), String> {
        let mut stage = lock(&self.at_work);
        let before = *stage;
        match before {
            Stage::Gone => return Ok(()),
            // It could not be taken over, and waits for a server that can.
            Stage::Made | Stage::Given if self.recovered => {
                self.let_go(&mut stage);
                return Ok(());
            }
            Stage::Made | Stage::Given | Stage::Live => {}
        }
        let mut control = Control::open()?;
        let is_live = self.is_live.swap(false, Ordering::AcqRel);
        if is_live {
            write_back(self.info.id); // blockdev.4
        }
        if let Err(why) = control.remove(&self.info) {
            self.is_live.store(is_live, Ordering::Release);
            return Err(why);
        }
        *stage = Stage::Gone;
        if let Some(link) = &self.link {
            names::unset(link, self.info.id);
        }
        if before != Stage::Made {
            tracing::info!(export = self.name, path = self.path(), "ublk: the device is removed");
            service.events.tell("detached", vec![("export", self.name.clone()), ("device", self.path())]);
        }
        Ok(())
    }

    /// Whether it is to become as large as its export.
    pub(super) fn grows_to(&self, export: &Export) -> bool {
        self.offer(export).size > self.size.load(Ordering::Acquire)
    }

    /// It becomes as large as its export, where the kernel can do that.
    pub(super) fn grow(&self, export: &Export) {
        let stage = lock(&self.at_work);
        if *stage != Stage::Live || !self.grows_to(export) {
            return;
        }
        let size = self.offer(export).size;
        let before = self.size.swap(size, Ordering::AcqRel);
        let (export, path) = (&self.name, self.path());
        let sectors = size / fairlift_core::Sector::SIZE;
        let grown = Control::open().and_then(|mut control| {
            let can = control.features & proto::UPDATE_SIZE != 0;
            let told = can.then(|| control.tell(Order::UPDATE_SIZE, &self.info, sectors)).transpose();
            told.map_err(|error| format!("UPDATE_SIZE: {error}"))
        });
        match grown {
            Ok(Some(())) => tracing::info!(export, path, size, "ublk: the device has grown"),
            Ok(None) => tracing::warn!(
                "export {export:?}: {path} keeps its size, for this kernel's ublk_drv cannot change it (update_size, of Linux 6.16): it has the \
                 new one when it is removed and made again"
            ),
            Err(why) => {
                self.size.store(before, Ordering::Release); // it is tried again when the export changes
                tracing::error!("export {export:?}: {path} keeps its size: {why}");
            }
        }
    }

    /// The exclusive holder of the block device, who would lose something with it: a file system, a volume, swap.
    pub(super) fn holder(&self) -> Option<String> {
        holder(self.info.id).map(|holder| format!("{} is {holder}", self.path()))
    }
}

struct Maker<'a> {
    control: Control,
    ublk: &'a Ublk,
    export: &'a Export,
    /// Those of the export.
    params: Params,
}

impl Maker<'_> {
    /// A device that another server has made.
    fn found(&mut self, info: &Info) -> Result<BlockDevice, String> {
        let path = block_path(info.id);
        info.is_spoken().map_err(|why| format!("{path} cannot be taken over: {why}"))?;
        let was = self.control.params(info).map_err(|error| format!("{path}: {error}"))?;
        was.is_served_by(&self.params).map_err(|why| format!("{path} {why}, or `fairlift ublk remove {}`", info.id))?;
        if !self.ublk.partitions && info.flags & (proto::NO_AUTO_PART_SCAN | proto::UNPRIVILEGED_DEV) == 0 {
            return Err(format!("{path} was made with partitions: `fairlift ublk remove {}` first", info.id));
        }
        Ok(self.device(info, was.size, true))
    }

    fn add(&mut self, recovers: bool, mark: u64, workers: usize) -> Result<Info, String> {
        let Self { control, ublk, .. } = self;
        let mut flags = proto::CMD_IOCTL_ENCODE | proto::NEED_GET_DATA;
        let recovery = proto::USER_RECOVERY | proto::USER_RECOVERY_REISSUE;
        if recovers {
            flags |= recovery & control.features;
        }
        if ublk.unprivileged {
            flags |= proto::UNPRIVILEGED_DEV; // it has no partitions anyway
        } else if !ublk.partitions {
            if control.features & proto::NO_AUTO_PART_SCAN == 0 {
                return Err(format!(
                    "this kernel looks for partitions on every ublk device of a privileged server (no_auto_part_scan is not among what its \
                     driver can do: {}); leave partitions=false out, or make the device unprivileged",
                    control.show_features()
                ));
            }
            flags |= proto::NO_AUTO_PART_SCAN;
        }
        let wanted = Info {
            queues: ublk.queues.unwrap_or(workers as u16),
            depth: ublk.depth.unwrap_or(DEPTH),
            request_max: self.params.request_max,
            id: ublk.id.unwrap_or(u32::MAX),
            pid: std::process::id() as i32,
            flags,
            mark,
            ..Info::default()
        };
        let info = control.add(&wanted).map_err(|error| not_added(&error, &wanted))?;
        if recovers && info.flags & recovery != recovery {
            tracing::warn!("ublk: this kernel's devices do not outlive their server ({})", control.show_features());
        }
        Ok(info)
    }

    fn device(&self, info: &Info, size: u64, recovered: bool) -> BlockDevice {
        BlockDevice {
            info: *info,
            ublk: self.ublk.clone(),
            export: self.export.id,
            name: self.export.name.clone(),
            recovered,
            is_handed: false,
            is_removed: AtomicBool::new(false),
            size: AtomicU64::new(size),
            link: names::link(&self.export.name),
            is_live: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            why_not: Mutex::default(),
            at_work: Mutex::new(Stage::Made),
        }
    }
}

/// A queue on its way to its worker.
pub(crate) struct Newcomer {
    pub(super) device: Arc<BlockDevice>,
    /// It may have been removed meanwhile: the queue is served until its device is stopped.
    pub(super) export: Arc<Export>,
    pub(super) file: Arc<OwnedFd>,
    pub(super) number: u16,
    pub(super) descriptors: Descriptors,
}

impl Drop for BlockDevice {
    /// A device made for a server that did not start.
    fn drop(&mut self) {
        if *lock(&self.at_work) == Stage::Made
            && !self.recovered
            && let Ok(mut control) = Control::open()
        {
            let _ = control.tell(Order::DEL_DEV, &self.info, 0);
        }
    }
}

/// The properties of an export for clients of a block device.
/// Whole blocks are served, and reads and writes as long as the driver is told.
fn offer(export: &Export, request_max: u32) -> Offer {
    let offer = Offer::of(export, request_max.into());
    Offer { size: offer.size / offer.block * offer.block, ..offer }
}

fn params(export: &Export, request_max: u32) -> Params {
    let request_max = request_max.min(proto::REQUEST_MAX) / 4096 * 4096;
    let Offer { size, read_only, discard, write_zeroes, .. } = offer(export, request_max);
    Params {
        size,
        block: export.facts.block(),
        request_max,
        read_only,
        rotational: export.facts.rotational,
        volatile_cache: export.facts.flush,
        discard,
        write_zeroes,
    }
}

fn not_added(error: &io::Error, wanted: &Info) -> String {
    let max = std::fs::read_to_string("/sys/module/ublk_drv/parameters/ublks_max").unwrap_or_default();
    match error.raw_os_error() {
        Some(libc::EPERM) => {
            "a ublk device needs CAP_SYS_ADMIN: run as root, or set unprivileged (docs/ublk.md); a server that was started without \
             such a device keeps the capability only if it was told to (--keep-capability CAP_SYS_ADMIN)"
                .into()
        }
        Some(libc::EACCES) => format!(
            "the kernel has as many ublk devices as it takes (ublks_max is {}): remove one, or set more (echo 256 > \
             /sys/module/ublk_drv/parameters/ublks_max)",
            if max.trim().is_empty() { "not known" } else { max.trim() }
        ),
        Some(libc::EEXIST) => format!("{} is there already: take another id", device_path(wanted.id)),
        Some(libc::ENOMEM) => {
            format!("no memory for a ublk device with {} queues of {} requests", wanted.queues, wanted.depth)
        }
        _ => format!(
            "the kernel makes no ublk device with {} queues of {} requests (ADD_DEV: {error})",
            wanted.queues, wanted.depth
        ),
    }
}

/// Opens a device's own file, once it is there and ours.
fn open(path: &str) -> io::Result<File> {
    patiently((FILE, AGAIN), udev_may_give, || File::options().read(true).write(true).open(path))
}

/// Waits until a device's own file is there and ours.
fn until_ours(path: &str) -> io::Result<()> {
    use rustix::fs::Access;
    patiently((FILE, AGAIN), udev_may_give, || Ok(rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK)?))
}

fn udev_may_give(error: &io::Error) -> bool {
    [ErrorKind::NotFound, ErrorKind::PermissionDenied, ErrorKind::ResourceBusy].contains(&error.kind())
}

/// The exclusive holder of a block device.
pub(super) fn holder(id: u32) -> Option<String> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let path = block_path(id);
    let error = File::options().read(true).custom_flags(libc::O_EXCL).open(&path).err()?;
    if error.raw_os_error() != Some(libc::EBUSY) {
        return None;
    }
    let places = mounts(id);
    Some(if places.is_empty() {
        "held by another program, a volume or as swap".into()
    } else {
        let shown: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
        format!("mounted at {}", shown.join(", "))
    })
}

/// Where a block device, or something that is made of it, is mounted.
fn mounts(id: u32) -> Vec<PathBuf> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let numbers = numbers(&PathBuf::from(format!("/sys/block/ublkb{id}")));
    mounted(&String::from_utf8_lossy(&text), &numbers, |source| {
        // Another path may be on a file system that hangs.
        let path = Some(source).filter(|source| source.starts_with("/dev/"))?;
        let there = std::fs::metadata(path).ok().filter(|there| there.file_type().is_block_device())?;
        Some(format!("{}:{}", rustix::fs::major(there.rdev()), rustix::fs::minor(there.rdev())))
    })
}

/// The numbers of a block device, of its partitions, and of the volumes on them.
fn numbers(device: &Path) -> Vec<String> {
    let entries = |place: &Path| {
        let there = std::fs::read_dir(place).into_iter().flatten().filter_map(Result::ok);
        there.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let own = std::fs::read_to_string(device.join("dev")).ok().map(|text| text.trim().to_owned());
    let partitions = entries(device).into_iter().filter(|entry| entry.join("partition").exists());
    let above = partitions.chain(entries(&device.join("holders")));
    own.into_iter().chain(above.flat_map(|entry| numbers(&entry))).collect()
}

/// The places at which block devices of these numbers are mounted, in the kernel's list of mounts. One that may have several devices, as btrfs,
/// has a number of its own there: it is known by the device that is named, whose number is asked.
fn mounted(list: &str, numbers: &[String], number_of: impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let is_it = |number: &str| numbers.iter().any(|one| one == number);
    let line = |line: &str| {
        let (mount, system) = line.split_once(" - ")?;
        let mut words = mount.split(' ').skip(2);
        let (device, place) = (words.next()?, words.nth(1)?);
        let named = || number_of(&unescaped(system.split(' ').nth(1)?)).filter(|number| is_it(number));
        (is_it(device) || named().is_some()).then(|| unescaped(place).into())
    };
    list.lines().filter_map(line).collect()
}

/// A path in that list, where some characters are numbers.
fn unescaped(path: &str) -> String {
    let numbers = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\043", "#"), ("\\134", "\\")];
    numbers.iter().fold(path.to_owned(), |path, (number, is)| path.replace(number, is))
}

/// Has what is written to a block device, and to file systems on it, arrive.
fn write_back(id: u32) {
    let places = mounts(id);
    for place in &places {
        let synced = File::open(place).and_then(|directory| Ok(rustix::fs::syncfs(directory)?));
        match synced {
            Ok(()) => tracing::warn!(
                "ublk: {} goes while it is mounted at {}, which was written back",
                block_path(id),
                place.display()
            ),
            Err(error) => {
                tracing::error!("ublk: {} goes while it is mounted at {}: {error}", block_path(id), place.display())
            }
        }
    }
    if let Err(error) = File::open(block_path(id)).and_then(|device| device.sync_all())
        && error.kind() != ErrorKind::NotFound
    {
        tracing::error!("ublk: the writes to {} could not be written back: {error}", block_path(id));
    }
}

/// The descriptors of a queue's requests, as the kernel shows them.
pub(crate) struct Descriptors {
    map: Mapping,
    depth: u16,
}

impl Descriptors {
    fn map(file: &OwnedFd, queue: u16, depth: u16) -> io::Result<Self> {
        let bytes = (usize::from(depth) * DESCRIPTOR).next_multiple_of(4096);
        let at = usize::from(queue) * QUEUE_STRIDE;
        let map = Mapping::of_file(file.as_fd(), at as u64, bytes, libc::MAP_POPULATE)?;
        Ok(Self { map, depth })
    }

    /// A copy of a descriptor: the kernel writes it before it says that there is a request, and not while we have that.
    pub(super) fn read(&self, tag: u16) -> [u8; DESCRIPTOR] {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        let start = self.map.bytes().as_ptr().cast::<u8>();
        // SAFETY: the place lies within the mapping, which any bytes may be read from.
        unsafe { start.add(usize::from(tag) * DESCRIPTOR).cast::<[u8; DESCRIPTOR]>().read_volatile() }
    }

    /// An address that is not null, for commands that need one and whose memory nobody looks at.
    pub(super) fn address(&self) -> u64 {
        self.map.bytes().as_ptr().addr() as u64
    }
}

#[cfg(test)]
pub(super) mod tests {
    use fairlift_core::{Group, Sector, sched};

    use super::*;
    use crate::config::{self, FileAt};
    use crate::control::arrange;
    use crate::disk::engine::Engine;
    use crate::disk::{Disk, Disks};
    use crate::kernel::buffer::Pool;
    use crate::kernel::helpers::Helpers;
    use crate::kernel::notify::Notifiers;
    use crate::kernel::ring::{Kind, Ring};

    /// An engine with one disk, and an export of all of it.
    pub(in super::super) fn engine() -> (Engine, Arc<Export>) {
        let export = config::Export::new("alice", config::Ram { size: 1 << 20 });
        let device = export.backing.open(false, &Default::default()).unwrap();
        let settings = config::Disk::new("d", sched::Kind::None);
        let disk = Arc::new(Disk::new(&settings, &[(Arc::clone(&device), None)], &[Group::root()], 1).unwrap());
        let export = arrange::export((&export, "/"), &device, (0, Sector(0)), 1).unwrap();
        let notifiers = Arc::new(Notifiers::new(1).unwrap());
        let helpers = Helpers::new(1, &[disk.concurrency], &[], 1, Arc::clone(&notifiers));
        let (ring, pool) = (Ring::new(Kind::Poll, 8, 8, 1).unwrap(), Pool::new(1 << 20, 1).unwrap());
        let disks = Disks::new(vec![disk]);
        (Engine::new(ring, pool, ContextId(0), disks, notifiers, helpers), Arc::new(export))
    }

    /// The only queue, of two requests, of a device that no driver has: its descriptors are in a file.
    pub(in super::super) fn newcomer(export: &Arc<Export>) -> Newcomer {
        let file = rustix::fs::memfd_create("descriptors", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        let descriptors = Descriptors::map(&file, 0, 2).unwrap();
        let (is_removed, is_live, is_left, why_not, link) = Default::default();
        let device = BlockDevice {
            info: Info { queues: 1, depth: 2, request_max: 1 << 16, ..Info::default() },
            ublk: Ublk::default(),
            export: export.id,
            name: export.name.clone(),
            recovered: false,
            is_handed: false,
            is_removed,
            size: export.size.into(),
            link,
            is_live,
            is_left,
            why_not,
            at_work: Mutex::new(Stage::Gone),
        };
        let (device, export, file) = (Arc::new(device), Arc::clone(export), Arc::new(file));
        Newcomer { device, export, file, number: 0, descriptors }
    }

    /// blockdev.2
    #[test]
    fn a_device_is_known_again_by_name_backing_and_range() {
        let file = |path: &str| Backing::from(FileAt::new(path));
        let one = mark("alice", &file("/srv/alice"), 0);
        assert_eq!(one, mark("alice", &file("/srv/alice"), 0));
        assert!(is_ours(one) && !is_ours(0) && !is_ours(u64::MAX));
        assert_ne!(one, 0xfa17 << 48);
        for other in [
            mark("bob", &file("/srv/alice"), 0),
            mark("alice", &file("/srv/bob"), 0),
            mark("alice", &file("/srv/alice"), 512),
        ] {
            assert_ne!(one, other);
        }
        assert_eq!(one, 0xfa179d2ae00121d8, "the same in every version of us");
    }

    /// blockdev.4
    #[test]
    fn what_is_mounted_of_a_device_is_known_whatever_is_in_between() {
        let list = r"22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
40 22 259:0 / /srv/plain rw,relatime shared:9 - ext4 /dev/ublkb3 rw
41 22 259:1 / /srv/a\040\134part rw,relatime - xfs /dev/ublkb3p1 rw
42 22 253:0 / /srv/volume rw,relatime shared:2 master:3 - ext4 /dev/mapper/of\040ublk rw
43 22 0:45 /sub /srv/btrfs rw,relatime shared:4 - btrfs /dev/fairlift/alice rw,subvolid=5
44 22 0:46 / /srv/another rw,relatime - btrfs /dev/vdb rw
45 22 0:47 / /run/other rw,relatime - tmpfs tmpfs rw";
        let numbers = ["259:0", "259:1", "253:0"].map(str::to_owned);
        let number_of = |source: &str| match source {
            "/dev/fairlift/alice" => Some("259:0".into()),
            "/dev/vdb" => Some("254:16".into()),
            _ => None,
        };
        let places = ["/srv/plain", r"/srv/a \part", "/srv/volume", "/srv/btrfs"].map(PathBuf::from);
        assert_eq!(mounted(list, &numbers, number_of), places);
    }

    #[test]
    fn the_partitions_of_a_device_and_the_volumes_on_them_have_numbers() {
        let sys = std::env::temp_dir().join(format!("fairlift-sys-{}", std::process::id()));
        for (of, number) in [("", "259:0"), ("ublkb3p1", "259:1"), ("ublkb3p1/holders/dm-0", "253:0"), ("queue", "9:9")]
        {
            std::fs::create_dir_all(sys.join(of)).unwrap();
            std::fs::write(sys.join(of).join("dev"), format!("{number}\n")).unwrap();
        }
        std::fs::write(sys.join("ublkb3p1/partition"), "1\n").unwrap();
        let found = numbers(&sys);
        std::fs::remove_dir_all(&sys).unwrap();
        assert_eq!(found, ["259:0", "259:1", "253:0"]);
    }
}
