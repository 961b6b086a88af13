use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, secs};

use super::*;
use crate::Random;
use crate::iostest::{Modelled, Placement, Plan, Runner as _};
use crate::model::Spec;
use crate::program::Pattern;
use crate::workload::Workload;

fn quick(spec: &str) -> Findings {
    let spec = Spec::parse(spec).unwrap();
    let mut disk = Paper { spec, write: false };
    let steps = plan(&disk.facts(), secs(30), true);
    let measured = measure(&steps, &mut disk, 1, &mut |_| (), &|| false);
    assert!(measured.error.is_none() && !measured.interrupted);
    assert!(measured.ran <= secs(30), "U2: {}", measured.ran);
    find(Header::default(), &measured.outcomes)
}

/// Goyal's three disks of July 2010, and his conclusions.
#[test]
fn the_disks_of_2010_are_judged_as_in_2010() {
    for (spec, says) in [("sata-7200", "idle"), ("eva-raid5-12", "don't"), ("ssd-2010", "doesn't matter")] {
        let found = quick(spec);
        let verdict = found.verdict.unwrap();
        assert_eq!(verdict.says, says, "{spec}: {}", verdict.why);
        assert_eq!(verdict.slice_idle == "8ms", says == "idle");
        assert_eq!(found.character.rotational_like, Some(spec != "ssd-2010"), "{spec}");
    }
}

/// A disk of one of the kinds, whose numbers are drawn.
fn drawn(random: &mut Random) -> String {
    let mut one_of = |all: &[&str]| all[random.below(all.len() as u64) as usize].to_owned();
    loop {
        let text = match one_of(&["disk", "raid", "ssd"]).as_str() {
            "disk" => format!(
                "sata-7200,rpm={},ncq={},read_ahead={},read_ahead_min={},seek_full={}",
                one_of(&["5400", "7200", "10000", "15000"]),
                one_of(&["1", "4", "16", "32"]),
                one_of(&["128", "512", "1024"]),
                one_of(&["0", "64", "256", "372", "512"]),
                one_of(&["14ms", "17ms", "21ms", "25ms"])
            ),
            "raid" => format!(
                "eva-raid5-12,size=1t,disks={},level={},chunk={},prefetch={},command_rate={},controller_latency={},disk_size=0",
                one_of(&["3", "4", "6", "8", "12", "24"]),
                one_of(&["0", "5"]),
                one_of(&["32", "64", "128", "512"]),
                one_of(&["0", "128", "512", "2048"]),
                one_of(&["20000", "42000", "200000", "400000"]),
                one_of(&["50us", "500us", "2ms"])
            ),
            _ => format!(
                "{},channels={},read_ahead={},read={},link={}",
                one_of(&["ssd-2010", "ssd-sata-consumer", "nvme-plp"]),
                one_of(&["2", "4", "8"]),
                one_of(&["0", "128", "512"]),
                one_of(&["30us", "60us", "120us"]),
                one_of(&["250", "550", "3200"])
            ),
        };
        // Not all numbers go together.
        if Spec::parse(&text).is_ok() {
            return text;
        }
    }
}

/// The total throughput of 2, 4 and 8 buffered readers: another program than the probes, for longer, in other places.
fn readers(spec: &str, slice_idle: &str) -> f64 {
    let plan = Plan {
        workloads: vec![Workload::named("bsr").unwrap()],
        jobs: vec![2, 4, 8],
        runtime: secs(if cfg!(debug_assertions) { 4 } else { 10 }), // an unoptimized build takes ten times as long
        file_size: 1 << 30,
        placement: Placement::Within(0),
        seed: 99,
        ..Plan::default()
    };
    let set = vec![("slice_idle".to_owned(), slice_idle.to_owned())];
    let mut runner = Modelled { spec: Spec::parse(spec).unwrap(), scheduler: Kind::Cfq, set, depth: None };
    let bytes = |case: &Case| -> u64 {
        runner.run(case, &mut |_| false).unwrap().meters.iter().map(|(_, meter)| meter.bytes).sum()
    };
    plan.cases().unwrap().iter().map(bytes).sum::<u64>() as f64
}

