//! Messages: what a scheduler does for reasons of its own, for those who listen.
//!
//! notes.1  The latest [`KEPT`] are kept while somebody listens; then a message costs one test. Those of trials, which are few, are kept in
//!     any case, the latest [`FINDINGS`].
//! notes.2  A message of `bfq` names the stream whose queue it is about; a queue of asynchronous writes has none.

use alloc::collections::VecDeque;

use crate::learn::idling_trial::Finding;
use crate::trace::{Message, Note};
use crate::{GroupId, Instant, StreamId};

/// Messages that are kept at most. Chosen: a bound on memory where nobody takes them; the oldest goes.
const KEPT: usize = 4096;
/// Findings of trials that are kept while nobody listens. Chosen: at one trial in 10 s, ten minutes of them.
const FINDINGS: usize = 64;

/// Messages that nobody has taken yet.
#[derive(Debug)]
pub(super) struct Notes {
    /// Whether somebody listens.
    pub(super) on: bool,
    kept: VecDeque<Message>,
    findings: VecDeque<Message>,
}

impl Notes {
    /// None yet, and nobody listens.
    pub(super) fn new() -> Self {
        Self { on: false, kept: VecDeque::new(), findings: VecDeque::with_capacity(FINDINGS) }
    }

    pub(super) fn set_on(&mut self, on: bool) {
        self.on = on;
        if !on {
            self.kept.clear();
        }
    }

    #[cold]
    pub(super) fn keep(&mut self, at: Instant, group: GroupId, stream: Option<StreamId>, note: Note) {
        let (kept, most) = match note {
            Note::Compared(_) => (&mut self.findings, FINDINGS),
            _ => (&mut self.kept, KEPT),
        };
        if kept.len() >= most {
            kept.pop_front();
        }
        kept.push_back(Message { at, group, stream, note });
    }

    /// A trial found something.
    pub(super) fn keep_finding(&mut self, finding: Finding) {
        self.keep(finding.at, GroupId::ROOT, None, Note::Compared(finding));
    }

    pub(super) fn take(&mut self) -> Option<Message> {
        self.findings.pop_front().or_else(|| self.kept.pop_front())
    }
}
