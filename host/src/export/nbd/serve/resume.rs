//! A connection that another server has handed over: it is held against what is served here, and goes on where it was.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

use fairlift_core::record::Record;

use super::super::handshake::{Contexts, Handshake, Session};
use super::super::service::Common;
use super::stranger::Negotiation;
use super::{Connection, Phase, Receiving, Replies, Serving};
use crate::access::{Entry, Peer};
use crate::disk::engine::Engine;
use crate::export::hold::HeldClient;
use crate::export::service::{Encryption, Exports, Service};
use crate::export::{Export, narrowed};
use crate::kernel::ktls::ByKernel;

/// Has the client be a connection of this number, at its worker; it stands still.
pub(crate) type Resume = Box<dyn FnOnce(&mut Engine, &mut Common, usize) -> Connection + Send>;

/// How far a client had come.
enum Came {
    Negotiating(Negotiation<Box<Handshake>>),
    Serving(Arc<Export>, Entry, Session),
}

impl Connection {
    /// Reads another server's report of a client; with it since when it is here. Unknown keys are reported.
    pub(crate) fn resume(held: HeldClient, service: &Service) -> Result<(SystemTime, Resume), String> {
        let HeldClient { descriptors, mut says, bytes } = held;
        let fd = HeldClient::only(descriptors)?;
        let exports = service.exports();
        let (mut peer, since) = HeldClient::take_peer(&mut says, &fd, &exports.access)?;
        // A certificate that cannot be read is no small loss: the client's rights hang on it, and whether it is revoked.
        peer.certificate = says.take("certificate")?.flatten();
        let client = peer.shown.clone();
        let resume = Self::read(fd, peer, says, bytes, &exports).map_err(|why| format!("client {client}: {why}"))?;
        Ok((since, resume))
    }

    fn read(
        fd: OwnedFd,
        peer: Peer,
        mut says: Record,
        mut input: Vec<u8>,
        exports: &Exports,
    ) -> Result<Resume, String> {
        let came = came(&mut says, &peer, exports)?;
        let (of_input, of_replies): (usize, usize) = (says.need("input")?, says.need("replies")?);
        if of_input.checked_add(of_replies) != Some(input.len()) {
            return Err(format!("{} bytes came with it, not {of_input} and {of_replies}", input.len()));
        }
        let replies = input.split_off(of_input);
        let by_kernel: Option<ByKernel> = says.take("tls")?;
        let skip = says.take("skip")?.unwrap_or(0);
        let leaves: bool = says.need("leaves")?;
        for part in says.rest() {
            tracing::warn!(client = peer.shown, part, "the previous server sent an unknown field, which is ignored");
        }
        Ok(Box::new(move |engine, common, number| {
            let mut connection = Self::new(fd, peer, number, crate::config::Tls::Off, engine.now);
            connection.out = Replies { heads: replies, ..Replies::default() };
            connection.input = input;
            connection.reading = !leaves;
            connection.stands_still = true;
            connection.by_kernel = by_kernel;
            if by_kernel.is_some() {
                connection.unsent.is_encrypted_by(Encryption::Kernel);
            }
            if skip > 0 {
                connection.receiving = Receiving::Refused { left: skip };
            }
            match came {
                Came::Negotiating(Negotiation { handshake, stranger }) => {
                    let is_counted = common.service.gate.enter(engine.now, &connection.peer);
                    connection.stranger = is_counted.then_some(stranger);
                    connection.phase = Phase::Negotiating(handshake);
                }
                Came::Serving(export, entry, session) => {
                    let stream = export.add_stream(engine);
                    common.present.join(&export, number);
                    let export = narrowed(&export, entry.right);
                    connection.stranger = None;
                    connection.phase = Phase::Serving(Serving { export, entry, session, stream });
                }
            }
            connection
        }))
    }
}

/// A client that negotiates, or is at an export, which it is let in to again (access.5).
fn came(says: &mut Record, peer: &Peer, exports: &Exports) -> Result<Came, String> {
    if let Some(negotiation) = says.take("negotiation")? {
        return Ok(Came::Negotiating(negotiation));
    }
    let (structured, extended) = (says.need("structured")?, says.need("extended")?);
    let contexts = Contexts { allocation: says.need("allocation")?, changes: says.need("changes")? };
    let name: String = says.need("export")?;
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
    Ok(Came::Serving(Arc::clone(export), entry, Session { export: index, structured, extended, contexts }))
}
