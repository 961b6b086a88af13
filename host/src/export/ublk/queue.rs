//! One queue of a device, at its worker.
//!
//! blkqueue.1  A request is told its end when the device below has let go of its memory, and not before. A reader's data stays where it is
//!             until the kernel has taken the end.
//! blkqueue.2  A write is decoded once its data is there, which may be less by then than was announced; never more. The driver takes no end of a write
//!             whose data it still has: so that of a write which is refused is fetched, too.
//! blkqueue.3  A request that must wait (for memory, for room in the disk's queue) waits in order with the others of its queue.
//! blkqueue.4  A device that is left for another server answers what it has begun with, and begins with nothing more.
//! blkqueue.5  Before another server takes a queue over, each request that was begun with has ended, and the kernel has taken its end. The others
//!             the kernel gives to that server, so each is done once.
//! blkqueue.6  A write for which the kernel has no memory fails, as a read does. Its data is fetched (blkqueue.2) to where that of all such
//!             writes goes, and where nobody reads it.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use fairlift_core::{Errno, Op, Outcome, StreamId};

use super::device::{BlockDevice, Descriptors, Newcomer};
use super::proto::{self, Ask};
use super::service::Tag;
use crate::disk::engine::{Engine, News};
use crate::export::Export;
use crate::export::offer::{self, BlockRequest, Offer, Refusal};
use crate::kernel::buffer::{Buffer, NoBuffer, Pages};
use crate::kernel::call::Call;
use crate::kernel::ticket::Memory;

/// A queue that was given to this worker.
pub(super) struct UblkQueue {
    pub(super) device: Arc<BlockDevice>,
    /// By which it is served.
    file: Arc<OwnedFd>,
    pub(super) export: Arc<Export>,
    number: u16,
    queue_slot: usize,
    descriptors: Descriptors,
    offer: Offer,
    stream: StreamId,
    slots: Box<[Slot]>,
    /// Commands that the kernel has.
    commands: usize,
    /// Requests that the engine has.
    serving: usize,
    /// Requests that wait, in order (blkqueue.3).
    waiting: VecDeque<u16>,
    /// The device is left for the next server (blkqueue.4).
    pub(super) left: bool,
    /// The kernel found a command wrong, and that was told.
    logged: bool,
}

/// A request, or why it cannot be served.
type Decoded = Result<BlockRequest, Refusal>;

enum Slot {
    /// The kernel has it.
    Away,
    /// There is a request, and no write.
    Requested(Decoded),
    /// There is a write of this many bytes, whose data the kernel has.
    Announced(usize),
    /// The kernel puts a write's data into this memory; `None`: there is none, and the write will fail (blkqueue.6).
    Filling(Option<Buffer>),
    /// There is a write, with its data.
    Filled(Buffer, Decoded),
    /// The engine has it; this many bytes are moved if all goes well.
    Serving(Op, i32),
}

impl UblkQueue {
    pub(super) fn new(engine: &mut Engine, newcomer: Newcomer, queue_slot: usize) -> Self {
        let Newcomer { device, export, file, number, descriptors } = newcomer;
        let depth = device.info.depth;
        let mut queue = Self {
            file,
            number,
            queue_slot,
            descriptors,
            offer: device.offer(&export),
            stream: export.add_stream(engine),
            slots: (0..depth).map(|_| Slot::Away).collect(),
            commands: 0,
            serving: 0,
            waiting: VecDeque::new(),
            left: false,
            logged: false,
            device,
            export,
        };
        (0..depth).for_each(|tag| queue.ask(engine, Ask::Fetch, tag, 0, 0));
        queue
    }

    /// The export has changed: what is asked from now on is of it as it is now.
    pub(super) fn follow(&mut self, engine: &mut Engine, export: &Arc<Export>) {
        let before = std::mem::replace(&mut self.export, Arc::clone(export));
        self.offer = self.device.offer(export);
        export.change_stream(engine, &before, self.stream);
    }

    fn ask(&mut self, engine: &mut Engine, ask: Ask, tag: u16, result: i32, addr: u64) {
        let data = Tag { queue_slot: self.queue_slot, tag }.event();
        let command = proto::command(self.number, tag, result, addr);
        // SAFETY: the file is open until `commands` is 0 again or the ring has gone. The memory that is named is a buffer's: of a
        // write it stays in its slot until this command completes, and of a read with its ticket until the kernel has taken the
        // command, which is when it copies (blkqueue.1). Or it is the front's (blkqueue.6), which goes after the ring.
        unsafe { engine.ring.push(Call::Driver { fd: self.file.as_raw_fd(), code: ask.code(), command }, data) };
        self.commands += 1;
    }

