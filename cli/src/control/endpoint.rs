//! An endpoint: an address where the control server listens, and the clients that came by it.

use std::sync::{Arc, PoisonError, RwLock};

use fairlift::Handle;
use fairlift::access::{Grant, Peer, Token};

use super::place::Locks;

/// The common state of all clients of a place.
pub(crate) struct Endpoint {
    pub(crate) is_unix: bool,
    pub(crate) read_only: bool,
    /// Of TCP without certificates: the addresses by which clients may name it. With certificates the server's own says who it is.
    pub(crate) hosts: Option<Vec<String>>,
    pub(super) locks: RwLock<Locks>,
}

impl Endpoint {
    pub(crate) fn locks(&self) -> Locks {
        self.locks.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Others hold from now on, for new clients and for new requests of present ones.
    pub(crate) fn set_locks(&self, now: Locks) {
        *self.locks.write().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) place: Arc<Endpoint>,
    /// For the log: `uid 1000 (pid 4711)`, `127.0.0.1:51234`.
    pub(crate) name: String,
    /// The identity of the client; its token comes with each request.
    pub(crate) peer: Peer,
}

impl Caller {
    /// Whether the certificate that it came with is one that the place's lists revoke by now.
    pub(crate) fn is_revoked(&self) -> bool {
        let locks = self.place.locks();
        self.peer.certificate.as_ref().zip(locks.tls).is_some_and(|(shown, tls)| tls.revoked.has(shown))
    }

    pub(crate) fn role(&self, handle: &Handle) -> Grant {
        if self.is_revoked() { Grant::None } else { handle.role(&self.peer) }
    }

    /// Whether it has sent a token, if the place wants one: that of the place, or one by which a client is known.
    pub(crate) fn has_token(&self, handle: &Handle) -> bool {
        let is_it = |wanted: String| self.peer.token.is_some_and(|its| its == Token::new(&wanted) || handle.knows(its));
        self.place.locks().token.is_none_or(is_it)
    }

    /// Whether a stream that began in a role goes on (roles.1).
    pub(crate) fn still_is(&self, role: &Grant, handle: &Handle) -> bool {
        self.role(handle) == *role && self.has_token(handle)
    }
}
