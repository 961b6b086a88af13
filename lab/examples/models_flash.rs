//! The tables of `docs/models-flash.md`: `cargo run --release -p fairlift-lab --example models_flash`.

use fairlift_core::time::{ms, secs};
use fairlift_core::{Duration, Instant, Op};
use fairlift_lab::model::{Spec, profiles};

#[path = "../tests/support/load.rs"]
mod load;

use load::{Got, Load};

fn one(spec: &str, load: Load, time: Duration) -> Got {
    let mut model = Spec::parse(spec).unwrap().build(1);
    load::run(&mut *model, &[load], Instant::ZERO, time, 1).0.remove(0)
}

fn main() {
    let names: Vec<_> =
        profiles().map(|profile| profile.name).filter(|name| name.contains("ssd") || name.contains("nvme")).collect();
    println!(
        "| profile | read seq MB/s q1 / q8 | write seq MB/s | 4K read IOPS q1 / q32 / q512 | 4K write IOPS q1 / q32 | steady | fsync/s |"
    );
    for name in names {
        let clean = format!("{name},scatter=0,pool=100");
        let worn = format!("{name},scatter=100,pool=0,slc=0");
        let seq1 = one(name, Load::new(Op::Read, 128 << 10, 1).sequential(), ms(500)).mb_s();
        let seq8 = one(name, Load::new(Op::Read, 128 << 10, 8).sequential(), ms(500)).mb_s();
        let wseq = one(&clean, Load::new(Op::Write, 128 << 10, 8).sequential(), secs(1)).mb_s();
        let wseq_tlc = one(&format!("{clean},slc=0"), Load::new(Op::Write, 128 << 10, 8).sequential(), secs(1)).mb_s();
        let r1 = one(name, Load::new(Op::Read, 4096, 1), ms(500)).iops();
        let r32 = one(name, Load::new(Op::Read, 4096, 32), ms(500)).iops();
        let r512 = one(name, Load::new(Op::Read, 4096, 512), ms(200)).iops();
        let w1 = one(&clean, Load::new(Op::Write, 4096, 1), ms(500)).iops();
        let w32 = one(&clean, Load::new(Op::Write, 4096, 32), ms(500)).iops();
        let steady = one(&worn, Load::new(Op::Write, 4096, 32), secs(3)).iops();
        let fsync = one(name, Load::new(Op::Write, 4096, 1).flushed(), ms(500)).iops();
        println!(
            "| {name} | {seq1:.0} / {seq8:.0} | {wseq:.0} ({wseq_tlc:.0}) | {r1:.0} / {r32:.0} / {r512:.0} | {w1:.0} / {w32:.0} | {steady:.0} | {fsync:.0} |"
        );
    }
}
