//! The confinement of the server once it has started: `--seccomp`, `--keep-capability`.

use fairlift::config::{Config, WayIn};
use fairlift::confine::{self, Capability};

use crate::config::Server;

/// Whether the filter of system calls is wanted.
pub(super) fn is_filtered(server: &Server) -> bool {
    server.seccomp != Some(false)
}

/// From now on. Backings are open, and clients can connect; no other thread has been started.
pub(super) fn begin(server: &Server, config: &Config) -> Result<(), String> {
    let mut keep = server.keep_capabilities.clone();
    // Its devices are made, grow and go while it runs.
    let has_block_devices = config.has_block_devices();
    if has_block_devices && Capability::SYS_ADMIN.is_there() {
        keep.push(Capability::SYS_ADMIN);
    }
    let gives_away = config.exports.iter().any(|export| export.ways.iter().any(WayIn::gives_away));
    keep.extend(Capability::OF_GIVING.into_iter().filter(|one| gives_away && one.is_there()));
    let block_devices = has_block_devices || keep.contains(&Capability::SYS_ADMIN);
    let kept = confine::give_up_capabilities(&keep).map_err(|why| why.to_string())?;
    match kept.iter().map(|one| format!(" {one}")).collect::<String>() {
        none if none.is_empty() => tracing::debug!("dropped all capabilities (keep_capabilities)"),
        kept => tracing::debug!("dropped all capabilities but{kept} (keep_capabilities)"),
    }
    if !is_filtered(server) {
        tracing::warn!("seccomp is off: the server may make any system call");
    } else if let Err(why) = confine::filter_system_calls(block_devices) {
        // In a container that forbids it the container's filter is in force.
        tracing::warn!("the seccomp filter could not be installed: {why}; the server runs without it");
    } else {
        tracing::debug!("the seccomp filter is active: only the system calls that a server needs are left");
    }
    Ok(())
}
