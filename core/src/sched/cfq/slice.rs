//! Slices: one flow at a time has the device, for a time that its level sets.
//!
//! A disk that rotates does most when it stays in one place, and no stream should have it for long. So each flow (the requests of one
//! stream) has the device for a slice. An example: two readers of level 4 have 100 ms each in turn. A sequential reader moves 6 MB in its
//! slice, one that seeks 30 KB, and each has half of the disk's time. A reader of level 0 beside one of level 4 has 180 ms of each 280.
//!
//! slice.1  A flow has the device for a slice: `slice_sync` or `slice_async` for level 4, a fifth more for each level above and a
//!          fifth less for each below. The slice begins with the first completion, so that the seek to the flow's place does not
//!          shorten it. With `low_latency` slices shrink when the usual number of them would not fit into the group's part of
//!          `target_latency`, but not below what two idle times are to a slice.
//! slice.2  When a slice is over, or its flow has nothing waiting and the device does not idle for it, the group's virtual time
//!          moves on by the time for which the flow had the device (vtime.2), and so does the flow's (cfq.3). An asynchronous flow
//!          of a group without waiting synchronous requests is charged its whole slice if synchronous requests of other groups
//!          wait: its writes go on inside the device. If none wait it is charged what it had: writers alone have turns of a few
//!          requests, and at 40 ms for each, debts would add up to seconds that the device never spent. A turn that is over before any
//!          request of its flow has ended is charged at least what its requests take at the device's present pace. (A flow that sends all
//!          that it has at once, and asks again at the same instant, would have turns of no time, and the device for ever.) The turn of
//!          a flow that pauses lasts until another flow asks. Of the pause it is charged no more than the device is held idle for.
//! slice.3  Flows of one service follow each other for the group's part of `target_latency`, in proportion to how many they are.
//!          Then group and service are chosen anew. (If groups took turns at every request of flows that seek, all groups would be
//!          in the device at once, and time would not say which had how much of it.) A group that comes back after more than
//!          `slice_idle` ends that: it waits for the turn under way. Asynchronous flows have the part of it that their slices are
//!          of synchronous slices.
//! slice.4  The device idles for a flow that has nothing waiting and usually asks again within `slice_idle`; and for the last flow
//!          of a tree whose flows are not worth it by themselves. It never idles for the idle class, nor for a flow on flash that
//!          queues; and not for longer than is left of the slice.
//! slice.5  If it does not idle for the flow, and no other flow of the group waits for a turn, it idles for the group: while the
//!          device has requests of the group, and for `group_idle` after the last of them ended, if the group usually asks by then.
//!          With both set, `slice_idle` counts where it applies.
//! slice.6  While other flows wait, a flow has `quantum` requests in the device early in its slice and half of that late in it. The
//!          only flow, or the only synchronous one, has any number; one of the idle class has one. Asynchronous requests wait until
//!          no synchronous one is in the device; a flow for which the device may idle waits until no asynchronous one is. See also
//!          `async_depth.rs`.
//! slice.7  While other flows wait, an asynchronous slice is over after `slice_async_rq` requests, times two for each level from 8
//!          up; a slice of the idle class after one request.

use super::flow::Service;
use super::order::Serving;
use super::{Cfq, Decision};
use crate::time::{ms, scale};
use crate::trace::Note;
use crate::{Duration, Instant, PriorityClass};

/// A flow's time with the device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Slice {
    pub(super) flow: u32,
    pub(super) began: Instant,
    /// From when on it is over; nothing has ended yet, if there is none (slice.1).
    pub(super) end: Option<Instant>,
    pub(super) dispatched: u32,
    pub(super) sectors: u64,
    /// The charge of the requests in IOPS mode (iops.2).
    pub(super) pieces: u64,
    /// Time of it that others have paid for (cfq.6).
    pub(super) paid: Duration,
}

/// The future of the present turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keep {
    Send,
    /// It is waited for: by when it should ask, or until something ends.
    Wait(Option<Instant>),
    /// It was over then.
    Over(Instant),
}

/// The shortest time for which a service is chosen; the kernel's `CFQ_MIN_TT` of two ticks.
const SERVING_MIN: Duration = ms(2);

impl Cfq {
    pub(super) fn step_slice(&mut self) -> Decision {
        loop {
            let Some(keep) = self.keep() else {
                if self.start() {
                    continue;
                }
                return Decision::Wait;
            };
            if keep != Keep::Send
                && let Some(other) = self.cooperator()
            {
                self.hand_over(if let Keep::Over(at) = keep { at } else { self.now }, other);
                continue;
            }
            match keep {
                Keep::Send => {
                    let number = self.turn.expect("somebody's turn is kept").flow;
                    return if self.may_send(number) { Decision::Send(number) } else { Decision::Wait };
                }
                Keep::Wait(None) => return Decision::Wait,
                Keep::Wait(Some(until)) => return Decision::Idle(until),
                Keep::Over(at) => self.expire(at),
            }
        }
    }

