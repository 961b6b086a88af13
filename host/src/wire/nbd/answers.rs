//! Answers: what a server says to the requests of a client, as a pure state machine: bytes in, events out.
//!
//! A server may be broken, or hostile. Example: it answers a read of 4 KiB with two chunks of 4 KiB for the same place. A client
//! that believes it writes 4 KiB beyond its buffer, or tells its own client data that never was there. So each answer is held
//! against what was asked.
//!
//! answers.1  An answer that does not fit what was asked (to nothing, of the wrong kind, outside of the range, with a length that
//!            cannot be) is a [`Violation`], after which nothing more is taken.
//! answers.2  Each byte of a read comes once. A read is told as done when all its bytes came; one that ends before is a violation.
//! answers.3  No memory is taken because a server announces something: payload is passed on as it comes, an error's text is
//!            passed over.
//! answers.4  An answer ends: a chunk brings data, runs or the end, and the rest are bounded ([`Answers::SAYS_NOTHING`]).

use fairlift_core::Errno;
use slab::Slab;

use super::super::bytes::Take;
use super::{
    CHUNK_BLOCK_STATUS, CHUNK_DONE, CHUNK_IS_ERROR, CHUNK_MAGIC, CHUNK_NONE, CHUNK_OFFSET_DATA, CHUNK_OFFSET_HOLE,
    SIMPLE_REPLY_MAGIC, errno,
};

/// The request, as far as its answer depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    /// A number of bytes from there on.
    Read {
        /// The first byte.
        at: u64,
        /// How many.
        len: u64,
    },
    /// The allocation of that many bytes.
    Status {
        /// How many.
        len: u64,
    },
    /// Something whose answer has nothing but an error, or none.
    Other,
}

/// The results of the answers. A request is named by its slot.
pub trait Sink {
    /// Bytes of a read, from a byte of it on.
    fn data(&mut self, slot: usize, from: u64, bytes: &[u8]);
    /// Bytes of a read that are zeroes, from an offset on.
    fn zeroes(&mut self, slot: usize, from: u64, len: u64);
    /// The next run of a block status, in such a state.
    fn run(&mut self, slot: usize, len: u64, state: u32);
    /// The request is over; its slot is not used again before it is [given back](Answers::give_back).
    fn ended(&mut self, slot: usize, result: Result<(), Errno>);
}

/// How a server does not keep to the protocol, for the log.
pub type Violation = String;

/// The requests that a server has not answered, and where in its answers we are.
#[derive(Debug)]
pub struct Answers {
    /// Replies are structured.
    structured: bool,
    /// The number of `base:allocation`.
    context: Option<u32>,
    /// `None`: it has ended.
    slots: Slab<Option<Open>>,
    made: u64,
    state: State,
}

#[derive(Debug)]
struct Open {
    cookie: u64,
    awaited: Awaited,
    /// The ranges of a read that came, in order and apart.
    came: Vec<(u64, u64)>,
    /// Bytes of a block status that were told.
    answered: u64,
    has_status: bool,
    error: Option<Errno>,
    chunks: u64,
}

/// The owner of the next byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The start of an answer, or of a chunk.
    Head,
    /// The rest of a chunk: this many bytes of it. `last`: the answer ends with it.
    Chunk { slot: usize, left: u64, last: bool, has: Content },
    /// There was a violation.
    Over,
}

/// The content of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    /// Payload of a read, from this byte of it on.
    Data(u64),
    /// Runs of a block status.
    Runs,
    /// Text of an error.
    Text,
}

impl Answers {
    /// How many chunks of an answer may bring less than 512 bytes. Chosen: an error for each of several places, and some
    /// data in odd pieces.
    pub const SAYS_NOTHING: u64 = 64;

    /// Nothing was asked.
    #[must_use]
    pub fn new(structured: bool, context: Option<u32>) -> Self {
        Self { structured, context, slots: Slab::new(), made: 0, state: State::Head }
    }

