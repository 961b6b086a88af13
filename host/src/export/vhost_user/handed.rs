//! A front-end that another server has handed over: what that server says of it, read and held against what is served here.
//!
//! The descriptors of a front-end have names: a record's part `descriptors` says in order what each is.
//!
//! ```text
//! {"export": "alice", "features": …, "regions": [[0, 1048576, …]], "rings": [{"size": 128, "base": 7, …}], "input": 0,
//!  "descriptors": ["socket", "memory", "tables", "kick 0", "call 0"]}
//! ```

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::SystemTime;

use fairlift_core::record::Record;

use super::device::FrontEnd;
use super::service::GuestListeners;
use crate::export::Export;
use crate::export::hold::HeldClient;

/// A front-end as another server has described it, at the export as it was then.
pub(super) struct Resumed {
    pub(super) export: Arc<Export>,
    pub(super) since: SystemTime,
    pub(super) device: FrontEnd,
}

/// Descriptors by purpose.
#[derive(Default)]
pub(super) struct Named {
    names: Vec<String>,
    descriptors: Vec<OwnedFd>,
}

impl Named {
    /// One more, once again.
    ///
    /// # Errors
    /// The process has too many open.
    pub(super) fn add(&mut self, name: impl Into<String>, descriptor: BorrowedFd<'_>) -> Result<(), String> {
        self.descriptors.push(descriptor.try_clone_to_owned().map_err(|error| error.to_string())?);
        self.names.push(name.into());
        Ok(())
    }

    /// A client of them, as it is handed over.
    pub(super) fn client(self, mut says: Record, bytes: Vec<u8>) -> HeldClient {
        says.put("descriptors", &self.names);
        HeldClient { descriptors: self.descriptors, says, bytes }
    }

    fn read(says: &mut Record, descriptors: Vec<OwnedFd>) -> Result<Self, String> {
        let names: Vec<String> = says.need("descriptors").map_err(|why| why.to_string())?;
        match names.len() == descriptors.len() {
            true => Ok(Self { names, descriptors }),
            false => Err(format!("{} of {} descriptors came", descriptors.len(), names.len())),
        }
    }

    /// The first of a name.
    pub(super) fn take(&mut self, name: &str) -> Option<OwnedFd> {
        let at = self.names.iter().position(|there| there == name)?;
        self.names.remove(at);
        Some(self.descriptors.remove(at))
    }

    pub(super) fn take_all(&mut self, name: &str) -> Vec<OwnedFd> {
        std::iter::from_fn(|| self.take(name)).collect()
    }
}

/// One thing of this protocol that a server hands over.
pub(super) enum Handed {
    /// The socket at which front-ends of an export connect.
    Listener(String, OwnedFd),
    FrontEnd(Box<Resumed>),
}

impl Handed {
    /// Reads what another server hands over. Parts that are not known are told.
    ///
    /// # Errors
    /// It cannot be served here.
    pub(super) fn read(held: HeldClient, listeners: &GuestListeners) -> Result<Self, String> {
        let HeldClient { descriptors, mut says, bytes } = held;
        let name: String = says.need("export").map_err(|why| why.to_string())?;
        let fail = |why: String| format!("a virtual machine at export {name:?}: {why}");
        let mut named = Named::read(&mut says, descriptors).map_err(fail)?;
        if let Some(listener) = named.take("door") {
            return Ok(Self::Listener(name, listener));
        }
        let socket = named.take("socket").ok_or_else(|| fail("its socket did not come".into()))?;
        let resumed = FrontEnd::read((&name, socket), &mut says, &mut named, bytes, listeners)?;
        for part in says.rest().chain(named.names.iter().map(String::as_str)) {
            tracing::warn!(export = name, part, "the previous server sent an unknown field, which is ignored");
        }
        Ok(Self::FrontEnd(Box::new(resumed)))
    }
}
