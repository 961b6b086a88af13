//! The devices of a worker, and how it comes by them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use fairlift_core::{ContextId, Duration, Instant};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use slab::Slab;

use super::chain::Reader;
use super::device::{FrontEnd, Resumed};
use super::service::{GuestListener, GuestListeners, Name, Newcomer, TICKET, UserData};
use super::socket::Socket;
use crate::access::{Peer, Rights};
use crate::disk::engine::{Engine, News};
use crate::export::front::{Clients, Front};
use crate::export::hold::Report;
use crate::export::present::{Fate, Present};
use crate::export::service::{Client, Exports};
use crate::export::{Export, listen};
use crate::kernel::ring::Completion;
use crate::sync::lock;

pub(crate) struct VhostUser {
    /// The state that all workers share.
    common: Arc<GuestListeners>,
    /// The listeners that the kernel looks at: all of them, at the first worker.
    listeners: BTreeMap<u64, Arc<GuestListener>>,
    devices: Slab<FrontEnd>,
    /// Devices to look at before the turn ends.
    touched: Vec<usize>,
    /// Devices whose guests do not kick: their rings are looked at until the worker sleeps.
    watched: Vec<usize>,
    reader: Reader,
    present: Present,
    /// Front-ends that found their listener taken: one for each listener.
    waiting: Vec<Candidate>,
    /// When to look again at listeners, by the numbers of their exports, at which more may be.
    accept_again: BTreeMap<u64, Instant>,
}

impl VhostUser {
    /// No devices yet. The first worker accepts, for all.
    pub(crate) fn new(engine: &mut Engine, common: Arc<GuestListeners>) -> Self {
        let mut front = Self {
            listeners: BTreeMap::new(),
            devices: Slab::new(),
            touched: Vec::new(),
            watched: Vec::new(),
            reader: Reader::default(),
            present: Present::new(&common.service.exports()),
            waiting: Vec::new(),
            accept_again: BTreeMap::new(),
            common,
        };
        front.look_at_doors(engine);
        front
    }

    fn look_at_doors(&mut self, engine: &mut Engine) {
        if engine.context.0 != 0 || engine.holds {
            return;
        }
        let listeners = lock(&self.common.list).clone();
        for (number, listener) in &listeners {
            if engine.drains.is_none() && !self.listeners.contains_key(number) {
                self.listen(engine, Arc::clone(listener));
            }
        }
        for number in self.listeners.keys().filter(|number| !listeners.contains_key(number)) {
            engine.ring.cancel(UserData::Accept(*number).pack());
        }
    }

    fn listen(&mut self, engine: &mut Engine, listener: Arc<GuestListener>) {
        engine.ring.poll(listener.socket.fd.as_fd(), libc::POLLIN, true, UserData::Accept(listener.export).pack());
        self.listeners.insert(listener.export, listener);
    }

    /// Does something with each device, which is looked at then.
    fn each(&mut self, mut does: impl FnMut(&mut FrontEnd)) {
        for (number, device) in &mut self.devices {
            does(device);
            if !std::mem::replace(&mut device.touched, true) {
                self.touched.push(number);
            }
        }
    }

    fn touch(&mut self, number: usize) {
        if let Some(device) = self.devices.get_mut(number)
            && !std::mem::replace(&mut device.touched, true)
        {
            self.touched.push(number);
        }
    }

    fn accept(&mut self, engine: &mut Engine, listener: &Arc<GuestListener>) {
        for _ in 0..ACCEPTS {
            let fd = match accept_with(&listener.socket.fd, SocketFlags::CLOEXEC) {
                Ok(fd) => fd,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => {
                    tracing::warn!(export = listener.name, %error, "vhost-user: a front-end could not be accepted");
                    break;
                }
            };
            // A stranger keeps nobody from the listener.
            if self.look_at(listener, &fd, |rights, export| rights.of(&export.name, &export.path)).is_none() {
                continue; // closes it
            }
            if !listener.taken.swap(true, Ordering::AcqRel) {
                self.place(engine, Arc::clone(listener), fd);
            } else if self.waiting.iter().all(|waiting| !Arc::ptr_eq(&waiting.listener, listener)) {
                // The one before may have left, and have requests under way.
                self.waiting.push(Candidate { listener: Arc::clone(listener), fd, until: engine.now + PATIENCE });
            } else {
                refuse(listener);
            }
        }
        // The kernel tells of those that come later, and of none that waits there.
        self.accept_again.insert(listener.export, engine.now + ACCEPT_PAUSE);
    }

