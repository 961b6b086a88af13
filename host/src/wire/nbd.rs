//! The NBD wire format: constants, and the codec of the transmission phase.
//!
//! Pure: bytes in, values out. Everything is big-endian. Numbers and section names are those of the protocol text,
//! `doc/proto.md` of the NBD project.

pub mod answers;
pub mod greeting;

use fairlift_core::Errno;

// ---- handshake ("Handshake phase", "Fixed newstyle negotiation") ----

/// The first eight bytes of a server.
pub const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Before every option of a client, and after [`MAGIC`].
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Before every reply to an option.
pub const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// Server flag: options are answered, so a client may try any.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1;
/// Server flag: the 124 zero bytes after `EXPORT_NAME` can be left out.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;
/// Client flag, as [`FLAG_FIXED_NEWSTYLE`].
pub const CLIENT_FIXED_NEWSTYLE: u32 = 1;
/// Client flag, as [`FLAG_NO_ZEROES`].
pub const CLIENT_NO_ZEROES: u32 = 1 << 1;

/// Chooses an export and ends the negotiation, with no way to say why not.
pub const OPT_EXPORT_NAME: u32 = 1;
/// Ends the negotiation.
pub const OPT_ABORT: u32 = 2;
/// Asks for the names of all exports.
pub const OPT_LIST: u32 = 3;
/// Goes over to TLS.
pub const OPT_STARTTLS: u32 = 5;
/// Asks about an export.
pub const OPT_INFO: u32 = 6;
/// Chooses an export and ends the negotiation.
pub const OPT_GO: u32 = 7;
/// Asks for structured replies.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// Asks for the metadata contexts that an export has.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// Chooses metadata contexts.
pub const OPT_SET_META_CONTEXT: u32 = 10;
/// Asks for 64-bit lengths.
pub const OPT_EXTENDED_HEADERS: u32 = 11;

/// Yes, or the end of several replies.
pub const REP_ACK: u32 = 1;
/// An export's name.
pub const REP_SERVER: u32 = 2;
/// Something about an export.
pub const REP_INFO: u32 = 3;
/// A metadata context.
pub const REP_META_CONTEXT: u32 = 4;
/// An option that this server does not know.
pub const REP_ERR_UNSUP: u32 = 1 << 31 | 1;
/// Not allowed here.
pub const REP_ERR_POLICY: u32 = 1 << 31 | 2;
/// Malformed, or not now.
pub const REP_ERR_INVALID: u32 = 1 << 31 | 3;
/// TLS first.
pub const REP_ERR_TLS_REQD: u32 = 1 << 31 | 5;
/// No such export.
pub const REP_ERR_UNKNOWN: u32 = 1 << 31 | 6;
/// More than this server takes.
pub const REP_ERR_TOO_BIG: u32 = 1 << 31 | 9;
/// Only with extended headers.
pub const REP_ERR_EXT_HEADER_REQD: u32 = 1 << 31 | 10;

/// Size and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// The name.
pub const INFO_NAME: u16 = 1;
/// A description for people.
pub const INFO_DESCRIPTION: u16 = 2;
/// Smallest, preferred and largest request.
pub const INFO_BLOCK_SIZE: u16 = 3;

// ---- transmission flags ----

/// Always set.
pub const FLAG_HAS_FLAGS: u16 = 1;
/// Clients may not write.
pub const FLAG_READ_ONLY: u16 = 1 << 1;
/// Clients may flush.
pub const FLAG_SEND_FLUSH: u16 = 1 << 2;
/// Clients may ask for single writes to be durable.
pub const FLAG_SEND_FUA: u16 = 1 << 3;
/// Neighbouring requests are served faster.
pub const FLAG_ROTATIONAL: u16 = 1 << 4;
/// Clients may discard.
pub const FLAG_SEND_TRIM: u16 = 1 << 5;
/// Clients may write zeroes without sending them.
pub const FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Clients may ask for reads in one piece.
pub const FLAG_SEND_DF: u16 = 1 << 7;
/// A flush of one connection counts for all.
pub const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
/// Clients may say what they will read.
pub const FLAG_SEND_CACHE: u16 = 1 << 10;
/// Clients may ask for zeroes only if that is fast.
pub const FLAG_SEND_FAST_ZERO: u16 = 1 << 11;

// ---- requests ("Request message") ----

const REQUEST_MAGIC: u32 = 0x2560_9513;
const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// The length of a request header.
pub const REQUEST_LEN: usize = 28;
/// The length of a request header with extended headers.
pub const EXTENDED_REQUEST_LEN: usize = 32;

