//! Events: what has happened, for people and programs that watch a server.
//!
//! events.1  Only the latest are kept; a slow reader learns how many are missing. Nobody is waited for.
//! events.2  An event is told when something rare happens (a client comes, a change is made), and never for a request.

use std::collections::VecDeque;
use std::time::SystemTime;

use crate::sync::{Mutex, lock};

/// How many are kept. Chosen: a thousand clients that come at once are all seen by somebody who looks five times a second.
const KEPT: usize = 4096;

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its number, from 1; the next one's is one higher.
    pub number: u64,
    /// When.
    pub at: SystemTime,
    /// The kind: `connected`, `left`, `changed`, `removed`, `failed`, `decided`, `noted`, `short`, `latency`.
    pub kind: &'static str,
    /// The details, by name: `export`, `client`, `version`, …
    pub of: Vec<(&'static str, String)>,
}

#[derive(Default)]
pub(crate) struct Events(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    latest: VecDeque<Event>,
    numbered: u64,
}

impl Events {
    pub(crate) fn tell(&self, kind: &'static str, of: Vec<(&'static str, String)>) {
        let mut kept = lock(&self.0);
        kept.numbered += 1;
        let event = Event { number: kept.numbered, at: SystemTime::now(), kind, of };
        if kept.latest.len() == KEPT {
            kept.latest.pop_front(); // events.1
        }
        kept.latest.push_back(event);
    }

    /// Those after a number, and how many of them are not kept any more; `None`: none yet, from the next one on.
    pub(crate) fn after(&self, number: Option<u64>) -> (Vec<Event>, u64) {
        let kept = lock(&self.0);
        let Some(number) = number else { return (Vec::new(), kept.numbered) };
        let first = kept.latest.front().map_or(kept.numbered + 1, |event| event.number);
        let missing = first.saturating_sub(number.saturating_add(1));
        (kept.latest.iter().filter(|event| event.number > number).cloned().collect(), missing)
    }

    /// The next one's number is higher than this one, of the last that another server told.
    pub(crate) fn begin_after(&self, number: u64) {
        let mut kept = lock(&self.0);
        kept.numbered = kept.numbered.max(number.min(1 << 62));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// events.1
    #[test]
    fn a_slow_reader_is_told_how_much_it_missed() {
        let events = Events::default();
        let (none, last) = events.after(None);
        assert_eq!((none.len(), last), (0, 0));
        (0..KEPT + 10).for_each(|n| events.tell("changed", vec![("n", n.to_string())]));
        let (seen, missing) = events.after(Some(last));
        assert_eq!((seen.len(), missing, seen[0].number), (KEPT, 10, 11));
        let (seen, missing) = events.after(Some(KEPT as u64 + 9));
        assert_eq!((seen.len(), missing), (1, 0));
        assert_eq!(events.after(Some(u64::MAX)).0, []);
    }
}
