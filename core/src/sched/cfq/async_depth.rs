//! How many asynchronous requests may be in the device, so that streams that wait for theirs are not behind a heap of writes.
//!
//! With `low_latency`: as many as times `slice_sync` have passed since a synchronous request last ended that had waited for
//! longer than `fifo_expire_sync`; at least one. Any number before that has happened. In IOPS mode each group has its share
//! of that, and at least one: as many in the device at the same time are as many in the same time.

use super::Cfq;

impl Cfq {
    pub(super) fn async_depth(&self) -> u32 {
        let Some(last_late) = self.last_late.filter(|_| self.settings.low_latency) else { return u32::MAX };
        let slices = self.now.since(last_late).as_nanos() / self.settings.slice_sync.as_nanos().max(1);
        u32::try_from(slices).unwrap_or(u32::MAX).max(1)
    }

    /// Whether a group may have one more in the device, in IOPS mode.
    pub(super) fn may_write(&self, id: u16) -> bool {
        let in_flight = self.groups[id].in_flight[0];
        in_flight == 0 || in_flight < self.groups.part_of_number(id, self.async_depth())
    }
}
