//! What an export says to be found by virtual machines: a socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::WayIn;

/// A socket at which the front-end of a virtual machine (QEMU) finds an export as a vhost-user block device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuestSocket(pub PathBuf);

impl WayIn for GuestSocket {
    fn key(&self) -> &'static str {
        "vhost_user"
    }

    fn written(&self) -> String {
        self.0.display().to_string()
    }

    fn makes(&self) -> &'static str {
        "a socket for virtual machines"
    }

    fn sole(&self) -> Option<String> {
        Some(format!("the socket {}", self.0.display()))
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.0)
    }

    fn rooted(&self, directory: &Path) -> Option<Arc<dyn WayIn>> {
        Some(Arc::new(Self(directory.join(&self.0))))
    }

    fn found(&self) -> Option<String> {
        Some(format!("to virtual machines at {}", self.0.display()))
    }
}
