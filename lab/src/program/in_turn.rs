//! In turn: programs that do one thing after another, as those that sync do.
//!
//! in_turn.1  An operation is a list of actions: asks, and times for which the CPU works. Each begins when the one before it has ended. An ask
//!     that fails is the last.
//! in_turn.2  The next operation begins when one ends, or after `think`.

use std::collections::VecDeque;

use fairlift_core::program::{Ask, Meter, Program};
use fairlift_core::{Duration, Extent, Flags, Instant, Op, Outcome};

/// An action of an operation.
pub(super) enum Action {
    /// Asks, and waits for the end.
    Ask(Ask),
    /// The CPU copies or computes.
    Work(Duration),
}

/// Plans the next operation: fills the list with its actions in their order, and says how many bytes it counts for.
type Planner = dyn FnMut(&mut VecDeque<Action>) -> u64 + Send;

/// Runs operations: see the [module](self).
pub struct InTurn {
    plan: Box<Planner>,
    think: Duration,
    /// The actions of the present operation that have not begun.
    actions: VecDeque<Action>,
    bytes: u64,
    /// When the present operation began; `None` between two.
    began: Option<Instant>,
    /// When the next action or operation begins; `None`: an ask is under way.
    next: Option<Instant>,
    meter: Meter,
}

impl InTurn {
    /// Starts at once.
    pub(super) fn new(think: Duration, plan: impl FnMut(&mut VecDeque<Action>) -> u64 + Send + 'static) -> Self {
        Self {
            plan: Box::new(plan),
            think,
            actions: VecDeque::new(),
            bytes: 0,
            began: None,
            next: Some(Instant::ZERO),
            meter: Meter::default(),
        }
    }

    fn end(&mut self, at: Instant, outcome: Outcome) {
        let began = self.began.take().expect("what ends has begun");
        self.meter.ended(self.bytes, outcome, at.since(began));
        self.actions.clear();
        self.next = Some(at + self.think); // in_turn.2
    }
}

/// A read or write of a program that waits for it.
pub(super) fn ask(op: Op, extent: Extent, flags: Flags) -> Action {
    Action::Ask(Ask { token: 0, op, flags, extent })
}

/// A write of a program that waits for it.
pub(super) fn write(extent: Extent, flags: Flags) -> Action {
    ask(Op::Write, extent, flags | Flags::SYNC)
}

/// The request that makes the writes before it durable.
pub(super) const FLUSH: Action = Action::Ask(Ask { token: 0, op: Op::Flush, flags: Flags::NONE, extent: Extent::NONE });

impl Program for InTurn {
    fn poll_ask(&mut self, now: Instant) -> Option<Ask> {
        while let Some(at) = self.next.filter(|at| *at <= now) {
            if self.began.is_none() {
                self.began = Some(now);
                self.bytes = (self.plan)(&mut self.actions);
            }
            match self.actions.pop_front() {
                Some(Action::Ask(ask)) => {
                    self.next = None;
                    return Some(ask);
                }
                Some(Action::Work(time)) => self.next = Some(at + time),
                None => self.end(at, Outcome::Done),
            }
        }
        None
    }

    fn handle_end(&mut self, now: Instant, _token: u32, outcome: Outcome) {
        assert!(self.next.replace(now).is_none(), "an end that nobody waits for");
        if outcome != Outcome::Done || self.actions.is_empty() {
            self.end(now, outcome); // in_turn.1
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn open_since(&self) -> Option<Instant> {
        self.began
    }
}
