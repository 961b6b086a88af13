//! A connection to another server, in the ring of the worker whose it is: requests become bytes, bytes become answers.
//!
//! socket.1  One message is on its way out at a time, and one receive. All requests that wait meanwhile go with the next message. The payload
//!           of writes goes from where it is; that of large reads comes to where it shall be.
//! socket.2  An idle connection has no buffer and nothing under way in the ring that names memory: only a look for its end.
//! socket.3  A connection that is broken off ends when the kernel has let go of all memory. That a virtual machine's memory is gone breaks
//!           none off (lent.1): other tenants have requests on it.
//! socket.4  A request ends when it was answered and the kernel has sent it whole: until then it may send what its memory has by then, which
//!           may be another tenant's. An answer to a request that was not sent in any part breaks the protocol.
//! socket.5  A peer at a unix socket that closes it, or TLS that says so, is the server. An error of a network may come from a device in
//!           between, while the server goes on with its requests. A server that ends says so in TLS and then resets what it is sent: what was
//!           received is read before a failed send counts.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};

use fairlift_core::{Duration, Errno, Instant, Op, Tag};
use rustix::net::Shutdown;

use super::connect::Established;
use super::flight::{Ask, Flight, Here};
use super::ledger::{Birth, End, Given, Ledger};
use crate::device::lane::{Address, place_of};
use crate::kernel::call::{Call, PIECES, advance};
use crate::kernel::lent;
use crate::kernel::ring::{Ring, Source};
use crate::sync::{Mutex, lock};
use crate::wire::nbd::answers::{Answers, Sink, Violation};
use crate::wire::nbd::{STATE_ZERO, encode_request};

/// Requests that were answered, by their slots, and how.
pub(super) type AnsweredSlots = Vec<(usize, Result<(), Errno>)>;

/// The amount received at once. Chosen: sixteen answers of 4 KiB.
const INPUT: usize = 64 << 10;

/// From this many bytes on, the rest of a read's payload is received in its final place. Chosen, not measured, as for clients.
const DIRECT: u64 = 32 << 10;

/// As many requests go in one message. Chosen: with one piece of payload each they fit the 1024 pieces that the kernel takes.
const BATCH: usize = 256;

/// With TLS, about as many bytes go in one message: they are copied and encrypted in one turn, for which others of the worker wait. Chosen:
/// half a millisecond's.
const SEALED: u64 = 1 << 20;

/// The ring's tasks for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doing {
    Receive,
    Send,
    Watch,
    Pause,
}

impl Doing {
    pub(super) fn tag(self, slot: usize) -> Tag {
        Tag((self as u16) << 8 | slot as u16)
    }

    pub(super) fn of(tag: Tag) -> (Self, usize) {
        let all = [Self::Receive, Self::Send, Self::Watch, Self::Pause];
        (all[usize::from(tag.0 >> 8)], usize::from(tag.0 & 0xff))
    }

    pub(super) fn data(self, slot: usize, address: Address) -> u64 {
        Source::Io { disk: address.disk, place: address.place, tag: self.tag(slot) }.pack()
    }
}

/// Where the kernel puts what it receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receiving {
    Input,
    /// In the memory of a read.
    Direct,
}

/// How answers are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// When the socket says that there are some.
    Readable,
    /// Some are awaited: there may be, and else as above.
    Now,
    /// Not before the pause is over ([`Gather`](crate::device::gather::Gather)).
    Later,
}

pub(super) struct Connection {
    pub(super) slot: usize,
    pub(super) birth: Birth,
    made: Established,
    answers: Answers,
    /// By their slots among the answers.
    flights: Vec<Option<Flight>>,
    /// Those that have not been sent, and with TLS how much of the first one's payload was put into messages.
    queue: VecDeque<usize>,
    part: u64,
    /// Before that none fails.
    due: Option<Instant>,
    /// The message on its way: what does not lie in requests' memory, all its pieces, and the first one that is not sent whole.
    heads: Vec<u8>,
    iovecs: Vec<libc::iovec>,
    message: Box<libc::msghdr>,
    next: usize,
    is_sending: bool,
    /// Bytes that were put into messages, and that the kernel took.
    put: u64,
    sent: u64,
    /// Requests that were answered and not sent whole (socket.4).
    held: usize,
    input: Option<Box<[u8]>>,
    filled: usize,
    /// With TLS: what was decrypted and not used.
    plain: Vec<u8>,
    receiving: Option<Receiving>,
    /// The last receive filled all there was room for.
    was_full: bool,
    is_watching: bool,
    /// A send or a receive could not reach memory, and since then nothing was moved by it (lent.1).
    touched: [bool; 2],
    broken: Option<(End, String)>,
    /// How a send failed, while the receive may tell why (socket.5).
    refused: Option<i32>,
    /// The server goes: nothing more is asked of it.
    pub(super) goes: bool,
}