    /// Takes note of a request: its slot, and the cookie that it is to be sent with.
    pub fn ask(&mut self, awaited: Awaited) -> (usize, u64) {
        let entry = self.slots.vacant_entry();
        let slot = entry.key();
        self.made += 1;
        let cookie = self.made << 16 | (slot as u64 & 0xffff);
        let (came, answered, has_status, error, chunks) = Default::default();
        entry.insert(Some(Open { cookie, awaited, came, answered, has_status, error, chunks }));
        (slot, cookie)
    }

    /// Takes back the slot of a request that has ended.
    ///
    /// # Panics
    /// If it has not.
    pub fn give_back(&mut self, slot: usize) {
        assert!(self.slots.remove(slot).is_none(), "slot {slot} is given back and has not ended");
    }

    /// How many slots are in use.
    #[must_use]
    pub fn open(&self) -> usize {
        self.slots.len()
    }

    /// The read that the next bytes belong to: its slot, their first byte, and their number. They may be put there directly, and are
    /// [`advance`](Self::advance)d over.
    #[must_use]
    pub const fn payload(&self) -> Option<(usize, u64, u64)> {
        match self.state {
            State::Chunk { slot, left, has: Content::Data(from), .. } => Some((slot, from, left)),
            State::Head | State::Chunk { .. } | State::Over => None,
        }
    }

    /// Counts received bytes of the [`payload`](Self::payload).
    ///
    /// # Panics
    /// If there is less payload.
    pub fn advance(&mut self, bytes: u64, sink: &mut impl Sink) -> Result<(), Violation> {
        let State::Chunk { slot, left, last, mut has } = self.state else { panic!("no payload is coming") };
        assert!(bytes <= left, "{bytes} bytes of a payload of {left}");
        if let Content::Data(from) = &mut has {
            *from += bytes;
        }
        self.state = State::Chunk { slot, left: left - bytes, last, has };
        if left == bytes {
            self.state = State::Head;
            self.chunk_ended(slot, last, sink)?;
        }
        Ok(())
    }

    /// Takes as many of `bytes` as can be taken; how many. The rest is to be given again with the bytes that follow.
    ///
    /// # Errors
    /// The server does not keep to the protocol: nothing it says is of use any more.
    pub fn receive(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<usize, Violation> {
        let result = self.go(bytes, sink);
        if result.is_err() {
            self.state = State::Over;
        }
        result
    }

    fn go(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<usize, Violation> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            match self.state {
                State::Over => return Err("it broke the protocol before".into()),
                State::Chunk { slot, left, has, .. } => {
                    let mut part = left.min(rest.len() as u64);
                    match has {
                        _ if part == 0 => return Ok(used),
                        Content::Data(from) => sink.data(slot, from, &rest[..part as usize]),
                        Content::Runs => {
                            let Some(run) = rest.first_chunk() else { return Ok(used) };
                            self.run(slot, run, sink)?;
                            part = 8;
                        }
                        Content::Text => {}
                    }
                    used += part as usize;
                    self.advance(part, sink)?;
                }
                State::Head => match self.head(rest, sink)? {
                    0 => return Ok(used),
                    some => used += some,
                },
            }
        }
    }

    /// The start of an answer or chunk; how long it was, 0 if it is not there whole.
    fn head(&mut self, rest: &[u8], sink: &mut impl Sink) -> Result<usize, Violation> {
        let mut head = Take(rest);
        match head.u32() {
            None => Ok(0),
            Some(SIMPLE_REPLY_MAGIC) => {
                let (Some(error), Some(cookie)) = (head.u32(), head.u64()) else { return Ok(0) };
                self.simple(error, cookie, sink)?;
                Ok(16)
            }
            Some(CHUNK_MAGIC) if self.structured => {
                let (Some(flags), Some(kind), Some(cookie), Some(len)) =
                    (head.u16(), head.u16(), head.u64(), head.u32())
                else {
                    return Ok(0);
                };
                let used = self.chunk(flags, kind, cookie, len, head, sink)?;
                Ok(used.map_or(0, |used| 20 + used))
            }
            Some(other) => Err(format!("an answer starts with {other:#010x}")),
        }
    }

