//! A ring of requests between a guest and us (a virtqueue).
//!
//! The guest puts the heads of chains into the available ring and kicks; we put them into the used ring when they have ended,
//! and call. `virtio-queue` knows the indices of both rings and when the other side wants to be told; a chain is read by
//! [`chain`](super::chain).
//!
//! ring.1  A head is in use from the moment that it is taken until it is in the used ring. A guest that offers it again in
//!         between is out of step.
//! ring.2  Before the worker sleeps the guest is asked to kick, and the available ring is looked at after that. While the worker is
//!         awake it looks at the ring by itself: a kick costs the guest an exit from the virtual machine, and us a system call.
//! ring.3  The guest is called once when a ring is taken up. A server that was killed may have put something into the used ring and
//!         not called: the guest would wait for ever, with nothing under way.
//! ring.4  In a turn of the worker a guest is told of at most some two rings' worth of ends. A guest that offers requests without end that
//!         are answered at once (the disk's name) would else keep the worker to itself.
//! ring.5  An impossible content of a ring is an error after a kick, and ignored without one. The problem: firmware leaves its rings to a
//!         kernel that has not yet reset the devices, and may have other uses for that memory; a ring that is looked at without a kick then
//!         seemed to offer 60,000 requests, and the guest lost its disk. A ring that is taken up was not kicked either, nor when its kick
//!         is heard first: QEMU hands that descriptor over with a kick of its own. On a busy machine we come to it when the firmware has
//!         gone already.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fairlift_core::{Op, StreamId};
use virtio_queue::{Queue, QueueOwnedT as _, QueueT as _};
use vm_memory::{Bytes as _, GuestAddress};

use super::config::RING_SIZE_MAX;
use super::inflight::{Inflight, Table};
use super::memory::Shared;
use crate::kernel::lent::Machine;
use crate::kernel::ticket::Guest;

/// Where the front-end says that a ring is, by its own addresses: descriptors, available, used.
pub(super) type Addresses = [u64; 3];

/// A ring that runs.
pub(super) struct Ring {
    queue: Queue,
    addresses: Addresses,
    pub(super) memory: Arc<Machine>,
    pub(super) stream: StreamId,
    /// By head: what is under way.
    slots: Box<[Option<Slot>]>,
    pub(super) in_flight: u16,
    /// Requests that the previous server had not ended.
    pub(super) again: VecDeque<u16>,
    /// Taken from the available ring, in order, and not begun with.
    waiting: VecDeque<u16>,
    table: Option<Table>,
    /// The available ring is to be looked at.
    pub(super) look: bool,
    /// The guest was asked to kick when there is more.
    pub(super) listening: bool,
    /// Ends that the guest was told of since it was last decided whether to call it.
    ended: u16,
    /// The guest is called whether or not it asked for that (ring.3).
    pub(super) owes_call: bool,
}

pub(super) struct Slot {
    pub(super) op: Op,
    pub(super) status: GuestAddress,
    /// Bytes that the device writes if all goes well.
    pub(super) written: u32,
    /// Where the data is in the guest, if it goes through a buffer of ours.
    pub(super) bounce: Option<Guest>,
}

impl Ring {
    /// Takes up a ring: at `base`, or where a previous server left it.
    pub(super) fn start(
        shared: &Shared,
        addresses: Addresses,
        (size, base): (u16, u16),
        event_index: bool,
        tables: Option<(&Arc<Inflight>, usize)>,
        stream: StreamId,
    ) -> Result<Self, String> {
        let mut queue = Queue::new(RING_SIZE_MAX).expect("the largest ring is a power of two");
        queue.set_event_idx(event_index);
        queue.try_set_size(size).map_err(|error| error.to_string())?;
        let mut ring = Self {
            queue,
            addresses,
            memory: Arc::clone(&shared.guest),
            stream,
            slots: (0..size).map(|_| None).collect(),
            in_flight: 0,
            again: VecDeque::new(),
            waiting: VecDeque::new(),
            table: None,
            look: false,
            listening: false,
            ended: 0,
            owes_call: true,
        };
        ring.move_to(shared)?;
        let used = ring.queue.used_idx(&**ring.memory, Ordering::Acquire).map_err(|error| error.to_string())?.0;
        ring.queue.set_next_used(used);
        ring.queue.set_next_avail(base);
        if let Some((tables, number)) = tables.filter(|(tables, number)| tables.has(*number, size)) {
            let (table, again) = Table::take_over(tables, number, size, used);
            ring.queue.set_next_avail(used.wrapping_add(again.len() as u16));
            ring.table = Some(table);
            ring.again = again.into();
        }
        ring.look = ring.offers();
        Ok(ring)
    }