// SAFETY: the pointers name this connection's own memory, and that of requests, which is left to it until they are answered.
unsafe impl Send for Connection {}

impl Connection {
    pub(super) fn new(slot: usize, made: Established, birth: Birth) -> Self {
        // SAFETY: all zeroes are a valid `msghdr`: no address, no memory, no control data.
        let message = Box::new(unsafe { std::mem::zeroed() });
        Self {
            slot,
            birth,
            answers: Answers::new(made.offer.structured, made.offer.context),
            made,
            flights: Vec::new(),
            queue: VecDeque::new(),
            part: 0,
            due: None,
            heads: Vec::new(),
            iovecs: Vec::new(),
            message,
            next: 0,
            is_sending: false,
            put: 0,
            sent: 0,
            held: 0,
            input: None,
            filled: 0,
            plain: Vec::new(),
            receiving: None,
            was_full: false,
            is_watching: false,
            touched: [false; 2],
            broken: None,
            refused: None,
            goes: false,
        }
    }

    /// Whether more can be asked of it.
    pub(super) const fn is_usable(&self) -> bool {
        self.broken.is_none() && self.refused.is_none() && !self.goes
    }

    /// Whether it can tell what is allocated.
    pub(super) const fn tells_status(&self) -> bool {
        self.made.offer.context.is_some()
    }

    pub(super) fn open(&self) -> usize {
        self.answers.open()
    }

    /// Whether the ring does something for it.
    pub(super) const fn is_busy(&self) -> bool {
        self.is_sending || self.receiving.is_some() || self.is_watching
    }

    /// Why it was broken off, once the kernel has let go of it (socket.3).
    pub(super) fn is_over(&self) -> Option<(End, &str)> {
        let (end, why) = self.broken.as_ref()?;
        (!self.is_busy()).then_some((*end, why))
    }

    /// When to ask whether a request is [late](Self::is_late).
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether one of its requests was to be answered by now.
    pub(super) fn is_late(&mut self, now: Instant) -> bool {
        let is_due = |due: Instant| due <= now;
        if self.due.is_some_and(is_due) {
            self.due = self.flights.iter().flatten().map(|flight| flight.deadline).min();
        }
        self.due.is_some_and(is_due)
    }

    /// Its requests fail later, by `length`.
    pub(super) fn put_off(&mut self, length: Duration) {
        self.flights.iter_mut().flatten().for_each(|flight| flight.deadline += length);
    }

    /// Takes a request, to be sent with the next message.
    pub(super) fn take(&mut self, mut flight: Flight) {
        let (slot, cookie) = self.answers.ask(flight.awaited());
        flight.here = Here { cookie, ..Here::default() };
        self.due = self.due.into_iter().chain([flight.deadline]).min();
        *place_of(&mut self.flights, slot) = Some(flight);
        self.queue.push_back(slot);
    }

    /// Breaks it off: nothing more is sent or believed.
    pub(super) fn break_off(&mut self, end: End, why: impl Into<String>) {
        if self.broken.is_none() {
            self.broken = Some((end, why.into()));
            // It fails where the server has gone already, and then nothing is left to do.
            _ = rustix::net::shutdown(&self.made.socket, Shutdown::Both);
        }
    }

    /// How it ended, if there is nothing more to read (socket.5).
    const fn gone(&self) -> End {
        if self.made.is_local { End::ByServer } else { End::Cut }
    }

    /// Gives the kernel what it can do for it now.
    pub(super) fn arm(&mut self, ring: &mut Ring, address: Address, ledger: &Mutex<Ledger>, look: Look) {
        if self.goes && self.open() == 0 {
            self.break_off(self.gone(), "the server goes");
        }
        if self.broken.is_some() {
            return;
        }
        if self.refused.is_none() {
            self.arm_send(ring, address, ledger);
        }
        // More is there, or is due at once: part of an answer, or more than was received.
        let is_amid = self.was_full || self.filled > 0 || self.answers.payload().is_some();
        if look != Look::Later || is_amid || self.refused.is_some() {
            self.arm_receive(ring, address, look);
        }
        if let Some(result) = self.refused.filter(|_| self.receiving.is_none()) {
            self.failed(result);
        }
    }

