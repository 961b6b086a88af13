use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CipherSuite, ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use super::*;

const SUITES: [CipherSuite; 6] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// A client and a server that have agreed on a suite.
struct Pair {
    client: ClientConnection,
    server: ServerConnection,
}

fn configs(suite: CipherSuite) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let certificate = CertificateDer::from(certificate.der().to_vec());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|one| one.suite() == suite);
    let provider = Arc::new(provider);
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let client = client.with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut server = server.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    server.enable_secret_extraction = true;
    (client.into(), server.into())
}

/// A client and a server after their handshake.
pub(crate) fn agreed() -> (ClientConnection, ServerConnection) {
    let Pair { client, server } = Pair::new(SUITES[0]);
    (client, server)
}

impl Pair {
    fn new(suite: CipherSuite) -> Self {
        let (client, server) = configs(suite);
        let client = ClientConnection::new(client, "localhost".try_into().unwrap()).unwrap();
        let mut pair = Self { client, server: ServerConnection::new(server).unwrap() };
        while pair.client.is_handshaking() || pair.server.is_handshaking() {
            pair.passes();
        }
        pair.passes();
        pair
    }

    /// Both sides can send, and it arrives.
    fn passes(&mut self) {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        while self.client.wants_write() {
            self.client.write_tls(&mut up).unwrap();
        }
        while self.server.wants_write() {
            self.server.write_tls(&mut down).unwrap();
        }
        let (mut up, mut down) = (&up[..], &down[..]);
        while !up.is_empty() {
            self.server.read_tls(&mut up).unwrap();
            self.server.process_new_packets().unwrap();
        }
        while !down.is_empty() {
            self.client.read_tls(&mut down).unwrap();
            self.client.process_new_packets().unwrap();
        }
    }

    /// Each says something to the other.
    fn talks(&mut self, times: usize) {
        for _ in 0..times {
            self.client.writer().write_all(b"up").unwrap();
            self.server.writer().write_all(b"down").unwrap();
            self.passes();
            self.server.reader().read_exact(&mut [0; 2]).unwrap();
            self.client.reader().read_exact(&mut [0; 4]).unwrap();
        }
    }

    /// The server's keys go to a kernel: as it is told, in both directions; and the client.
    fn moves(self) -> (ClientConnection, Kernel, Kernel) {
        let version = self.server.protocol_version().unwrap();
        let ExtractedSecrets { tx, rx } = self.server.dangerous_extract_secrets().unwrap();
        let kernel = |(number, keys)| Kernel::configured(&described(version, number, &keys).unwrap());
        (self.client, kernel(tx), kernel(rx))
    }
}

/// One direction of the kernel's TLS, as its source has it (`net/tls/tls_sw.c`), from the same parameters.
struct Kernel {
    is_13: bool,
    is_chacha: bool,
    key: LessSafeKey,
    /// Salt and nonce.
    iv: [u8; 12],
    number: u64,
}

impl Kernel {
    fn configured(parameters: &[u8]) -> Self {
        let half = |at: usize| u16::from_ne_bytes([parameters[at], parameters[at + 1]]);
        let (algorithm, iv, key, salt) = match half(2) {
            51 => (&aead::AES_128_GCM, 8, 16, 4),
            52 => (&aead::AES_256_GCM, 8, 32, 4),
            54 => (&aead::CHACHA20_POLY1305, 12, 32, 0),
            other => panic!("cipher {other}"),
        };
        assert_eq!(parameters.len(), 4 + iv + key + salt + 8, "the length that the kernel wants");
        let part = |from: usize, len: usize| &parameters[4 + from..4 + from + len];
        let whole = [part(iv + key, salt), part(0, iv)].concat();
        Self {
            is_13: match half(0) {
                0x304 => true,
                0x303 => false,
                other => panic!("version {other:#x}"),
            },
            is_chacha: half(2) == 54,
            key: LessSafeKey::new(UnboundKey::new(algorithm, part(iv, key)).unwrap()),
            iv: whole.try_into().unwrap(),
            number: u64::from_be_bytes(part(iv + key + salt, 8).try_into().unwrap()),
        }
    }

