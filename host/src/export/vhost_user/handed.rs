//! The descriptors of a front-end that goes from one server to another.
//!
//! They have names: a record's part `descriptors` says in order what each is.
//!
//! ```text
//! {"export": "alice", "features": …, "regions": [[0, 1048576, …]], "rings": [{"size": 128, "base": 7, …}], "input": 0,
//!  "descriptors": ["socket", "memory", "tables", "kick 0", "call 0"]}
//! ```

use std::os::fd::{BorrowedFd, OwnedFd};

use fairlift_core::record::Record;

use crate::export::hold::HeldClient;

/// Descriptors by purpose.
#[derive(Default)]
pub(super) struct Named {
    pub(super) names: Vec<String>,
    descriptors: Vec<OwnedFd>,
}

impl Named {
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

    pub(super) fn read(says: &mut Record, descriptors: Vec<OwnedFd>) -> Result<Self, String> {
        let names: Vec<String> = says.need("descriptors")?;
        match names.len() == descriptors.len() {
            true => Ok(Self { names, descriptors }),
            false => Err(format!("{} of {} descriptors came", descriptors.len(), names.len())),
        }
    }

    pub(super) fn take(&mut self, name: &str) -> Option<OwnedFd> {
        let at = self.names.iter().position(|there| there == name)?;
        self.names.remove(at);
        Some(self.descriptors.remove(at))
    }

    pub(super) fn take_all(&mut self, name: &str) -> Vec<OwnedFd> {
        std::iter::from_fn(|| self.take(name)).collect()
    }
}
