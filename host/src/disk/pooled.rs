//! A disk that several gateways share: what this one has of the pool in a period.
//!
//! pooled.1  Weights, bounds and depth of a period hold in the queues alone. The operator's settings stay as the configuration in force has
//!           them; a queue that is made anew begins with those, and has the pool's from the next period on.
//! pooled.2  Other disks of the server are not of the pool. A ceiling has a budget of its own for the pool's disk, and its state here does
//!           not bind the group there.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlift_core::ceiling::{Bounds, Budget};
use fairlift_core::gateways::Allotment;
use fairlift_core::{GroupId, Instant};

use super::disks::Bound;
use super::{Disk, Disks};

impl Disk {
    /// The groups, with the numbers by which queues know them.
    pub(crate) fn groups(&self) -> BTreeMap<String, GroupId> {
        self.state().all_groups().map(|(id, group)| (group.path.clone(), id)).collect()
    }

    /// Of each group with a latency, whether it was missed in the last second; `None`: nothing was answered.
    pub(crate) fn missed_by_path(&self, now: Instant) -> BTreeMap<String, Option<bool>> {
        let latencies = self.kept(now).latencies;
        let missed = |(path, id)| Some((path, latencies.get(&id)?.missed()));
        self.groups().into_iter().filter_map(missed).collect()
    }

    pub(crate) fn depth(&self) -> u16 {
        self.state().plan.bounds().0
    }

    /// pooled.1: workers are to be woken then.
    fn take_turn(&self, now: Instant, turn: &Allotment) {
        let groups = self.groups();
        for mut queue in self.queues().iter().flat_map(|queues| queues.each()) {
            queue.share_depth(now, turn.depth);
            for (path, held) in &turn.groups {
                let there = groups.get(path).filter(|id| **id != GroupId::ROOT);
                if let Some(id) = there.filter(|id| queue.groups().group(**id).is_some()) {
                    queue.weigh(now, *id, held.weight);
                }
            }
        }
    }

    /// pooled.2: `others` is the budget of the group's ceiling on the other disks.
    fn hold(&self, now: Instant, id: GroupId, bounds: &Bounds, others: Option<&Arc<Budget>>) {
        let before = self.state().bounds.get(&id).cloned().unwrap_or_default();
        let is_others = |own: &Arc<Budget>| others.is_some_and(|others| Arc::ptr_eq(own, others));
        let own = before.of_queue.budget.clone().filter(|own| !is_others(own));
        if before.bounds() == *bounds && own.is_some() == before.of_queue.budget.is_some() {
            return;
        }
        let (bound, goes_on) = Bound::new(now, bounds, own);
        self.set_bound(now, id, &bound, goes_on);
    }
}

impl Disks {
    /// Has the queues of a disk hold to this gateway's part of the pool, until the next turn.
    pub(crate) fn take_turn(&self, now: Instant, disk: &Disk, turn: &Allotment) {
        disk.take_turn(now, turn);
        let groups = disk.groups();
        for (path, held) in &turn.groups {
            if let Some(id) = groups.get(path) {
                disk.hold(now, *id, &held.bounds, self.budget_of(*id).as_ref());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fairlift_core::ceiling::{Ceiling, Rate, Rates};
    use fairlift_core::gateways::Allotted;
    use fairlift_core::sched::Kind;
    use fairlift_core::{Group, Weight};

    use super::*;
    use crate::config;

    /// pooled.2: a ceiling of 1,000; a quarter of it is for this gateway's disk of the pool.
    #[test]
    fn a_part_of_a_ceiling_is_for_the_disk_of_the_pool_alone() {
        let most = |iops| Bounds { ceiling: Ceiling::of(Rates::NONE.with(Rate::Iops, iops)), ..Bounds::default() };
        let tenant = Group { path: "/a".into(), parent: Some(GroupId::ROOT), weight: Weight::DEFAULT };
        let disk = |name| {
            Arc::new(
                Disk::new(&config::Disk::new(name, Kind::Fair), &[], &[Group::root(), tenant.clone()], 64).unwrap(),
            )
        };
        let (pool, local) = (disk("pool"), disk("local"));
        let disks = Disks::new(vec![Arc::clone(&pool), Arc::clone(&local)]);
        let id = GroupId(1);
        let has = |disk: &Disk| {
            disk.state().bounds.get(&id).map(|bound| (bound.bounds(), bound.of_queue.budget.clone().unwrap()))
        };
        let turn = |iops| {
            let held = Allotted { weight: Weight::DEFAULT, bounds: most(iops) };
            disks.take_turn(Instant::ZERO, &pool, &Allotment { depth: 8.0, groups: [("/a".into(), held)].into() });
        };
        disks.set_bounds(Instant::ZERO, id, &most(1000));
        turn(250);
        let (bounds, own) = has(&pool).unwrap();
        assert_eq!((bounds, has(&local).unwrap().0), (most(250), most(1000)));
        assert!(!Arc::ptr_eq(&own, &has(&local).unwrap().1), "what one of them took, the other would have taken");
        turn(400);
        assert!(Arc::ptr_eq(&own, &has(&pool).unwrap().1), "its state goes on");
        assert_eq!(has(&pool).unwrap().0, most(400));
        // The operator's word holds at once, and from the next period on as the pool's.
        disks.set_bounds(Instant::ZERO, id, &most(400));
        turn(400);
        assert!(!Arc::ptr_eq(&has(&pool).unwrap().1, &has(&local).unwrap().1));
        disks.set_bounds(Instant::ZERO, id, &Bounds::default());
        assert!(has(&pool).is_none() && has(&local).is_none());
    }
}
