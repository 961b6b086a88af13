//! A device: a front-end (QEMU, for one guest) that is connected, and the rings of its guest.
//!
//! vhost.1  A fault of a guest or its front-end ends its own device, with a line in the log, and nothing else.
//! vhost.2  A request is told its end when the device below has let go of its memory, and not before: that memory is the guest's.
//! vhost.3  A device that ends waits for its requests. The guest's memory is unmapped after that, and until then nobody else can
//!          connect to the export by this way: what the guest asks of the next server must not overtake what is under way.
//! vhost.4  A ring that is stopped has nothing under way when the front-end is told where it stopped.
//! vhost.5  Without a write cache, as the guest sees it, a write is told its end when it is durable.

mod hold;
mod messages;
mod requests;
mod vring;

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::SystemTime;

use fairlift_core::{Op, Outcome};
use virtio_bindings::bindings::virtio_blk as blk;

use super::chain::Reader;
use super::config;
use super::inflight::Inflight;
use super::memory::{HOW_TO_SHARE, Shared};
use super::proto;
use super::ring::{Ring, Slot};
use super::service::{GuestListener, Name, UserData};
use super::socket::Socket;
use crate::access::{Access, Entry, Peer};
use crate::disk::engine::{Engine, News};
use crate::export::hold::Halt;
use crate::export::offer::{self, Offer};
use crate::export::{Export, listen, narrowed};
use requests::Begin;
use vring::Vring;

/// Messages of a front-end that are taken in at once. Chosen: QEMU sets up ten rings with as many; one that sends without end keeps a worker for
/// no longer than that.
const MESSAGES: u32 = 64;

/// After this many calls of a guest, one is waited for.
const CALLS: u32 = 256;

/// Why a device ends whose guest has lost its memory.
const CUT: &str = "the file of its guest's memory was cut short";

pub(super) struct FrontEnd {
    pub(super) export: Arc<Export>,
    pub(super) peer: Peer,
    /// By what it was let in.
    entry: Entry,
    /// By which it came.
    pub(super) listener: Arc<GuestListener>,
    number: usize,
    socket: Socket,
    /// By which the front-end hears what it did not ask for.
    requests: Option<Socket>,
    /// The kernel looks whether the socket has something.
    listening: bool,
    features: u64,
    protocol_features: u64,
    write_back: bool,
    offer: Offer,
    shared: Option<Shared>,
    tables: Option<Arc<Inflight>>,
    vrings: Vec<Vring>,
    /// The ring that is being stopped: the front-end waits for the answer.
    stopping: Option<usize>,
    ending: bool,
    /// Another server is to go on with it.
    halt: Halt,
    /// A ring could not go on for want of memory, or of room in the disk's queue.
    pub(super) held_back: bool,
    /// Already in the worker's list of devices to look at.
    pub(super) touched: bool,
}

/// A front-end as another server has described it, at the export as it was then.
pub(super) struct Resumed {
    pub(super) export: Arc<Export>,
    pub(super) since: SystemTime,
    pub(super) device: FrontEnd,
}

impl FrontEnd {
    /// A device at a socket, with nothing known but its peer.
    pub(super) fn new(
        export: &Arc<Export>,
        (peer, entry): (Peer, Entry),
        listener: Arc<GuestListener>,
        number: usize,
        socket: Socket,
        request_max: u64,
    ) -> Self {
        let export = narrowed(export, entry.right);
        Self {
            offer: Offer::of(&export, request_max),
            export,
            peer,
            entry,
            listener,
            number,
            socket,
            requests: None,
            listening: false,
            features: 0,
            protocol_features: 0,
            write_back: true,
            shared: None,
            tables: None,
            vrings: Vec::new(),
            stopping: None,
            ending: false,
            halt: Halt::No,
            held_back: false,
            touched: false,
        }
    }

    /// The export has changed, or the rights of clients (access.6): later requests of the guest are of it as it is now.
    pub(super) fn follow(&mut self, engine: &mut Engine, access: &Access, export: &Arc<Export>) {
        if self.ending {
            return;
        }
        listen::learn_cgroup(self.socket.as_fd(), access, &mut self.peer);
        let Some(entry) = access.of(&self.peer).keep(&export.name, &export.path, &self.entry) else {
            tracing::info!(client = self.peer.shown, export = export.name, "closed: no [client] allows it any more");
            return self.end(engine);
        };
        let export = narrowed(export, entry.right);
        self.entry = entry;
        let before = std::mem::replace(&mut self.export, Arc::clone(&export));
        self.offer = Offer::of(&export, self.offer.request_max);
        if before.size != export.size {
            self.tell_of_config();
        }
        for ring in self.vrings.iter().filter_map(|vring| vring.ring.as_ref()) {
            export.change_stream(engine, &before, ring.stream);
        }
    }

