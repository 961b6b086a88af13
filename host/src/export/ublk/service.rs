//! The devices of a server, and the threads that start and stop them.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::time::{Duration, Instant};

use fairlift_core::record::Record;

use super::control::{Control, block_path};
use super::device::{BlockDevice, Newcomer};
use super::front;
use super::syntax::Ublk;
use crate::config::WayIn as _;
use crate::disk::engine::Engine;
use crate::export::front::{Coming, OF_EVENT, OF_TICKET, Opening, Protocol};
use crate::export::hold::{HeldClient, Report};
use crate::export::present::Newcomers;
use crate::export::service::Service;
use crate::export::{DeviceView, Export};
use crate::kernel::ring::{Choice, Source};
use crate::sync::{Mutex, lock};
use crate::{Error, config};

/// How long adding an export waits for its device. Chosen: longer than the last server takes to die and udev to make the file, where
/// the disk answers.
const START: Duration = Duration::from_secs(30);

/// The longest time between two looks for a device.
const AGAIN: Duration = Duration::from_millis(100);

pub(crate) struct Ublks {
    pub(super) service: Arc<Service>,
    /// By the numbers of their exports; also those whose exports are gone, until they are.
    list: Mutex<BTreeMap<u64, Arc<BlockDevice>>>,
    pub(super) newcomers: Newcomers<Newcomer>,
    /// The numbers of exports whose devices are being removed. A holder of this lock does not hold `list`.
    leaving: Mutex<Vec<u64>>,
    /// Threads that give orders.
    threads: Mutex<usize>,
    /// Those of the server's start were begun.
    started: AtomicBool,
    /// There is one less, or a device is in another state.
    changed: Condvar,
    draining: AtomicBool,
    /// Why the server ends: a device that it was started with could not be.
    failed: Mutex<Option<Error>>,
}

impl Ublks {
    fn of(&self, export: u64) -> Option<Arc<BlockDevice>> {
        lock(&self.list).get(&export).cloned()
    }

    /// One more: it is started at once, if the server runs.
    fn add(self: &Arc<Self>, device: BlockDevice) {
        let device = Arc::new(device);
        lock(&self.list).insert(device.export, Arc::clone(&device));
        if self.started.load(Ordering::Acquire) {
            self.start_device(device, false);
        }
    }

    /// `at_start`: the server does not go on without it, unless that was said.
    fn start_device(self: &Arc<Self>, device: Arc<BlockDevice>, at_start: bool) {
        // A device that was handed over is the kernel's meanwhile, which keeps its requests: the other clients need not be closed for it.
        let must = at_start && !device.ublk.optional && !device.is_handed;
        let (all, there) = (Arc::clone(self), Arc::clone(&device));
        let begins = self.spawn(move || {
            if let Err(why) = there.start(&all.service, &all.newcomers) {
                all.could_not_start(&there, why, must);
            }
        });
        if !begins {
            self.could_not_start(&device, "no thread can be made for it".into(), must);
        }
    }

    fn could_not_start(&self, device: &BlockDevice, why: String, must: bool) {
        tracing::error!("export {:?}: {why}", device.name);
        *lock(&device.why_not) = Some(why.clone());
        let service = &self.service;
        stop(service, device);
        if must && !service.draining.load(Ordering::Acquire) {
            *lock(&self.failed) = Some(Error::Export { name: device.name.clone(), why });
            service.draining.store(true, Ordering::Release);
            service.notifiers.ring_all();
        }
    }

    /// The server ends: its devices are stopped, but for those that are left to the next one. Says so once.
    pub(super) fn drain(self: &Arc<Self>) {
        if self.draining.swap(true, Ordering::AcqRel) {
            return;
        }
        let all: Vec<_> = lock(&self.list).values().cloned().collect();
        for device in all {
            let service = Arc::clone(&self.service);
            self.spawn(move || {
                if !device.leaves() {
                    stop(&service, &device);
                } else if let Err(why) = device.leave(&service) {
                    tracing::error!("export {:?}: {why}", device.name);
                }
            });
        }
    }

    /// Whether no thread has anything to do with a device any more, once the server ends.
    pub(super) fn has_drained(&self) -> bool {
        self.draining.load(Ordering::Acquire) && *lock(&self.threads) == 0
    }

