//! Oracle: the necessary content of a disk after a power cut, from requests of its clients and answers to them, and from nothing else.
//!
//! It knows neither queue nor disk. A write, or zeroes, is *durable* once it was told to have ended well, and then a flush
//! of its range was asked for and told to have ended well; or if it had FUA; or once the disk is given a write with PREFLUSH
//! that was asked for after its end. A sector must not hold what had ended before a durable write of it was asked for; it may
//! hold all else that a client asked to be there.

use fairlift_core::{Extent, Flags, Op, Outcome};

use super::media::Stamp;

/// Not yet; and never, for a client that is gone.
const NEVER: u64 = u64::MAX;

/// A bio, as its client knows it.
struct Known {
    op: Op,
    flags: Flags,
    extent: Extent,
    begun: u64,
    ended: u64,
    /// Its client does not listen any more.
    is_abandoned: bool,
}

/// The oldest content that a sector may have.
#[derive(Clone, Copy, Default)]
struct Floor {
    begun: u64,
    write: Stamp,
    promised_by: Stamp,
}

/// The requests of clients and their answers: see the [module](self).
pub struct Oracle {
    /// How far it has come: the same as long as nobody has asked, and been told, anything else.
    pub(super) clock: u64,
    /// By stamp, less 1.
    known: Vec<Known>,
    /// Answered writes that no flush has covered yet.
    loose: Vec<Stamp>,
    floors: Vec<Floor>,
    /// Flushes that were told to have ended well.
    pub(super) answered_flushes: u64,
}

impl Oracle {
    /// For a disk of `sectors`, before anything is asked.
    #[must_use]
    pub fn new(sectors: u64) -> Self {
        let floors = vec![Floor::default(); sectors as usize];
        Self { clock: 0, known: Vec::new(), loose: Vec::new(), floors, answered_flushes: 0 }
    }

    /// The purpose of a bio.
    pub(super) fn extent(&self, stamp: Stamp) -> Extent {
        self.known[stamp as usize - 1].extent
    }

    /// Whether it was asked to be durable at once.
    pub(super) fn has_fua(&self, stamp: Stamp) -> bool {
        self.known[stamp as usize - 1].flags.contains(Flags::FUA)
    }

    /// A client asks. For a flush `extent` is all that it is for. The answer is the bio's stamp.
    pub fn submitted(&mut self, op: Op, flags: Flags, extent: Extent) -> Stamp {
        self.clock += 1;
        let begun = self.clock;
        self.known.push(Known { op, flags, extent, begun, ended: NEVER, is_abandoned: false });
        self.known.len() as Stamp
    }

    /// The queue did not take what was asked last.
    pub fn refused(&mut self, stamp: Stamp) {
        assert_eq!(stamp, self.known.len() as Stamp, "only what was asked last can have been refused");
        self.known.pop();
        self.clock -= 1;
    }

    /// Its client is gone: it hears no answer.
    pub fn abandoned(&mut self, stamp: Stamp) {
        self.known[stamp as usize - 1].is_abandoned = true;
    }

    /// The client is told how it ended, and that nothing of it is under way any more.
    ///
    /// # Panics
    /// If it was told before.
    pub fn ended(&mut self, stamp: Stamp, outcome: Outcome) {
        self.clock += 1;
        let now = self.clock;
        let known = &mut self.known[stamp as usize - 1];
        assert!(known.ended == NEVER, "bio {stamp} ended twice");
        if known.is_abandoned {
            return;
        }
        known.ended = now;
        if outcome != Outcome::Done {
            return;
        }
        match known.op {
            Op::Read | Op::Discard => {}
            Op::Flush => {
                self.answered_flushes += 1;
                let Known { begun, extent, .. } = *known;
                self.cover(stamp, begun, extent);
            }
            Op::Write | Op::WriteZeroes if known.flags.contains(Flags::FUA) => self.promise(stamp, stamp),
            Op::Write | Op::WriteZeroes => self.loose.push(stamp),
        }
    }

    /// The disk is given data of a bio: with PREFLUSH it may be there next, so all of `range` that ended before must be.
    pub fn given(&mut self, stamp: Stamp, range: Extent) {
        let known = &self.known[stamp as usize - 1];
        if known.flags.contains(Flags::PREFLUSH) {
            self.cover(stamp, known.begun, range);
        }
    }

    /// Requests that had ended before it was asked are covered by it.
    fn cover(&mut self, promised_by: Stamp, begun: u64, extent: Extent) {
        let mut loose = std::mem::take(&mut self.loose);
        loose.retain(|stamp| {
            let write = &self.known[*stamp as usize - 1];
            let is_covered = write.ended < begun && write.extent.overlaps(extent);
            if is_covered {
                self.promise(*stamp, promised_by);
            }
            !is_covered
        });
        self.loose = loose;
    }

    fn promise(&mut self, write: Stamp, promised_by: Stamp) {
        let Known { begun, extent, .. } = self.known[write as usize - 1];
        for floor in &mut self.floors[extent.start.0 as usize..extent.end().0 as usize] {
            if begun > floor.begun {
                *floor = Floor { begun, write, promised_by };
            }
        }
    }

