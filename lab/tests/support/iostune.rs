//! What seed 001 measured on two disks that rotate, and the same on their models.
//!
//! The seed is the mail thread of July 2010 about CFQ's group_idle (Vivek Goyal); lines are those of its copy
//! `001_32e6110adfdf4726.txt`. `iostune` runs parallel `dd` on the block device, far apart: MB/s of 1000² bytes. `iostest` runs
//! fio on files of 512 MB: KB/s of 1024 bytes.

use fairlift_core::model::{Model, ModelCompletion, ModelRequest};
use fairlift_core::sched::Kind;
use fairlift_core::time::{ms, secs};
use fairlift_core::{Duration, Extent, Flags, Instant, Op, Sector};
use fairlift_lab::iostest::{Modelled, Placement, Plan, Runner};
use fairlift_lab::model::Spec;
use fairlift_lab::workload::Workload;

/// A row of the table: streams, MB/s in total, line of the seed.
pub type Row = (u32, f64, u32);

/// A disk of the table.
pub struct Device {
    pub profile: &'static str,
    /// Requests that the kernel kept in it.
    pub depth: u16,
    /// Fitted.
    pub noop: [Row; 4],
    /// Checked.
    pub cfq: [Row; 4],
}

pub const SATA: Device = Device {
    profile: "sata-7200",
    depth: 31,
    noop: [(1, 63.3, 1645), (2, 18.7, 1646), (4, 21.6, 1647), (8, 29.6, 1648)],
    cfq: [(1, 63.2, 1652), (2, 54.8, 1653), (4, 50.3, 1654), (8, 42.9, 1655)],
};

pub const ARRAY: Device = Device {
    profile: "eva-raid5-12",
    depth: 128,
    noop: [(1, 62.5, 1661), (2, 86.5, 1662), (4, 98.7, 1663), (8, 112.5, 1664)],
    cfq: [(1, 56.9, 1668), (2, 34.8, 1669), (4, 38.8, 1670), (8, 44.4, 1671)],
};

/// `iostest` on the array, buffered sequential readers of 512 MB files under CFQ with slice_idle=0: readers, KB/s, line.
pub const TOGETHER: [Row; 4] = [(8, 219_496.0, 65), (16, 320_159.0, 66), (32, 356_520.0, 67), (64, 348_747.0, 68)];

/// Nearline disks of 8 TB, 7200 rpm: minutes that a drive itself states for its extended self-test, which reads all of it
/// (`smartctl`, "recommended polling time"), and whose report says so: github.com/linuxhw/SMART, under `HDD/`.
pub const SELF_TESTS: [(&str, f64, &str); 5] = [
    ("Ultrastar DC HC320", 845.0, "HGST/HUS728/HUS728T8TALE6L4/7339063D40A0"),
    ("Ultrastar DC HC320", 860.0, "HGST/HUS728/HUS728T8TALE6L4/063DCA3F6D60"),
    ("Ultrastar DC HC320", 909.0, "HGST/HUS728/HUS728T8TALE6L0/12B87D2C5293"),
    ("Exos 7E8, ST8000NM0055", 798.0, "Seagate/ST8000/ST8000NM0055-1RM112/613809B7F8F1"),
    ("Exos 7E8, ST8000NM000A", 702.0, "Seagate/ST8000/ST8000NM000A-2KE101/18DECB608805"),
];

/// Minutes in which a disk of so many bytes is read at so many MB/s.
pub fn minutes(bytes: u64, mb_s: f64) -> f64 {
    bytes as f64 / mb_s / 1e6 / 60.0
}

/// What is read ahead for the readers of `iostest`, in bytes: fitted. With the kernel's 128 KiB, as the `dd`s of `iostune` had,
/// the rows of CFQ's slices are at a fifth of what was measured; with 1 MiB at 0.98 to 1.07.
pub const WINDOW_TOGETHER: u64 = 1 << 20;

/// MB/s of buffered sequential readers, spread over the disk or with their files of 512 MB together.
pub fn readers(spec: &str, depth: u16, readers: u32, placement: Placement, runtime: Duration, seed: u64) -> f64 {
    // Far apart they read on as dd does, never coming to an end.
    let file_size = if placement == Placement::Within(0) { 8 << 30 } else { 512 << 20 };
    let mut workload = Workload::named("bsr").unwrap();
    if placement == Placement::Together {
        workload.roles[0].read_ahead = WINDOW_TOGETHER;
    }
    let (workloads, jobs) = (vec![workload], vec![readers]);
    let plan = Plan { workloads, jobs, runtime, file_size, placement, seed, ..Plan::default() };
    let spec = Spec::parse(spec).unwrap();
    let mut runner = Modelled { spec, scheduler: Kind::None, set: Vec::new(), depth: Some(depth) };
    let measured = runner.run(&plan.cases().unwrap()[0], &mut |_| false).unwrap();
    let bytes: u64 = measured.meters.iter().map(|(_, meter)| meter.bytes).sum();
    bytes as f64 / (runtime.as_nanos() as f64 / 1e9) / 1e6
}

/// MB/s of readers far apart of which one at a time is served, for 100 ms each: what CFQ does with them.
pub fn slices(spec: &str, readers: u64) -> f64 {
    const WINDOW: u64 = 256;
    let spec = Spec::parse(spec).unwrap();
    let mut model = spec.build(1);
    let mut next: Vec<u64> = (0..readers).map(|n| spec.size / 512 / readers * n / 8 * 8).collect();
    let (mut now, mut ended, mut bytes, mut under_way) = (Instant::ZERO, Vec::<ModelCompletion>::new(), 0, 0);
    let runtime = secs(20);
    for turn in 0.. {
        let reader = (turn % readers) as usize;
        let until = now + ms(100);
        loop {
            // Two windows at once, as read-ahead asks; at the end of the slice those under way are waited for.
            while now < until && under_way < 2 {
                let extent = Extent::new(Sector(next[reader]), WINDOW);
                model.submit(now, &ModelRequest { id: next[reader], op: Op::Read, flags: Flags::NONE, extent });
                next[reader] += WINDOW;
                under_way += 1;
            }
            if under_way == 0 {
                break;
            }
            now = model.poll_event().unwrap();
            model.advance(now, &mut ended);
            under_way -= ended.len();
            bytes += ended.drain(..).len() as u64 * WINDOW * 512;
        }
        if now >= Instant::ZERO + runtime {
            break;
        }
    }
    bytes as f64 / (now.as_nanos() as f64 / 1e9) / 1e6
}

/// Reads a whole disk from start to end, a MiB at a time, a few in flight: MB/s on average.
pub fn whole(model: &mut dyn Model) -> f64 {
    let capacity = model.limits().capacity;
    let (mut next, mut now, mut ended) = (0, Instant::ZERO, Vec::new());
    let mut ask = |model: &mut dyn Model, now| {
        let length = (capacity - next).min(2048);
        if length > 0 {
            let extent = Extent::new(Sector(next), length);
            model.submit(now, &ModelRequest { id: next, op: Op::Read, flags: Flags::NONE, extent });
            next += length;
        }
    };
    (0..4).for_each(|_| ask(model, now));
    while let Some(at) = model.poll_event() {
        model.advance(at, &mut ended);
        for _ in ended.drain(..) {
            now = at;
            ask(model, now);
        }
    }
    capacity as f64 * 512.0 / (now.as_nanos() as f64 / 1e9) / 1e6
}
