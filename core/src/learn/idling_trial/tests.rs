use super::*;

/// A device with a rate for each way, in sectors in 10 ms, and a load.
#[derive(Clone, Copy)]
struct Bed {
    idle: u64,
    parallel: u64,
    /// Sectors that a 10 ms may do more or less, at random.
    noise: u64,
    seeks: bool,
}

/// The result of a run.
struct Ran {
    idling_trial: IdlingTrial,
    now: Instant,
    /// Sectors done, and those that the settled way would have done.
    done: u64,
    best: u64,
    found: Vec<Finding>,
    random: u64,
}

use alloc::vec::Vec;

impl Ran {
    fn new(guess: Way, seed: u64) -> Self {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { idling_trial: IdlingTrial::new(guess), now: Instant::ZERO, done: 0, best: 0, found: Vec::new(), random }
    }

    /// Ends a request every 10 ms, for so long; `several` is asked with the number of the end.
    fn go(&mut self, bed: Bed, time: Duration, several: impl Fn(u64) -> bool) {
        for end in 0..time.as_nanos() / 10_000_000 {
            self.now += ms(10);
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let noise = if bed.noise > 0 { self.random % (2 * bed.noise) } else { bed.noise };
            let rate = |way| if way == Way::Idle { bed.idle } else { bed.parallel };
            let sectors = (rate(self.idling_trial.way()) + noise).saturating_sub(bed.noise);
            self.best += rate(self.idling_trial.base);
            self.done += sectors;
            self.idling_trial.ended(self.now, End { sectors, open: 0, several: several(end), seeks: bed.seeks });
            self.found.extend(self.idling_trial.take_finding());
        }
    }

    fn changes(&self) -> usize {
        self.found.iter().filter(|found| found.from != found.to).count()
    }
}

fn bed(idle: u64, parallel: u64) -> Bed {
    Bed { idle, parallel, noise: 0, seeks: true }
}

fn run(guess: Way, bed: Bed, time: Duration) -> Ran {
    let mut ran = Ran::new(guess, 1);
    ran.go(bed, time, |_| true);
    ran
}

/// idling.1, idling.3
#[test]
fn whatever_it_is_taken_for_the_better_way_is_found_within_two_seconds() {
    for (idle, parallel, better) in [(1000, 3000, Way::Parallel), (1000, 500, Way::Idle), (1000, 1500, Way::Parallel)] {
        for guess in [Way::Idle, Way::Parallel] {
            let ran = run(guess, bed(idle, parallel), secs(2));
            assert_eq!(ran.idling_trial.base, better, "{idle} idle, {parallel} parallel, from {guess}");
        }
    }
}

/// A finding has its time, both ways, and their figures.
#[test]
fn a_finding_carries_both_figures() {
    let ran = run(Way::Idle, bed(1000, 3000), secs(2));
    let [found] = ran.found[..] else { panic!("{:?}", ran.found) };
    assert_eq!((found.from, found.to), (Way::Idle, Way::Parallel));
    // 1000 sectors in 10 ms are 50,000 KiB a second.
    assert!((48_000..52_000).contains(&found.idle) && (145_000..155_000).contains(&found.parallel), "{found:?}");
    assert!(found.at <= Instant::ZERO + secs(2));
}

/// idling.3, idling.4
#[test]
fn six_percent_more_are_taken_and_two_are_not() {
    assert_eq!(run(Way::Idle, bed(1000, 1060), secs(20)).idling_trial.base, Way::Parallel);
    assert_eq!(run(Way::Idle, bed(1000, 1020), secs(20)).idling_trial.base, Way::Idle);
}

/// idling.4: equal ways, with noise, from either guess.
#[test]
fn ways_that_do_the_same_do_not_alternate() {
    for seed in fairlift_lab::repeat::seeds(1..21) {
        for guess in [Way::Idle, Way::Parallel] {
            let mut ran = Ran::new(guess, seed);
            ran.go(Bed { noise: 300, ..bed(1000, 1000) }, secs(300), |_| true);
            assert!(ran.changes() <= 1, "seed {seed}: {:?}", ran.found);
        }
    }
}