    fn event(&self, ring: usize) -> UserData {
        UserData::Kick(Name { device: self.number, ring })
    }

    /// It ends: nothing new is begun with (vhost.3).
    pub(super) fn end(&mut self, engine: &mut Engine) {
        if std::mem::replace(&mut self.ending, true) {
            return;
        }
        if self.listening {
            engine.ring.cancel(UserData::Message(self.number).pack());
        }
        for ring in 0..self.vrings.len() {
            let event = self.event(ring);
            self.vrings[ring].kick.set(engine, event, None);
            if self.vrings[ring].calling {
                engine.ring.cancel(UserData::Called(Name { device: self.number, ring }).pack());
            }
        }
    }

    /// Ends it because of a fault of the guest or the front-end (vhost.1).
    fn broken(&mut self, engine: &mut Engine, why: &str) {
        if !self.ending {
            // The content there makes no sense.
            let why = if self.memory_is_gone() { CUT } else { why };
            tracing::warn!(export = self.export.name, "vhost-user: the device is stopped: {why}");
            self.end(engine);
        }
    }

    /// Whether memory that the guest lives in was taken away.
    fn memory_is_gone(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.guest.is_gone())
    }

    pub(super) fn is_over(&self) -> bool {
        let quiet = |vring: &Vring| {
            vring.kick.polled.is_none() && !vring.calling && vring.ring.as_ref().is_none_or(|ring| ring.in_flight == 0)
        };
        self.ending && !self.listening && self.vrings.iter().all(quiet)
    }

    /// Gives back what it still has; it is over.
    pub(super) fn close(mut self, engine: &mut Engine) {
        assert!(self.is_over(), "a device is closed with something under way");
        for vring in 0..self.vrings.len() {
            self.stop(engine, vring);
        }
        if self.features != 0 && self.shared.is_none() {
            // QEMU fails by itself where there is nothing that it could share, and says no more than "Invalid argument".
            tracing::warn!(
                export = self.export.name,
                "vhost-user: the front-end has left, and has not shared its guest's memory ({HOW_TO_SHARE})"
            );
        } else {
            tracing::info!(export = self.export.name, "vhost-user: the front-end has left");
        }
    }

    fn stop(&mut self, engine: &mut Engine, number: usize) {
        let vring = &mut self.vrings[number];
        if let Some(ring) = vring.ring.take() {
            vring.base = ring.base();
            self.export.remove_stream(engine, ring.stream);
        }
    }

    // ---- what the kernel says ----

    pub(super) fn readable(&mut self, engine: &mut Engine) {
        self.listening = false;
        self.receive(engine, &mut { MESSAGES });
    }

    /// A ring was kicked; the kernel polls it no more if there is no `more`.
    pub(super) fn kicked(&mut self, engine: &mut Engine, ring: usize, result: i32, more: bool) {
        let vring = &mut self.vrings[ring];
        let by_guest = vring.kick.hear(result);
        if let Some(ring) = &mut vring.ring {
            ring.look |= by_guest || ring.has_more();
        }
        if !more {
            let cancelled = vring.kick.cancelled;
            vring.kick.ended();
            if result < 0 && !cancelled {
                self.broken(engine, &format!("ring {ring}: its kick cannot be polled (error {})", -result));
                self.vrings[ring].kick.wanted = None;
            }
        }
    }

    pub(super) fn called(&mut self, ring: usize) {
        self.vrings[ring].calling = false;
    }

    // ---- requests ----

    /// The rings that are served: not those that stop.
    fn rings(&mut self) -> impl Iterator<Item = &mut Ring> {
        let stopping = self.stopping;
        let served = move |(number, vring): &(usize, &mut Vring)| vring.enabled && stopping != Some(*number);
        self.vrings.iter_mut().enumerate().filter(served).filter_map(|(_, vring)| vring.ring.as_mut())
    }

    /// Whether the guest has put something into a ring; `sleeps`: it must kick for later ones (ring.2).
    pub(super) fn watch(&mut self, sleeps: bool) -> bool {
        if self.ending || self.halt != Halt::No {
            return false;
        }
        let mut more = false;
        for ring in self.rings() {
            more |= if sleeps { ring.listen() } else { ring.has_more() };
        }
        more
    }

    /// Whether the guest kicks for all that it puts into its rings.
    pub(super) fn is_listening(&mut self) -> bool {
        self.ending || self.halt != Halt::No || self.rings().all(|ring| ring.listening)
    }

    /// Begins with requests of the guest; whether there was anything.
    pub(super) fn go_on(&mut self, engine: &mut Engine, reader: &mut Reader) -> bool {
        self.held_back = false;
        let mut some = false;
        if self.halt != Halt::No {
            return false;
        }
        for number in 0..self.vrings.len() {
            if self.ending {
                break;
            }
            let vring = &self.vrings[number];
            if vring.ring.is_none() || !vring.enabled || self.stopping == Some(number) {
                continue;
            }
            match self.go_on_with(engine, reader, number) {
                Ok(went_on) => some |= went_on,
                Err(why) => self.broken(engine, &format!("ring {number}: {why}")),
            }
        }
        some
    }

    fn go_on_with(&mut self, engine: &mut Engine, reader: &mut Reader, number: usize) -> Result<bool, String> {
        let through = config::writes_through(self.features, self.write_back);
        let owner = Name { device: self.number, ring: number };
        let ring = self.vrings[number].ring.as_mut().expect("called for a ring that runs");
        let mut begin = Begin { export: &self.export, offer: &self.offer, ring, through };
        let mut some = false;
        while let Some(head) = begin.ring.next()? {
            if !begin.request(engine, reader, owner, head)? {
                self.held_back = true;
                break;
            }
            some = true;
        }
        Ok(some)
    }

    pub(super) fn news(&mut self, engine: &mut Engine, ticket: usize, (number, head): (usize, u16), news: News) {
        let ring = self.vrings[number].ring.as_mut().expect("a ring with something under way is not stopped");
        let Some(outcome) = offer::ended(news, &self.export, ("vhost-user", "guest")) else { return }; // vhost.2
        let Slot { op, status, written, bounce } = ring.end(head);
        if let (Op::Read, Some(guest), Outcome::Done) = (op, bounce, outcome) {
            let mut bytes = engine.memory(ticket).bytes();
            for slice in guest.slices() {
                let (part, rest) = bytes.split_at(slice.len());
                slice.copy_from(part);
                bytes = rest;
            }
        }
        engine.release(ticket);
        let (code, written) = match outcome {
            Outcome::Done => (blk::VIRTIO_BLK_S_OK as u8, written),
            Outcome::Failed(errno) => {
                tracing::debug!(export = self.export.name, op = op.name(), errno = errno.0, "vhost-user: failed");
                (config::status(errno), 1)
            }
        };
        if let Err(why) = ring.tell(head, status, code, written) {
            self.broken(engine, &format!("ring {number}: {why}"));
        }
    }

    // ---- to the kernel ----

    /// Tells the guest what has ended, and the front-end that a ring has stopped; and listens.
    pub(super) fn arm(&mut self, engine: &mut Engine) {
        if self.halt == Halt::StandsStill {
            return; // hold.2
        }
        if self.memory_is_gone() {
            self.broken(engine, CUT);
        }
        for number in 0..self.vrings.len() {
            if let Err(why) = self.call(engine, number) {
                self.broken(engine, &format!("ring {number}: {why}"));
            }
        }
        // The next message may stop another ring, and nothing else would bring us here again.
        let mut messages = MESSAGES;
        while let Some(number) = self.stopping
            && self.vrings[number].ring.as_ref().is_none_or(|ring| ring.in_flight == 0)
        {
            self.stopping = None;
            self.stop(engine, number); // vhost.4
            if !self.ending {
                let payload = proto::base(number as u32, self.vrings[number].base);
                let code = vhost::vhost_user::message::FrontendReq::GET_VRING_BASE.into();
                self.send(engine, code, &payload, None);
                self.receive(engine, &mut messages);
            }
        }
        for number in 0..self.vrings.len() {
            let event = self.event(number);
            self.vrings[number].kick.arm(engine, event);
        }
        if !self.ending && !self.listening && self.stopping.is_none() && self.halt == Halt::No {
            let events = libc::POLLIN | libc::POLLRDHUP;
            engine.ring.poll(self.socket.as_fd(), events, false, UserData::Message(self.number).pack());
            self.listening = true;
        }
    }

    fn call(&mut self, engine: &mut Engine, number: usize) -> Result<(), String> {
        let name = Name { device: self.number, ring: number };
        let Vring { ring: Some(ring), call, calls, calling, .. } = &mut self.vrings[number] else { return Ok(()) };
        // Asked also of a guest that is called by nothing, because it looks by itself: the turn's ends are counted anew (ring.4).
        let (true, Some(call)) = (ring.calls()?, call) else { return Ok(()) };
        *calls += 1;
        // The kernel keeps each call until it is taken. From a monitor that takes none, it would keep any number.
        let waited_for = calls.is_multiple_of(CALLS) && !self.ending;
        if waited_for && std::mem::replace(calling, true) {
            return Err(format!("the last {CALLS} calls were not taken"));
        }
        engine.ring.signal(call.as_fd(), waited_for.then(|| UserData::Called(name).pack()));
        Ok(())
    }
}
