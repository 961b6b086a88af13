//! Solid-state disks behave as published, and as schedulers will need them to. `docs/measured/models-flash.md` shows the figures.

use fairlift_core::model::{Model, ModelRequest};
use fairlift_core::time::{ms, secs, us};
use fairlift_core::{Duration, Extent, Flags, Instant, Op, Sector};
use fairlift_lab::model::{Spec, profiles};

#[path = "support/figures.rs"]
mod figures;
#[path = "support/load.rs"]
mod load;
#[path = "support/worlds.rs"]
mod worlds;

use figures::{CHECKED, FITTED, Figure, alone};
use load::{Got, Load};

const SATA: [&str; 4] = ["ssd-2010", "ssd-plextor-m5", "ssd-sata-consumer", "ssd-sata-plp"];
const NVME: [&str; 2] = ["nvme-plp", "nvme-consumer"];
const KIB: u64 = 1024;

fn build(spec: &str) -> Box<dyn Model> {
    Spec::parse(spec).unwrap_or_else(|why| panic!("{why}")).build(1)
}

fn together(spec: &str, loads: &[Load], time: Duration) -> Vec<Got> {
    load::run(&mut *build(spec), loads, Instant::ZERO, time, 1).0
}

fn reads(depth: u32) -> Load {
    Load::new(Op::Read, 4096, depth)
}

fn writes(depth: u32) -> Load {
    Load::new(Op::Write, 4096, depth)
}

fn within(figure: &Figure, per_cent: f64) {
    let modelled = (figure.modelled)(figure.spec);
    let off = figure.off(modelled);
    let Figure { spec, what, published, source, .. } = figure;
    assert!(off.abs() <= per_cent, "{spec}: {what}: {modelled:.0} is {off:+.1} % off {published} ({source})");
}

/// Issue 4: the Noop rows of seed 001's `iostune` table, within 15 %.
#[test]
fn ssd_2010_meets_the_noop_rows() {
    let rows: Vec<_> = FITTED.iter().filter(|figure| figure.spec == "ssd-2010").collect();
    assert_eq!(rows.len(), 4);
    rows.into_iter().for_each(|figure| within(figure, 15.0));
}

#[test]
fn fitted_figures_are_met_within_five_per_cent() {
    FITTED.iter().filter(|figure| figure.spec != "ssd-2010").for_each(|figure| within(figure, 5.0));
}

/// What is worse than a fifth off is named in the documentation, and nothing else is.
#[test]
fn checked_figures_are_met_within_a_fifth_but_for_those_that_the_documentation_names() {
    const NAMED: [&str; 7] = [
        "4 KiB random write, depth 1, µs",
        "4 KiB random read, depth 1, 99.9 %, µs",
        "8 KiB random reads/s, depth 32",
        "4 KiB random writes/s, as measured (4 TB)",
        "4 KiB random writes/s, depth 64",
        "half of 4 KiB random reads, depth 1, µs",
        "half of 4 KiB random reads, depth 128, µs",
    ];
    CHECKED.iter().filter(|figure| !NAMED.contains(&figure.what)).for_each(|figure| within(figure, 20.0));
}

#[test]
fn reads_gain_from_depth_until_the_controller_is_busy() {
    for name in SATA.into_iter().chain(NVME) {
        let rate = |depth| alone(name, reads(depth), ms(50)).iops();
        let [one, four, many, more] = [1, 4, 512, 1024].map(rate);
        assert!(four > 3.5 * one, "{name}: 4 at once do {four:.0} a second, one does {one:.0}");
        assert!((more / many - 1.0).abs() < 0.02, "{name}: {many:.0} at 512, {more:.0} at 1024");
        assert!(many > 7.0 * one, "{name}");
    }
}

#[test]
fn without_read_ahead_nvme_reads_whole_pages_in_sequence_as_fast_as_at_random() {
    for name in NVME {
        let spec = format!("{name},read_ahead=0");
        let page = Load::new(Op::Read, 16 * KIB, 16);
        let (random, sequential) =
            (alone(&spec, page, ms(200)).iops(), alone(&spec, page.sequential(), ms(200)).iops());
        // In sequence they never meet on a die.
        assert!((1.0..1.25).contains(&(sequential / random)), "{name}: {sequential:.0} against {random:.0}");
        let (random, sequential) = (alone(&spec, page, ms(200)), alone(name, page.sequential(), ms(200)));
        assert!(sequential.mean_us() < 0.7 * random.mean_us(), "{name}: with read-ahead");
    }
}

