//! The NBD wire format: constants, and the codec of the transmission phase.
//!
//! Pure: bytes in, values out. Everything is big-endian. Numbers and section names are those of the protocol text,
//! `doc/proto.md` of the NBD project.

pub mod answers;
pub mod greeting;

use std::ops::Deref;

use fairlift_core::Errno;

use super::bytes::{Put, Take};

/// Numbers of the protocol, a row each.
macro_rules! numbers {
    ($($name:ident: $kind:ty = $value:expr, $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $name: $kind = $value;)*
    };
}

// ---- handshake ("Handshake phase", "Fixed newstyle negotiation") ----

numbers! {
    MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC"), "The first eight bytes of a server.";
    OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT"), "Before every option of a client, and after [`MAGIC`].";
    REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9, "Before every reply to an option.";

    FLAG_FIXED_NEWSTYLE: u16 = 1, "Server flag: options are answered, so a client may try any.";
    FLAG_NO_ZEROES: u16 = 1 << 1, "Server flag: the 124 zero bytes after `EXPORT_NAME` can be left out.";
    CLIENT_FIXED_NEWSTYLE: u32 = 1, "Client flag, as [`FLAG_FIXED_NEWSTYLE`].";
    CLIENT_NO_ZEROES: u32 = 1 << 1, "Client flag, as [`FLAG_NO_ZEROES`].";

    OPT_EXPORT_NAME: u32 = 1, "Chooses an export and ends the negotiation, with no way to say why not.";
    OPT_ABORT: u32 = 2, "Ends the negotiation.";
    OPT_LIST: u32 = 3, "Asks for the names of all exports.";
    OPT_STARTTLS: u32 = 5, "Goes over to TLS.";
    OPT_INFO: u32 = 6, "Asks about an export.";
    OPT_GO: u32 = 7, "Chooses an export and ends the negotiation.";
    OPT_STRUCTURED_REPLY: u32 = 8, "Asks for structured replies.";
    OPT_LIST_META_CONTEXT: u32 = 9, "Asks for the metadata contexts that an export has.";
    OPT_SET_META_CONTEXT: u32 = 10, "Chooses metadata contexts.";
    OPT_EXTENDED_HEADERS: u32 = 11, "Asks for 64-bit lengths.";

    REP_ACK: u32 = 1, "Yes, or the end of several replies.";
    REP_SERVER: u32 = 2, "An export's name.";
    REP_INFO: u32 = 3, "Something about an export.";
    REP_META_CONTEXT: u32 = 4, "A metadata context.";
    REP_ERR_UNSUP: u32 = 1 << 31 | 1, "An option that this server does not know.";
    REP_ERR_POLICY: u32 = 1 << 31 | 2, "Not allowed here.";
    REP_ERR_INVALID: u32 = 1 << 31 | 3, "Malformed, or not now.";
    REP_ERR_TLS_REQD: u32 = 1 << 31 | 5, "TLS first.";
    REP_ERR_UNKNOWN: u32 = 1 << 31 | 6, "No such export.";
    REP_ERR_TOO_BIG: u32 = 1 << 31 | 9, "More than this server takes.";
    REP_ERR_EXT_HEADER_REQD: u32 = 1 << 31 | 10, "Only with extended headers.";

    INFO_EXPORT: u16 = 0, "Size and transmission flags.";
    INFO_NAME: u16 = 1, "The name.";
    INFO_DESCRIPTION: u16 = 2, "A description for people.";
    INFO_BLOCK_SIZE: u16 = 3, "Smallest, preferred and largest request.";
}

// ---- transmission flags ----

numbers! {
    FLAG_HAS_FLAGS: u16 = 1, "Always set.";
    FLAG_READ_ONLY: u16 = 1 << 1, "Clients may not write.";
    FLAG_SEND_FLUSH: u16 = 1 << 2, "Clients may flush.";
    FLAG_SEND_FUA: u16 = 1 << 3, "Clients may ask for single writes to be durable.";
    FLAG_ROTATIONAL: u16 = 1 << 4, "Neighbouring requests are served faster.";
    FLAG_SEND_TRIM: u16 = 1 << 5, "Clients may discard.";
    FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6, "Clients may write zeroes without sending them.";
    FLAG_SEND_DF: u16 = 1 << 7, "Clients may ask for reads in one piece.";
    FLAG_CAN_MULTI_CONN: u16 = 1 << 8, "A flush of one connection counts for all.";
    FLAG_SEND_CACHE: u16 = 1 << 10, "Clients may say what they will read.";
    FLAG_SEND_FAST_ZERO: u16 = 1 << 11, "Clients may ask for zeroes only if that is fast.";
}

