//! The controller's read-ahead for the sequential readers that it sees.
//!
//! prefetch.1  A read that starts where an earlier one ended makes a stream; then data is asked for up to `prefetch` beyond the
//!     reader, a chunk at a time, as soon as half of that is used up.
//! prefetch.2  A read waits for the chunks that are under way, and goes to the disks for the rest.
//! prefetch.3  A new reader takes the stream that was not used for longest.
//! prefetch.4  A reader is read ahead for once it has read `after` in a row. A reader that asked nothing for longer than `keep` is
//!     forgotten, together with its read-ahead: it begins anew.

use std::collections::VecDeque;

/// A piece that was asked for.
#[derive(Clone, Copy, Debug)]
struct Unit {
    end: u64,
    ready: bool,
}

#[derive(Debug, Default)]
struct Stream {
    /// Where its reader goes on; what was asked for lies from `start` on without a hole.
    next: u64,
    start: u64,
    end: u64,
    used: u64,
    generation: u32,
    /// Sectors read in a row (prefetch.4).
    run: u64,
    /// Reads that have not ended, and when the last one did.
    open: u32,
    rests_since: u64,
    units: VecDeque<Unit>,
    /// Reads that wait for units.
    waiting: Vec<(usize, u64, u64)>,
}

#[derive(Debug)]
pub(super) struct Streams {
    streams: Vec<Stream>,
    uses: u64,
    /// prefetch.4, in sectors and nanoseconds.
    after: u64,
    keep: u64,
}

/// Names a unit while it is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    stream: u32,
    generation: u32,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The relation of a read to the data that was read ahead.
pub(super) struct Found {
    stream: usize,
    /// The part of the read that is cached or in flight.
    pub(super) start: u64,
    pub(super) end: u64,
    /// How many units of it are under way.
    pub(super) under_way: u32,
}

impl Streams {
    pub(super) fn new(count: usize, after: u64, keep: u64) -> Self {
        Self { streams: (0..count).map(|_| Stream::default()).collect(), uses: 0, after, keep }
    }

    /// A read from `start` to `end` of `task` came: its stream, and the part of it that was read ahead (prefetch.1-4).
    pub(super) fn read(&mut self, now: u64, task: usize, start: u64, end: u64) -> (Option<u32>, Option<Found>) {
        self.uses += 1;
        let goes_on = |s: &Stream| s.used > 0 && (s.next == start || (s.start <= start && start < s.end));
        let known = self.streams.iter().position(goes_on);
        let fresh = |&index: &usize| {
            let stream = &self.streams[index];
            stream.open > 0 || now <= stream.rests_since.saturating_add(self.keep)
        };
        let Some(index) = known.filter(fresh) else {
            let rests = |index: &usize| self.streams[*index].open == 0;
            let free = (0..self.streams.len()).filter(rests).min_by_key(|index| self.streams[*index].used);
            let Some(index) = known.or(free) else { return (None, None) };
            let stream = &mut self.streams[index];
            stream.generation = stream.generation.wrapping_add(1);
            stream.units.clear();
            (stream.next, stream.start, stream.end, stream.used) = (end, end, end, self.uses);
            (stream.run, stream.open) = (end - start, 1);
            return (Some(index as u32), None);
        };
        let stream = &mut self.streams[index];
        stream.used = self.uses;
        stream.open += 1;
        stream.run += end - start;
        let (from, to) = (start.max(stream.start), end.min(stream.end));
        let mut under_way = 0;
        if from < to {
            let mut unit_start = stream.start;
            for unit in &stream.units {
                under_way += u32::from(!unit.ready && unit_start < to && from < unit.end);
                unit_start = unit.end;
            }
            if under_way > 0 {
                stream.waiting.push((task, from, to));
            }
        }
        stream.next = stream.next.max(end);
        if stream.end < end {
            // The read-ahead ends within this read: all of it is used up.
            stream.end = stream.end.max(end);
            if stream.units.is_empty() {
                stream.start = end;
            } else {
                stream.units.push_back(Unit { end, ready: true });
            }
        }
        stream.forget();
        let (start, end, under_way) = if from < to { (from, to, under_way) } else { (end, end, 0) };
        (Some(index as u32), Some(Found { stream: index, start, end, under_way }))
    }

    /// A read of a stream ended.
    pub(super) fn ended(&mut self, at: u64, stream: u32) {
        let stream = &mut self.streams[stream as usize];
        stream.open -= 1;
        stream.rests_since = at;
    }

    /// The next unit to be asked for, for the stream of a read that ended at `reader` (prefetch.1).
    pub(super) fn ahead(&mut self, found: &Found, prefetch: u64, chunk: u64, capacity: u64) -> Option<Ahead> {
        let stream = &mut self.streams[found.stream];
        let start = stream.end;
        let end = (start / chunk + 1) * chunk;
        if end > capacity || end > stream.next + prefetch {
            return None;
        }
        stream.end = end;
        stream.units.push_back(Unit { end, ready: false });
        Some(Ahead { stream: found.stream as u32, generation: stream.generation, start, end })
    }

