//! How a device begins with a request of its guest: the chain is read, the memory is found, and the queue is given a bio.

use fairlift_core::{Errno, Flags, Op};
use virtio_bindings::bindings::virtio_blk as blk;
use vm_memory::{Bytes as _, GuestAddress};

use super::super::chain::{BlkRequest, ChainRequest, ID_LEN, Reader};
use super::super::config;
use super::super::ring::{Ring, Slot};
use super::super::service::Name;
use crate::disk::engine::Engine;
use crate::export::Export;
use crate::export::offer::{BlockRequest, Offer};
use crate::kernel::buffer::NoBuffer;
use crate::kernel::ticket::{Guest, Memory};

/// The parts of a device needed to begin with a request.
pub(super) struct Begin<'a> {
    pub(super) export: &'a Export,
    pub(super) offer: &'a Offer,
    pub(super) ring: &'a mut Ring,
    /// Each write must be durable when it ends (vhost.5).
    pub(super) through: bool,
}

impl Begin<'_> {
    /// Begins with a request; `false` if that must wait.
    pub(super) fn request(
        &mut self,
        engine: &mut Engine,
        reader: &mut Reader,
        owner: Name,
        head: u16,
    ) -> Result<bool, String> {
        if engine.is_full(self.export.disk) {
            return Ok(false);
        }
        let (table, size) = self.ring.descriptors();
        let request = reader.read(self.offer, &self.ring.memory, table, size, head);
        let request = request.map_err(|broken| format!("request {head} is no chain: {broken}"))?;
        let ChainRequest::Disk(mut wanted) = request.what else {
            return self.answer_at_once(reader, head, &request).map(|()| true);
        };
        let BlockRequest { op, len, .. } = wanted;
        if self.through && matches!(op, Op::Write | Op::WriteZeroes) {
            wanted.flags |= Flags::FUA;
        }
        let ranges = match op {
            Op::Read => reader.writable(),
            Op::Write => reader.readable(),
            Op::Flush | Op::Discard | Op::WriteZeroes => &[],
        };
        let (memory, bounce) = match self.memory(engine, (owner, head), op, ranges, len)? {
            Ok(there) => there,
            Err(NoBuffer::Full) => return Ok(false),
            Err(NoBuffer::NoMemory) => {
                self.ring.took(head)?;
                return self.ring.tell(head, request.status, config::status(Errno::ENOMEM), 1).map(|()| true);
            }
        };
        if let Err(why) = self.ring.took(head) {
            let ticket = engine.admit(0, memory);
            engine.release(ticket);
            return Err(why);
        }
        let written = if op == Op::Read { len as u32 + 1 } else { 1 };
        self.ring.begin(head, Slot { op, status: request.status, written, bounce });
        let ticket = engine.admit(owner.ticket(head), memory);
        engine.submit(self.export.disk, wanted.bio(self.export, self.ring.stream, ticket));
        Ok(true)
    }

    /// Answers what the disk has no part in.
    fn answer_at_once(&mut self, reader: &Reader, head: u16, request: &BlkRequest) -> Result<(), String> {
        self.ring.took(head)?;
        let len = match request.what {
            ChainRequest::Disk(_) => unreachable!("the disk has a part in it"),
            ChainRequest::Id(len) => len,
            ChainRequest::Refused(why) => {
                tracing::debug!(export = self.export.name, ?why, "vhost-user: refused");
                return self.ring.tell(head, request.status, config::status(why.errno()), 1);
            }
        };
        let mut left = &config::id(self.export)[..ID_LEN.min(len as usize)];
        let written = left.len() as u32 + 1;
        for (at, len) in reader.writable() {
            let (part, rest) = left.split_at(left.len().min(*len as usize));
            let stored = self.ring.memory.write_slice(part, *at);
            stored.map_err(|_| format!("request {head}: its data, at {:#x}, is not in the guest's memory", at.0))?;
            left = rest;
        }
        self.ring.tell(head, request.status, blk::VIRTIO_BLK_S_OK as u8, written)
    }

    /// The memory of a request: the guest's own, or a buffer and its purpose.
    fn memory(
        &self,
        engine: &mut Engine,
        (owner, head): (Name, u16),
        op: Op,
        ranges: &[(GuestAddress, u32)],
        len: u64,
    ) -> Result<Result<(Memory, Option<Guest>), NoBuffer>, String> {
        if ranges.is_empty() {
            return Ok(Ok((Memory::None, None)));
        }
        let guest = Guest::new(&self.ring.memory, ranges);
        let guest = guest.ok_or_else(|| format!("request {head}: its data is not in the guest's memory"))?;
        // Where the page cache is passed by, the kernel wants memory that is as aligned as the disk's blocks.
        let device = &self.export.device;
        if device.descriptor().is_none() || !device.is_direct() || guest.is_aligned(self.offer.block as usize) {
            return Ok(Ok((Memory::Guest(guest), None)));
        }
        let mut buffer = match engine.pool.get_in_line(owner.ticket(0), len as usize) {
            Ok(buffer) => buffer,
            Err(why) => return Ok(Err(why)),
        };
        if op == Op::Write {
            let mut into = buffer.bytes_mut();
            for slice in guest.slices() {
                let (part, rest) = into.split_at_mut(slice.len());
                slice.copy_to(part);
                into = rest;
            }
        }
        Ok(Ok((Memory::Pool(buffer), Some(guest))))
    }
}