    /// Judges what a sector may hold.
    ///
    /// # Errors
    /// The promise about it, and its other possible contents.
    pub fn judge(&self, sector: u64, found: Stamp) -> Result<(), String> {
        let floor = self.floors[sector as usize];
        let ended = match found {
            0 => 0,
            _ => match self.known.get(found as usize - 1) {
                Some(known) if known.op != Op::Flush && holds(known.extent, sector) => known.ended,
                _ => return Err(format!("sector {sector} may hold what nobody asked to be there (bio {found})")),
            },
        };
        if floor.write == 0 || ended >= floor.begun {
            return Ok(());
        }
        let says = if floor.promised_by == floor.write { "it was told to be durable" } else { "a flush covered it" };
        Err(format!(
            "sector {sector} may hold {}, though {} was written there and {says} (bio {})",
            self.name(found),
            self.name(floor.write),
            floor.promised_by,
        ))
    }

    fn name(&self, stamp: Stamp) -> String {
        match self.known.get((stamp as usize).wrapping_sub(1)) {
            None => "what was there first".into(),
            Some(known) => format!("bio {stamp} ({} {:?})", known.op.name(), known.extent),
        }
    }
}

const fn holds(extent: Extent, sector: u64) -> bool {
    extent.start.0 <= sector && sector < extent.end().0
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlift_core::{Errno, Sector};

    const E: Extent = Extent::new(Sector(0), 1);

    fn whole(oracle: &mut Oracle, op: Op, flags: Flags) -> Stamp {
        let stamp = oracle.submitted(op, flags, E);
        oracle.ended(stamp, Outcome::Done);
        stamp
    }

    #[test]
    fn nothing_is_promised_before_a_flush_is_answered() {
        let mut oracle = Oracle::new(1);
        let write = whole(&mut oracle, Op::Write, Flags::NONE);
        let flush = oracle.submitted(Op::Flush, Flags::NONE, E);
        assert!(oracle.judge(0, 0).is_ok() && oracle.judge(0, write).is_ok());
        oracle.ended(flush, Outcome::Failed(Errno::EIO));
        assert!(oracle.judge(0, 0).is_ok(), "that flush failed");
        whole(&mut oracle, Op::Flush, Flags::NONE);
        assert!(oracle.judge(0, 0).is_err() && oracle.judge(0, write).is_ok());
    }

    #[test]
    fn a_write_that_had_not_ended_when_the_flush_was_asked_for_is_not_covered() {
        let mut oracle = Oracle::new(1);
        let write = oracle.submitted(Op::Write, Flags::NONE, E);
        let flush = oracle.submitted(Op::Flush, Flags::NONE, E);
        oracle.ended(write, Outcome::Done);
        oracle.ended(flush, Outcome::Done);
        assert!(oracle.judge(0, 0).is_ok());
    }

    #[test]
    fn what_was_under_way_with_a_durable_write_may_cover_it_and_what_had_ended_may_not() {
        let mut oracle = Oracle::new(1);
        let before = whole(&mut oracle, Op::Write, Flags::NONE);
        let beside = oracle.submitted(Op::Write, Flags::NONE, E);
        whole(&mut oracle, Op::Write, Flags::FUA);
        oracle.ended(beside, Outcome::Done);
        assert!(oracle.judge(0, before).is_err());
        assert!(oracle.judge(0, beside).is_ok());
        assert!(oracle.judge(0, 9).is_err(), "nobody wrote that");
    }

    #[test]
    fn a_write_with_preflush_promises_what_ended_before_it_once_the_disk_has_its_data() {
        let mut oracle = Oracle::new(1);
        let before = whole(&mut oracle, Op::Write, Flags::NONE);
        let beside = oracle.submitted(Op::Write, Flags::NONE, E);
        let behind = oracle.submitted(Op::Write, Flags::PREFLUSH, E);
        oracle.ended(beside, Outcome::Done);
        assert!(oracle.judge(0, 0).is_ok(), "its data is not there yet");
        oracle.given(beside, E);
        assert!(oracle.judge(0, 0).is_ok(), "that has no PREFLUSH");
        oracle.given(behind, E);
        assert!(oracle.judge(0, 0).is_err());
        assert!([before, beside, behind].into_iter().all(|found| oracle.judge(0, found).is_ok()));
    }

    #[test]
    fn a_discard_promises_nothing_and_what_failed_or_whose_client_is_gone_neither() {
        let mut oracle = Oracle::new(1);
        whole(&mut oracle, Op::Discard, Flags::FUA);
        let failed = oracle.submitted(Op::Write, Flags::FUA, E);
        oracle.ended(failed, Outcome::Failed(Errno::EIO));
        let gone = oracle.submitted(Op::Write, Flags::FUA, E);
        oracle.abandoned(gone);
        oracle.ended(gone, Outcome::Done);
        assert!([0, failed, gone].into_iter().all(|found| oracle.judge(0, found).is_ok()));
    }
}