    /// Looks for its end from now on, while nothing else does.
    pub(super) fn watch(&mut self, ring: &mut Ring, address: Address) {
        self.is_watching = true;
        let data = Doing::Watch.data(self.slot, address);
        ring.poll(self.made.socket.as_fd(), libc::POLLRDHUP, false, data);
    }

    /// Looks for its end no more: it completes.
    pub(super) fn unwatch(&self, ring: &mut Ring, address: Address) {
        if self.is_watching {
            ring.cancel(Doing::Watch.data(self.slot, address));
        }
    }

    /// The look for its end has ended.
    pub(super) fn watched(&mut self, result: i32) {
        self.is_watching = false;
        if result != -libc::ECANCELED && self.open() == 0 {
            self.break_off(self.gone(), "the server closed the connection");
        }
    }

    // ---- out ----

    fn arm_send(&mut self, ring: &mut Ring, address: Address, ledger: &Mutex<Ledger>) {
        if self.is_sending {
            return;
        }
        if self.next == self.iovecs.len() {
            if self.queue.is_empty() {
                return;
            }
            self.compose(ledger);
        }
        let rest = &mut self.iovecs[self.next..];
        self.message.msg_iov = rest.as_mut_ptr();
        self.message.msg_iovlen = rest.len().min(PIECES) as _; // narrower with musl
        self.is_sending = true;
        let call = Call::Send { fd: self.made.socket.as_raw_fd(), message: &raw const *self.message };
        // SAFETY: message, iovecs and heads are not touched while `is_sending`, and live as long as the connection, which is kept
        // until then (`is_over`; a lane that is dropped has none such, or the ring is gone). The payload is of requests that are
        // not answered before (`take_ended`, engine.1).
        unsafe { ring.push(call, Doing::Send.data(self.slot, address)) }
    }

    /// Makes one message of the waiting requests (socket.1).
    fn compose(&mut self, ledger: &Mutex<Ledger>) {
        self.heads.clear();
        self.iovecs.clear();
        self.next = 0;
        let given = lock(ledger).given();
        if self.made.tls.is_some() {
            return self.seal(given);
        }
        let batch: Vec<usize> = self.queue.drain(..self.queue.len().min(BATCH)).collect();
        let mut plain = std::mem::take(&mut self.heads);
        let mut ends = Vec::with_capacity(batch.len());
        for slot in &batch {
            let flight = self.flights[*slot].as_mut().expect("only requests that were sent are answered (socket.4)");
            flight.here.given = given;
            encode_request(&mut plain, false, &flight.header());
            ends.push(plain.len());
        }
        let mut from = 0;
        for (slot, end) in batch.iter().zip(&ends) {
            let flight = self.flights[*slot].as_mut().expect("seen above");
            let before = self.iovecs.len();
            self.iovecs.extend(payload(flight, 0, u64::MAX));
            let bytes = self.iovecs[before..].iter().map(|piece| piece.iov_len as u64).sum::<u64>();
            if bytes > 0 {
                self.iovecs.insert(before, memory(&plain[from..*end]));
                from = *end;
            }
            self.put += bytes;
            flight.here.end = self.put + *end as u64;
        }
        if from < plain.len() {
            self.iovecs.push(memory(&plain[from..]));
        }
        self.put += plain.len() as u64;
        self.heads = plain; // the pieces name its bytes, which stay where they are
    }