/// Durable before the reply.
pub const CMD_FLAG_FUA: u16 = 1;
/// Zeroes stay allocated.
pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// A read in one piece.
pub const CMD_FLAG_DF: u16 = 1 << 2;
/// One run of block status.
pub const CMD_FLAG_REQ_ONE: u16 = 1 << 3;
/// Fail if it is not faster than writing.
pub const CMD_FLAG_FAST_ZERO: u16 = 1 << 4;
/// With extended headers: the length is that of a payload.
pub const CMD_FLAG_PAYLOAD_LEN: u16 = 1 << 5;

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
    const fn number(self) -> u16 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Disconnect => 2,
            Self::Flush => 3,
            Self::Trim => 4,
            Self::Cache => 5,
            Self::WriteZeroes => 6,
            Self::BlockStatus => 7,
            Self::Unknown(number) => number,
        }
    }
}

impl From<u16> for Command {
    fn from(number: u16) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            other => Self::Unknown(other),
        }
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
    let Some((magic, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let magic = u32::from_be_bytes(*magic);
    if magic != if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC } {
        return Err(BadMagic(magic));
    }
    let Some((flags, rest)) = rest.split_first_chunk() else { return Ok(None) };
    let Some((command, rest)) = rest.split_first_chunk() else { return Ok(None) };
    let Some((cookie, rest)) = rest.split_first_chunk() else { return Ok(None) };
    let Some((offset, rest)) = rest.split_first_chunk() else { return Ok(None) };
    let length = if extended {
        rest.first_chunk().map(|length| u64::from_be_bytes(*length))
    } else {
        rest.first_chunk().map(|length| u64::from(u32::from_be_bytes(*length)))
    };
    let Some(length) = length else { return Ok(None) };
    let header = RequestHeader {
        flags: u16::from_be_bytes(*flags),
        command: u16::from_be_bytes(*command).into(),
        cookie: u64::from_be_bytes(*cookie),
        offset: u64::from_be_bytes(*offset),
        length,
    };
    Ok(Some((header, if extended { EXTENDED_REQUEST_LEN } else { REQUEST_LEN })))
}

/// Appends a request without extended headers, up to its payload.
///
/// # Panics
/// If its length does not fit 32 bits, or its command is not known.
pub fn encode_request(out: &mut Vec<u8>, header: &RequestHeader) {
    let length = u32::try_from(header.length).expect("a request is cut to a length of 32 bits");
    encode_beginning(out, REQUEST_MAGIC, header);
    out.extend_from_slice(&length.to_be_bytes());
}

/// Appends a request with extended headers, up to its payload.
pub fn encode_extended_request(out: &mut Vec<u8>, header: &RequestHeader) {
    encode_beginning(out, EXTENDED_REQUEST_MAGIC, header);
    out.extend_from_slice(&header.length.to_be_bytes());
}

