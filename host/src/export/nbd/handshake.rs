//! The negotiation of fixed newstyle NBD, as a pure state machine: bytes in, replies and a [`Step`] out.
//!
//! Sections named are those of the protocol text, `doc/proto.md` of the NBD project.
//!
//! H1  An option is acted upon when it is there whole; what a client announces takes no memory.
//! H2  What goes beyond a bound is answered, passed over, and forgotten ([`Handshake::DATA_MAX`] and its neighbours).
//! H3  Where TLS is required nothing is told before it, and nothing that was negotiated before it counts after it.
//! H4  A metadata context counts only for the export that it was chosen for.

use super::proto::*;

/// What can be connected to.
pub trait Catalogue {
    /// The export that answers to `name`.
    fn find(&self, name: &str) -> Option<ExportInfo<'_>>;
    /// Shows every export.
    fn for_each(&self, visit: &mut dyn FnMut(&ExportInfo<'_>));
}

/// What a client is told of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportInfo<'a> {
    /// The caller's number for it.
    pub index: usize,
    /// Its name.
    pub name: &'a str,
    /// What it is, for people; empty if nothing is said.
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
}

/// Whether TLS is spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsPolicy {
    /// Never.
    Off,
    /// If the client asks.
    Optional,
    /// Always.
    Required,
}

/// What comes next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// More bytes.
    NeedMore,
    /// TLS: when all output so far has been sent, the connection is encrypted, and [`Handshake::tls_established`] said.
    ///
    /// Bytes that follow in plain text, used or not, are an attack or a mistake: close the connection. Bytes that were
    /// not used are such; so is whatever [`Handshake::receive`] is given before [`Handshake::tls_established`], which
    /// it answers with [`Step::Close`].
    StartTls,
    /// Requests.
    Ready(Session),
    /// The end, when all output has been sent: the reason, for the log; empty if the client asked for it.
    Close(String),
}

/// What was negotiated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// [`ExportInfo::index`] of the export.
    pub export: usize,
    /// Reads are answered by structured replies.
    pub structured: bool,
    /// Lengths have 64 bits, and every reply is structured.
    pub extended: bool,
    /// `base:allocation` may be asked for.
    pub allocation_context: bool,
    /// The number under which it is told.
    pub context_id: u32,
}

/// The negotiation with one client.
#[derive(Debug)]
pub struct Handshake {
    tls: TlsPolicy,
    encrypted: bool,
    state: State,
    no_zeroes: bool,
    options: u32,
    structured: bool,
    extended: bool,
    /// The export that `base:allocation` was chosen for.
    context: Option<Box<str>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The client's flags come.
    Flags,
    /// An option comes.
    Option,
    /// STARTTLS was accepted: nothing may come before the connection is encrypted.
    Tls,
    /// The data of an option that was answered already: so many bytes are passed over.
    Skip(u32),
}

const CONTEXT_NAME: &str = "base:allocation";
/// The number of `base:allocation`: any will do.
const CONTEXT_ID: u32 = 1;

impl Handshake {
    /// The most bytes of an option's data.
    pub const DATA_MAX: u32 = 64 << 10;
    /// The most bytes of an export's name ("Terminology": strings).
    pub const NAME_MAX: usize = 4096;
    /// The most options of one client.
    pub const OPTIONS_MAX: u32 = 256;
    /// LIST counts as so many options: a few bytes of it ask for an answer as long as the catalogue.
    pub const LIST_COST: u32 = 16;

