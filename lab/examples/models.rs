//! The tables of `docs/measured/models.md`: `cargo run --release -p fairlift-lab --example models`.
//!
//! With arguments, the fitted rows of these models alone, to see what a parameter does:
//! `… --example models sata-7200,read_ahead_min=0 eva-raid5-12,chunk=64`.

use fairlift_core::time::secs;
use fairlift_core::{Instant, Op};
use fairlift_lab::iostest::Placement;
use fairlift_lab::model::{Settings, Spec};

#[path = "../tests/support/iostune.rs"]
#[allow(unreachable_pub)]
mod iostune;
#[path = "../tests/support/load.rs"]
#[allow(dead_code, unreachable_pub)]
mod load;

use iostune::{ARRAY, Device, SATA, SELF_TESTS, TOGETHER, minutes, readers, slices, whole};
use load::Load;

fn main() {
    let specs: Vec<_> = std::env::args().skip(1).collect();
    for spec in &specs {
        let device = if matches!(Spec::parse(spec).unwrap().settings, Settings::Raid(_)) { ARRAY } else { SATA };
        println!("{spec}: {}", noop(spec, &device, 1));
    }
    if specs.is_empty() {
        fitted();
        checked_slices();
        checked_together();
        checked_whole();
        checked_random();
        checked_writes();
        checked_queued();
    }
}

/// Readers far apart: measured, modelled, by how much they differ.
fn noop(spec: &str, device: &Device, seed: u64) -> String {
    let row = |&(streams, measured, _): &iostune::Row| {
        let got = readers(spec, device.depth, streams, Placement::Within(0), secs(30), seed);
        format!("{measured} | {got:.1} | {:+.0} %", (got / measured - 1.0) * 100.0)
    };
    device.noop.iter().map(row).collect::<Vec<_>>().join(" | ")
}

fn fitted() {
    println!("| fitted: Noop, MB/s | 1 stream | model | | 2 | model | | 4 | model | | 8 | model | |");
    for device in [&SATA, &ARRAY] {
        println!("| `{}` | {} |", device.profile, noop(device.profile, device, 1));
    }
    for device in [&SATA, &ARRAY] {
        let each: Vec<_> = (2..=6).map(|seed| noop(device.profile, device, seed)).collect();
        println!("seeds 2 to 6, {}:\n{}", device.profile, each.join("\n"));
    }
}

fn checked_slices() {
    println!("\n| checked: one reader at a time for 100 ms, MB/s | streams | CFQ measured | model | |");
    for device in [&SATA, &ARRAY] {
        for (streams, measured, _) in device.cfq {
            let got = slices(device.profile, streams.into());
            println!(
                "| `{}` | {streams} | {measured} | {got:.1} | {:+.0} % |",
                device.profile,
                (got / measured - 1.0) * 100.0
            );
        }
    }
}

fn checked_together() {
    println!("\n| checked: files of 512 MB together, MB/s | readers | measured (CFQ, slice_idle=0) | model (none) | |");
    for (count, measured, _) in TOGETHER {
        let measured = measured * 1024.0 / 1e6;
        let got = readers(ARRAY.profile, ARRAY.depth, count, Placement::Together, secs(30), 1);
        println!(
            "| `{}` | {count} | {measured:.1} | {got:.1} | {:+.0} % |",
            ARRAY.profile,
            (got / measured - 1.0) * 100.0
        );
    }
}

fn one(spec: &str, load: Load) -> load::Got {
    let mut model = Spec::parse(spec).unwrap().build(1);
    load::run(&mut *model, &[load], Instant::ZERO, secs(60), 1).0.remove(0)
}

fn checked_whole() {
    println!("\n| checked: all of `hdd-8t` is read, minutes | of | states | model | |");
    // Rates do not depend on the number of tracks.
    let rate = whole(&mut *Spec::parse("hdd-8t,size=16G").unwrap().build(1));
    let takes = minutes(Spec::parse("hdd-8t").unwrap().size, rate);
    for (disk, states, report) in SELF_TESTS {
        println!(
            "| {disk} | {report} | {states} | {takes:.0} ({rate:.1} MB/s) | {:+.0} % |",
            (takes / states - 1.0) * 100.0
        );
    }
}

fn checked_random() {
    println!(
        "\n| checked: random reads in a second | 4 KiB, depth 1 | 4 | 16 | 32 | 32 KiB within 2 GiB, depth 1 | 4 |"
    );
    for spec in ["sata-7200", "hdd-8t", "eva-raid5-12"] {
        let far = [1, 4, 16, 32].map(|depth| format!("{:.0}", one(spec, Load::new(Op::Read, 4096, depth)).iops()));
        let near = [1, 4].map(|depth| {
            let load = Load { span: 2 << 30, ..Load::new(Op::Read, 32 << 10, depth) };
            format!("{:.0}", one(spec, load).iops())
        });
        println!("| `{spec}` | {} | {} |", far.join(" | "), near.join(" | "));
    }
}

fn checked_writes() {
    println!(
        "\n| checked: writes in a second | 4 KiB random, depth 1 | 32 | each flushed | sequential 128 KiB, MB/s |"
    );
    let specs = [
        "sata-7200",
        "sata-7200,write_cache=0",
        "hdd-8t",
        "eva-raid5-12",
        "eva-raid5-12,battery=0",
        "eva-raid5-12,controller_cache=0",
    ];
    for spec in specs {
        let random = [1, 32].map(|depth| format!("{:.0}", one(spec, Load::new(Op::Write, 4096, depth)).iops()));
        let flushed = one(spec, Load::new(Op::Write, 4096, 1).flushed()).iops();
        let sequential = one(spec, Load::new(Op::Write, 128 << 10, 8).sequential()).mb_s();
        println!("| `{spec}` | {} | {flushed:.0} | {sequential:.0} |", random.join(" | "));
    }
}

/// One client goes on and on, with so much in flight: on the drive itself, nothing merged on the way.
fn checked_queued() {
    println!("\n| checked: one client, sequential, MB/s | depth 1 | 4 | 32 | 64 | writes, depth 1 | 4 | 32 | 64 |");
    for spec in ["sata-7200", "hdd-8t", "eva-raid5-12"] {
        for block in [4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20] {
            let rate = |op, depth| {
                let mut model = Spec::parse(spec).unwrap().build(1);
                let load = Load::new(op, block, depth).sequential();
                format!("{:.1}", load::run(&mut *model, &[load], Instant::ZERO, secs(20), 1).0[0].mb_s())
            };
            let each = [Op::Read, Op::Write].map(|op| [1, 4, 32, 64].map(|depth| rate(op, depth)).join(" | "));
            println!("| `{spec}`, {} KiB | {} |", block >> 10, each.join(" | "));
        }
    }
}