// ---- requests ("Request message") ----

const REQUEST_MAGIC: u32 = 0x2560_9513;
const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;

numbers! {
    REQUEST_LEN: usize = 28, "The length of a request header.";
    EXTENDED_REQUEST_LEN: usize = 32, "The length of a request header with extended headers.";

    CMD_FLAG_FUA: u16 = 1, "Durable before the reply.";
    CMD_FLAG_NO_HOLE: u16 = 1 << 1, "Zeroes stay allocated.";
    CMD_FLAG_DF: u16 = 1 << 2, "A read in one piece.";
    CMD_FLAG_REQ_ONE: u16 = 1 << 3, "One run of block status.";
    CMD_FLAG_FAST_ZERO: u16 = 1 << 4, "Fail if it is not faster than writing.";
    CMD_FLAG_PAYLOAD_LEN: u16 = 1 << 5, "With extended headers: the length is that of a payload.";
}

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// `NBD_CMD_READ`
    Read,
    /// `NBD_CMD_WRITE`
    Write,
    /// `NBD_CMD_DISC`: the client leaves; there is no reply.
    Disconnect,
    /// `NBD_CMD_FLUSH`
    Flush,
    /// `NBD_CMD_TRIM`
    Trim,
    /// `NBD_CMD_CACHE`
    Cache,
    /// `NBD_CMD_WRITE_ZEROES`
    WriteZeroes,
    /// `NBD_CMD_BLOCK_STATUS`
    BlockStatus,
    /// A number that this server does not know.
    Unknown(u16),
}

impl Command {
    /// By their numbers.
    const KNOWN: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::Disconnect,
        Self::Flush,
        Self::Trim,
        Self::Cache,
        Self::WriteZeroes,
        Self::BlockStatus,
    ];

    fn number(self) -> u16 {
        match self {
            Self::Unknown(number) => number,
            known => Self::KNOWN.iter().position(|one| *one == known).expect("all are in the list") as u16,
        }
    }
}

impl From<u16> for Command {
    fn from(number: u16) -> Self {
        Self::KNOWN.get(usize::from(number)).copied().unwrap_or(Self::Unknown(number))
    }
}

/// A request without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// `CMD_FLAG_*`, unchecked.
    pub flags: u16,
    /// The operation.
    pub command: Command,
    /// The client's name for it, returned with the reply.
    pub cookie: u64,
    /// Where, in bytes.
    pub offset: u64,
    /// Length in bytes; a write has as much payload.
    pub length: u64,
}

impl RequestHeader {
    /// How many bytes of payload follow the header: they are to be passed over if the request is refused.
    ///
    /// Without extended headers a write has payload, and nothing else does. With them any command that is flagged so
    /// has, and a write that is not has none ("Request message").
    #[inline]
    #[must_use]
    pub const fn payload_len(&self, extended: bool) -> u64 {
        let has = match extended {
            true => self.flags & CMD_FLAG_PAYLOAD_LEN != 0,
            false => matches!(self.command, Command::Write),
        };
        if has { self.length } else { 0 }
    }
}

/// The bytes do not begin a request: the client and we no longer understand each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadMagic(pub u32);

/// The request at the start of `bytes`, and the length of its header; `None` if it is not there whole.
///
/// # Errors
/// [`BadMagic`], as soon as four bytes show it.
#[inline]
pub fn decode_request(bytes: &[u8], extended: bool) -> Result<Option<(RequestHeader, usize)>, BadMagic> {
    let mut rest = Take(bytes);
    let Some(magic) = rest.u32() else { return Ok(None) };
    if magic != if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC } {
        return Err(BadMagic(magic));
    }
    let mut header = || {
        let (flags, command, cookie, offset) = (rest.u16()?, rest.u16()?.into(), rest.u64()?, rest.u64()?);
        let length = if extended { rest.u64()? } else { rest.u32()?.into() };
        Some(RequestHeader { flags, command, cookie, offset, length })
    };
    Ok(header().map(|header| (header, if extended { EXTENDED_REQUEST_LEN } else { REQUEST_LEN })))
}

