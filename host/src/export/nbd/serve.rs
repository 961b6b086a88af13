//! A connection: from the bytes of a client to commands, and from their ends to replies.
//!
//! Bytes come in pieces of any size: half a header, or thirty commands at once. A connection takes all the commands that are whole, keeps
//! the rest, and collects replies until the turn ends, so that one message carries them all.
//!
//! client.1  An idle connection holds no buffer.
//! client.2  An error in one command is answered to that command, and the connection goes on. Only a client whose bytes make no
//!           sense any more is disconnected.
//! client.3  A client that does not take its replies is read no further than its bounds (commands, payload bytes), and delays no
//!           other client.
//! client.4  A client may leave at any byte: what it had asked is done or not, and all that it held is given back.
//! client.5  Nothing that came in plain text before TLS is used after it.

mod hold;
mod in_part;
mod reply;
pub(super) mod resume;
mod stranger;
mod tls;

use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};
use std::sync::Arc;

use fairlift_core::waits;
use fairlift_core::{Bio, Errno, Flags, Instant, Op, StreamId, Token};

use rustix::net::{Shutdown, shutdown};

use in_part::{in_blocks, inner, submit_in_part};
use reply::{Replies, Sent};
use stranger::Stranger;
use tls::Tls;

use super::Seen;
use super::check::check;
use super::handshake::{Advance, Handshake, Session};
use super::proto::{self, Command as Verb, RequestHeader};
use super::service::{Command, Common, UserData};
use crate::access::{Access, Entry, Peer};
use crate::disk::engine::Engine;
use crate::export::service::{Encryption, Unsent};
use crate::export::{Export, listen, narrowed};
use crate::kernel::buffer::NoBuffer;
use crate::kernel::call::Call;
use crate::kernel::ktls::ByKernel;
use crate::kernel::ticket::{Memory, Part};

/// From this many bytes on, the rest of a payload is received straight into its buffer. Chosen, not measured: below, one more
/// system call is taken to cost more than the copy.
const DIRECT: usize = 32 << 10;
/// With more bytes of waiting replies without payload, the connection is read no further (client.3). Chosen: two thousand replies or more,
/// and a client has 128 commands under way by default (`connection_requests`).
const HEADS: usize = 64 << 10;
/// A client comes on once it has sent or taken this part of the memory that it holds (client.3). Chosen: others wait for less than three minutes
/// until it is done or dropped, and a client with 32 MiB under way keeps up by 2 Mbit/s.
const PACE: u64 = 32;

pub(crate) struct Connection {
    fd: OwnedFd,
    pub(super) peer: Peer,
    number: usize,
    /// No other connection of the worker has it.
    pub(super) visit: u64,
    phase: Phase,
    tls: Option<Box<Tls>>,
    /// TLS from the moment that all plain text has been sent; nothing is received until then.
    tls_next: Option<Box<Tls>>,
    /// The kernel has the keys: what goes by the socket is plain, on this side of it.
    by_kernel: Option<ByKernel>,
    receiving: Receiving,
    /// Bytes received and not used yet: part of a header, or all while the connection is held back.
    input: Vec<u8>,
    /// Replies that wait for those under way.
    out: Replies,
    /// Replies under way.
    sending: Replies,
    sent: Option<Box<Sent>>,
    /// The same for operators.
    pub(super) unsent: Arc<Unsent>,
    /// The kernel receives for us: into one of the worker's shared buffers, or that of the command whose payload comes.
    receive_armed: bool,
    /// The socket had more when last asked.
    more: bool,
    /// Commands under way, and their payload bytes.
    commands: u32,
    pub(super) memory: u64,
    /// Cleared when nothing more shall be read: the client has left, or we are stopping.
    reading: bool,
    /// The client cannot be written to any more.
    broken: bool,
    /// When the client last came on, and the bytes that it has sent or taken since.
    progress: Instant,
    moved: u64,
    /// The arrival of the bytes that are looked at, and the thing that they have waited for since.
    received: Instant,
    waits_for: waits::Part,
    /// While it negotiates: what it has sent, and whether anything about it was wrong.
    stranger: Option<Stranger>,
    /// Already in the worker's list of connections to look at.
    pub(super) touched: bool,
    /// The cause of its wait before it can use received bytes.
    pub(super) held_back: Option<Lack>,
    /// While it is held: it is told nothing either, and another server is about to go on with it.
    stands_still: bool,
}