/// Held back: no rule here was fitted on these disks.
#[test]
fn on_disks_that_were_never_seen_the_verdict_is_the_better_setting() {
    let mut random = Random::new(20_100_726);
    let (mut decided, mut wrong) = (0, Vec::new());
    for number in 0..20 {
        let spec = drawn(&mut random);
        let verdict = quick(&spec).verdict.unwrap();
        let gain = readers(&spec, "8ms") / readers(&spec, "0");
        println!("{number}: {spec}: {} ({:.2}); readers: {gain:.2}", verdict.says, verdict.idling_gain.unwrap());
        let right = if gain > 1.1 {
            "idle"
        } else if gain < 1.0 / 1.1 {
            "don't"
        } else {
            continue;
        };
        decided += 1;
        if verdict.says != right {
            wrong.push(format!("{spec}: {} ({}), readers {gain:.2}", verdict.says, verdict.why));
        }
    }
    assert!(decided >= 8, "only {decided} of 20 disks tell the settings apart");
    assert!(wrong.is_empty(), "{} of {decided}: {wrong:#?}", wrong.len());
}

/// A step with these rates.
fn outcome(probe: Probe, rates: &[f64]) -> Outcome {
    let sample = |&iops: &f64| {
        let mean_us = f64::from(probe.in_flight()) * 1e6 / iops;
        Sample { iops, each_mb_s: vec![iops * 4096.0 / 1e6], mean_us, p99_us: mean_us, trend: 1.0 }
    };
    Outcome { probe, samples: rates.iter().map(sample).collect() }
}

fn doubts(outcomes: &[Outcome]) -> String {
    find(Header::default(), outcomes).warnings.join("\n")
}

#[test]
fn a_rate_that_is_another_at_the_end_is_told() {
    let at_eight = Probe::Read(Pattern::Random, 4096, 8);
    let warning = |last: f64| {
        let reference = Probe::Reference(Pattern::Random);
        doubts(&[outcome(at_eight, &[1000.0, 1010.0, 990.0]), outcome(reference, &[last])])
    };
    assert_eq!(warning(950.0), "");
    assert!(warning(600.0).contains("random reads fell by 40 %"), "{}", warning(600.0));
    assert!(warning(1300.0).contains("rose by 30 %"));
}

#[test]
fn a_cache_and_an_unknown_mean_are_told() {
    let again = |second: f64| doubts(&[outcome(Probe::Again, &[1000.0, second])]);
    assert_eq!(again(1200.0), "");
    assert!(again(9000.0).contains("9.0 times as fast the second time: there is a cache"));
    let spread = doubts(&[outcome(Probe::Read(Pattern::Random, 4096, 2), &[100.0, 300.0, 500.0])]);
    assert!(spread.contains("not known to 10 %") && spread.contains("random reads of 4k, 2 in flight"), "{spread}");
}

/// Rates that cannot be, and rates that are a bound, both by IOPS × size.
#[test]
fn random_reads_are_held_against_the_bandwidth() {
    let warning = |random: f64| {
        doubts(&[
            outcome(Probe::Read(Pattern::Random, 4096, 32), &[random]),
            outcome(Probe::Read(Pattern::Sequential, 4096, 32), &[24_000.0]),
            outcome(Probe::Read(Pattern::Sequential, 1 << 20, 4), &[25_000.0]), // of 4 KiB here: 102.4 MB/s
        ])
    };
    assert_eq!(warning(10_000.0), "");
    assert!(warning(24_000.0).contains("IOPS × size is the bandwidth"), "{}", warning(24_000.0));
    assert!(warning(60_000.0).contains("implausible"), "{}", warning(60_000.0));
}

#[test]
fn one_rate_for_all_looks_like_a_limit_and_fast_writes_like_a_cache() {
    use Pattern::{Random, Sequential};
    let warning = |write: f64, written: f64| {
        doubts(&[
            outcome(Probe::Read(Random, 4096, 32), &[3000.0]),
            outcome(Probe::Read(Sequential, 4096, 32), &[3001.0]),
            outcome(Probe::Read(Sequential, 1 << 20, 4), &[25_000.0]),
            outcome(Probe::Write(Random, 4096, 32), &[write]),
            outcome(Probe::Write(Sequential, 1 << 20, 4), &[written]),
        ])
    };
    assert_eq!(warning(2000.0, 24_000.0), "");
    assert!(warning(3000.0, 24_000.0).contains("3000 requests of 4 KiB a second, read or written"));
    assert!(warning(2000.0, 50_000.0).contains("writes are faster than reads"));
}

