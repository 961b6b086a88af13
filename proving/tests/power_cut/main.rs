//! What was promised is on the disk, should the power fail at any instant: the production queue by itself, workers with a
//! queue each, a plain coordinator before a queue that has none, and that coordinator with each of its bugs.

mod coordinator;

use coordinator::{Bug, Coordinator};
use fairlift_core::queue::{Backing, Settings};
use fairlift_core::sched::Kind;
use fairlift_core::{Group, GroupId, Limits, Sector, Weight};
use fairlift_lab::repeat::{named, seeds};
use fairlift_proving::power_cut::exhaustive::RequestKind;
use fairlift_proving::power_cut::random::{self, Faults};
use fairlift_proving::power_cut::workers::Workers;
use fairlift_proving::power_cut::{Count, OnFailure, Subject, Tally, exhaustive};

/// What a queue for such a run is made from: so few requests that clients are turned away now and then.
fn settings_of(run: &random::Settings) -> Settings {
    // No request goes to two backings: the server has a gap between them (disk.1), here is none.
    let limits = Limits { rw_max: 4, boundary: run.place, ..Limits::new(run.sectors()) };
    let kind = [Kind::None, Kind::MqDeadline][run.seed as usize % 2];
    let child = |number| Group { path: format!("/{number}"), parent: Some(GroupId::ROOT), weight: Weight::new(100) };
    let groups = std::iter::once(Group::root()).chain((1..run.groups).map(child)).collect();
    let backing = |number| Backing { start: Sector(number * run.place), fua: run.fua, ..Backing::default() };
    let mut settings = Settings {
        depth: 6,
        nr_requests: 24,
        contexts: run.contexts,
        groups,
        backings: (0..run.places).map(backing).collect(),
        ..Settings::new(kind, limits)
    };
    settings.flush.remember = run.faults.remembers;
    settings
}

/// Runs of many shapes, by seed.
fn shape(seed: u64, faults: Faults) -> random::Settings {
    random::Settings {
        clients: [1, 2, 6, 12][seed as usize / 2 % 4],
        contexts: 1 + (seed as u16 / 8) % 3,
        places: 1 + seed / 24 % 2,
        fua: !(seed / 2 + seed / 8).is_multiple_of(2),
        faults,
        ..random::Settings::new(seed)
    }
}

/// Under `none` each worker has a queue of its own; else one is for all. The lone queue under `none` is tried too.
fn run(run: &random::Settings) -> Result<Tally, String> {
    let settings = settings_of(run);
    if settings.scheduler == Kind::None && !run.seed.is_multiple_of(3) {
        random::run(run, &mut Workers::apart(&settings))
    } else {
        random::run(run, &mut Workers::together(&settings))
    }
}

/// How many seeds, unless the environment says otherwise.
const SEEDS: std::ops::Range<u64> = 0..48;

/// The sum of runs, in which every promise was kept, and how many there were.
fn runs(faults: Faults) -> (Tally, u64) {
    let (mut sum, mut count) = (Tally::default(), 0);
    for seed in seeds(SEEDS) {
        sum.add_all(&run(&shape(seed, faults)).unwrap_or_else(|broken| panic!("{broken}")));
        count += 1;
    }
    println!("{sum:?}");
    (sum, count)
}

#[test]
fn what_was_promised_survives_a_power_cut_at_any_instant() {
    let (tally, count) = runs(Faults::NONE);
    let least = [(Count::Cuts, 1000), (Count::Flushes, 100), (Count::Ahead, 1)];
    let is_much = least.into_iter().all(|(what, each)| tally.get(what) > each * count);
    assert!(is_much || named().is_some(), "too little was tried: {tally:?}");
}

#[test]
fn what_was_promised_survives_although_requests_fail_hang_and_are_turned_away_and_clients_go() {
    let (tally, count) = runs(Faults::SOME);
    assert!(tally.get(Count::FailedFlushes) > 3 * count || named().is_some(), "too little went wrong: {tally:?}");
}

/// A disk that drops what a failed flush should have covered, and then says that all is well: no flush may be trusted.
const FORGETFUL: Faults =
    Faults { flush: 5, stuck: 0, on_failure: OnFailure::Forgets, remembers: true, ..Faults::SOME };

