//! The sequential streams that a controller knows: each goes on where it ended.

/// How many it remembers; newcomers take the places in turn. Chosen: as many as `iostune` tries beside each other.
const KNOWN: usize = 16;

/// A run of requests: each starts where the one before ended.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Stream {
    /// Where data read ahead ends: what an earlier order asked for, and the last one; sectors.
    pub(super) ahead: [u64; 2],
    /// When each is in the controller's memory.
    pub(super) ready: [u64; 2],
}

/// The streams of one direction.
pub(super) struct Streams {
    /// The sector at which each goes on. Apart from the rest: it is looked through for every request.
    next: [u64; KNOWN],
    streams: [Stream; KNOWN],
    /// The owner of the place that a newcomer takes: places are given in turn.
    turn: usize,
}

impl Streams {
    pub(super) const fn new() -> Self {
        let stream = Stream { ahead: [0; 2], ready: [0; 2] };
        Self { next: [u64::MAX; KNOWN], streams: [stream; KNOWN], turn: 0 }
    }

    /// The stream that a request from `start` to `end` goes on with; else one begins, and there is none yet.
    pub(super) fn follow(&mut self, start: u64, end: u64) -> Option<&mut Stream> {
        let mut found = KNOWN;
        // Without a break it is a few vector operations.
        for (place, next) in self.next.iter().enumerate() {
            if *next == start {
                found = place;
            }
        }
        if found == KNOWN {
            self.next[self.turn] = end;
            self.streams[self.turn] = Stream::default();
            self.turn = (self.turn + 1) % KNOWN;
            return None;
        }
        self.next[found] = end;
        if found == self.turn {
            self.turn = (self.turn + 1) % KNOWN;
        }
        Some(&mut self.streams[found])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_starts_where_another_ended_goes_on_with_it() {
        let mut streams = Streams::new();
        assert!(streams.follow(0, 8).is_none());
        assert!(streams.follow(1000, 1008).is_none());
        assert!(streams.follow(8, 16).is_some());
        assert!(streams.follow(1008, 1016).is_some());
        assert!(streams.follow(8, 16).is_none(), "it is at 16 by now");
    }

    #[test]
    fn a_stream_is_forgotten_behind_as_many_newcomers_as_are_known() {
        let mut streams = Streams::new();
        streams.follow(0, 8);
        for other in 1..KNOWN as u64 {
            streams.follow(other * 1000, other * 1000 + 8);
        }
        assert!(streams.follow(8, 16).is_some());
        for other in 100..100 + KNOWN as u64 {
            streams.follow(other * 1000, other * 1000 + 8);
        }
        assert!(streams.follow(16, 24).is_none());
    }
}