/// Appends a request, up to its payload.
///
/// # Panics
/// If its length does not fit 32 bits, without extended headers.
#[inline]
pub fn encode_request(out: &mut Vec<u8>, extended: bool, header: &RequestHeader) {
    out.u32(if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC });
    out.u16(header.flags).u16(header.command.number()).u64(header.cookie).u64(header.offset);
    match extended {
        true => out.u64(header.length),
        false => out.u32(u32::try_from(header.length).expect("a request is cut to a length of 32 bits")),
    };
}

// ---- replies ("Simple reply message", "Structured reply chunk message", "Extended reply chunk message") ----

const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
const EXTENDED_CHUNK_MAGIC: u32 = 0x6e8a_278c;

/// The last chunk of a reply.
const CHUNK_DONE: u16 = 1;
const CHUNK_NONE: u16 = 0;
const CHUNK_OFFSET_DATA: u16 = 1;
const CHUNK_OFFSET_HOLE: u16 = 2;
const CHUNK_BLOCK_STATUS: u16 = 5;
const CHUNK_BLOCK_STATUS_EXT: u16 = 6;
const CHUNK_ERROR: u16 = 1 << 15 | 1;
/// Of all chunks that say that something failed.
const CHUNK_IS_ERROR: u16 = 1 << 15;

numbers! {
    STATE_HOLE: u32 = 1, "In block status: nothing is allocated.";
    STATE_ZERO: u32 = 1 << 1, "In block status: reads as zeroes.";
    STATE_DIRTY: u32 = 1, "In `qemu:dirty-bitmap:`: changed.";
}

/// The most bytes of an error message that are sent. Chosen: several lines of a terminal; the protocol allows 4096.
const MESSAGE_MAX: usize = 512;

/// The start of a reply.
pub struct Head {
    bytes: [u8; 64],
    len: usize,
}

impl Deref for Head {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Put for Head {
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }
}

/// A simple reply.
#[inline]
#[must_use]
pub fn simple_reply(error: u32, cookie: u64) -> Head {
    let mut head = Head { bytes: [0; 64], len: 0 };
    head.u32(SIMPLE_REPLY_MAGIC).u32(error).u64(cookie);
    head
}

/// The chunk that says "done" and nothing else, as extended headers want it.
#[inline]
#[must_use]
pub fn none_chunk(extended: bool, cookie: u64, offset: u64) -> Head {
    chunk(extended, (CHUNK_NONE, CHUNK_DONE), cookie, offset, 0)
}

/// The only chunk of a read, up to its data: `len` bytes from `offset` on.
#[inline]
#[must_use]
pub fn offset_data_header(extended: bool, cookie: u64, offset: u64, len: u64) -> Head {
    let mut head = chunk(extended, (CHUNK_OFFSET_DATA, CHUNK_DONE), cookie, offset, len + 8);
    head.u64(offset);
    head
}

/// The only chunk of a read that found nothing but zeroes: `len` bytes of them from `offset` on.
#[inline]
#[must_use]
pub fn offset_hole(extended: bool, cookie: u64, offset: u64, len: u64) -> Head {
    let mut head = chunk(extended, (CHUNK_OFFSET_HOLE, CHUNK_DONE), cookie, offset, 12);
    head.u64(offset).u32(u32::try_from(len).expect("a read is no longer than the largest request"));
    head
}

/// The header of a chunk. With extended headers it repeats the request's offset.
#[inline]
fn chunk(extended: bool, (kind, flags): (u16, u16), cookie: u64, offset: u64, len: u64) -> Head {
    let magic = if extended { EXTENDED_CHUNK_MAGIC } else { CHUNK_MAGIC };
    let mut head = Head { bytes: [0; 64], len: 0 };
    head.u32(magic).u16(flags).u16(kind).u64(cookie);
    match extended {
        true => head.u64(offset).u64(len),
        false => head.u32(u32::try_from(len).expect("a chunk is no longer than the largest request")),
    };
    head
}

/// Appends the chunk that ends a request with an error, and says why.
pub fn error_chunk(out: &mut Vec<u8>, extended: bool, cookie: u64, offset: u64, error: u32, why: &str) {
    let why = &why[..why.floor_char_boundary(MESSAGE_MAX)];
    let head = chunk(extended, (CHUNK_ERROR, CHUNK_DONE), cookie, offset, why.len() as u64 + 6);
    out.bytes(&head).u32(error).u16(why.len() as u16).bytes(why.as_bytes());
}

