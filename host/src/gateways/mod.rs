//! Gateways: several servers before one pool, whose tenants share it as if one server served them all.
//!
//! Tenant A has a disk of a Ceph pool at gateway 1, tenants B, C and D have theirs at gateway 2. Each gateway divides what it gets of the
//! cluster among its own tenants, and the cluster gives each gateway half: A has 50 %, the others 17 % each. So each gateway leaves a
//! report of what it served where the others read it (a [`Carrier`]), once a second, and works the same shares out from all of them.
//!
//! docs/cluster.md says what holds.

mod directory;
mod rados;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use directory::Directory;
use rados::Rados;
pub use rados::RadosAt;

/// Where gateways leave their reports for one another.
pub(crate) trait Carrier: Send {
    /// Replaces this gateway's report.
    fn write(&mut self, gateway: &str, report: &[u8]) -> io::Result<()>;
    /// The reports of all gateways, by name (ours too).
    fn read(&mut self) -> io::Result<Vec<(String, Vec<u8>)>>;
}

/// The key `shares` of a disk: where its gateways meet, and the name of this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shares {
    /// Where reports are left.
    pub place: Place,
    /// This gateway's name: the host's, unless the server has one of its own.
    pub gateway: String,
}

/// Where gateways leave their reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A directory that all gateways see, with a file for each.
    Directory(PathBuf),
    /// An object of a Ceph pool, with a key for each.
    Rados(RadosAt),
}

/// The longest name of a gateway. Chosen: a host name is no longer.
const NAME_MAX: usize = 64;

/// Whether a gateway can have this name: files and objects are called by it.
///
/// # Errors
/// It cannot, and why.
pub fn check_gateway(name: &str) -> Result<(), String> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match name.bytes().all(is_good) && !name.starts_with('.') && (1..=NAME_MAX).contains(&name.len()) {
        true => Ok(()),
        false => Err(format!("takes 1 to {NAME_MAX} letters, digits, \"-\", \"_\" and \".\", not {name:?}")),
    }
}

/// The host's name, as far as a gateway can have it.
fn name_of_host() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy().into_owned();
    if check_gateway(&name).is_ok() { name } else { "gateway".into() }
}

impl FromStr for Shares {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self { place: text.parse()?, gateway: name_of_host() })
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("takes dir:PATH or rados:POOL/OBJECT, not {text:?}");
        match text.split_once(':') {
            Some(("dir", path)) if !path.is_empty() => Ok(Self::Directory(path.into())),
            Some(("rados", at)) => Ok(Self::Rados(at.parse()?)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "dir:{}", path.display()),
            Self::Rados(at) => at.fmt(f),
        }
    }
}

impl Place {
    /// What carries reports there.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open(&self) -> io::Result<Box<dyn Carrier>> {
        match self {
            Self::Directory(path) => Ok(Box::new(Directory::open(path)?)),
            Self::Rados(at) => Ok(Box::new(Rados::open(at)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_as_it_was_written() {
        for text in ["dir:/srv/pool", "rados:vms/fairlift.shares"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        for text in ["", "dir:", "/srv/pool", "ceph:vms/shares"] {
            let why = text.parse::<Place>().unwrap_err();
            assert!(why.starts_with("takes dir:PATH or rados:POOL/OBJECT, not"), "{why}");
        }
    }

    #[test]
    fn a_name_that_could_leave_the_directory_is_none() {
        for name in ["gw1", "gw-2.example.org", "A_b"] {
            check_gateway(name).unwrap();
        }
        for name in ["", ".", "..", ".hidden", "a/b", "a b", &"x".repeat(65)] {
            check_gateway(name).unwrap_err();
        }
    }
}