    /// Greets a client.
    pub fn new(tls: TlsPolicy, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&MAGIC.to_be_bytes());
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        Self {
            tls,
            encrypted: false,
            state: State::Flags,
            no_zeroes: false,
            options: 0,
            structured: false,
            extended: false,
            context: None,
        }
    }

    /// The connection is encrypted from now on; all that was negotiated before is forgotten (H3).
    pub fn tls_established(&mut self) {
        self.encrypted = true;
        self.state = State::Option;
        (self.structured, self.extended, self.context) = (false, false, None);
    }

    /// Uses as many of `bytes` as it can, appends the replies to `out`, and says how many were used and what comes next.
    ///
    /// What was not used is to be given again with what follows it.
    pub fn receive(&mut self, bytes: &[u8], exports: &dyn Catalogue, out: &mut Vec<u8>) -> (usize, Step) {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            match self.state {
                State::Flags => {
                    let Some(flags) = rest.first_chunk() else { return (used, Step::NeedMore) };
                    used += 4;
                    let flags = u32::from_be_bytes(*flags);
                    if flags & !(CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES) != 0 {
                        return (used, Step::Close(format!("unknown client flags {flags:#x}")));
                    }
                    self.no_zeroes = flags & CLIENT_NO_ZEROES != 0;
                    self.state = State::Option;
                }
                State::Tls if rest.is_empty() => return (used, Step::NeedMore),
                State::Tls => return (used, Step::Close("plain text after STARTTLS".into())), // H3
                State::Skip(left) => {
                    let part = rest.len().min(left as usize);
                    used += part;
                    match left - part as u32 {
                        0 => self.state = State::Option,
                        left => {
                            self.state = State::Skip(left);
                            return (used, Step::NeedMore);
                        }
                    }
                }
                State::Option => {
                    let Some((magic, after)) = rest.split_first_chunk() else { return (used, Step::NeedMore) };
                    if u64::from_be_bytes(*magic) != OPTION_MAGIC {
                        return (used, Step::Close("an option does not start with its magic".into()));
                    }
                    let Some((option, after)) = after.split_first_chunk() else { return (used, Step::NeedMore) };
                    let Some((len, after)) = after.split_first_chunk() else { return (used, Step::NeedMore) };
                    let (option, len) = (u32::from_be_bytes(*option), u32::from_be_bytes(*len));
                    if option == OPT_EXPORT_NAME && len as usize > Self::NAME_MAX {
                        return (used, Step::Close(format!("an export name of {len} bytes"))); // H2
                    }
                    // H1, H2
                    let data = match len > Self::DATA_MAX {
                        true => None,
                        false => match after.get(..len as usize) {
                            None => return (used, Step::NeedMore),
                            data => data,
                        },
                    };
                    self.options += if option == OPT_LIST { Self::LIST_COST } else { 1 };
                    if self.options > Self::OPTIONS_MAX {
                        return (used, Step::Close(format!("more than {} options", Self::OPTIONS_MAX)));
                    }
                    used += 16;
                    let Some(data) = data else {
                        self.too_big(option, len, out);
                        self.state = State::Skip(len);
                        continue;
                    };
                    used += data.len();
                    match self.option(option, data, exports, out) {
                        Step::NeedMore => {}
                        step => return (used, step),
                    }
                }
            }
        }
    }

    fn too_big(&self, option: u32, len: u32, out: &mut Vec<u8>) {
        if self.wants_tls() && option != OPT_STARTTLS && option != OPT_ABORT {
            return tls_required(option, out);
        }
        let most = Self::DATA_MAX;
        error(out, option, REP_ERR_TOO_BIG, &format!("{len} bytes of data; at most {most} are taken"));
    }

    /// Nothing may be told yet (H3).
    fn wants_tls(&self) -> bool {
        self.tls == TlsPolicy::Required && !self.encrypted
    }

    fn option(&mut self, option: u32, data: &[u8], exports: &dyn Catalogue, out: &mut Vec<u8>) -> Step {
        if self.wants_tls() {
            match option {
                OPT_STARTTLS | OPT_ABORT => {}
                OPT_EXPORT_NAME => {
                    return Step::Close("TLS is required, and the client chose an export without".into());
                }
                _ => {
                    tls_required(option, out);
                    return Step::NeedMore;
                }
            }
        }
        match option {
            OPT_EXPORT_NAME => self.export_name(data, exports, out),
            OPT_ABORT => {
                reply(out, option, REP_ACK, &[]);
                Step::Close(String::new())
            }
            OPT_LIST if !data.is_empty() => invalid(out, option, "LIST takes no data"),
            OPT_LIST => {
                exports.for_each(&mut |export| {
                    let (name, description) = (export.name.as_bytes(), export.description.as_bytes());
                    reply(out, option, REP_SERVER, &[&(name.len() as u32).to_be_bytes(), name, description]);
                });
                reply(out, option, REP_ACK, &[]);
                Step::NeedMore
            }
            OPT_STARTTLS => self.start_tls(data, out),
            OPT_INFO | OPT_GO => self.info_or_go(option, data, exports, out),
            OPT_STRUCTURED_REPLY | OPT_EXTENDED_HEADERS if !data.is_empty() => {
                invalid(out, option, "this option takes no data")
            }
            OPT_STRUCTURED_REPLY if self.extended => {
                // "NBD_OPT_STRUCTURED_REPLY": the client asks for less than it has.
                error(out, option, REP_ERR_EXT_HEADER_REQD, "extended headers were negotiated already");
                Step::NeedMore
            }
            OPT_STRUCTURED_REPLY => {
                self.structured = true;
                reply(out, option, REP_ACK, &[]);
                Step::NeedMore
            }
            OPT_EXTENDED_HEADERS => {
                (self.structured, self.extended) = (true, true);
                reply(out, option, REP_ACK, &[]);
                Step::NeedMore
            }
            OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => self.meta_context(option, data, exports, out),
            _ => {
                error(out, option, REP_ERR_UNSUP, &format!("option {option} is not known here"));
                Step::NeedMore
            }
        }
    }

    /// "NBD_OPT_EXPORT_NAME": there is no way to refuse but to close.
    fn export_name(&mut self, data: &[u8], exports: &dyn Catalogue, out: &mut Vec<u8>) -> Step {
        let Some(export) = std::str::from_utf8(data).ok().and_then(|name| exports.find(name)) else {
            return Step::Close(format!("no export \"{}\"", printable(data)));
        };
        if self.extended {
            return Step::Close("EXPORT_NAME after EXTENDED_HEADERS".into());
        }
        out.extend_from_slice(&export.size.to_be_bytes());
        out.extend_from_slice(&self.transmission_flags(&export).to_be_bytes());
        if !self.no_zeroes {
            out.extend_from_slice(&[0; 124]);
        }
        Step::Ready(self.session(&export))
    }

    fn start_tls(&mut self, data: &[u8], out: &mut Vec<u8>) -> Step {
        if !data.is_empty() {
            return invalid(out, OPT_STARTTLS, "STARTTLS takes no data");
        }
        if self.encrypted {
            return invalid(out, OPT_STARTTLS, "the connection is encrypted already");
        }
        if self.tls == TlsPolicy::Off {
            error(out, OPT_STARTTLS, REP_ERR_POLICY, "TLS is not set up here");
            return Step::NeedMore;
        }
        reply(out, OPT_STARTTLS, REP_ACK, &[]);
        self.state = State::Tls;
        Step::StartTls
    }

    /// "NBD_OPT_INFO" and "NBD_OPT_GO".
    fn info_or_go(&mut self, option: u32, data: &[u8], exports: &dyn Catalogue, out: &mut Vec<u8>) -> Step {
        let mut data = Data(data);
        let (Some(name), Some(count)) = (data.string(), data.u16()) else {
            return invalid(out, option, "malformed: a name and a list of requests are needed");
        };
        let wanted: Option<Vec<u16>> = (0..count).map(|_| data.u16()).collect();
        let (Some(wanted), true) = (wanted, data.0.is_empty()) else {
            return invalid(out, option, "malformed: the list of requests has not the length that it says");
        };
        let Some(export) = self.find(option, name, exports, out) else { return Step::NeedMore };
        let info = |out: &mut Vec<u8>, kind: u16, parts: &[&[u8]]| {
            let kind = kind.to_be_bytes();
            let mut all = vec![&kind[..]];
            all.extend_from_slice(parts);
            reply(out, option, REP_INFO, &all);
        };
        info(out, INFO_EXPORT, &[&export.size.to_be_bytes(), &self.transmission_flags(&export).to_be_bytes()]);
        // A client that did not ask may ignore it ("Block size constraints").
        let sizes = [export.block_min, export.block_preferred, export.block_max].map(u32::to_be_bytes);
        info(out, INFO_BLOCK_SIZE, &[&sizes.concat()]);
        if wanted.contains(&INFO_NAME) {
            info(out, INFO_NAME, &[export.name.as_bytes()]);
        }
        if wanted.contains(&INFO_DESCRIPTION) && !export.description.is_empty() {
            info(out, INFO_DESCRIPTION, &[export.description.as_bytes()]);
        }
        reply(out, option, REP_ACK, &[]);
        if option == OPT_GO { Step::Ready(self.session(&export)) } else { Step::NeedMore }
    }

    /// "NBD_OPT_LIST_META_CONTEXT" and "NBD_OPT_SET_META_CONTEXT".
    fn meta_context(&mut self, option: u32, data: &[u8], exports: &dyn Catalogue, out: &mut Vec<u8>) -> Step {
        let set = option == OPT_SET_META_CONTEXT;
        if set {
            self.context = None; // a new choice replaces the old one, even if it fails
        }
        if !self.structured {
            return invalid(out, option, "metadata contexts need structured replies: negotiate them first");
        }
        let mut data = Data(data);
        let (Some(name), Some(count)) = (data.string(), data.u32()) else {
            return invalid(out, option, "malformed: a name and a list of queries are needed");
        };
        let mut wanted = count == 0 && !set; // an empty list asks for all there are
        for _ in 0..count {
            let Some(query) = data.string() else {
                return invalid(out, option, "malformed: the list of queries has not the length that it says");
            };
            wanted |= query == CONTEXT_NAME.as_bytes() || (!set && query == b"base:");
        }
        if !data.0.is_empty() {
            return invalid(out, option, "malformed: there is more than the list of queries");
        }
        let Some(export) = self.find(option, name, exports, out) else { return Step::NeedMore };
        if wanted {
            let id = if set { CONTEXT_ID } else { 0 };
            reply(out, option, REP_META_CONTEXT, &[&id.to_be_bytes(), CONTEXT_NAME.as_bytes()]);
            if set {
                self.context = Some(export.name.into());
            }
        }
        reply(out, option, REP_ACK, &[]);
        Step::NeedMore
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
            let mut count = 0;
            exports.for_each(&mut |_| count += 1);
            let name = printable(name);
            error(
                out,
                option,
                REP_ERR_UNKNOWN,
                &format!("no export \"{name}\" here; LIST shows the {count} there are"),
            );
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
            allocation_context: self.context.as_deref() == Some(export.name), // H4
            context_id: CONTEXT_ID,
        }
    }
}

