//! The messages of a front-end and their answers: it sets its device up ring by ring, and may stop and start rings later.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use vhost::vhost_user::VhostUserProtocolFeatures;

use super::super::config;
use super::super::inflight::{self, Inflight};
use super::super::memory::Shared;
use super::super::proto::{self, Region, Request};
use super::super::ring::Ring;
use super::super::socket::{Message, NoMessage, Socket};
use super::FrontEnd;
use super::vring::Vring;
use crate::disk::engine::Engine;
use crate::export::hold::Halt;

enum Reply {
    /// Nothing of its own.
    Done,
    Payload(Vec<u8>, Option<OwnedFd>),
    /// The answer comes later.
    Later,
}

impl FrontEnd {
    /// Takes messages in, `most` at most.
    pub(super) fn receive(&mut self, engine: &mut Engine, most: &mut u32) {
        while *most > 0 && !self.ending && self.stopping.is_none() && self.halt == Halt::No {
            *most -= 1;
            match self.socket.receive() {
                Ok(message) => self.take_message(engine, message),
                Err(NoMessage::NotYet) => return,
                Err(NoMessage::Closed) => return self.end(engine),
                Err(NoMessage::Broken(why)) => return self.broken(engine, &why),
            }
        }
    }

    fn take_message(&mut self, engine: &mut Engine, message: Message) {
        let Message { header, payload, descriptors } = message;
        let request = match Request::read(&header, &payload, descriptors.len()) {
            Ok(request) => request,
            Err(why) => return self.broken(engine, &why),
        };
        tracing::debug!(export = self.export.name, ?request, "vhost-user");
        let acknowledges = header.need_reply && self.speaks(VhostUserProtocolFeatures::REPLY_ACK);
        match self.answer(engine, &request, descriptors) {
            Ok(Reply::Done) if acknowledges => self.send(engine, header.code, &proto::number(0), None),
            Ok(Reply::Done | Reply::Later) => {}
            Ok(Reply::Payload(payload, fd)) => self.send(engine, header.code, &payload, fd),
            Err(why) => {
                if acknowledges {
                    // It may not be there to hear it.
                    let _ = self.socket.send(&proto::reply(header.code, &proto::number(1)), None);
                }
                self.broken(engine, &format!("{}: {why}", name_of(&request)));
            }
        }
    }

    /// Answers a message, with a descriptor beside the payload.
    pub(super) fn send(&mut self, engine: &mut Engine, code: u32, payload: &[u8], fd: Option<OwnedFd>) {
        if let Err(error) = self.socket.send(&proto::reply(code, payload), fd.as_ref().map(OwnedFd::as_fd)) {
            self.broken(engine, &format!("an answer cannot be sent: {error}"));
        }
    }

    fn speaks(&self, feature: VhostUserProtocolFeatures) -> bool {
        self.protocol_features & feature.bits() != 0
    }

