//! Messages about queues and their streams (notes.2).

use super::*;

impl Bfq {
    /// About a queue, and the stream that did something to it.
    #[inline]
    pub(super) fn note(&mut self, q: u32, stream: Option<StreamId>, note: Note) {
        if self.notes.on {
            self.keep(q, stream, note);
        }
    }

    #[cold]
    fn keep(&mut self, q: u32, stream: Option<StreamId>, note: Note) {
        // Slow with many streams, but no memory of every queue goes into it.
        let home = || self.homes.iter().position(|home| *home == q).map(|id| StreamId(id as u32));
        let stream = stream.or_else(home);
        let group = self.queue(q).group;
        self.notes.keep(self.now, group, stream, note);
    }
}