/// The data of an option, read from the front.
struct Data<'a>(&'a [u8]);

impl<'a> Data<'a> {
    fn u16(&mut self) -> Option<u16> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*number))
    }

    fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    /// A length and so many bytes.
    fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        let (string, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(string)
    }
}

/// Appends a reply to an option; `parts` one after the other are its data.
fn reply(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(len as u32).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

fn error(out: &mut Vec<u8>, option: u32, kind: u32, why: &str) {
    reply(out, option, kind, &[why.as_bytes()]);
}

fn tls_required(option: u32, out: &mut Vec<u8>) {
    error(out, option, REP_ERR_TLS_REQD, "TLS is required here: send STARTTLS first");
}

/// The start of a name as a client sent it, fit for a log and for a message, in which the protocol wants no NUL.
fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().take(64).flat_map(char::escape_debug).collect()
}

fn invalid(out: &mut Vec<u8>, option: u32, why: &str) -> Step {
    error(out, option, REP_ERR_INVALID, why);
    Step::NeedMore
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: ExportInfo<'static> = ExportInfo {
        index: 0,
        name: "disk",
        description: "the first",
        size: 1 << 30,
        transmission_flags: FLAG_HAS_FLAGS | FLAG_SEND_FLUSH | FLAG_SEND_DF,
        block_min: 512,
        block_preferred: 4096,
        block_max: 32 << 20,
    };
    const OTHER: ExportInfo<'static> = ExportInfo { index: 1, name: "other", description: "", ..DISK };

    struct Two;

    impl Catalogue for Two {
        fn find(&self, name: &str) -> Option<ExportInfo<'_>> {
            [DISK, OTHER].into_iter().find(|export| export.name == name)
        }
        fn for_each(&self, visit: &mut dyn FnMut(&ExportInfo<'_>)) {
            [DISK, OTHER].iter().for_each(visit);
        }
    }

    /// A client that says one thing after the other, and what it hears.
    struct Talk {
        server: Handshake,
        heard: Vec<u8>,
        step: Step,
    }

    /// A client of a server with two exports; the greeting and the client's flags are done.
    fn talk(tls: TlsPolicy) -> Talk {
        talk_with(tls, CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES)
    }

    fn talk_with(tls: TlsPolicy, flags: u32) -> Talk {
        let mut heard = vec![];
        let server = Handshake::new(tls, &mut heard);
        assert_eq!(heard, *b"NBDMAGICIHAVEOPT\0\x03");
        let mut talk = Talk { server, heard, step: Step::NeedMore };
        talk.says(&flags.to_be_bytes());
        talk
    }

    impl Talk {
        /// Says `bytes`, all of which the server uses unless it closes.
        fn says(&mut self, bytes: &[u8]) -> &mut Self {
            self.heard.clear();
            let (used, step) = self.server.receive(bytes, &Two, &mut self.heard);
            assert!(used == bytes.len() || matches!(step, Step::Close(_)), "{used} of {} used", bytes.len());
            self.step = step;
            self
        }

        fn option(&mut self, option: u32, parts: &[&[u8]]) -> &mut Self {
            self.says(&option_bytes(option, parts))
        }

        /// The replies heard to the last option: their kinds and data.
        #[track_caller]
        fn replies(&self, to: u32) -> Vec<(u32, Vec<u8>)> {
            let mut rest = Data(&self.heard);
            let mut all = vec![];
            while !rest.0.is_empty() {
                let (magic, after) = rest.0.split_first_chunk().unwrap();
                assert_eq!(u64::from_be_bytes(*magic), REPLY_MAGIC);
                rest = Data(after);
                assert_eq!(rest.u32(), Some(to), "a reply names the option it answers");
                let kind = rest.u32().unwrap();
                all.push((kind, rest.string().unwrap().to_vec()));
            }
            all
        }

        /// The last option got replies of these kinds, the last of them final.
        #[track_caller]
        fn hears(&mut self, to: u32, kinds: &[u32]) -> &mut Self {
            let heard: Vec<u32> = self.replies(to).iter().map(|(kind, _)| *kind).collect();
            assert_eq!(heard, kinds, "{:?}", self.heard.escape_ascii().to_string());
            self
        }

        /// The message of the last error.
        fn message(&self, to: u32) -> String {
            String::from_utf8(self.replies(to).last().unwrap().1.clone()).unwrap()
        }

        #[track_caller]
        fn session(&self) -> Session {
            match &self.step {
                Step::Ready(session) => *session,
                other => panic!("not ready: {other:?}"),
            }
        }
    }

    fn option_bytes(option: u32, parts: &[&[u8]]) -> Vec<u8> {
        let data = parts.concat();
        let header = [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes()];
        [header.concat(), data].concat()
    }

    fn string(text: &str) -> Vec<u8> {
        [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
    }

    /// The data of INFO and GO.
    fn go(name: &str, wanted: &[u16]) -> Vec<u8> {
        let mut data = string(name);
        data.extend((wanted.len() as u16).to_be_bytes());
        wanted.iter().for_each(|kind| data.extend(kind.to_be_bytes()));
        data
    }

    /// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
    fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
        let mut data = string(name);
        data.extend((queries.len() as u32).to_be_bytes());
        queries.iter().for_each(|query| data.extend(string(query)));
        data
    }

    #[test]
    fn an_idle_negotiation_is_small() {
        assert!(size_of::<Handshake>() < 64, "{}", size_of::<Handshake>());
    }

    #[test]
    fn a_client_with_unknown_flags_is_sent_away() {
        assert!(matches!(talk_with(TlsPolicy::Off, 4 | 3).step, Step::Close(why) if why.contains("flags")));
    }

    #[test]
    fn go_tells_size_flags_and_blocks_and_then_requests_may_come() {
        let mut client = talk(TlsPolicy::Off);
        client.option(OPT_GO, &[&go("disk", &[])]).hears(OPT_GO, &[REP_INFO, REP_INFO, REP_ACK]);
        let replies = client.replies(OPT_GO);
        assert_eq!(replies[0].1, *b"\0\0\0\0\0\0\x40\0\0\0\0\x05", "export: 1 GiB, flags without DF");
        assert_eq!(replies[1].1, *b"\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0\0", "blocks: 512, 4096, 32 MiB");
        let session =
            Session { export: 0, structured: false, extended: false, allocation_context: false, context_id: 1 };
        assert_eq!(client.session(), session);
    }

    #[test]
    fn info_tells_name_and_description_when_asked_and_the_negotiation_goes_on() {
        let mut client = talk(TlsPolicy::Off);
        let all = [INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE, 99];
        client
            .option(OPT_INFO, &[&go("disk", &all)])
            .hears(OPT_INFO, &[REP_INFO, REP_INFO, REP_INFO, REP_INFO, REP_ACK]);
        assert_eq!(client.step, Step::NeedMore);
        let replies = client.replies(OPT_INFO);
        assert_eq!((&replies[2].1[..], &replies[3].1[..]), (&b"\0\x01disk"[..], &b"\0\x02the first"[..]));
        client.option(OPT_INFO, &[&go("other", &all)]).hears(OPT_INFO, &[REP_INFO, REP_INFO, REP_INFO, REP_ACK]);
    }

    #[test]
    fn reads_in_one_piece_are_offered_only_with_structured_replies() {
        let mut client = talk(TlsPolicy::Off);
        let df = |client: &Talk| client.replies(OPT_INFO)[0].1[11] & FLAG_SEND_DF as u8 != 0;
        assert!(!df(client.option(OPT_INFO, &[&go("disk", &[])])));
        client.option(OPT_STRUCTURED_REPLY, &[]).hears(OPT_STRUCTURED_REPLY, &[REP_ACK]);
        assert!(df(client.option(OPT_INFO, &[&go("disk", &[])])));
        client.option(OPT_GO, &[&go("disk", &[])]);
        assert!(client.session().structured && !client.session().extended);
    }

    #[test]
    fn the_answer_to_an_unknown_name_says_what_was_asked_and_where_to_look() {
        let mut client = talk(TlsPolicy::Off);
        client.option(OPT_GO, &[&go("dusk", &[])]).hears(OPT_GO, &[REP_ERR_UNKNOWN]);
        assert_eq!(client.message(OPT_GO), "no export \"dusk\" here; LIST shows the 2 there are");
        assert_eq!(client.step, Step::NeedMore);
        client.option(OPT_GO, &[&go("a\0b\n", &[])]).hears(OPT_GO, &[REP_ERR_UNKNOWN]);
        assert!(client.message(OPT_GO).starts_with("no export \"a\\0b\\n\""), "a string of the protocol has no NUL");
        client.option(OPT_GO, &[&go(&"x".repeat(4096), &[])]).hears(OPT_GO, &[REP_ERR_UNKNOWN]);
        assert!(client.message(OPT_GO).len() < 120, "a long name is cut");
        client.option(OPT_GO, &[&go(&"x".repeat(4097), &[])]).hears(OPT_GO, &[REP_ERR_TOO_BIG]);
        client.option(OPT_GO, &[&[0, 0, 0, 2, 0xff, 0xfe, 0, 0]]).hears(OPT_GO, &[REP_ERR_UNKNOWN]);
    }

    #[test]
    fn a_list_of_requests_that_lies_about_its_length_is_refused() {
        let mut client = talk(TlsPolicy::Off);
        for data in
            [&b""[..], b"\0\0\0\x04disk", b"\0\0\0\x05disk\0\0", b"\0\0\0\x04disk\0\x01", b"\0\0\0\x04disk\0\0\0"]
        {
            client.option(OPT_GO, &[data]).hears(OPT_GO, &[REP_ERR_INVALID]);
        }
        client.option(OPT_GO, &[&go("disk", &[])]).session();
    }

    #[test]
    fn list_shows_every_export_and_its_description() {
        let mut client = talk(TlsPolicy::Off);
        client.option(OPT_LIST, &[]).hears(OPT_LIST, &[REP_SERVER, REP_SERVER, REP_ACK]);
        assert_eq!(client.replies(OPT_LIST)[0].1, *b"\0\0\0\x04diskthe first");
        assert_eq!(client.replies(OPT_LIST)[1].1, *b"\0\0\0\x05other");
        client.option(OPT_LIST, &[b"x"]).hears(OPT_LIST, &[REP_ERR_INVALID]);
    }

    #[test]
    fn export_name_gets_zeroes_unless_the_client_can_do_without() {
        for (flags, len) in
            [(CLIENT_FIXED_NEWSTYLE, 10 + 124), (CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES, 10), (0, 134)]
        {
            let mut client = talk_with(TlsPolicy::Off, flags);
            client.option(OPT_EXPORT_NAME, &[b"other"]);
            assert_eq!((client.heard.len(), client.session().export), (len, 1));
            assert_eq!(client.heard[..10], *b"\0\0\0\0\x40\0\0\0\0\x05");
        }
    }

    #[test]
    fn a_wrong_export_name_ends_the_connection_without_a_word() {
        for name in [&b"dusk"[..], b"\xff\xfe", &[b'x'; 4097]] {
            let mut client = talk(TlsPolicy::Off);
            client.option(OPT_EXPORT_NAME, &[name]);
            assert!(matches!(&client.step, Step::Close(why) if !why.is_empty() && why.len() < 200));
            assert!(client.heard.is_empty());
        }
    }

    /// H2: EXPORT_NAME cannot be refused in words, so its data is not waited for.
    #[test]
    fn a_long_export_name_ends_the_connection_before_it_has_come() {
        let mut client = talk(TlsPolicy::Off);
        client.says(&option_bytes(OPT_EXPORT_NAME, &[&[b'x'; 4097]])[..16]);
        assert!(matches!(&client.step, Step::Close(why) if why.contains("4097")));
    }

    #[test]
    fn export_name_is_no_way_to_extended_headers() {
        let mut client = talk(TlsPolicy::Off);
        client.option(OPT_EXTENDED_HEADERS, &[]).hears(OPT_EXTENDED_HEADERS, &[REP_ACK]);
        assert!(matches!(client.option(OPT_EXPORT_NAME, &[b"disk"]).step, Step::Close(_)));
    }

    #[test]
    fn abort_is_acknowledged_and_ends_politely_whatever_its_data() {
        for data in [&b""[..], b"bye"] {
            let mut client = talk(TlsPolicy::Required);
            client.option(OPT_ABORT, &[data]).hears(OPT_ABORT, &[REP_ACK]);
            assert_eq!(client.step, Step::Close(String::new()));
        }
    }

    #[test]
    fn extended_headers_bring_structured_replies_and_there_is_no_way_back() {
        let mut client = talk(TlsPolicy::Off);
        client.option(OPT_EXTENDED_HEADERS, &[b"x"]).hears(OPT_EXTENDED_HEADERS, &[REP_ERR_INVALID]);
        client.option(OPT_STRUCTURED_REPLY, &[b"x"]).hears(OPT_STRUCTURED_REPLY, &[REP_ERR_INVALID]);
        client.option(OPT_EXTENDED_HEADERS, &[]).hears(OPT_EXTENDED_HEADERS, &[REP_ACK]);
        client.option(OPT_STRUCTURED_REPLY, &[]).hears(OPT_STRUCTURED_REPLY, &[REP_ERR_EXT_HEADER_REQD]);
        client.option(OPT_GO, &[&go("disk", &[])]);
        assert!(client.session().structured && client.session().extended);
    }

    #[test]
    fn an_unknown_option_is_refused_and_the_next_is_heard() {
        let mut client = talk(TlsPolicy::Off);
        for option in [0, 4, 12, u32::MAX] {
            client.option(option, &[b"whatever"]).hears(option, &[REP_ERR_UNSUP]);
        }
        client.option(OPT_GO, &[&go("disk", &[])]).session();
    }

    #[test]
    fn contexts_are_listed_by_name_by_namespace_or_all() {
        let mut client = talk(TlsPolicy::Off);
        client
            .option(OPT_LIST_META_CONTEXT, &[&contexts("disk", &[])])
            .hears(OPT_LIST_META_CONTEXT, &[REP_ERR_INVALID]);
        client.option(OPT_STRUCTURED_REPLY, &[]);
        for (queries, found) in
            [(&[][..], true), (&["base:"], true), (&["x-y:z", "base:allocation"], true), (&["qemu:", "base:a"], false)]
        {
            let kinds: &[u32] = if found { &[REP_META_CONTEXT, REP_ACK] } else { &[REP_ACK] };
            client.option(OPT_LIST_META_CONTEXT, &[&contexts("disk", queries)]).hears(OPT_LIST_META_CONTEXT, kinds);
        }
        client.option(OPT_GO, &[&go("disk", &[])]);
        assert!(!client.session().allocation_context, "listed is not chosen");
    }

    /// H4
    #[test]
    fn a_context_counts_for_the_export_it_was_last_chosen_for() {
        let chosen = |choices: &[(&str, &[&str])], goes: &str| {
            let mut client = talk(TlsPolicy::Off);
            client.option(OPT_STRUCTURED_REPLY, &[]);
            for (name, queries) in choices {
                client.option(OPT_SET_META_CONTEXT, &[&contexts(name, queries)]);
            }
            client.option(OPT_GO, &[&go(goes, &[])]).session().allocation_context
        };
        let all = &["base:allocation"][..];
        assert!(chosen(&[("disk", all)], "disk"));
        assert!(!chosen(&[("disk", all)], "other"));
        assert!(!chosen(&[("disk", all), ("disk", &[])], "disk"), "an empty choice replaces the one before");
        assert!(!chosen(&[("disk", all), ("dusk", all)], "disk"), "so does one that fails");
        assert!(!chosen(&[("disk", &["base:"])], "disk"), "a namespace chooses nothing");
        assert!(chosen(&[("other", all), ("disk", all)], "disk"));
    }

    #[test]
    fn a_chosen_context_is_told_once_with_its_number() {
        let mut client = talk(TlsPolicy::Off);
        let twice = contexts("disk", &["base:allocation", "base:allocation"]);
        client.option(OPT_SET_META_CONTEXT, &[&twice]).hears(OPT_SET_META_CONTEXT, &[REP_ERR_INVALID]);
        client.option(OPT_STRUCTURED_REPLY, &[]);
        client.option(OPT_SET_META_CONTEXT, &[&twice]).hears(OPT_SET_META_CONTEXT, &[REP_META_CONTEXT, REP_ACK]);
        assert_eq!(client.replies(OPT_SET_META_CONTEXT)[0].1, *b"\0\0\0\x01base:allocation");
        for cut in 0..twice.len() {
            client.option(OPT_SET_META_CONTEXT, &[&twice[..cut]]).hears(OPT_SET_META_CONTEXT, &[REP_ERR_INVALID]);
        }
        let more = [twice, vec![0]].concat();
        client.option(OPT_SET_META_CONTEXT, &[&more]).hears(OPT_SET_META_CONTEXT, &[REP_ERR_INVALID]);
        let many = [string("disk"), u32::MAX.to_be_bytes().to_vec()].concat();
        client.option(OPT_SET_META_CONTEXT, &[&many]).hears(OPT_SET_META_CONTEXT, &[REP_ERR_INVALID]);
    }

    /// H1
    #[test]
    fn nothing_is_said_before_an_option_is_there_whole() {
        let bytes = option_bytes(OPT_GO, &[&go("disk", &[INFO_NAME])]);
        for cut in 0..bytes.len() {
            let mut client = talk(TlsPolicy::Off);
            let mut heard = vec![];
            assert_eq!(client.server.receive(&bytes[..cut], &Two, &mut heard), (0, Step::NeedMore));
            assert!(heard.is_empty());
            client.says(&bytes).session();
        }
    }

    /// H2
    #[test]
    fn more_data_than_fits_is_refused_at_once_and_passed_over() {
        let mut client = talk(TlsPolicy::Off);
        let len = Handshake::DATA_MAX + 1;
        let header = [&OPTION_MAGIC.to_be_bytes()[..], &OPT_INFO.to_be_bytes(), &len.to_be_bytes()].concat();
        client.says(&header).hears(OPT_INFO, &[REP_ERR_TOO_BIG]);
        client.says(&vec![0; len as usize - 1]).hears(OPT_INFO, &[]);
        let last_and_next = [vec![0], option_bytes(OPT_LIST, &[])].concat();
        client.says(&last_and_next).hears(OPT_LIST, &[REP_SERVER, REP_SERVER, REP_ACK]);
    }

    /// H2
    #[test]
    fn data_that_just_fits_is_looked_at() {
        let mut client = talk(TlsPolicy::Off);
        client.option(77, &[&[0; Handshake::DATA_MAX as usize]]).hears(77, &[REP_ERR_UNSUP]);
    }

    /// H2
    #[test]
    fn a_client_that_never_stops_asking_is_sent_away() {
        let mut client = talk(TlsPolicy::Off);
        for _ in 0..Handshake::OPTIONS_MAX {
            client.option(77, &[]).hears(77, &[REP_ERR_UNSUP]);
        }
        assert!(matches!(&client.option(77, &[]).step, Step::Close(why) if why.contains("256")));
        assert!(client.heard.is_empty());
    }

    /// H2
    #[test]
    fn what_is_too_big_counts_as_well() {
        let mut client = talk(TlsPolicy::Off);
        let len = Handshake::DATA_MAX + 1;
        for _ in 0..Handshake::OPTIONS_MAX {
            client.option(77, &[&vec![0; len as usize]]).hears(77, &[REP_ERR_TOO_BIG]);
        }
        assert!(matches!(client.option(77, &[&vec![0; len as usize]]).step, Step::Close(_)));
    }

    /// H2
    #[test]
    fn lists_are_dearer_than_other_options() {
        let mut client = talk(TlsPolicy::Off);
        for _ in 0..16 {
            client.option(OPT_LIST, &[]).hears(OPT_LIST, &[REP_SERVER, REP_SERVER, REP_ACK]);
        }
        assert!(matches!(client.option(OPT_LIST, &[]).step, Step::Close(_)));
    }

    #[test]
    fn an_option_without_its_magic_ends_the_connection() {
        assert!(matches!(talk(TlsPolicy::Off).says(b"IHAVEOPS").step, Step::Close(_)));
    }

    /// H3
    #[test]
    fn where_tls_is_required_nothing_is_told_before_it() {
        let mut client = talk(TlsPolicy::Required);
        for option in [OPT_LIST, OPT_INFO, OPT_GO, OPT_STRUCTURED_REPLY, OPT_LIST_META_CONTEXT, 77] {
            for name in ["disk", "dusk"] {
                client.option(option, &[&go(name, &[])]).hears(option, &[REP_ERR_TLS_REQD]);
                assert_eq!(client.message(option), "TLS is required here: send STARTTLS first");
            }
            client.option(option, &[&[0; 70000]]).hears(option, &[REP_ERR_TLS_REQD]);
        }
        client.option(OPT_EXPORT_NAME, &[b"disk"]);
        assert!(matches!(client.step, Step::Close(_)) && client.heard.is_empty());
    }

    /// H3
    #[test]
    fn tls_starts_when_asked_and_only_once() {
        for tls in [TlsPolicy::Optional, TlsPolicy::Required] {
            let mut client = talk(tls);
            client.option(OPT_STARTTLS, &[b"x"]).hears(OPT_STARTTLS, &[REP_ERR_INVALID]);
            client.option(OPT_STARTTLS, &[]).hears(OPT_STARTTLS, &[REP_ACK]);
            assert_eq!(client.step, Step::StartTls);
            client.server.tls_established();
            client.option(OPT_STARTTLS, &[]).hears(OPT_STARTTLS, &[REP_ERR_INVALID]);
            client.option(OPT_GO, &[&go("disk", &[])]).session();
        }
        talk(TlsPolicy::Off).option(OPT_STARTTLS, &[]).hears(OPT_STARTTLS, &[REP_ERR_POLICY]);
    }

    /// H3
    #[test]
    fn what_was_negotiated_before_tls_is_forgotten() {
        let mut client = talk(TlsPolicy::Optional);
        client.option(OPT_EXTENDED_HEADERS, &[]);
        client.option(OPT_SET_META_CONTEXT, &[&contexts("disk", &["base:allocation"])]);
        client.option(OPT_STARTTLS, &[]);
        client.server.tls_established();
        client.option(OPT_GO, &[&go("disk", &[])]);
        let session = client.session();
        assert_eq!((session.structured, session.extended, session.allocation_context), (false, false, false));
    }

    /// H3: an attacker who can write in front of the client's first encrypted byte gets nothing done.
    #[test]
    fn plain_text_after_starttls_is_not_used() {
        let injected = option_bytes(OPT_STRUCTURED_REPLY, &[]);
        let mut server = talk(TlsPolicy::Required).server;
        let mut heard = vec![];
        let start = option_bytes(OPT_STARTTLS, &[]);
        let (used, step) = server.receive(&[start.clone(), injected.clone()].concat(), &Two, &mut heard);
        assert_eq!((used, step), (start.len(), Step::StartTls), "the caller can see what came after");
        heard.clear();
        let (used, step) = server.receive(&injected, &Two, &mut heard);
        assert!(used == 0 && heard.is_empty() && matches!(step, Step::Close(_)), "{step:?}");
    }
}
