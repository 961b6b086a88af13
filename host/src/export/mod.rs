//! What clients connect to, one folder for each protocol.

pub(crate) mod clients;
pub(crate) mod front;
pub(crate) mod listen;
pub mod nbd;
pub(crate) mod program;
pub mod vhost_user;

use std::sync::{Arc, Mutex};

use fairlift_core::stats::Stats;
use fairlift_core::{GroupId, Priority, Sector};

use crate::device::{Device, Facts};

/// What a client connects to.
pub(crate) struct Export {
    pub(crate) name: String,
    pub(crate) description: String,
    /// The index of its disk.
    pub(crate) disk: usize,
    pub(crate) device: Arc<dyn Device>,
    /// Where on the disk it starts.
    pub(crate) start: Sector,
    /// Where on the device it starts, in bytes.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) read_only: bool,
    pub(crate) group: GroupId,
    pub(crate) priority: Priority,
    pub(crate) facts: Facts,
    /// What connections that are gone have done.
    pub(crate) stats: Mutex<Stats>,
}
