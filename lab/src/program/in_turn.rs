//! In turn: programs that ask for one thing after another, as those that sync do.
//!
//! in_turn.1  An operation is a list of asks; each is made when the one before it has ended. An ask that fails is the last.
//! in_turn.2  The next operation begins when one ends, or after `think`. Its first ask goes out when the CPU has copied what the
//!     operation copies.

use fairlift_core::program::{Ask, Meter, Program};
use fairlift_core::{Duration, Extent, Flags, Instant, Op, Outcome};

/// The operations of a kind of program.
pub trait Operations: Send {
    /// Plans the next operation: fills `asks` in their order, and says how many bytes it counts for.
    fn plan(&mut self, asks: &mut Vec<Ask>) -> u64;

    /// The CPU's copies before the first ask of the operation that is planned next.
    fn copies(&self) -> Duration {
        Duration::ZERO
    }
}

/// Runs [`Operations`]: see the [module](self).
pub struct InTurn<O> {
    operations: O,
    think: Duration,
    /// The asks of the present operation, and the number of those that were made.
    asks: Vec<Ask>,
    made: usize,
    bytes: u64,
    began: Instant,
    step: State,
    meter: Meter,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The next operation's first ask goes out then.
    Thinks(Instant),
    Next,
    Requested,
}

impl<O: Operations> InTurn<O> {
    /// Starts at once.
    pub(super) fn of(operations: O, think: Duration) -> Self {
        let step = State::Thinks(Instant::ZERO + operations.copies());
        Self {
            operations,
            think,
            asks: Vec::new(),
            made: 0,
            bytes: 0,
            began: Instant::ZERO,
            step,
            meter: Meter::default(),
        }
    }
}

/// A write of a program that waits for it.
pub(super) fn write(extent: Extent, flags: Flags) -> Ask {
    Ask { token: 0, op: Op::Write, flags: flags | Flags::SYNC, extent }
}

/// The request that makes the writes before it durable.
pub(super) const FLUSH: Ask = Ask { token: 0, op: Op::Flush, flags: Flags::NONE, extent: Extent::NONE };

impl<O: Operations> Program for InTurn<O> {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        match self.step {
            State::Thinks(until) if until <= now => {
                self.asks.clear();
                self.made = 0;
                self.bytes = self.operations.plan(&mut self.asks);
            }
            State::Next => {}
            State::Thinks(_) | State::Requested => return None,
        }
        self.step = State::Requested;
        self.made += 1;
        Some(self.asks[self.made - 1])
    }

    fn handle_end(&mut self, now: Instant, _token: u32, outcome: Outcome) {
        assert!(self.step == State::Requested, "an end that nobody waits for");
        if outcome == Outcome::Done && self.made < self.asks.len() {
            self.step = State::Next; // in_turn.1
            return;
        }
        self.meter.ended(self.bytes, outcome, now.since(self.began));
        self.began = now + self.think; // in_turn.2
        self.step = State::Thinks(self.began + self.operations.copies());
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.step {
            State::Thinks(until) => Some(until),
            State::Next | State::Requested => None,
        }
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn open_since(&self) -> Option<Instant> {
        Some(self.began)
    }
}