/// idling.2
#[test]
fn nothing_is_learned_from_one_who_is_alone() {
    for alone in [1, 2, 5] {
        let mut ran = Ran::new(Way::Idle, 1);
        ran.go(bed(1000, 3000), secs(60), |end| end % alone != 0);
        assert_eq!(ran.idling_trial.base, Way::Idle, "one in {alone}");
    }
}

/// idling.5: over any time, whatever the other way does, no more than 2 % is lost beyond the credit and a pair of windows with their
/// run-up.
#[test]
fn trials_cost_no_more_than_they_may() {
    for (seed, bad) in (1..).zip([0, 10, 100, 300, 500, 700, 800, 900, 950, 990]) {
        for guess in [Way::Idle, Way::Parallel] {
            let (idle, parallel) = if guess == Way::Idle { (1000, bad) } else { (bad, 1000) };
            let mut ran = Ran::new(guess, seed);
            for second in 1..=600 {
                ran.go(Bed { noise: bad / 4, ..bed(idle, parallel) }, secs(1), |_| true);
                assert_eq!(ran.idling_trial.base, guess);
                let lost = 1.0 - ran.done as f64 / ran.best as f64;
                let bound = 0.02 + (0.6 + 4.0 * 0.4) / f64::from(second);
                assert!(lost <= bound, "{bad} of 1000: {lost} of {second} s");
            }
            let lost = 1.0 - ran.done as f64 / ran.best as f64;
            assert!(lost < 0.02, "{bad} of 1000: {lost} after ten minutes");
        }
    }
}

/// idling.7
#[test]
fn a_device_that_changes_is_followed_within_five_seconds() {
    for (before, after) in [((1000, 3000), (1000, 300)), ((1000, 500), (1000, 2000)), ((900, 1000), (2000, 500))] {
        let mut ran = run(Way::Idle, bed(before.0, before.1), secs(60));
        let better = |(idle, parallel)| if idle > parallel { Way::Idle } else { Way::Parallel };
        assert_eq!(ran.idling_trial.base, better(before));
        // So that the present way does another amount as well.
        ran.go(bed(after.0 / 2, after.1 / 2), secs(5), |_| true);
        assert_eq!(ran.idling_trial.base, better(after), "{before:?} to {after:?}: {:?}", ran.found);
    }
}

/// idling.7: streams that read on begin to seek, and do as much with the present way as before.
#[test]
fn a_load_of_another_kind_is_tried_anew() {
    let mut ran = Ran::new(Way::Idle, 1);
    ran.go(Bed { seeks: false, ..bed(1000, 500) }, secs(60), |_| true);
    assert_eq!(ran.idling_trial.base, Way::Idle);
    ran.go(bed(1000, 1500), secs(5), |_| true);
    assert_eq!(ran.idling_trial.base, Way::Parallel, "{:?}", ran.found);
}

/// idling.3: a sequential reader does less at first when it takes turns, and is not given up for that.
#[test]
fn what_a_way_did_before_the_trial_counts() {
    let mut ran = Ran::new(Way::Idle, 1);
    for _ in 0..600 {
        // Turns do 1000, but 700 for the first second after a change of way.
        let is_fresh = ran.idling_trial.trial.is_some();
        let idle = if is_fresh { 700 } else { 1000 };
        ran.go(Bed { seeks: false, ..bed(idle, 800) }, ms(100), |_| true);
    }
    assert_eq!(ran.idling_trial.base, Way::Idle, "{:?}", ran.found);
}

/// A new guess about the device counts at once.
#[test]
fn another_guess_counts_until_it_was_tried() {
    let mut ran = run(Way::Parallel, bed(1000, 3000), secs(60));
    ran.idling_trial.guess(ran.now, Way::Idle);
    assert_eq!(ran.idling_trial.way(), Way::Idle);
    ran.go(bed(1000, 3000), secs(2), |_| true);
    assert_eq!(ran.idling_trial.base, Way::Parallel);
}

/// idling.8
#[test]
fn the_same_ends_give_the_same_ways() {
    let run = || {
        let mut ran = Ran::new(Way::Idle, 7);
        ran.go(Bed { noise: 500, ..bed(1000, 1100) }, secs(100), |end| end % 50 != 0);
        (ran.found, ran.done)
    };
    assert_eq!(run(), run());
}

