//! A small coordinator of flushes on a lock and two condition variables, with places to break it.

use std::collections::HashMap;

use fairlift_core::Errno;
use loom::sync::{Condvar, Mutex};

/// What is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Breaks {
    Nothing,
    /// Who asks while a flush is under way is told when that one ends.
    JoinsTheRunningOne,
    /// The seed's hard spot: first the next flush is let go, and then, in a second step, those who shared the last one that
    /// started; which may be the next by now.
    ReleasesInTwoSteps,
    /// How the latest flush ended is told to whoever looks.
    OneOutcomeForAll,
}

pub(crate) struct Twin {
    breaks: Breaks,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// How many wait for one that has not started.
    waiting: usize,
    started: usize,
    finished: usize,
    /// Up to which flush those who shared it are let go.
    released: usize,
    /// How each flush ended, by number; 0 is the latest.
    outcomes: HashMap<usize, Result<(), Errno>>,
}

impl Twin {
    pub(crate) fn new(breaks: Breaks) -> Self {
        Self { breaks, state: Mutex::new(State::default()), ended: Condvar::new() }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().unwrap().waiting
    }

    pub(crate) fn flush(&self, device: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let mut state = self.state.lock().unwrap();
        let joins = self.breaks == Breaks::JoinsTheRunningOne && state.started > state.finished;
        let mine = if joins { state.started } else { state.started + 1 };
        loop {
            if state.released >= mine {
                let number = if self.breaks == Breaks::OneOutcomeForAll { 0 } else { mine };
                return state.outcomes.get(&number).copied().unwrap_or(Ok(()));
            }
            let is_running = state.started > state.finished;
            if !is_running && state.started < mine {
                break;
            }
            state.waiting += 1;
            state = self.ended.wait(state).unwrap();
            state.waiting -= 1;
        }
        state.started += 1;
        let number = state.started;
        drop(state);
        let outcome = device();
        let mut state = self.state.lock().unwrap();
        state.outcomes.insert(number, outcome);
        state.outcomes.insert(0, outcome);
        state.finished = number;
        if self.breaks == Breaks::ReleasesInTwoSteps {
            drop(state);
            self.ended.notify_all();
            state = self.state.lock().unwrap();
            state.released = state.started;
        } else {
            state.released = number;
        }
        drop(state);
        self.ended.notify_all();
        outcome
    }
}
