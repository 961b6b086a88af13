//! Reports in a Ceph pool: values of one object's omap, each under its gateway's name.
//!
//! Example: `shares = "rados:vms/fairlift.shares"` on gateways gw1 and gw2 makes an object `fairlift.shares` in the pool `vms` with the keys `gw1` and
//! `gw2`. An operation a second writes one of them, and another one reads both, however many objects the pool has.
//!
//! rados.1  A report is written by one operation and read whole (omap.1): there is no lock, and no reader sees a part.
//! rados.2  The place is written to, with no report yet, when it is opened: a pool that is not there, that this user may not write to or that has
//!          no omap (an erasure-coded one) is refused then.
//! rados.3  Each operation has a time limit of its own (`timeout`, 3 s unless said otherwise), which is shorter than that of a request: a cluster that
//!          hangs holds up neither the exchange for long nor the connection of the images.
//! rados.4  A key that no gateway can have for its name is not looked at.

use std::ffi::CString;
use std::io;

use fairlift_core::Errno;

use super::Carrier;
use crate::ceph::{Pool, says, text};
use crate::config::{RadosAt, check_gateway};

pub(super) struct Rados {
    at: RadosAt,
    pool: Pool,
    object: CString,
}

impl Rados {
    /// rados.2
    ///
    /// # Errors
    /// The cluster cannot be reached, has no such pool, or refuses to write there.
    pub(super) fn open(at: &RadosAt) -> io::Result<Self> {
        let object = text(&at.object).map_err(io::Error::other)?;
        let pool = Pool::open(&at.login, &at.pool, None).map_err(io::Error::other)?;
        let there = Self { at: at.clone(), pool, object };
        there.pool.set(&there.object, &[]).map_err(|errno| there.why(errno))?;
        Ok(there)
    }

    fn why(&self, errno: Errno) -> io::Error {
        let RadosAt { pool, login, .. } = &self.at;
        let why = match errno.0 {
            libc::ETIMEDOUT => format!("the cluster did not answer within {}", login.timeout),
            libc::EPERM | libc::EACCES => {
                let user = login.user.as_deref().unwrap_or("admin");
                format!("client.{user} may not read and write objects of the pool \"{pool}\"")
            }
            libc::EOPNOTSUPP => {
                format!("the pool \"{pool}\" is erasure-coded, which has no omap: name a replicated one")
            }
            _ => says(errno),
        };
        io::Error::new(io::Error::from_raw_os_error(errno.0).kind(), why)
    }
}

impl Carrier for Rados {
    /// rados.1
    fn write(&mut self, gateway: &str, report: &[u8]) -> io::Result<()> {
        self.pool.set(&self.object, &[(gateway, report)]).map_err(|errno| self.why(errno))
    }

    /// rados.4
    fn read(&mut self) -> io::Result<Vec<(String, Vec<u8>)>> {
        let mut all = self.pool.values(&self.object).map_err(|errno| self.why(errno))?;
        all.retain(|(gateway, _)| check_gateway(gateway).is_ok());
        Ok(all)
    }
}
