//! kTLS: the kernel encrypts and decrypts what goes by a TCP socket, with the keys that rustls had.
//!
//! The keys of a connection are in the memory of one process, so another one cannot go on with it. Once the kernel has them they belong to the
//! socket: its holder writes plain bytes and reads plain bytes. Example: `send("abc")` leaves as a record of 25 bytes.
//!
//! ktls.1  A direction begins with the number of its next record. With another number nothing can be decrypted.
//! ktls.2  No nonce is used twice under a key. In TLS 1.3, and with ChaCha20, the nonce is made of the record's number. With AES-GCM of TLS 1.2
//!         the sender chooses it, and sends it with the record: rustls by `start ^ number`, the kernel by counting up. So the kernel begins behind all
//!         that rustls can have used.
//! ktls.3  The data that a key may encrypt is bounded: AES-GCM seals 2^24 records (RFC 8446, 5.5), after which rustls takes another key. The kernel does not,
//!         so records are counted here.
//! ktls.4  A record that is not data fails a plain read (EIO), and stays. It is then read with its kind. One is sent with its kind beside it.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvFlags, SocketType, recvmsg, socket};
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets, ProtocolVersion, SupportedCipherSuite};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The most bytes of data in a record (RFC 8446, 5.1).
const RECORD_MAX: usize = 1 << 14;
/// The name by which the kernel knows it (`Documentation/networking/tls.rst`).
const NAME: &[u8] = b"tls";
/// The alert by which a side says that it sends nothing more (RFC 8446, 6.1).
const CLOSE_NOTIFY: u8 = 0;

/// Whether the kernel has it, built in or as a module that is loaded. A process that may load modules loads it by asking.
pub(crate) fn is_there() -> bool {
    // It is for connected sockets: a present module refuses another one, and a missing one is not found.
    let Ok(unconnected) = socket(AddressFamily::INET, SocketType::STREAM, None) else { return false };
    attach(&unconnected).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
}

/// Makes a socket one that can encrypt. Until it has keys it goes on as before.
///
/// # Errors
/// The kernel has no TLS, or not for this socket, which is as before.
pub(crate) fn attach(socket: &impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_ULP, NAME)
}

/// Has the kernel encrypt and decrypt from here on, on a socket that is [attached](attach).
///
/// # Errors
/// The socket is of no more use: rustls has given its keys away, and the kernel does not take them.
pub(crate) fn begin(socket: &impl AsFd, version: ProtocolVersion, secrets: &ExtractedSecrets) -> io::Result<()> {
    let ExtractedSecrets { tx, rx } = secrets;
    for (direction, (number, keys)) in [(libc::TLS_TX, tx), (libc::TLS_RX, rx)] {
        let keys = described(version, *number, keys).ok_or(io::ErrorKind::Unsupported)?;
        set(socket, libc::SOL_TLS, direction, &keys)?;
    }
    Ok(())
}

/// Keys as the kernel takes them (`struct tls12_crypto_info_…` of `linux/tls.h`): version, cipher, nonce, key, salt, number of the next record.
fn described(version: ProtocolVersion, number: u64, keys: &ConnectionTrafficSecrets) -> Option<Zeroizing<Vec<u8>>> {
    let (cipher, key, iv, salt) = match keys {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (libc::TLS_CIPHER_AES_GCM_128, key, iv, 4),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (libc::TLS_CIPHER_AES_GCM_256, key, iv, 4),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (libc::TLS_CIPHER_CHACHA20_POLY1305, key, iv, 0),
        _ => return None,
    };
    let (salt, nonce) = iv.as_ref().split_at(salt);
    let mut nonce = nonce.to_vec();
    if let (ProtocolVersion::TLSv1_2, Ok(start)) = (version, <[u8; 8]>::try_from(&nonce[..])) {
        nonce = behind(u64::from_be_bytes(start)).to_be_bytes().to_vec();
    }
    let version = match version {
        ProtocolVersion::TLSv1_2 => libc::TLS_1_2_VERSION,
        ProtocolVersion::TLSv1_3 => libc::TLS_1_3_VERSION,
        _ => return None,
    };
    let info = [&version.to_ne_bytes(), &cipher.to_ne_bytes(), &nonce[..], key.as_ref(), salt, &number.to_be_bytes()];
    Some(info.concat().into())
}