    /// The same with TLS: of about `SEALED` bytes. The last request may be put into it in part, and is the first of the next message then.
    fn seal(&mut self, given: Given) {
        let tls = self.made.tls.as_mut().expect("called with TLS");
        // Writing to memory does not fail; the buffer has no limit, and is emptied right below.
        let mut write = |bytes: &[u8]| tls.writer().write_all(bytes).expect("the TLS buffer has no limit");
        let (mut bytes, mut room) = (Vec::new(), SEALED);
        while room > 0
            && let Some(slot) = self.queue.front()
        {
            let flight = self.flights[*slot].as_mut().expect("only requests that were sent are answered (socket.4)");
            if self.part == 0 {
                flight.here.given = given;
                bytes.clear();
                encode_request(&mut bytes, false, &flight.header());
                room = room.saturating_sub(bytes.len() as u64).max(1);
                write(&bytes);
            }
            for piece in payload(flight, self.part, room) {
                bytes.resize(piece.iov_len, 0);
                // SAFETY: the memory is the device's until the request is answered (engine.1); `bytes` is as long.
                unsafe { std::ptr::copy_nonoverlapping(piece.iov_base.cast(), bytes.as_mut_ptr(), piece.iov_len) };
                write(&bytes);
                (self.part, room) = (self.part + piece.iov_len as u64, room - piece.iov_len as u64);
            }
            let is_whole = payload(flight, self.part, 1).next().is_none();
            // Which bytes are whose cannot be told.
            flight.here.end = if is_whole { self.put + 1 } else { u64::MAX };
            if is_whole {
                self.queue.pop_front();
                self.part = 0;
            }
        }
        while tls.wants_write() {
            tls.write_tls(&mut self.heads).expect("writing to memory does not fail");
        }
        self.put += self.heads.len() as u64;
        self.iovecs.push(memory(&self.heads));
    }

    /// The kernel took this number of bytes, or failed. Requests that end with that are appended to `ended` (socket.4).
    pub(super) fn sent(&mut self, result: i32, ended: &mut AnsweredSlots) {
        self.is_sending = false;
        match result {
            0.. => {
                self.touched[0] = false;
                self.sent += result as u64;
                self.next += advance(&mut self.iovecs[self.next..], result as usize);
                if self.held > 0 && self.broken.is_none() {
                    let sent = self.sent;
                    let whole = |(slot, flight): (usize, &mut Option<Flight>)| {
                        let flight = flight.as_mut().filter(|flight| flight.here.end <= sent)?;
                        Some((slot, flight.here.answer.take()?))
                    };
                    let before = ended.len();
                    ended.extend(self.flights.iter_mut().enumerate().filter_map(whole));
                    self.held -= ended.len() - before;
                }
            }
            _ if [-libc::EINTR, -libc::EAGAIN].contains(&result) => {}
            _ if result == -libc::EFAULT && !std::mem::replace(&mut self.touched[0], true) => {
                // SAFETY: it is the connection's own, and that of requests, which is mapped until they are answered (ticket.1).
                self.iovecs[self.next..].iter().for_each(|piece| unsafe { lent::touch(*piece) });
            }
            _ if self.made.tls.is_some() && is_reset(result) => self.refused = Some(result),
            _ => self.failed(result),
        }
    }

    fn failed(&mut self, result: i32) {
        let end = if is_reset(result) { self.gone() } else { End::Cut };
        self.break_off(end, std::io::Error::from_raw_os_error(-result).to_string());
    }

    // ---- in ----

    fn arm_receive(&mut self, ring: &mut Ring, address: Address, look: Look) {
        if self.receiving.is_some() {
            return;
        }
        if self.open() == self.held {
            self.input = None; // socket.2
            if !self.is_sending && self.next == self.iovecs.len() {
                self.heads = Vec::new();
            }
            return;
        }
        let direct = self.direct();
        let into = match direct {
            Some(piece) => {
                self.receiving = Some(Receiving::Direct);
                self.was_full = true;
                (piece.iov_base.cast(), piece.iov_len.min(1 << 30) as u32)
            }
            None => {
                self.receiving = Some(Receiving::Input);
                let input = self.input.get_or_insert_with(|| vec![0; INPUT].into());
                let space = &mut input[self.filled..];
                (space.as_mut_ptr(), space.len() as u32)
            }
        };
        let call = Call::Receive {
            fd: self.made.socket.as_raw_fd(),
            into: Some(into),
            wait: direct.is_none() && look != Look::Now,
        };
        // SAFETY: the input is not touched, nor given back, while `receiving`; the memory of a read is left to the device until it is
        // answered (engine.1), which needs what is received now. For how long the connection lives, see `arm_send`.
        unsafe { ring.push(call, Doing::Receive.data(self.slot, address)) }
    }

    /// The memory of the read whose data comes next, where it is received there.
    fn direct(&self) -> Option<libc::iovec> {
        (self.answers.payload())
            .filter(|(.., left)| *left >= DIRECT && self.made.tls.is_none() && self.filled == 0)
            .and_then(|(slot, from, left)| self.flights[slot].as_ref()?.memory(from, left).next())
    }

