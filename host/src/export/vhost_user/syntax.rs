//! The settings of an export for virtual machines: a socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{Address, SocketMode, WayIn};

/// A socket at which the front-end of a virtual machine (QEMU) finds an export as a vhost-user block device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuestSocket {
    /// Where it is.
    pub path: PathBuf,
    /// The permissions of the socket.
    pub socket: SocketMode,
}

impl GuestSocket {
    /// As a rule for clients names it.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::Unix(self.path.clone())
    }
}

/// A socket with the usual mode.
impl<T: Into<PathBuf>> From<T> for GuestSocket {
    fn from(path: T) -> Self {
        Self { path: path.into(), socket: SocketMode::default() }
    }
}

impl WayIn for GuestSocket {
    fn key(&self) -> &'static str {
        "vhost_user"
    }

    fn written(&self) -> String {
        format!("{}{}", self.path.display(), self.socket)
    }

    fn makes(&self) -> &'static str {
        "a socket for virtual machines"
    }

    fn sole(&self) -> Option<String> {
        Some(format!("the socket {}", self.path.display()))
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn rooted(&self, directory: &Path) -> Option<Arc<dyn WayIn>> {
        Some(Arc::new(Self { path: directory.join(&self.path), ..self.clone() }))
    }

    fn stays(&self) -> Option<String> {
        None
    }

    fn found(&self) -> Option<String> {
        Some(format!("to virtual machines at {}", self.path.display()))
    }
}
