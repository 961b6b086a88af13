//! Hold: all clients of a server stand still at a boundary, so that another server can go on with them.
//!
//! A command that is half done cannot be handed over, and a connection without one is small: what was negotiated, the bytes that nobody has
//! looked at, and the replies that are not sent. So workers stop reading, end what clients have asked, and say what is left of each client.
//!
//! hold.1  While it holds, a worker takes nothing from clients: it accepts none, reads from none, and takes in no command of the bytes
//!         read. Commands that were taken in before are done; its replies are sent as far as clients take them until then.
//! hold.2  Once all requests have ended, the worker reports each client's state, and does nothing for any until it is told to go on. A request
//!         that timed out has ended once its device has answered. The worker's report is a copy: to go on it needs nothing back.
//! hold.3  The first worker accepts for all. The others report nothing before it has ended that, or a client that it sends them would be
//!         missing.
//! hold.4  The keys of a connection with TLS are this process's, and go to the kernel, which then encrypts for the holder of the socket (keys.1–3).
//!         All that its client has asked is answered and sent before. Where the kernel does not take them the connection is closed with the
//!         process, and the client connects again.
//! hold.5  Two servers are there while it holds. So a worker whose clients were told gives the memory of payloads back; it has it again when
//!         it is used.
//! hold.6  Ceilings hold nothing meanwhile, and what goes is a debt to them: a tenant at its limit that has asked for half a minute's worth would have
//!         each upgrade called off.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fairlift_core::ContextId;
use fairlift_core::record::{Record, Unreadable};

use super::listen;
use crate::access::{Access, Peer};
use crate::kernel::notify::Notifiers;
use crate::sync::{Mutex, lock};

/// A client that stands still.
pub(crate) struct HeldClient {
    /// Its socket, duplicated, and the other descriptors that it has given us, in an order that its protocol knows.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// The outcome of its negotiation, and where it is.
    pub(crate) says: Record,
    /// The bytes that it has sent, then the replies that it has not taken; where there are both, `says` tells how many of each.
    pub(crate) bytes: Vec<u8>,
}

/// How far a client is on its way to stand still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Halt {
    No,
    /// Nothing is read; what was asked is done, and it is told of it.
    Ends,
    /// It is told nothing either.
    StandsStill,
}

/// The clients of a worker, or why one of them cannot be handed over.
pub(crate) type Report = Result<Vec<HeldClient>, String>;

/// Whether the clients of a server are held: one for all workers.
pub(crate) struct Hold {
    /// Odd: they are to be held. It rises with each change.
    epoch: AtomicU64,
    /// The first worker has ended to accept (hold.3).
    is_closed: AtomicBool,
    reports: Mutex<Vec<Option<Report>>>,
    heard: Condvar,
}

impl HeldClient {
    /// The one descriptor of a client that has one.
    pub(crate) fn only(descriptors: Vec<OwnedFd>) -> Result<OwnedFd, String> {
        let only = <[OwnedFd; 1]>::try_from(descriptors);
        only.map(|[one]| one).map_err(|all| format!("{} descriptors came, not 1", all.len()))
    }

    /// Says who a client is, and since when it is here.
    pub(crate) fn put_peer(says: &mut Record, peer: &Peer, since: Option<SystemTime>) {
        says.put("listener", &peer.listener);
        says.put("cgroup", &peer.cgroup.as_ref().map(ToString::to_string));
        let since = since.and_then(|since| since.duration_since(UNIX_EPOCH).ok());
        says.put("since_ms", &since.map(|since| since.as_millis() as u64));
    }

    pub(crate) fn take_peer(
        says: &mut Record,
        socket: &OwnedFd,
        access: &Access,
    ) -> Result<(Peer, SystemTime), Unreadable> {
        let mut peer = listen::peer(socket, says.need("listener")?);
        let cgroup = says.take::<Option<String>>("cgroup").unwrap_or_default().flatten();
        peer.cgroup = cgroup.and_then(|path| path.parse().ok());
        listen::learn_cgroup(socket.as_fd(), access, &mut peer);
        let millis = says.take::<Option<u64>>("since_ms").unwrap_or_default().flatten();
        let since = millis.map_or_else(SystemTime::now, |millis| UNIX_EPOCH + Duration::from_millis(millis));
        Ok((peer, since))
    }
}

impl Hold {
    /// For this many workers; `begins`: held from the start.
    pub(crate) fn new(workers: usize, begins: bool) -> Self {
        Self {
            epoch: AtomicU64::new(begins.into()),
            is_closed: AtomicBool::new(false),
            reports: Mutex::new((0..workers).map(|_| None).collect()),
            heard: Condvar::new(),
        }
    }

    // ---- for the server that hands over ----

    pub(crate) fn begin(&self, notifiers: &Notifiers) {
        let mut reports = lock(&self.reports);
        reports.fill_with(|| None);
        self.is_closed.store(false, Ordering::Release);
        let before = self.epoch.fetch_add(1, Ordering::AcqRel);
        assert!(before.is_multiple_of(2), "clients are held already");
        drop(reports);
        notifiers.ring_all();
    }

    pub(crate) fn end(&self, notifiers: &Notifiers) {
        let before = self.epoch.fetch_add(1, Ordering::AcqRel);
        assert!(!before.is_multiple_of(2), "clients are not held");
        notifiers.ring_all();
    }

    /// Waits until all stand still, or `goes_on` does not want it any more, or a worker says that one cannot.
    pub(crate) fn wait(&self, until: Instant, goes_on: impl Fn() -> Result<(), String>) -> Report {
        const LOOK: Duration = Duration::from_millis(20);
        let mut reports = lock(&self.reports);
        loop {
            if let Some(why) = reports.iter_mut().find_map(|one| one.take_if(|report| report.is_err())?.err()) {
                return Err(why);
            }
            let there = reports.iter().filter(|one| one.is_some()).count();
            if there == reports.len() {
                return Ok(reports.iter_mut().filter_map(Option::take).filter_map(Result::ok).flatten().collect());
            }
            goes_on()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("requests of clients had not ended in time".into());
            }
            reports = self
                .heard
                .wait_timeout(reports, left.min(LOOK))
                .map_or_else(|error| error.into_inner().0, |(reports, _)| reports);
        }
    }

    // ---- for workers ----

    pub(crate) fn is_on(&self) -> bool {
        !self.epoch().is_multiple_of(2)
    }

    /// The number of the latest change; odd: clients are to be held.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The first worker accepts nobody any more, and those that it had accepted are on their way (hold.3).
    pub(crate) fn close(&self, notifiers: &Notifiers) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            notifiers.ring_all();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// A worker's clients stand still since the change of this number.
    pub(crate) fn tell(&self, worker: ContextId, epoch: u64, report: Report) {
        let mut reports = lock(&self.reports);
        if self.epoch() == epoch {
            reports[usize::from(worker.0)] = Some(report);
            self.heard.notify_all();
        }
    }
}