    /// The kernel received this number of bytes, or failed. Which requests ended is appended to `ended`, with their slots.
    pub(super) fn received(&mut self, result: i32, ended: &mut AnsweredSlots) {
        let receiving = self.receiving.take().expect("only a receive that was begun ends");
        if self.broken.is_some() {
            return; // what is said by now is not believed
        }
        match result {
            1.. if receiving == Receiving::Direct => {
                self.touched[1] = false;
                let advance = |answers: &mut Answers, sink: &mut Taking<'_>| answers.advance(result as u64, sink);
                if let Err((end, why)) = self.take_in(ended, advance) {
                    self.break_off(end, why);
                }
            }
            1.. => {
                self.was_full = self.filled + result as usize == INPUT;
                let mut input = self.input.take().expect("it was received into");
                let all = self.filled + result as usize;
                self.filled = 0;
                let used = if self.made.tls.is_some() {
                    self.decrypt(&input[..all], ended)
                } else {
                    self.read(&input[..all], ended)
                };
                match used {
                    Ok(used) => {
                        input.copy_within(used..all, 0); // part of a head
                        self.filled = all - used;
                    }
                    Err((end, why)) => self.break_off(end, why),
                }
                self.input = Some(input);
            }
            0 => self.break_off(self.gone(), "the server closed the connection"),
            _ if [-libc::EINTR, -libc::EAGAIN].contains(&result) => {}
            _ if result == -libc::EFAULT && !std::mem::replace(&mut self.touched[1], true) => {
                // SAFETY: as in `sent`.
                self.direct().into_iter().for_each(|piece| unsafe { lent::touch(piece) });
            }
            _ => self.failed(result),
        }
    }

    fn read(&mut self, bytes: &[u8], ended: &mut AnsweredSlots) -> Result<usize, (End, String)> {
        self.take_in(ended, |answers, sink| answers.receive(bytes, sink))
    }

    fn take_in<T>(
        &mut self,
        ended: &mut AnsweredSlots,
        take: impl FnOnce(&mut Answers, &mut Taking<'_>) -> Result<T, Violation>,
    ) -> Result<T, (End, String)> {
        let Self { flights, sent, held, .. } = self;
        let mut sink = Taking { flights, ended, sent: *sent, held, is_early: false };
        let taken = take(&mut self.answers, &mut sink);
        let taken = if sink.is_early { Err("it answers what was not asked yet".into()) } else { taken };
        taken.map_err(|why| (End::Broken, format!("the server broke the protocol: {why}")))
    }

    fn decrypt(&mut self, mut bytes: &[u8], ended: &mut AnsweredSlots) -> Result<usize, (End, String)> {
        let all = bytes.len();
        let mut tls = self.made.tls.take().expect("called with TLS");
        let mut plain = std::mem::take(&mut self.plain);
        let mut result = Ok(all);
        while !bytes.is_empty() && result.is_ok() {
            if tls.read_tls(&mut bytes).unwrap_or(0) == 0 {
                break;
            }
            match tls.process_new_packets() {
                Ok(state) => {
                    let before = plain.len();
                    plain.resize(before + state.plaintext_bytes_to_read(), 0);
                    let read = tls.reader().read(&mut plain[before..]).unwrap_or(0);
                    plain.truncate(before + read);
                    match self.read(&plain, ended) {
                        Ok(used) => drop(plain.drain(..used)),
                        Err(error) => result = Err(error),
                    }
                    if state.peer_has_closed() && result.is_ok() {
                        result = Err((End::ByServer, "the server closed the connection".into()));
                    }
                }
                Err(error) => result = Err((End::Cut, format!("TLS: {error}"))),
            }
        }
        (self.made.tls, self.plain) = (Some(tls), plain);
        result
    }

    pub(super) fn take_ended(&mut self, slot: usize) -> Flight {
        self.answers.give_back(slot);
        self.flights[slot].take().expect("an answered request was open")
    }

    /// Takes out all that it has not answered, the oldest first, each with whether the server may have had it whole.
    pub(super) fn take_open(&mut self) -> Vec<(bool, Flight)> {
        let sent = self.sent;
        let mut all: Vec<_> = self.flights.iter_mut().filter_map(Option::take).collect();
        all.sort_by_key(|flight| flight.here.cookie);
        let is_whole = |flight: &Flight| (1..=sent).contains(&flight.here.end);
        all.into_iter().map(|flight| (is_whole(&flight), flight)).collect()
    }

    /// As one that nobody uses, if it is idle.
    pub(super) fn into_idle(self) -> Option<Established> {
        let idle = self.is_usable() && self.open() == 0 && !self.is_sending && self.receiving.is_none();
        idle.then_some(self.made)
    }
}

fn is_reset(result: i32) -> bool {
    [-libc::ECONNRESET, -libc::EPIPE].contains(&result)
}

/// The part of a request's memory from a byte on, at most so much.
fn payload(flight: &Flight, from: u64, most: u64) -> impl Iterator<Item = libc::iovec> {
    let all = if matches!(flight.ask, Ask::Op(Op::Write, _)) { flight.bytes } else { 0 };
    flight.memory(from, (all - from.min(all)).min(most))
}

fn memory(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// The results of a server's answers.
struct Taking<'a> {
    flights: &'a mut [Option<Flight>],
    ended: &'a mut AnsweredSlots,
    sent: u64,
    held: &'a mut usize,
    is_early: bool,
}

impl Taking<'_> {
    fn flight(&mut self, slot: usize) -> &mut Flight {
        self.flights[slot].as_mut().expect("an answered request is open")
    }
}

