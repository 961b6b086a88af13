//! The negotiation of fixed newstyle NBD, as a pure state machine: bytes in, replies and a [`Advance`] out.
//!
//! Sections named are those of the protocol text, `doc/proto.md` of the NBD project.
//!
//! handshake.1  An option is acted upon when it is there whole; what a client announces takes no memory.
//! handshake.2  An option beyond a bound is answered, passed over, and forgotten ([`Handshake::DATA_MAX`] and its neighbours).
//! handshake.3  Where TLS is required nothing is told before it, and nothing that was negotiated before it counts after it.
//! handshake.4  A metadata context counts only for the export that it was chosen for.

use serde::{Deserialize, Serialize};

use super::proto::*;
use crate::config::Tls;
use crate::wire::bytes::{Put as _, Take};

/// The exports open to connection.
pub trait Catalogue {
    /// The export that answers to `name`.
    fn find(&self, name: &str) -> Option<ExportInfo<'_>>;
    /// Shows every export.
    fn for_each(&self, visit: &mut dyn FnMut(&ExportInfo<'_>));
    /// How many there are.
    fn count(&self) -> usize {
        let mut count = 0;
        self.for_each(&mut |_| count += 1);
        count
    }
    /// The client chooses an export that was found: it as this connection has it; `None`: the client has connections enough.
    fn enter<'a>(&'a self, export: ExportInfo<'a>) -> Option<ExportInfo<'a>> {
        Some(export)
    }
}

/// The description of an export for a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportInfo<'a> {
    /// The caller's number for it.
    pub index: usize,
    /// Its name.
    pub name: &'a str,
    /// A description for people; empty if there is none.
    pub description: &'a str,
    /// Bytes.
    pub size: u64,
    /// `FLAG_*` of [`super::proto`].
    pub transmission_flags: u16,
    /// The smallest request, in bytes.
    pub block_min: u32,
    /// The request that is served best, in bytes.
    pub block_preferred: u32,
    /// The largest read or write, in bytes.
    pub block_max: u32,
    /// The name of its change bitmap, if it has one.
    pub changes: Option<&'a str>,
}

/// The next step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Advance {
    /// More bytes.
    NeedMore,
    /// TLS: when all output so far has been sent, the connection is encrypted, and [`Handshake::tls_established`] said.
    ///
    /// Bytes that follow in plain text, used or not, are an attack or a mistake: close the connection. Bytes that were not used are such;
    /// so are all bytes for [`Handshake::receive`] before [`Handshake::tls_established`], which it answers with [`Advance::Close`].
    StartTls,
    /// Requests.
    Ready(Session),
    /// The end, when all output has been sent: the reason, for the log; empty if the client asked for it.
    Close(String),
}

/// The negotiated options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// [`ExportInfo::index`] of the export.
    pub export: usize,
    /// Reads are answered by structured replies.
    pub structured: bool,
    /// Lengths have 64 bits, and every reply is structured.
    pub extended: bool,
    /// The contexts of block status.
    pub contexts: Contexts,
}

/// Metadata contexts that were chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Contexts {
    /// `base:allocation`
    pub allocation: bool,
    /// `qemu:dirty-bitmap:` and the name that the export gives.
    pub changes: bool,
}

impl Contexts {
    /// The number of `base:allocation`: any will do.
    pub const ALLOCATION: u32 = 1;
    /// The number of the context of changed blocks.
    pub const CHANGES: u32 = 2;

    /// Whether none was chosen.
    #[must_use]
    pub const fn is_none(self) -> bool {
        !self.allocation && !self.changes
    }
}

/// The negotiation with one client, which another server can go on with: unless it is about to be encrypted.
#[derive(Debug, Serialize, Deserialize)]
pub struct Handshake {
    tls: Tls,
    #[serde(default)]
    encrypted: bool,
    #[serde(rename = "awaits")]
    state: State,
    /// How many bytes of an answered option's data are to come.
    skip: u32,
    no_zeroes: bool,
    /// How many options the client has asked for.
    pub(super) options: u32,
    structured: bool,
    extended: bool,
    /// The export that contexts were chosen for.
    chosen_for: Option<Box<str>>,
    #[serde(flatten)]
    contexts: Contexts,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// The client's flags come.
    Flags,
    /// An option comes.
    Option,
    /// STARTTLS was accepted: nothing may come before the connection is encrypted.
    #[serde(skip)]
    Tls,
    /// The data of an option that was answered already is passed over.
    Skip,
}

const ALLOCATION: &str = "base:allocation";
/// Its namespace is QEMU's, `docs/interop/nbd.rst` there.
const CHANGES: &str = "qemu:dirty-bitmap:";
/// Said to a client that may open an export, but not by one more connection.
const ENOUGH: &str = "this client has as many connections as it may have (max_connections)";