enum Phase {
    Negotiating(Box<Handshake>),
    Serving(Serving),
}

struct Serving {
    /// As this client may use it.
    export: Arc<Export>,
    entry: Entry,
    session: Session,
    stream: StreamId,
}

impl Phase {
    fn serving(&self) -> &Serving {
        match self {
            Self::Serving(serving) => serving,
            Self::Negotiating(_) => unreachable!("requests come after the negotiation"),
        }
    }
}

/// The meaning of the next byte from the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receiving {
    /// Part of a header, or of the negotiation.
    Header,
    /// Payload of a write: `got` bytes of it are there.
    Payload { command: usize, got: usize },
    /// Payload of a write that was refused: `left` bytes are to come.
    Refused { left: u64 },
}

/// The cause for which a command cannot be taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lack {
    /// An end of its own connection's commands.
    Own,
    /// Payload memory, which all clients of the worker share.
    Memory,
    /// Room in the queue of its disk.
    Disk,
}

impl Lack {
    /// The name of the time that a command waits for it.
    const fn part(self) -> waits::Part {
        match self {
            Self::Memory => waits::Part::Memory,
            Self::Own | Self::Disk => waits::Part::Room,
        }
    }
}

impl Connection {
    /// A client that has just connected; it is greeted.
    pub(crate) fn new(fd: OwnedFd, peer: Peer, number: usize, tls: crate::config::Tls, now: Instant) -> Self {
        listen::prepare(&fd);
        let mut out = Replies::default();
        let handshake = Handshake::new(tls, &mut out.heads);
        Self {
            fd,
            peer,
            number,
            visit: 0,
            phase: Phase::Negotiating(Box::new(handshake)),
            tls: None,
            tls_next: None,
            by_kernel: None,
            receiving: Receiving::Header,
            input: Vec::new(),
            out,
            sending: Replies::default(),
            sent: None,
            unsent: Arc::default(),
            receive_armed: false,
            more: false,
            commands: 0,
            memory: 0,
            reading: true,
            broken: false,
            progress: now,
            moved: 0,
            received: now,
            waits_for: waits::Part::Room,
            stranger: Some(Stranger::default()),
            touched: false,
            held_back: None,
            stands_still: false,
        }
    }

    /// How many options the client has asked for, while it negotiates.
    pub(crate) const fn options_asked(&self) -> Option<u32> {
        let Phase::Negotiating(handshake) = &self.phase else { return None };
        Some(handshake.options)
    }

    /// Since when the client has taken next to nothing of the replies that are offered, or sent next to nothing of a payload that it
    /// announced; `None` if it owes neither.
    pub(crate) fn stalled_since(&self) -> Option<Instant> {
        let owes = self.is_sending() || matches!(self.receiving, Receiving::Payload { .. });
        owes.then_some(self.progress)
    }

    /// Whether nothing is left to do for it: it can be dropped.
    pub(crate) fn is_over(&self) -> bool {
        let owed = !self.broken && !self.out.is_empty();
        !self.reading && !owed && !self.is_sending() && !self.receive_armed && self.commands == 0
    }

    /// Reads no more from the client; what it has asked is answered.
    pub(crate) fn stop_reading(&mut self) {
        self.reading = false;
        if self.receive_armed {
            let _ = shutdown(&self.fd, Shutdown::Read); // it may have gone already
        }
    }

    /// Leaves the client: nothing more is read or sent.
    pub(crate) fn break_off(&mut self) {
        self.reading = false;
        self.broken = true;
        let _ = shutdown(&self.fd, Shutdown::Both);
    }

    /// The client has sent or taken so many bytes.
    fn moves(&mut self, now: Instant, bytes: usize) {
        self.moved += bytes as u64;
        if self.moved.saturating_mul(PACE) >= self.memory {
            (self.progress, self.moved) = (now, 0);
        }
    }

    // ---- what the kernel says ----