/// Appends the chunk of one context of the block status that the request (cookie, offset) asked for: runs (length, state) from that offset
/// on; `last`: no other context follows.
///
/// Without extended headers a run is told in 32 bits; a longer one is cut, and the runs after it are left out, as the protocol allows.
pub fn block_status(
    out: &mut Vec<u8>,
    extended: bool,
    (cookie, offset): (u64, u64),
    (context, last): (u32, bool),
    runs: &[(u64, u32)],
) {
    /// The largest length that is a multiple of every block size.
    const LONGEST: u64 = u32::MAX as u64 & !0xffff;
    let count = match extended {
        true => runs.len(),
        false => runs.iter().position(|(len, _)| *len > LONGEST).map_or(runs.len(), |long| long + 1),
    };
    let (kind, len) = match extended {
        true => (CHUNK_BLOCK_STATUS_EXT, 8 + 16 * count as u64),
        false => (CHUNK_BLOCK_STATUS, 4 + 8 * count as u64),
    };
    let flags = if last { CHUNK_DONE } else { 0 };
    out.bytes(&chunk(extended, (kind, flags), cookie, offset, len)).u32(context);
    if extended {
        out.u32(count as u32);
        runs.iter().for_each(|(len, state)| _ = out.u64(*len).u64((*state).into()));
    } else {
        runs[..count].iter().for_each(|(len, state)| _ = out.u32((*len).min(LONGEST) as u32).u32(*state));
    }
}

/// Errors that have the same number in the protocol ("Error values").
const ERRORS: [Errno; 8] = [
    Errno::EPERM,
    Errno::EIO,
    Errno::ENOMEM,
    Errno::EINVAL,
    Errno::ENOSPC,
    Errno::EOVERFLOW,
    Errno::ENOTSUP,
    Errno::ESHUTDOWN,
];

/// The meaning of a server's error; a number that the protocol does not have is taken as `EIO`.
#[must_use]
pub fn errno(error: u32) -> Errno {
    ERRORS.into_iter().find(|errno| errno.0 as u32 == error).unwrap_or(Errno::EIO)
}

