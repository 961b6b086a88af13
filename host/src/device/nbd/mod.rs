//! Nbd: what another NBD server has.
//!
//! Data lies behind a server already: qcow2 or an encrypted image in qemu-storage-daemon, a file on another machine behind nbdkit. The
//! difficulty is that a server may be slow, go away, come back having forgotten something, or lie. A connection lives in the ring
//! of a worker, as clients' connections do; what blocks (names, TLS, negotiation) is done by a thread of the device. Example:
//! the server is restarted under load. Requests that it had are kept, a new connection is made within `reconnect`, and they are
//! asked again where that is safe (ledger.3, ledger.4); a flush then fails if what it promises may be lost (ledger.1).
//!
//! remote.1  Operations that the server lacks are not offered to clients: flush, FUA, discards, zeroes, writing.
//! remote.2  A connection belongs to one worker. Where the server allows several, workers have their own; a worker without one hands its
//!           requests to one that has. When a worker ends, another one takes its connection over.
//! remote.3  Requests wait at most `reconnect` for a connection, and then fail, as those that come later do, until there is one. A
//!           request that a server has not answered within `io_timeout` fails, and its connection is cut: its memory is needed.
//! remote.4  A server that is found again must still offer the same: at least the size, and all that was told to clients.
//! remote.5  A server's answer is believed only as far as it fits the request (answers.1); else the connection is cut, and its requests
//!           fail. Connections follow each other no faster than ten a second.

mod below;
mod connect;
mod flight;
mod lane;
mod ledger;
mod over;
mod socket;
pub(super) mod syntax;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant, SystemTime};

use fairlift_core::record::Record;
use fairlift_core::{ContextId, Errno, Limits, Sector};

use super::handed::{Links, OpenFile};
use super::lane::{Address, Lane};
use super::mail::Mail;
use super::{Device, Facts, Link};
use crate::kernel::notify::Notifiers;
use crate::sync::{Mutex, lock};
use crate::wire::nbd::greeting::Offer;
use crate::wire::nbd::{
    Command, FLAG_CAN_MULTI_CONN, FLAG_READ_ONLY, FLAG_ROTATIONAL, FLAG_SEND_FAST_ZERO, FLAG_SEND_FLUSH, FLAG_SEND_FUA,
    FLAG_SEND_TRIM, FLAG_SEND_WRITE_ZEROES,
};
use connect::{Established, connect};
use flight::Flight;
use lane::OnRemote;
use ledger::{Birth, Ledger, Worth};

/// How long an attempt to connect may take. Chosen: as long as a client of ours may take (`handshake_timeout`).
const ATTEMPT: Duration = Duration::from_secs(10);

/// How long to wait after the first attempt that failed, and at most. Chosen: a server that is restarted is found at once; one
/// that stays away costs a connection a second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// From one connection that was lost to the next (remote.5). Chosen: a server that is restarted does not notice.
const NO_FASTER: Duration = Duration::from_millis(100);

/// The largest read or write that is asked at once; a server may take less. Chosen: the protocol's, where nothing is said.
const REQUEST_MAX: u32 = 32 << 20;

/// The largest discard or write of zeroes. Chosen: some servers write zeroes out, and 32 MiB are done within a second.
const RANGE_MAX: u64 = 32 << 20;

pub(crate) struct Remote {
    shared: Arc<Shared>,
}

