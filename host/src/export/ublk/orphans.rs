//! Devices of this machine, whoever serves them, and those whose server has died.

use super::control::{self, Control, block_path};
use super::proto::State;
use super::{device, names};

/// A device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Orphan {
    /// Its number.
    pub id: u32,
    /// The block device.
    pub path: String,
    /// The record of its export: the name of its link in `/dev/fairlift`.
    pub name: Option<String>,
    /// Whether a Fairlift server has made it.
    pub is_ours: bool,
    /// `dead`, `live`, `quiesced` or `fails`.
    pub state: &'static str,
    /// The process that serves it; `None`: none does.
    pub server: Option<i32>,
    /// Its size in bytes, if it may be asked.
    pub size: Option<u64>,
    /// How many queues it has, and requests of each.
    pub queues: (u16, u16),
}

/// All devices of this machine that we may see.
///
/// # Errors
/// The driver is not there, or may not be used; the text says what would help.
pub fn list() -> Result<Vec<Orphan>, String> {
    let mut control = Control::open()?;
    let names = names::all();
    let one = |id: u32| {
        let info = control.info(id).ok()?;
        Some(Orphan {
            id,
            path: block_path(id),
            name: names.get(&id).cloned(),
            is_ours: device::is_ours(info.mark),
            state: info.state().name(),
            server: Some(info.pid).filter(|pid| control::runs(*pid)),
            size: control.params(&info).ok().map(|params| params.size),
            queues: (info.queues, info.depth),
        })
    };
    Ok(control::all().into_iter().filter_map(one).collect())
}

/// Removes a device whose server has died; what waits in it fails. `force`: also one that is served, or that is mounted.
///
/// # Errors
/// The reason why it is not removed, and the remedy.
pub fn remove(id: u32, force: bool) -> Result<(), String> {
    let mut control = Control::open()?;
    let path = block_path(id);
    let info = control.info(id).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENOENT) => {
            format!("there is no ublk device {id}; there are {}", control::show(&control::all()))
        }
        _ => format!("{path}: {error}"),
    })?;
    if !force && info.state() == State::Live && control::runs(info.pid) {
        return Err(format!("{path} is served by process {}: remove its export there, or use --force", info.pid));
    }
    if !force && let Some(holder) = device::holder(id) {
        return Err(format!(
            "{path} is {holder}: let a server take it over, or use --force, which fails its waiting requests"
        ));
    }
    control.remove(&info)?;
    names::forget(id);
    Ok(())
}
