//! A front-end that another server has handed over: what that server says of it, read and held against what is served here.
//!
//! The descriptors of a front-end have names: a record's part `descriptors` says in order what each is.
//!
//! ```text
//! {"export": "alice", "features": …, "regions": [[0, 1048576, …]], "rings": [{"size": 128, "base": 7, …}], "input": 0,
//!  "descriptors": ["socket", "memory", "tables", "kick 0", "call 0"]}
//! ```

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairlift_core::record::{Record, Unreadable};

use super::config;
use super::inflight::Inflight;
use super::memory::Shared;
use super::proto::Region;
use super::ring::Addresses;
use super::socket::Socket;
use crate::access::{Entry, Peer};
use crate::export::hold::HeldClient;
use crate::export::service::{Exports, Service};
use crate::export::{Export, listen};

/// A front-end as another server has described it, with its guest's memory mapped.
pub(super) struct Resumed {
    pub(super) export: Arc<Export>,
    pub(super) peer: Peer,
    pub(super) entry: Entry,
    pub(super) since: SystemTime,
    pub(super) socket: Socket,
    pub(super) requests: Option<Socket>,
    /// The features that were agreed: the guest's, and the protocol's.
    pub(super) features: (u64, u64),
    pub(super) write_back: bool,
    pub(super) shared: Option<Shared>,
    pub(super) tables: Option<Inflight>,
    pub(super) rings: Vec<HandedRing>,
}

/// A ring as the front-end has described it, and where the previous server has stopped in it.
#[derive(Default)]
pub(super) struct HandedRing {
    pub(super) size: u16,
    pub(super) base: u16,
    pub(super) addresses: Option<Addresses>,
    pub(super) enabled: bool,
    pub(super) kick: Option<OwnedFd>,
    pub(super) call: Option<OwnedFd>,
}

/// Descriptors by purpose.
#[derive(Default)]
pub(super) struct Named {
    names: Vec<String>,
    descriptors: Vec<OwnedFd>,
}

impl Named {
    /// One more, once again.
    ///
    /// # Errors
    /// The process has too many open.
    pub(super) fn add(&mut self, name: impl Into<String>, descriptor: BorrowedFd<'_>) -> Result<(), String> {
        self.descriptors.push(descriptor.try_clone_to_owned().map_err(|error| error.to_string())?);
        self.names.push(name.into());
        Ok(())
    }

    /// A client of them, as it is handed over.
    pub(super) fn client(self, mut says: Record, bytes: Vec<u8>) -> HeldClient {
        says.put("descriptors", &self.names);
        HeldClient { descriptors: self.descriptors, says, bytes }
    }

    fn read(says: &mut Record, descriptors: Vec<OwnedFd>) -> Result<Self, String> {
        let names: Vec<String> = says.need("descriptors").map_err(|why| why.to_string())?;
        match names.len() == descriptors.len() {
            true => Ok(Self { names, descriptors }),
            false => Err(format!("{} of {} descriptors came", descriptors.len(), names.len())),
        }
    }

    /// The first of a name.
    fn take(&mut self, name: &str) -> Option<OwnedFd> {
        let at = self.names.iter().position(|there| there == name)?;
        self.names.remove(at);
        Some(self.descriptors.remove(at))
    }

    fn take_all(&mut self, name: &str) -> Vec<OwnedFd> {
        std::iter::from_fn(|| self.take(name)).collect()
    }
}

/// One thing of this protocol that a server hands over.
pub(super) enum Handed {
    /// The socket at which front-ends of an export connect.
    Listener(String, OwnedFd),
    FrontEnd(Box<Resumed>),
}

