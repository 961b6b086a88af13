//! The places of queues at their worker, by which the kernel's answers to their commands are known.

use slab::Slab;

/// The places of a worker's queues. One whose queue has left is given to no other before the kernel has answered all commands that name
/// it. Example: a device is left for the next server, and the kernel answers a command of its queue with a request for that server.
pub(super) struct QueueSlots<Q>(Slab<QueueSlot<Q>>);

enum QueueSlot<Q> {
    Taken(Q),
    /// Its queue has left this many commands in the kernel.
    Left(usize),
}

impl<Q> QueueSlots<Q> {
    pub(super) const fn new() -> Self {
        Self(Slab::new())
    }

    /// Puts a queue there that is made for its place.
    pub(super) fn take(&mut self, make: impl FnOnce(usize) -> Q) -> usize {
        let entry = self.0.vacant_entry();
        let queue_slot = entry.key();
        entry.insert(QueueSlot::Taken(make(queue_slot)));
        queue_slot
    }

    pub(super) fn get(&mut self, queue_slot: usize) -> Option<&mut Q> {
        match self.0.get_mut(queue_slot) {
            Some(QueueSlot::Taken(queue)) => Some(queue),
            Some(QueueSlot::Left(_)) | None => None,
        }
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = (usize, &mut Q)> {
        self.0.iter_mut().filter_map(|(queue_slot, there)| match there {
            QueueSlot::Taken(queue) => Some((queue_slot, queue)),
            QueueSlot::Left(_) => None,
        })
    }

    /// Whether no queue is there.
    pub(super) fn are_empty(&self) -> bool {
        self.0.iter().all(|(_, queue_slot)| matches!(queue_slot, QueueSlot::Left(_)))
    }

    /// A queue leaves `commands` in the kernel.
    pub(super) fn leave(&mut self, queue_slot: usize, commands: usize) {
        if commands == 0 {
            self.0.remove(queue_slot);
        } else {
            self.0[queue_slot] = QueueSlot::Left(commands);
        }
    }

    /// The kernel has answered a command of a queue_slot: its queue, if it has not left.
    pub(super) fn answered(&mut self, queue_slot: usize) -> Option<&mut Q> {
        if let Some(QueueSlot::Left(commands)) = self.0.get_mut(queue_slot) {
            *commands -= 1;
            if *commands == 0 {
                self.0.remove(queue_slot);
            }
            return None;
        }
        self.get(queue_slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_given_out_again_once_the_kernel_has_nothing_of_it() {
        let mut queue_slots = QueueSlots::new();
        let left = queue_slots.take(|queue_slot| ("left", queue_slot));
        assert_eq!(queue_slots.answered(left), Some(&mut ("left", left)));
        queue_slots.leave(left, 2);
        assert!(queue_slots.are_empty() && queue_slots.all().next().is_none());
        let next = queue_slots.take(|queue_slot| ("next", queue_slot));
        assert_ne!(next, left, "two commands of the one that left are in the kernel");
        assert_eq!(queue_slots.answered(left), None, "it is not the next one's");
        assert_eq!(queue_slots.answered(left), None);
        assert_eq!(queue_slots.answered(next), Some(&mut ("next", next)));
        assert_eq!(queue_slots.take(|queue_slot| ("again", queue_slot)), left);
        queue_slots.leave(next, 0);
        assert_eq!(queue_slots.take(|queue_slot| ("at once", queue_slot)), next);
    }
}
