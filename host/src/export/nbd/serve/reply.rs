//! Replies: from the ends of commands to bytes that the kernel sends.

use std::os::fd::AsRawFd;

use fairlift_core::waits::Part;
use fairlift_core::{Duration, Errno, Instant, Op, Outcome};

use super::super::handshake::{Contexts, Session};
use super::super::proto::{self, Command as Verb, RequestHeader};
use super::super::service::{Command, Common, UserData};
use super::{Connection, HEADS, Lack, Phase, Receiving, Serving};
use crate::device;
use crate::device::lane::Map;
use crate::disk::engine::{Engine, News};
use crate::export::Export;
use crate::kernel::call::{Call, advance};
use crate::kernel::ticket::Memory;
use crate::outcome::errno;

/// How many runs a block status answers at most. Chosen: 8 KiB of reply, 16 with extended headers; the client asks on from
/// where the answer ends.
const RUNS: usize = 1024;

/// Replies in order: headers one after the other, and where a payload comes between them.
#[derive(Default)]
pub(super) struct Replies {
    pub(super) heads: Vec<u8>,
    /// After this many bytes of `heads` comes the payload of this command.
    pub(super) payloads: Vec<(usize, usize)>,
    /// How many operations they answer, by kind, and when those ended, added up.
    pub(super) ended: [(u64, u64); Op::COUNT],
}

/// A message in the kernel's hands. It has a place of its own: connections move when others come, and a ring may read it late.
pub(super) struct Sent {
    iovecs: Vec<libc::iovec>,
    message: libc::msghdr,
    /// The first piece of memory that is not sent whole.
    next: usize,
    pub(super) under_way: bool,
}

// SAFETY: the pointers name this connection's own heads and buffers of its worker, with which they move.
unsafe impl Send for Sent {}

impl Replies {
    pub(super) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Their bytes, piece by piece, with payloads that are in memory.
    pub(super) fn pieces<'a>(&'a self, engine: &'a Engine) -> impl Iterator<Item = &'a [u8]> {
        let mut from = 0;
        let last = self.payloads.last().map_or(0, |(at, _)| *at);
        let pairs = self.payloads.iter().flat_map(move |(at, command)| {
            let head = &self.heads[std::mem::replace(&mut from, *at)..*at];
            [head, engine.memory(*command).bytes()]
        });
        pairs.chain((last < self.heads.len()).then(|| &self.heads[last..]))
    }

    #[inline]
    fn answers(&mut self, op: Op, now: Instant) {
        let (count, ended) = &mut self.ended[op as usize];
        *count += 1;
        *ended = ended.wrapping_add(now.as_nanos());
    }
}

impl Connection {
    #[inline]
    pub(crate) fn news(&mut self, engine: &mut Engine, common: &Common, number: usize, news: News) {
        let Command { header, op, .. } = common.commands[number];
        let outcome = match news {
            News::Ended(outcome) => outcome,
            News::TimedOut => {
                let why = "the device did not answer in time (io_timeout)";
                return self.reply_error(&header, Errno::EIO, why);
            }
            News::Released => return self.release(engine, number),
        };
        let RequestHeader { cookie, offset, length: len, .. } = header;
        if header.command == Verb::BlockStatus {
            self.reply_status(&header, engine.memory(number), outcome);
            return self.release(engine, number);
        }
        self.out.answers(op, engine.now);
        match outcome {
            Outcome::Failed(errno) => {
                let why = format!("{} of {len} bytes at {offset}: {}", op.name(), describe(errno));
                self.reply_error(&header, errno, &why);
                self.release(engine, number);
            }
            Outcome::Done if op == Op::Read => {
                let &Session { structured, extended, .. } = self.session();
                let chunks = structured || extended;
                if chunks && device::is_zero(engine.memory(number).bytes()) {
                    self.out.heads.extend_from_slice(&proto::offset_hole(extended, cookie, offset, len));
                    return self.release(engine, number);
                }
                let head = match chunks {
                    true => proto::offset_data_header(extended, cookie, offset, len),
                    false => proto::simple_reply(0, cookie),
                };
                self.out.heads.extend_from_slice(&head);
                self.out.payloads.push((self.out.heads.len(), number));
            }
            Outcome::Done => {
                self.reply_done(cookie, offset);
                self.release(engine, number);
            }
        }
    }

    #[inline(always)]
    pub(super) fn release(&mut self, engine: &mut Engine, number: usize) {
        self.commands -= 1;
        self.memory -= engine.release(number);
    }

    pub(super) fn reply_done(&mut self, cookie: u64, offset: u64) {
        let head = match self.session().extended {
            true => proto::none_chunk(true, cookie, offset),
            false => proto::simple_reply(0, cookie),
        };
        self.out.heads.extend_from_slice(&head);
    }

