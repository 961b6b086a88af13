//! A device: a front-end (QEMU, for one guest) that is connected, and the rings of its guest.
//!
//! vhost.1  What a guest or its front-end does wrong ends its own device, with a line in the log, and nothing else.
//! vhost.2  A request is told its end when the device below has let go of its memory, and not before: that memory is the guest's.
//! vhost.3  A device that ends waits for its requests. The guest's memory is unmapped after that, and until then nobody else can
//!          connect to the export by this way: what the guest asks of the next server must not overtake what is under way.
//! vhost.4  A ring that is stopped has nothing under way when the front-end is told where it stopped.
//! vhost.5  Without a write cache, as the guest sees it, a write is told its end when it is durable.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, PoisonError};

use fairlift_core::{Bio, Errno, Extent, Flags, Instant, Op, Outcome, Sector, Stream, Token};
use virtio_bindings::bindings::virtio_blk as blk;
use vm_memory::Bytes as _;

use super::chain::{self, ID_LEN, Reader, What};
use super::config;
use super::inflight::Inflight;
use super::memory::Shared;
use super::proto::{self, Request};
use super::ring::{Addresses, Ring, Slot};
use super::service::{Door, Event, Name};
use super::socket::{Message, Nothing, Socket};
use crate::disk::engine::{Engine, News};
use crate::export::Export;
use crate::kernel::ticket::{Guest, Memory};

/// After so many calls of a guest, one is waited for.
const CALLS: u32 = 256;

/// A front-end that is connected.
pub(super) struct Device {
    export: Arc<Export>,
    /// By which it came.
    pub(super) door: Arc<Door>,
    number: usize,
    socket: Socket,
    /// The kernel looks whether the socket has something.
    listening: bool,
    features: u64,
    protocol_features: u64,
    write_back: bool,
    can: chain::Device,
    shared: Option<Shared>,
    tables: Option<Arc<Inflight>>,
    seats: Vec<Seat>,
    /// The ring that is being stopped: the front-end waits for the answer.
    stopping: Option<usize>,
    ending: bool,
    /// A ring could not go on for want of memory, or of room in the disk's queue.
    pub(super) held_back: bool,
    /// Already in the worker's list of devices to look at.
    pub(super) touched: bool,
}

/// What the front-end has said of a ring, and the ring while it runs.
#[derive(Default)]
struct Seat {
    size: u16,
    base: u16,
    addresses: Option<Addresses>,
    kick: Kick,
    call: Option<OwnedFd>,
    calls: u32,
    /// A call that is waited for.
    calling: bool,
    enabled: bool,
    ring: Option<Ring>,
}

/// By what a guest says that there is something in a ring.
#[derive(Default)]
struct Kick {
    /// To be polled.
    wanted: Option<OwnedFd>,
    /// The kernel polls it, until it says that it does so no more.
    polled: Option<OwnedFd>,
    /// The poll was taken back.
    cancelled: bool,
}

/// What a request is answered with.
enum Answer {
    /// Nothing of its own.
    Done,
    Payload(Vec<u8>),
    With(Vec<u8>, OwnedFd),
    /// The answer comes later.
    Later,
}

/// What devices of a worker use together.
pub(super) struct Tools {
    pub(super) reader: Reader,
    pub(super) request_max: u64,
}

impl Kick {
    fn set(&mut self, engine: &mut Engine, event: Event, fd: Option<OwnedFd>) {
        self.wanted = fd;
        if self.polled.is_some() && !std::mem::replace(&mut self.cancelled, true) {
            engine.ring.cancel(event.pack());
        }
    }

    fn is_set(&self) -> bool {
        self.wanted.is_some() || self.polled.is_some() && !self.cancelled
    }

    fn arm(&mut self, engine: &mut Engine, event: Event) {
        if self.polled.is_none()
            && let Some(fd) = self.wanted.take()
        {
            engine.ring.poll(fd.as_fd(), libc::POLLIN, true, event.pack());
            self.polled = Some(fd);
            self.cancelled = false;
        }
    }

    /// The kernel polls it no more.
    fn ended(&mut self) {
        let fd = self.polled.take();
        if !std::mem::take(&mut self.cancelled) {
            self.wanted = fd;
        }
    }
}

