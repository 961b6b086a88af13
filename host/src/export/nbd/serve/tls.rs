//! TLS of a connection: by rustls, until the kernel has its keys so that another server can go on with it.
//!
//! keys.1  Keys go to the kernel at the end of a record in both directions: all that was encrypted is sent, and no part of a record was received. A
//!         record that has come in part is received to its end, and nothing beyond it. Its client has a moment for that ([`RECORD`]): all others
//!         stand still meanwhile.
//! keys.2  The kernel has them for good. If another server does not take over after all, this one goes on by the kernel as that one would have.
//! keys.3  The kernel's records are counted (ktls.3), and the connection ends before a key has encrypted too many. It ends when the client
//!         wants other keys, too. The client connects again.
//! keys.4  A connection that is over is ended in order, unless it was broken off: its client knows then that no request of it will be done any
//!         more, and may ask again.

use std::io::{Read as _, Write as _};

use fairlift_core::{Duration, Instant, time};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::super::service::Common;
use super::Connection;
use crate::access::Certificate;
use crate::disk::engine::Engine;
use crate::export::service::Encryption;
use crate::kernel::ktls::{self, ByKernel, Notice};

/// How long the end of a record that has come in part is waited for (keys.1). Chosen: a lost packet is sent again after 200 ms, and all other
/// clients wait as long.
const RECORD: Duration = time::ms(250);

pub(super) struct Tls {
    pub(super) session: rustls::ServerConnection,
    records: Records,
    /// Until when the end of a record is waited for; `None`: the keys stay here.
    leaves_until: Option<Instant>,
    /// The client has said goodbye: what it sent before is still to be used.
    is_over: bool,
}

/// Where records end in the bytes that come.
#[derive(Clone, Copy, Default, Debug)]
struct Records {
    /// The header of the record, as far as it has come.
    header: [u8; Self::HEADER],
    got: usize,
    /// The bytes of its content that are to come.
    left: usize,
}

impl Records {
    /// Kind, version, and the length of the rest (RFC 8446, 5.1).
    const HEADER: usize = 5;

    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.got < Self::HEADER {
                let part = bytes.len().min(Self::HEADER - self.got);
                self.header[self.got..self.got + part].copy_from_slice(&bytes[..part]);
                self.got += part;
                bytes = &bytes[part..];
                if self.got == Self::HEADER {
                    self.left = u16::from_be_bytes([self.header[3], self.header[4]]).into();
                }
            }
            let part = bytes.len().min(self.left);
            self.left -= part;
            bytes = &bytes[part..];
            if self.got == Self::HEADER && self.left == 0 {
                self.got = 0;
            }
        }
    }

    /// How many bytes end the record, as far as is known: those of its header first. 0: none has begun.
    const fn missing(&self) -> usize {
        match self.got {
            0 => 0,
            Self::HEADER => self.left,
            got => Self::HEADER - got,
        }
    }
}

impl Tls {
    pub(super) fn new(mut session: rustls::ServerConnection) -> Self {
        session.set_buffer_limit(None); // what is put in is taken out at once: see `encrypt`
        Self { session, records: Records::default(), leaves_until: None, is_over: false }
    }

    pub(super) fn certificate(&self) -> Option<Certificate> {
        self.session.peer_certificates().and_then(Certificate::new)
    }

    /// Decrypts what came; with it whether the client has said goodbye.
    fn decrypt(&mut self, mut bytes: &[u8]) -> Result<(Vec<u8>, bool), rustls::Error> {
        self.records.pass(bytes);
        let (tls, mut plain) = (&mut self.session, Vec::new());
        while !bytes.is_empty() {
            if tls.read_tls(&mut bytes).unwrap_or(0) == 0 {
                break;
            }
            let state = tls.process_new_packets()?;
            let before = plain.len();
            plain.resize(before + state.plaintext_bytes_to_read(), 0);
            let read = tls.reader().read(&mut plain[before..]).unwrap_or(0);
            plain.truncate(before + read);
            if state.peer_has_closed() {
                return Ok((plain, true));
            }
        }
        Ok((plain, false))
    }
}

impl Connection {
    /// Whether the keys of the connection are this process's, or will be.
    pub(crate) fn has_keys(&self) -> bool {
        self.tls.is_some() || self.tls_next.is_some()
    }

    pub(super) fn take(&mut self, engine: &mut Engine, common: &mut Common, bytes: &[u8]) {
        let Some(tls) = &mut self.tls else {
            return self.take_plain(engine, common, bytes);
        };
        match tls.decrypt(bytes) {
            Ok((plain, over)) => {
                self.take_plain(engine, common, &plain);
                self.tls.iter_mut().for_each(|tls| tls.is_over |= over);
                self.heed_goodbye(engine);
            }
            Err(error) => {
                tracing::debug!(connection = self.number, %error, "TLS failed");
                self.fail();
                self.reading = false; // an alert may still go out
            }
        }
    }

    /// Reads no more from a client that has said goodbye, once all that it sent before is used.
    pub(super) fn heed_goodbye(&mut self, engine: &Engine) {
        let is_over = self.tls.as_ref().is_some_and(|tls| tls.is_over);
        self.reading &= !is_over || self.held_back.is_some() || engine.holds;
    }

