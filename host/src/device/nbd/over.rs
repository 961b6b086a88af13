//! Over: another server goes on with the connections to a remote server.
//!
//! A flush covers the writes of its own connection, and of older ones ([`ledger`](super::ledger)). If the new server connected by itself, no flush of
//! it could be believed for the old one's writes. So it gets the sockets with their negotiated state, and negotiates nothing again. Example: 100
//! blocks are written by connection 1, the server is upgraded, and a client flushes: the new server sends the flush by connection 1.
//!
//! link.1  The sockets go over with the offer, and lie untouched until nothing is asked of the old server any more. Until then both have them open, so the
//!         new server closes its own copy and nothing else if it is not to serve: it says no goodbye, which would end them for the old one.
//! link.2  At the hand-over the old server tells its ledger, and of each living connection its place, its age, and its negotiated state. A
//!         connection that came or was lost since the offer makes the hand-over fail; the old server goes on.
//! link.3  Nothing is half-way on a connection then: a worker stands still once its devices have answered, and a request has ended once it was
//!         answered and sent whole (socket.4).
//! link.4  The keys of TLS are the old server's. A backing written over TLS is not handed over; one that is only read is, by a connection of
//!         the new server's own.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fairlift_core::record::Record;
use serde::{Deserialize, Serialize};

use super::connect::Established;
use super::ledger::{Birth, Ledger};
use super::{ConnectionSlot, Shared, syntax};
use crate::device::handed::{Links, OpenFile};
use crate::sync::lock;
use crate::wire::nbd::greeting::Offer;

const OFFER: &str = "offer";
const CONNECTED: &str = "connected";

#[derive(Serialize, Deserialize)]
struct LivingLink {
    slot: usize,
    birth: Birth,
    /// The number of its socket.
    socket: u64,
    offer: Offer,
}

/// The state that goes over besides the sockets (link.2).
#[derive(Serialize, Deserialize)]
struct Connected {
    size: u64,
    losses: u64,
    ledger: Ledger,
    connections: Vec<LivingLink>,
}

/// The number by which both servers know a socket.
fn number(socket: &impl AsFd) -> Result<u64, String> {
    let copy = socket.as_fd().try_clone_to_owned().and_then(|copy| File::from(copy).metadata());
    copy.map(|metadata| metadata.ino()).map_err(|error| error.to_string())
}

impl Shared {
    /// Why its connections cannot go over (link.4).
    pub(super) fn stays(&self) -> Result<(), String> {
        let is_encrypted = self.nbd.tls.is_some();
        if is_encrypted && self.is_volatile() {
            return Err("is written over TLS, whose keys are this server's, and a flush by another connection would \
                        promise writes that may be lost; restart the server"
                .into());
        }
        // After `reconnect`, requests do not wait for a connection either (remote.3).
        let state = lock(&self.state);
        let for_long = || {
            state.since.elapsed().is_ok_and(|so_long| so_long.as_nanos() > u128::from(self.nbd.reconnect.as_nanos()))
        };
        match state.lost.is_empty() || is_encrypted || for_long() {
            true => Ok(()),
            false => Err("is just being connected again; try again in a moment".into()),
        }
    }

    /// Its sockets, and the first negotiated state (link.1).
    pub(super) fn sockets(&self, says: &mut Record) -> Vec<OpenFile> {
        if self.nbd.tls.is_some() {
            return Vec::new();
        }
        says.put("name", &self.nbd.uri);
        says.put(OFFER, &self.offer);
        let living = |slot: &ConnectionSlot| Some(slot.latest.as_ref()?.socket.upgrade()? as OpenFile);
        lock(&self.owners).iter().filter_map(living).collect()
    }

