//! Charge: what is paid for time that the device spends beside the requests of turns.
//!
//! A flush is no request of any queue, and takes the device from all of them. Example: a disk reads 60 MB/s for two groups. One of them
//! flushes 20 times a second, 10 ms each; the other would lose a fifth of its share for that. So the group that flushes is charged
//! what was not served meanwhile: 12 MB a second. (Linux charges nobody.)
//!
//! charge.1  Time that is spent for a stream outside of its requests (flushes) is charged as the service that others lost in it ([`pace`]);
//!           until that is known, at the device's best rate.
//! charge.2  The group's writes since its last flush, which were charged, are taken off: the flush works them off.
//! charge.3  Discards and writes of zeroes are charged as a read of 4 KiB when they go to the device, and by time when they end: their
//!           length says little of it.

use alloc::vec::Vec;

use crate::learn::pace::{self, Pace};
use crate::{Duration, GroupId, Instant, Op};

/// The first charge of a non-data command, in sectors. Chosen: as a read of 4 KiB; a stream that sends many at a time has few turns
/// with them.
const NON_DATA: u64 = 8;

/// The charge of a request, in sectors (charge.3).
#[inline]
pub(super) const fn size(op: Op, sectors: u64) -> u64 {
    if pace::is_non_data(op) && sectors > NON_DATA { NON_DATA } else { sectors }
}

/// Of a group, in sectors: written since the last flush began, and between that and the one before.
#[derive(Clone, Copy, Default, Debug)]
struct Written {
    since: u64,
    before: u64,
}

/// The worth of a time, in sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Worth {
    pub(super) sectors: u64,
    /// The service of others meanwhile.
    pub(super) meanwhile: u64,
}

/// The device's pace, and the writes of groups; see the [module](self) for the rules.
#[derive(Default, Debug)]
pub(super) struct Charges {
    pub(super) pace: Pace,
    groups: Vec<Written>,
}

impl Charges {
    /// Makes room for a group.
    pub(super) fn add_group(&mut self, group: GroupId) {
        self.groups.resize(self.groups.len().max(usize::from(group.0) + 1), Written::default());
    }

    /// A request of a group goes to the device, with `in_flight` there.
    #[inline]
    pub(super) fn begins(&mut self, now: Instant, op: Op, in_flight: u32, group: GroupId, sectors: u64) {
        self.pace.count(now, in_flight, 0);
        if pace::is_non_data(op) {
            self.pace.begins(now, in_flight);
        }
        if op == Op::Write {
            self.groups[usize::from(group.0)].since += sectors;
        }
    }

    /// A command that was turned back goes to the device again.
    pub(super) fn begins_again(&mut self, now: Instant, op: Op, in_flight: u32) {
        if pace::is_non_data(op) {
            self.pace.begins(now, in_flight);
        }
    }

    /// A request has ended, of those that were in the device. Answers what its stream is charged beside its sectors (charge.3).
    #[inline]
    pub(super) fn ends(&mut self, now: Instant, op: Op, in_flight: u32, sectors: u64) -> u64 {
        let is_non_data = pace::is_non_data(op);
        self.pace.count(now, in_flight, if is_non_data { 0 } else { sectors });
        if !is_non_data {
            return 0;
        }
        let took = self.pace.ends(now, Duration::ZERO);
        self.pace.worth(took).unwrap_or(0).saturating_sub(sectors)
    }

    /// It was turned back, and is not charged.
    pub(super) fn turned_back(&mut self, now: Instant, op: Op) {
        if pace::is_non_data(op) {
            self.pace.ends(now, Duration::ZERO);
        }
    }

    pub(super) fn flush_begins(&mut self, now: Instant, in_flight: u32) {
        self.pace.begins(now, in_flight);
        for group in &mut self.groups {
            *group = Written { since: 0, before: group.since };
        }
    }

    /// The worth of that much time to a group, where the device does `best` in it at its best (charge.1, charge.2).
    pub(super) fn worth(&mut self, group: GroupId, time: Duration, best: u64) -> Worth {
        let worth = self.pace.worth(time).unwrap_or(best);
        let written = &mut self.groups[usize::from(group.0)].before;
        let covered = worth.min(*written);
        *written -= covered;
        Worth { sectors: worth - covered, meanwhile: self.pace.meanwhile(time) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::us;

    const GROUP: GroupId = GroupId(1);

    fn at(micros: u64) -> Instant {
        Instant::ZERO + us(micros)
    }

    /// A device that has read 8 sectors every 10 us, up to 10 ms.
    fn busy() -> Charges {
        let mut charges = Charges::default();
        charges.add_group(GROUP);
        for n in 0..1000 {
            charges.begins(at(10 * n), Op::Read, u32::from(n > 0), GROUP, 8);
            assert_eq!(charges.ends(at(10 * (n + 1)), Op::Read, 1, 8), 0);
        }
        charges
    }

    /// charge.1
    #[test]
    fn a_flush_is_charged_what_was_not_served_meanwhile() {
        let mut charges = busy();
        charges.flush_begins(at(10_000), 1);
        charges.ends(at(10_500), Op::Read, 1, 400);
        charges.pace.ends(at(12_000), us(2000));
        assert_eq!(charges.worth(GROUP, us(2000), 0), Worth { sectors: 1200, meanwhile: 400 });
    }

    /// charge.1
    #[test]
    fn until_the_pace_is_known_a_flush_is_charged_what_the_device_does_at_its_best() {
        let mut charges = Charges::default();
        charges.add_group(GROUP);
        assert_eq!(charges.worth(GROUP, us(2000), 777), Worth { sectors: 777, meanwhile: 0 });
    }

    /// charge.2
    #[test]
    fn what_the_group_has_written_is_taken_off_once() {
        let mut charges = busy();
        charges.begins(at(10_000), Op::Write, 1, GROUP, 700);
        charges.flush_begins(at(10_000), 1);
        charges.begins(at(10_000), Op::Write, 1, GROUP, 5000); // for the flush after this one
        charges.pace.ends(at(12_000), us(2000));
        let worths = [(); 2].map(|()| charges.worth(GROUP, us(1000), 0).sectors);
        assert_eq!(worths, [800 - 700, 800]);
    }

    /// charge.3
    #[test]
    fn a_discard_is_charged_its_time_and_not_its_length() {
        let mut charges = busy();
        let sectors = size(Op::Discard, 1 << 30);
        charges.begins(at(10_000), Op::Discard, 0, GROUP, sectors);
        assert_eq!((sectors, charges.ends(at(11_000), Op::Discard, 1, sectors)), (8, 800 - 8));
        charges.begins(at(11_000), Op::Discard, 0, GROUP, sectors);
        charges.turned_back(at(12_000), Op::Discard);
        assert_eq!(size(Op::Write, 1 << 20), 1 << 20);
    }
}