/// judge.2
#[test]
fn without_trying_idling_the_streams_themselves_decide() {
    let says = |two: f64| {
        let streams = [(1, 100.0), (2, two)].map(|(n, rate)| outcome(Probe::Streams(n, Way::Straight), &[rate]));
        find(Header::default(), &streams).verdict.unwrap()
    };
    assert_eq!((says(30.0).says.as_str(), says(30.0).idling_gain), ("idle", None));
    assert_eq!(says(101.0).says, "doesn't matter");
    assert_eq!(says(140.0).says, "don't");
    assert!(says(140.0).why.contains("2 streams move 1.40 times what one does"));
}

/// judge.4
#[test]
fn not_to_idle_is_for_data_disks_where_readers_wait_for_buffered_writers() {
    let caution = |two: f64, beside: &[(Way, f64)]| {
        let mut outcomes = vec![
            outcome(Probe::Streams(1, Way::Straight), &[100.0]),
            outcome(Probe::Streams(2, Way::Straight), &[two]),
        ];
        outcomes.extend(beside.iter().map(|(way, reads)| outcome(Probe::Beside(*way), &[*reads])));
        find(Header::default(), &outcomes).verdict.unwrap().root_disk
    };
    assert_eq!(caution(30.0, &[]), None, "it says to idle");
    assert!(caution(140.0, &[]).unwrap().contains("not measured (--write)"));
    let slower = caution(140.0, &[(Way::Idling, 100.0), (Way::NotIdling, 50.0)]).unwrap();
    assert!(
        slower.contains("takes 20000 us with slice_idle=0 and 10000 us with 8ms, so this is for disks of data"),
        "{slower}"
    );
    assert!(caution(140.0, &[(Way::Idling, 50.0), (Way::NotIdling, 50.0)]).unwrap().ends_with("the system, too"));
}

/// The reader alone is counted beside writers, and it waits longer where nothing is held for it.
#[test]
fn a_reader_beside_buffered_writers_waits_longer_without_idling() {
    let mut disk = Paper { spec: Spec::parse("eva-raid5-12").unwrap(), write: true };
    let steps = [Way::Idling, Way::NotIdling].map(|way| ProbeRun { probe: Probe::Beside(way), runs: 1, each: secs(2) });
    let measured = measure(&steps, &mut disk, 1, &mut |_| (), &|| false);
    let reads = measured.outcomes.iter().map(|outcome| outcome.samples[0].iops).collect::<Vec<_>>();
    assert!(reads[0] > 1.3 * reads[1] && reads[0] < 1000.0, "{reads:?}");
}

/// iostune.5
#[test]
fn when_it_is_stopped_what_was_measured_counts() {
    let mut disk = Paper { spec: Spec::parse("sata-7200").unwrap(), write: false };
    let steps = plan(&disk.facts(), secs(30), true);
    let begun = std::cell::Cell::new(0);
    let mut progress = |progress: Progress<'_>| {
        if matches!(progress, Progress::Begins(..)) {
            begun.set(begun.get() + 1);
        }
    };
    let measured = measure(&steps, &mut disk, 1, &mut progress, &|| begun.get() == 4);
    assert!(measured.interrupted && measured.error.is_none());
    let streams: Vec<u32> = find(Header::default(), &measured.outcomes).streams.iter().map(|row| row.n).collect();
    assert_eq!(streams, [1, 2, 4]);
}

/// iostune.2
#[test]
fn the_steps_take_no_more_than_the_time_and_a_quick_look_has_fewer() {
    for at_rest in [false, true] {
        for scratch in [None, Some(1 << 30)] {
            let facts = Facts { bytes: 1 << 32, block: 512, scratch, at_rest };
            for (time, is_quick) in [(secs(180), false), (secs(30), true), (secs(1), true)] {
                let steps = plan(&facts, time, is_quick);
                let whole = steps.iter().map(|step| step.each.as_nanos() * u64::from(step.runs)).sum::<u64>();
                assert!(whole <= time.as_nanos() + ms(100).as_nanos(), "{whole}");
                assert_eq!(steps.iter().any(|step| step.probe.place() == Area::Scratch), scratch.is_some(), "U4");
            }
        }
    }
}

