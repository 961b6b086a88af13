//! Profiles of solid-state disks: every number with its source.
//!
//! **D** a datasheet, as quoted by the page named; **M** measured by the page named, or by us if none is; **F** fitted, on the figures
//! named beside it; **R** recalled from a datasheet or paper that could not be opened here; **E** estimated.
//! `docs/measured/models-flash.md` sets the fitted figures beside the checked ones.

use fairlift_core::Duration;
use fairlift_core::time::{ms, us};

use super::{Profile, Settings, ssd, virtio};

pub(super) const PROFILES: &[Profile] = &[
    Profile {
        name: "ssd-2010",
        about: "a SATA II SSD of 2010 (the third device of Goyal's table)",
        size: 128_035_676_160,
        settings: || Settings::Ssd(ssd_2010()),
    },
    Profile {
        name: "ssd-plextor-m5",
        about: "a SATA SSD of 2012 (Plextor M5 Pro, 256 GB)",
        size: 256_060_514_304,
        settings: || Settings::Ssd(plextor_m5()),
    },
    Profile {
        name: "ssd-sata-consumer",
        about: "a consumer SATA SSD without power-loss protection (as Samsung 870 EVO, 1 TB)",
        size: 1_000_204_886_016,
        settings: || Settings::Ssd(sata_consumer()),
    },
    Profile {
        name: "ssd-sata-plp",
        about: "an enterprise SATA SSD with power-loss protection (as Intel DC S4600, 960 GB)",
        size: 960_197_124_096,
        settings: || Settings::Ssd(sata_plp()),
    },
    Profile {
        name: "nvme-plp",
        about: "an enterprise NVMe SSD with power-loss protection (as Samsung PM9A3, 3.84 TB)",
        size: 3_840_755_982_336,
        settings: || Settings::Ssd(nvme_plp()),
    },
    Profile {
        name: "nvme-consumer",
        about: "a consumer NVMe SSD: a fast one-bit area, slow flushes (as Samsung 990 Pro, 2 TB)",
        size: 2_000_398_934_016,
        settings: || Settings::Ssd(nvme_consumer()),
    },
    Profile {
        name: "virtio-ssd",
        about: "the disk of a virtual machine: flash behind a host that answers in lumps (virtio-blk)",
        size: 1 << 40,
        settings: || Settings::Virtio(virtio::Settings::default()),
    },
];

const fn ns(n: u64) -> Duration {
    Duration::from_nanos(n)
}

/// The maker is not named where the table was published. Figures that dd cannot see are those of a drive of its class and rates, the
/// Crucial C300 of 128 GB on a 3 Gb/s port.
fn ssd_2010() -> ssd::Settings {
    ssd::Settings {
        overhead: us(25),      // E
        read_command: us(18),  // E: the C300's 60,000 IOPS (R) with an older host adapter
        write_command: us(33), // R: C300 128 GB, 30,000 IOPS
        link: 252,             // F: the mean of the Noop rows of 1, 2, 4 and 8 streams
        channels: 8,           // R: Marvell 88SS9174
        channel: 40,           // E: asynchronous ONFI 2 at its slow end; eight carry more than the link
        dies: 32,              // R: 128 GB of 34 nm MLC of 32 Gbit
        page: 4,               // R
        read: us(50),          // R: Micron 34 nm MLC
        unit: 8,               // R: two planes of 4 KiB
        program: us(1870),     // F: 140 MB/s of sequential writes (R: C300 128 GB, 355 read / 140 write)
        block: 1,              // R
        erase: ms(3),          // R
        suspend: us(0),
        suspends: 0,  // E: not in controllers of that time
        buffer: 2048, // E
        plp: false,
        flush: ms(3),      // E
        discard: ms(1),    // E
        read_ahead: 512,   // F: one stream alone reaches nearly what eight do
        overprovision: 73, // 128 GiB of flash for 128 GB
        ..ssd::Settings::default()
    }
}

/// Seed 000 names it PX-256M5, without the letter that tells M5 Pro from M5S; this is the Pro.
fn plextor_m5() -> ssd::Settings {
    ssd::Settings {
        overhead: us(12),          // E
        read_command: ns(10_640),  // D: 94,000 IOPS (tomshardware.com m5-pro-px-256m5p-19nm-nand,3267-7)
        write_command: ns(11_630), // D: 86,000 IOPS (the same)
        link: 540,                 // D: 540 MB/s of sequential reads (R)
        channels: 8,               // R: Marvell 88SS9187
        channel: 200,              // R: Toggle DDR 1 or 2
        dies: 64,                  // R: 32 dies of 64 Gbit, two planes each
        page: 16,                  // R
        read: us(60),              // R: Toshiba 19 nm MLC
        unit: 16,                  // R: a page of one plane
        program: us(2250),         // F: 460 MB/s of sequential writes (R)
        block: 2,                  // R: 256 pages a plane, and a half
        erase: ms(5),              // E
        suspends: 0,               // E
        buffer: 8192,              // E: of 512 MiB of DRAM the greatest part is the mapping
        plp: false,
        flush: us(2500), // E: between 2.09 ms of a Samsung 950 PRO (freshbsd.org, FreeBSD 321928) and 3.5 of a 960 PRO
        discard: us(500), // E
        read_ahead: 512, // E
        overprovision: 73, // 256 GiB of flash for 256 GB
        ..ssd::Settings::default()
    }
}

