//! The exchange: once a second a gateway reads what the others served, works out its part of the pool, and tells what it served.
//!
//! exchange.1  It goes on a thread of its own, and what carries reports on another one: a directory or a cluster that hangs stops neither
//!             the workers nor the end of the server. As long as it does, or fails, what held last goes on to hold, and the log says so
//!             once, and when it is over (gateway.3).
//! exchange.2  The first exchange is as the server starts: it has its part before its first client.
//! exchange.3  A gateway that starts and finds a report under its name waits whether another one follows: then there is a gateway of that
//!             name, and the server does not start. Where it takes over from another server that one is meant.
//! exchange.4  A gateway that ends says so in its last report, and the others have its part at once.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use fairlift_core::Instant;
use fairlift_core::cost_model::Model;
use fairlift_core::gateways::{Allotment, Note, Pool, Report, STALE};

use super::count::Count;
use super::{Carrier, PoolView, Standing};
use crate::clock;
use crate::config::{Config, Shares, SharesAt};
use crate::disk::{Disk, Disks};

/// A period. Chosen: with 100 gateways shares are within 5 % after some ten of them, and the exchange is nothing beside the pool's work.
const PERIOD: Duration = Duration::from_secs(1);
/// A carrier hangs if it has not answered for so many periods: as many as make a gateway stale.
const HANGS: u32 = STALE;
/// How long the end of the server waits for the last report (exchange.4). Chosen.
const FAREWELL: Duration = Duration::from_millis(500);
/// How long a start waits for a second report under its name (exchange.3).
const TWIN: Duration = Duration::from_millis(1500);

/// All reports that were found, or why none could be.
type Heard = io::Result<Vec<(String, Vec<u8>)>>;

/// The exchange of a disk's gateways.
pub(super) struct Exchange {
    shares: Shares,
    disk: Arc<Disk>,
    pool: Arc<Mutex<Known>>,
    write: Sender<Vec<u8>>,
    heard: Receiver<Heard>,
    count: Count,
    looked: Instant,
    /// Periods since reports came, and whether they were asked for and have not come.
    silent: u32,
    is_asked: bool,
}

/// The pool as it is known, for those who look.
pub(super) struct Known {
    pool: Pool,
    /// Why nothing is heard, and when something was last.
    trouble: Option<String>,
    at: Option<Instant>,
    turn: Allotment,
}

/// Whether a gateway of our name is there (exchange.3).
pub(super) fn is_taken(carrier: &mut dyn Carrier, name: &str) -> io::Result<bool> {
    let mut look = || -> io::Result<Option<(u64, u64)>> {
        let own = carrier.read()?.into_iter().find(|(gateway, _)| gateway == name);
        let report = own.and_then(|(_, bytes)| Report::read(&bytes).ok()).filter(|report| !report.ends);
        Ok(report.map(|report| (report.instance, report.sequence)))
    };
    let Some(first) = look()? else { return Ok(false) };
    thread::sleep(TWIN);
    Ok(look()?.is_some_and(|second| second != first))
}

impl Exchange {
    pub(super) fn new(shares: &Shares, disk: Arc<Disk>, carrier: Box<dyn Carrier>) -> io::Result<Self> {
        let (write, reports) = mpsc::channel();
        let (tell, heard) = mpsc::channel();
        let name = shares.gateway.clone();
        let work = move || carry(carrier, &name, &reports, &tell);
        thread::Builder::new().name("reports".into()).spawn(work)?;
        let known =
            Known { pool: Pool::new(&shares.gateway, instance()), trouble: None, at: None, turn: Allotment::default() };
        Ok(Self {
            shares: shares.clone(),
            disk,
            pool: Arc::new(Mutex::new(known)),
            write,
            heard,
            count: Count::default(),
            looked: clock::now(),
            silent: 0,
            is_asked: false,
        })
    }

    pub(super) fn known(&self) -> Arc<Mutex<Known>> {
        Arc::clone(&self.pool)
    }

    /// Goes on until the server has ended, or `stop` comes.
    pub(super) fn run(mut self, disks: &Disks, server: impl Fn() -> Standing, wake: impl Fn(), stop: &Receiver<()>) {
        // exchange.2: what is heard of an empty report is all that there is.
        let _ = self.write.send(Vec::new());
        self.is_asked = true;
        let first = self.heard.recv_timeout(PERIOD);
        self.hear(first.map_err(|error| error == RecvTimeoutError::Timeout));
        loop {
            match server() {
                Standing::Serves(config) => self.period(disks, &config),
                Standing::HandsOver => {}
                Standing::HasEnded => return,
            }
            wake();
            match stop.recv_timeout(PERIOD) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
            let heard = self.heard.try_recv();
            self.hear(heard.map_err(|error| error == mpsc::TryRecvError::Empty));
        }
        if matches!(server(), Standing::Serves(_)) {
            // exchange.4
            let last = lock(&self.pool).pool.last_report().write();
            let _ = self.write.send(last.into_bytes());
            drop(self.write);
            while self.heard.recv_timeout(FAREWELL).is_ok() {}
        }
    }

