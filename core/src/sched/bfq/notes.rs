//! Messages: what BFQ does for reasons of its own, for those who listen.
//!
//! notes.1  The latest [`KEPT`] are kept while somebody listens, and none otherwise: then a message costs one test.
//! notes.2  A message names the stream whose queue it is about; a queue of asynchronous writes has none.

use alloc::collections::VecDeque;

use super::*;

/// Messages that are kept at most. Chosen: a bound on memory where nobody takes them; the oldest goes.
const KEPT: usize = 4096;

/// Messages that nobody has taken yet.
#[derive(Default, Debug)]
pub(super) struct Notes {
    /// Whether somebody listens.
    pub(super) on: bool,
    /// When the scheduler was called last.
    pub(super) now: Instant,
    kept: VecDeque<Message>,
}

impl Notes {
    pub(super) fn set_on(&mut self, on: bool) {
        self.on = on;
        if !on {
            self.kept.clear();
        }
    }

    pub(super) fn take(&mut self) -> Option<Message> {
        self.kept.pop_front()
    }
}

impl Bfq {
    /// About a queue.
    #[inline]
    pub(super) fn note(&mut self, q: u32, note: Note) {
        if self.notes.on {
            self.keep(q, None, note);
        }
    }

    /// About a stream and its queue.
    #[inline]
    pub(super) fn note_stream(&mut self, q: u32, stream: StreamId, note: Note) {
        if self.notes.on {
            self.keep(q, Some(stream), note);
        }
    }

    #[cold]
    fn keep(&mut self, q: u32, stream: Option<StreamId>, note: Note) {
        // Slow with many streams, but no memory of every queue goes into it.
        let home = || self.homes.iter().position(|home| *home == q).map(|id| StreamId(id as u32));
        let stream = stream.or_else(home);
        let group = self.queue(q).group;
        let Notes { now, kept, .. } = &mut self.notes;
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Message { at: *now, group, stream, note });
    }
}
