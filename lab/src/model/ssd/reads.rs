//! Reads: ssd.2, ssd.3.
//!
//! ssd_read.1  A stream is read ahead in halves of `read_ahead`: the next half is ordered as soon as less than that is ahead.

use fairlift_core::{Direction, Extent};
use std::cmp::Reverse;

use super::{PackedEvent, Ssd};

impl Ssd {
    pub(super) fn read(&mut self, slot: u32, extent: Extent) {
        let at = self.clock;
        let (mut start, end) = (extent.start.0, extent.end().0);
        let mut parts = 0;
        if let Some(ahead) = self.read_ahead(start, end) {
            let (from_memory, ready) = ahead;
            if from_memory > 0 {
                self.events.push(Reverse((ready.max(at), PackedEvent::fetched(slot, None, from_memory))));
                parts += 1;
                start += from_memory;
            }
        }
        let shift = self.nand.page_shift;
        while start < end {
            let page = start >> shift;
            let page_end = ((page + 1) << shift).min(end);
            let (ready, channel) = self.nand.read(at, page);
            self.events.push(Reverse((ready, PackedEvent::fetched(slot, Some(channel), page_end - start))));
            parts += 1;
            start = page_end;
        }
        self.requests[slot as usize].parts = parts;
    }

    /// How many sectors of a read lie in memory, and from when on; orders what its stream will want next: ssd.3, ssd_read.1.
    fn read_ahead(&mut self, start: u64, end: u64) -> Option<(u64, u64)> {
        if self.settings.read_ahead == 0 {
            return None;
        }
        let stream = self.read_streams.follow(start, end)?;
        let from_memory = end.min(stream.ahead[1]).saturating_sub(start);
        let ready = if end <= stream.ahead[0] { stream.ready[0] } else { stream.ready[1] };
        let window = u64::from(self.settings.read_ahead) * 2;
        let from = stream.ahead[1].max(end);
        let shift = self.nand.page_shift;
        let to = ((end + window) >> shift << shift).min(self.sectors);
        if to > from && to - from >= window / 2 {
            let at = self.clock;
            let mut last = at;
            for page in from >> shift..to.div_ceil(1 << shift) {
                // A page begun by the order before, or by the read itself, is in the controller already.
                if page << shift >= from {
                    let (fetched, channel) = self.nand.read(at, page);
                    let free = &mut self.channels[channel as usize];
                    *free = (*free).max(at) + self.channel_cost.times(1 << shift);
                    last = last.max(fetched.max(*free));
                }
            }
            stream.ahead = [from, to];
            stream.ready = [stream.ready[1], last];
        }
        Some((from_memory, ready))
    }

    /// ssd.2: from the die's register over its channel and the link.
    pub(super) fn fetched(&mut self, slot: u32, channel: Option<u32>, sectors: u64) {
        let mut at = self.clock;
        if let Some(channel) = channel {
            let free = &mut self.channels[channel as usize];
            *free = (*free).max(at) + self.channel_cost.times(sectors);
            at = *free;
        }
        let end = self.link.carry(Direction::Read, at, sectors);
        let request = &mut self.requests[slot as usize];
        request.parts -= 1;
        if request.parts == 0 {
            self.ends_at(end, slot);
        }
    }
}