    /// exchange.1: what reports came; `Err`: whether they may yet come.
    fn hear(&mut self, heard: Result<Heard, bool>) {
        let place = &self.shares.place;
        let mut known = lock(&self.pool);
        match heard {
            Ok(Ok(reports)) => {
                (self.is_asked, self.silent) = (false, 0);
                if known.trouble.take().is_some() {
                    tracing::info!("{place}: gateways are heard of again");
                }
                known.at = Some(clock::now());
                reports.iter().for_each(|(gateway, report)| known.pool.hear(gateway, report));
                return;
            }
            Ok(Err(error)) => {
                self.is_asked = false;
                say(&mut known, place, error.to_string());
            }
            Err(true) if self.silent >= HANGS => say(&mut known, place, "no answer".into()),
            Err(true) => {}
            Err(false) => say(&mut known, place, "the thread that carries reports has ended".into()),
        }
        self.silent += 1;
    }

    /// A period is over.
    fn period(&mut self, disks: &Disks, config: &Config) {
        let now = clock::now();
        let seconds = (now.since(self.looked).as_nanos() as f64 / 1e9).max(1e-3);
        let mut counters = std::collections::BTreeMap::new();
        self.disk.counters(&mut |name, value| _ = counters.insert(name, value));
        let model = Model::of_counters(|name| counters.get(name).copied());
        let figures = self.disk.figures_by_path(now);
        let mut known = lock(&self.pool);
        let costs = known.pool.costs(model).zip(model.map(|model| model.rrandiops));
        let counted = self.count.look(&figures, costs, config, seconds, time_of_day());
        self.looked = now;
        // gateway.3
        if self.silent == 0 {
            known.pool.latencies(&self.disk.missed_by_path(now));
            let turn = known.pool.period(&counted, self.disk.depth().into());
            disks.take_turn(now, &self.disk, &turn);
            known.turn = turn;
        } else {
            known.pool.count(&counted, self.disk.depth().into());
        }
        known.pool.take_notes().iter().for_each(|note| self.note(note));
        if !self.is_asked {
            let report = known.pool.report().write();
            self.is_asked = self.write.send(report.into_bytes()).is_ok();
        }
    }

    fn note(&self, note: &Note) {
        let (disk, place) = (&self.disk.name, &self.shares.place);
        match note {
            Note::Comes(gateway) => tracing::info!("disk {disk:?}: gateway {gateway:?} is there"),
            Note::Goes { gateway, silent: None } => tracing::info!("disk {disk:?}: gateway {gateway:?} has ended"),
            Note::Goes { gateway, silent: Some(periods) } => {
                tracing::warn!(
                    "disk {disk:?}: gateway {gateway:?} was not heard of for {periods} periods: its part is the others'"
                );
            }
            Note::Unreadable { gateway, why } => {
                tracing::warn!("disk {disk:?}: the report of gateway {gateway:?} at {place} is left out: {why}");
            }
            Note::Twin(gateway) => tracing::error!(
                "disk {disk:?}: two gateways at {place} are called {gateway:?}, and shares are wrong: give one another name (server.gateway)"
            ),
            Note::Differs(group) => tracing::warn!(
                "disk {disk:?}: group {group:?} is set otherwise at another gateway: the settings that were changed last hold at all"
            ),
        }
    }
}

impl Known {
    pub(super) fn view(&self, shares: &Shares, disk: &Disk) -> PoolView {
        PoolView {
            disk: disk.name.clone(),
            place: shares.place.to_string(),
            gateway: shares.gateway.clone(),
            trouble: self.trouble.clone(),
            heard: self.at.map(|at| clock::now().since(at)),
            depth: self.turn.depth,
            room: self.pool.room().map(|(group, room)| (group.to_owned(), room)),
            pool_depth: disk.depth(),
            served: self.pool.served(),
            gateways: self.pool.gateways(),
            groups: self.pool.groups().clone(),
        }
    }
}

/// exchange.1
fn say(known: &mut Known, place: &SharesAt, why: String) {
    if known.trouble.is_none() {
        tracing::warn!("{place}: gateways are not heard of ({why}): shares stay as they are");
    }
    known.trouble = Some(why);
}

pub(super) fn lock(pool: &Mutex<Known>) -> MutexGuard<'_, Known> {
    // It is figures alone: what a panic left half done the next period makes anew.
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes each report that comes, unless it is empty, and tells what is there then.
fn carry(mut carrier: Box<dyn Carrier>, name: &str, reports: &Receiver<Vec<u8>>, tell: &Sender<Heard>) {
    while let Ok(report) = reports.recv() {
        let heard = carrier.read();
        let written = if report.is_empty() { Ok(()) } else { carrier.write(name, &report) };
        if tell.send(written.and(heard)).is_err() {
            return;
        }
    }
}

/// A number by chance.
fn instance() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    RandomState::new().build_hasher().finish()
}

/// In milliseconds since 1970.
fn time_of_day() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
