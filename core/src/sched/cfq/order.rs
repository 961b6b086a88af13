//! The order of service within a group: which flows take turns, and whose turn is next (cfq.2, cfq.3).

use super::flow::Service;
use super::group::Presence;
use super::{Cfq, Flow};
use crate::sched::Waiting;
use crate::time::secs;
use crate::{Duration, Instant, PriorityClass};

/// How long a class may be passed over for higher ones (cfq.2). Chosen: more than six rounds of `target_latency`, and a
/// fraction of any client's patience; Linux has no bound.
const PASSED_MAX: Duration = secs(2);

/// The flows that have the device, and their group, with slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Serving {
    pub(super) group: u16,
    pub(super) class: PriorityClass,
    pub(super) service: Service,
    /// When another service of the class may be chosen.
    pub(super) until: Instant,
}

impl Cfq {
    /// A flow takes turns from now on.
    pub(super) fn join(&mut self, number: u32) {
        let isolated = self.settings.group_isolation;
        let flow = &mut self.flows[number];
        flow.service = flow.service_now();
        flow.group = if isolated || flow.service != Service::SyncNoidle { flow.home } else { 0 }; // cfq.7
        flow.is_busy = true;
        let Flow { group: id, service, sync, priority, .. } = *flow;
        let group = &mut self.groups[id];
        let class = &mut group.classes[priority.class as usize];
        if class.busy == 0 {
            class.passed_since = self.now;
        }
        class.busy += 1;
        let served = flow.served.max(class.floor.saturating_sub(1)); // cfq.3, as vtime.3
        flow.served = served;
        let waiters = &mut class.services[service as usize];
        waiters.count += 1;
        waiters.tree.insert(&mut self.flows.nodes, number, served);
        group.busy += 1;
        group.busy_sync += u32::from(sync);
        self.busy += 1;
        self.busy_sync += u32::from(sync);
        self.place(id);
    }

    /// A flow takes no turns any more.
    pub(super) fn leave(&mut self, number: u32) {
        let flow = &mut self.flows[number];
        flow.is_busy = false;
        let Flow { group: id, service, sync, priority, .. } = *flow;
        let group = &mut self.groups[id];
        let class = &mut group.classes[priority.class as usize];
        class.busy -= 1;
        let waiters = &mut class.services[service as usize];
        waiters.count -= 1;
        waiters.tree.remove(&mut self.flows.nodes, number);
        group.busy -= 1;
        group.busy_sync -= u32::from(sync);
        self.busy -= 1;
        self.busy_sync -= u32::from(sync);
        self.place(id);
    }

    /// A flow was served `served` more: its place changes (cfq.3).
    pub(super) fn serve(&mut self, number: u32, served: u64) {
        let flow = &mut self.flows[number];
        flow.served = flow.served.saturating_add(served);
        let Flow { group, service, priority, is_busy, served, .. } = *flow;
        if is_busy {
            let class = &mut self.groups[group].classes[priority.class as usize];
            let tree = &mut class.services[service as usize].tree;
            tree.remove(&mut self.flows.nodes, number);
            tree.insert(&mut self.flows.nodes, number, served);
        }
    }

    /// Puts a group where its flows say (vtime.4).
    pub(super) fn place(&mut self, id: u16) {
        let group = &self.groups[id];
        let is_expected = || self.expected_until(id).is_some_and(|until| self.now < until);
        let presence = if group.busy_sync > 0 || group.busy > 0 && (!self.iops || self.may_write(id)) {
            Presence::Ready
        } else if self.iops && group.busy == 0 && is_expected() {
            Presence::Expected
        } else {
            Presence::Away
        };
        if (group.presence, presence, self.iops) == (Presence::Away, Presence::Ready, false) {
            self.cut_short(id);
        }
        self.groups.set_presence(id, presence);
    }

    /// A group comes back: the group that has the device keeps it no longer than for the turn under way (slice.3, vtime.3).
    fn cut_short(&mut self, id: u16) {
        let group = &self.groups[id];
        let is_back =
            group.in_flight == [0; 2] && group.think.last_end().is_none_or(|end| self.now.since(end) > self.idle);
        let now = self.now;
        if let Some(serving) = self.serving.as_mut().filter(|serving| is_back && serving.group != id) {
            serving.until = serving.until.min(now);
        }
    }

