//! A door: a place where the control server listens, and the client that came by it.

use std::sync::{Arc, PoisonError, RwLock};

use fairlift::access::Peer;

use super::place::Locks;

/// What holds for all clients of a place.
pub(crate) struct Endpoint {
    pub(crate) is_unix: bool,
    pub(crate) read_only: bool,
    /// Of TCP without certificates: the addresses by which clients may name it. With certificates the server's own says who it is.
    pub(crate) hosts: Option<Vec<String>>,
    pub(super) locks: RwLock<Locks>,
}

impl Endpoint {
    /// Those that hold now.
    pub(crate) fn locks(&self) -> Locks {
        self.locks.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Others hold from now on, for clients that come and for what those ask that are there.
    pub(crate) fn set_locks(&self, now: Locks) {
        *self.locks.write().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

/// The client that asks.
#[derive(Clone)]
pub(crate) struct Who {
    pub(crate) place: Arc<Endpoint>,
    /// For the log: `uid 1000 (pid 4711)`, `127.0.0.1:51234`.
    pub(crate) name: String,
    /// What is known of it; its token comes with each request.
    pub(crate) peer: Peer,
}
