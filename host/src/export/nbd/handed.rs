//! A connection that another server has handed over, as that server says: read, and held against what is served here.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

use fairlift_core::record::{Record, Unreadable};

use super::handshake::{Contexts, Handshake, Session};
use crate::access::{Entry, Peer};
use crate::export::Export;
use crate::export::hold::HeldClient;
use crate::export::service::{Exports, Service};
use crate::kernel::ktls::ByKernel;

pub(crate) struct Resumed {
    pub(crate) since: SystemTime,
    pub(super) phase: ResumedPhase,
    /// The kernel has the keys of its TLS.
    pub(super) by_kernel: Option<ByKernel>,
    /// The rest of the payload of a refused write.
    pub(super) skip: u64,
    /// Nothing more is read from it.
    pub(super) leaves: bool,
    /// The bytes that it has sent and nobody has looked at.
    pub(super) input: Vec<u8>,
    /// The replies that it has not taken.
    pub(super) replies: Vec<u8>,
}

/// How far a client had come.
pub(super) enum ResumedPhase {
    /// With it what it has sent so far, in bytes, and whether anything about it was wrong.
    Negotiating(Box<Handshake>, (u64, bool)),
    Serving(Arc<Export>, Entry, Session),
}

impl Resumed {
    /// Reads another server's report of a client; its socket, and its identity. Unknown keys are reported.
    ///
    /// # Errors
    /// It cannot be served here.
    pub(crate) fn read(held: HeldClient, service: &Service) -> Result<(OwnedFd, Peer, Self), String> {
        let HeldClient { descriptors, mut says, bytes } = held;
        let socket = HeldClient::only(descriptors)?;
        let exports = service.exports();
        let peer = HeldClient::take_peer(&mut says, &socket, &exports.access);
        let (mut peer, since) = peer.map_err(|why| why.to_string())?;
        // A certificate that cannot be read is no small loss: the client's rights hang on it, and whether it is revoked.
        peer.certificate = says.take("certificate").map_err(|why| why.to_string())?.flatten();
        match Self::of(&mut says, since, bytes, &peer, &exports) {
            Ok(resumed) => {
                for part in says.rest() {
                    tracing::warn!(
                        client = peer.shown,
                        part,
                        "the previous server sent an unknown field, which is ignored"
                    );
                }
                Ok((socket, peer, resumed))
            }
            Err(why) => Err(format!("client {}: {why}", peer.shown)),
        }
    }

    fn of(
        says: &mut Record,
        since: SystemTime,
        mut bytes: Vec<u8>,
        peer: &Peer,
        exports: &Exports,
    ) -> Result<Self, String> {
        let unreadable = |why: Unreadable| why.to_string();
        let phase = match says.take("negotiation").map_err(unreadable)? {
            Some(negotiation) => negotiating(negotiation).map_err(unreadable)?,
            None => serving(says, peer, exports)?,
        };
        let (input, replies): (usize, usize) =
            (says.need("input").map_err(unreadable)?, says.need("replies").map_err(unreadable)?);
        if input.checked_add(replies) != Some(bytes.len()) {
            return Err(format!("{} bytes came with it, not {input} and {replies}", bytes.len()));
        }
        let replies = bytes.split_off(input);
        let by_kernel = says.take("tls").map_err(unreadable)?;
        let skip = says.take("skip").map_err(unreadable)?.unwrap_or(0);
        Ok(Self {
            since,
            phase,
            by_kernel,
            skip,
            leaves: says.need("leaves").map_err(unreadable)?,
            input: bytes,
            replies,
        })
    }

    /// Whether it negotiates, and counts at the gate as such.
    pub(crate) fn negotiates(&self) -> bool {
        matches!(self.phase, ResumedPhase::Negotiating(..))
    }

    pub(crate) fn export(&self) -> Option<&Arc<Export>> {
        match &self.phase {
            ResumedPhase::Negotiating(..) => None,
            ResumedPhase::Serving(export, ..) => Some(export),
        }
    }
}

fn negotiating(mut says: Record) -> Result<ResumedPhase, Unreadable> {
    let handshake = Box::new(Handshake::resume(&mut says)?);
    Ok(ResumedPhase::Negotiating(handshake, (says.need("bytes")?, says.need("failed")?)))
}

/// A client at an export, which it is let in to again (access.5).
fn serving(says: &mut Record, peer: &Peer, exports: &Exports) -> Result<ResumedPhase, String> {
    let mut flag = |part: &str| says.need::<bool>(part).map_err(|why| why.to_string());
    let (structured, extended) = (flag("structured")?, flag("extended")?);
    let contexts = Contexts { allocation: flag("allocation")?, changes: flag("changes")? };
    let name: String = says.need("export").map_err(|why| why.to_string())?;
    let index = exports.list.iter().position(|export| export.name == name);
    let index = index.ok_or_else(|| format!("it is at export {name:?}, which would not be served"))?;
    let export = &exports.list[index];
    let entry = exports.access.of(peer).enter(&export.name, &export.path);
    let entry = entry.ok_or_else(|| {
        let why = if exports.access.has_revoked(peer) {
            "its certificate is revoked by now; fairlift reload, then upgrade"
        } else {
            "see [client]"
        };
        format!("it is at export {name:?}, which it could not open again: {why}")
    })?;
    Ok(ResumedPhase::Serving(Arc::clone(export), entry, Session { export: index, structured, extended, contexts }))
}