    /// The devices that go over, as a server is told that takes over; each is with the kernel from the end of this process on.
    pub(super) fn held(&self) -> Report {
        if *lock(&self.threads) > 0 {
            return Err("a block device is being started, resized or removed; try again in a moment".into());
        }
        let mut held = Vec::new();
        for device in lock(&self.list).values() {
            match device.stays() {
                Some(why) if !device.is_handed => return Err(why),
                None if device.is_there() == Ok(true) => {
                    let mut says = Record::default();
                    says.put("export", &device.name);
                    says.put("id", &device.info.id);
                    held.push(HeldClient { descriptors: Vec::new(), says, bytes: Vec::new() });
                }
                _ => {} // a server that takes over has started none yet
            }
        }
        Ok(held)
    }

    /// Has a thread give orders; `false`: there can be none.
    fn spawn(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) -> bool {
        *lock(&self.threads) += 1;
        let ublks = Arc::clone(self);
        let all = move || {
            work();
            *lock(&ublks.threads) -= 1;
            ublks.changed.notify_all();
            ublks.service.notifiers.ring_all();
        };
        let begun = std::thread::Builder::new().name("ublk".into()).spawn(all);
        if let Err(error) = &begun {
            *lock(&self.threads) -= 1;
            tracing::error!(%error, "no thread can be made to start or stop a ublk device");
        }
        begun.is_ok()
    }
}

impl Protocol for Ublks {
    const NUMBER: u64 = NUMBER;

    type Clients = front::Ublk;

    fn new(service: &Arc<Service>) -> Self {
        Self {
            service: Arc::clone(service),
            list: Mutex::default(),
            newcomers: Newcomers::new(service.notifiers.workers()),
            leaving: Mutex::default(),
            threads: Mutex::default(),
            started: AtomicBool::new(false),
            changed: Condvar::new(),
            draining: AtomicBool::new(false),
            failed: Mutex::default(),
        }
    }

    fn clients(self: &Arc<Self>, _engine: &mut Engine) -> io::Result<front::Ublk> {
        Ok(front::Ublk::new(Arc::clone(self)))
    }

    fn check(exports: &[config::Export], engine: &Choice) -> Vec<Error> {
        let blocks = exports
            .iter()
            .filter_map(|settings| Some((settings, settings.ways.get::<Ublk>().filter(|ublk| !ublk.optional)?)));
        let checked = blocks.map(|(settings, ublk)| {
            let checked = ublk.check().and_then(|()| engine.drives("ublk")).and_then(|()| Control::open().map(|_| ()));
            checked.map_err(|why| Error::Export { name: settings.name.clone(), why })
        });
        checked.filter_map(Result::err).take(1).collect() // it is the same for all
    }

    fn is_in_the_way(&self, settings: &config::Export) -> Option<String> {
        settings.ways.get::<Ublk>()?;
        let (leaving, list) = (lock(&self.leaving), lock(&self.list));
        let is_leaving =
            leaving.iter().any(|export| list.get(export).is_some_and(|device| device.name == settings.name));
        is_leaving.then(|| format!("the block device of export \"{}\" is still being removed", settings.name))
    }

    fn prepare(
        self: &Arc<Self>,
        settings: &config::Export,
        export: &Export,
        engine: &Choice,
    ) -> Result<Option<Opening>, Error> {
        let Some(ublk) = settings.ways.get::<Ublk>() else { return Ok(None) };
        let service = &self.service;
        let (request_max, workers) = (service.limits.request_max, service.notifiers.workers());
        let takes_over = service.hold.is_on();
        let made = engine
            .drives("ublk")
            .and_then(|()| BlockDevice::make(ublk, &settings.backing, export, (request_max, workers), takes_over));
        match made {
            Ok(mut device) => {
                let ublks = Arc::clone(self);
                Ok(Some(Box::new(move |export| {
                    device.export = export.id;
                    ublks.add(device);
                })))
            }
            Err(why) if ublk.optional => {
                tracing::warn!("export {:?} is no block device: {why}", settings.name);
                Ok(None)
            }
            Err(why) => Err(Error::Export { name: settings.name.clone(), why }),
        }
    }

