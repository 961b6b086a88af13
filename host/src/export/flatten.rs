//! Flatten: disks that have reached the limit on layers are flattened, as if a client of theirs did it.
//!
//! A disk was forked seven times, and the next fork would be refused. The layers between its top and its base are copied into the top, one
//! request after the other, and then its top lies over the base. This is a client like others, that is in the server: it has a stream of its
//! own in the group of the export, of the idle class, so that the tenant pays and nobody waits for it. Example: with 50 MiB to be copied 800
//! writes of 64 KiB are made, each when the disk has nothing else to do.
//!
//! level.1  One worker does it. An export that is removed, or a server that ends, waits for one request or for the last step, and for no more;
//!          copied blocks are not copied again.
//! level.2  A disk is left as it is if a copy fails, and the log says why: the next refused fork tries again.
//! level.3  While clients are held for another server nothing is copied, and they stand still once no copy is under way. That server goes on.

use std::io;
use std::sync::Arc;

use fairlift_core::{Bio, Errno, Extent, Flags, Op, Outcome, Priority, PriorityClass, Sector, Stream, StreamId, Token};
use slab::Slab;

use super::Export;
use super::front::{Clients, Front, OF_TICKET, Protocol};
use super::hold::HeldClient;
use super::service::{Exports, Service};
use crate::disk::engine::{Engine, News};
use crate::kernel::abort::AbortOnPanic;
use crate::kernel::ticket::Memory;
use crate::sync::{Mutex, lock};

pub(crate) struct Flattening;

impl Protocol for Flattening {
    const NUMBER: u64 = 3;

    type Clients = Deep;

    fn new(_service: &Arc<Service>) -> Self {
        Self
    }

    fn clients(self: &Arc<Self>, _engine: &mut Engine) -> io::Result<Deep> {
        Ok(Deep(Slab::new()))
    }
}

/// The disks that a worker flattens.
pub(crate) struct Deep(Slab<One>);

/// A disk that is flattened.
struct One {
    export: Arc<Export>,
    stream: StreamId,
    /// Up to where it has been copied, on the device.
    at: u64,
    /// The export goes, or the server.
    leaves: bool,
    step: Step,
}

enum Step {
    Next,
    /// A copy is under way; whether it has failed.
    Copies(Option<Errno>),
    /// A thread does the last step, and says here how it went.
    Ends(Arc<Mutex<Option<Result<bool, String>>>>),
}

fn stream_of(export: &Export, engine: &Engine) -> Stream {
    let priority = Priority { class: PriorityClass::Idle, ..Priority::default() };
    Stream { group: export.group, priority, context: engine.context }
}

impl One {
    /// Goes on if it can; whether it is there still.
    fn goes_on(&mut self, engine: &mut Engine, key: usize) -> Result<bool, String> {
        match &self.step {
            Step::Copies(_) => return Ok(true),
            Step::Ends(result) => {
                let Some(result) = lock(result).take() else { return Ok(true) };
                if result? {
                    tracing::info!(export = self.export.name, "flattened");
                    return Ok(false);
                }
                (self.at, self.step) = (0, Step::Next); // it was forked meanwhile
            }
            Step::Next => {}
        }
        if self.leaves {
            return Ok(false);
        }
        if engine.holds {
            return Ok(true); // level.3
        }
        match self.export.device.next_to_copy_up(self.at) {
            Some((at, len)) => self.copy(engine, key, at, len),
            None => self.end(engine)?,
        }
        Ok(true)
    }

    fn copy(&mut self, engine: &mut Engine, key: usize, at: u64, len: u64) {
        (self.at, self.step) = (at + len, Step::Copies(None));
        let ticket = engine.admit(Flattening::NUMBER << OF_TICKET | key as u64, Memory::None);
        // Of the whole device, whatever of it the export has.
        let start = Sector(self.export.start.0 + at / Sector::SIZE - self.export.offset / Sector::SIZE);
        let extent = Extent::new(start, len.div_ceil(Sector::SIZE));
        let bio =
            Bio { op: Op::Write, flags: Flags::COPY_UP, extent, stream: self.stream, token: Token(ticket as u64) };
        engine.submit(self.export.disk, bio);
    }

