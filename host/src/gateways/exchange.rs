//! The exchange: once a second a gateway leaves its report, reads the others', and works out its part of the pool.
//!
//! exchange.1  It has a thread of its own, and so have the reports on their way (`mail`): a directory or a cluster that hangs stops neither
//!             the workers nor the end of the server. As long as it does, or fails, what held last goes on to hold, and the log says so
//!             once, and when it is over (gateway.3).
//! exchange.2  The first exchange is as the server starts: it has its part before its first client.
//! exchange.3  A gateway that starts and finds a report under its name waits whether another one follows: then there is a gateway of that
//!             name, and the server does not start. Where it takes over from another server that one is meant.
//! exchange.4  A gateway that ends says so in its last report, and the others have its part at once.
//! exchange.5  A period ends with a second of the time of day, and reports are read [`LATER`]. So gateways whose clocks agree tell of the same seconds,
//!             and all hear of them at once. Example: a cluster stands still for a while. That takes as much from the second of one gateway
//!             as from that of another, and shares stay. Where clocks differ each gateway has seconds of its own, and shares hold over some of them.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime};

use fairlift_core::Instant;
use fairlift_core::cost_model::Model;
use fairlift_core::gateways::{self, Note, Pool, Report, STALE};

use super::count::Count;
use super::known::Known;
use super::mail::Mail;
use super::{Carrier, open};
use crate::clock;
use crate::config::{Config, Shares};
use crate::disk::{Disk, Disks};
use crate::sync::{Mutex, lock};

/// A period. Chosen: with 100 gateways shares are within 5 % after some ten of them, and the exchange is nothing beside the pool's work.
const PERIOD: Duration = Duration::from_secs(1);
/// A carrier hangs if it has not answered for this many periods: as many as make a gateway stale.
const HANGS: u32 = STALE;
/// Between the end of a period and the reading of reports (exchange.5), the core's `LATER` of it. Chosen: a report is written within some milliseconds, and clocks
/// that are kept by NTP differ by less; Ceph warns of 50 ms.
const LATER: Duration = Duration::from_millis((PERIOD.as_millis() as f64 * gateways::LATER) as u64);
/// How long a period waits for reports. Chosen: they come within some milliseconds. From a slower carrier those of the reading
/// before count.
const SOON: Duration = Duration::from_millis(500);
/// How long the end of the server waits for the last report (exchange.4), beside a reading that is under way. Chosen.
const FAREWELL: Duration = Duration::from_millis(500);
/// How long a start waits for a second report under its name (exchange.3).
const TWIN: Duration = Duration::from_millis(1500);

pub(super) struct Exchange {
    shares: Shares,
    disk: Arc<Disk>,
    pub(super) pool: Arc<Mutex<Known>>,
    mail: Mail,
    count: Count,
    looked: Instant,
    /// Periods since reports came.
    silent: u32,
}

/// Whether a gateway of our name is there (exchange.3).
fn is_taken(carrier: &mut dyn Carrier, name: &str) -> io::Result<bool> {
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
    /// `takes_over`: another server of this gateway's name is still there.
    pub(super) fn open(shares: &Shares, disk: Arc<Disk>, takes_over: bool) -> io::Result<Self> {
        let mut carrier = open(&shares.place)?;
        if !takes_over && is_taken(&mut *carrier, &shares.gateway)? {
            let name = &shares.gateway;
            let why = format!("another gateway is called {name:?}; give this one another name (server.gateway)");
            return Err(io::Error::other(why));
        }
        let pool = Pool::new(&shares.gateway, instance());
        Ok(Self {
            shares: shares.clone(),
            disk,
            pool: Arc::new(Mutex::new(Known::new(pool))),
            mail: Mail::new(&shares.gateway, carrier)?,
            count: Count::default(),
            looked: clock::now(),
            silent: 0,
        })
    }

    /// Goes on until `stop` comes.
    pub(super) fn run(
        mut self,
        disks: &Disks,
        in_force: impl Fn() -> Option<Arc<Config>>,
        wake: impl Fn(),
        stop: &Receiver<()>,
    ) {
        let stops = |after| !matches!(stop.recv_timeout(after), Err(RecvTimeoutError::Timeout));
        let (mut later, mut patience) = (Duration::ZERO, PERIOD); // exchange.2
        loop {
            if let Some(config) = in_force() {
                self.tell(&config);
            }
            if stops(later) {
                break;
            }
            if in_force().is_some() {
                self.hear(patience);
                self.turn(disks);
            }
            wake();
            if stops(until_second(time_of_day())) {
                break;
            }
            (later, patience) = (LATER, SOON);
        }
        if in_force().is_some() {
            // exchange.4
            let last = lock(&self.pool).pool.last_report().write();
            self.mail.end(last.into_bytes(), FAREWELL);
        }
    }

    /// exchange.1, exchange.5
    fn hear(&mut self, patience: Duration) {
        let heard = self.mail.hear(patience);
        let place = &self.shares.place;
        let mut known = lock(&self.pool);
        match heard {
            Ok(Ok(reports)) => {
                self.silent = 0;
                if known.trouble.take().is_some() {
                    tracing::info!("{place}: gateways are heard of again");
                }
                known.at = Some(clock::now());
                reports.iter().for_each(|(gateway, report)| known.pool.hear(gateway, report));
                return;
            }
            Ok(Err(error)) => known.is_in_trouble(place, error.to_string()),
            Err(RecvTimeoutError::Timeout) if self.silent >= HANGS => known.is_in_trouble(place, "no answer".into()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                known.is_in_trouble(place, "the thread that carries reports has ended".into());
            }
        }
        self.silent += 1;
    }

    /// A period is over: leaves a report of it.
    fn tell(&mut self, config: &Config) {
        let now = clock::now();
        let seconds = (now.since(self.looked).as_nanos() as f64 / 1e9).max(1e-3);
        let mut counters = std::collections::BTreeMap::new();
        self.disk.counters(&mut |name, value| _ = counters.insert(name, value));
        let model = Model::of_counters(|name| counters.get(name).copied());
        let figures = self.disk.figures_by_path(now);
        let mut known = lock(&self.pool);
        let costs = known.pool.costs(model).zip(model.map(|model| model.rrandiops));
        let changed = u64::try_from(time_of_day().as_millis()).unwrap_or(u64::MAX);
        let counted = self.count.look(&figures, costs, config, seconds, changed);
        self.looked = now;
        if self.silent == 0 {
            known.pool.latencies(&self.disk.missed_by_path(now));
        }
        known.pool.count(&counted, self.disk.depth().into());
        self.mail.begin(known.pool.report().write().into_bytes());
    }

    fn turn(&mut self, disks: &Disks) {
        let mut known = lock(&self.pool);
        // gateway.3
        if self.silent == 0 {
            let turn = known.pool.turn();
            disks.take_turn(clock::now(), &self.disk, &turn);
            known.turn = turn;
        }
        known.pool.take_notes().iter().for_each(|note| self.note(note));
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

/// A number by chance.
fn instance() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    RandomState::new().build_hasher().finish()
}

fn time_of_day() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn until_second(now: Duration) -> Duration {
    PERIOD.saturating_sub(Duration::from_nanos(now.subsec_nanos() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// exchange.5
    #[test]
    fn a_period_ends_with_a_second_of_the_time_of_day() {
        for (now, left) in [(0, 1_000_000_000), (1, 999_999_999), (800_000_000, 200_000_000), (999_999_999, 1)] {
            let now = Duration::new(1_790_000_000, now);
            assert_eq!(until_second(now), Duration::from_nanos(left));
        }
        assert_eq!(LATER, Duration::from_millis(200));
    }
}