    /// The request of a cookie (answers.1).
    fn find(&self, cookie: u64) -> Result<usize, Violation> {
        let slot = (cookie & 0xffff) as usize;
        match self.slots.get(slot) {
            Some(Some(open)) if open.cookie == cookie => Ok(slot),
            _ => Err(format!("an answer to {cookie:#x}, which was not asked or was answered")),
        }
    }

    fn open_at(&mut self, slot: usize) -> &mut Open {
        self.slots[slot].as_mut().expect("a slot that was found is open")
    }

    fn simple(&mut self, error: u32, cookie: u64, sink: &mut impl Sink) -> Result<(), Violation> {
        let slot = self.find(cookie)?;
        let structured = self.structured;
        let open = self.open_at(slot);
        if open.chunks > 0 {
            return Err("an answer of chunks ends with a simple one".into());
        }
        match (open.awaited, error) {
            // "Simple reply message": not for a read where structured replies were negotiated.
            (Awaited::Read { .. }, _) if structured => Err("a read was answered by a simple reply".into()),
            (Awaited::Status { .. }, 0) => Err("a block status was answered without any".into()),
            (Awaited::Read { len, .. }, 0) => {
                open.came.push((0, len));
                self.state = State::Chunk { slot, left: len, last: true, has: Content::Data(0) };
                Ok(())
            }
            (_, error) => {
                open.error = (error != 0).then(|| errno(error));
                self.chunk_ended(slot, true, sink)
            }
        }
    }

    /// A chunk, with a number of bytes behind its head; how many of them were used, `None` if they are not there whole.
    fn chunk(
        &mut self,
        flags: u16,
        kind: u16,
        cookie: u64,
        len: u32,
        mut rest: Take<'_>,
        sink: &mut impl Sink,
    ) -> Result<Option<usize>, Violation> {
        let slot = self.find(cookie)?;
        let (last, len, context) = (flags & CHUNK_DONE != 0, u64::from(len), self.context);
        let open = self.open_at(slot);
        let awaited = open.awaited;
        match (kind, awaited) {
            (CHUNK_NONE, _) if len != 0 || !last => Err("a chunk of nothing that does not end its answer".into()),
            (CHUNK_NONE, _) => {
                self.chunk_ended(slot, true, sink)?;
                Ok(Some(0))
            }
            (CHUNK_OFFSET_DATA, Awaited::Read { at, .. }) => {
                let Some(offset) = rest.u64() else { return Ok(None) };
                let Some(bytes) = len.checked_sub(8) else { return Err("a chunk of data has no place".into()) };
                let from = open.comes(offset, at, bytes)?;
                self.state = State::Chunk { slot, left: bytes, last, has: Content::Data(from) };
                Ok(Some(8))
            }
            (CHUNK_OFFSET_HOLE, Awaited::Read { at, .. }) => {
                if len != 12 {
                    return Err(format!("a hole is told in {len} bytes"));
                }
                let (Some(offset), Some(bytes)) = (rest.u64(), rest.u32()) else { return Ok(None) };
                let bytes = u64::from(bytes);
                let from = open.comes(offset, at, bytes)?;
                sink.zeroes(slot, from, bytes);
                self.chunk_ended(slot, last, sink)?;
                Ok(Some(12))
            }
            (CHUNK_BLOCK_STATUS, Awaited::Status { .. }) => {
                let Some(id) = rest.u32() else { return Ok(None) };
                if len < 12 || (len - 4) % 8 != 0 {
                    return Err(format!("a block status of {len} bytes"));
                }
                if context != Some(id) || std::mem::replace(&mut open.has_status, true) {
                    return Err("a block status of another context, or a second one".into());
                }
                self.state = State::Chunk { slot, left: len - 4, last, has: Content::Runs };
                Ok(Some(4))
            }
            (kind, _) if kind & CHUNK_IS_ERROR != 0 => {
                let Some(error) = rest.u32() else { return Ok(None) };
                if len < 6 || error == 0 {
                    return Err("an error that is none".into());
                }
                open.error.get_or_insert(errno(error));
                open.counts(0)?;
                self.state = State::Chunk { slot, left: len - 4, last, has: Content::Text };
                Ok(Some(4))
            }
            (kind, awaited) => Err(format!("a chunk of kind {kind} as answer to {awaited:?}")),
        }
    }

