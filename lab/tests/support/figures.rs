//! Published figures of solid-state disks, and the same of the models: what was fitted, and what was only checked.

use fairlift_core::time::{ms, secs};
use fairlift_core::{Duration, Instant, Op};
use fairlift_lab::model::Spec;

use crate::load::{self, Got, Load};
use crate::worlds;

/// A published figure, and how to get it from the model.
pub(crate) struct Figure {
    pub(crate) spec: &'static str,
    pub(crate) what: &'static str,
    pub(crate) published: f64,
    pub(crate) source: &'static str,
    pub(crate) modelled: fn(&'static str) -> f64,
}

impl Figure {
    /// How far the model is off, in per cent.
    pub(crate) fn off(&self, modelled: f64) -> f64 {
        (modelled / self.published - 1.0) * 100.0
    }
}

/// A load alone on a new disk.
pub(crate) fn alone(spec: &str, load: Load, time: Duration) -> Got {
    let mut model = Spec::parse(spec).unwrap().build(1);
    load::run(&mut *model, &[load], Instant::ZERO, time, 1).0.remove(0)
}

fn reads(depth: u32) -> Load {
    Load::new(Op::Read, 4096, depth)
}

fn writes(depth: u32) -> Load {
    Load::new(Op::Write, 4096, depth)
}

fn stream(op: Op) -> Load {
    Load::new(op, 128 << 10, 32).sequential()
}

fn dd(spec: &str, streams: u64) -> f64 {
    worlds::dd(spec, streams, secs(5)).iter().sum()
}

fn read_stream(spec: &str) -> f64 {
    alone(spec, stream(Op::Read), ms(500)).mb_s()
}

fn write_stream(spec: &str) -> f64 {
    alone(spec, stream(Op::Write), secs(2)).mb_s()
}

fn reads_512(spec: &str) -> f64 {
    alone(spec, reads(512), ms(100)).iops()
}

fn writes_512(spec: &str) -> f64 {
    alone(spec, writes(512), ms(200)).iops()
}

fn reads_32(spec: &str) -> f64 {
    alone(spec, reads(32), ms(200)).iops()
}

fn writes_32(spec: &str) -> f64 {
    alone(spec, writes(32), secs(1)).iops()
}

fn reads_1(spec: &str) -> f64 {
    alone(spec, reads(1), ms(200)).iops()
}

fn writes_1(spec: &str) -> f64 {
    alone(spec, writes(1), ms(200)).iops()
}

/// Operations a second of so many bytes, at random places.
fn rate(spec: &str, op: Op, block: u64, depth: u32) -> f64 {
    alone(spec, Load::new(op, block, depth), ms(500)).iops()
}

/// Microseconds that half of 4 KiB reads do not exceed.
fn median(spec: &str, depth: u32) -> f64 {
    alone(spec, reads(depth), ms(500)).quantile_us(0.5)
}

/// Microseconds of a write of so many bytes and the flush after it.
fn durable(spec: &str, block: u64) -> f64 {
    alone(spec, Load::new(Op::Write, block, 1).flushed(), secs(1)).mean_us()
}

const GOYAL: &str = "seed 001, Noop rows";
const TOMS: &str = "tomshardware.com, m5-pro-px-256m5p-19nm-nand,3267-7";
const KITGURU: &str = "kitguru.net, samsung-ssd-870-evo-1tb-review/12";
const INTEL: &str = "Intel S4500/S4600 product specification (manualzz.com 48879893)";
const HEISE: &str = "heise.de 4720224 (Samsung's announcement, 2020)";
const DIGITEC: &str = "digitec.ch 35511542 (Samsung's figures)";
const PODER: &str = "tanelpoder.com, using-pg-test-fsync-for-testing-low-latency-writes";
const WIRE: &str = "fio, io_uring, direct, on a virtual disk";
const RECALLED: &str = "datasheet, recalled";

macro_rules! figures {
    ($($spec:literal, $what:literal, $published:literal, $source:expr, $modelled:expr;)*) => {
        &[$(Figure { spec: $spec, what: $what, published: $published, source: $source, modelled: $modelled }),*]
    };
}

/// What parameters were chosen by.
pub(crate) const FITTED: &[Figure] = figures![
    "ssd-2010", "1 dd, MB/s", 243.0, GOYAL, |spec| dd(spec, 1);
    "ssd-2010", "2 dd, MB/s", 231.0, GOYAL, |spec| dd(spec, 2);
    "ssd-2010", "4 dd, MB/s", 270.6, GOYAL, |spec| dd(spec, 4);
    "ssd-2010", "8 dd, MB/s", 262.9, GOYAL, |spec| dd(spec, 8);
    "ssd-plextor-m5", "sequential reads, MB/s", 540.0, RECALLED, read_stream;
    "ssd-plextor-m5", "sequential writes, MB/s", 460.0, RECALLED, write_stream;
    "ssd-plextor-m5", "4 KiB random reads/s, depth 32", 94_000.0, TOMS, reads_32;
    "ssd-plextor-m5", "4 KiB random writes/s, depth 32", 86_000.0, RECALLED, writes_32;
    "ssd-sata-consumer", "sequential reads, MB/s", 560.0, KITGURU, read_stream;
    "ssd-sata-consumer", "sequential writes, MB/s", 530.0, KITGURU, write_stream;
    "ssd-sata-consumer,slc=0", "sequential writes beyond the one-bit area, MB/s", 530.0, RECALLED, write_stream;
    "ssd-sata-consumer", "4 KiB random reads/s, depth 32", 98_000.0, KITGURU, reads_32;
    "ssd-sata-consumer", "4 KiB random writes/s, depth 32", 88_000.0, KITGURU, writes_32;
    "ssd-sata-consumer", "4 KiB random reads/s, depth 1", 13_000.0, KITGURU, reads_1;
    "ssd-sata-consumer", "4 KiB random writes/s, depth 1", 36_000.0, KITGURU, writes_1;
    "ssd-sata-plp", "sequential reads, MB/s", 500.0, INTEL, read_stream;
    "ssd-sata-plp,pool=100,scatter=0", "sequential writes, MB/s", 490.0, INTEL, write_stream;
    "ssd-sata-plp", "4 KiB random reads/s, depth 32", 72_000.0, INTEL, reads_32;
    "ssd-sata-plp", "4 KiB random writes/s, depth 32, worn", 65_000.0, INTEL, writes_32;
    "ssd-sata-plp", "4 KiB sequential read, depth 1, µs", 36.0, INTEL,
        |spec| alone(spec, reads(1).sequential(), ms(100)).mean_us();
    "ssd-sata-plp", "4 KiB sequential write, depth 1, µs", 36.0, INTEL,
        |spec| alone(spec, writes(1).sequential(), ms(100)).mean_us();
    "nvme-plp", "sequential reads, MB/s", 6_800.0, RECALLED, read_stream;
    "nvme-plp,pool=100,scatter=0", "sequential writes, MB/s", 4_000.0, RECALLED, write_stream;
    "nvme-plp", "4 KiB random reads/s, depth 512", 1_000_000.0, RECALLED, reads_512;
    "nvme-consumer", "sequential reads, MB/s", 7_450.0, DIGITEC, read_stream;
    "nvme-consumer", "sequential writes, MB/s", 6_900.0, DIGITEC, write_stream;
    "nvme-consumer,slc=0", "sequential writes beyond the one-bit area, MB/s", 1_400.0, RECALLED, write_stream;
    "nvme-consumer", "4 KiB random reads/s, depth 512", 1_400_000.0, DIGITEC, reads_512;
    "nvme-consumer", "4 KiB random writes/s, depth 512", 1_550_000.0, DIGITEC, writes_512;
    "nvme-consumer", "4 KiB random reads/s, depth 1", 22_000.0, RECALLED, reads_1;
    "nvme-consumer", "4 KiB random writes/s, depth 1", 80_000.0, RECALLED, writes_1;
    "nvme-consumer", "8 KiB write and fdatasync, µs", 1_643.0, PODER, |spec| durable(spec, 8192);
    "virtio-ssd", "4 KiB random reads/s, depth 1", 11_000.0, WIRE, |spec| rate(spec, Op::Read, 4096, 1);
    "virtio-ssd", "4 KiB random reads/s, depth 8", 50_000.0, WIRE, |spec| rate(spec, Op::Read, 4096, 8);
    "virtio-ssd", "4 KiB random reads/s, depth 64", 98_900.0, WIRE, |spec| rate(spec, Op::Read, 4096, 64);
    "virtio-ssd", "64 KiB random writes/s, depth 8", 20_900.0, WIRE, |spec| rate(spec, Op::Write, 65_536, 8);
];

/// What no parameter was chosen by.
pub(crate) const CHECKED: &[Figure] = figures![
    "ssd-plextor-m5", "4 KiB random reads/s, depth 32, as measured", 90_388.0, TOMS, reads_32;
    "ssd-plextor-m5", "4 KiB random writes/s, depth 32, as measured", 84_081.0, TOMS, writes_32;
    "ssd-sata-consumer", "4 KiB random reads/s, depth 32, as measured", 94_003.0, KITGURU, reads_32;
    "ssd-sata-consumer", "4 KiB random writes/s, depth 32, as measured", 84_058.0, KITGURU, writes_32;
    "ssd-sata-plp", "4 KiB random read, depth 1, µs", 110.0, INTEL, |spec| alone(spec, reads(1), ms(500)).mean_us();
    "ssd-sata-plp", "4 KiB random write, depth 1, µs", 52.0, INTEL, |spec| alone(spec, writes(1), ms(500)).mean_us();
    "ssd-sata-plp", "4 KiB random read, depth 1, 99.9 %, µs", 300.0, INTEL,
        |spec| alone(spec, reads(1), secs(1)).quantile_us(0.999);
    "ssd-sata-plp", "8 KiB random reads/s, depth 32", 48_000.0, INTEL,
        |spec| alone(spec, Load::new(Op::Read, 8192, 32), ms(200)).iops();
    "ssd-sata-plp", "8 KiB random writes/s, depth 32, worn", 40_000.0, INTEL,
        |spec| alone(spec, Load::new(Op::Write, 8192, 32), secs(1)).iops();
    "nvme-plp", "sequential reads, MB/s", 6_500.0, HEISE, read_stream;
    "nvme-plp,pool=100,scatter=0", "sequential writes, MB/s", 3_500.0, HEISE, write_stream;
    "nvme-plp", "4 KiB random reads/s, depth 512", 900_000.0, HEISE, reads_512;
    "nvme-plp", "4 KiB random writes/s, worn", 200_000.0, HEISE, writes_512;
    "nvme-consumer", "4 KiB random reads/s, as measured (4 TB)", 1_400_000.0, "heise.de, c't 4/2024", reads_512;
    "nvme-consumer", "4 KiB random writes/s, as measured (4 TB)", 1_150_000.0, "heise.de, c't 4/2024", writes_512;
    "nvme-consumer", "4 KiB write and fsync, µs, of a Samsung 980", 1_742.0, "igene.tw, choosing-ceph-ssd: 574/s",
        |spec| durable(spec, 4096);
    "virtio-ssd", "4 KiB random reads/s, depth 2", 20_000.0, WIRE, |spec| rate(spec, Op::Read, 4096, 2);
    "virtio-ssd", "4 KiB random reads/s, depth 4", 36_000.0, WIRE, |spec| rate(spec, Op::Read, 4096, 4);
    "virtio-ssd", "4 KiB random reads/s, depth 16", 62_600.0, WIRE, |spec| rate(spec, Op::Read, 4096, 16);
    "virtio-ssd", "4 KiB random reads/s, depth 32", 78_900.0, WIRE, |spec| rate(spec, Op::Read, 4096, 32);
    "virtio-ssd", "4 KiB random reads/s, depth 128", 96_400.0, WIRE, |spec| rate(spec, Op::Read, 4096, 128);
    "virtio-ssd", "4 KiB random writes/s, depth 1", 11_170.0, WIRE, |spec| rate(spec, Op::Write, 4096, 1);
    "virtio-ssd", "4 KiB random writes/s, depth 8", 44_300.0, WIRE, |spec| rate(spec, Op::Write, 4096, 8);
    "virtio-ssd", "4 KiB random writes/s, depth 32", 78_000.0, WIRE, |spec| rate(spec, Op::Write, 4096, 32);
    "virtio-ssd", "4 KiB random writes/s, depth 64", 77_600.0, WIRE, |spec| rate(spec, Op::Write, 4096, 64);
    "virtio-ssd", "4 KiB random writes/s, depth 128", 94_600.0, WIRE, |spec| rate(spec, Op::Write, 4096, 128);
    "virtio-ssd", "64 KiB random writes/s, depth 1", 7_190.0, WIRE, |spec| rate(spec, Op::Write, 65_536, 1);
    "virtio-ssd", "64 KiB random writes/s, depth 4", 16_100.0, WIRE, |spec| rate(spec, Op::Write, 65_536, 4);
    "virtio-ssd", "64 KiB random writes/s, depth 16", 22_250.0, WIRE, |spec| rate(spec, Op::Write, 65_536, 16);
    "virtio-ssd", "64 KiB random writes/s, depth 32", 21_900.0, WIRE, |spec| rate(spec, Op::Write, 65_536, 32);
    "virtio-ssd", "64 KiB random writes/s, depth 64", 23_200.0, WIRE, |spec| rate(spec, Op::Write, 65_536, 64);
    "virtio-ssd", "1 MiB random writes/s, depth 8", 1_900.0, WIRE, |spec| rate(spec, Op::Write, 1_048_576, 8);
    "virtio-ssd", "half of 4 KiB random reads, depth 1, µs", 62.0, WIRE, |spec| median(spec, 1);
    "virtio-ssd", "half of 4 KiB random reads, depth 8, µs", 146.0, WIRE, |spec| median(spec, 8);
    "virtio-ssd", "half of 4 KiB random reads, depth 64, µs", 643.0, WIRE, |spec| median(spec, 64);
    "virtio-ssd", "half of 4 KiB random reads, depth 128, µs", 1171.0, WIRE, |spec| median(spec, 128);
];