    /// The kernel has done with a command of a tag.
    pub(super) fn completed(&mut self, engine: &mut Engine, tag: u16, result: i32) {
        self.commands -= 1;
        let slot = std::mem::replace(&mut self.slots[usize::from(tag)], Slot::Away);
        match (slot, result) {
            (Slot::Filling(None), proto::REQUEST) => self.commit(engine, tag, -Errno::ENOMEM.0, None),
            (Slot::Filling(Some(buffer)), proto::REQUEST) => {
                let what = self.read(tag);
                self.slots[usize::from(tag)] = Slot::Filled(buffer, what);
                self.waiting.push_back(tag);
            }
            (slot @ (Slot::Away | Slot::Filling(_)), proto::REQUEST | proto::NEEDS_MEMORY) => {
                // It could put none of a write's data there, for lack of memory of its own, and asks anew.
                if let Slot::Filling(Some(buffer)) = slot {
                    engine.pool.put(buffer);
                }
                let write = proto::write_of(&self.descriptors.read(tag));
                self.slots[usize::from(tag)] = write.map_or_else(|| Slot::Requested(self.read(tag)), Slot::Announced);
                self.waiting.push_back(tag);
            }
            (slot, _) => {
                if let Slot::Filling(Some(buffer)) = slot {
                    engine.pool.put(buffer);
                }
                // The device has ended, or there is no more for this command.
                let is_end = [proto::REQUEST, -libc::ENODEV, -libc::ECANCELED].contains(&result);
                if !is_end && !std::mem::replace(&mut self.logged, true) {
                    let (export, queue) = (&self.export.name, self.number);
                    tracing::error!(
                        export,
                        queue,
                        tag,
                        result,
                        "ublk: the kernel has answered a command in a way that makes no sense"
                    );
                }
            }
        }
    }

    fn read(&self, tag: u16) -> Decoded {
        proto::request(&self.descriptors.read(tag), &self.offer)
    }

    /// Begins with waiting requests; whether there was something. `spill`: where the data of writes without memory goes (blkqueue.6).
    pub(super) fn go_on(&mut self, engine: &mut Engine, spill: Option<&Pages>) -> bool {
        let mut some = false;
        while !self.left
            && let Some(tag) = self.waiting.front().copied()
        {
            if !self.begin(engine, tag, spill) {
                break;
            }
            self.waiting.pop_front();
            some = true;
        }
        some
    }

    /// Whether something must wait.
    pub(super) fn is_held_back(&self) -> bool {
        !self.waiting.is_empty() && !self.left
    }

    /// Begins with a request; `false` if that must wait.
    fn begin(&mut self, engine: &mut Engine, tag: u16, spill: Option<&Pages>) -> bool {
        if engine.is_full(self.export.disk) {
            return false;
        }
        let slot = &mut self.slots[usize::from(tag)];
        let name = Tag { queue_slot: self.queue_slot, tag }.ticket();
        let (what, memory) = match slot {
            Slot::Announced(bytes) => {
                let (bytes, memory) = (*bytes, engine.pool.get_in_line(name, *bytes));
                return self.fetch(engine, (tag, bytes), memory, spill);
            }
            Slot::Requested(Ok(what)) if what.op.has_payload() => {
                match engine.pool.get_in_line(name, what.len as usize) {
                    Ok(buffer) => (Ok(*what), Memory::Pool(buffer)),
                    Err(NoBuffer::Full) => return false,
                    Err(NoBuffer::NoMemory) => {
                        self.commit(engine, tag, -Errno::ENOMEM.0, None);
                        return true;
                    }
                }
            }
            Slot::Requested(what) => (*what, Memory::None),
            Slot::Filled(..) => {
                let Slot::Filled(buffer, what) = std::mem::replace(slot, Slot::Away) else { return true };
                // blkqueue.2
                match what {
                    Ok(write) if write.op == Op::Write && write.len as usize <= buffer.bytes().len() => {
                        (what, Memory::Pool(buffer))
                    }
                    _ => {
                        engine.pool.put(buffer);
                        (what.and_then(|other| Err(Refusal::Length(other.len))), Memory::None)
                    }
                }
            }
            Slot::Away | Slot::Filling(_) | Slot::Serving(..) => return true,
        };
        match what {
            Ok(what) => self.submit(engine, tag, what, memory),
            Err(why) => {
                tracing::debug!(export = self.export.name, ?why, "ublk: refused");
                self.commit(engine, tag, -why.errno().0, None);
            }
        }
        true
    }

    /// Has a write's data come, into its own memory if there is some; `false` if that must wait.
    fn fetch(
        &mut self,
        engine: &mut Engine,
        (tag, bytes): (u16, usize),
        memory: Result<Buffer, NoBuffer>,
        spill: Option<&Pages>,
    ) -> bool {
        let buffer = match memory {
            Ok(buffer) => Some(buffer),
            Err(NoBuffer::NoMemory) if spill.is_some_and(|spill| bytes <= spill.len()) => None, // blkqueue.6
            Err(NoBuffer::NoMemory | NoBuffer::Full) => return false,
        };
        let into = buffer.as_ref().map(Buffer::as_ptr).or(spill.map(Pages::as_ptr));
        let addr = into.expect("there is a spill where there is no buffer") as u64;
        self.slots[usize::from(tag)] = Slot::Filling(buffer);
        self.ask(engine, Ask::GetData, tag, 0, addr);
        true
    }