    /// Whether front-ends are let in by the listener of an export.
    fn is_open(&self, engine: &Engine, export: u64) -> bool {
        engine.drains.is_none() && !engine.holds && lock(&self.common.list).contains_key(&export)
    }

    fn look_at_listeners_again(&mut self, engine: &mut Engine) {
        let is_due = |_: &u64, at: &mut Instant| *at <= engine.now;
        let due: Vec<_> = self.accept_again.extract_if(.., is_due).collect();
        for (export, _) in due {
            if let Some(listener) = self.listeners.get(&export).cloned().filter(|_| self.is_open(engine, export)) {
                self.accept(engine, &listener);
            }
        }
    }

    /// The export of a listener, the peer that has come there, and what `ask` says of its rights; a stranger is told of and let go.
    fn look_at<T>(
        &self,
        listener: &GuestListener,
        fd: &OwnedFd,
        ask: impl FnOnce(&Rights<'_>, &Export) -> Option<T>,
    ) -> Option<(Arc<Export>, Peer, T)> {
        let exports = self.common.service.exports();
        let export = exports.get(listener.export)?; // or it was removed meanwhile
        let mut peer = listen::peer(fd, listener.socket.name.clone());
        listen::learn_cgroup(fd.as_fd(), &exports.access, &mut peer);
        let Some(allowed) = ask(&exports.access.of(&peer), export) else {
            self.common.service.tell_refused(&exports, &peer, std::slice::from_ref(&export.name));
            return None;
        };
        Some((Arc::clone(export), peer, allowed))
    }

    /// Front-ends that wait at a listener go in if it is free by now, and are refused if it was not in time.
    fn look_at_waiting(&mut self, engine: &mut Engine) {
        for waiting in std::mem::take(&mut self.waiting) {
            if engine.drains.is_some() {
                continue; // closes it
            }
            if !waiting.listener.taken.swap(true, Ordering::AcqRel) {
                self.place(engine, waiting.listener, waiting.fd);
            } else if engine.now < waiting.until {
                self.waiting.push(waiting);
            } else {
                refuse(&waiting.listener);
            }
        }
    }

    /// Gives a front-end to the worker with the fewest.
    fn place(&mut self, engine: &mut Engine, listener: Arc<GuestListener>, fd: OwnedFd) {
        let target = self.common.newcomers.place();
        if target == engine.context {
            self.welcome(engine, listener, fd);
        } else {
            self.common.newcomers.send(target, Newcomer::New(listener, fd));
            self.common.service.notifiers.wake(target, &mut engine.ring);
        }
    }

    fn welcome(&mut self, engine: &mut Engine, listener: Arc<GuestListener>, fd: OwnedFd) {
        let entered = self.look_at(&listener, &fd, |rights, export| rights.enter(&export.name, &export.path));
        let Some((export, peer, let_in)) = entered else { return self.leave(engine.context, &listener) };
        let of = vec![("export", export.name.clone()), ("client", peer.shown.clone())];
        self.common.service.events.tell("connected", of);
        tracing::info!(export = export.name, client = peer.shown, "vhost-user: a front-end has connected");
        let number = self.join(engine.context, &export, peer.shown.clone(), SystemTime::now());
        let request_max = self.common.service.limits.request_max.into();
        let mut device = FrontEnd::new(&export, (peer, let_in), listener, number, Socket::new(fd), request_max);
        if engine.drains.is_some() {
            device.end(engine);
        }
        if engine.holds {
            device.hold();
        }
        self.devices.insert(device);
        self.touch(number);
    }

    /// The next device is told of, and has this number.
    fn join(&mut self, worker: ContextId, export: &Arc<Export>, peer: String, since: SystemTime) -> usize {
        let number = self.devices.vacant_key();
        let client = Client { peer, export: Some(export.name.clone()), since, unsent: Arc::default() };
        self.common.service.clients().insert((worker.0, CLIENTS + number), client);
        self.present.join(export, number);
        number
    }

    fn resume(&mut self, engine: &mut Engine, Resumed { export, since, mut device }: Resumed) {
        let number = self.join(engine.context, &export, device.peer.shown.clone(), since);
        device.resume(engine, number);
        self.devices.insert(device);
    }

    fn leave(&self, context: ContextId, listener: &GuestListener) {
        listener.logged.store(false, Ordering::Relaxed);
        listener.taken.store(false, Ordering::Release);
        self.common.newcomers.left(context);
    }

    /// The state of everything here, once it stands still: the listeners first, because front-ends come by them. A front-end that waits at a listener which
    /// another one has is let go: it comes again.
    fn report(&self, context: ContextId) -> Report {
        let mut all = if context.0 == 0 { self.common.held()? } else { Vec::new() };
        let clients = self.common.service.clients();
        for (number, device) in &self.devices {
            let since = clients.get(&(context.0, CLIENTS + number)).map(|client| client.since);
            let fail = |why| format!("a virtual machine at export {:?}: {why}", device.export.name);
            all.push(device.held(since).map_err(fail)?);
        }
        Ok(all)
    }
}

fn refuse(listener: &GuestListener) {
    if !listener.logged.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            export = listener.name,
            "vhost-user: a second front-end was refused: an export has one at a time"
        );
    }
}