    fn run(&mut self, slot: usize, run: &[u8; 8], sink: &mut impl Sink) -> Result<(), Violation> {
        let run = u64::from_be_bytes(*run);
        let (len, state) = (run >> 32, run as u32);
        let open = self.open_at(slot);
        let Awaited::Status { len: awaited } = open.awaited else { unreachable!("runs are of a block status") };
        if len == 0 {
            return Err("a run of nothing".into());
        }
        // The last run may go on behind what was asked; others are not of interest.
        let within = len.min(awaited - open.answered);
        open.answered += within;
        if within > 0 {
            sink.run(slot, within, state);
        }
        Ok(())
    }

    /// A chunk came whole; `last`: so did the answer.
    fn chunk_ended(&mut self, slot: usize, last: bool, sink: &mut impl Sink) -> Result<(), Violation> {
        if !last {
            return Ok(());
        }
        let open = self.slots[slot].take().expect("a slot that was found is open");
        let result = match (open.error, open.awaited) {
            (Some(errno), _) => Err(errno),
            // answers.2
            (None, Awaited::Read { len, .. }) if open.came.iter().map(|(from, end)| end - from).sum::<u64>() != len => {
                sink.ended(slot, Err(Errno::EIO));
                return Err("a read was said to be done, and not all of it came".into());
            }
            (None, Awaited::Status { .. }) if open.answered == 0 => {
                sink.ended(slot, Err(Errno::EIO));
                return Err("a block status was said to be done, and nothing was told".into());
            }
            (None, _) => Ok(()),
        };
        sink.ended(slot, result);
        Ok(())
    }
}

impl Open {
    /// Bytes of a read come, which starts at `start`: from which byte of it on (answers.2).
    fn comes(&mut self, offset: u64, start: u64, bytes: u64) -> Result<u64, Violation> {
        let Awaited::Read { len, .. } = self.awaited else { unreachable!("data is of a read") };
        let within = offset.checked_sub(start).filter(|from| from.checked_add(bytes).is_some_and(|end| end <= len));
        let Some(from) = within.filter(|_| bytes > 0) else {
            return Err(format!("{bytes} bytes at {offset} as answer to a read of {len} at {start}"));
        };
        self.counts(bytes)?;
        let (place, end) = (self.came.partition_point(|(_, end)| *end <= from), from + bytes);
        if self.came.get(place).is_some_and(|next| next.0 < end) {
            return Err(format!("bytes {from} to {end} of a read came twice"));
        }
        self.came.insert(place, (from, end));
        Ok(from)
    }

