//! Some runs of each suite of torture; `cargo run -p fairlift-proving` makes more of them.

use fairlift_lab::repeat::seeds;
use fairlift_proving::torture::{Count, SUITES, Suite};

#[test]
fn every_promise_is_kept_in_some_runs_of_each_suite() {
    let mut broken = String::new();
    for suite in SUITES {
        let first = seeds(0..6).find_map(|seed| Some((seed, suite.run_all(seed).broken?)));
        if let Some((seed, how)) = first {
            broken += &format!("{} with seed {seed}, {}: {how}\n", suite.name, (suite.says)(seed));
        }
    }
    assert!(broken.is_empty(), "\n{broken}");
}

/// What runs have found: a budget of `bfq` beyond what can be counted, and a client whose room came in the turn in which it was
/// turned away. And of the suites themselves: a disk that kept all shared tags of one queue, an end that was not waited for, a lie
/// that was forgotten, whole places taken for exact shares.
#[test]
fn what_was_found_once_is_not_found_again() {
    let of_suites = [("flood", 100036), ("queue", 27247), ("queue", 26051), ("shares", 8450)];
    for (suite, seed) in [("flood", 12), ("power", 808)].into_iter().chain(of_suites) {
        assert_eq!(Suite::named(suite).unwrap().run_all(seed).broken, None, "{suite} with seed {seed}");
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for suite in SUITES {
        let [first, second] = [suite.run_all(7), suite.run_all(7)];
        assert_eq!(first.tally, second.tally, "{}", suite.name);
        assert_ne!(first.tally, suite.run_all(8).tally, "{}", suite.name);
    }
}

/// Steps mean something by themselves: a run without some of them is a run too.
#[test]
fn a_run_goes_without_some_of_its_steps() {
    let queue = Suite::named("queue").unwrap();
    let ended = queue.run(3, &mut (0..(queue.steps)(3)).filter(|number| number % 3 > 0));
    assert_eq!(ended.broken, None);
    assert!(ended.tally.get(Count::Ios) > 0);
}