    /// The kernel received something into a shared buffer.
    pub(crate) fn received(&mut self, engine: &mut Engine, common: &mut Common, bytes: &[u8], more: bool) {
        self.receive_armed = false;
        self.received = engine.now;
        self.moves(engine.now, bytes.len());
        self.more = more;
        if self.reading && !self.is_too_much(common, engine.now, bytes.len()) {
            self.take(engine, common, bytes);
        }
    }

    /// The kernel received `bytes` into a command's buffer, nothing because the client has left, or failed.
    pub(crate) fn receive_ended(&mut self, engine: &mut Engine, common: &mut Common, result: i32, more: bool) {
        self.receive_armed = false;
        self.more = more;
        match result {
            1.. => {
                let Receiving::Payload { command, got } = &mut self.receiving else {
                    unreachable!("a direct receive is for a payload")
                };
                *got += result as usize;
                let command = *command;
                self.moves(engine.now, result as usize);
                self.payload_received(engine, common, command);
            }
            _ if result == -libc::EIO && self.by_kernel.is_some() => self.kernel_noticed(),
            // No shared buffer was free, or a signal came: try again.
            // Or it was taken back (hold.1).
            _ if [-libc::ENOBUFS, -libc::EINTR, -libc::EAGAIN, -libc::ECANCELED].contains(&result) => {}
            0 => self.reading = false,
            _ => {
                tracing::debug!(connection = self.number, error = -result, "receive failed");
                self.break_off();
            }
        }
    }

    fn session(&self) -> &Session {
        &self.phase.serving().session
    }

    /// The client's choice, once it is made.
    pub(crate) fn export(&self) -> Option<&Export> {
        match &self.phase {
            Phase::Negotiating(_) => None,
            Phase::Serving(serving) => Some(&serving.export),
        }
    }

    /// The export or the rights of clients have changed (access.6): requests from now on meet it as it is now. Whether it may stay;
    /// otherwise it leaves once it has its replies.
    pub(crate) fn follow(&mut self, engine: &mut Engine, access: &Access, export: &Arc<Export>) -> bool {
        let Phase::Serving(serving) = &mut self.phase else { return true };
        listen::learn_cgroup(self.fd.as_fd(), access, &mut self.peer);
        let Some(entry) = access.of(&self.peer).keep(&export.name, &export.path, &serving.entry) else {
            let why = if access.has_revoked(&self.peer) {
                "its certificate is revoked"
            } else {
                "no [client] allows it any more"
            };
            tracing::info!(client = self.peer.shown, export = export.name, "closed: {why}");
            self.stop_reading();
            return false;
        };
        let before = std::mem::replace(&mut serving.export, narrowed(export, entry.right));
        serving.entry = entry;
        export.change_stream(engine, &before, serving.stream);
        true
    }

    // ---- from bytes to commands ----

    /// Goes on with bytes that were received while the connection was held back.
    pub(crate) fn go_on(&mut self, engine: &mut Engine, common: &mut Common) {
        if !self.reading || self.input.is_empty() {
            self.is_held_no_more();
        } else {
            let input = std::mem::take(&mut self.input);
            let used = self.parse(engine, common, &input);
            self.keep(input, used);
        }
        self.heed_goodbye(engine);
    }

    fn is_held_no_more(&mut self) {
        if self.held_back.take().is_some() {
            self.unsent.held(None);
        }
    }

    fn take_plain(&mut self, engine: &mut Engine, common: &mut Common, mut bytes: &[u8]) {
        let is_in_header = !self.input.is_empty() && self.held_back.is_none() && self.receiving == Receiving::Header;
        if let Phase::Serving(Serving { session, .. }) = &self.phase
            && is_in_header
        {
            // The header that was begun is completed first, so that the rest need not be copied.
            let len = if session.extended { proto::EXTENDED_REQUEST_LEN } else { proto::REQUEST_LEN };
            let missing = len.saturating_sub(self.input.len()).min(bytes.len());
            let (begun, rest) = bytes.split_at(missing);
            self.input.extend_from_slice(begun);
            bytes = rest;
            self.go_on(engine, common);
        }
        if !self.reading {
            return;
        }
        if self.input.is_empty() {
            let used = self.parse(engine, common, bytes);
            if self.reading {
                self.input.extend_from_slice(&bytes[used..]);
            }
        } else {
            self.input.extend_from_slice(bytes);
            if self.held_back.is_none() {
                self.go_on(engine, common);
            }
        }
    }

