//! Competing: how many queues want the device, by class and by group. A queue competes while it is in the fair queue's order.

use alloc::vec::Vec;

use super::{Bfq, Leaf};
use crate::{GroupId, PriorityClass};

/// Counts of the queues that compete.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Competing {
    of_class: [u32; PriorityClass::COUNT],
    of_group: Vec<u32>,
    /// How many groups have a competing queue of their own.
    pub(super) groups: u32,
}

impl Competing {
    /// A group may have queues from now on.
    pub(super) fn add_group(&mut self, group: GroupId) {
        self.of_group.resize(self.of_group.len().max(usize::from(group.0) + 1), 0);
    }

    /// A queue competes from now on.
    pub(super) fn come(&mut self, group: GroupId, class: PriorityClass) {
        let of_group = &mut self.of_group[usize::from(group.0)];
        (self.of_class[class as usize], *of_group) = (self.of_class[class as usize] + 1, *of_group + 1);
        self.groups += u32::from(*of_group == 1);
    }

    /// A queue competes no more.
    pub(super) fn go(&mut self, group: GroupId, class: PriorityClass) {
        let of_group = &mut self.of_group[usize::from(group.0)];
        (self.of_class[class as usize], *of_group) = (self.of_class[class as usize] - 1, *of_group - 1);
        self.groups -= u32::from(*of_group == 0);
    }

    #[inline]
    pub(super) fn queues(&self) -> u32 {
        self.of_class.iter().sum()
    }

    /// How many queues of a group, not of those below it, compete.
    #[inline]
    pub(super) fn queues_of(&self, group: GroupId) -> u32 {
        self.of_group[usize::from(group.0)]
    }

    /// Whether the best-effort class competes with another one.
    #[inline]
    pub(super) fn classes_compete(&self) -> bool {
        let best_effort = self.of_class[PriorityClass::BestEffort as usize];
        best_effort > 0 && best_effort != self.queues()
    }
}

impl Bfq {
    /// The counts, made anew: a check of those that are kept.
    pub(super) fn count_competing(&self) -> Competing {
        let mut counted = Competing { of_group: alloc::vec![0; self.competing.of_group.len()], ..Competing::default() };
        let queues = self.queues.iter().enumerate().filter_map(|(q, queue)| Some((q, queue.as_ref()?)));
        for (_, queue) in queues.filter(|(q, _)| self.fair.is_backlogged(Leaf(*q as u32))) {
            counted.come(queue.group, queue.priority.class);
        }
        counted
    }
}