    /// link.2
    pub(super) fn tell(&self, says: &mut Record) -> Result<(), String> {
        if self.nbd.tls.is_some() {
            return Ok(());
        }
        self.stays()?;
        let owners = lock(&self.owners);
        let ledger = lock(&self.ledger);
        let living = |(birth, slot): &(Birth, usize)| {
            let latest = owners[*slot].latest.as_ref().filter(|latest| latest.birth == *birth);
            let there = latest.and_then(|latest| Some((latest.socket.upgrade()?, latest.offer.clone())));
            let (socket, offer) = there.ok_or("is just being connected again; try again in a moment")?;
            Ok(LivingLink { slot: *slot, birth: *birth, socket: number(&*socket)?, offer })
        };
        let connections = ledger.alive().iter().map(living).collect::<Result<_, String>>()?;
        let (size, losses) = (self.size.load(Ordering::Relaxed), lock(&self.state).losses);
        says.put(CONNECTED, &Connected { size, losses, ledger: ledger.clone(), connections });
        Ok(())
    }

    /// The same at the other server, before its first request.
    pub(super) fn take_on(&self, says: &mut Record) -> Result<(), String> {
        let mut handed = lock(&self.handed);
        let Some(sockets) = &mut *handed else {
            // It has connected by itself.
            return if self.is_volatile() { Err("its connections were not handed over".into()) } else { Ok(()) };
        };
        let Connected { size, losses, ledger, connections } = says.need(CONNECTED).map_err(|why| why.to_string())?;
        let living: Vec<_> = connections.iter().map(|one| (one.birth, one.slot)).collect();
        if !ledger.is_possible() || living != ledger.alive() || living.iter().any(|(_, slot)| *slot >= self.slots) {
            return Err("the state of its connections is impossible".into());
        }
        let is_local = matches!(self.nbd.address, syntax::NbdAddress::Unix(_));
        let made = connections.into_iter().map(|LivingLink { slot, birth, socket, offer }| {
            let at = sockets.iter().position(|(there, _)| *there == socket);
            let at = at.ok_or("its connections have changed since the offer; try again in a moment")?;
            let socket = Arc::new(sockets.swap_remove(at).1);
            Ok((slot, Established { socket, tls: None, offer, is_local }, birth))
        });
        // All or none is parked: from then on, the end of this server would be told to the other one (link.1).
        let made = made.collect::<Result<Vec<_>, String>>()?;
        let mut owners = lock(&self.owners);
        made.into_iter().for_each(|(slot, made, birth)| owners[slot].park(made, birth));
        *lock(&self.ledger) = ledger;
        self.size.fetch_max(size, Ordering::Relaxed);
        lock(&self.state).losses = losses;
        *handed = None;
        Ok(())
    }

    /// Whether the previous server has yet to tell the state of its connections.
    pub(super) fn is_awaited(&self) -> bool {
        lock(&self.handed).is_some()
    }
}

pub(super) type Sockets = Vec<(u64, OwnedFd)>;