    /// Puts back what was not used.
    fn keep(&mut self, mut input: Vec<u8>, used: usize) {
        if !self.reading {
            return;
        }
        assert!(self.input.is_empty(), "input was taken in while older input was looked at");
        input.drain(..used);
        if input.is_empty() {
            input.shrink_to(64); // client.1
        }
        self.input = input;
    }

    /// Uses as many of the bytes as can be used now, and says how many.
    fn parse(&mut self, engine: &mut Engine, common: &mut Common, bytes: &[u8]) -> usize {
        self.is_held_no_more();
        let mut used = 0;
        while self.reading && !(engine.holds && self.receiving == Receiving::Header) {
            let rest = &bytes[used..];
            used += match self.receiving {
                Receiving::Payload { command, got } => {
                    let memory = engine.memory_mut(command);
                    let space = &mut memory.bytes_mut()[got..];
                    let part = rest.len().min(space.len());
                    space[..part].copy_from_slice(&rest[..part]);
                    self.receiving = Receiving::Payload { command, got: got + part };
                    if part == 0 || !self.payload_received(engine, common, command) {
                        return used + part;
                    }
                    part
                }
                Receiving::Refused { left } => {
                    let part = left.min(rest.len() as u64);
                    self.receiving = match left - part {
                        0 => Receiving::Header,
                        left => Receiving::Refused { left },
                    };
                    if part == 0 {
                        return used;
                    }
                    part as usize
                }
                Receiving::Header => match &self.phase {
                    Phase::Negotiating(_) => match self.negotiate(engine, common, rest) {
                        0 => return used,
                        some => some,
                    },
                    Phase::Serving(serving) => match proto::decode_request(rest, serving.session.extended) {
                        Ok(None) => return used,
                        Ok(Some((header, len))) => match self.request(engine, common, &header) {
                            Ok(()) => len,
                            Err(lack) => {
                                self.held_back = Some(lack);
                                self.waits_for = lack.part();
                                self.unsent.held(Some((self.waits_for, self.received)));
                                return used;
                            }
                        },
                        Err(error) => {
                            tracing::debug!(connection = self.number, ?error, "the client is out of step"); // client.2
                            self.break_off();
                            return used;
                        }
                    },
                },
            };
        }
        used
    }

    /// Goes on with the negotiation; says how many bytes it used.
    fn negotiate(&mut self, engine: &mut Engine, common: &mut Common, bytes: &[u8]) -> usize {
        let Phase::Negotiating(handshake) = &mut self.phase else { unreachable!("called while negotiating") };
        let exports = common.service.exports();
        if self.peer.certificate.is_none() {
            self.peer.certificate = self.tls.as_ref().and_then(|tls| tls.certificate());
        }
        let seen = Seen::new(&exports, &self.peer, common.service.limits.request_max);
        let (used, step) = handshake.receive(bytes, &seen, &mut self.out.heads);
        let missed = seen.missed.take();
        if let Some(stranger) = &mut self.stranger {
            stranger.failed |= !missed.is_empty();
        }
        if !missed.is_empty() && seen.rights.are_bounded() {
            common.service.tell_refused(&exports, &self.peer, &missed);
        }
        match step {
            Advance::NeedMore => {}
            Advance::StartTls => {
                if used < bytes.len() {
                    tracing::debug!(connection = self.number, "plain text after STARTTLS"); // client.5
                    self.break_off();
                    return used;
                }
                let config = common.service.listeners.tls().expect("STARTTLS is accepted only with a certificate");
                match rustls::ServerConnection::new(config) {
                    Ok(session) => {
                        handshake.tls_established();
                        let over_tcp = self.peer.address.is_some();
                        self.unsent.is_encrypted_by(if over_tcp { Encryption::Process } else { Encryption::Bound });
                        self.tls_next = Some(Box::new(Tls::new(session)));
                    }
                    Err(error) => {
                        tracing::error!(%error, "TLS cannot be started");
                        self.break_off();
                    }
                }
            }
            Advance::Ready(session) => {
                let export = Arc::clone(&exports.list[session.export]);
                if let Some(client) = common.service.clients().get_mut(&(engine.context.0, self.number)) {
                    client.export = Some(export.name.clone());
                    let of = vec![("export", export.name.clone()), ("client", client.peer.clone())];
                    common.service.events.tell("connected", of);
                }
                let stream = export.add_stream(engine);
                tracing::debug!(connection = self.number, export = export.name, ?session, "ready");
                common.present.join(&export, self.number);
                let entry = seen.entry.take().expect("a client is let in before it is ready");
                let export = narrowed(&export, entry.right);
                self.leave_gate(&common.service.gate, engine.now, true);
                self.phase = Phase::Serving(Serving { export, entry, session, stream });
            }
            Advance::Close(reason) => {
                if !reason.is_empty() {
                    tracing::debug!(connection = self.number, reason, "negotiation failed");
                    self.fail();
                }
                self.reading = false;
            }
        }
        used
    }

