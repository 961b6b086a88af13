//! The state that devices share: the listeners at which front-ends connect, and the kernel's work for them.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fairlift_core::record::Record;

use super::device::{FrontEnd, Resumed};
use super::front::VhostUser;
use super::handed::Named;
use super::syntax::GuestSocket;
use crate::Error;
use crate::config::{self, Listener, Tls};
use crate::disk::engine::Engine;
use crate::export::Export;
use crate::export::front::{Coming, OF_EVENT, OF_TICKET, Opening, Protocol};
use crate::export::hold::{HeldClient, Report};
use crate::export::listen::{self, Listening};
use crate::export::present::Newcomers;
use crate::export::service::Service;
use crate::kernel::ring::{Choice, Source};
use crate::sync::{Mutex, MutexGuard, lock};

/// Where the front-end of one export connects. The socket is there for as long as anybody has this.
pub(crate) struct GuestListener {
    pub(super) socket: Listening,
    /// The export, by its number.
    pub(super) export: u64,
    pub(super) name: String,
    /// A front-end has it, or had it and has requests under way.
    pub(super) taken: AtomicBool,
    /// Whether the log has said that others came meanwhile.
    pub(super) logged: AtomicBool,
}

impl GuestListener {
    /// The listener of an export that listens already.
    fn new(listening: Listening, export: &Export) -> Self {
        let (taken, logged) = Default::default();
        Self { socket: listening, export: export.id, name: export.name.clone(), taken, logged }
    }

    fn listen(at: &GuestSocket) -> Result<Listening, Error> {
        let listening = Listening::open(&place(at))?;
        never_waits(&listening)
            .map_err(|error| Error::Listen { address: listening.name.clone(), why: error.to_string() })?;
        Ok(listening)
    }
}

fn place(at: &GuestSocket) -> Listener {
    Listener { socket: at.socket, ..Listener::new(at.address(), Tls::Off) }
}

/// A front-end on its way to its worker.
pub(super) enum Newcomer {
    /// It has connected, and the listener is its own.
    New(Arc<GuestListener>, OwnedFd),
    /// Another server has handed it over.
    From(Box<Resumed>),
}

/// The listeners of a server, and connections that come in by them: the same for all workers.
pub(crate) struct GuestListeners {
    pub(super) service: Arc<Service>,
    /// By the numbers of their exports.
    pub(super) list: Mutex<BTreeMap<u64, Arc<GuestListener>>>,
    /// Listeners of exports that were removed. A place is free when nobody has its listener.
    leaving: Mutex<Vec<Arc<GuestListener>>>,
    /// By the numbers of their exports, listeners that a server is yet to hand over.
    coming: Mutex<BTreeMap<u64, Listener>>,
    pub(super) newcomers: Newcomers<Newcomer>,
}

impl GuestListeners {
    /// The server that had the listeners has ended: their files are ours.
    pub(super) fn are_ours(&self) {
        lock(&self.list).values().for_each(|listener| listener.socket.owns_file());
        for listener in std::mem::take(&mut *lock(&self.coming)).into_values() {
            tracing::error!("the previous server has not handed {} over: restart this one", listener.address);
        }
    }

    /// The state of all listeners, for a server that takes over.
    pub(super) fn held(&self) -> Report {
        let held = |listener: &Arc<GuestListener>| {
            let (mut says, mut named) = (Record::default(), Named::default());
            says.put("export", &listener.name);
            // The name of a listener that is handed over, in every version so far.
            named.add("door", listener.socket.fd.as_fd())?;
            Ok(named.client(says, Vec::new()))
        };
        lock(&self.list).values().map(held).collect()
    }

    /// A listener that another server hands over.
    fn take_over_listener(&self, export: &Export, fd: OwnedFd) -> Result<(), String> {
        let Some(listener) = lock(&self.coming).remove(&export.id) else {
            return Err(format!("export {:?} would have no socket for virtual machines", export.name));
        };
        let listener = GuestListener::new(Listening::adopt(&listener, fd), export);
        never_waits(&listener.socket).map_err(|error| error.to_string())?;
        lock(&self.list).insert(export.id, Arc::new(listener));
        Ok(())
    }

    /// Those that somebody has still, though their exports were removed.
    fn leaving(&self) -> MutexGuard<'_, Vec<Arc<GuestListener>>> {
        let mut leaving = lock(&self.leaving);
        leaving.retain(|listener| Arc::strong_count(listener) > 1);
        leaving
    }
}

impl Protocol for GuestListeners {
    const NUMBER: u64 = NUMBER;

    type Clients = VhostUser;

    fn new(service: &Arc<Service>) -> Self {
        let newcomers = Newcomers::new(service.notifiers.workers());
        let (list, leaving, coming) = Default::default();
        Self { service: Arc::clone(service), list, leaving, coming, newcomers }
    }

    fn clients(self: &Arc<Self>, engine: &mut Engine) -> io::Result<VhostUser> {
        Ok(VhostUser::new(engine, Arc::clone(self)))
    }

    fn check(exports: &[config::Export], _engine: &Choice) -> Vec<Error> {
        let sockets = exports.iter().filter_map(|export| export.ways.get::<GuestSocket>());
        sockets.filter_map(|socket| listen::check(&place(socket)).err()).collect()
    }

