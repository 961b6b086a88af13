//! A connection stands still, so that another server can go on with it ([`hold`](crate::export::hold)), and says what it is then.

use fairlift_core::record::Record;

use super::super::proto::{self, Command as Verb};
use super::super::service::{Common, UserData};
use super::stranger::Negotiation;
use super::{Connection, Phase, Receiving, Serving};
use crate::disk::engine::Engine;
use crate::export::hold::HeldClient;

impl Connection {
    /// Takes nothing from the client any more (hold.1). `by_kernel`: the kernel would take the keys of a connection with TLS (hold.4).
    pub(crate) fn hold(&mut self, engine: &mut Engine, by_kernel: bool) {
        self.hold_keys(engine, by_kernel);
        if self.receive_armed {
            engine.ring.cancel(UserData::Receive(self.number).pack());
        }
    }

    /// Goes on with the client, which may have waited for long: that is not held against it.
    pub(crate) fn serve_on(&mut self, engine: &mut Engine, common: &mut Common) {
        self.stands_still = false;
        (self.progress, self.received) = (engine.now, engine.now);
        self.go_on(engine, common);
    }

    /// Whether nothing of it is under way (hold.2). Replies that the client does not take are taken back from the kernel.
    pub(crate) fn comes_to_stand(&mut self, engine: &mut Engine, common: &mut Common) -> bool {
        let announced = usize::from(matches!(self.receiving, Receiving::Payload { .. }));
        let submitted = self.commands as usize - self.payloads() - announced;
        if submitted > 0 || self.receive_armed || self.broken {
            return false;
        }
        // hold.4
        if self.has_keys() && !(self.sending.is_empty() && self.out.is_empty()) {
            return false;
        }
        if !self.stands_still {
            if !self.give_keys(engine, common) {
                return false;
            }
            self.stands_still = true;
            if self.is_sending() {
                engine.ring.cancel(UserData::Send(self.number).pack());
            }
        }
        !self.is_sending()
    }

    /// Its state while it stands still: a copy (hold.2). `None`: it is closed with this server (hold.4).
    pub(crate) fn held(&self, engine: &Engine, common: &Common) -> Result<Option<HeldClient>, String> {
        let fail = |why: String| Err(format!("client {}: {why}", self.peer.shown));
        if self.has_keys() {
            return Ok(None);
        }
        let mut says = Record::default();
        let since = common.service.clients().get(&(engine.context.0, self.number)).map(|client| client.since);
        HeldClient::put_peer(&mut says, &self.peer, since);
        if let Some(by_kernel) = &self.by_kernel {
            says.put("tls", by_kernel);
            says.put("certificate", &self.peer.certificate);
        }
        match &self.phase {
            Phase::Negotiating(handshake) => {
                if handshake.begins_tls() {
                    return fail("it is about to be encrypted".into());
                }
                let stranger = self.stranger.unwrap_or_default();
                says.put("negotiation", &Negotiation { handshake, stranger });
            }
            Phase::Serving(Serving { export, session, .. }) => {
                says.put("export", &export.name);
                says.put("structured", &session.structured);
                says.put("extended", &session.extended);
                says.put("allocation", &session.contexts.allocation);
                says.put("changes", &session.contexts.changes);
            }
        }
        let mut bytes = match self.receiving {
            Receiving::Header => Vec::new(),
            Receiving::Payload { command, got } => self.taken_back(engine, common, command, got),
            Receiving::Refused { left } => {
                says.put("skip", &left);
                Vec::new()
            }
        };
        bytes.extend_from_slice(&self.input);
        says.put("input", &bytes.len());
        let replies = self.unsent(engine);
        says.put("replies", &replies.len());
        bytes.extend_from_slice(&replies);
        says.put("leaves", &!self.reading);
        match self.fd.try_clone() {
            Ok(socket) => Ok(Some(HeldClient { descriptors: vec![socket], says, bytes })),
            Err(error) => fail(error.to_string()),
        }
    }

    /// A write whose payload has come in part, as the client has sent it.
    fn taken_back(&self, engine: &Engine, common: &Common, number: usize, got: usize) -> Vec<u8> {
        let header = &common.commands[number].header;
        debug_assert_eq!(header.command, Verb::Write, "only a write has a payload");
        let mut bytes = Vec::with_capacity(proto::EXTENDED_REQUEST_LEN + got);
        proto::encode_request(&mut bytes, self.session().extended, header);
        bytes.extend_from_slice(&engine.memory(number).bytes()[..got]);
        bytes
    }
}
