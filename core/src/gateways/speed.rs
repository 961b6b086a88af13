//! Speed: the service that one outstanding request of a gateway has, a second.
//!
//! *Example.* Two gateways have 32 requests each in a cluster that serves in order of arrival. One asks for 4 KiB at a time and has 1,000 reads a second,
//! the other for 64 KiB and has the service of 3,000. So the first one needs three times as many requests for the same service.
//!
//! speed.1  A gateway's speed is that of its last busy period: a gateway with little of a processor is slow for some seconds, and then is not. Gateways
//!          whose clocks agree tell of the same seconds, so a cluster that is slow for a moment is as slow at each. A period with less service and
//!          fewer requests than before counts in proportion, but for a quarter at least: the cluster may have stood still for a part of it.
//! speed.2  A period in which requests waited and next to none ended is left out, and the report before it is told again, but for settings:
//!          the cluster stood still. Each gateway leaves such a period out, so shares are as they were when the cluster goes on. After [`STILL_MOST`] in a row the speed is learned anew.
//! speed.3  A period in which nothing waited only gives a lower bound of the speed. Example: a client reads one block at a time, where 16 requests
//!          might be outstanding; the fifteen that were not are no slow ones.
//! speed.4  Only speeds of the same time are compared. When a gateway comes or goes, others have more or less for each request from then on: each
//!          forgets its speed. When one comes, each leaves out its next busy period, too. Example: a gateway is back, and another
//!          one still has all of the pool's requests outstanding, for it has not heard of that. This second is slow at the one that is back
//!          alone. Until a speed is known it is taken for the mean of those that are. The speed of a gateway that was not heard of since is taken
//!          to have changed as our own did.

/// Next to nothing: the last busy period's service, over this. Chosen.
const STILL: f64 = 16.0;
/// Chosen: twice the time after which Ceph takes an OSD that does not answer for down.
const STILL_MOST: u32 = 40;
/// The least that a period counts (speed.1). Chosen: a gateway that is ten times as slow is so after some ten periods.
const COUNTS_LEAST: f64 = 0.25;

/// Of a gateway's last busy period: service and requests, for each outstanding one.
#[derive(Clone, Default, Debug)]
pub(super) struct Speed {
    last: Option<[f64; 2]>,
    still: u32,
    /// The next busy period is left out (speed.4).
    is_new: bool,
}

impl Speed {
    /// Of a gateway that comes, and of one beside it (speed.4).
    pub(super) fn anew() -> Self {
        Self { is_new: true, ..Self::default() }
    }

    /// The service for each outstanding request, a second; `None`: it is not known yet.
    pub(super) fn get(&self) -> Option<f64> {
        self.last.map(|[service, _]| service)
    }

