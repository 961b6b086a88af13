//! Disks on paper: one file for each kind, and profiles with the source of every number.
//!
//! A disk is asked for by the name of its profile, and may differ from it: `sata-7200,size=100G,rpm=5400`.

mod busy;
pub mod disk;
mod flash;
pub mod networked;
pub mod raid;
mod rotating;
pub mod ssd;
pub mod virtio;

use fairlift_core::Sector;
use fairlift_core::model::Model;
use fairlift_core::tunable::{self, TunableInfo, parse_size};

pub(crate) use busy::Metered;

use crate::suggestion;

/// The parameters of a disk of one kind.
#[derive(Clone, Debug)]
pub enum Settings {
    /// A hard disk.
    HardDisk(disk::Settings),
    /// Hard disks behind a controller.
    Raid(raid::Settings),
    /// A solid-state disk.
    Ssd(ssd::Settings),
    /// The disk of a virtual machine.
    Virtio(virtio::Settings),
    /// A cluster behind a network.
    Networked(networked::Settings),
}

/// A disk with a name.
pub struct Profile {
    /// Its name, as in `sim:NAME`.
    pub name: &'static str,
    /// Its description, in a phrase.
    pub about: &'static str,
    /// Bytes, unless said otherwise.
    pub size: u64,
    /// Its numbers.
    pub settings: fn() -> Settings,
}

/// All profiles.
pub fn profiles() -> impl Iterator<Item = &'static Profile> {
    rotating::PROFILES.iter().chain(flash::PROFILES).chain(networked::PROFILES)
}

/// A requested disk: a profile, and its differences.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The name of its profile.
    pub name: &'static str,
    /// Bytes.
    pub size: u64,
    /// Its numbers.
    pub settings: Settings,
}

impl Spec {
    /// Reads `NAME[,size=BYTES][,PARAMETER=VALUE…]`.
    ///
    /// # Errors
    /// There is no such profile or parameter, or a value is malformed or out of range.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let Some(profile) = profiles().find(|profile| profile.name == name) else {
            let names: Vec<_> = profiles().map(|profile| profile.name).collect();
            let hint = suggestion(name, names.iter().copied());
            return Err(format!("unknown model \"sim:{name}\": the models are {}{hint}", names.join(", ")));
        };
        let mut spec = Self { name: profile.name, size: profile.size, settings: (profile.settings)() };
        let set = parts.try_for_each(|part| match part.split_once('=') {
            Some((key, value)) => spec.set(key, value),
            None => Err(format!("\"{part}\" is not of the form parameter=value")),
        });
        let checked = set.and_then(|()| spec.settings.check(spec.size));
        checked.map(|()| spec).map_err(|why| format!("sim:{name}: {why}"))
    }

    /// Requests that it takes in at a time: the kernel's limit, and the limit for a queue before it.
    ///
    /// A hard disk has its command queue, a solid-state disk its slots (NVMe in Linux: at most 1023 for a queue), a virtual disk
    /// what its driver sends, a client of a cluster its window, an array what its controller is given by default
    /// ([`Settings::DEPTH`](fairlift_core::queue::Settings::DEPTH)).
    #[must_use]
    pub fn depth(&self) -> u16 {
        let depth = match &self.settings {
            Settings::HardDisk(settings) => settings.ncq,
            Settings::Raid(_) => u32::from(fairlift_core::queue::Settings::DEPTH),
            Settings::Ssd(settings) => settings.slots,
            Settings::Virtio(settings) => settings.depth,
            Settings::Networked(settings) => settings.window,
        };
        depth.clamp(1, 1023) as u16
    }

    /// The model, at rest; what it leaves to chance follows from the seed.
    #[must_use]
    pub fn build(&self, seed: u64) -> Box<dyn Model> {
        let sectors = self.size / Sector::SIZE;
        match &self.settings {
            Settings::HardDisk(settings) => Box::new(Metered::new(disk::new(settings, sectors, seed))),
            Settings::Raid(settings) => Box::new(Metered::new(raid::Raid::new(settings.clone(), sectors, seed))),
            Settings::Ssd(settings) => Box::new(Metered::new(ssd::Ssd::new(settings.clone(), sectors, seed))),
            Settings::Virtio(settings) => Box::new(Metered::new(virtio::Virtio::new(settings.clone(), sectors, seed))),
            Settings::Networked(settings) => {
                Box::new(Metered::new(networked::Networked::new(settings.clone(), sectors, seed)))
            }
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if key == "size" {
            self.size = parse_disk_size(value).ok_or_else(|| {
                format!(
                    "size={value} is not possible: size takes a multiple of 512 up to 64T, as in 500G or 1T (powers of 1024)"
                )
            })?;
            return Ok(());
        }
        let known = self.settings.infos();
        if !known.iter().any(|info| info.name == key) {
            let names: Vec<_> = std::iter::once("size").chain(known.iter().map(|info| info.name)).collect();
            let hint = suggestion(key, names.iter().copied());
            return Err(format!("unknown parameter \"{key}\": the parameters are {}{hint}", names.join(", ")));
        }
        self.settings.set(key, value).map_err(|error| error.to_string())
    }
}

impl Settings {
    /// Its parameters; of an array its own, then those of each of its disks.
    #[must_use]
    pub fn infos(&self) -> Vec<TunableInfo> {
        match self {
            Self::HardDisk(_) => disk::Settings::INFO.to_vec(),
            Self::Raid(_) => [raid::Settings::INFO, disk::Settings::INFO].concat(),
            Self::Ssd(_) => ssd::Settings::INFO.to_vec(),
            Self::Virtio(_) => virtio::Settings::INFO.to_vec(),
            Self::Networked(_) => networked::Settings::INFO.to_vec(),
        }
    }

