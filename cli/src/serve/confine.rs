//! The confinement of the server once it has started: `--seccomp`, `--keep-capability`.

use fairlift::config::{Config, WayIn};
use fairlift::confine::{self, Capability};

use super::args::ServeArgs;
use crate::config::Server;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Confinement {
    pub(crate) seccomp: bool,
    pub(crate) keep: Vec<Capability>,
}

impl Confinement {
    /// The flag wins (serve.1).
    pub(super) fn new(flags: &ServeArgs, server: &Server) -> Self {
        let keep = [&flags.keep_capability, &server.keep_capabilities].into_iter().find(|keep| !keep.is_empty());
        Self { seccomp: flags.seccomp.or(server.seccomp).unwrap_or(true), keep: keep.cloned().unwrap_or_default() }
    }

    /// The keys in which another one differs.
    pub(super) fn differs(&self, other: &Self) -> impl Iterator<Item = &'static str> {
        let keys = [("seccomp", self.seccomp == other.seccomp), ("keep_capabilities", self.keep == other.keep)];
        keys.into_iter().filter(|(_, same)| !same).map(|(key, _)| key)
    }

    /// From now on. Backings are open, and clients can connect; no other thread has been started.
    pub(super) fn begin(&self, config: &Config) -> Result<(), String> {
        let mut keep = self.keep.clone();
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
        if !self.seccomp {
            tracing::warn!("seccomp is off: the server may make any system call");
        } else if let Err(why) = confine::filter_system_calls(block_devices) {
            // In a container that forbids it the container's filter is in force.
            tracing::warn!("the seccomp filter could not be installed: {why}; the server runs without it");
        } else {
            tracing::debug!("the seccomp filter is active: only the system calls that a server needs are left");
        }
        Ok(())
    }
}
