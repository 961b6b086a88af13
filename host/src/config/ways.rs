//! Ways: how clients reach an export beside the listeners of the server, where somebody said so of that export.
//!
//! A protocol whose exports say something for it (a socket, a number) has the type of that in its own folder, and the configuration
//! keeps it as a [`WayIn`]: what is asked of a way is asked of all, and its protocol alone knows which one it is.

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The settings of an export for one protocol.
pub trait WayIn: Any + fmt::Debug + Send + Sync {
    /// The key of the export under which it is said: no other way's.
    fn key(&self) -> &'static str;

    /// How it is written; two that are written alike are the same.
    fn written(&self) -> String;

    /// The way in, in words: `a block device`.
    fn makes(&self) -> &'static str;

    /// Whether it can be as it is said.
    ///
    /// # Errors
    /// The request, and the possible values.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// The address that no other export can have beside it: `/dev/ublkb3`.
    fn sole(&self) -> Option<String> {
        None
    }

    /// The file that it is at.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// The same with its file below a directory, where that is written relative to it.
    fn rooted(&self, _directory: &Path) -> Option<Arc<dyn WayIn>> {
        None
    }

    /// The users and the place of the export, if known before it is served: `to virtual machines at /run/alice`.
    fn found(&self) -> Option<String> {
        None
    }

    /// Whether a file is given to another user by it while the server runs.
    fn gives_away(&self) -> bool {
        false
    }

    /// Why another server cannot take over who uses the export by it; `None`: it can.
    fn stays(&self) -> Option<String> {
        Some(format!("it is {} (`{}`), whose users cannot be handed over yet", self.makes(), self.key()))
    }

    /// Whether the export is a block device of this machine by it.
    fn is_block_device(&self) -> bool {
        false
    }
}

/// The ways of an export, at most one of each protocol.
#[derive(Clone, Default, Debug)]
pub struct Ways(Vec<Arc<dyn WayIn>>);

impl Ways {
    /// One more, in the place of one of its key.
    pub fn set(&mut self, way: impl WayIn) {
        self.remove(way.key());
        self.0.push(Arc::new(way));
    }

    /// Without the one of a key.
    pub fn remove(&mut self, key: &str) {
        self.0.retain(|way| way.key() != key);
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &dyn WayIn> {
        self.0.iter().map(|way| &**way)
    }

    /// The one of a key.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&dyn WayIn> {
        self.iter().find(|way| way.key() == key)
    }

    /// The one of a protocol, which knows the type.
    #[must_use]
    pub fn get<T: WayIn>(&self) -> Option<&T> {
        self.iter().find_map(|way| (way as &dyn Any).downcast_ref())
    }

    /// Files that are written relative to a directory are below it from now on.
    pub fn root(&mut self, directory: &Path) {
        for way in &mut self.0 {
            way.rooted(directory).into_iter().for_each(|rooted| *way = rooted);
        }
    }

    /// Those that either has and the other has not, or not alike.
    pub fn differing<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a dyn WayIn> {
        let is_in =
            |ways: &Self, one: &dyn WayIn| ways.find(one.key()).is_some_and(|way| way.written() == one.written());
        let gone = self.iter().filter(|way| other.find(way.key()).is_none());
        gone.chain(other.iter().filter(move |way| !is_in(self, *way)))
    }
}