/// The state that all workers share, and the thread that connects.
struct Shared {
    nbd: syntax::Nbd,
    /// For people: another device's is another one.
    name: PathBuf,
    size: AtomicU64,
    /// The first offer, which all later connections have to match.
    offer: Offer,
    /// It is only read, whatever the server offers.
    read_only: bool,
    slots: usize,
    ledger: Mutex<Ledger>,
    mail: Mail<Letters>,
    owners: Mutex<Vec<ConnectionSlot>>,
    /// To the thread that connects, which ends with this.
    wanted: mpsc::Sender<Wanted>,
    to_make: Arc<Mutex<mpsc::Receiver<Wanted>>>,
    has_connector: AtomicBool,
    /// Sockets of the previous server, until it has told what they are (link.1).
    handed: Mutex<Option<over::Sockets>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct ConnectionSlot {
    /// The worker whose it is (remote.2).
    owner: Option<ContextId>,
    /// A connection is being made for it.
    is_wanted: bool,
    /// A connection that nobody uses.
    parked: Option<(Established, Birth)>,
    /// The latest connection, wherever it is, for a server that takes over.
    latest: Option<Latest>,
}

struct Latest {
    birth: Birth,
    socket: Weak<OwnedFd>,
    offer: Offer,
}

impl ConnectionSlot {
    /// Has a connection that nobody uses now.
    fn park(&mut self, made: Established, birth: Birth) {
        self.latest = Some(Latest { birth, socket: Arc::downgrade(&made.socket), offer: made.offer.clone() });
        self.parked = Some((made, birth));
    }
}

#[derive(Default)]
struct Letters {
    /// Requests that others hand over, and its own that come back: the other one could not ask for them.
    handed: Vec<Flight>,
    /// The ends of requests that it has handed over.
    ended: Vec<(Flight, Result<(), Errno>)>,
    /// A connection was made for one of its slots, and is parked there.
    is_connected: bool,
}

/// The slot of a connection that is to be made, and how its worker is told.
type Wanted = (usize, Arc<Notifiers>);

/// For people.
struct State {
    /// Slots that have lost their connection.
    lost: Vec<usize>,
    since: SystemTime,
    why: String,
    losses: u64,
}

impl Remote {
    /// By a connection of its own, or by those that another server hands over.
    pub(crate) fn open(nbd: &syntax::Nbd, read_only: bool, links: Option<Links>) -> Result<Self, String> {
        let (first, handed, offer) = match links {
            None => {
                let first = connect(nbd, ATTEMPT)?;
                let offer = first.offer.clone();
                (Some(first), None, offer)
            }
            Some(links) => {
                let (sockets, offer) = over::offered(links)?;
                (None, Some(sockets), offer)
            }
        };
        if offer.has(FLAG_READ_ONLY) && !read_only {
            tracing::info!(uri = nbd.uri, "the server refuses writes: the export is read-only");
        }
        let several = offer.has(FLAG_CAN_MULTI_CONN);
        let slots = if several { usize::from(nbd.connections.clamp(1, 16)) } else { 1 };
        let Offer { size, block_min, block_max, structured, context, .. } = offer;
        tracing::info!(
            uri = nbd.uri,
            size,
            connections = slots,
            "{}: blocks of {block_min} to {block_max}, {} replies, {}block status",
            if handed.is_some() { "connected by the previous server" } else { "connected" },
            if structured { "structured" } else { "simple" },
            if context.is_some() { "" } else { "no " },
        );
        let mut ledger = Ledger::default();
        let mut owners: Vec<ConnectionSlot> = (0..slots).map(|_| ConnectionSlot::default()).collect();
        if let Some(first) = first {
            owners[0].park(first, ledger.born(0));
        }
        let since = SystemTime::now();
        let (wanted, to_make) = mpsc::channel();
        let shared = Arc::new(Shared {
            nbd: nbd.clone(),
            name: nbd.name().into(),
            size: AtomicU64::new(size),
            offer,
            read_only,
            slots,
            ledger: Mutex::new(ledger),
            mail: Mail::new(),
            owners: Mutex::new(owners),
            wanted,
            to_make: Arc::new(Mutex::new(to_make)),
            has_connector: AtomicBool::new(false),
            handed: Mutex::new(handed),
            state: Mutex::new(State { lost: Vec::new(), since, why: String::new(), losses: 0 }),
        });
        Ok(Self { shared })
    }
}

impl Shared {
    /// Whether what was written can be lost until it is flushed.
    fn is_volatile(&self) -> bool {
        self.offer.has(FLAG_SEND_FLUSH) && !self.offer.has(FLAG_READ_ONLY) && !self.read_only
    }

    /// The missing parts of the offer (remote.4).
    fn lacks(&self, offer: &Offer) -> Option<String> {
        let size = self.size.load(Ordering::Relaxed);
        if offer.size < size {
            return Some(format!("the export had {size} bytes and now has {}", offer.size));
        }
        if offer.block_min > self.offer.block_min.max(512) || offer.block_max < self.offer.block_max.min(REQUEST_MAX) {
            return Some("the export takes other blocks than before".into());
        }
        let needed = [FLAG_SEND_FLUSH, FLAG_SEND_FUA, FLAG_SEND_TRIM, FLAG_SEND_WRITE_ZEROES, FLAG_SEND_FAST_ZERO];
        let lacks = needed.into_iter().any(|flag| self.offer.has(flag) && !offer.has(flag))
            || (offer.has(FLAG_READ_ONLY) && !self.offer.has(FLAG_READ_ONLY))
            || (self.slots > 1 && !offer.has(FLAG_CAN_MULTI_CONN));
        lacks.then(|| "the server offers less than before".into())
    }