    /// A record begins: its nonce, unless the other side has sent one, and the data that is authenticated with it.
    fn next(&mut self, sent: Option<[u8; 8]>, plain: usize) -> (Nonce, Vec<u8>) {
        let mut nonce = self.iv;
        let mut beside = vec![23, 3, 3];
        if self.is_13 || self.is_chacha {
            nonce[4..].iter_mut().zip(self.number.to_be_bytes()).for_each(|(to, from)| *to ^= from);
        } else {
            nonce[4..].copy_from_slice(&sent.unwrap_or_else(|| self.explicit()));
            let next = u64::from_be_bytes(self.explicit()).wrapping_add(1);
            self.iv[4..].copy_from_slice(&next.to_be_bytes());
        }
        if self.is_13 {
            beside.extend(((plain + 1 + 16) as u16).to_be_bytes());
        } else {
            beside = [&self.number.to_be_bytes()[..], &beside, &(plain as u16).to_be_bytes()].concat();
        }
        self.number += 1;
        (Nonce::assume_unique_for_key(nonce), beside)
    }

    /// The nonce that goes with the next record.
    fn explicit(&self) -> [u8; 8] {
        self.iv[4..].try_into().unwrap()
    }

    fn sends_nonces(&self) -> bool {
        !self.is_13 && !self.is_chacha
    }

    fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let explicit = if self.sends_nonces() { self.explicit().to_vec() } else { vec![] };
        let (nonce, beside) = self.next(None, plain.len());
        let mut content = plain.to_vec();
        content.extend(self.is_13.then_some(23));
        self.key.seal_in_place_append_tag(nonce, Aad::from(beside), &mut content).unwrap();
        let len = ((explicit.len() + content.len()) as u16).to_be_bytes();
        [&[23, 3, 3], &len[..], &explicit, &content].concat()
    }

    fn open(&mut self, record: &[u8]) -> Option<Vec<u8>> {
        let mut content = record[5..].to_vec();
        let sent = self.sends_nonces().then(|| content.drain(..8).collect::<Vec<_>>().try_into().unwrap());
        let plain = content.len() - 16 - usize::from(self.is_13);
        let (nonce, beside) = self.next(sent, plain);
        let opened = self.key.open_in_place(nonce, Aad::from(beside), &mut content).ok()?;
        Some(opened[..plain].to_vec())
    }
}

/// Data arrives in both directions.
fn goes_on(client: &mut ClientConnection, tx: &mut Kernel, rx: &mut Kernel) {
    for n in 0..3_u8 {
        let mut record = Vec::new();
        client.writer().write_all(&[b'c', n]).unwrap();
        client.write_tls(&mut record).unwrap();
        assert_eq!(rx.open(&record).as_deref(), Some(&[b'c', n][..]), "what the client has sent");
        let record = tx.seal(&[b's', n]);
        client.read_tls(&mut &record[..]).unwrap();
        client.process_new_packets().unwrap();
        let mut heard = [0; 2];
        client.reader().read_exact(&mut heard).unwrap();
        assert_eq!(heard, [b's', n], "what the client hears");
    }
}

/// ktls.1, with each cipher of both versions.
#[test]
fn a_kernel_with_the_keys_goes_on_where_rustls_was() {
    for suite in SUITES {
        for records in [0, 1, 300] {
            let mut pair = Pair::new(suite);
            pair.talks(records);
            let (mut client, mut tx, mut rx) = pair.moves();
            goes_on(&mut client, &mut tx, &mut rx);
        }
    }
}

/// The client has taken another key, and asked for one of the server, which has not answered yet.
#[test]
fn keys_that_were_changed_before_go_over_as_they_are() {
    let mut pair = Pair::new(SUITES[1]);
    pair.talks(2);
    pair.client.refresh_traffic_keys().unwrap();
    pair.talks(2);
    pair.client.refresh_traffic_keys().unwrap();
    pair.passes();
    assert!(!pair.server.wants_write(), "its answer waits for data");
    let _ = pair.server.writer().write(&[]);
    assert!(pair.server.wants_write(), "or for nothing");
    pair.passes();
    let (mut client, mut tx, mut rx) = pair.moves();
    goes_on(&mut client, &mut tx, &mut rx);
}