    pub(super) fn keep(&self) -> Option<Keep> {
        let turn = self.turn.as_ref()?;
        let flow = &self.flows[turn.flow];
        let is_over = turn.end.is_some_and(|end| self.now >= end) || self.has_sent_enough(turn);
        if !flow.requests.is_empty() {
            return Some(if is_over { Keep::Over(self.now) } else { Keep::Send });
        }
        if !is_over && self.is_worth_idling(turn.flow) {
            if flow.in_flight > 0 {
                return Some(Keep::Wait(None));
            }
            let since = flow.think.last_end().unwrap_or(turn.began).max(turn.began);
            let left = turn.end.map_or(Duration::MAX, |end| end.since(since));
            if !flow.think.is_longer_than(left) {
                return Some(self.wait_until(since + self.idle)); // slice.4
            }
        }
        let group = &self.groups[flow.group];
        let group_idle = self.settings.group_idle;
        if flow.sync && group.busy == 1 && group_idle > Duration::ZERO && !group.think.is_longer_than(group_idle) {
            if group.in_flight[1] > 0 {
                return Some(Keep::Wait(None)); // slice.5
            }
            if !is_over {
                let since = group.think.last_end().unwrap_or(turn.began).max(turn.began);
                return Some(self.wait_until(since + group_idle));
            }
        }
        Some(Keep::Over(self.now))
    }

    fn wait_until(&self, until: Instant) -> Keep {
        if self.now < until { Keep::Wait(Some(until)) } else { Keep::Over(until) }
    }

    /// slice.7.
    fn has_sent_enough(&self, turn: &Slice) -> bool {
        let flow = &self.flows[turn.flow];
        if self.busy <= 1 {
            return false;
        }
        if flow.priority.class == PriorityClass::Idle {
            return turn.dispatched >= 1;
        }
        let levels = 2 * (8 - u32::from(flow.priority.level.min(7)));
        !flow.sync && turn.dispatched >= self.settings.slice_async_rq.saturating_mul(levels)
    }

    /// slice.4.
    pub(super) fn is_worth_idling(&self, number: u32) -> bool {
        let flow = &self.flows[number];
        if self.idle == Duration::ZERO || !flow.sync || flow.priority.class == PriorityClass::Idle {
            return false;
        }
        if flow.idles && (self.rotational || !self.queues) {
            return true;
        }
        let class = &self.groups[flow.group].classes[flow.priority.class as usize];
        let waiters = &class.services[flow.service as usize];
        waiters.count == 1 && !waiters.think.is_longer_than(self.idle)
    }

    /// slice.6.
    fn may_send(&self, number: u32) -> bool {
        let flow = &self.flows[number];
        let sync_waits_for_async = self.in_flight[0] > 0 && self.is_worth_idling(number);
        if sync_waits_for_async || !flow.sync && self.in_flight[1] > 0 {
            return false;
        }
        let is_only_sync = flow.sync && self.busy_sync == 1;
        let max = if flow.priority.class == PriorityClass::Idle {
            1
        } else if self.busy == 1 || is_only_sync {
            u32::MAX
        } else if self.is_nearly_over(number) {
            (self.settings.quantum / 2).max(1)
        } else {
            self.settings.quantum
        };
        let max = if flow.sync { max } else { max.min(self.async_depth()) };
        flow.in_flight < max
    }

    /// Whether what the flow has in the device will probably take the rest of its slice.
    fn is_nearly_over(&self, number: u32) -> bool {
        let Some(end) = self.turn.and_then(|turn| turn.end) else { return true };
        let each = self.idle.as_nanos().saturating_mul(self.flows[number].in_flight.into());
        self.now + Duration::from_nanos(each) > end
    }

    /// The next flow's turn begins, if any flow has something to do.
    fn start(&mut self) -> bool {
        let Some(first) = self.groups.first_ready() else { return false };
        let id = self.group_served().unwrap_or(first);
        let class = self.next_class(id, true).expect("a group that is ready has flows");
        let service = self.choose_service(id, class);
        let number = self.next_flow(id, class, service).expect("a service that was chosen has flows");
        self.begin(number);
        true
    }

    /// The group whose flows of one service have the device, while they have it and one of them has something to do (slice.3).
    pub(super) fn group_served(&self) -> Option<u16> {
        let Serving { group, class, service, until } = self.serving?;
        let count = self.groups[group].classes[class as usize].services[service as usize].count;
        (self.now < until && count > 0).then_some(group)
    }

    /// slice.3.
    fn choose_service(&mut self, id: u16, class: PriorityClass) -> Service {
        let waits = |service: Service| self.groups[id].classes[class as usize].services[service as usize].count > 0;
        if let Some(serving) = self.serving
            && (serving.group, serving.class) == (id, class)
            && self.now < serving.until
            && waits(serving.service)
        {
            return serving.service;
        }
        let service = self.next_service(id, class, true).expect("a class that was chosen has flows");
        let until = self.now + self.serving_time(id, class, service);
        self.serving = Some(Serving { group: id, class, service, until });
        service
    }