/// idling.3
#[test]
fn one_pair_that_says_three_times_is_enough() {
    for (parallel, pairs) in [(4000, 1), (2500, 2)] {
        let ran = run(Way::Idle, bed(1000, parallel), secs(2));
        // Windows of twenty ends, 10 ms each, after one of `WATCH`; each begins `SETTLE` and an end after the one before.
        let windows = ran.found[0].at.since(Instant::ZERO + WATCH).as_nanos() / ms(200).as_nanos();
        assert_eq!((ran.idling_trial.base, windows), (Way::Parallel, 2 * pairs), "{parallel}: {:?}", ran.found);
    }
}

/// idling.3: a second pair would cost as much as the first, and say the same.
#[test]
fn where_not_to_idle_was_the_guess_a_pair_that_does_not_gain_ends_the_trial() {
    for (guess, least) in [(Way::Parallel, 2), (Way::Idle, 4)] {
        let (idle, parallel) = if guess == Way::Parallel { (900, 1000) } else { (1000, 900) };
        let ran = run(guess, bed(idle, parallel), secs(3));
        let windows = ran.found[0].at.since(Instant::ZERO + WATCH).as_nanos() / ms(200).as_nanos();
        assert_eq!((ran.idling_trial.base, windows / least), (guess, 1), "{windows}: {:?}", ran.found);
    }
}

/// idling.3: too early to tell, it is looked at again soon.
#[test]
fn a_first_pair_of_streams_that_read_on_is_not_the_last_for_long() {
    let mut ran = Ran::new(Way::Parallel, 1);
    ran.go(Bed { seeks: false, ..bed(1000, 1000) }, secs(10), |_| true);
    assert_eq!(ran.found.len(), 2, "{:?}", ran.found);
    ran.go(Bed { seeks: false, ..bed(1000, 1000) }, secs(30), |_| true);
    assert_eq!(ran.found.len(), 2, "and then left alone: {:?}", ran.found);
}

/// idling.3: streams that read on have small turns at first, in which an arm does a third less than it will; the way that would look better
/// for that is not taken, and one that does twice as much is.
#[test]
fn what_turns_do_at_first_is_no_reason_to_leave_them() {
    for (parallel, better) in [(1300, Way::Idle), (2100, Way::Parallel)] {
        let reads_on = |idle| Bed { seeks: false, ..bed(idle, parallel) };
        let mut ran = run(Way::Idle, reads_on(1000), secs(3));
        ran.go(reads_on(1500), secs(17), |_| true);
        assert!(
            ran.found.len() >= 2 && ran.found.iter().all(|found| found.to == better),
            "{parallel}: {:?}",
            ran.found
        );
    }
}

/// idling.3: for the length of a window only streams that seek had anything to ask.
#[test]
fn a_bad_moment_proves_nothing_against_what_a_way_did_before() {
    let mut ran = Ran::new(Way::Idle, 1);
    ran.go(Bed { seeks: false, ..bed(1000, 900) }, secs(5), |_| true);
    for _ in 0..6000 {
        let is_first = ran
            .idling_trial
            .trial
            .as_ref()
            .is_some_and(|trial| !trial.comparison.is_other && trial.comparison.pairs == 0);
        ran.go(Bed { seeks: false, ..bed(if is_first { 50 } else { 1000 }, 900) }, ms(10), |_| true);
    }
    assert!(ran.found.len() > 1 && ran.changes() == 0, "{:?}", ran.found);
}

/// idling.6: turns have nothing to bring to a load that seeks.
#[test]
fn many_at_once_for_those_who_seek_is_left_alone_for_longer() {
    let trials = |seeks| {
        let mut ran = Ran::new(Way::Idle, 1);
        ran.go(Bed { seeks, ..bed(500, 1000) }, secs(40), |_| true);
        assert_eq!(ran.idling_trial.base, Way::Parallel);
        ran.found.iter().filter(|found| found.from == Way::Parallel).count()
    };
    assert_eq!((trials(true), trials(false)), (1, 2));
}
