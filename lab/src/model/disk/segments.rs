//! The read cache of a drive: a few runs of sectors, one for each stream it follows.
//!
//! segment.1  A segment holds one run, at most so long; what is read on at its end pushes out its start.
//! segment.2  A read that goes on where a segment's reader was takes that segment further; any other read takes the segment
//!     that was not used for longest.
//! segment.3  Written sectors are dropped.

/// One run of sectors.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Segment {
    /// The first sector that is still there.
    pub(super) start: u64,
    /// The first sector that is not there yet; nothing is there if it is `start`.
    pub(super) end: u64,
    /// Where the last read ended.
    pub(super) reader: u64,
    /// Whether its reader has gone on at least once.
    pub(super) sequential: bool,
    used: u64,
}

/// All runs.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    segments: Vec<Segment>,
    sectors_max: u64,
    uses: u64,
}

/// How far behind what was read on a read may start and still go on. Chosen: what an array leaves out (its parity) is not more.
const GAP: u64 = 512;

impl Segments {
    /// `count` segments of `sectors_max` sectors.
    pub(super) fn new(count: usize, sectors_max: u64) -> Self {
        Self { segments: vec![Segment::default(); count], sectors_max, uses: 0 }
    }

    pub(super) fn get(&self, index: usize) -> &Segment {
        &self.segments[index]
    }

    /// The segment in which a read that starts there goes on, or that holds its start.
    pub(super) fn find(&self, start: u64) -> Option<usize> {
        self.segments.iter().position(|s| s.start <= start && start <= s.end && s.start < s.end)
    }

    /// The segment for a read of the medium at `start`, and whether it goes on there (segment.2).
    pub(super) fn take(&mut self, start: u64) -> (usize, bool) {
        self.uses += 1;
        let known = self.segments.iter().position(|s| s.start < s.end && s.start <= start && start <= s.end + GAP);
        let index = known.unwrap_or_else(|| {
            let oldest = self.segments.iter().enumerate().min_by_key(|(_, segment)| segment.used);
            oldest.map_or(0, |(index, _)| index)
        });
        let segment = &mut self.segments[index];
        segment.used = self.uses;
        if known.is_none() || start > segment.end {
            (segment.start, segment.end) = (start, start);
            segment.sequential = known.is_some();
        } else {
            segment.sequential = true;
        }
        segment.reader = start;
        (index, segment.sequential)
    }

    /// A read that ended at `end` was served from here.
    pub(super) fn hit(&mut self, index: usize, end: u64) {
        self.uses += 1;
        let segment = &mut self.segments[index];
        segment.used = self.uses;
        segment.sequential |= end > segment.reader;
        segment.reader = segment.reader.max(end);
    }

    /// The head has read on to `end` (segment.1).
    pub(super) fn extend(&mut self, index: usize, end: u64) {
        let segment = &mut self.segments[index];
        segment.end = segment.end.max(end);
        segment.start = segment.start.max(segment.end.saturating_sub(self.sectors_max));
    }

    /// segment.3
    pub(super) fn drop(&mut self, start: u64, end: u64) {
        for segment in &mut self.segments {
            if segment.start < end && start < segment.end {
                *segment = Segment { used: segment.used, ..Segment::default() };
            }
        }
    }

    pub(super) fn last_used(&self) -> Option<usize> {
        let last = self.segments.iter().enumerate().max_by_key(|(_, segment)| segment.used)?;
        (last.1.start < last.1.end).then_some(last.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// segment.1.
    #[test]
    fn a_segment_keeps_the_end_of_what_was_read() {
        let mut segments = Segments::new(2, 100);
        let (index, on) = segments.take(1000);
        assert!(!on);
        segments.extend(index, 1150);
        assert_eq!(segments.find(1049), None);
        assert_eq!(segments.find(1050), Some(index));
        assert_eq!(segments.find(1150), Some(index), "a reader may go on here");
        assert_eq!(segments.find(1151), None);
    }

    /// segment.2.
    #[test]
    fn a_stream_keeps_its_segment_and_a_new_one_takes_the_oldest() {
        let mut segments = Segments::new(2, 100);
        let (a, _) = segments.take(1000);
        segments.extend(a, 1050);
        let (b, _) = segments.take(5000);
        segments.extend(b, 5050);
        assert_eq!(segments.take(1050), (a, true));
        let (c, on) = segments.take(9000);
        assert_eq!((c, on), (b, false));
        assert_eq!(segments.find(5000), None);
    }

    /// segment.3.
    #[test]
    fn what_is_written_is_not_served_from_the_cache() {
        let mut segments = Segments::new(2, 100);
        let (a, _) = segments.take(1000);
        segments.extend(a, 1050);
        segments.drop(1049, 1051);
        assert_eq!(segments.find(1000), None);
    }
}
