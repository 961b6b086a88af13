//! A client until it opens an export: what it sends, and how its negotiation ends at the [gate](crate::access::Gate).

use fairlift_core::Instant;
use serde::{Deserialize, Serialize};

use super::super::service::Common;
use super::Connection;
use crate::access::{Gate, Visit, Why};

/// The marks against a client that has not opened an export yet.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Stranger {
    pub(super) bytes: u64,
    pub(super) failed: bool,
}

/// A client that negotiates, for another server.
#[derive(Serialize, Deserialize)]
pub(super) struct Negotiation<H> {
    #[serde(flatten)]
    pub(super) handshake: H,
    #[serde(flatten)]
    pub(super) stranger: Stranger,
}

impl Connection {
    /// Something about its negotiation is wrong.
    pub(crate) fn fail(&mut self) {
        self.stranger.iter_mut().for_each(|stranger| stranger.failed = true);
    }

    /// Its negotiation ends, if it has not; `opened`: since it is at an export.
    pub(crate) fn leave_gate(&mut self, gate: &Gate, now: Instant, opened: bool) {
        let Some(Stranger { failed, .. }) = self.stranger.take() else { return };
        let is_unfinished =
            self.tls.as_ref().is_some_and(|tls| tls.session.is_handshaking()) || self.tls_next.is_some();
        let visit = Visit {
            opened,
            failed: failed || is_unfinished,
            tls: self.tls.is_some() || self.by_kernel.is_some(),
            options: self.options_asked().unwrap_or_default(),
        };
        gate.leave(now, &self.peer, visit);
    }

    /// Counts what a stranger sends; whether it was too much.
    pub(super) fn is_too_much(&mut self, common: &Common, now: Instant, bytes: usize) -> bool {
        let Some(stranger) = &mut self.stranger else { return false };
        stranger.bytes += bytes as u64;
        let is = stranger.bytes > common.service.limits.handshake_bytes;
        if is {
            stranger.failed = true;
            common.service.gate.turn_away(now, &self.peer, Why::Bytes);
            self.break_off();
        }
        is
    }
}
