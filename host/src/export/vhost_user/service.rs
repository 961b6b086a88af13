//! What devices share: the doors at which front-ends connect, and what the kernel does for them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairlift_core::ContextId;

use crate::Error;
use crate::config::{Address, Listener, Tls};
use crate::export::Export;
use crate::export::listen::{self, Listening};
use crate::kernel::ring::Source;

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
    pub(crate) fn new(listening: Listening, export: &Export) -> Self {
        let (taken, told) = Default::default();
        Self { listening, export: export.id, name: export.name.clone(), taken, told }
    }

    /// Listens for front-ends at a path.
    pub(crate) fn listen(path: &Path) -> Result<Listening, Error> {
        let listening = Listening::open(&place(path))?;
        // A front-end may have gone before it is accepted, and accepting must not wait for the next one.
        rustix::io::ioctl_fionbio(&listening.fd, true)
            .map_err(|error| Error::Listen { address: listening.name.clone(), why: error.to_string() })?;
        Ok(listening)
    }

    /// Whether [`Door::listen`] would succeed.
    pub(crate) fn check(path: &Path) -> Result<(), Error> {
        listen::check(&place(path))
    }

    /// Where it is: `unix:/run/vm/alice`.
    pub(crate) fn address(&self) -> &str {
        &self.listening.name
    }
}

fn place(path: &Path) -> Listener {
    Listener { address: Address::Unix(path.to_owned()), tls: Tls::Off }
}

/// A front-end that has connected: its door, and its socket.
type Newcomer = (Arc<Door>, OwnedFd);

/// The doors of a server, and what comes in by them: the same for all workers.
pub(crate) struct Doors {
    /// By the numbers of their exports.
    list: Mutex<BTreeMap<u64, Arc<Door>>>,
    /// Devices at each worker.
    pub(super) loads: Box<[AtomicU32]>,
    /// Front-ends that one worker accepted for another, by the number of that one.
    newcomers: Box<[Mutex<Vec<Newcomer>>]>,
}

impl Doors {
    pub(crate) fn new(list: Vec<Door>, workers: usize) -> Self {
        let loads = (0..workers).map(|_| AtomicU32::new(0)).collect();
        let list = list.into_iter().map(|door| (door.export, Arc::new(door))).collect();
        Self { list: Mutex::new(list), loads, newcomers: (0..workers).map(|_| Mutex::default()).collect() }
    }

    /// The doors that there are now.
    pub(super) fn list(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Door>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens one more; workers are to be woken then.
    pub(crate) fn open(&self, door: Door) {
        self.list().insert(door.export, Arc::new(door));
    }

    /// Takes the door of an export away, if it has one; workers are to be woken then. The place is free when nobody has what
    /// is answered.
    pub(crate) fn shut(&self, export: u64) -> Option<Arc<Door>> {
        self.list().remove(&export)
    }

    pub(super) fn newcomers_of(&self, worker: ContextId) -> MutexGuard<'_, Vec<Newcomer>> {
        self.newcomers[usize::from(worker.0)].lock().unwrap_or_else(PoisonError::into_inner)
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

const TICKET: u64 = 1 << 63;
const EVENT: u64 = 1 << 55;

/// Whether a request is a guest's.
pub(crate) const fn is_ticket(owner: u64) -> bool {
    owner & TICKET != 0
}

/// Whether something that the kernel has done was for a device.
pub(crate) const fn is_event(what: u64) -> bool {
    what & EVENT != 0
}

/// What the kernel has done: a kind and a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Message(usize),
    Kick(Name),
    Called(Name),
    /// At the door of the export of this number.
    Accept(u64),
}

impl Event {
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
        for event in [Event::Message(5), Event::Kick(name), Event::Called(name), Event::Accept(9)] {
            let Source::Front(what) = Source::unpack(event.pack()) else { panic!("{event:?} is a front's") };
            assert!(is_event(what));
            assert_eq!(Event::unpack(what), event);
        }
        assert_eq!(Name::of_ticket(name.ticket(1023)), (name, 1023));
        assert!(is_ticket(name.ticket(0)));
    }
}