#[test]
fn the_sata_link_is_the_cap_for_long_reads() {
    for (name, link) in SATA.into_iter().zip([252.0, 540.0, 545.0, 500.0]) {
        let rate = |block, depth| alone(name, Load::new(Op::Read, block, depth), ms(500)).mb_s();
        for (block, depth) in [(256 * KIB, 8), (1024 * KIB, 32)] {
            let rate = rate(block, depth);
            assert!((0.97..1.01).contains(&(rate / link)), "{name}: {rate:.0} MB/s of {link} with {block} at {depth}");
        }
    }
}

#[test]
fn sata_carries_one_direction_at_a_time_and_nvme_both() {
    let both = |spec: &str| {
        let [read, write] = [Op::Read, Op::Write].map(|op| Load::new(op, 128 * KIB, 8).sequential());
        let got = together(spec, &[read, write], ms(500));
        got[0].mb_s() + got[1].mb_s()
    };
    assert!(both("ssd-sata-consumer") < 550.0);
    assert!(both("nvme-plp,pool=100,scatter=0") > 1.2 * 6800.0, "{}", both("nvme-plp,pool=100,scatter=0"));
}

/// With suspension a read waits for little more than that; without, for what its die is doing.
#[test]
fn small_reads_wait_behind_a_saturating_writer_but_not_without_bound() {
    let writer = Load::new(Op::Write, 128 * KIB, 16).sequential();
    let p99 = |spec: &str, loads: &[Load]| {
        let got = together(spec, loads, secs(1));
        (got[0].quantile_us(0.99), got[0].quantile_us(1.0))
    };
    for name in NVME {
        let (quiet, _) = p99(name, &[reads(1)]);
        let (busy, longest) = p99(name, &[reads(1), writer]);
        assert!(busy > 1.2 * quiet, "{name}: {busy} against {quiet}");
        assert!(longest < quiet + 25.0 + 100.0, "{name}: {longest} is more than a suspension and some transfers");
        let (stuck, longest) = p99(&format!("{name},suspends=0"), &[reads(1), writer]);
        assert!(stuck > 5.0 * busy, "{name}: {stuck} without suspension, {busy} with it");
        assert!(longest < quiet + 5000.0 + 2250.0, "{name}: {longest} is more than an erase and a program");
    }
    for name in SATA {
        let (quiet, _) = p99(name, &[reads(1)]);
        let (busy, longest) = p99(name, &[reads(1), writer]);
        assert!(busy > 2.0 * quiet, "{name}: {busy} against {quiet}");
        // An erase, a program, and the data of a write on the link.
        let link = 128.0 * 1024.0 / 252.0;
        assert!(longest < quiet + 8000.0 + 7000.0 + link, "{name}: {longest}");
    }
}

#[test]
fn sustained_random_writes_fall_from_buffer_speed_to_the_steady_state() {
    for name in ["nvme-plp", "nvme-consumer", "ssd-plextor-m5"] {
        let spec = format!("{name},size=4G,slc=512,pool=100,scatter=100");
        let load = writes(64);
        let mut model = build(&spec);
        let (first, now) = load::run(&mut *model, &[load], Instant::ZERO, ms(50), 1);
        let (_, now) = load::run(&mut *model, &[load], now, secs(3), 2);
        let (late, now) = load::run(&mut *model, &[load], now, secs(1), 3);
        let (later, now) = load::run(&mut *model, &[load], now, secs(1), 4);
        let [first, late, later] = [first, late, later].map(|got| got[0].iops());
        assert!(late < 0.4 * first, "{name}: {first:.0}, then {late:.0}");
        assert!((later / late - 1.0).abs() < 0.05, "{name}: steady: {late:.0}, {later:.0}");
        // A rest gives back.
        let (rested, _) = load::run(&mut *model, &[load], now + secs(60), ms(50), 5);
        assert!(
            rested[0].iops() > 0.9 * first,
            "{name}: {:.0} after a minute's rest, {first:.0} new",
            rested[0].iops()
        );
    }
}