    fn request(&mut self, engine: &mut Engine, common: &mut Common, header: &RequestHeader) -> Result<(), Lack> {
        let Serving { export, session, .. } = self.phase.serving();
        let (export, session) = (Arc::clone(export), *session);
        if header.command == Verb::Disconnect {
            self.reading = false;
            return Ok(());
        }
        if self.out.heads.len() > HEADS {
            return Err(Lack::Own);
        }
        if let Err((errno, why)) = check(header, &export, &session, common.service.limits.request_max) {
            self.refuse(header, errno, &why);
            return Ok(());
        }
        let (op, payload) = match header.command {
            Verb::Read => (Op::Read, header.length),
            Verb::Write => (Op::Write, header.length),
            Verb::Flush => (Op::Flush, 0),
            Verb::Trim => (Op::Discard, 0),
            Verb::WriteZeroes => (Op::WriteZeroes, 0),
            Verb::Cache => {
                // A hint, and nothing is fetched: the disk's time for it would be charged to nobody (queue.19).
                self.reply_done(header.cookie, header.offset);
                return Ok(());
            }
            Verb::BlockStatus if session.contexts.allocation && export.device.is_remote() => {
                return self.block_status_later(engine, common, header, &export);
            }
            Verb::BlockStatus => {
                self.block_status(header, &export);
                return Ok(());
            }
            Verb::Disconnect | Verb::Unknown(_) => unreachable!("dealt with above"),
        };
        if header.length == 0 && op != Op::Flush {
            return self.reply_no_change(header); // as qemu answers it
        }
        let block = u64::from(export.facts.block());
        let in_part = op != Op::Flush && !(header.offset | header.length).is_multiple_of(block);
        let (skip, payload) = match in_part {
            true => in_blocks(header, block, payload),
            false => (0, payload),
        };
        if in_part && op == Op::Discard && inner(header.offset, header.length, block).is_none() {
            return self.reply_no_change(header);
        }
        // client.3
        let limits = &common.service.limits;
        if self.commands >= limits.connection_requests
            || (self.memory > 0 && self.memory + payload > limits.connection_memory)
        {
            return Err(Lack::Own);
        }
        if engine.is_full(export.disk) {
            return Err(Lack::Disk);
        }
        let memory = match payload {
            0 => Memory::None,
            _ => match engine.pool.get_in_line(self.number as u64, payload as usize) {
                Ok(buffer) if in_part => Memory::Part(Part { buffer, range: skip..skip + header.length as usize }),
                Ok(buffer) => Memory::Pool(buffer),
                Err(NoBuffer::Full) => return Err(Lack::Memory),
                Err(NoBuffer::NoMemory) => {
                    self.refuse(header, Errno::ENOMEM, "the server has no memory for it");
                    return Ok(());
                }
            },
        };
        let command = engine.admit(self.number as u64, memory);
        let waited = (engine.now.since(self.received), self.waits_for);
        common.put(command, Command { header: *header, waited, op, in_part });
        self.commands += 1;
        self.memory += payload;
        if op == Op::Write {
            self.receiving = Receiving::Payload { command, got: 0 };
            (self.progress, self.moved) = (engine.now, 0); // the command may have waited for long
        } else {
            self.submit(engine, common, command);
        }
        Ok(())
    }

