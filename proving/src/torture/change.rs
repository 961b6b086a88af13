//! Changes while requests wait and are in flight.

use std::sync::Arc;

use fairlift_core::ceiling::{Bounds, Budget};
use fairlift_core::queue::Bound;
use fairlift_core::tunable::{Range, TunableInfo};
use fairlift_core::{Duration, Group, GroupId, Sector, Stream, Weight};

use super::bench::Bench;
use super::step::Change;
use crate::tally::Count;

/// Groups of a run, at most.
const GROUPS_MAX: usize = 12;

impl Bench<'_> {
    /// An operator changes something, or a client goes.
    pub(super) fn change(&mut self, change: &Change) {
        if let Some(count) = self.changed(change) {
            self.tally.one(count);
        }
        // A change has the workers look at it.
        (0..self.contexts.len()).for_each(|context| self.wake(context));
    }

    /// As what a change counts: as nothing, if all stays as it was.
    fn changed(&mut self, change: &Change) -> Option<Count> {
        let now = self.now;
        let has_changed = match *change {
            Change::Scheduler(kind) => {
                if self.setup.queues > 1 && kind != self.setup.queue.scheduler {
                    return None;
                }
                self.queues.iter_mut().for_each(|watched| watched.queue.set_scheduler(now, kind));
                self.hold_as_set();
                return Some(Count::Switches);
            }
            Change::Weight { group, weight } => {
                let (group, weight) = (self.group(group), Weight::new(weight));
                let before =
                    self.queues[0].queue.groups().iter().find(|(id, _)| *id == group).map(|(_, group)| group.weight);
                self.queues.iter_mut().for_each(|watched| watched.queue.set_weight(now, group, weight));
                before != Some(weight)
            }
            Change::AddGroup { parent, weight } => {
                if self.queues[0].queue.groups().iter().count() >= GROUPS_MAX {
                    return None;
                }
                self.groups_made += 1;
                let group = Group {
                    path: format!("/n{}", self.groups_made),
                    parent: Some(self.group(parent)),
                    weight: Weight::new(weight),
                };
                // A group that was removed may be on its way out of one queue, and gone from another.
                let is_free = |id: &u16| self.queues.iter().all(|watched| !watched.queue.groups().has(GroupId(*id)));
                let id = (1..).find(is_free).map(GroupId)?;
                self.queues.iter_mut().for_each(|watched| watched.queue.add_group(now, id, group.clone()));
                true
            }
            Change::RemoveGroup(group) => {
                let group = self.group(group);
                let is_used = self.queues.iter().any(|watched| {
                    watched.queue.groups().has_streams(group)
                        || watched.queue.groups().iter().any(|(_, other)| other.parent == Some(group))
                });
                if group == GroupId::ROOT || is_used {
                    return None;
                }
                self.meters.set(now, group, None, std::iter::empty());
                self.bounds.remove(&group);
                for watched in &mut self.queues {
                    watched.queue.remove_group(now, group).unwrap_or_else(|used| panic!("{used}"));
                }
                true
            }
            Change::Move { client, group, priority } => {
                let group = self.group(group);
                let client = self.here[(client % self.here.len() as u64) as usize] as usize;
                let client = &mut self.clients[client];
                let before = (client.at.group, client.at.priority);
                client.at = Stream { group, priority, ..client.at };
                let (stream, at) = (client.stream, client.at);
                let number = self.queue_of(at.context.0);
                self.moves += 1;
                self.queues[number].queue.change_stream(now, stream, at);
                before != (group, priority)
            }
            Change::Abort(client) => {
                let place = (client % self.here.len() as u64) as usize;
                let client = self.here.swap_remove(place) as usize;
                self.clients[client].is_gone = true;
                let has_left_some = self.clients[client].open > 0;
                self.arrives(self.clients[client].at);
                self.leaves(client);
                return has_left_some.then_some(Count::Aborts);
            }
            Change::Tunable { knob, end } => self.turn_knob(knob, end),
            Change::Bounds { depth, more } => {
                // With fewer tags than never come back nothing would go any more.
                let depth = if self.setup.shared_tags {
                    self.setup.queue.depth
                } else {
                    depth.max(2 * self.device.lost_tags + 2)
                };
                let bounds = (depth, u32::from(depth) + more);
                let settings = self.queues[0].queue.settings();
                let before = (settings.depth, settings.nr_requests);
                for watched in &mut self.queues {
                    watched.in_flight_max = depth.max(watched.queue.load().in_flight);
                    watched.queue.set_bounds(now, bounds.0, bounds.1);
                }
                before != bounds
            }
            Change::Ceiling { group, ceiling } => {
                let group = self.group(group);
                if let Some(ceiling) = ceiling
                    && (Bounds { ceiling, ..Bounds::default() }).check().is_err()
                {
                    return None;
                }
                let is_none = ceiling.is_none() && self.bounds.get(&group).is_none_or(|bound| bound.budget.is_none());
                self.set_ceiling(group, ceiling);
                !is_none
            }
            Change::Floor { group, floor } => {
                let group = self.group(group);
                self.bind(group, |bound| bound.floor = floor);
                !floor.is_none() // to take away what may not have been there is not counted
            }
            Change::Acknowledge => {
                let mut was_lost = false;
                for watched in &mut self.queues {
                    for at in [0, 2 << self.setup.stride].map(Sector) {
                        was_lost |= watched.queue.flushes().error(at).is_some();
                        watched.queue.flushes().acknowledge(at);
                    }
                }
                was_lost
            }
        };
        has_changed.then_some(Count::Changes)
    }

    fn set_ceiling(&mut self, group: GroupId, ceiling: Option<fairlift_core::ceiling::Ceiling>) {
        let now = self.now;
        let below = self.rows.iter().filter(|(_, row)| self.path(row.at.group).contains(&group));
        let below: Vec<_> = below.map(|(_, row)| row.bio).collect();
        self.meters.set(now, group, ceiling, below.iter());
        let known = self.bounds.get(&group).and_then(|bound| bound.budget.clone());
        match (known, ceiling) {
            (Some(budget), Some(ceiling)) => {
                budget.set(now, &ceiling);
                self.queues.iter_mut().for_each(|watched| watched.queue.ceilings().look_again(now, group));
            }
            (None, None) => {}
            (_, ceiling) => {
                self.bind(group, |bound| bound.budget = ceiling.map(|ceiling| Arc::new(Budget::new(&ceiling))));
            }
        }
    }

    /// Changes what binds a group.
    fn bind(&mut self, group: GroupId, change: impl FnOnce(&mut Bound)) {
        let bound = self.bounds.entry(group).or_default();
        change(bound);
        self.queues.iter_mut().for_each(|watched| watched.queue.bind(self.now, group, bound));
    }

    /// An existing group, by any number.
    fn group(&self, number: u64) -> GroupId {
        let count = self.queues[0].queue.groups().iter().count() as u64;
        let nth = self.queues[0].queue.groups().iter().nth((number % count) as usize);
        nth.map_or(GroupId::ROOT, |(id, _)| id)
    }

    /// A group and those above it.
    pub(super) fn path(&self, group: GroupId) -> Vec<GroupId> {
        let parent = |id: GroupId| {
            self.queues[0].queue.groups().iter().find(|(other, _)| *other == id).and_then(|(_, group)| group.parent)
        };
        std::iter::successors(Some(group), |id| parent(*id)).collect()
    }

    /// A tunable is set to an end of its range, or to something that an operator would say; whether it was another.
    fn turn_knob(&mut self, knob: u64, end: u64) -> bool {
        let tunables = self.queues[0].queue.settings().scheduler.tunables();
        if tunables.is_empty() {
            return false;
        }
        let info = tunables[(knob % tunables.len() as u64) as usize];
        let Some(usual) = self.queues[0].queue.tunable(info.name) else { return false };
        let value = value(&info, end).unwrap_or_else(|| usual.clone());
        for watched in &mut self.queues {
            watched.queue.set_tunable(info.name, &value).unwrap_or_else(|error| panic!("{error}"));
        }
        self.hold_as_set();
        value != usual
    }

    /// The disk may be held idle for as long as is set.
    fn hold_as_set(&mut self) {
        let most = self.hold_max();
        self.queues.iter_mut().for_each(|watched| watched.check.hold_max(most));
    }
}

fn value(info: &TunableInfo, end: u64) -> Option<String> {
    const MODEL: &str = "rbps=100000000 rseqiops=5000 rrandiops=5000 wbps=100000000 wseqiops=5000 wrandiops=5000";
    let time = |least: Duration, most: Duration| match end {
        0 => least.to_string(),
        1 => most.to_string(),
        _ => most.min(fairlift_core::time::ms(30)).max(least).to_string(),
    };
    match info.range {
        Range::Duration(least, most) | Range::AutoDuration(least, most) => (end < 3).then(|| time(least, most)),
        Range::Count(least, most) | Range::AutoCount(least, most) => match end {
            0 => Some(least.to_string()),
            1 => Some(most.to_string()),
            2 => Some(most.min(4).max(least).to_string()),
            _ => None,
        },
        Range::Switch => Some((end & 1).to_string()),
        Range::AutoCostModel => (end < 2).then(|| MODEL.to_owned()),
        Range::Choice(names) => Some(names[end as usize % names.len()].to_owned()),
    }
}
