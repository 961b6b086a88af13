//! Read-ahead: a sequential reader through the page cache, as Linux serves it.
//!
//! read_ahead.1  The first window is 16 KiB, and each next one twice as long, up to the largest (Linux: `get_init_ra_size` and
//!     `get_next_ra_size` for reads of a page; the largest is `read_ahead_kb`, by default 128).
//! read_ahead.2  When the reader takes the first page of a window, the next window is asked for: one window is being read while one
//!     is on its way, so at most two are outstanding.
//! read_ahead.3  The reader waits only for a page that has not come yet.
//! read_ahead.4  At the end of the file it starts again at its beginning, with a first window (read_ahead.1).
//! read_ahead.5  An operation is one `read()` of a block. Data in memory costs the time to copy it.
//!
//! Not modelled: pages found in memory from before, other readers of the same file, memory pressure.

use fairlift_core::program::{Ask, Meter, Program};
use fairlift_core::{Duration, Flags, Instant, Op, Outcome};

use super::{Region, copying};

/// The first window, in bytes.
const FIRST: u64 = 16 << 10;
/// The largest window, in bytes: Linux's default `read_ahead_kb`.
pub(crate) const LARGEST: u64 = 128 << 10;

/// A piece of the file that comes into memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fetch {
    start: u64,
    end: u64,
    token: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Wanted,
    Requested,
    Here(Outcome),
}

/// A buffered sequential reader: see the [module](self).
pub struct ReadAhead {
    file: Region,
    block: u64,
    think: Duration,
    /// The largest window, in bytes.
    largest: u64,
    /// The window that is being read, and the one after it.
    current: Option<Fetch>,
    next: Option<Fetch>,
    /// Where the window after those starts, and how long it is.
    ahead: u64,
    length: u64,
    /// How much of the file the reader has.
    position: u64,
    /// Until when it copies or thinks, and where it will then be.
    busy: Option<(Instant, u64)>,
    /// The present `read()`: its beginning, the part of its block that it has, and its outcome.
    began: Instant,
    done: u64,
    outcome: Outcome,
    meter: Meter,
}

impl ReadAhead {
    /// Starts at once, at the beginning of its file; reads `block` bytes at a time and thinks for `think` between reads. Its windows have up to
    /// `largest` bytes.
    ///
    /// # Panics
    /// If the block is empty.
    #[must_use]
    pub fn new(file: Region, block: u64, think: Duration, largest: u64) -> Self {
        assert!(block > 0, "a read of nothing");
        Self {
            file,
            block,
            think,
            largest,
            current: None,
            next: None,
            ahead: 0,
            length: FIRST,
            position: 0,
            busy: None,
            began: Instant::ZERO,
            done: 0,
            outcome: Outcome::Done,
            meter: Meter::default(),
        }
    }

    /// Does all that can be done at `now`.
    fn go_on(&mut self, now: Instant) {
        loop {
            if let Some((until, position)) = self.busy {
                if until > now {
                    return;
                }
                self.busy = None;
                self.copied(until, position);
            }
            let Some(current) = self.current else {
                (self.ahead, self.length) = (0, FIRST); // read_ahead.1, read_ahead.4
                self.current = self.window(0);
                return;
            };
            let is_here = matches!(current.state, State::Here(_));
            if self.next.is_none() && (is_here || current.start > 0) {
                self.next = self.window(current.token ^ 1); // read_ahead.2
            }
            if !is_here {
                return; // read_ahead.3
            }
            if self.began > now {
                self.busy = Some((self.began, self.position)); // it thinks
                return;
            }
            let rest = if self.think == Duration::ZERO { u64::MAX } else { self.block - self.done };
            let length = rest.min(current.end - self.position);
            self.busy = Some((now + copying(length), self.position + length)); // read_ahead.5
        }
    }

    /// The next window, if the file goes on.
    fn window(&mut self, token: u32) -> Option<Fetch> {
        let (start, end) = (self.ahead, self.file.bytes.min(self.ahead + self.length));
        self.ahead = end;
        self.length = self.largest.min(2 * self.length); // read_ahead.1
        (start < end).then_some(Fetch { start, end, token, state: State::Wanted })
    }

    /// At `now`, the reader has all up to `position`; its operations may have ended before.
    fn copied(&mut self, now: Instant, position: u64) {
        let mut at = Instant::from_nanos(now.as_nanos() - copying(position - self.position).as_nanos());
        let is_end = position == self.file.bytes;
        let met = match self.current {
            Some(Fetch { state: State::Here(outcome), .. }) if self.position < position => outcome,
            _ => Outcome::Done,
        };
        while self.position < position {
            let step = (self.block - self.done).min(position - self.position);
            at += copying(step);
            self.done += step;
            self.position += step;
            self.outcome = self.outcome.and(met);
            if self.done == self.block || (is_end && self.position == position) {
                self.meter.ended(self.done, self.outcome, at.since(self.began));
                (self.began, self.done, self.outcome) = (at + self.think, 0, Outcome::Done);
            }
        }
        if self.current.is_some_and(|current| current.end == position) {
            self.current = self.next.take();
        }
        if is_end {
            self.position = 0; // read_ahead.4
        }
    }
}

impl Program for ReadAhead {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        self.go_on(now);
        let wanted =
            [&mut self.current, &mut self.next].into_iter().flatten().find(|one| one.state == State::Wanted)?;
        wanted.state = State::Requested;
        let extent = self.file.extent(wanted.start, wanted.end - wanted.start);
        Some(Ask { token: wanted.token, op: Op::Read, flags: Flags::NONE, extent })
    }

    fn handle_end(&mut self, _now: Instant, token: u32, outcome: Outcome) {
        let ended = [&mut self.current, &mut self.next].into_iter().flatten().find(|one| one.token == token);
        ended.expect("a window stays until it has come").state = State::Here(outcome);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.busy.map(|(until, _)| until)
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn open_since(&self) -> Option<Instant> {
        Some(self.began)
    }
}
