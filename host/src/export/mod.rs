//! Ways in for clients, one folder for each protocol.

pub(crate) mod allowed;
pub(crate) mod clients;
pub(crate) mod flatten;
pub(crate) mod front;
pub(crate) mod hold;
pub(crate) mod listen;
pub(crate) mod listeners;
pub mod nbd;
pub mod offer;
pub(crate) mod present;
pub(crate) mod program;
pub(crate) mod service;
pub mod ublk;
pub mod vhost_user;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlift_core::stats::Stats;
use fairlift_core::{Extent, GroupId, Op, Priority, Sector, Stream, StreamId};

use crate::access::Right;
use crate::device::{Device, Facts};
use crate::disk::engine::Engine;
use crate::sync::{Mutex, lock};

/// How clients leave an export that is removed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Leave {
    /// Their requests are finished and answered; then their connections are closed.
    #[default]
    Drain,
    /// Their connections are closed at once.
    Cut,
}

/// The present form of an export: a change makes another of these, with the same life.
#[derive(Clone)]
pub(crate) struct Export {
    /// Which export it is, whatever its name; a removed one's number never comes again.
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) description: String,
    /// The index of its disk.
    pub(crate) disk: usize,
    pub(crate) device: Arc<dyn Device>,
    /// Where on the disk it starts.
    pub(crate) start: Sector,
    /// Where on the device it starts, in bytes.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) read_only: bool,
    pub(crate) group: GroupId,
    /// The path of this group.
    pub(crate) path: Arc<str>,
    pub(crate) priority: Priority,
    pub(crate) facts: Facts,
    /// The counters of closed connections, if there were any; a changed export keeps them.
    pub(crate) stats: Arc<Mutex<Option<Box<Stats>>>>,
}

impl Export {
    /// The sectors of a range of bytes. A flush has none, but a place: it says which of the disk's backings is meant.
    #[inline]
    fn extent(&self, op: Op, at: u64, len: u64) -> Extent {
        match op {
            Op::Flush => Extent::new(self.start, 0),
            _ => Extent::new(Sector(self.start.0 + at / Sector::SIZE), len / Sector::SIZE),
        }
    }

    fn stream(&self, engine: &Engine) -> Stream {
        Stream { group: self.group, priority: self.priority, context: engine.context }
    }

    /// A client has come to a worker.
    fn add_stream(&self, engine: &mut Engine) -> StreamId {
        engine.add_stream(self.disk, self.stream(engine))
    }

    /// The export of a client was `before` until now.
    fn change_stream(&self, engine: &mut Engine, before: &Self, stream: StreamId) {
        if (before.group, before.priority) != (self.group, self.priority) {
            engine.change_stream(engine.now, self.disk, stream, self.stream(engine));
        }
    }

    /// A client has left: its counters stay.
    fn remove_stream(&self, engine: &mut Engine, stream: StreamId) {
        let stats = engine.remove_stream(self.disk, stream);
        lock(&self.stats).get_or_insert_default().add(&stats);
    }
}

/// An export as a client with limited rights has it.
fn narrowed(export: &Arc<Export>, right: Right) -> Arc<Export> {
    match right {
        Right::Read if !export.read_only => Arc::new(Export { read_only: true, ..Export::clone(export) }),
        Right::Read | Right::Write => Arc::clone(export),
    }
}

/// Tries something again, with a pause in between, while it fails in a way that may pass and the time is not over.
fn patiently<T>(
    (patience, pause): (Duration, Duration),
    may_pass: impl Fn(&io::Error) -> bool,
    mut work: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let until = Instant::now() + patience;
    loop {
        match work() {
            Err(error) if Instant::now() < until && may_pass(&error) => std::thread::sleep(pause),
            result => return result,
        }
    }
}

/// A block device of this machine that an export is, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceView {
    /// The name of its export.
    pub export: String,
    /// Where it is: `/dev/ublkb0`.
    pub path: String,
    /// Its other name: `/dev/fairlift/alice`.
    pub link: Option<String>,
    /// Whether it is there.
    pub live: bool,
    /// Whether a previous server had made it.
    pub recovered: bool,
    /// How many queues it has.
    pub queues: u16,
    /// Requests that each of them can have.
    pub depth: u16,
}