fn encode_beginning(out: &mut Vec<u8>, magic: u32, header: &RequestHeader) {
    out.extend_from_slice(&magic.to_be_bytes());
    out.extend_from_slice(&header.flags.to_be_bytes());
    out.extend_from_slice(&header.command.number().to_be_bytes());
    out.extend_from_slice(&header.cookie.to_be_bytes());
    out.extend_from_slice(&header.offset.to_be_bytes());
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

/// In block status: nothing is allocated.
pub const STATE_HOLE: u32 = 1;
/// In block status: reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;
/// In `qemu:dirty-bitmap:`: changed.
pub const STATE_DIRTY: u32 = 1;

/// The most bytes of an error message that are sent. Chosen: several lines of a terminal; the protocol allows 4096.
const MESSAGE_MAX: usize = 512;

/// Room for any header that a reply may start with.
pub type Head = [u8; 64];

/// Writes a simple reply; its length.
#[inline]
pub fn simple_reply(head: &mut Head, error: u32, cookie: u64) -> usize {
    head[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    head[4..8].copy_from_slice(&error.to_be_bytes());
    head[8..16].copy_from_slice(&cookie.to_be_bytes());
    16
}

/// Writes the chunk that says "done" and nothing else, as extended headers want it; its length.
#[inline]
pub fn none_chunk(head: &mut Head, extended: bool, cookie: u64, offset: u64) -> usize {
    chunk(head, extended, CHUNK_NONE, cookie, offset, 0)
}

/// Writes the only chunk of a read, up to its data: `len` bytes from `offset` on; its length.
#[inline]
pub fn offset_data_header(head: &mut Head, extended: bool, cookie: u64, offset: u64, len: u64) -> usize {
    let used = chunk(head, extended, CHUNK_OFFSET_DATA, cookie, offset, len + 8);
    head[used..used + 8].copy_from_slice(&offset.to_be_bytes());
    used + 8
}

/// Writes the only chunk of a read that found nothing but zeroes: `len` bytes of them from `offset` on; its length.
#[inline]
pub fn offset_hole(head: &mut Head, extended: bool, cookie: u64, offset: u64, len: u64) -> usize {
    let used = chunk(head, extended, CHUNK_OFFSET_HOLE, cookie, offset, 12);
    head[used..used + 8].copy_from_slice(&offset.to_be_bytes());
    let len = u32::try_from(len).expect("a read is no longer than the largest request");
    head[used + 8..used + 12].copy_from_slice(&len.to_be_bytes());
    used + 12
}

/// Writes the header of the last chunk of a reply; its length. With extended headers it repeats the request's offset.
#[inline]
fn chunk(head: &mut Head, extended: bool, kind: u16, cookie: u64, offset: u64, len: u64) -> usize {
    let magic = if extended { EXTENDED_CHUNK_MAGIC } else { CHUNK_MAGIC };
    head[..4].copy_from_slice(&magic.to_be_bytes());
    head[4..6].copy_from_slice(&CHUNK_DONE.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&cookie.to_be_bytes());
    if extended {
        head[16..24].copy_from_slice(&offset.to_be_bytes());
        head[24..32].copy_from_slice(&len.to_be_bytes());
        32
    } else {
        let len = u32::try_from(len).expect("a chunk is no longer than the largest request");
        head[16..20].copy_from_slice(&len.to_be_bytes());
        20
    }
}

/// Appends the chunk that ends a request with an error, and says why.
pub fn error_chunk(out: &mut Vec<u8>, extended: bool, cookie: u64, offset: u64, error: u32, why: &str) {
    let mut end = why.len().min(MESSAGE_MAX);
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    let why = &why[..end];
    let mut head = [0; 64];
    let used = chunk(&mut head, extended, CHUNK_ERROR, cookie, offset, why.len() as u64 + 6);
    out.extend_from_slice(&head[..used]);
    out.extend_from_slice(&error.to_be_bytes());
    out.extend_from_slice(&(why.len() as u16).to_be_bytes());
    out.extend_from_slice(why.as_bytes());
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
    let mut head = [0; 64];
    let used = chunk(&mut head, extended, kind, cookie, offset, len);
    if !last {
        head[4..6].fill(0); // without CHUNK_DONE
    }
    out.extend_from_slice(&head[..used]);
    out.extend_from_slice(&context.to_be_bytes());
    if extended {
        out.extend_from_slice(&(count as u32).to_be_bytes());
        for (len, state) in runs {
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(&u64::from(*state).to_be_bytes());
        }
        return;
    }
    for (len, state) in &runs[..count] {
        out.extend_from_slice(&((*len).min(LONGEST) as u32).to_be_bytes());
        out.extend_from_slice(&state.to_be_bytes());
    }
}

/// The meaning of a server's error; a number that the protocol does not have is taken as `EIO`.
#[must_use]
pub fn errno(error: u32) -> Errno {
    let known = [
        Errno::EPERM,
        Errno::EIO,
        Errno::ENOMEM,
        Errno::EINVAL,
        Errno::ENOSPC,
        Errno::EOVERFLOW,
        Errno::ENOTSUP,
        Errno::ESHUTDOWN,
    ];
    known.into_iter().find(|errno| errno.0 as u32 == error).unwrap_or(Errno::EIO)
}

/// The protocol's name of an error ("Error values"): some as they are, the rest by their meaning to a client.
#[must_use]
pub fn nbd_error(errno: Errno) -> u32 {
    const EACCES: i32 = 13;
    const EROFS: i32 = 30;
    match errno {
        Errno::EPERM
        | Errno::EIO
        | Errno::ENOMEM
        | Errno::EINVAL
        | Errno::ENOSPC
        | Errno::EOVERFLOW
        | Errno::ENOTSUP
        | Errno::ESHUTDOWN => errno.0 as u32,
        Errno(EACCES | EROFS) => Errno::EPERM.0 as u32,
        Errno::EFBIG | Errno::EDQUOT => Errno::ENOSPC.0 as u32,
        _ => Errno::EIO.0 as u32,
    }
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
        let mut head = [0; 64];
        assert_eq!(simple_reply(&mut head, 28, 7), 16);
        assert_eq!(head[..16], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn a_read_chunk_counts_its_offset_in_its_length() {
        let mut head = [0; 64];
        assert_eq!(offset_data_header(&mut head, false, 7, 512, 4096), 28);
        assert_eq!(head[4..8], [0, 1, 0, 1], "done, offset data");
        assert_eq!(head[16..20], 4104u32.to_be_bytes());
        assert_eq!(head[20..28], 512u64.to_be_bytes());
        assert_eq!(offset_data_header(&mut head, true, 7, 512, 4096), 40);
        assert_eq!(head[24..32], 4104u64.to_be_bytes());
    }

    #[test]
    fn a_hole_is_told_in_a_few_bytes() {
        let mut head = [0; 64];
        assert_eq!(offset_hole(&mut head, false, 7, 512, 4096), 32);
        assert_eq!(head[4..8], [0, 1, 0, 2], "done, offset hole");
        assert_eq!(head[16..32], [0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 16, 0]);
        assert_eq!(offset_hole(&mut head, true, 7, 512, 4096), 44);
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
        let (mut head, mut out) = ([0; 64], vec![]);
        assert_eq!(none_chunk(&mut head, true, 7, 512), 32);
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