    /// The class of a group that is served now (cfq.2), of those that have a flow which `may_write` allows.
    pub(super) fn next_class(&mut self, id: u16, may_write: bool) -> Option<PriorityClass> {
        let now = self.now;
        let group = &mut self.groups[id];
        let servable = |class: &super::group::Class| {
            let writes = class.services[Service::Async as usize].count;
            class.busy > if may_write { 0 } else { writes }
        };
        let mut classes = PriorityClass::ALL.into_iter().filter(|class| servable(&group.classes[*class as usize]));
        let highest = classes.next()?;
        let mut chosen = highest;
        if group.busy > group.classes[highest as usize].busy {
            let passed = |class: PriorityClass| now.since(group.classes[class as usize].passed_since);
            if let Some(waited) = classes.max_by_key(|class| passed(*class))
                && passed(waited) >= PASSED_MAX
            {
                chosen = waited;
            }
        }
        group.classes[chosen as usize].passed_since = now;
        Some(chosen)
    }

    /// The service of a class whose first flow has been served least.
    pub(super) fn next_service(&self, id: u16, class: PriorityClass, may_write: bool) -> Option<Service> {
        let class = &self.groups[id].classes[class as usize];
        let firsts = Service::ALL.into_iter().filter_map(|service| {
            if service == Service::Async && !may_write {
                return None;
            }
            let first = class.services[service as usize].tree.first(&self.flows.nodes)?;
            Some((self.flows.nodes.key(first), service))
        });
        firsts.min_by_key(|(served, _)| *served).map(|(_, service)| service)
    }

    /// The flow of a service that has been served least; from now on nobody starts before it (cfq.3).
    pub(super) fn next_flow(&mut self, id: u16, class: PriorityClass, service: Service) -> Option<u32> {
        let class = &mut self.groups[id].classes[class as usize];
        let nodes = &self.flows.nodes;
        let first = class.services[service as usize].tree.first(nodes)?;
        let least = class.services.iter().filter_map(|waiters| waiters.tree.first(nodes)).map(|flow| nodes.key(flow));
        class.floor = class.floor.max(least.min().unwrap_or(0));
        Some(first)
    }

    /// The next request when nothing is held back: for another scheduler.
    pub(super) fn next_unheld(&mut self) -> Option<u32> {
        if let Some(turn) = &self.turn
            && !self.flows[turn.flow].requests.is_empty()
        {
            return Some(turn.flow);
        }
        self.expire(self.now);
        // Writes that are held back keep their group from being ready; they are found by going round.
        let ready = self.groups.first_ready();
        let id = ready.or_else(|| (0..self.groups.len() as u16).find(|id| self.groups[*id].busy > 0))?;
        let class = self.next_class(id, true)?;
        let service = self.next_service(id, class, true)?;
        let number = self.next_flow(id, class, service)?;
        self.begin(number);
        Some(number)
    }

    /// A synchronous request came: what it says of its flow's habits and its group's.
    pub(super) fn learn(&mut self, number: u32, request: &Waiting) {
        let (now, cap) = (self.now, |idle: Duration| Duration::from_nanos(idle.as_nanos().saturating_mul(2)));
        let seek = Flow::seek(self.rotational);
        let idle = self.habitual_idle();
        let flow = &mut self.flows[number];
        flow.seeks.arrived(request.extent, seek);
        if flow.requests.is_empty() && flow.in_flight == 0 {
            flow.think.arrived(now, cap(idle));
        }
        let group = &mut self.groups[flow.group];
        let is_asked_for = group.busy_sync > u32::from(flow.is_busy && flow.requests.is_empty());
        if !is_asked_for && group.in_flight[1] == 0 {
            group.think.arrived(now, cap(self.settings.group_idle));
        }
        let waiters = &mut group.classes[flow.priority.class as usize].services[flow.service as usize];
        if waiters.count <= u32::from(flow.is_busy && flow.requests.is_empty()) {
            waiters.think.arrived(now, cap(idle));
        }
    }

    /// An asynchronous write comes, in IOPS mode: what it says of its group's habits (vtime.4).
    pub(super) fn learn_write(&mut self, id: u16) {
        let cap = Duration::from_nanos(self.settings.group_idle.as_nanos().saturating_mul(2));
        let group = &mut self.groups[id];
        if group.is_quiet() {
            group.think.arrived(self.now, cap);
        }
    }

    /// A synchronous request ended: from now on its group and its tree think.
    pub(super) fn thought_ended(&mut self, number: u32, id: u16) {
        let flow = &self.flows[number];
        let group = &mut self.groups[id];
        group.think.ended(self.now);
        group.classes[flow.priority.class as usize].services[flow.service as usize].think.ended(self.now);
    }
}
