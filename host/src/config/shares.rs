//! Shares: where the gateways of a pool meet, as people write it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use fairlift_core::Duration;
use fairlift_core::time::secs;

use crate::ceph::Login;
use crate::device::Options;

/// The key `shares` of a disk: where its gateways meet, and the name of this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shares {
    /// Where reports are left.
    pub place: SharesAt,
    /// This gateway's name: the host's, unless the server has one of its own.
    pub gateway: String,
}

/// Where gateways leave their reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SharesAt {
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

impl FromStr for SharesAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("dir", path)) if !path.is_empty() => Ok(Self::Directory(path.into())),
            Some(("rados", at)) => Ok(Self::Rados(at.parse()?)),
            _ => Err(format!("takes dir:PATH or rados:POOL/OBJECT, not {text:?}")),
        }
    }
}

impl fmt::Display for SharesAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "dir:{}", path.display()),
            Self::Rados(at) => at.fmt(f),
        }
    }
}

/// As long as three periods, after which a gateway that told nothing is taken for gone.
const TIMEOUT: Duration = secs(3);

/// An object of a Ceph pool, as people write it: `rados:POOL/OBJECT[,user=USER][,conf=PATH][,timeout=TIME]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RadosAt {
    pub(crate) pool: String,
    pub(crate) object: String,
    pub(crate) login: Login,
}

impl FromStr for RadosAt {
    type Err = String;

    /// Of what is behind `rados:`.
    fn from_str(text: &str) -> Result<Self, String> {
        let options = Options::new("rados", &["user", "conf", "timeout"], text)?;
        let login = Login::new(options.text("user")?, options.text("conf")?, options.get("timeout"), TIMEOUT);
        match options.main.split_once('/') {
            Some((pool, object)) if !pool.is_empty() && !object.is_empty() => Ok(Self {
                pool: pool.into(),
                object: object.into(),
                login: login.map_err(|why| format!("rados: {why}"))?,
            }),
            _ => Err(format!("rados: \"{}\" names no pool and object: rados:POOL/OBJECT", options.main)),
        }
    }
}

impl fmt::Display for RadosAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rados:{}/{}{}", self.pool, self.object, self.login.written(TIMEOUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_as_it_was_written() {
        for text in ["dir:/srv/pool", "rados:vms/fairlift.shares"] {
            assert_eq!(text.parse::<SharesAt>().unwrap().to_string(), text);
        }
        for text in ["", "dir:", "/srv/pool", "ceph:vms/shares"] {
            let why = text.parse::<SharesAt>().unwrap_err();
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

    #[test]
    fn a_place_is_shown_as_it_was_written_and_bad_ones_are_refused_with_what_is_possible() {
        for text in ["vms/fairlift.shares", "vms/a/b,user=gateway,conf=/etc/c.conf,timeout=1500us"] {
            assert_eq!(text.parse::<RadosAt>().unwrap().to_string(), format!("rados:{text}"));
        }
        for (text, why) in [
            ("", "names no pool and object: rados:POOL/OBJECT"),
            ("vms", "names no pool and object"),
            ("/shares", "names no pool and object"),
            ("vms/", "names no pool and object"),
            ("vms/shares,usr=x", "did you mean \"user\"?"),
            ("vms/shares,timeout=5", "rados: timeout: a time needs a unit"),
        ] {
            let says = text.parse::<RadosAt>().expect_err(text);
            assert!(says.contains(why), "{text}: {says}");
        }
    }
}