/// A front-end at a listener that is taken.
struct Candidate {
    listener: Arc<GuestListener>,
    fd: OwnedFd,
    until: Instant,
}

/// How long a front-end waits for the one before to be gone. Chosen: the requests of a front-end that has left end within
/// that time on a disk that works, and QEMU asks again after a second.
const PATIENCE: Duration = fairlift_core::time::secs(1);

/// Front-ends that are accepted at once, at one listener. Chosen: those that come and go without end keep a worker for no longer than that.
const ACCEPTS: usize = 64;

/// How long a listener is left alone after these, or where none could be accepted. Chosen: as with clients of NBD.
const ACCEPT_PAUSE: Duration = fairlift_core::time::ms(100);

/// How often it is looked whether it is.
const LOOK_AGAIN: Duration = fairlift_core::time::ms(5);

/// Devices are numbered from here on, among the clients of a worker.
const CLIENTS: usize = TICKET as usize;

impl Front for VhostUser {
    fn completed(&mut self, engine: &mut Engine, what: u64, completion: &Completion) {
        let more = completion.goes_on;
        match UserData::unpack(what) {
            UserData::Message(number) => {
                self.devices[number].readable(engine);
                self.touch(number);
            }
            UserData::Kick(Name { device, ring }) => {
                self.devices[device].kicked(engine, ring, completion.result, more);
                self.touch(device);
            }
            UserData::Called(Name { device, ring }) => {
                self.devices[device].called(ring);
                self.touch(device);
            }
            UserData::Accept(export) => {
                let listener = if more { self.listeners.get(&export).cloned() } else { self.listeners.remove(&export) };
                if let Some(listener) = listener.filter(|_| self.is_open(engine, export)) {
                    self.accept(engine, &listener);
                    if !more {
                        self.listen(engine, listener);
                    }
                }
            }
        }
    }

    fn woken(&mut self, engine: &mut Engine) {
        for newcomer in self.common.newcomers.take(engine.context) {
            match newcomer {
                Newcomer::New(listener, fd) => self.welcome(engine, listener, fd),
                Newcomer::From(resumed) => self.resume(engine, *resumed),
            }
        }
    }

    fn look_at_clock(&mut self, engine: &mut Engine) {
        if !self.waiting.is_empty() {
            self.look_at_waiting(engine);
        }
        if !self.accept_again.is_empty() {
            self.look_at_listeners_again(engine);
        }
        self.watch(false);
    }

