//! The devices of a server, and the threads that start and stop them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fairlift_core::ContextId;

use super::device::{Descriptors, Device};
use crate::Error;
use crate::export::Export;
use crate::export::service::Service;
use crate::kernel::ring::Source;

/// A queue on its way to its worker.
pub(crate) struct Newcomer {
    pub(super) device: Arc<Device>,
    /// It may have been removed meanwhile: the queue is served until its device is stopped.
    pub(super) export: Arc<Export>,
    pub(super) file: Arc<OwnedFd>,
    pub(super) number: u16,
    pub(super) descriptors: Descriptors,
}

/// For how long who has added an export waits for its device. Chosen: longer than that may take (the last server dies, udev gives us
/// its file), where its disk answers.
const START: Duration = Duration::from_secs(30);

/// How often it is looked at least whether a device is there.
const AGAIN: Duration = Duration::from_millis(100);

/// The devices of a server.
pub(crate) struct Ublks {
    pub(super) service: Arc<Service>,
    /// By the numbers of their exports; also those whose exports are gone, until they are.
    list: Mutex<BTreeMap<u64, Arc<Device>>>,
    newcomers: Box<[Mutex<Vec<Newcomer>>]>,
    /// The numbers of exports whose devices are being removed. Who has this has not `list`.
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

/// A device, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceView {
    /// The name of its export.
    pub export: String,
    /// Where it is: `/dev/ublkb0`.
    pub path: String,
    /// What else it is called: `/dev/fairlift/alice`.
    pub link: Option<String>,
    /// Whether it is there.
    pub live: bool,
    /// Whether a server before had made it.
    pub recovered: bool,
    /// How many queues it has.
    pub queues: u16,
    /// Requests that each of them can have.
    pub depth: u16,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ublks {
    pub(crate) fn new(service: &Arc<Service>, list: Vec<Device>) -> Self {
        let workers = service.notifiers.workers();
        Self {
            service: Arc::clone(service),
            list: Mutex::new(list.into_iter().map(|device| (device.export, Arc::new(device))).collect()),
            newcomers: (0..workers).map(|_| Mutex::default()).collect(),
            leaving: Mutex::default(),
            threads: Mutex::default(),
            started: AtomicBool::new(false),
            changed: Condvar::new(),
            draining: AtomicBool::new(false),
            failed: Mutex::default(),
        }
    }

    pub(super) fn newcomers_of(&self, worker: ContextId) -> MutexGuard<'_, Vec<Newcomer>> {
        lock(&self.newcomers[usize::from(worker.0)])
    }

    /// The devices that there are, as they are.
    pub(crate) fn view(&self) -> Vec<DeviceView> {
        lock(&self.list).values().map(|device| device.view()).collect()
    }

    /// The device of an export.
    pub(crate) fn of(&self, export: u64) -> Option<Arc<Device>> {
        lock(&self.list).get(&export).cloned()
    }