impl Sink for Taking<'_> {
    fn data(&mut self, slot: usize, from: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for piece in self.flight(slot).memory(from, bytes.len() as u64) {
            let (part, after) = rest.split_at(piece.iov_len);
            // SAFETY: the memory is the device's until the request is answered (engine.1). Others may write to a virtual machine's at
            // the same time (ticket.2): nobody relies on which bytes are there then.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), piece.iov_base.cast(), part.len()) };
            rest = after;
        }
        assert!(rest.is_empty(), "data was checked to be within its read");
    }

    fn zeroes(&mut self, slot: usize, from: u64, len: u64) {
        for piece in self.flight(slot).memory(from, len) {
            // SAFETY: as above.
            unsafe { piece.iov_base.cast::<u8>().write_bytes(0, piece.iov_len) };
        }
    }

    fn run(&mut self, slot: usize, len: u64, state: u32) {
        let Flight { ask: Ask::Map { most, .. }, here: Here { runs, is_full, .. }, .. } = self.flight(slot) else {
            return;
        };
        // A client cares whether it has to read.
        let is_hole = state & STATE_ZERO != 0;
        let is_last = runs.len() == *most;
        match runs.last_mut() {
            _ if *is_full => {} // it is not next to the last one
            Some(last) if last.1 == is_hole => last.0 += len,
            _ if is_last => *is_full = true,
            _ => runs.push((len, is_hole)),
        }
    }

    fn ended(&mut self, slot: usize, result: Result<(), Errno>) {
        let (sent, here) = (self.sent, &mut self.flight(slot).here);
        match here.end {
            0 => self.is_early = true,
            end if end > sent => {
                here.answer = Some(result);
                *self.held += 1;
            }
            _ => self.ended.push((slot, result)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use fairlift_core::{ContextId, Flags};
    use rustls::ClientConnection;

    use super::*;
    use crate::kernel::ktls::tests::agreed;
    use crate::wire::nbd::greeting::Offer;

    fn connection(mut tls: Option<ClientConnection>) -> (Connection, UnixStream) {
        tls.iter_mut().for_each(|tls| tls.set_buffer_limit(None)); // as `connect` does
        let (socket, far) = UnixStream::pair().unwrap();
        let offer = Offer {
            size: 1 << 20,
            flags: 1,
            block_min: 1,
            block_preferred: 4096,
            block_max: 1 << 20,
            structured: true,
            context: None,
        };
        let made = Established { socket: Arc::new(socket.into()), tls: tls.map(Box::new), offer, is_local: false };
        (Connection::new(0, made, Ledger::default().born(0)), far)
    }

    /// A write of this memory, if it is some.
    fn flight(op: Op, memory: &mut [u8]) -> Flight {
        Flight {
            worker: ContextId(0),
            ask: Ask::Op(op, Tag(0)),
            flags: Flags::NONE,
            at: 0,
            bytes: memory.len() as u64,
            iovecs: vec![super::memory(memory)],
            since: Instant::ZERO,
            deadline: Instant::MAX,
            promise: None,
            is_passed_on: false,
            here: Here::default(),
        }
    }

    #[test]
    fn a_request_that_was_answered_is_never_late() {
        let (mut connection, _far) = connection(None);
        let at = |seconds| Instant::ZERO + fairlift_core::time::secs(seconds);
        for seconds in [30, 10, 20] {
            connection.take(Flight { deadline: at(seconds), ..flight(Op::Flush, &mut []) });
        }
        assert_eq!(connection.due(), Some(at(10)));
        let here = &mut connection.flights[1].as_mut().unwrap().here;
        (here.end, connection.sent) = (1, 1);
        let answer = [&0x6744_6698_u32.to_be_bytes()[..], &[0; 4], &here.cookie.to_be_bytes()].concat();
        let mut ended = Vec::new();
        connection.read(&answer, &mut ended).unwrap();
        ended.into_iter().for_each(|(slot, _)| drop(connection.take_ended(slot)));
        assert_eq!([10, 19, 20].map(|seconds| connection.is_late(at(seconds))), [false, false, true]);
    }

    /// socket.1
    #[test]
    fn with_tls_much_that_waits_goes_in_messages_of_a_bounded_size() {
        let (client, mut server) = agreed();
        let (mut connection, _far) = connection(Some(client));
        let ledger = Mutex::new(Ledger::default());
        let (mut said, mut heard, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        let mut content: Vec<Vec<u8>> =
            (0..9_u8).map(|number| vec![number; 700_000 * usize::from(number % 3)]).collect();
        for bytes in &mut content {
            let flight = flight(if bytes.is_empty() { Op::Flush } else { Op::Write }, bytes);
            connection.take(flight);
            let last = connection.flights.iter().flatten().max_by_key(|flight| flight.here.cookie).unwrap();
            encode_request(&mut said, false, &last.header());
            said.extend_from_slice(bytes);
        }
        let mut messages = 0;
        while !connection.queue.is_empty() {
            connection.compose(&ledger);
            assert!(connection.heads.len() < 11 << 17, "a message of {} bytes", connection.heads.len());
            let mut bytes = &connection.heads[..];
            while !bytes.is_empty() {
                server.read_tls(&mut bytes).unwrap();
                let count = server.process_new_packets().unwrap().plaintext_bytes_to_read();
                let before = heard.len();
                heard.resize(before + count, 0);
                server.reader().read_exact(&mut heard[before..]).unwrap();
            }
            connection.sent(connection.heads.len() as i32, &mut ended);
            messages += 1;
        }
        assert!(heard == said, "what was said is what is heard");
        assert_eq!((messages, connection.put, ended.len()), (7, connection.sent, 0));
        assert!(connection.take_open().into_iter().all(|(whole, _)| whole));
    }

    /// socket.4: with TLS, too, a write that is answered before all of it was sent ends when it was.
    #[test]
    fn with_tls_an_answer_counts_once_the_last_part_was_sent() {
        let (client, _server) = agreed();
        let (mut connection, _far) = connection(Some(client));
        let (ledger, mut ended, mut bytes) = (Mutex::new(Ledger::default()), Vec::new(), vec![1; 3 << 20]);
        connection.take(flight(Op::Write, &mut bytes));
        let cookie = connection.flights[0].as_ref().unwrap().here.cookie;
        let answer = [&0x6744_6698_u32.to_be_bytes()[..], &[0; 4], &cookie.to_be_bytes()].concat();
        for message in 0.. {
            connection.compose(&ledger);
            if message == 0 {
                connection.read(&answer, &mut ended).unwrap();
            }
            assert!(ended.is_empty(), "not all of it was sent");
            connection.sent(connection.heads.len() as i32, &mut ended);
            if connection.queue.is_empty() {
                break;
            }
        }
        assert_eq!(ended, [(0, Ok(()))]);
    }

    /// socket.5: a server that ends says so in TLS, and resets what it is sent after that.
    #[test]
    fn a_goodbye_that_has_come_counts_though_a_send_fails_first() {
        let (client, mut server) = agreed();
        let (mut connection, _far) = connection(Some(client));
        let (mut goodbye, mut ended) = (Vec::new(), Vec::new());
        server.send_close_notify();
        server.write_tls(&mut goodbye).unwrap();
        let mut input = vec![0; INPUT];
        input[..goodbye.len()].copy_from_slice(&goodbye);
        (connection.input, connection.receiving) = (Some(input.into()), Some(Receiving::Input));
        connection.sent(-libc::ECONNRESET, &mut ended);
        assert!(!connection.is_usable(), "nothing more goes by it");
        connection.received(goodbye.len() as i32, &mut ended);
        assert_eq!(connection.broken.map(|(end, _)| end), Some(End::ByServer));
    }
}
