//! Another server goes on where this one was: by what one scheduler hands to the other as text.

use fairlift_core::GroupId;
use fairlift_core::record::Record;
use fairlift_core::sched::traits::*;
use fairlift_core::time::{ms, secs, us};

use crate::sim::{DISK, GROWING, Sim};

/// Two readers of weight 300 and 100, on a disk that does more with every request.
fn two() -> Sim {
    let mut sim = Sim::new(GROWING, 1024, &[]);
    for weight in [300, 100] {
        let client = sim.tenant(weight, 64);
        sim.clients[client].away = us(150);
    }
    sim
}

fn groups(sim: &Sim) -> impl Iterator<Item = GroupId> + use<> {
    (1..sim.groups.len()).map(|id| GroupId(id as u16))
}

/// All that a scheduler hands on, as text.
fn handed(sim: &Sim) -> String {
    let mut all = Record::default();
    sim.fair.hand_on(&mut all);
    for id in groups(sim) {
        let mut group = Record::default();
        sim.fair.hand_on_group(id, &mut group);
        all.put(&id.0.to_string(), &group);
    }
    all.to_string()
}

fn take_on(sim: &mut Sim, text: &str) {
    let mut all = Record::parse(text).unwrap();
    for id in groups(sim) {
        let mut group: Record = all.take(&id.0.to_string()).unwrap().unwrap();
        sim.fair.take_on_group(id, &mut group).unwrap();
        assert!(group.is_empty(), "{group:?}");
    }
    sim.fair.take_on(&mut all).unwrap();
    assert!(all.is_empty(), "{all:?}");
}

/// fair.13
#[test]
fn the_next_server_shares_the_disk_at_once_as_the_one_before_did() {
    let mut before = two();
    before.begin_all();
    before.run(secs(4));
    let per_second = before.run(secs(1)).iter().sum::<u64>() as f64;
    let run = |handed: Option<&str>| {
        let mut sim = two();
        handed.iter().for_each(|text| take_on(&mut sim, text));
        sim.begin_all();
        let first = sim.run(ms(100));
        let speed = first.iter().sum::<u64>() as f64 * 10.0 / per_second;
        let next = sim.run(ms(400));
        (speed, (first[0] + next[0]) as f64 / (first.iter().chain(&next).sum::<u64>()) as f64)
    };
    let (anew, _) = run(None);
    let (speed, share) = run(Some(&handed(&before)));
    assert!(speed > 0.95, "{speed} of what the disk did before");
    assert!((share - 0.75).abs() < 0.02, "the first half second: {share}");
    assert!(anew < 0.9, "one that begins anew does {anew} of that: nothing is shown");
}

/// record.2
#[test]
fn costs_that_no_disk_has_are_left_out_and_the_depth_is_taken() {
    let mut before = two();
    before.begin_all();
    before.run(secs(4));
    let mut learned = Record::parse(&handed(&before)).unwrap();
    let mut costs: Record = learned.take("costs").unwrap().unwrap();
    costs.put("coefficients", &[0.5; 6]);
    learned.put("costs", &costs);
    let mut after = two();
    let why = after.fair.take_on(&mut learned).unwrap_err();
    assert_eq!(why.to_string(), "costs: no disk has such costs");
    let depth = |sim: &Sim| {
        let mut all = Record::default();
        sim.fair.hand_on(&mut all);
        all.take::<Record>("depth").unwrap().unwrap().take::<u16>("wanted").unwrap()
    };
    assert_eq!(depth(&after), depth(&before));
    assert_ne!(depth(&two()), depth(&before), "nothing is shown");
}

/// record.2
#[test]
fn what_cannot_be_is_left_out_and_ends_nothing() {
    let mut before = two();
    before.begin_all();
    before.run(secs(2));
    let text = handed(&before);
    let numbers: Vec<_> = text.match_indices(|c: char| c.is_ascii_digit()).map(|(at, _)| at).collect();
    for (nth, at) in numbers.into_iter().enumerate().filter(|(nth, _)| nth % 7 == 0) {
        for digit in ["-1", "9", "9e200", "0", "null", "\"x\""] {
            let changed = format!("{}{digit}{}", &text[..at], &text[at + 1..]);
            let Ok(mut all) = Record::parse(&changed) else { continue };
            let mut sim = Sim::new(DISK, 64, &[]);
            sim.tenant(300, 16);
            sim.tenant(100, 16);
            for id in groups(&sim) {
                if let Ok(Some(mut group)) = all.take::<Record>(&id.0.to_string()) {
                    let _ = sim.fair.take_on_group(id, &mut group);
                }
            }
            let _ = sim.fair.take_on(&mut all);
            if nth % 140 == 0 {
                sim.begin_all();
                let got = sim.run(ms(20));
                assert!(got.iter().all(|had| *had > 0), "{got:?} after {changed}");
            }
        }
    }
}