    /// A server that takes over starts them once it may serve (blockdev.7).
    fn start(self: &Arc<Self>) {
        if self.service.hold.is_on() || self.started.load(Ordering::Acquire) {
            return;
        }
        let all: Vec<_> = lock(&self.list).values().cloned().collect();
        all.into_iter().for_each(|device| self.start_device(device, true));
        self.started.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    fn settle(&self) {
        let mut threads = lock(&self.threads);
        while !(self.started.load(Ordering::Acquire) && *threads == 0 || self.service.draining.load(Ordering::Acquire))
        {
            let waited = self.changed.wait_timeout(threads, AGAIN);
            threads = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn wait(&self, export: u64) -> Result<(), String> {
        let Some(device) = self.of(export) else { return Ok(()) };
        let until = Instant::now() + START;
        let mut threads = lock(&self.threads);
        loop {
            match device.is_there() {
                Ok(false) if Instant::now() < until && !self.draining.load(Ordering::Acquire) => {}
                Err(why) if !device.ublk.optional => return Err(why),
                _ => return Ok(()),
            }
            threads = self.changed.wait_timeout(threads, AGAIN).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn follow(self: &Arc<Self>, exports: &[Arc<Export>]) {
        for export in exports {
            if let Some(device) = self.of(export.id).filter(|device| device.grows_to(export)) {
                let export = Arc::clone(export);
                self.spawn(move || device.grow(&export));
            }
        }
    }

    fn holder(&self, export: u64) -> Option<String> {
        self.of(export)?.holder()
    }

    /// Stops its device, if it has one. If that fails the device stays in the list, and is tried again when the server ends.
    fn leave(self: &Arc<Self>, export: u64) {
        let Some(device) = self.of(export) else { return };
        device.is_removed.store(true, Ordering::Release);
        lock(&self.leaving).push(export);
        let ublks = Arc::clone(self);
        let begins = self.spawn(move || {
            if stop(&ublks.service, &device) {
                lock(&ublks.list).remove(&export);
            }
            lock(&ublks.leaving).retain(|leaving| *leaving != export);
        });
        if !begins {
            lock(&self.leaving).retain(|leaving| *leaving != export);
        }
    }

    fn stays(&self) -> Vec<String> {
        let all: Vec<_> = lock(&self.list).values().cloned().collect();
        all.iter().filter_map(|device| device.stays()).collect()
    }

    fn take_over(self: &Arc<Self>, client: HeldClient) -> Result<Coming, String> {
        let HeldClient { mut says, .. } = client;
        let (name, id): (String, u32) = (says.need("export")?, says.need("id")?);
        let device = lock(&self.list).values().find(|device| device.name == name).cloned();
        let device = device.ok_or_else(|| format!("export {name:?} would be no block device"))?;
        if !device.is_handed || device.info.id != id {
            return Err(format!("{} comes for export {name:?}, which has {} here", block_path(id), device.path()));
        }
        Ok(Box::new(|| ())) // it is started once this server may serve
    }

    fn devices(&self) -> Vec<DeviceView> {
        lock(&self.list).values().map(|device| device.view()).collect()
    }

    fn take_failure(&self) -> Option<Error> {
        lock(&self.failed).take()
    }
}

/// Stops a device; whether it is gone.
fn stop(service: &Service, device: &BlockDevice) -> bool {
    let stopped = device.stop(service);
    if let Err(why) = &stopped {
        tracing::error!("export {:?}: {why}", device.name);
    }
    stopped.is_ok()
}

const NUMBER: u64 = 2;
pub(super) const TICKET: u64 = NUMBER << OF_TICKET;
const EVENT: u64 = NUMBER << OF_EVENT;

/// A request of a queue, by the queue's number at its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tag {
    pub(super) queue_slot: usize,
    pub(super) tag: u16,
}

impl Tag {
    pub(super) fn event(self) -> u64 {
        debug_assert!(self.queue_slot >> 32 == 0);
        Source::Front(EVENT | self.number()).pack()
    }

    /// The name of the request: one that no other front uses.
    pub(super) const fn ticket(self) -> u64 {
        TICKET | self.number()
    }

    const fn number(self) -> u64 {
        (self.queue_slot as u64) << 16 | self.tag as u64
    }

    /// The request of an event or of a name, which have its number in their lowest bits.
    pub(super) const fn of(name: u64) -> Self {
        Self { queue_slot: (name >> 16) as u32 as usize, tag: name as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_what_comes_back_and_has_our_number() {
        let tag = Tag { queue_slot: 70_000, tag: 4095 };
        let Source::Front(what) = Source::unpack(tag.event()) else { panic!("a front's") };
        assert_eq!(what >> OF_EVENT, NUMBER);
        assert_eq!(Tag::of(what), tag);
        assert_eq!(tag.ticket() >> OF_TICKET, NUMBER);
        assert_eq!(Tag::of(tag.ticket()), tag);
    }
}