/// ktls.2
#[test]
fn the_kernel_takes_no_nonce_that_rustls_has_taken() {
    let mut pair = Pair::new(SUITES[3]);
    let mut used = Vec::new();
    for _ in 0..40 {
        let mut record = Vec::new();
        pair.server.writer().write_all(b"down").unwrap();
        pair.server.write_tls(&mut record).unwrap();
        used.push(record[5..13].to_vec());
    }
    let (_, mut tx, _) = pair.moves();
    for _ in 0..100 {
        assert!(!used.contains(&tx.seal(b"down")[5..13].to_vec()));
    }
    for start in [0, 1, u64::from(u32::MAX), 0x0123_4567_89ab_cdef, u64::MAX - 1, u64::MAX] {
        assert_ne!(behind(start) >> 32, start >> 32, "{start:#x}");
        assert_eq!(behind(start) & u64::from(u32::MAX), 0, "{start:#x}: 2^32 records are behind all of rustls'");
    }
}

/// ktls.3
#[test]
fn aes_gcm_has_records_left_that_chacha_need_not_count() {
    let left =
        |suite, sent| ByKernel::after(Pair::new(suite).server.negotiated_cipher_suite().unwrap(), sent).records_left;
    assert_eq!(left(SUITES[0], 10), (1 << 24) - 10);
    assert_eq!(left(SUITES[4], 1 << 30), 0);
    assert!(left(SUITES[2], 10) > 1 << 60);
}

/// ktls.3: three records are left; a message of 20,000 bytes takes two, and one of 1 byte the last.
#[test]
fn a_key_encrypts_no_more_records_than_it_may() {
    let mut by_kernel = ByKernel { records_left: 3 };
    assert!(by_kernel.sent(20_000));
    assert!(!by_kernel.sent(1));
    assert!(!by_kernel.sent(1), "it stays so");
}

/// ktls.4
#[test]
fn records_that_are_no_data_are_told_apart_by_their_content() {
    assert_eq!(Notice::of(&[1, 0]), Notice::Goodbye);
    assert_eq!(Notice::of(&[2, 20]), Notice::Alert(20));
    assert_eq!(Notice::of(&[24, 0, 0, 1, 0]), Notice::KeyUpdate);
    assert_eq!(Notice::of(&[]), Notice::Unknown);
    assert_eq!(Notice::of(b"hello"), Notice::Unknown);
}

/// With the kernel of this machine, if it has TLS: a client of rustls beside a socket that is read and written without any.
#[test]
fn the_kernel_of_this_machine_goes_on_where_rustls_was() {
    if !is_there() {
        eprintln!("skipped: this kernel has no TLS, or has not loaded it (modprobe tls)");
        return;
    }
    for (suite, changes_keys) in SUITES.into_iter().map(|suite| (suite, false)).chain([(SUITES[0], true)]) {
        let (client, server) = configs(suite);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ends = std::thread::spawn(move || {
            let session = ClientConnection::new(client, "localhost".try_into().unwrap()).unwrap();
            let mut stream = rustls::StreamOwned::new(session, socket);
            let mut heard = [0; 4];
            for _ in 0..2 {
                stream.write_all(b"up").unwrap();
                stream.read_exact(&mut heard).unwrap();
                assert_eq!(&heard, b"down");
            }
            match changes_keys {
                true => stream.conn.refresh_traffic_keys().unwrap(),
                false => stream.conn.send_close_notify(),
            }
            stream.flush().unwrap();
            assert_eq!(stream.read(&mut heard).unwrap(), 0, "the other side says goodbye, and ends it");
        });
        let mut socket = listener.accept().unwrap().0;
        let mut session = ServerConnection::new(server).unwrap();
        let mut stream = rustls::Stream::new(&mut session, &mut socket);
        stream.read_exact(&mut [0; 2]).unwrap();
        stream.write_all(b"down").unwrap();
        let version = session.protocol_version().unwrap();
        attach(&socket).unwrap();
        begin(&socket, version, &session.dangerous_extract_secrets().unwrap()).unwrap();
        let mut heard = [0; 2];
        socket.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"up");
        socket.write_all(b"down").unwrap();
        let ended = socket.read(&mut heard).unwrap_err().raw_os_error();
        assert_eq!(
            (ended, notice(&socket).unwrap()),
            (Some(libc::EIO), if changes_keys { Notice::KeyUpdate } else { Notice::Goodbye })
        );
        say_goodbye(&socket).unwrap();
        drop(socket);
        ends.join().unwrap();
    }
}