    fn watch(&mut self, sleeps: bool) -> bool {
        let mut watched = std::mem::take(&mut self.watched);
        let mut more = false;
        watched.retain(|number| {
            let Some(device) = self.devices.get_mut(*number) else { return false };
            if device.watch(sleeps) {
                more = true;
                self.touch(*number);
                return true;
            }
            !sleeps
        });
        self.watched = watched;
        more
    }

    #[inline]
    fn news(&mut self, engine: &mut Engine, ticket: usize, news: News) {
        let (Name { device, ring }, head) = Name::of_ticket(engine.owner(ticket));
        self.devices[device].news(engine, ticket, (ring, head), news);
        self.touch(device);
    }

    fn go_on(&mut self, engine: &mut Engine) -> bool {
        let mut went_on = false;
        for index in 0..self.touched.len() {
            went_on |= self.devices[self.touched[index]].go_on(engine, &mut self.reader);
        }
        went_on
    }

    fn arm(&mut self, engine: &mut Engine) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.retain(|number| {
            let device = &mut self.devices[*number];
            device.arm(engine);
            if !device.is_listening() && !self.watched.contains(number) {
                self.watched.push(*number);
            }
            if device.is_over() {
                // Collected requests for it name its descriptors.
                engine.ring.submit();
                let device = self.devices.remove(*number);
                let listener = Arc::clone(&device.listener);
                let of = vec![("export", device.export.name.clone()), ("client", device.peer.shown.clone())];
                self.present.leave(device.export.id, *number);
                device.close(engine);
                self.common.service.clients().remove(&(engine.context.0, CLIENTS + *number));
                self.common.service.events.tell("left", of);
                self.leave(engine.context, &listener);
                return false;
            }
            // It goes on when others have given memory or room back.
            device.touched = device.held_back;
            device.touched
        });
        self.touched = touched;
    }

    fn waits_for_memory(&self) -> bool {
        !self.touched.is_empty()
    }

    fn poll_timeout(&self, _engine: &Engine, now: Instant) -> Option<Instant> {
        let waiting = (!self.waiting.is_empty()).then(|| now + LOOK_AGAIN);
        waiting.into_iter().chain(self.accept_again.values().copied()).min()
    }

    fn is_over(&self, _engine: &Engine) -> bool {
        self.devices.is_empty() && self.listeners.is_empty()
    }
}

impl Clients for VhostUser {
    #[cold]
    fn follow(&mut self, engine: &mut Engine, exports: &Exports) {
        for (number, fate) in self.present.follow(exports) {
            let device = &mut self.devices[number];
            match fate {
                Fate::Changed(export) => device.follow(engine, &exports.access, &export),
                Fate::Removed(_) => device.end(engine),
            }
            self.touch(number);
        }
        self.look_at_doors(engine);
    }

    fn drain(&mut self, engine: &mut Engine) {
        self.listeners.keys().for_each(|listener| engine.ring.cancel(UserData::Accept(*listener).pack()));
        self.each(|device| device.end(engine));
    }

    fn hold(&mut self, engine: &mut Engine) {
        self.listeners.keys().for_each(|listener| engine.ring.cancel(UserData::Accept(*listener).pack()));
        self.each(FrontEnd::hold);
    }

    fn held(&mut self, engine: &mut Engine) -> Option<Report> {
        // hold.3
        let common = &self.common;
        if !self.listeners.is_empty() || !common.service.hold.is_closed() || common.newcomers.has(engine.context) {
            return None;
        }
        let mut still = true;
        self.devices.iter_mut().for_each(|(_, device)| still &= device.comes_to_stand());
        still.then(|| self.report(engine.context))
    }

    fn serve_on(&mut self, engine: &mut Engine) {
        self.each(FrontEnd::serve_on);
        if engine.context.0 == 0 && !self.common.service.draining.load(Ordering::Acquire) {
            self.common.are_ours();
            self.look_at_doors(engine);
        }
    }
}