    fn serving_time(&mut self, id: u16, class: PriorityClass, service: Service) -> Duration {
        let settings = &self.settings;
        let whole = self.groups.part_of(id, settings.target_latency).as_nanos();
        let usual = self.usual_flows(id, class);
        let class = &self.groups[id].classes[class as usize];
        let count = u64::from(class.services[service as usize].count);
        let mut part = scale(whole, count, usual.max(class.busy).into());
        if service == Service::Async {
            part = scale(part, self.settings.slice_async.as_nanos(), self.settings.slice_sync.as_nanos());
        } else {
            part = part.max(self.idle.as_nanos().saturating_mul(2));
        }
        Duration::from_nanos(part).max(SERVING_MIN)
    }

    /// How many flows of a class usually take turns: quick to rise, slow to fall.
    fn usual_flows(&mut self, id: u16, class: PriorityClass) -> u32 {
        let class = &mut self.groups[id].classes[class as usize];
        let (least, most) = (class.usual.min(class.busy), class.usual.max(class.busy));
        class.usual = (3 * most + least + 2) / 4;
        class.usual
    }

    pub(super) fn begin(&mut self, number: u32) {
        self.turn = Some(Slice { flow: number, began: self.now, ..Slice::default() });
    }

    /// A request of a flow ended: with the first one of its turn, its slice begins (slice.1).
    pub(super) fn start_slice(&mut self, number: u32) {
        if self.iops || self.turn.is_none_or(|turn| turn.flow != number || turn.end.is_some()) {
            return;
        }
        let slice = self.slice(number);
        if let Some(turn) = &mut self.turn {
            turn.end = Some(self.now + slice);
        }
    }

    /// How long a flow may have the device (slice.1).
    fn slice(&mut self, number: u32) -> Duration {
        let flow = &self.flows[number];
        let (id, class, sync) = (flow.group, flow.priority.class, flow.sync);
        let slice = self.settings.slice(sync, flow.priority.level);
        if !self.settings.low_latency {
            return slice;
        }
        let usual = u64::from(self.usual_flows(id, class));
        let base = self.settings.slice_sync.as_nanos();
        let (wanted, there) = (base.saturating_mul(usual), self.groups.part_of(id, self.settings.target_latency));
        if wanted <= there.as_nanos() {
            return slice;
        }
        let scaled = |to: u64, by: u64| Duration::from_nanos(scale(slice.as_nanos(), to, by));
        let least = scaled(self.idle.as_nanos().saturating_mul(2), base).min(slice);
        scaled(there.as_nanos(), wanted).max(least).min(slice)
    }

    /// The present turn is over, and was at `at`; it is paid for (slice.2, and iops.2).
    pub(super) fn expire(&mut self, at: Instant) {
        let Some(turn) = self.turn.take() else { return };
        let flow = &self.flows[turn.flow];
        let (id, group) = (flow.group, &self.groups[flow.group]);
        let pauses = flow.requests.is_empty() && group.in_flight == [0; 2];
        let held = group.last_end.max(turn.began) + self.idle.max(self.settings.group_idle);
        let used = if pauses { at.min(held) } else { at }.since(turn.began + turn.paid);
        let mut charge = used.as_nanos();
        if self.iops {
            charge = turn.pieces.saturating_mul(super::group::REQUEST).min(1 << 50);
        } else if !flow.sync && self.groups[id].busy_sync == 0 && self.busy_sync > 0 {
            charge = charge.max(self.settings.slice(false, flow.priority.level).as_nanos());
        } else if turn.end.is_none() {
            charge = charge.max(self.tempo.time_of(turn.pieces));
        }
        let note = Note::SliceUsed {
            used,
            dispatched: turn.dispatched,
            charge: if self.iops { turn.pieces } else { Note::millis(Duration::from_nanos(charge)) },
            iops: self.iops,
            sectors: turn.sectors,
        };
        let stream = self.stream_of(turn.flow);
        self.note(id, stream, note);
        let flow = &mut self.flows[turn.flow];
        self.is_far |= flow.served.max(self.groups[id].time) > super::FAR;
        let served = flow.weigh(&self.settings, charge);
        flow.splits |= flow.members > 1 && flow.is_seeky(); // cooperate.3
        let stays = !flow.requests.is_empty() && flow.service == flow.service_now();
        if stays {
            self.serve(turn.flow, served);
            self.groups.charge(id, charge);
            return;
        }
        let was_busy = flow.is_busy;
        flow.served = flow.served.saturating_add(served);
        // Charged before it leaves, for a group that leaves with it has another share.
        self.groups.charge(id, charge);
        if was_busy {
            self.leave(turn.flow);
        }
        self.settle(turn.flow);
    }

    /// A flow that was waited for asks too late, as seen before its request is added: it does not go on.
    pub(super) fn lapse(&mut self, number: u32) {
        let flow = &self.flows[number];
        if !self.iops
            && flow.requests.is_empty()
            && self.turn.is_some_and(|turn| turn.flow == number)
            && let Some(Keep::Over(at)) = self.keep()
        {
            self.expire(at);
        }
        let id = self.flows[number].home;
        self.lapse_group(id);
        if !self.settings.group_isolation {
            self.lapse_group(0);
        }
    }
}
