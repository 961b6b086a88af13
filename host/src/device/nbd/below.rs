//! Below: an export of another server that overlays lie over, read by threads that wait.
//!
//! A thousand overlays may share one base, and each has a lane of it at each worker. The connections of [`lane`](super::lane) are each a worker's,
//! and cannot be shared so. The base is only read, and its hot data is often in the tops; so helper threads ask and wait.
//!
//! below.1  A read takes a connection that nobody uses, or makes one, up to as many as the backing has (`connections`); others wait for one.
//!          A server may take fewer: a read that gets no more waits for those that there are.
//! below.2  A read whose connection was lost is asked again by a new one, until `reconnect` has passed. A server that is found again must have at least
//!          the size that it had.
//! below.3  An error that the server has answered is the client's.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, PoisonError};
use std::time::{Duration, Instant};

use fairlift_core::{Errno, Limits, Op, Sector};

use super::connect::{Established, connect};
use super::syntax::Nbd;
use super::{ATTEMPT, NO_FASTER};
use crate::device::by_threads::ByThreads;
use crate::device::file::faults::Faults;
use crate::device::handed::OpenFile;
use crate::device::lane::{Address, Lane};
use crate::device::{Device, Facts, Fault, Store};
use crate::sync::{Mutex, lock};
use crate::wire::nbd::greeting::Offer;
use crate::wire::nbd::{Command, FLAG_ROTATIONAL};

/// How long a read may take. Chosen: as an export's requests (`io_timeout`) by default.
const ANSWER: Duration = Duration::from_secs(30);
/// The largest block that a server may ask for: an overlay reads blocks of this.
const BLOCK_MAX: u32 = 4096;

pub(super) struct RemoteBase {
    nbd: Nbd,
    offer: Offer,
    connections: Mutex<Connections>,
    /// A connection was given back, or is one less.
    freed: Condvar,
    faults: Faults,
}

#[derive(Default)]
struct Connections {
    idle: Vec<Established>,
    /// With those that are in use.
    count: usize,
    /// Those that are being made.
    tried: usize,
    /// As many as there may be: fewer once the server has taken no more, until one is lost.
    most: usize,
}

impl RemoteBase {
    pub(super) fn open(nbd: &Nbd) -> Result<Self, String> {
        let first = connect(nbd, ATTEMPT)?;
        let offer = first.offer.clone();
        if offer.size == 0 || offer.block_min > BLOCK_MAX {
            let Offer { size, block_min, .. } = offer;
            return Err(format!(
                "it has {size} bytes in blocks of {block_min}: a base has at least one, in blocks of at most {BLOCK_MAX}"
            ));
        }
        let connections =
            Mutex::new(Connections { idle: vec![first], count: 1, tried: 0, most: nbd.connections.into() });
        let freed = Condvar::new();
        Ok(Self { nbd: nbd.clone(), offer, connections, freed, faults: Faults::default() })
    }

    /// below.1
    fn take(&self) -> io::Result<Established> {
        let mut connections = lock(&self.connections);
        loop {
            if let Some(one) = connections.idle.pop() {
                return Ok(one);
            }
            if connections.count + connections.tried >= connections.most {
                connections = self.freed.wait(connections).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            connections.tried += 1;
            drop(connections);
            let made = connect(&self.nbd, ATTEMPT).and_then(|one| match one.offer.size {
                size if size >= self.offer.size => Ok(one),
                size => Err(format!("it had {} bytes and has {size}", self.offer.size)), // below.2
            });
            connections = lock(&self.connections);
            connections.tried -= 1;
            match made {
                Ok(one) => {
                    connections.count += 1;
                    return Ok(one);
                }
                Err(why) if connections.count == 0 => {
                    self.freed.notify_one();
                    return Err(io::Error::other(why));
                }
                Err(_) => connections.most = connections.count,
            }
        }
    }

    /// A connection, or `None`: it was lost.
    fn give_back(&self, one: Option<Established>) {
        let mut connections = lock(&self.connections);
        match one {
            Some(one) => connections.idle.push(one),
            None => (connections.count, connections.most) = (connections.count - 1, self.nbd.connections.into()),
        }
        drop(connections);
        self.freed.notify_one();
    }

    /// below.2, below.3
    fn read_piece(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let end = Instant::now() + Duration::from_nanos(self.nbd.reconnect.as_nanos());
        loop {
            let answer = self.take().and_then(|mut one| {
                let answer = one.ask(Command::Read, at, into, ANSWER);
                self.give_back(answer.is_ok().then_some(one));
                answer
            });
            match answer {
                Ok(answer) => return answer.map_err(|errno| io::Error::from_raw_os_error(errno.0)),
                Err(error) if Instant::now() >= end => {
                    tracing::warn!(base = %self.nbd.uri, %error, "a base cannot be read");
                    return Err(io::Error::from_raw_os_error(libc::EIO));
                }
                Err(error) => {
                    tracing::debug!(base = %self.nbd.uri, %error, "a read is asked again");
                    std::thread::sleep(NO_FASTER);
                }
            }
        }
    }
}

impl Store for RemoteBase {
    fn read_at(&self, into: &mut [u8], mut at: u64) -> io::Result<()> {
        let within = into.len().min(usize::try_from(self.offer.size.saturating_sub(at)).unwrap_or(usize::MAX));
        let (into, beyond) = into.split_at_mut(within);
        beyond.fill(0);
        let most = self.offer.block_max.max(BLOCK_MAX) as usize / BLOCK_MAX as usize * BLOCK_MAX as usize;
        for piece in into.chunks_mut(most) {
            self.read_piece(at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.offer.size)
    }
}

impl Drop for RemoteBase {
    fn drop(&mut self) {
        lock(&self.connections).idle.drain(..).for_each(Established::leave);
    }
}

impl Device for RemoteBase {
    fn facts(&self) -> Facts {
        let block = (self.offer.block_min / Sector::SIZE as u32).max(1);
        let limits = Limits { block, ..Limits::new(self.offer.size.div_ceil(Sector::SIZE)) };
        let rotational = self.offer.has(FLAG_ROTATIONAL);
        let home = Some(self.nbd.address.home());
        Facts { limits, home, rotational, read_only: true, needs_helpers: true, ..Facts::plain(self.offer.size) }
    }

    fn called(&self) -> String {
        self.nbd.uri.clone()
    }

    fn lane(self: Arc<Self>, address: Address) -> Box<dyn Lane> {
        Box::new(ByThreads::new(self, address))
    }

    /// It is read, so another server has connections of its own.
    fn hand_over(self: Arc<Self>) -> Result<Vec<OpenFile>, String> {
        Ok(Vec::new())
    }

    fn failed(&self, op: Op, errno: Errno) {
        self.faults.failed(Path::new(&self.nbd.uri), op, errno);
    }

    fn take_faults(&self) -> VecDeque<Fault> {
        self.faults.take()
    }

    fn path(&self) -> Option<&Path> {
        Some(Path::new(&self.nbd.uri))
    }
}