    pub(super) fn reply_error(&mut self, header: &RequestHeader, errno: Errno, why: &str) {
        let &RequestHeader { cookie, offset, .. } = header;
        let &Session { structured, extended, .. } = self.session();
        let error = proto::nbd_error(errno);
        if structured || extended {
            proto::error_chunk(&mut self.out.heads, extended, cookie, offset, error, why);
        } else {
            self.out.heads.extend_from_slice(&proto::simple_reply(error, cookie));
        }
    }

    /// Answers that a request cannot be, and passes over its payload.
    pub(super) fn refuse(&mut self, header: &RequestHeader, errno: Errno, why: &str) {
        tracing::debug!(connection = self.number, ?header, why, "refused");
        self.reply_error(header, errno, why);
        let left = header.payload_len(self.session().extended);
        if left > 0 {
            self.receiving = Receiving::Refused { left };
        }
    }

    pub(super) fn block_status(&mut self, header: &RequestHeader, export: &Export) {
        let RequestHeader { offset, length: len, flags, .. } = *header;
        let allocation = self.session().contexts.allocation.then(|| {
            device::runs(len, runs_at_most(flags), |done, left| {
                export.device.run(export.offset + offset + done, left).map(|run| (run.len, run.hole))
            })
        });
        match allocation.transpose() {
            Ok(runs) => self.reply_runs(header, runs.as_deref()),
            Err(error) => self.reply_error(header, errno(&error), &format!("block status: {error}")),
        }
    }

    /// Asks the device's lane, since it may take its time.
    pub(super) fn block_status_later(
        &mut self,
        engine: &mut Engine,
        common: &mut Common,
        header: &RequestHeader,
        export: &Export,
    ) -> Result<(), Lack> {
        if self.commands >= common.service.limits.connection_requests {
            return Err(Lack::Own); // client.3
        }
        let ticket = engine.admit(self.number as u64, Memory::None);
        let waited = (Duration::ZERO, Part::Room);
        common.put(ticket, Command { header: *header, waited, op: Op::Read, in_part: false });
        self.commands += 1;
        let RequestHeader { offset, length: len, flags, .. } = *header;
        let map = Map { ticket, at: export.offset + offset, bytes: len, most: runs_at_most(flags) };
        engine.map(export.disk, export.start, map);
        Ok(())
    }

    fn reply_status(&mut self, header: &RequestHeader, memory: &Memory, outcome: Outcome) {
        match (outcome, memory) {
            (Outcome::Done, Memory::Map(runs)) => self.reply_runs(header, Some(runs)),
            (Outcome::Done, _) => unreachable!("the list of extents is in the memory of the ticket"),
            (Outcome::Failed(errno), _) => {
                self.reply_error(header, errno, &format!("block status: {}", describe(errno)));
            }
        }
    }

    /// Reports holes, if they are known by now and were chosen, and changed blocks, if those were.
    fn reply_runs(&mut self, header: &RequestHeader, allocation: Option<&[(u64, bool)]>) {
        let Serving { session, export, .. } = self.phase.serving();
        let RequestHeader { cookie, offset, length: len, flags, .. } = *header;
        let changes = session.contexts.changes.then(|| {
            let next = |done, left| Ok(export.device.changed(export.offset + offset + done, left));
            device::runs(len, runs_at_most(flags), next).expect("the list of changes is in memory")
        });
        let heads = &mut self.out.heads;
        let mut tell = |runs: &[(u64, bool)], state: u32, context: u32, last: bool| {
            let runs: Vec<(u64, u32)> = runs.iter().map(|(len, is)| (*len, if *is { state } else { 0 })).collect();
            proto::block_status(heads, session.extended, (cookie, offset), (context, last), &runs);
        };
        if let Some(runs) = allocation {
            tell(runs, proto::STATE_HOLE | proto::STATE_ZERO, Contexts::ALLOCATION, changes.is_none());
        }
        if let Some(runs) = changes {
            tell(&runs, proto::STATE_DIRTY, Contexts::CHANGES, true);
        }
    }

    // ---- to the kernel ----

    pub(super) fn is_sending(&self) -> bool {
        self.sent.as_ref().is_some_and(|sent| sent.under_way)
    }