    /// Has a connection made for a slot, and the worker told whose it is then.
    fn want(self: &Arc<Self>, slot: usize, notifiers: &Arc<Notifiers>) {
        let is_missing = {
            let there = &mut lock(&self.owners)[slot];
            // A parked connection comes by the letter that is under way. A slot never has two connections.
            there.parked.is_none() && !std::mem::replace(&mut there.is_wanted, true)
        };
        if is_missing {
            self.wanted.send((slot, Arc::clone(notifiers))).expect("the thread that connects ends with us");
        }
        self.have_connector();
    }

    /// Makes the thread that connects, if it is not there: from a worker, since a thread has the capabilities of its maker, and the server
    /// gives its own up before workers begin (confine.1).
    fn have_connector(self: &Arc<Self>) {
        if self.has_connector.swap(true, Ordering::AcqRel) {
            return;
        }
        let (weak, to_make) = (Arc::downgrade(self), Arc::clone(&self.to_make));
        let builder = std::thread::Builder::new().name("nbd-connect".into()).stack_size(512 << 10);
        if let Err(error) = builder.spawn(move || connect_all(&weak, &lock(&to_make))) {
            tracing::error!(uri = self.nbd.uri, %error, "no thread can be made to connect: tried again for the next connection");
            self.has_connector.store(false, Ordering::Release);
        }
    }

    /// A slot has lost its connection, or could not get one.
    fn lost(&self, slot: usize, why: &str, was_there: bool) {
        let mut state = lock(&self.state);
        state.losses += u64::from(was_there);
        if state.lost.is_empty() {
            state.since = SystemTime::now();
            let reconnect = self.nbd.reconnect.as_millis();
            tracing::warn!(
                uri = self.nbd.uri,
                why,
                "degraded: a connection was lost; requests wait {reconnect} ms for another"
            );
        }
        if !state.lost.contains(&slot) {
            state.lost.push(slot);
        }
        state.why = why.into();
    }

    /// A slot has a connection again.
    fn found(&self, slot: usize) {
        let mut state = lock(&self.state);
        let before = state.lost.len();
        state.lost.retain(|lost| *lost != slot);
        if before > 0 && state.lost.is_empty() {
            let for_ms = state.since.elapsed().unwrap_or_default().as_millis();
            tracing::info!(uri = self.nbd.uri, for_ms, "connected again");
            (state.since, state.why) = (SystemTime::now(), String::new());
        }
    }
}

/// Makes the connections that are wanted, for as long as the device is there. A slot that fails is tried again after the others.
fn connect_all(shared: &Weak<Shared>, wanted: &mpsc::Receiver<Wanted>) {
    let (mut last, mut pause) = (None::<Instant>, PAUSE.0);
    for (slot, notifiers) in wanted {
        let Some(shared) = shared.upgrade() else { return };
        let is_new = !lock(&shared.state).lost.contains(&slot);
        if let Some(early) = last.filter(|_| !is_new).and_then(|last| NO_FASTER.checked_sub(last.elapsed())) {
            std::thread::sleep(early); // remote.5
        }
        // A server that is not there says so soon; one that hangs shall not keep the device for long.
        let made = connect(&shared.nbd, ATTEMPT).and_then(|made| match shared.lacks(&made.offer) {
            None => Ok(made),
            Some(lacks) => {
                made.leave();
                Err(lacks)
            }
        });
        match made {
            Ok(made) => {
                (last, pause) = (Some(Instant::now()), PAUSE.0);
                shared.found(slot);
                let mut owners = lock(&shared.owners);
                let birth = lock(&shared.ledger).born(slot);
                owners[slot].is_wanted = false;
                owners[slot].park(made, birth);
                // The worker may have left meanwhile, and another one may have taken its slot (remote.2).
                if let Some(owner) = owners[slot].owner {
                    shared.mail.tell(owner, |letters| letters.is_connected = true);
                    notifiers.ring_bell(owner);
                }
            }
            Err(why) => {
                shared.lost(slot, &why, false);
                shared.wanted.send((slot, notifiers)).expect("this thread has the other end");
                drop(shared);
                std::thread::sleep(pause);
                pause = (2 * pause).min(PAUSE.1);
            }
        }
    }
}

impl Device for Remote {
    fn facts(&self) -> Facts {
        let Shared { offer, size, .. } = &*self.shared;
        let size = size.load(Ordering::Relaxed);
        let block = (offer.block_min / Sector::SIZE as u32).max(1);
        let can = |flag: u16, most: u64| if offer.has(flag) { most / Sector::SIZE } else { 0 };
        let limits = Limits {
            block,
            rw_max: offer.block_max.min(REQUEST_MAX) / Sector::SIZE as u32 / block * block,
            discard_max: can(FLAG_SEND_TRIM, RANGE_MAX),
            write_zeroes_max: can(FLAG_SEND_WRITE_ZEROES, RANGE_MAX),
            ..Limits::new(size.div_ceil(Sector::SIZE))
        };
        Facts {
            limits,
            home: Some(self.shared.nbd.address.home()),
            flush: offer.has(FLAG_SEND_FLUSH),
            rotational: offer.has(FLAG_ROTATIONAL),
            volatile_cache: self.shared.is_volatile(),
            fua: offer.has(FLAG_SEND_FUA),
            read_only: offer.has(FLAG_READ_ONLY),
            ..Facts::plain(size)
        }
    }