fn sata_consumer() -> ssd::Settings {
    ssd::Settings {
        overhead: us(9), // F: 36,000 write IOPS at depth 1 (D, kitguru.net samsung-ssd-870-evo-1tb-review/12)
        read_command: ns(10_200), // D: 98,000 IOPS at depth 32 (the same)
        write_command: ns(11_360), // D: 88,000 IOPS (the same)
        link: 545, // F: between 560 MB/s of reads and 530 of writes (D, the same): the model has one rate for both
        channels: 8, // D: eight-channel MKX (the same)
        channel: 800, // E
        dies: 32,  // E: 16 dies of 512 Gbit, two planes each
        page: 16,  // R
        read: us(45), // F: 13,000 read IOPS at depth 1 (D, the same)
        unit: 48,  // E: three bits of a 16 KiB page
        program: us(2920), // F: 530 MB/s, also beyond the one-bit area (M: anandtech.com 16480, whole-drive fill)
        block: 12, // E
        erase: ms(5), // E
        suspend: us(30), // E
        suspends: 8, // E
        buffer: 16_384, // E: of 1 GiB of DRAM
        slc: 42 << 10, // R: TurboWrite of the 1 TB model
        slc_program: us(1000), // E
        plp: false,
        flush: us(1700), // E: with the program 2 to 3 ms; a Samsung 950 PRO 2.09 (freshbsd.org, FreeBSD 321928)
        discard: us(300), // E
        read_ahead: 512, // E
        overprovision: 60, // E: 1 TiB of flash for 1 TB, less the one-bit area
        ..ssd::Settings::default()
    }
}

/// All of it amid a long load of random writes, as its IOPS were measured.
fn sata_plp() -> ssd::Settings {
    ssd::Settings {
        overhead: us(13),          // F: sequential latency of 36 µs, read and write (D)
        read_command: ns(13_890),  // D: 72,000 IOPS (S4500/S4600 product specification, manualzz.com 48879893)
        write_command: ns(15_380), // D: 65,000 IOPS (the same)
        link: 500,                 // D: 500 MB/s (the same)
        channels: 8,               // E
        channel: 400,              // E
        dies: 64,                  // E: more flash than its capacity, see below
        page: 16,                  // R
        read: us(70),              // R: Intel 3D TLC, first generations
        unit: 48,                  // E
        program: us(6400),         // F: 490 MB/s (D)
        block: 16,                 // E
        erase: ms(8),              // E
        suspend: us(40),           // E
        suspends: 8,               // E
        buffer: 16_384,            // E
        plp: true,                 // D: enhanced power-loss data protection
        discard: us(200),          // E
        read_ahead: 256,           // E
        overprovision: 600,        // F: 65,000 random writes in the steady state (D) need a low amplification
        pool: 0,
        scatter: 100,
        ..ssd::Settings::default()
    }
}

/// All of it amid a long load of random writes, as its IOPS were measured.
fn nvme_plp() -> ssd::Settings {
    ssd::Settings {
        overhead: us(9),      // E
        read_command: us(1),  // D: 1,000,000 IOPS (R); 900,000 when announced (heise.de 4720224)
        write_command: us(1), // E: never the limit
        slots: 4096,          // R: of 65,535 that NVMe allows a queue
        link: 6800,           // D: 6,800 MB/s (R); 6,500 when announced (heise.de 4720224)
        duplex: true,         // PCIe
        alone: false,         // NVMe: all commands are queued
        channels: 8,          // E
        channel: 1200,        // R: V-NAND of the sixth generation
        dies: 128,            // E: 64 dies of 512 Gbit, two planes each
        page: 16,             // R
        read: us(58),         // E: with the rest some 75 µs at depth 1
        unit: 48,             // R: three bits of a 16 KiB page, written at once
        program: us(1550),    // F: 4,000 MB/s (R); 3,500 when announced
        block: 16,            // E
        erase: ms(5),         // E
        suspend: us(25),      // E
        suspends: 8,          // E
        buffer: 32_768,       // E: what capacitors save
        plp: true,            // D
        discard: us(30),      // E
        read_ahead: 256,      // E
        overprovision: 145,   // 4 TiB of flash (E) for 3.84 TB
        pool: 0,
        scatter: 100,
        ..ssd::Settings::default()
    }
}

fn nvme_consumer() -> ssd::Settings {
    ssd::Settings {
        overhead: us(11),       // F: 80,000 write IOPS at depth 1 (R: datasheet)
        read_command: ns(714),  // D: 1,400,000 IOPS (digitec.ch 35511542)
        write_command: ns(645), // D: 1,550,000 IOPS (the same)
        slots: 4096,            // R
        link: 7450,             // D: 7,450 MB/s (the same)
        duplex: true,           // PCIe
        alone: false,           // NVMe: all commands are queued
        channels: 8,            // R: Pascal controller
        channel: 1600,          // R
        dies: 64,               // E: 16 dies of 1 Tbit, four planes each
        page: 16,               // R
        read: us(31),           // F: 22,000 read IOPS at depth 1 (R: datasheet)
        unit: 48,               // R: three bits of a 16 KiB page, written at once
        program: us(2250),      // F: 1,400 MB/s beyond the one-bit area (R)
        block: 16,              // E
        erase: ms(5),           // E
        suspend: us(25),        // E
        suspends: 8,            // E
        buffer: 32_768,         // E: of 2 GiB of DRAM
        slc: 216 << 10,         // R: 226 GB of TurboWrite
        slc_program: us(455),   // F: 6,900 MB/s (D: digitec.ch 35511542)
        plp: false,             // D: write back (tanelpoder.com 2025-05-27, lsds)
        flush: us(1150),        // F: 1.64 ms for an 8 KiB write with fdatasync on a 990 Pro (the same)
        discard: us(50),        // E
        read_ahead: 512,        // E
        overprovision: 70,      // E: 2 TiB of flash for 2 TB, less the one-bit area
        ..ssd::Settings::default()
    }
}
