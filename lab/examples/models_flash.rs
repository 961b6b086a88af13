//! The tables of `docs/measured/models-flash.md`: `cargo run --release -p fairlift-lab --example models_flash`.

use std::time::Instant as Clock;

use fairlift_core::time::{ms, secs};
use fairlift_core::{Instant, Op, Sector};
use fairlift_lab::model::{Spec, profiles};
use fairlift_lab::program::{Direct, Pattern, Region, direct};

#[path = "../tests/support/figures.rs"]
mod figures;
#[path = "../tests/support/load.rs"]
mod load;
#[path = "../tests/support/worlds.rs"]
mod worlds;

use figures::{CHECKED, FITTED, Figure, alone};
use load::Load;

fn main() {
    published("Fitted", FITTED);
    published("Checked", CHECKED);
    overview();
    behind_writers();
    sharing();
    speed();
}

fn published(title: &str, figures: &[Figure]) {
    println!("\n| {title} | figure | published | model | off | source |\n|---|---|--:|--:|--:|---|");
    for figure in figures {
        let modelled = (figure.modelled)(figure.spec);
        let Figure { spec, what, published, source, .. } = figure;
        println!("| `{spec}` | {what} | {published} | {modelled:.0} | {:+.0} % | {source} |", figure.off(modelled));
    }
}

fn flash() -> impl Iterator<Item = &'static str> {
    profiles().map(|profile| profile.name).filter(|name| name.starts_with("ssd-") || name.starts_with("nvme-"))
}

fn overview() {
    println!(
        "\n| profile | 4 KiB random reads/s at depth 1 / 8 / 32 / 128 / 512 | durable 4 KiB writes/s | buffer speed | worn |"
    );
    println!("|---|---|--:|--:|--:|");
    for name in flash() {
        let reads = [1, 8, 32, 128, 512].map(|depth| alone(name, Load::new(Op::Read, 4096, depth), ms(200)).iops());
        let durable = alone(name, Load::new(Op::Write, 4096, 1).flushed(), ms(500)).iops();
        let fresh = format!("{name},pool=100,scatter=0");
        let worn = format!("{name},pool=0,scatter=100,slc=0");
        let [fresh, worn] = [fresh, worn].map(|spec| alone(&spec, Load::new(Op::Write, 4096, 64), secs(1)).iops());
        println!(
            "| `{name}` | {} | {durable:.0} | {fresh:.0} | {worn:.0} |",
            reads.map(|iops| format!("{iops:.0}")).join(" / ")
        );
    }
}

/// A reader at depth 1 beside a writer that saturates the disk.
fn behind_writers() {
    println!(
        "\n| profile | 4 KiB reads alone: mean, p99, max µs | beside 128 KiB sequential writes | beside 4 KiB random writes, worn |"
    );
    println!("|---|---|---|---|");
    for name in flash() {
        let reader = Load::new(Op::Read, 4096, 1);
        let show = |got: &load::Got| {
            format!("{:.0}, {:.0}, {:.0}", got.mean_us(), got.quantile_us(0.99), got.quantile_us(1.0))
        };
        let quiet = show(&alone(name, reader, ms(500)));
        let beside = |spec: &str, writer| {
            let mut model = Spec::parse(spec).unwrap().build(1);
            show(&load::run(&mut *model, &[reader, writer], Instant::ZERO, secs(2), 1).0[0])
        };
        let stream = beside(name, Load::new(Op::Write, 128 << 10, 16).sequential());
        let worn = beside(&format!("{name},pool=0,scatter=100,slc=0"), Load::new(Op::Write, 4096, 31));
        println!("| `{name}` | {quiet} | {stream} | {worn} |");
    }
}

/// Eight writers that each flush for themselves, against a batch of eight writes with one flush.
fn sharing() {
    println!(
        "\n| profile | durable 4 KiB writes/s of eight, each with its flush | eight with one flush | gain |\n|---|--:|--:|--:|"
    );
    for name in flash() {
        let each = alone(name, Load::new(Op::Write, 4096, 8).flushed(), ms(500)).iops();
        let shared = 8.0 * alone(name, Load::new(Op::Write, 8 * 4096, 1).flushed(), ms(500)).iops();
        println!("| `{name}` | {each:.0} | {shared:.0} | {:.1} |", shared / each);
    }
}

fn speed() {
    println!(
        "\n| `nvme-plp`, 4 KiB random reads at depth | model alone, million/s of one core | with `none` and a program |"
    );
    println!("|--:|--:|--:|");
    for depth in [1, 32, 128] {
        let began = Clock::now();
        let got = alone("nvme-plp", Load::new(Op::Read, 4096, depth), secs(4));
        let alone = got.latencies.len() as f64 * 1.1 / began.elapsed().as_secs_f64() / 1e6;
        let mut world = worlds::world("nvme-plp", 1023);
        let file = Region { start: Sector(0), bytes: 1 << 40 };
        let settings = direct::Settings::new(Op::Read, Pattern::Random, 4096, depth);
        world.add(worlds::stream(), Box::new(Direct::new(settings, file, 1)));
        let began = Clock::now();
        world.run_until(Instant::ZERO + secs(4));
        let whole = world.program(0).meter().operations as f64 / began.elapsed().as_secs_f64() / 1e6;
        println!("| {depth} | {alone:.1} | {whole:.1} |");
    }
}
