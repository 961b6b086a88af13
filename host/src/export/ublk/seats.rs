//! The places of queues at their worker, by which the kernel's answers to their commands are known.

use slab::Slab;

/// The places of a worker's queues. One whose queue has left is given to no other before the kernel has answered all commands that name
/// it. Example: a device is left for the next server, and the kernel answers a command of its queue with a request for that server.
pub(super) struct Seats<Q>(Slab<Seat<Q>>);

enum Seat<Q> {
    Taken(Q),
    /// Its queue has left this many commands in the kernel.
    Left(usize),
}

impl<Q> Seats<Q> {
    pub(super) const fn new() -> Self {
        Self(Slab::new())
    }

    /// Puts a queue there that is made for its place.
    pub(super) fn take(&mut self, make: impl FnOnce(usize) -> Q) -> usize {
        let entry = self.0.vacant_entry();
        let seat = entry.key();
        entry.insert(Seat::Taken(make(seat)));
        seat
    }

    /// The queue of a seat, if it is there.
    pub(super) fn get(&mut self, seat: usize) -> Option<&mut Q> {
        match self.0.get_mut(seat) {
            Some(Seat::Taken(queue)) => Some(queue),
            Some(Seat::Left(_)) | None => None,
        }
    }

    /// The existing queues.
    pub(super) fn all(&mut self) -> impl Iterator<Item = (usize, &mut Q)> {
        self.0.iter_mut().filter_map(|(seat, there)| match there {
            Seat::Taken(queue) => Some((seat, queue)),
            Seat::Left(_) => None,
        })
    }

    /// Whether no queue is there.
    pub(super) fn are_empty(&self) -> bool {
        self.0.iter().all(|(_, seat)| matches!(seat, Seat::Left(_)))
    }

    /// A queue leaves `commands` in the kernel.
    pub(super) fn leave(&mut self, seat: usize, commands: usize) {
        if commands == 0 {
            self.0.remove(seat);
        } else {
            self.0[seat] = Seat::Left(commands);
        }
    }

    /// The kernel has answered a command of a seat: its queue, if it has not left.
    pub(super) fn answered(&mut self, seat: usize) -> Option<&mut Q> {
        if let Some(Seat::Left(commands)) = self.0.get_mut(seat) {
            *commands -= 1;
            if *commands == 0 {
                self.0.remove(seat);
            }
            return None;
        }
        self.get(seat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_given_out_again_once_the_kernel_has_nothing_of_it() {
        let mut seats = Seats::new();
        let left = seats.take(|seat| ("left", seat));
        assert_eq!(seats.answered(left), Some(&mut ("left", left)));
        seats.leave(left, 2);
        assert!(seats.are_empty() && seats.all().next().is_none());
        let next = seats.take(|seat| ("next", seat));
        assert_ne!(next, left, "two commands of the one that left are in the kernel");
        assert_eq!(seats.answered(left), None, "it is not the next one's");
        assert_eq!(seats.answered(left), None);
        assert_eq!(seats.answered(next), Some(&mut ("next", next)));
        assert_eq!(seats.take(|seat| ("again", seat)), left);
        seats.leave(next, 0);
        assert_eq!(seats.take(|seat| ("at once", seat)), next);
    }
}