    pub(super) fn arm_send(&mut self, engine: &mut Engine) {
        if self.is_sending() || self.stands_still {
            return;
        }
        let unfinished = self.sent.as_ref().is_some_and(|sent| sent.next < sent.iovecs.len());
        if self.broken {
            self.drop_replies(engine);
            return;
        }
        if !unfinished {
            if self.sending.is_empty() {
                self.encrypt(engine);
                std::mem::swap(&mut self.sending, &mut self.out);
            }
            if self.sending.is_empty() {
                if let Some(tls) = self.tls_next.take() {
                    self.tls = Some(tls);
                }
                return;
            }
            (self.progress, self.moved) = (engine.now, 0);
            self.unsent.offered(self.sending.ended.iter().map(|(count, _)| count).sum(), engine.now);
            let sent = self.sent.get_or_insert_with(|| {
                // SAFETY: all zeroes are a valid `msghdr`: no address, no memory, no control data.
                let message = unsafe { std::mem::zeroed() };
                Box::new(Sent { iovecs: Vec::new(), message, next: 0, under_way: false })
            });
            sent.next = 0;
            sent.iovecs.clear();
            match self.tls {
                None => sent.iovecs.extend(self.sending.pieces(engine).map(memory)),
                Some(_) => sent.iovecs.push(memory(&self.sending.heads)), // with the payloads
            }
        }
        let sent = self.sent.as_mut().expect("set above");
        sent.message.msg_iov = sent.iovecs[sent.next..].as_mut_ptr();
        sent.message.msg_iovlen = (sent.iovecs.len() - sent.next) as _; // narrower with musl
        sent.under_way = true;
        let call = Call::Send { fd: self.fd.as_raw_fd(), message: &raw const sent.message };
        // SAFETY: the message and its iovecs stay where they are, and are not touched while `under_way`; `sending.heads` and the
        // buffers of its payloads neither, until `send_ended`. The connection is there meanwhile (`is_over`).
        unsafe { engine.ring.push(call, UserData::Send(self.number).pack()) }
    }

    /// The replies that the kernel has not taken, one after the other, and the memory of their payloads.
    pub(super) fn unsent(&self, engine: &Engine) -> Vec<u8> {
        let mut bytes = self.sending.pieces(engine).collect::<Vec<_>>().concat();
        let left = |sent: &Sent| sent.iovecs[sent.next..].iter().map(|piece| piece.iov_len).sum::<usize>();
        let left = self.sent.as_deref().map_or(0, left);
        bytes.drain(..bytes.len() - left);
        self.out.pieces(engine).for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }

    /// How many commands have replies that wait with their payloads.
    pub(super) fn payloads(&self) -> usize {
        self.out.payloads.len() + self.sending.payloads.len()
    }

    /// Nobody will take the replies: what they hold is given back.
    pub(super) fn drop_replies(&mut self, engine: &mut Engine) {
        for replies in [std::mem::take(&mut self.out), std::mem::take(&mut self.sending)] {
            for (_, command) in replies.payloads {
                self.release(engine, command);
            }
        }
        self.sent = None;
    }

    /// The replies under way are sent: each took as long as passed since its operation ended.
    fn sent_all(&mut self, engine: &mut Engine) {
        self.unsent.taken();
        let Phase::Serving(Serving { export, stream, .. }) = &self.phase else { return };
        for (op, (count, ended)) in Op::ALL.into_iter().zip(std::mem::take(&mut self.sending.ended)) {
            if count > 0 {
                // A sum of times of the clock may start anew; the difference is right all the same.
                let time = count.wrapping_mul(engine.now.as_nanos()).wrapping_sub(ended);
                engine.replied(export.disk, *stream, op, Duration::from_nanos(time));
            }
        }
    }

    /// The kernel sent `sent` bytes, or failed.
    pub(crate) fn send_ended(&mut self, engine: &mut Engine, result: i32) {
        let sent = self.sent.as_mut().expect("only a message under way completes");
        sent.under_way = false;
        match result {
            0.. => {
                sent.next += advance(&mut sent.iovecs[sent.next..], result as usize);
                let is_all = sent.next == sent.iovecs.len();
                self.moves(engine.now, result as usize);
                self.kernel_sent(result as usize);
                if !is_all {
                    return;
                }
            }
            // Or it was taken back (hold.1).
            _ if [-libc::EINTR, -libc::EAGAIN, -libc::ECANCELED].contains(&result) => return,
            _ => {
                tracing::debug!(connection = self.number, error = -result, "send failed");
                self.break_off();
            }
        }
        if let Some(sent) = &mut self.sent {
            sent.next = sent.iovecs.len();
        }
        self.sent_all(engine);
        self.sending.heads.clear();
        self.sending.heads.shrink_to(HEADS); // client.1
        let mut payloads = std::mem::take(&mut self.sending.payloads);
        for (_, command) in payloads.drain(..) {
            self.release(engine, command);
        }
        self.sending.payloads = payloads;
    }
}

fn runs_at_most(flags: u16) -> usize {
    if flags & proto::CMD_FLAG_REQ_ONE != 0 { 1 } else { RUNS }
}

fn describe(errno: Errno) -> String {
    std::io::Error::from_raw_os_error(errno.0).to_string()
}

fn memory(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}