    /// The guest's memory is mapped elsewhere now.
    pub(super) fn move_to(&mut self, shared: &Shared) -> Result<(), String> {
        let [descriptors, available, used] = self.addresses.map(|address| shared.translate(address));
        let queue = &mut self.queue;
        queue.try_set_desc_table_address(descriptors?).map_err(|error| error.to_string())?;
        queue.try_set_avail_ring_address(available?).map_err(|error| error.to_string())?;
        queue.try_set_used_ring_address(used?).map_err(|error| error.to_string())?;
        queue.set_ready(true);
        if !queue.is_valid(&**shared.guest) {
            return Err(format!("a ring of {} does not fit the memory that is shared", queue.size()));
        }
        self.memory = Arc::clone(&shared.guest);
        Ok(())
    }

    pub(super) fn descriptors(&self) -> (GuestAddress, u16) {
        (GuestAddress(self.queue.desc_table()), self.queue.size())
    }

    /// Where another server would go on, once nothing is under way.
    pub(super) fn base(&self) -> u16 {
        self.queue.next_avail().wrapping_sub(self.waiting.len() as u16)
    }

    pub(super) fn next(&mut self) -> Result<Option<u16>, String> {
        loop {
            if let Some(head) = self.again.front().or(self.waiting.front()) {
                return Ok(Some(*head));
            }
            if !self.look || self.ended >= self.queue.size() {
                return Ok(None); // ring.4
            }
            let new = self.queue.iter(&**self.memory).map_err(|error| error.to_string())?;
            self.waiting.extend(new.map(|chain| chain.head_index()));
            if self.waiting.is_empty() {
                self.look = false;
            } else {
                self.listening = false;
            }
        }
    }

    /// Whether the guest has put something into the ring that was not looked at; it is looked at then.
    pub(super) fn has_more(&mut self) -> bool {
        if self.has_waiting() {
            return false; // It goes on once there is memory or room.
        }
        self.look |= self.offers();
        self.look
    }

    /// Whether the guest offers something that it can offer (ring.5).
    fn offers(&self) -> bool {
        let index = self.queue.avail_idx(&**self.memory, Ordering::Acquire);
        index.is_ok_and(|index| (1..=self.queue.size()).contains(&index.0.wrapping_sub(self.queue.next_avail())))
    }

    /// Asks the guest to kick when there is more; whether there is more already (ring.2).
    pub(super) fn listen(&mut self) -> bool {
        if self.has_waiting() {
            return false;
        }
        if !std::mem::replace(&mut self.listening, true) {
            self.look |= self.queue.enable_notification(&**self.memory).unwrap_or(true) && self.offers();
        }
        self.look
    }

    /// Whether there is something that was taken from the ring and not begun with.
    fn has_waiting(&self) -> bool {
        !(self.waiting.is_empty() && self.again.is_empty())
    }

    /// The next head was begun with: what is under way, unless it has ended already.
    pub(super) fn took(&mut self, head: u16) -> Result<(), String> {
        // A repeated request is in the table already.
        if self.again.pop_front().is_none() {
            self.waiting.pop_front();
            let slot = self.slots.get(usize::from(head)).ok_or_else(|| format!("it has no descriptor {head}"))?;
            if slot.is_some() {
                return Err(format!("the guest offers request {head} again, which has not ended")); // ring.1
            }
            if let Some(table) = &mut self.table {
                table.took(head);
            }
        }
        Ok(())
    }

    /// A head that was taken is under way.
    pub(super) fn begin(&mut self, head: u16, slot: Slot) {
        self.slots[usize::from(head)] = Some(slot);
        self.in_flight += 1;
    }

    /// The requests under way have ended.
    pub(super) fn end(&mut self, head: u16) -> Slot {
        self.in_flight -= 1;
        self.slots[usize::from(head)].take().expect("news is of a request in flight")
    }