/// The sockets of an offer, and their first negotiated state.
pub(super) fn offered(mut links: Links) -> Result<(Sockets, Offer), String> {
    let offer = links.says.need(OFFER).map_err(|why| why.to_string())?;
    let numbered = |socket: OwnedFd| Ok((number(&socket)?, socket));
    Ok((links.sockets.into_iter().map(numbered).collect::<Result<_, String>>()?, offer))
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::device::Backing;
    use crate::device::backing::tests::OUTSIDE;
    use crate::device::nbd::Remote;
    use crate::device::nbd::ledger::Worth;
    use crate::wire::nbd::{FLAG_CAN_MULTI_CONN, FLAG_SEND_FLUSH};

    const OFFER: Offer = Offer {
        size: 1 << 20,
        flags: FLAG_SEND_FLUSH | FLAG_CAN_MULTI_CONN,
        block_min: 1,
        block_preferred: 4096,
        block_max: 32 << 20,
        structured: true,
        context: None,
    };

    /// A server's side of an offer of these connections.
    fn offered(sockets: &[&UnixStream]) -> Arc<Shared> {
        let Ok(Backing::Nbd(nbd)) = (syntax::SYNTAX.parse)("nbd+unix:///?socket=/nowhere", &OUTSIDE) else {
            panic!("a URI of nbd")
        };
        let copy = |socket: &&UnixStream| OwnedFd::from(socket.try_clone().unwrap());
        let mut says = Record::default();
        says.put(super::OFFER, &OFFER);
        let links = Links { sockets: sockets.iter().map(copy).collect(), says };
        Remote::open(&nbd, false, Some(links)).unwrap().shared
    }

    /// The record of a server with these connections, the oldest first, and this number of unflushed writes.
    fn record_of(sockets: &[&UnixStream], writes: usize) -> Record {
        let (mut ledger, mut says) = (Ledger::default(), Record::default());
        let one = |(slot, socket): (usize, &&UnixStream)| LivingLink {
            slot,
            birth: ledger.born(slot),
            socket: number(*socket).unwrap(),
            offer: OFFER,
        };
        let connections = sockets.iter().enumerate().map(one).collect();
        (0..writes).for_each(|_| ledger.wrote(ledger.given()));
        says.put(CONNECTED, &Connected { size: 2 << 20, losses: 3, ledger, connections });
        says
    }

    /// The bytes that the remote server gets; `None`: it is not told that the connection has ended.
    fn comes(remote: &mut UnixStream) -> Option<Vec<u8>> {
        remote.set_nonblocking(true).unwrap();
        let mut got = Vec::new();
        match remote.read_to_end(&mut got) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && got.is_empty() => None,
            _ => Some(got),
        }
    }

    /// link.2: however often.
    #[test]
    fn a_flush_of_the_third_server_speaks_for_writes_of_the_first_and_a_new_connection_does_not() {
        let (one, _far) = UnixStream::pair().unwrap();
        let (mut says, mut server) = (record_of(&[&one], 3), offered(&[&one]));
        server.take_on(&mut says).unwrap();
        for _ in 0..2 {
            let mut says = Record::default();
            assert_eq!(server.sockets(&mut Record::default()).len(), 1);
            server.tell(&mut says).unwrap();
            let next = offered(&[&one]);
            next.take_on(&mut says).unwrap();
            server = next;
        }
        assert_eq!((server.size.load(Ordering::Relaxed), lock(&server.state).losses), (2 << 20, 3));
        let mut ledger = lock(&server.ledger);
        let (old, young, promise) = (ledger.alive()[0].0, ledger.born(1), ledger.promise());
        assert_eq!(ledger.flushed(young, promise), Worth::AskAt(old, 0));
        assert_eq!(ledger.flushed(old, promise), Worth::Believed);
    }

    /// link.1
    #[test]
    fn a_server_that_does_not_take_over_says_nothing_to_the_remote_server() {
        let (one, mut far) = UnixStream::pair().unwrap();
        drop(offered(&[&one]));
        assert_eq!(comes(&mut far), None, "the old server's connection");
        let server = offered(&[&one]);
        server.take_on(&mut record_of(&[&one], 0)).unwrap();
        drop(server);
        assert!(comes(&mut far).is_some(), "of its own connection it takes leave");
    }

    /// link.2
    #[test]
    fn a_connection_that_came_or_was_told_wrongly_after_the_offer_makes_the_hand_over_fail() {
        let ((one, mut far), (other, _)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let why = |says: &mut Record| offered(&[&one]).take_on(says).unwrap_err();
        assert!(why(&mut record_of(&[&other], 0)).contains("have changed since the offer"));
        assert!(why(&mut record_of(&[&one, &other], 0)).contains("have changed since the offer"));
        assert_eq!(comes(&mut far), None, "the old server's connection");
        assert!(why(&mut Record::default()).contains("missing"));
        assert!(why(&mut record_of(&[&one; 40], 0)).contains("is impossible"), "more than it has places for");
        offered(&[&one, &other]).take_on(&mut record_of(&[&other], 0)).unwrap(); // one was lost
    }
}