/// The first nonce that is none of `start ^ n`, for all `n` of 32 bits (ktls.2).
const fn behind(start: u64) -> u64 {
    (start | u32::MAX as u64).wrapping_add(1)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ByKernel {
    /// How many records its key may still encrypt (ktls.3).
    records_left: u64,
}

impl ByKernel {
    /// One whose key has encrypted `records`.
    pub(crate) const fn after(suite: SupportedCipherSuite, records: u64) -> Self {
        let common = match suite {
            SupportedCipherSuite::Tls12(suite) => &suite.common,
            SupportedCipherSuite::Tls13(suite) => &suite.common,
        };
        Self { records_left: common.confidentiality_limit.saturating_sub(records) }
    }

    /// A message of `bytes` was sent; false: the key has reached its limit of encrypted data.
    pub(crate) const fn sent(&mut self, bytes: usize) -> bool {
        self.records_left = self.records_left.saturating_sub(bytes.div_ceil(RECORD_MAX) as u64);
        self.records_left > 0
    }
}

/// A record that is not data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// The other side sends nothing more.
    Goodbye,
    /// An alert, by its number (RFC 8446, 6).
    Alert(u8),
    /// The other side sends by another key from now on.
    KeyUpdate,
    Unknown,
}

/// The record for which a read has just failed with EIO (ktls.4).
pub(crate) fn notice(socket: &impl AsFd) -> io::Result<Notice> {
    let mut bytes = [0; 64];
    // The kernel gives such a record only to those who would hear of its kind.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut kind = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut kind, RecvFlags::DONTWAIT)?.bytes;
    Ok(Notice::of(&bytes[..got]))
}

impl Notice {
    /// By its content, for data it is none: an alert has two bytes, and other messages begin with their number (RFC 8446, 4).
    const fn of(bytes: &[u8]) -> Self {
        const KEY_UPDATE: u8 = 24;
        match *bytes {
            [_, CLOSE_NOTIFY] => Self::Goodbye,
            [_, alert] => Self::Alert(alert),
            [KEY_UPDATE, 0, 0, 1, _] => Self::KeyUpdate,
            _ => Self::Unknown,
        }
    }
}

/// Tells the other side that nothing more comes, if the socket takes that at once (ktls.4).
pub(crate) fn say_goodbye(socket: &impl AsFd) -> io::Result<()> {
    /// The kind of record that an alert is (RFC 8446, 5.1), and the level of this one: a warning.
    const ALERT: u8 = 21;
    const WARNING: u8 = 1;
    let mut goodbye = [WARNING, CLOSE_NOTIFY];
    let mut piece = libc::iovec { iov_base: goodbye.as_mut_ptr().cast(), iov_len: goodbye.len() };
    let mut kind = [0_usize; 8]; // more than its header and a byte, and aligned as the header
    // SAFETY: all zeroes are a valid `msghdr`: no address, no memory, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
    message.msg_control = kind.as_mut_ptr().cast();
    // SAFETY: `kind` has room for the one header with a byte, which the length says before they are written there. The kernel reads
    // the message, and all that it names is here until the call has ended.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(1) as _; // narrower with musl
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_TLS;
        (*header).cmsg_type = libc::TLS_SET_RECORD_TYPE;
        (*header).cmsg_len = libc::CMSG_LEN(1) as _;
        *libc::CMSG_DATA(header) = ALERT;
        libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set(socket: &impl AsFd, level: libc::c_int, name: libc::c_int, value: &[u8]) -> io::Result<()> {
    let (fd, len) = (socket.as_fd().as_raw_fd(), value.len() as libc::socklen_t);
    // SAFETY: the kernel reads `len` bytes of `value`, which is borrowed until the call has ended, and keeps a copy.
    match unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
