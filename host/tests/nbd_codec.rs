//! The NBD codec against whatever bytes a client may send, however they are cut on the way.

mod two_exports;

use fairlift::config::Tls;
use fairlift::export::nbd::handshake::{Advance, Catalogue, ExportInfo, Handshake};
use fairlift::export::nbd::proto::*;
use proptest::collection::vec;
use proptest::prelude::*;
use two_exports::Two;

/// What a connection has seen of the server when nothing more is to be said.
#[derive(PartialEq, Debug)]
struct Negotiated {
    output: Vec<u8>,
    steps: Vec<Advance>,
    /// Bytes after the negotiation.
    left: Vec<u8>,
}

/// Says `bytes`, cut into pieces of `cuts` (again and again), as a server with a growing buffer gets them.
fn negotiate(tls: Tls, bytes: &[u8], cuts: &[usize]) -> Negotiated {
    let mut output = vec![];
    let mut server = Handshake::new(tls, &mut output);
    let mut steps = vec![];
    let (mut buffer, mut rest) = (vec![], bytes);
    let mut cuts = cuts.iter().cycle();
    loop {
        let (used, step) = server.receive(&buffer, &Two, &mut output);
        assert!(used <= buffer.len(), "{used} of {} bytes used", buffer.len());
        buffer.drain(..used);
        match step {
            Advance::NeedMore => {
                assert!(buffer.len() < 16 + Handshake::DATA_MAX as usize, "more is held back than an option can be");
                if rest.is_empty() {
                    return Negotiated { output, steps, left: buffer };
                }
                let (piece, after) = rest.split_at((*cuts.next().unwrap()).clamp(1, rest.len()));
                buffer.extend_from_slice(piece);
                rest = after;
            }
            Advance::StartTls => {
                steps.push(step);
                // Here the rest goes on as if it had been encrypted, so that what comes after is tried as well.
                server.tls_established();
            }
            last @ (Advance::Ready(_) | Advance::Close(_)) => {
                steps.push(last);
                buffer.extend_from_slice(rest);
                return Negotiated { output, steps, left: buffer };
            }
        }
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&["disk", "other", "dusk", ""][..])
}

/// INFO or GO.
fn info(number: u32) -> impl Strategy<Value = Vec<u8>> {
    (name(), vec(0u16..5, 0..5)).prop_map(move |(name, wanted)| {
        let mut data = string(name);
        data.extend((wanted.len() as u16).to_be_bytes());
        wanted.iter().for_each(|kind| data.extend(kind.to_be_bytes()));
        option(number, &data)
    })
}

fn contexts(number: u32) -> impl Strategy<Value = Vec<u8>> {
    let query = prop::sample::select(
        &["base:allocation", "base:", "qemu:dirty", "qemu:", "qemu:dirty-bitmap:", "qemu:dirty-bitmap:top", ""][..],
    );
    (name(), vec(query, 0..4)).prop_map(move |(name, queries)| {
        let mut data = string(name);
        data.extend((queries.len() as u32).to_be_bytes());
        queries.iter().for_each(|query| data.extend(string(query)));
        option(number, &data)
    })
}

/// An option that a client of sound mind could send, or one that is only a little wrong.
fn an_option() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => info(OPT_INFO),
        1 => info(OPT_GO),
        3 => contexts(OPT_LIST_META_CONTEXT),
        3 => contexts(OPT_SET_META_CONTEXT),
        2 => Just(option(OPT_LIST, b"")),
        2 => Just(option(OPT_STRUCTURED_REPLY, b"")),
        1 => Just(option(OPT_EXTENDED_HEADERS, b"")),
        1 => Just(option(OPT_STARTTLS, b"")),
        1 => name().prop_map(|name| option(OPT_EXPORT_NAME, name.as_bytes())),
        1 => (0u32..20, vec(any::<u8>(), 0..40)).prop_map(|(number, data)| option(number, &data)),
        1 => (70_000usize..80_000).prop_map(|len| option(OPT_INFO, &vec![0; len])),
    ]
}