    fn called(&self) -> String {
        match &self.shared.nbd.address {
            syntax::NbdAddress::Tcp { host, .. } => host.clone(),
            syntax::NbdAddress::Unix(path) => path.file_stem().unwrap_or_default().to_string_lossy().into(),
        }
    }

    fn lane(self: Arc<Self>, address: Address) -> Box<dyn Lane> {
        self.shared.have_connector();
        Box::new(OnRemote::new(Arc::clone(&self.shared), self, address))
    }

    fn hand_over(self: Arc<Self>) -> Result<Vec<OpenFile>, String> {
        self.shared.stays().map(|()| Vec::new())
    }

    fn links(&self, says: &mut Record) -> Vec<OpenFile> {
        self.shared.sockets(says)
    }

    fn hand_on(&self, says: &mut Record) -> Result<Vec<u8>, String> {
        self.shared.tell(says).map(|()| Vec::new())
    }

    fn take_on(&self, says: &mut Record, _bytes: &[u8]) -> Result<(), String> {
        self.shared.take_on(says)
    }

    fn is_remote(&self) -> bool {
        true
    }

    /// Of a device that no worker uses any more.
    fn flush_now(&self) -> io::Result<()> {
        if !self.shared.is_volatile() || !lock(&self.shared.ledger).is_owed() {
            return Ok(());
        }
        let lost = || io::Error::other("the connection was lost, and the writes before may not be durable");
        let oldest = {
            let mut owners = lock(&self.shared.owners);
            let parked = owners.iter_mut().filter(|slot| slot.parked.is_some());
            let oldest = parked.min_by_key(|slot| slot.parked.as_ref().map(|(_, birth)| *birth));
            oldest.and_then(|slot| slot.parked.take())
        };
        let (mut connection, birth) = oldest.ok_or_else(lost)?;
        let promise = lock(&self.shared.ledger).promise();
        let answer = connection.ask(Command::Flush, 0, &mut [], Duration::from_secs(30));
        let flushed = answer.and_then(|answer| answer.map_err(|errno| io::Error::from_raw_os_error(errno.0)));
        let worth = flushed.is_ok().then(|| lock(&self.shared.ledger).flushed(birth, promise));
        lock(&self.shared.ledger).lost(birth);
        connection.leave();
        flushed?;
        if worth == Some(Worth::Believed) { Ok(()) } else { Err(lost()) }
    }

    /// As a new connection is told.
    fn look_at_size(&self) -> io::Result<u64> {
        let made = connect(&self.shared.nbd, ATTEMPT).map_err(io::Error::other)?;
        let size = made.offer.size;
        made.leave();
        Ok(size)
    }

    fn grow(&self, size: u64) {
        self.shared.size.fetch_max(size, Ordering::Relaxed);
    }

    fn can_zero_fast(&self) -> bool {
        self.shared.offer.has(FLAG_SEND_FAST_ZERO)
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.shared.name)
    }

    fn link(&self) -> Option<Link> {
        let state = lock(&self.shared.state);
        let of = self.shared.slots as u16;
        Some(Link {
            up: of - state.lost.len() as u16,
            of,
            since: state.since,
            why: state.why.clone(),
            lost: state.losses,
            in_doubt: lock(&self.shared.ledger).is_in_doubt(),
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for (connection, _) in lock(&self.owners).iter_mut().filter_map(|slot| slot.parked.take()) {
            connection.leave();
        }
    }
}
