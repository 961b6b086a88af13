//! Some runs of each suite of torture; `fairlift torture` makes more of them.

use fairlift_lab::repeat::seeds;
use fairlift_lab::torture::{Count, SUITES, Suite};

#[test]
fn every_promise_is_kept_in_some_runs_of_each_suite() {
    for suite in SUITES {
        for seed in seeds(0..6) {
            let ended = suite.run_all(seed);
            assert_eq!(ended.broken, None, "{} with seed {seed}: {}", suite.name, (suite.says)(seed));
        }
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