/// Every case that a plan holds fits on the least disk that is taken, and on one that is never at rest.
#[test]
fn every_case_fits_on_a_small_disk_however_often_it_was_moved_on() {
    let facts = Facts { bytes: 32 << 20, block: 512, scratch: Some(64 << 20), at_rest: false };
    for step in plan(&facts, secs(30), false) {
        for number in [0, 1, 63, 64, 12_345] {
            let case = step.case(&facts, 1, number);
            let bytes = if step.probe.place() == Area::Scratch { 64 << 20 } else { 32 << 20 };
            case.jobs(bytes / 512).unwrap_or_else(|error| panic!("{:?}, {number}: {error}", step.probe));
        }
    }
}

/// With writes, the six figures of the kernel's model, and the effect of flushes.
#[test]
fn where_it_may_write_it_tells_writes_and_flushes() {
    let mut disk = Paper { spec: Spec::parse("ssd-sata-consumer").unwrap(), write: true };
    let steps = plan(&disk.facts(), secs(30), true);
    let measured = measure(&steps, &mut disk, 1, &mut |_| (), &|| false);
    assert!(measured.error.is_none());
    let found = find(Header::default(), &measured.outcomes);
    let (model, writes) = (found.model.as_ref().unwrap(), found.writes.as_ref().unwrap());
    assert!(model.wbps.is_some() && model.wseqiops.is_some() && model.wrandiops.is_some());
    let flush = writes.flush_us.unwrap();
    assert!((500.0..10_000.0).contains(&flush), "its flush takes 1.7 ms and more: {flush} µs");
    assert!(writes.shared_gain.unwrap() > 2.0, "one flush for many: {writes:?}");
    let advice = advise(&found, "sim:ssd-sata-consumer", &Kernel::default());
    assert_eq!(advice.fairlift.flush_coordinate, Some(true));
    assert!(advice.kernel.io_cost_model.unwrap().contains(" wrandiops="));
}

/// Where `fair` is to be set, what a shorter queue in the device costs and gives is said, by the figures of the table.
#[test]
fn what_a_device_depth_costs_and_gives_is_said_by_figures() {
    let found = quick("ssd-2010");
    let most = found.random.iter().max_by(|one, other| one.figure.iops.total_cmp(&other.figure.iops)).unwrap();
    let advice = advise(&found, "sim:ssd-2010", &Kernel::default()).fairlift;
    assert_eq!(advice.scheduler.as_deref(), Some("fair"));
    let reason: Vec<_> = advice.why.iter().filter(|why| why.starts_with("device_depth ")).collect();
    let [reason] = reason[..] else { panic!("{:?}", advice.why) };
    let whole = Findings { recommend: advise(&found, "sim:ssd-2010", &Kernel::default()), ..found.clone() };
    let report = crate::report::tune::text(&whole);
    let (_, verdict) = report.split_once("\nVerdict: ").unwrap();
    assert_eq!(verdict.split("\n\n").next().unwrap().lines().last(), Some(reason.as_str()), "{report}");
    let depth: u32 = reason.split([' ', ',']).nth(1).unwrap().parse().unwrap();
    let there = found.random.iter().find(|size| size.depth == depth).unwrap();
    assert!(there.figure.iops >= 0.8 * most.figure.iops && there.figure.mean_us < most.figure.mean_us, "{reason}");
    let (iops, us) =
        (format!("{:.0} of {:.0} random reads a second", there.figure.iops, most.figure.iops), there.figure.mean_us);
    assert!(reason.contains(&iops) && reason.contains(&format!("{us:.0} µs")), "{reason}");
}

#[test]
fn findings_are_read_again_as_they_were_written() {
    let mut found = quick("ssd-2010");
    found.recommend = advise(&found, "sim:ssd-2010", &Kernel::default());
    let text = crate::report::tune::to_json(&found);
    let again: Findings = serde_json::from_str(&text).unwrap();
    assert_eq!(again, found);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["streams"][1]["n"], 2);
    assert_eq!(value["verdict"]["slice_idle"], "0s");
    assert!(value["recommend"]["fairlift"]["config"].is_string());
    let page = crate::report::html::tuning(&found);
    assert!(page.contains("Throughput by streams") && !page.contains("NaN") && !page.contains("http"));
}
