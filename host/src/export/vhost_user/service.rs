//! What devices share: the doors at which front-ends connect, and what the kernel does for them.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::front::VhostUser;
use super::words::GuestSocket;
use crate::Error;
use crate::config::{self, Listener, Tls};
use crate::disk::engine::Engine;
use crate::export::Export;
use crate::export::front::{OF_EVENT, OF_TICKET, Opening, Protocol};
use crate::export::listen::{self, Listening};
use crate::export::present::Newcomers;
use crate::export::service::Service;
use crate::kernel::ring::{Choice, Source};

/// Where the front-end of one export connects. The socket is there for as long as anybody has this.
pub(crate) struct Door {
    pub(super) listening: Listening,
    /// The export, by its number.
    pub(super) export: u64,
    pub(super) name: String,
    /// A front-end has it, or had it and has requests under way.
    pub(super) taken: AtomicBool,
    /// It was logged that others came meanwhile.
    pub(super) told: AtomicBool,
}

impl Door {
    /// The door of an export that listens already.
    fn new(listening: Listening, export: &Export) -> Self {
        let (taken, told) = Default::default();
        Self { listening, export: export.id, name: export.name.clone(), taken, told }
    }

    /// Listens for front-ends.
    fn listen(at: &GuestSocket) -> Result<Listening, Error> {
        let listening = Listening::open(&place(at))?;
        // A front-end may have gone before it is accepted, and accepting must not wait for the next one.
        rustix::io::ioctl_fionbio(&listening.fd, true)
            .map_err(|error| Error::Listen { address: listening.name.clone(), why: error.to_string() })?;
        Ok(listening)
    }
}

fn place(at: &GuestSocket) -> Listener {
    Listener { socket: at.socket, ..Listener::new(at.address(), Tls::Off) }
}

/// A front-end that has connected: its door, and its socket.
pub(super) type Newcomer = (Arc<Door>, OwnedFd);

/// The doors of a server, and what comes in by them: the same for all workers.
pub(crate) struct Doors {
    pub(super) service: Arc<Service>,
    /// By the numbers of their exports.
    list: Mutex<BTreeMap<u64, Arc<Door>>>,
    /// Doors of exports that were removed. A place is free when nobody has its door.
    leaving: Mutex<Vec<Arc<Door>>>,
    pub(super) newcomers: Newcomers<Newcomer>,
}

impl Doors {
    /// The doors that there are now.
    pub(super) fn list(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Door>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that somebody has still, though their exports were removed.
    fn leaving(&self) -> MutexGuard<'_, Vec<Arc<Door>>> {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|door| Arc::strong_count(door) > 1);
        leaving
    }
}

impl Protocol for Doors {
    const NUMBER: u64 = NUMBER;

    type Clients = VhostUser;

    fn new(service: &Arc<Service>) -> Self {
        let newcomers = Newcomers::new(service.notifiers.workers());
        Self { service: Arc::clone(service), list: Mutex::default(), leaving: Mutex::default(), newcomers }
    }

    fn clients(self: &Arc<Self>, engine: &mut Engine) -> io::Result<VhostUser> {
        Ok(VhostUser::new(engine, Arc::clone(self)))
    }

    fn check(exports: &[config::Export], _engine: &Choice) -> Vec<Error> {
        let sockets = exports.iter().filter_map(|export| export.ways.get::<GuestSocket>());
        sockets.filter_map(|socket| listen::check(&place(socket)).err()).collect()
    }

    fn is_in_the_way(&self, said: &config::Export) -> Option<String> {
        let address = said.ways.get::<GuestSocket>()?.address().to_string();
        let is_left = self.leaving().iter().any(|door| door.listening.name == address);
        is_left.then(|| format!("{address} is still being left by a virtual machine"))
    }

    fn prepare(
        self: &Arc<Self>,
        said: &config::Export,
        _export: &Export,
        _engine: &Choice,
    ) -> Result<Option<Opening>, Error> {
        let Some(at) = said.ways.get() else { return Ok(None) };
        let (listening, doors) = (Door::listen(at)?, Arc::clone(self));
        Ok(Some(Box::new(move |export| _ = doors.list().insert(export.id, Arc::new(Door::new(listening, export))))))
    }

    fn leave(self: &Arc<Self>, export: u64) {
        let door = self.list().remove(&export);
        self.leaving().extend(door);
    }

    fn is_leaving(&self) -> bool {
        !self.leaving().is_empty()
    }
}

/// A ring of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name {
    pub(super) device: usize,
    pub(super) ring: usize,
}

impl Name {
    /// What a request of the ring is called, by its head: nothing that NBD calls its own.
    pub(super) const fn ticket(self, head: u16) -> u64 {
        TICKET | (self.device as u64) << 32 | (self.ring as u64) << 16 | head as u64
    }

    /// Whose request it is.
    pub(super) const fn of_ticket(owner: u64) -> (Self, u16) {
        let device = (owner & !TICKET) >> 32;
        (Self { device: device as usize, ring: (owner >> 16 & 0xffff) as usize }, owner as u16)
    }
}

const NUMBER: u64 = 1;
pub(super) const TICKET: u64 = NUMBER << OF_TICKET;
const EVENT: u64 = NUMBER << OF_EVENT;

/// What the kernel has done: a kind and a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UserData {
    Message(usize),
    Kick(Name),
    Called(Name),
    /// At the door of the export of this number.
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