    /// The present value of a parameter, as text that [`Settings::set`] takes.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        match self {
            Self::HardDisk(settings) => tunable::get(disk::Settings::TUNABLES, settings, name),
            Self::Raid(settings) => tunable::get(raid::Settings::TUNABLES, settings, name)
                .or_else(|| tunable::get(disk::Settings::TUNABLES, &settings.disk, name)),
            Self::Ssd(settings) => tunable::get(ssd::Settings::TUNABLES, settings, name),
            Self::Virtio(settings) => tunable::get(virtio::Settings::TUNABLES, settings, name),
            Self::Networked(settings) => tunable::get(networked::Settings::TUNABLES, settings, name),
        }
    }

    /// Changes a parameter.
    ///
    /// # Errors
    /// There is no such parameter, or the value is malformed or out of range.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), tunable::Error> {
        match self {
            Self::HardDisk(settings) => tunable::set(disk::Settings::TUNABLES, settings, name, value),
            Self::Raid(settings) if disk::Settings::INFO.iter().any(|info| info.name == name) => {
                tunable::set(disk::Settings::TUNABLES, &mut settings.disk, name, value)
            }
            Self::Raid(settings) => tunable::set(raid::Settings::TUNABLES, settings, name, value),
            Self::Ssd(settings) => tunable::set(ssd::Settings::TUNABLES, settings, name, value),
            Self::Virtio(settings) => tunable::set(virtio::Settings::TUNABLES, settings, name, value),
            Self::Networked(settings) => tunable::set(networked::Settings::TUNABLES, settings, name, value),
        }
    }

    /// Whether the numbers go together, for a disk of `size` bytes.
    fn check(&self, size: u64) -> Result<(), String> {
        match self {
            Self::HardDisk(settings) => settings.check(size),
            Self::Raid(settings) => settings.check(size),
            Self::Ssd(settings) => settings.check(size),
            Self::Virtio(_) | Self::Networked(_) => Ok(()), // any of them go together
        }
    }
}

/// The size of a disk, as [`parse_size`] reads it: whole sectors, at most the largest modelled size.
fn parse_disk_size(text: &str) -> Option<u64> {
    parse_size(text).ok().filter(|bytes| *bytes > 0 && bytes.is_multiple_of(Sector::SIZE) && *bytes <= 64 << 40)
}

/// A size as [`parse_size`] takes it, in the largest unit that leaves no remainder: `512G`, `1536K`, `513`.
pub(crate) fn show_size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    match UNITS.iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// The largest size that [`show_size`] shows in three or more digits of a unit, and that is no more than `bytes`.
pub(crate) fn show_most(bytes: u64) -> String {
    let shift = [30, 20, 10].into_iter().find(|shift| bytes >> shift >= 100).unwrap_or(0);
    show_size(bytes >> shift << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_whole_sectors_in_binary_units() {
        assert_eq!(parse_disk_size("100G"), Some(100 << 30));
        assert_eq!(parse_disk_size("1TiB"), Some(1 << 40));
        assert_eq!(parse_disk_size("512"), Some(512));
        for bad in ["", "0", "G", "513", "500GB", "1.5T", "65T", "99999999999999999999"] {
            assert_eq!(parse_disk_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_size_is_shown_as_it_is_taken_and_the_most_there_is_rounded_down() {
        for text in ["1536K", "511M", "512G", "1T", "1537"] {
            assert_eq!(show_size(parse_disk_size(text).unwrap_or(1537)), text);
        }
        assert_eq!(show_most(5_500_000_000_000), "5122G");
        assert_eq!(show_most((150 << 20) + 512), "150M");
    }

    #[test]
    fn a_disk_takes_in_as_many_requests_as_its_kind_does() {
        let depth = |text| Spec::parse(text).unwrap().depth();
        assert_eq!((depth("sata-7200"), depth("sata-7200,ncq=4"), depth("eva-raid5-12")), (32, 4, 128));
        assert_eq!((depth("ssd-2010"), depth("nvme-plp")), (32, 1023));
        assert_eq!((depth("virtio-ssd"), depth("virtio-ssd,depth=64")), (128, 64));
    }

    #[test]
    fn an_unknown_profile_or_parameter_is_answered_with_those_there_are() {
        let why = |text| Spec::parse(text).unwrap_err();
        assert!(why("sata-720").ends_with("; did you mean \"sata-7200\"?"), "{}", why("sata-720"));
        assert!(why("sata-7200,sise=1G").contains("unknown parameter \"sise\": the parameters are size, "));
        assert!(why("sata-7200,sise=1G").ends_with("; did you mean \"size\"?"));
        assert!(why("sata-7200,size=0").contains("size=0 is not possible"));
        assert!(why("sata-7200,size").contains("not of the form parameter=value"));
    }

    #[test]
    fn every_profile_builds_and_every_parameter_can_be_read_and_set_to_what_it_is() {
        for profile in profiles() {
            let mut spec = Spec::parse(profile.name).unwrap();
            assert_eq!(spec.build(1).limits().capacity, profile.size / Sector::SIZE, "{}", profile.name);
            for info in spec.settings.infos() {
                let value = spec.settings.get(info.name).unwrap();
                spec.settings.set(info.name, &value).unwrap_or_else(|error| panic!("{}: {error}", profile.name));
            }
        }
    }
}