impl Device {
    pub(super) fn new(export: &Arc<Export>, door: Arc<Door>, number: usize, socket: OwnedFd, request_max: u64) -> Self {
        tracing::info!(export = export.name, "vhost-user: a front-end has connected");
        Self {
            export: Arc::clone(export),
            door,
            number,
            socket: Socket::new(socket),
            listening: false,
            features: 0,
            protocol_features: 0,
            write_back: true,
            can: config::device(export, request_max),
            shared: None,
            tables: None,
            seats: Vec::new(),
            stopping: None,
            ending: false,
            held_back: false,
            touched: false,
        }
    }

    pub(super) fn export(&self) -> &Export {
        &self.export
    }

    /// The export has changed: what the guest asks from now on is of it as it is now.
    pub(super) fn follow(&mut self, engine: &mut Engine, now: Instant, export: &Arc<Export>, request_max: u64) {
        let before = std::mem::replace(&mut self.export, Arc::clone(export));
        self.can = config::device(export, request_max);
        if (before.group, before.priority) != (export.group, export.priority) {
            let stream = Stream { group: export.group, priority: export.priority, context: engine.context };
            for ring in self.seats.iter().filter_map(|seat| seat.ring.as_ref()) {
                engine.change_stream(now, export.disk, ring.stream, stream);
            }
        }
    }

    fn event(&self, ring: usize) -> Event {
        Event::Kick(Name { device: self.number, ring })
    }

    /// It ends: nothing new is begun with (vhost.3).
    pub(super) fn end(&mut self, engine: &mut Engine) {
        if std::mem::replace(&mut self.ending, true) {
            return;
        }
        if self.listening {
            engine.ring.cancel(Event::Message(self.number).pack());
        }
        for ring in 0..self.seats.len() {
            let event = self.event(ring);
            self.seats[ring].kick.set(engine, event, None);
            if self.seats[ring].calling {
                engine.ring.cancel(Event::Called(Name { device: self.number, ring }).pack());
            }
        }
    }

    /// Ends it because of what the guest or the front-end did (vhost.1).
    fn broken(&mut self, engine: &mut Engine, why: &str) {
        if !self.ending {
            tracing::warn!(export = self.export.name, "vhost-user: the device is broken off: {why}");
            self.end(engine);
        }
    }

    /// Whether nothing is left to do for it.
    pub(super) fn is_over(&self) -> bool {
        let quiet = |seat: &Seat| {
            seat.kick.polled.is_none() && !seat.calling && seat.ring.as_ref().is_none_or(|ring| ring.in_flight == 0)
        };
        self.ending && !self.listening && self.seats.iter().all(quiet)
    }

    /// Gives back what it still has; it is over.
    pub(super) fn close(mut self, engine: &mut Engine) {
        assert!(self.is_over(), "a device is closed with something under way");
        for seat in 0..self.seats.len() {
            self.stop(engine, seat);
        }
        tracing::info!(export = self.export.name, "vhost-user: the front-end has left");
    }

    fn stop(&mut self, engine: &mut Engine, number: usize) {
        let seat = &mut self.seats[number];
        if let Some(ring) = seat.ring.take() {
            seat.base = ring.base();
            let stats = engine.remove_stream(self.export.disk, ring.stream);
            self.export.stats.lock().unwrap_or_else(PoisonError::into_inner).add(&stats);
        }
    }

    // ---- what the kernel says ----

    /// The socket has something.
    pub(super) fn readable(&mut self, engine: &mut Engine) {
        self.listening = false;
        self.receive(engine);
    }

    /// A ring was kicked; the kernel polls it no more if there is no `more`.
    pub(super) fn kicked(&mut self, engine: &mut Engine, ring: usize, result: i32, more: bool) {
        let seat = &mut self.seats[ring];
        if let Some(ring) = &mut seat.ring {
            ring.look = true;
        }
        if !more {
            let cancelled = seat.kick.cancelled;
            seat.kick.ended();
            if result < 0 && !cancelled {
                self.broken(engine, &format!("ring {ring}: its kick cannot be polled (error {})", -result));
                self.seats[ring].kick.wanted = None;
            }
        }
    }

    /// The guest has been called.
    pub(super) fn called(&mut self, ring: usize) {
        self.seats[ring].calling = false;
    }

    // ---- messages ----

    fn receive(&mut self, engine: &mut Engine) {
        while !self.ending && self.stopping.is_none() {
            match self.socket.receive() {
                Ok(message) => self.take_message(engine, message),
                Err(Nothing::NotYet) => return,
                Err(Nothing::Closed) => return self.end(engine),
                Err(Nothing::Failed(error)) => return self.broken(engine, &format!("its socket failed: {error}")),
                Err(Nothing::Wrong(wrong)) => return self.broken(engine, &wrong.to_string()),
            }
        }
    }

