//! What a random test says when it fails, and that it is true.

use std::process::Command;

use fairlift_lab::repeat;
use proptest::prelude::*;

/// Whether the broken tests below shall fail; they are run by [`last_line`] alone.
fn is_broken() -> bool {
    std::env::var_os("FAIRLIFT_BREAK").is_some()
}

#[test]
fn broken_for_one_seed() {
    for seed in repeat::seeds(0..20) {
        assert!(seed != 17 || !is_broken(), "broken");
    }
}

#[test]
fn broken_beside_a_guard() {
    let _guard = repeat::Guard { command: "fairlift iostest --seed 5", commit: "0123" };
    assert!(!is_broken(), "broken");
}

fairlift_lab::proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn broken_for_some_cases(number in any::<u64>()) {
        prop_assert!(number % 8 != 0 || !is_broken(), "broken at {number}");
    }
}

/// What a broken test of this file prints, with these variables.
fn failure(test: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env_remove("FAIRLIFT_SEED").env_remove("FAIRLIFT_SEEDS").env("FAIRLIFT_BREAK", "1");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    assert!(!output.status.success());
    // Between the name of the test and the list of those that failed.
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed = printed.split_once(" stdout ----\n").unwrap().1;
    printed.split_once("\n\n\nfailures:").unwrap().0.to_owned()
}

/// The seed in the command with which a failure ends, whose other words have to be right.
fn repeats(printed: &str, test: &str) -> String {
    let mut lines = printed.lines().rev();
    let (command, commit) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(commit.starts_with("to repeat it, at commit "), "{printed}");
    let (seed, command) = command.trim().strip_prefix("FAIRLIFT_SEED=").unwrap().split_once(' ').unwrap();
    let release = if cfg!(debug_assertions) { "" } else { " --release" };
    assert_eq!(command, format!("cargo test{release} -p fairlift-lab --test repeat -- --exact {test}"));
    seed.into()
}

#[test]
fn a_failed_seed_is_named_with_the_command_that_repeats_it() {
    let test = "broken_for_one_seed";
    assert_eq!(repeats(&failure(test, &[]), test), "17");
    assert_eq!(repeats(&failure(test, &[("FAIRLIFT_SEED", "17")]), test), "17");
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", test]).env("FAIRLIFT_BREAK", "1").env("FAIRLIFT_SEED", "16");
    assert!(other.output().unwrap().status.success(), "one seed is one run");
}

#[test]
fn the_cases_of_a_failed_property_come_again() {
    let test = "broken_for_some_cases";
    let broken = |printed: &str| printed.lines().find(|line| line.contains("broken at")).unwrap().to_owned();
    let printed = failure(test, &[]);
    let seed = repeats(&printed, test);
    let again = failure(test, &[("FAIRLIFT_SEED", &seed)]);
    assert_eq!(broken(&again), broken(&printed));
    assert_eq!(repeats(&again, test), seed);
}

/// What is no test says its own command.
#[test]
fn a_guard_says_its_command_at_a_panic() {
    let printed = failure("broken_beside_a_guard", &[]);
    assert!(printed.contains("\nto repeat it, at commit 0123:\n  fairlift iostest --seed 5"), "{printed}");
}
