//! Depths go to the next scheduler (fair.13): the rungs that are known, and how many places there were.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Depth, MEMORY, REST_MAX, RUNGS, Rung};
use crate::record::{Record, Unreadable};

const PART: &str = "depth";

/// The known rungs, each with its speed and pairs, and the others by their own names: for another server.
#[derive(Serialize, Deserialize)]
struct HandedRungs {
    rungs: Vec<(u16, f64, u32)>,
    wanted: u16,
    places: f64,
    all: f64,
    usual: f64,
    rest: u32,
}

impl Depth {
    /// Hands the known depths to another server (fair.13).
    pub(in crate::sched::fair) fn hand_on(&self, into: &mut Record) {
        let known = RUNGS.into_iter().zip(self.rungs).filter(|(_, rung)| rung.pairs > 0);
        let rungs = known.map(|(depth, Rung { speed, pairs })| (depth, speed, pairs)).collect();
        let Self { places, all, usual, rest, .. } = *self;
        into.put(PART, &HandedRungs { rungs, wanted: RUNGS[self.wanted], places, all, usual, rest });
    }

    /// Rungs that this one has not are left out.
    pub(in crate::sched::fair) fn take_on(&mut self, from: &mut Record) -> Result<(), Unreadable> {
        let Some(HandedRungs { rungs, wanted, places, all, usual, rest }) = from.take(PART)? else { return Ok(()) };
        let impossible = || Unreadable { part: PART.into(), why: "no disk has such depths".into() };
        let is_possible = |number: &f64| (0.0..1e12).contains(number);
        let is_known = rungs.iter().any(|(depth, ..)| *depth == wanted);
        let numbers = rungs.iter().flat_map(|(_, speed, pairs)| [*speed, f64::from(*pairs)]);
        if !is_known || !numbers.chain([places, all, usual]).all(|number| is_possible(&number)) {
            return Err(impossible());
        }
        let mut next = [Rung::default(); RUNGS.len()];
        for (depth, speed, pairs) in rungs {
            if let Some(at) = RUNGS.iter().position(|rung| *rung == depth).filter(|_| speed > 0.0) {
                next[at] = Rung { speed, pairs: pairs.min(MEMORY) };
            }
        }
        let wanted =
            RUNGS.iter().position(|rung| *rung == wanted).filter(|at| next[*at].pairs > 0).ok_or_else(impossible)?;
        (self.rungs, self.wanted, self.usual) = (next, wanted.min(self.top), usual);
        self.know(self.wanted); // the device may take fewer now
        self.rest = rest.clamp(1, REST_MAX);
        self.left = self.rest;
        self.place(places, all);
        self.resume();
        Ok(())
    }
}