impl Handed {
    /// Reads what another server hands over. Parts that are not known are told.
    ///
    /// # Errors
    /// It cannot be served here.
    pub(super) fn read(held: HeldClient, service: &Service) -> Result<Self, String> {
        let HeldClient { descriptors, mut says, bytes } = held;
        let name: String = says.need("export").map_err(|why| why.to_string())?;
        let fail = |why: String| format!("a virtual machine at export {name:?}: {why}");
        let mut named = Named::read(&mut says, descriptors).map_err(fail)?;
        if let Some(listener) = named.take("door") {
            return Ok(Self::Listener(name, listener));
        }
        let socket = named.take("socket").ok_or_else(|| fail("its socket did not come".into()))?;
        let resumed = Resumed::read((&name, socket), &mut says, &mut named, bytes, &service.exports()).map_err(fail)?;
        for part in says.rest().chain(named.names.iter().map(String::as_str)) {
            tracing::warn!(export = name, part, "the previous server sent an unknown field, which is ignored");
        }
        Ok(Self::FrontEnd(Box::new(resumed)))
    }
}

impl Resumed {
    fn read(
        (name, fd): (&str, OwnedFd),
        says: &mut Record,
        named: &mut Named,
        bytes: Vec<u8>,
        exports: &Exports,
    ) -> Result<Self, String> {
        let unreadable = |why: Unreadable| why.to_string();
        let export = exports.list.iter().find(|export| export.name == name).ok_or("it would not be served")?;
        let mut peer = listen::peer(&fd, says.need("listener").map_err(unreadable)?);
        let cgroup = says.take::<Option<String>>("cgroup").unwrap_or_default().flatten();
        peer.cgroup = cgroup.and_then(|path| path.parse().ok());
        listen::learn_cgroup(fd.as_fd(), &exports.access, &mut peer);
        let entry = exports.access.of(&peer).enter(&export.name, &export.path);
        let entry = entry.ok_or("it could not open it again: see [client]")?;
        let millis = says.take::<Option<u64>>("since_ms").unwrap_or_default().flatten();
        let since = millis.map_or_else(SystemTime::now, |millis| UNIX_EPOCH + Duration::from_millis(millis));
        let mut number = |part: &str| says.need::<u64>(part).map_err(unreadable);
        let features = (number("features")?, number("protocol_features")?);
        let write_back = says.need("write_back").map_err(unreadable)?;
        let regions: Option<Vec<[u64; 4]>> = says.take("regions").map_err(unreadable)?;
        let shared = regions.map(|regions| {
            let region = |[guest, size, user, offset]: [u64; 4]| Region { guest, size, user, offset };
            let (regions, files): (Vec<_>, _) = (regions.into_iter().map(region).collect(), named.take_all("memory"));
            match regions.len() == files.len() {
                true => Shared::map(regions, files),
                false => Err(format!("{} of {} files of its memory came", files.len(), regions.len())),
            }
        });
        let tables = named.take("tables").map(|file| {
            let (offset, queues, size) = says.need("tables").map_err(unreadable)?;
            config::check_tables(queues, size)?;
            Inflight::open(file, offset, queues, size)
        });
        let rings: Vec<Record> = says.need("rings").map_err(unreadable)?;
        if rings.len() > config::RINGS_MAX {
            return Err(format!("it has {} rings, and a device here at most {}", rings.len(), config::RINGS_MAX));
        }
        let ring = |(number, mut ring): (usize, Record)| {
            Ok(HandedRing {
                size: ring.need("size")?,
                base: ring.need("base")?,
                addresses: ring.take("addresses")?,
                enabled: ring.need("enabled")?,
                kick: named.take(&format!("kick {number}")),
                call: named.take(&format!("call {number}")),
            })
        };
        let rings = rings.into_iter().enumerate().map(ring).collect::<Result<_, _>>().map_err(unreadable)?;
        Ok(Self {
            export: Arc::clone(export),
            peer,
            entry,
            since,
            socket: Socket::resume(fd, bytes, named.take_all("message")),
            requests: named.take("requests").map(Socket::new),
            features,
            write_back,
            shared: shared.transpose()?,
            tables: tables.transpose()?,
            rings,
        })
    }
}
