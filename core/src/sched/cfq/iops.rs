//! IOPS mode: many flows have the device at once, and requests count.
//!
//! iops.1  A turn is up to `quantum` requests of a flow. It ends before that when the flow has none left, or a higher class asks.
//! iops.2  A turn is charged the requests that it sent, as they were asked: a merged one counts as all those it was made of, and
//!     one of more than 128 KiB as several of that size. Example: four groups write 32 KiB at a time, one after the other.
//!     The lightest waits longest, so its requests merge most. If a merged request of 128 KiB counted as one, that group
//!     would get four times its bytes. No request grows beyond 128 KiB by merging: an array that gets 32 requests as two
//!     long ones has two arms at work.
//! iops.3  The device is not held for anybody's sake while a group that may go has requests. But nobody gets further ahead
//!     than `group_lead` of a group that is expected to ask again soon (vtime.4): then all wait for it. So shares hold even for
//!     a group that has few requests at a time, and the device has no more requests than it takes for that: all others have
//!     their weight's part beside those that this group has in it. Where no group is expected, the device has all.
//! iops.4  `async_depth.rs` says how many asynchronous requests a group has in the device; more of them wait, and nobody waits for it on
//!     their account.

use super::group::{Presence, REQUEST, convert};
use super::{Cfq, Decision};
use crate::Instant;
use crate::learn::pace;
use crate::sched::RequestId;

/// As many sectors as this count as a request (iops.2): 128 KiB. Chosen: what the kernel's read-ahead asks at a time by default,
/// so that a buffered reader's request counts as one.
const PIECE: u64 = 256;

/// The charge of a request of this many sectors.
pub(super) const fn pieces(sectors: u64) -> u32 {
    if sectors <= PIECE { 1 } else { sectors.div_ceil(PIECE) as u32 }
}

/// How long the device takes for a request, of the last ones, counted as iops.2 says.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tempo {
    /// Nanoseconds, and requests of [`Tempo::MEMORY`] each: the sums of all ends, each end fading as others come.
    nanos: u64,
    requests: u64,
    /// When one last ended, or the first one went.
    since: Instant,
}

impl Tempo {
    /// An end counts for about this many ends. Chosen: more than come in one bunch, from a device with a queue of 32.
    const MEMORY: u64 = 64;

    /// A request went to a device that had none.
    pub(super) const fn starts(&mut self, now: Instant) {
        self.since = now;
    }

    /// A request ended that counts as `pieces`.
    pub(super) fn ended(&mut self, now: Instant, pieces: u64) {
        let took = now.since(self.since);
        self.since = now;
        self.nanos = self.nanos - self.nanos / Self::MEMORY + took.as_nanos();
        self.requests = self.requests - self.requests / Self::MEMORY + pieces * Self::MEMORY;
    }

    /// The service, in units of [`REQUEST`] a request, done in this many nanoseconds.
    pub(super) fn pace(&self) -> (u64, u64) {
        let service = self.requests.saturating_mul(REQUEST / Self::MEMORY);
        (service.max(1), self.nanos.max(1))
    }

    /// The time of the device for `pieces`, in nanoseconds.
    pub(super) fn time_of(&self, pieces: u64) -> u64 {
        let (service, nanos) = self.pace();
        convert(pieces.saturating_mul(REQUEST), (nanos, service))
    }
}

impl Cfq {
    pub(super) fn step_iops(&mut self) -> Decision {
        if let Some(number) = self.goes_on() {
            return Decision::Send(number);
        }
        self.expire(self.now);
        loop {
            let Some(id) = self.groups.first_ready() else { return Decision::Wait };
            if let Some(expected) = self.groups.first_expected() {
                let until = self.expected_until(expected);
                let Some(until) = until.filter(|until| self.now < *until) else {
                    self.groups.set_presence(expected, Presence::Away);
                    continue;
                };
                let lead = u64::from(self.settings.group_lead) * REQUEST;
                if self.groups[id].time > self.groups[expected].time.saturating_add(lead) {
                    return Decision::Idle(until); // iops.3
                }
            }
            let may_write = self.may_write(id);
            let Some(class) = self.next_class(id, may_write) else {
                // Since it was found ready, fewer writes at once have become right; it is looked at when one has ended.
                self.groups.set_presence(id, Presence::Away);
                continue;
            };
            let service = self.next_service(id, class, may_write).expect("a class that was chosen has flows");
            let number = self.next_flow(id, class, service).expect("a service that was chosen has flows");
            self.begin(number);
            return Decision::Send(number);
        }
    }

    /// The flow whose turn goes on (iops.1).
    fn goes_on(&self) -> Option<u32> {
        let turn = self.turn.as_ref()?;
        let flow = &self.flows[turn.flow];
        let higher = &self.groups[flow.group].classes[..flow.priority.class as usize];
        let goes_on = turn.dispatched < self.settings.quantum
            && !flow.requests.is_empty()
            && higher.iter().all(|class| class.busy == 0)
            && (flow.sync || self.may_write(flow.group));
        goes_on.then_some(turn.flow)
    }

    /// A group that was expected asks too late: it comes back as one that was away (vtime.3).
    pub(super) fn lapse_group(&mut self, id: u16) {
        if self.groups[id].presence == Presence::Expected
            && self.expected_until(id).is_none_or(|until| self.now >= until)
        {
            self.groups.set_presence(id, Presence::Away);
        }
    }

    /// The end of the wait for a group without waiting requests; `None` if the others do not wait (vtime.4).
    pub(super) fn expected_until(&self, id: u16) -> Option<Instant> {
        let group = &self.groups[id];
        let is_writing = group.in_flight[1] == 0 && group.in_flight[0] > 0;
        if is_writing && self.busy_sync + self.in_flight[1] > 0 {
            return None;
        }
        group.expected_until(self.settings.group_idle)
    }

    /// Whether a request may grow by `sectors` through merging (iops.2). If time is charged, it may.
    pub(super) fn may_grow(&self, id: RequestId, sectors: u64) -> bool {
        !self.iops || pace::is_non_data(self.table.op(id)) || self.table.extent(id).sectors + sectors <= PIECE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::us;

    fn tempo(pieces: u64) -> (u64, u64) {
        let mut tempo = Tempo::default();
        (1..=1000).for_each(|n| tempo.ended(Instant::ZERO + us(n * pieces * 100), pieces));
        tempo.pace()
    }

    /// iops.2: what a group owes is converted at the rate of requests as they were asked.
    #[test]
    fn the_pace_is_the_same_whether_requests_merge_or_not() {
        let (one, four) = (tempo(1), tempo(4));
        let nanos_each = |(service, nanos): (u64, u64)| nanos / (service / REQUEST);
        assert_eq!(nanos_each(one), nanos_each(four));
        assert!(nanos_each(one).abs_diff(100_000) < 100, "{one:?}");
    }
}