    /// The last step waits for the disk, and for all workers: no worker does it.
    fn end(&mut self, engine: &Engine) -> Result<(), String> {
        engine.is_flushed(self.export.disk, &self.export.device)?; // or a copy may be lost
        let result = Arc::new(Mutex::new(None));
        self.step = Step::Ends(Arc::clone(&result));
        let (device, tell, wake) = (Arc::clone(&self.export.device), engine.teller(), engine.waker());
        let work = move || {
            let _guard = AbortOnPanic; // or it would never end
            *lock(&result) = Some(device.flatten(&tell));
            drop(device);
            wake();
        };
        let thread = std::thread::Builder::new().name("flatten".to_owned()).spawn(work);
        thread.map(drop).map_err(|error| format!("no thread can be made: {error}"))
    }
}

impl Front for Deep {
    fn news(&mut self, engine: &mut Engine, ticket: usize, news: News) {
        let key = engine.owner(ticket) & !(Flattening::NUMBER << OF_TICKET);
        let one = &mut self.0[key as usize];
        let Step::Copies(failed) = &mut one.step else { unreachable!("news of a copy that is not under way") };
        match news {
            News::TimedOut => {
                *failed = Some(Errno::ETIMEDOUT);
                return; // `Released` will follow
            }
            News::Ended(Outcome::Failed(errno)) => *failed = Some(errno),
            News::Ended(Outcome::Done) | News::Released => {}
        }
        if let Some(errno) = *failed {
            let name = &one.export.name;
            tracing::warn!(export = name, %errno, "cannot be flattened: the layers between its top and its base were not copied completely");
            one.leaves = true;
        }
        one.step = Step::Next;
        engine.release(ticket);
    }

    fn go_on(&mut self, engine: &mut Engine) -> bool {
        let mut requested = false;
        self.0.retain(|key, one| {
            let before = matches!(one.step, Step::Next) && !engine.holds;
            let stays = one.goes_on(engine, key).unwrap_or_else(|why| {
                tracing::warn!(export = one.export.name, why, "cannot be flattened");
                false
            });
            requested |= before;
            if !stays {
                engine.remove_stream(one.export.disk, one.stream);
            }
            stays
        });
        requested
    }

    fn is_over(&self, _engine: &Engine) -> bool {
        self.0.is_empty()
    }
}

impl Clients for Deep {
    fn follow(&mut self, engine: &mut Engine, exports: &Exports) {
        if engine.context.0 != 0 || engine.drains.is_some() {
            return; // level.1
        }
        for (_, one) in &mut self.0 {
            match exports.get(one.export.id) {
                None => one.leaves = true,
                Some(export) if Arc::ptr_eq(export, &one.export) => {}
                Some(export) => {
                    let before = std::mem::replace(&mut one.export, Arc::clone(export));
                    if before.group != export.group {
                        engine.change_stream(engine.now, export.disk, one.stream, stream_of(export, engine));
                    }
                }
            }
        }
        for export in &exports.list {
            let is_known = |(_, one): (usize, &One)| !one.leaves && Arc::ptr_eq(&one.export.device, &export.device);
            if self.0.iter().any(is_known) || !export.device.is_to_be_flattened() {
                continue;
            }
            tracing::info!(export = export.name, "the limit on layers is reached: they are flattened");
            let stream = engine.add_stream(export.disk, stream_of(export, engine));
            self.0.insert(One { export: Arc::clone(export), stream, at: 0, leaves: false, step: Step::Next });
        }
    }

    fn drain(&mut self, _engine: &mut Engine) {
        self.0.iter_mut().for_each(|(_, one)| one.leaves = true);
    }

    fn held(&mut self, _engine: &mut Engine) -> Option<Result<Vec<HeldClient>, String>> {
        let is_still = self.0.iter().all(|(_, one)| matches!(one.step, Step::Next));
        is_still.then(|| Ok(Vec::new()))
    }
}