    fn is_in_the_way(&self, settings: &config::Export) -> Option<String> {
        let address = settings.ways.get::<GuestSocket>()?.address().to_string();
        let is_left = self.leaving().iter().any(|listener| listener.socket.name == address);
        is_left.then(|| format!("{address} is still being left by a virtual machine"))
    }

    fn prepare(
        self: &Arc<Self>,
        settings: &config::Export,
        _export: &Export,
        _engine: &Choice,
    ) -> Result<Option<Opening>, Error> {
        let Some(at) = settings.ways.get() else { return Ok(None) };
        let listeners = Arc::clone(self);
        if self.service.hold.is_on() {
            let listener = place(at);
            return Ok(Some(Box::new(move |export| _ = lock(&listeners.coming).insert(export.id, listener))));
        }
        let listening = GuestListener::listen(at)?;
        Ok(Some(Box::new(move |export| {
            _ = lock(&listeners.list).insert(export.id, Arc::new(GuestListener::new(listening, export)))
        })))
    }

    fn leave(self: &Arc<Self>, export: u64) {
        let listener = lock(&self.list).remove(&export);
        self.leaving().extend(listener);
    }

    fn take_over(self: &Arc<Self>, client: HeldClient) -> Result<Coming, String> {
        let HeldClient { descriptors, mut says, bytes } = client;
        let name: String = says.need("export")?;
        let fail = |why: String| format!("a virtual machine at export {name:?}: {why}");
        let exports = self.service.exports();
        let export = exports.list.iter().find(|export| export.name == name);
        let export = export.ok_or_else(|| fail("it would not be served".into()))?;
        let mut named = Named::read(&mut says, descriptors).map_err(fail)?;
        if let Some(fd) = named.take("door") {
            return self.take_over_listener(export, fd).map(|()| Box::new(|| ()) as Coming);
        }
        let resumed = FrontEnd::read(export, &mut says, &mut named, bytes, self).map_err(fail)?;
        for part in says.rest().chain(named.names.iter().map(String::as_str)) {
            tracing::warn!(export = name, part, "the previous server sent an unknown field, which is ignored");
        }
        if resumed.device.listener.taken.swap(true, Ordering::AcqRel) {
            return Err(format!("two virtual machines at export {:?}", resumed.export.name));
        }
        let listeners = Arc::clone(self);
        Ok(Box::new(move || {
            let target = listeners.newcomers.place();
            listeners.newcomers.send(target, Newcomer::From(Box::new(resumed)));
            listeners.service.notifiers.ring_bell(target);
        }))
    }

    fn is_leaving(&self) -> bool {
        !self.leaving().is_empty()
    }
}

/// A front-end may have gone before it is accepted, and accepting must not wait for the next one.
fn never_waits(listening: &Listening) -> rustix::io::Result<()> {
    rustix::io::ioctl_fionbio(&listening.fd, true)
}

/// A ring of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    pub(super) device: usize,
    pub(super) ring: usize,
}

impl Name {
    /// The name of a request of the ring, by its head: one that NBD does not use.
    pub(super) const fn ticket(self, head: u16) -> u64 {
        TICKET | (self.device as u64) << 32 | (self.ring as u64) << 16 | head as u64
    }

    pub(super) const fn of_ticket(owner: u64) -> (Self, u16) {
        let device = (owner & !TICKET) >> 32;
        (Self { device: device as usize, ring: (owner >> 16 & 0xffff) as usize }, owner as u16)
    }
}

const NUMBER: u64 = 1;
pub(super) const TICKET: u64 = NUMBER << OF_TICKET;
const EVENT: u64 = NUMBER << OF_EVENT;

/// A completion: a kind and a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UserData {
    Message(usize),
    Kick(Name),
    Called(Name),
    /// At the listener of the export of this number.
    Accept(u64),
}

impl UserData {
    pub(super) fn pack(self) -> u64 {
        let (kind, number, ring) = match self {
            Self::Message(device) => (0, device as u64, 0),
            Self::Kick(Name { device, ring }) => (1, device as u64, ring),
            Self::Called(Name { device, ring }) => (2, device as u64, ring),
            Self::Accept(export) => (3, export, 0),
        };
        debug_assert!(number <= u64::from(u32::MAX));
        Source::Front(EVENT | kind << 48 | (ring as u64) << 32 | number).pack()
    }

    pub(super) fn unpack(what: u64) -> Self {
        let (number, ring) = (what as u32 as usize, (what >> 32 & 0xffff) as usize);
        match (what & !EVENT) >> 48 {
            0 => Self::Message(number),
            1 => Self::Kick(Name { device: number, ring }),
            2 => Self::Called(Name { device: number, ring }),
            3 => Self::Accept(number as u64),
            _ => unreachable!("a completion that was never submitted: {what:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_what_comes_back() {
        let name = Name { device: 70_000, ring: 63 };
        for event in [UserData::Message(5), UserData::Kick(name), UserData::Called(name), UserData::Accept(9)] {
            let Source::Front(what) = Source::unpack(event.pack()) else { panic!("{event:?} is a front's") };
            assert_eq!(what >> OF_EVENT, NUMBER);
            assert_eq!(UserData::unpack(what), event);
        }
        assert_eq!(Name::of_ticket(name.ticket(1023)), (name, 1023));
        assert_eq!(name.ticket(0) >> OF_TICKET, NUMBER);
    }
}