    /// A chunk with `bytes` came (answers.4).
    fn counts(&mut self, bytes: u64) -> Result<(), Violation> {
        self.chunks += 1;
        let most = match self.awaited {
            Awaited::Read { len, .. } => len / 512 + Answers::SAYS_NOTHING,
            Awaited::Status { .. } | Awaited::Other => Answers::SAYS_NOTHING,
        };
        if self.chunks > most {
            return Err(format!("more than {most} chunks as one answer, the last of {bytes} bytes"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{block_status, error_chunk, none_chunk, offset_data_header, offset_hole, simple_reply};
    use super::*;

    /// The answer as received.
    #[derive(Default)]
    struct Received {
        data: Vec<u8>,
        runs: Vec<(u64, u32)>,
        ended: Vec<(usize, Result<(), Errno>)>,
    }

    impl Sink for Received {
        fn data(&mut self, _slot: usize, from: u64, bytes: &[u8]) {
            self.data[from as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        fn zeroes(&mut self, _slot: usize, from: u64, len: u64) {
            self.data[from as usize..][..len as usize].fill(0);
        }
        fn run(&mut self, _slot: usize, len: u64, state: u32) {
            self.runs.push((len, state));
        }
        fn ended(&mut self, slot: usize, result: Result<(), Errno>) {
            self.ended.push((slot, result));
        }
    }

    fn news() -> Received {
        Received { data: vec![0xee; 4096], ..Received::default() }
    }

    /// A read of 4096 bytes at 8192, of a server with structured replies.
    fn reading() -> (Answers, u64) {
        let mut answers = Answers::new(true, Some(7));
        let (_, cookie) = answers.ask(Awaited::Read { at: 8192, len: 4096 });
        (answers, cookie)
    }

    /// A chunk of data that does not end its answer unless it is the last.
    fn data(cookie: u64, offset: u64, bytes: &[u8], last: bool) -> Vec<u8> {
        let mut head = offset_data_header(false, cookie, offset, bytes.len() as u64).to_vec();
        head[5] = u8::from(last);
        [&head[..], bytes].concat()
    }

    fn hole(cookie: u64, offset: u64, len: u64, last: bool) -> Vec<u8> {
        let mut head = offset_hole(false, cookie, offset, len).to_vec();
        head[5] = u8::from(last);
        head
    }

    /// Gives the bytes in pieces of `piece`.
    fn feed(answers: &mut Answers, bytes: &[u8], piece: usize) -> (Received, Result<(), Violation>) {
        let (mut news, mut held) = (news(), Vec::new());
        for part in bytes.chunks(piece) {
            held.extend_from_slice(part);
            match answers.receive(&held, &mut news) {
                Ok(used) => drop(held.drain(..used)),
                Err(violation) => return (news, Err(violation)),
            }
        }
        news.ended.iter().for_each(|(slot, _)| answers.give_back(*slot));
        (news, Ok(()))
    }

    /// answers.2
    #[test]
    fn a_read_comes_in_chunks_in_any_order_and_in_any_pieces() {
        for piece in [1, 7, 20, 28, 1000, usize::MAX] {
            let (mut answers, cookie) = reading();
            let bytes = [
                data(cookie, 8192 + 2048, &[3; 1024], false),
                hole(cookie, 8192, 1024, false),
                data(cookie, 8192 + 3072, &[4; 1024], false),
                data(cookie, 8192 + 1024, &[2; 1024], true),
            ];
            let (news, result) = feed(&mut answers, &bytes.concat(), piece);
            assert_eq!((result, &news.ended[..], answers.open()), (Ok(()), &[(0, Ok(()))][..], 0));
            assert_eq!(news.data, [[0; 1024], [2; 1024], [3; 1024], [4; 1024]].concat());
        }
    }

    /// answers.1, answers.2
    #[test]
    fn what_does_not_fit_what_was_asked_is_a_violation() {
        let (_, cookie) = reading();
        let mut status = Vec::new();
        block_status(&mut status, false, (cookie, 0), (7, true), &[(4096, 0)]);
        let mut endless = Vec::new();
        error_chunk(&mut endless, false, cookie, 0, 5, "no");
        endless[5] = 0;
        for (bytes, says) in [
            (data(cookie, 8192 - 512, &[1; 1024], true), "1024 bytes at 7680"),
            (data(cookie, 8192 + 4096, &[1; 512], true), "512 bytes at 12288"),
            (data(cookie, u64::MAX, &[1; 512], true), "512 bytes at 18446744073709551615"),
            (data(cookie, 8192, &[], true), "0 bytes at 8192"),
            (data(cookie, 8192, &[1; 512], true), "not all of it came"),
            (data(cookie + 1, 8192, &[1; 512], true), "which was not asked"),
            (data(cookie + (1 << 16), 8192, &[1; 512], true), "which was not asked"),
            ([data(cookie, 8192, &[1; 1024], false), hole(cookie, 9000, 512, true)].concat(), "came twice"),
            ([data(cookie, 9216, &[1; 1024], false), hole(cookie, 8192, 1025, true)].concat(), "came twice"),
            (
                [hole(cookie, 8192, 512, false), hole(cookie, 9216, 512, false), data(cookie, 8704, &[1; 1024], true)]
                    .concat(),
                "came twice",
            ),
            (simple_reply(0, cookie).to_vec(), "simple reply"),
            (none_chunk(false, cookie, 0).to_vec(), "not all of it came"),
            (status, "a chunk of kind 5"),
            (endless.repeat(200), "more than 72 chunks"),
            (data(cookie, 8192, &[1; 4096], true).repeat(2), "was answered"),
            (b"HTTP/1.1 400 Bad Request".to_vec(), "starts with 0x48545450"),
        ] {
            let (mut answers, _) = reading();
            let (news, result) = feed(&mut answers, &bytes, usize::MAX);
            let violation = result.expect_err(says);
            assert!(violation.contains(says), "{violation}: {says}");
            assert!(news.ended.iter().all(|(_, result)| result.is_err() || says == "was answered"), "{says}");
            assert!(answers.receive(&[], &mut told_nothing()).is_err(), "nothing more is taken");
        }
    }

    fn told_nothing() -> Received {
        Received::default()
    }

    #[test]
    fn an_error_ends_the_request_though_data_came_before_and_its_text_is_passed_over() {
        let (mut answers, cookie) = reading();
        let mut bytes = data(cookie, 8192, &[1; 512], false);
        error_chunk(&mut bytes, false, cookie, 8192, 28, "no space");
        let (news, result) = feed(&mut answers, &bytes, 3);
        assert_eq!((result, news.ended), (Ok(()), vec![(0, Err(Errno::ENOSPC))]));
    }

    #[test]
    fn simple_replies_are_for_servers_without_structured_ones() {
        let mut answers = Answers::new(false, None);
        let (read, write) = (answers.ask(Awaited::Read { at: 0, len: 4096 }), answers.ask(Awaited::Other));
        let bytes = [&simple_reply(5, write.1)[..], &simple_reply(0, read.1), &[9; 4096]].concat();
        let (news, result) = feed(&mut answers, &bytes, 100);
        assert_eq!((result, news.ended), (Ok(()), vec![(write.0, Err(Errno::EIO)), (read.0, Ok(()))]));
        assert_eq!(news.data, [9; 4096]);
        let chunk = data(answers.ask(Awaited::Read { at: 0, len: 512 }).1, 0, &[1; 512], true);
        assert!(feed(&mut answers, &chunk, 100).1.is_err(), "no chunks without having asked for them");
    }

    #[test]
    fn block_status_is_told_run_by_run_and_not_beyond_what_was_asked() {
        let mut answers = Answers::new(true, Some(7));
        let (slot, cookie) = answers.ask(Awaited::Status { len: 8192 });
        let mut bytes = Vec::new();
        block_status(&mut bytes, false, (cookie, 0), (7, true), &[(4096, 3), (65536, 0), (4096, 3)]);
        let (news, result) = feed(&mut answers, &bytes, 5);
        assert_eq!((result, news.ended), (Ok(()), vec![(slot, Ok(()))]));
        assert_eq!(news.runs, [(4096, 3), (4096, 0)]);
        for runs in [&[(0, 0)][..], &[]] {
            let mut answers = Answers::new(true, Some(7));
            let (_, cookie) = answers.ask(Awaited::Status { len: 8192 });
            let mut bytes = Vec::new();
            block_status(&mut bytes, false, (cookie, 0), (7, true), runs);
            assert!(feed(&mut answers, &bytes, 5).1.is_err(), "{runs:?}");
        }
    }
}
