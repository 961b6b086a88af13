//! A client of any kind against the NBD negotiation, and then against the reading of requests.
//!
//! Input: one byte of setting (bits 0-1 the TLS policy, bits 2-3 the catalogue, bits 4-6 how the bytes are cut), then
//! what the client says. What it says after STARTTLS is taken as if it had been encrypted, if bit 7 is set.

#![no_main]

use fairlift::config::Tls;
use fairlift::export::nbd::handshake::{Advance, Catalogue, Contexts, ExportInfo, Handshake, Session};
use fairlift::export::nbd::proto::{self, RequestHeader};
use libfuzzer_sys::fuzz_target;

/// The first so many of three exports.
struct First(usize);

const NAMES: [&str; 3] = ["disk", "", "a name with ä"];

fn info(index: usize) -> ExportInfo<'static> {
    ExportInfo {
        index,
        name: NAMES[index],
        description: ["the first", "", "x"][index],
        size: 1 << 40,
        transmission_flags: proto::FLAG_HAS_FLAGS | proto::FLAG_SEND_DF,
        block_min: 512,
        block_preferred: 4096,
        block_max: 32 << 20,
        changes: [Some("top"), None, Some("")][index],
    }
}

impl Catalogue for First {
    fn find(&self, name: &str) -> Option<ExportInfo<'_>> {
        (0..self.0).map(info).find(|export| export.name == name)
    }
    fn for_each(&self, visit: &mut dyn FnMut(&ExportInfo<'_>)) {
        (0..self.0).for_each(|index| visit(&info(index)));
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((setting, mut rest)) = input.split_first() else { return };
    let tls = [Tls::Off, Tls::Optional, Tls::Required, Tls::Off][usize::from(setting & 3)];
    let exports = First(usize::from(setting >> 2 & 3));
    let piece = [1, 2, 3, 7, 16, 17, 300, usize::MAX][usize::from(setting >> 4 & 7)];
    let encrypts = setting & 1 << 7 != 0;

    let (mut buffer, mut output) = (vec![], vec![]);
    let mut server = Handshake::new(tls, &mut output);
    let mut encrypted = false;
    let session = loop {
        let before = output.len();
        let (used, step) = server.receive(&buffer, &exports, &mut output);
        assert!(used <= buffer.len());
        // An option has 16 bytes at least; no answer of ours is longer than 1 KiB.
        assert!(output.len() - before <= (used / 16 + 1) * 1024);
        buffer.drain(..used);
        match step {
            Advance::NeedMore if rest.is_empty() => return,
            Advance::NeedMore => {
                assert!(buffer.len() < 16 + Handshake::DATA_MAX as usize, "more is held back than an option can be");
                let (now, later) = rest.split_at(piece.min(rest.len()));
                buffer.extend_from_slice(now);
                rest = later;
            }
            Advance::StartTls if encrypts => {
                assert!(!encrypted && tls != Tls::Off);
                encrypted = true;
                server.tls_established();
            }
            Advance::StartTls => {
                // Injected plain text must do nothing.
                let before = output.len();
                buffer.extend_from_slice(rest);
                let (used, step) = server.receive(&buffer, &exports, &mut output);
                assert!(used == 0 && output.len() == before && matches!(step, Advance::Close(_) | Advance::NeedMore));
                return;
            }
            Advance::Ready(session) => break session,
            Advance::Close(reason) => return assert!(reason.len() < 1024),
        }
    };
    assert!(session.export < exports.0);
    assert!(encrypted || tls != Tls::Required, "ready without the TLS that is required");
    assert!(session.structured || !(session.extended || !session.contexts.is_none()));
    buffer.extend_from_slice(rest);
    requests(&session, &buffer);
});

/// Reads requests as a server does, and answers each in all ways there are.
fn requests(session: &Session, mut bytes: &[u8]) {
    let mut out = vec![];
    while let Ok(Some((header, len))) = proto::decode_request(bytes, session.extended) {
        assert!(len == if session.extended { proto::EXTENDED_REQUEST_LEN } else { proto::REQUEST_LEN });
        bytes = &bytes[len..];
        let payload = header.payload_len(session.extended);
        bytes = &bytes[usize::try_from(payload).unwrap_or(usize::MAX).min(bytes.len())..];
        out.clear();
        answer(session, &header, &mut out);
        assert!(out.len() < 4096);
    }
}

fn answer(session: &Session, header: &RequestHeader, out: &mut Vec<u8>) {
    let RequestHeader { cookie, offset, length, .. } = *header;
    let error = proto::nbd_error(fairlift_core::Errno(offset as i32));
    assert!([1, 5, 12, 22, 28, 75, 95, 108].contains(&error));
    assert_eq!(proto::simple_reply(error, cookie).len(), 16);
    let text = String::from_utf8_lossy(&length.to_be_bytes()).repeat(usize::from(header.flags & 127));
    proto::error_chunk(out, session.extended, cookie, offset, error, &text);
    proto::block_status(out, session.extended, (cookie, offset), (Contexts::CHANGES, false), &[(offset, 0), (length, 3)]);
}
