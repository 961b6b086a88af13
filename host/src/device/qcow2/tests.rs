//! Images made by QEMU, beside QEMU's own reads of them; and images that were made to harm.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;

use fairlift_lab::Random;

use super::image::{CHAIN_MAX, QcowImage};
use crate::device::roots::{Root, Roots};
use crate::device::{Device as _, Store};

/// A directory with images, which goes at the end.
struct Images(PathBuf);

impl Images {
    /// `None`: there is no QEMU here.
    fn new(name: &str) -> Option<Self> {
        if Command::new("qemu-img").arg("--version").output().is_err() {
            println!("SKIPPED: there is no qemu-img");
            return None;
        }
        let directory = std::env::temp_dir().join(format!("fairlift-qcow2-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        Some(Self(directory))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs a program in the directory: words that are parted by spaces.
    fn run(&self, words: &str) {
        let mut words = words.split(' ');
        let done = Command::new(words.next().unwrap()).args(words.clone()).current_dir(&self.0).output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Writes random pieces of a disk, and zeroes some.
    fn write(&self, random: &mut Random, image: &str, size: u64, count: u64) {
        let mut commands: Vec<String> = vec!["qemu-io".into(), image.into()];
        for _ in 0..count {
            let at = random.below(size / 512) * 512;
            let len = (random.below(200) + 1) * 512;
            let len = len.min(size - at);
            commands.push("-c".into());
            commands.push(match random.below(5) {
                0 => format!("write -z {at} {len}"),
                _ => format!("write -P {} {at} {len}", random.below(255) + 1),
            });
        }
        let done = Command::new("qemu-io").args(&commands[1..]).current_dir(&self.0).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    fn open(&self, name: &str) -> Result<QcowImage, String> {
        QcowImage::open(&self.at(name), &Roots::default())
    }

    fn refused(&self, name: &str, why: &str) {
        match self.open(name) {
            Ok(_) => panic!("{name} was opened: {why}"),
            Err(says) => assert!(says.contains(why), "{name}: {says}"),
        }
    }

    /// The bytes that QEMU reads of a disk.
    fn read_by_qemu(&self, name: &str) -> Vec<u8> {
        self.run(&format!("qemu-img convert -f qcow2 -O raw {name} {name}.raw"));
        fs::read(self.at(&format!("{name}.raw"))).unwrap()
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// All of a disk, in pieces of an odd size; what it calls a hole must be zeroes.
fn read(image: &QcowImage) -> Result<Vec<u8>, String> {
    let size = image.facts().size;
    let (mut all, mut at) = (vec![0xee; size as usize], 0);
    while at < size {
        let end = size.min(at + 100_352);
        image.read_at(&mut all[at as usize..end as usize], at).map_err(|error| error.to_string())?;
        at = end;
    }
    let mut at = 0;
    while at < size {
        let run = image.run(at, size - at).unwrap();
        let is_zero = all[at as usize..(at + run.len) as usize].iter().all(|byte| *byte == 0);
        assert!(run.len > 0 && (!run.hole || is_zero), "a hole of {} at {at} has data", run.len);
        at += run.len;
    }
    Ok(all)
}

#[test]
fn an_image_reads_as_qemu_reads_it() {
    let Some(images) = Images::new("reads") else { return };
    let mut random = Random::new(45);
    const SIZE: u64 = 5 << 20;
    for options in [
        "cluster_size=65536",
        "cluster_size=512",
        "cluster_size=2M",
        "compat=0.10",
        "cluster_size=4096,lazy_refcounts=on",
        "preallocation=metadata",
        "preallocation=falloc",
    ] {
        let name = options.replace(['=', ','], "-") + ".qcow2";
        images.run(&format!("qemu-img create -q -f qcow2 -o {options} {name} {SIZE}"));
        images.write(&mut random, &name, SIZE, 40);
        images.run(&format!("qemu-img snapshot -c before {name}"));
        images.write(&mut random, &name, SIZE, 20);
        let wanted = images.read_by_qemu(&name);
        let image = images.open(&name).unwrap();
        assert!(read(&image).unwrap() == wanted, "{options}");
        images.run(&format!("qemu-img convert -c -O qcow2 {name} c-{name}"));
        let image = images.open(&format!("c-{name}")).unwrap();
        assert!(read(&image).unwrap() == wanted, "{options}, compressed");
        assert_eq!(image.facts().size, SIZE);
    }
}

/// qcow2.2
#[test]
fn a_chain_reads_as_qemu_reads_it() {
    let Some(images) = Images::new("chain") else { return };
    let mut random = Random::new(46);
    const SIZE: u64 = 3 << 20;
    for (lowest, format) in [("raw.img", "raw"), ("one.qcow2", "qcow2")] {
        images.run(&format!("qemu-img create -q -f {format} {lowest} {}", SIZE / 2 + 512));
        match format {
            "raw" => fs::OpenOptions::new()
                .write(true)
                .open(images.at(lowest))
                .unwrap()
                .write_all_at(&[7; 90_000], 5000)
                .unwrap(),
            _ => images.write(&mut random, lowest, SIZE / 2, 20),
        }
        fs::create_dir_all(images.at("below")).unwrap();
        fs::rename(images.at(lowest), images.at("below").join(lowest)).unwrap();
        // The path is from the image's directory.
        images.run(&format!(
            "qemu-img create -q -f qcow2 -o cluster_size=4096 -F {format} -b {lowest} below/{format}-two.qcow2 {SIZE}"
        ));
        images.write(&mut random, &format!("below/{format}-two.qcow2"), SIZE, 20);
        images.run(&format!(
            "qemu-img create -q -f qcow2 -F qcow2 -b below/{format}-two.qcow2 {format}-three.qcow2 {}",
            SIZE + 4096
        ));
        images.write(&mut random, &format!("{format}-three.qcow2"), SIZE, 5);
        let wanted = images.read_by_qemu(&format!("{format}-three.qcow2"));
        let image = images.open(&format!("{format}-three.qcow2")).unwrap();
        assert_eq!(image.stamps().unwrap().len(), 3);
        assert!(read(&image).unwrap() == wanted, "{format}");
        let hole = image.run(SIZE, 4096).unwrap();
        assert!(hole.hole && hole.len == 4096, "{hole:?}: what no file of the chain has");
    }
}

/// qcow2.2
#[test]
fn a_chain_that_leads_out_of_the_roots_or_nowhere_is_refused() {
    let Some(images) = Images::new("refused") else { return };
    let image = |words: &str| images.run(&format!("qemu-img create -q -f qcow2 {words}"));
    image("plain.qcow2 1M");
    fs::create_dir_all(images.at("root")).unwrap();
    image("-F qcow2 -b ../plain.qcow2 root/out.qcow2 1M");
    let root = Root { path: images.at("root"), source: "server.roots".into() };
    let roots = Roots::open(&[root]).unwrap();
    let says = QcowImage::open(&images.at("root/out.qcow2"), &roots).err().unwrap();
    assert!(says.contains("lies over ") && says.contains("server.roots"), "{says}");
    assert!(images.open("root/out.qcow2").is_ok(), "without roots");

    image("-F qcow2 -b plain.qcow2 a.qcow2 1M");
    image("-F qcow2 -b a.qcow2 b.qcow2 1M");
    images.run("qemu-img rebase -u -f qcow2 -F qcow2 -b b.qcow2 a.qcow2");
    images.refused("b.qcow2", "twice");
    for number in 1..=CHAIN_MAX {
        let below = if number == 1 { "plain".into() } else { format!("deep{}", number - 1) };
        image(&format!("-F qcow2 -b {below}.qcow2 deep{number}.qcow2 1M"));
    }
    assert!(images.open(&format!("deep{}.qcow2", CHAIN_MAX - 1)).is_ok());
    images.refused(&format!("deep{CHAIN_MAX}.qcow2"), "more than 16 files");
    for (name, format, below, why) in [
        ("json", "raw", "json:{}", "is no path"),
        ("nbd", "raw", "nbd://localhost", "is no path"),
        ("vmdk", "vmdk", "plain.qcow2", "raw and qcow2 are read"),
        ("gone", "qcow2", "none.qcow2", "No such file"),
        ("other", "qcow2", "raw.img", "is no qcow2 image"),
        ("fifo", "raw", "fifo", "is neither a regular file"),
    ] {
        fs::write(images.at("raw.img"), [7; 4096]).unwrap();
        if !images.at("fifo").exists() {
            images.run("mkfifo fifo");
        }
        image(&format!("{name}.qcow2 1M"));
        images.run(&format!("qemu-img rebase -u -f qcow2 -F {format} -b {below} {name}.qcow2"));
        images.refused(&format!("{name}.qcow2"), why);
    }
}

#[test]
fn an_image_that_is_not_read_is_refused_with_what_to_do() {
    let Some(images) = Images::new("features") else { return };
    let image = |words: &str| images.run(&format!("qemu-img create -q -f qcow2 {words}"));
    image("-o extended_l2=on extended.qcow2 1M");
    images.refused("extended.qcow2", "extended_l2=off");
    image("-o compression_type=zstd zstd.qcow2 1M");
    images.refused("zstd.qcow2", "compression_type=zlib");
    image("-o data_file=data.raw external.qcow2 1M");
    images.refused("external.qcow2", "in another file");
    // Said in the header alone: qemu-img now and then fails to make a LUKS image, for it measures its own processor time.
    image("luks.qcow2 1M");
    let mut bytes = fs::read(images.at("luks.qcow2")).unwrap();
    bytes[32..36].copy_from_slice(&2_u32.to_be_bytes());
    fs::write(images.at("luks.qcow2"), bytes).unwrap();
    images.refused("luks.qcow2", "encrypted");
    fs::write(images.at("raw.img"), [1; 70_000]).unwrap();
    images.refused("raw.img", "is no qcow2 image");
    // Old programs did not say what an image lies over.
    image("-F raw -b raw.img none.qcow2");
    let mut bytes = fs::read(images.at("none.qcow2")).unwrap();
    let extension = [0xe2, 0x79, 0x2a, 0xca];
    let at = bytes.windows(4).position(|four| four == extension).unwrap();
    bytes[at..at + 4].fill(0x11);
    fs::write(images.at("none.qcow2"), bytes).unwrap();
    images.refused("none.qcow2", "qemu-img rebase -u -F raw|qcow2");
}

/// qcow2.4
#[test]
fn an_image_that_was_cut_short_is_refused() {
    let Some(images) = Images::new("short") else { return };
    images.run("qemu-img create -q -f qcow2 whole.qcow2 8M");
    let done =
        Command::new("qemu-io").args(["whole.qcow2", "-c", "write -P 3 0 4M"]).current_dir(&images.0).output().unwrap();
    assert!(done.status.success());
    let bytes = fs::read(images.at("whole.qcow2")).unwrap();
    for len in [1 << 20, 300_000, 200_000, 70_000, 4096, 512, 100, 50, 3, 0] {
        fs::write(images.at("short.qcow2"), &bytes[..len]).unwrap();
        let says = images.open("short.qcow2").err().unwrap_or_else(|| panic!("{len} bytes were opened"));
        assert!(!says.contains("given up"), "{len}: {says}");
    }
    assert!(images.open("whole.qcow2").is_ok());
}

/// qcow2.5
#[test]
fn what_the_crate_panics_with_refuses_an_image() {
    let Some(images) = Images::new("panic") else { return };
    images.run("qemu-img create -q -f qcow2 a.qcow2 1M");
    let mut bytes = fs::read(images.at("a.qcow2")).unwrap();
    let names = bytes.windows(4).position(|four| four == [0x68, 0x03, 0xf8, 0x57]).unwrap();
    bytes[names + 7] += 1; // the last name has one byte
    fs::write(images.at("b.qcow2"), bytes).unwrap();
    images.refused("b.qcow2", "its reader has given up");
}

/// qcow2.5: each byte of the first 4 KiB, which are the header and all tables.
#[test]
fn no_byte_of_an_image_makes_more_of_it_than_an_error_or_a_disk() {
    let Some(images) = Images::new("flipped") else { return };
    fs::write(images.at("below.img"), [9; 64 << 10]).unwrap();
    images.run("qemu-img create -q -f qcow2 -F raw -b below.img -o cluster_size=512 a.qcow2 16K");
    images.write(&mut Random::new(47), "a.qcow2", 8 << 10, 3);
    images.run("qemu-img convert -c -O qcow2 -o cluster_size=512 a.qcow2 c.qcow2");
    let mut opened = 0;
    for name in ["a.qcow2", "c.qcow2"] {
        let good = fs::read(images.at(name)).unwrap();
        for at in 0..good.len().min(4096) {
            let flips: &[u8] = if at < 512 { &[0x01, 0x80, 0xff] } else { &[0xff] };
            for flip in flips {
                let mut bad = good.clone();
                bad[at] ^= flip;
                fs::write(images.at("bad.qcow2"), bad).unwrap();
                let Ok(image) = images.open("bad.qcow2") else { continue };
                opened += 1;
                let size = image.facts().size;
                for from in [0, size / 2, size - 512] {
                    let mut some = vec![0; size.min(16 << 10) as usize];
                    let _ = image.read_at(&mut some, from);
                }
            }
        }
    }
    assert!(opened > 0, "most bytes are data");
}
