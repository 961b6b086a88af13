//! A connection that another server has handed over: it goes on where it was.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::super::handed::{Resumed, ResumedPhase};
use super::super::service::Common;
use super::{Connection, Phase, Receiving, Serving, Stranger};
use crate::access::Peer;
use crate::disk::engine::Engine;
use crate::export::hold::Halt;
use crate::export::narrowed;
use crate::export::service::{Encryption, Unsent};

impl Connection {
    /// A client that another server has handed over; it stands still.
    pub(crate) fn resume(
        (fd, peer, number): (OwnedFd, Peer, usize),
        resumed: Resumed,
        is_counted: bool,
        engine: &mut Engine,
        common: &mut Common,
        unsent: Arc<Unsent>,
    ) -> Self {
        let Resumed { phase, by_kernel, skip, leaves, input, replies, .. } = resumed;
        let mut connection = Self::new(fd, peer, number, crate::config::Tls::Off, engine.now, unsent);
        connection.out = Self::take_over(replies);
        connection.input = input;
        connection.reading = !leaves;
        connection.held = Halt::StandsStill;
        connection.by_kernel = by_kernel;
        if by_kernel.is_some() {
            connection.unsent.is_encrypted_by(Encryption::Kernel);
        }
        if skip > 0 {
            connection.receiving = Receiving::Refused { left: skip };
        }
        match phase {
            ResumedPhase::Negotiating(handshake, (bytes, failed)) => {
                let options = handshake.options;
                connection.stranger = is_counted.then_some(Stranger { bytes, options, failed });
                connection.phase = Phase::Negotiating(handshake);
            }
            ResumedPhase::Serving(export, entry, session) => {
                let stream = export.add_stream(engine);
                common.present.join(&export, number);
                let export = narrowed(&export, entry.right);
                connection.stranger = None;
                connection.phase = Phase::Serving(Serving { export, entry, session, stream });
            }
        }
        connection
    }
}