#[test]
fn writes_that_are_longer_than_the_one_bit_area_fall_to_the_rate_of_the_cells() {
    let mut model = build("nvme-consumer,slc=1024");
    let load = Load::new(Op::Write, 128 * KIB, 8).sequential();
    let (first, now) = load::run(&mut *model, &[load], Instant::ZERO, ms(100), 1);
    let (late, _) = load::run(&mut *model, &[load], now + us(1), secs(1), 1);
    assert!(first[0].mb_s() > 6500.0 && late[0].mb_s() < 1600.0, "{} and {}", first[0].mb_s(), late[0].mb_s());
}

#[test]
fn sharing_flushes_pays_where_a_flush_takes_milliseconds_and_not_where_it_takes_a_command() {
    // Eight writers that each flush for themselves, against a batch of eight writes with one flush.
    let gain = |name: &str| {
        let each = alone(name, writes(8).flushed(), ms(500)).iops();
        let shared = 8.0 * alone(name, Load::new(Op::Write, 8 * 4096, 1).flushed(), ms(500)).iops();
        shared / each
    };
    for name in ["ssd-2010", "ssd-plextor-m5", "ssd-sata-consumer", "nvme-consumer"] {
        let took = alone(name, writes(1).flushed(), ms(500)).mean_us();
        assert!(took > 1000.0, "{name}: a write and its flush take {took:.0} µs");
        assert!(gain(name) > 4.0, "{name}: {:.1} times", gain(name));
        assert!(build(name).character().volatile_cache);
    }
    for name in ["ssd-sata-plp", "nvme-plp"] {
        let took = alone(name, writes(1).flushed(), ms(500)).mean_us();
        assert!(took < 100.0, "{name}: a write and its flush take {took:.0} µs");
        assert!(!build(name).character().volatile_cache);
    }
    assert!(gain("nvme-plp") < 1.5, "{:.1} times", gain("nvme-plp"));
}

#[test]
fn no_profile_rotates() {
    let flash = profiles().filter(|profile| profile.name.starts_with("ssd") || profile.name.starts_with("nvme"));
    assert_eq!(
        flash.map(|profile| assert!(!build(profile.name).character().rotational, "{}", profile.name)).count(),
        6
    );
}

#[test]
fn one_seed_gives_one_run_and_another_seed_another() {
    for name in SATA.into_iter().chain(NVME) {
        let run = |seed| {
            let loads = [reads(8), writes(8), Load::new(Op::Write, 64 * KIB, 2).flushed()];
            let mut model = Spec::parse(&format!("{name},pool=0,scatter=100")).unwrap().build(seed);
            let (got, end) = load::run(&mut *model, &loads, Instant::ZERO, ms(300), 1);
            (got.into_iter().map(|one| one.latencies).collect::<Vec<_>>(), end, model.work())
        };
        assert!(run(1) == run(1), "{name}");
        assert!(run(1).0 != run(2).0, "{name}");
    }
}

/// As seen: with 128 outstanding the disk answers 85 at once, 850 µs after the 85 before.
#[test]
fn a_virtual_disk_answers_128_outstanding_reads_in_lumps_of_85() {
    let mut model = build("virtio-ssd,jitter=0");
    let request = |id| ModelRequest { id, op: Op::Read, flags: Flags::NONE, extent: Extent::new(Sector(id * 8), 8) };
    (0..128).for_each(|id| model.submit(Instant::ZERO, &request(id)));
    let (mut before, mut ended) = (Instant::ZERO, Vec::new());
    for _ in 0..100 {
        let now = model.poll_event().unwrap();
        model.advance(now, &mut ended);
        assert_eq!((ended.len(), now.since(before)), (85, us(84 + 85 * 9)));
        ended.drain(..).for_each(|one| model.submit(now, &request(one.id)));
        before = now;
    }
}

#[test]
fn numbers_that_do_not_go_together_are_refused_with_what_is_possible() {
    for (spec, why) in [
        ("nvme-plp,page=12", "page=12 is not possible: it takes a power of two from 4 to 128"),
        ("nvme-plp,dies=4", "dies=4 is not possible with channels=8: each has a die"),
        ("nvme-plp,unit=4096,block=2", "unit=4096 is not possible with block=2: a block holds a unit"),
        ("nvme-plp,size=1M", "size=1M is not possible: 128 dies have a page each, 2M"),
        ("nvme-plp,link=0", "link takes a number from 1 to 100000, not \"0\""),
        ("nvme-plp,dyes=4", "did you mean \"dies\"?"),
    ] {
        let error = Spec::parse(spec).unwrap_err();
        assert!(error.contains(why), "{spec}: {error}");
    }
}