    /// Starts all devices of a server that starts.
    pub(crate) fn start_all(self: &Arc<Self>) {
        let all: Vec<_> = lock(&self.list).values().cloned().collect();
        all.into_iter().for_each(|device| self.start(device, true));
        self.started.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// One more, of an export that was added.
    pub(crate) fn add(self: &Arc<Self>, device: Device) {
        let device = Arc::new(device);
        lock(&self.list).insert(device.export, Arc::clone(&device));
        self.start(device, false);
    }

    /// Waits until the device of an export that was added is there.
    ///
    /// # Errors
    /// Why it will not be.
    pub(crate) fn wait(&self, export: u64) -> Result<(), String> {
        let Some(device) = self.of(export) else { return Ok(()) };
        let until = Instant::now() + START;
        let mut threads = lock(&self.threads);
        loop {
            match device.is_there() {
                Ok(false) if Instant::now() < until && !self.draining.load(Ordering::Acquire) => {}
                Err(why) if !device.is_optional() => return Err(why),
                _ => return Ok(()),
            }
            threads = self.changed.wait_timeout(threads, AGAIN).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// `at_start`: the server does not go on without it, unless that was said.
    fn start(self: &Arc<Self>, device: Arc<Device>, at_start: bool) {
        let must = at_start && !device.is_optional();
        let (all, there) = (Arc::clone(self), Arc::clone(&device));
        let begins = self.spawn(move || {
            if let Err(why) = there.start(&all) {
                all.could_not_start(&there, why, must);
            }
        });
        if !begins {
            self.could_not_start(&device, "no thread can be made for it".into(), must);
        }
    }

    fn could_not_start(&self, device: &Device, why: String, must: bool) {
        tracing::error!("export {:?}: {why}", device.name);
        device.fails(why.clone());
        let service = &self.service;
        stop(service, device);
        if must && !service.draining.load(Ordering::Acquire) {
            *lock(&self.failed) = Some(Error::Export { name: device.name.clone(), why });
            service.draining.store(true, Ordering::Release);
            service.notifiers.ring_all();
        }
    }

    /// Stops the device of an export that is removed, if it has one. If that fails it stays in the list, and is tried again when
    /// the server ends.
    pub(crate) fn remove(self: &Arc<Self>, export: u64) {
        let Some(device) = self.of(export) else { return };
        device.set_removed();
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

    /// Whether the device of an export of that name is being removed.
    pub(crate) fn is_leaving(&self, name: &str) -> bool {
        let (leaving, list) = (lock(&self.leaving), lock(&self.list));
        leaving.iter().any(|export| list.get(export).is_some_and(|device| device.name == name))
    }

    /// Exports have changed: devices whose size is another one are told.
    pub(crate) fn follow(self: &Arc<Self>, exports: &[Arc<Export>]) {
        for export in exports {
            if let Some(device) = self.of(export.id).filter(|device| device.grows_to(export.size)) {
                let size = export.size;
                self.spawn(move || device.grow(size));
            }
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

    /// Why the server ends, if it is for a device.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        lock(&self.failed).take()
    }

    /// Waits until every device that the server was started with is there, or has failed; how they are.
    pub(crate) fn settled(&self) -> Vec<DeviceView> {
        let mut threads = lock(&self.threads);
        while !(self.started.load(Ordering::Acquire) && *threads == 0 || self.service.draining.load(Ordering::Acquire))
        {
            let waited = self.changed.wait_timeout(threads, AGAIN);
            threads = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(threads);
        self.view()
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

/// Stops a device; whether it is gone.
fn stop(service: &Service, device: &Device) -> bool {
    let stopped = device.stop(service);
    if let Err(why) = &stopped {
        tracing::error!("export {:?}: {why}", device.name);
    }
    stopped.is_ok()
}

const TICKET: u64 = 1 << 62;
const EVENT: u64 = 1 << 54;

/// Whether a request is a block device's; what virtual machines ask has another bit, and is looked at first.
pub(crate) const fn is_ticket(owner: u64) -> bool {
    owner & TICKET != 0
}

/// Whether something that the kernel has done was for a block device.
pub(crate) const fn is_event(what: u64) -> bool {
    what & EVENT != 0
}

/// A request of a queue, by the queue's place at its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tag {
    pub(super) seat: usize,
    pub(super) tag: u16,
}

impl Tag {
    pub(super) fn event(self) -> u64 {
        debug_assert!(self.seat >> 32 == 0);
        Source::Front(EVENT | self.number()).pack()
    }

    pub(super) const fn of_event(what: u64) -> Self {
        Self::of(what & !EVENT)
    }

    /// What the request is called: nothing that other fronts call their own.
    pub(super) const fn ticket(self) -> u64 {
        TICKET | self.number()
    }

    pub(super) const fn of_ticket(owner: u64) -> Self {
        Self::of(owner & !TICKET)
    }

    const fn number(self) -> u64 {
        (self.seat as u64) << 16 | self.tag as u64
    }

    const fn of(number: u64) -> Self {
        Self { seat: (number >> 16) as usize, tag: number as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::vhost_user::service as vhost_user;

    #[test]
    fn what_is_packed_is_what_comes_back_and_nobody_elses() {
        let tag = Tag { seat: 70_000, tag: 4095 };
        let Source::Front(what) = Source::unpack(tag.event()) else { panic!("a front's") };
        assert!(is_event(what) && !vhost_user::is_event(what));
        assert_eq!(Tag::of_event(what), tag);
        assert!(is_ticket(tag.ticket()) && !vhost_user::is_ticket(tag.ticket()));
        assert_eq!(Tag::of_ticket(tag.ticket()), tag);
    }
}