    /// Tells the guest how a request ended, and how many bytes were written.
    pub(super) fn tell(&mut self, head: u16, at: GuestAddress, status: u8, written: u32) -> Result<(), String> {
        let stored = self.memory.write_obj(status, at);
        stored.map_err(|_| format!("the status of a request, at {:#x}, is not in the guest's memory", at.0))?;
        if let Some(table) = &self.table {
            table.ending(head);
        }
        self.queue.add_used(&**self.memory, head, written).map_err(|error| error.to_string())?;
        if let Some(table) = &self.table {
            table.ended(head, self.queue.next_used());
        }
        self.ended = self.ended.saturating_add(1);
        Ok(())
    }

    pub(super) fn calls(&mut self) -> Result<bool, String> {
        let owes = std::mem::take(&mut self.owes_call);
        if std::mem::take(&mut self.ended) == 0 {
            return Ok(owes);
        }
        let asks = self.queue.needs_notification(&**self.memory).map_err(|error| error.to_string())?;
        Ok(asks || owes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::super::proto::Region;
    use super::*;

    const SIZE: u16 = 4;
    const AVAILABLE: u64 = 0x1000;
    const USED: u64 = 0x2000;
    const STATUS: GuestAddress = GuestAddress(0x3000);

    fn guest() -> Shared {
        let file: OwnedFd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 0x4000).unwrap();
        let region = Region { guest: 0, size: 0x4000, user: 0, offset: 0 };
        Shared::map(vec![region], vec![file]).unwrap()
    }

    fn ring_of(guest: &Shared) -> Ring {
        Ring::start(guest, [0, AVAILABLE, USED], (SIZE, 0), true, None, StreamId(0)).unwrap()
    }

    fn ring() -> Ring {
        ring_of(&guest())
    }

    /// The guest says that it has offered `heads`, all of them request 0.
    fn offer(ring: &Ring, heads: u16) {
        ring.memory.store(heads.to_le(), GuestAddress(AVAILABLE + 2), Ordering::Relaxed).unwrap();
    }

    /// ring.4
    #[test]
    fn a_guest_that_offers_without_end_is_told_a_rings_worth_in_a_turn() {
        let mut ring = ring();
        let mut taken = 0;
        for turn in 0..3 {
            let before = taken;
            offer(&ring, taken + 2);
            assert!(ring.has_more());
            loop {
                // While the worker is at it, and as fast as it goes.
                offer(&ring, taken + 2);
                let Some(head) = ring.next().unwrap() else { break };
                ring.took(head).unwrap();
                ring.tell(head, STATUS, 0, 1).unwrap();
                taken += 1;
                assert!(taken - before <= 2 * SIZE, "turn {turn} does not end");
            }
            assert!(taken - before >= SIZE && ring.has_more(), "and there is more for the next turn");
            ring.calls().unwrap();
        }
    }

    /// ring.5
    #[test]
    fn what_cannot_be_in_a_ring_is_an_error_once_the_guest_has_kicked() {
        let mut ring = ring();
        assert!(ring.next().unwrap().is_none());
        offer(&ring, SIZE + 1);
        assert!(!ring.has_more() && !ring.listen(), "nobody has kicked");
        assert!(ring.next().unwrap().is_none());
        ring.look = true;
        assert!(ring.next().is_err());
        offer(&ring, SIZE);
        assert!(ring.has_more(), "a full ring can be");
    }

    /// ring.5
    #[test]
    fn what_cannot_be_in_a_ring_that_is_taken_up_is_nothing_and_what_can_be_is_begun_with() {
        let guest = guest();
        let before = ring_of(&guest);
        offer(&before, SIZE + 1);
        let mut ring = ring_of(&guest);
        assert!(ring.next().unwrap().is_none(), "nobody has kicked");
        offer(&before, SIZE);
        assert!(!ring.look && ring_of(&guest).next().unwrap().is_some(), "a full ring can be");
    }

    /// ring.3
    #[test]
    fn a_guest_is_called_when_its_ring_is_taken_up_and_for_what_it_has_asked_to_be_called() {
        let mut ring = ring();
        assert!(ring.calls().unwrap());
        assert!(!ring.calls().unwrap(), "nothing has ended");
        for calls in [true, false] {
            // It wants to be called for the first end, and not for the next.
            offer(&ring, 1 + ring.base());
            ring.look = true;
            let head = ring.next().unwrap().unwrap();
            ring.took(head).unwrap();
            ring.tell(head, STATUS, 0, 1).unwrap();
            assert_eq!(ring.calls().unwrap(), calls);
        }
    }
}
