//! Trials: which way a device is used, and with how many requests.
//!
//! Both are found by trying on the requests that come, and each is seen by the other as noise: a window in which the depth is halved says
//! less of idling. One place owns both, so that one rule can say when each may measure.
//!
//! trials.1  Each way has a depth of its own, for in turns one stream fills the device, and together all do.
//! trials.2  A measurement of a depth is begun anew when the way changes.
//! trials.3  Both measure at once. To let one wait for the other was tried in five ways: the depth at rest while ways are compared, its
//!           trial frozen or begun anew, for both ways or for the present one, and comparisons of ways put off while a depth is
//!           compared. Each costs sequential writers on `eva-raid5-12` 16 % of their throughput, for a depth is learned in the windows of
//!           a comparison of ways, too, and has few others (docs/measured/schedulers.md).

use super::depth::{self, Depth};
use super::idling_trial::{self, IdlingTrial, Way};
use crate::Instant;
use crate::record::{Record, Unreadable};

/// Its parts of a record.
const PARTS: [&str; 2] = ["idles", "depths"];

/// The state of the trials; see the [module](self) for the rules.
#[derive(Debug)]
pub(crate) struct Trials {
    pub(crate) ways: IdlingTrial,
    /// In turns, and together.
    depths: [Depth; 2],
    was_together: bool,
}

/// A request that ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) sectors: u64,
    pub(crate) what: depth::Ended,
    /// Requests that were in the device, or could have been but for the limit.
    pub(crate) demand: u32,
    /// Other requests waited for a queue.
    pub(crate) share_wait: bool,
    /// Many streams were served at once.
    pub(crate) is_together: bool,
    /// For a comparison of ways; `None`: the way is set by hand.
    pub(crate) way: Option<idling_trial::End>,
}

impl Trials {
    /// For a device that takes `max` at once.
    pub(crate) fn new(max: u32, rotational: bool) -> Self {
        Self {
            ways: IdlingTrial::new(if rotational { Way::Idle } else { Way::Parallel }),
            depths: [true, rotational].map(|from_all| Depth::new(max, from_all)),
            was_together: false,
        }
    }

    /// How many requests may be in the device.
    #[inline]
    pub(crate) const fn limit(&self, is_together: bool) -> u32 {
        self.depths[is_together as usize].limit
    }

    /// A request ended. Answers whether many are served at once, or no longer, since the one before.
    pub(crate) fn ended(&mut self, now: Instant, end: &Ended) -> bool {
        let has_changed = end.is_together != core::mem::replace(&mut self.was_together, end.is_together);
        let depth = &mut self.depths[usize::from(end.is_together)];
        if has_changed {
            depth.resume(); // trials.2
        }
        depth.ended(now, end.sectors, end.what, end.demand, end.share_wait);
        if let Some(way) = end.way {
            self.ways.ended(now, way); // trials.3
        }
        has_changed
    }

    /// The device takes `max` at once from now on.
    pub(crate) fn set_max(&mut self, max: u32) {
        self.depths.iter_mut().for_each(|depth| depth.set_max(max));
    }

    /// The load is another, as the scheduler knows.
    pub(crate) fn review(&mut self, rotational: bool) {
        if rotational {
            self.ways.review();
        }
        self.depths.iter_mut().for_each(Depth::review);
    }

    /// The device turns out to rotate, or not to.
    pub(crate) fn rotates(&mut self, now: Instant, rotational: bool) {
        self.ways.guess(now, if rotational { Way::Idle } else { Way::Parallel });
    }

    /// For the next scheduler: which way is right, and with how many requests each way.
    pub(crate) fn hand_on(&self, into: &mut Record) {
        into.put(PARTS[0], &(self.ways.base == Way::Idle));
        into.put(PARTS[1], &self.depths.each_ref().map(Depth::found));
    }

    pub(crate) fn take_on(&mut self, from: &mut Record) -> Result<(), Unreadable> {
        if let Some(idles) = from.take(PARTS[0])? {
            self.ways = IdlingTrial::new(if idles { Way::Idle } else { Way::Parallel });
        }
        for (depth, base) in self.depths.iter_mut().zip(from.take::<[u32; 2]>(PARTS[1])?.into_iter().flatten()) {
            if base > 0 {
                depth.begin_at(base);
            }
        }
        Ok(())
    }

    /// The setting found best, and the number of trials.
    pub(crate) fn counters(&self, is_together: bool, tell: &mut dyn FnMut(&'static str, u64)) {
        tell("device_depth", self.depths[usize::from(is_together)].base.into());
        tell("depth_trials", self.depths.iter().map(|depth| depth.trials).sum());
        tell("together", is_together.into());
        tell("idle_trials", self.ways.trials);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Duration;

    /// A device that does best with 16 of at most 64 requests, and as much in turns as together.
    struct Bed {
        trials: Trials,
        now: Instant,
    }

    impl Bed {
        fn new(rotational: bool) -> Self {
            Self { trials: Trials::new(64, rotational), now: Instant::ZERO }
        }

        /// Ends this many requests, in turns or together.
        fn run(&mut self, ends: u32, is_together: bool) {
            for _ in 0..ends {
                let limit = self.trials.limit(is_together);
                self.now += Duration::from_nanos(1_600_000 / u64::from(limit.min(16)));
                let what = depth::Ended::Other;
                let end = Ended { sectors: 8, what, demand: 500, share_wait: false, is_together, way: None };
                self.trials.ended(self.now, &end);
            }
        }
    }

    /// trials.1
    #[test]
    fn each_way_has_a_depth_of_its_own() {
        let mut bed = Bed::new(false);
        assert_eq!((bed.trials.limit(false), bed.trials.limit(true)), (64, 8), "in turns one stream fills flash");
        bed.run(200_000, true);
        assert_eq!((bed.trials.depths[0].base, bed.trials.depths[1].base), (64, 16));
        bed.run(200_000, false);
        assert_eq!((bed.trials.depths[0].base, bed.trials.depths[1].base), (16, 16));
    }

    /// trials.2
    #[test]
    fn the_first_request_that_ends_after_a_change_of_way_is_told() {
        let mut bed = Bed::new(true);
        bed.run(10, false);
        let what = depth::Ended::Other;
        let end = Ended { sectors: 8, what, demand: 500, share_wait: false, is_together: true, way: None };
        assert_eq!([(); 2].map(|()| bed.trials.ended(bed.now, &end)), [true, false]);
    }

    /// trials.3
    #[test]
    fn the_ways_are_compared_where_no_way_is_set_by_hand() {
        let mut bed = Bed::new(true);
        let mut seen = [false; 2];
        for _ in 0..20_000 {
            let is_together = bed.trials.ways.way() == Way::Parallel;
            seen[usize::from(is_together)] = true;
            bed.now += Duration::from_nanos(100_000);
            let way = Some(idling_trial::End { sectors: 8, open: 500, several: true, seeks: false });
            let what = depth::Ended::Other;
            bed.trials.ended(bed.now, &Ended { sectors: 8, what, demand: 500, share_wait: false, is_together, way });
        }
        assert_eq!(seen, [true, true]);
        assert!(bed.trials.ways.take_finding().is_some());
    }
}
