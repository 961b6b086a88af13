//! What was promised is on the disk, should the power fail at any instant: the production queue by itself, a plain
//! coordinator before it, and that coordinator with each of its bugs.

mod coordinator;

use coordinator::{Bug, Coordinator};
use fairlift_core::queue::Settings;
use fairlift_core::sched::Kind;
use fairlift_core::{Group, GroupId, Limits, Queue};
use fairlift_lab::power_cut::exhaustive::Request;
use fairlift_lab::power_cut::random::{self, Faults};
use fairlift_lab::power_cut::{OnFailure, Report, Subject, exhaustive};

fn queue(kind: Kind, contexts: u16, groups: u16, sectors: u64, nr_requests: u32) -> Queue {
    let limits = Limits { rw_max: 4, ..Limits::new(sectors) };
    let child = |number| Group { path: format!("/{number}"), parent: Some(GroupId::ROOT), weight: 100 };
    let groups = std::iter::once(Group::root()).chain((1..groups).map(child)).collect();
    Queue::new(Settings { depth: 6, nr_requests, contexts, groups, ..Settings::new(kind, limits) })
}

/// So few requests that clients are turned away now and then; and so many that none ever is.
const FEW: u32 = 24;
const MANY: u32 = 1024;

fn queue_for(settings: &random::Settings, nr_requests: u32) -> Queue {
    let kind = [Kind::None, Kind::MqDeadline][settings.seed as usize % 2];
    queue(kind, settings.contexts, settings.groups, settings.sectors(), nr_requests)
}

/// Runs of many shapes, by seed.
fn settings(seed: u64, faults: Faults) -> random::Settings {
    random::Settings {
        clients: [1, 2, 6, 12][seed as usize / 2 % 4],
        contexts: 1 + (seed as u16 / 8) % 3,
        places: 1 + seed / 24 % 2,
        faults,
        ..random::Settings::new(seed)
    }
}

fn runs(seeds: u64, faults: Faults) -> Result<Report, String> {
    let mut sum = Report::default();
    for seed in 0..seeds {
        let settings = settings(seed, faults);
        sum.add(&random::run(&settings, &mut queue_for(&settings, FEW))?);
    }
    println!("{sum:?}");
    Ok(sum)
}

/// How many seeds: more where `POWER_CUT_SEEDS` says so.
fn seeds() -> u64 {
    std::env::var("POWER_CUT_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(48)
}

#[test]
fn what_was_promised_survives_a_power_cut_at_any_instant() {
    let report = runs(seeds(), Faults::NONE).unwrap_or_else(|broken| panic!("{broken}"));
    assert!(report.cuts > 1000 * seeds() && report.flushes > 100 * seeds(), "too little was tried: {report:?}");
}

#[test]
fn what_was_promised_survives_although_requests_fail_hang_and_are_turned_away_and_clients_go() {
    let report = runs(seeds(), Faults::SOME).unwrap_or_else(|broken| panic!("{broken}"));
    assert!(report.failed_flushes > 5 * seeds(), "too little went wrong: {report:?}");
}

fn coordinated(seed: u64, bug: Option<Bug>) -> Result<Report, String> {
    let faults = if seed.is_multiple_of(2) { Faults::NONE } else { Faults::SOME };
    let settings = settings(seed * 7, faults);
    let mut subject = Coordinator::new(queue_for(&settings, MANY), settings.places, settings.place, bug);
    random::run(&settings, &mut subject)
}

#[test]
fn a_plain_coordinator_keeps_the_promises() {
    for seed in 0..seeds() {
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

/// All sequences of three requests of any kind, and of four writes and flushes, in every order.
fn every_order<S: Subject>(subject: impl Fn(Queue) -> S) -> Result<exhaustive::Searched, String> {
    let mut searched = exhaustive::Searched::default();
    for (requests, length) in [(&Request::ALL[..], 1..=3), (&[Request::Write, Request::Flush], 4..=4)] {
        for length in length {
            let new = || subject(queue(Kind::MqDeadline, 2, 1, exhaustive::SECTORS, FEW));
            searched.add(&exhaustive::run(requests, length, OnFailure::Keeps, new)?);
        }
    }
    println!("{searched:?}");
    Ok(searched)
}

#[test]
fn every_order_of_few_requests_keeps_the_promises() {
    let searched = every_order(|queue| queue).unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(searched.sequences, 6 + 36 * 2 + 216 * 4 + 16 * 8);
}

#[test]
fn every_order_of_few_requests_before_a_plain_coordinator_keeps_them() {
    every_order(|queue| Coordinator::new(queue, 1, exhaustive::SECTORS, None))
        .unwrap_or_else(|broken| panic!("{broken}"));
}

/// The others need several devices, a fifth request, clients that go, or a disk that hangs.
#[test]
fn most_bugs_are_found_with_few_requests() {
    for bug in Bug::ALL {
        let found = every_order(|queue| Coordinator::new(queue, 1, exhaustive::SECTORS, Some(bug))).err();
        println!("{bug:?}: {found:?}");
        let needs_more =
            [Bug::SharesAcrossDevices, Bug::TellsTheErrorToTheFirstAlone, Bug::LosesAWaiter, Bug::TrustsATimeout]
                .contains(&bug);
        assert_eq!(found.is_none(), needs_more, "{bug:?}");
    }
}
