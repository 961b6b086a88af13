//! The negotiation from the client's side, as a pure state machine: bytes of a server in, options and a [`Progress`] out.
//!
//! One thing is asked after the other, for each question depends on the answers before: TLS if it is wanted, structured replies, block
//! status, then the export itself. A server that does not know `NBD_OPT_GO` is asked in the old way, which cannot say why not.
//!
//! greeting.1  Options that a server grants are used; those that it refuses are done without, but for TLS and the export.
//! greeting.2  A server's answers are bounded: bytes of a reply ([`Greeting::REPLY_MAX`]), and replies to an option
//!             ([`Greeting::REPLIES_MAX`]).
//! greeting.3  Where TLS is wanted, nothing is asked before it, and nothing in plain text is used after it.

use serde::{Deserialize, Serialize};

use super::super::bytes::{Put, Take};
use super::{
    CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, FLAG_FIXED_NEWSTYLE, FLAG_HAS_FLAGS, FLAG_NO_ZEROES, INFO_BLOCK_SIZE,
    INFO_EXPORT, MAGIC, OPT_EXPORT_NAME, OPT_GO, OPT_SET_META_CONTEXT, OPT_STARTTLS, OPT_STRUCTURED_REPLY,
    OPTION_MAGIC, REP_ACK, REP_ERR_POLICY, REP_ERR_TLS_REQD, REP_ERR_UNKNOWN, REP_ERR_UNSUP, REP_INFO,
    REP_META_CONTEXT, REPLY_MAGIC,
};

/// A server's offer of an export.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Bytes.
    pub size: u64,
    /// `FLAG_*`.
    pub flags: u16,
    /// The smallest request, in bytes.
    pub block_min: u32,
    /// The request that is served best, in bytes.
    pub block_preferred: u32,
    /// The largest read or write, in bytes.
    pub block_max: u32,
    /// Replies are structured.
    pub structured: bool,
    /// The number of `base:allocation`, if it can be asked for.
    pub context: Option<u32>,
}

impl Offer {
    /// Whether it has this flag.
    #[must_use]
    pub const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// The next step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// More bytes.
    NeedMore,
    /// TLS, when all output so far has been sent; then [`Greeting::tls_established`].
    StartTls,
    /// Requests.
    Ready(Offer),
}

/// The negotiation with a server.
#[derive(Default, Debug)]
pub struct Greeting {
    export: String,
    wants_tls: bool,
    state: State,
    no_zeroes: bool,
    replies: u32,
    structured: bool,
    context: Option<u32>,
    /// Size and flags, as the server told them.
    size_and_flags_told: Option<(u64, u16)>,
    blocks: Option<[u32; 3]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum State {
    /// The server's greeting comes.
    #[default]
    Hello,
    /// Replies to this option come.
    Option(u32),
    /// The connection is to be encrypted.
    Tls,
    /// The answer to `EXPORT_NAME` comes, which is no reply.
    Old,
    Over,
}

const PLAIN_TEXT: &str = "sends plain text where TLS was to begin";

/// The protocol's name for allocation.
const CONTEXT_NAME: &[u8] = b"base:allocation";

/// The largest request where the server says nothing ("Block size constraints").
const BLOCK_MAX: u32 = 32 << 20;

impl Greeting {
    /// The most bytes of a reply. Chosen: the longest strings of the protocol, several times.
    pub const REPLY_MAX: u32 = 64 << 10;
    /// The most replies to one option. Chosen: many times the infos that there are.
    pub const REPLIES_MAX: u32 = 64;

    /// A client that wants this export, over TLS or not.
    #[must_use]
    pub fn new(export: &str, wants_tls: bool) -> Self {
        Self { export: export.into(), wants_tls, ..Self::default() }
    }

    /// The connection is encrypted from now on.
    pub fn tls_established(&mut self, out: &mut Vec<u8>) {
        assert!(self.state == State::Tls, "nobody asked for TLS");
        self.ask(OPT_STRUCTURED_REPLY, &[], out);
    }

