//! IOPS mode: many flows have the device at once, and what counts is requests.
//!
//! I1  A turn is up to `quantum` requests of a flow. It ends before that when the flow has none left, or a higher class asks.
//! I2  A turn is charged the requests that it sent, each longer one for as many as it makes of 128 KiB: else a group would
//!     gain by waiting, while its requests are merged with those behind them, and by asking for much at a time.
//! I3  The device is not held for anybody's sake while a group that may go has requests. But nobody gets further ahead
//!     than `group_lead` of a group that is expected to ask again soon (V4): then all wait for it. So shares hold even for
//!     a group that has few requests at a time, and the device has no more requests than it takes for that: all others have
//!     their weight's part beside those that this group has in it. Where no group is expected, the device has all.
//! I4  A group has so many asynchronous requests in the device as `async_depth.rs` says; more of them wait, and nobody waits
//!     for it on their account.

use super::group::{REQUEST, Stand};
use super::{Cfq, Step};

/// As many sectors as this count as a request (I2).
const PIECE: u64 = 256;

/// What a request of so many sectors counts.
pub(super) const fn pieces(sectors: u64) -> u64 {
    if sectors <= PIECE { 1 } else { sectors.div_ceil(PIECE) }
}

impl Cfq {
    pub(super) fn step_iops(&mut self) -> Step {
        if let Some(number) = self.goes_on() {
            return Step::Send(number);
        }
        self.expire(self.now);
        loop {
            let Some(id) = self.groups.first_ready() else { return Step::Wait };
            if let Some(expected) = self.groups.first_expected() {
                let until = self.groups[expected].expected_until(self.settings.group_idle);
                let Some(until) = until.filter(|until| self.now < *until) else {
                    self.groups.stand(expected, Stand::Away);
                    continue;
                };
                let lead = u64::from(self.settings.group_lead) * REQUEST;
                if self.groups[id].time > self.groups[expected].time.saturating_add(lead) {
                    return Step::Hold(until); // I3
                }
            }
            let may_write = self.may_write(id);
            let Some(class) = self.next_class(id, may_write) else {
                // Since it was found ready, fewer writes at once have become right; it is looked at when one has ended.
                self.groups.stand(id, Stand::Away);
                continue;
            };
            let service = self.next_service(id, class, may_write).expect("a class that was chosen has flows");
            let number = self.next_flow(id, class, service).expect("a service that was chosen has flows");
            self.begin(number);
            return Step::Send(number);
        }
    }

    /// The flow whose turn goes on (I1).
    fn goes_on(&self) -> Option<u32> {
        let turn = self.turn.as_ref()?;
        let flow = &self.flows[turn.flow];
        let higher = &self.groups[flow.group].classes[..flow.priority.class as usize];
        let goes_on = turn.dispatched < self.settings.quantum
            && !flow.line.is_empty()
            && higher.iter().all(|class| class.busy == 0)
            && (flow.sync || self.may_write(flow.group));
        goes_on.then_some(turn.flow)
    }

    /// A group that was expected asks too late: it comes back as one that was away (V3).
    pub(super) fn lapse_group(&mut self, id: u16) {
        let group = &self.groups[id];
        if group.stand == Stand::Expected
            && group.expected_until(self.settings.group_idle).is_none_or(|until| self.now >= until)
        {
            self.groups.stand(id, Stand::Away);
        }
    }
}