    fn answer(
        &mut self,
        engine: &mut Engine,
        request: &Request,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<Reply, String> {
        let number = |value| Ok(Reply::Payload(proto::number(value), None));
        let mut descriptor = || descriptors.pop().expect("as many as belong to it");
        match *request {
            Request::GetFeatures => return number(config::features(&self.export)),
            Request::SetFeatures(features) => {
                self.features = chosen(features, config::accepted(&self.export))?;
            }
            Request::GetProtocolFeatures => return number(config::protocol_features()),
            Request::SetProtocolFeatures(features) => {
                self.protocol_features = chosen(features, config::protocol_features())?;
            }
            Request::GetQueueNum => return number(config::RINGS_MAX as u64),
            Request::SetOwner => {}
            Request::ResetOwner => return Err("is not served: stop the rings by GET_VRING_BASE".into()),
            Request::SetMemTable(ref regions) => self.map(regions.clone(), descriptors)?,
            Request::SetVringNum { ring, size } => self.set_size(ring, size)?,
            Request::SetVringAddr { ring, descriptors, available, used } => {
                let (number, vring) = self.still(ring)?;
                vring.addresses = Some([descriptors, available, used]);
                self.start(engine, number)?;
            }
            Request::SetVringBase { ring, base } => {
                let base = u16::try_from(base).map_err(|_| format!("ring {ring} at {base:#x}, which is no index"))?;
                self.still(ring)?.1.base = base;
            }
            Request::GetVringBase { ring } => {
                self.begin_to_stop(engine, ring)?;
                return Ok(Reply::Later);
            }
            Request::SetVringKick { ring, with_descriptor: true } => self.set_kick(engine, ring, descriptor())?,
            Request::SetVringKick { ring, with_descriptor: false } => {
                return Err(format!("ring {ring} without a descriptor: rings are not polled here"));
            }
            Request::SetVringCall { ring, .. } => self.set_call(engine, ring, descriptors.pop())?,
            Request::SetVringErr { ring, .. } => self.vring(ring).map(|_| ())?,
            Request::SetVringEnable { ring, on } => self.enable(engine, ring, on)?,
            Request::GetConfig { offset, size, flags } => {
                let space = config::space(&self.export, self.offer.request_max, self.write_back);
                return Ok(Reply::Payload(proto::config(offset, size, flags, &space), None));
            }
            Request::SetConfig { offset, ref data } => match (offset as usize, data.as_slice()) {
                (config::WRITE_BACK, [on]) => {
                    self.write_back = *on != 0;
                    self.tables.iter().for_each(|tables| tables.keep_write_back(self.write_back));
                }
                _ => return Err(format!("{} bytes at {offset}: only the write cache can be set", data.len())),
            },
            Request::GetInflight { queues, size } => return self.make_tables(queues, size),
            Request::SetInflight { offset, queues, size } => {
                config::check_tables(queues, size)?;
                let tables = Inflight::open(descriptor(), offset, queues, size)?;
                self.write_back &= tables.write_back(); // inflight.3
                self.keep(tables);
            }
            Request::SetBackendRequests => self.requests = Some(Socket::new(descriptor())),
        }
        Ok(Reply::Done)
    }

    /// Tells the front-end that its device is another size now, if it wants to hear that.
    pub(super) fn tell_of_config(&self) {
        if let Some(requests) = self.requests.as_ref().filter(|_| self.speaks(VhostUserProtocolFeatures::CONFIG))
            && let Err(error) = requests.send(&proto::config_changed(), None)
        {
            tracing::warn!(export = self.export.name, %error, "vhost-user: the guest could not be told the new size");
        }
    }

    // ---- the guest's memory ----

    fn map(&mut self, regions: Vec<Region>, files: Vec<OwnedFd>) -> Result<(), String> {
        let shared = Shared::map(regions, files)?;
        for (number, vring) in self.vrings.iter_mut().enumerate() {
            if let Some(ring) = &mut vring.ring {
                ring.move_to(&shared).map_err(|why| format!("ring {number}: {why}"))?;
            }
        }
        self.shared = Some(shared);
        Ok(())
    }

    fn make_tables(&mut self, queues: u16, size: u16) -> Result<Reply, String> {
        config::check_tables(queues, size)?;
        let tables = Inflight::new(queues, size).map_err(|error| error.to_string())?;
        let fd = tables.shared().0.try_clone_to_owned().map_err(|error| error.to_string())?;
        self.keep(tables);
        let payload = proto::inflight(inflight::bytes(queues, size) as u64, queues, size);
        Ok(Reply::Payload(payload, Some(fd)))
    }

    fn keep(&mut self, tables: Inflight) {
        tables.keep_write_back(self.write_back);
        self.tables = Some(Arc::new(tables));
    }

    // ---- rings ----

    fn vring(&mut self, ring: u32) -> Result<(usize, &mut Vring), String> {
        let number = ring as usize;
        if number >= config::RINGS_MAX {
            return Err(format!("there is no ring {ring}: a device has at most {}", config::RINGS_MAX));
        }
        if number >= self.vrings.len() {
            self.vrings.resize_with(number + 1, Vring::default);
        }
        Ok((number, &mut self.vrings[number]))
    }

    /// A ring that does not run.
    fn still(&mut self, ring: u32) -> Result<(usize, &mut Vring), String> {
        let (number, vring) = self.vring(ring)?;
        if vring.ring.is_some() {
            return Err(format!("ring {ring} runs: it must be stopped first (GET_VRING_BASE)"));
        }
        Ok((number, vring))
    }

    fn set_size(&mut self, ring: u32, size: u32) -> Result<(), String> {
        let (_, vring) = self.still(ring)?;
        if !size.is_power_of_two() || size > config::RING_SIZE_MAX.into() {
            let most = config::RING_SIZE_MAX;
            return Err(format!("ring {ring} of {size}: it must be a power of two, and at most {most}"));
        }
        vring.size = size as u16;
        Ok(())
    }

    fn set_kick(&mut self, engine: &mut Engine, ring: u32, fd: OwnedFd) -> Result<(), String> {
        let event = self.event(ring as usize);
        let (number, vring) = self.vring(ring)?;
        is_event(&fd)?;
        vring.kick.set(engine, event, Some(fd));
        self.start(engine, number)
    }

    fn set_call(&mut self, engine: &mut Engine, ring: u32, fd: Option<OwnedFd>) -> Result<(), String> {
        fd.as_ref().map_or(Ok(()), is_event)?;
        let (_, vring) = self.vring(ring)?;
        if let Some(before) = std::mem::replace(&mut vring.call, fd) {
            // A collected call names it, by a number that would be another file's.
            engine.ring.submit();
            drop(before);
        }
        vring.ring.iter_mut().for_each(|ring| ring.owes_call = true);
        Ok(())
    }

    fn enable(&mut self, engine: &mut Engine, ring: u32, on: bool) -> Result<(), String> {
        let (number, vring) = self.vring(ring)?;
        vring.enabled = on;
        if let Some(ring) = &mut vring.ring {
            ring.has_more();
        }
        self.start(engine, number)
    }

    /// A ring takes nothing in any more; the front-end is answered when it has nothing under way (vhost.4).
    fn begin_to_stop(&mut self, engine: &mut Engine, ring: u32) -> Result<(), String> {
        let event = self.event(ring as usize);
        let (number, vring) = self.vring(ring)?;
        vring.kick.set(engine, event, None);
        self.stopping = Some(number);
        Ok(())
    }

    /// Starts a ring, if all that is needed was said.
    pub(super) fn start(&mut self, engine: &mut Engine, number: usize) -> Result<(), String> {
        let on = !config::speaks_of_features(self.features);
        let vring = &mut self.vrings[number];
        let (Some(addresses), true, true) = (vring.addresses, vring.kick.descriptor().is_some(), vring.enabled || on)
        else {
            return Ok(());
        };
        if vring.ring.is_some() {
            return Ok(());
        }
        vring.enabled = true;
        let why = |why: String| format!("ring {number}: {why}");
        let shared = self.shared.as_ref().ok_or_else(|| why("there is no memory yet (SET_MEM_TABLE)".into()))?;
        if vring.size == 0 {
            return Err(why("its size was not said (SET_VRING_NUM)".into()));
        }
        let stream = self.export.add_stream(engine);
        let tables = self.tables.as_ref().map(|tables| (tables, number));
        let event_index = config::has_event_index(self.features);
        match Ring::start(shared, addresses, (vring.size, vring.base), event_index, tables, stream) {
            Ok(ring) => {
                let left = ring.again.len();
                if left > 0 {
                    tracing::info!(
                        export = self.export.name,
                        ring = number,
                        "vhost-user: {left} unfinished requests of the previous server are repeated"
                    );
                }
                vring.ring = Some(ring);
                Ok(())
            }
            Err(error) => {
                engine.remove_stream(self.export.disk, stream);
                Err(why(error))
            }
        }
    }
}

/// Features that were chosen of those that were offered.
fn chosen(features: u64, offered: u64) -> Result<u64, String> {
    let unknown = features & !offered;
    if unknown == 0 { Ok(features) } else { Err(format!("{unknown:#x} was not offered")) }
}

/// The name of a request in the log.
fn name_of(request: &Request) -> String {
    let text = format!("{request:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

/// Whether a descriptor is an eventfd. The kernel would ask any other whether it is ready, which may take its time.
fn is_event(fd: &OwnedFd) -> Result<(), String> {
    use std::os::fd::AsRawFd as _;
    let found = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default();
    match found.to_str() {
        Some("anon_inode:[eventfd]") => Ok(()),
        _ => Err(format!("with {}, which is no eventfd", found.display())),
    }
}