fn policy() -> impl Strategy<Value = Tls> {
    prop::sample::select(&[Tls::Off, Tls::Optional, Tls::Required][..])
}

/// The greeting's answer and then options.
fn conversation() -> impl Strategy<Value = Vec<u8>> {
    (0u32..4, vec(an_option(), 0..24)).prop_map(|(flags, options)| {
        let mut bytes = flags.to_be_bytes().to_vec();
        options.iter().for_each(|option| bytes.extend(option));
        bytes
    })
}

/// The most that can be answered to `bytes`: an option has 16 bytes at least, and the longest answers are those to LIST,
/// of this catalogue, and to INFO.
fn answer_max(bytes: &[u8]) -> usize {
    18 + 134 + (bytes.len() / 16 + 1) * 1024
}

fairlift_lab::proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_do_harm(tls in policy(), bytes in vec(any::<u8>(), 0..600), cuts in vec(1usize..70, 1..20)) {
        let answer = negotiate(tls, &bytes, &cuts);
        prop_assert!(answer.output.len() <= answer_max(&bytes));
    }

    /// As above, where the bytes get past the magics.
    #[test]
    fn no_damaged_conversation_does_harm(
        tls in policy(),
        mut bytes in conversation(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cuts in vec(1usize..3000, 1..20),
    ) {
        damage.iter().for_each(|(at, byte)| *at.get_mut(&mut bytes) = *byte);
        let answer = negotiate(tls, &bytes, &cuts);
        prop_assert!(answer.output.len() <= answer_max(&bytes));
        prop_assert!(answer.output.len() < 128 << 10);
    }

    #[test]
    fn it_does_not_matter_how_a_conversation_is_cut(
        tls in policy(),
        bytes in conversation(),
        cuts in vec(1usize..3000, 1..20),
    ) {
        prop_assert_eq!(negotiate(tls, &bytes, &cuts), negotiate(tls, &bytes, &[usize::MAX]));
        prop_assert_eq!(negotiate(tls, &bytes, &[1, 2]), negotiate(tls, &bytes, &[usize::MAX]));
    }

    /// handshake.2: whatever else is asked where TLS is required, no name, size or description is told.
    #[test]
    fn nothing_leaks_before_tls(bytes in conversation()) {
        let mut output = vec![];
        let mut server = Handshake::new(Tls::Required, &mut output);
        let (_, step) = server.receive(&bytes, &Two, &mut output);
        prop_assert!(!matches!(step, Advance::Ready(_)));
        for secret in [&b"disk"[..], b"other", b"the first", &(1u64 << 40).to_be_bytes()] {
            prop_assert!(!output.windows(secret.len()).any(|part| part == secret));
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written(
        extended in any::<bool>(),
        (flags, command, cookie, offset, length) in any::<(u16, u16, u64, u64, u64)>(),
        more in vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = if extended { 0x21e4_1c71u32 } else { 0x2560_9513 }.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        let length = if extended { length } else { length >> 32 };
        bytes.extend(if extended { length.to_be_bytes().to_vec() } else { (length as u32).to_be_bytes().to_vec() });
        let len = bytes.len();
        prop_assert_eq!(decode_request(&bytes[..len - 1], extended), Ok(None));
        bytes.extend(&more);
        let header = RequestHeader { flags, command: command.into(), cookie, offset, length };
        prop_assert_eq!(decode_request(&bytes, extended), Ok(Some((header, len))));
        prop_assert!(decode_request(&bytes, !extended).is_err());
    }

    /// Whatever comes instead of a request is refused or waited for; never is more used than there is.
    #[test]
    fn no_bytes_instead_of_requests_do_harm(extended in any::<bool>(), bytes in vec(any::<u8>(), 0..64)) {
        if let Ok(Some((_, len))) = decode_request(&bytes, extended) {
            prop_assert!(len <= bytes.len());
        }
    }
}