    /// Goes on with a write if its payload is complete; whether it was.
    fn payload_received(&mut self, engine: &mut Engine, common: &Common, command: usize) -> bool {
        let Receiving::Payload { got, .. } = self.receiving else { unreachable!("called for a payload") };
        if (got as u64) < common.commands[command].header.length {
            return false;
        }
        self.receiving = Receiving::Header;
        if self.export().is_some_and(|export| export.read_only) {
            // access.6: it was when the write was announced that the client might.
            self.reply_error(&common.commands[command].header, Errno::EPERM, "the export is read-only by now");
            self.release(engine, command);
            return true;
        }
        self.submit(engine, common, command);
        true
    }

    fn submit(&mut self, engine: &mut Engine, common: &Common, number: usize) {
        let Serving { export, stream, .. } = self.phase.serving();
        let command = &common.commands[number];
        let Command { header, waited, op, in_part } = *command;
        // The client waits for each reply, whatever it asked.
        let mut flags = Flags::SYNC;
        if header.flags & proto::CMD_FLAG_FUA != 0 && op != Op::Read {
            flags |= Flags::FUA;
        }
        if op == Op::WriteZeroes {
            for (wire, flag) in [(proto::CMD_FLAG_NO_HOLE, Flags::NO_UNMAP), (proto::CMD_FLAG_FAST_ZERO, Flags::FAST)] {
                if header.flags & wire != 0 {
                    flags |= flag;
                }
            }
        }
        let extent = export.extent(op, header.offset, header.length);
        let bio = Bio { op, flags, extent, stream: *stream, token: Token(number as u64) };
        if in_part {
            return submit_in_part(engine, export, command, bio);
        }
        engine.submit_late(export.disk, bio, waited.0, waited.1);
    }

    #[cold]
    fn reply_no_change(&mut self, header: &RequestHeader) -> Result<(), Lack> {
        let &Session { structured, extended, .. } = self.session();
        if header.command == Verb::Read && structured && !extended {
            self.out.heads.extend_from_slice(&proto::none_chunk(false, header.cookie, header.offset));
        } else {
            self.reply_done(header.cookie, header.offset);
        }
        Ok(())
    }

    // ---- to the kernel ----

    /// Gives the kernel what it can do for us now: send what waits, receive if we may.
    pub(crate) fn arm(&mut self, engine: &mut Engine) {
        self.arm_send(engine);
        self.arm_receive(engine);
    }

    fn arm_receive(&mut self, engine: &mut Engine) {
        if !self.reading || self.held_back.is_some() || self.receive_armed || self.tls_next.is_some() || engine.holds {
            return;
        }
        let into = match self.receiving {
            Receiving::Payload { command, got } if self.tls.is_none() && self.input.is_empty() => {
                let memory = engine.memory_mut(command);
                let space = &mut memory.bytes_mut()[got..];
                (space.len() >= DIRECT).then_some((space.as_mut_ptr(), space.len() as u32))
            }
            _ => None,
        };
        self.receive_armed = true;
        let call = Call::Receive { fd: self.fd.as_raw_fd(), into, wait: !self.more };
        // SAFETY: a direct receive names the buffer of a write whose payload is not complete: it is not submitted, and
        // not released, before this completion (`is_over` waits for `receive_armed`). The shared buffers are the ring's.
        unsafe { engine.ring.push(call, UserData::Receive(self.number).pack()) }
    }

    /// Gives back all that the connection still holds; it is over.
    pub(crate) fn close(mut self, engine: &mut Engine) {
        assert!(self.is_over(), "a connection is closed with something under way");
        if let Phase::Serving(Serving { export, stream, .. }) = &self.phase {
            export.remove_stream(engine, *stream);
        }
        self.drop_replies(engine);
        self.say_goodbye();
    }

    /// Once nothing is received any more, a write whose payload never came is given up (client.4).
    pub(crate) fn give_up_payload(&mut self, engine: &mut Engine) {
        if !self.reading && !self.receive_armed {
            if let Receiving::Payload { command, .. } = self.receiving {
                self.receiving = Receiving::Header;
                self.release(engine, command);
            }
            self.input = Vec::new();
        }
    }
}