/// The protocol's name of an error: some as they are, the rest by their meaning to a client.
#[must_use]
pub fn nbd_error(errno: Errno) -> u32 {
    const EACCES: i32 = 13;
    const EROFS: i32 = 30;
    let meant = match errno {
        same if ERRORS.contains(&same) => same,
        Errno(EACCES | EROFS) => Errno::EPERM,
        Errno::EFBIG | Errno::EDQUOT => Errno::ENOSPC,
        _ => Errno::EIO,
    };
    meant.0 as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(extended: bool) -> Vec<u8> {
        let mut bytes = vec![];
        let magic = if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        bytes.extend(magic.to_be_bytes());
        bytes.extend([0, 1, 0, 6]);
        bytes.extend(0x0102_0304_0506_0708u64.to_be_bytes());
        bytes.extend((1u64 << 40).to_be_bytes());
        match extended {
            true => bytes.extend((1u64 << 33).to_be_bytes()),
            false => bytes.extend(4096u32.to_be_bytes()),
        }
        bytes
    }

    #[test]
    fn a_request_is_read_when_it_is_there_whole() {
        for extended in [false, true] {
            let bytes = request(extended);
            for short in 0..bytes.len() {
                assert_eq!(decode_request(&bytes[..short], extended), Ok(None));
            }
            let (header, len) = decode_request(&bytes, extended).unwrap().unwrap();
            assert_eq!(len, bytes.len());
            let length = if extended { 1 << 33 } else { 4096 };
            let (cookie, offset) = (0x0102_0304_0506_0708, 1 << 40);
            assert_eq!(header, RequestHeader { flags: 1, command: Command::WriteZeroes, cookie, offset, length });
        }
    }

    #[test]
    fn payload_follows_a_write_and_with_extended_headers_what_is_flagged() {
        let header = |command, flags| RequestHeader { flags, command, cookie: 0, offset: 0, length: 4096 };
        assert_eq!(header(Command::Write, 0).payload_len(false), 4096);
        assert_eq!(header(Command::Read, CMD_FLAG_PAYLOAD_LEN).payload_len(false), 0, "no such flag in compact style");
        assert_eq!(header(Command::Write, 0).payload_len(true), 0);
        assert_eq!(header(Command::Write, CMD_FLAG_PAYLOAD_LEN).payload_len(true), 4096);
        assert_eq!(header(Command::BlockStatus, CMD_FLAG_PAYLOAD_LEN).payload_len(true), 4096);
        assert_eq!(header(Command::Unknown(77), CMD_FLAG_PAYLOAD_LEN).payload_len(true), 4096);
    }

    #[test]
    fn a_wrong_magic_is_seen_after_four_bytes() {
        assert_eq!(decode_request(&[0; 4], false), Err(BadMagic(0)));
        assert!(decode_request(&request(false), true).is_err(), "compact requests end with extended headers");
    }

    #[test]
    fn a_simple_reply_is_sixteen_bytes() {
        assert_eq!(*simple_reply(28, 7), [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn a_read_chunk_counts_its_offset_in_its_length() {
        let head = offset_data_header(false, 7, 512, 4096);
        assert_eq!(head.len(), 28);
        assert_eq!(head[4..8], [0, 1, 0, 1], "done, offset data");
        assert_eq!(head[16..20], 4104u32.to_be_bytes());
        assert_eq!(head[20..28], 512u64.to_be_bytes());
        let head = offset_data_header(true, 7, 512, 4096);
        assert_eq!(head.len(), 40);
        assert_eq!(head[24..32], 4104u64.to_be_bytes());
    }

    #[test]
    fn a_hole_is_told_in_a_few_bytes() {
        let head = offset_hole(false, 7, 512, 4096);
        assert_eq!(head.len(), 32);
        assert_eq!(head[4..8], [0, 1, 0, 2], "done, offset hole");
        assert_eq!(head[16..32], [0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 16, 0]);
        assert_eq!(offset_hole(true, 7, 512, 4096).len(), 44);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let mut out = vec![];
        error_chunk(&mut out, false, 7, 0, 22, &"ä".repeat(400));
        let len = u16::from_be_bytes([out[24], out[25]]) as usize;
        assert_eq!((len, out.len()), (512, 26 + 512));
        assert!(std::str::from_utf8(&out[26..]).is_ok());
        out.clear();
        error_chunk(&mut out, false, 7, 0, 22, &("x".to_owned() + &"ä".repeat(400)));
        assert_eq!(out.len(), 26 + 511);
    }

    #[test]
    fn a_run_of_more_than_four_gibibytes_is_cut_and_ends_the_status() {
        let mut out = vec![];
        block_status(&mut out, false, (7, 0), (3, true), &[(4096, 0), (5 << 30, 3), (4096, 0)]);
        assert_eq!(out.len(), 20 + 4 + 2 * 8);
        assert_eq!(out[32..36], 0xffff_0000u32.to_be_bytes());
        out.clear();
        block_status(&mut out, true, (7, 0), (3, true), &[(4096, 0), (5 << 30, 3), (4096, 0)]);
        assert_eq!(out.len(), 32 + 8 + 3 * 16);
    }

    #[test]
    fn with_extended_headers_every_reply_repeats_the_offset_of_the_request() {
        let (head, mut out) = (none_chunk(true, 7, 512), vec![]);
        assert_eq!(head.len(), 32);
        assert_eq!(head[16..24], 512u64.to_be_bytes());
        error_chunk(&mut out, true, 7, 512, 22, "why");
        assert_eq!(out[16..24], 512u64.to_be_bytes());
        assert_eq!(out[24..32], 9u64.to_be_bytes(), "error, length of the message, message");
        out.clear();
        block_status(&mut out, true, (7, 512), (3, true), &[(4096, 0)]);
        assert_eq!(out[16..24], 512u64.to_be_bytes());
        assert_eq!(out[32..40], [0, 0, 0, 3, 0, 0, 0, 1], "context, count");
    }

    #[test]
    fn errors_that_the_protocol_has_no_word_for_become_their_meaning() {
        assert_eq!(nbd_error(Errno::ENOSPC), 28);
        assert_eq!(nbd_error(Errno(122)), 28, "over quota is no space");
        assert_eq!(nbd_error(Errno(30)), 1, "a read-only file system is no permission");
        assert_eq!(nbd_error(Errno::ETIMEDOUT), 5);
    }
}
