//! Speed: the service that one outstanding request of a gateway has, a second.
//!
//! *Example.* Two gateways have 32 requests each in a cluster that serves in order of arrival. One asks for 4 KiB at a time and has 1,000 reads a second,
//! the other for 64 KiB and has the service of 3,000. So the first one needs three times as many requests for the same service.
//!
//! speed.1  A gateway's speed is the median of its last [`PERIODS`] periods. A cluster that stands still for ten seconds begins and ends that within a period, of which
//!          each gateway has another part: none of these periods is to change shares.
//! speed.2  A period in which next to nothing ended of what waited is left out, and what was told before it is told again, but for settings: the cluster stood still. Each
//!          gateway leaves such a period out, so shares are as they were when the cluster goes on. After [`STILL_MOST`] in a row the speed is learned anew.
//! speed.3  A period in which nothing waited says only that the speed is at least so much. Example: a client reads one block at a time, where 16 requests
//!          might be outstanding; the fifteen that were not are no slow ones.
//! speed.4  Only speeds of the same time are compared. When a gateway comes or goes, others have more or less for each request from then on: each
//!          forgets its periods before. When one comes, each leaves out its next [`SKIPPED`] busy periods, too. Example: a gateway is back, and another
//!          one still has all of the pool's requests outstanding, for it has not heard of that. The first second is slow at the one that is back
//!          alone. Until a speed is known it is taken for the mean of those that are. The speed of a gateway that was not heard of since is taken
//!          to have changed as our own did.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Chosen: two odd periods, as a cluster that stood still leaves, change no median of five. A step is followed after three.
const PERIODS: usize = 5;
/// Next to nothing: a usual period over this. Chosen: with 2, gateways that had more for a moment, as another one died, took what is usual
/// for a cluster that stood still.
const STILL: f64 = 16.0;
/// Chosen: twice the time after which Ceph takes an OSD that does not answer for down.
const STILL_MOST: u32 = 40;
/// In a gateway's first busy period the others may not have heard of it, and in its second one they may have made room after half of it only.
const SKIPPED: u32 = 2;

/// Of a gateway's last periods: service and requests, for each outstanding one.
#[derive(Clone, Default, Debug)]
pub(super) struct Speed {
    last: VecDeque<[f64; 2]>,
    still: u32,
    /// Periods that are left out from now on (speed.4).
    skipped: u32,
}

impl Speed {
    /// Of a gateway that comes, and of one beside it (speed.4).
    pub(super) fn anew() -> Self {
        Self { skipped: SKIPPED, ..Self::default() }
    }

    /// A usual period's service for each outstanding request; `None`: there was none yet.
    pub(super) fn get(&self) -> Option<f64> {
        (!self.last.is_empty()).then(|| self.usual()[0])
    }

    /// Of service and requests; 0: none is known.
    fn usual(&self) -> [f64; 2] {
        if self.last.is_empty() {
            return [0.0; 2];
        }
        [0, 1].map(|of| {
            let mut sorted: Vec<f64> = self.last.iter().map(|period| period[of]).collect();
            sorted.sort_by(f64::total_cmp);
            let middle = sorted.len() / 2;
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
        })
    }

    /// Takes a period of so much service and so many requests, with so many outstanding. Answers how many times as much service and how many times as
    /// many requests a usual one has; `None`: the cluster stood still.
    pub(super) fn period(&mut self, served: f64, requests: f64, depth: f64, waits: bool) -> Option<[f64; 2]> {
        let now = [served / depth, requests / depth];
        let usual = self.usual();
        let is_known = !self.last.is_empty();
        let is_faster = is_known && now[0] > usual[0];
        if !(waits || is_faster) {
            self.still = 0;
            return Some([1.0; 2]); // speed.3
        }
        // speed.4
        if self.skipped > 0 {
            self.skipped -= u32::from(served > 0.0);
            return Some([1.0; 2]);
        }
        // speed.2
        if is_known && (0..2).all(|of| STILL * now[of] < usual[of]) {
            if self.still < STILL_MOST {
                self.still += 1;
                return None;
            }
            self.last.clear();
        }
        self.still = 0;
        if !now.iter().all(|one| one.is_finite() && *one > 0.0) {
            return Some([1.0; 2]);
        }
        if self.last.len() == PERIODS {
            self.last.pop_front();
        }
        self.last.push_back(now);
        let usual = self.usual();
        Some(if waits { [usual[0] / now[0], usual[1] / now[1]] } else { [1.0; 2] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway after four periods of 800 reads with eight outstanding.
    fn busy() -> Speed {
        let mut speed = Speed::default();
        (0..4).for_each(|_| _ = speed.period(800.0, 800.0, 8.0, true));
        speed
    }

    /// speed.1, speed.2
    #[test]
    fn a_cluster_that_stands_still_for_ten_seconds_changes_no_speed() {
        let mut speed = busy();
        assert_eq!(speed.period(500.0, 500.0, 8.0, true), Some([1.6; 2]), "told as a usual period would have been");
        assert!((0..10).all(|_| speed.period(0.0, 0.0, 8.0, true).is_none()));
        assert_eq!(speed.period(200.0, 200.0, 8.0, true), Some([4.0; 2]));
        assert_eq!(speed.get(), Some(100.0));
    }

    /// speed.1, speed.2
    #[test]
    fn requests_that_become_large_or_small_are_followed_after_three_periods() {
        for (from, to) in [(1.0, 256.0), (256.0, 1.0)] {
            let mut speed = Speed::default();
            (0..5).for_each(|_| _ = speed.period(800.0 * from, 800.0, 8.0, true));
            (0..2).for_each(|_| assert_eq!(speed.period(800.0 * to, 800.0, 8.0, true), Some([from / to, 1.0])));
            assert_eq!(speed.get(), Some(100.0 * from));
            assert_eq!(speed.period(800.0 * to, 800.0, 8.0, true), Some([1.0; 2]));
            assert_eq!(speed.get(), Some(100.0 * to));
        }
    }

    /// speed.2
    #[test]
    fn a_cluster_that_stands_still_for_a_minute_is_taken_for_slow() {
        let mut speed = busy();
        assert!((0..STILL_MOST).all(|_| speed.period(8.0, 8.0, 8.0, true).is_none()));
        assert_eq!(speed.period(8.0, 8.0, 8.0, true), Some([1.0; 2]));
        assert_eq!(speed.get(), Some(1.0));
    }

    /// speed.4
    #[test]
    fn the_first_two_busy_periods_beside_a_gateway_that_comes_are_left_out() {
        let mut speed = Speed::anew();
        for (served, waits, known) in [
            (0.0, false, None),
            (0.0, true, None),
            (300.0, true, None),
            (400.0, true, None),
            (800.0, true, Some(100.0)),
        ] {
            assert_eq!(speed.period(served, served, 8.0, waits), Some([1.0; 2]), "told as it was");
            assert_eq!(speed.get(), known);
        }
    }

    /// speed.3
    #[test]
    fn a_gateway_at_which_nothing_waits_is_no_slower_for_it() {
        for (mut speed, known) in [(busy(), Some(100.0)), (Speed::default(), None)] {
            (0..5).for_each(|_| assert_eq!(speed.period(80.0, 80.0, 8.0, false), Some([1.0; 2])));
            assert_eq!(speed.get(), known);
        }
        let mut speed = busy();
        (0..5).for_each(|_| _ = speed.period(1600.0, 1600.0, 8.0, false));
        assert_eq!(speed.get(), Some(200.0));
    }
}