    fn take_message(&mut self, engine: &mut Engine, message: Message) {
        let Message { header, payload, descriptors } = message;
        let request = match Request::read(&header, &payload, descriptors.len()) {
            Ok(request) => request,
            Err(wrong) => return self.broken(engine, &wrong.to_string()),
        };
        tracing::debug!(export = self.export.name, ?request, "vhost-user");
        let acknowledges = header.need_reply
            && self.protocol_features & vhost::vhost_user::VhostUserProtocolFeatures::REPLY_ACK.bits() != 0;
        let sent = match self.answer(engine, &request, descriptors) {
            Ok(Answer::Done) if acknowledges => self.socket.send(&proto::reply(header.code, &proto::number(0)), None),
            Ok(Answer::Done | Answer::Later) => Ok(()),
            Ok(Answer::Payload(payload)) => self.socket.send(&proto::reply(header.code, &payload), None),
            Ok(Answer::With(payload, fd)) => self.socket.send(&proto::reply(header.code, &payload), Some(fd.as_fd())),
            Err(why) => {
                if acknowledges {
                    // It may not be there to hear it.
                    let _ = self.socket.send(&proto::reply(header.code, &proto::number(1)), None);
                }
                return self.broken(engine, &format!("{}: {why}", name_of(&request)));
            }
        };
        if let Err(error) = sent {
            self.broken(engine, &format!("an answer cannot be sent: {error}"));
        }
    }

    fn seat(&mut self, ring: u32) -> Result<(usize, &mut Seat), String> {
        let number = ring as usize;
        if number >= config::RINGS_MAX {
            return Err(format!("there is no ring {ring}: a device has at most {}", config::RINGS_MAX));
        }
        if number >= self.seats.len() {
            self.seats.resize_with(number + 1, Seat::default);
        }
        Ok((number, &mut self.seats[number]))
    }

    /// A ring that does not run.
    fn still(&mut self, ring: u32) -> Result<(usize, &mut Seat), String> {
        let (number, seat) = self.seat(ring)?;
        if seat.ring.is_some() {
            return Err(format!("ring {ring} runs: it must be stopped first (GET_VRING_BASE)"));
        }
        Ok((number, seat))
    }