#[test]
fn what_a_failed_flush_has_lost_is_never_told_to_be_durable() {
    let (tally, _) = runs(FORGETFUL);
    let both = [Count::FailedFlushes, Count::Flushes].into_iter().all(|what| tally.get(what) > 0);
    assert!(both || named().is_some(), "{tally:?}");
}

#[test]
fn a_queue_that_does_not_remember_a_failed_flush_is_found_on_a_disk_that_forgets() {
    let forgets = Faults { remembers: false, ..FORGETFUL };
    let found = SEEDS.clone().find_map(|seed| run(&shape(seed, forgets)).err());
    println!("{}", found.expect("nothing was lost"));
}

/// Run by run without faults, and with some.
fn coordinated(seed: u64, bug: Option<Bug>) -> Result<Tally, String> {
    let faults = if seed.is_multiple_of(2) { Faults::NONE } else { Faults::SOME };
    let run = random::Settings { fua: true, preflush: false, ..shape(seed * 7, faults) };
    let settings = Settings { nr_requests: 1024, ..settings_of(&run) };
    random::run(&run, &mut Coordinator::new(settings, run.place, bug))
}

#[test]
fn a_plain_coordinator_keeps_the_promises() {
    for seed in seeds(SEEDS) {
        coordinated(seed, None).unwrap_or_else(|broken| panic!("{broken}"));
    }
}

#[test]
fn every_bug_of_a_coordinator_is_found() {
    for bug in Bug::ALL {
        let found = (0..200).find_map(|seed| coordinated(seed, Some(bug)).err().map(|broken| (seed, broken)));
        let (tries, broken) = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?}: run {}: {broken}", tries + 1);
    }
}

fn together(settings: Settings) -> Workers {
    Workers::together(&settings)
}

/// All sequences of three requests of any kind, and of four writes and flushes, in every order.
fn every_order<S: Subject>(
    on_failure: OnFailure,
    subject: impl Fn(Settings) -> S,
) -> Result<exhaustive::Searched, String> {
    let mut settings = Settings { contexts: 2, ..Settings::new(Kind::MqDeadline, Limits::new(exhaustive::SECTORS)) };
    (settings.depth, settings.nr_requests) = (6, 24);
    settings.flush.remember = on_failure == OnFailure::Forgets;
    let mut searched = exhaustive::Searched::default();
    for (requests, lengths) in [(&RequestKind::ALL[..], 1..=3), (&[RequestKind::Write, RequestKind::Flush], 4..=4)] {
        for length in lengths {
            searched.add(&exhaustive::run(requests, length, on_failure, || subject(settings.clone()))?);
        }
    }
    println!("{searched:?}");
    Ok(searched)
}

#[test]
fn every_order_of_few_requests_keeps_the_promises() {
    let searched = every_order(OnFailure::Keeps, together).unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(searched.sequences, 6 + 36 * 2 + 216 * 4 + 16 * 8);
}

#[test]
fn every_order_of_few_requests_keeps_them_on_a_disk_that_forgets() {
    every_order(OnFailure::Forgets, together).unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn every_order_of_few_requests_before_a_plain_coordinator_keeps_them() {
    every_order(OnFailure::Keeps, |settings| Coordinator::new(settings, exhaustive::SECTORS, None))
        .unwrap_or_else(|broken| panic!("{broken}"));
}

/// The others need several devices, a fifth request, clients that go, or a disk that hangs.
#[test]
fn most_bugs_are_found_with_few_requests() {
    for bug in [
        Bug::ReleasesWhoAskedDuringTheRunningFlush,
        Bug::ForgetsWhatEndedDuringAFlush,
        Bug::ForgetsAFailedFlush,
        Bug::CountsWritesWhenTheyAreAskedFor,
        Bug::ForgetsZeroes,
        Bug::DropsFua,
    ] {
        let new = |settings| Coordinator::new(settings, exhaustive::SECTORS, Some(bug));
        let found = every_order(OnFailure::Keeps, new).err();
        println!("{bug:?}: {}", found.unwrap_or_else(|| panic!("{bug:?} is not found")));
    }
}
