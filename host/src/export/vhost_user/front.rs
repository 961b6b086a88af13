//! The devices of a worker, and how it comes by them.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fairlift_core::{ContextId, Instant};
use io_uring::cqueue;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use slab::Slab;

use super::chain::Reader;
use super::device::{Device, Tools};
use super::service::{Event, Name, Service};
use crate::disk::engine::{Engine, News};
use crate::export::front::Front;

/// The devices of a worker.
pub(crate) struct VhostUser {
    service: Arc<Service>,
    devices: Slab<Device>,
    /// Devices to look at before the turn ends.
    touched: Vec<usize>,
    tools: Tools,
    /// Doors that the kernel looks at.
    listening: usize,
    /// Since when we have been draining.
    draining: Option<Instant>,
}

impl VhostUser {
    /// No devices yet. The first worker accepts, for all.
    pub(crate) fn new(engine: &mut Engine, service: Arc<Service>) -> Self {
        let doors = if engine.context.0 == 0 { service.doors.len() } else { 0 };
        let tools = Tools { reader: Reader::default(), request_max: service.limits.request_max.into() };
        let (devices, touched) = (Slab::new(), Vec::new());
        let mut front = Self { service, devices, touched, tools, listening: 0, draining: None };
        (0..doors).for_each(|door| front.listen(engine, door));
        front
    }

    fn listen(&mut self, engine: &mut Engine, door: usize) {
        let fd = self.service.doors[door].listening.fd.as_fd();
        engine.ring.poll(fd, libc::POLLIN, true, Event::Accept(door).pack());
        self.listening += 1;
    }

    fn touch(&mut self, number: usize) {
        if let Some(device) = self.devices.get_mut(number)
            && !std::mem::replace(&mut device.touched, true)
        {
            self.touched.push(number);
        }
    }

    /// Somebody is at a door.
    fn accept(&mut self, engine: &mut Engine, number: usize) {
        loop {
            let door = &self.service.doors[number];
            let fd = match accept_with(&door.listening.fd, SocketFlags::CLOEXEC) {
                Ok(fd) => fd,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => {
                    tracing::warn!(export = door.export.name, %error, "vhost-user: a front-end could not be accepted");
                    return;
                }
            };
            if !door.taken.swap(true, Ordering::AcqRel) {
                door.told.store(false, Ordering::Relaxed);
                self.place(engine, number, fd);
            } else if !door.told.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    export = door.export.name,
                    "vhost-user: a second front-end was refused: an export has one at a time"
                );
            }
        }
    }

    /// Gives a front-end to the worker with the fewest.
    fn place(&mut self, engine: &mut Engine, door: usize, fd: OwnedFd) {
        let service = Arc::clone(&self.service);
        let (target, load) = (service.loads.iter().enumerate())
            .min_by_key(|(_, load)| load.load(Ordering::Relaxed))
            .expect("there is at least one worker");
        load.fetch_add(1, Ordering::Relaxed);
        let target = ContextId(target as u16);
        if target == engine.context {
            self.welcome(engine, door, fd);
        } else {
            service.newcomers_of(target).push((door, fd));
            service.notifiers.wake(target, &mut engine.ring);
        }
    }

    fn welcome(&mut self, engine: &mut Engine, door: usize, fd: OwnedFd) {
        let entry = self.devices.vacant_entry();
        let number = entry.key();
        let export = &self.service.doors[door].export;
        let device = entry.insert(Device::new(export, door, number, fd, self.tools.request_max));
        if self.draining.is_some() {
            device.end(engine);
        }
        self.touch(number);
    }
}

impl Front for VhostUser {
    const ASKS_BY_ITSELF: bool = false;

    type Done = ();

    fn completed(&mut self, engine: &mut Engine, _now: Instant, what: u64, entry: &cqueue::Entry) {
        let more = cqueue::more(entry.flags());
        match Event::unpack(what) {
            Event::Message(number) => {
                self.devices[number].readable(engine);
                self.touch(number);
            }
            Event::Kick(Name { device, ring }) => {
                self.devices[device].kicked(engine, ring, entry.result(), more);
                self.touch(device);
            }
            Event::Called(Name { device, ring }) => {
                self.devices[device].called(ring);
                self.touch(device);
            }
            Event::Accept(door) => {
                if !more {
                    self.listening -= 1;
                }
                if self.draining.is_none() {
                    self.accept(engine, door);
                    if !more {
                        self.listen(engine, door);
                    }
                }
            }
        }
    }

    /// There may be newcomers, or the order to drain.
    fn woken(&mut self, engine: &mut Engine, now: Instant) {
        let newcomers = std::mem::take(&mut *self.service.newcomers_of(engine.context));
        newcomers.into_iter().for_each(|(door, fd)| self.welcome(engine, door, fd));
        if self.service.draining.load(Ordering::Acquire) && self.draining.is_none() {
            self.draining = Some(now);
            if self.listening > 0 {
                (0..self.service.doors.len()).for_each(|door| engine.ring.cancel(Event::Accept(door).pack()));
            }
            let numbers: Vec<_> = self.devices.iter().map(|(number, _)| number).collect();
            for number in numbers {
                self.devices[number].end(engine);
                self.touch(number);
            }
        }
    }

    fn look_at_clock(&mut self, _engine: &mut Engine, _now: Instant) {
        for (_, device) in &mut self.devices {
            device.look();
        }
    }

    #[inline]
    fn news(&mut self, engine: &mut Engine, _now: Instant, ticket: usize, news: News) {
        let (Name { device, ring }, head) = Name::of_ticket(engine.owner(ticket));
        self.devices[device].news(engine, ticket, (ring, head), news);
        self.touch(device);
    }

    fn go_on(&mut self, engine: &mut Engine, _now: Instant) -> bool {
        let mut went_on = false;
        for index in 0..self.touched.len() {
            went_on |= self.devices[self.touched[index]].go_on(engine, &mut self.tools);
        }
        went_on
    }

    fn arm(&mut self, engine: &mut Engine, _now: Instant) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.retain(|number| {
            let device = &mut self.devices[*number];
            device.arm(engine);
            if device.is_over() {
                // What was collected for it names its descriptors.
                engine.ring.submit();
                let device = self.devices.remove(*number);
                let door = device.door;
                device.close(engine);
                self.service.doors[door].taken.store(false, Ordering::Release);
                self.service.loads[usize::from(engine.context.0)].fetch_sub(1, Ordering::Relaxed);
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

    fn poll_timeout(&self, _now: Instant) -> Option<Instant> {
        None
    }

    fn gives_up_at(&self) -> Option<Instant> {
        let patience = self.service.limits.drain_timeout;
        self.draining.map(|since| since + patience + patience)
    }

    fn is_over(&self, _engine: &Engine) -> bool {
        self.draining.is_some() && self.devices.is_empty() && self.listening == 0
    }

    fn finish(&mut self) {}
}
