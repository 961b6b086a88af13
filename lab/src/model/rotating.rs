//! Profiles of disks that rotate: every number with its source.
//!
//! **D** a datasheet or manual, as named; **R** recalled from one that could not be opened here; **F** fitted, on the figures named beside
//! it; **E** estimated. `docs/measured/models.md` sets the fitted figures beside the checked ones.

use fairlift_core::time::{ms, us};

use super::{Profile, Settings, disk, raid};

pub(super) const PROFILES: &[Profile] = &[
    Profile {
        name: "sata-7200",
        about: "a SATA disk of the years before 2010, 500 GB, 7200 rpm (the first device of Goyal's table)",
        size: 500_107_862_016,
        settings: || Settings::HardDisk(sata_7200()),
    },
    Profile {
        name: "eva-raid5-12",
        about: "a storage array of 2010: 12 SATA disks in RAID 5, one LUN (the second device of Goyal's table)",
        size: 5 << 40,
        settings: || Settings::Raid(eva_raid5_12()),
    },
    Profile {
        name: "hdd-8t",
        about: "a nearline SATA disk of 8 TB, 7200 rpm (as Ultrastar DC HC320)",
        size: 8_001_563_222_016,
        settings: || Settings::HardDisk(hdd_8t()),
    },
];

/// The maker is not named where the table was published; its one stream of 63.3 MB/s is the outer rate of a disk of 500 GB of
/// its time, the Hitachi Deskstar 7K500 (manual of HDS725050KLA360, tables 10 to 12), from which the numbers are where it
/// states them.
fn sata_7200() -> disk::Settings {
    disk::Settings {
        rpm: 7200,
        heads: 10,              // R
        zones: 30,              // D: "Zone 29" is the last
        rate_outer: 64_800,     // D: sustained, zone 0
        rate_inner: 31_000,     // D: sustained, zone 29
        track_switch: us(1480), // D: what is between 76.3 MB/s instantaneous and 64.8 sustained in zone 0
        seek_track: us(800),    // R: 0.8 to 2.0 ms are stated for disks of its kind
        seek_average: us(8200), // R; D: 8.4 to 9.1 with command overhead, from 55.5 s for 4096 random reads
        seek_full: ms(21),      // R: WD Caviar SE (15 to 21 ms are stated for its kind); F within that, noop 8 streams
        write_settle: ms(1),    // R: writes are stated 1 ms slower
        overhead: us(300),      // E
        interface: 300_000,     // D
        cache: 16 << 10,        // D
        cache_segments: 16,     // E
        read_ahead: 512,        // E: a segment's size
        read_ahead_min: 372,    // F: noop, 2 streams; 256 to 380 give the same within 5 %
        write_cache: true,
        flush: us(4170), // E: half a revolution; seed 003 saw such a disk gain much from flushes that are shared
        ncq: 32,         // D
        ncq_margin: 20,  // F: random reads at depth 32 gain 2 to 3 times; noop, 8 streams wants less
        ncq_age: ms(500), // E
    }
}

/// An HP EVA ("12 SATA disks in RAID 5"); its disks as the one above.
fn eva_raid5_12() -> raid::Settings {
    raid::Settings {
        disks: 12,
        level: 5,
        chunk: 128,                  // R; 64 explains the table much worse
        disk_size: 500,              // E: of the years; the whole array is one LUN
        controller_overhead: us(50), // E
        controller_latency: us(500), // E: an I/O that ends in the cache takes half a millisecond
        controller_rate: 400_000,    // D: Fibre Channel at 4 Gb/s
        command_rate: 38_000,        // F: noop, 1 stream
        prefetch: 1024,              // F: noop, 2 and 4 streams
        prefetch_streams: 128,       // E
        prefetch_after: 4 << 10,     // F: CFQ, 2, 4 and 8 streams; 2 to 8 MiB give the same within 10 %
        prefetch_keep: ms(50),       // E: shorter than a slice of 100 ms; 20 to 90 ms give the same
        controller_cache: 1 << 20,   // E: half of 2 GiB, for it is mirrored
        battery: true,               // R
        disk: disk::Settings {
            cache_segments: 32, // E: more streams meet on it than on a disk in a desktop
            read_ahead: 192,    // F: noop, all
            read_ahead_min: 0,  // F: noop, 2 and 8; the controller reads ahead
            write_cache: false, // arrays turn it off
            ..sata_7200()
        },
        ..raid::Settings::default()
    }
}

/// Western Digital Ultrastar DC HC320, 8 TB; seek times from the manual of its smaller sister DC HC310 (tables 5 and 6).
fn hdd_8t() -> disk::Settings {
    disk::Settings {
        rpm: 7200,
        heads: 10,              // R
        zones: 30,              // E
        rate_outer: 255_000,    // R: "sustained transfer rate 255 MB/s"
        rate_inner: 120_000,    // E: the ratio of 2.1 that is common
        track_switch: us(1000), // E
        seek_track: us(230),    // D: HC310, typical
        seek_average: us(7400), // D: HC310, typical
        seek_full: ms(16),      // E
        write_settle: us(800),  // D: HC310, 8.2 ms for a write
        overhead: us(150),      // E
        interface: 600_000,     // D
        cache: 256 << 10,       // R
        cache_segments: 64,     // E
        read_ahead: 2048,       // E: a segment's size
        read_ahead_min: 512,    // E: the same time as on `sata-7200`, four times the rate, cut to what firmware admits
        write_cache: true,
        flush: us(0),     // no figure was found
        ncq: 32,          // D
        ncq_margin: 30,   // F: 170 random reads at depth 16 (R: Exos 7E8)
        ncq_age: ms(500), // E
    }
}