impl Handshake {
    /// The most bytes of an option's data. Chosen: several times the longest that is of use, a name and its contexts.
    pub const DATA_MAX: u32 = 64 << 10;
    /// The most bytes of an export's name: the protocol's ("Terminology": strings).
    pub const NAME_MAX: usize = 4096;
    /// The most options of one client. Chosen: many times what a client needs to choose an export.
    pub const OPTIONS_MAX: u32 = 256;
    /// A LIST counts as this many options. Chosen: a few bytes of it ask for an answer as long as the catalogue, so a client may
    /// have that sixteen times.
    pub const LIST_COST: u32 = 16;

    /// Greets a client.
    pub fn new(tls: Tls, out: &mut Vec<u8>) -> Self {
        out.u64(MAGIC).u64(OPTION_MAGIC).u16(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        Self {
            tls,
            encrypted: false,
            state: State::Flags,
            skip: 0,
            no_zeroes: false,
            options: 0,
            structured: false,
            extended: false,
            chosen_for: None,
            contexts: Contexts::default(),
        }
    }

    /// Whether it is about to be encrypted.
    pub(super) fn begins_tls(&self) -> bool {
        self.state == State::Tls
    }

    /// The connection is encrypted from now on; all that was negotiated before is forgotten (handshake.3).
    pub fn tls_established(&mut self) {
        self.encrypted = true;
        self.state = State::Option;
        (self.structured, self.extended, self.chosen_for) = (false, false, None);
    }

    /// Uses as many of `bytes` as it can, appends the replies to `out`, and answers the number of used bytes and the next step.
    ///
    /// Unused bytes have to be given again with those that follow.
    pub fn receive(&mut self, bytes: &[u8], exports: &dyn Catalogue, out: &mut Vec<u8>) -> (usize, Advance) {
        let mut used = 0;
        while let Some((part, step)) = self.next(&bytes[used..], exports, out) {
            used += part;
            if step != Advance::NeedMore {
                return (used, step);
            }
        }
        (used, Advance::NeedMore)
    }

    /// Uses the bytes that come next; how many, and the next step. `None`: they are not there whole.
    fn next(&mut self, bytes: &[u8], exports: &dyn Catalogue, out: &mut Vec<u8>) -> Option<(usize, Advance)> {
        let mut rest = Take(bytes);
        match self.state {
            State::Flags => {
                let flags = rest.u32()?;
                if flags & !(CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES) != 0 {
                    return Some((4, Advance::Close(format!("unknown client flags {flags:#x}"))));
                }
                self.no_zeroes = flags & CLIENT_NO_ZEROES != 0;
                self.state = State::Option;
                Some((4, Advance::NeedMore))
            }
            State::Tls if bytes.is_empty() => None,
            State::Tls => Some((0, Advance::Close("plain text after STARTTLS".into()))), // handshake.3
            State::Skip => {
                let part = bytes.len().min(self.skip as usize);
                self.skip -= part as u32;
                if self.skip == 0 {
                    self.state = State::Option;
                } else if part == 0 {
                    return None;
                }
                Some((part, Advance::NeedMore))
            }
            State::Option => {
                if rest.u64()? != OPTION_MAGIC {
                    return Some((0, Advance::Close("an option does not start with its magic".into())));
                }
                let (option, len) = (rest.u32()?, rest.u32()?);
                if option == OPT_EXPORT_NAME && len as usize > Self::NAME_MAX {
                    return Some((0, Advance::Close(format!("an export name of {len} bytes")))); // handshake.2
                }
                // handshake.1, handshake.2
                let data = if len <= Self::DATA_MAX { Ok(rest.bytes(len as usize)?) } else { Err(len) };
                self.options += if option == OPT_LIST { Self::LIST_COST } else { 1 };
                if self.options > Self::OPTIONS_MAX {
                    return Some((0, Advance::Close(format!("more than {} options", Self::OPTIONS_MAX))));
                }
                if data.is_err() {
                    (self.state, self.skip) = (State::Skip, len);
                }
                Some((16 + data.map_or(0, <[u8]>::len), self.option(option, data, exports, out)))
            }
        }
    }

    /// Nothing may be told yet (handshake.3).
    fn wants_tls(&self) -> bool {
        self.tls == Tls::Required && !self.encrypted
    }

    /// Answers an option; instead of its data its length is given if that is beyond the bound.
    fn option(&mut self, option: u32, data: Result<&[u8], u32>, exports: &dyn Catalogue, out: &mut Vec<u8>) -> Advance {
        if self.wants_tls() {
            match option {
                OPT_STARTTLS | OPT_ABORT => {}
                OPT_EXPORT_NAME => {
                    return Advance::Close("TLS is required, and the client chose an export without".into());
                }
                _ => return error(out, option, REP_ERR_TLS_REQD, "TLS is required here: send STARTTLS first"),
            }
        }
        let data = match data {
            Ok(data) => data,
            Err(len) => {
                let most = Self::DATA_MAX;
                return error(out, option, REP_ERR_TOO_BIG, &format!("{len} bytes of data; at most {most} are taken"));
            }
        };
        match option {
            OPT_EXPORT_NAME => self.export_name(data, exports, out),
            OPT_ABORT => {
                reply(out, option, REP_ACK, &[]);
                Advance::Close(String::new())
            }
            OPT_LIST if !data.is_empty() => invalid(out, option, "LIST takes no data"),
            OPT_LIST => {
                exports.for_each(&mut |export| {
                    let (name, description) = (export.name.as_bytes(), export.description.as_bytes());
                    reply(out, option, REP_SERVER, &[&(name.len() as u32).to_be_bytes(), name, description]);
                });
                reply(out, option, REP_ACK, &[])
            }
            OPT_STARTTLS => self.start_tls(data, out),
            OPT_INFO | OPT_GO => self.info_or_go(option, data, exports, out),
            OPT_STRUCTURED_REPLY | OPT_EXTENDED_HEADERS if !data.is_empty() => {
                invalid(out, option, "this option takes no data")
            }
            // "NBD_OPT_STRUCTURED_REPLY": the client asks for less than it has.
            OPT_STRUCTURED_REPLY if self.extended => {
                error(out, option, REP_ERR_EXT_HEADER_REQD, "extended headers were negotiated already")
            }
            OPT_STRUCTURED_REPLY | OPT_EXTENDED_HEADERS => {
                (self.structured, self.extended) = (true, option == OPT_EXTENDED_HEADERS || self.extended);
                reply(out, option, REP_ACK, &[])
            }
            OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => self.meta_context(option, data, exports, out),
            _ => error(out, option, REP_ERR_UNSUP, &format!("option {option} is not known here")),
        }
    }

    /// "NBD_OPT_EXPORT_NAME": there is no way to refuse but to close.
    fn export_name(&mut self, data: &[u8], exports: &dyn Catalogue, out: &mut Vec<u8>) -> Advance {
        let Some(export) = std::str::from_utf8(data).ok().and_then(|name| exports.find(name)) else {
            return Advance::Close(format!("no export \"{}\"", printable(data)));
        };
        if self.extended {
            return Advance::Close("EXPORT_NAME after EXTENDED_HEADERS".into());
        }
        let Some(export) = exports.enter(export) else { return Advance::Close(ENOUGH.into()) };
        let zeroes: &[u8] = if self.no_zeroes { &[] } else { &[0; 124] };
        out.u64(export.size).u16(self.transmission_flags(&export)).bytes(zeroes);
        Advance::Ready(self.session(&export))
    }

    fn start_tls(&mut self, data: &[u8], out: &mut Vec<u8>) -> Advance {
        if !data.is_empty() {
            return invalid(out, OPT_STARTTLS, "STARTTLS takes no data");
        }
        if self.encrypted {
            return invalid(out, OPT_STARTTLS, "the connection is encrypted already");
        }
        if self.tls == Tls::Off {
            return error(out, OPT_STARTTLS, REP_ERR_POLICY, "TLS is not set up here");
        }
        reply(out, OPT_STARTTLS, REP_ACK, &[]);
        self.state = State::Tls;
        Advance::StartTls
    }

    /// "NBD_OPT_INFO" and "NBD_OPT_GO".
    fn info_or_go(&mut self, option: u32, data: &[u8], exports: &dyn Catalogue, out: &mut Vec<u8>) -> Advance {
        let mut data = Take(data);
        let (Some(name), Some(count)) = (data.string(), data.u16()) else {
            return invalid(out, option, "malformed: a name and a list of requests are needed");
        };
        let wanted: Option<Vec<u16>> = (0..count).map(|_| data.u16()).collect();
        let (Some(wanted), true) = (wanted, data.0.is_empty()) else {
            return invalid(out, option, "malformed: the list of requests has not the length that it says");
        };
        let Some(export) = self.find(option, name, exports, out) else { return Advance::NeedMore };
        let entered = if option == OPT_GO { exports.enter(export) } else { Some(export) };
        let Some(export) = entered else { return error(out, option, REP_ERR_POLICY, ENOUGH) };
        let mut info = |kind: u16, data: &[u8]| reply(out, option, REP_INFO, &[&kind.to_be_bytes(), data]);
        let mut size_and_flags = Vec::new();
        size_and_flags.u64(export.size).u16(self.transmission_flags(&export));
        info(INFO_EXPORT, &size_and_flags);
        // A client that did not ask may ignore it ("Block size constraints").
        let sizes = [export.block_min, export.block_preferred, export.block_max].map(u32::to_be_bytes);
        info(INFO_BLOCK_SIZE, &sizes.concat());
        if wanted.contains(&INFO_NAME) {
            info(INFO_NAME, export.name.as_bytes());
        }
        if wanted.contains(&INFO_DESCRIPTION) && !export.description.is_empty() {
            info(INFO_DESCRIPTION, export.description.as_bytes());
        }
        reply(out, option, REP_ACK, &[]);
        if option == OPT_GO { Advance::Ready(self.session(&export)) } else { Advance::NeedMore }
    }

    /// "NBD_OPT_LIST_META_CONTEXT" and "NBD_OPT_SET_META_CONTEXT".
    fn meta_context(&mut self, option: u32, data: &[u8], exports: &dyn Catalogue, out: &mut Vec<u8>) -> Advance {
        let set = option == OPT_SET_META_CONTEXT;
        if set {
            self.chosen_for = None; // a new choice replaces the old one, even if it fails
        }
        if !self.structured {
            return invalid(out, option, "metadata contexts need structured replies: negotiate them first");
        }
        let mut data = Take(data);
        let (Some(name), Some(count)) = (data.string(), data.u32()) else {
            return invalid(out, option, "malformed: a name and a list of queries are needed");
        };
        let all = count == 0 && !set; // an empty list asks for all there are
        let queries = data.0;
        for _ in 0..count {
            if data.string().is_none() {
                return invalid(out, option, "malformed: the list of queries has not the length that it says");
            }
        }
        if !data.0.is_empty() {
            return invalid(out, option, "malformed: there is more than the list of queries");
        }
        let Some(export) = self.find(option, name, exports, out) else { return Advance::NeedMore };
        let changes = export.changes.map(|name| format!("{CHANGES}{name}"));
        let mut contexts = Contexts { allocation: all, changes: all && changes.is_some() };
        let mut queries = Take(queries);
        while let Some(query) = queries.string() {
            contexts.allocation |= query == ALLOCATION.as_bytes() || (!set && query == b"base:");
            contexts.changes |= changes.as_ref().is_some_and(|name| {
                query == name.as_bytes() || (!set && (query == b"qemu:" || query == CHANGES.as_bytes()))
            });
        }
        let mut tell = |is: bool, id: u32, name: &str| {
            if is {
                let id = if set { id } else { 0 };
                reply(out, option, REP_META_CONTEXT, &[&id.to_be_bytes(), name.as_bytes()]);
            }
        };
        tell(contexts.allocation, Contexts::ALLOCATION, ALLOCATION);
        tell(contexts.changes, Contexts::CHANGES, changes.as_deref().unwrap_or_default());
        if set {
            (self.chosen_for, self.contexts) = (Some(export.name.into()), contexts);
        }
        reply(out, option, REP_ACK, &[])
    }

    /// The export of that name, or an answer that there is none.
    fn find<'a>(
        &self,
        option: u32,
        name: &[u8],
        exports: &'a dyn Catalogue,
        out: &mut Vec<u8>,
    ) -> Option<ExportInfo<'a>> {
        if name.len() > Self::NAME_MAX {
            error(out, option, REP_ERR_TOO_BIG, "an export's name has at most 4096 bytes");
            return None;
        }
        let found = std::str::from_utf8(name).ok().and_then(|name| exports.find(name));
        if found.is_none() {
            let (count, name) = (exports.count(), printable(name));
            let why = format!("no export \"{name}\" here; LIST shows the {count} there are");
            error(out, option, REP_ERR_UNKNOWN, &why);
        }
        found
    }

    /// "Transmission flags": reads in one piece are offered only to those whose reads could come in several.
    fn transmission_flags(&self, export: &ExportInfo<'_>) -> u16 {
        let flags = export.transmission_flags;
        if self.structured { flags } else { flags & !FLAG_SEND_DF }
    }

    fn session(&self, export: &ExportInfo<'_>) -> Session {
        Session {
            export: export.index,
            structured: self.structured,
            extended: self.extended,
            contexts: match self.chosen_for.as_deref() == Some(export.name) {
                true => self.contexts, // handshake.4
                false => Contexts::default(),
            },
        }
    }
}

/// Appends a reply to an option; `parts` one after the other are its data. The negotiation goes on.
fn reply(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) -> Advance {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.u64(REPLY_MAGIC).u32(option).u32(kind).u32(len as u32);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    Advance::NeedMore
}

fn error(out: &mut Vec<u8>, option: u32, kind: u32, why: &str) -> Advance {
    reply(out, option, kind, &[why.as_bytes()])
}

/// The start of a name as a client sent it, fit for a log and for a message, in which the protocol wants no NUL.
fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().take(64).flat_map(char::escape_debug).collect()
}

fn invalid(out: &mut Vec<u8>, option: u32, why: &str) -> Advance {
    error(out, option, REP_ERR_INVALID, why)
}

#[cfg(test)]
mod tests;