    /// Uses as many of `bytes` as it can, appends bytes to send to `out`, and answers the number of used bytes and the next step.
    ///
    /// # Errors
    /// The export cannot be had from this server: why, in words that go on "the server …".
    pub fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, Progress), String> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            let taken = match self.state {
                State::Hello => self.hello(rest, out)?,
                State::Option(option) => self.reply(option, rest, out)?,
                State::Old => match rest.get(..if self.no_zeroes { 10 } else { 134 }) {
                    None => None,
                    Some(data) => {
                        self.size_and_flags_told = size_and_flags(Take(data));
                        Some((data.len(), self.offer()?))
                    }
                },
                State::Tls if !rest.is_empty() => return Err(PLAIN_TEXT.into()), // greeting.3
                State::Tls | State::Over => None,
            };
            let Some((took, step)) = taken else { return Ok((used, Progress::NeedMore)) };
            used += took;
            match step {
                Progress::NeedMore => {}
                Progress::StartTls if used < bytes.len() => return Err(PLAIN_TEXT.into()),
                step => return Ok((used, step)),
            }
        }
    }

    /// The server's greeting; its length and the next step, `None` if it is not there whole.
    fn hello(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<(usize, Progress)>, String> {
        let mut hello = Take(bytes);
        let Some(magic) = hello.u64() else { return Ok(None) };
        if magic != MAGIC {
            return Err("does not speak NBD".into());
        }
        let (Some(magic), Some(flags)) = (hello.u64(), hello.u16()) else { return Ok(None) };
        if magic != OPTION_MAGIC || flags & FLAG_FIXED_NEWSTYLE == 0 {
            return Err("speaks an old kind of NBD; fixed newstyle is needed".into());
        }
        self.no_zeroes = flags & FLAG_NO_ZEROES != 0;
        out.u32(CLIENT_FIXED_NEWSTYLE | if self.no_zeroes { CLIENT_NO_ZEROES } else { 0 });
        self.ask(if self.wants_tls { OPT_STARTTLS } else { OPT_STRUCTURED_REPLY }, &[], out);
        Ok(Some((18, Progress::NeedMore)))
    }

    fn ask(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        out.u64(OPTION_MAGIC).u32(option).string(data);
        (self.state, self.replies) = (State::Option(option), 0);
    }

    fn ask_for_export(&mut self, out: &mut Vec<u8>) {
        let mut data = Vec::new();
        data.string(self.export.as_bytes()).u16(1).u16(INFO_BLOCK_SIZE);
        self.ask(OPT_GO, &data, out);
    }

    /// A reply to an option; its length and the next step, `None` if it is not there whole.
    fn reply(&mut self, option: u32, bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<(usize, Progress)>, String> {
        let mut rest = Take(bytes);
        let (Some(magic), Some(to), Some(kind), Some(len)) = (rest.u64(), rest.u32(), rest.u32(), rest.u32()) else {
            return Ok(None);
        };
        if magic != REPLY_MAGIC || to != option {
            return Err(format!("answers option {option} with something else"));
        }
        if len > Self::REPLY_MAX {
            return Err(format!("answers option {option} with {len} bytes")); // greeting.2
        }
        let Some(data) = rest.bytes(len as usize) else { return Ok(None) };
        self.replies += 1;
        if self.replies > Self::REPLIES_MAX {
            return Err(format!("answers option {option} more than {} times", Self::REPLIES_MAX));
        }
        let step = match (kind, option) {
            (REP_INFO, OPT_GO) => {
                self.info(data)?;
                Progress::NeedMore
            }
            (REP_META_CONTEXT, OPT_SET_META_CONTEXT) => {
                if let Some((id, name)) = data.split_first_chunk()
                    && name == CONTEXT_NAME
                {
                    self.context = Some(u32::from_be_bytes(*id));
                }
                Progress::NeedMore
            }
            (REP_ACK, _) => self.granted(option, out)?,
            (error, _) if error & 1 << 31 != 0 => self.refused(option, error, data, out)?,
            (kind, _) => return Err(format!("answers option {option} with a reply of kind {kind}")),
        };
        Ok(Some((20 + len as usize, step)))
    }

    fn info(&mut self, data: &[u8]) -> Result<(), String> {
        let mut data = Take(data);
        let Some(kind) = data.u16() else { return Err("tells an info without a kind".into()) };
        let malformed = || String::from("describes the export in a way that cannot be read");
        match kind {
            INFO_EXPORT => self.size_and_flags_told = Some(size_and_flags(data).ok_or_else(malformed)?),
            INFO_BLOCK_SIZE => {
                let (Some(min), Some(preferred), Some(max)) = (data.u32(), data.u32(), data.u32()) else {
                    return Err(malformed());
                };
                self.blocks = Some([min, preferred, max]);
            }
            _ => {}
        }
        Ok(())
    }

    fn granted(&mut self, option: u32, out: &mut Vec<u8>) -> Result<Progress, String> {
        match option {
            OPT_STARTTLS => {
                self.state = State::Tls;
                return Ok(Progress::StartTls);
            }
            OPT_STRUCTURED_REPLY => {
                self.structured = true;
                let mut data = Vec::new();
                data.string(self.export.as_bytes()).u32(1).string(CONTEXT_NAME);
                self.ask(OPT_SET_META_CONTEXT, &data, out);
            }
            OPT_GO => return self.offer(),
            _ => self.ask_for_export(out),
        }
        Ok(Progress::NeedMore)
    }

    fn refused(&mut self, option: u32, error: u32, data: &[u8], out: &mut Vec<u8>) -> Result<Progress, String> {
        let says = String::from_utf8_lossy(data);
        let says: String = says.chars().filter(|one| !one.is_control()).take(200).collect();
        let says = if says.is_empty() { says } else { format!(": {says}") };
        match (option, error) {
            (_, REP_ERR_TLS_REQD) => Err(format!("wants TLS (nbds:…){says}")),
            (OPT_STARTTLS, _) => Err(format!("has no TLS{says}")),
            (OPT_GO, REP_ERR_UNKNOWN) => Err(format!("has no export \"{}\"{says}", self.export)),
            (OPT_GO, REP_ERR_POLICY) => Err(format!("does not allow export \"{}\"{says}", self.export)),
            (OPT_GO, REP_ERR_UNSUP) => {
                self.ask(OPT_EXPORT_NAME, self.export.clone().as_bytes(), out);
                self.state = State::Old;
                Ok(Progress::NeedMore)
            }
            (OPT_GO, error) => Err(format!("refuses export \"{}\" (error {:#x}){says}", self.export, error)),
            // greeting.1
            _ => {
                self.context = None;
                self.ask_for_export(out);
                Ok(Progress::NeedMore)
            }
        }
    }

    fn offer(&mut self) -> Result<Progress, String> {
        self.state = State::Over;
        let Some((size, flags)) = self.size_and_flags_told else {
            return Err("does not say how large the export is".into());
        };
        if flags & FLAG_HAS_FLAGS == 0 {
            return Err(format!("offers the flags {flags:#x}, which cannot be"));
        }
        let [min, preferred, max] = self.blocks.unwrap_or([1, 4096, BLOCK_MAX]);
        if !min.is_power_of_two() || min > 64 << 10 || max < min || max < 512 || !size.is_multiple_of(min.into()) {
            return Err(format!("offers {size} bytes in blocks of {min} to {max}, which cannot be"));
        }
        if size == 0 || size > i64::MAX as u64 {
            return Err(format!("offers an export of {size} bytes"));
        }
        Ok(Progress::Ready(Offer {
            size,
            flags,
            block_min: min,
            block_preferred: preferred,
            block_max: max,
            structured: self.structured,
            context: self.context,
        }))
    }
}

fn size_and_flags(mut data: Take<'_>) -> Option<(u64, u16)> {
    Some((data.u64()?, data.u16()?))
}

#[cfg(test)]
mod tests {
    use super::super::{FLAG_SEND_FLUSH, FLAG_SEND_FUA};
    use super::*;
    use crate::config::Tls;
    use crate::export::nbd::handshake::{Advance as Served, Catalogue, ExportInfo, Handshake};

    /// Our own server, which has one export.
    struct One;

    fn info() -> ExportInfo<'static> {
        ExportInfo {
            index: 0,
            name: "disk",
            description: "",
            size: 1 << 30,
            transmission_flags: FLAG_HAS_FLAGS | FLAG_SEND_FLUSH | FLAG_SEND_FUA,
            block_min: 512,
            block_preferred: 4096,
            block_max: 1 << 20,
            changes: None,
        }
    }

    impl Catalogue for One {
        fn find(&self, name: &str) -> Option<ExportInfo<'_>> {
            (name == "disk").then(info)
        }
        fn for_each(&self, visit: &mut dyn FnMut(&ExportInfo<'_>)) {
            visit(&info());
        }
    }

    /// Lets client and server speak, `piece` bytes of the server at a time.
    fn meet(export: &str, tls: bool, policy: Tls, piece: usize) -> Result<Offer, String> {
        let (mut client, mut to_server, mut to_client) = (Greeting::new(export, tls), Vec::new(), Vec::new());
        let mut server = Handshake::new(policy, &mut to_client);
        let mut held = Vec::new();
        for _ in 0..10_000 {
            let part = piece.min(to_client.len());
            held.extend(to_client.drain(..part));
            let (used, step) = client.receive(&held, &mut to_server)?;
            held.drain(..used);
            match step {
                Progress::Ready(offer) => return Ok(offer),
                Progress::StartTls => client.tls_established(&mut to_server),
                Progress::NeedMore => {}
            }
            let (used, step) = server.receive(&to_server, &One, &mut to_client);
            to_server.drain(..used);
            if step == Served::StartTls {
                server.tls_established();
            }
        }
        panic!("they did not come to an end");
    }

    #[test]
    fn our_own_server_and_client_understand_each_other_in_any_pieces() {
        let offer = Offer {
            size: 1 << 30,
            flags: FLAG_HAS_FLAGS | FLAG_SEND_FLUSH | FLAG_SEND_FUA,
            block_min: 512,
            block_preferred: 4096,
            block_max: 1 << 20,
            structured: true,
            context: Some(1),
        };
        for piece in [1, 5, 19, usize::MAX] {
            for (tls, policy) in [(false, Tls::Off), (true, Tls::Optional), (true, Tls::Required)] {
                assert_eq!(meet("disk", tls, policy, piece), Ok(offer.clone()));
            }
        }
    }

    #[test]
    fn an_export_that_cannot_be_had_is_refused_with_the_servers_words() {
        let refusal = |export, tls, policy| meet(export, tls, policy, usize::MAX).unwrap_err();
        assert!(refusal("disc", false, Tls::Off).starts_with("has no export \"disc\""));
        assert!(refusal("disk", true, Tls::Off).starts_with("has no TLS"));
        assert!(refusal("disk", false, Tls::Required).starts_with("wants TLS"));
    }

    fn hello(flags: u16) -> Vec<u8> {
        [&MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &flags.to_be_bytes()].concat()
    }

    fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
        let len = (data.len() as u32).to_be_bytes();
        [&REPLY_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &kind.to_be_bytes(), &len, data].concat()
    }

    /// greeting.1
    #[test]
    fn a_server_that_knows_little_is_asked_in_the_old_way() {
        for (flags, zeroes) in [(FLAG_FIXED_NEWSTYLE, 124), (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES, 0)] {
            let (mut client, mut out) = (Greeting::new("disk", false), Vec::new());
            let mut says = hello(flags);
            says.extend(reply(OPT_STRUCTURED_REPLY, REP_ERR_UNSUP, b""));
            says.extend(reply(OPT_GO, REP_ERR_UNSUP, b"what?"));
            let (used, step) = client.receive(&says, &mut out).unwrap();
            assert_eq!((used, step), (says.len(), Progress::NeedMore));
            assert!(out.ends_with(b"\0\0\0\x04disk"), "{out:?}");
            let mut old = [&(1u64 << 20).to_be_bytes()[..], &[0, 1]].concat();
            old.resize(10 + zeroes, 0);
            let Progress::Ready(offer) = client.receive(&old, &mut out).unwrap().1 else { panic!("{client:?}") };
            assert_eq!((offer.size, offer.structured, offer.context, offer.block_min), (1 << 20, false, None, 1));
        }
    }

    /// greeting.2, greeting.3
    #[test]
    fn a_server_that_makes_no_sense_is_left() {
        let good = hello(FLAG_FIXED_NEWSTYLE);
        let info = |kind: u16, data: &[u8]| [&kind.to_be_bytes()[..], data].concat();
        let export = |size: u64, flags: u16| info(0, &[&size.to_be_bytes()[..], &flags.to_be_bytes()].concat());
        let blocks =
            |min: u32, max: u32| info(3, &[min.to_be_bytes(), 4096u32.to_be_bytes(), max.to_be_bytes()].concat());
        let refused = [good.clone(), reply(OPT_STRUCTURED_REPLY, REP_ERR_UNSUP, b"")].concat();
        let go = |infos: &[Vec<u8>]| {
            let mut says = refused.clone();
            infos.iter().for_each(|info| says.extend(reply(OPT_GO, REP_INFO, info)));
            says.extend(reply(OPT_GO, REP_ACK, &[]));
            says
        };
        for (says, why) in [
            (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "does not speak NBD"),
            (hello(0), "an old kind"),
            ([&good[..], &[0; 20]].concat(), "with something else"),
            ([&good[..], &reply(OPT_STRUCTURED_REPLY, 77, &[])].concat(), "of kind 77"),
            ([&good[..], &reply(OPT_STRUCTURED_REPLY, REP_ACK, &[0; 70_000])].concat(), "with 70000 bytes"),
            ([&refused[..], &reply(OPT_GO, REP_INFO, &[9, 9]).repeat(100)].concat(), "more than 64 times"),
            (go(&[]), "how large"),
            (go(&[vec![0, 0, 1]]), "that cannot be read"),
            (go(&[vec![]]), "without a kind"),
            (go(&[export(1 << 20, 0)]), "the flags 0x0"),
            (go(&[export(0, 1)]), "an export of 0 bytes"),
            (go(&[export(u64::MAX, 1)]), "an export of 18446744073709551615 bytes"),
            (go(&[export(1 << 20, 1), blocks(3, 4096)]), "in blocks of 3"),
            (go(&[export(1 << 20, 1), blocks(0, 4096)]), "in blocks of 0"),
            (go(&[export(1 << 20, 1), blocks(4096, 512)]), "in blocks of 4096"),
            (go(&[export(5000, 1), blocks(4096, 4096)]), "5000 bytes in blocks of 4096"),
        ] {
            let error = Greeting::new("disk", false).receive(&says, &mut Vec::new()).expect_err(why);
            assert!(error.contains(why), "{error}: {why}");
        }
        let says = [&good[..], &reply(OPT_STARTTLS, REP_ACK, &[]), b"NBD"].concat();
        let error = Greeting::new("disk", true).receive(&says, &mut Vec::new()).unwrap_err();
        assert!(error.contains("plain text"), "{error}");
    }
}
