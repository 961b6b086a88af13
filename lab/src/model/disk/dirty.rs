//! The content of a write cache that the medium does not have yet.
//!
//! dirty.1  Writes that touch become one run.
//! dirty.2  A run is taken out for the medium near a place, a bounded part of it at a time.

/// Runs of sectors in rising order, apart from each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    runs: Vec<(u64, u64)>,
    pub(super) sectors: u64,
}

impl Dirty {
    /// Room for `runs`.
    pub(super) fn new(runs: usize) -> Self {
        Self { runs: Vec::with_capacity(runs + 1), sectors: 0 }
    }

    pub(super) const fn runs(&self) -> usize {
        self.runs.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Adds what was written (dirty.1).
    pub(super) fn add(&mut self, start: u64, end: u64) {
        let from = self.runs.partition_point(|run| run.1 < start);
        let to = self.runs.partition_point(|run| run.0 <= end);
        if from == to {
            self.runs.insert(from, (start, end));
            self.sectors += end - start;
            return;
        }
        let joined = (start.min(self.runs[from].0), end.max(self.runs[to - 1].1));
        self.sectors -= self.runs[from..to].iter().map(|run| run.1 - run.0).sum::<u64>();
        self.sectors += joined.1 - joined.0;
        self.runs[from] = joined;
        self.runs.drain(from + 1..to);
    }

    /// Whether all of it is here.
    pub(super) fn covers(&self, start: u64, end: u64) -> bool {
        let at = self.runs.partition_point(|run| run.1 <= start);
        self.runs.get(at).is_some_and(|run| run.0 <= start && end <= run.1)
    }

    /// The starts of runs on both sides of a place, at most `each` on each side.
    pub(super) fn around(&self, place: u64, each: usize) -> &[(u64, u64)] {
        let at = self.runs.partition_point(|run| run.0 < place);
        &self.runs[at.saturating_sub(each)..(at + each).min(self.runs.len())]
    }

    /// Takes out the run that starts there, or the beginning of it (dirty.2); where it ends.
    pub(super) fn take(&mut self, start: u64, sectors_max: u64) -> u64 {
        let at = self.runs.partition_point(|run| run.0 < start);
        let run = &mut self.runs[at];
        assert!(run.0 == start, "only a run that is there is taken");
        let end = run.1.min(start + sectors_max);
        self.sectors -= end - start;
        if end == run.1 {
            self.runs.remove(at);
        } else {
            run.0 = end;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// dirty.1: against a plain set of sectors.
    #[test]
    fn runs_are_what_a_set_of_sectors_would_be() {
        let mut random = crate::Random::new(3);
        let mut dirty = Dirty::new(64);
        let mut plain = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            let start = random.below(400);
            if random.below(4) == 0 {
                if let Some(&(start, _)) = dirty.around(start, 1).first() {
                    let end = dirty.take(start, 8);
                    (start..end).for_each(|sector| assert!(plain.remove(&sector)));
                }
            } else {
                let end = start + 1 + random.below(12);
                dirty.add(start, end);
                plain.extend(start..end);
            }
            assert_eq!(dirty.sectors, plain.len() as u64);
            assert_eq!(dirty.covers(start, start + 3), (start..start + 3).all(|sector| plain.contains(&sector)));
            assert!(dirty.runs.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