    fn submit(&mut self, engine: &mut Engine, tag: u16, what: BlockRequest, memory: Memory) {
        let moved = if what.op.has_payload() { what.len } else { 0 };
        self.slots[usize::from(tag)] = Slot::Serving(what.op, moved as i32);
        self.serving += 1;
        let ticket = engine.admit(Tag { queue_slot: self.queue_slot, tag }.ticket(), memory);
        engine.submit(self.export.disk, what.bio(&self.export, self.stream, ticket));
    }

    /// There is news of a request. Answers the ticket if its memory is to stay until the kernel has taken what was collected.
    pub(super) fn news(&mut self, engine: &mut Engine, ticket: usize, tag: u16, news: News) -> Option<usize> {
        let outcome = offer::ended(news, &self.export, ("ublk", "kernel"))?; // blkqueue.1
        let Slot::Serving(op, moved) = self.slots[usize::from(tag)] else {
            unreachable!("news is of a request that is served");
        };
        self.serving -= 1;
        match outcome {
            Outcome::Done => {
                let at = match engine.memory(ticket) {
                    Memory::Pool(buffer) if op == Op::Read => Some(buffer.as_ptr() as u64),
                    _ => None,
                };
                self.commit(engine, tag, moved, at);
                if at.is_some() {
                    return Some(ticket);
                }
            }
            Outcome::Failed(errno) => {
                tracing::debug!(export = self.export.name, op = op.name(), errno = errno.0, "ublk: failed");
                self.commit(engine, tag, -errno.0.max(1), None);
            }
        }
        engine.release(ticket);
        None
    }

    /// Tells the kernel how a request ended, and asks for the next.
    fn commit(&mut self, engine: &mut Engine, tag: u16, result: i32, addr: Option<u64>) {
        self.slots[usize::from(tag)] = Slot::Away;
        // The kernel wants an address for every read, also where it takes nothing from there.
        let addr = addr.unwrap_or_else(|| self.descriptors.address());
        self.ask(engine, Ask::Commit, tag, result, addr);
    }

    /// Whether nothing is left to do for it: the kernel has nothing of it, or all of it is for the next server.
    pub(super) fn is_over(&self) -> bool {
        self.serving == 0 && (self.commands == 0 && self.waiting.is_empty() || self.left && self.stands_still())
    }

    /// Whether the engine has none of its requests, and the kernel none of its memory (blkqueue.5).
    pub(super) fn stands_still(&self) -> bool {
        self.serving == 0 && !self.slots.iter().any(|slot| matches!(slot, Slot::Filling(_)))
    }

    /// Gives back what it still has; it is over.
    pub(super) fn close(self, engine: &mut Engine) {
        for slot in self.slots {
            if let Slot::Filled(buffer, _) = slot {
                engine.pool.put(buffer);
            }
        }
        self.export.remove_stream(engine, self.stream);
    }
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::{engine, newcomer};
    use super::*;

    /// The kernel has a write for the first request: where shall its data be?
    fn announced(engine: &mut Engine, newcomer: Newcomer) -> UblkQueue {
        let words = [1, 8, 0, 0, 0, 0].map(u32::to_ne_bytes); // a write of 8 sectors, at the start
        rustix::io::pwrite(&newcomer.file, words.as_flattened(), 0).unwrap();
        let mut queue = UblkQueue::new(engine, newcomer, 0);
        queue.completed(engine, 0, proto::NEEDS_MEMORY);
        assert!(matches!(queue.slots[0], Slot::Announced(4096)));
        queue
    }

    /// blkqueue.6
    #[test]
    fn a_write_for_which_there_is_no_memory_fails_once_its_data_has_come() {
        let (mut engine, export) = engine();
        let mut queue = announced(&mut engine, newcomer(&export));
        let pages = Pages::new(4096);
        let spill = Some(&pages);
        assert!(!queue.fetch(&mut engine, (0, 4096), Err(NoBuffer::Full), spill), "memory will come back");
        assert!(!queue.fetch(&mut engine, (0, 4097), Err(NoBuffer::NoMemory), spill), "there is no room for it");
        assert!(queue.fetch(&mut engine, (0, 4096), Err(NoBuffer::NoMemory), spill));
        assert!(!queue.stands_still() && queue.commands == 2, "the kernel has the memory");
        queue.completed(&mut engine, 0, proto::REQUEST);
        assert!(queue.stands_still() && queue.commands == 2 && matches!(queue.slots[0], Slot::Away), "it has the end");
    }

    /// The driver has found no memory for a write's data, and asks again.
    #[test]
    fn a_write_whose_data_could_not_come_is_asked_for_anew() {
        let (mut engine, export) = engine();
        let mut queue = announced(&mut engine, newcomer(&export));
        queue.waiting.clear();
        for memory in [engine.pool.get(4096), Err(NoBuffer::NoMemory)] {
            assert!(queue.fetch(&mut engine, (0, 4096), memory, Some(&Pages::new(4096))));
            queue.completed(&mut engine, 0, proto::NEEDS_MEMORY);
            assert_eq!((queue.waiting.pop_front(), engine.pool.used()), (Some(0), 0));
            assert!(matches!(queue.slots[0], Slot::Announced(4096)));
        }
    }
}