    /// Whether enough is used up to ask for more (prefetch.1, prefetch.4).
    pub(super) fn wants(&self, found: &Found, prefetch: u64) -> bool {
        let stream = &self.streams[found.stream];
        stream.run > self.after && stream.end.saturating_sub(stream.next) * 2 <= prefetch
    }

    /// A unit was read: the reads that wait for it, once for each.
    pub(super) fn came(&mut self, ahead: &Ahead, mut tell: impl FnMut(usize)) {
        let stream = &mut self.streams[ahead.stream as usize];
        if stream.generation != ahead.generation {
            return;
        }
        if let Some(unit) = stream.units.iter_mut().find(|unit| unit.end == ahead.end) {
            unit.ready = true;
        }
        let waits = |read: &(usize, u64, u64)| read.1 < ahead.end && ahead.start < read.2;
        stream.waiting.iter().filter(|read| waits(read)).for_each(|read| tell(read.0));
        stream.forget();
    }

    /// A read has all it waited for.
    pub(super) fn done(&mut self, task: usize) {
        for stream in &mut self.streams {
            stream.waiting.retain(|read| read.0 != task);
        }
    }
}

impl Stream {
    /// The part that the reader has passed is forgotten.
    fn forget(&mut self) {
        while let Some(unit) = self.units.pop_front_if(|unit| unit.ready && unit.end <= self.next) {
            self.start = unit.end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// prefetch.1, prefetch.2.
    #[test]
    fn a_reader_that_goes_on_is_read_ahead_for_and_waits_for_what_is_under_way() {
        let mut streams = Streams::new(2, 0, u64::MAX);
        assert!(streams.read(0, 1, 0, 10).1.is_none());
        let found = streams.read(0, 2, 10, 20).1.unwrap();
        assert_eq!((found.start, found.end), (20, 20), "nothing was asked for yet");
        assert!(streams.wants(&found, 32));
        let first = streams.ahead(&found, 32, 16, 1000).unwrap();
        assert_eq!((first.start, first.end), (20, 32));
        let second = streams.ahead(&found, 32, 16, 1000).unwrap();
        assert_eq!((second.start, second.end), (32, 48));
        assert!(streams.ahead(&found, 32, 16, 1000).is_none(), "64 is more than 32 beyond the reader");
        streams.came(&first, |_| panic!("nobody waits"));
        let found = streams.read(0, 3, 20, 40).1.unwrap();
        assert_eq!((found.start, found.end, found.under_way), (20, 40, 1));
        let mut reads = Vec::new();
        streams.came(&second, |task| reads.push(task));
        assert_eq!(reads, [3]);
        assert!(streams.streams.iter().any(|stream| !stream.waiting.is_empty()));
        streams.done(3);
        assert!(streams.streams.iter().all(|stream| stream.waiting.is_empty()), "it waits for nothing more");
    }

    /// prefetch.3.
    #[test]
    fn what_comes_late_for_a_stream_that_was_taken_is_ignored() {
        let mut streams = Streams::new(1, 0, u64::MAX);
        streams.read(0, 1, 0, 10);
        let found = streams.read(0, 2, 10, 20).1.unwrap();
        let ahead = streams.ahead(&found, 32, 16, 1000).unwrap();
        streams.read(0, 3, 500, 510);
        assert!(streams.read(0, 4, 20, 30).1.is_some(), "a stream with reads under way is not taken");
        (0..3).for_each(|_| streams.ended(0, 0));
        streams.read(0, 5, 500, 510);
        streams.came(&ahead, |_| panic!("nobody waits"));
        streams.ended(0, 0);
        assert!(streams.read(0, 6, 30, 40).1.is_none());
    }

    /// prefetch.4.
    #[test]
    fn a_reader_is_read_ahead_for_when_it_has_gone_on_for_long_enough_and_is_forgotten_when_it_rests() {
        let mut streams = Streams::new(2, 30, 1000);
        let mut wants = |now: u64, start: u64| {
            let (stream, found) = streams.read(now, 1, start, start + 10);
            streams.ended(now + 5, stream.unwrap());
            found.map(|found| streams.wants(&found, 32))
        };
        assert_eq!([0, 10, 20, 30].map(|start| wants(start, start)), [None, Some(false), Some(false), Some(true)]);
        assert_eq!(wants(1035, 40), Some(true), "1000 after the last one ended it is known");
        assert_eq!(wants(2041, 50), None, "later it is not");
        assert_eq!(wants(2050, 60), Some(false));
    }
}
