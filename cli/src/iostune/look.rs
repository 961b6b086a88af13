//! The facts of a disk before anything is measured, and the place for writes: never over data.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fairlift::bench;
use fairlift::config::Backing;
use fairlift_core::Duration;
use fairlift_core::time::secs;
use fairlift_lab::iostune::Facts;
use fairlift_lab::model::Spec;

use super::args::IostuneArgs;
use super::around::{self, Around};
use crate::config::faults;
use crate::syntax::backing;
use crate::syntax::units::show_size;

/// The least that can be told apart from a cache, and cut among 16 streams.
const LEAST: u64 = 32 << 20;
/// The smallest request of the measurements.
const SMALLEST: u32 = 4096;
/// Below it, caches of any kind hold most of it.
pub(super) const SMALL: u64 = 1 << 30;

pub(super) struct Measurement {
    pub(super) name: String,
    pub(super) target: Target,
    pub(super) time: Duration,
    pub(super) warnings: Vec<String>,
}

impl Measurement {
    pub(super) fn file(&self) -> Option<&Path> {
        match &self.target {
            Target::Real { backing: Backing::File(file), .. } => Some(&file.path),
            _ => None,
        }
    }

    /// The disk as a config file has it, wherever that file may lie.
    pub(super) fn in_a_config(&self) -> String {
        let Some(path) = self.file() else { return self.name.clone() };
        let (shown, whole) =
            (path.display().to_string(), std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let (kind, rest) = self.name.strip_prefix("file:").map_or(("", &*self.name), |rest| ("file:", rest));
        kind.to_owned() + &rest.replacen(&shown, &whole.display().to_string(), 1)
    }
}

pub(super) enum Target {
    Model(Spec),
    Real { backing: Backing, facts: Facts, around: Option<Around>, write_to: Option<WriteTo> },
}

/// Looks at the disk before anything is measured.
///
/// # Errors
/// It cannot be measured: the flag, and why.
pub(super) fn look(flags: &IostuneArgs) -> Result<Measurement, (&'static str, String)> {
    let device = |says| ("--device", says);
    let name = flags.device.as_deref().or(flags.path.as_deref());
    let name = name.ok_or_else(|| device("a disk is needed: a path, or sim:MODEL (see `fairlift models`)".into()))?;
    let time = flags.time.unwrap_or(if flags.quick { secs(30) } else { secs(180) });
    let measurement = |target, warnings| Measurement { name: name.into(), target, time, warnings };
    if let Some(model) = name.strip_prefix("sim:") {
        let spec = Spec::parse(model).map_err(device)?;
        enough(spec.size).map_err(device)?;
        if flags.scratch.is_some() {
            return Err(("--scratch", "a modelled disk has no files; --write alone is enough".into()));
        }
        return Ok(measurement(Target::Model(spec), Vec::new()));
    }
    let mut backing = backing::parse(name).and_then(|backing| faults::settle(&backing)).map_err(device)?;
    backing::check(&backing).map_err(device)?;
    let shape = bench::shape(&backing, true).map_err(|error| device(error.to_string()))?;
    enough(shape.bytes).and(small_blocks(shape.block)).map_err(device)?;
    let at_rest = !backing::holds_data(&backing);
    let mut facts = Facts { bytes: shape.bytes, block: shape.block, scratch: None, at_rest };
    let (mut around, mut write_to, mut warnings) = (None, None, Vec::new());
    if let Backing::File(file) = &backing {
        let path = &file.path;
        around = Around::of(path).filter(|_| !shape.in_ram);
        let is_file = path.is_file();
        warnings = look_inside(path, shape).map_err(device)?;
        let mounted = around.as_ref().and_then(Around::mounted);
        if flags.write {
            let to = where_to_write(flags, path, is_file, mounted.as_deref())?;
            facts.scratch = matches!(to, WriteTo::Device(_)).then_some(shape.bytes);
            write_to = Some(to);
        }
        if let Some(mounted) = mounted {
            warnings.push(format!("{mounted}: other I/O there disturbs the measurement"));
        }
    } else if at_rest && (flags.scratch.is_some() || flags.i_know_this_destroys_data) {
        return Err(("--write", "is enough for this disk, which holds no data".into()));
    } else if flags.write {
        if !at_rest {
            may_be_destroyed(flags, &backing.about().shown)?;
        }
        facts.scratch = Some(shape.bytes);
    }
    if let (Backing::File(file), Some(WriteTo::Device(_))) = (&mut backing, &write_to) {
        file.access.may_be_in_use = true; // by ourselves
    }
    warnings.extend(busy());
    Ok(measurement(Target::Real { backing, facts, around, write_to }, warnings))
}

fn enough(bytes: u64) -> Result<(), String> {
    if bytes >= LEAST {
        return Ok(());
    }
    Err(format!("the disk has {}; at least {} are needed", show_size(bytes), show_size(LEAST)))
}

/// Whether the smallest request of the measurements can be asked of it.
fn small_blocks(block: u32) -> Result<(), String> {
    if SMALLEST.is_multiple_of(block.max(1)) {
        return Ok(());
    }
    let (block, smallest) = (show_size(block.into()), show_size(SMALLEST.into()));
    Err(format!("the disk has blocks of {block}, and requests of {smallest} are measured: larger blocks cannot be"))
}

/// The properties of a file or device that cast doubt on its rates.
fn look_inside(path: &Path, shape: bench::Shape) -> Result<Vec<String>, String> {
    if around::holes(path) >= 99.0 {
        return Err(format!(
            "{0}: the file has no data, only holes, and reading holes does not reach a disk; fill it first: \
             dd if=/dev/urandom of={0} bs=1M count={1} conv=notrunc",
            path.display(),
            shape.bytes >> 20
        ));
    }
    let mut warnings: Vec<_> = around::sparse(path).into_iter().collect();
    if !shape.direct && !shape.in_ram {
        warnings.push("direct I/O is not possible here: the rates are those of the page cache, not of the disk".into());
    }
    if shape.bytes < SMALL && !shape.in_ram {
        warnings.push(format!("{} is small, and caches may hold it; measure 1 GiB or more", show_size(shape.bytes)));
    }
    Ok(warnings)
}

pub(super) enum WriteTo {
    /// On the device itself, which is held so that nobody mounts it meanwhile.
    Device(#[expect(dead_code, reason = "held, not used")] OwnedFd),
    /// Into a file that is made for it.
    Scratch(PathBuf),
}

/// Decides where is written, and refuses to write where data is.
fn where_to_write(
    flags: &IostuneArgs,
    path: &Path,
    is_file: bool,
    mounted: Option<&str>,
) -> Result<WriteTo, (&'static str, String)> {
    if is_file {
        if flags.i_know_this_destroys_data {
            let says = "is for block devices; for a file, --write makes a scratch file".into();
            return Err(("--i-know-this-destroys-data", says));
        }
        // Not beside a link to it, which may be on another disk.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let beside = || PathBuf::from(format!("{}.iostune", path.display()));
        let scratch = flags.scratch.clone().unwrap_or_else(beside);
        let disk = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev()).ok();
        let folder = scratch.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if let (Some(there), Some(here)) = (disk(folder), disk(&path))
            && there != here
        {
            let says = format!(
                "{} is on another file system than {}, so its writes would not measure this disk",
                scratch.display(),
                path.display()
            );
            return Err(("--scratch", says));
        }
        return Ok(WriteTo::Scratch(scratch));
    }
    may_be_destroyed(flags, &path.display().to_string())?;
    if let Some(mounted) = mounted {
        return Err(("--write", format!("{}: {mounted}; nothing is written on it", path.display())));
    }
    // The kernel answers EBUSY if a file system, swap or another device has it.
    let exclusive = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::EXCL | rustix::fs::OFlags::CLOEXEC;
    match rustix::fs::open(path, exclusive, rustix::fs::Mode::empty()) {
        Ok(held) => Ok(WriteTo::Device(held)),
        Err(error) => Err(("--write", format!("{}: {}", path.display(), std::io::Error::from(error)))),
    }
}

/// Whether it was said that all data on the disk may go.
fn may_be_destroyed(flags: &IostuneArgs, shown: &str) -> Result<(), (&'static str, String)> {
    if let Some(scratch) = &flags.scratch {
        let says = format!(
            "{}: a file is not on this device, so its writes would not measure it; leave --scratch out",
            scratch.display()
        );
        return Err(("--scratch", says));
    }
    if !flags.i_know_this_destroys_data {
        let says = format!(
            "destroys all data on {shown}; add --i-know-this-destroys-data to allow that, or leave --write out"
        );
        return Err(("--write", says));
    }
    Ok(())
}

/// Whether the machine is too busy for its rates to be the disk's.
fn busy() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split(' ').next()?.parse().ok()?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (load > 0.7 * cpus as f64)
        .then(|| format!("the machine is busy (load {load:.1} on {cpus} CPUs): rates of fast disks are too low"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is written over data.
    #[test]
    fn writes_go_into_a_new_file_or_where_it_was_said_that_all_may_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let to = |flags: &IostuneArgs, is_file, mounted| match where_to_write(flags, &path, is_file, mounted) {
            Ok(WriteTo::Device(_)) => "device".to_owned(),
            Ok(WriteTo::Scratch(path)) => path.file_name().unwrap().to_str().unwrap().to_owned(),
            Err((flag, says)) => format!("{flag}: {says}"),
        };
        let plain = IostuneArgs { write: true, ..IostuneArgs::default() };
        let sure = IostuneArgs { i_know_this_destroys_data: true, ..IostuneArgs::default() };
        let named = IostuneArgs { scratch: Some(dir.path().join("mine")), ..IostuneArgs::default() };
        assert_eq!(to(&plain, true, None), "image.iostune");
        assert_eq!(to(&named, true, None), "mine");
        assert!(to(&sure, true, None).contains("is for block devices"));
        assert!(to(&plain, false, None).contains("add --i-know-this-destroys-data"));
        assert!(to(&sure, false, Some("it is mounted at /srv")).contains("it is mounted at /srv; nothing is written"));
        assert!(to(&named, false, None).contains("leave --scratch out"));
    }

    /// The disks of another server hold data, too; RAM does not, and is as it was at the start of every run.
    #[test]
    fn no_other_disk_that_holds_data_is_written_over_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let (image, rules) = (dir.path().join("image"), dir.path().join("rules.toml"));
        std::fs::write(&image, vec![1; 32 << 20]).unwrap();
        std::fs::write(&rules, "").unwrap();
        let look_at = |inner: &str, i_know_this_destroys_data| {
            let path = Some(format!("fault:{},inner={inner}", rules.display()));
            look(&IostuneArgs { path, write: true, i_know_this_destroys_data, ..IostuneArgs::default() })
        };
        let facts = |inner: &str, is_sure| match look_at(inner, is_sure) {
            Ok(Measurement { target: Target::Real { facts, .. }, .. }) => Ok((facts.scratch, facts.at_rest)),
            Ok(_) => panic!("{inner} is no model"),
            Err((flag, says)) => Err(format!("{flag}: {says}")),
        };
        let image = image.display().to_string();
        let refusal = facts(&image, false).unwrap_err();
        assert!(refusal.starts_with("--write: destroys all data on ") && refusal.contains(&image), "{refusal}");
        assert_eq!(facts(&image, true), Ok((Some(32 << 20), false)));
        assert_eq!(facts("mem:32m", false), Ok((Some(32 << 20), true)));
        assert!(facts("mem:32m", true).unwrap_err().contains("holds no data"));
    }