    fn answer(
        &mut self,
        engine: &mut Engine,
        request: &Request,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<Answer, String> {
        let number = |value| Ok(Answer::Payload(proto::number(value)));
        match *request {
            Request::GetFeatures => return number(config::features(&self.export)),
            Request::SetFeatures(features) => {
                let unknown = features & !config::features(&self.export);
                if unknown != 0 {
                    return Err(format!("{unknown:#x} was not offered"));
                }
                self.features = features;
            }
            Request::SetOwner => {}
            Request::ResetOwner => return Err("is not served: stop the rings by GET_VRING_BASE".into()),
            Request::SetMemTable(ref regions) => {
                let shared = Shared::map(regions.clone(), descriptors)?;
                for (number, seat) in self.seats.iter_mut().enumerate() {
                    if let Some(ring) = &mut seat.ring {
                        ring.move_to(&shared).map_err(|why| format!("ring {number}: {why}"))?;
                    }
                }
                self.shared = Some(shared);
            }
            Request::SetVringNum { ring, size } => {
                let (_, seat) = self.still(ring)?;
                if !size.is_power_of_two() || size > config::RING_SIZE_MAX.into() {
                    let most = config::RING_SIZE_MAX;
                    return Err(format!("ring {ring} of {size}: it must be a power of two, and at most {most}"));
                }
                seat.size = size as u16;
            }
            Request::SetVringAddr { ring, descriptors, available, used } => {
                let (number, seat) = self.still(ring)?;
                seat.addresses = Some([descriptors, available, used]);
                self.start(engine, number)?;
            }
            Request::SetVringBase { ring, base } => {
                let base = u16::try_from(base).map_err(|_| format!("ring {ring} at {base:#x}, which is no index"))?;
                self.still(ring)?.1.base = base;
            }
            Request::GetVringBase { ring } => {
                let device = self.number;
                let (number, seat) = self.seat(ring)?;
                seat.kick.set(engine, Event::Kick(Name { device, ring: number }), None);
                self.stopping = Some(number);
                return Ok(Answer::Later);
            }
            Request::SetVringKick { ring, with_descriptor } => {
                let device = self.number;
                let (number, seat) = self.seat(ring)?;
                if !with_descriptor {
                    return Err(format!("ring {ring} without a descriptor: rings are not polled here"));
                }
                let fd = descriptors.pop().expect("as many as belong to it");
                is_event(&fd)?;
                seat.kick.set(engine, Event::Kick(Name { device, ring: number }), Some(fd));
                self.start(engine, number)?;
            }
            Request::SetVringCall { ring, .. } => {
                let (_, seat) = self.seat(ring)?;
                let fd = descriptors.pop();
                fd.as_ref().map_or(Ok(()), is_event)?;
                seat.call = fd;
            }
            Request::SetVringErr { ring } => self.seat(ring).map(|_| ())?,
            Request::GetProtocolFeatures => return number(config::protocol_features()),
            Request::SetProtocolFeatures(features) => {
                let unknown = features & !config::protocol_features();
                if unknown != 0 {
                    return Err(format!("{unknown:#x} was not offered"));
                }
                self.protocol_features = features;
            }
            Request::GetQueueNum => return number(config::RINGS_MAX as u64),
            Request::SetVringEnable { ring, on } => {
                let (number, seat) = self.seat(ring)?;
                seat.enabled = on;
                if let Some(ring) = &mut seat.ring {
                    ring.look = true;
                }
                self.start(engine, number)?;
            }
            Request::GetConfig { offset, size, flags } => {
                let space = config::space(&self.export, self.write_back);
                return Ok(Answer::Payload(proto::config(offset, size, flags, &space)));
            }
            Request::SetConfig { offset, ref data } => match (offset as usize, data.as_slice()) {
                (config::WRITE_BACK, [on]) => self.write_back = *on != 0,
                _ => return Err(format!("{} bytes at {offset}: only the write cache can be set", data.len())),
            },
            Request::GetInflight { queues, size } => {
                check_tables(queues, size)?;
                let tables = Inflight::new(queues, size).map_err(|error| error.to_string())?;
                let (fd, payload) = tables.shared().map_err(|error| error.to_string())?;
                self.tables = Some(Arc::new(tables));
                return Ok(Answer::With(payload, fd));
            }
            Request::SetInflight { offset, queues, size, .. } => {
                check_tables(queues, size)?;
                let fd = descriptors.pop().expect("as many as belong to it");
                self.tables = Some(Arc::new(Inflight::open(fd, offset, queues, size)?));
            }
        }
        Ok(Answer::Done)
    }

    /// Starts a ring, if all that is needed was said.
    fn start(&mut self, engine: &mut Engine, number: usize) -> Result<(), String> {
        let on = !config::speaks_of_features(self.features);
        let seat = &mut self.seats[number];
        let (Some(addresses), true, true) = (seat.addresses, seat.kick.is_set(), seat.enabled || on) else {
            return Ok(());
        };
        if seat.ring.is_some() {
            return Ok(());
        }
        seat.enabled = true;
        let why = |why: String| format!("ring {number}: {why}");
        let shared = self.shared.as_ref().ok_or_else(|| why("there is no memory yet (SET_MEM_TABLE)".into()))?;
        if seat.size == 0 {
            return Err(why("its size was not said (SET_VRING_NUM)".into()));
        }
        let Export { disk, group, priority, .. } = *self.export;
        let stream = engine.add_stream(disk, Stream { group, priority, context: engine.context });
        let tables = self.tables.as_ref().map(|tables| (tables, number));
        let event_index = config::has_event_index(self.features);
        match Ring::start(shared, addresses, (seat.size, seat.base), event_index, tables, stream) {
            Ok(ring) => {
                let left = ring.left_over();
                if left > 0 {
                    tracing::info!(
                        export = self.export.name,
                        ring = number,
                        "vhost-user: {left} requests that a server before had not ended are done again"
                    );
                }
                seat.ring = Some(ring);
                Ok(())
            }
            Err(error) => {
                engine.remove_stream(disk, stream);
                Err(why(error))
            }
        }
    }

    // ---- requests ----

    /// A turn has begun: rings with something under way are looked at without a kick.
    pub(super) fn look(&mut self) {
        for ring in self.seats.iter_mut().filter_map(|seat| seat.ring.as_mut()) {
            ring.look |= ring.in_flight > 0;
        }
    }

    /// Begins with what the guest asks; whether there was anything.
    pub(super) fn go_on(&mut self, engine: &mut Engine, tools: &mut Tools) -> bool {
        self.held_back = false;
        let mut some = false;
        for number in 0..self.seats.len() {
            if self.ending {
                break;
            }
            let seat = &self.seats[number];
            if seat.ring.is_none() || !seat.enabled || self.stopping == Some(number) {
                continue;
            }
            match self.go_on_with(engine, tools, number) {
                Ok(went_on) => some |= went_on,
                Err(why) => self.broken(engine, &format!("ring {number}: {why}")),
            }
        }
        some
    }

    fn go_on_with(&mut self, engine: &mut Engine, tools: &mut Tools, number: usize) -> Result<bool, String> {
        let through = config::writes_through(self.features, self.write_back);
        let owner = Name { device: self.number, ring: number };
        let Self { export, seats, can, held_back, .. } = self;
        let ring = seats[number].ring.as_mut().expect("called for a ring that runs");
        let mut some = false;
        while let Some(head) = ring.next()? {
            if !begin(engine, tools, export, can, ring, (owner, head), through)? {
                *held_back = true;
                break;
            }
            some = true;
        }
        Ok(some)
    }

    /// There is news of a request.
    pub(super) fn news(&mut self, engine: &mut Engine, ticket: usize, (number, head): (usize, u16), news: News) {
        let ring = self.seats[number].ring.as_mut().expect("a ring with something under way is not stopped");
        let outcome = match news {
            News::Ended(outcome) => outcome,
            News::Released => Outcome::Failed(Errno::EIO),
            News::TimedOut => {
                // vhost.2
                tracing::warn!(
                    export = self.export.name,
                    "vhost-user: the device did not answer in time (io_timeout); the guest is told once it lets go"
                );
                return;
            }
        };
        if let Slot { op: Op::Read, bounce: Some(guest), .. } = ring.slot(head)
            && outcome == Outcome::Done
        {
            let mut bytes = engine.memory(ticket).bytes();
            for slice in guest.slices() {
                let (part, rest) = bytes.split_at(slice.len());
                slice.copy_from(part);
                bytes = rest;
            }
        }
        engine.release(ticket);
        let Slot { op, status, written, .. } = ring.end(head);
        let (code, written) = match outcome {
            Outcome::Done => (blk::VIRTIO_BLK_S_OK, written),
            Outcome::Failed(errno) => {
                tracing::debug!(export = self.export.name, op = op.name(), errno = errno.0, "vhost-user: failed");
                (if errno == Errno::ENOTSUP { blk::VIRTIO_BLK_S_UNSUPP } else { blk::VIRTIO_BLK_S_IOERR }, 1)
            }
        };
        if let Err(why) = ring.tell(head, status, code as u8, written) {
            self.broken(engine, &format!("ring {number}: {why}"));
        }
    }

    // ---- to the kernel ----

    /// Tells the guest what has ended, and the front-end that a ring has stopped; and listens.
    pub(super) fn arm(&mut self, engine: &mut Engine) {
        for number in 0..self.seats.len() {
            if let Err(why) = self.call(engine, number) {
                self.broken(engine, &format!("ring {number}: {why}"));
            }
        }
        // The next message may stop another ring, and nothing else would bring us here again.
        while let Some(number) = self.stopping
            && self.seats[number].ring.as_ref().is_none_or(|ring| ring.in_flight == 0)
        {
            self.stopping = None;
            self.stop(engine, number); // vhost.4
            if !self.ending {
                let payload = proto::base(number as u32, self.seats[number].base);
                let code = vhost::vhost_user::message::FrontendReq::GET_VRING_BASE.into();
                if let Err(error) = self.socket.send(&proto::reply(code, &payload), None) {
                    self.broken(engine, &format!("an answer cannot be sent: {error}"));
                }
                self.receive(engine);
            }
        }
        for number in 0..self.seats.len() {
            let event = self.event(number);
            self.seats[number].kick.arm(engine, event);
        }
        if !self.ending && !self.listening && self.stopping.is_none() {
            let events = libc::POLLIN | libc::POLLRDHUP;
            engine.ring.poll(self.socket.as_fd(), events, false, Event::Message(self.number).pack());
            self.listening = true;
        }
    }

    fn call(&mut self, engine: &mut Engine, number: usize) -> Result<(), String> {
        let name = Name { device: self.number, ring: number };
        let Seat { ring: Some(ring), call: Some(call), calls, calling, .. } = &mut self.seats[number] else {
            return Ok(());
        };
        if !ring.calls()? {
            return Ok(());
        }
        *calls += 1;
        // The kernel keeps each call until it is taken. From a monitor that takes none, it would keep any number.
        let waited_for = calls.is_multiple_of(CALLS) && !self.ending;
        if waited_for && std::mem::replace(calling, true) {
            return Err(format!("the last {CALLS} calls were not taken"));
        }
        engine.ring.signal(call.as_fd(), waited_for.then(|| Event::Called(name).pack()));
        Ok(())
    }
}

/// Begins with a request; `false` if that must wait.
fn begin(
    engine: &mut Engine,
    tools: &mut Tools,
    export: &Export,
    can: &chain::Device,
    ring: &mut Ring,
    (owner, head): (Name, u16),
    through: bool,
) -> Result<bool, String> {
    if engine.is_full(export.disk) {
        return Ok(false);
    }
    let (table, size) = ring.descriptors();
    let asked = tools.reader.read(can, ring.memory(), table, size, head);
    let asked = asked.map_err(|broken| format!("request {head} is no chain: {broken}"))?;
    let whole = |at: u64, len: u64| Extent::new(Sector(export.start.0 + at / Sector::SIZE), len / Sector::SIZE);
    let mut flags = Flags::SYNC;
    let (op, extent, ranges) = match asked.what {
        What::Read(at) => (Op::Read, whole(at, asked.len), tools.reader.writable()),
        What::Write(at) => (Op::Write, whole(at, asked.len), tools.reader.readable()),
        // No sectors, but a place: it says which of the disk's backings is meant.
        What::Flush => (Op::Flush, Extent::new(export.start, 0), &[][..]),
        What::Discard(at, len) => (Op::Discard, whole(at, len), &[][..]),
        What::WriteZeroes(at, len, may_unmap) => {
            if !may_unmap {
                flags |= Flags::NO_UNMAP;
            }
            (Op::WriteZeroes, whole(at, len), &[][..])
        }
        What::Id => {
            ring.took(head)?;
            let mut left = &config::id(export)[..ID_LEN.min(asked.len as usize)];
            let written = left.len() as u32 + 1;
            for (at, len) in tools.reader.writable() {
                let (part, rest) = left.split_at(left.len().min(*len as usize));
                let told = ring.memory().write_slice(part, *at);
                told.map_err(|_| format!("request {head}: its data, at {:#x}, is not in the guest's memory", at.0))?;
                left = rest;
            }
            return ring.tell(head, asked.status, blk::VIRTIO_BLK_S_OK as u8, written).map(|()| true);
        }
        What::Refused(why) => {
            tracing::debug!(export = export.name, ?why, "vhost-user: refused");
            ring.took(head)?;
            return ring.tell(head, asked.status, why.status(), 1).map(|()| true);
        }
    };
    if through && matches!(op, Op::Write | Op::WriteZeroes) {
        flags |= Flags::FUA; // vhost.5
    }
    let (memory, bounce) = if ranges.is_empty() {
        (Memory::None, None)
    } else {
        let guest = Guest::new(ring.memory(), ranges);
        let guest = guest.ok_or_else(|| format!("request {head}: its data is not in the guest's memory"))?;
        // Where the page cache is passed by, the kernel wants memory that is as aligned as the disk's blocks.
        if export.device.descriptor().is_none() || !export.device.is_direct() || guest.is_aligned(can.block as usize) {
            (Memory::Guest(guest), None)
        } else {
            let Some(mut buffer) = engine.pool.get(asked.len as usize) else { return Ok(false) };
            if op == Op::Write {
                let mut into = buffer.bytes_mut();
                for slice in guest.slices() {
                    let (part, rest) = into.split_at_mut(slice.len());
                    slice.copy_to(part);
                    into = rest;
                }
            }
            (Memory::Pool(buffer), Some(guest))
        }
    };
    if let Err(why) = ring.took(head) {
        let ticket = engine.admit(0, memory);
        engine.release(ticket);
        return Err(why);
    }
    let written = if op == Op::Read { asked.len as u32 + 1 } else { 1 };
    ring.begin(head, Slot { op, status: asked.status, written, bounce });
    let ticket = engine.admit(owner.ticket(head), memory);
    engine.submit(export.disk, Bio { op, flags, extent, stream: ring.stream, token: Token(ticket as u64) });
    Ok(true)
}

/// What a request is called in the log.
fn name_of(request: &Request) -> String {
    let text = format!("{request:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

fn check_tables(queues: u16, size: u16) -> Result<(), String> {
    let (queues_max, size_max) = (config::RINGS_MAX, config::RING_SIZE_MAX);
    if usize::from(queues) > queues_max || size > size_max {
        return Err(format!("tables for {queues} rings of {size}: at most {queues_max} of {size_max} are kept"));
    }
    Ok(())
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