    /// With TLS: turns the replies that wait into one encrypted head. The payloads are held until it is sent, so that it counts
    /// (client.3).
    pub(super) fn encrypt(&mut self, engine: &mut Engine) {
        let Some(Tls { session: tls, .. }) = self.tls.as_deref_mut() else { return };
        let replies = std::mem::take(&mut self.out);
        let mut writer = tls.writer();
        // Writing to memory does not fail; the buffer has no limit, and is emptied right below.
        replies.pieces(engine).for_each(|piece| writer.write_all(piece).expect("the TLS buffer has no limit"));
        (self.out.payloads, self.out.ended) = (replies.payloads, replies.ended);
        while tls.wants_write() {
            tls.write_tls(&mut self.out.heads).expect("writing to memory does not fail");
        }
    }

    // ---- to the kernel ----

    /// The connection is held. `by_kernel`: the kernel would take its keys.
    pub(super) fn hold_keys(&mut self, engine: &Engine, by_kernel: bool) {
        let over_tcp = self.peer.address.is_some();
        if let Some(tls) = &mut self.tls {
            tls.leaves_until = (by_kernel && over_tcp).then(|| engine.now + RECORD);
        }
    }

    /// Gives the keys to the kernel, if they are to go and can (keys.1); false: not yet, something is awaited.
    pub(super) fn give_keys(&mut self, engine: &mut Engine, common: &mut Common) -> bool {
        let Some(tls) = &mut self.tls else { return true };
        let Some(until) = tls.leaves_until else { return true };
        if tls.session.is_handshaking() || tls.is_over || !self.reading {
            return true; // closed with the process
        }
        // The answer to a key of the client's may wait for the next data.
        let _ = tls.session.writer().write(&[]);
        if tls.session.wants_write() {
            self.arm_send(engine);
            return false;
        }
        if tls.records.missing() > 0 {
            if engine.now < until {
                self.receive_rest(engine, common);
                return false;
            }
            tls.leaves_until = None;
            let client = &self.peer.shown;
            tracing::info!(client, "keeps its keys in the server: only a part of a record has arrived");
            return true;
        }
        if let Err(error) = ktls::attach(&self.fd) {
            tls.leaves_until = None;
            tracing::info!(client = self.peer.shown, %error, "keeps its keys in the server: the kernel does not take them");
            return true;
        }
        self.move_keys()
    }

    /// From here on the kernel has the keys, or the connection ends.
    fn move_keys(&mut self) -> bool {
        let Some(tls) = self.tls.take() else { return true };
        if self.peer.certificate.is_none() {
            self.peer.certificate = tls.certificate();
        }
        let agreed = (tls.session.protocol_version(), tls.session.negotiated_cipher_suite());
        let moved = match (agreed, tls.session.dangerous_extract_secrets()) {
            ((Some(version), Some(suite)), Ok(secrets)) => ktls::begin(&self.fd, version, &secrets)
                .map(|()| ByKernel::after(suite, secrets.tx.0))
                .map_err(|error| error.to_string()),
            (_, Err(error)) => Err(error.to_string()),
            _ => Err("nothing is agreed".into()),
        };
        match moved {
            Ok(by_kernel) => {
                self.by_kernel = Some(by_kernel);
                self.unsent.is_encrypted_by(Encryption::Kernel);
                true
            }
            Err(why) => {
                tracing::warn!(client = self.peer.shown, why, "closed: the kernel does not take its keys");
                self.break_off();
                false
            }
        }
    }

    /// Takes the rest of a record as far as it has come, and not a byte more.
    fn receive_rest(&mut self, engine: &mut Engine, common: &mut Common) {
        while let Some(missing @ 1..) = self.tls.as_ref().map(|tls| tls.records.missing()) {
            let mut rest = vec![0; missing];
            match rustix::net::recv(&self.fd, &mut *rest, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return self.reading = false,
                Ok((count, _)) => self.take(engine, common, &rest[..count]),
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(error) => {
                    tracing::debug!(connection = self.number, %error, "receive failed");
                    return self.break_off();
                }
            }
        }
    }

    // ---- by the kernel ----

    /// The kernel has sent `bytes`, encrypted.
    pub(super) fn kernel_sent(&mut self, bytes: usize) {
        if let Some(by_kernel) = &mut self.by_kernel
            && !by_kernel.sent(bytes)
        {
            tracing::info!(client = self.peer.shown, "closed: its key has reached its limit of encrypted data");
            self.stop_reading();
        }
    }

    /// Ends TLS, if the socket takes that at once (keys.4).
    pub(super) fn say_goodbye(&mut self) {
        if self.broken {
            return;
        }
        if self.by_kernel.is_some() {
            let _ = ktls::say_goodbye(&self.fd);
        }
        let Some(Tls { session: tls, .. }) = self.tls.as_deref_mut() else { return };
        let mut bytes = Vec::new();
        tls.send_close_notify();
        while tls.wants_write() {
            tls.write_tls(&mut bytes).expect("writing to memory does not fail");
        }
        let _ = rustix::net::send(&self.fd, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// A read has failed since the record is no data (ktls.4).
    pub(super) fn kernel_noticed(&mut self) {
        match ktls::notice(&self.fd) {
            Ok(Notice::Goodbye) => return self.reading = false,
            Ok(Notice::KeyUpdate) => {
                tracing::info!(
                    client = self.peer.shown,
                    "closed: the client changed its key (KeyUpdate), which kernel TLS does not support"
                );
            }
            other => tracing::debug!(connection = self.number, ?other, "TLS ended"),
        }
        self.break_off();
    }
}

#[cfg(test)]
mod tests;