    #[test]
    fn a_disk_has_to_be_large_enough() {
        assert_eq!(enough(32 << 20), Ok(()));
        assert_eq!(enough(1 << 20), Err("the disk has 1 MiB; at least 32 MiB are needed".into()));
        assert_eq!((small_blocks(512), small_blocks(4096)), (Ok(()), Ok(())));
        assert!(
            small_blocks(16 << 10).unwrap_err().starts_with("the disk has blocks of 16 KiB, and requests of 4 KiB")
        );
    }

    #[test]
    fn the_recommended_config_names_the_file_from_the_root() {
        let here = std::env::current_dir().unwrap();
        let here = here.display();
        for (name, whole) in [
            ("f", format!("{here}/f")),
            ("file:f", format!("file:{here}/f")),
            ("file:i,direct=off", format!("file:{here}/i,direct=off")),
            ("mem:32m", "mem:32m".into()),
        ] {
            let facts = Facts { bytes: 1 << 30, block: 512, scratch: None, at_rest: false };
            let backing = backing::parse(name).unwrap();
            let target = Target::Real { backing, facts, around: None, write_to: None };
            let measurement = Measurement { name: name.into(), target, time: secs(1), warnings: Vec::new() };
            assert_eq!(measurement.in_a_config(), whole, "{name}");
        }
    }
}
