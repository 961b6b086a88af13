//! A device that another server hands over (blockdev.7).

use super::super::control::{self, block_path};
use super::super::proto::{self, Info, State};
use super::{BlockDevice, Maker};

impl Maker<'_> {
    /// The device of an export as another server has it, which is to hand it over.
    pub(super) fn of_another(&mut self, is_it: impl Fn(&Info) -> bool) -> Result<BlockDevice, String> {
        let infos: Vec<_> =
            control::all().into_iter().filter_map(|id| self.control.info(id).ok()).filter(is_it).collect();
        let info = infos.iter().find(|info| info.state() == State::Live).ok_or_else(|| match infos.first() {
            Some(info) => format!(
                "the running server cannot hand {} over while the kernel has it as {}: try again, or see the server's log",
                block_path(info.id),
                info.state().name()
            ),
            None => "the running server does not have it as a block device that could be handed over".to_owned(),
        })?;
        let mut device = self.found(info)?;
        device.is_handed = true;
        Ok(device)
    }
}

impl BlockDevice {
    /// Why another server could not take it over now.
    pub(in super::super) fn stays(&self) -> Option<String> {
        let (name, path) = (&self.name, self.path());
        match self.is_there() {
            Ok(true) if self.info.flags & proto::USER_RECOVERY_REISSUE == 0 => Some(format!(
                "export {name:?}: {path} does not outlive its server (recover=false, unprivileged, or in this server's memory)"
            )),
            Ok(false) => Some(format!("export {name:?}: {path} is being started; try again in a moment")),
            Ok(true) | Err(_) => None,
        }
    }
}