    /// Takes a period with its service and its requests, with `depth` outstanding. Returns the factors by which its service and its requests
    /// are to be told (gossip.4); `None`: the cluster stood still.
    pub(super) fn period(&mut self, served: f64, requests: f64, depth: f64, waits: bool) -> Option<[f64; 2]> {
        let now = [served / depth, requests / depth];
        if !(waits || self.last.is_some_and(|last| now[0] > last[0])) {
            self.still = 0;
            return Some([1.0; 2]); // speed.3
        }
        // speed.4
        if self.is_new {
            self.is_new = served <= 0.0;
            return Some([1.0; 2]);
        }
        // speed.2
        let is_still = self.last.is_some_and(|last| (0..2).all(|of| STILL * now[of] < last[of]));
        if is_still && self.still < STILL_MOST {
            self.still += 1;
            return None;
        }
        self.still = 0;
        if !now.iter().all(|one| one.is_finite() && *one > 0.0) {
            self.last = self.last.filter(|_| !is_still);
            return Some([1.0; 2]);
        }
        // speed.1
        let before = self.last.filter(|_| !is_still).unwrap_or(now);
        let counts = (now[0] / before[0]).max(now[1] / before[1]).clamp(COUNTS_LEAST, 1.0);
        let last = [0, 1].map(|of| before[of] + counts * (now[of] - before[of]));
        self.last = Some(last);
        Some(if waits { [last[0] / now[0], last[1] / now[1]] } else { [1.0; 2] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway after a period of 800 reads with eight outstanding.
    fn busy() -> Speed {
        let mut speed = Speed::default();
        assert_eq!(speed.period(800.0, 800.0, 8.0, true), Some([1.0; 2]));
        assert_eq!(speed.get(), Some(100.0));
        speed
    }

    /// speed.1
    #[test]
    fn requests_that_become_large_or_small_or_fast_are_followed_at_once() {
        for (served, requests) in
            [(800.0 * 256.0, 800.0), (800.0 / 256.0, 800.0), (800.0, 3.0), (800.0, 80_000.0), (1600.0, 1600.0)]
        {
            let mut speed = busy();
            assert_eq!(speed.period(served, requests, 8.0, true), Some([1.0; 2]), "told as it was");
            assert_eq!(speed.get(), Some(served / 8.0));
        }
    }

    /// speed.1, gossip.4
    #[test]
    fn a_second_in_which_the_cluster_stood_still_for_a_while_counts_by_what_it_had() {
        let mut speed = busy();
        assert_eq!(speed.period(400.0, 400.0, 8.0, true), Some([1.5; 2]), "told by the speed");
        assert_eq!(speed.get(), Some(75.0));
        let mut speed = busy();
        assert_eq!(speed.period(80.0, 80.0, 8.0, true), Some([7.75; 2]));
        assert_eq!(speed.get(), Some(77.5));
        (0..20).for_each(|_| _ = speed.period(80.0, 80.0, 8.0, true));
        assert!(speed.get().is_some_and(|now| (10.0..10.5).contains(&now)), "it is slow, not still: {speed:?}");
    }

    /// speed.2
    #[test]
    fn a_cluster_that_stands_still_for_ten_seconds_changes_no_speed() {
        let mut speed = busy();
        assert!((0..10).all(|_| speed.period(0.0, 0.0, 8.0, true).is_none()));
        assert_eq!(speed.get(), Some(100.0));
        assert_eq!(speed.period(1200.0, 1200.0, 8.0, true), Some([1.0; 2]));
        assert_eq!(speed.get(), Some(150.0));
    }

    /// speed.2
    #[test]
    fn a_cluster_that_stands_still_for_a_minute_is_taken_for_slow() {
        for (slow, known) in [(8.0, Some(1.0)), (0.0, None)] {
            let mut speed = busy();
            assert!((0..STILL_MOST).all(|_| speed.period(slow, slow, 8.0, true).is_none()));
            assert_eq!(speed.period(slow, slow, 8.0, true), Some([1.0; 2]));
            assert_eq!(speed.get(), known);
        }
    }

    /// speed.4
    #[test]
    fn the_first_busy_period_beside_a_gateway_that_comes_is_left_out() {
        let mut speed = Speed::anew();
        for (served, waits, known) in
            [(0.0, false, None), (0.0, true, None), (300.0, true, None), (800.0, true, Some(100.0))]
        {
            assert_eq!(speed.period(served, served, 8.0, waits), Some([1.0; 2]));
            assert_eq!(speed.get(), known);
        }
    }

    /// speed.3
    #[test]
    fn a_gateway_at_which_nothing_waits_is_no_slower_for_it() {
        for (mut speed, known) in [(busy(), Some(100.0)), (Speed::default(), None)] {
            assert_eq!(speed.period(80.0, 80.0, 8.0, false), Some([1.0; 2]));
            assert_eq!(speed.get(), known);
        }
        let mut speed = busy();
        assert_eq!(speed.period(1600.0, 1600.0, 8.0, false), Some([1.0; 2]));
        assert_eq!(speed.get(), Some(200.0));
    }
}
